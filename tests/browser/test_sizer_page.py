"""The sizer's page in a real browser: it answers, remembers, refuses and keeps quiet."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from serving import until
from visits import hold, let_go, page

from kvreport import estimate
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.cli import main
from kvreport.estimation.size import size
from kvreport.site.pages.sizer import FIELDS

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ANSWER = "[data-kv-sized][data-kv-state]"
MACHINE = "h100-sxm-80gb+b200-sxm-180gb"


def answer(page: Any) -> dict[str, Any]:
    """The JSON that the page would export."""
    page.wait_for_selector("[data-kv-sized][data-kv-state=sized]")
    found: dict[str, Any] = page.eval_on_selector("[data-kv-sized]", "box => box.kvAnswer")
    return found


def sized(model: str, gpu: str, site: Any) -> Any:
    """What Python finds for 40 concurrent requests of 4K tokens with the page's own spare and bursts."""
    return size(
        model,
        context=4096,
        prompt=2000,
        output=500,
        concurrent=40,
        burst=1.5,
        spare_replicas=1,
        gpus=[gpu],
        catalog=open_catalog(site.catalog),
    )


def test_the_sizer_answers_at_once_and_as_python_does(page: Any, address: str, tiny_site) -> None:
    page.goto(f"{address}sizer/?gpu=h100-sxm-80gb&concurrent=40&context=4K&prompt=2000&output=500")
    found = answer(page)
    ours = sized(found["model"], "h100-sxm-80gb", tiny_site)
    best = ours.describe(ours.ranking.deployments[0])
    theirs = found["best"]
    for name in (
        "devices",
        "tensor_parallel",
        "users_per_replica",
        "kv_pool_bytes_per_gpu",
        "binds",
        "commands",
    ):
        assert theirs[name] == best[name], name
    assert theirs["replicas"] == best["replicas"]
    shown = page.inner_text("[data-kv-sized]")
    for words in (
        "For 40 concurrent requests to Llama 3.1 70B (60 at peak), use ",
        "On average",
        "At peak (× 1.5)",
        "With one spare (N+1)",
        "How it is computed",
        "vllm serve",
        "Why this layout",
    ):
        assert words in shown


def test_what_every_alternative_has_in_common_is_said_once(page: Any, address: str) -> None:
    """Columns of "As released" and "16-bit" took a third of the table."""
    page.goto(f"{address}sizer/")
    answer(page)
    table = page.locator("[aria-label='Deployments, best first'] table")
    heads = table.locator("thead th").all_inner_texts()
    caption = table.locator("caption").inner_text()
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert len(rows) > 1
    assert "Weights: As released" in caption.partition("In every row:")[2]
    assert "Weights" not in heads
    for name in ("Weights", "KV cache", "Limited by"):
        assert (name in heads) != (name in caption.partition("In every row:")[2]), name
        if name in heads:
            assert len({row[heads.index(name)] for row in rows}) > 1


