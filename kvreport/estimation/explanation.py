"""The arithmetic of an estimate, line by line, with the numbers put in.

Every line is true of the numbers beside it: products are multiplied out from the same functions
that the estimate used, never retyped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from kvreport.accounting.capacity import Limit, beside
from kvreport.accounting.capacity import blocks as pool_blocks
from kvreport.accounting.kv_cache import (
    cache_terms,
    heads_per_rank,
    pair_bytes,
    state_tensor_bytes,
    vector_bytes,
)
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.state_types import with_precisions
from kvreport.accounting.weights import on_host
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    Shared,
    SlidingWindow,
)
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import LayerGroup, Model
from kvreport.estimation.answer import POSSIBLE, Estimate
from kvreport.estimation.conclusion import but_for, verdict_sentence
from kvreport.units import count, gib, human_bytes, human_parameters
from kvreport.words import CACHE_KINDS, COMPONENTS, LOADING, counted, format_name, noun_for

_FLOAT32_BYTES = 4


def explain(estimate: Estimate) -> Iterator[str]:
    """Yield the lines: cache, request, weights, budget, blocks, division, verdict; or the engine's own arithmetic."""
    if own := estimate.own_arithmetic:
        yield from own
        return
    request = estimate.request
    form, types = request.case.rules.stored(request.model, request.kv_format, request.accelerator)
    stored = with_precisions(request.model, types)
    yield from cache_lines(stored, form, request.tensor_parallel)
    yield _request_line(estimate)
    yield from _weight_lines(estimate)
    yield from _budget_lines(estimate)
    yield from _block_lines(estimate)
    yield from _offload_lines(estimate)
    yield from _input_lines(estimate)
    yield from _time_lines(estimate)
    if estimate.verdict_reason and estimate.verdict in POSSIBLE:
        yield estimate.verdict_reason
    yield verdict_sentence(estimate)


def cache_lines(model: Model, kv_format: KvFormat | None, tensor_parallel: int = 1) -> Iterator[str]:
    """Yield one line per layer group and cache: the formula, the numbers, the bytes."""
    for group in model.layers:
        if not group.caches:
            yield f"{_layers(group)} ({group.name}) cache nothing"
        for cache in group.caches:
            yield f"{group.name}: {_cache(group, cache, kv_format, tensor_parallel)}"


def _cache(group: LayerGroup, cache: Cache, kv_format: KvFormat | None, tensor_parallel: int) -> str:
    layers, number = _layers(group), group.count
    terms = cache_terms(cache, kv_format, tensor_parallel=tensor_parallel)
    rate = number * sum(term.rate_bytes for term in terms)
    constant = number * sum(term.constant_bytes for term in terms)
    match cache:
        case FullAttention() | SlidingWindow() | ChunkedAttention():
            heads = _heads(cache.kv_heads, tensor_parallel)
            widths = _widths(cache.key_dim, cache.value_dim, kv_format)
            end = ""
            if isinstance(cache, SlidingWindow):
                end = f", for the last {cache.window:,} tokens"
            elif isinstance(cache, ChunkedAttention):
                end = f", for at most {cache.chunk:,} tokens"
            return f"{layers} x {heads} x {widths} = {rate:,} B per token{end}"
        case Latent():
            dims = f"({cache.latent_dim} + {cache.rope_dim})"
            stored = rate // number
            elements = cache.latent_dim + cache.rope_dim
            plain = stored % elements == 0 and stored == vector_bytes(elements, kv_format)
            one = f"{dims} x {stored // elements} B" if plain else f"{stored:,} B per {dims}-wide latent"
            every = "per token" if cache.stride == 1 else f"per {cache.stride} tokens"
            end = f", for the last {cache.window:,} tokens" if cache.window else ""
            ranks = ", the same on every GPU" if tensor_parallel > 1 else ""
            return f"{layers} x {one} = {rate:,} B {every}{end}{ranks}"
        case Indexer():
            every = "per token" if cache.stride == 1 else f"per {cache.stride} tokens"
            ranks = ", the same on every GPU" if tensor_parallel > 1 else ""
            return f"{layers} x {rate // number} B per index key = {rate:,} B {every}{ranks}"
        case Ring():
            plain = rate // number == cache.elements_per_token * _FLOAT32_BYTES
            one = f"{cache.elements_per_token:,} x {_FLOAT32_BYTES} B" if plain else f"{rate // number:,} B"
            return f"compressor ring: {layers} x {one} = {rate:,} B per token, for the last {cache.window:,} tokens"
        case RecurrentState():
            parts = " + ".join(
                f"{state_tensor_bytes(tensor, tensor_parallel):,} B {tensor.name}" for tensor in cache.tensors
            )
            return f"{layers} x ({parts}) = {constant:,} B per request, at any length"
        case CrossAttention():
            heads = _heads(cache.kv_heads, tensor_parallel)
            widths = _widths(cache.key_dim, cache.value_dim, kv_format)
            return (
                f"{layers} x {heads} x {widths} x {cache.encoder_tokens:,} encoder tokens "
                f"= {constant:,} B per request"
            )
        case Shared():
            return f"{layers} read another layer's {cache.reads} cache: 0 B"


