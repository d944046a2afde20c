"""Llama 4: three chunked layers for one that reads everything, one expert a token, a shared one."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_kinds
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import decoder, expert_counts, inner_tied, sizes
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, check_heads, plain_block, section_or_default, times
from kvreport.architectures.weights import (
    Tensors,
    gated_mlp,
    linear,
    norm,
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
    """Unfolded patches, a class token, learned positions, and an MLP behind a pixel shuffle."""
    vision = section_or_default(keys.outer, "vision_config", published("llama4_vision"))
    hidden = vision.whole("hidden_size")
    check_heads(vision, hidden, "num_attention_heads")
    width = vision.whole("intermediate_size")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = (vision.whole("image_size", high=1 << 16) // patch) ** 2 + 1
    shuffled = vision.whole("projector_output_dim")
    block = plain_block(
        "vision_model.model.layers.*",
        hidden,
        width,
        output="self_attn.o_proj",
        block_norms=("input_layernorm", "post_attention_layernorm"),
    )
    inputs = vision.whole("num_channels", high=64) * patch * patch
    return (
        *linear("vision_model.patch_embedding.linear", "vision", hidden, inputs),
        Tensor("vision_model.class_embedding", "vision", (hidden,)),
        Tensor("vision_model.positional_embedding_vlm", "vision", (patches, hidden)),
        *norm("vision_model.layernorm_pre", hidden, bias=True, component="vision"),
        *norm("vision_model.layernorm_post", hidden, bias=True, component="vision"),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        *linear(
            "vision_model.vision_adapter.mlp.fc1",
            "vision",
            vision.whole("projector_input_dim"),
            width,
            "columns",
        ),
        *linear("vision_model.vision_adapter.mlp.fc2", "vision", shuffled, shuffled, "rows"),
        *linear("multi_modal_projector.linear_1", "vision", text_hidden, vision.whole("vision_output_dim")),
    )
