"""Start-up logs of SGLang 0.5.14 to 0.5.23: lines as published, and the numbers that stand in them."""

from __future__ import annotations

import pytest

from kvreport.catalog.load import Catalog
from kvreport.resources import data_dir
from kvreport.startup_log import read_log
from kvreport.startup_log.diagnose import diagnose, names_of
from kvreport.startup_log.findings import Diagnosis
from kvreport.startup_log.laid_out import free_before
from kvreport.startup_log.release import release_of_day
from kvreport.startup_log.server_of_log import version_of

GIB = 1 << 30

# A build of August 2026 on one H100: flags resolved, nothing given but the attention backend.
RESOLVED = """\
[2026-08-27 03:45:24] server_args=ServerArgs(model_path='/models/hub/models--Qwen--Qwen3-30B-A3B-FP8/snapshots/d206ba732169f29bb77fbf80fc2c4b81d4d30782', context_length=None, dtype='auto', quantization=None, kv_cache_dtype='auto', mem_fraction_static=0.83, max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, page_size=1, swa_full_tokens_ratio=0.8, disable_radix_cache=False, tp_size=1, dcp_size=1, pp_size=1, dp_size=1, nnodes=1, attention_backend='triton', speculative_algorithm=None, ep_size=1, max_mamba_cache_size=None, mamba_ssm_dtype=None, enable_lora=None, disable_cuda_graph=False)
[2026-08-27 03:45:39] Init torch distributed ends. elapsed=0.05 s, mem usage=0.09 GB
[2026-08-27 03:45:41] Load weight begin. avail mem=78.48 GB
[2026-08-27 03:45:41] Detected fp8 checkpoint.
[2026-08-27 03:45:53] Load weight end. elapsed=12.02 s, type=Qwen3MoeForCausalLM, quant=fp8, fmt=e4m3, avail mem=49.33 GB, mem usage=29.15 GB.
[2026-08-27 03:45:54] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 392920, K size: 17.99 GB, V size: 17.99 GB
[2026-08-27 03:45:54] Memory pool end. avail mem=12.70 GB
[2026-08-27 03:45:56] Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at /sgl-workspace/sglang/python/sglang/kernels/ops/quantization/configs/N=5120,K=2048,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128].json
[2026-08-27 03:46:20] Capture target prefill CUDA graph end. elapsed=20.0 s, mem usage=2.40 GB, avail mem=10.19 GB.
[2026-08-27 03:46:24] Capture target decode CUDA graph end. elapsed=3.1 s, mem usage=0.29 GB, avail mem=9.90 GB.
[2026-08-27 03:46:24] max_total_num_tokens=392920, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=40960, available_gpu_mem=9.90 GB
[2026-08-27 03:46:25] The server is fired up and ready to roll!
"""

# SGLang 0.5.18 on one H100: the command, and lines without a day.
COMMAND = """\
python -m sglang.launch_server --model-path Qwen/Qwen3.8-27B-FP8 --trust-remote-code --mem-fraction-static 0.85 --max-running-requests 32
Load weight end. elapsed=429.52 s, type=Qwen3_5ForConditionalGeneration, quant=fp8, fmt=e4m3, avail mem=50.01 GB, mem usage=28.47 GB.
Mamba Cache is allocated. max_mamba_cache_size: 124, conv_state size: 0.34GB, ssm_state size: 17.58GB
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 330323, K size: 10.08 GB, V size: 10.08 GB
max_running_requests is capped to 24 by the mamba state cache
"""

# A draft model is loaded by the same lines as the model before it.
DRAFTED = """\
[2026-08-28 21:19:23] server_args=ServerArgs(model_path='RadixArk/Qwen3.8-Flash-Next-NVFP4', revision='7b71922')
[2026-08-28 21:19:30] Load weight begin. avail mem=111.97 GB
[2026-08-28 21:32:38] Load weight end. elapsed=787.55 s, type=Qwen4ExpForConditionalGeneration, quant=modelopt_fp4, quant_algo=NVFP4, avail mem=29.01 GB, mem usage=82.97 GB.
[2026-08-28 21:32:39] Load weight begin. avail mem=28.81 GB
[2026-08-28 21:34:13] Load weight end. elapsed=94.49 s, type=Qwen4ExpForCausalLMMTP, quant=modelopt_fp4, quant_algo=NVFP4, avail mem=30.67 GB, mem usage=-1.86 GB.
[2026-08-28 21:34:15] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159552, K size: 1.83 GB, V size: 1.83 GB
"""

