"""Servers in deployment files: each is found, with what it gets, and nothing is said that the file does not say."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvreport.catalog.load import open_catalog
from kvreport.cli import main, preflight
from kvreport.cli.preflight import starts_server
from kvreport.deployments.container_resources import quantity
from kvreport.deployments.devices import device_of_label
from kvreport.deployments.found import Server, find_servers, with_config
from kvreport.deployments.shell import Scope, Script, tokens
from kvreport.deployments.yaml_documents import read_documents
from kvreport.errors import InputError
from kvreport.publish import schemas

GIB = 1 << 30
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def found(text: str, name: str = "file.yaml") -> list[Server]:
    return find_servers(text, name, starts_server)[0]


def command(server: Server) -> str:
    return shlex.join(server.words)


COMPOSE = f"""
x-gpu: &gpu {{deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 2, capabilities: [gpu]}}]}}, limits: {{memory: 32g}}}}}}}}
services:
  # vllm serve other/model --max-model-len 1
  chat:
    <<: *gpu
    image: ${{IMAGE:-vllm/vllm-openai:v0.27.1}}
    shm_size: 16gb
    command: [--model, {LLAMA}, --tensor-parallel-size, "${{TP:-2}}", --max-model-len, "${{LEN:-8192}}", --port, "${{PORT}}"]
  router: {{image: nginx, command: [nginx, -g, "daemon off;"]}}
  shell:
    image: someone/image
    entrypoint:
      - bash
      - -c
      - |
        n="$${{N:-3}}"
        if [ "$$n" -gt 0 ]; then A=(--max-num-seqs "$$n"); fi
        exec vllm serve $${{EAGER:+--enforce-eager}} "$$@" "$${{A[@]}}"
      - --
    command: [{LLAMA}, --max-model-len, "4096"]
