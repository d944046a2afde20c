"""LongCat-Flash: two latent attentions per layer around one mixture, some of whose experts do nothing."""

from __future__ import annotations

from dataclasses import replace

from kvreport.architectures.attention import latent_cache
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, vocabulary
from kvreport.architectures.keys import MAX_EXPERTS, MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, placed


@reads("LongcatFlashForCausalLM", family="LongCat", model_types=("longcat_flash",))
def longcat_flash(keys: Keys) -> Blueprint:
    """Each layer keeps two latents; the zero experts are scored by the router but have no weights."""
    rank = keys.whole("kv_lora_rank", high=1 << 16)
    rope = keys.whole("qk_rope_head_dim", low=0, high=1 << 12)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=_layers(keys),
        heads=keys.whole("num_attention_heads", high=1 << 14),
        kv_heads=1,
        head_dim=rank + rope,
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    width = keys.whole("ffn_hidden_size", "intermediate_size")
    experts = expert_counts(keys, "n_routed_experts", per_token=("moe_topk", "num_experts_per_tok"))
    ranks = {"q_lora_rank": keys.whole("q_lora_rank"), "kv_lora_rank": rank, "qk_rope_head_dim": rope}
    half = (
        *part("latent_attention", keys, "self_attn", **ranks, hidden=its.hidden, heads=its.heads),
        *part("gated_mlp", keys, "mlps", hidden=its.hidden, mlp_width=width),
        *part("pre_norms", keys, hidden=its.hidden),
    )
    tensors = (*_twice(half), *_mixture(keys, its.hidden, experts[0]))
    _, caches = latent_cache(rank, rope)
    layers = [Layer("two latent attentions (MLA)", caches * 2, tensors)] * its.layers
    return decoder(keys, its, layers, intermediate=width, experts=experts, extra=_prediction(keys, its, half))


def _prediction(keys: Keys, its: Sizes, half: Tensors) -> Tensors:
    """Half a layer, its glue and an embedding of its own, however many layers the config states.

    vLLM 0.33, ``longcat_flash_mtp.py::LongCatMultiTokenPredictor``; SGLang 0.5.23,
    ``longcat_flash_nextn.py::LongcatFlashModelNextN``: one latent attention and one dense MLP.
    """
    if not keys.whole("num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS):
        return ()
    glue = part("prediction_final", keys, hidden=its.hidden)
    ends = Weight("model.mtp.embed_tokens.weight", "mtp", (its.vocabulary, its.hidden), "vocabulary")
    return (*placed((*half, *glue), "model.mtp.layers.0.", component="mtp"), ends)


def _layers(keys: Keys) -> int:
    """Read the number of double layers; ``num_hidden_layers`` counts their halves."""
    if keys.has("num_layers") or not keys.has("num_hidden_layers"):
        return keys.whole("num_layers", high=MAX_LAYERS)
    halves = keys.whole("num_hidden_layers", low=2, high=2 * MAX_LAYERS)
    return keys.divide("num_hidden_layers", halves, "the halves of a layer", 2)


def _twice(tensors: Tensors) -> Tensors:
    """The same tensors for both halves of a layer: ``self_attn.q_a_proj`` becomes ``self_attn.*.…``."""
    found: Tensors = ()
    for tensor in tensors:
        module, _, rest = tensor.name.partition(".")
        found += (replace(tensor, name=f"{module}.*.{rest}", count=2 * tensor.count),)
    return found


def _mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    scored = routed + keys.whole("zero_expert_num", low=0, high=MAX_EXPERTS)
    given = {"hidden": hidden, "routed": routed, "scored": scored}
    given |= {"bias": keys.flag("router_bias", default=False)}
    width = keys.whole("expert_ffn_hidden_size", "moe_intermediate_size")
    return part("longcat_mixture", keys, "mlp", **given, expert_width=width)
