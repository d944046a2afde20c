"""llama.cpp's memory, held against dry runs of the real build and against published logs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fuzzing import thinned
from invariants import devices, options_of

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.llama_cpp import layout as layout_module
from kvreport.accounting.engines.llama_cpp.inventory import tensors_of
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, Setup, lay_out_local
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.network import Hyper, Ngram
from kvreport.accounting.engines.llama_cpp.network_reader import read_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions, for_build, parse_overrides
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.planner import scratch_bytes
from kvreport.accounting.engines.llama_cpp.quantize import mix_name
from kvreport.accounting.engines.llama_cpp.search import fewest_cpu_experts, fit, longest_context, most_slots
from kvreport.accounting.engines.llama_cpp.tensors import Tensor
from kvreport.accounting.engines.llama_cpp.types import TYPES
from kvreport.accounting.engines.ollama import automatic_batch
from kvreport.accounting.engines.step import EngineStep
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_architectures import LocalArchitectures, OllamaNames
from kvreport.catalog.local_logs import LocalLogs, Part
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_case import open_local
from kvreport.evidence.judged_local_logs import judge_log

MIB = 1 << 20
PRINTED = 0.006
"""llama.cpp prints hundredths of a MiB."""


def read(catalog: Catalog, name: str, mix: str = "q4_k_m") -> LocalModel:
    return open_local(catalog.model(name), mix, None)[0]


def test_dry_runs_of_the_real_build(catalog: Catalog, repository: Path) -> None:
    """Caches, states and output buffers to the printed digit; compute buffers likewise in nearly all runs."""
    runs = json.loads((repository / "data/llama_cpp/runs.json").read_text())["rows"]
    known: dict[str, LocalModel] = {}
    hosts = parts = exact_hosts = close_hosts = close_parts = 0
    for name, count, asked, kv, state, output, host, compute in thinned(runs, 8):
        local = known.setdefault(name, read(catalog, name))
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
        close_hosts += abs(layout.host.compute / MIB - host) <= 0.02 * host + PRINTED
        for device, printed in zip(layout.devices, compute, strict=False):
            parts += 1
            close_parts += abs(device.compute / MIB - printed) <= 0.005 * printed + PRINTED
    assert hosts > 75
    assert parts > 40
    assert exact_hosts >= 0.98 * hosts
    assert close_hosts == hosts
    assert close_parts == parts


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
def test_weights_of_published_files(catalog: Catalog, name: str, mix: str, printed: float) -> None:
    """The quantizer's rule gives the bytes of files that people published."""
    local = read(catalog, name, mix)
    assert abs(sum(tensor.nbytes for tensor in local.tensors) / MIB - printed) < 0.02


def test_totals_of_public_logs(catalog: Catalog) -> None:
    """What starts printed: weights, caches, states, buffers, each where it was."""
    rtx3090 = [LocalDevice("Vulkan0", 23594 * MIB, offloads=False)]
    layout = lay_out_local(
        read(catalog, "Qwen/Qwen3-30B-A3B"), LocalOptions(context=8192, ubatch=2048, parallel=1), rtx3090
    )
    assert printed(layout) == pytest.approx((17524.42, 768.0, 368.04, 166.92, 64.05), abs=0.01)
    strix = [LocalDevice("ROCm0", 110456 * MIB)]
    layout = lay_out_local(
        read(catalog, "Qwen/Qwen3.6-27B", "q8_0"), LocalOptions(context=262144, parallel=1, draft=6), strix
    )
    assert layout.host.weights / MIB == pytest.approx(1288.28, abs=0.01)
    assert layout.devices[0].kv / MIB == 16384
    assert layout.devices[0].state / MIB == pytest.approx(1047.38, abs=0.01)
    slots = LocalOptions(context=135168, parallel=4, unified=True)
    layout = lay_out_local(read(catalog, "Qwen/Qwen3.5-9B"), slots, strix)
    assert layout.devices[0].kv / MIB == 4224
    assert layout.devices[0].state / MIB == 201
    layout = lay_out_local(read(catalog, "Qwen/Qwen3.5-35B-A3B"), LocalOptions(context=8192), strix)
    assert layout.devices[0].state / MIB == 251.25


