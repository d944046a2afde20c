"""Predictions against what engines really printed, and how far off they are.

Every observation of ``data/observations`` goes through the same functions as an estimate. Four
questions are asked of each, as far as its source says enough:

* ``weights``: memory that loading took (SGLang: free memory taken by loading, which is more);
* ``tokens given pool``, ``concurrency given pool``: the engine's lines, from the pool that it logged;
* ``pool``, ``tokens``, ``concurrency``: end to end, from model, device and flags alone;
* whether it starts.

What cannot be asked is listed with the reason. Nothing here changes a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from kvreport.accounting.engines.by_family import rules
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation, load_observations
from kvreport.catalog.release import engine_for_version, not_computed
from kvreport.startup_log.judge import Judgment, diagnose_start
from kvreport.startup_log.observed import find_model, published_start
from kvreport.startup_log.release import RELEASE_OF
from kvreport.startup_log.start import Comparison
from kvreport.words import engine_name

FAMILIES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "llama.cpp": "llama_cpp",
    "ik-llama.cpp": "llama_cpp",
}
"""Engine names of observations, and the rules that they are held against."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One observation, compared."""

    observation: Observation
    engine: str | None  # Name of the engine record whose rules were applied; None if there is none.
    family: str | None  # Model family (architecture class); None if the model is not known.
    comparisons: tuple[Comparison, ...]  # What could be compared.
    starts_predicted: bool | None  # Whether one request of the asked context was predicted to fit.
    starts_observed: bool | None  # Whether the engine started; None if the source does not say.
    excluded: tuple[str, ...]  # What could not be compared, and why.
    # The release whose rules were applied, as ``vllm 0.27.1``; None without rules.
    release: str | None = None
    within_band: bool | None = None  # Whether the pool lies in its error band; None if it was not predicted.
    old: bool = False  # Whether its release is too old to be computed.
    weights: str | None = (
        None  # Format of the weights, without its groups: ``fp8``; None if the model is not known.
    )
    model: str | None = None  # Its id in the catalog; None if it is not there.


@dataclass(frozen=True, slots=True)
class Statistic:
    """How far off predictions of one quantity are."""

    quantity: str  # What was compared.
    scope: str  # Which cases: ``complete``, ``all``, ``engine: …`` or ``family: …``.
    count: int  # Cases.
    median: float  # Of the absolute relative error.
    p90: float  # Its 90th percentile.
    largest: float  # Its maximum.
    within_1_percent: float  # Share of cases within 1%.
    bias: float  # Median signed error.


