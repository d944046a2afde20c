"""What each command takes, as ``commands.json`` says it: one line per argument, in the order of its help.

An argument has the keywords of :meth:`argparse.ArgumentParser.add_argument`; ``type`` names one of :data:`_TYPES`, with
limits where it has some. A flag that several commands take stands under ``shared`` and is named alone.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.catalog.server_flags import with_flags
from kvreport.cli.deploy import add_as_option
from kvreport.cli.numbers import real, whole
from kvreport.cli.query_options import add_query_options
from kvreport.resources import package_dir

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_TYPES: Final[dict[str, Callable[..., Any]]] = {"whole": whole, "real": real, "path": lambda: Path}


def add_commands(commands: _SubParsersAction[Any]) -> None:
    """Add every command to the parser; its module is imported when it runs."""
    said = json.loads((package_dir() / "commands.json").read_text(encoding="utf-8"))
    for name, about in said["commands"].items():
        command = commands.add_parser(
            name,
            help=about["summary"],
            description=about["summary"],
            epilog="\n".join(about.get("epilog", ())),
            allow_abbrev=False,
            formatter_class=_Help,
        )
        command.set_defaults(run=_runs(about["run"]))
        _add_all(command, command, about["arguments"], said["shared"])


class _Help(argparse.RawDescriptionHelpFormatter):
    """Lines that break at spaces alone: a flag that is cut at a hyphen cannot be searched for, or copied."""

    def add_text(self, text: str | None) -> None:
        """Add a text, with servers' flags in place of what they set."""
        super().add_text(text and with_flags(text))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _runs(where: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = where.partition(".")

    def run(options: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"kvreport.cli.{module}"), name)(options)
        return status

    return run


def _add_all(
    command: argparse.ArgumentParser,
    place: argparse._ActionsContainer,
    rows: Iterable[Any],
    shared: Mapping[str, dict[str, Any]],
) -> None:
    for row in rows:
        if row == "--as":
            add_as_option(command)
        elif isinstance(row, str):
            _add(place, shared[row])
        elif "query" in row:
            add_query_options(command, without=row["query"])
        elif "group" in row:
            _add_all(command, command.add_argument_group(row["group"]), row["arguments"], shared)
        elif "exclusive" in row:
            _add_all(command, command.add_mutually_exclusive_group(), row["arguments"], shared)
        else:
            _add(place, row)


def _add(place: argparse._ActionsContainer, row: Mapping[str, Any]) -> None:
    said = {key: value for key, value in row.items() if key not in ("flags", "hidden")}
    if "hidden" in row:
        said["help"] = argparse.SUPPRESS
    match said.get("type"):
        case "plural":  # ``gpu`` is ``gpus``
            choices = said["choices"]
            said["type"] = lambda word: f"{word}s" if f"{word}s" in choices else word
        case str() as kind:
            said["type"] = _TYPES[kind]()
        case [kind, *limits]:
            said["type"] = _TYPES[kind](*limits)
    place.add_argument(*row["flags"].split(), **said)
