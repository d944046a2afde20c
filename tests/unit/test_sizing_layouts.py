"""Sizing over layouts: what practitioners deploy, conservation, commands, prefill and decode apart."""

import json
from dataclasses import replace
from math import ceil

import pytest
from told import held_as_told

from kvreport.accounting.engines.command import Served
from kvreport.accounting.offers import Choices, Offer, Solution
from kvreport.accounting.parallel import Layout
from kvreport.accounting.ranking import rank
from kvreport.catalog.load import open_catalog
from kvreport.catalog.server_flags import load_server_flags
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.commands import nodes_note, serving_command
from kvreport.estimation.size import Sizing, size
from kvreport.resources import data_dir

CATALOG = open_catalog()
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
H200 = "h200-sxm-141gb"


def sized(model: str = DEEPSEEK, gpu: str = H200, **changes: object) -> Sizing:
    asked: dict[str, object] = {"context": "32K", "concurrent": 64, "gpus": [gpu], **changes}
    return size(model, **asked)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def deepseek() -> Sizing:
    return sized()


def by_layout(found: Sizing) -> dict[str, Solution]:
    return {one.layout.label: one for one in found.ranking.deployments}


def test_eight_h200_serve_what_tensor_parallelism_alone_needs_thirty_two_for(deepseek: Sizing) -> None:
    best = deepseek.ranking.deployments[0]
    assert (best.devices, best.sure) == (8, True)
    # Graphs on Hopper keep partial results for all 128 heads of a data rank, and experts take the tokens of all ranks: eight of them
    # need fewer sequences and smaller steps.
    dp = {"data_parallel": 8, "expert_parallel": True}
    held = [
        estimate(DEEPSEEK, gpu=H200, context_tokens="32K", **dp, **seqs).max_concurrent_requests
        for seqs in ({}, {"max_batched_tokens": 2048}, {"max_batched_tokens": 2048, "max_seqs": 256})
    ]
    assert held[0] < held[1] < 64 <= held[2]
    assert sized(tensor_parallel=[1, 2, 4, 8]).ranking.deployments[0].devices == 32


@pytest.mark.parametrize(
    ("label", "flags"),
    [
        ("tp8", {"tensor_parallel": 8}),
        ("dp8-ep", {"data_parallel": 8, "expert_parallel": True}),
        ("dp16-ep", {"data_parallel": 16, "expert_parallel": True, "nodes": 2}),
        ("tp8-dcp8", {"tensor_parallel": 8, "decode_context_parallel": 8}),
        ("pp2-tp8", {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2}),
    ],
)
def test_a_layout_holds_what_an_estimate_says(deepseek: Sizing, label: str, flags: dict[str, int]) -> None:
    asked = {"gpu": H200, "context_tokens": "32K", **flags}
    held_as_told(by_layout(deepseek)[label], DEEPSEEK, asked)


@pytest.mark.parametrize("concurrent", [1, 64, 700])
def test_devices_and_requests_are_conserved(concurrent: int) -> None:
    found = sized(concurrent=concurrent, spare_replicas=1, burst=1.5)
    for one in found.ranking.deployments:
        facts = found.describe(one)
        layout = facts["layout"]
        assert layout["gpus"] == (
            layout["tensor_parallel"] * layout["pipeline_parallel"] * layout["data_parallel"]
        )
        assert facts["devices"] == layout["gpus"] * facts["replicas"]["with_spares"]
        assert facts["users_per_replica"] % layout["data_parallel"] == 0
        assert facts["users_per_replica"] * facts["replicas"]["burst"] >= found.workload.peak
        # The fullest data rank of the fullest replica gets no more than it serves, and its pool holds that.
        each = ceil(ceil(found.workload.peak / facts["replicas"]["burst"]) / layout["data_parallel"])
        assert each == found.rank_each(one) <= facts["users_per_replica"] // layout["data_parallel"]
        assert facts["smallest_pool_bytes"] <= facts["kv_pool_bytes_per_gpu"]


def test_a_dense_model_is_answered_as_by_tensor_parallelism_alone() -> None:
    every, plain = (
        sized(LLAMA, "h100-sxm-80gb", tensor_parallel=sizes, context="8K") for sizes in (None, [1, 2, 4, 8])
    )
    assert every.to_dict() == plain.to_dict()


def test_layouts_that_are_given_are_the_ones_tried() -> None:
    found = sized(tensor_parallel=[8], layouts=[Layout(data=8, expert=True)])
    assert set(by_layout(found)) == {"tp8", "dp8-ep"}
    assert set(by_layout(sized(tensor_parallel=[8]))) == {"tp8"}


