"""Which kernels vLLM runs on a device, and what they force: block sizes, layouts, checkpoints of states.

``platforms/interface.py::update_block_size_for_backend`` takes the smallest block that every chosen
kernel accepts; sparse latents have layouts of their own; a state inside a prefill can be kept only where
its kernel hands it out (vLLM 0.33.0).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from kvreport.accounting.engines.vllm.releases import keeps_checkpoint
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import (
    Cache,
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    Ring,
    Shared,
    SlidingWindow,
)
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, RecordFormat
from kvreport.catalog.model import LayerGroup, Model
from kvreport.catalog.release import release_of
from kvreport.catalog.remembered import remembered
from kvreport.catalog.support import numbers

INTERLEAVED_ROW: Final = 528
"""512 values in FP8 and 16 scales (0.30 ``models/deepseek_v41/attention.py``)."""
FP4_ROW: Final = 288
"""512 values in FP4 and 32 scales, the compressed rows beside windows in FP8 (0.31.0 to 0.33.0
``models/deepseek_v41/attention.py``, ``compressed_bytes_per_token``)."""

NATIVE_FLOATS: Final = (8, 9)
"""The first compute capability that multiplies FP8."""
OWN_BLOCKS: Final = 9
"""The first major compute capability for which CUTLASS multiplies FP8 in blocks; Marlin's kernels do below it, as
``overhead._grouped_scales`` says with its sources."""

KERNEL_TOKENS: Final = 16
"""The smallest block of the kernels that read keys and values, packed ones too (``turboquant_attn.py``)."""
OWN_CDNA: Final = 3
"""The first generation of CDNA that AITER's kernels run on (0.33.0 ``_aiter_ops.py::is_aiter_found_and_supported``)."""

SINKS: Final = ("self_attn.sinks", "self_attn.attention_sink_bias")
MASKED_HEADS: Final = frozenset({256, 512})
"""Head widths of the kernels for images (0.30.0 and 0.33.0 ``v1/attention/backends/triton_flashinfer.py``)."""
_WIDE_HEAD: Final = 512
"""Head width for which Hopper's FP8 kernels want blocks of 64."""

MLA_ROWS: Final = (320, 512, 576)
"""Widths of latent and rotary part together that MLA kernels other than Triton's are built for."""

_WIDE_ROTARY: Final = KvFormat(
    name="fp8_ds_mla",
    label="FP8 latent with a 16-bit rotary part",
    bits=8,
    scale_bytes=4,
    scale_every=128,
    wide_rope_bytes=SERVED_BYTES,
    stores=("latent",),
)
"""The layout of sparse latents in FP8 (vLLM 0.33.0, ``flashmla_sparse.py``): 512 + 16 + 128 = 656 bytes."""


