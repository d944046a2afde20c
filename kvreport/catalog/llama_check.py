"""What the real llama.cpp planned for each architecture, beside ours (``python -m experiments llama-check``)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from kvreport.catalog.base import SCHEMA_VERSION, Count, LongText, Record, Text
from kvreport.catalog.shelf import read_yaml, validate
from kvreport.resources import data_dir

FILE: Final = "llama_cpp/check.yaml"


class CheckedArchitecture(Record):
    """One architecture.

    Attributes:
        architecture: Name in a GGUF file.
        model: The model whose shape was taken.
        compared: Settings that both planned.
        kv: Settings with equal keys and values; the same for the next three.
        state: Recurrent states.
        output: Output buffers.
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


class LlamaCheck(Record):
    """The content of ``llama_cpp/check.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    build: Text
    package: Text
    settings: tuple[dict[str, Any], ...]
    architectures: Annotated[tuple[CheckedArchitecture, ...], Field(min_length=1)]


@lru_cache(maxsize=4)
def load_llama_check(folder: Path | None = None) -> LlamaCheck | None:
    """Read ``llama_cpp/check.yaml``; None for a catalog without it.

    Args:
        folder: The catalog's folder; None for the published one.

    Raises:
        CatalogError: If the file has a fault.
    """
    path = (folder or data_dir()) / FILE
    return validate(LlamaCheck, read_yaml(path, FILE), FILE) if path.is_file() else None


MLX_FILE: Final = "llama_cpp/mlx_check.yaml"


class CheckedCache(Record):
    """One model at one length: bytes that mlx-lm's cache classes hold, and ours.

    Attributes:
        model: The model.
        context: Tokens.
        held: Bytes that the classes hold at most.
        ours: Bytes of an estimate.
    """

    model: Text
    context: Count
    held: Count
    ours: Count


class MlxCheck(Record):
    """The content of ``llama_cpp/mlx_check.yaml`` (``python -m experiments mlx-check --out``)."""

    schema_version: Literal[1] = SCHEMA_VERSION
    package: Text
    rows: Annotated[tuple[CheckedCache, ...], Field(min_length=1)]


@lru_cache(maxsize=4)
def load_mlx_check(folder: Path | None = None) -> MlxCheck | None:
    """Read ``llama_cpp/mlx_check.yaml``; None for a catalog without it.

    Args:
        folder: The catalog's folder; None for the published one.

    Raises:
        CatalogError: If the file has a fault.
    """
    path = (folder or data_dir()) / MLX_FILE
    return validate(MlxCheck, read_yaml(path, MLX_FILE), MLX_FILE) if path.is_file() else None
