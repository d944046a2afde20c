"""Names of GGUF files: a stem that usually ends in the mix, and the number of the part (``M-UD-Q4_K_XL-00001-of-00002.gguf``)."""

from __future__ import annotations

import re
from typing import Final

_FILE: Final = re.compile(r"(?P<stem>[^\0]+?)(?:-\d{5}-of-\d{5})?\.gguf", re.IGNORECASE)
_MIX: Final = r"(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)"
_AT_END: Final = re.compile(rf"[-._]({_MIX})$", re.ASCII | re.IGNORECASE)
_ALONE: Final = re.compile(_MIX, re.ASCII | re.IGNORECASE)


def stem_of(file: str) -> str | None:
    """Return a GGUF file's name, folders with it, without the part's number and the ending; None for other files.

    Examples:
        >>> stem_of("Q8_0/M-Q8_0-00001-of-00002.gguf")
        'Q8_0/M-Q8_0'
    """
    found = _FILE.fullmatch(file)
    return None if found is None else found["stem"]


def mix_of(stem: str) -> str | None:
    """Return the mix that a stem ends in, as it is written there, or None.

    Examples:
        >>> mix_of("M-UD-Q4_K_XL")
        'UD-Q4_K_XL'
    """
    found = _AT_END.search(stem)
    return None if found is None else found[1]


def is_mix_name(name: str) -> bool:
    """True if a text has the form of a mix: ``Q4_K_M``, ``UD-Q4_K_XL``, ``BF16``, in any case."""
    return _ALONE.fullmatch(name) is not None
