"""Which pipeline partition holds the most requests: layers moved between stages until none is gained."""

from __future__ import annotations

from dataclasses import replace

from kvreport.accounting import numeric as xp
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.parallel import stage_layers
from kvreport.errors import InputError


def best_partition(case: Case, context_tokens: int) -> tuple[int, ...]:
    """The layers of each stage that let the most requests of a context run at once.

    It begins with the engine's own division and moves one layer at a time from the stage that holds least to the
    stage that gains most by it; it ends where no move helps.

    Raises:
        InputError: If the layout is impossible whatever the partition.
    """
    stages = case.layout.pipeline
    found = tuple(len(one) for one in stage_layers(case.model.layer_count, stages))
    known = Memo()
    value = _value(case, context_tokens, found, known)
    while True:
        tried = [(_value(case, context_tokens, one, known), one) for one in _moves(found)]
        better = max(tried, default=(value, found))
        if better[0] <= value:
            return found
        value, found = better


def _moves(partition: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every partition with one layer moved from one stage to another."""
    moved = []
    for giver, held in enumerate(partition):
        for taker in range(len(partition)):
            if giver != taker and held > 1:
                sizes = list(partition)
                sizes[giver] -= 1
                sizes[taker] += 1
                moved.append(tuple(sizes))
    return moved


def _value(case: Case, context_tokens: int, partition: tuple[int, ...], known: Memo) -> tuple[float, float]:
    """What is to be made large: first that every stage has a pool, then the requests at once of the smallest."""
    at = replace(case, layout=replace(case.layout, partition=partition))
    try:
        laid = lay_out(at, known)
    except InputError:
        return (float("-inf"), 0.0)
    pools = [float(xp.least(rank.pool_bytes)) for rank in laid.ranks]
    return min(0.0, *pools), float(xp.least(laid.concurrency(context_tokens)))
