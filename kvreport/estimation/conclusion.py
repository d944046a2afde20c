"""What an estimate concludes, in sentences: whether it starts, how many requests run, what else a context would hold."""

from __future__ import annotations

from collections import Counter

from kvreport.accounting.capacity import UNLIMITED_USERS, Limit, Verdict
from kvreport.accounting.capacity import blocks as pool_blocks
from kvreport.accounting.shares import asked_memory
from kvreport.catalog.release import unread_words
from kvreport.estimation.answer import REFUSED, AtContext, Estimate
from kvreport.estimation.not_followed import open_terms
from kvreport.estimation.request import Request
from kvreport.units import count, gib, human_tokens
from kvreport.words import counted, noun_for


def headline(estimate: Estimate) -> str:
    """The conclusion in one sentence: ``14 requests at 32K fit on one H100 SXM 80GB``."""
    request = estimate.request
    begun = f"{unread_words(request.engine, request.release_read)}{estimate.engine_words}"
    return f"{begun}{_conclusion(estimate)}{but_for(estimate)}{estimate.outgrows}"


def _conclusion(estimate: Estimate) -> str:
    request = estimate.request
    devices = deployment_words(request)
    context = human_tokens(request.context_tokens)
    if (estimate.start_shortage_bytes or 0) > 0:
        word = "does" if estimate.verdict == Verdict.CACHE_EXCEEDS_POOL.label else "may"
        return f"{request.engine.label} {word} not start on {devices}: {start_sentence(estimate)}"
    match estimate.verdict:
        case Verdict.WEIGHTS_EXCEED_MEMORY.label:
            return f"{request.model.name} does not fit on {devices}: {estimate.too_large}"
        case Verdict.CACHE_EXCEEDS_POOL.label:
            if not estimate.kv_bytes_per_request_per_gpu:
                return (
                    f"{request.model.name} does not fit on {devices}: weights and activations exceed the usable "
                    f"memory by {gib(estimate.shortfall_bytes)} GiB per GPU"
                )
            longest = estimate.max_context_tokens
            rest = f"a request of {longest:,} tokens does" if longest else "nothing is left for the cache"
            return f"No request of {context} fits on {devices}; {rest}"
        case Verdict.ENGINE_DOES_NOT_RUN.label | Verdict.FORMAT_NOT_SUPPORTED.label:
            return f"{request.model.name} does not run on {devices}: {estimate.verdict_reason}"
        case Verdict.MAY_FIT.label if estimate.optimistic and estimate.optimistic.max_concurrent_requests:
            return (
                f"{request.model.name} at {context} may fit on {devices}: {open_mix(estimate)}, so "
                f"{requests_between(estimate)}"
            )
        case Verdict.MAY_FIT.label:
            mix = f"; {open_mix(estimate)}" if estimate.by_name else ""
            return (
                f"{request.model.name} at {context} may not fit on {devices}: short by "
                f"{gib(estimate.shortfall_bytes)} GiB, which is within the error of the estimate{mix}"
            )
        case Verdict.MAX_SEQS_EXCEEDS_STATES.label:
            slots = _between(_state_slots(estimate), _state_slots(estimate.optimistic or estimate))
            mix = f"; {open_mix(estimate)}" if estimate.by_name else ""
            return (
                f"{request.engine.label} does not start on {devices}: max-num-seqs {request.serving.max_seqs:,} "
                f"exceeds the {slots} blocks for recurrent states{mix}"
            )
        case Verdict.CONTEXT_EXCEEDS_MODEL.label:
            held = estimate.max_concurrent_requests_by_memory
            kept = f"memory would hold {counted(held, 'request|requests', count(held))} at {context} on {devices}"
            if held >= UNLIMITED_USERS:
                kept = "it has no KV cache, so memory does not limit its requests"
            return f"{request.model.name} supports at most {human_tokens(request.model.context_tokens)} tokens; {kept}"
    least, most = estimate.range_of("max_concurrent_requests")
    if estimate.max_concurrent_requests_by_memory >= UNLIMITED_USERS:
        # A number of requests would be the scheduler's alone, whatever the memory.
        return (
            f"No KV cache: {request.model.name} fits on {devices} with {gib(estimate.weight_bytes_per_gpu)} GiB of "
            f"weights and {gib(estimate.budget.activations)} GiB of activations per GPU, and memory limits no number "
            "of requests"
        )
    other = _other_context(estimate)
    beside = (
        f" ({_between(*estimate.range_at(other, 'max_concurrent_requests'))} at "
        f"{human_tokens(other.context_tokens)})"
        if other
        else ""
    )
    noun = "request" if most == 1 else "requests"
    limit = ""
    if estimate.limited_by == Limit.MAX_NUM_SEQS.label:
        held = estimate.max_concurrent_requests_by_memory
        limit = f", limited by {estimate.most_requests_flag} (the pool of this start holds {count(held)})"
    mix = f"; {open_mix(estimate)}" if estimate.by_name else ""
    return f"{_between(least, most)} {noun} at {context} {estimate.runs_on(devices)}{beside}{limit}{mix}"


