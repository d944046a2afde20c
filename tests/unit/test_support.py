"""What releases refuse, held to the releases' own words and tables."""

from __future__ import annotations

import random

import numpy as np
import pytest
import yaml
from trunk import launch

import kvreport
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.parallel import Layout
from kvreport.accounting.support_lookup import codes, judge, on_accelerator
from kvreport.catalog.load import open_catalog
from kvreport.catalog.shelf import validate
from kvreport.catalog.support import Support
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.errors import CatalogError
from kvreport.estimation.size import size

DENSE, LATENT, SPARSE = "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2"

NO_DEVICE, NO_FORMAT, RUNS, WIDENED = "engine_does_not_run", "format_not_supported", None, "weight_only"

# Each line is a statement of somebody else: a release's check, its requirements, or its table of formats.
DOCUMENTED = [
    # vLLM 0.21 requirements: "compute capability 7.5 or higher (e.g., T4, RTX20xx, A100, L4, H100, B200, etc.)".
    ("vllm", "v100-sxm2-32gb", DENSE, None, None, NO_DEVICE),
    ("vllm", "t4", DENSE, None, None, RUNS),
    ("vllm", "a100-sxm4-80gb", DENSE, None, None, RUNS),
    ("vllm", "l4", DENSE, None, None, RUNS),
    ("vllm", "b200-sxm-180gb", DENSE, None, None, RUNS),
    # vLLM until 0.20: "compute capability 7.0 or higher (e.g., V100, T4, ...)".
    ("vllm@0.9.2", "v100-sxm2-32gb", DENSE, None, None, RUNS),
    # vLLM 0.9.2 and 0.11.2, table "Supported Hardware": AWQ, INT8 and FP8 by generation; Marlin from Ampere.
    ("vllm@0.9.2", "v100-sxm2-32gb", DENSE, "int4", None, NO_FORMAT),
    ("vllm@0.9.2", "t4", DENSE, "int4", None, RUNS),
    ("vllm@0.9.2", "v100-sxm2-32gb", DENSE, "int8", None, NO_FORMAT),
    ("vllm@0.9.2", "t4", DENSE, "int8", None, RUNS),
    ("vllm@0.9.2", "t4", DENSE, "fp8", None, NO_FORMAT),
    ("vllm@0.9.2", "a100-sxm4-80gb", DENSE, "fp8", None, WIDENED),
    ("vllm@0.9.2", "l40s", DENSE, "fp8", None, RUNS),
    ("vllm@0.9.2", "h100-sxm-80gb", DENSE, "fp8", None, RUNS),
    # vLLM 0.33, Fp8Config.get_min_capability: 75.
    ("vllm", "t4", DENSE, "fp8", None, WIDENED),
    # vLLM 0.33, mxfp4.py: 80. kernels/linear/nvfp4/marlin.py widens NVFP4 before Blackwell.
    ("vllm", "t4", DENSE, "mxfp4", None, NO_FORMAT),
    ("vllm", "h100-sxm-80gb", DENSE, "nvfp4", None, WIDENED),
    ("vllm", "rtx-5090", DENSE, "nvfp4", None, RUNS),
    # vLLM 0.28 has no bitsandbytes in QuantizationMethods.
    ("vllm", "h100-sxm-80gb", DENSE, "bnb-4bit", None, NO_FORMAT),
    ("vllm@0.25.0", "h100-sxm-80gb", DENSE, "bnb-4bit", None, RUNS),
    # vLLM 0.33, triton_mla.py: "FP8 KV cache is not supported by the Triton MLA backend ... requires SM89+".
    ("vllm", "a100-sxm4-80gb", LATENT, "int4", "fp8", NO_FORMAT),
    ("vllm", "a100-sxm4-80gb", DENSE, None, "fp8", RUNS),
    ("vllm", "t4", DENSE, None, "fp8", NO_FORMAT),
    # vLLM 0.33: sparse attention over latents has kernels for 9.x, 10.x and 12.x.
    ("vllm", "a100-sxm4-80gb", SPARSE, None, None, NO_DEVICE),
    ("vllm", "h200-sxm-141gb", SPARSE, None, None, RUNS),
    # vLLM 0.33, platforms: CUDA, ROCm, XPU, CPU; TPU through tpu_inference.
    ("vllm", "m4-max-128", DENSE, None, None, NO_DEVICE),
    ("vllm", "tpu-v6e", DENSE, None, None, NO_DEVICE),
    ("vllm", "trainium2", DENSE, None, None, NO_DEVICE),
    ("vllm", "gaudi3", DENSE, None, None, NO_DEVICE),
    ("vllm", "ascend-910b", DENSE, None, None, NO_DEVICE),
    ("vllm", "mi300x", DENSE, None, None, RUNS),
    ("vllm", "arc-b580", DENSE, None, None, RUNS),
    # SGLang: "SGLang only supports sm75 and above."; ROCm kernels for gfx942 and gfx950.
    ("sglang", "v100-sxm2-32gb", DENSE, None, None, NO_DEVICE),
    ("sglang", "t4", DENSE, None, None, RUNS),
    ("sglang", "mi300x", DENSE, None, None, RUNS),
    ("sglang", "mi210", DENSE, None, None, NO_DEVICE),
    ("sglang", "t4", DENSE, "fp8", None, NO_FORMAT),
    ("sglang", "a100-sxm4-80gb", DENSE, "fp8", None, WIDENED),
    # vLLM until 0.23 reads GGUF files of the classes that transformers converts; 0.24 has no loader.
    ("vllm@0.14.0", "h100-sxm-80gb", DENSE, "q8_0", None, RUNS),
    ("vllm@0.14.0", "h100-sxm-80gb", "openai/gpt-oss-20b", "q8_0", None, NO_FORMAT),
    ("vllm@0.9.0", "h100-sxm-80gb", DENSE, "q4_k_m", None, NO_FORMAT),
    ("vllm", "h100-sxm-80gb", DENSE, "q8_0", None, NO_FORMAT),
    ("sglang", "h100-sxm-80gb", DENSE, "q8_0", None, RUNS),
    ("tensorrt-llm", "h100-sxm-80gb", DENSE, "q8_0", None, NO_FORMAT),
    # vLLM 0.25: FP8 experts need supports_fp8, which RDNA 3.5 gets with 0.33; dense blocks have a Triton kernel.
    ("vllm@0.25.0", "ryzen-ai-max-395", "Qwen/Qwen3.6-35B-A3B-FP8", None, None, NO_FORMAT),
    ("vllm@0.25.0", "ryzen-ai-max-395", "Qwen/Qwen3.6-27B-FP8", None, None, RUNS),
    ("vllm", "ryzen-ai-max-395", "Qwen/Qwen3.6-35B-A3B-FP8", None, None, RUNS),
    # vLLM 0.11.0 takes Triton for an FP8 cache before Hopper; later releases take FlashInfer.
    ("vllm@0.11.0", "rtx-3090", DENSE, None, "fp8", NO_FORMAT),
    ("vllm@0.20.0", "rtx-3090", DENSE, None, "fp8", RUNS),
    # SGLang's kernels for sparse latents: 9.x and 10.x until 0.5.19.
    ("sglang@0.5.12", "rtx-pro-6000-server", SPARSE, None, None, NO_DEVICE),
    ("sglang", "rtx-pro-6000-server", SPARSE, None, None, RUNS),
    # SGLang 0.5.23: classes that it has no implementation of, and that transformers 5.19 cannot stand in for.
    ("sglang", "h100-sxm-80gb", "RWKV/rwkv-5-world-3b", None, None, NO_DEVICE),
    ("sglang", "h100-sxm-80gb", "tiiuae/falcon-7b", None, None, NO_DEVICE),
    ("sglang", "h100-sxm-80gb", "EleutherAI/gpt-neox-20b", None, None, RUNS),
    # vLLM's XPU kernels: FP8 blocks from 0.23, AWQ from 0.24.
    ("vllm@0.21.0", "arc-pro-b60", "Qwen/Qwen3.6-27B-FP8", None, None, NO_FORMAT),
    ("vllm", "arc-pro-b60", "Qwen/Qwen3.6-27B-FP8", None, None, RUNS),
    ("vllm@0.20.0", "arc-b580", "Qwen/Qwen3-4B-AWQ", None, None, NO_FORMAT),
    # Quantizers that vLLM's and SGLang's lists of methods never had, or have no longer.
    ("vllm", "h100-sxm-80gb", DENSE, "vptq-v8-k65536-r256-n1-c6", None, NO_FORMAT),
    ("vllm@0.9.2", "h100-sxm-80gb", DENSE, "aqlm-1x16-g8", None, RUNS),
    ("vllm", "h100-sxm-80gb", DENSE, "aqlm-1x16-g8", None, NO_FORMAT),
    # One record stands for 0.11 to 0.16, and rules judge the release that is asked for.
    ("vllm@0.15.1", "h100-sxm-80gb", DENSE, "int4-g128-sym-2of4", None, RUNS),
    ("vllm@0.16.0", "h100-sxm-80gb", DENSE, "int4-g128-sym-2of4", None, NO_FORMAT),
    ("vllm@0.11.0", "h100-sxm-80gb", DENSE, "fp8-channel-2of4", None, RUNS),
    ("vllm@0.11.0", "a100-sxm4-80gb", DENSE, "fp8-channel-2of4", None, NO_FORMAT),
    ("sglang", "mi300x", DENSE, "exl3-4bpw", None, NO_FORMAT),
    # TensorRT-LLM's page on quantization: FP4, FP8, W4A16 and W4A8 of GPTQ and AWQ.
    ("tensorrt-llm", "h100-sxm-80gb", DENSE, "vptq-v8-k65536-r256-n1-c6", None, NO_FORMAT),
    ("tensorrt-llm", "h100-sxm-80gb", DENSE, "int4", None, RUNS),
    # TensorRT-LLM's table of classes has no Whisper for the PyTorch backend.
    ("tensorrt-llm", "h100-sxm-80gb", "openai/whisper-large-v3", None, None, NO_DEVICE),
    # TensorRT-LLM: Ampere has "FP32, FP16, BF16, INT8, INT4"; Turing and others are not listed.
    ("tensorrt-llm", "a100-sxm4-80gb", DENSE, "fp8", None, NO_FORMAT),
    ("tensorrt-llm", "l40s", DENSE, "fp8", None, RUNS),
    ("tensorrt-llm", "t4", DENSE, None, None, NO_DEVICE),
    ("tensorrt-llm", "mi300x", DENSE, None, None, NO_DEVICE),
    # llama.cpp and MLX have no rule that refuses an Apple device.
    ("llama-cpp", "m4-max-128", DENSE, None, None, RUNS),
    ("mlx", "m4-max-128", DENSE, None, None, RUNS),
]


