"""Where the package's files are: the catalog's data, the page templates, the site's assets, the locks.

A wheel carries them inside the package (``_data``, ``_templates``, ``_assets``, ``_requirements``; see
``hatch_build.py``). In a checkout they are the top-level folders that people edit. Every caller
asks here and need not know which of the two it runs from.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent


def package_dir() -> Path:
    """Return the folder of the package's own code."""
    return _PACKAGE


def data_dir() -> Path:
    """Return the folder of the public catalog: models, accelerators, formats, engines."""
    return _locate("_data", "data")


def templates_dir() -> Path:
    """Return the folder of the page templates."""
    return _locate("_templates", "templates")


def assets_dir() -> Path:
    """Return the folder of the site's own styles and scripts."""
    return _locate("_assets", "docs/assets")


def requirements_dir() -> Path:
    """Return the folder of the locks: every package by version and hash."""
    return _locate("_requirements", "requirements")


def read_table(name: str) -> Any:  # noqa: ANN401 (whatever the rows are)
    """Return a table of ``tables.json``: rows that one module reads."""
    return _tables()[name]


@cache
def _tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_PACKAGE / "tables.json").read_text(encoding="utf-8"))
    return found


def _locate(packaged: str, in_repository: str) -> Path:
    """Return the packaged folder where there is one, else the repository's.

    Raises:
        FileNotFoundError: Neither is there, so the installation is not whole.
    """
    inside, beside = _PACKAGE / packaged, _PACKAGE.parent / in_repository
    if inside.is_dir():
        return inside
    if (_PACKAGE.parent / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    raise FileNotFoundError(f"kvreport's own files are missing: neither {inside} nor {beside} is there")
