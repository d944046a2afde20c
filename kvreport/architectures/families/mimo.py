"""MiMo 7B (Qwen2 with a layer that predicts a second token) and MiMo-V2 (windows, narrow values)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.attention import Kind, attention_cache, layer_kinds, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, expert_counts, sizes
from kvreport.architectures.families.deepseek import mixture
from kvreport.architectures.families.mimo_encoders import (
    TOKENIZER_NOTE,
    audio_encoder,
    vision_tower,
)
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norms, placed
from kvreport.catalog.caches import Cache

_DECODER: Final = "model.decoder.self_attn"


@reads("MiMoForCausalLM", family="MiMo", model_types=("mimo",))
def mimo(keys: Keys) -> Blueprint:
    """Qwen2's layers, and one or more of them, not run by plain decoding, that predict ahead."""
    hidden = keys.whole("hidden_size")
    width = keys.whole("intermediate_size")
    heads, kv_heads = (
        keys.whole(name, high=1 << 14) for name in ("num_attention_heads", "num_key_value_heads")
    )
    head_dim = keys.optional("head_dim", low=1, high=1 << 14) or max(1, hidden // heads)
    ahead = keys.whole("num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS)
    given = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    given |= {"mlp_width": width, "bias_qkv": True}
    block = (
        *norms("token_layernorm", "hidden_layernorm", "final_layernorm", width=hidden),
        *linear("input_proj", "mtp", hidden, 2 * hidden),
        *part("llama_layer", keys, **given),
    )
    # No quantizer converts them.
    plain = tuple(replace(tensor, linear=False) for tensor in block)
    extra = placed(plain, "model.mtp_layers.*.", component="mtp", times=ahead)
    return read_layered("Qwen2ForCausalLM", keys, extra=extra if ahead else ())


@reads(
    "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM",
    family="MiMo-V2",
    model_types=("mimo_v2_flash", "mimo_v2"),
)
def mimo_v2(keys: Keys) -> Blueprint:
    """Windows of 128 tokens with a sink per head, and a full layer after every fifth of them."""
    its = sizes(
        keys, kv_heads=lambda _: keys.whole("num_key_value_heads", high=1 << 14), head_width="head_dim"
    )
    kinds = _kinds(keys, its.layers)
    attention = {kind: _attention(keys, its, kind) for kind in dict.fromkeys(kinds)}
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts")
    # vLLM 0.33, mimo_v2.py: the router is float32 unless the config names another type, its offsets always are.
    single = (keys.text("moe_router_dtype") or "float32") == "float32"
    mlps = {
        True: tuple(
            replace(tensor, stored="fp32")
            if tensor.component == "router" and (single or len(tensor.shape) == 1)
            else tensor
            for tensor in mixture(keys, its.hidden, routed)
        ),
        False: dense_mlp(keys, its.hidden, width),
    }
    layers = [
        Layer(*attention[kind][0], (*attention[kind][1], *mlps[sparse]))
        for kind, sparse in zip(kinds, mixture_pattern(keys, its.layers), strict=True)
    ]
    predicted = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    return decoder(
        keys,
        its,
        layers,
        intermediate=width,
        experts=(routed, per_token),
        extra=(*_encoders(keys), *_predicting(keys, its, width, predicted)),
        notes=[TOKENIZER_NOTE] if keys.has("audio_config") else [],
    )


def _encoders(keys: Keys) -> Tensors:
    """MiMo-V2.5's image and audio encoders, where the config has their sections."""
    vision = keys.section("vision_config", defaults=published("mimo_vision"))
    audio = keys.section("audio_config", defaults=published("mimo_audio"))
    return (
        *(vision_tower(vision) if vision is not None and vision.data else ()),
        *(audio_encoder(audio) if audio is not None and audio.data else ()),
    )


def _predicting(keys: Keys, its: Sizes, width: int, count: int) -> Tensors:
    """Layers for multi-token prediction: windowed attention and a dense MLP (vLLM, ``mimo_v2_mtp.py``).

    The joining projection is made without a quantizer. Releases list the layer as ``model.decoder`` among what is not quantized.
    """
    if not count:
        return ()
    quantizer = keys.outer.section("quantization_config")
    ignored = None if quantizer is None else quantizer.texts("ignored_layers")
    plain = f"{_DECODER}.o_proj" in (ignored or ())
    layer = (
        *norms("enorm", "hnorm", "final_layernorm", width=its.hidden),
        Weight("eh_proj.weight", "mtp", (its.hidden, 2 * its.hidden)),
        *(
            replace(tensor, linear=tensor.linear and not (plain and tensor.name == "self_attn.o_proj.weight"))
            for tensor in _attention(keys, its, "sliding")[1]
        ),
        *dense_mlp(keys, its.hidden, width),
    )
    return placed(layer, "model.mtp.layers.*.", component="mtp", times=count)


def _kinds(keys: Keys, layers: int) -> list[Kind]:
    pattern = keys.wholes("hybrid_layer_pattern", length=layers, high=1)
    if pattern is not None:
        return ["sliding" if value else "full" for value in pattern]
    return layer_kinds(
        keys, layers, lambda i: "full" if i == 0 or (i + 1) % 6 == 0 else "sliding", ("full", "sliding")
    )


def _attention(keys: Keys, its: Sizes, kind: Kind) -> tuple[tuple[str, tuple[Cache, ...]], Tensors]:
    sliding = kind == "sliding"
    value_dim = keys.whole("v_head_dim", high=1 << 14)
    heads, kv_heads, key_dim = its.heads, its.kv_heads, its.head_dim
    span = None
    if sliding:
        span = keys.whole("sliding_window", "sliding_window_size", high=MAX_CONTEXT)
        heads = keys.whole("swa_num_attention_heads", default=heads, high=1 << 14)
        # Windowed layers have twice the KV heads unless the file says otherwise (modeling_mimo_v2_flash.py).
        kv_heads = keys.whole("swa_num_key_value_heads", default=2 * kv_heads, high=1 << 14)
        key_dim = keys.whole("swa_head_dim", default=key_dim, high=1 << 14)
        value_dim = keys.whole("swa_v_head_dim", default=value_dim, high=1 << 14)
    keys.divide("num_attention_heads", heads, "key/value heads", kv_heads)
    has_sink = keys.flag(
        "add_swa_attention_sink_bias" if sliding else "add_full_attention_sink_bias", default=sliding
    )
    given = {"hidden": its.hidden, "heads": heads, "kv_heads": kv_heads, "key_dim": key_dim}
    given |= {"value_dim": value_dim, "bias": keys.flag("attention_bias"), "sink": has_sink}
    tensors = (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("narrow_value_attention", keys, "self_attn", **given),
    )
    return attention_cache(kind, kv_heads, key_dim, value_dim, span=span), tensors
