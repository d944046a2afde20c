"""Mamba-1 and Mamba-2 mixers: what they keep per request, and the tensors of the second.

Source of the state's shape: vLLM 0.33, ``layers/mamba/mamba_utils.py``. A state is constant: the
last ``kernel - 1`` columns of the convolution's input, and the recurrence itself.
"""

from __future__ import annotations

from typing import NamedTuple

from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.tensor_builders import Tensors
from kvreport.catalog.caches import Cache, Precision, RecurrentState, StateTensor


def mamba1_state(inner: int, state: int, kernel: int) -> RecurrentState:
    """Return the state of a Mamba-1 layer of ``inner`` channels with ``state`` elements each."""
    conv = StateTensor(name="conv", channels=inner, columns=kernel - 1)
    recurrent = StateTensor(name="recurrent", channels=inner, columns=state)
    return RecurrentState(mechanism="mamba1", tensors=(conv, recurrent))


class Mamba2(NamedTuple):
    """Widths of a Mamba-2 mixer."""

    heads: int
    head_dim: int
    groups: int
    state: int  # Elements of each group's state.
    kernel: int

    def cache(self, precision: Precision = "model") -> RecurrentState:
        """Return what a layer keeps; B and C of each group pass the convolution as well."""
        heads, head_dim, groups, state, kernel = self
        conv = StateTensor(
            name="conv",
            channels=heads * head_dim,
            columns=kernel - 1,
            groups=groups,
            channels_per_group=2 * state,
        )
        columns = head_dim * state
        recurrent = StateTensor(name="recurrent", channels=heads, columns=columns, precision=precision)
        return RecurrentState(mechanism="mamba2", tensors=(conv, recurrent))

    def tensors(self, keys: Keys, path: str, hidden: int, *, bias: bool, conv_bias: bool = True) -> Tensors:
        """Return the tensors of a mixer in a model of ``hidden`` channels."""
        heads, head_dim, groups, state, kernel = self
        given = {"hidden": hidden, "ssm_heads": heads, "ssm_dim": head_dim, "mamba_n_groups": groups}
        given |= {"mamba_d_state": state, "mamba_d_conv": kernel, "mamba_conv_bias": conv_bias}
        return part("mamba2", keys, path, **given, bias_ssm=bias, bias_ssm_out=bias, gated_norm=True)


def state_caches(name: str, state: RecurrentState) -> tuple[str, tuple[Cache, ...]]:
    """Return a layer's name and caches, where the state is all it keeps."""
    return name, (state,)
