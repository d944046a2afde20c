"""Reading a log line by line: pure text in, records out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from kvreport import words
from kvreport.budgets import LOG
from kvreport.catalog.log_lines import Engine, LogLine, fact_of, log_lines
from kvreport.catalog.refusals import refusals
from kvreport.catalog.server_flags import with_flags
from kvreport.errors import InputError
from kvreport.startup_log.patterns import FACTS, Pattern, patterns
from kvreport.startup_log.release import places
from kvreport.units import GIB

Value = int | float | str | bool

MAX_CHARACTERS: Final = LOG.bytes
MAX_LINES: Final = LOG.rows
MAX_LINE: Final = LOG.row_bytes
ENGINES: Final[tuple[Engine, ...]] = get_args(Engine)
LARGEST: Final = 1 << 53
"""No number beyond it is believed: no machine has so much, and a browser's numbers end there."""

BEGINS: Final = (
    r"vLLM API server version |\bserver_args=(?:ServerArgs\(|\{)|"
    r"Initializing an? (?:V\d )?LLM engine \((?!.*data_parallel_size=(?:[2-9]|1[0-9]))"
)
"""A line that a server writes once, before anything else."""

COMMANDS: Final = (
    r"(?:^|[$#>&;] ?|\b(?:exec|nohup) )(?:[A-Z][A-Z0-9_]*=[^ ]+ )*"
    r"(?:vllm serve|sglang serve|python3? -m (?:vllm\.entrypoints\.|sglang\.launch_server))[ \\]"
)
"""A command line of a server: the beginning of a start if one is told after it, else only quoted."""

RESULTS: Final = (
    r"KV cache size: [0-9]|Maximum concurrency for |KV Cache is allocated|max_total_num_tokens=[0-9]|"
    r"leave no GPU memory for the KV cache|"
    r"# (?:GPU|CUDA|cuda) blocks: |max seq len \(|out of memory\. Tried|Not enough memory[.;,] Please|"
    r"is less than desired GPU memory utilization"
)
"""A line that a start ends with, whether it succeeds or not: a further beginning after it is another start."""

SCRIPT: Final = (
    r"^#!|^\s*(?:apiVersion|kind|services|metadata|spec|containers|command|args|image|entrypoint|environment|env)\s*:|"
    r"^\s*- (?:name\b|image\b|['\"]?--?[A-Za-z])|\$\{\w+:?[-+]|^\s*(?:export|set) -?\w"
)
"""A line of a deployment file or of a shell script. A command by itself is read; such a file has defaults and comments."""
WRITTEN: Final = r"\b(?:INFO|WARNING|ERROR|DEBUG)\b|\b(?:Error|Traceback)\b"
"""A line that a program wrote."""
MOST_SCRIPT: Final = 2
"""Lines of a file from which on a text without any line of a program is that file."""
_THOUSANDS: Final = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]+)?|-?[0-9]+(?:\.[0-9]+)?")

_SCRIPT: Final = re.compile(SCRIPT, re.ASCII)
_WRITTEN: Final = re.compile(WRITTEN, re.ASCII)
_BEGINS: Final = re.compile(BEGINS, re.ASCII)
_COMMANDS: Final = re.compile(COMMANDS, re.ASCII)
_RESULTS: Final = re.compile(RESULTS, re.ASCII)
SERVICE: Final = r"([A-Za-z0-9][\w.-]{0,80}[_-][0-9]{1,4}) *\| "
"""Begins a line of a service where those of several are printed together (``docker compose logs``)."""
_SERVICE: Final = re.compile(SERVICE, re.ASCII)
_SERVING: Final = re.compile(
    r'HTTP/[12](?:\.[01])?" [1-5][0-9]{2}\b|throughput: [0-9.]+ tokens/s|(?:Prefill|Decode) batch[,.] ?#',
    re.ASCII,
)
"""Lines of a server that answers requests: no pattern reads them, and a long log has little else."""
_SERVING_LINE: Final = 500
"""Longer lines may be several that were joined."""

_SCALES: Final = {"gib": GIB, "gb": GIB, "mib": 1 << 20, "ki": 1024, "gb_10": 10**9, "k": 1000}


