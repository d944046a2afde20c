"""Every column of every published table, described once, in ``columns.json``.

The dictionary page, ``datapackage.json``, ``croissant.json``, the Arrow schemas and the checks of
what is written all come from here. A column that is not described cannot be published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kvreport.accounting.capacity import Limit, Verdict
from kvreport.resources import package_dir

ColumnType = Literal["string", "int16", "int64", "float32", "float64", "boolean"]

VERDICTS: Final = tuple(verdict.label for verdict in Verdict)
"""Every verdict, from best to worst."""

LIMITS: Final = tuple(limit.label for limit in Limit)
"""What can keep one more request from running at once."""


@dataclass(frozen=True, slots=True)
class DatasetColumn:
    """One column."""

    name: str  # Name in every file.
    type: ColumnType  # Storage type.
    meaning: str  # What the value says, for a reader of the dictionary.
    unit: str = ""  # Unit of the value, or "" for names and flags.
    formula: str = ""  # How it is computed, or where it is read, in words.
    key: bool = False  # True if it is part of the table's primary key.
    nullable: bool = False  # True if it can be empty, which then means unknown.
    minimum: int | None = None  # Smallest value allowed, for numbers.
    values: tuple[str, ...] = ()  # All values allowed, for an enumeration.


@dataclass(frozen=True, slots=True)
class DatasetTable:
    """One published table."""

    name: str  # Stem of its files.
    title: str  # What people call it.
    description: str  # What one row is, and what is left out.
    columns: tuple[DatasetColumn, ...]  # Its columns, keys first.

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns that identify a row."""
        return tuple(column.name for column in self.columns if column.key)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in file order."""
        return tuple(column.name for column in self.columns)


def _table(name: str, said: Mapping[str, Any]) -> DatasetTable:
    """Return a table as ``columns.json`` says it: keys of :class:`DatasetColumn` by column, with names of lists of values."""
    lists = {"verdicts": VERDICTS, "limits": LIMITS}
    columns = (
        DatasetColumn(column, **{**of, "values": lists.get(of.get("values", ""), ())})
        for column, of in said["columns"].items()
    )
    return DatasetTable(name, said["title"], said["description"], tuple(columns))


_SAID: Final = json.loads((package_dir() / "columns.json").read_text(encoding="utf-8"))
TABLES: Final = tuple(_table(name, said) for name, said in _SAID.items())
CAPACITY, MODELS, ACCELERATORS = TABLES
