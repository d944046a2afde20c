"""The boundary's lines end where memory or the model ends them."""

from __future__ import annotations

from kvreport import estimate
from kvreport.catalog.load import open_catalog
from kvreport.publish.page_data import gather
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.pages import index
from kvreport.site.pages.model.boundary import boundary_data
from kvreport.site.pages.model.headline import headline_estimate

CATALOG = open_catalog()


def test_at_a_limit_between_two_contexts_a_line_shows_as_many_users_as_fit():
    ends = {"limit": 0, "memory": 0}
    # A limit of 163,840 tokens lies between two contexts of the grid; 72B parameters leave one GPU less than its limit.
    for name in ("deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-72B-Instruct"):
        site = gather(CATALOG, models=name, version="2026.01.01")
        model = site.models[0]
        best = site.headline[model.id]
        data, shown = boundary_data(site, model, best, headline_estimate(site, model, best))
        for line, one in zip(data.lines, shown, strict=True):
            context, users = line.points[-1]
            answer = estimate(
                name, gpu=one.config.gpu, tensor_parallel=one.config.tensor_parallel, context_tokens=context
            )
            assert users == answer.max_concurrent_requests
            assert context == answer.max_context_tokens
            between = model.context_tokens not in site.contexts and context == model.context_tokens
            ends["limit"] += between
            ends["memory"] += context < model.context_tokens
    assert all(ends.values())


def test_a_facet_s_values_stand_in_the_order_in_which_people_look_for_them():
    sizes, years = ["160B and more", "under 4B", "16B to 48B"], ["2024", "unknown", "2026"]
    makers = ["Zed", "Ann", "Zed"]
    rows = tuple(
        Row(Cell(maker), (), keys=(("size", size), ("year", year), ("maker", maker)))
        for size, year, maker in zip(sizes, years, makers, strict=True)
    )
    table = Table("", Column("model", numeric=False), (), rows)
    facets = (("size", "size"), ("year", "released"), ("maker", "maker"))
    found = index.facet_values({"table": table, "facets": facets})
    assert [[value for value, _, _ in values] for _, _, values in found] == [
        ["under 4B", "16B to 48B", "160B and more"],
        ["2026", "2024", "unknown"],
        ["Zed", "Ann"],
    ]


def test_every_device_has_its_series_where_a_mac_stands_among_them():
    gpus = "h100-sxm-80gb,m4-max-128,rtx-4090"
    site = gather(CATALOG, models="meta-llama/Llama-3.1-8B-Instruct", gpus=gpus, version="2026.01.01")
    model = site.models[0]
    assert {config.gpu for config in site.released[model.id]} >= {"h100-sxm-80gb", "rtx-4090"}
    assert site.serving(model, "h100-sxm-80gb").serves
    assert site.serving(model, "rtx-4090").serves
    assert site.on_one["rtx-4090", "released"]
    left_out = CATALOG.models["Qwen/Qwen3-32B"]
    assert site.serving(left_out, "h100-sxm-80gb") is None
