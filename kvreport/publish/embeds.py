"""What other sites show: a badge per model and accelerator, and the numbers of an embeddable card.

``badge/<model>.json`` has one entry per accelerator with the three fields that badge services read
(``label``, ``message``, ``color``) and ``requests``, how many fit at each of the file's ``contexts`` up to the longest
that fits; ``embed/?model=…&gpu=…`` shows the same as a card in a frame, the requests as a chart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from kvreport import units
from kvreport.catalog.model import Model
from kvreport.publish.profiles import encode
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData, devices, short_name

BADGES: Final = "badge"
UNKNOWN_SITE: Final = "https://YOUR-SITE/"
"""Stands for the address of a site that nobody has stated, in what a reader copies (also in ``mkdocs.yml``)."""
CARD: Final = "embed"
_CONTEXT: Final = 8192
_COLORS: Final = {"fits": "2f7d4f", "tight": "a8660a", "none": "a33a3a"}


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every badge file."""
    for model, badges in site.parts.each("badges", site.models, partial(_badges, site), site.version):
        yield f"{BADGES}/{model.slug}.json", badges


def _badges(site: SiteData, model: Model) -> bytes:
    """One model's badges, by accelerator."""
    found = {gpu.id: badge(model.name, short_name(gpu), site.serving(model, gpu.id)) for gpu in site.gpus}
    return encode({"schema": 1, "release": site.version, "contexts": site.contexts, "gpus": found})


def badge(model: str, gpu: str, one: Series | None) -> dict[str, Any]:
    """Return a badge in the fields of the shields.io endpoint schema.

    It counts requests of 8K, or of the longest context below that the model supports.
    """
    if one is None:
        return {
            "schemaVersion": 1,
            "label": f"{model} on {gpu}",
            "message": "does not fit",
            "color": _COLORS["none"],
            "requests": [],
        }
    supported = (n for n, verdict in enumerate(one.verdicts) if verdict != "context_exceeds_model")
    place = max((n for n in supported if one.contexts[n] <= _CONTEXT), default=0)
    context, requests = one.contexts[place], one.users[place] if one.holds(place) else 0
    machine = devices(one.config.tensor_parallel, gpu)
    words = f"{units.count(requests)} {'request' if requests == 1 else 'requests'} at {units.human_tokens(context)}"
    color = _COLORS["fits" if requests else "none"]
    message = words if requests else "does not fit"
    return {
        "schemaVersion": 1,
        "label": f"{model} on {machine}",
        "message": message,
        "color": color,
        "requests": [number for _, number in one.line()] if requests else [],
    }


def markdown(site: SiteData, model: Model, gpu: str) -> str:
    """Return the line that shows a model's badge in a README; a badge service reads the file of the site."""
    label = badge(model.name, short_name(site.catalog.accelerators[gpu]), site.serving(model, gpu))["label"]
    root = site.site_url or UNKNOWN_SITE
    asked = urlencode(
        {"url": f"{root}{BADGES}/{model.slug}.json", "query": f"$.gpus['{gpu}'].message", "label": label}
    )
    return f"[![{label}](https://img.shields.io/badge/dynamic/json?{asked})]({root}models/{model.slug}/)"
