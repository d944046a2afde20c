"""The log reader in a real browser, held equal to Python's, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuzz_targets
import pytest
from fuzzing import examples
from startup_logs import LOGS

from kvreport.catalog.load import open_catalog
from kvreport.catalog.log_lines import log_lines
from kvreport.errors import InputError
from kvreport.publish import profiles
from kvreport.publish.browser import script as browser_script
from kvreport.publish.page_data import gather
from kvreport.startup_log import diagnose, read_log, table
from kvreport.startup_log.endings import ended
from kvreport.startup_log.server_of_log import layout_of

pytestmark = [pytest.mark.browser]

CATALOG = open_catalog()

READ = """(text) => {
  const reading = kvLogLines.readLog(kvTable, text);
  const found = kvLogLines.diagnose(reading, null, null);
  const { concurrency, changes, shorter, passed, shorterRuns } = found;
  return { ...reading, concurrency, changes, shorter, passed, shorterRuns };
}"""


@pytest.fixture(scope="module")
def page(browser: Any, repository: Path) -> Iterator[Any]:
    opened = browser.new_page()
    opened.add_script_tag(content=browser_script())
    for name in ("kv-capacity.js", "kv-loglines.js"):
        opened.add_script_tag(path=repository / "docs" / "assets" / name)
    # Once: sent with every log, the table of patterns took most of these tests' time.
    opened.evaluate("(table) => { window.kvTable = table; }", table())
    yield opened
    opened.close()


@pytest.mark.parametrize("name", LOGS)
def test_the_browser_reads_as_python_does(page: Any, name: str) -> None:
    theirs = page.evaluate(READ, LOGS[name])
    ours = read_log(LOGS[name])
    assert theirs["engine"] == ours.engine
    assert theirs["facts"] == ours.facts
    assert theirs["unknown"] == [list(one) for one in ours.unknown]
    assert theirs["doubtful"] == list(ours.doubtful)
    assert theirs["recognised"] == [
        {"number": one.number, "text": one.text, "pattern": one.pattern, "facts": one.facts, "says": one.says}
        for one in ours.recognised
    ]


ENDED = """(texts) => texts.map((text) => {
  const reading = kvLogLines.readLog(kvTable, text), end = kvLogLines.ended(kvTable, reading);
  return [reading.facts, end && [end.pattern, end.sentence, end.stops, Object.fromEntries(end.remedies)]];
})"""


def test_the_browser_reads_every_example_and_end_as_python_does(page: Any) -> None:
    examples = [line.example for one in log_lines() for line in one.lines]
    texts = [*examples, *("GPU KV cache size: 100,000 tokens\n" + text for text in examples)]
    for text, (facts, theirs) in zip(texts, page.evaluate(ENDED, texts), strict=True):
        reading = read_log(text)
        ours = ended(reading)
        assert facts == reading.facts, text
        assert theirs == (ours and [ours.pattern, ours.sentence, ours.stops, ours.remedies]), text


@pytest.mark.parametrize("name", LOGS)
def test_the_browser_advises_as_python_does(page: Any, name: str) -> None:
    theirs = page.evaluate(READ, LOGS[name])
    # A model that no catalog knows: both have the log's own numbers only.
    ours = diagnose(LOGS[name].replace("Qwen/Qwen2.5-72B-Instruct", "no/model"), catalog=CATALOG)
    assert theirs["concurrency"] == pytest.approx(ours.concurrency)
    assert theirs["passed"] == (ours.headline.startswith("The server runs: "))
    assert theirs["shorterRuns"] == (ours.headline.startswith("The server runs, "))
    assert theirs["shorter"] == [list(pair) for pair in ours.shorter]
    assert [(one["change"], one["value"]) for one in theirs["changes"]] == [
        (one.name, one.value) for one in ours.changes
    ]
    for their, our in zip(theirs["changes"], ours.changes, strict=True):
        assert their["concurrency"] == pytest.approx(our.concurrency)


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nset -eu\nexec vllm serve org/m\n", "services:\n  a:\n    image: b\n"]
)
def test_files_are_refused_as_python_does(page: Any, text: str) -> None:
    with pytest.raises(InputError):
        read_log(text)
    told = page.evaluate("(text) => kvLogLines.readLog(kvTable, text).error", text)
    assert "deployment file or a script" in told


def test_blanks_are_refused(page: Any) -> None:
    assert "blanks" in page.evaluate("(text) => kvLogLines.readLog(kvTable, text).error", " \n")


ODD_SIGNS = (
    "\x85# cuda blocks: 190100, # CPU blocks: 0",
    "Graph capturing finished in \u2028101 secs, took 1.88 GiB",
    "INFO non-default args: \u2028{'model': 'org/m', 'max_model_len': 262144, 'enforce_eager': True}",
    "Available\xa0KV cache memory: 3.20\xa0GiB",
    "\ufeff# cuda blocks: 190100, # CPU blocks: 0\x1f",
)


def test_the_browser_reads_what_nobody_wrote_as_python_does(page: Any) -> None:
    damaged = (fuzz_targets.log_text(fuzz_targets.drawn("log text", seed)) for seed in range(examples(100)))
    for text in (*ODD_SIGNS, *damaged):
        _reads_as_python_does(page, text)


def _reads_as_python_does(page: Any, text: str) -> None:
    theirs = page.evaluate("(text) => kvLogLines.readLog(kvTable, text)", text)
    try:
        ours = read_log(text)
    except InputError:
        assert "error" in theirs
        return
    assert theirs["facts"] == ours.facts
    assert theirs["engine"] == ours.engine
    assert theirs["unknown"] == [list(one) for one in ours.unknown]
    assert [(one["number"], one["pattern"]) for one in theirs["recognised"]] == [
        (one.number, one.pattern) for one in ours.recognised
    ]


@pytest.fixture(scope="module")
def published() -> dict[str, tuple[object, object]]:
    """Two models as a site publishes them, with its own facts."""
    found = {}
    for model in ("Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V2-Lite"):
        site = gather(CATALOG, models=model, version="test")
        ((content, _),) = profiles.every_model(site)
        facts = json.loads(profiles.encode(profiles.site_facts(site)))
        found[model] = facts, json.loads(content)
    return found


ADVISED = """([text, site, model, gpu]) => {
  const reading = kvLogLines.readLog(kvTable, text);
  const device = kvCapacity.gpuOf(site, gpu);
  const rules = kvLogLines.layout(reading, site, model, device);
  const found = kvLogLines.diagnose(reading, rules, device.usable);
  return { changes: found.changes, shorter: found.shorter, concurrency: found.concurrency };
}"""

SHORT_OF_MEMORY = """\
INFO Initializing a V1 LLM engine (v0.33.0) with config: model='{model}', tensor_parallel_size={ranks}
vllm serve {model} --max-model-len {length} --gpu-memory-utilization {share} --max-num-batched-tokens 8192
Model loading took 61.03 GiB
Available KV cache memory: {pool} GiB
{further}
"""


NEEDED = (
    "To serve at least one request with the models's max seq len (40960), ({} GiB KV cache is needed, which is larger "
    "than the available KV cache memory (2.00 GiB)."
)


@pytest.mark.parametrize(
    ("ranks", "length", "share", "pool", "further"),
    [
        (1, 16384, 0.9, -1.5, ""),  # a higher share, more devices
        (1, 40960, 0.95, -2.0, ""),  # the share is at its safe limit
        (1, 40960, 0.92, 4.0, "Maximum concurrency for 40,960 tokens per request: 0.40x"),
        (2, 40960, 0.8, 1.0, "GPU KV cache size: 8,192 tokens"),
        (1, 1024, 0.5, -0.1, ""),
        (1, 40960, 0.9, 2.0, NEEDED.format("2.50")),  # the plan of one rank is not the log's
        (1, 40960, 0.9, 2.0, NEEDED.format("10.00")),
        (4, 40960, 0.9, 2.0, NEEDED.format("2.50")),
        (1, 40960, 0.9, 180.0, "GPU KV cache size: 1,310,720 tokens"),  # more than the GPU has
    ],
)
def test_the_browser_advises_on_a_known_model_as_python_does(
    page: Any, published: Any, ranks: int, length: int, share: float, pool: float, further: str
) -> None:
    model, gpu = "Qwen/Qwen3-32B", "h100-sxm-80gb"
    text = SHORT_OF_MEMORY.format(
        model=model, ranks=ranks, length=length, share=share, pool=pool, further=further
    )
    theirs = page.evaluate(ADVISED, [text, *published[model], gpu])
    ours = diagnose(text, gpu=gpu, catalog=CATALOG)
    assert [(one["change"], one["value"]) for one in theirs["changes"]] == [
        (one.name, one.value) for one in ours.changes
    ]
    assert theirs["shorter"] == [list(pair) for pair in ours.shorter]
    assert theirs["concurrency"] == pytest.approx(ours.concurrency)


LAID_OUT = """([text, site, model, gpu]) => {
  const reading = kvLogLines.readLog(kvTable, text), facts = reading.facts;
  const device = kvCapacity.gpuOf(site, gpu);
  const rules = kvLogLines.layout(reading, site, model, device);
  if (!rules) return { other: kvLogLines.otherRanks(facts, device), spread: kvLogLines.spread(facts) };
  const found = kvLogLines.diagnose(reading, rules, device.usable);
  return {
    changes: found.changes.map((one) => [one.change, one.value]),
    shorter: found.shorter,
    weights: rules.weights,
    kv_pool: Math.max(rules.poolWith(rules.rows), 0),
    ...(found.pool > 0
      ? {
          concurrency: rules.concurrency(found.pool, found.longest),
          kv_tokens: rules.tokensOf(found.pool, found.longest),
          needed: rules.own(found.longest),
        }
      : {}),
  };
}"""

SPREAD = """\
INFO Initializing a V1 LLM engine (v0.33.0) with config: model='{model}', tensor_parallel_size={tensor}
vllm serve {model} --max-model-len 32768 --gpu-memory-utilization 0.9 {flags}
Model loading took 10.03 GiB
Available KV cache memory: {pool} GiB
GPU KV cache size: 100,000 tokens
"""


@pytest.mark.parametrize("pool", ["8.50", "0.30", "-1.25"])
@pytest.mark.parametrize(
    ("model", "tensor", "flags", "gpu"),
    [
        ("Qwen/Qwen3-32B", 2, "", "rtx-5090+rtx-3090"),
        ("Qwen/Qwen3-32B", 4, "", "rtx-5090*2+rtx-3090*2"),
        ("Qwen/Qwen3-32B", 1, "-pp 2", "h100-sxm-80gb+a100-sxm4-40gb"),
        ("Qwen/Qwen3-32B", 1, "-pp 2", "a100-sxm4-40gb+h100-sxm-80gb"),
        ("Qwen/Qwen3-32B", 1, "-pp 3", "rtx-5090*2+rtx-3090"),
        ("Qwen/Qwen3-32B", 2, "-pp 2", "rtx-5090+rtx-3090*3"),
        ("Qwen/Qwen3-32B", 1, "-pp 2", "a100-sxm4-80gb"),
        ("Qwen/Qwen3-32B", 2, "-pp 2 --max-num-seqs 64", "rtx-5090"),
        ("deepseek-ai/DeepSeek-V2-Lite", 1, "-dp 8 --enable-expert-parallel", "h100-sxm-80gb"),
        ("deepseek-ai/DeepSeek-V2-Lite", 8, "-dcp 8", "h100-sxm-80gb"),
    ],
)
def test_the_browser_judges_spread_models_as_python_does(
    page: Any, published: Any, model: str, tensor: int, flags: str, gpu: str, pool: str
) -> None:
    facts, content = published[model]
    text = SPREAD.format(model=model, tensor=tensor, flags=flags, pool=pool)
    theirs = page.evaluate(LAID_OUT, [text, facts, content, gpu])
    ours = diagnose(text, gpu=gpu, catalog=CATALOG)
    assert theirs["shorter"] == [list(pair) for pair in ours.shorter]
    advised = [[one.name, one.value] for one in ours.changes]
    wider = {
        (one["tp"], one["pp"], one["dp"], one["dcp"])
        for one in (*facts["layouts"], *facts["sizing_layouts"])
        if one["nodes"] == 1
    }
    spans = layout_of(ours.reading)
    rest = spans.pipeline, spans.data, spans.decode_context
    unpublished = [one for one in advised if one[0] == "tensor_parallel" and (one[1], *rest) not in wider]
    assert theirs["changes"] == [one for one in advised if one not in unpublished]
    compared = {one.fact: one.predicted for one in ours.comparisons}
    assert {"weights", "kv_pool"} & set(compared)
    for fact, predicted in compared.items():
        assert theirs[fact] == pytest.approx(predicted, rel=1e-9), fact


@pytest.mark.parametrize(
    ("flags", "gpu", "said"),
    [
        ("-pp 2", "rtx-5090*2+rtx-3090", "found 3 devices for a log of 2 ranks"),
        ("-pp 5", "rtx-5090", "--pipeline-parallel-size 5"),
        ("-dp 8", "rtx-5090", "--data-parallel-size 8"),
    ],
)
def test_a_layout_without_numbers_is_named(
    page: Any, published: Any, flags: str, gpu: str, said: str
) -> None:
    model = "Qwen/Qwen3-32B"
    text = SPREAD.format(model=model, tensor=1, flags=flags, pool="8.50")
    theirs = page.evaluate(LAID_OUT, [text, *published[model], gpu])
    assert said in theirs["other"] or said in " ".join(theirs["spread"])
    assert set(theirs) == {"other", "spread"}


def test_without_the_model_a_length_is_found_in_proportion(page: Any) -> None:
    text = (
        "vllm serve no/model --max-model-len 32768\nAvailable KV cache memory: 3.20 GiB\n"
        "To serve at least one request with the models's max seq len (32768), (5.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.20 GiB)."
    )
    theirs = page.evaluate(READ, text)
    ours = diagnose(text, catalog=CATALOG)
    assert ours.changes
    assert [(one["change"], one["value"]) for one in theirs["changes"]] == [
        (one.name, one.value) for one in ours.changes
    ]
