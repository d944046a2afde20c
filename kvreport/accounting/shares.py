"""Which share of a device's memory an engine takes, what it asks for at start, and the pool that is left."""

from __future__ import annotations

import math

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.step import check_utilization
from kvreport.accounting.numeric import Integers
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.release import release_of, trait


def stated_share(engine: Engine, utilization: float | None) -> float:
    """The share of memory that is taken: as given, or the engine's default.

    Raises:
        InputError: If it is no share.
    """
    return check_utilization(engine.utilization if utilization is None else utilization)


def share_on(engine: Engine, accelerator: Accelerator | None, utilization: float | None) -> float:
    """The share of a device: as given, or the default where that much is free at start, else whole hundredths that surely are."""
    share = stated_share(engine, utilization)
    if utilization is not None or accelerator is None:
        return share
    found = start_shortage(engine, accelerator, share)
    if found is None or found[0] <= 0:
        return share
    free, less, _ = accelerator.free_at_start
    # A device that may have nothing free is judged by the smallest share: it does not start.
    return max((free - less) * 100 // accelerator.usable_bytes, 1) / 100


def start_shortage(
    engine: Engine, accelerator: Accelerator, utilization: float | None
) -> tuple[int, int] | None:
    """What the engine asks for at start beyond what is free, and the error of that; None if it does not ask.

    Negative where enough is free. vLLM refuses a start whose share of all memory is more: "Free memory on device (…) on startup
    is less than desired GPU memory utilization", since 0.9.1.
    """
    if not release_of(engine).has("asks_for_free"):
        return None
    free, less, more = accelerator.free_at_start
    share = share_on(engine, accelerator, utilization)
    short = math.ceil(accelerator.usable_bytes * share) - free
    return short, more if short > 0 else less


def _of_rest(engine: Engine) -> bool:
    """True if the share is of what weights and reserve leave."""
    return engine.utilization_of == "memory_less_weights" or bool(trait(engine, "share_of_rest"))


def asked_memory(engine: Engine, total_bytes: int, utilization: float | None = None) -> int:
    """What an engine asks of a device for weights, reserve and pool together; None is its default share."""
    share = stated_share(engine, utilization)
    return total_bytes if _of_rest(engine) else math.ceil(total_bytes * share)


def pool_bytes(
    engine: Engine,
    total_bytes: int | Integers,
    weight_bytes: int | Integers,
    reserve_bytes: int | Integers = 0,
    utilization: float | None = None,
) -> int | Integers:
    """The cache pool; negative where nothing is left. Arrays broadcast.

    ``total_bytes``: memory that a process can use. ``weight_bytes``: weights on the device, as loaded. ``reserve_bytes``:
    activations, non-framework memory and graphs together. ``utilization``: share; None for the engine's default.
    """
    share = stated_share(engine, utilization)
    if _of_rest(engine):
        left = (total_bytes - weight_bytes - reserve_bytes) * share
        return math.floor(left) if isinstance(left, int | float) else xp.integers(xp.floor(left))
    taken = total_bytes * share
    whole = math.ceil(taken) if isinstance(taken, int | float) else xp.integers(xp.ceil(taken))
    return whole - weight_bytes - reserve_bytes


def share_for(engine: Engine, pool: int, weights: int, reserve: int, total: int) -> float | None:
    """The smallest share of a device's memory, in steps of 0.001, that leaves a pool; None if even 1 does not, or it is of other memory.

    ``pool``: the pool that is wanted, in bytes. ``weights``: weights as loaded. ``reserve``: what the engine
    keeps beside them. ``total``: memory that a process can use.
    """
    if engine.utilization_of == "memory_less_weights" or trait(engine, "share_before_loading"):
        return None
    if trait(engine, "share_of_rest"):
        free = total - weights - reserve
        return math.ceil(pool / free * 1000) / 1000 if 0 < pool <= free else None
    needed = kernel.utilization_for(pool, weights, reserve, total)
    return needed if needed <= 1 else None
