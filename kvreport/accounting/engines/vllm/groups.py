"""Pages and groups: how vLLM packs layers of different caches into one pool of equal blocks.

A *page* is one block of one layer. Layers that are addressed together form a *group*; all groups
draw from one pool, so a block id costs as much as the widest group needs, whoever takes it. The
rules are those of vLLM 0.33.0 (``v1/core/kv_cache_planning.py``, ``v1/kv_cache_interface.py``),
restated; they are applied in the engine's order, because the first that fits decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvreport.accounting.profile import UNBOUNDED, Kind, Term

Growth = Literal["full", "sliding", "chunked", "state", "cross"]

_UNIFY_RATIO = 1.5
"""Above this ratio of layer counts the smallest kind sets the group size, below it the largest."""


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """One block of one layer, and what a request takes of such blocks."""

    growth: Growth  # How blocks grow with the context; layers that grow alike can share a group.
    kind: Kind  # Cache kind, for the explanation.
    # What must agree besides sizes for two pages to be the same (heads, widths, type).
    layout: tuple[int | str, ...]
    block_tokens: int  # Tokens per page.
    content_bytes: int  # Bytes that the page needs.
    padded_bytes: int | None = None  # Bytes that it takes, where it is padded; None where it is not.
    window: int | None = None  # Tokens that a window or chunk holds, those in flight included.
    fixed_blocks: int = 0  # Blocks of a state or of encoder tokens; constant per request.
    stride_bytes: int = 1  # Multiple that a layer's pages are placed at.
    sharded: bool = True  # True if context parallelism splits its tokens over ranks.
    latent: bool = False  # True if it is addressed by rows and cannot be padded to any size.
    replicated: bool = False  # True for states that every rank keeps whole: they are a kind of their own.

    @property
    def page_bytes(self) -> int:
        """Bytes of the page as it lies in the pool."""
        return self.content_bytes if self.padded_bytes is None else self.padded_bytes

    @property
    def placed_bytes(self) -> int:
        """Bytes from one page of a layer to its next where layers lie one after the other."""
        return -(-self.page_bytes // self.stride_bytes) * self.stride_bytes

    def scaled(self, ratio: int) -> CacheSpec:
        """The same page with ``ratio`` times the tokens."""
        return replace(self, block_tokens=self.block_tokens * ratio, content_bytes=self.content_bytes * ratio)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers with one block table."""

    # The distinct pages of its layers, with how many layers have each.
    pages: tuple[tuple[CacheSpec, int], ...]
    # Its place among the groups that layers of its pages were dealt to in turn, and how many those are.
    dealt: tuple[int, int] = (0, 1)

    @property
    def first(self) -> CacheSpec:
        """The page that decides how many blocks a request takes; all grow alike."""
        return self.pages[0][0]

    @property
    def layers(self) -> int:
        """Layers in the group."""
        return sum(count for _, count in self.pages)

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of all its layers."""
        return sum(page.page_bytes * count for page, count in self.pages)

    @property
    def placed_bytes(self) -> int:
        """Bytes of one block of all its layers, each placed at its stride."""
        return sum(page.placed_bytes * count for page, count in self.pages)


def terms_of(group: Group, block_bytes: int, context_parallel: int = 1) -> Iterable[Term]:
    """What one request takes of a group, split by cache kind; whole blocks in sum.

    Every block costs ``block_bytes`` whatever the group's own layers need; what they do not need
    is charged to the group's first kind.
    """
    shares = Counter[Kind]()
    for page, count in group.pages:
        shares[page.kind] += page.page_bytes * count
    shares[group.first.kind] += block_bytes - sum(shares.values())
    page = group.first
    for kind, rate in shares.items():
        if page.growth in ("state", "cross"):
            yield Term(kind, constant_bytes=page.fixed_blocks * rate)
        elif page.growth == "full":
            step = page.block_tokens * (context_parallel if page.sharded else 1)
            yield Term(kind, rate, step_tokens=step)
        else:
            # A window may begin inside a block, so it needs one block more than its tokens fill.
            extra = rate if page.growth == "sliding" else 0
            yield Term(
                kind,
                rate,
                step_tokens=page.block_tokens,
                cap_tokens=UNBOUNDED if page.window is None else page.window,
                constant_bytes=extra,
            )


def group_layers(layers: Sequence[tuple[CacheSpec, int]], *, interleaved: bool = False) -> tuple[Group, ...]:
    """Put layers into groups.

    ``layers``: pages in layer order of first appearance, with the number of layers of each.
    ``interleaved``: True if all layers of a block lie side by side in memory (block outermost); then
    pages of different size can share a block without being made equal.

    Raises:
        ValueError: If pages cannot be made equal (no engine version serves such a model).
    """
    merged = _merge_equal(layers)
    if not merged:
        return ()
    if len(merged) == 1 or _alike([page for page, _ in merged]):
        return (Group(tuple(merged)),)
    if interleaved and len({page.page_bytes for page, _ in merged}) > 1:
        return _packed_groups(merged)
    return _equal_groups(_merge_equal(_equal_pages(merged)))


def stage_groups(
    groups: Iterable[Group],
    pages: Sequence[CacheSpec],
    layers: Sequence[Sequence[int]],
    stage: range,
) -> tuple[Group, ...]:
    """What a pipeline stage has of the whole model's groups.

    The engine groups the layers of all stages and gives each worker its layers of every group
    (``_project_kv_cache_groups_to_worker``): a request takes blocks of all groups on every stage, also of those
    that have no layer there.

    ``pages``: the pages that they were made of, as :func:`group_layers` took them. ``layers``: the layers
    that have each.
    """
    largest = max(page.page_bytes for page in pages)
    final = {page for group in groups for page, _ in group.pages}
    where: dict[CacheSpec, list[int]] = {}
    for page, indices in zip(pages, layers, strict=True):
        where.setdefault(page if page in final else _enlarged(page, largest), []).extend(indices)
    return tuple(
        replace(
            group,
            pages=tuple(
                (page, sum(index in stage for index in sorted(where[page])[group.dealt[0] :: group.dealt[1]]))
                for page, _ in group.pages
            ),
        )
        for group in groups
    )


def block_bytes(groups: Iterable[Group], *, interleaved: bool = False) -> int:
    """Bytes that one block id costs: the widest group's."""
    groups = tuple(groups)
    if not interleaved:
        return max(group.placed_bytes for group in groups)
    widest = max(group.page_bytes for group in groups)
    stride = math.lcm(*(page.stride_bytes for group in groups for page, _ in group.pages))
    return -(-widest // stride) * stride


def tuple_block_bytes(groups: Iterable[Group]) -> int:
    """Bytes that one block id costs where packed layers lie in tuples (vLLM until 0.23).

    A tuple has one page of every size that the full-attention group has; every group is charged for
    as many tuples as the longest run of equal pages in any group
    (vLLM 0.22.0, ``v1/core/kv_cache_utils.py::_get_kv_cache_config_deepseek_v4``).
    """
    groups = tuple(groups)
    sizes = {page.page_bytes for group in groups for page, _ in group.pages if page.growth == "full"}
    tuples = max(max(_layers_by_size(group.pages).values()) for group in groups)
    return sum(sizes) * tuples


def padded_in_tuples(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Groups whose windows' pages have the size of a page of the full-attention group, the next larger one.

    vLLM 0.22.0 and 0.23.0, ``v1/core/kv_cache_utils.py::_get_kv_cache_groups_uniform_groups``.
    """
    groups = tuple(groups)
    sizes = sorted({page.page_bytes for group in groups for page, _ in group.pages if page.growth == "full"})

    def padded(page: CacheSpec) -> CacheSpec:
        size = next((one for one in sizes if one >= page.page_bytes), page.page_bytes)
        return page if size == page.page_bytes else replace(page, padded_bytes=size)

    return tuple(
        replace(group, pages=tuple((padded(page), count) for page, count in group.pages)) for group in groups
    )


def bucket_block_bytes(groups: Iterable[Group]) -> int:
    """Bytes that one block id costs where layers of different groups share a tensor by the size of their pages.

    vLLM 0.23.0, ``v1/core/kv_cache_utils.py::_bucket_layers_by_page_size``.
    """
    most: dict[int, int] = {}
    for group in groups:
        for size, layers in _layers_by_size(group.pages).items():
            most[size] = max(most.get(size, 0), layers)
    return sum(size * layers for size, layers in most.items())


def promote_windows(layers: Sequence[tuple[CacheSpec, int]]) -> list[tuple[CacheSpec, int]]:
    """Charge windows and chunks like full attention, as without the hybrid cache manager.

    Nothing changes where no layer has full attention.
    """
    full_blocks = {page.block_tokens for page, _ in layers if page.growth == "full"}
    if not full_blocks:
        return list(layers)
    promoted = []
    for page, count in layers:
        if page.growth not in ("sliding", "chunked"):
            promoted.append((page, count))
            continue
        tokens = next(iter(full_blocks)) if len(full_blocks) == 1 else page.block_tokens
        content = page.content_bytes * tokens // page.block_tokens
        padded = None if page.padded_bytes is None else max(page.padded_bytes, content)
        full = replace(
            page,
            growth="full",
            window=None,
            block_tokens=tokens,
            content_bytes=content,
            padded_bytes=padded,
        )
        promoted.append((full, count))
    return promoted


def _merge_equal(layers: Iterable[tuple[CacheSpec, int]]) -> list[tuple[CacheSpec, int]]:
    counts: dict[CacheSpec, int] = {}
    for page, count in layers:
        if count:
            counts[page] = counts.get(page, 0) + count
    return list(counts.items())


def _alike(pages: Sequence[CacheSpec]) -> bool:
    """True if layers need the same blocks for every request: same growth, tokens and window."""
    first = pages[0]
    if first.growth == "state":
        return (
            len({(page.growth, page.fixed_blocks, page.page_bytes, page.replicated) for page in pages}) == 1
        )
    # A windowed latent and a windowed attention are different kinds to the engine.
    return (
        len(
            {
                (
                    page.growth,
                    page.block_tokens,
                    page.window,
                    page.sharded,
                    page.latent and page.growth != "full",
                )
                for page in pages
            }
        )
        == 1
    )


def _equal_pages(layers: Sequence[tuple[CacheSpec, int]]) -> list[tuple[CacheSpec, int]]:
    """Make all pages the size of the largest: more tokens where that divides, padding elsewhere."""
    largest = max(page.page_bytes for page, _ in layers)
    return [(_enlarged(page, largest), count) for page, count in layers]


def _enlarged(page: CacheSpec, size: int) -> CacheSpec:
    if page.page_bytes == size:
        return page
    if page.growth != "state" and size % page.page_bytes == 0:
        return page.scaled(size // page.page_bytes)
    if page.latent:
        raise ValueError(f"a {page.kind} page of {page.page_bytes} bytes cannot be padded to {size}")
    return replace(page, padded_bytes=size)


def _equal_groups(layers: Sequence[tuple[CacheSpec, int]]) -> tuple[Group, ...]:
    """Chunk layers of each kind into groups of one size; an unfilled group costs the same."""
    counts = [count for _, count in layers]
    size = max(counts) if max(counts) < _UNIFY_RATIO * min(counts) else min(counts)
    groups = []
    for page, count in layers:
        chunks = -(-count // size)
        groups += [Group(((page, len(range(i, count, chunks))),), (i, chunks)) for i in range(chunks)]
    return tuple(groups)


def _packed_groups(layers: Sequence[tuple[CacheSpec, int]]) -> tuple[Group, ...]:
    """Group layers whose blocks lie side by side, so that unequal pages need no padding.

    Layers that need the same blocks make a bucket. A bucket with as many layers of each page size
    repeats a pattern; such buckets are split into groups of about equally many repeats. Buckets
    of states are split until they no longer widen the block that the others need.
    """
    buckets: list[list[tuple[CacheSpec, int]]] = []
    for page, count in layers:
        for bucket in buckets:
            if _alike([*(known for known, _ in bucket), page]):
                bucket.append((page, count))
                break
        else:
            buckets.append([(page, count)])
    sizes = [_layers_by_size(bucket) for bucket in buckets]
    balanced = [len(set(size.values())) == 1 for size in sizes]
    floor = max(
        (max(size.values()) for size, even in zip(sizes, balanced, strict=True) if even and len(size) > 1),
        default=0,
    )
    repeats = (
        _least_padding(
            [max(size.values()) for size, even in zip(sizes, balanced, strict=True) if even], floor
        )
        if floor
        else None
    )

    def split(size: dict[int, int]) -> int:
        even = len(set(size.values())) == 1
        return -(-max(size.values()) // repeats) if even and repeats else 1

    def is_state(bucket: list[tuple[CacheSpec, int]]) -> bool:
        growth = bucket[0][0].growth
        return growth == "state" or (repeats is None and growth == "sliding")

    anchor = max(
        sum(
            -(-count // (sum(size.values()) if is_state(bucket) else split(size))) * page_bytes
            for page_bytes, count in size.items()
        )
        for bucket, size in zip(buckets, sizes, strict=True)
    )
    groups = []
    for bucket, size in zip(buckets, sizes, strict=True):
        parts = split(size)
        if is_state(bucket):
            fitting = max(anchor // bucket[0][0].page_bytes, 1)
            parts = max(parts, -(-sum(size.values()) // fitting))
        groups += [
            Group(
                tuple((page, len(range(i, count, parts))) for page, count in bucket if i < count), (i, parts)
            )
            for i in range(parts)
        ]
    return tuple(groups)


def _layers_by_size(bucket: Iterable[tuple[CacheSpec, int]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for page, count in bucket:
        sizes[page.page_bytes] = sizes.get(page.page_bytes, 0) + count
    return sizes


def _least_padding(counts: Sequence[int], floor: int) -> int:
    """The repeats per group, at least ``floor``, that pad least; the larger of equals."""
    largest = max(counts)
    if floor > largest:
        return floor
    return min(
        range(max(1, floor), largest + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
    )
