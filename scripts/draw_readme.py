"""Draw README's picture: the memory of the README's example, to scale (``README.svg``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import kvreport
from kvreport.units import GIB

TARGET: Final = Path(__file__).parents[1] / "README.svg"
WIDTH: Final = 720
COLORS: Final = {
    "weights": "#3b6ea5",
    "reserve": "#8a8f98",
    "KV cache": "#2f855a",
    "outside the engine": "#d5d8dd",
}


def picture() -> str:
    """Return the bar of one H100 that serves requests of 8K, as SVG."""
    answer = kvreport.estimate("llama-3.1-8b", gpu="H100", context_tokens="8K")
    budget = answer.budget
    sizes = {
        "weights": budget.weights,
        "reserve": budget.activations + budget.non_framework + budget.graphs,
        "KV cache": budget.kv_pool_bytes,
        "outside the engine": budget.total_bytes - budget.requested_bytes,
    }
    requests = answer.max_concurrent_requests
    title = f"Llama 3.1 8B on one H100: {requests} requests of 8K tokens fit"
    parts, x = [], 0.0
    for name, color in COLORS.items():
        wide = WIDTH * sizes[name] / budget.total_bytes
        parts.append(f'<rect x="{x:.0f}" y="34" width="{wide:.0f}" height="44" fill="{color}"/>')
        if name == "KV cache":
            each = wide / requests
            marks = "".join(f"M{x + each * n:.0f} 34v44" for n in range(1, requests))
            parts.append(f'<path d="{marks}" stroke="#fff" stroke-width="0.6"/>')
        x += wide
    place = 0
    for name, color in COLORS.items():
        parts.append(f'<rect x="{place}" y="92" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{place + 17}" y="102.5">{name}, {sizes[name] / GIB:.1f} GiB</text>')
        place += WIDTH // len(COLORS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 112" width="{WIDTH}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#6b7280"><title>{title}</title>'
        f'<text y="20" font-size="16">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
