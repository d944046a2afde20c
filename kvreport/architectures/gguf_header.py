"""The header of a GGUF file: metadata and tensor table, read without the tensors and without trust.

The format is that of ``docs/gguf.md`` of ggml, version 3 (and 2, which differs in nothing that is read here).
Every count is held against what the file could hold before anything is allocated.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.types import BY_NUMBER, GgmlType
from kvreport.errors import InputError, shorten

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_TENSORS: Final = 1 << 20
MAX_KEYS: Final = 1 << 16
MAX_STRING: Final = 1 << 24
MAX_DIMENSIONS: Final = 4
_KEPT_ITEMS: Final = 4096

_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_SPLIT: Final = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True)
class FileTensor:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]  # Elements per dimension, the fastest first.
    kind: GgmlType


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of a model, all parts of a split file together."""

    path: Path  # The file that was named.
    metadata: dict[str, Any]  # Values by key; a long array of tokens is kept as its length under ``key``.
    tensors: tuple[FileTensor, ...]
    missing_bytes: int = 0  # Bytes by which files end before their tensors do.


def read_header(path: str | Path) -> Header:
    """Read the header of a GGUF file and of its other parts; ``path`` is the first or any other of them.

    Raises:
        InputError: In one sentence, if it is no GGUF file, is cut off, lacks a part or has an unknown type.
    """
    first = Path(path)
    parts = _parts(first)
    metadata, tensors, missing = _read_one(parts[0])
    for part in parts[1:]:
        _, more, lost = _read_one(part)
        tensors += more
        missing += lost
    return Header(first, metadata, tuple(tensors), missing)


def header_bytes(data: bytes, name: str) -> int | None:
    """How long the header is that a file begins with; None if it goes on beyond what is there.

    Raises:
        InputError: If they are no GGUF file's.
    """
    reader = _Reader(data, name)
    try:
        reader.read()
    except _CutOffError:
        return None
    return reader.at


class _CutOffError(InputError):
    """A header that goes on beyond the end of what is there."""


def _parts(path: Path) -> list[Path]:
    found = _SPLIT.match(path.name)
    if found is None:
        return [path]
    count = int(found["count"])
    names = [path.with_name(f"{found['stem']}-{n:05d}-of-{found['count']}.gguf") for n in range(1, count + 1)]
    missing = [name.name for name in names if not name.is_file()]
    if missing:
        raise InputError(
            f"{path.name}: a model in {count} files lacks {missing[0]}; put all parts into one folder"
        )
    return names


def _read_one(path: Path) -> tuple[dict[str, Any], list[FileTensor], int]:
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data, path.name)
            metadata, tensors = reader.read()
            held = sum(one.kind.nbytes(one.shape[0], prod(one.shape[1:])) for one in tensors)
            return metadata, tensors, max(0, reader.at + held - reader.size)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file; allowed: the path of a .gguf file") from error
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        if path.is_file() and path.stat().st_size == 0:
            raise InputError(f"{path.name}: the file is empty; download it again") from error
        raise InputError(f"{path}: cannot be read as a GGUF file: {error}") from error


class _Reader:
    def __init__(self, data: mmap.mmap | bytes, name: str) -> None:
        self.data, self.name, self.at, self.size = data, name, 0, len(data)

    def read(self) -> tuple[dict[str, Any], list[FileTensor]]:
        if self.take(4) != MAGIC:
            raise InputError(
                f"{self.name}: found no GGUF header; allowed: a .gguf file as llama.cpp reads it"
            )
        version = self.number("<I")
        if version not in VERSIONS:
            raise InputError(f"{self.name}: found GGUF version {version}; allowed: 2 or 3")
        count = self.bounded("tensors", self.number("<Q"), MAX_TENSORS)
        keys = self.bounded("metadata keys", self.number("<Q"), MAX_KEYS)
        metadata = {}
        for _ in range(keys):
            key = self.text()
            metadata[key] = self.value(self.number("<I"), key)
        return metadata, [self.tensor() for _ in range(count)]

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.size:
            raise _CutOffError(
                f"{self.name}: the file ends at byte {self.size:,} inside its header; download it again"
            )
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def number(self, form: str) -> Any:  # noqa: ANN401
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def bounded(self, what: str, number: int, most: int) -> int:
        if number > most:
            raise InputError(f"{self.name}: found {number:,} {what}; allowed: at most {most:,}")
        return number

    def text(self) -> str:
        size = self.bounded("characters in a text", self.number("<Q"), MAX_STRING)
        return self.take(size).decode("utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:  # noqa: ANN401
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _SCALARS:
            raise InputError(f"{self.name}: {shorten(key)}: found value type {kind}; allowed: 0 to 12")
        return self.number(_SCALARS[kind])

    def array(self, key: str) -> Any:  # noqa: ANN401
        kind, count = self.number("<I"), self.number("<Q")
        if count > self.size:
            raise _CutOffError(
                f"{self.name}: {shorten(key)}: found {count:,} items in a file of {self.size:,} bytes"
            )
        if kind == _ARRAY:
            raise InputError(f"{self.name}: {shorten(key)}: found an array of arrays; llama.cpp reads none")
        if kind == _STRING:
            for _ in range(count):
                size = self.bounded("characters in a text", self.number("<Q"), MAX_STRING)
                self.take(size)
            return count
        if kind not in _SCALARS:
            raise InputError(f"{self.name}: {shorten(key)}: found value type {kind}; allowed: 0 to 12")
        width = struct.calcsize(_SCALARS[kind])
        if count > _KEPT_ITEMS:
            self.take(count * width)
            return count
        return [self.number(_SCALARS[kind]) for _ in range(count)]

    def tensor(self) -> FileTensor:
        name = self.text()
        dimensions = self.bounded(f"dimensions of {shorten(name)}", self.number("<I"), MAX_DIMENSIONS)
        shape = tuple(self.number("<Q") for _ in range(dimensions)) or (1,)
        kind, _ = self.number("<I"), self.number("<Q")
        if kind not in BY_NUMBER:
            raise InputError(
                f"{self.name}: {shorten(name)}: found tensor type {kind}, unknown to this version; "
                f"allowed: {', '.join(sorted(one.name for one in BY_NUMBER.values()))}"
            )
        if any(not 0 < size <= 1 << 40 for size in shape):
            raise InputError(
                f"{self.name}: {shorten(name)}: found shape {shape}; allowed: positive whole numbers"
            )
        if shape[0] % BY_NUMBER[kind].block:
            raise InputError(
                f"{self.name}: {shorten(name)}: found {shape[0]} columns of {BY_NUMBER[kind].name}; "
                f"allowed: a multiple of {BY_NUMBER[kind].block}"
            )
        return FileTensor(name, shape, BY_NUMBER[kind])
