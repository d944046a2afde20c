"""The release of a log that does not name it: by where in the source its lines were written, or by its day.

``[kv_cache_utils.py:1711]`` stands before a line of 0.20.0 and of no other release; ``data/vllm_releases.yaml`` has
the places of every release that was read, and the day that it was built. A build between releases has places of its
own and is not guessed by them. SGLang's lines have no places, and a whole date: ``data/sglang_releases.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import SCHEMA_VERSION, Record, Text
from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Day, Observation
from kvreport.catalog.release import version_number
from kvreport.catalog.shelf import read_if_there
from kvreport.resources import data_dir
from kvreport.startup_log.patterns import patterns

_OF_MAIN: Final = re.compile(r"(\d+\.\d+)\.\d+rc\d+\.dev(\d+)")
COMMITS_A_DAY: Final = 37
"""Commits to vLLM's main branch, of the one build whose day its name states: ``0.23.1rc1.dev1431`` of 23 July 2026, 38 days after
0.23.0 was built. Not fitted."""

_WHOLE_DAY: Final = len("2026-08-03")
_PLACE: Final = re.compile(r"[\[ ]([a-z_]{3,40}\.py):(\d{1,5})[\]) ]")


class KnownRelease(Record):
    """One release."""

    built: Day
    lines: tuple[Text, ...] = ()  # Where it writes the lines that a log is read by.


class ReleasesFile(Record):
    """The content of ``vllm_releases.yaml`` and ``sglang_releases.yaml``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    releases: Annotated[dict[Text, KnownRelease], Field(min_length=1)]


def places(lines: Iterable[str]) -> frozenset[str]:
    """Files and line numbers that the lines of a log begin with, such as ``gpu_worker.py:440``."""
    return frozenset(f"{name}:{number}" for line in lines for name, number in _PLACE.findall(line[:200]))


def release_of_places(found: frozenset[str]) -> str | None:
    """The one release that most of the places belong to; None if none, or several equally, do.

    Args:
        found: From :func:`places`.
    """
    counts = {release: len(found & set(known.lines)) for release, known in _known().items()}
    most = max(counts.values(), default=0)
    best = [release for release, count in counts.items() if count == most]
    if most == 0:
        return None
    # Patch releases of one minor release behave alike where their places are the same.
    return best[-1] if len({version_number(release)[:2] for release in best}) == 1 else None


def release_of_day(day: str, family: str = "vllm") -> str | None:
    """The newest release that had been built on a day (``2026-08-03``); None before the first that was read.

    Args:
        day: The day.
        family: The engine, ``vllm`` or ``sglang``.
    """
    known = sorted((release.built, version_number(name), name) for name, release in _known(family).items())
    return next((name for built, _, name in reversed(known) if built <= day), None)


@cache
def _known(family: str = "vllm") -> dict[str, KnownRelease]:
    found = read_if_there(ReleasesFile, data_dir(), f"{family}_releases.yaml")
    return {} if found is None else found.releases


def vllm_release(observation: Observation, model: Model | None = None) -> str | None:
    """The release of a vLLM log: as stated, else as the places of its lines tell, else as its day does.

    A log is no older than ``model`` and the releases that first wrote its lines. Of a month or a year alone, it is no older than
    the first release that serves the model's class, which images of a day may serve before.
    """
    stated, day = observation.engine_version, observation.origin.date
    if stated is not None and version_number(stated):
        return _of_main(stated, day) or stated
    told = release_of_places(places(observation.origin.lines))
    if told is not None or day is None:
        return told
    made = (model and model.release) or day
    firsts = [release_of_day(max(day, made)), *_first_with(observation.origin.lines)]
    if model is not None and len(day) < _WHOLE_DAY:
        firsts.append(_first_serving(model.architecture))
    return max(filter(None, firsts), key=version_number, default=None)


def _of_main(version: str, day: str | None) -> str | None:
    """The release that was built next after a build of the main branch, where others were cut between it and its number.

    The branch keeps the number of an older release while later ones are cut from it: ``0.26.1rc1.dev1108`` of 23 August 2026, two
    days before 0.28.0, has its caching of states. Commits tell the day of a build, which is none after its log's.
    """
    found = _OF_MAIN.match(version)
    number = "" if found is None else f"{found[1]}.0"
    if found is None or number not in _known():
        return None
    built = date.fromisoformat(_known()[number].built) + timedelta(days=int(found[2]) // COMMITS_A_DAY)
    made = min(filter(None, (built.isoformat(), day)))
    later = [
        name for name in _known() if version_number(name) > version_number(number) and name.endswith(".0")
    ]
    after = [name for name in later if _known()[name].built > made]
    return after[0] if after and after[0] != later[0] else None


@cache
def _first_serving(architecture: str) -> str | None:
    """The first release that was read and serves a class; None where none does."""
    known = ClassLists(data_dir()).of("vllm")
    spans = [] if known is None else known.spans(architecture)
    return spans[0][0] if spans else None


def _first_with(lines: Iterable[str]) -> Iterator[str]:
    """The first release that writes each of these lines, where it is known."""
    known = [one for one in patterns() if one.engine == "vllm" and one.line.since]
    return (one.line.since or "" for text in lines for one in known if one.search(text))


def sglang_release(observation: Observation, model: Model | None = None) -> str | None:  # noqa: ARG001 - as the other
    """The release of an SGLang log: as stated, else as its day tells; None for the current rules."""
    stated, day = observation.engine_version, observation.origin.date
    if stated is not None or day is None:
        return stated
    return release_of_day(day, "sglang") or _OLDEST_SGLANG


_OLDEST_SGLANG: Final = "0.5.9"
"""Logs older than every release that was read are judged by the oldest rules."""


RELEASE_OF: Final[Mapping[str, Callable[[Observation, Model | None], str | None]]] = {
    "sglang": sglang_release,
    "vllm": vllm_release,
}
"""How the release of a published log is found, by engine family; the rules of others do not differ by release."""
