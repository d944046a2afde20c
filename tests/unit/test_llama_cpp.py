"""llama.cpp's memory, held against dry runs of the real build and against published logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvreport.accounting.engines.llama_cpp.fit import fit
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.quantize import mix_name
from kvreport.accounting.engines.llama_cpp.reading import LocalModel
from kvreport.accounting.engines.llama_cpp.search import fewest_cpu_experts, longest_context, most_slots
from kvreport.catalog.llama_cpp import load_ollama_names
from kvreport.catalog.load import Catalogue, load_catalogue
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.local import open_local
from kvreport.estimation.local_answer import LocalEstimate

MIB = 1 << 20
PRINTED = 0.006
"""llama.cpp prints hundredths of a MiB."""


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def read(catalogue: Catalogue, name: str, mix: str = "q4_k_m") -> LocalModel:
    return open_local(catalogue.model(name), mix, None)[0]


def options_of(row: Mapping[str, Any]) -> LocalOptions:
    return LocalOptions(
        context=row["ctx"],
        parallel=row["np"],
        unified=row.get("unified", False),
        type_k=row.get("k", "f16"),
        type_v=row.get("v", "f16"),
        batch=row.get("b", 2048),
        ubatch=row.get("ub", 512),
        flash=row.get("fa", "auto"),
        swa_full=row.get("swa", False),
        gpu_layers=row.get("ngl"),
        cpu_moe=row.get("cpu_moe", 0),
        tensor_split=tuple(row.get("split", ())),
        kv_offload=row.get("kv_offload", True),
        # The devices of these runs leave operations on host weights to the host.
        op_offload=False,
        outputs=row.get("out", 0),
        draft=row.get("draft", 0),
        embeddings=row.get("embd", False),
    )


def devices(count: int, usable: int = 1 << 40) -> list[LocalDevice]:
    return [LocalDevice(f"device{n}", usable, align=32, pipelines=True) for n in range(count)]


def test_dry_runs_of_the_real_build(catalogue: Catalogue, repository: Path) -> None:
    """Caches, states and output buffers to the printed digit; compute buffers likewise in nearly all runs."""
    runs = json.loads((repository / "data/llama_cpp/runs.json").read_text())["rows"]
    known: dict[str, LocalModel] = {}
    hosts = parts = exact_hosts = close_parts = 0
    for name, count, asked, kv, state, output, host, compute in runs[::4]:
        local = known.setdefault(name, read(catalogue, name))
        if kv is None:
            with pytest.raises(InputError):
                lay_out_local(local, options_of(asked), devices(count))
            continue
        layout = lay_out_local(local, options_of(asked), devices(count))
        where = (name, asked)
        assert abs(layout.kv_cache_bytes / MIB - kv - state) < 2 * PRINTED, where
        assert abs(layout.host.output / MIB - output) < PRINTED, where
        hosts += 1
        exact_hosts += abs(layout.host.compute / MIB - host) < 2 * PRINTED
        for device, printed in zip(layout.devices, compute, strict=False):
            parts += 1
            close_parts += abs(device.compute / MIB - printed) <= 0.005 * printed + PRINTED
    assert hosts > 150
    assert parts > 80
    assert exact_hosts >= 0.98 * hosts
    assert close_parts >= 0.98 * parts


@pytest.mark.parametrize(
    ("name", "mix", "printed"),
    [
        # Public logs: all model buffers of a start, in MiB.
        ("Qwen/Qwen3-30B-A3B", "q4_k_m", 166.92 + 17524.42),
        ("deepseek-ai/DeepSeek-R1", "q8_0", 680237.97),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "q8_0", 8137.64),
        ("Qwen/Qwen3-235B-A22B", "q8_0", 196001.25 + 630.59 + 41723.89),
    ],
)
def test_weights_of_published_files(catalogue: Catalogue, name: str, mix: str, printed: float) -> None:
    """The quantizer's rule gives the bytes of files that people published."""
    local = read(catalogue, name, mix)
    assert abs(sum(tensor.nbytes for tensor in local.tensors) / MIB - printed) < 0.02


