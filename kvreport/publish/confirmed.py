"""How well an engine's rules are confirmed by start-up logs, in a sentence for every answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvreport.catalog.engine import Engine
from kvreport.catalog.left_out import LeftOut, load_left_out
from kvreport.catalog.load import Catalog


def confirmed(catalog: Catalog, engine: Engine) -> str:
    """Say how well an engine's rules are confirmed by logs; nothing for one that no logs were kept of.

    Args:
        catalog: The facts, whose folder has the errors on sources left out.
        engine: The engine's record, of one release.
    """
    found = _known(catalog.folder)
    if found is None:
        return ""
    errors = found.of_family(engine.family)
    if errors is None:
        return ""
    return (
        f"Checked with {errors.logs} start-up logs, {errors.records.get(engine.name, 0)} of this release: KV tokens "
        f"are off by {errors.median_error:.1%} in the median."
    )


@cache
def _known(folder: Path) -> LeftOut | None:
    return load_left_out(folder)
