"""What older builds of llama.cpp do differently, by ``data/engines/llama_cpp/rules.yaml``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kvreport.catalog.release import release_at, release_number

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.options import LocalOptions

FAMILY: Final = "llama_cpp"


def for_build(options: LocalOptions, version: str) -> LocalOptions:
    """Options with what an older build does differently.

    ``version``: a build such as ``b9849``, or a commit, which means the current rules.
    """
    release = release_at(FAMILY, release_number(FAMILY, version))
    outputs = 0 if options.outputs is None and release.has("whole_batch_outputs") else options.outputs
    copies = tuple(one for one in options.cache_copies if one in release.names("cache_copies"))
    wide = options.wide_masks or release.has("wide_masks")
    return replace(options, outputs=outputs, wide_masks=wide, cache_copies=copies)
