"""Values kept with the records that they read: used again until one of those records changes."""

import pickle
import shutil
from pathlib import Path

import pytest

from kvreport.build_cache import write_sealed
from kvreport.catalog.load import open_catalog
from kvreport.catalog.record_digests import Records
from kvreport.publish.tracked_values import Noted
from kvreport.resources import data_dir

LLAMA, QWEN, COPY = (
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-7B",
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4",
)
ORIGINAL = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A catalog of four models, one of them a quantized copy of another."""
    folder = tmp_path / "data"
    (folder / "models").mkdir(parents=True)
    for path in data_dir().iterdir():
        if path.is_file():
            shutil.copy(path, folder)
        elif path.name in ("accelerators", "engines"):
            shutil.copytree(path, folder / path.name)
    for model in (LLAMA, QWEN, COPY, ORIGINAL):
        shutil.copy(data_dir() / "models" / f"{model.replace('/', '--')}.yaml", folder / "models")
    return folder


def change(data: Path, model: str) -> None:
    path = data / "models" / f"{model.replace('/', '--')}.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")


def taken(data: Path, *keys: str, state: str = "a") -> list[str]:
    """Ask for the vocabulary of some models by name, as a build does; return those that were computed."""
    made: list[str] = []
    catalog = open_catalog(data)
    kept = Noted(data.parent / "cache" / "values.noted", state, Records({"site": data}))

    def make(key: str) -> int:
        made.append(key)
        return catalog.model(key).vocabulary

    for key in keys:
        assert kept.get(key, lambda key=key: make(key)) == open_catalog(data).model(key).vocabulary
    kept.finish()
    return made


def test_a_value_is_computed_again_when_a_record_that_it_read_changes(data: Path) -> None:
    assert taken(data, LLAMA, QWEN) == [LLAMA, QWEN]
    assert taken(data, LLAMA, QWEN) == []
    change(data, QWEN)
    assert taken(data, LLAMA, QWEN) == [QWEN]
    assert taken(data, LLAMA, QWEN) == []
    assert taken(data, LLAMA, QWEN, state="b") == [LLAMA, QWEN]


def test_a_copy_depends_on_its_original(data: Path) -> None:
    assert taken(data, ORIGINAL, COPY, QWEN) == [ORIGINAL, COPY, QWEN]
    change(data, ORIGINAL)
    assert taken(data, ORIGINAL, COPY, QWEN) == [ORIGINAL, COPY]


def test_a_value_that_read_a_record_which_another_had_read_before_depends_on_it_too(data: Path) -> None:
    keys = ("one", "two")
    catalog = open_catalog(data)

    def asked() -> list[str]:
        made: list[str] = []
        kept = Noted(data.parent / "cache" / "values.noted", "a", Records({"site": data}))
        for key in keys:
            kept.get(key, lambda key=key: made.append(key) or catalog.model(QWEN).vocabulary)
        kept.finish()
        return made

    assert asked() == ["one", "two"]
    change(data, LLAMA)
    assert asked() == []
    change(data, QWEN)
    assert asked() == ["one", "two"]


def test_a_name_that_is_no_id_does_not_depend_on_records_read_before(data: Path) -> None:
    def asked() -> list[str]:
        made: list[str] = []
        catalog = open_catalog(data)
        list(catalog.models.values())
        kept = Noted(data.parent / "cache" / "values.noted", "a", Records({"site": data}))

        def make() -> int:
            made.append("alias")
            return catalog.model("llama-3.2-1b-instruct").vocabulary

        kept.get("alias", make)
        kept.finish()
        return made

    assert asked() == ["alias"]
    change(data, QWEN)
    assert asked() == []
    change(data, LLAMA)
    assert asked() == ["alias"]


def test_a_look_at_all_records_depends_on_all(data: Path) -> None:
    def asked() -> bool:
        made: list[int] = []
        kept = Noted(data.parent / "cache" / "values.noted", "a", Records({"site": data}))
        kept.get("all", lambda: made.append(1) or len(open_catalog(data).models))
        kept.finish()
        return bool(made)

    assert asked()
    assert not asked()
    change(data, LLAMA)
    assert asked()


def test_what_may_not_be_kept_is_computed_every_time(data: Path) -> None:
    for _ in range(2):
        made: list[int] = []
        kept = Noted(data.parent / "cache" / "values.noted", "a", Records({"site": data}))
        kept.get("key", lambda made=made: made.append(1) or "fault", lambda value: value != "fault")
        kept.finish()
        assert made == [1]


def test_a_damaged_file_is_computed_again(data: Path) -> None:
    taken(data, LLAMA)
    path = data.parent / "cache" / "values.noted"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert taken(data, LLAMA) == [LLAMA]


@pytest.mark.parametrize("content", ["text", ("a", {}), ("a", {}, {}, {}), ("b", {}, {}), ("a", {}, 3), 7])
def test_a_kept_file_of_another_shape_or_state_is_as_good_as_none(data: Path, content: object) -> None:
    path = data.parent / "kept"
    write_sealed(path, pickle.dumps(content))
    made: list[int] = []
    for _ in range(2):
        kept = Noted(path, "a", Records({"site": data}))
        assert kept.get("key", lambda: made.append(1) or "value") == "value"
        kept.finish()
    assert made == [1]
