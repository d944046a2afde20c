"""Joining Parquet files without reading their rows: column chunks are copied, and the footer is written again.

A file is ``PAR1``, the column chunks of its row groups, the footer (a ``FileMetaData`` in Thrift's compact protocol),
the footer's length and ``PAR1``. Chunks say nothing of where they lie; only the footer does. So files of one schema
become one by adding to every offset what lies in front of the file's chunks.
Source: the format's own definition, parquet.thrift of Apache Parquet 2.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Final

_MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4

# FileMetaData, RowGroup, ColumnChunk, ColumnMetaData: the fields that are changed or copied.
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4
_GROUP_COLUMNS: Final = 1
_GROUP_OFFSET: Final = 5
_GROUP_ORDINAL: Final = 7
_CHUNK_OFFSETS: Final = (2, 4, 6)
"""``file_offset``, ``offset_index_offset``, ``column_index_offset``."""
_CHUNK_META: Final = 3
_META_OFFSETS: Final = (9, 10, 11, 14)
"""``data_page_offset``, ``index_page_offset``, ``dictionary_page_offset``, ``bloom_filter_offset``."""

_ORDINAL: Final = -1
"""Stands among offsets for a row group's number."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_INTEGERS: Final = (_I16, _I32, _I64)


@dataclass(slots=True)
class _Field:
    kind: int
    value: object


