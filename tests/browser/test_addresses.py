"""An address is never half read: a page uses each value that it names, or says beside its answer that it does not."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LLAMA, QWEN = "meta-llama--Llama-3.1-8B-Instruct", "Qwen--Qwen3.6-27B"
SHOWN: Final = "document.querySelector('[data-kv-shown]')?.dataset.kvShown === location.search"
DRAWS: Final = 4
WAIT_S: Final = 30
"""Some pages say only with their answer that it stands: three seconds were too few for a machine with other work."""
COMMON: Final = {
    "gpu": ("moon-9000", "rtx-4090 + moon"),
    "model": ("acme--nothing",),
    "weights": ("q9_k", "FP8"),
    "kv": ("int1",),
    "engine": ("moon", "vllm@9.9", "vllm-9.9"),
    "context": ("0", "-5", "9.5", "2G", "abc"),
    "requests": ("0", "many", "-1"),
    "moon": ("1",),
    "unit": ("parsec",),
    "ollama": ("yes",),
}
"""Values that no page of the tiny site knows, by key."""


@dataclass(frozen=True)
class Case:
    """What a page is asked.

    Attributes:
        uri: The page.
        place: Where its answer stands, and what it says of values that it does not use.
        known: By key, values that the page has, and the words that its answer or a field then shows.
        unknown: Further values, by key, that it has not.
        ready: Expression that holds when the answer stands.
        fixed: What every address of it says.
    """

    uri: str
    place: str
    known: Mapping[str, Mapping[str, str]]
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ready: str = SHOWN
    fixed: Mapping[str, str] = field(default_factory=dict)


STATE: Final = {
    "gpu": {"b200-sxm-180gb": "B200", "rtx-4090": "RTX 4090"},
    "weights": {"fp8": "FP8", "int4": "INT4", "released": "as released"},
    "kv": {"fp8": "FP8"},
    "engine": {"sglang": "SGLang", "ceiling": "No engine overhead", "vllm-0.11": "vLLM 0.11"},
    "context": {"32K": "32K", "16384": "16K", "1M": "1M"},
    "tp": {"2": "2 ×", "8": "8 ×"},
    "nodes": {"2": "2 nodes"},
    "share": {"0.5": "memory share 0.5"},
    "seqs": {"7": "max_num_seqs 7"},
    "eager": {"1": "no CUDA graphs"},
}
CASES: Final = {
    "home": Case(
        "",
        ".md-content",
        {"model": {QWEN: "Qwen3.6 27B"}, **STATE},
        {"share": ("7", "x"), "tp": ("x", "1.5")},
    ),
    "model": Case("models/openai--gpt-oss-20b/", ".md-content", STATE, {"share": ("0",), "seqs": ("0", "x")}),
    "gpu": Case(
        "gpus/h100-sxm-80gb/",
        ".md-content",
        {
            "context": STATE["context"],
            "tp": {"4": "4 GPUs"},
            "engine": {"sglang": "SGLang", "ceiling": "No engine overhead"},
            "share": STATE["share"],
            "eager": STATE["eager"],
        },
    ),
    "compare": Case(
        "compare/",
        ".kv-compare",
        {
            "models": {LLAMA: "Llama 3.1 8B", QWEN: "Qwen3.6 27B"},
            "weights": STATE["weights"],
            "engine": {"sglang": "SGLang", "vllm-0.11": "vLLM 0.11"},
            "context": STATE["context"],
            "gpu": STATE["gpu"],
            "tp": {"2": "2 GPUs each", "fewest": "Smallest number for each"},
            "nodes": {"2": "2 nodes"},
            "per": {"gpu": "requests per GPU"},
        },
        {"models": ("acme--nothing",), "per": ("user",), "prices": ("h100=free", "moon=3")},
    ),
    "sizer": Case(
        "sizer/",
        "[data-kv-sized]",
        {
            "model": {LLAMA: "Llama 3.1 8B", QWEN: "Qwen3.6 27B"},
            "gpu": STATE["gpu"],
            "context": {"16K": "16K"},
            "concurrent": {"40": "40"},
        },
        {"context": ("abc", "-5"), "concurrent": ("x", "-3"), "kv": ("int1",)},
        ready="['sized', 'refused'].includes(document.querySelector('[data-kv-sized]').dataset.kvState)",
    ),
    "traffic": Case(
        "traffic/",
        "[data-kv-trafficked]",
        {"model": {LLAMA: "Llama 3.1 8B"}, "gpu": {"b200-sxm-180gb": "B200"}},
        {"tp": ("3", "x"), "trace": ("moon",)},
        ready="document.readyState === 'complete'",
    ),
    "log": Case(
        "log/", ".kv-logged", {"gpu": {"b200-sxm-180gb": "B200"}}, ready="document.readyState === 'complete'"
    ),
    "question": Case(
        "questions/first/",
        ".md-content",
        {
            "model": {QWEN: "Qwen3.6 27B"},
            "gpu": {"b200-sxm-180gb": "B200"},
            "context": {"16K": "16K"},
            "tp": {"2": "2 ×"},
        },
        {"pp": ("2",), "dp": ("8",), "ep": ("1",), "share": ("0.5",)},
    ),
    "explorer": Case(
        "explore/",
        ".kv-explore",
        {
            "model": {LLAMA: "Llama 3.1 8B"},
            "gpu": {"b200-sxm-180gb": "B200"},
            "context": {"16384": "16K"},
            "requests": {"0": "", "12": "12"},
        },
        {"requests": ("many", "-1")},
        ready="document.querySelector('[data-kv-shown]')?.dataset.kvShown",
    ),
    "models": Case(
        "models/", ".md-content", {}, {"sort": ("moon",)}, ready="document.readyState === 'complete'"
    ),
    "card": Case(
        "embed/",
        "body",
        {},
        ready="document.querySelector('.kv-embed-message')",
        fixed={"model": LLAMA, "gpu": "h100-sxm-80gb"},
        unknown={"context": ("32K", "1M"), "engine": ("sglang",)},
    ),
}


def drawn(case: Case, random_: random.Random) -> list[tuple[str, str, str | None]]:
    """(key, value, words to find or None where the page does not have it), each key once or, to be told apart, twice."""
    strange = {**COMMON, **case.unknown}
    if case.fixed:
        strange = dict(case.unknown)
    asked: list[tuple[str, str, str | None]] = []
    for key in sorted({*strange, *case.known}):
        knows, lacks = case.known.get(key, {}), strange.get(key, ())
        if random_.random() < 0.4:
            continue
        if knows and (not lacks or random_.random() < 0.6):
            value = random_.choice(sorted(knows))
            asked.append((key, value, knows[value]))
        elif lacks:
            asked.append((key, random_.choice(lacks), None))
    return asked


def told(page: Any, place: str) -> str:
    """What stands in the answer's place, and in the fields of the page's form."""
    fields = page.eval_on_selector_all(
        "form input, form select",
        "(all) => all.map((one) => one.selectedOptions?.[0]?.textContent ?? one.value).join('\\n')",
    )
    return f"{page.inner_text(place)}\n{fields}"


def missed(page: Any, case: Case, asked: list[tuple[str, str, str | None]]) -> list[str]:
    """The values that the page neither shows nor says that it does not use."""
    text = told(page, case.place)
    notes = "\n".join(
        page.locator(f"{case.place} >> css=.kv-ignored, .kv-refused, .kv-embed-note").all_inner_texts()
    )
    left = []
    for key, value, words in asked:
        said = f"{key}={value}" in notes or f"price {value}" in notes or f"“{value}”" in text
        # A refusal names the first value that is wrong; no answer stands beside the others.
        said |= page.locator(f"{case.place} .kv-refused").count() > 0
        if not said and (words is None or words.lower() not in text.lower()):
            left.append(f"{key}={value}")
    return left


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    made = Visit(browser, address, viewport={"width": 1280, "height": 900})
    yield made
    made.context.close()


def opened(visit: Visit, case: Case, pairs: list[tuple[str, str]]) -> Any:
    query = urlencode([*case.fixed.items(), *pairs])
    if case.uri == "embed/":
        visit.page.goto(f"{visit.address}{case.uri}?{query}")
        page = visit.page
    else:
        page = visit.go(f"{case.uri}?{query}")
    page.wait_for_function(case.ready)
    return page


@pytest.mark.parametrize("name", CASES)
def test_each_value_of_an_address_is_used_or_named_as_unused(visit: Visit, name: str) -> None:
    case = CASES[name]
    random_ = random.Random(f"address {name}")  # noqa: S311 - a spread of cases, no secret
    for _ in range(DRAWS):
        asked = drawn(case, random_)
        if not asked:
            continue
        page = opened(visit, case, [(key, value) for key, value, _ in asked])
        ends = time.monotonic() + WAIT_S
        while missed(page, case, asked) and time.monotonic() < ends:
            page.wait_for_timeout(50)
        assert not missed(page, case, asked), (page.url, told(page, case.place))


def test_of_a_value_that_is_said_twice_one_is_named_as_unused(visit: Visit) -> None:
    twice = [("gpu", "rtx-4090"), ("gpu", "b200-sxm-180gb")]
    for name in ("home", "compare", "sizer", "traffic", "log"):
        page = opened(visit, CASES[name], twice)
        note = page.locator(".kv-ignored", has_text="gpu=b200-sxm-180gb")
        note.first.wait_for()
        assert "RTX 4090" in told(page, CASES[name].place)
    page = opened(visit, CASES["home"], [("gpu", "rtx-4090*4"), ("tp", "2")])
    page.locator(".kv-ignored", has_text="gpu=rtx-4090*4 (the layout says 2)").wait_for()


def test_an_engine_that_does_not_run_the_model_leaves_no_answer_of_another(visit: Visit) -> None:
    """The numbers that stood on the page before are of another question."""
    visit.page.route("**/engines/sglang.json", lambda route: route.fulfill(json=without(route, QWEN)))
    page = opened(visit, CASES["home"], [("model", QWEN), ("engine", "sglang")])
    assert "does not run Qwen3.6 27B" in page.inner_text("[data-kv-slot=headline]")
    assert not page.locator("[data-kv-slot=table] td:visible, [data-kv-slot=bar] figure:visible").count()
    page = opened(visit, CASES["compare"], [("models", QWEN), ("models", LLAMA), ("engine", "sglang")])
    assert "does not run Qwen3.6 27B" in page.inner_text(".kv-said")
    assert not page.locator("#compare-table td").count()
    assert page.locator(".kv-chosen button").count() == 2


def without(route: Any, slug: str) -> Any:
    """An engine's file, as if it had no numbers of a model."""
    content = route.fetch().json()
    content["models"] = [one for one in content["models"] if one != slug]
    return content


