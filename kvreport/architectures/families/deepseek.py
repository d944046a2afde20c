"""DeepSeek-V2 to V3.2, Kimi K2 and others of the class: latent attention, many small experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvreport.architectures.attention import attention_cache, latent_cache, layer_count
from kvreport.architectures.blueprint import Blueprint, Layer, Tensor
from kvreport.architectures.decoder import (
    Sizes,
    context,
    decoder,
    expert_counts,
    sizes,
    tied,
    vocabulary,
)
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import (
    Tensors,
    correction_bias,
    gated_mlp,
    latent_attention,
    linear,
    norm,
    norms,
    routed_experts,
    router,
    self_attention,
)
from kvreport.catalog.caches import Indexer


def latent_sizes(keys: Keys) -> tuple[Sizes, int, int]:
    """Return the sizes of an MLA model, its latent's rank and its rotary width."""
    rank = keys.whole("kv_lora_rank", high=1 << 16)
    rope = keys.whole("qk_rope_head_dim", low=0, high=1 << 12)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=keys.whole("num_hidden_layers", high=MAX_LAYERS),
        heads=keys.whole("num_attention_heads", high=1 << 14),
        kv_heads=1,
        head_dim=rank + rope,
        vocabulary=vocabulary(keys),
        context=context(keys),
    )
    return its, rank, rope


def latent_tensors(keys: Keys, its: Sizes, rank: int, rope: int) -> Tensors:
    """Return the attention of one MLA layer and the two norms of the layer."""
    explicit_null = keys.null("q_lora_rank")
    return (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *latent_attention(
            its.hidden,
            its.heads,
            q_rank=None if explicit_null else keys.optional("q_lora_rank", low=1),
            kv_rank=rank,
            nope_dim=keys.whole("qk_nope_head_dim", high=1 << 14),
            rope_dim=rope,
            value_dim=keys.whole("v_head_dim", high=1 << 14),
            bias=keys.flag("attention_bias", default=False),
        ),
    )


def mixture_pattern(keys: Keys, layers: int) -> list[bool]:
    """Tell for each layer whether it is a mixture: as listed, or from ``first_k_dense_replace`` on."""
    kinds = keys.texts("mlp_layer_types", length=layers, of=("dense", "sparse"))
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    first = keys.whole("first_k_dense_replace", low=0, high=MAX_LAYERS)
    listed = keys.raw("moe_layer_freq")
    if isinstance(listed, list):
        chosen = keys.wholes("moe_layer_freq", length=layers, high=1) or []
        return [bool(value) for value in chosen]
    every = keys.whole("moe_layer_freq", default=1, high=MAX_LAYERS)
    return [index >= first and index % every == 0 for index in range(layers)]


def mixture(keys: Keys, hidden: int, routed: int, *, correction: bool, shared_bias: bool = False) -> Tensors:
    """Router, routed experts, and the shared experts as one MLP of their joint width."""
    width = keys.whole("moe_intermediate_size")
    names = ("n_shared_experts", "num_shared_experts")
    explicit_null = keys.null(*names)
    shared = 0 if explicit_null else keys.whole(*names, low=0, high=1 << 10)
    return (
        *router(hidden, routed),
        *(correction_bias(routed) if correction else ()),
        *routed_experts(hidden, width, routed),
        *(
            gated_mlp(hidden, width * shared, "mlp.shared_experts", "shared_experts", bias=shared_bias)
            if shared
            else ()
        ),
    )


def indexer_tensors(keys: Keys, its: Sizes) -> Tensors:
    """The lightning indexer of DeepSeek-V3.2: its own small queries, one key, a weight per head."""
    heads = keys.whole("index_n_heads", high=1 << 12)
    width = keys.whole("index_head_dim", high=1 << 12)
    return (
        *linear("self_attn.indexer.wq_b", "attention", heads * width, keys.whole("q_lora_rank")),
        *linear("self_attn.indexer.wk", "attention", width, its.hidden),
        *norm("self_attn.indexer.k_norm", width, bias=True),
        Tensor("self_attn.indexer.weights_proj.weight", "attention", (heads, its.hidden)),
    )


def prediction_layers(keys: Keys, its: Sizes, tensors: Tensors, path: str, *, ends: bool = True) -> Tensors:
    """The layers for multi-token prediction: a whole layer, its glue, and (with ``ends``) copies of both ends."""
    count = keys.whole("num_nextn_predict_layers", default=0, low=0, high=64)
    if not count:
        return ()
    glue = (
        *norms("enorm", "hnorm", "shared_head.norm", width=its.hidden),
        Tensor("eh_proj.weight", "mtp", (its.hidden, 2 * its.hidden)),
    )
    copies = (
        Tensor("embed_tokens.weight", "mtp", (its.vocabulary, its.hidden), "vocabulary"),
        Tensor("shared_head.head.weight", "mtp", (its.vocabulary, its.hidden), "vocabulary"),
    )
    return tuple(
        Tensor(
            f"{path}.{its.layers}.{tensor.name}",
            "mtp",
            tensor.shape,
            tensor.split,
            tensor.heads,
            tensor.count * count,
            tensor.linear,
        )
        for tensor in (*tensors, *glue, *(copies if ends else ()))
    )


