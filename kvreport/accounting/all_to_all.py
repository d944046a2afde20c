"""Buffers through which expert-parallel ranks exchange tokens, where an engine is told to take such kernels.

vLLM's default (``allgather_reducescatter``, 0.33) and SGLang's (``none``) exchange in tensors of the step itself,
which are activations. DeepEP keeps buffers from the start to the end: they are computed here as its sources do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvreport.accounting.parallel import Layout
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.units import GIB

AllToAll = Literal["allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"]

NVLINK_BYTES: Final = GIB
"""What vLLM gives DeepEP for NVLink, and as much for RDMA between servers (``VLLM_DEEPEP_BUFFER_SIZE_MB``, 0.33)."""

MOST_BYTES: Final = 32 * GIB
"""DeepEP counts its low-latency buffer in units of 16 bytes with 31 bits (``deep_ep.cpp``)."""

_LINE: Final = 128
_HEADER: Final = 16


@dataclass(frozen=True, slots=True)
class Exchange:
    """How an engine uses DeepEP.

    Attributes:
        most_tokens: Tokens that a rank dispatches at most in a low-latency step; None for those of the step.
        low_latency_nvlink_bytes: NVLink buffers that are kept beside the low-latency ones.
    """

    most_tokens: int | None = None
    low_latency_nvlink_bytes: int = 0


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """DeepEP's low-latency buffer on one rank (``csrc/config.hpp::LowLatencyLayout``).

    Two sets of a send and a receive buffer, each with a message for every expert and token, as no rank knows where
    tokens go.

    Args:
        tokens: Tokens that a rank dispatches at most in a step.
        hidden: Width of a token.
        experts: Experts of a layer, redundant ones among them.
    """
    scales = hidden // 128
    dispatch = _HEADER + max(2 * hidden, hidden + 4 * scales)
    combine = 4 * scales + 2 * hidden
    send = max(tokens * dispatch, experts * tokens * combine)
    receive = experts * tokens * max(dispatch, combine)
    flags = -(-experts * 4 // _LINE) * _LINE
    total = 2 * (send + receive + flags)
    return -(-total // _LINE) * _LINE


def buffer_bytes(model: Model, layout: Layout, exchange: Exchange, max_batched_tokens: int) -> int:
    """Bytes that the exchange keeps on one rank; 0 without data-parallel attention over whole experts.

    Args:
        model: The model.
        layout: How it is spread over devices, and which kernels exchange.
        exchange: How the engine uses the kernels.
        max_batched_tokens: Tokens of one step.

    Raises:
        InputError: If the buffers are larger than DeepEP can make them.
    """
    exchanges = layout.expert and layout.data > 1 and model.experts is not None
    if not exchanges or model.experts is None or not layout.all_to_all.startswith("deepep"):
        return 0
    if layout.all_to_all == "deepep_high_throughput":
        return NVLINK_BYTES * (2 if layout.nodes > 1 else 1)
    experts = model.experts.routed + layout.redundant_experts
    tokens = exchange.most_tokens or max_batched_tokens
    size = low_latency_bytes(tokens, model.hidden_size, experts)
    if size >= MOST_BYTES:
        most = tokens * (MOST_BYTES - 1) // size
        raise InputError(
            f"{model.id}: all-to-all backend: found deepep_low_latency with {tokens:,} tokens in a step, whose buffers take "
            f"{size / GIB:.1f} GiB; allowed: less than {MOST_BYTES // GIB} GiB, such as --max-batched-tokens {most:,}"
        )
    return size + exchange.low_latency_nvlink_bytes
