"""A vision projector in a GGUF file (``mmproj``): its tensors and the image it is warmed up with.

The keys and the sizes are those of ``tools/mtmd/clip.cpp`` of llama.cpp 0c1e57098 (``clip.vision.*``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import local_tensor
from kvreport.accounting.engines.llama_cpp.projector import Projector
from kvreport.architectures.gguf_header import FileTensor, Header, read_header
from kvreport.errors import InputError

_WARM_SIDE: Final = {
    "qwen2vl_merger": 46, "qwen2.5vl_merger": 46, "qwen3vl_merger": 46, "ling3vl": 46, "mimovl": 46,
    "glm4v": 46, "glm5v": 46, "dots_ocr": 46, "dots3note_v": 46, "exaone4_5": 46,
    "muse-glimmer": 32, "hunyuanvl": 32, "paddleocr": 28,
    "pixtral": 16, "lightonocr": 16, "kimivl": 16, "gemma4v": 16, "gemma4uv": 16, "deepseek4v": 16, "phi4": 16,
    "minimax_m3": 16, "youtuvl": 16,
}  # fmt: skip
"""Tokens per side of the image that warms a projector up (``set_warmup_n_tokens``); others take ``image_size``."""

_PAIRS: Final = frozenset({"qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "ling3vl", "mimovl"})
"""Types that put patches in the order of merging before the first layer."""

_MERGE: Final = {"pixtral": 1, "lightonocr": 1, "phi4": 1, "gemma3": 4, "gemma4v": 3}
"""Patches per side of a token where the file does not say so; two for the other types with a size of their own."""


def read_projector(path: str | Path) -> Projector:
    """Read the header of the projector file that ``--mmproj`` names.

    Raises:
        InputError: If it is no GGUF file, or one of a language model.
    """
    header = read_header(path)
    if header.metadata.get("general.architecture") != "clip":
        found = header.metadata.get("general.architecture")
        raise InputError(
            f"mmproj: {header.path.name}: found architecture {found!r}; allowed: a projector (clip)"
        )
    kind = str(
        header.metadata.get("clip.projector_type") or header.metadata.get("clip.vision.projector_type")
    )
    patch = max(_number(header, "clip.vision.patch_size", 14), 1)
    merge = _merge(header, kind)
    image = _number(header, "clip.vision.image_size", 336) // patch
    by_name = {tensor.name: tensor for tensor in header.tensors}
    first = by_name.get("v.patch_embd.weight")
    return Projector(
        tensors=tuple(local_tensor(one.name, one.shape, one.kind) for one in header.tensors),
        side=max(_WARM_SIDE[kind] * merge if kind in _WARM_SIDE else image, merge),
        patch=patch,
        hidden=_number(header, "clip.vision.embedding_length", 1024),
        inner=_number(header, "clip.vision.feed_forward_length", 4096),
        heads=_number(header, "clip.vision.attention.head_count", 16),
        layers=_number(header, "clip.vision.block_count", 24),
        merge=merge,
        kernels=1 + ("v.patch_embd.weight.1" in by_name),
        kernel_width=4 if first is not None and first.kind.name == "f32" else 2,
        position="v.position_embd.weight" in by_name,
        entry_norm="v.pre_ln.weight" in by_name,
        exit_norm="v.post_ln.weight" in by_name,
        class_patch="v.class_embd" in by_name,
        fused="v.blk.0.attn_qkv.weight" in by_name,
        biased="v.blk.0.ffn_down.bias" in by_name,
        patch_biased="v.patch_embd.bias" in by_name,
        gated="v.blk.0.ffn_gate.weight" in by_name,
        scaled="v.blk.0.ls1.weight" in by_name,
        turned=kind in _PAIRS or kind in ("pixtral", "lightonocr", "kimivl"),
        windowed=bool(_number(header, "clip.vision.n_wa_pattern", 0)),
        pairs_first=kind in _PAIRS and merge == 2,
        stacked=frozenset(
            int(name.split(".")[2]) for name in by_name if name.startswith("v.deepstack.") and "fc1" in name
        ),
        projection=_widths(header.tensors),
    )


def _merge(header: Header, kind: str) -> int:
    default = _MERGE.get(kind, 2 if kind in _WARM_SIDE else 1)
    scale = _number(header, "clip.vision.projector.scale_factor", default)
    return _number(header, "clip.vision.spatial_merge_size", scale)


def _widths(tensors: tuple[FileTensor, ...]) -> tuple[int, ...]:
    """Widths after each matrix of the projection, in the order of their numbers."""
    found = sorted(
        (tensor.name, tensor.shape[1])
        for tensor in tensors
        if tensor.name.startswith("mm.") and tensor.name.endswith(".weight") and len(tensor.shape) == 2
    )
    return tuple(rows for _, rows in found)


def _number(header: Header, key: str, default: int) -> int:
    found = header.metadata.get(key)
    return (
        found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 24 else default
    )