def test_totals_of_public_logs(catalogue: Catalogue) -> None:
    """What starts printed: weights, caches, states, buffers, each where it was."""
    rtx3090 = [LocalDevice("Vulkan0", 23594 * MIB, offloads=False)]
    layout = lay_out_local(
        read(catalogue, "Qwen/Qwen3-30B-A3B"), LocalOptions(context=8192, ubatch=2048, parallel=1), rtx3090
    )
    assert printed(layout) == pytest.approx((17524.42, 768.0, 368.04, 166.92, 64.05), abs=0.01)
    strix = [LocalDevice("ROCm0", 110456 * MIB)]
    layout = lay_out_local(
        read(catalogue, "Qwen/Qwen3.6-27B", "q8_0"), LocalOptions(context=262144, parallel=1, draft=6), strix
    )
    assert layout.host.weights / MIB == pytest.approx(1288.28, abs=0.01)
    assert layout.devices[0].kv / MIB == 16384
    assert layout.devices[0].state / MIB == pytest.approx(1047.38, abs=0.01)
    slots = LocalOptions(context=135168, parallel=4, unified=True)
    layout = lay_out_local(read(catalogue, "Qwen/Qwen3.5-9B"), slots, strix)
    assert layout.devices[0].kv / MIB == 4224
    assert layout.devices[0].state / MIB == 201
    layout = lay_out_local(read(catalogue, "Qwen/Qwen3.5-35B-A3B"), LocalOptions(context=8192), strix)
    assert layout.devices[0].state / MIB == 251.25


def printed(layout: LocalLayout) -> tuple[float, ...]:
    device, host = layout.devices[0], layout.host
    sizes = (device.weights, device.kv, device.compute, host.weights, host.compute)
    return tuple(size / MIB for size in sizes)


def test_copies_of_host_weights_grow_the_device_buffer(catalogue: Catalogue) -> None:
    """A device that computes on weights in host memory holds copies of them: a step, not a slope."""
    local = read(catalogue, "deepseek-ai/DeepSeek-V2-Lite", "q4_0")
    cuda = [LocalDevice("CUDA0", 1 << 40)]
    few, many = (
        lay_out_local(local, LocalOptions(context=4096, parallel=1, cpu_moe=count), cuda)
        for count in (13, 20)
    )
    grown = few.devices[0].offload_copies / MIB
    # A public log of such a model: 76.13 MiB without, 151.51 MiB with experts of 13 layers on the CPU.
    assert grown == pytest.approx(75.38, abs=5)
    assert many.devices[0].offload_copies == few.devices[0].offload_copies
    off = LocalOptions(context=4096, parallel=1, cpu_moe=13, op_offload=False)
    assert lay_out_local(local, off, cuda).devices[0].offload_copies == 0


def test_a_tied_matrix_is_loaded_twice(catalogue: Catalogue) -> None:
    """Gemma's embedding is on the CPU and, as the output matrix, on the device."""
    local = read(catalogue, "google/gemma-3-12b-it")
    table = next(tensor for tensor in local.tensors if tensor.role == "token_embd")
    layout = lay_out_local(local, LocalOptions(context=4096), devices(1))
    assert layout.host.weights == table.nbytes
    assert layout.devices[0].weights == sum(tensor.nbytes for tensor in local.tensors)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LocalOptions(type_v="q8_0", flash="off"), "--flash-attn on"),
        (LocalOptions(type_k="q7_0"), "q8_0"),
        (LocalOptions(parallel=0), "1 or more"),
        (LocalOptions(ubatch=0), "1 or more"),
    ],
)
def test_refusals(catalogue: Catalogue, options: LocalOptions, words: str) -> None:
    """Bad options are one line with what works."""
    with pytest.raises(InputError, match=words):
        lay_out_local(read(catalogue, "Qwen/Qwen3-0.6B"), replace(options, context=4096), devices(1))


def test_latent_attention_wants_one_cache_type(catalogue: Catalogue) -> None:
    """Keys and values of latent attention are one cache."""
    local = read(catalogue, "deepseek-ai/DeepSeek-V2-Lite")
    with pytest.raises(InputError, match="--cache-type-v q8_0"):
        lay_out_local(local, LocalOptions(context=4096, type_k="q8_0"), devices(1))


def test_inverse_answers(catalogue: Catalogue) -> None:
    """The longest context fits and the next one does not; so do slots and experts on the CPU."""
    local = read(catalogue, "Qwen/Qwen3-30B-A3B")
    card = [LocalDevice("card", 20 << 30)]
    one = LocalOptions(parallel=1)
    context = longest_context(local, one, card)
    assert lay_out_local(local, replace(one, context=context), card).fits
    assert not lay_out_local(local, replace(one, context=context + 256), card).fits
    slots = most_slots(local, one, card, 4096)
    assert slots * 4096 <= context < (slots + 1) * 4096
    small = [LocalDevice("small", 12 << 30)]
    asked = replace(one, context=8192)
    layers = fewest_cpu_experts(local, asked, small)
    assert layers is not None
    assert lay_out_local(local, replace(asked, cpu_moe=layers), small).fits
    assert not lay_out_local(local, replace(asked, cpu_moe=layers - 1), small).fits


