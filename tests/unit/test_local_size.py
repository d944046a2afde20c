"""Machines at home for a workload: which quantization fits, and what stays in host memory."""

from __future__ import annotations

import json

import pytest

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_size import size_local

MOE = "Qwen/Qwen3-30B-A3B"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


def test_the_largest_mix_that_fits_is_found(catalog: Catalog) -> None:
    """The mix fits and the next larger does not, as estimates of the same start say."""
    (one,) = size_local(
        [MOE], context=32768, slots=2, engine="llama-cpp", gpus=["rtx-4090"], catalog=catalog
    )[:1]
    assert one.whole
    assert one.command == "llama-server -m Qwen3-30B-A3B-IQ4_XS.gguf -c 65536 -np 2"
    for mix, fits in (("iq4_xs", True), ("q4_k_m", False)):
        answer = estimate(
            MOE,
            gpu="rtx-4090",
            engine="llama-cpp",
            weights=mix,
            parallel=2,
            context_tokens=32768,
            catalog=catalog,
        )
        assert isinstance(answer, LocalEstimate)
        assert answer.local.fits is fits
    assert one.longest_context >= 32768


def test_a_mixture_keeps_experts_in_host_memory(catalog: Catalog) -> None:
    """Where only mixes below Q4_K_M fit whole, the fewest layers with experts on the CPU are told, too."""
    found = size_local(
        [MOE], context=32768, slots=1, engine="llama.cpp", gpus=["rtx-3060-12gb"], catalog=catalog
    )
    part = next(one for one in found if not one.whole)
    assert part.weights == "q4_k_m"
    assert part.remainder == f"--n-cpu-moe {part.options.cpu_moe}"
    assert part.layout.fits


def test_ollama_serves_one_slot_with_its_own_words(catalog: Catalog) -> None:
    """A name of Ollama's library states the mix."""
    found = size_local(
        ["llama3.1:8b"], context=8192, slots=1, engine="ollama", gpus=["m4-16", "m4-24"], catalog=catalog
    )
    assert [one.machine for one in found] == ["m4-16", "m4-24"]
    assert found[0].command == "OLLAMA_CONTEXT_LENGTH=8192 ollama serve & ollama run llama3.1:8b"


def test_what_fits_nowhere_is_one_line(catalog: Catalog) -> None:
    """Not even the output layer fits beside the cache."""
    with pytest.raises(InputError, match="fits none of the machines"):
        size_local(
            ["meta-llama/Llama-3.1-8B-Instruct"],
            context=131072,
            slots=16,
            engine="llama-cpp",
            gpus=["gtx-1660-6gb"],
            weights=["bf16"],
            catalog=catalog,
        )


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """``kvreport size --engine llama-cpp`` prints a table, or JSON."""
    ask = ["size", MOE, "--engine", "llama-cpp", "--gpu", "rtx-4090", "--context", "16K"]
    assert main(ask) == 0
    assert "longest context" in capsys.readouterr().out
    assert main([*ask, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["gpu"] == "rtx-4090"
    assert row["used_bytes"] <= row["usable_bytes"]
    assert main(["size", MOE, "--engine", "ik_llama.cpp", "--context", "16K"]) == 2
    assert "a fork of llama.cpp" in capsys.readouterr().err
