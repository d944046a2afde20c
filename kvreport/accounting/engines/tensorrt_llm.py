"""TensorRT-LLM's PyTorch backend: blocks of 32 tokens in a share of what is free after a profiled step.

Read from its public source, release 1.2 and main of 2026 (``tensorrt_llm/_torch/pyexecutor/_util.py``,
``KvCacheCreator``; ``resource_manager.py``, ``KVCacheManager``; ``llmapi/llm_args.py``, ``KvCacheConfig``;
``commands/serve.py``):

    pool = free_gpu_memory_fraction * (device memory - peak of weights, activations and what is outside torch)
    blocks = tokens that the pool holds, rounded up to whole blocks

Heads divide by tensor ranks, at least one each; latents are whole on every rank. With attention data
parallelism each rank holds all heads of its own requests. Windows take whole contexts unless
``max_attention_window`` is given. Recurrent states are allocated for ``max_batch_size`` requests. The
scheduler admits a request only if all its tokens fit (``GUARANTEED_NO_EVICT``).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.command import Command, Served, Word, named
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import EngineStep, Reserve, constant
from kvreport.accounting.engines.vllm.profiling import Shape
from kvreport.accounting.engines.vllm.reserve import device_class
from kvreport.accounting.kv_cache import cache_terms, state_bytes
from kvreport.accounting.numeric import Integers
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.text_drafts import TEXT_DRAFTS
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import CrossAttention, RecurrentState
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError
from kvreport.units import human_bytes

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

POOL_CAP: Final = "max_gpu_total_bytes"
"""Of ``KvCacheConfig``: the smaller of this and the share of free memory is taken (``llmapi/llm_args.py``, 1.2.1)."""


@dataclass(frozen=True, slots=True)
class StatesFirst:
    """A pool that loses the states of all requests at once before it is divided into blocks."""

    token_bytes: int  # Bytes of one token in all layers of one rank.
    block_tokens: int  # Tokens per block.
    state_bytes: int = 0  # Bytes of the states of one request.
    max_requests: int = 1  # ``max_batch_size``: as many requests have states.

    @property
    def states_bytes(self) -> int:
        """Bytes of the states of ``max_batch_size`` requests."""
        return self.state_bytes * self.max_requests

    @property
    def is_division(self) -> bool:
        """False: tokens are rounded up to whole blocks."""
        return False

    def blocks(self, pool_bytes: xp.ArrayLike) -> Integers:
        """Blocks: the tokens that fit, rounded up to whole blocks."""
        rest = xp.maximum(xp.integers(pool_bytes) - self.states_bytes, 0)
        tokens = rest // self.token_bytes
        return xp.integers(-(-tokens // self.block_tokens))

    @property
    def divided(self) -> None:
        """The formulas that the browser shares know no pool whose tokens are rounded up to blocks."""

    def state_requests(self, pool_bytes: xp.ArrayLike) -> Integers | None:
        """None: states are there for every request that may run."""
        return None

    def requests_beside(self, pool_bytes: xp.ArrayLike, context_tokens: xp.ArrayLike) -> Integers | None:
        """None: states are there for every request that may run."""
        return None

    def bytes_beside(self, context_tokens: xp.ArrayLike) -> Integers:
        """The states of a request."""
        return xp.integers(xp.full_like(xp.integers(context_tokens), self.state_bytes))

    def if_told(self, held: Integers, pool_bytes: xp.ArrayLike, request_bytes: xp.ArrayLike) -> Integers:
        """As many as would run if ``max_batch_size`` were that number: each brings its states.

        Tokens are rounded up to blocks, so that one token of the last block is enough.
        """
        if not self.state_bytes:
            return held
        most_bytes = xp.integers(pool_bytes) + self.token_bytes * (self.block_tokens - 1)
        told = xp.integers(most_bytes // (xp.integers(request_bytes) + self.state_bytes))
        return xp.integers(xp.where(held > 0, xp.maximum(told, xp.minimum(held, self.max_requests)), 0))


@dataclass(frozen=True, slots=True)
class TensorRtLlm(EngineRules):
    """The rules of one TensorRT-LLM release."""

    def plan(self, case: Case) -> BlockPlan:
        """One pool of equal blocks for all layers of a rank.

        Raises:
            InputError: If tokens per block are no power of two above 1.
        """
        model, serving, layout = case.model, case.serving, case.layout
        per_block = serving.block_tokens or self.engine.block_tokens
        if per_block < 2 or per_block & (per_block - 1):
            raise InputError(f"block size: found {per_block}; allowed: a power of two above 1, such as 32")
        token = token_bytes(model, case.kv_format, layout.tensor)
        state = states_bytes(model, layout.tensor)
        if not token:
            raise InputError(
                f"engine {self.engine.name}: found a model without a growing cache; allowed: models with "
                "attention, or vllm and sglang"
            )
        block = token * per_block
        encoder = encoder_bytes(model, case.kv_format, layout.tensor)
        terms = [Term("full", block, step_tokens=per_block)]
        if encoder:
            terms.append(Term("cross", constant_bytes=-(-encoder // block) * block))
        return BlockPlan(
            block_bytes=block,
            profile=CacheProfile(tuple(terms)),
            block_tokens=per_block,
            notes=tuple(_notes(model, state * serving.max_seqs, encoder)),
            pool=StatesFirst(token, per_block, state, serving.max_seqs),
        )

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """Scheduler defaults, and whether devices of a server share a link; its kernels."""
        kept, kernels = EngineRules.device_class(self, accelerator)
        return (kept, _is_linked(accelerator)), kernels

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """Peak of a step of ``max_num_tokens``, and what is outside torch, as the engine profiles it.

        The share of free memory is taken of what weights and this leave (:func:`kvreport.accounting.shares.pool_bytes`). What several ranks take
        outside torch is known of a server whose devices share a link alone: on others it is not charged, and the error
        is wider by it.
        """
        activations = step_bytes_per_token(model, step.layout.tensor) * step.max_batched_tokens
        outside = constant(self.engine, "non_framework_bytes")
        error = constant(self.engine, "uncertainty_bytes")
        if step.layout.tensor > 1:
            linked = constant(self.engine, "non_framework_parallel_bytes")
            outside += linked if _is_linked(accelerator) else 0
            error += 0 if _is_linked(accelerator) else linked
        return Reserve(
            activations=round(activations),
            non_framework=round(outside),
            graphs=0,
            uncertainty=round(error),
        )

    def open_choices(
        self, model: Model, accelerator: Accelerator, step: EngineStep, formats: Mapping[str, WeightFormat]
    ) -> tuple[str, ...]:
        """Memory shared with a CPU: the engine asks ``torch.cuda.mem_get_info`` what is taken, and cached files count (``_util.py``)."""
        if step.layout.tensor > 1 and not _is_linked(accelerator):
            linked = human_bytes(round(constant(self.engine, "non_framework_parallel_bytes")))
            return (
                (
                    "what several ranks take outside torch: known of one server of eight linked GPUs alone, not charged here. The pool "
                    f"can be smaller by as much as {linked} per GPU"
                ),
            )
        if device_class(accelerator) != "unified":
            return ()
        return (
            (
                "no file in the page cache: on memory shared with a CPU the cached files of the checkpoint count as taken. The pool can "
                "be smaller by nearly their size (`kvreport log` reads what a start printed)"
            ),
        )

    @staticmethod
    def command(served: Served) -> Command:
        """``trtllm-serve``; attention data parallelism and the cache's type need a file for ``--config``."""
        words: list[Word] = ["trtllm-serve", served.model]
        if served.stage_ranks > 1:
            words += ["--tp_size", str(served.stage_ranks)]
        if served.layout.pipeline > 1:
            words += ["--pp_size", str(served.layout.pipeline)]
        if served.layout.expert:
            words += ["--ep_size", str(served.stage_ranks)]
        flags = flag_names("tensorrt_llm")
        words += named(
            flags,
            context=served.context_tokens,
            max_seqs=served.max_seqs,
            utilization=None if served.utilization is None else f"{served.utilization:g}",
            max_batched_tokens=served.max_batched_tokens,
        )
        options = config_file(served)
        return Command((*words, *((flags["config"], "options.yaml") if options else ())), options=options)


