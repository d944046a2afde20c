"""Hit-rate curves in a real browser, held equal to Python's to the token."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traces import write_compact

from kvreport.errors import InputError
from kvreport.publish.browser import script
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import hit_counts
from kvreport.traffic.readers import read_lines
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import shipped_traces

pytestmark = [pytest.mark.browser]

CURVE = """
([text, unit, sizes, warmup, computeLast]) => {
  const trace = kvTraffic.readTrace(text, "trace");
  const runs = kvTraffic.reuse(trace, unit);
  return {
    prompts: trace.prompt, outputs: trace.output, distinct: runs.distinct, runs: runs.runs.length,
    hits: sizes.map((size) => ["lru", "best"].map((policy) => kvTraffic.hitCounts(runs, size, { policy, warmup, computeLast }).hitTokens)),
  };
}
"""
READ = """
(text) => {
  try {
    const trace = kvTraffic.readTrace(text, "trace");
    return { times: trace.time, prompts: trace.prompt, outputs: trace.output, sessions: trace.session,
      block: trace.blockTokens, distinct: trace.distinct };
  } catch (error) { return { error: error.message }; }
}
"""


@pytest.fixture(scope="module")
def page(browser: Any, repository: Path) -> Iterator[Any]:
    opened = browser.new_page()
    opened.add_script_tag(content=script())
    opened.add_script_tag(path=repository / "docs" / "assets" / "kv-traffic.js")
    yield opened
    opened.close()


def compare(
    page: Any, text: str, unit: int | None, sizes: list[int | None], warmup: float, last: bool
) -> None:
    trace = read_lines(text.splitlines(keepends=True), "trace")
    ours = reuse(trace, unit)
    theirs = page.evaluate(CURVE, [text, unit, sizes, warmup, last])
    assert theirs["prompts"] == list(trace.prompt_tokens)
    assert theirs["outputs"] == list(trace.output_tokens)
    assert (theirs["distinct"], theirs["runs"]) == (ours.distinct, len(ours.request))
    for size, (lru, best) in zip(sizes, theirs["hits"], strict=True):
        assert lru == hit_counts(ours, size, warmup=warmup, compute_last=last).hit_tokens
        assert best == hit_counts(ours, size, policy="best", warmup=warmup, compute_last=last).hit_tokens


@pytest.mark.parametrize("key", shipped_traces())
def test_shipped_traces(page, key):
    text = gzip.decompress(shipped_traces()[key].path.read_bytes()).decode()
    compare(page, text, None, [100, 5859, None], 0.5, False)
    compare(page, text, 16, [30_000, 1_000_000], 0.0, True)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("unit", [None, 48])
def test_generated_traces(page, seed, unit):
    trace = generate(Workload(sessions=120, turns=5, system_prompts=3, seed=seed))
    text = "".join(write_compact(trace))
    compare(page, text, unit, [0, 1, 50, 700, 5000, None], 0.25, True)


FORMS = {
    "mooncake": '{"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [0, 2, 3]}\n'
    '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n',
    "bailian": '{"chat_id": 1, "timestamp": 2.5, "input_length": 30, "output_length": 1, "hash_ids": [5, 6]}\n',
    "sessions": '{"id": "a", "block_size": 64, "requests": [{"t": 0.0, "in": 130, "out": 9, "hash_ids": [1, 2]}, '
    '{"requests": [{"t": 4.0, "in": 70, "out": 5, "hash_ids": [9]}]}]}\n',
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.979,4808,10\n"
    "2023-11-16 18:17:04.031,3180,8\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,4808,10\n0.052,3180,8\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n",
    "conversations": "time,session_id,prompt_tokens\n0,b,10\n1,a,20\n2,,30\n3,b,40\n",
    "chats": '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 0, "input_length": 30, "hash_ids": [1, 2]}\n'
    '{"chat_id": 8, "parent_chat_id": -1, "timestamp": 1, "input_length": 30, "hash_ids": [3, 4]}\n'
    '{"chat_id": 9, "parent_chat_id": 7, "timestamp": 2, "input_length": 30, "hash_ids": [1, 5]}\n',
    "lengths": "100,7\n200,9\n",
    "prompts": "100\n200\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_read_alike(page, form):
    trace = read_lines(FORMS[form].splitlines(keepends=True), "trace")
    theirs = page.evaluate(READ, FORMS[form])
    assert theirs.get("error") is None
    assert theirs["prompts"] == list(trace.prompt_tokens)
    assert theirs["outputs"] == list(trace.output_tokens)
    assert theirs["times"] == pytest.approx(list(trace.arrival_s), abs=2e-3)
    assert theirs["sessions"] == list(trace.session)
    assert (theirs["block"], theirs["distinct"]) == (trace.block_tokens, trace.num_nodes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        '{"hello": 1}\n',
        '{"timestamp": 0, "input_length": -6, "hash_ids": []}\n',
        '{"timestamp": 0, "block_size": 64, "input_length": 64, "hash_ids": [1, 2, 3]}\n',
        "1,2,3,4\n",
        "100,-7\n",
        "a,b\n1,2\n",
        "kvreport-trace 1 block=16 time=ms\n0,20,1;5\n",
    ],
)
def test_what_is_no_trace_is_refused_by_both(page, text):
    with pytest.raises(InputError):
        read_lines(text.splitlines(keepends=True), "trace")
    assert page.evaluate(READ, text).get("error"), json.dumps(text)


UNPACK = """
async ([packed, most]) => {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  try { return [await kvTraffic.unpacked(new Blob([bytes]).stream(), most), ""]; }
  catch (error) { return ["", error.message]; }
}
"""


def test_an_archive_is_unpacked_no_further_than_its_limit(page: Any) -> None:
    """A file of 1 kB may hold a gigabyte: the page counted what it was given, not what came out."""
    text = "prompt,output\n" + "100,100\n" * 200
    packed = base64.b64encode(gzip.compress(text.encode())).decode()
    assert page.evaluate(UNPACK, [packed, len(text)]) == [text, ""]
    found, error = page.evaluate(UNPACK, [packed, len(text) - 1])
    assert found == ""
    assert "The archive has over" in error
    bomb = base64.b64encode(gzip.compress(bytes(200_000_000))).decode()
    assert "over 1 MB" in page.evaluate(UNPACK, [bomb, 1_000_000])[1]
