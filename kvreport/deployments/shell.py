"""Shell scripts as far as a start command needs them: quotes, variables with defaults, arrays, tests, branches.

What a variable holds is known, or it is not: then its name stays in the word and is listed with its line. Nothing is
executed, and no environment but that of the file is read.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from kvreport.errors import InputError, shorten

Unresolved = tuple[int, str]
"""A line of the file, and what in it has no value there."""
Recognizer = Callable[[Sequence[str]], bool]
"""Whether words start a server."""

MOST_NESTED: Final = 20
"""Expansions and scripts inside one another: published scripts have four."""
MOST_STEPS: Final = 10_000
"""Words and signs of a script that are looked at."""
MOST_FOUND: Final = 200
"""Start commands of a script: published scripts have ten."""
MOST_OPEN: Final = 1_000
"""Variables of a script that have no value in it."""
MOST_TRIMMED: Final = 1 << 10
"""Characters of a value of which a beginning or an end is left out: longer ones stay as they are."""
MOST_CHARACTERS: Final = 1 << 20
"""Characters of one expanded word, and of all that a script's variables hold."""

_NUMBER: Final = re.compile(r"-?\d{1,18}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<plus>\+?)=(?P<value>.*)", re.DOTALL)
_EXPANSION: Final = re.compile(
    r"(?P<name>[A-Za-z_]\w*|\d|@|\*)(?P<all>\[[@*]\])?(?P<sign>:?[-+?=]|##?|%%?)?(?P<word>.*)", re.DOTALL
)
_OPERATORS: Final = ("&&", "||", ";;", "&>>", "&>", ";", "&", "|", "(", ")", "\n")
_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:<<<|<<-?|>>|>\||<>|>|<)(?:&(?:\d+|-))?")
_DECLARING: Final = frozenset({"export", "local", "declare", "readonly", "typeset"})
CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash"})


@dataclass(slots=True)
class Scope:
    """What is known where a command stands."""

    # Their values; None where a branch that may not be taken sets one.
    variables: dict[str, str | None] = field(default_factory=dict)
    arguments: list[str] | None = None  # Positional parameters; None where a caller gives them.
    arrays: dict[str, list[str] | None] = field(default_factory=dict)  # Arrays; None as above.
    unresolved: list[Unresolved] = field(default_factory=list)
    depth: int = 0

    def aside(self) -> Scope:
        """The same values, with what they miss kept apart."""
        return Scope(self.variables, self.arguments, self.arrays, depth=self.depth)

    def miss(self, line: int, text: str) -> str:
        """Note what has no value; it stays in the word as it is written."""
        if (line, text) not in self.unresolved:
            if len(self.unresolved) >= MOST_OPEN:
                raise InputError(
                    f"line {line}: found more than {MOST_OPEN:,} variables without a value; allowed: a start script"
                )
            self.unresolved.append((line, text))
        return text


@dataclass(frozen=True, slots=True)
class Started:
    """A start command in a script."""

    line: int
    words: tuple[str, ...]  # Its words, with assignments before it.
    certain: bool  # Whether it is run whatever a condition that cannot be judged says.
    branches: Mapping[int, int]


def closing(text: str, start: int, opens: str, closes: str) -> int:
    """Where the bracket that opens at ``start`` closes, quotes and escapes left out; the end where it does not."""
    depth, place = 0, start
    while place < len(text):
        sign = text[place]
        if sign == "\\":
            place += 1
        elif sign in "'\"" and opens == "(":
            place += 1
            while place < len(text) and text[place] != sign:
                place += 2 if text[place] == "\\" and sign == '"' else 1
        elif sign == opens:
            depth += 1
        elif sign == closes:
            depth -= 1
            if depth == 0:
                return place
        place += 1
    return len(text)


def interpolated(text: str, scope: Scope, line: int) -> str:
    """A value of a compose file with ``${NAME:-default}`` replaced and ``$$`` written as ``$``.

    A default is written out as it is. Source: the Compose specification, chapter Interpolation.
    """
    made, place = [], 0
    while (at := text.find("$", place)) >= 0:
        made.append(text[place:at])
        if text.startswith("$$", at):
            made.append("$")
            place = at + 2
            continue
        fields, place = _dollar(text, at, scope, line, 0)
        made.append(" ".join(fields))
    return "".join((*made, text[place:]))


