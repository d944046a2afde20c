"""What changes between vLLM's releases, and that its records say the same as its rules."""

from datetime import date
from itertools import pairwise
from typing import Any

import pytest
import yaml

import kvreport
from kvreport.accounting.allocation import state_slots_wanted
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.step import EngineStep
from kvreport.accounting.engines.vllm import releases
from kvreport.accounting.engines.vllm.expert_kernels import block_float_kernel, triton_bytes
from kvreport.accounting.engines.vllm.kernels import Device
from kvreport.accounting.engines.vllm.plan import _Layers
from kvreport.accounting.engines.vllm.profiling import (
    Shape,
    _shared_picks,
    graph_layers,
    index_workspace_bytes,
    loaded_bytes_per_row,
    loaded_bytes_per_token,
)
from kvreport.accounting.engines.vllm.reserve import device_class
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, Serving
from kvreport.accounting.state_types import with_state_type
from kvreport.accounting.weights import on_host
from kvreport.catalog.caches import Indexer, Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.engine_records import fields_at
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import LayerGroup, Model
from kvreport.catalog.release import oldest_computed, release_at, release_number, release_of, version_number
from kvreport.estimation.commands import estimate_command
from kvreport.units import GIB
from tests.trunk import load_overhead, plan


def at(catalog: Catalog, release: tuple[int, ...]) -> Engine:
    """The record of a release."""
    version = ".".join(map(str, (*release, 0)[:3]))
    return rules(catalog.engine(f"vllm@{version}")).at_release(version)


def laid_out(
    catalog: Catalog,
    model: str | Model,
    engine: str,
    gpu: str = "h100-sxm-80gb",
    ranks: int = 1,
    **serving: Any,
) -> BlockPlan:
    """The block plan of a model on so many devices, in steps of 8,192 tokens."""
    return plan(
        catalog.model(model) if isinstance(model, str) else model,
        catalog.engine(engine),
        accelerators=(catalog.accelerator(gpu),) * ranks,
        tensor_parallel=ranks,
        formats=catalog.weight_formats,
        serving=Serving(8192, **serving),
    )


@pytest.fixture(scope="module")
def records(catalog: Catalog) -> list[Engine]:
    found = [engine for engine in catalog.engines.values() if engine.family == "vllm"]
    return sorted(found, key=lambda engine: version_number(engine.versions[0] if engine.versions else ""))


def test_records_follow_one_another_without_a_gap(records: list[Engine]) -> None:
    for one, following in pairwise(records):
        assert one.versions is not None
        assert following.versions is not None
        assert one.versions[1] == following.versions[0], one.name
    assert records[-1].versions is not None
    assert records[-1].versions[1] is None


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_a_release_is_computed_for_18_months(catalog: Catalog, family: str) -> None:
    """Counted back from the newest release in the data; a minor release is as old as its first one."""
    text = (catalog.folder / f"{family}_releases.yaml").read_text(encoding="utf-8")
    built: dict[tuple[int, ...], date] = {}
    for name, release in yaml.safe_load(text)["releases"].items():
        built.setdefault(
            version_number(name)[: 2 if family == "vllm" else 3], date.fromisoformat(release["built"])
        )
    newest = max(built.values())
    first = newest.replace(
        year=newest.year - 1 - (newest.month <= 6), month=(newest.month + 5) % 12 + 1, day=1
    )
    for number, day in built.items():
        old = oldest_computed(catalog.engines.values(), family, ".".join(map(str, number))) is not None
        assert old == (day < first), (number, day, first)


def test_records_say_what_the_rules_of_their_release_say(records: list[Engine]) -> None:
    for record in records:
        release = release_of(record)
        assert record.versions is not None
        first, end = record.versions
        assert version_number(first) <= release.numbers
        assert end is None or release.numbers < version_number(end)
        fields = fields_at("vllm", release.numbers)
        assert {"utilization", "device_classes", "token_line", "packed_blocks"} <= set(fields)
        for field, value in fields.items():
            assert getattr(record, field) == value, (record.name, field)


def test_all_records_have_the_same_constants(records: list[Engine]) -> None:
    assert len({tuple(sorted(record.coefficients.items())) for record in records}) == 1