def _layers(group: LayerGroup) -> str:
    return counted(group.count, "layer|layers")


def _heads(heads: int, tensor_parallel: int) -> str:
    here = heads_per_rank(heads, tensor_parallel)
    noun = noun_for(here, "KV head|KV heads")
    if tensor_parallel == 1:
        return f"{here} {noun}"
    if tensor_parallel > heads:
        return f"{here} {noun} per GPU (of {heads}, replicated)"
    return f"{here} {noun} per GPU (of {heads})"


def _widths(key_dim: int, value_dim: int, kv_format: KvFormat | None) -> str:
    key = vector_bytes(key_dim, kv_format)
    value = pair_bytes(key_dim, value_dim, kv_format) - key
    if key % key_dim == 0 and key // key_dim * value_dim == value:
        return f"({key_dim} + {value_dim}) x {key // key_dim} B"
    return f"({key} B key + {value} B value)"


def _request_line(estimate: Estimate) -> str:
    tokens = estimate.request.context_tokens
    held = int(estimate.held.request_bytes(tokens))
    reserved = estimate.kv_bytes_per_request_per_gpu
    label = estimate.request.engine.label
    also = f"; {label} reserves {reserved:,} B for the request" if reserved != held else ""
    state = estimate.state_bytes_per_request_per_gpu
    constant = f", including {state:,} B at any length" if state else ""
    return (
        f"one request of {tokens:,} tokens takes {held:,} B ({human_bytes(held)}){constant}; each "
        f"additional token adds {estimate.kv_bytes_per_token_per_gpu:,} B{also}"
    )


def _weight_lines(estimate: Estimate) -> Iterator[str]:
    parameters = estimate.parameters
    request = estimate.request
    active = (
        f", {human_parameters(parameters['active'])} active per token"
        if parameters["active"] != parameters["total"]
        else ""
    )
    yield (
        f"weights: {parameters['total']:,} parameters ({human_parameters(parameters['total'])}{active}) "
        + (
            f"as {request.weight_format_name}"
            if request.weight_format is not None
            else f"in {request.model.weight_words}"
            if request.model.is_unread
            else request.model.weight_words
        )
        + f" = {estimate.weight_bytes_per_gpu:,} B ({gib(estimate.weight_bytes_per_gpu)} GiB) per GPU"
        + (" at most" if estimate.by_name else "")
    )
    kept = on_host(request.engine, request.model, request.accelerator)
    tables = sum(row.count * math.prod(row.shape) for row in request.model.weights if row.name in kept)
    if tables:
        yield (
            f"{tables:,} of these parameters ({human_parameters(tables)}) are tables of hashed n-grams in host memory, "
            "and are not part of these bytes"
        )
    if estimate.optimistic is not None:
        least = estimate.optimistic.weight_bytes_per_gpu
        yield (
            f"with every layer in {format_name(request.model.weight_format)}: {least:,} B ({gib(least)} GiB) per GPU. A copy may "
            "keep some wider: what follows counts with the most, and requests are a range"
        )
    for component, size in sorted(
        estimate.weights_by_component.items(), key=lambda item: (-item[1], item[0])
    ):
        yield f"  {COMPONENTS.get(component, component)}: {size:,} B"
    for purpose, size in sorted(estimate.loading_bytes.items(), key=lambda item: (-item[1], item[0])):
        yield f"  added during loading, {LOADING.get(purpose, purpose.replace('_', ' '))}: {size:,} B"


