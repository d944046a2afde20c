"""What vLLM holds at the peak of the run in which it measures itself, by release.

``v1/worker/gpu_worker.py::determine_available_memory`` runs the model once on ``max_num_batched_tokens``
dummy tokens and takes the peak of the framework's allocator over what stays: the encoder's pass over the
images of one step, then the forward pass, then sampling from ``max_num_seqs`` rows of logits
(``gpu_model_runner.py::profile_run``, ``_dummy_sampler_run``). The largest of the three counts, since each
gives its buffers back. Bytes per token, row and patch are counted from the code of these steps; the few
that no source states are in the engine's record as ``coefficients``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from kvreport.accounting.engines.vllm_rules.releases import FIRST_ENGINE_ENDS, Release, Sampler
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.catalog.caches import CrossAttention, Indexer, Latent, RecurrentState
from kvreport.catalog.model import Model, WeightGroup
from kvreport.units import MIB

LOGIT_BYTES: Final[dict[Sampler, int]] = {"sort": 38, "probabilities": 14, "logits": 6}
"""Bytes per logit at the peak of sampling.

All hold the model's 16-bit logits and their 32-bit copy (2 + 4). Masks or exponentials and probabilities are
32 bits each (4 + 4). A sort keeps values and 64-bit indices (12), which its segments and its temporary
buffers hold again (8 + 12: PyTorch ``aten/src/ATen/native/cuda/Sort.cu::segmented_sort_pairs``, CUB's
temporary storage for keys and values). Nine logs of vLLM 0.11 to 0.15 give 38.0 to 38.6.
"""

KEPT_STREAMS: Final = 2
"""Copies of the last hidden state, 16 bits each, that are held while logits are sampled from."""

GATHERED_LOGIT_BYTES: Final = 2
"""Logits of all ranks before they are put in order, where the head is split (``logits_processor.py``)."""

FORWARD_INNER_BYTES: Final = 6
"""Per element of the MLP's inner side: gate and up projection, and their product, 16 bits each."""

FORWARD_HIDDEN_BYTES: Final = 8
"""Per element of the residual stream: residual, normalized input, output and its sum, 16 bits each."""

EXPERT_INNER_BYTES: Final = 6
EXPERT_HIDDEN_BYTES: Final = 2

MLA_CONTEXT_TOKENS: Final = 64 * 1024
"""Context tokens whose keys and values MLA expands at once (``mla/common.py``, chunked prefill)."""

LARGEST_CAPTURE: Final = 512

DYNAMIC_IMAGE_TOKENS: Final = 16384
"""Tokens of the largest image of towers that take any resolution (Qwen-VL's processors: 12.8 million pixels,
28 by 28 pixels to a token)."""

POOLED_PATCHES: Final = 9
"""Patches to a token of towers with a fixed resolution (Gemma 4: 2,520 patches, 280 tokens)."""


