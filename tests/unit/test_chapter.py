import itertools

import pandas as pd
import pytest
from bs4 import BeautifulSoup, Tag

from kvreport.book import drawings
from kvreport.book.chapter import Html, bars, claim, curves, fold, formula, quantities, room, table
from kvreport.errors import InputError
from kvreport.site.kit import figures


def test_a_claim_that_does_not_hold_stops_the_chapter():
    claim(131_072, 131_072)
    claim(101.0, 100, within=0.02)
    with pytest.raises(AssertionError, match=r"says 131,072.*gives 132,382"):
        claim(132_382, 131_072)
    with pytest.raises(AssertionError):
        claim(101.0, 100)


def test_a_table_has_row_heads_a_caption_and_one_width_of_decimals_in_a_column():
    made = table("cap", ["name", "n", "size"], [["a", 1234, 0.5], ["b", 5, 12.25]], mark=1)
    soup = BeautifulSoup(made.html, "html.parser")
    assert soup.caption.text == "cap"
    assert [th["scope"] for th in soup.thead.find_all("th")] == ["col"] * 3
    assert [[c.text for c in row.find_all(["th", "td"])] for row in soup.tbody.find_all("tr")] == [
        ["a", "1,234", "0.50"],
        ["b", "5", "12.25"],
    ]
    assert "kv-marked" in str(soup.tbody.find_all("tr")[1])


def test_a_table_of_a_data_frame_has_its_index_as_row_heads() -> None:
    frame = pd.DataFrame({"n": [1234, 5], "size": [0.5, 12.25]}, index=["a", "b"])
    rows = [["a", 1234, 0.5], ["b", 5, 12.25]]
    head = ["name", "n", "size"]
    assert table("cap", head, frame).html == table("cap", head, rows).html


def test_texts_are_escaped_everywhere():
    bad = "<script>x</script>"
    for html in (
        table(bad, [bad, bad], [[bad, bad]]).html,
        formula(bad).html,
        fold(bad, bad).html,
        bars(bad, {bad: {"weights": (bad, 2**30)}}, limit_bytes=2**30, limit_name=bad).html,
        curves(bad, x=[1, 2], lines={bad: [1, 2], "b": [2, 3]}, x_title=bad, y_title=bad).html,
    ):
        assert "<script>" not in html


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("a  =  b × c", "<mtd><mi>a</mi></mtd><mtd><mo>=</mo></mtd>"),
        ("    + scales", "<mtd></mtd><mtd><mo>+</mo></mtd><mtd><mi>scales</mi></mtd>"),
        ("n  =  (a − 1) / 2", '<mfrac><mrow><mi>a</mi><mo form="infix">−</mo><mn>1</mn></mrow><mn>2</mn></mfrac>'),
        ("n  =  max(1, a / b)", "<mfrac><mi>a</mi><mi>b</mi></mfrac><mo>)</mo>"),
        ("n  =  1,024 bytes   a remark", "<mtd><mi>1,024 bytes</mi></mtd><mtd><mtext>a remark</mtext></mtd>"),
    ],
)  # fmt: skip
def test_a_formula_is_typeset_and_keeps_its_text(line, made):
    assert made in formula(line).html
    assert str(formula(line, "b  =  <1>")) == f"{line}\nb  =  <1>".lstrip("\n")


def test_a_model_that_leaves_no_room_says_so():
    q = quantities()
    assert room(q, "llama-3.1-8b", "H100") == q.memory("H100") - q.weights("llama-3.1-8b")
    with pytest.raises(InputError, match=r"deepseek-v3 takes 626\.9 GiB and 2 x H100 has 158\.2 GiB"):
        room(q, "deepseek-v3", "H100", devices=2)


def test_pieces_add_up():
    assert (Html("a") + Html("b")).html == "ab"
    assert (
        fold("s", Html("<b>x</b>"))._repr_html_()
        == '<details class="kv-fold"><summary>s</summary><b>x</b></details>'
    )


def test_a_bar_is_as_long_as_its_bytes():
    made = bars("t", {"one": {"weights": ("weights", 30 * 2**30), "cache": ("cache", 10 * 2**30)}})
    for svg in BeautifulSoup(made.html, "html.parser").find_all("svg", role="img"):
        widths = [float(r["width"]) for r in svg.find_all("rect")]
        assert widths[0] / widths[1] == pytest.approx(3, rel=0.01)


