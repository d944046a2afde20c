"""The log page's Python: nothing before the click, then the command's own answer for an engine that the page does not plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import phone, until

from kvreport.catalog.load import open_catalog
from kvreport.evidence.claim_check import answer as judged
from kvreport.publish import python_runtime
from kvreport.startup_log import diagnose
from kvreport.startup_log.lines import lines

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kvreport"
WAIT_MS = 120_000
SGLANG = """\
[2026-09-12 00:20:11] server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=2, mem_fraction_static=0.85, context_length=32768)
[2026-09-12 00:21:40 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=47.89 GB, mem usage=30.60 GB.
[2026-09-12 00:21:41 TP0] KV Cache is allocated. #tokens: 274120, K size: 16.73 GB, V size: 16.73 GB
"""

needs_runtime = pytest.mark.skipif(
    not python_runtime.RUNTIME.found(CACHE),
    reason="scripts/fetch_runtime.py has not fetched Python for the browser",
)


@pytest.fixture(scope="module")
def page(tiny_site, browser) -> Iterator[Any]:
    with phone(browser, tiny_site.folder, "log/") as opened:
        yield opened


@needs_runtime
def test_an_engine_without_a_plan_here_is_checked_by_the_library(page: Any) -> None:
    page.fill("[name=log]", SGLANG)
    page.wait_for_selector(".kv-whole button")
    assert not [url for url in page.asked if "/assets/python/" in url]
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert policy.endswith("'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'")
    assert "MB)" in page.inner_text(".kv-whole")
    page.click(".kv-whole button")
    page.wait_for_selector(".kv-told, .kv-fault", timeout=WAIT_MS)
    told = page.inner_text(".kv-told").strip()
    assert told == "\n".join(lines(diagnose(SGLANG, catalog=open_catalog()))).strip()
    assert "cache size: log 274,120" in told
    # Everything comes from this site, and the log is in no address.
    assert all(url.startswith(page.root) for url in page.asked)
    assert "274120" not in page.url
    assert page.is_hidden("[data-kv-progress]")


@needs_runtime
def test_another_log_takes_the_answer_away_and_asks_nothing_of_itself(page: Any) -> None:
    before = len(page.asked)
    page.fill("[name=log]", SGLANG.replace("274120", "174120"))
    until(page, "!document.querySelector('.kv-told')")
    assert page.locator(".kv-whole button").is_enabled()
    assert not [url for url in page.asked[before:] if "/assets/python/" in url]
    assert "MB)" not in page.inner_text(".kv-whole")


@needs_runtime
def test_another_gpu_is_checked_again_where_an_answer_was_shown(page: Any) -> None:
    """The answer was deleted, and the reader had to ask anew."""
    page.click(".kv-whole button")
    until(page, "!!document.querySelector('.kv-told')", WAIT_MS / 1000)
    page.click("#kv-l-gpu")
    page.fill("#kv-l-gpu", "B200")
    page.keyboard.press("Enter")
    until(page, "location.search.includes('b200')")
    until(page, "!!document.querySelector('.kv-told')", WAIT_MS / 1000)
    page.click("[data-kv-any=gpu]")
    until(page, "!location.search.includes('gpu=')")


@needs_runtime
def test_the_ledgers_form_writes_the_command_and_shows_the_librarys_judgment(page: Any) -> None:
    """What the library answers is held equal to the package's by ``tests/unit/test_python_bundle.py``."""
    found = json.loads(
        judged({"model": "Kimi-K3", "quantity": "kv_request", "value": "1", "unit": "GB", "context": "8K"})
    )
    page.goto(f"{page.root}/evidence/claims/")
    until(page, "!!kvreport.claims && !!document.querySelector('[data-kv-command]')")
    page.evaluate(
        "found => kvreport.loadLibrary = async () => ({ call: async (asked) => { kvreport.said = asked; return found; } })",
        found["result"],
    )
    # What is typed into a field replaces the example.
    page.click("[name=value]")
    page.keyboard.type("2.5")
    assert page.input_value("[name=value]") == "2.5"
    page.keyboard.type("0")
    assert page.input_value("[name=value]") == "2.50"
    page.select_option("[name=quantity]", "kv_request")
    for name, text in {"value": "1", "unit": "GB", "context": "8K"}.items():
        page.fill(f"[name={name}]", text)
    command = "kvreport claim --model Kimi-K3 --quantity kv_request --value 1 --unit GB --context 8K"
    assert page.inner_text("[data-kv-command]") == command
    page.click("[data-kv-claims] button")
    page.wait_for_selector("[data-kv-judged] .kv-big")
    assert page.evaluate("kvreport.said.claim.context") == "8K"
    told = page.inner_text("[data-kv-judged]")
    assert told.startswith(found["result"]["verdict"].capitalize())
    assert found["result"]["explanation"] in told
    page.fill("[name=value]", "2")
    assert page.inner_text("[data-kv-judged]") == ""
    page.goto(f"{page.root}/log/")


@needs_runtime
def test_the_next_page_does_not_have_the_policy(page: Any) -> None:
    page.eval_on_selector("a[href$='sizer/']", "link => link.click()")
    page.wait_for_url("**/sizer/**", timeout=WAIT_MS)
    page.wait_for_load_state()
    assert page.evaluate("kvreport.landed").endswith("/sizer/")
    assert "wasm" not in page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    page.eval_on_selector("a[href$='log/']", "link => link.click()")
    until(page, "kvreport.landed.endsWith('/log/')", WAIT_MS / 1000)
    page.wait_for_selector("[name=log]")
