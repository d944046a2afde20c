"""The matrix as a partitioned folder: constant memory, shards, and runs that go on where they ended.

A file is on the disk before it takes its name, and nothing in it depends on when or where it was
computed. So a run that was interrupted goes on with the files that are missing, shards of several
machines complete each other, and running a finished command again computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvreport.atomic.files import write_whole
from kvreport.dataset import arrow
from kvreport.dataset.grid import Axes
from kvreport.dataset.manifest import Manifest, enter
from kvreport.dataset.matrix import cube_of
from kvreport.dataset.write import parquet_options
from kvreport.errors import InputError

Writer = Callable[[Path, Iterable[Axes]], Iterator[int]]
"""What computes and writes files of a folder, one for each part of the axes, and yields the rows of each."""


def write_piece(folder: Path, piece: Axes) -> int:
    """Compute one file unless it is there, and return its rows; a piece without rows has no file.

    Raises:
        InputError: If the folder cannot be written.
    """
    path = folder / f"model_slug={piece.models[0].slug}" / f"{piece.accelerators[0].id}.parquet"
    known = rows_of(path)
    if known is not None:
        return known
    cube = cube_of(piece.models[0], piece)
    if not cube.rows:
        return 0
    table = arrow.capacity_table(cube)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **parquet_options())
    try:
        write_whole(path, sink.getvalue().to_pybytes(), durable=True)
    except OSError as error:
        raise InputError(
            f"out: found {path.name} not writable, {error.strerror or error}; allowed: a folder with room; the "
            "same command goes on where this one ended"
        ) from error
    rows: int = table.num_rows
    return rows


def rows_of(path: Path) -> int | None:
    """Return a file's rows; None if it is not there or not whole."""
    try:
        rows: int = pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowInvalid):
        return None
    return rows


def write_partitioned(
    axes: Axes,
    out: Path,
    *,
    shard: tuple[int, int] = (1, 1),
    replace: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    write: Writer | None = None,
) -> int:
    """Stream the matrix, or one shard of it, into a partitioned Parquet dataset in constant memory.

    Args:
        axes: What the matrix combines.
        out: The folder. It is new, or of an earlier run of the same axes, which goes on.
        shard: ``(i, n)``: only the i-th of n parts, from 1.
        replace: Whether rows over other axes in the folder are removed first.
        progress: Told how far it is.
        write: What computes and writes the files; None for this process, one after the other.

    Returns:
        The number of rows of the shard.

    Raises:
        InputError: If the folder holds rows over other axes, or cannot be written.
    """
    enter(out, Manifest.of(axes, shard[1]), replace=replace)
    rows = files = 0
    for written in (write or _written)(out.resolve(), axes.shard(*shard)):
        rows += written
        files += bool(written)
        progress(f"{rows:,} rows in {files:,} files")
    finish(out, shard, rows, files)
    return rows


def _written(folder: Path, work: Iterable[Axes]) -> Iterator[int]:
    return (write_piece(folder, piece) for piece in work)


def finish(out: Path, shard: tuple[int, int], rows: int, files: int) -> None:
    """Note that a shard is complete, with what it holds."""
    number, of = shard
    content = {"shard": number, "of": of, "rows": rows, "files": files}
    name = f"_shard-{number:0{len(str(of))}d}-of-{of}.json"
    write_whole(out / name, (json.dumps(content, sort_keys=True) + "\n").encode(), durable=True)
