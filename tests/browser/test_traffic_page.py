"""The traffic page in a real browser: presets, a trace of one's own, answers equal to Python's, silence."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest
from traces import write_compact
from visits import page

from kvreport.traffic.answers import replay
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.trace import MAX_NODES

__all__ = ["page"]  # a fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BOX = "[data-kv-trafficked]"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
GPU = "h100-sxm-80gb"


def found(page: Any) -> dict[str, Any]:
    page.wait_for_selector(f"{BOX}[data-kv-state=answered]")
    return page.eval_on_selector(BOX, "box => box.kvFound")


def choose(page: Any, slug: str) -> None:
    for field, text in (("#kv-traffic-model", slug), ("#kv-traffic-gpu", GPU)):
        page.click(field)
        page.keyboard.type(text)
        page.locator(".kv-picker", has=page.locator(field)).locator("[role=option]").first.wait_for()
        page.keyboard.press("Enter")


def test_a_published_trace_is_answered_as_python_answers_it(page, address):
    page.goto(
        f"{address}traffic/?trace=mooncake-synthetic&model={MODEL.replace('/', '--')}&gpu={GPU}&tp=1&wanted=40"
    )
    theirs = found(page)
    ours = replay("mooncake-synthetic", MODEL, gpu=GPU, order_only=True)
    assert ours.too_long > 0
    assert theirs["units"] == ours.pools.pools[0].blocks
    assert theirs["here"] == pytest.approx(ours.hit_rate, abs=1e-12)
    assert theirs["best"] == pytest.approx(ours.hit_rate_best, abs=1e-12)
    assert theirs["all"] == pytest.approx(ours.hit_rate_unlimited, abs=1e-12)
    text = page.inner_text(BOX)
    assert "of prompt tokens hit the cache of Llama 3.1 8B" in text
    assert "A hit rate of 40.0% takes" in text
    assert f"kvreport replay mooncake-synthetic {MODEL} --gpu {GPU} --tp 1 --wait 1" in text
    assert page.locator(f"{BOX} > figure svg polyline").count() == 2


def test_the_percentiles_of_few_rows_are_those_of_the_library(page, address):
    """Of five rows the fourth was printed as the 95th percentile."""
    prompts = (100, 200, 300, 400, 5000)
    rows = "".join(f"{n * 10},{prompt},{50 + n}\n" for n, prompt in enumerate(prompts))
    page.goto(f"{address}traffic/")
    choose(page, MODEL)
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {
            "name": "few.csv",
            "mimeType": "text/csv",
            "buffer": f"timestamp,prompt_tokens,output_tokens\n{rows}".encode(),
        },
    )
    row = page.locator(f"{BOX} tr", has_text="Prompt tokens, median and 95th percentile")
    row.wait_for()
    assert row.locator("td").last.inner_text() == "300, 5,000"
    assert "nearest of 5 rows" in row.inner_text()


def test_a_trace_of_one_s_own_is_exact_and_leaves_the_page_in_nothing(page, address):
    trace = generate(Workload(sessions=60, turns=4, seed=7), "own")
    body = gzip.compress("".join(write_compact(trace)).encode())
    page.goto(f"{address}traffic/")
    choose(page, MODEL)
    before = len(page.asked)
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {"name": "own.trace.gz", "mimeType": "application/gzip", "buffer": body},
    )
    theirs = found(page)
    ours = replay(trace, MODEL, gpu=GPU, order_only=True)
    assert theirs["units"] == ours.pools.pools[0].blocks
    # Python names outputs by the session's next prompt; the curve of prompts alone is the browser's.
    from kvreport.traffic.hits import hit_counts
    from kvreport.traffic.reuse import reuse

    plain = reuse(trace, 16)
    assert theirs["here"] == pytest.approx(
        hit_counts(plain, theirs["units"], compute_last=True).rate(), abs=1e-12
    )
    assert theirs["all"] == pytest.approx(hit_counts(plain, None, compute_last=True).rate(), abs=1e-12)
    # Only the catalog's own files were asked for since, and no address names the file.
    assert all("downloads/v1/" in url or "assets/" in url for _, url in page.asked[before:])
    assert "own" not in page.url
    assert plain.distinct < MAX_NODES


def test_the_peak_of_requests_in_flight_is_the_replay_s(page, address):
    trace = generate(
        Workload(sessions=600, turns=1, sessions_per_s=20.0, system_prompt_tokens=0, new_tokens=1500), "peak"
    )
    body = gzip.compress("".join(write_compact(trace)).encode())
    page.goto(f"{address}traffic/?model={MODEL.replace('/', '--')}&gpu={GPU}&tp=1")
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {"name": "peak.trace.gz", "mimeType": "application/gzip", "buffer": body},
    )
    page.wait_for_selector(f"{BOX}[data-kv-flown=done]")
    theirs = page.eval_on_selector(BOX, "box => box.kvFlight")
    ours = replay(trace, MODEL, gpu=GPU, curve=False).to_dict()["replay"]
    assert theirs["running"][0] == pytest.approx(ours["peak_running"], rel=0.02)
    assert theirs["waiting"][0] == pytest.approx(ours["peak_waiting"], rel=0.02)
    assert theirs["seconds"] == pytest.approx(ours["seconds"], rel=0.02)
    waits = theirs["waits"]
    for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        assert waits[round(share * (len(waits) - 1))] == pytest.approx(
            ours["wait_s"][name], rel=0.02, abs=0.01
        )
    said = re.search(r"95% at most ([\d.]+) (milli)?seconds", page.inner_text(f"{BOX} .kv-flight"))
    shown = float(said[1]) / (1000 if said[2] else 1)
    assert shown == pytest.approx(ours["wait_s"]["p95"], rel=0.02, abs=0.01)
    most, when = theirs["open"]
    assert f"Peak: {most} requests in flight after {when:.1f} seconds" in page.inner_text(f"{BOX} .kv-peak")
    row = page.locator(f"{BOX} .kv-flight tr", has_text="Running").first.inner_text()
    assert str(theirs["running"][0]) in row
    assert page.locator(f"{BOX} .kv-flight svg circle").count() == 1


def test_the_replicas_for_a_wait_are_those_of_the_command(page, address):
    """They were left to a command, and the page kept its own model where a question named another."""
    trace = generate(
        Workload(sessions=500, turns=2, sessions_per_s=40.0, system_prompt_tokens=0, new_tokens=3000), "long"
    )
    body = gzip.compress("".join(write_compact(trace)).encode())
    page.goto(f"{address}traffic/?model={MODEL.replace('/', '--')}&gpu={GPU}&tp=1&wait=5")
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {"name": "long.trace.gz", "mimeType": "application/gzip", "buffer": body},
    )
    page.wait_for_selector(f"{BOX}[data-kv-replicas]", timeout=120_000)
    want = replay(trace, MODEL, gpu=GPU, curve=False, wait_s=5).replicas_for_wait
    assert want is not None
    assert want > 2
    said = page.inner_text(f"{BOX} .kv-replicas")
    assert said == f"With {want} replicas, 95% of the requests wait at most 5 seconds."
    assert page.locator(f"{BOX} code", has_text="--wait 5").count() == 1
    page.fill("#kv-traffic-wait", "-3")
    page.press("#kv-traffic-wait", "Enter")
    page.locator(f"{BOX} .kv-replicas", has_text="above 0").wait_for()


def test_the_empty_page_says_what_to_do_and_shows_an_example(page, address):
    page.goto(f"{address}traffic/")
    text = page.inner_text(BOX)
    assert "drop your own file" in text
    assert "timestamp,prompt_tokens,output_tokens" in text
    assert "hit rate of" in text
    page.click(f"{BOX} a[href^='?trace=']")
    page.wait_for_selector(f"{BOX}[data-kv-flown=done]")
    assert "requests in flight after" in page.inner_text(BOX)


def test_lengths_without_prefixes_are_counted(page, address):
    page.goto(f"{address}traffic/")
    choose(page, MODEL)
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {"name": "lengths.csv", "mimeType": "text/csv", "buffer": b"8000,192\n" * 50},
    )
    page.wait_for_selector(f"{BOX}[data-kv-state=answered]")
    assert "does not state which prompts begin with the same text" in page.inner_text(BOX)
    from kvreport import estimate

    fit = estimate(MODEL, gpu=GPU, context_tokens=8192).max_concurrent_requests
    assert f"{fit} requests of mean size fit at once" in page.inner_text(BOX)


@pytest.mark.parametrize("body", [b"", b"hello\n", b'{"timestamp": 0, "input_length": -1, "hash_ids": []}\n'])
def test_what_is_no_trace_is_said(page, address, body):
    page.goto(f"{address}traffic/")
    page.wait_for_selector("[data-kv-traffic]")
    choose(page, MODEL)
    page.set_input_files(
        "[data-kv-traffic] [name=file]", {"name": "wrong.txt", "mimeType": "text/plain", "buffer": body}
    )
    page.wait_for_selector(f"{BOX}[data-kv-state=refused]")
    assert page.inner_text(BOX)
    assert page.locator(f"{BOX} svg").count() == 0


def test_the_axis_of_a_short_trace_has_a_unit_that_fits(page, address):
    """Twelve requests within three seconds had ticks at 0.0, 0.0 and 0.1 minutes."""
    rows = "".join(f"{at / 4},900,20\n" for at in range(12))
    page.goto(f"{address}traffic/?model={MODEL.replace('/', '--')}&gpu={GPU}&tp=1")
    page.set_input_files(
        "[data-kv-traffic] [name=file]",
        {
            "name": "short.csv",
            "mimeType": "text/csv",
            "buffer": f"timestamp,prompt_tokens,output_tokens\n{rows}".encode(),
        },
    )
    page.wait_for_selector(f"{BOX}[data-kv-flown=done]")
    texts = page.locator(f"{BOX} .kv-flight svg text").all_text_contents()
    assert "Time (seconds)" in texts
    across = texts[texts.index("0", 1) : texts.index("Time (seconds)")]  # after those of requests
    assert len(across) == len(set(across)) >= 3, texts
    assert "After (seconds)" in page.inner_text(f"{BOX} .kv-flight")
    duration = page.locator(f"{BOX} tr", has_text="Duration").locator("td").last.inner_text()
    assert duration == "2.8 seconds"
