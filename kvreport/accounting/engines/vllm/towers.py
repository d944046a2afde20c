"""What vLLM holds at the peak of encoding the images or the video that it measures itself with, by release.

A tower runs uncompiled, so that what a layer still refers to stays allocated. Per patch and 16-bit value of its width:
the residual stream, its norm and (where the tower has them) learned positions stay through a layer. Attention adds
queries, keys and values (3), contiguous queries and keys (2), both rotated (2), its output (1) and that projected (1),
which several ranks sum in a buffer of its size; the MLP adds its inner side twice, or three times where it is gated. The
pixels stay beside all that (0.22.0 to 0.28.0 ``models/qwen3_vl.py::Qwen3_VisionTransformer.forward``,
``models/qwen2_5_vl.py::Qwen2_5_VisionAttention.forward``, whose names keep every step until it returns).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.catalog.caches import CrossAttention
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model, WeightGroup
from kvreport.catalog.release import Release

DYNAMIC_IMAGE_TOKENS: Final = kernel.IMAGE_TOKENS
"""Tokens of the largest image of towers that take any resolution (Qwen-VL's processors: 12.8 million pixels,
28 by 28 pixels to a token; since Qwen3-VL 16.8 million, 32 by 32)."""

POOLED_PATCHES: Final = 9
"""Patches to a token of towers with a fixed resolution (Gemma 4: 2,520 patches, 280 tokens).

As many images are encoded as a step has tokens for, but at least one
(``v1/core/encoder_cache_manager.py::compute_mm_encoder_budget``)."""

VOLUME_VIDEO_TOKENS: Final = 153_600
"""Tokens of the video that towers with a limit for a whole video are measured with in 0.11 and 0.12.

24,576 frames' limit (``qwen3_vl.py``, ``_MAX_FRAMES_PER_VIDEO``) makes 12,288 tokens of patches, which are taken for
12.5 times as many with time stamps; outputs are expanded to that (0.11.0 ``gpu_model_runner.py::profile_run``).
"""

VOLUME_VIDEO_PATCHES: Final = 49_152

STREAMS: Final = 2
"""Residual stream and its norm, both held through a layer."""

ATTENTION_STREAMS: Final = 8
"""Queries, keys and values, contiguous queries and keys, both rotated, and attention's output: divided by ranks."""

PROJECTED_STREAMS: Final = 1
"""Attention's projected output, which every rank has whole, and once more where ranks sum it."""

FLOAT_STREAMS: Final = 18
"""Of towers that rotate queries and keys in 32 bits: all images' states before they are joined, the stream and its norm (3), queries,
keys and values (3), queries and keys as one tensor (2), the same in 32 bits before and after rotation (8), and at last in 16 (2)
(0.28.0 to 0.33.0 ``models/muse_glimmer.py::MuseGlimmerVisionAttention.forward``,
``layers/rotary_embedding/common.py::ApplyRotaryEmb.forward_cuda``)."""

GATED_STREAMS: Final = 5
"""Streams held beside a gated MLP, which towers without learned positions have; the windows' order copies them."""


