"""Layers of attention and one MLP, with the variations that classes of dense decoders make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.architectures.attention import Kind, attention_cache
from kvreport.architectures.blueprint import Layer
from kvreport.architectures.decoder import Sizes
from kvreport.architectures.weights import Tensors, linear, norms, out_linear, self_attention

PRE_NORMS: Final = ("input_layernorm", "post_attention_layernorm")


def block(
    its: Sizes,
    mlp: Tensors,
    *,
    around: tuple[str, ...] = PRE_NORMS,
    norm_bias: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    inside: Tensors = (),
) -> Tensors:
    """Return the tensors of one layer.

    Args:
        its: The model's sizes.
        mlp: The MLP or the mixture of experts.
        around: Names of the norms of the residual stream's width.
        norm_bias: Whether they have a bias (LayerNorm).
        qkv_bias: Whether queries, keys and values have a bias.
        output_bias: Whether the attention's output has one.
        inside: What else the attention has, such as norms of queries and keys.
    """
    return (
        *norms(*around, width=its.hidden, bias=norm_bias),
        *self_attention(
            its.hidden, its.heads, its.kv_heads, its.head_dim, qkv_bias=qkv_bias, output_bias=output_bias
        ),
        *inside,
        *mlp,
    )


def attention_layers(
    its: Sizes,
    tensors: Tensors | Sequence[Tensors],
    kinds: Sequence[Kind] | None = None,
    span: int | None = None,
) -> list[Layer]:
    """Return all layers.

    Args:
        its: The model's sizes.
        tensors: The tensors of every layer, or a list with those of each.
        kinds: Each layer's kind; without it, all are full attention.
        span: The window of the sliding ones.
    """
    kinds = kinds or ["full"] * its.layers
    each: Sequence[Tensors] = [tensors] * its.layers if isinstance(tensors, tuple) else tensors
    return [
        Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), its_tensors)
        for kind, its_tensors in zip(kinds, each, strict=True)
    ]


def fused_attention(
    its: Sizes,
    name: str,
    output: str,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
) -> Tensors:
    """Return an attention whose checkpoint keeps queries, keys and values in one matrix.

    It is written as a row of queries and a row of keys and values, both under the matrix's name,
    because tensor parallelism divides them by different heads.

    Args:
        its: The model's sizes.
        name: Name of the one matrix.
        output: Name of the output projection.
        qkv_bias: Whether the matrix has a bias.
        output_bias: Whether the output projection has one.
    """
    queries, kv = its.heads * its.head_dim, 2 * its.kv_heads * its.head_dim
    return (
        *linear(name, "attention", queries, its.hidden, "heads", heads=its.heads, bias=qkv_bias),
        *linear(name, "attention", kv, its.hidden, "kv_heads", heads=its.kv_heads, bias=qkv_bias),
        *out_linear(output, "attention", its.hidden, queries, its.heads, bias=output_bias),
    )