def open_mix(estimate: Estimate) -> str:
    """What the name of a copy leaves open: ``by its name, weights are 16.7 to 28.0 GiB``."""
    least, most = estimate.range_of("weight_bytes_per_gpu")
    return f"by its name, weights are {gib(least)} to {gib(most)} GiB per GPU"


def requests_between(estimate: Estimate) -> str:
    """Requests at once from the widest layers to the narrowest: ``0 to 13 requests``."""
    least, most = estimate.range_of("max_concurrent_requests")
    return f"{_between(least, most)} {noun_for(most, 'request fits|requests fit')}"


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def start_sentence(estimate: Estimate) -> str:
    """What the engine asks for at start, and what is free then."""
    request, device = estimate.request, estimate.request.accelerator
    free, less, more = device.free_at_start
    asked = asked_memory(request.engine, device.usable_bytes, request.utilization)
    return (
        f"at start {request.engine.label} asks for {request.utilization:g} of {gib(device.usable_bytes)} GiB "
        f"({gib(asked)} GiB), and {gib(free)} GiB ({gib(free - less)} to {gib(free + more)}) are free on "
        f"{device.name} then"
        + (f", where other processes hold {gib(request.held_bytes)} GiB" if request.held_bytes else "")
    )


def deployment_words(request: Request) -> str:
    """``one H100 SXM 80GB``, ``8 x H200 (dp8-ep)``, ``4 x DGX Spark in 4 machines`` or ``H100 + A100``."""
    layout, names = request.layout, [one.name for one in request.accelerators]
    if len(set(names)) > 1:
        return " + ".join(
            f"{number} x {name}" if number > 1 else name for name, number in Counter(names).items()
        )
    words = device_words(layout.devices, names[0])
    if layout.nodes > 1:
        each = layout.devices // layout.nodes
        words += f" in {layout.nodes} machines" + (f" of {each}" if each > 1 else "")
    return words if layout.is_tensor_only else f"{words} ({layout.label})"


def device_words(devices: int, name: str) -> str:
    """``one H100 SXM 80GB`` or ``4 x H100 SXM 80GB``."""
    return f"one {name}" if devices == 1 else f"{devices} x {name}"


def _state_slots(estimate: Estimate) -> int:
    return int(pool_blocks(estimate.budget.kv_pool_bytes, estimate.plan))


def but_for(estimate: Estimate) -> str:
    """What the error band leaves out, where options are not followed; empty where none changes the memory."""
    if estimate.verdict in REFUSED:
        return ""
    terms = open_terms(estimate.request.not_followed)
    return f", but for what is not followed of: {', '.join(terms)}" if terms else ""


def verdict_sentence(estimate: Estimate) -> str:
    """What the verdict means here, in one sentence, with the parts of the memory that are not known."""
    return f"{_verdict_sentence(estimate)}{but_for(estimate)}{estimate.outgrows}"