def test_devices_are_large_by_their_memory(catalog: Catalog) -> None:
    def sizes(release: tuple[int, ...], device: str, usable: int | None = None) -> tuple[int, int]:
        gpu = catalog.accelerator(device)
        return rules(at(catalog, release)).scheduler(gpu if usable is None else gpu.with_usable(usable))

    # 0.9.0 arg_utils.py: from 70 GiB on, but for the A100.
    assert sizes((0, 9, 0), "a100-sxm4-80gb") == (2048, 256)
    assert sizes((0, 9, 0), "h20-96gb") == (8192, 1024)
    # 0.28.0: devices of 160 GiB take twice the tokens.
    b200 = "b200-sxm-180gb"
    assert [sizes(one, b200) for one in ((0, 27, 1), (0, 28, 0))] == [(8192, 1024), (16_384, 1024)]
    # 0.24.0 platforms/rocm.py: of a Ryzen AI the library of drivers tells what its firmware sets apart.
    shared = [sizes(one, "ryzen-ai-max-395", 80 * GIB) for one in ((0, 23), (0, 24))]
    assert shared == [(8192, 1024), (2048, 256)]
    # SGLang 0.5.20 arg_groups/memory_hook.py: chunks of 4,096 tokens below 35 GB.
    card = catalog.accelerator("rtx-4090")
    chunks = [rules(catalog.engine(f"sglang@{one}")).scheduler(card)[0] for one in ("0.5.19", "0.5.20")]
    assert chunks == [2048, 4096]


def test_a_device_of_another_id_is_treated_as_what_it_is(catalog: Catalog) -> None:
    """A catalog of one's own names devices as it likes: their records state what classes go by."""
    engines = [catalog.engine(name) for name in ("vllm", "vllm@0.10.1", "sglang", "tensorrt-llm")]
    for gpu in catalog.accelerators.values():
        ours = gpu.model_copy(update={"id": "ours"})
        assert device_class(ours) == device_class(gpu), gpu.id
        for engine in engines:
            assert rules(engine).device_class(ours)[0] == rules(engine).device_class(gpu)[0], (
                gpu.id,
                engine.name,
            )
    classes = {device_class(gpu) for gpu in catalog.accelerators.values()}
    assert classes == {"server", "workstation", "unified", "other"}


def test_a_short_context_limits_the_step(catalog: Catalog) -> None:
    served = rules(at(catalog, (0, 27)))
    assert served.scheduler(catalog.accelerator("h100-sxm-80gb"), context_tokens=4) == (4 * 1024, 1024)


@pytest.mark.parametrize(
    ("release", "architecture", "experts", "states", "second"),
    [
        ((0, 21), "Qwen3ForCausalLM", False, False, False),
        ((0, 22), "Qwen3ForCausalLM", False, False, True),
        ((0, 22), "LlamaForCausalLM", False, False, False),
        ((0, 23), "LlamaForCausalLM", False, False, True),
        ((0, 24), "Gemma4ForConditionalGeneration", False, False, False),
        ((0, 25), "Gemma4ForConditionalGeneration", False, False, True),
        ((0, 27, 1), "Qwen3MoeForCausalLM", True, False, False),
        ((0, 27, 1), "DeepseekV2ForCausalLM", True, False, True),
        ((0, 28), "Qwen3_5ForConditionalGeneration", False, True, False),
        ((0, 28), "DeepseekV4ForCausalLM", True, False, True),
        ((0, 29), "Qwen3_5ForConditionalGeneration", False, True, True),
    ],
)
def test_the_second_model_runner_serves_more_with_every_release(
    catalog: Catalog,
    release: tuple[int, ...],
    architecture: str,
    experts: bool,
    states: bool,
    second: bool,
) -> None:
    engine = at(catalog, release)
    assert releases.second_runner(engine, architecture, experts=experts, states=states) is second


def test_quantized_weights_and_rocm_kept_the_first_runner_longer(catalog: Catalog) -> None:
    asked = {"experts": False, "states": False}
    llama, deepseek = "LlamaForCausalLM", "DeepseekV4ForCausalLM"
    assert not releases.second_runner(at(catalog, (0, 23)), llama, quantized=True, **asked)
    assert releases.second_runner(at(catalog, (0, 24)), llama, quantized=True, **asked)
    assert not releases.second_runner(at(catalog, (0, 29)), deepseek, vendor="AMD", **asked)
    assert releases.second_runner(at(catalog, (0, 32)), deepseek, vendor="AMD", **asked)
    glm = {"experts": True, "states": False, "vendor": "AMD"}
    second = [
        releases.second_runner(at(catalog, (0, one)), "GlmMoeDsaForCausalLM", **glm) for one in (29, 30, 32)
    ]
    assert second == [True, False, True]


@pytest.mark.parametrize(
    ("model", "first"), [("zai-org/GLM-5.1-FP8", (0, 32)), ("zai-org/GLM-5.3-Flash", (0, 33))]
)
def test_the_cache_of_glm_is_fp8_on_data_center_blackwell_gpus_since(
    catalog: Catalog, model: str, first: tuple[int, ...]
) -> None:
    before = (0, first[1] - 1)
    assert (
        rules(at(catalog, before)).default_kv_format(catalog.model(model), catalog.accelerator("b200"))
        is None
    )
    assert (
        rules(at(catalog, first)).default_kv_format(catalog.model(model), catalog.accelerator("b200"))
        == "fp8"
    )
    assert (
        rules(at(catalog, first)).default_kv_format(catalog.model(model), catalog.accelerator("h200")) is None
    )


