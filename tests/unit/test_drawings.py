"""Charts: their specification, and drawings that are made while others are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvreport.site.kit import drawing
from kvreport.site.kit.charts import Boundary, Landscape, Line, Mark, Request, specification

POINTS = tuple((1 << n, 1 << (20 - n)) for n in range(10, 18))
LINES = tuple(Line(f"{n} GPUs", POINTS) for n in range(1, 7))
MARKS = tuple(Mark(f"model {n}", 2.0**n, 4.0 * n, "full" if n % 2 else "latent") for n in range(1, 9))

EVERY = [
    Boundary(LINES[:1]),
    Boundary(LINES, ceiling=POINTS, low=POINTS, high=POINTS, limit_tokens=1 << 17),
    Boundary(LINES[:2], limit_tokens=1 << 16),
    Landscape(MARKS, ("full", "latent")),
]


def _requests(number: int) -> list[Request]:
    return [Request("boundary", Boundary(LINES[: n + 1])) for n in range(number)]


@pytest.mark.parametrize("data", EVERY)
def test_every_form_of_chart_passes_altairs_checks_and_is_the_same_without(
    data: Boundary | Landscape,
) -> None:
    request = Request(type(data).__name__.lower(), data)
    assert specification(request) == specification(request, validate=True)


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
