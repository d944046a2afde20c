"""The lines of engines' logs as data: ``log_lines/*.yaml``, each line an expression with what it states and an example.

An expression has fields in angle brackets: ``<kv_pool:GiB>`` is a number of GiB that becomes the fact ``kv_pool``,
``<max_seqs:whole>`` a whole number, ``<engine_version:version>`` a release, and ``<number>`` a number that states
nothing. A group ``(?P<fact>...)`` takes any other text. SGLang writes GB and means GiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import Contradiction, LongText, Record, Text, VersionedRecord
from kvreport.catalog.safe_patterns import fault_of
from kvreport.catalog.server_flags import LoggedFlag
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError, Fault, shorten
from kvreport.resources import data_dir

FOLDER: Final = "log_lines"
Engine = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "ollama", "mlx"]
Unit = Literal["bytes", "tokens", "number", "ratio", "percent", "text", "flag"]
Merge = Literal["least", "most", "last"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,79}$")]
Expression = Annotated[str, Field(min_length=1, max_length=2000)]
Wheel = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}(\.post[0-9]+)?$", max_length=40)]

WHOLE: Final = r"[0-9](?:,?[0-9]){0,20}(?!,?[0-9])"
NUMBER: Final = r"-?[0-9](?:,?[0-9]){0,20}(?:\.[0-9]{1,20})?(?!,?[0-9])"
"""Longer than any size that a machine has, and not as long as a line can be."""
VERSION: Final = r"[0-9A-Za-z](?:[\w.+!-]{0,58}\w)?"
"""A release, without the quotes and escapes that a line of JSON has after it."""
_KINDS: Final = {
    "whole": (WHOLE, ""),
    "number": (NUMBER, ""),
    "version": (VERSION, ""),
    "GiB": (NUMBER, "__gib"),
    "GB": (NUMBER, "__gb"),
    "MiB": (NUMBER, "__mib"),
    "GB_10": (NUMBER, "__gb_10"),
    "size": (NUMBER, ""),
}
_SIZES: Final = {"GiB": "__gib", "MiB": "___mib", "KiB": "____ki"}
"""Units of a size that is printed with its unit; a group of each, with more lines before the unit."""
_FIELD: Final = re.compile(rf"<(?:([a-z][a-z0-9_]*):)?({'|'.join(_KINDS)})>")
UNSET: Final = r"None|False|0|-1|1\.0|'auto'|auto|\[\]|\{\}|''"
"""Values by which a server says that a flag was not set."""
ANY_VALUE: Final = "*"


class Fact(Record):
    """Something a log can state."""

    label: Text
    unit: Unit
    # Which of several statements counts: ranks report one each, and the smallest pool binds, while the
    # largest weights do.
    merge: Merge = "last"


class Ending(Record):
    """How a start ends with a line."""

    # What was short, as a noun; None where nothing was, or an earlier line says it.
    short: Text | None = None
    remedies: tuple[Name, ...] = ()  # What to change, by name, that which costs least first.


class LogLine(Record):
    """One kind of line."""

    name: Name
    # A setting's name in Python. The expression is then its value, in a command, a call or a dictionary.
    setting: Name | None = None
    expression: Expression  # What the line contains, with fields.
    says: Text  # What the line means, with ``{fact}`` where its numbers go.
    # Whether a later line of this kind replaces an earlier one, whatever the facts are merged by.
    replaces: bool = False
    example: LongText
    read: Text | None = None  # Where the engine prints it: path::function.
    # The first and the last release that it was found in there; others were not opened.
    at: tuple[Wheel, Wheel] | None = None
    seen: Text | None = None  # Where it stands, for a line whose place in the source is not known.
    # What of the line stands in the engine's source, where its place there tells the release of a log
    # (``data/vllm_releases.yaml``, which ``make follow`` writes).
    dates: Text | None = None
    since: Wheel | None = None  # The first release that writes it, where an older one was read that does not.
    ends: Ending | None = None  # For a line that a start ends with: what was short, and what to change.

    @property
    def expanded(self) -> str:
        """The regular expression, valid in Python and (named groups apart) in JavaScript.

        A group is named ``fact`` or ``fact__unit``; a further one of the same fact has a line at its end.
        """
        told = _FIELD.sub(_field, self.expression)
        if self.setting is None:
            return told
        flag = self.setting.replace("_", "[-_]")
        return rf"(?:--{flag}(?:=| +)|\b{self.setting}=|'{self.setting}': ?)['\"]?{told}(?![\w/]|\.\w)['\"]?"

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield a text that its example does not have, and a missing source."""
        if self.dates is not None and self.dates not in self.example:
            yield Contradiction(f"lines.{self.name}.dates", shorten(self.dates), "a text of its example")
        if self.read is None and self.seen is None:
            yield Contradiction(f"lines.{self.name}", "no source", "read (path::function) or seen")


def fact_of(group: str) -> tuple[str, str]:
    """Return the fact that a group states, and its unit; empty where the text is the value.

    Examples:
        >>> fact_of("kv_pool__gib"), fact_of("model_"), fact_of("asked___mib")
        (('kv_pool', 'gib'), ('model', ''), ('asked', 'mib'))
    """
    name, _, unit = group.partition("__")
    return name.rstrip("_"), unit.lstrip("_")


