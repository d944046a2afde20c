"""What an engine keeps beside weights and cache, and what loading adds."""

import json

import pytest

from kvreport.accounting.engines.registry import rules
from kvreport.accounting.engines.vllm.reserve import Shape, captured_sizes, own_expert_kernels, reserve
from kvreport.catalog.engine import Engine, engine_for_version, version_number
from kvreport.catalog.load import Catalogue, open_catalogue
from kvreport.errors import InputError
from kvreport.units import GIB
from tests.trunk import budget, load_overhead


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return open_catalogue()


def plain(**coefficients: float) -> Engine:
    """An engine whose every coefficient is 0 unless given."""
    names = [
        "expert_bytes_per_hidden",
        "forward_bytes_per_hidden",
        "forward_bytes_per_inner",
        "graph_bytes_per_expert_layer",
        "graph_bytes_per_indexed_layer",
        "graph_bytes_per_layer",
        "graph_bytes_per_split_layer",
        "non_framework_bytes",
        "non_framework_parallel_bytes",
        "sampling_bytes_per_logit",
        "sorting_bytes_per_logit",
        "uncertainty_bytes",
        "uncertainty_share",
        "vision_bytes_per_width",
    ]
    source = {"covers": ["coefficients"], "title": "made up", "evidence": "derived"}
    return Engine.model_validate_json(
        json.dumps(
            {
                "name": "test",
                "label": "Test",
                "family": "vllm",
                "utilization": 0.9,
                "coefficients": dict.fromkeys(names, 0.0) | coefficients,
                "sources": [source],
            }
        )
    )