@pytest.mark.parametrize(("engine", "gpu", "model", "weights", "kv", "expected"), DOCUMENTED)
def test_a_documented_refusal_or_start_is_judged_so(catalog, engine, gpu, model, weights, kv, expected):
    found = judge(
        launch(catalog, engine, kv_format=None if kv is None else catalog.kv_format(kv)),
        catalog.accelerator(gpu),
        catalog.model(model),
        None if weights is None else catalog.weight_format(weights),
    )
    widened = found.verdict is None and "dequantizes them to 16 bits" in found.reason
    assert (WIDENED if widened else found.verdict) == expected
    assert bool(found.reason) == (expected is not RUNS)


def test_an_estimate_of_what_a_release_refuses_says_so_and_why() -> None:
    found = kvreport.estimate(DENSE, gpu="m4-max-128", engine="vllm", context_tokens=4096)
    printed = found.to_dict()
    assert printed["verdict"] == NO_DEVICE
    assert "platform for Apple" in printed["verdict_reason"]
    assert printed["max_concurrent_requests"] == 0 < printed["max_concurrent_requests_by_memory"]
    assert printed["explanation"][-1].startswith("engine_does_not_run: ")


def test_a_class_is_judged_by_the_list_of_its_release(catalog) -> None:
    """Older releases of vLLM lack it, too: until lists of every release were read, 0.33 alone was judged."""
    for version in ("0.32", "0.33.0", None):
        assert not catalog.support.ruling("vllm", version).served.implements("RwkvForCausalLM")


