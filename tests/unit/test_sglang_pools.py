"""SGLang's pools for states, next to the one for tokens."""

from __future__ import annotations

from typing import Any

import pytest

import kvreport
from kvreport.accounting.allocation import plan_blocks
from kvreport.accounting.case import Case, Memo
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.sglang.plan import pool_flags
from kvreport.accounting.engines.sglang.pools import Division, PoolFlags, pools_of, token_bytes
from kvreport.accounting.engines.sglang.settings import narrows_index, page_size
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.accounting.weights import on_host
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import open_catalog
from kvreport.units import GIB
from tests import trunk


def test_no_context_fits_where_the_pool_of_states_holds_no_request():
    asked = {"gpu": "h20-96gb", "engine": "sglang", "context_tokens": 2048}
    half, small, enough = (
        kvreport.estimate("nvidia/Qwen3.5-122B-A10B-NVFP4", **asked, **given)
        for given in ({"utilization": 0.5}, {"kv_pool": 500_000_000}, {"kv_pool": 20_000_000_000})
    )
    assert half.max_context_tokens == small.max_context_tokens == 0
    assert small.max_concurrent_requests_by_memory == 0
    assert enough.max_concurrent_requests_by_memory > 0
    assert enough.max_context_tokens > 2048


def sglang_case(model: str, **serving: Any) -> Case:
    """A model on one H100 with a 16-bit cache."""
    catalog = open_catalog()
    return trunk.case(
        catalog.model(model),
        catalog.engine("sglang"),
        accelerator=catalog.accelerator("h100-sxm-80gb"),
        formats=catalog.weight_formats,
        kv_format=catalog.kv_format("bf16"),
        serving=Serving(max_batched_tokens=8192, **serving),
    )


def test_plans_for_different_window_shares_are_kept_apart() -> None:
    known = Memo()

    def window(share: float) -> float:
        asked = sglang_case("openai/gpt-oss-20b", max_seqs=5000, window_share=share)
        return plan_blocks(asked, known).pool.flags.window_share

    assert [window(0.8), window(0.5)] == [0.8, 0.5]


def test_index_keys_of_pooled_tokens_are_sized_by_release() -> None:
    """0.5.21 sizes one index key of 132 bytes for each token, 0.5.22 for each four: ``pool_configurator.py``.

    A start of 4 B200 (2026-09-19) prints 41.75 GB for 6,327,680 tokens of 11 layers: 512 + 132 bytes a layer.
    """
    catalog = open_catalog()
    model = catalog.model("zai-org/GLM-5.3-Flash")
    flags = PoolFlags(element_bytes=1, scaled_latents=False)
    sizes = {
        release: token_bytes(model, catalog.engine(f"sglang@{release}"), flags)
        for release in ("0.5.20", "0.5.21", "0.5.22", "0.5.23")
    }
    assert sizes == {
        "0.5.20": 11 * (512 + 132),
        "0.5.21": 11 * (512 + 132),
        "0.5.22": 11 * (512 + 33),
        "0.5.23": 11 * (512 + 33),
    }
    assert sizes["0.5.20"] * 6_327_680 / GIB == pytest.approx(41.75, abs=0.005)


def test_states_given_by_hand_take_no_share_of_the_budget() -> None:
    """``--max-mamba-cache-size 700`` of a published start: what states leave is for tokens."""
    known = Memo()

    def pools(max_states: int | None) -> tuple[int, int]:
        asked = sglang_case("Qwen/Qwen3.6-27B", max_seqs=8, max_states=max_states)
        rule = plan_blocks(asked, known).pool
        assert isinstance(rule, Division)
        found = pools_of(rule, 30 * GIB)
        return int(found.tokens), int(found.state_slots or 0)

    assert pools(40)[1] == 40
    assert pools(40)[0] > pools(80)[0] > 0
    assert pools(None)[1] not in (40, 80)


