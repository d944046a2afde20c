"""The matrix is the estimate, many times."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import rows
from fuzzing import TIMES, thinned

import kvreport
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.step import Loading
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.accounting.support_lookup import judge
from kvreport.dataset.columns import CAPACITY
from kvreport.dataset.grid import axes, parse_shard
from kvreport.dataset.matrix import cube_of, matrix
from kvreport.errors import InputError
from tests import trunk

KINDS = "a100-sxm4-80gb,b200-sxm-180gb,gaudi3,h100-sxm-80gb,l4,m4-max-128,mi300x,rtx-5090,tpu-v5e"


@pytest.fixture(scope="module")
def cubes(catalog):
    """The first and the last model of every class, every model when fuzzing, on one accelerator of each kind."""
    if TIMES > 1:
        return list(matrix(axes(catalog, gpus=KINDS)))
    by_class = {}
    for name in sorted(catalog.models):
        by_class.setdefault(catalog.models[name].architecture, []).append(name)
    models = sorted({name for names in by_class.values() for name in (names[0], names[-1])})
    return list(matrix(axes(catalog, models=",".join(models), gpus=KINDS)))


def test_a_random_sample_of_rows_equals_the_estimate_of_the_same_combination(catalog, cubes):
    """One formula: 300 rows drawn from models of all classes, every shared field equal.

    And 40 more of models whose cache has another layout on another device.
    """
    draw = random.Random(20261121)  # noqa: S311
    sparse = [
        cube
        for cube in cubes
        if cube.model.architecture in ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
    ]
    assert sparse
    drawn = [draw.choice(cubes) for _ in range(300)] + [draw.choice(sparse) for _ in range(40)]
    compared = 0
    for cube in thinned(drawn, 3):
        where = tuple(draw.choice(np.argwhere(cube.possible).tolist()))
        compared += rows.compare(catalog, cube, where, draw.randrange(len(cube.contexts)), cube.engine)
    assert compared > len(drawn) // 4


def test_rows_of_stages_have_the_bytes_of_the_fullest_stage_in_the_checkpoints_own_format():
    # Which stage is the fullest is another one in the formats that a checkpoint is converted to.
    model = "deepseek-ai/DeepSeek-V4-Pro"
    rows = kvreport.matrix(models=model, gpus="mi300a")
    of_stages = rows[(rows["layout"] == "pp2-tp8") & (rows["context_tokens"] == 8192)]
    assert len(of_stages)
    for row in of_stages.to_dict("records"):
        ours = kvreport.estimate(
            model,
            gpu="mi300a",
            tensor_parallel=8,
            pipeline_parallel=2,
            nodes=2,
            kv=row["kv_format"],
            context_tokens=8192,
        ).to_dict()
        for name in ("weight_bytes_per_gpu", "kv_bytes_per_request_per_gpu", "max_concurrent_requests"):
            assert row[name] == ours[name], (row["kv_format"], name)


def test_combinations_left_out_are_those_that_the_estimate_refuses(catalog):
    chosen = axes(catalog, models="Qwen/Qwen2.5-7B,deepseek-ai/DeepSeek-V3", kv=["nvfp4", "bf16"])
    for cube in matrix(chosen):
        for g, t, _, k in np.argwhere(~cube.possible).tolist():
            if not cube.layouts[t].is_tensor_only:
                continue  # conversions are left out there, not refused
            with pytest.raises(InputError):
                kvreport.estimate(
                    cube.model,
                    gpu=cube.gpus[g],
                    tensor_parallel=cube.tensor_parallel[t],
                    kv=cube.kv_formats[k],
                )


def test_only_blackwell_keeps_a_cache_in_nvfp4(catalog):
    (cube,) = matrix(axes(catalog, models="Qwen/Qwen2.5-7B", gpus="h100-sxm-80gb,b200*", kv=["nvfp4"]))
    assert dict(zip(cube.gpus, cube.possible.any(axis=(1, 2, 3)), strict=True)) == {
        "b200-sxm-180gb": True,
        "h100-sxm-80gb": False,
    }


def test_a_latent_model_has_no_rows_for_formats_that_cannot_store_it(catalog):
    chosen = axes(catalog, models="deepseek-ai/DeepSeek-V3", gpus="h100*", kv=["int8", "fp8"])
    (cube,) = matrix(chosen)
    assert cube.kv_formats == ("fp8",)


def test_heads_that_do_not_divide_are_no_rows(catalog):
    # Qwen2.5 7B has 28 heads.
    (cube,) = matrix(axes(catalog, models="Qwen/Qwen2.5-7B", gpus="h100*", tensor_parallel=[1, 2, 4, 8]))
    assert cube.tensor_parallel == (1, 2, 4)


def test_what_does_not_fit_is_a_row_with_its_verdict(catalog):
    (cube,) = matrix(axes(catalog, models="Qwen/Qwen2.5-72B", gpus="rtx-4090"))
    codes = cube.values["verdict"]
    released, alone = cube.weight_formats.index("released"), cube.layouts.index(Layout(tensor=1))
    within = [c for c, tokens in enumerate(cube.contexts) if tokens <= cube.model.context_tokens]
    assert (codes[:, alone, released][..., within] == Verdict.WEIGHTS_EXCEED_MEMORY).all()
    assert (cube.values["max_concurrent_requests"][:, alone, released] == 0).all()


def test_macs_have_rows_of_the_engine_that_serves_on_them(catalog):
    """vLLM has no platform for a Mac: its rows are mlx-lm's, on one machine, between those of other accelerators."""
    gpus = "m4-max-128,max-1550,mi300x,l4"
    found = list(matrix(axes(catalog, models="Qwen/Qwen3-30B-A3B", gpus=gpus)))
    assert [(cube.engine, cube.gpus) for cube in found] == [
        ("vllm", ("l4",)),
        ("mlx", ("m4-max-128",)),
        ("vllm", ("max-1550", "mi300x")),
    ]
    assert found[1].tensor_parallel == (1,)
    assert (found[1].values["verdict"] == Verdict.FITS).any()
    asked = axes(catalog, models="Qwen/Qwen3-30B-A3B", gpus=gpus, engine="vllm")
    assert [cube.engine for cube in matrix(asked)] == ["vllm"]


