"""Files and folders that are whole or absent, whichever change of the file system fails, and whoever dies."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import faults
import pytest

from kvreport import build_cache
from kvreport.atomic import folders, workspace, write_whole
from kvreport.atomic.files import sweep_unfinished
from kvreport.atomic.folders import exchange, make_readable, recover, replace_entries, replace_folder
from kvreport.atomic.workspace import claim, sweep

OLD = {
    "index.html": b"old",
    "models/a/index.html": b"old a",
    "models/gone/index.html": b"old gone",
    "only.txt": b"old",
}
NEW = {
    "index.html": b"new",
    "models/a/index.html": b"new a",
    "models/b/index.html": b"new b",
    "feed.xml": b"new",
}


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.name.startswith(".")]


@pytest.fixture(params=["exchange", "two renames", "mount point"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the system lets a folder take another's place."""
    if request.param == "two renames":
        monkeypatch.setattr(folders, "exchange", lambda *_: False)
    elif request.param == "mount point":
        monkeypatch.setattr(folders, "_is_mount", lambda _: True)
    return request.param


def site(tmp_path: Path) -> tuple[Path, Path]:
    place = tmp_path / "site"
    recover(place)
    for left in (*tmp_path.glob(".new*"), place):
        folders.remove(left)
    return fill(place, OLD), fill(tmp_path / ".new", NEW)


@pytest.mark.usefixtures("way")
def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    place, new = site(tmp_path)
    replace_folder(new, place)
    assert content(place) == NEW
    folders.remove(new)
    assert not leftovers(tmp_path)


def test_a_folder_takes_an_empty_place(tmp_path: Path) -> None:
    new = fill(tmp_path / "new", NEW)
    replace_folder(new, tmp_path / "deeper/site")
    assert content(tmp_path / "deeper/site") == NEW


@pytest.mark.parametrize("strike", [faults.full_disk, faults.no_memory])
def test_the_last_good_site_stands_whichever_change_fails(way: str, tmp_path: Path, strike: object) -> None:
    def run() -> None:
        place, new = site_once
        replace_folder(new, place)

    def check(well: bool) -> None:
        nonlocal site_once
        assert content(site_once[0]) == (NEW if well else OLD)
        replace_folder(fill(tmp_path / ".new-again", NEW), site_once[0])
        assert content(site_once[0]) == NEW
        site_once = site(tmp_path)
        assert not [name for name in leftovers(tmp_path) if name != ".new"]

    site_once = site(tmp_path)
    failed = faults.every(run, check, strike)
    assert failed >= (1 if way == "exchange" else 2)


@pytest.mark.usefixtures("way")
def test_the_last_good_site_returns_wherever_the_process_dies(tmp_path: Path) -> None:
    def run() -> None:
        replace_folder(tmp_path / ".new", tmp_path / "site")

    def check() -> None:
        recover(tmp_path / "site")
        assert content(tmp_path / "site") in (OLD, NEW)
        site(tmp_path)

    site(tmp_path)
    assert faults.every_death(run, check) >= 1


