"""``kvreport observe``: the record of a log is read back, judged as the log is, and grants nobody access."""

from __future__ import annotations

import json

import pytest
from startup_logs import LOGS

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.evidence.judgment import judge
from kvreport.evidence.observation_files import read_observations
from kvreport.startup_log import diagnose
from kvreport.startup_log.pasted_observation import observe

KNOWN = open_catalog()
GPU = "h100-sxm-80gb"
KEY = "sk-abcdefghijklmnop1234"
VLLM = f"""\
vllm serve Qwen/Qwen3-8B --max-model-len 32768 --gpu-memory-utilization 0.85 --max-num-seqs 64 --api-key {KEY}
INFO vLLM API server version 0.30.0
INFO Model loading took 15.27 GiB and 12 seconds
INFO Available KV cache memory: 49.90 GiB
INFO GPU KV cache size: 363,344 tokens
INFO Maximum concurrency for 32,768 tokens per request: 11.08x
"""
TWO = VLLM.replace(
    "--max-num-seqs 64", "--tensor-parallel-size 2 --enforce-eager --max-num-batched-tokens 4096"
)
FP8 = VLLM.replace("--max-num-seqs 64", "--kv-cache-dtype fp8 --no-enable-prefix-caching")
SGLANG = """\
[2026-09-07 19:05:50] server_args=ServerArgs(model_path='Qwen/Qwen3-32B', kv_cache_dtype='auto', \
mem_fraction_static=0.8, tp_size=2, context_length=32768, chunked_prefill_size=8192)
[2026-09-07 19:06:00] Load weight begin. avail mem=78.26 GB
[2026-09-07 19:06:22] Load weight end. elapsed=22.28 s, type=Qwen3ForCausalLM, avail mem=47.51 GB, mem usage=30.75 GB.
[2026-09-07 19:06:24] KV Cache is allocated. #tokens: 250000, K size: 15.26 GB, V size: 15.26 GB
[2026-09-07 19:06:24] Memory pool end. avail mem=16.18 GB
max_total_num_tokens=250000, chunked_prefill_size=8192, max_running_requests=2048, context_len=32768
"""


DECLARED = """\
INFO vLLM API server version 0.25.1
non-default args: {'model': 'nvidia/Qwen3.8-27B-NVFP4', 'max_model_len': 262144, 'gpu_memory_utilization': 0.85, 'max_num_seqs': 32}
INFO Initializing a V1 LLM engine (v0.25.1) with config: model='nvidia/Qwen3.8-27B-NVFP4', kv_cache_dtype=auto
INFO Prefetching checkpoint files into page cache started (in background, num_threads=8, block_size=16777216 bytes)
INFO Available KV cache memory: 49.90 GiB
INFO GPU KV cache size: 363,344 tokens
"""


def test_a_cache_left_at_auto_is_stored_as_the_checkpoint_declares() -> None:
    wide = DECLARED.replace("kv_cache_dtype=auto", "kv_cache_dtype=bfloat16")
    assert observe(DECLARED, gpu=GPU, known=KNOWN).kv_format == "auto"
    assert observe(wide, gpu=GPU, known=KNOWN).kv_format == "bf16"

    def tokens(text: str) -> float:
        told = {one.fact: one.predicted for one in diagnose(text, gpu=GPU).comparisons}
        return told["kv_tokens"]

    assert tokens(DECLARED) > 1.8 * tokens(wide)


def test_a_buffer_of_a_reader_in_bytes_is_no_block_of_the_cache() -> None:
    assert observe(DECLARED, gpu=GPU, known=KNOWN).block_tokens is None


def test_one_server_without_an_exchange_of_tokens_needs_nothing_more() -> None:
    one = SGLANG.replace("tp_size=2", "tp_size=2, nnodes=1, moe_a2a_backend='none'")
    two = SGLANG.replace("tp_size=2", "tp_size=2, nnodes=2, moe_a2a_backend='deepep'")
    assert observe(one, gpu=GPU, known=KNOWN).needs == ()
    assert len(observe(two, gpu=GPU, known=KNOWN).needs) == 2


