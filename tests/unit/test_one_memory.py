"""What device and computer hold together: one memory on unified machines, main memory next to cards."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from fuzzing import examples

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_architectures import LocalArchitectures
from kvreport.cli import main
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_case import HOST_MEMORY, LocalCase
from kvreport.estimation.home_estimate import open_query
from kvreport.estimation.home_size import size_home
from kvreport.query import Query

GIB = 1 << 30
RUNS = ("fits", "tight")
DRAWN = 24


def machines(catalog: Catalog) -> list[Accelerator]:
    """Every accelerator and machine at home."""
    return [*catalog.accelerators.values(), *catalog.home_accelerators.values()]


def models(catalog: Catalog) -> list[str]:
    """Every model that llama.cpp converts."""
    known = LocalArchitectures.need().by_class
    return [one.id for one in catalog.models.values() if one.architecture in known]


def ask(model: str, gpu: str, catalog: Catalog, engine: str = "llama-cpp", **options: Any) -> LocalEstimate:
    found = estimate(model, gpu=gpu, engine=engine, catalog=catalog, **options)
    assert isinstance(found, LocalEstimate)
    return found


def case_of(model: str, gpu: str, catalog: Catalog, engine: str, mix: str, **options: Any) -> LocalCase:
    record = catalog.engine(engine)
    query = Query(
        model=model, gpu=gpu, engine=record, weights=mix, parallel=1, context_tokens=2048, **options
    )
    return open_query(query, record, catalog)


def all_memory(case: LocalCase, machine: Accelerator) -> int:
    """Bytes that a machine has for weights in all: its one memory, or the device's and the computer's."""
    return machine.shared_bytes or machine.usable_bytes + (case.host_memory or 0)


def placements(case: LocalCase) -> list[LocalLayout]:
    """Layouts with everything on the device, and with parts of it on the host."""
    layers = len(case.local.network.blocks)
    plain = case.options
    options = [plain, replace(plain, gpu_layers=layers // 2), replace(plain, gpu_layers=0)]
    options += [replace(plain, cpu_moe=layers), replace(plain, kv_offload=False)]
    return [replace(case, options=one).lay_out() for one in options]


def test_nothing_fits_whose_weights_exceed_all_memory(catalog: Catalog) -> None:
    """Drawn from all machines, models, local engines and mixes; no placement of layers makes it fit."""
    draw, excess = random.Random(44), 0  # noqa: S311 - a drawn sample
    known, converted = machines(catalog), models(catalog)
    for number in range(DRAWN):
        # By their names: a new model or machine hardly moves the draw.
        machine = min(known, key=lambda one: crc32(f"{number} {one.id}".encode()))
        model = min(converted, key=lambda one: crc32(f"{number} {getattr(one, 'id', one)}".encode()))
        engine, mix = draw.choice(["llama-cpp", "ollama"]), draw.choice(["q4_k_m", "bf16", "q2_k"])
        case = case_of(model, machine.id, catalog, engine, mix)
        weights = sum(tensor.nbytes for tensor in case.local.tensors)
        if weights <= all_memory(case, machine):
            continue
        excess += 1
        for layout in placements(case):
            assert not layout.fits, (machine.id, case.request.model.id, case.mix)
            assert layout.shortfall > 0
    assert excess > DRAWN // 8


@pytest.mark.parametrize(
    ("model", "gpu", "mix"),
    [
        ("moonshotai/Kimi-K2.6", "m1-8", "q4_k_m"),
        ("moonshotai/Kimi-K2.6", "m3-ultra-512", "q4_k_m"),
        ("Qwen/Qwen3.5-122B-A10B", "m4-16", "q4_k_m"),
        ("Qwen/Qwen3.5-122B-A10B", "dgx-spark-gb10", "bf16"),
        ("moonshotai/Kimi-K2.6", "rtx-3060-12gb", "q4_k_m"),
    ],
)
def test_size_offers_no_machine_that_is_too_small(model: str, gpu: str, mix: str) -> None:
    """Neither with layers nor with experts in the same memory; the error says by how much the nearest is short."""
    with pytest.raises(InputError, match=rf"the nearest is {gpu}, short by [\d.,]+ GiB"):
        size_home([model], context=8192, slots=1, engine="llama-cpp", gpus=[gpu], weights=[mix])


def test_experts_in_the_same_memory_are_no_gain(catalog: Catalog) -> None:
    """68.7 GiB of weights do not fit a Mac with 48 GB, wherever their experts lie, and no flag of that kind is offered."""
    asked: dict[str, Any] = {"weights": "q4_k_m", "context_tokens": 8192}
    for flags in ({}, {"n_cpu_moe": 24}, {"n_gpu_layers": 20}):
        found = ask("Qwen/Qwen3.5-122B-A10B", "m4-pro-48", catalog, **asked, **flags)
        assert found.verdict == "weights_exceed_memory"
        assert found.max_concurrent_requests == 0
        assert found.max_concurrent_requests_by_memory == 0
        assert not any("n-cpu-moe" in text or "n-gpu-layers" in text for text in found.advice)
        assert found.inverse().n_cpu_moe is None
        assert found.shortfall_bytes > 30 * GIB


@pytest.mark.parametrize("gpu", ["m4-max-64", "dgx-spark-gb10", "jetson-agx-orin-32gb"])
@pytest.mark.parametrize("model", ["Qwen/Qwen3-30B-A3B", "google/gemma-3-12b-it"])
def test_layers_on_the_cpu_change_no_sum_in_one_memory(catalog: Catalog, gpu: str, model: str) -> None:
    """Weights, caches and states of device and host add up to the same for every number of layers."""
    case = case_of(model, gpu, catalog, "llama-cpp", "q4_k_m")
    sums = set()
    for layers in (0, 1, 7, 20, len(case.local.network.blocks) + 1):
        layout = case.lay_out(gpu_layers=layers)
        device, host = layout.devices[0], layout.host
        sums.add(
            device.weights + device.kv + device.state + host.weights - host.repeated + host.kv + host.state
        )
        assert device.free == device.room - device.total
        assert device.beside == host.total - host.repeated
    assert len(sums) == 1


@pytest.mark.parametrize(
    ("gpu", "share", "offload"),
    [("dgx-spark-gb10", 0.5, "100GiB"), ("dgx-spark-gb10", None, "200GiB"), ("jetson-agx-orin-64gb", None, "60GiB")],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_offloaded_blocks_lie_in_the_same_memory(
    gpu: str, share: float | None, offload: str, engine: str
) -> None:
    """What the engine takes and what it offloads fit together in one memory; next to cards, the host has its own."""
    asked: dict[str, Any] = {"context_tokens": 8192, "kv_offload": offload}
    asked |= {"engine": engine, "utilization": share}
    with pytest.raises(InputError, match=r"kv-offload: found .* whose one memory of .* allowed: at most"):
        estimate("Qwen/Qwen3-8B", gpu=gpu, **asked)
    assert estimate("Qwen/Qwen3-8B", gpu="h100-sxm-80gb", **asked).verdict == "fits"


def test_offloaded_blocks_of_two_machines_are_divided() -> None:
    asked: dict[str, Any] = {"context_tokens": 8192, "utilization": 0.5}
    asked |= {"gpu": "dgx-spark-gb10"}
    assert estimate("Qwen/Qwen3-8B", **asked, tensor_parallel=2, kv_offload="100GiB").verdict == "fits"
    with pytest.raises(InputError, match="found 61 GiB for DGX Spark"):
        estimate("Qwen/Qwen3-8B", **asked, tensor_parallel=2, kv_offload="122GiB")


def test_the_headline_says_that_a_prompt_cache_outgrows_the_machine(catalog: Catalog) -> None:
    """64 GiB of ``--cache-ram`` on 48 GB: it starts, and what was asked for does not fit as the server runs."""
    asked: dict[str, Any] = {"weights": "q8_0", "context_tokens": 8192, "parallel": 1}
    model, gpu = "Qwen/Qwen3-Coder-30B-A3B-Instruct", "m4-max-48"
    found = ask(model, gpu, catalog, **asked, cache_ram="64GiB")
    assert "but only at start: the prompt cache (--cache-ram)" in headline(found)
    assert "may grow to 64 GiB, and 5.84 GiB are left" in headline(found)
    assert found.verdict == "tight"
    assert "uncertainty" not in found.explanation[-1]
    small = ask(model, gpu, catalog, **asked, cache_ram="1GiB")
    assert "only at start" not in headline(small)
    assert small.verdict == "fits"


def test_the_processors_half_of_strix_halo_is_used(catalog: Catalog) -> None:
    """Its memory is divided by a setting: experts may lie in the other half, and both halves are bounded together."""
    asked: dict[str, Any] = {"weights": "q4_k_m", "context_tokens": 8192}
    found = ask("Qwen/Qwen3.5-122B-A10B", "ryzen-ai-max-395", catalog, **asked)
    assert any(text.startswith("--n-cpu-moe") for text in found.advice)
    half = ask("Qwen/Qwen3.5-122B-A10B", "ryzen-ai-max-395", catalog, **asked, n_cpu_moe=24)
    assert half.verdict in RUNS
    assert "in the memory that it shares with the processor" in headline(half)
    assert any("(--memory states another split)" in text for text in half.request.assumptions)
    whole = ask(
        "Qwen/Qwen3.5-122B-A10B",
        "ryzen-ai-max-395",
        catalog,
        weights="q8_0",
        context_tokens=8192,
        n_cpu_moe=24,
    )
    assert whole.verdict == "weights_exceed_memory"
    assert "GiB that they share" in whole.too_large


def test_main_memory_of_a_card_is_assumed_and_said(catalog: Catalog) -> None:
    """64 GiB where nobody states it: in the headline, the assumptions and JSON; more is refused with what is missing."""
    asked: dict[str, Any] = {"weights": "q4_k_m", "context_tokens": 8192, "cpu_moe": True}
    found = ask("Qwen/Qwen3-30B-A3B", "rtx-4090", catalog, **asked)
    assert "with 64 GiB of main memory (assumed, " in headline(found)
    assert any(text.startswith("64 GiB of main memory") for text in found.request.assumptions)
    host = found.to_dict()["host_bytes"]
    assert host["usable"] == HOST_MEMORY
    assert host["total"] == found.local.host.total <= HOST_MEMORY
    stated = ask("Qwen/Qwen3-30B-A3B", "rtx-4090", catalog, **asked, host_memory="32GiB")
    assert "with 32 GiB of main memory (" in headline(stated)
    assert not any("main memory" in text for text in stated.request.assumptions)
    large = ask("Qwen/Qwen3-235B-A22B", "rtx-4090", catalog, **asked)
    assert large.verdict == "weights_exceed_memory"
    assert large.shortfall_bytes == large.local.host.total - HOST_MEMORY
    flag = next(text for text in large.advice if text.startswith("--host-memory"))
    enough = ask("Qwen/Qwen3-235B-A22B", "rtx-4090", catalog, **asked, host_memory=flag.split()[1])
    assert enough.verdict in RUNS
    less = f"{int(flag.split()[1].removesuffix('GiB')) - 1}GiB"
    assert ask("Qwen/Qwen3-235B-A22B", "rtx-4090", catalog, **asked, host_memory=less).verdict not in RUNS


def test_more_main_memory_never_serves_less(catalog: Catalog) -> None:
    """Requests, contexts and what ``size`` finds rise with the computer's memory, on cards and unified machines."""
    draw = random.Random(7)  # noqa: S311 - a drawn sample
    for _ in range(examples(2)):
        gpu = draw.choice(["rtx-3060-12gb", "rtx-4090", "ryzen-ai-max-395", "m4-max-64"])
        model = draw.choice(["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-32B", "openai/gpt-oss-120b"])
        engine = draw.choice(["llama-cpp", "ollama"])
        flags: dict[str, Any] = draw.choice([{}, {"n_gpu_layers": 20}, {"cpu_moe": True}])
        served, lengths = [], []
        for size in (4, 20, 128):
            found = ask(
                model,
                gpu,
                catalog,
                engine,
                host_memory=f"{size}GiB",
                weights="q4_k_m",
                context_tokens=8192,
                **flags,
            )
            served.append(found.max_concurrent_requests_by_memory)
            lengths.append(found.max_context_tokens)
        assert served == sorted(served), (gpu, model, engine, flags)
        assert lengths == sorted(lengths), (gpu, model, engine, flags)


