"""In which format each tensor was published: ``quantization_config`` and ``hf_quant_config.json``.

A checkpoint says what it quantises by exception (a list of modules left alone) or by inclusion (a
list of modules with their formats). Both come with wildcards or regular expressions, which are
untrusted: only a small, linear-time subset of them is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Final

from kvreport.catalog.huggingface.blueprint import Tensor
from kvreport.catalog.huggingface.keys import Keys

Matcher = Callable[[str], bool]

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.\d+\.")
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_OTHER_NAMES: Final = (
    (".w1", ".gate_proj"),
    (".w3", ".up_proj"),
    (".w2", ".down_proj"),
    (".attn.wq_a", ".attn.fused_wqa_wkv"),
    (".attn.wkv", ".attn.fused_wqa_wkv"),
)
"""Names that tools give to modules which the checkpoint calls otherwise."""
_MODELOPT: Final = {
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8-block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MXFP8": "mxfp8",
    "INT4_AWQ": "int4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
_KV_ALGORITHMS: Final = {"FP8": "fp8", "NVFP4": "nvfp4"}
_PLAIN: Final = ("BF16", "FP16", "NONE", "")


class Quantization:
    """What a checkpoint says about the formats it was published in.

    Attributes:
        weight_format: What the checkpoint as a whole is called.
        kv_format: KV format it declares, or None.
    """

    def __init__(self) -> None:
        """Begin with a checkpoint that quantises nothing."""
        self.weight_format = "bf16"
        self.kv_format: str | None = None
        self._rules: list[tuple[Matcher, str | None]] = []

    def released(self, path: str, tensor: Tensor) -> str | None:
        """Return the format of one tensor, by its full path (``model.layers.3.mlp.up_proj.weight``).

        The first rule that knows the module decides; what no rule knows is unquantised.
        """
        if not tensor.linear:
            return None
        module = path.removesuffix(".weight").replace("*", "0")
        other = next(
            (module.removesuffix(old) + new for old, new in _OTHER_NAMES if module.endswith(old)), module
        )
        for matches, form in self._rules:
            if matches(module) or (other != module and matches(other)):
                return form
        return None

    def leave(self, matches: Matcher) -> None:
        """Add a rule: these modules were left alone."""
        self._rules.append((matches, None))

    def take(self, matches: Matcher, form: str) -> None:
        """Add a rule: these modules were published in ``form``."""
        self._rules.append((matches, form))


def read_quantization(config: Keys, text: Keys, beside: Keys | None = None) -> Quantization:
    """Read everything a checkpoint says about its formats.

    Args:
        config: The whole config; may have ``quantization_config`` and ``hf_quant_config``.
        text: Its text part, which may have ``quantization_config`` too.
        beside: The content of ``hf_quant_config.json``, if it was found beside the config.

    Raises:
        InputError: If the method or a format is not known.
    """
    found = Quantization()
    own = config.section("quantization_config", "compression_config") or text.section(
        "quantization_config", "compression_config"
    )
    other = beside or config.section("hf_quant_config")
    modelopt = (other.section("quantization") or other) if other is not None else None
    if own is not None and (own.text("quant_method") or "").lower() == "fp8":
        _fp8(found, own, expert_type=config.text("expert_dtype") or text.text("expert_dtype"))
    elif modelopt is not None:
        _modelopt(found, modelopt)
    elif own is not None:
        _by_method(found, own)
    elif config.has("quantization"):
        raise config.fault("quantization", config.raw("quantization"), "quantization_config (this is MLX's)")
    if own is not None and found.kv_format is None:
        found.kv_format = _kv_scheme(own)
    return found


def _by_method(found: Quantization, own: Keys) -> None:
    method = (own.text("quant_method") or "").lower()
    algorithm = own.raw("quant_algo")
    if (
        own.has("config_groups")
        and method in ("compressed-tensors", "modelopt", "")
        and not (algorithm == "MIXED_PRECISION" and own.has("quantized_layers"))
    ):
        _compressed_tensors(found, own)
    elif method in ("modelopt", "modelopt_fp4", "modelopt_mixed", "") or own.has("quantized_layers"):
        _modelopt(found, own)
    elif method == "fbgemm_fp8":
        _skip(found, own, "modules_to_not_convert")
        _rest(found, "fp8-channel")
    elif method == "mxfp4":
        # Only the experts are converted by this method, whatever else is a linear layer.
        _skip(found, own, "modules_to_not_convert")
        found.take(lambda module: ".experts." in module, "mxfp4")
        found.weight_format = "mxfp4"
    elif method == "quark":
        _quark(found, own)
    elif method == "bitsandbytes" and own.flag("load_in_8bit", "_load_in_8bit", default=False):
        _skip(found, own, "llm_int8_skip_modules")
        _rest(found, "int8")
    elif method in ("awq", "gptq", "awq_marlin", "gptq_marlin", "auto-round", "intel/auto-round"):
        _skip(found, own, "modules_to_not_convert")
        _rest(
            found, _integer(own, own.whole("bits", "w_bit", default=4), own.raw("group_size", "q_group_size"))
        )
    else:
        raise own.fault(
            "quant_method",
            method,
            "one of fp8, fbgemm_fp8, mxfp4, compressed-tensors, modelopt, quark, awq, gptq, auto-round,"
            " bitsandbytes with 8 bits",
        )


def _fp8(found: Quantization, own: Keys, *, expert_type: str | None) -> None:
    """Everything in the layers in FP8, except what is listed and experts of a narrower type.

    A checkpoint made from such a one may list layers that were quantised further (ModelOpt).
    """
    _skip(found, own, "modules_to_not_convert", "ignored_layers")
    block = own.wholes("weight_block_size", length=2, low=1)
    if block is not None and block != [128, 128]:
        raise own.fault("weight_block_size", block, "[128, 128] or null")
    narrower = _listed_layers(found, own)
    if not narrower and expert_type in ("fp4", "mxfp4"):
        found.take(lambda module: ".experts." in module, "mxfp4")
        narrower = ["mxfp4"]
    _rest(found, "fp8-block" if block else "fp8-tensor")
    found.weight_format = _mixed([*narrower, found.weight_format])


def _listed_layers(found: Quantization, own: Keys) -> list[str]:
    """Take the formats that ``quantized_layers`` gives module by module; return those met."""
    layers = own.section("quantized_layers")
    forms: dict[str, str] = {}
    for name in layers.data if layers is not None else ():
        module = _unexpert(name)
        entry = layers.section(name) if layers is not None and module not in forms else None
        if entry is None:
            continue
        algorithm = entry.text("quant_algo")
        if algorithm is None:
            raise entry.fault("quant_algo", None, f"one of {', '.join(_MODELOPT)}")
        forms[module] = _known(entry, "quant_algo", algorithm, _MODELOPT)
    met = sorted(set(forms.values()))
    for form in met:
        found.take(_under(frozenset(name for name, its in forms.items() if its == form)), form)
    return met


def _modelopt(found: Quantization, own: Keys) -> None:
    algorithm = own.text("quant_algo")
    kv = own.text("kv_cache_quant_algo")
    if kv is not None and kv.upper() not in _PLAIN:
        found.kv_format = _known(own, "kv_cache_quant_algo", kv, _KV_ALGORITHMS)
    if algorithm is None and kv is None and own.data and "quant_algo" not in own.data:
        raise own.fault("quant_algo", None, f"one of {', '.join(_MODELOPT)}, or a known quant_method")
    if algorithm is None or algorithm.upper() in _PLAIN:
        return
    _skip(found, own, "exclude_modules", "ignore", wildcards=True)
    if algorithm.upper() == "MIXED_PRECISION":
        met = _listed_layers(found, own)
        if not met:
            raise own.fault("quantized_layers", None, "an object of modules and their formats")
        found.weight_format = _mixed(met)
        return
    form = _known(own, "quant_algo", algorithm, _MODELOPT)
    if form == "int4":
        form = _integer(own, 4, own.raw("group_size"))
    _rest(found, form)


def _compressed_tensors(found: Quantization, own: Keys) -> None:
    _skip(found, own, "ignore", wildcards=own.text("quant_method") != "compressed-tensors")
    groups = own.section("config_groups")
    if groups is None:
        raise own.fault("config_groups", None, "an object of groups")
    forms = []
    for name in groups.data:
        group = groups.section(name)
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue
        form = _scheme(weights)
        forms.append(form)
        targets = group.texts("targets") or ["Linear"]
        if "Linear" in targets:
            found.take(lambda _module: True, form)
        else:
            found.take(_matcher(group, "targets", targets, wildcards=False), form)
    if not forms:
        raise own.fault("config_groups", "no group with weights", "at least one group with weights")
    found.weight_format = _mixed(forms)


def _quark(found: Quantization, own: Keys) -> None:
    """AMD's Quark: one scheme for all linear layers, others for layers whose names match."""
    _skip(found, own, "exclude", wildcards=True)
    forms = []
    layers = own.section("layer_quant_config")
    for name in layers.data if layers is not None else ():
        entry = layers.section(name) if layers is not None else None
        form = _quark_scheme(entry) if entry is not None else None
        if entry is not None and form is not None:
            forms.append(form)
            found.take(_matcher(entry, name, [name], wildcards=True), form)
        out = entry.section("output_tensors") if entry is not None else None
        if out is not None and (out.text("dtype") or "").startswith("fp8"):
            # What these projections put out goes into the cache.
            found.kv_format = "fp8"
    overall = own.section("global_quant_config")
    form = _quark_scheme(overall) if overall is not None else None
    if form is not None:
        _rest(found, form)
        forms.append(form)
    if not forms:
        raise own.fault("global_quant_config", None, "an object that says how weights are quantised")
    found.weight_format = _mixed(forms)


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
    if kind == "int8":
        return "int8"
    if kind in ("int4", "uint4") and scheme == "per_group":
        return _integer(weight, 4, size)
    raise weight.fault(
        "dtype",
        f"{kind} {scheme}",
        "fp8_e4m3 per tensor or channel, fp4 in groups of 32, int8, int4 in groups of 32, 64 or 128",
    )