def _field(found: re.Match[str]) -> str:
    expression, unit = _KINDS[found[2]]
    if found[2] == "size":
        sizes = [f"(?P<{found[1]}{group}>{expression}) ?{text}" for text, group in _SIZES.items()]
        return f"(?:{'|'.join(sizes)})"
    return expression if found[1] is None else f"(?P<{found[1]}{unit}>{expression})"


class StartLine(Record):
    """A line that a start of llama.cpp or Ollama is put together from (``kvreport.startup_log.llama_cpp``)."""

    name: Name
    expression: Expression  # What the line contains, with the groups that are read there.
    example: LongText
    read: Text  # Where the engine prints it.

    @property
    def expanded(self) -> str:
        """The regular expression."""
        return self.expression


def unfollowed_line(engine: Engine, flag: str, known: LoggedFlag, changes: str) -> LogLine:
    """Return the line that states a flag which nothing follows; it states no fact.

    vLLM prints the flags that were set as a dictionary, SGLang all of them as arguments of a call.
    """
    field = flag.removeprefix("--").replace("-", "_")
    written = rf"(?<![\w`-])(?:{'|'.join(filter(None, (flag, known.older)))})(?![\w-])"
    unset = f"{UNSET}|{re.escape(known.usual)}" if known.usual else UNSET
    printed = rf"'{field}': " if engine == "vllm" else rf"\b{field}="
    if known.usual != ANY_VALUE:
        expression = rf"(?:{written}|{printed}(?!(?:{unset})(?![\w.])))"
    elif engine == "vllm":
        begins = "non-default args: "
        expression = rf"(?:{written}|{begins}(?:(?!{begins}).)*?{printed})"
    else:
        expression = f"(?:{written})"
    return LogLine(
        name=f"{engine}_not_followed_{field}",
        expression=expression,
        says=f"{flag} is set: it changes {changes}.",
        example=flag,
        seen="the server's parser",
    )


class LogLines(VersionedRecord):
    """One engine's lines, the content of ``log_lines/<engine>.yaml``."""

    engine: Engine | None = None  # Whose they are; None for lines that several print.
    facts: dict[Name, Fact] = Field(default_factory=dict)  # What lines can state, by name.
    # What can be changed where a start ends, in the words of each engine, and of ``any``.
    remedies: dict[Name, dict[Name, Text]] = Field(default_factory=dict)
    lines: tuple[LogLine, ...] = ()  # In the order in which they are tried; several may match one line.
    starts: tuple[StartLine, ...] = ()  # Lines that a start is put together from, buffer by buffer.

    def faults(self, where: str) -> Iterator[Fault]:
        """Yield what is wrong with a line."""
        every: tuple[LogLine | StartLine, ...] = (*self.lines, *self.starts)
        for one in every:
            # A start's lines are few, and are not looked for by a text first.
            fault = fault_of(one.expanded, by_text=isinstance(one, LogLine))
            if fault is not None:
                yield Fault(where, f"{one.name}.expression", fault, "an expression of bounded time")
            elif re.search(one.expanded, one.example, re.ASCII) is None:
                yield Fault(where, f"{one.name}.example", shorten(one.example), "a line that it matches")
        for line in self.lines:
            yield from (Fault(where, *told) for told in line.contradictions())


@lru_cache(8)
def log_lines(folder: Path | None = None) -> tuple[LogLines, ...]:
    """Read every file of lines, those that several engines print last.

    Args:
        folder: A catalog of one's own, whose lines are added to the public ones; None for those alone. A file with
            the name of a public one takes its place, so that a copy of the public catalog is read once.

    Raises:
        CatalogError: With every fault of a file.
    """
    named = {path.name: path for root in (data_dir(), folder or data_dir()) for path in _files(root)}
    files = [*named.values()]
    read = [
        validate(LogLines, read_yaml(path, f"{FOLDER}/{path.name}"), f"{FOLDER}/{path.name}")
        for path in files
    ]
    # The public lines are checked by `kvreport check` and the tests, and not again at every log.
    faults = [] if folder is None else [*_faults([*zip(files, read, strict=True)])]
    if faults:
        raise CatalogError(faults)
    return tuple(read)


def _files(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.yaml"), key=lambda path: (path.stem == "shared", path.stem))


def _faults(files: Sequence[tuple[Path, LogLines]]) -> Iterator[Fault]:
    """Yield what is wrong with lines, names that two have, and facts that nothing defines."""
    names: set[str] = set()
    facts = {
        name for path, read in files if (data_dir() / FOLDER / path.name).is_file() for name in read.facts
    }
    remedies = {name for _, read in files for name in read.remedies}
    for path, read in files:
        where = f"{FOLDER}/{path.name}"
        if not facts.issuperset(read.facts):
            yield Fault(where, "facts", "a new fact", "lines that state known facts")
        yield from read.faults(where)
        for line in read.lines:
            if line.name in names:
                yield Fault(where, f"lines.{line.name}", "a name that another line has", "a unique name")
            names.add(line.name)
            for remedy in line.ends.remedies if line.ends else ():
                if remedy not in remedies:
                    yield Fault(
                        where, f"lines.{line.name}.ends", remedy, f"one of {', '.join(sorted(remedies))}"
                    )
            for group in re.compile(line.expanded, re.ASCII).groupindex:
                fact, _ = fact_of(group)
                if fact not in facts:
                    yield Fault(
                        where, f"lines.{line.name}", shorten(fact), f"a fact: {', '.join(sorted(facts))}"
                    )
