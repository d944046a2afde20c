"""The flags of a query: made from its fields."""

from __future__ import annotations

import argparse
from typing import Any

from kvreport.errors import InputError, shorten
from kvreport.query import GROUPS, Option, of_group, options


def add_query_options(command: argparse.ArgumentParser) -> None:
    """Add every flag of :class:`kvreport.query.Query`, in groups."""
    for group, title in GROUPS.items():
        target = command.add_argument_group(title) if group != "question" else command
        for option in of_group(group):
            _add(target, option)


def query_values(given: argparse.Namespace) -> dict[str, Any]:
    """The fields of a query that the command line gives.

    Raises:
        InputError: If no accelerator is named, or a flag is repeated that means one thing.
    """
    values = {option.name: getattr(given, option.name) for option in options()}
    for option in options():
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
    kinds: dict[str, Any] = {"whole": int, "share": float}
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
