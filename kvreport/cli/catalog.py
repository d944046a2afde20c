"""``kvreport model`` and ``kvreport check``: writing and validating a catalog."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvreport.cli.output import Add, add_data_option, write, write_text


def register(add: Add) -> None:
    """Add the commands."""
    model = add("model", _model, "Print a Hugging Face config.json as a catalog entry (YAML).")
    model.add_argument("config", metavar="CONFIG.JSON", help="the file, or a folder that holds one")
    model.add_argument("--id", metavar="ORG/NAME", help="id of the model, if the file does not say it")

    check = add("check", _check, "Validate a catalog and print every fault at once.")
    where = check.add_mutually_exclusive_group()
    where.add_argument(
        "folder", nargs="?", metavar="DATA", help="folder of the catalog (default: the one of this package)"
    )
    add_data_option(where)


def _model(options: argparse.Namespace) -> int:
    from kvreport.architectures import read_config
    from kvreport.catalog.load import dump_model

    write_text(dump_model(read_config(options.config, id=options.id)))
    return 0


def _check(options: argparse.Namespace) -> int:
    from kvreport.catalog.load import load_catalog

    stated = options.data if options.folder is None else options.folder
    catalog = load_catalog(stated)
    shelves = {"model": catalog.models, "accelerator": catalog.accelerators, "engine": catalog.engines}
    counts = ", ".join(f"{len(one)} {name}{'s' * (len(one) != 1)}" for name, one in shelves.items())
    write(f"{'catalog of this package' if stated is None else stated}: {counts}; no fault found")
    own = Path("data")
    if stated is None and (own / "models").is_dir() and not own.samefile(catalog.folder):
        write("data/ of this folder was not checked; to check it: kvreport check data", stream=sys.stderr)
    return 0
