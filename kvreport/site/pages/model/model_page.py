"""A model's page: how many users fit, where, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from heapq import nsmallest
from typing import Any, Final

from kvreport import units
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.command import Served
from kvreport.accounting.engines.vllm.towers import Tower
from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.accounting.parallel import Layout
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.book.quantities import Quantities
from kvreport.build_cache import code
from kvreport.catalog.caches import ChunkedAttention, SlidingWindow
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate
from kvreport.estimation.commands import shell_line
from kvreport.publish import embeds
from kvreport.publish.attention_types import attention_label, cache_kind
from kvreport.publish.downloads import FOLDER
from kvreport.publish.log_coverage import under
from kvreport.publish.series import Config, Series
from kvreport.publish.site_data import SiteData, devices
from kvreport.site.kit import diagrams, templating
from kvreport.site.kit.elements import KeyFigure, Link
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.social_cards import SocialCard
from kvreport.site.kit.sources import source_lines
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType, moved
from kvreport.site.pages import agreement, machines_at_home
from kvreport.site.pages.controls import Controls, engine_choices, kv_choices, layout_choices, weight_choices
from kvreport.site.pages.model import recorded_traffic, speed
from kvreport.site.pages.model.boundary import boundary_plot, card
from kvreport.site.pages.model.grids import formats_of, remedies, users_table, weights_table
from kvreport.site.pages.model.headline import (
    conditions,
    first_sentence,
    headline,
    headline_estimate,
    headline_index,
    memory_bar,
    open_mix,
    plain,
)

TEMPLATES: Final = ("model", "local")
"""Folders of the templates that these pages use, beside the shared ones."""


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield every model's page, and one at each address that a model has left."""
    site = inputs.site
    at_home = machines_at_home.URI in inputs.addresses or machines_at_home.has_pages(inputs)
    with site.parts.group("model-pages") as kept:
        made = {
            model.id: kept.get(_key(site, model, at_home=at_home), partial(page, inputs, model))
            for model in site.models
        }
    for model in site.models:
        yield made[model.id]
        for old in model.predecessor_ids:
            yield moved(f"models/{old.replace('/', '--')}/", f"models/{model.slug}/", model.name)


def _key(site: SiteData, model: Model, *, at_home: bool) -> bytes:
    """What decides a model's page beside what all pages share: its record, and what it says of others."""
    outside = (
        _neighbours(site, model),
        site.copies[model.id],
        site.kv_names,
        site.site_url,
        tuple(link.note for link in _downloads(site, model)),
        at_home,
    )
    return site.parts.key(site.parts.of_model(model), repr(outside), code(), templating.state(TEMPLATES))


def page(inputs: Inputs, model: Model) -> Page:
    """Return a model's page."""
    uri = f"models/{model.slug}/"
    site, best = inputs.site, inputs.site.headline[model.id]
    made = context(site, model, best)
    answer = headline_estimate(site, model, best) if best else None
    names = made
    example = {"example": made["example"]}

    def section(anchor: str, title: str, template: str) -> Section:
        return Section(anchor, title, render(template, uri, names))

    conclusion = plain(made["headline"])
    return Page(
        uri=uri,
        kind="model",
        title=first_sentence(made["headline"]) if best else model.name,
        heading=model.name,
        description=conclusion,
        lead=render(
            "model/lead.html",
            uri,
            names
            | (
                {"confirmed": "", "expected": ""}
                if best is None
                else under(site.catalog, site.engine, site.catalog.accelerators[best.config.gpu])
            ),
        ),
        sections=(
            section("boundary", "Capacity by context length", "model/boundary.html"),
            section("users", "Capacity by accelerator", "model/users.html"),
            section("computed", "How it is computed", "model/computed.html"),
            *(
                [Section("speed", "Best-case speed", render("model/speed.html", uri, fast | example))]
                if (fast := speed.context(site, model, best)) is not None
                else []
            ),
            *(
                [
                    Section(
                        "traffic",
                        "Hit rate under recorded traffic",
                        render("model/traffic.html", uri, shared | example),
                    )
                ]
                if (shared := recorded_traffic.context(answer)) is not None
                else []
            ),
            section("weights", "Weights by format", "model/weights.html"),
            section("serve", "Commands", "model/serve.html"),
            *([at_home] if (at_home := machines_at_home.at_home_section(inputs, model)) is not None else []),
            section("take", "Download, cite, badge", "model/take.html"),
            section("sources", "Sources", "model/sources.html"),
            section("neighbours", "Similar models", "model/neighbours.html"),
        ),
        names=_search_names(model),
        boost=_boost(site, model),
        card=card_address(model) if made["chart"] else None,
    )


