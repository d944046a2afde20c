"""What leads on: questions that another page answers, links that keep the case, tables in the order that a reader wants."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from serving import until
from visits import page

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def ask(page: Any, address: str, text: str) -> Any:
    """Ask the box of the front page something that it answers elsewhere; return the links."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    page.fill("#kv-asked", text)
    page.press("#kv-asked", "Enter")
    until(page, "location.search.startsWith('?ask=')")
    links = page.locator("[data-kv-slot=conditions] a")
    links.first.wait_for()
    return links


def test_people_and_their_pace_lead_to_the_sizer_filled_in(page: Any, address: str) -> None:
    """Three hundred people were 300 requests at once, and the pace was not understood."""
    ask(page, address, "llama 3.1 8b for 300 people, 2 questions a minute").first.click()
    page.wait_for_selector("[data-kv-sized][data-kv-state=sized]")
    assert [page.input_value(f"input[name={name}]") for name in ("users", "rate", "concurrent")] == [
        "300",
        "2",
        "",
    ]
    assert page.input_value("input[name=latency]")
    assert "For 300 people using Llama 3.1 8B" in page.inner_text("[data-kv-sized]")


def test_a_text_about_no_model_leads_to_the_page_that_the_search_finds(page: Any, address: str) -> None:
    """The page of what was typed was found by the search alone."""
    links = ask(page, address, "a short answer by hand")
    assert urlsplit(links.first.get_attribute("href")).path in ("/questions/first/", "/by-hand/")


def test_the_form_shows_no_case_under_a_question_that_it_does_not_answer(page: Any, address: str) -> None:
    """The model and the accelerator of the answer before stood under another question."""
    ask(page, address, "what is preemption")
    fields = [
        page.locator(f".kv-form [name={name}], form [role=combobox][name={name}]")
        for name in ("model", "gpu")
    ]
    assert [field.first.input_value() for field in fields] == ["", ""]
    ask(page, address, "llama 70b tgi h100")
    assert fields[0].first.input_value() == "Llama 3.1 70B"
    assert "H100" in fields[1].first.input_value()


def test_a_link_of_an_accelerators_table_keeps_what_is_asked(page: Any, address: str) -> None:
    """A click on a model at 32K on H100 led to the model's own example."""
    page.goto(f"{address}gpus/h100-sxm-80gb/?context=16384")
    page.wait_for_selector("[data-kv-shown='?context=16384']")
    page.click("#users-table tbody a:has-text('Llama 3.1 8B')")
    until(page, "location.pathname.includes('/models/')")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
    assert asked == {"gpu": "h100-sxm-80gb", "tp": "1", "context": "16384"}


def test_capacity_by_accelerator_is_sorted_by_a_press(page: Any, address: str) -> None:
    """NVIDIA's stood first, and no other order could be had."""
    page.goto(f"{address}models/openai--gpt-oss-20b/")
    page.mouse.move(5, 5)
    page.mouse.move(50, 50)
    page.click("#users-table thead button:has-text('Longest')")
    until(page, "document.querySelector('#users-table th[aria-sort]')")
    page.click("#users-table thead button:has-text('8K')")
    cells = page.locator("#users-table tbody tr").all()
    column = page.eval_on_selector(
        "#users-table",
        "table => [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === '8K')",
    )
    numbers = [int(row.locator("th, td").nth(column).inner_text().replace(",", "")) for row in cells]
    assert len(numbers) > 2
    assert numbers == sorted(numbers, reverse=True)


def test_the_explorer_filters_by_size(page: Any, address: str) -> None:
    page.goto(f"{address}explore/?size=4B+to+16B&context=8192&show=all")
    page.wait_for_selector("[data-kv-shown*='size=4B+to+16B']")
    names = set(page.locator("#explore-table tbody th").all_inner_texts())
    assert names == {"Llama 3.1 8B"}
    assert "4B to 16B" in page.locator(".kv-said").first.inner_text()


def test_a_table_that_is_marked_as_an_example_keeps_its_style(page: Any, address: str) -> None:
    """The theme styles tables without a class alone."""
    page.goto(f"{address}questions/second/?model=openai--gpt-oss-20b")
    page.wait_for_selector("[data-kv-of-example]")
    assert page.locator("table.kv-of-example").count() == 0
