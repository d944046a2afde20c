"""The case that a question's numbers are for: the reader's model, accelerator, context and requests.

A question names a case in its front matter::

    reader: {model: llama-3.1-8b, gpu: H100, context: 8K, requests: 40}

Its expressions then say ``MODEL``, ``GPU``, ``GPUS``, ``CONTEXT``, ``REQUESTS`` and ``WEIGHTS``. The build
computes them for the named case, and a page without a script shows that. The site's script computes the same
expressions for the case that a reader chooses (``docs/assets/kv-question.js``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from kvreport import units
from kvreport.errors import InputError

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

NAMES: Final = ("MODEL", "GPU", "GPUS", "CONTEXT", "REQUESTS", "WEIGHTS")
"""What expressions call the reader's case."""

_LINE: Final = re.compile(r"\A---\n(?:(?!---$).*\n)*?(reader: .+)\n", re.MULTILINE)
_FIELDS: Final = frozenset({"model", "gpu", "gpus", "context", "requests", "weights", "counted"})
_AS_RELEASED: Final = "as released"


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader's case."""

    model: str
    gpu: str
    gpus: int
    context: int
    requests: int
    weights: str | None
    counted: str  # What the field of requests is called.
    names: Mapping[str, str]  # How a page says each of :data:`NAMES`.

    @property
    def values(self) -> Mapping[str, Any]:
        """What the names stand for in expressions."""
        return dict(
            zip(
                NAMES,
                (self.model, self.gpu, self.gpus, self.context, self.requests, self.weights),
                strict=True,
            )
        )


def of_front_matter(meta: Mapping[str, Any], catalog: Catalog) -> Reader | None:
    """Return the case that a page's front matter names; None where it names none.

    Raises:
        InputError: If a field or a name is unknown.
    """
    told = meta.get("reader")
    if told is None:
        return None
    unknown = set(told) - _FIELDS
    if unknown:
        raise InputError(f"reader: found {', '.join(sorted(unknown))}; allowed: {', '.join(sorted(_FIELDS))}")
    model, gpu = catalog.model(told["model"]), catalog.accelerator(told["gpu"])
    gpus, requests = int(told.get("gpus", 1)), int(told.get("requests", 1))
    context = units.parse_tokens(str(told.get("context", "8K")))
    form = catalog.weight_format(told["weights"]) if told.get("weights") else None
    short = gpu.short_name
    names = {
        "MODEL": model.name,
        "GPU": f"one {short}" if gpus == 1 else f"{gpus} × {short}",
        "GPUS": f"{gpus}",
        "CONTEXT": units.human_tokens(context),
        "REQUESTS": f"{requests:,}",
        "WEIGHTS": form.label if form else _AS_RELEASED,
    }
    counted = told.get("counted", "Concurrent requests")
    return Reader(model.id, gpu.id, gpus, context, requests, form.name if form else None, counted, names)


def of_text(text: str, catalog: Catalog) -> Reader | None:
    """Return the case that a Markdown file names in its front matter; None where it names none."""
    match = _LINE.match(text)
    return of_front_matter(yaml.safe_load(match[1]), catalog) if match else None


def start_json(reader: Reader, slug: str) -> str:
    """Return a case as the site's script reads it: the fields of its state."""
    state = {
        "model": slug,
        "gpu": reader.gpu,
        "tp": reader.gpus,
        "context": reader.context,
        "requests": reader.requests,
        "weights": reader.weights,
    }
    return json.dumps({key: value for key, value in state.items() if value is not None})
