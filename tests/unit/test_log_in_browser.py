"""What the log page's Python answers: the command's own lines, from the packed code alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.cli import main
from kvreport.startup_log.in_browser import answer

CATALOG = open_catalog()
SGLANG = """\
[2026-09-12 00:20:11] server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=2, mem_fraction_static=0.85, context_length=32768)
[2026-09-12 00:21:40 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=47.89 GB, mem usage=30.60 GB.
[2026-09-12 00:21:41 TP0] KV Cache is allocated. #tokens: 274120, K size: 16.73 GB, V size: 16.73 GB
[2026-09-12 00:21:41 TP0] Memory pool end. avail mem=13.90 GB
"""
LLAMA = """\
build: 9849 (799fcc04a) with GNU 13.3.0 for Linux x86_64
load_tensors: offloaded 49/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   166.92 MiB
load_tensors:        CUDA0 model buffer size = 17524.42 MiB
llama_context: n_ctx         = 8192
llama_kv_cache: size =  768.00 MiB (  8192 cells,  48 layers,  1/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
"""


@pytest.mark.parametrize(
    ("log", "model", "gpu"),
    [
        (SGLANG, "", "h100-sxm-80gb"),
        (SGLANG, "Qwen--Qwen3-32B", ""),
        (LLAMA, "Qwen--Qwen3-30B-A3B", ""),
        ("INFO: nothing of an engine\n", "", ""),
    ],
)
def test_the_answer_is_the_commands(
    log: str, model: str, gpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "start.log"
    path.write_text(log, encoding="utf-8")
    asked = ["log", str(path), *(["--model", model] if model else []), *(["--gpu", gpu] if gpu else [])]
    assert main(asked) == 0
    told = json.loads(answer({"log": log, "model": model, "gpu": gpu}, CATALOG))["result"]
    assert "\n".join(told).rstrip() == capsys.readouterr().out.rstrip()


def test_unequal_gpus_and_bad_names() -> None:
    unequal = json.loads(answer({"log": SGLANG, "gpu": "rtx-5090 + rtx-3090"}, CATALOG))
    assert "result" in unequal
    assert "no-such" in json.loads(answer({"log": SGLANG, "gpu": "no-such"}, CATALOG))["error"]
