"""A log's flags as a block plan: which rules, which cache type, how a request and the pool are laid out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvreport.accounting.blocks import BlockPlan, Serving, default_kv_format, plan
from kvreport.accounting.capacity import concurrency
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.enginelog import Reading
from kvreport.errors import InputError

TWO_BYTE_KV: Final = frozenset({"auto", "bfloat16", "float16", "bf16", "fp16"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The model's block plan under the log's flags, and with an FP8 cache instead.

    Attributes:
        engine: The rules of the release that wrote the log.
        ranks: Devices of one copy.
        kv: How the cache is stored.
        serving: The log's flags, or the engine's defaults.
        plan: The block plan.
        fp8: The same with an FP8 cache; None where that is no change or not possible.
    """

    engine: Engine
    ranks: int
    kv: KvFormat
    serving: Serving
    plan: BlockPlan
    fp8: BlockPlan | None


def lay_out(
    reading: Reading,
    model: Model | None,
    known: Catalogue,
    device: Accelerator | None,
    tensor_parallel: int | None,
    kv: str | None,
    notes: list[str],
) -> Layout | None:
    """The model's block plan under the log's flags; None with a note where there can be none."""
    if model is None:
        return None
    if reading.engine == "sglang" and _several_pools(model):
        notes.append("SGLang keeps windows and states in pools of their own; its tokens are taken as stated.")
        return None
    engine = _engine(reading, known)
    ranks = tensor_parallel or reading.whole("tensor_parallel") or 1
    if tensor_parallel is None and reading.whole("tensor_parallel") is None:
        notes.append("The log does not state a tensor-parallel size; one GPU is taken.")
    default = engine.device_class(device.id, device.usable_bytes) if device else engine.device_classes[-1]
    serving = Serving(
        max_batched_tokens=reading.whole("max_batched_tokens") or default.max_batched_tokens,
        max_seqs=reading.whole("max_seqs") or default.max_seqs,
        block_tokens=reading.whole("block_tokens"),
        context_parallel=reading.whole("context_parallel") or 1,
    )
    try:
        form = _kv_format(model, engine, device, known, kv or reading.text("kv_dtype"))
        return Layout(
            engine,
            ranks,
            form,
            serving,
            _plan(model, engine, serving, form, ranks, device),
            _fp8(model, engine, serving, known, form, ranks, device),
        )
    except InputError as error:
        notes.append(f"No block plan: {error}.")
        return None


def _several_pools(model: Model) -> bool:
    """True if some layers keep a window or a state, for which SGLang has further pools."""
    return any(
        cache.kind in ("sliding", "chunked", "state") for group in model.layers for cache in group.caches
    )


def _engine(reading: Reading, known: Catalogue) -> Engine:
    """The rules of the version that wrote the log; the newest where it does not say."""
    if reading.engine == "sglang":
        return known.engine("sglang")
    stated = re.match(r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)", reading.text("engine_version") or "")
    if stated is not None:
        try:
            return known.engine(f"vllm@{stated[1]}")
        except InputError:
            pass
    return known.engine("vllm")


def _kv_format(
    model: Model, engine: Engine, device: Accelerator | None, known: Catalogue, stated: str | None
) -> KvFormat:
    if stated is None or stated == "auto":
        return known.kv_format(default_kv_format(model, engine, device) or "bf16")
    return known.kv_format("bf16" if stated in TWO_BYTE_KV else stated)


def _plan(
    model: Model, engine: Engine, serving: Serving, form: KvFormat, ranks: int, device: Accelerator | None
) -> BlockPlan:
    return plan(model, engine, serving=serving, kv_format=form, tensor_parallel=ranks, accelerator=device)


def _fp8(
    model: Model,
    engine: Engine,
    serving: Serving,
    known: Catalogue,
    form: KvFormat,
    ranks: int,
    device: Accelerator | None,
) -> BlockPlan | None:
    """The plan with an FP8 cache, or None where that is no change or not possible."""
    if form.bits <= 8:
        return None
    try:
        return _plan(model, engine, serving, known.kv_format("fp8"), ranks, device)
    except InputError:
        return None


def pool_of(reading: Reading) -> int | None:
    """Bytes of the pool on a device, stated as one or as keys and values."""
    pool = reading.whole("kv_pool")
    keys, values = reading.whole("key_bytes"), reading.whole("value_bytes")
    if pool is None and keys is not None and values is not None:
        return keys + values
    return pool


def longest_of(reading: Reading) -> int | None:
    """Tokens of the longest request that the log speaks of, or None."""
    return reading.whole("concurrency_len") or reading.whole("max_model_len")


def requests_that_fit(reading: Reading, layout: Layout | None, pool: int | None) -> float | None:
    """Requests of the longest length: stated, else from the refusal, tokens, or our plan."""
    stated, longest = reading.number("concurrency"), longest_of(reading)
    if stated is not None:
        return stated
    needed, tokens = reading.whole("needed"), reading.whole("kv_tokens") or reading.whole("storable")
    if needed and pool is not None:
        return max(pool, 0) / needed
    if longest and tokens is not None:
        return tokens / longest
    if longest and layout is not None and pool is not None:
        return float(concurrency(pool, layout.plan, longest))
    return None
