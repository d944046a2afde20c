"""Gemma 3n and Gemma 4: layers that share caches, per-layer embeddings, wide global heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.architectures.attention import Kind, attention_cache, by_layer, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import (
    Sizes,
    decoder,
    dense_mlp,
    expert_counts,
    sizes,
    text_base,
    whole_tied,
)
from kvreport.architectures.keys import MAX_LAYERS, MAX_VOCABULARY, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norm
from kvreport.architectures.variants import pooled
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache, Shared


def shared_layers(keys: Keys, kinds: list[Kind]) -> list[bool]:
    """Tell which layers read another layer's cache: the last ``num_kv_shared_layers``.

    Each reads the last earlier layer of its own kind, so every kind must have one that keeps.
    """
    layers = len(kinds)
    shared = keys.whole("num_kv_shared_layers", low=0, high=MAX_LAYERS)
    first = layers - shared
    if first < 1 or set(kinds[first:]) - set(kinds[:first]):
        raise keys.fault(
            "num_kv_shared_layers", shared, "fewer, so that each kind has an earlier layer to read from"
        )
    return [index >= first for index in range(layers)]


def _cache(
    kind: Kind, its: Sizes, width: int, span: int | None, *, shared: bool
) -> tuple[str, tuple[Cache, ...]]:
    name, caches = attention_cache(kind, its.kv_heads, width, span=span)
    if not shared:
        return name, caches
    return f"{name}, shared", (Shared(reads="sliding" if kind == "sliding" and span else "full"),)


@reads(
    "Gemma3nForConditionalGeneration",
    "Gemma3nForCausalLM",
    family="Gemma 3n",
    model_types=("gemma3n", "gemma3n_text"),
)
def gemma3n(keys: Keys) -> Blueprint:
    """Four windows for one full layer; the last layers have no keys and values of their own."""
    its = sizes(keys, scaled=False)
    kinds = layer_kinds(keys, its.layers, lambda i: "sliding" if (i + 1) % 5 else "full", ("full", "sliding"))
    shared = shared_layers(keys, kinds)
    widths = _widths(keys, its.layers)
    span = window(keys)
    bias = keys.flag("attention_bias")
    inner = keys.whole("hidden_size_per_layer_input")
    streams = keys.whole("altup_num_inputs", high=64)
    beside = (
        *part("gemma3n_streams", keys, hidden=its.hidden, streams=streams),
        *part("per_layer_input", keys, hidden=its.hidden, inner=inner),
    )
    layers = [
        Layer(
            *_cache(kind, its, its.head_dim, span, shared=reads_other),
            (
                *_attention(keys, its.given, bias=bias, has_key=not reads_other),
                *dense_mlp(keys, its.hidden, width),
                *beside,
            ),
        )
        for kind, reads_other, width in zip(kinds, shared, widths, strict=True)
    ]
    base = text_base(keys)
    extra: Tensors = _per_layer_embedding(keys, its, base, inner)
    for name in ("altup_projections", "altup_unembed_projections"):
        extra += (Weight(f"{base}.{name}.*.weight", "other", (its.hidden, its.hidden), count=streams - 1),)
    if keys.outer is not keys:
        vision = section_or_default(keys.outer, "vision_config", {"vocab_size": 128, "hidden_size": 2048})
        audio = section_or_default(keys.outer, "audio_config", "gemma3n_audio")
        extra += (Weight("model.vision_tower.timm_model", "vision", (MOBILENET_V5_PARAMETERS,)),)
        extra += part("gemma3n_vision_bridge", vision, "model.embed_vision", text_hidden=its.hidden)
        given = _conformer(audio, "conf_num_attention_heads", "sscp_conv_channel_size")
        extra += part("gemma3n_audio", audio, "model", **given)
        extra += part("gemma3n_audio_bridge", audio, "model.embed_audio", text_hidden=its.hidden)
    return decoder(keys, its, layers, tie=whole_tied(keys), base=base, intermediate=max(widths), extra=extra)


def _widths(keys: Keys, layers: int) -> list[int]:
    if isinstance(keys.raw("intermediate_size"), list):
        return keys.wholes("intermediate_size", length=layers, low=1) or []
    return [keys.whole("intermediate_size")] * layers


def _per_layer_embedding(keys: Keys, its: Sizes, base: str, inner: int, *, has_table: bool = True) -> Tensors:
    """A second embedding that gives every layer its own small vector per token."""
    rows = keys.whole("vocab_size_per_layer_input", high=MAX_VOCABULARY) if has_table else 0
    given = {"hidden": its.hidden, "layers": its.layers, "inner": inner, "rows": rows}
    return part("per_layer_embedding", keys, base, **given)


def _attention(
    keys: Keys,
    sizes: dict[str, int],
    *,
    bias: bool,
    has_key: bool,
    has_value: bool = True,
) -> Tensors:
    """Return norms and attention of a layer; keys and values may be another layer's, or one and the same."""
    words = {"query_norm": "q_norm", "key_norm": "k_norm", "normed": True, "key_normed": has_key}
    given = {"bias": bias, "has_key": has_key, "has_value": has_value}
    return (
        *part("four_norms", keys, hidden=sizes["hidden"]),
        *part("shared_attention", keys, "self_attn", **sizes, **words, **given),
    )


