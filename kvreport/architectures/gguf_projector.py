"""A vision projector in a GGUF file (``mmproj``): its tensors and the largest image it takes.

The keys are those of ``tools/mtmd/clip.cpp`` of llama.cpp 0c1e57098 (``clip.vision.*``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvreport.accounting.engines.llama_cpp.companions import MAX_IMAGE_TOKENS, Projector
from kvreport.accounting.engines.llama_cpp.gguf_tensors import local_tensor
from kvreport.architectures.gguf_header import Header, read_header
from kvreport.errors import InputError

_DYNAMIC: Final = ("qwen", "glm4v", "kimi", "pixtral", "lfm2", "gemma4", "dots", "paddle")
"""Beginnings of the projector types that take images of any size, up to a number of tokens."""


def read_projector(path: str | Path) -> Projector:
    """Read the header of a projector file.

    Args:
        path: The file that ``--mmproj`` names.

    Raises:
        InputError: If it is no GGUF file, or one of a language model.
    """
    header = read_header(path)
    if header.metadata.get("general.architecture") != "clip":
        found = header.metadata.get("general.architecture")
        raise InputError(
            f"mmproj: {header.path.name}: found architecture {found!r}; allowed: a projector (clip)"
        )
    patch = _number(header, "clip.vision.patch_size", 14)
    side = _number(header, "clip.vision.image_size", 336) // max(patch, 1)
    kind = str(
        header.metadata.get("clip.projector_type") or header.metadata.get("clip.vision.projector_type")
    )
    merge = _number(header, "clip.vision.spatial_merge_size", 2)
    patches = MAX_IMAGE_TOKENS * merge * merge if kind.startswith(_DYNAMIC) else max(side * side, 1)
    return Projector(
        tensors=tuple(local_tensor(one.name, one.shape, one.kind) for one in header.tensors),
        patches=patches,
        hidden=_number(header, "clip.vision.embedding_length", 1024),
        inner=_number(header, "clip.vision.feed_forward_length", 4096),
        heads=_number(header, "clip.vision.attention.head_count", 16),
        patch_elements=3 * patch * patch,
    )


def _number(header: Header, key: str, default: int) -> int:
    found = header.metadata.get(key)
    return (
        found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 24 else default
    )
