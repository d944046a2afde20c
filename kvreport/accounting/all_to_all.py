"""Buffers through which expert-parallel ranks exchange tokens, where an engine is told to take such kernels.

vLLM's default (``allgather_reducescatter``, 0.33) and SGLang's (``none``) exchange in tensors of the step itself,
which are activations. DeepEP's and FlashInfer's keep buffers from the start to the end: they are computed here as
their sources do. Memory that is mapped for other servers comes in pages, so that a little more may be taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvreport.accounting.parallel import Layout
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.units import GIB

AllToAll = Literal[
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "deepep_v2",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "mori_high_throughput",
    "mori_low_latency",
    "nixl_ep",
]

NOT_COUNTED: Final = frozenset(
    {"deepep_v2", "flashinfer_nvlink_two_sided", "mori_high_throughput", "mori_low_latency", "nixl_ep"}
)
"""Exchanges whose buffers the library sizes in compiled code that is not read here; an answer says so."""

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
        one_sided: True if the engine knows FlashInfer's one-sided kernels by vLLM's name.
    """

    most_tokens: int | None = None
    low_latency_nvlink_bytes: int = 0
    one_sided: bool = False


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


def one_sided_bytes(tokens: int, ranks: int, hidden: int, per_token: int, form: str) -> int:
    """FlashInfer's one-sided buffers on one rank: room for the tokens of every rank, out and back.

    ``flashinfer/comm/trtllm_moe_alltoall.py::moe_a2a_get_workspace_size_per_rank`` (0.7.2); flags of a few kB are
    left out. A token goes out in the format that its experts compute in (vLLM 0.33,
    ``fused_moe/all2all_utils.py::flashinfer_one_sided_dispatch_layout``) and comes back in 16 bits.

    Args:
        tokens: Tokens of one step.
        ranks: Ranks that experts are divided over.
        hidden: Width of a token.
        per_token: Experts that a token passes through.
        form: Name of the experts' weight format.
    """
    out = {
        "nvfp4": -(-hidden // 2) + -(-hidden // 16),
        "mxfp4": hidden + -(-hidden // 32),
        "fp8-block": hidden + 4 * -(-hidden // 128),
    }.get(form, 2 * hidden)
    choices = 8 * per_token
    return sum(-(-ranks * tokens * size // _LINE) * _LINE for size in (out + choices, 2 * hidden))


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
    if not exchanges or model.experts is None:
        return 0
    if layout.all_to_all == "flashinfer_nvlink_one_sided":
        if not exchange.one_sided:
            raise InputError(
                f"all-to-all backend: found {layout.all_to_all}, which is vLLM's; allowed here: deepep_high_throughput "
                "or deepep_low_latency"
            )
        form = next((row.released for row in model.weights if row.component == "routed_experts"), None)
        return one_sided_bytes(
            max_batched_tokens, layout.expert_ranks, model.hidden_size, model.experts.per_token, form or ""
        )
    if not layout.all_to_all.startswith("deepep") or layout.all_to_all in NOT_COUNTED:
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
