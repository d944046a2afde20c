"""The comparison: two to four models or accelerators side by side, in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages.explore import context


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the comparison."""
    yield Page(
        uri="compare/",
        kind="tool",
        title="Compare models or GPUs",
        heading="Compare models or GPUs",
        names=("compare", "comparison"),
        description="Two to four models or accelerators on one boundary chart and in one table.",
        sections=(Section("comparison", "", render("compare/body.html", "compare/", context(inputs.site))),),
    )


TYPE: Final = PageType("compare", pages)