def test_size_prints_main_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has its column, what is assumed stands below, and ``--host-memory`` is followed or refused."""
    asked = ["size", "Qwen/Qwen3-30B-A3B", "--gpu", "rtx-3060-12gb", "--context", "8K", "--concurrent", "1"]
    assert main([*asked, "--engine", "llama-cpp", "--weights", "q8_0"]) == 0
    out = capsys.readouterr().out
    assert "main memory (GiB)" in out
    assert "assumed: 64 GiB of main memory" in out
    assert main([*asked, "--engine", "llama-cpp", "--weights", "q8_0", "--host-memory", "16GiB"]) == 2
    assert "fits none" in capsys.readouterr().err
    assert main([*asked, "--host-memory", "16GiB"]) == 2
    assert "host-memory" in capsys.readouterr().err


def test_part_of_the_layers_on_the_gpu_is_not_called_a_fit(catalog: Catalog) -> None:
    """The verdict stays that of the whole machine; the headline says how many layers are on the GPU."""
    found = ask("qwen3-32b", "rtx-4090", catalog, "ollama", weights="bf16", context_tokens=32768)
    layers = found.local.layers_on_device
    assert 0 < layers < found.local.layers == 65
    assert f"1 request at 32K runs with {layers} of 65 layers on the GPU" in headline(found)
    assert "fits" not in headline(found)
    assert found.verdict in RUNS


def test_ollama_runs_what_its_name_pulls(catalog: Catalog) -> None:
    """Without a format it is the library's, not the checkpoint's; a model that it lacks is Q4_K_M."""
    found = ask("qwen3-32b", "rtx-4090", catalog, "ollama", context_tokens=32768)
    named = ask("qwen3:32b", "rtx-4090", catalog, "ollama", context_tokens=32768)
    assert found.case.mix == named.case.mix == "q4_k_m"
    assert found.local == named.local
    assert "what 'ollama run qwen3:32b' pulls" in found.formats
    assert any("ollama run qwen3:32b" in text for text in found.request.assumptions)
    assert ask("llama3.2:1b", "rtx-4090", catalog, "ollama").case.mix == "q8_0"
    assert ask("meta-llama/Llama-3.2-1B-Instruct", "rtx-4090", catalog, "ollama").case.mix == "q8_0"


def test_what_fits_is_answered_for_the_flags_as_given(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--fit`` ran, so no line says that it would change nothing, nor that more bits fit than it moved layers for."""
    found = ask("qwen3-32b", "rtx-4090", catalog, "ollama", weights="bf16", context_tokens=32768)
    inverse = found.inverse()
    assert inverse.fit.changed == (f"--n-gpu-layers {found.local.layers_on_device}",)
    assert inverse.best_weights not in ("bf16", None)
    assert main(["estimate", "qwen3-32b", "--gpu", "rtx-4090", "--engine", "ollama", "--context", "32K"]) == 0
    out = capsys.readouterr().out
    assert "--fit chose: --n-gpu-layers" in out
    assert "would change nothing" not in out
    assert "Ollama fb30760" in out.splitlines()[1]


