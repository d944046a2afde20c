"""The front door: one model on one accelerator, answered with its arithmetic."""

from kvreport.estimation.answer import Estimate
from kvreport.estimation.estimate import estimate

__all__ = ["Estimate", "estimate"]