ENTITIES: Final = {
    "&#39;": "'",
    "&#x27;": "'",
    "&quot;": '"',
    "&#34;": '"',
    "&gt;": ">",
    "&lt;": "<",
    "&nbsp;": " ",
    "&amp;": "&",
}
"""What a web page writes for characters that logs have; an ampersand last, so that none is read twice."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A line, or a part of one, that a pattern matched."""

    number: int  # Its number in the log, from 1.
    text: str  # The line.
    pattern: str  # The pattern's name.
    facts: dict[str, Value]  # What it states, in bytes, tokens and plain numbers.
    says: str  # What it means, in words.


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from a log."""

    engine: Engine | None  # Whose log it is; None if nothing told.
    facts: dict[str, Value] = field(default_factory=dict)  # What the log states as a whole, ranks merged.
    recognised: tuple[Recognised, ...] = ()  # Recognised lines in order.
    unknown: tuple[tuple[int, str], ...] = ()  # Numbers and texts of lines that nothing recognised.
    # Source files and line numbers that vLLM's lines were written at, as it prefixes them.
    places: frozenset[str] = frozenset()
    # How many starts the log has one after the other; the last that tells something was read.
    starts: int = 1
    # Numbers of lines with a number that no engine prints, as one with a decimal comma. They are not used.
    doubtful: tuple[int, ...] = ()

    def number(self, name: str) -> float | None:
        """A numeric fact, or None."""
        value = self.facts.get(name)
        return None if value is None or isinstance(value, str | bool) else value

    def whole(self, name: str) -> int | None:
        """A whole-number fact, or None."""
        value = self.number(name)
        return None if value is None else int(value)

    @property
    def two_models(self) -> tuple[str, ...]:
        """Two models that lines of one kind name, of which a server prints one; empty where they name no two."""
        for kind in words.ALL["names_one_model"]:
            named = [
                str(one.facts["model"])
                for one in self.recognised
                if one.pattern == kind and "model" in one.facts
            ]
            if len(set(named)) > 1:
                return (named[0], next(one for one in named if one != named[0]))
        return ()

    def text(self, name: str) -> str | None:
        """A text fact, or None."""
        value = self.facts.get(name)
        return value if isinstance(value, str) else None


def refused(reading: Reading) -> bool:
    """True if the log ends with SGLang's refusal: a pool that it allocated in an earlier try is not of this start."""
    return any(line.pattern in _REFUSALS for line in reading.recognised)


_REFUSALS: Final[tuple[str, ...]] = tuple(words.ALL["sglang_refusals"])


def tokens_of(reading: Reading) -> int | None:
    """Tokens that the log says the pool holds; of several pools those of full attention."""
    return reading.whole("full_tokens") or reading.whole("kv_tokens")


def longest_of(reading: Reading) -> int | None:
    """Tokens of the longest request that the log speaks of, or None."""
    return reading.whole("concurrency_len") or reading.whole("max_model_len")


def started(reading: Reading) -> bool:
    """True if the log states the tokens of its cache, which engines print after their own check, and no refusal."""
    facts = reading.facts
    if any(name in facts for name in ("needed", "storable", "state_blocks")) or refused(reading):
        return False
    return tokens_of(reading) is not None and (reading.number("kv_pool") or 1) > 0


def runs_shorter(reading: Reading, fits: float | None) -> bool:
    """True if a server runs whose cache holds less than one longest request: all engines but vLLM start so."""
    return fits is not None and fits < 1 and started(reading) and reading.engine not in (None, "vllm")


def browser_expression(expression: str) -> str:
    """Return an expression that finds in JavaScript what it finds here.

    ``re.ASCII`` is on here, so a blank is one of six characters. JavaScript knows some twenty more. The
    browser adds the flag ``s``, because ``.`` leaves out more ends of a line there.
    """
    parts, inside, at = [], False, 0
    named = expression.replace("(?P<", "(?<")
    while at < len(named):
        sign = named[at]
        if sign == "\\":
            sign = named[at : at + 2]
            at += 1
            sign = {"\\s": _JS_BLANKS if inside else f"[{_JS_BLANKS}]", "\\S": f"[^{_JS_BLANKS}]"}.get(
                sign, sign
            )
        elif sign in "[]":
            inside = sign == "["
        parts.append(sign)
        at += 1
    return "".join(parts)


_JS_BLANKS: Final = r"\t-\r "

