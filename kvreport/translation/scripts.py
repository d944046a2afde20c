"""The words of a script: its strings and templates, at the places that a tokenizer gives.

A comment before a string marks what the rule of :mod:`.is_text` cannot know: ``/* text */ "weights"`` is a label,
``/* code */ "Open"`` is none. Comments are left out of published scripts.
"""

from __future__ import annotations

import json
import re
from typing import Final

from kvreport.translation.is_text import is_text
from kvreport.translation.text import Hole, Part, Say, has_tags, named, translated
from kvreport.translation.tokens import Token, tokens

_ESCAPE: Final = re.compile(r"\\(u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|\r?\n|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_CALLED: Final = re.compile(
    r"(?:\$|\$\$|querySelector|querySelectorAll|matches|closest|getElementById|addEventListener|import|RegExp"
    r"|scriptsOf|getAttribute|setAttribute|hasAttribute|removeAttribute|toggleAttribute|getItem|setItem|query|sql"
    r"|new Worker|createElement|createElementNS|startsWith|endsWith)\s*\($"
)
_KEY: Final = re.compile(r"(?:\.key|\.code|tagName|nodeName|\.name) [!=]==? $|case $")


def translate_script(script: str, say: Say) -> str:
    """Return a script with its words translated.

    Args:
        script: The source.
        say: Gives translations.
    """
    return _Script(script, say).until_end()


class _Script:
    def __init__(self, script: str, say: Say) -> None:
        self._tokens = list(tokens(script))
        self._say = say
        self._at = 0
        self._line = 1

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        self._line += token.text.count("\n")
        return token

    def until_end(self) -> str:
        """Return the code up to the piece of a template that ends it, or to the script's end."""
        out: list[str] = []
        mark = ""
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind == "template" and token.text.startswith("}"):
                break
            line = self._line
            self._take()
            if token.kind == "comment":
                mark = token.text.strip("/* ")
            if token.kind == "string":
                out.append(self._string(token.text, line, mark, "".join(out[-3:])))
            elif token.kind == "template":
                out.append(self._template(token.text, line, mark, "".join(out[-3:])))
            else:
                out.append(token.text)
            if token.kind != "comment" and (token.kind != "code" or token.text.strip()):
                mark = ""
        return "".join(out)

    def _string(self, source: str, line: int, mark: str, before: str) -> str:
        text = _cooked(source[1:-1])
        if not _is_shown(text, mark, before) or self._is_code(before):
            return source
        said = translated([text], self._say, line)
        return source if said == [text] else json.dumps("".join(map(str, said)), ensure_ascii=False)

    def _is_code(self, before: str) -> bool:
        """Whether a string is a key, or a list of words that code takes apart."""
        follows = self._tokens[self._at].text if self._at < len(self._tokens) else ""
        return follows.lstrip().startswith(".split(") or (
            follows.startswith(":") and before.rstrip().endswith(("{", ","))
        )

    def _template(self, source: str, line: int, mark: str, before: str) -> str:
        parts: list[Part] = []
        raw = [source]
        piece = source
        while piece.endswith("${"):
            parts.append(_cooked(piece[1:-2]))
            own = self.until_end()
            parts.append(Hole(own, named(own)))
            raw.append(own)
            piece = self._take().text
            raw.append(piece)
        parts.append(_cooked(piece[1:-1]))
        text = "".join(part if isinstance(part, str) else "\ue000" for part in parts)
        if not _is_shown(text, mark, before):
            return "".join(raw)
        said = translated(parts, self._say, line)
        if said == [part for part in parts if part]:
            return "".join(raw)
        return "`" + "".join(_written(part) for part in said) + "`"


def _is_shown(text: str, mark: str, before: str) -> bool:
    if mark in ("text", "code"):
        return mark == "text"
    if _CALLED.search(before) or _KEY.search(before):
        return False
    return has_tags(text) or is_text(text)


def _cooked(source: str) -> str:
    def one(found: re.Match[str]) -> str:
        sign = found[1]
        if sign[0] in "ux" and len(sign) > 1:
            return chr(int(sign.strip("ux{}"), 16))
        return _ESCAPES.get(sign, sign)

    return _ESCAPE.sub(one, source)


def _written(part: Part) -> str:
    if isinstance(part, str):
        return part.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
    return f"${{{part.source}}}"
