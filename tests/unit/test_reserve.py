"""What an engine keeps beside weights and cache, and what loading adds."""

import json
from dataclasses import replace
from typing import Any

import pytest

import kvreport
from kvreport.accounting import kernel
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.step import EngineStep, Reserve
from kvreport.accounting.engines.vllm.profiling import (
    Shape,
    expert_workspace_bytes,
    forward_bytes_per_token,
    graph_layers,
)
from kvreport.accounting.engines.vllm.reserve import (
    BANDS,
    OnDevice,
    Told,
    band,
    band_kind,
    bytes_of_graph_layer,
    kernel_step,
    large_workspace,
    own_expert_kernels,
    read_rates,
)
from kvreport.accounting.engines.vllm.reserve import reserve as whole_reserve
from kvreport.accounting.extras import (
    lora_bytes,
    own_prediction_layer,
    vocabulary_modules,
    vocabulary_slots,
    with_draft,
)
from kvreport.accounting.kernel import LARGEST_CAPTURE, captured_sizes, graphs_up_to
from kvreport.accounting.parallel import Layout
from kvreport.accounting.weights import weight_bytes, weights_by_component
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.release import engine_for_version, version_number
from kvreport.errors import InputError
from kvreport.estimation import estimate
from kvreport.units import GIB
from tests.trunk import budget, load_overhead


def reserve(model: Model, engine: Engine, **told: Any) -> Reserve:
    """The reserve of a start that is told so much of its device, its ranks and its steps."""
    device = OnDevice(**{name: told.pop(name) for name in OnDevice._fields if name in told})
    ranks = Layout(tensor=told.pop("tensor_parallel", 1))
    return whole_reserve(model, engine, device, EngineStep(layout=ranks, **told))


def release(version: str, **coefficients: float) -> Engine:
    """vLLM's rules of one release, with every fitted constant 0 unless given."""
    names = [
        "graph_bytes_per_layer",
        "graph_bytes_per_layer_second",
        "non_framework_bytes",
        "non_framework_rank_bytes",
        "unified_bytes",
        *(f"uncertainty_{of}_{kind}" for of in ("bytes", "share") for kind in BANDS),
    ]
    source = {"covers": ["coefficients"], "title": "made up", "evidence": "derived"}
    record = {
        "name": "test",
        "label": "Test",
        "family": "vllm",
        "version": version,
        "utilization": 0.9,
        "coefficients": dict.fromkeys(names, 0.0) | coefficients,
        "sources": [source],
    }
    return rules(Engine.model_validate_json(json.dumps(record))).at_release(version)


@pytest.mark.parametrize(
    ("version", "model", "tokens", "rows", "ranks", "printed_gib"),
    [
        # "... GiB for peak activation" (data/observations: obs-131, -133 to -137, all sorting).
        ("0.11.0", "openai/gpt-oss-20b", 8192, 1024, 1, 7.38),
        ("0.11.0", "meta-llama/Llama-3.1-70B-Instruct", 8192, 1024, 2, 4.84),
        ("0.11.0", "meta-llama/Llama-3.1-8B-Instruct", 8192, 1024, 1, 4.76),
        ("0.11.0", "Qwen/Qwen3-0.6B", 8192, 1024, 1, 5.56),
        ("0.11.0", "Qwen/Qwen3-32B", 8192, 1024, 1, 5.64),
        ("0.11.0", "Qwen/Qwen3-32B", 8192, 1024, 2, 5.64),
        # The second model runner (new-016), whose counts of words the log has with the weights.
        ("0.27.1", "Qwen/Qwen2.5-0.5B", 2048, 256, 1, 0.25 + 256 * 151_936 * 4.125 / GIB),
    ],
)
def test_activations_agree_with_what_logs_print(
    catalog: Catalog, version: str, model: str, tokens: int, rows: int, ranks: int, printed_gib: float
) -> None:
    kept = reserve(
        catalog.model(model),
        release(version),
        max_batched_tokens=tokens,
        max_seqs=rows,
        tensor_parallel=ranks,
    )
    assert kept.activations / GIB == pytest.approx(printed_gib, rel=0.08, abs=0.04)


def test_an_indexer_keeps_keys_of_forty_contexts(catalog: Catalog) -> None:
    # vLLM 0.26.0 on GB200 (web-004): 6.31 GiB for peak activation, graphs not among them.
    arguments = {
        "max_batched_tokens": 8192,
        "max_seqs": 1024,
        "tensor_parallel": 4,
        "own_expert_kernels": True,
        "eager": True,
    }
    model = catalog.model("nvidia/GLM-5.2-NVFP4")
    found = reserve(model, release("0.26.0"), context_tokens=819_200, **arguments)
    picks = 8192 * 2048 * 4  # Logs print them with the weights.
    assert (found.activations - picks) / GIB == pytest.approx(6.31, abs=0.1)
    shorter = reserve(model, release("0.26.0"), context_tokens=32_768, **arguments)
    assert found.activations - shorter.activations == 40 * 132 * (819_200 - 32_768)


def test_experts_count_as_often_as_a_token_passes_through_them(catalog: Catalog) -> None:
    sizes = Shape.of(catalog.model("openai/gpt-oss-120b"))
    assert (sizes.inner, sizes.expert_inner, sizes.experts_per_token) == (0, 2880, 4)
    # One matrix holds gate and up projection.
    assert Shape.of(catalog.model("microsoft/phi-4")).inner == 17_920


def test_buffers_that_experts_compute_in_come_on_top_of_sampling(catalog: Catalog) -> None:
    # MiniMax-M2.5 on four RTX PRO 6000 under 0.15.1 (obs-176): 8.10 GiB beside weights and cache.
    model = catalog.model("MiniMaxAI/MiniMax-M2.5")
    arguments = {"max_batched_tokens": 8192, "max_seqs": 1024, "tensor_parallel": 4}
    found = reserve(model, release("0.15.1"), **arguments)
    assert found.total / GIB == pytest.approx(8.10, rel=0.02)
    buffers = 8192 * 8 * (3072 + 3072) * 2
    without = reserve(model, release("0.15.1"), own_expert_kernels=True, **arguments)
    assert found.activations - without.activations == buffers
    assert reserve(model, release("0.12.0"), **arguments).activations == without.activations


def test_the_experts_inner_side_is_counted_once(catalog: Catalog) -> None:
    # Since 0.13 it lies in the buffers that experts keep, so that a forward pass adds only their outputs. DeepSeek-V4
    # on Hopper (obs-105) reserved 16 % more than it should while both were counted.
    sizes = Shape.of(catalog.model("MiniMaxAI/MiniMax-M2.5"))
    before = forward_bytes_per_token(sizes, 4)
    kept = forward_bytes_per_token(sizes, 4, inner_kept=True)
    assert before - kept == 8 * 6 * 1536 / 4


def test_blackwells_data_centre_kernels_bring_their_own_buffers(catalog: Catalog) -> None:
    own = {
        name: own_expert_kernels(catalog.accelerator(name)) for name in ("h100-sxm-80gb", "b200-sxm-180gb")
    }
    assert own == {"h100-sxm-80gb": False, "b200-sxm-180gb": True}


def test_several_residual_streams_are_carried_and_kept_for_a_draft(catalog: Catalog) -> None:
    model = catalog.model("deepseek-ai/DeepSeek-V4-Flash")
    assert Shape.of(model).streams == 4
    assert Shape.of(catalog.model("Qwen/Qwen2.5-7B")).streams == 1
    arguments = {"max_batched_tokens": 1000, "max_seqs": 1, "own_expert_kernels": True}
    kept = reserve(model, release("0.25.0"), **arguments).activations
    # Four streams less, embeddings and counts of words more, and logits without a 32-bit copy.
    less = 1000 * 3 * 4096 * 2
    assert kept - reserve(model, release("0.27.1"), **arguments).activations == less


def test_sampling_that_sorts_is_the_logs_to_say(catalog: Catalog) -> None:
    # Qwen2-7B on two A100 under 0.10.1.1, with FlashInfer and without (obs-063, obs-061).
    model = catalog.model("Qwen/Qwen2-7B-Instruct")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256, "tensor_parallel": 2}
    with_it = reserve(model, release("0.10.1.1"), **arguments)
    assert with_it.total / GIB == pytest.approx(0.62, abs=0.15)
    without = reserve(model, release("0.10.1.1"), sorts=True, **arguments)
    assert without.total / GIB == pytest.approx(1.60, abs=0.25)
    assert without.activations - with_it.activations == (38 - 14) * 256 * model.vocabulary


def test_a_first_start_measures_a_kernel_on_a_copy_of_the_embedding_table(catalog: Catalog) -> None:
    # Qwen3-8B on one RTX 4090 under 0.27.1: "peak activation 1.18" GiB at the first start, 0.19 at the second
    # (unseen-002, -003), and 0.23 of layers that run one by one.
    model = catalog.model("Qwen/Qwen3-8B")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256}
    counts = 256 * 151_936 * 4.125
    first = reserve(model, release("0.27.1"), **arguments)
    assert first.activations == 151_936 * 4096 * 2 + 2 * 2048 * 4096 * 2 + counts
    assert (first.activations - counts) / GIB == pytest.approx(1.18, abs=0.03)
    later = reserve(model, release("0.27.1"), compiled=True, **arguments)
    assert (later.activations - counts) / GIB == pytest.approx(0.19, abs=0.07)
    assert reserve(model, release("0.27.1"), eager=True, **arguments).activations == later.activations
    # Nothing tells which start it is: the band spans both, beside the usual error.
    usual = catalog.engine("vllm@0.27.1")
    wide, narrow = reserve(model, usual, **arguments), reserve(model, usual, compiled=True, **arguments)
    assert narrow.uncertainty > 0
    assert wide.uncertainty > narrow.uncertainty + (wide.activations - narrow.activations)
    assert first.uncertainty == first.activations - later.activations
    assert later.uncertainty == 0


@pytest.mark.parametrize(
    ("version", "copies"),
    [("0.11.0", False), ("0.11.1", True), ("0.18.0", True), ("0.32.0", True), ("0.33.0", False)],
)
def test_pytorch_s_releases_decide_what_compiling_takes(
    catalog: Catalog, version: str, *, copies: bool
) -> None:
    model = catalog.model("Qwen/Qwen3-8B")
    arguments = {"max_batched_tokens": 256, "max_seqs": 1, "tensor_parallel": 2}
    first = reserve(model, release(version), **arguments).activations
    # Counts of words, and the kernel's output for 256 tokens.
    kept = 151_936 * 4.125 + 256 * 4096 * 2 if copies and version >= "0.27" else 0
    assert (first == 151_936 * 4096 * 2 // 2 + kept) is copies
    assert (first > reserve(model, release(version), compiled=True, **arguments).activations) is copies


def test_embeddings_beside_images_are_looked_up_outside_of_the_compiled_graph(catalog: Catalog) -> None:
    # Gemma 4 on an RTX PRO 6000 under 0.23.0, compiled anew with images (held-004); text only on an L4 (late-013).
    model = catalog.model("google/gemma-4-26B-A4B")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 16}
    seen = reserve(model, release("0.30.0"), **arguments).activations
    assert seen == reserve(model, release("0.30.0"), compiled=True, **arguments).activations
    # Results of 22 MiB leave room for a workspace (test_a_copy_is_left_where_no_other_piece_holds_the_workspace).
    arguments["max_batched_tokens"] = 4096
    text = reserve(model, release("0.30.0"), images=False, **arguments).activations
    assert text == 262_144 * 2816 * 2 + 2 * 4096 * 2816 * 2 + 16 * 262_144 * 4.125


