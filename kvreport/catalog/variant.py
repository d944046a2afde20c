"""A quantized copy of a model, written as what differs from it.

A quantizer changes no dimension, but for a width that it pads so that groups divide it: the copy has its
original's layers and tensors, some of them in another format. Its file names the original and says which; everything else is read from the original's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from kvreport.catalog.base import (
    LongText,
    Positive,
    Slug,
    Source,
    Text,
    VersionedRecord,
    YearMonth,
)
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.layouts import layout, regrouped
from kvreport.catalog.model import Component, Model, ModelId, PublishedTotal, WeightGroup
from kvreport.catalog.naming import copy_name

FIELD: Final = "quantized_from"
"""The key by which a file says that it is a copy's."""

_LARGEST: Final[tuple[Component, ...]] = ("routed_experts", "dense_mlp", "recurrent", "attention")
"""Components by what is converted at the wide end: the first of these that the model has."""

_MORE: Final[tuple[Component, ...]] = ("output_head", "mtp", "other")
"""What copies convert beyond a format's usual components: NVIDIA's NVFP4 heads, FP8 prediction layers of Qwen's."""

_INTEGERS: Final = ("int", "gptq")
"""How the formats begin whose tools may convert the embedding, too, as AutoRound does (observation late-009)."""

_FEWEST: Final = {"int4": "int4-g128-sym"}
"""What the same name may mean with fewer bytes: AWQ without zero points."""

_WHOLE_CHANNELS: Final = "gptq"
"""How the formats begin whose publishers also give a whole channel one scale: TheBloke/Llama-2-70B-chat-GPTQ, whose
main branch has 35.33 GB and no groups (its README.md at 7a706cfe)."""

_WIDEST: Final = {"mlx": "mlx8-g32"}
"""What layers have at most whose tool converts all, by how its formats begin; others may leave them in 16 bits. mlx has
2 to 8 bits (mlx 0.31 ``quantize``)."""

NARROWEST_MATRIX: Final = 32
"""A side shorter than this is no linear layer's: a convolution kernel, a gate, a table of scalars."""


class Variant(VersionedRecord):
    """A quantized copy."""

    id: ModelId  # ``org/name`` of the copy.
    # What people call it; None to derive it (:func:`kvreport.catalog.naming.copy_name`).
    name: Text | None = None
    quantized_from: ModelId  # Id of the model it was made from, which has a file of its own.
    weight_format: Slug  # Format of every matrix in the layers, and what the copy is called.
    # Formats of other components, or of some of these; None keeps one at 16 bits.
    formats: dict[Component, Slug | None] = Field(default_factory=dict)
    keeps: tuple[Text, ...] = ()  # Parts of module names that stay at 16 bits whatever their component.
    # The MLP's width after padding with zeros, where the quantizer padded it; else None.
    padded_intermediate_size: Positive | None = None
    kv_format: Slug | None = None  # KV format that the copy declares; the original's own packed layouts stay.
    licence: Text | None = None  # Licence; None for the original's.
    release: YearMonth | None = None  # Year, or year and month; None for that of the original.
    aliases: tuple[Text, ...] = ()
    published_total: PublishedTotal | None = None
    predecessor_ids: tuple[ModelId, ...] = ()
    notes: tuple[LongText, ...] = ()
    # Where this comes from; the original's sources follow.
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def slug(self) -> str:
        """File name of the copy: ``org--name``."""
        return self.id.replace("/", "--")

    @property
    def mix_assumed(self) -> bool:
        """True if nobody has read which layers the quantizer converted: the copy is then a range, as by its name."""
        evidence = {source.evidence for source in self.sources if "weights" in source.covers}
        return evidence == {"unverified"} and self.published_total is None


def expand(variant: Variant, base: Model, formats: Mapping[str, WeightFormat]) -> Model:
    """Return the copy as a model."""
    form = formats.get(variant.weight_format) or layout(variant.weight_format)
    converts = form.quantises if form is not None else ()
    by_component = dict.fromkeys(converts, variant.weight_format) | variant.formats
    width = variant.padded_intermediate_size or base.intermediate_size
    rows = tuple(
        row.model_copy(
            update={
                "released": _form(row, by_component, variant.keeps),
                "stored_bytes": None,
                "shape": _padded(row, base.intermediate_size, width),
            }
        )
        for row in base.weights
    )
    licence = variant.licence or base.licence
    own = {field for field in ("licence", "release") if getattr(variant, field) is not None}
    inherited = tuple(_inherited(source, base, own) for source in base.sources)
    return base.model_copy(
        update={
            "id": variant.id,
            "name": variant.name or copy_name(variant.id, base.id, base.name),
            "quantized_from": base.id,
            "release": variant.release or base.release,
            "licence": licence,
            "aliases": variant.aliases,
            "predecessor_ids": variant.predecessor_ids,
            "weight_format": variant.weight_format,
            "kv_format": variant.kv_format
            or (None if base.kv_format in ("fp8", "nvfp4") else base.kv_format),
            "intermediate_size": width,
            "weights": rows,
            "published_total": variant.published_total,
            "notes": (*base.notes, *variant.notes),
            "sources": (*variant.sources, *(source for source in inherited if source is not None)),
        }
    )