def _budget_lines(estimate: Estimate) -> Iterator[str]:
    limits, request = estimate.budget, estimate.request
    if request.kv_pool_bytes is not None:
        yield f"pool: {limits.kv_pool_bytes:,} B per GPU, as given"
        return
    total, share = limits.total_bytes, limits.utilization
    if request.engine.utilization_of == "memory_less_weights":
        yield (
            f"pool: ({total:,} B usable - {limits.weights:,} B weights) x {share:g} "
            f"= {limits.kv_pool_bytes:,} B ({gib(limits.kv_pool_bytes)} GiB) per GPU"
        )
        return
    parts = (
        ("weights", limits.weights),
        ("activations", limits.activations),
        ("non-framework", limits.non_framework),
        ("graphs", limits.graphs),
    )
    taken = "".join(f" - {size:,} B {name}" for name, size in parts if size)
    yield (
        f"pool: {total:,} B usable x {share:g}{taken} "
        f"= {limits.kv_pool_bytes:,} B ({gib(limits.kv_pool_bytes)} GiB) per GPU"
        + ("" if limits.kv_pool_bytes else "; nothing is left")
    )
    if estimate.band_bytes:
        yield (
            f"activations (including memory outside PyTorch) and graphs are estimates for {request.engine.label}; "
            f"the uncertainty of the pool is ± {gib(estimate.band_bytes)} GiB{but_for(estimate)}"
        )
    if estimate.optimistic is not None:
        pool = estimate.optimistic.budget.kv_pool_bytes
        yield f"with every layer in {format_name(request.model.weight_format)}, the pool is {gib(pool)} GiB"


def _offload_lines(estimate: Estimate) -> Iterator[str]:
    """What host memory for blocks adds, and what it does not."""
    size, tokens = estimate.request.kv_offload_bytes, estimate.offloaded_tokens
    if not size:
        return
    asked = estimate.request.context_tokens
    holds = (
        ""
        if tokens is None
        else f" holds {count(tokens)} tokens ({count(tokens // asked)} requests of {count(asked)})"
    )
    yield (
        f"host memory of {gib(size)} GiB{' per data-parallel rank' * (estimate.request.layout.data > 1)}{holds} that the pool gives up: a later request with "
        "the same beginning reads them back and skips their prefill; no more requests run at once"
    )
    ranks = estimate.request.layout.tensor * estimate.request.layout.pipeline
    if estimate.deployment is not None and ranks > 1:
        yield (
            f"one copy of the blocks in host memory serves all {ranks} tensor ranks"
            if estimate.deployment.host_memory.copies == 1
            else f"the {ranks} ranks divide that host memory, and each keeps its own blocks in it"
        )
    if shared := estimate.shared_memory_bytes:
        yield f"these blocks are in /dev/shm, which needs {gib(shared)} GiB on each node (--shm-size of a container)"
    yield (
        f"that is the offload of {estimate.request.engine.label} itself, which keeps blocks as they are on the GPU"
    )
    yield "a store such as LMCache can take several times the bytes of a token where a model has windows or states"


def _cut(at_once: float) -> str:
    """Two digits, cut off: 15.998 requests are 15, and are not printed as 16."""
    return f"{math.floor(at_once * 100) / 100:.2f}"


def _printed_otherwise(plan: BlockPlan, at_once: float | None, label: str) -> str:
    if plan.printed is None or at_once is None:
        return ""
    return (
        f"{_cut(at_once)} is the concurrency that {label} prints: its line counts bytes, in pages of "
        f"{plan.first_page_bytes:,} B"
    )


def _fewest(estimate: Estimate, own: float) -> tuple[float, str]:
    """How many requests the rank with the fewest holds, and a line if it is not the fullest one, of which ``own`` is."""
    tokens, found = estimate.request.context_tokens, (own, "")
    for one in () if estimate.deployment is None else estimate.deployment.others:
        pool, plan = one.budget.kv_pool_bytes, one.plan
        if not plan.block_bytes:  # A stage of layers that cache nothing.
            continue
        blocks = int(pool_blocks(pool, plan))
        each = int(plan.profile.request_bytes(tokens)) // plan.block_bytes
        layers = one.case.stage_of and one.case.stage_of[1]
        where = f"the stage of layers {layers.start} to {layers.stop - 1}" if layers else "another rank"
        most = beside(pool, plan, tokens)
        if each and blocks / each < found[0]:
            found = (
                blocks / each,
                (
                    f"{where} holds fewer: {pool:,} B / {plan.block_bytes:,} B per block = {blocks:,} whole blocks; "
                    f"{blocks:,} / {each:,} = {_cut(blocks / each)} requests at once"
                ),
            )
        if most is not None and int(most) < math.floor(found[0]):
            found = (
                int(most),
                f"{where} holds fewer: its pools for states and windows allow {int(most):,} requests",
            )
    return found


def _if_told(estimate: Estimate, there: int) -> tuple[bool, str]:
    """Whether the engine is told more than it holds, which fewer would mend, and a line where pools follow the number."""
    held = estimate.max_concurrent_requests_by_memory // estimate.request.layout.data
    told = None if estimate.deployment is None else estimate.deployment.max_requests
    fewer = there < min(held, told or 0)
    if estimate.plan.pool is None or held == there:
        return fewer, ""
    return fewer, (
        f"if {estimate.request.engine.label} is set to run {'fewer' if fewer else 'more'} requests at once, it "
        + (
            "sets aside states for fewer"
            if fewer
            else "takes states or rings of each request from the tokens"
            if held < there
            else "makes those pools larger"
        )
        + f": memory then allows {held:,}"
    )


