"""``kvreport list``: what the catalog knows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kvreport.cli.output import table, write, write_json
from kvreport.units import human_bytes, human_parameters, human_tokens

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

Row = dict[str, Any]


_PRINTED: dict[str, Callable[[int], str]] = {
    "parameters": human_parameters,
    "context_tokens": human_tokens,
    "usable_bytes": human_bytes,
}
"""Columns of numbers, as a reader takes them in; JSON keeps what they are."""


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog

    rows = rows_of(open_catalog(options.data), options.what, options.pattern)
    if options.format == "json":
        write_json(rows)
        return 0
    if not rows:
        write(f"no {options.what} match {options.pattern!r}; kvreport list {options.what} lists all")
        return 0
    columns = [name for name in rows[0] if name != "aliases"]
    # What was asked for by its name comes first, then what contains the word: a model before its copies.
    rows.sort(key=lambda row: not _named(row, options.pattern))
    cells = [
        ["" if row[name] is None else _PRINTED.get(name, str)(row[name]) for name in columns] for row in rows
    ]
    head = [name.removesuffix("_bytes").removesuffix("_tokens").replace("_", " ") for name in columns]
    for line in table([head, *cells], "".join(">" if name in _PRINTED else "<" for name in columns)):
        write(line)
    return 0


def rows_of(catalog: Catalog, what: str, pattern: str = "*") -> list[Row]:
    """Return what matches a pattern, one object each.

    The ``pattern`` is a shell pattern, or a word that an id, a name or an alias contains.

    Raises:
        InputError: If there is no such list.
    """
    from kvreport.errors import InputError, shorten

    if what not in _KINDS:
        raise InputError(f"list: found {shorten(what)}; allowed: {', '.join(_KINDS)}")
    return [row for row in _KINDS[what](catalog) if _matches(row, pattern)]


def _matches(row: Row, pattern: str) -> bool:
    wanted = pattern.lower()
    if not any(sign in wanted for sign in "*?["):
        wanted = f"*{wanted}*"
    names = (row["id"], row.get("name", ""), *row.get("aliases", ()))
    return any(fnmatchcase(str(name).lower(), wanted) for name in names)


def _named(row: Row, pattern: str) -> bool:
    names = {str(name).lower() for name in (row["id"], row.get("name", ""), *row.get("aliases", ()))}
    return bool({pattern.lower()} & (names | {name.rpartition("/")[2] for name in names}))


def _models(catalog: Catalog) -> Iterator[Row]:
    from kvreport.accounting.weights import parameters

    for model in catalog.models.values():
        yield {
            "id": model.id,
            "name": model.name,
            "parameters": parameters(model),
            "context_tokens": model.context_tokens,
            "weight_format": model.weight_format,
            "aliases": list(model.aliases),
        }


def _gpus(catalog: Catalog) -> Iterator[Row]:
    every = {**catalog.accelerators, **catalog.home_accelerators}
    for device in sorted(every.values(), key=lambda one: one.id):
        yield {
            "id": device.id,
            "name": device.name,
            "vendor": device.vendor,
            "usable_bytes": device.usable_bytes,
            "aliases": list(device.aliases),
        }


def _engines(catalog: Catalog) -> Iterator[Row]:
    for engine in catalog.engines.values():
        first, end = engine.versions or (engine.version, None)
        yield {
            "id": engine.name,
            "name": engine.label,
            "family": engine.family,
            "from_version": first,
            "before_version": end,
            "aliases": list(engine.aliases),
        }


def _formats(catalog: Catalog) -> Iterator[Row]:
    for kind, forms in (("weights", catalog.formats.weights), ("kv", catalog.formats.kv)):
        for form in forms:
            yield {
                "id": form.name,
                "name": form.label,
                "kind": kind,
                "bits": form.bits,
                "aliases": list(form.aliases),
            }


_KINDS: dict[str, Callable[[Catalog], Iterator[Row]]] = {
    "models": _models,
    "gpus": _gpus,
    "engines": _engines,
    "formats": _formats,
}
