"""Commands for machines at home name a machine that holds the model."""

from __future__ import annotations

from types import SimpleNamespace

from kvreport.catalog.load import Catalog
from kvreport.estimation.at_home import at_home
from kvreport.site.pages import local


def test_a_model_too_large_for_a_card_is_estimated_on_the_smallest_computer_that_holds_it(
    catalog: Catalog,
) -> None:
    laid = at_home(catalog.models["deepseek-ai/DeepSeek-V3"])
    assert laid is not None
    every = tuple(catalog.accelerators.values())
    usable, machine = local._smallest(SimpleNamespace(accelerators=every), laid, 0)
    assert laid.longest("q4_k_m", usable, 0)
    assert catalog.accelerators[machine].usable_bytes == usable
    smaller = [one for one in every if one.is_computer and one.usable_bytes < usable]
    assert smaller
    assert not any(laid.longest("q4_k_m", one.usable_bytes, 0) for one in smaller)
