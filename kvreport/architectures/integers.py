"""Integers and 4-bit floats by weight-only quantisers: bitsandbytes, AWQ, GPTQ, AutoRound, HQQ, torchao."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvreport.architectures.compressed_tensors import block_form
from kvreport.architectures.keys import Keys
from kvreport.architectures.quantized_modules import (
    Quantization,
    convert,
    gptq_form,
    integer_form,
    leave_listed,
    matcher,
    narrowest,
    skip,
    take_everything,
    take_layers,
)
from kvreport.catalog.layouts import integers

_MX_GROUP: Final = 32
_NV_GROUP: Final = 16


def bitsandbytes(found: Quantization, own: Keys) -> None:
    """Every linear layer but the output head: 8 bits per row, or 4 bits in blocks of 64."""
    if own.flag("load_in_8bit", "_load_in_8bit", default=False):
        form = "int8"
    elif own.flag("load_in_4bit", "_load_in_4bit", default=False):
        kind = own.text("bnb_4bit_quant_type", default="fp4")
        if kind not in ("nf4", "fp4"):
            raise own.fault("bnb_4bit_quant_type", kind, "nf4 or fp4")
        form = "bnb-4bit-dq" if own.flag("bnb_4bit_use_double_quant", default=False) else "bnb-4bit"
    else:
        raise own.fault("load_in_4bit", None, "load_in_4bit or load_in_8bit to be true (bitsandbytes)")
    skip(found, own, "llm_int8_skip_modules")
    take_everything(found, form)


def grouped_integers(found: Quantization, own: Keys) -> None:
    """AWQ, GPTQ, AutoRound: integers in groups, with exceptions module by module."""
    bits = own.whole("bits", "w_bit", default=4)
    group = own.raw("group_size", "q_group_size")
    name = _floats(own) or _layout_namer(own)
    skip(found, own, "modules_to_not_convert")
    _only(found, own)
    for key in ("dynamic", "extra_config"):
        _exceptions(found, own, key, bits, group, name)
    form = name(own, bits, group)
    take_layers(found, form)
    if own.raw("lm_head") is True:
        found.take(lambda module: module.endswith("lm_head"), form)


def _floats(own: Keys) -> Callable[[Keys, int, object], str] | None:
    """AutoRound's other data types (0.16.1, ``export_to_autoround/qlinear_fp.py`` and ``export_to_fp8.py``)."""
    usual = own.text("data_type", default="int") or "int"
    if usual.startswith("int"):
        return None

    def name(entry: Keys, bits: int, group: object) -> str:
        kind = entry.text("data_type", default=usual) or usual
        if kind.startswith("int"):
            return integer_form(entry, bits, group)
        if kind.startswith("mx_fp") and group == _MX_GROUP and bits in (4, 8):
            return f"mxfp{bits}"
        if kind.startswith(("nv_fp", "nvfp4", "fp4_v2")) and group == _NV_GROUP and bits == 4:
            return "nvfp4"
        if kind.startswith("fp") and bits == 8:
            if isinstance(group, list) and len(group) == 2 and all(isinstance(side, int) for side in group):
                return block_form(*group)
            if group in (-1, 0):
                return "fp8-channel" if group else "fp8-tensor"
        raise entry.fault(
            "data_type",
            f"{kind} with {bits} bits in groups of {group}",
            "int, mx_fp with 4 or 8 bits in groups of 32, nv_fp with 4 bits in groups of 16, or fp8",
        )

    return name


def _layout_namer(own: Keys) -> Callable[[Keys, int, object], str]:
    """What the method writes: GPTQ its index, Marlin no zero points, the others packed zero points."""
    method = (own.text("quant_method") or "").lower()
    packing = f"{own.text('checkpoint_format') or ''} {own.text('packing_format') or ''}"
    if method == "gptq_marlin_24":
        return lambda entry, bits, group: f"{integer_form(entry, bits, group, 'sym')}-2of4"
    flagged = own.has("is_marlin_format") and own.flag("is_marlin_format")
    if "marlin" in packing or method == "marlin" or flagged:
        return lambda entry, bits, group: integer_form(entry, bits, group, "sym")
    if method.startswith("gptq"):
        return gptq_form
    return integer_form


