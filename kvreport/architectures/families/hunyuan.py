"""Hunyuan: dense, mixtures of experts, and Hunyuan-Large, whose layers share caches in pairs."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, grouped_heads, head_dim, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, vocabulary
from kvreport.architectures.keys import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    gated_mlp,
    norms,
    routed_experts,
    router,
    self_attention,
)
from kvreport.catalog.caches import Shared


@reads("HunYuanForCausalLM", "HunyuanForCausalLM", family="Hunyuan", model_types=("hunyuan",))
def hunyuan(keys: Keys) -> Blueprint:
    """The maker's first class, which Hunyuan-Large has."""
    return _hunyuan(keys)


@reads("HunYuanDenseV1ForCausalLM", family="Hunyuan", model_types=("hunyuan_v1_dense",))
def hunyuan_v1(keys: Keys) -> Blueprint:
    """Dense or a mixture, by the number of experts; queries and keys are always normalised."""
    return _hunyuan(keys)


@reads("HunYuanMoEV1ForCausalLM", family="Hunyuan", model_types=("hunyuan_v1_moe",))
def hunyuan_v1_mixture(keys: Keys) -> Blueprint:
    """A mixture, even of one expert (transformers 5.23, ``HunYuanMoEV1DecoderLayer``)."""
    return _hunyuan(keys, dense_at=0)


def _hunyuan(keys: Keys, dense_at: int = 1) -> Blueprint:
    hidden = keys.whole("hidden_size")
    heads = keys.whole("num_attention_heads", high=1 << 14)
    its = Sizes(
        hidden=hidden,
        layers=layer_count(keys),
        heads=heads,
        kv_heads=grouped_heads(keys, heads),
        head_dim=head_dim(keys, hidden, heads, "attention_head_dim"),
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    width = keys.whole("intermediate_size")
    mlps, experts = _mlps(keys, its, width, dense_at)
    factor = keys.whole("cla_share_factor", default=1, high=MAX_LAYERS) if _shares(keys) else 1
    full = attention_cache("full", its.kv_heads, its.head_dim)
    shared = ("shared with the layer before", (Shared(reads="full"),))
    layers = [
        Layer(
            *(shared if index % factor else full),
            (*_attention(keys, its, own=index % factor == 0), *mlp),
        )
        for index, mlp in enumerate(mlps)
    ]
    return decoder(keys, its, layers, intermediate=width, experts=experts)


def _shares(keys: Keys) -> bool:
    """Tell whether keys and values are shared between layers; the factor alone means nothing."""
    return keys.flag("use_cla", default=False)


def _attention(keys: Keys, its: Sizes, *, own: bool) -> Tensors:
    """Return the norms and the attention; a layer without its own keys has no projection of them."""
    bias = keys.flag("attention_bias")
    each = ("self_attn.query_layernorm", "self_attn.key_layernorm")
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(
            its.hidden,
            its.heads,
            its.kv_heads,
            its.head_dim,
            qkv_bias=bias,
            output_bias=bias,
            has_key=own,
        ),
        *(norms(*each, width=its.head_dim) if keys.flag("use_qk_norm") else ()),
    )


def _mlps(keys: Keys, its: Sizes, width: int, dense_at: int) -> tuple[list[Tensors], tuple[int, int] | None]:
    """Return each layer's MLP or mixture; counts and widths may differ from layer to layer."""
    routed = _per_layer(keys, "num_experts", its.layers, default=1, high=MAX_EXPERTS)
    most = max(routed)
    bias = keys.flag("mlp_bias")
    dense = gated_mlp(its.hidden, width, bias=bias)
    if most == dense_at:
        return [dense] * its.layers, None
    per_token = _per_layer(keys, "moe_topk", its.layers, default=1, high=most)
    widths = _per_layer(keys, "moe_intermediate_size", its.layers, default=width, high=MAX_WIDTH)
    joint = keys.flag("use_mixed_mlp_moe", default=True)
    shared = _per_layer(keys, "num_shared_expert", its.layers, default=1, low=0, high=1 << 10)
    skipped = keys.whole("moe_layer_num_skipped", default=0, low=0, high=MAX_LAYERS)
    mlps = []
    for index in range(its.layers):
        if index < skipped or routed[index] == dense_at:
            mlps.append(dense)
            continue
        tensors = (
            *router(its.hidden, routed[index], "mlp.gate.wg"),
            *routed_experts(its.hidden, widths[index], routed[index]),
        )
        if joint and shared[index]:
            tensors += gated_mlp(its.hidden, width * shared[index], "mlp.shared_mlp", "shared_experts")
        mlps.append(tensors)
    return mlps, (most, max(per_token))


def _per_layer(keys: Keys, name: str, layers: int, *, default: int, low: int = 1, high: int) -> list[int]:
    if isinstance(keys.raw(name), list):
        return keys.wholes(name, length=layers, low=low, high=high) or [default] * layers
    return [keys.whole(name, default=default, low=low, high=high)] * layers
