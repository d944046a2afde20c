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
from math import ceil, prod
from typing import Final

from kvreport.accounting.engines.vllm.kernels import MLA_ROWS
from kvreport.accounting.engines.vllm.releases import Sampler
from kvreport.accounting.engines.vllm.towers import Tower
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.accounting.weights import is_hashed
from kvreport.catalog.caches import (
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    SlidingWindow,
)
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import LayerGroup, Model, WeightGroup
from kvreport.catalog.release import Release, release_of
from kvreport.catalog.remembered import remembered
from kvreport.units import MIB

LOGIT_BYTES: Final[dict[Sampler, int]] = {"sort": 38, "probabilities": 14, "copied": 6, "logits": 2}
"""Bytes per logit at the peak of sampling.

All hold the model's 16-bit logits, and all but the last their 32-bit copy (2 + 4). Masks or exponentials and probabilities are
32 bits each (4 + 4). A sort keeps values and 64-bit indices (12), which its segments and its temporary
buffers hold again (8 + 12: PyTorch ``aten/src/ATen/native/cuda/Sort.cu::segmented_sort_pairs``, CUB's
temporary storage for keys and values).
"""

_PARTS: Final = 32
_RESULT_BYTES: Final = 4
_WIDEST_HEAD: Final = 256
_PICKED_ROW: Final = 576
_PICKED_BLOCK: Final = 64
_FEWEST_BLOCKS: Final = 4
_BUSY: Final = 0.85

KEPT_STREAMS: Final = 2
"""Copies of the last hidden state, 16 bits each, that are held while logits are sampled from."""

GATHERED_LOGIT_BYTES: Final = 4
"""Logits of all ranks, and the same in order, where the head is split, beside a rank's own share of 16 bits each
(``distributed/device_communicators/base_device_communicator.py::all_gather``). They are gone when samples are drawn."""

COUNTED_TOKEN_BYTES: Final = 4 + 1 / 8
"""Per request and word of the vocabulary: how often the second runner saw it in the output, and whether in the prompt
(``v1/worker/gpu/sample/penalties.py::PenaltiesState``, the same in 0.22.0 to 0.33.0; made beside the weights)."""

FORWARD_INNER_BYTES: Final = 6
"""Per element of the MLP's inner side: gate and up projection, and their product, 16 bits each."""

FORWARD_HIDDEN_BYTES: Final = 10
"""Per element of the residual stream: residual, attention's output, their sum, its norm and the MLP's output,
16 bits each, which a compiled graph allocates as one piece."""

EXPERT_INNER_BYTES: Final = 6
EXPERT_HIDDEN_BYTES: Final = 2

INDEX_KEY_BYTES: Final = 132
SCORE_BYTES: Final = 4

CONNECTIONS: Final = ("hc_attn_fn", "attn_hc.fn")
"""Matrices that mix residual streams before attention, as wide as all streams (0.33.0 ``models/deepseek_v4/nvidia/model.py``,
``models/deepseek_v41/nvidia/model.py`` and ``models/glm5next/common/model.py``, ``hc_attn_fn``)."""

GATES: Final = ("block_inject_weight.weight",)
"""The same where streams are gated (0.33.0 ``models/qwen4_exp/nvidia/hyperconnection.py``, ``hyper_hidden_size``)."""

