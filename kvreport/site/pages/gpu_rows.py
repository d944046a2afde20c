"""The rows of accelerators' tables, one for each model that an accelerator serves, kept between builds as HTML.

A hundred pages list five hundred models. A row depends on its model's record alone, beside facts and code, so a
changed model costs its own rows, and the others are put together from what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from kvreport.build_cache import code
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.publish.site_data import SiteData, page_format
from kvreport.site.kit import tables
from kvreport.site.kit.page import link
from kvreport.site.kit.table_rows import row_html
from kvreport.site.kit.tables import Cell, Row
from kvreport.words import SENTENCES

FOLDER: Final = "gpus"
"""Where accelerators' pages stand; a row's link is the same from each of them."""

Served = Mapping[str, Mapping[str, Row]]
"""For each model, its row on each accelerator that serves it, by id."""


def served(site: SiteData) -> Served:
    """Return the rows of every model on every accelerator."""
    return {
        model.id: {
            gpu: Row(Cell(model.name), (Cell(number), Cell("", value=requests)), made=html)
            for gpu, (number, requests, html) in rows.items()
        }
        for model, rows in site.parts.each("gpu-rows", site.models, partial(_rows, site), code())
    }


def _rows(site: SiteData, model: Model) -> dict[str, tuple[str, int, str]]:
    """Of one model's rows, by accelerator: the number of devices, requests as released where models are counted, HTML."""
    found = {}
    form = page_format(model)
    read = form == RELEASED
    taken = "" if read else f", {site.catalog.weight_formats[form].label.partition(' (')[0]} weights assumed"
    if model.by_name:
        taken = f", {SENTENCES['weights_by_name']}"
    taken = "".join(f", {one}" for one in model.inputs if one != "text") + taken
    place = site.contexts.index(site.counted_context)
    for gpu in site.gpus:
        one = site.serving(model, gpu.id)
        if one is not None:
            number = str(one.config.tensor_parallel)
            cells = (
                Cell(number, value=one.config.tensor_parallel),
                *tables.user_cells(one.users, one.verdicts, one.short),
            )
            row = Row(
                Cell(model.name, href=f"models/{model.slug}/", hint=model.maker + taken),
                cells,
                anchor=f"of-{model.slug}",
            )
            requests = one.users[place] if read and one.holds(place) else 0
            html = row_html(row, partial(link, f"{FOLDER}/{gpu.id}/"), dense=True)
            found[gpu.id] = number, requests, html
    return found
