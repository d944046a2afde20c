"""``kvreport matrix``: the dataset, published or partitioned."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kvreport.cli.output import progress, write

if TYPE_CHECKING:
    from kvreport.accounting.parallel import Layout


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import load_catalog
    from kvreport.dataset.data_version import data_version
    from kvreport.dataset.grid import axes, parse_shard
    from kvreport.dataset.partitions import write_partitioned
    from kvreport.dataset.write import publish
    from kvreport.errors import InputError

    shard = parse_shard(options.shard)
    given = {"shard": shard != (1, 1), "replace": options.replace, "scheduler": options.scheduler is not None}
    for name in (name for name, is_given in given.items() if is_given and not options.partitioned):
        raise InputError(f"{name}: found it without --partitioned; allowed: together with it")
    if options.workers is not None and options.workers < 1:
        raise InputError(f"workers: found {options.workers}; allowed: a whole number of at least 1")
    contexts = None if options.contexts is None else parse_contexts(options.contexts)
    sizes = (
        None
        if options.tensor_parallel is None
        else _whole_numbers("tensor-parallel", options.tensor_parallel)
    )
    catalog = load_catalog(options.data)
    chosen = axes(
        catalog,
        models=options.models,
        gpus=options.gpus,
        contexts=contexts,
        tensor_parallel=sizes,
        layouts=parse_layouts(options.layouts),
        weights=_names(options.weights),
        kv=_names(options.kv),
        engine=options.engine,
    )
    out = Path(options.out)
    if options.partitioned:
        with ExitStack() as running:
            writer = None
            if options.scheduler is not None:
                from kvreport.dataset.cluster import writer_on

                writer = running.enter_context(writer_on(options.scheduler))
            rows = write_partitioned(
                chosen, out, shard=shard, replace=options.replace, progress=progress, write=writer
            )
        write(f"{rows:,} rows in {options.out}")
        return 0
    release = publish(
        catalog,
        chosen,
        out,
        version=data_version(catalog.folder),
        workers=options.workers,
        progress=progress,
    )
    write(
        f"data release {release.version} in {options.out}: {', '.join(file.name for file in release.files)}"
    )
    return 0


def parse_contexts(text: str) -> list[int]:
    """Read ``8K,32K`` and ranges ``1K..128K/1K``.

    Raises:
        InputError: If a part is neither.
    """
    from kvreport.dataset.grid import MAX_CONTEXTS
    from kvreport.errors import InputError, shorten
    from kvreport.units import parse_tokens

    found: list[int] = []
    for part in text.split(","):
        first, dots, rest = part.strip().partition("..")
        try:
            if not dots:
                found.append(parse_tokens(first))
                continue
            last, slash, step = rest.partition("/")
            low, high, by = parse_tokens(first), parse_tokens(last), parse_tokens(step if slash else "1")
        except InputError as error:
            raise InputError(f"contexts: {error}, or a range such as 1K..128K/1K") from error
        if high < low or (high - low) // by >= MAX_CONTEXTS:
            raise InputError(
                f"contexts: found the range {shorten(part)}; allowed: ascending, "
                f"at most {MAX_CONTEXTS:,} contexts"
            )
        found.extend(range(low, high + 1, by))
    return found


def parse_layouts(text: str | None) -> list[Layout] | None:
    """Read names of layouts, with commas between; None for none."""
    from kvreport.accounting import parallel

    return None if text is None else [parallel.Layout.named(name) for name in text.split(",")]


def _whole_numbers(name: str, text: str) -> list[int]:
    from kvreport.errors import InputError, shorten

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"{name}: found {shorten(text)}; allowed: whole numbers such as 1,2,4,8")
    return [int(part) for part in parts]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]
