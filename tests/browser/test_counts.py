"""What pages count, printed and after a change, is what the published Parquet file has."""

from __future__ import annotations

import csv
import re
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from fuzzing import thinned
from visits import Visit

from kvreport.accounting.weights import parameters
from kvreport.catalog.load import load_catalog
from kvreport.units import human_parameters, human_tokens

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SERVES: Final = ("fits", "tight")
HEADLINE: Final = "[data-kv-slot=headline]"
SHOWN: Final = (
    "() => document.querySelector('[data-kv-shown]')?.dataset.kvShown === (location.search || 'printed')"
)


@pytest.fixture(scope="module")
def rows(tiny_site) -> list[dict[str, Any]]:
    table = pq.read_table(tiny_site.folder / "downloads" / "capacity.parquet")
    names = (
        "model", "gpu", "layout", "weight_format", "kv_format", "context_tokens", "max_concurrent_requests", "verdict",
    )  # fmt: skip
    found = table.select(names).to_pylist()
    # The default of these models: pages say "KV cache: model default".
    return [row for row in found if re.fullmatch(r"tp\d", row["layout"]) and row["kv_format"] == "bf16"]


def serving(
    rows: list[dict[str, Any]], gpu: str, context: int, most: int, form: str = "released"
) -> set[str]:
    """The models of the file that at most so many GPUs serve, in a format or as released where it is not offered."""
    forms: dict[str, set[str]] = {}
    for row in rows:
        forms.setdefault(row["model"], set()).add(row["weight_format"])
    return {
        row["model"]
        for row in rows
        if row["gpu"] == gpu
        and row["context_tokens"] == context
        and int(row["layout"][2:]) <= most
        and row["verdict"] in SERVES
        and row["max_concurrent_requests"] > 0
        and row["weight_format"] == (form if form in forms[row["model"]] else "released")
    }


def changed(page: Any, name: str, value: str) -> str:
    """Change a field of the form and return the sentence that the page answers with."""
    field = page.locator(f"form [name={name}]")
    if field.evaluate("one => one.tagName") == "SELECT":
        field.evaluate(
            "one => { for (const fold of document.querySelectorAll('form details')) fold.open = true; }"
        )
        field.select_option(value)
    else:
        field.fill(value)
        field.press("Enter")
    page.wait_for_function(SHOWN)
    return str(page.inner_text(HEADLINE))


def test_every_gpu_page_counts_as_the_parquet_file(browser, address, rows, tiny_site):
    catalog = load_catalog(tiny_site.catalog)
    sizes = {name: parameters(model) for name, model in catalog.models.items()}
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
    limits = {name: catalog.models[name].context_tokens for name in catalog.models}
    contexts = sorted({row["context_tokens"] for row in rows})
    gpus, asked = sorted({row["gpu"] for row in rows}), thinned(contexts, 3)
    compared = 0
    for gpu in gpus:
        page = visit.go(f"gpus/{gpu}/")
        said = re.search(
            r"A single GPU serves (\d+) of (\d+) models as released, at 8K", page.inner_text(HEADLINE)
        )
        assert said
        assert (int(said[1]), int(said[2])) == (len(serving(rows, gpu, 8192, 1)), len(limits))
        for context in asked:
            text = human_tokens(context)
            if context == 8192:
                continue  # what is printed
            wanted = serving(rows, gpu, context, 8)
            told = changed(page, "context", text)
            found = re.search(r"Up to 8 GPUs serve (\d+) of (\d+) models as released, at (\w+) tokens", told)
            assert (int(found[1]) if found else 0) == len(wanted), (gpu, text, told)
            assert found is not None or f"No model in the catalog fits at {text} tokens" in told
            listed = page.eval_on_selector_all("#users-table tbody tr", "all => all.map(one => one.id)")
            assert set(listed) == {f"of-{name.replace('/', '--')}" for name in wanted}
            below = sum(limit < context for limit in limits.values())
            assert (
                f"{below} of the {len(limits)} models support fewer than {text} tokens, so they are not among those that fit."
                in told
            ) == (below > 0)
            for name, limit in limits.items():
                if limit < context:
                    place = page.locator(f"[id='of-{name.replace('/', '--')}']")
                    assert f"at most {human_tokens(limit)} tokens" in place.inner_text()
            if wanted:
                largest = max(wanted, key=lambda name: sizes[name])
                name, size = catalog.models[largest].name, human_parameters(sizes[largest])
                assert f"The largest is {name} ({size} parameters)." in told
            compared += 1
        for size in (1, 4):
            told = changed(page, "layout", f"tp{size}")
            found = re.search(r"(\d+) of \d+ models as released, at 1M", told)
            assert (int(found[1]) if found else 0) == len(serving(rows, gpu, contexts[-1], size))
        changed(page, "layout", "")
        changed(page, "context", "4K")
        told = changed(page, "weights", "fp8")
        found = re.search(r"(\d+) of \d+ models in FP8\b.* where offered, at 4K", told)
        assert found, told
        assert int(found[1]) == len(serving(rows, gpu, 4096, 8, "fp8"))
    visit.context.close()
    assert compared >= len(gpus) * (len(asked) - 1) > 9
    assert not visit.faults


