"""SGLang's pools: how many tokens, window tokens and states a budget of bytes holds on one rank.

Follows the pool configurators of SGLang 0.5.23 (``srt/model_executor/pool_configurator.py`` and
``srt/mem_cache/kv_cache_configurator.py``); what earlier releases do otherwise is data of their record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvreport.accounting.engines.sglang import compressed, shapes
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.units import GIB

SCALE_EVERY: Final = 128
SCALE_BYTES: Final = 4
WIDE_ROPE_BYTES: Final = 2
"""FP8 latents beside index keys: a 4-byte scale per 128 elements, the rotary part in 16 bits."""

LEAST_REQUESTS: Final = 2048
MOST_REQUESTS: Final = 4096
CONTEXTS_ESTIMATED: Final = 512
"""``resolve_max_num_reqs``: requests at once are 512 contexts' worth, within these bounds."""

EVICTION_TOKENS: Final = 128
"""Tokens decoded between two evictions from a window pool (``SGLANG_SWA_EVICTION_INTERVAL``)."""


@dataclass(frozen=True, slots=True)
class PoolFlags:
    """What decides the pools beside the model and the budget, as SGLang resolved it.

    Attributes:
        element_bytes: Bytes of one cached element (``--kv-cache-dtype``).
        attention_ranks: Ranks that divide the heads: tensor ranks over data ranks.
        page_tokens: ``--page-size``.
        context_tokens: ``--context-length``: the longest request served.
        window_share: ``--swa-full-tokens-ratio``.
        state_share: ``--mamba-full-memory-ratio``: state pool over token pool.
        states_per_request: State slots that a running request may hold.
        state_dtype: ``--mamba-ssm-dtype``; None for what the config says.
        max_requests: ``--max-running-requests`` of one data rank; None for the engine's estimate.
        max_tokens: ``--max-total-tokens``; None for no cap.
        max_states: ``--max-mamba-cache-size`` of one data rank; None to size it by ``state_share``.
        prefix_cache: False with ``--disable-radix-cache``.
        chunk_tokens: ``--chunked-prefill-size`` of one data rank; 0 or less without chunks.
        overlap: False with ``--disable-overlap-schedule``.
        draft_layers: Layers of a draft model that shares the target's cached widths.
        draft_tokens: Tokens that a draft model proposes per step; 0 without one.
        scaled_latents: True if FP8 latents keep scales and a wide rotary part.
        narrow_index: True if index keys that have no scales are cached as FP8 too.
    """

    element_bytes: float
    attention_ranks: int = 1
    page_tokens: int = 1
    context_tokens: int = 1 << 17
    window_share: float = 0.8
    state_share: float = 0.9
    states_per_request: int = 5
    state_dtype: str | None = None
    max_requests: int | None = None
    max_tokens: int | None = None
    max_states: int | None = None
    prefix_cache: bool = True
    chunk_tokens: int = 8192
    overlap: bool = True
    draft_layers: int = 0
    draft_tokens: int = 0
    scaled_latents: bool = False
    narrow_index: bool = False


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of one rank.

    Attributes:
        tokens: Tokens that it holds (``max_total_num_tokens``).
        cell_bytes: Bytes that one more token takes, its share of the window pool included.
        window_tokens: Tokens of the window pool; None without one.
        state_slots: States that it holds; None for models without.
        state_bytes: Bytes of one state.
        token_pool_bytes: Bytes left for tokens once states are taken off.
        max_requests: Requests that run at once (``max_running_requests``).
        limited_by: What sets ``max_requests``: ``flag``, ``states``, ``tokens`` or ``estimate``.
    """

    tokens: int
    cell_bytes: float
    window_tokens: int | None
    state_slots: int | None
    state_bytes: int
    token_pool_bytes: int
    max_requests: int
    limited_by: str


def size_pools(model: Model, engine: Engine, budget_bytes: int, flags: PoolFlags) -> Pools:
    """Divide a budget over a model's pools as SGLang does.

    Args:
        model: The model.
        engine: The release, whose lists of model classes decide the kinds of pools.
        budget_bytes: What weights and the reserve leave on the rank.
        flags: The resolved flags.

    Raises:
        InputError: If the budget holds no token, no state, or no window of one request.
    """
    if compressed.is_compressed(model):
        return _compressed(model, budget_bytes, flags)
    slots, per_state, rest = _states(model, budget_bytes, flags)
    counted = shapes.layers(model, engine)
    if counted.windowed:
        cell, tokens, window = _windows(model, rest, flags, counted)
    else:
        cell = token_bytes(model, engine, flags)
        tokens = int(rest // cell) if cell else flags.max_tokens or flags.context_tokens
        window = None
    tokens = tokens // flags.page_tokens * flags.page_tokens
    if flags.max_tokens is not None and flags.max_tokens < tokens:
        tokens = flags.max_tokens // flags.page_tokens * flags.page_tokens
        window = _window_tokens(model, tokens, flags, capped=True) if window is not None else None
    if tokens <= 0:
        raise InputError(
            f"memory: found {rest} bytes for the cache, less than one token of {cell:g} bytes; allowed: more "
            "memory, fewer weights per device or a larger mem_fraction_static"
        )
    requests, limit = max_requests(tokens, slots, flags)
    return Pools(tokens, cell, window, slots, per_state, rest, requests, limit)


def _compressed(model: Model, budget_bytes: int, flags: PoolFlags) -> Pools:
    requests = flags.max_requests or MOST_REQUESTS
    sizes = compressed.compressed_sizes(
        model,
        max_requests=requests,
        page_tokens=flags.page_tokens,
        window_share=flags.window_share,
        draft_tokens=flags.draft_tokens,
    )
    tokens = compressed.compressed_tokens(sizes, budget_bytes, flags.page_tokens)
    if flags.max_tokens is not None:
        tokens = min(tokens, flags.max_tokens // flags.page_tokens * flags.page_tokens)
    if tokens <= 0:
        raise InputError(
            f"memory: found {budget_bytes} bytes for the cache; allowed: more than {sizes.fixed_bytes} bytes of "
            f"request slots and one page of {flags.page_tokens} tokens"
        )
    window = _window_tokens(model, tokens, flags)
    found, limit = max_requests(tokens, None, flags)
    rest = budget_bytes - sizes.fixed_bytes
    return Pools(tokens, sizes.token_bytes, window, None, 0, rest, found, limit)


def token_bytes(model: Model, engine: Engine, flags: PoolFlags) -> int:
    """Bytes that one token takes in the pool of all layers, index keys and draft layers included."""
    counted = shapes.layers(model, engine)
    latent = shapes.latent_of(model)
    if latent is None:
        width = shapes.token_elements(model, flags.attention_ranks)
        cell = int(width * counted.full * flags.element_bytes)
    else:
        cell = int(latent_bytes(model, flags) * counted.full)
    index = index_bytes(model, flags)
    target = cell + index * counted.indexed
    if not flags.draft_layers or not counted.full:
        return target
    if index:
        return target + cell * flags.draft_layers // counted.full + index * flags.draft_layers
    return target + target * flags.draft_layers // counted.full


def latent_bytes(model: Model, flags: PoolFlags) -> float:
    """Bytes of one token's latent in one layer (``calculate_mla_kv_cache_dim``)."""
    latent = shapes.latent_of(model)
    if latent is None:
        return 0
    if flags.scaled_latents and flags.element_bytes == 1 and shapes.indexer_of(model) is not None:
        scales = latent.latent_dim // SCALE_EVERY * SCALE_BYTES
        return latent.latent_dim + scales + latent.rope_dim * WIDE_ROPE_BYTES
    return (latent.latent_dim + latent.rope_dim) * flags.element_bytes


