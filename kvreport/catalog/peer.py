"""What other tools answered when they were run on the same questions, as data."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from kvreport.catalog.base import Count, LongText, Positive, Record, Slug, Text
from kvreport.catalog.model import ModelId
from kvreport.catalog.observation import Day, Share
from kvreport.catalog.shelf import CatalogFile


class Tool(Record):
    """A tool that was run."""

    key: Slug
    name: Text
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=300)]  # Where it comes from.
    how: Text  # What was called, with which settings.
    run: Day | None = None  # The day it was run, where that is not the day of its table.


class _Answer(Record):
    """The tool, and what it says about its number or in place of one."""

    tool: Slug
    note: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if getattr(self, "requests", None) is None and self.note is None:
            raise ValueError("requests: missing; allowed: a number, or a note that says why there is none")
        return self


class Answer(_Answer):
    """What one tool answered; without ``requests`` it gave no answer, and ``note`` says why."""

    requests: Count | None = None


class Question(Record):
    """One question: how many requests of a context fit?"""

    model: ModelId
    gpu: Slug
    tensor_parallel: Positive = 1
    weight_format: Slug | None = None  # The catalog's name; None for the checkpoint as released.
    kv_format: Slug | None = None  # The catalog's name; None for what the checkpoint declares, else 16 bits.
    utilization: Share
    context_tokens: Positive
    answers: Annotated[tuple[Answer, ...], Field(min_length=1)]


class PoolAnswer(_Answer):
    """Requests that a tool's bytes come to; without ``requests`` it gave none, and ``note`` says why."""

    requests: Annotated[float, Field(gt=0)] | None = None


class PoolQuestion(Record):
    """How many requests of a context a pool of 40 GiB per device holds, cached in 16 bits."""

    model: ModelId
    tensor_parallel: Positive = 1
    context_tokens: Positive  # Tokens of each request.
    # What vLLM's own planner printed, where a run of it was recorded.
    planner: Annotated[float, Field(gt=0)] | None = None
    answers: Annotated[tuple[PoolAnswer, ...], Field(min_length=1)]  # What the tools' bytes come to.


class CitedTool(Record):
    """A tool that is named and not run, and why."""

    name: Text
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=300)]
    why: LongText


class PeersFile(CatalogFile):
    """The content of ``peers.yaml``: tools, the day they were run, their answers."""

    FILE = "peers.yaml"
    date: Day  # The day the tools were run.
    tools: Annotated[tuple[Tool, ...], Field(min_length=1)]
    cited: tuple[CitedTool, ...] = ()  # Tools that were not, and why.
    cases: Annotated[tuple[Question, ...], Field(min_length=1)]
    pools: tuple[PoolQuestion, ...] = ()  # Questions about a pool of 40 GiB.
    pools_date: Day | None = None  # The day those were asked, if another.

    @model_validator(mode="after")
    def _tools_are_named(self) -> Self:
        known = {tool.key for tool in self.tools}
        named = [answer.tool for case in self.cases for answer in case.answers]
        named += [answer.tool for pool in self.pools for answer in pool.answers]
        for tool in named:
            if tool not in known:
                raise ValueError(f"tool: found {tool}; allowed: {', '.join(sorted(known))}")
        return self