def latent_mixture(
    keys: Keys,
    *,
    correction: bool = True,
    indexed: Sequence[bool] | None = None,
    base: str = "model",
    head: str = "lm_head",
    extra: Tensors = (),
    beside: Tensors = (),
    bias: bool = False,
    ends: bool = True,
) -> Blueprint:
    """Latent attention in every layer, a mixture of experts in most.

    Args:
        keys: The (text) config.
        correction: Whether the router has a learned offset per expert.
        indexed: Which layers keep index keys, or None for a class without an indexer.
        base: Module that holds embedding, layers and final norm.
        head: Name of the output head.
        extra: Tensors outside the layers.
        beside: Tensors of every layer with a mixture, beside it.
        bias: Whether dense and shared MLPs have biases.
        ends: Whether prediction layers hold copies of embedding and head.
    """
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(
        keys,
        "n_routed_experts",
        "num_experts",
        "num_local_experts",
        per_token=("num_experts_per_tok", "num_experts_per_token"),
    )
    attention = latent_tensors(keys, its, rank, rope)
    plain = latent_cache(rank, rope)
    dense = gated_mlp(its.hidden, width, bias=bias)
    mixed = (*mixture(keys, its.hidden, routed, correction=correction, shared_bias=bias), *beside)
    with_index = ("latent attention with indexer", (*plain[1], *_indexer(keys)) if indexed else ())
    indexer = indexer_tensors(keys, its) if indexed is not None else ()
    layers = [
        Layer(
            *(with_index if picks else plain),
            (*attention, *(indexer if picks else ()), *(mixed if sparse else dense)),
        )
        for sparse, picks in zip(
            mixture_pattern(keys, its.layers), indexed or [False] * its.layers, strict=True
        )
    ]
    predicted = (*attention, *indexer, *mixed)
    return decoder(
        keys,
        its,
        layers,
        base=base,
        head=head,
        intermediate=width,
        experts=(routed, per_token),
        extra=(*extra, *prediction_layers(keys, its, predicted, f"{base}.layers", ends=ends)),
    )


def _indexer(keys: Keys) -> tuple[Indexer]:
    """Index keys, and how many tokens they pick for attention to read."""
    picked = keys.whole("index_topk", high=1 << 20) if keys.has("index_topk") else None
    return (Indexer(index_dim=keys.whole("index_head_dim", high=1 << 12), top_k=picked),)


@reads(
    "DeepseekV3ForCausalLM",
    family="DeepSeek-V3",
    model_types=("deepseek_v3", "kimi_k2"),
)
def deepseek_v3(keys: Keys) -> Blueprint:
    """DeepSeek-V3, R1 and Kimi K2: a learned offset per expert steers the router."""
    return latent_mixture(keys)


@reads("DeepseekV2ForCausalLM", family="DeepSeek-V2", model_types=("deepseek_v2",))
def deepseek_v2(keys: Keys) -> Blueprint:
    """DeepSeek-V2: softmax routing without offsets; without latents (OCR's decoder), the layers of DeepSeekMoE."""
    # vLLM 0.33.0, deepseek_v2.py: plain attention where heads have no part of either kind.
    if all(keys.raw(name) == 0 for name in ("qk_nope_head_dim", "qk_rope_head_dim")):
        keys.has("kv_lora_rank", "q_lora_rank", "v_head_dim")
        return deepseek_moe(keys)
    return latent_mixture(keys, correction=False, bias=keys.flag("mlp_bias", default=False))


@reads("DeepseekV32ForCausalLM", family="DeepSeek-V3", model_types=("deepseek_v32",))
def deepseek_v32(keys: Keys) -> Blueprint:
    """DeepSeek-V3.2: every layer also keeps index keys, by which it picks the tokens it reads."""
    return latent_mixture(keys, indexed=[True] * layer_count(keys))


@reads("DeepseekForCausalLM", family="DeepSeek", model_types=("deepseek", "deepseek_ocr2_text"))
def deepseek_moe(keys: Keys) -> Blueprint:
    """DeepSeekMoE (2024): plain attention, a dense first layer, shared experts beside routed ones.

    The class lives in the checkpoint's repository and has no defaults that could stand in.
    """
    its = sizes(keys)
    # The class divides, whatever a config says (transformers 5.23, configuration_deepseek_ocr2.py).
    its = replace(its, head_dim=keys.divide("hidden_size", its.hidden, "num_attention_heads", its.heads))
    width = keys.whole("intermediate_size")
    routed, per_token = expert_counts(keys, "n_routed_experts")
    bias = keys.flag("attention_bias", default=False)
    mlp_bias = keys.flag("mlp_bias", default=False)
    attention = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden),
        *self_attention(its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=bias, output_bias=bias),
    )
    dense = (*attention, *gated_mlp(its.hidden, width, bias=mlp_bias))
    mixed = (*attention, *mixture(keys, its.hidden, routed, correction=False, shared_bias=mlp_bias))
    kind, caches = attention_cache("full", its.kv_heads, its.head_dim)
    layers = [Layer(kind, caches, mixed if sparse else dense) for sparse in mixture_pattern(keys, its.layers)]
    return decoder(keys, its, layers, intermediate=width, experts=(routed, per_token))


@reads("AXK1ForCausalLM", family="A.X", model_types=("axk1",))
def axk1(keys: Keys) -> Blueprint:
    """A.X K1: DeepSeek-V3's layers with one more norm behind every mixture."""
    return latent_mixture(keys, beside=norm("post_mlp_layernorm", keys.whole("hidden_size")))


@reads("YoutuForCausalLM", family="Youtu", model_types=("youtu", "youtu_llm"))
def youtu(keys: Keys) -> Blueprint:
    """Latent attention and one gated MLP in every layer."""
    its, rank, rope = latent_sizes(keys)
    width = keys.whole("intermediate_size")
    tensors = (*latent_tensors(keys, its, rank, rope), *gated_mlp(its.hidden, width))
    layers = [Layer(*latent_cache(rank, rope), tensors)] * its.layers
    return decoder(keys, its, layers, intermediate=width, tie=tied(keys, default=True))
