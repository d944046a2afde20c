"""Where the package's files are: the catalog's data, the page templates, the site's assets, the locks.

A wheel carries them inside the package (``_data``, ``_templates``, ``_assets``, ``_requirements``; see
``hatch_build.py``). In a checkout they are the top-level folders that people edit. Every caller
asks here and need not know which of the two it runs from.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

ORIGIN: Final = "origin.txt"
"""File of a translated copy of the package: which package it was made from, and its language."""

_PACKAGE = Path(__file__).resolve().parent


def package_dir() -> Path:
    """Return the folder of the package's own code."""
    return _PACKAGE


def language() -> str | None:
    """Return the language of the interface where this package is a translated copy, else None."""
    return _origin().get("language")


def original_assets_dir() -> Path:
    """Return the folder of the site's own styles and scripts before they were translated."""
    package = _origin().get("package")
    return _beside(Path(package), "_assets", "docs/assets") if package else assets_dir()


@cache
def _origin() -> dict[str, str]:
    """Return what a translated copy says of itself; nothing in the package itself."""
    told = _PACKAGE / ORIGIN
    return dict(json.loads(told.read_text(encoding="utf-8"))) if told.is_file() else {}


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


def _locate(packaged: str, in_repository: str) -> Path:
    """Return the packaged folder where there is one, else the repository's; facts of a translated copy are the original's."""
    package = _origin().get("package")
    own = _PACKAGE / packaged
    return own if own.is_dir() else _beside(Path(package) if package else _PACKAGE, packaged, in_repository)


def _beside(package: Path, packaged: str, in_repository: str) -> Path:
    """Return a folder of a package.

    Raises:
        FileNotFoundError: Neither is there, so the installation is not whole.
    """
    inside, beside = package / packaged, package.parent / in_repository
    if inside.is_dir():
        return inside
    if (package.parent / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    raise FileNotFoundError(f"kvreport's own files are missing: neither {inside} nor {beside} is there")
