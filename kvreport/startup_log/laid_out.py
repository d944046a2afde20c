"""A pasted log as a start for the one judge: which release's rules, which flags, which printed figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvreport import words
from kvreport.accounting import kernel, parallel
from kvreport.accounting.allocation import plan_blocks
from kvreport.accounting.case import Case
from kvreport.accounting.deployment import Deployment, lay_out
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.extras import own_prediction_layer, with_draft
from kvreport.accounting.plan import BlockPlan, CacheSettings
from kvreport.accounting.state_types import with_state_type
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.startup_log.judge import Judgment, with_pool
from kvreport.startup_log.observed import static_share
from kvreport.startup_log.reading import Reading, longest_of, refused, started, tokens_of
from kvreport.startup_log.server_of_log import (
    adapters_of,
    drafted_tokens,
    engine_of,
    layout_of,
    of_class,
    own_drafts,
    replica_of,
    version_of,
    with_kernel,
)
from kvreport.startup_log.start import Figures, Flags, Start

TWO_BYTE_KV: Final = words.TWO_BYTE_KV

ITS_RELEASE: Final = "its release"
"""What a log may not state, and is then taken as the newest."""

POOL_AS_STATED: Final = ("tensorrt_llm",)
"""Engines whose pool is not predicted from a log: it lacks what their share is taken of."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The model under the log's flags, and with an FP8 cache instead."""

    deployment: Deployment  # What the trunk makes of the log's flags, or of the engine's defaults.
    fp8: BlockPlan | None  # The block plan with an FP8 cache; None where that is no change or not possible.

    @property
    def plan(self) -> BlockPlan:
        """The block plan under the log's flags."""
        return self.deployment.plan

    @property
    def engine(self) -> Engine:
        """The rules of the release that wrote the log."""
        return self.deployment.case.engine

    @property
    def whole(self) -> Case:
        """What was laid out: the whole model, where the deployment is one of its stages."""
        case = self.deployment.case
        return case if case.stage_of is None else replace(case, model=case.stage_of[0], stage_of=None)

    def of_pool(self, pool_bytes: int) -> Deployment:
        """The same with the pool that the log states."""
        return with_pool(self.deployment, pool_bytes)


def pasted_start(
    reading: Reading,
    model: Model,
    known: Catalog,
    devices: Sequence[Accelerator],
    tensor_parallel: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
    draft: Model | None = None,
) -> Start:
    """The model under the log's flags, with what the log printed.

    Args:
        reading: The log.
        model: The model that it started.
        known: Engines and formats.
        devices: The accelerator, or one for each rank where they differ; empty if it is not known.
        tensor_parallel: Devices of one replica, where the log does not say.
        weights: Weight format; None for the released format.
        kv: KV format, where the log does not say.
        draft: The draft model that SGLang loaded beside it, where that is known.

    Raises:
        InputError: If no rules are known for the log's engine, or other ranks than the log's are listed.
    """
    engine = with_kernel(reading, engine_of(reading, known))
    layout = layout_of(reading, tensor_parallel)
    if layout.whole_encoders and rules(engine).refuses(model, parallel.Layout(whole_encoders=True)):
        layout = replace(
            layout, whole_encoders=False
        )  # the engine divides the weights whatever the flag says
    if rules(engine).refuses(model, layout) is not None:
        layout = of_class(layout, model, engine)
    total, wsl = reading.whole("total_memory"), bool(reading.facts.get("wsl"))
    least = min((one.usable_bytes for one in devices), default=0)  # of several totals the least is read
    devices = [
        one.as_found(total, wsl=wsl) if total is None or one.usable_bytes == least else one for one in devices
    ]
    stated = kv or reading.text("kv_dtype")
    static = share_of(reading, model) if reading.engine == "sglang" else None
    served = with_state_type(model, reading.text("state_dtype"))
    drafted = drafted_tokens(reading, model, draft)
    if drafted:
        beside = own_prediction_layer(served) if own_drafts(reading, model) or draft is None else draft
        served = with_draft(served, beside).whole
    start = Start(
        known=known,
        engine=engine,
        model=served,
        accelerator=devices[0] if devices else None,
        replica=replica_of(devices, layout),
        flags=Flags(
            weight_format="released" if weights is None or weights.lower() == "released" else weights,
            kv_format=stored_as(stated),
            layout=layout,
            context_tokens=reading.whole("max_model_len") or reading.whole("concurrency_len"),
            max_batched_tokens=reading.whole("max_batched_tokens") or chunk_of(reading),
            max_seqs=_asked_at_once(reading),
            caches=CacheSettings(
                block_tokens=reading.whole("block_tokens"),
                prefix_caching=_caches(reading),
                draft_tokens=drafted,
                draft_in_model=drafted > 0,
                window_share=reading.number("window_share"),
                max_states=reading.whole("states_set"),
            ),
            utilization=static if static is not None else reading.number("utilization"),
            share_of_free=reading.engine == "sglang",
            eager=bool(reading.facts.get("eager")),
            sorts=True if reading.facts.get("sorts") else None,
            compiled=bool(reading.facts.get("compiled")),
            images=not reading.facts.get("text_only"),
            clips=not reading.facts.get("no_audio"),
            videos=not reading.facts.get("no_videos"),
            images_through=reading.text("images_through") or "",
            encodes_at_start=not reading.facts.get("no_encoding"),
            lora_slots=adapters_of(reading),
        ),
        printed=Figures(
            load=None if drafted else reading.whole("weights"),  # of the model alone
            pool=pool_of(reading, model),
            tokens=tokens_of(reading),
            concurrency=reading.number("concurrency"),
            needed=reading.whole("needed"),
            length=longest_of(reading),
            free=free_before(reading),
            refused=refused(reading),
        ),
        pool_unclear=_pool_unclear(reading, model, drafted=drafted > 0),
    )
    blocks = reading.whole("pool_blocks")
    return start if not blocks else _with_blocks(start, blocks)