def test_dense_layers_of_sparse_latents_are_whole_in_one_stage_since_0_29(catalog: Catalog) -> None:
    ranks = [
        rules(at(catalog, release)).component_ranks(
            catalog.model("deepseek-ai/DeepSeek-V3.2"),
            Layout(tensor=2, data=2, expert=True, pipeline=stages),
        )
        for release, stages in (((0, 28), 1), ((0, 29), 1), ((0, 29), 2))
    ]
    assert [one.get("dense_mlp") for one in ranks] == [None, 1, None]


def test_states_are_charged_for_by_release(catalog: Catalog) -> None:
    # MambaSpec.max_memory_usage_bytes, and where num_prefill_checkpoint_blocks is set.
    assert releases.state_slots(release_at("vllm", (0, 27)), caching=False, checkpoint=True) == 1
    assert releases.state_slots(release_at("vllm", (0, 28)), caching=True, checkpoint=False) == 2
    assert releases.state_slots(release_at("vllm", (0, 33)), caching=True, checkpoint=True) == 3
    kept = [
        release
        for release in ((0, 28), (0, 29), (0, 32), (0, 33))
        if releases.keeps_checkpoint(
            at(catalog, release), "gated_deltanet", "Qwen3_5ForConditionalGeneration"
        )
    ]
    assert kept == [(0, 33)]
    assert releases.keeps_checkpoint(at(catalog, (0, 29)), "kda", "KimiK3ForConditionalGeneration")
    assert not releases.keeps_checkpoint(at(catalog, (0, 31)), "kda", "Glm5NextForCausalLM")


def test_builds_between_releases_follow_the_next() -> None:
    assert release_number("vllm", "0.19.2rc1.dev134+gfe9c3d6c5") == (0, 20, 0)
    assert release_number("vllm", "0.27.1") == (0, 27, 1)
    assert release_number("vllm", "nightly") == ()


def test_a_version_asked_for_has_the_rules_of_that_version(catalog: Catalog) -> None:
    older = rules(catalog.engine("vllm@0.20.0")).at_release("0.20.0")
    newer = rules(catalog.engine("vllm@0.20.1")).at_release("0.20.1")
    assert (older.name, newer.name) == ("vllm-0.20", "vllm-0.20")
    assert (older.token_line, newer.token_line) == ("blocks", "concurrency")


@pytest.mark.parametrize(
    ("release", "architecture", "major", "kernel"),
    [
        ((0, 11), "GptOssForCausalLM", 9, "marlin"),
        ((0, 12), "GptOssForCausalLM", 9, "triton"),
        ((0, 33), "GptOssForCausalLM", 9, "triton"),
        ((0, 27), "KimiK3ForConditionalGeneration", 9, "marlin"),
        ((0, 33), "GptOssForCausalLM", 10, "flashinfer"),
        ((0, 33), "GptOssForCausalLM", 12, "marlin"),
        ((0, 10), "GptOssForCausalLM", 8, "marlin"),
    ],
)
def test_one_table_names_the_kernel_of_block_floats(
    catalog: Catalog, release: tuple[int, ...], architecture: str, major: int, kernel: str
) -> None:
    engine = at(catalog, release)
    assert block_float_kernel(engine, architecture, major) == kernel
    if major == 9:
        assert block_float_kernel(engine, architecture, major, "triton") == "triton"


def test_pure_states_do_not_cache_by_default(catalog: Catalog) -> None:

    model = next(
        model
        for model in catalog.models.values()
        if {cache.kind for group in model.layers for cache in group.caches} == {"state"}
    )

    def constant(caching: bool | None) -> int:
        laid = laid_out(catalog, model.id, "vllm", prefix_caching=caching)
        return int(laid.profile.request_bytes(4096))

    assert constant(None) == constant(False) < constant(True)


def test_latents_of_a_class_without_their_kernels_are_kept_head_by_head(catalog: Catalog) -> None:

    # 62 layers of 40 heads; keys of 64 + 32, values padded to as many (0.24 models/minicpm3.py).
    laid = laid_out(catalog, "openbmb/MiniCPM3-4B", "vllm")
    assert int(laid.profile.request_bytes(16)) == 16 * 62 * 40 * (96 + 96) * 2


