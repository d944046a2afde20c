"""Which of vLLM's two model runners serves a model: as told, as a log's lines say, or as the release decides."""

from __future__ import annotations

import pytest

import kvreport
from kvreport.cli.server_command import without_server_command
from kvreport.estimation.commands import estimate_command
from kvreport.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B"
PRINTED = """INFO [api_utils.py:273] non-default args: {{'gpu_memory_utilization': 0.92, 'max_model_len': 8192, 'max_num_seqs': 1024, 'model': '{model}'}}
INFO [core.py:116] Initializing a V1 LLM engine (v{release}) with config: model='{model}', tensor_parallel_size=1
INFO [{file}.py:5347] Model loading took 15.0 GiB memory and 0.489333 seconds
INFO [gpu_worker.py:560] Available KV cache memory: {pool} GiB
"""


def pool(**options: object) -> float:
    asked = {"gpu": "h200", "engine": "vllm@0.26.0", "context_tokens": 8192, "max_seqs": 1024} | options
    return kvreport.estimate(LLAMA, **asked).budget.kv_pool_bytes / GIB


def test_the_runner_that_was_told_measures_itself() -> None:
    """0.26.0 on an H200 left 111.0 GiB under the first runner (own-006); by default the second one runs there."""
    assert pool(model_runner="first") == pytest.approx(111.0, abs=0.03)
    assert pool(model_runner="second") == pool() == pool(model_runner="auto")
    assert pool() > pool(model_runner="first") + 1
    # Qwen3.5's states are left to the first runner up to 0.28.
    found = {
        runner: kvreport.estimate("Qwen/Qwen3.5-27B", gpu="h200", engine="vllm@0.26.0", model_runner=runner)
        for runner in ("auto", "first", "second")
    }
    pools = {runner: one.budget.kv_pool_bytes for runner, one in found.items()}
    assert pools["auto"] == pools["first"] < pools["second"]


@pytest.mark.parametrize("engine", ["sglang", "vllm@0.21.0", "llama-cpp"])
def test_an_engine_with_one_runner_has_no_choice(engine: str) -> None:
    with pytest.raises(
        kvreport.InputError, match=r"model-runner: found first for .*; allowed with vLLM since 0.22"
    ):
        kvreport.estimate(LLAMA, gpu="h200", engine=engine, model_runner="first")


def test_the_command_tells_the_runner() -> None:
    found = kvreport.estimate(LLAMA, gpu="h200", engine="vllm@0.30.0", model_runner="first")
    command = estimate_command(found)
    assert command is not None
    assert command.startswith(f"VLLM_USE_V2_MODEL_RUNNER=0 vllm serve {LLAMA}")
    assert "V2_MODEL_RUNNER" not in (estimate_command(kvreport.estimate(LLAMA, gpu="h200")) or "")


@pytest.mark.parametrize(
    ("model", "engine", "options", "told"),
    [
        (
            "Qwen/Qwen3.5-27B",
            "vllm",
            {"mamba_ssm_cache_dtype": "float32"},
            " --mamba-ssm-cache-dtype float32",
        ),
        ("Qwen/Qwen3.5-27B", "sglang", {"mamba_ssm_cache_dtype": "bfloat16"}, " --mamba-ssm-dtype bfloat16"),
        ("Qwen/Qwen3.5-27B", "vllm", {"mamba_ssm_cache_dtype": "auto"}, ""),
        ("openai/gpt-oss-20b", "vllm@0.19.1", {"moe_backend": "marlin"}, " --moe-backend marlin"),
        # 0.11 chooses by what is installed, and has no such flag.
        ("openai/gpt-oss-20b", "vllm@0.11.0", {"moe_backend": "marlin"}, ""),
    ],
)
def test_the_command_tells_state_types_and_kernels_of_experts(
    model: str, engine: str, options: dict[str, str], told: str
) -> None:
    command = estimate_command(
        kvreport.estimate(model, gpu="h200", engine=engine, context_tokens=8192, **options)
    )
    plain = estimate_command(kvreport.estimate(model, gpu="h200", engine=engine, context_tokens=8192))
    assert command is not None
    assert plain is not None
    assert sorted(command.split()) == sorted(f"{plain}{told}".split())