def test_a_comparison_never_cuts_a_context_to_the_limit_of_a_model(visit: Visit) -> None:
    """256K is more than Llama 3.1 8B takes: no speed and no price, and the other model decides the number of GPUs."""
    case = CASES["compare"]
    pairs = [("models", LLAMA), ("models", QWEN), ("context", "256K"), ("prices", "h100=2")]
    page = opened(visit, case, pairs)
    assert (
        "Requests of 256K tokens exceed the limit of Llama 3.1 8B (at most 128K), so there are no numbers at that length"
        in page.inner_text(".kv-said")
    )
    rows = page.eval_on_selector_all(
        "#compare-table tbody tr",
        "(all) => all.map((row) => Array.from(row.cells, (cell) => cell.textContent))",
    )
    heads = page.eval_on_selector_all("#compare-table thead th", "(all) => all.map((one) => one.textContent)")
    by_model = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    short, long = by_model["Llama 3.1 8B"], by_model["Qwen3.6 27B"]
    for column in ("Maximum speedtokens/s", "Price per requestper hour", "256K"):
        assert short[column] == "over limit"
        assert re.fullmatch(r"[\d,.]+", long[column]), column
    page = opened(visit, case, [pairs[1], *pairs[2:]])
    alone = page.eval_on_selector_all(
        "#compare-table tbody tr", "(all) => all.map((row) => row.cells[1].textContent)"
    )
    assert long["GPUs"] == alone[0]


