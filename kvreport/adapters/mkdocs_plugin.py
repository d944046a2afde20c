"""The MkDocs adapter: hands our pages to MkDocs, and does what that host makes necessary.

Order of a build: ``on_config`` adds our assets, ``on_files`` makes the report and announces its
pages, ``on_page_content`` gives MkDocs a page's skeleton (headings, lead and one placeholder per
section; the search index is made from it), ``on_post_page`` puts the sections in, ``on_post_build``
writes the downloads and everything that is not a page. MkDocs never parses our tables: that is 4
to 7 times less work, and an index 6 times smaller.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urljoin

from jinja2 import ChoiceLoader, DictLoader
from mkdocs.config import config_options
from mkdocs.config.base import Config
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_build_date

from kvreport import resources
from kvreport.adapters import head, lost, page_cache, search, translated
from kvreport.adapters.ahead import Ahead
from kvreport.adapters.book import Book, is_chapter, no_foreign_scripts
from kvreport.adapters.bytecode import Bytecode
from kvreport.adapters.generated import GeneratedPage, anchors, front_matter
from kvreport.adapters.mount import DEFAULT, Mount
from kvreport.adapters.notebooks import Notebooks, notebooks
from kvreport.adapters.page_cache import Finished, PageCache
from kvreport.adapters.policy import Policy, digests
from kvreport.adapters.staging import Staging, stage, warned
from kvreport.adapters.styles import BOOK, SHARED, Styles
from kvreport.book import glossary
from kvreport.book.quantities import Quantities
from kvreport.build_cache import code, digest
from kvreport.catalog.load import open_catalog
from kvreport.catalog.parsed import Parsed
from kvreport.catalog.record_cache import recall_models
from kvreport.catalog.records import MODELS, Records
from kvreport.catalog.shelf import KEEPING
from kvreport.dataset.release import data_version
from kvreport.errors import Fault, InputError
from kvreport.processes import exit_on_signals
from kvreport.publish import long_tables
from kvreport.publish.compact import compact_script, compact_style
from kvreport.publish.noted import Noted
from kvreport.publish.parts import Parts
from kvreport.publish.pruned_style import Named
from kvreport.site.build import Report, build
from kvreport.site.kit import fonts, links, templating
from kvreport.site.kit.page import Page, Section, link
from kvreport.words import worded

if TYPE_CHECKING:
    from jinja2 import Environment
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page as HostPage

log = logging.getLogger("mkdocs.plugins.kvreport")
_INDENTS = re.compile(r"\n\s+")
_SOURCE_MAP = re.compile(r"assets/(?:javascripts|stylesheets)/.*\.map")
_SCRIPT = re.compile(r"<script src=(?=\"[^\"]*assets/)")
_THEME_SCRIPT = re.compile(r"<script src=(\"[^\"]*assets/javascripts/bundle\.[^\"]*\")></script>")

# The theme's search opens as a dialog without a name, so a screen reader announces nothing.
_NAMED_DIALOG = (
    'data-md-component="search" role="dialog"',
    f'data-md-component="search" role="dialog" aria-label="{worded("Search")}"',
)

_GARBAGE: Final = 200_000
"""Values made between two searches for garbage, where Python has 700."""

STYLES = ("assets/fonts.css", SHARED, BOOK)
SCRIPTS = ("assets/kvreport.js",)
COMPACT: Final[dict[str, Callable[[str], str]]] = {".js": compact_script, ".css": compact_style}


class KvreportConfig(Config):
    """What ``mkdocs.yml`` may say under ``plugins: - kvreport:``.

    Attributes:
        catalog: Folder of the catalog; the public one if left out.
        catalogue: What ``catalog`` was called; it goes with release 0.3.
        models: Pattern that a model's id must match to be published.
        gpus: Pattern that an accelerator's id must match to be published.
        prefix: Where everything generated stands in a project that has pages of its own, which are then
            left alone; ``capacity`` if the project has a home page and names none.
        cache: Folder that keeps drawn charts and computed files between builds.
        downloads: Whether to write the dataset beside the pages.
        releases: Folder of the data releases published before, ``data/releases/`` of the published site; they
            are checked and stay at their addresses.
        templates: Folder whose templates replace the package's of the same name.
        policy: Whether every page states a Content-Security-Policy.
        prose: List of the quantities that may stand in prose uncomputed; without it none is looked for.
        translation: The interface's words in another language, a ``.po`` file of gettext.
    """

    catalog = config_options.Optional(config_options.Dir(exists=True))
    catalogue = config_options.Optional(config_options.Dir(exists=True))
    models = config_options.Type(str, default="*")
    gpus = config_options.Type(str, default="*")
    prefix = config_options.Type(str, default="")
    cache = config_options.Type(str, default=".cache/kvreport")
    downloads = config_options.Type(bool, default=True)
    releases = config_options.Optional(config_options.Dir(exists=True))
    templates = config_options.Optional(config_options.Dir(exists=True))
    policy = config_options.Type(bool, default=True)
    prose = config_options.Optional(config_options.File(exists=True))
    translation = config_options.Optional(config_options.File(exists=True))


class KvreportPlugin(BasePlugin[KvreportConfig]):
    """``plugins: - kvreport`` in any ``mkdocs.yml``."""

    def __init__(self) -> None:
        super().__init__()
        self._collects = gc.get_threshold()
        self.report: Report | None = None
        self.pages: dict[str, Page] = {}
        self.known: set[str] = set()
        self.book: Book | None = None
        self.policy: Policy | None = None
        self.styles: Styles | None = None
        self.notebooks: Notebooks | None = None
        self.staging: Staging | None = None
        self.ahead: Ahead | None = None
        self.mount = Mount()
        self.publishes = False
        self.searched: dict[str, list[search.Doc]] | None = None
        self.nav: Navigation | None = None
        self.page_cache: PageCache | None = None
        self.records: Records | None = None
        self.bytecode: list[Bytecode] = []
        self.keys: dict[str, bytes] = {}
        self.kept: dict[str, Finished] = {}
        self.tags: dict[str, str] = {}
        self.rows: dict[str, str] = {}

    def on_startup(self, *, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
        """Learn whether a whole site is built, or a preview is kept up to date."""
        self.publishes = command != "serve" and not dirty
        exit_on_signals()
        if self.publishes:
            # A build makes millions of values that live to its end; looking for garbage among them finds little.
            gc.set_threshold(_GARBAGE, *self._collects[1:])

    def on_shutdown(self) -> None:
        """Look for garbage as often as before."""
        gc.set_threshold(*self._collects)

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Add our styles and script, wherever the site's own assets are; in a foreign project, nothing.

        Raises:
            PluginError: The prefix is no address.
        """
        if self.config.translation is not None:
            catalog = Path(self.config.translation)
            if resources.language() is None:
                fresh: KvreportPlugin = translated.handed_over(self, catalog, self._cache(config), config)
                return fresh.on_config(config)
            translated.localize(catalog, config)
        if self.config.catalogue is not None and self.config.catalog is None:
            log.info("kvreport: the option `catalogue` is now `catalog`; the old name goes with 0.3")
            self.config.catalog = self.config.catalogue
        try:
            self.mount = Mount(self.config.prefix or (DEFAULT if _has_home(config) else ""))
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error
        self.staging = stage(Path(config.site_dir)) if self.publishes else None
        self._keep_parsed(config)
        if self.staging is not None:
            config.site_dir = str(self.staging.folder)
        self.policy = self.notebooks = self.styles = None
        if self.mount.foreign:
            log.info(
                "kvreport: every generated page is under %s; the project's own are untouched",
                self.mount.prefix,
            )
            return config
        for place, style in enumerate(STYLES):
            if style not in config.extra_css:
                config.extra_css.insert(place, style)
        present = {str(script) for script in config.extra_javascript}
        config.extra_javascript[:0] = [script for script in SCRIPTS if script not in present]
        data = Path(self.config.catalog) if self.config.catalog else resources.data_dir()
        no_foreign_scripts(config)
        if self.publishes:
            self.styles = Styles()
        if self.config.policy:
            # Columns are aligned by an attribute; a style in the page would be refused.
            config.mdx_configs.setdefault("tables", {}).setdefault("use_align_attribute", True)
        catalogs = {"public": resources.data_dir(), "site": data}
        self.records = Records(catalogs)
        self.notebooks = notebooks(config, (resources.package_dir(),), catalogs, self.records)
        return config

    def on_files(self, files: Files, config: MkDocsConfig) -> Files:
        """Make the report and announce its pages and assets.

        Raises:
            PluginError: The catalog or the configuration is at fault; the message says where.
        """
        if not self.mount.foreign:
            ours = "search" in config.plugins or "material/search" in config.plugins
            self.searched = {} if ours and search.install(files, config) else None
            self._take_book(files, config)
        if self.publishes and self.book is not None:
            self.ahead = Ahead(config, len(self.book.titles))
        cache = self._cache(config)
        templating.override(Path(self.config.templates) if self.config.templates else None)
        self.bytecode = []
        if self.publishes:
            self.bytecode.append(Bytecode(cache / "parts" / "templates.bytecode"))
            templating.environment().bytecode_cache = self.bytecode[0]
        try:
            self.report = build(
                data=Path(self.config.catalog) if self.config.catalog else None,
                models=self.config.models,
                gpus=self.config.gpus,
                cache=cache,
                dataset=self.config.downloads,
                releases=Path(self.config.releases) if self.config.releases else None,
                site_url=urljoin(config.site_url, self.mount.prefix) if config.site_url else "",
                written=()
                if self.mount.foreign
                else tuple(file.url for file in files.documentation_pages() if file.name == "index"),
                progress=log.info,
            )
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error
        self.pages, self.keys, self.kept, self.tags = {}, {}, {}, {}
        for page in self.report.pages:
            uri = self.mount.at(f"{page.uri}index.md")
            known = files.get_file_from_path(uri)
            if known is not None:
                raise PluginError(
                    f"kvreport: {uri} is written by hand and generated; remove one, or set prefix: to a folder "
                    "that the project does not have"
                )
            self.pages[uri] = page
            in_nav = page.kind not in ("model", "gpu", "redirect")
            level = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
            ours = self.searched is not None
            content = front_matter(page, searched=ours) if in_nav else ""
            file = File.generated(config, uri, content=content, inclusion=level)
            files.append(file)
            if not in_nav:
                GeneratedPage(page, file, config, searched=ours)
        for path in sorted(resources.assets_dir().rglob("*")):
            if path.is_file():
                self._take_asset(path, files, config)
        for uri, asset in self.report.assets:
            files.append(File.generated(config, self.mount.at(uri), content=asset))
        if not self.mount.foreign:
            for file in [file for file in files if _SOURCE_MAP.fullmatch(file.src_uri)]:
                files.remove(file)  # for whoever develops the theme; more than a megabyte
        self.known = {file.url if file.is_documentation_page() else file.dest_uri for file in files}
        self.known = {"" if url in (".", "./") else url.removesuffix("index.html") for url in self.known}
        self.known |= {*map(self.mount.at, self.report.file_names), "search/search_index.json"}
        return files

    def _keep_parsed(self, config: MkDocsConfig) -> None:
        """Parse each file of facts once, whatever build reads it."""
        KEEPING.clear()
        if self.publishes:
            KEEPING.append(Parsed(self._cache(config) / "parts" / "yaml.parsed"))

    def _cache(self, config: MkDocsConfig) -> Path:
        """The folder that is kept between builds."""
        return Path(config.config_file_path or ".").parent / self.config.cache

    def _take_asset(self, path: Path, files: Files, config: MkDocsConfig) -> None:
        """Announce one of our assets, scripts and styles without comments; a project's own file goes first."""
        uri = self.mount.at(f"assets/{path.relative_to(resources.assets_dir()).as_posix()}")
        known = files.get_file_from_path(uri)
        ours = resources.original_assets_dir() / path.relative_to(resources.assets_dir())
        if known is not None and (known.abs_src_path is None or not ours.samefile(known.abs_src_path)):
            return
        shorten = COMPACT.get(path.suffix)
        if shorten is None:
            if known is None:
                files.append(File.generated(config, uri, abs_src_path=str(path)))
            return
        if known is not None:
            files.remove(known)
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=shorten(text)))

    def _take_book(self, files: Files, config: MkDocsConfig) -> None:
        """Take what is written by hand, and refuse quantities that nothing computes.

        It costs little and comes first, so that a slip in a page is told before the long work.
        """
        catalog = open_catalog(Path(self.config.catalog) if self.config.catalog else None)
        if self.publishes:
            recall_models(catalog, self._cache(config) / "records")
        terms = catalog.folder / "glossary.yaml"
        try:
            self.book = Book(Quantities(catalog), glossary.load_glossary(terms) if terms.is_file() else ())
            if self.publishes and self.records is not None:
                shared = (path for path in sorted(catalog.folder.iterdir()) if path.name != MODELS)
                state = digest(shared, (), code(without=("cli", "publish", "site")))
                self.book.kept = Noted(self._cache(config) / "parts" / "book.noted", state, self.records)
            self.book.take(files, config)
            self._refuse(self.book.check_prose(Path(self.config.prose)) if self.config.prose else [])
            for uri, content in self.book.pack(config):
                files.append(File.generated(config, uri, content=content))
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error

    def _refuse(self, faults: list[Fault]) -> None:
        """Stop the build, all faults at once.

        Raises:
            PluginError: If there are any.
        """
        if faults:
            raise PluginError("kvreport:\n" + "\n".join(str(fault) for fault in faults))

    def on_nav(self, nav: Navigation, *, config: MkDocsConfig, files: Files) -> None:
        """Remember the navigation, which every page shows."""
        self.nav = nav

    def on_env(self, env: Environment, *, config: MkDocsConfig, files: Files) -> None:
        """Date every page, and leave those that have not changed as they are kept."""
        if self.report is None:
            return
        self._date(files)
        if self.nav is None or not self.publishes or self.mount.foreign or not page_cache.usable(config):
            return
        self.bytecode.append(Bytecode(self._cache(config) / "parts" / "theme.bytecode"))
        env.bytecode_cache = self.bytecode[-1]
        env.loader = ChoiceLoader(
            [DictLoader({page_cache.TEMPLATE: "kept"}), *([env.loader] if env.loader else [])]
        )
        partly = (self.config.models, self.config.gpus) != ("*", "*")
        self.page_cache = PageCache(
            self._cache(config) / "pages",
            page_cache.frame(
                config,
                self.nav,
                self.styles.own if self.styles is not None else None,
                [face in self.known for face in map(self.mount.at, fonts.ADDRESSES)],
                sorted(self.known) if partly else None,
                self.config.policy,
            ),
        )
        for file in files.documentation_pages():
            page = file.page
            if page is None:
                continue
            ours = self.pages.get(file.src_uri)
            key = self.page_cache.key(page, ours, self._tags(ours, config) if ours is not None else "")
            self.keys[file.src_uri] = key
            if self.searched is not None:
                page.meta["search"] = {"exclude": True}  # the index is ours, and has read it
            found = self.page_cache.find(page.url, key)
            if found is not None:
                self.kept[file.src_uri] = found
                page.meta["template"] = page_cache.TEMPLATE

    def _date(self, files: Files) -> None:
        """Date every page by the data's release: by the clock, no two days would give the same site."""
        if "SOURCE_DATE_EPOCH" in os.environ:
            return
        data = Path(self.config.catalog) if self.config.catalog else resources.data_dir()
        day = data_version(data).replace(".", "-")
        for file in files.documentation_pages():
            ours = not self.mount.foreign or file.src_uri in self.pages
            if ours and file.page is not None and file.page.update_date == get_build_date():
                file.page.update_date = day

    def on_pre_page(self, page: HostPage, *, config: MkDocsConfig, files: Files) -> HostPage:
        """Wait for the chapters before the first of them is rendered."""
        if self.ahead is not None and is_chapter(page.file.src_uri):
            self.ahead.wait()
            if self.notebooks is not None:
                self.notebooks.keep()
        return page

    @event_priority(50)
    def on_page_content(self, html: str, page: HostPage, config: MkDocsConfig, files: Files) -> str:
        """Give MkDocs the skeleton: what is searched, and where the sections will go."""
        ours = self.pages.get(page.file.src_uri)
        if ours is None:
            if self.notebooks is not None and is_chapter(page.file.src_uri):
                self.notebooks.keep()
            if self.book is None:
                return html
            html, dead, faults = self.book.finish(html, page)
            self._index_written(page, html, self.book.names(page.file.src_uri))
            for fault in dead:
                log.warning(fault)
            self._refuse(faults)
            return html
        if self.searched is not None and ours.moved_to is None:
            decided = ("generated", _address(page), *page_cache.texts(ours), *ours.names, str(ours.boost))
            self.searched[page.file.src_uri] = self._indexed(
                decided, lambda: search.generated(ours, _address(page))
            )
        if not isinstance(page, GeneratedPage):
            page.present_anchor_ids = anchors(ours)
        page.toc = get_toc(_toc(ours))  # type: ignore[arg-type]
        return _skeleton(ours)

    def _index_written(self, page: HostPage, html: str, names: tuple[str, ...]) -> None:
        """Give the search what a page written by hand says."""
        told = page.meta.get("search") or {}
        if self.searched is None or told.get("exclude"):
            return
        text = str(page.meta.get("description") or "")
        boost = float(told.get("boost", 0.5 if page.file.src_uri.startswith("adr/") else 1))
        title = str(page.title or page.file.name)
        told = (_address(page), title, text, names, html, boost)
        decided = ("written", _address(page), title, text, html, str(boost), *names)
        self.searched[page.file.src_uri] = self._indexed(decided, lambda: search.written(*told))

    def _indexed(self, decided: tuple[str, ...], make: Callable[[], list[search.Doc]]) -> list[search.Doc]:
        """Return a page's entries of the index, kept between builds: reading pages of tables takes long."""
        if self.book is None or self.book.kept is None:
            return make()
        return self.book.kept.get(f"index {Parts(None).key(*decided).hex()}", make)

    def _on_post_page_sections(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Put the sections in, and what a shared link shows."""
        uri = page.file.src_uri
        kept = self.kept.get(uri)
        if kept is not None:
            for fault in links.dead(_address(page), kept.links, self.known):
                log.warning(fault)
            return kept.html
        ours = self.pages.get(uri)
        if ours is not None:
            # The theme indents what it prints; on hundreds of pages that is megabytes of spaces.
            output = _INDENTS.sub("\n", output)
            for number, section in enumerate(ours.sections):
                output = output.replace(_placeholder(number), section.html, 1)
            output = output.replace("</head>", f"{self._tags(ours, config)}</head>", 1)
            if self.mount.foreign:
                output = self.mount.dressed(output, page.url, STYLES, SCRIPTS)
            if self.mount.foreign or (self.config.models, self.config.gpus) != ("*", "*"):
                output = self.mount.closed(output, page.url, self.known)
        elif self.mount.foreign:
            return output
        output = _deferred(output.replace(*_NAMED_DIALOG, 1))
        output = _fonts_first(output, page.url, self.known, self.mount)
        if self.report is not None:
            for fault in links.check(_address(page), output, self.known):
                log.warning(fault)
        return output

    def _tags(self, ours: Page, config: MkDocsConfig) -> str:
        """Return what goes to the head of a generated page."""
        if ours.uri not in self.tags:
            base = urljoin(config.site_url, self.mount.prefix) if config.site_url else ""
            release = self.report.version if self.report else ""
            self.tags[ours.uri] = head.tags(ours, base, release, config.repo_url or "", self.known)
        return self.tags[ours.uri]

    @event_priority(-100)
    def _on_post_page_policy(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Leave out of the finished page the styles that it does not use, and state what it may run."""
        uri = page.file.src_uri
        kept = self.kept.get(uri)
        if kept is not None and self.styles is not None:
            self.styles.learn(kept.named)
            if self.policy is None or self.policy.allows(kept.scripts, kept.styles):
                return output if self.policy is None else self.policy.applied(output)
        named = None
        if kept is None and self.styles is not None:
            named = Named.by(output)
            output = self.styles.applied(output, named)
        told = False
        for kind, text in self._refused(output):
            told = True
            log.warning(
                "%s: a %s in the page, which its policy refuses (%s…): put it into a file, or set policy: false",
                uri,
                kind,
                text,
            )
        if self.page_cache is not None and named is not None and uri in self.keys and not told:
            leads = tuple(links.targets(_address(page), output))
            self.page_cache.keep(page.url, self.keys[uri], Finished(output, named, leads, *digests(output)))
        return output if self.policy is None else self.policy.applied(output)

    def _refused(self, output: str) -> Iterator[tuple[str, str]]:
        """Yield the beginning of every script and style that the policy refuses."""
        if self.policy is not None:
            yield from (("script", text) for text in self.policy.refused(output))
            yield from (("style", text) for text in self.policy.unstyled(output))

    @event_priority(-200)
    def _on_post_page_rows(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Leave the further rows of large tables to plain pages, which are written with the site."""
        if self.mount.foreign or page.file.src_uri not in self.pages:
            return output
        here = _address(page)
        output, plain = long_tables.apart(output, link(here, SHARED))
        for name, text in plain.items():
            self.rows[f"{here}{name}"] = text if self.policy is None else self.policy.applied(text)
        return output

    on_post_page = CombinedEvent(_on_post_page_sections, _on_post_page_policy, _on_post_page_rows)

    @event_priority(-100)
    def on_post_template(self, output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
        """Make the page for unknown addresses helpful, and take the theme's scripts from it: the theme writes it alone."""
        if template_name != "404.html" or self.mount.foreign:
            return output_content
        output = lost.page(
            _deferred(output_content.replace(*_NAMED_DIALOG, 1)), config.site_url or "/", self.known
        )
        if self.styles is not None:
            output = self.styles.applied(output)
        if not self.config.policy:
            return output
        self.policy = Policy(output, preview=not self.publishes)
        return self.policy.applied(output)

    def _on_post_build_write(self, config: MkDocsConfig) -> None:
        """Write the downloads, the feed and the machine-readable files beside the pages."""
        if self.report is None:
            return
        self.report.write_files(Path(config.site_dir) / self.mount.prefix)
        for uri, text in self.rows.items():
            (Path(config.site_dir) / uri).write_text(text, encoding="utf-8", newline="\n")
        self.rows.clear()

    @event_priority(-50)
    def _on_post_build_search(self, config: MkDocsConfig) -> None:
        """Write the search's index after the host has written its own."""
        if self.searched is not None:
            search.write(Path(config.site_dir), (doc for docs in self.searched.values() for doc in docs))

    @event_priority(-100)
    def _on_post_build_publish(self, config: MkDocsConfig) -> None:
        """Prune the styles and put the site in its place, unless the host is about to refuse it for its warnings."""
        if self.notebooks is not None:
            self.notebooks.finish()
        for compiled in self.bytecode:
            compiled.finish()
        for parsed in KEEPING:
            parsed.finish()
        KEEPING.clear()
        if self.book is not None and self.book.kept is not None:
            self.book.kept.finish()
        if self.page_cache is not None:
            self.page_cache.finish()
            self.page_cache = None
        if self.styles is not None:
            self.styles.prune_theme(Path(config.site_dir))
        if self.staging is None:
            return
        config.site_dir = str(self.staging.place)
        if config.strict and warned():
            self.staging.discard()
        else:
            self.staging.publish()

    on_post_build = CombinedEvent(_on_post_build_write, _on_post_build_search, _on_post_build_publish)

    def on_build_error(self, *, error: Exception) -> None:
        """Leave the last good site where it stands."""
        KEEPING.clear()
        if self.ahead is not None:
            self.ahead.stop()
        if self.notebooks is not None:
            self.notebooks.close()
        if self.staging is not None:
            self.staging.discard()


def _skeleton(page: Page) -> str:
    parts = [f'<h1 id="top">{escape(page.heading)}</h1>', '<div class="kv-share-place"></div>', page.lead]
    for number, section in enumerate(page.sections):
        parts.append(_heading(section) + _placeholder(number))
    return "\n".join(parts)


def _heading(section: Section) -> str:
    if not section.title:
        return ""
    mark = f'<a class="headerlink" href="#{section.id}" title="Link to this section">¶</a>'
    return f'<h2 id="{section.id}" data-search-exclude="true">{escape(section.title)}{mark}</h2>\n'


def _has_home(config: MkDocsConfig) -> bool:
    """Whether a project has a home page of its own."""
    return any(Path(config.docs_dir, name).is_file() for name in ("index.md", "README.md"))


def _fonts_first(output: str, url: str, known: Collection[str], mount: Mount) -> str:
    """Ask for the faces before the styles that name them."""
    here = "" if url in (".", "./") else url
    ask = "".join(
        f'<link rel="preload" href="{link(here, face)}" as="font" type="font/woff2" crossorigin>'
        for face in map(mount.at, fonts.ADDRESSES)
        if face in known
    )
    return output.replace("<title>", f"{ask}<title>", 1)


def _deferred(output: str) -> str:
    """Let scripts wait until a page stands. Ours starts the theme's, the larger one, when the page has been seen."""
    if "assets/kvreport.js" in output:
        output = _THEME_SCRIPT.sub(
            r'<link rel="preload" as="script" fetchpriority="low" data-kv-theme href=\1>', output, count=1
        )
    return _SCRIPT.sub("<script defer src=", output)


def _address(page: HostPage) -> str:
    return "" if page.url in (".", "./") else page.url


def _placeholder(number: int) -> str:
    return f"<!-- kv:section {number} -->"


def _toc(page: Page) -> list[dict[str, Any]]:
    sections = [
        {"level": 2, "id": s.id, "name": escape(s.title), "children": []} for s in page.sections if s.title
    ]
    return [{"level": 1, "id": "top", "name": escape(page.heading), "children": sections}]
