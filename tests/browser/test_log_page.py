"""The log reader's page in a real browser: it reads, compares as Python does, and sends nothing anywhere."""

from __future__ import annotations

import re
from typing import Any

import pytest
from serving import until
from visits import page

from kvreport import estimate
from kvreport.catalog.load import open_catalog
from kvreport.startup_log import diagnose

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MACHINE = "h100-sxm-80gb+b200-sxm-180gb"
FLAGGED = """\
INFO Initializing a V1 LLM engine (v0.33.0) with config: model='openai/gpt-oss-20b', tensor_parallel_size=2
vllm serve openai/gpt-oss-20b --max-model-len 65536 --gpu-memory-utilization 0.85 --max-num-batched-tokens 2048 \
--max-num-seqs 64 {further}
Model loading took 7.00 GiB
Available KV cache memory: 30.00 GiB
GPU KV cache size: 1,000,000 tokens
Maximum concurrency for 65,536 tokens per request: 15.00x
"""


def test_a_log_is_read_and_goes_nowhere(page: Any, address: str) -> None:
    page.goto(f"{address}log/")
    page.wait_for_selector("[data-kv-log]")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    # The page's own script for sharing comes when the reader begins; from then on nothing is asked for.
    page.mouse.move(200, 300)
    until(page, "Boolean(kvreport.share)")
    page.evaluate("() => document.fonts.ready.then(() => true)")
    before = len(page.asked)
    page.fill(
        "textarea[name=log]",
        "vllm serve my/secret-model --max-model-len 32768 --gpu-memory-utilization 0.9\n"
        "Free memory on device (79.0/80.00 GiB) on startup.\nAvailable KV cache memory: 10.00 GiB\n"
        "GPU KV cache size: 21,360 tokens\nMaximum concurrency for 32,768 tokens per request: 0.65x\n<b>moon</b>\n",
    )
    page.wait_for_selector("[data-kv-logged] .kv-big")
    shown = page.inner_text("[data-kv-logged]")
    assert "0.65×: one request of 32,768 tokens does not fit." in shown
    assert "lower max-model-len to 21,360" in shown
    # Nobody here knows the model: its cache may be FP8 already.
    assert "fp8" not in shown
    # 0.05 x 80 GiB more would make it 0.91: what does not suffice is not offered.
    assert "raise gpu-memory-utilization" not in shown
    page.click("text=Not understood, and not used: 1 line")
    # What was pasted is text, never markup.
    assert "<b>moon</b>" in page.inner_text("[data-kv-logged]")
    assert page.query_selector("[data-kv-logged] b") is None
    # From 0.8 it is 12 GiB more, and 0.65 x 22 / 10 requests fit.
    log = page.input_value("textarea[name=log]")
    page.fill("textarea[name=log]", log.replace("utilization 0.9", "utilization 0.8"))
    page.wait_for_selector("text=raise gpu-memory-utilization to 0.95: 1.43×")
    # One file of the site is asked for, by its name alone: what recognizes lines.
    assert page.asked[before:] == [("GET", f"{address}downloads/v1/log-lines.json")]
    assert "secret" not in page.url


def test_the_log_of_a_known_model_is_compared(page: Any, address: str) -> None:
    page.goto(f"{address}log/")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill(
        "textarea[name=log]",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072\nModel loading took 14.99 GiB\n"
        "Available KV cache memory: 40.00 GiB\nGPU KV cache size: 327,680 tokens\n"
        "Maximum concurrency for 131,072 tokens per request: 2.50x\n",
    )
    page.wait_for_selector("text=Compared with the formula")
    cells = page.eval_on_selector_all(
        "[data-kv-logged] tbody tr", "rows => rows.map((row) => row.innerText.split('\\t'))"
    )
    # 40 GiB / (131,072 tokens x 131,072 B) = 2.5, exactly; 8.03e9 parameters at 2 B are 14.96 GiB, and
    # a table of 131,072 positions x 128 x 2 B makes 14.99 of it, as the engine says.
    assert ["maximum concurrency (from the log's pool)", "2.50", "2.50", "+0.0%"] in cells
    assert ["cache size (from the log's pool)", "327,680", "327,680", "+0.0%"] in cells
    assert any(row[0] == "weights on a device" and row[2] == "14.99 GiB" for row in cells)


