"""Unequal GPUs of one machine: every command answers, or names the one that does."""

from __future__ import annotations

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.dataset.grid import axes
from kvreport.errors import InputError
from kvreport.estimation.difference import Side, compare
from kvreport.estimation.local_size import size_local

CATALOG = open_catalog()
LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
PAIR = "rtx-5090+rtx-3090"


def test_llama_cpp_splits_a_model_over_unequal_cards() -> None:
    (both,) = size_local(
        [LLAMA], context=8192, slots=2, engine="llama-cpp", gpus=[PAIR], weights=["q4_k_m"], catalog=CATALOG
    )
    assert (both.whole, both.machine) == (True, PAIR)
    larger, smaller = both.layout.devices
    assert larger.weights > smaller.weights > 0  # cut in proportion to the free memory
    (alone,) = size_local(
        [LLAMA],
        context=8192,
        slots=2,
        engine="llama-cpp",
        gpus=["rtx-5090"],
        weights=["q4_k_m"],
        catalog=CATALOG,
    )
    assert not alone.whole


def test_cards_are_named_as_people_write_them() -> None:
    (two,) = size_local(
        [LLAMA],
        context=8192,
        slots=1,
        engine="llama-cpp",
        gpus=["2x4090"],
        weights=["q4_k_m"],
        catalog=CATALOG,
    )
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


def test_a_log_is_told_which_command_answers(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO GPU KV cache size: 452,000 tokens\n", encoding="utf-8")
    assert main(["log", str(log), "--gpu", PAIR]) == 2
    assert "kvreport size MODEL --gpu 'rtx-5090+rtx-3090'" in capsys.readouterr().err
