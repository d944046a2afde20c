"""One question has one answer: `estimate`, a row of `matrix` and a deployment of `size`, in every release."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fuzzing import thinned
from rows import answer_of, compare, spread

import kvreport
from kvreport.accounting.engines.sglang.rules import grown
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.release import oldest_computed
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import matrix
from kvreport.errors import InputError
from kvreport.estimation.size import size

FAMILIES = ("vllm", "sglang")
OTHERS = ("tensorrt-llm", "transformers", "mlx", "ceiling", *FAMILIES)
CONTEXTS = (512, 2048, 8192, 32768, 131072)


def every_release() -> list[str]:
    folder = Path(kvreport.__file__).parent.parent / "data"
    listed = {one: yaml.safe_load((folder / f"{one}_releases.yaml").read_text()) for one in FAMILIES}
    engines = open_catalog().engines
    return [
        *(
            f"{one}@{release}"
            for one in FAMILIES
            for release in listed[one]["releases"]
            if oldest_computed(engines.values(), engines[one].family, release) is None
        ),
        *OTHERS,
    ]


@pytest.mark.parametrize("engine", thinned(every_release(), 3))
def test_a_row_of_every_release_is_the_estimate_of_it(catalog: Catalog, engine: str) -> None:
    draw = random.Random(f"rows {engine}")  # noqa: S311 - a spread of cases, no secret
    models, gpus = sorted(catalog.models), sorted(catalog.accelerators)
    compared = 0
    for _ in range(40):
        contexts = sorted({draw.choice(CONTEXTS), draw.randrange(1, 200_000)})
        try:
            chosen = axes(
                catalog,
                models=draw.choice(models),
                gpus=",".join(draw.sample(gpus, 3)),
                contexts=contexts,
                engine=engine,
            )
        except InputError:  # the engine does not have the class
            continue
        for cube in matrix(chosen):
            places = [tuple(one) for one in np.argwhere(cube.possible).tolist()]
            for place in draw.sample(places, min(3, len(places))):
                compared += compare(catalog, cube, place, draw.randrange(len(contexts)), engine)
        if compared >= 15:
            break
    assert compared >= (15 if engine not in ("transformers", "mlx") else 1)


@pytest.mark.parametrize(
    "engine", thinned([one for one in every_release() if one not in ("transformers", "mlx", "ceiling")], 4)
)
def test_a_deployment_of_every_release_holds_what_its_estimate_says(catalog: Catalog, engine: str) -> None:
    draw = random.Random(f"deployments {engine}")  # noqa: S311 - a spread of cases, no secret
    models, gpus = sorted(catalog.models), sorted(catalog.accelerators)
    compared = 0
    for _ in range(40):
        model, tokens = draw.choice(models), draw.choice(CONTEXTS)
        flags: dict[str, Any] = draw.choice([{}, {"max_seqs": 64}, {"utilization": 0.85}])
        try:
            found = size(
                model,
                context=tokens,
                average=tokens,
                concurrent=1,
                gpus=draw.sample(gpus, 5),
                kv=draw.choice([("auto",), ("bf16",), ("fp8",)]),
                engine=engine,
                **flags,
            )
        except InputError:  # nothing fits, or the engine does not have the class
            continue
        deployments = found.ranking.deployments
        for one in draw.sample(deployments, min(3, len(deployments))):
            options = {
                **spread(one.layout),
                **flags,
                "gpu": one.offer.accelerator.id,
                "nodes": one.layout.nodes,
                "network_bandwidth": "12.5GB" if one.layout.nodes > 1 else None,
                "weights": one.weight_format,
                "kv": one.kv_format,
                "context_tokens": tokens,
                "engine": engine,
            }
            told = answer_of(catalog, model, options)
            if told is None:
                continue
            by_memory = told["max_concurrent_requests_by_memory"]  # None where a request holds nothing
            if by_memory is None:
                continue
            if engine.startswith("vllm"):
                # Told as many as its command says, it holds them, and told one more on each rank it does not.
                flag = one.users_each // one.layout.data
                more = answer_of(catalog, model, options | {"max_seqs": flag + 1})
                told = answer_of(catalog, model, options | {"max_seqs": flag})
                assert told is not None, (model, options)
                assert more is not None, (model, options)
                assert by_memory <= one.users_held <= told["max_concurrent_requests_by_memory"], (
                    model,
                    options,
                )
                if one.users_held == one.users_each:
                    assert more["max_concurrent_requests_by_memory"] <= one.users_held, (model, options)
            else:
                assert one.users_held == by_memory, (model, options)
                sglang = engine.startswith("sglang")
                if sglang or (told["limited_by"] == "max_num_seqs" and "max_seqs" not in flags):
                    # The command of a deployment states its requests; an estimate without a word takes the default.
                    # SGLang's flag counts the requests of all data ranks.
                    ranks = 1 if engine.startswith("sglang") else one.layout.data
                    told = answer_of(catalog, model, options | {"max_seqs": one.users_each // ranks})
                    assert told is not None, (model, options)
            # A deployment states the requests at once that its states allow, an estimate those that the engine defaults to.
            if told["verdict"] not in ("max_seqs_exceeds_states", "may_fit"):
                assert one.users_each == told["max_concurrent_requests"], (model, options)
            if (
                one.layout.pipeline == 1
            ):  # of stages, a deployment shows the one that holds the fewest requests
                assert one.pool_bytes == told["kv_pool_bytes_per_gpu"], (model, options)
            compared += 1
        if compared >= 8:
            break
    assert compared >= 8


def test_a_release_of_a_range_has_its_own_behavior_however_it_is_written() -> None:
    """vLLM keeps the buffers of experts since 0.13.0 (``v1/worker/workspace.py``); one record covers 0.11 to 0.16."""
    model, gpu = "moonshotai/Kimi-Linear-48B-A3B-Instruct", "a100-pcie-80gb"
    pools = {}
    for name in ("vllm@0.12.0", "vllm@0.16.0", "vllm==0.16.0", "vLLM 0.16.0"):
        told = kvreport.estimate(
            model, gpu=gpu, tensor_parallel=4, weights="bf16", context_tokens=8192, engine=name
        ).to_dict()
        rows = kvreport.matrix(models=model, gpus=gpu, engine=name, contexts=[8192])
        row = rows[
            (rows["layout"] == "tp4") & (rows["weight_format"] == "bf16") & (rows["kv_format"] == "bf16")
        ]
        assert row["kv_pool_bytes_per_gpu"].item() == told["budget"]["kv_pool_bytes"]
        pools[name] = told["budget"]["kv_pool_bytes"]
    assert pools["vllm@0.16.0"] == pools["vllm==0.16.0"] == pools["vLLM 0.16.0"] < pools["vllm@0.12.0"]


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.28.0"])
def test_rows_of_an_fp8_latent_reserve_as_the_estimate_does(engine: str) -> None:
    """On Hopper graphs keep less of FP8 latents: 1.21 GiB of 20 heads by the second runner, half of that by the first."""
    model = "zai-org/GLM-4.7-Flash"
    gpus = ["h200-sxm-141gb", "b200-sxm-180gb"]
    rows = kvreport.matrix(models=model, gpus=",".join(gpus), engine=engine, contexts=[8192])
    rows = rows[(rows["layout"] == "tp1") & (rows["weight_format"] == "released")]
    pools = {}
    for gpu in gpus:
        for kv in ("bf16", "fp8"):
            told = kvreport.estimate(model, gpu=gpu, kv=kv, context_tokens=8192, engine=engine).to_dict()
            row = rows[(rows["gpu"] == gpu) & (rows["kv_format"] == kv)]
            pools[gpu, kv] = row["kv_pool_bytes_per_gpu"].item()
            assert pools[gpu, kv] == told["budget"]["kv_pool_bytes"]
    counted = 2 if engine == "vllm" else 1
    assert pools[gpus[0], "fp8"] - pools[gpus[0], "bf16"] == counted * 31 * 512 * 20 * 512 * 4
    assert pools[gpus[1], "fp8"] == pools[gpus[1], "bf16"]


def test_stages_of_older_releases_start_only_if_a_whole_request_fits_in_rows_too() -> None:
    model, gpu = "nvidia/GLM-5.2-NVFP4", "a100-sxm4-40gb"
    rows = kvreport.matrix(models=model, gpus=gpu, engine="vllm@0.16.0", contexts=[32768])
    row = rows[
        (rows["layout"] == "pp2-tp8") & (rows["weight_format"] == "released") & (rows["kv_format"] == "bf16")
    ]
    told = kvreport.estimate(
        model,
        gpu=gpu,
        tensor_parallel=8,
        pipeline_parallel=2,
        kv="bf16",
        context_tokens=32768,
        engine="vllm@0.16.0",
    )
    assert row["max_context_tokens"].item() == told.max_context_tokens


def test_deployments_of_older_releases_start_only_if_a_whole_request_fits() -> None:
    options: dict[str, Any] = {"kv": ("bf16",), "engine": "vllm@0.16.0"}
    layouts = [Layout(tensor=8, pipeline=4, nodes=4)]
    for gpu, tokens in (
        ("l40s", 8192),
        ("a100-sxm4-40gb", 131072),
        ("l40s", 131072),
        ("h100-sxm-80gb", 131072),
    ):
        asked: dict[str, Any] = {"gpu": gpu, "nodes": 4, "network_bandwidth": "12.5GB", "kv": "bf16"}
        asked |= {"tensor_parallel": 8, "pipeline_parallel": 4, "context_tokens": tokens}
        asked |= {"engine": "vllm@0.16.0"}
        told = kvreport.estimate("zai-org/GLM-5.2", **asked)
        try:
            found = size(
                "zai-org/GLM-5.2",
                context=tokens,
                average=tokens,
                concurrent=1,
                gpus=[gpu],
                layouts=layouts,
                **options,
            )
        except InputError:
            assert told.max_concurrent_requests == 0
        else:
            of_stages = [one for one in found.ranking.deployments if one.layout.pipeline == 4]
            # The command of a deployment states its requests: the default's graphs take more of the pool.
            for one in of_stages:
                stated = kvreport.estimate("zai-org/GLM-5.2", max_seqs=one.users_each, **asked)
                assert one.users_each == stated.max_concurrent_requests
            assert of_stages or told.max_concurrent_requests == 0


def test_a_row_does_not_depend_on_the_accelerators_beside_it(catalog: Catalog) -> None:
    """SGLang's sparse latents have scales on some devices: the upper bound is of the layout that its pools have."""
    together = kvreport.matrix(models="zai-org/GLM-5.2", engine="sglang", contexts=[8192])
    draw = random.Random(3)  # noqa: S311 - a spread of cases, no secret
    for gpu in ("ascend-910b", "jetson-thor-128gb", *draw.sample(sorted(catalog.accelerators), 4)):
        alone = kvreport.matrix(models="zai-org/GLM-5.2", gpus=gpu, engine="sglang", contexts=[8192])
        beside = together[together["gpu"] == gpu]
        for name in set(alone.columns) - {"gpu"}:
            assert alone[name].astype(str).tolist() == beside[name].astype(str).tolist(), (gpu, name)


