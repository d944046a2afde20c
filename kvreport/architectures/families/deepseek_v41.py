"""DeepSeek-V4.1: an encoder's layers and a decoder's, four caches that all of them read, and two tables of n-grams.

Every layer keeps a window. Four layers also compress what they read, one or two tokens to a latent with an
index key, and the layers behind them read that cache. Sources: vLLM 0.33, ``models/deepseek_v41``; the shapes
and types of tensors: the headers of the published checkpoint, whose bytes these tensors make.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.attention import layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import expert_counts, vocabulary
from kvreport.architectures.families.deepseek import index_cache
from kvreport.architectures.families.deepseek_v4 import (
    blueprint,
    dspark,
    gated_attention,
    layer_tensors,
    mixture_of,
    window,
)
from kvreport.architectures.keys import MAX_EXPERTS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.catalog.caches import Cache, Latent, Ring, Shared

_RING_ROWS: Final = 8
"""Rows of a compressor's ring without speculation (vLLM 0.33, ``deepseek_v41/compressor.py``)."""


@reads("DeepseekV41ForCausalLM", family="DeepSeek-V4", model_types=("deepseek_v41", "deepseek_v41_text"))
def deepseek_v41(keys: Keys) -> Blueprint:
    """Windows everywhere, four shared caches of latents, hyper-connections, hashed n-grams in two layers."""
    hidden = keys.whole("hidden_size")
    layers = layer_count(keys)
    routed, per_token = expert_counts(keys, "n_routed_experts")
    words = vocabulary(keys)
    streams = keys.whole("hc_mult", high=64)
    ratios = _ratios(keys, layers)
    sources = _chosen(keys, layers, "kv_source_layer_ids", "kv_source_layers")
    indexed = _chosen(keys, layers, "index_source_layer_ids", "index_source_layers")
    for source in sources | indexed:
        if not ratios[source]:
            raise keys.fault(f"compress_ratios[{source}]", 0, "1 or 2: the layer is a source")
    tables = _tables(keys, layers)
    width = keys.whole("head_dim", high=1 << 14)
    mixed = mixture_of(keys, hidden, routed, pictures=True)
    built = []
    for index, ratio in enumerate(ratios):
        own = index in sources
        if ratio and not own and not any(source < index for source in sources):
            raise keys.fault("kv_source_layer_ids", sorted(sources), f"a layer below {index}, which reads it")
        given = {"hidden": hidden, "width": width, "ratio": ratio, "owns": own, "picks": index in indexed}
        attention = (
            *gated_attention(keys, hidden, wide_sink=True),
            *part("deepseek_v41_sources", keys, **given),
        )
        tensors = layer_tensors(hidden, attention, mixed, streams)
        tensors += _engram(keys, hidden, streams, tables.get(index))
        built.append(Layer(_name(ratio, own=own), _caches(keys, ratio, own=own), tensors))
    further = (*_vision(keys, hidden), *_draft(keys, hidden, streams, words))
    return blueprint(keys, hidden, words, built, (routed, per_token), further)


def _ratios(keys: Keys, layers: int) -> list[int]:
    """Tokens of one latent by layer, 0 for the window alone; entries behind the layers are the draft's."""
    ratios = keys.wholes("compress_ratios", high=1 << 20)
    if ratios is None or not layers <= len(ratios) <= layers + 64:
        found = None if ratios is None else f"a list of {len(ratios)}"
        raise keys.fault("compress_ratios", found, f"a list of {layers} or some more")
    for index, ratio in enumerate(ratios[:layers]):
        if ratio not in (0, 1, 2):
            raise keys.fault(f"compress_ratios[{index}]", ratio, "0, 1 or 2")
    return ratios[:layers]


def _chosen(keys: Keys, layers: int, *names: str) -> frozenset[int]:
    listed = keys.wholes(*names, high=layers - 1)
    if listed is None:
        raise keys.fault(names[0], None, "a list of layers")
    return frozenset(listed)


def _tables(keys: Keys, layers: int) -> dict[int, int]:
    """Return the rows of the n-gram table of each layer that has one."""
    chosen = keys.wholes("engram_layer_ids", high=layers - 1) or []
    rows = keys.wholes("engram_num_embeddings", length=len(chosen), low=1, high=1 << 40) if chosen else []
    return dict(zip(chosen, rows or [], strict=True))


def _name(ratio: int, *, own: bool) -> str:
    if not ratio:
        return "window only"
    return f"compressed {ratio}:1 with indexer" if own else "window and a shared cache"


def _caches(keys: Keys, ratio: int, *, own: bool) -> tuple[Cache, ...]:
    width, near = window(keys)
    if not ratio:
        return (near,)
    if not own:
        return (near, Shared(reads="latent"))
    latent = Latent(latent_dim=near.latent_dim, rope_dim=near.rope_dim, stride=ratio)
    kept: tuple[Cache, ...] = (near, latent, index_cache(keys, ratio))
    return kept if ratio == 1 else (*kept, Ring(elements_per_token=2 * width, window=_RING_ROWS))


def _engram(keys: Keys, hidden: int, streams: int, rows: int | None) -> Tensors:
    """A table of hashed n-grams, in FP8 with a scale per 32, and what brings its rows into the streams."""
    if rows is None:
        return ()
    width = keys.whole("engram_head_dim", high=1 << 14)
    grams = keys.whole("engram_max_ngram_size", low=2, high=64)
    columns = (grams - 1) * keys.whole("engram_n_heads", high=1 << 10)
    return (
        Weight("engram.embed.weight", "other", (rows, width), "vocabulary", looked_up=True, stored="mxfp8"),
        Weight(
            "engram.wkv.weight",
            "attention",
            (hidden * (streams + 1), columns * width),
            "columns",
            linear=True,
        ),
        Weight("engram.q_weight", "other", (streams, hidden)),
        Weight("engram.k_weight", "other", (streams, hidden)),
    )


def _vision(keys: Keys, hidden: int) -> Tensors:
    """A transformer with rotated heads, then patches of a square side by side through two layers."""
    vision = keys.outer.section("vision_config")
    if vision is None or keys.outer is keys:
        return ()
    return part("deepseek_v41_vision", vision, text_hidden=hidden)


def _draft(keys: Keys, hidden: int, streams: int, words: int) -> Tensors:
    """DSpark's layers, with fewer experts, behind a projection of what some layers hand over."""
    steps = keys.whole("num_nextn_predict_layers", "n_mtp_layers", default=0, low=0, high=64)
    if not steps:
        return ()
    routed = keys.whole("dspark_n_routed_experts", high=MAX_EXPERTS)
    mixed = mixture_of(keys, hidden, routed, pictures=True)
    layer = layer_tensors(hidden, gated_attention(keys, hidden, wide_sink=True), mixed, streams)
    return dspark(keys, hidden, words, (layer,) * steps, markov="markov_head.w")
