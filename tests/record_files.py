"""Records of the public catalog: as the data that a file would state, and those that many tests read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.observation import Observation, load_observations
from kvreport.catalog.strict_files import read_yaml
from kvreport.evidence.validation import Validation, validate
from kvreport.resources import data_dir


def each(records: Callable[[], Iterable[Any]]) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Hold every record against a test in one, and name those that fail: thousands of tests take longer than they test.

    Records are asked for by the test: what a module makes of the catalog, every process of a run would make.
    """

    def all_of(test: Callable[[Any], None]) -> Callable[[], None]:
        def run() -> None:
            wrong, every = [], tuple(records())
            assert every
            for record in every:
                try:
                    test(record)
                except (AssertionError, pytest.fail.Exception) as error:
                    wrong.append(f"{record.id}: {error}")
            assert not wrong, "\n".join(wrong)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return all_of


@cache
def observed() -> tuple[Observation, ...]:
    """The observations, read once by a process."""
    return load_observations(data_dir())


def observation(name: str) -> Observation:
    """The observation of an id."""
    (found,) = (one for one in observed() if one.id == name)
    return found


@cache
def validated() -> Validation:
    """All observations against what is computed of them, which takes seconds."""
    return validate(open_catalog())


def stated_record(name: str) -> Any:
    """What a file states; of an engine whose family's rules make its record, what a file of its own would state.

    Args:
        name: Such as ``models/Qwen--Qwen3-8B.yaml`` or ``engines/vllm-0.11.yaml``.
    """
    path = data_dir() / name
    if path.is_file() or not name.startswith("engines/"):
        return read_yaml(path, name)
    return open_catalog().engine(Path(name).stem).model_dump(mode="json", exclude_defaults=True)
