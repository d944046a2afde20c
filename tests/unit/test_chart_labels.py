"""Names in the chart of all models stand apart from each other and, where there is room, from the points."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import log2

import pytest

from kvreport import plot
from kvreport.site.kit import charts
from kvreport.site.kit.boundary_plot import PlotData, PlotLine, positions
from kvreport.site.kit.charts import Landscape, Mark


def test_a_name_goes_where_no_point_is() -> None:
    crowd = [Mark(f"{n}", 2.0 - n / 200, 16.0 + n, "a") for n in range(1, 9)]
    most = Mark("largest", 4.0, 16.0, "a")
    corner = Mark("corner", 0.25, 1.0, "a")
    top = Mark("top", 1.0, 256.0, "a")
    # a row of marks left above and another right above the largest one
    row = [Mark(f"r{n}", 4.0 * 2 ** (-n / 20), 16.8, "a") for n in range(1, 12)]
    places = charts.label_places(Landscape((*crowd, *row, corner, top, most), ("a",)))
    align, _, dy = places["largest"]
    assert align == "right"  # to the right the drawing ends
    assert dy > 0  # above are marks


def test_names_of_close_marks_do_not_cover_each_other() -> None:
    marks = (Mark("first of its kind", 8.0, 64.0, "a"), Mark("other of its kind", 8.2, 64.0, "b"))
    rest = (Mark("low", 0.25, 1.0, "a"), Mark("high", 64.0, 1024.0, "c"))
    places = charts.label_places(Landscape((*marks, *rest), ("a", "b", "c")))
    assert places["first of its kind"] != places["other of its kind"]


def falling(first: int, name: str) -> PlotLine:
    return PlotLine(name, tuple((1024 << n, max(first >> n, 1)) for n in range(8)))


def test_the_figures_of_the_chosen_case_stand_where_no_line_is() -> None:
    chosen = (8192, 64)
    alone = PlotData((falling(512, "H100"),), chosen=chosen)
    assert positions(alone)["chosen"]["anchor"] == "start"
    close = PlotData(
        (falling(512, "H100"), falling(576, "H200"), falling(640, "B200"), falling(704, "MI300X")),
        chosen=chosen,
    )
    found = positions(close)["chosen"]
    assert found["anchor"] == "end"
    assert found["base"] > found["y"]  # left below: the others pass above


@pytest.mark.parametrize("size", [(), (plot.PLOT_WIDTH_NARROW, plot.PLOT_HEIGHT_NARROW)])
def test_the_figures_of_the_chosen_case_cross_no_line_where_lines_pass_on_every_side(size):
    """Of five lines close together, the figures of the middle one stood on the one below."""
    close = PlotData(
        tuple(falling(n, str(n)) for n in (512, 200, 300, 800, 1200, 440)),
        ceiling=falling(640, "").points,
        chosen=(8192, 64),
    )
    drawn = positions(close, *size)
    chosen = drawn["chosen"]
    width = plot.CHOSEN_WIDTH * len(chosen["text"])
    left = chosen["left"] - (width if chosen["anchor"] == "end" else 0)
    box = (left, chosen["base"] - 13, width, plot.CHOSEN_HEIGHT)
    paths = [path for _, path in drawn["lines"]] + [drawn["ceiling"]]
    points = [[tuple(map(float, one.split())) for one in path[1:].split("L")] for path in paths]
    assert not any(plot.overlaps(*a, *b, *box) for path in points for a, b in pairwise(path))
    assert drawn["left"] <= left < left + width <= drawn["right"]
    assert chosen["leader"]  # a line leads to them, for they are not next to their point


def test_pieces_of_lines_cross_in_their_middles():
    assert plot.crosses(0, 0, 10, 10, 0, 10, 10, 0)
    assert not plot.crosses(0, 0, 10, 10, 0, 5, 4, 5)
    assert not plot.crosses(0, 0, 10, 10, 5, 5, 10, 0)  # it begins on the other
    assert not plot.crosses(0, 0, 10, 10, 0, 1, 10, 11)


def test_a_piece_of_a_line_is_over_a_box_only_where_it_passes_through() -> None:
    box = (10.0, 10.0, 20.0, 10.0)
    assert plot.overlaps(0, 0, 40, 40, *box)
    assert plot.overlaps(12, 15, 14, 15, *box)
    assert not plot.overlaps(0, 30, 40, 30, *box)
    assert not plot.overlaps(0, 5, 40, 5, *box)
    assert not plot.overlaps(0, 15, 9, 15, *box)
    assert not plot.overlaps(0, 40, 12, 19, *(15.0, 10.0, 20.0, 10.0))


def test_names_of_logs_stand_on_lines_of_their_own() -> None:
    """Two logs of about the same error had their names on top of each other at the axis."""
    long = "DeepSeek-V4-Flash, H200, 143,771 MiB, eight"
    worst = [(long, 7_100, 396_000), (long, 4_000, 186_000), (long, 7_000, 389_000)]
    marks = [charts.Seen("even", 1 << n, 1 << n, "inside") for n in range(11, 28)]
    marks += [charts.Seen(name, printed, predicted, "inside") for name, printed, predicted in worst]
    drawn = charts.first_sights(charts.FirstSights(tuple(marks), ("inside",), len(worst)), charts.Shown())
    moved = [layer["mark"]["dy"] for layer in drawn.to_dict(validate=False)["layer"] if "dy" in layer["mark"]]
    height = charts.HEIGHT + 90
    stand = [
        dy - height * (log2(predicted) - 11) / 16
        for dy, (_, _, predicted) in zip(moved[::2], worst, strict=True)
    ]
    assert min(abs(a - b) for a, b in combinations(stand, 2)) >= 11


def test_of_lines_that_end_as_low_the_name_of_the_one_that_reaches_farther_stands_higher() -> None:
    """2 × H100 was named above B200 and MI300X, whose lines lie above its own."""
    lines = tuple(
        PlotLine(name, tuple((1 << n, 1 << max(end - n, 0)) for n in range(10, end + 1)))
        for name, end in (("short", 13), ("long", 17), ("middle", 15))
    )
    stand = {one["name"]: one["y"] for one in positions(PlotData(lines))["labels"]}
    assert stand["long"] < stand["middle"] < stand["short"]
