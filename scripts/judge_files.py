"""Judge the reader of deployment files by public files that a person read: ``scripts/judge_files.py FOLDER``.

``FOLDER`` holds the files that ``tests/deployment_files.yaml`` lists: clones or single files as ``OWNER/NAME/PATH``, or git
directories as ``OWNER+NAME``. What is not there is named and not judged. Exit status 1 if a file is read otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from kvreport.cli.preflight import starts_server
from kvreport.cli.server_command import without_server_command
from kvreport.deployments.found import Server, find_servers
from kvreport.errors import InputError

LIST = Path(__file__).parents[1] / "tests" / "deployment_files.yaml"


def text_of(folder: Path, listed: dict[str, Any]) -> str | None:
    """A listed file as of its commit in a git directory, or as it lies in the folder; None where it is not there."""
    plain = folder / listed["repository"] / listed["path"]
    if plain.is_file():
        return plain.read_text(encoding="utf-8")
    for git in folder.glob(listed["repository"].replace("/", "+") + "*"):
        for inside in (git, git / "repo", git / "repo" / ".git"):
            asked = ["git", "--git-dir", str(inside), "show", f"{listed['commit']}:{listed['path']}"]
            shown = subprocess.run(asked, capture_output=True, check=False)
            if shown.returncode == 0:
                return shown.stdout.decode("utf-8", "replace")
    return None


def facts(server: Server) -> dict[str, Any]:
    """What the reader says of a server, in the list's keys."""
    words = list(server.words)
    with redirect_stderr(StringIO()):
        try:
            words = without_server_command(words)
        except InputError:
            words = []
    place = words.index("--engine") if "--engine" in words else 0
    engine = words[place + 1].partition("@")[0].replace("-", "_") if place else None
    model = words[place - 1] if place else None
    opened = model is not None and any(text in model for _, text in server.unresolved)
    told = {"engine": engine, "model": None if opened else model, "image": server.image or None}
    resources = server.resources
    return told | {
        "gpus": resources.gpus,
        "gpu": resources.gpu or None,
        "replicas": server.replicas,
        "nodes": server.nodes,
    }


def wrong_in(text: str, listed: dict[str, Any]) -> list[str]:
    """Where a file is read otherwise than it is listed."""
    try:
        servers, _ = find_servers(text, listed["path"], starts_server)
    except InputError:
        servers = []
    said = [facts(server) for server in servers]
    if len(said) != len(listed["servers"]):
        return [f"{len(said)} servers, not {len(listed['servers'])}"]
    pairs = zip(said, listed["servers"], strict=True)
    return [
        f"{key} {one[key]!r}, not {value!r}"
        for one, wanted in pairs
        for key, value in wanted.items()
        if one[key] != value
    ]


def main() -> int:
    """Judge every listed file that is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder, judged, faults = parser.parse_args().folder, 0, 0
    for listed in yaml.safe_load(LIST.read_text(encoding="utf-8"))["files"]:
        text, name = text_of(folder, listed), f"{listed['repository']} {listed['path']}"
        wrong = [] if text is None else wrong_in(text, listed)
        judged, faults = judged + (text is not None), faults + bool(wrong)
        if text is None or wrong:
            print(f"{name}: {'; '.join(wrong) or 'not in the folder'}")
    print(f"{judged} judged, {judged - faults} right in every fact")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
