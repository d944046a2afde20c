"""Accelerators as drivers' own tools list them, as catalog records.

Read: ``nvidia-smi -q -x`` (XML), ``rocm-smi --json``, ``amd-smi static --json``, ``xpu-smi discovery -j`` and
``system_profiler -json``. Such a list comes from a machine that nobody here has seen: its size is bounded, entities of XML are refused, and what it does not
say is named in the record and never guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

from kvreport.catalog.accelerator import Accelerator, Figure, Memory
from kvreport.catalog.home_machines import GIB, MIB, HomeMachines
from kvreport.catalog.load import Catalog
from kvreport.catalog.shelf import validate
from kvreport.errors import InputError, shorten

MAX_BYTES: Final = 4 << 20
"""A list of 1,000 devices by ``nvidia-smi -q -x`` has less than that."""

ALLOWED: Final = (
    "the output of nvidia-smi -q -x, of rocm-smi --showproductname --showmeminfo vram --showmaxpower --json, of "
    "amd-smi static --json, of xpu-smi discovery -d 0 -j, or of system_profiler SPDisplaysDataType SPHardwareDataType -json"
)
_UNKNOWN: Final = {
    "compute_capability": "compute capability",
    "bandwidth_bytes_per_s": "memory bandwidth",
    "rates": "compute rates",
    "native_formats": "number formats",
    "release": "release",
}
"""Fields that no tool prints, by what they are called."""

_AMD_PARTS: Final = ("asic", "vram", "mem_usage", "limit")
_MISSING: Final = {
    "NVIDIA": "memory that is shared with the processor is stated with --memory",
    "Intel": "xpu-smi discovery prints it for one device, with -d 0",
    "AMD": "amd-smi prints it with static --vram or without a part",
}
"""What to ask for where a tool listed a device without its memory."""

_ALIKE: Final = 0.07
"""Memory that differs by less is the same card's: a driver shows up to 6.3 % less than is installed (a T4's 15,360 MiB)."""


class ListedDevice(NamedTuple):
    """One device as a tool lists it: bytes of memory in all and reserved, watts; None for what it does not say."""

    tool: str
    name: str
    vendor: str
    total: int | None
    reserved: int | None = None
    architecture: str | None = None
    capability: str | None = None
    watts: int | None = None
    pcie: str | None = None
    slices: int = 0


def records(text: str, catalog: Catalog) -> list[Accelerator]:
    """Return a record for each kind of device in a tool's output; the catalog has the figures that no tool prints.

    Raises:
        InputError: If this is the output of no such tool, or a device has no memory in it.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"found more than {MAX_BYTES:,} characters; allowed: {ALLOWED}")
    kinds = Counter(_nvidia(text) if text.lstrip()[:1] == "<" else _json(text))
    if not kinds:
        raise InputError(f"found no device; allowed: {ALLOWED}")
    return [_record(device, count, catalog) for device, count in kinds.items()]


def _number(said: object, unit: int = 1) -> int | None:
    found = re.match(r"\s*([0-9]{1,15})(?:\.[0-9]*)?\s*(KiB|MiB|GiB|GB)?", str(said), re.ASCII)
    if found is None or not int(found[1]):
        return None
    return int(found[1]) * {"KiB": 1024, "MiB": MIB, "GiB": GIB, "GB": GIB}.get(found[2] or "", unit)


def _nvidia(text: str) -> Iterator[ListedDevice]:
    if "<!ENTITY" in text:
        raise InputError("found an entity in XML; allowed: the output of nvidia-smi -q -x, which has none")
    try:
        root = ET.fromstring(text)  # noqa: S314 - entities are refused above, and expat reads no other file
    except (ET.ParseError, ValueError) as error:
        raise InputError(
            f"found XML that cannot be read ({shorten(str(error))}); allowed: {ALLOWED}"
        ) from error
    for gpu in root.iter("gpu"):
        memory = gpu.find("fb_memory_usage")
        link = gpu.find("pci/pci_gpu_link_info")
        generation, width = (
            None if link is None else _number(link.findtext(path, ""))
            for path in ("pcie_gen/max_link_gen", "link_widths/max_link_width")
        )
        watts = (gpu.findtext(f".//{name}") for name in ("default_power_limit", "max_power_limit"))
        yield ListedDevice(
            "nvidia-smi",
            gpu.findtext("product_name", ""),
            "NVIDIA",
            None if memory is None else _number(memory.findtext("total", ""), MIB),
            None if memory is None else _number(memory.findtext("reserved", ""), MIB),
            gpu.findtext("product_architecture") or None,
            watts=next((found for one in watts if (found := _number(one or ""))), None),
            pcie=f"Gen{generation} x{width}" if generation and width else None,
            slices=len(gpu.findall("mig_devices/mig_device")),
        )


def _json(text: str) -> Iterator[ListedDevice]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"found neither XML nor JSON; allowed: {ALLOWED}") from error
    if isinstance(found, list):
        found = {"gpu_data": found}
    if not isinstance(found, dict):
        raise InputError(f"found JSON that is no object; allowed: {ALLOWED}")
    for one in _objects(found.get("gpu_data", [])):
        yield _amd(one)
    listed = found.get("device_list", found.get("devices", [found] if "device_name" in found else []))
    for one in _objects(listed):
        yield ListedDevice(
            "xpu-smi", str(one.get("device_name", "")), "Intel",
            _number(one.get("memory_physical_size_byte")) or _number(one.get("memory_physical_size"), MIB),
            pcie=f"Gen{one['pcie_generation']} x{one['pcie_max_link_width']}"
            if {"pcie_generation", "pcie_max_link_width"} <= one.keys() else None,
        )  # fmt: skip
    hardware = next(_objects(found.get("SPHardwareDataType", [])), {})
    for one in _objects(found.get("SPDisplaysDataType", [])):
        yield ListedDevice(
            "system_profiler",
            str(one.get("sppci_model", "")),
            "Apple",
            _number(hardware.get("physical_memory")),
        )
    for key, one in found.items():
        if re.fullmatch(r"card[0-9]{1,4}", key) and isinstance(one, dict):
            yield ListedDevice(
                "rocm-smi", str(one.get("Card Series") or one.get("Card series") or ""), "AMD",
                _number(one.get("VRAM Total Memory (B)")), capability=str(one.get("GFX Version") or "") or None,
                watts=_number(one.get("Max Graphics Package Power (W)")),
            )  # fmt: skip


