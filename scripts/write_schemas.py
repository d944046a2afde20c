"""Write the JSON Schemas of kvreport/publish/schemas from many answers; refuse to break a promise.

python scripts/write_schemas.py            # compare, and write what is new
python scripts/write_schemas.py --check    # compare only; status 1 if something would change
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from kvreport.catalog.load import load_catalog
from kvreport.cli import main as run
from kvreport.dataset.data_version import data_version
from kvreport.publish import embeds, engine_changes, profiles, schemas
from kvreport.publish.page_data import gather

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))
from huggingface_configs import LLAMA_3_1_8B  # noqa: E402 - a config that lies in the tests

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "deepseek-ai/DeepSeek-V3.2",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3.6-27B",
    "tiiuae/falcon-mamba-7b",
    "google/gemma-3-27b-it",
    "mistralai/Mistral-Large-4-1T-A52B",
)
WITHOUT_CACHE = ("Qwen/Qwen-Image", "OpenMOSS-Team/MOVA-720p")
COPY = "someone/Qwen3.6-27B-NVFP4"
"""A copy that is known by its name alone, whose numbers are a range."""
GPUS = ("h100-sxm-80gb", "mi300x", "rtx-4090")
MAC = "m4-max-128"
"""A machine with an engine of its own."""
LOG = """\
INFO Model loading took 15.0 GiB and 3.2 seconds
INFO Available KV cache memory: 55.2 GiB
INFO GPU KV cache size: 452,000 tokens
INFO Maximum concurrency for 8,192 tokens per request: 55.2x
"""
REFUSED = (
    (
        "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', "
        "enforce_eager=True\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
        "when initializing the engine.\n"
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.52 GiB of "
        "which 1.00 GiB is free.\n"
    ),
    "ERROR Please call the operator.\n",
)
"""Starts that end, one with what was asked and left, and a log that says nothing."""
ENGINES = (
    {
        "engine": "vllm", "release": "0.33.0", "reason": None, "refusal": None, "blocks": 4, "kv_bytes_per_token": 1.5,
        "kv_pool_bytes": 64, "kv_pool_tokens": 64, "max_concurrency": 1.5, "max_seqs": 8, "max_batched_tokens": 64,
        "differs": [{"quantity": "blocks", "engine": 4.5, "ours": 5.5}, {"quantity": "tokens", "engine": None, "ours": None}],
    },
    {"engine": "vllm", "release": None, "reason": {"kind": "absent", "text": "is not installed"}},
    {
        "engine": "vllm", "release": "0.33.0", "reason": None, "refusal": "does not fit", "blocks": None,
        "kv_bytes_per_token": None, "kv_pool_bytes": 64, "kv_pool_tokens": None, "max_concurrency": None, "max_seqs": None,
        "max_batched_tokens": None, "differs": [],
    },
)  # fmt: skip
"""What ``--ask-engine`` adds; the engines are not here."""
COMPOSE = """\
services:
  stated:
    image: vllm/vllm-openai:v0.33.0
    command: [meta-llama/Llama-3.1-8B-Instruct, --max-model-len, "8192", --max-num-seqs, "8", --seed, "${SEED}"]
    environment: {VLLM_USE_V2_MODEL_RUNNER: "1"}
    deploy: {resources: {limits: {memory: 64g}, reservations: {devices: [{count: 1}]}}}
    shm_size: 8g
  unstated: {image: someone/image, command: [vllm, serve, someone/unknown], scale: "${SCALE}"}
