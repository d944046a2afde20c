"""Python for the browser is fetched if it can be: without a registry a build goes on, and no stranger's file is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from kvreport import resources
from kvreport.publish import python_runtime, sql_runtime, vendored_files

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NOWHERE = "http://127.0.0.1:9"


def fetch(cache: Path) -> subprocess.CompletedProcess[str]:
    registries = {"NPM_CONFIG_REGISTRY": NOWHERE, "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0"}
    return subprocess.run(
        [sys.executable, SCRIPTS / "fetch_runtime.py", "--cache", cache],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **registries},
    )


def test_without_a_registry_the_build_goes_on(tmp_path: Path) -> None:
    done = fetch(tmp_path)
    assert done.returncode == 0, done.stderr
    for line, name in zip(done.stdout.splitlines(), ("Python", "DuckDB"), strict=True):
        assert line.startswith(f"· {name} for the browser could not be fetched (")
    assert python_runtime.RUNTIME.found(tmp_path) == sql_runtime.RUNTIME.found(tmp_path) == {}
    assert list(sql_runtime.files(tmp_path)) == []


def test_what_is_there_and_right_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / python_runtime.RUNTIME.kept
    folder.mkdir()
    names = [*python_runtime.RUNTIME.lock()["files"]]
    digests = {name: sha256(name.encode()).hexdigest() for name in names}
    for name in names:
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(vendored_files.Runtime, "lock", lambda _: {"files": digests, "info": {}})
    assert set(python_runtime.RUNTIME.found(tmp_path)) == set(names)
    published = dict(python_runtime.files(tmp_path))
    manifest = json.loads(published[f"{python_runtime.FOLDER}/{python_runtime.MANIFEST}"])
    for file in manifest["files"]:
        content = published[f"{python_runtime.FOLDER}/{file['file']}"]
        assert (len(content), sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    (folder / names[0]).write_bytes(b"something else")
    assert python_runtime.RUNTIME.found(tmp_path) == {}


def test_the_archive_is_kept_until_something_in_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def archive() -> bytes:
        made.append("again")
        return b"archive"

    facts = tmp_path / "data"
    shutil.copytree(resources.data_dir(), facts, ignore=shutil.ignore_patterns("observations", "traffic"))
    monkeypatch.setattr(resources, "data_dir", lambda: facts)
    monkeypatch.setattr(python_runtime, "archive", archive)
    cache = tmp_path / "cache"
    assert [python_runtime.kept_archive(cache) for _ in range(2)] == [b"archive"] * 2
    words = facts / "glossary.yaml"  # a fact that no page asks in the browser
    words.write_text(words.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    python_runtime.kept_archive(cache)
    assert made == ["again"]
    engine = facts / "engines/vllm/rules.yaml"
    engine.write_text(engine.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    python_runtime.kept_archive(cache)
    assert made == ["again"] * 2
