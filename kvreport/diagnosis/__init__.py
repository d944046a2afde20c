"""What a start-up log tells: its numbers beside our prediction, and what to change."""

from kvreport.diagnosis.comparison import diagnose
from kvreport.diagnosis.findings import Change, Comparison, Diagnosis

__all__ = ["Change", "Comparison", "Diagnosis", "diagnose"]
