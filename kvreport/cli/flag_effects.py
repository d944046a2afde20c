"""Flags of a server's command, each by its effect: followed, named as not followed, or left out because it changes no memory.

What a flag does is data (``data/flags``); nothing here knows a flag by its name.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kvreport.catalog.release import plain_release, since_gone
from kvreport.catalog.server_flags import FAMILIES, FlagTable, Found, dashed, flag_table
from kvreport.errors import InputError, ServerRefusalError, shorten

NOT_FOLLOWED: Final = "--not-followed"
"""A flag of this program alone: what of a server's command the answer does not depend on, for the answer to say."""

PASSED_ON: Final = "--passed-on"
"""A flag of this program alone: flags of a server's command that no answer depends on, for a deployment file to keep."""

_DRAFT: Final = "--draft"
"""A flag of the commands whose answers follow every flag that any answer follows."""

_NUMBER: Final = re.compile(r"-\.?\d[\d.e+-]*")
_DECIMAL: Final = re.compile(r"\d{1,3}(?:\.\d{0,9})?", re.ASCII)
_EFFECTS: Final = {
    "changes": "not followed; {} may differ",
    "followed": "this value is not followed; {} may differ",
    "starts": "not followed; it decides {}",
    "unknown": "not followed; it does {}, which is not known here",
}
_KEYED: Final = frozenset({"--limit-mm-per-prompt", "--hf-overrides"})
"""Flags of this program that take ``KEY=VALUE``."""


def _check_below(found: Found, stated: str) -> None:
    below = found.flag.group.below
    if below is not None and _DECIMAL.fullmatch(stated) and float(stated) >= below:
        raise InputError(
            f"{found.shown}: found {stated}; allowed: less than {below:g}, because graphs and activations take memory besides"
        )


def not_followed_word(flag: str, value: str, term: str | None, effect: str) -> str:
    """Pass on to the answer that a flag is not followed; the parts are of an entry of ``not_followed`` in JSON."""
    entry = {"flag": flag, "value": value, "term": term, "effect": effect}
    return f"{NOT_FOLLOWED}={json.dumps(entry)}"


def not_followed_entry(text: str) -> dict[str, Any]:
    """Read what :func:`not_followed_word` passes on.

    Raises:
        InputError: If it is something else.
    """
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or set(entry) != {"flag", "value", "term", "effect"}:
        raise InputError(
            f"{NOT_FOLLOWED}: found {shorten(text)}; allowed: what this program passes on to itself"
        )
    return entry


def table_of(server: str) -> FlagTable | None:
    """A server's flags, by the engine's family; None for an engine without a server of its own."""
    from kvreport.resources import data_dir

    family = "llama_cpp" if server == "ollama" else server
    return flag_table(data_dir(), family) if family in FAMILIES else None


def ours_of(spelled: str, server: str) -> str | None:
    """This program's flag of the same meaning as a server's; None where it has none of another name."""
    table = table_of(server)
    found = table.find(spelled) if table is not None and spelled in table else None
    return None if found is None else found.flag.group.ours


def having(spelled: str, *, but: str = "") -> Iterator[tuple[str, Found]]:
    """The servers that have a flag, and the flag."""
    for family in FAMILIES:
        table = table_of(family) if family != but else None
        found = table.find(spelled) if table is not None and spelled in table else None
        if found is not None:
            yield family, found


def variable_words(name: str, value: str, server: str) -> list[str] | None:
    """The words that a variable of a server's environment means here; None for one that changes no memory as far as is known."""
    table = table_of(server)
    groups = () if table is None else table.server.variables
    group = next((one for one in groups if name in one.flags), None)
    if group is None:
        return None
    if group.effect == "followed":
        return (
            shlex.split(group.values[value])
            if value in group.values
            else [f"{group.ours}={value}"]
            if group.ours
            else []
        )
    return [
        not_followed_word(
            name, shorten(value).strip("'"), group.changes, _EFFECTS[group.effect].format(group.changes)
        )
    ]


