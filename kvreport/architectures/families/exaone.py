"""EXAONE 3 to 4 and K-EXAONE: from Llama's layout to windows with normalised queries and keys."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import (
    Kind,
    layer_kinds,
    window,
)
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    norms,
    routed_experts,
    router,
)

_UNCOUNTED: Final = "Its layers for multi-token prediction, which only speculation loads, are not counted."
_BEHIND: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


@reads("Exaone4ForCausalLM", family="EXAONE", model_types=("exaone4",))
def exaone4(keys: Keys) -> Blueprint:
    """Norms behind attention and MLP; the larger size slides on three layers of four."""
    return _exaone4(keys, "model", ())


@reads("Exaone4_5_ForConditionalGeneration", family="EXAONE", model_types=("exaone4_5",))
def exaone4_5(keys: Keys) -> Blueprint:
    """EXAONE 4 beside Qwen2.5-VL's tower, whose keys and values are grouped here."""
    vision = section_or_default(keys.outer, "vision_config", "exaone4_5_vision")
    hidden = vision.whole("hidden_size")
    heads = vision.whole("num_heads", high=1 << 12)
    each = vision.divide("hidden_size", hidden, "num_heads", heads)
    fused = hidden + 2 * each * vision.whole("num_key_value_heads", high=heads)
    return _exaone4(keys, "model.language_model", part("qwen2_5_vision", vision, "model.visual", fused=fused))


def _exaone4(keys: Keys, base: str, extra: Tensors) -> Blueprint:
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    kinds, span = _windows(keys, its)
    inside = norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim)
    tensors = block(its, gated_mlp(its.hidden, width), around=_BEHIND, inside=inside)
    layers = attention_layers(its, tensors, kinds, span)
    return decoder(keys, its, layers, base=base, extra=extra, intermediate=width, notes=_uncounted(keys))


def _uncounted(keys: Keys) -> list[str]:
    return [_UNCOUNTED] if keys.whole("num_nextn_predict_layers", default=0, low=0, high=64) else []


@reads(
    "ExaoneMoEForCausalLM",
    "ExaoneMoeForCausalLM",
    family="EXAONE",
    model_types=("exaone_moe",),
)
def exaone_moe(keys: Keys) -> Blueprint:
    """K-EXAONE: norms before again, a mixture with learned offsets and a shared expert."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    expert = keys.whole("moe_intermediate_size")
    experts = expert_counts(keys, "num_experts")
    shared = keys.whole("num_shared_experts", low=0, high=1 << 10)
    first = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)
    kinds, span = _windows(keys, its)
    listed = keys.texts("mlp_layer_types", length=its.layers, of=("dense", "sparse"))
    mlps = listed or ["dense" if index < first else "sparse" for index in range(its.layers)]
    inside = norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim)
    joint = gated_mlp(its.hidden, expert * shared, "mlp.shared_experts", "shared_experts") if shared else ()
    sparse = (
        *router(its.hidden, experts[0]),
        *correction_bias(experts[0]),
        *routed_experts(its.hidden, expert, experts[0]),
        *joint,
    )
    mixed = block(its, sparse, inside=inside)
    dense = block(its, gated_mlp(its.hidden, width), inside=inside)
    layers = attention_layers(its, [dense if m == "dense" else mixed for m in mlps], kinds, span)
    return decoder(keys, its, layers, intermediate=width, experts=experts, notes=_uncounted(keys))


def _windows(keys: Keys, its: Sizes) -> tuple[list[Kind], int | None]:
    """Read the pattern of windows: a list, a word such as ``LLLG``, or every n-th layer in full.

    A null window means that no layer slides.
    """
    span = None if keys.null("sliding_window") else window(keys)
    told = keys.raw("sliding_window_pattern")
    if isinstance(told, str):
        if not told or len(told) > MAX_LAYERS or set(told) - {"L", "G"}:
            raise keys.fault("sliding_window_pattern", told, "a number, or the letters L and G")
        last = its.layers - 1
        word = told

        def pattern(index: int) -> Kind:
            # The class reads the last layer in full, whatever the word says.
            return "sliding" if word[index % len(word)] == "L" and index != last else "full"

        return layer_kinds(keys, its.layers, pattern, ("full", "sliding")), span
    every = keys.whole("sliding_window_pattern", default=4, low=0, high=MAX_LAYERS)

    def regular(index: int) -> Kind:
        return "sliding" if span is not None and every and (index + 1) % every else "full"

    return layer_kinds(keys, its.layers, regular, ("full", "sliding")), span
