"""Classes without a reader of their own: what each is read as, what to give in its place, which class is nearest to it.

The names are listed in ``other_names.txt``, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from kvreport.architectures.listing import sections


def _named(text: str) -> Mapping[str, str]:
    """Return what is said of each name: a line has names, an equals sign and what is said of all of them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        names, equals, said = line.partition(" = ")
        if equals and not line.startswith("#"):
            found |= dict.fromkeys(names.split(), said)
    return found


_LISTED: Final = sections([(resources.files(__package__) / "other_names.txt").read_text(encoding="utf-8")])
READ_AS: Final = _named(_LISTED["read as"])
"""The class that another name is read as."""
NOT_READ: Final = _named(_LISTED["not read"])
"""What to give in place of classes that people ask for and whose bytes their configs do not tell."""
NEAREST: Final = _named(_LISTED["nearest"])
"""The nearest class that is read, by the name of one that is not."""

PREDICTS: Final = re.compile(r"_?MTP(?:Model)?$|NextN$")
"""Names that engines give to a model's own prediction layers; no config of a checkpoint has them."""

NO_CHECKPOINT: Final = re.compile(
    r"^TorchNative|^MindSpore|^Transformers(?:MultiModal)?(?:MoE)?(?:For\w+|EmbeddingModel)$|^ExtractHiddenStatesModel$"
)
"""Names that vLLM gives to itself: a class of transformers' that it has no code of its own for, or a probe."""