@pytest.mark.parametrize("text", [VLLM, TWO, FP8, SGLANG])
def test_a_record_is_judged_as_its_log_is(text: str) -> None:
    record = observe(text, gpu=GPU, known=KNOWN)
    rows = judge(KNOWN, [record])["comparisons"]
    ours = {row["quantity"]: row["predicted"] for row in rows}
    told = {one.fact: one for one in diagnose(text, gpu=GPU).comparisons}
    found = {
        "weights": "weights",
        "kv_pool": "pool",
        "kv_tokens": "tokens",
        "concurrency": "concurrency given pool",
    }
    compared = 0
    for fact, quantity in found.items():
        if fact in told and quantity in ours and (fact != "kv_tokens" or not told[fact].from_pool):
            unit = 2**30 if fact in ("weights", "kv_pool") else 1
            assert ours[quantity] * unit == pytest.approx(told[fact].predicted, rel=1e-3), (fact, quantity)
            compared += 1
    assert compared >= (2 if record.engine == "vllm" else 1), (ours, list(told))


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_log_of_a_server_becomes_a_record_that_is_read_back(name: str, tmp_path, capsys) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOGS[name], encoding="utf-8")
    status = main(["observe", str(log), "--gpu", GPU])
    printed = capsys.readouterr()
    if status:
        assert status == 2, printed.err
        assert "allowed: a start-up log of vLLM, SGLang or TensorRT-LLM" in printed.err
        assert name in ("others", "vllm-v0", "copied-from-a-page"), printed.err
        return
    path = tmp_path / "observation.yaml"
    path.write_text(printed.out, encoding="utf-8")
    (record,) = read_observations(path)
    assert record.predicted is not None
    assert record.predicted.by.startswith("kvreport ")
    again = [row["predicted"] for row in judge(KNOWN, [record])["comparisons"]]
    assert again == [one.predicted for one in record.predicted.figures]
    assert record.model_copy(update={"predicted": None}) == observe(LOGS[name], gpu=GPU, known=KNOWN)


@pytest.mark.parametrize(
    "secret",
    [
        f"--api-key {KEY}",
        f"--api-key={KEY}",
        f"--api-key {KEY} {KEY}2",
        f"--hf-token hf_{'a' * 30}",
        f'--hf-overrides \'{{"x": "hf_{"a" * 30}"}}\'',
    ],
)
def test_what_grants_access_is_left_out(secret: str) -> None:
    record = observe(VLLM.replace(f"--api-key {KEY}", secret), gpu=GPU, known=KNOWN)
    line = record.origin.lines[0]
    assert "vllm serve Qwen/Qwen3-8B" in line
    assert KEY not in line
    assert "hf_a" not in line
    args = (
        f"INFO non-default args: {{'model': 'Qwen/Qwen3-8B', 'api_key': ['{KEY}'], 'max_model_len': 8192}}\n"
    )
    lines = observe(args + VLLM.split("\n", 1)[1], gpu=GPU, known=KNOWN).origin.lines
    assert KEY not in "".join(lines)


def test_what_is_missing_is_asked_for(tmp_path, capsys) -> None:
    with pytest.raises(InputError, match="gpu: found nothing"):
        observe(VLLM, gpu=None, known=KNOWN)
    with pytest.raises(InputError, match="allowed: a start-up log of vLLM"):
        observe("the moon", gpu=GPU, known=KNOWN)
    log = tmp_path / "server.log"
    log.write_text(VLLM, encoding="utf-8")
    assert main(["observe", str(log), "--gpu", GPU, "--format", "json", "--id", "mine-1"]) == 0
    record = json.loads(capsys.readouterr().out)["observations"][0]
    assert (record["id"], record["gpu"], record["utilization"]) == ("mine-1", GPU, 0.85)
    assert (record["max_seqs"], record["completeness"]) == (64, "full")
    assert record["predicted"]["starts"] is True