_Struct = dict[int, _Field]


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file as one that others join needs to know it: found once, and kept with the file.

    Attributes:
        rows: Rows.
        end: Where its column chunks end.
        common: Its footer without what its rows decide, as files that can be joined share it.
        groups: Its row groups as they are written, cut where an offset or the group's number stands.
    """

    rows: int
    end: int
    common: bytes
    groups: tuple[tuple[tuple[bytes, ...], tuple[int, ...]], ...]


def part_of(content: bytes) -> Part:
    """Read a file's footer for :meth:`Joined.add`.

    Raises:
        ValueError: If it is no Parquet file.
    """
    footer, end = _footer(content)
    groups = tuple(_cut(group) for group in _elements(footer, _ROW_GROUPS))
    return Part(_number(footer, _NUM_ROWS), end, _alike(footer), groups)


class Joined:
    """One Parquet file written from several, which have one schema and the same writer's settings.

    Attributes:
        rows: Rows so far.
    """

    def __init__(self, out: IO[bytes]) -> None:
        """Begin a file."""
        self._out = out
        self._out.write(_MAGIC)
        self._size = len(_MAGIC)
        self._footer: _Struct | None = None
        self._common = b""
        self._groups: list[object] = []
        self.rows = 0

    def add(self, content: bytes, part: Part) -> None:
        """Add the row groups of a whole file.

        Args:
            content: The file.
            part: What :func:`part_of` says of it.

        Raises:
            ValueError: If it is no Parquet file, or one of another schema.
        """
        if self._footer is None:
            self._footer, _ = _footer(content)
            self._common = part.common
        elif part.common != self._common:
            raise ValueError("a Parquet file of another schema")
        body = memoryview(content)[len(_MAGIC) : part.end]
        shift = self._size - len(_MAGIC)
        for pieces, offsets in part.groups:
            self._groups.append(_moved(pieces, offsets, shift, len(self._groups)))
        self._out.write(body)
        self._size += len(body)
        self.rows += part.rows

    def close(self) -> None:
        """Write the footer.

        Raises:
            ValueError: If nothing was added.
        """
        if self._footer is None:
            raise ValueError("a Parquet file needs at least one part")
        self._footer[_NUM_ROWS].value = self.rows
        self._footer[_ROW_GROUPS].value = (_STRUCT, self._groups)
        footer = bytearray()
        _write_struct(footer, self._footer)
        self._out.write(bytes(footer) + len(footer).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)


def _footer(content: bytes) -> tuple[_Struct, int]:
    """Return a file's footer and where it begins."""
    end = len(content) - _LENGTH_BYTES - len(_MAGIC)
    if end < len(_MAGIC) or content[: len(_MAGIC)] != _MAGIC or content[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("no Parquet file")
    start = end - int.from_bytes(content[end : end + _LENGTH_BYTES], "little")
    if start < len(_MAGIC):
        raise ValueError("no Parquet file")
    return _Reader(content, start).struct(), start


def _alike(footer: _Struct) -> bytes:
    """Return what the footers of files that can be joined have in common: all but rows."""
    rest = bytearray()
    _write_struct(
        rest, {number: field for number, field in footer.items() if number not in (_NUM_ROWS, _ROW_GROUPS)}
    )
    return bytes(rest)


class _Pieces(bytearray):
    """What is written, with the places where a number is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[tuple[int, int]] = []


class _LeftOut(int):
    """A number that its place in a joined file decides."""


def _cut(group: _Struct) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Return a row group as it is written, in pieces, and the offset between each two; -1 is the group's number."""
    _leave_out(group, _GROUP_OFFSET)
    if _GROUP_ORDINAL in group:
        group[_GROUP_ORDINAL].value = _LeftOut(_ORDINAL)
    for chunk in _elements(group, _GROUP_COLUMNS):
        for number in _CHUNK_OFFSETS:
            _leave_out(chunk, number)
        meta = chunk[_CHUNK_META].value
        if isinstance(meta, dict):
            for number in _META_OFFSETS:
                _leave_out(meta, number)
    written = _Pieces()
    _write_struct(written, group)
    places = [0, *(place for place, _ in written.cuts), len(written)]
    pieces = tuple(bytes(written[first:last]) for first, last in pairwise(places))
    return pieces, tuple(offset for _, offset in written.cuts)


def _moved(pieces: tuple[bytes, ...], offsets: tuple[int, ...], shift: int, ordinal: int) -> bytes:
    """Return a row group that lies further back, as it is written."""
    out = bytearray(pieces[0])
    for offset, piece in zip(offsets, pieces[1:], strict=True):
        _write_varint(out, _zigzag(ordinal if offset == _ORDINAL else offset + shift))
        out += piece
    return bytes(out)


def _leave_out(struct: _Struct, number: int) -> None:
    field = struct.get(number)
    # 0 stands for "not told": nothing begins there, where the magic bytes are.
    if field is not None and isinstance(field.value, int) and field.value > 0:
        field.value = _LeftOut(field.value)


def _elements(struct: _Struct, number: int) -> list[_Struct]:
    value = struct[number].value
    return value[1] if isinstance(value, tuple) else []


def _number(struct: _Struct, number: int) -> int:
    value = struct[number].value
    return value if isinstance(value, int) else 0


class _Reader:
    """Reads Thrift's compact protocol."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content, self._at = content, position

    def struct(self) -> _Struct:
        found: _Struct = {}
        number = 0
        while (head := self._byte()) != _STOP:
            kind, step = head & 0x0F, head >> 4
            number = number + step if step else _signed(self._varint())
            found[number] = _Field(kind, self._value(kind, inside=False))
        return found

    def _value(self, kind: int, *, inside: bool) -> object:
        if kind in (_TRUE, _FALSE):
            return self._byte() if inside else kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return _signed(self._varint())
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            head = self._byte()
            of, count = head & 0x0F, head >> 4
            count = self._varint() if count == 15 else count
            read: Callable[[], object] = (
                self.struct if of == _STRUCT else lambda: self._value(of, inside=True)
            )
            return of, [read() for _ in range(count)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError(f"a Parquet footer with a field of type {kind}")

    def _take(self, length: int) -> bytes:
        taken = self._content[self._at : self._at + length]
        self._at += length
        return taken

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7


def _signed(number: int) -> int:
    """Undo Thrift's zigzag: 0, 1, 2, 3 are 0, -1, 1, -2."""
    return (number >> 1) ^ -(number & 1)


def _write_struct(out: bytearray, struct: _Struct) -> None:
    last = 0
    for number, field in sorted(struct.items()):
        kind = field.kind if field.kind not in (_TRUE, _FALSE) else (_TRUE if field.value else _FALSE)
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(number))
        _write_value(out, kind, field.value, inside=False)
        last = number
    out.append(_STOP)


def _write_value(out: bytearray, kind: int, value: object, *, inside: bool) -> None:
    if kind in (_TRUE, _FALSE):
        if inside and isinstance(value, int):
            out.append(value)
    elif isinstance(value, dict):
        _write_struct(out, value)
    elif isinstance(value, tuple):
        of, elements = value
        count = len(elements)
        out.append((min(count, 15) << 4) | of)
        if count >= 15:
            _write_varint(out, count)
        for element in elements:
            _write_value(out, of, element, inside=True)
    elif isinstance(value, bytes):
        if kind == _BINARY:
            _write_varint(out, len(value))
        out += value
    elif isinstance(value, _LeftOut) and isinstance(out, _Pieces):
        out.cuts.append((len(out), value))
    elif isinstance(value, int):
        if kind == _BYTE:
            out.append(value)
        else:
            _write_varint(out, _zigzag(value))


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _write_varint(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
