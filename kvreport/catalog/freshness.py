"""How old the facts are: ``freshness.yaml``, which ``scripts/freshness.py --write`` makes from the history of the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import StringConstraints

from kvreport.catalog.base import Count, Record, Text
from kvreport.catalog.engine_classes import ClassLists
from kvreport.catalog.load import Catalog
from kvreport.catalog.observation import load_observations
from kvreport.catalog.shelf import CatalogFile
from kvreport.catalog.strict_files import read_yaml

Whole = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")]


@dataclass(frozen=True, slots=True)
class Newest:
    """What is newest of one kind."""

    kind: str  # What it is.
    name: str  # The id or the release.
    day: str = ""  # Its day or month; "" where nobody states it.
    family: str = ""  # The engine that it is a release of; "" for others.


class Checked(Record):
    """Files of one folder of the data, or one file."""

    name: Text  # The folder or the file.
    files: Count
    newest: Whole  # The day of the last change.
    oldest: Whole  # The day of the last change of the file that was changed the longest ago.
    oldest_file: Text


class Freshness(CatalogFile):
    """The content of ``freshness.yaml``."""

    FILE = "freshness.yaml"
    checked: Whole
    published: dict[str, Text]  # The newest release of each engine that its registry had on that day.
    data: tuple[Checked, ...]  # Every folder and file of the data.


def newest(catalog: Catalog) -> Iterator[Newest]:
    """Yield what is newest of each kind in a catalog: releases that were read, model, accelerator, log."""
    lists = ClassLists(catalog.folder)
    for path in sorted((catalog.folder / "engines").glob("*/classes.yaml")):
        family = path.parent.name
        read = lists.of(family)
        if read is None:
            continue
        release = read.changes[-1].at[-1]
        dated = catalog.folder / f"{family}_releases.yaml"
        built = read_yaml(dated, dated.name)["releases"].get(release, {}) if dated.is_file() else {}  # type: ignore[index]
        yield Newest("release whose source we read", release, str(built.get("built", "")), family)
    for kind, many in (("model", catalog.models), ("accelerator", catalog.accelerators)):
        one = max(many.values(), key=lambda record: (record.release or "", record.id), default=None)
        if one is not None:
            yield Newest(kind, one.name, one.release or "")
    logs = load_observations(catalog.folder)
    log = max(logs, key=lambda one: (one.origin.date or "", one.id), default=None)
    if log is not None:
        yield Newest("start-up log", log.id, log.origin.date or "")
