"""Numbers in prose: stated through code, and refused where they are not.

Two forms, in hand-written pages, in chapters, in questions and in the glossary:

``{{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}``
    A figure with the expression that it must equal, at its own printed precision. The page shows
    the figure; the build fails if the arithmetic or a catalog entry no longer gives it.

``{{ fits("llama-3.1-8b", "H100", tokens=8192) as requests }}``
    A value printed as it comes, for figures that may move (an engine's estimate). ``as GiB.1``
    prints one decimal.

``{{ MODEL }}``, ``{{ fits(MODEL, GPU, tokens=CONTEXT) as requests }}``
    On a page that names a reader's case (:mod:`kvreport.book.reader_case`): the case's names, and values that
    follow the case that a reader chooses.

The words of the expressions are :mod:`kvreport.book.quantities`. Code is left alone. A quantity
that stands in prose without either form is a *naked* one: :func:`naked` finds them, and the build
refuses them unless the reviewed list ``prose-allow.yaml`` names them with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from html import escape, unescape
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.book import reader_case
from kvreport.book.expressions import PrintedFigure, is_counted, names_in, tree_of, unit_factor
from kvreport.book.quantities import Quantities
from kvreport.catalog.base import SCHEMA_VERSION, LongText, Record, Text
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import Fault, InputError, shorten

_SKIPPED: Final = "pre|code|script|style|template|svg|textarea"
_PART: Final = re.compile(
    rf"<(?P<tag>{_SKIPPED})\b.*?</(?P=tag)\s*>|\{{\{{(?P<inner>.*?)\}}\}}", re.DOTALL | re.IGNORECASE
)
_TAG: Final = re.compile(r"<[^<>]*>")
_AS: Final = re.compile(r"(?P<expression>.+)\sas\s(?P<unit>[^\s.][^.]*?)(?:\.(?P<digits>\d))?", re.DOTALL)
_GLUED: Final = frozenset({"", "×", "%"})

_UNIT: Final = (
    r"(?:[KMGT]i?B|kB|bytes?|B|bits?|tokens?|tok/s|users?|requests?|sequences?|conversations?|layers?|heads?"
    r"|GPUs?|cards?|pages?|blocks?|parameters?|experts?|states?|elements?|numbers?|replicas?|ranks?|%|×|x|times"
    r"|fold|ms|µs|s|seconds?|minutes?|hours?|years?|W|TFLOP/s|GB/s|TB/s|FLOPs?|billion|million|thousand|percent|K|M)"
)
_QUANTITY: Final = re.compile(
    rf"(?<![\w.,#-])(?P<number>\d[\d,]*(?:\.\d+)?)(?P<gap>[\s\u00a0\u202f-]?)(?P<unit>{_UNIT})(?![\w/])"
)
_NOT_PROSE: Final = re.compile(
    r"^---\n.*?\n---\n"  # front matter
    r"|<!--.*?-->"
    r"|^(?P<fence>```|~~~).*?^(?P=fence)"
    r"|`[^`\n]+`"
    r"|\{\{.*?\}\}"
    r"|\]\([^)]*\)"
    r"|<(?:pre|code|svg|style|script)\b.*?</(?:pre|code|svg|style|script)>"
    r"|<[^<>]*>",
    re.DOTALL | re.MULTILINE,
)


class Allowed(Record):
    """One quantity that may stand in prose without an expression."""

    text: Text  # The quantity as it stands, ``16-bit``.
    where: Text = "*"
    reason: LongText


class AllowList(Record):
    """The content of ``prose-allow.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    allowed: Annotated[tuple[Allowed, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Naked:
    """A quantity in prose that nothing computes."""

    where: str
    line: int  # Line in the file, from 1.
    text: str
    around: str


def resolve(html: str, quantities: Quantities, where: str) -> tuple[str, list[Fault]]:
    """Replace every ``{{ … }}`` of a rendered page.

    Returns:
        The content, and a fault for each expression that fails or no longer gives its figure.
    """
    faults: list[Fault] = []

    def replace(match: re.Match[str]) -> str:
        inner = match["inner"]
        if inner is None:
            return match[0]
        source = " ".join(unescape(_TAG.sub("", inner)).split())  # one may go on in the next line
        try:
            return _shown(source, quantities)
        except InputError as error:
            faults.append(
                Fault(where, shorten(source, 160), str(error), "an expression that gives the figure")
            )
            return match[0]

    return _PART.sub(replace, html), faults


def state(source: str, quantities: Quantities) -> str:
    """Return the text that one ``{{ … }}`` stands for.

    Raises:
        InputError: If the expression cannot be computed or does not give the stated figure.
    """
    if quantities.reader is not None and source in reader_case.NAMES:
        return quantities.reader.names[source]
    stated, equals, expression = source.partition(" = ")
    if equals:
        figure = PrintedFigure.parse(stated)
        computed = quantities.compute(expression)
        if not figure.matches(computed):
            value = computed / unit_factor(figure.unit)
            raise InputError(
                f"the page says {stated.strip()}, the arithmetic gives {value:,.6g} {figure.unit}".strip()
            )
        mark = "≈\u00a0" if figure.about else ""
        return f"{mark}{figure.text}{'' if figure.unit in _GLUED else chr(0xA0)}{figure.unit}"
    match = _AS.fullmatch(source)
    if match is None:
        raise InputError("neither 'figure = expression' nor 'expression as unit'")
    unit = match["unit"].strip()
    value = quantities.compute(match["expression"]) / unit_factor(unit)
    digits = int(match["digits"]) if match["digits"] else 0
    number = f"{value:,.{digits}f}"
    counted = unit.removesuffix("s") if number == "1" and is_counted(unit) else unit
    return f"{number}{'' if unit in _GLUED else chr(0xA0)}{counted}"


def plain(text: str, quantities: Quantities) -> str:
    """Replace every ``{{ … }}`` of a plain text, such as a note in the data.

    Raises:
        InputError: If an expression fails or no longer gives its figure.
    """
    return re.sub(r"(?s)\{\{(.*?)\}\}", lambda match: state(" ".join(match[1].split()), quantities), text)


def _shown(source: str, quantities: Quantities) -> str:
    text = escape(state(source, quantities))
    if quantities.reader is not None and source in reader_case.NAMES:
        return f'<span data-kv-case="{source}">{text}</span>'
    expression = (source.partition(" = ")[2] or source.rpartition(" as ")[0]).strip()
    title = escape(expression, quote=True)
    return f'<span class="kv-q" title="{title}"{_live(source, expression, quantities)}>{text}</span>'


def _live(source: str, expression: str, quantities: Quantities) -> str:
    """Return the attribute of a value that follows the reader's case; "" for one that does not."""
    match = _AS.fullmatch(source)
    if quantities.reader is None or not names_in(expression).intersection(reader_case.NAMES):
        return ""
    if match is None:
        raise InputError("a figure with = is the same for every reader; write the value with as")
    unit = match["unit"].strip()
    told = {
        "x": tree_of(expression),
        "per": unit_factor(unit),
        "digits": int(match["digits"]) if match["digits"] else 0,
        "unit": unit,
        "glued": unit in _GLUED,
        "counted": is_counted(unit),
    }
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return f' data-kv-live="{escape(text, quote=True)}"'


def markdown_of(path: Path) -> str:
    """Return a page's prose with line numbers kept: Markdown, or the Markdown cells of a chapter.

    In a chapter (percent format) everything else becomes blank lines.
    """
    text = path.read_text(encoding="utf-8")
    return _cells(text) if path.suffix == ".py" else text


def _cells(text: str) -> str:
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("# %%"):
            inside = "[markdown]" in line
            lines.append("")
        elif inside and line.startswith("#"):
            lines.append(line[2:] if line.startswith("# ") else line[1:])
        else:
            lines.append("")
    return "\n".join(lines) + "\n"


def quantities_in(text: str, where: str) -> Iterator[Naked]:
    """Find every quantity that stands in prose outside code, tags and expressions."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "\x00", match[0])

    prose = _NOT_PROSE.sub(blank, text)
    for match in _QUANTITY.finditer(prose):
        if not match["gap"] and match["unit"] in ("B", "K", "M"):
            continue  # "8B" is a model's name, "128K" a context's: inputs, and nobody's result
        line = prose.count("\n", 0, match.start()) + 1
        around = " ".join(text[max(0, match.start() - 30) : match.end() + 20].split())
        yield Naked(where, line, " ".join(match[0].replace("\u00a0", " ").split()), around)


def naked(pages: Iterable[tuple[str, str]], allowed: Sequence[Allowed]) -> list[Fault]:
    """Hold pages against the allow list.

    Returns:
        A fault for each naked quantity, and for each entry of the list that nothing needs.
    """
    faults: list[Fault] = []
    used: set[int] = set()
    for where, text in pages:
        for found in quantities_in(text, where):
            entry = _entry(found, allowed)
            if entry is None:
                faults.append(
                    Fault(
                        f"{where}:{found.line}",
                        "",
                        f"the naked quantity {found.text!r} in “…{found.around}…”",
                        "{{ figure = expression }}, {{ expression as unit }}, or an entry in prose-allow.yaml",
                    )
                )
            else:
                used.add(entry)
    for number, rule in enumerate(allowed):
        if number not in used:
            faults.append(
                Fault("prose-allow.yaml", rule.text, "an entry that no page needs", "entries in use")
            )
    return faults


def _entry(found: Naked, allowed: Sequence[Allowed]) -> int | None:
    for number, rule in enumerate(allowed):
        if rule.text == found.text and fnmatch(found.where, rule.where):
            return number
    return None


def load_allowed(path: Path) -> tuple[Allowed, ...]:
    """Read the allow list.

    Raises:
        CatalogError: If the file is not as described.
    """
    return validate(AllowList, read_yaml(path, path.name), path.name).allowed