def test_the_second_runner_measures_itself_without_sorting(catalog: Catalog) -> None:
    model = catalog.model("Qwen/Qwen2.5-7B-Instruct")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256}
    without = reserve(model, release("0.27.1"), sorts=True, **arguments)
    assert without == reserve(model, release("0.27.1"), **arguments)
    assert reserve(model, release("0.16.0"), sorts=True, **arguments).activations == 2 * 2 * 3584 * 2048 + (
        38 * 256 * model.vocabulary
    )


def test_images_are_encoded_in_patches(catalog: Catalog) -> None:
    # The largest image of Qwen3-VL is 16,384 tokens of 4 patches: two frames of 16 by 16 pixels each, 1,024 wide
    # with an inner side of 4,096. Stream, norm, positions and what attention gives stay beside its 8 streams, and pixels.
    model = catalog.model("Qwen/Qwen3-VL-2B-Instruct")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 1}
    seen = reserve(model, release("0.19.0"), **arguments).activations
    tapped = 2048 * 3 * 2048 * 2
    assert seen == 4 * 16_384 * 2 * (6 * 16 * 16 + 12 * 1024) + tapped
    assert reserve(model, release("0.19.0"), images=False, **arguments).activations < seen
    # The second model runner encodes images while it measures since 0.27.
    assert reserve(model, release("0.26.0"), **arguments).activations < seen
    kept = 2048 * 2048 * 2 + 151_936 * 4.125
    assert reserve(model, release("0.27.1"), **arguments).activations == seen + round(kept)


def test_the_offline_class_takes_longer_steps(catalog: Catalog) -> None:
    engine, gpu = catalog.engine("vllm"), catalog.accelerator("h100-sxm-80gb")
    assert rules(engine).scheduler(gpu) == (8192, 1024)
    assert rules(engine).scheduler(gpu, offline=True) == (16_384, 1024)
    assert rules(engine).scheduler(gpu, offline=True, max_batched_tokens=2048) == (2048, 1024)
    large = catalog.accelerator("b200-sxm-180gb")
    assert rules(engine).scheduler(large, offline=True) == rules(engine).scheduler(large) == (16_384, 1024)


def test_graphs_are_kept_only_where_captured_and_subtracted(catalog: Catalog) -> None:
    model, arguments = catalog.model("Qwen/Qwen2.5-7B"), {"max_batched_tokens": 2048, "max_seqs": 256}

    def graphs(version: str, **more: bool) -> int:
        engine = release(version, graph_bytes_per_layer=3, graph_bytes_per_layer_second=2)
        return reserve(model, engine, **arguments, **more).graphs

    assert graphs("0.19.0") == 0
    assert graphs("0.20.0") == 3 * 28 * (51 + 35)
    assert graphs("0.20.0", eager=True) == 0
    # 0.25 serves Qwen2.5 with the second model runner, which estimates its graphs since 0.29.
    assert (graphs("0.24.0"), graphs("0.25.0"), graphs("0.28.0")) == (3 * 28 * 86, 0, 0)
    assert graphs("0.29.0") == 2 * 28 * 86
    # Data-center Blackwell GPUs capture up to 1,024 tokens since 0.28.
    many = {"max_batched_tokens": 8192, "max_seqs": 1024}
    engine = release("0.29.0", graph_bytes_per_layer_second=2)
    assert reserve(model, engine, **many).graphs == 2 * 28 * (51 + 51)
    assert reserve(model, engine, own_expert_kernels=True, **many).graphs == 2 * 28 * (83 + 83)


def test_amd_s_graphs_take_what_logs_of_them_print(catalog: Catalog) -> None:
    # vale-005, -007, -008 and -009: the log says what share of 191.69 GiB the graphs take, of 86 captures.
    engine = rules(catalog.engine("vllm-0.32")).at_release("0.31.0")
    printed = {
        "google/gemma-4-E2B-it": 3.93,
        "google/gemma-4-12B-it": 5.25,
        "google/gemma-4-26B-A4B": 3.41,
        "google/gemma-4-31B-it": 6.54,
    }
    device = catalog.accelerator("mi300x")
    for name, gib in printed.items():
        step = EngineStep(max_batched_tokens=16384, max_seqs=256, images=False, layout=Layout())
        kept = rules(engine).reserve(catalog.model(name), device, step)
        assert kept.graphs / GIB == pytest.approx(gib, rel=0.06), name
    first = rules(catalog.engine("vllm-0.28")).at_release("0.28.0")
    assert bytes_of_graph_layer(first, second=False, vendor="AMD") == bytes_of_graph_layer(
        first, second=False
    )


@pytest.mark.parametrize(("version", "captures"), [("0.28.0", False), ("0.30.0", False), ("0.31.0", True)])
def test_intel_s_graphs_are_captured_since_0_31_and_not_taken_for_amd_s(
    catalog: Catalog, version: str, captures: bool
) -> None:
    """Up to 0.30 a variable must be set; nothing shows that they take what AMD's do."""
    record = catalog.model("meta-llama/Llama-3.1-8B")
    step = EngineStep(max_batched_tokens=8192, max_seqs=256, layout=Layout())
    engine = rules(engine_for_version(catalog.engines.values(), "vllm", version)).at_release(version)
    graphs = {
        name: rules(engine).reserve(record, catalog.accelerator(name), step).graphs
        for name in ("arc-pro-b60", "rtx-pro-6000")
    }
    assert graphs["arc-pro-b60"] == (graphs["rtx-pro-6000"] if captures else 0)


def test_devices_of_one_class_have_one_reserve(catalog: Catalog) -> None:
    """The matrix computes once for each class."""
    engine, model = rules(catalog.engine("vllm")), catalog.model("meta-llama/Llama-3.1-8B")
    step = EngineStep(8192, 256, Layout())
    of_class: dict[object, object] = {}
    for device in catalog.accelerators.values():
        kept = engine.reserve(model, device, step)
        assert of_class.setdefault(engine.device_class(device)[0], kept) == kept, device.id


def test_devices_that_are_not_amd_s_have_one_list_of_rates(catalog: Catalog) -> None:
    """The browser answers for Intel's devices by the list of NVIDIA's."""
    newest = catalog.engine("vllm")
    for name in ("meta-llama/Llama-3.1-8B", "google/gemma-4-31B-it", "deepseek-ai/DeepSeek-V3"):
        record = catalog.model(name)
        assert read_rates(record, newest, Told(vendor="INTEL")) == read_rates(record, newest)


def test_ranks_add_to_what_lies_outside_the_framework_where_links_multicast(catalog: Catalog) -> None:
    model = catalog.model("Qwen/Qwen2.5-7B")
    engine = release("0.22.0", non_framework_bytes=100, non_framework_rank_bytes=7, unified_bytes=1000)
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256}
    assert reserve(model, engine, **arguments).non_framework == 100
    assert reserve(model, engine, tensor_parallel=8, **arguments).non_framework == 100 + 7
    # Since 0.23 links are set up before the memory is looked at.
    later = release("0.23.0", non_framework_bytes=100, non_framework_rank_bytes=7)
    assert reserve(model, later, tensor_parallel=8, **arguments).non_framework == 100
    assert reserve(model, engine, tensor_parallel=8, multicast=False, **arguments).non_framework == 100
    assert reserve(model, engine, device_class="unified", **arguments).non_framework == 1100


def test_handles_of_linear_algebra_are_charged_where_they_are_made_after_the_first_look(
    catalog: Catalog,
) -> None:
    model = catalog.model("Qwen/Qwen2.5-7B")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256}
    before, since = (
        release(version, non_framework_bytes=100, unified_bytes=1000) for version in ("0.32.0", "0.33.0")
    )
    assert reserve(model, before, **arguments).non_framework == 100
    assert reserve(model, since, **arguments).non_framework == 0
    assert reserve(model, since, vendor="AMD", **arguments).non_framework == 0
    assert reserve(model, since, device_class="unified", **arguments).non_framework == 1000
    # The worker of Intel's devices does not make them first.
    assert reserve(model, since, vendor="INTEL", **arguments).non_framework == 100


def test_graphs_are_pieces_for_every_size_and_whole_ones_for_those_that_decode() -> None:
    # 256 requests: pieces up to 512 tokens, whole graphs up to 256.
    assert graphs_up_to(LARGEST_CAPTURE, 256, 8192) == 51 + 35
    assert graphs_up_to(LARGEST_CAPTURE, 1024, 8192) == 51 + 51
    assert graphs_up_to(LARGEST_CAPTURE, 8, 8192) == 5 + 4


@pytest.mark.parametrize(("max_seqs", "sizes"), [(1, 2), (4, 4), (8, 5), (256, 51), (1024, 51)])
def test_captured_sizes_follow_the_engines_list(max_seqs: int, sizes: int) -> None:
    # 1, 2, 4, then 8 to 256 by 8, then to 512 by 16: 3 + 32 + 16 = 51 (vLLM's default list);
    # with 8 requests 1, 2, 4, 8, 16, as a log of 0.23 prints.
    assert captured_sizes(min(2 * max_seqs, 512)) == sizes


def test_a_missing_coefficient_is_named(catalog: Catalog) -> None:
    engine = release("0.25.0").model_copy(update={"coefficients": {}})
    with pytest.raises(InputError, match=r"coefficients: .* is missing"):
        reserve(catalog.model("Qwen/Qwen2.5-7B"), engine, max_batched_tokens=1, max_seqs=1)


