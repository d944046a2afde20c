"""Quantizers with layouts of their own: EXL2, EXL3, AQLM, VPTQ, SpQR, SINQ, BitNet, EETQ, FP-Quant, Ascend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kvreport.architectures.keys import Keys
from kvreport.architectures.quantized_modules import (
    Matcher,
    Quantization,
    convert,
    leave_listed,
    narrowest,
    skip,
    take_everything,
    take_layers,
    take_named,
    under,
)
from kvreport.catalog.layouts import SINQ_STORED, integers

_FILES: Final = "; or give the folder with its safetensors files, whose headers say every byte"
_SPQR_BYTES: Final = {"dense_weights": 8, "row_offsets": 4, "col_vals": 4, "in_perm": 4}
"""Bytes of one number of each of SpQR's tensors (spqr_quant 0.2.0, ``inference.py``)."""
_SPQR_WEIGHTS: Final = 16
"""Weights in one 64-bit number of ``dense_weights``."""

_ASCEND: Final = {"W8": "ascend-w8a8", "W4": "ascend-w4a8"}


_PREDICTION: Final = re.compile(r"(?:^|\.)mtp\.")
_PICTURES: Final = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model)\.")
_PLAIN_BITS: Final = 16


def exllama(found: Quantization, own: Keys) -> None:
    """EXL2 and EXL3: an average for the layers, another for the head; EXL3 lists every module."""
    version = (own.text("quant_method") or "exl2")[-1]
    average = own.number("bits", low=1, high=16)
    form = f"exl{version}-{average:g}bpw"
    if own.section("tensor_storage") is not None:
        stored = own.entries("tensor_storage")
        averages = {
            name: entry.number("bits_per_weight", low=1, high=16)
            for name, entry in stored
            if entry.has("bits_per_weight")
        }
        take_named(found, {name: f"exl{version}-{each:g}bpw" for name, each in averages.items()})
        found.weight_format = form
        return
    if own.has("head_bits"):
        head = f"exl{version}-{own.number('head_bits', low=1, high=16):g}bpw"
        found.take(lambda module: module.endswith("lm_head"), head)
    # ExLlamaV3 1.5 states prediction layers and image encoder apart; 16 bits, its default for the encoder, are no format.
    for key, part in (("mtp_bits", _PREDICTION), ("vision_bits", _PICTURES)):
        bits = own.number(key, low=1, high=16) if own.has(key) else None
        if bits == _PLAIN_BITS:
            found.leave(_within(part))
        elif bits is not None:
            found.take(_within(part), f"exl{version}-{bits:g}bpw")
    take_layers(found, form)


def _within(part: re.Pattern[str]) -> Matcher:
    return lambda module: part.search(module) is not None


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


def vptq(found: Quantization, own: Keys) -> None:
    """VPTQ: codes of vectors, tables for each matrix, stated by module or by the last part of its name."""
    skip(found, own, "modules_to_not_convert")
    modules = {name: _vectors(entry) for name, entry in own.entries("config_for_layers")}
    tails = {name: _vectors(entry) for name, entry in own.entries("shared_layer_config")}
    forms = {*modules.values(), *tails.values()}
    if not forms:
        raise own.fault("config_for_layers", None, f"an object of modules and their vectors{_FILES}")
    take_named(found, modules)
    for name in sorted(tails):
        # A name without a path is of the layers: the stated groups are as long as their inputs.
        found.take(_ends(name), tails[name], towers=False)
    found.weight_format = narrowest(forms)


def _ends(tail: str) -> Matcher:
    return lambda module: module.rpartition(".")[2] == tail


def _vectors(entry: Keys) -> str:
    """Name the layout of one module (vptq 0.0.5, ``layers/vqlinear.py``: packed codes, no outliers)."""
    lengths, codes, further = (
        entry.wholes(name, length=2, low=-1, high=1 << 16) or [-1, -1]
        for name in ("vector_lens", "num_centroids", "num_res_centroids")
    )
    for name, value in (("num_centroids", codes[1]), ("num_res_centroids", max(further[1], 1))):
        if value < 1 or value & (value - 1):
            raise entry.fault(name, value, f"a power of two{_FILES}")
    if not 1 <= lengths[1] <= 64 or codes[1] == 1:
        raise entry.fault("vector_lens", lengths, f"vectors of 1 to 64 weights{_FILES}")
    if lengths[0] > 1 and codes[0] > 0:
        raise entry.fault("outlier_size", entry.raw("outlier_size"), f"no codes for outliers{_FILES}")
    if not entry.flag("is_indice_packed", default=True):
        raise entry.fault(
            "is_indice_packed", entry.raw("is_indice_packed"), f"true, as transformers loads them{_FILES}"
        )
    groups = entry.whole("group_num", default=1, high=16)
    norm, order = entry.flag("enable_norm", default=True), entry.flag("enable_perm", default=True)
    residual = f"-r{further[1]}" if further[1] > 1 else ""
    return f"vptq-v{lengths[1]}-k{codes[1]}{residual}-n{groups}-c{4 * norm + 2 * order}"


