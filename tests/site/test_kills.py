"""The command that kills runs at random moments: a few kills in every build, a hundred with `make kills`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes under /proc")
def test_what_a_kill_leaves_is_whole():
    done = subprocess.run(
        [sys.executable, "scripts/kills.py", "5", "11"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; seed 11; 0 wrong" in done.stdout