@pytest.mark.parametrize(
    ("model", "times"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", 15.6),
        ("moonshotai/Kimi-K3", 1.14),
        ("Qwen/Qwen3.8-Flash-Next", 1.88),
    ],
)
def test_buffers_that_the_check_does_not_confirm_are_said(catalog: Catalog, model: str, times: float) -> None:
    """Where the real planner disagrees, the answer says by how much, and its band is as wide."""
    case = case_of(model, "b300", catalog, "llama-cpp", "q4_k_m")
    assert case.compute_factor == pytest.approx(times, rel=0.01)
    assert f"may be up to {times:.1f} times larger" in case.confirmation


def test_an_unconfirmed_buffer_makes_a_start_tight(catalog: Catalog) -> None:
    """65.5 GiB were reported at 1M tokens where ours is 4.2: a start with 9 GiB to spare is not sure."""
    found = ask(
        "deepseek-ai/DeepSeek-V4-Flash", "b200", catalog, weights="q4_k_m", context_tokens="1M", parallel=1
    )
    assert found.verdict == "tight"
    assert found.budget.uncertainty_bytes > 50 * GIB
    assert any("65.5 GiB at 1M were reported" in text for text in found.request.assumptions)
    plain = case_of("Qwen/Qwen3-32B", "rtx-4090", catalog, "llama-cpp", "q4_k_m")
    assert plain.compute_factor == 1
    assert plain.confirmation == ""


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "options"),
    [
        ("codellama/CodeLlama-13b-hf", "ascend-950dt", "ollama", {"context_tokens": 21649}),
        ("meta-llama/Llama-2-13b-hf", "tpu-v5e", "llama-cpp", {"context_tokens": 905173, "parallel": 1}),
        ("Qwen/Qwen3-32B", "rtx-4090", "llama-cpp", {"context_tokens": 8192, "parallel": 4}),
        (
            "Qwen/Qwen3-30B-A3B",
            "rtx-3060-12gb",
            "llama-cpp",
            {"context_tokens": 8192, "cpu_moe": True, "host_memory": "8GiB"},
        ),
        ("Qwen/Qwen3-8B", "rtx-3060-12gb", "llama-cpp", {"context_tokens": 8192, "n_gpu_layers": 0}),
    ],
)
def test_the_table_says_what_the_answer_says(
    catalog: Catalog, model: str, gpu: str, engine: str, options: dict[str, Any]
) -> None:
    """The line of the context that was asked has the answer's verdict, requests and missing bytes."""
    found = ask(model, gpu, catalog, engine, weights="q4_k_m", **options)
    row = next(one for one in found.by_context if one.context_tokens == found.request.context_tokens)
    assert row.verdict == found.verdict
    assert row.max_concurrent_requests == found.max_concurrent_requests
    assert row.max_concurrent_requests_by_memory == found.max_concurrent_requests_by_memory
    assert row.shortfall_bytes == found.shortfall_bytes
    for one in found.by_context:
        assert one.max_concurrent_requests_by_memory <= one.max_concurrent_requests_ceiling


