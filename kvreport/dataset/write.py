"""The published files: the matrix as Parquet and CSV, small tables, metadata, checksums.

Models are computed and compressed in several processes; what comes out does not depend on how
many. A gzip file may consist of several members, so the CSV of all models is the CSVs of each
model, one after the other.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import deflate
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from kvreport import processes
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.dataset import arrow, small_tables
from kvreport.dataset.columns import ACCELERATORS, CAPACITY, MODELS, DatasetTable
from kvreport.dataset.grid import PIECE_ROWS, Axes, twins
from kvreport.dataset.kept import Kept, ModelFiles
from kvreport.dataset.manifest import refuse_partitions
from kvreport.dataset.matrix import Cube, matrix
from kvreport.dataset.metadata import DatasetRelease, Published, croissant, datapackage
from kvreport.dataset.staged_files import StagedFiles, available_processors, checksums, listed, staged
from kvreport.errors import InputError
from kvreport.resources import read_table

CSV_FILE_BYTES: Final = 100_000_000
"""A larger CSV is published in parts: common hosts take no file of more than 100 MB."""

_GZIP_LEVEL: Final = 1
"""Deflate at level 4 takes half as long again and makes the CSV a fifth smaller; whoever counts bytes takes Parquet."""

_ZSTD_LEVEL: Final = 3
_CSV_BATCH: Final = 1 << 16
_MANY_VALUED: Final[frozenset[str]] = frozenset(read_table("many-valued columns"))
"""Columns that a Parquet dictionary makes larger and slower."""

_FEW_ROWS: Final = 4_000_000
"""Combinations, fitting or not, that one process computes in the two seconds which a further one costs."""
_FORMULA_SIGNS: Final = ("=", "+", "-", "@")


def publish(
    catalog: Catalog,
    axes: Axes,
    out: Path,
    *,
    version: str,
    site_url: str = "",
    workers: int | None = None,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> DatasetRelease:
    """Write the dataset into a folder, whole or not at all.

    Args:
        catalog: The facts, for the small tables.
        axes: What the matrix combines.
        out: The folder: ``capacity.*``, ``models.csv``, ``accelerators.csv``, ``models/<slug>.*``,
            ``datapackage.json``, ``croissant.json``, ``SHA256SUMS``.
        version: The data's version.
        site_url: Where the files will stand, or "".
        workers: Processes; None for as many as there are processors, for a large matrix.
        cache: Folder that keeps each model's rows between builds; None keeps nothing.
        progress: Told how far it is.

    Raises:
        InputError: If the folder cannot be written, or what was computed contradicts its description.
    """
    header = gzip_member((",".join(CAPACITY.names) + "\n").encode())
    refuse_partitions(out)
    with staged(out) as staging:
        parts = _CsvParts(staging, header)
        rows = 0
        with pq.ParquetWriter(
            staging.path("capacity.parquet"), arrow.schema(CAPACITY), **parquet_options()
        ) as whole:
            for files in _all_models(axes, workers, None if cache is None else Kept(cache, axes)):
                rows += files.rows
                staging.write(f"models/{files.slug}.parquet", files.parquet)
                staging.write(f"models/{files.slug}.csv.gz", header + files.csv_body)
                parts.add(files.csv_body)
                pieces = pq.ParquetFile(pa.BufferReader(files.parquet))
                for number in range(pieces.num_row_groups):
                    whole.write_table(pieces.read_row_group(number))
                progress(f"{rows:,} rows")
        parts.close()
        small = (
            (MODELS, small_tables.model_rows(axes.models, catalog.weight_formats)),
            (ACCELERATORS, small_tables.accelerator_rows(axes.accelerators)),
        )
        for table, records in small:
            _require_sound(arrow.record_table(table, records), table)
            staging.write(f"{table.name}.csv", csv_text(table, records))
        release = DatasetRelease(
            version, _engine_words(axes), tuple(_published(staging, parts.names)), site_url
        )
        staging.write("datapackage.json", datapackage(release))
        staging.write("croissant.json", croissant(release))
        staging.write("SHA256SUMS", checksums(staging))
        # What an earlier release had and this one has not: models that are gone, further parts of the CSV.
        earlier = {*listed(out), *(path.name for path in out.glob("capacity*.csv.gz"))}
        staging.gone += sorted(earlier - {*staging.names})
    return release


def model_files(axes: Axes) -> list[ModelFiles]:
    """Compute the rows of models that have the same ones (:func:`kvreport.dataset.grid.twins`), and compress each's.

    Raises:
        InputError: If the rows contradict their description.
    """
    first, files = axes.models[0], [_Files(model) for model in axes.models]
    for cubes in _pieces(matrix(replace(axes, models=(first,)))):
        table = arrow.joined([arrow.capacity_table(cube) for cube in cubes])
        _require_sound(table, CAPACITY)
        # By device count before accelerator: lines of one size are alike over accelerators, so the
        # compressed file is smaller than in the order of the key.
        lines = [arrow.capacity_lines(cube) for cube in cubes]
        for one in files:
            one.add(table, lines, first)
    return [one.close() for one in files]


class _Files:
    """One model's files while they are written."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._parquet = io.BytesIO()
        self._writer = pq.ParquetWriter(self._parquet, arrow.schema(CAPACITY), **parquet_options())
        self._bodies: list[bytes] = []
        self._rows = 0

    def add(self, table: pa.Table, lines: Sequence[pa.Table], of: Model) -> None:
        """Add rows and their lines, which are of this model, or of one that has the same."""
        if of is not self._model:
            table, *lines = (arrow.renamed(one, of.id, self._model.id) for one in (table, *lines))
        self._writer.write_table(table)
        self._bodies.append(gzip_member(_csv_rows(lines)))
        self._rows += table.num_rows

    def close(self) -> ModelFiles:
        """Finish the files."""
        self._writer.close()
        return ModelFiles(self._model.slug, self._rows, self._parquet.getvalue(), b"".join(self._bodies))


