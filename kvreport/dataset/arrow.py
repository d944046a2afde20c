"""Cubes and records as Arrow tables, with the types that the dictionary says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.dataset.columns import CAPACITY, Column, Table
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


JOINT: Final = "\x1f"
"""Stands for a comma inside a text, which Arrow refuses to write without quotes."""


@cache
def schema(table: Table) -> pa.Schema:
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


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of a column."""
    return pa.dictionary(_INDEX, pa.string()) if column.type == "string" else _TYPES[column.type]


class _Rows:
    """A cube's possible combinations in the order of rows, with what each has on the axes of its key.

    Attributes:
        gpus: Position of each combination's accelerator.
        layouts: Of its layout.
        weights: Of its weight format.
        caches: Of its KV format.
        contexts: Contexts of each combination: a row each.
    """

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
            return self.spread(values[..., 0].transpose(_AS_LYING).ravel()[self._places])
        return values.transpose((*_AS_LYING, 4)).reshape(-1, self.contexts)[self._places].ravel()

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
    """The same rows as they stand in a CSV, by device count before accelerator.

    Columns of the key whose texts come together again and again are one column, with :data:`JOINT` where the
    commas will be.
    """
    rows = _Rows(cube, by_size=True)
    forms, caches = cube.weight_formats, cube.kv_formats
    leads = tuple(JOINT.join((cube.model.id, gpu, cube.engine)) for gpu in cube.gpus)
    ways = tuple(
        JOINT.join(
            (layout.label, *(_text(getattr(layout, name)) for name in _OF_LAYOUT.values()), form, cache)
        )
        for layout in cube.layouts
        for form in forms
        for cache in caches
    )
    way = (rows.layouts * len(forms) + rows.weights) * len(caches) + rows.caches
    lengths = tuple(map(str, cube.contexts))
    columns = {
        "lead": _dictionary(rows.spread(rows.gpus.astype(np.int32)), leads),
        "way": _dictionary(rows.spread(way.astype(np.int32)), ways),
        "context_tokens": _dictionary(rows.repeated(np.arange(len(lengths), dtype=np.int32)), lengths),
    }
    for column in CAPACITY.columns:
        if not column.key:
            columns[column.name] = _values(cube, rows, column)
    return pa.table(columns)


def _text(value: object) -> str:
    """A part of a layout as Arrow writes it into a CSV."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(cube: Cube, rows: _Rows, column: Column) -> pa.Array:
    """A column beside the key, by row."""
    picked = rows.pick(cube.values[column.name])
    return _dictionary(picked, column.values) if column.values else _plain(picked, column)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one schema as one, each column in one piece."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def record_table(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows given as dictionaries, as an Arrow table."""
    columns = [_record_column([row[column.name] for row in rows], column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=schema(table))


def faults(data: pa.Table, table: Table) -> list[str]:
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


def _value_faults(values: pa.ChunkedArray, column: Column) -> list[str]:
    if column.values:
        strange = sorted(set(pc.unique(values).to_pylist()) - set(column.values))
        return [f"unknown values {strange[:5]}"] if strange else []
    if column.minimum is not None and len(values) > values.null_count:
        least = pc.min(values).as_py()
        return [f"{least} is below {column.minimum}"] if least < column.minimum else []
    return []


def _key_faults(data: pa.Table, table: Table) -> list[str]:
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


def _plain(values: np.ndarray[Any, Any], column: Column) -> pa.Array:
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


def _record_column(values: list[Any], column: Column) -> pa.Array:
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
    codes: np.ndarray[Any, Any], names: tuple[str, ...], known: np.ndarray[Any, Any] | None = None
) -> pa.DictionaryArray:
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    texts = pa.Array.from_buffers(
        pa.string(), len(names), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
    indices = np.ascontiguousarray(codes, dtype=np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(
            _INDEX, len(codes), [None if known is None else _validity(known), pa.py_buffer(indices)]
        ),
        texts,
    )
