"""Starts and refusals that somebody else documented, each with its source; what predictions are judged by.

They are evidence, not input: no estimate reads them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import LongText, Record, Slug, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.shelf import CatalogFile

About = Literal[
    "attention",
    "class",
    "context",
    "device",
    "format",
    "kv format",
    "layout",
    "lora",
    "memory",
    "states",
    "type",
]
"""What decides a case."""


class KnownStart(Record):
    """One engine, one model, one machine, and whether it started."""

    id: Slug  # Slug, unique in the file.
    starts: bool  # Whether it started; False if the engine refused or ran out of memory at start.
    about: About
    # Name on the command line, with the release: ``vllm@0.13.0``; without one, the current release.
    engine: Text
    model: ModelId
    gpu: Slug
    # Further fields of a query; what is not said is the engine's default.
    options: dict[Text, Any] = Field(default_factory=dict)
    says: LongText  # What the source says, in our words.
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=600)]
    # Whether the release that met the case first predicted it, before any rule was changed for it; None for
    # cases that rules were written from.
    first_sight: bool | None = None


class KnownStarts(CatalogFile):
    """The content of ``starts.yaml``."""

    FILE = "starts.yaml"
    cases: Annotated[tuple[KnownStart, ...], Field(min_length=1)]
