"""A site that cannot be written ends a build with one sentence."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from mkdocs.__main__ import cli

from kvreport.adapters.mkdocs_plugin import KvreportPlugin
from kvreport.adapters.staging import Staging, stage


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (shutil.Error([("a", "b", "[Errno 28] No space left on device")]), "No space left on device"),
        (shutil.Error("some text"), "some text"),
        (OSError(errno.ENOSPC, "x", "/volume/index.html"), "No space left on device: /volume/index.html"),
        (OSError(errno.EROFS, "x"), "Read-only file system"),
    ],
)
def test_a_refused_write_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    (tmp_path / "docs").mkdir()
    config = tmp_path / "mkdocs.yml"
    config.write_text("site_name: x\nplugins: [kvreport]\n", encoding="utf-8")

    def refuse(*_args: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(KvreportPlugin, "on_files", refuse)
    done = CliRunner().invoke(cli, ["build", "--config-file", str(config)])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    (line,) = [line for line in done.output.splitlines() if line.startswith("Error")]
    assert f"kvreport: site_dir: found {tmp_path / 'site'}, which cannot be written" in line
    assert said in line
    assert list(tmp_path.glob(".site-*")) == []


def test_an_error_of_another_kind_is_not_renamed(tmp_path: Path) -> None:
    plugin = KvreportPlugin()
    plugin.place = tmp_path
    for error in (
        FileNotFoundError(errno.ENOENT, "x"),
        KeyError("x"),
        PermissionError(errno.EACCES, "docs/a.md"),
    ):
        plugin.on_build_error(error=error)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount")
def test_a_volume_that_is_too_small_keeps_its_site(tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {place} 2>/dev/null"):  # noqa: S605
        pytest.skip("this system lets nobody mount")
    try:
        (place / "index.html").write_bytes(b"the last good one")
        staging = stage(place)
        assert isinstance(staging, Staging)
        (staging.folder / "index.html").write_bytes(b"x" * (1 << 20))
        plugin = KvreportPlugin()
        plugin.place = place
        with pytest.raises(OSError, match="No space left") as caught:
            staging.publish()
        with pytest.raises(Exception, match=r"which cannot be written .*No space left on device"):
            plugin.on_build_error(error=caught.value)
        assert (place / "index.html").read_bytes() == b"the last good one"
    finally:
        os.system(f"umount {place}")  # noqa: S605