@pytest.mark.parametrize("further", ["", "--enforce-eager", "--kv-cache-dtype fp8", "--block-size 32"])
def test_a_logs_own_flags_are_followed_as_the_command_does(
    page: Any, address: str, tiny_site, further: str
) -> None:
    # Windows reserve for the steps in flight, and the reserve is of the log's own steps and requests.
    text = FLAGGED.format(further=further)
    gpu = "h100-sxm-80gb"
    ours = diagnose(text, gpu=gpu, catalog=open_catalog(tiny_site.catalog))
    page.goto(f"{address}log/?gpu={gpu}")
    until(page, "document.querySelector('.kv-log [name=gpu]')?.value.startsWith('H100')")
    page.fill("textarea[name=log]", text)
    page.wait_for_selector("text=Compared with the formula")
    until(page, "document.querySelector('[data-kv-logged]').innerText.includes('cache pool on a device')")
    theirs = page.eval_on_selector("[data-kv-logged]", "box => box.kvCompared")
    by_name = {name: predicted for name, _, predicted in theirs}
    assert {"weights", "concurrency", "kv_tokens", "kv_pool"} <= set(by_name)
    shown = page.inner_text("[data-kv-logged]")
    if "block-size" in further:
        assert "This page does not take into account: --block-size 32" in shown
        return
    assert "does not take into account" not in shown
    for one in ours.comparisons:
        assert by_name[one.fact] == pytest.approx(one.predicted, rel=1e-6), one.fact


def test_an_older_log_is_not_held_against_newer_rules(page: Any, address: str) -> None:
    page.goto(f"{address}log/")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill("textarea[name=log]", FLAGGED.format(further="").replace("v0.33.0", "v0.25.1"))
    page.wait_for_selector("text=from an older release")
    assert "maximum concurrency" not in page.eval_on_selector_all(
        "[data-kv-logged] tbody th", "cells => cells.map((cell) => cell.innerText)"
    )


@pytest.mark.parametrize(
    ("version", "weights", "told"),
    [
        ("0.11.2", "7.00", "By the rules of vLLM 0.11 to 0.16, the KV pool has {} GiB per GPU"),
        ("0.25.1", "7.00", "By the rules of vLLM 0.24 and 0.25, the KV pool has {} GiB per GPU"),
        ("0.10.2", "7.00", "No KV pool is predicted: this page has rules of "),
        ("0.11.2", "14.00", "No KV pool is predicted: the log prints 14.00 GiB of weights"),
    ],
)
def test_a_log_of_an_older_release_has_its_pool_predicted_or_is_told_why_not(
    page: Any, address: str, tiny_site, version: str, weights: str, told: str
) -> None:
    page.goto(f"{address}log/?gpu=h100-sxm-80gb&model=openai--gpt-oss-20b")
    until(page, "document.querySelector('.kv-log [name=gpu]')?.value.includes('H100')")
    text = FLAGGED.format(further="").replace("v0.33.0", f"v{version}").replace("7.00 GiB", f"{weights} GiB")
    page.fill("textarea[name=log]", text)
    page.wait_for_selector("[data-kv-before]")
    ours = estimate(
        "openai/gpt-oss-20b",
        gpu="h100-sxm-80gb",
        tensor_parallel=2,
        context_tokens=65536,
        utilization=0.85,
        max_batched_tokens=2048,
        max_seqs=64,
        engine="vllm-0.11" if version.startswith("0.11") else "vllm-0.25",
        catalog=open_catalog(tiny_site.catalog),
    )
    pool = f"{ours.budget.kv_pool_bytes / 2**30:.2f}"
    assert told.format(pool) in page.inner_text("[data-kv-before]")


def test_a_log_of_unequal_gpus_is_judged_by_them(page: Any, address: str, tiny_site) -> None:
    text = FLAGGED.format(further="")
    ours = diagnose(text, gpu=MACHINE, catalog=open_catalog(tiny_site.catalog))
    page.goto(f"{address}log/?gpu={MACHINE}&model=openai--gpt-oss-20b&moon=1")
    until(page, "document.querySelector('.kv-log [name=gpu]')?.value.includes(' + ')")
    page.locator(".kv-logged .kv-ignored", has_text="moon=1").wait_for()
    page.fill("textarea[name=log]", text)
    until(page, "document.querySelector('[data-kv-logged]').innerText.includes('cache pool on a device')")
    theirs = {
        name: found for name, _, found in page.eval_on_selector("[data-kv-logged]", "box => box.kvCompared")
    }
    for one in ours.comparisons:
        assert theirs[one.fact] == pytest.approx(one.predicted, rel=1e-6), one.fact
    page.fill("textarea[name=log]", text.replace("tensor_parallel_size=2", "tensor_parallel_size=4"))
    page.locator("[data-kv-logged]", has_text="found 2 devices for a log of 4 ranks").wait_for()
    # Chosen in the list, they stand in the address, and nothing of the log does.
    page.click(".kv-log [data-kv-any=gpu]")
    until(page, "!location.search.includes('gpu=')")
    page.fill(".kv-log [name=gpu]", "h100 + b200")
    page.click(".kv-log [role=option] >> nth=0")
    until(page, f"location.search.includes('gpu={MACHINE}')")
    assert "gpt-oss" in page.url
    assert "65536" not in page.url


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.53 GiB of which "
    "1.12 GiB is free"
)


