"""``kvreport gpu``: an accelerator's record from what its driver's tool prints."""

from __future__ import annotations

import argparse

from kvreport.cli.log import read_text
from kvreport.cli.output import write_text


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    import yaml

    from kvreport.catalog.driver_report import MAX_BYTES, records
    from kvreport.catalog.load import open_catalog
    from kvreport.errors import InputError

    text = read_text(options.file, MAX_BYTES)
    try:
        found = records(text, open_catalog(options.data))
    except InputError as error:
        raise InputError(f"{options.file}: {error}") from error
    dumps = (one.model_dump(mode="json", exclude_defaults=True) for one in found)
    # A file of the catalog is one document; several kinds of devices are several.
    write_text(
        "---\n".join(
            yaml.safe_dump({"schema_version": 1} | one, sort_keys=False, allow_unicode=True, width=110)
            for one in dumps
        )
    )
    return 0
