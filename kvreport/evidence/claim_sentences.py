"""A claim as a sentence, read into what it states."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kvreport.catalog.claim import Relation
from kvreport.errors import InputError, shorten
from kvreport.resources import read_table
from kvreport.units import parse_tokens

if TYPE_CHECKING:
    pass


QUANTITIES: Final[dict[str, str]] = read_table("claimed quantities")
"""What a claim may be about."""


MOST_CHARACTERS: Final = 400
"""A statement is one sentence."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What is claimed."""

    model: str  # The model, by any name that the catalog knows.
    quantity: str  # A key of :data:`QUANTITIES`.
    value: str  # The number as printed; its digits say how exact it claims to be.
    unit: str = "B"  # Its unit as printed.
    context: int | None = None  # Tokens of a request; None if the words do not say.
    # The format of what is stored, a cache's or that of weights; None if the words do not say.
    form: str | None = None
    gpu: str | None = None  # The accelerator of ``requests`` and ``pool_tokens``.
    about: bool = False  # True if the words say "about".
    relation: Relation = "equals"  # How the words use the figure.


SIZES: Final = ("B", "bytes", "KB", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")


_RELATIONS: Final[tuple[tuple[str, Relation], ...]] = (
    (r"\b(?:at least|no less than)\b|>=|≥", "at_least"),
    (r"\b(?:at most|up to|no more than)\b|<=|≤", "at_most"),
    (r"\b(?:more than|over)\b|>", "more_than"),
    (r"\b(?:less than|under|below)\b|<", "less_than"),
)


_NUMBER: Final = r"[0-9][0-9,]*(?:\.[0-9]+)?"


_UNIT: Final = "|".join(sorted(map(re.escape, SIZES), key=len, reverse=True))


_VALUE: Final = re.compile(
    rf"(?<![\w.])(?P<value>{_NUMBER})(?:\s*(?P<size>{_UNIT.replace('bytes|', '').replace('|B', '')})|\s+(?P<bytes>B|bytes?))\b"
    r"(?P<token>\s*(?:/|per|a|each|every)\s*token)?",
)


_COUNTED: Final = re.compile(
    rf"(?<![\w.])(?P<value>{_NUMBER})\s*(?P<unit>(?:B|billion|million)\s+(?:active\s+)?parameters?|(?:active\s+)?parameters?|requests?|users?)\b"
)


_CONTEXT: Final = re.compile(
    r"(?:\b(?:at|with|for|of|in)\s+)?(?:a\s+)?(?<![\w.])(?P<tokens>[0-9][0-9,.]*\s?(?:[KkMm]i?)?)[ -]?(?:tokens?|context)(?:\s+of context)?\b"
    r"|\b(?:at|with|for)\s+(?P<bare>[0-9][0-9.]*\s?[KkMm]i?|(?<=at )[1-9][0-9,]{3,})\b"
)


_BITS: Final = {"16": "bf16", "8": "fp8"}
"""Formats by their bits where all of one width have the same bytes; those of 4 bits differ in their scales."""


_FORMS: Final = re.compile(
    r"\b(?:in|with|as)?\s*(?P<form>bf16|fp16|fp8|int8|int4|nvfp4|mxfp4|q8_0|q4_0|q4_k_m|(?P<bits>16|8|4)[ -]?bits?)\b",
    re.IGNORECASE,
)


_GPU: Final = re.compile(
    r"\bon\s+(?:an?\s+|one\s+)?(?P<gpu>[A-Za-z][\w .-]*?)(?=\s+(?:at|with|in|needs?|runs?|for)\b|[,;:]|$)"
)


_ABOUT: Final = re.compile(r"\b(?:about|roughly|around|approximately|circa|ca\.)\b|[≈~]", re.IGNORECASE)


_FILLING: Final = frozenset(
    re.findall(
        r"\S+",
        "a an and are at be by cache cached context each every for fits gpu has have holds in is it its keep keeps kv kv-cache memory model "
        "needs need of on one per request requests run runs size stores take takes that the to token tokens total uses use users "
        "vram weights weight with parameters parameter active state states sequence conversation user only",
    )
)


def read_statement(text: str) -> Statement:
    """Read one sentence: ``Kimi-K3 107136 B/token``, ``Llama 3.1 8B takes 16 GB at 128K in fp16``.

    Raises:
        InputError: If there is no number with a unit, or more than one, or no model.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"claim: found {len(text)} characters; allowed: {MOST_CHARACTERS}")
    rest = " ".join(text.split())
    lower = rest.lower()
    sized, counted = _VALUE.search(rest), _COUNTED.search(rest)
    if counted is not None and (sized is None or counted.start() == sized.start()):
        sized = None
    found = sized or counted
    if found is None:
        raise InputError(
            f"claim: found no number with a unit in {shorten(text)}; allowed: a model, a number and its unit, such as "
            "'Kimi-K3 107136 B/token'"
        )
    per_token = sized is not None and bool(
        sized["token"] or re.search(r"\b(?:per|each|every|a) token\b", lower)
    )
    rest = f"{rest[: found.start()]} ; {rest[found.end() :]}"
    if sized is not None and _VALUE.search(rest):
        other = _VALUE.search(rest)
        raise InputError(
            f"claim: found two figures, {found[0].strip()!r} and {other[0].strip()!r}; allowed: one"  # type: ignore[index]
        )
    about = _ABOUT.search(rest)
    relation: Relation = "equals"
    for said, name in _RELATIONS:
        match = re.search(said, rest, re.IGNORECASE)
        if match:
            relation, rest = name, f"{rest[: match.start()]} {rest[match.end() :]}"
            break
    rest = _ABOUT.sub(" ", rest)
    gpu = _GPU.search(rest)
    if gpu:
        rest = f"{rest[: gpu.start()]} ; {rest[gpu.end() :]}"
    context, rest = _take(_CONTEXT, rest)
    form, rest = _take(_FORMS, rest)
    words = [
        word
        for word in re.split(r"[\s,;:=()\"']+", rest)
        if word and word.lower().strip(".?!") not in _FILLING
    ]
    if not words:
        raise InputError(f"claim: found no model in {shorten(text)}; allowed: a model before its figure")
    if form is not None and form["bits"] == "4":
        raise InputError(
            f"claim: found {form[0].strip()!r}; allowed: a format by its name, such as nvfp4, int4 or q4_0, whose scales differ"
        )
    tokens = None
    if context is not None:
        tokens = parse_tokens((context["tokens"] or context["bare"]).replace(",", "").strip())
    return Statement(
        model=" ".join(words).strip(".?!"),
        quantity=_quantity(lower, None if sized else counted, tokens, per_token=per_token),
        value=found["value"],
        unit=_unit_of(sized, counted),
        context=tokens,
        form=None if form is None else _BITS.get(form["bits"] or "", form["form"].lower()),
        gpu=gpu["gpu"].strip() if gpu else None,
        about=about is not None,
        relation=relation,
    )


def _take(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str] | None, str]:
    match = pattern.search(text)
    return match, text if match is None else f"{text[: match.start()]} ; {text[match.end() :]}"


def _unit_of(sized: re.Match[str] | None, counted: re.Match[str] | None) -> str:
    if sized is not None:
        return sized["size"] or "B"
    unit = counted["unit"] if counted is not None else ""
    if unit.startswith(("B ", "billion")):
        return "billion"
    return (
        "million"
        if unit.startswith("million")
        else "requests"
        if unit[:4] in ("requ", "user")
        else "parameters"
    )


def _quantity(lower: str, counted: re.Match[str] | None, tokens: int | None, *, per_token: bool) -> str:
    if counted is not None:
        if counted["unit"][:4] in ("requ", "user"):
            return "requests"
        return "active_parameters" if "active" in lower else "parameters"
    if per_token:
        return "kv_per_token"
    if re.search(r"\bstates?\b", lower) and tokens is None:
        return "state"
    if tokens is not None:
        return "kv_request"
    if re.search(r"\b(?:kv|cache)\b", lower):
        raise InputError("claim: found a cache and no context; allowed: 'at 128K', or a figure per token")
    return "weights"
