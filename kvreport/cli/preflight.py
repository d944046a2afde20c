"""``kvreport preflight``: every server of a deployment file, answered as ``kvreport estimate`` answers its command."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import SEEK_END, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.catalog.accelerator import CONTEXT_BYTES
from kvreport.catalog.server_flags import flag_names
from kvreport.cli.deploy import host_bytes
from kvreport.cli.output import REQUIREMENT_NOT_MET, paint, plain, write, write_json
from kvreport.errors import InputError, ServerRefusalError, shorten
from kvreport.units import count, gib

if TYPE_CHECKING:
    from kvreport.catalog.accelerator import Accelerator
    from kvreport.catalog.load import Catalog
    from kvreport.deployments.found import Server
    from kvreport.estimation import Estimate

STARTS: Final = frozenset({"fits", "tight", "may_fit"})
PASTED: Final = "pasted"
_GIVEN_UP: Final = "engine_does_not_run"
_OVER_ALL: Final = frozenset({"llama-cpp", "ollama"})
NO_GPUS: Final = ("google.com/", "aws.amazon.com/", "huawei.com/")
"""Beginnings of the names of resources that are other devices than GPUs."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One server of a file with its answer."""

    source: str
    server: Server
    estimate: Estimate | None  # Its answer; None where its command or its GPU could not be read.
    gpu: str  # The accelerator that was answered for; empty without one.
    verdict: str | None  # The verdict of its launch; None without an answer.
    reason: str  # Why it does not start or was not answered; empty where it starts.
    notes: tuple[str, ...]  # What the reader of the command said.

    @property
    def requests(self) -> int | None:
        """Requests at once of all replicas; None without an answer."""
        if self.estimate is None or self.server.replicas is None:
            return None if self.estimate is None else self._each
        return self._each * self.server.replicas

    @property
    def _each(self) -> int:
        return (
            self.estimate.max_concurrent_requests
            if self.estimate is not None and self.verdict in STARTS
            else 0
        )


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.deployments.found import find_servers

    catalog = open_catalog(options.data)
    if options.require is not None and options.require < 1:
        raise InputError(f"require: found {options.require}; allowed: a whole number of at least 1")
    if options.gpu:
        catalog.accelerator(options.gpu)
    answers, lists = [], {}
    for name in options.file:
        servers, left = find_servers(_content(name), name, starts_server, _beside(name))
        lists[name] = left
        answers += all_answered(name, servers, options.gpu, catalog)
    if options.format == "json":
        write_json([to_dict(one) for one in answers])
    elif answers:
        print("\n".join(text(answers, options.require)))
    shown = {one.source for one in answers}
    for name, left in lists.items():
        for place, said in left:
            write(f"kvreport: {name}, line {place}: {said}", stream=sys.stderr)
        if answers and name not in shown:
            write(f"kvreport: {name}: no server that is known in this file", stream=sys.stderr)
    if not answers:
        raise InputError(
            f"{', '.join(options.file)}: no server that is known in this file: found no start command of one; allowed: compose, Kubernetes, KServe, LeaderWorkerSet, llm-d, "
            "Dynamo and Helm files, systemd units, shell scripts"
        )
    return _status(answers, options.require)


def answer(given: Mapping[str, str], catalog: Catalog | None = None) -> str:
    """Return the lines that ``kvreport preflight`` prints of a pasted file, as ``{"result": [...]}``, or ``{"error": sentence}``."""
    from kvreport.catalog.load import open_catalog
    from kvreport.deployments.found import find_servers

    known = open_catalog() if catalog is None else catalog
    try:
        servers, left = find_servers(given["log"], PASTED, starts_server)
        told = text(all_answered(PASTED, servers, given.get("gpu") or None, known), None)
    except InputError as error:
        return json.dumps({"error": str(error)})
    told += [plain(f"line {line}: {said}") for line, said in left]
    return json.dumps(
        {"result": told or ["No server that is known in this file: no start command of one was found."]}
    )


def _beside(name: str) -> Callable[[str], str | None]:
    """Reads a file that another names by its relative path; of standard input there is none."""

    def text(path: str) -> str | None:
        other = Path(name).parent / path
        return (
            _content(str(other)) if name != "-" and not Path(path).is_absolute() and other.is_file() else None
        )

    return text


