"""An answer is for the server whose command stands beside it: the reserve is that of the stated longest request."""

import random

import numpy as np
import pytest
import rows

import kvreport
from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.capacity import followed
from kvreport.accounting.engines.vllm.reserve import Told, read_rates
from kvreport.catalog.load import Catalog
from kvreport.dataset.frames import boundary
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.estimation.commands import estimate_command
from kvreport.units import GIB

VIDEOS = "Qwen/Qwen2.5-VL-7B-Instruct"
INDEXED = "zai-org/GLM-5.3-FP8"
STAGED = "XiaomiMiMo/MiMo-V2.5"
"""With an encoder on the first of its stages: which of them is the fullest depends on the length."""


def test_the_reserve_is_that_of_the_printed_length() -> None:
    # vLLM 0.33 measures Qwen2.5-VL with min(7, C // 16,384) images' worth of a video, at least one
    # (`models/qwen2_vl.py`, `_MAX_FRAMES_PER_VIDEO`), so 8K and 16K have equal activations and 32K has more.
    kept = {}
    for context in (8192, 16_384, 32_768, 128_000):
        answer = kvreport.estimate(VIDEOS, gpu="h100", context_tokens=context)
        assert f"--max-model-len {context}" in (estimate_command(answer) or "")
        kept[context] = answer.budget.activations / GIB
    assert kept[8192] == kept[16_384] == pytest.approx(2.977, abs=0.001)
    assert kept[32_768] == pytest.approx(4.864, abs=0.001)
    assert kept[128_000] == pytest.approx(15.391, abs=0.001)


def test_no_sentence_is_left_about_another_server() -> None:
    answer = kvreport.estimate(INDEXED, gpu="h200", tensor_parallel=8, context_tokens=8192)
    assert not any("--max-model-len" in one for one in answer.to_dict()["assumptions"])


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (VIDEOS, {"gpu": "rtx-4090"}),
        (VIDEOS, {"gpu": "h100"}),
        (INDEXED, {"gpu": "h200", "tensor_parallel": 8}),
        (STAGED, {"gpu": "h100", "tensor_parallel": 8, "pipeline_parallel": 2}),
        ("Qwen/Qwen2.5-7B", {"gpu": "rtx-4090"}),
    ],
)
def test_each_line_of_a_table_is_the_answer_at_its_context(model: str, options: dict[str, object]) -> None:
    answer = kvreport.estimate(model, context_tokens=8192, **options)
    for line in answer.by_context:
        alone = kvreport.estimate(model, context_tokens=line.context_tokens, **options)
        for name in (
            "max_concurrent_requests",
            "max_concurrent_requests_by_memory",
            "verdict",
            "shortfall_bytes",
            "limited_by",
            "kv_bytes_per_request_per_gpu",
        ):
            assert getattr(alone, name) == getattr(line, name), (line.context_tokens, name)
        assert alone.max_context_tokens == answer.max_context_tokens
    longest = answer.max_context_tokens
    limit = answer.request.model.context_tokens
    at, beyond = (kvreport.estimate(model, context_tokens=n, **options) for n in (longest, longest + 1))
    assert at.max_concurrent_requests_by_memory >= 1
    assert longest == limit or beyond.max_concurrent_requests_by_memory == 0


