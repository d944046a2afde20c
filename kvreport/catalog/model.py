"""One language model: its layers by what they cache, and its weights by what they are.

Facts only; every number that depends on a GPU, a format or an engine is computed from these in
:mod:`kvreport.accounting`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from math import prod
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from kvreport.catalog.base import (
    Contradiction,
    LongText,
    Positive,
    Record,
    Slug,
    Source,
    Text,
    Tokens,
    VersionedRecord,
    YearMonth,
)
from kvreport.catalog.caches import Cache
from kvreport.catalog.consistency import contradictions
from kvreport.errors import shorten
from kvreport.words import format_name

ModelId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}$"),
]

Component = Literal[
    "embedding",
    "output_head",
    "attention",
    "dense_mlp",
    "routed_experts",
    "shared_experts",
    "router",
    "recurrent",
    "norms",
    "vision",
    "audio",
    "mtp",
    "other",
]
"""What a weight is for. Formats and engines treat these differently, so bytes are kept apart."""

Split = Literal["replicated", "columns", "rows", "heads", "kv_heads", "groups", "vocabulary", "experts"]
"""How tensor parallelism divides a weight.

``replicated``: whole on every rank. ``columns``/``rows``: output or input side divided evenly.
``heads``: divided by attention heads. ``kv_heads``: divided by KV heads, replicated once there
are more ranks than heads. ``groups``: like ``kv_heads`` for Mamba-2 groups. ``vocabulary``: rows
padded to a multiple of 64, then divided. ``experts``: each expert's matrices
are divided evenly (or whole experts are placed, the bytes are the same).
"""


MAX_LAYERS: Final = 4096
"""Layers of one model; the deepest in the catalog has 126."""


class LayerGroup(Record):
    """Layers that keep exactly the same caches."""

    name: Text  # What a reader calls them: ``full attention``, ``sliding window``, ``Gated DeltaNet``.
    # Indices as inclusive runs, ``"0-3,7"``; the order makes the layer strip.
    layers: Annotated[
        str,
        StringConstraints(
            pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$", max_length=40_000
        ),
    ]
    # What each of these layers keeps; empty if nothing (MLP-only or expert-only layers).
    caches: tuple[Cache, ...] = ()

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """Layer indices, ascending as written."""
        return tuple(_expand(self.layers))

    @property
    def count(self) -> int:
        """Number of layers in the group."""
        return len(self.indices)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        """Hold the runs to one order before they are expanded."""
        last = -1
        for run in self.layers.split(","):
            first, _, end = run.partition("-")
            if int(first) <= last or int(end or first) < int(first):
                raise ValueError(
                    f"layers: runs must ascend without overlap, as '0-3,7'; {shorten(run)} does not"
                )
            last = int(end or first)
        if last >= MAX_LAYERS:
            raise ValueError(f"layers: at most {MAX_LAYERS:,} layers, index 0 to {MAX_LAYERS - 1:,}")
        return self


class WeightGroup(Record):
    """``count`` tensors of the same shape and use."""

    name: Text  # Module path with ``*`` for the layer (and expert) index.
    component: Component  # What the weight is for.
    # Shape of one tensor, output dimension first.
    shape: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=5)]
    count: Positive = 1  # How many such tensors the model has.
    split: Split = "replicated"  # How tensor parallelism divides it.
    heads: Positive | None = None  # For ``heads``, ``kv_heads`` and ``groups``: how many there are to divide.
    # Storage format in the published checkpoint (a name in ``formats.yaml``); None means the model's own 16-
    # or 32-bit type.
    released: Slug | None = None
    # True for a table of which a token reads single rows (per-layer embeddings, n-grams, positions): resident
    # as a whole, but neither read nor multiplied as a whole. The component ``embedding`` needs no mark.
    looked_up: bool = False
    # Bytes of all ``count`` tensors as published, scales included, where a file's header states them; None
    # means that shape and format decide.
    stored_bytes: Annotated[int, Field(ge=0, le=1 << 50)] | None = None
    # Format with the fewest bytes that the tensor may have, where a copy is known by its name alone and
    # ``released`` is the one with the most; None where ``released`` is known.
    narrowest: Slug | None = None

    @property
    def parameters(self) -> int:
        """Parameters of all ``count`` tensors."""
        return self.count * prod(self.shape)

    @model_validator(mode="after")
    def _heads_named(self) -> Self:
        if self.split in ("heads", "kv_heads", "groups") and self.heads is None:
            raise ValueError(f"split {self.split!r} needs 'heads'")
        return self


class PublishedTotal(Record):
    """What the model's repository weighs, as somebody else listed it; never used in arithmetic.

    A record is held against it: if the tensors do not make this total, the record is wrong.
    """

    # The listed total in GiB, with the digits it was listed with.
    gib: Annotated[float, Field(gt=0, le=1 << 20)]
    # Sets of the same weights in the repository (gpt-oss has two).
    copies: Annotated[int, Field(ge=1, le=4)] = 1
    # What the repository holds besides, which no engine loads and the record leaves out.
    unused_gib: Annotated[float, Field(ge=0, le=1 << 20)] = 0
    note: LongText | None = None  # What that is.


class Experts(Record):
    """A mixture of experts."""

    # Experts in each mixture layer; all are resident in memory.
    routed: Annotated[int, Field(ge=1, le=1 << 20)]
    per_token: Annotated[int, Field(ge=1, le=1 << 20)]  # Experts that one token reads.


BY_NAME: Final = "by the repository's name"
"""How the source of a format ends that a copy's name alone says."""


