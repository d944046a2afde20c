"""Storage formats: what one stored element costs, scales included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import Evidence, LongText, Record, Slug, Source, Text, Tokens
from kvreport.catalog.model import Component

FormatName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[a-z0-9._-]*[a-z0-9])?$", max_length=40)]
"""Like a slug, with the underscores that engines write: ``fp8_ds_mla``, ``q4_k_m``."""

Side = Annotated[int, Field(ge=0, le=1 << 20)]
"""Elements along one side of a block; 0 is the whole side."""

CacheKind = Literal["full", "sliding", "chunked", "latent", "cross"]


class WiderTensors(Record):
    """Tensors that a mixed format stores wider than the rest.

    Attributes:
        component: What the tensor is for.
        names: Endings of the module path (``v_proj``); empty means every tensor of the component.
        bits: Bits of one element, scales included.
        tied_only: True if it holds only for models whose embedding is also their output head.
    """

    component: Component
    names: tuple[Text, ...] = ()
    bits: Annotated[float, Field(gt=0, le=64)]
    tied_only: bool = False


class WeightFormat(Record):
    """How quantised weights are stored.

    A matrix of this format costs ``bits`` per element, plus a scale of ``scale_bytes`` for every
    block of ``block`` elements (``[rows, columns]``; 0 means the whole side), plus
    ``column_bytes`` for every input and ``tensor_bytes`` once. Components outside ``quantises`` stay in the model's own type, and so do
    vectors (biases) and anything too narrow to be a linear layer (convolution kernels).

    Attributes:
        name: Slug, the name on the command line and in the dataset.
        bits: Bits of one element.
        block: Block that shares one scale, or None if there is no scale.
        scale_bytes: Bytes of one block's scale (and zero point).
        tensor_bytes: Bytes once per tensor (a global scale, a table of values, a codebook).
        column_bytes: Bytes per input of a matrix (EXL3's input scales).
        index_bytes: Bytes per input that only the file has and engines drop (GPTQ's group index).
        quantises: Components it applies to; the others keep the model's type.
        wider: Tensors that a mixed format stores wider; the first that applies counts.
        multiplies: The type that engines multiply these weights in, where the device has it
            (``Rates`` names them); weight-only formats are widened to 16 bits first.
        evidence: How far its figures can be trusted.
    """

    name: FormatName
    label: Text
    bits: Annotated[float, Field(gt=0, le=64)]
    block: tuple[Side, Side] | None = None
    scale_bytes: Annotated[float, Field(ge=0, le=64)] = 0
    tensor_bytes: Annotated[int, Field(ge=0, le=1 << 28)] = 0
    column_bytes: Annotated[float, Field(ge=0, le=64)] = 0
    index_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    quantises: tuple[Component, ...] = ()
    wider: tuple[WiderTensors, ...] = ()
    multiplies: Literal["bf16", "fp8", "int8", "fp4"] = "bf16"
    aliases: tuple[Text, ...] = ()
    evidence: Evidence = "documented"
    note: LongText | None = None


class KvFormat(Record):
    """How cached vectors are stored.

    Attributes:
        name: Slug, the name on the command line and in the dataset.
        bits: Bits of one element.
        scale_bytes: Bytes of one scale.
        scale_every: Elements that share one scale; 0 means one scale per head and token.
        wide_rope_bytes: Bytes per rotary element of a latent if it is kept wider, else 0.
        value_bits: Bits of one element of a value, where values are stored otherwise than keys; else None.
        value_scale_bytes: Bytes of one scale of a value, where values are stored otherwise.
        pair_align_bytes: A key and its value together are padded to a multiple of this.
        edge_layers: First and last layers that engines keep in 16 bits; none of a model with recurrent states.
        align_bytes: Each stored vector is padded to a multiple of this.
        page_align_bytes: Each page of vectors is padded to a multiple of this.
        stores: Cache kinds that can be kept in it; others stay in the model's type or are refused.
        native: Compute capabilities or vendors that can use it; empty means any.
        evidence: How far its figures can be trusted.
    """

    name: FormatName
    label: Text
    bits: Annotated[float, Field(gt=0, le=64)]
    scale_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    scale_every: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    wide_rope_bytes: Annotated[int, Field(ge=0, le=8)] = 0
    value_bits: Annotated[float, Field(gt=0, le=64)] | None = None
    value_scale_bytes: Annotated[int, Field(ge=0, le=64)] = 0
    pair_align_bytes: Annotated[int, Field(ge=1, le=64)] = 1
    edge_layers: Annotated[int, Field(ge=0, le=64)] = 0
    align_bytes: Annotated[int, Field(ge=1, le=4096)] = 1
    page_align_bytes: Annotated[int, Field(ge=1, le=4096)] = 1
    stores: Annotated[tuple[CacheKind, ...], Field(min_length=1)]
    native: tuple[Text, ...] = ()
    aliases: tuple[Text, ...] = ()
    evidence: Evidence = "documented"
    note: LongText | None = None

    def stored_by(self, compute_capability: str | None, vendor: str) -> bool:
        """True if a device of this capability or maker can keep a cache in the format."""
        return not self.native or bool({compute_capability, vendor} & set(self.native))


class RecordFormat(KvFormat):
    """A KV format whose latents a kernel stores in records of its own.

    Attributes:
        window_record_bytes: Bytes of one latent of a window.
        record_bytes: Bytes of one latent that is kept for all tokens.
    """

    window_record_bytes: int
    record_bytes: int


class Formats(Record):
    """The content of ``formats.yaml``."""

    schema_version: Literal[1] = 1
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


class Grid(Record):
    """The content of ``grid.yaml``: which combinations the published matrix has.

    Attributes:
        contexts: Context lengths in tokens, ascending.
        layouts: Further layouts, for the models that are deployed so.
        sizing_layouts: Layouts that only a search for a deployment tries beside those.
        weight_formats: Weight formats besides ``released``, which every model has.
        kv_formats: KV formats; those that a model's caches cannot be kept in are left out.
        engine: The engine whose answer the matrix carries beside the ceiling.
        local_engines: The engine of machines on which that one has no platform, by their maker; one device each.
    """

    schema_version: Literal[1] = 1
    contexts: Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=4096)]
    tensor_parallel: Annotated[tuple[Degree, ...], Field(min_length=1, max_length=64)]
    layouts: Annotated[tuple[GridLayout, ...], Field(max_length=64)] = ()
    sizing_layouts: Annotated[tuple[GridLayout, ...], Field(max_length=64)] = ()
    weight_formats: tuple[FormatName, ...]
    kv_formats: Annotated[tuple[FormatName, ...], Field(min_length=1)]
    engine: Slug = "vllm"
    local_engines: dict[Text, Slug] = Field(default_factory=dict)
