"""Hunyuan V4: gated latent attention with sinks and a shared indexer, hyper-connections."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import decoder, expert_counts, latent_sizes, whole_tied
from kvreport.architectures.families.deepseek import indexer_tensors, latent_tensors, mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, gated_mlp, linear
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
    vision = section_or_default(keys.outer, "vision_config", "hy_v4_vision")
    return part("hunyuan_v4_vision", vision, "model.vision_tower")


def _read(keys: Keys, base: str, towers: Tensors) -> Blueprint:
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_experts")
    values = its.heads * keys.whole("v_head_dim", high=1 << 14)
    attention = (
        *latent_tensors(keys, its, rank, rope),
        *linear("self_attn.gate_proj", "attention", values, its.hidden, "heads", heads=its.heads),
        Weight("self_attn.sinks", "attention", (its.heads,), "heads", its.heads),
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
        tie=whole_tied(keys),
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
            Weight(f"{name}.fn", "other", (2 * streams, streams * hidden)),
            Weight(f"{name}.base", "other", (2 * streams,)),
            Weight(f"{name}.scale", "other", (2,)),
        )
    )


def _head_streams(base: str, hidden: int, streams: int) -> Tensors:
    return (
        Weight(f"{base}.hc_head.hc_fn", "other", (streams, streams * hidden)),
        Weight(f"{base}.hc_head.hc_base", "other", (streams,)),
        Weight(f"{base}.hc_head.hc_scale", "other", (1,)),
    )
