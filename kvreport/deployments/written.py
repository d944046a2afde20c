"""An answered launch as a deployment file: complete, with the reason of each number in a comment before it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from kvreport.catalog.server_flags import flag_names
from kvreport.deployments.container_resources import DYNAMO
from kvreport.deployments.found import STACK_FLAGS, VLLM
from kvreport.errors import InputError
from kvreport.units import GIB, count, gib

ADDRESS: Final = ("--host", "--port")
"""Flags of every server for where it listens."""
PORT: Final = 8000
PROCESS_BYTES: Final = 4 * GIB
"""Host memory of one engine process besides weights and caches: an assumption, named as one where it is used."""
SHM_BYTES_PER_GPU: Final = GIB
"""Shared memory of one GPU's queues and communication buffers: an assumption, named as one where it is used."""
COMPILE_SECONDS: Final = 300
"""Time of a start besides reading weights (compilation, graphs): an assumption, named as one where it is used."""
PROBE_SECONDS: Final = 10
DYNAMO_PORT: Final = 9090
"""Where a worker of Dynamo says that it lives (``DYN_SYSTEM_PORT``, which its operator sets)."""
LEAST_USAGE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ServerStart:
    """How an engine's makers ship and start its server."""

    images: Mapping[str, str]  # Their image by the vendor of the devices; the release stands for ``{}``.
    entry: tuple[str, ...] = ()  # What the image starts by itself; empty where it starts no server.
    port: int = PORT  # The port of a server that is told none.
    local: bool = True  # Whether it listens on the machine alone where it is told no address.
    curl: bool = False  # Whether the image has curl, and no Python.
    # Gauges of the share of the pool that is filled, and of waiting requests.
    metrics: tuple[str, str] | tuple[()] = ()
    rank: tuple[str, ...] = ()  # Flags of every node of several.
    follower: tuple[str, ...] = ()  # Flags of every node but the first.
    charted: bool = False  # Whether charts start it.


