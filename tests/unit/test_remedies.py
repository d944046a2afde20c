"""What would make it fit: every change named is enough, and no change is named where none is needed."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import pairwise

import pytest

import kvreport
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.estimation import remedies as remedies_module
from kvreport.estimation.remedies import HOPELESS, remedies
from kvreport.estimation.request import resolve
from kvreport.estimation.why_not import why_not
from kvreport.query import Query

CATALOG = open_catalog()
CASES = [
    ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm-80gb", "8K"),
    ("meta-llama/Llama-3.1-8B-Instruct", "rtx-4090", "128K"),
    ("Qwen/Qwen3-32B", "rtx-4090", "32K"),
    ("deepseek-ai/DeepSeek-V3", "h100-sxm-80gb", "32K"),
    ("openai/gpt-oss-120b", "h100-sxm-80gb", "128K"),
    ("deepseek-ai/DeepSeek-V4-Flash", "b200-sxm-180gb", "64K"),
]
NAMES = {
    "--tensor-parallel": int,
    "--context": int,
    "--weights": str,
    "--kv": str,
    "--utilization": float,
    "--max-batched-tokens": int,
}


def asked(model, gpu, context, flags=""):
    words = shlex.split(flags)
    question = {"tensor_parallel": 1, "context": context, "eager": "--eager" in words}
    for name, value in pairwise(words):
        if name in NAMES:
            question[name.removeprefix("--").replace("-", "_")] = NAMES[name](value)
    return kvreport.estimate(model, gpu=gpu, context_tokens=question.pop("context"), **question)


@pytest.mark.parametrize(("model", "gpu", "context"), CASES)
def test_each_change_named_gives_what_it_says(model, gpu, context):
    before = asked(model, gpu, context)
    found = remedies(before, CATALOG.kv_formats)
    assert before.verdict not in HOPELESS or found
    for remedy in found:
        after = asked(model, gpu, context, remedy.flags)
        assert (after.max_concurrent_requests, after.verdict) == (remedy.requests, remedy.verdict)
        assert remedy.requests >= 1


def test_where_it_fits_nothing_is_named():
    answer = asked("Qwen/Qwen2.5-7B", "h100-sxm-80gb", "8K")
    assert remedies(answer, CATALOG.kv_formats) == ()


def test_a_context_that_is_too_long_is_told_how_long_it_may_be():
    before = asked("meta-llama/Llama-3.1-8B-Instruct", "l4", "128K")
    first = remedies(before, CATALOG.kv_formats)[0]
    assert first.flags == f"--context {before.max_context_tokens}"
    assert first.requests == 1
    longer = asked("meta-llama/Llama-3.1-8B-Instruct", "l4", before.max_context_tokens + 1)
    assert longer.verdict in HOPELESS


def test_two_changes_are_named_only_where_no_single_one_is_enough():
    found = remedies(asked("deepseek-ai/DeepSeek-V3", "h100-sxm-80gb", "32K"), CATALOG.kv_formats)
    assert found
    assert all(remedy.flags.count("--") == 2 for remedy in found)


def test_data_ranks_may_send_tokens_to_their_experts():
    """16 data ranks gather 32.7 GiB of each other's tokens: no step was named that takes most of it away."""
    asked_for = {"gpu": "h100-sxm-80gb", "data_parallel": 16, "expert_parallel": True, "context_tokens": "8K"}
    result = kvreport.estimate("deepseek-ai/DeepSeek-V3.2", **asked_for)
    backend = "--all2all-backend deepep_high_throughput"
    (lever,) = (one for one in why_not(result, CATALOG).levers if one.flags == backend)
    sent = kvreport.estimate("deepseek-ai/DeepSeek-V3.2", all2all_backend=backend.split()[1], **asked_for)
    assert lever.shortfall_bytes == sent.shortfall_bytes < result.shortfall_bytes - (20 << 30)
    sglang = kvreport.estimate("deepseek-ai/DeepSeek-V3.2", engine="sglang", **asked_for)
    assert backend not in [one.flags for one in why_not(sglang, CATALOG).levers]


def test_the_command_says_it(capsys):
    assert main(["estimate", "llama-3.1-70b", "--gpu", "h100", "--context", "8K"]) == 0
    said = capsys.readouterr().out
    assert "Any of these makes it fit" in said
    assert "--weights int4" in said
    assert main(["estimate", "llama 3.1 405b", "--gpu", "rtx-4090", "--context", "8K"]) == 0
    said = capsys.readouterr().out
    assert "Nothing tried makes it fit on this device" in said
    assert "kvreport size 'llama 3.1 405b' --context 8192 --concurrent 1" in said


def test_unequal_devices_are_those_and_no_others(capsys):
    assert main(["estimate", "deepseek-ai/DeepSeek-V3.2", "--gpu", "mi300x", "--gpu", "h100-sxm-80gb"]) == 0
    said = capsys.readouterr().out
    assert "does not fit" in said
    assert "--tensor-parallel" not in said


def test_counted_devices_are_counted_again_for_more():
    """Of 2 named devices none is the third: ``--tensor-parallel 8`` alone would be refused."""
    result = kvreport.estimate("deepseek-ai/DeepSeek-V3.2", gpu="2xh100-sxm-80gb")
    tried = why_not(result, CATALOG).to_dict()["levers"]
    more = [one["flags"] for one in tried if "--gpu" in one["flags"]]
    assert "--gpu 8xh100-sxm-80gb --tensor-parallel 8" in more
    assert "--gpu 8xh100-sxm-80gb --data-parallel 8 --expert-parallel" in more
    assert any(re.fullmatch(r"--gpu 2x\S+", flags) for flags in more)
    for flags in more:
        assert main(["estimate", "deepseek-ai/DeepSeek-V3.2", *flags.split()]) == 0
    assert not any(one["flags"].startswith("--tensor-parallel") for one in tried)


def test_two_changes_keep_each_field_that_either_of_them_changes() -> None:
    """Whatever class of the record's a field stands in: settings of the server, of the launch, or of the question."""
    request = resolve(Query(model="Qwen/Qwen3-8B", gpu="h100-sxm-80gb"), open_catalog())
    changed = {
        "eager": True,
        "kv_pool_bytes": 1 << 30,
        "layout": Layout(tensor=2),
        "dtype": "float32",
        "context_tokens": 77,
    }
    one = remedies_module.QuestionChange("a", "--a", replace(request, assumptions=("said",)))
    for name, value in changed.items():
        other = remedies_module.QuestionChange("b", "--b", replace(request, **{name: value}))
        both = remedies_module._both(request, one, other)
        assert both == replace(request, assumptions=("said",), **{name: value}), name


def test_no_change_is_tried_that_the_engine_has_no_option_for():
    """``generate()`` captures no graphs: --eager was tried of it, and refused as a question."""
    answer = kvreport.estimate("meta-llama/Llama-3.1-70B-Instruct", gpu="rtx-4090", engine="transformers")
    tried = [one.flags for one in why_not(answer, CATALOG).levers]
    assert "--tensor-parallel 2" in tried
    assert not {"--eager", "--utilization 0.95", "--max-batched-tokens 2048"} & set(tried)
