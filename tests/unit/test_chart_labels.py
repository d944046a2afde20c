"""Names in the chart of all models stand apart from each other and, where there is room, from the points."""

from __future__ import annotations

from kvreport.site.kit import charts
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
