"""Draft models beside a target under SGLang: pools as its own code sizes them, what is loaded first, and logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang import plan, settings
from kvreport.accounting.engines.sglang.pools import PoolFlags, pool_rule, pools_of
from kvreport.accounting.extras import borrowed_copies, draft_rows, with_draft
from kvreport.architectures import read_config
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import engine_for_version, trait
from kvreport.estimation import estimate
from kvreport.startup_log.diagnose import diagnose

COMMON: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "eagle3": COMMON
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "draft_vocab_size": 32000,
    },
    "dflash": COMMON
    | {
        "architectures": ["DFlashDraftModel"],
        "num_hidden_layers": 5,
        "num_key_value_heads": 4,
        "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]},
    },
}

# scripts/run_sglang_planner.py with each release, a pretended H100 and a budget of 40 GiB: release, target, draft, tensor
# ranks, tokens verified, and the tokens and states of the pools. "q06" is Qwen3-0.6B as a language model beside (STANDALONE).
SPOTS = [
    ("0.5.17", "Qwen/Qwen3-8B", "eagle3", 1, 4, 283398, None),
    ("0.5.17", "Qwen/Qwen3-8B", "q06", 2, 4, 327680, None),
    ("0.5.17", "Qwen/Qwen3-8B", "dflash", 2, 8, 511500, None),
    ("0.5.17", "Qwen/Qwen3.5-27B", "eagle3", 1, 4, 327191, 70),
    ("0.5.17", "Qwen/Qwen3.5-27B", "q06", 2, 4, 253684, 144),
    ("0.5.17", "Qwen/Qwen3.5-27B", "dflash", 2, 8, 535107, 98),
    ("0.5.17", "deepseek-ai/DeepSeek-V3", "eagle3", 1, 4, 601333, None),
    ("0.5.17", "deepseek-ai/DeepSeek-V3", "q06", 2, 4, 418906, None),
    ("0.5.17", "deepseek-ai/DeepSeek-V3", "dflash", 2, 8, 564889, None),
    ("0.5.17", "openai/gpt-oss-120b", "eagle3", 1, 4, 627889, None),
    ("0.5.17", "openai/gpt-oss-120b", "q06", 2, 4, 694421, None),
    ("0.5.17", "openai/gpt-oss-120b", "dflash", 2, 8, 1294538, None),
    ("0.5.18", "Qwen/Qwen3-8B", "dflash", 2, 8, 544714, None),
    ("0.5.18", "Qwen/Qwen3.5-27B", "dflash", 2, 8, 607419, 98),
    ("0.5.18", "deepseek-ai/DeepSeek-V3", "dflash", 2, 8, 569684, None),
    ("0.5.18", "openai/gpt-oss-120b", "dflash", 2, 8, 1121471, None),
    ("0.5.23", "Qwen/Qwen3-8B", "eagle3", 1, 4, 283398, None),
    ("0.5.23", "Qwen/Qwen3.5-27B", "eagle3", 1, 4, 327191, 70),
    ("0.5.23", "deepseek-ai/DeepSeek-V3", "eagle3", 1, 4, 601333, None),
    ("0.5.23", "openai/gpt-oss-120b", "eagle3", 1, 4, 627889, None),
]


def draft_of(catalog: Catalog, name: str, vocabulary: int) -> Model:
    found = (
        catalog.model("Qwen/Qwen3-0.6B") if name == "q06" else read_config(CONFIGS[name], id=f"drafts/{name}")
    )
    return found.model_copy(update={"vocabulary": vocabulary})


def release_of(catalog: Catalog, release: str) -> Engine:
    record = engine_for_version(catalog.engines.values(), "sglang", release)
    assert record is not None
    return rules(record).at_release(release)


@pytest.mark.parametrize(("release", "target", "draft", "ranks", "verified", "tokens", "states"), SPOTS)
def test_pools_beside_a_draft_are_those_of_sglang(
    catalog: Catalog,
    release: str,
    target: str,
    draft: str,
    ranks: int,
    verified: int,
    tokens: int,
    states: int | None,
) -> None:
    served = catalog.model(target)
    whole = with_draft(served, draft_of(catalog, draft, served.vocabulary)).whole
    engine, device = release_of(catalog, release), catalog.accelerator("h100-sxm-80gb")
    resolved = settings.settings(served, engine, device, settings.SglangFlags(tensor_parallel=ranks))
    flags = PoolFlags(
        2,
        attention_ranks=ranks,
        page_tokens=resolved.page_tokens,
        context_tokens=served.context_tokens,
        states_per_request=resolved.states_per_request,
        max_requests=trait(engine, "drafting_requests"),
        draft_tokens=verified,
        draft_bytes=plan.own_draft_bytes(whole, engine, ranks, 2),
    )
    pools = pools_of(pool_rule(plan.counted(whole, engine), engine, flags), 40 << 30)
    assert (pools.tokens, pools.state_slots) == (tokens, states)


def test_releases_before_0_5_14_load_a_draft_behind_the_pools(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["eagle3"]), encoding="utf-8")
    before, since = (
        estimate(
            "Qwen/Qwen3-8B",
            gpu="h100",
            engine=engine,
            context_tokens=8192,
            draft=str(config),
            num_speculative_tokens=3,
        )
        for engine in ("sglang@0.5.13", "sglang")
    )
    own = sum(row.parameters * 2 for row in draft_rows(since.request.served_model))
    assert before.loading_bytes["loaded_behind_pools"] == -own
    # models/llama_eagle3.py: an embedding that is given up later, beside a head of 32,000 words of its own.
    assert since.loading_bytes["draft_copies"] == 151_936 * 4096 * 2
    assert {
        row.shape for row in draft_rows(since.request.served_model) if row.component == "output_head"
    } == {(32_000, 4096)}
    assert "loaded_behind_pools" not in since.loading_bytes


@pytest.mark.parametrize(("draft", "mib"), [("eagle3", 4096), ("q06", 6144)])
def test_releases_before_0_5_14_keep_more_free_for_a_draft(catalog: Catalog, draft: str, mib: int) -> None:
    # server_args.py, 0.5.13: 4 GiB for a draft head, 6 GiB for a language model beside the target.
    served, device = catalog.model("Qwen/Qwen3-8B"), catalog.accelerator("h100-sxm-80gb")
    whole = with_draft(served, draft_of(catalog, draft, served.vocabulary)).whole

    def share(release: str, *, drafts: bool) -> float:
        return settings.settings(
            whole, release_of(catalog, release), device, settings.SglangFlags(drafts=drafts)
        ).share

    assert share("0.5.13", drafts=False) - share("0.5.13", drafts=True) == pytest.approx(
        mib / 81_559, abs=2e-3
    )
    assert share("0.5.14", drafts=True) == share("0.5.14", drafts=False)


def test_a_draft_of_blocks_builds_no_embedding(catalog: Catalog) -> None:
    served = catalog.model("Qwen/Qwen3-8B")
    assert borrowed_copies(with_draft(served, draft_of(catalog, "dflash", 151936)).whole, 1) == 0
    assert borrowed_copies(with_draft(served, draft_of(catalog, "q06", 151936)).whole, 1) == 0


LOG = """\
$ python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.8 --speculative-algorithm {method} \\
    --speculative-draft-model-path {draft} {sizes}
