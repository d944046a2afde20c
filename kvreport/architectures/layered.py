"""Decoders as listings of one layer: its rows, which layers are of which kind, and where the parts of a model are.

A section of ``layered/*.txt`` begins with the classes that it reads, ``[LlamaForCausalLM SolarForCausalLM]``; the defaults
are those of the first. One whose name is in lower case is no class, but what code builds classes on. Rows whose names begin
with ``*.`` are a layer's, the others stand beside the layers. Formulas are over the keys of the config, and over the sizes
that nearly every decoder has: ``hidden``, ``heads``, ``kv_heads``, ``head_dim``, ``width``, ``routed`` (experts), ``i`` (the
layer) and ``sparse`` (whether it is a mixture).

A composite is listed like its text model (``like: Qwen2ForCausalLM``), or names the ``model_type`` of one that its config
leaves out (``reads: qwen2``), and has its encoders beside it (:mod:`kvreport.architectures.composites`). In its formulas,
``outer.x`` is a key of the whole config, ``vision_config.x`` one of an encoder's section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

from kvreport.architectures.attention import (
    LAYER_TYPES,
    Kind,
    attention_cache,
    grouped_heads,
    indexed_layers,
    layer_kinds,
    listed_windows,
    mixture_pattern,
    window,
)
from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.cache_lines import cache_of, called
from kvreport.architectures.composites import encoder_section, encoder_tensors, text_model, tied_by
from kvreport.architectures.decoder import (
    Sizes,
    context,
    decoder,
    expert_counts,
    latent_sizes,
    open_context,
    prediction_layers,
    sizes,
)
from kvreport.architectures.keys import Keys
from kvreport.architectures.listing import Listing, files, read_listing, sections, stated_types, with_base
from kvreport.architectures.listing_formulas import evaluate
from kvreport.architectures.parts import UNSAID, ConfigSection, row_tensors
from kvreport.architectures.published import published
from kvreport.architectures.tensor_builders import Tensors
from kvreport.architectures.vision import section_or_default
from kvreport.catalog.caches import Cache

FOLDER: Final = "layered"
_LAYER: Final = "*."
"""How the name of a tensor of each layer begins."""
_STATED: Final = "stated_"
_NULL: Final = "null_"
_OWN: Final = "own_"
_RAW: Final = "raw_"
_SAID: Final = "said_"
_PREFIX: Final = re.compile(f"^(?:{_STATED}|{_NULL}|{_OWN}|{_RAW}|{_SAID})")
"""How names begin for: the config states a key; it does so by null; its number there, if it says none but "auto"; what it says,
unchecked; a text or none."""
_OUTER: Final = "outer"
"""What stands before the name of a key of the whole config."""
_USUAL: Final = {"expert_width": "width", "mlp_width": "width"}
"""Terms of those parts that are the width of the model unless a listing says otherwise."""
_MODULES: Final = ("base", "embed", "blocks", "final_norm", "head")
_FLAGS: Final = ("head_bias", "norm_weight", "rotates", "tie")
"""Words of a listing's head that are parameters of :func:`decoder`: names of modules, and formulas that are true or false."""


class LayeredIndex(NamedTuple):
    """Which classes are listed so."""

    texts: Mapping[str, str]  # The section that reads a class, by the class; also what code builds on.
    first: Mapping[str, str]  # The class whose defaults a class has; every class has one.
    model_types: Mapping[str, str]  # The class that a ``model_type`` means.


@cache
def index() -> LayeredIndex:
    """Return the section of every class that is listed as one layer."""
    texts: dict[str, str] = {}
    first: dict[str, str] = {}
    model_types: dict[str, str] = {}
    for head, text in sections(files(FOLDER)).items():
        classes = head.split()
        texts |= dict.fromkeys(classes, text)
        first |= {name: classes[0] for name in classes if name[0].isupper()}
        model_types |= dict.fromkeys(stated_types(text), classes[0])
    return LayeredIndex({name: with_base(text, texts) for name, text in texts.items()}, first, model_types)


@cache
def listing(name: str) -> Listing:
    """Return the listing of a class that :func:`index` knows."""
    return read_listing(name, index().texts[name])


