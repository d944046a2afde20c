"""Drawings of the chapters, made from the same numbers as the text.

Each drawing is SVG text with a title and a description for those who cannot see it. Colors are the style
sheet's tokens, so a drawing follows light and dark by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil
from typing import Final

from kvreport.book.html import Html, identity
from kvreport.words import counted

_WIDTH: Final = 700
_NARROW: Final = 340
"""Width of a drawing for phones, about that of their text: letters keep their size."""
_GPUS_A_ROW: Final = 4
_CACHE: Final = "var(--kv-cache)"
_WEIGHTS: Final = "var(--kv-weights)"
_STATE: Final = "var(--kv-state)"
_FREE: Final = "var(--kv-free)"
_LINE: Final = "var(--kv-soft)"
_ROLES: Final = {
    "cache": _CACHE,
    "weights": _WEIGHTS,
    "state": _STATE,
    "free": _FREE,
    "reserve": "var(--kv-reserve)",
    "experts": "var(--kv-l5)",
}

_SHADES: Final = (_CACHE, _STATE, _WEIGHTS, "var(--kv-l5)")
"""Colors of GPUs where each is drawn with its own; the label says which it is."""


def growing_row(tokens: Sequence[str]) -> Html:
    """Draw how a decode step reads the whole row of keys and values and adds one pair to it."""
    parts = []
    for step in range(1, len(tokens) + 1):
        y = 26 + (step - 1) * 40
        parts.append(_text(86, y + 20, f"step {step}", "end"))
        for place in range(step):
            x = 98 + place * 92
            new = place == step - 1
            parts.append(
                f'<rect x="{x}" y="{y}" width="84" height="30" rx="3" fill="{_CACHE if new else _FREE}"'
                f' stroke="{_LINE}"/>'
            )
            label = f"K V  {tokens[place]}"
            parts.append(_text(x + 42, y + 19, label, "middle", ink=not new, on=new))
    height = 36 + len(tokens) * 40
    return _figure(
        parts,
        height,
        "The row of keys and values grows by one pair with every token",
        f"{len(tokens)} decode steps, one below the other. Step n reads the n − 1 pairs that are already stored and "
        "adds one. The row is never rewritten and only gets longer.",
    )


def heads_by_layers(layers: int, kv_heads: int, head_dim: int) -> Html:
    """Draw one token's entry: KV heads across, layers down, a key and a value in each place."""
    shown_layers, shown_heads = min(layers, 6), min(kv_heads, 8)
    cell, parts = 66, []
    for row in range(shown_layers):
        number = row + 1 if row < shown_layers - 1 else layers
        y = 34 + row * 34 + (12 if row == shown_layers - 1 and layers > shown_layers else 0)
        parts.append(_text(92, y + 18, f"layer {number}", "end"))
        for head in range(shown_heads):
            x = 104 + head * cell
            parts.append(f'<rect x="{x}" y="{y}" width="28" height="26" rx="2" fill="{_CACHE}"/>')
            parts.append(_text(x + 14, y + 18, "K", "middle", on=True))
            parts.append(f'<rect x="{x + 30}" y="{y}" width="28" height="26" rx="2" fill="{_STATE}"/>')
            parts.append(_text(x + 44, y + 18, "V", "middle", on=True))
    for head in range(shown_heads):
        number = head + 1 if head < shown_heads - 1 or kv_heads <= shown_heads else kv_heads
        parts.append(_text(104 + head * cell + 29, 24, f"head {number}", "middle"))
    height = 34 + shown_layers * 34 + 22
    return _figure(
        parts,
        height,
        f"One token's cache entry: {layers} layers × {kv_heads} KV heads × a key and a value of {head_dim} numbers",
        f"A grid with KV heads across and layers down. Every one of the {layers} × {kv_heads} places holds a key and a "
        f"value of {head_dim} numbers each, {2 * layers * kv_heads * head_dim:,} numbers for one token.",
    )


