"""The evidence page: the errors of predictions on what engines printed.

Everything here comes from :func:`kvreport.evidence.validation.validate`. Each log is on the page of
:mod:`kvreport.site.pages.every_log`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
from markupsafe import Markup

from kvreport import units
from kvreport.catalog.cross_validation import LeftOut
from kvreport.catalog.first_predictions import FirstSeen
from kvreport.catalog.forecasts import Forecasts
from kvreport.catalog.observation import load_observations
from kvreport.catalog.peer import PeersFile
from kvreport.catalog.planner_check import OracleCheck, PlannerCheck
from kvreport.evidence.forecast_scores import scored
from kvreport.evidence.validation import Compared, Statistic, Validation, compare, validate
from kvreport.publish.tracked_values import kept
from kvreport.resources import data_dir, read_table
from kvreport.site.kit import charts, figures
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, ListColumn, Table, listing, numbers, texts
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages import (
    comparisons,
    errors_at_first_sight,
    every_log,
    known_starts,
    layout_evidence,
    left_out,
    other_tools,
    scored_forecasts,
)
from kvreport.words import release_name

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.catalog.observation import Observation
    from kvreport.publish.site_data import SiteData
    from kvreport.site.kit.drawing import Drawing

URI: Final = "evidence/"
FILE: Final = "evidence/validation.json"

QUANTITIES: Final[dict[str, str]] = read_table("compared quantities")
"""Every quantity compared, in the words of the page."""

DRAWN: Final = ("weights", "pool", "tokens", "tokens given pool")
SHARES: Final = tuple(range(0, 91, 5))
"""Per cent of cases at which the errors' distribution is drawn; the largest errors stand in the table."""


@cache
def of(catalog: Catalog) -> Validation | None:
    """Compare the observations that lie beside a catalog; None if it has none."""
    if not (catalog.folder / "observations").is_dir():
        return None
    return validate(catalog, case_of=_kept_case)


def _kept_case(catalog: Catalog, observation: Observation) -> Compared:
    """An observation's comparison, kept until something that it reads changes."""
    return kept(f"case {observation.model_dump_json()}", lambda: compare(catalog, observation))


def files(catalog: Catalog) -> dict[str, bytes]:
    """Return the machine-readable validation by its address; nothing if there are no observations."""
    found = of(catalog)
    if found is None:
        return {}
    text = json.dumps(found.to_dict(), ensure_ascii=False, indent=1, allow_nan=False)
    return {FILE: f"{text}\n".encode()}


def page(catalog: Catalog, drawings: Mapping[str, Drawing] | None = None) -> Page | None:
    """Return the page, or None if the catalog has no observations."""
    found = of(catalog)
    if found is None:
        return None
    peers = PeersFile.read(catalog.folder)
    others = (
        []
        if peers is None
        else [("peers", "Comparison with other calculators", _tables(*other_tools.tables(catalog, peers)))]
    )
    documented = known_starts.of(catalog)
    if documented:
        others.insert(
            0,
            (
                "starts",
                "Does the server start? Documented cases",
                _tables(*known_starts.tables(documented, known_starts.too_old(catalog))),
            ),
        )
    checked = PlannerCheck.read(catalog.folder)
    if checked is not None:
        others.insert(
            0, ("planner", "Comparison with vLLM's own cache configuration", _tables(_planner(checked)))
        )
    oracle = OracleCheck.read(catalog.folder)
    if oracle is not None:
        others.insert(1, ("oracle", "Comparison with SGLang's configurators", _tables(*_oracle(oracle))))
    foretold = Forecasts.read(catalog.folder)
    if foretold is not None:
        open_and_scored = tuple(scored(foretold, load_observations(catalog.folder)))
        others.append(
            (
                "forecasts",
                "Forecasts of new models",
                _tables(*scored_forecasts.tables(catalog, open_and_scored)),
            )
        )
    more = comparisons.page(catalog)
    if more is not None:
        others += comparisons.pointers(more)
    public = catalog.folder.resolve() == data_dir().resolve()
    # The public logs are those that the constants were fitted on, and the public site has a page about that.
    return page_of(
        found,
        others,
        public=public,
        blind=LeftOut.read(catalog.folder),
        first=FirstSeen.read(catalog.folder),
        drawings=drawings or {},
    )