@dataclass(frozen=True, slots=True)
class Device:
    """What of an accelerator decides kernels."""

    nvidia: bool  # True for NVIDIA GPUs.
    major: int  # Major compute capability; 0 where there is none.
    hybrid: bool  # False where the engine has no hybrid cache manager (neither GPU nor CPU).
    amd: bool = False  # True for AMD's, whose rows of FP8 are set apart.
    aiter: bool = False  # True for AMD's data-center GPUs of CDNA 3 and later, which AITER's kernels run on.
    # True for NVIDIA GPUs that compute in FP8 (8.9 and later), for which Marlin's kernels are not needed.
    floats: bool = True
    # True for NVIDIA GPUs below 9.0, which have no other kernels of their own for FP8 in blocks.
    marlin: bool = False

    @classmethod
    @remembered
    def of(cls, accelerator: Accelerator | None) -> Device:
        """Read it off an accelerator; without one a Hopper GPU."""
        if accelerator is None:
            return cls(nvidia=True, major=9, hybrid=True)
        nvidia = accelerator.vendor.upper() == "NVIDIA"
        capability = accelerator.compute_capability or ""
        major = int(capability.split(".")[0]) if nvidia and capability else 0
        hybrid = accelerator.vendor.upper() in ("NVIDIA", "AMD", "INTEL")
        family, _, generation = (accelerator.architecture or "").partition("CDNA")
        return cls(
            nvidia=nvidia,
            major=major,
            hybrid=hybrid,
            amd=accelerator.vendor.upper() == "AMD",
            aiter=not family and generation.isdecimal() and int(generation) >= OWN_CDNA,
            floats=bool(nvidia and capability) and numbers(capability) >= NATIVE_FLOATS,
            marlin=0 < major < OWN_BLOCKS,
        )


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a model decides kernels and block sizes."""

    latent: Latent | None  # Its first latent cache, if it has one.
    indexed: bool  # True if it chooses the tokens it attends to through an indexer.
    packed: bool  # True if its latents are compressed (DeepSeek-V4) and lie side by side.
    short: bool  # True if such latents lie in short blocks (DeepSeek-V4.1).
    # True if it has latents that are not packed and index keys of several tokens each (GLM-5.3-Flash): both
    # lie in one block, and a ring of each layer keeps the tokens of the key that is not whole.
    grouped: bool
    paired: bool  # True if it has index keys beside keys and values, one per token (MiniMax-M3).
    # True if they are one of several tokens (Qwen3.8 Flash-Next): their pages lie beside those of keys and
    # values, and a ring of each layer keeps the tokens of the one that is not whole.
    pooled: bool
    states: tuple[RecurrentState, ...]
    widest_head: int  # Width of its widest attention head; 0 without attention heads.
    # True if it has attention sinks, and keys as wide as values (others have kernels of their own, ``models/mimo_v2.py``).
    sinks: bool
    plain: bool  # True if it has full attention only, its own or shared, or an encoder's.
    # True if the tokens of an image attend to one another in both directions, in heads that kernels for them take.
    masked: bool

    @classmethod
    @remembered
    def of(cls, model: Model, engine: Engine) -> Traits:
        """Read it off a model's caches, as the engine keeps them."""
        caches = [_kept(model, engine, cache) for cache in model.every_cache]
        latents = [cache for cache in caches if isinstance(cache, Latent)]
        indexers = [cache for cache in caches if isinstance(cache, Indexer)]
        keyed = [cache for cache in caches if isinstance(cache, FullAttention | SlidingWindow)]
        heads = [cache.key_dim for cache in keyed]
        alike = all(cache.key_dim == cache.value_dim for cache in keyed)
        packed = any(isinstance(cache, Ring) for cache in caches) or any(
            latent.stride > 1 for latent in latents
        )
        return cls(
            latent=latents[0] if latents else None,
            indexed=bool(indexers),
            packed=packed,
            short=packed and engine.lists("packed_in_short_blocks", model.architecture),
            grouped=any(one.stride > 1 for one in indexers) and bool(latents) and not packed,
            paired=any(one.stride == 1 for one in indexers) and not latents,
            pooled=any(one.stride > 1 for one in indexers) and not latents,
            states=tuple(cache for cache in caches if isinstance(cache, RecurrentState)),
            widest_head=max(heads, default=0),
            sinks=bool(heads) and alike and any(row.name.endswith(SINKS) for row in model.weights),
            plain=all(
                isinstance(cache, FullAttention | CrossAttention | Shared) for cache in model.every_cache
            ),
            masked=masks_images(model, engine) and not MASKED_HEADS.isdisjoint(heads),
        )


def masks_images(model: Model, engine: Engine) -> bool:
    """True if the tokens of an image attend to one another in both directions: its config says so, or its class does."""
    return model.attends_both_ways or engine.lists("attends_both_ways", model.architecture)


def idle_indexers(model: Model, engine: Engine) -> tuple[Indexer | None, int]:
    """The indexer that layers have which attend to what another layer chose, and how many of them have one.

    Up to 0.23.0 every layer of sparse latents makes an indexer and a cache for its keys, and those that take another layer's
    choice never run it (``models/deepseek_v2.py::DeepseekV2MLAAttention.__init__``, ``_skip_topk``).
    """
    traits = Traits.of(model, engine)
    indexers = [one for one in model.every_cache if isinstance(one, Indexer)]
    if traits.packed or traits.latent is None or release_of(engine).has("indexers_where_chosen"):
        return None, 0
    groups = [group for group in model.layers if takes_a_choice(group)] if indexers else []
    return (indexers[0], sum(group.count for group in groups)) if groups else (None, 0)


