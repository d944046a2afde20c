"""Flags that change memory: each is read with its effect, or named as not followed."""

import json
from dataclasses import dataclass

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.server_flags import LoggedFlag, flag_table, load_server_flags
from kvreport.cli import main
from kvreport.cli.spellings import in_our_spelling
from kvreport.errors import InputError
from kvreport.estimation.estimate import estimate
from kvreport.resources import data_dir
from kvreport.startup_log import diagnose
from kvreport.startup_log.patterns import FACTS, flags_not_followed, patterns
from kvreport.startup_log.reading import read_log


@dataclass(frozen=True)
class Known:
    """A flag that logs state, with its server."""

    server: str
    flag: str
    known: LoggedFlag

    def __getattr__(self, name):
        return getattr(self.known, name)

    @property
    def field(self):
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def pattern(self):
        return f"{self.server}_not_followed_{self.field}"


MEMORY_FLAGS = [
    Known(name, flag, known)
    for name, server in load_server_flags(data_dir()).items()
    for flag, known in server.in_logs.items()
]
FOLLOWED = [one for one in MEMORY_FLAGS if one.fact is not None]
REST = [one for one in MEMORY_FLAGS if one.fact is None]
NOT_FOLLOWED = flags_not_followed()

VALUES = {
    "utilization": ["0.85"],
    "mem_fraction": ["0.85"],
    "window_share": ["0.5"],
    "kv_dtype": ["fp8_e4m3"],
    "quantization": ["fp8"],
    "state_dtype": ["bfloat16"],
    "all_to_all": ["deepep"],
    "deepep_mode": ["low_latency"],
    "whole_encoders": ["data"],
    "text_only": ["", """'{"image": 0, "video": 0}'"""],
    "images_through": ["cuda_ipc", "cpu"],
    "kv_pool": [],
}
"""What is written behind a flag; a number elsewhere. The pool is read where the engine says how much it reserved."""

LOG = """\
INFO 10-08 14:43:43 [api_utils.py:272] non-default args: {'model': 'Qwen/Qwen3.8-27B', 'max_model_len': 32768, %s}
INFO 10-08 14:43:43 [core.py:184] Initializing a V1 LLM engine (v0.30.0) with config: model='Qwen/Qwen3.8-27B'
INFO 10-08 14:47:52 [gpu_worker.py:640] Available KV cache memory: 20.0 GiB
"""


def test_every_flag_is_one_of_the_newest_parsers():
    servers = load_server_flags(data_dir())
    assert [one.flag for one in MEMORY_FLAGS if one.flag not in servers[one.server].flags] == []


def test_every_flag_is_read_in_the_log_as_in_a_command():
    for one in MEMORY_FLAGS:
        effect = flag_table(data_dir(), one.server).group_of(one.flag).effect
        assert effect in ("changes", "followed"), one.flag
        if one.known.fact is None and one.known.changes is None:
            assert effect == "changes", one.flag


@pytest.mark.parametrize("one", FOLLOWED, ids=lambda one: f"{one.server} {one.flag}")
def test_a_followed_flag_becomes_a_fact(one):
    assert one.fact in FACTS
    for value in VALUES.get(one.fact, ["", "2"]):
        command = "vllm serve m" if one.server == "vllm" else "python -m sglang.launch_server --model-path m"
        if one.fact in read_log(f"{command} {one.flag} {value}").facts:
            return
    assert one.fact == "kv_pool"
    assert read_log("reserved 4.25 GiB memory for KV Cache as specified by it").facts["kv_pool"]


@pytest.mark.parametrize("one", REST, ids=lambda one: f"{one.server} {one.flag}")
def test_any_other_flag_is_named(one):
    command = "vllm serve m" if one.server == "vllm" else "python -m sglang.launch_server --model-path m"
    lines = [f"{command} {one.flag} 77", f"  {one.flag}=77 \\"]
    if one.usual != "*":
        lines.append(
            f"non-default args: {{'{one.field}': 77}}" if one.server == "vllm" else f"a=1, {one.field}=77, b"
        )
    for line in lines:
        assert one.pattern in {found.pattern for found in read_log(line).recognised}, line
    assert one.flag in NOT_FOLLOWED[one.pattern]


@pytest.mark.parametrize("value", ["None", "False", "0", "'auto'", "{}"])
def test_a_flag_that_was_not_set_is_not_named(value):
    for one in REST:
        line = (
            f"{{'{one.field}': {value}, 'x': 1}}" if one.server == "vllm" else f"a, {one.field}={value}, b=1"
        )
        assert one.pattern not in {found.pattern for found in read_log(line).recognised}, line


