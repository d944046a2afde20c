"""What the code of the evidence page says of given observations, as plain data and as text.

Each comparison of :mod:`kvreport.evidence.validation` is one row; starts and refusals are rows of their own. The
headline is the error *end to end*: of the tokens (else of the concurrency, else of the pool) that were predicted
from model, device and flags alone, one figure per log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from kvreport.catalog.load import Catalog
from kvreport.catalog.observation import Observation
from kvreport.evidence.validation import Compared, validate
from kvreport.startup_log.start import Comparison

END_TO_END: Final = ("tokens", "concurrency", "pool")
"""Quantities that are predicted from model, device and flags alone; the first that a log prints counts."""


def judge(catalog: Catalog, observations: Iterable[Observation]) -> dict[str, Any]:
    """Compare observations with predictions.

    Returns:
        ``comparisons`` (``id``, ``complete``, ``quantity``, ``observed``, ``predicted``, ``error``, ``unit``,
        and ``within_band`` for a pool that was predicted), ``starts`` (``id``, ``complete``, ``observed``,
        ``predicted``), ``not_compared`` (``id``, ``reason``) and ``summary``.
    """
    cases = validate(catalog, observations).cases
    return {
        "comparisons": [row for case in cases for row in _rows(case)],
        "starts": [
            {
                "id": case.observation.id,
                "complete": case.observation.complete,
                "rules": case.release,
                "observed": case.starts_observed,
                "predicted": case.starts_predicted,
            }
            for case in cases
            if case.starts_observed is not None and case.starts_predicted is not None
        ],
        "not_compared": [
            {"id": case.observation.id, "reason": reason} for case in cases for reason in case.excluded
        ],
        "summary": {
            "complete": summary([case for case in cases if case.observation.complete]),
            "all": summary(cases),
        },
    }


def summary(cases: Iterable[Compared]) -> dict[str, Any]:
    """Errors end to end, starts told right, and the share of pools inside their band; None without any."""
    known = list(cases)
    errors = [abs(one.error) for case in known if (one := end_to_end(case)) and math.isfinite(one.error)]
    starts = [
        case.starts_observed == case.starts_predicted
        for case in known
        if case.starts_observed is not None and case.starts_predicted is not None
    ]
    inside = [case.within_band for case in known if case.within_band is not None]
    return {
        "logs": len(errors),
        "median_error": round(float(np.median(errors)), 6) if errors else None,
        "p90_error": round(float(np.quantile(errors, 0.9)), 6) if errors else None,
        "starts": len(starts),
        "starts_right": sum(starts),
        "bands": len(inside),
        "bands_holding": sum(inside),
    }


def end_to_end(case: Compared) -> Comparison | None:
    """The one figure of a log that counts: tokens, else concurrency, else the pool."""
    found = {one.quantity: one for one in case.comparisons}
    return next((found[name] for name in END_TO_END if name in found), None)


def _rows(case: Compared) -> Iterable[dict[str, Any]]:
    counted = end_to_end(case)
    for one in case.comparisons:
        row = {
            "id": case.observation.id,
            "complete": case.observation.complete,
            "quantity": one.quantity,
            "observed": one.observed,
            "predicted": round(one.predicted, 4),
            "error": round(one.error, 6) if math.isfinite(one.error) else None,
            "unit": one.unit,
            "rules": case.release,
        }
        if one is counted and case.within_band is not None:
            row["within_band"] = case.within_band
        yield row
