"""Which accelerator a server of a file runs on: the one that its resources name, unless its image runs on others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kvreport.deployments.container_resources import VENDORS, Resources
from kvreport.errors import InputError

if TYPE_CHECKING:
    from kvreport.catalog.accelerator import Accelerator
    from kvreport.catalog.load import Catalog

_LABEL: Final = re.compile(r"(?:nvidia|amd|intel|geforce|tesla|instinct|radeon|shared|oam)\b", re.IGNORECASE)
_ON_OTHERS: Final = re.compile(
    r"(?:\S*/)?[^/\s]*[-:_](cpu|tpu|hpu|gaudi|neuron)(?![a-z])[^/\s]*", re.IGNORECASE
)
"""Images for what is no GPU here, by the last part of their names."""
_OF_LLAMA_CPP: Final = re.compile(r"\S*llama\.cpp:(?:server|full|light)(?:-b\d+)?")
"""Images of llama.cpp without a backend for GPUs (``.devops/cpu.Dockerfile``)."""
_MAKERS: Final = {"rocm": "AMD", "xpu": "Intel", "intel": "Intel", "vllm-openai:": "NVIDIA", "cuda": "NVIDIA"}
"""Words of an image's name that say whose GPUs it runs on."""
MEMORY_WITHIN: Final = 0.12
"""How far a label's memory may be from the device's: makers round, and mean binary or decimal sizes."""


def device_of(
    resources: Resources, gpu: str | None, catalog: Catalog
) -> tuple[str | Accelerator | None, str]:
    """The accelerator of a server, by its file or as the caller names it, and why there is none."""
    named, why = gpu, "the file does not name a GPU: add --gpu GPU"
    if resources.gpu:
        try:
            named = device_of_label(resources.gpu, catalog)
        except InputError as error:
            why = f"{error}; add --gpu GPU"
    if named is None:
        return None, why
    if resources.slice and "g." not in named:
        named = f"{named}-{resources.slice}"
    try:
        device = catalog.accelerator(named)
    except InputError as error:
        return None, str(error)
    vendor = VENDORS.get(resources.asks.partition("/")[0], device.vendor)
    if vendor != device.vendor:
        return (
            None,
            f"the file asks for {resources.asks}, and {device.name} is a device of {device.vendor}: add --gpu with one of {vendor}",
        )
    if resources.share_bytes is None:
        return named, ""
    return device.as_found(resources.share_bytes), ""


def device_of_label(label: str, catalog: Catalog) -> str:
    """The accelerator that a node label names, such as ``NVIDIA-H100-80GB-HBM3`` or ``nvidia-tesla-t4``.

    Raises:
        InputError: If it names none that is known, or one of another memory.
    """
    words = [word for word in re.split(r"[-_ ]+", _LABEL.sub("", label)) if word]
    for length in range(len(words), 0, -1):
        try:
            device = catalog.accelerator(" ".join(words[:length]))
        except InputError:
            continue
        stated = re.search(r"(\d+)\s*gb", label, re.IGNORECASE)
        size = 0 if stated is None else int(stated[1])
        if size and abs(device.memory.advertised.value / (size << 30) - 1) > MEMORY_WITHIN:
            continue
        return device.id
    raise InputError(f"gpu: found the label {label!r}; allowed: one that names a known accelerator")


def refusal_of_image(image: str, device: str | Accelerator, catalog: Catalog) -> str:
    """What an image runs on, where that is not the device; empty where it may be."""
    other = _ON_OTHERS.fullmatch(image)
    if other or _OF_LLAMA_CPP.fullmatch(image):
        return f"the image {image} runs on {other[1].upper() if other else 'CPU'}, whose memory is not computed here"
    maker = next(
        (vendor for word, vendor in _MAKERS.items() if re.search(rf"(?<![a-z]){word}(?![a-z])", image)), ""
    )
    found = catalog.accelerator(device) if isinstance(device, str) else device
    if not maker or found.vendor == maker:
        return ""
    return f"the image {image} runs on GPUs of {maker}, and {found.name} is none: add --gpu with one of them"
