"""The command as one file beside the pages: a wheel of the checkout that builds the site.

A site built from an installed wheel has no sources to pack, and one without the build backend no means: neither
publishes the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import kvreport
from kvreport import resources
from kvreport.build_cache import digest, keep, recall
from kvreport.publish.downloads import FOLDER

NAME: Final = f"kvreport-{kvreport.__version__}-py3-none-any.whl"
_PROJECT: Final = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "LICENSE-data")


def files(cache: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the wheel and of its checksum, as ``sha256sum --check`` reads it; nothing outside a checkout."""
    state = source_state()
    if state is None:
        return
    made = recall(cache / "wheel", state)
    if not isinstance(made, bytes):
        made = _built()
        keep(cache / "wheel", state, made)
    yield f"{FOLDER}/{NAME}", made
    yield f"{FOLDER}/{NAME}.sha256", f"{hashlib.sha256(made).hexdigest()}  {NAME}\n".encode()


def source_state() -> str | None:
    """Return the digest of what goes into the wheel; None where it cannot be built."""
    root = _root()
    project = [root / name for name in _PROJECT]
    if find_spec("hatchling") is None or not all(path.is_file() for path in project):
        return None
    folders = (
        resources.package_dir(), resources.data_dir(), resources.templates_dir(), resources.assets_dir(), resources.requirements_dir(),
    )  # fmt: skip
    return digest((*project, *folders), ("hatchling",))


def _root() -> Path:
    return resources.package_dir().parent


def _built() -> bytes:
    from hatchling.builders.wheel import WheelBuilder

    with TemporaryDirectory(prefix="kvreport-wheel-") as folder:
        (path,) = WheelBuilder(str(_root())).build(directory=folder, versions=["standard"])
        return Path(path).read_bytes()
