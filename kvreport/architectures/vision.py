"""Encoders beside a text model: which section of a config sizes them. Their tensors are listed in ``parts/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.tensor_builders import Tensors

MAX_DEPTH: Final = 500


def section_or_default(config: Keys, name: str, usual: str | Mapping[str, Any]) -> Keys:
    """Return an encoder's section; where the config leaves it out, the class builds its default encoder.

    ``usual`` are the class's defaults, or the name under which they are kept.
    """
    defaults = published(usual) if isinstance(usual, str) else usual
    found = config.section(name, defaults=defaults)
    return found or Keys({}, config.where, config.field(name), defaults, config.trail)


def qwen3_vision(vision: Keys) -> Tensors:
    """The encoder of Qwen3-VL and Qwen3.5, with the names that these have for its mergers."""
    names = {"norm": "norm", "first": "linear_fc1", "second": "linear_fc2"}
    return part("qwen3_vision", vision, "model.visual", deep_mergers="deepstack_merger_list", **names)
