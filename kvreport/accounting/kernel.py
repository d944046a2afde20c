"""The scalar formulas that Python and the browser share, each written once.

The functions here are plain Python on ints and floats, without numpy and without classes that
compute. :mod:`kvreport.publish.javascript` translates this file to JavaScript when the site is
built, so the pages evaluate the same source. The array versions in :mod:`~kvreport.accounting.capacity`,
:mod:`~kvreport.accounting.sizing` and :mod:`~kvreport.accounting.roofline` are held equal to it by
``tests/property/test_kernel.py``, and so is the JavaScript.

Rules of the subset, which the translator enforces:

* statements: assignment, ``if``, ``while``, ``for`` over a sequence or ``range``, ``return``;
* expressions: arithmetic, comparison, ``and``/``or``/``not``, calls of functions of this file, of
  ``min``, ``max``, ``abs``, ``int``, ``round``, ``len`` and of ``math``'s ``ceil``, ``floor``, ``log2``, ``isnan``;
* a condition is a comparison, a call or a ``bool``: truthiness differs between the languages;
* arguments of ``min`` and ``max`` are never NaN, and no divisor is 0: the languages differ there, too.

JavaScript has one kind of number. An integer stays exact below 2^53, and so does the floor of a
quotient of two such integers; every size in bytes of one device is below it.

Units: sizes are bytes on one device, lengths are tokens, times are seconds. Where a function does not say otherwise:

* ``total`` is the memory of a device, ``usable`` what a process can use of it, ``memory`` what the engine may take,
  ``weights`` those loaded, ``reserve`` what it keeps beside them and the cache;
* ``pool`` is what is left (:func:`room_left`, or the budget of a ``rule``), ``error`` half its error band, ``block`` the bytes
  of a block or page, ``kept`` the blocks that the engine keeps for itself;
* ``request`` is the bytes of one, ``constant`` those that do not grow, ``terms`` what grows; ``context`` is its tokens, ``limit``
  the model's longest, ``mean`` the average tokens of requests, ``longest`` those of the longest, ``prefix`` those all share;
* ``requests`` run at once; ``judged`` is a verdict, ``held`` what memory holds, ``max_num_seqs`` what the engine runs (0: no limit);
* ``rates`` are a model's on one device, and ``step`` is what else decides the reserve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

Term = tuple[int, int, int]
"""One addend of a request's bytes: bytes per started step, tokens per step, cap in tokens (0: none)."""

Reach = tuple[float, float, float, int, int, int, int]
"""What one token sees of a cache: bytes per entry, operations per entry while decoding, the same while
prefilling, cap in tokens (0: none, -1: nothing is seen), tokens per entry, 1 if sight restarts every
``cap`` tokens, constant entries."""

Work = tuple[float, float]
"""Operations per token of one operand type, and the device's peak rate for it (NaN: unknown)."""

UNLIMITED_REQUESTS: Final = 1 << 40
"""Requests of a model whose requests hold nothing: no pool ever limits them."""

MAX_REQUESTS: Final = 1 << 20
"""Most requests at once that a sizing considers."""

DEFAULT_EFFICIENCY: Final = 0.6
"""Share of the roofline that a server is expected to reach; see :mod:`kvreport.accounting.sizing`."""

CLOSE_STEPS: Final = 1.5
"""Lower bounds of a decode step that differ by less order nothing: published servers reach 22 to 77% of theirs
(:data:`kvreport.accounting.sizing.DEFAULT_EFFICIENCY`), which is a factor of 3.5 between them."""

USUAL_OUTPUT: Final = 512
"""Output tokens where nothing is said."""

USEFUL_TOKENS: Final = 8192
"""A configuration serves if one request of this context fits."""

LARGEST_CAPTURE: Final = 512
"""Tokens of the largest graph that vLLM captures by default (``vllm/config/vllm.py``)."""

MULTIPROCESSORS: Final = 132
"""Multiprocessors of a large device (H100), for each of which Triton's sampling kernel keeps a row of
logits. Others have 58 to 188, which changes a tenth of a GiB."""

IMAGE_TOKENS: Final = 16384
"""Tokens of the largest image of towers that take any resolution; a video is measured by as many as fit the context."""

PIECE_OF_ITS_OWN: Final = 10 << 20
SHARED_PIECE: Final = 20 << 20
"""What PyTorch's allocator takes for what is less than the first (``c10/cuda/CUDACachingAllocator.cpp::get_allocation_size``)."""

WORKSPACE: Final = 8519680
LARGE_WORKSPACE: Final = 32 << 20
"""What PyTorch gives cuBLAS: the first, and more on devices with a large one
(``aten/src/ATen/cuda/CublasHandlePool.cpp::parseChosenWorkspaceSize``)."""

PIECE_AT_HAND: Final = 14 << 20
"""Results from which the first workspace lies in a piece that they leave free. Fitted, and read in no source: the rule
``keeps_freed_copy`` of vLLM names the starts."""

EXPANDED_TOKENS: Final = 1 << 16
"""Tokens of context whose latents vLLM expands at once, at most (0.11.0 to 0.33.0 ``determine_chunked_prefill_workspace_size``,
``v1/attention/backends/mla/common.py``, since 0.28 ``model_executor/layers/attention/mla_attention.py``)."""

EXPANDED_BLOCK: Final = 16
"""Tokens of a block there: that of Hopper's and of Triton's kernels. Data-center Blackwell's have larger ones, and runs so many
requests by default that the most counts anyway."""

INDEXED_CONTEXT: Final = 1 << 18
"""Longest request up to which a sparse model's indexer gathers keys of as many contexts as in earlier releases (0.32.0 to 0.33.0
``config/vllm.py``, ``sparse_mla_prefill_workspace_factor``)."""

BUFFERED_ROWS: Final = 8
"""Rows of logits from which that kernel samples (vLLM 0.17.0, ``apply_top_k_top_p``)."""

RAISED_UTILIZATION: Final = 0.95
"""The highest memory share that leaves something for other processes of the device."""

COMFORTABLE_SPARE_BYTES: Final = 8 << 30
"""Free memory of a running SGLang server beyond which its guide raises the static fraction
(``docs/advanced_features/hyperparameter_tuning.md``)."""

OTHER_MIB: Final = 512
"""What SGLang keeps for what attention kernels and libraries hold beside activations."""

WIDE_RANKS: Final = 4
"""From so many tensor ranks on, smaller devices capture larger decode batches."""

LEAST_CHUNK: Final = 2048
UNCHUNKED_TOKENS: Final = 16384
"""``--max-prefill-tokens``, which sizes activations where prefill is not chunked."""

