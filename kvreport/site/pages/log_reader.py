"""The log reader: a start-up log understood in the browser, with the patterns of :mod:`kvreport.startup_log`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport.catalog.log_lines import log_lines
from kvreport.catalog.server_flags import with_flags
from kvreport.publish.profiles import FOLDER, encode
from kvreport.publish.python_runtime import FOLDER as PYTHON
from kvreport.publish.python_runtime import MANIFEST
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.startup_log import patterns, table
from kvreport.startup_log.llama_cpp import browser_table
from kvreport.startup_log.reading import meaning

URI: Final = "log/"
LINES: Final = f"{FOLDER}/log-lines.json"
TITLE: Final = "What does this log tell me?"

EXAMPLE: Final = with_flags("""\
vllm serve Qwen/Qwen2.5-72B-Instruct --{vllm:tensor_parallel} 2 --{vllm:utilization} 0.9 --{vllm:context} 32768
Free memory on device (78.50/79.11 GiB) on startup.
Model loading took 67.79 GiB
Available KV cache memory: 3.20 GiB
ValueError: To serve at least one request with the model's max seq len (32768), (5.00 GiB KV cache is needed, \
which is larger than the available KV cache memory (3.20 GiB). Based on the available memory, the estimated maximum \
model length is 20960.
""")
"""A made-up start of a server that does not start; its numbers are consistent with each other."""


_ANY: Final = "any"
_OWNERS: Final = {
    None: _ANY,
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt_llm": "TensorRT-LLM",
    "llama_cpp": "llama.cpp",
    "ollama": "Ollama",
    "mlx": "MLX",
}


def page(site: SiteData, runtime_bytes: int) -> Page:
    """Return the page."""
    return Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        names=("log", "log reader", "start-up log"),
        description="Paste the start-up log of vLLM, SGLang, llama.cpp, Ollama or TensorRT-LLM: every number "
        "explained, compared with the formula, and what to change. The log stays in your browser.",
        sections=(Section("log", "", render("log/body.html", URI, context(site, runtime_bytes))),),
        quoted=tuple(quoted()),
    )


def quoted() -> Iterator[Section]:
    """Yield the lines of each engine that are no refusals, which have pages of their own, for the search."""
    for one in log_lines():
        examples = [line.example for line in one.lines if line.ends is None and line.setting is None]
        title = f"Lines of {_OWNERS[one.engine]}'s log" if one.engine else "Lines of a start-up log"
        yield Section("lines", title, " ".join(" ".join(examples).split()))


def context(site: SiteData, runtime_bytes: int) -> Names:
    """Return what the template is given."""
    return {
        "folder": f"{FOLDER}/",
        "slugs": tuple(model.slug for model in site.models),
        "example": EXAMPLE,
        "lines": _lines(),
        "runtime": runtime_bytes > 0,
        "python": f"{PYTHON}/",
        "manifest": MANIFEST,
        "megabytes": round(runtime_bytes / 1e6),
    }


def _lines() -> Table:
    """One row for each thing that lines mean, with the numbers of an example."""
    owners: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    for pattern in patterns():
        known = owners.setdefault(pattern.line.says, [])
        said.setdefault(pattern.line.says, meaning(pattern.line))
        owner = _OWNERS[pattern.engine] if pattern.engine in _OWNERS else str(pattern.engine)
        if owner not in known:
            known.append(owner)
    return Table(
        "What this page recognizes in a log, with example values. All other lines are listed as unrecognized and do not affect the result.",
        Column("Engine", numeric=False),
        (Column("Message", numeric=False),),
        tuple(
            Row(Cell(_ANY if _ANY in names else ", ".join(names)), (Cell(said[says]),))
            for says, names in owners.items()
        ),
        css="kv-words",
    )


def files(_: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield what recognizes lines, which the page fetches when a log is there: for servers, and for engines at home."""
    yield LINES, encode({"served": table(), "local": browser_table()})


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield page(inputs.site, inputs.runtime_bytes)


TYPE: Final = PageType("log", pages, files=files)
