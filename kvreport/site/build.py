"""The pages of the site, and the files beside them.

:func:`build` is the report's one door: it reads the catalogue, gathers the matrix's rows, draws the
charts and returns finished pages. It knows no site engine; an adapter takes it from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport import resources
from kvreport.atomic import write_whole
from kvreport.build_cache import digest, keep, recall
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import load_catalogue
from kvreport.catalog.model import Model
from kvreport.dataset.release import data_version
from kvreport.publish import feeds, profiles, sizer_data
from kvreport.publish.downloads import FOLDER, NOTHING, Downloads, prepare
from kvreport.publish.page_data import gather
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.site.kit import charts, drawing, fonts, templating, vega
from kvreport.site.kit.contexts import IndexContext
from kvreport.site.kit.drawing import Drawing
from kvreport.site.kit.page import Page, Section, link
from kvreport.site.kit.templating import render
from kvreport.site.pages import claims as ledger_page
from kvreport.site.pages import data as data_page
from kvreport.site.pages import glossary as glossary_page
from kvreport.site.pages import gpu as gpu_page
from kvreport.site.pages import home as home_page
from kvreport.site.pages import index as index_pages
from kvreport.site.pages import log as log_page
from kvreport.site.pages import measured
from kvreport.site.pages import model as model_page
from kvreport.site.pages import model_speed as speed
from kvreport.site.pages import sizer as sizer_page
from kvreport.site.pages import tools as tool_pages
from kvreport.site.pages import validation as validation_page

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


VEGA: Final = "assets/vega.js"


@dataclass(frozen=True)
class Report:
    """A finished report.

    Attributes:
        pages: Every generated page.
        assets: (address, content) of generated files that pages need to be shown.
        files: (address, content) of the files beside the pages: data for the browser, feeds, citation.
        downloads: The dataset's files.
        cache: Folder kept between builds.
    """

    pages: tuple[Page, ...]
    assets: tuple[tuple[str, bytes], ...]
    files: tuple[tuple[str, bytes], ...]
    downloads: Downloads
    cache: Path

    @property
    def file_names(self) -> tuple[str, ...]:
        """Addresses of every file that :meth:`write_files` writes."""
        return (VEGA, *(address for address, _ in self.files), *self.downloads.names())

    def write_files(self, target: Path) -> None:
        """Write the files beside the pages.

        Args:
            target: Folder of the site.
        """
        for address, content in self.files:
            write_whole(target / address, content)
        write_whole(target / VEGA, vega.bundle(self.cache))
        self.downloads.place(target / FOLDER)

    def moved(self, cache: Path) -> Report:
        """Return the report with its files where the cache is now: caches are copied and restored."""
        downloads = self.downloads
        if downloads.files and downloads.folder.is_relative_to(self.cache):
            downloads = replace(downloads, folder=cache / downloads.folder.relative_to(self.cache))
        return replace(self, downloads=downloads, cache=cache)


def build(
    *,
    data: Path | None = None,
    models: str = "*",
    gpus: str = "*",
    cache: Path,
    dataset: bool = True,
    site_url: str = "",
    written: tuple[str, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Make the whole report.

    Args:
        data: Folder of the catalogue; None for the public one.
        models: Pattern that a model's id must match.
        gpus: Pattern that an accelerator's id must match.
        cache: Folder that keeps drawings and files between builds.
        dataset: Whether to write the dataset, the largest part.
        site_url: Where the site will stand, or "".
        written: Addresses of pages that the site has beside the generated ones, for the front page's doors.
        progress: Told how far the build is.

    Raises:
        InputError: The catalogue is at fault, or nothing matches.
    """
    folders = (resources.package_dir(), resources.assets_dir(), *templating.folders())
    state = digest(
        (data or resources.data_dir(), *folders),
        ("altair", "jinja2", "numpy", "pyarrow", "vl-convert-python"),
        models,
        gpus,
        dataset,
        site_url,
        sorted(written),
        os.environ.get("SOURCE_DATE_EPOCH", ""),
        fonts.state(),
    )
    kept = recall(cache / "report", state)
    if isinstance(kept, Report):
        here = kept.moved(cache)
        if here.downloads.complete():
            progress(f"report: {len(here.pages)} pages, nothing has changed since they were made")
            return here
    made = _build(data, models, gpus, cache, site_url, written, progress, dataset=dataset)
    keep(cache / "report", state, made)
    return made


