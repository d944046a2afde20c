"""The part of the evidence page about other calculators: what they answer to the same questions.

Our own answers are computed when the page is built; only those of the other tools are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kvreport import units
from kvreport.catalog.peer import PeersFile, PoolQuestion, Question, Tool
from kvreport.estimation.estimate import estimate, hypothetical
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog

POOL_BYTES: Final = 40 * units.GIB
"""The pool of the comparison with tools that know no engine's reserve."""


def tables(catalog: Catalog, peers: PeersFile) -> Iterator[Table]:
    """Requests that fit by tool, requests in a given pool by tool, further tools, and how each was run."""
    yield _peers(catalog, peers)
    if peers.pools:
        yield _pools(catalog, peers)
    if peers.cited:
        yield listing(
            "More tools and their strengths",
            peers.cited,
            texts("Tool and version", lambda tool: Cell(tool.name, href=tool.url)),
            texts("How we ran the tool, and its strengths", lambda tool: Cell(tool.why, "kv-why")),
        )
    yield listing(
        "Versions and settings of the tools that were run",
        peers.tools,
        texts("Tool and version", lambda tool: Cell(tool.name, href=tool.url)),
        numbers("Run on", lambda tool: _run_on(peers, tool)),
        texts("Function and settings", lambda tool: Cell(tool.how, "kv-why")),
    )


def _run_on(peers: PeersFile, tool: Tool) -> str:
    """The day a tool was run: its own, else that of its table."""
    asked_for_a_pool = any(answer.tool == tool.key for pool in peers.pools for answer in pool.answers)
    return tool.run or (peers.pools_date if asked_for_a_pool else None) or peers.date


def _days(peers: PeersFile, questions: Sequence[Question | PoolQuestion]) -> str:
    """The days on which the tools of a table were run, for its caption."""
    days = sorted({_run_on(peers, tool) for tool in _asked_tools(peers, questions)})
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _peers(catalog: Catalog, peers: PeersFile) -> Table:
    tools = _asked_tools(peers, peers.cases)
    return listing(
        f"Requests that fit, by tool. Other tools were run {_days(peers, peers.cases)}",
        peers.cases,
        texts("Question", lambda case: _question(catalog, case)),
        numbers("kvreport, vLLM", lambda case: _ours(catalog, case, "vllm", case.utilization)),
        numbers("Upper bound", lambda case: _ours(catalog, case, "ceiling")),
        *(numbers(tool.name, partial(_whole, tool), hint=tool.how) for tool in tools),
        texts("Statements and methods of the other tools", lambda case: _notes(tools, case)),
    )


def _asked_tools(peers: PeersFile, questions: Sequence[Question | PoolQuestion]) -> list[Tool]:
    """The tools that answered one of these questions."""
    named = {answer.tool for question in questions for answer in question.answers}
    return [tool for tool in peers.tools if tool.key in named]


def _requests(tool: Tool, question: Question | PoolQuestion) -> float | None:
    """The requests that a tool answered; None where it did not."""
    return next((answer.requests for answer in question.answers if answer.tool == tool.key), None)


def _notes(tools: Sequence[Tool], question: Question | PoolQuestion) -> Cell:
    """What the answers of the tools say of themselves."""
    given = {answer.tool: answer.note for answer in question.answers}
    notes = (f"{tool.name.partition(' ')[0]}: {given[tool.key]}" for tool in tools if given.get(tool.key))
    return Cell("; ".join(notes), "kv-why")


def _pools(catalog: Catalog, peers: PeersFile) -> Table:
    tools = _asked_tools(peers, peers.pools)
    return listing(
        f"Requests that fit in a pool of 40 GiB per device with a 16-bit cache. Other tools were run {_days(peers, peers.pools)}",
        peers.pools,
        texts("Question", lambda question: _pool_question(catalog, question)),
        numbers("vLLM's own code", lambda question: _decimal(question.planner)),
        numbers("kvreport, vLLM", lambda question: _decimal(_in_pool(catalog, question))),
        *(numbers(tool.name, partial(_concurrency, tool), hint=tool.how) for tool in tools),
        texts("Statements and methods of the other tools", lambda question: _notes(tools, question)),
    )


def _pool_question(catalog: Catalog, question: PoolQuestion) -> Cell:
    model = catalog.model(question.model)
    ranks = f", {question.tensor_parallel} ranks" if question.tensor_parallel > 1 else ""
    said = f"{model.name} at {units.human_tokens(question.context_tokens)}{ranks}"
    return Cell(said, href=f"models/{model.slug}/")


def _in_pool(catalog: Catalog, question: PoolQuestion) -> float | None:
    """Our own answer: the planner was given the pool, whether or not a device has room for it beside the weights."""
    model = catalog.model(question.model)
    return hypothetical(
        model,
        gpu="h100-sxm-80gb",
        tensor_parallel=question.tensor_parallel,
        context_tokens=question.context_tokens,
        kv="auto" if model.kv_format is not None and "mla" in model.kv_format else "bf16",
        kv_pool=POOL_BYTES,
        catalog=catalog,
    ).max_concurrency


def _concurrency(tool: Tool, question: PoolQuestion) -> Cell:
    return _decimal(_requests(tool, question))


def _decimal(number: float | None) -> Cell:
    return Cell("" if number is None else f"{number:,.2f}", value=number)


def _whole(tool: Tool, case: Question) -> int | None:
    requests = _requests(tool, case)
    return None if requests is None else int(requests)


def _question(catalog: Catalog, case: Question) -> Cell:
    model, gpu = catalog.model(case.model), catalog.accelerator(case.gpu)
    devices = f"{case.tensor_parallel} × " if case.tensor_parallel > 1 else ""
    formats = f"{case.weight_format or 'as released'}, cache {case.kv_format or 'as declared'}"
    return Cell(
        f"{model.name} at {units.human_tokens(case.context_tokens)}",
        hint=f"{devices}{gpu.name}, {formats}, memory share {case.utilization:g}",
        href=f"models/{model.slug}/",
    )


def _ours(catalog: Catalog, case: Question, engine: str, utilization: float | None = None) -> int:
    return estimate(
        catalog.model(case.model),
        gpu=catalog.accelerator(case.gpu),
        tensor_parallel=case.tensor_parallel,
        context_tokens=case.context_tokens,
        weights=case.weight_format,
        kv=case.kv_format or "auto",
        engine=engine,
        utilization=utilization,
        catalog=catalog,
    ).max_concurrent_requests_by_memory
