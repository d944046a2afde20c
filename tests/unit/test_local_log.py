"""What a start of llama.cpp tells on the command line, and TensorRT-LLM's lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_files import validated
from startup_logs import LLAMA_CPP as PUBLIC

from kvreport.errors import InputError
from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.local import diagnose_local
from kvreport.units import GIB, MIB

QWEN = """\
using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23000 MiB free
load_tensors: offloaded 40/49 layers to GPU
load_tensors:        CUDA0 model buffer size = 14524.42 MiB
llama_context: n_seq_max     = 2
llama_context: n_ctx         = 8192
llama_kv_cache:      CUDA0 KV buffer size =   768.00 MiB
llama_kv_cache: size =  768.00 MiB (  8192 cells,  48 layers,  1/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
sched_reserve:      CUDA0 compute buffer size =   368.04 MiB
"""

TENSORRT = """\
[TensorRT-LLM] TensorRT LLM version: 1.2.0
[TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 1.11 GiB
[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 2.80 GiB, available KV cache memory when calculating max tokens: 68.69 GiB, fraction is set 0.9, kv size is 114688. device total memory 79.10 GiB, , tmp kv_mem 0.00 GiB
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 68.69 GiB for max tokens in paged KV cache (643136).
[TRT-LLM] [I] max_seq_len=32768, max_num_requests=2048, max_num_tokens=8192
"""


def test_a_cache_is_compared_with_ours() -> None:
    found = diagnose_local(QWEN, model="Qwen/Qwen3-30B-A3B")
    assert found.computed is not None
    assert found.computed.cache == 768 * MIB
    assert found.headline.startswith("It starts with 8,192 tokens, shared by 2 requests")
    assert json.loads(json.dumps(found.to_dict()))["cache_bytes"] == 768 * MIB


def test_the_compute_buffer_of_a_public_log_is_computed_to_the_megabyte() -> None:
    found = diagnose_local(PUBLIC, model="Qwen/Qwen3-30B-A3B")
    assert found.computed is not None
    assert found.computed.cache == found.start.kv_bytes == 768 * MIB
    assert abs(found.computed.compute - found.start.compute_bytes) < MIB


def test_layers_in_host_memory_are_put_on_the_device() -> None:
    changes = " ".join(diagnose_local(QWEN).changes)
    assert "9 more layers" in changes
    assert "-ctk q8_0" in changes


def test_a_start_that_ran_out_is_told_what_to_leave() -> None:
    found = diagnose_local(QWEN + "cudaMalloc failed: out of memory\n")
    assert found.headline.startswith("The server does not start")
    assert any("-ngl 30" in one for one in found.changes)


def test_all_on_the_device_needs_no_change() -> None:
    assert diagnose_local(QWEN.replace("40/49", "49/49")).changes == ()


def test_another_text_is_refused() -> None:
    with pytest.raises(InputError):
        diagnose_local("nothing of the kind")


def test_the_command_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kvreport.cli import main

    path = tmp_path / "llama.log"
    path.write_text(QWEN)
    assert main(["log", str(path), "--model", "Qwen/Qwen3-30B-A3B"]) == 0
    assert "cache: log 0.75 GiB, we compute 0.75 GiB (+0.0%)" in capsys.readouterr().out


def test_tensorrt_llm_states_its_pool_and_its_tokens() -> None:
    found = diagnose(TENSORRT, model="Qwen/Qwen3-0.6B")
    assert found.reading.engine == "tensorrt_llm"
    assert found.reading.facts["kv_pool"] == round(68.69 * GIB)
    assert found.reading.facts["utilization"] == 0.9
    tokens = {one.fact: one for one in found.comparisons}["kv_tokens"]
    assert tokens.stated == 643_136
    assert abs(tokens.difference) < 1e-3


def test_tensorrt_llm_s_older_lines_tell_free_memory_and_blocks() -> None:
    """An engine of 0.19 on an RTX 5090 (obs of June 2025): 8,219 blocks of 32 tokens."""
    lines = (
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 GiB, available: 17.83 GiB\n"
        "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008)\n"
    )
    reading = diagnose(lines, model="meta-llama/Llama-3.1-8B-Instruct").reading
    assert reading.facts["total_memory"] == round(31.84 * GIB)
    assert reading.facts["after_load"] == round(17.83 * GIB)
    assert reading.facts["gpu_blocks"] * reading.facts["block_tokens"] == reading.facts["kv_tokens"]


def test_published_and_pasted_starts_have_one_judge() -> None:
    """State copies for drafts are known to both: 7 copies with 6 draft tokens, as the source printed them."""
    cases = {one.observation.id: one for one in validated().cases}
    drafting = {one.quantity: one for one in cases["obs-199"].comparisons}
    assert abs(drafting["states"].error) < 1e-4
    assert drafting["buffers"].error == 0


@pytest.mark.parametrize(
    ("line", "masks_and_logits"),
    [
        ("build_info: b9036-b863d41c7", True),
        ("build: 9036 (b863d41c7) with GNU 13.3.0 for Linux", True),
        ("build_info: b9849-0c1e57098", False),
        ("", False),
    ],
)
def test_the_build_of_a_log_decides_masks_and_logits(line: str, masks_and_logits: bool) -> None:
    log = (
        f"{line}\n"
        "load_tensors:        CUDA0 model buffer size =  1918.36 MiB\n"
        "llama_context: n_ctx         = 2048\n"
        "llama_kv_cache: size =  224.00 MiB (  2048 cells,  28 layers,  1/1 seqs), K (f16):  112.00 MiB, V (f16):  112.00 MiB\n"
        "sched_reserve:      CUDA0 compute buffer size =   256.50 MiB\n"
    )
    computed = diagnose_local(log, model="meta-llama/Llama-3.2-3B-Instruct").computed
    assert computed is not None
    # Logits of a micro-batch of 512 over 128,256 words in 32 bits.
    assert (computed.compute >= 512 * 128_256 * 4) is masks_and_logits


OLLAMA_PART = """\
time=2025-02-18T03:02:11.123Z level=INFO source=server.go:100 msg=offload layers.model=81 layers.offload=44 \
memory.available="[23.2 GiB]" memory.required.full="59.6 GiB" memory.required.kv="19.5 GiB"
llama_context: n_ctx         = 64000
llama_kv_cache: size = 20000.00 MiB ( 64000 cells,  80 layers,  1/1 seqs), K (f16): 10000.00 MiB, V (f16): 10000.00 MiB
"""


def test_ollama_is_told_its_layers_and_its_own_options() -> None:
    found = diagnose_local(OLLAMA_PART)
    assert "44 of 81 layers on the GPU" in found.headline
    told = " ".join(found.changes)
    assert "OLLAMA_KV_CACHE_TYPE=q8_0" in told
    assert "num_ctx 32000" in told
    assert not any(flag in told for flag in ("-ctk", "-ngl", "-np", "(-c"))
    assert "-ctk q8_0" in " ".join(diagnose_local(QWEN).changes)