@reads(
    "Gemma4ForConditionalGeneration",
    "Gemma4ForCausalLM",
    family="Gemma 4",
    model_types=("gemma4", "gemma4_text"),
)
def gemma4(keys: Keys) -> Blueprint:
    """The layers of Gemma 4 behind a tower for images and one for sound."""
    return _seeing(keys, _gemma4_towers, None)


@reads(
    "Gemma4UnifiedForConditionalGeneration",
    "Gemma4UnifiedForCausalLM",
    family="Gemma 4",
    model_types=("gemma4_unified", "gemma4_unified_text"),
)
def gemma4_unified(keys: Keys) -> Blueprint:
    """The same layers; patches and sound come in through a matrix each, without towers."""
    return _seeing(keys, _gemma4_entries, "vision")


@reads(
    "Gemma4AssistantForCausalLM",
    "Gemma4UnifiedAssistantForCausalLM",
    family="Gemma 4 assistant",
    model_types=("gemma4_assistant", "gemma4_unified_assistant"),
)
def gemma4_assistant(keys: Keys) -> Blueprint:
    """A draft whose layers read the target's caches: it keeps nothing, and has no keys and values of its own."""
    outer = keys.outer
    if outer is keys:
        raise keys.fault("text_config", None, "an object that describes the draft's layers")
    blueprint = _gemma4(keys, lambda _keys, _hidden: (), keeps=False)
    hidden = blueprint.hidden_size
    target = outer.whole("backbone_hidden_size")
    blueprint.outer += linear("pre_projection", "other", hidden, 2 * target)
    blueprint.outer += linear("post_projection", "other", target, hidden)
    if outer.flag("use_ordered_embeddings", default=False):
        rows = outer.whole("num_centroids", default=2048)
        blueprint.outer += linear("masked_embedding.centroids", "output_head", rows, hidden)
        blueprint.outer.append(
            Weight("masked_embedding.token_ordering", "other", (blueprint.vocabulary,), stored="float32")
        )
    return blueprint


@reads(
    "EmbeddingGemma2Model",
    "EmbeddingGemma2TextModel",
    family="EmbeddingGemma",
    model_types=("embedding_gemma2", "embedding_gemma2_text"),
)
def embedding_gemma2(keys: Keys) -> Blueprint:
    """Gemma 4's layers that see both ways, with vectors of single layers projected from the embedding alone.

    Source: transformers 5.24, ``modeling_embedding_gemma2.py``.
    """
    blueprint = _gemma4(keys, _gemma4_towers, has_table=False)
    width = keys.whole("embedding_dim")
    blueprint.outer = [tensor for tensor in blueprint.outer if tensor.component != "output_head"]
    blueprint.outer += linear(
        f"{text_base(keys)}.embedding_projection", "other", width, blueprint.hidden_size
    )
    return pooled(blueprint)