def test_a_model_that_is_alike_but_for_its_class_decides_nothing_for_it(catalog) -> None:
    """Codes are kept by what a judgement asks of a model."""
    vllm, device = launch(catalog, "vllm"), catalog.accelerator("h100")
    other = catalog.models[DENSE]
    lacking = other.model_copy(update={"architecture": "RwkvForCausalLM"})
    found = [codes(vllm, catalog.support, [device], one, [None])[0][0] for one in (other, lacking, other)]
    assert found[0] == found[2] != found[1]


def test_an_estimate_of_weights_that_are_widened_runs_and_says_so() -> None:
    found = kvreport.estimate(DENSE, gpu="rtx-3090", weights="fp8", context_tokens=4096)
    assert (found.verdict, "dequantizes them to 16 bits" in found.verdict_reason) == ("fits", True)
    plain = kvreport.estimate(DENSE, gpu="h100", weights="fp8", context_tokens=4096)
    assert plain.to_dict()["verdict_reason"] is None


def test_no_row_starts_where_the_release_refuses_and_all_refusals_have_their_code(catalog) -> None:
    gpus = "a100-sxm4-80gb,h100-sxm-80gb,l4,m4-max-128,mi300x,t4,tpu-v5e,v100-sxm2-32gb"
    chosen = axes(catalog, models=f"{DENSE},{LATENT},{SPARSE},openai/gpt-oss-20b", gpus=gpus)
    seen = set()
    for cube in matrix(chosen):
        verdicts, users = cube.values["verdict"], cube.values["max_concurrent_requests"]
        for place in np.argwhere(cube.possible):
            gpu, spread, weights, kv = place
            form = cube.weight_formats[weights]
            code = judge(
                launch(
                    catalog,
                    cube.engine,
                    kv_format=catalog.kv_formats[cube.kv_formats[kv]],
                    layout=cube.layouts[spread],
                ),
                catalog.accelerator(cube.gpus[gpu]),
                cube.model,
                None if form == "released" else catalog.weight_format(form),
            ).code
            rows = verdicts[tuple(place)]
            refused = rows >= Verdict.FORMAT_NOT_SUPPORTED
            assert np.array_equal(rows[refused], np.full(refused.sum(), code))
            assert refused.all() == bool(code)
            assert not users[tuple(place)][refused].any()
            seen.add(code)
    assert seen == {0, int(Verdict.FORMAT_NOT_SUPPORTED), int(Verdict.ENGINE_DOES_NOT_RUN)}