def test_gemma_4s_drafter_keeps_no_cache(catalog: Catalog) -> None:
    # obs-120: tokens from the logged pool are the engine's without a layer for drafting.
    plain, drafting = (
        laid_out(catalog, "google/gemma-4-26B-A4B", "vllm@0.24.0", draft_tokens=tokens) for tokens in (0, 4)
    )
    assert drafting.profile == plain.profile


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0.9.2.dev364+gb432b7a28", (0, 9, 2)),
        ("0.16.1.dev0+g89a77b108.rocm721", (0, 16, 0)),
        ("0.13.0+faa43dbf.nv26.01", (0, 13, 0)),
        ("0.11.0rc2.dev12+g1", (0, 11, 0)),
        ("0.20.1rc0.dev7+gabc", (0, 21, 0)),
        ("0.1.dev15312+g44", ()),
    ],
)
def test_a_build_follows_the_release_that_was_cut_after_it(version: str, number: tuple[int, ...]) -> None:
    assert release_number("vllm", version) == number


@pytest.mark.parametrize(
    ("version", "on"), [("0.25.1", False), ("0.26.0", False), ("0.27.1", False), ("0.28.0", True)]
)
def test_hybrids_cache_prefixes_by_default_since_0_28(catalog: Catalog, version: str, on: bool) -> None:
    """0.27.1 prints 485,083 tokens for Qwen3.8-27B on an H100: 14 blocks a request, so one state of each group."""
    engine = rules(catalog.engine(f"vllm@{version}")).at_release(version)
    assert engine.state_prefix_caching is on


@pytest.mark.parametrize(
    ("name", "ranks", "gib"),
    [
        ("Qwen/Qwen3.8-27B-FP8", 1, 0.93),  # 29.38 GiB were loaded on an MI355X, 28.54 on an H100
        ("Qwen/Qwen3.8-27B-FP8", 2, 0.54),
        ("Qwen/Qwen3-4B", 1, 0.0),  # neither FP8 nor experts
    ],
)
def test_rows_of_fp8_are_set_apart_on_amd(catalog: Catalog, name: str, ranks: int, gib: float) -> None:
    model, engine = catalog.models[name], catalog.engine("vllm@0.20.2")
    added = [
        load_overhead(model, engine, None, catalog.weight_formats, catalog.accelerator(gpu), ranks)
        for gpu in ("mi355x", "h100-sxm-80gb")
    ]
    assert added[0].get("row_padding", 0) / GIB == pytest.approx(gib, abs=0.02)
    assert "row_padding" not in added[1]


def test_rows_of_16_bit_experts_are_padded_on_amd_until_0_30(catalog: Catalog) -> None:
    """0.30.0 copies the padded values back; 48.54 GiB were loaded on an MI300X by a build after 0.31.0 (vale-008)."""
    model, device = catalog.model("google/gemma-4-26B-A4B"), catalog.accelerator("mi300x")
    engines = [rules(catalog.engine(f"vllm@{one}")).at_release(one) for one in ("0.29.0", "0.30.0")]
    padded, plain = (
        load_overhead(model, engine, None, catalog.weight_formats, device).get("row_padding", 0)
        for engine in engines
    )
    experts = sum(
        row.parameters // row.shape[-1] for row in model.weights if row.component == "routed_experts"
    )
    assert 0 < padded <= experts * 256
    assert plain == 0


def test_blocks_that_padding_split_count_on_amd_from_0_27_to_0_29(catalog: Catalog) -> None:
    """Two starts of 0.28.0 had 19 GiB less for the cache than without it (merle-014, -015); 4 of them are open."""
    model = catalog.model("Qwen/Qwen3-30B-A3B-Instruct-2507")

    def left(release: str, gpu: str = "mi300x", weights: str | None = None) -> int:
        engine = rules(catalog.engine(f"vllm@{release}")).at_release(release)
        form = catalog.weight_formats[weights] if weights else None
        found = load_overhead(model, engine, form, catalog.weight_formats, catalog.accelerator(gpu))
        return found.get("left_by_padding", 0)

    gate_and_up, down = 128 * 1536 * 2048 * 2, 128 * 2048 * (768 + 128) * 2
    assert left("0.27.0") == left("0.29.0") == 48 * (gate_and_up - down)
    assert left("0.26.0") == left("0.30.0") == left("0.28.0", "h100-sxm-80gb") == 0
    assert left("0.28.0", weights="fp8") == 0


