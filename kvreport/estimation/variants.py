"""Quantized copies of models of the catalog: the same tensors in another format."""

from __future__ import annotations

import re
from typing import Final

from kvreport.architectures.names import QuantizedName, quantized_name, repository_name
from kvreport.catalog.base import Source
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.llama_cpp import OLLAMA_PREFIX, load_ollama_names
from kvreport.catalog.load import Catalog
from kvreport.catalog.model import Model
from kvreport.catalog.variant import Variant, expand
from kvreport.errors import InputError

_GGUF_MIX: Final = re.compile(r"(?:i?q|tq)\d[\w]*")
"""Mixes of llama.cpp: their tensors have several types, which its own rules decide."""


def by_name(name: str, catalog: Catalog) -> tuple[Model, tuple[str, ...]] | None:
    """Read a quantized repository's name as a model of the catalog in a format.

    Returns:
        The model under its own name, and what was taken for granted; None if the name does not say
        what it was made from, or that model is not known.

    Raises:
        InputError: If the name says a mix of types, which only llama.cpp's rules lay out.
    """
    ollama = load_ollama_names().find(name)
    if ollama is not None:
        said: QuantizedName | None = QuantizedName(
            (ollama.model,), ollama.format.lower().removeprefix(OLLAMA_PREFIX)
        )
    else:
        said = quantized_name(name)
    base = _base(said, catalog) if said is not None else None
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
    usual = f" ({said.usual})" if said.usual else ""
    sentence = (
        f"{name} is not in the catalog; by its name it is {base.id} in {form.label}{usual}. "
        "Its own config says it exactly: --fetch, or the path of its config.json."
    )
    experts = None if said.experts is None else catalog.weight_formats.get(said.experts)
    full_name = name if "/" in name else f"{base.id.partition('/')[0]}/{name}"
    return quantized(base, form, full_name, experts), (sentence,)


def gguf_base(name: str, catalog: Catalog) -> tuple[Model, str] | None:
    """Return the model that a GGUF repository's name means, and its mix; None for other names.

    Args:
        name: ``org/name-GGUF`` with or without ``:Q4_K_M``, or its address.
        catalog: Where the model is looked up.
    """
    plain = repository_name(name)
    said = quantized_name(plain) if "gguf" in plain.lower() else None
    base = _base(said, catalog) if said is not None else None
    return None if said is None or base is None else (base, said.weights)


def _base(said: QuantizedName, catalog: Catalog) -> Model | None:
    for candidate in said.bases:
        try:
            return catalog.model(candidate)
        except InputError:
            continue
    return None


def quantized(base: Model, form: WeightFormat, name: str, experts: WeightFormat | None = None) -> Model:
    """Return a model converted to a format, as a quantizer leaves it: layers for prediction untouched.

    Args:
        base: The model it was made from.
        form: The format of every tensor that it converts.
        name: ``org/name`` of the copy.
        experts: The format of its routed experts, where that is another one.
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
        formats={} if experts is None else {"routed_experts": experts.name},
        sources=(source,),
    )
    return expand(variant, base, {form.name: form} | ({} if experts is None else {experts.name: experts}))