class Model(VersionedRecord):
    """A model as published."""

    id: ModelId  # ``org/name`` on the hub it was published on.
    name: Text  # What people call it.
    family: Text
    maker: Text
    release: YearMonth | None = None
    licence: Text | None = None
    # Other ids and names that mean the same bytes (search and look-up use them).
    aliases: tuple[Text, ...] = ()
    architecture: Text  # The class named by its ``config.json``.
    context_tokens: Tokens  # The longest context its maker supports.
    # Type of the unquantised weights, and of the cache unless a format says otherwise.
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    kv_format: Slug | None = None  # KV format that the checkpoint itself declares, or None for ``dtype``.
    weight_format: Slug  # What the checkpoint as released is called (``bf16``, ``fp8``, ``mxfp4`` …).
    hidden_size: Annotated[int, Field(ge=1, le=1 << 20)]
    # Query heads of a layer; 0 if the model has no attention at all (Mamba, RWKV).
    attention_heads: Annotated[int, Field(ge=0, le=1 << 20)]
    vocabulary: Annotated[int, Field(ge=1, le=1 << 24)]
    intermediate_size: Positive | None = None
    # Positions that whole heads rotate by: 3 where time, height and width each have their own, 0 where no
    # head rotates.
    rotary_axes: Annotated[int, Field(ge=0, le=4)] = 1
    # True if its config lets the tokens of an image attend to one another in both directions; False also where the class
    # alone decides.
    attends_both_ways: bool = False
    experts: Experts | None = None
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1, max_length=64)]
    weights: Annotated[tuple[WeightGroup, ...], Field(min_length=1, max_length=4000)]
    published_total: PublishedTotal | None = None  # What its repository weighs, where that is known.
    quantized_from: ModelId | None = None  # Id of the model that this is a quantized copy of, or None.
    not_loaded: tuple[Component, ...] = ("mtp",)  # Components that an engine leaves out by default (``mtp``).
    # Engines that do not run this model whatever their lists of classes say, with the reason.
    unsupported_by: dict[Slug, LongText] = Field(default_factory=dict)
    predecessor_ids: tuple[ModelId, ...] = ()  # Ids that this record had before; pages redirect from them.
    notes: tuple[LongText, ...] = ()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def slug(self) -> str:
        """File name and address of the model: ``org--name``."""
        return self.id.replace("/", "--")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the model reads besides text, by the components that it has: ``vision``, ``audio``; else ``text``."""
        parts = {row.component for row in self.weights}
        return tuple(kind for kind in ("vision", "audio") if kind in parts) or ("text",)

    @cached_property
    def release_known(self) -> bool:
        """True if it is known in which formats the repository stores its weights.

        Known from its own config, a document of its makers, the repository's total, or a source that
        speaks of the storage alone (copies that its maker publishes apart); a quantized copy's from its
        name. Not known from the defaults of a class, a sibling or memory, which give dimensions and
        say nothing of a quantizer.
        """
        if self.published_total is not None or self.quantized_from is not None:
            return True
        return any(
            source.evidence in ("verbatim", "observed", "documented")
            or (source.evidence != "unverified" and "layers" not in source.covers)
            for source in self.sources
            if "weight_format" in source.covers
        )

    @property
    def by_name(self) -> bool:
        """True if the copy's name alone says in which formats its layers are, so that its weights are a range."""
        return any(row.narrowest is not None for row in self.weights)

    @property
    def is_unread(self) -> bool:
        """True if a copy's name is all that is known of it, whether its weights are a range or not."""
        return self.by_name or any(source.title.endswith(BY_NAME) for source in self.sources)

    @property
    def weight_words(self) -> str:
        """What an answer's title says of the weights: as released, or by the name where nobody read the copy."""
        return (
            f"{format_name(self.weight_format)} by its name"
            if self.is_unread
            else f"as released ({format_name(self.weight_format)})"
        )

    @cached_property
    def layer_count(self) -> int:
        """Number of layers."""
        return sum(group.count for group in self.layers)

    @property
    def every_cache(self) -> tuple[Cache, ...]:
        """The caches of each group of layers, one group after the other."""
        return tuple(cache for group in self.layers for cache in group.caches)

    @cached_property
    def pattern(self) -> tuple[int, ...]:
        """For each layer in order, the index of its group in ``layers``."""
        where = {index: number for number, group in enumerate(self.layers) for index in group.indices}
        return tuple(where[index] for index in range(self.layer_count))

    @model_validator(mode="after")
    def _layers_cover(self) -> Self:
        seen = sorted(index for group in self.layers for index in group.indices)
        if seen != list(range(len(seen))):
            raise ValueError("layers: the groups' indices must cover 0 to the last layer exactly once")
        covered = {field for source in self.sources for field in source.covers}
        missing = [f for f in ("layers", "weights", "context_tokens") if f not in covered]
        if missing:
            raise ValueError(f"sources: no source covers {', '.join(missing)}")
        return self

    def contradictions(self) -> Iterable[Contradiction]:
        """Return where layers, caches and tensors speak against one another."""
        return contradictions(self)


def compress(indices: Iterator[int] | tuple[int, ...] | list[int]) -> str:
    """Write ascending layer indices as inclusive runs: ``[0, 1, 2, 7]`` is ``"0-2,7"``."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _expand(text: str) -> Iterator[int]:
    for run in re.split(",", text):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)