class _Scope(ConfigSection):
    """A config's keys with their defaults, and the sizes of the decoder. Every key is read once."""

    def __init__(self, keys: Keys, listed: Listing) -> None:
        super().__init__(keys, listed, {name: no for name, no in UNSAID.items() if name not in listed.terms})
        self.sizes: dict[str, Any] = {"none": None}
        self._read: dict[str, Any] = {}
        self._encoders: dict[str, ConfigSection] = {}

    def look(self, path: str) -> Any:  # noqa: ANN401 - whatever the key holds, checked
        if path in self.sizes:
            return self.sizes[path]
        formula = self.listed.terms.get(path) or _USUAL.get(path)
        if formula is not None:
            return evaluate(formula, self.look)
        if path not in self._read:
            self._read[path] = self._special(path)
        return self._read[path]

    def place(self, path: str) -> tuple[Keys, str]:
        """Return the object that a dotted path leads to, without a section's defaults, and the name of the key."""
        section, _, name = path.rpartition(".")
        if not section:
            return self.root, name
        outer = self.root.outer
        if section != _OUTER:
            own = any(line.section == section and not line.part for line in self.listed.encoders)
            return section_or_default(self.root if own else outer, section, {}), name
        if outer is not self.root and "outer" in self.listed.sizes:
            outer = outer.with_defaults(published(self.listed.sizes["outer"]))
        return outer, name

    def encoder(self, section: str) -> ConfigSection:
        """Return the scope of an encoder's section: its keys under all of their names, with its class's defaults."""
        if section not in self._encoders:
            lines = (line for line in self.listed.encoders if line.section == section)
            line = next(line for line in lines if self.holds(line.condition))
            self._encoders[section] = encoder_section(line, self.root)
        return self._encoders[section]

    def _special(self, path: str) -> Any:  # noqa: ANN401
        keys, name = self.place(path)
        if path == "window":
            return window(self.root)
        if path == "nested":
            return keys.outer is not keys
        if name.startswith(_STATED):
            return keys.has(name.removeprefix(_STATED))
        if name.startswith(_RAW):
            return keys.raw(name.removeprefix(_RAW))
        if name.startswith(_SAID):
            return keys.text(name.removeprefix(_SAID))
        if name.startswith(_NULL):
            name = name.removeprefix(_NULL)
            return keys.null(name, *self.listed.aliases.get(name, ()))
        if name.startswith(_OWN):
            return self._own(path)
        if path == "window_or_none":  # a null means none, a missing key the class's default
            return None if self.root.null("sliding_window") else window(self.root)
        section = path.rpartition(".")[0]
        if not section:
            return super().look(path)
        if section == _OUTER:
            return self.key(keys, path)
        encoder = self.encoder(section)
        return self.key(encoder.root, path) if path in self.listed.derived else encoder.look(name)

    def _own(self, path: str) -> Any:  # noqa: ANN401
        name = path.removeprefix(_OWN)
        stated = self.root.raw(name)
        if stated not in (None, "auto"):
            return self.root.whole(name, high=1 << 14)
        usual = self.listed.derived.get(path)
        value = None if usual is None else evaluate(usual, self.look)
        if value is not None and stated is None:
            self.root.trail.usual[self.root.field(name)] = value
        return value

    def term(self, name: str) -> Any:  # noqa: ANN401
        """Return what a line of the listing's head says, or None where it has no such line."""
        formula = self.listed.sizes.get(name)
        return None if formula is None else self.value(formula, name)


