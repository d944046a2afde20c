"""The search of the sizer's page, in a JavaScript engine, is `kvreport size`'s over every layout and random inputs."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import TIMES
from javascript import run
from sizing_cases import CATALOG, IN_BROWSER, compare, data, in_python, site, under, workloads

from kvreport import estimate
from kvreport.accounting import ranking as search
from kvreport.publish.browser import script
from kvreport.publish.profiles import ENGINES

ASSETS = Path(__file__).parents[2] / "docs/assets"
LATENT = "deepseek-ai/DeepSeek-V3"
SPARSE = "deepseek-ai/DeepSeek-V4-Pro"
GROUPED = "Qwen/Qwen3-235B-A22B"
HYBRID = "Qwen/Qwen3.5-397B-A17B"
EACH = 3 if TIMES > 1 else 2
"""Workloads of a draw: `make nightly` has a third."""


@cache
def program() -> str:
    parts = [
        script(),
        *((ASSETS / name).read_text("utf-8") for name in ("kv-capacity.js", "kv-state.js", "kv-sizing.js")),
    ]
    ask = "JSON.parse(await new Response(Deno.stdin.readable).text())"
    return "\n".join(parts) + f"\nconsole.log(JSON.stringify(({IN_BROWSER})({ask})));\n"


def answers(*given: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(program(), given)
    return found


def drawn(model: str, given: dict[str, Any], seed: int) -> dict[str, Any]:
    """Which GPUs, formats, numbers and prices are asked for: the same for the same seed."""
    draw = random.Random(f"{model} {seed}")  # noqa: S311 - a spread of cases, no secret
    gpus = [gpu.id for gpu in site(model).gpus]
    some = None if seed == 0 else draw.sample(gpus, 6)
    return {
        "gpus": some,
        "weights": draw.choice([["released"], ["released", "int4"], ["fp8"]]),
        "kv": draw.choice([[given["model"]["kv"]], ["fp8"], ["bf16"]]),
        "layouts": None,
        "available": draw.choice([None, None, 8, 16, 64]),
        "prices": None if some is None else draw.choice([None, {gpu: draw.uniform(1, 9) for gpu in some}]),
    }


@pytest.mark.parametrize("model", [LATENT, SPARSE, GROUPED, HYBRID])
def test_the_page_searches_what_the_command_searches(model: str) -> None:
    given = data(model)
    layouts, compared = set(), 0
    for seed in range(3 if TIMES > 1 else 2):
        options, works = drawn(model, given, seed), workloads(model, EACH, seed + 1)
        if any(name not in given["model"]["plan"] for name in options["kv"]):
            continue
        for work, answer in zip(works, answers(given, works, options), strict=True):
            ranking = in_python(model, work, options)
            compared += compare(answer, ranking, (options, work))
            layouts |= {one.layout.label for one in ranking.deployments}
    assert compared > 100
    # What only the search has is among what was compared.
    published = {one["label"] for one in given["site"]["layouts"]}
    assert layouts & {one["label"] for one in given["site"]["sizing_layouts"]}
    assert layouts & published


PLAIN = {"available": None, "prices": None, "layouts": None, "weights": ["released"]}


@pytest.mark.parametrize(
    ("model", "machine", "weights"),
    [
        ("Qwen/Qwen3.6-27B", "rtx-5090+rtx-3090", ["int4"]),
        ("Qwen/Qwen3.6-27B", "rtx-3090*2+rtx-4090", ["fp8", "int4"]),
        ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm-80gb*4+a100-sxm4-80gb*4", ["released"]),
        ("meta-llama/Llama-3.1-70B-Instruct", "rtx-4090*4+rtx-3090*2", ["fp8", "int4"]),
    ],
)
def test_a_machine_of_unequal_gpus_is_searched_alike(
    monkeypatch: pytest.MonkeyPatch, model: str, machine: str, weights: list[str]
) -> None:
    # The page has the engine's own division into stages; the command also moves layers.
    monkeypatch.setattr(search, "best_partition", lambda case, _: case.layout.partition)
    given, works = data(model), workloads(model, 6)
    devices = {part.partition("*")[0] for part in machine.split("+")}
    options = {**PLAIN, "gpus": [machine], "weights": weights, "kv": [given["model"]["kv"]]}
    compared, seen = 0, set()
    for prices in (None, dict.fromkeys(sorted(devices), 1.5)):
        asked = {**options, "prices": prices, "available": 4 if prices else None}
        for work, answer in zip(works, answers(given, works, asked), strict=True):
            found = in_python(model, work, asked)
            published = [
                one["label"] for kind in ("layouts", "sizing_layouts") for one in given["site"][kind]
            ]
            kept = [one for one in found.deployments if one.layout.label in published]
            assert [one["layout"] for one in answer["deployments"]] == [one.layout.label for one in kept]
            answer["refused"] = found.refused
            compared += compare(answer, search.Ranking(tuple(kept), found.refused, 0.0, 0.0), (asked, work))
            seen |= {one.layout.label for one in kept}
    assert compared > 5
    assert any("pp" in label for label in seen)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name in CATALOG.engines])
@pytest.mark.parametrize("model", [LATENT, GROUPED])
def test_every_layout_is_searched_under_every_engine(engine: str, model: str) -> None:
    given = under(data(model), model, engine)
    rented = [gpu.id for gpu in site(model).gpus if gpu.is_commonly_rented]
    options = {**PLAIN, "gpus": rented, "kv": [given["model"]["kv"]]}
    works, layouts = workloads(model, EACH, 5), set()
    for work, answer in zip(works, answers(given, works, options), strict=True):
        found = in_python(model, work, options, engine)
        answer["refused"] = {name: found.refused[name] for name in found.refused if name != "support"}
        compare(answer, found, (engine, work))
        layouts |= {one.layout.label for one in found.deployments}
    assert any(not label.startswith("tp") for label in layouts)


def test_many_told_requests_leave_less_where_images_pass_through_the_gpu() -> None:
    """SGLang on large Hopper GPUs: 2 GiB more from 400 requests on, which the command of a deployment says."""
    model = "Qwen/Qwen3-VL-4B-Instruct"
    given = under(data(model), model, "sglang")
    options = {**PLAIN, "gpus": ["h200-sxm-141gb"], "kv": [given["model"]["kv"]]}
    works = [
        {
            **work,
            "longest": 512,
            "mean": 512,
            "prompt": 500,
            "output": 12,
            "prefix": 0,
            "ttft": None,
            "tpot": None,
        }
        for work in workloads(model, EACH)
    ]
    for work, answer in zip(works, answers(given, works, options), strict=True):
        found = in_python(model, work, options, "sglang")
        answer["refused"] = {name: found.refused[name] for name in found.refused if name != "support"}
        compare(answer, found, work)
        [single] = [one for one in found.deployments if one.layout.label == "tp1"]
        asked = {"gpu": "h200-sxm-141gb", "engine": "sglang", "context_tokens": 512}
        told = estimate(model, max_seqs=single.users_each, **asked)
        assert (
            single.pool_bytes
            == told.budget.kv_pool_bytes
            == estimate(model, **asked).budget.kv_pool_bytes - (2 << 30)
        )
        assert single.users_each == told.max_concurrent_requests
