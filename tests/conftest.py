"""What every test may ask for."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ensure_chromium
import fuzzing
import pytest
import reruns
import yaml
from reruns import pytest_sessionfinish
from tiny import build_site, tiny_site

from kvreport.catalog.load import Catalog, open_catalog
from kvreport.processes import collect_garbage_less

__all__ = [
    "build_site",
    "pytest_sessionfinish",
    "tiny_site",
]  # fixtures that several folders ask for, and a hook

fuzzing.load_profile()

REPOSITORY = Path(__file__).resolve().parent.parent


NIGHTLY = yaml.safe_load((Path(__file__).parent / "nightly.yaml").read_text(encoding="utf-8"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Under ``-n auto``, one worker more than processors: a worker in a browser's tests waits a third of its time.

    PYTEST_XDIST_AUTO_NUM_WORKERS still says another number.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``make nightly`` runs, by the one list of it; a line of the list that names no test is an error."""
    unmatched = {start: True for group in NIGHTLY for start in group["tests"]}
    files = {start.partition("::")[0] for start in unmatched}
    for item in items:
        for group in NIGHTLY if item.nodeid.partition("::")[0] in files else ():
            matches = [start for start in group["tests"] if item.nodeid.startswith(start)]
            unmatched.update(dict.fromkeys(matches, False))
            if matches and not item.nodeid.endswith(tuple(group.get("but", ()))):
                item.add_marker(pytest.mark.nightly)
    if config.args == config.getini("testpaths") and any(unmatched.values()):
        gone = "\n".join(start for start, missing in unmatched.items() if missing)
        raise pytest.UsageError(f"tests/nightly.yaml names tests that there are not:\n{gone}")


def pytest_collection_finish() -> None:
    """Never scan the modules and tests that were read: collections took a third of the time of a local estimate."""
    collect_garbage_less()


def pytest_unconfigure() -> None:
    """Let go of them at the end, so that no library calls them leaked."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The public catalog, opened once."""
    return open_catalog()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """A Chromium that runs. None is a failure, not a skip: a green run has looked at real pages."""
    found = ensure_chromium.find()
    if found is None:
        pytest.fail("no Chromium: run `make test`, which finds or installs one")
    return found


@pytest.fixture(scope="session")
def chromium_flags() -> list[str]:
    """The flags under which it starts in a container, and calls nobody."""
    return list(ensure_chromium.FLAGS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put what a test fuzzed on its report, which travels from a worker to the terminal."""
    report = yield
    if report.when == "call":
        report.user_properties += [(f"fuzzed {what}", n) for what, n in fuzzing.take_counts(item).items()]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which tests were tried again, and how many inputs were tried, when fuzzing."""
    reruns.pytest_terminal_summary(terminalreporter)
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, count in getattr(report, "user_properties", ()):
                if name.startswith("fuzzed "):
                    total[name.removeprefix("fuzzed ")] += count
    if total and fuzzing.TIMES > 1:
        words = ", ".join(f"{count:,} {what}" for what, count in sorted(total.items()))
        terminalreporter.write_line(f"fuzzed: {words}")