@dataclass(frozen=True, slots=True)
class Tower:
    """The sizes of a vision tower."""

    width: int  # Width of a patch.
    inner: int  # Inner side of its MLP.
    gated: bool  # True if the MLP is gated.
    merged: int  # Patches that are merged to one token; 0 where the resolution is fixed.
    pixels: int  # Values of one patch of the image.
    positions: bool  # True if the tower learned a table of positions.
    frames: bool  # True if it takes videos, frames of which keep the resolution of an image.
    # Values per token that come out, in widths of the language model: more than one where layers in between
    # are tapped.
    outputs: int
    side: int  # Pixels per side of the square that one token stands for; 0 where the resolution is fixed.
    shuffled: int = 0  # Patches that an adapter takes side by side as one token; 0 where none does.

    @classmethod
    def of(cls, model: Model) -> Tower | None:
        """Read it off a model's weights; None without one."""
        every = [row for row in model.weights if row.component == "vision"]
        rows = [row for row in every if len(row.shape) == 2]
        most = max(rows, key=lambda row: row.count, default=None)
        if most is None or most.count < 2:
            return None
        blocks = [row for row in rows if row.count == most.count]
        width = min(min(row.shape) for row in blocks)
        mlp = [row for row in blocks if not _is_attention(row)]
        entry = next(
            (row for row in every if "patch_embed" in row.name and prod(row.shape) % width == 0), None
        )
        deep = entry is not None and _takes_frames(entry)
        merged = _merged(every, width) if deep else 0
        positions = any("pos_emb" in row.name or "position_embedding" in row.name for row in every)
        return cls(
            width=width,
            inner=max((max(row.shape) for row in mlp), default=4 * width),
            gated=any("gate" in row.name for row in mlp),
            merged=merged,
            pixels=prod(entry.shape) // width if entry is not None else 0,
            positions=positions,
            frames=merged > 0 and not positions,
            outputs=1 + max((row.count for row in rows if "deepstack" in row.name), default=0),
            side=entry.shape[-1] * isqrt(_convolved(every) or merged) if entry is not None and deep else 0,
            shuffled=max((row.shape[1] // width for row in rows if "adapter" in row.name), default=0),
        )

    @property
    def pooled_bytes(self) -> int:
        """Bytes of one patch where images are of one size: the inner side twice, the stream and its residual."""
        return 2 * SERVED_BYTES * self.inner + 2 * SERVED_BYTES * self.width

    def patch_bytes(self, release: Release, ranks: int = 1) -> float:
        """Bytes of one patch at the peak of a layer, on one of several ranks."""
        width = SERVED_BYTES * self.width
        beside = STREAMS + self.positions
        projected = PROJECTED_STREAMS * (1 if ranks == 1 else 2)
        attention = width * (beside + projected + ATTENTION_STREAMS / ranks)
        held = GATED_STREAMS if self.gated else beside
        mlp = width * held + SERVED_BYTES * (3 if self.gated else 2) * self.inner / ranks
        return self.pixels * self.pixel_bytes(release) + max(attention, mlp)

    def float_bytes(self, release: Release, ranks: int = 1) -> float:
        """Bytes of one patch at the peak of a layer that rotates in 32 bits, on one of several ranks."""
        whole = 3
        streams = whole + (FLOAT_STREAMS - whole) / ranks
        return self.pixels * self.pixel_bytes(release) + SERVED_BYTES * self.width * streams

    def pixel_bytes(self, release: Release) -> int:
        """Bytes of a pixel's value: one where the tower takes them as they are read."""
        kind = "frames" if self.frames else "images"
        return 1 if kind in release.names("pixels_as_read") else SERVED_BYTES


@dataclass(frozen=True, slots=True)
class Encoding:
    """One pass over what vLLM measures an encoder with, and what it leaves until the measuring is over."""

    image: float = 0.0  # Bytes at the peak of encoding the largest image.
    # Bytes at the peak of encoding as many images as a step has tokens for, per token.
    per_token: float = 0.0
    images: int = 1  # Most images' worth of a video that a long context is measured with.
    kept: float = 0.0  # Bytes of the outputs of the largest image, which stay while the model runs.
    kept_per_token: float = 0.0  # Bytes of the outputs of a step of tokens, per token.


def encoding(
    tower: Tower | None, hidden: int, release: Release, ranks: int = 1, *, floats: bool = False
) -> Encoding:
    """What is held while images are encoded, and after.

    ``tower``: the tower; None without one, or where images are not encoded. ``hidden``: width of the
    language model's residual stream. ``ranks``: ranks that the tower is split over. ``floats``: True if it rotates in 32 bits.
    """
    if tower is None:
        return Encoding()
    kept = float(tower.outputs * hidden * SERVED_BYTES)
    if floats and tower.shuffled:
        return Encoding(per_token=tower.shuffled * tower.float_bytes(release, ranks), kept_per_token=kept)
    if not tower.merged:
        return Encoding(per_token=float(POOLED_PATCHES * tower.pooled_bytes), kept_per_token=kept)
    patch = tower.patch_bytes(release, ranks)
    if tower.positions and release.has("volume_videos"):
        return Encoding(image=VOLUME_VIDEO_PATCHES * patch, kept=VOLUME_VIDEO_TOKENS * kept)
    return Encoding(
        image=tower.merged * DYNAMIC_IMAGE_TOKENS * patch,
        per_token=tower.merged * patch,
        images=release.count("video_images") if tower.frames else 1,
        kept=DYNAMIC_IMAGE_TOKENS * kept,
        kept_per_token=kept,
    )


def whole_encoding(
    tower: Tower | None, hidden: int, release: Release, ranks: int = 1, *, floats: bool = False
) -> Encoding:
    """The same where each of several ranks has the tower whole, and encodes some of the images.

    One image is encoded by one rank. Outputs are gathered from as many parts as there are ranks, each as long as the
    longest, and what is kept are views of all that (0.33 ``models/vision.py::run_dp_sharded_mrope_vision_model``).
    No log of a start confirms it.

    ``tower``: the tower; None without one, or where images are not encoded. ``hidden``: width of the
    language model's residual stream. ``ranks``: ranks that share the images. ``floats``: True if it rotates in 32 bits.
    """
    alone = encoding(tower, hidden, release, floats=floats)
    kept = alone.kept * ranks
    return replace(alone, image=max(alone.image, kept), per_token=alone.per_token / ranks, kept=kept)


def listening(model: Model, tokens: int | None) -> Encoding:
    """What stays of the clips that a model is measured with which takes audio and no images; the pass is not counted.

    ``tokens``: tokens of the longest clip (:func:`clip_tokens`); None where they are not known.
    """
    sees = any(row.component == "vision" for row in model.weights)
    if tokens is None or sees:
        return Encoding()
    each = float(model.hidden_size * SERVED_BYTES)
    return Encoding(kept=tokens * each, kept_per_token=each)


def clip_tokens(model: Model, engine: Engine, context_tokens: int | None = None) -> int | None:
    """Tokens of the longest audio clip, by the class's processor; None without an audio tower or a known limit.

    Layers that attend to a clip's states see as many of them as the encoder has positions.

    ``context_tokens``: the longest request; None for the model's longest.
    """
    if not any(row.component == "audio" for row in model.weights):
        return None
    caches = model.every_cache
    attended = max((cache.encoder_tokens for cache in caches if isinstance(cache, CrossAttention)), default=0)
    if attended:
        return attended
    if model.architecture not in engine.audio_tokens:
        return None
    return engine.audio_tokens[model.architecture] or context_tokens or model.context_tokens


def _merged(rows: list[WeightGroup], width: int) -> int:
    """Patches to a token: a convolution merges them, or else the merger takes them side by side.

    Behind a convolution the merger works on tokens, and its inner side says nothing of patches (0.33.0 ``models/glm5_next.py``).
    """
    sides = [row.shape[1] for row in rows if "merger" in row.name and len(row.shape) == 2]
    whole = (side // width for side in sides if side > width and side % width == 0)
    return _convolved(rows) or max(whole, default=0)


def _convolved(rows: list[WeightGroup]) -> int:
    """Patches to a token that a convolution merges; 0 without one."""
    merging = (row for row in rows if "downsample" in row.name and len(row.shape) > 2)
    return max((prod(row.shape[2:]) for row in merging), default=0)


def _takes_frames(entry: WeightGroup) -> bool:
    """Whether a patch spans two frames of a video: three colors, twice."""
    return len(entry.shape) > 3 and prod(entry.shape[1:-2]) == 6


def _is_attention(row: WeightGroup) -> bool:
    return any(part in row.name for part in ("attn", "attention", "qkv", "q_proj", "k_proj", "v_proj"))
