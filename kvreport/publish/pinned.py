"""Files from elsewhere that a build publishes: taken from its cache if they are what a lock pins, and listed with digests."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kvreport.publish.parts import Parts

MANIFEST: Final = "manifest.json"
PACKED: Final = (".wasm",)
"""Files that are published compressed: the browser unpacks them while they arrive, whatever the server does."""

_LEVEL: Final = 9


def read(folder: Path, digests: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of a folder by name; none if one is missing or has another digest."""
    files: dict[str, bytes] = {}
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            return {}
        content = path.read_bytes()
        if sha256(content).hexdigest() != digest:
            return {}
        files[name] = content
    return files


def publish(
    folder: str, files: Mapping[str, bytes], cache: Path, plain: Collection[str] = (), **facts: object
) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of each file, and of the manifest that a script reads first.

    The manifest leaves out the ``plain`` files, which the browser loads by their address, and has the ``facts``. What is compressed
    is kept in ``cache``.
    """
    listed: list[dict[str, Any]] = []
    for name, content in files.items():
        packed = name.endswith(PACKED)
        served = _packed(name, content, cache) if packed else content
        address = f"{name}.gz" if packed else name
        if name not in plain:
            digest = sha256(served).hexdigest()
            listed.append(
                {"name": name, "file": address, "bytes": len(served), "packed": packed, "sha256": digest}
            )
        yield f"{folder}/{address}", served
    manifest = {**facts, "files": listed}
    yield f"{folder}/{MANIFEST}", json.dumps(manifest, separators=(",", ":")).encode()


def _packed(name: str, content: bytes, cache: Path) -> bytes:
    """Return a file compressed, which is kept between builds: the largest takes most of a second."""
    parts = Parts(cache / "parts")
    key = parts.key(sha256(content).digest(), str(_LEVEL), zlib.ZLIB_RUNTIME_VERSION)
    return parts.value(f"packed-{name}", key, lambda: gzip.compress(content, _LEVEL, mtime=0))
