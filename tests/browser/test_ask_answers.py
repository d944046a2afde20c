"""What a question's answer says besides its number: tokens of the pool, what a format saves, the accelerator of the form."""

from __future__ import annotations

import re
from typing import Any

import pytest
from serving import until
from visits import Visit, page

from kvreport import estimate
from kvreport.book.quantities import quantities
from kvreport.catalog.load import open_catalog
from kvreport.estimation.at_home import at_home

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def ask(page: Any, text: str) -> None:
    page.fill("#kv-asked", text)
    page.press("#kv-asked", "Enter")
    until(
        page,
        "document.querySelector('[data-kv-understood]').textContent.startsWith('Understood')",
    )


@pytest.mark.parametrize(
    ("model", "gpu", "options"),
    [
        (LLAMA, "h100-sxm-80gb", {"context_tokens": 32768}),
        (LLAMA, "rtx-4090", {"context_tokens": 4096}),
        ("openai/gpt-oss-20b", "h100-sxm-80gb", {"context_tokens": 8192}),
        ("deepseek-ai/DeepSeek-V3", "b200-sxm-180gb", {"context_tokens": 8192, "tensor_parallel": 8}),
        ("Qwen/Qwen3.6-27B", "b200-sxm-180gb", {"context_tokens": 16384}),
    ],
)
def test_the_answer_says_how_many_tokens_the_pool_holds(page, address, model, gpu, options):
    answer = estimate(model, gpu=gpu, **options)
    slug, tp = model.replace("/", "--"), options.get("tensor_parallel", 1)
    page.goto(f"{address}?model={slug}&gpu={gpu}&tp={tp}&context={options['context_tokens']}")
    page.wait_for_selector("[data-kv-shown^='?model=']")
    said = page.locator("[data-kv-slot=conditions]", has_text="The KV pool is").inner_text()
    assert f"holds {answer.kv_pool_tokens:,} tokens in total." in said
    assert f"{answer.budget.kv_pool_bytes / 2**30:.2f} GiB per GPU" in said
    # The number of the headline stands next to its range.
    error = f"{answer.budget.uncertainty_bytes / 2**30:.2f}"
    found = re.search(
        rf"error band of the pool \(±{error} GiB for this GPU and these settings\), ([\d,]+) to ([\d,]+) requests fit\.",
        said,
    )
    pool, off = answer.budget.kv_pool_bytes, answer.budget.uncertainty_bytes
    ends = {end // answer.kv_bytes_per_request_per_gpu for end in (pool - off, pool + off)}
    assert bool(found) == (len(ends) > 1), said
    if found is None:
        return
    low, high = (int(end.replace(",", "")) for end in found.groups())
    assert low <= answer.max_concurrent_requests <= high
    assert low < high


def test_the_printed_front_page_says_the_tokens_of_its_example(tiny_site):
    printed = " tokens in total. Within the 80% error band of the pool"
    assert printed in tiny_site.html("")


def test_each_side_of_a_comparison_holds_what_the_command_says(page, address):
    """ "Two RTX 3090 against one RTX 5090" led to a comparison of one with one."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "two RTX 4090 against one H100 for Llama 3.1 8B at 32K: which holds more context?")
    page.wait_for_selector("text=as many tokens")
    said = page.inner_text("[data-kv-slot=headline]")
    two, one = (
        estimate(LLAMA, gpu=gpu, context_tokens=32768, tensor_parallel=tp)
        for gpu, tp in (("rtx-4090", 2), ("h100-sxm-80gb", 1))
    )
    for where, answer in (("2 × RTX 4090", two), ("One H100", one)):
        assert (
            f"{where}: KV cache for {answer.kv_pool_tokens:,} tokens, {answer.max_concurrent_requests} requests of 32K at once, one context of at most {answer.max_context_tokens:,} tokens"
            in said
        )
    assert one.kv_pool_tokens > two.kv_pool_tokens
    assert f"One H100 holds more context: {one.kv_pool_tokens / two.kv_pool_tokens:.1f} times" in said


def test_a_format_named_with_one_model_is_not_that_of_the_other(page, address):
    """ "Llama 3.3 70B FP8 vs gpt-oss-120b" gave both in FP8, in which the second does not fit."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "Llama 3.1 8B FP8 vs gpt-oss-20b on one H100 at 8K")
    page.wait_for_selector("text=as many tokens")
    said = page.inner_text("[data-kv-slot=headline]")
    for model, form, options in (
        (LLAMA, "in FP8", {"weights": "fp8"}),
        ("openai/gpt-oss-20b", "as released", {}),
    ):
        answer = estimate(model, gpu="h100-sxm-80gb", context_tokens=8192, **options)
        name = open_catalog().model(model).name
        held = f"KV cache for {answer.kv_pool_tokens:,} tokens, {answer.max_concurrent_requests} requests of 8K at once"
        assert re.search(rf"{name} with weights {form}[^.:]*: {held}", said, re.I), said


def test_a_computer_without_a_gpu_is_answered_for_its_main_memory(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "llama 3.1 8b 32k on a Ryzen 9 with 64 GB of RAM and no GPU")
    page.wait_for_selector("text=of main memory with one slot of 32K tokens")
    laid = at_home(open_catalog().model(LLAMA))
    taken = laid.in_main_memory("q4_k_m", 32768) / 2**30
    said = page.inner_text("[data-kv-slot=headline]")
    assert (
        f"takes {taken:.1f} GiB of main memory with one slot of 32K tokens, less than the 64 GB of RAM."
        in said
    )


def test_a_slot_at_home_is_answered_with_its_free_memory_and_both_caches(page, address):
    """ "How much memory is left" and "KV cache q8_0" led to pages without these numbers."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(
        page, "does llama 3.1 8b q4_k_m with 16k fit on an rtx 4090 in llama.cpp, and how much memory is left"
    )
    page.wait_for_selector("text=Longest context:")
    said = page.inner_text("[data-kv-slot=headline]")
    asked = {"gpu": "rtx-4090", "engine": "llama-cpp", "weights": "q4_k_m", "parallel": 1}
    answer = estimate(LLAMA, context_tokens=16384, **asked).to_dict()["budget"]
    left, whole = answer["kv_pool_bytes"] - 16384 * 131072, answer["total_bytes"]
    assert f"A context of 16K fits and leaves {left / 2**30:.1f} of {whole / 2**30:.1f} GiB free." in said
    ask(page, "largest context for llama 3.1 8b on an rtx 4090 with ollama, kv cache q8_0")
    page.wait_for_selector("text=with a cache in q8_0, ")
    found = re.search(r"Longest context: ([\d,]+) tokens with a cache in q8_0", page.inner_text("body"))
    exact = estimate(LLAMA, context_tokens=4096, cache_type_k="q8_0", cache_type_v="q8_0", **asked)
    assert 0 <= exact.max_context_tokens - int(found[1].replace(",", "")) < 2048


def test_a_quoted_message_is_answered_with_its_own_numbers(page, address):
    """The box led to pages that never used the 48,000 of the message."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(
        page,
        'Which flag do I change when the log says "max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (48000)" and by how much?',
    )
    page.wait_for_selector("text=The engine refuses to start")
    said = page.inner_text("[data-kv-slot=headline]")
    assert "lower max-model-len to 48,000. Or make room for 2.7 times as many tokens: " in said
    assert "lower --max-model-len;" not in said
    # Half the bits are no 2.7 times as many tokens.
    assert "fp8), which makes room for 2 times as many and is not enough alone" in said
    link = page.locator("[data-kv-slot=conditions] a").first
    assert "/log/#log=" in link.get_attribute("href")


