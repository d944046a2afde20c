"""The words of a page template: HTML between the statements and values of Jinja."""

from __future__ import annotations

import re
from typing import Final

from kvreport.translation.is_text import is_text
from kvreport.translation.text import Hole, Part, Say, Stop, named, translated

_CODE: Final = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_STRING: Final = re.compile(r"\"[^\"\\]*\"|'[^'\\]*'")


def translate_template(source: str, say: Say) -> str:
    """Return a template with its words translated.

    Args:
        source: The template.
        say: Gives translations.
    """
    parts: list[Part] = []
    place = 0
    for found in _CODE.finditer(source):
        if found.start() > place:
            parts.append(source[place : found.start()])
        line = source.count("\n", 0, found.start()) + 1
        code = found[0] if found[0].startswith("{#") else _strings(found[0], say, line)
        parts.append(Hole(code, named(code[2:-2])) if code.startswith("{{") else Stop(code))
        place = found.end()
    parts.append(source[place:])
    return "".join(
        part if isinstance(part, str) else part.source for part in translated(parts, say, html=True)
    )


def _strings(code: str, say: Say, line: int) -> str:
    """Translate the strings of an expression that are words."""
    if re.match(r"\{%-?\s*(?:include|extends|import|from)\b", code):
        return code

    def one(found: re.Match[str]) -> str:
        quote, text = found[0][0], found[0][1:-1]
        if not is_text(text):
            return found[0]
        said = "".join(str(part) for part in translated([text], say, line))
        return quote + said.replace(quote, "’" if quote == "'" else "”") + quote

    return _STRING.sub(one, code)
