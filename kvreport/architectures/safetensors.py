"""Safetensors headers and checkpoint indexes: every tensor's name, type, shape and bytes.

Format: eight bytes with the header's length (little endian), then JSON, then the data
(https://github.com/huggingface/safetensors, README, "Format"). Only the header is read, so a file
that was cut off after it will do. Everything in it is untrusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, TypeGuard

from kvreport.errors import InputError, shorten

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""
MAX_TENSORS: Final = 2_000_000
MAX_FILES: Final = 4_000

INDEXES: Final = (
    "model.safetensors.index.json",
    "consolidated.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
_NONE: Final[frozenset[str]] = frozenset()
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/.*^size (\d{1,15})$", re.DOTALL | re.MULTILINE
)
"""What a clone without its large files has in place of one (Git LFS, ``docs/spec.md``)."""
_BITS: Final = {
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "F16": 16,
    "BF16": 16,
    "I16": 16,
    "U16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "C64": 64,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file."""

    name: str
    dtype: str  # Its type as safetensors writes it (``BF16``, ``F8_E4M3``, ``I32`` …).
    shape: tuple[int, ...]
    size: int  # Its bytes.

    @property
    def elements(self) -> int:
        """Elements as stored (packed integers count as one)."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Witness:
    """What a checkpoint's files say of its weights."""

    where: str  # The folder or file, as the user named it.
    total: int  # Bytes of all tensors.
    tensors: tuple[StoredTensor, ...] = ()  # Every tensor, or empty if only a total is known.
    names: frozenset[str] = frozenset()  # Names of all tensors, which an index has too; empty if not known.


def read_witness(folder: Path) -> Witness | None:
    """Return what the folder's files say, headers before an index; None if it has neither.

    Raises:
        InputError: If a file is damaged.
    """
    index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
    listed, total, names = _index(index) if index is not None else (_NONE, None, _NONE)
    files = sorted(_files(folder, listed))
    complete = bool(files) and (not listed or len(files) == len(listed))
    pointed = [size for path in files if (size := _pointed_bytes(path)) is not None]
    if pointed:
        # Each file's size has its header in it, which is a few hundredths of a percent.
        total = total or (sum(pointed) if complete and len(pointed) == len(files) else None)
    elif complete:
        tensors = tuple(tensor for path in files for tensor in read_header(path))
        if not tensors:
            raise InputError.of(str(folder), "tensors", "nothing", "safetensors files with tensors in them")
        return Witness(str(folder), sum(tensor.size for tensor in tensors), tensors)
    return None if total is None else Witness(str(index or folder), total, names=names)


def _pointed_bytes(path: Path) -> int | None:
    """Bytes of the file that a Git LFS pointer stands for; None for any other file."""
    try:
        with path.open("rb") as file:
            found = _POINTER.match(file.read(300))
    except OSError:
        return None
    return None if found is None else int(found[1]) or None


def _files(folder: Path, listed: frozenset[str]) -> Iterable[Path]:
    if listed:
        return [path for name in listed if (path := folder / name).is_file()]
    found = [path for path in folder.glob("*.safetensors") if path.is_file()]
    # Mistral publishes the same weights twice: as they were trained, and as transformers names them.
    ours = [path for path in found if not path.name.startswith("consolidated")]
    chosen = ours or found
    if len(chosen) > MAX_FILES:
        raise InputError.of(str(folder), "", f"{len(chosen)} safetensors files", f"at most {MAX_FILES:,}")
    return chosen


def _index(path: Path) -> tuple[frozenset[str], int | None, frozenset[str]]:
    """Return the file names that an index lists, its total, and the names of its tensors."""
    where = str(path)
    data = _index_json(path, where)
    mapping = data.get("weight_map", {})
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        raise InputError.of(
            where, "weight_map", shorten(mapping), "an object of tensors and the files they are in"
        )
    names = frozenset(mapping.values())
    for name in names:
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise InputError.of(where, "weight_map", shorten(name), "names of files in the same folder")
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if total == 0 and not isinstance(total, bool):
        total = None  # what some converters write that do not add it up
    if total is not None and (
        isinstance(total, bool) or not isinstance(total, int) or not 0 < total < 1 << 50
    ):
        raise InputError.of(where, "metadata.total_size", shorten(total), "a number of bytes")
    safe = frozenset(name for name in names if name.endswith(".safetensors"))
    return safe, total, frozenset(mapping)


def _index_json(path: Path, where: str) -> dict[str, Any]:
    """Read an index, which may be larger than any config: it names every tensor."""
    try:
        if path.stat().st_size > MAX_HEADER_BYTES:
            raise InputError.of(
                where, "", f"{path.stat().st_size:,} bytes", f"at most {MAX_HEADER_BYTES:,} bytes"
            )
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.of(where, "", error.strerror or "an unreadable file", "a readable file") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError.of(where, "", "a file that is not JSON", "a checkpoint's index") from error
    if not isinstance(data, dict):
        raise InputError.of(where, "", f"a {type(data).__name__}", "an object with metadata and weight_map")
    return data


def read_header(path: Path) -> tuple[StoredTensor, ...]:
    """Read the header of one safetensors file.

    Raises:
        InputError: If it is no safetensors file, or what it says of itself cannot be.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise InputError.of(where, "", f"a header of {length:,} bytes", "a safetensors file")
            raw = file.read(length)
    except OSError as error:
        raise InputError.of(where, "", error.strerror or "an unreadable file", "a readable file") from error
    if len(raw) < length:
        raise InputError.of(where, "", f"{len(raw):,} of the header's {length:,} bytes", "the whole header")
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError.of(where, "", "a header that is not JSON", "a safetensors file") from error
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise InputError.of(
            where, "", shorten(type(header).__name__), f"an object of up to {MAX_TENSORS:,} tensors"
        )
    return tuple(_tensor(where, name, entry) for name, entry in header.items() if name != "__metadata__")


def _tensor(where: str, name: str, entry: object) -> StoredTensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or not _naturals(shape, 16) or not _naturals(offsets, 2):
        raise InputError.of(where, shorten(name), shorten(entry), "dtype, shape and data_offsets")
    size = offsets[1] - offsets[0] if len(offsets) == 2 else -1
    bits = _BITS.get(dtype)
    if size < 0 or (bits is not None and size != -(-prod(shape) * bits // 8)):
        found = f"{size:,} bytes for {shorten(dtype)} {shorten(shape)}"
        raise InputError.of(where, shorten(name), found, "bytes that make type and shape")
    return StoredTensor(name, dtype, tuple(shape), size)


def _naturals(value: object, most: int) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(
            isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 50 for item in value
        )
    )
