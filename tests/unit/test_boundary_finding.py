"""The sentence over a boundary chart."""

from __future__ import annotations

from dataclasses import replace

from kvreport.site.kit import charts
from kvreport.site.kit.boundary_plot import PlotData, PlotLine, finding
from kvreport.site.kit.drawing import Drawing
from kvreport.site.kit.elements import Chart
from kvreport.site.kit.tables import Column, Table
from kvreport.site.kit.templating import render
from kvreport.site.pages import errors_at_first_sight, index

MANY = PlotLine("B200", ((1024, 1200), (8192, 145), (16384, 70)))
FEW = PlotLine("L40S", ((1024, 150), (8192, 19)))
SHORT = PlotLine("L4", ((1024, 1),))


def test_the_fewest_and_the_most_and_what_has_none() -> None:
    assert (
        finding(PlotData((FEW, MANY, SHORT)))
        == "At 8K tokens per request, from 19 (L40S) to 145 (B200) requests fit, and none with L4"
    )
    assert (
        finding(PlotData((MANY, FEW, SHORT), chosen=(1024, 1200)))
        == "At 1K tokens per request, from 1 (L4) to 1,200 (B200) requests fit"
    )


def test_a_context_between_two_points_is_told_by_the_shorter() -> None:
    assert (
        finding(PlotData((MANY, FEW), chosen=(20_000, 57)))
        == "At 16K tokens per request, 70 requests fit with B200, and none with L40S"
    )
    assert (
        finding(PlotData((MANY, FEW), chosen=(512, 300)))
        == "At 1K tokens per request, from 150 (L40S) to 1,200 (B200) requests fit"
    )


def test_equal_lines_and_one_line() -> None:
    assert (
        finding(PlotData((FEW, PlotLine("L40", FEW.points))))
        == "At 8K tokens per request, 19 requests fit with each"
    )
    assert finding(PlotData((FEW,))) == ""
    alone = PlotData((PlotLine("one L40", FEW.points), PlotLine("gpt-oss-20b", ())))
    assert (
        finding(alone) == "At 8K tokens per request, 19 requests fit with one L40, and none with gpt-oss-20b"
    )
    assert finding(PlotData((PlotLine("L40", ()), PlotLine("L4", ())))) == ""


def test_several_devices_serve() -> None:
    several = (PlotLine("2 × L40S", FEW.points), MANY)
    assert (
        finding(PlotData(several))
        == "At 8K tokens per request, from 19 (2 × L40S) to 145 (B200) requests fit"
    )
    assert finding(PlotData((FEW, PlotLine("L4", ()), PlotLine("T4", ())))) == (
        "At 8K tokens per request, 19 requests fit with L40S, and none with L4 or T4"
    )


def test_the_picture_of_first_predictions_says_what_it_shows():
    seen = [
        charts.Seen(f"{n}", 1000.0, 1000.0 * (1 + n / 100), errors_at_first_sight.BAND_NAMES[n < 3])
        for n in range(6)
    ]
    said = errors_at_first_sight.finding(charts.FirstSights(tuple(seen), ("inside", "outside"), 3, empty=1))
    assert (
        said
        == "For 7 logs of all engines, we recorded a prediction before the log influenced our rules. Half of these predictions are within 3.0% of the logged value. The 80% band recorded with each prediction contains the logged value for 3 of 7 logs"
    )


def test_the_picture_of_all_models_names_two_of_one_size_with_caches_far_apart():
    marks = [charts.Mark("thrifty", 100.0, 2.0, "a"), charts.Mark("usual", 103.0, 120.0, "b")]
    marks += [charts.Mark("small", 10.0, 0.1, "a"), charts.Mark("large", 1000.0, 400.0, "a")]
    said = index.finding(charts.Landscape(tuple(marks), ("a", "b")))
    assert said == (
        "usual and thrifty have weights of the same size (103 GiB), but a token of usual takes 60 times as much KV cache in the models' default formats"
    )
    assert index.finding(charts.Landscape(tuple(marks[1:]), ("a", "b"))) == ""


def test_a_chart_stands_under_its_finding():
    chart = Chart("c", "Title", "", (), (), "Caption", Table("", Column(""), (), ()), finding="Half are near")
    drawn = {"chart": chart, "drawing": Drawing("<svg></svg>", "{}")}
    page = str(render("_chart.html", "", drawn))
    assert page.index('<p class="kv-finding">Half are near</p>') < page.index("<svg>")
    assert "kv-finding" not in str(render("_chart.html", "", drawn | {"chart": replace(chart, finding="")}))