def printed(layout: LocalLayout) -> tuple[float, ...]:
    device, host = layout.devices[0], layout.host
    sizes = (device.weights, device.kv, device.compute, host.weights, host.compute)
    return tuple(size / MIB for size in sizes)


def test_copies_of_host_weights_grow_the_device_buffer(catalog: Catalog) -> None:
    """A device that computes on weights in host memory holds copies of them: a step, not a slope."""
    local = read(catalog, "deepseek-ai/DeepSeek-V2-Lite", "q4_0")
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


def test_a_tied_matrix_is_loaded_twice(catalog: Catalog) -> None:
    """Gemma's embedding is on the CPU and, as the output matrix, on the device."""
    local = read(catalog, "google/gemma-3-12b-it")
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
def test_refusals(catalog: Catalog, options: LocalOptions, words: str) -> None:
    """Bad options are one line with what works."""
    with pytest.raises(InputError, match=words):
        lay_out_local(read(catalog, "Qwen/Qwen3-0.6B"), replace(options, context=4096), devices(1))


def test_latent_attention_wants_one_cache_type(catalog: Catalog) -> None:
    """Keys and values of latent attention are one cache."""
    local = read(catalog, "deepseek-ai/DeepSeek-V2-Lite")
    with pytest.raises(InputError, match="--cache-type-v q8_0"):
        lay_out_local(local, LocalOptions(context=4096, type_k="q8_0"), devices(1))


def test_inverse_answers(catalog: Catalog) -> None:
    """The longest context fits and the next one does not; so do slots and experts on the CPU."""
    local = read(catalog, "Qwen/Qwen3-30B-A3B")
    card = [LocalDevice("card", 20 << 30)]
    one = LocalOptions(parallel=1)
    context = longest_context(Setup(local, one, card))
    assert lay_out_local(local, replace(one, context=context), card).fits
    assert not lay_out_local(local, replace(one, context=context + 256), card).fits
    slots = most_slots(Setup(local, one, card), 4096)
    assert slots * 4096 <= context < (slots + 1) * 4096
    small = [LocalDevice("small", 12 << 30)]
    asked = replace(one, context=8192)
    layers = fewest_cpu_experts(Setup(local, asked, small))
    assert layers is not None
    assert lay_out_local(local, replace(asked, cpu_moe=layers), small).fits
    assert not lay_out_local(local, replace(asked, cpu_moe=layers - 1), small).fits


def test_fit_leaves_its_target_free(catalog: Catalog) -> None:
    """``--fit`` lowers the context first, then moves experts to the CPU, and leaves 1 GiB."""
    local = read(catalog, "Qwen/Qwen3-30B-A3B")
    card = [LocalDevice("card", 12 << 30)]
    fitted = fit(Setup(local, LocalOptions(parallel=1), card), context_given=False)
    assert fitted.changed[0] == "--ctx-size 4096"
    assert fitted.changed[1] == "--n-gpu-layers 49"
    assert "ffn_(up|down|gate_up|gate)_(ch|)exps=CPU" in fitted.changed[2]
    device = fitted.layout.devices[0]
    assert device.usable - device.total >= 1 << 30


