"""Fit what no source states of vLLM's reserve on the published start-up logs, and measure what it is worth.

    python scripts/fit_reserve.py [--write]

Everything that a release's source tells is counted (:mod:`kvreport.accounting.engines.vllm.profiling`). What
is left is five constants, shared by all releases: memory outside the framework on one device, what
links to other ranks add up to 0.22, what a device that shares its memory with a CPU adds, and bytes of a captured graph per
layer, by model runner. They are chosen by Huber's robust regression on

    utilization * memory - weights - pool - counted activations,

of every log (half the weight for those whose flags are not all stated), and on each part that a log prints
by itself.

A fit flatters itself, so the figures that are published are of sources left out, and of logs that state all flags: all logs of one source
(one page, else one day and machine) are left out in turn, the constants fitted without them, and those logs predicted
end to end. The error band is the 80th percentile of errors at first sight, by kind of start (a text model, one with an encoder,
experts on several ranks, drafts, pipeline stages), and of all kinds on devices that share memory with a CPU or are not
NVIDIA's. Only found logs count that were recorded before any rule knew of them, whether they state all flags or not: rules
written with a log in view fit it too well. Refused starts do not count. A kind of fewer than ten sources is a tenth wider than
the widest other, and one of fewer than twenty takes the conformal quantile. In constants and bands no source weighs more than
five logs. The band is tested on sources that it was calibrated without. Intervals of the constants come from drawing sources
with replacement.

SGLang has no fitted constants, and few logs. Its band is calibrated the same way, on first sights alone, by kind of start: one rank or
several, apart for models that draft or have weights of four bits, and memory shared with a CPU. Each kind has the conformal
quantile of its logs, and a kind of n sources, fewer than ten, one n-th more. On several ranks an error counts by the root of the
device's memory. Measured on nine sources, from 24 to 288 GB: the logarithms of errors spread by 1.67 in bytes, by 1.54 per root
and by 1.53 per byte of memory. So a share of the memory describes them no better than the root. What the band holds by further
traits of starts is published with it.

``--write`` puts constants and band into ``data/engines/vllm/rules.yaml`` and the figures into
``data/left_out.yaml``, which the evidence pages read; the test compares both with a new fit.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from kvreport.accounting.allocation import allocate
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang.rules import BANDS as SGLANG_BANDS
from kvreport.accounting.engines.sglang.rules import band_kind as sglang_band_kind
from kvreport.accounting.engines.sglang.rules import grown
from kvreport.accounting.engines.step import constant
from kvreport.accounting.engines.vllm.profiling import Shape, graph_layers, shared_units
from kvreport.accounting.engines.vllm.reserve import (
    BANDS,
    band_kind,
    charges_handles,
    device_class,
    graph_constant,
    keeps_partial_results,
    less_on_hopper,
    multicasts,
    own_expert_kernels,
    ranks_in_band,
    runs_second,
)
from kvreport.accounting.kernel import LARGEST_CAPTURE, graphs_up_to
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.first_predictions import FirstSeen
from kvreport.catalog.load import Catalog, load_catalog
from kvreport.catalog.observation import Observation, load_observations
from kvreport.catalog.release import engine_for_version, release_of, version_number
from kvreport.errors import InputError
from kvreport.evidence.validation import engine_of
from kvreport.resources import data_dir
from kvreport.startup_log.judge import diagnose_start
from kvreport.startup_log.observed import device_of, find_model, published_start, share_taken
from kvreport.startup_log.start import Comparison, Start
from kvreport.units import GIB

CONSTANTS = (
    "non_framework_bytes",
    "non_framework_rank_bytes",
    "unified_bytes",
    "graph_bytes_per_layer",
    "graph_bytes_per_layer_second",
)
FLOOR_BYTES = GIB
"""A band is a share of the reserve plus this much, so that small reserves have one too."""

COVERAGE = 0.8
STAGES = "stages"
"""The class of pipeline stages, whatever their device. Most do not sample, which hides a forward pass's error."""

APART = ("other", "unified")
"""Classes of devices with a band of their own, for all kinds of start."""

LEAST_IN_CLASS = 10
"""Sources below which a kind of start or class of devices takes the wider of its own band and the widest."""

MANY_SOURCES = 20
"""Sources from which a kind's plain quantile stands for that of further sources; below, its band is the conformal one."""

ASSUMED_WEIGHT = 0.5
"""What a log weighs whose source does not state all flags, against one whose does."""

