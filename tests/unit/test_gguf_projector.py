"""Projectors: compute buffers held against those that llama.cpp itself reserves (llama-cpp-python 0.3.36, CPU).

The buffers are those of ``mtmd_get_memory_usage`` with the default image, less the weights, for files of these shapes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvreport.architectures.gguf_projector import read_projector
from kvreport.errors import InputError
from tests.unit.test_gguf import header

MIB = 1 << 20
F32, F16 = 0, 1
Table = list[tuple[str, tuple[int, ...], int]]


def keys(
    kind: str, *, image: int, patch: int, width: int, inner: int, layers: int, **more: int
) -> dict[str, int | str]:
    return {
        "general.architecture": "clip",
        "clip.projector_type": kind,
        "clip.vision.image_size": image,
        "clip.vision.patch_size": patch,
        "clip.vision.embedding_length": width,
        "clip.vision.feed_forward_length": inner,
        "clip.vision.block_count": layers,
        "clip.vision.attention.head_count": 16,
        **{f"clip.vision.{key}": value for key, value in more.items()},
    }


def named(width: int, *names: str) -> Table:
    """Tensors whose presence alone says something."""
    return [(name, (width,), F32) for name in names]


def matrices(*shapes: tuple[int, int]) -> Table:
    return [(f"mm.{index}.weight", shape, F16) for index, shape in enumerate(shapes)]


BIASED = ("v.blk.0.ffn_down.bias", "v.patch_embd.bias")
QWEN = ("v.patch_embd.weight.1", "v.post_ln.weight")
QWEN3 = (*QWEN, *BIASED, "v.position_embd.weight", "v.blk.0.attn_qkv.weight")
PIXTRAL = ("v.pre_ln.weight", "v.blk.0.ffn_gate.weight")

CASES = {
    "gemma-3": (
        keys("gemma3", image=896, patch=14, width=1152, inner=4304, layers=27),
        named(1152, *BIASED, "v.position_embd.weight", "v.post_ln.weight") + matrices((2560, 1152)),
        121.25,
    ),
    "qwen2-vl": (
        keys("qwen2vl_merger", image=560, patch=14, width=1280, inner=5120, layers=32),
        named(1280, *QWEN, "v.blk.0.ffn_down.bias") + matrices((5120, 5120), (5120, 3584)),
        267.08,
    ),
    "qwen2.5-vl": (
        keys("qwen2.5vl_merger", image=560, patch=14, width=1280, inner=3420, layers=32, n_wa_pattern=8),
        named(1280, *QWEN, "v.blk.0.ffn_down.bias", "v.blk.0.ffn_gate.weight")
        + matrices((5120, 5120), (5120, 3584)),
        704.79,
    ),
    "qwen3-vl-8b": (
        keys("qwen3vl_merger", image=768, patch=16, width=1152, inner=4304, layers=27),
        named(1152, *QWEN3, *(f"v.deepstack.{layer}.fc1.weight" for layer in (8, 16, 24)))
        + matrices((4608, 4608), (4608, 4096)),
        372.08,
    ),
    "qwen3.6-27b": (
        keys("qwen3vl_merger", image=768, patch=16, width=1152, inner=4304, layers=27),
        named(1152, *QWEN3) + matrices((4608, 4608), (4608, 5120)),
        248.09,
    ),
    "pixtral-12b": (
        keys("pixtral", image=1024, patch=16, width=1024, inner=4096, layers=24),
        named(1024, *PIXTRAL) + matrices((1024, 5120), (5120, 5120)),
        16.56,
    ),
    "mistral-small-3.2": (
        keys("pixtral", image=1540, patch=14, width=1024, inner=4096, layers=24, spatial_merge_size=2),
        named(1024, *PIXTRAL) + matrices((4096, 1024), (1024, 5120), (5120, 5120)),
        64.62,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_compute_buffer_is_llama_cpps(tmp_path: Path, case: str) -> None:
    metadata, tensors, measured = CASES[case]
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(header(metadata, tensors))
    found = read_projector(path)
    assert found.compute / MIB == pytest.approx(measured, rel=0.02)
    assert found.weights > 0


def test_a_language_model_is_no_projector(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header({"general.architecture": "llama"}, []))
    with pytest.raises(InputError, match="found architecture 'llama'"):
        read_projector(path)