def test_versions_find_the_rules_of_their_time(catalog: Catalog) -> None:
    def found(version: str | None) -> str:
        engine = engine_for_version(catalog.engines.values(), "vllm", version)
        assert engine is not None
        return engine.name

    assert found("0.10.1.1") == "vllm-0.10"
    assert found("0.11.0") == "vllm-0.11"
    assert found("0.19.2rc1.dev134+gfe9c3d6c5") == "vllm-0.19"
    assert (found("0.21.0"), found("0.23.1"), found("0.25.0")) == ("vllm-0.20", "vllm-0.23", "vllm-0.25")
    assert (found("0.26.0"), found("0.29.1"), found("0.33.0"), found(None)) == (
        "vllm-0.28",
        "vllm-0.32",
        "vllm",
        "vllm",
    )
    assert version_number("image (0.10.1 dev)") == (0, 10, 1)
    assert catalog.engine("vllm@0.11.0").name == "vllm-0.11"
    for said in ("vllm 0.15.1", "vllm-0.15", "vLLM v0.15.1", "vllm==0.15.1"):
        assert catalog.engine(said).name == "vllm-0.11"
    assert catalog.engine("vllm-0.10").name == "vllm-0.10"
    assert catalog.engine("sglang 0.5.8").name == "sglang-0.5.9"
    # Two numbers ask for that release, not for the one that its record stands for.
    assert catalog.engine("vllm-0.28").version == "0.28.0"
    assert catalog.engine("vllm-0.27").version == catalog.engine("vllm 0.27").version == "0.27.0"
    assert catalog.engine("vllm-0.27").name == "vllm-0.28"
    for unknown in ("vllm 0.1", "nothing-1.2", "vllm-0.15-rc"):
        with pytest.raises(InputError, match="engine: found"):
            catalog.engine(unknown)
    with pytest.raises(InputError, match=r"allowed: a version of .*vllm-0.11"):
        catalog.engine("vllm@latest")


TRITON = {"expert_kernel": "triton"}
"""What installations with the package of Triton's kernels have."""


@pytest.mark.parametrize(
    ("model", "release", "kernels", "gpu", "ranks", "form", "loaded_gib", "within_gib"),
    [
        # "Model loading took ... GiB" (data/observations: obs-134, -131, -132, -048, -058, -136).
        ("meta-llama/Llama-3.1-8B-Instruct", "0.11.0", TRITON, "h100-sxm-80gb", 1, None, 14.99, 0.025),
        ("openai/gpt-oss-20b", "0.11.0", TRITON, "h100-sxm-80gb", 1, None, 13.47, 0.05),
        ("openai/gpt-oss-120b", "0.11.0", TRITON, "h100-sxm-80gb", 1, None, 64.38, 0.025),
        ("openai/gpt-oss-120b", "0.11.0", {"expert_kernel": "marlin"}, "h100-sxm-80gb", 1, None, 65.97, 0.05),
        ("openai/gpt-oss-120b", "0.11.0", TRITON, "a100-sxm4-80gb", 4, None, 17.22, 0.025),
        # Keys that are values, too, are loaded into both places: web-002 of 0.19, obs-071 of 0.20 and, in 8 bits, unseen-010.
        ("google/gemma-4-26B-A4B", "0.20.0", {}, "a100-sxm4-80gb", 1, None, 48.5, 0.025),
        ("google/gemma-4-31B-it", "0.19.0", {}, "a100-sxm4-80gb", 1, "fp8-tensor", 31.47, 0.025),
        # Until 0.29, 18 layers that read another's cache have places for keys and values; late-012 of 0.22.1 printed 15.18,
        # 42 MiB of it the embeddings of every layer for 2,048 tokens, which are counted with what tokens take.
        (
            "google/gemma-4-E4B-it",
            "0.22.1",
            {},
            "a100-sxm4-80gb",
            1,
            None,
            15.18 - 2048 * 42 * 256 * 2 / GIB,
            0.025,
        ),
    ],
)
def test_weights_as_loaded_agree_with_logs(
    catalog: Catalog,
    model: str,
    release: str,
    kernels: dict[str, str],
    gpu: str,
    ranks: int,
    form: str | None,
    loaded_gib: float,
    within_gib: float,
) -> None:
    record, formats = catalog.model(model), catalog.weight_formats
    engine = rules(catalog.engine(f"vllm@{release}")).at_release(release).model_copy(update=kernels)
    asked = None if form is None else formats[form]
    added = load_overhead(record, engine, asked, formats, catalog.accelerator(gpu), ranks)
    size = weight_bytes(record, asked, formats, ranks) + sum(added.values())
    assert size / GIB == pytest.approx(loaded_gib, abs=within_gib)


@pytest.mark.parametrize(
    ("version", "model", "form", "ranks", "rests_mib", "loaded_gib"),
    [
        # 28 layers: gate and up of 2 x 18944 x 3584 are 259 MiB, down 129.5: one and a half MiB more, of which a rest of up to
        # one is kept.
        ("0.10.1", "Qwen/Qwen2-7B-Instruct", None, 1, 57.0, 14.2488),
        # 36 layers whose packed gate and up are 21.5 MiB: what Marlin repacks takes as much again.
        ("0.29.0", "Qwen/Qwen2.5-3B-Instruct-AWQ", None, 1, 18.0, 1.95),
        # Since 0.22 all rests from 20 MiB on: 0.75 + 0.875 of experts, 0.9375 + 0.75 of attention, 0.695 of two tables (x 2 MiB).
        ("0.26.0", "openai/gpt-oss-20b", "bf16", 1, 161.78, 42_032_805_888 / GIB),
    ],
)
def test_the_allocator_counts_the_rest_of_what_it_took(
    catalog: Catalog,
    version: str,
    model: str,
    form: str | None,
    ranks: int,
    rests_mib: float,
    loaded_gib: float,
) -> None:
    """What vLLM printed to four places: obs-059 of 0.10.1 and obs-205 of 0.7, to two eve-003 of 0.29, and counted in own-002."""
    record, formats = catalog.model(model), catalog.weight_formats
    chosen = None if form is None else catalog.weight_format(form)
    added = load_overhead(
        record,
        catalog.engine(f"vllm@{version}"),
        chosen,
        formats,
        catalog.accelerator("a100-sxm-80gb"),
        ranks,
    )
    assert added["allocated_blocks"] / 2**20 == pytest.approx(rests_mib, abs=2)
    size = weight_bytes(record, chosen, formats, ranks) + sum(added.values())
    assert size / GIB == pytest.approx(loaded_gib, abs=0.003)


def test_layers_without_keys_have_no_places_for_them_since_0_30(catalog: Catalog) -> None:
    record, formats = catalog.model("google/gemma-4-E4B-it"), catalog.weight_formats
    missing = []
    for release in ("0.29.0", "0.30.0"):
        engine = engine_for_version(catalog.engines.values(), "vllm", release)
        assert engine is not None
        asked = engine.model_copy(update={"version": release})
        parts = load_overhead(record, asked, None, formats, catalog.accelerator("l4"))
        missing.append(parts.get("missing_projections", 0))
    assert missing == [(15 * 512 + 3 * 1024) * 2 * 2560 * 2, 0]
    sglang = load_overhead(record, catalog.engine("sglang"), None, formats, catalog.accelerator("l4"))
    assert sglang["missing_projections"] == missing[0]


def test_heads_of_unequal_width_lack_nothing(catalog: Catalog) -> None:
    """Narrower values are not missing ones, and a class that is not listed projects queries alone."""
    formats, engine = catalog.weight_formats, catalog.engine("vllm")
    for model in ("XiaomiMiMo/MiMo-V2-Flash", "tencent/Tencent-Hunyuan-Large"):
        parts = load_overhead(
            catalog.model(model), engine, None, formats, catalog.accelerator("h200-sxm-141gb"), 8
        )
        assert "missing_projections" not in parts


def test_images_on_axes_of_their_own_have_four_times_the_positions(catalog: Catalog) -> None:
    formats, gpu, engine = (
        catalog.weight_formats,
        catalog.accelerator("rtx-5070ti"),
        catalog.engine("vllm"),
    )
    several = catalog.model("Qwen/Qwen3-VL-2B-Instruct")  # 262144 positions, heads of 128
    assert load_overhead(several, engine, None, formats, gpu)["position_table"] == 262_144 * 128 * 2 * 4
    plain_axis = catalog.model("Qwen/Qwen2.5-7B")
    assert load_overhead(plain_axis, engine, None, formats, gpu)["position_table"] == 131_072 * 128 * 2


def test_sglang_kept_the_scales_it_loaded_until_0516(catalog: Catalog) -> None:
    model, formats = catalog.model("deepseek-ai/DeepSeek-V4-Pro"), catalog.weight_formats
    older = engine_for_version(catalog.engines.values(), "sglang", "0.5.15.post1")
    newer = engine_for_version(catalog.engines.values(), "sglang", "0.5.16")
    assert older is not None
    assert newer is not None
    assert (older.name, newer.name) == ("sglang-0.5.15", "sglang-0.5.17")
    hopper, blackwell = catalog.accelerator("h200-sxm-141gb"), catalog.accelerator("b200-sxm-180gb")
    kept = load_overhead(model, older, None, formats, hopper, 8)["loaded_scales"]
    # 61 layers of 384 experts of three matrices of 3072 x 7168, one float of 4 bytes per 32 weights.
    assert kept == 61 * 384 * 3 * 3072 * 7168 // 32 * 4 // 8
    assert "loaded_scales" not in load_overhead(model, newer, None, formats, hopper, 8)
    assert "loaded_scales" not in load_overhead(model, older, None, formats, blackwell, 8)
    # The change that deletes them measured 11.48 GiB per GPU on 16, with a draft layer beside the 61.
    on_sixteen = load_overhead(model, older, None, formats, hopper, 16)["loaded_scales"]
    assert on_sixteen * 62 / 61 / GIB == pytest.approx(11.48, rel=0.005)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_classes_without_rotation_have_no_position_table(catalog: Catalog, server: str) -> None:
    """Nemotron-H and Jamba attend without positions: their modules build no rotary embedding."""
    engine, formats = catalog.engine(server), catalog.weight_formats
    gpu = catalog.accelerator("h100-sxm")
    for name in ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "ai21labs/Jamba-v0.1"):
        still = catalog.model(name)
        assert still.rotary_axes == 0
        turning = still.model_copy(update={"rotary_axes": 1})
        tables = [load_overhead(model, engine, None, formats, gpu) for model in (still, turning)]
        assert "position_table" not in tables[0]
        assert tables[1]["position_table"] > 0


def test_compressed_latents_rotate_by_two_bases_in_floats(catalog: Catalog) -> None:
    formats, gpu = catalog.weight_formats, catalog.accelerator("h100-sxm-80gb")
    engine = catalog.engine("vllm")
    compressed = catalog.model("deepseek-ai/DeepSeek-V4-Pro")  # 1048576 positions, 64 rotate
    assert load_overhead(compressed, engine, None, formats, gpu)["position_table"] == 1_048_576 * 64 * 4 * 2
    plain = catalog.model("deepseek-ai/DeepSeek-V3")  # 163840 positions, 64 rotate, one base
    assert load_overhead(plain, engine, None, formats, gpu)["position_table"] == 163_840 * 64 * 2


