"""The sentence over a boundary chart."""

from __future__ import annotations

from kvreport.site.kit.boundary_plot import PlotData, PlotLine, finding

MANY = PlotLine("B200", ((1024, 1200), (8192, 145), (16384, 70)))
FEW = PlotLine("L40S", ((1024, 150), (8192, 19)))
SHORT = PlotLine("L4", ((1024, 1),))


def test_the_fewest_and_the_most_and_what_has_none() -> None:
    assert (
        finding(PlotData((FEW, MANY, SHORT)))
        == "At 8K tokens: from 19 requests (L40S) to 145 (B200); none: L4"
    )
    assert (
        finding(PlotData((MANY, FEW, SHORT), chosen=(1024, 1200)))
        == "At 1K tokens: from 1 request (L4) to 1,200 (B200)"
    )


def test_a_context_between_two_points_is_told_by_the_shorter() -> None:
    assert (
        finding(PlotData((MANY, FEW), chosen=(20_000, 57))) == "At 16K tokens: 70 requests (B200); none: L40S"
    )
    assert (
        finding(PlotData((MANY, FEW), chosen=(512, 300)))
        == "At 1K tokens: from 150 requests (L40S) to 1,200 (B200)"
    )


def test_equal_lines_and_one_line() -> None:
    assert finding(PlotData((FEW, PlotLine("L40", FEW.points)))) == "At 8K tokens: 19 requests each"
    assert finding(PlotData((FEW,))) == ""
    assert finding(PlotData((PlotLine("L40", ()), PlotLine("L4", ())))) == ""