@pytest.mark.parametrize("gpu", ["m5-32", "ryzen-ai-max-395-64", "rtx-4090"])
def test_bytes_of_a_device_add_up_to_what_is_missing(catalog: Catalog, gpu: str) -> None:
    """On a Mac 14,118,094,880 of 14,699,334,720 missing bytes were told by used and total; the host's part was not."""
    asked: dict[str, Any] = {
        "weights": "q4_k_m",
        "context_tokens": 131_072,
        "parallel": 8,
        "n_gpu_layers": 999,
    }
    facts = ask("meta-llama/Llama-3.1-8B-Instruct", gpu, catalog, **asked).to_dict()
    (device,), host = facts["per_rank"]["gpus"], facts["host_bytes"]
    assert device["shortfall_bytes"] == device["used_bytes"] - device["room_bytes"] > 0
    part = device["total_bytes"] - device["room_bytes"]
    assert 0 <= part <= host["total"]
    assert (part > 0) == (gpu == "m5-32")  # the processor has a half of its own, or its own memory


@pytest.mark.parametrize("host", ["1GiB", "600GiB"])
@pytest.mark.parametrize("gpu", ["m5-24", "ryzen-ai-max-395"])
def test_one_memory_is_said_whatever_main_memory_is_stated(catalog: Catalog, gpu: str, host: str) -> None:
    """``--host-memory 600GiB`` changed no byte of a Mac's answer, and took the line away that says why."""
    plain, stated = (
        ask("Qwen/Qwen3-8B", gpu, catalog, weights="q4_k_m", **more) for more in ({}, {"host_memory": host})
    )
    (said,) = (one for one in plain.request.assumptions if "together fit" in one)
    assert said in stated.request.assumptions


@pytest.mark.parametrize(("gpus", "more"), [("m*", False), ("rtx-30*", True)])
def test_main_memory_is_offered_where_it_is_not_the_gpu_s(gpus: str, more: bool) -> None:
    """It was offered for Macs, too, whose one memory no ``--host-memory`` makes larger."""
    with pytest.raises(InputError, match="fits none of the machines") as refused:
        size_home("moonshotai/Kimi-K2.6", context=8192, gpus=gpus, weights="q4_k_m")
    assert ("--host-memory" in str(refused.value)) == more
