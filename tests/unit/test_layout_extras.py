"""What layouts add to the memory, and partitions that are given or chosen."""

from dataclasses import replace

import pytest

from kvreport.accounting import kernel
from kvreport.accounting.all_to_all import (
    elastic_bytes,
    low_latency_bytes,
    one_sided_bytes,
    two_sided_bytes,
)
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.vllm.reserve import Told, read_rates
from kvreport.accounting.engines.vllm.towers import clip_tokens
from kvreport.accounting.parallel import Layout, stage_layers
from kvreport.accounting.stages import stages
from kvreport.accounting.weights import weights_by_component
from kvreport.catalog.load import Catalog
from kvreport.cli import main
from kvreport.dataset.grid import axes
from kvreport.errors import InputError
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.commands import estimate_command, options_of, pool_note
from kvreport.estimation.size import size
from kvreport.units import GIB, MIB


@pytest.mark.parametrize(
    ("tokens", "gib"),
    [(2048, 35.55), (1856, 32.21), (1840, 31.94), (1536, 26.66)],
)
def test_low_latency_buffers_are_those_that_were_measured(tokens: int, gib: float) -> None:
    # vllm-project/vllm issue 57894: width 5,120, 448 experts of which 64 are redundant, 16 ranks
    assert round(low_latency_bytes(tokens, 5120, 448) / GIB, 2) == gib


def wide(catalog: Catalog, **more: object) -> Estimate:
    return estimate(
        "deepseek-v3",
        gpu="h200",
        data_parallel=16,
        expert_parallel=True,
        nodes=2,
        context_tokens=8192,
        catalog=catalog,
        **more,
    )


def test_buffers_of_the_exchange_are_taken_from_the_pool(catalog: Catalog) -> None:
    plain = wide(catalog, max_batched_tokens=256)
    fast = wide(catalog, max_batched_tokens=256, all2all_backend="deepep_low_latency")
    size = fast.loading_bytes["all_to_all_buffers"]
    assert size == low_latency_bytes(256, 7168, 256) + GIB
    # What it spares are the buffers for the tokens of the other ranks.
    spared = plain.budget.activations - fast.budget.activations
    assert spared > 0
    assert plain.budget.kv_pool_bytes - fast.budget.kv_pool_bytes == size - spared
    many = wide(catalog, max_batched_tokens=256, all2all_backend="deepep_high_throughput")
    assert many.loading_bytes["all_to_all_buffers"] == 2 * GIB
    assert "all_to_all_buffers" not in plain.loading_bytes


def test_sglang_makes_deepeps_buffers_out_of_what_it_keeps_free(catalog: Catalog) -> None:
    # SGLang 0.5.23, memory_hook.py: 2 GiB for decode graphs, on top of the floor; its own run says 0.761 for 0.799.
    plain = wide(catalog, engine="sglang")
    found = wide(catalog, engine="sglang", all2all_backend="deepep_low_latency")
    assert "all_to_all_buffers" not in found.loading_bytes
    kept = [one.budget.activations + one.budget.non_framework + one.budget.graphs for one in (plain, found)]
    assert 1.9 * GIB < kept[1] - kept[0] < 3.1 * GIB


def test_buffers_beyond_what_deepep_can_make_are_refused_with_what_would_work(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"deepep_low_latency with 8,192 tokens.*--max-batched-tokens"):
        wide(catalog, max_batched_tokens=8192, all2all_backend="deepep_low_latency")


