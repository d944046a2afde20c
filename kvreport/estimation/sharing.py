"""What else holds memory of the GPUs: other processes, and further engines of the kind that is asked about.

``assumed`` collects what an answer takes for granted.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from kvreport.accounting.shares import start_shortage
from kvreport.catalog.accelerator import CONTEXT_BAND, CONTEXT_BYTES, Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError
from kvreport.estimation.hardware import parsed
from kvreport.query import Query
from kvreport.units import gib, parse_bytes

_HUNDREDTHS: Final = 100


def with_others(
    devices: tuple[Accelerator, ...], query: Query, engine: Engine, assumed: list[str]
) -> tuple[tuple[Accelerator, ...], int, Query]:
    """The devices with what others leave free at start, the bytes that others hold of each, and the question with every engine's share.

    Raises:
        InputError: If others hold all that is free, or the engine takes no share of all memory.
    """
    held = 0 if query.held_by_others is None else parsed("held-by-others", parse_bytes, query.held_by_others)
    if held < 0:
        raise InputError(f"held-by-others: found {held:,} bytes; allowed: 0 or more")
    band, others = 0, query.engines_per_gpu - 1
    if others:
        share = _share(devices, query, engine, held)
        each = math.ceil(min(one.usable_bytes for one in devices) * share) + CONTEXT_BYTES
        query = replace(query, utilization=share)
        held, band = held + others * each, others * CONTEXT_BAND
        assumed.append(
            f"{query.engines_per_gpu} engines on each GPU: the answer is that of one, started last; each of the others "
            f"holds {gib(each)} GiB, a share of {share:g} and a process's context"
        )
    if not held:
        return devices, 0, query
    return tuple(one.with_held(held, band) for one in devices), held, query


def _share(devices: tuple[Accelerator, ...], query: Query, engine: Engine, held: int) -> float:
    """The share of each engine: as given, else the whole hundredths that are surely free for the last of them.

    Raises:
        InputError: If shares are not of all memory, or the pool was given by hand.
    """
    named = f"engines-per-gpu: found {query.engines_per_gpu}"
    if start_shortage(engine, devices[0], 1) is None:
        raise InputError(
            f"{named} for {engine.label}; allowed with vLLM, whose share is of all memory, or --held-by-others with "
            "the memory of the other engine"
        )
    if query.kv_pool is not None or query.kv_pool_blocks is not None:
        raise InputError(
            f"{named} with a KV pool given by hand; allowed: a share ({flag_names('vllm')['utilization']}), or --held-by-others with "
            "the memory of the other engine"
        )
    if query.utilization is not None:
        return query.utilization
    count, least = query.engines_per_gpu, _HUNDREDTHS
    for one in devices:
        free, less, _ = one.free_at_start
        room = free - less - held - (count - 1) * (CONTEXT_BYTES + CONTEXT_BAND)
        least = min(least, room * _HUNDREDTHS // (count * one.usable_bytes))
    if least < 1:
        raise InputError(
            f"{named}; allowed: fewer, because less than 0.01 of {devices[0].name} is left for each of them"
        )
    return least / _HUNDREDTHS