def _dollar(text: str, at: int, scope: Scope, line: int, depth: int) -> tuple[list[str], int]:
    """What an expansion at ``at`` stands for, and the place behind it."""
    if depth > MOST_NESTED:
        raise InputError(f"line {line}: found variables nested too deeply; allowed: {MOST_NESTED} levels")
    if text.startswith("$((", at):
        end = closing(text, at + 1, "(", ")")
        sum_ = arithmetic(text[at + 3 : end - 1], scope)
        return [scope.miss(line, text[at : end + 1]) if sum_ is None else sum_], end + 1
    if text.startswith("$(", at):
        end = closing(text, at + 1, "(", ")")
        printed = _printed(text[at + 2 : end], scope, line)
        return [scope.miss(line, text[at : end + 1]) if printed is None else printed], end + 1
    if text.startswith("${", at):
        end = closing(text, at + 1, "{", "}")
        return _parameter(text[at + 2 : end], text[at : end + 1], scope, line, depth), end + 1
    plain = re.compile(r"[A-Za-z_]\w*|[\d@*]").match(text, at + 1)
    if plain is None:
        return ["$"], at + 1
    return _parameter(plain[0], f"${plain[0]}", scope, line, depth), plain.end()


def _printed(text: str, scope: Scope, line: int) -> str | None:
    """What a command prints that does nothing else: ``printf``, ``echo``, ``command -v``; None for any other."""
    signs = list(tokens(text, line)) if re.match(r"\s*(?:printf|echo|command|which)\s", text) else []
    if (
        not signs
        or scope.depth > MOST_NESTED
        or any(kind == "sign" and sign != "\n" for kind, sign, _ in signs)
    ):
        return None
    inner = replace(scope, depth=scope.depth + 1)
    words = [part for kind, sign, _ in signs if kind == "word" for part in expanded(sign, inner, line)]
    match words:
        case ["echo", *said] if not said or not said[0].startswith("-"):
            return " ".join(said)
        case ["command", "-v", program] | ["which", program]:
            return program
        case ["printf", form, *said] if "%" not in re.sub(r"%(?:\.\d)?[sdf]", "", form):
            values = iter(said)
            filled = re.sub(r"%(?:\.\d)?[sdf]", lambda _: next(values, ""), form)
            return filled.replace("\\n", "\n").rstrip("\n") if next(values, None) is None else None
    return None


def _parameter(inner: str, written: str, scope: Scope, line: int, depth: int) -> list[str]:
    found = _EXPANSION.fullmatch(inner)
    if found is None or (found["word"] and not found["sign"]):
        return [scope.miss(line, written)]
    name, sign = found["name"], found["sign"] or ""
    value, known = _value(name, found["all"] or "", scope)
    if sign.endswith("?") or not sign:
        return value if known and value is not None else [scope.miss(line, written)]
    if known and value is None:  # set in a branch that may not be taken
        return [scope.miss(line, written)]
    filled = value is not None and (not sign.startswith(":") or any(value))
    other = [_within(found["word"], scope, line, depth + 1)]
    if sign[0] in "#%":
        return (
            [scope.miss(line, written)] if value is None else [_trimmed(one, sign, other[0]) for one in value]
        )
    if sign.endswith("+"):
        return other if filled else [""]
    if sign.endswith("=") and not filled:
        scope.variables[name] = other[0]
    return value if filled and value is not None else other


def _trimmed(value: str, sign: str, pattern: str) -> str:
    """A value without its shortest or longest beginning (``#``, ``##``) or end (``%``, ``%%``) of a pattern."""
    cuts = range(len(value) + 1) if len(value) <= MOST_TRIMMED else range(0)
    for cut in cuts if sign in {"#", "%%"} else reversed(cuts):
        if fnmatchcase(value[:cut] if sign[0] == "#" else value[cut:], pattern):
            return value[cut:] if sign[0] == "#" else value[:cut]
    return value


