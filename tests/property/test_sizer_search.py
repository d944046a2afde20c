"""The search of the sizer's page, in a JavaScript engine, is `kvreport size`'s over every layout and random inputs."""

from __future__ import annotations

import json
import random
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from javascript import deno
from sizing_cases import IN_BROWSER, compare, data, in_python, site, workloads

from kvreport.publish.browser import script

ASSETS = Path(__file__).parents[2] / "docs/assets"
LATENT = "deepseek-ai/DeepSeek-V3"
SPARSE = "deepseek-ai/DeepSeek-V4-Pro"
GROUPED = "Qwen/Qwen3-235B-A22B"
HYBRID = "Qwen/Qwen3.5-397B-A17B"


@cache
def program() -> str:
    parts = [script(), *((ASSETS / name).read_text("utf-8") for name in ("kv-capacity.js", "kv-sizing.js"))]
    ask = "JSON.parse(await new Response(Deno.stdin.readable).text())"
    return "\n".join(parts) + f"\nconsole.log(JSON.stringify(({IN_BROWSER})({ask})));\n"


def answers(folder: Path, *given: Any) -> list[dict[str, Any]]:
    file = folder / "run.js"
    file.write_text(program(), encoding="utf-8")
    command = [deno(), "run", "--quiet", "--no-config", str(file)]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
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
def test_the_page_searches_what_the_command_searches(tmp_path: Path, model: str) -> None:
    given = data(model)
    layouts, compared = set(), 0
    for seed in range(4):
        options, works = drawn(model, given, seed), workloads(model, 3, seed + 1)
        if any(name not in given["model"]["plan"] for name in options["kv"]):
            continue
        for work, answer in zip(works, answers(tmp_path, given, works, options), strict=True):
            ranking = in_python(model, work, options)
            compared += compare(answer, ranking, (options, work))
            layouts |= {one.layout.label for one in ranking.deployments}
    assert compared > 100
    # What only the search has is among what was compared.
    published = {one["label"] for one in given["site"]["layouts"]}
    assert layouts & {one["label"] for one in given["site"]["sizing_layouts"]}
    assert layouts & published
