"""The sentence over a boundary chart."""

from __future__ import annotations

from kvreport.site.kit.boundary_plot import PlotData, PlotLine, finding

MANY = PlotLine("B200", ((1024, 1200), (8192, 145), (16384, 70)))
FEW = PlotLine("L40S", ((1024, 150), (8192, 19)))
SHORT = PlotLine("L4", ((1024, 1),))


def test_the_fewest_and_the_most_and_what_has_none() -> None:
    assert (
        finding(PlotData((FEW, MANY, SHORT)))
        == "L40S serves 19 requests of 8K tokens, B200 145; L4 serves none"
    )
    assert (
        finding(PlotData((MANY, FEW, SHORT), chosen=(1024, 1200)))
        == "L4 serves 1 request of 1K tokens, B200 1,200"
    )


def test_a_context_between_two_points_is_told_by_the_shorter() -> None:
    assert (
        finding(PlotData((MANY, FEW), chosen=(20_000, 57)))
        == "B200 serves 70 requests of 16K tokens; L40S serves none"
    )
    assert (
        finding(PlotData((MANY, FEW), chosen=(512, 300)))
        == "L40S serves 150 requests of 1K tokens, B200 1,200"
    )


def test_equal_lines_and_one_line() -> None:
    assert finding(PlotData((FEW, PlotLine("L40", FEW.points)))) == "Each serves 19 requests of 8K tokens"
    assert finding(PlotData((FEW,))) == ""
    assert finding(PlotData((PlotLine("L40", ()), PlotLine("L4", ())))) == ""


def test_several_devices_serve() -> None:
    several = (PlotLine("2 × L40S", FEW.points), MANY)
    assert finding(PlotData(several)) == "2 × L40S serve 19 requests of 8K tokens, B200 145"
    assert finding(PlotData((FEW, PlotLine("L4", ()), PlotLine("T4", ())))) == (
        "L40S serves 19 requests of 8K tokens; L4 and T4 serve none"
    )