def test_fit_leaves_its_target_free(catalogue: Catalogue) -> None:
    """``--fit`` lowers the context first, then moves experts to the CPU, and leaves 1 GiB."""
    local = read(catalogue, "Qwen/Qwen3-30B-A3B")
    card = [LocalDevice("card", 12 << 30)]
    fitted = fit(local, LocalOptions(parallel=1), card, context_given=False)
    assert fitted.changed[0] == "--ctx-size 4096"
    assert fitted.changed[1] == "--n-gpu-layers 49"
    assert "ffn_(up|down|gate_up|gate)_(ch|)exps=CPU" in fitted.changed[2]
    device = fitted.layout.devices[0]
    assert device.usable - device.total >= 1 << 30


def test_estimate_answers_for_devices_and_host(catalogue: Catalogue) -> None:
    """The command line's object has the keys of the contract, and the buffers of a public log."""
    answer = estimate(
        "Qwen/Qwen3-30B-A3B",
        gpu="rtx-3090",
        engine="llama-cpp",
        context_tokens=8192,
        weights="q4_k_m",
        parallel=1,
        ubatch_size=2048,
        catalog=catalogue,
    )
    assert isinstance(answer, LocalEstimate)
    found = answer.to_dict()
    assert found["kv_cache_bytes"] == 768 * MIB
    assert found["budget"]["activations"] / MIB == pytest.approx(368.04, abs=0.01)
    assert found["host_bytes"]["compute"] / MIB == pytest.approx(64.05, abs=0.01)
    assert found["host_bytes"]["weights"] / MIB == pytest.approx(166.92, abs=0.01)
    assert found["per_rank"]["gpus"][0]["weight_bytes"] / MIB == pytest.approx(17524.42, abs=0.01)
    assert found["verdict"] == "fits"
    assert json.loads(json.dumps(found)) == found


def test_ollama_has_defaults_of_its_own(catalogue: Catalogue) -> None:
    """One slot with a context by the memory of the card; slots are never unified."""
    ask = {"engine": "ollama", "weights": "q4_k_m", "catalog": catalogue}
    for gpu, context in (("rtx-3060-12gb", 4096), ("rtx-4090", 32768), ("h100-sxm-80gb", 262144)):
        answer = estimate("Qwen/Qwen3.5-9B", gpu=gpu, **ask).to_dict()
        assert answer["cells"]["context"] == context
        assert answer["cells"]["slots"] == 1
    two = estimate("Qwen/Qwen3.5-9B", gpu="rtx-4090", context_tokens=8192, parallel=2, **ask).to_dict()
    assert two["cells"] == {"context": 16384, "per_slot": 8192, "streams": 2, "window": 0, "slots": 2}


def test_unknown_class_is_refused(catalogue: Catalogue) -> None:
    """A class that llama.cpp does not convert is one sentence."""
    with pytest.raises(InputError, match="converts no"):
        estimate("EleutherAI/gpt-j-6b", gpu="rtx-4090", engine="llama-cpp", catalog=catalogue)


def test_ollama_names(catalogue: Catalogue) -> None:
    """A name of Ollama's library is a base model and a mix; a suffix names another mix."""
    for name, mix in (
        ("llama3.1:8b", "q4_k_m"),
        ("llama3.1:8b-instruct-q8_0", "q8_0"),
        ("llama3.1", "q4_k_m"),
    ):
        answer = estimate(name, gpu="rtx-4090", engine="ollama", catalog=catalogue).to_dict()
        assert answer["model"] == "meta-llama/Llama-3.1-8B-Instruct"
        assert answer["weight_format"] == mix


def test_every_ollama_name_is_in_the_catalogue(catalogue: Catalogue) -> None:
    """The table names models that can be answered for."""
    for found in load_ollama_names().names.values():
        assert catalogue.model(found.model).id == found.model
        assert mix_name(found.format)


def test_ollama_chooses_the_context_by_memory(catalogue: Catalogue) -> None:
    """Nobody stated ``num_ctx``: 32K from 23 GiB on, and the answer is about that context."""
    answer = estimate("llama3.1:8b", gpu="rtx-4090", engine="ollama", catalog=catalogue).to_dict()
    assert answer["context_tokens"] == 32768
    assert answer["kv_cache_bytes"] == 32768 * 131072
    assert answer["verdict"] == "fits"
