"""One estimate: from a question to its numbers, through the same arithmetic as the dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvreport.accounting.capacity import Verdict
from kvreport.accounting.demand import demand
from kvreport.accounting.deployment import lay_out, upper_bound
from kvreport.accounting.roofline import Peaks, step_bounds_ms
from kvreport.accounting.weights import active_parameters, parameters, parameters_by_component
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.catalog.model import Model
from kvreport.estimation.answer import AtContext, Estimate
from kvreport.estimation.explanation import explain
from kvreport.estimation.request import Request, resolve

STANDARD_CONTEXTS = tuple(1 << power for power in range(11, 21))
"""2K to 1M: the contexts of an estimate's table."""


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
    case = request.case
    laid = lay_out(case)
    top = lay_out(upper_bound(case, request.ceiling))
    limits, blocks = laid.budget, laid.plan
    contexts = np.asarray([context, *_table_contexts(model, context)], dtype=np.int64)
    at = [
        AtContext(int(tokens), int(held_bytes), int(count), int(most), Verdict(code).label)
        for tokens, held_bytes, count, most, code in zip(
            contexts,
            blocks.profile.request_bytes(contexts),
            laid.requests(contexts),
            top.requests(contexts),
            laid.verdicts(contexts),
            strict=True,
        )
    ]
    step, first = step_bounds_ms(
        demand(model, request.weight_format, request.weight_formats, request.kv_format, tensor_parallel=tp),
        Peaks.of(accelerator),
        at[0].max_concurrent_requests,
        context,
    )
    limitless = at[0].kv_bytes_per_request_per_gpu == 0
    need = top.plan.profile
    result = Estimate(
        request=request,
        parameters={
            "total": parameters(model),
            "active": active_parameters(model),
            "by_component": {str(part): number for part, number in parameters_by_component(model).items()},
        },
        weights_by_component={str(part): size for part, size in laid.components[0].items()},
        weight_bytes_per_gpu=int(laid.weight_bytes),
        loading_bytes=laid.overhead[0],
        kv_bytes_per_token_per_gpu=int(np.rint(need.marginal_bytes(context))),
        kv_bytes_per_token_reserved_per_gpu=int(np.rint(blocks.profile.marginal_bytes(context))),
        state_bytes_per_request_per_gpu=need.state_bytes,
        kv_bytes_per_request_per_gpu=at[0].kv_bytes_per_request_per_gpu,
        budget=limits,
        plan=blocks,
        held=need,
        max_concurrency=None if limitless else float(laid.concurrency(context)),
        max_concurrent_requests=at[0].max_concurrent_requests,
        max_concurrent_requests_ceiling=at[0].max_concurrent_requests_ceiling,
        kv_pool_tokens=None if limitless else int(laid.printed_tokens(context)),
        max_context_tokens=int(laid.longest_context()),
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