"""


def test_a_compose_file_is_read_with_its_defaults() -> None:
    chat, shell = found(COMPOSE)
    assert command(chat) == (
        f"docker run vllm/vllm-openai:v0.27.1 vllm serve --model {LLAMA} --tensor-parallel-size 2 --max-model-len 8192 --port '${{PORT}}'"
    )
    assert (chat.resources.gpus, chat.resources.host_memory_bytes, chat.resources.shm_bytes) == (
        2,
        32 * GIB,
        16 * GIB,
    )
    assert [said for _, said in chat.unresolved] == ["${PORT}"]
    assert command(shell) == f"vllm serve {LLAMA} --max-model-len 4096 --max-num-seqs 3"


DEPLOYMENT = f"""
apiVersion: apps/v1
kind: {{kind}}
metadata: {{{{name: chat}}}}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {{{{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}}}
      initContainers: [{{{{name: get, image: curl, args: ["vllm serve x"]}}}}]
      containers:
        - name: proxy
          image: envoy
          args: [--model, nothing]
        - name: server
          image: vllm/vllm-openai:v0.33.0
          env: [{{{{name: LEN, value: "8192"}}}}, {{{{name: VLLM_USE_V2_MODEL_RUNNER, value: "1"}}}}, {{{{name: TOKEN, valueFrom: {{{{secretKeyRef: {{{{name: s, key: k}}}}}}}}}}}}]
          args: [--model={LLAMA}, --max-model-len=$(LEN), --api-key=$(TOKEN)]
          resources: {{{{limits: {{{{{{resource}}: "1", memory: 64Gi}}}}}}}}
          volumeMounts: [{{{{name: shm, mountPath: /dev/shm}}}}]
      volumes: [{{{{name: shm, emptyDir: {{{{medium: Memory, sizeLimit: 8Gi}}}}}}}}]
"""


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_a_pod_is_found_in_each_kind(kind: str) -> None:
    (server,) = found(DEPLOYMENT.format(kind=kind, resource="nvidia.com/gpu"))
    assert (server.replicas, server.nodes, server.resources.gpus) == (3, 1, 1)
    assert server.resources.gpu == "NVIDIA-H100-80GB-HBM3"
    assert (server.resources.host_memory_bytes, server.resources.shm_bytes) == (64 * GIB, 8 * GIB)
    assert "--max-model-len=8192" in server.words
    assert server.words[0] == "VLLM_USE_V2_MODEL_RUNNER=1"
    assert server.unresolved == ()


def test_slices_and_shares_of_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = []
    for resource in (
        "nvidia.com/gpu",
        "nvidia.com/mig-3g.40gb",
        'nvidia.com/gpumem: "20000", nvidia.com/gpu',
    ):
        path = tmp_path / "pod.yaml"
        path.write_text(DEPLOYMENT.format(kind="Deployment", resource=resource), encoding="utf-8")
        assert main(["preflight", str(path), "--format", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        sizes.append((row["launch"]["gpu"], row["kv_pool_tokens"]))
    whole, slice_, share = sizes
    assert slice_[0] == "h100-sxm-80gb-3g.40gb"
    assert whole[1] > 2 * slice_[1] > 2 * share[1] > 0


LWS = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: big}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: vllm/vllm-openai:v0.33.0
            command: [sh, -c, "bash ray.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE); vllm serve {LLAMA} --max-model-len 8k -tp $((8 / 4)) -pp 2"]
            resources: {{limits: {{nvidia.com/gpu: "4"}}}}
    workerTemplate:
      spec:
        containers: [{{name: worker, image: "vllm/vllm-openai:v0.33.0", command: [sh, -c, "vllm serve {LLAMA}"]}}]
"""
KSERVE = f"""
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {{name: llama}}
spec:
  model: {{uri: "hf://{LLAMA}"}}
  replicas: 3
  parallelism: {{data: 16, dataLocal: 8, expert: true, tensor: 1}}
  template:
    containers:
      - name: main
        env: [{{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192"}}]
        resources: {{limits: {{amd.com/gpu: "8"}}}}
  prefill: {{replicas: 2, template: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}]}}}}
"""
PREDICTOR = f"""
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {{name: llama}}
spec:
  predictor:
    minReplicas: 2
    model: {{modelFormat: {{name: huggingface}}, args: [--model_name=llama, --model_id={LLAMA}, --max-model-len=8192], resources: {{limits: {{nvidia.com/gpu: "1"}}}}}}
"""
DYNAMO = f"""
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {{name: graph}}
spec:
  services:
    Frontend: {{replicas: 1, extraPodSpec: {{mainContainer: {{image: x}}}}}}
    Decode:
      replicas: 2
      multinode: {{nodeCount: 2}}
      resources: {{limits: {{gpu: "4"}}}}
      extraPodSpec:
        mainContainer: {{image: "vllm-runtime:1", command: [python3, -m, dynamo.vllm], args: [--model, {LLAMA}, --max-model-len, "8192"]}}
"""
STACK = f"""
servingEngineSpec:
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.33.0
    modelURL: {LLAMA}
    replicaCount: 2
    requestGPU: 4
    limitMemory: 64Gi
    shmSize: 4Gi
    vllmConfig: {{maxModelLen: 8192, tensorParallelSize: 4, enablePrefixCaching: true, extraArgs: [--max-num-seqs, "8"]}}
"""
LLM_D = f"""
modelArtifacts: {{uri: "hf://{LLAMA}"}}
decode:
  replicas: 1
  parallelism: {{tensor: 4}}
  nodeSelector: {{gpu.nvidia.com/model: H200}}
  containers: [{{name: vllm, image: "llm-d-cuda:1", modelCommand: vllmServe, args: [--max-model-len, "8192"]}}]
prefill: {{create: false}}
"""
VALUES = f"""
replicaCount: 2
image: {{repository: vllm/vllm-openai, tag: v0.33.0, command: [vllm, serve, {LLAMA}, --max-model-len, "8192"]}}
resources: {{limits: {{nvidia.com/gpu: 1, memory: 16Gi}}}}
"""


@pytest.mark.parametrize(
    ("text", "kind", "gpus", "nodes", "replicas", "words"),
    [
        (LWS, "lws", 4, 2, 2, "-tp 2 -pp 2"),
        (KSERVE, "kserve", 8, 2, 3, "--data-parallel-size 16 --enable-expert-parallel --max-model-len 8192"),
        (PREDICTOR, "kserve", 1, 1, 2, f"vllm serve {LLAMA} --max-model-len=8192"),
        (DYNAMO, "dynamo", 4, 2, 2, f"--model {LLAMA} --max-model-len 8192"),
        (
            STACK,
            "helm",
            4,
            1,
            2,
            "--enable-prefix-caching --max-model-len 8192 --tensor-parallel-size 4 --max-num-seqs 8",
        ),
        (LLM_D, "llm-d", 4, 1, 1, "--max-model-len 8192 --tensor-parallel-size 4"),
        (VALUES, "helm", 1, 1, 2, f"vllm serve {LLAMA} --max-model-len 8192"),
    ],
)
def test_custom_resources_and_values(
    text: str, kind: str, gpus: int, nodes: int, replicas: int, words: str
) -> None:
    server, *others = found(text)
    assert (server.kind, server.resources.gpus, server.nodes, server.replicas) == (
        kind,
        gpus,
        nodes,
        replicas,
    )
    assert words in command(server)
    assert len(others) == (text == KSERVE)


def test_a_unit_is_read_with_its_variables() -> None:
    text = f"""
[Service]
MemoryMax=64G
Environment="LEN=8192" VLLM_USE_V2_MODEL_RUNNER=1
ExecStartPre=/bin/sleep 1
ExecStart=/opt/vllm/bin/vllm serve {LLAMA} \\
  --max-model-len ${{LEN}} \\
  --port $PORT
"""
    servers, left = find_servers(text, "vllm.service", starts_server)
    (server,) = servers
    assert (
        command(server)
        == f"VLLM_USE_V2_MODEL_RUNNER=1 /opt/vllm/bin/vllm serve {LLAMA} --max-model-len 8192 --port '$PORT'"
    )
    assert (server.kind, server.line, server.resources.host_memory_bytes) == ("systemd", 6, 64 * GIB)
    assert [said for _, said in server.unresolved] == ["$PORT"]
    assert left == []
    nothing, left = find_servers("[Service]\nExecStart=/home/me/start.sh\n", "x.service", starts_server)
    assert nothing == []
    assert left == [(2, "starts /home/me/start.sh, whose command is not in this file")]


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ('M=${1:-a/b}\nvllm serve "$M" --port ${P:=80} # vllm serve c', ["vllm serve a/b --port 80"]),
        ("vllm serve a/b &\nvllm serve c/d > log 2>&1 &\nwait", ["vllm serve a/b", "vllm serve c/d"]),
        ('echo "vllm serve a/b"\npkill -f "vllm serve"\ncurl x | grep vllm', []),
        ("cat > f <<EOF\nvllm serve a/b\nEOF\n", []),
        ("if [ \"${N:-0}\" = 1 ]; then\n vllm serve a/b\nelse\n vllm serve c/d\nfi", ["vllm serve c/d"]),
        ("if [ -f x ]; then vllm serve a/b; else vllm serve c/d; fi", ["vllm serve c/d"]),
        ('case "${X:-big}" in small|s) M=a/b;; big) M=c/d;; esac\nexec vllm serve $M\nvllm serve e/f', ["vllm serve c/d"]),
        ('C="vllm serve a/b"\n[ -n "$L" ] && C+=" --x"\neval "$C --y"', ["vllm serve a/b --y"]),
        ("for g in 0; do CUDA_VISIBLE_DEVICES=$g vllm serve a/b; done", ["CUDA_VISIBLE_DEVICES=0 vllm serve a/b"]),
        ("docker run --gpus all vllm/vllm-openai:v0.27.1 --model a/b", ["docker run --gpus all vllm/vllm-openai:v0.27.1 --model a/b"]),
        ("N=4\nR=$(( ${I:-0} * N ))\nvllm serve a/b --x $R --y $((2 * N))", ["vllm serve a/b --x 0 --y 8"]),
        ("R=$(( $(nproc) * 2 ))\nvllm serve a/b --x $R", ["vllm serve a/b --x '$(( $(nproc) * 2 ))'"]),
        ("vllm serve a/b `\n  --port 80", ["vllm serve a/b --port 80"]),
    ],
)  # fmt: skip
def test_a_script_is_followed_as_far_as_its_values_go(script: str, commands: list[str]) -> None:
    if "-n" in script:
        script = f"L=\n{script}"
    assert [command(server) for server in found(f"#!/bin/bash\n{script}", "start.sh")] == commands


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("python3 - <<'X' || { echo failed; exit 1; }\nx\nX\nvllm serve a/b", ["vllm serve a/b"]),
        ("false || { exit 1; }\nvllm serve a/b", []),
        ("stop() { exit 1; }\nvllm serve a/b", ["vllm serve a/b"]),
        ("function stop {\n exit 1\n}\nvllm serve a/b", ["vllm serve a/b"]),
        ("if some_check; then exit 1; fi\nvllm serve a/b", ["vllm serve a/b"]),
        ("N=8\nif [[ -n $N && $N -gt 9 ]]; then exit 1; fi\nvllm serve a/b", ["vllm serve a/b"]),
        ("N=8\nif [[ -z $N || $N -gt 7 ]]; then exit 1; fi\nvllm serve a/b", []),
        ("N=8\nvllm serve a/b -tp $(( N > 4 ? N : 4 ))", ["vllm serve a/b -tp 8"]),
        ("N=8\nvllm serve a/b -tp $(( N * 2 == 16 ? 1 + 1 : 4 ))", ["vllm serve a/b -tp 2"]),
        ("M=x/y/z.gguf\nvllm serve ${M##*/} ${M#*/} ${M%.*} ${M%%/*}", ["vllm serve z.gguf y/z.gguf x/y/z x"]),
        ("A=()\nif some_check; then A=(--x); fi\nvllm serve a/b ${A[@]}", ["vllm serve a/b '${A[@]}'"]),
        ("setsid bash -c 'vllm serve a/b'", ["setsid bash -c 'vllm serve a/b'"]),
        ('P="$(command -v python3)"\n$P -m vllm.entrypoints.openai.api_server --model $(echo a/b)',
         ["python3 -m vllm.entrypoints.openai.api_server --model a/b"]),
        ("vllm serve a/b --x \"$(printf '%s-%d-%.2f\\n' m $N 2.5)\"", ["vllm serve a/b --x 'm-$N-2.5'"]),
        ('vllm serve a/b --x "$(printf %x 1)" -y "$(cat f)"', ["vllm serve a/b --x '$(printf %x 1)' -y '$(cat f)'"]),
    ],
)  # fmt: skip
def test_groups_tests_and_sums_of_a_shell_are_judged(script: str, commands: list[str]) -> None:
    servers, _ = find_servers(script, "start.sh", starts_server)
    assert [command(one) for one in servers] == commands
    assert all(said in command(one) for one in servers for _, said in one.unresolved)