# Lines of a repository's record of August 2026; its own prediction layer drafts (observation field-111).
OWN_DRAFTS = """\
python -m sglang.launch_server --model-path Qwen/Qwen3.6-27B --mem-fraction-static 0.92 --max-running-requests 4 --mm-feature-transport cpu --speculative-algo NEXTN --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --mamba-ssm-dtype bfloat16 --context-length 169000
[2026-08-15 10:00:00] Mamba Cache is allocated. max_mamba_cache_size: 43, conv_state size: 0.12GB, ssm_state size: 3.09GB, intermediate_ssm_state_cache size: 2.11GB intermediate_conv_window_cache size: 0.04GB
[2026-08-15 10:00:01] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 171008, K size: 5.22 GB, V size: 5.22 GB
"""

# 0.5.22 and later print a dictionary, and name the pools of windows and of full attention.
DICTIONARY = """\
[2026-10-20 10:00:00] server_args={'model_path': 'Qwen/Qwen3-8B', 'tokenizer_path': 'Qwen/Qwen3-8B', 'context_length': 32768, 'mem_fraction_static': 0.9, 'tp_size': 2, 'pp_size': 2, 'dcp_size': 1, 'dp_size': 1, 'ep_size': 1, 'disable_radix_cache': True, 'disable_cuda_graph': True, 'max_total_tokens': 100000}
[2026-10-20 10:00:09] Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 29061, K size: 0.14 GB, V size: 0.14 GB
[2026-10-20 10:00:09] SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 23248, K size: 1.11 GB, V size: 1.11 GB
"""

# With SGLANG_ENABLE_POST_CAPTURE_KV_SIZING the pool is sized last.
RESIZED = """\
[2026-09-20 04:00:12] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 1200000, K size: 82.40 GB, V size: 82.40 GB
[2026-09-20 04:00:21] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 1056000, KV size: 145.02 GB, avail mem=5.00 GB
"""

# An RTX 5090, and the refusal's advice.
REFUSED = """\
server_args=ServerArgs(model_path='zai-org/GLM-4.7-Flash', context_length=32768, mem_fraction_static=0.85)
Load weight begin. avail mem=30.06 GB
Load weight end. elapsed=269.29 s, type=Glm4MoeLiteForCausalLM, avail mem=0.00 GB, mem usage=30.06 GB.
ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85. Raise --mem-fraction-static above 1.000 (minimum viable = 1 - available/pre = 1.0000).
"""

# SGLang 0.5.14 on a device where another server runs: 41.29 GiB were free (2026-06-30). Two smaller shares were refused.
BESIDE = """\
server_args=ServerArgs(model_path='Qwen/Qwen3.5-9B', context_length=32768, mem_fraction_static={share}, max_running_requests=1, chunked_prefill_size=8192)
Load weight begin. avail mem=41.29 GB
Load weight end. elapsed=132.95 s, type=Qwen3_5ForConditionalGeneration, avail mem=24.12 GB, mem usage=17.17 GB.
max_total_num_tokens=268319, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=1, context_len=32768, available_gpu_mem=10.35 GB
"""


def _compared(found: Diagnosis) -> dict[str, tuple[float, float]]:
    return {one.fact: (one.stated, one.predicted) for one in found.comparisons}


def test_the_model_is_found_by_the_folder_of_the_hub_s_cache() -> None:
    found = diagnose(RESOLVED)
    assert "weights" in _compared(found)
    assert any("is read as Qwen/Qwen3-30B-A3B-FP8" in note for note in found.notes)


@pytest.mark.parametrize(
    ("stated", "names"),
    [
        ("Qwen/Qwen3-8B", ("Qwen/Qwen3-8B",)),
        ("/data/models/Qwen3-8B/", ("/data/models/Qwen3-8B/", "Qwen3-8B")),
        ("/hub/models--org--name/snapshots/0a1b", ("org/name",)),
    ],
)
def test_a_path_stands_for_its_last_folder(stated: str, names: tuple[str, ...]) -> None:
    assert names_of(stated) == names


