"""Errors that a user of kvreport can mend.

Every fault that comes from outside (a catalog file, a ``config.json``, a command-line
argument) is raised as :class:`InputError`. Its text is one complete sentence for a person:
which file, which field, what was found, what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Self


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one input."""

    where: str  # The file or argument, as the user named it.
    field: str  # Dotted path of the field inside it, or ``""`` for the whole.
    found: str  # What stood there, shortened for printing.
    allowed: str  # What would have been accepted.

    def __str__(self) -> str:
        """Print the fault as one line: ``where: field: found …; allowed: …``."""
        place = f"{self.where}: {self.field}" if self.field else self.where
        return f"{place}: found {self.found}; allowed: {self.allowed}"


def missing(package: str, extra: str) -> str:
    """Say which extra of the wheel brings a package; the name is no project's on a public index (ADR 8)."""
    return f"found no package {package!r}; allowed: the wheel with its extra, pip install 'kvreport-….whl[{extra}]'"


class InputError(ValueError):
    """Bad input. The message is one sentence that says how to fix it (exit status 2)."""

    def __init__(self, message: object = "") -> None:
        """Keep the sentence; signs that a terminal obeys (escapes, overrides of direction) are written as escapes."""
        super().__init__(_printable(str(message)))

    @classmethod
    def of(cls, where: str, field: str, found: str, allowed: str) -> Self:
        """Return an error with one fault, from the fields of :class:`Fault`."""
        return cls(str(Fault(where, field, found, allowed)))


class ServerRefusalError(InputError):
    """What a server itself refuses when it starts, whatever the memory: a verdict on a pasted command."""


class UndividedError(InputError):
    """A number of ranks that a model's shapes do not divide by, which every engine refuses."""


class CatalogError(InputError):
    """All faults of a catalog at once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        """Collect ``faults``; the message has one line for each."""
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def of(cls, where: str, field: str, found: str, allowed: str) -> Self:
        """One fault alone."""
        return cls([Fault(where, field, found, allowed)])


def faults_of(read: Callable[..., object], *given: object) -> tuple[Fault, ...]:
    """What is wrong with what a reader reads; empty where nothing is."""
    try:
        read(*given)
    except CatalogError as error:
        return error.faults
    return ()


def require_text(**given: object) -> None:
    """Refuse what is no text, by the name of the argument.

    Raises:
        InputError: If one is something else.
    """
    for name, value in given.items():
        if not isinstance(value, str):
            raise InputError(f"{name}: found {shorten(value)}; allowed: a text")


def require_numbers(*, whole: bool = False, none: bool = False, **given: object) -> None:
    """Refuse what is no number, by the name of the argument: a text is none, and neither is a truth value.

    ``whole``: only whole numbers are allowed. ``none``: None is allowed, too.

    Raises:
        InputError: If one is something else.
    """
    for name, value in given.items():
        if value is None and none:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
            raise InputError(
                f"{name}: found {shorten(value)}; allowed: a {'whole number' if whole else 'number'}"
            )


def _printable(text: str) -> str:
    """Return a text in which every sign is one that a reader sees; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)


def shorten(value: object, limit: int = 60) -> str:
    """Return ``repr(value)`` cut to ``limit`` characters, so an error stays one line."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
