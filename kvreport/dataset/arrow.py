"""Cubes and records as Arrow tables, with the types that the dictionary says."""

from __future__ import annotations

from collections.abc import Sequence
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


def capacity_table(cube: Cube, *, by_size: bool = False) -> pa.Table:
    """A cube's possible combinations as rows of the capacity table.

    Args:
        cube: The answers.
        by_size: True to have rows by device count before accelerator; else they are sorted by key.
    """
    shape = (*cube.possible.shape, len(cube.contexts))
    possible = cube.possible.swapaxes(0, 1) if by_size else cube.possible
    chosen = None if possible.all() else np.flatnonzero(possible)
    lengths = shape[-1]

    def pick(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        flat = (values.swapaxes(0, 1) if by_size else values).reshape(-1, lengths)
        return (flat if chosen is None else flat[chosen]).ravel()

    keys: dict[str, tuple[int, tuple[str, ...]]] = {
        "gpu": (0, cube.gpus),
        "layout": (1, tuple(layout.label for layout in cube.layouts)),
        "weight_format": (2, cube.weight_formats),
        "kv_format": (3, cube.kv_formats),
    }
    columns: list[pa.Array] = []
    for column in CAPACITY.columns:
        if column.name == "model":
            codes = np.zeros(cube.rows, dtype=np.int32)
            columns.append(_dictionary(codes, (cube.model.id,)))
        elif column.name in keys:
            axis, names = keys[column.name]
            columns.append(_dictionary(pick(_along(axis, np.arange(len(names)), shape)), names))
        elif column.name == "engine":
            columns.append(_dictionary(np.zeros(cube.rows, dtype=np.int32), (cube.engine,)))
        elif column.name in _OF_LAYOUT:
            values = np.asarray([getattr(layout, _OF_LAYOUT[column.name]) for layout in cube.layouts])
            typed = values.astype(np.bool_ if column.type == "boolean" else np.int16)
            columns.append(_plain(pick(_along(1, typed, shape)), column))
        elif column.name == "context_tokens":
            columns.append(_plain(pick(_along(4, np.asarray(cube.contexts, dtype=np.int64), shape)), column))
        elif column.values:
            columns.append(_dictionary(pick(cube.values[column.name]), column.values))
        else:
            columns.append(_plain(pick(cube.values[column.name]), column))
    return pa.Table.from_arrays(columns, schema=schema(CAPACITY))


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
    ranks = []
    for name in table.key:
        values = data.column(name).combine_chunks()
        if pa.types.is_dictionary(values.type):
            names = values.dictionary.to_pylist()
            order = np.argsort(np.argsort(np.asarray(names, dtype=object)))
            ranks.append(order[_numpy(values.indices)])
        else:
            ranks.append(_numpy(values))
    undecided = np.ones(data.num_rows - 1, dtype=np.bool_)
    for values in ranks:
        step = np.diff(values.astype(np.int64))
        if (step[undecided] < 0).any():
            return [f"{table.name}: rows are not sorted by {', '.join(table.key)}"]
        undecided &= step == 0
    return [f"{table.name}: {int(undecided.sum())} keys occur more than once"] if undecided.any() else []


def _along(axis: int, values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Repeat one axis's values over the whole shape."""
    view = values.reshape([-1 if position == axis else 1 for position in range(len(shape))])
    return np.broadcast_to(view, shape)


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