def test_device_release_and_pool_follow_from_the_lines_alone() -> None:
    found = diagnose(RESOLVED)
    pool = _compared(found)["kv_pool"]
    assert pool[0] == pytest.approx(2 * 17.99 * GIB, rel=1e-6)
    assert pool[1] == pytest.approx(pool[0], rel=0.005)
    assert any("NVIDIA_H100_80GB_HBM3" in note for note in found.notes)
    assert any("SGLang 0.5.18 was the newest" in note for note in found.notes)
    assert not [text for _, text in found.reading.unknown]


def test_a_device_that_is_given_counts_for_more_than_that_of_the_kernels() -> None:
    found = diagnose(RESOLVED, gpu="H200")
    assert not any("NVIDIA_H100" in note for note in found.notes)


def test_the_pool_of_a_command_is_predicted() -> None:
    found = diagnose(COMMAND, gpu="NVIDIA H100 80GB HBM3")
    log, ours = _compared(found)["kv_tokens"]
    assert log == 330_323
    assert ours == pytest.approx(log, rel=0.01)
    assert found.reading.facts["max_running"] == 24


@pytest.mark.parametrize("log", [RESOLVED, COMMAND], ids=["resolved", "command"])
def test_a_log_reads_its_own_model_alone(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log without drafts asked the catalog for a model without a name, which reads every file of it."""
    known, read = Catalog(data_dir()), set()
    shelf = type(known._models)
    one, every = shelf.read, shelf.records
    monkeypatch.setattr(shelf, "read", lambda self, stem: (read.add(stem), one(self, stem))[1])
    monkeypatch.setattr(shelf, "records", lambda self: (read.update(self.files), every(self))[1])
    diagnose(log, gpu="H100", catalog=known)
    assert 1 <= len(read) <= 5  # files that mention the name are read


def test_a_draft_model_is_not_the_model() -> None:
    reading = read_log(DRAFTED)
    assert reading.facts["weights"] == round(82.97 * GIB)
    assert reading.facts["after_load"] == round(29.01 * GIB)
    assert free_before(reading) == pytest.approx((82.97 + 29.01) * GIB, abs=2)
    found = diagnose(DRAFTED, model="Qwen/Qwen3.8-Flash-Next", gpu="GB10")
    assert "kv_pool" not in _compared(found)


def test_drafts_of_the_checkpoint_s_own_layer_are_followed() -> None:
    found = diagnose(OWN_DRAFTS, gpu="A100 80GB")
    log, ours = _compared(found)["kv_tokens"]
    assert log == 171_008
    assert ours == pytest.approx(log, rel=0.035)
    assert not any("speculative" in note for note in found.notes)


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("--speculative-eagle-topk 1", "--speculative-eagle-topk 4"),
        ("--speculative-num-steps 5", "--speculative-draft-model-path some/draft"),
        ("NEXTN", "DFLASH"),
    ],
)
def test_other_drafts_are_not_followed(said: str, instead: str) -> None:
    found = diagnose(OWN_DRAFTS.replace(said, instead), gpu="A100 80GB")
    assert "kv_tokens" not in _compared(found)
    assert any("speculative decoding" in note for note in found.notes)


def test_a_dictionary_of_flags_is_read_as_the_object_before_it() -> None:
    reading = read_log(DICTIONARY)
    assert reading.facts["model"] == "Qwen/Qwen3-8B"
    assert reading.facts["tensor_parallel"] == 2
    assert reading.facts["pipeline_parallel"] == 2
    assert reading.facts["most_tokens"] == 100_000
    assert reading.facts["eager"] is True
    assert reading.facts["no_prefix_caching"] is True


def test_the_pool_of_windows_is_not_that_of_full_attention() -> None:
    reading = read_log(DICTIONARY)
    assert reading.facts["kv_tokens"] == 29_061
    assert reading.facts["window_tokens"] == 23_248
    assert reading.facts["key_bytes"] == round(0.14 * GIB)


def test_addresses_set_apart_are_no_pool() -> None:
    reading = read_log(RESIZED)
    assert reading.facts["kv_tokens"] == 1_056_000
    assert reading.facts["kv_pool"] == round(145.02 * GIB)
    assert "key_bytes" not in reading.facts
    assert reading.unknown == ()


def test_a_refusal_says_which_share_is_needed() -> None:
    assert read_log(REFUSED).facts["minimum_fraction"] == 1.0


def test_a_share_that_is_not_stated_is_worked_out() -> None:
    lines = "\n".join(line for line in RESOLVED.splitlines() if "server_args=" not in line)
    found = diagnose(lines, model="Qwen/Qwen3-30B-A3B-FP8")
    # (49.33 - 35.98) of 78.48 GiB are left free: a share of 0.83.
    assert any("memory share, 0.83, is computed" in note for note in found.notes)
    assert "kv_pool" in _compared(found)


def test_a_share_is_of_what_another_server_left_free() -> None:
    found = diagnose("docker run lmsysorg/sglang:v0.5.14\n" + BESIDE.format(share=0.8), gpu="dgx-spark-gb10")
    log, ours = _compared(found)["kv_tokens"]
    assert log == 268_319
    assert ours == pytest.approx(log, rel=0.02)


def test_states_given_by_hand_are_followed() -> None:
    given = COMMAND.replace(
        "--max-running-requests 32", "--max-running-requests 32 --max-mamba-cache-size 124"
    )
    found = diagnose(given, gpu="NVIDIA H100 80GB HBM3")
    assert found.reading.facts["states_set"] == 124
    log, ours = _compared(found)["kv_tokens"]
    assert ours == pytest.approx(log, rel=0.01)
    more = diagnose(given.replace("size 124", "size 160"), gpu="NVIDIA H100 80GB HBM3")
    assert _compared(more)["kv_tokens"][1] < ours


def test_requests_that_the_engine_capped_are_not_those_asked_for() -> None:
    found = diagnose(RESOLVED)
    assert found.reading.facts["max_seqs"] == 4096
    assert _compared(found)["kv_pool"][1] == pytest.approx(36.04 * GIB, rel=0.002)


def test_a_command_of_sglang_serve_names_the_model() -> None:
    reading = read_log(
        "sglang serve --tp 2 --model-path google/gemma-4-26B-A4B-it --mem-fraction-static 0.75"
    )
    assert reading.engine == "sglang"
    assert reading.facts["model"] == "google/gemma-4-26B-A4B-it"


def test_a_line_that_a_terminal_wrapped_is_read() -> None:
    reading = read_log(
        "Load weight end. elapsed=312.45 s, type=Gemma4ForConditionalGeneration,\n"
        "avail mem=66.05 GB, mem usage=47.23 GB.\n"
    )
    assert reading.facts["weights"] == round(47.23 * GIB)


def test_the_image_names_the_release() -> None:
    reading = read_log("docker run lmsysorg/sglang:v0.5.19-cu130 sglang serve --model-path Qwen/Qwen3-8B")
    assert version_of(reading) == "0.5.19"


@pytest.mark.parametrize(
    ("day", "release"), [("2026-02-01", None), ("2026-08-20", "0.5.17"), ("2026-11-20", "0.5.23")]
)
def test_a_day_tells_the_newest_release(day: str, release: str | None) -> None:
    assert release_of_day(day, "sglang") == release


@pytest.mark.parametrize(
    ("printed", "gpu"),
    [
        ("NVIDIA_H100_80GB_HBM3", "h100-sxm-80gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm-288gb"),
        ("NVIDIA GB10", "dgx-spark-gb10"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("AMD_Instinct_MI355X", "mi355x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("Tesla T4", "t4"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("AMD Radeon 8060S Graphics", "ryzen-ai-max-395"),
        ("gfx1151", "ryzen-ai-max-395"),
        ("Intel(R) Data Center GPU Max 1550", "max-1550"),
        ("HL-325L", "gaudi3"),
        ("Ascend 910B3", "ascend-910b"),
        ("TPU v6 lite", "tpu-v6e"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
    ],
)
def test_a_device_is_found_by_the_name_that_its_driver_prints(
    catalog: Catalog, printed: str, gpu: str
) -> None:
    assert catalog.accelerator(printed).id == gpu


def test_images_of_0_5_17_take_a_buffer_of_the_device_unless_told_otherwise() -> None:
    # The server of this log pinned the transport: without, the release auto-resolves it to CUDA IPC and loses 1 GiB.
    told, left = (
        _compared(diagnose(text, gpu="A100 80GB"))["kv_tokens"][1]
        for text in (OWN_DRAFTS, OWN_DRAFTS.replace("--mm-feature-transport cpu ", ""))
    )
    assert 0.9 < left / told < 0.96  # of 10.4 GiB for tokens; states take their share of the loss