def test_streams_are_kept_for_a_draft_in_newer_releases(catalog: Catalog) -> None:
    model = catalog.model("deepseek-ai/DeepSeek-V4-Flash")  # four streams of 4096
    drafting = with_draft(model, own_prediction_layer(model)).whole

    def kept(release: str, served: Model) -> float:
        engine = rules(catalog.engine(f"vllm@{release}")).at_release(release)
        return read_rates(served, engine).streams_per_token - picks

    picks = 512 * 4  # 512 keys are picked for each token, in one buffer of all layers.
    each = 4 * 4096 * 2
    embedded = 4096 * 2  # Of the first runner, since all that stays is charged.
    assert [kept(one, model) for one in ("0.25.0", "0.27.1", "0.33.0")] == [each, embedded, 0]
    # What the draft itself keeps: hidden states of all streams, and embeddings beside the first runner.
    assert [kept(one, drafting) for one in ("0.25.0", "0.27.1", "0.33.0")] == [
        each,
        each + embedded + each + embedded,
        each + each,
    ]


def test_sglangs_position_tables_are_floats(catalog: Catalog) -> None:
    formats, gpu = catalog.weight_formats, catalog.accelerator("h100-sxm-80gb")
    engine = catalog.engine("sglang")
    dense = catalog.model("Qwen/Qwen2.5-7B")  # 131072 positions, heads of 128
    assert load_overhead(dense, engine, None, formats, gpu)["position_table"] == 131_072 * 128 * 4
    compressed = catalog.model("deepseek-ai/DeepSeek-V4-Pro")  # 1048576 positions, 64 rotate
    assert load_overhead(compressed, engine, None, formats, gpu)["position_table"] == 1_048_576 * 64 * 4 * 2


@pytest.mark.parametrize(("ranks", "taken"), [(1, 730_000_000), (4, 2_330_000_000)])
def test_sglangs_share_is_of_what_is_free_before_loading(catalog: Catalog, ranks: int, taken: int) -> None:
    engine, gpu = catalog.engine("sglang"), catalog.accelerator("h100-sxm-80gb")
    model = catalog.model("Qwen/Qwen2.5-7B")
    found = budget(
        model, engine, gpu, formats=catalog.weight_formats, tensor_parallel=ranks, utilization=0.75
    )
    assert found.kv_pool_bytes == pytest.approx(0.75 * (gpu.usable_bytes - taken) - found.weights, abs=2)
    assert found.activations == found.graphs == 0


def test_sglang_keeps_tables_of_each_layer_on_amd_and_widens_grouped_projections(
    catalog: Catalog,
) -> None:
    model, formats = catalog.model("deepseek-ai/DeepSeek-V4-Pro"), catalog.weight_formats
    instinct, hopper = catalog.accelerator("mi355x"), catalog.accelerator("h200-sxm-141gb")
    blackwell, older = catalog.accelerator("b200-sxm-180gb"), catalog.engine("sglang-0.5.13")
    newer = catalog.engine("sglang")
    added = load_overhead(model, older, None, formats, instinct)
    # 61 layers, 1048576 positions, 32 cosines and 32 sines of 16 bits.
    assert added["layer_tables"] == 61 * 1_048_576 * 64 * 2
    whole = 61 * 16384 * 4096
    # One byte more for each element, less the scales of its blocks.
    assert added["widened_projection"] == pytest.approx(whole, rel=0.001)
    assert "layer_tables" not in load_overhead(model, older, None, formats, hopper)
    before = older.model_copy(update={"version": "0.5.12"})
    assert "layer_tables" not in load_overhead(model, before, None, formats, instinct)
    assert load_overhead(model, older, None, formats, hopper, 8)["widened_projection"] == pytest.approx(
        whole / 8, rel=0.001
    )
    assert "widened_projection" not in load_overhead(model, older, None, formats, blackwell)
    assert "widened_projection" not in load_overhead(model, newer, None, formats, instinct)
    assert "widened_projection" in load_overhead(model, newer, None, formats, catalog.accelerator("mi300x"))


def test_sglangs_data_parallel_attention_divides_heads_and_shared_experts_over_all_ranks(
    catalog: Catalog,
) -> None:
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    engine = catalog.engine("sglang")
    alone, eight = (rules(engine).component_ranks(model, Layout(data=data)) for data in (1, 8))
    assert alone == {}
    assert eight == {"output_head": 8, "dense_mlp": 8, "shared_experts": 8}
    assert (
        rules(engine).component_ranks(model, Layout(data=8, expert=True, all_to_all="deepep_low_latency"))[
            "shared_experts"
        ]
        == 1
    )
    split = weights_by_component(
        model, None, catalog.weight_formats, 1, expert_ranks=8, component_ranks=eight
    )
    plain = weights_by_component(model, None, catalog.weight_formats, 8)
    whole = weights_by_component(model, None, catalog.weight_formats)
    assert split["output_head"] == plain["output_head"]
    assert split["shared_experts"] == plain["shared_experts"]
    assert split["attention"] == whole["attention"]
    assert split["embedding"] == whole["embedding"]


@pytest.mark.parametrize(
    ("device", "ranks", "taken"),
    [
        ("dgx-spark-gb10", 1, 10_000_000_000),
        ("rtx-4090", 2, 730_000_000),
        ("b200-sxm-180gb", 8, 2_330_000_000),
    ],
)
def test_what_sglang_finds_taken_depends_on_links_and_host(
    catalog: Catalog, device: str, ranks: int, taken: int
) -> None:
    # 112.3 of 121.6 GiB are available on a DGX Spark (obs-074, seen-022); two RTX 4090 on PCIe print 0.19 GB (fresh-104).
    found = rules(catalog.engine("sglang"))
    gpu = catalog.accelerator(device)
    static = found.static_memory(gpu, Layout(tensor=ranks))
    assert static is not None
    assert gpu.usable_bytes - static.free_bytes == taken


def test_vllm_measures_what_is_free_itself(catalog: Catalog) -> None:
    gpu = catalog.accelerator("dgx-spark-gb10")
    assert rules(catalog.engine("vllm")).static_memory(gpu, Layout()) is None


@pytest.mark.parametrize(("version", "counted"), [("0.26.0", False), ("0.27.1", True), ("0.33.0", True)])
def test_the_second_runner_s_counts_of_words_are_charged_with_all_that_stays(
    catalog: Catalog, version: str, *, counted: bool
) -> None:
    """Two counts of each word for every request that may run: 1.1 GiB of Qwen3.5's 248,320 words at 1,024 requests."""
    model, engine = catalog.model("Qwen/Qwen3-32B"), release(version)
    rates = read_rates(model, engine)
    assert rates.counted_per_row == (151_936 * (4 + 1 / 8) if counted else 0)
    # A model of the first runner keeps none.
    mixture = catalog.model("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    assert read_rates(mixture, release("0.28.0")).counted_per_row == 0
    assert read_rates(mixture, release("0.29.0")).counted_per_row == 151_936 * 4.125


@pytest.mark.parametrize(
    ("version", "alone", "split"),
    # A 32-bit copy of all logits up to 0.27; since 0.28 nothing but the logits, of all ranks and in order beside a rank's
    # own; since 0.33 every parameter is set.
    [("0.27.1", 6, 6), ("0.28.0", 2, 5), ("0.32.0", 2, 5), ("0.33.0", 14, 14)],
)
def test_logits_of_the_second_runner_by_release(
    catalog: Catalog, version: str, alone: int, split: int
) -> None:
    model, engine = catalog.model("Qwen/Qwen3-32B"), release(version)
    assert read_rates(model, engine).sampling_per_row == alone * 151_936
    assert read_rates(model, engine, Told(tensor_parallel=2)).sampling_per_row == split * 151_936


@pytest.mark.parametrize(
    ("version", "model", "rows", "consumed_gib"),
    [
        # Consumed beside weights and peak at first starts of 0.29 and 0.30 on Blackwell cards (late-010: 8.59 of which 7.64
        # are weights; nov-016 by its pool): the embedding table's copy stays, and counts of words.
        ("0.29.0", "Qwen/Qwen3-4B", 256, 8.59 - 7.64),
    ],
)
def test_a_freed_copy_is_charged_once_more(
    catalog: Catalog, version: str, model: str, rows: int, consumed_gib: float
) -> None:
    record = catalog.model(model)
    arguments = {"max_batched_tokens": 2048, "max_seqs": rows}
    first = reserve(record, release(version), splits=True, **arguments).activations
    once = reserve(record, release("0.31.0"), splits=True, **arguments).activations
    later = reserve(record, release(version), compiled=True, splits=True, **arguments).activations
    table = 151_936 * 2560 * 2
    assert first - once == table
    assert later < once
    kept = table + rows * 151_936 * 4.125
    assert kept / GIB == pytest.approx(consumed_gib, abs=0.1)


def test_a_large_workspace_is_cut_out_of_a_freed_copy(catalog: Catalog) -> None:
    """Qwen3-14B-AWQ under 0.28.0: 1.45 GiB more are consumed on an RTX 5090 (first-029) than on an L4 (autumn-004).

    Qwen3-8B under 0.30.0 on an A10G (first-005) consumed 15.52 GiB, of which 15.27 are weights: no copy is left there.
    """
    record = catalog.model("Qwen/Qwen3-14B-AWQ")
    step = EngineStep(max_batched_tokens=2048, max_seqs=256, layout=Layout())
    engine = rules(release("0.28.0"))
    found = {
        name: engine.reserve(record, catalog.accelerator(name), step).activations
        for name in ("l4", "rtx-4090", "rtx-5090", "h100-sxm-80gb", "mi300x")
    }
    table = 151_936 * 5120 * 2
    assert found["rtx-5090"] == found["h100-sxm-80gb"] == found["l4"] + table
    assert found["rtx-4090"] == found["l4"]
    assert [large_workspace(catalog.accelerator(name)) for name in found] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("name", "gpu", "tokens", "stays"),
    [
        (
            "Qwen/Qwen3-1.7B",
            "rtx-4090",
            2048,
            True,
        ),  # apron-020: results of 8 MiB, and 0.58 GiB more stay than are counted.
        ("Qwen/Qwen3-1.7B", "l4", 2048, True),  # apron-021.
        (
            "Qwen/Qwen2.5-1.5B-Instruct",
            "t4",
            2048,
            True,
        ),  # finch-029, and finch-083 on an RTX 4090: results of 6 MiB.
        ("openai/gpt-oss-20b", "rtx-4090", 2048, True),  # apron-008: 11 MiB, attention in 16 bits.
        ("meta-llama/Llama-3.1-8B-Instruct", "rtx-4090", 2048, False),  # apron-017: 16 MiB.
        ("Qwen/Qwen2.5-7B-Instruct", "rtx-3090", 2048, False),  # teal-003: 14 MiB.
        ("Qwen/Qwen3-32B", "a100-pcie-80gb", 2048, False),  # apron-014: 20 MiB.
        (
            "Qwen/Qwen3-0.6B-FP8",
            "rtx-4090",
            2048,
            False,
        ),  # apron-019: two of 4 MiB leave 12 of a piece of 20.
        ("Qwen/Qwen2.5-3B-Instruct-AWQ", "rtx-4090", 2048, True),  # eve-004: two of 8 MiB leave 4.
        (
            "Qwen/Qwen2.5-7B-Instruct-AWQ",
            "l4",
            2048,
            False,
        ),  # first-010: 14 MiB, of which the head's workspace is cut.
        ("Qwen/Qwen3-8B-AWQ", "rtx-5070ti", 2048, True),  # nov-016: results of 16 MiB, a workspace of 32.
        ("Qwen/Qwen3-8B-AWQ", "h100-sxm-80gb", 8192, False),  # apron-009: results of 64 MiB hold it.
        (
            "Qwen/Qwen3-32B",
            "h100-sxm-80gb",
            8192,
            True,
        ),  # apron-015: its layers take it while both results are in use.
        ("Qwen/Qwen3-1.7B", "mi300x", 2048, False),
    ],
)
def test_a_copy_is_left_where_no_other_piece_holds_the_workspace(
    catalog: Catalog, name: str, gpu: str, tokens: int, stays: bool
) -> None:
    model, engine, device = catalog.model(name), release("0.29.0"), catalog.accelerator(gpu)
    rates = read_rates(model, engine, Told(vendor=device.vendor.upper()))
    step = EngineStep(max_batched_tokens=tokens, max_seqs=256, layout=Layout())
    found = kernel_step(OnDevice.of(device), step, 2048)
    without = kernel.activation_bytes(rates._replace(left_copy=0.0), found)
    table = model.vocabulary * model.hidden_size * 2
    assert kernel.activation_bytes(rates, found) - without == stays * table