def _pieces(cubes: Iterator[Cube]) -> Iterator[list[Cube]]:
    """Yield cubes together while their rows are a piece: fewer and larger writes, in bounded memory."""
    together: list[Cube] = []
    rows = 0
    for cube in cubes:
        if together and rows + cube.rows > PIECE_ROWS:
            yield together
            together, rows = [], 0
        together.append(cube)
        rows += cube.rows
    if together:
        yield together


def csv_text(table: DatasetTable, records: list[dict[str, Any]]) -> bytes:
    """Rows of a small table as CSV.

    A text that a spreadsheet would run as a formula gets an apostrophe in front, and a sign that
    cannot be printed (a line break, a direction mark) becomes a space.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows([[_cell(record[name]) for name in table.names] for record in records])
    return text.getvalue().encode()


def gzip_member(content: bytes | memoryview) -> bytes:
    """One gzip member without a time or a name in it."""
    return bytes(deflate.gzip_compress(content, _GZIP_LEVEL))


def _cell(value: object) -> object:
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = "".join(sign if sign.isprintable() else " " for sign in value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_SIGNS) else text


def _csv_rows(tables: Sequence[pa.Table]) -> memoryview:
    # No text here needs quotes: ids and names of formats are matched by patterns without commas.
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none", batch_size=_CSV_BATCH)
    stream = pa.BufferOutputStream()
    for table in tables:
        pyarrow.csv.write_csv(table, stream, options)
    text = stream.getvalue()
    signs = np.frombuffer(text, np.uint8)
    signs &= 0xFF ^ arrow.JOINT[0] ^ ord(",")
    return memoryview(text)


def parquet_options() -> dict[str, Any]:
    """How Arrow writes capacity rows."""
    return {
        "compression": "zstd",
        "compression_level": _ZSTD_LEVEL,
        "use_dictionary": [name for name in CAPACITY.names if name not in _MANY_VALUED],
        # Whoever looks for a model or an accelerator skips what has none. A row group has every context and format;
        # statistics of those, or of values, would cost a third of the writing and skip nothing.
        "write_statistics": ["model", "gpu"],
        "version": "2.6",
    }


def _require_sound(data: pa.Table, table: DatasetTable) -> None:
    found = arrow.faults(data, table)
    if found:
        raise InputError(f"dataset: {'; '.join(found[:5])}")


def _engine_words(axes: Axes) -> str:
    return f"{axes.engine.label} with its defaults; ceiling: nothing reserved, nothing rounded"


class _CsvParts:
    """The CSV of all models, in as many files as it takes."""

    def __init__(self, staging: StagedFiles, header: bytes) -> None:
        self._staging, self._header = staging, header
        self._bodies: list[bytes] = []
        self._size = 0
        self._full: list[str] = []
        self.names: tuple[str, ...] = ()

    def add(self, body: bytes) -> None:
        """Add one model's rows."""
        if self._bodies and len(self._header) + self._size + len(body) > CSV_FILE_BYTES:
            self._flush(f"capacity-{len(self._full) + 1:03d}.csv.gz")
        self._bodies.append(body)
        self._size += len(body)

    def close(self) -> None:
        """Write what is left; the only file there is has no number."""
        number = len(self._full) + 1
        self._flush("capacity.csv.gz" if number == 1 else f"capacity-{number:03d}.csv.gz")
        self.names = tuple(self._full)

    def _flush(self, name: str) -> None:
        self._staging.write(name, b"".join([self._header, *self._bodies]))
        self._full.append(name)
        self._bodies, self._size = [], 0


