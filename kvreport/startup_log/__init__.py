"""An engine's start-up log, pasted or published: what it states, our prediction, and what to change.

Reading is pure text in, records out. Every pattern is data (``data/log_lines``), so the page that reads a log in the browser works from
the same table: :func:`table` writes it in a form that JavaScript understands, and a test holds both
readers to the same answers.
"""

from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.facts import FACTS, Fact
from kvreport.startup_log.findings import AdvisedChange, ComparedNumber, Diagnosis
from kvreport.startup_log.patterns import Pattern, patterns
from kvreport.startup_log.reading import (
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
    "AdvisedChange",
    "ComparedNumber",
    "Diagnosis",
    "Fact",
    "Pattern",
    "Reading",
    "Recognised",
    "Value",
    "diagnose",
    "explain",
    "patterns",
    "read_log",
    "show",
    "table",
]