def test_variables_before_a_program_are_listed_and_are_no_program() -> None:
    servers = found('C="X=1 ${ENV} vllm serve a/b"\nsetsid bash -c "$C"\neval "$C"', "start.sh")
    assert [command(one) for one in servers] == ["X=1 vllm serve a/b"] * 2
    assert all("${ENV}" in [said for _, said in one.unresolved] for one in servers)


def test_what_has_no_value_ends_no_answer_but_the_model_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "start.sh"
    file.write_text(f"vllm serve {LLAMA} --max-model-len 8192 --max-num-seqs $SEQS $MORE --seed 1\n")
    assert main(["preflight", str(file), "--gpu", "H100", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"] == "fits"
    assert "answered without what has no value in the file: '--max-num-seqs $SEQS', '$MORE'" in row["notes"]
    for text in ("vllm serve $MODEL --max-model-len $LEN", "vllm serve --model $MODEL --max-model-len $LEN"):
        file.write_text(f"{text}\n")
        assert main(["preflight", str(file), "--gpu", "H100"]) == 2
        assert "Not answered: line 1: $MODEL has no value in the file: " in capsys.readouterr().out
    file.write_text(f'vllm serve "$FOLDER/{LLAMA}" --max-model-len 8192\n')
    assert main(["preflight", str(file), "--gpu", "H100"]) == 0
    assert f"read by its name, {LLAMA.partition('/')[2]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag", ["--tool-call-parser-plugin x", "--disable-radix-cache", "--enable-expert-parallel"]
)
def test_what_a_server_refuses_is_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    file, empty = tmp_path / "start.sh", tmp_path / "stop.sh"
    file.write_text(f"vllm serve {LLAMA} {flag}\n")
    empty.write_text("echo stopped\n")
    assert main(["preflight", str(file), str(empty), "--gpu", "H100"]) == 3
    out, err = capsys.readouterr()
    assert "Does not start: " in out
    assert flag != "--tool-call-parser-plugin x" or "did you mean --tool-parser-plugin" in out
    assert "stop.sh: no server that is known in this file" in err
    assert main(["estimate", *f"vllm serve {LLAMA} {flag} --gpu H100".split()]) == 2


CONFIGURED = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: flags}}
data:
  engine.yaml: |
    model-path: {LLAMA}
    tp-size: 2
    context-length: 4096
    cuda-graph-bs: [1, 2]
    disable-radix-cache: true
    enable-metrics: false
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
spec:
  components:
  - name: worker
    sharedMemorySize: 16Gi
    podTemplate:
      spec:
        containers:
        - {{name: main, image: "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.6.1", command: [python3, -m, dynamo.sglang],
            args: [--config, /etc/engine.yaml, --context-length, "8192"], volumeMounts: [{{name: c, mountPath: /etc}}],
            resources: {{claims: [{{name: gpus}}]}}}}
        volumes: [{{name: c, configMap: {{name: flags}}}}]
        resourceClaims: [{{name: gpus, resourceClaimTemplateName: two}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: two}}
