"""ERNIE 4.5 VL: text and vision tokens each have experts of their own, beside shared ones."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, listed_mixtures
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import (
    decoder,
    expert_counts,
    sizes,
    text_base,
    unread_prediction,
    whole_tied,
)
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default


@reads(
    "Ernie4_5_VLMoeForConditionalGeneration",
    "Ernie4_5_VLMoEForConditionalGeneration",
    family="ERNIE 4.5",
    model_types=("ernie4_5_vl_moe", "ernie4_5_moe_vl"),
)
def ernie_vl(keys: Keys) -> Blueprint:
    """Every token reads as many experts of its own kind; all are resident."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("use_bias")
    experts = expert_counts(
        _alike(keys, "moe_num_experts"),
        "moe_num_experts",
        "num_experts",
        per_token=("moe_k", "num_experts_per_tok"),
    )
    given = {**its.given, "bias_qkv": bias, "bias_out": bias, "bias_mlp": bias, "mlp_width": width}
    attention = (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("grouped_attention", keys, "self_attn", **given),
    )
    dense = (*attention, *part("gated_mlp", keys, "mlp", **given))
    mixed = (*attention, *_mixture(keys, its.hidden, experts[0], bias=bias))
    kept = attention_cache("full", its.kv_heads, its.head_dim)
    layers = [Layer(*kept, mixed if sparse else dense) for sparse in _mixtures(keys, its.layers)]
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base=text_base(keys),
        intermediate=width,
        experts=experts,
        extra=_vision(keys, its.hidden),
        # vLLM 0.33, ernie45_vl_moe.py::Ernie4_5_VLMoeForCausalLM.load_weights skips them.
        notes=unread_prediction(keys),
    )


def _alike(keys: Keys, name: str) -> Keys:
    """Read one number where a release states it for both kinds of tokens; vLLM 0.33 asks for equal ones, too."""
    listed = keys.raw(name)
    if not isinstance(listed, list):
        return keys
    counts = keys.wholes(name, length=2, low=1) or []
    if counts[0] != counts[1]:
        raise keys.fault(name, listed, "the same number for both kinds of tokens")
    same = Keys({**keys.data, name: counts[0]}, keys.where, keys.path, keys.defaults, keys.trail)
    same.outer = keys.outer if keys.outer is not keys else same
    return same


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    listed = listed_mixtures(keys, layers)
    if listed is not None:
        return listed
    first = keys.raw("moe_layer_start_index")
    start = (
        min(keys.wholes("moe_layer_start_index", high=MAX_LAYERS) or [1]) if isinstance(first, list) else 1
    )
    return [index >= start for index in range(layers)]


def _mixture(keys: Keys, hidden: int, routed: int, *, bias: bool) -> Tensors:
    widths = keys.wholes("moe_intermediate_size", length=2, low=1) or []
    shared = keys.whole("moe_num_shared_experts", low=0, high=1 << 10) * widths[0]
    tensors: Tensors = ()
    for kind, width in zip(("text_moe", "vision_moe"), widths, strict=True):
        given = {"hidden": hidden, "routed": routed, "expert_width": width}
        tensors += part("ernie_vl_experts", keys, f"mlp.{kind}", **given)
    given = {"hidden": hidden, "shared_width": shared, "bias_shared": bias}
    return (*tensors, *part("shared_experts", keys, "mlp.shared_experts", **given))


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    vision = section_or_default(keys.outer, "vision_config", "ernie_vision")
    return part("ernie_vision", vision, "model", text_hidden=text_hidden)
