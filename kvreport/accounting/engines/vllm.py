"""vLLM's block plan: from a model's caches to pages, by the rules of vLLM 0.33.0.

What each layer asks for (``get_kv_cache_spec`` of the attention and state layers), which block
size the chosen kernels force (``platforms/interface.py::update_block_size_for_backend``) and how
states set the block of a hybrid (``_align_hybrid_block_size``). Grouping follows in
:mod:`kvreport.accounting.engines.pages`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.pages import (
    Group,
    Page,
    block_bytes,
    group_layers,
    promote_windows,
    terms_of,
    tuple_block_bytes,
)
from kvreport.accounting.kv_cache import (
    SERVED_BYTES,
    heads_per_rank,
    index_bytes,
    latent_bytes,
    state_tensor_bytes,
    vector_bytes,
)
from kvreport.accounting.plan import BlockPlan, CacheGroup, Serving
from kvreport.accounting.profile import CacheProfile, Kind
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
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.errors import InputError

_UNCHECKPOINTED: Final = frozenset({"KimiLinearForCausalLM", "OlmoHybridForCausalLM"})
"""Classes whose state layers cannot hand out a state from inside a prefill."""

_FP8_LATENT_ON_SM100: Final = frozenset({"GlmMoeDsaForCausalLM"})
"""Classes whose cache becomes FP8 on Blackwell data-centre GPUs unless the user says otherwise."""

_SIXTEEN_BIT_CACHE: Final = frozenset({"FalconForCausalLM", "RWForCausalLM"})
"""Classes whose attention never sees the flag: their cache stays in the model's type."""

_WIDE_HEAD: Final = 512
"""Head width for which Hopper's FP8 kernels want blocks of 64."""

_MLA_ROWS: Final = (320, 512, 576)
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

