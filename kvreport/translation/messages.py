"""Messages in the files of gettext: the template of all of them, and a language's catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvreport.errors import InputError
from kvreport.translation.text import places

_HEAD = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: \\n"\n'


@dataclass
class Messages:
    """A collector of messages: each once, with the places that use it.

    Attributes:
        places: File and line of each use, by message.
    """

    places: dict[str, list[str]] = field(default_factory=dict)

    def note(self, file: str, message: str, line: int) -> None:
        """Take one use of a message."""
        self.places.setdefault(message, []).append(f"{file}:{line}")

    def template(self) -> str:
        """Return the template of gettext, which translators' tools open."""
        entries = [
            "".join(f"#: {place}\n" for place in dict.fromkeys(found))
            + f'msgid {json.dumps(message, ensure_ascii=False)}\nmsgstr ""\n'
            for message, found in self.places.items()
        ]
        return "\n".join([_HEAD, *entries])


@dataclass(frozen=True)
class Translation:
    """A language's messages.

    Attributes:
        path: The file.
        language: Its code, such as ``de`` or ``pt-BR``.
        said: Translation by message.
        lines: Line of each message in the file.
    """

    path: Path
    language: str
    said: Mapping[str, str]
    lines: Mapping[str, int]


def read(path: Path) -> Translation:
    """Return a catalog of gettext; messages without a translation, or with a doubtful one, stay English.

    Args:
        path: A ``.po`` file.

    Raises:
        InputError: It is none, names no language, or a translation has other placeholders or tags than its message.
    """
    from babel.messages.pofile import PoFileError, read_po  # noqa: PLC0415 - most sites have no translation

    try:
        with path.open("rb") as file:
            # The language is read from the header, so that any code is allowed.
            catalog = read_po(file, abort_invalid=True)
    except (OSError, PoFileError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: no catalog of gettext: {error}") from error
    header = dict(catalog.mime_headers)
    language = (header.get("Language") or str(catalog.locale or "")).replace("_", "-")
    if not language:
        raise InputError(f"{path}: found no language; allowed: a header line such as Language: de")
    said: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults = []
    for message in catalog:
        if not message.id or not isinstance(message.id, str):
            continue
        lines[message.id] = message.lineno or 1
        if not message.string or not isinstance(message.string, str) or message.fuzzy:
            continue
        wanted, found = places(message.id), places(message.string)
        if wanted != found:
            faults.append(
                f"{path}:{message.lineno}: the translation of “{message.id[:60]}” has other placeholders: "
                f"found {', '.join(found) or 'none'}; allowed: {', '.join(wanted) or 'none'}"
            )
        said[message.id] = message.string
    if faults:
        raise InputError("\n".join(faults))
    return Translation(path, language, said, lines)
