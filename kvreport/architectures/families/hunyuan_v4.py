"""Hunyuan V4: gated latent attention with sinks and a shared indexer, hyper-connections."""

from __future__ import annotations

from kvreport.architectures.attention import latent_cache, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import (
    decoder,
    dense_mlp,
    expert_counts,
    latent_sizes,
    prediction_layers,
    unread_prediction,
    whole_tied,
)
from kvreport.architectures.families.deepseek import index_cache, indexer_tensors, latent_tensors, mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, hyper_connection, linear
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache


@reads("HYV4ForCausalLM", family="Hunyuan", model_types=("hy_v4",))
def hunyuan_v4(keys: Keys) -> Blueprint:
    """The first layer and then every fourth run an indexer; the others reuse its choice."""
    return _read(keys, "model", (), predicts=True)


@reads("HYV4VLForConditionalGeneration", family="Hunyuan", model_types=("hy_v4_vl",))
def hunyuan_v4_vl(keys: Keys) -> Blueprint:
    """The same decoder behind an image encoder (transformers 5.24, ``models/hy_v4_vl``).

    vLLM 0.33 and SGLang 0.5.23 predict with the class without images alone.
    """
    return _read(keys, "model.language_model", _vision(keys))


def _vision(keys: Keys) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "hy_v4_vision")
    return part("hunyuan_v4_vision", vision, "model.vision_tower")


def _read(keys: Keys, base: str, towers: Tensors, *, predicts: bool = False) -> Blueprint:
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
    index = index_cache(keys)
    with_index: tuple[str, tuple[Cache, ...]] = ("latent attention with indexer", (*plain[1], index))
    picks = indexer_tensors(keys, its)
    count = keys.whole("hc_mult", high=64)
    # They mix parallel residual streams in and out, without mixing them.
    streams = tuple(
        tensor
        for name in ("attn_hc.", "ffn_hc.")
        for tensor in hyper_connection(name, count * its.hidden, 2 * count, 2)
    )
    mlps = {
        True: mixture(keys, its.hidden, routed),
        False: dense_mlp(keys, its.hidden, width),
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
    # A prediction layer has an indexer of its own and no hyper-connections (vLLM 0.33, hy_v4/nvidia/mtp.py and
    # attention.py::HYV4MLAAttention).
    ahead = (
        prediction_layers(
            keys, its, (*attention, *picks, *mlps[True]), f"{base}.layers", glue="prediction_final"
        )
        if predicts
        else ()
    )
    return decoder(
        keys,
        its,
        layers,
        notes=unread_prediction(keys) if not predicts else [],
        tie=whole_tied(keys),
        intermediate=width,
        experts=(routed, per_token),
        base=base,
        extra=(*hyper_connection(f"{base}.hc_head.hc_", count * its.hidden, count), *ahead, *towers),
    )