def test_redundant_experts_are_divided_over_the_ranks_with_the_rest(catalog: Catalog) -> None:
    plain, more = wide(catalog), wide(catalog, num_redundant_experts=32)
    held = plain.weights_by_component["routed_experts"], more.weights_by_component["routed_experts"]
    assert held[1] * 16 == held[0] * 18  # 256 / 16 = 16 experts on a rank, 288 / 16 = 18
    assert plain.weights_by_component["attention"] == more.weights_by_component["attention"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"num_redundant_experts": 8}, r"found 8 without expert parallelism; allowed: --expert-parallel"),
        (
            {"num_redundant_experts": 5, "data_parallel": 8, "expert_parallel": True},
            r"found 5 for 256 experts on 8 ranks.*allowed: 8",
        ),
        ({"pipeline_parallel": 2, "pipeline_partition": "10,11"}, r"allowed: 2 numbers .* sum 61"),
        ({"pipeline_parallel": 2, "pipeline_partition": "a,b"}, r"pipeline-partition: found 'a,b'"),
        ({"pipeline_parallel": 62}, r"pipeline parallel: found 62; allowed: 1 to 61 layers"),
        ({"data_parallel": 512, "expert_parallel": True}, r"512 ranks for 256 experts; allowed: at most 256"),
        ({"tensor_parallel": 8, "nodes": 3}, r"nodes: found 3 for 8 devices; allowed: a divisor of 8"),
    ],
)
def test_impossible_layouts_say_why_and_what_would_work(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        estimate("deepseek-v3", gpu="h200", context_tokens=8192, **asked)


def test_a_partition_is_what_was_given() -> None:
    assert stage_layers(48, 2, (16, 32)) == (range(16), range(16, 48))


def test_a_published_pipeline_over_unequal_gpus() -> None:
    # vllm-project/vllm issue 34076: 16 layers on 16 GB and 32 on 32 GB; the first stage had 3.18 GiB left.
    found = estimate(
        "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8",
        gpu=["rtx-5070ti", "rtx-5090"],
        pipeline_parallel=2,
        tensor_parallel=1,
        pipeline_partition="16,32",
        utilization=0.9,
        context_tokens=262_144,
        engine="vllm@0.15.0",
    )
    stages = {tuple(rank.places): rank for rank in found.deployment.ranks}
    assert [len(stages[(place,)].layers) for place in (0, 1)] == [16, 32]
    # Within the error that the answer states for a stage.
    first = stages[(0,)]
    assert float(first.pool_bytes) == pytest.approx(3.18 * GIB, abs=float(first.uncertainty_bytes))
    # That release asked for all layers of one request: 24 GiB, and 34,736 tokens at most in 3.18 GiB.
    assert found.verdict == "cache_exceeds_pool"
    assert (found.shortfall_bytes + found.budget.kv_pool_bytes) / GIB == pytest.approx(24.0, abs=0.01)
    assert found.max_context_tokens == pytest.approx(
        34_736 * found.budget.kv_pool_bytes / (3.18 * GIB), rel=0.002
    )


def test_the_best_partition_holds_more_than_the_even_one() -> None:
    asked = {
        "gpu": ["rtx-4090", "rtx-5090"],
        "pipeline_parallel": 2,
        "tensor_parallel": 1,
        "weights": "int4",
        "context_tokens": 8192,
    }
    even = estimate("llama-3.1-70b", **asked)
    best = estimate("llama-3.1-70b", pipeline_partition="best", **asked)
    every = [
        estimate("llama-3.1-70b", pipeline_partition=f"{first},{80 - first}", **asked).max_concurrency
        for first in (30, 32, 34, 36, 38)
    ]
    assert best.max_concurrency > even.max_concurrency
    assert best.max_concurrency >= max(every)
    assert any(text.startswith("pipeline partition ") for text in best.request.assumptions)


def test_a_network_between_servers_slows_the_bound_of_a_group_that_spans_them() -> None:
    asked = {"gpu": "h100", "nodes": 2, "context_tokens": 8192}
    group = estimate("llama-3.1-70b", tensor_parallel=8, **asked)
    slow = estimate("llama-3.1-70b", tensor_parallel=8, network_bandwidth="1GB", **asked)
    assert slow.prefill_ms_lower_bound > group.prefill_ms_lower_bound
    staged = {"tensor_parallel": 4, "pipeline_parallel": 2}
    assert (
        estimate("llama-3.1-70b", network_bandwidth="1GB", **staged, **asked).prefill_ms_lower_bound
        == estimate("llama-3.1-70b", **staged, **asked).prefill_ms_lower_bound
    )


@pytest.mark.parametrize(
    ("gpu", "layout"),
    [
        ("m3-ultra-512", {"tensor_parallel": 2, "nodes": 2}),
        ("rtx-4090", {"tensor_parallel": 4, "pipeline_parallel": 2, "nodes": 2}),
    ],
)
def test_nodes_without_a_link_are_refused_until_their_network_is_stated(gpu, layout) -> None:
    asked = {"gpu": gpu, "engine": "ceiling", "context_tokens": 8192, **layout}
    with pytest.raises(InputError, match=r"no stated link .* 1 node of .* --network-bandwidth"):
        estimate("llama-3.1-70b", **asked)
    joined = estimate("llama-3.1-70b", network_bandwidth="1.25GB", **asked)
    assert joined.request.layout.nodes == 2
    assert not any("its rate is not stated" in line for line in joined.request.assumptions)


def test_machines_that_nobody_asked_for_are_assumed_as_the_dataset_does() -> None:
    asked = {"engine": "ceiling", "context_tokens": 8192}
    found = estimate("llama-3.1-70b", gpu="m3-ultra-512", tensor_parallel=2, **asked)
    assert found.request.layout.nodes == 2
    assert any(line.startswith("nodes 2: a machine holds 1 of") for line in found.request.assumptions)


@pytest.mark.parametrize(
    ("gpu", "rate", "said"),
    [
        ("h100", None, "its rate is not stated"),
        ("gb10", 25 * 10**9, "a network of 25 GB/s between 2 nodes: the ports of DGX Spark"),
        ("gb300-dgx-station", 100 * 10**9, "a network of 100 GB/s between 2 nodes"),
    ],
)
def test_nodes_that_are_made_to_be_joined_need_no_stated_rate(gpu: str, rate: int | None, said: str) -> None:
    asked = {"gpu": gpu, "tensor_parallel": 2, "nodes": 2, "context_tokens": 8192}
    found = estimate("llama-3.1-8b", **asked)
    assert any(said in line for line in found.request.assumptions)
    assert found.request.network_bytes_per_s == rate
    slow = estimate("llama-3.1-8b", network_bandwidth="1.25GB", **asked)
    assert slow.prefill_ms_lower_bound > found.prefill_ms_lower_bound


def test_a_desktop_without_a_stated_port_stays_alone(catalog: Catalog) -> None:
    spark = catalog.accelerator("gb10")
    assert not spark.is_confined
    assert spark.model_copy(update={"network_bytes_per_s": None}).is_confined


def test_clips_and_images_of_a_prompt_are_told_in_words() -> None:
    asked = {"gpu": "h100", "context_tokens": 8192}
    found = estimate("google/gemma-4-E4B-it", limit_mm_per_prompt=["audio=2"], **asked).explanation
    assert "audio: 2 clips per prompt: at most 1,500 tokens, 750 for the longest" in found
    plain = estimate("google/gemma-4-E4B-it", **asked).explanation
    assert not any("per prompt: at most" in line for line in plain)


def test_inputs_per_prompt_are_told_in_tokens_and_no_videos_measure_less() -> None:
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    asked = {"gpu": "h100", "context_tokens": 32_768, "max_batched_tokens": 65_536}
    usual = estimate(name, **asked)
    still = estimate(name, limit_mm_per_prompt=["image=2", "video=0"], **asked)
    text = estimate(name, limit_mm_per_prompt=["image=0", "video=0"], **asked)
    assert usual.budget.activations >= still.budget.activations > text.budget.activations
    told = still.to_dict()["extras"]["encoder"]
    assert told["limits"] == {"image": 2, "video": 0}
    assert told["tokens_of_images_per_prompt"] == 2 * told["tokens_per_largest_image"]
    assert told["cache_bytes_per_largest_image"] == told["tokens_per_largest_image"] * 3584 * 2
    assert text.to_dict()["extras"]["encoder"]["tokens_per_largest_image"] is None


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("tp8", Layout(tensor=8)),
        ("tp2-dp8-ep", Layout(tensor=2, data=8, expert=True, nodes=2)),
        ("PP2-tp8", Layout(tensor=8, pipeline=2, nodes=2)),
        ("tp8-dcp8", Layout(tensor=8, decode_context=8)),
    ],
)
def test_a_layout_is_read_from_its_name(name: str, layout: Layout) -> None:
    assert Layout.named(name) == layout
    assert Layout.named(layout.label) == layout