def test_a_size_offers_only_what_runs() -> None:
    found = size("Qwen/Qwen3-32B", context=4096, concurrent=200)
    offered = {one.offer.accelerator.id for one in found.ranking.deployments}
    assert offered
    assert not any(name.startswith(("v100", "m4", "tpu", "trainium", "gaudi", "ascend")) for name in offered)
    assert found.ranking.refused["support"] > 0


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("devices", {"family": "vllm", "vendors": ["NVIDIA"], "source": "nowhere"}),
        ("devices", {"family": "vllm", "vendors": ["Nvidia"], "source": "vllm-xpu"}),
        ("devices", {"family": "vllm", "vendors": ["AMD"], "runs": False, "source": "vllm-xpu"}),
        ("weights", {"family": "vllm", "formats": ["fp8"], "minimum": "8", "source": "vllm-xpu"}),
        (
            "weights",
            {"family": "vllm", "formats": ["fp8"], "releases": ["0.9", "0.8"], "source": "vllm-xpu"},
        ),
    ],
)
def test_a_wrong_rule_is_a_fault(catalog, field, change) -> None:
    data = yaml.safe_load((catalog.folder / "support.yaml").read_text(encoding="utf-8"))
    data[field].append(change)
    with pytest.raises(CatalogError, match=field if change["source"] != "nowhere" else "nowhere"):
        validate(Support, data, "support.yaml")