def _content(name: str) -> str:
    from kvreport.budgets import DEPLOYMENT

    if name == "-":
        data = sys.stdin.buffer.read(DEPLOYMENT.bytes + 1)
    else:
        if any(one.isspace() for one in name.strip()) and not Path(name).exists():
            raise InputError(
                f"file: found {shorten(name)}, which is no file; allowed: deployment files. A start command is answered by "
                "kvreport estimate, as in: kvreport estimate vllm serve MODEL --gpu GPU"
            )
        with Path(name).open("rb") as file:
            data = file.read(DEPLOYMENT.bytes + 1)
    if len(data) > DEPLOYMENT.bytes:
        raise InputError(f"{name}: found more than {DEPLOYMENT.bytes:,} bytes; allowed: a deployment file")
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _status(answers: Sequence[Answered], required: int | None) -> int:
    status = 0
    for one in answers:
        if one.verdict is None:
            status = status or 2
        elif one.verdict not in STARTS or (required is not None and (one.requests or 0) < required):
            status = REQUIREMENT_NOT_MET
    return status


def starts_server(words: Sequence[str]) -> bool:
    """Whether the reader of start commands finds one in some words."""
    from kvreport.cli.server_command import without_server_command

    with redirect_stderr(StringIO()):
        try:
            return without_server_command(words) != list(words)
        except InputError:
            return True


def all_answered(source: str, servers: Sequence[Server], gpu: str | None, catalog: Catalog) -> list[Answered]:
    """Answer the servers of one file; one that is given the GPU of earlier ones finds what they leave of it."""
    made: list[Answered] = []
    for server in servers:
        one = answered(source, server, gpu, catalog)
        others = [
            other
            for other in made
            if other.verdict in STARTS and other.server.resources.meets(server.resources)
        ]
        taken = [_taken(other) for other in others]
        if others and one.verdict in STARTS:
            held = None if None in taken else sum(size for size in taken if size is not None)
            said = f"it is given a GPU of {' and '.join(other.server.name for other in others)}"
            if held is None:
                said = f"{said}, whose memory is not known; this is the answer without it"
            else:
                one = answered(source, server, gpu, catalog, held)
                said = f"{said}, which hold{'s' * (len(others) == 1)} {gib(held)} GiB of it"
            one = replace(one, reason=one.reason and f"{said}: {one.reason}", notes=(*one.notes, said))
        made.append(one)
    return made


def _taken(one: Answered) -> int | None:
    """Bytes that a server holds of each of its GPUs; None for those whose answers have no budget."""
    budget = getattr(one.estimate, "budget", None)
    return None if budget is None else budget.requested_bytes + CONTEXT_BYTES


def answered(source: str, server: Server, gpu: str | None, catalog: Catalog, held_bytes: int = 0) -> Answered:
    """Answer one server by its command, on the GPU that its file or the caller names, of which others hold some bytes."""
    from kvreport.deployments.devices import device_of, refusal_of_image

    notes = StringIO()
    device, said = device_of(server.resources, gpu, catalog)
    reason, result, verdict = said, None, None
    if not server.words:
        device, reason = None, "the file does not say which program its image starts"
    if device is not None and (said := refusal_of_image(server.image, device, catalog)):
        device, reason = None, said
    tried = server
    while device is not None and result is None:
        try:
            with redirect_stderr(notes):
                result = _estimate(tried, device, catalog, held_bytes)
            reason = ""
        except InputError as error:
            reason = " ".join(str(error).split())
            if isinstance(error, ServerRefusalError):
                verdict = _GIVEN_UP
                break
            tried, left = _without_open(tried)
            for line, text in server.unresolved if not left else ():
                if text in reason:
                    reason = f"line {line}: {text} has no value in the file: {reason}"
                    break
            if not left:
                break
            notes = StringIO(f"kvreport: answered without what has no value in the file: {', '.join(left)}\n")
            notes.seek(0, SEEK_END)
    if result is not None:
        reason = _shortage(server, result)
        verdict = _GIVEN_UP if reason else result.verdict
    lines = tuple(line.removeprefix("kvreport: ") for line in notes.getvalue().splitlines())
    shown = "" if device is None else _name(device)
    lines += () if result is None else tuple(map(str, result.request.not_followed))
    return Answered(source, server, result, shown, verdict, reason, (*lines, *_hints(server, result)))


