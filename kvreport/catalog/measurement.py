"""What our own experiments measured: raw readings beside what the arithmetic gave for them.

The scripts in ``experiments/`` write these files; nobody writes them by hand. A file is one
experiment on one machine. No estimate reads them: they are evidence, shown on a page, and a test
computes every ``computed`` figure again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import LongText, Record, Slug, Text, VersionedRecord
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_json
from kvreport.errors import CatalogError, Fault, shorten

SUFFIX: Final = ".json"

Experiment = Literal[
    "e1-cache-bytes",
    "e2-batch-memory",
    "e3-boundary",
    "e4-head-sharing",
    "e5-time",
    "e6-paged",
    "e7-fixed-costs",
]
Unit = Literal["bytes", "requests", "seconds", "tokens/s", "bytes/s", "FLOP/s"]
Relation = Literal["equals", "at_least", "at_most", "none"]
"""What the arithmetic says of a reading: that it equals the computed figure, that it cannot be
below it (a lower bound), that it cannot be above it (an upper bound), or nothing."""

Number = Annotated[int | float, Field(ge=-1e18, le=1e18)]
Day = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")]


class Machine(Record):
    """What an experiment ran on."""

    label: Text  # The machine's class, as a reader should know it: no host name, no path.
    accelerator: Text | None = None  # What its driver calls the accelerator; None on a CPU.
    driver: Text | None = None
    memory_bytes: Annotated[int, Field(ge=0)] | None = None  # Memory that a process can use on the device.
    note: LongText | None = None  # What else matters for the readings.


class MeasuredQuantity(Record):
    """One measured quantity."""

    case: Text  # What was run, the line that it belongs to.
    model: Text | None = None  # Id of the model whose config was built, if one was.
    quantity: Text  # What was measured: ``cache``, ``weights``, ``decode step`` …
    unit: Unit  # Unit of both figures.
    # The settings of this reading: ``context_tokens``, ``batch`` …
    at: dict[Text, int | Text] = Field(default_factory=dict)
    measured: Number | None  # What the machine showed; None where it refused (``note`` says why).
    computed: Number | None = None  # What the arithmetic gave in the same run; None where it says nothing.
    relation: Relation = "equals"  # How the two should stand to each other.
    raw: tuple[Number, ...] = ()  # Every single reading that ``measured`` was taken from.
    note: LongText | None = None

    @property
    def error(self) -> float | None:
        """Measured against computed, as a share; None where one of them is missing."""
        if self.measured is None or not self.computed:
            return None
        return self.measured / self.computed - 1

    @property
    def holds(self) -> bool | None:
        """Whether what the arithmetic says is so; None where it says nothing."""
        if self.measured is None or self.computed is None or self.relation == "none":
            return None
        if self.relation == "equals":
            return self.measured == self.computed
        if self.relation == "at_least":
            return self.measured >= self.computed
        return self.measured <= self.computed


class Measurement(VersionedRecord):
    """One experiment on one machine."""

    name: Slug  # File name without its ending.
    experiment: Experiment
    # ``cuda``, ``cpu``, or ``meta``, where shapes are made and nothing is stored.
    device: Literal["cuda", "cpu", "meta"]
    date: Day
    machine: Machine
    versions: dict[Text, Text]  # Versions of the libraries that took part.
    settings: dict[Text, int | float | Text] = Field(default_factory=dict)  # How it was run.
    command: Text  # The command that runs it again.
    readings: tuple[MeasuredQuantity, ...]
    failures: tuple[LongText, ...] = ()  # What could not be run, and why.


def load_measurements(folder: Path) -> tuple[Measurement, ...]:
    """Read every measurement in a folder, by experiment and name; none if it is not there.

    Raises:
        CatalogError: With every fault of every file.
    """
    found: list[Measurement] = []
    faults: list[Fault] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []:
        try:
            found.append(read_measurement(path))
        except CatalogError as error:
            faults += error.faults
    if faults:
        raise CatalogError(faults)
    return tuple(sorted(found, key=lambda one: (one.experiment, one.name)))


def read_measurement(path: Path) -> Measurement:
    """Read one measurement.

    Raises:
        CatalogError: With every fault of the file.
    """
    where = f"measurements/{path.name}"
    made = validate(Measurement, read_json(path, where), where)
    if made.name != path.stem:
        raise CatalogError.of(where, "name", shorten(made.name), f"the name of the file, {path.stem}")
    return made
