"""The page "Your model" in a real browser: Python starts on a click and answers as the library does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from brought import CONFIG, HUBS, gguf_file
from serving import phone

from kvreport import estimate
from kvreport.architectures import read_config
from kvreport.publish import python_runtime

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kvreport"
WAIT_MS = 120_000

needs_runtime = pytest.mark.skipif(
    not python_runtime.RUNTIME.found(CACHE),
    reason="scripts/fetch_runtime.py has not fetched Python for the browser",
)


@pytest.fixture(scope="module")
def page(tiny_site, browser) -> Iterator[Any]:
    with phone(browser, tiny_site.folder, "your-model/", HUBS) as opened:
        yield opened


def text_of(page: Any, selector: str = "[data-kv-answer]") -> str:
    page.wait_for_selector(f"{selector} .kv-big, {selector} .kv-fault", timeout=WAIT_MS)
    page.wait_for_selector(f"{selector}:not([aria-busy])", timeout=WAIT_MS)
    found: str = page.inner_text(selector)
    return found


@needs_runtime
def test_nothing_is_loaded_before_the_first_click(page: Any) -> None:
    assert not [url for url in page.asked if "/assets/python/" in url or "huggingface.co" in url]
    assert page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content").endswith(
        "'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self' https://huggingface.co https://*.hf.co"
    )


@needs_runtime
def test_a_hub_id_is_fetched_by_the_browser_and_answered_as_by_the_library(page: Any) -> None:
    page.fill("[name=hub]", "acme/open")
    page.click("[name=fetch]")
    said = text_of(page)
    gpu = page.input_value("[name=gpu]")
    ours = estimate(read_config(CONFIG), gpu=gpu, context_tokens=8192)
    assert f"{ours.max_concurrent_requests:,} requests of 8K tokens fit" in said
    assert f"{ours.kv_bytes_per_token_per_gpu:,}" in said
    assert "acme/open --fetch" in said
    assert page.url.endswith("?hub=acme%2Fopen") or page.url.endswith("?hub=acme/open")
    assert page.evaluate("window.refused") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a phone scrolls sideways"


@needs_runtime
def test_other_questions_are_answered_without_loading_again(page: Any) -> None:
    # Another worker may have run the tests before this one, on a page of its own.
    page.fill("[name=hub]", "acme/open")
    page.click("[name=fetch]")
    page.wait_for_selector("select[name=engine]", timeout=WAIT_MS)
    loaded = len([url for url in page.asked if "/assets/python/" in url])
    page.select_option("select[name=engine]", "sglang")
    page.select_option("select[name=context]", "32768")
    page.wait_for_selector(".kv-big:has-text('32K')", timeout=WAIT_MS)
    gpu = page.input_value("[name=gpu]")
    ours = estimate(read_config(CONFIG), gpu=gpu, context_tokens=32768, engine="sglang")
    assert f"{ours.max_concurrent_requests:,} requests of 32K tokens" in text_of(page)
    assert len([url for url in page.asked if "/assets/python/" in url]) == loaded


@needs_runtime
def test_the_gpu_is_found_by_typing_and_the_address_keeps_the_question(page: Any) -> None:
    # Another worker may have run the tests before this one, on a page of its own.
    page.fill("[name=hub]", "acme/open")
    page.click("[name=fetch]")
    page.wait_for_selector("select[name=engine]", timeout=WAIT_MS)
    page.select_option("select[name=engine]", "vllm")  # the page is another test's, and keeps its engine
    page.click("#kv-y-gpu")
    page.keyboard.type("rtx 4090")
    page.wait_for_selector(".kv-picker [role=option]:has-text('RTX 4090')")
    page.keyboard.press("Enter")
    page.select_option("select[name=context]", "16384")
    page.wait_for_selector(".kv-big:has-text('RTX 4090'):has-text('16K')", timeout=WAIT_MS)
    ours = estimate(read_config(CONFIG), gpu="RTX 4090", context_tokens=16384)
    assert f"{ours.max_concurrent_requests:,} requests of 16K tokens fit" in text_of(page)
    # What a page that is opened at such an address shows is the last test's.
    for part in ("hub=acme", "gpu=rtx-4090", "context=16384"):
        assert part in page.url


@needs_runtime
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("acme/secret", "gated or private"),
        ("acme/gone", "not on huggingface.co"),
        ("no-slash", "has the form org/name"),
    ],
)
def test_what_the_hub_refuses_is_said(page: Any, name: str, sentence: str) -> None:
    page.fill("[name=hub]", name)
    page.click("[name=fetch]")
    page.wait_for_selector(".kv-fault", timeout=WAIT_MS)
    assert sentence in page.inner_text(".kv-fault")


@needs_runtime
def test_a_misspelt_dimension_is_refused_and_the_key_named(page: Any) -> None:
    wrong = {**CONFIG, "n_layers": CONFIG["num_hidden_layers"]}
    del wrong["num_hidden_layers"]
    page.fill("[name=config]", json.dumps(wrong))
    page.click("[name=paste]")
    page.wait_for_selector(".kv-fault", timeout=WAIT_MS)
    assert "num_hidden_layers" in page.inner_text(".kv-fault")


@needs_runtime
def test_a_gguf_file_is_read_from_its_header(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "tiny-Q4_K.gguf"
    path.write_bytes(gguf_file())
    page.set_input_files("[name=files]", path)
    said = text_of(page)
    assert "fits on" in said
    assert page.input_value("select[name=engine]") == "llama-cpp"


@needs_runtime
def test_a_gguf_repository_is_read_from_the_header_of_one_file(page: Any) -> None:
    """Its config is that of the model that it was made from: it says nothing about the types in the file."""
    page.fill("[name=hub]", "https://huggingface.co/acme/tiny-GGUF")
    page.click("[name=fetch]")
    said = text_of(page)
    assert page.input_value("select[name=engine]") == "llama-cpp"
    assert "kvreport estimate acme/tiny-GGUF --fetch --gpu" in said
    assert "the header of tiny-Q4_K_M.gguf in acme/tiny-GGUF, revision 01234567" in said
    page.fill("[name=hub]", "acme/tiny-GGUF:Q3_K_S")
    page.click("[name=fetch]")
    page.wait_for_selector(".kv-fault:has-text('allowed: Q4_K_M, Q8_0')", timeout=WAIT_MS)
    page.fill("[name=hub]", "acme/open:Q4_K_M")
    page.click("[name=fetch]")
    page.wait_for_selector(".kv-fault:has-text('org/name-GGUF:Q4_K_M')", timeout=WAIT_MS)


@needs_runtime
def test_a_gguf_file_is_named_in_the_command_and_its_limit_as_llama_cpp_calls_it(
    page: Any, tmp_path: Path
) -> None:
    path = tmp_path / "tiny-Q4_K.gguf"
    path.write_bytes(gguf_file())
    page.set_input_files("[name=files]", path)
    said = text_of(page)
    assert "kvreport estimate tiny-Q4_K.gguf --gpu" in said
    assert "1 request of 8K tokens fits on one H100" in said
    assert "Limited by\n-c 8192" in said
    assert "2K\t1\t0.002\t-c\n" in said
    assert "max_num_seqs" not in said


@needs_runtime
def test_a_model_that_the_engine_does_not_run_has_its_reason_once_and_no_memory(page: Any) -> None:
    rwkv = {
        "architectures": ["RwkvForCausalLM"],
        "model_type": "rwkv",
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "vocab_size": 65536,
        "context_length": 4096,
    }
    page.fill("[name=config]", json.dumps(rwkv))
    page.click("[name=paste]")
    page.wait_for_selector(".kv-big:has-text('Your model does not run on one')", timeout=WAIT_MS)
    said = text_of(page)
    assert "KV pool" not in said
    reasons = page.eval_on_selector_all(".kv-yours-part li", "rows => rows.map((row) => row.textContent)")
    assert len([text for text in reasons if "does not have the class RwkvForCausalLM" in text]) == 1
    assert not page.query_selector(".kv-yours-part table")


@needs_runtime
def test_a_file_that_is_no_config_by_its_size_is_refused_unread(page: Any, tmp_path: Path) -> None:
    """Whatever was dropped was read whole, a checkpoint of many GB too."""
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (9 << 20))
    page.set_input_files("[name=files]", path)
    page.wait_for_selector(".kv-fault", timeout=WAIT_MS)
    assert page.inner_text(".kv-fault") == "config.json has over 8 MiB: a config or an index is smaller."


@needs_runtime
def test_beyond_its_windows_a_model_says_so_and_what_a_request_takes(page: Any) -> None:
    """The cache of a token was "0" without a word."""
    windowed = {
        **CONFIG,
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": 4096,
        "max_position_embeddings": 32768,
    }
    page.fill("[name=config]", json.dumps(windowed))
    page.click("[name=paste]")
    page.wait_for_selector(".kv-facts:has-text('MistralForCausalLM')", timeout=WAIT_MS)
    page.select_option("select[name=engine]", index=0)  # a test before this one may have chosen another
    page.select_option("select[name=context]", "8192")
    page.wait_for_selector(".kv-facts:has-text('0 beyond the window of 4K tokens')", timeout=WAIT_MS)
    assert "KV cache per request of 8K tokens (GiB)" in text_of(page)


@needs_runtime
def test_leaving_the_page_leaves_its_policy(page: Any) -> None:
    page.eval_on_selector("a[href$='sizer/']", "link => link.click()")
    page.wait_for_url("**/sizer/**", timeout=WAIT_MS)
    page.wait_for_load_state()
    assert page.evaluate("kvreport.landed").endswith("/sizer/"), "the page was changed without loading it"
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert "wasm" not in policy


@needs_runtime
def test_arriving_without_a_load_brings_the_policy(page: Any) -> None:
    page.eval_on_selector("a[href$='your-model/']", "link => link.click()")
    page.wait_for_url("**/your-model/**", timeout=WAIT_MS)
    page.wait_for_timeout(3000)
    assert page.evaluate("kvreport.landed").endswith("/your-model/"), "the page has another page's policy"


@needs_runtime
def test_what_an_address_says_and_the_page_does_not_have_is_named_beside_the_answer(page: Any) -> None:
    start = page.url.split("your-model/")[0] + "your-model/"
    twice = "gpu=rtx-4090&gpu=moon-9000&context=32768&context=8192"
    page.goto(f"{start}?hub=acme/open&{twice}&engine=moon&requests=9")
    page.click("[name=fetch]")
    said = text_of(page)
    for value in ("gpu=moon-9000", "engine=moon", "context=8192", "requests=9"):
        assert value in page.inner_text("[data-kv-answer] .kv-ignored"), value
    assert "requests of 32K tokens fit" in said
    assert "RTX 4090" in page.inner_text(".kv-big")
    page.select_option("select[name=context]", "8192")
    page.wait_for_selector(".kv-big:has-text('8K')", timeout=WAIT_MS)
    assert not page.query_selector("[data-kv-answer] .kv-ignored")
