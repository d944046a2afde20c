"""Servers in one file: every container, unit and script that starts one, with what it is started on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kvreport.budgets import DEPLOYMENT
from kvreport.catalog.server_flags import flag_names
from kvreport.deployments.container_resources import (
    DYNAMO,
    Resources,
    of_container,
    of_docker_run,
    of_service,
    quantity,
    whole,
)
from kvreport.deployments.shell import (
    CONTAINERS,
    Recognizer,
    Scope,
    Script,
    Started,
    Unresolved,
    inline,
    interpolated,
    shell_words,
)
from kvreport.deployments.yaml_documents import Map, Seq, read_documents
from kvreport.errors import InputError
from kvreport.units import GIB

VLLM: Final = flag_names("vllm")
"""vLLM's flags by what each sets, which charts write."""

KINDS: Final = ("compose", "kubernetes", "lws", "kserve", "llm-d", "dynamo", "helm", "systemd", "script")
"""Kinds of files that are read."""

_PROGRAMS: Final = re.compile(
    r"vllm|sglang|llama(?:-server|-cli)?(?:\.exe)?|ollama|trtllm-serve|mlx_lm\.server|lmdeploy|lms|python[\d.]*|exec|env|nohup|sudo|uvx?|run|numactl"
    r"|docker|podman|nerdctl|srun|torchrun|mpirun|time|nice|taskset|setsid|stdbuf|command|poetry|conda|micromamba|pixi|tini|gosu"
)
"""First words of a command that may start a server: the servers, and what people start them with."""
_PYTHON: Final = re.compile(r"python[\d.]*|llama-(?:server|cli)(?:\.exe)?")
_STARTS_ITSELF: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (re.compile(r"(?:\S*/)?vllm-openai(?:-\w+)?(?:[:@]\S*)?"), ("vllm", "serve")),
    (re.compile(r"(?:\S*/)?llama\.cpp:server\S*"), ("llama-server",)),
)
"""Images whose entry point is the server (vLLM's ``docker/Dockerfile``, llama.cpp's ``.devops``), and its program."""
_OTHER_SERVERS: Final = re.compile(
    r"(?:\S*/)?(?:ollama|text-generation-inference|tgi|lmdeploy|tritonserver|tensorrt-llm|trtllm|localai|local-ai|lorax|aphrodite-(?:openai|engine)"
    r"|xinference|tabbyapi|koboldcpp|mlc-llm|openllm|deepspeed-mii|huggingfaceserver|vllm|vllm-openai|sglang|llama\.cpp)(?:-\w+)*(?:[:@]\S*)?"
    r"|nvcr\.io/nim/\S+"
)
"""Images of servers: a container of one is named where nothing in it is answered."""
_ROUTERS: Final = re.compile(r"\S*-(?:router|gateway|proxy|exporter|operator)\b\S*")
_RELEASED: Final = re.compile(r"(?:\S*/)?(?:vllm(?:-openai)?|sglang)(?:-rocm|-xpu)?:v?\d+\.\d+\S*")
"""Images whose tag is a release of the engine, as the reader of start commands takes them."""
_OPEN: Final = re.compile(
    r"\{\{.*?\}\}|\$\{[^}]*\}|\$\([A-Za-z_]\w*\)|\$[A-Za-z_]\w*|<[A-Za-z][^<>]*>", re.DOTALL
)
"""What stands where a value is filled in later: templates, variables, ``<YOUR TOKEN>``."""
_OF_MEMORY: Final = re.compile(
    r"VLLM_USE_V2_MODEL_RUNNER|VLLM_ALLOW_LONG_MAX_MODEL_LEN|VLLM_PP_LAYER_PARTITION|SGLANG_PP_LAYER_PARTITION|OLLAMA_(?:CONTEXT_LENGTH|NUM_PARALLEL|KV_CACHE_TYPE|FLASH_ATTENTION)"
)
"""Variables that change memory: they are written before the command, whose reader judges them."""
SEEN: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that leave a process some devices of those that it is given."""
_SET: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
"""A variable that is set before a command."""
_OF_ENGINES: Final = re.compile(r"(?:VLLM|SGLANG|SGL|OLLAMA|LLAMA_ARG|TRTLLM|TLLM|PYTORCH|NVSHMEM)_\w+")


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a file."""

    line: int  # Where its command begins.
    kind: str  # One of :data:`KINDS`.
    name: str  # What the file calls it; may be empty.
    words: tuple[str, ...]  # Its start command; empty where the file does not hold it.
    image: str = ""  # Its image; empty without one.
    resources: Resources = field(default_factory=Resources)  # What it gets on one node.
    replicas: int | None = 1  # Copies of it; None where the file does not say.
    nodes: int = 1  # Nodes of one copy.
    environment: Mapping[str, str] = field(default_factory=dict)  # Variables of the engine.
    unresolved: tuple[Unresolved, ...] = ()  # What has no value in the file, with its line.


