"""Logs at first sight are logs of the catalog, and the evidence page leads with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvreport.catalog.first_seen import FirstSeen, FirstSeenLog, Run, errors_of, load_first_seen
from kvreport.catalog.observation import load_observations
from kvreport.errors import CatalogError
from kvreport.evidence.validation import Validation
from kvreport.resources import data_dir
from kvreport.site.pages import first_sight


@pytest.fixture(scope="module")
def found() -> FirstSeen:
    known = load_first_seen(data_dir())
    assert known is not None
    return known


def test_every_log_is_an_observation_and_stands_once(found: FirstSeen) -> None:
    known = {one.id for one in load_observations(data_dir())}
    names = [log.id for run in found.runs for log in run.logs]
    names += [name for run in found.runs for name in run.not_predicted]
    assert set(names) <= known
    assert len(names) == len(set(names))


def test_the_lead_counts_complete_logs_only(found: FirstSeen) -> None:
    assert f"{len(errors_of(found.complete))} complete logs were" in first_sight.lead(found)


def test_nothing_is_said_without_complete_logs() -> None:
    log = FirstSeenLog(id="a", complete=False, error=0.1)
    run = Run(recorded="2026-11-22", revision="a", logs=(log,))
    assert first_sight.lead(FirstSeen(runs=(run,))) == ""


def test_the_first_table_has_the_newest_day_first_and_counts_every_log(found: FirstSeen) -> None:
    table = first_sight.tables(found, Validation((), (), ()))[0]
    names = [row.head.text for row in table.rows]
    days = [name[:10] for name in names if not name.startswith("all days")]
    assert days == sorted(days, reverse=True)
    assert len(set(names)) == len(names)
    for every in (True, False):
        counts = [row.cells[0].value for row in table.rows if row.head.text.startswith("all days") is every]
        assert sum(int(count or 0) for count in counts) == sum(len(errors_of(run.logs)) for run in found.runs)


def test_a_catalog_without_the_file_has_none(tmp_path: Path) -> None:
    assert load_first_seen(tmp_path) is None


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "first_seen.yaml").write_text("schema_version: 1\nruns: 3\n")
    with pytest.raises(CatalogError):
        load_first_seen(tmp_path)
