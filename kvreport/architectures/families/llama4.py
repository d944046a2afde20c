"""Llama 4: three chunked layers for one that reads everything, one expert a token, a shared one."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_kinds
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, expert_counts, inner_tied, sizes
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import check_heads, section_or_default
from kvreport.architectures.weights import (
    Tensors,
    gated_mlp,
    norms,
    routed_experts,
    router,
    self_attention,
)


@reads(
    "Llama4ForConditionalGeneration",
    "Llama4ForCausalLM",
    family="Llama 4",
    model_types=("llama4", "llama4_text"),
)
def llama4(keys: Keys) -> Blueprint:
    """The layers without rotary positions are the global ones; the others see their chunk.

    A normalisation of queries and keys has no weights. Mixtures stand on every
    ``interleave_moe_layer_step``-th layer (Scout: all, Maverick: every other one).
    """
    its = sizes(keys)
    chunk = keys.optional("attention_chunk_size", high=MAX_CONTEXT)
    interval = keys.whole("no_rope_layer_interval", default=4, high=MAX_LAYERS)
    rotary = keys.wholes("no_rope_layers", high=1) or [
        int((index + 1) % interval != 0) for index in range(its.layers)
    ]
    if len(rotary) < its.layers:
        raise keys.fault("no_rope_layers", f"a list of {len(rotary)}", f"a list of {its.layers}")
    kinds = layer_kinds(keys, its.layers, lambda i: "chunked" if rotary[i] else "full", ("full", "chunked"))
    routed, per_token = expert_counts(keys, "num_local_experts")
    bias = keys.flag("attention_bias")
    width = keys.whole("intermediate_size")
    attention = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
    )
    mlps = {
        True: (
            *router(its.hidden, routed, "feed_forward.router"),
            *routed_experts(its.hidden, width, routed, "feed_forward.experts.*"),
            *gated_mlp(its.hidden, width, "feed_forward.shared_expert", "shared_experts"),
        ),
        False: gated_mlp(its.hidden, keys.whole("intermediate_size_mlp"), "feed_forward"),
    }
    layers = [
        Layer(
            *attention_cache(kind, its.kv_heads, its.head_dim, span=chunk or None),
            (*attention, *mlps[sparse]),
        )
        for kind, sparse in zip(kinds, _mixtures(keys, its.layers), strict=True)
    ]
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        layers,
        tie=inner_tied(keys),
        base="language_model.model" if nested else "model",
        head="language_model.lm_head" if nested else "lm_head",
        intermediate=width,
        experts=(routed, per_token),
        extra=_vision(keys, its.hidden) if nested else (),
    )


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    listed = keys.wholes("moe_layers", high=MAX_LAYERS)
    if listed is not None:
        return [index in set(listed) for index in range(layers)]
    step = keys.whole("interleave_moe_layer_step", high=MAX_LAYERS)
    return [(index + 1) % step == 0 for index in range(layers)]


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "llama4_vision")
    check_heads(vision, vision.whole("hidden_size"), "num_attention_heads")
    return part("llama4_vision", vision, text_hidden=text_hidden)
