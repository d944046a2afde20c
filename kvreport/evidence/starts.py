"""Documented starts and refusals, judged by the same code as every estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvreport.catalog.documented_starts import KnownStart, KnownStarts
from kvreport.catalog.load import Catalog
from kvreport.catalog.release import oldest_computed
from kvreport.errors import InputError
from kvreport.estimation import estimate

STARTING = ("fits", "tight")
"""Verdicts that predict a start; the same as for logs."""


@dataclass(frozen=True, slots=True)
class JudgedStart:
    """One case with what was predicted for it."""

    case: KnownStart  # The documented case.
    starts: bool  # Whether a start is predicted.
    verdict: str  # The estimate's verdict; ``refused`` where the question itself is refused.
    reason: str  # Why, in words; empty where the verdict says all.

    @property
    def right(self) -> bool:
        """True if the prediction is what happened."""
        return self.starts == self.case.starts


def judge_starts(
    catalog: Catalog,
    cases: Iterable[KnownStart] | None = None,
    judge: Callable[[Catalog, KnownStart], JudgedStart] | None = None,
) -> tuple[JudgedStart, ...]:
    """Predict every documented start and refusal, those beside the catalog by default; releases too old to compute are left out."""
    if cases is None:
        known = KnownStarts.read(catalog.folder)
        cases = () if known is None else known.cases
    return tuple((judge or judge_start)(catalog, case) for case in cases if not is_too_old(catalog, case))


def is_too_old(catalog: Catalog, case: KnownStart) -> bool:
    """True for a case of a release that is too old to be computed: it stays in the data and is not judged."""
    family, _, version = case.engine.partition("@")
    return oldest_computed(catalog.engines.values(), family, version) is not None


def judge_start(catalog: Catalog, case: KnownStart) -> JudgedStart:
    """Predict one documented start or refusal."""
    try:
        found = estimate(case.model, gpu=case.gpu, catalog=catalog, engine=case.engine, **case.options)
    except InputError as error:
        return JudgedStart(case, starts=False, verdict="refused", reason=str(error))
    return JudgedStart(case, found.verdict in STARTING, found.verdict, found.verdict_reason)
