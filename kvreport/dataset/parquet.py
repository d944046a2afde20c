"""Joining Parquet files without reading their rows: column chunks are copied, and the footer is written again.

A file is ``PAR1``, the column chunks of its row groups, the footer (a ``FileMetaData`` in Thrift's compact protocol),
the footer's length and ``PAR1``. Chunks say nothing of where they lie; only the footer does. So files of one schema
become one by adding to every offset what lies in front of the file's chunks.
Source: the format's own definition, parquet.thrift of Apache Parquet 2.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Final

_MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4

# FileMetaData: the fields that are changed.
_NUM_ROWS: Final = 3
_ROW_GROUPS: Final = 4

_ORDINAL: Final = -1
"""Stands among offsets for a row group's number."""

_Cuts = dict[int, "_Cuts"]
_OFFSET: Final[_Cuts] = {}
_NUMBERED: Final[_Cuts] = {}
_META_CUTS: Final = dict.fromkeys((9, 10, 11, 14), _OFFSET)
"""ColumnMetaData: ``data_page_offset``, ``index_page_offset``, ``dictionary_page_offset``, ``bloom_filter_offset``."""
_CHUNK_CUTS: Final = {**dict.fromkeys((2, 4, 6), _OFFSET), 3: _META_CUTS}
"""ColumnChunk: ``file_offset``, ``offset_index_offset``, ``column_index_offset``, and its ``meta_data``."""
_GROUP_CUTS: Final[_Cuts] = {1: _CHUNK_CUTS, 5: _OFFSET, 7: _NUMBERED}
"""RowGroup: its ``columns``, ``file_offset`` and ``ordinal``."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_INTEGERS: Final = (_I16, _I32, _I64)


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file as one that others join needs to know it: found once, and kept with the file.

    Attributes:
        rows: Rows.
        end: Where its column chunks end.
        common: Its footer before the number of its rows, from there to its row groups, and after them: what files
            that can be joined share.
        groups: Its row groups as they are written, cut where an offset or the group's number stands.
    """

    rows: int
    end: int
    common: tuple[bytes, bytes, bytes]
    groups: tuple[tuple[tuple[bytes, ...], tuple[int, ...]], ...]


def part_of(content: bytes) -> Part:
    """Read a file's footer for :meth:`Joined.add`.

    Raises:
        ValueError: If it is no Parquet file.
    """
    start, stop = _footer_place(content)
    # Files of one schema begin their footers alike: what one was read for is not read again.
    head = next((known for known in _heads if content.startswith(known, start)), b"")
    if not head:
        head = content[start : _field_place(content, start, _NUM_ROWS)]
        _heads[:] = [*_heads[-_HEADS_KEPT + 1 :], head]
    rows, rows_end = _number_at(content, start + len(head))
    groups_at = _field_place(content, rows_end, _ROW_GROUPS, _NUM_ROWS)
    count, _, at = _list_at(content, groups_at)
    cutter = _Cutter(content, at)
    groups = tuple(cutter.group() for _ in range(count))
    return Part(rows, start, (head, content[rows_end:groups_at], content[cutter.at : stop]), groups)


_HEADS_KEPT: Final = 4
_heads: list[bytes] = []


