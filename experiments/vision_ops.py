"""torchvision beside a build of torch for processors.

transformers and timm import torchvision. Package indexes have its build for CUDA alone, whose library does not load
beside ``torch+cpu``; importing it then fails, because it describes operators that nobody has defined (0.28.0,
``torchvision/_meta_registrations.py``). No experiment computes with them.
"""

from __future__ import annotations

from functools import cache
from typing import Final

OPERATORS: Final = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""The operators that torchvision describes whether its library is loaded or not."""


@cache
def import_torchvision() -> object | None:
    """Import torchvision where it is installed, with its operators declared where its library cannot be loaded.

    Returns:
        What keeps the declarations alive; None if there is nothing to declare.
    """
    import sys

    from torch import library

    try:
        import torchvision
    except ImportError:
        return None
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = library.Library("torchvision", "DEF")
        for operator in OPERATORS:
            declared.define(operator)
        import torchvision  # noqa: F401

        return declared
    return None
