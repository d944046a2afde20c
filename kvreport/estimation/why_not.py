"""Why a request does not fit, and what would change it, as a structure: the waterfall, the levers, published logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kvreport.accounting.parallel import allowed_tensor_parallel
from kvreport.accounting.shares import asked_memory
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation, load_observations
from kvreport.errors import InputError
from kvreport.estimation.answer import REFUSED, Estimate
from kvreport.estimation.estimate import partitioned
from kvreport.estimation.remedies import HOPELESS, Lever, QuestionChange, changes, refused, tried
from kvreport.estimation.request import Request, resolve
from kvreport.query import Query

_SERVERS: Final = ("vllm", "sglang")
"""Engines that are tried in one another's place."""

_MOST_LOGS: Final = 8
_LARGER: Final = 1.2
"""How much more memory makes an accelerator the next larger one; A100 and H100 of 80 GB differ by less."""


@dataclass(frozen=True, slots=True)
class WaterfallStep:
    """One step of the waterfall, bytes per GPU; what is taken is negative."""

    # ``usable``, ``not_free`` and ``asked`` (where the start is refused for them), ``not_taken``,
    # ``weights``, ``load_overhead``, ``activations``, ``non_framework``, ``graphs``, ``kv_pool`` (what is
    # left), ``request`` or ``state_slots``, ``short``.
    term: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PublishedLog:
    """What somebody's engine printed for the same model, or one with its shapes, on the same accelerator."""

    id: str  # The observation's id.
    model: str  # The checkpoint that it was printed for: the model's own, or one of its shapes.
    engine: str  # Engine and release as the source names them.
    devices: int | None  # How many accelerators.
    starts: bool | None  # Whether it started; None if the source does not say.
    pool_gib: float | None  # The KV pool that it printed, in GiB; None if it printed none.
    kv_tokens: int | None  # The KV tokens that it printed; None if it printed none.
    context_tokens: int | None  # The longest request that it was told to take; None if not stated.
    url: str | None  # Where it can be read; None if it has no address.


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why one request does not fit."""

    verdict: str  # The verdict of the answer.
    reason: str  # What the release refuses; empty where memory decides.
    shortfall_bytes: int  # Bytes per GPU that one request lacks.
    uncertainty_bytes: int  # Half width of the pool's error band.
    waterfall: tuple[WaterfallStep, ...]  # From usable memory to what is short, term by term.
    levers: tuple[Lever, ...]  # Every change that was tried, with its result.
    # Published logs of the same model, or of one with its shapes, on the same accelerator.
    logs: tuple[PublishedLog, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints under ``why_not``."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def why_not(result: Estimate, catalog: Catalog) -> WhyNot | None:
    """Say why an estimate does not fit and try what could change it; None where it fits."""
    if result.verdict not in (*HOPELESS, *REFUSED) or result.at_home:
        return None
    return WhyNot(
        verdict=result.verdict,
        reason=result.verdict_reason if result.verdict in REFUSED else "",
        shortfall_bytes=result.shortfall_bytes,
        uncertainty_bytes=result.budget.uncertainty_bytes,
        waterfall=waterfall(result),
        levers=tuple(_levers(result, catalog)),
        logs=tuple(logs(result, load_observations(catalog.folder))),
    )


def waterfall(result: Estimate) -> tuple[WaterfallStep, ...]:
    """The budget of the fullest device, term by term; the terms from ``usable`` to ``graphs`` add up to the pool.

    A pool that weights and reserve overdraw is negative here.
    """
    budget, request = result.budget, result.request
    short = result.start_shortage_bytes
    if short is not None:
        free = request.accelerator.free_at_start[0]
        asked = asked_memory(request.engine, budget.total_bytes, request.utilization)
        return (
            WaterfallStep("usable", budget.total_bytes),
            WaterfallStep("not_free", free - budget.total_bytes),
            WaterfallStep("asked", -asked),
            WaterfallStep("short", -short),
        )
    overhead = sum(result.loading_bytes.values())
    taken = [("weights", budget.weights - overhead), ("load_overhead", overhead)]
    taken += [
        ("activations", budget.activations),
        ("non_framework", budget.non_framework),
        ("graphs", budget.graphs),
    ]
    if request.kv_pool_bytes is not None:
        terms, pool = [], request.kv_pool_bytes
    else:
        memory = asked_memory(request.engine, budget.total_bytes, request.utilization)
        if not result.kv_bytes_per_request_per_gpu:
            memory = budget.total_bytes  # no pool is made, so no share of the memory is held back
        terms = [
            WaterfallStep("usable", budget.total_bytes),
            WaterfallStep("not_taken", memory - budget.total_bytes),
        ]
        terms += [WaterfallStep(name, -size) for name, size in taken]
        pool = sum(one.size_bytes for one in terms)
    wanted = "state_slots" if result.verdict == "max_seqs_exceeds_states" else "request"
    needed = pool + result.shortfall_bytes
    return (
        *(one for one in terms if one.size_bytes or one.term == "usable"),
        WaterfallStep("kv_pool", pool),
        WaterfallStep(wanted, -needed),
        WaterfallStep("short", -result.shortfall_bytes),
    )


def logs(result: Estimate, observations: Iterable[Observation]) -> Iterator[PublishedLog]:
    """Published logs of the same model on the same accelerator, those of as many devices first."""
    request = result.request
    alike = [
        one for one in observations if one.gpu == request.accelerator.id and is_about(one, request.model)
    ]
    alike.sort(key=lambda one: ((one.devices or 1) != request.layout.devices, one.id))
    yield from map(published, alike[:_MOST_LOGS])


def is_about(observation: Observation, model: Model) -> bool:
    """Whether an observation is of a model, or of one with its shapes."""
    return bool({observation.model_id, observation.shapes_of} & {model.id, *model.aliases})


def published(observation: Observation) -> PublishedLog:
    """What an observation says, in short."""
    printed = observation.printed
    told = (printed.kv_tokens, printed.available_kv_gib, printed.max_concurrency)
    started = True if any(figure is not None for figure in told) else None
    return PublishedLog(
        id=observation.id,
        model=observation.model_id or observation.model,
        engine=" ".join(filter(None, (observation.engine, observation.engine_version))),
        devices=observation.devices,
        starts=started if printed.fits is None else printed.fits,
        pool_gib=printed.available_kv_gib,
        kv_tokens=printed.kv_tokens,
        context_tokens=observation.context_tokens,
        url=observation.origin.url,
    )


def _levers(result: Estimate, catalog: Catalog) -> Iterator[Lever]:
    """The changes that the remedies try, then other layouts, the next larger GPU, other engines.

    What replaces a device, a layout or an engine is asked anew: their defaults and refusals follow from the question.
    """
    if result.verdict in HOPELESS:
        yield from map(tried, changes(result, catalog.kv_formats))
    query = result.request.query
    if query is None or result.request.case.replica:
        return
    yield from _layouts(result.request, query, catalog)
    yield from _next_gpus(result.request, query, catalog)
    others = dict.fromkeys(_SERVERS)
    others.pop(result.request.engine.family, None)
    for family in others:
        if family in catalog.engines:
            yield _asked("engine", f"--engine {family}", query, catalog, engine=family)


def _asked(axis: str, flags: str, query: Query, catalog: Catalog, **changed: Any) -> Lever:  # noqa: ANN401 - fields of Query
    try:
        request = partitioned(resolve(replace(query, **changed), catalog))
    except InputError as error:
        return refused(axis, flags, error)
    return tried(QuestionChange(axis, flags, request))


def _layouts(request: Request, query: Query, catalog: Catalog) -> Iterator[Lever]:
    """Data-parallel attention with whole experts on the devices of one server; pipeline stages over two."""
    model, device = request.model, request.accelerator
    node = device.devices_per_node or 1
    if node == 1:
        return

    def laid_out(devices: int, flags: str, **layout: Any) -> Lever:  # noqa: ANN401 - fields of Query
        gpu: dict[str, Any] = {}
        if len(request.accelerators) > 1:
            gpu = {"gpu": f"{devices}x{device.id}"}
            flags = f"--gpu {gpu['gpu']} {flags}"
        whole = {"decode_context_parallel": 1, "pipeline_partition": None}
        return _asked("layout", flags, query, catalog, **gpu, **whole, **layout)

    if model.experts is not None and not request.layout.expert:
        yield laid_out(
            node,
            f"--data-parallel {node} --expert-parallel",
            tensor_parallel=None,
            pipeline_parallel=1,
            data_parallel=node,
            expert_parallel=True,
            nodes=1,
        )
    widest = max(size for size in allowed_tensor_parallel(model, node) if node % size == 0)
    if request.layout.pipeline == 1 and not device.is_confined:
        yield laid_out(
            2 * widest,
            f"--tensor-parallel {widest} --pipeline-parallel 2 --nodes 2",
            tensor_parallel=widest,
            pipeline_parallel=2,
            data_parallel=1,
            expert_parallel=False,
            nodes=2,
        )


def _next_gpus(request: Request, query: Query, catalog: Catalog) -> Iterator[Lever]:
    """The smallest larger accelerator of the same maker that clouds rent out and that is enough, else the largest."""
    own = request.accelerator
    larger = sorted(
        (
            one
            for one in catalog.accelerators.values()
            if one.vendor == own.vendor
            and one.is_commonly_rented
            and one.usable_bytes > own.usable_bytes * _LARGER
        ),
        key=lambda one: (one.usable_bytes, one.id),
    )
    named = len(request.accelerators)
    many = "" if named == 1 else f"{named}x"
    lever = None
    for one in larger:
        gpu = f"{many}{one.id}"
        lever = _asked("gpu", f"--gpu {gpu}", query, catalog, gpu=gpu)
        if lever.enough:
            break
    if lever is not None:
        yield lever