def _name(device: str | Accelerator) -> str:
    return device if isinstance(device, str) else device.id


def _without_open(server: Server) -> tuple[Server, list[str]]:
    """A server without the flags and words that have no value in its file, and these; its model stays."""
    kept, left, opened = list[str](), list[str](), [text for _, text in server.unresolved]
    for word in server.words:
        if not kept or not any(text in word for text in opened) or not any(one[0] == "-" for one in kept[1:]):
            kept.append(word)
        elif kept[-1].startswith("--model"):
            return server, []
        else:
            flag = kept.pop() if kept[-1].startswith("-") and "=" not in kept[-1] + word[:2] else ""
            left.append(shorten(f"{flag} {word}".strip()))
    return replace(server, words=tuple(kept)), left


def _estimate(server: Server, device: str | Accelerator, catalog: Catalog, held_bytes: int) -> Estimate:
    from kvreport.cli import parser
    from kvreport.cli.query_options import query_values, with_unfollowed
    from kvreport.deployments.found import SEEN
    from kvreport.estimation import estimate

    # What a server sees of its devices is judged by the file's.
    words = ["estimate", *(word for word in server.words if word.partition("=")[0] not in SEEN)]
    named = _name(device)
    given = {word.partition("=")[0].replace("_", "-") for word in server.words}
    more = ["--gpu", named]
    names = flag_names("vllm")
    if server.nodes > 1 and not given & {"--nodes", names["nodes"], names["data_parallel_size_local"]}:
        more += ["--nodes", str(server.nodes)]
    options = parser().parse_args([*words, *more])
    values: dict[str, Any] = query_values(options) | {"gpu": device}
    values |= {"held_by_others": held_bytes} if held_bytes else {}
    if (
        options.engine and options.engine[0] in _OVER_ALL
    ):  # these divide a model over every device that they see
        values |= {"gpu": [device] * server.resources.gpus} if server.resources.gpus else {}
        values |= (
            {"host_memory": server.resources.host_memory_bytes} if server.resources.host_memory_bytes else {}
        )
    return with_unfollowed(estimate(_model(options.model), catalog=catalog, **values), options)


def _model(name: str) -> str:
    """A model as the catalog may know it: a path that is not here by the name of its folder, as in ``models--ORG--NAME``."""
    if not name.startswith(("/", "./", "../", "~", "$")) or "/" not in name or Path(name).exists():
        return name
    parts = [part for part in name.split("/") if part]
    cached = next((part for part in parts if part.startswith("models--")), "")
    heard = cached.removeprefix("models--").replace("--", "/", 1) or parts[-1]
    print(f"kvreport: {name} is not here: read by its name, {heard}", file=sys.stderr)
    return heard


def _shortage(server: Server, result: Estimate) -> str:
    """What of its node a server takes more of than it gets; empty where nothing."""
    have = server.resources.gpus
    names = flag_names("sglang")
    copies = next(
        (one.value for one in result.request.not_followed if one.flag == names["data_parallel"]), ""
    )
    needs = result.request.layout.devices * (int(copies) if copies.isdigit() else 1)
    if have is not None and needs > have * server.nodes:
        return f"needs {needs} GPUs, and the file gives {have * server.nodes}"
    limit, host = server.resources.host_memory_bytes, host_bytes(result.to_dict()["host_bytes"])
    if limit is not None and host > limit * server.nodes:
        return f"needs {gib(host)} GiB of host memory, and the limit is {gib(limit * server.nodes)} GiB"
    shared, given = result.shared_memory_bytes, server.resources.shm_bytes
    if given is not None and shared > given and not server.resources.host_ipc:
        return (
            f"needs {gib(shared)} GiB of /dev/shm for evicted KV blocks, and the file gives {gib(given)} GiB"
        )
    return ""


def _hints(server: Server, result: Estimate | None) -> list[str]:
    resources = server.resources
    if (
        result is None
        or resources.shm_bytes
        or resources.host_ipc
        or server.kind in {"systemd", "helm", "dynamo", "llm-d"}
    ):
        return []
    if result.request.layout.devices // result.request.layout.nodes < 2 or (
        server.kind == "script" and not server.image
    ):
        return []
    return [
        "shared memory is not stated: containers get 64 MiB, and GPUs of one container exchange data through it"
    ]