def spqr(found: Quantization, own: Keys) -> None:
    """SpQR: 3-bit tiles and single outliers, whose number the config states matrix by matrix.

    A matrix counts with the average of all, as with EXL2: the sum is that of the file.
    """
    skip(found, own, "modules_to_not_convert", "linear_weights_not_to_quantize")
    shapes = own.section("shapes")
    size, weights, names = 0, 0, set()
    for key in shapes.data if shapes is not None else ():
        module, _, part = key.removesuffix(".shape").rpartition(".")
        if shapes is None or part not in _SPQR_BYTES:
            raise own.fault(f"shapes.{key}", None, f"one of {', '.join(_SPQR_BYTES)}")
        count = shapes.whole(key, low=0, high=1 << 40)
        size += count * _SPQR_BYTES[part]
        if part == "dense_weights":
            weights += count * _SPQR_WEIGHTS
            names.add(module)
    if not weights or not size * 8 < weights * 16:
        raise own.fault("shapes", None, f"the length of every tensor{_FILES}")
    form = f"spqr-{size * 8 / weights:.6f}bpw"
    found.take(under(frozenset(names)), form)
    found.weight_format = form


def sinq(found: Quantization, own: Keys) -> None:
    """SINQ: every linear layer that is not listed, the output head too (transformers 5.23, ``quantizer_sinq.py``)."""
    bits = own.whole("nbits", default=4, low=2, high=8)
    group = own.whole("group_size", default=64, low=16, high=1 << 12)
    tiling = (own.text("tiling_mode", default="1D") or "1D").lower()
    if bits not in SINQ_STORED or tiling not in ("1d", "2d"):
        raise own.fault("nbits", f"{bits} bits, {tiling}", "2, 3, 4, 5, 6 or 8 bits, tiled 1D or 2D")
    leave_listed(found, own)
    form = f"sinq{bits}-g{group}{'-2d' if tiling == '2d' else ''}"

    def linear(module: str) -> bool:
        if ".experts." in module:
            # Stacked experts are no linear layers to transformers 5; other files have them quantized one by one.
            raise own.fault("quant_method", "sinq", f"a model without routed experts{_FILES}")
        return True

    found.take(linear, form)
    found.weight_format = form


def bitnet(found: Quantization, own: Keys) -> None:
    """BitNet: four ternary weights to a byte, unless the checkpoint is quantised while loading."""
    skip(found, own, "modules_to_not_convert")
    if own.text("quantization_mode", default="offline") == "online":
        return
    take_layers(found, "bitnet")


def eetq(found: Quantization, own: Keys) -> None:
    """EETQ: bytes with a 16-bit scale per output channel, the head left alone."""
    convert(found, own, integers(8, 0, "sym"))


def fp_quant(found: Quantization, own: Keys) -> None:
    """FP-Quant: MXFP4 or NVFP4, packed unless it says that it is only simulated."""
    kind = own.text("forward_dtype", default="mxfp4")
    if kind not in ("mxfp4", "nvfp4") or own.flag("pseudoquantization", default=False):
        raise own.fault("forward_dtype", kind, "mxfp4 or nvfp4, not pseudoquantization")
    skip(found, own, "modules_to_not_convert")
    take_everything(found, kind)


def ascend(found: Quantization, description: Keys) -> None:
    """Ascend: msModelSlim's ``quant_model_description.json``: the type of every tensor by its name."""
    forms: dict[str, str] = {}
    for name, kind in _weights(description.data).items():
        form = next((form for prefix, form in _ASCEND.items() if kind.startswith(prefix)), None)
        if form is not None:
            forms[name] = form
        elif kind not in ("FLOAT", "BF16", "FLOAT16"):
            raise description.fault(name, kind, "FLOAT, W8A8, W8A16, W4A8 or W4A16, static or dynamic")
    found.weight_format = narrowest(take_named(found, forms))


def _weights(data: Mapping[str, Any]) -> dict[str, str]:
    return {
        name.removesuffix(".weight"): kind.upper()
        for name, kind in data.items()
        if name.endswith(".weight") and isinstance(kind, str)
    }
