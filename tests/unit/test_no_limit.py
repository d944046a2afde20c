"""Models whose requests hold no cache: memory limits nothing, and the answers say so with nothing."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import kvreport
from kvreport.accounting.capacity import Verdict
from kvreport.catalog.consistency import is_pooling
from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.dataset.arrow import capacity_table, faults
from kvreport.dataset.columns import CAPACITY
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.errors import InputError
from kvreport.estimation.conclusion import headline, verdict_sentence
from kvreport.estimation.why_not import waterfall
from kvreport.publish.page_data import gather
from kvreport.site.pages.model import headline as page
from kvreport.site.pages.model.grids import users_table
from kvreport.units import gib

POOLING = "BAAI/bge-large-en"
COLUMNS = ("max_concurrent_requests_by_memory", "max_concurrent_requests_ceiling")


def test_json_has_null_where_memory_limits_nothing():
    found = kvreport.estimate(POOLING, gpu="h100-sxm-80gb").to_dict()
    assert found["max_concurrent_requests"] > 0
    rows = [found, *found["by_context"]]
    assert {row[name] for row in rows for name in COLUMNS} == {None}
    assert found["per_rank"]["max_concurrent_requests_by_memory"] is None


def test_rows_are_empty_where_memory_limits_nothing_and_nowhere_else():
    chosen = axes(open_catalog(), models=f"{POOLING},Qwen/Qwen3-8B", gpus="h100-sxm-80gb,l4")
    for cube in matrix(chosen):
        table = capacity_table(cube)
        assert not faults(table, CAPACITY)
        for name in COLUMNS:
            empty = table.column(name).null_count
            assert empty == (table.num_rows if cube.model.id == POOLING else 0)
        assert pc.max(table.column("max_concurrent_requests")).as_py() <= 1024


def test_sglang_answers_for_a_model_without_caches():
    found = kvreport.estimate(POOLING, gpu="h100-sxm-80gb", engine="sglang").to_dict()
    assert found["max_concurrent_requests_by_memory"] is None
    assert found["verdict"] == "fits"


BOTH_WAYS = "Alibaba-NLP/gte-Qwen2-7B-instruct"


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.11.0", "sglang"])
@pytest.mark.parametrize("gpu", ["a16", "t4", "l4", "rtx-4090", "rtx-3060", "h100-sxm-80gb"])
def test_a_model_without_a_cache_fits_where_weights_and_reserve_do(gpu: str, engine: str) -> None:
    # Its requests hold nothing, so the pool said nothing, and 16.4 GB were said to fit a GPU of 15.8 GB.
    try:
        found = kvreport.estimate(BOTH_WAYS, gpu=gpu, engine=engine, context_tokens=8192)
    except InputError:
        pytest.skip("the release does not take it here")
    budget = found.budget
    room = budget.total_bytes - budget.weights - budget.activations - budget.non_framework - budget.graphs
    if found.verdict in ("engine_does_not_run", "format_not_supported"):
        pytest.skip("refused for another reason")
    assert found.shortfall_bytes == max(-room, 0)
    if budget.weights > budget.total_bytes:
        assert found.verdict == "weights_exceed_memory"
    elif room + budget.uncertainty_bytes < 0:
        assert found.verdict == "cache_exceeds_pool"
    elif room < 0:
        assert found.verdict == "may_fit"
    elif room < budget.uncertainty_bytes:
        assert found.verdict == "tight"
    else:
        assert found.verdict == "fits"
    starts = found.verdict in ("fits", "tight")
    told = found.to_dict()
    assert (told["max_concurrent_requests"] > 0) == starts
    assert told["max_context_tokens"] == (131_072 if starts else 0)
    assert told["max_concurrent_requests_by_memory"] == (None if room >= 0 else 0)
    assert told["max_concurrent_requests_ceiling"] == (
        None if found.weight_bytes_per_gpu <= budget.total_bytes else 0
    )


def test_matrix_and_size_judge_a_model_without_a_cache_as_an_estimate_does():
    gpus = ("t4", "l4", "h100-sxm-80gb")
    chosen = axes(open_catalog(), models=BOTH_WAYS, gpus=",".join(gpus))
    (cube,) = matrix(chosen)
    seen = set()
    for g, gpu in enumerate(cube.gpus):
        for w, weights in enumerate(cube.weight_formats):
            if not cube.possible[g, 0, w, 0]:
                continue
            mine = kvreport.estimate(
                BOTH_WAYS, gpu=gpu, weights=None if weights == cube.model.weight_format else weights,
                context_tokens=cube.contexts[0],
            )  # fmt: skip
            theirs = {name: value[g, 0, w, 0, 0] for name, value in cube.values.items()}
            assert Verdict(theirs["verdict"]).label == mine.verdict, (gpu, weights)
            assert theirs["shortfall_bytes_per_gpu"] == mine.shortfall_bytes
            assert theirs["max_concurrent_requests"] == mine.max_concurrent_requests
            seen.add(mine.verdict)
    assert "fits" in seen
    assert len(seen) > 1  # on a T4, it hangs on the error of the estimate
    with pytest.raises(InputError, match="weights"):
        kvreport.size(BOTH_WAYS, gpus=["rtx-3060"], concurrent=8, context=8192, tensor_parallel=[1])
    most = kvreport.size(BOTH_WAYS, gpus=["l4"], concurrent=8, context=8192).ranking.deployments[0].users_held
    assert most > 1000


def test_the_words_of_a_model_without_a_cache_speak_of_weights_and_activations(capsys):
    step = 16_384  # with the default it hangs on the error of the estimate
    assert (
        main(["estimate", BOTH_WAYS, "--gpu", "t4", "--context", "8K", "--max-batched-tokens", str(step)])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("GTE Qwen2 7B does not fit on one Tesla T4")
    lacking = kvreport.estimate(BOTH_WAYS, gpu="t4", max_batched_tokens=step)
    assert f"weights and activations exceed the usable memory by {gib(lacking.shortfall_bytes)} GiB" in out
    assert "1,099,511,627,776" not in out
    fitting = kvreport.estimate(BOTH_WAYS, gpu="l4")
    assert verdict_sentence(fitting).startswith("fits: the model keeps no cache")
    needs = {term.term: term.size_bytes for term in waterfall(lacking)}
    assert needs["kv_pool"] == needs["short"] == -lacking.shortfall_bytes < 0


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.11.0", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("context", [256, 4096])
def test_no_answer_counts_requests_that_no_memory_limits(engine: str, context: int) -> None:
    """The first line says weights and activations, and that there is no cache."""
    models = [
        one.id for one in open_catalog().models.values() if all(not group.caches for group in one.layers)
    ]
    assert len(models) > 2
    for model in models:
        try:
            found = kvreport.estimate(model, gpu="h100-sxm-80gb", engine=engine, context_tokens=context)
        except InputError:
            continue
        first = headline(found)
        assert "1,099,511,627,776" not in first
        assert (
            found.verdict not in ("fits", "context_exceeds_model")
            or "has no KV cache" in first
            or first.startswith("No KV cache: ")
        )
        assert found.verdict != "fits" or f"{gib(found.weight_bytes_per_gpu)} GiB of weights" in first


@pytest.mark.parametrize("engine", ["vllm", "sglang", "sglang-0.5.20"])
def test_no_share_of_memory_is_offered_where_no_cache_takes_one(engine: str) -> None:
    found = kvreport.size(BOTH_WAYS, gpus=["h100-sxm-80gb"], context=512, concurrent=4, engine=engine)
    facts = found.describe(found.ranking.deployments[0])
    assert facts["smallest_utilization"] is None
    assert facts["mem_fraction_static"] is None


ENCODERS = sorted(one.id for one in open_catalog().models.values() if is_pooling(one))


@pytest.mark.parametrize("model", ENCODERS)
def test_an_encoder_is_answered_with_no_kv_cache(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the command and in JSON; the scheduler's own number is said to be that, and printed in no table."""
    asked = ["estimate", model, "--gpu", "h100-sxm-80gb"]
    assert main(asked) == 0
    first, _, out = capsys.readouterr().out.partition("\n")
    assert first.startswith("No KV cache: ")
    assert first.endswith("memory limits no number of requests")
    table = out.split("per GPU ")[0].splitlines()
    rows = [line for line in table if "no limit" in line or "no KV cache" in line]
    assert rows
    assert all("no KV cache" in line for line in rows if "context exceeds model" not in line)
    found = kvreport.estimate(model, gpu="h100-sxm-80gb").to_dict()
    assert found["max_concurrent_requests_by_memory"] is None
    assert found["verdict_reason"] == (
        f"No KV cache: memory limits no number of requests; {found['max_concurrent_requests']:,} is max-num-seqs alone"
    )


def test_encoders_say_no_kv_cache_on_their_pages_and_in_rows() -> None:
    assert len(ENCODERS) > 2
    site = gather(open_catalog(), models=",".join(ENCODERS), gpus="h100-sxm-80gb", version="test")
    for model in site.models:
        told = page.plain(page.headline(site, model, site.headline[model.id]))
        short = model.context_tokens < min(site.contexts)
        begun = f"{model.name} supports at most" if short else f"{model.name} has no KV cache. It fits on "
        assert told.startswith(begun), told
        assert "requests of" not in told
        best = site.headline[model.id]
        cells = [cell for row in users_table(site, model, best)[0].rows for cell in row.cells]
        assert short or "no KV cache" in {cell.text for cell in cells}
        assert not {"512", "1,024"} & {cell.text for cell in cells[1:]}
    for cube in matrix(axes(open_catalog(), models=",".join(ENCODERS), gpus="h100-sxm-80gb")):
        table = capacity_table(cube)
        assert table.column(COLUMNS[0]).null_count == table.num_rows
    meaning = next(one.meaning for one in CAPACITY.columns if one.name == "max_concurrent_requests")
    assert "For models without a KV cache, this is the limit of the scheduler" in meaning
