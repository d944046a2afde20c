"""Charts and shared cards: what they are made from, and drawings that are made while others are asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvreport.site.kit import drawing, social_cards, templating
from kvreport.site.kit.boundary_plot import PlotData, PlotLine
from kvreport.site.kit.charts import ChartRequest, Landscape, Mark, specification
from kvreport.site.kit.social_cards import SocialCard

POINTS = tuple((1 << n, 1 << (20 - n)) for n in range(10, 18))
LINES = tuple(PlotLine(f"{n} GPUs & more", POINTS) for n in range(1, 7))
MARKS = tuple(Mark(f"model {n}", 2.0**n, 4.0 * n, "full" if n % 2 else "latent") for n in range(1, 9))

EVERY = [
    PlotData(LINES[:1]),
    PlotData(LINES, ceiling=POINTS, low=POINTS, high=POINTS, limit=1 << 17, chosen=POINTS[3]),
    PlotData(LINES[:2], limit=1 << 16),
]


def _requests(number: int) -> list[ChartRequest]:
    return [ChartRequest("landscape", Landscape(MARKS[: n + 2], ("full", "latent"))) for n in range(number)]


def test_a_chart_passes_altairs_checks_and_is_the_same_without() -> None:
    request = ChartRequest("landscape", Landscape(MARKS, ("full", "latent")))
    assert specification(request) == specification(request, validate=True)


@pytest.mark.parametrize("data", EVERY)
def test_a_card_is_the_pages_chart_under_its_headline(data: PlotData, tmp_path: Path) -> None:
    card = SocialCard("a/b <c>", "64 requests fit.", data)
    svg = card.svg()
    assert "class=" not in svg
    assert "var(" not in svg
    assert "a/b &lt;c&gt;" in svg
    for line in data.lines:
        assert line.name.replace("&", "&amp;") in svg
    assert ("16K" in svg, "model limit" in svg) == (True, data.limit is not None)
    dashes = re.findall(r'stroke-dasharray="([^"]+)" stroke-width="2.4"', svg)
    assert len(set(dashes)) == len(data.lines) - 1
    assert drawing.begin([card], tmp_path)[card.digest].card.startswith(b"\xff\xd8")


def test_cards_are_drawn_with_an_overriding_template_by_other_processes_too(tmp_path: Path) -> None:
    cards = [SocialCard(f"model {n}", "64 requests fit.", EVERY[0]) for n in range(8)]
    as_packaged = drawing.begin(cards, tmp_path).finish()
    (tmp_path / social_cards.TEMPLATE).write_text('<svg><circle cx="300" cy="100" r="80"/></svg>')
    templating.override(tmp_path)
    try:
        overridden = drawing.begin(cards, tmp_path).finish()
    finally:
        templating.override(None)
    assert all(as_packaged[card.digest] != overridden[card.digest] for card in cards)


@pytest.mark.parametrize(
    ("length", "size", "cut"), [(60, 27, False), (90, 21.6, False), (97, 20, False), (200, 20, True)]
)
def test_a_long_conclusion_is_written_smaller_before_it_is_cut(length: int, size: float, cut: bool) -> None:
    svg = SocialCard("a", "x" * length, EVERY[0]).svg()
    written = re.search(r'font-size="([\d.]+)"[^>]*>(x+)(…?)<', svg)
    assert written is not None
    assert float(written[1]) == pytest.approx(size, abs=0.1)
    assert (written[3] == "…") is cut


def test_a_card_takes_its_looks_from_the_style_sheet() -> None:
    styled = social_cards.styled(
        '<path class="kv-line-1 kv-chosen-line" d=""/><text class="kv-tick">1</text>'
    )
    path, text = styled.split("<text")
    assert 'stroke-width="3.4"' in path
    assert f'stroke="{social_cards.light_tokens()["l1"]}"' in path
    assert 'font-size="13px"' in text
    assert "font-family=" in text
    assert social_cards.styled('<g class="kv-no-such"/>') == "<g/>"


def test_a_drawing_is_waited_for_and_the_rest_is_kept_at_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    requests = _requests(3)
    drawings = drawing.begin([*requests, requests[0]], tmp_path, told.append)
    assert len(drawings) == 3
    assert drawings[requests[1].digest].svg.startswith("<svg ")
    assert requests[2].digest in drawings
    with pytest.raises(KeyError):
        drawings["none"]
    assert list(drawings.finish()) == [request.digest for request in requests]
    assert told == ["charts: 0 kept from earlier builds, 3 to draw"]


def test_drawings_that_are_kept_are_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dict(drawing.begin(_requests(2), tmp_path).finish())
    asked: list[int] = []
    monkeypatch.setattr(drawing, "_drawn", lambda missing: asked.append(len(missing)) or iter(()))
    again = drawing.begin(_requests(2), tmp_path)
    assert dict(again) == first
    assert asked == [0]
