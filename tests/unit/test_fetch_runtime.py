"""Python for the browser is fetched if it can be: without a registry a build goes on, and no stranger's file is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from kvreport.publish import python_runtime, sql_runtime

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
NOWHERE = "http://127.0.0.1:9"


def fetch(cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    registries = {"NPM_CONFIG_REGISTRY": NOWHERE, "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0"}
    return subprocess.run(
        [sys.executable, SCRIPTS / script, "--cache", cache],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **registries},
    )


@pytest.mark.parametrize("script", ["fetch_runtime.py", "fetch_sql.py"])
def test_without_a_registry_the_build_goes_on(tmp_path: Path, script: str) -> None:
    done = fetch(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert "could not be fetched" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert python_runtime.found(tmp_path) == sql_runtime.found(tmp_path) == {}
    assert list(sql_runtime.files(tmp_path)) == []


def test_what_is_there_and_right_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / python_runtime.KEPT
    folder.mkdir()
    names = [file.name for file in python_runtime.pinned()]
    digests = {name: sha256(name.encode()).hexdigest() for name in names}
    for name in names:
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(python_runtime, "lock", lambda: {"files": digests, "info": {}})
    assert set(python_runtime.found(tmp_path)) == set(names)
    published = dict(python_runtime.files(tmp_path))
    manifest = json.loads(published[f"{python_runtime.FOLDER}/{python_runtime.MANIFEST}"])
    for file in manifest["files"]:
        content = published[f"{python_runtime.FOLDER}/{file['file']}"]
        assert (len(content), sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    (folder / names[0]).write_bytes(b"something else")
    assert python_runtime.found(tmp_path) == {}