def sharing(query_heads: int, variants: Sequence[tuple[str, int]]) -> Html:
    """Draw query heads over the KV heads that they share; 0 KV heads stands for one latent."""
    parts: list[str] = []
    gap, block = 14, 124
    step = (_WIDTH - 2 * gap - 60) / query_heads
    for number, (name, kept) in enumerate(variants):
        top = 20 + number * block
        label = (
            f"{name}: {counted(kept, 'KV head|KV heads')}" if kept else f"{name}: one latent for all heads"
        )
        parts.append(_text(gap, top, label, "start", ink=True))
        wide = (step * query_heads - 2) / max(kept, 1)
        for head in range(query_heads):
            x = gap + head * step + step / 2
            place = head * max(kept, 1) // query_heads
            end = gap + (place + 0.5) * wide
            parts.append(
                f'<line x1="{x:.1f}" y1="{top + 26}" x2="{end:.1f}" y2="{top + 62}" stroke="{_LINE}" stroke-opacity="0.6"/>'
                f'<circle cx="{x:.1f}" cy="{top + 20}" r="6" fill="{_WEIGHTS}"/>'
            )
        for head in range(max(kept, 1)):
            x = gap + head * wide + 1
            color = _CACHE if kept else _STATE
            parts.append(
                f'<rect x="{x:.1f}" y="{top + 62}" width="{max(wide - 3, 2):.1f}" height="24" rx="2" fill="{color}"/>'
            )
    return _figure(
        parts,
        20 + len(variants) * block,
        "Query heads (dots) and the keys and values that are stored (boxes)",
        "; ".join(
            f"{name}: {query_heads} query heads, {counted(kept, 'stored KV head|stored KV heads')}, "
            f"{counted(query_heads // kept, 'query head|query heads')} for each"
            if kept
            else f"{name}: {query_heads} query heads read one stored latent"
            for name, kept in variants
        )
        + ".",
    )


def paged_blocks(lengths: Sequence[int], block: int, maximum: int) -> Html:
    """Draw requests in contiguous rows of the maximum length, and the same requests in blocks."""
    parts, scale = [], 560 / maximum
    parts.append(_text(8, 18, f"Contiguous: {maximum} tokens reserved for each request", "start", ink=True))
    for n, length in enumerate(lengths):
        y = 28 + n * 26
        parts.append(_text(86, y + 15, f"request {n + 1}", "end"))
        parts.append(f'<rect x="96" y="{y}" width="{maximum * scale:.1f}" height="20" fill="{_FREE}"/>')
        parts.append(f'<rect x="96" y="{y}" width="{length * scale:.1f}" height="20" fill="{_CACHE}"/>')
    second = 28 + len(lengths) * 26 + 26
    parts.append(_text(8, second, f"Paged: blocks of {block} tokens, taken when needed", "start", ink=True))
    taken = 0
    for n, length in enumerate(lengths):
        y = second + 10 + n * 26
        parts.append(_text(86, y + 15, f"request {n + 1}", "end"))
        blocks = ceil(length / block)
        taken += blocks * block
        for place in range(blocks):
            x = 96 + place * block * scale
            full = min(block, length - place * block)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{block * scale - 2:.1f}" height="20" fill="{_FREE}" stroke="{_LINE}"/>'
            )
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(full * scale - 2, 0):.1f}" height="20" fill="{_CACHE}"/>'
            )
    return _figure(
        parts,
        second + 22 + len(lengths) * 26,
        f"{sum(lengths)} tokens in use: {maximum * len(lengths)} reserved contiguously, {taken} in blocks",
        f"Requests of {', '.join(map(str, lengths))} tokens. Contiguous reservation takes {maximum} tokens for each, "
        f"{maximum * len(lengths)} in all. Blocks of {block} take {taken}, because only the last block of a request "
        "can be partly empty.",
    )


def phases(prompt: int, output: int, prefill_ms: float, step_ms: float) -> Html:
    """Draw one request over time: one long prefill, then a short step for every token."""
    total = prefill_ms + output * step_ms
    scale = 600 / total
    wide = max(prefill_ms * scale, 2)
    parts = [
        _text(48, 20, "time →", "start"),
        f'<rect x="48" y="30" width="{wide:.1f}" height="46" fill="{_WEIGHTS}"/>',
    ]
    for step in range(output):
        x = 48 + wide + step * step_ms * scale
        parts.append(
            f'<rect x="{x:.1f}" y="30" width="{max(step_ms * scale - 1, 0.6):.1f}" height="46" fill="{_CACHE}"/>'
        )
    parts.append(_text(48, 96, f"prefill: {prompt:,} tokens in one step, {prefill_ms:.0f} ms", "start"))
    parts.append(_text(648, 116, f"decode: {output} steps of {step_ms:.1f} ms, one token each", "end"))
    return _figure(
        parts,
        126,
        "One request over time, both phases at their lower bound",
        f"Prefill reads {prompt:,} tokens in one step of {prefill_ms:.0f} milliseconds. Then {output} decode steps of "
        f"{step_ms:.1f} milliseconds write one token each, {output * step_ms:.0f} milliseconds in all.",
    )


def gpu_layout(
    title: str, gpus: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], limit: float
) -> Html:
    """Draw GPUs side by side, each a name with its parts from below: role, label, share of the limit (1: of the memory)."""
    told = [
        f"{name}: " + ", ".join(f"{label} {share / limit:.0%}" for _, label, share in contents)
        for name, contents in gpus
    ]
    wide = _columns(gpus, limit, _WIDTH, len(gpus))
    narrow = _columns(gpus, limit, _NARROW, _GPUS_A_ROW)
    return _figure(*wide, title, "; ".join(told) + ".", narrow=narrow)


