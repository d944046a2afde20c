"""How llama.cpp lays out each model on one device, for the pages of local engines and the files of questions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kvreport.accounting.engines.llama_cpp.cells_and_states import cache_bytes, count_cells, state_bytes
from kvreport.accounting.engines.llama_cpp.layout import lay_out_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice, place, weight_bytes
from kvreport.catalog.model import Model
from kvreport.estimation.at_home import AtHome, at_home
from kvreport.estimation.home_case import open_local
from kvreport.publish.site_data import SiteData

SPLIT_CONTEXT: Final = 8192
"""Tokens of the one slot of a model that a card holds in part."""


@dataclass(frozen=True)
class Split:
    """A model with its first layers in main memory and the last ones on a card, by the number on the card from 1."""

    device: tuple[int, ...]  # Bytes on the card, without those that the backend takes for itself.
    host: tuple[int, ...]  # Bytes of weights, caches and states in main memory.

    def most(self, room: int) -> int:
        """The most layers that a card with so much room holds; the output layer counts, as in ``--n-gpu-layers``."""
        return bisect_right(self.device, room)


def split(model: Model, mix: str) -> Split:
    """Lay a model of a mix out for every number of layers on a card.

    The compute buffer and the copies of host weights on the card are those of half the layers: their sum varies by less than a
    layer. With one layer of a model on the host the copies may be smaller.
    """
    local, _ = open_local(model, mix, None)
    network, device = local.network, LocalDevice("device", 1 << 60)
    layers = len(network.blocks) + 1
    options = LocalOptions(context=SPLIT_CONTEXT, parallel=1)
    cells = count_cells(network, options, model.context_tokens)
    by_layer = list(zip(cache_bytes(network, options, cells), state_bytes(network, options), strict=True))
    half = lay_out_local(local, replace(options, gpu_layers=layers // 2), (device,)).devices[0]
    on_device, on_host = [], []
    for count in range(1, layers + 1):
        some = replace(options, gpu_layers=count)
        placement = place(network, some, (device,))
        weights = weight_bytes(local.tensors, placement, some, tied=network.tied)
        cached = [0, 0]
        for sizes, where in zip(by_layer, placement.caches, strict=True):
            cached[where] += sum(sizes)
        on_device.append(weights[0] + cached[0] + half.compute + half.offload_copies)
        on_host.append(weights[1] + cached[1])
    return Split(tuple(on_device), tuple(on_host))


def of_models(site: SiteData, models: Sequence[Model]) -> dict[str, AtHome]:
    """Return the layouts of some models by id, kept between builds.

    Models that llama.cpp does not convert are left out, and quantized copies: they are converted from their originals.
    """
    originals = (model for model in models if model.quantized_from is None)
    laid_out = site.parts.each("at-home", originals, at_home)
    return {model.id: laid for model, laid in laid_out if laid is not None}


def every_model(site: SiteData) -> dict[str, AtHome]:
    """Return the layouts of all models of a site by id."""
    return site.once("at-home", lambda: of_models(site, site.models))


def splits(site: SiteData, models: Sequence[Model], mix: str) -> dict[str, Split]:
    """Return what a card and main memory hold of some models by id, kept between builds."""
    found = site.parts.each("home-splits", models, partial(split, mix=mix))
    return {model.id: one for model, one in found}
