"""One planned step: how many tokens, sequences, outputs and cells the worst case has."""

from __future__ import annotations

from dataclasses import dataclass

from kvreport.accounting.engines.llama_cpp.tensors import Tensor, add, like, mul, mul_mat, weight
from kvreport.accounting.engines.llama_cpp.types import TYPES, GgmlType


@dataclass(frozen=True)
class WorstStep:
    """The worst case that llama.cpp reserves for (``llama_context::sched_reserve``).

    Attributes:
        tokens: Tokens of the micro-batch, a multiple of ``sequences``.
        sequences: Sequences in it.
        outputs: Tokens whose logits are wanted.
        cells: Cells that a full-attention layer reads, per stream.
        window_cells: Cells that a window layer reads, per stream.
        streams: Streams of the cache: 1 if unified.
        flash: True if caches are laid out for flash attention.
        fused: False if flash attention was found to run on another device than its layer and was disabled.
        auto: True if that is checked (``--flash-attn auto``).
        rotated_keys: Width of the rotation of quantized keys in full and in window layers, 0 if none.
        rotated_values: The same for values.
        wide_keys: True if the cache is in 32 bits and flash attention has to convert it.
        value_padding: Values per token of the widest layer, if the transposed cache pads to it, else 0.
        rollback: Copies of a recurrent state kept for rollback.
        slots: Sequences that states are kept for.
        wide_masks: True if masks are filled in 32 bits and cast for flash attention.
        key_type: Storage type of cached keys.
        value_type: Storage type of cached values.
    """

    tokens: int
    sequences: int
    outputs: int
    cells: int
    window_cells: int
    streams: int = 1
    flash: bool = True
    fused: bool = True
    auto: bool = False
    rotated_keys: tuple[int, int] = (0, 0)
    rotated_values: tuple[int, int] = (0, 0)
    wide_keys: bool = False
    value_padding: int = 0
    rollback: int = 0
    slots: int = 1
    wide_masks: bool = False
    key_type: GgmlType = TYPES["f16"]
    value_type: GgmlType = TYPES["f16"]


def linear(x: Tensor, width: int, home: int, *, biased: bool) -> Tensor:
    """A matrix of so many outputs times ``x``, at ``home``, and its bias where it is ``biased``."""
    cur = mul_mat(weight(x.ne[0], width, home=home), x)
    return add(cur, weight(width, home=home)) if biased else cur


def norm(x: Tensor, home: int, *, layer_norm: bool = False) -> Tensor:
    """A norm and its weight (``build_norm``): RMS, or a layer norm, which has a bias, too."""
    cur = mul(like("norm" if layer_norm else "rms_norm", x), weight(x.ne[0], home=home))
    return add(cur, weight(x.ne[0], home=home)) if layer_norm else cur
