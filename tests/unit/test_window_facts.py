"""The figures of a model's page whose layers all have windows."""

from types import SimpleNamespace
from typing import cast

from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.publish.series import Series
from kvreport.site.pages import index
from kvreport.site.pages.model import page

MODEL = "mistralai/Mistral-7B-v0.1"


def test_a_token_beyond_every_window_is_said_to_be_beyond_it() -> None:
    """The page said "0 B at 8K tokens" without a word on the window."""
    site = gather(
        open_catalog(),
        models=MODEL,
        gpus="h100-sxm-80gb",
        version="t",
    )
    model = site.models[0]
    facts = {one.label: one for one in page.context(site, model, site.headline[model.id])["facts"]}
    token = facts["KV cache per token"]
    assert (token.value, token.note) == ("0 B", "beyond the window of 4K tokens")


def test_a_cache_that_stops_growing_is_listed_with_what_a_token_costs_on_average() -> None:
    """Models whose windows end the growth came first in the list, with 0 KiB per token."""
    held = (2048 * 4096, 2048 * 4096)
    one = cast(Series, SimpleNamespace(token_bytes=(2048, 0), request_bytes=held, contexts=(4096, 16384)))
    assert [index.token_cell(one, place).text for place in (0, 1)] == ["2.0", "0.5"]
    none = cast(Series, SimpleNamespace(token_bytes=(0,), request_bytes=(0,), contexts=(4096,)))
    assert index.token_cell(none, 0).text == "no cache"
    assert index.token_cell(None, None).text == "–"
