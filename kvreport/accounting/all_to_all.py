"""Buffers through which expert-parallel ranks exchange tokens, where an engine is told to take such kernels.

vLLM's default (``allgather_reducescatter``, 0.33) and SGLang's (``none``) exchange in tensors of the step itself,
which are activations. Those of DeepEP, NIXL, MoRI and FlashInfer keep buffers from the start to the end: they are computed
here as their sources do. Memory that is mapped for other servers comes in pages, so that a little more may be taken.
"""

from __future__ import annotations

from typing import Final

from kvreport.accounting.kernel import MULTIPROCESSORS
from kvreport.accounting.parallel import Layout
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.errors import InputError
from kvreport.units import GIB, MIB

MORI_HEAP_BYTES: Final = 2 * GIB
"""MoRI's symmetric heap, taken whole when it starts and holding all its buffers (``shmem/internal.hpp``,
``DEFAULT_SYMMETRIC_HEAP_SIZE``; ``MORI_SHMEM_HEAP_SIZE`` changes it)."""

NVLINK_BYTES: Final = GIB
"""What vLLM gives DeepEP for NVLink, and as much for RDMA between servers (``VLLM_DEEPEP_BUFFER_SIZE_MB``, 0.33)."""

MOST_BYTES: Final = 32 * GIB
"""DeepEP counts its low-latency buffer in units of 16 bytes with 31 bits (``deep_ep.cpp``)."""

_LINE: Final = 128
_HEADER: Final = 16

_FIFO_BYTES: Final = 8 * 256 * 1024
_FIFO_STATE_BYTES: Final = 256
_GROUPS_PER_BLOCK: Final = 8

_SPARE_CHANNELS: Final = 8 * 160
_SEGMENT_BYTES: Final = 2 * MIB


def low_latency_bytes(tokens: int, hidden: int, experts: int) -> int:
    """DeepEP's low-latency buffer on one rank (``csrc/config.hpp::LowLatencyLayout``).

    Two sets of a send and a receive buffer, each with a message for every expert and token, as no rank knows where
    tokens go.

    ``tokens``: tokens that a rank dispatches at most in a step. ``experts``: experts of a layer,
    redundant ones among them.
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


def two_sided_bytes(ranks: int) -> int:
    """FlashInfer's two-sided buffers on one rank: a queue of 2 MiB for each rank and channel.

    ``trtllm_alltoall.cuh::getMoeCommWorkspaceSize`` (0.7): half the multiprocessors send and receive, each channel
    with as many blocks as eighths of the ranks.

    ``ranks``: ranks that experts are divided over.
    """
    blocks = 2 * -(-ranks // _GROUPS_PER_BLOCK)
    channels = max(MULTIPROCESSORS // 2 // blocks, 1)
    size = (_FIFO_BYTES + _FIFO_STATE_BYTES) * ranks * channels
    return -(-size // _SEGMENT_BYTES) * _SEGMENT_BYTES


def elastic_bytes(tokens: int, hidden: int, per_token: int, nodes: int, each: int, *, floats8: bool) -> int:
    """DeepEP's second buffer on one rank: the larger of what tokens need on their way out and on their way back.

    ``csrc/elastic/buffer.hpp::calculate_buffer_size``, with what vLLM 0.33 asks for: two levels where there are several
    nodes (``VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE``), one reduction (``VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION``). NVLink
    writes to the other rank's buffer, so that nothing is staged inside a node.

    Args:
        tokens: Tokens of one step.
        hidden: Width of a token.
        per_token: Experts that a token passes through.
        nodes: Servers.
        each: Ranks in a server.
        floats8: True if tokens go out in FP8, with a scale for every 32 elements.
    """
    choices = 8 * per_token
    scales = 4 * -(-hidden // 32) if floats8 else 0
    out = (
        _padded(hidden if floats8 else 2 * hidden) + _padded(scales) + _padded(choices + 4 * (1 + per_token))
    )
    back = _padded(2 * hidden) + _padded(choices)
    if nodes == 1:
        size = max(out * each, back * per_token) * tokens
    else:
        spare = tokens + _SPARE_CHANNELS
        leaving = each * nodes * tokens + tokens + nodes * spare
        coming = per_token * (nodes * tokens + tokens + nodes * spare)
        size = max(out * leaving, back * coming)
    return -(-size // _SEGMENT_BYTES) * _SEGMENT_BYTES


def _padded(size: int) -> int:
    """A part of a token's message, which begins at a multiple of 32 bytes."""
    return -(-size // 32) * 32


def buffer_bytes(model: Model, layout: Layout, engine: Engine, max_batched_tokens: int) -> int:
    """Bytes that the exchange takes off the pools of one rank; 0 without data-parallel attention over whole experts.

    ``engine``: whose release decides how the kernels are used. ``max_batched_tokens``: tokens of one step.

    Raises:
        InputError: If the buffers are larger than DeepEP can make them, or the engine does not know the exchange.
    """
    exchanges = layout.expert and layout.data > 1 and model.experts is not None
    if not exchanges or model.experts is None or layout.all_to_all in ("", "allgather_reducescatter"):
        return 0
    if layout.all_to_all not in ("deepep_high_throughput", "deepep_low_latency") and not trait(
        engine, "every_exchange"
    ):
        raise InputError(
            f"all-to-all backend: found {layout.all_to_all}, which is vLLM's; allowed here: deepep_high_throughput "
            "or deepep_low_latency"
        )
    if trait(engine, "exchange_after_pools"):
        return 0
    experts = model.experts.routed + layout.redundant_experts
    tokens = max_batched_tokens
    hidden, per_token, ranks = model.hidden_size, model.experts.per_token, layout.expert_ranks
    form = next((row.released for row in model.weights if row.component == "routed_experts"), None) or ""
    match layout.all_to_all:
        case "deepep_high_throughput":
            return NVLINK_BYTES * (2 if layout.nodes > 1 else 1)
        case "deepep_v2":
            floats8 = form == "fp8-block"
            return elastic_bytes(
                tokens, hidden, per_token, layout.nodes, ranks // layout.nodes, floats8=floats8
            )
        case "flashinfer_nvlink_one_sided":
            return one_sided_bytes(tokens, ranks, hidden, per_token, form)
        case "flashinfer_nvlink_two_sided":
            return two_sided_bytes(ranks)
        case "mori_high_throughput" | "mori_low_latency":
            return MORI_HEAP_BYTES
        case "nixl_ep":
            # nixl_ep's csrc/config.hpp::EPLayout is DeepEP's layout, without its limit and NVLink buffers.
            return low_latency_bytes(tokens, hidden, experts) + _LINE
    size = low_latency_bytes(tokens, hidden, experts)
    if size >= MOST_BYTES:
        most = tokens * (MOST_BYTES - 1) // size
        raise InputError(
            f"{model.id}: all-to-all backend: found deepep_low_latency with {tokens:,} tokens in a step, whose buffers take "
            f"{size / GIB:.1f} GiB; allowed: less than {MOST_BYTES // GIB} GiB, such as --max-batched-tokens {most:,}"
        )
    return size + (NVLINK_BYTES if trait(engine, "nvlink_beside_low_latency") else 0)