spec: {{spec: {{devices: {{requests: [{{name: x, exactly: {{deviceClassName: gpu.nvidia.com, count: 2}}}}]}}}}}}
"""


def test_flags_and_devices_that_other_documents_of_a_file_hold_are_read() -> None:
    (server,) = found(CONFIGURED)
    assert command(server) == (
        f"python3 -m dynamo.sglang --model-path {LLAMA} --tp-size 2 --cuda-graph-bs 1 2 --disable-radix-cache "
        "--context-length 8192 --engine sglang@0.5.21"
    )
    assert (server.resources.gpus, server.resources.shm_bytes) == (2, 16 * GIB)
    (bare,) = found(CONFIGURED.split("---")[1])
    assert "--config /etc/engine.yaml" in command(bare)


def test_options_of_tensorrt_llm_are_flags_where_they_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = "tensor_parallel_size: 2\nmax_seq_len: 4096\nkv_cache_config: {free_gpu_memory_fraction: 0.8}\nother: 1\n"
    words = with_config(
        ["trtllm-serve", LLAMA, "--extra_llm_api_options", "/o.yaml", "--max_seq_len", "8192"],
        {"/o.yaml": options},
    )
    assert words == [
        "trtllm-serve", LLAMA, "--extra_llm_api_options=/o.yaml", "--tp_size", "2",
        "--kv_cache_free_gpu_memory_fraction", "0.8", "--max_seq_len", "8192",
    ]  # fmt: skip
    assert main(["estimate", shlex.join(words), "--gpu", "H100", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["layout"]["gpus"], answer["context_tokens"]) == (2, 8192)
    assert [one["flag"] for one in answer["not_followed"]] == ["--extra-llm-api-options"]


@pytest.mark.parametrize(
    ("text", "words", "nodes"),
    [
        ("{kind: LLMInferenceService, apiVersion: x/v1, spec: {model: {uri: 'pvc://disk', name: a/b}, template: {containers: [{name: main}]}}}",
         "vllm serve a/b", 1),
        ("{kind: LLMInferenceService, apiVersion: x/v1, spec: {model: {uri: 'hf://a/b'}, workload: {kvCacheOffloading: {cpu: 10Gi}}}}",
         "vllm serve a/b --kv-offloading-size 10", 1),
        ("servingEngineSpec: {modelSpec: [{modelURL: a/b, vllmConfig: {pipelineParallelSize: 2}, raySpec: {enabled: true}}]}",
         "vllm serve a/b --no-enable-prefix-caching --pipeline-parallel-size 2", 2),
        ("servingEngineSpec: {modelSpec: [{modelURL: a/b, vllmConfig: {pipelineParallelSize: 2}}]}",
         "vllm serve a/b --no-enable-prefix-caching", 1),
        ("modelArtifacts: {name: a/b, uri: 'hf://\"{{ .Values.modelArtifacts.name }}\"'}\ndecode: {containers: [{modelCommand: vllmServe}]}",
         "vllm serve a/b", 1),
    ],
)  # fmt: skip
def test_names_and_nodes_that_a_chart_or_an_operator_writes(text: str, words: str, nodes: int) -> None:
    (server,) = found(text)
    assert (command(server), server.nodes) == (words, nodes)


def test_files_that_a_compose_file_names_are_read_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        f"""services:
  chat:
    extends: {{file: base.yaml, service: server}}
    env_file: [engine.env]
    command: [{LLAMA}, --max-model-len, "${{LEN:-4096}}"]
  own:
    extends: chat
    environment: {{VLLM_B: "2"}}