_BLANKS: Final = " \t\n\v\f\r"
"""What is cut from the ends of a line: in ASCII, because Python and JavaScript have different further blanks."""


def read_log(text: str, folder: Path | None = None) -> Reading:
    """Read a start-up log.

    Args:
        text: The log; terminal colors are ignored, and so is what copying from a web page leaves.
        folder: A catalog of one's own that has further kinds of lines.

    Raises:
        InputError: If it is empty or too large, or a deployment file or a script instead of a log.
    """
    if not text.strip(_BLANKS):
        raise InputError("log: found nothing but blanks; allowed: the start-up log of an engine")
    breaks = text.count("\n") + text.count("\r") - text.count("\r\n")
    if len(text) > MAX_CHARACTERS or breaks > MAX_LINES:
        raise InputError(
            f"log: found {len(text):,} characters; allowed: {MAX_CHARACTERS:,} characters in {MAX_LINES:,} "
            "lines (the start of the log, up to the first request, is enough)"
        )
    recognised: list[Recognised] = []
    unknown: list[tuple[int, str]] = []
    facts: dict[str, Value] = {}
    votes: dict[Engine, int] = dict.fromkeys(ENGINES, 0)
    lines = re.split(r"\r\n|\n|\r", plain_text(text))
    if is_script(lines):
        raise InputError(
            "log: found a deployment file or a script; allowed: the lines that an engine printed "
            '(kvreport estimate "COMMAND" reads a start command)'
        )
    lines, others = one_service(lines)
    first, end, starts = last_start(lines)
    known = patterns(folder)
    doubtful: list[int] = []
    for number, line in enumerate(lines[first:end], start=first + 1):
        shown = line[:MAX_LINE].strip(_BLANKS)
        if not shown:
            continue
        found, doubted = _match(shown, known)
        if doubted:
            doubtful.append(number)
        for pattern, stated in found:
            recognised.append(
                Recognised(number, shown, pattern.name, stated, explain(pattern.line.says, stated))
            )
            if pattern.engine:
                votes[pattern.engine] += 1
            for name, value in stated.items():
                facts[name] = value if pattern.line.replaces else _merge(name, facts.get(name), value)
        if not found:
            unknown.append((number, shown))
    most = max(votes, key=votes.__getitem__)
    engine = most if votes[most] else None
    found_at = places(line.text for line in recognised)
    return Reading(
        engine, facts, tuple(recognised), tuple(unknown), found_at, starts + others, tuple(doubtful)
    )


def is_script(lines: list[str]) -> bool:
    """True for a deployment file or a shell script: lines of one, and none outside comments that an engine prints."""
    script = 0
    for index, line in enumerate(lines):
        cut = line[:MAX_LINE].strip(_BLANKS)
        if cut.startswith("#") and not (index == 0 and cut.startswith("#!")):
            continue
        if _WRITTEN.search(cut) or _RESULTS.search(cut) or _BEGINS.search(cut):
            return False
        script += _SCRIPT.search(cut) is not None
    return script >= MOST_SCRIPT


def one_service(lines: list[str]) -> tuple[list[str], int]:
    """Of the lines of several services beside each other (``docker compose logs``), those of the last that tells something.

    Returns:
        The lines, those of others empty, and how many others tell something.
    """
    named = [_SERVICE.match(line) for line in lines]
    told = [
        name[1] for name, line in zip(named, lines, strict=True) if name and _RESULTS.search(line[:MAX_LINE])
    ]
    others = len(set(told)) - 1
    if others < 1:
        return lines, 0
    kept = [name is None or name[1] == told[-1] for name in named]
    return [line if keep else "" for line, keep in zip(lines, kept, strict=True)], others


def last_start(lines: list[str]) -> tuple[int, int, int]:
    """Of a log with several starts one after the other, the last that tells something; figures of two do not mix.

    Returns:
        Index of its first line, index after its last one, and how many starts there are.
    """
    begun, told, chosen = 0, False, (0, len(lines))
    starts, command = 1, -1
    for index, line in enumerate(lines):
        cut = line[:MAX_LINE]
        begins = told and _BEGINS.search(cut) is not None
        result = (not told or command >= 0) and _RESULTS.search(cut) is not None
        if begins or (result and command >= 0):
            first = command if command >= 0 else index
            chosen = (begun, first)
            begun, told, command = first, result, -1
            starts += 1
        elif result:
            told = True
        elif told and command < 0 and _COMMANDS.search(cut):
            command = index
    return (*((begun, len(lines)) if told or starts == 1 else chosen), starts)


