"""DeepSeek-V4: a window on every layer, and beside it latents compressed 4 or 128 to one.

Per token and layer one vector of ``head_dim`` is both key and value. A layer that compresses 4 to
one also keeps index keys at that rate; every compressor keeps a ring of partial sums in float32.
Source of the layout: vLLM 0.33 ``models/deepseek_v4``; of the tensors: the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvreport.architectures.attention import layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import context, expert_counts, tied, vocabulary
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    embedding,
    gated_mlp,
    linear,
    norm,
    norms,
    out_linear,
    output_head,
    routed_experts,
    router,
)
from kvreport.catalog.caches import Cache, Indexer, Latent, Ring

OWN_LAYOUT: Final = (
    "Engines keep this model's latents in their own FP8 layout whatever is requested; that is its"
    " format here."
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
    attention = {ratio: _attention(keys, hidden, ratio) for ratio in dict.fromkeys(ratios)}
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
    head = _head_of_streams(hidden, streams)
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
        *streams_of("hc_attn", hidden, streams),
        *mixture,
        *streams_of("hc_ffn", hidden, streams),
    )


def _head_of_streams(hidden: int, streams: int) -> Tensors:
    """What joins the streams behind the last layer."""
    shapes = {"fn": (streams, streams * hidden), "base": (streams,), "scale": (1,)}
    return tuple(Weight(f"hc_head_{name}", "other", shape, stored="fp32") for name, shape in shapes.items())


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
    return tuple(
        replace(tensor, name=f"mtp.{step}.{tensor.name}", component="mtp")
        for step in range(steps)
        for tensor in tensors
    )


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
    """Return DSpark's tensors: its layers, a projection before them, and a Markov head over pairs of tokens behind.

    Args:
        keys: The config.
        hidden: Width of the residual stream.
        words: Rows of the embedding.
        layers: The tensors of each layer.
        head: What else stands behind the last one.
        markov: What the two tables of pairs are called, without their number.
    """
    rank = keys.whole("dspark_markov_rank")
    taken = keys.wholes("dspark_target_layer_ids", high=MAX_LAYERS)
    if not taken:
        raise keys.fault("dspark_target_layer_ids", None, "the layers whose states its drafts read")
    first: Tensors = (
        *linear("main_proj", "mtp", hidden, hidden * len(taken)),
        *norms("main_norm", width=hidden),
    )
    last: Tensors = (
        *norms("norm", width=hidden),
        Weight(f"{markov}1.weight", "mtp", (words, rank), "vocabulary"),
        Weight(f"{markov}2.weight", "mtp", (words, rank), "vocabulary"),
        Weight("confidence_head.proj.weight", "mtp", (1, hidden + rank)),
        *head,
    )
    rows = [(step, tensor) for step, layer in enumerate(layers) for tensor in layer]
    rows += [*((0, tensor) for tensor in first), *((len(layers) - 1, tensor) for tensor in last)]
    return tuple(replace(tensor, name=f"mtp.{step}.{tensor.name}", component="mtp") for step, tensor in rows)


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
    index = keys.whole("index_head_dim", high=1 << 12)
    # Overlapping windows: twice the width, over two strides.
    return (
        near,
        compressed,
        Indexer(index_dim=index, stride=ratio, top_k=keys.optional("index_topk", low=1, high=1 << 20)),
        Ring(elements_per_token=4 * width, window=2 * ratio),
        Ring(elements_per_token=4 * index, window=2 * ratio),
    )


def _compressor(path: str, hidden: int, width: int, ratio: int) -> Tensors:
    wide = width * (2 if ratio == 4 else 1)
    return (
        # Never quantised: engines build both without a quantisation.
        Weight(f"{path}.wkv.weight", "attention", (wide, hidden)),
        Weight(f"{path}.wgate.weight", "attention", (wide, hidden)),
        Weight(f"{path}.ape", "attention", (ratio, wide)),
        *norm(f"{path}.norm", width),
    )


def gated_attention(keys: Keys, hidden: int) -> Tensors:
    """Return the attention of a layer with a window alone: low-rank queries, one key, grouped outputs, a sink."""
    return _attention(keys, hidden, 0)


def _attention(keys: Keys, hidden: int, ratio: int) -> Tensors:
    heads = keys.whole("num_attention_heads", high=1 << 14)
    width = keys.whole("head_dim", high=1 << 14)
    q_rank = keys.whole("q_lora_rank", high=1 << 16)
    groups = keys.whole("o_groups", high=1 << 12)
    o_rank = groups * keys.whole("o_lora_rank", high=1 << 16)
    inside = keys.divide("num_attention_heads", heads * width, "o_groups", groups)
    tensors: Tensors = (
        *linear("attn.wq_a", "attention", q_rank, hidden),
        *norm("attn.q_norm", q_rank),
        *linear("attn.wq_b", "attention", heads * width, q_rank, "heads", heads=heads),
        *linear("attn.wkv", "attention", width, hidden),
        *norm("attn.kv_norm", width),
        *linear("attn.wo_a", "attention", o_rank, inside, "groups", heads=groups),
        *out_linear("attn.wo_b", "attention", hidden, o_rank, groups),
        Weight("attn.attn_sink", "attention", (heads,), "heads", heads),
    )
    if ratio:
        tensors += _compressor("attn.compressor", hidden, width, ratio)
    if ratio == 4:
        index_heads = keys.whole("index_n_heads", high=1 << 12)
        index = keys.whole("index_head_dim", high=1 << 12)
        tensors += (
            *linear("attn.indexer.wq_b", "attention", index_heads * index, q_rank),
            Weight("attn.indexer.weights_proj.weight", "attention", (index_heads, hidden)),
            *_compressor("attn.indexer.compressor", hidden, index, ratio),
        )
    return tensors


def mixture_of(keys: Keys, hidden: int, routed: int, *offsets: Weight, bias: bool = False) -> Tensors:
    """Return a mixture: the router with its ``offsets``, the experts, and one shared expert, with a ``bias`` or not."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("n_shared_experts", high=1 << 10)
    if shared != 1:
        # The release's own model asserts it; transformers 5.23 builds one, vLLM 0.33 a wider one.
        raise keys.fault("n_shared_experts", shared, "1")
    names = ("w1", "w3", "w2")
    return (
        *router(hidden, routed, "ffn.gate"),
        *offsets,
        *routed_experts(hidden, width, routed, "ffn.experts.*", names=names),
        *gated_mlp(hidden, width, "ffn.shared_experts", "shared_experts", names=names, bias=bias),
    )


def streams_of(name: str, hidden: int, streams: int) -> Tensors:
    """Hyper-connections: how parallel residual streams are mixed into and out of a block."""
    mixed = (2 + streams) * streams
    return (
        Weight(f"{name}_fn", "other", (mixed, streams * hidden), stored="fp32"),
        Weight(f"{name}_base", "other", (mixed,), stored="fp32"),
        Weight(f"{name}_scale", "other", (3,), stored="fp32"),
    )
