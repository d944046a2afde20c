"""Kill builds and matrix runs at random moments, and hold what is left against what must be there.

    python scripts/kills.py [--write] [KILLS] [SEED]      100 kills unless told otherwise

A small site is built over and over, its one page with one of two texts in turn, and a small matrix is computed into
one folder. Each run gets SIGKILL or SIGTERM at a random moment, workers and all. After each kill the published site
must be one of the two, whole; at the end one undisturbed run of each must give the bytes of a run that nobody ever
disturbed, and leave nothing else behind. Prints counts and the seed; status 1 if anything is wrong. ``--write`` records
them in data/trials.yaml.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

import trials
import variation

TEXTS = ("# Notes\n\nThe one text.\n", "# Notes\n\nThe other text, which is longer by a few words.\n")
WAIT_S = 120.0
MOST_RUNS = 4
"""Runs for each kill that is wanted: some end before their moment comes."""
GROWTH = 1.02
"""How much later than the last one a kill may come, so that the end of a run is reached again."""


def environment() -> dict[str, str]:
    """Return what every run is started with."""
    return os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(variation.ROOT)}


def site_command(root: Path) -> list[str]:
    """Return the command that builds the site."""
    config = str(root / "mkdocs.yml")
    return [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", config]


def matrix_command(root: Path) -> list[str]:
    """Return the command that computes the matrix, going on with what is there."""
    return [
        *(sys.executable, "-m", "kvreport", "matrix", "--data", str(root / "data")),
        *("--out", str(root / "matrix"), "--partitioned", "--contexts", "1K..128K/256"),
    ]


def digest(folder: Path) -> str:
    """Return one digest over names and contents of a folder, or of nothing."""
    lines = [
        f"{path.relative_to(folder).as_posix()} {sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return sha256("\n".join(lines).encode()).hexdigest()


def run(command: list[str], root: Path) -> float:
    """Run to the end; return the seconds it took."""
    begin = time.monotonic()
    subprocess.run(command, cwd=root, env=environment(), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def kill(command: list[str], root: Path, after_s: float, sign: signal.Signals) -> bool:
    """Start a run and kill it; return False if it finished before the signal."""
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(sign)
        process.wait(WAIT_S)
    return process.returncode != 0


def ended(folder: Path) -> bool:
    """True once no process works in a folder any more."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if not any(_works_in(entry, folder) for entry in Path("/proc").glob("[0-9]*")):
            return True
        time.sleep(0.02)
    return False


def _works_in(entry: Path, folder: Path) -> bool:
    try:
        return (entry / "cwd").readlink() == folder
    except OSError:
        return False


def main() -> int:
    """Kill, look, and compare at the end."""
    numbers = [int(word) for word in sys.argv[1:] if word != "--write"]
    kills = numbers[0] if numbers else 100
    seed = numbers[1] if len(numbers) > 1 else time.time_ns() % 1_000_000
    draw = random.Random(seed)  # noqa: S311 - moments of kills, not secrets
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "project").resolve()
        root.mkdir()
        variation.project(root)
        faults, counts = _kill_all(root, kills, draw)
    for fault in faults:
        print(f"wrong: {fault}")
    said = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    print(f"{said}; seed {seed}; {len(faults)} wrong")
    if "--write" in sys.argv[1:]:
        trials.record("kills", {"seed": seed, "counts": dict(sorted(counts.items())), "wrong": len(faults)})
    return 1 if faults else 0


def _kill_all(root: Path, kills: int, draw: random.Random) -> tuple[list[str], Counter[str]]:
    notes, site, matrix = root / "docs/notes.md", root / "site", root / "matrix"
    good: list[str] = []
    seconds = 0.0
    for text in TEXTS:
        notes.write_text(text, encoding="utf-8")
        seconds = run(site_command(root), root)
        good.append(digest(site))
    matrix_seconds = run(matrix_command(root), root)
    whole = digest(matrix)
    shutil.rmtree(matrix)
    faults: list[str] = []
    counts: Counter[str] = Counter()
    longest = {"site": seconds, "matrix": matrix_seconds}
    number = stopped_runs = 0
    while stopped_runs < kills and number < MOST_RUNS * kills:
        sign = draw.choice([signal.SIGKILL, signal.SIGTERM])
        what = "matrix" if number % 4 == 3 else "site"
        if what == "matrix" and draw.random() < 0.3:
            shutil.rmtree(matrix, ignore_errors=True)
        if what == "site":
            notes.write_text(TEXTS[number // 4 % 2], encoding="utf-8")
            if draw.random() < 0.2:
                shutil.rmtree(root / ".cache", ignore_errors=True)
        command = site_command(root) if what == "site" else matrix_command(root)
        begin = time.monotonic()
        if kill(command, root, draw.uniform(0.05, longest[what]), sign):
            stopped_runs += 1
            longest[what] *= GROWTH
            counts[f"{what} runs stopped by {sign.name}"] += 1
        else:
            longest[what] = (
                time.monotonic() - begin
            )  # what is cached, or a machine with less to do, ends sooner
            counts[f"{what} runs that finished before the signal"] += 1
        if not ended(root):
            faults.append(f"after run {number}, of a {what}: processes are left")
        if digest(site) not in good:
            faults.append(f"after run {number}, of a {what}: the site is neither of the two")
        number += 1
    notes.write_text(TEXTS[1], encoding="utf-8")
    run(site_command(root), root)
    run(matrix_command(root), root)
    if digest(site) != good[1]:
        faults.append("the last build differs from an undisturbed one")
    if digest(matrix) != whole:
        faults.append("the last matrix differs from an undisturbed one")
    left = sorted(path.name for path in root.iterdir() if path.name.startswith(".site-"))
    if left:
        faults.append(f"left behind: {', '.join(left)}")
    return faults, counts


if __name__ == "__main__":
    raise SystemExit(main())
