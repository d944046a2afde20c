"""Rows kept between builds: one file per model, under the digest of everything that decides its bytes.

A key is made of the model, the axes, the code and the libraries that compute and compress; whatever
changes changes the key, so nothing is ever outdated, only unused. A file carries its own digest; one
that was cut short or damaged is not believed and is written again.
"""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from kvreport import resources
from kvreport.atomic.files import sweep_unfinished
from kvreport.build_cache import read_kept, write_sealed
from kvreport.catalog.model import Model
from kvreport.dataset.grid import Axes

CODE: Final = ("units.py", "errors.py", "columns.json", "catalog", "accounting", "estimation", "dataset")
"""What of the package decides rows."""
_SPARE = 4
"""One file in so many may be of an earlier state."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model's rows, compressed."""

    slug: str
    rows: int
    parquet: bytes
    csv_body: bytes


class Kept:
    """A folder of kept rows."""

    def __init__(self, folder: Path, axes: Axes) -> None:
        """Look into ``folder`` for rows over these axes."""
        self.folder = folder
        self._axes = axes
        self._paths: dict[str, Path] = {}

    @cached_property
    def _shared(self) -> bytes:
        """Digest of everything but the model."""
        return axes_digest(self._axes)

    def _path(self, model: Model) -> Path:
        if model.id not in self._paths:
            key = sha256(self._shared + model.model_dump_json().encode()).hexdigest()
            self._paths[model.id] = self.folder / f"{key}.rows"
        return self._paths[model.id]

    def has(self, model: Model) -> bool:
        """True if rows of this model are kept, believable or not."""
        return self._path(model).is_file()

    def get(self, model: Model) -> ModelFiles | None:
        """Return a model's kept rows; None where there are none that can be believed."""
        path = self._path(model)
        found = read_kept(path)
        if not isinstance(found, ModelFiles):
            return None
        os.utime(path)
        return found

    def put(self, model: Model, files: ModelFiles) -> None:
        """Keep a model's rows, whole or not at all; a cache that cannot be written is a warning."""
        write_sealed(self._path(model), pickle.dumps(files, protocol=5))

    def forget(self) -> None:
        """Remove what was not asked for lately, but for a few files."""
        sweep_unfinished(self.folder)
        kept = sorted(self.folder.glob("*.rows"), key=lambda path: path.stat().st_mtime, reverse=True)
        models = len(self._axes.models)
        for path in kept[models + models // _SPARE + 1 :]:
            path.unlink(missing_ok=True)


def axes_digest(axes: Axes) -> bytes:
    """Digest of everything that decides rows but the models: other axes, records, code and libraries."""
    parts = [
        repr((axes.tensor_parallel, axes.layouts, axes.contexts, [name for name, _ in axes.weight_formats])),
        repr([form.model_dump_json() if form else None for form in axes.kv_formats]),
        *(device.model_dump_json() for device in axes.accelerators),
        *(form.model_dump_json() for form in axes.formats.values()),
        *(form.model_dump_json() for form in axes.all_kv_formats.values()),
        axes.engine.model_dump_json(),
        *(f"{maker} {engine.model_dump_json()}" for maker, engine in sorted(axes.local_engines.items())),
        axes.ceiling.model_dump_json(),
        axes.support.state if axes.support else "",
        repr((np.__version__, pa.__version__, version("deflate"))),
    ]
    digest = sha256(json.dumps(parts).encode())
    package = resources.package_dir()
    for name in CODE:
        root = package / name
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(sha256(path.read_bytes()).digest())
    return digest.digest()