def test_rows_of_the_dataset_are_the_estimates(catalog: Catalog) -> None:
    gpus = ("rtx-4090", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x")
    draw = random.Random(20261126)  # noqa: S311 - a spread of cases, no secret
    compared = several = 0
    for name in (VIDEOS, INDEXED, STAGED, "MiniMaxAI/MiniMax-M3"):
        for cube in matrix(
            axes(catalog, models=name, gpus=",".join(g for g in gpus if g in catalog.accelerators))
        ):
            if cube.engine != "vllm":
                continue
            places = list(zip(*np.nonzero(cube.possible), strict=True))
            for g, t, w, k in draw.sample(places, 12):
                nodes = cube.layouts[t].nodes
                for c in range(len(cube.contexts)):
                    compared += rows.compare(catalog, cube, (g, t, w, k), c, "vllm", nodes=nodes)
                several += len(set(cube.values["kv_pool_bytes_per_gpu"][g, t, w, k].tolist())) > 1
    assert compared > 300
    assert several > 10


def test_a_reserve_that_follows_nothing_costs_nothing() -> None:
    answer = kvreport.estimate("Qwen/Qwen2.5-7B", gpu="h100", context_tokens=8192)
    assert answer.deployment is not None
    assert answer.deployment.lengths is None
    assert answer.deployment.at_any_length() is answer.deployment
    # A pool by hand is the pool, whatever the length.
    given = kvreport.estimate(VIDEOS, gpu="h100", context_tokens=8192, kv_pool="10GiB")
    assert given.deployment is not None
    assert given.deployment.lengths is None


@pytest.mark.parametrize(
    ("model", "options"), [(VIDEOS, {"gpu": "rtx-4090"}), (INDEXED, {"gpu": "h200", "tensor_parallel": 8})]
)
def test_requests_fit_exactly_up_to_their_boundary(model: str, options: dict[str, object]) -> None:
    counts = [1, 2, 3, 7, 20]
    frame = boundary(model, requests=counts, **options)
    for count, longest in zip(counts, frame["max_context_tokens"].tolist(), strict=True):
        limit = kvreport.estimate(model, **options).request.model.context_tokens
        for context, fits in ((longest, True), (longest // 2, True), (longest + 1, False)):
            if 64 <= context <= limit:
                answer = kvreport.estimate(model, context_tokens=context, **options)
                assert (answer.max_concurrent_requests_by_memory >= count) == fits, (count, context)


FEWER_KEYS = {"gpu": "h200", "tensor_parallel": 8, "max_batched_tokens": 2048}
"""Steps so short that the keys that an indexer gathers take more than the experts' buffers."""


@pytest.mark.parametrize(("release", "beyond"), [("0.31.0", 40), ("0.32.0", 16), ("0.33.0", 16)])
def test_an_indexer_gathers_keys_of_fewer_contexts_beyond_a_length(release: str, beyond: int) -> None:
    # 132 bytes for each token; 5 * 8 contexts up to 262,144 tokens, and since 0.32 2 * 8 above.
    at, above, long = (
        kvreport.estimate(
            "zai-org/GLM-5.2-FP8", engine=f"vllm@{release}", context_tokens=context, **FEWER_KEYS
        )
        for context in (262_144, 262_145, 1_048_576)
    )
    assert above.budget.activations - at.budget.activations == 132 * (beyond * 262_145 - 40 * 262_144)
    assert long.budget.activations - above.budget.activations == 132 * beyond * (1_048_576 - 262_145)
    assert (above.budget.kv_pool_bytes > at.budget.kv_pool_bytes) == (release != "0.31.0")


@pytest.mark.parametrize(("stages", "least"), [(1, 0.838), (2, 0.771)])
def test_the_longest_context_is_found_where_shorter_ones_keep_more(stages: int, least: float) -> None:
    """A start may be refused at 262,144 tokens that runs with a few more."""
    asked = {
        **FEWER_KEYS,
        "tensor_parallel": 8 // stages,
        "pipeline_parallel": stages,
        "engine": "vllm@0.33.0",
    }
    longest_ones, refused_below = [], 0
    for step in range(20):
        asked["utilization"] = least + step / 1000

        def held(context: int) -> int:
            answer = kvreport.estimate("zai-org/GLM-5.2-FP8", context_tokens=context, **asked)
            count = answer.max_concurrent_requests_by_memory
            assert count is not None
            return count

        answer = kvreport.estimate("zai-org/GLM-5.2-FP8", context_tokens=8192, **asked)
        longest = answer.max_context_tokens
        assert (held(longest), held(longest + 1)) == (1, 0)
        assert not any(held(context) for context in (262_144, 262_145, 280_000) if context > longest)
        assert answer.longest_of([1]) == [longest]
        refused_below += longest > 262_144 and not held(262_144)
        longest_ones.append(longest)
    assert longest_ones == sorted(longest_ones)
    assert longest_ones[0] < 262_144 < longest_ones[-1]
    assert refused_below


def test_a_size_reserves_for_the_length_of_its_command() -> None:
    found = kvreport.size(VIDEOS, gpus=["rtx-4090"], concurrent=4, context=8192)
    best = found.ranking.deployments[0]
    answer = kvreport.estimate(
        VIDEOS,
        gpu="rtx-4090",
        tensor_parallel=best.tensor_parallel,
        context_tokens=8192,
        max_seqs=best.users_each,
    )
    assert best.pool_bytes == answer.budget.kv_pool_bytes
    assert (
        best.reserve_bytes == answer.budget.activations + answer.budget.non_framework + answer.budget.graphs
    )
    requests = 4
    longest = min(one.at_any_length().boundary(requests) for one in best.ranks)
    for context, fits in ((longest, True), (longest + 1, False)):
        told = kvreport.estimate(
            VIDEOS,
            gpu="rtx-4090",
            tensor_parallel=best.tensor_parallel,
            context_tokens=context,
            max_seqs=best.users_each,
        )
        assert (told.max_concurrent_requests_by_memory >= requests) == fits


def test_a_size_told_few_requests_follows_a_length_that_the_default_hides() -> None:
    """1,024 requests fill what latents are expanded in at any length; 134 do not, and longer requests take from the pool."""
    model = "deepseek-ai/DeepSeek-V3"
    found = kvreport.size(
        model, gpus=["h200"], concurrent=64, context=6000, weights=["released"], kv=["fp8"], layouts=None
    )
    best = next(one for one in found.ranking.deployments if one.layout.label == "dp8-ep")
    asked = {"gpu": "h200", "kv": "fp8", "data_parallel": 8, "expert_parallel": True}
    flag = best.users_each // best.layout.data
    requests = 8
    longest = min(one.at_any_length().boundary(requests) for one in best.ranks)
    for context, fits in ((longest, True), (longest + 1, False)):
        told = kvreport.estimate(model, context_tokens=context, max_seqs=flag, **asked)
        assert (told.max_concurrent_requests_by_memory >= requests * best.layout.data) == fits


@pytest.mark.parametrize("seed", range(60))
def test_the_longest_that_fits_is_found_where_the_pool_falls(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a spread of cases, no secret
    limit = draw.choice([1, 2, 50, 300])
    drops = sorted((draw.randint(0, limit + 20) for _ in range(draw.randint(1, 9))), reverse=True)
    reached = [drops[min(tokens * len(drops) // (limit + 1), len(drops) - 1)] for tokens in range(limit + 1)]
    reached = [min(one, limit) for one in reached]
    expected = max((n for n in range(1, limit + 1) if reached[n] >= n), default=0)
    assert followed(lambda tokens: reached[tokens], limit) == expected
    many = np.array([reached])
    found = followed(lambda tokens: many[0][np.broadcast_to(tokens, (2, 3))], limit)
    assert found.tolist() == [[expected] * 3] * 2
    if limit > 1:
        falls = draw.randrange(1, limit)
        reached[falls + 1 :] = [min(one + draw.choice([0, 5, 40]), limit) for one in reached[falls + 1 :]]
        reached[falls + 1 :] = sorted(reached[falls + 1 :], reverse=True)
        expected = max((n for n in range(1, limit + 1) if reached[n] >= n), default=0)
        assert followed(lambda tokens: reached[tokens], limit, falls) == expected
        rows = np.array([reached, [0] * (limit + 1)])
        found = followed(
            lambda tokens: np.take_along_axis(rows, np.broadcast_to(tokens, (2, 1)), 1), limit, falls
        )
        assert found.tolist() == [[expected], [0]]


def test_a_formula_on_an_array_is_the_formula(catalog: Catalog) -> None:
    engine = catalog.engine("vllm")
    draw = random.Random(3)  # noqa: S311
    lengths = np.array([0, 1, 64, 8192, 16_383, 16_384, 65_536, 1 << 20])
    for name in (VIDEOS, INDEXED, STAGED, "deepseek-ai/DeepSeek-V4.1-Flash", "Qwen/Qwen2.5-7B"):
        rates = read_rates(catalog.model(name), engine, Told(tensor_parallel=draw.choice([1, 8])))
        sizes = draw.choice([2048, 8192]), draw.choice([1, 256, 1024])
        flags = [draw.random() < 0.5 for _ in kernel.ReserveStep._fields[3:]]
        many = kernel.ReserveStep(*sizes, lengths, *flags)
        steps = [many._replace(context=int(one)) for one in lengths]
        plain = [kernel.activation_bytes(rates, one) for one in steps]
        assert xp.on_arrays(kernel.activation_bytes)(rates, many).tolist() == plain
        scored = [kernel.scored_bytes(rates, one) for one in steps]
        assert xp.on_arrays(kernel.scored_bytes)(rates, many).tolist() == scored
        assert np.broadcast_to(xp.on_arrays(kernel.open_bytes)(rates, many), lengths.shape).tolist() == [
            kernel.open_bytes(rates, one) for one in steps
        ]
        whole = [kernel.following_bytes(rates, one) for one in steps]
        assert whole == [one + (0 if many.eager else other) for one, other in zip(plain, scored, strict=True)]
        assert (len(set(whole)) > 1) <= kernel.follows_length(rates)
        # An indexer that gathers keys of fewer contexts beyond a length keeps less there than just before it.
        assert plain == sorted(plain)
