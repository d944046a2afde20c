"""Classes of transformers compared with their tensors, on the evidence page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.catalog.class_check import CheckedClass, ClassCheck
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell, Column, Row, Table

GROUPS: Final[dict[str, str]] = read_table("class groups")
"""Names of the lists of transformers that a class stands in."""


def tables(check: ClassCheck) -> Iterator[Table]:
    """Yield what was counted for each list of classes, and what is not exact, class by class."""
    yield Table(
        f"Parameters of the classes of transformers {check.transformers}, compared with torch {check.torch}",
        Column("List of classes", numeric=False),
        (
            Column("Classes"),
            Column("Exact"),
            Column("Refused"),
            Column("Not built by transformers"),
            Column("Different"),
            Column("Small variation exact"),
            Column("Cache exact"),
            Column("One key changed"),
            Column("Exact"),
            Column("Refused"),
            Column("Different on purpose"),
            Column("Wrong"),
        ),
        tuple(_row(name, check, group) for group, name in [*GROUPS.items(), (None, "All")]),
    )
    odd = [one for one in check.classes if "differs" in (one.small, one.cache) or one.status != "exact"]
    odd += [one for one in check.classes if one.differs_on_purpose and one not in odd]
    yield Table(
        "Classes that are refused, differ or cannot be built",
        Column("Class", numeric=False),
        (Column("Result", numeric=False), Column("Nearest class or reason", numeric=False)),
        tuple(Row(Cell(one.name), (Cell(_result(one)), Cell(one.note or one.nearest or ""))) for one in odd),
        css="kv-words",
    )
    completed = [one for one in check.classes if one.completed]
    if completed:
        yield Table(
            "Classes whose default config does not make a model, and the keys that were taken from released configs",
            Column("Class", numeric=False),
            (Column("Keys given", numeric=False), Column("Result", numeric=False)),
            tuple(
                Row(Cell(one.name), (Cell(", ".join(one.completed)), Cell(one.status))) for one in completed
            ),
            css="kv-words",
        )
    followed = [one for one in check.classes if one.followed_wrongly]
    if followed:
        yield Table(
            "Keys whose change gives a different number of parameters than transformers allocates",
            Column("Class", numeric=False),
            (Column("Keys", numeric=False),),
            tuple(Row(Cell(one.name), (Cell(", ".join(one.followed_wrongly)),)) for one in followed),
            css="kv-words",
        )


def _row(name: str, check: ClassCheck, group: str | None) -> Row:
    of = [one for one in check.classes if group in (None, one.group)]
    status = [one.status for one in of]
    counts = (
        len(of),
        status.count("exact"),
        status.count("refused"),
        status.count("not built"),
        status.count("differs"),
        sum(one.small == "exact" for one in of),
        sum(one.cache == "exact" for one in of),
        sum(one.changes for one in of),
        sum(one.exact_changes for one in of),
        sum(one.refused_changes for one in of),
        sum(len(one.differs_on_purpose) for one in of),
        sum(len(one.followed_wrongly) for one in of),
    )
    return Row(Cell(name), tuple(Cell(f"{count:,}", value=count) for count in counts))


def _result(one: CheckedClass) -> str:
    if one.differs_on_purpose:
        return f"follows {', '.join(one.differs_on_purpose)}, which transformers ignores"
    if one.cache == "differs":
        return "parameters exact, cache different"
    if one.status == "exact":
        return "default config exact, small variation different"
    words = {"differs": "different", "not built": "cannot be built by transformers from its default config"}
    return words.get(one.status, one.status)
