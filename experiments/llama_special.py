"""Tensors and keys that a converter adds, renames or joins for one architecture.

``write_sparse`` names most tensors by rule; what is left is here, after ``conversion/*.py`` and the loaders in
``src/models/*.cpp`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.network import Attention, FeedForward, LatentAttention, Recurrence
from kvreport.accounting.engines.llama_cpp.types import TYPES, GgmlType
from kvreport.catalog.caches import Indexer, Latent

Value = int | float | str | bool | list[int] | list[bool] | list[float]


class Long(list[int]):
    """Numbers that a file states in 64 bits."""


_SMALL: Final = 1 << 20
"""Tensors without a matrix's size stay in 32 bits."""


@dataclass(frozen=True)
class Entry:
    """One row of a file's tensor table."""

    name: str
    shape: tuple[int, ...]
    kind: GgmlType


Change = Callable[[LocalModel, list[Entry]], Iterator[Entry]]

_RENAMED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "bailingmoe3": ((r"\.f_proj\.", ".ssm_f_a."), (r"\.g_proj\.", ".ssm_g_a.")),
    "falcon-h1": ((r"\.ffn_norm\.weight$", ".ffn_norm"),),
    "gemma3n": (
        (r"\.correct_output_scale\.", ".altup_correct_scale."),
        (r"\.correction_coefs\.", ".altup_correct_coef."),
        (r"\.prediction_coefs\.", ".altup_predict_coef."),
        (r"\.modality_router\.", ".altup_router."),
        (r"\.router_norm\.", ".altup_router_norm."),
        (r"\.linear_left\.", ".laurel_l."),
        (r"\.linear_right\.", ".laurel_r."),
        (r"\.post_laurel_norm\.", ".laurel_post_norm."),
    ),
    "kimi-k3": (
        (r"\.g_proj\.", ".ssm_g."),
        (r"^output_attn_res_proj\.", "output_res_score."),
        (r"\.self_attention_res_proj\.", ".attn_res_score."),
        (r"\.mlp_res_proj\.", ".ffn_res_score."),
        (r"\.routed_expert_(down|up)_proj\.", r".ffn_routed_\1."),
        (r"\.routed_expert_norm\.", ".ffn_routed_norm."),
    ),
    "minimax-m3": ((r"\.index_([qk])_norm\.", r".indexer.\1_norm."),),
}


def special(local: LocalModel, entries: list[Entry]) -> list[Entry]:
    """The table as the converter of this architecture writes it.

    Args:
        local: The model.
        entries: What the general rules named.
    """
    name = local.architecture.name
    for pattern, found in _RENAMED.get(name, ()):
        entries = [replace(one, name=re.sub(pattern, found, one.name)) for one in entries]
    change = _CHANGES.get(name)
    return entries if change is None else list(change(local, entries))


def _layer(name: str) -> int:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1