def page_of(
    found: Validation,
    others: Sequence[tuple[str, str, Markup]] = (),
    *,
    public: bool = False,
    blind: LeftOut | None = None,
    first: FirstSeen | None = None,
    drawings: Mapping[str, Drawing] = MappingProxyType({}),
) -> Page:
    """Return the page of one validation.

    Args:
        found: The validation.
        others: Further sections: anchor, title and finished body.
        public: Whether these are the public catalog's logs.
        blind: Errors on sources left out of the fit, which lead where they are known.
        first: Errors on logs before any rule knew of them.
        drawings: What was drawn, by the request's digest.
    """
    told = [("All logs", _conclusion(found))]
    leading: list[str] = []
    sections = []
    scatter: dict[str, object] = {"chart": None}
    if blind is not None:
        told.insert(0, ("Held-out sources", f"{left_out.lead(blind)}."))
        sections.append(("left-out", "Errors on held-out sources", _tables(*left_out.tables(blind, found))))
    if first is not None and (leading := errors_at_first_sight.leads(first)):
        body = _tables(*errors_at_first_sight.tables(first, found))
        request = errors_at_first_sight.picture(first, found)
        drawn = None if request is None else drawings.get(request.digest)
        if request is not None:
            body = Markup("<p>{}</p>\n{}").format(errors_at_first_sight.counts(first, request), body)
        if request is not None and drawn is not None:
            scatter = {"chart": errors_at_first_sight.chart(request), "drawing": drawn}
        sections.insert(0, ("first-sight", "First predictions", body))
    sections += [
        ("errors", "Prediction errors", _tables(_errors(found), _starts(found))),
        ("distribution", "Error distribution", _distribution(found)),
        ("layouts", "Errors by layout and feature", _tables(*layout_evidence.tables(found))),
        ("where", "Errors by engine, model family and weight format", _tables(*_by(found))),
        *others,
    ]
    return Page(
        uri=URI,
        kind="tool",
        title="Evidence: predictions compared with engine logs",
        heading="Predictions compared with engine logs",
        description=" ".join([*leading, *(text for _, text in told)]),
        lead=render(
            "validation/lead.html",
            URI,
            {"leading": leading, "told": told, "file": FILE, "logs": every_log.URI, "public": public}
            | scatter,
        ),
        sections=tuple(Section(*parts) for parts in sections),
        names=("validation", "evidence", "accuracy", "error"),
    )


def _tables(*tables: Table) -> Markup:
    return Markup("\n").join(render("_table.html", URI, {"table": table, "late": True}) for table in tables)


def _conclusion(found: Validation) -> str:
    compared = sum(bool(case.comparisons) or case.starts_predicted is not None for case in found.cases)
    parts = [
        f"Of {units.count(len(found.cases))} published start-up logs, {units.count(compared)} contain enough information to be tested"
    ]
    errors = [
        f"{_share(one.median)} for {words}"
        for quantity, words in (
            ("weights", "weights"),
            ("pool", "the KV pool"),
            ("tokens given pool", "tokens computed from the logged pool"),
        )
        if (one := found.statistic(quantity)) is not None
    ]
    if errors:
        parts.append(f"The median errors of today's rules are {_listed(errors)}")
    right = sum(count for predicted, observed, count in found.starts if predicted == observed)
    total = sum(count for _, _, count in found.starts)
    if total:
        parts.append(
            f"For {right} of {total} logs, today's rules correctly predict whether the server starts"
        )
    old = sum(case.old for case in found.cases)
    if old:
        parts.append(
            f"Of all logs, {old} come from releases that kvreport does not support (more than 18 months older than the newest)"
        )
    return ". ".join(parts) + "."


def _listed(parts: Sequence[str]) -> str:
    """Join parts as a sentence lists them: "a", "a and b", "a, b, and c"."""
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _statistics(
    caption: str, head: ListColumn[Statistic], rows: Iterable[Statistic], *, sortable: bool = False
) -> Table:
    return listing(
        caption,
        rows,
        head,
        numbers("Logs", lambda one: one.count),
        numbers("Median error", lambda one: Cell(_share(one.median), value=one.median)),
        numbers("90th percentile", lambda one: Cell(_share(one.p90), value=one.p90)),
        numbers("Largest", lambda one: Cell(_share(one.largest), value=one.largest)),
        numbers("Within 1%", lambda one: Cell(f"{one.within_1_percent:.0%}", value=one.within_1_percent)),
        numbers("Median, signed", lambda one: Cell(f"{one.bias * 100:+.2f}%", value=one.bias)),
        sortable=sortable,
    )


_UNKNOWN_TOO: Final = {"complete": "", "all": "including logs with some flags assumed"}


def _errors(found: Validation) -> Table:
    rows = []
    for quantity in QUANTITIES:
        complete, every = found.statistic(quantity), found.statistic(quantity, "all")
        rows += [] if complete is None else [complete]
        if every is not None and (complete is None or complete.count != every.count):
            rows.append(every)
    head: ListColumn[Statistic] = texts(
        "Quantity", lambda one: Cell(QUANTITIES[one.quantity], hint=_UNKNOWN_TOO[one.scope])
    )
    return _statistics("Relative errors of the predictions", head, rows)


def _starts(found: Validation) -> Table:
    counts = {(predicted, observed): count for predicted, observed, count in found.starts}
    return listing(
        "Does the server start? Prediction and log, if all flags are known",
        (True, False),
        texts("Prediction", lambda predicted: "predicted to start" if predicted else "predicted to fail"),
        numbers("Started", lambda predicted: counts.get((predicted, True), 0)),
        numbers("Failed to start", lambda predicted: counts.get((predicted, False), 0)),
    )


