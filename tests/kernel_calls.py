"""Calls of the kernel's functions with drawn arguments, and what Python and JavaScript must agree on."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from kvreport.accounting import kernel

DEVICE = 1 << 39
"""Bytes of a device larger than any."""


def functions() -> list[Callable[..., Any]]:
    """Every function of the kernel."""
    found = inspect.getmembers(kernel, inspect.isfunction)
    return [one for _, one in found if one.__module__ == kernel.__name__]


def calls_of(function: Callable[..., Any], draw: random.Random, count: int) -> list[tuple[str, list[Any]]]:
    """So many calls of one function, as name and arguments."""
    argument = drawn(draw)
    kinds = {name: one.annotation for name, one in inspect.signature(function).parameters.items()}
    calls = []
    for _ in range(count):
        given = [argument(name, kind) for name, kind in kinds.items()]
        if "cached" in kinds:
            at = list(kinds).index("cached")
            given[at] = min(given[at], given[at - 1])
        if "rule" in kinds and "block" in kinds:
            rule = given[list(kinds).index("rule")]
            given[list(kinds).index("block")] = math.ceil(rule.cell_bytes * rule.page)
        if function.__name__ == "fast_batch":
            given[-1] %= 1 << 20
        calls.append((function.__name__, given))
    return calls


def agree(name: str, given: list[Any], answer: Any) -> None:
    """Hold what JavaScript answered against the kernel."""
    mine = getattr(kernel, name)(*given)
    if isinstance(mine, float):
        # A power is the one operation whose last digit the languages may see differently.
        assert answer == pytest.approx(mine, rel=1e-13, nan_ok=True), (name, given)
    elif isinstance(mine, list):
        assert answer == [list(one) for one in mine], (name, given)
    elif isinstance(mine, int) and abs(mine) >= 2**53:
        # JavaScript has no exact number above 2^53. No device holds so many bytes or tokens: only drawn ones do.
        assert answer == pytest.approx(mine, rel=1e-13), (name, given)
    else:
        assert answer == mine, (name, given)


def drawn(draw: random.Random) -> Callable[[str, Any], Any]:
    """Draw arguments by their names and types; the same for each run."""

    def term() -> tuple[int, int, int]:
        return draw.randrange(1 << 22), draw.choice([1, 4, 16, 784]), draw.choice([0, 0, 127, 4096])

    def reach() -> tuple[float, float, float, int, int, int, int]:
        cap = draw.choice([0, -1, 512, 4096])
        chunked = draw.choice([0, 1]) if cap > 0 else 0
        each = draw.choice([1, 4])
        return (
            draw.random() * 1e6,
            draw.random() * 1e7,
            draw.random() * 1e7,
            cap,
            each,
            chunked,
            draw.choice([0, 5]),
        )

    def known(value: float) -> float:
        return draw.choice([math.nan, value, value, value])

    def step() -> kernel.Step:
        return kernel.Step(
            ranks=draw.choice([1, 2, 8]),
            dense_bytes=draw.randrange(1, 1 << 37),
            expert_bytes=draw.randrange(1 << 39),
            experts=draw.choice([0, 8, 256]),
            experts_per_token=draw.choice([1, 8]),
            body=[(draw.random() * 1e12, known(9.89e14))],
            head=[(draw.random() * 1e10, known(9.89e14)), (0.0, math.nan)],
            reaches=[reach() for _ in range(draw.randrange(4))],
            attention_rate=known(9.89e14),
            state_bytes=draw.randrange(1 << 28),
            reduced_bytes=draw.randrange(1 << 22),
            bytes_rate=known(3.35e12),
            link_rate=known(4.5e11),
        )

    def rule() -> kernel.PoolRule:
        return kernel.PoolRule(
            cell_bytes=draw.choice([draw.randrange(1, 1 << 22), draw.uniform(1, 1 << 22)]),
            fixed_bytes=draw.choice([0, draw.randrange(1 << 32)]),
            window=draw.choice([0, 128, 4096]),
            shared=draw.choice([0, 1]),
            window_share=draw.choice([0.8, 0.1]),
            page=draw.choice([1, 16, 64, 256]),
            state_bytes=draw.choice([0, draw.randrange(1, 1 << 28)]),
            state_share=draw.choice([0.9, 0.5]),
            states_each=draw.choice([1, 3, 5]),
            turns=draw.choice([1, 1, 2, 8]),
            spare=draw.choice([1, 1, 0]),
            window_bytes=draw.choice([0, draw.randrange(1, 1 << 20), draw.uniform(1, 1 << 20)]),
            slot_bytes=draw.choice([0, draw.randrange(1, 1 << 24)]),
        )

    small = {
        "kept": 3,
        "ranks": 9,
        "groups": 9,
        "wanted": 5000,
        "each": 500,
        "requests": 5000,
        "batch": 5000,
        "block_tokens": 1024,
        "max_num_seqs": 2048,
        "rows": 2048,
        "tensor": 64,
        "data": 64,
        "steps": 4,
        "devices": 64,
    }
    lengths = {
        "context",
        "limit",
        "longest",
        "mean",
        "prompt",
        "cached",
        "prefix",
        "output",
        "tokens",
        "further",
        "supposed",
    }

    def argument(name: str, kind: str) -> Any:
        made = {
            "Sequence[Term]": lambda: [term() for _ in range(draw.randrange(5))],
            "Sequence[Work]": lambda: [(draw.random() * 1e12, known(9.89e14)) for _ in range(3)],
            "Reach": reach,
            "ReserveRates": lambda: kernel.ReserveRates(
                *(draw.random() * 1e6 for _ in range(11)),
                draw.choice([0.0, draw.random() * 1e4]),
                draw.random() * 1e6,
                draw.choice([0.0, draw.random() * 4]),
                *(draw.random() * 1e6 for _ in range(3)),
                draw.choice([1, 7]),
                *(draw.random() * 1e6 for _ in range(2)),
                draw.random() * 1e9,
                draw.choice([0.0, draw.random() * 1e9]),
                draw.randrange(2),
                draw.random() * 1e6,
                draw.choice([512, 1024]),
                draw.choice([1, 3]),
                draw.choice([0.0, draw.uniform(0, 1 << 21)]),
                draw.choice([0.0, draw.random() * 1e5]),
                draw.random() * 1e6,
                draw.choice([0.0, draw.uniform(0, 1 << 21)]),
                *(draw.choice([0.0, draw.uniform(0, 16)]) for _ in range(2)),
                draw.choice([0.0, draw.random() * 1e6]),
                draw.random() * 1e6,
                draw.random() * 1e6,
                draw.choice([0.0, draw.random() * 1e4]),
                *(draw.random() * 1e5 for _ in range(3)),
                draw.randrange(5),
            ),
            "Step": step,
            "Plan": lambda: kernel.Plan(
                block=draw.choice([draw.randrange(1, DEVICE), draw.randrange(1, 1 << 24)]),
                kept=draw.randrange(3),
                constant=draw.randrange(1 << 30),
                terms=[term() for _ in range(draw.randrange(5))],
                rules=[rule() for _ in range(draw.randrange(2))],
            ),
            "ReserveStep": lambda: kernel.ReserveStep(
                tokens=int(2 ** draw.uniform(0, 20)),
                max_num_seqs=draw.randrange(1, 2048),
                context=int(2 ** draw.uniform(0, 20)),
                **{name: draw.random() < 0.5 for name in kernel.ReserveStep._fields[3:]},
            ),
            "PoolRule": rule,
            "bool": lambda: draw.random() < 0.5,
        }.get(kind)
        if made is not None:
            return made()
        if name in ("memory", "compute", "link", "seconds") and kind == "float":
            return known(draw.random())
        if name in ("utilization", "share", "raised", "fraction"):
            return draw.random()
        if kind == "float":
            return draw.choice([draw.random(), draw.uniform(1, 1e5), float(draw.randrange(1, 10**6))])
        if name in small:
            return draw.randrange(1 if name != "kept" else 0, small[name])
        if name in lengths:
            return int(2 ** draw.uniform(0, 20))
        return draw.choice([draw.randrange(1, DEVICE), draw.randrange(1, 1 << 24)])

    return argument