def _published(staging: StagedFiles, csv_names: tuple[str, ...]) -> Iterator[Published]:
    of = {"capacity.parquet": CAPACITY, **dict.fromkeys(csv_names, CAPACITY)}
    of |= {"models.csv": MODELS, "accelerators.csv": ACCELERATORS}
    for name, table in of.items():
        size, digest = staging.digest(name)
        yield Published(name, table, size, digest)


def _all_models(axes: Axes, workers: int | None, kept: Kept | None) -> Iterator[ModelFiles]:
    """Yield every model's files in the order of the models, kept ones from where they are kept."""
    if kept is None:
        yield from _computed(axes, workers, range(len(axes.models)))
        return
    missing = [position for position, model in enumerate(axes.models) if not kept.has(model)]
    computed = _computed(axes, workers, missing)
    expected = set(missing)
    for position, model in enumerate(axes.models):
        found = next(computed) if position in expected else kept.get(model)
        if found is None:  # damaged
            (found,) = model_files(_some(axes, (position,)))
            kept.put(model, found)
        elif position in expected:
            kept.put(model, found)
        yield found
    kept.forget()


def _computed(axes: Axes, workers: int | None, positions: Sequence[int]) -> Iterator[ModelFiles]:
    """Yield the files of some models in their order, computed in as many processes as are worth it."""
    groups = twins(axes.models, positions)
    most = axes.rows_per_pair * len(axes.accelerators) * len(positions)
    if workers is None:
        workers = 1 if most < _FEW_ROWS else available_processors()
    workers = min(workers, len(groups))
    if workers <= 1:
        yield from _in_order(groups, (model_files(_some(axes, group)) for group in groups))
        return
    # This process is one of the workers, which another one would take a second to become.
    others = workers - 1
    with processes.workers(others, _remember, (axes,)) as pool:
        computed = processes.shared_out(
            groups, pool, others, _in_worker, lambda group: model_files(_some(axes, group))
        )
        yield from _in_order(groups, computed)


def _in_order(
    groups: Sequence[tuple[int, ...]], computed: Iterator[list[ModelFiles]]
) -> Iterator[ModelFiles]:
    """Yield the files of all groups by position; a group comes when the first of it is due."""
    waiting: dict[int, ModelFiles] = {}
    coming = zip(groups, computed, strict=True)
    for position in sorted(position for group in groups for position in group):
        if position not in waiting:
            waiting.update(zip(*next(coming), strict=True))
        yield waiting.pop(position)


def _some(axes: Axes, positions: Sequence[int]) -> Axes:
    return replace(axes, models=tuple(axes.models[position] for position in positions))


_axes: list[Axes] = []


def _remember(axes: Axes) -> None:
    """Keep the axes in a worker, so that they travel once."""
    pa.set_cpu_count(1)
    _axes[:] = [axes]
    processes.collect_garbage_less()


def _in_worker(positions: tuple[int, ...]) -> list[ModelFiles]:
    return model_files(_some(_axes[0], positions))