def to_dict(one: Answered) -> dict[str, Any]:
    """An answer as it is published: sizes in bytes, per GPU where the name says it."""
    server, result, resources = one.server, one.estimate, one.server.resources
    told: dict[str, Any] = {} if result is None else result.to_dict()
    layout = told.get("layout") or {}
    return {
        "source": one.source,
        "line": server.line,
        "name": server.name or None,
        "kind": server.kind,
        "engine": told.get("engine"),
        "engine_version": told.get("engine_version"),
        "command": shlex.join(server.words),
        "launch": {
            "model": told.get("model"),
            "image": server.image or None,
            "gpu": one.gpu or None,
            "gpus_per_node": resources.gpus,
            "gpus": layout.get("gpus"),
            "nodes": server.nodes,
            "replicas": server.replicas,
            "context_tokens": told.get("context_tokens"),
            "max_seqs": told.get("max_seqs"),
            "host_memory_bytes": resources.host_memory_bytes,
            "shm_bytes": resources.shm_bytes,
            "environment": dict(server.environment),
        },
        "verdict": one.verdict,
        "reason": one.reason or None,
        "max_concurrent_requests": one.requests,
        "max_concurrent_requests_per_replica": None if result is None else one._each,  # noqa: SLF001 - its own
        "weight_bytes_per_gpu": told.get("weight_bytes_per_gpu"),
        "kv_pool_tokens": told.get("kv_pool_tokens"),
        "shortfall_bytes": told.get("shortfall_bytes"),
        "unresolved": [{"line": line, "text": said} for line, said in server.unresolved],
        "notes": list(one.notes),
    }


def _start_of(estimate: Estimate, verdict: str) -> str:
    """Whether a server starts; empty where its engine may start with a pool of less than one request."""
    from kvreport.accounting.engines.by_family import rules

    if verdict in STARTS:
        return "May start: " if verdict == "may_fit" else "Starts: "
    return "Does not start: " if rules(estimate.request.engine).needs_one_request else ""


def text(answers: Sequence[Answered], required: int | None) -> list[str]:
    """Lay answers out: where each server stands, its command, whether it starts, what is not resolved."""
    from kvreport.deployments.found import lines_of
    from kvreport.estimation.conclusion import headline

    lines: list[str] = []
    for one in answers:
        server, resources = one.server, one.server.resources
        unit = (
            resources.asks if resources.asks.startswith(NO_GPUS) else "GPU" if resources.gpus == 1 else "GPUs"
        )
        given = [
            f"{resources.gpus} {unit}" if resources.gpus else "",
            f"{server.nodes} nodes" if server.nodes > 1 else "",
            "replicas not stated"
            if server.replicas is None
            else f"{server.replicas} replicas"
            if server.replicas != 1
            else "",
            f"host memory {gib(resources.host_memory_bytes)} GiB" if resources.host_memory_bytes else "",
            f"shm {gib(resources.shm_bytes)} GiB" if resources.shm_bytes else "",
        ]
        lines.append(
            plain(f"{one.source}, line {server.line}: {' '.join(filter(None, (server.kind, server.name)))}")
        )
        lines.append(plain(f"  {shlex.join(server.words)}"))
        if any(given):
            lines.append(f"  {', '.join(filter(None, given))}")
        if one.estimate is None or (one.reason and one.verdict == _GIVEN_UP):
            said, role = f"  {'Does not start' if one.verdict else 'Not answered'}: {one.reason}", "bad"
        else:
            said, role = (
                f"  {_start_of(one.estimate, one.verdict or '')}{headline(one.estimate)}",
                {"fits": "good", "tight": "warning", "may_fit": "warning"}.get(one.verdict or "", "bad"),
            )
        lines.append(paint(plain(said), role))
        if one.requests is not None and (server.replicas or 1) > 1:
            lines.append(f"  {count(one.requests)} requests at once on {server.replicas} replicas")
        if required is not None and one.requests is not None and one.requests < required:
            lines.append(
                f"  Requirement not met: {count(one.requests)} of {count(required)} requests run at once"
            )
        lines += [plain(f"  Not resolved, {said}") for said in lines_of(server.unresolved)]
        lines += [plain(f"  Note: {note}") for note in one.notes]
        lines.append("")
    return lines
