"""Storage layouts that need no entry in ``formats.yaml``: their name says every byte.

A quantizer's layout is bits, the elements that share a scale, what a scale and a zero point take,
and what a whole tensor carries besides. The names below state these, so a checkpoint of any group
or block size has an exact format without anybody listing it first:

=========================  ===============================================================
``int4-g32-sym``           4-bit integers, a 16-bit scale per 32 inputs
``int4-g32-zp``            the same with a zero point of 4 bits, packed (AWQ)
``int4-g32-z16``           the same with a 16-bit zero point (torchao, quanto)
``hqq4-g64``               HQQ: the same bytes, which other loaders read
``int4-g128-s32``          a 32-bit scale per 128 inputs, no zero point (ModelOpt)
``int8-g64-s32z8``         a 32-bit scale and an 8-bit zero point per 64 inputs (torchao)
``int8-channel-sym``       one 16-bit scale per output channel
``int4-g128-sym-2of4``     two of four weights kept: half the bits, and one bit of position each
``gptq4-g128``             GPTQ: packed zero points, and a 32-bit group index per input in the file
``fp8-block-64x128``       FP8 with a 32-bit scale per 64 x 128 weights
``mlx4-g64``               MLX affine: a 16-bit scale and a 16-bit bias per group
``mlx-nvfp4``              MLX's NVFP4, MXFP4 or MXFP8 (``mlx-mxfp4``, ``mlx-mxfp8``): tables are converted, too
``mxfp6``                  6-bit floats, an 8-bit exponent per 32 inputs (AMD Quark, compressed-tensors)
``nvfp4-g32``              4-bit floats, an FP8 scale per 32 inputs (ModelOpt, with FP8 activations)
``exl2-4.25bpw``           ExLlamaV2, by its average
``exl3-4bpw``              ExLlamaV3: the trellis, and a 16-bit scale per input and output
``aqlm-1x16-g8``           AQLM: codebooks x bits each, per group of inputs
``vptq-v8-k65536-n1-c6``   VPTQ: vectors of 8, a table of 65,536 (``-r256``: a second), bytes per input
``spqr-4.25bpw``           SpQR, by its average
``sinq4-g64``              SINQ: an 8-bit scale and zero point per group, a 16-bit scale per input
``higgs4-g256``            HIGGS: a 16-bit scale per group, and two tables of 16-bit values per tensor
``srq4``                   Gemma's own: a 32-bit scale per row and two of the activations (``-table``: without)
``fp8-channel-s16``        FP8 with a 16-bit scale per output channel (quanto)
``fp32``, ``int64`` …      stored plainly at that width
=========================  ===============================================================

Sources, by the shapes of the tensors that each one writes: AutoAWQ 0.2.9 ``awq/modules/linear/gemm.py``,
GPTQModel 7.7.0 ``nn_modules/qlinear``, compressed-tensors 0.20.0 ``compressors``, mlx-lm 0.32.2
``utils.py``, ExLlamaV3 1.6.5 ``modules/quant/exl3.py``, AQLM 1.1.7 ``inference.py``, vptq 0.0.5 ``layers/vqlinear.py``,
spqr_quant 0.2.0 ``inference.py``, SINQ 0.2.0 ``quantizer.py``, transformers
5.23.0 ``integrations/bitnet.py``, ``higgs.py`` and ``gemma_quant.py``, optimum-quanto 0.2.7 ``nn/qmodule.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Component

QUANTISED: Final[tuple[Component, ...]] = (
    "attention",
    "dense_mlp",
    "routed_experts",
    "shared_experts",
    "recurrent",
)
"""What a layout converts when a whole model is asked for in it."""

_BY_MLX: Final[tuple[Component, ...]] = (*QUANTISED, "embedding", "output_head", "other")
"""What MLX converts: every linear layer and every table outside encoders (``mlx.nn.quantize``)."""

_PLAIN: Final = {"fp32": 32, "fp64": 64, "int64": 64, "int32": 32, "int16": 16, "uint8": 8}
_NAMED: Final = {
    "int4-g128-zp": "int4",
    "int4-g64-zp": "int4-g64",
    "int4-g32-sym": "int4-g32",
    "int4-g128-z16": "int4-z16",
    "int4-g64-z16": "int4-z16-g64",
    "int4-g32-z16": "int4-z16-g32",
    "fp8-block-128x128": "fp8-block",
}
"""Layouts that ``formats.yaml`` lists under a shorter name."""

_ZERO: Final = {
    "sym": "",
    "zp": ", packed zero points",
    "z16": ", 16-bit zero points",
    "s32": ", 32-bit scales",
    "s32z8": ", 32-bit scales and 8-bit zero points",
}
_SCALE_BYTES: Final = 2


def canonical(name: str) -> str:
    """Return the shorter name of a layout that ``formats.yaml`` lists, else the name itself."""
    return _NAMED.get(name, name)


def group_of(name: str) -> int | None:
    """Return the inputs that share a scale in a layout of integers in groups; None for other layouts.

    >>> group_of("int4"), group_of("gptq4-g32"), group_of("nvfp4")
    (128, 32, None)
    """
    found = _GROUPED.match(_in_full(name))
    return None if found is None else int(found[1])


GROUPS: Final = (128, 64, 32)
"""Inputs that share a scale, as kernels of 4-bit and 8-bit integers read them, the usual first. ``-1`` of the same lists
is a whole channel (vLLM 0.33.0, ``vllm/model_executor/layers/quantization/utils/marlin_utils.py`` and SGLang 0.5.20,
``sglang/srt/layers/quantization/marlin_utils.py``, both ``MARLIN_SUPPORTED_GROUP_SIZES``: -1, 32, 64, 128)."""


def regrouped(name: str, group: int) -> str:
    """Return a layout of integers with scales over ``group`` inputs instead (0: a whole output channel); other layouts as they are.

    >>> regrouped("int4", 32), regrouped("gptq4-g128", 0), regrouped("nvfp4", 32)
    ('int4-g32-zp', 'gptq4-channel', 'nvfp4')
    """
    full = _in_full(name)
    if _GROUPED.match(full) is None:
        return name
    return canonical(re.sub(r"-g\d+", f"-g{group}" if group else "-channel", full, count=1))


def _in_full(name: str) -> str:
    return next((stated for stated, short in _NAMED.items() if short == name), name)


_GROUPED: Final = re.compile(r"(?:int|gptq)\d-g(\d+)")


def integers(bits: int, group: int, zero: str, *, sparse: bool = False) -> str:
    """Name integers with 16-bit scales.

    A ``group`` of 0 is a whole output channel. ``zero`` is ``sym`` (no zero point), ``zp`` (packed, as wide as the integers),
    ``z16`` or ``s32z8``; ``sparse`` keeps two of every four weights (2:4).
    """
    scope = f"g{group}" if group else "channel"
    return canonical(f"int{bits}-{scope}-{zero}{'-2of4' if sparse else ''}")


@cache
def layout(name: str) -> WeightFormat | None:
    """Return the format that a layout's name states, or None if it is no such name."""
    for pattern, build in _GRAMMAR:
        found = pattern.fullmatch(name)
        if found is not None:
            return build(name, *found.groups())
    return None


