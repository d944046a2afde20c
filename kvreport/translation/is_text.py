"""Which strings of a program are words for a reader: a rule, and two marks for where the rule cannot know."""

from __future__ import annotations

import re
from typing import Final

_CODE: Final = re.compile(
    r"^\s*[#.\[(*&?]?[\w-]*\s*$(?<![a-z])|^[#.\[@]|^--?\w[\w-]*(?:[ =]\S+)?$|[{}]\s*$|:[^:]*;\s*$|^[\w-]+\(|=>|://|^\.{0,2}/|\\[sdwbS]|\(\?|\|\\|\[\^"
    r"|^\s*(?:SELECT|CREATE|DESCRIBE|ORDER BY|LIMIT|COPY|WHEN|WITH)\b|^(?:image|text|application|font)/|^data:|^use strict$"
    r"|^[MLHVZ]\d|^(?:no-|max-|min-)\w+[=;]|\[(?:data-|name=|href|id=|type=)|^:scope|^(?:aria|data)-"
    r"|^(?:translate|rotate|scale|matrix|calc|var|url|repeat)\(|^\((?:max|min|prefers)-|^import \w|^\w+ = |\bkv-\w+$|^kv-"
    r"|^kvreport \w+(?: -|\s*\ue000)(?!.*\.$)|^(?:no[a-z]+ no[a-z]+)$|^[a-z]+\ue000[a-z]*$|\bdatum\."
    r"|^[\w-]+=[\"']"
)
_NAMES: Final = frozenset(
    [
        "Enter",
        "Escape",
        "Tab",
        "Home",
        "End",
        "Backspace",
        "Delete",
        "Array",
        "Object",
        "String",
        "Number",
        "Boolean",
        "Error",
        "Map",
        "Set",
        "Promise",
        "Content-Type",
        "Accept",
        "Authorization",
        "Infinity",
        "NaN",
        "PageUp",
        "PageDown",
        "Shift",
        "Control",
        "Space",
        "Arrow",
    ]
) | {"Source Sans Pro", "tokens given pool", "concurrency given pool", "given pool"}
_CAMEL: Final = re.compile(r"[A-Za-z]*[a-z][A-Z]\w*")
_LABEL: Final = re.compile(r"[“(]?[A-Z][a-z]+[a-z’'-]*[.…:?!)”]?")
_TOKEN: Final = re.compile(
    r"[a-z][\w.-]*[-_.:/=][\w.*:/=-]+|[.#][\w-]+|[\w.-]*_[\w.-]*|\d+[\d.]*(?:px|em|%|ms)?"
)
FORMS: Final = re.compile(r"([A-Za-z][A-Za-z ]+?)[a-z]?\|\1[a-z]+")
"""A noun's singular and plural: ``request|requests``."""

_SIGN: Final = "\ue000"


def is_text(text: str) -> bool:
    """Whether a string of a program is written for a reader; a computed value in it is U+E000.

    A single word in small letters may be a key as well as a label: that needs a mark.

    >>> [is_text(t) for t in ("Nothing fits here", "Weights", "\ue000 tokens", "GPU or accelerator")]
    [True, True, True, True]
    >>> [is_text(t) for t in ("kv-no kv-why", "weights", "a.kv-chip > b", "Enter", "index.html", "--port 3")]
    [False, False, False, False, False, False]
    """
    plain = text.strip()
    if not re.search(r"[^\W\d_]{2}", plain) or _CODE.search(plain) or plain in _NAMES:
        return False
    if FORMS.fullmatch(plain):
        return True
    words = plain.replace(_SIGN, "0").split()
    proper = [word for word in words if re.fullmatch(r"[“\"'(]*[^\W\d_][\w’'-]*[.,:;!?…)”\"']*", word)]
    prose = [
        word for word in proper if len(word) > 1 and not _TOKEN.fullmatch(word) and not _CAMEL.fullmatch(word)
    ]
    if not prose:
        return False
    if len(words) == 1:
        return _LABEL.fullmatch(plain) is not None and not _CAMEL.fullmatch(plain)
    selector = re.search(r"[>+~]\s*[.#\w\[*]|\w\[|,\s*[.#\[]", plain)
    return selector is None or re.search(r"[A-Z]", plain) is not None
