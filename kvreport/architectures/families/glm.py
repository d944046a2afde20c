"""GLM-4 to GLM-5.3: dense, grouped-query mixtures, latent attention, and the sparse indexer."""

from __future__ import annotations

from kvreport.architectures.attention import attention_cache, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, expert_counts, sizes
from kvreport.architectures.families.deepseek import (
    latent_mixture,
    mixture,
    mixture_pattern,
    prediction_layers,
)
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms, self_attention


@reads("Glm4MoeForCausalLM", family="GLM-4.5", model_types=("glm4_moe",))
def glm4_moe(keys: Keys) -> Blueprint:
    """GLM-4.5 to 4.7: grouped-query attention, DeepSeek-V3's way of routing."""
    its = sizes(keys, exact=False)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts", "num_experts")
    attention = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(
            its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=keys.flag("attention_bias")
        ),
        *(
            norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim)
            if keys.flag("use_qk_norm")
            else ()
        ),
    )
    dense = (*attention, *gated_mlp(its.hidden, width))
    mixed = (*attention, *mixture(keys, its.hidden, routed, correction=True))
    layers = [
        Layer(*attention_cache("full", its.kv_heads, its.head_dim), mixed if sparse else dense)
        for sparse in mixture_pattern(keys, its.layers)
    ]
    return decoder(
        keys,
        its,
        layers,
        intermediate=width,
        experts=(routed, per_token),
        extra=prediction_layers(keys, its, mixed, "model.layers"),
    )


@reads("Glm4MoeLiteForCausalLM", family="GLM-4.7", model_types=("glm4_moe_lite",))
def glm4_moe_lite(keys: Keys) -> Blueprint:
    """GLM-4.7-Flash: DeepSeek-V3's layers, smaller."""
    return latent_mixture(keys)


@reads("GlmMoeDsaForCausalLM", family="GLM-5", model_types=("glm_moe_dsa",))
def glm_moe_dsa(keys: Keys) -> Blueprint:
    """GLM-5: DeepSeek-V3.2's layers; from 5.2 on only some of them run an indexer of their own.

    Its checkpoints (5.1, 5.2 FP8) share embedding and head with the prediction layer.
    """
    return latent_mixture(keys, indexed=indexed_layers(keys, layer_count(keys)), ends=False)


def indexed_layers(keys: Keys, layers: int) -> list[bool]:
    """Tell which layers run their own indexer; the others reuse the choice of the last that did.

    The schedule (``index_topk_freq`` and its offset) is what engines build from, so it comes before
    the list of types, which some published copies carry incomplete. A pattern overrides both.
    """
    pattern = keys.text("index_topk_pattern")
    if pattern is not None:
        if len(pattern) != layers or set(pattern) - set("FS"):
            raise keys.fault("index_topk_pattern", pattern, f"{layers} letters, each F or S")
        return [letter == "F" for letter in pattern]
    if not keys.has("index_topk_freq"):
        listed = keys.texts("indexer_types", length=layers, of=("full", "shared"))
        if listed is not None:
            return [kind == "full" for kind in listed]
    every = keys.whole("index_topk_freq", default=1, high=MAX_LAYERS)
    offset = keys.whole("index_skip_topk_offset", default=2, low=0, high=MAX_LAYERS)
    return [max(index - offset + 1, 0) % every == 0 for index in range(layers)]