"""
    )
    assert main(["preflight", str(file), "--gpu", "H100", "--format", "json"]) == 2
    printed = capsys.readouterr()
    assert f"{file}, line 3: extends: base.yaml server, which is not beside this file" in printed.err
    (tmp_path / "base.yaml").write_text(
        "services: {server: {image: 'vllm/vllm-openai:v0.27.1', shm_size: 1gb, environment: [VLLM_B=1, VLLM_C=1]}}\n"
    )
    assert main(["preflight", str(file), "--gpu", "H100", "--format", "json"]) == 0
    chat, own = json.loads(capsys.readouterr().out)
    assert {"line": 4, "text": "env_file: engine.env, which is not beside this file"} in chat["unresolved"]
    (tmp_path / "engine.env").write_text("# a comment\nexport VLLM_A='x y'\nVLLM_B=0 # said\n")
    (tmp_path / ".env").write_text("LEN=8192\n")
    assert main(["preflight", str(file), "--gpu", "H100", "--format", "json"]) == 0
    chat, own = json.loads(capsys.readouterr().out)
    assert (chat["unresolved"], chat["launch"]["context_tokens"], chat["launch"]["shm_bytes"]) == (
        [],
        8192,
        GIB,
    )
    assert chat["launch"]["environment"] == {"VLLM_A": "x y", "VLLM_B": "1", "VLLM_C": "1"}
    assert own["launch"]["environment"] == {"VLLM_A": "x y", "VLLM_B": "2", "VLLM_C": "1"}
    assert own["engine_version"] == "0.27.1"
    file.write_text("services: {a: {image: 'vllm/vllm-openai', extends: a, command: [x/y]}}")
    (itself,) = find_servers(file.read_text(), str(file), starts_server)[0]
    assert command(itself) == "vllm serve x/y"


def test_a_docker_run_gives_gpus_and_shared_memory() -> None:
    (server,) = found(
        "docker run --gpus '\"device=0,1\"' --shm-size 32g --memory=64g lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path a/b",
        "x.sh",
    )
    assert (server.resources.gpus, server.resources.shm_bytes, server.resources.host_memory_bytes) == (
        2,
        32 * GIB,
        64 * GIB,
    )
    assert server.image == "lmsysorg/sglang:latest"


def test_what_has_no_value_is_listed_with_its_line_and_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chart.yaml"
    path.write_text(
        f"""{{{{- if .Values.on }}}}