MIB_PER_TOKEN: Final = 1.5
MIB_PER_CAPTURED_REQUEST: Final = 2
MANY_CAPTURED: Final = 300
LARGE_DEVICE_MIB: Final = 61440
LEAST_ON_LARGE_MIB: Final = 10240
"""What SGLang keeps free beside weights and pools (``memory_hook.py``)."""

OTHER_WEIGHTS: Final = 0.2
"""A log whose weights are further than this from ours loads another format: its pool is not compared."""

STATE_OPERATIONS: Final = 4
"""Operations per element of a recurrent state and token: multiply-add to update, and to read."""

STATE_ELEMENT_BYTES: Final = 4
"""Bytes of an element of a recurrent state."""

LEAST_OF_LARGEST: Final = 0.9
"""Share of the largest rank's memory that SGLang wants of the smallest where ranks divide layers
(0.5.23 ``distributed/bootstrap.py::_check_tp_memory_balance``)."""

ROUNDING: Final = 0.000001
"""What a share in thousandths may lack of the next one: bytes are whole."""

FITS: Final = 0
TIGHT: Final = 1
MAY_FIT: Final = 2
MAX_SEQS_EXCEEDS_STATES: Final = 3
CACHE_EXCEEDS_POOL: Final = 4
WEIGHTS_EXCEED_MEMORY: Final = 5
CONTEXT_EXCEEDS_MODEL: Final = 6
FORMAT_NOT_SUPPORTED: Final = 7
ENGINE_DOES_NOT_RUN: Final = 8

KV_POOL: Final = 0
MAX_NUM_SEQS: Final = 1
STATE_SLOTS: Final = 2
CONTEXT: Final = 3


class Step(NamedTuple):
    """What one step of a model asks of one device, with the device's peak rates."""

    ranks: int  # Devices that the model is split over.
    dense_bytes: float  # Weights read in every step.
    expert_bytes: float  # All routed experts; a step reads the part that its tokens choose.
    experts: int  # Routed experts per layer; 0 without a mixture.
    experts_per_token: int  # Experts that one token is sent to.
    body: Sequence[Work]  # Operations per token of the weights that every token meets, by operand type.
    head: Sequence[Work]  # Operations per sampled token of the output head, by operand type.
    reaches: Sequence[Reach]  # What a token sees of each cache.
    attention_rate: float  # Peak operations per second of attention's operand type; NaN if unknown.
    state_bytes: float  # States of a request, read and written back.
    reduced_bytes: float  # Partial results per token that layers sum over the devices.
    bytes_rate: float  # Memory bandwidth in bytes per second; NaN if unknown.
    link_rate: float  # Bandwidth to the other devices in one direction; NaN if unknown.


class ReserveRates(NamedTuple):
    """vLLM's reserve before the scheduler's sizes are known: bytes on one device, but for counts. JSON has them as a list."""

    forward_per_token: float  # Of a forward pass.
    stream_per_token: float  # Of the residual stream alone, beside expanded latents.
    expanded: float  # Of MLA's expanded keys and values, per token of a chunk of context.
    workspace_per_token: float  # Of the buffers that experts compute in and keep.
    kept_per_token: float  # Of hidden states that are held during sampling.
    # Of what is kept for one step beside its passes: residual streams for a draft model, what a pipeline
    # stage receives, embeddings, and buffers that the model's class makes.
    streams_per_token: float
    sampling_per_row: float  # Of one row of logits while it is sampled from.
    buffer_per_row: float  # Of Triton's sampling kernel, one row for each multiprocessor.
    encoding: float  # Of an encoder pass over the largest image.
    encoding_per_token: float  # Of an encoder pass over as many images as a step has tokens for.
    index_per_token: float  # Of the buffer that an indexer gathers keys in, per token of the longest context.
    index_less_per_token: float  # How much less that is where the context is longer than INDEXED_CONTEXT.
    index_logits: float  # Of the logits of an indexer.
    # Of those, where they are for all requests at once, for one and one token of the longest.
    index_logits_per_row: float
    # Outside the framework, where it is taken off
    # (:func:`~kvreport.accounting.engines.vllm.reserve.charges_handles`).
    non_framework: float
    linked: float  # Of multicast buffers for other ranks, on devices whose links have them.
    per_graph: float  # Of one captured graph (0 where they are not reserved for).
    images: int  # Images' worth of a video that a long context is measured with, at most.
    encoded: float  # Of the outputs of the largest image, which stay while the model runs.
    encoded_per_token: float  # Of the outputs of as many images as a step has tokens for.
    compiling: float  # Of the copy that a kernel is measured on while the model is compiled.
    left_copy: float  # Of that copy, where it may stay reserved after it was freed (:func:`leaves_copy`).
    plain_layers: (
        int  # 1 where layers multiply by matrices of 16 bits, whose workspace is taken among their buffers.
    )
    counted_per_row: float  # Of one request's counts of words.
    largest_capture: int  # Tokens of the largest captured graph on data-center Blackwell GPUs.
    shared: int  # How often the constant of devices that share their memory with a CPU counts.
    # Of partial results of attention, for one request of the largest graph (``keeps_partial_results`` there).
    partial_per_row: float
    compiling_per_token: float  # Of what the kernel writes that is measured on the copy.
    per_graph_partial: float  # Of one captured graph, beside partial results, on devices that keep them.
    # Of partial results of attention, how much less with a cache of fewer than 16 bits.
    narrow_per_row: float
    # Of an indexer's logits in graphs, for one request of the largest and one token of the longest request.
    scored_per_row: float
    scored_own_per_row: float  # The same on data-center Blackwell GPUs.
    # Of the tokens of other data ranks in experts there, for one token of the rank's own.
    gathered_own_per_token: float
    # Of one row of logits in the other sampler, where either may be installed; else the same.
    other_sampling_per_row: float
    dense_per_token: float  # Of a forward pass without its experts.
    # The rank's own tokens from which experts compute in chunks; 0 where they compute all at once. Kernels of
    # data-center Blackwell GPUs always do.
    expert_chunk: float
    chunked_per_token: float  # Of a forward pass, for each token beyond the chunk, what is not taken.
    chunked_workspace: float  # The same of the buffers that experts keep.
    chunk_output: float  # Of the output of all chunks, for each token of a step that has several.
    # Which error band applies: its place in :data:`~kvreport.accounting.engines.vllm.reserve.BANDS`.
    kind: int


class ReserveStep(NamedTuple):
    """What decides vLLM's reserve beside the rates of a model: what the server is told, and how its device computes."""

    tokens: int  # Tokens of one scheduler step.
    max_num_seqs: int  # Requests that run at once.
    context: int  # The longest request that the server takes.
    own_kernels: bool  # True where the device's kernels for experts bring their own buffers.
    splits: bool  # True where its workspace for products of matrices is cut out of what compiling frees.
    # True where kernels keep partial results of attention for every request of the largest graph.
    partial: bool
    eager: bool  # True if layers run one by one, without graphs.
    compiled: bool  # True if nothing is compiled meanwhile: eager, or compiled graphs are kept.
    adapted: bool  # True if LoRA adapters are served, with which every graph is captured once more.


