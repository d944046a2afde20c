"""The front door answers with the numbers that others worked out."""

from __future__ import annotations

import math
import re

import pytest

import kvreport
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.remedies import remedies

# 16-bit KV bytes per token on one GPU: layers x KV heads x (key + value) x 2, each worked out by hand
# from the published config; issue 2 lists the same figures.
BYTES_PER_TOKEN = {
    "meta-llama/Llama-3.1-8B-Instruct": 131_072,  # 32 x 8 x 256 x 2
    "meta-llama/Llama-2-7b-hf": 524_288,  # 32 x 32 x 256 x 2
    "Qwen/Qwen2.5-7B": 57_344,  # 28 x 4 x 256 x 2
    "Qwen/Qwen2.5-72B": 327_680,  # 80 x 8 x 256 x 2
    "meta-llama/Llama-3.1-70B-Instruct": 327_680,
    "mistralai/Mistral-7B-Instruct-v0.3": 131_072,
    "deepseek-ai/DeepSeek-V3": 70_272,  # 61 x (512 + 64) x 2
    "Qwen/Qwen3.6-27B": 65_536,  # 16 x 4 x 512 x 2: only 16 of 64 layers keep keys and values
    "openai/gpt-oss-120b": 36_864,  # 18 x 8 x 128 x 2: past the window, half of the layers grow
    "google/gemma-3-27b-it": 81_920,  # 10 x 16 x 256 x 2: every sixth of 62 layers
}


@pytest.mark.parametrize(("model", "expected"), BYTES_PER_TOKEN.items())
def test_bytes_per_token_at_32k_are_those_worked_out_by_hand(model, expected):
    answer = kvreport.estimate(model, gpu="h200-sxm-141gb", context_tokens="32K", kv="bf16")
    assert answer.kv_bytes_per_token_per_gpu == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen2.5-72B", 163_840),
        ("Qwen/Qwen3.6-27B", 32_768),
        ("meta-llama/Llama-3.1-8B-Instruct", 65_536),
    ],
)
def test_fp8_halves_the_bytes_per_token(model, expected):
    answer = kvreport.estimate(model, gpu="h200-sxm-141gb", context_tokens="32K", kv="fp8")
    assert answer.kv_bytes_per_token_per_gpu == expected


@pytest.mark.parametrize("tensor_parallel", [1, 2, 4, 8])
def test_a_latent_is_whole_on_every_rank(tensor_parallel):
    answer = kvreport.estimate(
        "deepseek-ai/DeepSeek-V3", gpu="h200-sxm-141gb", tensor_parallel=tensor_parallel, kv="bf16"
    )
    assert answer.kv_bytes_per_token_per_gpu == 70_272


def test_kv_heads_divide_until_there_is_one_each():
    # Llama 3.1 70B: 80 layers, 8 KV heads; 16 ranks hold one head each, as 8 ranks do.
    per_rank = [
        kvreport.estimate(
            "meta-llama/Llama-3.1-70B-Instruct", gpu="H100", tensor_parallel=ranks
        ).kv_bytes_per_token_per_gpu
        for ranks in (1, 2, 8, 16)
    ]
    assert per_rank == [327_680, 163_840, 40_960, 40_960]


def test_a_hybrid_has_a_constant_state_beside_its_cache():
    # 48 layers x (conv 10,240 x 3 x 2 B + recurrent 48 x 128 x 128 x 4 B)
    answer = kvreport.estimate("Qwen/Qwen3.6-27B", gpu="H100", context_tokens="8K")
    assert answer.state_bytes_per_request_per_gpu == 153_944_064


def test_windows_stop_growing():
    below = kvreport.estimate("openai/gpt-oss-120b", gpu="H200", context_tokens=64)
    past = kvreport.estimate("openai/gpt-oss-120b", gpu="H200", context_tokens=4096)
    assert below.kv_bytes_per_token_per_gpu == 73_728
    assert past.kv_bytes_per_token_per_gpu == 36_864


