"""The pages of the site, and the files beside them.

:func:`build` is the site's one entry point: it reads the catalog, gathers the matrix's rows, draws the
charts and returns finished pages. It knows no site engine; an adapter takes it from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.atomic import write_whole
from kvreport.build_cache import code, digest, keep, recall
from kvreport.catalog.load import load_catalog
from kvreport.catalog.record_digests import Records
from kvreport.dataset.data_version import data_version
from kvreport.publish import (
    archive,
    browser,
    embeds,
    engine_changes,
    engine_profiles,
    explorer_data,
    feeds,
    http_headers,
    known_logs,
    own_wheel,
    picker,
    precompute,
    profiles,
    python_runtime,
    question_data,
    schemas,
    sizer_data,
    sql_runtime,
)
from kvreport.publish.compact import compact_script
from kvreport.publish.downloads import FOLDER, NOTHING, Downloads, prepare
from kvreport.publish.kept_values import Parts
from kvreport.publish.page_data import facts_alone, with_rows
from kvreport.publish.site_data import SiteData
from kvreport.publish.tracked_values import Noted, keeping
from kvreport.site.kit import drawing, fonts, markdown, templating, vega
from kvreport.site.kit.page import Page
from kvreport.site.page_type import Inputs
from kvreport.site.pages import (
    api,
    brought_model,
    claims_ledger,
    compare,
    embed,
    engine_releases,
    evidence_page,
    explore,
    glossary_terms,
    gpu,
    home,
    index,
    log_reader,
    machines_at_home,
    measured,
    refusal_messages,
    sizer,
    traffic,
)
from kvreport.site.pages import data as data_page
from kvreport.site.pages.model import model_page as model

_PACKAGES: Final = ("altair", "jinja2", "numpy", "pyarrow", "vl-convert-python")
"""Distributions whose versions decide what is written."""

VEGA: Final = "assets/vega.js"
PAGE_TYPES: Final = (
    index.TYPE,
    model.TYPE,
    gpu.TYPE,
    explore.TYPE,
    compare.TYPE,
    sizer.TYPE,
    brought_model.TYPE,
    traffic.TYPE,
    log_reader.TYPE,
    refusal_messages.TYPE,
    machines_at_home.TYPE,
    data_page.TYPE,
    engine_releases.TYPE,
    evidence_page.TYPE,
    claims_ledger.TYPE,
    measured.TYPE,
    glossary_terms.TYPE,
    api.TYPE,
    home.TYPE,
)
"""Every page type; the front page is last, because its doors lead to the pages that there are."""


@dataclass(frozen=True)
class Report:
    """A finished report.

    Attributes:
        assets: (address, content) of generated files that pages need to be shown.
        files: (address, content) of the files beside the pages: data for the browser, feeds, citation.
    """

    pages: tuple[Page, ...]
    assets: tuple[tuple[str, bytes], ...]
    files: tuple[tuple[str, bytes], ...]
    downloads: Downloads
    before: tuple[archive.ArchivedRelease, ...]
    cache: Path
    version: str = ""

    @property
    def file_names(self) -> tuple[str, ...]:
        """Addresses of every file that :meth:`write_files` writes."""
        return (
            VEGA,
            *(address for address, _ in self.files),
            *self.downloads.names(),
            *(name for one in self._releases for name in one.names),
        )

    @property
    def _releases(self) -> tuple[archive.ArchivedRelease, ...]:
        return archive.joined(self.before, archive.present(self.downloads, self.version))

    def write_files(self, target: Path) -> None:
        """Write the files beside the pages."""
        for address, content in self.files:
            write_whole(target / address, content)
        write_whole(target / VEGA, vega.bundle(self.cache))
        self.downloads.place(target / FOLDER)
        for release in self._releases:
            release.place(target)

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
    releases: Path | None = None,
    site_url: str = "",
    written: tuple[str, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Make the whole report.

    Args:
        data: Folder of the catalog; None for the public one.
        models: Pattern that a model's id must match.
        gpus: Pattern that an accelerator's id must match.
        cache: Folder that keeps drawings and files between builds.
        dataset: Whether to write the dataset, the largest part.
        releases: Folder of the data releases published before: ``data/releases/`` of the site.
        site_url: Where the site will stand, or "".
        written: Addresses of pages that the site has beside the generated ones, for the front page's doors.
        progress: Told how far the build is.

    Raises:
        InputError: The catalog is at fault, nothing matches, or an earlier release is not what it was.
    """
    folders = (resources.package_dir(), resources.assets_dir(), *templating.folders())
    records = data or resources.data_dir()
    settings = (
        gpus,
        dataset,
        site_url,
        sorted(written),
        os.environ.get("SOURCE_DATE_EPOCH", ""),
        fonts.state(),
        python_runtime.RUNTIME.state(cache),
        sql_runtime.RUNTIME.state(cache),
        own_wheel.source_state() if data is None else None,
    )
    before = archive.published(releases)
    earlier = [(one.version, str(one.folder), one.sums) for one in before]
    state = digest((records, *folders), _PACKAGES, models, earlier, *settings)
    kept = recall(cache / "report", state)
    if isinstance(kept, Report):
        here = kept.moved(cache)
        if here.downloads.complete():
            progress(f"report: {len(here.pages)} pages, nothing has changed since they were made")
            return here
    shared = [path for path in sorted(records.iterdir()) if path.name != "models"]
    # What a room below the site computes depends on no page, template or style.
    parts = Parts(cache / "parts", digest(shared, _PACKAGES, *settings, code(without=ABOVE_NUMBERS)))
    state_of_evidence = digest(shared, _PACKAGES, site_url, code(without=ABOVE_NUMBERS))
    noted = Noted(cache / "parts" / "evidence.noted", state_of_evidence, Records({"site": records}))
    with keeping(noted):
        catalog = load_catalog(data)
        progress(f"catalog: {len(catalog.models)} models, {len(catalog.accelerators)} accelerators")
        published = NOTHING
        if dataset:
            published = prepare(
                catalog, cache, models=models, gpus=gpus, site_url=site_url, progress=progress
            )
        version = data_version(catalog.folder)
        facts = facts_alone(catalog, models=models, gpus=gpus, version=version, parts=parts)
        precompute.compute(facts, models, gpus)
        site = replace(
            with_rows(facts, models, gpus),
            downloads=published,
            site_url=site_url,
            progress=progress,
            releases=archive.joined(before, archive.present(published, version)),
        )
        wheel = tuple(own_wheel.files(cache)) if data is None else ()
    made = _report(site, cache, before, written, wheel)
    keep(cache / "report", state, made)
    return made