def test_latent_attention_of_some_classes_is_loaded_at_16_bits(catalog: Catalog) -> None:
    """38.24 GiB were loaded for GLM-5.3-Flash on eight GPUs (obs-116), 37.8 without what is widened."""
    model = catalog.model("zai-org/GLM-5.3-Flash")
    engine = rules(catalog.engine("vllm@0.31.0")).at_release("0.31.0")
    device = catalog.accelerator("h100-sxm-80gb")
    added = load_overhead(model, engine, None, catalog.weight_formats, device, 8)
    # 11 layers of queries down, latents, queries up and outputs: a second byte each, less the scales.
    widened = 11 * ((1536 + 512) * 4096 + (16384 * 1536 + 4096 * 16384) // 8)
    assert added["read_plain"] == pytest.approx(widened, rel=0.001)
    assert added["float_connections"] == 2 * 45 * 24 * 16384 * 2
    other = catalog.model("deepseek-ai/DeepSeek-V3")
    parts = load_overhead(other, engine, None, catalog.weight_formats, device, 8)
    assert not {"read_plain", "float_connections"} & set(parts)


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", 4),
        ("deepseek-ai/DeepSeek-V4.1-Flash", 4),
        ("zai-org/GLM-5.3-Flash", 4),
        ("Qwen/Qwen3.8-Flash-Next", 4),
        ("deepseek-ai/DeepSeek-V3.2", 1),
    ],
)
def test_residual_streams_are_counted_in_every_class_that_mixes_them(
    catalog: Catalog, name: str, streams: int
) -> None:
    """3.28 GiB were the peak of GLM-5.3-Flash on eight H100 (vale-001), 2.4 with one stream."""
    assert Shape.of(catalog.model(name)).streams == streams


def test_only_indexers_of_latents_gather_their_keys_in_a_buffer(catalog: Catalog) -> None:
    """760,704 tokens of MiniMax-M3 fitted four GB10 (obs-112): 12% more than with a buffer of 40 contexts."""
    release = release_at("vllm", (0, 33, 0))
    gathered = index_workspace_bytes(Shape.of(catalog.model("deepseek-ai/DeepSeek-V3.2")), release)
    assert gathered == (40 * 132, 24 * 132)
    for name in ("MiniMaxAI/MiniMax-M3", "Qwen/Qwen3.8-Flash-Next"):
        shape = Shape.of(catalog.model(name))
        assert shape.indexed
        assert index_workspace_bytes(shape, release) == (0, 0)


def test_graphs_launch_more_kernels_for_streams_that_are_mixed_than_gated(catalog: Catalog) -> None:
    """1.77 GiB were estimated for Flash-Next's graphs on four RTX PRO 6000 (fresh-012)."""
    layers = {
        name: graph_layers(Shape.of(catalog.model(name)))
        for name in ("deepseek-ai/DeepSeek-V4-Flash", "Qwen/Qwen3.8-Flash-Next")
    }
    assert layers == {"deepseek-ai/DeepSeek-V4-Flash": 43 * 4, "Qwen/Qwen3.8-Flash-Next": 48 * 3}


@pytest.mark.parametrize(
    ("name", "release", "picks"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "0.11.0", 2048),
        ("deepseek-ai/DeepSeek-V4-Flash", "0.33.0", 512),
        ("zai-org/GLM-5.3-Flash", "0.29.0", 2176),  # 2,048 and three single ones, in tiles of 128
        ("zai-org/GLM-5.3-Flash", "0.33.0", 12 * 2176),  # and their places in the cache, of eleven layers
        ("deepseek-ai/DeepSeek-V3", "0.33.0", 0),
        ("Qwen/Qwen3.8-Flash-Next", "0.33.0", 12 * 2052),  # each layer its own
    ],
)
def test_layers_share_one_buffer_of_picked_tokens(
    catalog: Catalog, name: str, release: str, picks: int
) -> None:
    model = catalog.model(name)
    engine = rules(catalog.engine(f"vllm@{release}")).at_release(release)
    vision = Shape.of(model).tower
    kept = loaded_bytes_per_token(model, Shape.of(model), engine)
    levels = (vision.outputs - 1) * 2 * model.hidden_size if vision is not None else 0
    assert kept - levels == picks * 4


def test_devices_for_which_loading_adds_different_bytes_are_not_taken_for_alike(catalog: Catalog) -> None:
    engine = rules(catalog.engine("vllm"))
    model = catalog.model("deepseek-ai/DeepSeek-V3")
    alike: dict[object, set[int]] = {}
    for device in catalog.accelerators.values():
        added = load_overhead(model, engine.engine, None, catalog.weight_formats, device, 8)
        alike.setdefault(engine.device_class(device)[1], set()).add(sum(added.values()))
    assert all(len(sizes) == 1 for sizes in alike.values()), alike