apiVersion: apps/v1
kind: Deployment
metadata: {{name: x}}
spec:
  replicas: {{{{ .Values.replicas }}}}
  template:
    spec:
      containers:
        - image: vllm/vllm-openai:v0.33.0
          args:
            - --model={LLAMA}
            - --max-model-len={{{{ .Values.len | default 8192 }}}}
          resources: {{limits: {{nvidia.com/gpu: "1"}}}}
{{{{- end }}}}
""",
        encoding="utf-8",
    )
    assert main(["preflight", str(path), "--gpu", "H100", "--format", "json"]) == 2
    (row,) = json.loads(capsys.readouterr().out)
    assert row["verdict"] is None
    assert row["max_concurrent_requests"] is None
    assert row["launch"]["replicas"] is None
    assert {"line": 13, "text": "{{ .Values.len | default 8192 }}"} in row["unresolved"]


def test_the_exit_status_is_that_of_the_worst_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE, encoding="utf-8")
    assert main(["preflight", str(path), "--gpu", "H100"]) == 0
    assert main(["preflight", str(path), "--gpu", "H100", "--require", "4"]) == 3
    assert main(["preflight", str(path)]) == 2
    assert "add --gpu GPU" in capsys.readouterr().out
    assert main(["preflight", str(path), "--gpu", "rtx-3060-12gb", "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out)[1]["verdict"] == "weights_exceed_memory"
    capsys.readouterr()
    given = b"services: {x: {image: nginx}, y: {image: a/tei, gpus: all, command: --model-id x}}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert main(["preflight", "-", "--gpu", "H100"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "line 1: a container with GPUs whose program starts no server that is known: a/tei\n" in err
    assert "found no start command" in err
    assert main(["preflight", str(path), "--gpu", "H100", "--require", "0"]) == 2


def test_more_gpus_or_host_memory_than_the_file_gives_do_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE.replace("${TP:-2}", "4"), encoding="utf-8")
    assert main(["preflight", str(path), "--gpu", "H100"]) == 3
    assert "needs 4 GPUs, and the file gives 2" in capsys.readouterr().out
    path.write_text(COMPOSE.replace('"${PORT}"', '"80", --kv-offloading-size, "40"'), encoding="utf-8")
    assert main(["preflight", str(path), "--gpu", "H100"]) == 3
    assert "GiB of host memory, and the limit is 32.00 GiB" in capsys.readouterr().out
    small = COMPOSE.replace('"${PORT}"', '"80", --kv-offloading-size, "20"')
    path.write_text(small, encoding="utf-8")
    assert main(["preflight", str(path), "--gpu", "H100"]) == 3
    assert "needs 20.00 GiB of /dev/shm for evicted KV blocks, and the file gives" in capsys.readouterr().out


def test_another_makers_gpu_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kserve.yaml"
    path.write_text(KSERVE, encoding="utf-8")
    assert main(["preflight", str(path), "--gpu", "H100"]) == 2
    assert "the file asks for amd.com/gpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("label", "device"),
    [
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm-80gb"),
        ("NVIDIA-A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("nvidia-l4", "l4"),
        ("nvidia-tesla-t4", "t4"),
        ("NVIDIA-L40S-SHARED", "l40s"),
        ("NVIDIA-GeForce-RTX-4090", "rtx-4090"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("H200", "h200-sxm-141gb"),
        ("nvidia-h100-mega-80gb", "h100-sxm-80gb"),
    ],
)
def test_a_node_label_names_its_device(label: str, device: str) -> None:
    assert device_of_label(label, open_catalog()) == device


def test_a_node_label_of_another_memory_names_none() -> None:
    with pytest.raises(InputError, match="found the label"):
        device_of_label("NVIDIA-L4-48GB", open_catalog())


@pytest.mark.parametrize(
    ("text", "binary", "size"),
    [("64Gi", False, 64 * GIB), ("64G", False, 64 * 10**9), ("16gb", True, 16 * GIB), ("512m", True, 512 << 20), ("", False, None), ("$X", True, None)],
)  # fmt: skip
def test_sizes_are_those_of_their_format(text: str, binary: bool, size: int | None) -> None:
    assert quantity(text, binary=binary) == size


def test_the_answer_satisfies_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(COMPOSE, encoding="utf-8")
    main(["preflight", str(path), "--gpu", "H100", "--format", "json"])
    schema = schemas.read("preflight")
    assert schema is not None
    jsonschema.validate(json.loads(capsys.readouterr().out), schema)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [" + "*b, " * 200 + "*b]\nd: &d [" + "*c, " * 200 + "*c]",
        "[" * 200 + "]" * 200,
        "a: !!python/object/apply:os.system [ls]",
        "x" * (3 << 20),
        "a: *a",
        "a: &a [*a]\n",
    ],
)
def test_a_hostile_document_is_refused_or_holds_nothing(text: str) -> None:
    with contextlib.suppress(InputError):
        assert found(text) == []


@given(st.text(st.sampled_from("ab $\"'`{}()[];|&<>\\\n=:-+?#@*0"), max_size=60))
def test_any_script_ends_in_an_answer_or_a_sentence(text: str) -> None:
    list(tokens(text))
    with contextlib.suppress(InputError):
        Script(Scope(arguments=["x"]), starts_server).run(f"A=b\n{text}\nvllm serve a/b")


@given(
    st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12), max_size=6)
)
def test_quoted_words_come_back_as_they_are(words: list[str]) -> None:
    line = ["vllm", "serve", "a/b", *words]
    (started,) = Script(Scope(), lambda one: one[:1] == ["vllm"]).run(shlex.join(line))
    assert list(started.words) == line


KEYS = [
    "kind",
    "apiVersion",
    "spec",
    "services",
    "image",
    "command",
    "args",
    "env",
    "environment",
    "containers",
    "template",
    "replicas",
    "leaderWorkerTemplate",
    "size",
    "model",
    "uri",
    "modelSpec",
    "servingEngineSpec",
    "modelArtifacts",
    "decode",
    "prefill",
    "predictor",
    "deploy",
    "resources",
    "limits",
    "nvidia.com/gpu",
    "volumes",
    "nodeSelector",
    "extraPodSpec",
    "mainContainer",
    "vllmConfig",
    "extraArgs",
    "modelURL",
    "repository",
    "parallelism",
    "affinity",
    "workerTemplate",
]
WORDS = st.sampled_from(
    ["", "1", "x", "vllm", "serve", "a/b", "Deployment", "DynamoGraphDeployment", "LLMInferenceService", "InferenceService", "LeaderWorkerSet",
     "vllm/vllm-openai:v0.33.0", "vllm serve a/b", "${X}", "{{ .X }}", "'", "bash", "-c", "vllmServe", "$", "64Gi"]
)  # fmt: skip


@given(
    st.recursive(
        WORDS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
        max_leaves=25,
    )
)
def test_any_document_ends_in_servers_or_a_sentence(document: object) -> None:
    with contextlib.suppress(InputError):
        for server in found(yaml.safe_dump(document)):
            assert server.line >= 1
            assert server.words or server.unresolved


def test_lines_are_those_of_the_file() -> None:
    (document,) = read_documents("\na:\n  b: 0.10\n  c: [x,\n    y]\n", "x")
    assert document.text("a", "b") == "0.10"
    assert document.map("a").lines == {"b": 3, "c": 4}
    assert document.at("a", "c").lines == [4, 5]


def test_the_list_of_public_files_has_what_each_holds() -> None:
    listed = yaml.safe_load(
        Path(__file__).parents[1].joinpath("deployment_files.yaml").read_text(encoding="utf-8")
    )
    assert len(listed["files"]) >= 25
    assert len({one["kind"] for one in listed["files"]}) >= 4
    assert listed["score"]["servers"] == sum(len(one["servers"]) for one in listed["files"])
    for one in listed["files"]:
        assert set(one) - {"note", "first_answer"} == {"kind", "repository", "path", "commit", "servers"}
        assert len(one["commit"]) == 40
        assert all({"engine", "gpus", "replicas", "nodes"} <= set(server) for server in one["servers"])


def test_merges_of_merges_take_no_longer_than_their_keys() -> None:
    """Each level merges the one before nine times: 9 to the eleventh values, if keys were repeated."""
    lines = ["services:", "  a0: &a0 {image: x, k0: v}"]
    for level in range(1, 12):
        merged = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"  a{level}: &a{level} {{<<: [{merged}], k{level}: v}}")
    started = time.process_time()
    (document,) = read_documents("\n".join(lines), "file")
    assert time.process_time() - started < 5
    last = document.map("services", "a11")
    assert list(last) == ["image", *(f"k{level}" for level in range(12))]


def test_a_command_in_the_place_of_a_file_is_told_where_it_is_answered(capsys):
    assert main(["preflight", "vllm serve Qwen/Qwen3-8B --max-model-len 8192", "--gpu", "H100"]) == 2
    told = capsys.readouterr().err
    assert "which is no file" in told
    assert "kvreport estimate vllm serve MODEL" in told


def beside(first: str, second: str, flags: str = "") -> str:
    gpu = (
        "deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, {0}, capabilities: [gpu]}}]}}}}}}"
    )
    service = "  {0}: {{image: 'vllm/vllm-openai:v0.27.1', command: --model " + LLAMA + " {2}, {1}}}\n"
    parts = [("a", first), ("b", second)]
    return "services:\n" + "".join(service.format(name, gpu.format(one), flags) for name, one in parts)


@pytest.mark.parametrize(
    ("first", "second", "flags", "verdict", "said"),
    [
        ('device_ids: ["0"]', 'device_ids: ["0"]', "", "cache_exceeds_pool", "it is given a GPU of a"),
        ("count: 1", "count: 1", "", "cache_exceeds_pool", "GiB of it"),
        ("count: all", 'device_ids: ["1"]', "", "cache_exceeds_pool", "GiB of it"),
        ('device_ids: ["0"]', 'device_ids: ["1"]', "", "fits", ""),
        ("count: 1", "count: 1", "--gpu-memory-utilization 0.45", "fits", "it is given a GPU of a"),
        (
            "count: 1",
            "count: 1",
            "--gpu-memory-utilization 0.5",
            "cache_exceeds_pool",
            "it is given a GPU of a",
        ),
    ],
)
def test_services_that_are_given_one_gpu_share_its_memory(
    first: str, second: str, flags: str, verdict: str, said: str
) -> None:
    """Docker's first device is every service's first: two servers of 0.92 "fit" on it."""
    servers = found(beside(first, second, f"--max-model-len 8192 {flags}"))
    answers = preflight.all_answered("file", servers, "h100-sxm-80gb", open_catalog())
    assert [one.verdict for one in answers] == ["fits", verdict]
    assert said in " ".join((answers[1].reason, *answers[1].notes))


def test_images_for_cpus_and_copies_of_sglang_are_told_apart() -> None:
    def of(image: str, words: str, more: str = "") -> preflight.Answered:
        [server] = found(f"services:\n  a: {{image: '{image}', command: {words}{more}}}\n")
        return preflight.answered("file", server, "h100-sxm-80gb", open_catalog())

    cpu = of("vllm/vllm-openai-cpu:v0.27.1", f"vllm serve {LLAMA}")
    assert (cpu.verdict, "runs on CPU" in cpu.reason) == (None, True)
    rocm = of("vllm/vllm-openai-rocm:v0.27.1", f"vllm serve {LLAMA}")
    assert (rocm.verdict, "runs on GPUs of AMD" in rocm.reason) == (None, True)
    assert of("my-cpu-team/intelligent-vllm:v1", f"vllm serve {LLAMA}").verdict == "fits"
    gpus = ", deploy: {resources: {reservations: {devices: [{count: 2, capabilities: [gpu]}]}}}"
    serve = f"python3 -m sglang.launch_server --model-path {LLAMA} --tp 2 --dp 2"
    copies = of("lmsysorg/sglang:v0.5.9", serve, gpus)
    assert copies.reason == "needs 4 GPUs, and the file gives 2"
    for line in (f"CUDA_VISIBLE_DEVICES=1 vllm serve {LLAMA} -tp 2", f"vllm serve {LLAMA} -tp 2"):
        unit = f"[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0\nExecStart=/usr/bin/env {line}\n"
        [server] = find_servers(unit, "a.service", starts_server)[0]
        alone = preflight.answered("file", server, "h100-sxm-80gb", open_catalog())
        assert (alone.reason, alone.notes) == ("needs 2 GPUs, and the file gives 1", ())
    visible = of(
        "vllm/vllm-openai:v0.27.1", f"--model {LLAMA} -tp 2", ", environment: [NVIDIA_VISIBLE_DEVICES=0]"
    )
    assert visible.reason == "needs 2 GPUs, and the file gives 1"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (
            "services:\n  b:\n    image: ollama/ollama\n    environment: [OLLAMA_CONTEXT_LENGTH=32768, OLLAMA_NUM_PARALLEL=2]\n",
            3,
            "kvreport estimate OLLAMA_CONTEXT_LENGTH=32768 OLLAMA_NUM_PARALLEL=2 ollama run MODEL --gpu GPU",
        ),
        (
            "services:\n  a: {image: 'ghcr.io/huggingface/text-generation-inference:3.0', command: --model-id a/b}\n",
            2,
            "a server whose command is not read: ghcr.io/huggingface/text-generation-inference:3.0",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {name: t, image: 'nvcr.io/nvidia/tritonserver:25.01-py3'}\n",
            5,
            "a server whose command is not read: nvcr.io/nvidia/tritonserver:25.01-py3",
        ),
        (
            "engine:\n  image: {repository: openmmlab/lmdeploy, tag: v0.9.2}\n  args: [--tp, '2']\n",
            3,
            "a server whose command is not read: openmmlab/lmdeploy:v0.9.2",
        ),
        (
            "models:\n  image: {repository: ollama/ollama, tag: 0.12.3}\n",
            2,
            "ollama run MODEL --gpu GPU answers one: ollama/ollama:0.12.3",
        ),
    ],
)
def test_a_server_that_is_not_answered_is_named(text: str, line: int, said: str) -> None:
    """Services of Ollama and TGI stood in files that were answered, and nothing was said of them."""
    servers, left = find_servers(text, "file.yaml", starts_server)
    assert servers == []
    ((at, words),) = left
    assert (at, said in words) == (line, True), words


def test_what_is_no_server_is_not_named() -> None:
    text = (
        "services:\n  a: {image: nginx}\n  b: {image: 'ghcr.io/open-webui/open-webui:main'}\n"
        "  c: {image: 'lmcache/vllm-router:v1'}\n"
    )
    assert find_servers(text, "file.yaml", starts_server) == ([], [])


def test_containers_of_a_script_that_are_not_answered_are_named() -> None:
    text = (
        "#!/bin/sh\ndocker run -d --gpus all -e OLLAMA_NUM_PARALLEL=2 ollama/ollama\n"
        "docker run --gpus all ghcr.io/huggingface/text-generation-inference:3.0 --model-id a/b\n"
        f"docker run nginx\nvllm serve {LLAMA}\n"
    )
    servers, left = find_servers(text, "start.sh", starts_server)
    assert [one.words[0] for one in servers] == ["vllm"]
    assert [line for line, _ in left] == [2, 3]
    assert "kvreport estimate OLLAMA_NUM_PARALLEL=2 ollama run MODEL" in left[0][1]
    assert "text-generation-inference:3.0" in left[1][1]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"vllm serve {LLAMA} --max-model-len 8192", "Starts: 5 requests at 8K fit"),
        (f"vllm serve {LLAMA} --max-model-len 131072", "Does not start: No request of 128K fits"),
        (
            f"vllm serve {LLAMA} --max-model-len 262144",
            "Does not start: Llama 3.1 8B supports at most",
        ),
        (
            f"python -m sglang.launch_server --model-path {LLAMA} --context-length 131072",
            "No request of 128K fits",
        ),
    ],
)
def test_whether_a_server_starts_is_said(
    command: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SGLang starts with a pool of less than one request of its longest context."""
    path = tmp_path / "start.sh"
    path.write_text(command, encoding="utf-8")
    main(["preflight", str(path), "--gpu", "rtx-4090"])
    assert any(line.startswith(f"  {said}") for line in capsys.readouterr().out.splitlines())