@pytest.mark.parametrize("text", ["", "8", "tp8-tp4", "tp0", "ep8", "tpx", "tp8 dp2", "tp99999"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="layout: found"):
        Layout.named(text)


def test_layouts_that_are_named_are_tried() -> None:
    # With steps of 8,192 tokens, buffers of experts for the tokens of 32 ranks would take 48 GiB.
    asked = {"gpus": ["h200"], "context": "32K", "concurrent": 64} | {"max_batched_tokens": 2048}
    found = size(["zai-org/GLM-5"], layouts=[Layout.named("tp2-dp8-ep"), Layout.named("dp32-ep")], **asked)
    best = found.ranking.deployments[0]
    assert best.devices == 32  # 744B parameters in 16 bits; the grid's own layouts take 64
    assert best.layout.label in ("dp8-tp2-ep", "dp32-ep")


def test_the_command_says_what_the_layout_adds(catalog: Catalog) -> None:
    more = {"num_redundant_experts": 32, "all2all_backend": "deepep_low_latency", "max_batched_tokens": 256}
    vllm = estimate_command(wide(catalog, **more))
    assert "--enable-eplb --eplb-config.num_redundant_experts 32 --all2all-backend deepep_low_latency" in vllm
    sglang = estimate_command(wide(catalog, engine="sglang", **more))
    assert "--ep-num-redundant-experts 32 --moe-a2a-backend deepep --deepep-mode low_latency" in sglang


def test_the_command_says_partition_and_inputs() -> None:
    staged = estimate(
        "qwen3-32b",
        gpu="h100",
        tensor_parallel=1,
        pipeline_parallel=2,
        pipeline_partition="30,34",
        context_tokens=8192,
    )
    assert estimate_command(staged).startswith("VLLM_PP_LAYER_PARTITION=30,34 vllm serve")
    seen = estimate(
        "Qwen/Qwen2.5-VL-7B-Instruct",
        gpu="h100",
        limit_mm_per_prompt=["image=2", "video=0"],
        context_tokens=8192,
    )
    assert """--limit-mm-per-prompt '{"image":2,"video":0}'""" in estimate_command(seen)


@pytest.mark.parametrize(("engine", "sizes"), [("vllm", [31, 30]), ("sglang", [30, 31])])
def test_engines_give_the_layer_that_is_left_over_to_different_stages(engine: str, sizes: list[int]) -> None:
    # DeepSeek-V3 has 61 layers; both engines' distributed/utils.py::get_pp_indices
    found = estimate(
        "deepseek-v3",
        gpu="b200",
        tensor_parallel=8,
        pipeline_parallel=2,
        nodes=2,
        engine=engine,
        context_tokens=8192,
    )
    assert [len(rank.layers) for rank in found.deployment.ranks] == sizes


def test_a_matrix_is_written_over_layouts_by_name(catalog: Catalog) -> None:
    chosen = axes(catalog, models="deepseek-ai/DeepSeek-V3", layouts=[Layout.named("tp2-dp4-ep")])
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    assert Layout.named("tp2-dp4-ep") in chosen.layouts_of(model)
    assert Layout.named("tp8-dcp8") not in chosen.layouts_of(model)


def test_flashinfers_one_sided_buffers_have_room_for_every_ranks_tokens(catalog: Catalog) -> None:
    # DeepSeek-V3: 7168 wide, 8 experts a token, FP8 in blocks with a 32-bit scale for 128 values.
    out, back = 7168 + 4 * 56 + 8 * 8, 2 * 7168
    assert one_sided_bytes(4096, 8, 7168, 8, "fp8-block") == 8 * 4096 * (out + back)
    assert one_sided_bytes(4096, 8, 7168, 8, "nvfp4") == 8 * 4096 * (3584 + 448 + 64 + back)
    plain = wide(catalog, max_batched_tokens=4096)
    kept = wide(catalog, max_batched_tokens=4096, all2all_backend="flashinfer_nvlink_one_sided")
    assert kept.budget.weights - plain.budget.weights == 16 * 4096 * (out + back)
    assert "--all2all-backend flashinfer_nvlink_one_sided" in estimate_command(kept)
    with pytest.raises(InputError, match="which is vLLM's"):
        wide(catalog, engine="sglang", all2all_backend="flashinfer_nvlink_one_sided")


SHARED = "deepseek-ai/DeepSeek-V3"


@pytest.mark.parametrize(
    ("layout", "exchange", "whole"),
    [
        ({"tensor": 8}, "", False),
        ({"tensor": 8, "expert": True}, "", False),
        ({"data": 16, "expert": True, "nodes": 2}, "", False),
        ({"tensor": 8, "data": 2, "nodes": 2}, "", False),
        ({"tensor": 8, "data": 2, "expert": True, "nodes": 2}, "", True),
        ({"tensor": 8, "data": 2, "expert": True, "nodes": 2}, "deepep_low_latency", True),
        ({"tensor": 8, "data": 2, "expert": True, "nodes": 2}, "flashinfer_nvlink_two_sided", False),
    ],
)
def test_vllm_copies_shared_experts_over_tensor_ranks_of_data_ranks(
    catalog: Catalog, layout: dict[str, int], exchange: str, whole: bool
) -> None:
    """vLLM 0.33 config/parallel.py::use_sequence_parallel_moe, passed on by models/deepseek_v2.py."""
    model = catalog.model(SHARED)
    engine = rules(catalog.engine("vllm"))
    asked = Layout(**layout, all_to_all=exchange)
    ranks = engine.component_ranks(model, asked)
    assert ranks == ({"shared_experts": 1} if whole else {})
    one = weights_by_component(model, None, catalog.weight_formats, 1)["shared_experts"]
    got = weights_by_component(
        model,
        None,
        catalog.weight_formats,
        asked.tensor,
        expert_ranks=asked.expert_ranks,
        component_ranks=ranks,
    )["shared_experts"]
    assert got == (one if whole or asked.tensor == 1 else pytest.approx(one / asked.tensor, rel=1e-3))
    # A class without that code keeps them divided.
    assert engine.component_ranks(catalog.model("zai-org/GLM-4.5-Air"), asked) == {}


def test_whole_shared_experts_depend_on_the_release_and_on_stages(catalog: Catalog) -> None:
    layout = Layout(tensor=8, data=2, expert=True, nodes=2)
    staged = Layout(tensor=8, data=2, pipeline=2, expert=True, nodes=4)
    sparse, fourth = (
        catalog.model("deepseek-ai/DeepSeek-V3.2"),
        catalog.model("deepseek-ai/DeepSeek-V4-Pro"),
    )
    newest = rules(catalog.engine("vllm"))
    assert newest.component_ranks(sparse, layout) == {"shared_experts": 1, "dense_mlp": 1}
    assert newest.component_ranks(sparse, staged) == {"shared_experts": 1}
    assert newest.component_ranks(fourth, layout) == {"shared_experts": 1}
    assert newest.component_ranks(fourth, staged) == {}
    older = rules(catalog.engine("vllm-0.28"))
    assert older.component_ranks(sparse, layout) == {"shared_experts": 1}


def test_flashinfers_two_sided_buffers_are_queues_for_ranks_and_channels() -> None:
    # 66 of 132 multiprocessors; two blocks a channel up to 8 ranks, four up to 16: 33 and 16 channels of 2 MiB a rank.
    assert two_sided_bytes(8) == 8 * 33 * 2 * MIB + 2 * MIB  # their states fill a part of the last 2 MiB
    assert two_sided_bytes(16) == 16 * 16 * 2 * MIB + 2 * MIB
    assert two_sided_bytes(1024) == 1024 * 2 * MIB + 2 * MIB  # one channel at least


def test_deepeps_second_buffer_holds_messages_of_both_ways() -> None:
    # csrc/elastic/buffer.hpp by hand, for 7168 wide tokens with 8 experts: 14336 + 128 B out, 14336 + 64 B back.
    one_node = elastic_bytes(512, 7168, 8, 1, 8, floats8=False)
    assert one_node == -(-14464 * 8 * 512 // (2 * MIB)) * 2 * MIB
    back = 14400 * 8 * (4 * 512 + 512 + 4 * (512 + 1280))
    out = 14464 * (8 * 4 * 512 + 512 + 4 * (512 + 1280))
    assert back > out
    assert elastic_bytes(512, 7168, 8, 4, 8, floats8=False) == -(-back // (2 * MIB)) * 2 * MIB
    # In FP8 with a scale for 32 values a message out is 7168 + 896 + 128 B, so that the way back decides in one node.
    assert elastic_bytes(512, 7168, 8, 1, 8, floats8=True) == -(-14400 * 8 * 512 // (2 * MIB)) * 2 * MIB


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        ("flashinfer_nvlink_two_sided", two_sided_bytes(16)),
        ("mori_low_latency", 2 * GIB),
        ("mori_high_throughput", 2 * GIB),
        ("nixl_ep", low_latency_bytes(256, 7168, 256) + 128),
        ("deepep_v2", elastic_bytes(256, 7168, 8, 2, 8, floats8=True)),
    ],
)
def test_buffers_of_every_exchange_are_counted(catalog: Catalog, exchange: str, expected: int) -> None:
    found = wide(catalog, max_batched_tokens=256, all2all_backend=exchange)
    assert found.loading_bytes["all_to_all_buffers"] == expected
    heap = [one for one in found.to_dict()["assumptions"] if "MORI_SHMEM_HEAP_SIZE" in one]
    assert bool(heap) == exchange.startswith("mori")
    with pytest.raises(InputError, match="which is vLLM's"):
        wide(catalog, engine="sglang", all2all_backend=exchange)


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [
        ("--attn-cp-size", "--decode-context-parallel N, which divides the cache"),
        ("--cp-size", "--decode-context-parallel N, which divides the cache"),
        ("--helix", "--decode-context-parallel N, which divides a cache by tokens"),
    ],
)
def test_layouts_that_are_not_counted_are_refused_with_the_nearest(
    flag: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", "deepseek-v3", "--gpu", "H200", flag, "2"]) == 2
    assert f"not an option of kvreport estimate; instead: {nearest}" in capsys.readouterr().err


def test_a_stage_keeps_a_buffer_for_what_it_receives(catalog: Catalog) -> None:
    # make_empty_intermediate_tensors: hidden states and residual of a whole step, 16 bits each; one tensor where the
    # residual is added before (falcon.py) or where several streams pass (deepseek_v4: 4 of them).
    for name, tensors in (("qwen3-32b", 2), ("tiiuae/falcon-40b", 1), ("DeepSeek-V4-Flash", 4)):
        model = catalog.model(name)
        asked = {"pipeline_parallel": 2, "context_tokens": 2048, "max_batched_tokens": 8192}
        found = estimate(name, gpu="b200", engine="vllm@0.28.0", **asked)
        engine, place = found.deployment.case.rules, found.deployment.case.layout
        parts = stages(model, 2)
        for number, receives in ((0, False), (1, True)):
            rates = engine.reserve_rates(parts[number].model, place, receives=receives)
            alone = engine.reserve_rates(parts[number].model, place)
            assert rates is not None
            assert alone is not None
            step = kernel.ReserveStep(8192, 8, 2048, True, False, False, True, True, False)
            whole, less = (kernel.reserve_bytes(one, step, True, 0, True) for one in (rates, alone))
            gained = whole - less
            assert gained == (tensors * 2 * model.hidden_size * 8192 if receives else 0), (name, number)
        second = max(found.deployment.ranks, key=lambda one: one.places)
        step = second.case.step
        assert step.receives
        apart = replace(step, receives=False)
        device = second.case.accelerator
        assert device is not None
        less = engine.reserve(second.case.model, device, apart).activations
        assert second.reserve.activations - less == tensors * 2 * model.hidden_size * 8192


def test_the_error_band_of_stages_is_no_narrower_than_that_of_their_devices(catalog: Catalog) -> None:
    engine = rules(catalog.engine("vllm"))
    for name in ("rtx-5090", "h100-sxm-80gb", "dgx-spark-gb10", "mi300x"):
        device = catalog.accelerator(name)
        *_, share, least = bands = engine.browser_traits(device)["band"]
        assert (share, least) >= max(zip(bands[:4:2], bands[1:4:2], strict=True))
    found = estimate("llama-3.1-8b", gpu="rtx-5090", pipeline_parallel=2, context_tokens=8192)
    share, least = engine.browser_traits(catalog.accelerator("rtx-5090"))["band"][-2:]
    for rank in found.deployment.ranks:
        assert rank.uncertainty_bytes == round(least + share * rank.reserve.total)


@pytest.mark.parametrize(
    ("name", "tokens", "width"),
    [
        ("google/gemma-3n-E4B-it", 188, 2048),
        ("google/gemma-4-E4B-it", 750, 2560),
        ("openai/whisper-large-v3", 1500, 1280),  # its encoder's positions, which each layer attends to
    ],
)
def test_audio_clips_are_tokens_by_their_class(name: str, tokens: int, width: int) -> None:
    asked = {"gpu": "h100", "limit_mm_per_prompt": {"audio": 2}}
    told = estimate(name, **asked).to_dict()["extras"]["encoder"]
    assert told["tokens_per_longest_audio"] == tokens
    assert told["tokens_of_audio_per_prompt"] == 2 * tokens
    assert told["cache_bytes_per_longest_audio"] == tokens * width * 2
    text = estimate("llama-3.1-8b", gpu="h100").to_dict()["extras"]["encoder"]
    assert text["tokens_per_longest_audio"] is None


def test_a_model_that_only_listens_keeps_its_clips_while_it_is_measured(catalog: Catalog) -> None:
    # Qwen2-Audio: 30 seconds are 3000 frames, 1500 positions, 750 tokens. A step has room for as many as it has tokens.
    seeing = catalog.model("google/gemma-3n-E4B-it")
    rows = tuple(row for row in seeing.weights if row.component != "vision")
    engine = catalog.engine("vllm").model_copy(update={"audio_tokens": {seeing.architecture: 750}})
    alone = seeing.model_copy(update={"weights": rows})
    assert clip_tokens(alone, engine) == 750
    rates = read_rates(alone, engine)
    assert (rates.encoded, rates.encoded_per_token) == (750 * 2048 * 2, 2048 * 2)
    assert read_rates(alone, engine, Told(images=False)).encoded == 0
    assert (
        read_rates(seeing, engine).encoded_per_token
        == read_rates(seeing, catalog.engine("vllm")).encoded_per_token
    )
    whole = engine.model_copy(update={"audio_tokens": {seeing.architecture: None}})
    assert clip_tokens(alone, whole, 4096) == 4096


def test_dense_layers_and_the_head_of_sglang_are_divided_as_its_options_say() -> None:
    asked = {"gpu": "h200", "engine": "sglang", "data_parallel": 8, "expert_parallel": True}

    def weights(**options: object) -> int:
        return estimate("deepseek-ai/DeepSeek-V3", context_tokens="32K", **asked, **options).budget.weights

    plain = weights()
    # Three layers of three matrices, 7,168 x 18,432 in FP8, with a float32 scale for each 128 x 128 block.
    dense = 9 * 7168 * 18432 + 9 * 56 * 144 * 4
    assert weights(moe_dense_tp_size=1) - plain == dense * 7 // 8
    # 129,280 rows of 7,168 in 16 bits.
    head = 129280 * 7168 * 2
    assert weights(enable_dp_lm_head=True) - plain == head * 7 // 8
    assert weights(moe_dense_tp_size=1, enable_dp_lm_head=True) - plain == (dense + head) * 7 // 8
    assert weights(moe_dense_tp_size=8) == plain


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("deepseek-ai/DeepSeek-V3", {"engine": "vllm", "moe_dense_tp_size": 1}, "an option of SGLang"),
        ("deepseek-ai/DeepSeek-V3", {"engine": "vllm", "enable_dp_lm_head": True}, "an option of SGLang"),
        ("deepseek-ai/DeepSeek-V3", {"engine": "sglang", "moe_dense_tp_size": 4}, "allowed: 1, or the 8"),
        (
            "moonshotai/Kimi-Linear-48B-A3B-Instruct",
            {"engine": "sglang", "moe_dense_tp_size": 1},
            "divides over all ranks whatever is asked",
        ),
    ],
)
def test_options_of_dense_layers_are_refused_where_nothing_follows_them(
    model: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        estimate(model, gpu="h200", tensor_parallel=8, context_tokens="8K", **options)


def test_a_pasted_command_of_sglang_states_dense_layers_and_the_head(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pasted = (
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention "
        "--moe-dense-tp-size 1 --enable-dp-lm-head --context-length 32768"
    )
    assert main(["estimate", pasted, "--gpu", "h200"]) == 0
    said = capsys.readouterr().out
    assert "--moe-dense-tp-size 1 --enable-dp-lm-head" in said


def test_host_memory_for_blocks_is_explained_and_in_the_command() -> None:
    asked = {"gpu": "h100", "context_tokens": 8192}
    plain = estimate("meta-llama/Llama-3.1-8B-Instruct", **asked)
    for engine, flags, holds in (
        # 131,072 B a token: 100 GiB are 819,200 tokens.
        ("vllm", "--kv-offloading-size 100", "819,200 tokens (100 requests of 8,192)"),
        # Whole GB of each rank: 100 GiB are 107.4 GB.
        ("sglang", "--enable-hierarchical-cache --hicache-size 107", "816,345 tokens (99 requests of 8,192)"),
    ):
        found = estimate("meta-llama/Llama-3.1-8B-Instruct", engine=engine, kv_offload=100 * GIB, **asked)
        said = " ".join(found.explanation)
        assert f"holds {holds}" in said
        assert "no more requests run at once" in said
        assert "a store such as LMCache" in said
        assert flags in found.to_dict()["command"]
    assert (
        plain.max_concurrent_requests
        == estimate("meta-llama/Llama-3.1-8B-Instruct", kv_offload=100 * GIB, **asked).max_concurrent_requests
    )
    assert "host memory" not in " ".join(plain.explanation)


def test_vllms_own_flag_of_host_memory_counts_gib(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--kv-offloading-size", "100"], ["--kv-offloading-size=100"], ["--kv-offload", "100GiB"]):
        assert main(["estimate", "llama 3.1 8b", "--gpu", "h100", "--context", "8K", *words]) == 0
        assert "--kv-offloading-size 100" in capsys.readouterr().out


def test_an_encoder_of_images_and_videos_is_left_out_if_both_are_limited_to_none() -> None:
    """vLLM skips a tower only if all that it reads is limited to none (``_mark_tower_model``)."""
    asked = {"gpu": "l40s", "context_tokens": 32_768}
    name = "Qwen/Qwen3-VL-8B-Instruct"
    usual, images, both = (
        estimate(name, limit_mm_per_prompt=limits, **asked).weight_bytes_per_gpu
        for limits in (None, ["image=0"], ["image=0", "video=0"])
    )
    assert usual == images
    assert both < images
    one_kind = "google/gemma-3-12b-it"  # Its encoder reads images alone.
    assert (
        estimate(one_kind, limit_mm_per_prompt=["image=0"], **asked).weight_bytes_per_gpu
        < estimate(one_kind, **asked).weight_bytes_per_gpu
    )


def test_an_audio_encoder_is_left_out_if_no_audio_is_taken() -> None:
    """vLLM marks it apart from the encoder of images (vale-005 to vale-009), since 0.15.1."""
    name, asked = "google/gemma-4-E2B-it", {"gpu": "mi300x", "context_tokens": 32_768}
    usual, silent = (
        estimate(name, limit_mm_per_prompt=limits, **asked) for limits in (None, ["image=0", "audio=0"])
    )
    encoder = usual.to_dict()["weight_bytes_by_component"]["audio"]
    assert usual.weight_bytes_per_gpu - silent.weight_bytes_per_gpu == encoder
    assert "vision" in silent.to_dict()["weight_bytes_by_component"]  # Videos are still read.


def test_a_pool_given_by_hand_is_in_the_command_of_every_server() -> None:
    def asked(engine: str) -> Estimate:
        return estimate("Qwen/Qwen3-8B", gpu="H100", context_tokens=8192, kv_pool="20GiB", engine=engine)

    assert "--kv-cache-memory-bytes 21474836480" in estimate_command(asked("vllm"))
    assert pool_note(asked("vllm")) is None
    sglang = asked("sglang")
    assert f"--max-total-tokens {20 * GIB // 147_456}" in estimate_command(sglang)
    assert "--max-total-tokens can only lower the pool" in pool_note(sglang)
    tensorrt = asked("tensorrt-llm")
    assert options_of(tensorrt) == {"kv_cache_config": {"max_gpu_total_bytes": 20 * GIB}}
    assert "max_gpu_total_bytes can only lower the pool" in pool_note(tensorrt)
    # What an engine takes by itself is not stated.
    own = estimate("Qwen/Qwen3-8B", gpu="H100", context_tokens=8192, engine="sglang")
    assert "--max-total-tokens" not in estimate_command(own)
    assert pool_note(own) is None


def test_limits_of_inputs_stand_in_one_word() -> None:
    asked = {"gpu": "h100", "context_tokens": 4096}
    name = "Qwen/Qwen3-VL-8B-Instruct"
    joined = estimate(name, limit_mm_per_prompt=["image=0,video=0"], **asked).to_dict()
    assert joined == estimate(name, limit_mm_per_prompt=["image=0", "video=0"], **asked).to_dict()
    for wrong in ("image=0,", "image=0,x=1", "[" * 100_000, '{"image":' * 20_000):
        with pytest.raises(InputError, match=r"^limit-mm-per-prompt: found .*; allowed: "):
            estimate(name, limit_mm_per_prompt=[wrong], **asked)
