"""Tasks of a new reader, each from the front page in at most five actions, with the answer that the package gives."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from typing import Any

import pytest
from serving import until
from visits import Visit

from kvreport import estimate, size
from kvreport.catalog.load import load_catalog
from kvreport.traffic.answers import replay

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MOST_ACTIONS = 5
HEADLINE = "[data-kv-slot=headline]"
LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"


class Reader:
    """A reader on the site: every action is counted."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.page, self.actions = visit, visit.go(""), 0
        self.settle()

    def settle(self) -> None:
        """Wait until the page shows what its address says."""
        self.visit.settle()
        self.page.wait_for_function(
            "() => { const root = document.querySelector('[data-kv-shown]');"
            " return document.querySelector('form[data-kv-state], [data-kv-gpupage]') === null"
            " || (root && root.dataset.kvShown === (location.search || 'printed')); }"
        )

    def act(self, action: Any) -> None:
        """Do one thing and wait for its answer."""
        self.actions += 1
        action()
        self.page.mouse.move(4 + self.actions, 4)
        self.settle()

    def ask(self, text: str) -> None:
        """Type a question and send it."""

        def asking() -> None:
            told = self.page.locator("[data-kv-understood]").inner_text()
            self.page.fill("#kv-asked", text)
            self.page.press("#kv-asked", "Enter")
            self.page.wait_for_function(
                "(old) => document.querySelector('[data-kv-understood]').innerText !== old", arg=told
            )

        self.act(asking)

    def choose(self, field: str, value: str) -> None:
        """Choose from a select."""
        self.act(lambda: self.page.select_option(field, value))

    def type(self, field: str, text: str) -> None:
        """Fill a field in."""
        self.act(lambda: (self.page.fill(field, text), self.page.press(field, "Enter")))

    def type_into(self, field: str, text: str) -> None:
        """Paste a text."""
        self.act(lambda: self.page.fill(field, text))

    def pick(self, field: str, text: str) -> None:
        """Type into a picker and take its first entry."""

        def picking() -> None:
            self.page.click(field)
            self.page.keyboard.type(text)
            self.page.wait_for_function(
                "([field, text]) => document.querySelector(field).closest('.kv-picker').querySelector('[role=option]')"
                "?.textContent.toLowerCase().replace(/[^a-z0-9]/g, '').includes(text)",
                arg=[field, re.sub("[^a-z0-9]", "", text.lower())],
            )
            self.page.keyboard.press("Enter")

        self.act(picking)

    def click(self, selector: str) -> None:
        """Click, and wait for the page where it leads."""

        def clicking() -> None:
            place = self.page.locator(selector).first
            leads = place.evaluate("(one) => one.closest('a')?.pathname ?? null")
            place.click()
            if leads:
                self.page.wait_for_function("(path) => location.pathname === path", arg=leads)

        self.act(clicking)

    @property
    def headline(self) -> str:
        """The conclusion as it stands."""
        return " ".join(self.page.locator(HEADLINE).inner_text().split())

    def requests(self) -> int:
        """The number of requests that the conclusion says."""
        found = re.search(r"serves ([\d,]+) concurrent request", self.headline)
        assert found, self.headline
        return int(found[1].replace(",", ""))


@pytest.fixture
def reader(browser, address) -> Iterator[Reader]:
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made = Reader(visit)
    yield made
    actions, faults = made.actions, visit.faults
    visit.context.close()
    assert not faults
    assert 0 < actions <= MOST_ACTIONS


@pytest.fixture(scope="module")
def answer(tiny_site) -> Any:
    """``estimate`` with the site's catalog."""
    catalog = load_catalog(tiny_site.catalog)
    return lambda model, **asked: estimate(model, catalog=catalog, **asked)


def fewest(answer: Any, model: str, wanted: int = 1, **asked: Any) -> Any:
    """The answer on the fewest GPUs that run so many requests."""
    each = [answer(model, tensor_parallel=number, **asked) for number in (1, 2, 4, 8)]
    return next(one for one in each if one.max_concurrent_requests >= wanted)


def test_a_question_in_words(reader, answer):
    reader.ask("llama 70b 4x h100 32k fp8")
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="32K", weights="fp8")
    assert reader.requests() == want.max_concurrent_requests
    assert "Llama 3.1 70B · 4 ×" in reader.page.locator("[data-kv-understood]").inner_text()
    assert reader.page.locator("#kv-layout").input_value() == "tp4"


