"""DeepSeek-V2 to V3.2, Kimi K2 and others of the class: latent attention, many small experts."""

from __future__ import annotations

from collections.abc import Mapping

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.layered import read_layered
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.catalog.caches import Indexer


def latent_tensors(keys: Keys, its: Sizes, rank: int, rope: int) -> Tensors:
    """Return the attention of one MLA layer and the two norms of the layer."""
    given = {"hidden": its.hidden, "heads": its.heads, "kv_lora_rank": rank, "qk_rope_head_dim": rope}
    return (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("latent_attention", keys, "self_attn", **given),
    )


def mixture(keys: Keys, hidden: int, routed: int, *, correction: bool = True) -> Tensors:
    """Router, routed experts, and the shared experts as one MLP of their joint width."""
    names = ("n_shared_experts", "num_shared_experts")
    shared = 0 if keys.null(*names) else keys.whole(*names, low=0, high=1 << 10)
    width = keys.whole("moe_intermediate_size")
    given = {"hidden": hidden, "routed": routed, "expert_width": width, "shared_width": width * shared}
    if correction:
        return part("deepseek_mixture", keys, "mlp", **given)
    return (
        *part("mixture", keys, "mlp", **given),
        *part("shared_experts", keys, "mlp.shared_experts", **given),
    )


def named_mixture(
    keys: Keys,
    module: str,
    gate: str,
    offsets: str,
    given: Mapping[str, int],
    *,
    shared: str = "shared_experts",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Tensors:
    """Return a mixture under the names that a class has for its parts.

    ``gate`` is the router, ``offsets`` what is learned for its choice or empty; ``given`` has ``hidden``, ``routed``,
    ``expert_width``, ``shared_width`` and whether the shared experts have a ``bias``.
    """
    up, also_up, down = names
    words = {"gate": gate, "offsets": offsets, "experts": "experts.*", "shared": shared}
    words |= {"up": up, "also_up": also_up, "down": down}
    return part("named_mixture", keys, module, **words, **{"bias": False, **given})


def index_cache(keys: Keys, stride: int = 1) -> Indexer:
    """Return the index keys by which layers pick the tokens that they read."""
    width = keys.whole("index_head_dim", high=1 << 12)
    return Indexer(index_dim=width, stride=stride, top_k=keys.optional("index_topk", low=1, high=1 << 20))


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
