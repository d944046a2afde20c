"""What changed between builds of llama.cpp, by build number.

Rules are those of 0c1e57098 (autumn 2026). Two changes of late May 2026 decide the compute buffers of older builds:
pull request 23764 fills attention masks in 16 bits, and 23861 reserves logits of few tokens in the server. Their
merge dates lie between b9263 (May 21) and b9512 (June 3), so the numbers below are exact to about fifty builds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.options import LocalOptions

FIRST_F16_MASKS: Final = 9400
"""First build, within about fifty, that fills masks in 16 bits for flash attention."""

FIRST_FEW_OUTPUTS: Final = 9450
"""First build, likewise, whose server reserves logits of one token per slot instead of the whole micro-batch."""

FIRST_COPIED_CACHES: Final = {"cuda": 9490, "metal": 10600}
"""First builds whose backends reserve 16-bit copies of the caches that flash attention reads: pull request 23907
(early June 2026, within about fifty) for CUDA and HIP, 27390 (late August 2026, within about a hundred) for Metal."""

OLDEST: Final = 4000
"""Builds before this one (autumn 2024) lay caches out by other rules."""

_BUILD: Final = re.compile(r"^b?(\d{2,6})$")


def build_number(version: str) -> int | None:
    """The number of a build such as ``b9849``; None for a commit or a name."""
    found = _BUILD.match(version.strip().lower())
    return int(found[1]) if found else None


def for_build(options: LocalOptions, version: str) -> LocalOptions:
    """Options with what an older build does differently.

    Args:
        options: What was asked.
        version: A build such as ``b9849``, or a commit, which means the current rules.
    """
    number = build_number(version)
    if number is None:
        return options
    outputs = 0 if options.outputs is None and number < FIRST_FEW_OUTPUTS else options.outputs
    copies = tuple(one for one in options.cache_copies if number >= FIRST_COPIED_CACHES[one])
    wide = options.wide_masks or number < FIRST_F16_MASKS
    return replace(options, outputs=outputs, wide_masks=wide, cache_copies=copies)
