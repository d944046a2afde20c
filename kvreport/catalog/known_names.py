"""Models and accelerators that people name and that have no record, each with the reason: ``known_names.yaml``.

A model is in this list for one of two reasons. It keeps no KV cache, so that no number of requests follows from memory. Or
no source that could be read states its dimensions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from kvreport.catalog.base import LongText, Record, Source, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.observation import Day
from kvreport.catalog.shelf import CatalogFile
from kvreport.errors import InputError

NOT_CALCULATED: Final = (
    "text encoders and decoders where the published count leaves them out",
    "activations of a step, which grow with the size of what is made",
    "a number of requests",
)
"""What nobody can derive from a count of parameters."""


_FIRST_STAGE: Final = "the KV cache of its first stage, whose dimensions nobody states"


class KnownName(Record):
    """One model."""

    id: ModelId
    # ``no_cache``: it keeps no KV cache. ``stages``: it runs in stages under vLLM-Omni, the first of which
    # keeps a cache. ``unread``: a language model whose dimensions no source that could be read states.
    kind: Literal["no_cache", "stages", "unread"]
    makes: Text | None = None  # What it makes, where that is not text.
    # Parameters as they are published, in billions; None where nobody states them.
    billions: Annotated[float, Field(gt=0, le=1e6)] | None = None
    format: Text | None = None  # Format of its weights, as published.
    minimum_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None  # Memory that the source asks for, in GB.
    aliases: tuple[Text, ...] = ()  # Names in Ollama's library, with a tag where it decides the size.
    source: Text  # Key of the source that names it.
    path: Text  # Path of its file in that source.
    tried: LongText | None = None  # What was tried besides what was searched for every model.

    @property
    def size(self) -> str:
        """Its parameters as people say them, ``20B``; "" where nobody states them."""
        if self.billions is None:
            return ""
        return f"{self.billions:g}B" if self.billions >= 1 else f"{self.billions * 1000:.3g}M"


class KnownAccelerator(Record):
    """An accelerator that people name, and that has no record."""

    name: Text  # As people write it, with its maker.
    memory: Text | None = None  # What is published of its memory, as it is published.
    tried: LongText  # What is missing for a record, and where it was looked for.


class KnownNames(CatalogFile):
    """The content of ``known_names.yaml``."""

    FILE = "known_names.yaml"
    checked: Day
    # Where dimensions were looked for, for every model.
    searched: Annotated[tuple[Text, ...], Field(min_length=1)]
    sources: dict[str, Source]  # What names the models, by key.
    accelerators: tuple[KnownAccelerator, ...] = ()
    models: tuple[KnownName, ...]

    def known(self, spelling: str) -> KnownName | None:
        """Find a model by its id, the last part of it, or an alias; ``:latest`` says no more than the name alone."""
        return self._by_name.get(spelling.lower().removesuffix(":latest"))

    @cached_property
    def _by_name(self) -> dict[str, KnownName]:
        return {one.id.lower().rpartition("/")[2]: one for one in self.models} | {
            name.lower(): one for one in self.models for name in (one.id, *one.aliases)
        }


class KnownByNameError(InputError):
    """A model is known by name and cannot be computed."""

    def __init__(self, model: KnownName, names: KnownNames) -> None:
        """Say why there is no answer, and what would give one."""
        self.model, self.names = model, names
        super().__init__(f"model: found {model.id!r}, {why(model, names)}")


def why(model: KnownName, names: KnownNames) -> str:
    """Say in one sentence why nothing is computed for a model."""
    size = f" of {model.size} parameters" if model.size else ""
    if model.kind == "no_cache":
        return f"a model{size} that makes {model.makes} and keeps no KV cache; allowed: kvreport estimate, which says what it needs"
    what = (
        f"a model{size} that is known by name"
        if model.kind == "unread"
        else f"a model{size} that makes {model.makes} in stages"
    )
    tried = f"{model.tried}; " if model.tried else ""
    return (
        f"{what}; its dimensions are published by no source that could be read until {names.checked} "
        f"(tried: {tried}{', '.join(names.searched)}); allowed: the path of its config.json, or --fetch"
    )


_BYTES: Final = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


def without_cache(known: KnownByNameError) -> dict[str, Any]:
    """Return what is known of a model without a KV cache, or with one in one stage of several, as ``kvreport estimate`` prints it as JSON.

    Args:
        known: The model. Bytes are whole bytes of all its published parameters, before any split.
    """
    model, source = known.model, known.names.sources[known.model.source]
    each = _BYTES.get(model.format or "")
    total = None if model.billions is None else round(model.billions * 1e9)
    return {
        "model": model.id,
        "verdict": "no_kv_cache" if model.kind == "no_cache" else "cache_not_calculated",
        "makes": model.makes,
        "weight_format": model.format,
        "parameters": total,
        "weight_bytes": None if each is None or total is None else total * each,
        "stated_minimum_gb": model.minimum_gb,
        "max_concurrent_requests": None,
        "not_calculated": [*(() if model.kind == "no_cache" else (_FIRST_STAGE,)), *NOT_CALCULATED],
        "source": f"{source.title}, {model.path}"
        + (f", revision {source.revision[:12]}" if source.revision else ""),
    }
