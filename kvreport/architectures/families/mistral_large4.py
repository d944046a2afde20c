"""Mistral Large 4: sparse latent attention, a latent without a rotary part on every fourth layer."""

from __future__ import annotations

from kvreport.architectures.attention import MLA, indexed_layers, latent_cache, mixture_pattern
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, expert_counts, latent_sizes, whole_tied
from kvreport.architectures.families.deepseek import mixture
from kvreport.architectures.families.mistral3 import pixtral
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache, Indexer, Shared


@reads(
    "MistralLarge4ForConditionalGeneration",
    family="Mistral Large",
    model_types=("mistral_large4",),
)
def mistral_large4(keys: Keys) -> Blueprint:
    """Every layer picks the tokens it reads; layers may read an earlier layer's latent."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_local_experts")
    sources = _sources(keys, its.layers)
    indexer, index = _indexer(keys, its)
    mixed = mixture(keys, its.hidden, routed, correction=False)
    dense = dense_mlp(keys, its.hidden, width)
    layers = []
    for number, (turned, picks, sparse) in enumerate(
        zip(
            _rotated(keys, its.layers),
            indexed_layers(keys, its.layers),
            mixture_pattern(keys, its.layers),
            strict=True,
        )
    ):
        own = sources[number] == number
        kept: tuple[Cache, ...] = (
            latent_cache(rank, rope if turned else 0)[1] if own else (Shared(reads="latent"),)
        )
        layers.append(
            Layer(
                f"{MLA}{'' if turned else ' without positions'}{'' if own else ', shared'}",
                (*kept, *((index,) if picks else ())),
                (
                    *_attention(keys, its, rank, rope, turned=turned, own=own),
                    *(indexer if picks else ()),
                    *(mixed if sparse else dense),
                ),
            )
        )
    vision = section_or_default(keys.outer, "vision_config", published("mistral_large4_vision"))
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base="model.language_model",
        intermediate=width,
        experts=(routed, per_token),
        extra=(
            # Learned exponents of the rotary frequencies (transformers 5.24, MistralLarge4RotaryEmbedding).
            Weight("model.language_model.rotary_emb.alpha", "other", (rope // 2,)),
            *pixtral(keys, vision, its.hidden),
        ),
    )


def _rotated(keys: Keys, layers: int) -> list[bool]:
    """Tell which layers turn their keys by position; the key's name says the contrary of what it holds."""
    listed = keys.wholes("no_rope_layers", length=layers, high=1)
    if listed is not None:
        return [bool(value) for value in listed]
    every = keys.whole("no_rope_layer_interval", default=4, high=MAX_LAYERS)
    return [(index + 1) % every != 0 for index in range(layers)]


def _sources(keys: Keys, layers: int) -> list[int]:
    """Return for each layer the one whose latent it reads: itself, or an earlier one that has its own."""
    sources = keys.wholes("kv_source_layers", length=layers, high=layers - 1)
    if sources is None:
        return list(range(layers))
    for index, source in enumerate(sources):
        if source > index or sources[source] != source:
            raise keys.fault(f"kv_source_layers[{index}]", source, "an earlier layer that has a cache")
    return sources


def _attention(keys: Keys, its: Sizes, rank: int, rope: int, *, turned: bool, own: bool) -> Tensors:
    """Return norms and attention of a layer that turns its keys or not, and has a latent of its own or not."""
    given = {
        "hidden": its.hidden,
        "heads": its.heads,
        "rank": rank,
        "rope": rope,
        "turned": turned,
        "own": own,
    }
    given |= {
        "plain": keys.whole("qk_nope_head_dim", high=1 << 14),
        "value": keys.whole("v_head_dim", high=1 << 14),
    }
    given["bias"] = keys.flag("attention_bias")
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("mistral_large4_attention", keys, "self_attn", **given),
    )


def _indexer(keys: Keys, its: Sizes) -> tuple[Tensors, Indexer]:
    """Return what an indexer weighs and keeps."""
    tensors = part("mistral_large4_indexer", keys, "self_attn.indexer", hidden=its.hidden)
    width = keys.whole("index_head_dim", high=1 << 12)
    return tensors, Indexer(index_dim=width, top_k=keys.whole("index_topk", high=1 << 20))
