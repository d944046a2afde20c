"""The part of the evidence page about other calculators: what they answer to the same questions.

Our own answers are computed when the page is built; only those of the other tools are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kvreport import units
from kvreport.catalog.peer import PeersFile, PoolQuestion, Question, Tool
from kvreport.estimation.estimate import estimate, hypothetical
from kvreport.site.kit.tables import Cell, Column, Row, Table, count_cell

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
        yield Table(
            "More tools and their strengths",
            Column("Tool and version", numeric=False),
            (Column("How we ran the tool, and its strengths", numeric=False),),
            tuple(Row(Cell(tool.name, href=tool.url), (Cell(tool.why, "kv-why"),)) for tool in peers.cited),
        )
    yield Table(
        "Versions and settings of the tools that were run",
        Column("Tool and version", numeric=False),
        (Column("Run on"), Column("Function and settings", numeric=False)),
        tuple(
            Row(
                Cell(tool.name, href=tool.url),
                (Cell(_run_on(peers, tool), "kv-num"), Cell(tool.how, "kv-why")),
            )
            for tool in peers.tools
        ),
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
    return Table(
        f"Requests that fit, by tool. Other tools were run {_days(peers, peers.cases)}",
        Column("Question", numeric=False),
        (
            Column("kvreport, vLLM"),
            Column("Upper bound"),
            *(Column(tool.name, hint=tool.how) for tool in _asked_tools(peers, peers.cases)),
            Column("Statements and methods of the other tools", numeric=False),
        ),
        tuple(_asked(catalog, peers, case) for case in peers.cases),
    )


def _asked_tools(peers: PeersFile, questions: Sequence[Question | PoolQuestion]) -> list[Tool]:
    """The tools that answered one of these questions."""
    named = {answer.tool for question in questions for answer in question.answers}
    return [tool for tool in peers.tools if tool.key in named]


def _answers(tools: Sequence[Tool], question: Question | PoolQuestion) -> tuple[list[float | None], str]:
    """What each tool answered, and what the answers say of themselves."""
    given = {answer.tool: answer for answer in question.answers}
    answers = [(tool, given.get(tool.key)) for tool in tools]
    notes = (f"{tool.name.partition(' ')[0]}: {one.note}" for tool, one in answers if one and one.note)
    return [None if one is None else one.requests for _, one in answers], "; ".join(notes)


def _pools(catalog: Catalog, peers: PeersFile) -> Table:
    tools = _asked_tools(peers, peers.pools)
    return Table(
        f"Requests that fit in a pool of 40 GiB per device with a 16-bit cache. Other tools were run {_days(peers, peers.pools)}",
        Column("Question", numeric=False),
        (
            Column("vLLM's own planner"),
            Column("kvreport, vLLM"),
            *(Column(tool.name, hint=tool.how) for tool in tools),
            Column("Statements and methods of the other tools", numeric=False),
        ),
        tuple(_pool_row(catalog, tools, question) for question in peers.pools),
    )


def _pool_row(catalog: Catalog, tools: Sequence[Tool], question: PoolQuestion) -> Row:
    model = catalog.model(question.model)
    # The planner was given the pool, whether or not a device has room for it beside the weights.
    ours = hypothetical(
        model,
        gpu="h100-sxm-80gb",
        tensor_parallel=question.tensor_parallel,
        context_tokens=question.context_tokens,
        kv="auto" if model.kv_format is not None and "mla" in model.kv_format else "bf16",
        kv_pool=POOL_BYTES,
        catalog=catalog,
    ).max_concurrency
    theirs, notes = _answers(tools, question)
    ranks = f", {question.tensor_parallel} ranks" if question.tensor_parallel > 1 else ""
    return Row(
        Cell(
            f"{model.name} at {units.human_tokens(question.context_tokens)}{ranks}",
            href=f"models/{model.slug}/",
        ),
        (
            *(_decimal(number) for number in (question.planner, ours, *theirs)),
            Cell(notes, "kv-why"),
        ),
    )


def _decimal(number: float | None) -> Cell:
    return Cell("") if number is None else Cell(f"{number:,.2f}", "kv-num", value=number)


def _asked(catalog: Catalog, peers: PeersFile, case: Question) -> Row:
    model, gpu = catalog.model(case.model), catalog.accelerator(case.gpu)
    ours = [
        estimate(
            model,
            gpu=gpu,
            tensor_parallel=case.tensor_parallel,
            context_tokens=case.context_tokens,
            weights=case.weight_format,
            kv=case.kv_format or "auto",
            engine=engine,
            utilization=share_of_memory,
            catalog=catalog,
        ).max_concurrent_requests_by_memory
        for engine, share_of_memory in (("vllm", case.utilization), ("ceiling", None))
    ]
    theirs, notes = _answers(_asked_tools(peers, peers.cases), case)
    devices = f"{case.tensor_parallel} × " if case.tensor_parallel > 1 else ""
    formats = f"{case.weight_format or 'as released'}, cache {case.kv_format or 'as declared'}"
    return Row(
        Cell(
            f"{model.name} at {units.human_tokens(case.context_tokens)}",
            hint=f"{devices}{gpu.name}, {formats}, memory share {case.utilization:g}",
            href=f"models/{model.slug}/",
        ),
        (
            *(count_cell(None if number is None else int(number)) for number in (*ours, *theirs)),
            Cell(notes, "kv-why"),
        ),
    )
