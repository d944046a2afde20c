"""Lines of logs as data: each has an example and a source, and a catalog of one's own adds further ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.log_lines import log_lines
from kvreport.cli import main
from kvreport.errors import CatalogError
from kvreport.resources import data_dir
from kvreport.startup_log import diagnose, read_log

OWN = """\
schema_version: 1
engine: vllm
lines:
- name: own_pool
  expression: 'our fork keeps <kv_pool:GiB> GiB for the cache'
  says: 'The fork keeps {kv_pool}.'
  example: 'INFO our fork keeps 12.5 GiB for the cache'
  seen: our fork
"""
LOG = "INFO our fork keeps 20.25 GiB for the cache\n"


def _catalog(folder: Path, text: str) -> Path:
    """A catalog that is the public one with further lines."""
    for path in data_dir().iterdir():
        if path.name != "log_lines":
            (folder / path.name).symlink_to(path)
    (folder / "log_lines").mkdir()
    (folder / "log_lines" / "own.yaml").write_text(text, encoding="utf-8")
    return folder


def test_the_public_lines_have_no_fault() -> None:
    assert sum(len(one.lines) for one in log_lines(data_dir())) > 160  # checked where a folder is named


def test_an_example_is_read_as_its_line() -> None:
    for line in (line for one in log_lines() for line in one.lines):
        assert line.name in {one.pattern for one in read_log(line.example).recognised}, line.example
        assert line.at is None or line.read is not None, line.name


def test_a_catalog_of_one_s_own_adds_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = open_catalog(_catalog(tmp_path, OWN))
    assert diagnose(LOG, catalog=own).reading.facts == {"kv_pool": 20.25 * 2**30}
    assert diagnose(LOG).reading.facts == {}
    log = tmp_path / "own.log"
    log.write_text(LOG, encoding="utf-8")
    assert main(["log", str(log), "--data", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["recognised"][0]["says"] == "The fork keeps 20.25 GiB."


@pytest.mark.parametrize(
    ("was", "now", "fault"),
    [
        ("our fork keeps <kv_pool:GiB> GiB", "(?:our .*)+<kv_pool:GiB>", "bounded time"),
        ("12.5 GiB", "twelve GiB", "a line that it matches"),
        ("<kv_pool:GiB>", "(?P<unheard>[0-9]{1,9})", "a fact: activations"),
        ("own_pool", "vllm_pool", "a unique name"),
        ("  seen: our fork\n", "", "read (path::function) or seen"),
        ("lines:", "facts: {cake: {label: cake, unit: bytes}}\nlines:", "known facts"),
    ],
)
def test_a_line_at_fault_is_refused(tmp_path: Path, was: str, now: str, fault: str) -> None:
    (tmp_path / "log_lines").mkdir()
    (tmp_path / "log_lines" / "own.yaml").write_text(OWN.replace(was, now), encoding="utf-8")
    with pytest.raises(CatalogError) as refused:
        log_lines(tmp_path)
    assert fault in str(refused.value)
    assert any(one.where == "log_lines/own.yaml" for one in open_catalog(tmp_path).faults())


def test_a_copy_of_the_public_catalog_has_no_line_twice(tmp_path: Path) -> None:
    shutil.copytree(data_dir() / "log_lines", tmp_path / "log_lines")
    assert log_lines(tmp_path) == log_lines()


@pytest.mark.parametrize(
    "short",
    sorted({line.ends.short for one in log_lines() for line in one.lines if line.ends and line.ends.short}),
)
def test_what_ran_out_follows_not_enough(short: str) -> None:
    assert short.split(maxsplit=1)[0] not in {"the", "a", "an"}, short
