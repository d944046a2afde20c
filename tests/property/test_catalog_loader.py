"""What must hold for the catalog, whatever its files say: a record, or faults of one line each, soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from fuzzing import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvreport.book.glossary import load_glossary
from kvreport.book.prose import load_allowed
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.claim import ClaimsFile
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import Formats, Grid
from kvreport.catalog.load import open_catalog
from kvreport.catalog.measurement import Measurement, read_measurement
from kvreport.catalog.model import Model
from kvreport.catalog.observation import ObservationsFile
from kvreport.catalog.peer import PeersFile
from kvreport.catalog.planner_check import PlannerCheck
from kvreport.catalog.release import RulesFile
from kvreport.catalog.shelf import MAX_VALUES, read_yaml, validate
from kvreport.dataset.release import data_version
from kvreport.errors import CatalogError, InputError
from kvreport.estimation.estimate import estimate
from kvreport.publish.changes import read_snapshot
from kvreport.resources import data_dir
from tests.record_files import stated_record

DATA: Final = data_dir()
CATALOG: Final = open_catalog()
RECORDS: Final = {
    "models/meta-llama--Llama-3.1-8B-Instruct.yaml": Model,
    "models/deepseek-ai--DeepSeek-V3.2.yaml": Model,
    "models/Qwen--Qwen3.6-27B.yaml": Model,
    "models/google--gemma-3n-E4B-it.yaml": Model,
    "accelerators/h100-sxm-80gb.yaml": Accelerator,
    "engines/vllm.yaml": Engine,
    "engines/vllm/rules.yaml": RulesFile,
    "formats.yaml": Formats,
    "grid.yaml": Grid,
    "claims/source-1.yaml": ClaimsFile,
    "observations": ObservationsFile,
    "peers.yaml": PeersFile,
    "planner_check.yaml": PlannerCheck,
}
SNAPSHOT: Final = {
    "version": "2026.01.02",
    "engine": "vLLM",
    "gpu": "h100-sxm-80gb",
    "models": {"a/b": {"parameters": 1, "weight_bytes": 2}},
    "gpus": {"h100-sxm-80gb": 84943715697},
}
SECONDS: Final = 2.0
"""Processor time that a file may take, however it is written."""

odd_texts = st.sampled_from(
    [
        "", " ", "x", "a" * 500, "é" * 5000, "\n", "a\nb", "\x00", "\x1b[31m", "\u202e", "\u2028", "\x85", "\ufeff",
        "../../x", "=1+1", "{{ 7 * 7 }}", "<script>", "null", "~", "0x10", "1e999", "2026-01-02", "12:30:45", "&a",
    ]
)  # fmt: skip
odd: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, 2, 3, -1, 7, 128, 2**31, 2**40, 2**40 + 1, 2**63, 10**30, 10**400]),
        st.sampled_from([0.5, -0.0, 1e-300, 1e308, float("nan"), float("inf")]),
        odd_texts,
        st.text(max_size=20),
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(odd_texts | st.sampled_from(["id", "kind", "layers", "value"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@cache
def stated(name: str) -> str:
    path = DATA / name
    if path.is_dir():
        path = min(path.glob("*.yaml"), key=lambda file: file.stat().st_size)
        return json.dumps(short(read_yaml(path, name)))
    return json.dumps(short(stated_record(name)))


def short(data: Any) -> Any:
    """Leave the first few of a long list: a fault in the hundredth is the same fault."""
    if isinstance(data, dict):
        return {key: short(value) for key, value in data.items()}
    return [short(value) for value in data[:12]] if isinstance(data, list) else data


def places(data: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document but its root."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in ((*path, key), *places(value, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> Any:
    """A real document in which a few things are something else, missing, there twice or too much."""
    data: Any = json.loads(text)
    for _ in range(draw(st.integers(1, 3))):
        known = places(data)
        if not known:
            break
        *steps, last = draw(st.sampled_from(known))
        parent = data
        for step in steps:
            parent = parent[step]
        kind = draw(st.sampled_from(("replace", "replace", "remove", "add", "again", "sign")))
        if kind == "remove":
            del parent[last]
        elif kind == "add" and isinstance(parent, dict):
            parent[draw(odd_texts)] = draw(odd)
        elif kind == "again" and isinstance(parent, list):
            parent.extend([parent[last]] * draw(st.sampled_from((1, 3, 1000))))
        elif kind == "sign" and isinstance(parent[last], int | float):
            parent[last] = draw(st.sampled_from((-1, 0, 1000, 10**12))) * parent[last]
        else:
            parent[last] = draw(odd)
    return data


def one_line_each(error: CatalogError, where: str) -> None:
    assert error.faults
    for fault in error.faults:
        said = str(fault)
        assert said.startswith(where), said
        assert said.isprintable(), said
        assert len(said) < 1000
        assert fault.found
        assert fault.allowed


def read_or_faults(where: str, read: Callable[[], object]) -> object:
    """Read something; a fault is one line that names the file, and neither takes long."""
    start = time.process_time()
    try:
        found = read()
    except CatalogError as error:
        one_line_each(error, where)
        found = None
    assert time.process_time() - start < SECONDS
    return found


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(RECORDS)).flatmap(lambda name: st.tuples(st.just(name), mutated(stated(name)))))
def test_any_change_to_a_record_is_a_record_or_faults(case: tuple[str, Any]) -> None:
    name, data = case
    read_or_faults(name, lambda: validate(RECORDS[name], data, name))


@settings(max_examples=examples(150))
@given(data=odd)
def test_any_document_is_a_record_or_faults(data: Any) -> None:
    for record in dict.fromkeys(RECORDS.values()):
        read_or_faults("some.yaml", lambda record=record: validate(record, data, "some.yaml"))


@settings(max_examples=examples(150))
@given(
    st.sampled_from([name for name in RECORDS if name.startswith("models/")]).flatmap(
        lambda n: mutated(stated(n))
    )
)
def test_a_model_that_is_taken_can_be_calculated_with(data: Any) -> None:
    model = read_or_faults("model.yaml", lambda: validate(Model, data, "model.yaml"))
    if model is None:
        return
    assert isinstance(model, Model)
    for gpu, ranks in (("h100-sxm-80gb", 1), ("mi300x", 3)):
        try:
            found = estimate(model, gpu=gpu, tensor_parallel=ranks, context_tokens=8192, catalog=CATALOG)
        except InputError as error:
            said = str(error)
            assert said.isprintable()
            continue
        assert found.max_concurrent_requests >= 0
        json.dumps(found.to_dict(), allow_nan=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=300)
    | st.lists(
        st.sampled_from([*"-?:,[]{}#&*!|>'\"%@` \n\t", "a", "1", "? ", "- ", ": ", "<<", "---\n"]),
        max_size=60,
    ).map("".join)
    | odd.map(lambda data: yaml.safe_dump(data, allow_unicode=True)),
)
def test_any_text_is_a_document_or_one_fault(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    read_or_faults("file.yaml", lambda: read_yaml(file, "file.yaml"))


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(RECORDS)),
    at=st.floats(0, 1),
    harm=st.binary(max_size=20),
    cut=st.integers(0, 200),
)
def test_a_damaged_file_is_a_record_or_faults(
    file: Path, name: str, at: float, harm: bytes, cut: int
) -> None:
    whole = yaml.safe_dump(json.loads(stated(name))).encode()
    place = int(at * len(whole))
    file.write_bytes(whole[:place] + harm + whole[place + cut :])
    read_or_faults("file.yaml", lambda: validate(RECORDS[name], read_yaml(file, "file.yaml"), "file.yaml"))


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mutated(stated("glossary.yaml")), allowed=mutated(stated("prose-allow.yaml")))
def test_any_change_to_the_words_is_words_or_faults(file: Path, data: Any, allowed: Any) -> None:
    for content, read in ((data, load_glossary), (allowed, load_allowed)):
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        read_or_faults("file.yaml", lambda read=read: read(file))


MEASUREMENT: Final = json.dumps(
    short(json.loads((DATA / "measurements" / "e6-paged-cpu.json").read_text(encoding="utf-8")))
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=mutated(MEASUREMENT) | mutated(json.dumps(SNAPSHOT)) | odd)
def test_any_json_is_a_measurement_a_snapshot_or_faults(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "e6-paged-cpu.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    made = read_or_faults("measurements/e6-paged-cpu.json", lambda: read_measurement(path))
    assert made is None or isinstance(made, Measurement)
    read_or_faults("releases/e6-paged-cpu.json", lambda: read_snapshot(path))


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200)
    | st.sampled_from([b"[" * 100_000, b"1" * 5000, b'{"a":' * 50_000, b"\xff"])
)
@example(content=b"[" * 100_000)
def test_any_bytes_are_faults_of_a_measurement_and_a_snapshot(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(content)
    for where, read in (("measurements/one.json", read_measurement), ("releases/one.json", read_snapshot)):
        assert read_or_faults(where, lambda read=read: read(path)) is None


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40) | st.from_regex(rb"[0-9]{4}\.[0-9]{2}\.[0-9]{2}", fullmatch=True))
def test_any_release_is_a_day_or_a_fault(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "RELEASE").write_bytes(content)
    found = read_or_faults("RELEASE", lambda: data_version(tmp_path))
    assert found is None or found == content.decode().strip()


def test_a_key_of_json_stands_once(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"name": "one", "readings": [{"at": {"batch": 1, "batch": 2}}]}', encoding="utf-8")
    with pytest.raises(CatalogError, match=r"^measurements/one\.json: found the key 'batch' twice"):
        read_measurement(path)


def test_what_is_no_file_is_a_fault(tmp_path: Path) -> None:
    for name, where, read in (
        ("one.json", "measurements/one.json", read_measurement),
        ("one.json", "releases/one.json", read_snapshot),
        ("one.yaml", "one.yaml", load_glossary),
    ):
        place = tmp_path / where / name
        place.mkdir(parents=True)
        with pytest.raises(CatalogError) as caught:
            read(place)
        one_line_each(caught.value, where)


@pytest.mark.parametrize("tag", ["\n", "é" * 5000])
def test_a_kind_that_there_is_not_is_one_short_line(tag: str) -> None:
    data = json.loads(stated("models/deepseek-ai--DeepSeek-V3.2.yaml"))
    data["layers"][0]["caches"][0]["kind"] = tag
    assert read_or_faults("model.yaml", lambda: validate(Model, data, "model.yaml")) is None


def test_more_values_than_a_record_has_are_refused_before_they_are_looked_at() -> None:
    data = json.loads(stated("models/deepseek-ai--DeepSeek-V3.2.yaml"))
    data["weights"][0]["shape"] = [-1] * (MAX_VALUES + 1)
    start = time.process_time()
    with pytest.raises(
        CatalogError, match="found more than 200,000 values; allowed: at most 200,000 in one record"
    ):
        validate(Model, data, "model.yaml")
    assert time.process_time() - start < 0.5
