"""vLLM's block plan: from a model's caches to pages, by the rules of vLLM 0.33.0.

What each layer asks for (``get_kv_cache_spec`` of the attention and state layers) and how states
set the block of a hybrid (``_align_hybrid_block_size``). Which kernels run, and what they force, is in
:mod:`kvreport.accounting.engines.vllm.kernels`; grouping follows in :mod:`kvreport.accounting.engines.vllm.groups`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.vllm.groups import (
    CacheSpec,
    Group,
    block_bytes,
    bucket_block_bytes,
    group_layers,
    padded_in_tuples,
    promote_windows,
    stage_groups,
    terms_of,
    tuple_block_bytes,
)
from kvreport.accounting.engines.vllm.kernels import (
    FP4_ROW,
    INTERLEAVED_ROW,
    KERNEL_TOKENS,
    Device,
    Kernels,
    Traits,
    idle_indexers,
    stored_format,
    takes_a_choice,
    uncompressed,
)
from kvreport.accounting.engines.vllm.profiling import Shape
from kvreport.accounting.engines.vllm.releases import state_slots, steps_in_flight
from kvreport.accounting.engines.vllm.reserve import runs_second
from kvreport.accounting.kv_cache import (
    SERVED_BYTES,
    heads_per_rank,
    index_bytes,
    latent_bytes,
    pair_bytes,
    state_tensor_bytes,
)
from kvreport.accounting.plan import BlockPlan, CacheGroup, Serving
from kvreport.accounting.profile import CacheProfile, Kind
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
from kvreport.catalog.release import release_of
from kvreport.errors import InputError

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

_PACKED_ROW: Final = 584
_PACKED_ALIGNMENT: Final = 576
_INTERLEAVED_ALIGNMENT: Final = 512
_FLOAT32_BYTES: Final = 4
_POSITION_BYTES: Final = 3 * 8
"""A token's place on three axes, in 64 bits (``qsa_cache.py``)."""


def plan(
    model: Model,
    engine: Engine,
    case: Case,
    *,
    stage: range | None = None,
) -> BlockPlan:
    """Plan the blocks of one model on one rank.

    ``stage``: layers of the pipeline stage that the rank belongs to; None for all.

    Raises:
        InputError: If the cache format or the parallel layout is impossible.
    """
    serving, kv_format, layout = case.serving, case.kv_format, case.layout
    vendor = {} if case.accelerator is None else {"vendor": case.accelerator.vendor.upper()}
    second = runs_second(model, Shape.of(model), engine, **vendor)
    layers = _Layers(
        model=model,
        engine=engine,
        serving=serving,
        kv_format=_plain(stored_format(model, engine, kv_format, case.accelerator)),
        tensor_parallel=layout.tensor,
        device=Device.of(case.accelerator),
        images=case.images,
        steps=steps_in_flight(engine, stages=layout.pipeline, second=second),
    )
    if _is_plain(kv_format) and layers.only_packed():
        raise InputError(
            f"KV format {kv_format.name if kv_format else 'auto'!r} cannot store the cache of {model.id}: "
            f"{engine.label} has only packed FP8 kernels for it on this device; allowed: auto, fp8"
        )
    if needed := layers.kernels.refused_block(serving.block_tokens):
        raise InputError(
            f"block size: found {serving.block_tokens} for {model.id}; allowed: multiples of {needed}, which the "
            f"kernels of {engine.label} for it read"
        )
    laid = list(layers.pages())
    pages = [(page, len(indices)) for page, indices in laid]
    if not layers.device.hybrid:
        pages = promote_windows(pages)
    interleaved = layers.shape.packed or layers.shape.pooled or layers.shape.grouped
    try:
        groups = group_layers(pages, interleaved=interleaved)
    except ValueError as error:
        raise InputError(f"{model.id}: {engine.label} cannot lay out its cache: {error}") from error
    whole = groups
    if stage is not None and groups:
        indices = [where for _, where in laid]
        groups = stage_groups(groups, [page for page, _ in pages], indices, stage)
        if not any(group.layers for group in groups):
            raise InputError(
                f"{model.id}: pipeline parallel: found a stage of layers {stage.start} to {stage.stop - 1} without a "
                f"cache, and the planner of {engine.label} divides by its size; allowed: fewer stages"
            )
    if not groups:
        return BlockPlan(block_bytes=1, profile=CacheProfile(()))
    packed = engine.packed_blocks if interleaved and len(groups) > 1 else "widest"
    printed, first_page = None, 0
    if packed == "widest":
        size = block_bytes(groups, interleaved=interleaved)
    else:
        groups = padded_in_tuples(groups)
        size = tuple_block_bytes(groups) if packed == "tuples" else bucket_block_bytes(groups)
        # A group without a layer on this stage keeps the pages of the whole model (`_project_kv_cache_groups_to_worker`).
        counted = [
            group if group.layers else all_layers
            for group, all_layers in zip(groups, padded_in_tuples(whole), strict=True)
        ]
        growing = (group.page_bytes for group in counted if group.first.growth == "full")
        first_page = next(growing, counted[0].page_bytes)
        by_page = (
            term for group in counted for term in terms_of(group, group.page_bytes, layout.decode_context)
        )
        printed = CacheProfile.of(by_page)
    terms = [term for group in groups for term in terms_of(group, size, layout.decode_context)]
    return BlockPlan(
        block_bytes=size,
        profile=CacheProfile.of(terms),
        kept_blocks=engine.kept_blocks,
        groups=tuple(_described(group, layers.in_flight) for group in groups),
        block_tokens=layers.block_tokens,
        context_parallel=layout.decode_context,
        notes=tuple(layers.notes(groups)),
        printed=printed,
        first_page_bytes=first_page,
        one_copy=_is_replicated(groups, engine),
        steps_in_flight=layers.steps,
    )