def _block_lines(estimate: Estimate) -> Iterator[str]:
    plan, fewer = estimate.plan, False
    reserved = estimate.kv_bytes_per_request_per_gpu
    tokens = estimate.request.context_tokens
    each = int(plan.profile.request_bytes(tokens))
    label, ranks = estimate.request.engine.label, estimate.request.layout.data
    # All lines are of one data-parallel rank.
    at_once = None if estimate.max_concurrency is None else estimate.max_concurrency / ranks
    if plan.block_bytes > 1:
        for group, times in Counter(plan.groups).items():
            yield (
                f"{label}: {f'{times} x ' if times > 1 else ''}{group.layers} {CACHE_KINDS[group.kind]} caches in blocks of "
                f"{group.block_tokens:,} tokens, {group.page_bytes:,} B per block"
            )
        laid_out = estimate.kv_bytes_per_token_reserved_per_gpu
        if laid_out != estimate.kv_bytes_per_token_per_gpu:
            yield f"{label}: at this length, each additional token reserves {laid_out:,} B on average, in whole blocks"
        total = int(pool_blocks(estimate.budget.kv_pool_bytes, plan))
        each_blocks = each // plan.block_bytes
        divided = (
            f"{estimate.budget.kv_pool_bytes:,} B / {plan.block_bytes:,} B per block = {total:,} whole blocks"
        )
        if plan.pool is not None:
            divided = f"of {estimate.budget.kv_pool_bytes:,} B, {total:,} blocks of {plan.block_bytes:,} B are for tokens"
        noun = "block" if each_blocks == 1 else "blocks"
        yield f"{label}: {divided}; one request of {tokens:,} tokens takes {each_blocks:,} {noun} ({each:,} B)"
        if reserved > each:
            yield f"{label}: windows and states of that request take {reserved - each:,} B in separate pools"
        most = beside(estimate.budget.kv_pool_bytes, plan, tokens)
        if most is not None and each_blocks * int(most) <= total:
            yield (
                f"other pools allow {int(most):,} requests at once, "
                f"fewer than the {total // each_blocks:,} of the blocks"
            )
        elif at_once is not None:
            yield (
                f"{total:,} / {each_blocks:,} = {_cut(total / each_blocks)} requests at once"
                + (
                    "; the engine keeps 1 block for itself, and "
                    f"{counted((total - 1) // each_blocks, 'whole request fits|whole requests fit')} in the others"
                    if plan.kept_blocks == 1
                    else ""
                )
            )
        own = total / each_blocks if each_blocks else 0
        at_most, elsewhere = _fewest(estimate, own if most is None else min(own, int(most)))
        fewer, if_told = _if_told(estimate, math.floor(at_most))
        printed = _printed_otherwise(plan, at_once, label)
        yield from filter(None, (elsewhere, printed, if_told))
    elif each and at_once is not None:
        yield (
            f"{estimate.budget.kv_pool_bytes:,} B / {each:,} B per request of {tokens:,} tokens "
            f"= {_cut(at_once)} requests at once"
        )
    else:
        yield "requests hold no cache, so memory never limits their number"
    yield from plan.notes
    if ranks > 1:
        yield f"{ranks} data-parallel ranks with separate pools: {ranks} times as many requests"
    seqs = estimate.request.serving.max_seqs
    if estimate.limited_by == Limit.MAX_NUM_SEQS.label and not fewer:
        yield (
            f"{label}'s scheduler runs at most {count(seqs)} requests at once here, "
            "whatever memory allows (max-seqs)"
        )


def _input_lines(estimate: Estimate) -> Iterator[str]:
    """Tokens of the images and audio clips that a prompt may bring, where their number is stated."""
    told = estimate.inputs_per_prompt()
    for kind, noun, size in (("image", "image|images", "largest"), ("audio", "clip|clips", "longest")):
        number, each = (told["limits"] or {}).get(kind), told[f"tokens_per_{size}_{kind}"]
        if number and each:
            yield (
                f"{kind}: {counted(number, noun)} per prompt: at most {number * each:,} tokens, {each:,} for the {size}"
            )


def _time_lines(estimate: Estimate) -> Iterator[str]:
    step, first = estimate.decode_ms_lower_bound, estimate.prefill_ms_lower_bound
    if step is None or first is None:
        return
    users = estimate.max_concurrent_requests
    yield (
        f"at the peak rates of the data sheet, one decode step of {counted(users, 'such request|such requests')} takes "
        f"at least {step:,.1f} ms and the prefill of one prompt at least {first:,.0f} ms"
    )
