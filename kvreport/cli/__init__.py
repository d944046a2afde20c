"""The command line: one small module per command, and what they share.

Exit status 0 means answered, 2 bad input with one clear line on stderr, 130 interrupted. Every
command imports what it needs when it runs, so that ``kvreport estimate`` starts at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NoReturn

from kvreport import __version__
from kvreport.cli.arguments import add_commands
from kvreport.cli.output import cut, write
from kvreport.cli.server_command import refuse_long
from kvreport.cli.spellings import flags_of, in_our_spelling, unknown_argument
from kvreport.errors import CatalogError, InputError, missing
from kvreport.processes import collect_garbage_less, exit_on_signals

_DATA_PACKAGES = ("pandas", "pyarrow")
"""What the extra ``data`` brings; what else is missing comes with ``site``."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, and ends with status 2."""

    def error(self, message: str) -> NoReturn:
        word = re.search(r"argument COMMAND: invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if word is not None:
            names = re.findall(r"[\w-]+", word[2])
            near = get_close_matches(word[1], names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
            raise InputError(f"command: found {cut(word[1], 40)!r}; allowed: {', '.join(names)}; {hint}")
        raise InputError(f"{cut(message)} (see {self.prog} --help)")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and refuse a flag that is given twice where once is meant; argparse would keep the last."""
        words = in_our_spelling(sys.argv[1:] if args is None else args, flags_of(self))
        for action in self._actions:
            if type(action).__name__ != "_StoreAction" or not action.option_strings:
                continue
            times = sum(word.partition("=")[0] in action.option_strings for word in words)
            if times > 1:
                raise InputError(f"{action.option_strings[0]}: found {times} times; allowed: once")
        found, unread = super().parse_known_args(words, namespace)
        if unread:
            raise unknown_argument(unread, self, words, sys.argv[1:] if args is None else args)
        return found, unread


@cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of every command and option, made once."""
    root = _Parser(
        prog="kvreport",
        description="How many requests fit: the memory of large language models on accelerators.",
        epilog="Sizes: GiB is 2^30 bytes, GB is 10^9. Contexts: 32K is 32,768 tokens.",
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"kvreport {__version__}")
    add_commands(root.add_subparsers(dest="command", metavar="COMMAND", required=True))
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: the words after ``kvreport``, or the process's own.

    Returns:
        The exit status.
    """
    exit_on_signals()
    if arguments is None:  # a process of its own, which ends with its answer
        collect_garbage_less()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell (`>&-`): nobody listens, and nothing fails for that
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] != ["validate"]:  # which takes a list of files
            refuse_long(words)
        options = parser().parse_args(words)
        status: int = options.run(options)
        sys.stdout.flush()
    except CatalogError as error:
        return _fail(str(error).splitlines())
    except InputError as error:
        return _fail([_named_as_typed(" ".join(str(error).split()), words)])
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == "kvreport":
            raise
        extra = "data" if package in _DATA_PACKAGES else "site"
        return _fail([missing(package, extra)])
    except BrokenPipeError:
        # The reader went away (`kvreport … | head`). Python would complain once more while closing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        where = f"{cut(str(Path(str(error.filename))))}: " if error.filename else ""
        return _fail([f"{where}{error.strerror or error}"])
    return status


def _named_as_typed(message: str, words: Sequence[str]) -> str:
    """Name an option by its flag, as it was typed: ``max-seqs: found 0`` after ``--max-seqs 0``."""
    message = message.removeprefix("argument ")
    name = message.partition(":")[0]
    typed = any(word.partition("=")[0] == f"--{name}" for word in words)
    return f"--{message}" if typed else message


def _fail(lines: Sequence[str]) -> int:
    for line in lines:
        write(f"kvreport: error: {line}", stream=sys.stderr)
    return 2
