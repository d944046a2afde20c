"""A script as its tokens: strings, templates, patterns, comments and the code between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Kind = Literal["code", "comment", "string", "template", "pattern"]

_OPERATORS: Final = frozenset("(,=:[!&|?{};+-*%<>~^")
"""Signs after which a slash begins a regular expression, where after a value it divides."""

_KEYWORDS: Final = re.compile(r"\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do|yield|await)$")
_NEXT: Final = re.compile(r"[\"'`/{}]")


class Token(NamedTuple):
    """A piece of a script."""

    # What it is. A template is in pieces: from its first sign or from the brace that ends a value, to the
    # next value or its last sign.
    kind: Kind
    text: str


def tokens(script: str) -> Iterator[Token]:
    """Yield a script's tokens, which together are the script."""
    depths: list[int] = []  # braces that are open inside each ${…} of a template
    place, begun, before = 0, 0, ""
    while (found := _NEXT.search(script, place)) is not None:
        here, sign = found.start(), found[0]
        if sign == "{" or (sign == "}" and (not depths or depths[-1] > 1)):
            if depths:
                depths[-1] += 1 if sign == "{" else -1
            place = here + 1
            continue
        kind, end = _token(script, here, sign, f"{before}{script[begun:here]}")
        if kind == "code":
            place = end
            continue
        if here > begun:
            yield Token("code", script[begun:here])
            before = f"{before}{script[begun:here]}"[-60:]
        if sign == "}":
            depths.pop()
        text = script[here:end]
        if kind == "template" and text.endswith("${"):
            depths.append(1)
        yield Token(kind, text)
        if kind != "comment":
            before = text[-2:] if kind != "template" or not text.endswith("${") else "("
        place = begun = end
    if begun < len(script):
        yield Token("code", script[begun:])


def _token(script: str, start: int, sign: str, before: str) -> tuple[Kind, int]:
    """Return which token begins at a sign, and where it ends."""
    if sign in "`}":
        return "template", _template_end(script, start + 1)
    if script.startswith("//", start):
        end = script.find("\n", start)
        return "comment", len(script) if end < 0 else end
    if script.startswith("/*", start):
        return "comment", script.index("*/", start) + 2
    if sign != "/":
        return "string", _end(script, start)
    before = before.rstrip()
    begins = not before or before[-1] in _OPERATORS or _KEYWORDS.search(before) is not None
    return ("pattern", _end(script, start)) if begins else ("code", start + 1)


def _template_end(script: str, place: int) -> int:
    while place < len(script):
        if script[place] == "\\":
            place += 1
        elif script[place] == "`":
            break
        elif script.startswith("${", place):
            return place + 2
        place += 1
    return place + 1


def _end(script: str, start: int) -> int:
    """Return where a string or a regular expression ends that begins at ``start``."""
    sign, place, inside = script[start], start + 1, False
    while inside or script[place] != sign:
        if script[place] == "\\":
            place += 1
        elif sign == "/" and script[place] in "[]":
            inside = script[place] == "["
        place += 1
    return place + 1
