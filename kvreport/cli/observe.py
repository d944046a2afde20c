"""``kvreport observe``: a start-up log as a record that can be sent, with what is predicted now."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from kvreport.cli.log import read_text
from kvreport.cli.output import write_answer

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.catalog.observation import Observation


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    import yaml

    from kvreport.catalog.load import open_catalog
    from kvreport.startup_log.pasted_observation import observe

    known = open_catalog(options.data)
    found = observe(
        read_text(options.file), gpu=options.gpu, known=known, model=options.model, name=options.id
    )
    record = found.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    record["predicted"] = prediction(known, found)
    told: dict[str, Any] = {"schema_version": 1, "observations": [record]}
    style: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 120}
    write_answer(options.format, lambda: told, lambda: yaml.safe_dump(told, **style).splitlines())
    if found.origin.lines:
        print("Read the lines under origin before you send this record.", file=sys.stderr)
    return 0


def prediction(known: Catalog, observation: Observation) -> dict[str, Any]:
    """Return what is predicted of an observation now, as a record keeps it."""
    from kvreport import __version__
    from kvreport.dataset.data_version import data_version
    from kvreport.evidence.judgment import judge

    judged = judge(known, [observation])
    starts = [row["predicted"] for row in judged["starts"]]
    told = {
        "by": f"kvreport {__version__}, data release {data_version(known.folder)}",
        "starts": starts[0] if starts else None,
        "figures": [
            {name: row[name] for name in ("quantity", "predicted", "observed", "unit")}
            for row in judged["comparisons"]
        ],
        "not_compared": [row["reason"] for row in judged["not_compared"]],
    }
    return {name: value for name, value in told.items() if value not in (None, [])}
