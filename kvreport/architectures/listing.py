"""Architectures as listings: a class written down as its checkpoint lists it, read by one small reader.

A listing is text: a head of ``name: value`` lines, then one line per tensor,

    model.layers.*.self_attn.{k_proj,v_proj}.weight  attention  (kv*head_dim, hidden_size)  x layers  linear bias

whose sizes are formulas over the keys of the config (:mod:`kvreport.architectures.listing_formulas`). The
files under ``listings/`` hold one section per class, begun by ``[ClassName]``; the page on adding a
model explains every word of the head by an example. What many classes have (a layer, an encoder) is a section of
``parts/``: ``part: bert_layer bert.encoder.layer.* text_config`` puts its rows into a module, with the sizes of a section.
``part: gated_mlp *.mlp if not sparse`` does so under a condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from itertools import product, zip_longest
from typing import Final, cast, get_args

from kvreport.catalog.model import Component, Split

FOLDER: Final = "listings"
PARTS: Final = "parts"
_SECTION: Final = re.compile(r"^\[([\w ]+)\]\s*$", re.MULTILINE)
_LIKE: Final = re.compile(r"^like:\s+(\w+)\s*$", re.MULTILINE)
_HEAD: Final = re.compile(r"^([a-z_]+):\s+(.*)$")
_ROW: Final = re.compile(r"^(\S+)\s+([a-z_]+)\s+\(([^|]*?),?\)\s*(?:x\s+([^|]+?))?\s*(?:\|\s*(.*))?$")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_PLAIN_WORDS: Final = ("linear", "table", "fp32")


@dataclass(frozen=True, slots=True)
class TensorRow:
    """Tensors of one shape."""

    names: tuple[str, ...]  # Their names; ``*`` stands for an index.
    component: Component
    shape: tuple[str, ...]  # Formulas of the sides, output dimension first.
    count: str = "1"
    linear: bool = False  # True for the weights of linear layers.
    # Formula that must be true for each to have a bias of its first side's width; "" for always, None for
    # never.
    bias: str | None = None
    table: bool = False  # True for a table of which single rows are read.
    stored: str | None = None  # ``fp32`` for a tensor that checkpoints keep so, or None for the model's type.
    split: Split = "replicated"  # How tensor parallelism divides them.
    heads: str | None = None
    condition: str | None = None  # Formula that must be true for the row to exist, or None.


@dataclass(frozen=True, slots=True)
class CacheLine:
    """What some layers keep."""

    # ``full``, ``sliding``, ``chunked``, ``latent``, ``indexer``, ``cross``, ``shared`` or ``state``.
    kind: str
    sizes: Mapping[str, str]  # Formula by name of a size.
    condition: str | None = None  # Formula over the keys and the layer index ``i``, or None for every layer.


@dataclass(frozen=True, slots=True)
class EncoderLine:
    """A section of a composite's config, and the encoder that it sizes."""

    part: str  # The encoder's listing in ``parts/``, or "" for a section that only formulas refer to.
    module: str  # Module that it is built in, or "" for none.
    section: str
    defaults: str
    absent: str  # The same for a config without the section.
    given: Mapping[str, str] = field(default_factory=dict)  # Formula by word of the part.
    condition: str | None = None  # Formula that must be true for the encoder to exist, or None.


