"""DeepSeek-V4: a window on every layer, and beside it latents compressed 4 or 128 to one.

Per token and layer one vector of ``head_dim`` is both key and value. A layer that compresses 4 to
one also keeps index keys at that rate; every compressor keeps a ring of partial sums in float32.
Source of the layout: vLLM 0.33 ``models/deepseek_v4``; of the tensors: the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.architectures.attention import layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import context, expert_counts, tied, vocabulary
from kvreport.architectures.families.deepseek import index_cache
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import (
    Tensors,
    embedding,
    hyper_connection,
    linear,
    norm,
    norms,
    output_head,
    placed,
)
from kvreport.catalog.caches import Cache, Latent, Ring

OWN_LAYOUT: Final = (
    "Engines always store the latents of this model in a special FP8 layout, so this page uses that layout."
)
_DSPARK_LAYERS: Final = 3
_WORDS: Final = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
_NAMES: Final = {0: "window only", 4: "compressed 4:1 with indexer", 128: "compressed 128:1"}


@reads("DeepseekV4ForCausalLM", family="DeepSeek-V4", model_types=("deepseek_v4",))
def deepseek_v4(keys: Keys) -> Blueprint:
    """Compressed attention, hyper-connections between layers, the first layers routed by a hash."""
    hidden = keys.whole("hidden_size")
    layers = layer_count(keys)
    routed, per_token = expert_counts(keys, "n_routed_experts")
    hashed = keys.whole("num_hash_layers", default=3, low=0, high=MAX_LAYERS)
    ratios = _ratios(keys, layers)
    vocabulary_size = vocabulary(keys)
    streams = keys.whole("hc_mult", high=64)
    attention = {ratio: gated_attention(keys, hidden, ratio) for ratio in dict.fromkeys(ratios)}
    caches = {ratio: _caches(keys, ratio) for ratio in dict.fromkeys(ratios)}
    mixed = mixture_of(keys, hidden, routed, bias=keys.flag("mlp_bias", default=False))
    by_hash = Weight(
        "ffn.gate.tid2eid", "router", (vocabulary_size, per_token), looked_up=True, stored="int64"
    )
    by_score = Weight("ffn.gate.bias", "router", (routed,))
    built = [
        Layer(
            _NAMES[ratio],
            caches[ratio],
            layer_tensors(
                hidden, attention[ratio], (*mixed, by_hash if index < hashed else by_score), streams
            ),
        )
        for index, ratio in enumerate(ratios)
    ]
    # What joins the streams behind the last layer.
    head = hyper_connection("hc_head_", streams * hidden, streams, stored="fp32")
    ahead = (
        _drafts(keys, hidden, (*mixed, by_score), streams, vocabulary_size, head)
        if keys.has("dspark_markov_rank")
        else _predictions(keys, hidden, (*mixed, by_score), streams, head)
    )
    return blueprint(keys, hidden, vocabulary_size, built, (routed, per_token), (*head, *ahead))


def blueprint(
    keys: Keys, hidden: int, words: int, layers: list[Layer], chosen: tuple[int, int], further: Tensors
) -> Blueprint:
    """Return a model of such layers; ``further`` stands behind its output head."""
    head = () if tied(keys) else output_head(words, hidden, "head")
    return Blueprint(
        hidden_size=hidden,
        attention_heads=keys.whole("num_attention_heads", high=1 << 14),
        vocabulary=words,
        context_tokens=context(keys),
        layers=layers,
        outer=[*embedding(words, hidden, "embed"), *norm("norm", hidden), *head, *further],
        prefix="layers",
        experts=chosen,
        kv_format="fp8_ds_mla_v4",
        notes=[OWN_LAYOUT],
    )


def layer_tensors(hidden: int, attention: Tensors, mixture: Tensors, streams: int, *others: str) -> Tensors:
    """Return a layer: its norms and what ``others`` are called, and hyper-connections around attention and experts."""
    return (
        *norms("attn_norm", "ffn_norm", *others, width=hidden),
        *attention,
        *hyper_connection("hc_attn_", streams * hidden, (2 + streams) * streams, 3, stored="fp32"),
        *mixture,
        *hyper_connection("hc_ffn_", streams * hidden, (2 + streams) * streams, 3, stored="fp32"),
    )


def _predictions(keys: Keys, hidden: int, mixture: Tensors, streams: int, head: Tensors) -> Tensors:
    """Layers for multi-token prediction: a window, a mixture routed by score, a head of streams of their own.

    vLLM 0.27.1, ``models/deepseek_v4``; embedding and output head are those of the model.
    """
    steps = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    tensors: Tensors = (
        *layer_tensors(hidden, gated_attention(keys, hidden), mixture, streams, "enorm", "hnorm", "norm"),
        *linear("e_proj", "mtp", hidden, hidden),
        *linear("h_proj", "mtp", hidden, hidden),
        *head,
    )
    return sum((placed(tensors, f"mtp.{step}.", component="mtp") for step in range(steps)), start=())


def _drafts(keys: Keys, hidden: int, mixture: Tensors, streams: int, words: int, head: Tensors) -> Tensors:
    """DSpark's layers, which take the place of those that predict one token more (vLLM 0.33, ``nvidia/dspark.py``).

    ``num_nextn_predict_layers`` does not count them: there are three unless ``n_mtp_layers`` says otherwise.
    """
    layer = layer_tensors(hidden, gated_attention(keys, hidden), mixture, streams)
    steps = keys.whole("n_mtp_layers", default=_DSPARK_LAYERS, high=64)
    keys.has("num_nextn_predict_layers", "dspark_block_size")
    return dspark(keys, hidden, words, (layer,) * steps, head)


def dspark(
    keys: Keys,
    hidden: int,
    words: int,
    layers: Sequence[Tensors],
    head: Tensors = (),
    markov: str = "markov_head.markov_w",
) -> Tensors:
    """Return DSpark's tensors: its layers, a projection before them, and a Markov head over pairs of tokens behind."""
    rank = keys.whole("dspark_markov_rank")
    taken = keys.wholes("dspark_target_layer_ids", high=MAX_LAYERS)
    if not taken:
        raise keys.fault("dspark_target_layer_ids", None, "the layers whose states its drafts read")
    first = (*linear("main_proj", "mtp", hidden, hidden * len(taken)), *norm("main_norm", hidden))
    last: Tensors = (
        *norm("norm", hidden),
        Weight(f"{markov}1.weight", "mtp", (words, rank), "vocabulary"),
        Weight(f"{markov}2.weight", "mtp", (words, rank), "vocabulary"),
        Weight("confidence_head.proj.weight", "mtp", (1, hidden + rank)),
        *head,
    )
    rows = [*enumerate(layers), (0, first), (len(layers) - 1, last)]
    return sum((placed(tensors, f"mtp.{step}.", component="mtp") for step, tensors in rows), start=())