def _with_blocks(start: Start, blocks: int) -> Start:
    """A start that was told its pool in blocks: its lines are of that pool, whatever memory is left.

    vLLM 0.33.0 ``v1/core/kv_cache_planning.py::get_kv_cache_configs``, as ``kvreport estimate`` follows the flag.
    """
    each = max(rank.plan.block_bytes for rank in lay_out(start.case()).ranks)
    printed = replace(start.printed, pool=blocks * each)
    return replace(start, printed=printed, pool_unclear=("a pool other than the configured blocks",))


def with_fp8(judgment: Judgment, known: Catalog) -> LaidOut | None:
    """What the log's flags make, and the block plan with an FP8 cache; None where nothing is laid out."""
    laid = judgment.deployment
    return None if laid is None else LaidOut(laid, _fp8(laid.case, known))


def free_before(reading: Reading) -> int | None:
    """What was free before SGLang loaded the model; with a draft model the line stands twice, and the sum is taken."""
    left, taken = reading.whole("after_load"), reading.whole("weights")
    if reading.facts.get("draft_weights") is not None and left is not None and taken is not None:
        return left + taken
    return reading.whole("before_load")


def chunk_of(reading: Reading) -> int | None:
    """Tokens of SGLang's prefill chunk; None where the log does not say, or prompts are not divided."""
    chunk = reading.whole("chunked_prefill")
    return chunk if reading.engine == "sglang" and chunk is not None and chunk > 0 else None


def _asked_at_once(reading: Reading) -> int | None:
    """Requests at once as they were asked for: SGLang prints what it made of them under the same name."""
    asked = [
        line.facts["max_seqs"]
        for line in reading.recognised
        if "max_seqs" in line.facts and "max_total_num_tokens=" not in line.text
    ]
    if reading.engine == "sglang":
        return int(asked[0]) if asked and not isinstance(asked[0], str) else None
    return reading.whole("max_seqs")


def stored_as(stated: str | None) -> str | None:
    """The catalog's name of a cache's stored type; ``auto`` stays, since a checkpoint may bring a type of its own."""
    return "bf16" if stated in TWO_BYTE_KV and stated != "auto" else stated


def share_of(reading: Reading, model: Model) -> float | None:
    """SGLang's share: as stated, else by what is left free behind the pools; None where its command leaves it out."""
    stated = reading.number("mem_fraction")
    if stated is not None or told_all(reading):
        return stated
    left, taken, pools = reading.whole("after_load"), reading.whole("weights"), pool_of(reading, model)
    if left is None or taken is None or pools is None or left + taken <= 0:
        return None
    share = static_share(left, left + taken, pools)
    return share if 0 < share < 1 else None


def told_all(reading: Reading) -> bool:
    """True if a log has the command that started SGLang, so that flags it does not name have their defaults."""
    return any(line.pattern in ("sglang_serve", "sglang_launch") for line in reading.recognised)