def _build(
    data: Path | None,
    models: str,
    gpus: str,
    cache: Path,
    site_url: str,
    written: tuple[str, ...],
    progress: Callable[[str], None],
    *,
    dataset: bool,
) -> Report:
    catalogue = load_catalogue(data)
    progress(f"catalogue: {len(catalogue.models)} models, {len(catalogue.accelerators)} accelerators")
    version = data_version(catalogue.folder)
    published = (
        prepare(
            catalogue, cache, models=models, gpus=gpus, version=version, site_url=site_url, progress=progress
        )
        if dataset
        else NOTHING
    )
    site = gather(
        catalogue,
        models=models,
        gpus=gpus,
        version=version,
        downloads=published,
        site_url=site_url,
        progress=progress,
    )
    best = {model.id: model_page.best_series(site, model) for model in site.models}
    drawings = drawing.draw(_requests(site, best), cache, site.progress)
    return Report(
        pages=tuple(pages(site, best, drawings, written)),
        assets=(*_assets(cache), *_cards(site, drawings, best)),
        files=tuple(files(site)),
        downloads=published,
        cache=cache,
    )


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every small file beside the pages."""
    yield from profiles.files(site)
    yield from sizer_data.files(site)
    yield from ledger_page.files(site.catalogue).items()
    yield from measured.files(site.catalogue).items()
    yield from validation_page.files(site.catalogue).items()
    yield from feeds.files(site)


def pages(
    site: SiteData,
    best: dict[str, Series | None],
    drawings: dict[str, Drawing],
    written: tuple[str, ...] = (),
) -> Iterator[Page]:
    """Yield every generated page.

    Args:
        site: What every page may ask.
        best: The series of each model's headline, by model id.
        drawings: The charts, by digest.
        written: Addresses of pages that the site has beside these.
    """
    others = tuple(_all_but_home(site, best, drawings))
    yield home_page.page(site, best, drawings, {*(page.uri for page in others), *written})
    yield from others


def _all_but_home(
    site: SiteData, best: dict[str, Series | None], drawings: dict[str, Drawing]
) -> Iterator[Page]:
    yield _index(
        "models/",
        "Models",
        index_pages.models(site),
        drawings,
        "Every model: weights, cache, users",
        names=("models", "model"),
    )
    yield _index(
        "gpus/",
        "GPUs and other accelerators",
        index_pages.gpus(site),
        drawings,
        "Every accelerator",
        names=("GPUs", "GPU", "accelerators"),
    )
    for model in site.models:
        yield model_document(site, model, best[model.id], drawings)
        for old in model.predecessor_ids:
            yield _moved(f"models/{old.replace('/', '--')}/", f"models/{model.slug}/", model.name)
    for gpu in site.gpus:
        yield gpu_document(site, gpu, drawings)
    yield from tool_pages.pages(site)
    yield sizer_page.page(site)
    yield log_page.page(site)
    yield data_page.page(site)
    logs = validation_page.page(site.catalogue)
    if logs is not None:
        yield logs
    ledger = ledger_page.page(site.catalogue)
    if ledger is not None:
        yield ledger
    experiments = measured.page(site.catalogue)
    if experiments is not None:
        yield experiments
    words = glossary_page.page(site.catalogue)
    if words is not None:
        yield words


def _requests(site: SiteData, best: dict[str, Series | None]) -> Iterator[charts.Request]:
    yield index_pages.landscape_request(site)
    for model in site.models:
        made = model_page.boundary_request(site, model, best[model.id])
        if made is not None:
            yield made[0]
    for gpu in site.gpus:
        request = gpu_page.boundary_request(site, gpu)
        if request is not None:
            yield request


def model_document(site: SiteData, model: Model, best: Series | None, drawings: dict[str, Drawing]) -> Page:
    """Return a model's page."""
    uri = f"models/{model.slug}/"
    context = model_page.context(site, model, best)
    names = _names(context) | {"drawing": drawings[context.chart.digest] if context.chart else None}

    def section(anchor: str, title: str, template: str) -> Section:
        return Section(anchor, title, render(template, uri, names))

    conclusion = model_page.plain(context.headline)
    return Page(
        uri=uri,
        kind="model",
        title=f"{model.name}: {conclusion.rstrip('.')}" if best else model.name,
        heading=model.name,
        description=f"{model.name}: {conclusion}",
        lead=render("model/lead.html", uri, names),
        sections=(
            section("boundary", "Where it stops fitting", "model/boundary.html"),
            section("users", "Users on every accelerator", "model/users.html"),
            section("computed", "How it is computed", "model/computed.html"),
            *(
                [Section("speed", "How fast, at best", render("model/speed.html", uri, fast))]
                if (fast := speed.context(site, model, best)) is not None
                else []
            ),
            section("weights", "Weights by format", "model/weights.html"),
            section("serve", "Serve it", "model/serve.html"),
            section("take", "Take the numbers", "model/take.html"),
            section("sources", "Where each input comes from", "model/sources.html"),
            section("neighbours", "Like this one", "model/neighbours.html"),
        ),
        names=_search_names(model),
        boost=2.0,
        card=card_address(model) if context.chart else None,
    )