_SGLANG: Final = flag_names("sglang")
SERVING: Final = {
    # v1/metrics/loggers.py, engine/arg_utils.py and entrypoints/common/cli_args.py of vLLM 0.33; images as they are published
    "vllm": ServerStart(
        {"NVIDIA": "vllm/vllm-openai:v{}", "AMD": "vllm/vllm-openai-rocm:v{}"},
        entry=("vllm", "serve"),
        local=False,
        metrics=("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"),
        rank=(VLLM["node_rank"], "$(LWS_WORKER_INDEX)", VLLM["master_addr"], "$(LWS_LEADER_ADDRESS)"),
        follower=("--headless",),
        charted=True,
    ),
    # srt/observability/metrics_collector.py and srt/arg_groups/fields of SGLang 0.5.23; the image as it is published
    "sglang": ServerStart(
        {"NVIDIA": "lmsysorg/sglang:v{}"},
        port=30000,
        metrics=("sglang:token_usage", "sglang:num_queue_reqs"),
        rank=(
            _SGLANG["node_rank"],
            "$(LWS_WORKER_INDEX)",
            _SGLANG["dist_init_addr"],
            "$(LWS_LEADER_ADDRESS):20000",
        ),
    ),
    # .devops/cuda.Dockerfile, common/common.h of llama.cpp b10488
    "llama_cpp": ServerStart(
        {"NVIDIA": "ghcr.io/ggml-org/llama.cpp:server-cuda"}, entry=("llama-server",), port=8080, curl=True
    ),
}
"""Engines whose launches are written."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """What is deployed."""

    name: str  # Name of the resources: lower-case letters, digits and hyphens.
    serving: ServerStart  # How its server is shipped and started.
    engine: str  # What people call it, with its release.
    words: tuple[str, ...]  # Its start command.
    environment: Mapping[str, str]  # Its variables.
    image: str  # Its image; empty where none is known.
    model: str  # The model's id.
    resource: str  # The resource name of its devices; empty where it has none.
    # The node label that names its device, and its value; empty where none is known.
    label: tuple[str, str] | tuple[()]
    gpus: int  # Devices on one node.
    nodes: int  # Nodes of one replica.
    replicas: int
    weight_bytes: int  # Weights that one node reads.
    host_bytes: int  # Host memory of one node for caches and offloaded weights.
    offload_shm_bytes: int  # Shared memory of one node for evicted blocks.
    requests: int  # Requests at once on one replica.
    context_tokens: int
    pool_tokens: int | None  # Tokens of its KV pool; None where the engine has none.
    max_seqs: int | None  # What the engine is told to run at once; None where it is not told.
    pool_full: bool  # Whether so many fill the pool.
    disk_rate: int  # Bytes per second at which weights are read.
    needs: str = ""  # What has to be put into the file before it starts that server; empty for nothing.

    @property
    def host_memory_gib(self) -> int:
        """Limit of host memory of one node in GiB."""
        return ceil((self.weight_bytes + self.host_bytes + self.gpus * PROCESS_BYTES) / GIB)

    @property
    def shm_gib(self) -> int:
        """Shared memory of one node in GiB."""
        return max(2, ceil(self.gpus * SHM_BYTES_PER_GPU / GIB)) + ceil(self.offload_shm_bytes / GIB)

    @property
    def start_seconds(self) -> int:
        """Time that a start may take."""
        return ceil(self.weight_bytes / self.disk_rate) + COMPILE_SECONDS

    @property
    def usage(self) -> float:
        """Share of the pool above which another request of this context waits."""
        return max(LEAST_USAGE, int((self.requests - 1) / self.requests * 100) / 100)


@dataclass(frozen=True, slots=True)
class _Said:
    """A value with the reason that is written before it."""

    value: Any
    reason: str


def as_file(kind: str, launch: Deployed) -> str:
    """The file of one kind.

    Raises:
        InputError: If the kind cannot hold the launch.
    """
    if kind != "lws" and launch.nodes > 1:
        raise InputError(f"as: found {kind} for {launch.nodes} nodes; allowed: lws, which starts several")
    if kind not in {"systemd", "command"} and not launch.image:
        raise InputError(
            f"as: found {kind} for an engine without a known image on this device; allowed: command or systemd"
        )
    return _WRITERS[kind](launch)


def _header(launch: Deployed) -> list[str]:
    fits = f"{count(launch.requests)} requests" if launch.requests != 1 else "1 request"
    copies = f"each of {launch.replicas} replicas" if launch.replicas > 1 else "1 replica"
    lines = [
        f"{launch.model} on {launch.engine}: {fits} of {count(launch.context_tokens)} tokens at once on {copies}"
    ]
    if launch.needs:
        lines.append(launch.needs)
    if launch.pool_tokens:
        lines.append(f"KV pool of a replica: {count(launch.pool_tokens)} tokens")
    if launch.max_seqs == launch.requests and launch.pool_full:
        lines.append(
            f"max_num_seqs is {launch.max_seqs}: a further request of this context would wait for the pool"
        )
    return lines


def _memory_reason(launch: Deployed) -> str:
    parts = [f"{gib(launch.weight_bytes)} GiB of weights, which the page cache holds while they are read"]
    parts += [f"{gib(launch.host_bytes)} GiB of caches and weights on the host"] if launch.host_bytes else []
    return "; ".join((*parts, f"{gib(PROCESS_BYTES, 0)} GiB for each GPU's process (assumed)"))


def _shm_reason(launch: Deployed) -> str:
    evicted = (
        f"{gib(launch.offload_shm_bytes)} GiB for evicted KV blocks; " if launch.offload_shm_bytes else ""
    )
    return (
        f"{evicted}{gib(SHM_BYTES_PER_GPU, 0)} GiB a GPU, at least 2, for queues and communication buffers (assumed); "
        "a container gets 64 MiB"
    )


def _start_reason(launch: Deployed) -> str:
    return (
        f"{gib(launch.weight_bytes)} GiB of weights at {launch.disk_rate / 1e9:g} GB/s (--disk-rate): "
        f"{ceil(launch.weight_bytes / launch.disk_rate)} s; {COMPILE_SECONDS} s for compilation and graphs (assumed)"
    )


# --- kinds --------------------------------------------------------------------------------------------


def _command(launch: Deployed) -> str:
    before = [f"{name}={shlex.quote(value)}" for name, value in launch.environment.items()]
    comments = [f"# {one}" for one in (*_header(launch), _unsaid(launch))]
    return "\n".join(("#!/bin/sh", *comments, " ".join([*before, shlex.join(launch.words)]))) + "\n"


def _unsaid(launch: Deployed) -> str:
    return f"The command does not say its release: install {launch.engine}"


def _systemd(launch: Deployed) -> str:
    words = " ".join(_unit_quoted(word) for word in ("/usr/bin/env", *launch.words))
    lines = [
        *(f"# {one}" for one in (*_header(launch), _unsaid(launch))),
        "[Unit]",
        f"Description={launch.engine}, {launch.model}",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Service]",
        *(f"Environment={_unit_quoted(f'{name}={value}')}" for name, value in launch.environment.items()),
        f"ExecStart={words}",
        f"# {_memory_reason(launch)}",
        f"MemoryMax={launch.host_memory_gib}G",
        f"# {_start_reason(launch)}",
        f"TimeoutStartSec={launch.start_seconds}",
        f"ExecStartPost=/bin/sh -c 'until curl -fs http://localhost:{launch.serving.port}/health; do sleep {PROBE_SECONDS}; done'",
        "Restart=on-failure",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _unit_quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./-]+", word):
        return escaped
    return "'" + escaped.replace("'", "\\'") + "'"


def _compose(launch: Deployed) -> str:
    entry, rest = _entry(launch)
    service: dict[str, Any] = {"image": launch.image}
    service |= {"entrypoint": list(entry)} if entry else {}
    service |= {"command": [word.replace("$", "$$") for word in rest]}
    service |= {"environment": dict(launch.environment)} if launch.environment else {}
    service["ports"] = [f"{PORT}:{PORT}"] if launch.replicas == 1 else [str(PORT)]
    service["volumes"] = ["huggingface:/root/.cache/huggingface"]
    service["shm_size"] = _Said(f"{launch.shm_gib}gb", _shm_reason(launch))
    limits = {"memory": _Said(f"{launch.host_memory_gib}g", _memory_reason(launch))}
    resources: dict[str, Any] = {"limits": limits}
    if launch.resource == "nvidia.com/gpu":
        device = {"driver": "nvidia", "count": launch.gpus, "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [device]}
    else:
        service["devices"] = ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
    service["deploy"] = {"replicas": launch.replicas, "resources": resources}
    starts = _Said(f"{launch.start_seconds}s", _start_reason(launch))
    service["healthcheck"] = {
        "test": ["CMD", *_asks(launch)],
        "interval": f"{PROBE_SECONDS}s",
        "start_period": starts,
    }
    service["restart"] = "unless-stopped"
    return to_yaml(_header(launch), {"services": {launch.name: service}, "volumes": {"huggingface": {}}})


def _asks(launch: Deployed) -> list[str]:
    """How a container asks its server whether it is ready, with what its image has."""
    url = f"http://localhost:{PORT}/health"
    python = ["python3", "-c", f"import urllib.request as u; u.urlopen('{url}')"]
    return ["curl", "-f", url] if launch.serving.curl else python


def _entry(launch: Deployed) -> tuple[tuple[str, ...], list[str]]:
    """The words that an image's own entry point does not bring, and the arguments with the port."""
    words = [*launch.words, *_address(launch)]
    starts = 3 if words[1] == "-m" else 2 if words[1] == "serve" else 1
    own = bool(launch.serving.entry) and tuple(words[:starts]) == launch.serving.entry
    return ((), words[starts:]) if own else (tuple(words[:starts]), words[starts:])