def _columns(
    gpus: Sequence[tuple[str, Sequence[tuple[str, str, float]]]], limit: float, width: float, a_row: int
) -> tuple[list[str], float]:
    """Parts and height of a drawing of GPUs as columns, so many a row; see :func:`gpu_layout`."""
    wide, tallest = (width - 20) / min(a_row, len(gpus)), 180
    row, parts = tallest + 44, []
    for n, (name, contents) in enumerate(gpus):
        x, top = 12 + n % a_row * wide, 14.0 + n // a_row * row
        y = top + tallest
        parts.append(
            f'<rect x="{x:.1f}" y="{top:.0f}" width="{wide - 10:.1f}" height="{tallest}" fill="none" stroke="{_LINE}"/>'
        )
        for role, label, share in contents:
            tall = min(share / limit, 1) * tallest
            y -= tall
            parts.append(
                f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{wide - 12:.1f}" height="{max(tall - 1, 0):.1f}"'
                f' fill="{_ROLES[role]}"/>'
            )
            if tall > 16:
                parts.append(_text(x + (wide - 10) / 2, y + tall / 2 + 4, label, "middle", on=True))
        parts.append(_text(x + (wide - 10) / 2, top + tallest + 18, name, "middle"))
    return parts, row * ceil(len(gpus) / a_row)


def layout_cells(title: str, layout: str, layers: int, tokens: int, owners: Sequence[Sequence[str]]) -> Html:
    """Draw one request's cache as layers x tokens, each cell with the GPUs that hold it.

    ``owners`` has for each row its cells: names of the GPUs that hold the cell, such as ``0`` or ``0 1``.
    """
    wide, tall, left, top = 84, 36, 66, 30
    parts = [_text(left + tokens * wide / 2, 18, "tokens of one request →", "middle")]
    held: dict[str, int] = {}
    for row in range(layers):
        y = top + row * tall
        parts.append(_text(left - 8, y + 21, f"layers {'ABCDEFGH'[row]}", "end"))
        for column in range(tokens):
            names = owners[row][column].split()
            for name in names:
                held[name] = held.get(name, 0) + 1
            x = left + column * wide
            color = _SHADES[int(names[0]) % len(_SHADES)] if len(names) == 1 else _FREE
            parts.append(
                f'<rect x="{x}" y="{y}" width="{wide - 4}" height="{tall - 4}" rx="3" fill="{color}"'
                f' stroke="{_LINE}"/>'
            )
            label = f"GPU {names[0]}" if len(names) == 1 else f"GPU {names[0]}–{names[-1]}"
            parts.append(
                _text(x + (wide - 4) / 2, y + 21, label, "middle", ink=len(names) > 1, on=len(names) == 1)
            )
    cells = layers * tokens
    told = ", ".join(f"GPU {name} {count} of {cells} parts" for name, count in sorted(held.items()))
    copies = sum(held.values()) / cells
    words = "nothing is copied" if copies == 1 else f"each part is stored {copies:g} times"
    size = (left + tokens * wide, top + layers * tall + 4)
    return _figure(parts, size[1], title, f"{layout} {told}; {words}.", width=size[0])


def _text(x: float, y: float, text: str, anchor: str, *, ink: bool = False, on: bool = False) -> str:
    color = ' fill="var(--kv-paper)"' if on else ' fill="var(--kv-ink)"' if ink else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{color}>{escape(text)}</text>'


def _figure(
    parts: Sequence[str],
    height: float,
    title: str,
    description: str,
    width: float = _WIDTH,
    narrow: tuple[Sequence[str], float] | None = None,
) -> Html:
    """A drawing with its title under it; ``narrow`` has the parts and the height of the one that phones show."""
    name = identity("drawing", title, description)
    css = "kv-drawn" if width == _WIDTH else "kv-drawn kv-drawn--small"
    told = f'<desc id="kv-d-{name}">{escape(description)}</desc>'
    drawn = (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" class="{css}{" kv-drawn--wide" if narrow else ""}"'
        f' aria-labelledby="kv-t-{name} kv-d-{name}"><title id="kv-t-{name}">{escape(title)}</title>'
        f"{told}{''.join(parts)}</svg>"
    )
    if narrow is not None:
        small = escape(f"{title}. {description}", quote=True)
        drawn += (
            f'<svg viewBox="0 0 {_NARROW} {narrow[1]:.0f}" role="img" class="kv-drawn kv-drawn--narrow"'
            f' display="none" aria-label="{small}">{"".join(narrow[0])}</svg>'
        )
    return Html(f'<figure class="kv-figure">{drawn}<figcaption>{escape(title)}</figcaption></figure>')
