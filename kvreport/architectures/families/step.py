"""Step 3 (low-rank queries, one key), 3.5, 3.7 and 5 (gated windows, a sigmoid-routed mixture); large vision towers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvreport.architectures.attention import FULL, attention_cache, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.composites import text_model
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, expert_counts, outer_tied, sizes
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, placed
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache, Indexer

_INDEXER: Final = {
    "compression_method": "csa_block_compress",
    "sparse_indexer_q_norm_type": "rmsnorm",
    "sparse_indexer_k_norm_type": "layernorm",
    "sparse_indexer_csa_z_norm_type": "none",
    "sparse_indexer_softmax_variant": "ssmax",
    "sparse_indexer_ssmax_s_granularity": "q_head",
}
"""What ``sparse_config`` may say of Step 5's indexer: the one kind that the release's code has."""


@reads(
    "Step3p7ForConditionalGeneration",
    "Step3p7FlashForCausalLM",
    family="Step 3",
    model_types=("step3p7",),
)
def step3p7(keys: Keys) -> Blueprint:
    """The text model of Step 3.5, and a vision tower."""
    extra = _vision(keys, keys.whole("hidden_size"))
    return _step(keys, "model.language_model", extra, tie=outer_tied(keys))


@reads("Step3p5ForCausalLM", family="Step 3", model_types=("step3p5",))
def step3p5(keys: Keys) -> Blueprint:
    """The first three layers are dense; windows may have more query heads than full layers."""
    return _step(keys, "model", ())


@reads(
    "MMGPTStepRoboticsForCausalLM",
    "Step5ForConditionalGeneration",
    family="Step 5",
    model_types=("step3p5v", "step5_vl"),
)
def step5(keys: Keys) -> Blueprint:
    """Step 5's text model, and the vision tower of Step 3.7."""
    return _step5(keys, _vision(keys, keys.whole("hidden_size")))


@reads("Step4ForCausalLM", "Step5ForCausalLM", family="Step 5", model_types=("step4", "step5"))
def step5_text(keys: Keys) -> Blueprint:
    """Step 5's text model; its release calls it Step 4."""
    return _step5(keys, ())


@reads("Step3VLForConditionalGeneration", family="Step 3", model_types=("step3_vl",))
def step3_vl(keys: Keys) -> Blueprint:
    """Step 3, with a vision tower and two convolutions (vLLM 0.33, ``step3_vl.py``)."""
    if keys.outer is keys:
        raise keys.fault("text_config", None, "an object")
    return _step3(keys, _vision_3(keys.outer, keys.whole("hidden_size")))


@reads("StepVLForConditionalGeneration", family="Step 3", model_types=("step_robotics",))
def step_vl(keys: Keys) -> Blueprint:
    """A text model of another class behind the vision tower of Step 3.7 (vLLM 0.33, ``step_vl.py``)."""
    blueprint = text_model(keys, "qwen3")
    blueprint.outer += _vision(keys, blueprint.hidden_size)
    return blueprint


@reads("Step3TextForCausalLM", family="Step 3", model_types=("step3_text",))
def step3_text(keys: Keys) -> Blueprint:
    """Step 3's text model: one key and one value head, queries through a low rank (vLLM 0.33, ``step3_text.py``)."""
    return _step3(keys, ())


def _step3(keys: Keys, extra: Tensors) -> Blueprint:
    its = sizes(
        keys,
        kv_heads=lambda _: keys.whole("num_attention_groups", default=1, high=1),
        head_width="head_dim",
        longest=keys.whole("max_position_embedding", "max_seq_len", high=MAX_CONTEXT),
    )
    if not keys.has("moe_layers_enum"):
        raise keys.fault("moe_layers_enum", None, "which layers are mixtures, separated by commas")
    rank = keys.whole("share_q_dim")
    routed, per_token = expert_counts(keys, "moe_num_experts", per_token=("moe_top_k",))
    attention: Tensors = (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("step3_attention", keys, "self_attn", **its.given, rank=rank),
    )
    width = keys.whole("intermediate_size")
    mlps = {True: _moe(keys, its.hidden, routed), False: dense_mlp(keys, its.hidden, width)}
    cache = attention_cache("full", 1, its.head_dim)
    layers = [Layer(*cache, (*attention, *mlps[sparse])) for sparse in _mixtures(keys, its.layers)]
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token), extra=extra)


