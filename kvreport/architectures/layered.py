"""Decoders as listings of one layer: its rows, which layers are of which kind, and where the parts of a model are.

A section of ``layered/*.txt`` begins with the classes that it reads, ``[LlamaForCausalLM SolarForCausalLM]``; the defaults
are those of the first. One whose name is in lower case is no class, but what code builds classes on. Rows whose names begin with ``*.`` are a layer's, the others stand beside the layers. Formulas are
over the keys of the config, and over the sizes that nearly every decoder has: ``hidden``, ``heads``, ``kv_heads``,
``head_dim``, ``width``, ``routed`` (experts), ``i`` (the layer) and ``sparse`` (whether it is a mixture).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from typing import Any, Final, NamedTuple

from kvreport.architectures.attention import Kind, attention_cache, grouped_heads, layer_kinds, window
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.decoder import Sizes, context, decoder, expert_counts, open_context, sizes
from kvreport.architectures.expressions import evaluate
from kvreport.architectures.keys import Keys
from kvreport.architectures.listing import Listing, read_listing, sections
from kvreport.architectures.parts import Section, row_tensors
from kvreport.architectures.weights import Tensors

FOLDER: Final = "layered"
_TYPES: Final = re.compile(r"^model_types:\s+(.*)$", re.MULTILINE)
_LAYER: Final = "*."
"""How the name of a tensor of each layer begins."""
_STATED: Final = "stated_"
"""How the name for "the config states the key" begins."""
_SWITCHES: Final = ("bias_qkv", "bias_out", "bias_mlp", "bias_norm", "bias_experts", "bias_shared")
"""Terms of the parts in ``decoder_layers.txt`` that are false unless a listing says otherwise."""
_USUAL: Final = {"expert_width": "width", "mlp_width": "width"}
"""Terms of those parts that are the width of the model unless a listing says otherwise."""
_MODULES: Final = ("base", "embed", "blocks", "final_norm", "head")
_FLAGS: Final = ("head_bias", "norm_weight", "tie")
"""Words of a listing's head that are parameters of :func:`decoder`: names of modules, and formulas that are true or false."""


class LayeredIndex(NamedTuple):
    """Which classes are listed so.

    Attributes:
        texts: The section that reads a class, by the class; also what code builds on.
        first: The class whose defaults a class has; every class has one.
        model_types: The class that a ``model_type`` means.
    """

    texts: Mapping[str, str]
    first: Mapping[str, str]
    model_types: Mapping[str, str]


@cache
def index() -> LayeredIndex:
    """Return the section of every class that is listed as one layer."""
    folder = resources.files(__package__) / FOLDER
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".txt"))
    texts: dict[str, str] = {}
    first: dict[str, str] = {}
    model_types: dict[str, str] = {}
    for head, text in sections((folder / name).read_text(encoding="utf-8") for name in names).items():
        classes = head.split()
        texts |= dict.fromkeys(classes, text)
        first |= {name: classes[0] for name in classes if name[0].isupper()}
        found = _TYPES.search(text)
        model_types |= dict.fromkeys(found[1].split() if found else (), classes[0])
    return LayeredIndex(texts, first, model_types)


@cache
def listing(name: str) -> Listing:
    """Return the listing of a class that :func:`index` knows."""
    return read_listing(name, index().texts[name])


class _Scope(Section):
    """A config's keys with their defaults, and the sizes of the decoder. Every key is read once."""

    def __init__(self, keys: Keys, listed: Listing) -> None:
        super().__init__(keys, listed, {name: False for name in _SWITCHES if name not in listed.terms})
        self.sizes: dict[str, Any] = {"none": None}
        self._read: dict[str, Any] = {}

    def look(self, path: str) -> Any:  # noqa: ANN401 - whatever the key holds, checked
        if path in self.sizes:
            return self.sizes[path]
        formula = self.listed.terms.get(path) or _USUAL.get(path)
        if formula is not None:
            return evaluate(formula, self.look)
        if path not in self._read:
            self._read[path] = self._special(path)
        return self._read[path]

    def _special(self, path: str) -> Any:  # noqa: ANN401
        if path == "window":
            return window(self.root)
        if path.startswith(_STATED):
            return self.root.has(path.removeprefix(_STATED))
        if path == "window_or_none":  # a null means none, a missing key the class's default
            return None if self.root.null("sliding_window") else window(self.root)
        return super().look(path)

    def term(self, name: str) -> Any:  # noqa: ANN401
        """Return what a line of the listing's head says, or None where it has no such line."""
        formula = self.listed.sizes.get(name)
        return None if formula is None else evaluate(formula, self.look)


