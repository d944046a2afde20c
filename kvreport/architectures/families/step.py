"""Step 3 (low-rank queries, one key), 3.5 and 3.7 (gated windows, a sigmoid-routed mixture); large vision towers."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_count, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, outer_tied, vocabulary
from kvreport.architectures.families.beside import text_model
from kvreport.architectures.keys import MAX_CONTEXT, MAX_LAYERS, Keys
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.vision import MAX_DEPTH, plain_block, section_or_default, times
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    linear,
    norm,
    norms,
    out_linear,
    routed_experts,
    router,
    self_attention,
)


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
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=layer_count(keys),
        heads=keys.whole("num_attention_heads", high=1 << 14),
        kv_heads=keys.whole("num_attention_groups", default=1, high=1),
        head_dim=keys.whole("head_dim", high=1 << 14),
        vocabulary=vocabulary(keys),
        context=keys.whole("max_position_embedding", "max_seq_len", high=MAX_CONTEXT),
    )
    if not keys.has("moe_layers_enum"):
        raise keys.fault("moe_layers_enum", None, "which layers are mixtures, separated by commas")
    rank = keys.whole("share_q_dim")
    routed, per_token = expert_counts(keys, "moe_num_experts", per_token=("moe_top_k",))
    inner = its.heads * its.head_dim
    attention: Tensors = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        # Every rank holds all of the first three.
        *linear("self_attn.q_proj", "attention", rank, its.hidden),
        *linear("self_attn.k_proj", "attention", its.head_dim, its.hidden),
        *linear("self_attn.v_proj", "attention", its.head_dim, its.hidden),
        *norms("self_attn.inter_norm", width=rank),
        *linear("self_attn.wq", "attention", inner, rank, "heads", heads=its.heads),
        *out_linear("self_attn.o_proj", "attention", its.hidden, inner, its.heads),
    )
    width = keys.whole("intermediate_size")
    mlps = {
        True: (
            *router(its.hidden, routed, "moe.gate"),
            *routed_experts(its.hidden, keys.whole("moe_intermediate_size"), routed, "moe.experts.*"),
            *gated_mlp(its.hidden, keys.whole("share_expert_dim"), "share_expert", "shared_experts"),
        ),
        False: gated_mlp(its.hidden, width),
    }
    cache = attention_cache("full", 1, its.head_dim)
    layers = [Layer(*cache, (*attention, *mlps[sparse])) for sparse in _mixtures(keys, its.layers)]
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token), extra=extra)


def _vision_3(outer: Keys, text_hidden: int) -> Tensors:
    vision = outer.section("vision_config")
    if vision is None:
        raise outer.fault("vision_config", None, "an object")
    hidden, wide = vision.whole("hidden_size"), vision.whole("output_hidden_size")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = max(1, vision.whole("image_size", high=1 << 16) // patch) ** 2
    channels = vision.whole("num_channels", default=3, high=64)
    tower = "vision_model"
    block = plain_block(f"{tower}.transformer.layers.*", hidden, vision.whole("intermediate_size"))
    outer.has("understand_projector_stride")
    return (
        Tensor(f"{tower}.embeddings.class_embedding", "vision", (1, hidden)),
        Tensor(f"{tower}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{tower}.embeddings.patch_embedding.bias", "vision", (hidden,)),
        Tensor(f"{tower}.embeddings.position_embedding.weight", "vision", (patches + 1, hidden)),
        *times(vision.whole("num_hidden_layers", high=MAX_DEPTH), block),
        Tensor("vit_downsampler.weight", "vision", (wide, hidden, 2, 2)),
        Tensor("vit_downsampler.bias", "vision", (wide,)),
        Tensor("vit_downsampler2.weight", "vision", (2 * wide, wide, 3, 3)),
        Tensor("vit_downsampler2.bias", "vision", (2 * wide,)),
        *linear(
            "vit_large_projector",
            "vision",
            text_hidden,
            2 * wide,
            bias=outer.flag("projector_bias", default=True),
        ),
    )


def _step(keys: Keys, base: str, extra: Tensors, *, tie: bool | None = None) -> Blueprint:
    heads = keys.whole("num_attention_heads", high=1 << 14)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=layer_count(keys),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", "num_attention_groups", high=heads),
        head_dim=keys.whole("head_dim", high=1 << 14),
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
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
        False: gated_mlp(its.hidden, keys.whole("intermediate_size"), bias=keys.flag("mlp_bias")),
    }
    layers = [
        Layer(
            *attention_cache(kind, its.kv_heads, its.head_dim, span=span),
            (*_attention(keys, its, sliding_heads if kind == "sliding" else heads), *mlps[sparse]),
        )
        for kind, sparse in zip(kinds, _mixtures(keys, its.layers), strict=True)
    ]
    return decoder(
        keys,
        its,
        layers,
        tie=tie,
        base=base,
        intermediate=keys.whole("intermediate_size"),
        experts=(routed, per_token),
        extra=extra,
    )


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


def _attention(keys: Keys, its: Sizes, heads: int) -> Tensors:
    keys.divide("num_attention_heads", heads, "num_key_value_heads", its.kv_heads)
    bias = keys.flag("attention_bias")
    gated = keys.flag("use_head_wise_attn_gate", default=True)
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
        *norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim),
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
    return (
        *router(hidden, routed),
        *correction_bias(routed),
        *routed_experts(hidden, keys.whole("moe_intermediate_size"), routed),
        *(
            gated_mlp(hidden, shared, "mlp.shared_experts", "shared_experts", bias=keys.flag("mlp_bias"))
            if shared
            else ()
        ),
    )


def _vision(keys: Keys, text_hidden: int) -> Tensors:
    """A ViT with layer scales, and two strided convolutions that make four times the width."""
    vision = section_or_default(keys.outer, "vision_config", published("step_vision"))
    hidden = vision.whole("hidden_size", "width")
    patch = vision.whole("patch_size", high=1 << 12)
    patches = max(1, vision.whole("image_size", high=1 << 16) // patch) ** 2
    width = int(hidden * vision.number("mlp_ratio", low=0.01, high=64))
    tower = "model.vision_model"
    path = f"{tower}.layers.*"
    block = (
        *plain_block(path, hidden, width, block_norms=("layernorm_before", "layernorm_after")),
        Tensor(f"{path}.lambda_1", "vision", (hidden,)),
        Tensor(f"{path}.lambda_2", "vision", (hidden,)),
    )
    channels = vision.whole("num_channels", high=64)
    return (
        Tensor(f"{tower}.embeddings.patch_embedding.weight", "vision", (hidden, channels, patch, patch)),
        Tensor(f"{tower}.embeddings.position_embedding.weight", "vision", (patches, hidden)),
        *norm(f"{tower}.pre_layernorm", hidden, bias=True, component="vision"),
        *times(vision.whole("num_hidden_layers", "layers", high=MAX_DEPTH), block),
        Tensor(f"{tower}.downsampler1.weight", "vision", (2 * hidden, hidden, 3, 3)),
        Tensor(f"{tower}.downsampler1.bias", "vision", (2 * hidden,)),
        Tensor(f"{tower}.downsampler2.weight", "vision", (4 * hidden, 2 * hidden, 3, 3)),
        Tensor(f"{tower}.downsampler2.bias", "vision", (4 * hidden,)),
        *linear(
            "model.multi_modal_projector",
            "vision",
            text_hidden,
            4 * hidden,
            bias=keys.outer.flag("projector_bias", default=False),
        ),
    )