def _vision_3(outer: Keys, text_hidden: int) -> Tensors:
    vision = outer.section("vision_config")
    if vision is None:
        raise outer.fault("vision_config", None, "an object")
    outer.has("understand_projector_stride")
    bias = outer.flag("projector_bias", default=True)
    return part("step3_vision", vision, text_hidden=text_hidden, with_bias=bias)


def _sizes(keys: Keys, *kv_names: str) -> Sizes:
    return sizes(keys, kv_heads=lambda heads: keys.whole(*kv_names, high=heads), head_width="head_dim")


def _moe(keys: Keys, hidden: int, routed: int) -> Tensors:
    """The mixture of Step 3 and 5, whose shared expert stands beside it."""
    given = {"hidden": hidden, "routed": routed, "expert_width": keys.whole("moe_intermediate_size")}
    shared = {"hidden": hidden, "shared_width": keys.whole("share_expert_dim")}
    return (*part("mixture", keys, "moe", **given), *part("shared_experts", keys, "share_expert", **shared))


def _step(keys: Keys, base: str, extra: Tensors, *, tie: bool | None = None) -> Blueprint:
    its = _sizes(keys, "num_key_value_heads", "num_attention_groups")
    heads = its.heads
    other = keys.section("attention_other_setting")
    sliding_heads = (
        keys.optional("num_sliding_attention_heads", low=1)
        or (_other_heads(other) if other is not None else None)
        or heads
    )
    span = window(keys)
    kinds = layer_kinds(
        _without_prediction(keys, its.layers), its.layers, lambda _index: "full", ("full", "sliding")
    )
    routed, per_token = expert_counts(
        keys,
        "n_routed_experts",
        "moe_num_experts",
        "num_experts",
        per_token=("num_experts_per_tok", "moe_top_k"),
    )
    mlps = {
        True: _mixture(keys, its.hidden, routed),
        False: dense_mlp(keys, its.hidden, keys.whole("intermediate_size"), bias=keys.flag("mlp_bias")),
    }
    layers = [
        Layer(
            *attention_cache(kind, its.kv_heads, its.head_dim, span=span),
            (*_attention(keys, its, sliding_heads if kind == "sliding" else heads), *mlps[sparse]),
        )
        for kind, sparse in zip(kinds, _mixtures(keys, its.layers), strict=True)
    ]
    ahead = _attention(keys, its, heads if _kind_ahead(keys, its.layers) == "full" else sliding_heads)
    return decoder(
        keys,
        its,
        layers,
        tie=tie,
        base=base,
        intermediate=keys.whole("intermediate_size"),
        experts=(routed, per_token),
        extra=(*_predicting(keys, its, (*ahead, *mlps[False])), *extra),
    )