@pytest.mark.parametrize(
    ("per_node", "labels"), [(8, {"tp8", "dp8-ep", "dp16-ep", "tp8-dcp8", "pp2-tp8"}), (4, set())]
)
def test_a_layout_takes_no_more_of_a_node_than_it_has(
    deepseek: Sizing, per_node: int, labels: set[str]
) -> None:
    device = CATALOG.accelerators[H200].model_copy(update={"devices_per_node": per_node})
    choices = Choices(
        engine=CATALOG.engine("vllm"),
        formats=CATALOG.weight_formats,
        weight_formats={"released": None},
        kv_formats={"auto": None},
        all_kv_formats=CATALOG.kv_formats,
        layouts=tuple(Layout(**one.model_dump()) for one in CATALOG.grid.layouts),
    )
    found = rank([CATALOG.model(DEEPSEEK)], deepseek.workload, [Offer(device)], choices)
    assert {one.layout.label for one in found.deployments} == labels


def test_commands_carry_the_layout_and_only_flags_that_servers_take(deepseek: Sizing) -> None:
    wanted = {
        "dp8-ep": (
            "--data-parallel-size 8 --enable-expert-parallel",
            "--tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8",
        ),
        "tp8-dcp8": ("--tensor-parallel-size 8 --decode-context-parallel-size 8", "--tp-size 8 --dcp-size 8"),
        "pp2-tp8": (
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2",
            "--tp-size 8 --pp-size 2 --nnodes 2",
        ),
        "dp16-ep": (
            "--data-parallel-size 16 --enable-expert-parallel --data-parallel-size-local 8",
            "--tp-size 16 --dp-size 16 --enable-dp-attention --ep-size 16 --nnodes 2",
        ),
    }
    known = load_server_flags(data_dir())
    on_sglang = sized(engine="sglang")
    for label, words in wanted.items():
        for family, answer, expected in zip(("vllm", "sglang"), (deepseek, on_sglang), words, strict=True):
            found = by_layout(answer)[label]
            facts = answer.describe(found)
            command = facts["commands"][family]
            assert expected in command
            assert {word for word in command.split() if word.startswith("--")} <= set(known[family].flags)
            assert (facts["note"] is not None) == (found.layout.nodes > 1)


def test_vllm_counts_requests_per_data_rank_and_sglang_all_of_them(deepseek: Sizing) -> None:
    one = by_layout(deepseek)["dp8-ep"]
    assert f"--max-num-seqs {one.users_each // 8} " in deepseek.describe(one)["commands"]["vllm"]
    on_sglang = sized(engine="sglang")
    one = by_layout(on_sglang)["dp8-ep"]
    assert on_sglang.describe(one)["commands"]["sglang"].endswith(f"--max-running-requests {one.users_each}")


def test_nothing_is_said_of_nodes_where_there_is_one() -> None:
    assert nodes_note(Served("m", Layout(tensor=8), 4096)) is None
    assert "--nnodes" not in serving_command("vllm", Served("m", Layout(tensor=8), 4096))


def test_interleaved_tokens_are_read_once_over_the_ranks() -> None:
    found = estimate(DEEPSEEK, gpu=H200, context_tokens="32K", tensor_parallel=8, decode_context_parallel=8)
    # An eighth of each request's 32,768 x 70,272 B, and at most all weights of the device, at 4.8 TB/s.
    cache_s = found.max_concurrent_requests * 32_768 * 70_272 / 8 / 4.8e12
    weights_s = found.weight_bytes_per_gpu / 4.8e12
    assert found.decode_ms_lower_bound is not None
    assert cache_s < found.decode_ms_lower_bound / 1e3 < (cache_s + weights_s) * 1.01


# --- prefill and decode apart ----------------------------------------------------------------------------


def apart(**changes: object) -> Sizing:
    return sized(DEEPSEEK, H200, **{"prompt": "8K", "output": "1K", "disaggregated": True, **changes})


def test_the_transfer_is_the_latent_cache_of_the_prompt() -> None:
    # 61 layers x (512 + 64) x 2 B = 70,272 B per token; x 8,192 tokens.
    found = apart().apart
    assert found is not None
    assert found.transfer_bytes == 70_272 * 8192
    assert apart(shared_prefix=1024).apart.transfer_bytes == 70_272 * (8192 - 1024)  # type: ignore[union-attr]


