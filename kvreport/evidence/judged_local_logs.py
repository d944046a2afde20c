"""Public logs of local engines against ours: totals, and whether it fits, over all logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

from kvreport.accounting.engines.llama_cpp.options import LocalOptions, parse_overrides
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.engines.llama_cpp.planner import Scratch
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_logs import PRINTED, LocalLog, LocalLogs, LogDevice, Part
from kvreport.estimation.estimate import estimate
from kvreport.startup_log.local_start import diagnose_local_start, local_start
from kvreport.units import MIB


@dataclass(frozen=True, slots=True)
class Judged:
    """One log against ours."""

    log: LocalLog
    ours: Mapping[Part, float]  # MiB by part, for the parts that the log has.
    fits: bool | None  # Whether ours says that it fits; None for a start without devices.

    @property
    def totals_mib(self) -> tuple[float, float] | None:
        """Everything that is printed, as printed and as predicted, with given weights in both; None where all is given."""
        known = [part for part in self.log.printed if not (part == "weights" and self.log.mix == PRINTED)]
        if not known:
            return None
        fixed = self.log.weights_mib or 0.0
        printed, ours = (sum(sizes[part] for part in known) for sizes in (self.log.printed, self.ours))
        return fixed + printed, fixed + ours

    @property
    def total_error(self) -> float | None:
        """Relative error of :attr:`totals_mib`; None where there are none."""
        return None if self.totals_mib is None else self.totals_mib[1] / self.totals_mib[0] - 1


@dataclass(frozen=True, slots=True)
class LogScore:
    """All logs together."""

    judged: tuple[Judged, ...]  # Every log.
    median_error: float  # Median of the absolute errors of totals.
    p90_error: float  # Their 90th percentile.
    right: int  # Logs whose fitting was told right.
    said: int  # Logs that say whether it fit.
    first_median: float  # Median of the absolute errors at first sight.
    first_p90: float  # Their 90th percentile.
    first_count: int  # Logs found after the rules were written.


def judge(catalog: Catalog, judge: Callable[[LocalLog, Catalog], Judged] | None = None) -> LogScore:
    """Hold every published log against ours by :func:`judge_log`, or by another that keeps what it returns."""
    judged = tuple((judge or judge_log)(log, catalog) for log in LocalLogs.need().logs)
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


def judge_log(log: LocalLog, catalog: Catalog) -> Judged:
    """Hold one published log against ours."""
    return _judge_mlx(log, catalog) if log.engine == "mlx" else _judge_llama(log, catalog)


def _judge_mlx(log: LocalLog, catalog: Catalog) -> Judged:
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


def _judge_llama(log: LocalLog, catalog: Catalog) -> Judged:
    asked = log.options
    options = LocalOptions(
        context=asked.ctx,
        parallel=asked.np,
        unified=asked.unified,
        batch=asked.b,
        ubatch=asked.ub,
        type_k=asked.k,
        type_v=asked.v,
        flash=asked.fa,
        gpu_layers=asked.ngl,
        cpu_moe=asked.cpu_moe,
        outputs=asked.out,
        draft=asked.mtp,
        mtp=bool(asked.mtp),
        draft_type_k=asked.draft_k,
        draft_type_v=asked.draft_v,
        swa_full=asked.swa_full,
        tensor_split=asked.tensor_split,
        cache_copies=asked.cache_copies,
        wide_masks=asked.wide_masks,
        overrides=parse_overrides(asked.overrides),
    )
    start = local_start(
        catalog.model(log.model),
        None if log.mix == PRINTED else log.mix,
        options,
        devices=tuple(_device(index, one) for index, one in enumerate(log.devices)),
        printed=log.printed,
        weights_mib=log.weights_mib,
    )
    judged = diagnose_local_start(start)
    ours = {part: one.predicted for part, one in zip(log.printed, judged.comparisons, strict=True)}
    return Judged(log, ours, judged.fits)


def _device(index: int, device: LogDevice) -> LocalDevice:
    """What is free is told after the backend took its own part."""
    return LocalDevice(
        f"device{index}",
        int(device.free_mib * MIB),
        align=32 if device.backend == "metal" else 128,
        offloads=device.backend == "cuda",
        pipelines=device.backend != "sycl",  # its devices state no events
        scratch=_SCRATCH.get(device.backend, "none"),
    )


_SCRATCH: Final[Mapping[str, Scratch]] = {"cuda": "cuda", "rocm": "cuda", "metal": "metal"}
