"""What stops a build: a page whose first line and table say different things.

The first line of a model's page comes from one estimate, its table from the matrix; an accelerator's first line
counts models, its table lists them. They have to agree on every page.
"""

from __future__ import annotations

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation import Estimate
from kvreport.publish.series import Series
from kvreport.site.kit.tables import Table


def of_model(
    model: Model,
    best: Series | None,
    shown: int | None,
    answer: Estimate | None,
    grid: Table,
    *,
    refused: bool = False,
) -> None:
    """Check a model's page.

    Args:
        model: The model.
        best: The series that the first line names, or None where it says that nothing serves the model.
        shown: Index of the context that it names.
        answer: The estimate that it was written from.
        grid: The accelerators that serve the model.
        refused: True if the first line says that the site's engine does not run it; rows are then of other engines.

    Raises:
        InputError: If the first line and the table differ.
    """
    if best is None or shown is None or answer is None:
        if grid.rows and not refused:
            raise InputError(
                f"page of {model.id}: the first line says that nothing serves it, the table has rows"
            )
        return
    if answer.max_concurrent_requests != best.users[shown]:
        raise InputError(
            f"page of {model.id}: the first line says {answer.max_concurrent_requests} requests, the matrix "
            f"{best.users[shown]} on {best.config.gpu} at {best.contexts[shown]} tokens"
        )
    gpu, number = best.config.gpu, best.config.tensor_parallel
    named = (f"on-{gpu}", f"on-{gpu}_{number}")
    listed = [row.cells for row in grid.rows if row.anchor in named and row.cells[0].text == str(number)]
    if not listed:
        raise InputError(f"page of {model.id}: the table lacks {number} x {gpu}, which the first line names")
    if listed[0][1 + shown].value != best.users[shown]:
        raise InputError(
            f"page of {model.id}: the first line says {best.users[shown]} requests on {number} x {gpu}, the table "
            f"{listed[0][1 + shown].value}"
        )


def of_gpu(gpu: Accelerator, alone: int, grid: Table) -> None:
    """Check an accelerator's page.

    Raises:
        InputError: If the first line and the table differ.
    """
    listed = sum(row.cells[0].text == "1" and bool(row.cells[1].value) for row in grid.rows)
    if listed != alone:
        raise InputError(f"page of {gpu.id}: the first line counts {alone} models, the table has {listed}")
