"""ggml's storage types: elements per block and bytes per block (``ggml-common.h`` of ggml 0.25.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvreport.errors import InputError


@dataclass(frozen=True)
class GgmlType:
    """A storage type."""

    name: str  # ggml's name, in lower case.
    number: int  # Number in a GGUF file.
    block: int  # Elements of a block.
    size: int  # Bytes of a block.

    @property
    def bits(self) -> float:
        """Bits per element, scales included."""
        return 8 * self.size / self.block

    @property
    def quantized(self) -> bool:
        """True for types that store blocks with scales."""
        return self.block > 1

    def nbytes(self, columns: int, rows: int = 1) -> int:
        """Bytes of ``rows`` rows; ``columns`` must be a multiple of the block."""
        return columns // self.block * self.size * rows


_ROWS: Final = (
    ("f32", 0, 1, 4), ("f16", 1, 1, 2), ("q4_0", 2, 32, 18), ("q4_1", 3, 32, 20), ("q5_0", 6, 32, 22),
    ("q5_1", 7, 32, 24), ("q8_0", 8, 32, 34), ("q8_1", 9, 32, 36), ("q2_k", 10, 256, 84), ("q3_k", 11, 256, 110),
    ("q4_k", 12, 256, 144), ("q5_k", 13, 256, 176), ("q6_k", 14, 256, 210), ("q8_k", 15, 256, 292),
    ("iq2_xxs", 16, 256, 66), ("iq2_xs", 17, 256, 74), ("iq3_xxs", 18, 256, 98), ("iq1_s", 19, 256, 50),
    ("iq4_nl", 20, 32, 18), ("iq3_s", 21, 256, 110), ("iq2_s", 22, 256, 82), ("iq4_xs", 23, 256, 136),
    ("i8", 24, 1, 1), ("i16", 25, 1, 2), ("i32", 26, 1, 4), ("i64", 27, 1, 8), ("f64", 28, 1, 8),
    ("iq1_m", 29, 256, 56), ("bf16", 30, 1, 2), ("tq1_0", 34, 256, 54), ("tq2_0", 35, 256, 66),
    ("mxfp4", 39, 32, 17), ("nvfp4", 40, 64, 36), ("q1_0", 41, 128, 18), ("q2_0", 42, 64, 18),
)  # fmt: skip

TYPES: Final[Mapping[str, GgmlType]] = {row[0]: GgmlType(*row) for row in _ROWS}
"""Every type by its name."""

BY_NUMBER: Final[Mapping[int, GgmlType]] = {kind.number: kind for kind in TYPES.values()}
"""Every type by its number in a file."""

CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""What ``--cache-type-k`` and ``--cache-type-v`` accept (``common/arg.cpp``, ``kv_cache_types``)."""


def cache_type(name: str, field: str) -> GgmlType:
    """The storage type of a cache.

    Raises:
        InputError: If llama.cpp does not store caches in it.
    """
    found = name.lower()
    found = {"bfloat16": "bf16", "float16": "f16", "fp16": "f16", "16-bit": "f16"}.get(found, found)
    if found not in CACHE_TYPES:
        raise InputError(f"{field}: found {name!r}; allowed: {', '.join(CACHE_TYPES)}")
    return TYPES[found]