@pytest.mark.parametrize(("value", "runner"), [("0", "first"), ("1", "second")])
def test_a_pasted_command_is_read_with_its_variable(
    value: str, runner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = without_server_command([f"VLLM_USE_V2_MODEL_RUNNER={value} X=1 vllm serve {LLAMA}"])
    assert words == ["--model-runner", runner, LLAMA, "--engine", "vllm"]
    assert capsys.readouterr().err == "kvreport: environment variables are not read: X\n"


@pytest.mark.parametrize("file", ["gpu_model_runner", "v1/worker/gpu_model_runner"])
def test_a_log_tells_the_runner_by_the_file_that_loads(file: str) -> None:
    text = PRINTED.format(model=LLAMA, release="0.26.0", file=file, pool="111.0")
    first = kvreport.read_log(text, gpu="h200")
    assert first.reading.facts["model_runner"] == "gpu_model_runner"
    (compared,) = (one for one in first.comparisons if one.fact == "kv_pool")
    assert compared.predicted / GIB == pytest.approx(111.0, abs=0.03)
    other = kvreport.read_log(text.replace(file, "model_runner"), gpu="h200")
    (compared,) = (one for one in other.comparisons if one.fact == "kv_pool")
    assert compared.predicted / GIB == pytest.approx(pool(), abs=0.02)
    told = "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve x\n" + text.replace(f"[{file}.py:5347] ", "")
    (compared,) = (
        one for one in kvreport.read_log(told, gpu="h200", model=LLAMA).comparisons if one.fact == "kv_pool"
    )
    assert compared.predicted / GIB == pytest.approx(111.0, abs=0.03)


def test_a_draft_model_of_its_own_is_left_to_the_first_runner() -> None:
    def answer(engine: str, **options: object) -> tuple[float, str]:
        found = kvreport.estimate(
            "Qwen/Qwen3-32B",
            gpu="h200",
            engine=engine,
            draft="Qwen/Qwen3-0.6B",
            num_speculative_tokens=3,
            **options,
        )
        return found.budget.kv_pool_bytes, "\n".join(found.to_dict()["assumptions"])

    fallen, said = answer("vllm@0.30.0")
    assert "first model runner: the second one has no draft models in this release" in said
    assert (
        fallen
        == answer("vllm@0.30.0", model_runner="first")[0]
        != answer("vllm@0.30.0", model_runner="second")[0]
    )
    served, said = answer("vllm@0.31.0")
    assert "model runner" not in said
    assert served == answer("vllm@0.31.0", model_runner="second")[0]


def test_n_grams_are_left_to_the_first_runner_longer() -> None:
    def answer(engine: str, **options: object) -> tuple[float, str]:
        found = kvreport.estimate(
            "Qwen/Qwen3-8B", gpu="h200", engine=engine, draft="ngram", num_speculative_tokens=3, **options
        )
        return found.budget.kv_pool_bytes, "\n".join(found.to_dict()["assumptions"])

    fallen, said = answer("vllm@0.31.0")
    assert "first model runner: the second one has no n-grams in this release" in said
    assert fallen == answer("vllm@0.31.0", model_runner="first")[0]
    for engine, options in (("vllm@0.32.0", {}), ("vllm@0.26.0", {"draft": "mtp"}), ("vllm@0.21.0", {})):
        model = "zai-org/GLM-4.7-Flash" if options else "Qwen/Qwen3-8B"
        asked = {"draft": "ngram"} | options
        found = kvreport.estimate(model, gpu="h200", engine=engine, num_speculative_tokens=3, **asked)
        assert "model runner" not in "\n".join(found.to_dict()["assumptions"])
