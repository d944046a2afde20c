"""Quantized copies of models of the catalog: the same tensors in another format.

A name says the method and not the mix: which layers a publisher left in a wider format. A copy that is known by its
name alone is therefore a range. At its narrow end every layer is in the named format, the output head, the
prediction layers and projections among them. At its wide end only the largest part is: the routed experts, or the
MLPs of a model without experts. The model itself is the wide end, so that no answer promises more than the copy
holds; :func:`narrowed` is the other end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kvreport.architectures.repository_names import QuantizedName, quantized_name, repository_name
from kvreport.catalog.base import Source
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.layouts import GROUPS, QUANTISED, group_of, regrouped
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_architectures import OLLAMA_PREFIX, OllamaNames
from kvreport.catalog.model import BY_NAME, Component, Model
from kvreport.catalog.variant import Variant, as_range, expand, largest, widest_of
from kvreport.errors import InputError
from kvreport.words import COMPONENTS

_GGUF_MIX: Final = re.compile(r"(?:i?q|tq|qat_q)\d[\w]*")
"""Mixes of llama.cpp: their tensors have several types, which its own rules decide."""


def by_name(name: str, catalog: Catalog, base: Model | None = None) -> tuple[Model, tuple[str, ...]] | None:
    """Read a quantized repository's name as a model of the catalog in a format.

    ``name``: name of the copy. ``base``: the model that it was made from, where that is known otherwise; None
    to find it by the name.

    Returns:
        The model under its own name, and what was taken for granted; None if the name does not say
        what it was made from, or that model is not known.

    Raises:
        InputError: If the name says a mix of types, which only llama.cpp's rules lay out.
    """
    ollama = OllamaNames.need().find(name)
    if ollama is not None:
        said: QuantizedName | None = QuantizedName(
            (ollama.model,), ollama.format.lower().removeprefix(OLLAMA_PREFIX)
        )
    else:
        said = quantized_name(name)
    if base is None and said is not None:
        base = _base(said, catalog)
    if said is None or base is None:
        return None
    form = catalog.weight_formats.get(said.weights)
    if form is None and said.weights in ("bf16", "f16", "fp16"):
        form = catalog.weight_formats["bf16"]
    if form is None and _GGUF_MIX.fullmatch(said.weights):
        raise InputError(
            f"model: found {name!r}, which is {base.id} in {said.weights}, a mix of types; allowed: {base.id} with "
            f"--engine llama-cpp --weights {said.weights}, or the GGUF file"
        )
    if form is None:
        return None
    if ollama is not None:
        sentence = f"{name} is the name in Ollama's library of {base.id} in {form.label}."
        return quantized(base, form, f"ollama/{name}"), (sentence,)
    experts = None if said.experts is None else catalog.weight_formats.get(said.experts)
    full_name = name if "/" in name else f"{base.id.partition('/')[0]}/{name}"
    if said.mixed:
        variant = _named(full_name, base, form.name, {}, form.label)
        model = as_range(
            variant, base, catalog.weight_formats, least=said.least, most=said.most, untied=said.untied
        )
    else:
        model = quantized(base, form, full_name, experts)
    return model, (_sentence(name, base, form, said, model),)


def _sentence(name: str, base: Model, form: WeightFormat, said: QuantizedName, model: Model) -> str:
    """What was taken for granted about a copy that is known by its name."""
    label = f"{form.label} ({said.usual})" if said.usual else form.label
    mix = ""
    if model.by_name:
        if said.most and group_of(said.most) is not None:
            label = f"{form.bits:g} bits in groups of {GROUPS[0]}, {GROUPS[1]} or {GROUPS[2]}"
        mix = (
            f" Which layers are wider is not known: numbers are a range, from every layer in {form.name} "
            f"to the {COMPONENTS[largest(base)].lower()} alone."
        )
        if (others := widest_of(form.name)) is not None:
            mix = (
                f" Neither groups nor wider layers are known: numbers are a range, from every layer in {said.least} to "
                f"the {COMPONENTS[largest(base)].lower()} in {said.most} with others in {others}."
            )
    return (
        f"{name} is not in the catalog; by its name it is {base.id} in {label}.{mix} "
        "Its own config says it exactly: --fetch, or the path of its config.json."
    )


def narrowed(model: Model, group: int | None = None) -> Model:
    """Return the narrow end of a copy that is known by its name: every layer in the format with the fewest bytes.

    ``group``: inputs that share a scale, where the name leaves it open; None for the usual number.
    """
    if not model.by_name:
        return model
    rows = tuple(
        row
        if row.narrowest is None
        else row.model_copy(
            update={
                "released": row.narrowest if group is None else regrouped(row.narrowest, group),
                "narrowest": None,
            }
        )
        for row in model.weights
    )
    return model.model_copy(update={"weights": rows})


def per_channel(model: Model) -> Model | None:
    """Return the wide end with a scale per output channel, which no layout cuts; None where the group is known."""
    rows = tuple(
        row.model_copy(update={"released": regrouped(row.released, 0)})
        if row.released is not None and row.narrowest is not None
        else row
        for row in model.weights
    )
    return None if rows == model.weights else model.model_copy(update={"weights": rows})


def in_named_format(model: Model) -> Model | None:
    """Return a copy with its usual components in the very format of its name; None where the range begins with it.

    A bare FP8 of a maker that publishes blocks usually has blocks, which the ends of its range have not.
    """
    form = model.weight_format
    ends = {name for row in model.weights if row.narrowest for name in (row.released, row.narrowest)}
    if form in ends or group_of(form) is not None:
        return None
    rows = tuple(
        row.model_copy(update={"released": form, "narrowest": None})
        if row.narrowest is not None and row.component in QUANTISED
        else row
        for row in model.weights
    )
    return model.model_copy(update={"weights": rows})


def groups_to_try(model: Model) -> Iterator[int | None]:
    """Yield the groups of inputs to a scale that a copy may have: None for the usual one, then smaller ones."""
    yield None
    open_rows = [row for row in model.weights if row.narrowest is not None]
    sizes = {group_of(name) or 0 for row in open_rows for name in (row.released, row.narrowest) if name}
    yield from (group for group in GROUPS[1:] if sizes and min(sizes) <= group < max(sizes))


def gguf_base(name: str, catalog: Catalog) -> tuple[Model, str] | None:
    """Return the model that a GGUF repository's name means, and its mix; None for other names.

    ``name``: ``org/name-GGUF`` with or without ``:Q4_K_M``, or its address.
    """
    plain = repository_name(name)
    said = quantized_name(plain) if "gguf" in plain.lower() else None
    base = _base(said, catalog) if said is not None else None
    return None if said is None or base is None else (base, said.weights)


def _base(said: QuantizedName, catalog: Catalog) -> Model | None:
    known = map(catalog.known_model, said.bases)
    return next((model for model in known if model is not None), None)


def quantized(base: Model, form: WeightFormat, name: str, experts: WeightFormat | None = None) -> Model:
    """Return a model converted to a format, as a quantizer leaves it: layers for prediction untouched.

    ``form``: the format of every tensor that it converts. ``name``: ``org/name`` of the copy. ``experts``:
    the format of its routed experts, where that is another one.
    """
    variant = _named(
        name, base, form.name, {} if experts is None else {"routed_experts": experts.name}, form.label
    )
    return expand(variant, base, {form.name: form} | ({} if experts is None else {experts.name: experts}))


def _named(
    name: str, base: Model, form: str, formats: dict[Component, str | None], label: str | None = None
) -> Variant:
    clean = name.replace(":", "-")
    source = Source(
        covers=("weights", "weight_format"),
        title=f"{base.id} converted to {label or form}; {BY_NAME}",
        evidence="derived",
    )
    return Variant(
        id=clean,
        name=clean.rpartition("/")[2],
        quantized_from=base.id,
        weight_format=form,
        formats=formats,
        sources=(source,),
    )
