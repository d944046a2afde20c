"""The front door: one model on one accelerator, answered with its arithmetic."""

from kvreport.estimation.estimate import Estimate, estimate

__all__ = ["Estimate", "estimate"]
