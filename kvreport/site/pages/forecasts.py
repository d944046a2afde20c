"""The section of the evidence page about forecasts: predictions that no log was known of, open and scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from kvreport import units
from kvreport.catalog.forecasts import Forecast
from kvreport.catalog.load import Catalog
from kvreport.evidence.forecast_scores import Scored
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.words import ALL, counted


def conclusion(found: Sequence[Scored]) -> str:
    """Say how many forecasts are open, and how the scored ones were."""
    done = [one for one in found if one.observation is not None]
    run = found[-1].run
    number = counted(len(found), "forecast|forecasts")
    tested = (
        f"Of {number}, {len(done):,} have been tested against a log"
        if done
        else f"None of the {number} has been tested yet: no matching log has been published"
    )
    data, _, engines = run.rules.partition(", engines ")
    rules = f"data release {data} (engine rules {engines})" if engines else run.rules
    said = f"{tested}. The newest were made on {run.day} for vLLM {run.release}, with the rules of {rules}. A later log with the same model, GPUs and flags is used to score a forecast"
    errors = [abs(one.error) for one in done if one.error is not None]
    starts = [one.starts_right for one in done if one.starts_right is not None]
    if errors:
        said += f". The median error of {len(errors)} scored token counts is {median(errors):.1%}"
    if starts:
        said += f". Whether the server starts was right for {sum(starts)} of {len(starts)}"
    return f"{said}."


def tables(catalog: Catalog, found: Sequence[Scored]) -> Iterator[Table]:
    """Every forecast, a row for each model; then each scored one with its log."""
    machines = list(dict.fromkeys((one.forecast.gpu, one.forecast.devices) for one in found))
    by_key = {one.forecast.key: one.forecast for one in found}
    context = units.count(found[-1].run.context_tokens)
    yield Table(
        f"{conclusion(found)} Cells show the tokens of the KV pool for requests of up to {context} tokens",
        Column("Model", numeric=False),
        tuple(Column(_machine(catalog, gpu, devices), "tokens") for gpu, devices in machines),
        tuple(
            Row(Cell(_name(catalog, model)), tuple(_cell(by_key.get((model, *one))) for one in machines))
            for model in dict.fromkeys(one.forecast.model for one in found)
        ),
        noun="models",
    )
    done = [one for one in found if one.observation is not None]
    if done:
        yield Table(
            "Scored forecasts",
            Column("Model", numeric=False),
            (
                Column("GPUs", numeric=False),
                Column("Forecast", "tokens"),
                Column("Printed", "tokens"),
                Column("Error (%)"),
                Column("80% band", numeric=False),
                Column("Log", numeric=False),
            ),
            tuple(_scored(catalog, one) for one in done),
            noun="forecasts",
        )


def _scored(catalog: Catalog, one: Scored) -> Row:
    log, forecast, error = one.observation, one.forecast, one.error
    assert log is not None  # noqa: S101 - scored ones have a log
    inside = {True: "inside", False: "outside", None: ""}[one.within_band]
    return Row(
        Cell(_name(catalog, forecast.model)),
        (
            Cell(_machine(catalog, forecast.gpu, forecast.devices)),
            _cell(forecast),
            Cell(units.count(log.printed.kv_tokens) if log.printed.kv_tokens else "refused", "kv-num"),
            Cell("" if error is None else f"{100 * error:+.1f}", "kv-num", value=error),
            Cell(inside),
            Cell(f"{log.id}, {log.origin.date}"),
        ),
    )


def _cell(forecast: Forecast | None) -> Cell:
    if forecast is None:
        return Cell("")
    if forecast.requests and forecast.tokens:
        return Cell(units.count(forecast.tokens), "kv-num", value=forecast.tokens)
    words = ALL["verdict_labels"]
    return Cell(words.get(forecast.verdict, forecast.verdict.replace("_", " ")), "kv-num", value=0)


def _machine(catalog: Catalog, gpu: str, devices: int) -> str:
    known = catalog.accelerators.get(gpu)
    name = gpu if known is None else known.name
    return name if devices == 1 else f"{devices} x {name}"


def _name(catalog: Catalog, model: str) -> str:
    return catalog.models[model].name if model in catalog.models else model
