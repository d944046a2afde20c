"""The traces that ship with kvreport, and what others have published about them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict

from kvreport.errors import InputError
from kvreport.resources import data_dir
from kvreport.traffic.readers import read_trace
from kvreport.traffic.trace import Trace

FOLDER: Final = "traffic"


class ShippedTrace(BaseModel):
    """One trace of ``data/traffic/``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str  # Its name on the command line and in addresses.
    label: str  # What people call it.
    what: str  # One sentence about it.
    file: str
    requests: int
    block_tokens: int  # Tokens of one prefix block.
    source: str  # Repository and path that it was taken from.
    url: str  # Where that is.
    commit: str  # The commit it was taken from.
    license: str  # License of the original, as an SPDX identifier.
    attribution: str  # Who made it.

    @property
    def path(self) -> Path:
        """Where the file is."""
        return data_dir() / FOLDER / self.file


@lru_cache(maxsize=1)
def shipped_traces() -> dict[str, ShippedTrace]:
    """The traces that ship with kvreport, by key."""
    found = _read("traces.yaml")
    return {one["key"]: ShippedTrace.model_validate(one) for one in found["traces"]}


def published_checks() -> dict[str, Any]:
    """What others have published about the shipped traces (``data/traffic/checks.yaml``)."""
    return _read("checks.yaml")


def open_trace(
    name: str | Path, *, block_tokens: int | None = None, rate: float | None = None, limit: int | None = None
) -> Trace:
    """Read a file or folder, or a shipped trace by its key (``name``); the other arguments are those of :func:`~.readers.read_trace`.

    Raises:
        InputError: If there is neither, or the trace is faulty.
    """
    known = shipped_traces()
    if isinstance(name, str) and name in known and not Path(name).exists():
        return replace(read_trace(known[name].path, rate=rate, limit=limit), name=name)
    if not Path(str(name)).exists():
        raise InputError(
            f"trace: found neither a file {str(name)!r} nor a trace of that name; allowed: a file, a folder of "
            f"sessions, or {', '.join(known)}"
        )
    return read_trace(name, block_tokens=block_tokens, rate=rate, limit=limit)


def _read(file: str) -> dict[str, Any]:
    path = data_dir() / FOLDER / file
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise InputError(f"{path}: found no mapping; allowed: a mapping")
    return found
