"""Text with computed values and tags in it: which messages it holds, and the same text with translations in their places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

Say = Callable[[str, int], "str | None"]
"""Gives a message's translation; told the message and its line. None leaves the text as it is."""


class Hole(NamedTuple):
    """A computed value in a text.

    Attributes:
        source: The code that computes it.
        name: What a message calls it.
    """

    source: str
    name: str


class Stop(NamedTuple):
    """Code that parts two texts, such as a template's condition.

    Attributes:
        source: The code.
    """

    source: str


Part = str | Hole | Stop

ATTRIBUTES: Final = (
    "title",
    "aria-label",
    "aria-description",
    "aria-roledescription",
    "placeholder",
    "alt",
    "label",
    "content",
    "data-kv-label",
)
"""Attributes that are shown or read out."""

_INLINE: Final = frozenset(
    [
        "a",
        "abbr",
        "b",
        "br",
        "cite",
        "code",
        "em",
        "i",
        "kbd",
        "mark",
        "q",
        "s",
        "samp",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "time",
        "tspan",
        "u",
        "var",
    ]
)
_MUTE: Final = re.compile(r"<(script|style|pre|template|textarea)\b.*?(?:</\1>|\Z)", re.DOTALL)
_TAG: Final = re.compile(
    r"<!--.*?-->|<!\w[^>]*>|<(/?)([A-Za-z][\w-]*)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>", re.DOTALL
)
_ATTRIBUTE: Final = re.compile(rf"(?<=[\s])({'|'.join(ATTRIBUTES)})=(\"([^\"]*)\"|'([^']*)')")
_HOLES: Final = 0xF0000
_STOPS: Final = 0x100000
_MARK: Final = re.compile(r"[\U000F0000-\U0010FFFD]")
_STOP: Final = re.compile(r"[\U00100000-\U0010FFFD]")
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_CODE: Final = re.compile(r"<(code|kbd)\d*>.*?</\1\d*>|\{\w+\}|<[^>]*>|&\w+;", re.DOTALL)
_PLACE: Final = re.compile(r"\{(\w+)\}|<(/?\w+)>")


def has_tags(text: str) -> bool:
    """Whether a text is HTML, and no pattern with named groups."""
    return "(?" not in text and _TAG.search(text) is not None


def has_words(message: str) -> bool:
    """Whether a message has words of its own, outside of code and values.

    >>> has_words("<code>--port</code> {port}"), has_words("{count} requests")
    (False, True)
    """
    return _WORD.search(_CODE.sub(" ", message)) is not None


def places(message: str) -> list[str]:
    """Return the placeholders and tags of a message, sorted.

    >>> places("<a>{count} models</a> of {total}")
    ['/a', 'a', 'count', 'total']
    """
    return sorted({found[1] or found[2] for found in _PLACE.finditer(message)})


def translated(parts: Sequence[Part], say: Say, line: int = 1, *, html: bool | None = None) -> list[Part]:
    """Return a text with its messages translated.

    Args:
        parts: The text.
        say: Gives translations.
        line: Where the text begins in its file.
        html: Whether it is HTML; by default, if it has tags.
    """
    text = _Text(parts, say, line)
    if html is None:
        html = has_tags(text.flat)
    return text.parts("".join(text.html() if html else text.plain()))


