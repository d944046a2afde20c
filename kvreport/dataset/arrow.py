"""Cubes and records as Arrow tables, with the types that the dictionary says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.dataset.columns import CAPACITY, DatasetColumn, DatasetTable
from kvreport.dataset.matrix import Cube

_TYPES: Final = {
    "int16": pa.int16(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
}
_INDEX: Final = pa.int32()
_OF_LAYOUT: Final = {
    "tensor_parallel": "tensor",
    "data_parallel": "data",
    "pipeline_parallel": "pipeline",
    "expert_parallel": "expert",
    "decode_context_parallel": "decode_context",
}


JOINT: Final = b"\xac"
"""Stands for a comma inside a text, which Arrow refuses to write without quotes: the same sign with the highest bit,
which nothing else here has.
"""

_SMALL: Final = 1 << 16
"""Numbers below it are written from ready texts."""


@cache
def schema(table: DatasetTable) -> pa.Schema:
    """The Arrow schema of a table: texts are dictionaries, meanings travel as field metadata."""
    return pa.schema(
        [
            pa.field(
                column.name,
                arrow_type(column),
                nullable=column.nullable,
                metadata={"meaning": column.meaning, "unit": column.unit},
            )
            for column in table.columns
        ],
        metadata={"title": table.title},
    )


def arrow_type(column: DatasetColumn) -> pa.DataType:
    """The Arrow type of a column."""
    return pa.dictionary(_INDEX, pa.string()) if column.type == "string" else _TYPES[column.type]


class _Rows:
    """A cube's possible combinations in the order of rows, with what each has on the axes of its key."""

    def __init__(self, cube: Cube, *, by_size: bool) -> None:
        gpus, layouts, weights, caches = cube.possible.shape
        self.contexts = len(cube.contexts)
        # A cube's numbers lie by layout and KV format (:meth:`pick`); rows come in another order.
        lying = np.arange(cube.possible.size).reshape(layouts, caches, gpus, weights)
        order, possible = lying.transpose(_BY_KEY), cube.possible
        if by_size:
            order, possible = order.swapaxes(0, 1), possible.swapaxes(0, 1)
        self._places = order.ravel() if possible.all() else order[possible]
        self.layouts, self.caches, self.gpus, self.weights = np.unravel_index(self._places, lying.shape)

    def pick(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A cube's column by row."""
        if values.strides[-1] == 0:
            return self.spread(self.once(values))
        return values.transpose((*_AS_LYING, 4)).reshape(-1, self.contexts)[self._places].ravel()

    def once(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A cube's column by combination, where every context has the same."""
        return values[..., 0].transpose(_AS_LYING).ravel()[self._places]

    def spread(self, once: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What every context of a combination has."""
        return np.repeat(once, self.contexts)

    def repeated(self, contexts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What every combination has at each context."""
        return np.tile(contexts, len(self._places))


_BY_KEY: Final = (2, 0, 3, 1)
"""From layouts, KV formats, accelerators, weight formats to accelerators, layouts, weight formats, KV formats."""
_AS_LYING: Final = (1, 3, 0, 2)
"""The way back."""


def capacity_table(cube: Cube) -> pa.Table:
    """A cube's possible combinations as rows of the capacity table, sorted by key."""
    rows = _Rows(cube, by_size=False)
    names: dict[str, tuple[np.ndarray[Any, Any], tuple[str, ...]]] = {
        "model": (np.zeros_like(rows.gpus), (cube.model.id,)),
        "gpu": (rows.gpus, cube.gpus),
        "engine": (np.zeros_like(rows.gpus), (cube.engine,)),
        "layout": (rows.layouts, tuple(layout.label for layout in cube.layouts)),
        "weight_format": (rows.weights, cube.weight_formats),
        "kv_format": (rows.caches, cube.kv_formats),
    }
    columns: list[pa.Array] = []
    for column in CAPACITY.columns:
        if column.name in names:
            codes, known = names[column.name]
            columns.append(_dictionary(rows.spread(codes.astype(np.int32)), known))
        elif column.name in _OF_LAYOUT:
            values = np.asarray([getattr(layout, _OF_LAYOUT[column.name]) for layout in cube.layouts])
            typed = values.astype(np.bool_ if column.type == "boolean" else np.int16)
            columns.append(_plain(rows.spread(typed[rows.layouts]), column))
        elif column.name == "context_tokens":
            columns.append(_plain(rows.repeated(np.asarray(cube.contexts, dtype=np.int64)), column))
        else:
            columns.append(_values(cube, rows, column))
    return pa.Table.from_arrays(columns, schema=schema(CAPACITY))


def capacity_lines(cube: Cube) -> pa.Table:
    """The same rows as they stand in a CSV, by device count before accelerator, with :data:`JOINT` for some commas.

    What many rows share is made into text once: what an accelerator is called, how a model is spread and stored
    with the numbers that no accelerator decides, and numbers that every context of a combination has.
    """
    rows = _Rows(cube, by_size=True)
    leads = [JOINT.join(map(str.encode, (cube.model.id, gpu, cube.engine))) for gpu in cube.gpus]
    values = [column for column in CAPACITY.columns if not column.key]
    shared: list[np.ndarray[Any, Any]] = []
    for column in values:
        if column.values or column.nullable or (found := _of_any_gpu(cube, column.name)) is None:
            break
        shared.append(found)
    way = (rows.layouts * len(cube.weight_formats) + rows.weights) * len(cube.kv_formats) + rows.caches
    places = rows.spread((way * rows.contexts).astype(np.int32))
    places += rows.repeated(np.arange(rows.contexts, dtype=np.int32))
    columns = {
        "lead": _coded(rows.spread(rows.gpus.astype(np.int32)), _texts(leads)),
        "way": _coded(places, _ways(cube, shared)),
    }
    each = rows.spread(np.arange(len(rows.gpus), dtype=np.int32))
    for column in values[len(shared) :]:
        columns[column.name] = _line_values(cube, rows, column, each)
    return pa.table(columns)


def _of_any_gpu(cube: Cube, name: str) -> np.ndarray[Any, Any] | None:
    """A column over layouts, weight formats, KV formats and contexts, if accelerators do not differ in it."""
    values = _over_contexts(cube.values[name])
    most: np.ndarray[Any, Any] = values.max(axis=0)
    same = values == most
    if not cube.possible.all():
        same |= ~cube.possible[..., None]
    return most if same.all() else None


def _over_contexts(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A column with one context where all have the same."""
    return values[..., :1] if values.strides[-1] == 0 else values


def _ways(cube: Cube, shared: Sequence[np.ndarray[Any, Any]]) -> pa.Array:
    """What rows of every accelerator say of layout, formats and context, with the numbers that they share."""
    layouts = [
        JOINT.join((layout.label.encode(), *(_text(getattr(layout, name)) for name in _OF_LAYOUT.values())))
        for layout in cube.layouts
    ]
    stored = [
        JOINT.join((form.encode(), cache.encode()))
        for form in cube.weight_formats
        for cache in cube.kv_formats
    ]
    ways = [JOINT.join(pair) for pair in product(layouts, stored)]
    contexts = len(cube.contexts)
    whole = (len(cube.layouts), len(cube.weight_formats), len(cube.kv_formats), contexts)
    lengths = np.asarray(cube.contexts, dtype=np.int64)
    parts = [
        _texts(ways).take(_indices(np.repeat(np.arange(len(ways), dtype=np.int32), contexts))),
        *(_digits(np.broadcast_to(numbers, whole).ravel()) for numbers in (lengths, *shared)),
    ]
    joint = _texts([JOINT]).view(pa.binary())[0]
    return pc.binary_join_element_wise(*(part.view(pa.binary()) for part in parts), joint).view(pa.string())


def _line_values(cube: Cube, rows: _Rows, column: DatasetColumn, each: np.ndarray[Any, Any]) -> pa.Array:
    """A column beside the key by row, as texts where those are ready or few."""
    values = cube.values[column.name]
    if column.type != "int64":
        return _values(cube, rows, column)
    if values.strides[-1] == 0 and not column.nullable:
        return _coded(each, _digits(rows.once(values)))
    if values.max(initial=0) < _SMALL:
        return _coded(rows.pick(values), _small())
    return _values(cube, rows, column)


@cache
def _small() -> pa.Array:
    return _digits(np.arange(_SMALL))


def _digits(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Whole numbers as texts."""
    values = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)]).cast(pa.string())


def _text(value: object) -> bytes:
    """A part of a layout as Arrow writes it into a CSV."""
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def _values(cube: Cube, rows: _Rows, column: DatasetColumn) -> pa.Array:
    """A column beside the key, by row."""
    picked = rows.pick(cube.values[column.name])
    return _dictionary(picked, column.values) if column.values else _plain(picked, column)


def renamed(table: pa.Table, former: str, name: str) -> pa.Table:
    """Rows or lines of one model as those of another: their first column begins with the model's id."""
    column = table.column(0).chunk(0)
    texts = [
        name.encode() + text[len(former.encode()) :]
        for text in column.dictionary.view(pa.binary()).to_pylist()
    ]
    return table.set_column(0, table.field(0), pa.DictionaryArray.from_arrays(column.indices, _texts(texts)))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema as one, each column in one piece."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def record_table(table: DatasetTable, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows given as dictionaries, as an Arrow table."""
    columns = [_record_column([row[column.name] for row in rows], column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=schema(table))


def faults(data: pa.Table, table: DatasetTable) -> list[str]:
    """What of a table contradicts its description: types, empties, ranges, names, order, repeats."""
    found: list[str] = []
    if data.schema.names != list(table.names):
        return [f"{table.name}: columns are {data.schema.names}"]
    for column in table.columns:
        values = data.column(column.name)
        kept = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        wanted = pa.string() if column.type == "string" else _TYPES[column.type]
        where = f"{table.name}.{column.name}"
        if kept != wanted:
            found.append(f"{where}: type is {kept}, described as {column.type}")
            continue
        if values.null_count and not column.nullable:
            found.append(f"{where}: {values.null_count} empty values, described as never empty")
        found += [f"{where}: {problem}" for problem in _value_faults(values, column)]
    return found + _key_faults(data, table)


def _value_faults(values: pa.ChunkedArray, column: DatasetColumn) -> list[str]:
    if column.values:
        strange = sorted(set(pc.unique(values).to_pylist()) - set(column.values))
        return [f"unknown values {strange[:5]}"] if strange else []
    if column.minimum is not None and len(values) > values.null_count:
        least = pc.min(values).as_py()
        return [f"{least} is below {column.minimum}"] if least < column.minimum else []
    return []


def _key_faults(data: pa.Table, table: DatasetTable) -> list[str]:
    """Rows must be strictly ascending by key, which also makes each key unique."""
    if data.num_rows < 2:
        return []
    undecided = np.ones(data.num_rows - 1, dtype=np.bool_)
    for name in table.key:
        column = data.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            names = column.dictionary.to_pylist()
            if len(names) == 1:
                continue
            order = np.argsort(np.argsort(np.asarray(names, dtype=object))).astype(np.int32)
            values = order[_numpy(column.indices)]
        else:
            values = _numpy(column)
        if (undecided & (values[1:] < values[:-1])).any():
            return [f"{table.name}: rows are not sorted by {', '.join(table.key)}"]
        undecided &= values[1:] == values[:-1]
    return [f"{table.name}: {int(undecided.sum())} keys occur more than once"] if undecided.any() else []


def _numpy(values: pa.Array) -> np.ndarray[Any, Any]:
    """A numeric array without empties as NumPy sees it."""
    if pa.types.is_boolean(values.type):
        bits = np.unpackbits(np.frombuffer(values.buffers()[1], np.uint8), bitorder="little")
        return bits[values.offset : values.offset + len(values)]
    kind = np.dtype(str(values.type))
    return np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)


# `pa.array` would look for pandas, and load it, to see whether it was given a series; an array's own
# memory needs neither that nor a copy. `to_numpy` would look too.


def _plain(values: np.ndarray[Any, Any], column: DatasetColumn) -> pa.Array:
    """A numeric array as it lies in memory; where the column may be empty, not-a-number and "no limit" are."""
    present = None
    if column.type == "boolean":
        packed = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])
    if column.nullable:
        known = values < UNLIMITED_REQUESTS if column.type == "int64" else ~np.isnan(values)
        present = _validity(known)
    return pa.Array.from_buffers(
        arrow_type(column), len(values), [present, pa.py_buffer(np.ascontiguousarray(values))]
    )


