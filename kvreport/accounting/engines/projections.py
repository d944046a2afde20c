"""Query, key and value matrices as engines allocate them, where a checkpoint lacks some.

Engines load queries, keys and values of a layer into one matrix. Where values are the keys' projection, keys are loaded
into both places; where a layer reads another's cache, some releases keep places for its own keys and values, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.accounting.engines.step import Loading
from kvreport.catalog.model import Model, WeightGroup
from kvreport.catalog.remembered import remembered

_QUERY: Final = ".q_proj.weight"
_KEY: Final = ".k_proj.weight"
_VALUE: Final = ".v_proj.weight"


@remembered
def allocated_rows(model: Model, joined: bool) -> tuple[WeightGroup, ...]:  # noqa: FBT001 - part of a memo's key
    """A model's tensors, those of attention as an engine allocates them.

    ``joined``: True if a layer that reads another's cache has places for keys and values of its own.
    """
    return tuple(_allocated(model, joined=joined))


def missing_projections(loading: Loading, *, joined: bool) -> int:
    """Bytes per rank of the places whose tensors the checkpoint lacks; ``joined`` is as for :func:`allocated_rows`."""
    rows, stored = allocated_rows(loading.model, joined), loading.model.weights
    if rows == tuple(stored):
        return 0
    allocated, held = (sum(map(loading.row_bytes, filter(_projects, side))) for side in (rows, stored))
    return allocated - held


def _projects(row: WeightGroup) -> bool:
    return row.component == "attention" and row.name.endswith((_QUERY, _KEY, _VALUE))


def _allocated(model: Model, *, joined: bool) -> Iterator[WeightGroup]:
    rows = [row for row in model.weights if _projects(row)]
    keys = [row for row in rows if row.name.endswith(_KEY)]
    values = [row.count for row in rows if row.name.endswith(_VALUE)]
    for row in model.weights:
        if row not in rows:
            yield row
            continue
        lacking = _without_own(row, rows)
        if lacking and joined and not row.name.endswith(_QUERY):
            yield row.model_copy(update={"count": row.count + lacking})
        elif lacking and not joined and row.name.endswith(_QUERY):
            # A pipeline stage may have no other layer of the row's kind.
            alone = min(lacking, row.count)
            if row.count > alone:
                yield row.model_copy(update={"count": row.count - alone})
            yield row.model_copy(update={"count": alone})
        else:
            yield row
    for key in keys:
        if key.count in values:
            values.remove(key.count)
        else:
            yield key.model_copy(update={"name": key.name.removesuffix(_KEY) + _VALUE})


def _without_own(row: WeightGroup, rows: list[WeightGroup]) -> int:
    """Layers of a row's kind that have queries and no keys of their own."""
    width = _head(row)
    if not width:
        return 0
    counts = {
        part: sum(one.count for one in rows if one.name.endswith(part) and _head(one) == width)
        for part in (_QUERY, _KEY)
    }
    return max(0, counts[_QUERY] - counts[_KEY]) if counts[_KEY] else 0


def _head(row: WeightGroup) -> int:
    """Width of a head of queries or keys."""
    return row.shape[0] // row.heads if row.heads else 0