[2026-10-20 10:00:00] Load weight begin. avail mem=78.40 GB
[2026-10-20 10:00:09] Load weight end. elapsed=9.00 s, type=Qwen3ForCausalLM, avail mem=63.12 GB, mem usage=15.28 GB.
[2026-10-20 10:00:11] Load weight end. elapsed=2.00 s, type={type}, avail mem=62.00 GB, mem usage=1.12 GB.
"""


@pytest.mark.parametrize(
    ("method", "draft", "sizes", "drafted"),
    [
        ("STANDALONE", "Qwen/Qwen3-0.6B", "--speculative-num-steps 4 --speculative-eagle-topk 1", 4),
        ("STANDALONE", "/models/Qwen3-0.6B", "", 3),
        ("EAGLE3", "eagle3", "--speculative-num-draft-tokens 6", 5),
        ("DFLASH", "dflash", "--speculative-dflash-block-size 8", 7),
        ("DFLASH", "dflash", "--speculative-num-draft-tokens 16", 15),
        ("DSPARK", "dflash", "--speculative-dspark-block-size 5", 5),
        # A tree of drafts is not counted, and a draft that nobody knows neither.
        ("EAGLE3", "eagle3", "--speculative-num-steps 3 --speculative-eagle-topk 4", 0),
        ("EAGLE3", "somebody/unknown", "", 0),
    ],
)
def test_a_log_with_a_draft_is_predicted_with_it(
    tmp_path: Path, method: str, draft: str, sizes: str, drafted: int
) -> None:
    given = None
    if draft in CONFIGS:
        given = str(tmp_path / "config.json")
        Path(given).write_text(json.dumps(CONFIGS[draft]), encoding="utf-8")
    text = LOG.format(method=method, draft=draft, sizes=sizes, type="LlamaForCausalLMEagle3")
    found = diagnose(text, gpu="h100", draft=given)
    named = [note for note in found.notes if "draft" in note]
    laid = found.to_dict()
    assert (drafted == 0) == any("what drafts take" in note or "a draft model" in note for note in named), (
        named
    )
    assert laid is not None
