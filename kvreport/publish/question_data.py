"""What the questions need to answer for any model, beside :mod:`kvreport.publish.profiles`.

Published under ``downloads/v1/questions/``, one small file for each model, read when a reader chooses a case:
the KV formats that the matrix leaves out, sizes of layers and components, adapter slots, and what one slot of
llama.cpp takes. ``questions.json`` has what belongs to a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.placement import local_device
from kvreport.accounting.extras import (
    adapted_if_named,
    eagle3_bytes,
    lora_bytes,
    vocabulary_modules,
    vocabulary_slots,
)
from kvreport.accounting.parallel import Layout
from kvreport.accounting.weights import parameters_by_component
from kvreport.book.quantities import Quantities
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.at_home import AtHome
from kvreport.publish import device_columns, home_layouts
from kvreport.publish.profiles import FOLDER, SCHEMA, encode, format_facts, shape
from kvreport.publish.site_data import SiteData

LLAMA_CPP: Final = "llama-cpp"
MIX: Final = "q4_k_m"
"""The quantization that the questions about one machine suppose."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every file, byte-identical for the same catalog."""
    llama_cpp = site.catalog.engines.get(LLAMA_CPP)
    devices = [local_device(gpu, {} if llama_cpp is None else llama_cpp.coefficients) for gpu in site.gpus]
    machines = {
        "schema": SCHEMA,
        "backends": {one.name: one.context for one in devices} if llama_cpp is not None else {},
        "one_memory": [one.name for one in devices if one.has_all],
        "metal": [one.name for one in devices if one.scratch == "metal"],
    }
    yield f"{FOLDER}/questions.json", encode(machines)
    yield from of_models(site, site.models)


def of_models(site: SiteData, models: Sequence[Model]) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the files of some models."""
    wide = site.once("every format", lambda: _every_format(site))
    lists = wide.once("shape", lambda: shape(wide))
    whole = models == site.models
    laid_out = home_layouts.every_model(site) if whole else home_layouts.of_models(site, models)

    def make(model: Model) -> bytes:
        return encode({"schema": SCHEMA, **model_facts(wide, model, laid_out.get(model.id))})

    for model, content in site.parts.each("questions", models, make, lists):
        yield f"{FOLDER}/questions/{model.slug}.json", content


def model_facts(site: SiteData, model: Model, laid: AtHome | None) -> dict[str, Any]:
    """Return one model's facts; ``site`` has every KV format, and ``laid`` is the model on one device.

    ``text`` is what a server of a vision model takes that is told to serve text only; ``plans``, ``plan`` and ``held`` are those of :func:`kvreport.publish.profiles.model_facts` for all KV
    formats and the tensor-parallel sizes; ``lora`` is bytes of one adapter slot of rank one at each size;
    ``draft`` is bytes of an EAGLE-3 head at each size; ``home`` is what one slot of llama.cpp takes with 4-bit weights: contexts, bytes beside the weights at
    each of them, bytes on the host, weights, the experts of each layer, and ``quantized``: the bytes with a cache in
    Q8_0.
    """
    q = Quantities(site.catalog)
    heads = _known(lambda: q.kv_heads(model.id))
    sizes = site.axes.tensor_parallel
    table = vocabulary_slots(model, 1, 1, vocabulary_modules(site.engine, model))
    named = adapted_if_named(site.engine)
    return {
        "layers": model.layer_count,
        "growing": q.growing_layers(model.id),
        "heads": model.attention_heads,
        "kv_heads": heads,
        "image_side": _known(lambda: q.image_side(model.id)),
        "components": {str(name): size for name, size in parameters_by_component(model).items()},
        **format_facts(site, model),
        "text": device_columns.text_facts(site, model) if "vision" in model.inputs else None,
        "lora": [lora_bytes(model, Layout(tensor=size), 1, 1, named) + table for size in sizes],
        "draft": [eagle3_bytes(model, size) for size in sizes],
        "home": _home(laid),
    }


def _home(laid: AtHome | None) -> dict[str, Any] | None:
    if laid is None:
        return None
    small = laid.quantized
    return {
        "contexts": list(laid.contexts),
        "beside": list(laid.beside_weights),
        "host": list(laid.on_host(MIX)),
        "metal": list(laid.metal),
        "weights": laid.weights[MIX],
        "experts": list(laid.experts[MIX]),
        "quantized": small
        and {
            "beside": list(small.beside_weights),
            "host": list(small.on_host(MIX)),
            "metal": list(small.metal),
        },
    }


def _every_format(site: SiteData) -> SiteData:
    """Return the site with every KV format of the catalog on its axes; everything else is the same."""
    wide = replace(site)
    every = tuple(site.catalog.kv_format(name) for name in site.catalog.kv_formats)
    vars(wide)["axes"] = replace(site.axes, kv_formats=every)  # what its cached property would compute
    return wide


def _known(ask: Any) -> int | None:  # noqa: ANN401 - any question of the vocabulary
    try:
        return int(ask())
    except InputError:
        return None