def test_a_pasted_out_of_memory_names_gpus_and_flags_with_values(page: Any, address: str) -> None:
    """ "Leave more memory free" was no change that anybody can make."""
    page.goto(f"{address}log/")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill("textarea[name=log]", OUT_OF_MEMORY)
    page.wait_for_selector("text=What to try, one at a time")
    shown = page.inner_text("[data-kv-logged]")
    # 0.84 GiB of 23.53 are 3.6%: of the default of 0.92, 0.88 remain.
    assert "lower --gpu-memory-utilization to 0.88 (0.84 GiB less than 0.92)" in shown
    assert "lower --max-num-batched-tokens to 2048" in shown
    assert "lower --max-num-seqs to 64" in shown
    assert "--tensor-parallel-size 2" in shown
    assert "With SGLang:" in shown
    assert "run without CUDA graphs (--disable-cuda-graph)" in shown
    page.click("[data-kv-logged] button:has-text('RTX 4090')")
    until(page, "location.search === '?gpu=rtx-4090'")
    assert "4090" in page.input_value(".kv-log [name=gpu]")


def test_a_server_that_starts_is_told_how_to_serve_more(page: Any, address: str) -> None:
    page.goto(f"{address}log/?gpu=h100-sxm-80gb")
    until(page, "document.querySelector('.kv-log [name=gpu]')?.value.startsWith('H100')")
    page.fill(
        "textarea[name=log]",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072 --gpu-memory-utilization 0.8\n"
        "Available KV cache memory: 40.00 GiB\nGPU KV cache size: 327,680 tokens\n"
        "Maximum concurrency for 131,072 tokens per request: 2.50x\n",
    )
    page.wait_for_selector("text=To serve more requests")
    shown = page.inner_text("[data-kv-logged]")
    # A cache of half the bytes holds twice as many, and 0.15 of 79.11 GiB are 11.87 GiB beside 40.
    assert "fp8): 5.00×" in shown
    assert "raise gpu-memory-utilization to 0.95: 3.24×" in shown
    # The plan has the log's own figure: no row is taken in proportion.
    assert "if every token costs the same" not in shown
    estimate = page.locator("[data-kv-logged] a", has_text="the estimate of this case")
    href = estimate.get_attribute("href")
    assert "model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb" in href
    assert "context=131072" in href
    assert "share=0.8" in href


def test_a_deployment_file_is_named_as_one_and_has_a_way_on(page: Any, address: str) -> None:
    """The headline asked for the lines of an engine next to a button that reads the file, and named a page without a link."""
    page.goto(f"{address}log/")
    page.wait_for_selector("[data-kv-log]")
    page.fill("textarea[name=log]", "services:\n  a:\n    image: b\n")
    page.wait_for_selector("[data-kv-logged] .kv-big")
    shown = page.inner_text("[data-kv-logged]")
    assert "This is a deployment file or a script, not a start-up log." in shown
    assert "paste the lines" not in shown
    assert page.locator("[data-kv-logged] button, [data-kv-logged] p a").count() == 1


def test_a_step_that_is_offered_holds_the_longest_item_of_the_model(page: Any, address: str) -> None:
    """2,048 tokens were offered for Gemma 4, whose steps must hold a video of 2,496."""

    def with_items(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"least_step": 2496})

    page.route("**/downloads/v1/models/Qwen--Qwen3.6-27B.json", with_items)
    page.goto(f"{address}log/?model=Qwen--Qwen3.6-27B")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill("textarea[name=log]", OUT_OF_MEMORY)
    page.wait_for_selector("text=What to try, one at a time")
    assert "lower --max-num-batched-tokens to 2496" in page.inner_text("[data-kv-logged]")


def test_changes_that_are_not_enough_are_named_with_their_tokens(page: Any, address: str) -> None:
    """Only a shorter context was offered: neither an FP8 cache nor more devices, because each is not enough alone."""
    page.goto(f"{address}log/")
    page.wait_for_selector("[data-kv-log]")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill(
        "textarea[name=log]",
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072\nAvailable KV cache memory: 5.86 GiB\n"
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in "
        "KV cache (48000). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.\n",
    )
    page.locator("[data-kv-logged] li", has_text="store the cache as fp8").wait_for()
    shown = page.inner_text("[data-kv-logged]")
    found = re.search(
        r"fp8 .*: about ([\d,]+) of the 131,072 tokens of one request, so also lower the context", shown
    )
    assert found is not None, shown
    assert abs(int(found[1].replace(",", "")) - 96000) < 100
    assert "tensor-parallel-size 2: choose the model and the GPU to get its number" in shown
    page.goto(f"{address}log/?gpu=h100-sxm-80gb")
    until(page, "Boolean(window.kvreport && kvreport.log)")
    page.fill(
        "textarea[name=log]",
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --max-model-len 131072 --tensor-parallel-size 2\n"
        "Available KV cache memory: 2.00 GiB\n"
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in "
        "KV cache (13107). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.\n",
    )
    page.locator(
        "[data-kv-logged] li",
        has_text=re.compile(r"tensor-parallel-size 4(: 1|: about [\d,]+ of)|tensor-parallel-size [48]$"),
    ).first.wait_for()
