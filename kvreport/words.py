"""Words and names that Python and the browser share: verdicts, reasons, limits, server flags.

They stand in ``words.json``; :mod:`kvreport.publish.browser` puts the same file into the site's
scripts. Keys are what the command line and the dataset say, values are for readers.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kvreport.resources import package_dir

ALL: Final[dict[str, Any]] = json.loads((package_dir() / "words.json").read_text(encoding="utf-8"))
"""The whole file."""

VERDICTS: Final[tuple[str, ...]] = tuple(ALL["verdicts"])
"""Names of the verdicts by their number in :mod:`kvreport.accounting.kernel`."""

REQUEST_STEPS: Final[tuple[int, ...]] = tuple(ALL["request_steps"])
"""Lower edges of the color steps of a number of requests: half decades."""

NO_REQUEST: Final[dict[str, tuple[str, str]]] = {
    name: (word, reason) for name, (word, reason) in ALL["no_request"].items()
}
"""For each verdict that holds no request: the word in the cell, and the reason in full."""

LIMITS: Final[dict[str, str]] = ALL["limits"]
"""What keeps one more request from a replica, for a page."""