def test_tables_of_hashed_n_grams_lie_in_host_memory_since_0_30(catalog: Catalog) -> None:
    # Qwen3.8-Flash-Next on eight H100 under a build after 0.31.0: "weight_device=cpu, pinned=True" and 31.42 GiB (nov-006).
    model = catalog.model("Qwen/Qwen3.8-Flash-Next")
    table = next(row for row in model.weights if "ngram_embedding" in row.name)
    share, asked = (
        table.parameters * 2 // 8,
        {"gpu": "h100-sxm-80gb", "tensor_parallel": 8, "context_tokens": 262_144},
    )
    answers = {
        release: kvreport.estimate(model.id, engine=f"vllm@{release}", **asked).to_dict()
        for release in ("0.29.0", "0.30.0", "0.33.0")
    }
    kept, spared, newest = answers.values()
    assert kept["weight_bytes_per_gpu"] - spared["weight_bytes_per_gpu"] == share
    assert newest["weight_bytes_per_gpu"] == spared["weight_bytes_per_gpu"]
    assert spared["weight_bytes_per_gpu"] / GIB == pytest.approx(31.42, rel=0.03)
    assert kept["host_bytes"]["weights"] == 0
    assert newest["host_bytes"]["weights"] == share * 8
    plain = catalog.model(
        "google/gemma-4-E4B-it"
    )  # its tables have a row for each token, and stay on the device
    assert on_host(at(catalog, (0, 33)), plain) == frozenset()


@pytest.mark.parametrize(
    ("release", "ranks", "context", "options", "block_bytes", "blocks"),
    [
        # "3,046,184 tokens" of 262,144 are 7,681 blocks by 661: 656 of 400 tokens, one of the rings, and four of states: the layer
        # of n-grams has its own, which every rank keeps whole (nov-006).
        ("0.31.0", 8, 262_144, {"prefix_caching": False}, 12 * (400 * 1024 + 100 * 256), 656 + 1 + 4),
        # 328 blocks by 62 with two states each (fresh-012).
        ("0.28.0", 4, 40_960, {"prefix_caching": True}, 12 * (784 * 1024 + 196 * 256), 53 + 1 + 8),
    ],
)
def test_pooled_index_keys_lie_beside_keys_and_values(
    catalog: Catalog,
    release: str,
    ranks: int,
    context: int,
    options: dict[str, bool],
    block_bytes: int,
    blocks: int,
) -> None:

    plan = laid_out(
        catalog, "Qwen/Qwen3.8-Flash-Next", f"vllm@{release}", "rtx-pro-6000-ws", ranks, **options
    )
    assert plan.block_bytes == block_bytes
    assert int(plan.profile.request_bytes(context)) == blocks * block_bytes


def test_a_draft_layer_of_pooled_index_keys_is_one_whole_layer(catalog: Catalog) -> None:

    # obs-222: 16-bit states and three speculative tokens on four ranks; 1,427 blocks by 652 are the 573,741 tokens.
    model = with_state_type(catalog.model("Qwen/Qwen3.8-Flash-Next"), "bfloat16")
    plan = laid_out(catalog, model, "vllm@0.28.0", "a40", 4, prefix_caching=True, draft_tokens=3)
    assert plan.block_bytes == 13 * (416 * 1024 + 104 * 256)
    assert int(plan.profile.request_bytes(262_144)) == 652 * plan.block_bytes


def test_gpt_oss_on_hopper_is_not_padded_by_the_triton_kernels_that_come_with_vllm() -> None:
    # A start on one H100 under 0.29.0 loaded 65,959,960,248 bytes (Apron, verification report 1220ded0ff281432); with the
    # package of its own 0.11.0 loaded 64.38 GiB, which the values along the width take.
    found = {
        version: kvreport.estimate("gpt-oss-120b", gpu="h100", engine=f"vllm@{version}", context_tokens=640)
        for version in ("0.19.1", "0.29.0", "0.33.0")
    }
    loaded = {version: one.budget.weights for version, one in found.items()}
    assert loaded["0.29.0"] == pytest.approx(65_959_960_248, rel=0.01)
    assert loaded["0.33.0"] == loaded["0.29.0"]
    # hopper_value.py of 0.17 to 0.20 pads both sides to 64 bytes.
    padded = {version: one.to_dict()["loading_bytes"]["expert_padding"] for version, one in found.items()}
    assert padded["0.19.1"] - padded["0.29.0"] == pytest.approx(1.2e9, rel=0.02)


@pytest.mark.parametrize(
    ("release", "outputs", "inputs", "wanted"),
    [
        # 5,760 rows of 2,880 values in 4 bits; scales of 5,888 rows by 92 groups of 90.
        ((0, 29), 5760, 2880, 5760 * 1440 + 5888 * 92),
        ((0, 22), 2880, 2880, 2880 * 1440 + 3072 * 90),
        # 2,880 values are 22.5 tiles of 128.
        ((0, 19), 2880, 2880, 2880 * 1472 + 3072 * 90),
    ],
)
def test_tiles_of_triton_on_hopper(release: tuple[int, ...], outputs: int, inputs: int, wanted: int) -> None:
    assert triton_bytes(release_at("vllm", release), outputs, inputs) == wanted


