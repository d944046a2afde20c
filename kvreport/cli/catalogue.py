"""``kvreport model`` and ``kvreport check``: writing and validating a catalogue."""

from __future__ import annotations

import argparse

from kvreport.cli.output import Add, write, write_text


def register(add: Add) -> None:
    """Add the commands."""
    model = add("model", _model, "Print a Hugging Face config.json as a catalog entry (YAML).")
    model.add_argument("config", metavar="CONFIG.JSON", help="the file, or a folder that holds one")
    model.add_argument("--id", metavar="ORG/NAME", help="id of the model, if the file does not say it")

    check = add("check", _check, "Validate a catalog and print every fault at once.")
    check.add_argument(
        "data", nargs="?", metavar="DATA", help="folder of the catalog (default: the one of this package)"
    )


def _model(options: argparse.Namespace) -> int:
    from kvreport.architectures import read_config
    from kvreport.catalog.load import dump_model

    write_text(dump_model(read_config(options.config, id=options.id)))
    return 0


def _check(options: argparse.Namespace) -> int:
    from kvreport.catalog.load import load_catalogue

    catalogue = load_catalogue(options.data)
    write(
        f"{len(catalogue.models)} models, {len(catalogue.accelerators)} accelerators, "
        f"{len(catalogue.engines)} engines: no fault found"
    )
    return 0