def requests(site: SiteData) -> Iterator[SocialCard]:
    """Yield the picture that a shared link to each model's page shows."""
    yield from (one for one in _cards(site).values() if one is not None)


def _cards(site: SiteData) -> dict[str, SocialCard | None]:
    """The picture of each model's shared link, by model id; kept between builds."""

    def make(model: Model) -> SocialCard | None:
        return card(site, model, site.headline[model.id])

    found = site.parts.each("model-cards", site.models, make, code())
    return {model.id: picture for model, picture in found}


def assets(inputs: Inputs) -> Iterator[tuple[str, bytes]]:
    """Yield the picture that a shared link to each model's page shows."""
    wanted = _cards(inputs.site)
    for model in inputs.site.models:
        if (one := wanted[model.id]) is not None:
            yield card_address(model), inputs.drawings[one.digest].card


def card_address(model: Model) -> str:
    """Return the address of the picture that a shared link to a model's page shows."""
    return f"assets/cards/{model.slug}.jpg"


def context(site: SiteData, model: Model, best: Series | None) -> Names:
    """Return a model's page.

    Args:
        site: What every page may ask.
        model: The model.
        best: The headline's series, or None where no well-known accelerator serves it.
    """
    shown = headline_index(best, model) if best else None
    answer = headline_estimate(site, model, best) if best else None
    kv_format = best.config.kv_format if best else _any_kv(site, model)
    grid, groups = users_table(site, model, best)
    agreement.of_model(model, best, shown, answer, grid, refused=bool(site.refusal(model)))
    return {
        "slug": model.slug,
        "model_id": model.id,
        "headline": headline(site, model, best, answer),
        "conditions": conditions(site, model, kv_format, answer) if best else "",
        "open_mix": open_mix(site, model),
        "facts": tuple(_facts(site, model, best, shown)),
        "strip": diagrams.strip(model),
        "chart": boundary_plot(site, model, best, answer),
        "grid": grid,
        "groups": groups,
        "remedies": remedies(site, model),
        "steps": _steps(answer),
        "bar": memory_bar(answer, best, shown),
        "weights": weights_table(site, model),
        "controls": _controls(site, model, best),
        "case": _case(site, answer, best, shown),
        "example": _where(site, best, shown),
        "command": _command(site, model, best),
        "estimate": _estimate_command(site, model, best),
        "notes": model.notes,
        "sources": source_lines(model.sources),
        "downloads": _downloads(site, model),
        "cite": f"kvreport, {model.name}: memory and capacity, data release {site.version}. Data CC BY 4.0.",
        "badge": embeds.markdown(site, model, best.config.gpu) if best else "",
        "unknown_site": embeds.UNKNOWN_SITE if site.site_url in ("", embeds.UNKNOWN_SITE) else "",
        "neighbours": _neighbours(site, model),
    }


def _boost(site: SiteData, model: Model) -> float:
    """How much a search favors a model: originals before copies, and those with many copies first."""
    return 1.2 if model.quantized_from is not None else 2.0 + 0.2 * min(site.copies[model.id], 5)