def test_places_of_picked_tokens_are_kept_by_every_layer(catalog: Catalog) -> None:
    """Flash-Next on eight H100 under 0.31.1 (nov-006): loading printed 31.42 GiB where the weights are 30.66."""
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    named = rules(catalog.engine("vllm-0.32")).at_release("0.31.0")
    engine = rules(named).at_release("0.31.0")
    bare = engine.model_copy(update={"architectures": {"picks_kept": ()}})
    more = read_rates(model, engine, Told(images=False)).streams_per_token
    more -= read_rates(model, bare, Told(images=False)).streams_per_token
    assert more == 12 * (2048 + 4) * 4
    assert 8192 * more / GIB == pytest.approx(31.42 - 30.66, abs=0.02)


def test_inner_features_of_a_vision_tower_are_kept_for_one_step(catalog: Catalog) -> None:
    # Loading printed 58.23 GiB of Qwen3-VL-30B on an H100 NVL (held-013), where the weights are 58.12.
    model = catalog.model("Qwen/Qwen3-VL-30B-A3B-Instruct")
    kept = read_rates(model, release("0.13.0")).streams_per_token
    assert kept == 3 * 2048 * 2
    assert 8192 * kept / GIB == pytest.approx(58.23 - 58.12, abs=0.02)


def test_adapters_have_slots_for_the_vocabulary_where_the_class_names_them() -> None:
    # Llama 3.1 8B on an A100 with two slots of rank 16: 15.1749 GiB were loaded by 0.8.2, 14.99 without (held-034);
    # 0.9.0 has the same slots.
    from kvreport.estimation.estimate import estimate

    def slots(model: str, version: str) -> int:
        asked = {"gpu": "a100-sxm4-80gb", "context_tokens": 8192, "engine": f"vllm@{version}"}
        found = estimate(model, max_loras=2, max_lora_rank=16, **asked).budget.weights
        return found - estimate(model, **asked).budget.weights

    llama = slots("meta-llama/Llama-3.1-8B-Instruct", "0.9.0")
    assert llama / GIB == pytest.approx(15.1749 - 14.99, abs=0.02)
    vocabulary = 2 * 2 * 16 * (151_936 + 4096) * 2
    assert slots("Qwen/Qwen3-8B", "0.20.2") - slots("Qwen/Qwen3-8B", "0.19.1") == vocabulary
    # A head that is the embedding itself is found under both names, in every release from 0.20 to 0.27.
    tied = [slots("Qwen/Qwen3-4B", version) for version in ("0.20.2", "0.25.1", "0.26.0", "0.27.1", "0.28.0")]
    assert tied[0] == tied[1] == tied[2] == tied[3] > tied[4]


@pytest.mark.parametrize(
    ("version", "gpu", "written_out"),
    [
        ("0.28.0", "rtx-a6000", True),
        ("0.28.0", "l20", False),
        ("0.29.0", "l20", True),
        ("0.29.0", "h100-sxm-80gb", False),
        ("0.29.0", "rtx-5090", False),
    ],
)
def test_marlin_has_a_scale_for_every_column_of_an_fp8_block(
    catalog: Catalog, version: str, gpu: str, *, written_out: bool
) -> None:
    """Counted from the source; it takes first-025 and first-026 (0.29.0, L20 and RTX A6000) from 7.3% and 6.0% to 3.4% and 3.0%."""
    model, engine = catalog.model("Qwen/Qwen3.8-27B-FP8"), catalog.engine(f"vllm@{version}")
    added = load_overhead(model, engine, None, catalog.weight_formats, catalog.accelerator(gpu))
    assert added.get("grouped_scales", 0) / GIB == pytest.approx(0.349 * written_out, abs=0.005)


def test_experts_have_scales_of_columns_below_capability_8_9_only(catalog: Catalog) -> None:
    model = catalog.model("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8")
    engine = catalog.engine("vllm@0.29.0")
    found = {
        gpu: load_overhead(model, engine, None, catalog.weight_formats, catalog.accelerator(gpu))[
            "grouped_scales"
        ]
        for gpu in ("rtx-3090", "rtx-4090")
    }
    experts = 48 * 128 * 3 * 2048 * 768
    assert found["rtx-3090"] - found["rtx-4090"] == pytest.approx(experts * (2 / 128 - 4 / 128**2), rel=0.001)


def test_a_head_that_is_the_embedding_has_slots_under_both_names(catalog: Catalog) -> None:
    """Qwen3-4B under 0.27.1 on an RTX 4090: 64 slots of rank 16 load 12.49 GiB (first-003), where two places made 12.03."""
    model, rank = catalog.model("Qwen/Qwen3-4B"), 16
    found = {version: catalog.engine(f"vllm@{version}") for version in ("0.20.2", "0.27.1", "0.28.0")}
    places = {version: vocabulary_modules(engine, model) for version, engine in found.items()}
    assert places == {"0.20.2": 3, "0.27.1": 3, "0.28.0": 2}
    one = (model.vocabulary + model.hidden_size) * 2
    assert vocabulary_slots(model, 1, rank, 3) == 3 * rank * one
    assert (
        vocabulary_modules(found["0.27.1"], catalog.model("Qwen/Qwen3-8B")) == 2
    )  # its head is a matrix of its own
    assert vocabulary_modules(found["0.27.1"], catalog.model("google/gemma-3-27b-it")) == 0


def test_compiling_copies_tables_of_n_grams_that_lie_on_the_device(catalog: Catalog) -> None:
    # Flash-Next under builds before 0.30: a first start lacks tens of GiB per GPU that a second one has (vLLM issue 54122).
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 8, "tensor_parallel": 4, "images": False}
    before = reserve(model, release("0.29.0"), **arguments).activations
    before -= read_rates(
        model, release("0.29.0"), Told(4, images=False)
    ).left_copy  # The table of words stays, too.
    assert before / GIB == pytest.approx(320_001_536 * 160 * 2 / 4 / GIB, abs=0.3)
    hosted = rules(catalog.engine("vllm@0.30.0")).at_release("0.30.0")
    assert reserve(model, hosted, **arguments).activations < 2 * GIB


def test_images_are_prepared_in_memory_that_a_device_shares_with_a_cpu(catalog: Catalog) -> None:
    engine = release("0.27.1", non_framework_bytes=100, unified_bytes=1000)
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256, "device_class": "unified"}
    seeing, reading = catalog.model("Qwen/Qwen3.8-27B"), catalog.model("Qwen/Qwen3-8B")
    assert reserve(reading, engine, **arguments).non_framework == 100 + 1000
    assert reserve(seeing, engine, **arguments).non_framework == 100 + 3000
    assert reserve(seeing, engine, images=False, **arguments).non_framework == 100 + 1000


def test_windows_that_rotate_on_their_own_have_a_table_of_their_own(catalog: Catalog) -> None:
    """Gemma 3 1B: 32,768 positions, heads of 256 values, 16 bits, twice; held-017 of 0.13 printed 1.9148 GiB."""
    record, formats = catalog.model("google/gemma-3-1b-it"), catalog.weight_formats
    engine = engine_for_version(catalog.engines.values(), "vllm", "0.13.0")
    assert engine is not None
    added = load_overhead(record, engine, None, formats, catalog.accelerator("l4"))
    assert added["position_table"] == 2 * 32_768 * 256 * 2
    assert (weight_bytes(record, None, formats) + sum(added.values())) / GIB == pytest.approx(
        1.9148, abs=0.002
    )
    # gpt-oss asks for 32 bits, 131,072 positions of heads of 64 values.
    oss = load_overhead(catalog.model("openai/gpt-oss-20b"), engine, None, formats, catalog.accelerator("l4"))
    assert oss["position_table"] == 131_072 * 64 * 4


@pytest.mark.parametrize(
    ("model", "heads", "width", "rows", "estimated_gib"),
    [
        # CUDA graphs as starts on an H100 under 0.29 and 0.30 estimated them (apron-015, -009, -004, -002); 64, 36, 64 and 36
        # layers. The rest is 10 to 18 MiB per layer, as on devices without these kernels.
        ("Qwen/Qwen3-32B", 64, 128, 512, 2.19),
        ("Qwen/Qwen3-8B-AWQ", 32, 128, 512, 0.96),
        ("Qwen/Qwen3.8-27B", 24, 256, 275, 1.09),
        ("openai/gpt-oss-120b", 64, 64, 512, 0.80),
    ],
)
def test_graphs_on_hopper_hold_partial_results_of_attention_twice(
    catalog: Catalog, model: str, heads: int, width: int, rows: int, estimated_gib: float
) -> None:
    record = catalog.model(model)
    seqs = 1024 if rows == 512 else rows
    step = EngineStep(max_batched_tokens=8192, max_seqs=seqs, layout=Layout())
    engine = rules(release("0.30.0"))
    found = {
        name: engine.reserve(record, catalog.accelerator(name), step).graphs
        for name in ("h100-sxm-80gb", "a100-sxm4-80gb", "rtx-pro-6000")
    }
    assert found["h100-sxm-80gb"] == 2 * 32 * heads * width * 4 * rows
    assert found["a100-sxm4-80gb"] == found["rtx-pro-6000"] == 0
    rest = estimated_gib - found["h100-sxm-80gb"] / GIB
    assert 7 < 1024 * rest / record.layer_count < 20