class Layouts(Mapping[str, WeightFormat]):
    """Weight formats by name: those of ``formats.yaml``, and every layout that its name states.

    Only the listed ones are counted and iterated over; look-up knows them all.
    """

    def __init__(self, listed: Mapping[str, WeightFormat]) -> None:
        """Begin with the listed formats."""
        self._listed = dict(listed)

    def __getitem__(self, name: str) -> WeightFormat:
        """Return a format by its exact name."""
        listed = self._listed.get(name)
        found = listed or layout(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the listed names."""
        return iter(self._listed)

    def __len__(self) -> int:
        """Count the listed names."""
        return len(self._listed)


def _made(
    name: str,
    label: str,
    bits: float,
    block: tuple[int, int] | None = None,
    scale_bytes: float = 0,
    **further: Any,  # noqa: ANN401 - other fields of a format
) -> WeightFormat:
    """A format of quantized linear layers."""
    return WeightFormat(
        name=name,
        label=label,
        bits=bits,
        block=block,
        scale_bytes=scale_bytes,
        **{"quantises": QUANTISED} | further,
    )


def _plain(name: str) -> WeightFormat:
    return WeightFormat(name=name, label=f"{name.upper()}, unquantized", bits=_PLAIN[name])


def _stated(name: str) -> WeightFormat:
    return _made(name, **_STATED[name])


def _integer(name: str, bits: str, group: str | None, zero: str, sparse: str | None) -> WeightFormat | None:
    width, size = int(bits), int(group or 0)
    if not 1 <= width <= 8 or (group is not None and not size):
        return None
    over = f"in groups of {size}" if size else "one scale per output channel"
    # What stands beside a 16-bit scale; the last has 16 bits more of it.
    zero_bytes = {"sym": 0.0, "zp": width / 8, "z16": 2.0, "s32": 2.0, "s32z8": 3.0}[zero]
    label = f"INT{width} {over}{_ZERO[zero]}{', 2:4 sparse' if sparse else ''}"
    return _made(name, label, width / 2 + 1 if sparse else width, (1, size), _SCALE_BYTES + zero_bytes)


def _hqq(name: str, bits: str, group: str) -> WeightFormat | None:
    if not int(group):
        return None
    # hqq 0.2.8, ``core/bitpack.py``: ten integers of 3 bits to a 32-bit word; the others fill their bytes.
    width = 3.2 if bits == "3" else int(bits)
    return _made(name, f"HQQ, {bits} bits in groups of {group}", width, (1, int(group)), 2 * _SCALE_BYTES)


def _gptq(name: str, bits: str, group: str | None) -> WeightFormat | None:
    width, size = int(bits), int(group or 0)
    if not 2 <= width <= 8 or (group is not None and not size):
        return None
    label = f"GPTQ, {width} bits {f'in groups of {size}' if size else 'per output channel'}"
    note = "The file stores the group number of each input in 32 bits, and engines drop it while loading."
    return _made(name, label, width, (1, size), _SCALE_BYTES + width / 8, index_bytes=4, note=note)


def _fp8_block(name: str, rows: str, columns: str) -> WeightFormat | None:
    if not int(rows) or not int(columns):
        return None
    label = f"FP8 in blocks of {rows} x {columns}"
    return _made(name, label, 8, (int(rows), int(columns)), 4, multiplies="fp8")


def _mlx(name: str, bits: str, group: str) -> WeightFormat | None:
    if int(bits) not in (2, 3, 4, 5, 6, 8) or not int(group):
        return None
    label = f"MLX, {bits} bits in groups of {group}"
    return _made(name, label, int(bits), (1, int(group)), 2 * _SCALE_BYTES, quantises=_BY_MLX)


def _mlx_float(name: str, bits: str) -> WeightFormat | None:
    kind = name.removeprefix("mlx-")
    shared = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}[kind]
    label = f"MLX {kind.upper()} ({bits} bits, an 8-bit scale per {shared})"
    return _made(name, label, int(bits), (1, shared), 1, quantises=_BY_MLX)


def _exl(name: str, version: str, bits: str) -> WeightFormat | None:
    average, label = float(bits), f"EXL{version}, {bits} bits"
    if not 1 <= average <= 16:
        return None
    if version == "2":
        return _made(name, label, average)
    return _made(name, label, average, (1, 0), _SCALE_BYTES, column_bytes=_SCALE_BYTES)


def _aqlm(name: str, books: str, bits: str, inputs: str, outputs: str | None) -> WeightFormat | None:
    count, width, across, down = int(books), int(bits), int(inputs), int(outputs or 1)
    if not (1 <= count <= 8 and 1 <= width <= 16 and across and down):
        return None
    # Codes are stored as whole bytes; a codebook has 2^bits entries of one group, 16 bits each.
    code_bits = 8 if width <= 8 else 16
    label = f"AQLM, {count} x {width} bits per {across}"
    tables = count * (1 << width) * across * down * 2
    return _made(
        name, label, count * code_bits / (across * down), (down, 0), _SCALE_BYTES, tensor_bytes=tables
    )


def _vptq(
    name: str, length: str, codes: str, further: str | None, groups: str, inputs: str
) -> WeightFormat | None:
    vector, tables, count = int(length), (int(codes), int(further or 1)), int(groups)
    if not (vector and count and all(1 <= size <= 1 << 16 for size in tables)) or vector * count > 1 << 10:
        return None
    bits = sum(size.bit_length() - 1 for size in tables)
    held = 2 * count * vector * (tables[0] + (tables[1] if further else 0))
    label = f"VPTQ, {bits} bits per {vector} weights"
    return _made(name, label, bits / vector, tensor_bytes=held, column_bytes=int(inputs))


def _spqr(name: str, bits: str) -> WeightFormat | None:
    return _made(name, f"SpQR, {float(bits):.2f} bits", float(bits)) if 1 <= float(bits) <= 16 else None


SINQ_STORED: Final = {2: 2, 3: 3.2, 4: 4, 5: 32 / 6, 6: 6.4, 8: 8}
"""Bits that a weight takes by its width: ten, six and five to a 32-bit word (SINQ 0.2.0, ``bitpack.py``)."""


def _sinq(name: str, bits: str, group: str, square: str | None) -> WeightFormat | None:
    if int(bits) not in SINQ_STORED or not int(group):
        return None
    # Scales as bytes with two 16-bit numbers per 32 of them, zero points as bytes with two per tensor.
    scale = 2 + 4 / 32
    return _made(
        name,
        f"SINQ, {bits} bits in {'squares' if square else 'groups'} of {group}",
        SINQ_STORED[int(bits)],
        (1, int(group)),
        scale + (_SCALE_BYTES if square else 0),
        column_bytes=0 if square else _SCALE_BYTES,
        tensor_bytes=2 * _SCALE_BYTES,
        note="As in the file. GemLite's kernels widen scales and zero points to 16 bits while loading.",
    )


def _ascend(name: str, bits: str) -> WeightFormat:
    label = f"Ascend W{bits}A8, scale and offset per output channel"
    note = "A float32 scale and a float32 offset per output channel, as msModelSlim writes them."
    return _made(name, label, int(bits), (1, 0), 8, multiplies="int8", note=note)


def _higgs(name: str, bits: str, group: str) -> WeightFormat:
    # Values of one code, and pairs of values of two codes.
    tables = 2 * ((1 << int(bits)) + 2 * (1 << 2 * int(bits)))
    label = f"HIGGS, {bits} bits in groups of {group}"
    return _made(name, label, int(bits), (1, int(group)), _SCALE_BYTES, tensor_bytes=tables)


def _srq(name: str, bits: str, table: str | None) -> WeightFormat:
    label = f"Gemma SRQ, {bits} bits, one scale per row"
    return _made(name, label, int(bits), (1, 0), 4, tensor_bytes=0 if table else 8)


_STATED: Final[Mapping[str, dict[str, Any]]] = {
    "bf16-2of4": {"label": "16-bit, 2:4 sparse", "bits": 9},
    "bitnet": {"label": "BitNet (ternary weights, 2 bits each)", "bits": 2, "tensor_bytes": 2},
    "fp8-channel-2of4": {"label": "FP8, one scale per output channel, 2:4 sparse", "bits": 5, "block": (1, 0), "scale_bytes": 4, "multiplies": "fp8"},
    "fp8-channel-s16": {"label": "FP8, one 16-bit scale per output channel", "bits": 8, "block": (1, 0), "scale_bytes": 2, "multiplies": "fp8"},
    "mxfp6": {"label": "MXFP6 (6 bits, a shared exponent per 32 values)", "bits": 6, "block": (1, 32), "scale_bytes": 1},
    "nvfp4-g32": {"label": "NVFP4 (4 bits, an FP8 scale per 32)", "bits": 4, "block": (1, 32), "scale_bytes": 1, "tensor_bytes": 4, "multiplies": "fp8"},
}  # fmt: skip
"""Layouts whose names have no number to read."""

FAMILIES: Final = ("exl2", "exl3", "aqlm", "vptq", "spqr")
"""How the names of layouts begin that state no group next; a rule may be about all of one family."""

_Build = Callable[..., WeightFormat | None]
_N: Final = r"(\d{1,5})"
_GRAMMAR: Final[tuple[tuple[re.Pattern[str], _Build], ...]] = (
    (re.compile(rf"(?:{'|'.join(_PLAIN)})"), _plain),
    (re.compile("|".join(_STATED)), _stated),
    (re.compile(rf"int(\d)-(?:g{_N}|channel)-(sym|zp|z16|s32z8|s32)(-2of4)?"), _integer),
    (re.compile(rf"hqq([12348])-g{_N}"), _hqq),
    (re.compile(rf"gptq(\d)-(?:g{_N}|channel)"), _gptq),
    (re.compile(rf"fp8-block-{_N}x{_N}"), _fp8_block),
    (re.compile(rf"mlx(\d)-g{_N}"), _mlx),
    (re.compile(r"mlx-(?:nvfp(?=4)|mxfp)([48])"), _mlx_float),
    (re.compile(r"exl([23])-(\d{1,2}(?:\.\d{1,2})?)bpw"), _exl),
    (re.compile(r"aqlm-(\d)x(\d{1,2})-g(\d{1,3})(?:o(\d{1,3}))?"), _aqlm),
    (re.compile(rf"vptq-v(\d{{1,2}})-k{_N}(?:-r{_N})?-n(\d{{1,2}})-c([0246])"), _vptq),
    (re.compile(r"spqr-(\d{1,2}(?:\.\d{1,6})?)bpw"), _spqr),
    (re.compile(rf"sinq([2-6]|8)-g{_N}(-2d)?"), _sinq),
    (re.compile(r"higgs([234])-g(64|128|256)"), _higgs),
    (re.compile(r"srq([248])(-table)?"), _srq),
    (re.compile(r"ascend-w([48])a8"), _ascend),
)
