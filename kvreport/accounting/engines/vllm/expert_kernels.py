"""Which kernel computes experts of 4-bit floats, and to what tiles it pads them.

One table by release, compute capability and what is installed. ``quantization/mxfp4.py::get_mxfp4_backend``
(0.10.2 to 0.18; ``_should_use_marlin`` in 0.10.1), ``fused_moe/oracle/mxfp4.py`` after, whose
``mxfp4_round_up_hidden_size_and_intermediate_size`` has the tiles.
"""

from __future__ import annotations

from typing import Final, Literal

from kvreport.catalog.engine import Engine
from kvreport.catalog.release import Release, release_of

Kernel = Literal["triton", "marlin", "flashinfer"]
Tiles = tuple[int, int]

TILES: Final[dict[Kernel, Tiles]] = {"triton": (1, 256), "marlin": (128, 256), "flashinfer": (256, 256)}
"""Multiples that each rank's inner side and the model's width are padded to.

Triton's are those of the package of its own, up to 0.11: it pads the values along the width and leaves the scales.
:func:`triton_bytes` has those of the package's own copy after.
"""

_SCALED_ROWS: Final = 256
GROUP_VALUES: Final = 32
"""Values that share a scale."""

MEGA_MOE: Final = "mega_moe"
"""Kernels of experts that exchange tokens by themselves."""


def block_float_kernel(engine: Engine, architecture: str, major: int, installed: str | None = None) -> Kernel:
    """The kernel of MXFP4 experts on an NVIDIA GPU.

    Hopper takes OpenAI's Triton kernels where they are installed, as part of the package or as a package of their own.

    Args:
        engine: The record of the release.
        architecture: The model's class.
        major: Major compute capability.
        installed: What a log or a user says runs on Hopper; None for how the release is published.
    """
    if major == 10:
        return "flashinfer"
    if major != 9:
        return "marlin"
    if installed == "triton":
        return "triton"
    if installed == "marlin":
        return "marlin"
    release = release_of(engine)
    by_class = release.has("block_float_kernels_by_class")
    listed = not by_class or engine.lists("expert_kernels", architecture)
    return "triton" if listed and release.has("vendored_triton_kernels") else "marlin"


def triton_bytes(release: Release, outputs: int, inputs: int) -> int:
    """Bytes of one MXFP4 matrix as OpenAI's Triton kernels keep it on Hopper, since 0.12.

    ``third_party/triton_kernels/tensor_details/layout_details``: ``hopper_value.py`` pads the outputs to 16 and the
    inputs to 64, or to 64 and 128; ``hopper_scale.py`` pads the outputs to 256, for eight warps, and the
    groups of 32 inputs to 2, or as vLLM does. Biases are widened to 32 bits. What vLLM allocates before has the inner side in
    multiples of 64 (``oracle/mxfp4.py``).

    ``outputs``: outputs of the matrix on one rank, gate and up together. ``inputs``: inputs on one rank.
    """
    wide = release.has("wide_triton_tiles")
    values = rounded_up(outputs, 64 if wide else 16) * rounded_up(inputs, 128 if wide else 64) // 2
    groups = rounded_up(-(-inputs // GROUP_VALUES), release.count("triton_scale_groups"))
    return values + rounded_up(outputs, _SCALED_ROWS) * groups


def rounded_up(size: int, tile: int) -> int:
    """Return a size in whole tiles."""
    return -(-size // tile) * tile