def find_servers(
    text: str, where: str, is_server: Recognizer, beside: Beside = lambda _: None
) -> tuple[list[Server], list[Unresolved]]:
    """Find every server in a deployment file.

    Args:
        text: The file.
        where: Its name, for messages.
        is_server: Whether words start a server: the reader of start commands.
        beside: The text of a file that this one names by its relative path; None where it is not there.

    Returns:
        The servers in the order of the file, and what is not resolved outside them.

    Raises:
        InputError: If the text is beyond the budget, or no deployment file.
    """
    if len(text.encode("utf-8", "replace")) > DEPLOYMENT.bytes:
        raise InputError(f"{where}: found more than {DEPLOYMENT.bytes:,} bytes; allowed: a deployment file")

    def known(words: Sequence[str]) -> bool:
        program = next((word for word in words if not _SET.fullmatch(word)), "")
        program = re.split(r"[/\\]", program)[-1]
        return _PROGRAMS.fullmatch(program) is not None and is_server(words)

    finder = _Finder(known, beside)
    if re.search(r"^\s*\[Service\]\s*$", text, re.MULTILINE):
        finder.unit(text)
        return finder.found, finder.left
    try:
        script = text.startswith("#!") or where.endswith((".sh", ".bash", ".zsh", ".ps1"))
        documents = [] if script else read_documents(text, where)
    except InputError:
        finder.script(text)
        if not finder.found:
            raise
        return finder.found, finder.left
    if not documents:
        finder.script(text)
    for document in documents:
        finder.files(document)
    for document in documents:
        finder.document(document)
    return finder.found, finder.left