def test_a_full_mount_point_keeps_its_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What destroyed the last good site: a volume without room for the new one."""
    place, new = site(tmp_path)
    real = os.rename

    def busy(source: object, target: object, **named: object) -> None:
        if Path(str(source)) == place or Path(str(target)) == place:
            raise OSError(errno.EBUSY, "Device or resource busy")
        real(source, target, **named)

    monkeypatch.setattr(os, "rename", busy)
    monkeypatch.setattr(folders, "_is_mount", lambda path: path == place)
    monkeypatch.setattr("shutil.copytree", lambda *_, **__: faults.full_disk())
    with pytest.raises(OSError, match="No space left"):
        replace_folder(new, place)
    assert content(place) == OLD


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    place, new = site(tmp_path)
    link = tmp_path / "public"
    link.symlink_to(place)
    replace_folder(new, link)
    assert link.is_symlink()
    assert content(place) == NEW


def test_two_names_change_places_in_one_step(tmp_path: Path) -> None:
    one, other = fill(tmp_path / "one", OLD), fill(tmp_path / "other", NEW)
    if sys.platform in ("linux", "darwin"):
        assert exchange(one, other)
        assert (content(one), content(other)) == (NEW, OLD)
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "nothing")


@pytest.mark.parametrize("strike", [faults.full_disk, faults.no_memory])
def test_entries_are_replaced_all_or_none(tmp_path: Path, strike: object) -> None:
    place, staged = tmp_path / "data", tmp_path / "staged"

    def run() -> None:
        replace_entries(staged, place, sorted(NEW), ["only.txt", "never.txt"])

    def prepare() -> None:
        for folder in (place, staged):
            folders.remove(folder)
        fill(place, {**OLD, "mine.txt": b"of the user"})
        fill(staged, NEW)

    after = {**OLD, **NEW, "mine.txt": b"of the user"}
    del after["only.txt"]

    def check(well: bool) -> None:
        recover(place)
        assert content(place) == (after if well else {**OLD, "mine.txt": b"of the user"})
        prepare()

    prepare()
    assert faults.every(run, check, strike) > len(NEW)

    def check_death() -> None:
        assert not list(place.rglob("*.parquet"))
        recover(place)
        assert content(place) in (after, {**OLD, "mine.txt": b"of the user"})
        prepare()

    prepare()
    assert faults.every_death(run, check_death) > len(NEW)


def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def check(well: bool) -> None:
        assert path.read_bytes() == (b"new " * 1000 if well else b"old")
        assert not leftovers(tmp_path)
        path.write_bytes(b"old")

    path.write_bytes(b"old")
    failed = faults.every(lambda: write_whole(path, b"new " * 1000, durable=True), check)
    assert failed == 4  # the folder (which is there already), the write, the fsync, the rename


def test_an_unfinished_file_is_swept_when_it_is_old(tmp_path: Path) -> None:
    left = fill(tmp_path, {"a/.x.parquet.0123.part": b"PAR1"}) / "a/.x.parquet.0123.part"
    assert not list(tmp_path.rglob("*.parquet"))
    assert sweep_unfinished(tmp_path) == 0
    os.utime(left, (0, 0))
    assert sweep_unfinished(tmp_path) == 1


def test_a_web_server_can_read_what_is_published(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = fill(tmp_path / "site", NEW)
    finally:
        os.umask(before)
    make_readable(folder)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {0o755, 0o644}


def test_only_what_nobody_owns_is_swept(tmp_path: Path) -> None:
    mine = claim(tmp_path, "work-")
    (tmp_path / "work-abandoned").mkdir()
    fill(tmp_path / "work-abandoned-too", OLD)
    (tmp_path / "work-abandoned-too.lock").touch()
    (tmp_path / "work-only-the-lock.lock").touch()
    (tmp_path / "other").mkdir()
    assert sweep(tmp_path, "work-") == 3
    assert {path.name for path in tmp_path.iterdir()} == {
        mine.folder.name,
        f"{mine.folder.name}.lock",
        "other",
    }
    mine.close()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_folder_is_swept_once_its_owner_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from kvreport.atomic.workspace import claim; "
        f"made = claim(Path({str(tmp_path)!r}), 'work-'); print(made.folder, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    assert folder.is_dir()
    # A process id means nothing across containers: the owner is told by its lock alone.
    assert sweep(tmp_path, "work-") == 0
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert sweep(tmp_path, "work-") == 1
    assert not list(tmp_path.iterdir())


def test_a_full_cache_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build_cache._told.cache_clear()
    failed = 0
    for at in range(1, 5):
        path = tmp_path / f"kept-{at}"
        with faults.injected(at) as injected:
            kept = build_cache.write_sealed(path, b"content")
        assert kept or injected.struck
        assert build_cache.read_sealed(path) == (b"content" if kept else None)
        failed += not kept
    assert failed == 3  # its digest, what is kept, the rename
    warned = [record.message for record in caplog.records]
    assert warned == ["the cache cannot be written (No space left on device); the build goes on without it"]


def test_folders_that_two_processes_replace_at_once_are_whole(tmp_path: Path) -> None:
    """Two builds that share a volume: each site that is ever seen is one of theirs, complete."""
    place = fill(tmp_path / "site", {f"{n}.txt": b"start" for n in range(8)})
    program = (
        "import sys; from pathlib import Path; from kvreport.atomic import folders\n"
        "root, word, mounted = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == 'mounted'\n"
        "if mounted: folders._is_mount = lambda _: True\n"
        "for turn in range(40):\n"
        "    new = root / f'.{word}-{turn}'; new.mkdir()\n"
        "    for n in range(8): (new / f'{n}.txt').write_text(f'{word} {turn}')\n"
        "    folders.replace_folder(new, root / 'site'); folders.remove(new)\n"
    )
    for mounted in ("plain", "mounted"):
        builds = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path), word, mounted], stderr=subprocess.PIPE
            )
            for word in ("one", "two")
        ]
        for build in builds:
            _, said = build.communicate(timeout=60)
            assert build.returncode == 0, said
        assert len({path.read_bytes() for path in place.glob("*.txt")}) == 1
        assert len(list(place.glob("*.txt"))) == 8
        assert not leftovers(tmp_path)


def test_nothing_waits_for_a_lock_that_nobody_holds(tmp_path: Path) -> None:
    start = time.monotonic()
    for name in (".site-lock", ".kvreport-lock"):
        (tmp_path / name).touch()
    replace_folder(fill(tmp_path / "new", NEW), tmp_path / "site")
    assert time.monotonic() - start < 1
    assert workspace.sweep(tmp_path / "missing", "x") == 0