def read_layered(name: str, keys: Keys, **modules: Any) -> Blueprint:  # noqa: ANN401 - what decoder() takes
    """Read a config by the listing of a decoder's layer.

    Args:
        name: The class.
        keys: The (text) config, with the class's defaults.
        **modules: What a class that is built of this one changes, as :func:`decoder` takes it (``base``, ``extra``, ``tie``).

    Raises:
        InputError: If the config does not state what the listing needs.
    """
    listed = listing(name)
    scope = _Scope(keys, listed)
    its, notes = _sizes(scope, keys)
    scope.sizes |= {field: getattr(its, field) for field in Sizes.__slots__}
    width = scope.whole(listed.sizes["width"], "width", low=1) if "width" in listed.sizes else None
    scope.sizes["width"] = width
    experts = _experts(scope, keys)
    scope.sizes["routed"] = experts[0] if experts else 0
    # What a config leaves out is listed, whether it decides anything or not; but a number of KV heads only where it does.
    for path in listed.derived:
        if path not in listed.sizes.get("kv", ""):
            scope.look(path)
    for condition, why in listed.refused:
        if scope.holds(condition):
            name = condition.split()[0]
            raise keys.fault(name, str(keys.raw(name)).lower(), why)
    layers = _layers(scope, keys, its)
    extra = _rows(scope, of_layers=False)
    given: dict[str, Any] = {"norm_bias": bool(scope.look("bias_norm"))}
    given |= {word: listed.sizes[word] for word in _MODULES if word in listed.sizes}
    given |= {word: bool(scope.term(word)) for word in _FLAGS if word in listed.sizes}
    given |= {**modules, "extra": (*extra, *modules.get("extra", ()))}
    if "embedding_width" in listed.sizes:
        given["embedding_width"] = scope.term("embedding_width")
    notes += [*listed.notes, *(note for condition, note in listed.noted if scope.holds(condition))]
    return decoder(keys, its, layers, intermediate=width, experts=experts, notes=notes, **given)


def _sizes(scope: _Scope, keys: Keys) -> tuple[Sizes, list[str]]:
    """Return the sizes, and what to say of a context that the config does not state."""
    said = scope.listed.sizes
    longest: int | None = None
    notes: list[str] = []
    names: dict[str, Any] = {
        word: tuple(said[word].split()) for word in ("hidden", "heads", "layers") if word in said
    }

    def kv_heads(heads: int) -> int:
        scope.sizes["heads"] = heads
        found = scope.whole(said["kv"], "kv heads", low=1, high=heads)
        keys.divide("num_attention_heads", heads, "KV heads", found)
        return found

    kv: Callable[[int], int] | None = kv_heads if "kv" in said else None
    if "kv_names" in said:
        kv = partial(_grouped, keys, said["kv_names"].split())
    how, _, usual = said.get("context", "").partition(" ")
    if how == "open":
        longest, notes = open_context(keys, int(usual))
    elif how == "stated":
        longest = keys.whole(usual, default=context(keys))
    head = said.get("head_dim", "")
    its = sizes(
        keys,
        **names,
        kv_heads=kv,
        exact=head != "rounded",
        divided=head == "divided",
        head_width=None if head in ("", "rounded", "divided") else head,
        words=tuple(said.get("vocabulary", "").split()),
        longest=longest,
        scaled=how != "unscaled",
    )
    return its, notes


def _grouped(keys: Keys, names: list[str], heads: int) -> int:
    return grouped_heads(keys, heads, *names)


def _experts(scope: _Scope, keys: Keys) -> tuple[int, int] | None:
    said = scope.listed.sizes
    if "experts" not in said:
        return None
    per_token = said.get("per_token", "num_experts_per_tok").split()
    return expert_counts(keys, *said["experts"].split(), per_token=tuple(per_token))


def _layers(scope: _Scope, keys: Keys, its: Sizes) -> list[Layer]:
    said = scope.listed.sizes

    def at(word: str, layer: int) -> Any:  # noqa: ANN401
        scope.sizes["i"] = layer
        return scope.term(word)

    span = scope.term("window") if "window" in said else None
    scope.sizes["span"] = span
    kinds: list[Kind] = [said.get("every", "full")] * its.layers  # type: ignore[list-item]
    if "pattern" in said:
        kinds = layer_kinds(keys, its.layers, lambda layer: at("pattern", layer), ("full", "sliding"))
    listed = (
        keys.texts(said["listed"], length=its.layers, of=("dense", "sparse")) if "listed" in said else None
    )
    if listed is not None:
        sparse = [kind == "sparse" for kind in listed]
    elif "sparse" in said:
        sparse = [bool(at("sparse", layer)) for layer in range(its.layers)]
    else:
        sparse = ["experts" in said] * its.layers
    tensors: dict[bool, Tensors] = {}
    for mixed in dict.fromkeys(sparse):
        scope.sizes["sparse"] = mixed
        tensors[mixed] = _rows(scope, of_layers=True)
    return [
        Layer(*attention_cache(kind, its.kv_heads, its.head_dim, span=span), tensors[mixed])
        for kind, mixed in zip(kinds, sparse, strict=True)
    ]


def _rows(scope: _Scope, *, of_layers: bool) -> Tensors:
    """Return the tensors of one layer, or of what stands beside the layers."""
    rows = (row for row in scope.listed.rows if row.names[0].startswith(_LAYER) is of_layers)
    tensors = (
        tensor for row in rows if scope.holds(row.condition) for tensor in row_tensors(row, scope, empty=True)
    )
    return tuple(replace(tensor, name=tensor.name.removeprefix(_LAYER)) for tensor in tensors)
