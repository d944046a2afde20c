"""An engine's start-up log: which lines are recognised, and what numbers they state.

Pure text in, records out. Every pattern is data, so the page that reads a log in the browser works from
the same table: :func:`table` writes it in a form that JavaScript understands, and a test holds both
readers to the same answers.
"""

from kvreport.enginelog.facts import FACTS, Fact
from kvreport.enginelog.patterns import PATTERNS, Engine, Pattern
from kvreport.enginelog.reading import (
    MAX_CHARACTERS,
    Reading,
    Recognised,
    Value,
    explain,
    read_log,
    show,
    table,
)

__all__ = [
    "FACTS",
    "MAX_CHARACTERS",
    "PATTERNS",
    "Engine",
    "Fact",
    "Pattern",
    "Reading",
    "Recognised",
    "Value",
    "explain",
    "read_log",
    "show",
    "table",
]