def test_the_kernels_of_mxfp4_experts_are_an_input_and_both_answers_are_told() -> None:
    def answer(**given: str) -> kvreport.Estimate:
        return kvreport.estimate(
            "gpt-oss-120b", gpu="h100", context_tokens=4096, engine="vllm@0.10.2", **given
        )

    by_default, triton = answer(), answer(moe_backend="triton")
    apart = (by_default.budget.weights - triton.budget.weights) / GIB
    # vllm#23278 and llm-d-planner's table: 65.97 and 64.38 GiB.
    assert apart == pytest.approx(65.97 - 64.38, abs=0.05)
    assert any(
        f"{apart:.1f} GiB less on each GPU (--moe-backend triton)" in one
        for one in by_default.to_dict()["assumptions"]
    )
    assert not any("--moe-backend" in one for one in triton.to_dict()["assumptions"])
    other = answer(moe_backend="flashinfer_cutlass")
    assert other.budget.weights == by_default.budget.weights
    assert any(
        "moe-backend 'flashinfer_cutlass': not followed" in one for one in other.to_dict()["assumptions"]
    )
    with pytest.raises(kvreport.InputError, match="moe-backend: found 'marlin' for SGLang"):
        kvreport.estimate("gpt-oss-120b", gpu="h100", engine="sglang", moe_backend="marlin")


def test_a_server_that_is_told_a_shorter_longest_request_keeps_less() -> None:
    # The engine measures itself with the longest request that it was told to take. A start of GLM-5.3 on 8 H200 under 0.30.0
    # with 32,768 tokens left 30.94 GiB for the cache (Apron, verification report 12208ef8aa4a3de7).
    given: dict[str, object] = {
        "gpu": "h200",
        "tensor_parallel": 8,
        "engine": "vllm@0.30.0",
        "utilization": 0.9,
    }
    answer = kvreport.estimate("zai-org/GLM-5.3-FP8", context_tokens=32_768, **given)
    assert "--max-model-len 32768" in (estimate_command(answer) or "")
    assert answer.budget.kv_pool_bytes / GIB == pytest.approx(30.94, rel=0.032)
    whole = kvreport.estimate("zai-org/GLM-5.3-FP8", **given)
    assert answer.budget.kv_pool_bytes - whole.budget.kv_pool_bytes > 3 * GIB
    assert answer.max_context_tokens == whole.max_context_tokens


def test_the_line_of_loaded_weights_has_what_a_model_makes_for_a_step(catalog: Catalog) -> None:
    """31.42 GiB were loaded for Flash-Next on eight H100 (nov-006): 0.75 of them are picks of twelve layers."""
    engine = rules(catalog.engine("vllm@0.31.0")).at_release("0.31.0")
    step = EngineStep(max_batched_tokens=8192, max_seqs=64, layout=Layout())
    picks = rules(engine).buffers_with_weights(catalog.model("Qwen/Qwen3.8-Flash-Next"), step)
    assert picks == 8192 * 12 * 2052 * 4
    assert rules(catalog.engine("sglang")).buffers_with_weights(catalog.model("Qwen/Qwen3-8B"), step) == 0


def test_places_of_picks_are_made_with_the_weights_since_0_30(catalog: Catalog) -> None:
    """88.91 GiB were loaded for GLM-5.3 on eight H200 (apron-011), 0.2 more than its tensors."""
    model = catalog.model("zai-org/GLM-5.3-FP8")
    rows = {
        one: loaded_bytes_per_row(model, rules(catalog.engine(f"vllm@{one}")).at_release(one))
        for one in ("0.29.0", "0.30.0", "0.33.0")
    }
    assert rows == {"0.29.0": 0, "0.30.0": 21 * 2048 * 4, "0.33.0": 21 * 2048 * 4}


def test_blocks_of_interleaved_latents_hold_whole_rows_since_0_33(catalog: Catalog) -> None:
    """0.33.0 ``models/deepseek_v41/attention.py``, ``packed_block_stride_alignment``: records of 512 values and 16 scales."""
    model = catalog.model("deepseek-ai/DeepSeek-V4.1-Flash")
    windowed = next(
        cache
        for group in model.layers
        for cache in group.caches
        if isinstance(cache, Latent) and cache.window
    )
    for release, stride in (("0.32.0", 1), ("0.33.0", 512 + 16)):
        layers = _Layers(
            model=model,
            engine=rules(catalog.engine(f"vllm@{release}")).at_release(release),
            serving=Serving(max_batched_tokens=2048),
            kv_format=catalog.kv_formats["fp8"],
            tensor_parallel=1,
            device=Device.of(catalog.accelerator("b200-sxm-180gb")),
            steps=2,
        )
        page = layers._latent(windowed)
        assert (page.stride_bytes, page.content_bytes) == (stride, 32 * (512 + 16)), release