@dataclass(slots=True)
class Listing:
    """One class."""

    name: str
    family: str = ""
    model_types: tuple[str, ...] = ()  # Values of ``model_type`` that mean it.
    config: str = ""  # The ``model_type`` whose published defaults are its own.
    text: str = ""  # Section of the language model, or "" for the whole config.
    reads: str = ""  # ``model_type`` of the text model where another class's reader reads the text section.
    # Formulas of what a model states beside its tensors (``layers``, ``heads``, ...).
    sizes: dict[str, str] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)  # Formulas of keys that a config may leave out.
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Formulas that others refer to by a name, in parts of models; what a caller gives goes before them.
    terms: dict[str, str] = field(default_factory=dict)
    # Condition under which the config cannot be read, and why.
    refused: list[tuple[str, str]] = field(default_factory=list)
    caches: list[CacheLine] = field(default_factory=list)
    # Encoders beside the text model, where they are sized by sections with defaults of their own.
    encoders: list[EncoderLine] = field(default_factory=list)
    rows: list[TensorRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # The same under a condition, which comes first.
    noted: list[tuple[str, str]] = field(default_factory=list)


@cache
def files(of: str) -> tuple[str, ...]:
    """Return the texts of a folder of listings, in the order of their names."""
    folder = resources.files(__package__) / of
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".txt"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def index() -> Mapping[str, str]:
    """Return the text of every class's section."""
    found = sections(files(FOLDER))
    return {name: with_base(text, found) for name, text in found.items()}


def sections(texts: Iterable[str]) -> dict[str, str]:
    """Return the text of every section by its name.

    Raises:
        ValueError: If two have the same name.
    """
    found: dict[str, str] = {}
    for text in texts:
        marks = list(_SECTION.finditer(text))
        for mark, following in zip_longest(marks, marks[1:]):
            if mark[1] in found:
                raise ValueError(f"two listings for {mark[1]}")
            found[mark[1]] = text[mark.end() : following.start() if following else len(text)]
    return found


def with_base(text: str, found: Mapping[str, str]) -> str:
    """Put the lines of the class that a section begins from before its own."""
    base = _LIKE.search(text)
    return text if base is None else with_base(found[base[1]], found) + text.replace(base[0], "")


def stated_types(text: str) -> list[str]:
    """Return the values of ``model_type`` that a section names."""
    stated = re.search(r"^model_types:\s+(.*)$", text, re.MULTILINE)
    return stated[1].split() if stated else []


@cache
def model_types() -> Mapping[str, str]:
    """Return the class that each ``model_type`` means, of those that are listed."""
    found: dict[str, str] = {}
    for name, text in index().items():
        for model_type in stated_types(text):
            found.setdefault(model_type, name)
    return found


@cache
def listing(name: str) -> Listing:
    """Return the listing of a class that :func:`index` knows."""
    return read_listing(name, index()[name])


@cache
def _parts() -> Mapping[str, str]:
    return sections(files(PARTS))


@cache
def part_listing(name: str) -> Listing:
    """Return the listing of a part of models."""
    return read_listing(name, _parts()[name])


def read_listing(name: str, text: str) -> Listing:
    """Read one section.

    Raises:
        ValueError: If a line is neither of the head nor a row.
    """
    found = Listing(name)
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        head = _HEAD.match(line)
        row = _ROW.match(line)
        if head:
            _head(found, head[1], head[2])
        elif row:
            found.rows.append(_row(row))
        else:
            raise ValueError(f"{name}, line {number}: {line!r} is neither a row nor 'name: value'")
    return found


def _head(found: Listing, key: str, value: str) -> None:
    match key:
        case "family" | "text" | "config" | "reads":
            setattr(found, key, value)
        case "model_types":
            found.model_types = tuple(value.split())
        case "note":
            found.notes.append(value)
        case "derive":
            name, _, formula = value.partition("=")
            found.derived[name.strip()] = formula.strip()
        case "part":
            found.rows += _part_rows(value)
        case "let":
            name, _, formula = value.partition("=")
            found.terms[name.strip()] = formula.strip()
        case "also":
            name, _, others = value.partition("=")
            found.aliases[name.strip()] = tuple(others.split())
        case "refuse" | "note_if":
            condition, _, why = value.partition(" -- ")
            (found.refused if key == "refuse" else found.noted).append((condition, why))
        case "cache":
            found.caches.append(_cache(value))
        case "encoder" | "section":
            found.encoders.append(_encoder(value if key == "encoder" else f". . {value}"))
        case _:
            found.sizes[key] = value


def _part_rows(value: str) -> Iterator[TensorRow]:
    """Yield the rows of a part: its name, the module, the section with its sizes, and when it is there."""
    placed, _, condition = value.partition(" if ")
    part, module, *section = placed.split()
    for row in part_listing(part).rows:
        found = _placed(row, module, "".join(section))
        both = f"({condition}) and ({found.condition})" if condition and found.condition else condition
        yield replace(found, condition=both or found.condition)


def _placed(row: TensorRow, module: str, section: str) -> TensorRow:
    """Put a row of a part into a module (``.`` for the same one), with sizes that are keys of a section of the config.

    Without a section, the sizes are keys of the same object.
    """

    def of_section(formula: str | None) -> str | None:
        return formula and _qualified(formula, section)

    return replace(
        row,
        names=row.names
        if module == "."
        else tuple(name for inner in row.names for name in expanded(f"{module}.{inner}")),
        shape=tuple(_qualified(side, section) for side in row.shape),
        count=_qualified(row.count, section),
        bias=of_section(row.bias),
        heads=of_section(row.heads),
        condition=of_section(row.condition),
    )


def _qualified(formula: str, section: str) -> str:
    if not section:
        return formula
    tree = ast.parse(formula, mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    keys = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)
    for place in sorted((key.col_offset for key in keys), reverse=True):
        formula = f"{formula[:place]}{section}.{formula[place:]}"
    return formula


def _cache(value: str) -> CacheLine:
    kept, _, condition = value.partition(" where ")
    kind, *words = kept.split()
    sizes = dict(word.split("=", 1) for word in words)
    return CacheLine(kind, sizes, condition.strip() or None)


def _encoder(value: str) -> EncoderLine:
    placed, _, condition = value.partition(" if ")
    part, module, section, defaults, *words = placed.split()
    usual, _, absent = defaults.partition("/")
    given = dict(word.split("=", 1) for word in words)
    part, module = part.removeprefix("."), module.removeprefix(".")
    return EncoderLine(part, module, section, usual, absent or usual, given, condition.strip() or None)


def _row(match: re.Match[str]) -> TensorRow:
    names, component, shape, count, rest = match.groups()
    if component not in get_args(Component):
        raise ValueError(f"{names}: {component} is not a component")
    options, _, condition = (rest or "").partition("if ")
    words = options.split()
    bias = next((word.partition(":")[2] for word in words if word.partition(":")[0] == "bias"), None)
    splits = (word for word in words if word not in _PLAIN_WORDS and word.partition(":")[0] != "bias")
    split = next(splits, "replicated")
    kind, _, heads = split.partition(":")
    if kind not in get_args(Split):
        raise ValueError(f"{names}: {kind} is not a way to divide a tensor")
    return TensorRow(
        names=tuple(expanded(names)),
        component=cast(Component, component),
        shape=tuple(split_outside(shape)),
        count=count or "1",
        linear="linear" in words,
        bias=bias,
        table="table" in words,
        stored="fp32" if "fp32" in words else None,
        split=cast(Split, kind),
        heads=heads or None,
        condition=condition.strip() or None,
    )


def expanded(names: str) -> Iterator[str]:
    """Yield the names that braces stand for: ``{q,k}_proj`` is ``q_proj`` and ``k_proj``."""
    parts = _BRACES.split(names)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    for chosen in product(*choices):
        yield "".join(chosen)


def split_outside(text: str) -> Iterator[str]:
    """Split at the commas that stand outside of parentheses and brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()