def test_a_model_of_a_short_limit_stays_in_the_table_of_the_page_s_own_context(browser, address):
    """Whoever asked for a number of requests lost every printed row of a model whose limit is below 8K tokens."""
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})

    def shortened(route: Any) -> None:
        answer = route.fetch()
        facts = answer.json()
        facts["limit"] = [4096] * len(facts["limit"])
        route.fulfill(response=answer, json=facts)

    visit.page.route("**/explore/models.json", shortened)
    row = "#of-meta-llama--Llama-3\\.1-8B-Instruct"
    page = visit.go("gpus/h100-sxm-80gb/?requests=2")
    page.wait_for_function(SHOWN)
    assert page.locator(f"#users-table {row} td").nth(3).inner_text() != "over limit"
    assert page.locator(f"#users-table {row}").inner_text().count("over limit") == 8  # each from 8K on
    assert "No model in the catalog fits at 8K tokens" in page.inner_text(HEADLINE)
    page = visit.go("gpus/h100-sxm-80gb/?context=16384")
    page.wait_for_function(SHOWN)
    assert page.locator(f"#users-table {row}").count() == 0
    assert "at most 4K tokens" in page.inner_text(f".kv-groups {row}")
    visit.context.close()
    assert not visit.faults


def test_feed_home_and_data_page_say_as_many_as_the_published_tables_have(tiny_site):
    folder = tiny_site.folder
    rows = pq.read_metadata(folder / "downloads" / "capacity.parquet").num_rows
    tables = (folder / "downloads" / f"{name}.csv" for name in ("models", "accelerators"))
    models, gpus = (
        len(list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))) for path in tables
    )
    feed = (folder / "data" / "releases.xml").read_text(encoding="utf-8")
    assert f"{models:,} models on {gpus:,} accelerators, {rows:,} rows." in feed
    assert f"{models} models, {gpus} accelerators." in (folder / "llms.txt").read_text(encoding="utf-8")
    for uri, numbers in (("", (models, gpus)), ("data", (rows, models, gpus))):
        facts = re.findall(r"<dd[^>]*>\s*([\d,]+)", tiny_site.html(uri))
        assert {f"{number:,}" for number in numbers} <= set(facts), uri


def test_the_explorer_counts_as_the_gpu_page(browser, address, rows):
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
    for gpu in ("h100-sxm-80gb", "rtx-4090"):
        for context in (8192, 262_144):
            page = visit.go(f"explore/?gpu={gpu}&tp=1&context={context}&weights=released&kv=own")
            page.wait_for_selector(".kv-answer strong, [data-kv-said] strong, .kv-said strong")
            visit.settle()
            told = page.inner_text("main")
            found = re.search(r"(\d+) of the \d+ listed configurations? fits?", told)
            assert found, told[:400]
            assert int(found[1]) == len(serving(rows, gpu, context, 1))
    visit.context.close()
    assert not visit.faults


def test_a_filter_whose_models_are_not_in_the_table_says_where_they_are(browser, address):
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900})
    page = visit.go("gpus/h100-sxm-80gb/?context=1M")
    page.wait_for_function(SHOWN)
    page.locator("[data-kv-filter] input[name=name]").fill("llama")
    page.wait_for_function("document.body.innerText.includes('name contains “llama”')")
    told = page.inner_text("[data-kv-filter] + *")
    assert "0 of" in told
    assert "Not in the table: 2 (The model supports fewer than 1M tokens)." in told
    visit.context.close()
    assert not visit.faults
