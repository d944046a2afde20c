"""Machine types of public clouds by name: which accelerator each has, and how many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field

from kvreport.catalog.base import Positive, Record, Slug, Source, Text
from kvreport.catalog.shelf import CatalogFile

_PREFIX: Final = re.compile(r"^(?:standard|ml)[^a-z0-9]", re.IGNORECASE)
"""What Azure and SageMaker write before a name."""


class Instances(Record):
    """Machine types with as many of one accelerator."""

    gpu: Slug
    devices: Positive
    names: Annotated[tuple[Text, ...], Field(min_length=1)]


class CloudInstances(CatalogFile):
    """The content of ``cloud_instances.yaml``."""

    FILE = "cloud_instances.yaml"
    instances: Annotated[tuple[Instances, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]


@lru_cache(maxsize=1)
def published() -> Mapping[str, tuple[str, int]]:
    """The id of the accelerator and the number of devices by the plain name of a machine type.

    Raises:
        CatalogError: If the file has a fault.
    """
    found = CloudInstances.need()
    return {plain(name): (one.gpu, one.devices) for one in found.instances for name in one.names}


def plain(name: str) -> str:
    """Return a name in small letters without separators and prefixes.

    >>> plain("Standard_ND96isr_H100_v5"), plain("p5.48xlarge"), plain("ml.g6e.xlarge")
    ('nd96isrh100v5', 'p548xlarge', 'g6exlarge')
    """
    return re.sub(r"[^a-z0-9]", "", _PREFIX.sub("", name.strip()).lower())
