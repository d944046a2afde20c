"""What changed between two releases of the data, found by comparing them.

Each release leaves a snapshot, ``data/releases/<version>.json``: a few figures per model and per
accelerator, small enough to keep for ever. The changelog on the data page compares each with the
one before, and the catalog as it stands with the latest. Written by ``scripts/snapshot.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from kvreport import units
from kvreport.accounting.weights import parameters
from kvreport.catalog.base import Record, Text
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_json
from kvreport.publish.site_data import SiteData
from kvreport.resources import read_table

FOLDER: Final = "releases"
Figure = Annotated[int, Field(ge=0, lt=1 << 63)]
_MODEL_FIGURES: Final[dict[str, str]] = read_table("figures of a release")
_NAMED: Final = 12
"""How many changed entries a line names before it counts the rest."""


class Snapshot(Record):
    """The figures of one release that a later one is compared with."""

    version: Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}\.[0-9]{2}\.[0-9]{2}$")]
    engine: Text  # Label of the engine that they were computed for.
    gpu: Text | None = None  # The accelerator that they were computed on.
    models: dict[Text, dict[Text, Figure]]  # Figures by name, for each model's id.
    gpus: dict[Text, Figure]  # Usable memory in bytes, for each accelerator's slug.


@dataclass(frozen=True, slots=True)
class Changes:
    """What one release changed."""

    version: str
    lines: tuple[str, ...]


def snapshot(site: SiteData) -> dict[str, Any]:
    """Return the figures of a release that a later one is compared with."""
    gpu = site.known_gpus[0]
    models: dict[str, dict[str, int]] = {}
    for model in site.models:
        one = site.capacities[model.id].known
        figures = {"parameters": parameters(model)}
        if one is not None:
            place = min(range(len(one.contexts)), key=lambda n, c=one.contexts: abs(c[n] - 8192))  # type: ignore[misc]
            figures["weight_bytes"] = one.weight_bytes
            figures["token_bytes"] = one.token_bytes[place]
            figures["request_bytes"] = one.request_bytes[place]
        models[model.id] = figures
    return {
        "version": site.version,
        "engine": site.engine.label,
        "gpu": gpu,
        "models": dict(sorted(models.items())),
        "gpus": {one.id: one.usable_bytes for one in sorted(site.gpus, key=lambda a: a.id)},
    }


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every release's figures: those of old releases stay at their address.

    Raises:
        CatalogError: If a kept snapshot cannot be read.
    """
    for one in _chain(site):
        text = json.dumps(one, ensure_ascii=False, separators=(",", ":"))
        yield address(one["version"]), text.encode()


def address(version: str) -> str:
    """Return the address in the site of a release's figures."""
    return f"data/{FOLDER}/{version}.json"


def history(site: SiteData) -> tuple[Changes, ...]:
    """Return what each release changed, the latest first.

    Raises:
        CatalogError: If a kept snapshot cannot be read.
    """
    chain = _chain(site)
    found = [Changes(chain[0]["version"], tuple(_first(chain[0])))]
    for before, after in pairwise(chain):
        found.append(Changes(after["version"], tuple(compare(before, after)) or ("No figure changed.",)))
    return tuple(reversed(found))


def _chain(site: SiteData) -> list[dict[str, Any]]:
    """The kept releases before this one, and this one."""
    return [*(one for one in _kept(site.catalog.folder) if one["version"] < site.version), snapshot(site)]


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each kind of change between two snapshots."""
    for kind, noun in (("models", "model"), ("gpus", "accelerator")):
        old, new = before[kind], after[kind]
        yield from _listed(f"New {noun}s", [name for name in new if name not in old])
        yield from _listed(f"Removed {noun}s", [name for name in old if name not in new])
    if before["engine"] != after["engine"]:
        yield f"Engine: {before['engine']} became {after['engine']}."
    for name, words in _MODEL_FIGURES.items():
        moved = [
            f"{model} ({units.count(was)} → {units.count(now)})"
            for model, figures in after["models"].items()
            if (now := figures.get(name)) is not None
            and (was := before["models"].get(model, {}).get(name)) is not None
            and now != was
        ]
        yield from _listed(f"Changed {words}", moved)
    moved = [
        f"{gpu} ({units.gib(before['gpus'][gpu])} → {units.gib(size)} GiB)"
        for gpu, size in after["gpus"].items()
        if before["gpus"].get(gpu, size) != size
    ]
    yield from _listed("Changed usable memory", moved)


def _first(release: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"First release: {units.count(len(release['models']))} models on "
        f"{units.count(len(release['gpus']))} accelerators, {release['engine']}."
    )


def _listed(title: str, names: list[str]) -> Iterator[str]:
    if not names:
        return
    rest = f" and {units.count(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    yield f"{title} ({units.count(len(names))}): {', '.join(names[:_NAMED])}{rest}."


def _kept(data: Path) -> list[dict[str, Any]]:
    found = [read_snapshot(path) for path in sorted((data / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda one: str(one["version"]))


def read_snapshot(path: Path) -> dict[str, Any]:
    """Read a kept snapshot.

    Raises:
        CatalogError: If it is none.
    """
    where = f"{FOLDER}/{path.name}"
    return validate(Snapshot, read_json(path, where), where).model_dump(exclude_none=True)
