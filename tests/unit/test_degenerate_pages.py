"""A model that the engine does not run: a sentence stands where a table would be empty."""

from __future__ import annotations

from kvreport.site.kit.reason_groups import Member, ReasonGroup
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.pages.model.headline import refused

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


def test_long_lists_of_names_are_folded_and_short_ones_are_not() -> None:
    def shown(number: int) -> str:
        members = tuple(Member(f"on-{n}", f"GPU {n}", f"gpus/{n}/") for n in range(number))
        return render("_groups.html", URI, {"groups": (ReasonGroup("No class for it", members),)})

    assert "<details" not in shown(12)
    folded = shown(97)
    assert "Show all 97" in folded
    assert folded.count('<span id="on-') == 97


def test_a_refusal_names_the_engine_once() -> None:
    reason = "vLLM 0.33 does not list RwkvForCausalLM among the classes it runs"
    told = refused("RWKV-5 World 3B", "vLLM 0.33", reason)
    assert told.count("vLLM 0.33") == 1
    assert "vLLM 0.33: it does not list RwkvForCausalLM" in told
    assert refused("M", "vLLM 0.33", "No class is known.").endswith("with vLLM 0.33: No class is known.")
