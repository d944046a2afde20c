"""Tasks of a new reader, each from the front page in at most five actions, with the answer that the package gives."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import pytest
from visits import Visit, address, browser

from kvreport import estimate
from kvreport.catalog.load import load_catalogue

pytestmark = [pytest.mark.browser, pytest.mark.slow]

__all__ = ["address", "browser"]  # fixtures

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
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_function(
            "() => { const root = document.querySelector('[data-kv-shown]');"
            " return document.querySelector('[data-kv-state], [data-kv-gpupage]') === null"
            " || (root && root.dataset.kvShown === (location.search || 'printed')); }"
        )

    def act(self, action: Any) -> None:
        """Do one thing and wait for its answer."""
        self.actions += 1
        action()
        self.page.wait_for_timeout(250)
        self.page.mouse.move(4 + self.actions, 4)
        self.settle()

    def ask(self, text: str) -> None:
        """Type a question and send it."""
        self.act(lambda: (self.page.fill("#kv-asked", text), self.page.press("#kv-asked", "Enter")))

    def choose(self, field: str, value: str) -> None:
        """Choose from a select."""
        self.act(lambda: self.page.select_option(field, value))

    def type(self, field: str, text: str) -> None:
        """Fill a field in."""
        self.act(lambda: (self.page.fill(field, text), self.page.press(field, "Enter")))

    def pick(self, field: str, text: str) -> None:
        """Type into a picker and take its first entry."""

        def picking() -> None:
            self.page.click(field)
            self.page.keyboard.type(text)
            self.page.locator(".kv-picker [role=option]").first.wait_for()
            self.page.wait_for_timeout(150)
            self.page.keyboard.press("Enter")

        self.act(picking)

    def click(self, selector: str) -> None:
        """Click."""
        self.act(self.page.locator(selector).first.click)

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
    """``estimate`` with the site's catalogue."""
    catalogue = load_catalogue(tiny_site.catalogue)
    return lambda model, **asked: estimate(model, catalog=catalogue, **asked)


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
    assert "Limited by max_num_seqs" in reader.headline


def test_another_release_of_the_engine(reader, answer):
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-engine", "vllm-0.11")
    want = answer(LLAMA_8B, gpu="H100", context_tokens="8K", engine="vllm-0.11")
    assert reader.requests() == want.max_concurrent_requests
    assert "vLLM 0.11" in reader.page.locator("[data-kv-slot=conditions]").inner_text()


def test_another_engine(reader, answer):
    reader.click(".kv-more-fields summary")
    reader.choose("#kv-engine", "sglang")
    want = answer(LLAMA_8B, gpu="H100", context_tokens="8K", engine="sglang")
    assert reader.requests() == want.max_concurrent_requests


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
    assert "dp8-ep" in reader.headline


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