def _field_place(content: bytes, at: int, wanted: int, number: int = 0) -> int:
    """Return where the value of a struct's field begins; ``at`` follows the field ``number``."""
    while head := content[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number_at(content, at)
        if number == wanted:
            return at
        at = _after(content, at, head & 0x0F)
    raise ValueError(f"a Parquet footer without field {wanted}")


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
        self._common: tuple[bytes, bytes, bytes] | None = None
        self._groups: list[bytes] = []
        self.rows = 0

    def add(self, content: bytes, part: Part) -> None:
        """Add the row groups of a whole file.

        Args:
            content: The file.
            part: What :func:`part_of` says of it.

        Raises:
            ValueError: If it is one of another schema.
        """
        if self._common is None:
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
        if self._common is None:
            raise ValueError("a Parquet file needs at least one part")
        head, between, tail = self._common
        footer = bytearray(head)
        _write_varint(footer, _zigzag(self.rows))
        footer += between
        count = len(self._groups)
        footer.append(min(count, 15) << 4 | _STRUCT)
        if count >= 15:
            _write_varint(footer, count)
        footer += b"".join(self._groups)
        footer += tail
        self._out.write(bytes(footer) + len(footer).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)


def _footer_place(content: bytes) -> tuple[int, int]:
    """Return where a file's footer begins and ends."""
    stop = len(content) - _LENGTH_BYTES - len(_MAGIC)
    if stop < len(_MAGIC) or content[: len(_MAGIC)] != _MAGIC or content[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("no Parquet file")
    start = stop - int.from_bytes(content[stop : stop + _LENGTH_BYTES], "little")
    if start < len(_MAGIC):
        raise ValueError("no Parquet file")
    return start, stop


class _Cutter:
    """Goes through a row group as it is written, and cuts it where an offset or the group's number stands.

    Nothing is made of what it passes: a footer holds a thousand numbers, and a few decide.
    """

    def __init__(self, content: bytes, position: int) -> None:
        self._content, self.at = content, position
        self._from = position
        self._pieces: list[bytes] = []
        self._offsets: list[int] = []

    def group(self) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """Return the group in pieces, and the offset between each two; -1 is the group's number."""
        self._from = self.at
        self._pieces, self._offsets = [], []
        self._struct(_GROUP_CUTS)
        return (*self._pieces, self._content[self._from : self.at]), tuple(self._offsets)

    def _struct(self, cuts: _Cuts) -> None:
        content, number = self._content, 0
        while head := content[self.at]:
            self.at += 1
            kind, step = head & 0x0F, head >> 4
            if step:
                number += step
            else:
                number, self.at = _number_at(content, self.at)
            inside = cuts.get(number)
            if inside is None:
                self.at = _after(content, self.at, kind)
            elif kind == _STRUCT:
                self._struct(inside)
            elif kind == _LIST:
                count, _, self.at = _list_at(content, self.at)
                for _ in range(count):
                    self._struct(inside)
            else:
                self._cut(-1 if inside is _NUMBERED else None)
        self.at += 1

    def _cut(self, known: int | None) -> None:
        begin = self.at
        offset, self.at = _number_at(self._content, begin)
        # An offset of 0 stands for "not told": nothing begins there, where the magic bytes are.
        if known is not None or offset > 0:
            self._pieces.append(self._content[self._from : begin])
            self._offsets.append(offset if known is None else known)
            self._from = self.at


def _after(content: bytes, at: int, kind: int) -> int:
    """Return where a value ends that begins at ``at``."""
    if kind in _INTEGERS:
        while content[at] & 0x80:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _varint_at(content, at)
        return at + length
    if kind in (_TRUE, _FALSE):
        return at
    if kind in (_LIST, _SET):
        count, of, at = _list_at(content, at)
        for _ in range(count):
            at = at + 1 if of in (_TRUE, _FALSE) else _after(content, at, of)
        return at
    if kind == _STRUCT:
        while head := content[at]:
            at += 1
            if not head >> 4:
                at = _after(content, at, _I16)
            at = _after(content, at, head & 0x0F)
        return at + 1
    if kind == _BYTE:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    raise ValueError(f"a Parquet footer with a field of type {kind}")


def _varint_at(content: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while (byte := content[at]) & 0x80:
        found |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return found | byte << shift, at + 1


def _number_at(content: bytes, at: int) -> tuple[int, int]:
    found, at = _varint_at(content, at)
    return _signed(found), at


def _list_at(content: bytes, at: int) -> tuple[int, int, int]:
    """Return a list's count, the type of its elements and where they begin."""
    head = content[at]
    if head >> 4 == 15:
        count, at = _varint_at(content, at + 1)
        return count, head & 0x0F, at
    return head >> 4, head & 0x0F, at + 1


def _moved(pieces: tuple[bytes, ...], offsets: tuple[int, ...], shift: int, ordinal: int) -> bytes:
    """Return a row group that lies further back, as it is written."""
    out = bytearray(pieces[0])
    for offset, piece in zip(offsets, pieces[1:], strict=True):
        _write_varint(out, _zigzag(ordinal if offset == _ORDINAL else offset + shift))
        out += piece
    return bytes(out)


def _signed(number: int) -> int:
    """Undo Thrift's zigzag: 0, 1, 2, 3 are 0, -1, 1, -2."""
    return (number >> 1) ^ -(number & 1)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _write_varint(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