FORK = "fork"
"""What a log needs whose engine was changed: it counts as an error, and tells nothing of a release's constants."""

DRAWS = 200

FEW = 1.1
"""Kinds of starts with few sources are wider than the widest other by this: three or four logs have no conformal band."""

MOST_OF_A_SOURCE: Final = 5
"""Logs that a source weighs in constants and bands at most: many starts of one machine tell little of others."""

OF_POOLS = {
    "wren-015": -0.276,
    "wren-016": -0.133,
    "plover-007": -0.0347,
    "plover-028": -0.0054,
    "siskin-076": -0.23787,
}
"""Errors of the pool at first sight, of logs whose tokens were missed for another reason: a line of tokens that was taken to count
another group's blocks (45 times too many), a cache's format or a number of requests that the record lacked, a block size that was
misread."""


@dataclass(frozen=True)
class Row:
    """One figure that tells of the constants: ``bytes = counts @ constants``; weighs ``weight``."""

    source: str
    weight: float
    counts: tuple[float, ...]
    bytes: float


@dataclass(frozen=True)
class Log:
    """One log, with the engine's rules for it and the figures that it tells of the constants."""

    observation: Observation
    engine: Engine
    start: Start
    source: str
    group: str
    kind: str
    rows: tuple[Row, ...]


def source_of(observation: Observation) -> str:
    """What logs of one source have in common: their page, else their day, engine and machine."""
    origin = observation.origin
    return origin.url or f"{origin.date} {observation.engine_version} {observation.gpu}"


def collect(catalog: Catalog, observations: Iterable[Observation]) -> list[Log]:
    """Every vLLM log whose model and device are known; with a draft model only where its loading was printed."""
    found = []
    for observation in observations:
        engine = engine_of(catalog, observation)
        device = device_of(catalog, observation)
        if observation.engine != "vllm" or engine is None or observation.unusable or device is None:
            continue
        if not observation.complete and observation.engine_version is None:
            continue
        model, own = find_model(catalog, observation)
        drafted = observation.speculative and observation.printed.model_load_gib is None
        if model is None or drafted or observation.lora:
            continue
        start = published_start(catalog, observation, engine, model, own=own)
        source = source_of(observation)
        group = STAGES if start.flags.layout.pipeline > 1 else device_class(device)
        try:
            rows = tuple(measured(observation, start, source))
        except InputError:
            continue
        found.append(Log(observation, engine, start, source, group, kind_of(start), rows))
    return found


def kind_of(start: Start) -> str:
    """The kind of start whose error band a log is judged by."""
    layout = start.flags.layout
    if layout.pipeline > 1:
        return STAGES
    ranks = ranks_in_band(start.engine, layout.tensor, layout.data)
    return band_kind(start.model, ranks=ranks, images=start.flags.images)


def traits(observation: Observation, start: Start) -> list[str]:
    """What else is published of logs beside their kind: how weights are stored, states, copies that are known by name."""
    stored = start.flags.weight_format
    form = start.model.weight_format if stored in (None, "released") else stored
    copied = bool(observation.shapes_of) and form not in ("bf16", "released")
    caches = (cache for group in start.model.layers for cache in group.caches)
    told = {
        "copies": copied,
        "eight_bits": "fp8" in form or form == "int8",
        "four_bits": "4" in form,
        "states": any(isinstance(cache, RecurrentState) for cache in caches),
    }
    return [name for name, is_so in told.items() if is_so]


