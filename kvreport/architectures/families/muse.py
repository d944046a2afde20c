"""Muse Glimmer: two KV heads, gated attention, three windows for one full layer, a vision tower."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, outer_tied, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.families.gemma import FOUR_NORMS
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, plain_block, section_or_default, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm

MUSE: Final = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "sliding_window": 2048,
    "tie_word_embeddings": False,
    "vocab_size": 202048,
}
MUSE_VISION: Final = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "merge_size": 2,
    "num_hidden_layers": 50,
    "patch_size": 14,
    "patch_temporal": 2,
    "pos_emb_height": 32,
    "pos_emb_width": 32,
}
MUSE_OUTER: Final = {"out_hidden_size": 6144, "projector_hidden_size": 4096}


@reads(
    "MuseGlimmerForConditionalGeneration",
    "MuseGlimmerForCausalLM",
    family="Muse",
    model_types=("muse_glimmer", "muse_glimmer_text"),
    defaults=MUSE,
)
def muse_glimmer(keys: Keys) -> Blueprint:
    """Every fourth layer, counted from the last, reads everything; norms stand on both sides."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    kinds = layer_kinds(
        keys,
        its.layers,
        lambda i: "sliding" if (its.layers - 1 - i) % 4 else "full",
        ("full", "sliding"),
    )
    gate = linear(
        "self_attn.gate_proj",
        "attention",
        its.heads * its.head_dim,
        its.hidden,
        "heads",
        heads=its.heads,
    )
    tensors = block(
        its,
        gated_mlp(its.hidden, width),
        around=FOUR_NORMS,
        qkv_bias=bias,
        output_bias=bias,
        inside=gate,
    )
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        attention_layers(its, tensors, kinds=kinds, span=window(keys)),
        base="model.language_model" if nested else "model",
        tie=outer_tied(keys),
        intermediate=width,
        extra=_vision(keys, its.hidden) if nested else (),
    )


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    """Patches of two frames through a linear layer, learned positions, and a two-step projection."""
    outer = keys.outer.with_defaults(MUSE_OUTER)
    vision = section_or_default(keys.outer, "vision_config", MUSE_VISION)
    hidden = vision.whole("hidden_size")
    patch = vision.whole("patch_size", high=1 << 12)
    frames = vision.whole("patch_temporal", high=64)
    places = vision.whole("pos_emb_height", high=1 << 12) * vision.whole("pos_emb_width", high=1 << 12)
    projected = outer.whole("projector_hidden_size")
    tower = "model.vision_tower"
    layer = plain_block(
        f"{tower}.layers.*",
        hidden,
        vision.whole("intermediate_size"),
        names=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        output="attn.proj",
        block_norms=("norm1", "norm2"),
    )
    return (
        *linear(f"{tower}.patch_embedder.patch_embedding", "vision", hidden, 3 * frames * patch * patch),
        Tensor(f"{tower}.patch_embedder.position_embedding_table.weight", "vision", (places, hidden)),
        *norm(f"{tower}.ln_pre", hidden, bias=True, component="vision"),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), layer),
        *norm(f"{tower}.ln_post", hidden, bias=True, component="vision"),
        *linear("model.vision_adapter.fc1", "vision", projected, outer.whole("out_hidden_size"), "columns"),
        *linear("model.vision_adapter.fc2", "vision", projected, projected, "rows"),
        *linear("model.vision_projection", "vision", text_hidden, projected),
    )
