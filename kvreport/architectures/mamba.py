"""Mamba-1 and Mamba-2 mixers: what they keep per request, and their tensors.

Source of the state's shape: vLLM 0.33, ``layers/mamba/mamba_utils.py``. A state is constant: the
last ``kernel - 1`` columns of the convolution's input, and the recurrence itself.
"""

from __future__ import annotations

from kvreport.architectures.blueprint import Weight
from kvreport.architectures.weights import Tensors, linear, norm, out_linear
from kvreport.catalog.caches import Cache, Precision, RecurrentState, StateTensor


def mamba1_state(inner: int, state: int, kernel: int) -> RecurrentState:
    """Return the state of a Mamba-1 layer of ``inner`` channels with ``state`` elements each."""
    conv = StateTensor(name="conv", channels=inner, columns=kernel - 1)
    recurrent = StateTensor(name="recurrent", channels=inner, columns=state)
    return RecurrentState(mechanism="mamba1", tensors=(conv, recurrent))


def mamba2_state(
    heads: int, head_dim: int, groups: int, state: int, kernel: int, precision: Precision = "model"
) -> RecurrentState:
    """Return the state of a Mamba-2 layer; B and C of each group pass the convolution as well."""
    conv = StateTensor(
        name="conv",
        channels=heads * head_dim,
        columns=kernel - 1,
        groups=groups,
        channels_per_group=2 * state,
    )
    recurrent = StateTensor(name="recurrent", channels=heads, columns=head_dim * state, precision=precision)
    return RecurrentState(mechanism="mamba2", tensors=(conv, recurrent))


def mamba1_tensors(
    hidden: int,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    *,
    bias: bool,
    conv_bias: bool,
) -> Tensors:
    """Mamba-1: input and gate, a depthwise convolution, the selective parameters, the output."""
    return (
        *linear("mixer.in_proj", "recurrent", 2 * inner, hidden, "columns", bias=bias),
        Weight("mixer.conv1d.weight", "recurrent", (inner, 1, kernel), "columns"),
        *((Weight("mixer.conv1d.bias", "recurrent", (inner,), "columns"),) if conv_bias else ()),
        *linear("mixer.x_proj", "recurrent", rank + 2 * state, inner, "rows"),
        *linear("mixer.dt_proj", "recurrent", inner, rank, "columns", bias=True),
        Weight("mixer.A_log", "recurrent", (inner, state), "columns"),
        Weight("mixer.D", "recurrent", (inner,), "columns"),
        *linear("mixer.out_proj", "recurrent", hidden, inner, "rows", bias=bias),
    )


def mamba2_tensors(
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    *,
    path: str = "mixer",
    bias: bool,
    conv_bias: bool = True,
) -> Tensors:
    """Mamba-2: one input projection, a depthwise convolution, a state per head, a gated norm.

    The input projection and the convolution are listed in two parts each (``zxdt`` and ``bc``),
    because tensor parallelism divides the heads' part and repeats the groups' part once there are
    more ranks than groups.
    """
    inner, grouped = heads * head_dim, 2 * groups * state
    tensors = (
        *linear(
            f"{path}.in_proj.zxdt", "recurrent", 2 * inner + heads, hidden, "heads", heads=heads, bias=bias
        ),
        *linear(f"{path}.in_proj.bc", "recurrent", grouped, hidden, "groups", heads=groups, bias=bias),
        Weight(f"{path}.conv1d.x.weight", "recurrent", (inner, 1, kernel), "heads", heads),
        Weight(f"{path}.conv1d.bc.weight", "recurrent", (grouped, 1, kernel), "groups", groups),
        Weight(f"{path}.A_log", "recurrent", (heads,), "heads", heads),
        Weight(f"{path}.D", "recurrent", (heads,), "heads", heads),
        Weight(f"{path}.dt_bias", "recurrent", (heads,), "heads", heads),
        *out_linear(f"{path}.out_proj", "recurrent", hidden, inner, heads, bias=bias),
    )
    if conv_bias:
        tensors += (
            Weight(f"{path}.conv1d.x.bias", "recurrent", (inner,), "heads", heads),
            Weight(f"{path}.conv1d.bc.bias", "recurrent", (grouped,), "groups", groups),
        )
    return (*tensors, *norm(f"{path}.norm", inner, component="recurrent"))


def state_caches(name: str, state: RecurrentState) -> tuple[str, tuple[Cache, ...]]:
    """Return a layer's name and caches, where the state is all it keeps."""
    return name, (state,)
