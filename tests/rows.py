"""Rows of a matrix beside estimates of the same questions: every field that both have is equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import kvreport
from kvreport.accounting.capacity import Limit, Verdict
from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import Catalog
from kvreport.dataset.matrix import Cube
from kvreport.errors import InputError

Place = tuple[int, int, int, int]
"""Indexes of the accelerator, the layout and the formats of weights and cache."""


def asked(cube: Cube, place: Place, tokens: int, engine: str) -> dict[str, Any]:
    """The question of a row, but for its model and the number of its machines."""
    g, t, w, k = place
    return {
        "gpu": cube.gpus[g],
        "weights": cube.weight_formats[w],
        "kv": cube.kv_formats[k],
        "context_tokens": tokens,
        "engine": engine,
        **spread(cube.layouts[t]),
    }


def spread(layout: Layout) -> dict[str, Any]:
    """A layout as an estimate is asked for it."""
    return {
        "tensor_parallel": layout.tensor,
        "data_parallel": layout.data,
        "expert_parallel": layout.expert,
        "pipeline_parallel": layout.pipeline,
        "decode_context_parallel": layout.decode_context,
    }


def row_of(cube: Cube, place: Place, number: int) -> dict[str, Any]:
    """The values of a row as an estimate has them."""
    row = {name: values[(*place, number)].item() for name, values in cube.values.items()}
    row |= {"verdict": Verdict(row["verdict"]).label, "limited_by": Limit(row["limited_by"]).label}
    for count in ("max_concurrent_requests_by_memory", "max_concurrent_requests_ceiling"):
        row[count] = None if row[count] >= UNLIMITED_REQUESTS else row[count]
    return row


def answer_of(catalog: Catalog, model: Any, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The estimate under the names of columns; None where the question is another one than the row's.

    A row is of machines with so many devices, in the formats that it names. An estimate takes more machines where one
    holds fewer devices, and widens a 16-bit checkpoint to float32 where a release does, and says so.
    """
    told = kvreport.estimate(model, catalog=catalog, **options).to_dict()
    if any(one.startswith(("nodes ", "weights fp32")) for one in told["assumptions"]):
        return None
    return in_columns(told)


def in_columns(told: dict[str, Any]) -> dict[str, Any]:
    """An estimate as JSON, with the two figures that columns name otherwise."""
    return told | {
        "kv_pool_bytes_per_gpu": told["budget"]["kv_pool_bytes"],
        "shortfall_bytes_per_gpu": told["shortfall_bytes"],
    }


def same(row: Mapping[str, Any], told: Mapping[str, Any], where: object) -> None:
    """Hold every field of a row against the estimate's."""
    for name, value in row.items():
        ours = told[name]
        if name.endswith("_ms_lower_bound"):
            value, ours = (None if np.isnan(value) else value), None if ours is None else np.float32(ours)  # noqa: PLW2901
        assert value == ours, (where, name)


def compare(catalog: Catalog, cube: Cube, place: Place, number: int, engine: str, **more: Any) -> bool:
    """Hold a row against its estimate; False where that answers another question.

    Args:
        catalog: What is asked.
        cube: The rows of a model.
        place: The row's.
        number: Of its contexts.
        engine: Of the rows.
        more: What the estimate is asked besides.
    """
    row, options = row_of(cube, place, number), asked(cube, place, cube.contexts[number], engine) | more
    if row["max_concurrent_requests"] >= UNLIMITED_REQUESTS:
        with pytest.raises(InputError, match="keeps no cache, so nothing bounds its requests"):
            kvreport.estimate(cube.model, catalog=catalog, **options)
        return True
    told = answer_of(catalog, cube.model, options)
    if told is not None:
        same(row, told, (cube.model.id, options))
    return told is not None
