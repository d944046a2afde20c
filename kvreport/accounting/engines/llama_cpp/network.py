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
    """Softmax attention over cached keys and values.

    Attributes:
        heads: Query heads.
        kv_heads: Key and value heads.
        key_dim: Width of a key head.
        value_dim: Width of a value head.
        window: Tokens looked back, or None for all.
        owns_cache: False for a layer that reads an earlier layer's cache.
        qk_norm: Norms on queries and keys: per head, over the whole projection, or none.
        value_norm: True for a norm on values (Gemma 4).
        biased: True for biases on Q, K and V.
        out_bias: True for a bias on the output projection.
        fused: True for one matrix that yields Q, K and V.
        gate: Width of an output gate: ``doubled`` in the query projection, of its own matrix, or none.
        sinks: True for attention sinks.
        rotary: True for a rotary embedding on Q and K.
        gate_width: Width of the output gate.
        same_kv: True if values are the keys' projection.
        index_dim: Width of index keys that are cached beside keys and values, 0 if none.
        index_values: True if the cache of index keys has rows of values, too (they are never read).
        latent: The latent that keys and values are unfolded from before they are cached, or None.
        picker: Index keys of blocks, of which each query picks some, or None for all.
    """

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    owns_cache: bool = True
    qk_norm: QkNorm = "none"
    value_norm: bool = False
    biased: bool = False
    out_bias: bool = False
    fused: bool = False
    gate: Literal["none", "doubled", "own"] = "none"
    gate_width: int = 0
    sinks: bool = False
    rotary: bool = True
    same_kv: bool = False
    index_dim: int = 0
    index_values: bool = False
    latent: LatentAttention | None = None
    picker: BlockIndexer | None = None


@dataclass(frozen=True)
class BlockIndexer:
    """Index keys that are pooled over blocks of tokens (Qwen4's sparse attention).

    Attributes:
        heads: Index heads.
        dim: Width of an index key.
        block: Tokens per block.
        top_k: Tokens that are picked for each query, besides its own block.
    """

    heads: int
    dim: int
    block: int
    top_k: int


@dataclass(frozen=True)
class IndexKeys:
    """The index keys of sparse attention (DeepSeek-V3.2, GLM-5).

    Attributes:
        heads: Index heads.
        dim: Width of an index key.
        top_k: Tokens that are picked for each query.
    """

    heads: int
    dim: int
    top_k: int


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention with absorbed projections (``attn_k_b``, ``attn_v_b``).

    Attributes:
        heads: Query heads.
        query_rank: Width of the compressed query, 0 if queries are not compressed.
        latent: ``kv_lora_rank``.
        rotary: Width of the rotary part.
        nope: Width of a head's part without rotation.
        value_dim: Width of a value head.
        rotates: False if the rotary part is not rotated.
        indexer: Index keys of sparse attention, or None.
        owns_indexer: False if the layer uses an earlier layer's picks.
        window: Tokens that the uncompressed cache keeps beside a micro-batch, or None for all.
        strides: Tokens per cell of each compressed cache beside it (DeepSeek-V4).
        ring_elements: Elements that the compressors keep for one sequence.
    """

    heads: int
    query_rank: int
    latent: int
    rotary: int
    nope: int
    value_dim: int
    rotates: bool = True
    indexer: IndexKeys | None = None
    owns_indexer: bool = True
    window: int | None = None
    strides: tuple[int, ...] = ()
    ring_elements: int = 0


@dataclass(frozen=True)
class Recurrence:
    """A state of constant size per sequence.

    Attributes:
        mechanism: How the state is updated.
        conv: Columns of the convolution state (kernel width less one).
        inner: Width of the inner (value) channels.
        state: Width of a state row (key head width, ``d_state``).
        heads: Value heads (``dt_rank`` of Mamba-2).
        groups: Key heads (groups of Mamba-2).
        rank: ``dt_rank`` of Mamba-1.
        normed: True if Mamba-2 norms its output per group.
        conv_elements: Elements of the convolution state of one sequence.
        state_elements: Elements of the recurrent state of one sequence.
        copied_columns: True if the columns to keep are copied before they are written back.
    """

    mechanism: Mechanism
    conv: int
    inner: int
    state: int
    heads: int
    groups: int
    rank: int = 0
    normed: bool = False
    conv_elements: int = 0
    state_elements: int = 0
    copied_columns: bool = False


@dataclass(frozen=True)
class Ngram:
    """Embeddings of the last tokens together, added to the residual streams.

    Attributes:
        width: Width of a token's embedding, all rows of the table side by side.
        row: Width of a row of the table.
        kernel: Taps of the convolution after it.
        history: Columns that the convolution keeps.
    """

    width: int
    row: int
    kernel: int
    history: int


@dataclass(frozen=True)
class Hyper:
    """Hyper-connections between residual streams.

    Attributes:
        streams: Residual streams.
        rank: Width of the low-rank gate.
    """

    streams: int
    rank: int


@dataclass(frozen=True)
class FeedForward:
    """A dense feed-forward network.

    Attributes:
        width: Inner width.
        gated: True for a gate beside the up projection.
        fused: True if one matrix yields gate and up.
        biased: True for biases.
    """

    width: int
    gated: bool = True
    fused: bool = False
    biased: bool = False


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts.

    Attributes:
        experts: Experts of the layer.
        used: Experts a token uses.
        width: Inner width of an expert.
        gated: True for a gate beside the up projection.
        fused: True if one tensor holds gate and up of every expert.
        biased: True for biases on experts and router (gpt-oss).
        probs_bias: True for a bias on the router's choice (DeepSeek-V3).
        softmax_after: True if the weights' softmax comes after the choice (gpt-oss).
        normed: True if the weights are divided by their sum.
        weight_first: True if inputs are weighted, not outputs (Llama 4).
        shared: A network every token uses, or None.
        shared_gate: True if the shared network is gated by the token.
        dense_beside: True if a dense network with norms of its own runs beside it (Gemma 4).
        squared: True for a squared activation.
    """

    experts: int
    used: int
    width: int
    gated: bool = True
    fused: bool = False
    biased: bool = False
    probs_bias: bool = False
    softmax_after: bool = False
    normed: bool = True
    weight_first: bool = False
    shared: FeedForward | None = None
    shared_gate: bool = False
    dense_beside: FeedForward | None = None
    squared: bool = False


