"""Leaving out of a script or a style sheet what only its readers need: comments and indentation.

Line ends stay, so a fault that a browser reports still has its line's text, and no statement depends on
where another ends. Names and spaces inside lines stay too; compression on the way does the rest.
"""

from __future__ import annotations

import re
from typing import Final

_BLANKS: Final = re.compile(r"[ \t]*\n[ \t\n]*")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_OPERATORS: Final = frozenset("(,=:[!&|?{};+-*%<>~^")
"""Signs after which a slash begins a regular expression, where after a value it divides."""

_KEYWORDS: Final = re.compile(r"\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do|yield|await)$")


def compact_style(text: str) -> str:
    """Return a style sheet without comments and indentation; none of our strings has a comment's signs."""
    return _BLANKS.sub("\n", _COMMENT.sub("", text)).strip() + "\n"


def compact_script(text: str) -> str:
    """Return a script without comments and indentation; strings, templates and patterns stay as they are."""
    parts: list[str] = []
    code: list[str] = []
    depths: list[int] = []  # braces that are open inside each ${…} of a template

    def flush() -> None:
        parts.append(_BLANKS.sub("\n", "".join(code)))
        code.clear()

    position = 0
    while position < len(text):
        sign = text[position]
        if (
            sign in "'\""
            or text.startswith(("//", "/*"), position)
            or _begins_pattern(text, position, code, parts)
        ):
            end = _end(text, position)
            if not text.startswith(("//", "/*"), position):
                flush()
                parts.append(text[position:end])
            position = end
            continue
        if sign == "{" and depths:
            depths[-1] += 1
        elif sign == "}" and depths:
            depths[-1] -= 1
            if not depths[-1]:
                depths.pop()
                flush()
                position = _template(text, position, parts, depths)
                continue
        elif sign == "`":
            flush()
            position = _template(text, position, parts, depths)
            continue
        code.append(sign)
        position += 1
    flush()
    return "".join(parts).strip() + "\n"


def _template(text: str, start: int, parts: list[str], depths: list[int]) -> int:
    """Copy a template's text from its opening sign, or from the brace that ends an expression; return its end."""
    position = start + 1
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == "`":
            break
        elif text.startswith("${", position):
            depths.append(1)
            position += 1
            break
        position += 1
    parts.append(text[start : position + 1])
    return position + 1


def _end(text: str, start: int) -> int:
    """Return where a comment, a string or a regular expression ends that begins at ``start``."""
    if text.startswith("//", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    if text.startswith("/*", start):
        return text.index("*/", start) + 2
    sign, position, inside = text[start], start + 1, False
    while inside or text[position] != sign:
        if text[position] == "\\":
            position += 1
        elif sign == "/" and text[position] in "[]":
            inside = text[position] == "["
        position += 1
    return position + 1


def _begins_pattern(text: str, position: int, code: list[str], parts: list[str]) -> bool:
    """Whether the slash at a position begins a regular expression."""
    if text[position] != "/":
        return False
    before = "".join(code[-24:]).rstrip() or (parts[-1][-24:].rstrip() if parts else "")
    return not before or before[-1] in _OPERATORS or _KEYWORDS.search(before) is not None