def takes_a_choice(group: LayerGroup) -> bool:
    """True for layers of latents without an indexer of their own."""
    kinds = {type(cache) for cache in group.caches}
    return Latent in kinds and Indexer not in kinds


def uncompressed(model: Model) -> FullAttention:
    """The cache of latent attention whose engine class keeps every head."""
    rows = next(row.shape[0] for row in model.weights if "q_b_proj" in row.name and len(row.shape) > 1)
    width = rows // model.attention_heads
    return FullAttention(kv_heads=model.attention_heads, key_dim=width, value_dim=width)


def _kept(model: Model, engine: Engine, cache: Cache) -> Cache:
    expanded = isinstance(cache, Latent) and engine.lists("latents_expanded", model.architecture)
    return uncompressed(model) if expanded else cache


def plan_class(
    model: Model, engine: Engine, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> Hashable:
    """What a device changes of a plan; None for full attention only, in heads that every kernel takes.

    Latents, states and the widest heads have kernels with block sizes of their own, sparse latents layouts of their
    own, and windows count in full where there is no hybrid cache manager.
    """
    shape = Traits.of(model, engine)
    if shape.plain and shape.widest_head < _WIDE_HEAD and not (shape.sinks or shape.masked):
        return None
    device = Device.of(accelerator)
    stored = stored_format(model, engine, kv_format, accelerator)
    each = [Kernels(engine, device, shape, model.architecture, fp8) for fp8 in (False, True)]
    return (
        device.hybrid,
        device.nvidia and device.major == 12,
        shape.short and each[0].interleaved_records(),
        None
        if stored is None
        else (stored.name, stored.scale_bytes, stored.scale_every, stored.wide_rope_bytes),
        each[0].checkpoint_tokens(),
        *(one.block_tokens() for one in each),
    )


@remembered
def reserves_for_steps(model: Model) -> bool:
    """True if scheduler sizes change the plan: windows and rings hold tokens in flight besides theirs."""
    caches = model.every_cache
    return any(isinstance(cache, SlidingWindow | ChunkedAttention | Ring) for cache in caches) or any(
        isinstance(cache, Latent) and cache.window is not None for cache in caches
    )


def stored_format(
    model: Model, engine: Engine, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> KvFormat | None:
    """What this engine's kernels on this device store when asked for a format.

    Sparse MLA in FP8 (DeepSeek-V3.2, GLM-5): everywhere but on Blackwell data-center GPUs, whose kernels
    take plain rows, one latent is FP8 with a float32 scale per 128 elements and a 16-bit rotary part.
    Latents in short blocks (DeepSeek-V4.1) have records of their own on Blackwell data-center GPUs.
    The format keeps its name; its bytes are those of the layout.
    """
    shape, device = Traits.of(model, engine), Device.of(accelerator)
    if shape.short and kv_format is not None:
        return _in_records(model, engine, kv_format, device)
    if shape.latent is None or not shape.indexed or shape.packed or not device.nvidia:
        return kv_format
    if kv_format is None:
        return _WIDE_ROTARY if device.major == 12 else None
    if kv_format.bits != _WIDE_ROTARY.bits or device.major == 10:
        return kv_format
    layout = ("scale_bytes", "scale_every", "wide_rope_bytes")
    return kv_format.model_copy(update={field: getattr(_WIDE_ROTARY, field) for field in layout})


def _in_records(model: Model, engine: Engine, kv_format: KvFormat, device: Device) -> KvFormat:
    """A format with the records of the device's kernels, if they have any."""
    kernels = Kernels(engine, device, Traits.of(model, engine), model.architecture, fp8=True)
    if not kernels.interleaved_records():
        return kv_format
    kept = FP4_ROW if kernels.compressed_in_fp4() else INTERLEAVED_ROW
    stated = kv_format.model_dump() | {"page_align_bytes": 1}
    return RecordFormat(**stated, window_record_bytes=INTERLEAVED_ROW, record_bytes=kept)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one model on one device, and what they force."""

    engine: Engine  # The engine's policy.
    device: Device  # What of the accelerator decides.
    traits: Traits  # What of the model decides.
    architecture: str  # The model's class.
    fp8: bool  # True if the cache is stored in FP8.

    def block_tokens(self, given: int | None = None) -> int:
        """The default block size, raised to what the chosen kernels accept."""
        if given is not None:
            return given
        default = self.engine.block_tokens
        if self.traits.short:
            return 64 if self.device.nvidia and self.device.major == 9 else 128
        if self.traits.packed:
            return 256
        if self.traits.paired:
            return 128
        if self.traits.latent is not None:
            return max(default, self._latent_block(self.traits.latent))
        if self.fp8 and self.device.major == 9 and self.traits.widest_head == _WIDE_HEAD:
            return max(default, 64)
        long = release_of(self.engine).names("blocks_of_64")
        if self.traits.sinks and self.device.aiter and "sinks on AMD" in long:
            return max(default, 64)
        if self.traits.masked and self.device.nvidia and self.device.major == 10 and "images" in long:
            return max(default, 64)
        return default

    def refused_block(self, given: int | None) -> int | None:
        """The size of which blocks must be a multiple, where no kernel takes those given.

        Every kernel for keys and values on NVIDIA GPUs takes multiples of 16 (``get_supported_kernel_block_sizes`` of
        ``v1/attention/backends/flash_attn.py``, ``triton_attn.py``, ``flex_attention.py`` and ``flashinfer.py``, 0.33.0). Sparse
        latents have one kernel: ``v1/attention/backend.py::AttentionBackend.supports_block_size``, ``mla/indexer.py`` and
        ``models/deepseek_v4/sparse_mla.py::get_supported_kernel_block_sizes`` (0.23.0 and 0.33.0).
        """
        traits = self.traits
        sparse = traits.packed or (traits.latent is not None and traits.indexed and not traits.grouped)
        if given is not None and traits.widest_head and traits.latent is None and self.device.nvidia:
            return KERNEL_TOKENS if given % KERNEL_TOKENS else None
        if given is None or not sparse or not (self.device.nvidia or (traits.packed and not traits.short)):
            return None
        needed = self.block_tokens()
        return needed if given % needed else None

    def _latent_block(self, latent: Latent) -> int:
        if not self.device.nvidia:
            return 1
        if self.traits.grouped:
            # Pages of 32 or 64 keys, of several tokens each (0.33 ``mla/indexer.py::Glm5NextIndexerBackend``).
            return 256 if self.device.major == 12 else 128
        if self.traits.indexed:
            return 64
        if latent.latent_dim + latent.rope_dim not in MLA_ROWS:
            return 16
        if self.device.major == 10:
            return 32
        return 64 if self.device.major == 9 and self.fp8 else 16

    def interleaved_records(self) -> bool:
        """True where latents in short blocks are FP8 throughout, which Blackwell data-center GPUs alone read.

        ``models/deepseek_v41/attention.py::_use_v41_mxfp8_kv_record``.
        """
        return self.device.nvidia and self.device.major == 10

    def compressed_in_fp4(self) -> bool:
        """True where compressed latents are NVFP4 beside windows in FP8.

        The fused kernel takes groups of eight heads, which every division of DeepSeek-V4.1's 64 in eight groups leaves.
        """
        return self.interleaved_records() and self.engine.lists(
            "compressed_in_fp4_on_sm100", self.architecture
        )

    def checkpoint_tokens(self) -> int | None:
        """Tokens to which a state inside a prefill must be aligned; None if none can be kept.

        Every kind of state in the model must be able to.
        """
        alignment = 1
        for cache in self.traits.states:
            own = self._own_checkpoint_tokens(cache)
            if own is None:
                return None
            alignment = math.lcm(alignment, own)
        return alignment

    def _own_checkpoint_tokens(self, cache: RecurrentState) -> int | None:
        fast = self.device.nvidia and self.device.major in (9, 10, 12)
        if not keeps_checkpoint(self.engine, cache.mechanism, self.architecture):
            return None
        if cache.mechanism == "mamba2":
            return 1
        if cache.mechanism == "gated_deltanet" and fast:
            return 64
        if cache.mechanism == "kda" and fast:
            return 16
        return None