def test_the_larger_of_forward_and_sampling_is_the_peak(catalogue: Catalogue) -> None:
    model = catalogue.model("meta-llama/Llama-3.1-8B-Instruct")  # hidden 4096, inner 14336, 128256 tokens
    engine = plain(forward_bytes_per_hidden=2, forward_bytes_per_inner=1, sampling_bytes_per_logit=4)
    long_step = reserve(model, engine, max_batched_tokens=100_000, max_seqs=10)
    assert long_step.activations == 100_000 * (2 * 4096 + 14336)
    many_rows = reserve(model, engine, max_batched_tokens=1000, max_seqs=1000)
    assert many_rows.activations == 1000 * 128_256 * 4
    halved = reserve(model, engine, max_batched_tokens=100_000, max_seqs=10, tensor_parallel=2)
    assert halved.activations == 100_000 * (2 * 4096 + 14336 // 2)


def test_experts_count_as_often_as_a_token_passes_through_them(catalogue: Catalogue) -> None:
    sizes = Shape.of(catalogue.model("openai/gpt-oss-120b"))
    assert (sizes.inner, sizes.expert_inner, sizes.experts_per_token) == (0, 2880, 4)
    engine = plain(forward_bytes_per_inner=1, expert_bytes_per_hidden=3)
    kept = reserve(catalogue.model("openai/gpt-oss-120b"), engine, max_batched_tokens=1000, max_seqs=1)
    assert kept.activations == 1000 * 4 * (2880 + 3 * 2880)


def test_buffers_that_experts_compute_in_come_on_top_of_sampling(catalogue: Catalogue) -> None:
    model = catalogue.model("deepseek-ai/DeepSeek-V4-Flash")  # hidden 4096, 6 experts of 2048, 129280 tokens
    engine = plain(sampling_bytes_per_logit=4).model_copy(update={"expert_workspace_kept": True})
    arguments = {"max_batched_tokens": 1000, "max_seqs": 10, "tensor_parallel": 2}
    sampling = 10 * 129_280 * 4
    buffers = 1000 * 6 * (4096 + 4096) * 2
    assert reserve(model, engine, **arguments).activations == sampling + buffers
    assert reserve(model, engine, own_expert_kernels=True, **arguments).activations == sampling
    released = engine.model_copy(update={"expert_workspace_kept": False})
    assert reserve(model, released, **arguments).activations == sampling
    # The inner sides take over where they are wider than the model: a whole expert's is 2 x 2048.
    dense = catalogue.model("Qwen/Qwen2.5-7B")
    assert reserve(dense, engine, **arguments).activations == 10 * dense.vocabulary * 4


def test_blackwells_data_centre_kernels_bring_their_own_buffers(catalogue: Catalogue) -> None:
    own = {
        name: own_expert_kernels(catalogue.accelerator(name)) for name in ("h100-sxm-80gb", "b200-sxm-180gb")
    }
    assert own == {"h100-sxm-80gb": False, "b200-sxm-180gb": True}


def test_several_residual_streams_are_carried_and_kept_for_a_draft(catalogue: Catalogue) -> None:
    model = catalogue.model("deepseek-ai/DeepSeek-V4-Flash")
    assert Shape.of(model).streams == 4
    assert Shape.of(catalogue.model("Qwen/Qwen2.5-7B")).streams == 1
    engine = plain(forward_bytes_per_hidden=3)
    arguments = {"max_batched_tokens": 1000, "max_seqs": 10}
    carried = 1000 * 4 * 4096 * 3
    assert reserve(model, engine, **arguments).activations == carried
    keeping = engine.model_copy(update={"streams_buffer_kept": True})
    assert reserve(model, keeping, **arguments).activations == carried + 1000 * 4 * 4096 * 2


def test_sampling_that_sorts_is_the_logs_to_say(catalogue: Catalogue) -> None:
    model = catalogue.model("Qwen/Qwen2.5-7B")
    engine = plain(sampling_bytes_per_logit=4, sorting_bytes_per_logit=40)
    arguments = {"max_batched_tokens": 1000, "max_seqs": 10}
    assert reserve(model, engine, **arguments).activations == 10 * model.vocabulary * 4
    assert reserve(model, engine, sorts=True, **arguments).activations == 10 * model.vocabulary * 40


def test_the_offline_class_takes_longer_steps(catalogue: Catalogue) -> None:
    engine, gpu = catalogue.engine("vllm"), catalogue.accelerator("h100-sxm-80gb")
    assert rules(engine).scheduler(gpu) == (8192, 1024)
    assert rules(engine).scheduler(gpu, offline=True) == (16_384, 1024)
    assert rules(engine).scheduler(gpu, offline=True, max_batched_tokens=2048) == (2048, 1024)
    large = catalogue.accelerator("b200-sxm-180gb")
    assert rules(engine).scheduler(large, offline=True) == rules(engine).scheduler(large) == (16_384, 1024)


def test_graphs_are_kept_only_where_captured_and_subtracted(catalogue: Catalogue) -> None:
    model, engine = catalogue.model("Qwen/Qwen2.5-7B"), plain(graph_bytes_per_layer=3)
    assert reserve(model, engine, max_batched_tokens=2048, max_seqs=256).graphs == 3 * 28 * 51
    assert reserve(model, engine, max_batched_tokens=2048, max_seqs=256, eager=True).graphs == 0
    older = engine.model_copy(update={"graphs_reserved": False})
    assert reserve(model, older, max_batched_tokens=2048, max_seqs=256).graphs == 0


def test_graphs_of_experts_and_of_split_layers_are_larger(catalogue: Catalogue) -> None:
    engine = plain(
        graph_bytes_per_expert_layer=5, graph_bytes_per_split_layer=7, graph_bytes_per_indexed_layer=11
    )
    dense, experts = catalogue.model("Qwen/Qwen2.5-7B"), catalogue.model("openai/gpt-oss-20b")
    arguments = {"max_batched_tokens": 2048, "max_seqs": 256}
    assert reserve(dense, engine, **arguments).graphs == 0
    assert reserve(dense, engine, tensor_parallel=2, **arguments).graphs == 7 * 28 * 51
    assert reserve(experts, engine, tensor_parallel=2, **arguments).graphs == (5 + 7) * 24 * 51
    indexed = catalogue.model("deepseek-ai/DeepSeek-V3.2")
    assert reserve(indexed, engine, **arguments).graphs == (5 + 11) * 61 * 51


@pytest.mark.parametrize(("max_seqs", "sizes"), [(1, 2), (4, 4), (8, 5), (256, 51), (1024, 51)])
def test_captured_sizes_follow_the_engines_list(max_seqs: int, sizes: int) -> None:
    # 1, 2, 4, then 8 to 256 by 8, then to 512 by 16: 3 + 32 + 16 = 51 (vLLM's default list);
    # with 8 requests 1, 2, 4, 8, 16, as a log of 0.23 prints.
    assert captured_sizes(max_seqs) == sizes


def test_a_missing_coefficient_is_named(catalogue: Catalogue) -> None:
    engine = plain().model_copy(update={"coefficients": {}})
    with pytest.raises(InputError, match=r"coefficients: .* is missing"):
        reserve(catalogue.model("Qwen/Qwen2.5-7B"), engine, max_batched_tokens=1, max_seqs=1)


def test_versions_find_the_rules_of_their_time(catalogue: Catalogue) -> None:
    def found(version: str | None) -> str:
        engine = engine_for_version(catalogue.engines.values(), "vllm", version)
        assert engine is not None
        return engine.name

    assert found("0.10.1.1") == "vllm-0.10"
    assert found("0.11.0") == "vllm-0.11"
    assert found("0.19.2rc1.dev134+gfe9c3d6c5") == "vllm-0.19"
    assert (found("0.21.0"), found("0.23.1"), found("0.25.0")) == ("vllm-0.23", "vllm-0.23", "vllm-0.25")
    assert found("0.26.0") == found("0.33.0") == found(None) == "vllm"
    assert version_number("image (0.10.1 dev)") == (0, 10, 1)
    assert catalogue.engine("vllm@0.11.0").name == "vllm-0.11"
    with pytest.raises(InputError, match=r"allowed: a version of .*vllm-0.11"):
        catalogue.engine("vllm@latest")


@pytest.mark.parametrize(
    ("model", "gpu", "ranks", "loaded_gib"),
    [
        # "Model loading took ... GiB" (data/observations: obs-134, -131, -132, -058, -136).
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm-80gb", 1, 14.99),
        ("openai/gpt-oss-20b", "h100-sxm-80gb", 1, 13.47),
        ("openai/gpt-oss-120b", "h100-sxm-80gb", 1, 64.38),
        ("openai/gpt-oss-120b", "a100-sxm4-80gb", 4, 17.22),
    ],
)
def test_weights_as_loaded_agree_with_logs(
    catalogue: Catalogue, model: str, gpu: str, ranks: int, loaded_gib: float
) -> None:
    from kvreport.accounting.weights import weight_bytes

    record, formats = catalogue.model(model), catalogue.weight_formats
    added = load_overhead(record, catalogue.engine("vllm"), None, formats, catalogue.accelerator(gpu), ranks)
    size = weight_bytes(record, None, formats, ranks) + sum(added.values())
    assert size / GIB == pytest.approx(loaded_gib, rel=0.004)


def test_images_on_axes_of_their_own_have_four_times_the_positions(catalogue: Catalogue) -> None:
    formats, gpu, engine = (
        catalogue.weight_formats,
        catalogue.accelerator("rtx-5070ti"),
        catalogue.engine("vllm"),
    )
    several = catalogue.model("Qwen/Qwen3-VL-2B-Instruct")  # 262144 positions, heads of 128
    assert load_overhead(several, engine, None, formats, gpu)["position_table"] == 262_144 * 128 * 2 * 4
    plain_axis = catalogue.model("Qwen/Qwen2.5-7B")
    assert load_overhead(plain_axis, engine, None, formats, gpu)["position_table"] == 131_072 * 128 * 2


def test_sglang_kept_the_scales_it_loaded_until_0516(catalogue: Catalogue) -> None:
    model, formats = catalogue.model("deepseek-ai/DeepSeek-V4-Pro"), catalogue.weight_formats
    older = engine_for_version(catalogue.engines.values(), "sglang", "0.5.15.post1")
    newer = engine_for_version(catalogue.engines.values(), "sglang", "0.5.16")
    assert older is not None
    assert newer is not None
    assert (older.name, newer.name) == ("sglang-0.5.15", "sglang")
    hopper, blackwell = catalogue.accelerator("h200-sxm-141gb"), catalogue.accelerator("b200-sxm-180gb")
    kept = load_overhead(model, older, None, formats, hopper, 8)["loaded_scales"]
    # 61 layers of 384 experts of three matrices of 3072 x 7168, one float of 4 bytes per 32 weights.
    assert kept == 61 * 384 * 3 * 3072 * 7168 // 32 * 4 // 8
    assert "loaded_scales" not in load_overhead(model, newer, None, formats, hopper, 8)
    assert "loaded_scales" not in load_overhead(model, older, None, formats, blackwell, 8)
    # The change that deletes them measured 11.48 GiB per GPU on 16, with a draft layer beside the 61.
    on_sixteen = load_overhead(model, older, None, formats, hopper, 16)["loaded_scales"]
    assert on_sixteen * 62 / 61 / GIB == pytest.approx(11.48, rel=0.005)


def test_sglangs_position_tables_are_floats(catalogue: Catalogue) -> None:
    formats, gpu = catalogue.weight_formats, catalogue.accelerator("h100-sxm-80gb")
    engine = catalogue.engine("sglang")
    dense = catalogue.model("Qwen/Qwen2.5-7B")  # 131072 positions, heads of 128
    assert load_overhead(dense, engine, None, formats, gpu)["position_table"] == 131_072 * 128 * 4
    compressed = catalogue.model("deepseek-ai/DeepSeek-V4-Pro")  # 1048576 positions, 64 rotate
    assert load_overhead(compressed, engine, None, formats, gpu)["position_table"] == 1_048_576 * 64 * 4 * 2


@pytest.mark.parametrize(("ranks", "taken"), [(1, 500_000_000), (4, 2_300_000_000)])
def test_sglangs_share_is_of_what_is_free_before_loading(
    catalogue: Catalogue, ranks: int, taken: int
) -> None:
    engine, gpu = catalogue.engine("sglang"), catalogue.accelerator("h100-sxm-80gb")
    model = catalogue.model("Qwen/Qwen2.5-7B")
    found = budget(
        model, engine, gpu, formats=catalogue.weight_formats, tensor_parallel=ranks, utilization=0.75
    )
    assert found.kv_pool_bytes == pytest.approx(0.75 * (gpu.usable_bytes - taken) - found.weights, abs=2)
    assert found.activations == found.graphs == 0