@pytest.mark.parametrize(("context", "requests"), [("2K", 504), ("8K", 126), ("32K", 31), ("128K", 7)])
def test_the_rule_of_85_percent_gives_the_published_table(context, requests):
    """A published table for Qwen2.5 7B in 16-bit on an H100 80GB: 85% of what the weights leave."""
    answer = kvreport.estimate(
        "Qwen/Qwen2.5-7B", gpu="h100-sxm-80gb", context_tokens=context, engine="ceiling", utilization=0.85
    )
    assert answer.max_concurrent_requests == requests


def test_llama_2_with_66_gib_left_serves_33_requests_of_4k():
    # 80 GiB less 14 GiB set aside is 66 GiB; one request of 4,096 tokens takes 2 GiB.
    answer = kvreport.estimate(
        "meta-llama/Llama-2-7b-hf", gpu="H100", context_tokens="4K", engine="ceiling", kv_pool="66GiB"
    )
    assert answer.kv_bytes_per_request_per_gpu == 2 << 30
    assert answer.max_concurrent_requests == 33


def test_a_request_of_a_70b_model_takes_two_and_a_half_gib_at_8k():
    answer = kvreport.estimate("meta-llama/Llama-3.1-70B-Instruct", gpu="H200", context_tokens=8192)
    assert answer.kv_bytes_per_request_per_gpu == 2_684_354_560


# vLLM 0.33.0's own planner, run on Qwen2.5 7B's shape with given pools: blocks, tokens and
# concurrency as it prints them. 40 GiB // (16 x 57,344 B) = 46,811 blocks; / 512 blocks for 8K.
def test_a_given_pool_is_divided_as_the_engine_prints_it():
    answer = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="H100", context_tokens=8192, kv_pool="40GiB")
    assert answer.budget.kv_pool_bytes == 40 << 30
    assert answer.max_concurrency == pytest.approx(46_811 / 512)
    assert answer.kv_pool_tokens == 46_811 * 16
    assert answer.max_concurrent_requests == 91


def test_the_budget_adds_up():
    answer = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="H100", context_tokens=8192)
    limits = answer.to_dict()["budget"]
    taken = sum(
        limits[part] for part in ("weights", "activations", "non_framework", "graphs", "kv_pool_bytes")
    )
    assert abs(taken - limits["total_bytes"] * limits["utilization"]) < 2


def test_every_verdict_is_reached():
    def judge(model, gpu, context, **more):
        return kvreport.estimate(model, gpu=gpu, context_tokens=context, **more).verdict

    assert judge("Qwen/Qwen2.5-7B", "H100", "8K") == "fits"
    assert judge("Qwen/Qwen2.5-7B", "H100", "256K") == "context_exceeds_model"
    assert judge("Qwen/Qwen2.5-7B", "rtx-4090", "128K") == "cache_exceeds_pool"
    assert judge("Qwen/Qwen2.5-72B", "rtx-4090", "8K") == "weights_exceed_memory"
    pool = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="rtx-4090").max_context_tokens
    assert judge("Qwen/Qwen2.5-7B", "rtx-4090", pool) == "tight"


def test_a_context_beyond_the_model_is_still_answered():
    answer = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="H200", context_tokens=1 << 20)
    assert answer.verdict == "context_exceeds_model"
    assert answer.kv_bytes_per_request_per_gpu == 57_344 << 20
    assert answer.max_context_tokens <= 131_072