def _planner(found: PlannerCheck) -> Table:
    """How many points of the engine's own planner are met, and with what assumption."""
    rows: list[tuple[str, int, int | None]] = [
        ("models", found.models, None),
        ("rows (a model with one set of flags)", found.rows, None),
        ("points (a row with one pool size and one length)", found.points, None),
        ("points where both are equal", found.equal, found.points),
        ("points within 1%", found.near, found.points),
        ("rows left out because the config is not available", found.left_out_rows, None),
    ]
    if found.layout_points:
        rows += [
            ("models with pipeline or decode context parallelism", found.layout_models, None),
            ("rows of these models (a model with one set of flags in one layout)", found.layout_rows, None),
            ("points of these rows", found.layout_points, None),
            ("points of these rows where both are equal", found.layout_equal, found.layout_points),
        ]
    return listing(
        f"Blocks, tokens and concurrency compared with {found.engine}'s own KV cache configuration code, run without a GPU on config.json alone",
        rows,
        texts("Quantity", lambda row: row[0]),
        numbers("Count", lambda row: row[1]),
        numbers("Share", lambda row: "" if row[2] is None else f"{row[1] / row[2]:.2%}"),
    )


def _distribution(found: Validation) -> Markup:
    lines = []
    for quantity in DRAWN:
        errors = [
            abs(c.error)
            for case in found.cases
            if case.observation.complete
            for c in case.comparisons
            if c.quantity == quantity
        ]
        if len(errors) > 2:
            values = tuple(float(value) * 100 for value in np.percentile(errors, SHARES))
            lines.append((QUANTITIES[quantity], values))
    if not lines:
        return Markup()
    title = "Share of logs with an error below each value, up to 90%"
    drawn = figures.curves(
        figures.Curves(
            title=title,
            x_title="Share of logs with all flags known (%)",
            y_title="Relative error (%)",
            x=tuple(float(x) for x in SHARES),
            lines=tuple(lines),
            x_log=False,
            x_tokens=False,
        )
    )
    return Markup(drawn)  # noqa: S704 (drawn by us, texts escaped there)


def _by(found: Validation) -> list[Table]:
    made = []
    names: dict[str, Callable[[str], str]] = {"engine": release_name, "family": str, "weights": str.upper}
    for noun, what in (("engine", "Release"), ("family", "Model family"), ("weights", "Weight format")):
        of_noun = [one for one in found.statistics if one.scope.startswith(f"{noun}: ")]
        rows = sorted(of_noun, key=lambda one: (one.scope, list(QUANTITIES).index(one.quantity)))
        head = texts(what, partial(_scope, names[noun]))
        caption = f"Relative errors by {what[0].lower()}{what[1:]}"
        made.append(_statistics(caption, head, rows, sortable=True))
    return made


def _scope(name: Callable[[str], str], one: Statistic) -> Cell:
    return Cell(name(one.scope.partition(": ")[2]), hint=QUANTITIES[one.quantity])


def _oracle(found: OracleCheck) -> Iterator[Table]:
    counts = {
        "points (a model with one set of flags on one device)": found.points,
        "points where every setting and count is equal": found.equal,
        "points where the engine stopped with an error (not compared)": found.refused_by_engine,
        "configs not compared: different from the catalog's, or an unsupported class": found.other_classes,
    }
    yield listing(
        f"Argument resolution and pool configurators of {found.engine}, run without a GPU for {found.models} models and "
        f"{len(found.accelerators)} devices ({found.day})",
        counts,
        texts("Quantity", Cell),
        numbers("Points", lambda said: counts[said]),
    )
    if found.releases:
        yield listing(
            "Points by release of SGLang",
            found.releases,
            texts("Release", lambda one: one.release),
            numbers("Points", lambda one: one.points),
            numbers("Equal", lambda one: one.equal),
            numbers("Share", lambda one: Cell(f"{one.equal / one.points:.2%}", value=one.equal / one.points)),
        )
    if found.differences:
        yield listing(
            "Points with different results, by model",
            found.differences,
            texts("Model", lambda one: one.model),
            numbers("Points", lambda one: one.points),
            texts("Different quantity", lambda one: ", ".join(one.quantities).replace("_", " ")),
        )


def _share(value: float) -> str:
    """Print an error: ``0.02%``, ``10.4%``."""
    percent = value * 100
    return f"{percent:.2f}%" if percent < 1 else f"{percent:.1f}%"


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page and that of every log, where the catalog has what they show."""
    catalog = inputs.site.catalog
    made, found = page(catalog, inputs.drawings), of(catalog)
    if made is not None and found is not None:
        yield made
        yield every_log.page(found, QUANTITIES, catalog)
        more = comparisons.page(catalog)
        if more is not None:
            yield more


def requests(site: SiteData) -> Iterator[charts.ChartRequest]:
    """Yield the picture of logs at first sight, where there are any."""
    found, first = of(site.catalog), FirstSeen.read(site.catalog.folder)
    request = None if found is None or first is None else errors_at_first_sight.picture(first, found)
    if request is not None:
        yield request


TYPE: Final = PageType("validation", pages, requests, files=lambda site: files(site.catalog).items())
