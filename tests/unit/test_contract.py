"""Every name that others build on is there: commands, options, JSON keys, Python names, columns, exit statuses.

Names may be added to these lists. None is removed or renamed within a major version (docs/about/contract.md).
"""

from __future__ import annotations

import json
import re

import pytest

import kvreport
from kvreport.cli import main
from kvreport.dataset.columns import CAPACITY
from kvreport.query import Query

OPTIONS = {
    "estimate": "--gpu --tensor-parallel --data-parallel --expert-parallel --pipeline-parallel --decode-context-parallel --nodes --memory"
    " --parallel --ubatch-size --n-gpu-layers --n-cpu-moe --cache-type-k --cache-type-v --kv-unified --swa-full --flash-attn --host-memory"
    " --draft --num-speculative-tokens --max-loras --max-lora-rank --limit-mm-per-prompt --kv-offload --kv-cache-memory-bytes --require"
    " --context --weights --kv --engine --utilization --kv-pool --max-batched-tokens --max-seqs --block-size --format --as --revision --fetch",
    "size": "--disaggregated --trace --concurrent --context --price --as --format",
    "log": "--model --gpu --format",
    "matrix": "--shard --partitioned --scheduler --out",
    "model": "--id",
    "check": "--data",
    "export": "--out",
    "init": "",
    "list": "--format",
    "diff": "--model --gpu --context --format",
    "replay": "--gpu --format",
    "validate": "--format",
    "claim": "--model --quantity --value --unit --context --format",
    "preflight": "--gpu --require --format",
    "mcp": "",
    "completion": "",
}
KEYS = (
    "model gpu tensor_parallel context_tokens weight_format kv_format engine engine_version parameters weight_bytes_per_gpu"
    " kv_bytes_per_token_per_gpu state_bytes_per_request_per_gpu kv_bytes_per_request_per_gpu budget max_concurrency"
    " max_concurrent_requests max_concurrent_requests_by_memory limited_by kv_pool_tokens max_context_tokens verdict"
    " shortfall_bytes uncertainty_bytes layout per_rank assumptions not_read host_bytes kv_cache_bytes extras explanation"
)
COLUMNS = (
    "model gpu engine layout tensor_parallel data_parallel pipeline_parallel expert_parallel decode_context_parallel weight_format"
    " kv_format context_tokens max_concurrent_requests max_concurrent_requests_by_memory max_concurrent_requests_ceiling limited_by"
    " shortfall_bytes_per_gpu verdict"
)
VERDICTS = (
    "engine_does_not_run format_not_supported context_exceeds_model weights_exceed_memory cache_exceeds_pool max_seqs_exceeds_states"
    " may_fit tight fits"
)
LIMITS = "kv_pool max_num_seqs state_slots context"
ASK = ["estimate", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100-sxm-80gb", "--context", "8K"]


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_has_its_options(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert set(OPTIONS[command].split()) <= shown


def test_an_estimate_has_its_keys(capsys):
    assert main([*ASK, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(KEYS.split()) <= found.keys()
    assert {"weights", "cache", "compute"} <= found["host_bytes"].keys()
    assert {"draft", "lora", "encoder", "offload"} <= found["extras"].keys()
    assert {"max_concurrency", "max_concurrent_requests", "kv_pool_tokens"} <= found["per_rank"].keys()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--require", "1"], 0),
        (["--require", "100000"], 3),
        (["--context", "x"], 2),
        (["--data-parallel", "2", "--require", "2"], 0),
    ],
)
def test_the_exit_status_is_the_answer(words, status, capsys):
    asked = ASK[:4] + words if "--context" in words else ASK + words
    assert main(asked) == status
    assert bool(capsys.readouterr().err) == (status in (2, 3))


def test_python_has_its_names():
    for name in [
        "estimate",
        "size",
        "read_log",
        "matrix",
        "boundary",
        "diff",
        "list_models",
        "replay",
        "read_config",
        "load_catalog",
        "quantities",
        "InputError",
    ]:
        assert name in kvreport.__all__
        assert hasattr(kvreport, name)
    answer = kvreport.estimate("meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", context_tokens=8192)
    assert len(repr(answer)) < 200
    assert answer._repr_html_().startswith("<")
    assert len(answer.to_frame()) > 1


def test_the_dataset_has_its_columns():
    columns = {column.name: column for column in CAPACITY.columns}
    assert set(COLUMNS.split()) <= columns.keys()


def test_verdicts_and_limits_have_their_names():
    from kvreport.accounting.capacity import Limit, Verdict

    assert set(VERDICTS.split()) <= {one.label for one in Verdict}
    assert set(LIMITS.split()) <= {one.label for one in Limit}


def test_a_query_has_the_fields_of_its_options():
    fields = set(Query.__dataclass_fields__)
    assert {
        "gpu", "tensor_parallel", "data_parallel", "expert_parallel", "pipeline_parallel", "decode_context_parallel", "nodes",
        "memory", "draft", "num_speculative_tokens", "max_loras", "max_lora_rank", "limit_mm_per_prompt", "kv_offload", "kv_pool", "kv_pool_blocks",
    } <= fields  # fmt: skip


def test_names_of_an_earlier_edition_say_what_to_write() -> None:
    with pytest.raises(AttributeError, match=r"load_catalogue is kvreport\.load_catalog now"):
        _ = kvreport.load_catalogue
    for name, value, now in (
        ("speculative", 1, "num_speculative_tokens"),
        ("dcp", 2, "decode_context_parallel"),
        ("sorts", True, 'sampler="sort"'),
    ):
        with pytest.raises(
            kvreport.InputError, match=f"{name}: found the name of an earlier edition; allowed: {now}"
        ):
            kvreport.estimate("meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", **{name: value})


@pytest.mark.parametrize(("flag", "option"), [("context", "context_tokens"), ("tp", "tensor_parallel")])
def test_a_keyword_spelled_as_the_flag_is_answered_with_the_option_s_name(flag: str, option: str) -> None:
    with pytest.raises(kvreport.InputError, match=f"did you mean {option}"):
        kvreport.estimate("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", **{flag: 8})
