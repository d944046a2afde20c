"""Public logs of local engines against ours: buffers, totals, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.accounting.engines.llama_cpp.companions import Companions, prediction_model
from kvreport.accounting.engines.llama_cpp.inventory import prediction_tensors
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions, parse_overrides
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.quantize import quantized
from kvreport.catalog.base import SCHEMA_VERSION, Record, Slug, Source, Text
from kvreport.catalog.load import Catalogue
from kvreport.catalog.shelf import read_yaml, validate
from kvreport.estimation.estimate import estimate
from kvreport.estimation.local_case import open_local
from kvreport.resources import data_dir

MIB: Final = 1 << 20
FILE: Final = "llama_cpp/logs.yaml"
PRINTED: Final = "printed"
Part = Literal[
    "weights", "kv", "state", "compute", "companions", "host_weights", "host_kv", "host_state", "host_compute",
    "output", "peak",
]  # fmt: skip


class LogDevice(Record):
    """One device of a log: what was free, and the backend."""

    free_mib: Annotated[float, Field(gt=0)]
    backend: Literal["cuda", "vulkan", "rocm", "metal"]


class LogOptions(Record):
    """Options of a start, under the names of ``data/llama_cpp/runs.json``.

    Attributes:
        wide_masks: True for a build before pull request 23764 (late May 2026), by its number, its date or its lines.
    """

    ctx: int
    np: int = 1
    unified: bool = False
    ub: int = 512
    k: Text = "f16"
    v: Text = "f16"
    fa: Literal["on", "off", "auto"] = "auto"
    ngl: int | None = None
    cpu_moe: int = 0
    out: int | None = None
    mtp: int = 0
    wide_masks: bool = False
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


class LocalLogs(Record):
    """The content of ``llama_cpp/logs.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    logs: Annotated[tuple[LocalLog, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Judged:
    """One log against ours.

    Attributes:
        log: The log.
        ours: MiB by part, for the parts that the log has.
        fits: Whether ours says that it fits; None for a start without devices.
    """

    log: LocalLog
    ours: Mapping[Part, float]
    fits: bool | None

    @property
    def total_error(self) -> float | None:
        """Relative error of the sum of everything printed that is not given; None where nothing is."""
        known = [part for part in self.log.printed if not (part == "weights" and self.log.mix == PRINTED)]
        if not known:
            return None
        observed = sum(self.log.printed[part] for part in known)
        fixed = self.log.weights_mib or 0.0
        return (fixed + sum(self.ours[part] for part in known)) / (fixed + observed) - 1


@dataclass(frozen=True, slots=True)
class LogScore:
    """All logs together.

    Attributes:
        judged: Every log.
        median_error: Median of the absolute errors of totals.
        p90_error: Their 90th percentile.
        right: Logs whose fitting was told right.
        said: Logs that say whether it fit.
        first_median: Median of the absolute errors at first sight.
        first_p90: Their 90th percentile.
        first_count: Logs found after the rules were written.
    """

    judged: tuple[Judged, ...]
    median_error: float
    p90_error: float
    right: int
    said: int
    first_median: float
    first_p90: float
    first_count: int


@lru_cache(maxsize=4)
def load_local_logs(folder: Path | None = None) -> LocalLogs:
    """Read ``llama_cpp/logs.yaml`` of a catalog.

    Args:
        folder: The catalog's folder; None for the published one.

    Raises:
        CatalogueError: If the file has a fault.
    """
    return validate(LocalLogs, read_yaml((folder or data_dir()) / FILE, FILE), FILE)


def judge(catalog: Catalogue) -> LogScore:
    """Hold every published log against ours.

    Args:
        catalog: Where models are looked up.
    """
    judged = tuple(_judge(log, catalog) for log in load_local_logs().logs)
    errors = sorted(abs(error) for one in judged if (error := one.total_error) is not None)
    first = sorted(abs(one.log.first_error) for one in judged if one.log.first_error is not None)
    told = [one for one in judged if one.log.fits is not None and one.fits is not None]
    return LogScore(
        judged=judged,
        median_error=median(errors),
        p90_error=_p90(errors),
        right=sum(one.fits == one.log.fits for one in told),
        said=len(told),
        first_median=median(first),
        first_p90=_p90(first),
        first_count=len(first),
    )


def _p90(errors: Sequence[float]) -> float:
    return quantiles(errors, n=10, method="inclusive")[-1]


def _judge(log: LocalLog, catalog: Catalogue) -> Judged:
    return _judge_mlx(log, catalog) if log.engine == "mlx" else _judge_llama(log, catalog)


def _judge_mlx(log: LocalLog, catalog: Catalogue) -> Judged:
    answer = estimate(
        log.model,
        gpu="m3-max-64",
        memory=int(log.devices[0].free_mib * MIB),
        engine="mlx",
        weights=log.mix,
        context_tokens=log.options.ctx,
        catalog=catalog,
    )
    peak = answer.budget.weights + answer.budget.activations + answer.kv_bytes_per_request_per_gpu
    return Judged(log, {"peak": peak / MIB}, answer.max_concurrent_requests > 0)


def _judge_llama(log: LocalLog, catalog: Catalogue) -> Judged:
    mix = "q4_k_m" if log.mix == PRINTED else log.mix
    model = catalog.model(log.model)
    local, _ = open_local(model, mix, None)
    asked = log.options
    if asked.mtp:
        blocks = quantized(prediction_tensors(model), mix, layers=model.layer_count)
        prediction = prediction_model(local, blocks)
        count = len(prediction.network.blocks) if prediction is not None else 0
        network = replace(local.network, prediction_layers=count)
        local = replace(local, network=network, companions=Companions(prediction=prediction))
    options = LocalOptions(
        context=asked.ctx,
        parallel=asked.np,
        unified=asked.unified,
        ubatch=asked.ub,
        type_k=asked.k,
        type_v=asked.v,
        flash=asked.fa,
        gpu_layers=asked.ngl,
        cpu_moe=asked.cpu_moe,
        outputs=asked.out,
        draft=asked.mtp,
        mtp=bool(asked.mtp),
        wide_masks=asked.wide_masks,
        overrides=parse_overrides(asked.overrides),
    )
    devices = tuple(_device(index, one) for index, one in enumerate(log.devices))
    layout = lay_out_local(local, options, devices)
    return Judged(log, dict(_parts(log, layout)), _fits(log, layout) if devices else None)


def _device(index: int, device: LogDevice) -> LocalDevice:
    """What is free is told after the backend took its own part."""
    return LocalDevice(
        f"device{index}",
        int(device.free_mib * MIB),
        align=32 if device.backend == "metal" else 128,
        offloads=device.backend == "cuda",
        pipelines=True,
    )


def _parts(log: LocalLog, layout: LocalLayout) -> Iterator[tuple[Part, float]]:
    host = layout.host
    every: dict[Part, int] = {
        "weights": sum(one.weights for one in layout.devices),
        "kv": sum(one.kv for one in layout.devices),
        "state": sum(one.state for one in layout.devices),
        "compute": sum(one.compute + one.offload_copies for one in layout.devices),
        "companions": sum(one.companions for one in layout.devices),
        "host_weights": host.weights,
        "host_kv": host.kv,
        "host_state": host.state,
        "host_compute": host.compute,
        "output": host.output,
    }
    for part in log.printed:
        yield part, every[part] / MIB


def _fits(log: LocalLog, layout: LocalLayout) -> bool:
    if log.mix != PRINTED:
        return layout.fits
    # The file's own weights in place of the mix that stood in for them.
    given = log.weights_mib
    if given is None:
        return layout.fits
    used = sum(one.total - one.weights for one in layout.devices) / MIB + given
    return used <= sum(device.free_mib for device in log.devices)