def test_the_explanation_puts_the_numbers_in():
    lines = kvreport.estimate("Qwen/Qwen3.6-27B", gpu="H100", context_tokens="8K").explanation
    text = "\n".join(lines)
    assert "16 layers x 4 KV heads x (256 + 256) x 2 B = 65,536 B per token" in text
    assert "48 layers x (61,440 B conv + 3,145,728 B recurrent) = 153,944,064 B per request" in text
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "nobody/nothing"}, "model"),
        ({"gpu": "h1000"}, "accelerator"),
        ({"gpu": ""}, "accelerator"),
        ({"engine": "vlm"}, "engine"),
        ({"weights": "int3"}, "weight format"),
        ({"kv": "int3"}, "KV format"),
        ({"utilization": 0.0}, "utilization"),
        ({"utilization": 1.01}, "utilization"),
        ({"utilization": float("nan")}, "utilization"),
        ({"tensor_parallel": 0}, "tensor-parallel"),
        ({"tensor_parallel": 3}, "tensor parallel"),
        ({"tensor_parallel": True}, "tensor-parallel"),
        ({"context_tokens": 0}, "context"),
        ({"context_tokens": "many"}, "context"),
        ({"context_tokens": 1 << 31}, "context"),
        ({"kv_pool": "0GiB"}, "kv-pool"),
        ({"block_size": 0}, "block-size"),
        ({"block_size": 17}, "multiples of 16"),
        ({"max_batched_tokens": 0}, "max-batched-tokens"),
        ({"max_seqs": -1}, "max-seqs"),
        ({"num_speculative_tokens": -1}, "num-speculative-tokens"),
        ({"decode_context_parallel": 3}, "context parallel"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(arguments, said):
    question = {"model": "Qwen/Qwen2.5-7B", "gpu": "H100", **arguments}
    with pytest.raises(InputError) as refused:
        kvreport.estimate(question.pop("model"), **question)
    message = str(refused.value)
    assert said in message
    assert "allowed" in message
    assert "\n" not in message


def test_a_latent_cannot_be_stored_per_token_and_head():
    with pytest.raises(
        InputError, match=r"'int8_per_token_head' cannot store the latent cache.*it stores: full"
    ):
        kvreport.estimate("deepseek-ai/DeepSeek-V3", gpu="H200", tensor_parallel=8, kv="int8_per_token_head")


@pytest.mark.parametrize(
    ("model", "per_token", "per_request"),
    [
        # Layers 2 + 21 (4:1) + 20 (128:1), pages padded to 576 B. Per token: 41 compressed latents,
        # 21 x 585/4 + 20 x 864/128 = 3,206.25, and index keys 21 x 135/4 = 708.75. Per request: windows
        # 43 x 128 x 585 = 3,219,840; rings 21 x 8 x (8,208 + 2,160) + 20 x 128 x 4,104 = 12,248,064.
        ("deepseek-ai/DeepSeek-V4-Flash", 3_915, 3_219_840 + 12_248_064),
        # 30 (4:1) + 31 (128:1): 4,596.75 + 1,012.5 per token; 4,567,680 + 18,772,992 per request.
        ("deepseek-ai/DeepSeek-V4-Pro", 5_609, 4_567_680 + 18_772_992),
    ],
)
def test_a_compressed_cache_has_a_small_rate_and_a_large_fixed_part(model, per_token, per_request):
    answer = kvreport.estimate(model, gpu="b200-sxm-180gb", tensor_parallel=8, context_tokens="32K")
    assert answer.kv_bytes_per_token_per_gpu == per_token
    assert answer.state_bytes_per_request_per_gpu == per_request


def test_fp8_means_the_packed_layout_where_there_is_no_other():
    model, gpu = "deepseek-ai/DeepSeek-V4-Flash", "b200-sxm-180gb"
    asked, own = (kvreport.estimate(model, gpu=gpu, tensor_parallel=8, kv=kv) for kv in ("fp8", "auto"))
    told = {"assumptions"}
    assert {k: v for k, v in asked.to_dict().items() if k not in told} == {
        k: v for k, v in own.to_dict().items() if k not in told
    }
    assert asked.to_dict()["kv_format"] == "fp8_ds_mla_v4"


@pytest.mark.parametrize(
    ("gpu", "row_bytes"),
    [("h200-sxm-141gb", 656), ("rtx-pro-6000-server", 656), ("b200-sxm-180gb", 576)],
)
def test_sparse_latents_in_fp8_have_the_layout_of_the_devices_kernels(gpu, row_bytes):
    """512 + 4 x 4 + 64 x 2 where the rotary part stays at 16 bits; (512 + 64) x 1 on Blackwell's own."""
    answer = kvreport.estimate("deepseek-ai/DeepSeek-V3.2", gpu=gpu, tensor_parallel=8, kv="fp8")
    assert answer.request.kv_format.name == "fp8"
    assert answer.kv_bytes_per_token_per_gpu == 61 * (row_bytes + 132)
    assert answer.kv_bytes_per_token_reserved_per_gpu == 61 * (row_bytes + 132)
    assert f"{61 * row_bytes:,} B per token" in "\n".join(answer.explanation)


def test_a_plain_latent_in_fp8_is_plain_everywhere():
    for gpu in ("h200-sxm-141gb", "b200-sxm-180gb"):
        answer = kvreport.estimate("deepseek-ai/DeepSeek-V3", gpu=gpu, tensor_parallel=8, kv="fp8")
        assert answer.kv_bytes_per_token_per_gpu == 61 * 576


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5"])
def test_fp8_of_sparse_latents_on_hopper_is_the_catalogs_format_of_that_layout(model):
    """The engine's rule and ``formats.yaml`` state the same layout; neither may drift from the other."""
    asked, named = (
        kvreport.estimate(model, gpu="h200-sxm-141gb", tensor_parallel=8, kv=kv).to_dict()
        for kv in ("fp8", "fp8_ds_mla")
    )
    same = ("kv_bytes_per_token_per_gpu", "kv_bytes_per_request_per_gpu", "max_concurrency")
    assert [asked[name] for name in same] == [named[name] for name in same]


def test_one_whole_request_is_singular_in_the_explanation() -> None:
    answer = kvreport.estimate(
        "Qwen/Qwen3-32B", gpu="l40s", context_tokens=40960, tensor_parallel=2, utilization=0.85
    )
    assert any(line.endswith("and 1 whole request fits in the others") for line in answer.explanation)


def test_the_stage_that_holds_fewest_requests_is_divided_in_the_explanation() -> None:
    answer = kvreport.estimate(
        "Qwen/Qwen2.5-7B-Instruct", gpu="h100-sxm-80gb", context_tokens=8192, pipeline_parallel=3
    )
    fullest, fewest = (
        line
        for line in answer.explanation
        if line.endswith("requests at once") or "keeps 1 block for itself" in line
    )
    quotients = []
    for line in (fullest, fewest):
        blocks, quotient = re.findall(r"([\d,]+) / 512 = ([\d.]+) requests at once", line)[0]
        assert float(quotient) == math.floor(int(blocks.replace(",", "")) / 512 * 100) / 100
        quotients.append(float(quotient))
    assert fewest.startswith("the stage of layers 9 to 18 holds fewer: ")
    assert int(quotients[1]) == answer.max_concurrent_requests_by_memory < quotients[0]


def test_a_stage_with_fewer_states_is_named_beside_the_fullest_in_the_explanation() -> None:
    answer = kvreport.estimate(
        "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16",
        gpu="h800-sxm-80gb",
        context_tokens=1,
        pipeline_parallel=4,
        engine="sglang-0.5.17",
        max_seqs=16384,
    )
    assert any(line.endswith("= 323.00 requests at once") for line in answer.explanation)
    fewest = next(line for line in answer.explanation if "holds fewer" in line)
    allowed = int(re.findall(r"^the stage of layers 10 to 19 .* allow ([\d,]+) requests$", fewest)[0])
    assert allowed == answer.max_concurrent_requests_by_memory == 322


def test_a_stage_that_caches_nothing_is_not_divided_in_the_explanation() -> None:
    answer = kvreport.estimate(
        "google/gemma-3n-E4B-it",
        gpu="v100-pcie-32gb",
        context_tokens=8192,
        tensor_parallel=8,
        pipeline_parallel=3,
        engine="sglang",
    )
    assert any(not rank.plan.block_bytes for rank in answer.deployment.others)
    fewest = next(line for line in answer.explanation if "holds fewer" in line)
    allowed = re.findall(r"(?:= |allow )([\d,]+)(?:\.\d\d)? requests", fewest)[0]
    assert int(allowed.replace(",", "")) == answer.max_concurrent_requests_by_memory


def test_a_request_of_deepseek_v4_holds_what_sglang_stores_whatever_the_cache_is_called() -> None:
    asked = {"gpu": "h200-sxm-141gb", "engine": "sglang", "tensor_parallel": 4, "pipeline_parallel": 3}
    lines = []
    for kv in ("fp8", "bf16"):
        answer = kvreport.estimate("deepseek-ai/DeepSeek-V4-Pro", context_tokens=8890, kv=kv, **asked)
        lines.append(next(line for line in answer.explanation if line.startswith("one request of")))
    held, reserved = (
        int(one.replace(",", "")) for one in re.findall(r"(?:takes|reserves) ([\d,]+) B", lines[1])
    )
    assert held <= reserved
    assert lines[0] == lines[1]


@pytest.mark.parametrize("pool", [{"kv_pool": "70GiB"}, {"kv_pool_blocks": 40_000}])
@pytest.mark.parametrize("engine", ["vllm", "vllm@0.11.0"])
def test_a_pool_that_has_no_room_beside_the_weights_is_refused(pool, engine) -> None:
    with pytest.raises(
        InputError, match=r"kv pool: found .* GiB per GPU; next to 15\.\d+ GiB of weights, H100 .* 63\."
    ):
        kvreport.estimate("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", engine=engine, **pool)
    with pytest.raises(
        InputError, match="kv pool: "
    ):  # the last of four stages holds more weights than the first
        kvreport.estimate(
            "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
            gpu="h200-nvl-141gb",
            engine="vllm-0.19",
            pipeline_parallel=4,
            kv_pool="20GiB",
        )
    least = kvreport.estimate("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", engine=engine, kv_pool="63GiB").to_dict()
    assert least["max_concurrent_requests_by_memory"] <= least["max_concurrent_requests_ceiling"]


def test_the_formats_name_the_bits_that_an_engine_stores_whatever_it_is_told() -> None:
    asked = {"gpu": "h200-sxm-141gb", "tensor_parallel": 4, "engine": "sglang"}
    wide = kvreport.estimate("deepseek-ai/DeepSeek-V4-Flash", kv="bf16", **asked)
    assert wide.formats.endswith("SGLang 0.5.23 (which stores it in 8 bits)")
    assert "stores" not in kvreport.estimate("Qwen/Qwen3-8B", kv="fp8", **asked).formats


def test_a_remedy_of_more_ranks_spans_the_machines_that_they_need() -> None:
    asked = {"gpu": "h800-sxm-80gb", "engine": "sglang-0.5.17", "context_tokens": 1, "max_seqs": 16384}
    first = kvreport.estimate("nex-agi/Nex-N2.5-Pro", pipeline_parallel=4, **asked)
    found = remedies(first, open_catalog().kv_formats)
    wide = next(one for one in found if one.flags == "--tensor-parallel 8")
    again = kvreport.estimate("nex-agi/Nex-N2.5-Pro", pipeline_parallel=4, tensor_parallel=8, **asked)
    assert again.request.layout.nodes == 4
    assert wide.requests == again.max_concurrent_requests


def test_tables_in_host_memory_are_named_beside_the_bytes_of_a_gpu() -> None:
    asked = {"gpu": "h200-sxm-141gb", "context_tokens": 8192, "tensor_parallel": 8}
    line = (
        "196,613,849,600 of these parameters (197B) are tables of hashed n-grams in host memory, "
        "and are not part of these bytes"
    )
    model = "deepseek-ai/DeepSeek-V4.1-Flash-1017"
    assert line in kvreport.estimate(model, engine="vllm", **asked).explanation
    assert line not in kvreport.estimate(model, engine="vllm-0.29", **asked).explanation
