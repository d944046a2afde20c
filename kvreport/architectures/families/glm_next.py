"""GLM-5.3-Flash: three KDA layers for one of latent attention with a pooled indexer, and vision."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import indexed_layers, latent_cache, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import (
    Sizes,
    decoder,
    dense_mlp,
    expert_counts,
    latent_sizes,
    prediction_layers,
    text_base,
    whole_tied,
)
from kvreport.architectures.families.deepseek import index_cache, indexer_tensors, latent_tensors, mixture
from kvreport.architectures.families.kimi import kda_sizes, kda_state, kda_tensors
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, hyper_connection
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache

_TAIL: Final = (
    "The indexer also keeps the keys of the last, incomplete pool. They take a few kilobytes per layer and"
    " request and are not included."
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
    dims = kda_sizes(keys)
    latent = latent_tensors(keys, its, rank, rope)
    delta = (*latent[:2], *kda_tensors(keys, its.hidden, dims))
    plain = latent_cache(rank, rope)
    pool = keys.whole("index_kpool", high=256)
    index = index_cache(keys, pool)
    pooled: tuple[str, tuple[Cache, ...]] = ("latent attention with pooled indexer", (*plain[1], index))
    picks = (*indexer_tensors(keys, its), *_pooling(index.index_dim, pool, its.hidden))
    count = keys.whole("hc_mult", high=64)
    streams = tuple(
        tensor
        for name in ("attn_hc.", "ffn_hc.")
        for tensor in hyper_connection(name, count * its.hidden, (2 + count) * count, 3)
    )
    mlps = {
        True: mixture(keys, its.hidden, routed),
        False: dense_mlp(keys, its.hidden, width),
    }
    layers = []
    for full, indexed, sparse in zip(
        _full_layers(keys, its),
        indexed_layers(keys, its.layers),
        mixture_pattern(keys, its.layers),
        strict=True,
    ):
        kept = (pooled if indexed else plain) if full else kda_state(*dims)
        mixer = (*latent, *(picks if indexed else ())) if full else delta
        layers.append(Layer(*kept, (*mixer, *streams, *mlps[sparse])))
    base = text_base(keys)
    # A layer of latent attention without hyper-connections (vLLM 0.33, glm5next/common/mtp.py).
    ahead = prediction_layers(keys, its, (*latent, *picks, *mlps[True]), f"{base}.layers", ends=False)
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base=base,
        intermediate=width,
        experts=(routed, per_token),
        extra=(*(_vision(keys) if keys.outer is not keys else ()), *ahead),
        notes=[_TAIL],
    )


def _pooling(width: int, pool: int, hidden: int) -> Tensors:
    return (
        Weight("self_attn.indexer.index_kpool_compress_ape", "attention", (pool, width)),
        Weight("self_attn.indexer.index_kpool_compress_gate", "attention", (width, hidden)),
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


def _vision(keys: Keys) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "glm5_next_vision")
    heads = vision.whole("num_heads", high=1 << 12)
    width = vision.divide("hidden_size", vision.whole("hidden_size"), "num_heads", heads)
    return part("glm5_next_vision", vision, "model.visual", head_width=width)
