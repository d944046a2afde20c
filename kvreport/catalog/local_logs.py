"""Published starts of local engines: how they were started, what they printed, and whether everything fit."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import Record, Slug, Source, Text
from kvreport.catalog.shelf import CatalogFile

PRINTED: Final = "printed"
Part = Literal[
    "weights", "kv", "state", "compute", "companions", "host_weights", "host_kv", "host_state", "host_compute",
    "output", "peak",
]  # fmt: skip


class LogDevice(Record):
    """One device of a log: what was free, and the backend."""

    free_mib: Annotated[float, Field(gt=0)]
    backend: Literal["cuda", "vulkan", "rocm", "metal", "sycl"]


class LogOptions(Record):
    """Options of a start, under the names of ``data/llama_cpp/runs.json``."""

    ctx: int
    np: int = 1
    unified: bool = False
    b: int = 2048
    ub: int = 512
    k: Text = "f16"
    v: Text = "f16"
    fa: Literal["on", "off", "auto"] = "auto"
    ngl: int | None = None
    cpu_moe: int = 0
    out: int | None = None
    mtp: int = 0
    draft_k: Text = "f16"  # Type of keys in the cache of the context that drafts (``--cache-type-k-draft``).
    draft_v: Text = "f16"  # The same for values.
    # True where window layers keep every token; Ollama's own runner did so before mid-2026.
    swa_full: bool = False
    tensor_split: tuple[float, ...] = ()  # Shares of the devices.
    # True for a build before pull request 23764 (late May 2026), by its number, its date or its lines.
    wide_masks: bool = False
    # Backends that reserve 16-bit copies of caches: none before pull request 23907 (early June 2026), CUDA
    # and HIP since, Metal since 27390 (late August 2026).
    cache_copies: tuple[Literal["cuda", "metal"], ...] = ("cuda", "metal")
    overrides: tuple[Text, ...] = ()


class LocalLog(Record):
    """One start, as published."""

    id: Slug
    engine: Literal["llama-cpp", "mlx"]
    build: Text | None = None
    model: Text
    mix: Text  # Quantization mix, or ``printed`` for a file whose types only its header tells.
    weights_mib: float | None = None  # The printed weights of such a file on its devices.
    options: LogOptions
    devices: tuple[LogDevice, ...]
    printed: dict[Part, float]  # MiB by part, as far as the log has them.
    fits: bool | None = None  # Whether everything fit, as the log says; None where it does not.
    source: Text
    # For a log found after the rules: the error of its total as first predicted.
    first_error: float | None = None


class LocalLogs(CatalogFile):
    """The content of ``llama_cpp/logs.yaml``."""

    FILE = "llama_cpp/logs.yaml"
    logs: Annotated[tuple[LocalLog, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
