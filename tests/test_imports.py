"""The rooms' doors open one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("altair", "jinja2", "mkdocs", "pandas", "pyarrow", "vl_convert")


def test_every_import_contract_is_kept(repository):
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-logo", "--no-cache"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["kvreport", "kvreport.cli"])
def test_an_estimate_does_not_pay_for_the_report(module):
    """`kvreport estimate` must answer at once, so its imports stay light."""
    program = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
