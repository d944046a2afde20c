"""A drawing of curves on a phone: no number of its axes covers another one or a title."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from kvreport.site.kit import figures

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_no_text_of_a_narrow_drawing_covers_another(browser):
    style = (Path(__file__).parents[2] / "docs/assets/book.css").read_text(encoding="utf-8")
    drawn = figures.curves(
        figures.Curves(
            "title",
            "context, tokens",
            "cache, MiB",
            (128, 256, 512),
            (("a", (4.0, 8.0, 16.0)),),
            y_log=True,
            x_log=True,
        )
    )
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.set_content(f"<style>{style}</style><main class='md-typeset'>{drawn}</main>")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.kv-drawn text')].map((text) => [text.textContent, text.getBoundingClientRect()])"
        ".map(([text, box]) => [text, box.left, box.top + 0.1 * box.height, box.right, box.bottom - 0.1 * box.height])"
    )
    page.close()
    assert len(boxes) > 5
    for (one, a, b, c, d), (other, e, f, g, h) in combinations(boxes, 2):
        assert a >= g or e >= c or b >= h or f >= d, (one, other)