def measured(observation: Observation, start: Start, source: str) -> Iterable[Row]:
    """The figures of one log, each with its counts; the whole reserve where its parts are not printed."""
    printed = observation.printed
    case = start.case()
    device = start.accelerator
    if device is None or (observation.pipeline_parallel or 1) > 1 or (observation.data_parallel or 1) > 1:
        return
    if FORK in observation.needs:
        return
    kept = rules(start.engine).reserve(start.model, device, case.step)
    weight = 1.0 if observation.complete else ASSUMED_WEIGHT
    largest = LARGEST_CAPTURE
    if own_expert_kernels(device):
        largest = release_of(start.engine).count("largest_capture_blackwell")
    captured = graphs_up_to(largest, case.serving.max_seqs, case.serving.max_batched_tokens)
    sizes = Shape.of(start.model)
    graphs = float(captured * graph_layers(sizes))
    vendor = device.vendor.upper()
    second = runs_second(start.model, sizes, start.engine, vendor=vendor)
    if (
        (second and vendor == "AMD")
        or (keeps_partial_results(device) and less_on_hopper(sizes, second=second))
        or (vendor == "INTEL" and not release_of(start.engine).has("captures_on_intel"))
    ):
        graphs = 0.0  # What AMD's take is read off the logs, not fitted, and so is what Hopper's take.
    linked = multicasts(device) and release_of(start.engine).has("measures_links")
    further = float((observation.tensor_parallel or 1) > 1) * linked
    handles = float(charges_handles(start.engine, vendor))
    shared = float(device_class(device) == "unified") * shared_units(start.model, images=case.step.images)
    each = constant(start.engine, graph_constant(second=second))
    partial = kept.graphs - each * graphs if kept.graphs else 0.0
    if printed.cudagraph_est_gib is not None and not observation.eager and graphs:
        counts = (0.0, 0.0, 0.0, *by_runner(graphs, second=second))
        yield Row(source, weight, counts, printed.cudagraph_est_gib * GIB - partial)
    if shared and not observation.complete:
        return
    if printed.non_torch_gib is not None:
        yield Row(source, weight, (handles, further, shared, 0.0, 0.0), printed.non_torch_gib * GIB)
        return
    share = share_taken(observation) or start.engine.utilization
    pool = pool_told(observation, start)
    load = printed.model_load_gib
    if pool is None or (load is None and start.flags.weight_format is None):
        return
    weights = load * GIB if load is not None else float(allocate(case).resident_bytes)
    whole = share * device.usable_bytes - weights - pool
    counted = by_runner(graphs if kept.graphs else 0.0, second=second)
    yield Row(source, weight, (handles, further, shared, *counted), whole - kept.activations - partial)


def by_runner(graphs: float, *, second: bool) -> tuple[float, float]:
    """Layers of captured graphs as two counts: of the first model runner and of the second."""
    return (0.0, graphs) if second else (graphs, 0.0)


def pool_told(observation: Observation, start: Start) -> float | None:
    """Bytes of the pool: as printed, else those that the line of tokens takes."""
    printed, context = observation.printed, observation.context_tokens
    if printed.available_kv_gib is not None:
        return printed.available_kv_gib * GIB
    laid = start.laid_out()
    if not printed.kv_tokens or context is None or laid is None:
        return None
    whole = replace(laid, pool_bytes=GIB * 1024).printed_tokens(context)
    return printed.kv_tokens / float(whole) * GIB * 1024


def fit(rows: list[Row]) -> dict[str, float]:
    """Constants by Huber's robust regression: squares of small errors, sizes of large ones."""
    import statsmodels.api as sm  # two seconds, for this alone

    counts = np.array([row.counts for row in rows])
    # Squares of weighted errors: the root makes a source of many logs weigh as MOST_OF_A_SOURCE of them.
    weights = np.array([row.weight for row in rows]) * np.sqrt(_weights([row.source for row in rows]))
    scale = np.maximum(counts.max(axis=0), 1.0)
    sizes = np.array([row.bytes for row in rows]) / GIB
    norm = sm.robust.norms.HuberT()
    found = sm.RLM(sizes * weights, counts / scale * weights[:, None], M=norm).fit().params
    return {
        name: float(f"{max(value, 0.0) * GIB / size:.3g}")
        for name, value, size in zip(CONSTANTS, found, scale, strict=True)
    }


def record_of(catalog: Catalog, engine: Engine) -> str:
    """The record that an engine's rules are of."""
    found = engine_for_version(catalog.engines.values(), engine.family, engine.version)
    return engine.name if found is None else found.name


def without(logs: list[Log], source: str) -> list[Row]:
    """The rows of every other source."""
    return [row for log in logs if log.source != source for row in log.rows]


def at_first_sight() -> dict[str, float]:
    """The error of every log as it was when the log was first seen."""
    known = FirstSeen.read(data_dir())
    runs = () if known is None else known.runs
    return {log.id: log.error for run in runs for log in run.logs if log.error is not None} | OF_POOLS


