"""Where a question runs: its accelerators, its layout over them, and the machines that they stand in.

``assumed`` collects what an answer takes for granted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvreport.accounting.all_to_all import MORI_HEAP_BYTES
from kvreport.accounting.parallel import MOST_RANKS, Layout
from kvreport.catalog import cloud_instances
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError, shorten
from kvreport.query import Query
from kvreport.resources import read_table
from kvreport.units import GIB, human_bytes, parse_bytes

ONE_MACHINE: Final[dict[str, str]] = read_table("engines of one machine")
"""Engines whose starts are computed on one machine, and what several would take."""

LEAST_MEMORY: Final = 1 << 30
"""The least memory of a device that a question may set."""

MOST_TIMES: Final = 4
"""How many times its memory a card may have that somebody modified; of those that are sold, none has more than twice (RTX 3080 20 GB
and RTX 4090 48 GB of ``home/machines.yaml``)."""

BEST: Final = "best"
"""Asks for the pipeline partition that holds the most requests."""


_BEFORE: Final = re.compile(r"([0-9]{1,3})(?: ?[x×*] ?| (?=[a-z]|[0-9]{4}))(.+)", re.IGNORECASE)
_AFTER: Final = re.compile(
    r"(.+?)(?: ?[*×] ?([^*×]*)| x ?([0-9]{1,4})|(?<!\br)(?<!gf|rt|gt)(?<!\bn)x([0-9]{1,3}))", re.IGNORECASE
)
"""How many of an accelerator: ``2x4090``, ``8 × H100``, ``8 H100``; ``H100*8``, ``H100x8``, ``4090 x2``. An x of a name is no sign:
``7900 XTX``, ``RTX 4090``, ``gfx942``, ``Orin NX 16``."""

_JOINED: Final = re.compile(r"\+(?!(?<=max\+) ?[0-9]{3}(?![0-9]))", re.IGNORECASE)
"""Between accelerators; ``Max+ 395`` is one name."""


def listed(asked: object) -> list[tuple[str | Accelerator, int]]:
    """The accelerators that a question names, each with how many of it.

    ``"H100*8"``, ``"8xH100"``, ``"8 × H100"`` and ``"p5.48xlarge"`` are eight; ``"rtx-5090*2+rtx-3090"`` are three.

    Raises:
        InputError: If none is named, or a number is none of 1 to 1,024.
    """
    found: list[tuple[str | Accelerator, int]] = []
    for each in asked if isinstance(asked, list | tuple) else [asked]:
        if isinstance(each, Accelerator):
            found.append((each, 1))
            continue
        found += [_numbered(part.strip()) for part in _JOINED.split(str(each or ""))]
    return found


def _numbered(text: str) -> tuple[str, int]:
    if not text:
        raise InputError("gpu: found none; allowed: an accelerator's name, such as H100")
    if instance := cloud_instances.published().get(cloud_instances.plain(text)):
        return instance
    if before := _BEFORE.fullmatch(text):
        number, name = before.groups()
    elif after := _AFTER.fullmatch(text):
        name, *numbers = after.groups()
        number = next((one for one in numbers if one is not None), "")
    else:
        return text, 1
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= MOST_RANKS):
        raise InputError(
            f"gpu: found {shorten(text)}; allowed: a name, or one with a number of devices from 1 to {MOST_RANKS:,}, "
            f"such as H100*8 or 8xH100"
        )
    gpu, each = cloud_instances.published().get(cloud_instances.plain(name), (name, 1))
    return gpu, each * int(number)


def _is_counted(asked: object) -> bool:
    """Whether a question says how many devices: ``1xH100`` is one, ``H100`` one of each that the layout needs."""
    named = [one for one in (asked if isinstance(asked, list | tuple) else [asked]) if isinstance(one, str)]
    return any(
        cloud_instances.plain(one) in cloud_instances.published()
        or any(form.fullmatch(one.strip()) for form in (_BEFORE, _AFTER))
        for one in named
    )


def devices_of(query: Query, catalog: Catalog) -> tuple[Accelerator, ...]:
    """The accelerators asked for, one for each device where several are named.

    Raises:
        InputError: If one is unknown, too many are named, or slices are to be joined.
    """
    found: list[Accelerator] = []
    for one, times in listed(query.gpu):
        found += [one if isinstance(one, Accelerator) else catalog.accelerator(one)] * times
    sliced = next((one for one in found if one.slice_of), None)
    if sliced is not None and (len(found) > 1 or _ranks(query) > 1):
        raise InputError(
            f"gpu: found {max(len(found), _ranks(query))} devices with {sliced.name}; allowed: one, because slices have no "
            f"link to each other, or {sliced.slice_of} whole"
        )
    if not found or len(found) > MOST_RANKS:
        raise InputError(f"gpu: found {len(found)} devices; allowed: 1 to {MOST_RANKS:,}")
    if query.memory is None:
        return tuple(found)
    size = parsed("memory", parse_bytes, query.memory)
    if size < LEAST_MEMORY:
        raise InputError(f"memory: found {size:,} bytes; allowed: at least 1 GiB, written like 80GiB")
    return tuple(_with_memory(one, size) for one in found)


def _with_memory(device: Accelerator, size: int) -> Accelerator:
    """The device with the memory that was asked for; with more than it is sold with, the name says so.

    Raises:
        InputError: If it cannot have so much: a computer and a slice no more than they have, a modified card
            :data:`MOST_TIMES` of it.
    """
    installed = max(device.memory.advertised.value, device.usable_bytes)
    if device.slice_of is not None:
        installed = -(-device.usable_bytes // GIB) * GIB
    fixed = device.is_unified or device.slice_of is not None
    most = installed if fixed else MOST_TIMES * installed
    if size > most:
        why = (
            "the memory that it has"
            if fixed
            else f"{MOST_TIMES} times the {human_bytes(installed)} that it is sold with"
        )
        raise InputError(
            f"memory: found {human_bytes(size)} for {device.name}; allowed: at most {human_bytes(most)}, {why}"
        )
    changed = device.with_usable(size)
    if size <= installed:
        return changed
    name = (
        f"{device.name} with {human_bytes(size)} instead of the {human_bytes(installed)} that it is sold with"
    )
    return changed.model_copy(update={"name": name})


def _ranks(query: Query) -> int:
    return (query.tensor_parallel or 1) * query.pipeline_parallel * query.data_parallel


def layout_of(query: Query, devices: int, assumed: list[str]) -> Layout:
    """The layout asked for; where GPUs are listed and nothing else is said, tensor parallel over all.

    Raises:
        InputError: If the devices named are not those of the layout.
    """
    tensor = query.tensor_parallel
    others = query.pipeline_parallel * query.data_parallel
    if tensor is None:
        tensor = devices // others if devices > 1 and devices % others == 0 else 1
        if devices > 1:
            assumed.append(f"tensor parallel {tensor}: the {devices} GPUs that were named")
    layout = Layout(
        tensor=tensor,
        pipeline=query.pipeline_parallel,
        data=query.data_parallel,
        expert=query.expert_parallel,
        decode_context=query.decode_context_parallel,
        nodes=query.nodes,
        partition=_partition(query.pipeline_partition),
        redundant_experts=query.num_redundant_experts,
        all_to_all=query.all2all_backend or "",
        whole_encoders=query.mm_encoder_tp_mode == "data",
        whole_dense=_whole_dense(query.moe_dense_tp_size, tensor * query.data_parallel),
        head_by_data_rank=query.enable_dp_lm_head,
    )
    if layout.all_to_all.startswith("mori") and layout.data > 1:
        heap = MORI_HEAP_BYTES // GIB
        assumed.append(f"MoRI's heap {heap} GiB: its default, which MORI_SHMEM_HEAP_SIZE changes")
    if (devices > 1 or _is_counted(query.gpu)) and layout.devices != devices:
        raise InputError(
            f"gpu: found {devices} device{'s' * (devices > 1)} for a layout of {layout.devices} "
            f"({layout.label}); allowed: a GPU without a number, or one --gpu for each of the {layout.devices}"
        )
    return layout


def _whole_dense(size: int | None, ranks: int) -> bool:
    """Whether dense MLPs are whole on each rank; SGLang divides them over all ranks or none (0.5.23, ``validation_hook.py``)."""
    if size not in {None, 1, ranks}:
        raise InputError(
            f"moe dense tp size: found {size}; allowed: 1, or the {ranks} tensor x data-parallel ranks"
        )
    return size == 1 < ranks


def in_machines(layout: Layout, device: Accelerator, assumed: list[str]) -> Layout:
    """The layout over as many machines as its devices need, where that was not stated."""
    nodes = -(-layout.devices // device.most_per_machine)
    if layout.nodes > 1 or nodes == 1 or layout.devices % nodes or (layout.data > 1 and layout.data % nodes):
        return layout
    assumed.append(f"nodes {nodes}: a machine holds {device.most_per_machine} of {device.name}")
    return replace(layout, nodes=nodes)


def refuse_unlinked(layout: Layout, devices: Sequence[Accelerator], network: int | str | None) -> None:
    """Refuse several nodes of devices without a link between machines, unless a network is stated.

    ``network``: the rate between servers that was asked for, in bytes per second; None if none was.

    Raises:
        InputError: If nothing is known to connect the nodes.
    """
    alone = next((device for device in devices if device.is_confined), None)
    if layout.nodes == 1 or network is not None or alone is None:
        return
    raise InputError(
        f"nodes: found {layout.nodes}, and {alone.name} has no stated link between machines; "
        f"allowed: 1 node of at most {alone.most_per_machine}, or "
        "--network-bandwidth for their network, such as 1.25GB (10 Gb/s)"
    )


def refuse_machines(devices: Sequence[Accelerator], layout: Layout, engine: Engine) -> None:
    """Refuse several machines for an engine that is computed on one.

    Cards are not judged: a rig holds as many as somebody put there, and a computer may have some next to its own chip.

    Raises:
        InputError: If the devices are those of several machines.
    """
    named = devices if len(devices) > 1 else [devices[0]] * layout.devices
    boards = [one for one in named if not one.is_card]
    least = min(boards, key=lambda one: one.most_per_machine, default=None)
    if least is not None and len(boards) > least.most_per_machine:
        held = f"{least.most_per_machine} of {least.name}"
        raise InputError(
            f"gpu: found {len(boards)} for {engine.label}, and one machine holds {held}: {ONE_MACHINE[engine.family]}; "
            "allowed: the devices of one machine"
        )
    mac = next((one for one in boards if one.vendor.lower() == "apple"), None)
    card = next((one for one in named if one.vendor.lower() != "apple"), None)
    if mac is not None and card is not None:
        # What drives other cards on a Mac since March 2026 (TinyGPU) is for tinygrad; CUDA and ROCm have no macOS.
        raise InputError(
            f"gpu: found {card.name} with {mac.name}, and {engine.label} computes on a Mac with Metal, on its own GPU alone; "
            "allowed: one of the two"
        )


def refuse_beyond_one_memory(
    field: str, devices: Sequence[Accelerator], taken_bytes: int, host_bytes: int
) -> None:
    """Refuse host memory that a device does not leave, where both are one memory.

    ``field``: the option that asks for it. ``taken_bytes``: what the engine takes of each device. ``host_bytes``: host
    memory for each device.

    Raises:
        InputError: If both together exceed the memory.
    """
    for device in devices:
        shared = device.shared_bytes
        if host_bytes and shared is not None and taken_bytes + host_bytes > shared:
            raise InputError(
                f"{field}: found {human_bytes(host_bytes)} for {device.name}, whose one memory of {human_bytes(shared)} also "
                f"holds the {human_bytes(taken_bytes)} that the engine takes; allowed: at most "
                f"{human_bytes(max(0, shared - taken_bytes))}, or a smaller share of the memory (--utilization)"
            )


def network_rate(
    query: Query, devices: Sequence[Accelerator], layout: Layout, assumed: list[str]
) -> int | None:
    """Bytes per second between nodes: as asked, else what the slowest device's own ports pass; None if not known.

    Raises:
        InputError: If the rate that was asked for cannot be read.
    """
    if query.network_bandwidth is not None:
        return parsed("network-bandwidth", parse_bytes, query.network_bandwidth)
    if layout.nodes == 1:
        return None
    ports = [(one.network_bytes_per_s, one.name) for one in devices]
    known = [(port.value, name) for port, name in ports if port is not None]
    if len(known) < len(ports):
        assumed.append(
            f"a network between {layout.nodes} nodes: its rate is not stated, so bounds of time leave it out "
            "(--network-bandwidth SIZE)"
        )
        return None
    rate, name = min(known)
    assumed.append(
        f"a network of {rate / 10**9:g} GB/s between {layout.nodes} nodes: the ports of {name} "
        "(--network-bandwidth SIZE)"
    )
    return rate


def _partition(text: str | None) -> tuple[int, ...]:
    """Layers of each stage as given; empty for the engine's own division, and where the best is asked for."""
    if text is None or text == BEST:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and len(part) < 5 for part in parts):
        raise InputError(
            f"pipeline-partition: found {shorten(text)}; allowed: the layers of each stage, such as 16,32, or {BEST}"
        )
    return tuple(int(part) for part in parts)


def parsed(name: str, parse: Callable[[str | int], int], value: str | int) -> int:
    """A number as text or as it is, under the name of its option.

    Raises:
        InputError: If it cannot be read.
    """
    try:
        return parse(value)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
