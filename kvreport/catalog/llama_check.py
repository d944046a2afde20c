"""What the real llama.cpp planned for each architecture, beside ours (``python -m experiments llama-check``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from kvreport.catalog.base import Count, LongText, Record, Text
from kvreport.catalog.shelf import CatalogFile


class CheckedArchitecture(Record):
    """One architecture.

    Attributes:
        model: The model whose shape was taken.
        kv: Settings with equal keys and values; the same for the next three.
        compute: Compute buffers, to the printed digit.
        within_2_percent: Settings whose compute buffer is within two percent.
        largest_difference: Largest relative difference of a compute buffer.
        ended: Settings at which llama.cpp itself stops, with what it says.
        error: Why nothing, or not everything, was compared.
    """

    architecture: Text
    model: Text
    compared: Count
    kv: Count
    state: Count
    output: Count
    compute: Count
    within_2_percent: Count
    largest_difference: float
    ended: tuple[LongText, ...] = ()
    error: LongText | None = None


class LlamaCheck(CatalogFile):
    """The content of ``llama_cpp/check.yaml``."""

    FILE = "llama_cpp/check.yaml"
    build: Text
    package: Text
    settings: tuple[dict[str, Any], ...]
    architectures: Annotated[tuple[CheckedArchitecture, ...], Field(min_length=1)]


class CheckedCache(Record):
    """One model at one length: bytes that mlx-lm's cache classes hold, and ours.

    Attributes:
        context: Tokens.
        held: Bytes that the classes hold at most.
        ours: Bytes of an estimate.
    """

    model: Text
    context: Count
    held: Count
    ours: Count


class MlxCheck(CatalogFile):
    """The content of ``llama_cpp/mlx_check.yaml`` (``python -m experiments mlx-check --out``)."""

    FILE = "llama_cpp/mlx_check.yaml"
    package: Text
    rows: Annotated[tuple[CheckedCache, ...], Field(min_length=1)]
