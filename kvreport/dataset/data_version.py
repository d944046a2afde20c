"""The dated version of the data: never the clock."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

from kvreport.errors import CatalogError, InputError, shorten

RELEASE_FILE = "RELEASE"
_VERSION = re.compile(r"20[0-9]{2}\.(0[1-9]|1[0-2])\.(0[1-9]|[12][0-9]|3[01])", re.ASCII)
_LAST_EPOCH = 4102444799
"""The end of the year 2099, in seconds."""


def data_version(folder: Path) -> str:
    """Return the data's version, ``2026.11.21``.

    ``SOURCE_DATE_EPOCH`` decides where it is set; else the catalog's file ``RELEASE``.

    Raises:
        InputError: If ``SOURCE_DATE_EPOCH`` is no time, or there is no ``RELEASE``.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is not None:
        if not re.fullmatch(r"[0-9]{1,10}", epoch, re.ASCII) or int(epoch) > _LAST_EPOCH:
            raise InputError(
                f"SOURCE_DATE_EPOCH: found {shorten(epoch)}; allowed: whole seconds since 1970, to {_LAST_EPOCH}"
            )
        return datetime.fromtimestamp(int(epoch), tz=UTC).strftime("%Y.%m.%d")
    path = folder / RELEASE_FILE
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not _VERSION.fullmatch(text):
        raise CatalogError.of(
            RELEASE_FILE, "", shorten(text) if text else "nothing", "a date such as 2026.11.21"
        )
    return text
