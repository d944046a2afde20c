"""Which modules a checkpoint quantised: rules over module paths, in the order in which they count.

Names come with wildcards or regular expressions, which are untrusted: only a small, linear-time
subset of them is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Final

from kvreport.architectures.blueprint import Tensor
from kvreport.architectures.keys import Keys

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


class Quantization:
    """What a checkpoint says about the formats it was published in.

    Attributes:
        weight_format: What the checkpoint as a whole is called.
        kv_format: KV format it declares, or None.
        keeps_head: True if the output head stays as it is, whatever the rules say.
    """

    def __init__(self) -> None:
        """Begin with a checkpoint that quantises nothing."""
        self.weight_format = "bf16"
        self.kv_format: str | None = None
        self.keeps_head = False
        self._rules: list[tuple[Matcher, str | None]] = []

    def released(self, path: str, tensor: Tensor) -> str | None:
        """Return the format of one tensor, by its full path (``model.layers.3.mlp.up_proj.weight``).

        The first rule that knows the module decides; what no rule knows is unquantised.
        """
        if not tensor.linear or (self.keeps_head and tensor.component == "output_head"):
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


def take_layers(found: Quantization, form: str) -> None:
    """Everything in the layers that no rule has claimed; the output head only if it is listed."""
    found.take(lambda module: _LAYER.search(module) is not None, form)
    found.weight_format = form


def take_everything(found: Quantization, form: str) -> None:
    """Every linear layer that no rule has claimed, towers and projectors too, but not the output head."""
    found.take(lambda _module: True, form)
    found.keeps_head = True
    found.weight_format = form


def skip(found: Quantization, own: Keys, *names: str, wildcards: bool = False) -> None:
    """Leave the modules listed under the first of these keys alone."""
    listed = own.texts(*names)
    if listed:
        found.leave(matcher(own, names[0], listed, wildcards=wildcards))


def matcher(own: Keys, key: str, names: Sequence[str], *, wildcards: bool) -> Matcher:
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


def integer_form(own: Keys, bits: int, group: object) -> str:
    """Name integers of so many bits in groups of so many, with packed zero points."""
    if bits == 8:
        return "int8"
    if bits == 4 and group in (128, None):
        return "int4"
    if bits == 4 and group in (32, 64):
        return f"int4-g{group}"
    raise own.fault(
        "bits", f"{bits} bits in groups of {group}", "8 bits, or 4 bits in groups of 32, 64 or 128"
    )
