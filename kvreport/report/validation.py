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

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from kvreport.accounting import capacity
from kvreport.accounting.blocks import BlockPlan, Serving, default_kv_format, plan
from kvreport.accounting.budget import budget, scheduler_sizes
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.weights import weights_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine, engine_for_version
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Component, Model
from kvreport.catalog.observation import Observation, load_observations
from kvreport.errors import InputError
from kvreport.units import GIB, MIB

FAMILIES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp",
    "ik-llama.cpp": "llama_cpp",
}
"""Engine names of observations, and the rules that they are held against."""

STATED_WITHIN: Final = 0.005
"""A stated utilisation is doubted where the printed parts differ from it by more."""

SAME_RANK_WITHIN: Final = 0.05
"""A pool and a token line further apart than this are not of one rank."""

TOWERS: Final[frozenset[Component]] = frozenset({"vision", "audio"})


@dataclass(frozen=True, slots=True)
class Comparison:
    """One printed figure and its prediction.

    Attributes:
        quantity: What is compared.
        predicted: Prediction, in ``unit``.
        observed: As printed.
        unit: ``GiB``, ``MiB``, ``tokens`` or ``requests``.
    """

    quantity: str
    predicted: float
    observed: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error, signed: positive where the prediction is too high."""
        return self.predicted / self.observed - 1 if self.observed else float("inf")


@dataclass(frozen=True, slots=True)
class Case:
    """One observation, compared.

    Attributes:
        observation: The observation.
        engine: Name of the engine record whose rules were applied; None if there is none.
        family: Model family (architecture class); None if the model is not known.
        complete: True if the source states all flags that bear on memory.
        comparisons: What could be compared.
        starts_predicted: Whether one request of the asked context was predicted to fit.
        starts_observed: Whether the engine started; None if the source does not say.
        excluded: What could not be compared, and why.
    """

    observation: Observation
    engine: str | None
    family: str | None
    complete: bool
    comparisons: tuple[Comparison, ...]
    starts_predicted: bool | None
    starts_observed: bool | None
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Statistic:
    """How far off predictions of one quantity are.

    Attributes:
        quantity: What was compared.
        scope: Which cases: ``complete``, ``all``, ``engine: …`` or ``family: …``.
        count: Cases.
        median, p90, largest: Of the absolute relative error.
        within_1_percent: Share of cases within 1 %.
        bias: Median signed error.
    """

    quantity: str
    scope: str
    count: int
    median: float
    p90: float
    largest: float
    within_1_percent: float
    bias: float


@dataclass(frozen=True, slots=True)
class Validation:
    """All cases and what they add up to.

    Attributes:
        cases: Every observation, in the order of the files.
        statistics: Errors by quantity and scope.
        starts: Counts of (predicted, observed) starts among complete cases.
    """

    cases: tuple[Case, ...]
    statistics: tuple[Statistic, ...]
    starts: tuple[tuple[bool, bool, int], ...]

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


def validate(catalogue: Catalogue, observations: Iterable[Observation] | None = None) -> Validation:
    """Compare every observation with the estimate of the same start.

    Args:
        catalogue: Models, accelerators, formats and engines.
        observations: None for those of the catalogue's folder.
    """
    given = load_observations(catalogue.folder) if observations is None else observations
    cases = tuple(_case(catalogue, observation) for observation in given)
    return Validation(cases=cases, statistics=tuple(_statistics(cases)), starts=_starts(cases))


def serves_images(observation: Observation) -> bool:
    """False if the engine was told to serve text only."""
    said = f"{observation.towers or ''} {observation.flags or ''}".lower()
    return not re.search(r"language[_ -]model[_ -]only|'image': 0|text only", said)


def unified(observation: Observation) -> bool:
    """True where the device shares its memory with a CPU, so that other processes move the figures."""
    return "gb10" in f"{observation.gpu or ''} {observation.gpu_named}".lower()


def find_model(catalogue: Catalogue, observation: Observation) -> tuple[Model | None, bool]:
    """The model to predict with, and whether it is the checkpoint itself rather than one shaped like it."""
    for name, own in ((observation.model_id, True), (observation.shapes_of, False)):
        if name is None:
            continue
        if name in catalogue.models:
            return catalogue.models[name], own
        for model in catalogue.models.values():
            if name in model.aliases or name in model.predecessor_ids:
                return model, own
    return None, False


def share_taken(observation: Observation) -> float | None:
    """The utilisation that an engine ran with.

    Where it printed all parts of its budget, their sum over its memory; a published table may
    state another by mistake. Some releases keep the estimate of their graphs out of the parts
    that they print: where the sum with it is what the source states, that is the share.
    Elsewhere what the source states.
    """
    printed = observation.printed
    parts = (
        printed.model_load_gib,
        printed.available_kv_gib,
        printed.peak_activation_gib,
        printed.non_torch_gib,
    )
    known = [part for part in parts if part is not None]
    if printed.total_gpu_gib is None or len(known) < len(parts):
        return observation.utilization or observation.static_share
    share = round(sum(known) / printed.total_gpu_gib, 3)
    stated = observation.utilization
    if stated is not None and printed.cudagraph_est_gib is not None:
        with_graphs = (sum(known) + printed.cudagraph_est_gib) / printed.total_gpu_gib
        if abs(with_graphs - stated) <= STATED_WITHIN:
            return stated
    return share


def _case(catalogue: Catalogue, observation: Observation) -> Case:
    engine = _engine(catalogue, observation)
    excluded: list[str] = []
    model, own = find_model(catalogue, observation)
    if model is None:
        excluded.append(
            "all: the source does not name the model beyond doubt"
            if observation.model_id is None
            else "all: the model is not in the catalogue"
        )
    if engine is None:
        excluded.append(f"all: the rules of {observation.engine} are not modelled")
    comparisons: tuple[Comparison, ...] = ()
    starts: bool | None = None
    if engine is not None and model is not None:
        start = Start(catalogue, observation, engine, model, own=own)
        try:
            comparisons = tuple(start.comparisons())
            starts = start.starts
        except InputError as error:
            excluded.append(f"all: {error}")
        excluded += start.excluded
    return Case(
        observation=observation,
        engine=engine.name if engine else None,
        family=model.architecture if model else None,
        complete=_complete(observation),
        comparisons=comparisons,
        starts_predicted=starts,
        starts_observed=_started(observation),
        excluded=tuple(excluded),
    )


def _engine(catalogue: Catalogue, observation: Observation) -> Engine | None:
    family = FAMILIES.get(observation.engine)
    if family is None:
        return None
    version = observation.engine_version if family == "vllm" else None
    if family == "vllm" and version is None and observation.origin.date is not None:
        version = _version_of_date(observation.origin.date)
    return engine_for_version(catalogue.engines.values(), family, version)


_RELEASES: Final = (("2025-09-13", "0.10.1"), ("2026-02-25", "0.11"), ("2026-05-15", "0.19"))
"""vLLM's release that was current before a day, where a log does not say (0.10.2 came out on
2025-09-13, 0.16 in February 2026, 0.21 in May 2026); later logs count as the current rules."""


def _version_of_date(date: str) -> str | None:
    return next((version for day, version in _RELEASES if date < day), None)


def _complete(observation: Observation) -> bool:
    return observation.completeness == "full"


def _started(observation: Observation) -> bool | None:
    printed = observation.printed
    if printed.fits is not None:
        return printed.fits
    told = (printed.kv_tokens, printed.available_kv_gib, printed.max_concurrency)
    return True if any(figure is not None for figure in told) else None


class Start:
    """One start of an engine, predicted."""

    def __init__(
        self, catalogue: Catalogue, observation: Observation, engine: Engine, model: Model, *, own: bool
    ) -> None:
        """Take an observation with the rules and the model to predict it with."""
        self.catalogue = catalogue
        self.observation = observation
        self.engine = engine
        self.model = model
        self.weight_format = observation.weight_format if own else observation.shapes_weights
        self.ranks = observation.tensor_parallel or 1
        self.excluded: list[str] = []
        self.starts: bool | None = None
        self.accelerator: Accelerator | None = (
            catalogue.accelerator(observation.gpu) if observation.gpu else None
        )

    def comparisons(self) -> Iterator[Comparison]:
        """Everything that the source says enough for."""
        if self.engine.family == "llama_cpp":
            yield from self._buffers()
            return
        weights = self._weights()
        printed = self.observation.printed
        if weights is not None and printed.model_load_gib is not None:
            # SGLang prints how much less memory is free, which counts the device's context too.
            name = "weights" if self.engine.family == "vllm" else "free memory taken by loading"
            yield Comparison(name, weights / GIB, printed.model_load_gib, "GiB")
        block_plan = self.block_plan()
        if block_plan is None:
            return
        if self.accelerator is None and self.ranks > 1:
            self.excluded.append("tokens: devices differ or are not named, and the smallest rank decides")
            return
        if printed.available_kv_gib is not None and printed.fits is not False:
            yield from self._lines(block_plan, int(printed.available_kv_gib * GIB), " given pool")
        yield from self._end_to_end(block_plan, weights)

    def _weights(self) -> int | None:
        observation = self.observation
        if self.weight_format is None:
            self.excluded.append("weights: how the checkpoint is stored is not known well enough")
            return None
        if observation.speculative and observation.printed.model_load_gib is not None:
            self.excluded.append("weights: a draft model is loaded too")
            return None
        form = None if self.weight_format == "released" else self.catalogue.weight_format(self.weight_format)
        formats = self.catalogue.weight_formats
        parts = weights_by_component(self.model, form, formats, self.ranks)
        if not serves_images(observation):
            parts = {name: size for name, size in parts.items() if name not in TOWERS}
        total = sum(parts.values())
        if self.accelerator is not None:
            added = load_overhead(self.model, self.engine, form, formats, self.accelerator, self.ranks)
            total += sum(added.values())
        if (observation.pipeline_parallel or 1) > 1:
            self.excluded.append("weights: pipeline stages are not told apart in the source")
            return None
        return total

    def block_plan(self) -> BlockPlan | None:
        """The engine's block plan with the flags of the source; None where it says too little."""
        observation = self.observation
        if observation.context_tokens is None and self.engine.family == "vllm":
            self.excluded.append("tokens: the context is not stated")
            return None
        if observation.kv_format is None and not _complete(observation):
            self.excluded.append("tokens: the KV format is not stated")
            return None
        if observation.speculative and self._draft_tokens() == 0:
            self.excluded.append("tokens: the draft model is not described")
            return None
        tokens, rows = self._scheduler()
        return plan(
            self.model,
            self.engine,
            serving=Serving(
                max_batched_tokens=tokens,
                max_seqs=rows,
                block_tokens=observation.block_tokens,
                prefix_caching=_prefix_caching(observation),
                draft_tokens=self._draft_tokens(),
                context_parallel=observation.context_parallel or 1,
            ),
            kv_format=self._kv_format(),
            tensor_parallel=self.ranks,
            accelerator=self.accelerator,
        )

    def _scheduler(self) -> tuple[int, int]:
        observation = self.observation
        if self.accelerator is None:
            tokens = observation.max_batched_tokens or 2048
            return tokens, min(observation.max_seqs or 256, tokens)
        return scheduler_sizes(
            self.engine,
            self.accelerator,
            max_batched_tokens=observation.max_batched_tokens,
            max_seqs=observation.max_seqs,
        )

    def _kv_format(self) -> KvFormat | None:
        named = self.observation.kv_format
        if named in (None, "auto"):
            named = default_kv_format(self.model, self.engine, self.accelerator)
        return None if named is None else self.catalogue.kv_format(named)

    def _draft_tokens(self) -> int:
        found = re.search(r"num_speculative_tokens\D+(\d+)", self.observation.speculative or "")
        return int(found[1]) if found else 0

    def same_rank(self, block_plan: BlockPlan) -> bool:
        """False if the printed pool and tokens cannot belong together: each rank prints its own pool.

        The smallest rank decides the tokens; a source may quote the pool of another.
        """
        printed, context = self.observation.printed, self.observation.context_tokens
        if printed.available_kv_gib is None or not printed.kv_tokens or context is None:
            return True
        pool = int(printed.available_kv_gib * GIB)
        tokens = int(capacity.printed_tokens(pool, block_plan, context, self.engine.token_line))
        together = abs(tokens / printed.kv_tokens - 1) <= SAME_RANK_WITHIN
        if not together:
            self.excluded.append("pool: the quoted pool and tokens are of different ranks")
        return together

    def _lines(self, block_plan: BlockPlan, pool: int, suffix: str) -> Iterator[Comparison]:
        printed, context = self.observation.printed, self.observation.context_tokens
        if context is None and self.engine.family == "sglang":
            context = self.model.context_tokens  # its line of tokens does not depend on it
        if context is None:
            return
        if printed.kv_tokens:
            tokens = capacity.printed_tokens(pool, block_plan, context, self.engine.token_line)
            yield Comparison(f"tokens{suffix}", float(tokens), float(printed.kv_tokens), "tokens")
        if printed.max_concurrency:
            fitting = float(capacity.concurrency(pool, block_plan, context))
            yield Comparison(f"concurrency{suffix}", fitting, printed.max_concurrency, "requests")

    def _end_to_end(self, block_plan: BlockPlan, weights: int | None) -> Iterator[Comparison]:
        observation = self.observation
        if weights is None or self.accelerator is None:
            self.excluded.append("end to end: model format or device is not stated")
            return
        if unified(observation):
            self.excluded.append("end to end: memory shared with the CPU, what was free is not stated")
            return
        if observation.printed.total_gpu_gib is None and observation.gpu is None:
            self.excluded.append("end to end: the device's memory is not known")
            return
        limits = budget(
            self.model,
            self.engine,
            self.accelerator,
            weight_bytes=weights,
            tensor_parallel=self.ranks,
            utilization=share_taken(observation),
            max_batched_tokens=observation.max_batched_tokens,
            max_seqs=observation.max_seqs,
            eager=bool(observation.eager),
            images=serves_images(observation),
        )
        stated, taken = observation.utilization, share_taken(observation)
        if stated is not None and taken is not None and abs(stated - taken) > STATED_WITHIN:
            self.excluded.append(
                f"utilisation: stated {stated:g}, but the printed parts add up to {taken:g}, which is used"
            )
        pool = limits.kv_pool_bytes
        context = observation.context_tokens
        if context is not None:
            self.starts = int(capacity.users(pool, block_plan, context)) >= 1
        printed = observation.printed
        available = printed.available_kv_gib if self.same_rank(block_plan) else None
        if available is None and printed.k_gib is not None and printed.v_gib is not None:
            available = printed.k_gib + printed.v_gib
        if available is not None:
            yield Comparison("pool", pool / GIB, available, "GiB")
        if observation.printed.fits is not False:
            yield from self._lines(block_plan, pool, "")

    def _buffers(self) -> Iterator[Comparison]:
        """llama.cpp prints the buffers of keys, values and states."""
        observation, printed = self.observation, self.observation.printed
        cells = printed.context_cells or observation.context_tokens
        if cells is None:
            self.excluded.append("buffers: the context is not stated")
            return
        if printed.kv_mib is not None:
            latent = any(isinstance(c, Latent) for group in self.model.layers for c in group.caches)
            if latent and printed.v_mib:
                self.excluded.append("buffers: run without MLA, with keys and values of every head")
            elif observation.kv_format is None:
                self.excluded.append("buffers: keys and values have different types")
            else:
                form = None if observation.kv_format in ("auto", "bf16") else self._kv_format()
                serving = Serving(1, sequences=observation.max_seqs or 1)
                found = plan(self.model, self.engine, serving=serving, kv_format=form)
                held = [term for term in found.profile.terms if term.kind != "state"]
                size = sum(
                    t.rate_bytes * -(-min(cells, t.cap_tokens) // t.step_tokens) + t.constant_bytes
                    for t in held
                )
                yield Comparison("buffers", size / MIB, printed.kv_mib, "MiB")
        if printed.state_mib is not None:
            found = plan(self.model, self.engine, serving=Serving(1))
            size = sum(term.constant_bytes for term in found.profile.terms if term.kind == "state")
            yield Comparison("states", size / MIB, printed.state_mib, "MiB")


def _prefix_caching(observation: Observation) -> bool | None:
    said = (observation.flags or "").lower()
    if re.search(r"prefix.caching'?:? (off|false)|no.enable.prefix", said):
        return False
    return True if re.search(r"enable.prefix.caching'?:? true|--enable-prefix-caching", said) else None


def _statistics(cases: tuple[Case, ...]) -> Iterator[Statistic]:
    found: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        scopes = ["all", f"engine: {case.engine}", f"family: {case.family}"]
        if case.complete:
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


def _starts(cases: tuple[Case, ...]) -> tuple[tuple[bool, bool, int], ...]:
    counts: dict[tuple[bool, bool], int] = {}
    for case in cases:
        if case.starts_predicted is not None and case.starts_observed is not None and case.complete:
            pair = (case.starts_predicted, case.starts_observed)
            counts[pair] = counts.get(pair, 0) + 1
    return tuple((*pair, count) for pair, count in sorted(counts.items(), reverse=True))


def _case_dict(case: Case) -> dict[str, Any]:
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
        "complete": case.complete,
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
