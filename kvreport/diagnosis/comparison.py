"""What a start-up log tells: its numbers beside our prediction, and what to change.

The log's own numbers come first. Where the model is known, the pool that the log states is laid out
with our block plan, which checks the engine's token and concurrency figures against the formula; where
the accelerator is known too, the pool itself is predicted. Nothing is guessed: what the log does not
state and the caller does not say stays unknown.
"""

from __future__ import annotations

from kvreport.accounting.capacity import concurrency, printed_tokens
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.weights import weight_bytes
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.diagnosis.advice import changes, shorter
from kvreport.diagnosis.findings import Comparison, Diagnosis
from kvreport.diagnosis.layout import Layout, lay_out, longest_of, pool_of, requests_that_fit
from kvreport.enginelog import Reading, read_log
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.estimation.request import resolve_model


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
    layout = lay_out(reading, record, known, device, tensor_parallel, kv, notes)
    pool = pool_of(reading)
    total = reading.whole("total_memory") or (device.usable_bytes if device else None)
    fits = requests_that_fit(reading, layout, pool)
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
        changes=tuple(changes(reading, layout, pool, total, fits)),
        shorter=tuple(shorter(reading, layout, pool)),
        linear=layout is None,
        notes=tuple(notes),
    )


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


def _compare(
    reading: Reading,
    model: Model,
    layout: Layout,
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
    longest = longest_of(reading)
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
    layout: Layout,
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
        context_tokens=longest_of(reading),
        weights=weights,
        kv=layout.kv.name,
        engine=layout.engine,
        utilization=reading.number("utilization"),
        max_batched_tokens=reading.whole("max_batched_tokens"),
        max_seqs=reading.whole("max_seqs"),
        eager=bool(reading.facts.get("eager")),
        sorts=bool(reading.facts.get("sorts")),
        catalog=known,
    )
    return [Comparison("kv_pool", stated, predicted.budget.kv_pool_bytes)]
