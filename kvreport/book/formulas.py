"""Formulas as MathML: written as text in a chapter, typeset by the browser, without a script and without fonts from elsewhere.

A line is words, numbers and operators. ``a / b`` becomes a fraction, ``ceil(a)`` brackets, and what stands behind three
blanks or more is a remark. The text itself stays in the page as ``alttext``, for screen readers and for programs that print.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final

from kvreport.book.html import Html

_TOKEN: Final = re.compile(r"\s*([≥=<()/×+−]|,(?=\s)|(?:[^≥=<()/×+−,]|,(?=\S))+)")
_RELATIONS: Final = ("=", "≥", "<")
_NUMBER: Final = re.compile(r"\d[\d,.]*(?=\s|$|%)%?")


def formula(*lines: str) -> Html:
    """Typeset formulas, one line under the other, aligned at their first relation.

    Args:
        lines: The formulas; a line that begins with blanks continues the one above.
    """
    rows = "".join(f"<mtr>{_row(line)}</mtr>" for line in lines)
    text = escape("\n".join(lines), quote=True).replace("\n", "&#10;")
    return Html(
        f'<div class="kv-formula" tabindex="0"><math display="block" alttext="{text}"><mtable displaystyle="true">{rows}</mtable></math></div>'
    )


def typeset(line: str) -> str:
    """Return an expression as MathML.

    >>> typeset("1 − 8/32")
    '<mn>1</mn><mo form="infix">−</mo><mfrac><mn>8</mn><mn>32</mn></mfrac>'
    >>> typeset("ceil(n / 2)")
    '<mrow><mo>⌈</mo><mfrac><mi>n</mi><mn>2</mn></mfrac><mo>⌉</mo></mrow>'
    """
    tokens = [match[1].strip() for match in _TOKEN.finditer(line) if match[1].strip()]
    made, left = _sum(tokens)
    return made + "".join(f"<mo>{escape(token)}</mo>" for token in left)


def _row(line: str) -> str:
    body, *remarks = re.split(r"(?<=\S) {3,}(?=[^\s=≥<])", line)
    at = min((body.find(f" {sign} ") for sign in _RELATIONS if f" {sign} " in body), default=-1)
    if line.startswith(" "):
        sign = body.strip()[0]
        parts = ["", *((f"<mo>{sign}</mo>", body.strip()[1:]) if sign in "+×=" else ("", body))]
    elif at < 0:
        parts = ["", "", body]
    else:
        parts = [typeset(body[:at]), f"<mo>{escape(body[at + 1])}</mo>", body[at + 2 :]]
    cells = [parts[0], parts[1], typeset(parts[2]), *(f"<mtext>{escape(one)}</mtext>" for one in remarks)]
    return "".join(f"<mtd>{cell}</mtd>" for cell in cells)


def _sum(tokens: list[str]) -> tuple[str, list[str]]:
    """Read products, sums and relations up to a closing parenthesis."""
    made = ""
    while tokens and tokens[0] != ")":
        if tokens[0] in "+−×=≥<,":
            made, tokens = made + f'<mo form="infix">{escape(tokens[0])}</mo>', tokens[1:]
            continue
        term, tokens, _ = _factor(tokens)
        made += term
    return made, tokens


def _factor(tokens: list[str]) -> tuple[str, list[str], str]:
    """Read a factor and the fraction that it heads: its MathML, what is left, and its form inside a fraction."""
    token, *tokens = tokens
    inner = ""
    if token == "(" or (tokens and tokens[0] == "(" and token in ("ceil", "min", "max")):
        name = "" if token == "(" else token
        inner, tokens = _sum(tokens[1 if name else 0 :])
        tokens = tokens[1:]
        left, right = ("⌈", "⌉") if name == "ceil" else ("(", ")")
        head = f"<mi>{name}</mi>" if name in ("min", "max") else ""
        fence = "<mo>" if "<mfrac>" in inner else '<mo stretchy="false">'
        made = f"<mrow>{head}{fence}{left}</mo>{inner}{fence}{right}</mo></mrow>"
        inner = f"<mrow>{inner}</mrow>" if not name else made
    elif token == "/":
        made = inner = "<mo>/</mo>"
    else:
        made = inner = _words(token)
    if len(tokens) > 1 and tokens[0] == "/" and token != "/":
        _, tokens, below = _factor(tokens[1:])
        made = inner = f"<mfrac>{inner}{below}</mfrac>"
    return made, tokens, inner


def _words(text: str) -> str:
    text = text.strip()
    return f"<mn>{text}</mn>" if _NUMBER.fullmatch(text) else f"<mi>{escape(text)}</mi>"