def test_pooled_index_keys_without_scales_take_their_part_of_a_token_s_cell() -> None:
    """0.5.20 to 0.5.23 keep 128 elements of 16 bits for four tokens (``qsa_kv_pool.py::qsa_bytes_per_token``).

    A start on 8 H100 (2026-09) prints 1,856,704 tokens, which are pages of 64.
    """
    catalog = open_catalog()
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    flags = PoolFlags(element_bytes=2, attention_ranks=8)
    for release in ("0.5.20", "0.5.23"):
        engine = catalog.engine(f"sglang@{release}")
        assert token_bytes(model, engine, flags) == 12 * (2 * 256 * 2 + 128 * 2 // 4)
        assert page_size(model, engine, "flashinfer") == 64
    hopper = catalog.accelerator("h100-sxm-80gb")
    engine, fp8 = catalog.engine("sglang"), catalog.kv_format("fp8")
    assert not narrows_index(model, engine, fp8, hopper)
    assert narrows_index(catalog.model("MiniMaxAI/MiniMax-M3"), engine, fp8, hopper)


@pytest.mark.parametrize(
    ("gpu", "apart"), [("h100-sxm-80gb", True), ("mi355x", False), ("dgx-spark-gb10", False)]
)
def test_tables_of_n_grams_lie_in_host_memory_where_it_is_apart(gpu: str, apart: bool) -> None:
    """A start on 8 H100 (2026-09) prints 31.25 GB of weights on each rank."""
    catalog = open_catalog()
    engine, device = catalog.engine("sglang@0.5.20"), catalog.accelerator(gpu)
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    table = next(row for row in model.weights if "ngram_embedding" in row.name)
    assert (table.name in on_host(engine, model, device)) is apart
    added = trunk.load_overhead(model, engine, None, catalog.weight_formats, device, 8)
    assert added.get("tables", 0) == (0 if apart else table.parameters * 2 // 8)
    if apart:
        found = kvreport.estimate(
            model.id, gpu=gpu, engine="sglang@0.5.20", tensor_parallel=8, context_tokens=8192
        )
        assert found.budget.weights / GIB == pytest.approx(31.25, rel=0.03)


def test_two_ranks_set_up_no_multicast() -> None:
    """Two H200 print 138.27 GiB free before loading (2026-06-23): NCCL's ``ncclNvlsInit`` asks for more than two GPUs."""
    catalog = open_catalog()
    engine, device = rules(catalog.engine("sglang@0.5.12")), catalog.accelerator("h200-sxm-141gb")

    def free_before_loading(device: Accelerator, ranks: int) -> int:
        static = engine.static_memory(device, Layout(tensor=ranks))
        assert static is not None
        return static.free_bytes

    free = [free_before_loading(device, ranks) for ranks in (1, 2, 4, 8)]
    assert free[1] / GIB == pytest.approx(138.27, abs=0.01)
    assert free[0] > free[1] > free[2] == free[3]
    card = catalog.accelerator("rtx-4090")  # its links do not multicast
    assert free_before_loading(card, 2) == free_before_loading(card, 4)


@pytest.mark.parametrize(("drafted", "verified"), [(0, 0), (1, 2), (3, 4)])
def test_a_step_verifies_one_token_more_than_is_drafted(drafted: int, verified: int) -> None:
    """``server_args.py``: ``speculative_num_draft_tokens`` is ``speculative_num_steps + 1`` where one token is drafted at a time."""
    catalog = open_catalog()
    model, engine = catalog.model("Qwen/Qwen3.6-27B"), catalog.engine("sglang")
    serving = Serving(max_batched_tokens=8192, draft_tokens=drafted)
    asked = trunk.case(model, engine, accelerator=catalog.accelerator("h100-sxm-80gb"), serving=serving)
    flags = pool_flags(model, engine, asked)
    assert flags.draft_tokens == verified


@pytest.mark.parametrize(
    ("share", "verdict", "said"),
    [
        (1, "fits", "utilization 1: what SGLang 0.5.23 takes without the flag"),
        (0.95, "fits", "where SGLang 0.5.23 leaves 12.7 GiB by default"),
        (0.999, "tight", "graphs take about 976 MiB"),
    ],
)
def test_a_share_says_what_it_leaves_for_graphs(share: float, verdict: str, said: str) -> None:
    """Shares above what SGLang takes by itself "fit" with nothing left to capture graphs in."""
    asked = {"gpu": "h100-sxm-80gb", "engine": "sglang", "context_tokens": 8192}
    found = kvreport.estimate("Qwen/Qwen3-32B", utilization=share, **asked)
    assert found.verdict == verdict
    assert any(said in str(one) for one in (*found.request.assumptions, *found.request.not_followed))