def _address(launch: Deployed) -> list[str]:
    host, port = ADDRESS
    given = [] if port in launch.words else [port, str(PORT)]
    address = [host, "0.0.0.0"] if launch.serving.local and host not in launch.words else []  # noqa: S104 - inside a container
    return [*address, *given]


def _container(launch: Deployed, name: str = "server") -> dict[str, Any]:
    entry, rest = _entry(launch)
    made: dict[str, Any] = {"name": name, "image": launch.image}
    made |= {"command": list(entry)} if entry else {}
    made["args"] = [re.sub(r"\$(?=\()", "$$", word) for word in rest]
    size = f"{launch.host_memory_gib}Gi"
    devices = {launch.resource: str(launch.gpus)}
    limits = {"memory": _Said(size, _memory_reason(launch))} | devices
    return made | _environment(launch) | {
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": {"memory": size} | devices, "limits": limits},
        "startupProbe": _start_probe(launch),
        "readinessProbe": dict(_PROBE),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - a path in a container
    }  # fmt: skip


_PROBE: Final = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": PROBE_SECONDS}


def _start_probe(launch: Deployed) -> dict[str, Any]:
    tries = ceil(launch.start_seconds / PROBE_SECONDS)
    return _PROBE | {
        "failureThreshold": _Said(tries, f"{tries} x {PROBE_SECONDS} s: {_start_reason(launch)}")
    }


def _environment(launch: Deployed) -> dict[str, Any]:
    listed = [{"name": key, "value": value} for key, value in launch.environment.items()]
    return {"env": listed} if listed else {}


