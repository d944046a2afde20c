"""In which format each tensor was published: ``quantization_config`` and the quantizer's own files.

A checkpoint says what it quantises by exception (a list of modules left alone) or by inclusion (a
list of modules with their formats). Both come with wildcards or regular expressions, which are
untrusted: only a small, linear-time subset of them is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Final

from kvreport.architectures import codebooks, integers
from kvreport.architectures.blueprint import Weight
from kvreport.architectures.compressed_tensors import block_form, compressed_tensors
from kvreport.architectures.keys import Keys
from kvreport.architectures.mlx_checkpoints import is_mlx, mlx
from kvreport.architectures.quantized_modules import (
    Quantization,
    convert,
    integer_form,
    matcher,
    narrowest,
    skip,
    take_layers,
    take_named,
    unexpert,
)

_MODELOPT: Final = {
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8-block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4-g32",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MXFP8": "mxfp8",
    "INT4_AWQ": "int4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A16": "int8",
    "FP8_PB_REAL": "fp8-block",
}
_KV_ALGORITHMS: Final = {"FP8": "fp8", "NVFP4": "nvfp4"}
_PLAIN: Final = ("BF16", "FP16", "NONE", "")
_MXFP4: Final = ("fp4", "mxfp4")
_EXPERT_TYPES: Final = (*_MXFP4, "fp8", "e4m3", "float8_e4m3fn")


def read_quantization(config: Keys, text: Keys, beside: Keys | None = None) -> Quantization:
    """Read everything a checkpoint says about its formats.

    What is ``beside`` is the content of :func:`kvreport.architectures.quantizer_files.quantizer_file`.

    Raises:
        InputError: If the method or a format is not known.
    """
    found = Quantization()
    own = config.section("quantization_config", "compression_config") or text.section(
        "quantization_config", "compression_config"
    )
    description = beside if beside is not None and beside.has("model_quant_type") else None
    if beside is not None and beside.has("quant_method"):
        # AutoGPTQ and AutoAWQ write the same into both files; the config is what engines read.
        own = beside if own is None or beside.has("tensor_storage") else own
        beside = None
    other = (beside if description is None else None) or config.section("hf_quant_config")
    modelopt = (other.section("quantization") or other) if other is not None else None
    if is_mlx(config) and (own is None or not own.text("quant_method")):
        section = config.section("quantization")
        assert section is not None  # noqa: S101 - it is one
        mlx(found, section)
        return found
    if own is not None and (own.text("quant_method") or "").lower() == "fp8":
        _fp8(found, own, expert_type=_expert_type(config, text, own))
    elif modelopt is not None:
        _modelopt(found, modelopt)
    elif description is not None:
        codebooks.ascend(found, description)
    elif own is not None:
        _by_method(found, own, config, text)
    elif config.has("quantization"):
        raise config.fault("quantization", config.raw("quantization"), "MLX's bits and group_size")
    if own is not None and modelopt is not None:
        # vLLM looks at the quantizer's own file only where the config has no section (0.29.0
        # transformers_utils/config.py::get_config), so that its cache format counts there alone.
        found.kv_format = _kv_algorithm(own.section("quantization") or own)
    if own is not None and found.kv_format is None:
        found.kv_format = _kv_scheme(own)
    if own is not None and not own.text("quant_method") and own.section("quantization") is None:
        # vLLM 0.33 reads a declared cache format under a method only, and takes one from ModelOpt's
        # nested section alone (utils/torch_utils.py::get_kv_cache_quant_algo_string,
        # transformers_utils/model_arch_config_convertor.py::_normalize_quantization_config).
        found.kv_format = None
    return found


def _expert_type(config: Keys, text: Keys, own: Keys) -> str | None:
    """Type of the routed experts beside FP8.

    DeepSeek-V4 states it of the model, V4.1 of its quantization. MiMo-V2.6 states what the experts are stored as, Ling 3.0
    how they were quantized (vLLM 0.33: layers/quantization/fp8.py::Fp8Config.get_quant_method,
    models/bailing_moe_v3.py::_configure_ling_fp8_quant_config).

    Raises:
        InputError: If the experts are stored as a type that is not known.
    """
    for key in ("store_dtype", "routed_experts_quant_method"):
        stored = own.text(key)
        if stored is not None and stored.lower() not in _EXPERT_TYPES:
            raise own.fault(key, stored, f"one of {', '.join(_EXPERT_TYPES)}")
        if stored is not None and stored.lower() in _MXFP4:
            return stored.lower()
    return config.text("expert_dtype") or text.text("expert_dtype") or own.text("expert_dtype")


def _by_method(found: Quantization, own: Keys, config: Keys, text: Keys) -> None:
    method = (own.text("quant_method") or "").lower()
    if _is_compressed(own, method):
        compressed_tensors(found, own)
    elif method.startswith("modelopt") or method == "" or own.has("quantized_layers"):
        # ModelOpt's own file and early exports nest what newer ones state at the top.
        _modelopt(found, own.section("quantization") or own)
    elif method in _METHODS:
        found.anchored = _stacks_experts(config)
        if method in _LINEAR_ONLY and _stacks_experts(config):
            found.leave(lambda module: ".experts." in module)
        if method == "bitsandbytes" and _stacks_experts(config) and any(map(text.data.get, _EXPERTS)):
            own.trail.derived.append(_EXPERTS_CONVERTED)
        _METHODS[method](found, own)
    else:
        known = ["fp8", "compressed-tensors", "modelopt", *_METHODS]
        raise own.fault("quant_method", method, f"one of {', '.join(known)}{_advice(method, known)}")


def _stacks_experts(config: Keys) -> bool:
    """True if the checkpoint was written by transformers 5, whose experts are stacked and no linear layers."""
    # Read without a trail: a config without it is not told that a dimension is missing.
    stated = config.data.get("transformers_version")
    major = stated.partition(".")[0] if isinstance(stated, str) else ""
    return major.isdecimal() and len(major) < 4 and int(major) >= 5


def _is_compressed(own: Keys, method: str) -> bool:
    """True for compressed-tensors, and for ModelOpt where it writes the same groups."""
    mixed = own.raw("quant_algo") == "MIXED_PRECISION" and own.has("quantized_layers")
    if method == "compressed-tensors":
        return not mixed
    return own.has("config_groups") and method in ("modelopt", "") and not mixed


def _mxfp4(found: Quantization, own: Keys) -> None:
    """Only the experts are converted by this method, whatever else is a linear layer."""
    skip(found, own, "modules_to_not_convert")
    found.take(lambda module: ".experts." in module, "mxfp4")
    found.weight_format = "mxfp4"


def _everywhere(
    found: Quantization,
    own: Keys,
    form: str,
    *,
    but: Sequence[str] = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"),
) -> None:
    """One form for every linear layer that is not listed (SGLang's w8a8 checkpoints and others)."""
    skip(found, own, *but)
    take_layers(found, form)


def _metal(found: Quantization, own: Keys) -> None:
    """MLX's affine layout under transformers' name (5.23, ``quantizer_metal.py``: weight, scales, qbiases)."""
    bits = own.whole("bits", default=4, low=2, high=8)
    group = own.whole("group_size", default=64, low=16, high=1 << 12)
    _everywhere(found, own, f"mlx{bits}-g{group}")


def _quanto(found: Quantization, own: Keys) -> None:
    """One 16-bit scale a row at 8 bits; at 4 and 2 bits a scale and a shift per 128 inputs.

    optimum-quanto 0.2.7, ``nn/qmodule.py``: the group is 128 wherever that divides the inputs.
    """
    plain = {"float8": "fp8-channel-s16", "int8": "int8-channel-sym"}
    grouped = {"int4": 4, "int2": 2}
    weights = own.text("weights", default="int8") or "int8"
    if weights in grouped:
        group = own.whole("group_size", default=128, low=16, high=1 << 12)
        form = integer_form(own, grouped[weights], group, "z16")
    elif weights in plain:
        form = plain[weights]
    else:
        raise own.fault("weights", weights, f"one of {', '.join((*plain, *grouped))}{_HEADERS}")
    convert(found, own, form)


def _higgs(found: Quantization, own: Keys) -> None:
    """A grid of values per tensor (transformers 5.23, ``integrations/higgs.py``)."""
    bits = own.whole("bits", default=4, low=2, high=4)
    group = own.whole("group_size", default=256)
    if group not in (64, 128, 256):
        raise own.fault("group_size", group, "64, 128 or 256")
    convert(found, own, f"higgs{bits}-g{group}")


def _four_over_six(found: Quantization, own: Keys) -> None:
    """NVFP4 or MXFP4, whose scales are chosen otherwise and stored alike (fouroversix 0.1.0, ``ops.py``)."""
    for name in ("module_config_overrides", "keep_master_weights"):
        if own.raw(name):
            raise own.fault(name, own.raw(name), f"nothing{_HEADERS}")
    form = own.text("weight_dtype") or own.text("dtype", default="nvfp4")
    if form not in ("nvfp4", "mxfp4"):
        raise own.fault("dtype", form, "nvfp4 or mxfp4")
    _everywhere(found, own, form)


def _gemma(found: Quantization, own: Keys) -> None:
    """Gemma's own quantized checkpoints: bits by module, embeddings too where the config says so.

    transformers 5.23, ``integrations/gemma_quant.py``: linear layers and embeddings are replaced, stacked experts
    are not. The first pattern that is found in a module's name decides.
    """
    usual = own.whole("num_bits", default=4, low=2, high=8)
    tables = own.flag("quantize_embeddings", default=False)
    left = matcher(
        own, "modules_to_not_convert", own.texts("modules_to_not_convert") or ["lm_head"], wildcards=False
    )
    stated = own.section("module_quant_configs")
    by_module = []
    for pattern in stated.data if stated is not None else ():
        entry = stated.section(pattern) if stated is not None else None
        bits = entry.whole("num_bits", default=usual, low=2, high=8) if entry is not None else usual
        finds = matcher(own, "module_quant_configs", [f"re:.*(?:{pattern})"], wildcards=False)
        by_module.append((finds, bits))
    for bits in (usual, *(bits for _, bits in by_module)):
        if bits not in (2, 4, 8):
            raise own.fault("num_bits", bits, "2, 4 or 8")

    def decide(module: str, tensor: Weight) -> str | None:
        table = tensor.component == "embedding" or tensor.looked_up
        if left(module) or tensor.component == "routed_experts" or not (tables if table else tensor.linear):
            return None
        bits = next((bits for finds, bits in by_module if finds(module)), usual)
        return f"srq{bits}{'-table' if table else ''}"

    found.decide = decide
    found.weight_format = f"srq{usual}"


def _fp8(found: Quantization, own: Keys, *, expert_type: str | None) -> None:
    """Everything in the layers in FP8, except what is listed and experts of a narrower type.

    A checkpoint made from such a one may list layers that were quantised further (ModelOpt).
    """
    skip(found, own, "modules_to_not_convert", "ignored_layers")
    block = own.wholes("weight_block_size", length=2, low=1, high=1 << 15)
    narrower = _listed_layers(found, own)
    if expert_type in _MXFP4:
        # A copy lists the experts that were quantised further; those of prediction layers stay as they were.
        found.take(lambda module: ".experts." in module, "mxfp4")
        narrower = narrower or ["mxfp4"]
    take_layers(found, _fp8_form(own, block))
    found.weight_format = narrowest([*narrower, found.weight_format])


def _fp8_form(own: Keys, block: list[int] | None) -> str:
    if block is None:
        return "fp8-tensor"
    if block == [1, 32] and (own.text("scale_fmt") or "ue8m0") == "ue8m0":
        return "mxfp8"
    return block_form(*block)


def _listed_layers(found: Quantization, own: Keys) -> list[str]:
    """Take the formats that ``quantized_layers`` gives module by module; return those met."""
    layers = own.section("quantized_layers")
    forms: dict[str, str] = {}
    for name in layers.data if layers is not None else ():
        module = unexpert(name)
        entry = layers.section(name) if layers is not None and module not in forms else None
        if entry is None:
            continue
        algorithm = entry.text("quant_algo")
        if algorithm is None:
            raise entry.fault("quant_algo", None, f"one of {', '.join(_MODELOPT)}")
        forms[module] = _known(entry, "quant_algo", algorithm, _MODELOPT)
    return take_named(found, forms)


def _kv_algorithm(own: Keys) -> str | None:
    """The cache format that ModelOpt names; None where it names none or a plain one."""
    kv = own.text("kv_cache_quant_algo")
    if kv is None or kv.upper() in _PLAIN:
        return None
    return _known(own, "kv_cache_quant_algo", kv, _KV_ALGORITHMS)


def _modelopt(found: Quantization, own: Keys) -> None:
    algorithm = own.text("quant_algo")
    kv = own.text("kv_cache_quant_algo")
    found.kv_format = _kv_algorithm(own) or found.kv_format
    if algorithm is None and kv is None and own.data and "quant_algo" not in own.data:
        hint = (
            "; bits and group_size alone are MLX's: give the config it was made from"
            if own.has("bits")
            else ""
        )
        raise own.fault("quant_algo", None, f"one of {', '.join(_MODELOPT)}, or a known quant_method{hint}")
    if algorithm is None or algorithm.upper() in _PLAIN:
        return
    skip(found, own, "exclude_modules", "ignore", wildcards=True)
    if algorithm.upper() == "MIXED_PRECISION":
        met = _listed_layers(found, own)
        if not met:
            raise own.fault("quantized_layers", None, "an object of modules and their formats")
        found.weight_format = narrowest(met)
        return
    form = _known(own, "quant_algo", algorithm, _MODELOPT)
    if form == "int4":
        # ModelOpt's own AWQ stores a 32-bit scale per group and no zero point (0.47, ``export/quant_utils.py``).
        form = integer_form(own, 4, own.raw("group_size"), "s32")
    take_layers(found, form)


def _quark(found: Quantization, own: Keys) -> None:
    """AMD's Quark: one scheme for all linear layers, others for layers whose names match."""
    skip(found, own, "exclude", wildcards=True)
    forms = []
    for name, entry in own.entries("layer_quant_config"):
        form = _quark_scheme(entry)
        if form is not None:
            forms.append(form)
            found.take(matcher(entry, name, [name], wildcards=True), form)
        out = entry.section("output_tensors")
        if out is not None and (out.text("dtype") or "").startswith("fp8"):
            # What these projections put out goes into the cache.
            found.kv_format = "fp8"
    overall = own.section("global_quant_config")
    form = _quark_scheme(overall) if overall is not None else None
    if form is not None:
        take_layers(found, form)
        forms.append(form)
    if not forms:
        raise own.fault("global_quant_config", None, "an object that says how weights are quantized")
    found.weight_format = narrowest(forms)


def _quark_scheme(entry: Keys) -> str | None:
    weight = entry.section("weight")
    if weight is None:
        return None
    kind, scheme = weight.text("dtype"), weight.text("qscheme")
    size = weight.optional("group_size", low=-1)
    if kind == "fp8_e4m3" and scheme in ("per_tensor", "per_channel"):
        return "fp8-channel" if scheme == "per_channel" else "fp8-tensor"
    if kind == "fp4" and scheme == "per_group" and size == 32:
        return "mxfp4"
    if kind in ("fp6_e2m3", "fp6_e3m2") and scheme == "per_group" and size == 32:
        return "mxfp6"
    if kind == "int8" and scheme in (None, "per_tensor", "per_channel"):
        return "int8"
    if kind == "int8" and scheme == "per_group":
        return integer_form(weight, 8, size, "sym")
    if kind in ("int4", "uint4") and scheme == "per_group":
        return integer_form(weight, 4, size, "zp" if kind == "uint4" else "sym")
    raise weight.fault(
        "dtype",
        f"{kind} {scheme}",
        "fp8_e4m3 per tensor or channel, fp4 or fp6 in groups of 32, int8, int4 in groups of 32, 64 or 128",
    )


def _known(own: Keys, name: str, value: str, table: dict[str, str]) -> str:
    form = table.get(value.upper())
    if form is None:
        raise own.fault(name, value, f"one of {', '.join(table)}")
    return form


def _kv_scheme(own: Keys) -> str | None:
    scheme = own.raw("kv_cache_scheme")
    if scheme is None:
        return None
    if isinstance(scheme, str):
        return None if scheme.upper() in _PLAIN else _known(own, "kv_cache_scheme", scheme, _KV_ALGORITHMS)
    section = own.section("kv_cache_scheme")
    if section is None:
        return None
    bits = section.whole("num_bits", high=16)
    if section.text("type", default="float") != "float" or bits not in (4, 8):
        raise section.fault("num_bits", bits, "float with 4 or 8 bits")
    return "fp8" if bits == 8 else "nvfp4"


_GROUPED: Final = (
    "awq", "gptq", "awq_marlin", "gptq_marlin", "auto-round", "intel/auto-round", "inc", "marlin", "gptq_marlin_24", "moe_wna16",
)  # fmt: skip
"""Methods of integers in groups, with exceptions module by module."""
_METHODS: Final[dict[str, Callable[[Quantization, Keys], None]]] = {
    "fbgemm_fp8": partial(_everywhere, form="fp8-channel", but=("modules_to_not_convert",)),
    "mxfp4": _mxfp4,
    "mxfp8": partial(_everywhere, form="mxfp8", but=("modules_to_not_convert", "ignored_layers")),
    "quark": _quark,
    **dict.fromkeys(_GROUPED, integers.grouped_integers),
    "petit_nvfp4": partial(_everywhere, form="nvfp4"),
    "w8a8_fp8": partial(_everywhere, form="fp8-channel"),
    "w8a8_int8": partial(_everywhere, form="int8"),
    "bitsandbytes": integers.bitsandbytes,
    "hqq": integers.hqq,
    "torchao": integers.torchao,
    "exl2": codebooks.exllama,
    "exl3": codebooks.exllama,
    "aqlm": codebooks.aqlm,
    "bitnet": codebooks.bitnet,
    "eetq": codebooks.eetq,
    "fouroversix": _four_over_six,
    "fp_quant": codebooks.fp_quant,
    "gemma": _gemma,
    "higgs": _higgs,
    "metal": _metal,
    "nvfp4": partial(_everywhere, form="nvfp4"),
    "quanto": _quanto,
    "sinq": codebooks.sinq,
    "spqr": codebooks.spqr,
    "vptq": codebooks.vptq,
}
_LINEAR_ONLY: Final = ("eetq", "higgs", "quanto", "sinq", "torchao")
"""Methods that transformers applies to ``nn.Linear`` alone (5.24, ``integrations/quanto.py`` and others)."""
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_CONVERTED: Final = (
    "Experts are assumed to be converted by bitsandbytes, as in Unsloth's files; only transformers 5 leaves stacked experts"
    " at 16 bits."
)
_HEADERS: Final = "; or give the folder with its safetensors files, whose headers say every byte"
_NEAREST: Final = {"quip": "exl3"}
"""The method that is read whose layout is nearest to that of one that is not."""


def _advice(method: str, known: list[str]) -> str:
    """Say which method that is read is nearest, and what else would do."""
    if method == "gguf":
        return "; or give the GGUF file itself"
    near = _NEAREST.get(method) or next(iter(get_close_matches(method, known, 1, 0.6)), None)
    return (f" ({near} is the nearest)" if near else "") + _HEADERS
