"""Writing down what was measured: one JSON file per experiment and machine, whole or not at all."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

from experiments.device import Device
from kvreport.catalog.measurement import Measurement


class Log:
    """The readings of one experiment, saved as they come, so that a run cut short keeps its own.

    Attributes:
        path: The file.
    """

    def __init__(
        self,
        experiment: str,
        device: Device,
        folder: Path,
        *,
        seconds: float,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Begin a log.

        Args:
            experiment: Name of the experiment, ``e1-cache-bytes``.
            device: What it runs on.
            folder: Where files go.
            seconds: Time that it may take; :attr:`time_left` counts down from it.
            settings: How it is run.
        """
        name = f"{experiment}-{device.slug()}"
        self.path = folder / f"{name}.json"
        self._end = time.monotonic() + seconds
        self._data: dict[str, Any] = {
            "schema_version": 1,
            "name": name,
            "experiment": experiment,
            "device": device.kind,
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "machine": device.describe(),
            "versions": device.versions(),
            "settings": settings or {},
            "command": f"python -m experiments run {experiment.split('-', maxsplit=1)[0]} --device {device.kind}",
            "readings": [],
            "failures": [],
        }

    @property
    def time_left(self) -> float:
        """Seconds until the experiment should end."""
        return self._end - time.monotonic()

    def add(
        self,
        case: str,
        quantity: str,
        measured: float | None,
        computed: float | None = None,
        *,
        unit: str = "bytes",
        relation: str = "equals",
        model: str | None = None,
        raw: tuple[float, ...] = (),
        note: str | None = None,
        **at: int | str,
    ) -> None:
        """Add one reading; the words are those of :class:`kvreport.catalog.measurement.MeasuredQuantity`."""
        reading = {"case": case, "model": model, "quantity": quantity, "unit": unit, "at": at}
        reading |= {"measured": measured, "computed": computed}
        reading["relation"] = relation if computed is not None else "none"
        reading |= {"raw": list(raw), "note": note}
        self._data["readings"].append(
            {key: value for key, value in reading.items() if value not in (None, [], {})}
            | {"measured": measured}
        )
        shown = " ".join(f"{key}={value}" for key, value in at.items())
        share = f"  ({measured / computed - 1:+.2%})" if measured is not None and computed else ""
        print(
            f"{case} · {quantity} · {shown}: measured {_say(measured)}, computed {_say(computed)} {unit}{share}",
            flush=True,
        )

    def fail(self, what: str, error: BaseException | str) -> None:
        """Note what could not be run, and why."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        line = f"{what}: {' '.join(text.split())[:600]}"
        self._data["failures"].append(line)
        print(f"not run: {line}", flush=True)
        self.save()

    def save(self) -> None:
        """Write the file, whole: its record is validated first."""
        text = json.dumps(self._data, indent=1, ensure_ascii=False) + "\n"
        Measurement.model_validate_json(text)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path)


def _say(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
