"""Read a config by a listing: formulas become shapes, rows become tensors, cache lines become caches."""

from __future__ import annotations

import re
from typing import Any, Final

from kvreport.architectures.assumptions import CORE
from kvreport.architectures.blueprint import Blueprint, Layer, Weight
from kvreport.architectures.cache_lines import cache_of, called
from kvreport.architectures.composites import text_model
from kvreport.architectures.decoder import saved_before_five
from kvreport.architectures.families import index
from kvreport.architectures.keys import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH, Keys
from kvreport.architectures.listing import CacheLine, Listing
from kvreport.architectures.listing_formulas import evaluate
from kvreport.architectures.parts import KERNEL, Formulas, kernel, row_tensors
from kvreport.architectures.published import published_defaults

_WHOLE: Final = re.compile(r"_(?:dim|rank|experts)$")
"""Endings of keys that hold a whole number wherever they stand; others may hold a list or a ratio."""
ENCODERS: Final = ("vision", "audio", "projector")
"""Components of encoders, and of what joins them to the text model."""
NOTHING_KEPT: Final = "no cache"


class ConfigScope(Formulas):
    """The values of a config's keys as a listing names them: dotted paths from the outermost object."""

    def __init__(self, root: Keys, listed: Listing) -> None:
        """Read ``root`` with the published defaults of the listing's class."""
        super().__init__(root)
        self.listed = listed
        self.defaults = published_defaults().get(listed.config or next(iter(listed.model_types), ""), {})
        self.index: int | None = None
        self.flat = ""  # the section that the config itself is, where a class without encoders is given flat
        self._found: dict[str, Any] = {}

    def look(self, path: str) -> Any:  # noqa: ANN401 - whatever the key holds, checked
        """Return the value of a key: stated, else derived, else the class's default."""
        if path == "i" and self.index is not None:
            return self.index
        if path not in self._found:
            self._found[path] = self._read(path)
        return self._found[path]

    def _read(self, path: str) -> Any:  # noqa: ANN401
        section, _, name = path.rpartition(".")
        keys = self._section(section)
        value = keys.raw(name)
        default = self.defaults.get(path)
        if path == "num_labels":
            return label_count(keys)
        if value is None and path in self.listed.derived and (default is None or keys.null(name)):
            return self._derived(keys, name, path)
        if value is None and keys.null(name):
            keys.trail.usual[keys.field(name)] = None
        if value is None and path == "tie_word_embeddings" and self._text_decides():
            return self._text_ties()
        if value is None:
            return None if keys.null(name) else self._default(keys, name, path)
        return _checked(keys, name, value, default)

    def _text_decides(self) -> bool:
        """Tell whether the text part's word on ties counts: where transformers 4 saved the config."""
        return saved_before_five(self.root) and bool(self.listed.reads) and not self.flat

    def _text_ties(self) -> bool:
        inner = self._section(self.listed.text)
        model_type = inner.text("model_type") or self.listed.reads
        name = index().model_types.get(model_type, "")
        defaults = published_defaults().get(name) or published_defaults().get(model_type) or {}
        return inner.flag("tie_word_embeddings", default=bool(defaults.get("tie_word_embeddings", False)))

    def _derived(self, keys: Keys, name: str, path: str) -> Any:  # noqa: ANN401
        formula = self.listed.derived[path]
        value = evaluate(formula, self.look)
        if isinstance(value, int) and not isinstance(value, bool):
            keys.trail.derived.append(f"{keys.field(name)} = {value}: {keys.missing(name)}; {formula}")
        else:
            keys.trail.usual[keys.field(name)] = value
        return value

    def _default(self, keys: Keys, name: str, path: str) -> Any:  # noqa: ANN401
        value = self.defaults.get(path)
        if isinstance(value, list) and value and isinstance(value[0], str):
            raise keys.fault(name, None, "a list, one entry per layer")
        if isinstance(value, int) and not isinstance(value, bool):
            keys.trail.assumed[keys.field(name)] = value
        elif value is not None:
            keys.trail.usual[keys.field(name)] = value
        elif path not in self.defaults:
            raise keys.fault(name, None, "a value: the class has no default")
        return value

    def _section(self, path: str) -> Keys:
        keys = self.root
        if self.flat and path.partition(".")[0] == self.flat:
            path = path.partition(".")[2]
        for part in path.split(".") if path else ():
            found = keys.section(part)
            keys = found or Keys({}, keys.where, keys.field(part), None, keys.trail)
        return keys


def _checked(keys: Keys, name: str, value: object, default: object) -> object:
    if isinstance(default, list) and name.endswith(KERNEL):
        return kernel(keys, name, usual=default)
    counts = isinstance(default, int) and not isinstance(default, bool)
    counted = not isinstance(default, list) and (name in CORE or _WHOLE.search(name) is not None)
    if counted or (counts and isinstance(value, bool | str)):
        if value == default:
            keys.trail.restated.add(keys.field(name))
        return keys.whole(name, low=0, high=MAX_CONTEXT)
    if isinstance(value, bool | str):
        return keys.flag(name) if isinstance(value, bool) else keys.text(name)
    if isinstance(value, int):
        if value == default:
            keys.trail.restated.add(keys.field(name))
        return keys.whole(name, low=-1, high=MAX_CONTEXT)
    if isinstance(value, float):
        return keys.number(name, low=-1e12, high=1e12)
    if isinstance(value, list):
        for index, item in enumerate(value[:100_000]):
            if not isinstance(item, int | str | float | list) or (
                isinstance(item, int) and abs(item) > MAX_WIDTH
            ):
                raise keys.fault(f"{name}[{index}]", item, "a number or a text")
        return value[:100_000]
    raise keys.fault(name, value, "a number, a text or a list")