def test_a_padded_width_divides_where_the_originals_does_not(catalog):
    padded, plain = (
        catalog.model("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4"),
        catalog.model("Qwen/Qwen2.5-72B-Instruct"),
    )
    assert (plain.intermediate_size, padded.intermediate_size) == (29568, 29696)
    vllm, gpu = launch(catalog, "vllm", layout=Layout(tensor=8)), catalog.accelerator("h100")
    assert judge(vllm, gpu, padded).verdict is None
    cut = judge(vllm, gpu, plain, catalog.weight_format("int4"))
    assert cut.verdict == NO_FORMAT
    assert "3,696" in cut.reason


@pytest.mark.parametrize(("release", "verdict"), [("vllm@0.28.0", NO_FORMAT), ("vllm@0.29.0", None)])
def test_blocks_of_experts_are_divided_since_a_release(catalog, release, verdict):
    found = judge(
        launch(catalog, release, layout=Layout(tensor=8)),
        catalog.accelerator("h100"),
        catalog.model("Qwen/Qwen3-235B-A22B-FP8"),
    )
    assert found.verdict == verdict


def test_experts_that_stay_whole_are_not_cut(catalog):
    for layout in (Layout(tensor=8, expert=True), Layout(data=8, expert=True), Layout(tensor=4)):
        found = judge(
            launch(catalog, "sglang", layout=layout),
            catalog.accelerator("h100"),
            catalog.model("Qwen/Qwen3-235B-A22B-FP8"),
        )
        assert found.verdict is None, layout


@pytest.mark.parametrize(
    ("engine", "layout", "runs"),
    [
        # The parsers of the releases: vllm/engine/arg_utils.py, sglang/srt/server_args.py.
        ("vllm@0.10.1", Layout(tensor=8, decode_context=2), False),
        ("vllm@0.11.0", Layout(tensor=8, decode_context=2), True),
        ("vllm@0.9.0", Layout(tensor=4, expert=True), True),
        ("vllm@0.9.0", Layout(tensor=4, data=2), True),
        ("sglang@0.5.13", Layout(tensor=8, decode_context=2), False),
        ("sglang@0.5.15", Layout(tensor=8, decode_context=2), True),
    ],
)
def test_a_release_without_a_flag_refuses_the_layout(
    catalog, engine: str, layout: Layout, runs: bool
) -> None:
    model = catalog.model("Qwen/Qwen3-235B-A22B" if layout.expert else "deepseek-ai/DeepSeek-R1")
    known = catalog.engine(engine)
    judged = judge(
        launch(catalog, known, layout=layout),
        catalog.accelerator("h200-sxm-141gb"),
        model,
    )
    assert (judged.verdict is None) == runs, judged.reason


