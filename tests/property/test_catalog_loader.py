"""What must hold for the catalog, whatever its files say: what they are, or faults of one line each, soon.

Records and their texts are tried by ``fuzz_targets.record_mutation`` and ``record_text``.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import mutants
import pytest
import yaml
from fuzz_targets import one_sentence, short, soon
from fuzzing import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvreport.book.glossary import load_glossary
from kvreport.book.prose import load_allowed
from kvreport.catalog.measurement import Measurement, read_measurement
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import MAX_VALUES, validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.dataset.data_version import data_version
from kvreport.errors import CatalogError
from kvreport.publish.changes import read_snapshot
from kvreport.resources import data_dir
from tests.record_files import stated_record

DATA: Final = data_dir()
SNAPSHOT: Final = {
    "version": "2026.01.02",
    "engine": "vLLM",
    "gpu": "h100-sxm-80gb",
    "models": {"a/b": {"parameters": 1, "weight_bytes": 2}},
    "gpus": {"h100-sxm-80gb": 84943715697},
}


def changes(*documents: Any, number: int) -> Iterator[tuple[Any, ...]]:
    """So many times the documents with a few things in them that are something else, or something else in place of one."""
    for seed in range(examples(number)):
        draw = random.Random(seed)  # noqa: S311 - examples, no secrets
        changed = [mutants.tree(draw, copy.deepcopy(one)) for one in documents]
        if draw.random() < 0.2:
            changed[draw.randrange(len(changed))] = draw.choice(mutants.ODD)
        yield tuple(changed)


def read_or_faults(where: str, read: Callable[[], object]) -> object:
    """Read something; a fault is one line that names the file, and neither takes long."""
    with soon():
        try:
            return read()
        except CatalogError as error:
            one_sentence(error, where)
            return None


def test_any_change_to_the_words_is_words_or_faults(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    words = [short(read_yaml(DATA / name, name)) for name in ("glossary.yaml", "prose-allow.yaml")]
    for changed in changes(*words, number=100):
        for content, read in zip(changed, (load_glossary, load_allowed), strict=True):
            file.write_text(yaml.safe_dump(content), encoding="utf-8")
            read_or_faults("file.yaml", lambda read=read: read(file))


def test_any_json_is_a_measurement_a_snapshot_or_faults(tmp_path: Path) -> None:
    path = tmp_path / "e6-paged-cpu.json"
    measurement = short(json.loads((DATA / "measurements" / path.name).read_text(encoding="utf-8")))
    for data in (one for both in changes(measurement, SNAPSHOT, number=150) for one in both):
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
        one_sentence(caught.value, where)


@pytest.mark.parametrize("tag", ["\n", "é" * 5000])
def test_a_kind_that_there_is_not_is_one_short_line(tag: str) -> None:
    data = short(stated_record("models/deepseek-ai--DeepSeek-V3.2.yaml"))
    data["layers"][0]["caches"][0]["kind"] = tag
    assert read_or_faults("model.yaml", lambda: validate(Model, data, "model.yaml")) is None


def test_more_values_than_a_record_has_are_refused_before_they_are_looked_at() -> None:
    data = short(stated_record("models/deepseek-ai--DeepSeek-V3.2.yaml"))
    data["weights"][0]["shape"] = [-1] * (MAX_VALUES + 1)
    start = time.process_time()
    with pytest.raises(
        CatalogError, match="found more than 200,000 values; allowed: at most 200,000 in one record"
    ):
        validate(Model, data, "model.yaml")
    assert time.process_time() - start < 0.5
