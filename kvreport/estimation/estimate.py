"""One estimate: from a question to its numbers, through the same arithmetic as the dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvreport.accounting.blocks import BlockPlan, plan
from kvreport.accounting.budget import Budget, budget, memory_bytes, pool_bytes
from kvreport.accounting.capacity import (
    Verdict,
    concurrency,
    longest_context,
    printed_tokens,
    users,
    verdict,
)
from kvreport.accounting.demand import demand
from kvreport.accounting.kv_cache import held
from kvreport.accounting.loaded import load_overhead
from kvreport.accounting.profile import CacheProfile
from kvreport.accounting.roofline import Peaks, step_bounds_ms
from kvreport.accounting.weights import (
    active_parameters,
    parameters,
    parameters_by_component,
    weights_by_component,
)
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.estimation.explanation import explain
from kvreport.estimation.request import Request, resolve
from kvreport.units import MAX_BYTES

STANDARD_CONTEXTS = tuple(1 << power for power in range(11, 21))
"""2K to 1M: the contexts of an estimate's table."""


@dataclass(frozen=True, slots=True)
class AtContext:
    """The answer at one further context, all else equal."""

    context_tokens: int
    kv_bytes_per_request_per_gpu: int
    max_concurrent_requests: int
    max_concurrent_requests_ceiling: int
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many requests fit, and why.

    Sizes are whole bytes, per GPU (device).

    Attributes:
        request: The question, resolved.
        parameters: Parameters: ``total``, ``active``, and ``by_component``.
        weights_by_component: Weight bytes on one device, by component.
        weight_bytes_per_gpu: Weight bytes on one device: the checkpoint's tensors.
        loading_bytes: What loading adds to them on one device, by what it is for; the budget's
            weights are both together.
        kv_bytes_per_token_per_gpu: Bytes of one further token at this context, before blocks.
        kv_bytes_per_token_reserved_per_gpu: The same as the engine lays it out, blocks spread evenly.
        state_bytes_per_request_per_gpu: Bytes that a request holds whatever its length.
        kv_bytes_per_request_per_gpu: Bytes that the engine reserves for one request.
        budget: Where the device's memory goes.
        plan: The engine's block plan.
        held: What the architecture itself needs.
        max_concurrency: Requests as the engine prints them; None where nothing limits them.
        max_concurrent_requests: Whole requests.
        max_concurrent_requests_ceiling: Whole requests if nothing were reserved or rounded.
        kv_pool_tokens: Tokens as the engine's log line counts them; None where nothing limits them.
        max_context_tokens: The longest single request that fits, up to the model's limit.
        verdict: One of the verdicts of the dataset.
        decode_ms_lower_bound: Least time of one decode step of all those requests; None where
            nothing fits or no rate is known.
        prefill_ms_lower_bound: Least time to read one prompt of this context; None likewise.
        by_context: The same question at the usual contexts.
        explanation: The arithmetic, line by line, with the numbers put in.
    """

    request: Request
    parameters: dict[str, Any]
    weights_by_component: dict[str, int]
    weight_bytes_per_gpu: int
    loading_bytes: dict[str, int]
    kv_bytes_per_token_per_gpu: int
    kv_bytes_per_token_reserved_per_gpu: int
    state_bytes_per_request_per_gpu: int
    kv_bytes_per_request_per_gpu: int
    budget: Budget
    plan: BlockPlan
    held: CacheProfile
    max_concurrency: float | None
    max_concurrent_requests: int
    max_concurrent_requests_ceiling: int
    kv_pool_tokens: int | None
    max_context_tokens: int
    verdict: str
    decode_ms_lower_bound: float | None
    prefill_ms_lower_bound: float | None
    by_context: tuple[AtContext, ...]
    explanation: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        request = self.request
        return {
            "model": request.model.id,
            "gpu": request.accelerator.id,
            "tensor_parallel": request.tensor_parallel,
            "context_tokens": request.context_tokens,
            "weight_format": request.weight_format_name,
            "kv_format": request.kv_format.name,
            "engine": request.engine.name,
            "engine_version": request.engine.version,
            "max_batched_tokens": request.serving.max_batched_tokens,
            "max_seqs": request.serving.max_seqs,
            "parameters": self.parameters,
            "weight_bytes_per_gpu": self.weight_bytes_per_gpu,
            "weight_bytes_by_component": self.weights_by_component,
            "loading_bytes": self.loading_bytes,
            "kv_bytes_per_token_per_gpu": self.kv_bytes_per_token_per_gpu,
            "kv_bytes_per_token_reserved_per_gpu": self.kv_bytes_per_token_reserved_per_gpu,
            "state_bytes_per_request_per_gpu": self.state_bytes_per_request_per_gpu,
            "kv_bytes_per_request_per_gpu": self.kv_bytes_per_request_per_gpu,
            "budget": {
                "total_bytes": self.budget.total_bytes,
                "utilization": self.budget.utilization,
                "weights": self.budget.weights,
                "activations": self.budget.activations,
                "non_framework": self.budget.non_framework,
                "graphs": self.budget.graphs,
                "kv_pool_bytes": self.budget.kv_pool_bytes,
                "uncertainty_bytes": self.budget.uncertainty_bytes,
            },
            "block_tokens": self.plan.block_tokens,
            "block_bytes": self.plan.block_bytes,
            "max_concurrency": self.max_concurrency,
            "max_concurrent_requests": self.max_concurrent_requests,
            "max_concurrent_requests_ceiling": self.max_concurrent_requests_ceiling,
            "kv_pool_tokens": self.kv_pool_tokens,
            "max_context_tokens": self.max_context_tokens,
            "verdict": self.verdict,
            "decode_ms_lower_bound": self.decode_ms_lower_bound,
            "prefill_ms_lower_bound": self.prefill_ms_lower_bound,
            "by_context": [row.to_dict() for row in self.by_context],
            "explanation": list(self.explanation),
        }


def estimate(
    model: str | Path | Model,
    *,
    gpu: str | Accelerator,
    tensor_parallel: int = 1,
    context_tokens: int | str | None = None,
    weights: str | None = None,
    kv: str = "auto",
    engine: str | Engine = "vllm",
    utilization: float | None = None,
    kv_pool: int | str | None = None,
    max_batched_tokens: int | None = None,
    max_seqs: int | None = None,
    block_size: int | None = None,
    eager: bool = False,
    sorts: bool = False,
    prefix_caching: bool | None = None,
    speculative: int = 0,
    dcp: int = 1,
    catalog: Catalogue | None = None,
) -> Estimate:
    """Answer how many requests of one context fit.

    Args:
        model: Catalogue id, slug or alias; path of a ``config.json``; or a :class:`Model`.
        gpu: Accelerator slug or alias, or a record.
        tensor_parallel: Devices that one copy of the model is split over.
        context_tokens: Tokens of every request; None for the model's own limit, which is also
            what an engine takes when it is told nothing.
        weights: Weight format; None for the checkpoint as released.
        kv: KV format; ``auto`` for what the checkpoint declares, else the served 16-bit type.
        engine: Engine whose rules apply; ``ceiling`` reserves nothing.
        utilization: Share of memory that the engine may take; None for its default.
        kv_pool: Cache pool per device, which replaces the budget (bytes, or ``"40GiB"``).
        max_batched_tokens: Tokens of one scheduler step; None for the engine's default here.
        max_seqs: Requests at once; None for the engine's default here.
        block_size: Tokens per block; None for the engine's choice.
        eager: True if the engine captures no graphs.
        sorts: True if the engine said that sampling sorts all logits, for want of FlashInfer.
        prefix_caching: None for the engine's default.
        speculative: Draft tokens per step.
        dcp: Ranks that share a request's tokens while decoding.
        catalog: Where names are looked up; None for the public catalogue.

    Raises:
        InputError: If something asked for is unknown, out of range or impossible.
    """
    request = resolve(
        model,
        gpu=gpu,
        tensor_parallel=tensor_parallel,
        context_tokens=context_tokens,
        weights=weights,
        kv=kv,
        engine=engine,
        utilization=utilization,
        kv_pool=kv_pool,
        max_batched_tokens=max_batched_tokens,
        max_seqs=max_seqs,
        block_size=block_size,
        eager=eager,
        sorts=sorts,
        prefix_caching=prefix_caching,
        speculative=speculative,
        dcp=dcp,
        catalog=open_catalogue() if catalog is None else catalog,
    )
    return answer(request)


def answer(request: Request) -> Estimate:
    """Compute the estimate of a resolved question.

    Raises:
        InputError: If the combination is impossible for this model, format or engine.
    """
    model, accelerator, tp = request.model, request.accelerator, request.tensor_parallel
    context = request.context_tokens
    blocks = plan(
        model,
        request.engine,
        serving=request.serving,
        kv_format=request.kv_format,
        tensor_parallel=tp,
        accelerator=accelerator,
    )
    need = held(
        model, request.stored_format, tensor_parallel=tp, context_parallel=request.serving.context_parallel
    )
    loaded = weights_by_component(model, request.weight_format, request.weight_formats, tp)
    weights = sum(loaded.values())
    added = load_overhead(
        model, request.engine, request.weight_format, request.weight_formats, accelerator, tp
    )
    resident = weights + sum(added.values())
    limits = budget(
        model,
        request.engine,
        accelerator,
        weight_bytes=resident,
        tensor_parallel=tp,
        utilization=request.utilization,
        max_batched_tokens=request.serving.max_batched_tokens,
        max_seqs=request.serving.max_seqs,
        eager=request.eager,
        sorts=request.sorts,
        kv_pool_bytes=request.kv_pool_bytes,
    )
    pool = limits.kv_pool_bytes
    contexts = np.asarray([context, *_table_contexts(model, context)], dtype=np.int64)
    fitting = users(pool, blocks, contexts)
    most = users(
        pool_bytes(request.ceiling, accelerator.usable_bytes, weights),
        BlockPlan(block_bytes=1, profile=need),
        contexts,
    )
    reserved = blocks.profile.request_bytes(contexts)
    judged = verdict(
        # A pool given by hand replaces the budget, so the weights are no obstacle either.
        memory_bytes=(
            memory_bytes(request.engine, accelerator.usable_bytes, request.utilization)
            if request.kv_pool_bytes is None
            else MAX_BYTES
        ),
        weight_bytes=resident,
        pool_bytes=pool,
        plan=blocks,
        context_tokens=contexts,
        limit_tokens=model.context_tokens,
        uncertainty_bytes=limits.uncertainty_bytes,
    )
    at = [
        AtContext(int(tokens), int(held_bytes), int(count), int(top), Verdict(code).label)
        for tokens, held_bytes, count, top, code in zip(
            contexts, reserved, fitting, most, judged, strict=True
        )
    ]
    step, first = step_bounds_ms(
        demand(model, request.weight_format, request.weight_formats, request.kv_format, tensor_parallel=tp),
        Peaks.of(accelerator),
        at[0].max_concurrent_requests,
        context,
    )
    limitless = at[0].kv_bytes_per_request_per_gpu == 0
    real = float(concurrency(pool, blocks, context))
    result = Estimate(
        request=request,
        parameters={
            "total": parameters(model),
            "active": active_parameters(model),
            "by_component": {str(part): number for part, number in parameters_by_component(model).items()},
        },
        weights_by_component={str(part): size for part, size in loaded.items()},
        weight_bytes_per_gpu=weights,
        loading_bytes=added,
        kv_bytes_per_token_per_gpu=int(np.rint(need.marginal_bytes(context))),
        kv_bytes_per_token_reserved_per_gpu=int(np.rint(blocks.profile.marginal_bytes(context))),
        state_bytes_per_request_per_gpu=need.state_bytes,
        kv_bytes_per_request_per_gpu=at[0].kv_bytes_per_request_per_gpu,
        budget=limits,
        plan=blocks,
        held=need,
        max_concurrency=None if limitless else real,
        max_concurrent_requests=at[0].max_concurrent_requests,
        max_concurrent_requests_ceiling=at[0].max_concurrent_requests_ceiling,
        kv_pool_tokens=(
            None if limitless else int(printed_tokens(pool, blocks, context, request.engine.token_line))
        ),
        max_context_tokens=int(longest_context(pool, blocks, model.context_tokens)),
        verdict=at[0].verdict,
        decode_ms_lower_bound=_known(step),
        prefill_ms_lower_bound=_known(first),
        by_context=tuple(at[1:]),
        explanation=(),
    )
    return replace(result, explanation=tuple(explain(result)))


def _known(milliseconds: npt.NDArray[np.float64]) -> float | None:
    return None if np.isnan(milliseconds) else float(milliseconds)


def _table_contexts(model: Model, asked: int) -> list[int]:
    """The usual contexts up to the model's limit, the limit itself, and what was asked."""
    known = {tokens for tokens in STANDARD_CONTEXTS if tokens <= model.context_tokens}
    return sorted(known | {model.context_tokens, asked})