@reads("DiffusionGemmaForBlockDiffusion", family="DiffusionGemma", model_types=("diffusion_gemma",))
def diffusion_gemma(keys: Keys) -> Blueprint:
    """Gemma 4's layers with a mixture, that first read a prompt and then write blocks of tokens at once.

    Encoder and decoder share every weight but the scalar of each layer (transformers 5.24,
    ``modeling_diffusion_gemma.py``). What it keeps of a prompt and of finished blocks is a usual cache.
    """
    outer = keys.outer
    if outer.flag("tie_word_embeddings", default=True) is False:
        raise outer.fault("tie_word_embeddings", "false", "true: encoder and decoder share their weights")
    if keys.flag("attention_bias"):
        raise keys.fault("attention_bias", "true", "false: encoder and decoder share weights, not biases")
    blueprint = _gemma4(keys, _gemma4_towers)
    hidden = blueprint.hidden_size
    width = keys.whole("self_conditioning_size", default=keys.whole("intermediate_size"))
    path = "model.decoder.self_conditioning"
    blueprint.outer += (
        *norm(f"{path}.pre_norm", hidden),
        *part("gated_mlp", keys, path, hidden=hidden, mlp_width=width),
        Weight("model.decoder.layers.*.layer_scalar", "other", (1,), count=len(blueprint.layers)),
    )
    return blueprint


def _seeing(keys: Keys, towers: Callable[[Keys, int], Tensors], default: str | None) -> Blueprint:
    """The layers of a model whose config says whether the tokens of an image see both ways, or the class's default."""
    blueprint = _gemma4(keys, towers)
    blueprint.both_ways = keys.data.get("use_bidirectional_attention", default) == "vision"
    return blueprint


def _gemma4(
    keys: Keys, towers: Callable[[Keys, int], Tensors], *, keeps: bool = True, has_table: bool = True
) -> Blueprint:
    """Five windows for one full layer with wider (and, with shared keys, fewer) heads.

    Where ``attention_k_eq_v`` is set, the full layers have no value projection: the key is the
    value. Engines cache both all the same.

    It ``keeps`` nothing where every layer reads the cache of another model, and ``has_table`` unless the vectors of single layers
    come from the embedding alone.
    """
    its = sizes(keys, scaled=False)
    kinds = layer_kinds(keys, its.layers, lambda i: "sliding" if (i + 1) % 6 else "full", ("full", "sliding"))
    kinds[-1] = "full"
    shared = shared_layers(keys, kinds) if keeps else _all_shared(keys, its.layers)
    span = window(keys)
    if span is not None and keys.raw("use_bidirectional_attention") == "all":
        span = span // 2 + 1
    same = keys.flag("attention_k_eq_v")
    wide = keys.whole("global_head_dim", high=1 << 14)
    few = (
        keys.optional("num_global_key_value_heads", low=1, high=its.heads) if same or not has_table else None
    )
    bias = keys.flag("attention_bias")
    double = keys.flag("use_double_wide_mlp")
    width = keys.whole("intermediate_size")
    wide_width = width * (2 if double else 1)
    inner = keys.whole("hidden_size_per_layer_input", low=0)
    mixed, experts = _gemma4_mixture(keys, its.hidden)
    beside = part("per_layer_input", keys, hidden=its.hidden, inner=inner) if inner else ()
    layers = []
    own = by_layer(keys, its.layers, ("head_dim", "num_key_value_heads"))
    for index, (kind, reads_other) in enumerate(zip(kinds, shared, strict=True)):
        is_full = kind == "full"
        head = own.get((index, "head_dim"), wide if is_full else its.head_dim)
        kv_heads = own.get(
            (index, "num_key_value_heads"), few if is_full and few is not None else its.kv_heads
        )
        keys.divide("num_attention_heads", its.heads, "key/value heads", kv_heads)
        here = Sizes(its.hidden, its.layers, its.heads, kv_heads, head, its.vocabulary, its.context)
        layers.append(
            Layer(
                *(_cache(kind, here, head, span, shared=reads_other) if keeps else _TARGETS),
                (
                    *_attention(
                        keys, here.given, bias=bias, has_key=not reads_other, has_value=not (is_full and same)
                    ),
                    *part(
                        "gated_mlp",
                        keys,
                        "mlp",
                        hidden=its.hidden,
                        mlp_width=wide_width if reads_other else width,
                    ),
                    *mixed,
                    *beside,
                    Weight("layer_scalar", "other", (1,)),
                ),
            )
        )
    base = text_base(keys)
    extra: Tensors = _per_layer_embedding(keys, its, base, inner, has_table=has_table) if inner else ()
    if keys.outer is not keys:
        extra += towers(keys, its.hidden)
    return decoder(
        keys, its, layers, tie=whole_tied(keys), base=base, intermediate=width, experts=experts, extra=extra
    )


