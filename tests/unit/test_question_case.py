"""The form and the links that a question's page has for its reader's case."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

from kvreport.adapters.questions import with_case
from kvreport.book.reader_case import of_front_matter
from kvreport.catalog.load import open_catalog


@pytest.mark.parametrize(("expression", "reads"), [("slot_memory(MODEL)", False), ("memory(GPU)", True)])
def test_a_page_whose_numbers_no_gpu_changes_asks_for_none(expression: str, reads: bool) -> None:
    """The page about computers without a GPU had a field for one, and three links to an RTX 4090."""
    catalog = open_catalog()
    reader = of_front_matter({"reader": {"model": "llama-3.1-8b", "gpu": "rtx-4090"}}, catalog)
    assert reader is not None
    name = "GPU" if reads else "MODEL"
    live = f'<span title="{expression}" data-kv-live="{{&quot;x&quot;:[&quot;$&quot;,&quot;{name}&quot;]}}">1</span>'
    page = BeautifulSoup(
        with_case(f"<h1>No GPU?</h1><p>A GPU.</p>{live}", "questions/a/", reader, catalog), "html.parser"
    )
    field = page.select_one(".kv-entry:has(#kv-gpu), .kv-entry:has([data-kv-id=kv-gpu])")
    assert field is not None
    assert field.has_attr("hidden") is not reads
    tools = {one["data-kv-tool"]: one.get_text() for one in page.select("[data-kv-tool]")}
    assert set(tools) == ({"model", "gpu", "sizer"} if reads else {"model"})
    assert ("RTX 4090" in tools["model"]) is reads