@dataclass(slots=True)
class FlagReader:
    """Reads a command's words by the flags of one server."""

    own: frozenset[str]
    choices: dict[str, Sequence[str]]  # Values that one of them allows, where it is a choice.
    many: frozenset[str]  # Flags of this program that may be given again, with another value.
    server: str  # Whose the other flags are.
    release: str = ""  # The engine as it is asked for, with its release where one is stated: ``vllm@0.33.0``.
    # Words that are written here for a flag of another name, and are no beginning of a server's.
    ours: frozenset[str] = frozenset()
    idle: list[str] = field(default_factory=list)  # Flags that change no memory, as they are found.
    # Flags whose value leaves the choice to the server, as they are found.
    chosen: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)  # Every flag that was written, by its name.
    named: list[str] = field(default_factory=list)  # Words that name what is not followed, as they are found.
    # Flags of a pasted command that no answer depends on, with their values.
    passed: list[list[str]] = field(default_factory=list)

    def read(self, words: Sequence[str], *, pasted: bool) -> list[str]:
        """Leave out and note the flags that are not followed.

        Returns:
            The other words, with values written as here.
        """
        kept: list[tuple[str, list[str]]] = []
        self.given |= {dashed(word.partition("=")[0]) for word in words if word.startswith("-")}
        waiting = list(reversed(words))
        while waiting:
            word = waiting.pop()
            if word.startswith(f"{NOT_FOLLOWED}="):  # of the environment that the command is started in
                self.named.append(word)
                continue
            found = self._find(word, pasted=pasted)
            if found is None:
                kept.append(("", [word]))
                continue
            values = _values(found, waiting)
            gone = self._gone(found) if pasted else ""
            if keys := self._keys(found, values):
                waiting += reversed(keys)
                continue
            known = len(self.idle), len(self.named)
            told = self._told(word, found, values, pasted=pasted, gone=gone)
            restated = (
                found.negative and found.flag.group.effect == "followed"
            )  # what a switch is without being named
            if pasted and not restated and known != (len(self.idle), len(self.named)):
                self.passed.append([word, *values] if found.value is None else [word])
            once = pasted and (found.flag.group.ours or dashed(found.flag.name)) not in self.many
            kept.append((found.flag.name + found.shown.partition(".")[2] if once else "", told))
        last = {name: place for place, (name, _) in enumerate(kept)}
        again = dict.fromkeys(
            name for place, (name, told) in enumerate(kept) if name and told and last[name] != place
        )
        if again:
            print(f"kvreport: given again, and the last one holds: {', '.join(again)}", file=sys.stderr)
        return [
            word
            for place, (name, told) in enumerate(kept)
            if not name or last[name] == place
            for word in told
        ]

    def _keys(self, found: Found, values: list[str]) -> list[str]:
        """A flag's value in JSON as a flag a key, where an answer follows one of its keys."""
        table = table_of(self.server)
        if table is None or len(values) != 1 or not values[0].startswith("{"):
            return []
        try:
            keys = json.loads(values[0])
        except (ValueError, RecursionError):
            return []
        if not any(dashed(f"{found.flag.name}.{key}") in table for key in keys):
            return []
        return [
            f"{found.flag.name}.{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in keys.items()
        ]

    def _find(self, word: str, *, pasted: bool) -> Found | None:
        name = word.partition("=")[0]
        if not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word):
            return None
        table = table_of(self.server) if name not in self.own or pasted else None
        exact = dashed(name)
        if table is None or (exact not in table and (name in self.own or exact in self.ours)):
            return self._elsewhere(exact, word)
        return table.find(word) or self._elsewhere(exact, word)

    def _elsewhere(self, exact: str, word: str) -> Found | None:
        """A flag without memory of another server, which says nothing of this one."""
        if exact in self.own or exact in self.ours:
            return None
        found = next(
            (one for _, one in having(exact, but=self.server) if one.flag.group.effect == "none"), None
        )
        if found is None:
            return None
        _, sign, text = word.partition("=")
        return Found(found.flag, found.shown, found.takes, text if sign else None)

    def _gone(self, found: Found) -> str:
        """That the parser of a later release has a flag no more, in words; empty where it is of the stated release's.

        Raises:
            ServerRefusalError: If the stated release is the newest read, whose server does not start with it.
        """
        until, table = found.flag.group.until, table_of(self.server)
        gone = None if table is None else since_gone(until, table.server.release, self.release)
        if gone is None or until is None or table is None:
            return ""
        newest, instead = table.server.release, found.flag.group.ours
        if gone:
            nearest = f"--engine {self.server.replace('_', '-')}@{until}" if plain_release(until) else until
            raise ServerRefusalError(
                f"{found.shown}: {table.server.command} ({newest}) has no such flag and does not start; "
                f"the last release read with it: {nearest}{f'; instead: {instead}' if instead else ''}"
            )
        return f"read until {until}, and {table.server.command} ({newest}) refuses it"

    def _told(self, word: str, found: Found, values: list[str], *, pasted: bool, gone: str = "") -> list[str]:
        group, shown = found.flag.group, found.shown
        value = " ".join(values)
        given = shorten(value or found.value or "").strip("'") if value or found.value else ""
        if gone and group.effect in {"followed", "none"}:
            self.named.append(not_followed_word(shown, given, None, gone))
        followed = [word, *values] if found.value is None else [word]
        if group.needs and self.given.isdisjoint(group.needs.split()):
            effect = f"no effect without {group.needs.split()[0]}"
            self.named.append(
                not_followed_word(shown, shorten(value).strip("'") if value else "", None, effect)
            )
            return []
        name = word.partition("=")[0]
        if name.startswith("--") and shown != dashed(name):  # its beginning
            followed[0] = followed[0].replace(name, shown, 1)
        _check_below(found, value or found.value or "")
        if group.effect == "followed":
            if self._is_elsewhere(found):
                effect = _EFFECTS["changes"].format(group.changes)
                self.named.append(not_followed_word(shown, given, group.changes, effect))
                return []
            if value in group.values:
                written = group.values[value]
                if not written:
                    self.chosen.append(f"{shown} {value}")
                return shlex.split(written)
            if found.negative:
                self.idle.append(shown)
                return []
            if group.ours is None and shown.partition(".")[0] not in self.own and found.flag.name in self.own:
                followed[0] = followed[0].replace(
                    word.partition("=")[0], found.flag.name, 1
                )  # another name of it
            allowed = self.choices.get(group.ours or dashed(found.flag.name))
            absent = group.is_file and pasted and not Path(value or word.partition("=")[2]).exists()
            if not absent and (not pasted or not allowed or not value or value in allowed):
                return _key_by_key(found, followed, values)
        if group.effect == "none":
            self.idle.append(shown)
        else:
            effect = "; ".join(filter(None, [_EFFECTS[group.effect].format(group.changes), gone]))
            term = None if group.effect in {"starts", "unknown"} else group.changes
            self.named.append(
                not_followed_word(shown, shorten(value).strip("'") if value else "", term, effect)
            )
        return []

    def _is_elsewhere(self, found: Found) -> bool:
        """Whether an answer of another command follows a flag, and this command, which takes no draft either, has none for it."""
        ours = found.flag.group.ours or dashed(found.flag.name)
        names = {ours.partition("=")[0], found.shown.partition(".")[0]}
        return _DRAFT not in self.own and NOT_FOLLOWED in self.own and self.own.isdisjoint(names)

    def said(self) -> list[str]:
        """Say what was left out, and return the words that name what is not followed."""
        if self.idle:
            print(
                f"kvreport: left out, because they change no memory: {', '.join(self.idle)}", file=sys.stderr
            )
        if self.chosen:
            print(
                f"kvreport: left out, because the server then chooses automatically: {', '.join(self.chosen)}",
                file=sys.stderr,
            )
        passed = [f"{PASSED_ON}={json.dumps(self.passed)}"] if self.passed and PASSED_ON in self.own else []
        if NOT_FOLLOWED in self.own:
            return [*self.named, *passed]
        for entry in (not_followed_entry(word.partition("=")[2]) for word in self.named):
            print(f"kvreport: {entry['flag']}: {entry['effect']}", file=sys.stderr)
        return passed


def _key_by_key(found: Found, followed: list[str], values: list[str]) -> list[str]:
    """A key that is written behind a dot, or that a flag of its own stands for, in the value where this program takes keys so."""
    name, dot, key = found.shown.partition(".")
    if values and "=" in (found.flag.group.ours or ""):
        return [f"{followed[0]}={values[0]}"]
    return [f"{name}={key}={values[0]}"] if dot and values and name in _KEYED else followed


def _values(found: Found, waiting: list[str]) -> list[str]:
    """Take the words that belong to a flag from those that are waiting, the next one last."""
    if found.value is not None:
        return [found.value]
    most = {"0": 0, "1": 1, "2": 2, "?": 1, "+": len(waiting)}[found.takes]
    values: list[str] = []
    while (
        waiting and len(values) < most and (not waiting[-1].startswith("-") or _NUMBER.fullmatch(waiting[-1]))
    ):
        values.append(waiting.pop())
    return values
