"""Logs at first sight are logs of the catalog, and the evidence page leads with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from record_files import observed

from kvreport.catalog.cross_validation import LeftOut
from kvreport.catalog.first_predictions import FirstSeen, FirstSeenLog, Run, errors_of
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import CatalogError
from kvreport.estimation.first_sight import details, sentence
from kvreport.estimation.first_sight import first_sight as first_sight_of
from kvreport.evidence.validation import Validation
from kvreport.publish.log_coverage import confirmed, confirmed_on, expected_error, under
from kvreport.resources import data_dir
from kvreport.site.kit.charts import specification
from kvreport.site.kit.drawing import Drawing
from kvreport.site.pages import errors_at_first_sight, evidence_page
from kvreport.words import SENTENCES


@pytest.fixture(scope="module")
def found() -> FirstSeen:
    known = FirstSeen.read(data_dir())
    assert known is not None
    return known


def test_every_log_is_an_observation_and_stands_once(found: FirstSeen) -> None:
    known = {one.id for one in observed()}
    names = [log.id for run in found.runs for log in run.logs]
    names += [name for run in found.runs for name in run.not_predicted]
    assert set(names) <= known
    assert len(names) == len(set(names))


def test_the_lead_counts_complete_logs_that_were_found_engine_by_engine(found: FirstSeen) -> None:
    """By an arithmetic of its own: numpy's quantiles over the records."""
    told = " ".join(errors_at_first_sight.leads(found)).removesuffix(".")
    for family, label in (("vllm", "vLLM"), ("sglang", "SGLang")):
        logs = [
            log
            for log in found.complete
            if (log.rules or "").startswith(f"{family} ") and not log.id.startswith("own-")
        ]
        running = [log for log in logs if log.starts_observed is not False]
        sizes = [abs(log.error) for log in running if log.error is not None]
        assert len(running) < len(logs) or family == "sglang"
        assert f"for {len(sizes)} {label} logs with known flags before using any of them" in told
        assert (
            f"The median error was {np.median(sizes):.1%}; the 90th percentile was {np.quantile(sizes, 0.9):.1%}."
            in told
        )
        inside = [bool(log.covered) for log in running if log.covered is not None or log.error == -1.0]
        alone = [log for log in running if log.covered is not None and log.error is None]
        # A pool that was predicted as nothing has an error and no band, and counts as outside: one number of logs.
        assert len(inside) == len(sizes) + len(alone)
        these = "" if alone else "these "
        assert f"for {sum(inside)} of {these}{len(inside)} logs ({sum(inside) / len(inside):.1%})" in told
        assert (
            f"The {len(inside)} are these {len(sizes)} and {len(alone)} more for which only the band" in told
        ) == bool(alone)
        # Where what other processes hold decides, no start was predicted.
        refused = [log for log in logs if log.starts_observed is False and log.starts_predicted is not None]
        right = sum(not log.starts_predicted for log in refused)
        every = f"All {right} servers that failed to start were predicted to fail"
        assert (
            every if right == len(refused) else f"{len(refused)} servers that failed to start, {right} were"
        ) in told
        known = LeftOut.read(data_dir())
        assert known is not None
        today = known.summary if family == "vllm" else known.others[family].bands["plain"]
        assert today.first_sight is not None
        few = sum(inside) < 0.8 * len(inside)
        assert few == ("We have since widened the bands." in details(family, found))
        assert today.first_sight.coverage > (sum(inside) / len(inside) if few else 0.8)


def test_the_picture_has_every_found_log_with_tokens_and_names_the_worst(found: FirstSeen) -> None:
    logs = {log.id: log for run in found.runs for log in run.logs if log.quantity == "tokens"}
    printed = {one.id: one.printed.kv_tokens for one in observed()}
    want = sorted(
        (log.error, printed[name])
        for name, log in logs.items()
        if not name.startswith("own-") and printed[name]
    )
    request = errors_at_first_sight.picture(found, evidence_page.of(open_catalog()))
    marks = request.data.marks
    empty = [tokens for error, tokens in want if error == -1]
    want = [one for one in want if one[0] > -1]
    assert request.data.empty == len(empty)
    assert len(marks) == len(want) > 200
    assert sorted(mark.printed for mark in marks) == sorted(tokens for _, tokens in want)
    off = sorted(round(mark.predicted / mark.printed - 1, 2) for mark in marks)
    assert off == pytest.approx([round(error, 2) for error, _ in want], abs=0.011)
    worst = [mark.name for mark in marks[-request.data.named :]]
    assert any("(9 × the log)" in name for name in worst), worst
    spec = specification(request, validate=True)
    assert len(spec["layer"]) == 2 + 2 * request.data.named
    made = evidence_page.page(open_catalog(), {request.digest: Drawing("<svg></svg>", "{}")})
    # The scatter stands behind one sentence, before the errors in words.
    assert made.lead.count("</p>", 0, made.lead.index("first-sight-chart")) == 1
    assert made.lead.index("first-sight-chart") < made.lead.index("<li>We predicted")
    assert (
        f"{len(empty)} other log{'s are' if len(empty) != 1 else ' is'} not plotted, because the prediction left no memory"
        in made.lead
    )
    without = evidence_page.page(open_catalog())
    assert "first-sight-chart" not in without.lead + without.sections[0].html