def test_what_was_judged_before_changes_no_judgement() -> None:
    """Codes are remembered for models that share them: they are those of a judgement made for this question alone."""
    catalog = open_catalog()
    draw = random.Random(20261128)  # noqa: S311 - questions, not keys
    models, devices = list(catalog.models.values()), list(catalog.accelerators.values())
    forms, caches = [None, *catalog.weight_formats.values()], [None, None, *catalog.kv_formats.values()]
    engines = [one for one in catalog.engines.values() if one.version is not None]
    asked = [
        tuple(
            map(
                draw.choice,
                (engines, devices, models, forms, caches, [None, None, "bfloat16", "float16", "float32"]),
            )
        )
        for _ in range(4_000)
    ]
    # The same model in every type, one after the other: what one question leaves behind is what the next one finds.
    asked += [
        (*one[:5], dtype) for one in asked[:400] for dtype in (None, "bfloat16", "float16", "float32", None)
    ]
    refused = 0
    for engine, device, model, form, cache, dtype in asked:
        start = launch(catalog, engine, kv_format=cache, dtype=dtype)
        found = codes(start, catalog.support, [device], model, [form])[0][0]
        assert found == judge(start, device, model, form).code
        refused += found > 0
    assert refused > 1_000


@pytest.mark.parametrize(
    ("engine", "gpu", "dtype", "weights", "expected"),
    [
        # vLLM 0.9.2 to 0.33, _FLOAT16_NOT_SUPPORTED_MODELS: gemma2, gemma3, glm4.
        ("vllm", "h100", "float16", None, NO_DEVICE),
        ("vllm", "h100", "bfloat16", None, None),
        ("vllm", "h100", "auto", None, None),
        ("vllm@0.9.1", "h100", "float16", None, None),
        ("vllm", "mi300x", "float16", None, NO_DEVICE),
        ("vllm", "t4", "float16", None, NO_DEVICE),
        ("vllm", "t4", "bfloat16", None, NO_DEVICE),
        ("vllm", "t4", "auto", "int4", NO_FORMAT),
        ("sglang", "t4", "float16", None, None),
    ],
)
def test_a_class_that_float16_breaks_is_refused_by_release(engine, gpu, dtype, weights, expected) -> None:
    found = kvreport.estimate(
        "google/gemma-2-2b-it", gpu=gpu, engine=engine, dtype=dtype, weights=weights, context_tokens=2048
    )
    assert (found.verdict in (NO_DEVICE, NO_FORMAT)) == (expected is not None), found.verdict_reason
    assert expected is None or found.verdict == expected


def test_a_class_without_float16_is_computed_in_float32_where_bfloat16_lacks() -> None:
    wide = kvreport.estimate("google/gemma-2-2b-it", gpu="t4", context_tokens=2048)
    plain = kvreport.estimate("google/gemma-2-2b-it", gpu="l4", context_tokens=2048)
    assert (wide.request.weight_format_name, wide.request.kv_format.name) == ("fp32", "fp32")
    assert wide.weight_bytes_per_gpu == pytest.approx(2 * plain.weight_bytes_per_gpu, rel=1e-3)
    assert wide.kv_bytes_per_token_per_gpu == 2 * plain.kv_bytes_per_token_per_gpu
    assert any(line.startswith("weights fp32") for line in wide.request.assumptions)
    assert kvreport.estimate("google/gemma-3-4b-it", gpu="t4").verdict == "weights_exceed_memory"


@pytest.mark.parametrize(
    ("engine", "model", "pipeline", "runs"),
    [
        ("vllm@0.9.0", "deepseek-ai/DeepSeek-R1", 2, False),
        ("vllm@0.26.0", "Qwen/Qwen3.6-27B-FP8", 2, False),
        ("vllm@0.26.0", "Qwen/Qwen3.6-27B-FP8", 1, True),
        ("vllm", "Qwen/Qwen3.6-27B-FP8", 2, True),
    ],
)
def test_drafting_in_stages_is_refused_by_release(engine, model, pipeline, runs) -> None:
    found = kvreport.estimate(
        model,
        gpu="h200",
        engine=engine,
        tensor_parallel=4,
        pipeline_parallel=pipeline,
        nodes=pipeline,
        num_speculative_tokens=1,
        context_tokens=4096,
    )
    assert (found.verdict != NO_DEVICE) == runs, found.verdict_reason


