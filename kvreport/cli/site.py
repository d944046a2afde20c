"""``kvreport export`` and ``kvreport init``: the site as plain files, and a site of one's own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvreport.cli.output import write
from kvreport.errors import InputError


def write_export(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.adapters.export import export
    from kvreport.site.build import build

    # Until the release after the first, for scripts that still name what is gone.
    if vars(options)["as"] not in (None, "html"):
        raise InputError(
            f"as: found {vars(options)['as']}; the Markdown project for other engines is gone; allowed: nothing, for pages as "
            "plain files, each with its text as Markdown next to it (index.md)"
        )
    if options.docs is not None:
        raise InputError("docs: found a folder; only the MkDocs plugin builds pages that compute numbers")
    report = build(
        data=None if options.data is None else Path(options.data),
        models=options.models,
        gpus=options.gpus,
        cache=Path(options.cache),
        dataset=not options.no_dataset,
        releases=options.releases,
        site_url=options.site_url,
        progress=lambda line: write(line, sys.stderr),
    )
    export(report, options.out)
    write(f"{len(report.pages):,} pages in {options.out}")
    return 0


def write_project(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.adapters.scaffold import scaffold

    files = scaffold(options.dir, model=options.model, gpu=options.gpu, wheel=options.wheel)
    write(f"{len(files)} files in {options.dir}; next: cd {options.dir} && mkdocs build --strict")
    return 0
