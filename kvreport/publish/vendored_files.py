"""Files from elsewhere that a build publishes: taken from its cache if they are what a lock pins, and listed with digests."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kvreport import resources
from kvreport.publish.kept_values import Parts

MANIFEST: Final = "manifest.json"
PACKED: Final = (".wasm",)
"""Files that are published compressed: the browser unpacks them while they arrive, whatever the server does."""

_LEVEL: Final = 9


@dataclass(frozen=True, slots=True)
class Runtime:
    """Files that a lock in ``requirements/`` pins, and the folder of the cache that holds them once they are fetched."""

    pins: str  # Name of the lock.
    kept: str  # Name of the folder.

    def lock(self) -> Mapping[str, Any]:
        """Return the pins: versions, and under ``files`` each file's digest."""
        loaded: Mapping[str, Any] = json.loads((resources.requirements_dir() / self.pins).read_text("utf-8"))
        return loaded

    def found(self, cache: Path) -> dict[str, bytes]:
        """Return the files that a cache holds by name; none if one is missing or is not what the lock pins."""
        files: dict[str, bytes] = {}
        for name, digest in self.lock()["files"].items():
            path = cache / self.kept / name
            files[name] = path.read_bytes() if path.is_file() else b""
            if sha256(files[name]).hexdigest() != digest:
                return {}
        return files

    def state(self, cache: Path) -> str:
        """Return what of these files a build depends on."""
        return sha256(json.dumps(self.lock()["files"]).encode()).hexdigest() if self.found(cache) else ""


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