@pytest.mark.parametrize(
    ("gpu", "ranks", "nodes", "stated"),
    [
        ("dgx-spark-gb10", 2, 2, True),
        ("h100", 8, 1, False),
        ("h100", 16, 2, True),
        ("rtx-4090", 8, 1, False),
        ("gb300-288gb", 8, 2, True),
    ],
)
def test_devices_stand_in_as_many_machines_as_they_need(gpu, ranks, nodes, stated) -> None:
    found = kvreport.estimate(DENSE, gpu=gpu, tensor_parallel=ranks, context_tokens=2048)
    assert found.request.layout.nodes == nodes
    assert any(line.startswith("nodes ") for line in found.request.assumptions) == stated


def test_no_published_row_puts_two_computers_into_one_machine(catalog) -> None:
    vllm, model = launch(catalog, "vllm", layout=Layout(tensor=2)), catalog.model(DENSE)
    alone = judge(vllm, catalog.accelerator("dgx-spark-gb10"), model)
    assert (alone.verdict, "2 machines" in alone.reason) == (NO_DEVICE, True)
    assert judge(vllm, catalog.accelerator("rtx-4090"), model).verdict is None
    for cube in matrix(axes(catalog, models=DENSE, gpus="dgx-spark-gb10,rtx-4090")):
        if not cube.tensor_parallel[1:]:
            continue
        rows = cube.values["verdict"][list(cube.gpus).index("dgx-spark-gb10"), 1]
        assert (
            rows[cube.possible[list(cube.gpus).index("dgx-spark-gb10"), 1]] == Verdict.ENGINE_DOES_NOT_RUN
        ).all()


@pytest.mark.parametrize(
    ("engine", "kv", "runs"),
    [
        # vLLM, config/cache.py::CacheDType of each release; SGLang 0.5.23, mem_cache/kv_cache_dtype.py.
        ("vllm@0.11.0", "turboquant_k8v4", False),
        ("vllm@0.19.0", "turboquant_k8v4", False),
        ("vllm@0.20.0", "turboquant_k8v4", True),
        ("vllm@0.24.0", "int4_per_token_head", False),
        ("vllm@0.25.0", "int4_per_token_head", True),
        ("vllm@0.33.0", "turboquant_3bit_nc", True),
        ("sglang", "turboquant_k8v4", False),
        ("sglang", "int8_per_token_head", False),
        ("sglang", "fp8", True),
        ("tensorrt-llm", "turboquant_k8v4", False),
    ],
)
def test_a_release_runs_only_the_cache_types_that_it_knows(engine: str, kv: str, runs: bool) -> None:
    found = kvreport.estimate(DENSE, gpu="h100", engine=engine, kv=kv, context_tokens=4096)
    assert (found.verdict != NO_FORMAT) is runs, found.verdict_reason


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "layout", "expected"),
    [
        # 128 query heads: eight ranks of 16 gather 128, more than one padded group of 64.
        (
            SPARSE,
            "h200-sxm-141gb",
            "vllm",
            Layout(8, decode_context=8),
            "--decode-context-parallel-size 4 starts",
        ),
        (SPARSE, "h200-sxm-141gb", "vllm", Layout(8, decode_context=4), None),
        # 64 heads: eight ranks of 8 gather 64.
        ("zai-org/GLM-5", "h200-sxm-141gb", "vllm", Layout(8, decode_context=8), None),
        (
            "zai-org/GLM-5",
            "h200-sxm-141gb",
            "vllm",
            Layout(2, decode_context=2),
            "not return what ranks need",
        ),
        (SPARSE, "b200-sxm-180gb", "vllm", Layout(8, decode_context=8), None),
        (SPARSE, "mi300x", "vllm", Layout(8, decode_context=8), "not return what ranks need"),
        (SPARSE, "mi300x", "vllm", Layout(8), None),
        (LATENT, "mi300x", "vllm", Layout(8, decode_context=8), None),
        ("Qwen/Qwen3-235B-A22B", "mi300x", "vllm", Layout(8, decode_context=2), "not return what ranks need"),
        ("Qwen/Qwen3-235B-A22B", "h100-sxm-80gb", "vllm", Layout(8, decode_context=2), None),
    ],
)
def test_contexts_are_divided_only_where_kernels_join_their_parts(
    catalog, model: str, gpu: str, engine: str, layout: Layout, expected: str | None
) -> None:
    found = judge(
        launch(catalog, engine, layout=layout),
        catalog.accelerator(gpu),
        catalog.model(model),
    )
    if expected is None:
        assert found.verdict is None, found.reason
    else:
        assert found.verdict == NO_DEVICE
        assert expected in found.reason


