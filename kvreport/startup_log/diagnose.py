"""What a start-up log tells: its numbers beside our prediction, and what to change.

The log's own numbers come first. Where the model is known, the pool that the log states is laid out
with our block plan, which checks the engine's token and concurrency figures against the formula; where
the accelerator is known too, the pool itself is predicted. Nothing is guessed: what the log does not
state and the caller does not say stays unknown.
"""

from __future__ import annotations

from typing import Final

from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.opened import said_of
from kvreport.estimation.request import open_model
from kvreport.startup_log.advice import changes, plan_agrees, shorter
from kvreport.startup_log.findings import Comparison, Diagnosis
from kvreport.startup_log.further import NOT_FOLLOWED
from kvreport.startup_log.laid_out import (
    LaidOut,
    log_case,
    longest_of,
    pool_of,
    requests_that_fit,
    tokens_of,
    version_of,
)
from kvreport.startup_log.reading import Reading
from kvreport.startup_log.reading import read_log as read_lines

POOL_AS_STATED: Final = ("sglang", "tensorrt_llm")
"""Engines whose pool is not predicted from a log: it lacks what their share is taken of."""


def diagnose(
    text: str,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tensor_parallel: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
    fetch: bool = False,
    revision: str | None = None,
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
        fetch: True to ask the Hub for a model that is not known.
        revision: Branch, tag or commit of the Hub's repository.
        catalog: Where names are looked up; None for the public catalogue.

    Raises:
        InputError: If the log is empty or too large, or a name given is unknown.
    """
    reading = read_lines(text)
    known = open_catalogue() if catalog is None else catalog
    notes: list[str] = []
    record = _model(reading, model, known, notes, fetch=fetch, revision=revision)
    device = known.accelerator(gpu) if gpu else None
    laid = log_case(reading, record, known, device, tensor_parallel, weights, kv, notes)
    pool = pool_of(reading, laid)
    total = reading.whole("total_memory") or (device.usable_bytes if device else None)
    fits = requests_that_fit(reading, laid, pool)
    comparisons: list[Comparison] = []
    if laid is not None:
        comparisons += _compare(reading, laid, pool)
    if device is None and reading.engine not in POOL_AS_STATED:
        notes.append("Say which GPU it ran on, and the pool itself is predicted, too.")
    elif device is not None and laid is not None and reading.engine not in POOL_AS_STATED:
        missing = _not_stated(reading)
        if missing:
            notes.append(f"The pool is not predicted: the log does not state {' nor '.join(missing)}.")
        else:
            comparisons += _compare_pool(reading, laid)
    if laid is not None and pool is not None and pool > 0 and not plan_agrees(reading, laid, pool):
        notes.append("Our plan is not the log's: cache type, drafts or model differ from what it states.")
    notes += _assumed(reading, laid)
    return Diagnosis(
        reading=reading,
        concurrency=fits,
        comparisons=tuple(comparisons),
        changes=tuple(changes(reading, laid, pool, total, fits)),
        shorter=tuple(shorter(reading, laid, pool)),
        linear=laid is None or (pool is not None and not plan_agrees(reading, laid, pool)),
        notes=tuple(notes),
    )


def _not_stated(reading: Reading) -> list[str]:
    """What a prediction of the pool cannot do without: a wrong pool is worse than none."""
    missing = []
    if reading.number("utilization") is None:
        missing.append("its share of memory")
    if version_of(reading) is None:
        missing.append("its release")
    return missing


def _assumed(reading: Reading, laid: LaidOut | None) -> list[str]:
    """What was taken from elsewhere than the log's own words, and what was not followed."""
    notes = []
    if laid is not None and reading.engine not in POOL_AS_STATED and reading.text("engine_version") is None:
        told = version_of(reading)
        if told is not None:
            notes.append(f"The log does not name its release; its lines were written by vLLM {told}.")
        else:
            notes.append(f"The log does not name its release; the rules of {laid.engine.label} are taken.")
    ignored = [words for name, words in NOT_FOLLOWED.items() if reading.facts.get(name)]
    if reading.facts.get("pipeline_parallel") == 1:
        ignored.remove(NOT_FOLLOWED["pipeline_parallel"])
    if ignored:
        notes.append(f"Not followed here, though it bears on memory: {', '.join(ignored)}.")
    return notes


def _model(
    reading: Reading,
    given: str | None,
    known: Catalogue,
    notes: list[str],
    *,
    fetch: bool,
    revision: str | None,
) -> Model | None:
    stated = reading.text("model")
    if given is not None or (fetch and stated is not None):
        opened = open_model(given or stated or "", known, fetch=fetch, revision=revision)
        notes += said_of(opened)
        return opened.model
    if stated is None:
        notes.append("The log does not name its model; say which it is, and its numbers are checked.")
        return None
    try:
        return known.model(stated)
    except InputError:
        notes.append(f"The catalog does not have {stated}; name the model that it is a copy of.")
        return None


def _compare(reading: Reading, laid: LaidOut, pool: int | None) -> list[Comparison]:
    found = []
    stated = reading.whole("weights")
    if stated:
        found.append(Comparison("weights", stated, int(laid.deployment.resident_bytes)))
    longest = longest_of(reading)
    if pool is None or pool <= 0 or not longest:
        return found
    filled = laid.of_pool(pool)
    if reading.number("concurrency"):
        fit = float(filled.concurrency(longest))
        found.append(Comparison("concurrency", reading.number("concurrency") or 0.0, fit))
    stated = tokens_of(reading)
    if stated:
        found.append(Comparison("kv_tokens", float(stated), int(filled.printed_tokens(longest))))
    if reading.number("needed"):
        needed = int(laid.plan.profile.request_bytes(longest))
        found.append(Comparison("needed", reading.number("needed") or 0.0, needed))
    return found


def _compare_pool(reading: Reading, laid: LaidOut) -> list[Comparison]:
    stated = reading.whole("kv_pool")
    if not stated:
        return []
    return [Comparison("kv_pool", stated, int(laid.deployment.pool_bytes))]


read_log = diagnose
"""The public name: ``kvreport.read_log(text, gpu=...)``."""
