"""The figures of a model's page whose layers all have windows."""

from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.site.pages import index
from kvreport.site.pages.model import model_page

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
    facts = {one.label: one for one in model_page.context(site, model, site.headline[model.id])["facts"]}
    token = facts["KV cache per token"]
    assert (token.value, token.note) == ("0 B", "beyond the window of 4K tokens")


def test_a_cache_that_stops_growing_is_listed_with_what_a_token_costs_on_average() -> None:
    """Models whose windows end the growth came first in the list, with 0 KiB per token."""
    site = gather(
        open_catalog(),
        models="bigcode/starcoder2-7b,google/embeddinggemma-2",
        gpus="h100-sxm-80gb",
        version="t",
    )
    rows = {row.anchor: row.cells[3].text for row in index.models(site)["table"].rows}
    # 32 layers of 4 KV heads of 128 keep 4,096 tokens of at most 16,384 in 16 bits: a quarter of 64 KiB.
    assert rows == {"bigcode--starcoder2-7b": "16.0", "google--embeddinggemma-2": "no cache"}
    assert index.token_cell(None, 0.0).text == "–"