def test_a_preset_fills_the_form_and_the_address_remembers_it(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("text=Coding agent")
    until(page, "document.querySelector('[data-kv-sized]').kvAnswer?.workload.longest === 131072")
    kept = answer(page)
    state = parse_qs(urlsplit(page.url).query)
    assert state["context"] == ["128K"]
    page.goto(page.url)
    again = answer(page)
    assert again["workload"] == kept["workload"]
    assert again["best"] == kept["best"]


def test_a_preset_keeps_what_the_reader_typed(page: Any, address: str) -> None:
    """20 developers became the number of the preset, and 100K its context."""
    page.goto(f"{address}sizer/?concurrent=35&prompt=none&context=100K&average=100K")
    answer(page)
    page.click("text=Coding agent")
    until(page, "document.querySelector('[data-kv-sized]').kvAnswer?.workload.prefix === 12000")
    values = {name: page.input_value(f"input[name={name}]") for name in ("concurrent", "context", "average")}
    assert values == {"concurrent": "35", "context": "100K", "average": "100K"}
    assert page.input_value("input[name=output]") == "2000"
    # Requests were typed: the people of another workload do not replace them.
    page.click("text=Chat")
    until(page, "location.search.includes('prefix=500')")
    values = {name: page.input_value(f"input[name={name}]") for name in ("concurrent", "users", "latency")}
    assert values == {"concurrent": "35", "users": "", "latency": ""}
    # Without anything typed, one workload replaces another.
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("text=Coding agent")
    page.click("text=Chat")
    until(page, "document.querySelector('[data-kv-sized]').kvAnswer?.workload.prefix === 500")
    assert page.input_value("input[name=users]") == "500"
    assert page.locator("[data-preset][aria-pressed=true]").inner_text() == "Chat"


def test_what_is_typed_before_the_page_answers_is_answered(page: Any, address: str) -> None:
    held = hold(page, "**/explore/facts.json")
    page.goto(f"{address}sizer/")

    def act() -> None:
        page.fill("input[name=concurrent]", "321")
        page.wait_for_timeout(300)  # the address has it by now
        page.fill("input[name=prompt]", "777")

    let_go(page, held, act)
    until(page, "location.search.includes('prompt=777')")
    assert page.input_value("input[name=concurrent]") == "321"
    assert answer(page)["workload"]["prompt"] == 777


def test_an_emptied_field_stays_empty_in_a_shared_link(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("details.kv-advanced summary")
    page.fill("input[name=burst]", "")
    until(page, "location.search.includes('burst=none')")
    page.goto(page.url)
    assert answer(page)["workload"]["burst"] == 1
    assert page.input_value("input[name=burst]") == ""


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("tpot", "0.01", "relax TPOT"),
        ("context", "1000", "shorten one of them or raise the context"),
        ("context", "many", "is not a length"),
        ("prices", "rtx-9999=1", "is not a price"),
        ("users", "3.5", "must be a whole number"),
    ],
)
def test_what_is_impossible_gets_a_sentence(
    page: Any, address: str, field: str, text: str, sentence: str
) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("details.kv-advanced summary")
    page.fill(f"input[name={field}]", text)
    page.wait_for_selector("[data-kv-sized][data-kv-state=refused]")
    assert sentence in page.inner_text("[data-kv-sized]")


