"""``kvreport export`` and ``kvreport init``: the site as plain files, and a site of one's own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvreport.cli.output import Add, add_data_option, write
from kvreport.errors import InputError


def register(add: Add) -> None:
    """Add the commands."""
    export = add(
        "export",
        _export,
        "Write the site's pages as plain files, for another site engine or none.",
        "Pages appear whole or not at all.",
    )
    for gone in ("--as", "--docs"):
        export.add_argument(gone, dest=gone.strip("-"), help=argparse.SUPPRESS)
    export.add_argument("--out", required=True, metavar="DIR", type=Path, help="folder to write")
    add_data_option(export)
    export.add_argument("--models", default="*", metavar="GLOB", help="models by id (default: all)")
    export.add_argument("--gpus", default="*", metavar="GLOB", help="accelerators by id (default: all)")
    export.add_argument("--no-dataset", action="store_true", help="leave the dataset out")
    export.add_argument(
        "--releases",
        metavar="DIR",
        type=Path,
        help="data releases published before (data/releases/ of the site); checked, and kept at their addresses",
    )
    export.add_argument(
        "--cache", default=".cache/kvreport", metavar="DIR", help="keeps drawings between runs"
    )
    export.add_argument("--site-url", default="", metavar="URL", help="where the site will stand")

    init = add(
        "init",
        _init,
        "Write a small, working site project: configuration, a catalog of one model, CI files.",
        "Then: mkdocs build --strict. Its requirements name every package by hash.",
    )
    init.add_argument("dir", metavar="DIR", type=Path, help="folder to write; absent or empty")
    init.add_argument(
        "--model", default="meta-llama/Llama-3.1-8B-Instruct", help="example model (catalog name)"
    )
    init.add_argument(
        "--wheel",
        type=Path,
        metavar="FILE",
        help="wheel of kvreport that the project shall hold, pinned by its hash",
    )
    init.add_argument("--gpu", default="h100-sxm-80gb", help="example accelerator (catalog name)")


def _export(options: argparse.Namespace) -> int:
    from kvreport.adapters.export import export

    # Until the release after the first, for scripts that still name what is gone.
    if vars(options)["as"] not in (None, "html"):
        raise InputError(
            f"as: found {vars(options)['as']}; the Markdown project for other engines is gone; allowed: nothing, for pages as "
            "plain files, each with its text as Markdown next to it (index.md)"
        )
    if options.docs is not None:
        raise InputError(
            "docs: found a folder; pages with numbers of their own are built by the MkDocs plugin alone"
        )
    count = export(
        options.out,
        data=None if options.data is None else Path(options.data),
        models=options.models,
        gpus=options.gpus,
        cache=Path(options.cache),
        dataset=not options.no_dataset,
        releases=options.releases,
        site_url=options.site_url,
        progress=lambda line: write(line, sys.stderr),
    )
    write(f"{count:,} pages in {options.out}")
    return 0


def _init(options: argparse.Namespace) -> int:
    from kvreport.adapters.scaffold import scaffold

    files = scaffold(options.dir, model=options.model, gpu=options.gpu, wheel=options.wheel)
    write(f"{len(files)} files in {options.dir}; next: cd {options.dir} && mkdocs build --strict")
    return 0