def test_a_bare_count_before_the_gpu_and_words_around_it(reader, answer):
    reader.ask("how many users for llama 70b on 4 h100?")
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests
    assert "Not understood" not in reader.page.locator("[data-kv-understood]").inner_text()


WAYS = "[data-kv-slot=conditions] a"
"""Links to where a question is answered, in the answer's place."""


@pytest.mark.parametrize(
    ("text", "said", "command"),
    [
        (
            "llama 8b rtx 4090 24gb q4_k_m ollama",
            "“q4_k_m”, “ollama” are about one computer",
            "kvreport estimate meta-llama/Llama-3.1-8B-Instruct --gpu rtx-4090 --engine ollama --weights q4_k_m",
        ),
        ("llama 8b on a mac studio 128gb", "“mac studio 128gb” is about one computer", None),
    ],
)
def test_programs_of_one_computer_lead_to_their_answer(reader, text, said, command):
    """The answer of a server stood there, for a GPU that nobody asked for."""
    reader.ask(text)
    told = reader.page.locator("[data-kv-understood]")
    assert "Not understood" not in told.inner_text()
    assert said in reader.headline
    assert "concurrent request" not in reader.page.locator(".kv-answer").inner_text()
    links = reader.page.locator(WAYS).evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert f"{reader.visit.address}models/meta-llama--Llama-3.1-8B-Instruct/#home" in links
    shown = reader.page.locator("[data-kv-slot=commands] code")
    assert (shown.inner_text() if shown.count() else None) == command


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (  # the tiny site has no H200
            "compare h100 and h200 for llama 70b",
            "compare/?model=meta-llama--Llama-3.1-70B-Instruct&gpu=h100-sxm-80gb",
        ),
        (
            "compare h100 and b200 for llama 70b",
            "compare/?model=meta-llama--Llama-3.1-70B-Instruct&gpus=h100-sxm-80gb&gpus=b200-sxm-180gb",
        ),
        (
            "which gpu for 20 users of llama 70b",
            "sizer/?model=meta-llama--Llama-3.1-70B-Instruct&concurrent=20&prompt=none&context=8K&average=8K&burst=1&spares=0",
        ),
        ("best coding model rtx 4090 64k", "gpus/rtx-4090/?context=65536"),
        (
            "vllm vs sglang llama 8b h100",
            "compare/?model=meta-llama--Llama-3.1-8B-Instruct&engines=vllm,sglang&gpu=h100-sxm-80gb",
        ),
        (
            "vllm 0.11 vs 0.33 llama 8b",
            "compare/?model=meta-llama--Llama-3.1-8B-Instruct&engines=vllm-0.11,vllm",
        ),
    ],
)
def test_a_question_of_another_page_leads_there(reader, text, target):
    reader.ask(text)
    found = reader.page.locator(WAYS).first
    assert found.get_attribute("href") == f"{reader.visit.address}{target}"
    assert not reader.page.locator("[data-kv-slot=bar] svg").count(), "no answer of another question"
    assert not reader.page.locator("[data-kv-slot=chart] svg").count()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("what is a kv cache", "learn/"),
        ("how do evictions work", "questions/?q=how+do+evictions+work"),
    ],
)
def test_a_question_of_no_model_leads_to_the_pages_found_and_to_where_to_begin(reader, text, target):
    reader.ask(text)
    assert reader.headline == "These pages are about it:"
    found = reader.page.locator(WAYS).evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert f"{reader.visit.address}{target}" in found
    assert not reader.page.locator("[data-kv-slot=chart] svg").count()


def test_unequal_gpus_of_one_machine_are_answered_with_a_bar_for_each(reader):
    """A note about data ranks read the layout of each GPU, which only the deployment has."""
    reader.ask("llama 8b h100 + rtx 4090 8k")
    bars = reader.page.locator("[data-kv-slot=bar]")
    assert "could not be read" not in reader.page.locator(".kv-answer").inner_text()
    assert [name in bars.inner_text() for name in ("H100", "RTX 4090")] == [True, True]


