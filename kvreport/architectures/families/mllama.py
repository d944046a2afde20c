"""Llama 3.2 Vision: cross-attention layers cache the image's tokens, not the text's."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import CrossAttention

_EXTRA_TOKENS: Final = 8
"""Rows that the embedding has beyond the vocabulary (the image token), and the head has not."""
_DEFAULT_ASPECT_RATIOS: Final = 8


@reads(
    "MllamaForConditionalGeneration",
    family="Llama 3.2 Vision",
    model_types=("mllama",),
)
def mllama(keys: Keys) -> Blueprint:
    """Llama 3's layers with gated cross-attention layers between them.

    A cross-attention layer holds keys and values of one image at its largest: every tile's patches
    and class token. Without an image an engine may hold nothing. The class ties no embeddings, whatever its
    config says (transformers 5.23, ``modeling_mllama.py``).
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    vision = section_or_default(keys.outer, "vision_config", "mllama_vision")
    tokens = _patches(vision) * vision.whole("max_num_tiles", high=1 << 10)
    crossing = set(keys.wholes("cross_attention_layers", high=MAX_LAYERS) or [])
    given = {**its.given, "mlp_width": width}
    kept = attention_cache("full", its.kv_heads, its.head_dim)
    text = Layer(*kept, part("llama_layer", keys, **given))
    image = Layer(
        "cross-attention to the image",
        (
            CrossAttention(
                kv_heads=its.kv_heads, key_dim=its.head_dim, value_dim=its.head_dim, encoder_tokens=tokens
            ),
        ),
        part("mllama_cross_layer", keys, **given),
    )
    blueprint = decoder(
        keys,
        its,
        [image if index in crossing else text for index in range(its.layers)],
        tie=False,
        base="language_model.model",
        head="language_model.lm_head",
        intermediate=width,
        extra=_vision(vision, its.hidden),
    )
    return _with_image_token(blueprint)


def _with_image_token(blueprint: Blueprint) -> Blueprint:
    embedding = blueprint.outer[0]
    rows, width = embedding.shape
    blueprint.outer[0] = Weight(
        embedding.name, embedding.component, (rows + _EXTRA_TOKENS, width), embedding.split
    )
    return blueprint


def _patches(vision: Keys) -> int:
    side = vision.whole("image_size", high=1 << 16) // vision.whole("patch_size", high=1 << 12)
    return max(1, side) ** 2 + 1


def _vision(vision: Keys, text_hidden: int) -> Tensors:
    listed = vision.raw("supported_aspect_ratios")
    ratios = (len(listed) if isinstance(listed, list) and listed else _DEFAULT_ASPECT_RATIOS) + 1
    return part("mllama_vision", vision, text_hidden=text_hidden, ratios=ratios)