def _record_column(values: list[Any], column: DatasetColumn) -> pa.Array:
    """A column of records, None where it is empty."""
    known = np.asarray([value is not None for value in values], dtype=np.bool_)
    if column.type == "string":
        names = dict.fromkeys(value for value in values if value is not None)
        places = {name: place for place, name in enumerate(names)}
        codes = np.asarray([places.get(value, 0) for value in values], dtype=np.int32)
        return _dictionary(codes, tuple(names), known)
    kind = _TYPES[column.type].to_pandas_dtype()
    plain = np.asarray([0 if value is None else value for value in values], dtype=kind)
    content = np.packbits(plain, bitorder="little") if column.type == "boolean" else plain
    return pa.Array.from_buffers(
        arrow_type(column), len(values), [_validity(known), pa.py_buffer(np.ascontiguousarray(content))]
    )


def _validity(known: np.ndarray[Any, Any]) -> pa.Buffer | None:
    """The bits that say which values there are; None where all are."""
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def _dictionary(
    codes: np.ndarray[Any, Any], names: Sequence[str], known: np.ndarray[Any, Any] | None = None
) -> pa.DictionaryArray:
    return _coded(codes, _texts([name.encode() for name in names]), known)


def _texts(encoded: Sequence[bytes]) -> pa.Array:
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def _coded(
    codes: np.ndarray[Any, Any], texts: pa.Array, known: np.ndarray[Any, Any] | None = None
) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(_indices(codes, known), texts)


def _indices(codes: np.ndarray[Any, Any], known: np.ndarray[Any, Any] | None = None) -> pa.Array:
    indices = np.ascontiguousarray(codes, dtype=np.int32)
    return pa.Array.from_buffers(
        _INDEX, len(codes), [None if known is None else _validity(known), pa.py_buffer(indices)]
    )