def plain_text(text: str) -> str:
    """A log without terminal colors, and without what copying from a web page makes of blanks and quotes."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\u00a0", " ")
    if "&" in plain:
        for entity, sign in ENTITIES.items():
            plain = plain.replace(entity, sign)
    return plain


def explain(says: str, facts: dict[str, Value]) -> str:
    """Put the numbers into what a pattern says."""
    told = re.sub(r"\{(\w+)\}", lambda m: show(m[1], facts[m[1]]) if m[1] in facts else m[0], says)
    return re.sub(r"\b1 (stage|device|rank|request|server|token)s\b", r"1 \1", told)


def meaning(line: LogLine) -> str:
    """Say what a line means, with the numbers of its example."""
    found = (one.says for one in read_log(line.example).recognised if one.pattern == line.name)
    return next(found, line.says)


def show(name: str, value: Value) -> str:
    """Print a fact for a reader: bytes in GiB, tokens with thousands separated."""
    unit = FACTS[name].unit
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return f"{value / GIB:,.2f} GiB"
    if unit == "percent":
        return f"{value:g}%"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def table() -> dict[str, Any]:
    """The whole knowledge of this module as plain data, for the reader in the browser."""
    return {
        "facts": {
            name: {"label": fact.label, "unit": fact.unit, "merge": fact.merge}
            for name, fact in FACTS.items()
        },
        "patterns": [
            {
                "name": pattern.name,
                "engine": pattern.engine,
                "expression": browser_expression(pattern.expression),
                "says": pattern.line.says,
                "needed": pattern.texts,
                **({"replaces": True} if pattern.line.replaces else {}),
                **({"ends": pattern.line.ends.model_dump()} if pattern.line.ends else {}),
            }
            for pattern in patterns()
        ],
        "engines": ENGINES,
        "remedies": {
            name: {engine: with_flags(words) for engine, words in said.items()}
            for one in log_lines()
            for name, said in one.remedies.items()
        },
        "refusals": {name: one.address for one in refusals() for name in one.lines},
        "begins": browser_expression(BEGINS),
        "commands": browser_expression(COMMANDS),
        "results": browser_expression(RESULTS),
        "service": browser_expression(f"^{SERVICE}"),
        "script": browser_expression(SCRIPT),
        "written": browser_expression(WRITTEN),
        "most_script": MOST_SCRIPT,
        "scales": dict(_SCALES),
        "largest": LARGEST,
    }


def _match(line: str, known: Iterable[Pattern]) -> tuple[list[tuple[Pattern, dict[str, Value]]], bool]:
    """The patterns of a line with their facts, and whether a number of it is doubtful."""
    found: list[tuple[Pattern, dict[str, Value]]] = []
    doubted = False
    if len(line) < _SERVING_LINE and _SERVING.search(line):
        return found, doubted
    for pattern in known:
        match = pattern.search(line)
        if match is None:
            continue
        stated: dict[str, Value] = {}
        doubt = False
        for group, text in match.groupdict().items():
            if text is not None:
                name, unit = fact_of(group)
                numeric = FACTS[name].unit not in ("text", "flag")
                doubt = doubt or (numeric and "," in text and _THOUSANDS.fullmatch(text) is None)
                stated[name] = _value(name, text, unit)
        if doubt or any(abs(value) > LARGEST for value in stated.values() if not isinstance(value, str)):
            doubted = doubted or doubt
            continue
        found.append((pattern, stated))
    return found, doubted


def _value(name: str, text: str, unit: str) -> Value:
    kind = FACTS[name].unit
    if kind == "text":
        return text
    if kind == "flag":
        return True
    number = float(text.replace(",", ""))
    if unit:
        return int(number * _SCALES[unit] + 0.5) if number >= 0 else -int(-number * _SCALES[unit] + 0.5)
    return int(number) if kind in ("tokens", "number", "bytes") else number


def _merge(name: str, known: Value | None, value: Value) -> Value:
    how = FACTS[name].merge
    if known is None or how == "last" or isinstance(value, str) or isinstance(known, str):
        return value
    return min(known, value) if how == "least" else max(known, value)