---
apiVersion: v1
kind: Pod
spec: {containers: [{image: vllm/vllm-openai, args: [--model, m], resources: {limits: {amd.com/gpu: "1"}}}]}
"""
"""Servers of which all is known, and next to nothing; a unit has no name."""


def commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (schema, command) of every answer that the schemas are derived from."""
    log = folder / "start.log"
    log.write_text(LOG, encoding="utf-8")
    yield "estimate", ["estimate", COPY, "--gpu", GPUS[0], "--context", "8K", "--max-seqs", "64"]
    for model in WITHOUT_CACHE:
        yield "estimate-no-cache", ["estimate", model, "--gpu", GPUS[0]]
    yield "estimate", ["estimate", MODELS[0], "--gpu", GPUS[0], "--engine", "ceiling"]
    yield "size", ["size", COPY, "--concurrent", "64", "--context", "8K"]
    # An engine with too few logs at first sight.
    yield "estimate", ["estimate", MODELS[0], "--gpu", GPUS[0], "--engine", "tensorrt-llm"]
    # An engine that answers, one that cannot, and a model without a config.
    config, python = folder / "config.json", folder / "python"
    config.write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    said = {
        "release": "9.9.9",
        "max_seqs": 7,
        "at": [{"pool": 1 << 30, "tokens": 9, "concurrency": 1.5, "blocks": 3}],
    }
    for name, printed in ((str(config), said), (str(config), {"error": "no"}), (MODELS[0], {})):
        python.write_text(f"#!/bin/sh\necho '{json.dumps(printed)}'\n", encoding="utf-8")
        python.chmod(0o755)
        yield "estimate", ["estimate", name, "--gpu", GPUS[0], "--ask-engine", str(python)]
    said = {"release": "9.9.9", "max_batched_tokens": 7, "at": [{"pool": 1 << 30, "error": "no"}]}
    python.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n", encoding="utf-8")
    yield "estimate", ["estimate", str(config), "--gpu", GPUS[0], "--ask-engine", str(python)]
    other, refused = folder / "other", folder / "refused"
    says = {
        "release": "9.9.8",
        "max_seqs": 7,
        "max_batched_tokens": 8,
        "kv_type": "auto",
        "prefix_caching": True,
    }
    says |= {"at": [{"pool": 1 << 30, "tokens": 8, "concurrency": 1.2, "blocks": 2}]}
    bare = folder / "bare"
    for place, printed in ((other, says), (refused, {"error": "no"}), (bare, {"at": [{"pool": 1 << 30}]})):
        place.write_text(f"#!/bin/sh\necho '{json.dumps(printed)}'\n", encoding="utf-8")
        place.chmod(0o755)
    for pair in ((python, other), (other, python), (other, refused), (refused, other), (bare, bare)):
        yield "diff", ["diff", *map(str, pair), "--ask-engine", "--model", str(config), "--gpu", GPUS[0]]
    # Options that are accepted and not followed: with what they change, and one that changes no memory.
    yield "estimate", ["estimate", MODELS[0], "--gpu", GPUS[0], "--engine", "tensorrt-llm", "--eager"]
    yield "estimate", ["estimate", MODELS[0], "--gpu", GPUS[0], "--network-bandwidth", "50GB"]
    for model in MODELS:
        for gpu in GPUS:
            for more in (
                ["--context", "8K"],
                ["--context", "1M", "--tp", "8"],
                ["--engine", "sglang"],
                ["--eager"],
                ["--held-by-others", "8GiB"],
            ):
                yield "estimate", ["estimate", model, "--gpu", gpu, *more]
        yield "size", ["size", model, "--concurrent", "64", "--context", "8K"]
        yield "size", ["size", model, "--concurrent", "64", "--context", "8K", "--engine", "sglang"]
        yield "size", ["size", model, "--concurrent", "4", "--context", "8K", "--engine", "tensorrt-llm"]
        yield (
            "size",
            ["size", model, "--concurrent", "3", "--context", "64K", "--gpu", "rtx-4090", "--available", "1"],
        )
        yield "diff", ["diff", "vllm-0.11", "vllm", "--model", model, "--context", "8K,1M"]
    for text in (
        "Kimi-K3 107136 B/token",
        "Llama 3.1 8B takes 16 GB at 128K",
        "gpt-oss-20b weights 13.8 GB",
        "Qwen3 8B keeps 1 MB of states",
        "Llama 3.1 8B 54 requests at 8K in fp8 on H100",
        "Qwen3 8B cache 0.6 GB at 8K",
    ):
        yield "claim", ["claim", text]
    yield "diff", ["diff", MODELS[0], MODELS[1]]
    yield "diff", ["diff", MODELS[0], MODELS[0]]
    yield (
        "diff",
        ["diff", "vllm", "sglang", "--model", "tiiuae/falcon-mamba-7b,google/*", "--context", "8K,1M"],
    )
    yield "diff", ["diff", "ceiling", "vllm", "--model", "google/gemma-3-27b-it,openai/*"]
    for what in ("models", "gpus", "engines", "formats"):
        yield "list", ["list", what]
    yield "log", ["log", str(log), "--model", MODELS[0], "--gpu", GPUS[0]]
    yield "log", ["log", str(log)]
    for number, line in enumerate(REFUSED):
        refused = folder / f"refused-{number}.log"
        refused.write_text(line, encoding="utf-8")
        yield "log", ["log", str(refused)]
    compose, unit = folder / "compose.yaml", folder / "vllm.service"
    compose.write_text(COMPOSE, encoding="utf-8")
    unit.write_text("[Service]\nExecStart=vllm serve meta-llama/Llama-3.1-8B-Instruct", encoding="utf-8")
    yield "preflight", ["preflight", str(compose), str(unit), "--gpu", GPUS[0], "--require", "9"]


