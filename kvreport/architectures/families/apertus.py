"""Apertus, Arcee and Nemotron-4, whose MLPs have no gate; and Helium."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint, Tensor
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import gated_mlp, norms, plain_mlp


@reads("ApertusForCausalLM", family="Apertus", model_types=("apertus",))
def apertus(keys: Keys) -> Blueprint:
    """Normalised queries and keys; its activation (xIELU) has four numbers of its own per layer."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    mlp = plain_mlp(its.hidden, width)
    if keys.text("hidden_act") == "xielu":
        for name in ("alpha_p", "alpha_n", "beta", "eps"):
            mlp += (Tensor(f"mlp.act_fn.{name}", "dense_mlp", (1,)),)
    tensors = block(
        its,
        mlp,
        around=("attention_layernorm", "feedforward_layernorm"),
        qkv_bias=bias,
        output_bias=bias,
        inside=norms("self_attn.q_norm", "self_attn.k_norm", width=its.head_dim),
    )
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)


@reads("ArceeForCausalLM", family="Arcee", model_types=("arcee",))
def arcee(keys: Keys) -> Blueprint:
    """As Llama, with squared ReLU instead of a gate."""
    return ungated(keys, norm_bias=False)


def ungated(keys: Keys, *, norm_bias: bool) -> Blueprint:
    """Return a decoder whose MLP has two matrices, without a gate.

    Args:
        keys: The (text) config.
        norm_bias: Whether its norms have a bias (LayerNorm).
    """
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    mlp = plain_mlp(its.hidden, width, bias=keys.flag("mlp_bias"))
    tensors = block(its, mlp, norm_bias=norm_bias, qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), norm_bias=norm_bias, intermediate=width)


@reads("NemotronForCausalLM", family="Nemotron-4", model_types=("nemotron",))
def nemotron(keys: Keys) -> Blueprint:
    """Nemotron-4 and Minitron: as Arcee, with LayerNorms."""
    return ungated(keys, norm_bias=True)


@reads("HeliumForCausalLM", family="Helium", model_types=("helium",))
def helium(keys: Keys) -> Blueprint:
    """As Llama; its output projection never has a bias."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    mlp = gated_mlp(its.hidden, width, bias=keys.flag("mlp_bias"))
    tensors = block(its, mlp, qkv_bias=keys.flag("attention_bias"))
    return decoder(keys, its, attention_layers(its, tensors), intermediate=width)
