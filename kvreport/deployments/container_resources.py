"""What a container gets: GPUs by the names that device plugins give them, host memory, shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kvreport.deployments.yaml_documents import Map, Seq
from kvreport.errors import InputError
from kvreport.units import MIB, parse_bytes

_DEVICE: Final = re.compile(
    r"(?:nvidia\.com/gpu(?:\.shared)?|amd\.com/gpu|gpu\.intel\.com/(?:xe|i915)|intel\.com/gpu|habana\.ai/gaudi|"
    r"google\.com/tpu|aws\.amazon\.com/neuron(?:core|device)?|huawei\.com/Ascend\w+|gpu)"
)
"""Resource names of the vendors' Kubernetes device plugins, and Dynamo's ``gpu``."""
_MIG: Final = re.compile(r"nvidia\.com/mig-(?P<slice>[1-7]g\.\d+gb)(?:\.me)?")
_PRODUCT: Final = re.compile(
    r"nvidia\.com/gpu\.product|(?:beta\.)?amd\.com/gpu\.product-name|cloud\.google\.com/gke-accelerator|gpu\.nvidia\.com/(?:model|class)|"
    r"karpenter\.k8s\.aws/instance-gpu-name|k8s\.amazonaws\.com/accelerator|accelerator"
)
"""Node labels that name a device: NVIDIA's and AMD's feature discovery, GKE, CoreWeave, Karpenter, EKS."""
VENDORS: Final = {
    "nvidia.com": "NVIDIA", "amd.com": "AMD", "gpu.intel.com": "Intel", "intel.com": "Intel", "habana.ai": "Intel", "google.com": "Google",
    "aws.amazon.com": "AWS", "huawei.com": "Huawei",
}  # fmt: skip
"""Whose devices the names of resources are."""
DYNAMO: Final = {
    "1.6.1": ("0.31.0", "0.5.21"), "1.6.0": ("0.31.0", "0.5.21"), "1.5.1": ("0.28.0", "0.5.18"), "1.5.0": ("0.28.0", "0.5.18"),
    "1.4.2": ("0.26.0", "0.5.16"), "1.4.1": ("0.26.0", "0.5.16"), "1.4.0": ("0.26.0", "0.5.16"), "1.3.1": ("0.23.0", "0.5.14"),
    "1.2.1": ("0.20.1", "0.5.11"), "1.1.1": ("0.19.0", "0.5.10.post1"), "1.0.2": ("0.16.0", "0.5.9"),
}  # fmt: skip
"""Releases of Dynamo, and those of vLLM and SGLang that they bring (extras of the package ``ai-dynamo``)."""
_SHARED: Final = "/dev/shm"  # noqa: S108 - a path in a container, where nothing is written
_SUFFIXES: Final = {
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}


@dataclass(frozen=True, slots=True)
class Resources:
    """What one container gets on one node."""

    gpus: int | None = None  # Devices; None where the file does not say, or says all.
    gpu: str = ""  # The product that node labels name; empty where none does.
    slice: str = ""  # The MIG profile of each device; empty for whole ones.
    share_bytes: int | None = None  # Memory of a device where a sharing plugin (HAMi) gives a part of it.
    host_memory_bytes: int | None = None  # The limit of host memory; None without one.
    shm_bytes: int | None = None  # Shared memory; None where it is not stated.
    host_ipc: bool = False  # Whether the host's shared memory is used.
    # The resource that it asks for, even where the number has no value in the file; empty for none.
    asks: str = ""
    # The host's devices by number, of a service that stands beside others on one host; ``all`` for every one.
    devices: frozenset[str] = frozenset()

    def meets(self, other: Resources) -> bool:
        """Whether a device of the host is given to both."""
        either = self.devices | other.devices
        return bool(self.devices & other.devices or ("all" in either and self.devices and other.devices))


def quantity(text: str, *, binary: bool = False) -> int | None:
    """Bytes of a size of Kubernetes (``64Gi``, ``30G``) or, in binary, of Compose and systemd (``16gb``, ``64G``); None for another text."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?(b?)", text.strip().lower())
    if found is None:
        return None
    letters = found[2] or ""
    factor = _SUFFIXES.get(letters[:1] + "i" if binary and letters else letters, 1)
    try:
        return parse_bytes(int(float(found[1]) * factor))
    except InputError:
        return None


