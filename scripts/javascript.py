"""Check the site's scripts: layout, lint, and types over the generated formulas.

    python scripts/javascript.py          what `make check` asks: changes nothing but types/kernel.d.ts
    python scripts/javascript.py --fix    what `make format` does

Deno does all of it; it is one wheel of the Python registry, pinned in the lock, and needs no network.
The types of the formulas are generated into ``types/kernel.d.ts``, which editors read too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from kvreport.publish import browser

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "types" / "kernel.d.ts"
GENERATED = ROOT / ".cache" / "javascript" / "kv-kernel.js"
HEAD = "// Generated from kvreport/accounting/kernel.py by scripts/javascript.py; not kept in git.\n\n"


def deno(*arguments: str) -> bool:
    """Run Deno over the repository and say whether it was content."""
    program = Path(sys.executable).with_name("deno")
    environment = {**os.environ, "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    return subprocess.run([program, *arguments], cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Return 0 if nothing was found."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--fix", action="store_true", help="lay out the scripts and fix what has one right answer"
    )
    fix = options.parse_args().fix
    TYPES.write_text(HEAD + browser.declarations(), encoding="utf-8")
    GENERATED.parent.mkdir(parents=True, exist_ok=True)
    GENERATED.write_text(browser.script(), encoding="utf-8")
    if fix:
        return 0 if deno("lint", "--quiet", "--fix") & deno("fmt", "--quiet") else 1
    scripts = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/assets").glob("*.js"))
    checks = [
        deno("fmt", "--quiet", "--check"),
        deno("lint", "--quiet"),
        deno("check", "--quiet", "--no-remote", *scripts, str(GENERATED.relative_to(ROOT))),
    ]
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
