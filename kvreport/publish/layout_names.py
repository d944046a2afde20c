"""What layouts are called on pages."""

from __future__ import annotations

from kvreport.accounting.parallel import Layout
from kvreport.words import WAYS, counted


def layout_words(layout: Layout) -> str:
    """Return what a layout is in words: ``8 GPUs``, ``16 GPUs: DP 16 attention + expert parallel``."""
    number = counted(layout.devices, "GPU|GPUs")
    return number if layout.is_tensor_only else f"{number}: {ways(layout)}"


def ways(layout: Layout) -> str:
    """Return how a layout divides a model: ``DP 16 attention + expert parallel``; nothing for tensor parallelism."""
    if layout.is_tensor_only:
        return ""
    parts = {
        "pp": layout.pipeline,
        "tp": layout.tensor,
        "dp": layout.data,
        "ep": 1 + layout.expert,
        "dcp": layout.decode_context,
    }
    return " + ".join(WAYS[name].format(number=number) for name, number in parts.items() if number > 1)