def _pool_unclear(reading: Reading, model: Model, *, drafted: bool) -> tuple[str, ...]:
    """What a prediction of the pool cannot do without: a wrong pool is worse than none."""
    if reading.engine in POOL_AS_STATED:
        return ("what its share is taken of",)
    if reading.engine == "sglang":
        return _sglang_unclear(reading, model, drafted=drafted)
    missing = []
    if reading.number("utilization") is None:
        missing.append("its share of memory")
    if version_of(reading) is None:
        missing.append(ITS_RELEASE)
    return tuple(missing)


def _sglang_unclear(reading: Reading, model: Model, *, drafted: bool) -> tuple[str, ...]:
    """What a prediction of SGLang's pool lacks: its command or resolved flags, and what a draft or a cap changes."""
    missing = []
    if share_of(reading, model) is None and not told_all(reading):
        missing.append("its share of memory")
    drafts = reading.facts.get("draft_weights") is not None or reading.facts.get("speculative")
    if drafts and not drafted:
        missing.append("what drafts take")
    if reading.whole("most_tokens") is not None:
        missing.append("a pool without a cap")
    return tuple(missing)


def _several_pools(model: Model) -> bool:
    """True if some layers keep a window or a state, for which SGLang has further pools."""
    return any(
        cache.kind in ("sliding", "chunked", "state") for group in model.layers for cache in group.caches
    )


def _fp8(case: Case, known: Catalog) -> BlockPlan | None:
    """The plan with an FP8 cache, or None where that is no change or not possible."""
    if case.kv_format is not None and case.kv_format.bits <= 8:
        return None
    try:
        return plan_blocks(replace(case, kv_format=known.kv_format("fp8")))
    except InputError:
        return None


def pool_of(reading: Reading, model: Model | None = None) -> int | None:
    """Bytes of the pool on a device, stated as one or as keys and values.

    SGLang prints each of several pools by itself; all of them are what is less free after than before.
    """
    if reading.engine == "sglang" and reading.facts.get("draft_weights") is not None:
        return None  # the draft's pool is printed by the same lines
    if reading.facts.get("pool_blocks"):
        return None  # what memory would hold is printed, and the number of blocks that was told is taken
    if model is not None and reading.engine == "sglang" and _several_pools(model):
        before, after = reading.whole("after_load"), reading.whole("after_pool")
        return before - after if before is not None and after is not None else None
    pool = reading.whole("kv_pool")
    keys, values = reading.whole("key_bytes"), reading.whole("value_bytes")
    if pool is None and keys is not None and values is not None:
        return keys + values
    return pool


def requests_that_fit(reading: Reading, laid: LaidOut | None, pool: int | None) -> float | None:
    """Requests of the longest length: stated, else from the refusal, our plan, or tokens; None where nothing tells.

    The plan comes before the tokens: up to vLLM 0.20.0 the line counts blocks, of which windows and states need fewer
    than tokens over length. vLLM prints the line only after the check that one longest request fits
    (``v1/core/kv_cache_utils.py::check_enough_kv_cache_memory``), so fewer tokens than that are no refusal.
    """
    stated, longest = reading.number("concurrency"), longest_of(reading)
    if stated is not None:
        return stated
    if pool is not None and pool <= 0:
        return 0.0
    needed = reading.whole("needed")
    if needed and pool is not None:
        return max(pool, 0) / needed
    if not longest:
        return None
    checked = started(reading) and reading.engine in (None, "vllm")
    if laid is not None and pool is not None and plan_agrees(reading, laid, pool):
        planned = float(laid.of_pool(pool).concurrency(longest))
        if planned >= 1 or not checked:
            return planned
    tokens = tokens_of(reading) or reading.whole("storable")
    if tokens is None or (checked and tokens < longest):
        return None
    return tokens / longest


def plan_agrees(reading: Reading, laid: LaidOut, pool: int) -> bool:
    """Whether our plan gives the log's own figures: the bytes of a refused request, and requests or else tokens.

    True where the log has none of them.
    """
    stated, tokens, longest = reading.number("concurrency"), tokens_of(reading), longest_of(reading)
    needed = reading.number("needed")
    if needed and longest:
        asked = laid.deployment.start_plan or laid.plan
        if not kernel.agrees(float(asked.profile.request_bytes(longest)), needed):
            return False
    if not longest or not (stated or tokens) or pool <= 0:
        return True
    filled = laid.of_pool(pool)
    if stated:
        return kernel.agrees(float(filled.concurrency(longest)), stated)
    return kernel.agrees(float(filled.printed_tokens(longest)), float(tokens or 1))


def _caches(reading: Reading) -> bool | None:
    """Whether prefixes are cached, where the log tells."""
    if reading.facts.get("no_prefix_caching"):
        return False
    return True if reading.facts.get("caches_prefixes") else None