def _described(group: Group, in_flight: int) -> CacheGroup:
    return CacheGroup(
        kind=group.first.kind,
        layers=group.layers,
        block_tokens=group.first.block_tokens,
        page_bytes=group.page_bytes,
        hit_blocks=_hit_blocks(group.first, in_flight),
    )


def _hit_blocks(page: CacheSpec, in_flight: int) -> int | None:
    """Blocks that a prefix hit needs (``v1/core/single_type_kv_cache_manager.py::_contiguous_blocks_for_hit``); None for all."""
    if page.growth == "sliding" and page.window is not None:
        return -(-(page.window - in_flight) // page.block_tokens)
    if page.growth == "cross":
        return page.fixed_blocks
    return 1 if page.growth == "state" else None


def _is_replicated(groups: tuple[Group, ...], engine: Engine) -> bool:
    """True for caches of latents alone: of one kind of page in older releases."""
    pages = [page for group in groups for page, _ in group.pages]
    return all(page.latent for page in pages) and (
        len(pages) == 1 or release_of(engine).has("any_latents_offloaded_once")
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
        steps: int,
        images: bool = True,
    ) -> None:
        self.model = model
        self.engine = engine
        self.serving = serving
        self.tensor_parallel = tensor_parallel
        self.device = device
        self.shape = Traits.of(model, engine)
        if not images or (kv_format is not None and kv_format.scale_bytes):
            # Text alone, and scales for each token, are left to the kernels of other models.
            self.shape = replace(self.shape, masked=False)
        self.kv_format = kv_format
        self.fp8 = kv_format is not None and kv_format.bits == 8
        if engine.lists("cache_type_ignored", model.architecture):
            self.kv_format, self.fp8 = None, False
        caching = serving.prefix_caching
        # Models of states alone never cache by default (config/model.py::is_prefix_caching_supported).
        by_default = engine.state_prefix_caching and self._has_attention()
        self.prefix_caching = by_default if caching is None else caching
        self.steps = steps
        self.in_flight = steps * serving.max_batched_tokens
        self.kernels = Kernels(engine, device, self.shape, model.architecture, self.fp8)
        self.block_tokens = (
            self._hybrid_block()
            if self._is_hybrid()
            else self.kernels.block_tokens(self.serving.block_tokens)
        )
        self.edges = self._edges()
        self.idle, _ = idle_indexers(model, engine)
        if self.edges:
            self.block_tokens = self._edge_block()

    def only_packed(self) -> bool:
        """True if the model's latents can only be kept in a packed layout on this device."""
        sparse = self.shape.latent is not None and self.shape.indexed
        return self.shape.packed or (sparse and self.device.nvidia and self.device.major == 12)

    def pages(self) -> Iterator[tuple[CacheSpec, tuple[int, ...]]]:
        """Pages of all layers, with the layers that have each; a draft layer's last."""
        draft: tuple[CacheSpec, ...] = ()
        for group in self.model.layers:
            own: list[CacheSpec] = []
            idle = (self.idle,) if self.idle is not None and takes_a_choice(group) else ()
            for cache in (*group.caches, *idle):
                page = self._page(cache)
                if page is not None and not self.edges:
                    yield page, group.indices
                elif page is not None:
                    inner = tuple(index for index in group.indices if index not in self.edges)
                    if len(inner) < len(group.indices) and isinstance(cache, FullAttention):
                        yield (
                            self._attention(cache, plain=True),
                            tuple(index for index in group.indices if index in self.edges),
                        )
                    yield page, inner if isinstance(cache, FullAttention) else group.indices
                if page is not None and page.growth == "full":
                    own.append(page)
                if isinstance(cache, Indexer) and (self.shape.pooled or self.shape.grouped):
                    if cache.precision == "float8" and own:
                        own.append(self._open_region(cache, own[0]))
                    else:
                        own.append(self._open_keys(cache) if self.shape.pooled else self._open_group(cache))
                    yield own[-1], group.indices
            draft = tuple(own) or draft
        if self._adds_draft_layer():
            yield from ((page, (self.model.layer_count,)) for page in draft)

    def notes(self, groups: tuple[Group, ...]) -> Iterator[str]:
        """What a reader should know."""
        widest = max(group.page_bytes for group in groups)
        spare = sum(widest - group.page_bytes for group in groups)
        if spare and not (self.shape.packed or self.shape.pooled or self.shape.grouped):
            yield (
                f"{len(groups)} cache groups share one pool; smaller groups are padded to the widest, "
                f"which wastes {spare / (widest * len(groups)):.1%} of every set of blocks"
            )
        if any(page.growth == "sliding" for group in groups for page, _ in group.pages):
            yield (
                f"each sliding-window layer also reserves space for {self.in_flight:,} tokens in flight "
                f"({self.steps} steps of {self.serving.max_batched_tokens:,})"
            )
        if self._in_fp4():
            yield (
                f"compressed latents are NVFP4 on this GPU, {FP4_ROW} B each: the record of the kernel that is its "
                f"default; windows stay in FP8, {INTERLEAVED_ROW} B a token"
            )
        if self._adds_draft_layer():
            yield "drafting takes one more layer of full attention"
        if self.edges:
            kept = ", ".join(str(index) for index in sorted(self.edges))
            yield f"layers {kept} stay in 16 bits, as the engine leaves both ends out of packed formats"
        if not self.device.hybrid:
            yield "no hybrid cache manager on this device: windows take as much memory as full attention"

    def _adds_draft_layer(self) -> bool:
        """True where a draft of unknown shape is served: one more layer like the last is charged."""
        drafted = bool(self.serving.draft_tokens) and not self.serving.draft_in_model
        return drafted and not self.engine.lists("drafts_share_cache", self.model.architecture)

    def _page(self, cache: Cache) -> CacheSpec | None:
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

    def _edges(self) -> frozenset[int]:
        """Layers at both ends that a packed format leaves in 16 bits; none of a hybrid's, or without keys and values.

        ``turboquant/config.py::get_boundary_skip_layers``.
        """
        packed = self.kv_format if not self.shape.states and self._has_pages() else None
        kept = 0 if packed is None else packed.edge_layers
        count = self.model.layer_count
        kept = min(kept, count // 2)
        return frozenset((*range(kept), *range(count - kept, count)))

    def _edge_block(self) -> int:
        """The block whose page of packed layers covers 16 tokens of a layer that is left in 16 bits.

        ``platforms/interface.py::_align_heterogeneous_kv_block_size``.
        """
        packed = self._attention_bytes_per_token()
        kept, self.kv_format = self.kv_format, None
        plain = self._attention_bytes_per_token()
        self.kv_format = kept
        align = max(KERNEL_TOKENS, self.block_tokens)
        return max(self.block_tokens, align * -(-plain * KERNEL_TOKENS // (align * packed)))

    def _attention(
        self, cache: FullAttention | SlidingWindow | ChunkedAttention | CrossAttention, *, plain: bool = False
    ) -> CacheSpec:
        self._require_storable(cache.kind)
        heads = heads_per_rank(cache.kv_heads, self.tensor_parallel)
        head = pair_bytes(cache.key_dim, cache.value_dim, None if plain else self.kv_format)
        return CacheSpec(
            growth="full",
            kind=cache.kind,
            layout=(heads, cache.key_dim, cache.value_dim, *(("plain",) if plain else ())),
            block_tokens=self.block_tokens,
            content_bytes=self.block_tokens * heads * head,
        )

    def _latent(self, cache: Latent) -> CacheSpec:
        if self.engine.lists("latents_expanded", self.model.architecture):
            return self._attention(uncompressed(self.model))
        self._require_storable("latent")
        if self.shape.packed:
            windowed = 32 if self.shape.short else 64
            tokens = windowed if cache.window else self.block_tokens
            row = INTERLEAVED_ROW if self._interleaved() else _PACKED_ROW
            if cache.window is None and self._in_fp4():
                row = FP4_ROW
            page = self._packed("latent", ("row", cache.stride), tokens, tokens // cache.stride * row)
            if cache.window is None:
                return page
            whole_rows = self._interleaved() and release_of(self.engine).has("blocks_of_whole_rows")
            return self._windowed(replace(page, stride_bytes=row) if whole_rows else page, cache.window)
        page = CacheSpec(
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

    def _indexer(self, cache: Indexer) -> CacheSpec:
        if self.shape.packed:
            states = self.block_tokens // cache.stride
            return self._packed(
                "indexer", ("index", cache.stride), self.block_tokens, states * index_bytes(cache)
            )
        return CacheSpec(
            growth="full",
            kind="indexer",
            layout=("index", cache.index_dim),
            block_tokens=self.block_tokens,
            content_bytes=self.block_tokens // cache.stride * index_bytes(cache),
            latent=True,
        )

    def _open_keys(self, cache: Indexer) -> CacheSpec:
        """The raw keys of one request that are not pooled yet, with their positions on three axes.

        ``models/qwen4_exp/common/qsa_cache.py::QSAKeyStateCache`` (0.29.0 to 0.33.0).
        """
        rows = cache.stride * -(-(cache.stride + self.serving.draft_tokens) // cache.stride)
        return self._open("open", cache.index_dim, rows * (cache.index_dim * SERVED_BYTES + _POSITION_BYTES))

    def _open_group(self, cache: Indexer) -> CacheSpec:
        """The raw keys and gates of one request's open group: one block for as long as it runs.

        ``models/glm5next/nvidia/attention.py::Glm5NextTailCache`` (0.30.0), ``common`` since 0.32.0.
        """
        groups = -(-(cache.stride + self.serving.draft_tokens) // cache.stride)
        rows = cache.stride * (1 << (groups - 1).bit_length())
        return self._open("open group", cache.index_dim, rows * 2 * cache.index_dim * SERVED_BYTES)

    def _open_region(self, cache: Indexer, attention: CacheSpec) -> CacheSpec:
        """The raw keys and gates of one request's open region, in one page as large as those of keys and values.

        ``models/step5/nvidia/csa_tail_ring.py::Step5CSATailRing`` (0.33.0).
        """
        return self._open("open region", cache.index_dim, attention.content_bytes)

    def _open(self, name: str, width: int, content: int) -> CacheSpec:
        """One block for as long as a request runs."""
        return CacheSpec(
            growth="state",
            kind="ring",
            layout=(name, width),
            block_tokens=self.block_tokens,
            content_bytes=content,
            fixed_blocks=1,
        )

    def _in_fp4(self) -> bool:
        return self.shape.short and self.kernels.compressed_in_fp4()

    def _interleaved(self) -> bool:
        return self.shape.short and self.kernels.interleaved_records()

    def _ring(self, cache: Ring) -> CacheSpec:
        if self.shape.short:
            # Drafts, the bonus token and the row before them, as a power of two (0.30 ``deepseek_v41/compressor.py``).
            rows = max(8, 1 << (self.serving.draft_tokens + 1).bit_length())
            width = cache.elements_per_token
            return self._open("open group", width, rows * width * _FLOAT32_BYTES)
        # The short window (ratio 4) is kept in pages of 4 tokens, the long one (ratio 128) of 8.
        tokens = 4 if cache.window <= 8 else 8
        content = tokens * cache.elements_per_token * _FLOAT32_BYTES
        page = self._packed("ring", ("ring", cache.elements_per_token), tokens, content)
        return self._windowed(page, cache.window)

    def _packed(self, kind: Kind, layout: tuple[int | str, ...], tokens: int, content: int) -> CacheSpec:
        """A page of DeepSeek-V4, placed at multiples of 576 bytes, or of 512 where rows are FP8 throughout."""
        alignment = _INTERLEAVED_ALIGNMENT if self._interleaved() else _PACKED_ALIGNMENT
        padded = -(-content // alignment) * alignment
        return CacheSpec(
            growth="full",
            kind=kind,
            layout=layout,
            block_tokens=tokens,
            content_bytes=content,
            padded_bytes=padded,
            latent=True,
        )

    def _windowed(self, page: CacheSpec, window: int) -> CacheSpec:
        return replace(page, growth="sliding", window=window - 1 + self.in_flight)

    def _state(self, cache: RecurrentState) -> CacheSpec:
        size = self._state_bytes(cache)
        padded = None
        if self._is_hybrid():
            padded = self.block_tokens * self._attention_bytes_per_token()
        slots = self.serving.draft_tokens + state_slots(
            release_of(self.engine),
            caching=self.prefix_caching,
            checkpoint=self.kernels.checkpoint_tokens() is not None,
        )
        return CacheSpec(
            growth="state",
            kind="state",
            layout=(cache.mechanism, *(dim for t in cache.tensors for dim in (t.channels, t.columns))),
            block_tokens=self.block_tokens,
            content_bytes=size,
            padded_bytes=None if padded == size else padded,
            fixed_blocks=slots,
            sharded=False,
            replicated=self.shape.pooled and cache.mechanism == "short_conv",
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
        return bool(self.shape.states) and self._has_attention()

    def _has_pages(self) -> bool:
        """True if some layer has keys and values, or latents, for each token."""
        kinds = FullAttention | SlidingWindow | ChunkedAttention
        caches = self.model.every_cache
        return self.shape.latent is not None or any(isinstance(cache, kinds) for cache in caches)

    def _has_attention(self) -> bool:
        return self.shape.latent is not None or self.shape.widest_head > 0

    def _hybrid_block(self) -> int:
        """The block whose attention page holds a whole state: states and attention share the pool."""
        kernel = self.kernels.block_tokens(self.serving.block_tokens)
        align = kernel
        if self.shape.latent is not None:
            align = max(kernel, release_of(self.engine).count("latent_hybrid_tokens"))
        if self.prefix_caching:
            align = math.lcm(align, self.kernels.checkpoint_tokens() or 1)
        state = max(self._state_bytes(cache) for cache in self.shape.states)
        needed = align * -(-state // (align * self._attention_bytes_per_token()))
        return max(kernel, needed)

    def _attention_bytes_per_token(self) -> int:
        if self.shape.latent is not None:
            return latent_bytes(self.shape.latent, self.kv_format)
        for cache in self.model.every_cache:
            if isinstance(cache, FullAttention | SlidingWindow | ChunkedAttention):
                heads = heads_per_rank(cache.kv_heads, self.tensor_parallel)
                return heads * pair_bytes(cache.key_dim, cache.value_dim, self.kv_format)
        raise AssertionError("a hybrid has attention")

    def _require_storable(self, kind: str) -> None:
        if self.kv_format is not None and kind not in self.kv_format.stores:
            raise InputError(
                f"KV format {self.kv_format.name!r} cannot store the {kind} cache of {self.model.id}; "
                f"it stores: {', '.join(self.kv_format.stores)}"
            )