def test_a_context_beyond_the_model_says_what_the_engine_does_with_it(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(
        page,
        "I paste this: `vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 262144` for an H100. How many requests?",
    )
    page.wait_for_selector("text=vLLM refuses --max-model-len 262144")
    held = estimate(LLAMA, gpu="h100-sxm-80gb", context_tokens=262144, any_context=True)
    assert f"Memory would hold {held.max_concurrent_requests} concurrent request" in page.inner_text(
        "[data-kv-slot=headline]"
    )


def test_a_layout_without_numbers_is_not_said_to_be_impossible(page, address):
    """ "Cannot be split, or is not published" left open which of the two."""
    page.goto(f"{address}?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&dp=8&ep=1")
    page.wait_for_selector(
        "text=This site has no numbers for Llama 3.1 8B in DP 8 attention + expert parallel."
    )
    assert "or says why the model cannot be divided" in page.inner_text("[data-kv-slot=headline]")


def test_whether_a_format_doubles_the_requests_is_answered_with_both_numbers(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(
        page,
        "Does `--kv-cache-dtype fp8` double the number of requests on an H100 for Llama 3.1 70B at TP 4?",
    )
    page.locator("[data-kv-remark]", has_text="in place of").wait_for()
    asked = {"gpu": "h100-sxm-80gb", "context_tokens": 8192, "tensor_parallel": 4}
    few, many = (
        estimate("meta-llama/Llama-3.1-70B-Instruct", **asked, **kv).max_concurrent_requests
        for kv in ({"kv": "fp8"}, {})
    )
    assert f"Concurrent requests: {few} in place of {many}." in page.inner_text("[data-kv-remark]")


def test_the_accelerator_of_the_form_is_named_as_chosen(page, address):
    page.goto(f"{address}?gpu=b200-sxm-180gb")
    page.wait_for_selector("[data-kv-shown='?gpu=b200-sxm-180gb']")
    ask(page, "llama 70b 32k")
    remark = page.locator("[data-kv-remark]")
    remark.wait_for()
    assert "On B200 SXM 180GB, as chosen in the form." in remark.inner_text()
    assert "No GPU was named" not in page.inner_text("body")


def test_a_question_sent_before_its_script_is_there_keeps_the_form(page, address):
    page.route("**/kv-ask-box*.js", lambda _: None)  # the answer never comes
    page.goto(f"{address}?gpu=b200-sxm-180gb")
    page.wait_for_selector("[data-kv-shown='?gpu=b200-sxm-180gb']")
    page.unroute("**/kv-ask-box*.js")
    page.fill("#kv-asked", "llama 70b 32k")
    page.press("#kv-asked", "Enter")
    remark = page.locator("[data-kv-remark]")
    remark.wait_for()
    assert "On B200 SXM 180GB, as chosen in the form." in remark.inner_text()


def test_what_a_format_saves_is_said_in_bytes_and_requests(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how much do I save with fp8 cache on llama 3.1 8b h100 32k")
    remark = page.locator("[data-kv-remark]", has_text="An FP8 cache saves")
    remark.wait_for()
    asked = {"gpu": "h100-sxm-80gb", "context_tokens": 32768}
    few, many = (estimate(LLAMA, **asked, **kv).max_concurrent_requests for kv in ({"kv": "fp8"}, {}))
    assert "saves 2.00 GiB (2.00 in place of 4.00 GiB) in each request" in remark.inner_text()
    assert f"Concurrent requests: {few} in place of {many}." in remark.inner_text()


def test_a_filter_that_leaves_no_row_leads_on(page, address):
    page.goto(f"{address}gpus/rtx-4090/?name=nothing+of+the+kind")
    page.click("button:has-text('Clear the filter')")
    assert page.input_value("[data-kv-filter] input") == ""
    page.fill("[data-kv-filter] input", "70b at home")
    link = page.locator(".kv-said a", has_text="Models named “70b at home” on any GPU")
    assert link.get_attribute("href").endswith("models/?name=70b%20at%20home")


def test_the_number_of_gpus_is_answered_first_over_several_machines_too(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how many H100 for DeepSeek V3")
    remark = page.locator("[data-kv-remark]", has_text="Fewest GPUs")
    remark.wait_for()
    said = re.search(
        r"Fewest GPUs that serve 1 request of 8K tokens of DeepSeek.V3: (\d+) × H100", remark.inner_text()
    )
    assert said, remark.inner_text()
    model, asked = "deepseek-ai/DeepSeek-V3", {"gpu": "h100-sxm-80gb", "context_tokens": 8192}
    assert not estimate(model, **asked, tensor_parallel=8).max_concurrent_requests
    assert said[1] == "16"
    headline = page.locator("[data-kv-slot=headline]").inner_text()
    assert "16 × H100" in headline, headline
    found = re.search(r"serves ([\d,]+) concurrent requests", headline)
    layouts = (  # those of two servers that the dataset has
        {"tensor_parallel": 8, "pipeline_parallel": 2},
        {"data_parallel": 16, "expert_parallel": True},
    )
    every = [estimate(model, **asked, nodes=2, **one).max_concurrent_requests for one in layouts]
    assert int(found[1].replace(",", "")) == max(every), (found[1], every)


def test_every_layout_is_tried_for_so_many_requests(page, address):
    """The answer was "no number of GPUs", while the sizer's own layouts held as many."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how many B200 for DeepSeek-V3 at 128K with 30 requests")
    page.locator("[data-kv-remark]", has_text="Fewest GPUs").wait_for()
    model, asked = "deepseek-ai/DeepSeek-V3", {"gpu": "b200-sxm-180gb", "context_tokens": 131072}
    assert estimate(model, **asked, tensor_parallel=8).max_concurrent_requests < 30
    most = estimate(model, **asked, data_parallel=8, expert_parallel=True).max_concurrent_requests
    assert most >= 30
    assert "8 × B200 (DP 8 attention + expert parallel)" in page.inner_text("[data-kv-remark]")
    assert f"serves {most} concurrent requests" in page.inner_text("[data-kv-slot=headline]")
    ask(page, "how many B200 for DeepSeek-V3 at 128K with 9000 requests")
    remark = page.locator("[data-kv-remark]", has_text="in none of these layouts: ")
    remark.wait_for()
    assert "TP 8" in remark.inner_text()
    assert "DP 8 attention + expert parallel" in remark.inner_text()
    link = page.locator("[data-kv-slot=conditions] a", has_text="Size it with more layouts")
    assert link.get_attribute("href").endswith(
        "sizer/?model=deepseek-ai--DeepSeek-V3&gpu=b200-sxm-180gb&concurrent=9000&prompt=none&context=128K&average=128K&burst=1&spares=0"
    )


def test_bytes_that_are_asked_for_are_the_answer_s(page, address):
    """ "How much KV cache" was answered with a number of requests alone."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how much kv cache does llama 3.1 8b need at 32k for 10 users")
    page.locator("[data-kv-remark]", has_text="needs").wait_for()
    # 131,072 B for each of 10 x 32,768 tokens.
    assert "needs 14.96 GiB for its weights and 40.00 GiB of KV cache for 10 requests of 32K tokens" in (
        page.inner_text("[data-kv-remark]")
    )


def test_the_longest_context_of_several_requests_is_said_where_it_is_asked(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how long a context can I give 10 users of llama 3.1 8b on one h100")
    page.locator("[data-kv-remark]", has_text="can have at most").wait_for()
    found = re.search(
        r"10 requests at once on one H100 can have at most ([\d,]+) tokens",
        page.inner_text("[data-kv-remark]"),
    )
    longest = int(found[1].replace(",", ""))
    few, none = (
        estimate(LLAMA, gpu="h100-sxm-80gb", context_tokens=longest + more).max_concurrent_requests
        for more in (0, 1)
    )
    assert (few >= 10, none < 10) == (True, True)


def test_the_fewest_gpus_name_a_smaller_number_that_may_fit(page, address):
    """The larger number stood alone, while a smaller one fell short by less than the error of the estimate."""
    model, asked = "meta-llama/Llama-3.1-70B-Instruct", {"gpu": "h100-sxm-80gb", "context_tokens": 22528}
    assert estimate(model, **asked, tensor_parallel=2).verdict == "may_fit"
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "fewest H100 for Llama 3.1 70B at 22K")
    page.locator("[data-kv-remark]", has_text="Fewest GPUs").wait_for()
    said = page.inner_text("[data-kv-remark]")
    assert "4 × H100" in said.split(" Within ")[0]
    assert "Within the error of the estimate, fewer may be enough: 2 × H100" in said


def test_the_cheapest_gpu_is_the_one_with_the_least_memory_which_is_said(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    shown(page, "cheapest GPU for llama 3.1 8b at 32K with 4 requests")
    said = page.inner_text("[data-kv-slot=headline]")
    single = [float(gib) for gib in re.findall(r"\(([\d.]+) GiB usable\)", said)]
    assert single == sorted(single)
    assert len(single) > 1
    fewest = [int(gib) for gib in re.findall(r", (\d+) GiB usable", said)]
    assert fewest == sorted(fewest)
    assert len(fewest) == 4
    assert "kvreport knows no prices" in said


def test_expert_parallelism_that_is_asked_for_is_the_answer_s(page, address):
    """The headline had a layout without it, which serves more."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "Expert parallelism for DeepSeek-V3 on 8 x B200: how many requests of 8K")
    page.locator("[data-kv-remark]", has_text="Without expert parallelism: ").wait_for()
    assert "expert parallel)" in page.inner_text("[data-kv-slot=headline]")
    ranked, others = page.inner_text("[data-kv-remark]").split("Without expert parallelism: ")
    assert "TP 8:" in others
    assert "expert parallel:" not in others
    assert "TP 8:" not in ranked
    link = page.locator("[data-kv-remark] a", has_text="TP or DP for MLA models")
    assert link.get_attribute("href").endswith("questions/mla-tp-or-dp/")


def test_the_number_of_gpus_of_a_model_is_told_for_each_known_one(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "how many gpus do I need for llama 3.1 70b")
    headline = page.locator("[data-kv-slot=headline]", has_text="Fewest GPUs")
    headline.wait_for()
    model, asked = "meta-llama/Llama-3.1-70B-Instruct", {"gpu": "h100-sxm-80gb", "context_tokens": 8192}
    fewest = next(
        n for n in (1, 2, 4, 8) if estimate(model, **asked, tensor_parallel=n).max_concurrent_requests
    )
    assert f"{fewest} × H100" in headline.inner_text()
    link = page.locator("[data-kv-slot=conditions] a", has_text="size a deployment")
    assert link.get_attribute("href").endswith("sizer/?model=meta-llama--Llama-3.1-70B-Instruct")


def shown(page: Any, text: str) -> None:
    """Ask, and wait for the way to an answer."""
    page.fill("#kv-asked", text)
    page.press("#kv-asked", "Enter")
    page.wait_for_selector("[data-kv-shown^='?ask=']")


def test_cards_of_at_most_a_size_are_named_by_format(page, address):
    """ "at most 24 GB" was read as one card of 24 GB."""
    page.goto(address)
    shown(page, "which GPU of at most 24 GB runs Llama 3.1 8B at 8K")
    headline = page.locator("[data-kv-slot=headline]").inner_text()
    cards = re.search(
        r"One GPU of at most 24 GB serves 1 request of 8K tokens.*?INT4[^:]*: ([^;]+)\.", headline
    )
    assert cards, headline
    asked = {"weights": "int4", "context_tokens": 8192}
    assert ("RTX 4090" in cards[1]) == bool(estimate(LLAMA, gpu="rtx-4090", **asked).max_concurrent_requests)
    assert "H100" not in headline


def test_a_pasted_message_goes_along_to_the_log_reader(page, address):
    """The link led to an empty field."""
    said = (
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (9.12 GiB)"
    )
    page.goto(address)
    shown(page, said)
    page.click("a:has-text('read this message as a log')")
    page.locator("[data-kv-logged]", has_text="does not fit").wait_for()
    assert page.input_value("textarea") == said
    assert page.url == f"{address}log/"


def test_a_pasted_log_is_read_as_a_log_and_stays_out_of_the_address(page, address):
    """Its lines were read as a comparison with "vLLM 12.104"."""
    lines = (
        "INFO 11-20 12:00:01 [gpu_model_runner.py:2653] Model loading took 30.5899 GiB and 12.104 seconds",
        "INFO 11-20 12:00:05 [kv_cache_utils.py:1087] GPU KV cache size: 312,992 tokens",
    )
    page.goto(address)
    shown(page, " ".join(lines))
    assert page.url == f"{address}?ask=start-up+log"
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    page.evaluate(
        """(text) => {
          const clipboardData = new DataTransfer(), field = document.querySelector("#kv-asked");
          clipboardData.setData("text", text);
          field.dispatchEvent(new ClipboardEvent("paste", { clipboardData }));
        }""",
        "\n".join(lines),
    )
    shown(page, " ".join(lines))
    page.click("a:has-text('read this message as a log')")
    page.locator("[data-kv-logged]", has_text="KV cache").first.wait_for()
    assert page.input_value("textarea") == "\n".join(lines)
    assert page.url == f"{address}log/"


def test_a_stated_figure_fills_the_claim_checker_in(page, address):
    """The 2.5 of "2.5 MB per token" was read as the release of a model."""
    page.goto(address)
    shown(page, "Somebody claims Llama 3.1 8B needs 2.5 MB of KV cache per token: true?")
    page.click("a:has-text('check 2.5 MB per token')")
    command = page.locator("[data-kv-command]", has_text="2.5")
    assert command.inner_text() == (
        "kvreport claim --model meta-llama/Llama-3.1-8B-Instruct --quantity kv_per_token --value 2.5 --unit MB"
    )


def test_on_a_phone_the_keyboard_goes_and_the_answer_comes(browser, address):
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, bypass_csp=True
    )
    page = context.new_page()
    page.goto(address)
    ask(page, "llama 3.1 8b h100 32k")
    page.wait_for_function("document.querySelector('[data-kv-shown]').dataset.kvShown.includes('context')")
    page.wait_for_function(
        """() => { const { top, bottom } = document.querySelector("[data-kv-slot=headline]").getBoundingClientRect();
        return document.activeElement === document.body && top >= 0 && bottom <= 844; }"""
    )
    context.close()


def test_what_a_cache_s_format_changes_is_said_against_the_release_s(page, address):
    """ "change" was a word that was not understood, and only the case with the format stood there."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "what does an fp8 cache change for llama 3.1 8b h100 32k")
    page.locator("[data-kv-remark]", has_text="An FP8 cache saves 2.00 GiB").wait_for()


def test_a_number_of_gpus_that_divides_no_heads_is_said_with_those_that_do(page, address):
    """The page said that the command line has numbers; the command is refused."""
    page.goto(f"{address}?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&tp=3")
    headline = page.locator("[data-kv-slot=headline]", has_text="cannot be split")
    said = headline.inner_text()
    assert "over 3 GPUs" in said
    assert "Sizes that divide them: 1, 2, 4, 8, 16." in said
    assert "--tensor-parallel 3" not in page.inner_text("main")


def test_an_engine_that_may_take_all_memory_has_no_share_of_1(page, address):
    page.goto(f"{address}?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&engine=sglang")
    page.wait_for_selector("[data-kv-shown*='engine=sglang']")
    caption = page.locator("figcaption", has_text="A process can use")
    assert "the engine may take all of it." in caption.inner_text()


def test_what_a_shared_prompt_saves_is_said_where_it_is_asked(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    shown(page, "prefix caching 50 users same system prompt 4000 tokens llama 3.1 8b h100")
    headline = page.locator("[data-kv-slot=headline]").inner_text()
    # 4,000 tokens of 131,072 B; 50 requests, and 49 of them saved.
    assert "0.49 GiB of KV cache in place of 24.41 GiB, which saves 23.93 GiB" in headline


def test_layouts_of_as_many_gpus_are_ranked_by_their_requests(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "which layout is best for deepseek v3 on 8 x b200")
    remark = page.locator("[data-kv-remark]", has_text="by layout: ")
    remark.wait_for()
    ranked = re.findall(r"(?:layout: |; )([^:;]+): ([\d,]+)", remark.inner_text())
    number = [int(users.replace(",", "")) for _, users in ranked]
    assert number == sorted(number, reverse=True)
    model, asked = "deepseek-ai/DeepSeek-V3", {"gpu": "b200-sxm-180gb", "context_tokens": 8192}
    tensor = estimate(model, **asked, tensor_parallel=8).max_concurrent_requests
    data = estimate(model, **asked, data_parallel=8, expert_parallel=True).max_concurrent_requests
    assert {("TP 8", f"{tensor:,}"), ("DP 8 attention + expert parallel", f"{data:,}")} <= set(ranked)
    assert f"serves {number[0]:,} concurrent" in page.inner_text("[data-kv-slot=headline]")


def test_a_layout_that_serves_nothing_says_why_and_what_others_serve(page, address):
    """A question for DP 16 with expert parallelism got a shortage without its parts, and TP 16 with it no number."""
    page.goto(address)
    ask(page, "deepseek v3 h100 dp16 ep")
    until(page, "document.querySelector('[data-kv-remark]')?.textContent.includes('by layout')")
    said = page.inner_text("[data-kv-remark]")
    assert re.search(
        r"loaded weights take [\d.]+ GiB, and activations, libraries and graphs take [\d.]+ GiB", said
    )
    assert re.search(r"on 16 × H100, by layout: .*PP 2 \+ TP 8: \d", said)
    ask(page, "deepseek v3 16x h100 tp16 ep")
    until(page, "location.search.includes('tp=16')")
    until(page, "document.querySelector('[data-kv-remark]')?.textContent.includes('by layout')")


def test_the_smallest_gpu_keeps_the_format_and_the_context(page, address):
    page.goto(address)
    ask(page, "smallest GPU for llama 3.1 8b in FP8 at 32K")
    until(page, "location.search.startsWith('?ask=')")
    said = page.inner_text("[data-kv-slot=headline]")
    served = (
        "The single GPUs with the least memory that serve 1 request of 32K tokens of Llama 3.1 8B with vLLM"
    )
    assert said.startswith(served)
    assert "RTX 4090 (23.52 GiB usable), H100" in said
    links = page.eval_on_selector_all("[data-kv-slot=conditions] a", "(all) => all.map((one) => one.href)")
    assert all("weights=fp8" in one and re.search("context=(32768|32K)", one) for one in links), links


def test_a_pasted_deployment_file_goes_to_the_page_that_checks_it(page, address):
    """A field of one line drops the line breaks: what was pasted went nowhere, and the search was offered."""
    text = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.33.0\n    command: --model openai/gpt-oss-20b\n"
    )
    page.goto(address)
    ask(page, "llama 3.1 8b")  # its script is there
    page.evaluate(
        """(text) => {
            const field = document.querySelector("#kv-asked"), data = new DataTransfer();
            data.setData("text", text);
            field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
            field.value = text.replaceAll("\\n", " ");
        }""",
        text,
    )
    page.press("#kv-asked", "Enter")
    until(page, "location.search.startsWith('?ask=')")
    assert "openai" not in page.url  # a file may hold secrets
    page.click("[data-kv-slot=conditions] a")
    page.wait_for_url("**/log/**")
    until(page, "document.querySelector('.kv-log [name=log]').value.includes('image:')")
    assert page.input_value(".kv-log [name=log]") == text


def test_buttons_that_copy_say_what(page, address):
    page.goto(f"{address}?model={LLAMA.replace('/', '--')}&gpu=h100-sxm-80gb&tp=1&context=16384")
    page.wait_for_selector("[data-kv-shown^='?model=']")
    page.wait_for_selector("[data-kv-slot=cite] .kv-command button", state="attached")
    names = page.locator(".kv-command button").all_text_contents()
    assert len(names) == len(set(names)) == 4
    assert set(names) == {"Copy start command", "Copy estimate command", "Copy link", "Copy citation"}


def test_the_page_that_a_question_leads_to_answers_in_the_box(browser, address):
    """ "CUDA graphs on an A100" was answered with a link, and the page's numbers were of its example."""
    visit = Visit(browser, address)
    lead = "<p>By engine, the median error was 3%. In your case, no more.</p>"

    def as_page(route):
        """The tiny site's first question stands where the real one does."""
        own = visit.context.request.get(f"{address}questions/first/").text()
        route.fulfill(
            body=own.replace("A short answer.", lead) if "how-accurate" in route.request.url else own
        )

    for name in ("cuda-graphs", "how-accurate"):
        visit.context.route(f"**/questions/{name}/*", as_page)
        visit.context.route(f"**/questions/{name}/", as_page)
    page = visit.go("")
    ask(page, "how much memory do cuda graphs take for llama 3.1 8b on one b200 with 16k, sglang")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('requests of 16K')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    fits = estimate(LLAMA, gpu="b200-sxm-180gb", context_tokens=16384).max_concurrent_requests
    assert (
        f"Llama 3.1 8B on one B200, requests of 16K: fits: {fits} requests; cache: 80.00 GiB"
        in said.replace("\u00a0", " ")
    )
    assert "As in the example: 40 concurrent requests." in said  # what the question does not say
    assert "Not used: engine sglang" in said
    ask(page, "how accurate is sglang")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.startsWith('By engine')")


def test_what_a_format_saves_is_said_in_gpus_too(page, address):
    """ "FP8 KV cache or fewer GPUs" took three questions."""
    page.goto(address)
    ask(page, "fp8 kv cache or fewer gpus for llama 3.1 70b at 32k on h100")
    until(page, "document.querySelector('[data-kv-remark]')?.textContent.includes('in place of 4')")
    said = page.locator("[data-kv-remark]").inner_text()
    wide, small = (
        estimate(
            "meta-llama/Llama-3.1-70B-Instruct",
            gpu="h100-sxm-80gb",
            tensor_parallel=4,
            context_tokens=32768,
            kv=kv,
        )
        for kv in ("bf16", "fp8")
    )
    held = wide.max_concurrent_requests
    assert f"On 4 × H100: {small.max_concurrent_requests} requests in place of {held}." in said
    assert f"The same {held} requests need as many GPUs: 4 × H100." in said
    assert "One request fits on 2 × H100 in place of 4 × H100." in said


def test_what_helps_is_printed_where_a_context_does_not_fit(tiny_site):
    """Without scripts, a page said how much is missing and nothing of what helps."""
    text = " ".join(
        re.sub("<[^>]*>", " ", tiny_site.html("models/meta-llama--Llama-3.1-70B-Instruct/")).split()
    )
    asked = {"gpu": "h100-sxm-80gb", "context_tokens": 32768}
    model = "meta-llama/Llama-3.1-70B-Instruct"
    short = estimate(model, tensor_parallel=2, **asked)
    more = estimate(model, tensor_parallel=4, **asked).max_concurrent_requests
    small = estimate(model, tensor_parallel=2, kv="fp8", **asked).max_concurrent_requests
    assert not short.max_concurrent_requests
    assert (
        f"For a request of 32K tokens, 2 × H100 lack {short.shortfall_bytes / 2**30:.1f} GiB per GPU." in text
    )
    assert f"What helps: 4 GPUs ({more} requests fit); a KV cache in FP8 ({small});" in text
    assert f"a context of at most {short.max_context_tokens:,} tokens" in text


def test_ollama_is_started_with_the_settings_of_the_answer(page, address):
    page.goto(address)
    ask(page, "ollama llama 3.1 8b rtx 4090 cache q8_0 16k")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('OLLAMA_')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    assert (
        "OLLAMA_CONTEXT_LENGTH=16384 OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_NUM_PARALLEL=1"
        in said
    )


def test_a_comparison_of_gpus_engines_or_models_is_answered_in_the_box(page, address):
    """The box led to the page of comparisons, and said nothing of either side."""
    page.goto(address)
    sides = {
        gpu: estimate(LLAMA, gpu=gpu, context_tokens=8192) for gpu in ("h100-sxm-80gb", "b200-sxm-180gb")
    }
    ask(page, "h100 or b200 for llama 3.1 8b: which serves more")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('more context')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    for name, one in zip(("H100", "B200"), sides.values(), strict=True):
        assert (
            f"One {name}: KV cache for {one.kv_pool_tokens:,} tokens, {one.max_concurrent_requests} requests of 8K"
            in said
        )
    assert "One B200 holds more context" in said
    ask(page, "vllm vs sglang for llama 3.1 8b on h100")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('SGLang')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    assert said.startswith("Llama 3.1 8B on one H100 and weights as released. ")
    assert re.search(r"vLLM [\d.]+: KV cache for .* SGLang [\d.]+: KV cache for ", said)
    ask(page, "llama 3.1 8b or gpt-oss 20b on h100")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('gpt-oss-20b')")
    assert "gpt-oss-20b holds more context" in page.locator("[data-kv-slot=headline]").inner_text()


def test_a_question_about_speed_is_answered_with_its_bounds(page, address):
    """ "tokens/s" was no setting of the page, and nothing was said of it."""
    page.goto(address)
    ask(page, "how many tokens/s does llama 3.1 8b write on one h100 at 16k")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('tokens/s each')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    q = quantities()
    one = q.decode_time("llama-3.1-8b", "H100", tokens=16384)
    first = q.prefill_time("llama-3.1-8b", "H100", tokens=16384)
    assert f"at most {1 / one:.0f} tokens/s for one request of 16K" in said
    assert (
        f"Prefill of 16K takes at least {first:.1f} s." in said or f"at least {first * 1e3:.0f} ms." in said
    )


def test_one_case_in_two_forms_is_answered_for_both(page, address):
    """ "tp 2 vs 4" and "fp8 vs int4" kept the first and dropped the second."""
    page.goto(address)
    model = "meta-llama/Llama-3.1-70B-Instruct"
    ask(page, "llama 3.1 70b h100 tensor parallel 4 vs 8")
    until(
        page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('8 × H100: KV cache')"
    )
    said = page.locator("[data-kv-slot=headline]").inner_text()
    for tp in (4, 8):
        one = estimate(model, gpu="h100-sxm-80gb", tensor_parallel=tp, context_tokens=8192)
        assert (
            f"{tp} × H100: KV cache for {one.kv_pool_tokens:,} tokens, {one.max_concurrent_requests} requests"
            in said
        )
    ask(page, "llama 3.1 70b fp8 or int4 on one h100 at 16k")
    until(page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('Weights in INT4')")
    said = page.locator("[data-kv-slot=headline]").inner_text()
    assert "Weights in FP8, one scale per output channel: no request of 16K fits" in said
    one = estimate(model, gpu="h100-sxm-80gb", context_tokens=16384, weights="int4")
    assert (
        f"KV cache for {one.kv_pool_tokens:,} tokens, {one.max_concurrent_requests} requests of 16K at once"
        in said
    )


def test_people_on_a_gpu_are_told_how_many_of_them_it_serves_at_once(page, address):
    page.goto(address)
    ask(page, "20 students share one 4090 with llama 3.1 8b, 2k each")
    until(
        page, "document.querySelector('[data-kv-slot=headline]').textContent.includes('at the same moment')"
    )
    users = estimate(LLAMA, gpu="rtx-4090", context_tokens=2048).max_concurrent_requests
    enough = "enough" if users >= 20 else "not enough"
    said = page.locator("[data-kv-slot=headline]").inner_text()
    assert f"serves {users} requests of 2K at once on one RTX 4090, which is {enough} if all 20" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "vllm 0.29 vs 0.30 llama 3.1 8b h100",
            [
                "The numbers of this site for vLLM 0.29 to 0.32 are those of 0.32.0.",
                "changed between vLLM 0.29 and 0.30. Since 0.30: ",
                "KV cache for ",
            ],
        ),
        (
            "Why does it print fewer tokens in vLLM 0.30 than in 0.29?",
            ["changed between vLLM 0.29 and 0.30."],
        ),
        (
            "vllm 0.10 vs 0.33 llama 3.1 8b h100",
            ["Compare has no vLLM 0.10; the nearest: vLLM 0.11 to 0.16.", "vLLM 0.11 to 0.16: KV cache for "],
        ),
    ],
)
def test_two_releases_are_told_apart_by_their_rules(page, address, text, said):
    """Releases of one range were answered as if one had been named, or by a list of pages."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, text)
    page.wait_for_selector("[data-kv-slot=headline] a[href*='data/engine-releases/#vllm']")
    headline = page.inner_text("[data-kv-slot=headline]")
    assert [part for part in said if part not in headline] == []


def test_formats_of_the_cache_are_no_formats_of_the_weights(page, address):
    """ "In 16 bits and in FP8" became an FP8 checkpoint with 16-bit weights."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "How large is the KV cache of Llama 3.1 8B at 32K tokens, in 16 bits and in FP8?")
    page.locator(
        "[data-kv-remark]",
        has_text="4.00 GiB of KV cache in 16-bit (BF16 or FP16) or 2.00 GiB of KV cache in FP8 for 1 request of 32K tokens",
    ).wait_for()


def test_a_setting_is_answered_with_the_tokens_that_it_costs(page, address):
    """The question led to the sizer because of the word "cost", or showed more GPUs without a word."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "what does --max-num-batched-tokens 16384 cost in cache tokens for llama 3.1 8b on an rtx 4090")
    note = page.locator("[data-kv-remark]", has_text="the KV pool holds")
    note.wait_for()
    before, after = (
        estimate(LLAMA, gpu="rtx-4090", max_batched_tokens=step, context_tokens=8192)
        for step in (None, 16384)
    )
    assert (
        f"On one RTX 4090, the KV pool holds {after.kv_pool_tokens:,} tokens with 16,384 batched tokens, "
        f"compared with {before.kv_pool_tokens:,} by default: {before.kv_pool_tokens - after.kv_pool_tokens:,} fewer."
        in note.inner_text()
    )


def test_numbers_of_one_gpu_are_compared(page, address):
    """Of "1, 2 and 4 H100" the last was taken."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "llama 3.1 70b on 1, 2 and 4 h100: what does one gpu more bring?")
    page.wait_for_selector("text=as many tokens")
    said = page.inner_text("[data-kv-slot=headline]")
    assert "One H100: no request of 8K fits" in said
    for number in (2, 4):
        answer = estimate(
            "meta-llama/Llama-3.1-70B-Instruct",
            gpu="h100-sxm-80gb",
            context_tokens=8192,
            tensor_parallel=number,
        )
        what = (
            f"{number} × H100: KV cache for {answer.kv_pool_tokens:,} tokens"
            if answer.max_concurrent_requests
            else f"{number} × H100: no request"
        )
        assert what in said


def test_each_side_keeps_its_own_format(page, address):
    """Of two formats, each named with one model, one was not used."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "llama 3.1 8b fp8 vs qwen3.6 27b int4 on 2 h100")
    page.wait_for_selector("text=as many tokens")
    said = page.inner_text("[data-kv-slot=headline]")
    for model, weights in ((LLAMA, "fp8"), ("Qwen/Qwen3.6-27B", "int4")):
        answer = estimate(model, gpu="h100-sxm-80gb", context_tokens=8192, tensor_parallel=2, weights=weights)
        name = open_catalog().model(model).name
        assert re.search(
            rf"{name} with weights in {weights}[^.:]*: KV cache for {answer.kv_pool_tokens:,} tokens",
            said,
            re.I,
        )
    ask(page, "awq or fp8 for llama 3.1 8b")
    page.wait_for_selector("text=Weights in INT4 in groups of 128 (AWQ, GPTQ) hold more context")


def test_prefix_caching_with_states_is_answered_by_engine(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "does prefix caching work with hybrid models such as qwen3.6 27b, and what does a state cost?")
    page.wait_for_selector("text=Yes, prefix caching works with Qwen3.6 27B, which has recurrent states.")
    said = page.inner_text("[data-kv-slot=headline]")
    state = quantities().state("qwen3.6-27b") / 2**30
    assert f"The states of one request take {state:.2f} GiB" in said
    assert "vLLM has it on by default since 0.28" in said


def test_ollama_without_a_machine_gets_the_whole_memory(page, address):
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(page, "I pasted `ollama run llama3.1:8b`: how much VRAM does it need with 64K?")
    page.wait_for_selector("text=on the GPU with one slot of 64K tokens in Ollama")
    said = page.inner_text("[data-kv-slot=headline]")
    whole, weights, cache, buffers = (
        float(one)
        for one in re.search(
            r"needs ([\d.]+) GiB on the GPU.*?: ([\d.]+) GiB of weights .*?KV cache ([\d.]+), compute buffers ([\d.]+)",
            said,
        ).groups()
    )
    assert abs(weights + cache + buffers - whole) < 0.1
    assert cache == 8.0


def test_layouts_that_a_question_names_come_first(page, address):
    """Pipelines against tensor parallelism over two servers was a dead end, or nine layouts with none of the two first."""
    page.goto(address)
    page.wait_for_selector("[data-kv-shown]")
    ask(
        page,
        "does pipeline parallelism over two nodes change the requests compared with TP 16? DeepSeek-V3 on 16 b200",
    )
    note = page.locator(
        "[data-kv-remark]", has_text="Requests of 8K tokens at once on 16 × B200, by layout: "
    )
    note.wait_for()
    asked = {"gpu": "b200-sxm-180gb", "context_tokens": 8192}
    deep = "deepseek-ai/DeepSeek-V3"
    staged = estimate(deep, tensor_parallel=8, pipeline_parallel=2, **asked).max_concurrent_requests
    tensors = estimate(deep, tensor_parallel=16, **asked).max_concurrent_requests
    told = sorted((("PP 2 + TP 8", staged), ("TP 16", tensors)), key=lambda one: -one[1])
    assert (
        f"by layout: {'; '.join(f'{name}: {number:,}' for name, number in told)}. Other layouts: "
        in note.inner_text()
    )