def card_address(model: Model) -> str:
    """Return the address of the picture that a shared link to a model's page shows."""
    return f"assets/cards/{model.slug}.jpg"


def _search_names(model: Model) -> tuple[str, ...]:
    return tuple(dict.fromkeys([model.id, *model.aliases[:6]]))


def gpu_document(site: SiteData, gpu: Accelerator, drawings: dict[str, Drawing]) -> Page:
    """Return an accelerator's page."""
    uri = f"gpus/{gpu.id}/"
    context = gpu_page.context(site, gpu)
    names = _names(context) | {"drawing": drawings[context.chart.digest] if context.chart else None}

    def section(anchor: str, title: str, template: str, **more: object) -> Section:
        return Section(anchor, title, render(template, uri, names | more))

    return Page(
        uri=uri,
        kind="gpu",
        title=f"{gpu.name}: {model_page.plain(context.headline).rstrip('.')}",
        heading=gpu.name,
        description=f"{gpu.name}: {model_page.plain(context.headline)}",
        lead=render("gpu/lead.html", uri, names),
        sections=(
            section("memory", "How much memory it really has", "gpu/memory.html"),
            section("boundary", "Where models stop fitting", "gpu/boundary.html"),
            section("users", "Users of every model", "gpu/users.html"),
            section("largest", "The largest model that fits", "_only_table.html", table=context.largest),
            section("rates", "Bandwidth and peak rates", "_only_table.html", table=context.rates),
            section("sources", "Where each figure comes from", "gpu/sources.html"),
        ),
        names=tuple(dict.fromkeys([gpu.id, *gpu.aliases])),
        boost=2.0,
        card=None,
    )


def _index(
    uri: str,
    title: str,
    context: IndexContext,
    drawings: dict[str, Drawing],
    description: str,
    *,
    names: tuple[str, ...],
) -> Page:
    given = _names(context) | {
        "facet_values": index_pages.facet_values(context),
        "drawing": drawings[context.chart.digest] if context.chart else None,
    }
    return Page(
        uri=uri,
        kind="index",
        title=title,
        heading=title,
        description=f"{description}. {context.headline}",
        sections=(Section("all", "", render("index/body.html", uri, given)),),
        names=names,
        boost=3.0,
    )


def _moved(uri: str, target: str, name: str) -> Page:
    return Page(
        uri=uri,
        kind="redirect",
        title=name,
        heading=name,
        description=f"{name} has moved.",
        lead=render("moved.html", uri, {"name": name, "target": link(uri, target)}),
        moved_to=target,
    )


def _names(context: DataclassInstance) -> dict[str, Any]:
    return {field.name: getattr(context, field.name) for field in fields(context)}


def _assets(cache: Path) -> Iterator[tuple[str, bytes]]:
    found = False
    for name, content in fonts.web_fonts(cache):
        found = True
        yield f"assets/fonts/{name}", content
    yield "assets/fonts.css", (fonts.STYLE if found else "/* the system's own font */\n").encode()


def _cards(
    site: SiteData, drawings: dict[str, Drawing], best: dict[str, Series | None]
) -> Iterator[tuple[str, bytes]]:
    for model in site.models:
        made = model_page.boundary_request(site, model, best[model.id])
        if made is not None:
            yield card_address(model), drawings[made[0].digest].card
