"""The flags that each engine's own server takes, read from its argument parser, with what each does to memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from kvreport.catalog.base import Record, Source, Text, VersionedRecord
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.resources import data_dir

Effect = Literal["followed", "changes", "starts", "unknown", "none"]
"""What a flag does: an answer follows it; it changes a term of the memory that no answer follows; it decides whether
and what is started; what it does is not known; it changes no memory of a device."""
Takes = Literal["0", "1", "2", "?", "+"]
"""Words that follow a flag: as many, perhaps one, or one and more."""


class FlagGroup(Record):
    """Flags of one effect."""

    effect: Effect
    # The term of the memory, or the decision, in words; None for flags without effect on memory.
    changes: Text | None = None
    ours: Text | None = None  # This program's flag of the same meaning, where it has another name.
    needs: Text | None = None  # Flags, apart by spaces, without any of which it has no effect.
    # Values that are written otherwise here: the words in place of flag and value; empty to leave both out.
    values: dict[str, str] = Field(default_factory=dict)
    # Values from so much on leave nothing for what the engine allocates besides: it starts and runs out of memory.
    below: float | None = None
    is_file: bool = False  # Whether an answer follows it only where its value is a file that is here.
    read: Text | None = None  # Where the effect was read: path::function in the engine's source.
    package: Text | None = None  # The package that adds them to the server, where they are not its own.
    # The last release whose parser had them, where the newest one has them no more.
    until: Text | None = None
    # The setting of a launch that a printed command writes with it, where this program has no flag of one meaning.
    writes: Text | None = None
    # Every spelling, apart by spaces, with what it takes.
    flags: Annotated[dict[Text, Takes], Field(min_length=1)]


class LoggedFlag(Record):
    """A flag that changes memory, as the reader of logs takes it."""

    fact: Text | None = None  # The fact that it states; None if a log is only told that it is not followed.
    # A value that a server prints where nobody set the flag; ``*`` if what it prints tells nothing.
    usual: Text | None = None
    older: Text | None = None  # An earlier name.
    changes: Text | None = None  # What it changes, where a log states more of it than what an answer follows.


@dataclass(frozen=True, slots=True)
class ServerFlag:
    """One flag."""

    name: str  # Its first spelling.
    takes: Takes
    group: FlagGroup


class ServerFlags(VersionedRecord):
    """One engine's server, the content of ``flags/<family>.yaml``."""

    family: Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx"]
    release: Text  # Whose parser was read: a version or a commit.
    command: Text
    source: Source  # Where the flags stand.
    groups: Annotated[tuple[FlagGroup, ...], Field(min_length=1)]  # Every flag, by effect.
    # Variables of the environment that change memory, by effect, as flags that take a value.
    variables: tuple[FlagGroup, ...] = ()
    in_logs: dict[Text, LoggedFlag] = Field(default_factory=dict)  # In the order in which answers name them.

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling that the release takes by itself."""
        return tuple(
            name
            for group in self.groups
            if group.until is group.package is None
            for names in group.flags
            for name in names.split()
        )

    def spellings(self) -> Iterator[tuple[str, ServerFlag]]:
        """Every spelling, of earlier releases too, with dashes between its words."""
        for group in self.groups:
            for names, takes in group.flags.items():
                first, *_ = names.split()
                flag = ServerFlag(first, takes, group)
                for name in names.split():
                    yield dashed(name), flag


_ONE_LETTER: Final = re.compile(r"(-[A-Za-z]+?)(\d[\d.]*)")
_ABBREVIATED: Final = frozenset({"vllm", "sglang", "mlx"})
"""Servers whose parser takes a flag by its beginning (``argparse``'s ``allow_abbrev``)."""
_SHORTEST: Final = len("--abcd")


@dataclass(frozen=True, slots=True)
class Found:
    """A word of a command as a server's parser takes it."""

    flag: ServerFlag
    shown: str  # As it is named in an answer.
    takes: Takes
    value: str | None = None  # What is written in the word itself; None where nothing is.
    negative: bool = False  # Whether it is a switch with "no" before it.


class FlagTable:
    """A server's flags by their spellings."""

    def __init__(self, server: ServerFlags) -> None:
        self.server = server
        self._by_name: Mapping[str, ServerFlag] = dict(server.spellings())

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The flags of the newest parser, by the setting that each writes: this program's option of the same meaning, or its own name."""
        current = [one for one in self.server.groups if one.until is one.package is None]
        made: dict[str, str] = {}
        for group in current:
            ours = group.writes or (group.ours if "=" not in (group.ours or "=") else None)
            for spelled in group.flags:
                first = spelled.split()[0]
                made[(ours or first).lstrip("-").replace("-", "_")] = first
        return made

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def group_of(self, name: str) -> FlagGroup:
        """The group of a spelling that the table has."""
        return self._by_name[name].group

    def find(self, word: str) -> Found | None:
        """The flag that a word names, also dotted, underscored, with ``=``, negated or by its beginning; None for no flag.

        Examples:
            >>> from kvreport.resources import data_dir
            >>> table = flag_table(data_dir(), "vllm")
            >>> [
            ...     table.find(word).shown
            ...     for word in ("-cc.mode=3", "-O3", "--no_async_scheduling", "--attention-conf")
            ... ]
            ['-cc.mode', '-O', '--no-async-scheduling', '--attention-config']
        """
        name, sign, text = word.partition("=")
        value = text if sign else None
        spelled = dashed(name)
        flag = self._by_name.get(spelled)
        if flag is not None:
            return Found(flag, spelled, flag.takes, value)
        base = self._by_name.get(spelled.partition(".")[0]) if "." in spelled else None
        if base is not None and base.takes != "0":  # a key of a flag that takes JSON
            return Found(base, spelled, "1", value)
        positive = (
            self._by_name.get(f"--{spelled.removeprefix('--no-')}") if spelled.startswith("--no-") else None
        )
        if positive is not None and positive.takes == "0":
            return Found(positive, spelled, "0", value, negative=True)
        attached = _ONE_LETTER.fullmatch(name)
        if attached is not None and attached[1] in self._by_name:
            return Found(self._by_name[attached[1]], attached[1], "1", attached[2])
        if self.server.family in _ABBREVIATED and len(spelled) >= _SHORTEST and spelled.startswith("--"):
            begun = {
                one.name: one
                for other, one in self._by_name.items()
                if other.startswith(spelled)
                and ("." in spelled or "." not in other)
                and one.group.until is one.group.package is None
            }
            if len(begun) == 1:
                [flag] = begun.values()
                return Found(flag, dashed(flag.name), flag.takes, value)
        return None


def dashed(name: str) -> str:
    """A flag with dashes between its words, which parsers take for underscores and print in place of them."""
    return name.replace("_", "-") if name.startswith("--") else name


FAMILIES: Final = ("vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx")
"""Engines whose servers' flags are listed."""


def flag_names(family: str) -> Mapping[str, str]:
    """A server's flags by what each sets, as :attr:`FlagTable.names`.

    Examples:
        >>> names = flag_names("sglang")
        >>> names["utilization"], names["data_parallel"], names["enable_lora"]
        ('--mem-fraction-static', '--dp-size', '--enable-lora')
    """
    return flag_table(data_dir(), family).names


def with_flags(text: str) -> str:
    """A text with the names of flags in place of ``{server:setting}``, as :attr:`FlagTable.names`.

    Examples:
        >>> with_flags("raise --{sglang:utilization} to {value}")
        'raise --mem-fraction-static to {value}'
    """
    return _PLACE.sub(lambda place: flag_names(place[1])[place[2]].lstrip("-"), text)


_PLACE: Final = re.compile(r"\{(\w+):(\w+)\}")
FlagText = Annotated[Text, AfterValidator(with_flags)]
"""A text of a data file in which a flag stands as ``{server:setting}``."""


def load_server_flags(folder: Path) -> dict[str, ServerFlags]:
    """Read the flags of every server of a catalog's folder, by family.

    Raises:
        CatalogError: If a file is not right.
    """
    return {family: flag_table(folder, family).server for family in FAMILIES}


@cache
def flag_table(folder: Path, family: str) -> FlagTable:
    """Read one server's flags.

    Raises:
        CatalogError: If its file is not right.
    """
    name = f"flags/{family}.yaml"
    return FlagTable(validate(ServerFlags, read_yaml(folder / name, name), name))