def places(svg: Tag) -> list[tuple[float, float]]:
    """Where each text of a drawing begins and ends across, at 13 px letters."""
    found = []
    for text in svg.find_all("text"):
        x, wide = float(text["x"]), 6.6 * len(text.get_text())
        left = {"end": x - wide, "middle": x - wide / 2}.get(text.get("text-anchor", ""), x)
        found.append((left, left + wide))
    return found


@pytest.mark.parametrize(
    "made",
    [
        bars("t", {f"{n} x 128K": {"cache": ("KV cache", n * 2**30)} for n in (1, 40, 70)}, limit_bytes=80 * 2**30, limit_name="usable by a process"),
        drawings.gpu_layout("t", [(f"GPU {n}", [("experts", "experts 1/8", 0.6)]) for n in range(8)], 1),
    ],
    ids=["bars", "GPUs"],
)  # fmt: skip
def test_a_phone_shows_a_drawing_of_its_own_width(made):
    """It showed the left half of bars, as if every one were full."""
    wide, narrow = BeautifulSoup(made.html, "html.parser").find_all("svg", role="img")
    assert narrow["display"] == "none"  # a notebook has no style sheet
    assert narrow["aria-label"]
    across = float(narrow["viewbox"].split()[2])
    assert across <= 350
    assert all(left >= -1 and right <= across for left, right in places(narrow))
    assert all(float(r["x"]) + float(r["width"]) <= across for r in narrow.find_all("rect"))
    assert sorted(t.get_text() for t in narrow.find_all("text")) == sorted(
        t.get_text() for t in wide.find_all("text")
    )


def test_curves_on_a_phone_have_room_for_their_numbers_and_titles():
    """A number of five decimals stood on the title of its axis, and the title was cut."""
    made = curves(
        "t",
        x=[512 << n for n in range(9)],
        lines={"users": [2.0 ** (n - 6) for n in range(9)]},
        x_title="Context (tokens)",
        y_title="Cache of one request (GiB)",
        y_log=True,
    )
    wide, narrow = BeautifulSoup(made.html, "html.parser").find_all("svg", role="img")
    across = float(narrow["viewbox"].split()[2])
    assert narrow["display"] == "none"
    assert all(left >= -1 and right <= across for left, right in places(narrow))
    for svg in (wide, narrow):
        shown = [text.get_text() for text in svg.find_all("text")]
        assert {"1/64", "1/16", "1", "4", "Cache of one request (GiB)"} <= set(shown)
        assert "0.0156" not in "".join(shown)


def test_a_curve_in_powers_of_two_is_straight():
    x = [1024, 2048, 4096, 8192]
    made = curves("t", x=x, lines={"users": [64, 32, 16, 8]}, x_title="x", y_title="y", y_log=True)
    soup = BeautifulSoup(made.html, "html.parser")
    points = [tuple(map(float, p.split(","))) for p in soup.polyline["points"].split()]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(points)]
    assert steps == [pytest.approx(steps[0], abs=0.11)] * 3
    assert steps[0][1] > 0  # down the page


def test_large_figures_of_an_axis_are_written_out():
    made = curves(
        "t", x=[8_000, 12_500, 32_000], lines={"a": [3, 2, 1]}, x_title="x", y_title="y", x_tokens=False
    )
    assert "12,500" in made.html
    assert "e+0" not in made.html


def test_a_figure_carries_its_data_and_a_description():
    made = curves(
        "Users by length.", x=[1024, 2048], lines={"a": [2, 1], "b": [4, None]}, x_title="x", y_title="y"
    )
    soup = BeautifulSoup(made.html, "html.parser")
    assert soup.svg["aria-label"] == "Users by length."
    assert soup.figcaption.text == "Users by length."
    cells = [[c.text for c in row.find_all(["th", "td"])] for row in soup.tbody.find_all("tr")]
    assert cells == [["1K", "2", "4"], ["2K", "1", "–"]]


def test_figures_have_no_colour_of_their_own():
    assert all(colour.startswith("var(--kv-") for colour in (*figures.COLOURS.values(), *figures.LINES))
