"""Chapters kept between builds: under everything they depend on, and believed only if they are whole."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvreport.adapters import notebooks as module
from kvreport.adapters.notebooks import Notebooks, dependencies, notebooks
from kvreport.catalog import dependency_notes
from kvreport.catalog.load import Catalog
from kvreport.resources import data_dir


@pytest.fixture
def book(tmp_path: Path) -> SimpleNamespace:
    """A project with code, data and a chapter."""
    for name, text in (
        ("code/a.py", "x = 1"),
        ("data/models/m.yaml", "layers: 32"),
        ("data/measurements/e.json", "{}"),
        ("data/RELEASE", "2026.01.02"),
        ("docs/chapters/01-one.py", "# %%"),
        ("docs/chapters/table.csv", "a,b"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    jupyter = SimpleNamespace(config={"cache": True, "cache_dir": "elsewhere"})
    config = SimpleNamespace(
        plugins={"mkdocs-jupyter": jupyter},
        config_file_path=str(tmp_path / "mkdocs.yml"),
        docs_dir=str(tmp_path / "docs"),
    )
    return SimpleNamespace(
        root=tmp_path,
        jupyter=jupyter,
        open=lambda: notebooks(config, [tmp_path / "code"], {"public": tmp_path / "data"}),
        key=lambda: dependencies([tmp_path / "code", tmp_path / "data"], tmp_path / "docs/chapters"),
    )


@pytest.mark.parametrize(
    "name",
    [
        "code/a.py",
        "data/models/m.yaml",
        "data/measurements/e.json",
        "data/RELEASE",
        "docs/chapters/table.csv",
    ],
)
def test_every_file_that_a_chapter_may_read_changes_the_key(book, name):
    first = book.key()
    assert book.key() == first
    text = (book.root / name).read_text(encoding="utf-8")
    (book.root / name).write_text(f"{text} ", encoding="utf-8")
    assert book.key() != first
    (book.root / name).write_text(text, encoding="utf-8")
    assert book.key() == first
    (book.root / name).rename((book.root / name).with_name("other"))
    assert book.key() != first


def test_a_chapters_own_text_does_not_change_the_key_of_the_others(book):
    first = book.key()
    (book.root / "docs/chapters/01-one.py").write_text("# %% [markdown]", encoding="utf-8")
    assert book.key() == first


def test_packages_and_interpreter_change_the_key(book, monkeypatch):
    keys = [book.key()]
    with monkeypatch.context() as patch:
        known = [SimpleNamespace(name=one.name, version=one.version) for one in metadata.distributions()]
        known[0].version += ".post1"
        patch.setattr(module, "distributions", lambda: known)
        keys.append(book.key())
    with monkeypatch.context() as patch:
        patch.setattr(module.sys, "version", "3.99.0")
        keys.append(book.key())
    assert book.key() == keys[0]
    assert len(set(keys)) == 3


def executed(made: Notebooks, name: str, text: str) -> None:
    """Do as mkdocs-jupyter does when it has executed a chapter."""
    (made.folder / f"{name}.json").write_text(text, encoding="utf-8")


def found(made: Notebooks) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in made.folder.glob("*.json")}


def test_what_was_executed_is_there_for_the_next_build_and_in_a_folder_of_its_own(book):
    first = book.open()
    assert book.jupyter.config["cache_dir"] == str(first.folder)
    executed(first, "one", '{"content": "1"}')
    first.keep()
    second = book.open()
    assert second.folder != first.folder
    assert found(second) == {"one": '{"content": "1"}'}
    executed(second, "one", '{"content": "half of a')  # the second build is killed while it writes
    assert found(first) == found(book.open()) == {"one": '{"content": "1"}'}
    first.finish()
    assert not first.folder.exists()


@pytest.mark.parametrize("harm", ["cut", "empty", "flipped", "another"])
def test_a_damaged_chapter_is_not_believed(book, harm):
    made = book.open()
    executed(made, "one", '{"content": "1"}')
    executed(made, "two", '{"content": "2"}')
    made.keep()
    path = made.store / "one.sealed"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[:-3],
            "empty": b"",
            "flipped": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
            "another": b'{"content": "0"}',
        }[harm]
    )
    assert found(book.open()) == {"two": '{"content": "2"}'}


def test_what_another_process_left_unfinished_is_dropped(book):
    made = book.open()
    executed(made, "one", '{"content": "1"}')
    executed(made, "two", '{"content": "half of a')
    made.keep()
    assert found(made) == found(book.open()) == {"one": '{"content": "1"}'}


def test_what_no_chapter_needs_is_forgotten_and_of_older_states_all_but_one(book):
    for number in range(4):
        (book.root / "code/a.py").write_text(f"x = {number}", encoding="utf-8")
        made = book.open()
        executed(made, "old", "{}")
        executed(made, "new", "{}")
        made.keep()
        (made.folder / "old.json").unlink()  # mkdocs-jupyter removes what it did not ask for
        made.finish()
        assert sorted(path.name for path in made.store.iterdir()) == ["new.sealed", "records.reads"]
    assert len(list(made.store.parent.iterdir())) == 2


def test_a_book_that_shall_not_be_kept_is_left_alone(book):
    book.jupyter.config["cache"] = False
    assert book.open() is None
    assert book.jupyter.config["cache_dir"] == "elsewhere"


@pytest.fixture
def kernel(monkeypatch):
    """Notes as a kernel writes them."""
    monkeypatch.setattr(
        dependency_notes.sys, "argv", ["/somewhere/ipykernel_launcher.py", "-f", "connection.json"]
    )
    return dependency_notes.note


@pytest.mark.parametrize(
    ("read", "kept"),
    [
        ([("m", True)], False),  # the record that changes
        ([("other", True)], True),  # another one
        ([("Some Model", False)], False),  # a name that the changed record says
        ([("Another", False)], True),
        ([("*", False)], False),  # all of them
    ],
)
def test_a_changed_record_costs_the_chapters_that_read_it(book, kernel, read, kept):
    first = book.open()
    for name, is_file in read:
        kernel(book.root / "data", name, read=is_file)
    executed(first, "one", "{}")
    first.keep()
    first.finish()
    (book.root / "data/models/m.yaml").write_text("name: some-model", encoding="utf-8")
    second = book.open()
    assert bool(found(second)) is kept
    second.keep()
    second.finish()
    (book.root / "data/models/m.yaml").write_text("layers: 33, another", encoding="utf-8")
    assert bool(found(book.open())) is (read in ([("other", True)], [("Some Model", False)]))


def test_a_record_of_a_catalog_that_the_site_does_not_have_counts_as_all(book, kernel):
    first = book.open()
    kernel(book.root / "elsewhere", "m", read=True)
    executed(first, "one", "{}")
    first.keep()
    first.finish()
    assert found(book.open()) == {"one": "{}"}
    (book.root / "data/models/n.yaml").write_text("layers: 33", encoding="utf-8")
    assert found(book.open()) == {}


def test_only_a_kernel_notes_what_it_reads(book):
    book.open()
    dependency_notes.note(book.root / "data", "m", read=True)
    assert not dependency_notes.notes(Path(os.environ[dependency_notes.FOLDER]))


@pytest.mark.usefixtures("kernel")
def test_a_catalog_notes_names_files_and_a_look_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv(dependency_notes.FOLDER, str(tmp_path))
    catalog = Catalog(data_dir())
    catalog.model("llama-3.1-8b")
    catalog.model("Qwen/Qwen3-32B")
    told = {(name, read) for _, name, read in dependency_notes.notes(tmp_path)}
    assert {("llama-3.1-8b", False), ("Qwen--Qwen3-32B", True)} <= told
    assert ("*", False) not in told
    assert catalog.models
    assert ("*", False) in {(name, read) for _, name, read in dependency_notes.notes(tmp_path)}