def _pod(launch: Deployed, container: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if launch.label:
        name, value = launch.label
        reason = f"as device discovery labels nodes; compare: kubectl get nodes -L {name}"
        made["nodeSelector"] = _Said({name: value}, reason)
    volume = {"medium": "Memory", "sizeLimit": _Said(f"{launch.shm_gib}Gi", _shm_reason(launch))}
    return made | {"containers": [container], "volumes": [{"name": "shm", "emptyDir": volume}]}


def _labels(launch: Deployed) -> dict[str, str]:
    return {"app.kubernetes.io/name": launch.name}


def _resource(
    version: str, kind: str, launch: Deployed, spec: Mapping[str, Any], **metadata: dict[str, str]
) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": launch.name, **metadata}, "spec": spec}


def _kubernetes(launch: Deployed) -> str:
    labels = _labels(launch)
    template = {"metadata": {"labels": labels}, "spec": _pod(launch, _container(launch))}
    spec = {"replicas": launch.replicas, "selector": {"matchLabels": labels}, "template": template}
    deployment = _resource("apps/v1", "Deployment", launch, spec, labels=labels)
    ports = {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]}
    service = _resource("v1", "Service", launch, ports)
    return to_yaml(_header(launch), deployment, service, *_scaler(launch, "apps/v1", "Deployment"))


def _most(launch: Deployed) -> _Said:
    return _Said(
        launch.replicas * 2, "twice what is deployed (assumed): set it to what the cluster has GPUs for"
    )


def _scaler(launch: Deployed, version: str, kind: str) -> list[dict[str, Any]]:
    """The autoscaler on what the engine measures; none for an engine without these gauges."""
    if not launch.serving.metrics:
        return []
    most = f"{launch.requests} requests " + (
        "fill the pool" if launch.pool_full else "are what max_num_seqs allows"
    )
    part = f"{most}: above {launch.requests - 1} of {launch.requests} another one waits"
    filled = f"{part}; at least {LEAST_USAGE:g}; as a Prometheus adapter exposes it"
    values = (
        _Said(f"{round(launch.usage * 1000)}m", filled),
        _Said("1", "a request that waits finds no room in the pool or beside max_num_seqs others"),
    )
    targets = [{"type": "AverageValue", "averageValue": value} for value in values]
    metrics = [
        {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}
        for name, target in zip(launch.serving.metrics, targets, strict=True)
    ]
    spec = {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": launch.name},
        "minReplicas": launch.replicas, "maxReplicas": _most(launch), "metrics": metrics,
    }  # fmt: skip
    return [_resource("autoscaling/v2", "HorizontalPodAutoscaler", launch, spec)]


def _pod_with(launch: Deployed, extra: list[str]) -> dict[str, Any]:
    container = _container(launch)
    container["args"] = [*container["args"], *extra]
    return _pod(launch, container)


def _lws(launch: Deployed) -> str:
    """A group of pods for each replica; the first one serves."""
    if VLLM["data_parallel_size_local"] in launch.words:
        raise InputError(
            "as: found data-parallel ranks on several nodes with lws; allowed: tensor and pipeline ranks, whose nodes have one start command"
        )
    extra = list(launch.serving.rank) if launch.nodes > 1 else []
    waits = launch.serving.follower if launch.nodes > 1 else ()
    leader, worker = _pod_with(launch, extra), _pod_with(launch, [*extra, *waits])
    if launch.nodes > 1:
        for probe in ("startupProbe", "readinessProbe", "ports"):
            worker["containers"][0].pop(probe)
    labels = _labels(launch)
    template = {
        "size": launch.nodes, "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": {"metadata": {"labels": labels}, "spec": leader},
        "workerTemplate": {"metadata": {"labels": {**labels, "role": "worker"}}, "spec": worker},
    }  # fmt: skip
    version, kind = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
    spec = {"replicas": launch.replicas, "leaderWorkerTemplate": template}
    return to_yaml(_header(launch), _resource(version, kind, launch, spec), *_scaler(launch, version, kind))


def _kserve(launch: Deployed) -> str:
    """An InferenceService whose predictor is the engine's own container."""
    container = _container(launch, "kserve-container")
    container["ports"] = [{"containerPort": PORT, "protocol": "TCP"}]
    predictor = {"minReplicas": launch.replicas, "maxReplicas": _most(launch), **_pod(launch, container)}
    mode = {"serving.kserve.io/deploymentMode": "RawDeployment"}
    spec = {"predictor": predictor}
    service = _resource("serving.kserve.io/v1beta1", "InferenceService", launch, spec, annotations=mode)
    return to_yaml(_header(launch), service)