class _Finder:
    def __init__(self, is_server: Recognizer, beside: Beside) -> None:
        self.is_server, self.beside = is_server, beside
        self.found: list[Server] = []
        self.left: list[Unresolved] = []
        self.config: dict[str, Map] = {}  # the files of each ConfigMap
        self.claims: dict[str, int | None] = {}  # the devices of each template of a claim

    # --- scripts and units -----------------------------------------------------------------------------

    def script(self, text: str, kind: str = "script", scope: Scope | None = None, first: int = 1) -> None:
        scope = Scope() if scope is None else scope
        text = re.sub(r"`\r?\n", "\\\n", text)  # PowerShell's sign of a line that goes on
        read = Script(scope, self.is_server)
        for one in read.run(text, first):
            words = tuple(_plain(one.words))
            image, resources = _docker_image(words), of_docker_run(words)
            missing = _of(scope, words, one.line)
            server = Server(one.line, kind, "", words, image, resources, unresolved=missing)
            self.found.append(_seeing(server, {}))
        for line, started in read.containers:
            image = next((word for word in started if _OTHER_SERVERS.fullmatch(word)), "")
            given = dict(word.split("=", 1) for word in started if _SET.fullmatch(word))
            self._unknown(line, (), image, given, gpus=False)

    def unit(self, text: str) -> None:
        scope, starts, limit = Scope(), list[tuple[int, str]](), ""
        lines: list[str] = text.split("\n")
        place = 0
        while place < len(lines):
            first, line = place + 1, lines[place]
            while line.endswith("\\") and place + 1 < len(lines):
                place += 1
                if not lines[place].lstrip().startswith(("#", ";")):
                    line = f"{line[:-1]} {lines[place].strip()}"
            place += 1
            key, sign, value = line.strip().partition("=")
            if not sign or key.startswith(("#", ";")):
                continue
            if key == "Environment":
                for pair in shell_words(value, first):
                    name, _, held = pair.partition("=")
                    scope.variables[name] = held
            elif key == "EnvironmentFile":
                self.left.append((first, f"EnvironmentFile={value}"))
            elif key == "ExecStart" and value:
                starts.append((first, value.lstrip("-@:+!")))
            elif key == "MemoryMax":
                limit = value
        before = len(self.found)
        for first, command in starts:
            known = len(self.found)
            self.script(command, "systemd", scope, first)
            if len(self.found) == known:
                program = next(iter(command.split()), command)
                self.left.append((first, f"starts {program}, whose command is not in this file"))
        given = {name: value for name, value in scope.variables.items() if value is not None}
        for place, one in enumerate(self.found[before:], before):
            memory = one.resources.host_memory_bytes or quantity(limit, binary=True)
            resources = replace(one.resources, host_memory_bytes=memory)
            unescaped = replace(one, words=tuple(map(_unescaped, one.words)), resources=resources)
            self.found[place] = _with_environment(unescaped, given)

    # --- documents -------------------------------------------------------------------------------------

    def files(self, document: Map) -> None:
        """Note what other documents name: files of a ConfigMap, devices of a claim's template."""
        kind, name = document.text("kind"), document.text("metadata", "name")
        if kind == "ConfigMap":
            self.config[name] = document.map("data")
        elif kind == "ResourceClaimTemplate":
            asked = document.maps("spec", "spec", "devices", "requests")
            counts = [whole(one.text("exactly", "count") or one.text("count") or "1") for one in asked]
            self.claims[name] = counts[0] if len(counts) == 1 else None

    def document(self, document: Map) -> None:  # noqa: PLR0912 - one a kind of document
        """Read one document by its kind."""
        kind, spec = document.text("kind"), document.map("spec")
        if document.text("apiVersion") and kind:
            if kind.endswith("List"):
                for one in document.maps("items"):
                    self.document(one)
            elif kind == "DynamoGraphDeployment":
                self._dynamo(spec)
            elif kind == "LLMInferenceService":
                self._llm_service(spec, document)
            elif kind == "InferenceService":
                self._inference_service(spec, document)
            elif kind == "VLLMRuntime":
                self._model_spec(spec.map("model"), spec, "kubernetes")
            else:
                served = "kserve" if kind.endswith("ServingRuntime") else "kubernetes"
                self._pods(document, served, document.text("metadata", "name"))
        elif any(
            isinstance(one, Map) and not one.keys().isdisjoint({"image", "build", "extends"})
            for one in document.map("services").values()
        ):
            scope = Scope(dict(_lines_of_variables(self.beside(".env") or "")))
            for name, service in document.map("services").items():
                if isinstance(service, Map):
                    self._service(name, self._extended(service, document), scope)
        elif "servingEngineSpec" in document:
            for one in document.maps("servingEngineSpec", "modelSpec"):
                self._model_spec(one, one, "helm")
        elif "modelArtifacts" in document:
            for role in ("decode", "prefill"):
                self._llm_d(document, role)
        else:
            self._values(document, "")

    def _pods(self, value: object, kind: str, name: str, replicas: str = "1", nodes: int = 1) -> None:
        """Walk a resource down to its pods; replicas stand next to the template they are of."""
        if isinstance(value, Seq):
            for one in value:
                self._pods(one, kind, name, replicas, nodes)
        if not isinstance(value, Map):
            return
        if "leaderWorkerTemplate" in value:
            group = value.map("leaderWorkerTemplate")
            size = whole(group.text("size") or "1") or 1
            copies = value.text("replicas") or "1"
            for role in ("leaderTemplate", "workerTemplate"):
                before = len(self.found)
                self._pods(group.at(role), "lws" if kind == "kubernetes" else kind, name, copies, size)
                if len(self.found) > before:
                    break  # the workers of a group belong to its leader's server
            return
        if isinstance(value.at("containers"), Seq):
            for container in value.maps("containers"):
                self._container(container, value, kind, name, replicas, nodes)
            return
        own = value.text("replicas") or value.text("completions") or replicas
        for one in value.values():
            self._pods(one, kind, value.text("name") or name, own, nodes)

    def _container(
        self,
        container: Map,
        pod: Map,
        kind: str,
        name: str,
        copies: str,
        nodes: int,
        also: tuple[Map, ...] = (),
    ) -> None:
        environment = _environment(container)
        # As the controller of a group sets them (docs/reference/labels-annotations-and-environment-variables of LeaderWorkerSet).
        if nodes > 1:
            group: dict[str, str | None] = {"LWS_GROUP_SIZE": str(nodes), "LWS_WORKER_INDEX": "0"}
            environment = group | {"LWS_LEADER_ADDRESS": None} | environment
        image, starts = container.text("image"), _texts(container, "command")
        resources = of_container(container, pod, also)
        if resources.gpus is None and (claimed := self._claimed(container, pod)) is not None:
            resources = replace(resources, gpus=claimed)
        words = with_config([*starts, *_texts(container, "args")], self._mounted(container, pod))
        line = container.lines.get("command", container.lines.get("args", container.line))
        left = _open(container, environment)
        server = Server(line, kind, name, (), image, resources, whole(copies), nodes, {}, left)
        before = len(self.found)
        own = () if starts else _own_program(image)
        told = [*own, *(_kubernetes(word, environment) for word in words)]
        self._read(replace(server, name=name or container.text("name")), told, environment, copies)
        if len(self.found) > before:
            return
        if _OPEN.search(image) and any(word.startswith("--model") for word in words):
            self.found.append(server)
        else:
            self._unknown(container.line, words, image, environment, gpus=bool(resources.asks))

    def _unknown(
        self,
        line: int,
        words: Sequence[str],
        image: str,
        environment: Mapping[str, str | None],
        *,
        gpus: bool,
    ) -> None:
        """Name a container that is not answered: one with GPUs, or of a server."""
        said = " ".join(words[:3]) or image or "none"
        if re.fullmatch(r"(?:\S*/)?ollama(?:[:@]\S*)?", image):
            told = [f"{name}={value}" for name, value in environment.items() if _OF_MEMORY.fullmatch(name)]
            asked = " ".join(["kvreport estimate", *told, "ollama run MODEL --gpu GPU"])
            why = f"a container of Ollama, which loads the models that it is asked for; {asked} answers one: {said}"
        elif gpus:
            why = f"a container with GPUs whose program starts no server that is known: {said}"
        elif _OTHER_SERVERS.fullmatch(image) and not _ROUTERS.fullmatch(image):
            why = f"a container of a server whose command is not read: {image}"
        else:
            return
        self.left.append((line, why))

    def _claimed(self, container: Map, pod: Map) -> int | None:
        """Devices of the claims that a container names (dynamic resource allocation); None where the file does not say."""
        templates = {
            one.text("name"): one.text("resourceClaimTemplateName") for one in pod.maps("resourceClaims")
        }
        named = [one.text("name") for one in container.maps("resources", "claims")]
        return sum(self.claims.get(templates.get(name, "")) or 0 for name in named) or None

    def _mounted(self, container: Map, pod: Map) -> dict[str, str]:
        """Files of ConfigMaps that a container has, by their path in it."""
        volumes = {one.text("name"): one.text("configMap", "name") for one in pod.maps("volumes")}
        return {
            f"{mount.text('mountPath').rstrip('/')}/{name}": text
            for mount in container.maps("volumeMounts")
            for name, text in self.config.get(volumes.get(mount.text("name"), ""), Map()).items()
            if isinstance(text, str)
        }

    def _extended(self, service: Map, document: Map, depth: int = 0) -> Map:
        """A service with what it takes from another (``extends``); the file of another where it is given beside this one."""
        named, line = service.at("extends"), service.lines.get("extends", service.line)
        if not named or depth > MOST_EXTENDED:
            return service
        of = named if isinstance(named, str) else service.text("extends", "service")
        other = "" if isinstance(named, str) else service.text("extends", "file")
        held = document
        if other:
            text = self.beside(other)
            held = Map() if text is None else next(iter(read_documents(text, other)), Map())
        base = held.map("services", of)
        if not base:
            text = " ".join(filter(None, (other, of)))
            self.left.append((line, f"extends: {text}, which is not beside this file"))
            return service
        return _merged(service, self._extended(base, held, depth + 1), line)

    def _service(self, name: str, service: Map, variables: Scope) -> None:
        scope = Scope(variables.variables)
        line = service.lines.get("command", service.line)

        def words(key: str) -> list[str]:
            value = service.at(key)
            if isinstance(value, str):
                return shell_words(interpolated(value, scope, service.lines.get(key, line)), line)
            pairs = zip(value, value.lines, strict=True) if isinstance(value, Seq) else ()
            return [interpolated(one, scope, at) for one, at in pairs]

        image = interpolated(service.text("image"), scope, service.lines.get("image", line))
        image_open, scope.unresolved = scope.unresolved, []
        entry, command = words("entrypoint"), words("command")
        held, missing = dict[str, str](), list[Unresolved]()
        files, place = service.at("env_file"), service.lines.get("env_file", line)
        for one in [files] if isinstance(files, str) else files if isinstance(files, Seq) else []:
            path = one if isinstance(one, str) else one.text("path")
            text = self.beside(path)
            held |= dict(_lines_of_variables(text or ""))
            missing += [(place, f"env_file: {path}, which is not beside this file")] if text is None else []
        held |= {key: value for key, value in _environment(service).items() if value is not None}
        aside = Scope(variables.variables)
        environment = {key: interpolated(value, aside, line) for key, value in held.items()}
        copies = interpolated(
            service.text("scale") or service.text("deploy", "replicas") or "1", Scope(), line
        )
        left = (*image_open, *scope.unresolved, *missing)
        server = Server(line, "compose", name, (), image, of_service(service, environment), unresolved=left)
        own, before = () if entry else _own_program(image), len(self.found)
        self._read(server, [*own, *entry, *command], environment, copies)
        devices = service.maps("deploy", "resources", "reservations", "devices") or service.at("gpus")
        if len(self.found) == before:
            self._unknown(line, entry or [image], image, environment, gpus=bool(devices))

    def _dynamo(self, spec: Map) -> None:
        """Services of Dynamo's v1alpha1 and components of its v1beta1."""
        services = spec.map("services")
        parts = [(name, one) for name, one in services.items() if isinstance(one, Map)]
        parts += [(one.text("name"), one) for one in spec.maps("components")]
        for name, one in parts:
            nodes = whole(one.text("multinode", "nodeCount") or "1") or 1
            copies = one.text("replicas") or "1"
            beside = (one.map("resources"), one.map("device", "resources"))
            main = one.map("extraPodSpec", "mainContainer")
            pods = [(main, one.map("extraPodSpec"))] if main else []
            template = one.map("podTemplate", "spec")
            pods += [(container, template) for container in template.maps("containers")]
            before = len(self.found)
            for container, pod in pods:
                self._container(container, pod, "dynamo", name, copies, nodes, beside)
            shm = quantity(one.text("sharedMemorySize") or one.text("sharedMemory", "size"))
            for place, server in enumerate(self.found[before:], before):
                resources = replace(server.resources, shm_bytes=shm or server.resources.shm_bytes)
                self.found[place] = replace(server, resources=resources)

    def _llm_service(self, spec: Map, document: Map) -> None:
        """KServe's LLMInferenceService: the engine's arguments are made from the specification."""
        uri = spec.text("model", "uri")
        uri = uri.removeprefix("hf://") if uri.startswith("hf://") else spec.text("model", "name") or uri
        for part, role in ((spec, ""), (spec.map("prefill"), "prefill")):
            if not part:
                continue
            sizes = part.map("parallelism")
            template = part.map("template")
            local, data = whole(sizes.text("dataLocal") or "0") or 0, whole(sizes.text("data") or "1") or 1
            stages = whole(sizes.text("pipeline") or "1") or 1
            nodes = max(data // local, 1) if local else max(stages, 1) if "worker" in part else 1
            flags = _flags(sizes, _LAYOUT_FLAGS, {"", "1"})
            flags += [VLLM["expert_parallel"]] if sizes.text("expert") == "true" else []
            host = quantity(part.map("workload", "kvCacheOffloading").text("cpu"))
            flags += [VLLM["kv_offload"], f"{host / GIB:g}"] if host else []
            main = next(
                (one for one in template.maps("containers") if one.text("name") in {"main", ""}), Map()
            )
            environment = _environment(main)
            more = shell_words(environment.get("VLLM_ADDITIONAL_ARGS") or "", main.line)
            written = [*_texts(main, "command"), *_texts(main, "args")]
            words = written if _texts(main, "command") else ["vllm", "serve", uri, *written, *flags, *more]
            name = "-".join(filter(None, (document.text("metadata", "name"), role)))
            line, resources = main.line or part.line or document.line, of_container(main, template)
            server = Server(
                line, "kserve", name, (), main.text("image"), resources, nodes=nodes, unresolved=_open(main)
            )
            self._read(server, words, environment, part.text("replicas") or "1")

    def _inference_service(self, spec: Map, document: Map) -> None:
        """KServe's InferenceService: a predictor with containers, or with a model that a runtime serves."""
        predictor = spec.map("predictor")
        name, copies = document.text("metadata", "name"), predictor.text("minReplicas") or "1"
        model = predictor.map("model")
        if model:
            form, uri = model.text("modelFormat", "name").lower(), model.text("storageUri")
            args = _texts(model, "args")
            named = [arg.partition("=")[2] for arg in args if arg.startswith("--model_id=")] or [
                uri.removeprefix("hf://")
            ]
            kept = [arg for arg in args if not arg.startswith(("--model_id", "--model_name"))]
            if form in {"huggingface", "vllm"}:
                resources, image = of_container(model, predictor), model.text("image")
                server = Server(model.line, "kserve", name, (), image, resources, unresolved=_open(model))
                self._read(server, ["vllm", "serve", *named, *kept], _environment(model), copies)
        for container in predictor.maps("containers"):
            self._container(container, predictor, "kserve", name, copies, 1)
        if predictor.maps("workerSpec", "containers"):
            self.left.append((predictor.map("workerSpec").line, "the workers of a predictor are not read"))

    def _model_spec(self, model: Map, spec: Map, kind: str) -> None:
        """A model of the production stack's Helm chart (``helm/templates/deployment-vllm-multi.yaml``)."""
        config = Map()
        config.update(spec.map("vllmConfig"))
        words = ["vllm", "serve", model.text("modelURL")]
        words += (
            [VLLM["enable_lora"]] if "true" in {spec.text("enableLoRA"), model.text("enableLoRA")} else []
        )
        if config:
            sign = "" if config.text("enablePrefixCaching") == "true" else "no_"
            words.append(VLLM[f"{sign}prefix_caching"])
        words += _flags(config, STACK_FLAGS)
        words += _texts(config, "extraArgs")
        deployed = spec.map("deploymentConfig")
        memory = spec.text("limitMemory") or deployed.text("resources", "memory")
        gpus = spec.text("requestGPU") or deployed.text("resources", "gpu")
        image = spec.text("image")
        if spec.text("repository"):
            image = f"{spec.text('repository')}:{spec.text('tag') or 'latest'}"
        type_ = spec.text("requestGPUType")
        mig = re.fullmatch(r"nvidia\.com/mig-(\S+)", type_)
        resources = Resources(
            gpus=whole(gpus), gpu=of_container(Map(), spec).gpu, slice=mig[1] if mig else "",
            host_memory_bytes=quantity(memory), shm_bytes=quantity(spec.text("shmSize")),
        )  # fmt: skip
        stages = whole(config.text("pipelineParallelSize") or "1") or 1
        by_ray = "raySpec" in spec and spec.text("raySpec", "enabled") != "false"
        nodes = stages if by_ray else 1  # helm/templates/ray-cluster.yaml
        words += [VLLM["pipeline_parallel"], str(stages)] if nodes > 1 else []
        name = model.text("name") or spec.text("name")
        server = Server(spec.line, kind, name, (), image, resources, nodes=nodes, unresolved=_open(spec))
        copies = spec.text("replicaCount") or deployed.text("replicas") or "1"
        self._read(server, words, _environment(spec), copies)

    def _llm_d(self, document: Map, role: str) -> None:
        """A role of llm-d's model service chart: the chart adds the command and the sizes of the layout."""
        part = document.map(role)
        if not part or part.text("create") == "false":
            return
        sizes = part.map("parallelism")
        uri = re.sub(r"^(?:hf|pvc\+hf)://", "", document.text("modelArtifacts", "uri"))
        uri = re.sub(
            r'"?\{\{-? *\.Values\.([\w.]+) *-?\}\}"?',
            lambda one: document.text(*one[1].split(".")) or one[0],
            uri,
        )
        tensor, local, data = (whole(sizes.text(key) or "1") or 1 for key in ("tensor", "dataLocal", "data"))
        for container in part.maps("containers"):
            words = _texts(container, "args")
            if container.text("modelCommand") == "vllmServe":
                stated = tensor == 1 or any("tensor-parallel" in one for one in words)
                words = ["vllm", "serve", uri, *words]
                words += [] if stated else [VLLM["tensor_parallel"], str(tensor)]
            else:
                words = [*_texts(container, "command"), *words]
            resources = of_container(container, part)
            if resources.gpus is None and words:
                resources = replace(resources, gpus=tensor * local)
            environment = _environment(container)
            nodes = max(data // local, 1) if document.text("multinode") == "true" else 1
            server = Server(
                container.line, "llm-d", role, (), container.text("image"), resources, nodes=nodes, unresolved=_open(container)
            )  # fmt: skip
            told = [_kubernetes(one, environment) for one in words]
            self._read(server, told, environment, part.text("replicas") or "1")

    def _values(self, value: object, name: str) -> None:
        """Values of a chart that is not known: an image with a command or arguments, at any depth."""
        if isinstance(value, Seq):
            for one in value:
                self._values(one, name)
        if not isinstance(value, Map):
            return
        if isinstance(value.at("containers"), Seq):
            self._pods(value, "helm", name, value.text("replicas") or value.text("replicaCount") or "1")
            return
        image = value.map("image")
        written = value.text("image") or (
            f"{image.text('repository')}:{image.text('tag') or 'latest'}" if image.text("repository") else ""
        )
        keys = [
            key for key in ("command", "args", "extraArgs", "vllmArgs", "serverArgs") if _texts(value, key)
        ]
        command = [*_texts(image, "command"), *(word for key in keys for word in _texts(value, key))]
        if written and command:
            environment = _environment(value)
            starts = "command" in keys or bool(_texts(image, "command"))
            line = value.lines.get(keys[0], value.line) if keys else value.line
            server = Server(
                line, "helm", name, (), written, of_container(value, value), unresolved=_open(value)
            )
            own = () if starts else _own_program(written)
            told, before = [*own, *(_kubernetes(one, environment) for one in command)], len(self.found)
            self._read(server, told, environment, value.text("replicaCount") or value.text("replicas") or "1")
            if len(self.found) == before:
                self._unknown(line, command, written, environment, gpus=bool(server.resources.asks))
            return
        if written:
            self._unknown(value.line, (), written, _environment(value), gpus=False)
        for key, one in value.items():
            self._values(one, key)

    # --- a container's command -------------------------------------------------------------------------

    def _read(
        self, server: Server, words: list[str], environment: Mapping[str, str | None], copies: str
    ) -> None:
        """Keep every server that a container's command starts, of so many copies."""
        if server.kind == "dynamo":
            words = [word for word in words if word not in _DYNAMO_FLAGS]
        scope = Scope(dict(environment))
        script = inline(words)
        if script is not None:
            scope.arguments = list(script[1])
            starts = Script(scope, self.is_server).run(script[0], server.line)
        else:
            known = bool(words) and self.is_server(words)
            starts = [Started(server.line, tuple(words), certain=True, branches={})] if known else []
        given = {key: value for key, value in environment.items() if value is not None}
        replicas = whole(copies)
        uncounted = [(server.line, f"replicas: {copies}")] if replicas is None else []
        fixed = [miss for miss in server.unresolved if script is None or "{{" in miss[1]]
        for started in starts:
            inner = _plain(started.words)
            left = tuple(dict.fromkeys((*fixed, *_of(scope, inner, started.line), *uncounted)))
            told = _released(inner, server.image)
            one = replace(server, line=started.line, words=told, replicas=replicas, unresolved=left)
            self.found.append(_with_environment(one, given))


def _flags(sizes: Map, flags: Mapping[str, str], unsaid: Collection[str] = ("",)) -> list[str]:
    """The flags of keys that say something, with their values."""
    told = [(flag, sizes.text(key)) for key, flag in flags.items()]
    return [word for flag, value in told if value not in unsaid for word in (flag, value)]


_LAYOUT_FLAGS: Final = {
    "tensor": VLLM["tensor_parallel"], "pipeline": VLLM["pipeline_parallel"], "data": VLLM["data_parallel"],
}  # fmt: skip
"""Keys of ``parallelism`` of an LLMInferenceService, and the flags for them."""

_DYNAMO_FLAGS: Final = frozenset({"--is-prefill-worker", "--is-decode-worker"})
"""Roles of Dynamo's workers, which take their engine's flags besides (``components/src/dynamo``, 1.3)."""

STACK_FLAGS: Final = {
    "maxModelLen": VLLM["context"], "dtype": VLLM["dtype"], "tensorParallelSize": VLLM["tensor_parallel"],
    "maxNumSeqs": VLLM["max_seqs"], "gpuMemoryUtilization": VLLM["utilization"], "maxLoras": VLLM["max_loras"],
}  # fmt: skip
"""Keys of ``vllmConfig`` and the flags that the production stack's chart writes for them."""


_OF_FILES: Final = frozenset({"--config", "--extra_llm_api_options", "--extra-engine-args"})
"""Flags that name a file of further flags: of vLLM and SGLang, of TensorRT-LLM and of Dynamo's worker for it."""
_OF_TENSORRT_LLM: Final = {
    "tensor_parallel_size": "tp_size", "pipeline_parallel_size": "pp_size", "moe_expert_parallel_size": "ep_size", "max_batch_size": "",
    "max_num_tokens": "", "max_seq_len": "", "free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction",
}  # fmt: skip
"""Keys of its options and the flag of ``trtllm-serve`` of the same meaning, where it has another name (``commands/serve.py``)."""
MOST_EXTENDED: Final = 8
Beside = Callable[[str], str | None]
"""The text of a file beside another, by its relative path; None where it is not there."""


def with_config(words: list[str], files: Mapping[str, str]) -> list[str]:
    """A command with the flags of its file of flags, where that is known; a flag of the command itself holds."""
    made: list[str] = []
    given = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in words if word.startswith("--")}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, sign, path = word.partition("=")
        path = path if sign else next(iter(rest), "")
        if flag not in _OF_FILES or path not in files:
            made.append(word)
            continue
        rest = rest if sign else rest[1:]
        (options,) = read_documents(files[path], path)[:1] or [Map()]
        if flag != "--config" or "trtllm" in " ".join(words[:3]):
            made += [f"{flag}={path}"]  # its other keys are not flags
            told = {**options.map("kv_cache_config"), **options}
            options = Map()
            options.update({new or key: told[key] for key, new in _OF_TENSORRT_LLM.items() if key in told})
        for key, value in options.items():
            values = value if isinstance(value, Seq) else [value]
            if key.replace("_", "-") not in given and value != "false" and not isinstance(value, Map):
                made += [f"--{key}", *(one for one in values if isinstance(one, str) and one != "true")]
    return made


def _lines_of_variables(text: str) -> Iterator[tuple[str, str]]:
    """Variables of a file of ``NAME=value`` lines."""
    for line in text.split("\n"):
        if found := re.fullmatch(
            r"\s*(?:export\s+)?([A-Za-z_]\w*)=(?:'([^']*)'|\"([^\"]*)\"|([^#]*?))\s*(?:#.*)?", line
        ):
            yield found[1], found[2] or found[3] or found[4] or ""


def _merged(own: Map, base: Map, line: int) -> Map:
    """A mapping over another, as Compose merges them: mappings by their keys, pairs of an environment too, others replaced."""
    made = Map()
    made.line = own.line
    made.update(base)
    made.lines = dict.fromkeys(base, line) | own.lines
    for key, value in own.items():
        if key == "environment":
            made[key] = both = Map()
            both.update({**_environment(base), **_environment(own)})
        elif isinstance(value, Map) and base.map(key):
            made[key] = _merged(value, base.map(key), line)
        else:
            made[key] = value
    return made


def _texts(container: Map, key: str) -> list[str]:
    value = container.at(key)
    if isinstance(value, str):
        return shell_words(value, container.lines.get(key, 0)) if value else []
    return [one for one in value if isinstance(one, str)] if isinstance(value, Seq) else []


def _environment(container: Map) -> dict[str, str | None]:
    """Variables of a container: pairs, or lines of ``NAME=value``; None where the value comes from elsewhere."""
    made: dict[str, str | None] = {}
    for key in ("env", "envs", "environment"):
        value = container.at(key)
        if isinstance(value, Map):
            made |= {name: one if isinstance(one, str) else None for name, one in value.items()}
        for one in value if isinstance(value, Seq) else ():
            if isinstance(one, Map):
                made[one.text("name")] = one.text("value") if "value" in one else None
            elif isinstance(one, str):
                name, sign, held = one.partition("=")
                made[name] = held if sign else None
    return made


def _kubernetes(word: str, environment: Mapping[str, str | None]) -> str:
    """A word with ``$(NAME)`` replaced as Kubernetes does where the container has the variable."""
    return re.sub(r"\$\(([A-Za-z_][\w.-]*)\)", lambda found: environment.get(found[1]) or found[0], word)


def _open(container: Map, environment: Mapping[str, str | None] | None = None) -> tuple[Unresolved, ...]:
    """What a container's texts leave open, with their lines; not what its environment has from elsewhere."""
    environment = _environment(container) if environment is None else environment
    texts: list[tuple[Any, int]] = []
    for key in ("image", "command", "args", "extraArgs", "modelURL", "tag"):
        value = container.at(key)
        texts += [(value, container.lines.get(key, container.line))] if isinstance(value, str) else []
        texts += zip(value, value.lines, strict=True) if isinstance(value, Seq) else []
    parts = [
        (line, part[0])
        for one, line in texts
        if isinstance(one, str)
        for part in _OPEN.finditer(_kubernetes(one, environment))
    ]
    return tuple(one for one in dict.fromkeys(parts) if one[1].strip("$(){}") not in environment)


def _unescaped(word: str) -> str:
    """A word of a unit as systemd hands it on (``systemd.service``, Command lines)."""
    return word.replace("\\\\", "\\").replace("$$", "$").replace("%%", "%")


def _own_program(image: str) -> tuple[str, ...]:
    return next((program for pattern, program in _STARTS_ITSELF if pattern.fullmatch(image)), ())


def _plain(words: Sequence[str]) -> list[str]:
    """A command without what only hands it on to the kernel."""
    kept = list(words)
    while kept and kept[0].rpartition("/")[2] in {"exec", "nohup", "sudo", "command", "env"}:
        kept.pop(0)
    return kept


def _released(words: list[str], image: str) -> tuple[str, ...]:
    """The command in its image where the tag names the engine's release, as ``docker run`` would write it.

    An image of Dynamo names a release of Dynamo, which brings one of the engine.
    """
    if brought := re.fullmatch(r"\S*/ai-dynamo/(vllm|sglang)-runtime:([\d.]+)", image):
        release = dict(zip(("vllm", "sglang"), DYNAMO.get(brought[2], ()), strict=False)).get(brought[1])
        return (*words, "--engine", f"{brought[1]}@{release}") if release else tuple(words)
    start = next((place for place, word in enumerate(words) if not _SET.fullmatch(word)), 0)
    program = words[start].rpartition("/")[2] if words else ""
    known = program in {"vllm", "sglang"} or _PYTHON.fullmatch(program)
    if not known or not _RELEASED.fullmatch(image):
        return tuple(words)
    return (*words[:start], "docker", "run", image, *words[start:])


def _docker_image(words: Sequence[str]) -> str:
    """The image that a ``docker run`` names, where it is one of a server."""
    if CONTAINERS.isdisjoint(words[:4]):
        return ""
    known = re.compile(r"(?:\S*/)?(?:vllm|sglang|llama\.cpp)(?:-openai)?(?::\S*)?")
    return next((word for word in words[2:] if known.fullmatch(word)), "")


def _of(scope: Scope, words: Sequence[str], line: int) -> tuple[Unresolved, ...]:
    """What a script's scope could not resolve of one command, or of all of them."""
    text = shlex.join(words)
    return tuple(
        one
        for one in dict.fromkeys(scope.unresolved)
        if one[0] == line or one[1] in text or not one[1].startswith("$")
    )


def _with_environment(server: Server, given: Mapping[str, str]) -> Server:
    """A server with its engine's variables: those that change memory before the command, all of them listed."""
    engines = {name: value for name, value in given.items() if _OF_ENGINES.fullmatch(name)}
    engines.pop("VLLM_ADDITIONAL_ARGS", None)
    written = tuple(f"{name}={value}" for name, value in engines.items() if _OF_MEMORY.fullmatch(name))
    return replace(_seeing(server, given), words=(*written, *server.words), environment=engines)


def _seeing(server: Server, given: Mapping[str, str]) -> Server:
    """A server with as many devices as a variable lets it see, of its own or before its command."""
    before = dict(word.split("=", 1) for word in server.words if _SET.fullmatch(word))
    seen = next((given.get(name) or before.get(name) for name in SEEN if name in {*given, *before}), None)
    if not seen or not re.fullmatch(r"[\w:.-]+(?:,[\w:.-]+)*", seen) or seen in {"all", "none", "void"}:
        return server
    resources, number = server.resources, len(seen.split(","))
    if resources.gpus is not None and resources.gpus <= number:
        return server
    return replace(server, resources=replace(resources, gpus=number))


def lines_of(found: Sequence[Unresolved]) -> Iterator[str]:
    """What is not resolved, a line each."""
    return (f"line {line}: {text}" for line, text in sorted(found))
