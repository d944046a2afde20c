"""``--as KIND``: an answer as a deployment file."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kvreport.catalog.server_flags import dashed, flag_names
from kvreport.cli.flag_effects import PASSED_ON
from kvreport.errors import InputError
from kvreport.words import ENGINES

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.deployments.written import Deployed
    from kvreport.estimation import Estimate

KINDS: Final = ("command", "compose", "kubernetes", "kserve", "lws", "llm-d", "dynamo", "helm", "systemd")
"""Kinds that are offered; a test compares them with those that are written."""
DISK_RATE: Final = "1GB"
_RESOURCES: Final = {
    "NVIDIA": ("nvidia.com/gpu", "nvidia.com/gpu.product"),
    "AMD": ("amd.com/gpu", "amd.com/gpu.product-name"),
}


def add_as_option(command: argparse.ArgumentParser) -> None:
    """Add ``--as`` and what it takes."""
    command.add_argument(
        "--as", dest="as_kind", choices=KINDS, help="print a deployment file of this kind instead"
    )
    command.add_argument(PASSED_ON, default="[]", help=argparse.SUPPRESS)
    command.add_argument(
        "--disk-rate",
        metavar="RATE",
        help=f"bytes per second at which a deployed server reads weights, with --as ({DISK_RATE})",
    )


def check_as(options: argparse.Namespace) -> None:
    """Refuse what only a deployment file takes, where none is printed.

    Raises:
        InputError: If there is a disk rate and no ``--as``.
    """
    if options.disk_rate is not None and not options.as_kind:
        raise InputError(f"disk-rate: found without --as; allowed: --as {'|'.join(KINDS)}")


def launch_of(result: Estimate, catalog: Catalog, *, replicas: int, disk_rate: str | None) -> Deployed:
    """What ``--as`` writes of an answer.

    Raises:
        InputError: If no command of the engine is known, or the devices are of several kinds.
    """
    from kvreport.deployments.devices import device_of_label
    from kvreport.deployments.written import SERVING, Deployed
    from kvreport.estimation.commands import adapters_note, checkpoint_note, served_by
    from kvreport.estimation.hardware import parsed
    from kvreport.units import parse_bytes

    request, told = result.request, result.to_dict()
    family, device, layout = request.engine.family, request.accelerators[0], request.layout
    if len({one.id for one in request.accelerators}) > 1:
        raise InputError(
            "as: found GPUs of several kinds; allowed: one kind, because no file says which process runs on which"
        )
    command = result.command
    if not command or family not in SERVING:
        raise InputError(
            f"as: found {request.engine.label}; allowed: vLLM, SGLang and llama.cpp, whose start commands are read back"
        )
    words = shlex.split(str(command))
    environment: dict[str, str] = {}
    while words and (found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)):
        environment[found[1]] = found[2]
        words.pop(0)
    resource, key = _RESOURCES.get(device.vendor, ("", ""))
    label = re.sub(r"\s*\(.*?\)", "", device.name)
    value = re.sub(r"[ /]+", "-", label if label.startswith(device.vendor) else f"{device.vendor} {label}")
    try:
        labels = (key, value) if key and device_of_label(value, catalog) == device.id else ()
    except InputError:
        labels = ()
    devices = layout.devices if not result.at_home else len(request.accelerators)
    serving = SERVING[family]
    image = serving.images.get(device.vendor, "").format(request.engine.version)
    return Deployed(
        name=_resource_name(request.model.id),
        serving=serving,
        engine=f"{ENGINES.get(family, request.engine.label)} {request.engine.version}",
        words=tuple(words),
        environment=environment,
        image=image,
        model=request.model.id,
        resource=resource,
        label=labels,
        gpus=max(devices // layout.nodes, 1),
        nodes=layout.nodes,
        replicas=replicas,
        weight_bytes=int(told["weight_bytes_per_gpu"]) * max(devices // layout.nodes, 1),
        host_bytes=-(-host_bytes(told["host_bytes"], most=True) // layout.nodes),
        offload_shm_bytes=result.shared_memory_bytes,
        requests=result.max_concurrent_requests,
        context_tokens=request.context_tokens,
        pool_tokens=told.get("kv_pool_tokens"),
        max_seqs=told.get("max_seqs"),
        pool_full=result.max_concurrent_requests_by_memory <= result.max_concurrent_requests,
        needs="" if result.at_home else checkpoint_note(served_by(result)) or adapters_note(result) or "",
        disk_rate=parsed("disk-rate", parse_bytes, DISK_RATE if disk_rate is None else disk_rate),
    )


def as_pasted(launch: Deployed, name: str, passed_on: str) -> Deployed:
    """A launch with what a pasted command says and no answer depends on: the model's own name, and flags without memory.

    Where a server listens, and what its nodes are called, the file says itself.
    """
    from kvreport.architectures.hub import is_repository_id
    from kvreport.deployments.written import ADDRESS

    words = list(launch.words)
    if is_repository_id(name) and launch.model in words:
        words[words.index(launch.model)] = name
        launch = replace(launch, model=name, name=_resource_name(name))
    own = {
        dashed(word.partition("=")[0]) for word in (*words, *launch.serving.rank, *launch.serving.follower)
    }
    own |= {*ADDRESS, flag_names("vllm")["nodes"]}
    passed = (one for one in json.loads(passed_on) if dashed(one[0].partition("=")[0]) not in own)
    return replace(launch, words=(*words, *(word for one in passed for word in one)))


def _resource_name(model: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:50]


def host_bytes(told: Mapping[str, int], *, most: bool = False) -> int:
    """Host memory of an answer for weights, caches and computing; at most with caches that grow as they are used."""
    if "total" not in told:
        return sum(told.values())
    return told["total"] + (told["prompt_cache_max"] + told["checkpoints_max"] if most else 0)


def with_requests(result: Estimate, values: Mapping[str, Any], ask: Callable[[int], Estimate]) -> Estimate:
    """The answer with ``max_num_seqs`` as many as fit, where the question states none: the file states it."""
    if result.at_home or "max_seqs" in values or result.max_concurrent_requests < 1:
        return result
    told = ask(result.max_concurrent_requests)
    for _ in range(3):  # fewer rows need fewer graphs, and leave more for the pool
        if told.max_concurrent_requests_by_memory <= told.max_concurrent_requests:
            break
        told = ask(told.max_concurrent_requests_by_memory)
    return told
