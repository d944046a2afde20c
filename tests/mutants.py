"""Seeded mutation of what the fuzz targets give to the package: no shrinking, no database, thousands a second."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

WHOLE: Final = (0, 1, 2, 3, 5, 7, 63, 64, 65, 127, 128, 256, 1000, 4097, 10**5, 2**24, 2**30, 2**31, 2**40)
ODD: Final[tuple[Any, ...]] = (
    None, True, False, *WHOLE, -1, -3, 2**63, 10**30, 10**400, 0.5, 1.5, -0.0, 1e-300, 1e308, float("nan"),
    float("inf"), float("-inf"), "", " ", "x", "auto", "float32", "full_attention", "é" * 10, "a" * 5000, "\n", "{{",
    "null", "0x10", "1e9", "010", "\u202e", "\u2028", "\x00", "\x1b[31m", "\ufeff", "../../x", "<script>alert(1)",
    "=1+1", "مرحبا", "🦙", [], {}, [None], [0, 1, 2], [[]], {"factor": 2}, {"": 1}, ["re:.*"], {"quant_method": "fp8"},
)  # fmt: skip
NOISE: Final = (
    "\x00", "\x1b[31m", "\x1b[", "\r", "\r\n", "\t", "\ufeff", "\u2028", "\u202e", "\x85", "\ufffd", "🦙", "é", "'", '"',
    "(" * 30, "<script>", "{{ 1 }}", "=", "--", "  ", "%", "&", "#", "/", "\\", ",", ":", "- ", "[", "{", "*a", "&a", "\n",
)  # fmt: skip
Place = tuple[Any, ...]


def places(data: object, path: Place = (), skip: Sequence[str] = ()) -> Iterator[Place]:
    """Yield every place in a document but its root."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if key not in skip:
            yield (*path, key)
            yield from places(value, (*path, key), skip)


def read(data: Any, path: Place) -> Any:
    """Return what stands at a place."""
    for step in path:
        data = data[step]
    return data


def write(data: Any, path: Place, value: object) -> None:
    """Put something at a place."""
    read(data, path[:-1])[path[-1]] = copy.deepcopy(value)


def another(draw: random.Random, old: object) -> Any:
    """Return something else of mostly the same type."""
    if draw.random() < 0.15:
        return draw.choice(ODD)
    match old:
        case bool() | None:
            return draw.choice((True, False, None))
        case int():
            near = (old + 1, old - 1, old * 2, old * 3, old * 7, old * 1024, old // 2, -old)
            return draw.choice((*WHOLE, *near, draw.randrange(1, 1 << 20)))
        case float():
            return draw.choice((0.0, 1e-300, 0.5, 1.0, 1e6, 1e12, old * 2, old / 3))
        case list():
            return draw.choice(([], old[:1], old * 2, old[::-1], [*old, draw.choice(ODD)]))
        case str():
            return draw.choice(
                (draw.choice(ODD), misspelled(draw, old) if old else "x", old.upper(), old * 2)
            )
    return draw.choice(ODD)


def tree(draw: random.Random, data: Any, *, skip: Sequence[str] = ()) -> Any:
    """Change one to three things in a document, in place: replaced, removed, moved, doubled, or alike everywhere."""
    for _ in range(draw.randrange(1, 4)):
        known = list(places(data, skip=skip))
        if not known:
            break
        path = draw.choice(known)
        old, parent = read(data, path), read(data, path[:-1])
        kind = draw.random()
        if kind < 0.12:
            del parent[path[-1]]
        elif kind < 0.18 and isinstance(parent, dict):
            parent[draw.choice(("x", "id", "kind", "layers", misspelled(draw, str(path[-1]))))] = old
        elif kind < 0.24 and isinstance(parent, list):
            parent.extend([copy.deepcopy(old)] * draw.choice((1, 3, 40)))
        elif kind < 0.3:
            write(data, path, read(data, draw.choice(known)))
        else:
            new = another(draw, old)
            alike = type(old) is int and draw.random() < 0.6
            same = (
                [p for p in known if type(read(data, p)) is int and read(data, p) == old] if alike else [path]
            )
            for each in same:
                write(data, each, new)
    return data


def misspelled(draw: random.Random, word: str) -> str:
    """Return a word with one typing error."""
    if not word:
        return "x"
    at = draw.randrange(len(word))
    kind = draw.randrange(5)
    if kind == 0 and len(word) > 1:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + draw.choice("abcdefgxyz_") + word[at:]
    if kind == 2 and at + 1 < len(word):
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 3:
        return word.replace("_", "-") if "_" in word else word.upper()
    return word[:at] + draw.choice("abcdefgxyz") + word[at + 1 :]


def text(draw: random.Random, whole: str) -> str:
    """Change one to four places of a text: noise, cuts, doubled pieces, other numbers."""
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(whole) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            whole = whole[:at] + draw.choice(NOISE) + whole[at:]
        elif kind == 1:
            whole = whole[:at] + whole[at + draw.randrange(1, 40) :]
        elif kind == 2:
            piece = whole[at : at + draw.randrange(1, 80)]
            whole = whole[:at] + piece * draw.randrange(2, 5) + whole[at:]
        elif kind == 3:
            whole = whole[:at] + str(draw.choice(WHOLE)) + whole[at + draw.randrange(0, 3) :]
        else:
            other = draw.randrange(len(whole) + 1)
            whole = whole[:at] + whole[other : other + 30] + whole[at:]
    return whole


def octets(draw: random.Random, whole: bytes) -> bytes:
    """Change one to four places of a file: bits, numbers of eight bytes, cuts, pieces put elsewhere."""
    found = bytearray(whole)
    for _ in range(draw.randrange(1, 5)):
        if not found:
            break
        at = draw.randrange(len(found))
        kind = draw.randrange(6)
        if kind == 0:
            found[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            found[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind == 2:
            number = draw.choice((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, draw.getrandbits(64)))
            found[at : at + 8] = number.to_bytes(8, "little")
        elif kind == 3:
            del found[at : at + draw.choice((1, 4, 8, 100, len(found)))]
        elif kind == 4:
            found[at:at] = found[at : at + draw.randrange(1, 64)]
        else:
            number = draw.randrange(1, 4096)
            found[at : at + 4] = number.to_bytes(4, "little")
    return bytes(found)


def fresh(document: str) -> Any:
    """Return a document of its own from JSON text."""
    return json.loads(document)
