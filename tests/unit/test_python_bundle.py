"""Python in the browser, from its archive alone: every path answers as the package does, whatever files it opens."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

from brought import gguf_file
from packed import printed
from startup_logs import LOGS

from kvreport.catalog.load import open_catalog
from kvreport.cli.preflight import answer as servers
from kvreport.estimation.your_model import Session
from kvreport.evidence.claim_check import answer as judged
from kvreport.publish import python_runtime
from kvreport.site.pages.brought_model import EXAMPLE as CONFIG
from kvreport.site.pages.log_reader import EXAMPLE as LOG
from kvreport.startup_log.in_browser import answer

SGLANG: Final = """\
[2026-09-12 00:20:11] server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=2, mem_fraction_static=0.85, \
context_length=32768)
[2026-09-12 00:21:40 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=47.89 GB, mem usage=30.60 GB.
[2026-09-12 00:21:41 TP0] KV Cache is allocated. #tokens: 274120, K size: 16.73 GB, V size: 16.73 GB
[2026-09-12 00:21:41 TP0] Memory pool end. avail mem=13.90 GB
"""
LLAMA: Final = """\
llama-server -m Qwen3-30B-A3B-Q4_K_M.gguf -c 8192 -ngl 99 --no-such-flag 3
build: 9849 (799fcc04a) with GNU 13.3.0 for Linux x86_64
load_tensors: offloaded 49/49 layers to GPU
load_tensors:        CUDA0 model buffer size = 17524.42 MiB
llama_context: n_ctx         = 8192
llama_kv_cache: size =  768.00 MiB (  8192 cells,  48 layers,  1/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
"""
TENSORRT: Final = "trtllm-serve Qwen/Qwen2.5-7B-Instruct --tp_size 2 --max_seq_len 32768 --no-such-flag 3\n"
GPU: Final = "h100-sxm-80gb"
CLAIMS: Final = [
    {"model": "Kimi-K3", "quantity": "kv_per_token", "value": "107136", "unit": "B"},
    {"model": "glm-5", "quantity": "kv_request", "value": "17.18", "unit": "GB", "context": "198K"},
    {
        "model": "llama-3.1-8b",
        "quantity": "requests",
        "value": "3",
        "unit": "requests",
        "context": "128K",
        "gpu": "H100",
    },
    {"model": "llama-3.1-8b", "quantity": "kv_request", "value": "8", "unit": "GB", "context": ""},
]
"""What the form of the ledger sends; the last is refused."""

FILES: Final = [
    {
        "log": "services: {chat: {image: 'vllm/vllm-openai:v0.33.0', command: [meta-llama/Llama-3.1-8B-Instruct, --max-model-len, '8192']}}",
        "gpu": GPU,
    },
    {"log": "#!/bin/sh\nvllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs $N\n", "gpu": GPU},
    {"log": "[Service]\nExecStart=/opt/start.sh\n", "gpu": ""},
    {"log": "a: b", "gpu": GPU},
]
"""Deployment files as people paste them; the last has no server."""

SCRIPT: Final = """
import base64, json
from pathlib import Path
from kvreport.estimation.your_model import Session
from kvreport.startup_log.in_browser import answer
from kvreport.cli.preflight import answer as servers
from kvreport.evidence.claim_check import (answer as judged)
asked = json.loads(Path(sys.argv[1]).read_text())
session = Session()
told = [answer(log) for log in asked["logs"]] + [judged(claim) for claim in asked["claims"]]
told += [servers(file) for file in asked["files"]]
for one in asked["models"]:
    told.append(session.read({**one["read"], "files": {n: base64.b64decode(c) for n, c in one["read"]["files"].items()}}))
    told += [session.question(json.dumps(question)) for question in one["questions"]]
print(json.dumps(told))
"""


def logs() -> list[dict[str, str]]:
    """The page's own example, with and without names, and starts of every engine."""
    found = [
        {"log": LOG},
        {"log": LOG, "gpu": GPU},
        {"log": LOG, "model": "Qwen/Qwen2.5-72B-Instruct", "gpu": GPU},
        {"log": SGLANG, "gpu": GPU},
    ]
    for text in (*LOGS.values(), SGLANG, LLAMA, TENSORRT):
        found += [{"log": text}, {"log": text, "model": "Qwen/Qwen3-32B", "gpu": GPU}]
    return [{"model": "", "gpu": "", **one} for one in found]


def models() -> list[dict[str, Any]]:
    """The page's own example under every choice of its form, and a GGUF file."""
    catalog = open_catalog()
    every: list[dict[str, Any]] = [{}]
    every += [{"weights": name} for name in catalog.grid.weight_formats]
    every += [{"kv": form.name} for form in catalog.formats.kv]
    every += [{"engine": name} for name in catalog.engines]
    questions = [
        {"ask": "estimate", "options": {"gpu": gpu, "context_tokens": 8192, **options}}
        for options in every
        for gpu in (GPU, "mac-studio-m3-ultra-256gb")
    ]
    questions.append({"ask": "gpus", "options": {"context_tokens": 8192}})
    local = [
        {"ask": "estimate", "options": {"gpu": GPU, "context_tokens": 4096, "engine": name}}
        for name in ("llama-cpp", "ollama")
    ]
    config = {"config.json": json.dumps(CONFIG).encode()}
    return [
        {"read": {"files": config, "name": "acme/open"}, "questions": questions},
        {"read": {"files": {"config.json": b"{}"}, "assume_defaults": True}, "questions": []},
        {"read": {"files": {"tiny-Q4_K.gguf": gguf_file()}}, "questions": local},
    ]


def test_the_archive_answers_every_path_as_the_package(tmp_path: Path) -> None:
    asked = {
        "logs": logs(),
        "files": FILES,
        "claims": CLAIMS,
        "models": [
            {
                "read": {
                    **one["read"],
                    "files": {n: base64.b64encode(c).decode() for n, c in one["read"]["files"].items()},
                },
                "questions": one["questions"],
            }
            for one in models()
        ],
    }
    question = tmp_path / "asked.json"
    question.write_text(json.dumps(asked), encoding="utf-8")
    told = json.loads(printed(tmp_path / "site", SCRIPT, str(question)))
    session = Session()
    ours = [answer(log) for log in logs()] + [judged(claim) for claim in CLAIMS]
    ours += [servers(file) for file in FILES]
    for one in models():
        ours.append(session.read(one["read"]))
        ours += [session.question(json.dumps(question)) for question in one["questions"]]
    assert len(told) == len(ours) > 80
    differing = [(n, got, want) for n, (got, want) in enumerate(zip(told, ours, strict=True)) if got != want]
    assert not differing, differing[0]
    assert "error" not in json.loads(ours[0])
    # A pool of SGLang is predicted by what the page loads.
    assert any("cache size: log 274,120, we compute" in line for line in json.loads(ours[3])["result"])
    first, *_, refused = [json.loads(one) for one in ours[len(logs()) :][: len(CLAIMS)]]
    assert (first["result"]["verdict"], first["result"]["factor"]) == ("contradicted", 3.875)
    assert "found no context" in refused["error"]
    compose, script, unit, none = (json.loads(servers(file)) for file in FILES)
    assert any("requests at 8K fit on one H100" in line for line in compose["result"])
    assert any("answered without what has no value" in line for line in script["result"])
    assert unit["result"] == ["line 2: starts /opt/start.sh, whose command is not in this file"]
    assert none["result"] == ["No server that is known in this file: no start command of one was found."]
    # Most of them are answers: a row of refusals would agree, too.
    assert sum("result" in json.loads(one) for one in ours) > len(ours) / 2


def test_a_file_of_the_data_is_packed_or_named_as_one_of_the_pages(repository: Path) -> None:
    tops = {path.name for path in (repository / "data").iterdir()}
    assert tops >= python_runtime._FOR_PAGES