def _amd(one: Mapping[str, Any]) -> ListedDevice:
    """Return a device of ``amd-smi``, whose MB are of 2^20 bytes; ``metric`` has the memory in another place."""
    parts = {name: part if isinstance(part := one.get(name), dict) else {} for name in _AMD_PARTS}

    def said(part: str, key: str, unit: int = 1) -> int | None:
        value = parts[part].get(key)
        return _number(value.get("value") if isinstance(value, dict) else value, unit)

    asic = parts["asic"]
    return ListedDevice(
        "amd-smi",
        str(asic.get("market_name") or ""),
        "AMD",
        said("vram", "size", MIB) or said("mem_usage", "total_vram", MIB),
        capability=str(asic.get("target_graphics_version") or "") or None,
        watts=said("limit", "max_power"),
    )


def _objects(listed: object) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict))


def _record(device: ListedDevice, count: int, catalog: Catalog) -> Accelerator:
    if not device.name.strip():
        raise InputError(f"found a device without a name; allowed: {ALLOWED}")
    if device.total is None:
        hint = f"; {_MISSING[device.vendor]}" if device.vendor in _MISSING else ""
        raise InputError(f"found no memory of {shorten(device.name)}; allowed: {ALLOWED}{hint}")
    installed = -(-device.total // GIB)
    try:
        known = catalog.accelerator(
            f"{device.name} {installed}GB" if device.vendor == "Apple" else device.name
        )
    except InputError:
        known = None
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:60] or "device"
    alike = known is not None and abs(known.memory.advertised.value - device.total) <= _ALIKE * device.total
    if known is not None and alike:
        changed: dict[str, Any] = {"id": known.id}
    elif known is not None:
        changed = {
            "id": f"{known.id}-{installed}gb",
            "name": f"{known.name} {installed} GB",
            "aliases": (),
            "slices": (),
        }
    else:
        changed = {"id": slug, "name": device.name, "vendor": device.vendor}
    source = f"{device.tool} of this machine"
    tried = {
        "architecture": device.architecture, "compute_capability": device.capability, "pcie": device.pcie,
        "power_watts": device.watts and {"value": device.watts, "evidence": "observed", "source": source},
    }  # fmt: skip
    base = {} if known is None else known.model_dump(mode="json", exclude_defaults=True)
    base = (
        {"architecture": "not known"}
        | {name: value for name, value in tried.items() if value}
        | base
        | changed
    )
    memory = _memory(device, installed, catalog, known if alike else None, source)
    fields = [name for name in _UNKNOWN if not base.get(name)]
    notes = [f"{device.tool} does not say: {', '.join(_UNKNOWN[name] for name in fields)}."] if fields else []
    if device.slices:
        notes.append(f"MIG is on: {device.slices} devices, each named like 'H100 1g.10gb'.")
    covered = ["memory.driver_visible", "memory.usable"]
    own = {
        "covers": covered if known is not None else [*covered, "name"], "title": source, "evidence": "observed"
    }  # fmt: skip
    base |= {
        "memory": memory.model_dump(mode="json", exclude_defaults=True), "devices_per_node": count,
        "notes": [*base.get("notes", ()), *notes], "sources": [own, *base.get("sources", ())],
    }  # fmt: skip
    return validate(Accelerator, base, device.tool)


def _memory(
    device: ListedDevice, installed: int, catalog: Catalog, known: Accelerator | None, source: str
) -> Memory:
    """The three sizes: what the tool shows is the driver's, and what a process finds follows from it."""
    total = device.total or 0
    homes = HomeMachines.read(catalog.folder)
    share = {} if homes is None else homes.cards.share_found
    sets = [] if homes is None else [one for one in homes.apple.working_set if one.size <= installed]
    if device.vendor == "Apple" and sets:
        usable, note = (
            sets[-1].mib * MIB,
            "Metal's recommended working set for this size in recent versions of macOS.",
        )
    elif device.reserved is not None:
        usable, note = total - device.reserved, "What the driver shows, less what it reserves."
    elif device.vendor == "AMD":
        usable, note = total, f"All that {device.tool} shows is usable by a process."
    else:
        usable = min(total, int(installed * GIB * share.get(device.vendor, 1)))
        note = "Computed as the installed memory times the usable share in logs of this maker's cards."
    if usable <= 0:
        raise InputError(
            f"found no memory of {shorten(device.name)} that is not reserved; allowed: {ALLOWED}"
        )
    rounded = Figure(value=installed * GIB, evidence="derived", note="What the driver shows, in whole GiB.")
    return Memory(
        advertised=known.memory.advertised if known else rounded,
        advertised_unit=known.memory.advertised_unit if known else "GiB",
        advertised_label=known.memory.advertised_label if known else f"{installed} GB",
        driver_visible=Figure(value=total, evidence="observed", source=source),
        usable=Figure(value=usable, evidence="derived", note=note),
    )