def test_a_log_that_is_too_large_is_refused_and_not_cut(visit: Visit) -> None:
    page = opened(visit, CASES["log"], [])
    page.wait_for_function("document.querySelector('input[role=combobox]')")
    page.evaluate(
        """() => {
            const held = new DataTransfer();
            held.items.add(new File(["INFO line\\n".repeat(2_100_000)], "long.log"));
            document.querySelector("[name=log]").dispatchEvent(new DragEvent("drop", {dataTransfer: held, cancelable: true}));
        }"""
    )
    page.locator(".kv-logged", has_text="long.log has over 20 MB").wait_for()
    assert page.input_value("[name=log]") == ""


@pytest.mark.parametrize(
    "address_of", ["?gpu=h999", "models/meta-llama--Llama-3.1-8B-Instruct/?gpu=h999&tp=2"]
)
def test_an_unknown_gpu_is_named_where_the_answer_of_another_stands(visit: Visit, address_of: str) -> None:
    """The answer of another GPU stood there, with a small note in grey next to the form."""
    page = visit.go(address_of)
    note = page.locator(
        "[data-kv-remark] strong.kv-wrong", has_text="The address names “h999”, which is not known here."
    )
    note.wait_for()
    assert "The answer below is for H100 80GB HBM3 (SXM5)." in note.inner_text()
