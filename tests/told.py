"""Deployments against estimates of servers that are told to run as many requests at once as the command says."""

from typing import Any

from kvreport.accounting.offers import Solution
from kvreport.estimation import estimate


def held_as_told(found: Solution, model: str, asked: dict[str, Any]) -> None:
    """A server that is told so many requests holds them, and one that is told one more on each rank does not."""
    ranks = found.layout.data
    flag = found.users_each // ranks
    assert estimate(model, max_seqs=flag, **asked).max_concurrent_requests_by_memory >= found.users_held
    if found.users_held == found.users_each:
        more = estimate(model, max_seqs=flag + 1, **asked).max_concurrent_requests_by_memory
        assert more <= found.users_held