def predicted(log: Log, constants: dict[str, float]) -> tuple[Comparison | None, float, float, float] | None:
    """End to end with given constants: tokens (else concurrency, else pool); bytes of pool error, reserve and pool.

    The pool is what the engine really had.
    """
    coefficients = log.engine.coefficients | constants
    engine = log.start.engine.model_copy(update={"coefficients": coefficients})
    judged = diagnose_start(replace(log.start, engine=engine))
    found = {one.quantity: one for one in judged.comparisons}
    best = next((found[name] for name in ("tokens", "concurrency", "pool") if name in found), None)
    laid = judged.deployment
    if best is None or laid is None or not judged.predicted:
        return None
    pool = int(laid.pool_bytes)
    missing = pool * (1 - 1 / (1 + best.error)) if best.error > -1 else float(GIB)
    if "pool" in found:
        missing = (found["pool"].predicted - found["pool"].observed) * GIB
    return best, float(missing), float(laid.reserve.total), pool - float(missing)


def left_out(logs: list[Log]) -> list[dict[str, Any]]:
    """Every log predicted by constants that were fitted without its source.

    Logs whose source does not state all flags are among them where their error at first sight was recorded, and have
    that error only: what is asked of a prediction seldom states more. So are copies whose name alone tells which layers are
    wider: an answer gives a range for them. A refused start is told right or wrong, whatever its pool
    was (:func:`kvreport.catalog.first_predictions.errors_of`), and is not among them.
    """
    found: list[dict[str, Any]] = []
    first = at_first_sight()
    for source in sorted({log.source for log in logs}):
        constants = fit(without(logs, source))
        for log in logs:
            seen = first.get(log.observation.id)
            told = log.observation.complete and not log.observation.mix_open
            refused = log.observation.printed.fits is False
            asked = log.source == source and (told or seen is not None) and not refused
            result = predicted(log, constants) if asked else None
            if result is None or result[0] is None:
                continue
            best, missing, kept, pool = result
            found.append(
                {
                    "id": log.observation.id,
                    "source": source,
                    "class": log.group,
                    "kind": log.kind,
                    "traits": traits(log.observation, log.start),
                    "found": not log.observation.id.startswith("own-"),
                    "rules": record_of(log.start.known, log.engine),
                    "quantity": best.quantity,
                    "error": round(best.error, 5) if told else None,
                    "pool_error_bytes": round(missing) if told else None,
                    "first_sight_bytes": None if seen is None else round(seen * pool),
                    "reserve_bytes": round(kept),
                    "spared": spared(log),
                }
            )
    return found


def spared(log: Log) -> int:
    """Bytes that the band of a log spans because nothing tells whether it is of a first start or a later one."""
    device, engine = log.start.accelerator, rules(log.engine)
    step = log.start.case().step
    if device is None:
        return 0
    first = engine.reserve(log.start.model, device, step).activations
    return first - engine.reserve(log.start.model, device, replace(step, compiled=True)).activations