@dataclass(frozen=True, slots=True)
class Validation:
    """All cases and what they add up to."""

    cases: tuple[Compared, ...]  # Every observation, in the order of the files.
    statistics: tuple[Statistic, ...]  # Errors by quantity and scope.
    starts: tuple[tuple[bool, bool, int], ...]  # Counts of (predicted, observed) starts among complete cases.

    def statistic(self, quantity: str, scope: str = "complete") -> Statistic | None:
        """The statistic of one quantity and scope, None if nothing was compared."""
        return next((s for s in self.statistics if (s.quantity, s.scope) == (quantity, scope)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``validation.json``: the same content, errors rounded to six digits."""
        return {
            "cases": [_case_dict(case) for case in self.cases],
            "statistics": [
                {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(s).items()}
                for s in self.statistics
            ],
            "starts": [
                {"predicted": predicted, "observed": observed, "count": count}
                for predicted, observed, count in self.starts
            ],
        }


def validate(
    catalog: Catalog,
    observations: Iterable[Observation] | None = None,
    case_of: Callable[[Catalog, Observation], Compared] | None = None,
) -> Validation:
    """Compare every observation, or those of the catalog's folder, with the estimate of the same start."""
    given = load_observations(catalog.folder) if observations is None else observations
    judged = case_of or compare
    cases = tuple(judged(catalog, observation) for observation in given)
    return Validation(cases=cases, statistics=tuple(_statistics(cases)), starts=_starts(cases))


def compare(catalog: Catalog, observation: Observation) -> Compared:
    """Compare one observation with the estimate of the same start."""
    engine = engine_of(catalog, observation)
    excluded: list[str] = []
    model, own = find_model(catalog, observation)
    if model is None:
        excluded.append(
            "all: the source does not name the model clearly"
            if observation.model_id is None
            else "all: the model is not in the catalog"
        )
    old = None
    if engine is None:
        old = not_computed(catalog.engines.values(), observation.engine, _version(catalog, observation))
        excluded.append(
            f"all: {old}" if old else f"all: the rules of {engine_name(observation.engine)} are not modeled"
        )
    release: str | None = None
    judged = Judgment()
    if observation.unusable is not None:
        excluded.append(f"all: {observation.unusable}")
    elif engine is not None and model is not None:
        start = published_start(catalog, observation, engine, model, own=own, ranges=True)
        release = " ".join(part for part in (engine.family, start.engine.version) if part)
        judged = diagnose_start(start)
        excluded += judged.excluded
    return Compared(
        observation=observation,
        engine=engine.name if engine else None,
        family=model.architecture if model else None,
        comparisons=judged.comparisons,
        starts_predicted=judged.starts,
        starts_observed=_started(observation),
        excluded=tuple(dict.fromkeys(excluded)),
        release=release,
        within_band=judged.within_band,
        old=old is not None,
        weights=None if model is None else _format_of(model, observation),
        model=None if model is None else model.id,
    )


def _format_of(model: Model, observation: Observation) -> str:
    stated = observation.weight_format
    return (model.weight_format if stated in {None, RELEASED} else stated).partition("-")[0]


def engine_of(catalog: Catalog, observation: Observation) -> Engine | None:
    """The rules that an observation is held against: of its release, else of the day that it was made."""
    family = FAMILIES.get(observation.engine)
    if family is None:
        return None
    version = _version(catalog, observation)
    engine = engine_for_version(catalog.engines.values(), family, version)
    return engine if engine is None or version is None else rules(engine).at_release(version)


def _version(catalog: Catalog, observation: Observation) -> str | None:
    """The release that a log is of: as stated or as its lines and day tell; None where releases do not differ."""
    release_of = RELEASE_OF.get(observation.engine)
    return None if release_of is None else release_of(observation, find_model(catalog, observation)[0])


def _started(observation: Observation) -> bool | None:
    printed = observation.printed
    if printed.fits is not None:
        return printed.fits
    told = (printed.kv_tokens, printed.available_kv_gib, printed.max_concurrency)
    return True if any(figure is not None for figure in told) else None


def _statistics(cases: tuple[Compared, ...]) -> Iterator[Statistic]:
    found: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        scopes = ["all", f"engine: {case.engine}", f"family: {case.family}", f"weights: {case.weights}"]
        if case.observation.complete:
            scopes.insert(0, "complete")
        for comparison in case.comparisons:
            for scope in scopes:
                found.setdefault((comparison.quantity, scope), []).append(comparison.error)
    for (quantity, scope), errors in sorted(found.items()):
        size = np.abs(errors)
        yield Statistic(
            quantity=quantity,
            scope=scope,
            count=len(errors),
            median=float(np.median(size)),
            p90=float(np.quantile(size, 0.9)),
            largest=float(size.max()),
            within_1_percent=float(np.mean(size <= 0.01)),
            bias=float(np.median(errors)),
        )


def _starts(cases: tuple[Compared, ...]) -> tuple[tuple[bool, bool, int], ...]:
    counts: dict[tuple[bool, bool], int] = {}
    for case in cases:
        if (
            case.starts_predicted is not None
            and case.starts_observed is not None
            and case.observation.complete
        ):
            pair = (case.starts_predicted, case.starts_observed)
            counts[pair] = counts.get(pair, 0) + 1
    return tuple((*pair, count) for pair, count in sorted(counts.items(), reverse=True))


def _case_dict(case: Compared) -> dict[str, Any]:
    observation = case.observation
    return {
        "id": observation.id,
        "engine": observation.engine,
        "engine_version": observation.engine_version,
        "rules": case.engine,
        "model": observation.model,
        "model_id": observation.model_id,
        "family": case.family,
        "gpu": observation.gpu,
        "tensor_parallel": observation.tensor_parallel,
        "context_tokens": observation.context_tokens,
        "complete": observation.complete,
        "comparisons": [
            {
                "quantity": c.quantity,
                "predicted": round(c.predicted, 4),
                "observed": c.observed,
                "unit": c.unit,
                "error": round(c.error, 6),
            }
            for c in case.comparisons
        ],
        "starts_predicted": case.starts_predicted,
        "starts_observed": case.starts_observed,
        "excluded": list(case.excluded),
        "source": {
            "kind": observation.origin.kind,
            "url": observation.origin.url,
            "date": observation.origin.date,
        },
    }
