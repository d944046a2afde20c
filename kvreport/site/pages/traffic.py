"""The traffic page: hit rates of a dropped trace, computed in the browser, and of the published ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport import units
from kvreport.accounting.kv_cache import held
from kvreport.publish.profiles import FOLDER
from kvreport.publish.site_data import SiteData
from kvreport.publish.traffic_data import TRACES, curve_of, files, left_out, reused, said_left_out, served
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType
from kvreport.traffic.shipped import shipped_traces
from kvreport.units import GIB

URI: Final = "traffic/"
TITLE: Final = "Capacity under your traffic"
CHAPTER: Final = "learn/how-real-traffic-fills-the-cache/"
EXAMPLES: Final = ("Qwen/Qwen3-4B-Instruct-2507", "meta-llama/Llama-3.1-8B-Instruct")
"""The first serves the longest prompts of every published trace, so that nothing is left out."""
GPUS: Final = ("h100-sxm-80gb",)
SIZES_GIB: Final = (8, 32, 128, 512, 2048)
BLOCK_TOKENS: Final = 16


def context(site: SiteData, addresses: frozenset[str] = frozenset()) -> Names:
    """Return what the template is given."""
    known = {model.id: model for model in site.models}
    model = next((known[name] for name in EXAMPLES if name in known), site.models[0])
    gpus = {gpu.id: gpu for gpu in site.gpus}
    gpu = next((name for name in GPUS if name in gpus), site.gpus[0].id)
    table = _table(int(held(model, None).marginal_bytes(1 << 20)), model.context_tokens)
    return {
        "folder": f"{FOLDER}/",
        "traces": tuple(
            {
                "key": one.key,
                "label": one.label,
                "what": one.what,
                "address": f"{TRACES}/{one.file}",
                "source": one.source,
                "url": one.url,
                "license": one.license,
                "attribution": one.attribution,
            }
            for one in shipped_traces().values()
        ),
        "model": model.slug,
        "model_name": model.name,
        "gpu": gpu,
        "gpu_name": gpus[gpu].name,
        "sizes": tuple(site.catalog.grid.tensor_parallel),
        "block_tokens": BLOCK_TOKENS,
        "table": table,
        "example": _example(table, model.name),
        "left_out": said_left_out(shipped_traces(), model.context_tokens)
        or "Every request in the traces is counted.",
        "command": f"kvreport replay mooncake-conversation {model.id} --gpu {gpu}",
        "chapter": CHAPTER if CHAPTER in addresses else "",
    }


def _table(token_bytes: int, limit_tokens: int) -> Table:
    """Hit rates of the published traces at a few sizes of cache, of the requests that the model serves."""
    columns = (*(Column(f"{size:,} GiB") for size in SIZES_GIB), Column("unlimited"))
    units_of = [size * GIB // max(token_bytes * BLOCK_TOKENS, 1) for size in SIZES_GIB]
    rows = []
    for key, record in shipped_traces().items():
        gone = left_out(key, limit_tokens)
        rest = f"{units.count(record.requests - gone)} of " if gone else ""
        name = Cell(f"{record.label} ({rest}{units.count(record.requests)} requests)")
        if not served(key, limit_tokens):
            rows.append(
                Row(name, why=f"{gone / record.requests:.0%} of the prompts are too long for this model")
            )
            continue
        everything = reused(key, BLOCK_TOKENS, limit_tokens).distinct
        found = curve_of(key, BLOCK_TOKENS, limit_tokens, (*units_of, everything))
        rows.append(Row(name, tuple(Cell(f"{rate:.1%}", "kv-num", rate) for rate, _ in found)))
    return Table("Hit rate (LRU) by KV cache size", Column("Trace", numeric=False), columns, tuple(rows))


def _example(table: Table, model: str) -> Names:
    """A trace that the model serves, and its hit rates in one sentence."""
    key, row = next(
        (pair for pair in zip(shipped_traces(), table.rows, strict=True) if pair[1].cells),
        (next(iter(shipped_traces())), table.rows[0]),
    )
    label = shipped_traces()[key].label
    if not row.cells:
        return {"key": key, "said": f"{label}."}
    rates = [cell.text for cell in row.cells]
    first, *others = zip(SIZES_GIB[1:4], rates[1:4], strict=True)
    sizes = f"{first[1]} with a {first[0]:,} GiB KV cache"
    sizes += "".join(f", {rate} with {size:,} GiB" for size, rate in others)
    return {
        "key": key,
        "said": f"On {model}, the {label} trace has a hit rate of {sizes}, and {rates[-1]} with an unlimited cache.",
    }


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the page."""
    yield Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        names=(
            "traffic",
            "replay",
            "trace",
            "prefix cache hit rate",
            "hit rate calculator",
            "requests in flight",
            "peak concurrency",
        ),
        description="Drop a request trace: prefix cache hit rate by cache size, the best possible rate, and the cache "
        "or GPUs for a target rate, computed in the browser.",
        sections=(
            Section("traffic", "", render("traffic/body.html", URI, context(inputs.site, inputs.addresses))),
        ),
    )


TYPE: Final = PageType("traffic", pages, files=lambda site: files(site.models))
