"""Your model: a config, a GGUF file or a Hub id, answered by the library itself in the reader's browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kvreport.architectures.hub import ENDPOINT
from kvreport.estimation.your_model import FILES
from kvreport.publish.python_runtime import FOLDER, MANIFEST
from kvreport.publish.site_data import SiteData
from kvreport.resources import read_table
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType

URI: Final = "your-model/"
TITLE: Final = "Your model"
HEADING: Final = "How much memory does your model need?"

EXAMPLE: Final[dict[str, Any]] = read_table("example config")
"""A made-up mixture of experts, to try the page with."""

CONTEXT_TOKENS: Final = 8192
"""Context per request that the page starts with."""


def page(site: SiteData, runtime_bytes: int) -> Page:
    """Return the page."""
    return Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=HEADING,
        names=(
            "your model",
            "config.json",
            "gguf",
            "custom model",
            "hugging face id",
            "private model",
            "fine-tune",
        ),
        description="Paste a config.json, drop a GGUF file or type a Hugging Face ID: weights, KV cache and concurrent "
        "requests on every GPU, computed in your browser.",
        lead='<p class="kv-lead">Paste a <code>config.json</code>, drop a GGUF file or type a Hugging Face ID. The Python code '
        "of kvreport runs in your browser and shows weights, KV cache and concurrent requests on every GPU.</p>",
        sections=(
            Section("your-model", "", render("your_model/body.html", URI, context(site, runtime_bytes))),
        ),
    )


def context(site: SiteData, runtime_bytes: int) -> Names:
    """Return what the template is given."""
    gpu = next((one.id for one in site.gpus if one.id == "h100-sxm-80gb"), site.gpus[0].id)
    return {
        "runtime": runtime_bytes > 0,
        "folder": f"{FOLDER}/",
        "manifest": MANIFEST,
        "megabytes": round(runtime_bytes / 1e6),
        "hub": ENDPOINT,
        "files": " ".join(FILES),
        "example": json.dumps(EXAMPLE, indent=2),
        "gpu": gpu,
        "context_tokens": CONTEXT_TOKENS,
        "commands": f"kvreport estimate path/to/config.json --gpu {gpu} --context 8K\n"
        f"kvreport estimate ORG/NAME --fetch --gpu {gpu} --context 8K\n"
        f"kvreport estimate model.gguf --engine llama-cpp --gpu {gpu}",
    }


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield page(inputs.site, inputs.runtime_bytes)


TYPE: Final = PageType("your_model", pages)
