"""The pieces of the chapters: what they refuse, what they escape, what they compute."""

from __future__ import annotations

import json
import re

import pytest
from bs4 import BeautifulSoup

from kvreport.accounting import kernel, lessons
from kvreport.book import drawings
from kvreport.book.instruments import Instrument, Output, Slider, evaluate, growth_grid, instrument, shown
from kvreport.book.lab import choose, exercise, guess, item, quiz, right, takeaway, wrong
from kvreport.publish import browser


def soup(html: str) -> BeautifulSoup:
    return BeautifulSoup(html, "html.parser")


def test_a_prediction_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match="outside"):
        guess("How many?", 7, unit="requests", low=0, high=5, why="So.")


def test_a_mistake_that_leads_to_the_right_answer_is_not_called_wrong():
    """Rounding 2 x 2.2 down gives twice 2 for one model, and one more for another."""
    page = soup(
        exercise("?", 4, unit="requests", solution="s", within=0, traps={4.0: "doubled", 2.0: "half"}).html
    )
    assert json.loads(page.section["data-traps"]) == [[2.0, "half"]]
    assert "doubled" not in page.get_text()


@pytest.mark.parametrize(
    "options", [(right("a", "b"),), (wrong("a", "b"), wrong("c", "d")), (right("a", "b"),) * 2]
)
def test_a_choice_has_exactly_one_right_answer(options):
    with pytest.raises(ValueError, match="one of them right"):
        choose("Which?", *options)


def test_text_is_escaped_and_marked_up():
    page = soup(guess("Is `a<b` **less**?", 1, unit="<x>", low=0, high=2, why="See [b](02-b.py).").html)
    assert page.code.get_text() == "a<b"
    assert page.section["data-unit"] == "<x>"
    assert page.a["href"] == "02-b.py"
    assert page.find("x") is None
    assert "<script" not in exercise("<script>", 1, unit="x", solution="</script>", traps={2: "<b>"}).html


def test_a_percentage_has_no_space_before_its_sign():
    asked = exercise("?", 50, unit="%", solution="s", traps={75: "t"}).html
    assert "<strong>50%.</strong>" in asked
    assert "<li>75%: t</li>" in asked
    assert "<strong>57%.</strong>" in guess("?", 57, unit="%", low=0, high=100, why="w").html
    assert "<strong>2 requests.</strong>" in guess("?", 2, unit="requests", low=0, high=9, why="w").html


def test_a_quiz_names_every_question_once():
    page = soup(
        quiz(item("A?", right("x", "y"), wrong("z", "w")), item("B?", wrong("x", "y"), right("z", "w"))).html
    )
    names = [one["data-kv-choice"] for one in page.select(".kv-choice")]
    assert len(set(names)) == 2
    assert [len(one.select("[data-right]")) for one in page.select(".kv-options")] == [1, 1]
    assert [one.strong.get_text() for one in page.select("details")] == ["A.", "B."]


def test_traps_are_told_without_their_marks():
    traps = json.loads(
        soup(exercise("?", 1, unit="x", solution="s", traps={2: "a **b**"}).html).section["data-traps"]
    )
    assert traps == [[2, "a b"]]
    assert "Takeaway" in takeaway("x").html


def test_an_instrument_computes_its_table():
    one = Instrument(
        "t",
        (Slider("n", "Requests", (1, 2, 4)),),
        (Output("x", "", "product", ("n", "each")), Output("y", "Bytes", "total", ("x", 1), "KiB.0")),
        {"each": 1023},
        rows=((0,), (2,)),
    )
    assert evaluate(one, {"n": 4}) == {"n": 4, "x": 4092, "y": 4093}
    page = soup(instrument(one).html)
    assert [cell.get_text() for cell in page.select("tbody th, tbody td")] == ["1", "1 KiB", "4", "4 KiB"]
    spec = json.loads(page.section["data-spec"])
    assert spec["outputs"][0] == ["x", "", "product", ["n", "each"], "count"]


def test_every_function_of_an_instrument_is_translated():
    script = browser.lessons_script()
    for name in lessons.__all__:
        assert getattr(lessons, name) is getattr(kernel, name)
        assert re.search(rf"\b{browser.camel(name)}\b", script)
    assert "function reservedTokens(tokens, block)" in script


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(1.6, "count", "1"), (0.345, "%.1", "34.5%"), (0.0123, "ms.1", "12.3 ms"), (3, "GPUs.0", "3 GPUs")],
)
def test_values_are_shown_with_their_unit(value, form, text):
    assert shown(value, form) == text


def test_the_growth_grid_marks_where_memory_ends():
    page = soup(
        growth_grid("t", contexts=[1, 2], requests=[1, 2], constant=0, terms=[(8, 1, 0)], room=16).html
    )
    cells = [["kv-no" in cell["class"] for cell in row.select("td")] for row in page.select("tbody tr")]
    assert cells == [[False, False], [False, True]]


@pytest.mark.parametrize(
    "drawn",
    [
        drawings.growing_row(["a", "b"]),
        drawings.heads_by_layers(32, 8, 128),
        drawings.sharing(8, [("MHA", 8), ("MLA", 0)]),
        drawings.paged_blocks([5, 9], 4, 16),
        drawings.phases(2048, 20, 30.0, 5.0),
        drawings.gpu_layout("t", [("GPU 0", [("weights", "w", 0.5), ("cache", "c", 0.4)])], 1),
    ],
)
def test_a_drawing_has_a_title_a_description_and_no_color_of_its_own(drawn):
    page = soup(drawn.html)
    assert page.svg["role"] == "img"
    assert page.svg["aria-labelledby"].split() == [page.title["id"], page.desc["id"]]
    assert len(page.desc.get_text()) >= 20
    assert not re.search(r'(?:fill|stroke)="(?!var\(|none)', drawn.html)


def test_a_layout_of_cells_tells_who_holds_what_and_how_often():
    copied = drawings.layout_cells("TP2", "Copies.", 2, 2, [["0 1"] * 2] * 2).html
    assert "GPU 0–1" in copied
    assert "GPU 0 4 of 4 parts, GPU 1 4 of 4 parts; each part is stored 2 times" in copied
    divided = drawings.layout_cells("PP2", "Divides.", 2, 2, [["0", "0"], ["1", "1"]]).html
    assert "GPU 0 2 of 4 parts, GPU 1 2 of 4 parts; nothing is copied" in divided
    assert divided.count("var(--kv-cache)") == divided.count("var(--kv-state)") == 2
