"""What a layer keeps between decoding steps, as the architecture defines it.

A record here holds shapes only. Bytes need a storage format and a parallel layout as well; that
arithmetic is :mod:`kvreport.accounting.kv_cache`. A layer may hold several caches (Falcon-H1:
attention and Mamba state; DeepSeek-V3.2: a latent and index keys; DeepSeek-V4: a window, a
compressed latent, index keys and compressor rings).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kvreport.catalog.base import Positive, Record, Tokens

Precision = Literal["model", "float32", "bfloat16", "float16", "float8"]
"""Element type of a state tensor; ``model`` means the type that the model is served in."""


Stride = Annotated[int, Field(ge=1, le=256)]
"""Tokens per stored vector: at most one page of the kernels that read compressed caches."""


class FullAttention(Record):
    """Keys and values of every token."""

    kind: Literal["full"] = "full"
    kv_heads: Positive  # Key/value heads of the layer, before any tensor parallelism.
    key_dim: Positive  # Width of one key head.
    value_dim: Positive  # Width of one value head (differs from ``key_dim`` in MiMo-V2).


class SlidingWindow(Record):
    """Keys and values of the last ``window`` tokens."""

    kind: Literal["sliding"] = "sliding"
    kv_heads: Positive
    key_dim: Positive
    value_dim: Positive
    window: Tokens


class ChunkedAttention(Record):
    """Keys and values of the current chunk of ``chunk`` tokens (Llama 4's local layers)."""

    kind: Literal["chunked"] = "chunked"
    kv_heads: Positive
    key_dim: Positive
    value_dim: Positive
    chunk: Tokens


class Latent(Record):
    """One compressed vector instead of keys and values (MLA), shared by all heads."""

    kind: Literal["latent"] = "latent"
    latent_dim: Positive  # ``kv_lora_rank``: elements of the compressed part.
    # ``qk_rope_head_dim``: elements of the rotary part kept beside it.
    rope_dim: Annotated[int, Field(ge=0, le=1 << 20)]
    stride: Stride = 1  # Tokens per stored vector (1 for MLA; 4 or 128 for DeepSeek-V4's compressed layers).
    window: Tokens | None = None  # Tokens it looks back, or None for all of them.


class Indexer(Record):
    """Index keys by which sparse attention picks the tokens it reads."""

    kind: Literal["indexer"] = "indexer"
    index_dim: Positive  # Width of one index key; there is one per token (or per ``stride`` tokens).
    stride: Stride = 1  # Tokens per stored key.
    # True if engines store it as FP8 with a 4-byte scale per 128 elements (DeepSeek-V3.2, GLM-5); False if
    # without scales (MiniMax-M3).
    scaled: bool = True
    # Element type of keys without scales: ``model``, or ``float8`` (Step 5).
    precision: Literal["model", "float8"] = "model"
    # Entries of the layer's cache that it picks for attention to read (``index_topk``): tokens, or compressed
    # latents where those are kept (DeepSeek-V4). None if the source does not say. Changes reading time, and
    # what graphs of vLLM hold on Hopper GPUs; never the cache.
    top_k: Positive | None = None


class Ring(Record):
    """Partial sums of a compressor over its last ``window`` tokens, in float32 (DeepSeek-V4)."""

    kind: Literal["ring"] = "ring"
    elements_per_token: Positive
    window: Tokens


class StateTensor(Record):
    """One tensor of a recurrent state."""

    name: Literal["conv", "recurrent"]  # ``conv`` or ``recurrent``.
    channels: Positive  # Leading dimension that tensor parallelism divides.
    columns: Positive  # Elements per channel.
    precision: Precision = "model"  # Element type.
    # Groups of a grouped projection kept beside the channels (Mamba-2's B and C); when they do not divide by
    # the tensor-parallel size they are extended to one per rank.
    groups: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    channels_per_group: Annotated[int, Field(ge=0, le=1 << 30)] = 0  # Leading elements that each group adds.


class RecurrentState(Record):
    """A state of constant size per request (Mamba, linear attention, short convolution)."""

    kind: Literal["state"] = "state"
    mechanism: Literal[
        "mamba1",
        "mamba2",
        "gated_deltanet",
        "kda",
        "lightning",
        "short_conv",
        "rg_lru",
        "rwkv",
        "mlstm",
    ]
    tensors: Annotated[tuple[StateTensor, ...], Field(min_length=1)]


class CrossAttention(Record):
    """Keys and values of encoder or image tokens: constant once the image is read."""

    kind: Literal["cross"] = "cross"
    kv_heads: Positive
    key_dim: Positive
    value_dim: Positive
    encoder_tokens: Tokens


class Shared(Record):
    """Nothing of its own: the layer reads another layer's cache (Gemma 3n, cross-layer sharing)."""

    kind: Literal["shared"] = "shared"
    reads: Literal["full", "sliding", "chunked", "latent"]


Cache = Annotated[
    FullAttention
    | SlidingWindow
    | ChunkedAttention
    | Latent
    | Indexer
    | Ring
    | RecurrentState
    | CrossAttention
    | Shared,
    Field(discriminator="kind"),
]
"""Any cache; told apart by ``kind``."""
