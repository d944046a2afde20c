"""Encoders beside a text model: which section of a config sizes them. Their tensors are listed in ``parts/``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvreport.architectures.keys import Keys
from kvreport.architectures.parts import part
from kvreport.architectures.published import published
from kvreport.architectures.weights import Tensors

MAX_DEPTH: Final = 500


def section_or_default(config: Keys, name: str, usual: str | Mapping[str, Any]) -> Keys:
    """Return an encoder's section; where the config leaves it out, the class builds its default encoder.

    Args:
        config: The whole config.
        name: The section.
        usual: Its class's defaults, or the name under which they are kept.
    """
    defaults = published(usual) if isinstance(usual, str) else usual
    found = config.section(name, defaults=defaults)
    return found or Keys({}, config.where, config.field(name), defaults, config.trail)


def check_heads(vision: Keys, width: int, name: str) -> None:
    """Refuse heads that do not divide the width: classes with a matrix per projection round them down.

    No release has such an encoder, and an engine that fuses the projections would not round.
    """
    heads = vision.optional(name, low=1)
    if heads is not None and width % heads:
        raise vision.fault(name, heads, f"a number that divides the width of {width}")


def qwen3_vision(vision: Keys, prefix: str = "model.visual") -> Tensors:
    """The encoder of Qwen3-VL and Qwen3.5, with the names that these have for its mergers."""
    names = {"norm": "norm", "first": "linear_fc1", "second": "linear_fc2"}
    return part("qwen3_vision", vision, prefix, deep_mergers="deepstack_merger_list", **names)


def merge_area(vision: Keys, name: str = "merge_kernel_size") -> int:
    """Return how many patches become one, of the two sides of a square: 2 x 2 unless the config says otherwise."""
    sides = vision.wholes(name, length=2, low=1, high=64) or [2, 2]
    return sides[0] * sides[1]