def test_the_answer_is_taken_away_as_markdown_and_link(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("text=Copy answer as Markdown")
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("## ")
    assert "| GPU | GPUs |" in copied
    assert "```sh\nvllm serve " in copied
    page.locator("[data-kv-sized] .kv-actions >> text=Copy link").click()
    page.locator("[data-kv-sized] .kv-actions >> text=Copied").last.wait_for()
    until(page, "navigator.clipboard.readText().then((text) => text === location.href)")


def headline(page: Any) -> str:
    """The answer's first sentence."""
    said: str = page.inner_text("[data-kv-sized] .kv-big")
    return said


def test_people_and_requests_exclude_each_other(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.fill("input[name=users]", "500")
    until(page, "document.querySelector('[data-kv-sized] .kv-big').innerText.startsWith('For 500 people')")
    assert page.input_value("input[name=concurrent]") == ""
    page.fill("input[name=concurrent]", "12")
    until(page, "document.querySelector('[data-kv-sized] .kv-big').innerText.startsWith('For 12 concurrent')")
    assert page.input_value("input[name=users]") == ""


def test_a_longer_prompt_raises_the_context(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    page.fill("input[name=prompt]", "30000")
    until(page, "document.querySelector('[data-kv-sized]').kvAnswer?.workload.longest === 32768")
    assert "--max-model-len 32768" in page.inner_text("[data-kv-sized]")


def test_a_latent_model_is_laid_out_as_the_command_lays_it_out(
    page: Any, address: str, tiny_site, capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(
        f"{address}sizer/?model=deepseek-ai--DeepSeek-V3&gpu=b200-sxm-180gb&concurrent=64&context=32K"
        "&prompt=30000&output=2000&burst=none&spares=none"
    )
    found = answer(page)["best"]
    ours = size(
        "deepseek-ai/DeepSeek-V3",
        context=32768,
        prompt=30000,
        output=2000,
        concurrent=64,
        gpus=["b200-sxm-180gb"],
        catalog=open_catalog(tiny_site.catalog),
    )
    best = ours.describe(ours.ranking.deployments[0])
    assert found["layout"] == best["layout"]["name"] != "tp8"
    assert found["devices"] == best["devices"] == 8
    assert found["commands"] == best["commands"]
    bars = page.locator(".kv-multiples figure")
    layouts = {one.layout.label for one in ours.ranking.deployments}
    assert bars.count() == len(layouts) > 4
    why = page.locator(".kv-multiples > p").first.inner_text()
    assert re.search(
        r" ranks above .*\. With .*, the KV pool is [\d.,]+ GiB on 8 GPUs, one request takes ", why
    )
    # The command below the bars gives the same answer.
    same = shlex.split(page.locator(".kv-sized .kv-command code").last.inner_text())
    assert same[:2] == ["kvreport", "size"]
    assert main([*same[1:], "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)["deployments"][0]
    assert (again["layout"]["name"], again["devices"]) == (found["layout"], found["devices"])
    assert page.locator(".kv-multiples figure.kv-chosen").count() == 1


def test_only_commands_that_run_are_given(page: Any, address: str, tiny_site) -> None:
    # A static memory fraction for SGLang does not exist for every answer; then its command is not there.
    catalog = open_catalog(tiny_site.catalog)
    for gpu, concurrent in (("h100-sxm-80gb", 4), ("b200-sxm-180gb", 300), ("mi300x", 64), ("rtx-4090", 8)):
        page.goto(
            f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu={gpu}&concurrent={concurrent}&burst=none&spares=none"
        )
        found = answer(page)["best"]["commands"]
        ours = size(
            "meta-llama/Llama-3.1-8B-Instruct",
            context=8192,
            prompt=1500,
            output=400,
            concurrent=concurrent,
            gpus=[gpu],
            catalog=catalog,
        )
        best = ours.describe(ours.ranking.deployments[0])
        assert found["vllm"] == best["commands"]["vllm"]
        assert found["sglang"] is None
        # The last two answer the same question again, and for separate pools of prefill and decode.
        commands = page.locator("[data-kv-sized] .kv-command").all_inner_texts()
        assert len(commands) == 3
        assert "--disaggregated" in commands[2]
        assert "--disaggregated" not in commands[1]


def test_the_sizer_answers_under_sglangs_rules(page: Any, address: str) -> None:
    catalog = open_catalog()
    page.goto(
        f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&concurrent=10"
        "&engine=sglang&burst=none&spares=none"
    )
    found = answer(page)["best"]
    asked = {"context": 8192, "prompt": 1500, "output": 400, "concurrent": 10, "gpus": ["h100-sxm-80gb"]}
    ours = size("meta-llama/Llama-3.1-8B-Instruct", engine="sglang", catalog=catalog, **asked)
    best = ours.describe(ours.ranking.deployments[0])
    assert found["commands"]["sglang"] == best["commands"]["sglang"]
    assert found["mem_fraction_static"] == best["mem_fraction_static"]
    assert found["smallest_utilization"] is None


def test_a_gpu_without_numbers_of_an_engine_is_said_to_have_none(page: Any, address: str) -> None:
    def without_reserves(route: Any) -> None:
        found = route.fetch().json()
        route.fulfill(json={**found, "rates": None, "reserve": None})

    page.route("**/engines/sglang/meta-llama--*.json", without_reserves)
    page.goto(f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=rtx-4090&engine=sglang")
    page.wait_for_selector("[data-kv-sized] .kv-refused")
    told = page.locator("[data-kv-sized]").inner_text()
    assert re.search(r"This site has no numbers for (?:Llama 3.1 8B with )?SGLang\b.* on .*RTX 4090", told), (
        told
    )
    assert "Layouts tried" not in told
    assert "--engine sglang" in told


def test_short_names_of_gpus_are_prices_too(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/?prices=h100%3D2.5,b200%3D5")
    found = answer(page)
    assert {one["gpu"] for one in found["deployments"]} == {"h100-sxm-80gb", "b200-sxm-180gb"}
    assert found["best"]["price_per_hour"] == min(one["price_per_hour"] for one in found["deployments"])
    assert "Price per hour" in page.inner_text("[data-kv-sized]")


def test_the_sizers_answer_is_printed_and_only_its_headline_is_announced(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/")
    answer(page)
    assert page.locator("[data-kv-sized] [aria-live]").count() == 1
    assert page.get_attribute("[data-kv-sized] [aria-live]", "class") == "kv-big"
    for field in page.query_selector_all(".kv-sizer input, .kv-sizer select"):
        named = field.get_attribute("aria-describedby")
        assert named
        assert page.inner_text(f"#{named}") or not page.is_visible(f"#{named}")
    page.emulate_media(media="print")
    assert page.locator("[data-kv-sized] .kv-big").is_visible()
    assert page.locator("[data-kv-sized] table").first.is_visible()
    assert not page.locator(".kv-sizer").is_visible()


def test_both_pages_are_whole_without_javascript(browser: Any, page: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    bare = context.new_page()
    bare.goto(f"{address}sizer/")
    assert "kvreport size" in bare.inner_text("article")
    row = bare.locator(".kv-nojs table tbody tr").first
    first = f"{row.locator('td').first.inner_text()} × {row.locator('th').inner_text()}"
    bare.goto(f"{address}log/")
    assert "kvreport log" in bare.inner_text("article")
    context.close()
    page.goto(f"{address}sizer/")
    answer(page)
    assert f", use {first}: " in page.inner_text("[data-kv-sized] .kv-big"), (
        "the same case, and the same answer"
    )


def test_unequal_gpus_in_an_address_are_told_which_command_answers(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/?gpu=rtx-5090%2Brtx-3090")
    answer(page)
    said = page.inner_text("[data-kv-sized] .kv-ignored")
    assert "kvreport size MODEL --gpu rtx-5090+rtx-3090" in said
    page.goto(f"{address}sizer/?gpu=nonsense")
    answer(page)
    assert "kvreport size" not in page.inner_text("[data-kv-sized] .kv-ignored")


def test_the_explorer_says_who_answers_for_unequal_gpus(page: Any, address: str) -> None:
    page.goto(f"{address}explore/?gpu={MACHINE}&context=8192")
    said = page.locator("[data-kv-unequal]:visible")
    said.wait_for()
    assert "No row combines H100 + B200" in said.inner_text()
    links = said.locator("a").evaluate_all("links => links.map((one) => one.href)")
    assert links[0] == f"{address}sizer/?gpu={MACHINE}"
    assert links[1].startswith(f"{address}compare/?gpus={MACHINE}&gpus=")
    # The address stays as it came, and the rows are those of both kinds.
    assert page.url == f"{address}explore/?gpu={MACHINE}&context=8192"
    pressed = page.locator(".kv-explore [aria-pressed=true]").all_inner_texts()
    assert {"H100", "B200"} <= {one.split("\n")[0] for one in pressed}
    page.goto(links[1])
    page.locator(".kv-compare", has_text=" + ").wait_for()
    page.goto(f"{address}explore/?context=8192")
    page.wait_for_selector("#explore-table tbody tr")
    assert not page.locator("[data-kv-unequal]").is_visible()


def test_under_another_release_the_page_says_what_it_tries(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/?model=deepseek-ai--DeepSeek-V3&gpu=b200-sxm-180gb&engine=vllm-0.25")
    page.wait_for_selector("[data-kv-sized] .kv-command")
    said = page.inner_text("[data-kv-sized]")
    assert "The same search on the command line" in said
    assert "--engine vllm-0.25" in page.locator(".kv-sized .kv-command code").last.inner_text()


def test_unequal_gpus_are_sized_with_a_bar_for_each(page: Any, address: str, tiny_site) -> None:
    page.goto(f"{address}sizer/?gpu={MACHINE}&concurrent=40&context=4K&prompt=2000&output=500")
    found = answer(page)
    assert {one["gpu"] for one in found["deployments"]} == {MACHINE}
    ours = sized(found["model"], MACHINE, tiny_site)
    held = {one.layout.label: one.users_held for one in ours.ranking.deployments}
    shown = {one["layout"]: one["users_held_by_memory"] for one in found["deployments"]}
    assert shown["tp2"] == held["tp2"]
    bars = page.locator(".kv-ranks").first.locator("figure figcaption").all_inner_texts()
    assert len(bars) == 2
    assert f"--gpu {MACHINE}" in page.locator(".kv-sized .kv-command code").last.inner_text()


def test_equal_prices_are_said_as_a_tie_with_what_each_holds(page: Any, address: str) -> None:
    page.goto(
        f"{address}sizer/?model=meta-llama--Llama-3.1-70B-Instruct&concurrent=2&burst=1&spares=0"
        "&prices=h100-sxm-80gb%3D2.5%2Cb200-sxm-180gb%3D5"
    )
    found = answer(page)
    assert found["best"]["gpu"] == "h100-sxm-80gb"
    said = page.inner_text("[data-kv-tie]")
    assert said.startswith("Tie: 2 × H100 (TP 2) and 1 × B200 (TP 1) cost 5.00 per hour each.")
    assert "it has less memory in total" in said
    assert f"{found['best']['users_per_replica']} requests" in said
    pool = found["best"]["kv_pool_bytes_per_gpu"] / 2**30
    caption = page.locator(".kv-chosen figcaption", has_text="Free at peak").inner_text()
    left = float(re.search(r"Free at peak: ([\d.]+) of ([\d.]+) GiB", caption)[1])
    assert 0 < left < pool
    assert f"of {pool:.1f} GiB of KV pool per GPU" in caption


def test_the_price_of_a_million_tokens_is_that_of_the_command(
    page: Any, address: str, tiny_site: Any
) -> None:
    lengths = "context=8192&prompt=1500&output=300"
    page.goto(f"{address}sizer/?concurrent=64&{lengths}&spares=0&burst=1&prices=h100-sxm-80gb%3D2.5")
    found = answer(page)
    want = size(
        found["model"],
        context=8192,
        prompt=1500,
        output=300,
        concurrent=64,
        prices={"h100-sxm-80gb": 2.5},
        catalog=Catalog(tiny_site.catalog),
    )
    price = want.describe(want.ranking.deployments[0])["price_per_million_output_tokens"]
    assert found["best"]["price_per_million_output_tokens"] == pytest.approx(price)
    heads = page.locator("table th", has_text="Price per million output tokens")
    assert heads.count() == 1
    assert page.locator("td", has_text=re.compile(rf"^{price:.2f}$")).count() >= 1


def test_one_price_alone_is_no_tie(page: Any, address: str) -> None:
    page.goto(f"{address}sizer/?concurrent=2&prices=h100-sxm-80gb%3D2.5%2Cb200-sxm-180gb%3D7")
    answer(page)
    assert page.locator("[data-kv-tie]").count() == 0


def test_pools_apart_are_one_command_away_and_headroom_is_drawn(
    page: Any, address: str, tiny_site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{address}sizer/?gpu=h100-sxm-80gb&concurrent=40&context=4K&prompt=2000&output=500")
    found = answer(page)
    (text,) = page.locator(".kv-sized .kv-command code", has_text="--disaggregated").all_inner_texts()
    assert main([*shlex.split(text)[1:], "--data", str(tiny_site.catalog)]) == 0
    assert "prefill" in capsys.readouterr().out
    shares = page.eval_on_selector_all(
        ".kv-table .kv-room", "all => all.map((one) => one.style.getPropertyValue('--kv-share'))"
    )
    said = page.eval_on_selector_all(
        ".kv-table .kv-room", "all => all.map((one) => one.parentElement.textContent)"
    )
    assert len(said) >= 3
    assert shares == [f"{min(int(text.removesuffix('%')), 100)}%" for text in said]
    assert found["best"]["headroom"] >= 0


def test_as_many_gpus_of_other_types_are_named(page: Any, address: str) -> None:
    """Where no price is given, nothing says which of them is cheaper."""
    page.goto(f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&concurrent=1&burst=1&spares=0")
    found = answer(page)
    alike = [one for one in found["deployments"] if one["devices"] == found["best"]["devices"]]
    assert len(alike) > 1
    said = page.inner_text("[data-kv-tie]")
    assert said.startswith("1 GPU is also enough with ")
    assert said.partition(". With prices")[0].count(",") + said.count(" or ") == len(alike) - 2


def test_people_wait_as_long_as_the_targets_of_the_form_allow(page: Any, address: str) -> None:
    """2,000 tokens of 30 ms after 10 s are 70 s; the page took 15 s, a fifth of the requests in flight."""
    page.goto(f"{address}sizer/")
    answer(page)
    page.click("text=Coding agent")
    page.fill("input[name=users]", "200")
    until(page, "document.querySelector('[name=latency]').value === '70'")
    until(page, "document.querySelector('[data-kv-sized]').kvAnswer?.workload.peak === 234")


def test_a_search_in_the_address_is_answered_at_once(page: Any, address: str) -> None:
    page.goto(f"{address}questions/?q=kv+cache")
    page.locator(".md-search-result__meta", has_text="matching").wait_for(timeout=5000)


def test_the_pool_of_the_other_pages_stands_next_to_the_sizer_s(page: Any, address: str) -> None:
    """The front page said 54.46 GiB and the sizer 56.6, each for its own --max-num-seqs, and neither said so."""
    page.goto(
        f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&concurrent=41&prompt=none&context=8K&average=8K"
    )
    page.wait_for_selector("[data-kv-state=sized]")
    usual = estimate("meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", context_tokens=8192)
    pool = f"{usual.budget.kv_pool_bytes / 2**30:.2f} GiB, for {usual.max_concurrent_requests} requests of 8,192 tokens"
    steps = page.locator(".kv-steps").inner_text()
    assert f"With the default --max-num-seqs (1,024), for which the other pages answer, it is {pool}" in steps
    best = page.evaluate("document.querySelector('[data-kv-sized]').kvAnswer.best")
    assert best["users_per_replica"] != usual.max_concurrent_requests
    note = page.locator("[data-kv-usual]").inner_text()
    assert f"Each replica here serves {best['users_per_replica']}" in note
    assert f"it serves {usual.max_concurrent_requests} requests of 8,192 tokens" in note


def test_a_latency_that_the_chosen_deployment_exceeds_is_said(page: Any, address: str) -> None:
    """People, their pace and their latency give the requests in flight: a deployment that is slower has more of them."""
    where = f"{address}sizer/?model=meta-llama--Llama-3.1-70B-Instruct&gpu=h100-sxm-80gb&concurrent=none&users=500&rate=1"
    page.goto(f"{where}&latency=2")
    page.wait_for_selector("[data-kv-state=sized]")
    best = page.evaluate("document.querySelector('[data-kv-sized]').kvAnswer.best")
    seconds = (best["ttft_lower_bound_s"] + 400 * best["tpot_lower_bound_s"]) / 0.6
    assert seconds > 2
    assert f"takes about {seconds:.1f} s" in page.locator("[data-kv-late]").inner_text()
    page.goto(f"{where}&latency=60")
    page.wait_for_selector("[data-kv-state=sized]")
    assert not page.locator("[data-kv-late]").count()


def test_requests_per_second_are_no_people_and_last_as_long_as_the_answer_s(
    browser: Any, address: str
) -> None:
    """Two requests per second were 120 people with answers of 15 s, half as many again at peak and a spare."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(
        f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&prompt=4000&users=1&rate=120&burst=1&spares=0&output=500"
    )
    page.wait_for_selector("[data-kv-state=sized]")
    until(page, "scrollY > 0")
    headline = page.locator("[data-kv-sized] .kv-big")
    said = re.search(
        r"For 2 requests per second to Llama 3.1 8B, each taking (\d+) s \((\d+) concurrent requests\), use 1 × H100: 1 replica",
        headline.inner_text(),
    )
    assert said, headline.inner_text()
    best = page.evaluate("document.querySelector('[data-kv-sized]').kvAnswer.best")
    seconds = (best["ttft_lower_bound_s"] + 500 * best["tpot_lower_bound_s"]) / 0.6
    assert int(said[1]) == -(-seconds // 1)
    assert int(said[2]) == 2 * int(said[1])
    assert page.input_value("#kv-s-latency") == said[1]
    assert 0 < headline.bounding_box()["y"] < 700
    assert not page.locator("[data-kv-late], [data-kv-busy]").count()
    page.goto(
        f"{address}sizer/?model=meta-llama--Llama-3.1-8B-Instruct&gpu=h100-sxm-80gb&prompt=4000&users=1&rate=1200&burst=1&spares=0&output=500"
    )
    page.wait_for_selector("[data-kv-busy]")
    assert "Prompts alone take" in page.inner_text("[data-kv-busy]")
    context.close()


def test_what_an_empty_field_means_is_no_default_of_the_form() -> None:
    """Hints said "Default: 1" next to a field that was printed with 1.5."""
    for field in FIELDS:
        told = re.search(r"Default: ([\d.]+K?)\.", field.help)
        assert told is None or field.value in ("", told[1]), field.name


def test_fewer_gpus_that_may_hold_the_load_are_named(page, address):
    """DeepSeek-V3 falls short on four B200 by less than the error; the page named eight alone."""
    page.goto(
        f"{address}sizer/?model=deepseek-ai--DeepSeek-V3&gpu=b200-sxm-180gb&concurrent=1&prompt=none&context=32K&average=32K&burst=1&spares=0"
    )
    until(page, "document.querySelector('[data-kv-sized] strong')")
    assert page.inner_text("[data-kv-sized] strong") == "8 × B200"
    assert "Within the error of the estimate, 4 × B200 may be enough" in page.inner_text("[data-kv-sized]")