def start_of(site: SiteData, model: Model, best: Series | None) -> dict[str, Any]:
    """Return the state that a page of the model shows as printed, under the names of the browser's state."""
    if best is None:
        return {"gpu": site.known_gpus[0]}
    shown = headline_index(best, model)
    return {
        "gpu": best.config.gpu,
        "tp": best.config.tensor_parallel,
        "context": best.contexts[shown],
    }


def _controls(site: SiteData, model: Model, best: Series | None) -> Controls | None:
    if site.refusal(model) or not site.released.get(model.id):
        return None
    start = start_of(site, model, best)
    offered = {name for name, _ in weight_choices(site)} & set(formats_of(site, model, "weight_format"))
    caches = {"", *formats_of(site, model, "kv_format")}
    further = {layout.label for layout in site.axes.layouts_of(model)}
    return Controls(
        page="model",
        start={"model": model.slug} | start,
        gpu=(start["gpu"], site.catalog.accelerators[start["gpu"]].name),
        layouts=tuple(choice for choice in layout_choices(site) if choice[0] in further),
        weights=tuple(choice for choice in weight_choices(site) if choice[0] in offered),
        kv=tuple(choice for choice in kv_choices(site) if choice[0] in caches),
        engines=engine_choices(site),
    )


def _case(site: SiteData, answer: Estimate | None, best: Series | None, shown: int | None) -> str:
    """What the steps of the arithmetic answer."""
    if answer is None or best is None or shown is None:
        return ""
    where = devices(best.config.tensor_parallel, site.gpu_name(best.config.gpu))
    if answer.max_concurrent_requests_by_memory >= UNLIMITED_REQUESTS:  # a model without a KV cache
        return f"how the memory of {where} is used"
    return f"how many requests of {units.human_tokens(best.contexts[shown])} tokens fit on {where}"


def _where(site: SiteData, best: Series | None, shown: int | None) -> str:
    """The case that a page shows as printed, for what follows no other one."""
    if best is None or shown is None:
        return ""
    where = devices(best.config.tensor_parallel, site.gpu_name(best.config.gpu))
    return f"{where}, {units.human_tokens(best.contexts[shown])} tokens, default formats"


def _search_names(model: Model) -> tuple[str, ...]:
    return tuple(dict.fromkeys([model.id, *model.aliases[:6]]))


def _facts(site: SiteData, model: Model, best: Series | None, shown: int | None) -> Iterator[KeyFigure]:
    total, active = parameters(model), active_parameters(model)
    yield KeyFigure(
        "Parameters",
        units.human_parameters(total),
        f"{units.human_parameters(active)} active" if active != total else "",
    )
    yield KeyFigure("Attention type", attention_label(cache_kind(model)))
    if best is not None and shown is not None:
        number = best.config.tensor_parallel
        split = "" if number == 1 else f"per GPU, on {number} GPUs"
        named = "Weights as released" if best.config.weight_format == RELEASED else "Weights"
        named = "Weights by name, at most" if model.by_name else named
        yield KeyFigure(named, f"{units.gib(best.weight_bytes)} GiB", split, "weights")
        each, whole = best.token_bytes[shown], _whole_token(site, model, best, shown)
        window = 0 if whole else _longest_window(model)
        at = f"at {units.human_tokens(best.contexts[shown])} tokens"
        if window:
            at = f"beyond the window of {units.human_tokens(window)} tokens"
        divided = (
            f"{units.human_bytes(each)} {split}" if each != whole else f"a copy on each of {number} GPUs"
        )
        yield KeyFigure(
            "KV cache per token",
            units.human_bytes(whole),
            f"{at}; {divided}" if split else at,
            "token",
        )
        if best.state_bytes:
            yield KeyFigure(
                "Recurrent state per request", units.human_bytes(best.state_bytes), split, "state"
            )
    tower = Tower.of(model)
    if tower is not None and tower.side:
        tokens = Quantities(site.catalog).image_tokens(model.id, wide=1024, high=1024)
        yield KeyFigure(
            "Image of 1,024 × 1,024", f"{tokens:,} tokens", f"one for each {tower.side} × {tower.side} pixels"
        )
    limit, exact = units.human_tokens(model.context_tokens), f"{model.context_tokens:,}"
    yield KeyFigure("Maximum context", limit, "tokens" if limit == exact else f"{exact} tokens")


