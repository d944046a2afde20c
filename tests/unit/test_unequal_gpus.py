"""Unequal GPUs of one machine: every command answers, or names the one that does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.dataset.grid import axes
from kvreport.errors import InputError
from kvreport.estimation.difference import Side, compare
from kvreport.estimation.home_size import HomeDeployment, size_home

CATALOG = open_catalog()
LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
PAIR = "rtx-5090+rtx-3090"


def at_home(gpu: str, slots: int) -> HomeDeployment:
    """The deployment of Llama 3.1 70B in q4_k_m on the cards named."""
    asked = {"engine": "llama-cpp", "weights": ["q4_k_m"]}
    (found,) = size_home([LLAMA], context=8192, slots=slots, gpus=[gpu], **asked)
    return found


def test_llama_cpp_splits_a_model_over_unequal_cards() -> None:
    both = at_home(PAIR, 2)
    assert (both.whole, both.machine) == (True, PAIR)
    larger, smaller = both.layout.devices
    assert larger.weights > smaller.weights > 0  # cut in proportion to the free memory
    assert not at_home("rtx-5090", 2).whole


def test_cards_are_named_as_people_write_them() -> None:
    two = at_home("2x4090", 1)
    assert two.machine == "rtx-4090*2"
    assert len(two.layout.devices) == 2


def test_a_difference_is_answered_on_them() -> None:
    sides = [Side(CATALOG, "meta-llama/Llama-3.1-8B-Instruct", name) for name in ("vllm-0.25", "vllm")]
    found = compare(*sides, PAIR, context_tokens=8192)
    assert (found.gpu, found.tensor_parallel) == (PAIR, 2)
    assert found.old
    assert found.new


def test_the_matrix_names_the_command_that_answers() -> None:
    with pytest.raises(
        InputError, match="a row of the matrix has one accelerator; kvreport size MODEL --gpu"
    ):
        axes(CATALOG, gpus=PAIR)


def test_a_log_of_them_is_judged_by_the_smaller_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        "INFO vLLM API server version 0.25.0\n"
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --gpu-memory-utilization 0.9\n"
        "INFO Available KV cache memory: 9.00 GiB\n",
        encoding="utf-8",
    )

    def pool(gpu: str) -> float:
        assert main(["log", str(log), "--gpu", gpu, "--format", "json"]) == 0
        compared = json.loads(capsys.readouterr().out)["comparisons"]
        return next(one["predicted"] for one in compared if one["fact"] == "kv_pool")

    assert pool(PAIR) == pool("rtx-3090") < pool("rtx-5090")
