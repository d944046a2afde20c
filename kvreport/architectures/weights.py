"""Builders of the tensors that transformer layers are made of.

Shapes are those of the published checkpoints, output dimension first. The split is what serving
engines do with tensor parallelism: column-parallel into the heads or the wide side, row-parallel
back out of it, with a row-parallel bias whole on every rank.
"""

from __future__ import annotations

from dataclasses import replace

from kvreport.architectures.blueprint import Weight
from kvreport.catalog.model import Component, Split

Tensors = tuple[Weight, ...]


def linear(
    name: str,
    component: Component,
    outputs: int,
    inputs: int,
    split: Split = "replicated",
    *,
    heads: int | None = None,
    bias: bool = False,
    count: int = 1,
) -> Tensors:
    """A linear layer; ``rows`` and output projections keep their bias whole on every rank."""
    weight = Weight(f"{name}.weight", component, (outputs, inputs), split, heads, count, linear=True)
    if not bias:
        return (weight,)
    whole = split == "rows"
    return (
        weight,
        Weight(
            f"{name}.bias",
            component,
            (outputs,),
            "replicated" if whole else split,
            None if whole else heads,
            count,
        ),
    )


def out_linear(
    name: str, component: Component, outputs: int, inputs: int, heads: int, *, bias: bool = False
) -> Tensors:
    """An output projection: its input side is divided by heads, its bias is not divided."""
    weight = linear(name, component, outputs, inputs, "heads", heads=heads)
    return (*weight, Weight(f"{name}.bias", component, (outputs,))) if bias else weight


def norm(name: str, width: int, *, bias: bool = False, component: Component = "norms") -> Tensors:
    """A normalisation's weight, and its bias where it is a LayerNorm."""
    weight = Weight(f"{name}.weight", component, (width,))
    return (weight, Weight(f"{name}.bias", component, (width,))) if bias else (weight,)


def norms(*names: str, width: int, bias: bool = False) -> Tensors:
    """Several normalisations of one width."""
    return tuple(tensor for name in names for tensor in norm(name, width, bias=bias))


def embedding(vocabulary: int, width: int, name: str = "model.embed_tokens") -> Tensors:
    """The token embedding."""
    return (Weight(f"{name}.weight", "embedding", (vocabulary, width), "vocabulary"),)


def output_head(vocabulary: int, width: int, name: str = "lm_head", *, bias: bool = False) -> Tensors:
    """The output head of a model that does not share it with the embedding."""
    weight = Weight(f"{name}.weight", "output_head", (vocabulary, width), "vocabulary", linear=True)
    return (weight, Weight(f"{name}.bias", "output_head", (vocabulary,), "vocabulary")) if bias else (weight,)


def self_attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    prefix: str = "self_attn",
    qkv_bias: bool = False,
    output_bias: bool = False,
    query_gate: bool = False,
    has_value: bool = True,
    has_key: bool = True,
    input_width: int | None = None,
) -> Tensors:
    """Query, key, value and output projections of (grouped-query) attention.

    Args:
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key/value heads.
        head_dim: Width of a query or key head.
        value_dim: Width of a value head if it differs.
        prefix: Module name.
        qkv_bias: Whether queries, keys and values have a bias.
        output_bias: Whether the output has one.
        query_gate: True if the query projection also makes a gate of the same width (Qwen3.5).
        has_value: False where the value is the key (Gemma 4's global layers).
        has_key: False where keys and values are another layer's.
        input_width: Width of the input if it is not ``hidden``.
    """
    value_dim = value_dim or head_dim
    inputs = input_width or hidden
    queries = heads * head_dim * (2 if query_gate else 1)
    tensors = linear(f"{prefix}.q_proj", "attention", queries, inputs, "heads", heads=heads, bias=qkv_bias)
    if has_key:
        tensors += linear(
            f"{prefix}.k_proj",
            "attention",
            kv_heads * head_dim,
            inputs,
            "kv_heads",
            heads=kv_heads,
            bias=qkv_bias,
        )
    if has_key and has_value:
        tensors += linear(
            f"{prefix}.v_proj",
            "attention",
            kv_heads * value_dim,
            inputs,
            "kv_heads",
            heads=kv_heads,
            bias=qkv_bias,
        )
    return tensors + out_linear(
        f"{prefix}.o_proj", "attention", hidden, heads * value_dim, heads, bias=output_bias
    )


def gated_mlp(
    hidden: int,
    width: int,
    prefix: str = "mlp",
    component: Component = "dense_mlp",
    *,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
    count: int = 1,
) -> Tensors:
    """Gate, up and down projections."""
    gate, up, down = names
    return (
        *linear(f"{prefix}.{gate}", component, width, hidden, "columns", bias=bias, count=count),
        *linear(f"{prefix}.{up}", component, width, hidden, "columns", bias=bias, count=count),
        *linear(f"{prefix}.{down}", component, hidden, width, "rows", bias=bias, count=count),
    )


def plain_mlp(
    hidden: int,
    width: int,
    prefix: str = "mlp",
    component: Component = "dense_mlp",
    *,
    names: tuple[str, str] = ("up_proj", "down_proj"),
    bias: bool = False,
    count: int = 1,
) -> Tensors:
    """Up and down projections without a gate."""
    up, down = names
    return (
        *linear(f"{prefix}.{up}", component, width, hidden, "columns", bias=bias, count=count),
        *linear(f"{prefix}.{down}", component, hidden, width, "rows", bias=bias, count=count),
    )


def experts(tensors: Tensors) -> Tensors:
    """The same tensors as parts of routed experts."""
    return tuple(
        replace(tensor, component="routed_experts", split="experts", heads=None) for tensor in tensors
    )


def routed_experts(
    hidden: int,
    width: int,
    count: int,
    prefix: str = "mlp.experts.*",
    *,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Tensors:
    """``count`` experts of three matrices each."""
    return experts(gated_mlp(hidden, width, prefix, names=names, count=count))


def router(hidden: int, count: int, name: str = "mlp.gate", *, bias: bool = False) -> Tensors:
    """The matrix that scores the experts; kept in 16 or 32 bits by every quantiser met so far.

    Args:
        hidden: Width of the residual stream.
        count: Routed experts.
        name: Path below the layer.
        bias: True for a bias of one number per expert.
    """
    weight = Weight(f"{name}.weight", "router", (count, hidden))
    return (weight, Weight(f"{name}.bias", "router", (count,))) if bias else (weight,)


def correction_bias(
    count: int, name: str = "mlp.gate.e_score_correction_bias", *, stored: str | None = None
) -> Tensors:
    """One learned offset per expert, added before the choice of experts; ``stored`` as ``fp32`` by some checkpoints."""
    return (Weight(name, "router", (count,), stored=stored),)
