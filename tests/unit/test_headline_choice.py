"""Which accelerator a model's page opens on."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

from kvreport.publish.capacities import capacity_of

CONTEXT = 1 << 18
Config = namedtuple("Config", "gpu tensor_parallel")


def opens_on(serving: dict[str, int], *, known: str = "known", rented: tuple[str, ...] = ("rented",)) -> str:
    """The accelerator, where these serve the model with so many devices and a well-known one does not."""
    gpus: Any = [
        SimpleNamespace(id=name, usable_bytes=1, is_commonly_rented=name in rented)
        for name in {known: 0, **serving}
    ]
    series: Any = {
        Config(name, devices): SimpleNamespace(
            config=Config(name, devices), serves=devices > 0, longest=CONTEXT, holds=bool
        )
        for name, devices in serving.items()
    }
    model: Any = SimpleNamespace(context_tokens=CONTEXT)
    headline = capacity_of(model, gpus, (known,), series, (1024,)).headline
    assert headline is not None
    return headline.config.gpu


def test_a_well_known_one_comes_first() -> None:
    assert opens_on({"coming": 4, "rented": 8, "known": 8}) == "known"


def test_where_no_well_known_one_serves_rented_ones_come_before_what_nobody_has() -> None:
    assert opens_on({"coming": 4, "rented": 8}) == "rented"
    assert opens_on({"coming": 4, "owned": 8}) == "coming"