def config_file(served: Served) -> dict[str, object]:
    """What the file of ``trtllm-serve --config`` must say (``llmapi/llm_args.py``); empty if none is needed."""
    options: dict[str, object] = {}
    if served.layout.data > 1:
        options["enable_attention_dp"] = True
    cache: dict[str, object] = {}
    if not served.kv_is_own:
        cache["dtype"] = "auto" if served.kv_format == "bf16" else served.kv_format
    if served.kv_pool_bytes is not None:
        cache[POOL_CAP] = served.kv_pool_bytes
    if cache:
        options["kv_cache_config"] = cache
    if served.dtype is not None:
        options["dtype"] = served.dtype
    if served.eager:
        options["cuda_graph_config"] = None
    if served.lora_slots[0]:
        options["lora_config"] = {"max_loras": served.lora_slots[0], "max_lora_rank": served.lora_slots[1]}
    if served.caches.draft_tokens:
        own = {"decoding_type": "MTP", "num_nextn_predict_layers": served.caches.draft_tokens}
        other = {
            "decoding_type": "Eagle",
            "max_draft_len": served.caches.draft_tokens,
            "speculative_model_dir": served.draft,
        }
        text = {"decoding_type": "NGram", "max_draft_len": served.caches.draft_tokens}
        options["speculative_config"] = (
            text if served.draft_method in TEXT_DRAFTS else other if served.draft else own
        )
    return options


