"""Deployment files that ``--as`` writes: read back, each keeps its launch and every figure."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvreport.cli import main
from kvreport.cli.deploy import KINDS
from kvreport.deployments.written import WRITTEN, to_yaml

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
ASKED = {
    "vllm": [LLAMA, "--gpu", "L4", "--context", "8K", "--kv", "fp8", "--utilization", "0.9", "--max-seqs", "7"],
    "vllm-unsaid": ["Qwen/Qwen3-32B", "--gpu", "H100", "-tp", "2", "--context", "32K"],
    "vllm-nodes": ["meta-llama/Llama-3.1-405B-Instruct", "--gpu", "H100", "-tp", "8", "-pp", "2", "--context", "8K"],
    "vllm-older": [LLAMA, "--gpu", "A100-SXM4-40GB", "--engine", "vllm@0.27.1", "--context", "8K", "--kv-offload", "20GiB"],
    "vllm-draft": ["deepseek-ai/DeepSeek-V3", "--gpu", "h200-sxm-141gb", "-tp", "8", "--context", "8K", "--draft", "mtp",
                   "--num-speculative-tokens", "1"],
    "vllm-pasted": [
        "vllm serve tencent/Hy3 -tp 8 --attention-backend FLASH_ATTN --tool-call-parser=hy_v3 --port 9000 -O3 --cudagraph-capture-sizes 1 2 --seed -1",
        "--gpu", "H200",
    ],
    "sglang": ["Qwen/Qwen3-32B", "--gpu", "H100", "--tensor-parallel", "2", "--context", "32K", "--engine", "sglang"],
    "llama.cpp": ["llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 8192 -np 2", "--gpu", "rtx-4090"],
}  # fmt: skip
ONE_NODE = set(KINDS) - {"lws"}
REFUSED = (
    {(asked, "dynamo") for asked in ASKED}  # no release of Dynamo brings these of the engines
    | {("vllm-nodes", kind) for kind in ONE_NODE}
    | {(asked, kind) for asked in ("sglang", "llama.cpp") for kind in ("llm-d", "helm")}
)  # fmt: skip
FIELDS = yaml.safe_load(
    Path(__file__).parents[1].joinpath("deployment_fields.yaml").read_text(encoding="utf-8")
)
WITHOUT_RELEASE = {("vllm-older", "command"), ("vllm-older", "systemd")}


def not_known(value: object, known: object, path: str) -> list[str]:
    """Where a document has a field, or a type of value, that was not held against the public schema of its kind."""
    if isinstance(value, dict) and isinstance(known, dict):
        return [
            fault
            for key, one in value.items()
            for fault in (
                [f"{path}.{key}"]
                if not {key, "*"} & known.keys()
                else not_known(one, known.get(key, known.get("*")), f"{path}.{key}")
            )
        ]
    if isinstance(value, list) and isinstance(known, list):
        return [fault for one in value for fault in not_known(one, known[0], f"{path}[]")]
    return [] if type(value).__name__ in str(known).split() else [f"{path}: {type(value).__name__}"]


def held_against_schemas(kind: str, text: str) -> list[str]:
    documents = [] if kind in {"command", "systemd"} else yaml.safe_load_all(text)
    named = [(one.get("kind", kind), one) for one in documents]
    return [fault for name, one in named for fault in not_known(one, FIELDS[name]["fields"], name)]


def test_what_is_offered_is_what_is_written() -> None:
    assert set(KINDS) == set(WRITTEN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", ASKED)
def test_a_file_read_back_keeps_its_launch_and_every_figure(
    asked: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ASKED[asked]
    status = main(["estimate", *words, "--as", kind])
    printed = capsys.readouterr()
    if (asked, kind) in REFUSED:
        assert status == 2
        assert sum(not line.startswith("kvreport: left out") for line in printed.err.splitlines()) == 1
        assert "allowed:" in printed.err
        return
    assert status == 0
    assert held_against_schemas(kind, printed.out) == []
    file = tmp_path / ("server.service" if kind == "systemd" else "server")
    file.write_text(printed.out, encoding="utf-8")
    labelled = kind not in {"command", "compose", "systemd"}
    gpu = [] if labelled else ["--gpu", words[words.index("--gpu") + 1]]
    assert main(["preflight", str(file), *gpu, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["unresolved"] == []
    launch = row["launch"]
    assert launch["gpus_per_node"] in {None, launch["gpus"] // launch["nodes"]}
    again = [row["command"], "--gpu", launch["gpu"], "--as", kind]
    assert main(["estimate", *again]) == 0
    written = capsys.readouterr().out
    if (asked, kind) in WITHOUT_RELEASE:
        assert "The command does not say its release: install vLLM 0.27.1" in printed.out
    else:
        assert written == printed.out
        assert (
            f"{row['max_concurrent_requests']:,} request" in printed.out.split("\n")[row["kind"] == "script"]
        )


QUANTITY = {"type": "string", "pattern": r"^\d+(Ki|Mi|Gi|Ti)?$"}
CONTAINER = {
    "type": "object",
    "required": ["name", "image", "command"],
    "properties": {"name": {"const": "main"}},
}
GRAPH = {
    "type": "object", "additionalProperties": False, "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "nvidia.com/v1beta1"}, "kind": {"const": "DynamoGraphDeployment"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "additionalProperties": False, "properties": {
            "backendFramework": {"enum": ["sglang", "vllm", "trtllm"]},
            "components": {"maxItems": 25, "items": {
                "type": "object", "additionalProperties": False, "required": ["name", "podTemplate"], "properties": {
                    "name": {"pattern": "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$", "maxLength": 63},
                    "type": {"enum": ["frontend", "worker", "prefill", "decode", "planner", "epp"]},
                    "replicas": {"type": "integer", "minimum": 0}, "sharedMemorySize": QUANTITY,
                    "podTemplate": {"type": "object", "additionalProperties": False, "properties": {"spec": {
                        "type": "object", "required": ["containers"],
                        "properties": {"containers": {"items": CONTAINER}, "nodeSelector": {"additionalProperties": {"type": "string"}}},
                    }}},
                },
            }},
        }},
    },
}  # fmt: skip
"""The limits of what is written in Dynamo's resource definition (``tests/deployment_fields.yaml`` names it)."""


