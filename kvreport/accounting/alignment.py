"""Whether tensor parallelism cuts a quantized checkpoint's blocks: groups of weights that share one scale.

A rank holds whole blocks or none of a block. Which formats a release checks, and on which sides, is data
(``support.yaml``, ``alignment``); the shapes are those of the model's own tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Final

from kvreport.accounting.parallel import Layout
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.layouts import layout as named_layout
from kvreport.catalog.model import Component, Model, WeightGroup
from kvreport.catalog.support import AlignmentRule

_WHOLE: Final[frozenset[Component]] = frozenset({"vision", "audio"})
"""Encoders can be kept whole on every rank, so they refuse no size."""


def cut_block(
    rules: Sequence[AlignmentRule],
    model: Model,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    layout: Layout,
) -> str | None:
    """Say which block of weights a layout cuts; None if it cuts none."""
    if not rules or (layout.tensor == 1 and layout.expert_ranks == 1):
        return None
    for row in model.weights:
        form = _format(row, weight_format, formats)
        if form is None or form.block is None or len(row.shape) < 2 or row.component in _WHOLE:
            continue
        experts = row.component == "routed_experts"
        ranks = layout.expert_ranks if experts else layout.tensor
        if ranks == 1 or (experts and layout.expert) or row.component in model.not_loaded:
            continue
        for rule in rules:
            if rule.experts == experts and rule.names(form.name):
                for part, block in _parts(row, form.block, ranks, model.hidden_size, rule):
                    return (
                        f"tensor parallel {ranks} leaves {part:,} of {row.name} to a rank, which its blocks of "
                        f"{block} weights do not divide"
                    )
    return None


def _format(
    row: WeightGroup, asked: WeightFormat | None, formats: Mapping[str, WeightFormat]
) -> WeightFormat | None:
    """The format that a row is loaded in; None for the model's own type."""
    if asked is None:
        return None if row.released is None else formats.get(row.released) or named_layout(row.released)
    return asked if row.component in asked.quantises else None


def _parts(
    row: WeightGroup, block: tuple[int, int], ranks: int, hidden: int, rule: AlignmentRule
) -> Iterator[tuple[int, int]]:
    """The part of a side that a rank holds, with the block that does not divide it."""
    outputs, inputs = row.shape[-2:]
    into = _is_cut_along_inputs(row, hidden)
    if into is None or (not into and rule.sides == "input"):
        return
    whole = inputs if into else outputs
    if not into and "gate_up" in row.name:
        whole //= 2
    side = block[1] if into else block[0]
    # 0 is the whole side, which a rank may hold a part of: its scale is then repeated.
    if side <= 1 or whole % ranks:
        return
    part = whole // ranks
    if part % side == 0:
        return
    if rule.refined is None or gcd(side, part, hidden) < rule.refined:
        yield part, side


def _is_cut_along_inputs(row: WeightGroup, hidden: int) -> bool | None:
    """Whether tensor parallelism divides a matrix's inputs (True) or outputs (False); None for neither."""
    outputs, inputs = row.shape[-2:]
    match row.split:
        case "rows":
            return True
        case "columns":
            return False
        case "heads" | "experts":
            # The side that is not the model's width is the divided one: an output projection's inputs, for one.
            return outputs == hidden and inputs != hidden
        case _:
            return None