def whole(text: str) -> int | None:
    """A count that is written out; None for another text."""
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def of_container(container: Map, pod: Map, beside: tuple[Map, ...] = ()) -> Resources:
    """What a container of a pod gets.

    Args:
        container: The container.
        pod: The pod's specification: volumes, node selector, affinity.
        beside: Further mappings of resources, as some custom resources have them next to the container.
    """
    named: dict[str, str] = {}
    for resources in (container.map("resources"), *beside):
        asked = [resources.map(*path) for key in ("requests", "limits") for path in ((key,), (key, "custom"))]
        for part in (*asked, resources):
            named |= {key: value for key, value in part.items() if isinstance(value, str)}
    gpus, slice_, asks = None, "", ""
    for key, value in named.items():
        asks = key if _DEVICE.fullmatch(key) or _MIG.fullmatch(key) else asks
        if mig := _MIG.fullmatch(key):
            gpus, slice_ = whole(value), mig["slice"]
        elif _DEVICE.fullmatch(key):
            gpus = whole(value)
    share = whole(named.get("nvidia.com/gpumem", ""))
    volumes = {one.text("name"): one for one in pod.maps("volumes")}
    mounted = [one.text("name") for one in container.maps("volumeMounts") if one.text("mountPath") == _SHARED]
    shared = [volumes[name] for name in (*mounted, "shm", "dshm") if name in volumes]
    shm = shared[0].text("emptyDir", "sizeLimit") if shared else ""
    ipc = pod.text("hostIPC") == "true" or bool(mounted)
    memory = quantity(named.get("memory", ""))
    bytes_ = None if share is None else share * MIB
    return Resources(gpus, product(pod), slice_, bytes_, memory, quantity(shm), ipc, asks)


def product(pod: Map) -> str:
    """The device that a pod's node labels name; empty where they name none, or several."""
    found = dict.fromkeys(value for key, value in _labels(pod) if _PRODUCT.fullmatch(key))
    return next(iter(found)) if len(found) == 1 else ""


def _labels(value: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    if isinstance(value, Map) and depth < 12:
        key, values = value.text("key"), value.at("values")
        if key and value.text("operator") == "In" and isinstance(values, Seq):
            yield from ((key, one) for one in values if isinstance(one, str))
        for name, one in value.items():
            if isinstance(one, str) and depth <= 2:
                yield name, one
            elif name in {
                "nodeSelector", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms",
                "matchExpressions",
            }:  # fmt: skip
                yield from _labels(one, depth + 1)
    elif isinstance(value, Seq):
        for one in value:
            yield from _labels(one, depth + 1)


def of_service(service: Map, environment: Mapping[str, str]) -> Resources:
    """What a service of a compose file gets (Compose specification, chapters Services and Deploy).

    So many devices are the first ones (moby ``daemon/nvidia_linux.go::countToDevices``). ``environment``: its variables.
    """
    gpus: int | None = None
    named: set[str] = set()
    devices = [*service.maps("deploy", "resources", "reservations", "devices"), *service.maps("gpus")]
    for device in devices:
        ids = device.at("device_ids")
        if isinstance(ids, list) and ids:
            listed = {number for one in ids if isinstance(one, str) for number in one.split(",")}
            gpus = len(listed)
        else:
            gpus = whole(device.text("count"))
            listed = {"all"} if gpus is None else set(map(str, range(gpus)))
        named |= listed
    if gpus is None and service.text("gpus"):
        gpus = whole(service.text("gpus"))
        named |= {"all"} if gpus is None else set(map(str, range(gpus)))
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible and not devices:
        named = set(visible.split(","))
        gpus = None if "all" in named else len(named)
    limit = service.text("mem_limit") or service.text("deploy", "resources", "limits", "memory")
    return Resources(
        gpus=gpus,
        host_memory_bytes=quantity(limit, binary=True),
        shm_bytes=quantity(service.text("shm_size"), binary=True),
        host_ipc=service.text("ipc") == "host",
        devices=frozenset(named),
    )


def of_docker_run(words: tuple[str, ...]) -> Resources:
    """What the options of ``docker run`` give."""
    told: dict[str, str] = {}
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in {"--gpus", "--shm-size", "--memory", "-m", "--ipc"} and name not in told:
            told[name] = value if sign else next(iter(words[place + 1 : place + 2]), "")
    gpus = told.get("--gpus", "").strip("'\"")
    listed = gpus.removeprefix("device=").split(",") if gpus.startswith("device=") else []
    return Resources(
        gpus=len(listed) if listed else whole(gpus),
        host_memory_bytes=quantity(told.get("--memory") or "", binary=True),
        shm_bytes=quantity(told.get("--shm-size", ""), binary=True),
        host_ipc=told.get("--ipc") == "host",
    )
