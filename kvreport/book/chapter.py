"""What chapters are written with: checked numbers, tables, formulas, folded answers, figures.

A chapter is a program. It computes what it says, asserts what its words depend on (:func:`claim`)
and shows the rest with the few pieces here; each gives finished HTML in the site's own style.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from kvreport.accounting import kernel, kv_cache
from kvreport.accounting.demand import demand
from kvreport.accounting.roofline import Peaks
from kvreport.book import drawings
from kvreport.book.formulas import formula
from kvreport.book.html import Html
from kvreport.book.instruments import (
    Goal,
    Instrument,
    Output,
    Slider,
    growth_grid,
    instrument,
    step_of,
    terms_of,
)
from kvreport.book.lab import choose, exercise, guess, item, quiz, right, takeaway, wrong
from kvreport.book.quantities import Quantities, quantities
from kvreport.errors import InputError
from kvreport.site.kit import figures
from kvreport.units import GIB

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Goal",
    "Html",
    "Instrument",
    "Output",
    "Quantities",
    "Slider",
    "bars",
    "cache_terms",
    "choose",
    "claim",
    "curves",
    "decode_step",
    "drawings",
    "exercise",
    "fold",
    "formula",
    "growth_grid",
    "guess",
    "holds",
    "instrument",
    "item",
    "listing",
    "quantities",
    "quiz",
    "requires",
    "right",
    "room",
    "table",
    "takeaway",
    "wrong",
]


def claim(value: float, expected: float, *, within: float = 0.0) -> None:
    """Assert a number that the chapter's words depend on, which may differ by ``within`` as a share of what is expected.

    Raises:
        AssertionError: If they differ; the chapter, and with it the build, fails.
    """
    if not math.isclose(value, expected, rel_tol=max(within, 1e-12)):
        raise AssertionError(f"the chapter says {expected:,}, the arithmetic gives {value:,}")


def holds(condition: Callable[[], bool]) -> None:
    """Print a note if a statement of this section is about the chapter's own case: a download runs for any model."""
    try:
        held = condition()
    except (ArithmeticError, InputError, LookupError):
        held = False  # One of its cases does not exist for this model.
    if not held:
        note = "a statement in this section describes the original settings and does not hold for yours."
        print(f"Note: {note}")  # noqa: T201


def room(q: Quantities, model: str, gpu: str, *, devices: int = 1, weights: str | None = None) -> float:
    """Return what a model's weights leave of the memory of GPUs, in bytes.

    Raises:
        InputError: If nothing is left: a chapter started with another model says why it stops.
    """
    size, memory = q.weights(model, weights), devices * q.memory(gpu)
    if size >= memory:
        raise InputError(
            f"{model} takes {size / GIB:,.1f} GiB and {devices} x {gpu} has {memory / GIB:,.1f} GiB;"
            " choose a smaller model or a larger GPU"
        )
    return memory - size


def requires(size: float, model: str, part: str) -> None:
    """Stop a chapter that was started with a model without the part that it is about.

    Raises:
        InputError: If ``size``, the bytes of the part, is 0.
    """
    if size == 0:
        raise InputError(f"{model} has no {part}, which this chapter is about; choose another model")


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[object]] | pd.DataFrame,
    *,
    mark: int | None = None,
) -> Html:
    """Lay out a small table: first column as row heads, the rest as numbers.

    In a data frame the index is the row heads. Whole numbers get thousands separated, other numbers the same decimals in a column.
    The row ``mark`` is stressed.
    """
    if not isinstance(rows, Sequence):
        rows = rows.reset_index().astype("object").to_numpy().tolist()
    heads = "".join(
        f'<th scope="col"{"" if number == 0 else " class=kv-num"}>{escape(text)}</th>'
        for number, text in enumerate(head)
    )
    digits = [_digits([row[number] for row in rows]) for number in range(len(head))]
    body = []
    for number, row in enumerate(rows):
        first, *rest = (_cell(cell, places) for cell, places in zip(row, digits, strict=True))
        cells = "".join(f'<td class="kv-num">{cell}</td>' for cell in rest)
        css = ' class="kv-marked"' if number == mark else ""
        body.append(f'<tr{css}><th scope="row">{first}</th>{cells}</tr>')
    return Html(
        f'<div class="kv-scroll kv-scroll--open"><table class="kv-table kv-plain">'
        f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def listing(*lines: str) -> Html:
    """Show lines as a program prints them."""
    return Html(f'<pre class="kv-formula" tabindex="0">{escape(chr(10).join(lines))}</pre>')


def fold(summary: str, *parts: Html | str) -> Html:
    """Fold pieces away under a line that opens them: an answer, a derivation, a table of data."""
    inner = "".join(part.html if isinstance(part, Html) else f"<p>{escape(part)}</p>" for part in parts)
    return Html(f'<details class="kv-fold"><summary>{escape(summary)}</summary>{inner}</details>')


def curves(
    title: str,
    *,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float | None]],
    x_title: str,
    y_title: str,
    **options: Any,  # noqa: ANN401 (the other fields of Curves)
) -> Html:
    """Draw lines over one axis; see :class:`kvreport.site.kit.figures.Curves`."""
    drawn = tuple((name, tuple(values)) for name, values in lines.items())
    data = figures.Curves(title=title, x=tuple(x), lines=drawn, x_title=x_title, y_title=y_title, **options)
    return Html(figures.curves(data))


def bars(
    title: str,
    rows: Mapping[str, Mapping[str, tuple[str, float]]],
    *,
    limit_bytes: float | None = None,
    limit_name: str = "",
    label: str = "Case",
) -> Html:
    """Draw stacked bars: for each, its parts as role (color) to name and bytes; ``label`` heads their names in the table."""
    stacked = tuple(
        (name, tuple((role, part, size) for role, (part, size) in parts.items()))
        for name, parts in rows.items()
    )
    return Html(figures.bars(figures.Bars(title, stacked, limit_bytes, limit_name, label)))


def cache_terms(q: Quantities, model: str) -> tuple[int, list[kernel.Term]]:
    """Return what a request of a model holds as an instrument takes it: constant bytes, and terms."""
    return terms_of(kv_cache.held(q.catalog.model(model)))


def decode_step(
    q: Quantities, model: str, gpu: str, *, weights: str | None = None, kv: str | None = None
) -> kernel.Step:
    """Return what a step of a model asks of one GPU as an instrument takes it."""
    found = q.catalog.model(model)
    form = None if kv in (None, "bf16") else q.catalog.kv_format(str(kv))
    stored = q.catalog.weight_format(weights) if weights is not None else None
    asked = demand(found, stored, q.catalog.weight_formats, form)
    return step_of(asked, Peaks.of(q.catalog.accelerator(gpu)))


def _digits(column: Sequence[object]) -> int:
    """Decimals that give the column's largest number three or four digits, the same in every row."""
    sizes = [abs(value) for value in column if isinstance(value, float) and math.isfinite(value)]
    largest = max(sizes, default=0.0)
    return 0 if largest >= 1000 else 1 if largest >= 100 else 2 if largest >= 1 else 3


def _cell(value: object, digits: int) -> str:
    if isinstance(value, Html):
        return value.html
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and digits == 0 else f"{value:,.{digits}f}"
    if isinstance(value, bool | str):
        return escape(str(value))
    try:
        return f"{int(value):,}"  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return escape(str(value))
