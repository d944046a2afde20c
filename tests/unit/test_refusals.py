"""Sentences with which engines refuse to start: each has one page, whose address stays."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.log_lines import log_lines
from kvreport.catalog.refusals import refusals
from kvreport.cli import main
from kvreport.estimation import estimate
from kvreport.site.pages.refusal_messages import _engines, _page, _remedies
from kvreport.startup_log import diagnose, table

LINES = {line.name: line for one in log_lines() for line in one.lines}
ADDRESSES = {
    "out-of-memory", "sglang-max-mamba-cache-size", "sglang-not-enough-memory", "sglang-weights-leave-no-memory-for-the-kv-cache",
    "vllm-free-memory-is-less-than-desired", "vllm-kv-cache-is-needed", "vllm-max-num-seqs-exceeds-mamba-cache-blocks",
    "vllm-more-tokens-than-the-kv-cache-stores", "vllm-no-available-memory-for-the-cache-blocks",
}  # fmt: skip
"""Addresses that are published: one may be added, and none taken away."""
MOST = 35  # those of servers, and ten of programs at home


def test_every_line_that_refuses_has_a_page_and_every_page_has_lines() -> None:
    paged = {name for one in refusals() for name in one.lines}
    assert paged <= LINES.keys()
    assert {name for name, line in LINES.items() if "refuses to start" in line.says} <= paged
    assert {one.slug for one in refusals()} >= ADDRESSES
    assert len(refusals()) <= MOST


@pytest.mark.parametrize("refusal", refusals(), ids=lambda one: one.slug)
def test_each_sentence_leads_to_its_page(refusal, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in refusal.lines:
        assert diagnose(LINES[name].example).address == refusal.address
        assert table()["refusals"][name] == refusal.address
    log = tmp_path / "start.log"
    log.write_text(LINES[refusal.lines[0]].example, encoding="utf-8")
    assert main(["log", str(log)]) == 0
    assert f"About this sentence: the page {refusal.address} of the site." in capsys.readouterr().out
    assert main(["log", str(log), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["address"] == refusal.address


@pytest.mark.parametrize("slug", ["out-of-memory", "memory-for-graphs-after-the-pool"])
def test_a_page_of_several_engines_says_whose_each_flag_is(slug: str) -> None:
    """The flags of SGLang stood alone, on a page that users of vLLM read too."""
    refusal = next(one for one in refusals() if one.slug == slug)
    site = SimpleNamespace(catalog=open_catalog())
    engines = {line.name: one.engine for one in log_lines() for line in one.lines}
    helps = _remedies(site, _engines(engines[name] for name in refusal.lines), LINES[refusal.lines[0]])
    flagged = [words for words in helps if "--" in words]
    assert flagged
    for words in flagged:
        parts = dict(part.strip(" .").split(": ", 1) for part in words.split(";"))
        assert parts.keys() == {"vLLM", "SGLang"}
    assert any("vLLM: lower --gpu-memory-utilization" in words for words in flagged)
    assert any("SGLang: lower --mem-fraction-static" in words for words in flagged)


def test_every_end_of_a_program_at_home_has_a_page_and_the_narrowest_is_named() -> None:
    paged = {name for one in refusals() for name in one.lines}
    ends = {
        line.name
        for one in log_lines()
        if one.engine in {"llama_cpp", "ollama", "mlx"}
        for line in one.lines
        if line.ends is not None and line.ends.short
    }
    assert ends
    assert ends <= paged
    log = "\n".join(LINES[name].example for name in ("llama_cache", "llama_cuda_alloc", "llama_buffer"))
    assert diagnose(log).address == "refusals/llama-cpp-failed-to-allocate-the-kv-cache/"


def test_a_log_without_a_refusal_leads_to_no_page() -> None:
    assert (
        diagnose("INFO [kv_cache_utils.py:634] GPU KV cache size: 107,136 tokens").to_dict()["address"]
        is None
    )


@pytest.mark.parametrize("refusal", refusals(), ids=lambda one: one.slug)
def test_a_worked_example_ends_in_its_sentence_and_is_on_its_page(refusal) -> None:
    site = SimpleNamespace(catalog=open_catalog(), models=())
    html = _page(site, 0, refusal).sections[0].html
    assert '<h2 id="helps">How to fix it</h2>\n<ul><li>' in html
    # What a line means has the numbers of its example, no names of values that a reader would have to fill in.
    told = re.sub(r"<pre.*?</pre>|<[^>]+>", "", html.partition('<h2 id="helps">')[0], flags=re.DOTALL)
    assert not re.search(r"\[[a-z]|\{\w+\}", told), told
    # What would start it is said to somebody who runs the engine.
    assert not re.search(
        r"--(context|kv|max-seqs|tensor-parallel|utilization|eager|weights)(?![\w-])", told
    ), told
    assert ("kv-table" in html) == (refusal.example is not None)
    if refusal.example is not None:
        asked = dict(refusal.example)
        starts = estimate(asked.pop("model"), **asked).verdict in {"fits", "tight", "may_fit"}
        assert starts == (refusal.slug == "vllm-free-memory-is-less-than-desired")
