"""Which modules a checkpoint quantised: rules over module paths, in the order in which they count.

Names come with wildcards or regular expressions, which are untrusted: only a small, linear-time
subset of them is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Final

from kvreport.architectures.blueprint import Weight
from kvreport.architectures.keys import Keys
from kvreport.catalog.layouts import integers, layout

Matcher = Callable[[str], bool]
Decision = Callable[[str, Weight], str | None]

_TOWERS: Final = ("vision", "audio")

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|mtp)\.\d+\.")
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_OTHER_NAMES: Final = (
    (".w1", ".gate_proj"),
    (".w3", ".up_proj"),
    (".w2", ".down_proj"),
    (".attn.wq_a", ".attn.fused_wqa_wkv"),
    (".attn.wkv", ".attn.fused_wqa_wkv"),
)
"""Names that tools give to modules which the checkpoint calls otherwise."""


class Quantization:
    """What a checkpoint says about the formats it was published in."""

    def __init__(self) -> None:
        """Begin with a checkpoint that quantises nothing."""
        self.weight_format = "bf16"  # What the checkpoint as a whole is called.
        self.kv_format: str | None = None  # The one that it declares.
        self.keeps_head = False  # Whether the output head stays as it is, whatever the rules say.
        self.decide: Decision | None = None  # Decides about every tensor alone, tables and heads too (MLX).
        # Whether transformers 5 wrote it, whose lists of modules name no part of a path.
        self.anchored = False
        self._rules: list[tuple[Matcher, str | None, bool, bool]] = []

    def released(self, path: str, tensor: Weight) -> str | None:
        """Return the format of one tensor, by its full path (``model.layers.3.mlp.up_proj.weight``).

        The first rule that knows the module decides; what no rule knows is unquantised.
        """
        module = path.removesuffix(".weight").replace("*", "0")
        if self.decide is not None:
            return self.decide(module, tensor)
        if not self._rules:
            return None
        table = tensor.component == "embedding"
        if not (tensor.linear or table) or (self.keeps_head and tensor.component == "output_head"):
            return None
        other = next(
            (module.removesuffix(old) + new for old, new in _OTHER_NAMES if module.endswith(old)), module
        )
        for matches, form, towers, tables in self._rules:
            if (tensor.component in _TOWERS and not towers) or (table and not tables):
                continue
            if matches(module) or (other != module and matches(other)):
                return form
        return None

    def leave(self, matches: Matcher) -> None:
        """Add a rule: these modules were left alone."""
        self._rules.append((matches, None, True, True))

    def take(self, matches: Matcher, form: str, *, towers: bool = True, tables: bool = False) -> None:
        """Add a rule: these modules were published in ``form``.

        Without ``towers``, the rule speaks of a kind of layer in general ("every Linear"): engines build image and audio encoders
        without it (vLLM 0.33.0, model_executor/models: the towers get no quant_config), and published checkpoints leave them at 16
        bits. With ``tables``, an embedding of that name is stored so, too.
        """
        self._rules.append((matches, form, towers, tables))


def take_layers(found: Quantization, form: str) -> None:
    """Everything in the layers that no rule has claimed; the output head only if it is listed."""
    found.take(lambda module: _LAYER.search(module) is not None, form, towers=False)
    found.weight_format = form


def take_everything(found: Quantization, form: str) -> None:
    """Every linear layer that no rule has claimed, towers and projectors too, but not the output head."""
    found.take(lambda _module: True, form)
    found.keeps_head = True
    found.weight_format = form


_AHEAD: Final = "model.decoder."
"""What SGLang calls a prediction layer, and what a checkpoint then lists (``models/mimo_v2_nextn.py``, 0.5.23)."""


def skip(found: Quantization, own: Keys, *names: str, wildcards: bool = False, exact: bool = False) -> None:
    """Leave the modules listed under the first of these keys alone."""
    listed = own.texts(*names)
    if listed:
        found.leave(matcher(own, names[0], listed, wildcards=wildcards, exact=exact))


def convert(found: Quantization, own: Keys, form: str, *, ending: str = "") -> None:
    """Take every linear layer that transformers converts: those not listed, and the output head where a list leaves it out.

    A list stands in the place of the usual one, which has the head (transformers 5.24, ``quantizers/base.py``).
    Version 4 looked for a name anywhere in a module's path. Version 5 looks for it as an expression at the beginning,
    up to the end of a part, or as an ending (``quantizers/quantizers_utils.py::should_convert_module``).

    ``ending`` is what the tool appends to a module's name before it looks (torchao: ``.weight``).
    """
    leave_listed(found, own, ending=ending)
    take_everything(found, form)
    found.keeps_head = not found.anchored or own.raw("modules_to_not_convert") is None


def leave_listed(found: Quantization, own: Keys, *, ending: str = "") -> None:
    """Leave the modules of ``modules_to_not_convert`` alone, by the rule of the version that wrote the checkpoint."""
    key = "modules_to_not_convert"
    if not found.anchored:
        skip(found, own, key)
    elif names := own.texts(key):
        found.leave(_anchored(own, key, names, ending))


def _anchored(own: Keys, key: str, names: Sequence[str], ending: str) -> Matcher:
    """Match a module whose path begins with a name, up to the end of a part, or ends with it."""
    plain = frozenset(name.rstrip(".") for name in names if not _EXPRESSION.search(name))
    endings = tuple(names)
    patterns = [
        re.compile(rf"(?:{_expression(own, key, name).pattern})(?:(?<=\.)|(?=\.|$))")
        for name in names
        if _EXPRESSION.search(name)
    ]
    if len(patterns) > 500:
        raise own.fault(key, f"{len(patterns)} patterns", "at most 500 patterns")

    def matches(module: str) -> bool:
        path = f"{module}{ending}"
        return (
            path.endswith(endings)
            or any(parent in plain for parent in _parents(path))
            or any(pattern.match(path) for pattern in patterns)
        )

    return matches


_EXPRESSION: Final = re.compile(r"[^\w.\-]")
"""A character that makes a module's name an expression."""


