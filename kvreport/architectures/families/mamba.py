"""Mamba, Mamba-2 and Falcon-Mamba: state-space models without any attention."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, decoder, open_context, stateful_sizes
from kvreport.architectures.keys import Keys
from kvreport.architectures.mamba_mixers import (
    Mamba2,
    mamba1_state,
    state_caches,
)
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import norm

USUAL_CONTEXT: Final = 2048


@reads(
    "MambaForCausalLM",
    "FalconMambaForCausalLM",
    family="Mamba",
    model_types=("mamba", "falcon_mamba"),
)
def mamba(keys: Keys) -> Blueprint:
    """Mamba-1 in every layer and no MLP.

    ``intermediate_size`` wins over ``expand``: Falcon-Mamba states 16 for the latter and means 2.
    """
    longest, notes = open_context(keys, USUAL_CONTEXT)
    its = stateful_sizes(keys, longest)
    inner = keys.whole("intermediate_size", default=keys.whole("expand", high=64) * its.hidden)
    state = keys.whole("state_size", high=1 << 12)
    kernel = keys.whole("conv_kernel", low=2, high=1 << 10)
    given = {"hidden": its.hidden, "inner": inner, "rank": step_rank(keys, its.hidden, "time_step_rank")}
    given |= {"mamba_d_state": state, "mamba_d_conv": kernel, "mamba_proj_bias": keys.flag("use_bias")}
    mixer = part("mamba1", keys, "mixer", **given, mamba_conv_bias=keys.flag("use_conv_bias"))
    cache = state_caches("Mamba", mamba1_state(inner, state, kernel))
    layer = Layer(*cache, (*norm("norm", its.hidden), *mixer))
    return _assemble(keys, its, layer, notes)


@reads("Mamba2ForCausalLM", family="Mamba", model_types=("mamba2",))
def mamba2(keys: Keys) -> Blueprint:
    """Mamba-2 in every layer and no MLP (Codestral Mamba)."""
    longest, notes = open_context(keys, USUAL_CONTEXT)
    its = stateful_sizes(keys, longest)
    sizes = Mamba2(
        heads=keys.whole("num_heads", high=1 << 14),
        head_dim=keys.whole("head_dim", high=1 << 14),
        groups=keys.whole("n_groups", high=1 << 12),
        state=keys.whole("state_size", high=1 << 14),
        kernel=keys.whole("conv_kernel", low=2, high=1 << 10),
    )
    inner = keys.whole("expand", high=64) * its.hidden
    if sizes.heads * sizes.head_dim != inner:
        raise keys.fault(
            "num_heads",
            f"{sizes.heads} heads of {sizes.head_dim}",
            f"expand times hidden_size ({inner}) in all",
        )
    bias, conv_bias = keys.flag("use_bias"), keys.flag("use_conv_bias")
    mixer = sizes.tensors(keys, "mixer", its.hidden, bias=bias, conv_bias=conv_bias)
    layer = Layer(*state_caches("Mamba-2", sizes.cache()), (*norm("norm", its.hidden), *mixer))
    return _assemble(keys, its, layer, notes)


def step_rank(keys: Keys, hidden: int, name: str) -> int:
    """Read the rank of Mamba-1's time step; ``auto`` and a missing key mean a 16th of the width."""
    stated = keys.raw(name)
    if stated is not None and stated != "auto":
        return keys.whole(name)
    rank = -(-hidden // 16)
    if stated is None:
        keys.trail.usual[keys.field(name)] = rank
    return rank


def _assemble(keys: Keys, its: Sizes, layer: Layer, notes: list[str]) -> Blueprint:
    return decoder(
        keys,
        its,
        [layer] * its.layers,
        base="backbone",
        embed="embeddings",
        final_norm="norm_f",
        notes=notes,
    )
