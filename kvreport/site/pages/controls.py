"""The form that changes a page's state: which model, where, in which formats, under which engine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from kvreport import units
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import RELEASED
from kvreport.publish.layout_names import layout_words
from kvreport.publish.profiles import engines
from kvreport.publish.site_data import SiteData

USUAL_CONTEXTS: Final = (2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
"""Contexts that the field suggests; any other can be typed."""


@dataclass(frozen=True, slots=True)
class Controls:
    """A page's form.

    Attributes:
        start: The state that the page shows as it is printed.
        model: (slug, name) where the model can be changed, else None.
        gpu: (id, name) where the accelerator can be changed, else None.
        layouts: (label, words) of the layouts offered.
        weights: (name, label) of the weight formats offered.
        kv: (name, label) of the KV formats offered; "" is the model's own.
        engines: (name, label) of the engines offered.
        settings: Whether engine, memory share and scheduler sizes are offered.
        examples: Slugs of the models that the page's chart shows.
    """

    page: str
    start: dict[str, Any]
    model: tuple[str, str] | None = None
    gpu: tuple[str, str] | None = None
    layouts: tuple[tuple[str, str], ...] = ()
    weights: tuple[tuple[str, str], ...] = ()
    kv: tuple[tuple[str, str], ...] = ()
    engines: tuple[tuple[str, str], ...] = ()
    contexts: tuple[str, ...] = field(default_factory=lambda: tuple(map(units.human_tokens, USUAL_CONTEXTS)))
    settings: bool = True
    examples: tuple[str, ...] = ()

    @property
    def start_layout(self) -> str:
        """Label of the layout that the page shows as printed; "" for the fewest GPUs that fit."""
        return f"tp{self.start['tp']}" if "tp" in self.start else ""

    @property
    def start_context(self) -> str:
        """The context that the page shows as printed."""
        return units.human_tokens(self.start["context"]) if "context" in self.start else "8K"

    @property
    def start_json(self) -> str:
        """The start as the script reads it."""
        return json.dumps(self.start, separators=(",", ":"))


def layout_choices(site: SiteData, *, further: bool = True) -> tuple[tuple[str, str], ...]:
    """Return (label, words) of the site's layouts."""
    plain = [Layout(tensor=size) for size in site.catalog.grid.tensor_parallel]
    more = [Layout(**one.model_dump()) for one in site.catalog.grid.layouts] if further else []
    return tuple((layout.label, layout_words(layout)) for layout in (*plain, *more))


def weight_choices(site: SiteData) -> tuple[tuple[str, str], ...]:
    """Return (name, label) of every weight format, as released first."""
    named = [(name, form.label) for name, form in site.axes.weight_formats if form is not None]
    return ((RELEASED, "As released"), *named)


def kv_choices(site: SiteData) -> tuple[tuple[str, str], ...]:
    """Return (name, label) of the KV formats, the model's own first."""
    return (
        ("", "Model default"),
        *(
            (name, site.catalog.kv_format(name).label)
            for name in site.catalog.grid.kv_formats
            if name != "auto"
        ),
    )


def engine_choices(site: SiteData) -> tuple[tuple[str, str], ...]:
    """Return (name, label) of the engines that pages can switch to."""
    return tuple(
        (one["name"], "No overhead (upper bound)" if one["family"] == "ceiling" else one["label"])
        for one in engines(site)
    )
