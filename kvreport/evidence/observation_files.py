"""Start-up observations from a file of the user's own: YAML as in ``data/observations``, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvreport.catalog.observation import Observation
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError, InputError, shorten
from kvreport.startup_log.llama_cpp import looks_like_llama_cpp
from kvreport.startup_log.reading import MAX_CHARACTERS, MAX_LINES, read_log

MAX_BYTES: Final = 64 << 20
LINES: Final = (".jsonl", ".ndjson")


_LOG: Final = (
    "{}: found an engine's start-up log; allowed: a file of observations (kvreport log FILE reads a log)"
)


def read_observations(path: Path) -> tuple[Observation, ...]:
    """Read every observation of a file.

    A file is YAML or JSON with a list of records, or the list under ``observations`` as in the catalog;
    a ``.jsonl`` file has one record in each line. A record may stand under ``observation``, beside other keys;
    a line whose ``observation`` is null says why there is none, and is passed over.

    Raises:
        InputError: For the first record that is none: file, record, field, what was found and what is allowed.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: found {path.stat().st_size:,} bytes; allowed: at most {MAX_BYTES:,}")
        records = list(_lines(path) if path.suffix.lower() in LINES else _listed(path))
    except OSError as error:
        raise InputError(
            f"{path}: found {error.strerror or error}; allowed: a file of observations"
        ) from error
    if not records:
        raise InputError(f"{path}: found no record; allowed: one observation or more")
    return tuple(_record(data, where) for data, where in records if not _says_why(data))


def _lines(path: Path) -> Iterator[tuple[object, str]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            try:
                yield json.loads(line), where
            except ValueError as error:
                raise InputError(
                    f"{where}: found {shorten(line[:60])} ({error}); allowed: a JSON object"
                ) from error


def _listed(path: Path) -> Iterator[tuple[object, str]]:
    try:
        content = read_yaml(path, str(path))
    except CatalogError as error:
        if _is_log(path):
            raise InputError(_LOG.format(path)) from error
        raise InputError(str(error.faults[0])) from error
    if isinstance(content, dict) and "observations" in content:
        content = content["observations"]
    elif isinstance(content, dict):
        content = [content]
    if isinstance(content, str) and _is_log(path):
        raise InputError(_LOG.format(path))
    if not isinstance(content, list):
        found = "nothing" if content is None else f"a {type(content).__name__}"
        raise InputError(f"{path}: found {found}; allowed: a list of observations, or observations: [...]")
    for number, data in enumerate(content):
        yield data, f"{path}: observations.{number}"


def _is_log(path: Path) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")[:MAX_CHARACTERS]
    lines = "\n".join(text.splitlines()[:MAX_LINES])
    return bool(lines.strip()) and (looks_like_llama_cpp(lines) or read_log(lines).engine is not None)


def _says_why(data: object) -> bool:
    return isinstance(data, dict) and "observation" in data and data["observation"] is None


def _record(data: object, where: str) -> Observation:
    if isinstance(data, dict) and isinstance(data.get("observation"), dict):
        data = data["observation"]
    name = data.get("id") if isinstance(data, dict) else None
    place = f"{where} ({name})" if isinstance(name, str) else where
    try:
        return validate(Observation, data, place)
    except CatalogError as error:
        raise InputError(str(error.faults[0])) from error
