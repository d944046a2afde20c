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
    """Options of a start, under the names of ``data/llama_cpp/runs.json``.

    Attributes:
        draft_k: Type of keys in the cache of the context that drafts (``--cache-type-k-draft``).
        draft_v: The same for values.
        swa_full: True where window layers keep every token; Ollama's own runner did so before mid-2026.
        tensor_split: Shares of the devices.
        cache_copies: Backends that reserve 16-bit copies of caches: none before pull request 23907 (early June 2026),
            CUDA and HIP since, Metal since 27390 (late August 2026).
        wide_masks: True for a build before pull request 23764 (late May 2026), by its number, its date or its lines.
    """

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
    draft_k: Text = "f16"
    draft_v: Text = "f16"
    swa_full: bool = False
    tensor_split: tuple[float, ...] = ()
    wide_masks: bool = False
    cache_copies: tuple[Literal["cuda", "metal"], ...] = ("cuda", "metal")
    overrides: tuple[Text, ...] = ()


class LocalLog(Record):
    """One start, as published.

    Attributes:
        mix: Quantization mix, or ``printed`` for a file whose types only its header tells.
        weights_mib: The printed weights of such a file on its devices.
        printed: MiB by part, as far as the log has them.
        fits: Whether everything fit, as the log says; None where it does not.
        first_error: For a log found after the rules: the error of its total as first predicted.
    """

    id: Slug
    engine: Literal["llama-cpp", "mlx"]
    build: Text | None = None
    model: Text
    mix: Text
    weights_mib: float | None = None
    options: LogOptions
    devices: tuple[LogDevice, ...]
    printed: dict[Part, float]
    fits: bool | None = None
    source: Text
    first_error: float | None = None


class LocalLogs(CatalogFile):
    """The content of ``llama_cpp/logs.yaml``."""

    FILE = "llama_cpp/logs.yaml"
    logs: Annotated[tuple[LocalLog, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
