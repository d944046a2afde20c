"""Flags as servers spell them, and what to say of a flag that a command does not have.

A question is often copied from a server's command line: ``--max-model-len 8192 --tensor-parallel-size 2``. Every
spelling below means exactly what the flag next to it means; a server's flag of another meaning is not listed. Whole commands
are taken apart by :mod:`kvreport.cli.server_command`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Final

from kvreport.catalog.server_flags import FAMILIES, dashed, flag_names
from kvreport.cli.flag_effects import FlagReader, having, ours_of, table_of
from kvreport.cli.local_server_command import FIT
from kvreport.cli.server_command import data_attention, taken_apart
from kvreport.cli.speculation import speculation_in_our_spelling
from kvreport.errors import InputError, ServerRefusalError, shorten
from kvreport.resources import read_table
from kvreport.words import ENGINES

_READ_BY: Final = frozenset({"--context", "--kv", "--limit-mm-per-prompt"})
"""Flags of the commands that are asked in a server's words; the parser of all commands has none of them."""

_ELSEWHERE: Final[dict[str, str]] = read_table("flags elsewhere")
"""What people write where there is no such flag, and where to go instead."""


def in_our_spelling(words: Sequence[str], known: Iterable[str]) -> list[str]:
    """Replace a server's spellings of flags by this program's.

    Returns:
        The arguments. vLLM reads ``32k`` after ``--max-model-len`` as 32,000 tokens, so the number is written out. A flag
        of the server that no answer follows is passed on in :data:`kvreport.cli.flag_effects.NOT_FOLLOWED`.

    Raises:
        InputError: If a flag is of another server than the one whose rules apply.

    Examples:
        >>> in_our_spelling(["m", "--max_model_len=8k", "-tp", "2"], ["--context", "--tensor-parallel"])
        ['m', '--context=8000', '--tensor-parallel', '2']
    """
    flags = frozenset(known)
    if flags.isdisjoint(_READ_BY):  # the parser of all commands: the command's own comes after it
        return list(words)
    own, theirs = taken_apart(words) if "--context" in flags else (list(words), [])
    if flags.isdisjoint(FIT):  # which the server does by default; a command without it searches what fits
        theirs = [word for word in theirs if word not in FIT]
    server, release = _server([*own, *theirs])
    if "--context" in flags:
        reader = FlagReader(flags, *_of_options(), server, release, frozenset(_ELSEWHERE))
        own, theirs = reader.read(own, pasted=False), reader.read(theirs, pasted=True)
        words = [*own, *theirs, *reader.said()]
    if server in {"sglang", "tensorrt_llm"} and "--data-parallel" in flags:
        words = data_attention(words)
    if "--draft" in flags:
        words = speculation_in_our_spelling(words, server)
    pasted = {dashed(word.partition("=")[0]) for word in theirs}
    made: list[str] = []
    before = ""
    for word in words:
        name, sign, value = word.partition("=")
        spelled = dashed(name)
        if (
            spelled == "-c" and "-ctk" in flags and server != "llama_cpp"
        ):  # argparse would ask which of the longer ones is meant
            raise InputError(f"-c: not an option here; instead: {_ELSEWHERE['-c']}")
        ours = spelled if name in flags or not word.startswith("-") else _ours(spelled, server, pasted)
        if not word.startswith("-"):
            made.append(_with_unit(before, word))
        elif name in flags or ours.partition("=")[0] not in flags:
            made.append(word)
        else:
            made.append(f"{ours}{sign}{_with_unit(spelled, value) if sign else value}")
        before = word if name in flags else spelled
    return made


@cache
def _of_options() -> tuple[dict[str, Sequence[str]], frozenset[str]]:
    """What the flags of a question allow that are a choice, and those that may be given again."""
    from kvreport.query import options

    flags = [(flag, option) for option in options() for flag in option.flags]
    return {flag: one.choices for flag, one in flags if one.choices}, frozenset(
        flag for flag, one in flags if one.many
    )


def _ours(spelled: str, server: str, pasted: Container[str]) -> str:
    """This program's flag for a server's; the flag itself where no server has it.

    Raises:
        InputError: If another server has it; a :class:`ServerRefusalError` where it stands in a pasted command.
    """
    ours = ours_of(spelled, server)
    table = table_of(server)
    if ours is None and spelled not in _ELSEWHERE and (table is None or spelled not in table):
        others = next(
            ((name, found) for name, found in having(spelled) if found.flag.group.effect != "none"), None
        )
        if others is not None:
            named, instead = others[0].replace("_", "-"), others[1].flag.group.ours
            raise (ServerRefusalError if spelled in pasted else InputError)(
                f"{spelled}: a flag of {ENGINES[others[0]]}, but the rules of {ENGINES.get(server, server)} apply; "
                f"say --engine {named}{f', or use {instead}' if instead else ''}"
            )
    return ours or spelled


