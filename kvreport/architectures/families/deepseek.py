"""DeepSeek-V2 to V3.2, Kimi K2 and others of the class: latent attention, many small experts."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import (
    Sizes,
)
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    norms,
    routed_experts,
    router,
)


def latent_tensors(keys: Keys, its: Sizes, rank: int, rope: int) -> Tensors:
    """Return the attention of one MLA layer and the two norms of the layer."""
    given = {"hidden": its.hidden, "heads": its.heads, "kv_lora_rank": rank, "qk_rope_head_dim": rope}
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *part("latent_attention", keys, "self_attn", **given),
    )


def mixture(keys: Keys, hidden: int, routed: int, *, correction: bool) -> Tensors:
    """Router, routed experts, and the shared experts as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    names = ("n_shared_experts", "num_shared_experts")
    explicit_null = keys.null(*names)
    shared = 0 if explicit_null else keys.whole(*names, low=0, high=1 << 10)
    return (
        *router(hidden, routed),
        *(correction_bias(routed) if correction else ()),
        *routed_experts(hidden, width, routed),
        *(gated_mlp(hidden, width * shared, "mlp.shared_experts", "shared_experts") if shared else ()),
    )


def indexer_tensors(keys: Keys, its: Sizes) -> Tensors:
    """The lightning indexer of DeepSeek-V3.2: its own small queries, one key, a weight per head."""
    rank = keys.whole("q_lora_rank")
    return part("lightning_indexer", keys, "self_attn.indexer", hidden=its.hidden, q_lora_rank=rank)


@reads("DeepseekV2ForCausalLM", family="DeepSeek-V2", model_types=("deepseek_v2",))
def deepseek_v2(keys: Keys) -> Blueprint:
    """DeepSeek-V2: softmax routing without offsets; without latents (OCR's decoder), the layers of DeepSeekMoE."""
    # vLLM 0.33.0, deepseek_v2.py: plain attention where heads have no part of either kind.
    if all(keys.raw(name) == 0 for name in ("qk_nope_head_dim", "qk_rope_head_dim")):
        keys.has("kv_lora_rank", "q_lora_rank", "v_head_dim")
        return read_layered("DeepseekForCausalLM", keys)
    return read_layered("deepseek_v2", keys)
