"""One module per architecture family, read when a config names one of its classes.

Which module reads which class is found in the ``@reads`` lines of their sources (5 ms, once a process): reading one
config must not cost the time of importing all modules, and no table has to be kept. A test holds what is found to
what the modules register.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from kvreport.architectures import layered

_READS: Final = re.compile(r"^@reads\(((?:[^()]|\([^()]*\))*)\)", re.MULTILINE)
LAYERED: Final = "layered"
"""What stands in the place of a module where a class is listed as one layer (``layered/*.txt``)."""
_NAME: Final = re.compile(r'"([^"]+)"')


class Index(NamedTuple):
    """What the modules read."""

    classes: Mapping[str, str]
    model_types: Mapping[str, str]  # The class that each ``model_type`` means where a config names none.


@cache
def index() -> Index:
    """Return which module reads which class, and which class a ``model_type`` means."""
    classes: dict[str, str] = {}
    model_types: dict[str, str] = {}
    for module in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name):
        if module.name.endswith(".py"):
            for found in _READS.finditer(module.read_text(encoding="utf-8")):
                names, _, said = found[1].partition("family=")
                read = _NAME.findall(names)
                classes |= dict.fromkeys(read, module.name.removesuffix(".py"))
                model_types |= dict.fromkeys(_NAME.findall(said.partition("model_types=")[2]), read[0])
    listed = layered.index()
    return Index({**classes, **dict.fromkeys(listed.first, LAYERED)}, {**model_types, **listed.model_types})
