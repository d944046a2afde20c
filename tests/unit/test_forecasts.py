"""Forecasts: made once, never changed, and scored by logs that were published later."""

from __future__ import annotations

from typing import Any

import pytest
from record_files import observed

from kvreport.catalog.forecasts import Forecast, ForecastRun, Forecasts
from kvreport.catalog.load import Catalog
from kvreport.catalog.observation import Observation
from kvreport.evidence.forecast_scores import is_later, scored
from kvreport.resources import data_dir
from kvreport.site.pages import scored_forecasts as section
from scripts import forecast

MODEL, DAY = "Qwen/Qwen3.8-27B", "2026-11-28"


def published(**changes: Any) -> Observation:
    told = {
        "id": "one",
        "engine": "vllm",
        "model": MODEL,
        "model_id": MODEL,
        "gpu_named": "H200",
        "gpu": "h200-sxm-141gb",
        "devices": 8,
        "tensor_parallel": 8,
        "context_tokens": 32768,
        "printed": {"kv_tokens": 1_000_000},
        "completeness": "full",
        "origin": {"kind": "issue", "date": "2026-12-03"},
    }
    return Observation.model_validate(told | changes)


def foretold(**changes: Any) -> Forecasts:
    told = {
        "model": MODEL,
        "gpu": "h200-sxm-141gb",
        "devices": 8,
        "tokens": 1_050_000,
        "requests": 32,
        "verdict": "fits",
        "pool_bytes": 60 << 30,
        "band_bytes": 4 << 30,
    }
    run = ForecastRun(
        day=DAY,
        rules="1, engines 0",
        engine="vllm",
        release="0.33.0",
        context_tokens=32768,
        utilization=0.92,
        forecasts=(Forecast.model_validate(told | changes),),
    )
    return Forecasts(runs=(run,))


def test_a_later_log_of_the_same_start_scores_a_forecast() -> None:
    (one,) = scored(foretold(), [published()])
    assert one.observation is not None
    assert one.error == pytest.approx(0.05)
    assert one.within_band is True
    assert one.starts_right is True
    (narrow,) = scored(foretold(band_bytes=1 << 30), [published()])
    assert narrow.within_band is False
    (refused,) = scored(foretold(), [published(printed={"fits": False})])
    assert (refused.error, refused.starts_right) == (None, False)


@pytest.mark.parametrize("date", [None, "2026", "2026-11", "2026-11-27", DAY, "2026-10-30"])
def test_no_log_that_may_be_older_scores_a_forecast(date: str | None) -> None:
    (one,) = scored(foretold(), [published(origin={"kind": "issue", "date": date})])
    assert one.observation is None
    assert one.error is None


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu": "h100-sxm-80gb"},
        {"devices": 4, "tensor_parallel": 4},
        {"tensor_parallel": 4, "data_parallel": 2},
        {"engine": "sglang"},
        {"model_id": None, "shapes_of": MODEL},
        {"context_tokens": 8192},
        {"utilization": 0.85},
        {"kv_format": "fp8"},
        {"weight_format": "fp8"},
        {"speculative": "mtp, num_speculative_tokens 3"},
        {"max_seqs": 64},
        {"eager": True},
    ],
)
def test_a_log_of_another_start_scores_no_forecast(changes: dict[str, Any]) -> None:
    (one,) = scored(foretold(), [published(**changes)])
    assert one.observation is None


def test_the_first_later_log_is_the_one_that_counts() -> None:
    later = published(id="two", origin={"kind": "issue", "date": "2027-01"}, printed={"kv_tokens": 10})
    (one,) = scored(foretold(), [later, published()])
    assert one.observation is not None
    assert one.observation.id == "one"


def test_a_second_run_changes_no_row_of_the_first(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    one = forecast.new_models(catalog)[0]
    monkeypatch.setattr(forecast, "new_models", lambda _: [one])
    wrong = foretold(model=one.id, gpu="l40s", devices=1, tokens=7)
    found = forecast.add(catalog, wrong, "2026-12-01")
    assert found.runs[0] == wrong.runs[0]
    keys = [one.key for run in found.runs for one in run.forecasts]
    assert len(keys) == len(set(keys)) == len(forecast.MACHINES)
    assert found.runs[1].day == "2026-12-01"
    # What is predicted already is not predicted again, by whatever rules.
    assert forecast.add(catalog, found, "2027-01-01") is None


def test_new_models_are_those_of_the_last_months_of_the_catalog_s_own_dates(catalog: Catalog) -> None:
    months = {one.release for one in forecast.new_models(catalog)}
    dated = sorted({m.release for m in catalog.models.values() if m.release and len(m.release) == 7})
    assert dated[-1] in months
    assert len(months) <= forecast.MONTHS


@pytest.fixture(scope="module")
def public() -> Forecasts:
    found = Forecasts.read(data_dir())
    assert found is not None, Forecasts.FILE
    return found


def test_at_least_fifty_are_public_and_each_is_there_once(public: Forecasts) -> None:
    keys = [one.key for run in public.runs for one in run.forecasts]
    assert len(keys) == len(set(keys)) >= 50
    assert len({(gpu, devices) for _, gpu, devices in keys}) >= 12
    assert [run.day for run in public.runs] == sorted(run.day for run in public.runs)


def test_no_public_forecast_is_scored_by_a_log_of_its_day_or_before(public: Forecasts) -> None:
    for one in scored(public, observed()):
        assert one.observation is None or is_later(one.observation.origin.date, one.run.day)


def test_the_section_has_a_cell_for_each_forecast_and_a_row_for_each_score(catalog: Catalog) -> None:
    found = tuple(scored(foretold(), [published()]))
    first, second = section.tables(catalog, found)
    assert first.rows[0].cells[0].text == "1,050,000"
    assert [cell.text for cell in second.rows[0].cells][1:5] == ["1,050,000", "1,000,000", "+5.0", "inside"]
    (alone,) = section.tables(catalog, tuple(scored(foretold(), [])))
    assert alone.caption.startswith("None of the 1 forecast has been tested yet: ")