def read_listed(listed: Listing, keys: Keys, *, text_alone: bool = False) -> Blueprint:
    """Read a config by the listing of its class.

    ``text_alone`` is True for the class's text half, whose config may be that of the text part alone.

    Raises:
        InputError: If the config does not state what the listing needs.
    """
    root = keys.outer
    if not listed.text and root is not keys and root.data.get(listed.sizes["hidden"]) is None:
        root = keys  # a class of text given a composite's config: its sizes are those of the section
    scope = ConfigScope(root, listed)
    if listed.text and not root.has(listed.text):
        encodes = any(row.component in (*ENCODERS, "other") for row in listed.rows)
        # The text part's keys may stand at the top, beside the encoder's section: PaddleOCR-VL as released.
        beside = root.has("hidden_size") and root.has("vision_config", "audio_config")
        if listed.reads or (encodes and not beside and not text_alone):
            raise root.fault(listed.text, None, "an object that describes the language model")
        scope.flat = listed.text
    for condition, why in listed.refused:
        if scope.holds(condition):
            raise root.fault(condition.split()[0], "a value that cannot be read", why)
    without = ENCODERS if text_alone and scope.flat else ()
    rows = [row for row in listed.rows if row.component not in without and scope.holds(row.condition)]
    tensors = [tensor for row in rows for tensor in row_tensors(row, scope)]
    if listed.reads:
        return _beside(listed, keys, tensors)
    root.trail.looked_at.update(root.field(path) for path in listed.derived)
    sizes = listed.sizes
    layers = _layers(listed, scope)
    return Blueprint(
        hidden_size=scope.whole(sizes["hidden"], "hidden", low=1),
        attention_heads=scope.whole(sizes.get("heads", "0"), "heads"),
        vocabulary=scope.whole(sizes.get("vocabulary", "1"), "vocabulary", low=1),
        context_tokens=_context(listed, scope),
        layers=layers,
        outer=tensors,
        intermediate_size=scope.whole(sizes["width"], "width") or None if "width" in sizes else None,
        experts=_experts(listed, scope),
        notes=list(listed.notes),
    )


def _beside(listed: Listing, keys: Keys, tensors: list[Weight]) -> Blueprint:
    """Read the text section by its own class and put the rest of the model beside it."""
    section = keys.outer.section(listed.text) or keys
    section.outer = keys.outer
    blueprint = text_model(section, listed.reads, ties="inner")
    if any(row.component == "output_head" for row in listed.rows) or listed.sizes.get("head") == "own":
        blueprint.outer = [tensor for tensor in blueprint.outer if tensor.component != "output_head"]
    blueprint.outer += tensors
    blueprint.notes += listed.notes
    return blueprint


def _context(listed: Listing, scope: ConfigScope) -> int:
    return scope.whole(
        listed.sizes.get("context", "max_position_embeddings"), "context", low=1, high=MAX_CONTEXT
    )


def _experts(listed: Listing, scope: ConfigScope) -> tuple[int, int] | None:
    if "experts" not in listed.sizes:
        return None
    routed = scope.whole(listed.sizes["experts"], "experts", high=MAX_EXPERTS)
    return (
        (routed, scope.whole(listed.sizes["per_token"], "per_token", low=1, high=routed)) if routed else None
    )


def _layers(listed: Listing, scope: ConfigScope) -> list[Layer]:
    count = scope.whole(listed.sizes.get("layers", "num_hidden_layers"), "layers", low=1, high=MAX_LAYERS)
    layers = []
    for number in range(count):
        scope.index = number
        lines = [line for line in listed.caches if _holds(line, scope)]
        caches = tuple(cache_of(line, scope) for line in lines)
        layers.append(Layer(" and ".join(dict.fromkeys(map(called, lines))) or NOTHING_KEPT, caches, ()))
    scope.index = None
    return layers


def _holds(line: CacheLine, scope: ConfigScope) -> bool:
    try:
        return scope.holds(line.condition)
    except IndexError as error:
        raise scope.root.fault("layer_types", "a shorter list", "one entry per layer") from error


def label_count(keys: Keys) -> int:
    """Return the classes that a classifier tells apart: ``num_labels``, else the entries of ``id2label``."""
    if keys.has("num_labels"):
        return keys.whole("num_labels", high=1 << 20)
    labels = keys.raw("id2label")
    if isinstance(labels, dict | list) and labels:
        return len(labels)
    keys.trail.usual[keys.field("num_labels")] = 2  # transformers, configuration_utils.py
    return 2
