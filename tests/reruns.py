"""What needed a second try: named at the end of a run, and a failure where many did."""

from __future__ import annotations

import pytest

ALLOWED = 3
"""Tests of one run that may need a second try: a machine may stall for a moment, and more than that is a race."""


def tried_again(reporter: pytest.TerminalReporter | None) -> dict[str, str]:
    """Each test that was tried again, with what its first failure said."""
    reports = reporter.stats.get("rerun", []) if reporter else []
    return {one.nodeid: _said(one.longreprtext) for one in reports}


def _said(failure: str) -> str:
    lines = failure.strip().splitlines() or ["?"]
    told = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")][:4]
    return " ".join(told or lines[-1:])[:600]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name them, whatever the run's verbosity."""
    again = tried_again(terminalreporter)
    if not again:
        return
    terminalreporter.section(f"tried again: {len(again)}, allowed: {ALLOWED}")
    for name, why in again.items():
        terminalreporter.write_line(f"{name}\n    {why}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which more than :data:`ALLOWED` tests needed a second try."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if len(tried_again(reporter)) > ALLOWED and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
