"""Lists narrowed by what models read and accelerators hold, not by letters of their names."""

from __future__ import annotations

from typing import Any

import pytest
from visits import Visit

from kvreport.catalog.load import load_catalog

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def seeing(tiny_site: Any) -> set[str]:
    """Names of models that have a vision encoder."""
    catalog = load_catalog(tiny_site.catalog)
    found = {model.name for model in catalog.models.values() if "vision" in model.inputs}
    assert 0 < len(found) < len(catalog.models)
    return found


def test_the_explorer_and_the_list_of_models_filter_by_vision(
    browser: Any, address: str, seeing: set[str]
) -> None:
    visit = Visit(browser, address)
    page = visit.go("explore/?gpu=b200-sxm-180gb&tp=1&context=8192&weights=released&kv=own&input=vision")
    page.wait_for_selector(".kv-explore[data-kv-shown*='input=vision']")
    assert set(page.locator("#explore-table tbody th a").all_inner_texts()) <= seeing
    assert "Vision" in page.inner_text(".kv-said")
    page = visit.go("models/?input=vision")
    visit.settle()
    assert {one.inner_text() for one in page.locator("#models-table tbody tr:visible th a").all()} == seeing
    visit.context.close()
    assert not visit.faults


def test_a_gpu_page_finds_models_that_see_before_and_after_a_change(
    browser: Any, address: str, seeing: set[str]
) -> None:
    visit = Visit(browser, address)
    page = visit.go("gpus/b200-sxm-180gb/?name=vision")
    visit.settle()
    names = lambda: {one.inner_text() for one in page.locator("#users-table tbody tr:visible th a").all()}  # noqa: E731
    assert names() == seeing
    page.select_option("#kv-layout", "tp8")
    visit.settle()
    assert names() == seeing
    visit.context.close()
    assert not visit.faults


def test_a_size_of_memory_finds_accelerators_that_have_it(browser: Any, address: str) -> None:
    visit = Visit(browser, address)
    page = visit.go("")
    page.locator("#kv-gpu").click()
    field = page.locator("input#kv-gpu")
    for text in ("80 GB", "24gb", "80 gib nvidia"):
        field.fill(text)
        page.wait_for_function("document.querySelectorAll('#kv-gpu ~ ul [role=option]').length === 1")
        said = page.locator("#kv-gpu ~ ul [role=option]").inner_text()
        assert ("H100" if "80" in text else "RTX 4090") in said
    visit.context.close()
    assert not visit.faults