class PoolRule(NamedTuple):
    """How SGLang divides a budget where states or windows have pools of their own.

    As :class:`kvreport.accounting.engines.sglang.pools.Division` with the engine's defaults: a prefix cache, no draft
    and no number of tokens or states given by hand.
    """

    cell_bytes: float  # Bytes of one more token, its share of a window pool included.
    fixed_bytes: float  # Bytes that a budget loses before tokens.
    window: int  # Tokens that windowed layers look back; 0 without a pool for them.
    shared: int  # 1 if there is no other pool, so that the window pool holds all tokens.
    window_share: float  # Tokens of the window pool for each of the full one.
    page: int  # Tokens of a page.
    state_bytes: int  # Bytes of one state of all layers; 0 without states.
    state_share: float  # Bytes for states for each byte for tokens.
    states_each: int  # States that a running request may hold.
    turns: int  # Ranks that hold the tokens of a request in turns.
    spare: int  # States that are allocated beside those counted: 1, or 0 up to 0.5.16.
    window_bytes: float  # Bytes of one token of a window pool; 0 without one.
    slot_bytes: int  # Bytes that each request has of what is fixed, such as a compressor's ring.


class Plan(NamedTuple):
    """How requests are laid into a pool."""

    block: int  # Bytes of a block or page.
    kept: int  # Blocks that the engine keeps for itself.
    constant: int  # Bytes of one request that do not grow.
    terms: Sequence[Term]  # What grows.
    rules: Sequence[
        PoolRule
    ]  # How a budget is divided where states or windows have pools of their own: one, or none.


EVICTION_TOKENS: Final = 128
"""Tokens decoded between two evictions from SGLang's window pool (``SGLANG_SWA_EVICTION_INTERVAL``)."""

MOST_MISSING: Final = 1 << 44
"""The largest shortfall that is looked for, in bytes: the memory of any device."""

BYTES_PER_GIB: Final = 1 << 30
"""SGLang computes with GiB as real numbers."""


# --- the pool ------------------------------------------------------------------------------------


def engine_memory(total: int, utilization: float) -> int:
    """Return what weights, reserve and pool may take together of ``total`` bytes."""
    return math.ceil(total * utilization)


def pool_left(memory: int, weights: int, reserve: int) -> int:
    """Return what is left for the cache; negative by what is missing."""
    return memory - weights - reserve


def room_left(
    usable: int, memory: int, weights: int, reserve: int, constant: int, terms: Sequence[Term]
) -> int:
    """Return what decides whether one request runs; negative by what is missing.

    The pool, where requests hold something. An engine makes no pool for a model whose requests hold nothing
    and does not hold it to its share: weights and reserve may take all that is usable (vLLM 0.33.0,
    ``EngineCore._initialize_kv_caches``).
    """
    if constant == 0 and len(terms) == 0:
        return pool_left(usable, weights, reserve)
    return pool_left(memory, weights, reserve)


def pool_bytes(memory: int, weights: int, reserve: int) -> int:
    """Return what is left for the cache, never below 0."""
    return max(pool_left(memory, weights, reserve), 0)


def whole_blocks(pool: int, block: int) -> int:
    """Return the whole blocks in a pool, those that the engine keeps included."""
    return max(pool, 0) // block


def free_bytes(pool: int, block: int, kept: int) -> int:
    """Return the bytes of a pool that requests can take: whole blocks, less those the engine keeps."""
    return max(whole_blocks(pool, block) - kept, 0) * block


def lacks(pool: int, block: int, kept: int, request: int) -> bool:
    """Return whether a pool does not hold one request; a negative pool does not hold even one of no bytes."""
    if pool < 0:
        return True
    return request > free_bytes(pool, block, kept)


# --- one request -----------------------------------------------------------------------------------


