"""Gemma 1 to 3: tied embeddings, wide heads, sliding windows from the second generation on."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import Kind, attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import Sizes, decoder, either_tied, sizes
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import section_or_default
from kvreport.architectures.weights import Tensors, gated_mlp, norms, self_attention

FOUR_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


@reads("GemmaForCausalLM", family="Gemma", model_types=("gemma",))
def gemma(keys: Keys) -> Blueprint:
    """Full attention on every layer."""
    its = sizes(keys)
    return _gemma(keys, its, ["full"] * its.layers, FOUR_NORMS[:2], qk_norm=False)


@reads("Gemma2ForCausalLM", family="Gemma 2", model_types=("gemma2",))
def gemma2(keys: Keys) -> Blueprint:
    """Even layers slide over 4,096 tokens, odd ones read everything."""
    its = sizes(keys)
    kinds = layer_kinds(keys, its.layers, lambda i: "full" if i % 2 else "sliding", ("full", "sliding"))
    return _gemma(keys, its, kinds, FOUR_NORMS, qk_norm=False)


@reads("VaultGemmaForCausalLM", family="VaultGemma", model_types=("vaultgemma",))
def vaultgemma(keys: Keys) -> Blueprint:
    """Gemma 2's pattern without the norms behind attention and MLP."""
    its = sizes(keys)
    kinds = layer_kinds(keys, its.layers, lambda i: "full" if i % 2 else "sliding", ("full", "sliding"))
    around = ("input_layernorm", "pre_feedforward_layernorm")
    return _gemma(keys, its, kinds, around, qk_norm=False)


@reads(
    "Gemma3ForConditionalGeneration",
    "Gemma3ForCausalLM",
    family="Gemma 3",
    model_types=("gemma3", "gemma3_text"),
)
def gemma3(keys: Keys) -> Blueprint:
    """Five windows, then one layer that reads everything; queries and keys are normalised.

    Variants with bidirectional attention hold half the window, plus one.
    """
    its = sizes(keys, scaled=False)
    every = keys.whole("sliding_window_pattern", default=6, high=MAX_LAYERS)
    kinds = layer_kinds(
        keys, its.layers, lambda i: "sliding" if (i + 1) % every else "full", ("full", "sliding")
    )
    # ShieldGemma 2 asks its text part where its own config says no (configuration_shieldgemma2.py).
    shield = keys.outer.text("model_type") == "shieldgemma2"
    return _gemma(keys, its, kinds, FOUR_NORMS, qk_norm=True, tie=either_tied(keys) if shield else None)


def _gemma(
    keys: Keys,
    its: Sizes,
    kinds: list[Kind],
    around: tuple[str, ...],
    *,
    qk_norm: bool,
    tie: bool | None = None,
) -> Blueprint:
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    span = window(keys)
    if span is not None and keys.flag("use_bidirectional_attention", default=False):
        span = span // 2 + 1
    tensors: Tensors = (
        *norms(*around, width=its.hidden),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
        *(norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim) if qk_norm else ()),
        *gated_mlp(its.hidden, width),
    )
    layers = [Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), tensors) for kind in kinds]
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        layers,
        tie=tie,
        base="language_model.model" if nested else "model",
        head="language_model.lm_head" if nested else "lm_head",
        intermediate=width,
        extra=_vision(keys, its.hidden) if nested else (),
    )


def _vision(keys: Keys, hidden: int) -> Tensors:
    section = section_or_default(keys.outer, "vision_config", "siglip_vision")
    width = section.whole("hidden_size")
    return (
        *part("siglip", section, "vision_tower.vision_model"),
        Tensor("multi_modal_projector.mm_input_projection_weight", "vision", (width, hidden)),
        Tensor("multi_modal_projector.mm_soft_emb_norm.weight", "vision", (width,)),
    )
