"""What every test may ask for."""

from __future__ import annotations

from pathlib import Path

import ensure_chromium
import fuzzing
import pytest
from tiny import build_site, tiny_site

__all__ = ["build_site", "tiny_site"]  # fixtures that several folders ask for

fuzzing.load_profile()

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


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
