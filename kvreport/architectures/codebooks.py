"""Quantizers with layouts of their own: EXL2, EXL3, AQLM, BitNet, EETQ, FP-Quant, Ascend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvreport.architectures.keys import Keys
from kvreport.architectures.rules import (
    Quantization,
    narrowest,
    skip,
    take_everything,
    take_layers,
    under,
)
from kvreport.catalog.layouts import integers

_ASCEND: Final = {"W8": "ascend-w8a8", "W4": "ascend-w4a8"}


def exllama(found: Quantization, own: Keys) -> None:
    """EXL2 and EXL3: an average for the layers, another for the head; EXL3 lists every module."""
    version = (own.text("quant_method") or "exl2")[-1]
    average = own.number("bits", low=1, high=16)
    form = f"exl{version}-{average:g}bpw"
    stored = own.section("tensor_storage")
    if stored is not None:
        listed = _stored(stored, version)
        for its in sorted(set(listed.values())):
            found.take(under(frozenset(name for name, one in listed.items() if one == its)), its)
        found.weight_format = form
        return
    if own.has("head_bits"):
        head = f"exl{version}-{own.number('head_bits', low=1, high=16):g}bpw"
        found.take(lambda module: module.endswith("lm_head"), head)
    take_layers(found, form)


def _stored(stored: Keys, version: str) -> dict[str, str]:
    listed = {}
    for name in stored.data:
        entry = stored.section(name)
        if entry is not None and entry.has("bits_per_weight"):
            bits = entry.number("bits_per_weight", low=1, high=16)
            listed[name] = f"exl{version}-{bits:g}bpw"
    return listed


def aqlm(found: Quantization, own: Keys) -> None:
    """AQLM: codes into learned codebooks, for groups of inputs (and outputs)."""
    books = own.whole("num_codebooks", default=1, high=8)
    bits = own.whole("nbits_per_codebook", default=16, high=16)
    across = own.whole("in_group_size", default=8, high=256)
    down = own.whole("out_group_size", default=1, high=256)
    kept = own.texts("linear_weights_not_to_quantize") or []
    names = frozenset(name.removesuffix(".weight") for name in kept)
    if names:
        found.leave(under(names))
    take_layers(found, f"aqlm-{books}x{bits}-g{across}{f'o{down}' if down > 1 else ''}")


def bitnet(found: Quantization, own: Keys) -> None:
    """BitNet: four ternary weights to a byte, unless the checkpoint is quantised while loading."""
    skip(found, own, "modules_to_not_convert")
    if own.text("quantization_mode", default="offline") == "online":
        return
    take_layers(found, "bitnet")


def eetq(found: Quantization, own: Keys) -> None:
    """EETQ: bytes with a 16-bit scale per output channel, the head left alone."""
    skip(found, own, "modules_to_not_convert")
    take_everything(found, integers(8, 0, "sym"))


def fp_quant(found: Quantization, own: Keys) -> None:
    """FP-Quant: MXFP4 or NVFP4, packed unless it says that it is only simulated."""
    kind = own.text("forward_dtype", default="mxfp4")
    if kind not in ("mxfp4", "nvfp4") or own.flag("pseudoquantization", default=False):
        raise own.fault("forward_dtype", kind, "mxfp4 or nvfp4, not pseudoquantization")
    skip(found, own, "modules_to_not_convert")
    take_everything(found, kind)


def ascend(found: Quantization, description: Keys) -> None:
    """Ascend: msModelSlim's ``quant_model_description.json``: the type of every tensor by its name."""
    by_form: dict[str, set[str]] = {}
    for name, kind in _weights(description.data).items():
        form = next((form for prefix, form in _ASCEND.items() if kind.startswith(prefix)), None)
        if form is not None:
            by_form.setdefault(form, set()).add(name)
        elif kind not in ("FLOAT", "BF16", "FLOAT16"):
            raise description.fault(name, kind, "FLOAT, W8A8, W8A16, W4A8 or W4A16, static or dynamic")
    for form in sorted(by_form):
        found.take(under(frozenset(by_form[form])), form)
    found.weight_format = narrowest(by_form)


def _weights(data: Mapping[str, Any]) -> dict[str, str]:
    return {
        name.removesuffix(".weight"): kind.upper()
        for name, kind in data.items()
        if name.endswith(".weight") and isinstance(kind, str)
    }
