"""What would make a request fit that does not: one change each, or two where no single one is enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, Final

from kvreport.accounting.capacity import blocks
from kvreport.accounting.parallel import SERVER_DEVICES, Layout
from kvreport.accounting.shares import share_on
from kvreport.accounting.weights import weight_bytes
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.release import trait
from kvreport.errors import InputError
from kvreport.estimation.answer import REFUSED, STARTS, Estimate
from kvreport.estimation.estimate import answer
from kvreport.estimation.hardware import in_machines
from kvreport.estimation.named import as_declared, storable_on
from kvreport.estimation.request import Request

HOPELESS: Final = ("cache_exceeds_pool", "weights_exceed_memory", "may_fit", "max_seqs_exceeds_states")
"""Verdicts that a change can mend."""

_MORE_MEMORY: Final = 0.95
_SHORT_STEP: Final = 2048
_SENDS_TOKENS: Final = "deepep_high_throughput"
"""The exchange that sends tokens to their experts alone, where the default gathers those of all data ranks."""
_WORTH_CONVERTING: Final = 0.2
"""Share of the weights that another format must save: nobody converts MXFP4 to INT4 for less."""
_WEIGHTS: Final = ("fp8", "int4")
_KV: Final = ("fp8", "nvfp4")
_MOST_PAIRS: Final = 4
_SHORTEST_CONTEXT: Final = 1024
"""Tokens below which a shorter context is no advice: a prompt with an answer hardly fits into less."""

LEVERS: Final[dict[str, Any]] = {
    "verdicts": list(HOPELESS),
    "kv": list(_KV),
    "weights": list(_WEIGHTS),
    "saving": _WORTH_CONVERTING,
    "utilization": _MORE_MEMORY,
    "batched": _SHORT_STEP,
    "node": SERVER_DEVICES,
}
"""What :func:`remedies` tries, for the site's scripts, which try the same."""


@dataclass(frozen=True, slots=True)
class Lever:
    """One change that was tried."""

    # What is changed: ``context``, ``kv``, ``weights``, ``utilization``, ``steps``, ``all2all``, ``seqs``, ``eager``,
    # ``ranks``, ``layout``, ``gpu`` or ``engine``.
    lever: str
    flags: str  # The change as it is said on the command line.
    enough: bool  # True if one request fits with it.
    verdict: str | None  # The verdict with it; None where the combination is refused as a question.
    requests: int  # Whole requests that run at once with it.
    shortfall_bytes: int | None  # Bytes per GPU that one request still lacks; None where that is not known.
    reason: str = ""  # Why it is refused; empty where it is not.


@dataclass(frozen=True, slots=True)
class QuestionChange:
    """One change to a question."""

    axis: str  # What is changed.
    flags: str  # The change as it is said on the command line.
    request: Request  # The changed question.