class _Text:
    """A text as one string, in which a sign of private use stands for each value and each stop."""

    def __init__(self, parts: Sequence[Part], say: Say, line: int) -> None:
        self._code: dict[str, Hole | Stop] = {}
        flat = []
        for part in parts:
            if isinstance(part, str):
                flat.append(part)
                continue
            mark = chr((_HOLES if isinstance(part, Hole) else _STOPS) + len(self._code))
            self._code[mark] = part
            flat.append(mark)
        self.flat = "".join(flat)
        self._say, self._line = say, line

    def parts(self, flat: str) -> list[Part]:
        """Return a flat text as parts."""
        found: list[Part] = []
        end = 0
        for mark in _MARK.finditer(flat):
            if mark.start() > end:
                found.append(flat[end : mark.start()])
            found.append(self._code[mark[0]])
            end = mark.end()
        return [*found, flat[end:]] if end < len(flat) else found

    def _at(self, place: int) -> int:
        before = self.flat[:place]
        code = (self._code[mark[0]].source.count("\n") for mark in _MARK.finditer(before))
        return self._line + before.count("\n") + sum(code)

    def plain(self) -> Iterator[str]:
        """Yield the text, each line of it a message."""
        place = 0
        for line in re.split(r"(\n|[\U00100000-\U0010FFFD])", self.flat):
            yield line if _STOP.match(line) else self._run([line], place, squeeze=False)
            place += len(line)

    def html(self) -> Iterator[str]:
        """Yield HTML, with a message for each run of text between blocks and for each attribute that is shown."""
        run: list[str] = []
        began = place = 0
        for start, end, inline in self._tags():
            for number, piece in enumerate(re.split(r"([\U00100000-\U0010FFFD])", self.flat[place:start])):
                if number % 2:
                    yield from (self._runs(run, began), piece)
                    run = []
                elif piece:
                    began = began if run else place
                    run.append(piece)
                place += len(piece)
            tag = self._tag(start, end)
            if inline:
                began = began if run else start
                run.append(tag)
            else:
                yield from (self._runs(run, began), tag)
                run = []
            place = end
        yield self._runs(run, began)

    def _tags(self) -> Iterator[tuple[int, int, bool]]:
        place = 0
        while True:
            mute, tag = _MUTE.search(self.flat, place), _TAG.search(self.flat, place)
            if tag is None:
                break
            if mute is not None and mute.start() <= tag.start():
                # The tag itself may have attributes that are shown.
                opening = tag.end() if tag.start() == mute.start() else mute.start()
                if opening > mute.start():
                    yield mute.start(), opening, False
                yield opening, mute.end(), False
                place = mute.end()
                continue
            yield tag.start(), tag.end(), (tag[2] or "").lower() in _INLINE
            place = tag.end()
        yield len(self.flat), len(self.flat), False

    def _tag(self, start: int, end: int) -> str:
        source = self.flat[start:end]
        found = _TAG.fullmatch(source)
        if found is None or found[2] is None:
            return source

        def attribute(one: re.Match[str]) -> str:
            if one[1] == "content" and 'name="description"' not in source:
                return one[0]
            value = one[3] if one[3] is not None else one[4]
            if _STOP.search(value):
                pieces = re.split(r"([\U00100000-\U0010FFFD])", value)
                said = "".join(p if _STOP.match(p) else self._run([p], start, squeeze=True) for p in pieces)
            else:
                said = self._run([value], start, squeeze=True)
            if said == value:
                return one[0]
            quote = one[2][0]
            return f"{one[1]}={quote}{said.replace(quote, '&quot;' if quote == chr(34) else '&#39;')}{quote}"

        return _ATTRIBUTE.sub(attribute, source)

    def _runs(self, run: list[str], place: int) -> str:
        """Translate a run of text and inline tags, divided where its tags are not those of one sentence."""
        partner = _partners(run)
        if len(run) > 1 and len(partner) == len([one for one in run if _TAG.fullmatch(one)]):
            first = next((n for n, one in enumerate(run) if one.strip()), 0)
            last = next((n for n in range(len(run) - 1, -1, -1) if run[n].strip()), 0)
            depth_text = _outside(run, partner)
            if (first < last and not has_words(self._shown(depth_text))) or partner.get(first) == last:
                return self._divided(run, partner, place)
            return self._run(run, place, squeeze=True)
        if len(run) > 1:
            return self._divided(run, partner, place)
        return self._run(run, place, squeeze=True)

    def _divided(self, run: list[str], partner: dict[int, int], place: int) -> str:
        """Translate what is in and between a run's outer tags."""
        out: list[str] = []
        here: list[str] = []
        n = 0
        whole = len(partner) == len([one for one in run if _TAG.fullmatch(one)])
        while n < len(run):
            close = partner.get(n)
            if close is not None and close > n and whole:
                out += [self._runs(here, place), run[n], self._runs(run[n + 1 : close], place), run[close]]
                here = []
                n = close + 1
                continue
            if close is None and _TAG.fullmatch(run[n]):
                out += [self._runs(here, place), run[n]]
                here = []
            else:
                here.append(run[n])
            n += 1
        return "".join([*out, self._runs(here, place)])

    def _shown(self, text: str) -> str:
        return _MARK.sub(" ", text)

    def _run(self, run: list[str], place: int, *, squeeze: bool) -> str:
        """Translate one message."""
        source = "".join(run)
        if not _WORD.search(_MARK.sub("", source)):
            return source
        inner = source.strip()
        before, after = source[: source.index(inner)], source[source.index(inner) + len(inner) :]
        message, back = self._message(run)
        message = " ".join(message.split()) if squeeze else message.strip()
        if not has_words(message):
            return source
        said = self._say(message, self._at(place + len(before)))
        if said is None:
            return source
        return before + _PLACE.sub(lambda one: back.get(one[0], one[0]), said) + after

    def _message(self, run: list[str]) -> tuple[str, dict[str, str]]:
        """Return a run as a message, and what each of its placeholders stands for."""
        back: dict[str, str] = {}
        partner = _partners(run)
        names: dict[int, str] = {}
        out: list[str] = []
        for n, piece in enumerate(run):
            tag = _TAG.fullmatch(piece)
            if tag is None or tag[2] is None:
                taken = set(re.findall(r"\{\w+\}", "".join(run)))
                out.append(_MARK.sub(lambda mark: self._named(mark[0], back, taken), piece))  # noqa: B023
                continue
            if tag[1]:
                name = f"</{names[partner[n]]}>" if n in partner else piece
            else:
                plain = tag[2].lower()
                number = 1
                while f"<{plain}{number if number > 1 else ''}>" in back:
                    number += 1
                names[n] = f"{plain}{number if number > 1 else ''}"
                name = f"<{names[n]}>"
            back[name] = piece
            out.append(name)
        return "".join(out), back

    def _named(self, mark: str, back: dict[str, str], taken: set[str]) -> str:
        code = self._code[mark]
        base = code.name if isinstance(code, Hole) else "value"
        number = 1
        while True:
            name = f"{{{base}{number if number > 1 else ''}}}"
            if back.get(name) == mark:
                return name
            held = back.get(name)
            same = held is not None and self._code[held] == code
            if held is None and name not in taken:
                back[name] = mark
                return name
            if same:
                return name
            number += 1


