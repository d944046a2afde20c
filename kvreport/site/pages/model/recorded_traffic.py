"""The section of a model's page about recorded traffic: hit rate against cache size, for two traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Final

from kvreport import units
from kvreport.estimation import Estimate
from kvreport.publish.traffic_data import curve_of, said_left_out, served
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names
from kvreport.traffic.shipped import shipped_traces
from kvreport.units import GIB

TRACES: Final = ("mooncake-conversation", "claude-code-sessions")
BLOCK_TOKENS: Final = 16
CACHED_TOKENS: Final = tuple(1 << power for power in range(16, 29))
"""64K to 256M tokens: from one long request to more than the traces hold."""

WIDTH: Final = 700
HEIGHT: Final = 290
LEFT: Final = 52
RIGHT: Final = 14
TOP: Final = 18
BOTTOM: Final = 46


def context(answer: Estimate | None) -> Names | None:
    """Return what the template is given; None where nothing fits, no layer keeps every token, or prompts are too long."""
    if answer is None or answer.budget.kv_pool_bytes <= 0:
        return None
    per_token = float(answer.plan.profile.marginal_bytes(1 << 30))
    if not per_token:
        return None
    limit = answer.request.model.context_tokens
    keys = tuple(key for key in TRACES if served(key, limit))
    if not keys:
        return None
    pool = answer.budget.kv_pool_bytes
    sizes = [tokens * per_token / GIB for tokens in CACHED_TOKENS]
    known = shipped_traces()
    rates = {key: _rates(key, limit, CACHED_TOKENS) for key in keys}
    here = {key: _rates(key, limit, (int(pool / per_token),))[0] for key in keys}
    axis = _Axis(log2(sizes[0]), log2(sizes[-1]))
    request = answer.request
    devices = f"{request.tensor_parallel} × {request.accelerator.name}"
    found = " and ".join(f"{here[key]:.0%} on the {known[key].label} trace" for key in keys)
    gone = said_left_out(keys, limit)
    return {
        "lines": tuple(
            {"number": number, "name": known[key].label, "points": axis.line(sizes, rates[key])}
            for number, key in enumerate(keys, 1)
        ),
        "across": axis.across(),
        "up": tuple({"at": axis.y(share / 5), "text": f"{share * 20}%"} for share in range(6)),
        "pool": axis.x(pool / GIB) if sizes[0] <= pool / GIB <= sizes[-1] else None,
        "sentence": f"With the KV pool of {devices} ({units.gib(pool, 1)} GiB per GPU), the prefix cache reaches a hit rate of {found}."
        + (f" {gone}" if gone else ""),
        "title": f"Hit rate against KV cache per GPU: {found} at {units.gib(pool, 1)} GiB",
        "table": _table(sizes, rates),
        "command": _command(answer, keys[0]),
        "partial": any(
            not term.rate_bytes or term.cap_tokens < 1 << 30 for term in answer.plan.profile.terms
        ),
    }


def _rates(key: str, limit: int, tokens: Sequence[int]) -> list[float]:
    return [rate for rate, _ in curve_of(key, BLOCK_TOKENS, limit, [one // BLOCK_TOKENS for one in tokens])]


def _command(answer: Estimate, key: str) -> str:
    request = answer.request
    size = "" if request.tensor_parallel == 1 else f" --tensor-parallel {request.tensor_parallel}"
    return f"kvreport replay {key} {request.model.id} --gpu {request.accelerator.id}{size}"


def _table(sizes: Sequence[float], rates: dict[str, list[float]]) -> Table:
    known = shipped_traces()
    rows = tuple(
        Row(
            Cell(f"{size:,.1f}", "kv-num"),
            tuple(Cell(f"{rates[key][index]:.1%}", "kv-num", rates[key][index]) for key in rates),
        )
        for index, size in enumerate(sizes)
    )
    columns = tuple(Column(known[key].label) for key in rates)
    return Table("Hit rate by KV cache per GPU", Column("KV cache per GPU (GiB)"), columns, rows)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Cache sizes across (log2 of GiB), hit rates up."""

    low: float
    high: float

    def x(self, gib: float) -> float:
        share = (log2(gib) - self.low) / (self.high - self.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, rate: float) -> float:
        return round(HEIGHT - BOTTOM - rate * (HEIGHT - TOP - BOTTOM), 1)

    def line(self, sizes: Sequence[float], rates: Sequence[float]) -> str:
        return " ".join(f"{self.x(size)},{self.y(rate)}" for size, rate in zip(sizes, rates, strict=True))

    def across(self) -> tuple[Names, ...]:
        powers = range(ceil(self.low), int(self.high) + 1, 2)
        return tuple(
            {"at": self.x(2.0**power), "text": f"{1 << power:,}" if power >= 0 else f"1/{1 << -power}"}
            for power in powers
        )