def remedies(result: Estimate, kv_formats: Mapping[str, KvFormat]) -> tuple[Lever, ...]:
    """Find what would make one request fit where none does.

    Returns:
        Every single change that is enough, cheapest first: a shorter context, smaller formats, flags,
        more devices. Where none is, pairs of two that are, those with a shorter context first. Empty where
        the request fits.
    """
    if result.verdict not in HOPELESS or result.at_home:
        return ()
    single = list(changes(result, kv_formats))
    found = [made for change in single if (made := tried(change)).enough]
    if found:
        return tuple(found)
    shorter = [one for one in map(_shortened, single) if one is not None]
    for one, other in combinations(single, 2):
        if one.axis != other.axis:
            both = QuestionChange(
                f"{one.axis} {other.axis}", f"{one.flags} {other.flags}", _both(result.request, one, other)
            )
            if (made := tried(both)).enough:
                found.append(made)
    # A shorter context costs no hardware, so half the room is for it; the rest goes to whichever there are.
    kept = shorter[: max(_MOST_PAIRS // 2, _MOST_PAIRS - len(found))]
    return (*kept, *found[: _MOST_PAIRS - len(kept)])


def changes(result: Estimate, kv_formats: Mapping[str, KvFormat]) -> Iterator[QuestionChange]:
    """Yield every single change that the engine takes, cheapest first; arguments as for :func:`remedies`."""
    engine, support = result.request.engine, result.request.support
    ruled = () if support is None else support.ruling(engine.family, engine.version).rules.options
    refused_options = {name for rule in ruled if not rule.runs for name in rule.options}
    for change in _changes(result, kv_formats):
        if _OPTIONS.get(change.axis, change.axis) not in refused_options:
            yield change


_OPTIONS: Final = {
    "steps": "max_batched_tokens",
    "seqs": "max_seqs",
    "ranks": "tensor_parallel",
    "all2all": "all2all_backend",
}
"""The option of a question that a change states, where its name is another."""


def _changes(result: Estimate, kv_formats: Mapping[str, KvFormat]) -> Iterator[QuestionChange]:
    request = result.request
    longest = result.max_context_tokens
    if 0 < longest < request.context_tokens:
        yield QuestionChange("context", f"--context {longest}", replace(request, context_tokens=longest))
    for name in _KV:
        form = as_declared(kv_formats[name], request.model, kv_formats) if name in kv_formats else None
        if form and form.bits < request.kv_format.bits and storable_on(form, request.accelerator):
            yield QuestionChange("kv", f"--kv {name}", replace(request, kv_format=form))
    if request.kv_pool_bytes is None:
        for name in _WEIGHTS:
            smaller = request.formats.get(name)
            if smaller is not None and _saves(request, smaller) >= _WORTH_CONVERTING:
                yield QuestionChange("weights", f"--weights {name}", replace(request, weight_format=smaller))
        if request.engine.name != request.ceiling.name:
            yield from _shares(result)
            steps, engine = request.serving, request.case.rules
            tokens = max(_SHORT_STEP, engine.least_step(request.model))
            if steps.max_batched_tokens > tokens:
                _, rows = engine.scheduler(
                    request.accelerator, max_batched_tokens=tokens, max_seqs=steps.max_seqs
                )
                short = replace(steps, max_batched_tokens=tokens, max_seqs=rows)
                flags = f"--max-batched-tokens {tokens}"
                yield QuestionChange("steps", flags, replace(request, serving=short))
            layout, several = request.layout, trait(request.engine, "every_exchange")
            if several and layout.expert and layout.data > 1 and not layout.all_to_all:
                sent = replace(request, layout=replace(layout, all_to_all=_SENDS_TOKENS))
                yield QuestionChange("all2all", f"--all2all-backend {_SENDS_TOKENS}", sent)
            slots = int(blocks(result.budget.kv_pool_bytes, result.plan))
            wanted = None if result.deployment is None else result.deployment.state_slots_wanted
            if 0 < slots < (wanted or 0):
                fewer = replace(request.serving, max_seqs=slots)
                yield QuestionChange("seqs", f"--max-seqs {slots}", replace(request, serving=fewer))
            if not request.eager:
                yield QuestionChange("eager", "--eager", replace(request, eager=True))
    yield from _more_ranks(request)


def _more_ranks(request: Request) -> Iterator[QuestionChange]:
    """Twice the tensor ranks and so on to those of one machine, over as many machines as all the layout's devices need."""
    if request.case.replica:
        return  # unequal devices are those and no others
    device, query = request.accelerator, request.query
    nodes, network = (1, None) if query is None else (query.nodes, query.network_bandwidth)
    ranks = request.tensor_parallel * 2
    while ranks <= (device.devices_per_node or SERVER_DEVICES):
        layout = in_machines(replace(request.layout, tensor=ranks, nodes=nodes), device, [])
        if layout.nodes == 1 or network is not None or not device.is_confined:
            yield QuestionChange("ranks", *on_layout(request, layout, f"--tensor-parallel {ranks}"))
        ranks *= 2


def on_layout(request: Request, layout: Layout, flags: str) -> tuple[str, Request]:
    """Return the flags of a layout of other devices of the same kind, and the question with it.

    Where the devices were listed, or counted, the flags state the number that the layout takes.
    """
    if len(request.accelerators) == 1:
        return flags, replace(request, layout=layout)
    devices = (request.accelerator,) * layout.devices
    named = f"--gpu {layout.devices}x{request.accelerator.id}"
    return f"{named} {flags}", replace(request, layout=layout, accelerators=devices)


def _shares(result: Estimate) -> Iterator[QuestionChange]:
    """Less memory where what is asked for at start is not free, else more."""
    request = result.request
    share = _MORE_MEMORY
    if (result.start_shortage_bytes or 0) > 0:
        share = share_on(request.engine, request.accelerator, None)
    elif request.utilization >= share:
        return
    yield QuestionChange("utilization", f"--utilization {share:g}", replace(request, utilization=share))


def _saves(request: Request, smaller: WeightFormat) -> float:
    known, ranks = request.formats, request.tensor_parallel
    now = weight_bytes(request.model, request.weight_format, known, ranks)
    return 1 - weight_bytes(request.model, smaller, known, ranks) / now


def _both(request: Request, one: QuestionChange, other: QuestionChange) -> Request:
    """Apply what the second change changed on top of the first."""
    changed = {
        field.name: value
        for field in fields(Request)
        if (value := getattr(other.request, field.name)) is not getattr(request, field.name)
    }
    return replace(one.request, **changed)


def _shortened(change: QuestionChange) -> Lever | None:
    """A change that is not enough alone, with the longest context that fits then; None where nothing useful does."""
    try:
        longest = answer(change.request).max_context_tokens
    except InputError:
        return None
    if not _SHORTEST_CONTEXT <= longest < change.request.context_tokens:
        return None
    request = replace(change.request, context_tokens=longest)
    made = tried(QuestionChange(change.axis, f"{change.flags} --context {longest}", request))
    return made if made.enough else None


def tried(change: QuestionChange) -> Lever:
    """Answer a changed question, or say why it is refused."""
    try:
        result = answer(change.request)
    except InputError as error:
        return refused(change.axis, change.flags, error)
    enough = result.verdict in STARTS
    return Lever(
        lever=change.axis,
        flags=change.flags,
        enough=enough,
        verdict=result.verdict,
        requests=result.max_concurrent_requests if enough else 0,
        shortfall_bytes=result.shortfall_bytes,
        reason=result.verdict_reason if result.verdict in REFUSED else "",
    )


def refused(axis: str, flags: str, error: InputError) -> Lever:
    """A change that is refused as a question."""
    return Lever(axis, flags, enough=False, verdict=None, requests=0, shortfall_bytes=None, reason=str(error))