def answer(command: list[str]) -> Any:
    """Return what a command prints as JSON, or None if it refuses."""
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        status = run([*command, "--format", "json"])
    return json.loads(out.getvalue()) if status in (0, 3) else None


def samples(folder: Path) -> dict[str, list[Any]]:
    """Return every answer by the name of its schema."""
    found: dict[str, list[Any]] = {}
    for name, command in commands(folder):
        value = answer(command)
        if value is not None:
            found.setdefault(name, []).append(value)
    found["estimate"] += [found["estimate"][0] | {"engine_says": said} for said in ENGINES]
    for name, value in published():
        found.setdefault(name, []).append(value)
    return found


def published() -> Iterator[tuple[str, Any]]:
    """Yield (schema, content) of the JSON that a small site publishes."""
    catalog = load_catalog()
    version = data_version(catalog.folder)
    site = gather(catalog, models=",".join(MODELS), gpus=",".join(GPUS), version=version)
    site = replace(site, site_url="https://example.org/")
    for address, content in (
        *profiles.files(site, profiles.every_model(site)),
        *embeds.files(site),
        *engine_changes.files(site),
    ):
        kind = {"downloads/v1/models": "model", "badge": "badge"}.get(address.rpartition("/")[0])
        kind = kind or {"downloads/v1/site.json": "site", engine_changes.NAMES[1]: "engine-releases"}.get(
            address
        )
        if kind is not None:
            yield kind, json.loads(content)
    mac = gather(catalog, models=MODELS[0], gpus=MAC, version=version)
    yield "site", json.loads(profiles.encode(profiles.site_facts(mac)))


def main() -> int:
    """Compare, and write unless told otherwise."""
    from tempfile import TemporaryDirectory

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    folder = schemas.STORE
    changed, broken = [], []
    with TemporaryDirectory() as place:
        for name, values in samples(Path(place)).items():
            old = schemas.read(name)
            new = schemas.with_words(schemas.derive(schemas.TITLES[name], values), old or {})
            broken += [f"{name}: {words}" for words in (schemas.narrowed(old, new) if old else ())]
            if old != new:
                changed.append(name)
                if not options.check and not broken:
                    folder.mkdir(exist_ok=True)
                    (folder / f"{name}.json").write_bytes(schemas.encode(new))
    for line in broken:
        print(f"broken promise: {line}", file=sys.stderr)
    print(f"{len(changed)} of {len(schemas.TITLES)} schemas differ: {', '.join(changed) or 'none'}")
    return 1 if broken or (options.check and changed) else 0


if __name__ == "__main__":
    raise SystemExit(main())