def _value(name: str, every: str, scope: Scope) -> tuple[list[str] | None, bool]:
    """The words that a parameter holds, and whether it is known at all."""
    if name in "@*" or name.isdecimal():
        if name in "@*":
            return scope.arguments or [], True
        if scope.arguments is None:
            return None, False
        held = scope.arguments[int(name) - 1 : int(name)] or None
        return held, held is not None
    if every or name in scope.arrays:
        every_word = scope.arrays.get(name)
        return (every_word if every or every_word is None else every_word[:1]), name in scope.arrays
    value = scope.variables.get(name)
    return (None if value is None else [value]), name in scope.variables


def _within(text: str, scope: Scope, line: int, depth: int) -> str:
    """The text of a default, with its own expansions and without its quotes."""
    made, place = [], 0
    while place < len(text):
        sign = text[place]
        if sign == "\\" and place + 1 < len(text):
            made.append(text[place + 1] if text[place + 1] in '$"\\`}' else text[place : place + 2])
            place += 2
        elif sign == "$":
            fields, place = _dollar(text, place, scope, line, depth)
            made.append(" ".join(fields))
        elif sign == '"':
            place += 1
        else:
            made.append(sign)
            place += 1
    return "".join(made)


_SUMS: Final[dict[type[ast.AST], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


def arithmetic(text: str, scope: Scope) -> str | None:
    """The value of an arithmetic expansion of whole numbers; None where a part of it is not known."""
    missing = scope.aside()
    plain = _within(text, missing, 0, 1).replace("/", "//")
    plain = _NAME.sub(lambda name: _parameter(name[0], "?", missing, 0, 0)[0] or "0", plain)
    plain = re.sub(r"^([^?:]+)\?([^?:]+):([^?:]+)$", r"(\2) if (\1) else (\3)", plain)
    if not re.fullmatch(r"(?:[\d+*/%()<>=! -]|if|else){1,120}", plain):
        return None

    def of(node: ast.expr) -> int:
        match node:
            case ast.Constant(int(number)):
                return number
            case ast.UnaryOp(ast.USub(), inner):
                return -of(inner)
            case ast.BinOp(left, sign, right) | ast.Compare(left, [sign], [right]) if type(sign) in _SUMS:
                return int(_SUMS[type(sign)](of(left), of(right)))
            case ast.IfExp(test, then, other):
                return of(then) if of(test) else of(other)
        raise ValueError

    try:
        return str(of(ast.parse(plain.strip(), mode="eval").body))
    except (ValueError, SyntaxError, ZeroDivisionError):
        return None


def expanded(raw: str, scope: Scope, line: int) -> list[str]:
    """The words that one written word becomes: quotes removed, variables replaced, unquoted values split."""
    fields: list[str] = []
    word: str | None = None
    place, quoted, vanished = 0, False, False  # "$@" of no arguments is no word
    while place < len(raw):
        sign = raw[place]
        if sign == "'" and not quoted:
            end = _find(raw, "'", place + 1)
            word, place = (word or "") + raw[place + 1 : end], end + 1
        elif sign == '"':
            quoted, word, place = not quoted, (None if vanished and not word else word or ""), place + 1
            vanished = False
        elif sign == "\\" and place + 1 < len(raw):
            escaped = raw[place + 1]
            kept = "" if escaped == "\n" else escaped if not quoted or escaped in '$"\\`' else sign + escaped
            word, place = (word or "") + kept, place + 2
        elif sign == "`":
            end = _find(raw, "`", place + 1)
            word, place = (word or "") + scope.miss(line, raw[place : end + 1]), end + 1
        elif sign == "$":
            parts, after = _dollar(raw, place, scope, line, 0)
            listed = bool(re.match(r"\$\{?(?:@|\w+\[@\])", raw[place:after]))
            text = " ".join(parts)
            whole = parts if (quoted and listed) else [text] if quoted else _split(text, scope)
            vanished = vanished or (quoted and listed and not parts)
            for number, part in enumerate(whole):
                if number and word is not None:
                    fields.append(word)
                    word = None
                word = (word or "") + part
            place = after
        else:
            word, place = (word or "") + sign, place + 1
        if word is not None and len(word) > MOST_CHARACTERS:
            raise InputError(
                f"line {line}: found a word of more than {MOST_CHARACTERS:,} characters; allowed: less"
            )
    return fields if word is None else [*fields, word]


def _split(text: str, scope: Scope) -> list[str]:
    """The words of an unquoted value; what has no value stays in one piece, whatever it is written with."""
    for number, (_, missing) in enumerate(scope.unresolved):
        text = text.replace(missing, f"\0{number}\0")
    return [re.sub(r"\0(\d+)\0", lambda one: scope.unresolved[int(one[1])][1], word) for word in text.split()]


def tokens(text: str, first: int = 1) -> Iterator[tuple[str, str, int]]:  # noqa: PLR0912 - one a kind of sign
    """Yield ("word" or "sign", text, line) of a script; comments, redirections and here-documents are left out."""
    place, line, documents = 0, first, list[str]()
    while place < len(text):
        sign = text[place]
        if sign in " \t\r":
            place += 1
        elif text.startswith("\\\n", place):
            place, line = place + 2, line + 1
        elif sign == "#":
            place = _find(text, "\n", place)
        elif (redirects := _REDIRECTION.match(text, place)) is not None:
            place = redirects.end()
            if not redirects[0].endswith("-") and not re.search(r"&\d+$", redirects[0]):
                while place < len(text) and text[place] in " \t":
                    place += 1
                end = _word_end(text, place)
                if "<<" in redirects[0] and "<<<" not in redirects[0]:
                    documents.append(text[place:end].strip("'\"\\"))
                place = end
        elif (found := next((one for one in _OPERATORS if text.startswith(one, place)), None)) is not None:
            yield "sign", found, line
            place += len(found)
            if found == "\n":
                line += 1
                for ending in documents:
                    while place < len(text):
                        end = _find(text, "\n", place)
                        read, place, line = text[place:end], end + 1, line + 1
                        if read.strip() == ending:
                            break
                documents.clear()
        else:
            end = _word_end(text, place)
            yield "word", text[place:end], line
            line += text.count("\n", place, end)
            place = max(end, place + 1)
    yield "sign", "\n", line


def _find(text: str, sign: str, place: int) -> int:
    """Where a sign is; the end of the text where it is not."""
    found = text.find(sign, place)
    return len(text) if found < 0 else found


def _word_end(text: str, place: int) -> int:
    start = place
    while place < len(text):
        sign = text[place]
        if sign == "\\":
            place += 2
        elif sign == "'":
            place = _find(text, "'", place + 1) + 1
        elif sign == '"':
            place += 1
            while place < len(text) and text[place] != '"':
                if text.startswith("$(", place):
                    place = closing(text, place + 1, "(", ")")
                elif text[place] == "\\":
                    place += 1
                place += 1
            place += 1
        elif text.startswith(("$(", "${"), place):
            opens = text[place + 1]
            place = closing(text, place + 1, opens, ")" if opens == "(" else "}") + 1
        elif sign == "(" and text[start:place].endswith("="):
            place = closing(text, place, "(", ")") + 1
        elif sign in " \t\r\n;&|()<>":
            break
        else:
            place += 1
    return min(place, len(text))


@dataclass(slots=True)
class _Compound:
    """A conditional that is open: whether its present branch is taken (None: not known), whether an earlier one was."""

    number: int
    kind: str
    taken: bool | None = True
    done: bool | None = False
    branch: int = 0
    value: list[str] | None = None
    waiting: bool = False

    def enter(self, holds: bool | None) -> None:  # noqa: FBT001 - the value of a condition
        self.branch += 1
        self.waiting = False
        self.taken = False if self.done is True or holds is False else None if self.done is None else holds
        self.done = (
            True if True in {self.done, self.taken} else None if None in {self.done, self.taken} else False
        )


class Script:
    """Reads one script and keeps the start commands in it."""

    def __init__(self, scope: Scope, is_server: Recognizer, depth: int = 0) -> None:
        """Begin with a scope.

        Args:
            scope: Variables and arguments of the script.
            is_server: Whether words start a server.
            depth: Scripts around this one.
        """
        if depth > MOST_NESTED:
            raise InputError(f"script: found scripts nested too deeply; allowed: {MOST_NESTED} levels")
        self.scope, self.is_server, self.depth = scope, is_server, depth
        self.containers: list[tuple[int, list[str]]] = []  # Containers that start no server that is known.
        self.found: list[Started] = []
        self._frames: list[_Compound] = []
        self._count = self._steps = 0

    def _active(self) -> bool | None:
        states = [frame.taken for frame in self._frames]
        return False if False in states else None if None in states else True

    def run(self, text: str, first: int = 1) -> list[Started]:  # noqa: PLR0912, PLR0915 - one a kind of sign
        """Read a script whose first line is ``first`` of its file."""
        words: list[str] = []
        line = first
        chain: bool | None = True
        result: bool | None = True
        condition: bool | None = True
        called = False
        for kind, sign, at in tokens(text, first):
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise InputError(f"script: found more than {MOST_STEPS:,} words; allowed: a start script")
            top = self._frames[-1] if self._frames else None
            if kind == "word":
                line = line if words else at
                words.append(sign)
                case = top is not None and top.kind == "case" and top.value is None
                if top is not None and case and sign == "in" and len(words) > 1:
                    top.value = [part for raw in words[:-1] for part in self._tried(raw, at)]
                    top.waiting, words = True, []
                elif sign in {"{", "}"} and (len(words) == 1 or called):
                    chain, words, called = self._group(sign, chain, function=called), [], False
                elif len(words) == 1 and (rest := self._keyword(words[0], condition)) is not None:
                    words, condition, chain, called = rest, True, True, words == ["function"]
                continue
            if top is not None and top.kind == "case" and top.waiting and words != ["esac"]:
                if sign == ")":
                    top.enter(self._matches(top, [raw for raw in words if raw not in "|("]))
                    words = []
                elif sign == "|":
                    words.append("|")
                continue
            if words[:1] == ["[["] and words[-1] != "]]" and sign in {"&&", "||"}:
                words.append(sign)  # of the test itself
                continue
            if sign == "(":
                called = len(words) == 1  # "name()" begins a function, whose body is read in place
                words = [] if called else words
                continue
            if words:
                state = self._active()
                outcome = None
                if state is not False and chain is not False:
                    self._assumed = False
                    outcome = self._command(words, line, certain=state is True and chain is True)
                    if self._ended:
                        return self.found
                if chain is not False:
                    result = outcome
                    condition = None if self._assumed else outcome
            words = []
            if sign == "&&":
                chain = result
            elif sign == "||":
                chain = {True: False, False: True, None: None}[result]
            elif sign == ";;" and top is not None and top.kind == "case":
                top.waiting, top.taken, chain = True, False, True
            else:
                chain, result = True, True
        return self.found

    _ended = False
    _assumed = False  # whether a program's success is taken for granted, which decides no branch

    def _group(self, sign: str, chain: bool | None, *, function: bool) -> bool | None:  # noqa: FBT001 - the value of a condition
        """Open a group of commands, which is run where its chain is, or close it; returns the chain inside or behind it."""
        if sign == "{":
            self._frames.append(_Compound(0, "function" if function else "group", taken=function or chain))
        elif self._frames and self._frames[-1].kind in {"group", "function"}:
            frame = self._frames.pop()
            return None if frame.kind == "group" and frame.taken is not True else True
        return True

    def _keyword(self, word: str, condition: bool | None) -> list[str] | None:  # noqa: FBT001 - the value of a condition
        """Open or close what a reserved word says; None where the word is none."""
        top = self._frames[-1] if self._frames else None
        if word in {"if", "while", "until", "for", "select", "case"}:
            self._count += 1
            loops = word not in {"if", "case"}
            self._frames.append(_Compound(self._count, "loop" if loops else word, taken=True))
            return ["for"] if word in {"for", "select"} else []
        if word in {"fi", "done", "esac"}:
            if top is not None:
                self._frames.pop()
            return []
        if word in {"then", "else", "elif"} and top is not None and top.kind == "if":
            if word == "elif":
                top.taken = top.done is not True
            else:
                top.enter(condition if word == "then" else True)
            return []
        return [] if word in {"then", "do", "!", "time", "function"} else None

    def _matches(self, frame: _Compound, patterns: Sequence[str]) -> bool | None:
        if frame.value is None or not frame.value:
            return None
        known = (raw.strip("'\"").replace('""', "") for raw in patterns)
        return any(fnmatchcase(frame.value[0], pattern) for pattern in known)

    def _tried(self, raw: str, line: int) -> list[str]:
        """The words of an operand of a test; none where a part has no value."""
        aside = self.scope.aside()
        parts = expanded(raw, aside, line)
        held = any(text in part for part in parts for _, text in self.scope.unresolved)
        return [] if aside.unresolved or held else parts or [""]

    def _command(self, raws: list[str], line: int, *, certain: bool) -> bool | None:  # noqa: PLR0912 - one a word of the shell
        """Judge a simple command: an assignment, a test, a start of a server, or nothing of interest."""
        if raws[0] == "for":
            name = raws[1] if len(raws) > 1 else ""
            values = [part for raw in raws[3:] for part in self._tried(raw, line)]
            if _NAME.fullmatch(name):
                self.scope.variables[name] = values[0] if len(values) == 1 else None
            return True
        declares = raws[0] in _DECLARING
        place = 1 if declares else 0
        while declares and place < len(raws) and raws[place].startswith("-"):
            place += 1
        assigned = []
        while place < len(raws) and (found := _ASSIGNMENT.fullmatch(raws[place])) is not None:
            assigned.append(found)
            place += 1
        if declares or place == len(raws):
            for one in assigned:
                self._assign(one, line, certain=certain)
            return True
        if raws[0] in {"[", "[[", "test"}:
            return self._test([raw for raw in raws[1:] if raw not in {"]", "]]"}], line)
        sets = any(re.search(r"\$\{\w+:?=", raw) for raw in raws)
        held = dict(self.scope.variables) if sets else self.scope.variables
        aside = Scope(held, self.scope.arguments, self.scope.arrays, list(self.scope.unresolved))
        words = [part for raw in raws[place:] for part in expanded(raw, aside, line)]
        if not words:
            return True
        words = self._unprefixed(words, aside)
        program = words[0].rpartition("/")[2]
        if program in {"exit", "return"}:
            called = any(frame.kind == "function" for frame in self._frames)
            self._ended = certain and program == "exit" and not called
            return True
        if program in {"true", ":", "false"}:
            self.scope.variables |= {name: value for name, value in aside.variables.items() if program == ":"}
            return program != "false"
        if program in {"source", "."} and len(words) > 1:
            self.scope.miss(line, f"{program} {shorten(words[1])}")
        elif program == "set" and words[1:2] == ["--"]:
            self.scope.arguments = words[2:] if certain else None
        elif program == "eval":
            self.found += self._inner(" ".join(words[1:]), line, self.scope)
        elif self.is_server(words) and not self._has_open_script(words, aside):
            self._start(words, assigned, aside, line, certain=certain)
        elif (inner := inline(words)) is not None:
            inside = Scope(dict(self.scope.variables), list(inner[1]), {}, self.scope.unresolved)
            self.found += self._inner(inner[0], line, inside)
        elif not CONTAINERS.isdisjoint(words[:2]) and "run" in words[:4]:
            self.containers.append((line, words))
        self._assumed = True
        return True

    def _unprefixed(self, words: list[str], scope: Scope) -> list[str]:
        """A server's start without variables before its program that have no value: settings or a launcher's words."""
        opened = {text for _, text in scope.unresolved}
        start = next(
            (at for at, one in enumerate(words) if one not in opened and not _ASSIGNMENT.fullmatch(one)), 0
        )
        kept = [one for one in words[:start] if one not in opened]
        plain = [*kept, *words[start:]]
        return plain if len(kept) < start and self.is_server(plain) else words

    @staticmethod
    def _has_open_script(words: Sequence[str], scope: Scope) -> bool:
        """Whether a shell is handed a text in which something has no value: its words are told apart by reading it."""
        inner = None if words[0].rpartition("/")[2] in CONTAINERS else inline(words)
        return inner is not None and any(text in inner[0] for _, text in scope.unresolved)

    def _start(
        self, words: list[str], assigned: Sequence[re.Match[str]], aside: Scope, line: int, *, certain: bool
    ) -> None:
        """Keep a start command with the assignments before it."""
        for miss in aside.unresolved:
            self.scope.miss(*miss)
        before = [f"{one['name']}={' '.join(expanded(one['value'], aside, line))}" for one in assigned]
        branches = {one.number: one.branch for one in self._frames if one.kind in {"if", "case"}}
        self._keep(Started(line, (*before, *words), certain, branches))
        self._ended = certain and words[0] == "exec"

    def _inner(self, text: str, line: int, scope: Scope) -> list[Started]:
        return Script(scope, self.is_server, self.depth + 1).run(text, line)

    def _keep(self, started: Started) -> None:
        """Keep a start command; of those in branches of one conditional, the one that is certain or the last."""
        for place, one in enumerate(self.found):
            if any(one.branches.get(number, branch) != branch for number, branch in started.branches.items()):
                left, kept = (started, one) if one.certain and not started.certain else (one, started)
                self.found[place] = kept
                self.scope.miss(left.line, "another start command, in a branch that cannot be judged")
                return
        self.found.append(started)
        if len(self.found) > MOST_FOUND:
            raise InputError(
                f"line {started.line}: found more than {MOST_FOUND} start commands; allowed: a start script"
            )

    def _assign(self, found: re.Match[str], line: int, *, certain: bool) -> None:
        name, raw = found["name"], found["value"]
        aside = self.scope.aside()
        if raw.startswith("("):
            inside = [sign for kind, sign, _ in tokens(raw[1:-1], line) if kind == "word"]
            parts = [part for one in inside for part in expanded(one, aside, line)]
            for miss in aside.unresolved:
                self.scope.miss(*miss)
            before = self.scope.arrays.get(name, []) if found["plus"] else []
            whole = None if before is None else [*before, *parts]
            if certain or self.scope.arrays.get(name) != parts:
                self.scope.arrays[name] = whole if certain else None
            return
        value: str | None = " ".join(expanded(raw, aside, line))
        if found["plus"]:
            before_ = self.scope.variables.get(name, "")
            value = None if before_ is None else f"{before_}{value}"
        for miss in aside.unresolved:
            self.scope.miss(*miss)
        if value is not None and len(value) > MOST_CHARACTERS:
            raise InputError(
                f"line {line}: found a variable of more than {MOST_CHARACTERS:,} characters; allowed: less"
            )
        known = certain or self.scope.variables.get(name) == value
        self.scope.variables[name] = value if known else None
        self.scope.arrays.pop(name, None)

    def _test(self, raws: list[str], line: int) -> bool | None:
        """Judge a test of strings or numbers; None where an operand has no value or it looks at files."""
        if raws[:1] == ["!"]:
            inner = self._test(raws[1:], line)
            return None if inner is None else not inner
        for sign, combine in (("||", any), ("-o", any), ("&&", all), ("-a", all)):
            if sign in raws:
                at = raws.index(sign)
                both = [self._test(raws[:at], line), self._test(raws[at + 1 :], line)]
                decided = combine is any  # one that holds, or one that does not, is enough
                return decided if decided in both else None if None in both else not decided
        parts = [self._tried(raw, line) for raw in raws]
        if not all(parts):
            return None
        words = [" ".join(part) for part in parts]
        match words:
            case ["-n", value]:
                return bool(value)
            case ["-z", value]:
                return not value
            case [value] if value:
                return True
            case [left, "=" | "==", right]:
                return fnmatchcase(left, right) if raws[-1][:1] not in "'\"" else left == right
            case [left, "!=", right]:
                return not fnmatchcase(left, right)
            case [left, "-eq" | "-ne" | "-gt" | "-ge" | "-lt" | "-le" as sign, right] if _NUMBER.fullmatch(
                left
            ) and _NUMBER.fullmatch(right):
                return bool(getattr(operator, sign[1:])(int(left), int(right)))
        return None


def inline(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The script that words hand to a shell (``bash -c TEXT NAME ARGUMENT …``), and its arguments; None for others."""
    names = [word.rpartition("/")[2] for word in words]
    start = next((place for place, name in enumerate(names[:4]) if name in _SHELLS), None)
    if start is None:
        return None
    for place in range(start + 1, len(words)):
        if re.fullmatch(r"-[a-z]*c", words[place]):
            rest = words[place + 1 :]
            return (rest[0], tuple(rest[2:])) if rest else None
        if not words[place].startswith("-"):
            return None
    return None


def shell_words(text: str, line: int) -> list[str]:
    """A command that is written as one text, in words.

    Raises:
        InputError: If its quotes are not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"line {line}: found {shorten(text)}: {error}; allowed: closed quotes") from None
