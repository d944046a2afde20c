"""Values of single models, kept between builds: used again only where nothing that decides them has changed."""

import dataclasses
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvreport.build_cache import kept_by_fields, settle
from kvreport.catalog.load import open_catalog
from kvreport.publish.parts import Parts


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


def test_a_changed_value_writes_no_file_but_its_own(tmp_path: Path) -> None:
    names = [str(number) for number in range(200)]
    taken(Parts(tmp_path, "a"), *names)
    settle()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before) > 20
    assert taken(Parts(tmp_path, "a"), *names[1:], "new") == ["new"]
    settle()
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert 1 <= sum(before.get(path) != content for path, content in after.items()) <= 2


def test_a_damaged_group_is_computed_again(tmp_path: Path) -> None:
    taken(Parts(tmp_path, "a"), "one")
    settle()
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


@kept_by_fields
@dataclass(frozen=True, slots=True)
class Pair:
    one: int
    other: tuple[str, ...]


def test_values_that_are_kept_by_their_fields_come_back_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("asked for the fields of every value")

    pair = Pair(3, ("a", "b"))
    monkeypatch.setattr(dataclasses, "fields", refuse)
    assert pickle.loads(pickle.dumps([pair, pair], protocol=5)) == [pair, pair]  # noqa: S301 (our own)
