"""An engine's start-up log, pasted or published: what it states, our prediction, and what to change.

Reading is pure text in, records out. Every pattern is data (``data/log_lines``), so the page that reads a log in the browser works from
the same table: :func:`table` writes it in a form that JavaScript understands, and a test holds both
readers to the same answers.
"""

from kvreport.startup_log.diagnose import diagnose
from kvreport.startup_log.findings import Diagnosis
from kvreport.startup_log.patterns import FACTS, patterns
from kvreport.startup_log.reading import MAX_CHARACTERS, read_log, table

__all__ = ["FACTS", "MAX_CHARACTERS", "Diagnosis", "diagnose", "patterns", "read_log", "table"]