def _report(
    site: SiteData,
    cache: Path,
    before: tuple[archive.ArchivedRelease, ...],
    written: tuple[str, ...],
    wheel: tuple[tuple[str, bytes], ...],
) -> Report:
    requests = (request for kind in PAGE_TYPES for request in kind.requests(site))
    drawings = drawing.begin(requests, cache, site.progress)
    python, sql = tuple(python_runtime.files(cache)), tuple(sql_runtime.files(cache))
    beside = tuple(files(site))
    inputs = Inputs(
        site,
        drawings,
        runtime_bytes=sum(len(content) for _, content in python),
        sql_bytes=sum(len(content) for _, content in sql),
    )
    finished = pages(inputs, written)
    drawings.finish()
    return Report(
        pages=finished,
        assets=(
            *_assets(cache),
            *python,
            *sql,
            *wheel,
            *(file for kind in PAGE_TYPES for file in kind.assets(inputs)),
        ),
        files=(
            *beside,
            *_twins(finished, site.site_url, site.parts),
            *http_headers.files(),
        ),
        downloads=site.downloads,
        before=before,
        cache=cache,
        version=site.version,
    )


def pages(inputs: Inputs, written: tuple[str, ...] = ()) -> tuple[Page, ...]:
    """Return every generated page, the front page first."""
    made: list[Page] = []
    for kind in PAGE_TYPES:
        addresses = frozenset((*written, *(page.uri for page in made)))
        made += kind.pages(replace(inputs, addresses=addresses))
    return tuple(sorted(made, key=lambda page: page.kind != "home"))


ABOVE_NUMBERS: Final = ("adapters", "cli", "report", "site")
"""Rooms that what is computed for the files beside the pages does not know."""


def _twins(finished: Sequence[Page], site_url: str, parts: Parts) -> list[tuple[str, bytes]]:
    """Return every page's Markdown twin, kept between builds."""
    of_code = code()
    with parts.group("twins") as kept:

        def make(page: Page, address: str) -> str:
            return kept.get(
                parts.key(of_code, *markdown.content(page)), partial(markdown.twin, page, address)
            )

        return list(markdown.files(finished, site_url, make))


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of every small file beside the pages."""
    everything, times = profiles.every_model(site), sizer_data.every_model(site)
    yield from profiles.files(site, everything)
    yield from explorer_data.files(site, [facts for _, facts in everything], times)
    yield from picker.files(site)
    yield from engine_profiles.files(site)
    yield from sizer_data.files(site, times)
    yield from question_data.files(site)
    for kind in PAGE_TYPES:
        yield from kind.files(site)
    yield from feeds.files(site)
    yield from engine_changes.files(site)
    yield from embeds.files(site)
    yield from known_logs.files(site)
    yield from embed.files(site, embeds.CARD)
    yield from schemas.files(site.site_url)


def _assets(cache: Path) -> Iterator[tuple[str, bytes]]:
    yield browser.ADDRESS, compact_script(browser.script()).encode()
    for address in browser.CORES:
        yield address, compact_script(browser.core_script(address)).encode()
    yield browser.LESSONS_ADDRESS, compact_script(browser.lessons_script()).encode()
    found = False
    for name, content in fonts.web_fonts(cache):
        found = True
        yield f"assets/fonts/{name}", content
    yield "assets/fonts.css", (fonts.STYLE if found else "/* the system's own font */\n").encode()
