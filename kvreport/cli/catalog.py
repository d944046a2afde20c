"""``kvreport model`` and ``kvreport check``: writing and validating a catalog."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvreport.cli.output import write, write_text


def print_model(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.architectures import read_config
    from kvreport.catalog.dump import dump_model

    write_text(dump_model(read_config(options.config, id=options.id)))
    return 0


def check_catalog(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.accounting.weights import contradiction
    from kvreport.catalog.load import load_catalog
    from kvreport.errors import CatalogError

    stated = options.data if options.folder is None else options.folder
    catalog = load_catalog(stated)
    found = [contradiction(model, catalog.weight_formats) for model in catalog.models.values()]
    if faults := tuple(fault for fault in found if fault is not None):
        raise CatalogError(faults)
    shelves = {"model": catalog.models, "accelerator": catalog.accelerators, "engine": catalog.engines}
    counts = ", ".join(f"{len(one)} {name}{'s' * (len(one) != 1)}" for name, one in shelves.items())
    write(f"{'catalog of this package' if stated is None else stated}: {counts}; no fault found")
    own = Path("data")
    if stated is None and (own / "models").is_dir() and not own.samefile(catalog.folder):
        write("data/ of this folder was not checked; to check it: kvreport check data", stream=sys.stderr)
    return 0