_STACK_KEYS: Final = {flag: key for key, flag in STACK_FLAGS.items() if key != "maxLoras"}
"""Flags that the production stack's chart has a key for; that of adapters it writes beside a switch of its own."""


def _helm(launch: Deployed) -> str:
    """Values of the vLLM production stack's chart."""
    _only_vllm("helm", launch)
    repository, _, tag = launch.image.rpartition(":")
    config: dict[str, Any] = {"enablePrefixCaching": VLLM["no_prefix_caching"] not in launch.words}
    rest = [
        word for word in launch.words[3:] if word not in {VLLM["prefix_caching"], VLLM["no_prefix_caching"]}
    ]
    more: list[str] = []
    while rest:
        word = rest.pop(0)
        if word in _STACK_KEYS and rest:
            config[_STACK_KEYS[word]] = _number(rest.pop(0))
        else:
            more.append(word)
    config |= {"extraArgs": more} if more else {}
    size = f"{launch.host_memory_gib}Gi"
    model: dict[str, Any] = {
        "name": launch.name, "repository": repository, "tag": tag, "modelURL": launch.model, "replicaCount": launch.replicas,
        "requestCPU": _Said(launch.gpus * 4, "4 processors a GPU (assumed)"),
        "requestMemory": size, "limitMemory": _Said(size, _memory_reason(launch)), "requestGPU": launch.gpus,
        "shmSize": _Said(f"{launch.shm_gib}Gi", _shm_reason(launch)), "vllmConfig": config,
    }  # fmt: skip
    model |= {"requestGPUType": launch.resource} if launch.resource != "nvidia.com/gpu" else {}
    model |= _environment(launch)
    if launch.label:
        label = {"key": launch.label[0], "operator": "In", "values": [launch.label[1]]}
        model["nodeSelectorTerms"] = [{"matchExpressions": [label]}]
    probe = _start_probe(launch)
    spec = {"enableEngine": True, "containerPort": PORT, "startupProbe": probe, "modelSpec": [model]}
    return to_yaml(_header(launch), {"servingEngineSpec": spec})


def _llm_d(launch: Deployed) -> str:
    """Values of llm-d's model service chart; the chart adds the command, the GPUs and the tensor-parallel size."""
    _only_vllm("llm-d", launch)
    rest = list(launch.words[3:])
    tensor = 1
    if VLLM["tensor_parallel"] in rest:
        at = rest.index(VLLM["tensor_parallel"])
        tensor = int(rest[at + 1])
        del rest[at : at + 2]
    if tensor != launch.gpus:
        raise InputError(
            f"as: found {launch.gpus} GPUs of {tensor} tensor ranks with llm-d; allowed: as many ranks as GPUs, which its chart counts"
        )
    container = _container(launch, "vllm")
    for key in ("command", "ports"):
        container.pop(key, None)
    for part in container["resources"].values():  # the chart writes the devices
        part.pop(launch.resource)
    container |= {
        "modelCommand": "vllmServe",
        "args": [*rest, ADDRESS[1], str(PORT)],
        "mountModelVolume": True,
    }
    size = _Said(
        f"{ceil(launch.weight_bytes * 1.2 / GIB)}Gi",
        f"{gib(launch.weight_bytes)} GiB of weights and a fifth more for other files (assumed)",
    )
    decode = {"create": True, "replicas": launch.replicas, "parallelism": {"tensor": tensor}}
    values = {
        "multinode": False,
        "modelArtifacts": {"uri": f"hf://{launch.model}", "name": launch.model, "size": size},
        "routing": {"servicePort": PORT, "proxy": {"enabled": False, "targetPort": PORT}},
        "accelerator": {"type": "amd" if launch.resource == "amd.com/gpu" else "nvidia"},
        "decode": decode | _pod(launch, container),
        "prefill": {"create": False},
    }
    return to_yaml(_header(launch), values)