def _step5(keys: Keys, extra: Tensors) -> Blueprint:
    """Windows, and every fourth layer reads regions of tokens that an indexer picks by their summaries.

    Source: the release's own inference code, ``model.py`` and ``kernel.py`` (classes ``Step4Attention``,
    ``Step4SparseIndexer``, ``DSALayerCache``). A region's summary is one vector of FP8 without a scale. The open
    region's keys and gates, 8 KiB per request and layer, are not counted.
    """
    its = _sizes(keys, "num_attention_groups", "num_key_value_heads")
    heads = its.heads
    for kind in ("full", "sliding"):
        _restated(keys, f"num_attention_groups_{kind}_attention", its.kv_heads)
        _restated(keys, f"head_dim_{kind}_attention", its.head_dim)
    _restated(keys, "num_sliding_attention_heads", heads)
    kinds = layer_kinds(
        _without_prediction(keys, its.layers), its.layers, lambda _index: "full", ("full", "sliding")
    )
    if not keys.has("layer_types"):
        raise keys.fault("layer_types", None, "full_attention or sliding_attention for each layer")
    routed, per_token = expert_counts(keys, "moe_num_experts", per_token=("moe_top_k", "num_experts_per_tok"))
    width = keys.whole("intermediate_size")
    dense = dense_mlp(keys, its.hidden, width)
    offsets = Weight("moe.router_bias", "router", (routed,), stored="fp32")
    mlps = {True: (*_moe(keys, its.hidden, routed), offsets), False: dense}
    caches = {
        "full": attention_cache("full", its.kv_heads, its.head_dim),
        "sliding": attention_cache("sliding", its.kv_heads, its.head_dim, span=window(keys)),
    }
    attention = _attention(keys, its, heads)
    index = _summaries(keys)
    picks: Tensors = ()
    if index is not None:
        sparse: tuple[Cache, ...] = (*caches["full"][1], index)
        caches["full"] = (f"{FULL} with region summaries", sparse)
        picks = _region_indexer(keys, its, index.index_dim)
    layers = [
        Layer(
            *caches[kind],
            _float_norms(keys, (*attention, *(picks if kind == "full" else ()), *mlps[mixed])),
        )
        for kind, mixed in zip(kinds, _listed_mixtures(keys, its.layers), strict=True)
    ]
    ahead = _predicting(keys, its, (*attention, *dense))
    blueprint = decoder(
        keys,
        its,
        layers,
        tie=outer_tied(keys),
        intermediate=width,
        experts=(routed, per_token),
        extra=(*_float_norms(keys, ahead), *extra),
    )
    blueprint.outer = list(_float_norms(keys, tuple(blueprint.outer)))
    return blueprint


def _restated(keys: Keys, name: str, value: int) -> None:
    """Refuse a second statement of a size that differs from the first: the release's code reads the first alone."""
    stated = keys.optional(name)
    if stated is not None and stated != value:
        raise keys.fault(name, stated, f"{value}, as the config states it elsewhere")


def _float_norms(keys: Keys, tensors: Tensors) -> Tensors:
    """Norms are stored in 32 bits where ``norm_dtype`` says so."""
    if keys.text("norm_dtype", default="float32") != "float32":
        return tensors
    return tuple(
        replace(tensor, stored="fp32")
        if len(tensor.shape) == 1 and "norm" in tensor.name and tensor.component in ("norms", "mtp")
        else tensor
        for tensor in tensors
    )


def _listed_mixtures(keys: Keys, layers: int) -> list[bool]:
    if keys.has("moe_layers_enum"):
        return _mixtures(keys, layers)
    chosen = keys.wholes("moe_layer_list", low=0, high=MAX_LAYERS)
    if chosen is None:
        chosen = keys.wholes("moe_layers", low=0, high=MAX_LAYERS)
    if chosen is None:
        raise keys.fault("moe_layer_list", None, "which layers are mixtures (or moe_layers_enum)")
    return [index in chosen for index in range(layers)]


def _summaries(keys: Keys) -> Indexer | None:
    """What full layers keep beside keys and values: one FP8 vector per region of tokens."""
    sparse = keys.section("sparse_config")
    if sparse is None or not sparse.flag("enabled", default=True):
        return None
    for name, only in _INDEXER.items():
        found = sparse.text(name, default=only)
        if found != only:
            raise sparse.fault(name, found, only)
    where = sparse.texts("apply_to_layer_types") or ["full_attention"]
    if list(where) != ["full_attention"]:
        raise sparse.fault("apply_to_layer_types", where, "full_attention alone")
    region = sparse.whole("region_block_size", high=256)
    picked = sparse.whole("topk", high=1 << 20) * region
    return Indexer(
        index_dim=sparse.whole("proxy_dim", high=1 << 14),
        stride=region,
        scaled=False,
        precision="float8",
        top_k=picked,
    )


def _region_indexer(keys: Keys, its: Sizes, proxy: int) -> Tensors:
    """Queries in groups, one key, one gate for the compression, a weight per head, and a scale per query head."""
    sparse = keys.section("sparse_config") or keys
    sparse.whole("sparse_indexer_num_k_heads", default=1, high=1)
    heads = sparse.whole("sparse_indexer_num_heads", high=1 << 12)
    groups = sparse.whole("num_provider_groups", default=its.kv_heads, high=heads)
    sparse.divide("sparse_indexer_num_heads", heads, "num_provider_groups", groups)
    given = {"hidden": its.hidden, "heads": its.heads, "index_heads": heads, "groups": groups, "proxy": proxy}
    return part("step5_indexer", keys, "self_attn", **given)


