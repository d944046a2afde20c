"""The section of the evidence page about forecasts: predictions that no log was known of, open and scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import median

from kvreport import units
from kvreport.catalog.forecasts import Forecast
from kvreport.catalog.load import Catalog
from kvreport.evidence.forecast_scores import Scored
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
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
    yield listing(
        f"{conclusion(found)} Cells show the tokens of the KV pool for requests of up to {context} tokens",
        dict.fromkeys(one.forecast.model for one in found),
        texts("Model", partial(_name, catalog)),
        *(
            numbers(_machine(catalog, *machine), partial(_of_machine, by_key, machine), "tokens")
            for machine in machines
        ),
        noun="models",
    )
    done = [(one.observation, one) for one in found if one.observation is not None]
    if done:
        yield listing(
            "Scored forecasts",
            done,
            texts("Model", lambda row: _name(catalog, row[1].forecast.model)),
            texts("GPUs", lambda row: _machine(catalog, row[1].forecast.gpu, row[1].forecast.devices)),
            numbers("Forecast", lambda row: _cell(row[1].forecast), "tokens"),
            numbers("Logged", lambda row: row[0].printed.kv_tokens or "refused", "tokens"),
            numbers("Error (%)", lambda row: _error(row[1].error)),
            texts("80% band", lambda row: {True: "inside", False: "outside", None: ""}[row[1].within_band]),
            texts("Log", lambda row: f"{row[0].id}, {row[0].origin.date}"),
            noun="forecasts",
        )


def _of_machine(
    by_key: Mapping[tuple[str, str, int], Forecast], machine: tuple[str, int], model: str
) -> Cell:
    return _cell(by_key.get((model, *machine)))


def _error(error: float | None) -> Cell:
    return Cell("" if error is None else f"{100 * error:+.1f}", value=error)


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