def test_heads_wider_than_256_have_no_partial_results(catalog: Catalog) -> None:
    """Gemma 4 31B on an H100 (apron-001) estimated 0.76 GiB for 60 layers: 13 MiB each, and nothing beside."""
    engine = release("0.29.0")
    assert read_rates(catalog.model("google/gemma-4-31B-it"), engine).partial_per_row == 0
    # The second runner estimates nothing up to 0.28, so that nothing is taken off.
    assert read_rates(catalog.model("Qwen/Qwen3-32B"), release("0.27.1")).partial_per_row == 0


@pytest.mark.parametrize("version", ["0.20.0", "0.30.0", "0.33.0"])
def test_images_attended_to_both_ways_have_no_partial_results(catalog: Catalog, version: str) -> None:
    """FlashAttention 3 serves the text models of the same shape, and not Gemma 3 (``is_mm_prefix_lm``)."""
    record = catalog.model("google/gemma-3-27b-it")
    engine = catalog.engine(f"vllm@{version}")
    assert read_rates(record, engine).partial_per_row == 0
    text = record.model_copy(update={"architecture": "Gemma3ForCausalLM"})
    assert read_rates(text, engine).partial_per_row > 0


def test_the_partial_results_of_128_heads_are_as_measured(catalog: Catalog) -> None:
    """The first whole graph of four layers took 4,224 MiB on an H200 under 0.26.0, and 2,134 with at most 256 requests."""
    per_row = read_rates(catalog.model("deepseek-v3"), release("0.26.0")).partial_per_row
    assert per_row * 512 == 4096 * 2**20
    assert per_row * 256 == 2048 * 2**20


@pytest.mark.parametrize(
    ("model", "heads", "width", "estimated_gib"),
    [
        # The first runner of 0.26 on an H100 and three H200 (own-002 to own-005); 24, 47, 64 and 52 layers, two units of each
        # latent layer. What is left of the estimate is 0.05 to 0.14 MB per unit and graph, of 102 graphs.
        ("openai/gpt-oss-20b", 64, 64, 0.53),
        ("zai-org/GLM-4.7-Flash", 20, 512, 1.64),
        ("Qwen/Qwen3.5-27B", 24, 256, 0.96),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 32, 128, 0.64),
    ],
)
def test_the_first_runner_counts_partial_results_once(
    catalog: Catalog, model: str, heads: int, width: int, estimated_gib: float
) -> None:
    record = catalog.model(model)
    step = EngineStep(max_batched_tokens=8192, max_seqs=1024, layout=Layout())
    hopper, ampere = catalog.accelerator("h200-sxm-141gb"), catalog.accelerator("a100-sxm4-80gb")
    engine = rules(release("0.26.0", graph_bytes_per_layer=300_000))
    units = graph_layers(Shape.of(record)) * 102
    graphs = engine.reserve(record, hopper, step).graphs
    assert graphs == 32 * heads * width * 4 * 512 + 105_000 * units
    assert graphs / GIB == pytest.approx(estimated_gib, abs=0.14)
    assert engine.reserve(record, ampere, step).graphs == 300_000 * units
    assert rules(release("0.19.0")).reserve(record, hopper, step).graphs == 0


@pytest.mark.parametrize(
    ("model", "version", "heads", "counted"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "0.24.0", 128, 0),
        ("deepseek-ai/DeepSeek-V3.2", "0.25.0", 128, 1),
        ("deepseek-ai/DeepSeek-V3.2", "0.33.0", 128, 2),
        ("zai-org/GLM-5.3", "0.30.0", 64, 2),
        # Rows of 512 numbers are other kernels'.
        ("zai-org/GLM-5.3-Flash", "0.30.0", 64, 0),
        ("deepseek-ai/DeepSeek-V4-Flash", "0.30.0", 64, 0),
    ],
)
def test_picked_tokens_of_a_latent_are_divided_by_their_number(
    catalog: Catalog, model: str, version: str, heads: int, counted: int
) -> None:
    """2,048 tokens are 32 blocks of 64, and 28 parts keep 0.85 of the multiprocessors busy that 32 would."""
    record, engine = catalog.model(model), release(version)
    rates = read_rates(record, engine)
    assert rates.partial_per_row == counted * 28 * heads * 512 * 4
    assert rates.narrow_per_row == counted * 27 * heads * 512 * 4
    # Where ranks divide a context, FlashMLA's kernel runs.
    assert read_rates(record, engine, Told(tensor_parallel=8, decode_context=8)).partial_per_row == 0
    assert rules(engine).reserve_follows_cache(record) or not counted


@pytest.mark.parametrize(("version", "counted"), [("0.28.0", 1), ("0.30.0", 2)])
def test_latents_in_fp8_keep_one_result_for_each_request(
    catalog: Catalog, version: str, counted: int
) -> None:
    """FlashMLA serves them on Hopper, with one part for each request where FlashAttention has 32."""
    engine = rules(release(version))
    step = EngineStep(max_batched_tokens=8192, max_seqs=1024, layout=Layout(data=8, expert=True))
    narrow = replace(step, narrow_cache=True)
    record = catalog.model("deepseek-ai/DeepSeek-V3")

    def graphs(model: Model, name: str, step: EngineStep) -> int:
        found: int = engine.reserve(model, catalog.accelerator(name), step).graphs
        return found

    one = counted * 512 * 128 * 512 * 4
    beside = 105_000 * graph_layers(Shape.of(record)) * 102 if counted == 1 else 0
    assert graphs(record, "h200-sxm-141gb", step) == 32 * one + beside
    assert graphs(record, "h200-sxm-141gb", narrow) == one + beside
    assert graphs(record, "b200-sxm-180gb", step) == graphs(record, "b200-sxm-180gb", narrow) == 0
    # Heads in FP8 are FlashAttention's, too.
    assert engine.reserve_follows_cache(record)
    assert not engine.reserve_follows_cache(catalog.model("Qwen/Qwen3-32B"))


def test_several_residual_streams_take_as_much_on_hopper_as_elsewhere(catalog: Catalog) -> None:
    step = EngineStep(max_batched_tokens=8192, max_seqs=1024, layout=Layout())
    engine = rules(release("0.26.0", graph_bytes_per_layer=3))
    record = catalog.model("deepseek-ai/DeepSeek-V4-Flash")
    for name in ("h200-sxm-141gb", "a100-sxm4-80gb"):
        found = engine.reserve(record, catalog.accelerator(name), replace(step, context_tokens=0)).graphs
        assert found == 3 * graph_layers(Shape.of(record)) * 102


@pytest.mark.parametrize(
    ("name", "version", "gpu", "rows", "bytes_each"),
    [
        # One key for each token; the first runner counts them once (0.24.0), the second twice (0.33.0).
        ("zai-org/GLM-5.2", "0.24.0", "h200-sxm-141gb", 512, 4.0),
        # Logits of 16 bits are copied to 32 on data-center Blackwell GPUs since 0.33.0.
        ("zai-org/GLM-5.2", "0.32.0", "b200-sxm-180gb", 1024, 8.0),
        ("zai-org/GLM-5.2", "0.33.0", "b200-sxm-180gb", 1024, 12.0),
        # Four tokens share a key; the first runner serves the model.
        ("deepseek-ai/DeepSeek-V4-Flash", "0.24.0", "h200-sxm-141gb", 512, 1.0),
        # Layers with one key for two tokens, and later ones with one for each (brook-012).
        ("deepseek-ai/DeepSeek-V4.1-Flash", "0.31.0", "b300-sxm-288gb", 1024, 12.0),
        # AMD's kernels write to the workspace; a dense model has no indexer.
        ("deepseek-ai/DeepSeek-V4-Flash", "0.24.0", "mi355x", 512, 0.0),
        ("Qwen/Qwen3-32B", "0.28.0", "h200-sxm-141gb", 512, 0.0),
    ],
)
def test_a_graph_keeps_scores_of_the_longest_request(
    catalog: Catalog, name: str, version: str, gpu: str, rows: int, bytes_each: float
) -> None:
    """``[rows, max_model_len // stride]`` of 32 bits (``layers/sparse_attn_indexer.py``), given back within the graphs' pool."""
    engine, record, device = rules(release(version)), catalog.model(name), catalog.accelerator(gpu)
    step = EngineStep(max_batched_tokens=8192, max_seqs=4096, layout=Layout())

    def graphs(length: int, step: EngineStep) -> int:
        found: int = engine.reserve(record, device, replace(step, context_tokens=length)).graphs
        return found

    grown = graphs(1_048_576, step) - graphs(4096, step)
    assert grown == pytest.approx(rows * bytes_each * (1_048_576 - 4096), abs=2)
    fewer = replace(step, max_seqs=16)
    assert graphs(1_048_576, fewer) - graphs(4096, fewer) == pytest.approx(
        16 * bytes_each * (1_048_576 - 4096), abs=2
    )
    assert graphs(1_048_576, replace(step, eager=True)) == 0


def test_latents_have_partial_results_as_wide_as_they_are(catalog: Catalog) -> None:
    """GLM-4.7-Flash on an H100 (apron-003): 32 parts, 20 heads and 512 numbers of 32 bits, twice for each of 512 tokens."""
    engine = release("0.29.0")
    record = catalog.model("zai-org/GLM-4.7-Flash")
    assert read_rates(record, engine).partial_per_row == 2 * 32 * 20 * 512 * 4
    assert read_rates(record, engine, Told(tensor_parallel=4)).partial_per_row == 2 * 32 * 5 * 512 * 4
    assert read_rates(record, release("0.26.0")).partial_per_row == 32 * 20 * 512 * 4
    # Ranks that divide a context gather the heads of their group.
    assert (
        read_rates(record, engine, Told(tensor_parallel=4, decode_context=2)).partial_per_row
        == 2 * 32 * 10 * 512 * 4
    )
    # The attention of MiniCPM3 is that of plain heads: nothing is expanded.
    newest = catalog.engine("vllm")
    assert read_rates(catalog.model("openbmb/MiniCPM3-4B"), newest).partial_per_row == 0
    assert read_rates(catalog.model("openbmb/MiniCPM3-4B"), newest).expanded == 0