PICK_BYTES: Final = 4
PICK_TILE: Final = 128
INDEX_LOGITS_BYTES: Final = 512 * MIB
"""Logits of an indexer (``VLLM_SPARSE_INDEXER_MAX_LOGITS_MB``), allocated for the measuring run."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that the measuring run depends on."""

    hidden: int  # Width of the residual stream.
    inner: int  # Inner side of the widest dense MLP; 0 without one.
    expert_inner: int  # Inner side of one expert; 0 without experts.
    experts_per_token: int  # Experts that one token passes through.
    vocabulary: int  # Rows of the output head.
    layers: int
    streams: int  # Residual streams side by side; 1 in most models.
    gated: bool  # True if several streams are gated rather than mixed by matrices.
    indexed: bool  # True if layers choose the tokens they attend to through an indexer.
    index_stride: int  # Tokens per key of the indexer, which may be compressed.
    # True if the indexer gathers its keys in a buffer, as that of latent attention does (0.33.0
    # ``model_executor/layers/sparse_attn_indexer.py``); those of ``models/minimax_m3`` and
    # ``models/qwen4_exp`` read them in place, and reserve nothing while memory is measured.
    gathers_keys: bool
    latent_heads: int  # Heads whose keys and values MLA expands from a latent; 0 without MLA.
    head_width: int  # Key without its rotary part and value of one such head together.
    states: bool  # True if some layers keep a recurrent state.
    attention: bool  # True if some layers keep keys and values.
    encoder_tokens: int  # Encoder states that cross-attention layers keep; 0 without such layers.
    tower: Tower | None  # The vision tower.

    @classmethod
    @remembered
    def of(cls, model: Model) -> Shape:
        """Read the sizes off a model's record."""
        caches = model.every_cache
        routed = [
            _inner(model, row)
            for row in model.weights
            if row.component == "routed_experts" and len(row.shape) > 1
        ]
        dense = [
            _inner(model, row) for row in model.weights if row.component == "dense_mlp" and len(row.shape) > 1
        ]
        joined = [row.shape[-1] for row in model.weights if row.name.endswith(CONNECTIONS + GATES)]
        latents = [cache for cache in caches if isinstance(cache, Latent)]
        strides = [cache.stride for cache in caches if isinstance(cache, Indexer)]
        indexed = bool(strides)
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
            index_stride=min(strides, default=1),
            gated=any(row.name.endswith(GATES) for row in model.weights),
            gathers_keys=indexed and bool(latents),
            latent_heads=heads,
            head_width=expanded[0].shape[0] // heads if heads else 0,
            states=any(isinstance(cache, RecurrentState) for cache in caches),
            attention=any(not isinstance(cache, RecurrentState) for cache in caches),
            encoder_tokens=max(cross, default=0),
            tower=Tower.of(model),
        )


def graph_layers(shape: Shape) -> int:
    """Layers, each counted by how many kernels a captured graph launches for it, in those of a dense layer.

    Compressing keys and values or choosing what to attend to adds as many, mixing several residual streams twice as many, and
    gating them as many (fresh-012). Experts add none that logs show.
    """
    chosen = shape.indexed or shape.latent_heads > 0
    return shape.layers * (1 + chosen + (2 - shape.gated) * (shape.streams > 1))


