"""What a question's page has for its reader: the form of the case, and ways to the tools for the same case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kvreport import units
from kvreport.book.reader_case import NAMES, Reader, start_json
from kvreport.catalog.load import RELEASED
from kvreport.site.kit.page import link
from kvreport.site.kit.templating import render
from kvreport.site.pages.controls import USUAL_CONTEXTS

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

_FIRST_PARAGRAPH: Final = "</p>"


def with_case(html: str, uri: str, reader: Reader, catalog: Catalog) -> str:
    """Return a question's page with the form under its short answer, and the ways to the tools at its end."""
    title, mark, rest = html.partition("</h1>")
    answer, end, more = rest.partition(_FIRST_PARAGRAPH)
    return f"{title}{mark}{answer}{end}{_form(html, uri, reader, catalog)}{more}{_tools(html, uri, reader, catalog)}"


def _on_gpu(html: str) -> bool:
    """Whether an expression of the page reads the accelerator; the letters alone are in every page's words."""
    return re.search(r'(?:&quot;|")GPU(?:&quot;|")', html) is not None


def _form(html: str, uri: str, reader: Reader, catalog: Catalog) -> str:
    model, gpu = catalog.model(reader.model), catalog.accelerator(reader.gpu)
    formats = (
        (RELEASED, "As released"),
        *((name, catalog.weight_format(name).label) for name in catalog.grid.weight_formats),
    )
    names: Mapping[str, Any] = {
        "start": start_json(reader, model.slug),
        "model": (model.slug, model.name),
        "gpu": (gpu.id, gpu.name),
        "gpus": reader.gpus,
        "sizes": catalog.grid.tensor_parallel,
        "context": units.human_tokens(reader.context),
        "contexts": tuple(map(units.human_tokens, USUAL_CONTEXTS)),
        "weights": formats,
        "form": reader.weights or RELEASED,
        "requests": reader.requests,
        "counted": reader.counted,
        "used": [name for name in NAMES if name in html and (name != "GPU" or _on_gpu(html))],
    }
    return str(render("_reader.html", uri, names))


def _tools(html: str, uri: str, reader: Reader, catalog: Catalog) -> str:
    """Links to the tools with the page's case; the site's script keeps them in step with the form."""
    model, gpu = catalog.model(reader.model), catalog.accelerator(reader.gpu)
    context = units.human_tokens(reader.context)
    formats = {"weights": reader.weights} if reader.weights else {}
    sized = {
        "model": model.slug,
        "gpu": gpu.id,
        "concurrent": max(reader.requests, 1),
        "prompt": "none",
        "context": context,
        "average": context,
        "burst": 1,
        "spares": 0,
    } | formats
    case = {"gpu": gpu.id, "tp": reader.gpus, "context": context} | formats
    listed: tuple[tuple[str, str, str], ...] = (
        ("model", f"{model.name} on {reader.names['GPU']}", f"models/{model.slug}/?{urlencode(case)}"),
        (
            "gpu",
            f"Every model on {gpu.short_name}",
            f"gpus/{gpu.id}/?{urlencode({'context': context} | formats)}",
        ),
        ("sizer", "Size a deployment for this case", f"sizer/?{urlencode(sized)}"),
    )
    if not _on_gpu(html):
        listed = (("model", model.name, f"models/{model.slug}/"),)
    links = " · ".join(
        f'<a data-kv-tool="{name}" href="{escape(link(uri, address), quote=True)}">{escape(words)}</a>'
        for name, words, address in listed
    )
    return f'<p class="kv-case-tools"><strong>Related pages:</strong> {links}</p>'