def beyond_limit(request: Request) -> str:
    """Say that the model's limit is shorter than the context that was asked for."""
    model = request.model
    return f"{model.name} supports {model.context_tokens:,} tokens, but {request.context_tokens:,} were requested"


def _verdict_sentence(estimate: Estimate) -> str:
    request = estimate.request
    context = human_tokens(request.context_tokens)
    if estimate.start_shortage_bytes is not None:
        return f"{estimate.verdict}: {start_sentence(estimate)}"
    match estimate.verdict:
        case Verdict.FITS.label:
            if not estimate.kv_bytes_per_request_per_gpu:
                return "fits: the model keeps no cache, and its weights and activations certainly fit"
            return f"fits: one request of {context} fits even at the low end of the pool's error band"
        case Verdict.TIGHT.label:
            if not estimate.kv_bytes_per_request_per_gpu:
                return (
                    "tight: the model keeps no cache; weights and activations leave less of the usable memory "
                    f"than the uncertainty of {gib(estimate.band_bytes)} GiB"
                )
            least = f", but not one smaller by its uncertainty of {gib(estimate.band_bytes)} GiB"
            known = "" if but_for(estimate) or estimate.outgrows else least
            return f"tight: one request of {context} fits the estimated pool{known}"
        case Verdict.ENGINE_DOES_NOT_RUN.label | Verdict.FORMAT_NOT_SUPPORTED.label:
            return f"{estimate.verdict}: {estimate.verdict_reason}"
        case Verdict.CONTEXT_EXCEEDS_MODEL.label:
            return f"context_exceeds_model: {beyond_limit(request)}"
        case Verdict.CACHE_EXCEEDS_POOL.label:
            if not estimate.kv_bytes_per_request_per_gpu:
                return (
                    "cache_exceeds_pool: the model keeps no cache, and weights and activations exceed the usable "
                    f"memory by {gib(estimate.shortfall_bytes)} GiB per GPU"
                )
            return (
                f"cache_exceeds_pool: one request of {context} takes "
                f"{gib(estimate.kv_bytes_per_request_per_gpu)} GiB, the pool has "
                f"{gib(estimate.budget.kv_pool_bytes)} GiB; the longest that fits has "
                f"{estimate.max_context_tokens:,} tokens"
            )
        case Verdict.MAY_FIT.label:
            return _may_fit_sentence(estimate, context)
        case Verdict.MAX_SEQS_EXCEEDS_STATES.label:
            return (
                f"max_seqs_exceeds_states: {request.engine.label} needs a block for each of "
                f"{request.serving.max_seqs:,} sequences, but the pool has {_state_slots(estimate):,}; lower max-seqs "
                "to that number, or raise the memory share"
            )
        case _:
            return (
                f"weights_exceed_memory: the weights take {gib(estimate.budget.weights)} GiB per GPU of "
                f"{gib(estimate.budget.total_bytes)} GiB usable; use more GPUs or a smaller weight format"
            )


def _may_fit_sentence(estimate: Estimate, context: str) -> str:
    short = f"may_fit: one request of {context} is short by {gib(estimate.shortfall_bytes)} GiB per GPU"
    if estimate.optimistic is None:
        return (
            f"{short}, less than the estimate's uncertainty of {gib(estimate.budget.uncertainty_bytes)} GiB"
        )
    fits = estimate.optimistic.max_concurrent_requests
    return (
        f"{short} with the widest layers; with every layer in {estimate.request.model.weight_format}, "
        f"{counted(fits, 'request fits|requests fit', count(fits))}"
    )


def _other_context(estimate: Estimate) -> AtContext | None:
    """A second context for the headline: 8K, or 32K if 8K was asked for; none that says one request once more."""
    wanted = 8192 if estimate.request.context_tokens != 8192 else 32768
    least = 1 if estimate.max_concurrent_requests == 1 else 0
    return next(
        (
            row
            for row in estimate.by_context
            if row.context_tokens == wanted and row.max_concurrent_requests > least
        ),
        None,
    )
