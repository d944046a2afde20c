"""Pages of machines for which the site's engine has no platform name the engine whose rows they print."""

from __future__ import annotations

from functools import cache

import pytest

from kvreport.catalog.load import load_catalog
from kvreport.publish import profiles
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import gpu_rows
from kvreport.site.pages.model.grids import users_table

MAC, SERVER = "m2-ultra-192", "h100-sxm-80gb"


@cache
def site() -> SiteData:
    return gather(load_catalog(), models="Qwen/Qwen3-8B", gpus=f"{MAC},{SERVER}", version="test")


@pytest.mark.parametrize(("gpu_id", "label", "own"), [(MAC, "mlx-lm", True), (SERVER, "vLLM 0.33", False)])
def test_the_page_names_the_engine_and_offers_only_what_the_browser_computes(gpu_id, label, own):
    gpu = next(one for one in site().gpus if one.id == gpu_id)
    made = gpu_page.context(site(), gpu, gpu_rows.served(site()))
    assert made.conditions.startswith(f"{label} with its defaults")
    assert (made.controls is None) == own
    assert made.estimate.endswith("--engine mlx") == own


def test_a_model_s_table_names_the_engine_of_other_rows():
    table, _ = users_table(site(), site().models[0])
    hints = {row.anchor: row.head.hint for row in table.rows}
    assert hints == {f"on-{MAC}": "Apple, mlx-lm", f"on-{SERVER}": "NVIDIA"}


def test_the_browser_is_told():
    facts = profiles.site_facts(site())
    assert {one["id"]: one["local"] for one in facts["gpus"]} == {
        MAC: {"name": "mlx", "label": "mlx-lm"},
        SERVER: None,
    }