def test_the_ratio_is_that_of_device_seconds_and_lies_in_its_bounds() -> None:
    found = apart().apart
    assert found is not None
    facts = found.to_dict()
    prefill, decode = facts["prefill"], facts["decode"]
    ratio = facts["prefill_gpus_per_decode_gpu"]
    assert ratio["lowest"] < ratio["same_share_of_roofline"] < ratio["highest"]
    # What arrives at the decode pool keeps that many prefill devices busy.
    per_prompt = (
        prefill["ttft_lower_bound_s"] * prefill["layout"]["gpus"] / prefill["layout"]["data_parallel"]
    )
    busy = facts["requests_per_s_upper_bound"] * per_prompt
    assert busy / decode["devices"] == pytest.approx(ratio["same_share_of_roofline"])
    assert busy <= prefill["devices"] < busy + prefill["layout"]["gpus"]
    for side in (prefill, decode):
        assert 0 < side["smallest_pool_bytes"] <= side["kv_pool_bytes_per_gpu"]


def test_longer_prompts_ask_for_more_prefill_and_longer_answers_for_less() -> None:
    def ratio(prompt: str, output: str) -> float:
        found = sized(prompt=prompt, output=output, average="16K", disaggregated=True).apart
        assert found is not None
        assert found.ratio is not None
        return found.ratio

    assert ratio("8K", "1K") < ratio("24K", "1K")
    assert ratio("8K", "1K") > ratio("8K", "8K")


def test_the_first_token_is_a_matter_of_the_prefill_pool() -> None:
    with pytest.raises(InputError, match="disaggregated"):
        apart(ttft_s=0.001)
    assert apart(ttft_s=60).ranking.deployments[0].devices == 8