@dataclass(frozen=True)
class Block:
    """One layer.

    Attributes:
        mixer: Attention or recurrence, or None.
        second: A second mixer that runs in parallel (Falcon-H1), or None.
        feed: Feed-forward network, mixture, or None.
        parallel: True if feed-forward and mixer read the same norm and are added together.
        mixer_first: True if a parallel layer adds the mixer's output before the feed-forward's.
        residual_first: Which sums name the residual first.
        post_norms: True for norms on the outputs of mixer and feed-forward.
        pre_norms: True for norms on their inputs.
        own_norm: False if a parallel layer has no second norm.
        out_scaled: True if the layer's output is multiplied by a weight of its own (Gemma 4).
        normal: Kind of its norms.
        ngram: Embeddings of n-grams that the layer adds first, or None.
    """

    mixer: Attention | LatentAttention | Recurrence | None
    feed: FeedForward | Mixture | None
    second: Recurrence | None = None
    parallel: bool = False
    mixer_first: bool = False
    residual_first: Literal["neither", "mixer", "feed", "both"] = "neither"
    post_norms: bool = False
    pre_norms: bool = True
    own_norm: bool = False
    out_scaled: bool = False
    normal: Literal["rms", "layer"] = "rms"
    ngram: Ngram | None = None


@dataclass(frozen=True)
class Network:
    """A model as llama.cpp runs it.

    Attributes:
        hidden: Width of the residual stream.
        vocabulary: Rows of the output matrix.
        blocks: The layers that run (without prediction layers).
        tied: True if the embedding is the output matrix too.
        per_layer: Width of per-layer embeddings (Gemma 3n, Gemma 4), 0 if none.
        streams: Residual streams (Gemma 3n's alternating updates), 1 as a rule.
        low_rank: Width of the low-rank path beside attention (Gemma 3n), 0 if none.
        late_rows: True if the rows to output are picked after the last norm, not in the last layer.
        late_before_norm: True if they are picked after the last layer but before the norm.
        positions: Position numbers per token (4 for M-RoPE).
        hidden_output: True if the last hidden state is an output of the graph, too.
        rollback: True if recurrent states can be kept for rollback.
        predicts: True for prediction blocks: they read the trunk's last state beside the token's embedding.
        prediction_layers: Prediction blocks that the file has after these layers; they count when layers are
            put on devices.
        learned_positions: True for a table of position embeddings.
        hyper: Hyper-connections, or None.
    """

    hidden: int
    vocabulary: int
    blocks: tuple[Block, ...]
    tied: bool = False
    per_layer: int = 0
    streams: int = 1
    low_rank: int = 0
    late_rows: bool = False
    late_before_norm: bool = False
    positions: int = 1
    hidden_output: bool = False
    rollback: bool = False
    learned_positions: bool = False
    predicts: bool = False
    prediction_layers: int = 0
    hyper: Hyper | None = None