_PACKED_ROW: Final = 584
_PACKED_ALIGNMENT: Final = 576
_FLOAT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Device:
    """What of an accelerator decides kernels.

    Attributes:
        nvidia: True for NVIDIA GPUs.
        major: Major compute capability; 0 where there is none.
        hybrid: False where the engine has no hybrid cache manager (neither GPU nor CPU).
    """

    nvidia: bool
    major: int
    hybrid: bool

    @classmethod
    def of(cls, accelerator: Accelerator | None) -> Device:
        """Read it off an accelerator; without one a Hopper GPU."""
        if accelerator is None:
            return cls(nvidia=True, major=9, hybrid=True)
        nvidia = accelerator.vendor.upper() == "NVIDIA"
        capability = accelerator.compute_capability or ""
        major = int(capability.split(".")[0]) if nvidia and capability else 0
        hybrid = accelerator.vendor.upper() in ("NVIDIA", "AMD", "INTEL")
        return cls(nvidia=nvidia, major=major, hybrid=hybrid)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What of a model decides block sizes."""

    latent: Latent | None
    indexed: bool
    packed: bool
    paired: bool
    states: tuple[RecurrentState, ...]
    widest_head: int

    @classmethod
    def of(cls, model: Model) -> _Shape:
        caches = [cache for group in model.layers for cache in group.caches]
        latents = [cache for cache in caches if isinstance(cache, Latent)]
        indexers = [cache for cache in caches if isinstance(cache, Indexer)]
        heads = [c.key_dim for c in caches if isinstance(c, FullAttention | SlidingWindow)]
        packed = any(isinstance(cache, Ring) for cache in caches) or any(
            latent.stride > 1 for latent in latents
        )
        return cls(
            latent=latents[0] if latents else None,
            indexed=bool(indexers),
            packed=packed,
            paired=bool(indexers) and not latents,
            states=tuple(cache for cache in caches if isinstance(cache, RecurrentState)),
            widest_head=max(heads, default=0),
        )


def same_on_every_device(model: Model) -> bool:
    """True if no device changes the plan: full attention only, in heads that every kernel takes.

    Windows reserve for the scheduler's steps, and latents, states and the widest heads have kernels
    with block sizes of their own.
    """
    caches = [cache for group in model.layers for cache in group.caches]
    plain = all(isinstance(cache, FullAttention | CrossAttention | Shared) for cache in caches)
    return plain and _Shape.of(model).widest_head < _WIDE_HEAD


def reserves_for_steps(model: Model) -> bool:
    """True if scheduler sizes change the plan: windows and rings hold tokens in flight besides theirs."""
    caches = [cache for group in model.layers for cache in group.caches]
    return any(isinstance(cache, SlidingWindow | ChunkedAttention | Ring) for cache in caches) or any(
        isinstance(cache, Latent) and cache.window is not None for cache in caches
    )


def default_kv_format(model: Model, accelerator: Accelerator | None) -> str | None:
    """The KV format that vLLM takes when told ``auto``, by name; None for the model's own type.

    What the checkpoint declares, else what the device's kernels ask for: FP8 for GLM-5 on Blackwell
    data-centre GPUs, and the only layout that sparse latents can have on SM12x.
    """
    device = Device.of(accelerator)
    if model.kv_format is not None or not device.nvidia:
        return model.kv_format
    if model.architecture in _FP8_LATENT_ON_SM100 and device.major == 10:
        return "fp8"
    sparse = _Shape.of(model)
    if sparse.latent is not None and sparse.indexed and not sparse.packed and device.major == 12:
        return "fp8_ds_mla"
    return None


def stored_format(
    model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> KvFormat | None:
    """What this engine's kernels on this device store when asked for a format.

    Sparse MLA in FP8 (DeepSeek-V3.2, GLM-5): everywhere but on Blackwell data-centre GPUs, whose kernels
    take plain rows, one latent is FP8 with a float32 scale per 128 elements and a 16-bit rotary part.
    The format keeps its name; its bytes are those of the layout.
    """
    shape, device = _Shape.of(model), Device.of(accelerator)
    if shape.latent is None or not shape.indexed or shape.packed or not device.nvidia:
        return kv_format
    if kv_format is None:
        return _WIDE_ROTARY if device.major == 12 else None
    if kv_format.bits != _WIDE_ROTARY.bits or device.major == 10:
        return kv_format
    layout = ("scale_bytes", "scale_every", "wide_rope_bytes")
    return kv_format.model_copy(update={field: getattr(_WIDE_ROTARY, field) for field in layout})


def plan(
    model: Model,
    engine: Engine,
    *,
    serving: Serving,
    kv_format: KvFormat | None,
    tensor_parallel: int,
    accelerator: Accelerator | None,
) -> BlockPlan:
    """Plan the blocks of one model on one rank.

    Raises:
        InputError: If the cache format or the parallel layout is impossible.
    """
    layers = _Layers(
        model=model,
        engine=engine,
        serving=serving,
        kv_format=_plain(stored_format(model, kv_format, accelerator)),
        tensor_parallel=tensor_parallel,
        device=Device.of(accelerator),
    )
    if _is_plain(kv_format) and layers.only_packed():
        raise InputError(
            f"KV format {kv_format.name if kv_format else 'auto'!r} cannot store the cache of {model.id}: "
            f"{engine.label} has only packed FP8 kernels for it on this device; allowed: auto, fp8"
        )
    pages = list(layers.pages())
    if not (serving.hybrid_manager and layers.device.hybrid):
        pages = promote_windows(pages)
    interleaved = layers.shape.packed
    try:
        groups = group_layers(pages, interleaved=interleaved)
    except ValueError as error:
        raise InputError(f"{model.id}: {engine.label} cannot lay out its cache: {error}") from error
    if not groups:
        return BlockPlan(block_bytes=1, profile=CacheProfile(()))
    in_tuples = interleaved and len(groups) > 1 and engine.packed_blocks == "tuples"
    size = tuple_block_bytes(groups) if in_tuples else block_bytes(groups, interleaved=interleaved)
    terms = [term for group in groups for term in terms_of(group, size, serving.context_parallel)]
    return BlockPlan(
        block_bytes=size,
        profile=CacheProfile.of(terms),
        kept_blocks=engine.kept_blocks,
        groups=tuple(_described(group) for group in groups),
        block_tokens=layers.block_tokens,
        context_parallel=serving.context_parallel,
        notes=tuple(layers.notes(groups)),
    )


def _described(group: Group) -> CacheGroup:
    return CacheGroup(
        kind=group.first.kind,
        layers=group.layers,
        block_tokens=group.first.block_tokens,
        page_bytes=group.page_bytes,
    )


def _plain(kv_format: KvFormat | None) -> KvFormat | None:
    """None for 16 bits without scales: the type that models are served in."""
    return None if _is_plain(kv_format) else kv_format


def _is_plain(kv_format: KvFormat | None) -> bool:
    return kv_format is not None and kv_format.bits == 16 and not kv_format.scale_bytes


class _Layers:
    """The pages that a model's layers ask for under given flags."""

    def __init__(
        self,
        *,
        model: Model,
        engine: Engine,
        serving: Serving,
        kv_format: KvFormat | None,
        tensor_parallel: int,
        device: Device,
    ) -> None:
        self.model = model
        self.engine = engine
        self.serving = serving
        self.tensor_parallel = tensor_parallel
        self.device = device
        self.shape = _Shape.of(model)
        self.kv_format = kv_format
        self.fp8 = kv_format is not None and kv_format.bits == 8
        if model.architecture in _SIXTEEN_BIT_CACHE:
            self.kv_format, self.fp8 = None, False
        caching = serving.prefix_caching
        self.prefix_caching = engine.state_prefix_caching if caching is None else caching
        self.in_flight = engine.steps_in_flight * serving.max_batched_tokens
        self.block_tokens = self._hybrid_block() if self._is_hybrid() else self._kernel_block()

    def only_packed(self) -> bool:
        """True if the model's latents can only be kept in a packed layout on this device."""
        sparse = self.shape.latent is not None and self.shape.indexed
        return self.shape.packed or (sparse and self.device.nvidia and self.device.major == 12)

    def pages(self) -> Iterator[tuple[Page, int]]:
        """Pages of all layers, with how many layers have each; a draft layer's last."""
        draft: Page | None = None
        for group in self.model.layers:
            for cache in group.caches:
                page = self._page(cache)
                if page is not None:
                    yield page, group.count
                    draft = page if page.growth == "full" else draft
        if self.serving.draft_tokens and draft is not None:
            yield draft, 1

    def notes(self, groups: tuple[Group, ...]) -> Iterator[str]:
        """What a reader should know."""
        widest = max(group.page_bytes for group in groups)
        spare = sum(widest - group.page_bytes for group in groups)
        if spare and not self.shape.packed:
            yield (
                f"{len(groups)} cache groups share one pool; smaller groups are padded to the widest, "
                f"which wastes {spare / (widest * len(groups)):.1%} of every set of blocks"
            )
        if any(page.growth == "sliding" for group in groups for page, _ in group.pages):
            yield (
                f"every window reserves for {self.in_flight:,} tokens in flight "
                f"({self.engine.steps_in_flight} steps of {self.serving.max_batched_tokens:,})"
            )
        if self.serving.draft_tokens:
            yield "one more layer of full attention is charged for drafting"
        if not self.device.hybrid:
            yield "no hybrid cache manager on this device: windows are charged like full attention"

    def _page(self, cache: Cache) -> Page | None:
        match cache:
            case FullAttention():
                return self._attention(cache)
            case SlidingWindow():
                page = self._attention(cache)
                return replace(page, growth="sliding", window=cache.window - 1 + self.in_flight)
            case ChunkedAttention():
                page = self._attention(cache)
                return replace(page, growth="chunked", window=cache.chunk + self.in_flight)
            case CrossAttention():
                page = self._attention(cache)
                blocks = -(-cache.encoder_tokens // self.block_tokens)
                return replace(page, growth="cross", fixed_blocks=blocks)
            case Latent():
                return self._latent(cache)
            case Indexer():
                return self._indexer(cache)
            case Ring():
                return self._ring(cache)
            case RecurrentState():
                return self._state(cache)
            case Shared():
                return None

    def _attention(self, cache: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention) -> Page:
        self._require_storable(cache.kind)
        heads = heads_per_rank(cache.kv_heads, self.tensor_parallel)
        return Page(
            growth="full",
            kind=cache.kind,
            layout=(heads, cache.key_dim, cache.value_dim),
            block_tokens=self.block_tokens,
            content_bytes=self.block_tokens * heads * self._head_bytes(cache.key_dim, cache.value_dim),
        )

    def _head_bytes(self, key_dim: int, value_dim: int) -> int:
        return vector_bytes(key_dim, self.kv_format) + vector_bytes(value_dim, self.kv_format)

    def _latent(self, cache: Latent) -> Page:
        self._require_storable("latent")
        if self.shape.packed:
            tokens = 64 if cache.window else self.block_tokens
            page = self._packed("latent", ("row", cache.stride), tokens, tokens // cache.stride * _PACKED_ROW)
            return page if cache.window is None else self._windowed(page, cache.window)
        page = Page(
            growth="full",
            kind="latent",
            layout=("latent", cache.latent_dim, cache.rope_dim),
            block_tokens=self.block_tokens,
            content_bytes=self.block_tokens * latent_bytes(cache, self.kv_format),
            latent=True,
        )
        if cache.window is None:
            return page
        return self._windowed(page, cache.window)

    def _indexer(self, cache: Indexer) -> Page:
        if self.shape.packed:
            states = self.block_tokens // cache.stride
            return self._packed(
                "indexer", ("index", cache.stride), self.block_tokens, states * index_bytes(cache)
            )
        return Page(
            growth="full",
            kind="indexer",
            layout=("index", cache.index_dim),
            block_tokens=self.block_tokens,
            content_bytes=self.block_tokens // cache.stride * index_bytes(cache),
            latent=True,
        )

    def _ring(self, cache: Ring) -> Page:
        # The short window (ratio 4) is kept in pages of 4 tokens, the long one (ratio 128) of 8.
        tokens = 4 if cache.window <= 8 else 8
        content = tokens * cache.elements_per_token * _FLOAT32_BYTES
        page = self._packed("ring", ("ring", cache.elements_per_token), tokens, content)
        return self._windowed(page, cache.window)

    @staticmethod
    def _packed(kind: Kind, layout: tuple[int | str, ...], tokens: int, content: int) -> Page:
        """A page of DeepSeek-V4, placed at multiples of 576 bytes."""
        padded = -(-content // _PACKED_ALIGNMENT) * _PACKED_ALIGNMENT
        return Page(
            growth="full",
            kind=kind,
            layout=layout,
            block_tokens=tokens,
            content_bytes=content,
            padded_bytes=padded,
            latent=True,
        )

    def _windowed(self, page: Page, window: int) -> Page:
        return replace(page, growth="sliding", window=window - 1 + self.in_flight)

    def _state(self, cache: RecurrentState) -> Page:
        size = self._state_bytes(cache)
        padded = None
        if self._is_hybrid():
            padded = self.block_tokens * self._attention_bytes_per_token()
        slots = 1 + self.serving.draft_tokens
        if self.prefix_caching:
            slots += 1 + int(self._checkpoint_tokens() is not None)
        return Page(
            growth="state",
            kind="state",
            layout=(cache.mechanism, *(dim for t in cache.tensors for dim in (t.channels, t.columns))),
            block_tokens=self.block_tokens,
            content_bytes=size,
            padded_bytes=None if padded == size else padded,
            fixed_blocks=slots,
            sharded=False,
        )

    def _state_bytes(self, cache: RecurrentState) -> int:
        """Bytes of one state; speculative tokens lengthen the convolution's window."""
        size = 0
        for tensor in cache.tensors:
            further = self.serving.draft_tokens if tensor.name == "conv" else 0
            lengthened = tensor.model_copy(update={"columns": tensor.columns + further})
            size += state_tensor_bytes(lengthened, self.tensor_parallel)
        return size

    def _is_hybrid(self) -> bool:
        return bool(self.shape.states) and (self.shape.latent is not None or self.shape.widest_head > 0)

    def _kernel_block(self) -> int:
        """The default block size, raised to what the chosen kernels accept."""
        if self.serving.block_tokens is not None:
            return self.serving.block_tokens
        default = self.engine.block_tokens
        if self.shape.packed:
            return 256
        if self.shape.paired:
            return 128
        if self.shape.latent is not None:
            return max(default, self._latent_kernel_block(self.shape.latent))
        if self.fp8 and self.device.major == 9 and self.shape.widest_head == _WIDE_HEAD:
            return max(default, 64)
        return default

    def _latent_kernel_block(self, latent: Latent) -> int:
        if not self.device.nvidia:
            return 1
        if self.shape.indexed:
            return 64
        if latent.latent_dim + latent.rope_dim not in _MLA_ROWS:
            return 16
        if self.device.major == 10:
            return 32
        return 64 if self.device.major == 9 and self.fp8 else 16

    def _checkpoint_tokens(self) -> int | None:
        """Tokens to which a state inside a prefill must be aligned; None if none can be kept.

        Every kind of state in the model must be able to.
        """
        alignment = 1
        for cache in self.shape.states:
            own = self._own_checkpoint_tokens(cache)
            if own is None:
                return None
            alignment = math.lcm(alignment, own)
        return alignment

    def _own_checkpoint_tokens(self, cache: RecurrentState) -> int | None:
        fast = self.device.nvidia and self.device.major in (9, 10, 12)
        if not self.engine.state_checkpoints or self.model.architecture in _UNCHECKPOINTED:
            return None
        if cache.mechanism == "mamba2":
            return 1
        if cache.mechanism == "gated_deltanet" and fast:
            return 64
        if cache.mechanism == "kda" and fast:
            return 16
        return None

    def _hybrid_block(self) -> int:
        """The block whose attention page holds a whole state: states and attention share the pool."""
        kernel = self._kernel_block()
        align = max(kernel, 128) if self.shape.latent is not None else kernel
        if self.prefix_caching:
            align = math.lcm(align, self._checkpoint_tokens() or 1)
        state = max(self._state_bytes(cache) for cache in self.shape.states)
        needed = align * -(-state // (align * self._attention_bytes_per_token()))
        return max(kernel, needed)

    def _attention_bytes_per_token(self) -> int:
        if self.shape.latent is not None:
            return latent_bytes(self.shape.latent, self.kv_format)
        for group in self.model.layers:
            for cache in group.caches:
                if isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
                    heads = heads_per_rank(cache.kv_heads, self.tensor_parallel)
                    return heads * self._head_bytes(cache.key_dim, cache.value_dim)
        raise AssertionError("a hybrid has attention")

    def _require_storable(self, kind: str) -> None:
        if self.kv_format is not None and kind not in self.kv_format.stores:
            raise InputError(
                f"KV format {self.kv_format.name!r} cannot store the {kind} cache of {self.model.id}; "
                f"it stores: {', '.join(self.kv_format.stores)}"
            )
