"""What a partitioned folder holds: its manifest, and who may write into it.

``_manifest.json`` says which axes, records and code the rows come from, and into how many shards the
work is dealt. Every file in the folder belongs to it; a run over anything else is refused or replaces the
whole. Names begin with an underscore because readers of partitioned folders (Arrow, Spark, Dask) skip
those.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kvreport.atomic.files import sweep_unfinished, write_whole
from kvreport.dataset.grid import Axes
from kvreport.dataset.kept import axes_digest
from kvreport.errors import InputError, shorten

MANIFEST: Final = "_manifest.json"
SCHEMA: Final = 1
_WHOLE: Final = "capacity.parquet"
_UNFINISHED_SECONDS: Final = 600
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """What every file of a partitioned folder has in common."""

    digest: str
    shards: int
    axes: dict[str, Any]

    @classmethod
    def of(cls, axes: Axes, shards: int) -> Manifest:
        """Describe a run."""
        digest = sha256(axes_digest(axes))
        for model in axes.models:
            digest.update(model.model_dump_json().encode())
        words = {
            "engine": axes.engine.name,
            "models": _few([model.id for model in axes.models]),
            "accelerators": _few([device.id for device in axes.accelerators]),
            "tensor_parallel": list(axes.tensor_parallel),
            "weight_formats": [name for name, _ in axes.weight_formats],
            "kv_formats": [form.name if form else "auto" for form in axes.kv_formats],
            "contexts": _few(list(axes.contexts)),
        }
        return cls(digest.hexdigest(), shards, words)

    def to_json(self) -> bytes:
        """Return the content of ``_manifest.json``."""
        content = {"schema": SCHEMA, "digest": self.digest, "shards": self.shards, "axes": self.axes}
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _few(values: list[Any]) -> dict[str, Any]:
    shown = values if len(values) <= _SHOWN else [*values[: _SHOWN - 1], "…", values[-1]]
    return {"count": len(values), "values": shown}


def enter(folder: Path, manifest: Manifest, *, replace: bool = False) -> None:
    """Open a partitioned folder for a run: new, the same again, or with leave to replace another.

    Raises:
        InputError: If the folder holds rows over other axes, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep_unfinished(folder, seconds=_UNFINISHED_SECONDS)
        if replace and read(folder) != manifest:
            clear(folder)
        elif not (folder / MANIFEST).exists():
            _refuse_foreign(folder)
        if _create(folder / MANIFEST, manifest.to_json()):
            return
    except OSError as error:
        raise InputError(
            f"out: found {shorten(str(folder))}, {error.strerror or error}; allowed: a folder that can be written"
        ) from error
    there = read(folder)
    if there != manifest:
        raise InputError(
            f"out: found {shorten(str(folder))} with {_difference(there, manifest)}; allowed: an empty folder, "
            "the same command to go on with it, or --replace to remove what is there"
        )


def read(folder: Path) -> Manifest | None:
    """Return a folder's manifest; None if it has none that can be read."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            return None
        return Manifest(str(found["digest"]), int(found["shards"]), dict(found["axes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def clear(folder: Path) -> None:
    """Remove every row of a partitioned folder, its manifest last."""
    for path in sorted(folder.glob("model_slug=*")):
        for file in path.glob("*.parquet"):
            file.unlink()
        with suppress(OSError):
            path.rmdir()
    for file in folder.glob("_shard-*.json"):
        file.unlink()
    (folder / MANIFEST).unlink(missing_ok=True)


def refuse_partitions(folder: Path) -> None:
    """Refuse to publish a dataset among partitions, which a reader would count twice.

    Raises:
        InputError: If the folder is a partitioned one.
    """
    if (folder / MANIFEST).exists():
        raise InputError(
            f"out: found {shorten(str(folder))} with a partitioned dataset; allowed: another folder, or "
            "--partitioned"
        )


def _refuse_foreign(folder: Path) -> None:
    rows = next(folder.glob("model_slug=*/*.parquet"), None)
    if rows is not None:
        raise InputError(
            f"out: found {shorten(str(folder))} with rows and no {MANIFEST}; allowed: an empty folder, or "
            "--replace to remove them"
        )
    if (folder / _WHOLE).exists():
        raise InputError(
            f"out: found {shorten(str(folder))} with {_WHOLE}, which the same readers would count; allowed: "
            "another folder"
        )


def _create(path: Path, content: bytes) -> bool:
    """Write a file that is not there yet, whole; False if it is, also if somebody else was faster."""
    if path.exists():
        return False
    draft = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    write_whole(draft, content, durable=True)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: the last of two that begin at once writes it, and both compare
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _difference(there: Manifest | None, asked: Manifest) -> str:
    if there is None:
        return f"a {MANIFEST} that this version cannot read"
    for name, value in asked.axes.items():
        if there.axes.get(name) != value:
            return f"other {name.replace('_', ' ')} than requested"
    if there.shards != asked.shards:
        return f"{there.shards} shards, not {asked.shards}"
    return "rows of another catalog or version of kvreport"