def largest(base: Model) -> Component:
    """Return the component that is converted at the wide end of a copy's range."""
    present = {row.component for row in base.weights}
    return next((part for part in _LARGEST if part in present), "attention")


def as_range(
    variant: Variant,
    base: Model,
    formats: Mapping[str, WeightFormat],
    *,
    least: str | None = None,
    most: str | None = None,
    untied: bool = False,
) -> Model:
    """Return a copy whose mix is not known: each tensor in the format with the most bytes, that with the fewest beside it.

    The narrow end has every layer in ``least``, or in the fewest bytes that the name may mean; the wide end has the largest part
    in ``most``, or in the format of the name. An ``untied`` copy may store an output head that the original
    shares. ``formats`` are the listed weight formats.
    """
    kept, form = largest(base), variant.weight_format
    wider = widest_of(form)
    coarse, fine = least or _fewest(form), most or form
    converted = (*_MORE, "embedding") if form.startswith(_INTEGERS) else _MORE
    narrowest = variant.model_copy(
        update={"weight_format": coarse, "formats": dict.fromkeys(converted, coarse), "keeps": ()}
    )
    wide, narrow = expand(variant, base, formats), expand(narrowest, base, formats)
    rows = tuple(
        row.model_copy(
            update={
                "released": widest,
                "narrowest": small.released if small.released != widest else None,
            }
        )
        for row, small, original in zip(wide.weights, narrow.weights, base.weights, strict=True)
        for widest in [
            fine
            if row.component == kept and row.released
            else (wider if small.released else None) or _kept(original)
        ]
    )
    if untied and all(row.component != "output_head" for row in rows):
        table = next(row for row in rows if row.component == "embedding")
        rows += (table.model_copy(update={"name": "lm_head.weight", "component": "output_head"}),)
    return wide.model_copy(update={"weights": rows})


def widest_of(form: str) -> str | None:
    """The format with the most bytes that layers have where a copy's tool converts all; None where some are left alone."""
    return next((name for begins, name in _WIDEST.items() if form.startswith(begins)), None)


def _fewest(form: str) -> str:
    """The format with the fewest bytes that a name may mean."""
    return regrouped(form, 0) if form.startswith(_WHOLE_CHANNELS) else _FEWEST.get(form, form)


def _kept(original: WeightGroup) -> str | None:
    """The format of a tensor that was left alone: 16 bits, which narrower originals are widened to, or its 32."""
    form = None if original.released is None else layout(original.released)
    return original.released if form is not None and form.bits > 16 else None


def _padded(row: WeightGroup, width: int | None, padded: int | None) -> tuple[int, ...]:
    """A row's shape with the MLP's width as the quantizer left it."""
    if row.component != "dense_mlp" or width is None or padded is None:
        return row.shape
    return tuple(padded if side == width else side for side in row.shape)


def is_matrix(shape: tuple[int, ...]) -> bool:
    """True for the weight of a linear layer, which quantizers convert; False for vectors and kernels."""
    return len(shape) >= 2 and min(shape[-2:]) >= NARROWEST_MATRIX


def _form(
    row: WeightGroup, by_component: Mapping[Component, str | None], keeps: tuple[str, ...]
) -> str | None:
    """A component's format for its matrices; routers inside prediction layers stay as they are."""
    form = by_component.get(row.component)
    if form is None or not is_matrix(row.shape) or any(part in row.name for part in keeps):
        return None
    gate = row.component == "mtp" and row.name.endswith((".gate.weight", "mtp.fc.weight", "eh_proj.weight"))
    return None if gate else form


def _inherited(source: Source, base: Model, own: set[str]) -> Source | None:
    """What a source of the original says of the copy: dimensions, and license and release without its own."""
    said = {"layers", "weights", "context_tokens", "licence", "release"} - own
    covers = tuple(field for field in source.covers if field in said)
    if not covers:
        return None
    title = source.title if base.id in source.title else f"{base.id}: {source.title}"
    return source.model_copy(update={"covers": covers, "title": title[:400]})
