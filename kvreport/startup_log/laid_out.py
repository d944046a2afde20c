"""A log's flags as a case for the trunk: which release's rules, which cache type, which scheduler sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from kvreport import words
from kvreport.accounting import parallel
from kvreport.accounting.deployment import Case, Deployment, lay_out, plan_blocks
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine, engine_for_version, version_number
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.startup_log.reading import Reading
from kvreport.startup_log.release import release_of_places

TWO_BYTE_KV: Final = words.TWO_BYTE_KV


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The model under the log's flags, and with an FP8 cache instead.

    Attributes:
        deployment: What the trunk makes of the log's flags, or of the engine's defaults.
        fp8: The block plan with an FP8 cache; None where that is no change or not possible.
    """

    deployment: Deployment
    fp8: BlockPlan | None

    @property
    def plan(self) -> BlockPlan:
        """The block plan under the log's flags."""
        return self.deployment.plan

    @property
    def engine(self) -> Engine:
        """The rules of the release that wrote the log."""
        return self.deployment.case.engine

    def of_pool(self, pool_bytes: int) -> Deployment:
        """The same with the pool that the log states."""
        return replace(self.deployment, pool_bytes=pool_bytes)


def log_case(
    reading: Reading,
    model: Model | None,
    known: Catalogue,
    device: Accelerator | None,
    tensor_parallel: int | None,
    weights: str | None,
    kv: str | None,
    notes: list[str],
) -> LaidOut | None:
    """The model under the log's flags; None with a note where nothing can be laid out."""
    if model is None:
        return None
    engine = _engine(reading, known)
    ranks = tensor_parallel or reading.whole("tensor_parallel") or 1
    if tensor_parallel is None and reading.whole("tensor_parallel") is None:
        notes.append("The log does not state a tensor-parallel size; one GPU is taken.")
    longest = reading.whole("max_model_len") or reading.whole("concurrency_len")
    tokens, rows = rules(engine).scheduler(
        device,
        max_batched_tokens=reading.whole("max_batched_tokens"),
        max_seqs=reading.whole("max_seqs"),
        context_tokens=longest,
        images=any(row.component == "vision" for row in model.weights),
    )
    form = None if weights is None or weights.lower() == "released" else known.weight_format(weights)
    try:
        case = Case(
            model=model,
            engine=engine,
            accelerators=() if device is None else (device,),
            weight_formats=(form,),
            formats=known.weight_formats,
            kv_format=_kv_format(model, engine, device, known, kv or reading.text("kv_dtype")),
            layout=parallel.Layout(
                tensor=ranks,
                data=reading.whole("data_parallel") or 1,
                expert=bool(reading.facts.get("expert_parallel")),
                decode_context=reading.whole("context_parallel") or 1,
            ),
            serving=Serving(
                max_batched_tokens=tokens,
                max_seqs=rows,
                block_tokens=reading.whole("block_tokens"),
                prefix_caching=False if reading.facts.get("no_prefix_caching") else None,
                window_share=reading.number("window_share"),
            ),
            utilization=reading.number("utilization"),
            eager=bool(reading.facts.get("eager")),
            sorts=bool(reading.facts.get("sorts")),
            context_tokens=longest,
        )
        return LaidOut(lay_out(case), _fp8(case, known))
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
    version = version_of(reading) or ""
    if reading.engine == "tensorrt_llm":
        return known.engine("tensorrt-llm")
    if reading.engine == "sglang":
        named = engine_for_version(known.engines.values(), "sglang", version or None)
        return named or known.engine("sglang")
    stated = re.match(r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)", version)
    if stated is not None:
        try:
            return rules(known.engine(f"vllm@{stated[1]}")).at_release(version)
        except InputError:
            pass
    return known.engine("vllm")


def version_of(reading: Reading) -> str | None:
    """The version that wrote a log: as it says, else as the places of its lines tell; None if neither does."""
    stated = reading.text("engine_version")
    return stated if stated is not None and version_number(stated) else release_of_places(reading.places)


def _kv_format(
    model: Model, engine: Engine, device: Accelerator | None, known: Catalogue, stated: str | None
) -> KvFormat:
    if stated is None or stated == "auto":
        return known.kv_format(rules(engine).default_kv_format(model, device) or "bf16")
    return known.kv_format("bf16" if stated in TWO_BYTE_KV else stated)


def _fp8(case: Case, known: Catalogue) -> BlockPlan | None:
    """The plan with an FP8 cache, or None where that is no change or not possible."""
    if case.kv_format is None or case.kv_format.bits <= 8:
        return None
    try:
        return plan_blocks(replace(case, kv_format=known.kv_format("fp8")))
    except InputError:
        return None


def pool_of(reading: Reading, laid: LaidOut | None = None) -> int | None:
    """Bytes of the pool on a device, stated as one or as keys and values.

    SGLang prints each of several pools by itself; all of them are what is less free after than before.
    """
    if laid is not None and reading.engine == "sglang" and _several_pools(laid.deployment.case.model):
        before, after = reading.whole("after_load"), reading.whole("after_pool")
        return before - after if before is not None and after is not None else None
    pool = reading.whole("kv_pool")
    keys, values = reading.whole("key_bytes"), reading.whole("value_bytes")
    if pool is None and keys is not None and values is not None:
        return keys + values
    return pool


def tokens_of(reading: Reading) -> int | None:
    """Tokens that the log says the pool holds; of several pools those of full attention."""
    return reading.whole("full_tokens") or reading.whole("kv_tokens")


def longest_of(reading: Reading) -> int | None:
    """Tokens of the longest request that the log speaks of, or None."""
    return reading.whole("concurrency_len") or reading.whole("max_model_len")


def requests_that_fit(reading: Reading, laid: LaidOut | None, pool: int | None) -> float | None:
    """Requests of the longest length: stated, else from the refusal, tokens, or our plan."""
    stated, longest = reading.number("concurrency"), longest_of(reading)
    if stated is not None:
        return stated
    if pool is not None and pool <= 0:
        return 0.0
    needed, tokens = reading.whole("needed"), tokens_of(reading) or reading.whole("storable")
    if needed and pool is not None:
        return max(pool, 0) / needed
    if longest and tokens is not None:
        return tokens / longest
    if longest and laid is not None and pool is not None:
        return float(laid.of_pool(pool).concurrency(longest))
    return None