_SERVERS: Final = {
    **{server.replace("_", ""): server for server in FAMILIES},
    "trtllm": "tensorrt_llm",
    "llamaserver": "llama_cpp",
    "lmstudio": "llama_cpp",
}
"""Servers by how the names and aliases of their engines begin, without what parts words."""


def _server(words: Sequence[str]) -> tuple[str, str]:
    """The server whose rules the arguments name, and its release where they state one; vLLM where they name none."""
    for word, after in pairwise([*words, ""]):
        name, sign, value = word.partition("=")
        if name == "--engine":
            named = value if sign else after
            heard = re.sub(r"[^a-z0-9@]", "", named.lower())
            known = (server for name, server in _SERVERS.items() if heard.startswith(name))
            return next(known, heard), named
    return "vllm", ""


_WITH_LETTERS: Final = ("context", "max_batched_tokens", "kv_cache_memory_bytes")
"""Counts that vLLM reads with letters (``vllm/engine/arg_utils.py::_compute_kwargs``, ``human_readable_int``)."""


def _with_unit(flag: str, value: str) -> str:
    """A server's value with the unit that its flag implies: decimal letters of tokens, GiB of host memory."""
    if not flag.startswith("--"):
        return value
    names = flag_names("vllm")
    if flag in {names[name] for name in _WITH_LETTERS} and (
        value[-1:].islower() or flag == names["kv_cache_memory_bytes"]
    ):
        return _written_out(value)
    return f"{value}GiB" if flag == names["kv_offload"] and re.fullmatch(r"\d+(?:\.\d+)?", value) else value


def _written_out(tokens: str) -> str:
    """A count of vLLM, where a small letter is decimal (``32k`` is 32,000) and a capital one binary."""
    found = re.fullmatch(r"(\d+)(\.\d+)?([kmgtKMGT])", tokens)
    if found is None or (found[2] and found[3].isupper()):
        return tokens
    step = 1000 if found[3].islower() else 1024
    return str(int(float(found[1] + (found[2] or "")) * step ** ("kmgt".index(found[3].lower()) + 1)))


def unknown_argument(
    words: Sequence[str],
    command: argparse.ArgumentParser,
    given: Sequence[str] = (),
    typed: Sequence[str] = (),
) -> InputError:
    """Say of the first argument that a command does not have what it has instead.

    ``given`` are all arguments, which name the server whose flag it may be, and ``typed`` those before a server's command in them
    was read.

    Returns:
        The error; a :class:`ServerRefusalError` where a server's command has a flag that its parser does not take.
    """
    server, _ = _server(given)
    flags, title = sorted(flags_of(command)), command.prog
    if not words[0].startswith("-"):
        return InputError(
            f"{shorten(words[0])}: one argument too many for {title}; quote a name with spaces, such as 'llama 3.1 8b'"
        )
    unknown = dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("-"))
    hints = {name: _hint(name, flags, server, title) for name in unknown}
    table, theirs = table_of(server), {word.partition("=")[0] for word in taken_apart(typed)[1]}
    refused = {
        name
        for name, hint in hints.items()
        if name in theirs
        and (table is None or dashed(name) not in table)
        and (hint.startswith("see ") or set(flags).isdisjoint(re.findall(r"--?[\w-]+", hint)))
    }
    told = [
        f"{shorten(name)}: not an option of {title}; {hint}"
        if table is None or name not in refused
        else f"{shorten(name)}: {table.server.command} ({table.server.release}) has no such flag and does not start; {hint}"
        for name, hint in hints.items()
    ]
    return (ServerRefusalError if table is not None and set(unknown) == refused else InputError)(
        "; ".join(told)
    )


def _hint(name: str, flags: Sequence[str], server: str, title: str) -> str:
    """What to write instead of an option that there is not: this program's, or the nearest of the server's."""
    spelled, table = dashed(name), table_of(server)
    if spelled in _ELSEWHERE:
        return f"instead: {_ELSEWHERE[spelled]}"
    begun = [flag for flag in flags if len(spelled) > len("--x") and flag.startswith(spelled)]
    near = begun[:3] or get_close_matches(spelled, flags, n=3, cutoff=0.75)
    if table is not None and spelled in table:
        return f"a flag of {table.server.command}'s that is not read here; leave it out"
    theirs = (
        get_close_matches(spelled, [*table, *flags], n=1, cutoff=0.75)
        if table is not None and not begun
        else []
    )
    if theirs and table is not None and theirs[0] in table and theirs[0] not in flags:
        return f"did you mean {theirs[0]}, a flag of {table.server.command}?"
    return f"did you mean {', '.join(near)}?" if near else f"see {title} --help"


def flags_of(command: argparse.ArgumentParser) -> list[str]:
    """Every flag of a command."""
    # argparse has no public list of them.
    return [flag for action in command._actions for flag in action.option_strings]  # noqa: SLF001
