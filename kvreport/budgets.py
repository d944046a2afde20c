"""How much each reader of somebody else's text takes: bytes, rows, seconds. One table for all of them.

A reader checks its budget before it allocates or searches, and refuses in one sentence what is beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kvreport.errors import InputError, shorten


@dataclass(frozen=True, slots=True)
class ReadBudget:
    """What one reader takes."""

    bytes: int  # Most bytes of a file or an answer, unpacked.
    rows: int  # Most rows: lines of a file, names of a listing.
    row_bytes: int = 0  # Longest row; characters where text is read. 0 where rows are not read one by one.
    seconds: float = 0  # Longest time for everything together; 0 where bytes and rows bound it.


TRACE: Final = ReadBudget(bytes=512 << 20, rows=1 << 23, row_bytes=1 << 24)
"""A trace, unpacked. A request of a million tokens in blocks of 16 is a line of 0.7 million characters."""

LOG: Final = ReadBudget(bytes=20_000_000, rows=200_000, row_bytes=20_000)
"""A start-up log, in characters."""

DEPLOYMENT: Final = ReadBudget(bytes=2 << 20, rows=50_000)
"""A deployment file, and the values in it with every alias written out: rendered charts have some hundred KiB."""

HUB: Final = ReadBudget(bytes=128 << 20, rows=100_000, seconds=120)
"""Files of a repository on the Hub. Seconds are those of a whole ``--fetch``, its listing included."""

HUB_LISTING: Final = ReadBudget(bytes=16 << 20, rows=HUB.rows, seconds=HUB.seconds)
"""The Hub's answer that lists a repository: about 70 bytes a name."""


@contextmanager
def guard(where: str | Callable[[], str], allowed: str) -> Iterator[None]:
    """Let nothing out of a reader but the answer or an :class:`InputError`.

    Readers refuse what they know. What they do not know (a number beyond a double, an archive's own error) is
    refused here, because a text from outside must not end a command with a traceback.

    Args:
        where: The file or the place, for the message; a function gives the place that a reader has come to.
        allowed: What the reader reads.

    Raises:
        InputError: If anything was raised, with the place.
    """
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        place = where if isinstance(where, str) else where()
        raise InputError(f"{place}: found more than memory holds; allowed: {allowed}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(
            f"{where}: cannot be read: found {shorten(said, 120)}; allowed: {allowed}"
        ) from error