def test_a_pasted_start_command_is_answered_on_the_page(reader, answer):
    """It was answered with another command, to be run elsewhere."""
    reader.ask(
        "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --max-model-len 32768 --max-num-seqs 7 --port 80"
    )
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="32K", max_seqs=7)
    assert reader.requests() == want.max_concurrent_requests == 7
    assert "without effect on memory: --port 80" in reader.page.locator("[data-kv-understood]").inner_text()
    assert "No GPU was named" in reader.page.locator("[data-kv-remark]").inner_text()
    reader.ask("vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --enable-lora")
    assert not reader.page.locator("[data-kv-slot=chart] svg").count(), "no answer of another question"
    reader.act(reader.page.locator(WAYS, has_text="the answer without --enable-lora").click)
    reader.page.locator("[data-kv-slot=chart] svg").first.wait_for()
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests


def test_a_question_without_an_answer_keeps_its_address_and_gives_the_next_answer_its_place(reader, answer):
    reader.ask("llama 70b on tgi")
    assert "“tgi” changes the question" in reader.headline
    reader.act(reader.page.reload)
    reader.page.wait_for_function("document.querySelector('.kv-big').textContent.includes('tgi')")
    reader.ask("llama 70b 4x h100 32k please now")
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="32K")
    assert reader.requests() == want.max_concurrent_requests
    assert reader.page.locator("[data-kv-remark]").inner_text() == "Not used: now."
    assert reader.page.locator(".kv-plot svg").first.is_visible()
    reader.act(reader.page.go_back)
    reader.page.wait_for_function("document.querySelector('.kv-big').textContent.includes('tgi')")


def test_a_question_that_was_sent_before_the_scripts_is_answered_and_no_search_opens(reader, address):
    reader.act(lambda: reader.page.goto(f"{address}?ask=llama+3.1+70b+4x+h100"))
    told = reader.page.locator("[data-kv-understood]", has_text="Understood")
    told.wait_for()
    assert "4 ×" in told.inner_text()
    assert not reader.page.is_checked("#__search")
    assert "Ignored" not in reader.page.locator("main").inner_text()