@pytest.mark.parametrize(
    ("context", "requests", "tokens"),
    [
        # DeepSeek-V2-Lite on an A100 (apron-016): its peak of 0.41 GiB leaves no room for 64K tokens (0.5 GiB).
        (640, 256, 16_384),
        (4096, 256, 32_768),
        (8192, 16, 65_536),
        (100, 1, 800),
        (101, 1, 816),
        (640, 1024, 65_536),
        (1_048_576, 4, 65_536),
    ],
)
def test_latents_of_eight_longest_requests_are_expanded(context: int, requests: int, tokens: int) -> None:
    """``min(max(8 * max_model_len, 4 * max_num_seqs * block_size), 64K)``, in blocks of 16."""
    rates = kernel.ReserveRates(*(0.0,) * len(kernel.ReserveRates._fields))._replace(
        expanded=1.0, images=1, largest_capture=512, shared=1
    )
    step = kernel.ReserveStep(1, requests, context, False, False, False, False, True, False)
    assert kernel.activation_bytes(rates, step) == tokens


@pytest.mark.parametrize(
    ("release", "context", "requests", "logits"),
    [
        ("0.30.0", 1_048_576, 256, 256 * 1_048_576 * 4),
        ("0.31.0", 1_048_576, 1024, 1024 * 262_144 * 4),
        ("0.33.0", 1_048_576, 1024, 1024 * 262_144 * 4),
        ("0.33.0", 1_048_576, 256, 512 << 20),
        ("0.33.0", 32_768, 1024, 512 << 20),
    ],
)
def test_the_measuring_run_of_pooled_indexers_has_logits_of_all_requests(
    catalog: Catalog, release: str, context: int, requests: int, logits: int
) -> None:
    """GLM-5.3 Flash: ``max(max_num_seqs * max_pool_len * 4, VLLM_SPARSE_INDEXER_MAX_LOGITS_MB)``, in 0.30 of ``max_model_len``."""
    record = catalog.model("zai-org/GLM-5.3-Flash")
    engine = catalog.engine(f"vllm@{release}")
    rates = read_rates(record, engine, Told(images=False))._replace(sampling_per_row=0.0, buffer_per_row=0.0)
    step = kernel.ReserveStep(8192, requests, context, True, False, False, True, True, False)
    without = rates._replace(index_logits=0.0, index_logits_per_row=0.0)
    assert kernel.activation_bytes(rates, step) - kernel.activation_bytes(without, step) == logits


def test_a_short_longest_request_spares_expanded_latents(catalog: Catalog) -> None:
    """DeepSeek-V2-Lite on an A100: 16 heads of 256 numbers for 32K tokens, not for 64K."""
    record = catalog.model("deepseek-ai/DeepSeek-V2-Lite")
    step = EngineStep(max_batched_tokens=2048, max_seqs=16, layout=Layout(), compiled=True)
    engine = rules(release("0.28.0"))
    found = {
        length: engine.reserve(
            record, catalog.accelerator("a100-pcie-80gb"), replace(step, context_tokens=length)
        )
        for length in (2048, 4096, 8192)
    }
    more = found[8192].activations - found[4096].activations
    assert more == 32_768 * 16 * 256 * 2
    assert found[8192].activations > found[4096].activations >= found[2048].activations


def test_latents_are_expanded_while_memory_is_measured_since_0_11(catalog: Catalog) -> None:
    """Until 0.10.2 the measuring run returned from latent attention at once."""
    record = catalog.model("deepseek-ai/DeepSeek-V2-Lite")
    assert read_rates(record, release("0.10.2")).expanded == 0
    assert read_rates(record, release("0.11.0")).expanded == 16 * 256 * 2


def test_experts_leave_the_freed_copy_reserved_too(catalog: Catalog) -> None:
    """gpt-oss-120b on an H100 under 0.29.0 (apron-002): 2.20 GiB stay beside weights, of which 1.08 are that copy."""
    record = catalog.model("openai/gpt-oss-120b")
    arguments = {"max_batched_tokens": 8192, "max_seqs": 1024}
    table = 201_088 * 2880 * 2
    held = reserve(record, release("0.29.0"), splits=True, **arguments).activations
    assert held - reserve(record, release("0.29.0"), **arguments).activations == table
    counted = 1024 * 201_088 * 4.125
    assert (table + counted) / GIB == pytest.approx(2.20, abs=0.4)


def test_since_0_17_a_triton_kernel_samples_where_flashinfer_is_missing(catalog: Catalog) -> None:
    # gpt-oss-20b at 16 bits on one H100 under 0.26.0 without FlashInfer: "torch peak memory increase: 3.4GiB" (own-002).
    # Sorting all logits of 1,024 requests would take 7.8 GB, as it does up to 0.16.
    model = catalog.model("openai/gpt-oss-20b")
    arguments = {"max_batched_tokens": 8192, "max_seqs": 1024}
    found = reserve(model, release("0.26.0"), sorts=True, **arguments)
    assert found == reserve(model, release("0.26.0"), **arguments)
    assert found.activations / GIB == pytest.approx(3.4, abs=0.1)
    assert reserve(model, release("0.16.0"), sorts=True, **arguments).activations > 2 * found.activations


def test_the_second_runner_samples_from_16_bit_logits_in_0_26_alone(catalog: Catalog) -> None:
    # v1/worker/gpu/sample/sampler.py: 0.25.0 and 0.27.1 copy logits to 32 bits, 0.26.0 changes them in place.
    model = catalog.model("meta-llama/Llama-3.1-8B")
    rates = [
        read_rates(model, release(one)).sampling_per_row for one in ("0.25.0", "0.26.0", "0.27.1", "0.28.0")
    ]
    assert [one / model.vocabulary for one in rates] == [6, 2, 6, 2]


def test_only_nvidia_s_devices_keep_whole_rests(catalog: Catalog) -> None:
    model, form, formats = (
        catalog.model("openai/gpt-oss-20b"),
        catalog.weight_format("bf16"),
        catalog.weight_formats,
    )
    for version, gpu, kept in (
        ("0.26.0", "h100", True),
        ("0.20.2", "h100", False),
        ("0.26.0", "mi300x", False),
    ):
        added = load_overhead(
            model, catalog.engine(f"vllm@{version}"), form, formats, catalog.accelerator(gpu), 1
        )
        assert ("allocated_blocks" in added) is kept


@pytest.mark.parametrize(
    ("name", "version", "tokens", "peak_gib"),
    [
        ("meta-llama/Llama-3.1-8B", "0.26.0", 8192, 1_184_948_736 / GIB),  # own-001, an H100
        ("Qwen/Qwen3-32B", "0.29.0", 2048, 1.49),  # apron-014, an A100
        ("Qwen/Qwen3-32B", "0.29.0", 8192, 1.61),  # apron-015, an H100
        ("meta-llama/Llama-3.1-8B-Instruct", "0.29.0", 2048, 1.01),  # apron-017, an RTX 4090
        ("Qwen/Qwen3-1.7B", "0.29.0", 2048, 0.60),  # apron-020 and -021
    ],
)
def test_compiling_measures_a_kernel_with_what_it_writes(
    catalog: Catalog, name: str, version: str, tokens: int, peak_gib: float
) -> None:
    model = catalog.model(name)
    rates = read_rates(model, release(version))
    assert (rates.compiling + rates.compiling_per_token * tokens) / GIB == pytest.approx(peak_gib, abs=0.006)
    assert (
        read_rates(model, release(version), Told(tensor_parallel=2)).compiling_per_token
        == 2 * model.hidden_size
    )
    assert read_rates(model, release("0.25.0")).compiling_per_token == 0


def test_an_answer_says_what_graphs_of_latents_keep_on_hopper() -> None:
    def told(gpu: str, **asked: Any) -> list[str]:
        answer = estimate(
            "deepseek-ai/DeepSeek-V3", gpu=gpu, context_tokens="32K", tensor_parallel=8, **asked
        )
        return [one for one in answer.to_dict()["assumptions"] if "partial results of attention" in one]

    assert len(told("H200")) == 1
    assert "1.0 GiB" in told("H200")[0]
    assert not told("H200", kv="fp8")
    assert not told("H200", eager=True)
    assert not told("H200", max_seqs=64)
    assert not told("B200")


def sending(gpu: str = "h200", **options: Any) -> Any:
    """DeepSeek-V3 on eight data ranks, whose experts get their own tokens alone."""
    return gathering(gpu, all2all_backend="deepep_high_throughput", **options)


def gathering(gpu: str = "h200", release: str = "0.33.0", **options: Any) -> Any:
    """The same with vLLM's default exchange."""
    asked = {"data_parallel": 8, "expert_parallel": True, "context_tokens": 8192}
    model = options.pop("model", "deepseek-ai/DeepSeek-V3")
    return kvreport.estimate(model, gpu=gpu, engine=f"vllm@{release}", **asked | options)


@pytest.mark.parametrize(
    ("model", "gpu", "tokens", "each"),
    [
        # Eight choices of two buffers 7168 wide, and the hidden state that is sent, 16 bits each.
        ("deepseek-ai/DeepSeek-V3", "h200", 8192, 8 * (7168 + 7168) * 2 + 7168 * 2),
        ("deepseek-ai/DeepSeek-V3", "h200", 16384, 8 * (7168 + 7168) * 2 + 7168 * 2),
        # FlashInfer: each choice's inner side in 8 bits and output in 16, one output of all, and the hidden state.
        ("Qwen/Qwen3-235B-A22B", "b200", 16384, 8 * (1536 + 4096 * 2) + 4096 * 2 + 4096 * 2),
    ],
)
def test_experts_of_data_ranks_take_the_tokens_of_all_of_them(
    model: str, gpu: str, tokens: int, each: int
) -> None:
    options = {"model": model, "max_batched_tokens": tokens, "max_seqs": 64, "eager": True}
    more = gathering(gpu, **options).budget.activations - sending(gpu, **options).budget.activations
    assert more == 7 * tokens * each


def test_tokens_are_gathered_without_expert_parallelism_and_since_018() -> None:
    whole = gathering(expert_parallel=False).budget.activations
    assert whole > sending().budget.activations + 7 * GIB
    assert (
        gathering(release="0.17.1").budget.activations
        < gathering(release="0.18.0").budget.activations - 9 * GIB
    )
    tensor = gathering(data_parallel=1, expert_parallel=False, tensor_parallel=8).budget.activations
    assert tensor < sending().budget.activations