def _scheme(weights: Keys) -> str:
    bits = weights.whole("num_bits", high=16)
    kind = weights.text("type", default="int")
    strategy = weights.text("strategy")
    size = weights.optional("group_size", low=-1)
    if kind == "float" and bits == 4:
        return "mxfp4" if size == 32 else "nvfp4"
    if kind == "float" and bits == 8:
        if strategy == "block":
            return "fp8-block"
        if size == 32:
            return "mxfp8"
        return "fp8-channel" if strategy == "channel" else "fp8-tensor"
    if kind == "int":
        return _integer(weights, bits, size)
    raise weights.fault(
        "num_bits", f"{kind} with {bits} bits", "float with 4 or 8 bits, int with 4 or 8 bits"
    )


def _integer(own: Keys, bits: int, group: object) -> str:
    if bits == 8:
        return "int8"
    if bits == 4 and group in (128, None):
        return "int4"
    if bits == 4 and group in (32, 64):
        return f"int4-g{group}"
    raise own.fault(
        "bits", f"{bits} bits in groups of {group}", "8 bits, or 4 bits in groups of 32, 64 or 128"
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


def _rest(found: Quantization, form: str) -> None:
    """Everything in the layers that no rule has claimed; the output head only if it is listed."""
    found.take(lambda module: _LAYER.search(module) is not None, form)
    found.weight_format = form


def _mixed(forms: Iterable[str]) -> str:
    """Name a checkpoint of several formats by its narrowest, which is what people call it."""
    order = (
        "nvfp4",
        "mxfp4",
        "int4",
        "int4-g64",
        "int4-g32",
        "mxfp8",
        "fp8-block",
        "fp8-channel",
        "fp8-tensor",
        "int8",
    )
    present = set(forms)
    return next((form for form in order if form in present), "bf16")


def _skip(found: Quantization, own: Keys, *names: str, wildcards: bool = False) -> None:
    listed = own.texts(*names)
    if listed:
        found.leave(_matcher(own, names[0], listed, wildcards=wildcards))


def _matcher(own: Keys, key: str, names: Sequence[str], *, wildcards: bool) -> Matcher:
    """Match a module if a name is the module, one of its parents, or a run of its path's parts.

    Args:
        own: The object the names stand in, for messages.
        key: The key they stand under.
        names: Module names; ``re:`` begins a regular expression, ``*`` is a wildcard.
        wildcards: True if a wildcard name must cover the whole module (ModelOpt), False if it may
            stand for a parent.
    """
    plain = frozenset(name for name in names if not name.startswith("re:") and "*" not in name)
    parts = tuple(sorted(f".{name}." for name in plain if "layers." not in name))
    prefixes: list[str] = []
    patterns: list[re.Pattern[str]] = []
    for name in sorted(set(names) - plain):
        if name.startswith("re:"):
            patterns.append(_expression(own, key, name[3:]))
        elif name.count("*") == 1 and name.endswith("*"):
            prefixes.append(name[:-1])
        elif len(name) <= 300 and name.count("*") <= 6:
            patterns.append(re.compile(translate(name if wildcards else f"{name.rstrip('*')}*")))
        else:
            raise own.fault(key, name, "a name with at most 6 wildcards")
    if len(parts) + len(patterns) > 500:
        raise own.fault(key, f"{len(parts) + len(patterns)} patterns", "at most 500 patterns")
    beginnings = tuple(prefixes)

    def matches(module: str) -> bool:
        dotted = f".{module}."
        return (
            any(parent in plain for parent in _parents(module))
            or module.startswith(beginnings)
            or any(part in dotted for part in parts)
            or any(pattern.match(module) for pattern in patterns)
        )

    return matches


def _under(names: frozenset[str]) -> Matcher:
    return lambda module: any(parent in names for parent in _parents(_unexpert(module)))


def _unexpert(module: str) -> str:
    """Bring ``experts.17.up_proj`` to ``experts.0.up_proj``: the experts of a layer are alike."""
    return _EXPERT.sub(".experts.0.", module) if ".experts." in module else module


def _parents(module: str) -> Iterable[str]:
    yield module
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _expression(own: Keys, key: str, pattern: str) -> re.Pattern[str]:
    """Compile an untrusted regular expression if it is short and free of nested repetition."""
    simple = (
        len(pattern) <= 400
        and len(re.findall(r"[*+?{]", pattern)) <= 8
        and not re.search(r"\)[*+?{]", pattern)
    )
    if simple:
        try:
            return re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            pass
    raise own.fault(key, pattern, "a short regular expression without repeated groups")
