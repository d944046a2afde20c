"""compressed-tensors: what LLM Compressor writes.

Layouts as compressed-tensors 0.20.0 writes them (``compressors/pack_quantized``, ``naive_quantized``,
``nvfp4``, ``mxfp4``, ``mxfp8``), and 0.12's ``marlin_24`` and ``sparse_24_bitmask``.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.keys import Keys
from kvreport.architectures.quantized_modules import Quantization, integer_form, matcher, narrowest, skip
from kvreport.catalog.layouts import integers

_SPARSE: Final = ("marlin-24", "sparse-24-bitmask")
"""Formats that keep two of every four weights."""
_DENSE: Final = ("dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized")


def compressed_tensors(found: Quantization, own: Keys) -> None:
    """Groups of modules, each with a scheme for its weights; the rest is left alone."""
    thinned = _thinned(own)
    # A name is a module, never what is below it (compressed-tensors 0.20, utils/match.py; vLLM 0.33,
    # quantization/utils/config_utils.py::find_matching_patterns). ModelOpt's own lists have wildcards.
    theirs = own.text("quant_method") == "compressed-tensors"
    skip(found, own, "ignore", wildcards=not theirs, exact=theirs)
    groups = own.section("config_groups")
    if groups is None and thinned:
        found.take(lambda _module: True, "bf16-2of4", towers=False)
        found.keeps_head = True
        found.weight_format = "bf16-2of4"
        return
    if groups is None:
        raise own.fault("config_groups", None, "an object of groups")
    forms: list[str] = []
    general: list[str] = []
    for _, group in own.entries("config_groups"):
        weights = group.section("weights")
        if weights is None:
            continue
        packing = group.text("format") or own.text("format") or ""
        form = _scheme(weights, packing, sparse=thinned or packing in _SPARSE)
        forms.append(form)
        targets = group.texts("targets") or ["Linear"]
        named = [target for target in targets if target != "Linear"]
        if len(named) < len(targets):
            general.append(form)
        if named:
            found.take(matcher(group, "targets", named, wildcards=False), form)
    if not forms:
        raise own.fault("config_groups", "no group with weights", "at least one group with weights")
    # A module's own name counts before the kind of layer it is.
    for form in general:
        found.take(lambda _module: True, form, towers=False)
    found.weight_format = narrowest(forms)


def _thinned(own: Keys) -> bool:
    """True if two of four weights are kept; other sparsity is refused."""
    if own.text("format") in _SPARSE:
        return True
    section = own.section("sparsity_config")
    kind = section.text("format") if section is not None else None
    if kind is None or kind in _DENSE:
        return False
    if kind not in _SPARSE:
        assert section is not None  # noqa: S101 - it named the kind
        raise section.fault("format", kind, f"dense, {' or '.join(_SPARSE)}")
    return True


def _scheme(weights: Keys, packing: str, *, sparse: bool) -> str:
    bits = weights.whole("num_bits", high=16)
    kind = weights.text("type", default="int")
    if kind == "int" and 2 <= bits <= 8:
        return _integers(weights, bits, packing, sparse=sparse)
    if kind == "float" and bits in (4, 8):
        form = _floats(weights, bits)
        if not sparse:
            return form
        if form in ("fp8-channel", "fp8-tensor"):
            return "fp8-channel-2of4"
    if kind == "float" and bits == 6 and not sparse and weights.optional("group_size", low=-1) == 32:
        return "mxfp6"
    raise weights.fault(
        "num_bits",
        f"{kind} with {bits} bits{', 2:4 sparse' if sparse else ''}",
        "float with 4 or 8 bits, or 6 in groups of 32, int with 2 to 8 bits",
    )


def _floats(weights: Keys, bits: int) -> str:
    strategy = weights.text("strategy")
    size = weights.optional("group_size", low=-1)
    if bits == 4:
        return "mxfp4" if size == 32 else "nvfp4"
    if strategy == "block":
        sides = weights.wholes("block_structure", length=2, low=1, high=1 << 15) or [128, 128]
        return block_form(*sides)
    if size == 32:
        return "mxfp8"
    if strategy in ("group", "tensor_group") and size:
        return block_form(1, size)
    return "fp8-channel" if strategy == "channel" else "fp8-tensor"


def _integers(weights: Keys, bits: int, packing: str, *, sparse: bool) -> str:
    """Packed integers take their bits; what is not packed takes a byte each."""
    size = weights.optional("group_size", low=-1)
    strategy = weights.text("strategy") or ("group" if size and size > 0 else "channel")
    group = size if strategy == "group" and size and size > 0 else 0
    if not sparse and packing != "pack-quantized" and (bits == 8 or packing):
        # Bytes with a scale per output channel or tensor; engines keep the scale as float32.
        return integers(8, group, "sym") if group else "int8"
    zero = "sym" if weights.flag("symmetric", default=True) else "zp"
    if sparse:
        return integers(bits, group, zero, sparse=True)
    return integer_form(weights, bits, group, zero)


def block_form(rows: int, columns: int) -> str:
    """Name FP8 in blocks of this size."""
    return "fp8-block" if (rows, columns) == (128, 128) else f"fp8-block-{rows}x{columns}"