def test_names_of_lines_are_unique():
    names = [one.name for one in patterns()]
    assert len(set(names)) == len(names)
    assert {one.pattern for one in REST} == NOT_FOLLOWED.keys() <= set(names)


def test_advice_in_a_log_is_no_flag():
    advice = "Replace gpu_memory_utilization config with `--kv-cache-memory=8820325233` (8.21 GiB) to fit"
    assert not {found.pattern for found in read_log(advice).recognised} & set(NOT_FOLLOWED)


def test_a_log_says_which_flags_were_not_followed():
    found = diagnose(LOG % "'num_gpu_blocks_override': 256, 'mamba_cache_mode': 'align'")
    note = next(one for one in found.notes if "Not taken into account" in one)
    assert "--num-gpu-blocks-override" not in note
    assert "--mamba-cache-mode" in note
    assert not any("Not taken into account" in one for one in diagnose(LOG % "'max_num_seqs': 8").notes)


def test_blocks_that_a_log_was_told_are_its_pool():
    """It was named as not followed, and our plan as another than the log's: the tokens are not of the memory printed."""
    told = LOG.replace("Qwen3.8-27B", "Qwen3-8B").replace("32768", "8192") % "'num_gpu_blocks_override': 1000"
    told += "INFO GPU KV cache size: 16,000 tokens\nINFO Maximum concurrency for 8,192 tokens per request: 1.95x\n"
    found = diagnose(told, gpu="h100-sxm-80gb")
    assert {one.fact: one.predicted for one in found.comparisons} == {
        "kv_tokens": 16_000,
        "concurrency": 1000 / 512,
    }
    assert not any("Not taken into account" in one or "not the log's" in one for one in found.notes)


def test_the_type_of_states_changes_a_log_s_plan():
    usual = diagnose(LOG % "'max_num_seqs': 8").concurrency
    narrow = diagnose(LOG % "'max_num_seqs': 8, 'mamba_ssm_cache_dtype': 'bfloat16'").concurrency
    assert narrow > usual


def test_the_type_of_states_changes_an_estimate():
    asked = {"gpu": "H100", "context_tokens": 8192}
    usual = estimate("Qwen/Qwen3.8-27B", **asked)
    narrow = estimate("Qwen/Qwen3.8-27B", mamba_ssm_cache_dtype="bfloat16", **asked)
    same = estimate("Qwen/Qwen3.8-27B", mamba_ssm_cache_dtype="float32", **asked)
    assert narrow.max_concurrency > usual.max_concurrency == same.max_concurrency
    assert open_catalog().model("Qwen/Qwen3.8-27B").layers  # the record itself is left alone


