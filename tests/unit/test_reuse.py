"""A new folder beside the one that stands: what has not changed is linked, and neither folder harms the other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import faults
import pytest

from kvreport.atomic.reuse import Entry, Reuse

PAGES = {"index.html": b"home", "models/a/index.html": b"a", "models/b/index.html": b"b"}


def made(standing: Path, new: Path, known: dict[str, Entry], files: dict[str, bytes]) -> Reuse:
    reuse = Reuse(standing, new, known)
    for name, content in files.items():
        reuse.write(new / name, content)
    return reuse


@pytest.fixture
def first(tmp_path: Path) -> Reuse:
    return made(tmp_path / "none", tmp_path / "site", {}, PAGES)


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_what_has_not_changed_is_a_link_and_the_rest_is_written(first: Reuse, tmp_path: Path) -> None:
    changed = {**PAGES, "models/b/index.html": b"B", "new.html": b"new"}
    second = made(tmp_path / "site", tmp_path / "next", first.written, changed)
    assert (first.linked, second.linked) == (0, 2)
    assert content(tmp_path / "site") == PAGES
    assert content(tmp_path / "next") == changed
    assert (tmp_path / "next/index.html").samefile(tmp_path / "site/index.html")
    assert not (tmp_path / "next/models/b/index.html").samefile(tmp_path / "site/models/b/index.html")


@pytest.mark.parametrize("harm", ["edited", "replaced", "removed", "folder"])
def test_a_file_that_a_stranger_touched_is_written_again(first: Reuse, tmp_path: Path, harm: str) -> None:
    page = tmp_path / "site/index.html"
    before = page.stat()
    if harm == "edited":
        page.write_bytes(b"HOME")
        os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif harm == "replaced":  # with the old time of change, as archivers do
        (tmp_path / "other").write_bytes(b"HOME")
        (tmp_path / "other").replace(page)
        os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        page.unlink()
        if harm == "folder":
            page.mkdir()
    second = made(tmp_path / "site", tmp_path / "next", first.written, PAGES)
    assert second.linked == 2
    assert content(tmp_path / "next") == PAGES


def test_a_name_that_is_written_twice_never_reaches_the_standing_folder(first: Reuse, tmp_path: Path) -> None:
    second = made(tmp_path / "site", tmp_path / "next", first.written, PAGES)
    second.write(tmp_path / "next/index.html", b"another")
    assert (tmp_path / "site/index.html").read_bytes() == b"home"
    assert (tmp_path / "next/index.html").read_bytes() == b"another"
    second.write(tmp_path / "next/index.html", b"home")
    assert (tmp_path / "next/index.html").samefile(tmp_path / "site/index.html")


def test_where_nothing_can_be_linked_everything_is_written(
    first: Reuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    second = made(tmp_path / "site", tmp_path / "next", first.written, PAGES)
    assert second.linked == 0
    assert content(tmp_path / "next") == PAGES


def test_what_was_linked_is_linked_by_the_next_build_too(first: Reuse, tmp_path: Path) -> None:
    second = made(tmp_path / "site", tmp_path / "next", first.written, PAGES)
    third = made(tmp_path / "next", tmp_path / "last", second.written, PAGES)
    assert third.linked == len(PAGES)


def test_a_full_disk_is_told_and_the_standing_folder_is_whole(first: Reuse, tmp_path: Path) -> None:
    with faults.injected(1, under=tmp_path / "next"), pytest.raises(OSError, match="No space"):
        made(tmp_path / "site", tmp_path / "next", first.written, {"index.html": b"other"})
    assert content(tmp_path / "site") == PAGES


def test_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not below"):
        Reuse(tmp_path / "site", tmp_path / "next", {}).write(tmp_path / "site/index.html", b"")
