"""Pages of the sentences with which engines refuse to start: what each means, a worked example, the log reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kvreport.catalog.log_lines import LogLine, log_lines
from kvreport.catalog.refusals import FOLDER, Refusal, refusals
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.conclusion import headline
from kvreport.estimation.remedies import remedies
from kvreport.publish.site_data import SiteData
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import render
from kvreport.site.page_type import Inputs, PageType
from kvreport.site.pages import log_reader
from kvreport.startup_log.endings import remedy_words
from kvreport.startup_log.reading import meaning
from kvreport.units import gib
from kvreport.words import KV_NAMES, counted

TITLE: Final = "Refusals to start"
MOST_CHANGES: Final = 3
ANY: Final = ("vllm", "sglang")
"""Engines whose flags stand on the page of a message that any program prints."""
_BOOST: Final = 0.6
"""A pasted message finds its page all the same; words of other questions are better answered elsewhere."""
_PARTS: Final = (
    ("Weights", "weights"), ("Activations of one step", "activations"), ("Other memory", "non_framework"), ("CUDA graphs", "graphs"),
)  # fmt: skip
"""What an engine's share holds besides the pool, as budgets name it."""


def _page(site: SiteData, runtime_bytes: int, refusal: Refusal) -> Page:
    engines = {line.name: (one.engine, line) for one in log_lines() for line in one.lines}
    line = engines[refusal.lines[0]][1]
    lines = [engines[name][1] for name in refusal.lines]
    means = {refusal.means: line.example} if refusal.means else _meanings(lines)
    result = _answer(site, refusal)
    context: dict[str, Any] = {**log_reader.context(site, runtime_bytes)} | {
        "refusal": refusal,
        "means": tuple(means.items()),
        "remedies": _remedies(site, _engines(engines[name][0] for name in refusal.lines), line),
        "sentence": line.example,
        "example": line.example,
        "read": line.read,
        "at": line.at,
        "table": None if result is None else _table(result),
        "conclusion": "" if result is None else headline(result),
        "changes": () if result is None else _changes(result, site),
        "server": "" if result is None else result.request.engine.label.split()[0],
    }
    body = render("refusals/body.html", refusal.address, context)
    return Page(
        uri=refusal.address,
        kind="tool",
        title=refusal.title,
        heading=refusal.title,
        description=next(iter(means)).split(". ")[0].rstrip(".") + ".",
        sections=(Section("refusal", "", body),),
        names=refusal.lines,
        quoted=(
            Section("yours", "The message", " ".join(engines[name][1].example for name in refusal.lines)),
        ),
        boost=_BOOST,
    )


def _meanings(lines: list[LogLine]) -> dict[str, str]:
    """What lines mean, with the numbers of their examples, and the first example of each meaning."""
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        found.setdefault(line.says, (meaning(line), line.example))
    return dict(found.values())


def _engines(named: Iterable[str | None]) -> tuple[str, ...]:
    """The engines whose flags a page names; those of servers for a message of any program."""
    found = tuple(dict.fromkeys(named))
    return ANY if None in found else tuple(one for one in found if one is not None)


def _remedies(site: SiteData, engines: tuple[str, ...], line: LogLine) -> tuple[str, ...]:
    """What helps; where engines have different words for it, each with its engine's name."""
    named = () if line.ends is None else line.ends.remedies
    words = {engine: remedy_words(named, engine) for engine in engines}
    found = []
    for name in named:
        told = {engine: own[name] for engine, own in words.items()}
        if len(set(told.values())) == 1:
            text = told[engines[0]]
            found.append(text[:1].upper() + text[1:] + ".")
        else:
            labels = {one: site.catalog.engine(one).label.split()[0] for one in told}
            found.append("; ".join(f"{labels[one]}: {text}" for one, text in told.items()) + ".")
    return tuple(found)


def _answer(site: SiteData, refusal: Refusal) -> Estimate | None:
    """The worked example's answer; None where there is none, or where the catalog does not know its names."""
    if refusal.example is None:
        return None
    asked = dict(refusal.example)
    try:
        return estimate(asked.pop("model"), catalog=site.catalog, **asked)
    except InputError:
        return None


def _changes(result: Estimate, site: SiteData) -> tuple[str, ...]:
    """What would make the example start, in the flags of its engine."""
    found = remedies(result, site.catalog.kv_formats) if result.verdict not in {"fits", "tight"} else ()
    family = result.request.engine.family
    return tuple(
        f"{_in_flags_of(family, one.flags)}: {counted(one.requests, 'request|requests')}"
        for one in found[:MOST_CHANGES]
    )


def _in_flags_of(family: str, change: str) -> str:
    """A change as a server's command says it; weights in another format are another checkpoint.

    Examples:
        >>> _in_flags_of("vllm", "--context 34960 --kv fp8"), _in_flags_of("sglang", "--weights int4")
        ('--max-model-len 34960 --kv-cache-dtype fp8', 'a checkpoint in INT4')
    """
    names, said = flag_names(family), []
    for flag, value in re.findall(r"--([a-z-]+)(?: ([^-]\S*))?", change):
        setting = flag.replace("-", "_")
        if setting == "weights":
            said.append(f"a checkpoint in {value.upper()}")
        else:
            own = KV_NAMES.get(family, {}).get(value, value) if setting == "kv" else value
            said.append(f"{names.get(setting, f'--{flag}')} {own}".rstrip())
    return " ".join(said)


def _table(result: Estimate) -> Table:
    """The example's budget on one device, line by line."""
    told = result.to_dict()
    budget = told["budget"]
    total, share = budget["total_bytes"], budget["utilization"]
    rows = [(f"Memory of {result.request.accelerators[0].name}", gib(total))]
    engine = result.request.engine
    whose = f"Share that {engine.label} takes" if share == engine.utilization else "Share of this example"
    rows += [(f"{whose}, {share:g}", gib(int(total * share)))]
    rows += [(name, f"\N{MINUS SIGN}{gib(budget[part])}") for name, part in _PARTS if budget[part]]
    rows += [("Left for the KV pool", gib(budget["kv_pool_bytes"]))]
    rows += [
        (f"One request of {told['context_tokens']:,} tokens takes", gib(told["kv_bytes_per_request_per_gpu"]))
    ]
    return Table(
        f"{told['model']} on one {result.request.accelerators[0].name}, computed for {result.request.engine.label}.",
        Column("Part", numeric=False),
        (Column("Size", "GiB"),),
        tuple(Row(Cell(name), (Cell(size, "kv-num"),)) for name, size in rows),
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the list of sentences, and a page for each."""
    for one in refusals():
        yield _page(inputs.site, inputs.runtime_bytes, one)
    yield Page(
        uri=FOLDER,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        description=f"{len(refusals())} error messages with which engines refuse to start, and their meaning.",
        lead=render("refusals/index.html", FOLDER, {"refusals": refusals()}),
    )


TYPE: Final = PageType("refusals", pages)