def read_layered(name: str, keys: Keys, **modules: Any) -> Blueprint:  # noqa: ANN401 - what decoder() takes
    """Read a config by the listing of a decoder's layer.

    ``modules`` are what a class that is built of this one changes, as :func:`decoder` takes it (``base``, ``extra``, ``tie``).

    Raises:
        InputError: If the config does not state what the listing needs.
    """
    listed = listing(name)
    scope = _Scope(keys, listed)
    if listed.reads:
        return _beside(scope, keys)
    its, notes = _sizes(scope, keys)
    scope.sizes |= {field: getattr(its, field) for field in Sizes.__slots__}
    width = scope.whole(listed.sizes["width"], "width", low=1) if "width" in listed.sizes else None
    scope.sizes["width"] = width
    experts = _experts(scope, keys)
    scope.sizes["routed"] = experts[0] if experts else 0
    # What a config leaves out is listed, whether it decides anything or not; but KV heads and ties only where they do.
    for path in listed.derived:
        if path not in f"{listed.sizes.get('kv')} {listed.sizes.get('tie')} {listed.sizes.get('if_used')}":
            scope.value(path, path)
    for path in (*listed.sizes.get("always", "").split(), *UNSAID):
        scope.look(path)
    _check(scope)
    layers = _layers(scope, keys, its)
    extra = (*encoder_tensors(scope, listed.encoders), *_rows(scope, of_layers=False))
    if "predicts" in listed.sizes:
        said = listed.sizes["predicts"].split()
        scope.sizes |= {"kind": "picks", "sparse": "dense" not in said}
        path = f"{modules.get('base') or listed.sizes.get('base') or 'model'}.layers"
        extra += prediction_layers(
            keys,
            its,
            _rows(scope, of_layers=True),
            path,
            first="first" in said,
            ends="ends" in said,
            glue=next((word for word in said if word.startswith("prediction")), "prediction"),
        )
    given: dict[str, Any] = {"norm_bias": bool(scope.look("bias_norm"))}
    given |= {word: listed.sizes[word] for word in _MODULES if word in listed.sizes}
    if keys.outer is not keys:
        inside = {word: listed.sizes.get(f"nested_{word}") for word in _MODULES}
        given |= {word: name for word, name in inside.items() if name is not None}
    if "ties" in listed.sizes:
        given["tie"] = tied_by(scope.term("ties"), keys)
    flags = {word: scope.term(word) for word in _FLAGS if word in listed.sizes}
    given |= {word: bool(flag) for word, flag in flags.items() if flag is not None}
    given |= {**modules, "extra": (*extra, *modules.get("extra", ()))}
    if "embedding_width" in listed.sizes:
        given["embedding_width"] = scope.term("embedding_width")
    notes += [*listed.notes, *(note for condition, note in listed.noted if scope.holds(condition))]
    blueprint = decoder(keys, its, layers, intermediate=width, experts=experts, notes=notes, **given)
    blueprint.predicting = _predicting(scope, keys, its)
    return blueprint


def _beside(scope: _Scope, keys: Keys) -> Blueprint:
    """Read the text part by its own class, whatever that is, and put the rest of the listing beside it."""
    listed = scope.listed
    blueprint = text_model(keys, listed.reads, ties=scope.term("ties") or "first")
    scope.sizes["hidden"] = blueprint.hidden_size
    _check(scope)
    blueprint.outer += encoder_tensors(scope, listed.encoders)
    blueprint.outer += _rows(scope, of_layers=False)
    return blueprint


def _check(scope: _Scope) -> None:
    """Refuse a config that meets one of the conditions under which it cannot be read."""
    for condition, why in scope.listed.refused:
        if scope.holds(condition):
            path = condition.split()[0]
            keys, name = scope.place(path)
            found = None if name.startswith(_STATED) else scope.look(path)
            value = str(found).lower() if isinstance(found, bool) else found
            raise keys.fault(_PREFIX.sub("", name), value, why)


def _sizes(scope: _Scope, keys: Keys) -> tuple[Sizes, list[str]]:
    """Return the sizes, and what to say of a context that the config does not state."""
    said = scope.listed.sizes
    if "latent" in said:
        its, rank, rope = latent_sizes(keys)
        scope.sizes |= {"kv_lora_rank": rank, "qk_rope_head_dim": rope}
        return its, []
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
        kv = partial(_grouped, *_sectioned(scope, keys, said["kv_names"]))
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
        divided=head == "divided" or (head == "divided if 0" and keys.raw("head_dim") == 0),
        head_width=None if head.split(" ")[0] in ("", "rounded", "divided") else head,
        words=tuple(said.get("vocabulary", "").split()),
        longest=longest,
        scaled=how != "unscaled",
    )
    return its, notes


def _sectioned(scope: _Scope, keys: Keys, names: str) -> tuple[Keys, list[str]]:
    """Return names of a key, and the object that has them: a section, where a dot follows its name."""
    section, _, inside = names.rpartition(".")
    return (scope.encoder(section).root, [inside]) if section else (keys, names.split())


def _grouped(keys: Keys, names: list[str], heads: int) -> int:
    return grouped_heads(keys, heads, *names)


def _experts(scope: _Scope, keys: Keys) -> tuple[int, int] | None:
    said = scope.listed.sizes
    if "experts" not in said or not scope.holds(said.get("experts_if")):
        return None
    per_token = said.get("per_token", "num_experts_per_tok").split()
    keys, names = _sectioned(scope, keys, said["experts"])
    return expert_counts(keys, *names, per_token=tuple(per_token))


