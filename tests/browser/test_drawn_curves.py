"""Drawings in a browser: on a phone no text covers another one, and a chart says the same when it is drawn again."""

from __future__ import annotations

import random
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import pytest
from visits import Visit

from kvreport.site.kit import figures
from kvreport.site.kit.boundary_plot import PlotData, PlotLine, finding

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


def test_a_boundary_chart_says_the_same_when_it_is_drawn_again(browser, address):
    draw = random.Random("findings")  # noqa: S311 - a spread of cases, no secret
    cases = [
        PlotData(
            tuple(
                PlotLine(
                    f"GPU {n}",
                    tuple((1024 << k, draw.choice((1, 2, 7, 1300))) for k in range(draw.randint(0, 6))),
                )
                for n in range(draw.randint(1, 4))
            ),
            chosen=draw.choice((None, (4096, 1), (5000, 2), (512, 3))),
        )
        for _ in range(60)
    ]
    visit = Visit(browser, address)
    page = visit.go("")
    said = page.evaluate(
        """async (cases) => {
          for (const name of ["kernel", "chart"]) await kvreport.script(`kv-${name}.js`);
          return cases.map((one) => kvreport.finding(one.chosen ? one : { ...one, chosen: undefined }));
        }""",
        [asdict(case) for case in cases],
    )
    printed = page.locator(".kv-finding").first.text_content()
    visit.context.close()
    assert said == [finding(case) for case in cases]
    assert len(set(said)) > 20
    assert printed.startswith("At 8K tokens per request, ")
