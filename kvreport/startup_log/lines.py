"""What is said of a start-up log of a server, as lines: for the command line, and for the page that runs this code."""

from __future__ import annotations

from typing import Final

from kvreport.startup_log.findings import Diagnosis
from kvreport.units import columns, count

MAX_UNKNOWN: Final = 20
"""Lines that were not understood and are printed."""


def lines(found: Diagnosis) -> list[str]:
    """Lay the answer out: the conclusion, what lines mean, ours beside theirs, what to change, the rest."""
    told = [found.headline, ""]
    said: set[str] = set()
    for line in found.reading.recognised:
        if line.says not in said:
            said.add(line.says)
            told.append(f"  line {line.number}: {line.says}")
    if not said:
        told.append(
            "  No line was recognized. kvreport reads start-up logs of vLLM, SGLang, TensorRT-LLM, llama.cpp and Ollama,"
            " and errors of MLX."
        )
    if found.address:
        told += ["", f"About this sentence: the page {found.address} of the site."]
    if found.comparisons:
        told += ["", "Compared with our estimate:"]
        told += [f"  {one.line()}" for one in found.comparisons]
    if found.changes:
        told += ["", "What to change:"]
        told += [f"  {one.line()}" for one in found.changes]
    if found.shorter:
        how = ", if every token costs the same" if found.linear else ""
        told += ["", f"Requests that fit by their length{how}:"]
        told += columns([(f"{count(tokens)} tokens", count(fit)) for tokens, fit in found.shorter], "><")
    if found.notes:
        told += ["", *found.notes]
    if found.reading.unknown:
        unknown = found.reading.unknown
        told += ["", f"Not recognized and not used ({len(unknown):,}):"]
        told += [f"  line {number}: {line[:160]}" for number, line in unknown[:MAX_UNKNOWN]]
        if len(unknown) > MAX_UNKNOWN:
            told.append(f"  … and {len(unknown) - MAX_UNKNOWN:,} more")
    return told
