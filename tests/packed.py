"""The code that pages run in the browser, run here from its archive alone."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

from kvreport.publish import python_runtime

REFUSE = """\
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('numpy', 'pandas', '_yaml', 'jinja2'): raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
"""
"""What the browser does not have: numpy, pandas, a compiled YAML reader, templates."""


def printed(folder: Path, script: str, *arguments: str) -> str:
    """Unpack the archive into a folder, run a script there without the checkout, and return what it prints."""
    with zipfile.ZipFile(io.BytesIO(python_runtime.archive())) as packed:
        packed.extractall(folder)
    run = subprocess.run(
        [sys.executable, "-c", REFUSE + script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        cwd=folder,
    )
    assert run.returncode == 0, run.stderr[-1500:]
    return run.stdout
