"""Pages in states that a visitor brings about, or that last until the theme's script is there: axe finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from visits import Visit, unusable

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize(
    ("uri", "ready"),
    [
        ("traffic/?trace=mooncake-synthetic", "[data-kv-flown=done]"),
        ("gpus/rtx-4090/?name=nothing", ".kv-said button"),
        ("?ask=llama+3.1+8b+h100+lora", "[data-kv-slot=conditions] a[href*='questions/lora']"),
    ],
)
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_in_a_state(browser: Any, address: str, uri: str, ready: str, width: int) -> None:
    visit = Visit(browser, address, viewport={"width": width, "height": 844})
    page = visit.go(uri)
    page.wait_for_selector(ready)
    assert unusable(page) == []
    visit.context.close()


def test_a_wide_table_and_code_of_a_written_page_are_stops_of_the_keyboard(
    browser: Any, address: str
) -> None:
    """Until the theme's script is there, such a table scrolls by itself."""
    visit = Visit(browser, address, viewport={"width": 390, "height": 844})
    page = visit.go("by-hand/")
    page.evaluate(
        "() => document.querySelector('main article').insertAdjacentHTML('beforeend',"
        ' \'<table id="wide"><tr><td><div style="width: 900px">wide</div></td></tr></table><pre><code id="long"></code></pre>\')'
    )
    page.wait_for_function("document.querySelector('#long').tabIndex === 0")
    # Where the theme has put its box around the table, that box scrolls.
    page.wait_for_function(
        "() => (document.querySelector('#wide').closest('.md-typeset__scrollwrap') || document.querySelector('#wide')).tabIndex === 0"
    )
    page.set_viewport_size({"width": 1600, "height": 844})
    page.wait_for_function("!document.querySelector('main table:not([id])').hasAttribute('tabindex')")
    visit.context.close()


@pytest.mark.parametrize("uri", ["", "sizer/"])
def test_each_stop_of_the_keyboard_can_be_seen(browser: Any, address: str, uri: str) -> None:
    """Behind each field for a name, the list that had just been hidden was a stop; so was the empty list of search results."""
    visit = Visit(browser, address)
    page = visit.go(uri)
    page.wait_for_selector("[role=combobox]")
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        page.wait_for_timeout(50)
        seen.append(
            page.evaluate(
                """() => {
  const { tagName, id, role, className, labels } = document.activeElement;
  // A radio button that a label stands for has no size of its own.
  const { height } = (labels?.[0] || document.activeElement).getBoundingClientRect();
  return [tagName, height > 0 && tagName !== "BODY", role, id, String(className)];
}"""
            )
        )
    assert any(role == "combobox" for _, _, role, *_ in seen) or any("kv-" in one[3] for one in seen)
    assert [one for one in seen if not one[1] and one[3] != "__palette_0"] == []
    visit.context.close()
