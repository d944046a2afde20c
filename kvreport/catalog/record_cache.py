"""The models' records kept between builds: hundreds of files are parsed and checked once, not in every build.

A record stands under the digest of its file (of a quantized copy, its original's too), of the formats, and of the code
that reads them. Nothing is kept of a file at fault.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from kvreport.build_cache import code, digest, keep, recall
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model

_ABOVE: Final = (
    "adapters",
    "book",
    "cli",
    "dataset",
    "evidence",
    "publish",
    "report",
    "site",
    "startup_log",
    "traffic",
)
"""Rooms whose code decides no record."""


def recall_models(catalog: Catalog, folder: Path) -> int:
    """Give a catalog the records that a folder keeps, of files that have not changed since.

    Returns:
        How many the catalog has now.
    """
    found = recall(folder, _state(catalog))
    if isinstance(found, dict):
        for stem, (files, model) in found.items():
            if files == _files(catalog, stem, model):
                catalog.models_read[stem] = model
    return len(catalog.models_read)


def keep_models(catalog: Catalog, folder: Path) -> None:
    """Keep every record that a catalog has read."""
    read = catalog.models_read
    content = {stem: (_files(catalog, stem, model), model) for stem, model in read.items()}
    keep(folder, _state(catalog), content)


def _files(catalog: Catalog, stem: str, model: Model) -> tuple[str, ...] | None:
    """Digests of the files that a record was made from; None if one is gone."""
    stems = (stem, *([model.quantized_from.replace("/", "--")] if model.quantized_from else []))
    files = [catalog.model_file(one) for one in stems]
    if None in files:
        return None
    return tuple(sha256(path.read_bytes()).hexdigest() for path in files if path is not None)


def _state(catalog: Catalog) -> str:
    formats = catalog.folder / "formats.yaml"
    return digest([formats] if formats.is_file() else [], ("pydantic",), code(without=_ABOVE))
