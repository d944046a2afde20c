"""Leaving out of the theme's style sheets what no page of the site uses.

A theme styles everything that a site could have; every page loads all of it before it is drawn. A rule is left out if
each of its selectors needs a class that neither a page nor a script names, or a color scheme that no page has. Then
custom properties and animations are left out that nothing reads. What cannot be judged stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kvreport.build_cache import kept_by_fields

# The word boundary is checked after the literal; a pattern that begins with a literal is five times as fast.
_CLASSES: Final = re.compile(r"""class=(?<=\bclass=)(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_SCHEME: Final = re.compile(r"""(data-md-color-(?<=\bdata-md-color-)\w+)=["']?([\w-]+)""")
_NAME: Final = re.compile(r"[A-Za-z][\w-]*")
_PLAIN: Final = re.compile(r"""(?:["'`]|["'`\s,>+~]\.)([A-Za-z]+)(?=["'`\s.:>+~\[])""")
_NEEDED_CLASS: Final = re.compile(r"\.(-?[A-Za-z_](?:[\w-]|\\.)*)")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_NOT: Final = re.compile(r":(?:not|where|is)\((?:[^()]|\([^()]*\))*\)")
_COMMA: Final = re.compile(r",(?![^(\[]*[)\]])")
_SKIPPED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[{}]", re.DOTALL)
_DECLARATION: Final = re.compile(
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\([^()\"']*\)|[^;\"'])+", re.DOTALL
)
_NESTED: Final = ("@media", "@supports", "@layer", "@container")
_SHORTEST_STEM: Final = 6
_FEATURES: Final = (
    "md-annotation",
    "md-version",
    "md-consent",
    "md-feedback",
    "md-source",
    "tabbed-",
    "mermaid",
)
"""Beginnings of the classes that the theme's script makes for features which a page must have asked for."""


@kept_by_fields
@dataclass(frozen=True, slots=True)
class Named:
    """What a page names that style sheets may style or read.

    Attributes:
        classes: Its classes.
        schemes: Its color schemes: attribute and value.
        properties: Custom properties that it reads.
    """

    classes: frozenset[str]
    schemes: frozenset[tuple[str, str]]
    properties: frozenset[str]

    @classmethod
    def by(cls, html: str) -> Named:
        """Read a page."""
        classes: set[str] = set()
        for found in {"".join(groups) for groups in _CLASSES.findall(html)}:
            classes.update(found.split())
        return cls(frozenset(classes), frozenset(_SCHEME.findall(html)), frozenset(_read_properties(html)))


class Usage:
    """The classes and color schemes that a site's pages and scripts name."""

    def __init__(self) -> None:
        self._classes: set[str] = set()
        self._schemes: set[tuple[str, str]] = set()
        self._words: set[str] = set()
        self._properties: set[str] = set()
        self._stems: tuple[str, ...] = ()

    def page(self, html: str) -> None:
        """Take in what a page names."""
        self.add(Named.by(html))

    def add(self, named: Named) -> None:
        """Take in what a page is known to name."""
        self._classes |= named.classes
        self._schemes |= named.schemes
        self._properties |= named.properties

    def script(self, text: str) -> None:
        """Take in the words of a script that may become a class, or the beginning of one.

        A compound word counts anywhere. A plain one (``js``) counts where a string or a selector begins with it.
        """
        words = {word for word in _NAME.findall(text) if "-" in word or "_" in word}
        self._words |= words | set(_PLAIN.findall(text))
        self._stems += tuple(word for word in words if word[-1] in "-_" and len(word) >= _SHORTEST_STEM)
        self._properties.update(_read_properties(text))
        self._properties.update(re.findall(r"--[\w-]+", text))

    def style(self, text: str) -> None:
        """Take in the custom properties that another style sheet of the site reads."""
        self._properties.update(_read_properties(text))

    def matches(self, selector: str) -> bool:
        """Whether an element of the site could match a selector."""
        needed = _NOT.sub("", selector)
        for attribute, value in _SCHEME.findall(needed):
            if (attribute, value) not in self._schemes:
                return False
        return all(map(self._is_named, _NEEDED_CLASS.findall(_QUOTED.sub("", needed))))

    def reads(self, name: str) -> bool:
        """Whether a custom property is read."""
        return name in self._properties

    def _is_named(self, escaped: str) -> bool:
        name = escaped.replace("\\", "")
        if name in self._classes:
            return True
        feature = next((one for one in _FEATURES if name.startswith(one)), None)
        if feature and not any(one.startswith(feature) for one in self._classes):
            return False
        return name in self._words or name.startswith(self._stems or ("\n",))


def prune(sheets: Iterable[tuple[str, str]], usage: Usage) -> Iterator[tuple[str, str]]:
    """Yield (name, content) of each style sheet without the rules that nothing matches.

    Args:
        sheets: Names and contents.
        usage: What the site's pages and scripts name; learns what the kept rules read.
    """
    kept = [(name, _rules(content, usage)) for name, content in sheets]
    for _, content in kept:
        usage.style(content)
    moved = set(re.findall(r"animation(?:-name)?:([^;}]*)", "".join(content for _, content in kept)))
    played = set(_NAME.findall(" ".join(moved)))
    for name, content in kept:
        yield name, _unread(content, usage, played)


def _blocks(css: str) -> Iterator[tuple[str, str]]:
    """Yield (what stands before a brace, what stands in it) of each block."""
    position = 0
    while (start := css.find("{", position)) >= 0:
        depth, end = 0, start
        for sign in _SKIPPED.finditer(css, start):
            depth += {"{": 1, "}": -1}.get(sign[0], 0)
            if depth == 0:
                end = sign.start()
                break
        yield css[position:start], css[start + 1 : end]
        position = end + 1


def _rules(css: str, usage: Usage) -> str:
    parts = []
    for before, inside in _blocks(css):
        leading, at, rest = before.rpartition(";")  # @charset, @import
        selector = rest.strip()
        if selector.startswith(_NESTED):
            content = _rules(inside, usage)
        elif selector.startswith("@"):
            content = inside
        else:
            selector = ",".join(one for one in _COMMA.split(selector) if usage.matches(one))
            content = inside if selector else ""
        parts.append(f"{leading}{at}")
        if content:
            parts.append(f"{selector}{{{content}}}")
    return "".join(parts)


def _unread(css: str, usage: Usage, played: set[str]) -> str:
    """Leave out custom properties that nothing reads and animations that nothing plays."""
    parts = []
    for before, inside in _blocks(css):
        selector = before.rpartition(";")[2].strip()
        if selector.startswith(_NESTED):
            content = _unread(inside, usage, played)
        elif selector.startswith("@keyframes"):
            content = inside if selector.split()[-1] in played else ""
        elif selector.startswith("@"):
            content = inside
        else:
            content = ";".join(
                one
                for one in _DECLARATION.findall(inside)
                if not one.lstrip().startswith("--") or usage.reads(one.split(":")[0].strip())
            )
        if content:
            parts.append(f"{before}{{{content}}}")
    return "".join(parts)


def _read_properties(text: str) -> list[str]:
    return re.findall(r"var\(\s*(--[\w-]+)", text)
