"""Pages of machines for which the site's engine has no platform name the engine whose rows they print."""

from __future__ import annotations

from functools import cache

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.publish import profiles
from kvreport.publish.page_data import gather
from kvreport.publish.site_data import SiteData
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import gpu_rows
from kvreport.site.pages.model.grids import users_table

MAC, SERVER = "m2-ultra-192", "h100-sxm-80gb"


@cache
def site() -> SiteData:
    return gather(open_catalog(), models="Qwen/Qwen3-8B", gpus=f"{MAC},{SERVER}", version="test")


@pytest.mark.parametrize(("gpu_id", "label", "own"), [(MAC, "mlx-lm", True), (SERVER, "vLLM 0.33", False)])
def test_the_page_names_the_engine_and_offers_only_what_the_browser_computes(gpu_id, label, own):
    gpu = next(one for one in site().gpus if one.id == gpu_id)
    made = gpu_page.context(site(), gpu, gpu_rows.served(site()))
    assert made["conditions"].startswith(f"These numbers are computed for {label} with its defaults")
    assert (made["controls"] is None) == own
    assert made["estimate"].endswith("--engine mlx") == own


def test_a_model_s_table_names_the_engine_of_other_rows():
    table, _ = users_table(site(), site().models[0], None)
    hints = {row.anchor: row.head.hint for row in table.rows}
    assert hints == {f"on-{MAC}": "Apple, mlx-lm", f"on-{SERVER}": "NVIDIA"}


def test_the_first_line_s_case_has_a_row_where_it_takes_more_gpus_than_the_fewest():
    model = site().models[0]
    fewest = site().serving(model, SERVER)
    wider = next(one for one in site().on_headline_gpu[model.id].values() if one.config.tensor_parallel == 4)
    same, _ = users_table(site(), model, fewest)
    more, _ = users_table(site(), model, wider)
    rows = {row.anchor: [cell.text for cell in row.cells[:2]] for row in more.rows}
    assert [row.anchor for row in same.rows] == [f"on-{SERVER}", f"on-{MAC}"]
    assert list(rows) == [f"on-{SERVER}", f"on-{SERVER}_4", f"on-{MAC}"]
    assert "and in the case above" in more.caption
    assert "case above" not in same.caption
    assert rows[f"on-{SERVER}_4"] == ["4", f"{wider.users[0]:,}"]


def test_the_browser_is_told():
    facts = profiles.site_facts(site())
    assert {one["id"]: one["local"] for one in facts["gpus"]} == {
        MAC: {"name": "mlx", "label": "mlx-lm"},
        SERVER: None,
    }