def _layers(scope: _Scope, keys: Keys, its: Sizes) -> list[Layer]:
    said = scope.listed.sizes

    def at(word: str, layer: int) -> Any:  # noqa: ANN401
        scope.sizes["i"] = layer
        return scope.term(word)

    span = scope.term("window") if "window" in said else None
    scope.sizes["span"] = span
    kinds = _kinds(scope, keys, its.layers, at)
    listed = (
        keys.texts(said["listed"], length=its.layers, of=("dense", "sparse")) if "listed" in said else None
    )
    if listed is not None:
        sparse = [kind == "sparse" for kind in listed]
    elif said.get("mixtures") == "deepseek":
        sparse = mixture_pattern(keys, its.layers)
    elif "sparse" in said:
        sparse = [bool(at("sparse", layer)) for layer in range(its.layers)]
    else:
        sparse = ["experts" in said] * its.layers
    names = said.get("windows", "").split()
    spans = (listed_windows(keys, names[0], kinds) if names else None) or [span] * its.layers
    each = list(zip(kinds, spans, sparse, strict=True))
    several = len({wide for kind, wide, _ in each if kind == "sliding"}) > 1
    made = {}
    for kind, wide, mixed in dict.fromkeys(each):
        scope.sizes |= {"kind": kind, "sparse": mixed}
        name, caches = _kept(scope, its, kind, wide)
        name = f"{name} of {wide:,}" if several and kind == "sliding" else name
        made[kind, wide, mixed] = Layer(name, caches, _rows(scope, of_layers=True))
    return [made[layer] for layer in each]


def _predicting(scope: _Scope, keys: Keys, its: Sizes) -> tuple[Cache, ...] | None:
    """Return what a prediction layer keeps, where the config lists it apart from the layers; None where it does not.

    vLLM 0.33, ``exaone_moe.py::ExaoneMoeAttention``: ``mtp_layer_types`` and ``mtp_sliding_windows``, else the layer of
    the same index.
    """
    names = scope.listed.sizes.get("windows", "").split()
    kinds = keys.texts(names[2], of=tuple(LAYER_TYPES)) if names else None
    if not kinds:
        return None
    words = [LAYER_TYPES[one] for one in kinds]
    spans = listed_windows(keys, names[1], words) or [scope.term("window")] * len(words)
    return _kept(scope, its, words[0], spans[0])[1]


def _kinds(scope: _Scope, keys: Keys, layers: int, at: Callable[[str, int], Any]) -> list[str]:
    """Return a word per layer: from a list of the config in words of its own or the usual ones, else by the class's pattern."""
    said = scope.listed.sizes
    words = dict(word.split("=") for word in said.get("types", "").split())
    listed = (
        keys.texts(*said.get("types_in", "layer_types").split(), length=layers, of=tuple(words))
        if words
        else None
    )
    if listed is not None:
        return [words[word] for word in listed]
    if said.get("indexers") == "glm":
        return ["picks" if picks else "latent" for picks in indexed_layers(keys, layers)]
    if "pattern" in said and not words:
        others: tuple[Kind, ...] = ("linear", "chunked")
        other: Kind = next((kind for kind in others if f"'{kind}'" in said["pattern"]), "sliding")
        return [*layer_kinds(keys, layers, lambda layer: at("pattern", layer), ("full", other))]
    if "pattern" in said or "kind" in said:
        return [at("pattern" if "pattern" in said else "kind", layer) for layer in range(layers)]
    return [said.get("every", "full")] * layers


def _kept(scope: _Scope, its: Sizes, kind: str, span: int | None) -> tuple[str, tuple[Cache, ...]]:
    """Return the name and the caches of a layer: those of the cache lines that hold, else attention's."""
    lines = [line for line in scope.listed.caches if scope.holds(line.condition)]
    if not lines:
        return attention_cache(cast(Any, kind), its.kv_heads, its.head_dim, span=span)
    name = scope.listed.sizes.get(f"called_{kind}") or " and ".join(map(called, lines))
    return name, tuple(cache_of(line, scope) for line in lines)


def _rows(scope: _Scope, *, of_layers: bool) -> Tensors:
    """Return the tensors of one layer, or of what stands beside the layers."""
    rows = (row for row in scope.listed.rows if row.names[0].startswith(_LAYER) is of_layers)
    tensors = (
        tensor for row in rows if scope.holds(row.condition) for tensor in row_tensors(row, scope, empty=True)
    )
    return tuple(replace(tensor, name=tensor.name.removeprefix(_LAYER)) for tensor in tensors)
