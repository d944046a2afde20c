"""How far an engine's rules were off on start-up logs at first sight: predicted and recorded before any rule knew of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvreport.catalog.first_predictions import FirstSeen, FirstSeenLog, bands_of, errors_of, started
from kvreport.catalog.local_logs import LocalLogs
from kvreport.resources import data_dir
from kvreport.words import counted, engine_name

ALL_FLAGS: Final = "all flags known"
SOME_ASSUMED: Final = "some flags assumed"
LEAST: Final = 5
"""Logs of a kind below which no figure is given."""
LOCAL: Final = ("llama_cpp", "mlx")
"""Families whose logs are compared by the memory of their devices (``llama_cpp/logs.yaml``)."""
_PREDICTED: Final = {
    "KV tokens": "KV cache size in tokens",
    "memory of the devices": "memory of the devices",
}
"""How a sentence names each quantity that was compared."""
_OWN: Final = "own-"
"""Start of the ids of our own measurements, which are no logs that were found."""


@dataclass(frozen=True, slots=True)
class FirstSight:
    """Errors of one engine's found logs of one kind of start."""

    engine: str  # Family of the engine.
    kind: str  # :data:`ALL_FLAGS` or :data:`SOME_ASSUMED`.
    quantity: str  # What was compared: KV tokens, or the memory of the devices.
    logs: int  # Logs of starts with an error.
    median: float  # Median of the relative errors' sizes.
    p90: float  # Their 90th percentile.
    pools: int = 0  # Starts whose pool was predicted, with an 80 % band or as nothing.
    held: int = 0  # Pools inside their band.
    without_error: int = 0  # Pools compared with their band alone: no error was recorded.
    refusals: int = 0  # Starts that the engine refused.
    refusals_right: int = 0  # Refusals that were predicted.

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; ``band_holds`` is a share, None where there are no bands."""
        return {
            "engine": self.engine,
            "kind": self.kind,
            "quantity": self.quantity,
            "logs": self.logs,
            "median": round(self.median, 5),
            "p90": round(self.p90, 5),
            "band_holds": round(self.held / self.pools, 5) if self.pools else None,
            "refusals": self.refusals,
            "refusals_predicted": self.refusals_right,
        }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, between two of them in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@cache
def first_sight(family: str, kind: str = ALL_FLAGS, folder: Path | None = None) -> FirstSight | None:
    """Return the errors of an engine's logs at first sight; None for fewer than :data:`LEAST` of them.

    Args:
        family: Family of the engine's record.
        kind: :data:`ALL_FLAGS`, or :data:`SOME_ASSUMED` for logs whose source does not state every flag.
        folder: The catalog that has them; None for the package's own, whose rules were tried.
    """
    if is_local(family):
        return _local(family, kind, folder)
    found = FirstSeen.read(folder or data_dir())
    return None if found is None else summary(found, family, kind)


def summary(found: FirstSeen, family: str, kind: str = ALL_FLAGS) -> FirstSight | None:
    """Return the errors of an engine's found logs of one kind; None for fewer than :data:`LEAST` of them.

    Args:
        found: Predictions at first sight.
        family: Family of the engine's record.
        kind: :data:`ALL_FLAGS` or :data:`SOME_ASSUMED`.
    """
    named = [
        log
        for run in found.runs
        for log in run.logs
        if not is_own(log)
        and (log.rules or "").partition(" ")[0] == family
        and log.complete is (kind == ALL_FLAGS)
    ]
    sizes = errors_of(named)
    if len(sizes) < LEAST:
        return None
    banded = bands_of(named)
    refused = [log for log in named if log.starts_observed is False and log.starts_predicted is not None]
    return FirstSight(
        family,
        kind,
        "KV tokens",
        len(sizes),
        quantile(sizes, 0.5),
        quantile(sizes, 0.9),
        len(banded),
        sum(banded),
        sum(log.covered is not None and log.error is None for log in started(named)),
        len(refused),
        sum(log.starts_predicted is False for log in refused),
    )


def is_local(family: str) -> bool:
    """Whether the logs of a family are of one computer's devices, and compared by their memory."""
    return family in LOCAL


def is_own(log: FirstSeenLog) -> bool:
    """Whether a log is of a start of our own, which is no log that was found."""
    return log.id.startswith(_OWN)


def _local(family: str, kind: str, folder: Path | None) -> FirstSight | None:
    """Logs of llama.cpp and mlx-lm that were found after the rules were written; totals are compared."""
    engine = family.replace("_", "-")
    sizes = sorted(
        abs(log.first_error)
        for log in LocalLogs.need(folder).logs
        if log.engine == engine and log.first_error is not None
    )
    if kind != ALL_FLAGS or len(sizes) < LEAST:
        return None
    return FirstSight(
        family, kind, "memory of the devices", len(sizes), quantile(sizes, 0.5), quantile(sizes, 0.9)
    )


def _found(family: str, kind: str, seen: FirstSeen | None) -> FirstSight | None:
    return first_sight(family, kind) if seen is None else summary(seen, family, kind)


def expected(family: str, seen: FirstSeen | None = None) -> str:
    """Say the error to expect in one line: the first of :func:`sentence`'s figures; empty where there are too few logs."""
    found = _found(family, ALL_FLAGS, seen)
    return (
        found
        and (
            f"Across the logs of all GPUs and models, half of our predictions of the {_PREDICTED[found.quantity]} were within "
            f"±{_percent(found.median)} of the logged value, and nine in ten within ±{_percent(found.p90)}. "
            "The error band of a single answer is given in GiB, so for a small pool it is a larger percentage."
        )
    ) or ""


def sentence(family: str, seen: FirstSeen | None = None) -> str:
    """Say how far an engine's logs were off at first sight; empty where there are too few."""
    found = _found(family, ALL_FLAGS, seen)
    if found is None:
        return ""
    name = engine_name(family.replace("_", "-"))
    said = (
        f"We predicted the {_PREDICTED[found.quantity]} for {found.logs} {name} logs with known flags before using any of "
        "them to correct our rules. "
        f"The median error was {_percent(found.median)}; the 90th percentile was {_percent(found.p90)}."
    )
    if found.pools:
        alone = found.without_error
        said += (
            " The 80% error band recorded with each prediction contained the logged KV cache size for "
            f"{found.held} of {'' if alone else 'these '}{found.pools} logs ({found.held / found.pools:.1%})"
            + (
                f". The {found.pools} are these {found.logs} and {alone} more for which only the band was recorded."
                if alone
                else "."
            )
        )
    return said


def details(family: str, seen: FirstSeen) -> str:
    """Say what else the first predictions of an engine show, after its sentence."""
    found, further = _found(family, ALL_FLAGS, seen), _found(family, SOME_ASSUMED, seen)
    if found is None:
        return ""
    said = []
    if found.held < 0.8 * found.pools:
        said.append("We have since widened the bands.")
    if found.refusals > 1 and found.refusals_right == found.refusals:
        said.append(f"All {found.refusals} servers that failed to start were predicted to fail.")
    elif found.refusals:
        said.append(
            f"Of {counted(found.refusals, 'server|servers')} that failed to start, {found.refusals_right} were predicted to fail."
        )
    if further is not None:
        said.append(
            f"For {further.logs} other logs with {SOME_ASSUMED}, the median error is {_percent(further.median)}, and "
            f"the 90th percentile is {_percent(further.p90)}."
        )
    return " ".join(said)


def _percent(share: float) -> str:
    return f"{share:.1%}"
