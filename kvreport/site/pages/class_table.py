"""Classes of transformers compared with their tensors, on the evidence page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.catalog.class_check import CheckedClass, ClassCheck
from kvreport.resources import read_table
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts

GROUPS: Final[dict[str, str]] = read_table("class groups")
"""Names of the lists of transformers that a class stands in."""


def tables(check: ClassCheck) -> Iterator[Table]:
    """Yield what was counted for each list of classes, and what is not exact, class by class."""
    groups = {name: [one for one in check.classes if one.group == group] for group, name in GROUPS.items()}
    groups["All"] = list(check.classes)

    def statuses(name: str, status: str) -> int:
        return sum(one.status == status for one in groups[name])

    yield listing(
        f"Parameters of the classes of transformers {check.transformers}, compared with torch {check.torch}",
        groups,
        texts("List of classes", Cell),
        numbers("Classes", lambda name: len(groups[name])),
        numbers("Exact", lambda name: statuses(name, "exact")),
        numbers("Refused", lambda name: statuses(name, "refused")),
        numbers("Not built by transformers", lambda name: statuses(name, "not built")),
        numbers("Different", lambda name: statuses(name, "differs")),
        numbers("Exact with small changes", lambda name: sum(one.small == "exact" for one in groups[name])),
        numbers("Cache exact", lambda name: sum(one.cache == "exact" for one in groups[name])),
        numbers("One key changed", lambda name: sum(one.changes for one in groups[name])),
        numbers("Exact", lambda name: sum(one.exact_changes for one in groups[name])),
        numbers("Refused", lambda name: sum(one.refused_changes for one in groups[name])),
        numbers(
            "Different on purpose", lambda name: sum(len(one.differs_on_purpose) for one in groups[name])
        ),
        numbers("Wrong", lambda name: sum(len(one.followed_wrongly) for one in groups[name])),
    )
    odd = [one for one in check.classes if "differs" in (one.small, one.cache) or one.status != "exact"]
    odd += [one for one in check.classes if one.differs_on_purpose and one not in odd]
    yield listing(
        "Classes that are refused, differ or cannot be built",
        odd,
        texts("Class", lambda one: one.name),
        texts("Result", _result),
        texts("Nearest class or reason", lambda one: one.note or one.nearest or ""),
        css="kv-words",
    )
    completed = [one for one in check.classes if one.completed]
    if completed:
        yield listing(
            "Classes whose default config does not make a model, and the keys that were taken from released configs",
            completed,
            texts("Class", lambda one: one.name),
            texts("Keys given", lambda one: ", ".join(one.completed)),
            texts("Result", lambda one: one.status),
            css="kv-words",
        )
    followed = [one for one in check.classes if one.followed_wrongly]
    if followed:
        yield listing(
            "Keys whose change gives a different number of parameters than transformers allocates",
            followed,
            texts("Class", lambda one: one.name),
            texts("Keys", lambda one: ", ".join(one.followed_wrongly)),
            css="kv-words",
        )


def _result(one: CheckedClass) -> str:
    if one.differs_on_purpose:
        return f"follows {', '.join(one.differs_on_purpose)}, which transformers ignores"
    if one.cache == "differs":
        return "parameters exact, cache different"
    if one.status == "exact":
        return "default config exact, small variation different"
    words = {"differs": "different", "not built": "cannot be built by transformers from its default config"}
    return words.get(one.status, one.status)