def partial_bytes_per_row(
    model: Model, release: Release, tensor_parallel: int, *, second: bool, decode_context: int = 1
) -> tuple[float, float]:
    """Bytes per token of the largest graph that FlashAttention 3 keeps partial results in, and how many fewer with an FP8 cache.

    Keys are divided into up to 32 parts (0.13.0 to 0.33.0 ``config/attention.py``,
    ``flash_attn_max_num_splits_for_cuda_graph``), and every head has a result of each, 32 bits a number
    (FlashAttention 3, ``hopper/flash_api.cpp``, ``out_accum``). Heads wider than 256 are no kernel's of these. Those of latents that
    are stored at 16 bits are, and a result of theirs is as wide as a latent (0.20.0 to 0.33.0
    ``v1/attention/backends/mla/flashattn_mla.py``, ``max_num_splits``): of 20 heads they take 1.25 GiB of the 3.25 that one start
    on an H100 estimated (apron-003). Each data rank has all of DeepSeek-V3's 128 heads: 32 parts x 128 heads x 512 tokens x 512
    numbers x 4 bytes = 4.0 GiB, and counted twice 8.0. Four layers of that model, started with 0.26.0 on an H200, printed 4,224 MiB for
    the first whole graph, and 2,134 with graphs of at most 256 requests.

    Latents in FP8 are FlashMLA's (``FlashAttnMLABackend.supported_kv_cache_dtypes`` has 16 bits only), which keeps one result for each
    request, and one for each group of multiprocessors, which is not counted (FlashMLA, ``csrc/api/dense_decode.h``,
    ``total_num_splits``). Heads in FP8 keep as much as in 16 bits. Ranks that divide
    a context gather the heads of their group first (``model_executor/layers/attention/mla_attention.py``, ``dcp_world_size``).

    Where an indexer picks tokens of latents in 16 bits, FlashAttention 3 divides those
    (``v1/attention/backends/mla/flashattn_mla_sparse.py``), but not where ranks divide a context. Other kernels serve
    rows of other widths. On eight H200, one start of GLM-5.3 estimated 2.30 GiB, where 2.65 are counted with these (apron-011).

    Entering a capture gives back what the pass before it left in the allocator, and the graphs of a pool share what theirs take. The
    first runner looks at memory before that pass and after the capture, so that it counts the results once (0.19.1 to 0.28.0
    ``v1/worker/gpu_model_runner.py::profile_cudagraph_memory``). The second runner looks between the two. Its second sample is less
    by the results that are given back, and is taken off the whole: they count again, nearly as large (0.29.0 to 0.33.0
    ``v1/worker/gpu/cudagraph_utils.py``, ``measured - sum(mem_samples)``).

    Args:
        model: The model.
        release: The vLLM release.
        tensor_parallel: Ranks that share the heads.
        second: True for the second model runner.
        decode_context: Ranks that divide a context.
    """
    caches = model.every_cache
    plain = [one for one in caches if isinstance(one, FullAttention | SlidingWindow)]
    picks = [one.top_k or 0 for one in caches if isinstance(one, Indexer)]
    parts = _PARTS
    if picks:
        parts = _parts_of_picked(max(picks)) if release.has("divides_picked") and decode_context == 1 else 0
    rows = (_PICKED_ROW,) if picks else MLA_ROWS
    latents = [
        one.latent_dim
        for one in caches
        if isinstance(one, Latent) and one.latent_dim + one.rope_dim in rows and parts
    ]
    widths = [_PARTS * one.value_dim for one in plain]
    if not (widths or latents) or any(one.key_dim > _WIDEST_HEAD for one in plain):
        return 0.0, 0.0
    heads = -(-model.attention_heads // tensor_parallel) * decode_context
    part = (2.0 if second else 1.0) * heads * _RESULT_BYTES
    whole = part * max(widths + [parts * one for one in latents])
    return whole, whole - part * max(widths + latents)


def _parts_of_picked(top_k: int) -> int:
    """Parts that FlashAttention 3 divides the tokens in that an indexer picked, where the engine sets no number.

    It takes the fewest that keep 0.85 of the multiprocessors busy that more would, for one request, in blocks of 64 tokens
    (``hopper/heuristics.h::num_splits_heuristic``, ``hopper/tile_size.h``). Requests of one rank have few enough heads that busy
    multiprocessors grow with the parts.
    """
    blocks = -(-top_k // _PICKED_BLOCK)
    return ceil(_BUSY * blocks) if blocks > _FEWEST_BLOCKS else 0


def _inner(model: Model, row: WeightGroup) -> int:
    """Inner side of one projection; gate and up projection may lie in one matrix."""
    side = prod(row.shape[-2:]) // model.hidden_size
    return side // 2 if "gate_up" in row.name or "w13" in row.name else side


def logit_bytes(sampler: Sampler, tensor_parallel: int = 1) -> float:
    """Bytes per logit of a sampling step; logits of several ranks are gathered first."""
    if tensor_parallel == 1:
        return LOGIT_BYTES[sampler]
    return max(LOGIT_BYTES[sampler], GATHERED_LOGIT_BYTES + SERVED_BYTES / tensor_parallel)


def counted_bytes(shape: Shape, release: Release, *, second: bool) -> float:
    """Bytes per request that the second runner keeps to count the words of its output, where they are charged."""
    return COUNTED_TOKEN_BYTES * shape.vocabulary if second and release.has("charges_all_that_stays") else 0.0


def embedded_bytes_per_token(shape: Shape, release: Release, *, second: bool, images: bool) -> int:
    """Bytes per token of the embeddings of one step, in a buffer that is kept, where it is charged.

    The first runner has it for every model (0.28.0 ``v1/worker/gpu_model_runner.py``, ``inputs_embeds``), the second
    one for those that are asked for images or sounds (0.33.0 ``v1/worker/gpu/mm/encoder_runner.py::EncoderRunner``).

    ``images``: True if the model encodes images or sounds and was not told to serve text only.
    """
    charged = release.has("charges_all_that_stays") and (images or not second)
    return SERVED_BYTES * shape.hidden if charged else 0


def kept_bytes(shape: Shape) -> int:
    """Bytes per token of the last hidden states that are held while logits are sampled from."""
    return KEPT_STREAMS * SERVED_BYTES * shape.hidden


def received_bytes_per_token(shape: Shape, *, alone: bool) -> int:
    """Bytes per token of what a pipeline stage receives from the one before, in a buffer that it keeps.

    It is made for a whole step, by the second runner after loading, by the first in the measuring run
    (``make_empty_intermediate_tensors``, read in 0.11.2, 0.27.1 and 0.33.0). Several residual streams pass as one tensor.

    ``alone``: True for classes that pass hidden states with the residual already added, not both.
    """
    tensors = shape.streams if shape.streams > 1 else 1 if alone else 2
    return tensors * SERVED_BYTES * shape.hidden


def drafted_bytes_per_token(shape: Shape, release: Release, *, second: bool) -> int:
    """Bytes per token of a step of the buffers that a draft model's runner keeps, where they are charged.

    Hidden states of all streams that the draft begins with, and beside the first runner embeddings (0.28.0
    ``v1/spec_decode/llm_base_proposer.py``; 0.33.0 ``v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py``).
    """
    if not release.has("charges_all_that_stays"):
        return 0
    return SERVED_BYTES * shape.hidden * (shape.streams + (not second))


def loaded_bytes_per_token(model: Model, shape: Shape, engine: Engine) -> int:
    """Bytes per token of a step of the buffers that a model makes for it while it is loaded.

    Features of inner layers of a vision tower, for the language model's first layers (0.11.0 to 0.33.0
    ``models/qwen3_vl.py``, ``deepstack_input_embeds``); and places of the tokens that attention picked, where every layer
    keeps its own, 32 bits each: as many as are picked, one for each key but one that a stored key stands for, and
    their count (0.29.0 to 0.33.0 ``models/qwen4_exp/nvidia/qsa.py``, ``topk_indices_buffer``; the engine's record
    lists the classes as ``picks_kept``). Layers of latents share one such buffer (0.11.0 to 0.33.0
    ``models/deepseek_v2.py``, 0.33.0 ``models/deepseek_v4/nvidia/model.py``), in tiles of 128 where a stored key stands
    for several tokens and the last of them are picked one by one (``picks_in_tiles``: 0.30.0 to 0.33.0
    ``models/glm5next``, ``buffer_width``). Each layer of these has a copy with places in the cache, as long as a step (0.30.0
    to 0.33.0 ``layers/attention/sparse_mla_attention.py``, ``index_group_builder``; ``mla/index_group.py``,
    ``physical_topk_indices``). Models with encoders keep embeddings of every layer (0.10.2 to 0.33.0
    ``models/gemma3n_mm.py`` and ``gemma4_mm.py``, ``per_layer_embeddings``). Logs print them with the weights.
    """
    release = release_of(engine)
    levels = shape.tower.outputs - 1 if shape.tower is not None and release.has("inner_layers_tapped") else 0
    kept = levels * SERVED_BYTES * shape.hidden
    if engine.lists("picks_kept", model.architecture):
        for group in model.layers:
            picks = [one for one in group.caches if isinstance(one, Indexer) and one.top_k]
            kept += group.count * sum(((one.top_k or 0) + one.stride) * PICK_BYTES for one in picks)
    else:
        tiled = engine.lists("picks_in_tiles", model.architecture)
        widths = [(group.count, _shared_picks(group, tiled=tiled)) for group in model.layers]
        kept += PICK_BYTES * max((width for _, width in widths), default=0)
        if tiled and release.has("picks_placed"):
            kept += PICK_BYTES * sum(count * width for count, width in widths)
    if any(row.component in ("vision", "audio") for row in model.weights):
        tables = (row for row in model.weights if row.name.endswith(".embed_tokens_per_layer.weight"))
        kept += sum(SERVED_BYTES * row.shape[-1] for row in tables)
    return kept


def loaded_bytes_per_row(model: Model, engine: Engine) -> int:
    """Bytes per request of the places in the cache of what a layer picked, which are made while the model is loaded.

    One for each layer with an indexer, of as many rows as requests run at once (0.30.0 to 0.33.0
    ``models/deepseek_v2.py`` and ``models/deepseek_v32/nvidia/model.py``, ``get_sparse_mla_index_group_max_rows``).

    ``engine``: the engine's record, of one release; it lists the classes as ``picks_of_rows``.
    """
    if not engine.lists("picks_of_rows", model.architecture):
        return 0
    return PICK_BYTES * sum(group.count * _shared_picks(group, tiled=False) for group in model.layers)


def _shared_picks(group: LayerGroup, *, tiled: bool) -> int:
    """Places per token of the picks that layers of latents share; zero where they pick none."""
    if not any(isinstance(one, Latent) for one in group.caches):
        return 0
    picks = [one for one in group.caches if isinstance(one, Indexer) and one.top_k]
    width = max((one.top_k or 0) + (one.stride - 1 if tiled else 0) for one in picks) if picks else 0
    return -(-width // PICK_TILE) * PICK_TILE if tiled else width


def stream_bytes_per_token(shape: Shape) -> int:
    """Bytes per token of the residual stream at the peak of a forward pass."""
    return FORWARD_HIDDEN_BYTES * shape.hidden * shape.streams


def forward_bytes_per_token(
    shape: Shape,
    tensor_parallel: int = 1,
    *,
    whole_experts: bool = False,
    inner_kept: bool = False,
    at_once: float = 1.0,
    gathered: int = 0,
) -> float:
    """Bytes per token at the peak of a forward pass, without the buffers that experts keep.

    With expert parallelism each rank has whole experts, so that their inner side is not divided, and room for
    every token's choice (``fused_moe/modular_kernel.py``, ``workspace_shapes`` of all tokens). Where experts
    compute in buffers that stay allocated (``inner_kept``), their inner side lies there
    (:func:`expert_workspace_bytes`), and a forward pass adds only their outputs.

    Args:
        shape: The model's widths.
        tensor_parallel: Ranks that share each layer.
        whole_experts: True with expert parallelism.
        inner_kept: True where experts compute in buffers that stay allocated.
        at_once: How many times a rank's own tokens experts compute at once.
        gathered: Bytes that lie beside them of the tokens of other data ranks, for one of the rank's own.
    """
    split = 1 if whole_experts else tensor_parallel
    experts = expert_bytes_per_token(shape, split, inner_kept=inner_kept) * at_once + gathered
    return max(dense_bytes_per_token(shape, tensor_parallel), stream_bytes_per_token(shape) + experts)


def dense_bytes_per_token(shape: Shape, tensor_parallel: int = 1) -> float:
    """Bytes per token at the peak of a forward pass in its dense layers; the residual stream alone without any."""
    return stream_bytes_per_token(shape) + FORWARD_INNER_BYTES * shape.inner / tensor_parallel


def expert_bytes_per_token(shape: Shape, split: int = 1, *, inner_kept: bool = False) -> float:
    """Bytes per token that the chosen experts take in a forward pass, beside buffers that stay allocated.

    Args:
        shape: The model's widths.
        split: Ranks that share each expert.
        inner_kept: True where the inner side lies in buffers that stay allocated.
    """
    inner = 0.0 if inner_kept else EXPERT_INNER_BYTES * shape.expert_inner / split
    return shape.experts_per_token * (inner + EXPERT_HIDDEN_BYTES * shape.hidden)


def expanded_latent_bytes(shape: Shape, tensor_parallel: int = 1) -> int:
    """Bytes per token of MLA's expanded keys and values of one chunk of context, which the measuring run allocates.

    ``mla/common.py``, since 0.9 ``mla_attention.py``. How many tokens a chunk has follows the longest request
    (:func:`kvreport.accounting.kernel.activation_bytes`).
    """
    heads = -(-shape.latent_heads // tensor_parallel)
    return heads * shape.head_width * SERVED_BYTES


def expert_workspace_bytes(shape: Shape, tensor_parallel: int = 1) -> float:
    """Bytes per token of the two buffers that Triton's and Marlin's experts compute in, 16 bits each.

    Per chosen expert one buffer holds the inner side or the output, the other both halves of the inner
    side or the output (0.22.0, ``fused_moe/experts/marlin_moe.py::workspace_shapes``,
    ``fused_moe/modular_kernel.py::_allocate_buffers``, ``v1/worker/workspace.py``).
    """
    inner = shape.expert_inner / tensor_parallel
    widths = max(inner, shape.hidden) + max(2 * inner, shape.hidden)
    return shape.experts_per_token * widths * SERVED_BYTES


def gathered_bytes_per_token(shape: Shape) -> int:
    """Bytes that experts are given for one token of another data rank: its hidden state, in 16 bits at most.

    Where experts multiply in fewer bits, it is quantized before it is sent, and takes half or a quarter
    (0.33.0 ``fused_moe/prepare_finalize/naive_dp_ep.py::_quantize_and_setup_dispatch``).
    """
    return SERVED_BYTES * shape.hidden


def own_expert_bytes(shape: Shape, tensor_parallel: int = 1) -> float:
    """Bytes per token of the buffers of FlashInfer's kernels for experts, which allocate them by themselves.

    Each chosen expert's inner side in 8 bits and its output in 16, for all tokens whichever rank has their experts (FlashInfer
    0.6.13 ``csrc/trtllm_fused_moe_kernel_launcher.cu``, ``prepare_moe``), and one output for each token, in 16 (0.33.0
    ``fused_moe/experts/trtllm_mxfp4_moe.py::workspace_shapes``).
    """
    each = shape.expert_inner / tensor_parallel + SERVED_BYTES * shape.hidden
    return shape.experts_per_token * each + SERVED_BYTES * shape.hidden


def index_workspace_bytes(shape: Shape, release: Release, *, listed: bool = False) -> tuple[float, float]:
    """Bytes per token of the longest context that a sparse model's indexer gathers keys in, and keeps; how much less for long ones.

    Long ones are those above :data:`kvreport.accounting.kernel.INDEXED_CONTEXT`.
    ``v1/attention/backends/mla/indexer.py::get_max_prefill_buffer_size``: keys of several contexts,
    of 128 FP8 values and a 32-bit scale, as many fewer as tokens share a key (``deepseek_v4/attention.py``);
    the buffer is shared with that of the experts. ``listed``: True for a class of ``index_logits_of_requests``.
    """
    if not shape.gathers_keys:
        return 0.0, 0.0
    usual, long = release.count("index_contexts"), release.count("index_contexts_long")
    whole = listed and "buffer" not in release.names("index_divided")
    each = INDEX_KEY_BYTES / (1 if whole else shape.index_stride)
    return usual * each, (usual - long) * each


def index_logit_bytes(shape: Shape, release: Release) -> float:
    """Bytes of an indexer's logits per request and token of the longest context, for a class of ``index_logits_of_requests``.

    The measuring run allocates 32 bits for each, in place of :data:`INDEX_LOGITS_BYTES` where those are more. A request that drafts
    has several rows, of which one is counted.
    """
    return SCORE_BYTES / (shape.index_stride if "logits" in release.names("index_divided") else 1)


def scored_bytes_per_row(
    model: Model, shape: Shape, release: Release, *, second: bool, listed: bool = False
) -> tuple[float, float]:
    """Bytes of an indexer's logits in graphs, by requests of the largest and tokens of the longest request; then on B200s.

    A whole graph scores every place that the longest request may have, 32 bits each: DeepGEMM's kernel returns rows of
    ``max_model_len`` (0.20.0 to 0.33.0 ``layers/sparse_attn_indexer.py``, ``fp8_fp4_paged_mqa_logits``; as many fewer as tokens share
    a key, 0.30.0 ``models/deepseek_v41/attention.py``, ``max_model_len // compress_ratio``). On data-center Blackwell GPUs they may be
    16 bits and copied to 32 (``as_fp32_logits``). AMD's kernels write them to the workspace that keys were gathered in.
    Layers of one stride share a graph's memory. Later layers with fewer tokens per key need larger rows, for which no block is
    free. The second runner counts them twice, as it does partial results (:func:`partial_bytes_per_row`; brook-012, -014, web-004).
    ``listed``: True for a class of ``index_logits_of_requests``.
    """
    if not shape.gathers_keys:
        return 0.0, 0.0
    whole = listed and "logits" not in release.names("index_divided")
    width = places = 0.0
    for one in model.every_cache:
        if isinstance(one, Indexer) and 1 / (1 if whole else one.stride) > width:
            width = 1 / (1 if whole else one.stride)
            places += width
    counted = places * (2 if second else 1)
    narrow = SERVED_BYTES if release.has("scores_in_16_bits") else 0
    return SCORE_BYTES * counted, (SCORE_BYTES + narrow) * counted


def encodes(model: Model) -> bool:
    """True for a model that takes images or sounds."""
    return any(row.component in ("vision", "audio") for row in model.weights)


PREPARES_IMAGES: Final = 3
"""What a model that takes images takes of memory shared with a CPU, in what one without takes.

Its first pass is over images that a processor prepares in the same memory, and the allocator of the process keeps it: nine
logs of such models on GB10 leave 3.0 to 7.4 GiB outside the framework, eleven of others 0.1 to 2.2.
"""


def shared_units(model: Model, *, images: bool = True) -> int:
    """How often the constant of devices that share their memory with a CPU counts for a model."""
    return PREPARES_IMAGES if images and encodes(model) else 1


def looked_up_bytes(shape: Shape, release: Release, tensor_parallel: int) -> int:
    """Bytes per token that the kernel writes which compiling measures on a copy of the embedding table.

    One kernel looks embeddings up and norms them, and both are kept.
    Embeddings of several ranks are added up before they are normed, outside of that kernel.
    """
    if release.word("compiles_on_copies") != "table and results":
        return 0
    return SERVED_BYTES * shape.hidden * (2 if tensor_parallel == 1 else 1)


def multiplies_plainly(model: Model) -> bool:
    """True where attention's largest matrices have 16 bits, which cuBLAS multiplies by; kernels for fewer bits need none of it."""
    rows = [row for row in model.weights if row.component == "attention" and len(row.shape) > 1]
    largest = max(rows, key=lambda row: prod(row.shape), default=None)
    return largest is None or largest.released is None


def compiling_bytes(
    model: Model, release: Release, tensor_parallel: int = 1, *, images: bool = True, hashed: bool = False
) -> int:
    """Bytes that compiling the model adds while memory is measured, at a first start.

    Inductor measures kernels that it may run as one (``config/compilation.py``: ``benchmark_combo_kernel``)
    on made-up inputs of the real sizes (PyTorch ``_inductor/codegen/triton.py::codegen_kernel_benchmark``), and
    the first kernel reads the embedding table. Where images or sounds may be asked for, embeddings are looked up
    outside of the compiled graph (``gpu_model_runner.py::_dummy_run``).

    Args:
        model: The model.
        release: The vLLM release.
        tensor_parallel: Ranks that the table is divided over.
        images: False if the engine was told to serve text only.
        hashed: True if tables of hashed n-grams lie on the device, whose lookup is compiled with the layers (a bug
            report of Flash-Next before 0.30 names tens of GiB per GPU).
    """
    if release.word("compiles_on_copies") == "nothing":
        return 0
    outside = images and encodes(model)
    tables = [] if outside else [r for r in model.weights if r.component == "embedding" and not r.looked_up]
    tables += [row for row in model.weights if hashed and is_hashed(model, row)]
    return max((row.parameters * SERVED_BYTES // tensor_parallel for row in tables), default=0)