@pytest.mark.parametrize(
    ("release", "tokens", "chunked", "each", "output"),
    [
        # Eight choices of an expert's three sides and two outputs, 16 bits each, for a chunk of 32,768 tokens.
        ("0.10.1", 8192, 32768, 8 * (3 * 1536 * 2 + 4096 * 2), 0),
        ("0.12.0", 8192, 16384, 8 * (3 * 1536 * 2 + 4096 * 2), 0),
        # Since 0.13 in buffers that stay, and the output of all chunks beside those of one.
        ("0.17.0", 8192, 16384, 8 * (4096 + 4096) * 2, 8 * 4096 * 2),
        ("0.17.0", 2048, 16384, 8 * (4096 + 4096) * 2, 0),
        ("0.11.1", 4096, 32768, 8 * (3 * 1536 * 2 + 4096 * 2), 0),
    ],
)
def test_experts_before_018_compute_gathered_tokens_in_chunks(
    release: str, tokens: int, chunked: int, each: int, output: int
) -> None:
    """Two starts of eight data ranks under 0.10.1 had 7.2 GiB less for a cache than without the others' tokens (lark-001)."""
    options = {"release": release, "max_batched_tokens": tokens, "max_seqs": 64, "eager": True}
    options |= {"model": "Qwen/Qwen3-235B-A22B"}
    more = gathering(**options).budget.activations - sending(**options).budget.activations
    assert more == (chunked - tokens) * each + 7 * tokens * 4096 * 2 + tokens * output


@pytest.mark.parametrize(
    ("named", "model", "fewer"),
    [
        # 16,384 tokens of the second chunk: eight choices of two buffers and an output 4096 wide, 16 bits each; and all outputs.
        ("0.17.0", "Qwen/Qwen3-235B-A22B", 16384 * 8 * 3 * 4096 * 2 - 32768 * 4096 * 2),
        # 32,768 tokens are one chunk.
        ("0.11.1", "Qwen/Qwen3-235B-A22B", 0),
        ("0.18.0", "Qwen/Qwen3-235B-A22B", 0),
        # One function of Marlin's computes INT4 experts, without chunks.
        ("0.17.0", "moonshotai/Kimi-K2.5", 0),
    ],
)
def test_a_large_step_has_experts_in_chunks(catalog: Catalog, named: str, model: str, fewer: int) -> None:
    """Four H100 under 0.15.1 had 14.0 GiB for a cache, not the 9.8 that a whole step of 32,768 tokens leaves (heron-010)."""

    def activations(tokens: int) -> int:
        step = EngineStep(
            max_batched_tokens=tokens,
            max_seqs=16,
            layout=Layout(tensor=4),
            compiled=True,
            images=False,
            context_tokens=8192,
        )
        found = rules(release(named)).reserve(
            catalog.model(model), catalog.accelerator("h200-sxm-141gb"), step
        )
        return int(found.activations)

    each = (activations(16384) - activations(8192)) / 8192
    assert activations(32768) == pytest.approx(activations(16384) + 16384 * each - fewer, abs=2)


def test_named_kernels_of_experts_compute_in_the_engines_buffers_on_blackwell(catalog: Catalog) -> None:
    """A B300 with Triton's had 27.3 GiB for a cache, 3.3 fewer than with FlashInfer's (heron-008)."""
    record, device = catalog.model("Qwen/Qwen3-235B-A22B"), catalog.accelerator("b300-sxm-288gb")
    step = EngineStep(max_batched_tokens=32768, max_seqs=128, layout=Layout(), compiled=True)
    found = {
        kernels: rules(release("0.19.0").model_copy(update={"expert_kernel": kernels}))
        .reserve(record, device, step)
        .activations
        for kernels in (None, "triton", "marlin")
    }
    assert found["triton"] == found["marlin"] == found[None] + 32768 * 8 * 2 * 4096 * 2


def test_int4_experts_are_marlins_on_every_nvidia_device_up_to_021(catalog: Catalog) -> None:
    """Kimi K2.5 on B200 under 0.15.1: 7.9 GiB beside weights and cache on both kinds of devices (heron-002, heron-004)."""
    record = catalog.model("moonshotai/Kimi-K2.5")
    step = EngineStep(
        max_batched_tokens=32768, max_seqs=128, layout=Layout(tensor=8), compiled=True, images=False
    )
    told = {
        name: rules(release("0.20.2")).reserve(record, catalog.accelerator(name), step).activations
        for name in ("b200-sxm-180gb", "h200-sxm-141gb")
    }
    assert told["b200-sxm-180gb"] == told["h200-sxm-141gb"]
    later = rules(release("0.22.0")).reserve(record, catalog.accelerator("h200-sxm-141gb"), step).activations
    assert later > told["h200-sxm-141gb"] + GIB


@pytest.mark.parametrize(
    ("model", "tokens", "gib"),
    [
        # "GLM-4.6 (K=5120, I=1536, 160 experts) | 16 | 8192 | ... | 20 GiB" and the lines after it.
        ("zai-org/GLM-4.6", 16 * 8192, 20),
        ("zai-org/GLM-4.6", 16 * 16384, 40),
        ("zai-org/GLM-5", 16 * 8192, 24),
        ("zai-org/GLM-5", 32 * 16384, 96),
    ],
)
def test_buffers_of_gathered_tokens_are_as_a_maintainer_computes_them(
    catalog: Catalog, model: str, tokens: int, gib: int
) -> None:
    """vLLM pull request 57270, comment of 2026-09-17: workspace of experts in the worst case, without padding."""
    assert expert_workspace_bytes(Shape.of(catalog.model(model))) * tokens == gib * GIB


@pytest.mark.parametrize("kernels", ["deep_gemm_mega_moe", "flashinfer_moe_ep_cutedsl"])
def test_kernels_that_exchange_tokens_by_themselves_gather_none(kernels: str) -> None:
    plain = gathering("b200").budget.activations
    assert gathering("b200", moe_backend=kernels).budget.activations < plain - 5 * GIB
    assert gathering("b200", moe_backend="flashinfer_trtllm").budget.activations == plain


def test_an_answer_says_what_gathered_tokens_take() -> None:
    def said(found: Any) -> list[str]:
        return [
            one.split(" for ")[0]
            for one in found.to_dict()["assumptions"]
            if "all data-parallel ranks" in one
        ]

    assert said(gathering()) == ["13.0 GiB on each GPU"]
    assert said(gathering(max_batched_tokens=4096)) == ["6.5 GiB on each GPU"]
    assert said(sending()) == []
    assert said(gathering(expert_parallel=False, tensor_parallel=8, data_parallel=1)) == []


def test_a_start_has_the_band_of_what_is_known_of_it(catalog: Catalog) -> None:
    """Drafts, encoders and experts on several ranks are missed by more than a text model on one device."""
    known = {
        "plain": ("meta-llama/Llama-3.1-8B-Instruct", 1),
        "encoder": ("Qwen/Qwen2.5-VL-7B-Instruct", 1),
        "experts": ("Qwen/Qwen3-30B-A3B", 2),
    }
    for kind, (name, ranks) in known.items():
        model = catalog.models[name]
        assert band_kind(model, ranks=ranks, images=True) == kind
        drafting = with_draft(model, model).whole
        assert band_kind(drafting, ranks=ranks, images=True) == "drafted"
    assert band_kind(catalog.models[known["encoder"][0]], ranks=1, images=False) == "plain"
    assert band_kind(catalog.models[known["experts"][0]], ranks=1, images=True) == "plain"


def test_experts_of_data_ranks_have_the_band_of_experts_before_018(catalog: Catalog) -> None:
    """Their logs are as far off as those of experts on several ranks; since 0.18 they are as near as those of one rank."""
    layout = {"data_parallel": 8, "expert_parallel": True}
    for release, kind in (("0.17.0", "experts"), ("0.33.0", "plain")):
        engine = f"vllm@{release}"
        found = kvreport.estimate("Qwen/Qwen3-235B-A22B", gpu="h200", engine=engine, **layout).budget
        share, least = band(catalog.engine(engine), "server", kind)
        reserve = found.activations + found.non_framework + found.graphs
        assert found.uncertainty_bytes == pytest.approx(share * reserve + least, rel=0.02), release
    assert band(catalog.engine("vllm"), "server", "experts") > band(catalog.engine("vllm"), "server", "plain")


def test_devices_of_few_logs_narrow_no_band(catalog: Catalog) -> None:
    engine = catalog.engine("vllm")
    for kind in BANDS:
        of_servers = band(engine, "server", kind)
        assert band(engine, "workstation", kind) == of_servers
        # From ten sources on, starts of all kinds there are what the width was calibrated on.
        for apart in ("unified", "other"):
            assert band(engine, apart, kind)[0] == engine.coefficients[f"uncertainty_share_{apart}"]


def test_no_workspace_is_cut_out_of_a_copied_table_of_n_grams(catalog: Catalog) -> None:
    """dunlin-004: four GPUs with the table on them keep 25.8 GiB beside weights and pool, which is one copy of 23.8."""
    rates = read_rates(catalog.model("Qwen/Qwen3.8-Flash-Next"), release("0.29.0"), Told(4))
    assert rates.compiling == 320_001_536 * 160 * 2 // 4
    assert rates.left_copy == 0


def test_adapters_of_experts_are_divided_as_their_matrices_are(catalog: Catalog) -> None:
    """rook-024: one slot of rank 64 for 512 experts of Nemotron 3 Ultra on eight GPUs; the last matrix is divided by its input."""
    model = catalog.model("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    experts = model.model_copy(
        update={"weights": tuple(row for row in model.weights if row.component == "routed_experts")}
    )
    up, down = 2048 + 5120 // 8, 5120 // 8 + 2048
    assert lora_bytes(experts, Layout(tensor=8), 1, 64) == 512 * 48 * 64 * (up + down) * 2
    spread = lora_bytes(experts, Layout(tensor=8, expert=True), 1, 64)
    assert spread == 512 // 8 * 48 * 64 * 2 * (2048 + 5120) * 2


def test_graphs_are_captured_twice_with_adapters() -> None:
    """vLLM 0.23 captures each size with adapters and without, and estimates both by the one without."""
    plain, adapted = (
        estimate(
            "Qwen/Qwen2.5-7B-Instruct", gpu="l4", engine="vllm@0.23.0", context_tokens=4096, max_loras=loras
        )
        for loras in (0, 8)
    )
    assert adapted.budget.graphs == pytest.approx(2 * plain.budget.graphs, abs=2)
    assert adapted.budget.activations == plain.budget.activations


def test_a_tower_that_rotates_in_32_bits_is_measured_with_four_patches_to_a_token(catalog: Catalog) -> None:
    """Muse Glimmer on an H100 under 0.30.0 (apron-006): the peak is 1.83 GiB, of 8,192 tokens of images."""
    model = catalog.model("meta-models/Muse-Glimmer-30B")
    found = read_rates(model, release("0.30.0"))
    assert found.encoding_per_token == 4 * (2 * 1176 + 18 * 2 * 1536)
    listed = read_rates(model, catalog.engine("vllm@0.30.0"))
    assert 8192 * listed.encoding_per_token / GIB == pytest.approx(1.83, abs=0.08)