def _longest_window(model: Model) -> int:
    """Tokens of the longest window or chunk of a model's layers; 0 without one."""
    windows = [cache.window for cache in model.every_cache if isinstance(cache, SlidingWindow)]
    chunks = [cache.chunk for cache in model.every_cache if isinstance(cache, ChunkedAttention)]
    return max((*windows, *chunks), default=0)


def _whole_token(site: SiteData, model: Model, best: Series, shown: int) -> int:
    """Bytes of one token of the whole model, as one rank holds them; those of a GPU where no series has one rank."""
    asked = best.config._replace(tensor_parallel=1)
    one = site.released[model.id].get(asked)
    return (one or best).token_bytes[shown]


def _any_kv(site: SiteData, model: Model) -> str:
    configs: list[Config] = list(site.released.get(model.id, {}))
    return configs[0].kv_format if configs else model.kv_format or model.dtype


def _steps(answer: Estimate | None) -> tuple[Names, ...]:
    if answer is None:
        return ()
    lines = [str(line) for line in answer.to_dict()["explanation"]]
    return tuple(_step(line, last=line is lines[-1]) for line in lines)


def _step(line: str, *, last: bool) -> Names:
    words, colon, numbers = line.partition(": ")
    return {"words": words if colon else "", "numbers": numbers if colon else line, "result": last}


def _command(site: SiteData, model: Model, best: Series | None) -> str:
    """The command of the server that the headline speaks of: vLLM reserves for the length that it is told."""
    if best is None:
        return ""
    asked = min(best.contexts[headline_index(best, model)], model.context_tokens)
    command = rules(site.engine).command(Served(model.id, Layout(tensor=best.config.tensor_parallel), asked))
    return "" if command is None else shell_line(command)


def _estimate_command(site: SiteData, model: Model, best: Series | None) -> str:
    if best is None:
        return ""
    parts = ["kvreport", "estimate", model.id, "--gpu", best.config.gpu]
    if best.config.gpu in site.catalog.local_first:
        parts += ["--engine", site.engine.name]
    if best.config.tensor_parallel > 1:
        parts += ["--tensor-parallel", str(best.config.tensor_parallel)]
    if best.config.weight_format != RELEASED:
        parts += ["--weights", best.config.weight_format]
    shown = headline_index(best, model)
    parts += ["--context", units.human_tokens(best.contexts[shown]).replace(",", "")]
    return shlex.join(parts)


def _downloads(site: SiteData, model: Model) -> tuple[Link, ...]:
    offered = (
        ("CSV", f"models/{model.slug}.csv.gz", "every row of this model, compressed with gzip"),
        ("Parquet", f"models/{model.slug}.parquet", "the same rows with typed columns"),
    )
    files = [
        Link(text, f"{FOLDER}/{name}", f"{note}, {units.human_bytes(size)}")
        for text, name, note in offered
        if (size := site.downloads.size(name)) is not None
    ]
    profile = Link("JSON", f"{FOLDER}/v1/models/{model.slug}.json", "cache profiles and memory budgets")
    return (*files, profile)


def _neighbours(site: SiteData, model: Model) -> tuple[Link, ...]:
    size = site.parameters[model.id]

    def distance(other: Model) -> float:
        ratio = site.parameters[other.id] / size
        return max(ratio, 1 / ratio)

    others = [other for other in site.models if other.id != model.id]
    family = nsmallest(4, (m for m in others if m.family == model.family), key=distance)
    like = nsmallest(8 - len(family), (m for m in others if m.family != model.family), key=distance)
    return tuple(
        Link(m.name, f"models/{m.slug}/", units.human_parameters(site.parameters[m.id]))
        for m in (*family, *like)
    )


TYPE: Final = PageType("model", pages, requests=requests, assets=assets)
