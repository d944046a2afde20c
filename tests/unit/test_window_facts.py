"""The figures of a model's page whose layers all have windows."""

from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.site.pages.model import page

MODEL = "mistralai/Mistral-7B-v0.1"


def test_a_token_beyond_every_window_is_said_to_be_beyond_it() -> None:
    """The page said "0 B at 8K tokens" without a word on the window."""
    site = gather(
        open_catalog(),
        models=MODEL,
        gpus="h100-sxm-80gb",
        version="t",
        site_url="",
        progress=lambda _: None,
    )
    model = site.models[0]
    facts = {one.label: one for one in page.context(site, model, site.headline[model.id])["facts"]}
    token = facts["KV cache per token"]
    assert (token.value, token.note) == ("0 B", "beyond the window of 4K tokens")