def matcher(own: Keys, key: str, names: Sequence[str], *, wildcards: bool, exact: bool = False) -> Matcher:
    """Match a module if a name is the module, one of its parents, or a run of its path's parts.

    In names, ``re:`` begins a regular expression and ``*`` is a wildcard: it covers the whole module with ``wildcards``
    (ModelOpt), else it may stand for a parent. An ``exact`` plain name is one module and nothing below it but experts; what
    comes before the name may be left out.
    """
    plain = frozenset(name for name in names if not name.startswith("re:") and "*" not in name)
    parts = tuple(sorted(f".{name}." for name in plain if "layers." not in name))
    ahead = tuple(f".{name.removeprefix(_AHEAD)}." for name in plain if name.startswith(_AHEAD))
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
        if exact:
            return (
                module in plain
                or any(parent in plain for parent in _parents(module) if parent.endswith(".experts"))
                or module.startswith(beginnings)
                or dotted.endswith(parts)
                or any(pattern.match(module) for pattern in patterns)
            )
        return (
            any(parent in plain for parent in _parents(module))
            or module.startswith(beginnings)
            or any(part in dotted for part in parts)
            or (module.startswith("model.mtp.") and any(part in dotted for part in ahead))
            or any(pattern.match(module) for pattern in patterns)
        )

    return matches


def take_named(found: Quantization, forms: Mapping[str, str]) -> list[str]:
    """Take modules and everything below them in the format that stands for their name; return the formats, sorted."""
    met = sorted(set(forms.values()))
    for form in met:
        found.take(under(frozenset(name for name, one in forms.items() if one == form)), form)
    return met


def under(names: frozenset[str]) -> Matcher:
    """Match the modules of these names and everything below them; experts are alike."""
    return lambda module: any(parent in names for parent in _parents(unexpert(module)))


def unexpert(module: str) -> str:
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


_USUAL_GROUP: Final = 128
"""Inputs that share a scale where a config does not say: AutoAWQ's and GPTQModel's own default."""


def integer_form(own: Keys, bits: int, group: object, zero: str = "zp") -> str:
    """Name integers of so many bits in groups of so many inputs; -1 or 0 means a whole channel.

    Without a group it is the usual 128. ``zero`` is what is stored of zero points: ``sym``, ``zp`` or ``z16``; ``s32``: none, and
    a wider scale.
    """
    size = _group(own, bits, group)
    if not 2 <= bits <= 8:
        raise own.fault("bits", f"{bits} bits in groups of {size}", "2 to 8 bits")
    return integers(bits, size, zero)


def gptq_form(own: Keys, bits: int, group: object) -> str:
    """Name GPTQ's layout: as it is in the file, with packed zero points and each input's group."""
    size = _group(own, bits, group)
    if bits not in (2, 3, 4, 8):
        raise own.fault("bits", f"{bits} bits in groups of {size}", "2, 3, 4 or 8 bits")
    return f"gptq{bits}-{f'g{size}' if size else 'channel'}"


def _group(own: Keys, bits: int, group: object) -> int:
    if group is None:
        return own.whole("group_size", "q_group_size", default=_USUAL_GROUP)
    if isinstance(group, bool) or not isinstance(group, int) or not -1 <= group <= 1 << 16:
        raise own.fault("group_size", group, f"a whole number from -1 to 65,536 ({bits} bits)")
    return max(group, 0)


def narrowest(forms: Iterable[str]) -> str:
    """Name a checkpoint of several formats by its narrowest, which is what people call it."""
    present = sorted(set(forms), key=lambda form: (_width(form), form))
    return present[0] if present else "bf16"


def _width(form: str) -> float:
    """Bits of one element without scales; floats come before integers of the same width."""
    if form in _WIDTHS:
        return _WIDTHS[form]
    found = layout(form)
    return found.bits + 0.2 if found is not None else 16


_WIDTHS: Final = {
    "nvfp4": 4,
    "mxfp4": 4.01,
    "int4": 4.1,
    "int4-g64": 4.11,
    "int4-g32": 4.12,
    "int4-z16": 4.13,
    "int4-z16-g64": 4.14,
    "int4-z16-g32": 4.15,
    "bnb-4bit": 4.16,
    "bnb-4bit-dq": 4.17,
    "mxfp8": 8,
    "fp8-block": 8.01,
    "fp8-channel": 8.02,
    "fp8-tensor": 8.03,
    "int8": 8.1,
}
"""Bits of the formats of ``formats.yaml``, told apart in the order in which a name is chosen."""