def test_words_that_are_not_understood_are_named(reader, answer):
    reader.ask("gpt-oss 4090 8k flavourful")
    assert "Not understood (1): flavourful" in reader.page.locator("[data-kv-understood]").inner_text()
    want = answer("openai/gpt-oss-20b", gpu="rtx-4090", context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests


def test_another_model_changes_headline_bar_and_chart(reader, answer):
    before = reader.page.locator(".kv-plot svg").first.inner_html()
    reader.pick("#kv-model", "qwen3.6")
    want = fewest(answer, "Qwen/Qwen3.6-27B", gpu="H100", context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests
    assert reader.page.locator("[data-kv-slot=bar] rect.kv-fill-state").count() == 1
    assert reader.page.locator(".kv-plot svg").first.inner_html() != before


def test_another_accelerator_and_context(reader, answer):
    reader.pick("#kv-gpu", "mi300x")
    reader.type("#kv-context", "20000")
    want = answer(LLAMA_8B, gpu="mi300x", context_tokens=20_000)
    assert reader.requests() == want.max_concurrent_requests
    assert reader.visit.query() == {"gpu": ["mi300x"], "context": ["20000"]}


def test_a_smaller_cache_format(reader, answer):
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-kv", "fp8")
    want = answer(LLAMA_8B, gpu="H100", context_tokens="8K", kv="fp8")
    assert reader.requests() == want.max_concurrent_requests


def test_memory_share_and_sequences(reader, answer):
    reader.click(".kv-more-fields summary")
    reader.type("#kv-share", "0.8")
    reader.type("#kv-seqs", "16")
    want = answer(LLAMA_8B, gpu="H100", context_tokens="8K", utilization=0.8, max_seqs=16)
    assert reader.requests() == want.max_concurrent_requests == 16
    assert "The limit is max_num_seqs (16)." in reader.headline


@pytest.mark.parametrize(("engine", "label"), [("vllm-0.11", "vLLM 0.11"), ("sglang", "SGLang")])
def test_another_engine_or_release(reader, answer, engine, label):
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-engine", engine)
    want = answer(LLAMA_8B, gpu="H100", context_tokens="8K", engine=engine)
    assert reader.requests() == want.max_concurrent_requests
    assert label in reader.page.locator("[data-kv-slot=conditions]").inner_text()


def test_requests_wanted_decide_the_number_of_gpus(reader, answer):
    reader.choose("#kv-layout", "")
    reader.click(".kv-more-fields summary")
    reader.type("#kv-requests", "200")
    want = fewest(answer, LLAMA_8B, 200, gpu="H100", context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests
    assert f"{want.request.tensor_parallel} × H100" in reader.headline


def test_why_it_does_not_fit_and_what_would_help(reader, answer):
    reader.ask("llama 70b 1x b200 128k")
    want = answer(LLAMA_70B, gpu="b200-sxm-180gb", context_tokens="128K")
    reader.click("text=Why, and what would help") if want.shortfall_bytes else reader.ask(
        "llama 70b 1x h100 8k"
    )
    if not want.shortfall_bytes:
        want = answer(LLAMA_70B, gpu="H100", context_tokens="8K")
        reader.click("text=Why, and what would help")
    dialog = reader.page.locator("dialog")
    missing = f"{want.shortfall_bytes / 2**30:,.2f} ± {want.budget.uncertainty_bytes / 2**30:,.2f}"
    assert missing in dialog.inner_text()
    more = answer(
        LLAMA_70B,
        gpu=want.request.accelerator.id,
        tensor_parallel=8,
        context_tokens=want.request.context_tokens,
    )
    row = dialog.locator(".kv-levers tr", has_text="8 ×").first
    assert row.locator("td").first.inner_text() == f"{more.max_concurrent_requests:,}"
    reader.act(lambda: row.locator("button").click())
    assert reader.requests() == more.max_concurrent_requests


def test_i_have_a_gpu(reader, answer):
    reader.click(".kv-doors a:has-text('I have a GPU')")
    reader.click("a[href$='gpus/rtx-4090/'], a:has-text('RTX 4090')")
    reader.choose("#kv-layout", "tp1")
    models = (LLAMA_8B, LLAMA_70B, "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.6-27B")
    serving = [
        model
        for model in models
        if answer(model, gpu="rtx-4090", context_tokens="8K").max_concurrent_requests
    ]
    assert f"serves {len(serving)} of {len(models)} models" in reader.headline
    assert reader.page.locator("#users-table tbody tr").count() == len(serving)


def test_i_have_a_model(reader, answer):
    reader.click(".kv-doors a:has-text('I have a model')")
    reader.click("#models-table a:has-text('Llama 3.1 70B')")
    reader.pick("#kv-gpu", "4090")
    want = fewest(answer, LLAMA_70B, gpu="rtx-4090", context_tokens="8K")
    assert reader.requests() == want.max_concurrent_requests
    row = reader.page.locator("#on-rtx-4090")
    assert row.locator("td").nth(4).inner_text() == f"{want.max_concurrent_requests:,}"


def test_a_layout_with_expert_parallelism(reader, answer):
    reader.ask("deepseek v3 b200 dp8 ep 32k")
    want = answer(
        "deepseek-ai/DeepSeek-V3",
        gpu="b200-sxm-180gb",
        data_parallel=8,
        expert_parallel=True,
        context_tokens="32K",
    )
    assert reader.requests() == want.max_concurrent_requests
    assert "(DP 8 attention + expert parallel)" in reader.headline


def test_the_command_computes_the_same_answer(reader, answer):
    reader.ask("qwen3.6 2x h100 16k fp8 kv")
    shown = reader.page.locator("[data-kv-slot=commands] code", has_text="kvreport estimate").inner_text()
    want = answer("Qwen/Qwen3.6-27B", gpu="H100", tensor_parallel=2, context_tokens="16K", kv="fp8")
    assert reader.requests() == want.max_concurrent_requests
    assert (
        shown
        == "kvreport estimate Qwen/Qwen3.6-27B --gpu h100-sxm-80gb --tensor-parallel 2 --context 16K --kv fp8"
    )


def test_a_link_says_the_whole_answer(reader, browser, address, answer):
    reader.ask("llama 8b b200 64k int4")
    told, link = reader.headline, reader.page.url
    other = Visit(browser, address)
    page = other.page
    page.goto(link)
    page.wait_for_function("document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search")
    assert " ".join(page.locator(HEADLINE).inner_text().split()) == told
    other.context.close()
    want = answer(LLAMA_8B, gpu="b200-sxm-180gb", context_tokens="64K", weights="int4")
    assert reader.requests() == want.max_concurrent_requests


def test_accelerators_compared_per_gpu_and_taken_along(reader, answer, tmp_path):
    reader.click(".kv-links a:has-text('Compare'), nav a:has-text('Compare')")
    reader.choose("#kv-what", "gpus")
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-per", "gpu")
    reader.page.wait_for_selector("#compare-table tbody tr")
    with reader.page.expect_download() as waiting:
        reader.click("[data-kv-csv]")
    waiting.value.save_as(tmp_path / "compare.csv")
    with (tmp_path / "compare.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["gpus"] for row in rows}) == 1
    for row in rows:
        number = int(row["gpus"])
        want = answer(LLAMA_8B, gpu=row["gpu"], tensor_parallel=number, context_tokens="8K")
        assert float(row["requests_at_8192"]) == want.max_concurrent_requests / number
        assert float(row["speed_bound_tokens_per_s"]) > 0


def test_a_picker_works_with_the_keyboard_alone(reader):
    reader.act(lambda: reader.page.focus("#kv-model"))
    field = reader.page.locator("#kv-model")
    reader.page.locator(".kv-picker [role=option]").first.wait_for()
    assert field.get_attribute("aria-expanded") == "true"
    groups = reader.page.locator(".kv-picker li > strong").all_inner_texts()
    assert groups[-1] == "All others, newest first"
    reader.act(lambda: reader.page.keyboard.press("ArrowDown"))
    active = field.get_attribute("aria-activedescendant")
    name = reader.page.locator(f"#{active}").inner_text()
    reader.act(lambda: reader.page.keyboard.press("Enter"))
    assert field.get_attribute("aria-expanded") == "false"
    assert name.startswith(field.input_value())


def test_what_runs_on_my_gpu_under_the_release_that_i_have(reader, answer):
    reader.click(".kv-doors a:has-text('I have a GPU')")
    reader.click("a[href$='gpus/h100-sxm-80gb/']")
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-engine", "vllm-0.11")
    want = fewest(answer, "Qwen/Qwen3.6-27B", gpu="H100", context_tokens="8K", engine="vllm-0.11")
    row = reader.page.locator("[id='of-Qwen--Qwen3.6-27B'] td")
    assert reader.visit.query() == {"engine": ["vllm-0.11"]}
    assert row.nth(0).inner_text() == str(want.request.tensor_parallel)
    assert row.nth(4).inner_text() == f"{want.max_concurrent_requests:,}"
    assert "vLLM 0.11" in reader.page.locator("[data-kv-slot=conditions]").inner_text()


def test_a_search_leads_to_a_gpu(reader, answer):
    def searching() -> None:
        reader.page.click(".md-search__input")
        reader.page.locator(".md-search__input").press_sequentially("mi300x")
        reader.page.wait_for_function(
            "document.querySelector('.md-search-result__link')?.pathname.endsWith('gpus/mi300x/')"
        )

    reader.act(searching)
    reader.act(lambda: (reader.page.keyboard.press("Enter"), reader.page.wait_for_url("**/gpus/mi300x/**")))
    want = answer(LLAMA_8B, gpu="mi300x", context_tokens="8K")
    assert reader.page.locator("[id='of-meta-llama--Llama-3.1-8B-Instruct'] td").nth(4).inner_text() == (
        f"{want.max_concurrent_requests:,}"
    )


def test_every_model_for_one_gpu_as_csv(reader, answer, tmp_path):
    reader.click("nav a:has-text('Explore')")
    for facet, value in (("gpu", "b200-sxm-180gb"), ("context", "65536")):
        chip = f"fieldset[data-facet={facet}] .kv-chip[value='{value}']"
        reader.page.locator(chip).wait_for()
        reader.click(chip)
    reader.page.wait_for_function("document.querySelector('.kv-explore').dataset.kvShown === location.search")
    with reader.page.expect_download() as waiting:
        reader.click("text=Download as CSV")
    assert "b200-sxm-180gb-65536" in waiting.value.suggested_filename
    waiting.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 3
    for row in rows:
        want = answer(row["model"], gpu="b200-sxm-180gb", context_tokens=65_536)
        assert int(row["max_concurrent_requests"]) == want.max_concurrent_requests


def test_gpus_for_two_hundred_people_in_a_chat(reader, tiny_site):
    reader.click("nav a:has-text('Sizer')")
    reader.pick("#kv-s-model", "Llama 3.1 70B")
    reader.click("[data-preset]:has-text('Chat')")
    reader.type("#kv-s-users", "200")
    reader.page.wait_for_function(
        "document.querySelector('[data-kv-sized] .kv-big')?.innerText.startsWith('For 200 people')"
    )
    catalog = load_catalog(tiny_site.catalog)
    found = size(
        LLAMA_70B, context="8K", prompt=1500, output=400, shared_prefix=500, users=200, requests_per_minute=0.5,
        latency_s=15, burst=2, spare_replicas=1, ttft_s=1, tpot_s=0.05, efficiency=0.6, layouts=None,
        gpus=sorted(catalog.accelerators), catalog=catalog,
    )  # fmt: skip
    best = found.ranking.best_of_each()[0]
    said = reader.page.locator("[data-kv-sized] .kv-big").inner_text()
    assert said.startswith("For 200 people using Llama 3.1 70B (25 concurrent requests, 50 at peak), use ")
    assert f"{best.devices:,} × {best.offer.accelerator.name.split()[0]}" in said


def test_a_line_of_a_server_s_log(reader):
    reader.click(".kv-doors a:has-text('I have a server log')")
    reader.type_into(
        "textarea[name=log]",
        "INFO 11-22 12:00:00 [kv_cache_utils.py:1] Maximum concurrency for 131,072 tokens per request: 0.40x",
    )
    until(reader.page, "document.querySelector('[data-kv-logged]').innerText.includes('131,072 tokens')")
    said = reader.page.locator("[data-kv-logged]").inner_text()
    assert "0.40×: one request of 131,072 tokens does not fit." in said
    assert re.search(r"32,768\s+1\b", said), said


def test_an_answer_to_cite(reader, answer):
    reader.ask("llama 70b 4x h100 32k")
    reader.click(".kv-share > summary, summary:has-text('Share, cite, print')")
    text = reader.page.locator(".kv-share :is(textarea, input, output, code, pre)").evaluate_all(
        "(all) => all.map((one) => one.value || one.textContent).join('\\n')"
    )
    want = answer(LLAMA_70B, gpu="H100", tensor_parallel=4, context_tokens="32K")
    assert f"{want.max_concurrent_requests:,} concurrent requests" in text
    assert "@misc{kvreport-" in text
    assert "data release" in text
    assert "tp=4" in text


def test_a_model_s_numbers_as_a_file(reader, answer, tmp_path):
    reader.click("nav a:has-text('Models')")
    reader.click("#models-table a:has-text('gpt-oss-20b')")
    link = reader.page.locator("a[href*='gpt-oss-20b'][href$='.csv.gz']").first
    with reader.page.expect_download() as waiting:
        reader.act(lambda: link.evaluate("(one) => { one.download = ''; one.click(); }"))
    waiting.value.save_as(tmp_path / "model.csv.gz")
    with gzip.open(tmp_path / "model.csv.gz", "rt", newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["gpu"], row["layout"], row["context_tokens"]) == ("h100-sxm-80gb", "tp1", "8192")
        ]
    want = answer("openai/gpt-oss-20b", gpu="H100", context_tokens="8K")
    assert str(want.max_concurrent_requests) in {row["max_concurrent_requests"] for row in rows}


def test_the_hit_rate_of_a_published_trace(reader, tiny_site):
    reader.click("nav a:has-text('Traffic')")
    reader.pick("#kv-traffic-model", "Llama 3.1 70B")
    reader.choose("#kv-traffic-tp", "4")
    reader.click("[data-trace=mooncake-synthetic]")
    reader.page.wait_for_selector("[data-kv-trafficked][data-kv-state=answered]")
    want = replay(
        "mooncake-synthetic", LLAMA_70B, gpu="H100", tensor_parallel=4, order_only=True,
        catalog=load_catalog(tiny_site.catalog),
    )  # fmt: skip
    assert f"{want.hit_rate:.1%} of prompt tokens hit the cache" in reader.page.inner_text(
        "[data-kv-trafficked]"
    )
    query = {"trace": ["mooncake-synthetic"], "model": [LLAMA_70B.replace("/", "--")], "tp": ["4"]}
    assert reader.visit.query() == query


def test_two_models_compared_on_equal_gpus(reader, answer):
    reader.click("nav a:has-text('Compare')")
    reader.pick("#kv-add-model", "gpt-oss-20b")
    reader.type("#kv-context", "16K")
    row = reader.page.locator("#compare-table tbody tr", has_text="gpt-oss-20b")
    row.wait_for()
    number = int(row.locator("td").first.inner_text())
    heads = reader.page.locator("#compare-table thead th").all_inner_texts()
    want = answer("openai/gpt-oss-20b", gpu="H100", tensor_parallel=number, context_tokens="16K")
    assert row.locator("th, td").nth(heads.index("16K")).inner_text() == f"{want.max_concurrent_requests:,}"
    others = reader.page.locator("#compare-table tbody tr td:nth-of-type(1)").all_inner_texts()
    assert {int(text) for text in others} == {number}


def test_the_longest_context_of_a_model_on_a_gpu(reader, answer):
    reader.click(".kv-doors a:has-text('I have a model')")
    reader.click("#models-table a:has-text('Llama 3.1 70B')")
    want = fewest(answer, LLAMA_70B, gpu="b200-sxm-180gb", context_tokens="1K")
    row = reader.page.locator("#on-b200-sxm-180gb td")
    assert row.nth(0).inner_text() == str(want.request.tensor_parallel)
    assert row.last.inner_text() == f"{want.max_context_tokens:,}"


def test_usable_memory_of_a_gpu(reader, tiny_site):
    reader.click("nav a:has-text('GPUs')")
    reader.click("#gpus-table a:has-text('MI300X')")
    usable = load_catalog(tiny_site.catalog).accelerator("mi300x").usable_bytes
    assert f"{usable / 2**30:.1f} GiB is usable" in reader.headline
    assert f"{usable:,}" in reader.page.locator("main table").first.inner_text()


def test_a_card_for_one_s_own_page(reader, answer):
    reader.ask("gpt-oss 20b h100")
    reader.click(".kv-share > summary, summary:has-text('Share, cite, print')")
    code = reader.page.locator("#kv-share-embed").input_value()
    want = answer("openai/gpt-oss-20b", gpu="H100", context_tokens="8K")
    assert f"{want.max_concurrent_requests:,} concurrent requests of 8K tokens" in code
    assert "model=openai--gpt-oss-20b" in code


def test_gpus_of_a_named_type_and_their_command(reader, tiny_site):
    reader.click("nav a:has-text('Sizer')")
    reader.pick("#kv-s-model", "Llama 3.1 70B")
    reader.pick("#kv-s-gpu", "mi300x")
    reader.type("#kv-s-concurrent", "100")
    reader.page.wait_for_function(
        "document.querySelector('[data-kv-sized] .kv-big')?.innerText.startsWith('For 100 concurrent')"
    )
    found = size(
        LLAMA_70B, context="8K", prompt=1500, output=400, concurrent=100, burst=1.5, spare_replicas=1, efficiency=0.6,
        layouts=None, gpus=["mi300x"], catalog=load_catalog(tiny_site.catalog),
    )  # fmt: skip
    best = found.ranking.best_of_each()[0]
    said = reader.page.locator("[data-kv-sized] .kv-big").inner_text()
    assert f", use {best.devices:,} × Instinct MI300X: " in said
    start = reader.page.locator("[data-kv-sized] code", has_text="vllm serve").first.inner_text()
    assert f"--max-num-seqs {best.users_each}" in start


def test_enter_takes_what_the_words_in_the_field_name_and_nothing_without_words(
    address: str, browser: Any
) -> None:
    """Enter took the newest model where a name had been put in that the list had not read yet."""
    visit = Visit(browser, address)
    page = visit.go("")
    field = page.locator("input[role=combobox][name=model]")
    field.focus()
    page.locator(".kv-picker [role=option]").first.wait_for()
    before = field.input_value()
    field.press("Enter")
    page.wait_for_function("!document.querySelector('.kv-picker [role=listbox]:not([hidden])')")
    assert field.input_value() == before
    field.blur()
    field.focus()
    page.locator(".kv-picker [role=option]").first.wait_for()
    field.evaluate("(one) => { one.value = 'gpt-oss'; }")
    field.press("Enter")
    page.wait_for_function(
        "document.querySelector('input[role=combobox][name=model]').value.startsWith('gpt-oss-')"
    )
    visit.context.close()
    assert not visit.faults
