"""How far an engine's rules were off on logs that nobody had seen, in a sentence for every answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.first_predictions import FirstSeen
from kvreport.catalog.load import Catalog
from kvreport.catalog.observation import load_observations
from kvreport.estimation.first_sight import expected, is_local, sentence
from kvreport.words import SENTENCES


def confirmed(catalog: Catalog, engine: Engine) -> str:
    """Say how far an engine's rules were off at first sight; nothing for one with too few logs."""
    found = _seen(catalog.folder)
    return "" if found is None else sentence(engine.family, found)


def expected_error(catalog: Catalog, engine: Engine) -> str:
    """The same in one line, which stands over the whole sentence."""
    found = _seen(catalog.folder)
    return "" if found is None else expected(engine.family, found)


@cache
def _seen(folder: Path) -> FirstSeen | None:
    return FirstSeen.read(folder)


def under(catalog: Catalog, engine: Engine, gpu: Accelerator | None = None) -> dict[str, str]:
    """What stands under an answer: the whole sentence, and the line over it where there is one."""
    whole = confirmed(catalog, engine) if gpu is None else confirmed_on(catalog, engine, gpu)
    line = expected_error(catalog, engine) if whole and whole != SENTENCES["no_log"] else ""
    return {"confirmed": whole, "expected": line}


def confirmed_on(catalog: Catalog, engine: Engine, gpu: Accelerator) -> str:
    """Say it under an answer on an accelerator: that no log is of it, where none is."""
    said = confirmed(catalog, engine)
    return said if not said or is_local(engine.family) or is_logged(catalog, gpu) else SENTENCES["no_log"]


def is_logged(catalog: Catalog, gpu: Accelerator) -> bool:
    """Whether a published start-up log is of an accelerator."""
    return gpu.id in _logged(catalog.folder)


@cache
def _logged(folder: Path) -> frozenset[str]:
    return frozenset(one.gpu for one in load_observations(folder) if one.gpu is not None)
