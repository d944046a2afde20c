"""What a start-up log tells: its numbers beside our prediction, and what to change.

The log's own numbers come first. Where the model is known, the pool that the log states is laid out
with our block plan, which checks the engine's token and concurrency figures against the formula; where
the accelerator is known too, the pool itself is predicted. Nothing is guessed: what the log does not
state and the caller does not say stays unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from kvreport.accounting.blocks import BlockPlan, Serving, default_kv_format, plan
from kvreport.accounting.capacity import concurrency, longest_context, printed_tokens, users
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.weights import weight_bytes
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.enginelog import FACTS, Reading, read_log, show
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.estimation.request import resolve_model
from kvreport.units import GIB

RAISED_UTILIZATION: Final = 0.95
"""The highest share of memory that leaves a little for others on the device."""

COMFORTABLE_SPARE: Final = 8 * GIB
"""Free memory of a running SGLang server beyond which its own guide says to raise the fraction."""

_TWO_BYTE_KV: Final = frozenset({"auto", "bfloat16", "float16", "bf16", "fp16"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number of the log beside ours.

    Attributes:
        fact: Name of the fact.
        stated: What the log states.
        predicted: What we compute.
    """

    fact: str
    stated: float
    predicted: float

    @property
    def difference(self) -> float:
        """How far the prediction is from the log, as a share of the log's number."""
        return self.predicted / self.stated - 1 if self.stated else float("inf")

    def line(self) -> str:
        """Print it."""
        apart = f"{self.difference:+.1%}"
        if FACTS[self.fact].unit == "bytes":
            apart = f"{(self.predicted - self.stated) / GIB:+.2f} GiB, {apart}"
        return (
            f"{FACTS[self.fact].label}: log {_shown(self.fact, self.stated)}, we compute "
            f"{_shown(self.fact, self.predicted)} ({apart})"
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change, and what it would bring.

    Attributes:
        name: ``max_model_len``, ``kv_dtype``, ``utilization``, ``mem_fraction`` or ``max_seqs``.
        value: What to set it to.
        concurrency: Requests of the longest length that would fit then, or None.
    """

    name: str
    value: float | str
    concurrency: float | None = None

    def line(self) -> str:
        """Print it."""
        gain = "" if self.concurrency is None else f": {self.concurrency:.2f}x"
        value = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value}"
        return _CHANGES[self.name].format(value=value) + gain


_CHANGES: Final = {
    "max_model_len": "lower max-model-len to {value}",
    "kv_dtype": "store the cache as {value} (--kv-cache-dtype {value})",
    "utilization": "raise gpu-memory-utilization to {value}",
    "mem_fraction": "raise mem-fraction-static to {value}: the server has memory to spare",
    "max_seqs": "lower max-num-seqs to {value}: no more fit at the longest length, and the rest wait",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A log, understood.

    Attributes:
        reading: Recognised lines and facts.
        concurrency: Requests of the longest length that fit, stated or derived; None if unknown.
        comparisons: Numbers of the log beside ours.
        changes: What to change.
        shorter: (context, requests): what fits if requests are shorter than the longest allowed.
        linear: True if shorter requests were taken to cost in proportion, for want of the model.
        notes: What is missing for more.
    """

    reading: Reading
    concurrency: float | None
    comparisons: tuple[Comparison, ...] = ()
    changes: tuple[Change, ...] = ()
    shorter: tuple[tuple[int, int], ...] = ()
    linear: bool = True
    notes: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        """The conclusion in one sentence."""
        longest = self.reading.whole("concurrency_len") or self.reading.whole("max_model_len")
        if self.concurrency is None or longest is None:
            return "The log does not say how many requests fit."
        if self.concurrency < 1:
            options = "; or ".join(change.line() for change in self.changes)
            return f"{self.concurrency:.2f}x: one request of {longest:,} tokens does not fit. " + (
                f"{options[0].upper()}{options[1:]}." if options else "Shorten it, or add memory."
            )
        return (
            f"{self.concurrency:.2f}x: {int(self.concurrency):,} requests of {longest:,} tokens fit at once."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport log --format json`` prints."""
        return {
            "engine": self.reading.engine,
            "headline": self.headline,
            "facts": dict(sorted(self.reading.facts.items())),
            "recognised": [
                {"line": found.number, "pattern": found.pattern, "says": found.says, "text": found.text}
                for found in self.reading.recognised
            ],
            "not_understood": [{"line": number, "text": text} for number, text in self.reading.unknown],
            "concurrency": self.concurrency,
            "comparisons": [
                {"fact": one.fact, "stated": one.stated, "predicted": one.predicted}
                for one in self.comparisons
            ],
            "changes": [
                {"change": one.name, "value": one.value, "concurrency": one.concurrency}
                for one in self.changes
            ],
            "shorter_requests": [{"context_tokens": tokens, "requests": fit} for tokens, fit in self.shorter],
            "shorter_requests_linear": self.linear,
            "notes": list(self.notes),
        }


def diagnose(
    text: str,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tensor_parallel: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
    catalog: Catalogue | None = None,
) -> Diagnosis:
    """Read a log and compare it.

    Args:
        text: The log.
        model: Model, where the log does not name one that the catalogue knows.
        gpu: Accelerator; logs do not name it.
        tensor_parallel: Devices of one replica, where the log does not say.
        weights: Weight format; None for as released.
        kv: KV format, where the log does not say.
        catalog: Where names are looked up; None for the public catalogue.

    Raises:
        InputError: If the log is empty or too large, or a name given is unknown.
    """
    reading = read_log(text)
    known = open_catalogue() if catalog is None else catalog
    notes: list[str] = []
    record = _model(reading, model, known, notes)
    device = known.accelerator(gpu) if gpu else None
    layout = _layout(reading, record, known, device, tensor_parallel, kv, notes)
    pool = _pool(reading)
    total = reading.whole("total_memory") or (device.usable_bytes if device else None)
    fits = _concurrency(reading, layout, pool)
    comparisons: list[Comparison] = []
    if record is not None and layout is not None:
        comparisons += _compare(reading, record, layout, known, device, weights, pool)
        if device is not None and reading.engine != "sglang":
            comparisons += _compare_pool(reading, record, layout, known, device, weights)
    if device is None:
        notes.append("Say which GPU it ran on, and the pool itself is predicted, too.")
    elif layout is not None and reading.engine != "sglang" and reading.number("utilization") is None:
        notes.append(
            f"The log does not state its utilisation; {layout.engine.utilization:g}, the default of "
            f"{layout.engine.label}, is taken for the pool."
        )
    return Diagnosis(
        reading=reading,
        concurrency=fits,
        comparisons=tuple(comparisons),
        changes=tuple(_changes(reading, layout, pool, total, fits)),
        shorter=tuple(_shorter(reading, layout, pool)),
        linear=layout is None,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """The model's block plan under the log's flags, and with an FP8 cache instead."""

    engine: Engine
    ranks: int
    kv: KvFormat
    serving: Serving
    plan: BlockPlan
    fp8: BlockPlan | None


def _model(reading: Reading, given: str | None, known: Catalogue, notes: list[str]) -> Model | None:
    if given is not None:
        return resolve_model(given, known)
    stated = reading.text("model")
    if stated is None:
        notes.append("The log does not name its model; say which it is, and its numbers are checked.")
        return None
    try:
        return known.model(stated)
    except InputError:
        notes.append(f"The catalogue does not know {stated}; name the model that it is a copy of.")
        return None


def _layout(
    reading: Reading,
    model: Model | None,
    known: Catalogue,
    device: Accelerator | None,
    tensor_parallel: int | None,
    kv: str | None,
    notes: list[str],
) -> _Layout | None:
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
        return _Layout(
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
    return known.kv_format("bf16" if stated in _TWO_BYTE_KV else stated)


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


def _pool(reading: Reading) -> int | None:
    """Bytes of the pool on a device, stated as one or as keys and values."""
    pool = reading.whole("kv_pool")
    keys, values = reading.whole("key_bytes"), reading.whole("value_bytes")
    if pool is None and keys is not None and values is not None:
        return keys + values
    return pool


def _longest(reading: Reading) -> int | None:
    return reading.whole("concurrency_len") or reading.whole("max_model_len")


def _concurrency(reading: Reading, layout: _Layout | None, pool: int | None) -> float | None:
    """Requests of the longest length: stated, else from the refusal, tokens, or our plan."""
    stated, longest = reading.number("concurrency"), _longest(reading)
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


def _compare(
    reading: Reading,
    model: Model,
    layout: _Layout,
    known: Catalogue,
    device: Accelerator | None,
    weights: str | None,
    pool: int | None,
) -> list[Comparison]:
    found = []
    stated = reading.whole("weights")
    if stated:
        form = None if weights is None or weights.lower() == "released" else known.weight_format(weights)
        size = weight_bytes(model, form, known.weight_formats, layout.ranks)
        if device is not None:
            formats = known.weight_formats
            size += sum(load_overhead(model, layout.engine, form, formats, device, layout.ranks).values())
        found.append(Comparison("weights", stated, size))
    longest = _longest(reading)
    if pool is None or pool <= 0 or not longest:
        return found
    fit = float(concurrency(pool, layout.plan, longest))
    if reading.number("concurrency"):
        found.append(Comparison("concurrency", reading.number("concurrency") or 0.0, fit))
    if reading.number("kv_tokens"):
        tokens = int(printed_tokens(pool, layout.plan, longest, layout.engine.token_line))
        found.append(Comparison("kv_tokens", reading.number("kv_tokens") or 0.0, tokens))
    if reading.number("needed"):
        needed = int(layout.plan.profile.request_bytes(longest))
        found.append(Comparison("needed", reading.number("needed") or 0.0, needed))
    return found


def _compare_pool(
    reading: Reading,
    model: Model,
    layout: _Layout,
    known: Catalogue,
    device: Accelerator,
    weights: str | None,
) -> list[Comparison]:
    stated = reading.whole("kv_pool")
    if not stated or stated < 0:
        return []
    predicted = estimate(
        model,
        gpu=device,
        tensor_parallel=layout.ranks,
        context_tokens=_longest(reading),
        weights=weights,
        kv=layout.kv.name,
        engine=layout.engine,
        utilization=reading.number("utilization"),
        max_batched_tokens=reading.whole("max_batched_tokens"),
        max_seqs=reading.whole("max_seqs"),
        eager=bool(reading.facts.get("eager")),
        catalog=known,
    )
    return [Comparison("kv_pool", stated, predicted.budget.kv_pool_bytes)]


def _changes(
    reading: Reading, layout: _Layout | None, pool: int | None, total: int | None, fits: float | None
) -> list[Change]:
    longest = _longest(reading)
    found: list[Change] = []
    if fits is not None and longest is not None and fits < 1:
        shorter = _fitting_length(reading, layout, pool, longest)
        if shorter:
            found.append(Change("max_model_len", shorter, 1.0))
        halved = _fp8_concurrency(reading, layout, longest, fits)
        if halved is not None:
            found.append(Change("kv_dtype", "fp8", halved))
        share = reading.number("utilization")
        if share is not None and share < RAISED_UTILIZATION and total and pool and pool > 0:
            more = pool + (RAISED_UTILIZATION - share) * total
            found.append(Change("utilization", RAISED_UTILIZATION, fits * more / pool))
    at_once = reading.whole("max_seqs")
    if fits is not None and at_once is not None and 1 <= fits < at_once and reading.engine == "vllm":
        found.append(Change("max_seqs", int(fits)))
    spare, before, fraction = (
        reading.number("spare_memory"),
        reading.number("before_load"),
        reading.number("mem_fraction"),
    )
    if spare is not None and before and fraction is not None and spare > COMFORTABLE_SPARE:
        raised = int((fraction + (spare - COMFORTABLE_SPARE) / before) * 1000) / 1000
        found.append(Change("mem_fraction", min(raised, RAISED_UTILIZATION)))
    return found


def _fitting_length(reading: Reading, layout: _Layout | None, pool: int | None, longest: int) -> int | None:
    """The longest request that fits: the engine's word, our plan's, or the tokens it can store."""
    stated = reading.whole("estimated_len")
    if stated is not None:
        return stated
    if layout is not None and pool is not None and pool > 0:
        return int(longest_context(pool, layout.plan, longest)) or None
    return reading.whole("storable") or reading.whole("kv_tokens")


def _fp8_concurrency(reading: Reading, layout: _Layout | None, longest: int, fits: float) -> float | None:
    if layout is not None:
        if layout.fp8 is None:
            return None
        own, other = (int(p.profile.request_bytes(longest)) for p in (layout.plan, layout.fp8))
        return fits * own / other
    # Without the model: all of the cache halves, which is the most that there can be.
    stated = reading.text("kv_dtype")
    return 2 * fits if stated is None or stated in _TWO_BYTE_KV else None


def _shorter(reading: Reading, layout: _Layout | None, pool: int | None) -> list[tuple[int, int]]:
    """Requests that fit at the longest length and at a half, a quarter and an eighth of it."""
    longest, tokens = _longest(reading), reading.whole("kv_tokens")
    if not longest:
        return []
    lengths = [length for length in (longest, longest // 2, longest // 4, longest // 8) if length >= 1]
    if layout is not None and pool is not None and pool > 0:
        return [(length, int(users(pool, layout.plan, length))) for length in lengths]
    return [] if tokens is None else [(length, tokens // length) for length in lengths]


def _shown(fact: str, value: float) -> str:
    whole = FACTS[fact].unit in ("bytes", "tokens", "number")
    return show(fact, int(value) if whole else round(value, 2))