@pytest.mark.parametrize("engine", ["vllm@0.31.0", "sglang@0.5.21"])
def test_a_graph_of_dynamo_is_valid_and_read_back_as_it_was_written(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "Qwen/Qwen3-32B",
        "--gpu",
        "H100",
        "--tensor-parallel",
        "2",
        "--context",
        "32K",
        "--engine",
        engine,
    ]
    assert main(["estimate", *asked, "--as", "dynamo"]) == 0
    printed = capsys.readouterr().out
    graph = yaml.safe_load(printed)
    jsonschema.validate(graph, GRAPH)
    assert held_against_schemas("dynamo", printed) == []
    assert held_against_schemas("dynamo", printed.replace("replicas: 1", "replica: 1"))
    frontend, worker = graph["spec"]["components"]
    assert (frontend["type"], worker["type"]) == ("frontend", "worker")
    assert worker["podTemplate"]["spec"]["containers"][0]["image"].endswith(":1.6.1")
    file = tmp_path / "graph.yaml"
    file.write_text(printed, encoding="utf-8")
    assert main(["preflight", str(file), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["launch"]["gpus_per_node"], row["unresolved"]) == ("dynamo", 2, [])
    assert f"{row['engine'].split('-')[0]}@{row['engine_version']}" == engine
    assert row["launch"]["shm_bytes"] == int(worker["sharedMemorySize"].removesuffix("Gi")) << 30
    assert main(["estimate", row["command"], "--gpu", row["launch"]["gpu"], "--as", "dynamo"]) == 0
    assert capsys.readouterr().out == printed


def test_a_pasted_command_keeps_its_model_and_the_flags_that_change_no_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["estimate", *ASKED["vllm-pasted"], "--as", "command"]) == 0
    command = capsys.readouterr().out.strip().split("\n")[-1]
    assert command.startswith("vllm serve tencent/Hy3 --tensor-parallel-size 8 ")
    assert command.endswith(
        " --attention-backend FLASH_ATTN --tool-call-parser=hy_v3 -O3 --cudagraph-capture-sizes 1 2 --seed -1"
    )