def _dynamo(launch: Deployed) -> str:
    """A graph of a frontend and a worker (``nvidia.com/v1beta1``, ``deploy/operator/api/v1beta1`` of Dynamo 1.6)."""
    if launch.words[1] == "serve":
        family, place, rest = "vllm", 0, ["--model", *launch.words[2:]]
    else:
        family, place, rest = "sglang", 1, [*launch.words[3:]]
    brings = {release: both[place] for release, both in DYNAMO.items()}
    wanted = launch.engine.rpartition(" ")[2]
    dynamo = next((release for release, engine in brings.items() if engine == wanted), "")
    if launch.serving.curl or not dynamo:
        known = dict.fromkeys(f"{family}@{engine}" for engine in brings.values())
        raise InputError(
            f"as: found dynamo for {launch.engine}; allowed: an engine that a release of it brings, --engine {'|'.join(known)}"
        )
    container = _container(launch, "main") | {"command": ["python3", "-m", f"dynamo.{family}"], "args": rest}
    container["image"] = image = f"nvcr.io/nvidia/ai-dynamo/{family}-runtime:{dynamo}"
    for key in ("ports", "readinessProbe", "volumeMounts"):  # the operator's own
        container.pop(key)
    container["startupProbe"] |= {"httpGet": {"path": "/live", "port": DYNAMO_PORT}}
    pod = _pod(launch, container)
    pod.pop("volumes")
    frontend = {"name": "main", "image": image, "command": ["python3", "-m", "dynamo.frontend"]}
    front = {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [frontend]}},
    }
    shm = _Said(f"{launch.shm_gib}Gi", _shm_reason(launch))
    worker = {
        "name": "Worker",
        "type": "worker",
        "replicas": launch.replicas,
        "sharedMemorySize": shm,
        "podTemplate": {"spec": pod},
    }
    spec = {"backendFramework": family, "components": [front, worker]}
    return to_yaml(_header(launch), _resource("nvidia.com/v1beta1", "DynamoGraphDeployment", launch, spec))


def _only_vllm(kind: str, launch: Deployed) -> None:
    if not launch.serving.charted:
        raise InputError(f"as: found {kind} for {launch.engine}; allowed: vLLM, which its chart starts")


def _number(text: str) -> Any:  # noqa: ANN401 - as the chart's schema has it
    return int(text) if text.isdecimal() else float(text) if re.fullmatch(r"\d+\.\d+", text) else text


# --- YAML with comments -------------------------------------------------------------------------------


def to_yaml(header: list[str], *documents: Mapping[str, Any]) -> str:
    """Documents with a header of comments; a value with a reason has it in a comment before its key."""
    texts = ["\n".join(_lines(one, 0)) for one in documents]
    return "\n".join((*(f"# {one}" for one in header), "\n---\n".join(texts))) + "\n"


def _lines(value: Any, depth: int) -> list[str]:  # noqa: ANN401 - a document
    space = "  " * depth
    made: list[str] = []
    entries = (
        [("- ", one) for one in value]
        if isinstance(value, list)
        else [(f"{_scalar(key)}: ", one) for key, one in value.items()]
    )
    for key, one in entries:
        held = one.value if isinstance(one, _Said) else one
        made += [f"{space}# {one.reason}"] if isinstance(one, _Said) else []
        if not isinstance(held, list | dict):
            made.append(f"{space}{key}{_scalar(held)}")
        elif not held:
            made.append(f"{space}{key}{'[]' if isinstance(held, list) else '{}'}")
        elif key == "- " and isinstance(held, dict):
            inner = _lines(held, depth + 1)
            first = next(place for place, line in enumerate(inner) if not line.lstrip().startswith("#"))
            made += inner[:first]
            made.append(f"{space}- {inner[first].lstrip()}")
            made += inner[first + 1 :]
        else:
            made.append(f"{space}{key.rstrip()}")
            made += _lines(held, depth + 1)
    return made


_NOT_TEXT: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z_/][\w./@+-]*(?::[\w./@+-]+)*", text) and text.lower() not in _NOT_TEXT
    if plain:
        return text
    if re.fullmatch(r"[ -~]+", text):
        return "'" + text.replace("'", "''") + "'" if re.search(r'["\\]', text) else f'"{text}"'
    return '"' + re.sub(r"[^ !#-\[\]-~]", lambda one: f"\\U{ord(one[0]):08x}", text) + '"'


_WRITERS: Final[dict[str, Callable[[Deployed], str]]] = {
    "command": _command, "compose": _compose, "kubernetes": _kubernetes, "systemd": _systemd, "kserve": _kserve, "lws": _lws,
    "llm-d": _llm_d, "dynamo": _dynamo, "helm": _helm,
}  # fmt: skip
WRITTEN: Final = tuple(_WRITERS)
"""Kinds of files that are written."""
