"""Places for keys and values that an engine allocates, in every pipeline stage of every model."""

from __future__ import annotations

import pytest

from kvreport.accounting.engines.projections import allocated_rows
from kvreport.accounting.stages import stages
from kvreport.catalog.load import open_catalog

CATALOG = open_catalog()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_no_stage_has_rows_of_no_layer(number: int) -> None:
    """A stage of Laguna has queries of one kind only; a row of no layer was divided by, and no site could be built."""
    for model in CATALOG.models.values():
        if number > model.layer_count:
            continue
        for stage in stages(model, number, ()):
            for joined in (False, True):
                rows = allocated_rows(stage.model, joined)
                assert all(row.count > 0 for row in rows), (model.id, number)
                assert sum(row.count for row in rows) >= sum(row.count for row in stage.model.weights)
