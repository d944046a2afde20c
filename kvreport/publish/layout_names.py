"""What layouts are called on pages."""

from __future__ import annotations

from kvreport.accounting.parallel import Layout
from kvreport.words import counted


def layout_words(layout: Layout) -> str:
    """Return what a layout is in words: ``8 GPUs``, ``16 GPUs: DP 16 attention + expert parallel``."""
    number = counted(layout.devices, "GPU|GPUs")
    return number if layout.is_tensor_only else f"{number}: {ways(layout)}"


def ways(layout: Layout) -> str:
    """Return how a layout divides a model: ``DP 16 attention + expert parallel``; nothing for tensor parallelism."""
    if layout.is_tensor_only:
        return ""
    parts = [
        f"PP {layout.pipeline}" * (layout.pipeline > 1),
        f"TP {layout.tensor}" * (layout.tensor > 1),
        f"DP {layout.data} attention" * (layout.data > 1),
        "expert parallel" * layout.expert,
        f"decode context {layout.decode_context}" * (layout.decode_context > 1),
    ]
    return " + ".join(part for part in parts if part)
