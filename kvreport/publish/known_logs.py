"""Published start-up logs by model and accelerator, for pages that show them next to an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from kvreport.catalog.observation import load_observations
from kvreport.estimation.why_not import is_about, published
from kvreport.publish.site_data import SiteData

FILE: Final = "downloads/v1/logs.json"
"""``{model slug: {accelerator: [log, ...]}}``; a log as under ``why_not.logs`` of an estimate."""


def known_logs(site: SiteData) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the logs of the site's models on its accelerators; models without any are left out."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    gpus = {gpu.id for gpu in site.gpus}
    observations = [one for one in load_observations(site.catalog.folder) if one.gpu in gpus]
    for model in site.models:
        for one in observations:
            if is_about(one, model):
                found.setdefault(model.slug, {}).setdefault(str(one.gpu), []).append(asdict(published(one)))
    return found


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield the file."""
    yield FILE, json.dumps(known_logs(site), ensure_ascii=False, separators=(",", ":")).encode()
