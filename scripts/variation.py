"""Build one site under different circumstances and hold all its bytes equal, as reproducible-builds.org does.

    python scripts/variation.py [--write] [PYTHON ...]      further interpreters that have kvreport installed

Varied: path (spaces, letters beyond ASCII), time zone, locale, umask, clock, user and home, hash seed, number of
processors, order of environment, and Python where another is named. Prints one digest for each build, and the
digest over the whole site once; status 1 if any two differ. Modes of files count as bytes do. ``--write`` records the
digests in data/trials.yaml.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import trials

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("meta-llama--Llama-3.1-8B-Instruct", "openai--gpt-oss-20b", "Qwen--Qwen3.6-27B")
ACCELERATORS = ("h100-sxm-80gb", "rtx-4090")
CLOCK = """\
import time
AHEAD = {seconds}
now, now_ns, local, utc = time.time, time.time_ns, time.localtime, time.gmtime
time.time = lambda: now() + AHEAD
time.time_ns = lambda: now_ns() + AHEAD * 10**9
time.localtime = lambda s=None: local(time.time() if s is None else s)
time.gmtime = lambda s=None: utc(time.time() if s is None else s)
"""
CONFIGURATION = """\
site_name: variation
site_url: https://example.org/variation/
docs_dir: docs
site_dir: site
theme: {name: material, font: false}
plugins:
  - search
  - kvreport: {catalog: data}
markdown_extensions: [tables, {toc: {permalink: true}}]
"""


@dataclass(frozen=True)
class Circumstance:
    """What is different about one build."""

    name: str
    folder: str = "site"
    environment: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    seconds_ahead: int = 0
    python: str = sys.executable
    one_processor: bool = False


def circumstances(pythons: list[str]) -> list[Circumstance]:
    """Return what is varied, one thing after the other and then all at once."""
    user = {"USER": "zoe", "LOGNAME": "zoe", "HOME": "/nonexistent", "HOSTNAME": "elsewhere"}
    return [
        Circumstance("as it is"),
        Circumstance("path", folder="a päth with spaces/and depth"),
        Circumstance("time zone", environment={"TZ": "Pacific/Kiritimati"}),
        Circumstance("locale", environment={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}),
        Circumstance("umask", umask=0o077),
        Circumstance("clock", seconds_ahead=400 * 86_400),
        Circumstance("user", environment=user),
        Circumstance("hash seed", environment={"PYTHONHASHSEED": "77"}),
        Circumstance("one processor", one_processor=True),
        Circumstance(
            "everything",
            folder="ä/b c",
            environment={"TZ": "America/Anchorage", "LC_ALL": "C", "PYTHONHASHSEED": "5", **user},
            umask=0o027,
            seconds_ahead=-15 * 365 * 86_400,
            one_processor=True,
        ),
        *(Circumstance(named(path), python=path) for path in pythons),
    ]


def project(root: Path) -> Path:
    """Write a small project and return its configuration."""
    data = root / "data"
    shutil.copytree(ROOT / "data/engines", data / "engines")
    for kind, names in (("models", MODELS), ("accelerators", ACCELERATORS)):
        (data / kind).mkdir()
        for name in names:
            shutil.copy(ROOT / f"data/{kind}/{name}.yaml", data / kind)
    for name in ("formats.yaml", "grid.yaml", "RELEASE"):
        shutil.copy(ROOT / "data" / name, data / name)
    (root / "docs").mkdir()
    (root / "docs/notes.md").write_text("# Notes\n\nNothing here depends on the day.\n", encoding="utf-8")
    config = root / "mkdocs.yml"
    config.write_text(CONFIGURATION, encoding="utf-8")
    return config


def build(root: Path, how: Circumstance) -> dict[str, str]:
    """Build under one circumstance; return a digest and the mode of each file."""
    config = project(root)
    clock = root / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK.format(seconds=how.seconds_ahead), encoding="utf-8")
    paths = [str(clock), str(ROOT)]
    environment = {k: v for k, v in os.environ.items() if k not in ("SOURCE_DATE_EPOCH", "TZ", "LC_ALL")}
    environment |= {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(paths), **how.environment}
    become = "import os, sys; "
    if how.one_processor and hasattr(os, "sched_setaffinity"):
        become += "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); "
    become += f"os.umask({how.umask}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config)]
    subprocess.run([how.python, "-c", become, *command], env=environment, check=True, cwd=root)
    return {
        path.relative_to(
            root / "site"
        ).as_posix(): f"{sha256(path.read_bytes()).hexdigest()} {path.stat().st_mode:o}"
        for path in sorted((root / "site").rglob("*"))
        if path.is_file()
    }


def total(files: dict[str, str]) -> str:
    """Return one digest over every name, content and mode."""
    return sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def named(path: str) -> str:
    """Return the version of an interpreter."""
    said = subprocess.run([path, "--version"], check=True, capture_output=True, text=True)
    return said.stdout.strip()


def main() -> int:
    """Build under every circumstance and compare."""
    words = sys.argv[1:]
    first: dict[str, str] | None = None
    builds: list[dict[str, str]] = []
    differ = 0
    for how in circumstances([one for one in words if one != "--write"]):
        with tempfile.TemporaryDirectory() as place:
            root = Path(place, how.folder)
            root.mkdir(parents=True)
            found = build(root, how)
        first = first or found
        changed = sorted(name for name in {*first, *found} if first.get(name) != found.get(name))
        differ += bool(changed)
        verdict = "same" if not changed else f"{len(changed)} files differ: {', '.join(changed[:3])}"
        builds.append({"name": how.name, "digest": total(found)})
        print(f"{total(found)[:16]}  {how.name}: {verdict}", flush=True)
    if first is not None:
        print(f"site of {len(first)} files: sha256 {total(first)}")
        if "--write" in words:
            trials.record("variation", {"files": len(first), "sha256": total(first), "builds": builds})
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