def test_users_never_grow_with_the_context_and_never_pass_the_ceiling(cubes):
    for cube in cubes:
        users = cube.values["max_concurrent_requests"]
        assert (np.diff(users, axis=-1) <= 0).all(), cube.model.id
        assert (users <= cube.values["max_concurrent_requests_ceiling"]).all(), cube.model.id


def test_every_value_is_a_described_column(cubes):
    described = set(CAPACITY.names) - set(CAPACITY.key)
    assert set(cubes[0].values) <= described


@pytest.mark.parametrize("of", [1, 2, 5, 23])
def test_shards_are_disjoint_and_their_union_is_the_whole(catalog, of):
    of_each = {"contexts": [2048], "tensor_parallel": [1], "weights": ["released", "bf16"], "kv": ["bf16"]}
    chosen = axes(catalog, models="*qwen2*", gpus="*h100*,b200*,a100*", **of_each)

    def pairs(shard):
        return [(cube.model.id, gpu) for cube in matrix(chosen, shard) for gpu in cube.gpus]

    whole = pairs((1, 1))
    parts = [pairs((number, of)) for number in range(1, of + 1)]
    assert [pair for part in parts for pair in part] == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/", "a/b", "1/3/4", "-1/3", "1.0/3"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="shard"):
        parse_shard(text)


@pytest.mark.parametrize(
    "asked",
    [
        {"models": "nobody*"},
        {"gpus": "nothing*"},
        {"contexts": []},
        {"tensor_parallel": [0]},
        {"weights": ["int3"]},
        {"kv": ["int3"]},
        {"engine": "vlm"},
    ],
)
def test_an_axis_that_cannot_be_is_refused(catalog, asked):
    with pytest.raises(InputError):
        axes(catalog, **asked)


