"""Quantized copies of models of the catalogue: the same tensors in another format."""

from __future__ import annotations

from kvreport.architectures.names import QuantizedName, quantized_name
from kvreport.catalog.base import Source
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.catalog.variant import Variant, expand
from kvreport.errors import InputError


def by_name(name: str, catalogue: Catalogue) -> tuple[Model, tuple[str, ...]] | None:
    """Read a quantized repository's name as a model of the catalogue in a format.

    Returns:
        The model under its own name, and what was taken for granted; None if the name does not say
        what it was made from, or that model is not known.
    """
    said = quantized_name(name)
    base = _base(said, catalogue) if said is not None else None
    if said is None or base is None:
        return None
    form = catalogue.weight_formats.get(said.weights)
    if form is None and said.weights in ("bf16", "f16", "fp16"):
        form = catalogue.weight_formats["bf16"]
    if form is None:
        return None
    usual = f" ({said.usual})" if said.usual else ""
    sentence = (
        f"{name} is not in the catalogue; by its name it is {base.id} in {form.label}{usual}. "
        "Its own config says it exactly: --fetch, or the path of its config.json."
    )
    return quantized(base, form, name if "/" in name else f"{base.id.partition('/')[0]}/{name}"), (sentence,)


def _base(said: QuantizedName, catalogue: Catalogue) -> Model | None:
    for candidate in said.bases:
        try:
            return catalogue.model(candidate)
        except InputError:
            continue
    return None


def quantized(base: Model, form: WeightFormat, name: str) -> Model:
    """Return a model converted to a format, as a quantizer leaves it: layers for prediction untouched.

    Args:
        base: The model it was made from.
        form: The format of every tensor that it converts.
        name: ``org/name`` of the copy.
    """
    clean = name.replace(":", "-")
    source = Source(
        covers=("weights", "weight_format"),
        title=f"{base.id} converted to {form.label}; by the repository's name",
        evidence="derived",
    )
    variant = Variant(
        id=clean,
        name=clean.rpartition("/")[2],
        quantized_from=base.id,
        weight_format=form.name,
        sources=(source,),
    )
    return expand(variant, base, {form.name: form})
