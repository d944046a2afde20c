"""What the real llama.cpp planned for each architecture, beside ours (``python -m experiments llama-check``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from kvreport.catalog.base import Count, LongText, Record, Text
from kvreport.catalog.shelf import CatalogFile


class CheckedArchitecture(Record):
    """One architecture."""

    architecture: Text
    model: Text  # The model whose shape was taken.
    compared: Count
    kv: Count  # Settings with equal keys and values; the same for the next three.
    state: Count
    output: Count
    compute: Count  # Compute buffers, to the printed digit.
    within_2_percent: Count  # Settings whose compute buffer is within two percent.
    largest_difference: float  # Largest relative difference of a compute buffer.
    ended: tuple[LongText, ...] = ()  # Settings at which llama.cpp itself stops, with what it says.
    error: LongText | None = None  # Why nothing, or not everything, was compared.


class LlamaCheck(CatalogFile):
    """The content of ``llama_cpp/check.yaml``."""

    FILE = "llama_cpp/check.yaml"
    build: Text
    package: Text
    settings: tuple[dict[str, Any], ...]
    architectures: Annotated[tuple[CheckedArchitecture, ...], Field(min_length=1)]


class CheckedCache(Record):
    """One model at one length: bytes that mlx-lm's cache classes hold, and ours."""

    model: Text
    context: Count  # Tokens.
    held: Count  # Bytes that the classes hold at most.
    ours: Count  # Bytes of an estimate.


class MlxCheck(CatalogFile):
    """The content of ``llama_cpp/mlx_check.yaml`` (``python -m experiments mlx-check --out``)."""

    FILE = "llama_cpp/mlx_check.yaml"
    package: Text
    rows: Annotated[tuple[CheckedCache, ...], Field(min_length=1)]
