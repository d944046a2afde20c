"""Storage formats: what one stored element costs, scales included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import Evidence, LongText, Record, Slug, Source, Text, Tokens, VersionedRecord
from kvreport.catalog.model import Component

FormatName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[a-z0-9._-]*[a-z0-9])?$", max_length=40)]
"""Like a slug, with the underscores that engines write: ``fp8_ds_mla``, ``q4_k_m``."""

Side = Annotated[int, Field(ge=0, le=1 << 20)]
"""Elements along one side of a block; 0 is the whole side."""

CacheKind = Literal["full", "sliding", "chunked", "latent", "cross"]


class WiderTensors(Record):
    """Tensors that a mixed format stores wider than the rest."""

    component: Component  # What the tensor is for.
    # Endings of the module path (``v_proj``); empty means every tensor of the component.
    names: tuple[Text, ...] = ()
    bits: Annotated[float, Field(gt=0, le=64)]  # Bits of one element, scales included.
    tied_only: bool = False  # True if it holds only for models whose embedding is also their output head.


class FormatRecord(Record):
    """What formats of weights and of caches have in common."""

    name: FormatName  # Slug, the name on the command line and in the dataset.
    label: Text
    bits: Annotated[float, Field(gt=0, le=64)]  # Bits of one element.
    aliases: tuple[Text, ...] = ()
    evidence: Evidence = "documented"  # How far its figures can be trusted.
    note: LongText | None = None


class WeightFormat(FormatRecord):
    """How quantised weights are stored.

    A matrix of this format costs ``bits`` per element, plus a scale of ``scale_bytes`` for every
    block of ``block`` elements (``[rows, columns]``; 0 means the whole side), plus
    ``column_bytes`` for every input and ``tensor_bytes`` once. Components outside ``quantises`` stay in the model's own type, and so do
    vectors (biases) and anything too narrow to be a linear layer (convolution kernels).
    """

    block: tuple[Side, Side] | None = None  # Block that shares one scale, or None if there is no scale.
    scale_bytes: Annotated[float, Field(ge=0, le=64)] = 0  # Bytes of one block's scale (and zero point).
    # Bytes once per tensor (a global scale, a table of values, a codebook).
    tensor_bytes: Annotated[int, Field(ge=0, le=1 << 28)] = 0
    # Bytes per input of a matrix (EXL3's input scales).
    column_bytes: Annotated[float, Field(ge=0, le=64)] = 0
    # Bytes per input that only the file has and engines drop (GPTQ's group index).
    index_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    quantises: tuple[Component, ...] = ()  # Components it applies to; the others keep the model's type.
    # Tensors that a mixed format stores wider; the first that applies counts.
    wider: tuple[WiderTensors, ...] = ()
    # The type that engines multiply these weights in, where the device has it (``Rates`` names them);
    # weight-only formats are widened to 16 bits first.
    multiplies: Literal["bf16", "fp8", "int8", "fp4"] = "bf16"


class KvFormat(FormatRecord):
    """How cached vectors are stored."""

    scale_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    # Elements that share one scale; 0 means one scale per head and token.
    scale_every: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    # Bytes per rotary element of a latent if it is kept wider, else 0.
    wide_rope_bytes: Annotated[int, Field(ge=0, le=8)] = 0
    # Bits of one element of a value, where values are stored otherwise than keys; else None.
    value_bits: Annotated[float, Field(gt=0, le=64)] | None = None
    # Bytes of one scale of a value, where values are stored otherwise.
    value_scale_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    # A key and its value together are padded to a multiple of this.
    pair_align_bytes: Annotated[int, Field(ge=1, le=64)] = 1
    # First and last layers that engines keep in 16 bits; none of a model with recurrent states.
    edge_layers: Annotated[int, Field(ge=0, le=64)] = 0
    # Each stored vector is padded to a multiple of this.
    align_bytes: Annotated[int, Field(ge=1, le=4096)] = 1
    # Each page of vectors is padded to a multiple of this.
    page_align_bytes: Annotated[int, Field(ge=1, le=4096)] = 1
    # Cache kinds that can be kept in it; others stay in the model's type or are refused.
    stores: Annotated[tuple[CacheKind, ...], Field(min_length=1)]
    native: tuple[Text, ...] = ()  # Compute capabilities or vendors that can use it; empty means any.

    def stored_by(self, compute_capability: str | None, vendor: str) -> bool:
        """True if a device of this capability or maker can keep a cache in the format."""
        return not self.native or bool({compute_capability, vendor} & set(self.native))


class RecordFormat(KvFormat):
    """A KV format whose latents a kernel stores in records of its own."""

    window_record_bytes: int  # Bytes of one latent of a window.
    record_bytes: int  # Bytes of one latent that is kept for all tokens.


class Formats(VersionedRecord):
    """The content of ``formats.yaml``."""

    weights: Annotated[tuple[WeightFormat, ...], Field(min_length=1)]
    kv: Annotated[tuple[KvFormat, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]


Degree = Annotated[int, Field(ge=1, le=4096)]


class GridLayout(Record):
    """A layout of the published matrix beside plain tensor parallelism; fields as in ``Layout``."""

    tensor: Degree = 1
    pipeline: Degree = 1
    data: Degree = 1
    expert: bool = False
    decode_context: Degree = 1
    nodes: Degree = 1


class Grid(VersionedRecord):
    """The content of ``grid.yaml``: which combinations the published matrix has."""

    # Context lengths in tokens, ascending.
    contexts: Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=4096)]
    tensor_parallel: Annotated[tuple[Degree, ...], Field(min_length=1, max_length=64)]
    # Further layouts, for the models that are deployed so.
    layouts: Annotated[tuple[GridLayout, ...], Field(max_length=64)] = ()
    # Layouts that only a search for a deployment tries beside those.
    sizing_layouts: Annotated[tuple[GridLayout, ...], Field(max_length=64)] = ()
    weight_formats: tuple[FormatName, ...]  # Weight formats besides ``released``, which every model has.
    # KV formats; those that a model's caches cannot be kept in are left out.
    kv_formats: Annotated[tuple[FormatName, ...], Field(min_length=1)]
    engine: Slug = "vllm"  # The engine whose answer the matrix carries beside the ceiling.
    # The engine of machines on which that one has no platform, by their maker; one device each.
    local_engines: dict[Text, Slug] = Field(default_factory=dict)
