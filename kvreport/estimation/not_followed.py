"""Options that an engine does not have, and options that it has and that change none of its answers.

Which they are is data (``options`` of ``data/support.yaml``): an option that is accepted changes an answer, is named in
the answer, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvreport.accounting.capacity import Verdict
from kvreport.catalog.engine import Engine
from kvreport.catalog.release import trait
from kvreport.catalog.support import Support
from kvreport.errors import InputError, shorten
from kvreport.query import Option, Query, options


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """An option that was given and that the answer does not depend on."""

    flag: str  # As written on the command line.
    value: str  # What was given.
    term: str | None  # What of the memory it changes in the server; None where it changes none.
    effect: str  # What that means for the answer, in words.

    def __str__(self) -> str:
        """A line of the answer."""
        return f"{self.flag}{f' {self.value}' if self.value else ''}: {self.effect}"

    def to_dict(self) -> dict[str, Any]:
        """The entry of ``not_followed`` in JSON."""
        return {"flag": self.flag, "value": self.value, "term": self.term, "effect": self.effect}


def open_terms(passed_over: Iterable[NotFollowed]) -> list[str]:
    """The parts of the memory that options change which are not followed: nobody knows by how much."""
    return list(dict.fromkeys(one.term for one in passed_over if one.term is not None))


def outside_band(passed_over: Iterable[NotFollowed]) -> list[str]:
    """What the error band of an answer says nothing of; a sentence, or none where nothing of the memory changes."""
    terms = open_terms(passed_over)
    return [f"the error band does not cover what this changes of: {', '.join(terms)}"] if terms else []


def within_band(verdict: str, passed_over: Iterable[NotFollowed]) -> str:
    """A verdict with the options that are not followed: nothing surely fits where one changes memory by nobody knows how much."""
    surely = verdict == Verdict.FITS.label and open_terms(passed_over)
    return Verdict.TIGHT.label if surely else verdict


def not_followed(
    query: Query, engine: Engine, support: Support | None, *, nodes: int = 1
) -> tuple[NotFollowed, ...]:
    """The options of a question that its answer does not depend on.

    ``engine``: the engine, with its release. ``support``: what engines' releases have; None not to judge it.
    ``nodes``: servers that the GPUs stand in.

    Raises:
        InputError: For an option that the engine's server does not have, with what to write instead.
    """
    given = {option.name: option for option in options() if _is_given(option, query)}
    found = list(_without_object(query, given, nodes))
    if not trait(engine, "allocates_at_start"):
        for option in given.values():
            if option.group == "home":
                raise _refused(option, query, engine, "with --engine llama-cpp or ollama, whose flag it is")
    for rule in () if support is None else support.ruling(engine.family, engine.version).rules.options:
        for option in (given[name] for name in rule.options if name in given):
            if not rule.runs:
                raise _refused(option, query, engine, rule.reason or "leave it out")
            found.append(
                NotFollowed(
                    option.flags[0], _shown(option, query), rule.changes, rule.effect or "not followed"
                )
            )
    return tuple(found)


def _is_given(option: Option, query: Query) -> bool:
    value = getattr(query, option.name)
    return value is not None and value not in (option.default, "auto")


_NEEDS: Final = {"fit_target": "fit", "no_mmproj_offload": "mmproj"}
"""Options of llama.cpp that say how another is done."""


def _without_object(query: Query, given: Mapping[str, Option], nodes: int) -> Iterator[NotFollowed]:
    """Options of what the question does not have: a network between servers, a search for what fits, a projector."""
    option = given.get("network_bandwidth")
    if option is not None and nodes == 1:
        words = "no effect with the GPUs of one server (--nodes 1)"
        yield NotFollowed(option.flags[0], _shown(option, query), None, words)
    for name, needed in _NEEDS.items():
        if name in given and needed not in given:
            words = f"no effect without --{needed.replace('_', '-')}"
            yield NotFollowed(given[name].flags[0], _shown(given[name], query), None, words)
    if "main_gpu" in given and query.split_mode != "none":
        option, rows = given["main_gpu"], query.split_mode == "row"
        words = "no effect without --split-mode none"
        if rows:
            words = "not followed: which GPU has the intermediate results of --split-mode row"
        yield NotFollowed(option.flags[0], _shown(option, query), "working memory" if rows else None, words)


def _refused(option: Option, query: Query, engine: Engine, allowed: str) -> InputError:
    named = option.flags[0].removeprefix("--")
    return InputError(
        f"{named}: found {shorten(getattr(query, option.name))} for {engine.label}; allowed: {allowed}"
    )


def _shown(option: Option, query: Query) -> str:
    value = getattr(query, option.name)
    if isinstance(value, bool):
        return "" if value else "off"
    return str(value) if isinstance(value, int) else shorten(str(value)).strip("'")