def _predicting(keys: Keys, its: Sizes, layer: Tensors) -> Tensors:
    """Prediction layers: a window, a dense MLP, the glue, and a head of their own."""
    count = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    if not count:
        return ()
    glue = part("step_prediction", keys, hidden=its.hidden, vocabulary=its.vocabulary)
    return placed((*layer, *glue), f"model.layers.{its.layers}.", component="mtp", times=count)


def _other_heads(other: Keys) -> int | None:
    """Query heads of window layers; their keys and values are those of the others (vLLM 0.33, ``step3p5.py``)."""
    other.has("num_attention_groups", "head_dim")
    kind = other.text("attention_type", default="sliding_attention")
    return other.optional("num_attention_heads", low=1) if kind == "sliding_attention" else None


def _without_prediction(keys: Keys, layers: int) -> Keys:
    """Return the config with its per-layer list cut to the layers that are not for prediction only."""
    listed = keys.raw("layer_types")
    extra = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    if isinstance(listed, list) and extra and len(listed) == layers + extra:
        return Keys({"layer_types": listed[:layers]}, keys.where, keys.path, {}, keys.trail)
    return keys


def _kind_ahead(keys: Keys, layers: int) -> str:
    """The kind of the prediction layers, where the list of layers goes on to them; windows where it does not.

    vLLM 0.33, ``step3p5_mtp.py``: a block of the text model's class at the layers after its last.
    """
    listed = keys.raw("layer_types")
    following = listed[layers] if isinstance(listed, list) and len(listed) > layers else ""
    return "full" if following == "full_attention" else "sliding"


def _attention(keys: Keys, its: Sizes, heads: int) -> Tensors:
    keys.divide("num_attention_heads", heads, "num_key_value_heads", its.kv_heads)
    bias = keys.flag("attention_bias", default=False)
    gated = keys.flag("use_head_wise_attn_gate", default=True)
    given = {**its.given, "heads": heads, "bias_qkv": bias, "bias_out": bias}
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("grouped_attention", keys, "self_attn", **given),
        *part("head_norms", keys, "self_attn", head_dim=its.head_dim),
        *(linear("self_attn.g_proj", "attention", heads, its.hidden, "heads", heads=heads) if gated else ()),
    )


def _mixtures(keys: Keys, layers: int) -> list[bool]:
    kinds = keys.texts("mlp_layer_types", of=("dense", "sparse"))
    if kinds is not None:
        if len(kinds) < layers:
            raise keys.fault("mlp_layer_types", f"a list of {len(kinds)}", f"a list of {layers}")
        return [kind == "sparse" for kind in kinds[:layers]]
    listed = keys.raw("moe_layers_enum")
    if isinstance(listed, str):
        parts = [part.strip() for part in listed.split(",") if part.strip()]
        if not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts):
            raise keys.fault("moe_layers_enum", listed, "layer numbers separated by commas")
        chosen = {int(part) for part in parts}
    elif listed is not None:
        chosen = set(keys.wholes("moe_layers_enum", high=MAX_LAYERS) or [])
    else:
        first = keys.whole("first_k_dense_replace", default=3, low=0, high=MAX_LAYERS)
        chosen = set(range(first, layers))
    return [index in chosen for index in range(layers)]


def _mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    shared = keys.whole("share_expert_dim", "share_expert_dims", low=0)
    given = {"hidden": hidden, "routed": routed, "expert_width": keys.whole("moe_intermediate_size")}
    bias = bool(shared) and keys.flag("mlp_bias")
    return part("deepseek_mixture", keys, "mlp", **given, shared_width=shared, bias_shared=bias)


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    """A ViT with layer scales, and two strided convolutions that make four times the width."""
    vision = section_or_default(keys.outer, "vision_config", "step_vision")
    bias = keys.outer.flag("projector_bias", default=False)
    return part("step_vision", vision, "model", text_hidden=text_hidden, with_bias=bias)
