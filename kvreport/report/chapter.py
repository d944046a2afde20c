"""The helpers of chapters under their first address; :mod:`kvreport.book.chapter` has them now."""

import warnings

from kvreport.book.chapter import Html, bars, claim, curves, fold, formula, quantities, table

__all__ = ["Html", "bars", "claim", "curves", "fold", "formula", "quantities", "table"]

warnings.warn(
    "kvreport.report.chapter is kvreport.book.chapter now; the old address goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
