"""What llama.cpp computes for a model, layer by layer: the traits that decide its buffers.

Made from a :class:`~kvreport.catalog.model.Model` by :mod:`.reading`; never keyed to a model's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QkNorm = Literal["none", "head", "full"]
Mechanism = Literal["mamba1", "mamba2", "gated_deltanet", "kda", "lightning", "short_conv", "rwkv"]


@dataclass(frozen=True)
class Attention:
    """Softmax attention over cached keys and values."""

    heads: int  # Query heads.
    kv_heads: int  # Key and value heads.
    key_dim: int  # Width of a key head.
    value_dim: int  # Width of a value head.
    window: int | None = None  # Tokens looked back, or None for all.
    owns_cache: bool = True  # False for a layer that reads an earlier layer's cache.
    qk_norm: QkNorm = "none"  # Norms on queries and keys: per head, over the whole projection, or none.
    value_norm: bool = False  # True for a norm on values (Gemma 4).
    biased: bool = False  # True for biases on Q, K and V.
    out_bias: bool = False  # True for a bias on the output projection.
    fused: bool = False  # True for one matrix that yields Q, K and V.
    # Width of an output gate: ``doubled`` in the query projection, of its own matrix, or none.
    gate: Literal["none", "doubled", "own"] = "none"
    gate_width: int = 0  # Width of the output gate.
    sinks: bool = False  # True for attention sinks.
    rotary: bool = True  # True for a rotary embedding on Q and K.
    same_kv: bool = False  # True if values are the keys' projection.
    index_dim: int = 0  # Width of index keys that are cached beside keys and values, 0 if none.
    # True if the cache of index keys has rows of values, too (they are never read).
    index_values: bool = False
    # The latent that keys and values are unfolded from before they are cached, or None.
    latent: LatentAttention | None = None
    # Index keys of blocks, of which each query picks some, or None for all.
    picker: BlockIndexer | None = None


@dataclass(frozen=True)
class BlockIndexer:
    """Index keys that are pooled over blocks of tokens (Qwen4's sparse attention)."""

    heads: int  # Index heads.
    dim: int  # Width of an index key.
    block: int  # Tokens per block.
    top_k: int  # Tokens that are picked for each query, besides its own block.


@dataclass(frozen=True)
class IndexKeys:
    """The index keys of sparse attention (DeepSeek-V3.2, GLM-5)."""

    heads: int  # Index heads.
    dim: int  # Width of an index key.
    top_k: int  # Tokens that are picked for each query.


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention with absorbed projections (``attn_k_b``, ``attn_v_b``)."""

    heads: int  # Query heads.
    query_rank: int  # Width of the compressed query, 0 if queries are not compressed.
    latent: int  # ``kv_lora_rank``.
    rotary: int  # Width of the rotary part.
    nope: int  # Width of a head's part without rotation.
    value_dim: int  # Width of a value head.
    rotates: bool = True  # False if the rotary part is not rotated.
    indexer: IndexKeys | None = None  # Index keys of sparse attention, or None.
    owns_indexer: bool = True  # False if the layer uses an earlier layer's picks.
    # Tokens that the uncompressed cache keeps beside a micro-batch, or None for all.
    window: int | None = None
    strides: tuple[int, ...] = ()  # Tokens per cell of each compressed cache beside it (DeepSeek-V4).
    ring_elements: int = 0  # Elements that the compressors keep for one sequence.


@dataclass(frozen=True)
class Recurrence:
    """A state of constant size per sequence."""

    mechanism: Mechanism  # How the state is updated.
    conv: int  # Columns of the convolution state (kernel width less one).
    inner: int  # Width of the inner (value) channels.
    state: int  # Width of a state row (key head width, ``d_state``).
    heads: int  # Value heads (``dt_rank`` of Mamba-2).
    groups: int  # Key heads (groups of Mamba-2).
    rank: int = 0  # ``dt_rank`` of Mamba-1.
    normed: bool = False  # True if Mamba-2 norms its output per group.
    conv_elements: int = 0  # Elements of the convolution state of one sequence.
    state_elements: int = 0  # Elements of the recurrent state of one sequence.
    copied_columns: bool = False  # True if the columns to keep are copied before they are written back.


@dataclass(frozen=True)
class Ngram:
    """Embeddings of the last tokens together, added to the residual streams."""

    width: int  # Width of a token's embedding, all rows of the table side by side.
    row: int  # Width of a row of the table.
    kernel: int  # Taps of the convolution after it.
    history: int  # Columns that the convolution keeps.


@dataclass(frozen=True)
class Hyper:
    """Hyper-connections between residual streams."""

    streams: int  # Residual streams.
    rank: int  # Width of the low-rank gate.


@dataclass(frozen=True)
class FeedForward:
    """A dense feed-forward network."""

    width: int  # Inner width.
    gated: bool = True  # True for a gate beside the up projection.
    fused: bool = False  # True if one matrix yields gate and up.
    biased: bool = False  # True for biases.


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts."""

    experts: int  # Experts of the layer.
    used: int  # Experts a token uses.
    width: int  # Inner width of an expert.
    gated: bool = True  # True for a gate beside the up projection.
    fused: bool = False  # True if one tensor holds gate and up of every expert.
    biased: bool = False  # True for biases on experts and router (gpt-oss).
    probs_bias: bool = False  # True for a bias on the router's choice (DeepSeek-V3).
    softmax_after: bool = False  # True if the weights' softmax comes after the choice (gpt-oss).
    normed: bool = True  # True if the weights are divided by their sum.
    weight_first: bool = False  # True if inputs are weighted, not outputs (Llama 4).
    shared: FeedForward | None = None  # A network every token uses, or None.
    shared_gate: bool = False  # True if the shared network is gated by the token.
    # True if a dense network with norms of its own runs beside it (Gemma 4).
    dense_beside: FeedForward | None = None
    squared: bool = False  # True for a squared activation.


@dataclass(frozen=True)
class Block:
    """One layer."""

    mixer: Attention | LatentAttention | Recurrence | None  # Attention or recurrence, or None.
    feed: FeedForward | Mixture | None  # Feed-forward network, mixture, or None.
    second: Recurrence | None = None  # A second mixer that runs in parallel (Falcon-H1), or None.
    parallel: bool = False  # True if feed-forward and mixer read the same norm and are added together.
    mixer_first: bool = False  # True if a parallel layer adds the mixer's output before the feed-forward's.
    # Which sums name the residual first.
    residual_first: Literal["neither", "mixer", "feed", "both"] = "neither"
    post_norms: bool = False  # True for norms on the outputs of mixer and feed-forward.
    pre_norms: bool = True  # True for norms on their inputs.
    own_norm: bool = False  # False if a parallel layer has no second norm.
    out_scaled: bool = False  # True if the layer's output is multiplied by a weight of its own (Gemma 4).
    normal: Literal["rms", "layer"] = "rms"  # Kind of its norms.
    ngram: Ngram | None = None  # Embeddings of n-grams that the layer adds first, or None.


@dataclass(frozen=True)
class Network:
    """A model as llama.cpp runs it."""

    hidden: int  # Width of the residual stream.
    vocabulary: int  # Rows of the output matrix.
    blocks: tuple[Block, ...]  # The layers that run (without prediction layers).
    tied: bool = False  # True if the embedding is the output matrix too.
    per_layer: int = 0  # Width of per-layer embeddings (Gemma 3n, Gemma 4), 0 if none.
    streams: int = 1  # Residual streams (Gemma 3n's alternating updates), 1 as a rule.
    low_rank: int = 0  # Width of the low-rank path beside attention (Gemma 3n), 0 if none.
    # True if the rows to output are picked after the last norm, not in the last layer.
    late_rows: bool = False
    late_before_norm: bool = False  # True if they are picked after the last layer but before the norm.
    positions: int = 1  # Position numbers per token (4 for M-RoPE).
    hidden_output: bool = False  # True if the last hidden state is an output of the graph, too.
    rollback: bool = False  # True if recurrent states can be kept for rollback.
    learned_positions: bool = False  # True for a table of position embeddings.
    # True for prediction blocks: they read the trunk's last state beside the token's embedding.
    predicts: bool = False
    # Prediction blocks that the file has after these layers; they count when layers are put on devices.
    prediction_layers: int = 0
    hyper: Hyper | None = None  # Hyper-connections, or None.
