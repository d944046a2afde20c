"""The flags of a query: made from its fields."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvreport.cli.flag_effects import NOT_FOLLOWED, not_followed_entry
from kvreport.cli.numbers import MOST_WHOLE, share, whole
from kvreport.errors import InputError, shorten
from kvreport.query import GROUPS, Group, Option, of_group, options

if TYPE_CHECKING:
    from kvreport.estimation import Estimate
    from kvreport.estimation.not_followed import NotFollowed


def add_query_options(command: argparse.ArgumentParser, *, without: Sequence[Group] = ()) -> None:
    """Add the flags of :class:`kvreport.query.Query`, in groups."""
    for group, title in GROUPS.items():
        if group in without:
            continue
        target = command.add_argument_group(title) if group != "question" else command
        for option in of_group(group):
            _add(target, option)
    # What the reader of servers' commands passes on; no question has it.
    command.add_argument(NOT_FOLLOWED, action="append", default=[], help=argparse.SUPPRESS)


def unfollowed(given: argparse.Namespace) -> tuple[NotFollowed, ...]:
    """The flags and keys of a pasted command that are not followed."""
    from kvreport.estimation.not_followed import NotFollowed

    return tuple(NotFollowed(**not_followed_entry(text)) for text in given.not_followed)


def with_unfollowed(result: Estimate, given: argparse.Namespace) -> Estimate:
    """An estimate that names the flags and keys of a pasted command which it does not follow."""
    from dataclasses import replace

    from kvreport.estimation.answer import with_open_terms

    if not given.not_followed:
        return result
    named = (*result.request.not_followed, *unfollowed(given))
    return with_open_terms(replace(result, request=replace(result.request, not_followed=named)))


def query_values(given: argparse.Namespace) -> dict[str, Any]:
    """The fields of a query that the command line gives.

    Raises:
        InputError: If no accelerator is named, or a flag is repeated that means one thing.
    """
    known = [option for option in options() if hasattr(given, option.name)]
    values = {option.name: getattr(given, option.name) for option in known}
    for option in known:
        value = values[option.name]
        if isinstance(value, list) and not option.many:
            if len(value) > 1:
                shown = ", ".join(shorten(one) for one in value)
                raise InputError(f"{option.flags[0]}: found {len(value)} times ({shown}); allowed: once")
            values[option.name] = value[0]
    if not values["gpu"]:
        raise InputError("the following arguments are required: --gpu")
    return {name: value for name, value in values.items() if value is not None}


def _add(target: argparse._ActionsContainer, option: Option) -> None:
    if option.kind == "switch":
        target.add_argument(*option.flags, dest=option.name, action="store_true", help=option.help)
        return
    if option.kind == "tristate":
        target.add_argument(
            *option.flags,
            dest=option.name,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=option.help,
        )
        return
    kinds: dict[str, Any] = {"whole": whole(-MOST_WHOLE), "share": share}
    # Every flag is collected, so that one given twice is told instead of the last one winning.
    target.add_argument(
        *option.flags,
        dest=option.name,
        action="append",
        type=kinds.get(option.kind, str),
        choices=option.choices or None,
        metavar=None if option.choices else option.metavar,
        help=option.help,
    )