def _bloom(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """The norm after the embedding has a name of its own."""
    width = (local.network.hidden,)
    for one in entries:
        if one.name.startswith("output_norm."):
            yield replace(one, shape=width)
            yield Entry(one.name.replace("output_norm", "token_embd_norm"), width, one.kind)
        else:
            yield one


def _gemma3n(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """Projections outside the layers are stacked, layers that share a cache keep their weights, tables are padded."""
    hidden = local.network.hidden
    seen = {one.name: one for one in entries}
    stack = sum(".*." in one.name for one in entries)
    for one in entries:
        if ".*." in one.name:
            continue
        if one.name == "per_layer_token_embd.weight":
            yield replace(one, shape=(one.shape[0], local.network.vocabulary))
        else:
            yield one
    for part in ("altup_proj", "altup_unembd_proj"):
        yield Entry(f"{part}.weight", (hidden, hidden, stack), TYPES["f16"])
    for layer in range(len(local.network.blocks)):
        for role in ("attn_k", "attn_v", "attn_k_norm"):
            if f"blk.{layer}.{role}.weight" not in seen:
                yield replace(seen[f"blk.0.{role}.weight"], name=f"blk.{layer}.{role}.weight")


def _kimi_k3(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """Norms before the residual scores are folded into them."""
    for one in entries:
        if one.name.endswith("_res_norm.weight"):
            continue
        if one.name == "output_norm.weight":
            yield replace(one, shape=(local.network.hidden,))
        elif one.name.endswith(".ssm_a"):
            yield replace(one, shape=(one.shape[-1],))
        else:
            yield one


def _minicpm3(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """Keys and values are unfolded from the latent by one matrix."""
    del local
    parts = {_layer(one.name): one for one in entries if one.name.endswith(".attn_v_b.weight")}
    for one in entries:
        if one.name.endswith(".attn_k_b.weight"):
            value = parts[_layer(one.name)]
            rank, width, heads = value.shape
            yield Entry(
                one.name.replace("attn_k_b", "attn_kv_b"), (rank, (one.shape[0] + width) * heads), one.kind
            )
        elif not one.name.endswith(".attn_v_b.weight"):
            yield one


def _muse_glimmer(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """The scale of queries is written as a norm's weight."""
    yield from entries
    named = {one.name for one in entries}
    for layer, block in enumerate(local.network.blocks):
        if isinstance(block.mixer, Attention) and f"blk.{layer}.attn_q_norm.weight" not in named:
            for part in "qk":
                yield Entry(f"blk.{layer}.attn_{part}_norm.weight", (block.mixer.key_dim,), TYPES["f32"])


def _deepseek4(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """Hyper-connections in 32 bits, compressors by the layer's ratio, a table of experts in the hashed layers."""
    kept = r"^blk\.\d+\.(attn_q_a|attn_q_b|attn_sinks|ffn_(gate|up|down)_(exps|shexp)|hc_\w+)\.weight$"
    hidden, heads = local.network.hidden, local.model.attention_heads
    width = _latent_width(local)
    found: dict[int, dict[str, Entry]] = {}
    for one in entries:
        found.setdefault(_layer(one.name), {}).setdefault(one.name.partition(".weight")[0], one)
        if _layer(one.name) < 0:
            name = re.sub(r"^hc_head_", "output_hc_", one.name)
            yield replace(one, name=name, kind=TYPES["f32"] if "hc_" in name else one.kind)
        elif re.search(kept, one.name):
            yield replace(one, kind=TYPES["f32"] if ".hc_" in one.name else one.kind)
    experts = local.model.experts
    hashed = sum(one.shape[-1] == local.network.vocabulary for one in entries if _layer(one.name) >= 0)
    big, small = TYPES["q8_0"], TYPES["f32"]
    groups = heads * width // next(one.shape[0] for one in entries if one.name.endswith(".wo_a.weight"))
    for layer, ratio in enumerate(compress_ratios(local)):
        rows = {role.partition(".")[2].partition(".")[2]: one for role, one in found[layer].items()}
        stem = f"blk.{layer}."
        rank = rows["attn_q_a"].shape[1]
        yield Entry(f"{stem}attn_norm.weight", (hidden,), small)
        yield Entry(f"{stem}ffn_norm.weight", (hidden,), small)
        yield Entry(f"{stem}attn_q_a_norm.weight", (rank,), small)
        yield Entry(f"{stem}attn_kv.weight", (hidden, width), big)
        yield Entry(f"{stem}attn_kv_a_norm.weight", (width,), small)
        columns, outs = rows["wo_a"].shape
        yield Entry(f"{stem}attn_output_a.weight", (columns, outs // groups, groups), big)
        yield Entry(f"{stem}attn_output_b.weight", rows["wo_b"].shape, big)
        if experts is not None:
            yield Entry(f"{stem}ffn_gate_inp.weight", (hidden, experts.routed), small)
            if layer < hashed:
                table = (experts.per_token, local.network.vocabulary)
                yield Entry(f"{stem}ffn_gate_tid2eid.weight", table, TYPES["i32"])
            else:
                yield Entry(f"{stem}exp_probs_b.bias", (experts.routed,), small)
        if ratio:
            twice = 2 if ratio == 4 else 1
            yield from _compressor(f"{stem}attn_compressor_", hidden, twice * width, ratio, width)
        picks = _indexer(local, layer)
        if picks is not None:
            yield from _compressor(
                f"{stem}indexer_compressor_", hidden, 2 * picks.index_dim, ratio, picks.index_dim
            )
            yield Entry(f"{stem}indexer.proj.weight", rows["indexer.proj"].shape, small)
            yield Entry(f"{stem}indexer.attn_q_b.weight", rows["indexer.attn_q_b"].shape, big)


def _compressor(stem: str, hidden: int, width: int, ratio: int, normed: int) -> Iterator[Entry]:
    yield Entry(f"{stem}kv.weight", (hidden, width), TYPES["q8_0"])
    yield Entry(f"{stem}gate.weight", (hidden, width), TYPES["q8_0"])
    yield Entry(f"{stem}ape.weight", (width, ratio), TYPES["f32"])
    yield Entry(f"{stem}norm.weight", (normed,), TYPES["f32"])


def _latent_width(local: LocalModel) -> int:
    return next(
        mixer.latent + mixer.rotary
        for block in local.network.blocks
        if isinstance(mixer := block.mixer, LatentAttention)
    )


def _indexer(local: LocalModel, layer: int) -> Indexer | None:
    group = next(group for group in local.model.layers if layer in group.indices)
    return next((cache for cache in group.caches if isinstance(cache, Indexer)), None)


def compress_ratios(local: LocalModel) -> list[int]:
    """Tokens that one compressed cell holds, by layer; 0 where nothing is compressed."""
    found = [0] * len(local.network.blocks)
    for group in local.model.layers:
        strides = [
            cache.stride for cache in group.caches if isinstance(cache, Latent) and cache.window is None
        ]
        for layer in group.indices:
            found[layer] = max(strides, default=0)
    return found


def _qwen4exp(local: LocalModel, entries: list[Entry]) -> Iterator[Entry]:
    """Two hyper-connections per layer, index keys of their own, one table of n-grams."""
    hidden = local.network.hidden
    small = TYPES["f32"]
    parts = {"input_mix_weight_down": "down", "input_mix_weight_up": "up", "block_inject_weight": "inject"}
    for one in entries:
        layer, role = _layer(one.name), one.name.removesuffix(".weight").rpartition(".")[2]
        stem = f"blk.{layer}."
        if layer < 0:
            if role in parts:
                yield replace(one, name=f"output_hc_{parts[role]}.weight")
            elif role == "output_norm":
                yield Entry("output_hc_norm.weight", one.shape, small)
            else:
                yield one
        elif role in parts:
            shape = (one.shape[0], one.shape[1] // 2)
            yield from (
                replace(one, name=f"{stem}hc_{half}_{parts[role]}.weight", shape=shape)
                for half in ("attn", "ffn")
            )
        elif role == "hc_norm":
            shape = (one.shape[0] // 2,)
            yield from (Entry(f"{stem}hc_{half}_norm.weight", shape, small) for half in ("attn", "ffn"))
        elif role == "per_layer_token_embd":
            yield replace(one, name="per_layer_token_embd.weight")
        elif role in ("key_proj", "value_proj"):
            yield replace(one, name=f"{stem}ple_{role.partition('_')[0]}.weight")
        elif role in ("norm_key", "norm_query", "norm_conv", "conv1d"):
            yield Entry(f"{stem}ple_{role}.weight", one.shape, small)
        elif role in ("q_layernorm", "k_layernorm"):
            yield replace(one, name=f"{stem}indexer.{role[0]}_norm.weight")
        elif role == "attn_k" and (picks := _indexer(local, layer)) is not None:
            mixer = local.network.blocks[layer].mixer
            width = mixer.kv_heads * mixer.key_dim if isinstance(mixer, Attention) else 0
            yield replace(one, shape=(hidden, width))
            rest = one.shape[1] - width - picks.index_dim
            yield Entry(f"{stem}indexer.q_proj.weight", (hidden, rest), one.kind)
            yield Entry(f"{stem}indexer.k_proj.weight", (hidden, picks.index_dim), one.kind)
        else:
            yield one


_CHANGES: Final[dict[str, Change]] = {
    "bloom": _bloom,
    "gemma3n": _gemma3n,
    "kimi-k3": _kimi_k3,
    "minicpm3": _minicpm3,
    "muse-glimmer": _muse_glimmer,
    "deepseek4": _deepseek4,
    "qwen4exp": _qwen4exp,
}


def special_keys(local: LocalModel) -> dict[str, Value]:
    """Keys that only one architecture reads, without its name before them.

    Args:
        local: The model.
    """
    name, blocks = local.architecture.name, local.network.blocks
    match name:
        case "qwen":
            width = next(block.feed.width for block in blocks if isinstance(block.feed, FeedForward))
            return {"feed_forward_length": 2 * width}
        case "deci":
            widths = [block.feed.width if isinstance(block.feed, FeedForward) else 0 for block in blocks]
            heads_of = [0 if block.mixer is None else local.model.attention_heads for block in blocks]
            return {"feed_forward_length": widths, "attention.head_count": heads_of}
        case "minicpm3":
            latent = next(b.mixer.latent for b in blocks if isinstance(b.mixer, Attention) and b.mixer.latent)
            return {
                "attention.kv_lora_rank": latent.latent,
                "attention.q_lora_rank": latent.query_rank,
                "rope.dimension_count": latent.rotary,
            }
        case "kimi-k3":
            latent_width = next(t.rows for t in local.tensors if t.role == "routed_expert_down_proj")
            return {
                "attn_res.block_size": 12,
                "activation.situ_beta": 4.0,
                "activation.situ_linear_beta": 25.0,
                "expert_latent_length": latent_width,
                "attention.head_count_kv": [0 if isinstance(b.mixer, Recurrence) else 1 for b in blocks],
            }
        case "minimax-m3":
            heads = next(t.rows for t in local.tensors if t.role == "indexer.q_proj")
            return _picks(local, heads) | {
                "attention.indexer.block_size": 128,
                "attention.indexer.local_blocks": 1,
            }
        case "deepseek4":
            return _deepseek4_keys(local)
        case "qwen4exp":
            return _qwen4exp_keys(local)
        case _:
            return {}


def _picks(local: LocalModel, width: int) -> dict[str, Value]:
    found = next(
        cache for group in local.model.layers for cache in group.caches if isinstance(cache, Indexer)
    )
    return {
        "attention.indexer.head_count": width // found.index_dim,
        "attention.indexer.key_length": found.index_dim,
        "attention.indexer.top_k": found.top_k or 2048,
    }


def _deepseek4_keys(local: LocalModel) -> dict[str, Value]:
    roles = {tensor.role: tensor for tensor in reversed(local.tensors)}
    width = _latent_width(local)
    window = next(
        c.window for g in local.model.layers for c in g.caches if isinstance(c, Latent) and c.window
    )
    groups = local.model.attention_heads * width // roles["wo_a"].columns
    return _picks(local, roles["indexer.attn_q_b"].rows) | {
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.sliding_window": window,
        "attention.output_group_count": groups,
        "attention.output_lora_rank": roles["wo_b"].columns // groups,
        "attention.compress_rope_freq_base": 160000.0,
        "attention.compress_ratios": compress_ratios(local),
        "hyper_connection.count": roles["hc_head_fn"].rows,
        "hyper_connection.sinkhorn_iterations": 20,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": sum(t.rows == local.network.vocabulary for t in local.tensors if t.layer >= 0),
        "swiglu_clamp_exp": 10.0,
        "expert_weights_norm": True,
        "expert_gating_func": 4,
    }


def _qwen4exp_keys(local: LocalModel) -> dict[str, Value]:
    roles = {tensor.role: tensor for tensor in reversed(local.tensors)}
    mixer = next(b.mixer for b in local.network.blocks if isinstance(b.mixer, Attention))
    table = roles["per_layer_token_embd"]
    heads = roles["value_proj"].columns // table.columns
    share = table.rows // heads
    picks = next(c for g in local.model.layers for c in g.caches if isinstance(c, Indexer))
    keys = roles["attn_k"].rows - mixer.kv_heads * mixer.key_dim - picks.index_dim
    return _picks(local, keys) | {
        "hyper_connection.count": roles["key_proj"].rows // local.network.hidden,
        "hyper_connection.low_rank": roles["input_mix_weight_down"].rows,
        "embedding_length_per_layer_input": table.columns,
        "ple.layers": [roles["value_proj"].layer],
        "ple.ngram_size": 3,
        "ple.heads_per_ngram": heads // 2,
        "ple.conv_kernel": 4,
        "ple.eos_token_id": 0,
        "ple.layer_multipliers": Long((1, 1, 1)),
        "ple.head_offsets": Long(share * head for head in range(heads)),
        "ple.head_vocab_sizes": Long([share] * heads),
        "attention.compress_ratios": [
            picks.stride if isinstance(b.mixer, Attention) else 0 for b in local.network.blocks
        ],
    }
