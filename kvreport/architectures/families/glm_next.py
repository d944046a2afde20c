"""GLM-5.3-Flash: three KDA layers for one of latent attention with a pooled indexer, and vision."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import latent_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import Sizes, decoder, expert_counts
from kvreport.architectures.families.deepseek import (
    indexer_tensors,
    latent_sizes,
    latent_tensors,
    mixture,
    mixture_pattern,
    prediction_layers,
)
from kvreport.architectures.families.glm import indexed_layers
from kvreport.architectures.families.kimi import kda_sizes, kda_state, kda_tensors
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, section_or_default, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm
from kvreport.catalog.caches import Cache, Indexer

_TAIL: Final = (
    "The indexer also keeps the keys of its last, incomplete pool: some kilobytes per layer and"
    " request, not counted."
)


@reads(
    "Glm5NextForConditionalGeneration",
    "Glm5NextForCausalLM",
    family="GLM-5",
    model_types=("glm5_next", "glm5_next_text"),
)
def glm5_next(keys: Keys) -> Blueprint:
    """Hyper-connections between layers; the latent has no rotary part, the index keys are pooled."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_experts")
    heads, head_dim, kernel = kda_sizes(keys)
    latent = latent_tensors(keys, its, rank, rope)
    delta = (*latent[:2], *kda_tensors(its.hidden, heads, head_dim, kernel, full_gate=False))
    plain = latent_cache(rank, rope)
    pool = keys.whole("index_kpool", high=256)
    index = Indexer(
        index_dim=keys.whole("index_head_dim", high=1 << 12),
        stride=pool,
        top_k=keys.optional("index_topk", low=1, high=1 << 20),
    )
    pooled: tuple[str, tuple[Cache, ...]] = ("latent attention with pooled indexer", (*plain[1], index))
    picks = (*indexer_tensors(keys, its), *_pooling(index.index_dim, pool, its.hidden))
    streams = (
        *stream_tensors("attn_hc", its.hidden, keys.whole("hc_mult", high=64)),
        *stream_tensors("ffn_hc", its.hidden, keys.whole("hc_mult", high=64)),
    )
    mlps = {
        True: mixture(keys, its.hidden, routed, correction=True),
        False: gated_mlp(its.hidden, width),
    }
    layers = []
    for full, indexed, sparse in zip(
        _full_layers(keys, its), indexed_layers(keys, its.layers), _mixtures(keys, its), strict=True
    ):
        kept = (pooled if indexed else plain) if full else kda_state(heads, head_dim, kernel)
        mixer = (*latent, *(picks if indexed else ())) if full else delta
        layers.append(Layer(*kept, (*mixer, *streams, *mlps[sparse])))
    nested = keys.outer is not keys
    base = "model.language_model" if nested else "model"
    # A layer of latent attention without hyper-connections (vLLM 0.33, glm5next/common/mtp.py).
    ahead = prediction_layers(keys, its, (*latent, *picks, *mlps[True]), f"{base}.layers", ends=False)
    return decoder(
        keys,
        its,
        layers,
        base=base,
        intermediate=width,
        experts=(routed, per_token),
        extra=(*(_vision(keys) if nested else ()), *ahead),
        notes=[_TAIL],
    )


def stream_tensors(name: str, hidden: int, streams: int) -> Tensors:
    """Hyper-connections: how parallel residual streams are mixed into and out of a block."""
    mixed = (2 + streams) * streams
    return (
        Tensor(f"{name}.fn", "other", (mixed, streams * hidden)),
        Tensor(f"{name}.base", "other", (mixed,)),
        Tensor(f"{name}.scale", "other", (3,)),
    )


def _pooling(width: int, pool: int, hidden: int) -> Tensors:
    return (
        Tensor("self_attn.indexer.index_kpool_compress_ape", "attention", (pool, width)),
        Tensor("self_attn.indexer.index_kpool_compress_gate", "attention", (width, hidden)),
    )


def _full_layers(keys: Keys, its: Sizes) -> list[bool]:
    inner = keys.section("linear_attn_config")
    if inner is not None and inner.has("full_attn_layers"):
        full = inner.wholes("full_attn_layers", low=1, high=its.layers) or []
        return [index + 1 in full for index in range(its.layers)]
    words = ("linear_attention", "indexed_attention", "full_attention", "deepseek_sparse_attention")
    listed = keys.texts("layer_types", length=its.layers, of=words)
    if listed is not None:
        return [word != "linear_attention" for word in listed]
    return [index % 4 == 3 for index in range(its.layers)]


def _mixtures(keys: Keys, its: Sizes) -> list[bool]:
    return mixture_pattern(keys, its.layers)


def _vision(keys: Keys) -> Tensors:
    """Normalised queries and keys, a gated MLP, a strided convolution and a gated merger."""
    vision = section_or_default(keys.outer, "vision_config", published("glm5_next_vision"))
    hidden = vision.whole("hidden_size")
    heads = vision.whole("num_heads", high=1 << 12)
    width = vision.divide("hidden_size", hidden, "num_heads", heads)
    inside = vision.whole("intermediate_size")
    patch = vision.whole("patch_size", high=1 << 12)
    side = vision.whole("spatial_merge_size", high=64)
    out = vision.whole("out_hidden_size")
    projected = vision.whole("projection_intermediate_size")
    bias = vision.flag("attention_bias")
    tower = "model.visual"
    path = f"{tower}.blocks.*"
    layer = (
        *norm(f"{path}.norm1", hidden, component="vision"),
        *norm(f"{path}.norm2", hidden, component="vision"),
        *linear(f"{path}.attn.qkv", "vision", 3 * hidden, hidden, "columns", bias=bias),
        *linear(f"{path}.attn.proj", "vision", hidden, hidden, "rows", bias=bias),
        *norm(f"{path}.attn.q_norm", width, component="vision"),
        *norm(f"{path}.attn.k_norm", width, component="vision"),
        *gated_mlp(hidden, inside, f"{path}.mlp", "vision", bias=bias),
    )
    kernel = vision.whole("in_channels", high=64) * vision.whole("temporal_patch_size", high=64)
    return (
        Tensor(f"{tower}.patch_embed.proj.weight", "vision", (hidden, kernel, patch, patch)),
        Tensor(f"{tower}.patch_embed.proj.bias", "vision", (hidden,)),
        *times(vision.whole("depth", high=MAX_DEPTH), layer),
        *norm(f"{tower}.post_layernorm", hidden, component="vision"),
        Tensor(f"{tower}.downsample.weight", "vision", (out, hidden, side, side)),
        Tensor(f"{tower}.downsample.bias", "vision", (out,)),
        *linear(f"{tower}.merger.proj", "vision", out, out),
        *norm(f"{tower}.merger.post_projection_norm", out, bias=True, component="vision"),
        *gated_mlp(out, projected, f"{tower}.merger", "vision"),
    )