def _only(found: Quantization, own: Keys) -> None:
    """GPTQ may quantise some modules of a layer only, listed in the order in which it does."""
    name = "modules_in_block_to_quantize"
    listed = own.raw(name)
    if listed is None:
        return
    runs = [run for run in listed if isinstance(run, list)] if isinstance(listed, list) else []
    parts = [part for run in runs for part in run if isinstance(part, str)]
    if not parts or sum(map(len, runs)) != len(parts) or len(runs) != len(listed):
        raise own.fault(name, listed, "a list of lists of module names")
    ends = tuple(f".{part}" for part in parts)
    found.leave(lambda module: not module.endswith(ends))


def _exceptions(
    found: Quantization,
    own: Keys,
    key: str,
    bits: int,
    group: object,
    name_of: Callable[[Keys, int, object], str],
) -> None:
    """Modules with bits of their own: GPTQModel's ``dynamic`` expressions, AutoRound's ``extra_config``."""
    for name, entry in own.entries(key):
        pattern = name if key == "extra_config" else f"re:{name.removeprefix('-:').removeprefix('+:')}"
        matches = matcher(own, key, [pattern], wildcards=False)
        its_bits = entry.whole("bits", default=bits, high=32)
        if name.startswith("-:") or its_bits >= 16:
            found.leave(matches)
        else:
            its_group = entry.raw("group_size")
            found.take(matches, name_of(entry, its_bits, group if its_group is None else its_group))


def hqq(found: Quantization, own: Keys) -> None:
    """HQQ: a 16-bit scale and zero point per group, for all linear layers alike."""
    inner = own.section("quant_config")
    each = inner.section("weight_quant_params") if inner is not None else None
    if each is None:
        raise own.fault("quant_config.weight_quant_params", None, "one scheme for all linear layers")
    skip(found, own, "skip_modules")
    bits, group = each.whole("nbits", high=16), each.raw("group_size")
    if bits not in (1, 3):
        bits, group = _filling(each, "nbits", bits, group)
    elif not isinstance(group, int) or not 8 <= group <= 1 << 16:
        raise each.fault("group_size", group, "a whole number from 8 to 65,536")
    take_everything(found, f"hqq{bits}-g{group}")


def torchao(found: Quantization, own: Keys) -> None:
    """Torchao: a scheme by the name of its class or by the older short name, or a scheme by module.

    transformers leaves input embedding and output head out, unless the config includes them (5.24,
    ``quantizers/quantizer_torchao.py``); an embedding is converted only if it is named.
    """
    kind = own.raw("quant_type")
    if isinstance(kind, str):
        name, inner = kind, own.section("quant_type_kwargs") or own
    else:
        section = own.section("quant_type")
        chosen = section.section("default") if section is not None and len(section.data) == 1 else None
        if chosen is None:
            raise own.fault("quant_type", kind, "a text, or an object with default alone")
        name, inner = chosen.text("_type") or "", chosen.section("_data") or chosen
    ends = own.flag("include_input_output_embeddings", default=False)
    if name not in ("FqnToConfig", "ModuleFqnToConfig"):
        convert(found, own, _torchao_form(own, name, inner), ending=".weight")
        found.keeps_head = found.keeps_head and not ends
        return
    leave_listed(found, own, ending=".weight")
    schemes = inner.section("fqn_to_config", "module_fqn_to_config")
    if schemes is None:
        raise inner.fault("fqn_to_config", None, "an object of modules and their schemes")
    forms = _by_module(found, schemes, ends=ends)
    found.keeps_head = not ends and (not found.anchored or own.raw("modules_to_not_convert") is None)
    found.weight_format = narrowest(forms)


