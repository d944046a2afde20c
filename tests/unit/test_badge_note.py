"""What a model's page says of its badge: whose numbers it shows, and what to replace where the address is not known."""

from dataclasses import replace

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.publish.embeds import UNKNOWN_SITE
from kvreport.publish.page_data import gather
from kvreport.site.pages.model import model_page


@pytest.mark.parametrize(
    ("address", "told"), [("", True), (UNKNOWN_SITE, True), ("https://example.org/kv/", False)]
)
def test_a_badge_says_what_to_replace_where_the_site_knows_no_address(address: str, told: bool) -> None:
    """Without a configured address, the badge had that of the reader's own machine."""
    site = gather(open_catalog(), models="llama-3.1-8b", gpus="h100-sxm-80gb", version="t")
    site = replace(site, site_url=address)
    names = model_page.context(site, site.models[0], site.headline[site.models[0].id])
    assert names["unknown_site"] == (UNKNOWN_SITE if told else "")
    assert f"]({address or UNKNOWN_SITE}models/" in names["badge"]
