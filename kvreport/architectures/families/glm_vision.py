"""GLM-4.1V, 4.5V and 4.6V: GLM's text models beside a tower that merges patches by convolution."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, either_tied, expert_counts, outer_tied, sizes
from kvreport.architectures.dense import PRE_NORMS, attention_layers, block
from kvreport.architectures.families.deepseek import mixture, mixture_pattern
from kvreport.architectures.families.glm import fused_mlp
from kvreport.architectures.keys import Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, section_or_default, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm

_BASE: Final = "model.language_model"
_AROUND: Final = (*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")


@reads(
    "Glm4vForConditionalGeneration",
    "Glm46VForConditionalGeneration",
    family="GLM-4V",
    model_types=("glm4v", "glm46v"),
)
def glm4v(keys: Keys) -> Blueprint:
    """GLM-4.1V-Thinking and 4.6V-Flash: the dense text model of GLM-4-0414."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = block(its, fused_mlp(its.hidden, width), around=_AROUND, qkv_bias=True)
    # The later config class copies no word of its text part (transformers 5.24, ``configuration_glm46v.py``).
    alone = (keys.outer.text("model_type") or "glm4v") != "glm4v"
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        tie=outer_tied(keys) if alone else either_tied(keys),
        base=_BASE,
        extra=_tower(keys),
        intermediate=width,
    )


@reads("Glm4vMoeForConditionalGeneration", family="GLM-4V", model_types=("glm4v_moe",))
def glm4v_moe(keys: Keys) -> Blueprint:
    """GLM-4.5V and 4.6V: GLM-4.5-Air's text model without norms of queries and keys."""
    its = sizes(keys, exact=False)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    experts = expert_counts(keys, "n_routed_experts", "num_experts")
    dense = block(its, gated_mlp(its.hidden, width), qkv_bias=bias)
    mixed = block(its, mixture(keys, its.hidden, experts[0], correction=True), qkv_bias=bias)
    each = [mixed if sparse else dense for sparse in mixture_pattern(keys, its.layers)]
    return decoder(
        keys,
        its,
        attention_layers(its, each),
        tie=either_tied(keys),
        base=_BASE,
        extra=_tower(keys),
        intermediate=width,
        experts=experts,
    )


def _tower(keys: Keys) -> Tensors:
    """Patches of two frames, blocks of RMSNorm and gated MLPs, a downsampling convolution, a merger."""
    vision = section_or_default(keys.outer, "vision_config", published("glm4v_vision"))
    hidden = vision.whole("hidden_size")
    out = vision.whole("out_hidden_size")
    inner = vision.whole("intermediate_size")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = (vision.whole("image_size", high=1 << 16) // patch) ** 2
    kernel = vision.whole("in_channels", high=64) * vision.whole("temporal_patch_size", high=64)
    merge = vision.whole("spatial_merge_size", high=64)
    bias = vision.flag("attention_bias")
    path = "model.visual"
    each = (
        *norm(f"{path}.blocks.*.norm1", hidden, component="vision"),
        *norm(f"{path}.blocks.*.norm2", hidden, component="vision"),
        *linear(f"{path}.blocks.*.attn.qkv", "vision", 3 * hidden, hidden, "columns", bias=bias),
        *linear(f"{path}.blocks.*.attn.proj", "vision", hidden, hidden, "rows"),
        *gated_mlp(hidden, out, f"{path}.blocks.*.mlp", "vision"),
    )
    return (
        Tensor(f"{path}.patch_embed.proj.weight", "vision", (hidden, kernel, patch, patch)),
        Tensor(f"{path}.patch_embed.proj.bias", "vision", (hidden,)),
        Tensor(f"{path}.embeddings.position_embedding.weight", "vision", (max(1, patches), hidden)),
        *norm(f"{path}.post_conv_layernorm", hidden, component="vision"),
        *times(vision.whole("depth", high=MAX_DEPTH), each),
        *norm(f"{path}.post_layernorm", hidden, component="vision"),
        Tensor(f"{path}.downsample.weight", "vision", (out, hidden, merge, merge)),
        Tensor(f"{path}.downsample.bias", "vision", (out,)),
        *linear(f"{path}.merger.proj", "vision", out, out),
        *norm(f"{path}.merger.post_projection_norm", out, bias=True, component="vision"),
        *gated_mlp(out, inner, f"{path}.merger", "vision"),
    )
