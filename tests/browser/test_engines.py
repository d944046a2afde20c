"""Another engine, release or setting on the pages that list models, and what opens from a cell that does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from visits import Visit

from kvreport import estimate, size
from kvreport.catalog.load import load_catalog
from kvreport.errors import InputError

pytestmark = [pytest.mark.browser, pytest.mark.slow]

H100 = "gpus/h100-sxm-80gb/"
SIZES = (1, 2, 4, 8)
START = "gpu=h100-sxm-80gb&context=8192&tp=1&weights=released&kv=own"


@pytest.fixture
def visit(browser, address) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()
    assert made.faults == []


@pytest.fixture(scope="module")
def catalog(tiny_site) -> Any:
    return load_catalog(tiny_site.catalog)


def answers(catalog: Any, model: str, **asked: Any) -> list[Any]:
    """The answers of one model on each number of GPUs that can be configured."""
    found = []
    for number in SIZES:
        try:
            found.append(estimate(model, catalog=catalog, tensor_parallel=number, **asked))
        except InputError:
            continue
    return found


def settled(page: Any) -> None:
    """Wait until the page shows what its address says."""
    page.wait_for_function(
        "document.querySelector('[data-kv-shown]')?.dataset.kvShown === (location.search || 'printed')"
    )


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("?engine=vllm-0.11", {"engine": "vllm-0.11"}),
        ("?engine=sglang", {"engine": "sglang"}),
        ("?share=0.8&seqs=16", {"utilization": 0.8, "max_seqs": 16}),
        ("?batched=2048", {"max_batched_tokens": 2048}),
        ("?engine=ceiling", {"engine": "ceiling"}),
        ("?engine=vllm-0.19&context=32768&kv=fp8", {"engine": "vllm-0.19", "context_tokens": 32_768, "kv": "fp8"}),
    ],
)  # fmt: skip
def test_a_gpu_page_answers_for_another_engine(visit, catalog, query, asked):
    page = visit.go(H100 + query)
    settled(page)
    assert "Ignored" not in page.locator("[data-kv-told]").inner_text()
    label = page.locator("#boundary-chart .kv-plot").get_attribute("aria-label")
    assert label == "H100 80GB HBM3 (SXM5): concurrent requests by context, one line per model"
    asked = {"gpu": "H100", "context_tokens": 8192, **asked}
    served = 0
    for model in catalog.models.values():
        row = page.locator(f"tr[id='of-{model.slug}']")
        each = answers(catalog, model.id, **asked)
        want = next((one for one in each if one.max_concurrent_requests), None)
        told = page.locator(".kv-groups dd", has=page.locator(f"[id='of-{model.slug}']"))
        if (
            told.count()
            and "These pages have no numbers for this engine"
            in told.locator("xpath=preceding-sibling::dt[1]").inner_text()
        ):
            assert "sglang" in query, model.id
            continue
        assert row.count() == (want is not None), model.id
        if want is None:
            continue
        served += 1
        place = list(catalog.grid.contexts).index(asked["context_tokens"]) + 1
        assert row.locator("td").first.inner_text() == str(want.request.tensor_parallel)
        assert row.locator("td").nth(place).inner_text() == f"{want.max_concurrent_requests:,}", model.id
    assert served
    headline = page.locator("[data-kv-slot=headline]").inner_text()
    assert f"{served} of {len(catalog.models)} models" in headline


def test_a_gpu_page_asks_for_the_numbers_of_its_accelerator_alone(visit):
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url.partition("/explore/")[2]))

    def groups(query: str) -> set[str]:
        asked.clear()
        settled(visit.go(H100 + query))
        return {re.sub(r"-\w+[.]json$", "", name) for name in asked if "-" in name}

    each = {f"tensor/{group}" for group in ("weights", "added-own", "cache", "reserve")}
    assert groups("?context=32768") == each
    assert len([name for name in asked if "/added-" in name]) == 1
    # Only without an engine's overhead is what the architecture needs by itself the answer.
    assert groups("?engine=ceiling") == each | {f"{size}/held" for size in SIZES}
    assert groups("?tp=2") == {name.replace("tensor", "2") for name in each}


@pytest.mark.parametrize("engine", ["vllm-0.11", "sglang"])
def test_the_explorer_answers_for_another_engine(visit, catalog, engine):
    page = visit.go(f"explore/?{START}")
    page.wait_for_selector("#explore-table tbody tr")
    before = page.locator(".kv-said").inner_text()
    page.locator("select[name=engine]").select_option(engine)
    page.wait_for_function("(old) => document.querySelector('.kv-said').innerText !== old", arg=before)
    assert visit.query()["engine"] == [engine]
    compared = 0
    for model in catalog.models.values():
        row = page.locator("#explore-table tbody tr", has=page.locator(f"a[href*='{model.slug}']"))
        if not row.count():
            continue
        want = estimate(model.id, gpu="H100", context_tokens=8192, engine=engine, catalog=catalog)
        shown = row.locator("td").first.inner_text().strip()
        compared += 1
        if want.max_concurrent_requests:
            assert shown == f"{want.max_concurrent_requests:,}", model.id
        else:
            assert not shown.replace(",", "").isdigit(), model.id
    assert compared >= 3


def test_downloads_and_queries_of_the_explorer_name_the_engine(visit):
    page = visit.go("explore/?gpu=h100-sxm-80gb&tp=1&context=8192&weights=released&kv=own&engine=sglang")
    page.wait_for_selector("#explore-table tbody tr")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download as CSV").click()
    assert waiting.value.suggested_filename.startswith("kvreport-sglang-h100-sxm-80gb-8192-")
    head, first = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()[:2]
    assert dict(zip(head.split(","), first.split(","), strict=True))["engine"] == "sglang"
    page.locator(".kv-query summary").click()
    sql = page.locator(".kv-query code").first
    page.wait_for_function("document.querySelector('.kv-query code').innerText.includes('SELECT')")
    assert "engine = 'sglang'" in sql.inner_text()
    assert "has no rows of SGLang" in page.locator(".kv-query .kv-note").inner_text()


def test_the_explorer_says_where_another_engine_has_no_numbers(visit, tiny_site):
    folder = tiny_site.folder / "downloads/v1/engines"
    gpus = json.loads((folder / "sglang.json").read_text(encoding="utf-8"))["gpus"]
    number = next(one["reserve"] for one in gpus if one["id"] == "rtx-4090")
    listed = json.loads((folder / f"sglang/reserve-{number}.json").read_text(encoding="utf-8"))["reserve"]
    assert any(listed)

    def without(route) -> None:
        route.fulfill(body=json.dumps({"reserve": [None for _ in listed]}), content_type="application/json")

    visit.page.route(f"**/engines/sglang/reserve-{number}.json", without)
    asked = "explore/?gpu=rtx-4090&gpu=h100-sxm-80gb&tp=1&context=8192"
    page = visit.go(f"{asked}&engine=sglang")
    page.wait_for_selector("#explore-table tbody tr")
    said = page.locator(".kv-why").inner_text()
    assert "on the 3 of 4 accelerators" in said
    assert "For RTX 4090, use the command line." in said
    page = visit.go(asked)
    page.wait_for_selector("#explore-table tbody tr")
    assert page.locator(".kv-why").inner_text() == ""


def test_the_sizer_answers_for_another_release(visit, catalog):
    page = visit.go("sizer/?model=meta-llama--Llama-3.1-8B-Instruct&engine=vllm-0.11")
    page.wait_for_selector("[data-kv-sized] .kv-table tbody tr")
    table = page.locator("[data-kv-sized] table", has_text="The best deployment on each")
    found = size(
        "meta-llama/Llama-3.1-8B-Instruct", context="8K", prompt=1500, output=400, concurrent=64, burst=1.5,
        spare_replicas=1, efficiency=0.6, engine="vllm-0.11", layouts=None,
        gpus=sorted(catalog.accelerators), catalog=catalog,
    )  # fmt: skip
    want = {one.offer.accelerator.id: one for one in found.ranking.best_of_each()}
    rows = table.locator("tbody tr")
    assert rows.count() == len(want)
    for row in rows.all():
        gpu = row.locator("a").first.get_attribute("href").rstrip("/").rpartition("/")[2]
        assert row.locator("td").first.inner_text() == str(want[gpu].devices)
        assert row.locator("td").nth(3).inner_text().split()[0] == f"{want[gpu].users_each:,}"


def test_a_cell_that_does_not_fit_opens_its_explanation_everywhere(visit, catalog):
    want = estimate("meta-llama/Llama-3.1-70B-Instruct", gpu="H100", context_tokens="8K", catalog=catalog)
    missing = f"{want.shortfall_bytes / 2**30:,.2f} ± {want.budget.uncertainty_bytes / 2**30:,.2f}"
    page = visit.go(f"explore/?{START}")
    row = page.locator("#explore-table tbody tr", has_text="Llama 3.1 70B")
    row.locator(".kv-whybutton").click()
    page.locator("dialog .kv-levers").wait_for()
    assert missing in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.classList.contains('kv-whybutton')")
    page = visit.go(H100)
    page.locator("#of-deepseek-ai--DeepSeek-V3 .kv-whybutton").click()
    page.locator("dialog .kv-levers").wait_for()
    told = page.locator("dialog").inner_text()
    assert "DeepSeek-V3 on 8 × H100" in told
    page.keyboard.press("Escape")
    cell = page.locator("#users-table .kv-whybutton").first
    model = cell.locator("xpath=ancestor::tr").get_attribute("id").removeprefix("of-")
    cell.click()
    page.locator("dialog .kv-levers").wait_for()
    name = next(one.name for one in catalog.models.values() if one.slug == model)
    assert page.locator("dialog h2").inner_text().startswith(name)


def test_a_table_on_paper_is_a_table_and_no_cards(visit):
    page = visit.go(f"explore/?{START}")
    page.wait_for_selector("#explore-table tbody tr")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 695, "height": 1000})  # A4 without its margins
    # In one call: the rows are drawn again when their counts and speeds have come.
    display, height, width = page.locator("#explore-table").evaluate(
        """(table) => {
          const row = Array.from(table.tBodies[0].rows).find((one) => one.textContent.includes("Llama 3.1 70B"));
          return [getComputedStyle(row).display, row.cells[0].getBoundingClientRect().height, table.scrollWidth];
        }"""
    )
    assert display == "table-row"
    assert 0 < height < 60
    assert width <= 695


def test_two_changes_are_tried_where_none_is_enough_alone(visit, catalog):
    """Every change of 16 data ranks with experts gave 0 requests, and no two together were tried."""
    page = visit.go("?model=deepseek-ai--DeepSeek-V3&gpu=h100-sxm-80gb&tp=1&dp=16&ep=1&context=32768")
    page.locator("text=Why, and what would help").click()
    first = page.locator("dialog .kv-levers tbody tr").first
    label = (
        "Weights in INT4 (a checkpoint in this format) + 2,048 batched tokens (--max-num-batched-tokens 2048)"
    )
    row = page.locator("dialog .kv-levers tr", has_text=label)
    layout = {"data_parallel": 16, "expert_parallel": True, "weights": "int4", "max_batched_tokens": 2048}
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    want = estimate(model, gpu="H100", context_tokens="32K", catalog=catalog, **layout)
    assert want.max_concurrent_requests > 0
    assert row.locator("td").first.inner_text() == f"{want.max_concurrent_requests:,}"
    assert int(first.locator("td").first.inner_text().replace(",", "")) > 0
    assert "--all2all-backend deepep_high_throughput reduces them" in page.locator("dialog").inner_text()