def test_an_accelerator_that_no_model_runs_on_has_one_reason(catalog) -> None:
    refused = on_accelerator(catalog.support, catalog.engine("vllm"), catalog.accelerator("tpu-v6e"))
    assert refused.verdict == NO_DEVICE
    assert "tpu-inference" in refused.reason
    assert (
        on_accelerator(catalog.support, catalog.engine("vllm"), catalog.accelerator("h100-sxm-80gb")).verdict
        is RUNS
    )
    assert on_accelerator(None, catalog.engine("vllm"), catalog.accelerator("tpu-v6e")).verdict is RUNS


NEVER = (
    "vptq-v8-k65536-r256-n1-c6",
    "spqr-4.25bpw",
    "sinq4-g64",
    "higgs4-g256",
    "exl2-4.25bpw",
    "exl3-4bpw",
    "bitnet",
)


@pytest.mark.parametrize(
    ("family", "form", "last", "first_without"),
    [
        # QuantizationMethods and QUANTIZATION_METHODS of the releases, and their compressed-tensors schemes.
        ("vllm", "aqlm-1x16-g8", "0.10.0", "0.10.1"),
        ("vllm", "hqq4-g64", "0.14.1", "0.15.0"),
        ("vllm", "hqq4-g128", None, "0.14.1"),
        ("sglang", "hqq4-g64", None, "0.5.23"),
        ("sglang", "ascend-w8a8", None, "0.5.23"),
        ("vllm", "ascend-w4a8", None, "0.33.0"),
        ("vllm", "int4-g128-sym-2of4", "0.15.1", "0.16.0"),
        ("vllm", "fp8-channel-2of4", "0.18.1", "0.19.0"),
        ("vllm", "int8-channel-sym-2of4", "0.18.1", "0.19.0"),
        ("sglang", "aqlm-2x8-g8", "0.5.4.post1", "0.5.4.post2"),
        ("sglang", "bnb-4bit", "0.5.4.post1", "0.5.4.post2"),
        ("sglang", "bnb-4bit", "0.5.8", "0.5.7"),
        ("sglang", "bf16-2of4", "0.5.3", "0.5.4"),
        *(
            (family, form, None, release)
            for family, release in (("vllm", "0.9.0"), ("sglang", "0.5.3"))
            for form in NEVER
        ),
        *((family, form, None, None) for family in ("vllm", "sglang") for form in NEVER),
        # The same integers without 2:4 are read by every release.
        ("vllm", "int4-g128-sym", None, ""),
        ("sglang", "int8-channel-sym", None, ""),
    ],
)
def test_a_release_without_a_loader_of_a_quantizer_is_known(
    catalog, family, form, last, first_without
) -> None:
    def refused(release: str | None) -> bool:
        rules = catalog.support.ruling(family, release).rules.weights
        return any(not rule.runs and "NVIDIA" in rule.vendors and rule.names(form) for rule in rules)

    assert refused(first_without or None) == (first_without != "")
    assert last is None or not refused(last)
