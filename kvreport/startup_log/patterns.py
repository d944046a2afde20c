"""Every kind of line that is recognised, of ``data/log_lines``: an expression, the facts it names, what it means.

Expressions are valid in Python and, named groups apart, in JavaScript: the page that reads logs in the
browser works from the same table. A line that none of these matches is not understood, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from kvreport.catalog.load import Catalog
from kvreport.catalog.log_lines import Engine, Fact, LogLine, log_lines, unfollowed_line
from kvreport.catalog.safe_patterns import needed
from kvreport.catalog.server_flags import flag_table
from kvreport.resources import data_dir

FACTS: Final[Mapping[str, Fact]] = {name: fact for one in log_lines() for name, fact in one.facts.items()}
"""Everything that a log can state, by name."""


def own_folder(known: Catalog) -> Path | None:
    """The folder of a catalog of one's own; None for the public one."""
    return None if known.folder.resolve() == data_dir().resolve() else known.folder


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line."""

    engine: Engine | None  # Whose line it is; None if several write it.
    line: LogLine
    expression: str
    # Texts of which one stands in every such line; looked for first, in a hundredth of the time.
    texts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name in answers."""
        return self.line.name

    def search(self, text: str) -> re.Match[str] | None:
        """Find it in a line."""
        for one in self.texts:
            if one in text:
                return _compiled(self.expression).search(text)
        return None


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.ASCII)


@cache
def patterns(folder: Path | None = None) -> tuple[Pattern, ...]:
    """Every kind of line, in the order in which they are tried; several may match one line.

    Args:
        folder: A catalog of one's own that has further lines.
    """
    lines = [(one.engine, line) for one in log_lines(folder) for line in one.lines]
    lines += ((engine, line) for engine, _, line in _unfollowed())
    expanded = [(engine, line, line.expanded) for engine, line in lines]
    return tuple(Pattern(engine, line, text, needed(text)) for engine, line, text in expanded)


@cache
def flags_not_followed() -> dict[str, str]:
    """Names of lines that state a flag which is not followed, with what the flag changes."""
    return {line.name: told for _, told, line in _unfollowed()}


def _unfollowed() -> Iterator[tuple[Engine, str, LogLine]]:
    engines: tuple[Engine, ...] = ("sglang", "vllm")
    for engine in engines:
        table = flag_table(data_dir(), engine)
        for flag, known in table.server.in_logs.items():
            if known.fact is None:
                changes = known.changes or str(table.group_of(flag).changes)
                yield engine, f"{flag} ({changes})", unfollowed_line(engine, flag, known, changes)