def _by_module(found: Quantization, schemes: Keys, *, ends: bool) -> list[str]:
    """Take each module's scheme: by its name, by the first expression that covers it, else by default.

    torchao 0.18, ``quantization/quant_api.py``: names are of modules or of their weights; null leaves a module alone.
    """
    forms = []
    for entry in sorted(schemes.data, key=lambda name: (name == "_default", name.startswith("re:"))):
        scheme = schemes.section(entry)
        named = entry.removesuffix("$").removesuffix(".weight").removesuffix("\\.weight").removesuffix("\\")
        if named.startswith("re:"):
            named = f"re:(?:{named.removeprefix('re:')})$"
        everything = entry == "_default"
        covers = matcher(schemes, entry, [named], wildcards=False, exact=True)
        if scheme is None:
            if not everything:
                found.leave(covers)
            continue
        form = _torchao_form(scheme, scheme.text("_type") or "", scheme.section("_data") or scheme)
        forms.append(form)
        found.take(_every if everything else covers, form, tables=ends and not everything)
    return forms


def _every(_module: str) -> bool:
    return True


def _torchao_form(own: Keys, name: str, inner: Keys) -> str:
    """Name the layout of one scheme."""
    short = name.removesuffix("Config").replace("_", "").lower()
    if short == "int4weightonly":
        bits, group = _filling(inner, "group_size", 4, inner.whole("group_size", default=128))
        return integers(bits, group, "z16")
    if short in ("int8weightonly", "int8dynamicactivationint8weight"):
        return _rows_of_bytes(inner)
    if short in ("float8weightonly", "float8dynamicactivationfloat8weight"):
        stated = str(inner.raw("granularity")).lower()
        by_row = "perrow" in stated or (short == "float8weightonly" and "pertensor" not in stated)
        return "fp8-channel" if by_row else "fp8-tensor"
    if short in ("intxweightonly", "int8dynamicactivationintxweight"):
        return _unpacked(inner)
    if short in ("nvfp4weightonly", "nvfp4dynamicactivationnvfp4weight"):
        return "nvfp4"
    if short == "mxdynamicactivationmxweight":
        return "mxfp4" if "float4" in str(inner.raw("weight_dtype")).lower() else "mxfp8"
    raise own.fault(
        "quant_type",
        name,
        "int4_weight_only, int8_weight_only, int8_dynamic_activation_int8_weight, float8_weight_only,"
        " float8_dynamic_activation_float8_weight, FqnToConfig, or the classes of NVFP4 and MX",
    )


def _rows_of_bytes(inner: Keys) -> str:
    """8-bit integers by row, or by group with 32-bit scales and 8-bit zero points (torchao 0.18, ``Int8Tensor``)."""
    data, group = _group_of(inner, "granularity")
    return integer_form(data, 8, group, "s32z8") if group else "int8"


def _group_of(inner: Keys, name: str) -> tuple[Keys, int]:
    """Return the object that a group's size stands in, and the size; 0 where rows have a scale each."""
    scope = inner.section(name)
    data = (scope.section("_data") or scope) if scope is not None else inner
    return data, data.optional("group_size") or 0


def _unpacked(inner: Keys) -> str:
    """Integers of any width in a byte each, with a 16-bit scale and a zero point of a byte (torchao 0.18)."""
    packing = inner.raw("intx_packing_format")
    if packing is not None and "unpacked_to_int8" not in str(packing).lower():
        raise inner.fault("intx_packing_format", packing, "unpacked_to_int8")
    data, group = _group_of(inner, "weight_granularity" if inner.has("weight_granularity") else "granularity")
    return integer_form(data, 8, group, "zp")


def _filling(own: Keys, key: str, bits: int, group: object) -> tuple[int, int]:
    """Return the width and the group of integers that fill their bytes."""
    if bits not in (2, 4, 8) or not isinstance(group, int) or not 8 <= group <= 1 << 16:
        raise own.fault(key, f"{bits} bits in groups of {group}", "2, 4 or 8 bits in groups of 8 or more")
    return bits, group
