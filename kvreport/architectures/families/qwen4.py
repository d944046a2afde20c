"""Qwen4-Exp (Qwen3.8-Flash-Next): Gated DeltaNet, sparse attention, four residual streams, n-gram tables.

Three of four layers are Gated DeltaNet; the fourth attends to the tokens that an indexer picks from
pooled keys. Some layers look up hashed n-grams of the last tokens in one large table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt
from typing import Final

from kvreport.architectures.attention import FULL, attention_cache, gated_deltanet_state, precision
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, expert_counts, sizes, text_base, whole_tied
from kvreport.architectures.families.qwen_hybrid import gated_deltanet, mixture
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import Tensors, linear, norms, placed
from kvreport.architectures.vision import qwen3_vision, section_or_default
from kvreport.catalog.caches import Cache, Indexer, RecurrentState, StateTensor

_LINEAR: Final = "linear_attention"
_WORDS: Final = (_LINEAR, "full_attention", "indexed_attention", "qwen_sparse_attention")
_MAX_TABLES: Final = 512
_POOLED: Final = (
    "The cache size includes the pooled index keys that engines score. It does not include the raw keys of the last,"
    " incomplete pool. An engine that also keeps all raw keys, like transformers, needs more memory."
)


@dataclass(slots=True)
class _Parts:
    """What a layer keeps and weighs besides its mixture of experts."""

    name: str
    caches: tuple[Cache, ...]
    tensors: Tensors = field(default=())


@reads(
    "Qwen4ExpForConditionalGeneration",
    "Qwen4ExpForCausalLM",
    family="Qwen3.8",
    model_types=("qwen4_exp", "qwen4_exp_text"),
)
def qwen4_exp(keys: Keys) -> Blueprint:
    """Gated residuals around everything; no final norm, but a last mixer that has one."""
    its = sizes(keys)
    routed, per_token = expert_counts(keys, "num_experts")
    streams = keys.whole("hc_count", low=2, high=64)
    rank = keys.whole("hc_lowrank", high=1 << 16)
    given = {"hidden": its.hidden, "streams": streams, "rank": rank}
    around = (
        *part("qwen4_residual", keys, "attn_hyper_connection", **given, inject=True),
        *part("qwen4_residual", keys, "mlp_hyper_connection", **given, inject=True),
        *mixture(keys, its.hidden, routed),
    )
    mixer = part("qwen4_residual", keys, "hyper_connection_mixer", **given, inject=False)
    dims, delta = gated_deltanet(keys, its.hidden, fused=False)
    state = _Parts(*gated_deltanet_state(*dims, precision(keys, "mamba_ssm_dtype")), delta)
    attention = _attention(keys, its)
    tables = _tables(keys, its.hidden, streams)
    layers = []
    for index, kind in enumerate(_kinds(keys, its.layers)):
        its_parts = state if kind == _LINEAR else attention
        table = tables.pop(index, None)
        if table is not None and kind != _LINEAR:
            raise keys.fault("ple_layer_ids", index + 1, "layers of linear attention, counted from 1")
        name, caches, tensors = its_parts.name, its_parts.caches, its_parts.tensors
        if table is not None:
            name, caches, tensors = (
                f"{name} with n-grams",
                (*caches, *table.caches),
                (*tensors, *table.tensors),
            )
        layers.append(Layer(name, caches, (*tensors, *around)))
    base, nested = text_base(keys), keys.outer is not keys
    vision = qwen3_vision(section_or_default(keys.outer, "vision_config", "qwen3_5_vision")) if nested else ()
    predicts = keys.whole("mtp_num_hidden_layers", default=0, low=0, high=64)
    return decoder(
        keys,
        its,
        layers,
        tie=whole_tied(keys),
        base=base,
        norm_weight=False,
        experts=(routed, per_token),
        extra=(
            *placed(mixer, f"{base}."),
            *vision,
            *_prediction(predicts, (*attention.tensors, *around), mixer, its.hidden, streams),
        ),
        notes=[_POOLED] if attention.name != FULL else [],
    )


def _prediction(count: int, layer: Tensors, mixer: Tensors, hidden: int, streams: int) -> Tensors:
    """The layers for multi-token prediction: attention, residuals and experts, and two projections of what they read.

    SGLang 0.5.20 to 0.5.23, ``models/qwen4_exp_mtp.py``, and vLLM 0.33.0, ``models/qwen4_exp``.
    """
    if not count:
        return ()
    shared = (
        *linear("fc_embedding", "mtp", hidden, hidden),
        *linear("fc_hidden", "mtp", hidden, hidden),
        *norms("pre_fc_norm_embedding", width=hidden),
        *norms("pre_fc_norm_hidden", width=streams * hidden),
        *mixer,
    )
    return (
        *placed(layer, "mtp.layers.*.", component="mtp", times=count),
        *placed(shared, "mtp.", component="mtp"),
    )


def _kinds(keys: Keys, layers: int) -> list[str]:
    listed = keys.texts("layer_types", length=layers, of=_WORDS)
    if listed is not None:
        return listed
    interval = keys.whole("full_attention_interval", default=4, high=MAX_LAYERS)
    return [_LINEAR if (index + 1) % interval else "indexed_attention" for index in range(layers)]


def _attention(keys: Keys, its: Sizes) -> _Parts:
    bias = keys.flag("attention_bias")
    name, caches = attention_cache("full", its.kv_heads, its.head_dim)
    tensors = part("gated_query_attention", keys, "self_attn", **its.given, bias=bias)
    queries = keys.optional("indexer_n_heads", low=1, high=1 << 12)
    if queries is None:
        return _Parts(name, caches, tensors)
    # One key head is all that the class allows.
    keys_per_token = keys.whole("indexer_kv_heads", high=1)
    width = keys.whole("indexer_head_dim", high=1 << 12)
    budget = keys.whole("indexer_budget", high=1 << 24)
    pool = keys.whole("indexer_compress_ratio", high=budget)
    index = Indexer(index_dim=width, stride=pool, scaled=False, top_k=budget)
    picks = (
        *linear(
            "self_attn.indexer.index_qk_proj", "attention", (queries + keys_per_token) * width, its.hidden
        ),
        *norms("self_attn.indexer.q_layernorm", "self_attn.indexer.k_layernorm", width=width),
    )
    return _Parts("sparse attention with pooled indexer", (*caches, index), (*tensors, *picks))


def _tables(keys: Keys, hidden: int, streams: int) -> dict[int, _Parts]:
    """The n-gram tables by layer index; the config counts layers from 1.

    Every hashed head has a vocabulary of its own, the next prime number: 20,000,003, 20,000,023 and so on,
    counted on from table to table.
    """
    chosen = sorted(set(keys.wholes("ple_layer_ids", low=1, high=MAX_LAYERS) or []))
    if not chosen:
        return {}
    grams = keys.whole("ngram_size", low=2, high=64)
    heads = (grams - 1) * keys.whole("heads_per_ngram", high=_MAX_TABLES)
    if heads * len(chosen) > _MAX_TABLES:
        raise keys.fault("heads_per_ngram", heads * len(chosen), f"at most {_MAX_TABLES} hashed heads")
    inside = keys.whole("ple_embed_dim", default=hidden)
    width = keys.divide("ple_embed_dim", inside, "n-gram heads", heads)
    base = keys.whole("ngram_vocab_size_base", low=2, high=1 << 28)
    multiple = keys.whole("make_ngram_vocab_size_divisible_by", high=1 << 20)
    kernel = keys.whole("ple_conv_kernel_size", low=2, high=1 << 10)
    wide = streams * hidden
    past = StateTensor(name="conv", channels=wide, columns=(kernel - 1) * grams)
    found, prime = {}, base - 1
    for layer in chosen:
        rows = 0
        for _ in range(heads):
            prime = _next_prime(prime)
            rows += prime
        given = {"hidden": hidden, "streams": streams, "inside": inside, "width": width, "kernel": kernel}
        rows = -(-rows // multiple) * multiple
        tensors = part("qwen4_ngrams", keys, "ple", **given, rows=rows)
        found[layer - 1] = _Parts(
            "n-grams", (RecurrentState(mechanism="short_conv", tensors=(past,)),), tensors
        )
    return found


def _next_prime(number: int) -> int:
    number += 1
    while number < 2 or any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number