@dataclass(frozen=True, slots=True)
class Tower:
    """The sizes of a vision tower.

    Attributes:
        width: Width of a patch.
        inner: Inner side of its MLP.
        merged: Patches that are merged to one token; 0 where the resolution is fixed.
    """

    width: int
    inner: int
    merged: int

    @classmethod
    def of(cls, model: Model) -> Tower | None:
        """Read it off a model's weights; None without one."""
        rows = [row for row in model.weights if row.component == "vision" and len(row.shape) == 2]
        most = max(rows, key=lambda row: row.count, default=None)
        if most is None or most.count < 2:
            return None
        blocks = [row for row in rows if row.count == most.count]
        width = min(min(row.shape) for row in blocks)
        mlp = [row for row in blocks if not _is_attention(row)]
        inner = max((max(row.shape) for row in mlp), default=4 * width)
        mergers = [row.shape[1] // width for row in rows if "merger" in row.name and row.shape[1] > width]
        return cls(width=width, inner=inner, merged=max(mergers, default=0))

    @property
    def patch_bytes(self) -> int:
        """Bytes of one patch at the peak: the inner side twice, the stream and its residual."""
        return 2 * SERVED_BYTES * self.inner + 2 * SERVED_BYTES * self.width

    def patches(self, max_batched_tokens: int) -> int:
        """Patches encoded at once: as many images as a step has tokens for, but at least one.

        ``v1/core/encoder_cache_manager.py::compute_mm_encoder_budget``,
        ``multimodal/encoder_budget.py::MultiModalBudget``.
        """
        if self.merged:
            return self.merged * max(max_batched_tokens, DYNAMIC_IMAGE_TOKENS)
        return POOLED_PATCHES * max_batched_tokens


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that the measuring run depends on.

    Attributes:
        hidden: Width of the residual stream.
        inner: Inner side of the widest dense MLP; 0 without one.
        expert_inner: Inner side of one expert; 0 without experts.
        experts_per_token: Experts that one token passes through.
        vocabulary: Rows of the output head.
        layers: Layers.
        streams: Residual streams side by side; 1 in most models.
        indexed: True if layers choose the tokens they attend to through an indexer.
        latent_heads: Heads whose keys and values MLA expands from a latent; 0 without MLA.
        head_width: Key without its rotary part and value of one such head together.
        states: True if some layers keep a recurrent state.
        attention: True if some layers keep keys and values.
        encoder_tokens: Encoder states that cross-attention layers keep; 0 without such layers.
        tower: The vision tower.
    """

    hidden: int
    inner: int
    expert_inner: int
    experts_per_token: int
    vocabulary: int
    layers: int
    streams: int
    indexed: bool
    latent_heads: int
    head_width: int
    states: bool
    attention: bool
    encoder_tokens: int
    tower: Tower | None

    @classmethod
    def of(cls, model: Model) -> Shape:
        """Read the sizes off a model's record."""
        caches = [cache for group in model.layers for cache in group.caches]
        routed = [
            _inner(model, row)
            for row in model.weights
            if row.component == "routed_experts" and len(row.shape) > 1
        ]
        dense = [
            _inner(model, row) for row in model.weights if row.component == "dense_mlp" and len(row.shape) > 1
        ]
        joined = [row.shape[-1] for row in model.weights if row.name.endswith("hc_head_fn")]
        latents = [cache for cache in caches if isinstance(cache, Latent)]
        indexed = any(isinstance(cache, Indexer) for cache in caches)
        expanded = [row for row in model.weights if "kv_b_proj" in row.name and len(row.shape) > 1]
        heads = model.attention_heads if latents and expanded and not indexed else 0
        cross = [cache.encoder_tokens for cache in caches if isinstance(cache, CrossAttention)]
        return cls(
            hidden=model.hidden_size,
            inner=max(dense, default=0),
            expert_inner=min(routed, default=0),
            experts_per_token=model.experts.per_token if model.experts and routed else 0,
            vocabulary=model.vocabulary,
            layers=model.layer_count,
            streams=max(joined, default=model.hidden_size) // model.hidden_size,
            indexed=indexed,
            latent_heads=heads,
            head_width=expanded[0].shape[0] // heads if heads else 0,
            states=any(isinstance(cache, RecurrentState) for cache in caches),
            attention=any(not isinstance(cache, RecurrentState) for cache in caches),
            encoder_tokens=max(cross, default=0),
            tower=Tower.of(model),
        )


def _is_attention(row: WeightGroup) -> bool:
    return any(part in row.name for part in ("attn", "attention", "qkv", "q_proj", "k_proj", "v_proj"))


def _inner(model: Model, row: WeightGroup) -> int:
    """Inner side of one projection; gate and up projection may lie in one matrix."""
    side = prod(row.shape[-2:]) // model.hidden_size
    return side // 2 if "gate_up" in row.name or "w13" in row.name else side


def captured_sizes(max_seqs: int, max_batched_tokens: int | None = None) -> int:
    """Batch sizes captured by default: 1, 2, 4, then by 8 to 256, then by 16 (``config/vllm.py``)."""
    largest = min(2 * max_seqs, LARGEST_CAPTURE, max_batched_tokens or LARGEST_CAPTURE)
    return _sizes(largest)


def captured_graphs(max_seqs: int, max_batched_tokens: int | None = None) -> int:
    """Graphs captured by default: pieces for every size, and whole ones for those that decode.

    ``FULL_AND_PIECEWISE`` (``config/compilation.py``): a whole graph is captured for sizes of at most
    ``max_num_seqs`` tokens.
    """
    whole = min(max_seqs, 2 * max_seqs, LARGEST_CAPTURE, max_batched_tokens or LARGEST_CAPTURE)
    return captured_sizes(max_seqs, max_batched_tokens) + _sizes(whole)


def _sizes(largest: int) -> int:
    fine = min(largest, 256) // 8
    coarse = max(largest - 256, 0) // 16
    return sum(size <= largest for size in (1, 2, 4)) + fine + coarse


def sampling_bytes(
    shape: Shape,
    sampler: Sampler,
    rows: int,
    *,
    tensor_parallel: int = 1,
    multiprocessors: int = 132,
    triton: bool = True,
) -> int:
    """Bytes of a sampling step over ``rows`` rows of logits.

    Args:
        shape: The model's sizes.
        sampler: How it is computed.
        rows: Rows of logits.
        tensor_parallel: Ranks that the head is split over.
        multiprocessors: Of the device; Triton's kernel keeps a row of logits for each.
        triton: True for releases whose kernel does (0.17 on).
    """
    per_logit = LOGIT_BYTES[sampler]
    if sampler == "logits" and tensor_parallel > 1:
        per_logit += GATHERED_LOGIT_BYTES
    size = rows * per_logit * shape.vocabulary
    if triton and sampler == "probabilities" and rows >= 8:
        size += 4 * min(rows, multiprocessors) * shape.vocabulary
    return size


def kept_bytes(shape: Shape, tokens: int) -> int:
    """Bytes of the last hidden states that are held while logits are sampled from."""
    return KEPT_STREAMS * SERVED_BYTES * shape.hidden * tokens


def forward_bytes(shape: Shape, tokens: int, tensor_parallel: int = 1, expert_parallel: int = 1) -> int:
    """Bytes of a forward pass of ``tokens`` tokens at its peak, without the buffers that experts keep."""
    dense = FORWARD_HIDDEN_BYTES * shape.hidden * shape.streams
    inner = FORWARD_INNER_BYTES * shape.inner // tensor_parallel
    mlp = dense + inner
    expert = EXPERT_INNER_BYTES * shape.expert_inner // tensor_parallel + EXPERT_HIDDEN_BYTES * shape.hidden
    if shape.experts_per_token:
        mlp = max(mlp, dense + shape.experts_per_token * expert)
    del expert_parallel
    return max(mlp * tokens, dense * tokens + _latent_context_bytes(shape, tensor_parallel))


def _latent_context_bytes(shape: Shape, tensor_parallel: int) -> int:
    """MLA's expanded keys and values of one chunk of context, which the measuring run allocates."""
    if not shape.latent_heads:
        return 0
    heads = -(-shape.latent_heads // tensor_parallel)
    return MLA_CONTEXT_TOKENS * heads * shape.head_width * SERVED_BYTES


def expert_workspace_bytes(shape: Shape, tokens: int, tensor_parallel: int = 1) -> int:
    """Bytes of the two buffers that Triton's and Marlin's experts compute in, 16 bits each.

    Per chosen expert one buffer holds the inner side or the output, the other both halves of the inner
    side or the output (0.22.0, ``fused_moe/experts/marlin_moe.py::workspace_shapes``,
    ``fused_moe/modular_kernel.py::_allocate_buffers``, ``v1/worker/workspace.py``).
    """
    inner = shape.expert_inner / tensor_parallel
    widths = max(inner, shape.hidden) + max(2 * inner, shape.hidden)
    return int(shape.experts_per_token * widths * SERVED_BYTES * tokens)


def encoding_bytes(shape: Shape, release: Release, tokens: int, rows: int) -> int:
    """Bytes of the encoder's pass over the images of one step.

    The first engine gives every one of its requests an image: models that attend to the encoder's states
    hold those of all of them.
    """
    if shape.tower is None:
        return 0
    if release < FIRST_ENGINE_ENDS and shape.encoder_tokens:
        states = rows * shape.encoder_tokens
        return states * (shape.tower.patch_bytes + 2 * SERVED_BYTES * shape.hidden)
    return shape.tower.patches(tokens) * shape.tower.patch_bytes


def collective_buffers(release: Release) -> int:
    """Bytes that splitting over devices takes beside NCCL: the custom all-reduce's buffers.

    Two of 8 MiB (``distributed/device_communicators/custom_all_reduce.py``); FlashInfer's fused
    all-reduce takes a workspace of its own since 0.17, which the measuring run does not see.
    """
    del release
    return 16 * MIB
