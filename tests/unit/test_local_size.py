"""Machines at home for a workload: which quantization fits, and what stays in host memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kvreport
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_size import size_home

MOE = "Qwen/Qwen3-30B-A3B"


def test_the_largest_mix_that_fits_is_found() -> None:
    """The mix fits and the next larger does not, as estimates of the same start say."""
    (one,) = size_home([MOE], context=32768, slots=2, engine="llama-cpp", gpus=["rtx-4090"])[:1]
    assert one.whole
    assert one.command == "llama-server -m Qwen3-30B-A3B-IQ4_XS.gguf -c 65536 -np 2"
    for mix, fits in (("iq4_xs", True), ("q4_k_m", False)):
        answer = estimate(
            MOE, gpu="rtx-4090", engine="llama-cpp", weights=mix, parallel=2, context_tokens=32768
        )
        assert isinstance(answer, LocalEstimate)
        assert answer.local.fits is fits
    assert one.longest_context >= 32768


def test_a_mixture_keeps_experts_in_host_memory() -> None:
    """Where only mixes below Q4_K_M fit whole, the fewest layers with experts on the CPU are told, too."""
    found = size_home([MOE], context=32768, slots=1, engine="llama.cpp", gpus=["rtx-3060-12gb"])
    part = next(one for one in found if not one.whole)
    assert part.weights == "q4_k_m"
    assert part.remainder == f"--n-cpu-moe {part.options.cpu_moe}"
    assert part.layout.fits


def test_ollama_serves_one_slot_with_its_own_words() -> None:
    """A name of Ollama's library states the mix."""
    found = size_home(["llama3.1:8b"], context=8192, slots=1, engine="ollama", gpus=["m4-16", "m4-24"])
    assert [one.machine for one in found] == ["m4-16", "m4-24"]
    assert found[0].command == "OLLAMA_CONTEXT_LENGTH=8192 ollama serve & ollama run llama3.1:8b"


def test_what_fits_nowhere_is_one_line() -> None:
    """Not even the output layer fits beside the cache."""
    with pytest.raises(InputError, match="fits none of the machines"):
        size_home(
            ["meta-llama/Llama-3.1-8B-Instruct"],
            context=131072,
            slots=16,
            engine="llama-cpp",
            gpus=["gtx-1660-6gb"],
            weights=["bf16"],
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


def test_a_mixture_too_large_for_main_memory_is_tried_in_smaller_mixes() -> None:
    """Q4_K_M has no room in 12 and 64 GiB; a smaller mix with most experts on the CPU has."""
    (one,) = size_home("Qwen/Qwen3-235B-A22B", context="32K", gpus="rtx-3060-12gb")
    assert not one.whole
    assert one.weights == "iq2_xs"
    assert one.layout.fits


@pytest.mark.parametrize(
    ("machine", "slots"),
    [("rtx-3060-12gb", 8), ("m4-max-36", 8), ("rtx-3060-12gb", 64), ("ryzen-ai-max-395", 64)],
)
def test_what_is_short_is_never_nothing(machine: str, slots: int) -> None:
    with pytest.raises(InputError, match=r"short by [1-9][\d,]*\.\d\d GiB"):
        size_home("Qwen/Qwen3-235B-A22B", context="32K", slots=slots, gpus=machine)


@pytest.mark.parametrize("engine", ["llama-cpp", "ollama"])
def test_a_machine_at_home_is_not_sized_as_a_server(engine: str) -> None:
    """These engines keep one copy in a mix of their own: replicas of 16-bit weights are no answer."""
    with pytest.raises(InputError, match=r"found .*allowed: kvreport\.size_home"):
        kvreport.size("Qwen/Qwen3-8B", context="32K", concurrent=1, gpus=["m4-max-64"], engine=engine)
    with pytest.raises(InputError, match=r"allowed: llama-cpp, ollama"):
        size_home("Qwen/Qwen3-8B", context="32K", engine="vllm")


def test_ollama_is_sized_as_it_lays_a_model_out() -> None:
    """The sizer offered ``--n-cpu-moe 1`` and 0.57 GiB of main memory; ollama has no such flag, and its start takes 1.56 GiB."""
    asked: dict[str, Any] = {"engine": "ollama", "context": "32K"}
    small, usual = size_home(MOE, **asked, slots=2, gpus="rtx-4090")
    assert small.whole
    assert (usual.weights, usual.remainder) == ("q4_k_m", "4 layers with experts in main memory")
    for one in (small, usual):
        back = estimate(
            one.model, gpu="rtx-4090", engine="ollama", weights=one.weights, context_tokens=32768, parallel=2
        ).to_dict()
        told = one.to_dict()
        assert back["verdict"] in ("fits", "tight")
        assert told["host_bytes"] == back["host_bytes"]["total"], one
        assert told["n_cpu_moe"] == 0
        assert "n-cpu-moe" not in one.command
    (divided,) = size_home("Qwen/Qwen3-32B", **asked | {"context": "8K"}, gpus="rtx-3060-12gb")
    assert divided.remainder.endswith("of 65 layers on the GPU")
    # llama.cpp has the flag.
    flagged = size_home(MOE, context="32K", slots=2, gpus="rtx-4090")
    assert flagged[-1].remainder == "--n-cpu-moe 1"


def test_a_name_that_ollamas_library_is_not_known_to_have_says_how_it_is_made() -> None:
    asked: dict[str, Any] = {"engine": "ollama", "context": "32K", "slots": 2, "gpus": "rtx-4090"}
    small, usual = size_home(MOE, **asked)
    (said,) = (text for text in small.assumptions if "ollama create" in text)
    assert said.startswith("qwen3:30b-iq4_xs is made from a file, because Ollama's library is not known")
    assert "FROM ./Qwen3-30B-A3B-IQ4_XS.gguf" in said
    assert usual.command.endswith("ollama run qwen3:30b")
    assert not any("ollama create" in text for text in usual.assumptions)
    found = estimate("Qwen/Qwen3-8B", gpu="rtx-4090", engine="ollama", weights="iq4_xs", context_tokens=8192)
    assert any("ollama create qwen3:8b-iq4_xs" in text for text in found.request.assumptions)
