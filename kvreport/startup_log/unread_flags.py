"""Flags of a server's command that its parser does not have: a slip of the pen, or a flag of another release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvreport.catalog.server_flags import ServerFlags
from kvreport.estimation.config_overrides import LENGTHS, ROTATED, TEXT
from kvreport.startup_log.reading import COMMANDS, Recognised, plain_text

_COMMAND: Final = re.compile(COMMANDS, re.ASCII)
_FLAG: Final = re.compile(r"(?:^|(?<= ))--[a-zA-Z][\w-]*", re.ASCII)
_LONGEST: Final = 20_000
"""Characters of a command that are read."""
_NAMED: Final = 5
"""Flags that are named; a command with more is of a server that is not known."""


def flags_unread(command: str, servers: Mapping[str, ServerFlags]) -> tuple[str, str] | None:
    """The flags of a command that its server does not have, and the server with its release.

    Args:
        command: As of :func:`last_command`.
        servers: Every server's flags, by family.

    Examples:
        >>> from kvreport.catalog.server_flags import load_server_flags
        >>> from kvreport.resources import data_dir
        >>> flags_unread("vllm serve m --foo-bar 3 --max_model_len 8k", load_server_flags(data_dir()))
        ('--foo-bar', 'vllm serve of 0.33.0')
    """
    server = servers["sglang" if "sglang" in command[: _LONGEST // 100] else "vllm"]
    named: dict[str, None] = {}
    for found in _FLAG.findall(command):
        flag = found.replace("_", "-")
        # Parsers take a flag by its beginning, and a switch with "no" before it.
        spelled = (flag, f"--{flag.removeprefix('--no-')}")
        if not any(one.startswith(spelled) for one in server.flags):
            named[flag] = None
    if not 0 < len(named) <= _NAMED:
        return None
    return ", ".join(named), f"{server.command} of {server.release}"


_CHANGED: Final = re.compile(
    r"(?:hf[-_]overrides|json[-_]model[-_]override[-_]args)['\"]?[:= ]+['\"]?(?P<keys>\{[^\n]{0,2000})",
    re.ASCII,
)
_PRINTED: Final = re.compile(r"[\"'](\w+)[\"'] ?: ?|[{}]", re.ASCII)


def moves_context_alone(line: Recognised) -> bool:
    """True for a line of a changed config whose keys move the longest context and nothing else, which each log states."""
    found = _CHANGED.search(line.text) if "overrid" in line.pattern else None
    depth, names, within = 0, [], 99
    for one in _PRINTED.finditer(found["keys"] if found else ""):
        depth += {"{": 1, "}": -1}.get(one[0], 0)
        if depth == 0:
            break
        if one[1] and depth <= within:
            names.append(one[1])
            within = depth if one[1] in ROTATED else 99  # what a scheme says of itself
    return bool(names) and set(names) <= {TEXT, *LENGTHS, *ROTATED}


def last_command(text: str) -> str | None:
    r"""The last command of a server in a log, with the lines that it goes on over.

    Examples:
        >>> last_command("$ vllm serve m --seed 3 \\\n  --max-model-len 8k | tee log")
        '$ vllm serve m --seed 3 --max-model-len 8k'
    """
    lines = plain_text(text).splitlines()
    starts = [index for index, line in enumerate(lines) if _COMMAND.search(line[:_LONGEST])]
    if not starts:
        return None
    words, index = [], starts[-1]
    while index < len(lines):
        line = lines[index][:_LONGEST].rstrip()
        words.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            break
        index += 1
    joined = " ".join(words)
    begins = _COMMAND.search(f"{joined} ")
    # What comes after a pipe or another command is not the server's.
    return re.split(r" [|;&>]", joined[begins.start() if begins else 0 :], maxsplit=1)[0][:_LONGEST]