def test_the_command_line_says_both_pools_and_that_the_ratio_is_a_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["size", "deepseek-v3", "--gpu", "H200", "--concurrent", "120", "--context", "32K"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "tokens with deepseek-ai/DeepSeek-V3: 8 x H200" in said.splitlines()[0]
    assert "(tp8-dcp8)" in said.splitlines()[0]
    assert main([*asked, "--disaggregated"]) == 0
    said = capsys.readouterr().out
    assert "Prefill and decode apart" in said
    assert "a bound, not a measurement" in said
    assert main([*asked, "--disaggregated", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["deployments"][0]["layout"]["name"] == "tp8-dcp8"
    assert facts["disaggregated"]["prefill_gpus_per_decode_gpu"]["is_bound"] is True


@pytest.mark.parametrize(
    ("model", "gpu", "context", "most"),
    [
        ("zai-org/GLM-5", H200, "32K", 16),
        (DEEPSEEK, "h100-sxm-80gb", "128K", 32),
        ("deepseek-ai/DeepSeek-V3.2", H200, "128K", 16),
        ("deepseek-ai/DeepSeek-V3.2", "mi300x", "128K", 16),
        ("moonshotai/Kimi-K2.6", H200, "128K", 16),
        ("moonshotai/Kimi-K3", "h100-sxm-80gb", "32K", 64),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "h100-sxm-80gb", "128K", 64),
        ("MiniMaxAI/MiniMax-M3", "b200-sxm-180gb", "32K", 8),
    ],
)
def test_the_default_search_gives_what_people_deploy(model: str, gpu: str, context: str, most: int) -> None:
    best = sized(model, gpu, context=context).ranking.deployments[0]
    assert best.sure
    assert best.devices <= most


def test_kimi_k3_is_told_as_few_sequences_as_fit_on_half_as_many_h100() -> None:
    # Where ranks divide a context, graphs on Hopper keep results of all their heads for up to 512 sequences.
    found = sized("moonshotai/Kimi-K3", "h100-sxm-80gb", context="32K")
    # The answer with 64 is sure; that with half as many hangs on the error of stages, which is the widest of all kinds.
    best = next(one for one in found.ranking.deployments if one.devices == 32)
    few = {"context": "32K", "max_seqs": 256}
    assert f"--max-num-seqs {best.users_each} " in found.describe(best)["commands"]["vllm"]
    every = sized("moonshotai/Kimi-K3", "h100-sxm-80gb", **few).ranking.deployments
    told = next(one for one in every if one.devices == 32)
    # What a rank was laid out for is another; what it holds is the same.
    assert replace(best, ranks=()) == replace(told, ranks=())
    assert [one.pool_bytes for one in best.ranks] == [one.pool_bytes for one in told.ranks]
    label = "at most 256 requests at once (--max-num-seqs)"
    assert label not in {name for name, *_ in found.levers}


def test_a_size_with_smaller_steps_says_so_in_its_command() -> None:
    """Experts of data ranks take the tokens of all ranks, so that smaller steps hold more requests."""
    asked = {"context": "32K", "layouts": [Layout(data=8, expert=True)]}
    small = sized("deepseek-ai/DeepSeek-R1", "h200-sxm-141gb", max_batched_tokens=2048, **asked)
    usual = sized("deepseek-ai/DeepSeek-R1", "h200-sxm-141gb", **asked)
    # Whether they surely fit is another matter: the error of experts on ranks is wide.
    best, other = (
        next(one for one in found.ranking.deployments if one.layout.data == 8) for found in (small, usual)
    )
    told = small.describe(best)["commands"]["vllm"]
    assert told.endswith("--max-num-batched-tokens 2048")
    assert "--max-num-batched-tokens" not in usual.describe(other)["commands"]["vllm"]
    assert best.users_held > 1.5 * other.users_held
    same = estimate(
        "deepseek-ai/DeepSeek-R1",
        gpu="h200-sxm-141gb",
        data_parallel=8,
        expert_parallel=True,
        context_tokens="32K",
        max_batched_tokens=2048,
        max_seqs=best.users_each // 8,
    )
    assert best.pool_bytes == same.budget.kv_pool_bytes


def test_a_trace_takes_no_size_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    command = "size qwen3-8b --gpu h100 --trace mooncake-conversation --max-batched-tokens 2048"
    assert main(command.split()) == 2
    assert "max-batched-tokens: found together with --trace" in capsys.readouterr().err


def test_a_few_replicas_more_are_offered_where_as_many_only_just_hold_a_peak() -> None:
    pairs = 0
    for concurrent in range(80, 140, 3):
        found = sized(
            "Qwen/Qwen3-235B-A22B-Instruct-2507",
            "h100-sxm-80gb",
            context="96K",
            concurrent=concurrent,
            layouts=[Layout(tensor=8, pipeline=2, nodes=2)],
        )
        alike = [one for one in found.ranking.deployments if one.layout.pipeline == 2]
        assert alike[0].sure
        if len(alike) == 2:
            pairs += 1
            more, fewer = alike
            assert not fewer.sure
            assert fewer.devices < more.devices <= 2 * fewer.devices
            assert more.users_each == fewer.users_each
    assert pairs


def test_layouts_of_the_search_are_not_in_the_published_matrix() -> None:
    grid = CATALOG.grid
    assert not set(grid.layouts) & set(grid.sizing_layouts)
    assert len(grid.layouts) == 4


CODER = "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"
PAIR = "rtx-5070ti+rtx-5090"


def test_a_machine_of_unequal_gpus_holds_what_an_estimate_of_it_says() -> None:
    found = sized(CODER, PAIR, concurrent=2)
    best = found.ranking.deployments[0]
    asked = {
        "gpu": ["rtx-5070ti", "rtx-5090"],
        "pipeline_parallel": 2,
        "pipeline_partition": "best",
        "context_tokens": "32K",
    }
    assert best.users_held > 0
    held_as_told(best, CODER, asked)
    assert best.layout.partition[0] < best.layout.partition[1]
    assert best.offer.accelerator.id == PAIR
    both = [CATALOG.accelerator(name).usable_bytes for name in PAIR.split("+")]
    assert best.memory_bytes == sum(both)
    facts = found.describe(best)
    assert facts["commands"]["vllm"].startswith(
        f"VLLM_PP_LAYER_PARTITION={','.join(map(str, best.layout.partition))} "
    )


def test_unequal_gpus_are_ranked_beside_equal_ones_and_counted_by_machine() -> None:
    found = size(CODER, context="32K", concurrent=5, gpus=[PAIR, "rtx-5090"])
    named = {one.offer.accelerator.id: one for one in found.ranking.best_of_each()}
    assert set(named) == {PAIR, "rtx-5090"}
    assert named[PAIR].devices % 2 == 0
    assert named["rtx-5090"].devices == 2
    alike = sized(CODER, "rtx-5090+rtx-5090", concurrent=5).ranking.deployments
    assert {one.layout.label for one in alike} == {"tp2", "pp2-tp1"}
    plain = {one.layout.label: one.users_held for one in found.ranking.deployments if not one.offer.machine}
    assert {one.users_held for one in alike if one.layout.label == "tp2"} == {plain["tp2"]}


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("rtx-5090*x+rtx-3090", r"with a number of devices"),
        ("rtx-5090*9+rtx-3090*9", "at most 16"),
        ("rtx-5090+no-such", "allowed: a known name"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(gpu: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sized(CODER, gpu)


def test_pools_apart_want_one_kind_of_gpu() -> None:
    with pytest.raises(InputError, match="one kind of GPU"):
        sized(CODER, PAIR, disaggregated=True)


def test_prices_of_unequal_gpus_add_up() -> None:
    found = size(CODER, context="32K", concurrent=2, gpus=[PAIR], prices={"rtx-5070ti": 1.0, "rtx-5090": 3.0})
    assert found.ranking.deployments[0].price_per_hour == 4.0
    with pytest.raises(InputError, match="rtx-5090"):
        size(CODER, context="32K", concurrent=2, gpus=[PAIR], prices={"rtx-5070ti": 1.0})


def test_stages_with_data_ranks_take_fewer_gpus_than_tensor_ranks() -> None:
    """DeepSeek-V4-Pro, 64 x 128K on H100: 4 stages of 8 data ranks, where stages of TP 8 alone take 352 GPUs.

    With steps of 8,192 tokens, of which windows keep one for every stage and one more, they take four times the GPUs.
    """
    whole = sized("deepseek-ai/DeepSeek-V4-Pro", "h100-sxm-80gb", context="128K")
    assert whole.ranking.deployments[0].devices == 128
    levers = {label: devices for label, devices, _ in whole.levers}
    assert levers["steps of 2,048 tokens (--max-num-batched-tokens)"] == 32
    found = sized("deepseek-ai/DeepSeek-V4-Pro", "h100-sxm-80gb", context="128K", max_batched_tokens=2048)
    assert found.ranking.deployments[0].devices == 32
    best = by_layout(found)["pp4-dp8-ep"]
    assert (best.devices, best.sure) == (32, True)
    answer = estimate(
        "deepseek-ai/DeepSeek-V4-Pro",
        gpu="h100-sxm-80gb",
        context_tokens="128K",
        data_parallel=8,
        pipeline_parallel=4,
        expert_parallel=True,
        nodes=4,
        max_batched_tokens=2048,
        max_seqs=best.users_each // 8,
    )
    assert answer.max_concurrent_requests_by_memory == best.users_held
    assert by_layout(whole)["pp4-tp8"].devices == 352
    assert "--data-parallel-size 8" in found.describe(best)["commands"]["vllm"]


def test_smaller_steps_are_a_lever_where_windows_keep_the_tokens_in_flight() -> None:
    found = sized(
        "deepseek-ai/DeepSeek-V4-Pro", "h200-sxm-141gb", context="128K", layouts=[Layout.named("dp16-ep")]
    )
    levers = {label: (devices, users) for label, devices, users in found.levers}
    devices, users = levers["steps of 2,048 tokens (--max-num-batched-tokens)"]
    assert (devices, users) == (16, 240)
    assert found.ranking.deployments[0].devices > devices
    assert found.ranking.deployments[0].users_each < users
    assert not [label for label, _, _ in sized(LLAMA).levers if label.startswith("steps")]


def test_cards_are_put_in_rows_of_any_depth_and_boards_are_not() -> None:
    cards = {
        one.layout.label
        for one in sized(LLAMA, "rtx-3090", weights=["int4"], context="8K", concurrent=2).ranking.deployments
    }
    assert {"pp3-tp1", "pp6-tp1", "pp3-tp2"} <= cards
    board = {one.layout.label for one in sized(LLAMA, H200).ranking.deployments}
    assert not any(label.startswith("pp") for label in board)
    small = sized("meta-llama/Llama-3.1-8B-Instruct", "rtx-3090").ranking.deployments
    assert not any(one.layout.pipeline > 1 for one in small)  # one card holds it


def test_a_row_of_stages_holds_what_an_estimate_says() -> None:
    row = by_layout(sized(LLAMA, "rtx-3090", weights=["int4"], context="8K", concurrent=2))["pp3-tp1"]
    answer = estimate(LLAMA, gpu="rtx-3090", weights="int4", pipeline_parallel=3, context_tokens="8K")
    assert row.users_held == answer.max_concurrent_requests_by_memory


def test_what_a_release_refuses_of_a_later_stage_is_not_offered() -> None:
    """The first stage of Nemotron 3 Super has no shared experts that four ranks do not divide; the second has."""
    asked = {"gpus": ["l4"], "weights": ["int4"], "kv": ["fp8"], "context": 8192, "concurrent": 8}
    model = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8"
    layouts = [Layout(pipeline=2, tensor=4)]
    with pytest.raises(InputError):
        size(model, engine="vllm@0.25.0", layouts=layouts, tensor_parallel=[4], **asked)