def test_estimate_answers_for_devices_and_host() -> None:
    """The command line's object has the keys of the contract, and the buffers of a public log."""
    answer = estimate(
        "Qwen/Qwen3-30B-A3B",
        gpu="rtx-3090",
        engine="llama-cpp",
        context_tokens=8192,
        weights="q4_k_m",
        parallel=1,
        ubatch_size=2048,
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


def test_ollama_has_defaults_of_its_own() -> None:
    """One slot with a context by the memory of the card; slots are never unified."""
    ask = {"engine": "ollama", "weights": "q4_k_m"}
    for gpu, context in (("rtx-3060-12gb", 4096), ("rtx-4090", 32768), ("h100-sxm-80gb", 262144)):
        answer = estimate("Qwen/Qwen3.5-9B", gpu=gpu, **ask).to_dict()
        assert answer["cells"]["context"] == context
        assert answer["cells"]["slots"] == 1
    hybrid = estimate("Qwen/Qwen3.5-9B", gpu="rtx-4090", context_tokens=8192, parallel=2, **ask).to_dict()
    assert hybrid["cells"]["slots"] == 1
    assert any("runs qwen35 with one slot" in text for text in hybrid["assumptions"])
    two = estimate("Qwen/Qwen3-8B", gpu="rtx-4090", context_tokens=8192, parallel=2, **ask).to_dict()
    assert two["cells"] == {"context": 16384, "per_slot": 8192, "streams": 2, "window": 0, "slots": 2}


def test_unknown_class_is_refused() -> None:
    """A class that llama.cpp does not convert is one sentence."""
    with pytest.raises(InputError, match="converts no"):
        estimate("EleutherAI/gpt-j-6b", gpu="rtx-4090", engine="llama-cpp")


def test_ollama_names() -> None:
    """A name of Ollama's library is a base model and a mix; a suffix names another mix."""
    for name, mix in (
        ("llama3.1:8b", "q4_k_m"),
        ("llama3.1:8b-instruct-q8_0", "q8_0"),
        ("llama3.1", "q4_k_m"),
    ):
        answer = estimate(name, gpu="rtx-4090", engine="ollama").to_dict()
        assert answer["model"] == "meta-llama/Llama-3.1-8B-Instruct"
        assert answer["weight_format"] == mix


def test_every_ollama_name_is_in_the_catalog(catalog: Catalog) -> None:
    """The table names models that can be answered for."""
    for found in OllamaNames.need().names.values():
        assert catalog.model(found.model).id == found.model
        assert mix_name(found.format)


def test_ollama_chooses_the_context_by_memory() -> None:
    """Nobody stated ``num_ctx``: 32K from 23 GiB on, and the answer is about that context."""
    answer = estimate("llama3.1:8b", gpu="rtx-4090", engine="ollama").to_dict()
    assert answer["context_tokens"] == 32768
    assert answer["kv_cache_bytes"] == 32768 * 131072
    assert answer["verdict"] == "fits"


def test_fit_splits_one_layer_as_the_tool_does(catalog: Catalog) -> None:
    """After whole layers, one more keeps part of its tensors; options that were set are left alone."""
    local = read(catalog, "Qwen/Qwen3-30B-A3B")
    card = [LocalDevice("card", 12 << 30)]
    fitted = fit(Setup(local, LocalOptions(context=8192, parallel=1), card))
    assert len(fitted.options.overrides) == 2
    assert "exps" not in fitted.options.overrides[0][0]
    assert fitted.layout.layers_on_device == 49
    asked = LocalOptions(context=8192, parallel=1, gpu_layers=49)
    assert fit(Setup(local, asked, card)).refused == "--n-gpu-layers is set"
    assert fit(Setup(local, asked, card)).options == asked


def test_overrides_move_single_tensors(catalog: Catalog) -> None:
    """The first pattern that matches decides; ``--n-cpu-moe`` is a pattern like any other."""
    local = read(catalog, "Qwen/Qwen3-30B-A3B")
    base = LocalOptions(context=4096, parallel=1)
    by_flag = lay_out_local(local, replace(base, cpu_moe=48), devices(1))
    by_pattern = lay_out_local(
        local, replace(base, overrides=parse_overrides([r"ffn_(up|down|gate)_exps=CPU"])), devices(1)
    )
    assert by_pattern.devices == by_flag.devices
    assert by_pattern.host.weights == by_flag.host.weights
    kept = parse_overrides([r"blk\.0\.ffn_.*=CUDA0,ffn_.*_exps=CPU"])
    assert lay_out_local(local, replace(base, overrides=kept), devices(1)).host.weights < by_flag.host.weights


@pytest.mark.parametrize("text", ["no_equals", "=CPU", "(=CPU", "x=MOON", "x=CUDA7"])
def test_bad_overrides_are_one_line(catalog: Catalog, text: str) -> None:
    """A pattern without a buffer, a broken expression, an unknown or missing device."""
    local = read(catalog, "Qwen/Qwen3-0.6B")
    with pytest.raises(InputError, match="--override-tensor"):
        lay_out_local(local, LocalOptions(context=512, overrides=parse_overrides([text])), devices(1))


def test_rows_and_shares_of_several_devices(catalog: Catalog) -> None:
    """``-ts`` divides layers, ``-sm none`` takes one device, ``-sm row`` divides matrices."""
    local = read(catalog, "Qwen/Qwen3-8B")
    base = LocalOptions(context=4096, parallel=1)
    three = lay_out_local(local, replace(base, tensor_split=(3.0, 1.0)), devices(2)).devices
    # 36 layers and the output layer: 28 of 37 items, then 8 layers and the output layer.
    assert three[0].kv * 8 == three[1].kv * 28
    alone = lay_out_local(local, replace(base, split_mode="none", main_gpu=1), devices(2)).devices
    assert alone[0].weights == 0
    rows = lay_out_local(local, replace(base, split_mode="row"), devices(2)).devices
    whole = lay_out_local(local, base, devices(1)).devices[0]
    assert rows[0].weights + rows[1].weights == whole.weights
    assert rows[0].weights == pytest.approx(rows[1].weights, rel=0.01)
    with pytest.raises(InputError, match="--tensor-split"):
        lay_out_local(local, replace(base, tensor_split=(1.0, 1.0, 1.0)), devices(2))


def test_prediction_blocks_of_a_public_log() -> None:
    """Qwen3.8-27B with ``--spec-type draft-mtp``: cache, buffer and states as a public log has them (b9849)."""
    answer = estimate(
        "Qwen/Qwen3.6-27B",
        gpu="rtx-3090",
        engine="llama-cpp",
        context_tokens=32768,
        weights="q5_k_m",
        parallel=1,
        ubatch_size=2048,
        spec_type="draft-mtp",
        num_speculative_tokens=2,
    )
    assert isinstance(answer, LocalEstimate)
    blocks = answer.case.local.companions.prediction
    assert blocks is not None
    alone = lay_out_local(blocks, replace(answer.case.options, draft=0, mtp=False), devices(1))
    assert alone.devices[0].kv == 128 * MIB
    assert alone.devices[0].compute / MIB == pytest.approx(520.06, abs=0.01)
    assert alone.host.compute / MIB == pytest.approx(208.07, abs=0.01)
    assert answer.local.devices[0].state / MIB == pytest.approx(448.88, abs=0.01)
    found = answer.to_dict()
    assert found["extras"]["draft"]["tokens"] == 2
    assert "--spec-type draft-mtp" in found["command"]


def test_prediction_blocks_take_the_types_of_ollamas_mixes() -> None:
    """A mix of Ollama's quantizer gives the model's own prediction blocks its types, too."""
    answer = estimate(
        "Qwen/Qwen3.8-27B",
        gpu="rtx-3090",
        engine="llama-cpp",
        context_tokens=8192,
        weights="ollama-q4_k_m",
        spec_type="draft-mtp",
    )
    assert isinstance(answer, LocalEstimate)
    blocks = answer.case.local.companions.prediction
    assert blocks is not None
    kinds = {tensor.kind.name for tensor in blocks.tensors if tensor.kind is not None and tensor.is_matrix}
    assert "q4_k" in kinds
    assert kinds <= {"q4_k", "q5_k", "q6_k", "q8_0", "bf16", "f16", "f32"}


def test_a_draft_model_has_caches_of_its_own() -> None:
    """A second model with the same context, 16-bit caches whatever the target's are."""
    ask = {
        "gpu": "rtx-4090",
        "engine": "llama-cpp",
        "context_tokens": 8192,
        "weights": "q4_k_m",
        "parallel": 1,
    }
    plain = estimate("Qwen/Qwen3-8B", cache_type_k="q8_0", cache_type_v="q8_0", **ask)
    drafted = estimate(
        "Qwen/Qwen3-8B", cache_type_k="q8_0", cache_type_v="q8_0", draft="Qwen/Qwen3-0.6B", **ask
    )
    assert isinstance(plain, LocalEstimate)
    assert isinstance(drafted, LocalEstimate)
    more = drafted.local.devices[0].total - plain.local.devices[0].total
    # 28 layers, 8 heads of 128, keys and values in 16 bits.
    assert more > 8192 * 28 * 8 * 128 * 2 * 2
    assert drafted.case.options.draft == 3


def test_forks_are_refused_by_name() -> None:
    """ik_llama.cpp has other rules; the nearest engine is named."""
    for name in ("ik_llama.cpp", "ik-llama", "KoboldCpp"):
        with pytest.raises(InputError, match="allowed: llama-cpp"):
            estimate("Qwen/Qwen3-8B", gpu="rtx-4090", engine=name)


def test_more_layers_than_there_are() -> None:
    """``-ngl 99`` means all; the answer says how many that is."""
    answer = estimate(
        "Qwen/Qwen3-8B", gpu="rtx-4090", engine="llama-cpp", context_tokens=4096, n_gpu_layers=99
    )
    assert any("n-gpu-layers 99: the model has 37" in text for text in answer.to_dict()["assumptions"])


def test_more_host_memory_than_there_is() -> None:
    """Layers on the CPU need host memory; where it is stated and too small, the answer says by how much."""
    answer = estimate(
        "Qwen/Qwen3-30B-A3B", gpu="rtx-4090", engine="llama-cpp", context_tokens=4096, weights="q4_k_m",
        cpu_moe=True, host_memory="8GiB" )  # fmt: skip
    assert answer.verdict == "weights_exceed_memory"
    assert any(line.startswith("host memory: ") and "short by" in line for line in answer.explanation)


def test_reads_from_host_memory_bound_the_speed() -> None:
    """Experts in host memory are read at the host's bandwidth: slower, and faster with more of it."""
    ask = {
        "gpu": "rtx-4090",
        "engine": "llama-cpp",
        "context_tokens": 4096,
        "weights": "q4_k_m",
        "parallel": 1,
    }
    on_card = estimate("Qwen/Qwen3-30B-A3B", **ask).decode_ms_lower_bound
    slow = estimate("Qwen/Qwen3-30B-A3B", cpu_moe=True, **ask).decode_ms_lower_bound
    fast = estimate("Qwen/Qwen3-30B-A3B", cpu_moe=True, host_bandwidth="400GB", **ask).decode_ms_lower_bound
    assert on_card is not None
    assert slow is not None
    assert fast is not None
    assert on_card < fast < slow


def test_inverse_answers_of_an_estimate() -> None:
    """JSON has what fits on the machine, and the command that does it."""
    answer = estimate(
        "Qwen/Qwen3-30B-A3B", gpu="rtx-3060-12gb", engine="llama-cpp", context_tokens=8192, weights="q4_k_m",
        parallel=1 )  # fmt: skip
    found = answer.to_dict()["inverse"]
    assert found["longest_context_tokens"] == 0
    again = {"gpu": "rtx-3060-12gb", "engine": "llama-cpp", "context_tokens": 8192, "parallel": 1}
    assert (
        estimate(
            "Qwen/Qwen3-30B-A3B", weights="q4_k_m", n_cpu_moe=found["min_n_cpu_moe"], **again
        ).shortfall_bytes
        == 0
    )
    assert estimate(
        "Qwen/Qwen3-30B-A3B", weights="q4_k_m", n_cpu_moe=found["min_n_cpu_moe"] - 1, **again
    ).shortfall_bytes
    assert estimate("Qwen/Qwen3-30B-A3B", weights="q4_k_m", fit=True, **again).shortfall_bytes == 0


def test_ollama_batches_by_headroom() -> None:
    """Larger micro-batches for longer contexts while memory leaves room (``server/sched.go``)."""
    gib = 1 << 30
    assert automatic_batch(4096, 5 * gib, 24 * gib) == 512
    assert automatic_batch(8192, 5 * gib, 24 * gib) == 1024
    assert automatic_batch(65536, 5 * gib, 24 * gib) == 2048
    assert automatic_batch(65536, 15 * gib, 24 * gib) == 1024
    assert automatic_batch(65536, 19 * gib, 24 * gib) == 512
    assert automatic_batch(8192, gib, 8 * gib, flash_off=True, card_bytes=8 * gib) == 256


def test_sizing_counts_buffers(catalog: Catalog) -> None:
    """Without an estimate's placement the trunk counts the compute buffer and the backend's part, too."""
    engine = rules(catalog.engine("llama-cpp"))
    step = EngineStep(max_batched_tokens=1, max_seqs=1, layout=Layout(), context_tokens=8192)
    card, mac = catalog.accelerator("rtx-4090"), catalog.accelerator("m4-max-128")
    model = catalog.model("meta-llama/Llama-3.1-8B-Instruct")
    found = engine.reserve(model, card, step)
    assert found.activations / MIB == pytest.approx(116, abs=8)
    assert found.non_framework == 457 * MIB
    assert engine.reserve(model, mac, step).non_framework == 512 * MIB


@pytest.mark.parametrize(
    "name",
    [
        "google/gemma-4-E4B-it",
        "zai-org/GLM-5.2-FP8",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "google/gemma-3-12b-it",
        "Qwen/Qwen3-30B-A3B",
        "ibm-granite/granite-4.0-h-small",
    ],
)
def test_a_folded_graph_needs_as_much(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of layers that repeat, some are planned for all, wherever they are; not where inputs grow with the layers."""
    local, draw = read(catalog, name), random.Random(name)  # noqa: S311 - placements, no secret
    layers, asked = len(local.network.blocks), [(LocalOptions(context=4096, parallel=1), devices(1))]
    for _ in range(4):
        moved: dict[str, Any] = draw.choice(
            (
                {"gpu_layers": draw.randint(1, layers)},
                {"cpu_moe": draw.randint(1, layers)},
                {"kv_offload": False},
                {"tensor_split": (1.0, 2.0, 1.0)},
            )
        )
        options = LocalOptions(context=draw.choice((2048, 40_000)), parallel=draw.choice((1, 2, 4)), **moved)
        asked.append((options, devices(3 if "tensor_split" in moved else 1)))
    folded = [lay_out_local(local, *one) for one in asked]
    monkeypatch.setattr(layout_module, "_folded", lambda *whole: whole)
    for kept in (layout_module._placed, layout_module._laid_out):
        kept.cache_clear()  # it is folded
    assert [lay_out_local(local, *one) for one in asked] == folded


@pytest.mark.parametrize(
    "name", ["zai-org/GLM-5.2-FP8", "google/gemma-4-E4B-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
)
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("slots", [1, 64])
def test_flash_attention_stays_on_the_one_backend(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, count: int, slots: int
) -> None:
    """With every layer on one backend the graph that asks gives the answer that is taken without it."""
    local, asked = read(catalog, name), []
    monkeypatch.setattr(layout_module, "_planned", lambda *planned: asked.append(planned) or (0, 0))
    lay_out_local(local, LocalOptions(context=4096 * slots, parallel=slots), devices(count))
    network, step, homes, backends = asked[0][:4]
    few = replace(step, tokens=step.sequences, outputs=step.sequences)
    assert layout_module._fused_stays(network, few, homes, backends)
    assert layout_module._stays(network, step, homes, backends)


def test_a_layer_that_scales_its_output_stays_on_its_device(catalog: Catalog) -> None:
    """Dry run of Gemma 4 26B with only the output layer on a device: one copy of the residual, not two."""
    options = LocalOptions(context=8192, parallel=1, outputs=1, gpu_layers=1, op_offload=False)
    layout = lay_out_local(read(catalog, "google/gemma-4-26B-A4B"), options, devices(1))
    assert layout.devices[0].compute / MIB == pytest.approx(6.51, abs=PRINTED)


def test_all_logits_are_planned_with_every_layer(catalog: Catalog) -> None:
    """Dry run of DeepSeek-V2-Lite where logits of all tokens leave: they go where earlier layers left room."""
    local = read(catalog, "deepseek-ai/DeepSeek-V2-Lite")
    layout = lay_out_local(local, LocalOptions(context=2048, parallel=1, outputs=0), [])
    assert layout.host.compute / MIB == pytest.approx(212.0, abs=PRINTED)


def test_older_builds_keep_masks_in_32_bits(catalog: Catalog) -> None:
    """Public log of spring 2026: Qwen3.6-27B, 262,144 cells in q4_0, four slots: 836 and 532 MiB."""
    options = LocalOptions(context=262144, parallel=4, unified=True, type_k="q4_0", type_v="q4_0")
    local = read(catalog, "Qwen/Qwen3.6-27B")
    card = [LocalDevice("CUDA0", 23257 * MIB)]
    layout = lay_out_local(local, for_build(options, "b9010"), card)
    assert layout.devices[0].compute / MIB == pytest.approx(836, abs=1)
    assert layout.host.compute / MIB == pytest.approx(532, abs=1)
    assert for_build(options, "b10969") == for_build(options, "0c1e57098") == options
    assert for_build(options, "b9849") == replace(options, cache_copies=("cuda",))
    assert for_build(options, "b9010").cache_copies == ()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("log-508", "compute"),  # a cache in q8_0 on CUDA: 324 instead of 516 MiB without its copies
        ("log-510", "companions"),  # the same in the context that drafts
        (
            "log-515",
            "compute",
        ),  # blocks picked by index keys and streams joined by hyper-connections: 1,354 of 5,696
        ("log-515", "host_compute"),
        ("log-501", "host_compute"),  # layers on the host: a device computes their whole micro-batches
        ("log-513", "host_compute"),  # experts on the host, beside four devices
        ("log-514", "host_compute"),
        ("log-520", "host_compute"),
    ],
)
def test_buffers_of_public_logs_are_equal_to_the_printed_digit(
    catalog: Catalog, name: str, part: Part
) -> None:
    log = next(one for one in LocalLogs.need().logs if one.id == name)
    assert judge_log(log, catalog).ours[part] == pytest.approx(log.printed[part], rel=1e-3)


def test_hyper_connections_are_read_from_files_too(catalog: Catalog) -> None:
    """A checkpoint keeps both sets of a layer and the index's matrices in one tensor each, a GGUF file does not."""
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    architecture = LocalArchitectures.need().by_class[model.architecture]
    names = {"key_proj": "ple_key", "conv1d": "ple_conv1d"}
    halves = {"block_inject_weight": "hc_attn_inject", "input_mix_weight_down": "hc_attn_down"}
    listed = []
    for tensor in tensors_of(model):
        role = names.get(tensor.role, tensor.role)
        listed.append(replace(tensor, role=role))
        if tensor.layer >= 0 and role in halves:
            listed[-1] = replace(tensor, role=halves[role], rows=tensor.rows // 2)
        if role == "attn_k":
            listed[-1:] = [replace(tensor, rows=512), replace(tensor, role="indexer.q_proj", rows=4 * 128)]
    found = read_local(model, architecture, tuple(listed)).network
    assert found == read_local(model, architecture).network
    assert found.hyper == Hyper(4, 320)
    assert found.blocks[1].ngram == Ngram(width=2560, row=160, kernel=4, history=9)


def test_layers_on_the_host_keep_flash_attention(catalog: Catalog) -> None:
    """Hermes 3 8B with 15 of 33 layers on an RTX 2060 printed "Flash Attention was auto, set to enabled" and 248 MiB.

    Without flash attention the scores of 32,768 cells alone would take 2 GiB.
    """
    local = read(catalog, "meta-llama/Llama-3.1-8B-Instruct", "q4_0")
    options = LocalOptions(context=32768, parallel=1, batch=512, gpu_layers=15)
    device = lay_out_local(local, options, [LocalDevice("CUDA0", 5141 * MIB)]).devices[0]
    assert (device.compute + device.offload_copies) / MIB < 250


def test_what_metal_needs_beside_its_results() -> None:
    """By hand, from ``ggml-metal-ops.cpp``: 512 queries of 16 heads on 1,024 cells of 4 heads of 256, in 16 bits."""
    q = Tensor("permute", (256, 512, 16, 1))
    k, v = (
        Tensor("permute", (256, 1024, 4, 1), 2, nb=(2, 2048, 512, 2 << 20), root=Tensor("none", (1024, 1024)))
        for _ in range(2)
    )
    out = Tensor("flash_attn", (256, 16, 512, 1), srcs=(q, k, v, Tensor("none", (1024, 512), 2)))
    out.stored = (TYPES["f16"], TYPES["f16"])
    padding = 64 * (2 * 2048 * 4 + 2 * 512)
    blocks = (512 // 8) * (1024 // 64)
    partial_results = 4 * 32 * 16 * 32 * (256 + 2)
    assert scratch_bytes(out, "metal", copies=False) == padding + blocks + partial_results
    copies = 2 * (2 * 256 * 1024 * 4)
    assert scratch_bytes(out, "metal", copies=True) == padding + blocks + partial_results + copies
    experts = Tensor(
        "mul_mat_id", (64, 8, 512, 1), srcs=(Tensor("none", (64, 64, 128)), q, Tensor("none", (8, 512)))
    )
    assert scratch_bytes(experts, "metal", copies=False) == 4 * 128 * 513 + 8 + 256 * 4
    assert scratch_bytes(experts, "cuda", copies=True) == scratch_bytes(out, "none", copies=True) == 0


def test_a_build_is_named_with_the_engine(catalog: Catalog) -> None:
    """``llama-cpp@b9010`` needs more than the current build; what is no build is refused in one line."""
    ask = partial(estimate, "Qwen/Qwen3.6-27B", gpu="rtx-4090", context_tokens=131072, catalog=catalog)
    old, new = ask(engine="llama-cpp@b9010"), ask(engine="llama-cpp")
    assert isinstance(old, LocalEstimate)
    assert isinstance(new, LocalEstimate)
    assert old.local.devices[0].compute > new.local.devices[0].compute
    with pytest.raises(InputError, match="allowed: a build from b4000"):
        ask(engine="llama-cpp@b12")


@pytest.mark.parametrize(
    ("name", "layers", "first", "used_mib"),
    [("Qwen/Qwen3-30B-A3B", 49, r"blk\.33\.ffn_down.*", 22954), ("Qwen/Qwen3-32B", 42, "", 22665)],
)
def test_fit_chooses_what_the_real_tool_chose(
    catalog: Catalog, name: str, layers: int, first: str, used_mib: int
) -> None:
    """``llama-fit-params -c 8192 -np 1`` of 0c1e57098 with 24,105 MiB free on an RPC device, on sparse Q8_0 files."""
    card = [LocalDevice("RPC0", 24105 * MIB, align=32, offloads=False)]
    fitted = fit(Setup(read(catalog, name, "q8_0"), LocalOptions(context=8192, parallel=1, outputs=0), card))
    assert fitted.options.gpu_layers == layers
    assert [pattern for pattern, _ in fitted.options.overrides[:1]] == ([first] if first else [])
    assert fitted.layout.devices[0].total // MIB == used_mib


def test_advice_minds_host_memory() -> None:
    """Experts on the CPU are advised where the computer's memory holds them, and named in the headline."""
    asked: dict[str, Any] = {
        "gpu": "rtx-4090",
        "engine": "llama-cpp",
        "weights": "q4_k_m",
        "context_tokens": 32768,
    }
    enough = estimate("Qwen/Qwen3-235B-A22B", host_memory="192GiB", parallel=1, **asked)
    short = estimate("Qwen/Qwen3-235B-A22B", host_memory="64GiB", parallel=1, **asked)
    assert isinstance(enough, LocalEstimate)
    assert isinstance(short, LocalEstimate)
    assert enough.too_large.endswith("--n-cpu-moe 86 makes it fit")
    assert not any("n-cpu-moe" in text for text in short.advice)


def test_each_drafted_token_keeps_one_more_state_in_the_delta_rules_result(catalog: Catalog) -> None:
    """A state of 48 heads of 128 x 128 values of 32 bits for each token that may be taken back, beside outputs and cache."""
    local, state = read(catalog, "Qwen/Qwen3.6-27B"), 48 * 128 * 128 * 4
    found = [
        lay_out_local(local, LocalOptions(context=4096, parallel=1, ubatch=64, draft=tokens), devices(1))
        for tokens in (1, 2, 3)
    ]
    for fewer, more in pairwise(each.devices[0] for each in found):
        assert more.compute - fewer.compute == state
        # 48 layers keep the state and 3 columns of 10,240 channels.
        assert more.state - fewer.state == 48 * (state + 3 * 10_240 * 4)


@pytest.mark.parametrize(("predicted_mib", "batch"), [(7424, 1024), (7425, 512)])
def test_ollama_leaves_a_fifth_of_memory_free_beside_a_larger_batch(predicted_mib: int, batch: int) -> None:
    """``server/sched.go``, ``generationBatchFits``: what a batch of 1,024 adds (768 MiB) must fit below 80% of 10 GiB."""
    assert automatic_batch(8192, predicted_mib * MIB, 10 << 30) == batch
