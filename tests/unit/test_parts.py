"""Values of single models, kept between builds: used again only where nothing that decides them has changed."""

from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.publish.kept_values import Parts


def taken(parts: Parts, *keys: str, name: str = "squares") -> list[str]:
    """Ask for some values; return those that were computed."""
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key * 2

    with parts.group(name) as kept:
        assert [kept.get(parts.key(key), lambda key=key: make(key)) for key in keys] == [k * 2 for k in keys]
    return made


def test_only_what_is_new_is_computed(tmp_path: Path) -> None:
    assert taken(Parts(tmp_path, "a"), "one", "two") == ["one", "two"]
    assert taken(Parts(tmp_path, "a"), "one", "two", "three") == ["three"]
    assert taken(Parts(tmp_path, "b"), "one") == ["one"]


def test_a_group_never_outgrows_one_build(tmp_path: Path) -> None:
    taken(Parts(tmp_path, "a"), "one", "two", "three")
    taken(Parts(tmp_path, "a"), "one")
    assert taken(Parts(tmp_path, "a"), "one", "two") == ["two"]


def test_a_damaged_group_is_computed_again(tmp_path: Path) -> None:
    taken(Parts(tmp_path, "a"), "one")
    (path,) = tmp_path.glob("*.parts")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert taken(Parts(tmp_path, "a"), "one") == ["one"]


def test_a_failed_block_keeps_nothing(tmp_path: Path) -> None:
    parts = Parts(tmp_path, "a")
    with pytest.raises(ZeroDivisionError), parts.group("squares") as kept:
        kept.get(parts.key("one"), lambda: 1 // 0)
    assert not list(tmp_path.iterdir())


def test_without_a_folder_nothing_is_kept() -> None:
    parts = Parts(None)
    assert taken(parts, "one") == taken(parts, "one") == ["one"]


def test_a_models_record_decides_its_key() -> None:
    model = open_catalog().model("Qwen/Qwen3-32B")
    other = model.model_copy(update={"context_tokens": model.context_tokens // 2})
    parts = Parts(None, "a")
    assert parts.of_model(model) == parts.of_model(model.model_copy())
    assert parts.of_model(model) != parts.of_model(other)
    assert parts.of_model(model) != Parts(None, "b").of_model(model)


def test_a_value_in_the_place_of_an_outdated_one_is_kept(tmp_path: Path) -> None:
    key = Parts(tmp_path, "a").key("one")
    taken(Parts(tmp_path, "a"), "one")
    with Parts(tmp_path, "a").group("squares") as kept:
        assert kept.find(key) == "oneone"
        kept.put(key, "other")
    with Parts(tmp_path, "a").group("squares") as kept:
        assert kept.find(key) == "other"
