"""MiniMax: Text-01 and M1 (lightning attention), M2 (all attention), M3 (sparse, with index keys)."""

from __future__ import annotations

from kvreport.architectures.attention import FULL, attention_cache, listed_mixtures
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import decoder, dense_mlp, either_tied, expert_counts, sizes
from kvreport.architectures.families.deepseek import named_mixture
from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache, Indexer


@reads(
    "MiniMaxM3SparseForConditionalGeneration",
    "MiniMaxM3SparseForCausalLM",
    "MiniMaxM3VLForConditionalGeneration",
    "MiniMaxM3ForCausalLM",
    family="MiniMax M3",
    model_types=("minimax_m3_vl", "minimax_m3", "minimax_m3_vl_text"),
)
def minimax_m3(keys: Keys) -> Blueprint:
    """Grouped-query attention; most layers also keep index keys, by which they pick blocks to read."""
    its = sizes(keys)
    inner = keys.section("sparse_attention_config") or Keys(
        {}, keys.where, keys.field("sparse_attention_config")
    )
    index_heads = inner.whole("sparse_num_index_heads", default=keys.whole("index_n_heads", high=1 << 12))
    index_dim = inner.whole("sparse_index_dim", default=keys.whole("index_head_dim", high=1 << 12))
    routed, per_token = expert_counts(keys, "num_local_experts", "num_experts")
    kind, full = attention_cache("full", its.kv_heads, its.head_dim)
    with_index: tuple[str, tuple[Cache, ...]] = (
        f"{FULL} with index keys",
        (*full, Indexer(index_dim=index_dim, scaled=False, top_k=_m3_picked(keys, inner))),
    )
    attention = (
        *part("pre_norms", keys, hidden=its.hidden),
        *part("grouped_attention", keys, "self_attn", **its.given),
        *part("head_norms", keys, "self_attn", head_dim=its.head_dim),
    )
    given = {"hidden": its.hidden, "index_heads": index_heads, "index_dim": index_dim}
    indexer = part("minimax_m3_indexer", keys, "self_attn", **given)
    width = keys.whole("dense_intermediate_size")
    mlps = {
        True: _m3_mixture(keys, its.hidden, routed),
        False: dense_mlp(keys, its.hidden, width),
    }
    layers = [
        Layer(
            *(with_index if picks else (kind, full)),
            (*attention, *(indexer if picks else ()), *mlps[sparse]),
        )
        for picks, sparse in zip(
            _m3_indexed(keys, inner, its.layers), _m3_mixtures(keys, its.layers), strict=True
        )
    ]
    nested = keys.outer is not keys
    return decoder(
        keys,
        its,
        layers,
        base="language_model.model" if nested else "model",
        head="language_model.lm_head" if nested else "lm_head",
        tie=either_tied(keys),
        intermediate=keys.whole("intermediate_size"),
        experts=(routed, per_token),
        extra=_m3_vision(keys, its.hidden) if nested else (),
        notes=_m3_predicting(keys),
    )


def _m3_predicting(keys: Keys) -> list[str]:
    """Say which prediction layers are not counted: vLLM 0.33 builds ``num_mtp_modules`` (``minimax_m3/nvidia/mtp.py::MiniMaxM3MultiTokenPredictor``).

    The config of MiniMaxAI/MiniMax-M3 states seven, and the list of its tensors (the source of its published total) has
    none, so that nothing is counted; safetensors headers say what a repository has.
    """
    keys.has("num_nextn_predict_layers")
    count = keys.whole("num_mtp_modules", default=0, low=0, high=64)
    said = "MiniMax-M3's repository has no tensors of them, and none are counted."
    return (
        [f"The config states {count} module{'s'[: count > 1]} for multi-token prediction; {said}"]
        if count
        else []
    )


def _m3_picked(keys: Keys, inner: Keys) -> int | None:
    """Return the tokens of the blocks that a query picks; those right before it, always seen, come on top."""
    blocks = inner.optional("sparse_topk_blocks", low=1) or keys.optional("index_topk_blocks", low=1)
    size = inner.optional("sparse_block_size", low=1) or keys.optional("index_block_size", low=1)
    return blocks * size if blocks and size else None


def _m3_indexed(keys: Keys, inner: Keys, layers: int) -> list[bool]:
    listed = keys.texts("layer_types", length=layers, of=("full_attention", "minimax_m3_sparse"))
    if listed is not None:
        return [kind != "full_attention" for kind in listed]
    if not inner.flag("use_sparse_attention", default=True):
        return [False] * layers
    chosen = inner.wholes("sparse_attention_freq", length=layers, high=1)
    return [bool(value) for value in chosen or [0] * layers]


def _m3_mixtures(keys: Keys, layers: int) -> list[bool]:
    listed = listed_mixtures(keys, layers)
    chosen = keys.wholes("moe_layer_freq", length=layers, high=1) if listed is None else None
    return listed or [bool(value) for value in chosen or [1] * layers]


def _m3_mixture(keys: Keys, hidden: int, routed: int) -> Tensors:
    width = keys.whole("intermediate_size")
    shared = keys.whole("n_shared_experts", default=1, low=0, high=1 << 10)
    shared_width = keys.whole("shared_intermediate_size", low=0) * shared
    given = {"hidden": hidden, "routed": routed, "expert_width": width, "shared_width": shared_width}
    names = ("w1", "w3", "w2")
    return named_mixture(keys, "block_sparse_moe", "gate", "e_score_correction_bias", given, names=names)


def _m3_vision(keys: Keys, text_hidden: int) -> Tensors:
    """The encoder of M3, whose config states how patches are merged in a section of its own, or beside its sizes."""
    vision = section_or_default(keys.outer, "vision_config", "m3_vision")
    merging = vision.section("img_token_compression_config", defaults=published("m3_vision")) or vision
    return part(
        "minimax_m3_vision",
        vision,
        text_hidden=text_hidden,
        frames=merging.whole("temporal_patch_size", high=64),
        merged=text_hidden * merging.whole("spatial_merge_size", high=64) ** 2,
        projected=keys.outer.whole("projector_hidden_size", default=text_hidden),
    )