def test_keys_of_an_indexer_are_projected_at_16_bits_to_the_byte(catalog: Catalog) -> None:
    """``models/deepseek_v2.py``, ``wk_weights_proj``: 61 layers of 128 x 7,168 values in blocks of 128 x 128 with a scale of 4."""
    model, device = catalog.model("deepseek-ai/DeepSeek-V3.2"), catalog.accelerator("h200-sxm-141gb")
    added = load_overhead(model, catalog.engine("vllm"), None, catalog.weight_formats, device, 8)
    values = 61 * 128 * 7168
    assert added["read_plain"] == values * 2 - (values + values // (128 * 128) * 4)


@pytest.mark.parametrize(("release", "tokens", "in_flight"), [("0.25.1", 2049, 2049), ("0.26.0", 2048, 4096)])
def test_a_window_reserves_what_it_sees_and_the_tokens_in_flight(
    release: str, tokens: int, in_flight: int
) -> None:
    """``v1/kv_cache_interface.py::SlidingWindowSpec``: ``cdiv(sliding_window - 1 + tokens, block_size) + 1`` blocks.

    gpt-oss-20b has 12 windows of 128 tokens and 12 full layers, 8 heads of 64 keys and 64 values of 16 bits in each.
    """
    plan = kvreport.estimate(
        "openai/gpt-oss-20b",
        gpu="h100",
        engine=f"vllm@{release}",
        max_batched_tokens=tokens,
        context_tokens=131072,
    ).plan
    block = 12 * 16 * 8 * (64 + 64) * 2
    assert plan.block_bytes == block
    for context in (16, 127 + in_flight, 128 + in_flight, 131072):
        seen = min(128 - 1 + in_flight, context)
        wanted = -(-seen // 16) + 1 - (-context // 16)
        assert int(plan.profile.request_bytes(context)) == wanted * block, context


@pytest.mark.parametrize(
    ("release", "runner", "stages", "steps"),
    [
        ("0.25.1", None, 4, 1),
        ("0.26.0", "first", 1, 2),
        ("0.26.0", "first", 4, 4),
        ("0.33.0", None, 1, 2),
        ("0.33.0", None, 2, 3),
        ("0.33.0", None, 8, 9),
    ],
)
def test_a_window_reserves_a_step_of_every_stage(
    release: str, runner: str | None, stages: int, steps: int
) -> None:
    """0.26.0 and 0.33.0 ``config/vllm.py``, ``max_concurrent_batches``: one each, and one more with the second runner."""
    plan = kvreport.estimate(
        "openai/gpt-oss-120b",
        gpu="h100",
        engine=f"vllm@{release}",
        pipeline_parallel=stages,
        model_runner=runner,
        max_batched_tokens=8192,
        context_tokens=131072,
    ).plan
    assert {cap for _, _, cap in plan.profile.flat[1]} == {0, 128 - 1 + steps * 8192}
    assert plan.steps_in_flight == steps


def test_windows_of_stages_hold_the_requests_that_the_planner_of_vllm_counts() -> None:
    """Answers of vLLM 0.33.0's own planner over 3 stages of an H100 each, for pools of 40 GiB and steps of 8,192 tokens."""
    plan = kvreport.estimate(
        "openai/gpt-oss-120b", gpu="h100", engine="vllm@0.33.0", pipeline_parallel=3, context_tokens=131072
    ).plan
    blocks = 40 * 1024**3 // plan.block_bytes
    assert blocks == 218_453
    assert blocks * plan.block_bytes / int(plan.profile.request_bytes(131072)) == pytest.approx(
        21.314567, abs=1e-6
    )


@pytest.mark.parametrize(("top_k", "stride", "places"), [(125, 4, 128), (126, 4, 256), (2048, 4, 2176)])
def test_places_of_picks_are_whole_tiles(top_k: int, stride: int, places: int) -> None:
    """0.30.0 ``models/glm5next/nvidia/model.py``, ``buffer_width``: ``topk_tokens + kpool - 1`` in tiles of 128."""
    caches = (Latent(latent_dim=512, rope_dim=64), Indexer(index_dim=128, stride=stride, top_k=top_k))
    group = LayerGroup(name="latents", layers="0", caches=caches)
    assert _shared_picks(group, tiled=True) == places
    assert _shared_picks(group, tiled=False) == top_k


def test_a_build_follows_its_release_in_every_rule(catalog: Catalog) -> None:
    """What needs a block for every sequence to capture graphs was 0.20: builds of the main branch after 0.19.1 have it."""
    model, serving = catalog.model("Qwen/Qwen3.6-27B"), Serving(max_seqs=256, max_batched_tokens=2048)
    for version, wanted in (("0.19.1", None), ("0.19.2rc1.dev134+gfe9c3d6c5", 256), ("0.20.0", 256)):
        engine = rules(catalog.engine("vllm@0.19.1")).at_release(version)
        assert state_slots_wanted(engine, model, serving, eager=False) == wanted