def _partners(run: list[str]) -> dict[int, int]:
    """Return the place of each tag's other half; tags without one, such as ``<br>``, are their own."""
    partner: dict[int, int] = {}
    open_tags: list[tuple[str, int]] = []
    for n, piece in enumerate(run):
        tag = _TAG.fullmatch(piece)
        if tag is None or tag[2] is None:
            continue
        name = tag[2].lower()
        if name == "br" or tag[3].endswith("/"):
            partner[n] = n
        elif not tag[1]:
            open_tags.append((name, n))
        elif open_tags and open_tags[-1][0] == name:
            start = open_tags.pop()[1]
            partner[start], partner[n] = n, start
    return partner


def _outside(run: list[str], partner: dict[int, int]) -> str:
    """Return what stands outside of a run's tags."""
    out, n = [], 0
    while n < len(run):
        if n in partner:
            n = max(n, partner[n]) + 1
            continue
        out.append(run[n])
        n += 1
    return "".join(out)


_PATH: Final = re.compile(r"(?<![\w.\"'])[A-Za-z_$][\w$]*(?:\??\.[A-Za-z_]\w*)*(?![\w.]|\?\.|\s*\()")
_NO_NAME: Final = frozenset(
    [
        "if",
        "else",
        "in",
        "not",
        "and",
        "or",
        "is",
        "for",
        "true",
        "false",
        "null",
        "None",
        "True",
        "False",
        "new",
        "typeof",
    ]
)


def named(expression: str) -> str:
    """Return the name of a computed value in messages.

    >>> [named(e) for e in ("model.name", "count(n)", "units.gib(case.pool, 1)", "'x' if a else b", "f()")]
    ['name', 'n', 'pool', 'a', 'value']
    """
    plain = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`", " ", expression)
    for found in _PATH.finditer(plain):
        name = re.sub(r"\W", "", re.split(r"\??\.", found[0])[-1]).strip("_")
        if found[0] not in _NO_NAME and name and not name.isdigit():
            return name
    return "value"