@pytest.mark.parametrize("engine", ["llama-cpp", "ollama"])
def test_engines_of_gguf_files_have_no_matrix(catalog: Catalog, engine: str) -> None:
    with pytest.raises(InputError, match="GGUF mixes"):
        axes(catalog, engine=engine)


@pytest.mark.parametrize(("ranks", "kinds"), [(1, ""), (2, "_ranks")])
def test_converted_weights_have_the_band_of_their_format(catalog: Catalog, ranks: int, kinds: str) -> None:
    """``--weights int4`` had the narrower band of the released format."""
    engine, device = catalog.engine("sglang"), catalog.accelerator("h100-sxm-80gb")
    wide = grown(device.usable_bytes) if ranks > 1 else 1
    model = catalog.models["Qwen/Qwen3-32B"]
    for weights, kind in (("released", "plain"), ("fp8", "plain"), ("int4", "drafted_or_four_bits")):
        width = round(engine.coefficients[f"uncertainty_bytes_{kind}{kinds}"] * wide)
        asked = {"weights": weights, "context_tokens": 8192, "engine": "sglang", "tensor_parallel": ranks}
        told = kvreport.estimate(model.id, gpu=device.id, **asked).to_dict()
        assert told["budget"]["uncertainty_bytes"] == width
        found = size(
            model.id,
            context=8192,
            concurrent=1,
            gpus=[device.id],
            layouts=[Layout(tensor=ranks)],
            weights=[weights],
            engine="sglang",
        )
        of_ranks = [one for one in found.ranking.deployments if one.layout.tensor == ranks]
        assert {one.ranks[0].uncertainty_bytes for one in of_ranks} == {width}
