"""SGLang's pools: how many tokens, window tokens and states a budget of bytes holds on one rank.

Follows the pool configurators of SGLang 0.5.23 (``srt/model_executor/pool_configurator.py`` and
``srt/mem_cache/kv_cache_configurator.py``). A model has one of three kinds: one pool of equal cells; such
a pool beside one for tokens inside a window; or the pools of compressed attention. Recurrent states take
their share of the budget first. Budgets are numbers or arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.sglang import compressed, shapes
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.accounting.numeric import Integers
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of
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

EVICTION_TOKENS: Final = kernel.EVICTION_TOKENS
"""Tokens decoded between two evictions from a window pool."""


@dataclass(frozen=True, slots=True)
class PoolFlags:
    """What decides the pools beside the model and the budget, as SGLang resolved it."""

    element_bytes: float  # Bytes of one cached element (``--kv-cache-dtype``).
    attention_ranks: int = 1  # Ranks that divide the heads: tensor ranks over data ranks.
    # Groups of such ranks with requests of their own (``--dp-size``), data-parallel attention.
    data_ranks: int = 1
    # Of the attention ranks, those that hold the same heads and divide the tokens (``--dcp-size``).
    context_ranks: int = 1
    page_tokens: int = 1  # ``--page-size``.
    context_tokens: int = 1 << 17  # ``--context-length``: the longest request served.
    window_share: float = 0.8  # ``--swa-full-tokens-ratio``.
    state_share: float = 0.9  # ``--mamba-full-memory-ratio``: state pool over token pool.
    states_per_request: int = 5  # State slots that a running request may hold.
    state_dtype: str | None = None  # ``--mamba-ssm-dtype``; None for what the config says.
    # ``--max-running-requests`` of one data rank; None for the engine's estimate.
    max_requests: int | None = None
    max_tokens: int | None = None  # ``--max-total-tokens``; None for no cap.
    # ``--max-mamba-cache-size`` of one data rank; None to size it by ``state_share``.
    max_states: int | None = None
    prefix_cache: bool = True  # False with ``--disable-radix-cache``.
    chunk_tokens: int = 8192  # ``--chunked-prefill-size`` of one data rank; 0 or less without chunks.
    overlap: bool = True  # False with ``--disable-overlap-schedule``.
    draft_layers: int = 0  # Layers of a draft model that shares the target's cached widths.
    # Tokens that are verified in a step, one more than a draft model proposes; 0 without one.
    draft_tokens: int = 0
    # Bytes of one token in a draft that is counted by its own widths, on every context rank.
    draft_bytes: int = 0
    scaled_latents: bool = True  # True if FP8 latents keep scales and a wide rotary part.
    spare_states: int = 1  # States that are allocated beside those counted, for rows that pad a batch.
    narrow_index: bool = False  # True if index keys that have no scales are cached as FP8 too.

    @property
    def window_by_requests(self) -> bool:
        """True if the window pool is sized for the requests at once, not as a share of all tokens."""
        return self.max_requests is not None and not self.prefix_cache and self.chunk_tokens > 0


@dataclass(frozen=True, slots=True)
class RankPools:
    """The pools of one rank."""

    tokens: int  # Tokens that it holds (``max_total_num_tokens``).
    window_tokens: int | None  # Tokens of the window pool; None without one.
    state_slots: int | None  # States that it holds; None for models without.
    max_requests: int  # Requests that run at once (``max_running_requests``).
    limited_by: str  # What sets ``max_requests``: ``flag``, ``states``, ``tokens`` or ``estimate``.


@dataclass(frozen=True, slots=True)
class Division:
    """How a budget becomes tokens, window tokens and states: one model under one set of flags."""

    flags: PoolFlags  # The resolved flags.
    cell_bytes: float  # Bytes of one more token; 0 for a model that caches none.
    # Bytes that a budget loses before tokens: request slots, a window pool of fixed size.
    fixed_bytes: float = 0
    # Tokens of a window pool of fixed size; None if it is a share of all tokens.
    fixed_window: int | None = None
    window: int | None = None  # Tokens that windowed layers look back; None without a window pool.
    shared_window: bool = False  # True if there is no other pool, so that the window pool holds all tokens.
    state_bytes: int = 0  # Bytes of one state of all layers; 0 without states.
    window_bytes: float = 0  # Bytes of one token of a window pool; 0 without one.
    slot_bytes: int = 0  # Bytes that each request has of what is fixed, such as a compressor's ring.

    @property
    def is_division(self) -> bool:
        """True for one pool of equal cells: no windows, no states, nothing of fixed size, no tokens held in turns."""
        others = (
            self.state_bytes or self.fixed_bytes or self.window or self.flags.max_tokens or self.turns > 1
        )
        return not others and self.cell_bytes == int(self.cell_bytes)

    @property
    def divided(self) -> kernel.PoolRule | None:
        """The rule for the formulas that Python and the browser share, which know the engine's defaults only."""
        flags = self.flags
        given = (flags.max_tokens, flags.max_states, self.fixed_window)
        if any(one is not None for one in given) or flags.draft_tokens or not flags.prefix_cache:
            return None
        if self.slot_bytes:  # what would run if it were told so is not among those formulas
            return None
        return kernel.PoolRule(
            cell_bytes=self.cell_bytes,
            fixed_bytes=self.fixed_bytes,
            window=self.window or 0,
            shared=int(self.shared_window),
            window_share=flags.window_share,
            page=flags.page_tokens,
            state_bytes=self.state_bytes,
            state_share=flags.state_share,
            states_each=flags.states_per_request,
            turns=self.turns,
            spare=flags.spare_states,
            window_bytes=self.window_bytes,
            slot_bytes=self.slot_bytes,
        )

    @property
    def turns(self) -> int:
        """Ranks that hold the tokens of a request in turns; window pools do not (``logical_token_capacity``)."""
        return self.flags.context_ranks if self.window is None else 1

    def blocks(self, pool_bytes: xp.ArrayLike) -> Integers:
        """Pages of the pool that every token of a request takes a slot of: a page of each context rank is one of them."""
        page, most, ranks = self.flags.page_tokens, self.flags.max_tokens, self.turns
        rest = xp.maximum(self._for_tokens(xp.integers(pool_bytes)), 0)
        if self.cell_bytes and ranks > 1:
            # A rank counts the rows that it holds, in whole pages; requests see as many tokens on all of them.
            rows = xp.integers(rest // round(self.cell_bytes * ranks))
            tokens = rows // page * page * ranks
        elif self.cell_bytes:
            tokens = xp.integers(rest // self.cell_bytes)
        else:
            tokens = xp.full_like(rest, (most or self.flags.context_tokens) // page * page * ranks)
        if most is not None:
            tokens = xp.minimum(tokens, most)
        return xp.integers(tokens // (page * ranks))

    def tokens(self, pool_bytes: xp.ArrayLike) -> Integers:
        """Tokens that the pool holds (``max_total_num_tokens``), those of all context ranks."""
        return self.blocks(pool_bytes) * (self.flags.page_tokens * self.turns)

    def window_tokens(self, tokens: xp.ArrayLike) -> Integers | None:
        """Tokens of the window pool beside so many of the full one; None without a window pool."""
        flags = self.flags
        held, page = xp.integers(tokens), flags.page_tokens
        if self.window is None:
            return None
        if self.shared_window:
            return held
        if self.fixed_window is not None:
            kept = self.fixed_window if flags.max_tokens is None else min(self.fixed_window, flags.max_tokens)
            return xp.full_like(held, kept)
        share = xp.integers(xp.floor(held * flags.window_share))
        return xp.integers(share // page * page)

    def state_slots(self, pool_bytes: xp.ArrayLike) -> Integers | None:
        """States that the budget is given; None for a model without."""
        if not self.state_bytes:
            return None
        one, flags = self.state_bytes, self.flags
        rest = xp.integers(pool_bytes) / GIB
        if flags.max_states is not None:
            return xp.full_like(rest, flags.max_states)
        if not flags.prefix_cache and flags.max_requests is not None:
            return xp.full_like(rest, max(1, flags.max_requests))
        share = rest * flags.state_share / (1 + flags.state_share) * GIB
        drafts, spare = flags.draft_tokens, flags.spare_states
        slots = (share - spare * one * (1 + drafts)) // (one * (1 + drafts / flags.states_per_request))
        return xp.integers(slots)

    def state_requests(self, pool_bytes: xp.ArrayLike) -> Integers | None:
        """Requests at once that the states allow: each may hold ``states_per_request``; None without states."""
        slots = self.state_slots(pool_bytes)
        return None if slots is None else xp.maximum(slots, 0) // self.flags.states_per_request

    def requests_beside(self, pool_bytes: xp.ArrayLike, context_tokens: xp.ArrayLike) -> Integers | None:
        """Requests at once that windows and states allow, whatever the tokens; None if nothing limits them.

        A request holds its window, what is decoded until the next eviction, and two pages
        (``compute_swa_request_cap``), in whole pages; and as many states as ``states_per_request``.
        """
        limits = []
        states = self.state_requests(pool_bytes)
        if states is not None:
            limits.append(states)
        windows = self.window_tokens(self.tokens(pool_bytes))
        if windows is not None and self.window is not None and not self.shared_window:
            most = self.window + EVICTION_TOKENS + 2 * self.flags.page_tokens
            paged = -(-xp.integers(context_tokens) // self.flags.page_tokens) * self.flags.page_tokens
            held = xp.minimum(paged, most)
            limits.append(windows // xp.maximum(held, 1))
        if not limits:
            return None
        return xp.integers(limits[0] if len(limits) == 1 else xp.minimum(*limits))

    def bytes_beside(self, context_tokens: xp.ArrayLike) -> Integers:
        """Bytes that a request reserves beside its pages (:func:`kvreport.accounting.kernel.bytes_beside`)."""
        flags, tokens = self.flags, xp.integers(context_tokens)
        beside = xp.full_like(tokens, self.state_bytes * flags.states_per_request + self.slot_bytes)
        if self.window is None or self.shared_window:
            return xp.integers(beside)
        page, share = flags.page_tokens, flags.window_share if self.fixed_window is None else 0.0
        paged = -(-tokens // page) * page
        held = xp.minimum(paged, self.window + EVICTION_TOKENS + 2 * page)
        return xp.integers(
            beside + xp.maximum(xp.integers(xp.ceil(self.window_bytes * (held - share * paged))), 0)
        )

    def if_told(self, held: Integers, pool_bytes: xp.ArrayLike, request_bytes: xp.ArrayLike) -> Integers:
        """Where all that it is told run, as many as would if it were told so.

        Each brings a ring, a window of its own, or the states of its draft tokens. A larger number takes them from
        the tokens, of which windows are a share where a prefix cache is kept.
        """
        flags = self.flags
        page, most = flags.page_tokens, flags.max_requests or MOST_REQUESTS
        taken, rest = xp.integers(request_bytes), self._for_tokens(xp.integers(pool_bytes)) + self.fixed_bytes
        if self.slot_bytes:
            rest, each = rest + most * self.slot_bytes - self.fixed_bytes, self.slot_bytes
            if self.window is not None:
                window = xp.minimum(
                    taken // ceil(self.cell_bytes * page) * page, self.window + EVICTION_TOKENS + 2 * page
                )
                of_window = self.cell_bytes / flags.window_share
                taken, rest = xp.maximum(taken, xp.ceil(of_window * window)), rest - of_window * page
        elif self.window is not None and not self.shared_window and not flags.prefix_cache:
            share = flags.window_share if self.fixed_window is None else 0.0
            full = ceil((self.cell_bytes - share * self.window_bytes) * page)
            each = ceil(window_of_request(self.window, flags) * self.window_bytes)
            taken = taken // ceil(self.cell_bytes * page) * full
            rest = rest - (chunks_in_flight(flags) + 2 * page) * self.window_bytes
        elif (verified := self._verified(self.state_slots(pool_bytes))) is not None:
            each = self.state_bytes * flags.draft_tokens
            rest = rest + verified * each
        else:
            return held
        told = xp.integers(xp.integers(rest) // (xp.integers(taken) + each))
        if self.state_bytes or self.fixed_window is None:
            told = xp.minimum(held, told)  # states, and tokens that the flag does not move
        return xp.integers(xp.where(held >= most, xp.maximum(told, most), held))

    @property
    def _states_by_request(self) -> bool:
        """True if a state is kept for each request that may run, and no more."""
        return not self.flags.prefix_cache and self.flags.max_states is None

    def _verified(self, slots: Integers | None) -> Integers | None:
        """Requests whose draft tokens have states, where the number that is told decides it; else None."""
        told = self.flags.max_requests
        if slots is None or not self.flags.draft_tokens or told is None or self._states_by_request:
            return None
        return xp.integers(xp.minimum(max(1, told), slots // self.flags.states_per_request))

    def _for_tokens(self, pool: Integers) -> xp.Reals:
        """What states and fixed pools leave of a budget; since 0.5.17 one state more than counted is allocated."""
        slots = self.state_slots(pool)
        if slots is None:
            return xp.reals(pool - self.fixed_bytes)
        one, drafts = self.state_bytes, self.flags.draft_tokens
        rest = (pool - self.fixed_bytes) / GIB
        if drafts:
            at_once = slots if self._states_by_request else slots // self.flags.states_per_request
            told = self._verified(slots)
            at_once = at_once if told is None else told
            rest = rest - one * (at_once + self.flags.spare_states) * drafts / GIB
        rest = rest - (slots + self.flags.spare_states) * one / GIB
        return xp.reals(xp.trunc(rest * GIB))


def pool_rule(model: Model, engine: Engine, flags: PoolFlags) -> Division:
    """Which pools a model has, and what a token takes of them.

    ``engine``: the release, whose lists of model classes decide which models have a window pool.
    """
    if compressed.is_compressed(model):
        return _compressed_rule(model, engine, flags)
    states = shapes.layers(model, engine).states
    ranks = flags.attention_ranks
    if engine.lists("states_by_all_ranks", model.architecture):
        ranks *= flags.data_ranks  # configs/mamba.py and mamba2.py divide by tp_size, 0.5.20 to 0.5.23
    one = 0
    if states and engine.lists("alike_states", model.architecture):
        one = shapes.alike_states_bytes(model, ranks)
    elif states:
        one = shapes.state_bytes(model, ranks, flags.state_dtype)
    if shapes.layers(model, engine).windowed:
        return replace(_window_rule(model, engine, flags), state_bytes=one)
    return Division(flags, token_bytes(model, engine, flags), state_bytes=one)


def pools_of(rule: Division, budget_bytes: int) -> RankPools:
    """Divide a budget over the pools of a rule.

    ``budget_bytes``: what weights and the reserve leave on the rank.

    Raises:
        InputError: If the budget holds no token, no state, or no window of one request.
    """
    flags = rule.flags
    slots = rule.state_slots(budget_bytes)
    if slots is not None and int(slots) <= 0:
        raise InputError(
            f"recurrent states: found {budget_bytes} bytes for states of {rule.state_bytes} bytes each and the "
            "cache; allowed: more memory or fewer weights per device"
        )
    tokens = int(rule.tokens(budget_bytes))
    if tokens <= 0:
        raise InputError(
            f"memory: found {budget_bytes} bytes for the cache, less than one page of tokens of "
            f"{rule.cell_bytes:g} bytes; allowed: more memory, fewer weights per device or a larger share"
        )
    windows = rule.window_tokens(tokens)
    if windows is not None and rule.fixed_window is None and not rule.shared_window:
        least = (rule.window or 0) + flags.page_tokens
        if int(windows) <= least:
            raise InputError(
                f"memory: found a window pool of {int(windows)} tokens; allowed: more than the window and one "
                f"page, {least}"
            )
    found, limit = max_requests(tokens // rule.turns, None if slots is None else int(slots), flags)
    return RankPools(
        tokens=tokens,
        window_tokens=None if windows is None else int(windows),
        state_slots=None if slots is None else int(slots),
        max_requests=found,
        limited_by=limit,
    )


def max_requests(tokens: int, state_slots: int | None, flags: PoolFlags) -> tuple[int, str]:
    """Requests that run at once on one data rank, and what sets the number.

    Raises:
        InputError: If there are not states enough for one request.
    """
    if flags.max_requests is not None:
        found, limit = max(flags.max_requests, 1), "flag"
    else:
        estimated = int(tokens / flags.context_tokens * CONTEXTS_ESTIMATED)
        found, limit = max(min(estimated, MOST_REQUESTS), LEAST_REQUESTS), "estimate"
    if tokens // 2 < found:
        found, limit = tokens // 2, "tokens"
    if state_slots is not None and state_slots // flags.states_per_request < found:
        found, limit = state_slots // flags.states_per_request, "states"
        if found <= 0:
            raise InputError(
                f"recurrent states: found room for {state_slots}; allowed: at least {flags.states_per_request}, "
                "what one running request may hold"
            )
    return found, limit


def token_bytes(model: Model, engine: Engine, flags: PoolFlags) -> float:
    """Bytes that one token takes in the pool of all layers, index keys and draft layers included.

    Context ranks divide the tokens of the layers' caches; drafts lie on each of them, and index keys in newer releases.
    Beside index keys without scales (MiniMax-M3) heads are counted by all ranks, and everything is divided
    (0.5.23 ``pool_configurator.py::DefaultPoolConfigurator``, ``kv_cache_configurator.py::logical_token_capacity``).
    """
    if flags.draft_bytes:
        return token_bytes(model, engine, replace(flags, draft_bytes=0)) + flags.draft_bytes
    index = shapes.indexer_of(model)
    if flags.context_ranks > 1 and index is not None and not index.scaled:
        return token_bytes(model, engine, replace(flags, context_ranks=1)) / flags.context_ranks
    if flags.context_ranks > 1:
        heads = replace(
            flags, attention_ranks=max(flags.attention_ranks // flags.context_ranks, 1), context_ranks=1
        )
        whole = token_bytes(model, engine, heads)
        shared = token_bytes(model, engine, replace(heads, draft_layers=0))
        if release_of(engine).has("index_on_every_rank"):
            shared -= index_bytes(model, engine, flags) * shapes.layers(model, engine).indexed
        return whole - shared + shared / flags.context_ranks
    counted = shapes.layers(model, engine)
    if shapes.latent_of(model) is None:
        width = shapes.token_elements(model, flags.attention_ranks)
        cell = int(width * counted.full * flags.element_bytes)
    else:
        cell = int(latent_bytes(model, flags) * counted.full)
    keys = index_bytes(model, engine, flags)
    target = cell + keys * counted.indexed
    if not flags.draft_layers or not counted.full:
        return target
    if keys:
        return target + cell * flags.draft_layers // counted.full + keys * flags.draft_layers
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


def index_bytes(model: Model, engine: Engine, flags: PoolFlags) -> int:
    """Bytes of one token's index key in one layer, or its part of the key of a group of tokens.

    FP8 with a 4-byte scale per 128 elements; without scales (MiniMax-M3) the model's own 16 bits, or FP8
    on Hopper beside an FP8 cache (``get_minimax_sparse_index_dtype``). Pooled keys without scales are 16 bits wide for each
    group of tokens (0.5.20 to 0.5.23 ``mem_cache/qsa_kv_pool.py::qsa_bytes_per_token``).
    """
    index = shapes.indexer_of(model)
    if index is None:
        return 0
    if not index.scaled:
        return index.index_dim * (1 if flags.narrow_index else SERVED_BYTES) // index.stride
    one = index.index_dim + index.index_dim // SCALE_EVERY * SCALE_BYTES
    pooled = release_of(engine).has("index_pooled")
    return -(-one // index.stride) if pooled else one


def window_cap_tokens(window: int, flags: PoolFlags) -> int:
    """Tokens of a window pool for the worst case of ``max_requests`` (``compute_swa_request_cap``).

    Per request the window, what is decoded between two evictions, and two pages; beside them the chunks
    of prefill in flight and one page more.
    """
    page = flags.page_tokens
    cap = window_of_request(window, flags) * max(1, flags.max_requests or 1) + chunks_in_flight(flags) + page
    return -(-cap // page) * page


def window_of_request(window: int, flags: PoolFlags) -> int:
    """Tokens of a window pool for one request: its window, what is decoded until an eviction, and two pages."""
    return window + EVICTION_TOKENS * max(flags.draft_tokens, 1) + 2 * flags.page_tokens


def chunks_in_flight(flags: PoolFlags) -> int:
    """Tokens of the chunks of prefill that are in flight."""
    return (2 if flags.overlap else 1) * flags.chunk_tokens


def _window_rule(model: Model, engine: Engine, flags: PoolFlags) -> Division:
    counted = shapes.layers(model, engine)
    full = shapes.token_elements(model, flags.attention_ranks) * flags.element_bytes
    windowed = shapes.token_elements(model, flags.attention_ranks, windowed=True) * flags.element_bytes
    full_cell = full * (counted.full + flags.draft_layers) + flags.draft_bytes
    window_cell = windowed * counted.windowed
    window = shapes.window_of(model)
    if not counted.full:
        cell = window_cell + full * flags.draft_layers + flags.draft_bytes
        return Division(flags, cell, window=window, shared_window=True)
    if window is not None and flags.window_by_requests:
        kept = window_cap_tokens(window, flags)
        return Division(
            flags,
            full_cell,
            fixed_bytes=kept * window_cell,
            fixed_window=kept,
            window=window,
            window_bytes=window_cell,
        )
    cell = full_cell + flags.window_share * window_cell
    return Division(flags, cell, window=window, window_bytes=window_cell)


def _compressed_rule(model: Model, engine: Engine, flags: PoolFlags) -> Division:
    sizes = compressed.compressed_sizes(
        model,
        engine,
        max_requests=flags.max_requests or MOST_REQUESTS,
        page_tokens=flags.page_tokens,
        window_share=flags.window_share,
        draft_tokens=flags.draft_tokens,
    )
    return Division(
        flags,
        sizes.token_bytes,
        fixed_bytes=sizes.fixed_bytes,
        window=shapes.window_of(model),
        window_bytes=sizes.window_bytes,
        slot_bytes=sizes.slot_bytes,
    )
