"""The rows of accelerators' tables, one for each model that an accelerator serves, kept between builds as HTML.

A hundred pages list five hundred models. A row depends on its model's record alone, beside facts and code, so a
changed model costs its own rows, and the others are put together from what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kvreport.build_cache import code
from kvreport.catalog.model import Model
from kvreport.publish.site_data import SiteData
from kvreport.site.kit import tables
from kvreport.site.kit.page import link
from kvreport.site.kit.table_rows import row_html
from kvreport.site.kit.tables import Cell, Row

FOLDER: Final = "gpus"
"""Where accelerators' pages stand; a row's link is the same from each of them."""

Served = Mapping[str, Mapping[str, Row]]
"""For each model, its row on each accelerator that serves it, by id."""


def served(site: SiteData) -> Served:
    """Return the rows of every model on every accelerator."""
    with site.parts.group("gpu-rows") as kept:
        return {
            model.id: {
                gpu: Row(Cell(model.name), (Cell(number),), made=html)
                for gpu, (number, html) in kept.get(
                    site.parts.key(site.parts.of_model(model), code()), partial(_rows, site, model)
                ).items()
            }
            for model in site.models
        }


def _rows(site: SiteData, model: Model) -> dict[str, tuple[str, str]]:
    """The number of devices and the HTML of one model's rows, by accelerator."""
    found = {}
    for gpu in site.gpus:
        one = site.serving(model, gpu.id)
        if one is not None:
            number = str(one.config.tensor_parallel)
            cells = (
                Cell(number, "kv-num", value=one.config.tensor_parallel),
                *tables.user_cells(one.users, one.verdicts, one.short),
            )
            row = Row(
                Cell(model.name, href=f"models/{model.slug}/", hint=model.maker),
                cells,
                anchor=f"of-{model.slug}",
            )
            found[gpu.id] = number, row_html(row, partial(link, f"{FOLDER}/{gpu.id}/"), dense=True)
    return found
