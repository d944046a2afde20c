"""Leaving out of a script or a style sheet what only its readers need: comments, indentation, spaces at signs.

Ends of statements stay ends of lines, so a fault that a browser reports still has its place, and no statement depends on
where another ends. Names stay too; compression on the way does the rest.
"""

from __future__ import annotations

import re
from typing import Final

from kvreport.publish.script_tokens import tokens

_BLANKS: Final = re.compile(r"[ \t]*\n[ \t\n]*")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRING: Final = re.compile(r"""("[^"\n]*"|'[^'\n]*')""")
_IN_STYLES: Final = re.compile(r"\s*([{};,])\s*|(?<=:)\s+")
"""Signs of a style sheet that need no space beside them. Before a colon it counts: ``a :hover`` is not ``a:hover``."""
_AT_SIGNS: Final = re.compile(r" *([{}(),;:=<>?&|*]) *")
"""Signs that need no space beside them. Of ``+``, ``-``, ``/`` and ``!`` two can be another sign."""
_INSIDE: Final = re.compile(r"(?<=[{(\[,])\n|\n(?=[)\]},.?:&|])")
"""Line ends inside of a statement: after a sign that begins or separates, or before one that closes or goes on."""


def compact_style(text: str) -> str:
    """Return a style sheet without comments and needless blanks; none of our strings has a comment's signs."""
    plain = _BLANKS.sub("\n", _COMMENT.sub("", text)).strip()
    parts = _STRING.split(plain)
    parts[::2] = [_IN_STYLES.sub(lambda found: found[1] or "", part) for part in parts[::2]]
    return "".join(parts) + "\n"


def compact_script(text: str) -> str:
    """Return a script without comments and needless blanks; strings, templates and patterns stay as they are."""
    parts: list[str] = []
    code: list[str] = []
    for token in tokens(text):
        if token.kind == "code":
            code.append(token.text)
        elif token.kind != "comment":
            parts += [_without_blanks("".join(code)), token.text]
            code.clear()
    parts.append(_without_blanks("".join(code)))
    return "".join(parts).strip() + "\n"


def _without_blanks(code: str) -> str:
    return _INSIDE.sub("", _AT_SIGNS.sub(r"\1", _BLANKS.sub("\n", code)))
