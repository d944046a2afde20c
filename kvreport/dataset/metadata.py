"""What describes the files to machines: ``datapackage.json`` and ``croissant.json``, from the columns.

Frictionless Data Package v2 (https://datapackage.org) and MLCommons Croissant 1.0
(https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from kvreport.dataset.columns import ACCELERATORS, CAPACITY, MODELS, DatasetColumn, DatasetTable
from kvreport.resources import read_table

LICENCE: Final = ("CC-BY-4.0", "https://creativecommons.org/licenses/by/4.0/")
TITLE: Final = "kvreport: memory and capacity of language models on accelerators"
DESCRIPTION: Final = (
    "How many simultaneous requests of each context length fit, for every combination of model, "
    "accelerator, tensor-parallel size, weight format and KV format of a public catalog. Every figure "
    "follows from formulas over architecture facts; none is measured."
)

_FRICTIONLESS: Final[dict[str, str]] = read_table("frictionless types")
_CROISSANT: Final[dict[str, str]] = read_table("croissant types")


@dataclass(frozen=True, slots=True)
class Published:
    """One published file."""

    name: str
    table: DatasetTable
    size: int  # Bytes.
    sha256: str

    @property
    def media_type(self) -> str:
        """Its media type."""
        if self.name.endswith(".parquet"):
            return "application/x-parquet"  # the name that Croissant's readers know
        return "application/gzip" if self.name.endswith(".gz") else "text/csv"


@dataclass(frozen=True, slots=True)
class DatasetRelease:
    """What is published, and under which version."""

    version: str
    engine: str  # Engine whose answers the matrix carries, with its version.
    files: tuple[Published, ...]
    site_url: str = ""  # Where the files stand, or "".

    @property
    def citation(self) -> str:
        """How to cite it."""
        return f"The kvreport authors. {TITLE}. Data release {self.version}. CC BY 4.0."


def datapackage(release: DatasetRelease) -> bytes:
    """The Frictionless description. Parquet is listed as a file without a table dialect."""
    return _json(
        {
            "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
            "name": "kvreport",
            "title": TITLE,
            "description": f"{DESCRIPTION} Engine: {release.engine}.",
            "version": release.version,
            "licenses": [{"name": LICENCE[0], "path": LICENCE[1]}],
            "contributors": [{"title": "The kvreport authors", "roles": ["creator"]}],
            **({"homepage": release.site_url} if release.site_url else {}),
            "resources": [_resource(table, release) for table in (CAPACITY, MODELS, ACCELERATORS)],
        }
    )


def _resource(table: DatasetTable, release: DatasetRelease) -> dict[str, Any]:
    parts = [file for file in release.files if file.table is table and not file.name.endswith(".parquet")]
    whole = len(parts) == 1
    return {
        "name": table.name,
        "type": "table",
        "path": parts[0].name if whole else [part.name for part in parts],
        "title": table.title,
        "description": table.description,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        **({"compression": "gz"} if parts[0].name.endswith(".gz") else {}),
        **({"bytes": parts[0].size, "hash": f"sha256:{parts[0].sha256}"} if whole else {}),
        "schema": {
            "fields": [_field(column) for column in table.columns],
            "primaryKey": list(table.key),
            "missingValues": [""],
            **(
                {
                    "foreignKeys": [
                        {"fields": ["model"], "reference": {"resource": "models", "fields": ["model"]}},
                        {"fields": ["gpu"], "reference": {"resource": "accelerators", "fields": ["gpu"]}},
                    ]
                }
                if table is CAPACITY
                else {}
            ),
        },
    }


def _field(column: DatasetColumn) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if not column.nullable:
        limits["required"] = True
    if column.minimum is not None:
        limits["minimum"] = column.minimum
    if column.values:
        limits["enum"] = list(column.values)
    return {
        "name": column.name,
        "type": _FRICTIONLESS[column.type],
        "description": column.meaning,
        **({"unit": column.unit} if column.unit else {}),
        **({"formula": column.formula} if column.formula else {}),
        **({"constraints": limits} if limits else {}),
    }


def croissant(release: DatasetRelease) -> bytes:
    """The Croissant 1.0 description: files, and a record set with typed fields for each table."""
    return _json(
        {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "name": "kvreport",
            "description": f"{DESCRIPTION} Engine: {release.engine}.",
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            "license": LICENCE[1],
            "version": release.version,
            "datePublished": release.version.replace(".", "-"),
            "creator": {"@type": "sc:Organization", "name": "The kvreport authors"},
            "citeAs": release.citation,
            **({"url": release.site_url} if release.site_url else {}),
            "distribution": [
                {
                    "@type": "cr:FileObject",
                    "@id": file.name,
                    "name": file.name,
                    "contentUrl": file.name,
                    "contentSize": f"{file.size} B",
                    "encodingFormat": file.media_type,
                    "sha256": file.sha256,
                }
                for file in release.files
            ],
            "recordSet": [
                _record_set(file)
                for file in release.files
                if file.name in ("capacity.parquet", "models.csv", "accelerators.csv")
            ],
        }
    )


def _record_set(file: Published) -> dict[str, Any]:
    table = file.table
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.description,
        "key": [{"@id": f"{table.name}/{name}"} for name in table.key],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{table.name}/{column.name}",
                "name": column.name,
                "description": column.meaning + (f" Unit: {column.unit}." if column.unit else ""),
                "dataType": _CROISSANT[column.type],
                "source": {"fileObject": {"@id": file.name}, "extract": {"column": column.name}},
            }
            for column in table.columns
        ],
    }


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=True) + "\n").encode()


_CONTEXT: Final[dict[str, Any]] = read_table("croissant context")
