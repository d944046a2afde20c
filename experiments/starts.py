"""Start the installed vLLM on configs with random weights, and hold its log against what we compute.

Memory is what it would be with trained weights: shapes decide it. Nothing is downloaded, no tokenizer is loaded, and the
server's own defaults for a device are stated, since ``LLM`` has others. Each start is a process of its own, because a process
keeps what it once took of a device. The logs are what ``kvreport log`` reads; the ones worth keeping are recorded in
``data/observations/vllm-own.yaml``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from experiments.models import subject
from kvreport import read_log

QUIET: Final = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}
SERVER: Final = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
"""A server's defaults on a device of 70 GiB or more (vLLM 0.26.0 ``engine/arg_utils.py``); ``LLM`` takes twice the tokens."""
SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Start:
    """One start."""

    name: str  # What it is called.
    model: str  # Id of the config that lies in ``experiments/configs``.
    # Arguments of ``vllm.LLM`` in addition to :data:`SERVER`.
    flags: dict[str, Any] = field(default_factory=dict)
    # Weight format, where the config that lies there has another than the model was released in.
    weights: str | None = None
    # Keys of the config that are different in this start, so that one device holds a part of a larger model.
    changes: dict[str, Any] = field(default_factory=dict)


STARTS: Final = (
    Start("llama-8b", "meta-llama/Llama-3.1-8B", {"max_model_len": 8192}),
    Start("gpt-oss-20b", "openai/gpt-oss-20b", weights="bf16"),
    Start("qwen35-27b", "Qwen/Qwen3.5-27B", {"max_model_len": 32768, "language_model_only": True}),
    Start("nemotron-nano", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"max_model_len": 32768}),
    Start("qwen3-30b", "Qwen/Qwen3-30B-A3B", {"max_model_len": 32768}),
    Start("gemma3-27b", "google/gemma-3-27b-it", {"max_model_len": 32768, "language_model_only": True}),
    Start("deepseek-lite", "deepseek-ai/DeepSeek-V2-Lite", {"max_model_len": 32768}),
    Start("phi4-eager", "microsoft/phi-4", {"enforce_eager": True}),
    Start("glm47-flash", "zai-org/GLM-4.7-Flash", {"max_model_len": 32768}),
    Start("qwen35-35b", "Qwen/Qwen3.5-35B-A3B", {"max_model_len": 32768, "language_model_only": True}),
    Start("lfm2-1b", "LiquidAI/LFM2-1.2B", {"max_model_len": 32768}),
    Start("olmo3-7b", "allenai/Olmo-3-7B-Instruct", {"max_model_len": 8192}),
    Start("qwen3-30b-fp8-cache", "Qwen/Qwen3-30B-A3B", {"max_model_len": 32768, "kv_cache_dtype": "fp8"}),
    # Every head and the whole latent of DeepSeek-V3 in six of its layers: what a data rank's attention keeps.
    Start(
        "deepseek-six-layers",
        "deepseek-ai/DeepSeek-R1",
        {"max_model_len": 32768},
        changes={
            "num_hidden_layers": 6,
            "first_k_dense_replace": 2,
            "n_routed_experts": 16,
            "n_group": 4,
            "topk_group": 2,
            "num_nextn_predict_layers": 0,
            "quantization_config": None,
        },
    ),
)


def begin(name: str, folder: Path) -> None:
    """Start one engine in this process; ``folder`` gets the config that it reads."""
    one = _named(name)
    (folder / "config.json").write_text(json.dumps(config_of(one)), encoding="utf-8")
    from vllm import LLM

    LLM(model=str(folder), load_format="dummy", skip_tokenizer_init=True, **(SERVER | one.flags))


def config_of(one: Start) -> dict[str, Any]:
    """The config that a start reads; a key that its changes have as None is left out."""
    changed = subject(one.model).config | one.changes
    return {key: value for key, value in changed.items() if key not in one.changes or value is not None}


def check(names: list[str], out: Path, gpu: str) -> int:
    """Start engines one after the other, keep their logs, and print their figures with those that we compute.

    Args:
        names: Which of :data:`STARTS`; empty for all.
        out: Folder of the logs, ``NAME.log``.
        gpu: The accelerator, by its name in the catalog.

    Returns:
        1 if a start failed, else 0.
    """
    chosen = [_named(name) for name in names] or list(STARTS)
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for one in chosen:
        path = out / f"{one.name}.log"
        with tempfile.TemporaryDirectory() as folder, path.open("w", encoding="utf-8") as log:
            command = [sys.executable, "-m", "experiments", "begin", one.name, folder]
            try:
                done = subprocess.run(
                    command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=SECONDS,
                    check=False,
                    env=os.environ | QUIET,
                )
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = -1
            text = path.read_text(encoding="utf-8", errors="replace")
            print(f"--- {one.name}: {'ended' if code == 0 else f'stopped with {code}'}, {path}", flush=True)
            failed |= code != 0
            model = str(Path(folder) / "config.json") if one.changes else one.model
            for found in read_log(text, gpu=gpu, model=model, weights=one.weights).comparisons:
                print(found.line(), flush=True)
    return int(failed)


def _named(name: str) -> Start:
    for one in STARTS:
        if one.name == name:
            return one
    raise SystemExit(f"found {name!r}; allowed: {', '.join(one.name for one in STARTS)}")