def test_the_type_of_index_keys_changes_an_estimate_where_the_class_takes_one(capsys):
    """Of 57 layers with 128 elements: the engine's own planner is short of 61.1 GiB here, and of 68.2 without the flag."""
    command = "vllm serve nvidia/MiniMax-M3-NVFP4 --kv-cache-dtype fp8 --block-size 128"
    short = []
    for told in (
        "",
        "--attention_config.indexer_kv_dtype=fp8",
        """-ac '{"indexer_kv_dtype": "fp8_e4m3", "backend": "FLASHINFER"}'""",
    ):
        assert main(["estimate", f"{command} {told}", "--gpu", "B300", "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        short.append(answer["shortfall_bytes"])
        named = [one["flag"] for one in answer["not_followed"]]
        assert named == (["--attention-config.backend"] if "backend" in told else [])
    assert short[1] == short[2]
    assert 0 <= short[0] - short[1] - 57 * 128 * 1048576 <= 57 * 128 * 128  # one more block
    asked = {"gpu": "MI355X", "context_tokens": 8192, "tensor_parallel": 8, "indexer_kv_dtype": "fp8"}
    for engine, followed in (("vllm@0.29.0", False), ("vllm@0.30.0", True), ("sglang", False)):
        answer = estimate("MiniMaxAI/MiniMax-M3", engine=engine, **asked)
        assert (not answer.request.not_followed) == followed, engine


def test_a_switch_of_index_keys_that_later_releases_lack_is_named_by_what_it_changes(capsys):
    """``config/attention.py::AttentionConfig.use_fp4_indexer_cache`` of 0.28 and 0.29 stands for ``indexer_kv_dtype`` of mxfp4."""
    command = "vllm serve deepseek-ai/DeepSeek-V4-Flash -tp 8 --attention-config.use_fp4_indexer_cache true"
    assert main(["estimate", command, "--engine", "vllm@0.29.0", "--gpu", "B200", "--format", "json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["not_followed"]
    assert entry["term"] == "index keys"


def test_text_only_leaves_the_encoder_out():
    words = ["estimate", "Qwen/Qwen3.8-27B", "--gpu", "H100", "--language-model-only"]
    assert '--limit-mm-per-prompt={"image": 0, "video": 0}' in in_our_spelling(
        words, ["--limit-mm-per-prompt"]
    )


def test_estimate_says_what_a_flag_changes_that_it_does_not_follow(capsys):
    asked = ["estimate", "Qwen/Qwen3-8B", "--gpu", "H100", "--mamba-cache-mode", "align"]
    assert main(asked) == 0
    assert (
        "--mamba-cache-mode align: not followed; slots of recurrent states may differ"
        in capsys.readouterr().out
    )
    assert main([*asked, "--format", "json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["not_followed"]
    assert entry["term"] == "slots of recurrent states"


@pytest.mark.parametrize(
    ("model", "layout"), [("Qwen/Qwen3-8B", {}), ("deepseek-ai/DeepSeek-V4-Flash", {"pipeline_parallel": 2})]
)
def test_a_pool_that_is_set_in_blocks_holds_as_many(model, layout):
    """A request takes as many blocks of each stage."""
    asked = {"gpu": "h200-sxm-141gb", "engine": "vllm", "context_tokens": 8192, **layout}
    usual = estimate(model, **asked)
    [each] = {int(rank.plan.request_bytes(8192)) // rank.plan.block_bytes for rank in usual.deployment.ranks}
    for count, below in ((1, 0), (3, -1)):  # of one request the engine checks for its own block, too
        held, less = (estimate(model, kv_pool_blocks=each * count + spare, **asked) for spare in (1, below))
        assert held.max_concurrent_requests_by_memory == count
        assert less.max_concurrent_requests_by_memory == count - 1
        assert held.verdict == "fits"
    assert any(line.startswith("KV pool: ") for line in held.request.assumptions)
    with pytest.raises(InputError, match="one of them"):
        estimate(model, kv_pool_blocks=9, kv_pool="4GiB", **asked)


def test_blocks_of_a_pasted_command_are_followed(capsys):
    pasted = ["estimate", "--gpu", "H100", "--format", "json", "vllm", "serve", "Qwen/Qwen3-8B"]
    assert main([*pasted, "--num-gpu-blocks-override", "1000", "--max-model-len", "8192"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["not_followed"]
    assert answer["budget"]["kv_pool_bytes"] == 1000 * answer["block_bytes"]


def test_other_engines_refuse_a_type_of_states(capsys):
    words = ["estimate", "Qwen/Qwen3.8-27B", "--gpu", "H100", "--engine", "transformers"]
    assert main([*words, "--mamba-ssm-cache-dtype", "bfloat16"]) == 2
    assert "mamba-ssm-cache-dtype" in capsys.readouterr().err


def test_sizes_of_graphs_that_a_server_came_to_are_not_called_a_flag():
    def named(log: str) -> set[str]:
        return {one.pattern for one in read_log(log).recognised} & set(NOT_FOLLOWED)

    resolved = (
        "Initializing a V1 LLM engine (v0.26.0) with config: model='Qwen/Qwen3-8B', tensor_parallel_size=1, "
        "compilation_config={'cudagraph_capture_sizes': [1, 2, 4], 'max_cudagraph_capture_size': 4}\n"
    )
    assert named(resolved) == set()
    asked = "non-default args: {'model': 'Qwen/Qwen3-8B', 'cudagraph_capture_sizes': [1, 2, 4]}\n"
    assert named(asked + resolved) == {"vllm_not_followed_cudagraph_capture_sizes"}
    written = "vllm serve Qwen/Qwen3-8B --max-cudagraph-capture-size 4\n"
    assert named(written + resolved) == {"vllm_not_followed_max_cudagraph_capture_size"}


@pytest.mark.parametrize(
    "limits", ["{'image': 0, 'audio': 0}", '{"audio":0}', "{'image': 2, 'audio': 0, 'video': 1}"]
)
def test_a_log_says_that_no_audio_is_taken(limits):
    reading = read_log(LOG % f"'limit_mm_per_prompt': {limits}")
    assert reading.facts["no_audio"]
    assert "text_only" not in reading.facts


def test_a_log_that_takes_audio_does_not_say_so():
    assert "no_audio" not in read_log(LOG % "'limit_mm_per_prompt': {'image': 0, 'audio': 1}").facts


def test_a_log_says_that_no_videos_are_taken():
    reading = read_log(LOG % "'limit_mm_per_prompt': {'image': 4, 'video': 0}")
    assert reading.facts["no_videos"]
    assert "text_only" not in reading.facts
    assert "no_videos" not in read_log(LOG % "'limit_mm_per_prompt': {'image': 0, 'video': 1}").facts
