"""The comparison under another engine, in another layout and with prices: the numbers of the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from visits import Visit, hold, let_go

from kvreport import estimate
from kvreport.catalog.load import load_catalog

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA, DEEPSEEK = "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3"


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    assert made.faults == []
    made.context.close()


@pytest.fixture(scope="module")
def answer(tiny_site: Any) -> Any:
    catalog = load_catalog(tiny_site.catalog)
    return lambda model, **asked: estimate(model, catalog=catalog, **asked)


def rows(visit: Visit) -> list[dict[str, str]]:
    """The table's rows: a cell by its column's title."""
    visit.page.wait_for_function("document.querySelector('.kv-compare')?.dataset.kvShown === location.search")
    found: list[dict[str, str]] = visit.page.eval_on_selector_all(
        "#compare-table tbody tr",
        """(rows) => rows.map((row) => Object.fromEntries(Array.from(row.cells, (cell, n) => [
            row.closest("table").tHead.rows[0].cells[n].textContent, cell.textContent])))""",
    )
    return found


def test_what_is_being_typed_when_the_numbers_arrive_is_kept(visit: Visit) -> None:
    held = hold(visit.page, "**/explore/facts.json")
    page = visit.go("compare/")

    def act() -> None:
        page.click(".kv-more-fields summary")
        page.locator("select[name=per]").select_option("gpu")
        page.locator("input[name=context]").fill("32K")

    let_go(page, held, act)
    page.wait_for_function("document.querySelector('.kv-compare')?.dataset.kvShown?.includes('per=gpu')")
    assert page.locator("input[name=context]").input_value() == "32K"
    page.locator("input[name=context]").press("Tab")
    page.wait_for_function("document.querySelector('.kv-compare').dataset.kvShown.includes('context=32768')")


def test_models_are_compared_by_the_cache_of_a_token(visit: Visit) -> None:
    """By hand: 61 layers of 512 + 64 values in DeepSeek-V3, keys and values of 80 layers with 8 heads of 128 in Llama 70B."""
    page = visit.go(
        "compare/?models=deepseek-ai--DeepSeek-V3&models=meta-llama--Llama-3.1-70B-Instruct&gpu=b200-sxm-180gb"
    )
    latent, heads = (bytes_ / 1024 for bytes_ in (61 * (512 + 64) * 2, 2 * 80 * 8 * 128 * 2))
    assert [row["KV cache per tokenKiB"] for row in rows(visit)] == [f"{latent:.1f}", f"{heads:.1f}"]
    said = page.locator(".kv-said").inner_text()
    assert (
        f"A token takes the most KV cache in Llama 3.1 70B: {heads:.1f} KiB, compared with {latent:.1f} KiB in "
        f"DeepSeek-V3 ({heads / latent:.1f} times as much)." in said
    )
    # Each GPU has a copy of the latents of 8,192 tokens, and of the heads those that it computes.
    gpus = int(rows(visit)[1]["GPUs"])
    reserved = [bytes_ * 8192 * 1024 / 2**30 for bytes_ in (latent, heads / gpus)]
    assert (
        f"One request of 8K tokens reserves {reserved[1]:.2f} GiB on each GPU of Llama 3.1 70B and {reserved[0]:.2f} GiB of "
        "DeepSeek-V3" in said
    )


def test_another_engine_s_rules_apply(visit: Visit, answer: Any) -> None:
    page = visit.go(
        "compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=meta-llama--Llama-3.1-8B-Instruct&tp=1"
    )
    rows(visit)
    page.click(".kv-more-fields summary")
    page.select_option("#kv-engine", "vllm-0.11")
    page.locator(".kv-said", has_text="vLLM 0.11").wait_for()
    few, many = (
        answer(LLAMA, gpu=gpu, context_tokens="8K", engine="vllm-0.11").max_concurrent_requests
        for gpu in ("h100-sxm-80gb", "b200-sxm-180gb")
    )
    said = page.locator(".kv-said strong").inner_text()
    assert said.startswith("one B200 serves the most requests of 8K tokens: "), said
    assert f"{many:,}, compared with {few:,} for one H100 ({many / few:.1f} times as many)" in said
    for row, gpu in zip(rows(visit), ("h100-sxm-80gb", "b200-sxm-180gb"), strict=True):
        want = answer(LLAMA, gpu=gpu, context_tokens="8K", engine="vllm-0.11")
        assert row["8K"] == f"{want.max_concurrent_requests:,}"
    assert visit.query()["engine"] == ["vllm-0.11"]


def test_the_sentence_names_a_chosen_format(visit: Visit) -> None:
    """Without it, "None serves" read as if the models had been compared as published."""
    visit.go(
        "compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=meta-llama--Llama-3.1-8B-Instruct&tp=1&weights=fp8"
    )
    rows(visit)
    assert (
        " requests of 8K tokens with weights in FP8: " in visit.page.locator(".kv-said strong").inner_text()
    )


def test_engines_and_releases_side_by_side(visit: Visit, answer: Any) -> None:
    """Each engine has its own memory rules, and the sentence says which one serves more."""
    page = visit.go("compare/")
    rows(visit)
    page.select_option("#kv-what", "engines")
    page.wait_for_function("location.search.includes('engines=vllm,sglang')")
    page.select_option("#kv-add-engine", "vllm-0.11")
    page.wait_for_function("location.search.includes('sglang,vllm-0.11')")
    found = rows(visit)
    asked = [
        (engine, answer(LLAMA, gpu="H100", context_tokens="8K", engine=engine))
        for engine in ("vllm", "sglang", "vllm-0.11")
    ]
    assert [row["8K"] for row in found] == [f"{one.max_concurrent_requests:,}" for _, one in asked]
    most = max(one.max_concurrent_requests for _, one in asked)
    said = page.locator(".kv-said").inner_text()
    assert f"serves the most requests of 8K tokens: {most:,}, " in said
    assert "3 engines for Llama 3.1 8B on H100 80GB HBM3 (SXM5), 1 GPU each." in said
    # The cause, with the pools that the command line computes.
    least, best = (
        next(one for _, one in asked if one.max_concurrent_requests == users)
        for users in (min(one.max_concurrent_requests for _, one in asked), most)
    )
    why = said.partition(" Why: ")[2]
    assert why.startswith(f"the KV pool is {least.budget.kv_pool_bytes / 2**30:.2f} GiB per GPU on ")
    assert f" and {best.budget.kv_pool_bytes / 2**30:.2f} GiB on " in why
    named = re.findall(r"([\d.]+) in place of ([\d.]+) GiB", why.partition("It needs less for")[0])
    assert named
    assert all(float(more) > float(less) for more, less in named)
    page.locator(".kv-chosen button", has_text="SGLang").click()
    page.wait_for_function("!location.search.includes('sglang')")
    assert [row["Engine and release"] for row in rows(visit)] == [
        row["Engine and release"] for row in (found[0], found[2])
    ]
    page.select_option("#kv-what", "models")
    page.wait_for_function("!location.search.includes('engines')")
    assert len(rows(visit)) == 2


def test_an_unknown_engine_and_what_stands_for_nothing_are_said(visit: Visit) -> None:
    page = visit.go(
        "compare/?engines=vllm,tgi&gpus=h100-sxm-80gb&engine=sglang&model=deepseek-ai--DeepSeek-V3"
    )
    assert len(rows(visit)) == 1
    said = page.locator(".kv-said .kv-ignored").inner_text().strip()
    assert said == (
        "Ignored, not known here: engines=tgi, gpus=h100-sxm-80gb (engines are compared), "
        "engine=sglang (engines are compared)."
    )


def test_known_models_are_compared_without_scripts(browser: Any, address: str, answer: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + "compare/")
    table = page.locator(".kv-nojs table")
    row = table.locator("tr", has_text="Llama 3.1 8B").locator("td")
    heads = table.locator("thead th").all_inner_texts()[1:]
    for gpu in ("H100", "MI300X"):
        at = next(n for n, head in enumerate(heads) if gpu in head)
        want = answer(LLAMA, gpu=gpu, context_tokens="8K").max_concurrent_requests
        assert row.nth(at).inner_text() == f"{want:,} (1 GPU)"
    context.close()


def test_a_layout_other_than_tensor_parallel(visit: Visit, answer: Any) -> None:
    page = visit.go("compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=deepseek-ai--DeepSeek-V3")
    rows(visit)
    page.click(".kv-more-fields summary")
    page.select_option("#kv-number", "dp8-ep")
    page.wait_for_function("location.search.includes('dp=8')")
    want = answer(DEEPSEEK, gpu="b200-sxm-180gb", data_parallel=8, expert_parallel=True, context_tokens="32K")
    row = rows(visit)[1]
    assert (row["GPUs"], row["32K"]) == ("8", f"{want.max_concurrent_requests:,}")


def test_prices_are_shown_where_they_are_given(visit: Visit, answer: Any) -> None:
    page = visit.go(
        "compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=meta-llama--Llama-3.1-8B-Instruct&tp=2"
    )
    assert not [title for title in rows(visit)[0] if title.startswith("Price")]
    page.click(".kv-more-fields summary")
    page.fill("#kv-prices", "h100=2.5, moon=3")
    page.press("#kv-prices", "Tab")
    page.wait_for_function("location.search.includes('prices=')")
    page.locator(".kv-ignored", has_text="price moon=3").wait_for()
    want = answer(LLAMA, gpu="h100-sxm-80gb", tensor_parallel=2, context_tokens="8K").max_concurrent_requests
    first, second = rows(visit)
    assert first["Priceper hour"] == "5.000"
    assert float(first["Price per requestper hour"]) == pytest.approx(5 / want, abs=0.001)
    assert re.fullmatch("not given", second["Priceper hour"])
    visit.page.reload()
    assert rows(visit)[0]["Priceper hour"] == "5.000"


def test_the_comparison_is_offered_as_csv_once(visit: Visit) -> None:
    page = visit.go("compare/")
    rows(visit)
    page.locator(".kv-compare .kv-tool", has_text="Copy as Markdown").wait_for()
    assert page.locator(".kv-compare .kv-scroll + .kv-tools button", has_text="CSV").count() == 0
    assert page.locator("[data-kv-csv]").is_visible()


def test_columns_reach_the_longest_context_that_a_model_supports(visit: Visit, answer: Any) -> None:
    """Llama 3.1 supports 131,072 tokens: the last column is its own limit, with what the package says for it."""
    visit.go("compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=meta-llama--Llama-3.1-8B-Instruct&tp=1")
    for row, gpu in zip(rows(visit), ("h100-sxm-80gb", "b200-sxm-180gb"), strict=True):
        contexts = [title for title in row if re.fullmatch(r"[0-9]+[KM]", title)]
        assert contexts[-1] == "128K"
        want = answer(LLAMA, gpu=gpu, context_tokens="128K")
        assert row["128K"] == f"{want.max_concurrent_requests:,}"
        (longest,) = (value for title, value in row.items() if title.startswith("Longest"))
        assert longest == f"{want.max_context_tokens:,}"  # it was rounded and did not say so


def test_a_large_difference_of_accelerators_says_why(visit: Visit, answer: Any) -> None:
    page = visit.go(
        "compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb&model=meta-llama--Llama-3.1-70B-Instruct"
    )
    rows(visit)
    large, small = (
        answer("meta-llama/Llama-3.1-70B-Instruct", gpu=gpu, tensor_parallel=2, context_tokens=8192)
        for gpu in ("b200-sxm-180gb", "h100-sxm-80gb")
    )
    said = page.inner_text(".kv-compare .kv-said")
    pools = [f"{one.budget.kv_pool_bytes / 2**30:.2f} GiB of KV pool on each" for one in (large, small)]
    assert f"leave {pools[0]} B200 and {pools[1]} H100." in said
    assert "The sizer gives each type of GPU its own number" in said


def test_the_buttons_of_a_chart_stand_beside_its_caption_and_not_on_it(browser, address):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{address}compare/?gpus=h100-sxm-80gb&gpus=b200-sxm-180gb")
    tools = page.locator(".kv-boundary > .kv-tools").first
    tools.scroll_into_view_if_needed()
    tools.wait_for()
    caption, buttons = page.locator(".kv-boundary > figcaption").first.bounding_box(), tools.bounding_box()
    assert caption["y"] + caption["height"] <= buttons["y"], (caption, buttons)
    page.close()


def test_the_causes_that_are_named_add_up_to_the_difference(visit: Visit) -> None:
    """Those that offset a part of it were left out: 4.09 GiB of causes for pools that differ by 3.15 GiB."""
    page = visit.go("compare/?engines=vllm,vllm-0.11&gpu=h100-sxm-80gb")
    rows(visit)
    said = page.locator(".kv-said").inner_text()
    pools = re.findall(r"([\d.]+) GiB (?:per GPU )?on ", said)
    causes = re.findall(r"([\d.]+) in place of ([\d.]+) GiB", said)
    assert "They need less for: CUDA graphs" in said
    difference = float(pools[1]) - float(pools[0])
    assert sum(float(more) - float(less) for more, less in causes) == pytest.approx(difference, abs=0.03)


def test_a_release_without_numbers_here_has_its_command(visit: Visit) -> None:
    page = visit.go(
        "compare/?engines=vllm@0.10,vllm@0.33&gpu=h100-sxm-80gb&model=meta-llama--Llama-3.1-8B-Instruct"
    )
    rows(visit)
    said = page.locator(".kv-said").inner_text()
    wanted = "kvreport diff vllm@0.10 vllm@0.33 --model meta-llama/Llama-3.1-8B-Instruct --gpu h100-sxm-80gb --context 8192"
    assert wanted in said


def test_names_of_several_have_a_plural_verb(visit: Visit) -> None:
    """ "vLLM 0.24 and 0.25 serves the most", "Only 2 × RTX 4090 serves"."""
    page = visit.go("compare/?engines=vllm,vllm-0.11&gpu=h100-sxm-80gb")
    rows(visit)
    said = page.locator(".kv-said").inner_text()
    assert "vLLM 0.11 to 0.16 need more for" in said
    assert not re.search(r"(and|to) 0\.\d+ (serves|needs|runs)", said)
    visit.go(
        "compare/?gpus=rtx-4090&gpus=h100-sxm-80gb&model=meta-llama--Llama-3.1-70B-Instruct&tp=2&context=16K"
    )
    rows(visit)
    assert not re.search(r"\d × [\w ]+ (serves|needs)", page.locator(".kv-said").inner_text())


def test_two_releases_are_told_apart_by_their_rules_and_two_engines_are_not(visit):
    """Compare lumped releases of one range, as if one had been named."""
    page = visit.go(
        "compare/?engines=vllm@0.29,vllm@0.30&gpu=h100-sxm-80gb&model=meta-llama--Llama-3.1-8B-Instruct"
    )
    page.locator(
        ".kv-said", has_text="The numbers of this site for vLLM 0.29 to 0.32 are those of 0.32.0."
    ).wait_for()
    said = page.inner_text(".kv-said")
    assert "changed between vLLM 0.29 and 0.30. Since 0.30: " in said
    assert "kvreport diff vllm@0.29 vllm@0.30" in said
    page = visit.go("compare/?engines=vllm,sglang&gpu=h100-sxm-80gb&model=meta-llama--Llama-3.1-8B-Instruct")
    page.locator(".kv-said", has_text="2 engines for").wait_for()
    assert "changed between" not in page.inner_text(".kv-said")