def test_starts_of_our_own_are_those_that_were_not_found() -> None:
    own = {one.id for one in observed() if one.origin.kind.startswith("own measurement")}
    assert own == {one.id for one in observed() if one.id.startswith("own-")}


def test_pages_command_and_json_have_the_figure_of_the_records(
    found: FirstSeen, capsys: pytest.CaptureFixture[str]
) -> None:
    said = sentence("vllm")
    catalog = open_catalog()
    assert said in " ".join(errors_at_first_sight.leads(found))
    assert confirmed(catalog, catalog.engine("vllm-0.11")) == said
    # One line with the same figures stands over it.
    figures = first_sight_of("vllm")
    line = expected_error(catalog, catalog.engine("vllm-0.11"))
    assert line.startswith(
        "Across the logs of all GPUs and models, half of our predictions of the KV cache size in tokens were within ±"
    )
    assert re.findall(r"[\d.]+%", line) == [f"{figures.median:.1%}", f"{figures.p90:.1%}"]
    assert all(one in said for one in re.findall(r"[\d.]+%", line))
    assert under(catalog, catalog.engine("vllm"), catalog.accelerator("mi455x"))["expected"] == ""
    asked = ["estimate", "llama-3.1-8b", "--gpu", "H100", "--context", "8K"]
    assert main(asked) == 0
    assert said in capsys.readouterr().out
    assert main([*asked, "--format", "json"]) == 0
    seen = json.loads(capsys.readouterr().out)["first_sight"]
    assert f"median error was {seen['median']:.1%}; the 90th percentile was {seen['p90']:.1%}." in said
    assert main([*asked, "--engine", "tensorrt-llm", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_sight"] is None


def test_the_figure_of_sources_left_out_stands_on_the_evidence_page_alone(repository: Path) -> None:
    """It is of rules that were written with these logs in view, and no answer may state it as its error."""
    reading = [
        path.relative_to(repository).as_posix()
        for path in (repository / "kvreport").rglob("*.py")
        if "LeftOut.read(" in path.read_text("utf-8")
    ]
    assert reading == ["kvreport/site/pages/evidence_page.py"]


def test_an_accelerator_that_no_log_is_of_says_so() -> None:
    catalog = open_catalog()
    engine = catalog.engine("vllm")
    assert confirmed_on(catalog, engine, catalog.accelerator("mi455x")) == SENTENCES["no_log"]
    assert confirmed_on(catalog, engine, catalog.accelerator("H100")) == sentence("vllm")


def test_nothing_is_said_without_complete_logs() -> None:
    log = FirstSeenLog(id="a", complete=False, error=0.1)
    run = Run(recorded="2026-11-22", revision="a", logs=(log,))
    assert errors_at_first_sight.leads(FirstSeen(runs=(run,))) == []


def test_the_first_table_has_the_newest_day_first_and_counts_every_log(found: FirstSeen) -> None:
    table = errors_at_first_sight.tables(found, Validation((), (), ()))[0]
    names = [row.head.text for row in table.rows]
    days = [name[:10] for name in names if name.startswith("20")]
    assert days == sorted(days, reverse=True)
    assert len(set(names)) == len(names)
    logs = [log for run in found.runs for log in run.logs]
    for beginning, of in (("all days", False), ("20", False), ("our own servers", True)):
        counts = [row.cells[0].value for row in table.rows if row.head.text.startswith(beginning)]
        kept = [log for log in logs if log.id.startswith("own-") is of]
        assert sum(int(count or 0) for count in counts) == len(errors_of(kept))


WORSE_BY = 0.005
"""Half a percentage point by which a constant that was fitted again may move a log."""


def test_no_log_is_missed_by_more_than_at_first_sight_unless_the_record_says_why(found: FirstSeen) -> None:
    """A rule that is changed for one log may not spoil another unseen (``record_first_sight.py --worse``)."""
    cases = {case.observation.id: case for case in evidence_page.of(open_catalog()).cases}
    judged, worse = 0, []
    for log in (one for run in found.runs for one in run.logs if one.starts_observed is not False):
        errors = {one.quantity: one.error for one in cases[log.id].comparisons}
        now = errors.get(log.quantity or "")
        if log.error is None or now is None:
            continue
        judged += 1
        allowed = max(abs(log.error), abs(log.second.error) if log.second else 0.0)
        if abs(now) > allowed + WORSE_BY:
            worse.append(f"{log.id}: {log.error:+.4f} at first sight, {now:+.4f} now")
    assert judged > 230
    assert not worse, worse


def test_a_catalog_without_the_file_has_none(tmp_path: Path) -> None:
    assert FirstSeen.read(tmp_path) is None


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "first_seen.yaml").write_text("schema_version: 1\nruns: 3\n")
    with pytest.raises(CatalogError):
        FirstSeen.read(tmp_path)