def band(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Share of reserve and floor together that four in five errors lie within, by kind of start and class of devices.

    They are of found logs at first sight. What a later start spares lies in the band beside that
    (``engines/vllm/reserve.py``).
    """
    used = first_sights(rows) or rows
    grouped: dict[str, list[dict[str, Any]]] = {kind: [] for kind in BANDS} | {name: [] for name in APART}
    for row in used:
        grouped[_group(row)].append(row)
    sources = {name: len({row["source"] for row in of}) for name, of in grouped.items()}
    many = {name: number >= LEAST_IN_CLASS for name, number in sources.items()}
    found = {
        name: _quantile(
            [_share(row) for row in of],
            _weights([row["source"] for row in of]),
            plain=sources[name] >= MANY_SOURCES,
        )
        if of
        else 0.0
        for name, of in grouped.items()
    }
    widest = FEW * max((width for name, width in found.items() if many[name]), default=max(found.values()))
    return {name: round(width if many[name] else max(width, widest), 3) for name, width in found.items()}


def _group(row: dict[str, Any]) -> str:
    """What a log is calibrated with: logs of its class of devices where that has a band of its own, else of its kind."""
    return str(row["class"] if row["class"] in APART else row["kind"])


def first_sights(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of found logs that were recorded before any rule knew of them."""
    return [row for row in rows if row.get("first_sight_bytes") is not None and row.get("found", True)]


def _share(row: dict[str, Any]) -> float:
    """The size of a log's error beside what a later start spares, in its reserve and floor together."""
    return max(_met(row) - float(row.get("spared", 0)), 0.0) / float(row["reserve_bytes"] + FLOOR_BYTES)


def width_of(row: dict[str, Any], widths: dict[str, float]) -> float:
    """The width that a log is judged by: of its class of devices where that has one, else of its kind."""
    return widths[_group(row)]


def _met(row: dict[str, Any]) -> float:
    """The size of a log's error at first sight where that was recorded, else with its source left out."""
    first = row.get("first_sight_bytes")
    return abs(float(row["pool_error_bytes"] if first is None else first))


def _weights(sources: list[str]) -> list[float]:
    """What each log weighs: those of one source together no more than five logs."""
    of_source = Counter(sources)
    return [min(1.0, MOST_OF_A_SOURCE / of_source[source]) for source in sources]


def _quantile(values: list[float], weights: list[float] | None = None, *, plain: bool = False) -> float:
    """The conformal quantile: with n values, the one of rank ceil(0.8 (n + 1)); ``plain`` that of ceil(0.8 n).

    Most values of a band are errors at first sight, since when rules were added: the plain one is wide enough where sources
    are many. With ``weights``, ranks are their sums.
    """
    order = np.argsort(values, kind="stable")
    ranks = np.cumsum(np.ones(len(values)) if weights is None else np.array(weights)[order])
    wanted = COVERAGE * (ranks[-1] + (not plain))
    return float(values[order[min(int(np.searchsorted(ranks, wanted - 1e-9)), len(values) - 1)]])


def covered(rows: list[dict[str, Any]], error: str = "pool_error_bytes") -> list[bool]:
    """Whether each log lies in a band that was calibrated without its source, by one of its errors; if it has it."""
    found = []
    for row in rows:
        if row[error] is None:
            continue
        widths = band([other for other in rows if other["source"] != row["source"]])
        half = width_of(row, widths) * (row["reserve_bytes"] + FLOOR_BYTES) + row.get("spared", 0)
        found.append(abs(row[error]) <= half)
    return found


def intervals(logs: list[Log]) -> dict[str, list[float]]:
    """80% intervals of the constants, from sources drawn with replacement."""
    by_source: dict[str, list[Row]] = {}
    for log in logs:
        by_source.setdefault(log.source, []).extend(log.rows)
    names = sorted(name for name, rows in by_source.items() if rows)
    draw = np.random.default_rng(0)
    fits = []
    for _ in range(DRAWS):
        chosen = [row for name in draw.choice(names, len(names)) for row in by_source[name]]
        if np.linalg.matrix_rank(np.array([row.counts for row in chosen])) == len(CONSTANTS):
            fits.append(fit(chosen))
    return {
        name: [float(f"{np.quantile([one[name] for one in fits], q):.3g}") for q in (0.1, 0.9)]
        for name in CONSTANTS
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is published: errors and coverage of logs of sources left out."""
    told = stated(rows)
    errors = np.abs([row["error"] for row in told])
    inside, first = covered(rows), covered(rows, "first_sight_bytes")
    seen = [row for row in rows if row["first_sight_bytes"] is not None]
    met = [row | {"met": None if row["pool_error_bytes"] is None else _met(row)} for row in rows]
    classes = {
        name: {
            "logs": len(places),
            "median_error": round(float(np.median(errors[places])), 5),
            "coverage": round(float(np.mean([inside[i] for i in places])), 3),
            "first_sight": _first_sight(
                [one for one, row in zip(first, seen, strict=True) if row["class"] == name]
            ),
        }
        for name in sorted({row["class"] for row in told})
        if (places := [i for i, row in enumerate(told) if row["class"] == name])
    }
    return {
        "logs": len(told),
        "sources": len({row["source"] for row in told}),
        "median_error": round(float(np.median(errors)), 5),
        "p90_error": round(float(np.quantile(errors, 0.9)), 5),
        "median_pool_error_bytes": int(np.median([abs(row["pool_error_bytes"]) for row in told])),
        "coverage": round(float(np.mean(inside)), 3),
        "band_coverage": round(float(np.mean(covered(met, "met"))), 3),
        "first_sight": _first_sight(first),
        "classes": classes,
        "kinds": kinds(rows),
    }


def kinds(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind of start, class of devices with a band of its own, and further traits: found logs at first sight.

    ``width`` is the half width in shares of reserve and floor, None for traits, whose logs are judged by their kind;
    ``coverage`` is that of bands that were calibrated without the log's source.
    """
    widths, used = band(rows), first_sights(rows)
    inside = [
        _share(row) <= width_of(row, band([one for one in rows if one["source"] != row["source"]]))
        for row in used
    ]
    found = {}
    for name in (*BANDS, *APART, "eight_bits", "four_bits", "states", "copies"):
        near = [
            (row, held)
            for row, held in zip(used, inside, strict=True)
            if name in (_group(row), *row["traits"])
        ]
        if near:
            found[name] = {
                "logs": len(near),
                "sources": len({row["source"] for row, _ in near}),
                "width": widths.get(name),
                "coverage": round(float(np.mean([held for _, held in near])), 3),
            }
    return found


def stated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of logs whose source states all flags."""
    return [row for row in rows if row["pool_error_bytes"] is not None]


def _first_sight(inside: list[bool]) -> dict[str, Any] | None:
    return {"logs": len(inside), "coverage": round(float(np.mean(inside)), 3)} if inside else None


def counted(catalog: Catalog, observations: Iterable[Observation]) -> list[dict[str, Any]]:
    """Errors on logs of engines that no constant is fitted for, where tokens can be compared.

    They are of logs that state all flags, and of others whose error at first sight was recorded.
    ``kind`` is that of the band (:func:`~kvreport.accounting.engines.sglang.rules.band_kind`).
    """
    found = []
    first = at_first_sight()
    for observation in observations:
        engine = engine_of(catalog, observation)
        device = device_of(catalog, observation)
        if engine is None or engine.family != "sglang" or device is None or observation.unusable:
            continue
        model, own = find_model(catalog, observation)
        seen = first.get(observation.id)
        if model is None or not (observation.complete or seen is not None):
            continue
        start = published_start(catalog, observation, engine, model, own=own)
        stored = start.flags.weight_format
        try:
            judged = diagnose_start(start)
        except InputError:
            continue
        laid = judged.deployment
        tokens = next((one for one in judged.comparisons if one.quantity == "tokens"), None)
        if laid is None or tokens is None:
            continue
        found.append(
            {
                "id": observation.id,
                "source": publisher_of(observation),
                "complete": bool(observation.complete),
                "kind": sglang_band_kind(
                    start.model, device, start.flags.layout, None if stored == "released" else stored
                ),
                "class": device_class(device),
                "rules": record_of(catalog, engine),
                "error": round(tokens.error, 5),
                "pool_error_bytes": round(int(laid.pool_bytes) * (1 - 1 / (1 + tokens.error))),
                "first_sight_bytes": None
                if seen is None
                else round(seen * int(laid.pool_bytes) / (1 + tokens.error)),
                "memory_bytes": device.usable_bytes,
                "traits": [
                    *traits(observation, start),
                    "drafted" if observation.speculative else "undrafted",
                ],
            }
        )
    return found


def publisher_of(observation: Observation) -> str:
    """A log's source, all files of one repository together: they are of one machine and day, or nearly so."""
    source = source_of(observation)
    return source.split("/blob/")[0]


TAKEN = ("taken_before_bytes", "taken_before_unified_bytes")
"""What SGLang prints as missing from a device before it loads weights: of one rank, and of devices that share a host's memory."""


def taken_before(catalog: Catalog, observations: Iterable[Observation]) -> dict[str, float]:
    """The median over sources of what is not free before loading, per kind of device.

    Left out are releases before 0.5.10, whose CUDA takes less, and logs of devices that others used too.
    """
    found: dict[str, dict[str, list[float]]] = {name: {} for name in TAKEN}
    for observation in observations:
        device, printed = device_of(catalog, observation), observation.printed
        free = printed.free_gpu_gib
        if free is None and printed.free_after_load_gib and printed.model_load_gib:
            free = printed.free_after_load_gib + printed.model_load_gib
        if observation.engine != "sglang" or device is None or free is None:
            continue
        number = version_number(observation.engine_version or "")
        if observation.unusable or (number and (0, 1) < number < (0, 5, 10)):
            continue
        shared = device_class(device) == "unified"
        if shared or (observation.tensor_parallel or 1) * (observation.pipeline_parallel or 1) == 1:
            taken = device.usable_bytes - free * GIB
            found[TAKEN[shared]].setdefault(source_of(observation), []).append(taken)
    return {
        name: float(f"{np.median([np.median(values) for values in by_source.values()]):.2g}")
        for name, by_source in found.items()
    }


def widths(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Bytes that four in five first sights lie within, by kind of start; of several ranks, on a device of 80 GiB.

    A kind of fewer than ten sources is wider than the widest other of as many ranks, and one without logs has only that. The widest
    of n sources is wider by one n-th: a quantile of so few is the largest of them, which the next source exceeds one time in n + 1.
    """
    known = {kind: [row for row in first_sights(rows) if row["kind"] == kind] for kind in SGLANG_BANDS}
    sources = {kind: len({row["source"] for row in of}) for kind, of in known.items()}
    own = {
        kind: _quantile(
            [_missed(row) for row in of],
            _weights([row["source"] for row in of]),
            plain=sources[kind] >= MANY_SOURCES,
        )
        for kind, of in known.items()
        if of
    }
    found = {}
    for kind in SGLANG_BANDS:
        others = [
            width
            for name, width in own.items()
            if _several(name) == _several(kind) and (sources[name] >= LEAST_IN_CLASS or kind not in own)
        ]
        width = own.get(kind, 0.0)
        if sources[kind] < LEAST_IN_CLASS:
            few = 1 + 1 / sources[kind] if sources[kind] else 0.0
            width = max([few * width, *(FEW * other for other in others)])
        found[kind] = float(f"{width:.3g}")
    return found


def _several(kind: str) -> bool:
    return kind.endswith("_ranks")


def _missed(row: dict[str, Any]) -> float:
    """An error in the band's measure: as it is on one rank, by the root of the device's memory on several."""
    return _met(row) / (grown(float(row["memory_bytes"])) if _several(str(row["kind"])) else 1.0)


def within(rows: list[dict[str, Any]]) -> list[bool]:
    """Whether each log lies in a band that was calibrated without its source, by its error at first sight if it has one."""
    return [
        _missed(row) <= widths([other for other in rows if other["source"] != row["source"]])[row["kind"]]
        for row in rows
    ]


def bands(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is published of each kind of start: the band's width, and how much of left-out sources it covers.

    ``sources_inside`` counts sources all of whose first sights lie in it, ``coverage`` logs that state all flags, ``first_sight``
    all logs as first predicted, whether they state all flags or not.
    """
    known, inside = widths(rows), within(rows)
    found = {}
    for kind in SGLANG_BANDS:
        near = [(row, held) for row, held in zip(rows, inside, strict=True) if row["kind"] == kind]
        told = [(row, held) for row, held in near if row["complete"]]
        first = [(row, held) for row, held in near if row["first_sight_bytes"] is not None]
        if not told or not first:
            continue
        sources = {row["source"] for row, _ in first}
        found[kind] = {
            "sources": len(sources),
            "sources_inside": len(sources - {row["source"] for row, held in first if not held}),
            "logs": len(told),
            "median_error": round(float(np.median([abs(row["error"]) for row, _ in told])), 5),
            "coverage": round(float(np.mean([held for _, held in told])), 3),
            "width_bytes": round(known[kind]),
            "first_sight": _first_sight([held for _, held in first]),
        }
    return found


def others(catalog: Catalog) -> dict[str, dict[str, Any]]:
    """Errors on complete logs of engines that no constant is fitted for, by family: KV tokens end to end."""
    every = counted(catalog, load_observations(data_dir()))
    each = list(zip(every, within(every), strict=True))
    rows = [row for row in every if row["complete"]]
    errors = np.abs([row["error"] for row in rows])
    names = [row["rules"] for row in rows]
    return {
        "sglang": {
            "logs": len(rows),
            "sources": len({row["source"] for row in rows}),
            "median_error": round(float(np.median(errors)), 5),
            "p90_error": round(float(np.quantile(errors, 0.9)), 5),
            "coverage": round(float(np.mean([held for row, held in each if row["complete"]])), 3),
            "records": {name: names.count(name) for name in sorted(set(names))},
            "bands": bands(every),
            "kinds": held_by_kind(each),
        }
    }


def held_by_kind(each: list[tuple[dict[str, Any], bool]]) -> dict[str, dict[str, Any]]:
    """What the bands hold of logs as first predicted, by kind of start: each is judged by the band of its own."""
    found = {}
    for name in ("undrafted", "drafted", "states", "eight_bits", "four_bits", "other"):
        near = [
            (row, held)
            for row, held in each
            if row["first_sight_bytes"] is not None and name in (*row["traits"], row["class"])
        ]
        if near:
            found[name] = {
                "logs": len(near),
                "sources": len({row["source"] for row, _ in near}),
                "width": None,
                "coverage": round(float(np.mean([held for _, held in near])), 3),
            }
    return found


def main() -> None:
    """Print the fit, and write it if asked to."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--write", action="store_true", help="write data/engines and data/left_out.yaml")
    arguments.add_argument(
        "--only", choices=("sglang",), help="leave the constants and figures of vLLM as they are"
    )
    given = arguments.parse_args()
    catalog = load_catalog()
    if given.only:
        further = counted(catalog, load_observations(data_dir()))
        print(yaml.safe_dump(others(catalog), sort_keys=False), widths(further))
        if given.write:
            write_others(catalog, widths(further))
        return
    logs = collect(catalog, load_observations(data_dir()))
    constants = fit([row for log in logs for row in log.rows])
    ranges = intervals(logs)
    for name, value in constants.items():
        print(f"{name:28s} {value:.4g}   80%: {ranges[name][0]:.4g} to {ranges[name][1]:.4g}")
    rows = left_out(logs)
    each = zip(stated(rows), covered(rows), strict=True)
    for row, inside in sorted(each, key=lambda one: -abs(one[0]["error"])):
        print(
            f"{row['id']:9s} {row['class']:12s} {row['quantity']:12s} {row['error']:+8.2%} "
            f"{row['pool_error_bytes'] / GIB:+6.2f} GiB of {row['reserve_bytes'] / GIB:5.2f} {'' if inside else 'outside'}"
        )
    shares = band(rows)
    print(shares)
    print(yaml.safe_dump(summary(rows), sort_keys=False))
    print(yaml.safe_dump(others(catalog), sort_keys=False))
    further = counted(catalog, load_observations(data_dir()))
    for row, inside in sorted(
        zip(further, within(further), strict=True), key=lambda one: -abs(one[0]["pool_error_bytes"])
    ):
        print(
            f"{row['id']:9s} {row['kind']:26s} {row['error']:+8.2%} {row['pool_error_bytes'] / GIB:+6.2f} GiB "
            f"{'' if inside else 'outside'}"
        )
    known = widths(further)
    print(known)
    if given.write:
        write(catalog, constants, ranges, shares, rows, known)


def write(
    catalog: Catalog,
    constants: dict[str, float],
    ranges: dict[str, list[float]],
    widths: dict[str, float],
    rows: list[dict[str, Any]],
    bands: dict[str, float],
) -> None:
    """Put constants and band into the engines' records, and the figures into a file of their own."""
    values = dict(constants)
    for name, width in widths.items():
        values |= {f"uncertainty_share_{name}": width, f"uncertainty_bytes_{name}": width * FLOOR_BYTES}
    _put("vllm", values)
    published = [
        {
            key: value
            for key, value in row.items()
            if key not in ("source", "spared", "first_sight_bytes", "kind", "traits", "found")
        }
        | {"covered": inside}
        for row, inside in zip(stated(rows), covered(rows), strict=True)
    ]
    content = {
        "schema_version": 1,
        "constants": {name: {"value": constants[name], "interval": ranges[name]} for name in CONSTANTS},
        "summary": summary(rows),
        "logs": published,
        "others": {},
    }
    _replace(data_dir() / "left_out.yaml", yaml.safe_dump(content, sort_keys=False, width=110))
    write_others(catalog, bands)


def write_others(catalog: Catalog, bands: dict[str, float]) -> None:
    """Put the bands of other engines into their records, and their figures into the file of those left out."""
    _put("sglang", {f"uncertainty_bytes_{kind}": width for kind, width in bands.items()})
    path = data_dir() / "left_out.yaml"
    content = yaml.safe_load(path.read_text()) | {"others": others(catalog)}
    _replace(path, yaml.safe_dump(content, sort_keys=False, width=110))


def _put(family: str, values: dict[str, float]) -> None:
    """Put constants into those that all releases of a family have in common."""
    path = data_dir() / "engines" / family / "rules.yaml"
    head, start, rest = path.read_text().partition("  coefficients: {\n")
    stated, end, tail = rest.partition("  }\n")
    known = yaml.safe_load(f"{{{stated}}}") | values
    pairs = " ".join(f"{name}:\0{value!r}," for name, value in sorted(known.items()))
    lines = [line.replace("\0", " ") for line in textwrap.wrap(pairs, 116)]
    _replace(path, f"{head}{start}" + "".join(f"    {line}\n" for line in lines) + f"{end}{tail}")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    main()
