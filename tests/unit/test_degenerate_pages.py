"""A model that the engine does not run: a sentence stands where a table would be empty."""

from __future__ import annotations

from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render

URI = "models/a--b/"


def test_a_table_of_weights_without_a_column_is_a_sentence() -> None:
    empty = Table("No deployment on H100 runs this model", Column("Weight format"), (), ())
    shown = render("model/weights.html", URI, {"weights": empty})
    assert "<table" not in shown
    assert "<p>No deployment on H100 runs this model.</p>" in shown
    full = Table(
        "Weights", Column("Weight format"), (Column("1 GPU", "GiB"),), (Row(Cell("FP8"), (Cell("1.00"),)),)
    )
    assert "<table" in render("model/weights.html", URI, {"weights": full})