def test_any_context_can_be_asked_for(catalog):
    chosen = axes(catalog, models="Qwen/Qwen2.5-7B", gpus="h100-sxm-80gb", contexts=[1, 7, 1 << 20])
    cube = cube_of(chosen.models[0], chosen)
    # 28 layers x 4 heads x 256 x 2 B, in blocks of 16 tokens
    assert cube.values["kv_bytes_per_request_per_gpu"][0, 0, 0, 0].tolist() == [
        16 * 57_344,
        16 * 57_344,
        57_344 << 20,
    ]


@pytest.mark.parametrize("name", ["vllm", "vllm-0.11", "sglang"])
def test_devices_and_steps_of_one_class_have_the_same_plan(catalog, name):
    """The short cut of large tables: what kernels force on a device decides its plan, nothing else of it does."""
    engine = catalog.engine(name)
    asked = rules(engine)
    devices = {asked.device_class(device)[1]: device for device in catalog.accelerators.values()}
    servings = [
        Serving(max_batched_tokens=tokens, max_seqs=requests, prefix_caching=caching)
        for tokens in (2048, 8192)
        for requests in (64, 5000)
        for caching in (None, False)
    ]
    shared = several = 0
    for model in list(catalog.models.values())[::5]:
        for form in map(catalog.kv_format, ("bf16", "fp8", "nvfp4")):
            found: dict[object, set[object]] = {}
            for device, serving in itertools.product(devices.values(), servings):
                try:
                    made = asked.plan(
                        trunk.case(model, engine, serving=serving, kv_format=form, accelerator=device)
                    )
                    laid = (made.block_bytes, made.kept_blocks, made.profile, made.pool)
                except InputError:
                    laid = None
                kind = asked.plan_class(model, form, device, serving)
                found.setdefault((*kind, serving.prefix_caching), set()).add(laid)
            assert {len(plans) for plans in found.values()} == {1}, (model.id, form.name)
            shared += len(found) < len(devices)
            several += len(found) > 2
    assert shared > 80
    assert several > 20


@pytest.mark.parametrize("name", ["vllm", "vllm-0.11", "sglang"])
def test_loading_adds_the_same_on_devices_of_one_class(catalog, name):
    engine = catalog.engine(name)
    asked = rules(engine)
    devices = {(device.vendor, device.compute_capability): device for device in catalog.accelerators.values()}
    several = 0
    for model in list(catalog.models.values())[::3]:
        for form in (None, catalog.weight_format("fp8"), catalog.weight_format("mxfp4")):
            found: dict[object, list[dict[str, int]]] = {}
            for device in devices.values():
                added = asked.load_overhead(
                    Loading(model, asked.engine, form, catalog.weight_formats, device, Layout(tensor=2))
                )
                found.setdefault(asked.overhead_class(model, device), []).append(added)
            for alike in found.values():
                assert alike == [alike[0]] * len(alike), (model.id, form)
            several += len(found) > 1
    assert several > 20


def test_no_row_is_above_its_engines_limit_and_none_runs_where_support_says_no(catalog, cubes):
    """Every model on one accelerator of each kind: caps, refusals, and what refused rows say."""
    refusals = 0
    for cube in cubes:
        engine = catalog.engine(cube.engine)
        caps = {slug: rules(engine).scheduler(catalog.accelerator(slug))[1] for slug in cube.gpus}
        running, codes = cube.values["max_concurrent_requests"], cube.values["verdict"]
        for g, gpu in enumerate(cube.gpus):
            for t, layout in enumerate(cube.layouts if engine.device_classes else ()):
                assert running[g, t].max() <= caps[gpu] * layout.data, (cube.model.id, gpu, layout)
        starts = codes <= Verdict.TIGHT
        assert not running[~starts].any(), cube.model.id
        for g, gpu in enumerate(cube.gpus):
            for w, name in enumerate(cube.weight_formats):
                found = judge(
                    trunk.launch(catalog, engine),
                    catalog.accelerator(gpu),
                    cube.model,
                    None if name == "released" else catalog.weight_format(name),
                )
                if found.verdict is not None:
                    refusals += 1
                    assert not starts[g, :, w][cube.possible[g, :, w]].any(), (cube.model.id, gpu, name)
    assert refusals
