"""Hunyuan: dense, mixtures of experts, and Hunyuan-Large, whose layers share caches in pairs."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, dense_mlp, sizes
from kvreport.architectures.families.deepseek import named_mixture
from kvreport.architectures.keys import MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
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
    its = sizes(keys, head_names=("attention_head_dim",))
    width = keys.whole("intermediate_size")
    mlps, experts = _mlps(keys, its, width, dense_at)
    # Keys and values are shared between layers where the flag says so; the factor alone means nothing.
    shares = keys.flag("use_cla", default=False)
    factor = keys.whole("cla_share_factor", default=1, high=MAX_LAYERS) if shares else 1
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


def _attention(keys: Keys, its: Sizes, *, own: bool) -> Tensors:
    """Return the norms and the attention; a layer without its own keys has no projection of them."""
    words = {"query_norm": "query_layernorm", "key_norm": "key_layernorm", "key_normed": True}
    given = {"bias": keys.flag("attention_bias"), "has_key": own, "has_value": own}
    normed = keys.flag("use_qk_norm")
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("shared_attention", keys, "self_attn", **its.given, **words, **given, normed=normed),
    )


def _mlps(keys: Keys, its: Sizes, width: int, dense_at: int) -> tuple[list[Tensors], tuple[int, int] | None]:
    """Return each layer's MLP or mixture; counts and widths may differ from layer to layer."""
    routed = _per_layer(keys, "num_experts", its.layers, default=1, high=MAX_EXPERTS)
    most = max(routed)
    bias = keys.flag("mlp_bias")
    dense = dense_mlp(keys, its.hidden, width, bias=bias)
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
        given = {"hidden": its.hidden, "routed": routed[index], "expert_width": widths[index]}
        given["shared_width"] = width * shared[index] if joint else 0
        mlps.append(named_mixture(keys, "mlp", "gate.wg", "", given, shared="shared_mlp"))
    return mlps, (most, max(per_token))


def _per_layer(keys: Keys, name: str, layers: int, *, default: int, low: int = 1, high: int) -> list[int]:
    if isinstance(keys.raw(name), list):
        return keys.wholes(name, length=layers, low=low, high=high) or [default] * layers
    return [keys.whole(name, default=default, low=low, high=high)] * layers
