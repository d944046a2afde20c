"""The record of a block plan and the flags that change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kvreport.accounting import numeric as xp
from kvreport.accounting.kernel import PoolRule
from kvreport.accounting.numeric import Integers
from kvreport.accounting.profile import CacheProfile

SHORTEST_SERVER_TOKENS: Final = 64
"""A question of fewer tokens is no ``--max-model-len``: vLLM's steps of 16,384 tokens are cut below this for 256 requests
(``engine/arg_utils.py::_set_default_max_num_seqs_and_batched_tokens_args``), and rows of all lengths share one step."""


class Pool(Protocol):
    """How a budget becomes blocks where that is no plain division."""

    @property
    def is_division(self) -> bool:
        """True where nothing takes a part of the budget, so that blocks are a plain division."""

    @property
    def divided(self) -> PoolRule | None:
        """How the pool is divided, as the formulas take it that Python and the browser share; None where they have none."""

    @property
    def state_bytes(self) -> int:
        """Bytes of one state of a request; 0 without states."""

    def blocks(self, pool_bytes: xp.ArrayLike) -> Integers:
        """Blocks that requests can take, once other pools have their part."""

    def state_requests(self, pool_bytes: xp.ArrayLike) -> Integers | None:
        """Requests at once that a pool of states allows; None without one."""

    def requests_beside(self, pool_bytes: xp.ArrayLike, context_tokens: xp.ArrayLike) -> Integers | None:
        """Requests at once that other pools (windows, states) allow; None if nothing limits them."""

    def bytes_beside(self, context_tokens: xp.ArrayLike) -> Integers:
        """Bytes that a request of each context reserves in other pools (windows, states)."""

    def if_told(self, held: Integers, pool_bytes: xp.ArrayLike, request_bytes: xp.ArrayLike) -> Integers:
        """Requests that memory allows: ``held``, or if all run that the engine is told to run, those if it were told more."""


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share a block table, for the explanation."""

    kind: str  # Cache kind of its layers (the first, where they differ).
    layers: int  # Layers that it really has.
    block_tokens: int  # Tokens per block.
    page_bytes: int  # Bytes of one block of all its layers.
    # Blocks before a prompt's end that a later request with the same beginning reads; None for all of them.
    hit_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How an engine lays requests into its pool, on one device."""

    block_bytes: int  # Bytes of one block; 1 where the engine has none.
    # Bytes of the pool's blocks that one request takes; a multiple of ``block_bytes`` at every context.
    profile: CacheProfile
    kept_blocks: int = 0  # Blocks that the engine keeps for itself.
    # The cache groups, for the explanation; empty where the engine has none.
    groups: tuple[CacheGroup, ...] = ()
    block_tokens: int = 1  # Tokens per block of the full-attention layers.
    context_parallel: int = 1  # Ranks that share the tokens of one block table.
    notes: tuple[str, ...] = ()  # What a reader should know about this plan.
    # How a budget becomes blocks, where other pools take a part of it; None for a division.
    pool: Pool | None = None
    # Bytes of a request as the engine's line of concurrency counts them, in pages of ``first_page_bytes``,
    # where it does not count blocks (vLLM to 0.23,
    # ``v1/core/kv_cache_utils.py::get_max_concurrency_for_kv_cache_config``); None where it does.
    printed: CacheProfile | None = None
    first_page_bytes: int = 0  # Bytes of a block of its first group.
    # True if all tensor ranks hold the same rows, of which the release can keep one copy in host memory.
    one_copy: bool = False
    steps_in_flight: int = 1  # Scheduler steps whose tokens its windows hold.

    def request_bytes(self, context_tokens: xp.ArrayLike) -> Integers:
        """Everything that one request of each context reserves: its blocks, and its part of other pools."""
        blocks = self.profile.request_bytes(context_tokens)
        return blocks if self.pool is None else xp.integers(blocks + self.pool.bytes_beside(context_tokens))


@dataclass(frozen=True, slots=True)
class HostMemory:
    """How host memory of a data rank keeps the blocks that the pool of a plan gives up."""

    # Ranks that each keep blocks of their own: what is stated for the data rank is divided by these.
    copies: int
    # Tokens of finished requests that so many bytes of a data rank keep, where each request has so many tokens.
    tokens: Callable[[int, int], int]
    mapped: bool = False  # True if the ranks of a node map one region of ``/dev/shm``.


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What a server is told of its caches and of what drafts."""

    block_tokens: int | None = None  # Tokens per block given by hand; None for the engine's choice.
    prefix_caching: bool | None = None  # True or False as given; None for the engine's default.
    draft_tokens: int = 0  # Speculative tokens per step; states keep one more slot for each.
    draft_in_model: bool = False  # True if the draft's layers stand among the model's own.
    # Tokens of SGLang's window pool for each of the full one (``--swa-full-tokens-ratio``); None for the
    # engine's default.
    window_share: float | None = None
    # Slots of recurrent states given by hand (SGLang's ``--max-mamba-cache-size``); None to size them by the
    # budget.
    max_states: int | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Each of them by its name."""
        return {name: getattr(self, name) for name in CacheSettings.__slots__}


UNTOLD: Final = CacheSettings()


@dataclass(frozen=True, slots=True)
class Serving(CacheSettings):
    """The flags that change a block plan."""

    max_batched_tokens: int  # Tokens of one scheduler step; windows reserve for those in flight.
    max_seqs: int = 256  # Requests that run at once.
    sequences: int = 1  # Requests that share one row of cells (llama.cpp's unified cache).
    # True where the engine is told that number, even if it is the one that stands for none (SGLang's 4,096).
    seqs_told: bool = False
