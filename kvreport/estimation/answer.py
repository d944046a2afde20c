"""What an estimate answers: the records, and the objects that they are printed as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvreport.accounting.budget import Budget
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile
from kvreport.estimation.request import Request


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
