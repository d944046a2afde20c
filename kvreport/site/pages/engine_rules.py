"""What an engine does by release, as tables for the page about engines: every rule and list of classes, its values, sources and logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kvreport.catalog.release import ClassList, Numbers, Rule, RulesFile, read_rules, release_number
from kvreport.publish.engine_changes import said
from kvreport.site.kit.tables import Cell, Column, Row, Table, listing, texts
from kvreport.site.kit.templating import render
from kvreport.site.pages import evidence_page
from kvreport.words import counted

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.evidence.validation import Compared

MARK: Final = re.compile(r"<!-- kv:(?P<what>rules|ranges) (?P<family>[a-z_]+) -->")
"""Where a hand-written page has the table of a family's rules, or of its ranges of releases."""

_OF: Final = {"weights": ("weights",), "plans": ("tokens given pool", "concurrency given pool")}
"""Quantities of logs that confirm a term; the others are confirmed by pools, end to end."""
_CLOSE: Final = 0.01


def placed(html: str, catalog: Catalog, uri: str) -> str:
    """A page with its tables where it asks for them."""

    def made(match: re.Match[str]) -> str:
        rules = read_rules(catalog.folder, match["family"])
        if rules is None:
            return ""
        table = _ranges(rules) if match["what"] == "ranges" else _rules(rules, _cases(catalog, rules.family))
        return render("_table.html", uri, {"table": table, "late": True})

    return MARK.sub(made, html)


def _cases(catalog: Catalog, family: str) -> Sequence[tuple[Numbers, Compared]]:
    """The logs of a family that are compared, with their releases."""
    found = evidence_page.of(catalog)
    cases = () if found is None else found.cases
    named = ((case, (case.release or "").partition(" ")) for case in cases if case.comparisons)
    dated = ((release_number(family, version), case) for case, (of, _, version) in named if of == family)
    return [(number, case) for number, case in dated if number]


def _ranges(rules: RulesFile) -> Table:
    label = rules.records[-1].label.split()[0]
    return listing(
        f"Names of {label}'s releases on the command line",
        rules.records,
        texts("Name", lambda one: one.name),
        texts("Releases", lambda one: one.label),
        texts("From", lambda one: one.first),
        texts("Computed as", lambda one: one.version),
    )


def _rules(rules: RulesFile, cases: Sequence[tuple[Numbers, Compared]]) -> Table:
    label = rules.records[-1].label.split()[0]
    logs = (
        ". The numbers in parentheses show how many of the logs that state the affected figure agree with the rule"
        if cases
        else ""
    )
    return Table(
        f"What {label} does in each release{logs}",
        Column("Rule", numeric=False),
        tuple(Column(name, numeric=False) for name in ("Area", "Value by release", "Source")),
        tuple(_rows(rules, cases)),
        css="kv-words",
        noun="rules",
    )


def _rows(rules: RulesFile, cases: Sequence[tuple[Numbers, Compared]]) -> Iterator[Row]:
    term = ""
    every: tuple[Rule | ClassList, ...] = (*rules.rules, *rules.lists)
    for rule in every:
        term = (rule.term or term) if isinstance(rule, Rule) else "classes"
        stated, values = list(rule.values), list(rule.by_release().items())
        told = []
        for place, (first, value) in enumerate(values):
            end = values[place + 1][0] if place + 1 < len(values) else None
            held = [case for number, case in cases if first <= number and (end is None or number < end)]
            logs = _logs(term, held) if cases and isinstance(rule, Rule) else ""
            told.append(f"{_span(stated, place)}: {said(value)}{logs}")
        hint = (rule.evidence or "") if isinstance(rule, Rule) else ""
        yield Row(Cell(rule.what), (Cell(term), Cell("; ".join(told)), Cell(rule.where, hint=hint)))
    for one in rules.traits:
        value = frozenset(one.value) if isinstance(one.value, tuple) else one.value
        yield Row(Cell(one.what), (Cell("always"), Cell(f"every release: {said(value)}"), Cell(one.where)))


def _span(stated: Sequence[str], place: int) -> str:
    """The releases of a value: ``before 0.20``, ``from 0.20 until 0.24``, ``since 0.24``; ``every release``."""
    if len(stated) == 1:
        return "every release"
    first = stated[place]
    if place + 1 == len(stated):
        return f"since {first}"
    return f"before {stated[1]}" if place == 0 else f"from {first} until {stated[place + 1]}"


def _logs(term: str, cases: Sequence[Compared]) -> str:
    """How many logs show a term's figure, and how many of them agree: pools in their band, others to 1%."""
    agree, shown = 0, 0
    for case in cases:
        if term in _OF:
            errors = [abs(one.error) for one in case.comparisons if one.quantity in _OF[term]]
            shown += bool(errors)
            agree += bool(errors) and max(errors) <= _CLOSE
        elif case.within_band is not None:
            shown += 1
            agree += case.within_band
    return f" ({agree} of {counted(shown, 'log|logs')})" if shown else " (no log)"
