"""Hunyuan V4: gated latent attention with sinks and a shared indexer, hyper-connections."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import decoder, expert_counts
from kvreport.architectures.families.deepseek import (
    indexer_tensors,
    latent_sizes,
    latent_tensors,
    mixture,
    mixture_pattern,
)
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, check_heads, plain_block, section_or_default, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm
from kvreport.catalog.caches import Cache, Indexer


@reads("HYV4ForCausalLM", family="Hunyuan", model_types=("hy_v4",))
def hunyuan_v4(keys: Keys) -> Blueprint:
    """The first layer and then every fourth run an indexer; the others reuse its choice."""
    return _read(keys, "model", ())


@reads("HYV4VLForConditionalGeneration", family="Hunyuan", model_types=("hy_v4_vl",))
def hunyuan_v4_vl(keys: Keys) -> Blueprint:
    """The same decoder behind an image encoder (transformers 5.24, ``models/hy_v4_vl``)."""
    return _read(keys, "model.language_model", _vision(keys))


def _vision(keys: Keys) -> Tensors:
    """A plain transformer with learned positions, and two convolutions that merge its patches."""
    vision = section_or_default(keys.outer, "vision_config", published("hy_v4_vision"))
    hidden = vision.whole("hidden_size")
    check_heads(vision, hidden, "num_attention_heads")
    patch = vision.whole("patch_size", high=1 << 12)
    places = (vision.whole("max_image_size", high=1 << 16) // patch) ** 2 + 1
    merge = vision.whole("spatial_merge_size", high=64)
    out = vision.whole("out_hidden_size")
    tower = "model.vision_tower"
    merged = hidden * merge**2
    block = plain_block(
        f"{tower}.layers.*", hidden, vision.whole("intermediate_size"), output="self_attn.o_proj"
    )
    return (
        Tensor(
            f"{tower}.embeddings.patch_embedding.weight",
            "vision",
            (hidden, vision.whole("num_channels", high=64), patch, patch),
        ),
        Tensor(f"{tower}.embeddings.patch_embedding.bias", "vision", (hidden,)),
        Tensor(f"{tower}.embeddings.position_embedding.weight", "vision", (places, hidden)),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        Tensor(f"{tower}.patch_merger.image_newline", "vision", (out,)),
        Tensor(f"{tower}.patch_merger.proj_conv.weight", "vision", (merged, hidden, merge, merge)),
        Tensor(f"{tower}.patch_merger.proj_conv.bias", "vision", (merged,)),
        Tensor(f"{tower}.patch_merger.proj_out.weight", "vision", (out, merged, 1, 1)),
        Tensor(f"{tower}.patch_merger.proj_out.bias", "vision", (out,)),
        *norm(f"{tower}.patch_merger.before_rms", hidden, component="vision"),
    )


def _read(keys: Keys, base: str, towers: Tensors) -> Blueprint:
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_experts")
    values = its.heads * keys.whole("v_head_dim", high=1 << 14)
    attention = (
        *latent_tensors(keys, its, rank, rope),
        *linear("self_attn.gate_proj", "attention", values, its.hidden, "heads", heads=its.heads),
        Tensor("self_attn.sinks", "attention", (its.heads,), "heads", its.heads),
    )
    plain = latent_cache(rank, rope)
    index = Indexer(
        index_dim=keys.whole("index_head_dim", high=1 << 12),
        top_k=keys.optional("index_topk", low=1, high=1 << 20),
    )
    with_index: tuple[str, tuple[Cache, ...]] = ("latent attention with indexer", (*plain[1], index))
    picks = indexer_tensors(keys, its)
    streams = _streams(its.hidden, keys.whole("hc_mult", high=64))
    mlps = {
        True: mixture(keys, its.hidden, routed, correction=True),
        False: gated_mlp(its.hidden, width),
    }
    listed = keys.texts("indexer_types", length=its.layers, of=("full", "shared"))
    indexed = (
        [kind == "full" for kind in listed]
        if listed is not None
        else [layer == 0 or layer % 4 == 1 for layer in range(its.layers)]
    )
    layers = [
        Layer(
            *(with_index if runs else plain),
            (*attention, *(picks if runs else ()), *streams, *mlps[sparse]),
        )
        for runs, sparse in zip(indexed, mixture_pattern(keys, its.layers), strict=True)
    ]
    return decoder(
        keys,
        its,
        layers,
        intermediate=width,
        experts=(routed, per_token),
        base=base,
        extra=(*_head_streams(base, its.hidden, keys.whole("hc_mult", high=64)), *towers),
    )


def _streams(hidden: int, streams: int) -> Tensors:
    """Hyper-connections that mix parallel residual streams in and out, without mixing them."""
    return tuple(
        tensor
        for name in ("attn_hc", "ffn_hc")
        for tensor in (
            Tensor(f"{name}.fn", "other", (2 * streams, streams * hidden)),
            Tensor(f"{name}.base", "other", (2 * streams,)),
            Tensor(f"{name}.scale", "other", (2,)),
        )
    )


def _head_streams(base: str, hidden: int, streams: int) -> Tensors:
    return (
        Tensor(f"{base}.hc_head.hc_fn", "other", (streams, streams * hidden)),
        Tensor(f"{base}.hc_head.hc_base", "other", (streams,)),
        Tensor(f"{base}.hc_head.hc_scale", "other", (1,)),
    )