def request_bytes(constant: int, terms: Sequence[Term], context: int) -> int:
    """Return the bytes that one request of ``context`` tokens holds."""
    total = constant
    for rate, step, cap in terms:
        tokens = context if cap == 0 else min(context, cap)
        total += rate * -(-tokens // step)
    return total


def token_bytes(terms: Sequence[Term], context: int) -> int:
    """Return the bytes of one further token, block rounding spread evenly; half a byte goes to even."""
    total = 0.0
    for rate, step, cap in terms:
        if cap == 0 or context < cap:
            total += rate / step
    return round(total)


def in_flight(terms: Sequence[Term], further: int) -> list[Term]:
    """Return a plan's terms for a step of ``further`` more tokens: windows hold those in flight too."""
    return [(rate, step, cap if cap == 0 else cap + further) for rate, step, cap in terms]


def tokens_in_flight(terms: Sequence[Term], steps: int, tokens: int, supposed: int) -> list[Term]:
    """Return a plan's terms for steps of ``tokens`` where they were made for steps of ``supposed``.

    ``steps``: scheduler steps in flight at once. ``supposed``: tokens of the steps that the plan was made
    for.
    """
    return in_flight(terms, steps * (tokens - supposed))


def longest_context(free: int, constant: int, terms: Sequence[Term], limit: int) -> int:
    """Return the longest request, up to ``limit`` tokens, that ``free`` bytes hold; 0 if none."""
    low = 0
    high = limit
    while low < high:
        middle = (low + high + 1) // 2
        if request_bytes(constant, terms, middle) <= free:
            low = middle
        else:
            high = middle - 1
    return low


# --- many requests ---------------------------------------------------------------------------------


def num_requests(pool: int, block: int, kept: int, request: int) -> int:
    """Return the whole requests that a pool holds: the engine's own figure rounded down.

    The engine counts the blocks that it keeps when it prints its concurrency, but not when it
    decides whether one request fits; where it would refuse to start this is 0.
    """
    if lacks(pool, block, kept, request):
        return 0
    if request == 0:
        return UNLIMITED_REQUESTS
    return free_bytes(pool, block, 0) // request


def ceiling_requests(usable: int, weights: int, request: int) -> int:
    """Return the requests that memory would hold with nothing reserved and nothing rounded."""
    if request == 0:
        return UNLIMITED_REQUESTS if weights <= usable else 0
    return max(usable - weights, 0) // request


def concurrency(pool: int, block: int, request: int) -> float:
    """Return what vLLM prints as "Maximum concurrency"; infinite where a request holds nothing."""
    if request == 0:
        return math.inf if pool >= 0 else 0.0
    return free_bytes(pool, block, 0) / request


def printed_tokens(pool: int, block: int, request: int, context: int) -> int:
    """Return vLLM's "GPU KV cache size" since 0.20: concurrency times context; -1 without a limit."""
    if request == 0 and pool >= 0:
        return -1
    return math.floor(concurrency(pool, block, request) * context)


def start_verdict(asked: int, free: int, error: int) -> int:
    """Judge a start by what the engine asks for and what is free then.

    ``asked``: memory that the engine may take. ``free``: what is free of it at start.
    """
    if asked - free > error:
        return CACHE_EXCEEDS_POOL
    if asked > free:
        return MAY_FIT
    if asked > free - error:
        return TIGHT
    return FITS


def ceiling_verdict(usable: int, weights: int, requests: int, context: int, limit: int) -> int:
    """Judge one request where nothing is reserved and nothing rounded.

    ``weights``: weights of the checkpoint. ``requests``: what :func:`ceiling_requests` says.
    """
    if context > limit:
        return CONTEXT_EXCEEDS_MODEL
    if weights > usable:
        return WEIGHTS_EXCEED_MEMORY
    return FITS if requests > 0 else CACHE_EXCEEDS_POOL


def running_requests(judged: int, held: int, max_num_seqs: int) -> int:
    """Return the requests that the engine runs at once: 0 where it does not start; 0 sequences are no limit."""
    if judged > TIGHT:
        return 0
    return min(held, max_num_seqs) if max_num_seqs > 0 else held


# --- pools of states and windows ---------------------------------------------------------------------


def pool_states(rule: PoolRule, pool: int) -> int:
    """Return the states that a budget is given; below 0 where it is less than one, 0 for a model without."""
    if rule.state_bytes == 0:
        return 0
    share = pool / BYTES_PER_GIB * rule.state_share / (1 + rule.state_share) * BYTES_PER_GIB
    return int((share - rule.spare * rule.state_bytes) // rule.state_bytes)


def pool_for_tokens(rule: PoolRule, pool: int) -> float:
    """Return what states and fixed pools leave of a budget."""
    if rule.state_bytes == 0:
        return pool - rule.fixed_bytes
    left = pool - rule.fixed_bytes
    rest = left / BYTES_PER_GIB - (pool_states(rule, pool) + rule.spare) * rule.state_bytes / BYTES_PER_GIB
    return int(rest * BYTES_PER_GIB)


def pool_pages(rule: PoolRule, pool: int) -> int:
    """Return the pages of the pool that every token of a request takes a slot of."""
    rest = max(pool_for_tokens(rule, max(pool, 0)), 0)
    if rule.turns > 1:
        # A rank counts the rows that it holds, in whole pages; requests see as many tokens on all of them.
        rows = int(rest // round(rule.cell_bytes * rule.turns))
        return rows // rule.page
    return int(rest // rule.cell_bytes) // rule.page


def pool_room(rule: PoolRule, pool: int, block: int) -> int:
    """Return the bytes of whole pages that a budget holds for tokens; a negative budget stays what it is."""
    return pool if pool < 0 else pool_pages(rule, pool) * block


def requests_beside(rule: PoolRule, pool: int, context: int) -> int:
    """Return the requests at once that windows and states allow, whatever the tokens.

    A request holds its window, what is decoded until the next eviction, and two pages
    (``compute_swa_request_cap``), in whole pages; and as many states as ``states_each``.
    """
    most = UNLIMITED_REQUESTS
    budget = max(pool, 0)
    if rule.state_bytes > 0:
        most = max(pool_states(rule, budget), 0) // rule.states_each
    if rule.window > 0 and rule.shared == 0:
        share = math.floor(pool_pages(rule, budget) * rule.page * rule.window_share)
        paged = -(-context // rule.page) * rule.page
        held = min(paged, rule.window + EVICTION_TOKENS + 2 * rule.page)
        most = min(most, share // rule.page * rule.page // max(held, 1))
    return most


def bytes_beside(rule: PoolRule, context: int) -> int:
    """Return what a request reserves beside its pages: states, a slot, and its window beyond the share in its pages."""
    beside = rule.state_bytes * rule.states_each + rule.slot_bytes
    if rule.window > 0 and rule.shared == 0:
        paged = -(-context // rule.page) * rule.page
        held = min(paged, rule.window + EVICTION_TOKENS + 2 * rule.page)
        beside += max(math.ceil(rule.window_bytes * (held - rule.window_share * paged)), 0)
    return beside


# --- one plan --------------------------------------------------------------------------------------


def plan_bytes(plan: Plan, pool: int, kept: int) -> int:
    """Return the bytes of a pool that the blocks of requests can take, ``kept`` of which the engine keeps."""
    for rule in plan.rules:
        return pool_room(rule, pool, plan.block)
    return free_bytes(pool, plan.block, kept)


def plan_beside(plan: Plan, pool: int, context: int) -> int:
    """Return the requests at once that pools of windows and states allow, whatever the tokens."""
    for rule in plan.rules:
        return requests_beside(rule, pool, context)
    return UNLIMITED_REQUESTS


def plan_lacks(plan: Plan, pool: int, context: int) -> bool:
    """Return whether a pool does not hold one request; a negative pool does not hold even one of no bytes."""
    if pool < 0 or request_bytes(plan.constant, plan.terms, context) > plan_bytes(plan, pool, plan.kept):
        return True
    return plan_beside(plan, pool, context) < 1


def plan_requests(plan: Plan, pool: int, context: int) -> int:
    """Return the whole requests that a pool holds; see :func:`num_requests`."""
    request = request_bytes(plan.constant, plan.terms, context)
    if plan_lacks(plan, pool, context):
        return 0
    if request == 0:
        return UNLIMITED_REQUESTS
    return min(plan_bytes(plan, pool, 0) // request, plan_beside(plan, pool, context))


def verdict(
    plan: Plan, usable: int, weights: int, pool: int, error: int, wanted: int, context: int, limit: int
) -> int:
    """Judge one request; the first that applies.

    ``wanted``: blocks that the engine wants at start, one for each sequence's states; 0 without that rule.
    """
    if context > limit:
        return CONTEXT_EXCEEDS_MODEL
    if weights > usable:
        return WEIGHTS_EXCEED_MEMORY
    request = request_bytes(plan.constant, plan.terms, context)
    if plan_lacks(plan, pool + error, context) or (request > 0 and pool <= 0):
        return CACHE_EXCEEDS_POOL
    if whole_blocks(pool + error, plan.block) < wanted:
        return MAX_SEQS_EXCEEDS_STATES
    if plan_lacks(plan, pool, context) or whole_blocks(pool, plan.block) < wanted:
        return MAY_FIT
    if plan_lacks(plan, pool - error, context) or whole_blocks(pool - error, plan.block) < wanted:
        return TIGHT
    return FITS


def shortfall(plan: Plan, pool: int, wanted: int, context: int) -> int:
    """Return the bytes that a pool lacks for one request, or for the blocks wanted at start; 0 if it does not.

    ``wanted``: blocks that must exist at start.
    """
    request = request_bytes(plan.constant, plan.terms, context)
    if len(plan.rules) == 0:
        if request == 0:
            return max(-pool, 0)
        return max(max(plan.kept * plan.block + request, wanted * plan.block) - pool, 0)
    low = pool
    high = pool
    if plan_lacks(plan, pool, context):
        high = pool + MOST_MISSING
    while low < high:
        middle = (low + high) // 2
        if plan_lacks(plan, middle, context):
            low = middle + 1
        else:
            high = middle
    return max(high - pool, request - plan_bytes(plan, pool, 0), 0)


def limited_by(plan: Plan, pool: int, judged: int, held: int, max_num_seqs: int) -> int:
    """Return what keeps one more request from running: states, where as many requests are held as these allow.

    Other arguments as for :func:`running_requests`.
    """
    if judged == CONTEXT_EXCEEDS_MODEL:
        return CONTEXT
    if judged == MAX_SEQS_EXCEEDS_STATES:
        return STATE_SLOTS
    if judged > TIGHT:
        return KV_POOL
    if max_num_seqs > 0 and held >= max_num_seqs:
        return MAX_NUM_SEQS
    for rule in plan.rules:
        if rule.state_bytes > 0 and held >= max(pool_states(rule, pool), 0) // rule.states_each:
            return STATE_SLOTS
    return KV_POOL


def boundary_context(plan: Plan, pool: int, wanted: int, limit: int) -> int:
    """Return the longest context that each of ``wanted`` simultaneous requests can have."""
    share = plan_bytes(plan, pool, 0) // max(wanted, 1)
    if len(plan.rules) == 0:
        share = min(pool, plan_bytes(plan, pool, plan.kept), share)
    high = longest_context(share, plan.constant, plan.terms, limit)
    if plan_beside(plan, pool, high) >= wanted:
        return high
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if plan_beside(plan, pool, middle) >= wanted:
            low = middle
        else:
            high = middle - 1
    return high


def replica_requests(plan: Plan, pool: int, mean: int, longest: int, prefix: int) -> int:
    """Return the requests of average length that one replica holds; 0 if one of the longest does not fit."""
    if plan_lacks(plan, pool, longest):
        return 0
    shared = shared_bytes(plan.terms, prefix)
    each = request_bytes(plan.constant, plan.terms, mean) - shared
    if each == 0:
        return MAX_REQUESTS
    held = max(plan_bytes(plan, pool, 0) - shared, 0) // each
    return min(held, plan_beside(plan, pool, mean), MAX_REQUESTS)


def bytes_for(plan: Plan, requests: int, mean: int, longest: int, prefix: int) -> int:
    """Return the bytes of blocks that so many requests take, or one of the longest."""
    shared = shared_bytes(plan.terms, prefix)
    each = request_bytes(plan.constant, plan.terms, mean) - shared
    longest_bytes = request_bytes(plan.constant, plan.terms, longest)
    return max(requests * each + shared, longest_bytes + plan.kept * plan.block)


def pool_for(plan: Plan, requests: int, mean: int, longest: int, prefix: int) -> int:
    """Return the smallest pool for which :func:`replica_requests` is ``requests``.

    Where memory buys one state more, it leaves fewer tokens than a little less memory does: one state less may do.
    """
    needed = bytes_for(plan, requests, mean, longest, prefix)
    tooth = 0
    for rule in plan.rules:
        tooth = rule.state_bytes - 1
    # More than any device has is not looked for: beyond 2^53, JavaScript has no next integer to go on to.
    if len(plan.rules) == 0 or needed >= MOST_MISSING:
        return needed
    low = max(needed - plan.block, 0)
    high = needed
    while high < MOST_MISSING and not pool_holds(plan, high, needed, requests, mean):
        high = high * 2
    while low < high:
        middle = (low + high) // 2
        if pool_holds(plan, middle, needed, requests, mean):
            high = middle
        else:
            low = middle + 1
    while tooth > 0 and pool_holds(plan, low - tooth, needed, requests, mean):
        low = low - tooth
    return low


def pool_holds(plan: Plan, pool: int, needed: int, requests: int, mean: int) -> bool:
    """Return whether a pool's blocks hold ``needed`` bytes and its other pools the requests."""
    if plan_bytes(plan, pool, 0) < needed:
        return False
    return plan_beside(plan, pool, mean) >= requests


# --- the reserve -----------------------------------------------------------------------------------


def captured_sizes(largest: int) -> int:
    """Return how many batch sizes vLLM captures graphs of: 1, 2, 4, then by 8 to 256, then by 16."""
    small = 0
    for size in (1, 2, 4):
        if size <= largest:
            small += 1
    return small + min(largest, 256) // 8 + max(largest - 256, 0) // 16


def graphs_up_to(largest: int, max_num_seqs: int, tokens: int) -> int:
    """Return how many graphs vLLM captures: pieces for every size, and whole ones for those that decode.

    ``FULL_AND_PIECEWISE`` (``config/compilation.py``): a whole graph is captured for sizes of at most
    ``max_num_seqs`` tokens.
    """
    pieces = min(2 * max_num_seqs, largest, tokens)
    whole = min(max_num_seqs, largest, tokens)
    return captured_sizes(pieces) + captured_sizes(whole)


def sampled_activation_bytes(
    rates: ReserveRates, step: ReserveStep, sampling_per_row: float, compiled: bool
) -> int:
    """Return vLLM's activation peak with a sampler that takes so much of one row of logits.

    ``sampling_per_row``: bytes of one row of logits while it is sampled from. ``compiled`` stands for the step's own.
    """
    tokens = step.tokens
    rows = min(step.max_num_seqs, tokens)
    # Latents of eight of the longest requests are expanded, or of four blocks for each that runs at once.
    latents = min(max(8 * step.context, 4 * step.max_num_seqs * EXPANDED_BLOCK), EXPANDED_TOKENS)
    expanded = -(-latents // EXPANDED_BLOCK) * EXPANDED_BLOCK
    gathered = rates.gathered_own_per_token * tokens if step.own_kernels else 0.0
    beyond = max(tokens - rates.expert_chunk, 0.0) if rates.expert_chunk > 0 and not step.own_kernels else 0.0
    forward = max(
        rates.forward_per_token * tokens - rates.chunked_per_token * beyond + gathered,
        rates.dense_per_token * tokens,
        rates.stream_per_token * tokens + rates.expanded * expanded,
    ) + max(rates.index_logits, rates.index_logits_per_row * rows * step.context)
    buffered = rates.buffer_per_row * min(rows, MULTIPROCESSORS) if rows >= BUFFERED_ROWS else 0.0
    sampling = sampling_per_row * rows + buffered + rates.kept_per_token * tokens
    images = max(min(rates.images, step.context // IMAGE_TOKENS), 1)
    encoding = max(rates.encoding * images, rates.encoding_per_token * tokens)
    encoded = max(rates.encoded * images, rates.encoded_per_token * tokens)
    experts = rates.workspace_per_token * tokens - rates.chunked_workspace * beyond
    output = rates.chunk_output * tokens if beyond > 0 else 0.0
    # A multiplication, as a comparison would not hold for an array of contexts.
    fewer = rates.index_less_per_token * min(max(step.context - INDEXED_CONTEXT, 0), 1)
    indexed = (rates.index_per_token - fewer) * step.context
    workspace = max(0.0 if step.own_kernels else experts + output, indexed)
    kept = rates.streams_per_token * tokens + rates.counted_per_row * step.max_num_seqs
    passes = max(encoded + max(forward, sampling), encoding) + workspace
    left = rates.left_copy if rates.left_copy > 0 and leaves_copy(rates, step) else 0.0
    return round(
        kept
        + (passes if compiled else max(passes, rates.compiling + rates.compiling_per_token * tokens) + left)
    )


def activation_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return vLLM's activation peak while it measures itself: the largest of its passes, and what stays."""
    return sampled_activation_bytes(rates, step, rates.sampling_per_row, step.compiled)


def leaves_copy(rates: ReserveRates, step: ReserveStep) -> bool:
    """Return whether the workspace for products of matrices is cut out of the copy that compiling freed, and keeps it reserved.

    It goes to the smallest free piece that holds it. Layers of 16 bits take it while the results that were measured beside the copy
    are in use again; the others leave it to the output head, when all but two hidden states are free.
    """
    result = rates.kept_per_token * step.tokens / 2
    if step.splits and rates.plain_layers > 0:
        return True
    workspace = LARGE_WORKSPACE if step.splits else WORKSPACE
    if result < PIECE_OF_ITS_OWN:
        return SHARED_PIECE - 2 * result < workspace
    return result < (PIECE_AT_HAND if rates.plain_layers > 0 else workspace)


def open_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return how far vLLM's activation peak is open, because no flag tells these.

    Whether the start compiles, which a later one does not, and which of two samplers is installed.
    """
    one = activation_bytes(rates, step)
    later = sampled_activation_bytes(rates, step, rates.sampling_per_row, True)
    other = sampled_activation_bytes(rates, step, rates.other_sampling_per_row, step.compiled)
    return one - later + max(one - other, other - one)


def follows_length(rates: ReserveRates) -> bool:
    """Return whether vLLM's reserve may follow the longest request that it is told to take.

    It does where keys are gathered for an indexer, or its logits lie in graphs, where a longer request is measured with a
    longer video, and where latents are expanded.
    """
    videos = max(rates.encoding, rates.encoded) if rates.images > 1 else 0.0
    return max(rates.index_per_token, videos, rates.expanded, rates.scored_per_row) > 0


def falls_beyond(rates: ReserveRates, limit: int) -> int:
    """Return the length beyond which vLLM's reserve may be less than for a shorter request; 0 where it is never less."""
    return INDEXED_CONTEXT if rates.index_less_per_token > 0 and limit > INDEXED_CONTEXT else 0


def following_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return what of vLLM's reserve may follow the longest request: its activation peak, and logits in graphs."""
    return activation_bytes(rates, step) + (0 if step.eager else scored_bytes(rates, step))


def graph_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return the bytes of all captured graphs."""
    largest = rates.largest_capture if step.own_kernels else LARGEST_CAPTURE
    captured = min(step.max_num_seqs, LARGEST_CAPTURE, step.tokens)
    results = rates.partial_per_row * captured if step.partial else 0.0
    each = rates.per_graph_partial if step.partial else rates.per_graph
    graphs = graphs_up_to(largest, step.max_num_seqs, step.tokens) * (2 if step.adapted else 1)
    return round(each * graphs + results) + scored_bytes(rates, step)


def scored_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return the bytes of an indexer's logits in captured graphs.

    A graph must do for every length, so that it scores as many places as the longest request has.
    """
    largest = rates.largest_capture if step.own_kernels else LARGEST_CAPTURE
    each = rates.scored_own_per_row if step.own_kernels else rates.scored_per_row
    return round(each * min(step.max_num_seqs, largest, step.tokens) * step.context)


def narrow_cache_bytes(rates: ReserveRates, step: ReserveStep) -> int:
    """Return the bytes that graphs keep less where the cache has fewer than 16 bits."""
    if step.eager or not step.partial:
        return 0
    return round(rates.narrow_per_row * min(step.max_num_seqs, LARGEST_CAPTURE, step.tokens))


def outside_bytes(rates: ReserveRates, multicast: bool, shared: int, handles: bool) -> int:
    """Return the bytes outside the framework.

    ``multicast``: whether the device's links multicast. ``shared``: what a device adds that shares its memory
    with a CPU. ``handles``: whether the handles of the device's linear algebra are made after the engine
    looked at free memory.
    """
    taken = (rates.non_framework if handles else 0.0) + (rates.linked if multicast else 0.0)
    return round(taken) + shared * rates.shared


def reserve_bytes(rates: ReserveRates, step: ReserveStep, multicast: bool, shared: int, handles: bool) -> int:
    """Return vLLM's reserve; arguments as of :func:`outside_bytes`."""
    graphs = 0 if step.eager else graph_bytes(rates, step)
    return activation_bytes(rates, step) + outside_bytes(rates, multicast, shared, handles) + graphs


def band_kind(rates: ReserveRates) -> int:
    """Return which of a device's error bands applies to what a reserve's rates are of."""
    return int(rates.kind)


def error_bytes(share: float, least: float, reserve: float) -> int:
    """Return the same band in whole bytes."""
    return round(error_band(share, least, reserve))


def error_band(share: float, least: float, reserve: float) -> float:
    """Return half the width of a reserve's error band: a share of the reserve, and bytes beside it."""
    return least + share * reserve


# --- deployments of several ranks --------------------------------------------------------------------


def max_num_seqs_of(max_num_seqs: int, tokens: int) -> int:
    """Return the requests at once that vLLM takes: a step of ``tokens`` has no room for more."""
    return min(max_num_seqs, tokens)


def stage_ranks(tensor: int, data: int) -> int:
    """Return the ranks of one pipeline stage."""
    return tensor * data


def of_all_ranks(each: int, data: int) -> int:
    """Return the requests of a deployment from those of one of its ``data`` ranks."""
    return UNLIMITED_REQUESTS if each >= UNLIMITED_REQUESTS else each * data


def over_replica(each: int, devices: int) -> int:
    """Return the bytes that the ``devices`` of a replica have together, from those of one."""
    return each * devices


def over_data_rank(request: int, devices: int, data: int) -> int:
    """Return the bytes that one request takes on all devices of its data rank, from those on one."""
    return request * (devices // data)


def per_rank(requests: int, data: int) -> int:
    """Return the requests of one of ``data`` ranks from those of all."""
    return requests // data


def per_gpu(requests: int, devices: int) -> float:
    """Return the requests of a deployment for each of its devices."""
    return requests / devices


def over(taken: int, room: int) -> int:
    """Return by how much one size exceeds another; negative where it does not."""
    return taken - room


def saved_share(now: int, smaller: int) -> float:
    """Return the share of the weights that a smaller format saves."""
    return 1 - smaller / now


# --- sizing ----------------------------------------------------------------------------------------


def requests_in_flight(people: float, per_minute: float, latency: float) -> float:
    """Return Little's law: arrivals per second times the seconds that each request stays."""
    return people * per_minute / 60 * latency


def price_per_million(price_per_hour: float, tokens_per_second: float) -> float:
    """Return the price of a million tokens of devices with a price per hour, from how many they make in a second."""
    return price_per_hour / 3600 * 1e6 / tokens_per_second


def request_seconds(ttft: float, tpot: float, output: int, efficiency: float) -> float:
    """Return the seconds of a request, whose steps take their lower bounds over an efficiency.

    Args:
        ttft: Lower bound of the prompt.
        tpot: Lower bound of each output token.
        output: Output tokens.
        efficiency: Share of the roofline that is reached.
    """
    return (ttft + tpot * output) / efficiency


def default_output(longest: int) -> int:
    """Return the output tokens assumed where nothing is said."""
    return min(USUAL_OUTPUT, max(1, longest // 4))


def mean_tokens(prompt: int, output: int) -> int:
    """Return what a request holds on average while it is answered: the prompt and half of the output."""
    return prompt + -(-output // 2)


def shared_bytes(terms: Sequence[Term], prefix: int) -> int:
    """Return the bytes of a prefix that requests can share: whole blocks of caches without a cap."""
    total = 0
    for rate, step, cap in terms:
        if cap == 0:
            total += rate * (prefix // step)
    return total


def utilization_for(pool: int, weights: int, reserve: int, total: int) -> float:
    """Return the smallest memory share, in steps of 0.001, that leaves this pool; above 1 if none does."""
    return math.ceil((pool + weights + reserve) / total * 1000) / 1000


def lowest_static_fraction(pool: int, weights: int, kept: int, of: float) -> float:
    """Return the smallest ``--mem-fraction-static`` of SGLang 0.5, in steps of 0.001, that leaves this pool.

    ``kept``: bytes that the engine keeps of its static memory beside them. ``of``: bytes that the fraction is
    taken of.
    """
    return math.ceil((pool + weights + kept) / of * 1000) / 1000


def static_pool(fraction: float, weights: int, kept: int, of: float) -> int:
    """Return the pool that a ``--mem-fraction-static`` leaves; arguments as of :func:`lowest_static_fraction`."""
    return math.floor(of * fraction) - weights - kept


def own_static_fraction(total: int, reserve: int, kept: int, of: float) -> float:
    """Return the ``--mem-fraction-static`` that comes, in steps of 0.001 below it, to what SGLang takes by itself.

    ``reserve``: bytes kept beside weights and cache when no fraction is given. ``kept``: bytes that the
    engine keeps of its static memory beside them. ``of``: bytes that the fraction is taken of.
    """
    return math.floor((total - reserve + kept) / of * 1000 + ROUNDING) / 1000


def captured_requests(usual: int, told: int, follows: bool, expands: int) -> int:
    """Return the requests of the largest decode graph that SGLang captures.

    ``usual``: of a server that is not told how many run at once. ``told``: as many as it is told; 0 for none. ``follows``:
    whether it captures no more than run. ``expands``: up to how many it captures all that it is told.
    """
    if told == 0:
        return usual
    captured = min(usual, told) if follows else usual
    return told if captured < told <= expands else captured


def decode_graph_mib(captured: int, data_ranks: int) -> float:
    """Return the MiB that SGLang keeps for decode graphs, and for what data-parallel attention pads (``reserve_for_graph_mb``).

    ``captured``: requests of the largest graph. ``data_ranks``: ranks of data-parallel attention.
    """
    padded = captured * data_ranks * (4.5 if captured > MANY_CAPTURED else 3)
    return captured * MIB_PER_CAPTURED_REQUEST + (padded if data_ranks > 1 else 0)


def reserved_mib(device: float, chunk: int, ranks: int, graphs: float) -> float:
    """Return the MiB that SGLang keeps free beside weights and pools (``handle_gpu_memory_settings``).

    ``device``: MiB of the device. ``chunk``: tokens of one prefill chunk; -1 if it is whole. ``ranks``: tensor ranks times
    pipeline stages. ``graphs``: MiB for captured graphs.
    """
    tokens = max(chunk if chunk > 0 else UNCHUNKED_TOKENS, LEAST_CHUNK)
    reserved = OTHER_MIB + tokens * MIB_PER_TOKEN + ranks / 8 * 1024 + graphs
    return max(reserved, LEAST_ON_LARGE_MIB) if device > LARGE_DEVICE_MIB else reserved


def static_share(device: float, reserved: float) -> float:
    """Return the static fraction that SGLang takes by itself, in steps of 0.001; arguments are in MiB."""
    return round((device - reserved) / device, 3)


def static_kept(usable: int, taken: int, share: float) -> int:
    """Return the bytes that such a share leaves free of what is free before weights are loaded.

    ``taken``: bytes that a process holds before.
    """
    return round(max(usable - taken, 0) * (1 - share))


def replicas_for(requests: int, each: int) -> int:
    """Return the replicas that hold ``requests`` at ``each`` of them."""
    return -(-requests // each)


def headroom(replicas: int, each: int, requests: int) -> float:
    """Return the requests that replicas run on top of those asked of them, as a share of these."""
    return replicas * each / requests - 1


def is_quick(step: float, fastest: float) -> bool:
    """Return whether a decode step is about as short as the shortest on the same hardware; an unknown one is not.

    ``step``: lower bound of the step, in seconds; NaN if it is not known. ``fastest``: the shortest of those
    on the same hardware; NaN if none is known.
    """
    return step <= CLOSE_STEPS * fastest


def micro_batch(requests: int, data_ranks: int, stages: int) -> int:
    """Return the requests of one micro-batch of a data rank: stages work on as many of them at once."""
    return replicas_for(replicas_for(requests, data_ranks), stages)


def what_limits(request: int, constant: int, held: int, fast: int, max_num_seqs: int) -> str:
    """Return what keeps one more request from a replica, as the command line names it.

    ``fast``: requests that meet the time targets.
    """
    if max_num_seqs <= min(held, fast):
        return "max_seqs"
    if fast < held:
        return "time"
    return "state" if 2 * constant > request else "cache"


# --- time ------------------------------------------------------------------------------------------


def weight_bytes_read(step: Step, tokens: float) -> float:
    """Return the weight bytes that a step of ``tokens`` tokens reads, with even routing of experts."""
    if step.experts == 0:
        return step.dense_bytes
    missed: float = (1 - step.experts_per_token / step.experts) ** tokens
    return step.dense_bytes + step.expert_bytes * (step.experts * (1 - missed) / step.experts)


def entries_seen(reach: Reach, context: int) -> int:
    """Return the entries of a cache that a token after ``context`` others sees."""
    _, _, _, cap, tokens_per_entry, restarts, constant = reach
    seen = context
    if cap < 0:
        seen = 0
    elif restarts == 1:
        seen = context % cap
    elif cap > 0:
        seen = min(context, cap)
    return seen // tokens_per_entry + constant


def triangle(count: float) -> float:
    """Return 1 + 2 + … + ``count``."""
    return count * (count + 1) / 2


def entries_up_to(reach: Reach, tokens: float) -> float:
    """Return the entries that the first ``tokens`` tokens see together, each seeing itself too."""
    _, _, _, cap, tokens_per_entry, restarts, constant = reach
    seen = triangle(tokens)
    if cap < 0:
        seen = 0.0
    elif restarts == 1:
        seen = tokens // cap * triangle(cap) + triangle(tokens % cap)
    elif cap > 0:
        inside = min(tokens, cap)
        seen = triangle(inside) + (tokens - inside) * cap
    return seen / tokens_per_entry + tokens * constant


def work_seconds(work: Sequence[Work], times: float) -> float:
    """Return the seconds of the operations of ``times`` tokens at peak rates; NaN if a rate is unknown."""
    total = 0.0
    for operations, rate in work:
        if operations != 0:
            total += times * (operations / rate)
    return total


def link_seconds(step: Step, tokens: float) -> float:
    """Return the seconds of a ring all-reduce: each device sends 2 (p - 1) / p of the data."""
    if step.ranks == 1:
        return 0.0
    return 2 * (step.ranks - 1) / step.ranks * step.reduced_bytes * tokens / step.link_rate


def longest_known(memory: float, compute: float, link: float) -> float:
    """Return the longest of the known times; NaN if neither memory nor compute is known."""
    if math.isnan(memory) and math.isnan(compute):
        return math.nan
    longest = 0.0
    for seconds in (memory, compute, link):
        if not math.isnan(seconds) and seconds > longest:
            longest = seconds
    return longest


def decode_bytes(step: Step, batch: float, context: int) -> float:
    """Return the bytes that one decode step reads: weights once, and the cache of every request."""
    cache = 0.0
    for reach in step.reaches:
        cache += reach[0] * entries_seen(reach, context)
    return weight_bytes_read(step, batch) + batch * (cache + step.state_bytes)


def decode_compute_seconds(step: Step, batch: float, context: int) -> float:
    """Return the seconds of one decode step's operations at peak rates."""
    attention = step.state_bytes / 2 / STATE_ELEMENT_BYTES * STATE_OPERATIONS
    for reach in step.reaches:
        attention += reach[1] * entries_seen(reach, context)
    compute = work_seconds(step.body, batch) + work_seconds(step.head, batch)
    return compute + batch * attention / step.attention_rate


def decode_seconds(step: Step, batch: float, context: int) -> float:
    """Return the lower bound of one decode step: every request of the batch gets one token."""
    read = decode_bytes(step, batch, context) / step.bytes_rate
    return longest_known(read, decode_compute_seconds(step, batch, context), link_seconds(step, batch))


def prefill_seconds(step: Step, prompt: int, cached: int) -> float:
    """Return the lower bound of the prefill of one prompt after ``cached`` leading tokens."""
    fresh = max(prompt - cached, 1)
    attention = fresh * (step.state_bytes / 2 / STATE_ELEMENT_BYTES * STATE_OPERATIONS)
    for reach in step.reaches:
        attention += reach[2] * (entries_up_to(reach, cached + fresh) - entries_up_to(reach, cached))
    read = weight_bytes_read(step, fresh) + step.state_bytes
    # Only a prompt's last token is turned into logits.
    compute = work_seconds(step.body, fresh) + work_seconds(step.head, 1)
    compute += attention / step.attention_rate
    return longest_known(read / step.bytes_rate, compute, link_seconds(step, fresh))


def fast_batch(step: Step, context: int, target: float, held: int) -> int:
    """Return the largest batch, up to ``held``, whose decode step takes at most ``target`` seconds.

    ``target``: seconds. ``held``: largest batch that memory holds.
    """
    low = 0
    high = held
    while low < high:
        middle = (low + high + 1) // 2
        if decode_seconds(step, middle, context) <= target:
            low = middle
        else:
            high = middle - 1
    return low


# --- start-up logs -----------------------------------------------------------------------------------

PROPORTION_KEPT: Final = 0.95
"""Share of a proportional length that is offered: windows and states make a shorter request cost more."""

AGREES_WITHIN: Final = 0.02
"""A plan that is further than this from a log's own figure is not used for other lengths."""


def proportional_length(longest: int, pool: int, needed: int) -> int:
    """Return a length, in whole blocks of 16, that a pool surely holds of which ``longest`` needs ``needed`` bytes."""
    return int(longest * pool / needed * PROPORTION_KEPT) // 16 * 16


def agrees(computed: float, stated: float) -> bool:
    """Return whether a computed concurrency is the one that a log states."""
    return abs(computed / stated - 1) <= AGREES_WITHIN


def raised_pool(pool: int, share: float, total: int) -> float:
    """Return a pool after raising the memory share of a device of ``total`` bytes as far as is safe."""
    return pool + (RAISED_UTILIZATION - share) * total


def concurrency_at(fits: float, pool: int, share: float, raised: float, total: int) -> float:
    """Return the concurrency after raising the memory share of a device of ``total`` bytes.

    ``fits``: concurrency before. ``share``: memory share before. ``raised``: memory share after.
    """
    return fits * (pool + (raised - share) * total) / pool


def raised_fraction(fraction: float, spare: float, before: float) -> float:
    """Return SGLang's static fraction that leaves a comfortable spare, in steps of 0.001.

    ``fraction``: the fraction of the log. ``spare``: bytes free while the server runs. ``before``: bytes free
    before loading.
    """
    raised = int((fraction + (spare - COMFORTABLE_SPARE_BYTES) / before) * 1000) / 1000
    return min(raised, RAISED_UTILIZATION)