def token_bytes(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> int:
    """Bytes of one token in all layers of one rank; windows are charged like full attention."""
    total = 0
    for group in model.layers:
        for cache in group.caches:
            for term in cache_terms(cache, kv_format, tensor_parallel=tensor_parallel):
                total += ceil(term.rate_bytes / term.step_tokens) * group.count
    return total


def _is_linked(accelerator: Accelerator) -> bool:
    """True for a device of a server whose devices share a link; a card in a slot shares one with a neighbor at most."""
    return accelerator.interconnect_bytes_per_s is not None and not accelerator.is_card


def encoder_bytes(model: Model, kv_format: KvFormat | None, tensor_parallel: int) -> int:
    """Bytes of the encoder's tokens that a request keeps for layers of cross-attention, on one rank."""
    return sum(
        term.constant_bytes * group.count
        for group in model.layers
        for cache in group.caches
        if isinstance(cache, CrossAttention)
        for term in cache_terms(cache, kv_format, tensor_parallel=tensor_parallel)
    )


def states_bytes(model: Model, tensor_parallel: int) -> int:
    """Bytes of one request's recurrent states on one rank."""
    return sum(
        group.count * state_bytes(cache, tensor_parallel)
        for group in model.layers
        for cache in group.caches
        if isinstance(cache, RecurrentState)
    )


def step_bytes_per_token(model: Model, tensor_parallel: int = 1) -> float:
    """Bytes that one token takes at the peak of a forward step, counted off the model's widths.

    Six 16-bit copies of the residual stream, both halves of the MLP's inner side and its product, and per
    chosen expert the same of its own inner side and one output.
    """
    sizes = Shape.of(model)
    dense = 12 * sizes.hidden + 6 * sizes.inner / tensor_parallel
    expert = 6 * sizes.expert_inner / tensor_parallel + 2 * sizes.hidden
    return dense + sizes.experts_per_token * expert


def _notes(model: Model, states: int, encoder: int) -> list[str]:
    notes = ["a request is admitted only if all its tokens fit (GUARANTEED_NO_EVICT)"]
    if any(cache.kind in ("sliding", "chunked") for cache in model.every_cache):
        notes.append("sliding-window layers take the whole context unless max_attention_window is given")
    if states:
        notes.append(f"{states:,} bytes are allocated for the recurrent states of max_batch_size requests")
    if encoder:
        notes.append(f"each request also takes {encoder:,} B for the tokens of an encoder")
        notes.append(
            "1.2 skips layers of cross-attention: it takes no images for this class, and holds more requests of text (modeling_mllama.py)"
        )
    return notes
