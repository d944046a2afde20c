"""An accelerator in figures: its facts, its memory by what holds it, and its rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport import units
from kvreport.catalog.accelerator import Accelerator, Figure
from kvreport.site.kit import diagrams, tables
from kvreport.site.kit.elements import Bar, KeyFigure
from kvreport.site.kit.sources import EVIDENCE, evidence_cell, source_cell
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts

_TERA: Final = 10**12


def key_figures(gpu: Accelerator) -> Iterator[KeyFigure]:
    """Yield what an accelerator has at most: memory, bandwidth, peak rate."""
    installed = f"{units.gib(gpu.memory.advertised.value, 0)} GiB"
    yield KeyFigure("Installed memory", installed, f"the product label says {advertised(gpu)}")
    if gpu.memory.driver_visible is not None:
        yield KeyFigure("Reported by the driver", f"{units.gib(gpu.memory.driver_visible.value)} GiB")
    evidence = gpu.memory.usable.evidence
    yield KeyFigure(
        "Usable by a process", f"{units.gib(gpu.usable_bytes)} GiB", f"{evidence}: {EVIDENCE[evidence]}"
    )
    if gpu.bandwidth_bytes_per_s is not None:
        yield KeyFigure(
            "Memory bandwidth",
            f"{gpu.bandwidth_bytes_per_s.value / _TERA:,.2f} TB/s",
            _mark(gpu.bandwidth_bytes_per_s),
        )
    if gpu.rates.bf16 is not None:
        yield KeyFigure("16-bit peak", f"{gpu.rates.bf16.value / _TERA:,.0f} TFLOP/s", _mark(gpu.rates.bf16))


def advertised(gpu: Accelerator) -> str:
    """Return the memory on the label, in the label's own unit."""
    if gpu.memory.advertised_label:
        return gpu.memory.advertised_label
    figure = gpu.memory.advertised.value
    text = units.gb(figure, 0) if gpu.memory.advertised_unit == "GB" else units.gib(figure, 0)
    return f"{text} {gpu.memory.advertised_unit}"


def _mark(figure: Figure) -> str:
    return "unverified" if figure.evidence == "unverified" else ""


def memory_bar(gpu: Accelerator) -> Bar | None:
    """Draw the memory by what holds it; None where a process can use all of it."""
    memory = gpu.memory
    total = max(memory.advertised.value, memory.driver_visible.value if memory.driver_visible else 0)
    if gpu.usable_bytes >= total:
        return None
    visible = memory.driver_visible.value if memory.driver_visible else gpu.usable_bytes
    parts = (
        ("use", "usable by a process", gpu.usable_bytes),
        ("driver", "reserved by the driver", visible - gpu.usable_bytes),
        ("free", "not visible to the driver", total - visible),
    )
    return diagrams.bar(
        "From advertised to usable memory", parts, total, "Parts of the advertised memory, to scale."
    )


def memory_table(gpu: Accelerator) -> Table:
    """Return advertised, reported and usable memory, each with its source."""
    memory = gpu.memory
    meanings = {
        "advertised": f"memory on the product label, in {memory.advertised_unit}",
        "driver-visible": "memory that the driver reports",
        "usable": "memory that a process can allocate; the engine's memory share applies to this amount",
    }
    figures = {
        "advertised": memory.advertised,
        "driver-visible": memory.driver_visible,
        "usable": memory.usable,
    }

    def size(name: str) -> int | None:
        figure = figures[name]
        return None if figure is None else figure.value

    def quoted(name: str) -> str:
        figure = figures[name]
        return (figure.quote if figure else None) or "–"

    return listing(
        "Advertised, reported and usable memory per GPU",
        figures,
        texts("Memory", Cell),
        numbers("Size", lambda name: tables.size_cell(size(name)), "GiB"),
        numbers(
            "Size", lambda name: Cell("–", value=-1) if (found := size(name)) is None else found, "bytes"
        ),
        texts("Evidence", lambda name: evidence_cell(figures[name])),
        texts("What it is", lambda name: Cell(meanings[name], "kv-words")),
        texts("Quoted as", lambda name: Cell(quoted(name), "kv-words")),
        texts("Source", lambda name: source_cell(figures[name])),
        name="memory-table",
    )


def rates_table(gpu: Accelerator) -> Table:
    """Return the specifications, each with its evidence."""
    rates = gpu.rates
    figures: tuple[tuple[str, Figure | None, str, int], ...] = (
        ("Memory bandwidth", gpu.bandwidth_bytes_per_s, "TB/s", _TERA),
        ("16-bit, dense", rates.bf16, "TFLOP/s", _TERA),
        ("FP8, dense", rates.fp8, "TFLOP/s", _TERA),
        ("INT8, dense", rates.int8, "TOP/s", _TERA),
        ("FP4, dense", rates.fp4, "TFLOP/s", _TERA),
        ("Interconnect, both directions", gpu.interconnect_bytes_per_s, "GB/s", 10**9),
        ("Network ports, one direction", gpu.network_bytes_per_s, "GB/s", 10**9),
        ("Power", gpu.power_watts, "W", 1),
    )
    known = [(name, figure, unit, scale) for name, figure, unit, scale in figures if figure is not None]

    def number(figure: Figure, scale: int) -> Cell:
        return Cell(f"{figure.value / scale:,.2f}".rstrip("0").rstrip("."), value=figure.value)

    return listing(
        "Specifications per GPU, with the evidence for each value",
        known,
        texts("Figure", lambda row: row[0]),
        numbers("Value", lambda row: number(row[1], row[3])),
        texts("Unit", lambda row: row[2]),
        texts("Evidence", lambda row: evidence_cell(row[1])),
        texts("Source", lambda row: source_cell(row[1])),
        name="rates-table",
    )
