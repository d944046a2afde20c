"""Build a release: the wheel, the source archive and the site, with checksums and where they come from.

    python scripts/release.py         what `make release` runs, after it has built the site

Everything goes into ``dist/``, all or nothing. The same commit gives the same bytes: archives are sorted,
have no owners, and carry the time of the commit (or SOURCE_DATE_EPOCH).
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = "site"
_LOCAL = re.compile(r"https://(?:localhost|127\.|0\.0\.0\.0|\[::1\])")


def main() -> int:
    """Build and say what was built; 2 where the repository is not ready for it."""
    faults = list(unready(ROOT))
    if faults:
        print("release:", *faults, sep="\n  ", file=sys.stderr)
        return 2
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=out) as folder:
        made = build(ROOT, Path(folder))
        for path in made:
            path.replace(out / path.name)
            print(f"dist/{path.name}  {(out / path.name).stat().st_size:,} bytes")
    return 0


def unready(root: Path) -> Iterator[str]:
    """Yield what stands in the way of a release, a sentence each."""
    version = version_of(root)
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changes, re.M | re.S
    )
    if section is None or not section[1].strip():
        yield f"CHANGELOG.md: found no section for {version}; allowed: '## [{version}] - <date>' with what changed"
    if not (root / SITE / "index.html").is_file():
        yield f"{SITE}/: found no site; `make release` builds it first"
    address = os.environ.get("KVREPORT_SITE_URL", "")
    if not address.startswith("https://") or _LOCAL.match(address):
        yield f"KVREPORT_SITE_URL: found {address!r}; allowed: the https:// address that the site will have"
    elif (root / SITE / "sitemap.xml").is_file():
        sitemap = (root / SITE / "sitemap.xml").read_text(encoding="utf-8")
        if f"<loc>{address.rstrip('/')}/</loc>" not in sitemap:
            yield f"{SITE}/: was built for another address than {address}; build it again"
    status = git(root, "status", "--porcelain")
    if status:
        yield f"git: found {len(status.splitlines())} changed or unknown files; allowed: a release of what is committed"
    tag = git(root, "rev-list", "-n", "1", f"v{version}")
    if tag and tag != git(root, "rev-parse", "HEAD"):
        yield f"version: found {version} in kvreport/__init__.py, and v{version} is another commit; raise the version"


def build(root: Path, out: Path) -> list[Path]:
    """Build every artefact into ``out`` and return them, the checksums last."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git(root, "log", "-1", "--format=%ct"))
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    version = version_of(root)
    for kind in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
        subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)
    pack(root / SITE, out / f"kvreport-site-{version}.tar.gz", epoch)
    varied = vary(root)
    (out / f"kvreport-{version}.variation.txt").write_text(varied, encoding="utf-8")
    made = sorted(path for path in out.iterdir() if path.is_file())
    provenance = {
        "name": "kvreport",
        "version": version,
        "commit": git(root, "rev-parse", "HEAD"),
        "data_release": (root / "data/RELEASE").read_text(encoding="ascii").strip(),
        "source_date_epoch": epoch,
        "python": platform.python_version(),
        "varied_site_sha256": varied.split()[-1],
        "lock_sha256": digest(root / "requirements/site.txt"),
        "files": {path.name: {"bytes": path.stat().st_size, "sha256": digest(path)} for path in made},
    }
    about = out / f"kvreport-{version}.provenance.json"
    about.write_text(json.dumps(provenance, indent=1) + "\n", encoding="utf-8")
    made.append(about)
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in made), encoding="utf-8")
    return [*made, sums]


def vary(root: Path) -> str:
    """Build a small site under different circumstances; return what was varied, and the one digest of all.

    Raises:
        SystemExit: If any two builds differ.
    """
    done = subprocess.run(
        [sys.executable, "scripts/variation.py"], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"release: builds of one site differ between circumstances\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def pack(folder: Path, target: Path, epoch: int) -> None:
    """Pack a folder: sorted, without owners, every file of one time."""
    # zlib's own frame: tarfile's would write the clock and the file's name into it.
    with (
        target.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
            if not path.is_file():
                continue
            entry = tarfile.TarInfo(
                f"{target.name.removesuffix('.tar.gz')}/{path.relative_to(folder).as_posix()}"
            )
            entry.size, entry.mtime, entry.mode = path.stat().st_size, epoch, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)


def version_of(root: Path) -> str:
    """Return the version that ``kvreport/__init__.py`` states."""
    source = (root / "kvreport/__init__.py").read_text(encoding="utf-8")
    stated = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if stated is None:
        raise SystemExit("kvreport/__init__.py: __version__ is missing")
    return stated[1]


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    return sha256(path.read_bytes()).hexdigest()


def git(root: Path, *words: str) -> str:
    """Return what git says, or "" where it fails."""
    program = shutil.which("git") or "git"
    done = subprocess.run([program, *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
