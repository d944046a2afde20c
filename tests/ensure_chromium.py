"""Find a Chromium that really runs, or install one; print its path.

Looked for, in this order: the environment variable KVREPORT_CHROMIUM, the names below on PATH, what
Playwright has downloaded before. Installed, where none of them runs: by Playwright's own installer, then by
apt-get. A browser counts only once it has rendered a page, because a found file may be a stub that asks for
another package manager, or lack its libraries. Every step has a time limit.

    python tests/ensure_chromium.py            find or install
    python tests/ensure_chromium.py --find     only find
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLE = "KVREPORT_CHROMIUM"
NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# Headless, in a container, and silent: without the last five it keeps calling its maker's servers.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HELP = f"""\
The browser tests need Chromium, and none could be found or installed ({{tried}}).
Do one of these, then run make test again:
  · install it:            apt-get install chromium     (or your system's package of it, or Google Chrome)
  · let Playwright do it:  .venv/bin/playwright install --with-deps chromium
  · name yours:            {VARIABLE}=/path/to/chromium make test
Or leave the browser tests out:  .venv/bin/python -m pytest -m "not browser"
"""


def runs(executable: str) -> bool:
    """Say whether this browser renders a page."""
    with tempfile.TemporaryDirectory(prefix="kvreport-chromium-", ignore_cleanup_errors=True) as profile:
        page = Path(profile, "page.html")
        page.write_text("<p id=a></p><script>a.textContent = 6 * 7</script>", encoding="utf-8")
        command = [executable, *FLAGS, f"--user-data-dir={profile}/profile", "--dump-dom", page.as_uri()]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return ">42<" in answer.stdout


def downloaded_by_playwright() -> str | None:
    """Return the path where Playwright keeps its own Chromium, if it has one."""
    try:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            path = playwright.chromium.executable_path
    except Exception:  # noqa: BLE001  whatever is wrong with Playwright, there are other ways
        return None
    return path if Path(path).is_file() else None


def find() -> str | None:
    """Return the path of a Chromium that runs, or nothing."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found and runs(found):
            return found
        sys.exit(f"{VARIABLE}={named}: this is no browser that runs here")
    for name in NAMES:
        found = shutil.which(name)
        if found and runs(found):
            return found
    found = downloaded_by_playwright()
    return found if found and runs(found) else None


def attempt(command: list[str], *, seconds: int, **extra: str) -> bool:
    """Run one step of an installation, its output on stderr; say whether it went well."""
    say(f"  {' '.join(command)}")
    environment = {**os.environ, **extra}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except OSError as fault:
        say(f"    {fault}")
        return False
    except subprocess.TimeoutExpired:
        say(f"    gave up after {seconds} s")
        return False
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        reasons = [line for line in lines if line.startswith(("E:", "Error", "sudo:"))] or lines[-1:]
        say("\n".join(f"    {line}" for line in list(dict.fromkeys(reasons))[:3]))
    return done.returncode == 0


def install_by_playwright() -> bool:
    """Let Playwright download its Chromium, where its servers can be reached."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    return attempt(command, seconds=300, PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT="10000")


def install_by_apt() -> bool:
    """Let Debian's package manager install it, as root or through a sudo that asks nothing."""
    apt = shutil.which("apt-get")
    if not apt:
        return False
    before: list[str] = []
    if os.geteuid() != 0:
        sudo = shutil.which("sudo")
        if not sudo or not attempt([sudo, "-n", "true"], seconds=10):
            return False
        before = [sudo, "-n"]
    waiting = ["-o", "DPkg::Lock::Timeout=120"]
    install = [*before, "env", "DEBIAN_FRONTEND=noninteractive", apt, *waiting, "install", "-y"]
    attempt([*before, apt, *waiting, "update", "-qq"], seconds=180)
    return attempt([*install, "--no-install-recommends", "chromium"], seconds=600)


def say(text: str) -> None:
    """Tell the person; the answer alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Print the path of a Chromium that runs, installing one if need be."""
    found = find()
    tried = "nothing was tried"
    if not found and "--find" not in sys.argv[1:]:
        say("· no Chromium found; installing one for the browser tests")
        tried = "tried Playwright's installer and apt-get"
        for install in (install_by_playwright, install_by_apt):
            if install() and (found := find()):
                break
    if not found:
        say(HELP.format(tried=tried))
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