def _ratios(keys: Keys, layers: int) -> list[int]:
    """Return each layer's compression: 0 for the window alone, 4, or 128.

    ``compress_ratios`` may carry one entry more, for the layer of multi-token prediction.
    """
    rates = keys.section("compress_rates")
    for word, usual in _WORDS.items():
        if usual and rates is not None and rates.whole(word, default=usual, high=1 << 20) != usual:
            # Engines pack exactly these two strides (vLLM, models/deepseek_v4); others have no layout.
            raise rates.fault(word, rates.raw(word), str(usual))
    listed = keys.texts("layer_types", length=layers, of=tuple(_WORDS))
    if listed is not None:
        return [_WORDS[word] for word in listed]
    ratios = keys.wholes("compress_ratios", high=1 << 20)
    if ratios is None:
        return [128 if index < 2 or index % 2 == 0 else 4 for index in range(layers)]
    if not layers <= len(ratios) <= layers + 64:
        raise keys.fault("compress_ratios", f"a list of {len(ratios)}", f"a list of {layers} or one more")
    for index, ratio in enumerate(ratios[:layers]):
        if ratio not in _NAMES:
            raise keys.fault(f"compress_ratios[{index}]", ratio, "0, 4 or 128")
    return ratios[:layers]


def window(keys: Keys) -> tuple[int, Latent]:
    """Return the width of a vector that is key and value, and the window of such vectors that each layer keeps."""
    width = keys.whole("head_dim", high=1 << 14)
    rope = keys.whole("qk_rope_head_dim", default=width // 8, low=0, high=width - 1)
    seen = keys.whole("sliding_window", high=MAX_CONTEXT)
    return width, Latent(latent_dim=width - rope, rope_dim=rope, window=seen)


def _caches(keys: Keys, ratio: int) -> tuple[Cache, ...]:
    width, near = window(keys)
    if ratio == 0:
        return (near,)
    compressed = Latent(latent_dim=near.latent_dim, rope_dim=near.rope_dim, stride=ratio)
    if ratio == 128:
        return (near, compressed, Ring(elements_per_token=2 * width, window=ratio))
    index = index_cache(keys, ratio)
    # Overlapping windows: twice the width, over two strides.
    rings = (Ring(elements_per_token=4 * wide, window=2 * ratio) for wide in (width, index.index_dim))
    return (near, compressed, index, *rings)


def gated_attention(keys: Keys, hidden: int, ratio: int = 0, *, wide_sink: bool = False) -> Tensors:
    """Return the attention of a layer that compresses ``ratio`` tokens to one, or keeps a window alone (0)."""
    heads = keys.whole("num_attention_heads", high=1 << 14)
    width = keys.whole("head_dim", high=1 << 14)
    q_rank = keys.whole("q_lora_rank", high=1 << 16)
    groups = keys.whole("o_groups", high=1 << 12)
    o_rank = groups * keys.whole("o_lora_rank", high=1 << 16)
    inside = keys.divide("num_attention_heads", heads * width, "o_groups", groups)
    ranks = {"q_rank": q_rank, "o_rank": o_rank, "groups": groups, "inside": inside}
    given = {"hidden": hidden, "heads": heads, "width": width, "ratio": ratio, "wide_sink": wide_sink}
    return part("deepseek_v4_attention", keys, "attn", **given, **ranks)


def mixture_of(
    keys: Keys, hidden: int, routed: int, *, pictures: bool = False, bias: bool = False
) -> Tensors:
    """Return a mixture with one shared expert, with a ``bias`` or not, and offsets for words and ``pictures`` or none."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("n_shared_experts", high=1 << 10)
    if shared != 1:
        # The release's own model asserts it; transformers 5.23 builds one, vLLM 0.33 a wider one.
        raise keys.fault("n_shared_experts", shared, "1")
    given = {"hidden": hidden, "routed": routed, "width": width, "pictures": pictures, "bias": bias}
    return part("deepseek_v4_mixture", keys, "ffn", **given)