def index_bytes(model: Model, flags: PoolFlags) -> int:
    """Bytes of one token's index key in one layer.

    FP8 with a 4-byte scale per 128 elements; without scales (MiniMax-M3) the model's own 16 bits, or FP8
    on Hopper beside an FP8 cache (``get_minimax_sparse_index_dtype``).
    """
    index = shapes.indexer_of(model)
    if index is None:
        return 0
    if not index.scaled:
        return index.index_dim * (1 if flags.narrow_index else SERVED_BYTES)
    return -(-(index.index_dim + index.index_dim // SCALE_EVERY * SCALE_BYTES) // index.stride)


def max_requests(tokens: int, state_slots: int | None, flags: PoolFlags) -> tuple[int, str]:
    """Requests that run at once on one data rank, and what sets the number.

    Raises:
        InputError: If there are not states enough for one request.
    """
    if flags.max_requests is not None:
        found, limit = min(max(flags.max_requests, 1), tokens // 2), "flag"
    else:
        estimated = int(tokens / flags.context_tokens * CONTEXTS_ESTIMATED)
        found, limit = min(max(min(estimated, MOST_REQUESTS), LEAST_REQUESTS), tokens // 2), "estimate"
    if found == tokens // 2:
        limit = "tokens"
    if state_slots is not None and state_slots // flags.states_per_request < found:
        found, limit = state_slots // flags.states_per_request, "states"
        if found <= 0:
            raise InputError(
                f"recurrent states: found room for {state_slots}; allowed: at least {flags.states_per_request}, "
                "what one running request may hold"
            )
    return found, limit


def _states(model: Model, budget_bytes: int, flags: PoolFlags) -> tuple[int | None, int, int]:
    """Slots of the state pool, bytes of one, and what it leaves of the budget.

    One slot more than it counts is allocated (``_handle_max_mamba_cache``).
    """
    if not shapes.has_states(model):
        return None, 0, budget_bytes
    one = shapes.state_bytes(model, flags.attention_ranks, flags.state_dtype)
    rest = budget_bytes / GIB
    if flags.max_states is not None:
        slots = flags.max_states
        rest -= _drafted_states(one, slots, flags)
    elif not flags.prefix_cache and flags.max_requests is not None:
        slots = max(1, flags.max_requests)
        rest -= one * (slots + 1) * flags.draft_tokens / GIB
    else:
        share = rest * flags.state_share / (1 + flags.state_share) * GIB
        drafts = flags.draft_tokens
        slots = int((share - one * (1 + drafts)) // (one * (1 + drafts / flags.states_per_request)))
        rest -= _drafted_states(one, slots, flags)
    if slots <= 0:
        raise InputError(
            f"recurrent states: found {budget_bytes} bytes for states of {one} bytes each and the cache; "
            "allowed: more memory or fewer weights per device"
        )
    rest -= (slots + 1) * one / GIB
    return slots, one, int(rest * GIB)


def _drafted_states(one: int, slots: int, flags: PoolFlags) -> float:
    """GiB of the states kept between drafted tokens, for as many requests as there are states for."""
    if not flags.draft_tokens:
        return 0.0
    at_once = slots // flags.states_per_request
    if flags.max_requests is not None:
        at_once = min(max(1, flags.max_requests), at_once)
    return one * (at_once + 1) * flags.draft_tokens / GIB


def _windows(
    model: Model, budget_bytes: int, flags: PoolFlags, counted: shapes.Layers
) -> tuple[float, int, int]:
    """Bytes of a token over both pools, tokens of the full pool and of the window pool."""
    full = shapes.token_elements(model, flags.attention_ranks) * flags.element_bytes
    window = shapes.token_elements(model, flags.attention_ranks, windowed=True) * flags.element_bytes
    page = flags.page_tokens
    full_cell = full * (counted.full + flags.draft_layers)
    window_cell = window * counted.windowed
    if not counted.full:
        cell = window_cell + full * flags.draft_layers
        tokens = int(budget_bytes // cell) // page * page
        return cell, tokens, tokens
    if capped_by_requests(flags) and shapes.window_of(model) is not None:
        kept = window_cap_tokens(model, flags)
        tokens = int((budget_bytes - kept * window_cell) // full_cell) // page * page
        return full_cell, tokens, kept
    cell = full_cell + flags.window_share * window_cell
    tokens = int(budget_bytes // cell) // page * page
    return cell, tokens, _window_tokens(model, tokens, flags)


def capped_by_requests(flags: PoolFlags) -> bool:
    """True if the window pool is sized from the requests at once instead of a share of all tokens."""
    return flags.max_requests is not None and not flags.prefix_cache and flags.chunk_tokens > 0


def window_cap_tokens(model: Model, flags: PoolFlags) -> int:
    """Tokens of a window pool for the worst case of ``max_requests`` (``compute_swa_request_cap``).

    Per request the window, what is decoded between two evictions, and two pages; beside them the chunks
    of prefill in flight and one page more.
    """
    page = flags.page_tokens
    per_request = (shapes.window_of(model) or 0) + EVICTION_TOKENS * max(flags.draft_tokens, 1) + 2 * page
    chunks = (2 if flags.overlap else 1) * flags.chunk_tokens
    cap = per_request * max(1, flags.max_requests or 1) + chunks + page
    return -(-cap // page) * page


def _window_tokens(model: Model, tokens: int, flags: PoolFlags, *, capped: bool = False) -> int:
    """Tokens of the window pool beside ``tokens`` of the full pool.

    Raises:
        InputError: If it cannot hold one request's window.
    """
    page = flags.page_tokens
    if capped and capped_by_requests(flags):
        return min(window_cap_tokens(model, flags), tokens)
    kept = int(tokens * flags.window_share) // page * page
    window = shapes.window_of(model) or 0
    if kept <= window + page:
        raise InputError(
            f"memory: found a window pool of {kept} tokens; allowed: more than the window and one page, "
            f"{window + page}"
        )
    return kept
