"""Pages about recorded traffic count the requests that the command counts, and say what they leave out."""

from __future__ import annotations

import json

import pytest
from traces import run

from kvreport.catalog.load import open_catalog
from kvreport.estimation import estimate
from kvreport.publish import traffic_data
from kvreport.site.pages import traffic
from kvreport.site.pages.model import recorded_traffic as section
from kvreport.traffic.answers import longer_model, replay
from kvreport.traffic.shipped import open_trace, shipped_traces

CATALOG = open_catalog()
SHORT, GPU = "Qwen/Qwen2.5-7B-Instruct", "h100-sxm-80gb"
KEY = "mooncake-conversation"


def test_page_and_command_hit_alike() -> None:
    """At 128 GiB the same trace and model hit 19.3 % on one page and 10.8 % on the other."""
    answer = replay(KEY, SHORT, gpu=GPU, order_only=True, catalog=CATALOG)
    blocks = answer.pools.pools[0].blocks
    ((rate, _),) = traffic_data.curve_of(KEY, 16, 32_768, [blocks])
    assert rate == answer.hit_rate
    ((unfiltered, _),) = traffic_data.curve_of(KEY, 16, 1 << 20, [blocks])
    assert abs(unfiltered - rate) > 0.03


def test_the_table_says_what_it_leaves_out_and_gives_no_number_for_another_trace() -> None:
    table = traffic._table(57_344, 32_768)
    rows = {row.head.text: [cell.text for cell in row.cells] or row.why for row in table.rows}
    assert set(rows) == {
        "Mooncake conversation (11,202 of 12,031 requests)",
        "Mooncake synthetic (3,348 of 3,993 requests)",
        "Claude Code sessions (60 of 2,000 requests)",
    }
    assert (
        rows["Claude Code sessions (60 of 2,000 requests)"]
        == "97% of the prompts are too long for this model"
    )
    assert (
        rows["Mooncake synthetic (3,348 of 3,993 requests)"]
        == "16% of the prompts are too long for this model"
    )
    assert all(cell.endswith("%") for cell in rows["Mooncake conversation (11,202 of 12,031 requests)"])


def test_the_model_that_the_page_starts_with_serves_every_published_trace() -> None:
    model = CATALOG.model(traffic.EXAMPLES[0])
    assert all(not traffic_data.left_out(key, model.context_tokens) for key in shipped_traces())


@pytest.mark.parametrize(
    "name", [SHORT, "meta-llama/Llama-3.1-8B-Instruct", "microsoft/Phi-3-mini-4k-instruct"]
)
def test_a_models_page_offers_only_what_its_command_answers(name: str) -> None:
    found = section.context(estimate(name, gpu=GPU, context_tokens=2048))
    if found is None:
        assert CATALOG.model(name).context_tokens < 32_768
        return
    key = found["command"].split()[2]
    answer = replay(key, name, gpu=GPU, order_only=True, curve=False, catalog=CATALOG)
    assert f"{answer.hit_rate:.0%} on the {shipped_traces()[key].label} trace" in found["sentence"]
    assert (". Requests with prompts of " in found["sentence"]) == bool(answer.too_long)
    assert len(found["lines"]) == len(found["table"].columns)


def test_the_browser_leaves_out_and_names_what_the_command_does() -> None:
    ((_, content),) = [
        file for file in traffic_data.files(list(CATALOG.models.values())) if file[0].endswith(".json")
    ]
    trace = open_trace("claude-code-sessions")
    asked = [
        (name, limit)
        for name in (SHORT, "meta-llama/Llama-3.1-70B-Instruct", "openai/gpt-oss-20b")
        for limit in (32_768, 131_072)
    ]
    theirs = run(
        """
        const [prompt, models, asked] = given;
        return asked.map(([slug, limit]) => [
          kvTraffic.leftOut({ prompt }, limit),
          kvTraffic.longerModel(models, slug, Math.max(...prompt)),
        ]);
        """,
        [
            list(trace.prompt_tokens),
            json.loads(content),
            [(CATALOG.model(name).slug, limit) for name, limit in asked],
        ],
    )
    longest = max(trace.prompt_tokens)
    for (name, limit), (left, other) in zip(asked, theirs, strict=True):
        long = [tokens for tokens in trace.prompt_tokens if tokens >= limit]
        assert left["requests"] == len(long)
        assert left["share"] == len(long) / len(trace)
        assert left["tokens"] == sum(long) / sum(trace.prompt_tokens)
        assert left["tooMany"] is True
        ours = longer_model(CATALOG.model(name), longest, CATALOG.models.values())
        assert ours is not None
        assert (other["id"], other["context"]) == (ours.id, ours.context_tokens)