def test_the_numbers_have_their_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *ASKED["vllm-unsaid"], "--as", "kubernetes", "--disk-rate", "2GB"]) == 0
    text = capsys.readouterr().out
    lines = text.split("\n")
    for key in ("memory: ", "failureThreshold", "sizeLimit", "averageValue", "nodeSelector", "maxReplicas"):
        assert any(key in line and "#" in lines[place - 1] for place, line in enumerate(lines)), key
    deployment, service, scaler = yaml.safe_load_all(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["args"][-4:-2] == ["--max-num-seqs", "10"]
    # 65.5 GB of weights at 2 GB/s are 33 s; with 300 s for compilation 34 probes of 10 s
    assert container["startupProbe"]["failureThreshold"] == 34
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    usage, waiting = (one["pods"] for one in scaler["spec"]["metrics"])
    assert usage["target"]["averageValue"] == "900m"  # nine of the ten that fill the pool
    assert waiting["metric"]["name"] == "vllm:num_requests_waiting"


def test_a_sized_deployment_has_its_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["size", LLAMA, "--concurrent", "300", "--context", "8K", "--gpu", "L4", "--tensor-parallel", "1"]
    assert main([*asked, "--format", "json"]) == 0
    best = json.loads(capsys.readouterr().out)["deployments"][0]
    assert main([*asked, "--as", "helm"]) == 0
    (model,) = yaml.safe_load(capsys.readouterr().out)["servingEngineSpec"]["modelSpec"]
    assert model["replicaCount"] == best["replicas"]["with_spares"] > 1
    assert model["vllmConfig"]["maxNumSeqs"] * model["replicaCount"] >= 300
    pasted = [f"vllm serve {LLAMA} --tool-call-parser hermes", *asked[2:]]
    assert main(["size", *pasted, "--as", "helm"]) == 0
    (model,) = yaml.safe_load(capsys.readouterr().out)["servingEngineSpec"]["modelSpec"]
    assert model["vllmConfig"]["extraArgs"] == ["--tool-call-parser", "hermes"]


def test_what_does_not_start_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "Qwen/Qwen3-32B", "--gpu", "L4", "--as", "compose"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "does not fit" in printed.err
    assert main(["estimate", LLAMA, "--gpu", "L4", "--as", "compose", "--format", "json"]) == 2


VALUES = st.recursive(
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12)
    | st.integers()
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8),
        VALUES,
        min_size=1,
        max_size=4,
    )
)
def test_any_document_is_written_as_yaml(document: dict[str, object]) -> None:
    assert yaml.safe_load(to_yaml(["a # b"], document)) == document


@pytest.mark.parametrize("command", ["estimate", "size"])
def test_a_disk_rate_without_a_file_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [command, "llama-3.1-8b", "--gpu", "H100", "--context", "8K", "--disk-rate", "2GB"]
    assert main([*asked, *(["--concurrent", "4"] if command == "size" else [])]) == 2
    assert "disk-rate: found without --as; allowed: --as command|compose" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["estimate --context 8K", "size --context 8K --concurrent 4"])
def test_a_file_says_which_checkpoint_its_numbers_are_of(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It started the released weights under a header with the requests of another format."""
    door, *rest = words.split()
    asked = ["Qwen/Qwen3-8B", "--gpu", "h100-sxm-80gb", "--weights", "int4", "--as", "compose"]
    assert main([door, *asked, *rest]) == 0
    said = capsys.readouterr().out
    assert "# The command needs a checkpoint of Qwen/Qwen3-8B in int4." in said
    assert "58 requests of 8,192 tokens" in said


def test_a_sized_file_keeps_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    words = "size Qwen/Qwen3-8B --gpu H100 --context 8K --concurrent 10 --engine vllm@0.11.0 --as compose"
    assert main(words.split()) == 0
    assert "image: vllm/vllm-openai:v0.11.0" in capsys.readouterr().out


def test_a_file_for_a_longer_context_is_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = "estimate Qwen/Qwen3-8B --gpu H100 --context 60K --any-context --as compose"
    assert main(words.split()) == 0
    (tmp_path / "compose.yaml").write_text(capsys.readouterr().out, "utf-8")
    assert main(["preflight", str(tmp_path / "compose.yaml"), "--gpu", "H100"]) == 0