MOBILENET_V5_PARAMETERS: Final = 294_126_912
"""Parameters of the ``mobilenetv5_300m_enc`` encoder of timm, which Gemma 3n sees through.

Counted on the meta device with timm 1.0; the config names the encoder and says nothing of its
inside, so it is one row here.
"""
_TARGETS: Final[tuple[str, tuple[Cache, ...]]] = ("reads the target's cache", ())


def _all_shared(keys: Keys, layers: int) -> list[bool]:
    shared = keys.whole("num_kv_shared_layers", default=layers, low=0, high=MAX_LAYERS)
    if shared not in (0, layers):
        raise keys.fault("num_kv_shared_layers", shared, f"{layers}: every layer of an assistant")
    return [True] * layers


def _gemma4_towers(keys: Keys, hidden: int) -> Tensors:
    """Vision unless it is null or absent, audio likewise: an explicit null means no such tower."""
    tensors: Tensors = ()
    vision = keys.outer.section("vision_config", defaults=published("gemma4_vision"))
    if vision is not None:
        vision.whole("num_key_value_heads", high=vision.whole("num_attention_heads", high=1 << 12))
        tensors += part("gemma4_vision", vision, "model", text_hidden=hidden)
    audio = keys.outer.section("audio_config", defaults=published("gemma4_audio"))
    if audio is not None:
        given = _conformer(audio, "num_attention_heads", "subsampling_conv_channels")
        tensors += part("gemma4_audio", audio, "model", text_hidden=hidden, **given)
    return tensors


def _conformer(audio: Keys, heads: str, channels: str) -> dict[str, int]:
    """Return what a conformer's part needs beside its keys: the width of a head, and the channels of two convolutions."""
    width = audio.divide("hidden_size", audio.whole("hidden_size"), heads, audio.whole(heads, high=1 << 12))
    first, second = audio.wholes(channels, length=2, low=1, high=1 << 14) or [0, 0]
    return {"head_width": width, "first": first, "second": second}


def _gemma4_entries(keys: Keys, hidden: int) -> Tensors:
    tensors: Tensors = ()
    vision = keys.outer.section("vision_config", defaults=published("gemma4_unified_vision"))
    if vision is not None:
        tensors += part("gemma4_unified_vision", vision, "model.embed_vision", text_hidden=hidden)
    audio = keys.outer.section("audio_config", defaults={"audio_embed_dim": 640})
    if audio is not None:
        width = audio.whole("audio_embed_dim", "output_proj_dims")
        tensors += linear("model.embed_audio.embedding_projection", "audio", hidden, width)
    return tensors


def _gemma4_mixture(keys: Keys, hidden: int) -> tuple[Tensors, tuple[int, int] | None]:
    """A mixture that stands beside the dense MLP, with norms of its own."""
    if not keys.flag("enable_moe_block"):
        return (), None
    routed, per_token = expert_counts(keys, "num_experts", per_token=("top_k_experts",))
    width = keys.whole("moe_intermediate_size", "expert_intermediate_size")
    return part("gemma4_mixture", keys, hidden=hidden, routed=routed, expert_width=width), (routed, per_token)
