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
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urljoin, urlsplit

from jinja2 import ChoiceLoader, DictLoader
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.toc import get_toc

from kvreport import resources
from kvreport.adapters import assets, meta_tags, not_found_page, page_cache, search_index, theme_patches
from kvreport.adapters.book import Book, is_chapter, no_foreign_scripts, open_book, refuse
from kvreport.adapters.generated import GeneratedPage, anchors, announce, date, published
from kvreport.adapters.notebooks import Notebooks, notebooks
from kvreport.adapters.page_cache import Finished, PageCache
from kvreport.adapters.plugin_settings import KvreportConfig
from kvreport.adapters.policy import Policy, digests
from kvreport.adapters.run_chapters import Ahead
from kvreport.adapters.skeleton import address, filled, outline, shared, skeleton
from kvreport.adapters.staging import Staging, refusal, stage, warned
from kvreport.adapters.styles import SHARED, Styles
from kvreport.adapters.url_prefix import Mount, usual_prefix
from kvreport.atomic import write_whole
from kvreport.build_cache import code
from kvreport.catalog.load import open_catalog
from kvreport.catalog.record_digests import Records
from kvreport.errors import InputError
from kvreport.processes import COLLECTION_THRESHOLD, exit_on_signals
from kvreport.publish import long_tables
from kvreport.publish.embeds import UNKNOWN_SITE
from kvreport.publish.kept_values import Parts
from kvreport.site.build import Report, build
from kvreport.site.kit import fonts, links, templating
from kvreport.site.kit.page import Page, link

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page as HostPage

log = logging.getLogger("mkdocs.plugins.kvreport")


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
        self.place = Path()
        self.staging: Staging | None = None
        self.ahead: Ahead | None = None
        self.mount = Mount()
        self.publishes = False
        self.index: search_index.SearchIndex | None = None
        self.nav: Navigation | None = None
        self.page_cache: PageCache | None = None
        self.records: Records | None = None
        self.keys: dict[str, bytes] = {}
        self.kept: dict[str, Finished] = {}
        self.tags: dict[str, str] = {}
        self.rows: dict[str, str] = {}

    def on_startup(self, *, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
        """Learn whether a whole site is built, or a preview is kept up to date."""
        self.publishes = command != "serve" and not dirty
        exit_on_signals()
        if self.publishes:
            # A build makes millions of values that live to its end.
            gc.set_threshold(COLLECTION_THRESHOLD, *self._collects[1:])

    def on_shutdown(self) -> None:
        """Look for garbage as often as before."""
        gc.set_threshold(*self._collects)

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Add our styles and script, wherever the site's own assets are; in a foreign project, nothing.

        Raises:
            PluginError: The prefix is no address.
        """
        try:
            self.mount = Mount(self.config.prefix or usual_prefix(Path(config.docs_dir)))
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error
        self.place = Path(config.site_dir)
        self.staging = stage(self.place) if self.publishes else None
        if self.staging is not None:
            config.site_dir = str(self.staging.folder)
        self.policy = self.notebooks = self.styles = None
        if self.mount.foreign:
            log.info("kvreport: every generated page is under %s, no other is touched", self.mount.prefix)
            return config
        assets.announce(config)
        if self.publishes:
            self._say_what_is_missing(config)
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

    def _say_what_is_missing(self, config: MkDocsConfig) -> None:
        """Say which settings would make pages better; a build without them is no fault."""
        if not config.site_url or config.site_url.startswith(UNKNOWN_SITE):
            log.info(
                "kvreport: site_url is not set: snippets and citations say %s (here: KVREPORT_SITE_URL)",
                UNKNOWN_SITE,
            )
        if not config.repo_url:
            log.info(
                "kvreport: repo_url is not set: no page has a button that opens an issue for a wrong number"
            )

    def on_files(self, files: Files, config: MkDocsConfig) -> Files:
        """Make the report and announce its pages and assets.

        Raises:
            PluginError: The catalog or the configuration is at fault; the message says where.
        """
        if self.mount.foreign:
            pages = (file for file in files.documentation_pages() if not file.generated_by)
            self._refuse(file.src_uri for file in pages if file.dest_uri.startswith(self.mount.prefix))
        else:
            ours = "search" in config.plugins or "material/search" in config.plugins
            self.index = search_index.SearchIndex() if ours and search_index.install(files, config) else None
            self._take_book(files, config)
            if self.index is not None and self.book is not None:
                self.index.kept = self.book.kept
        if self.publishes and self.book is not None:
            self.ahead = Ahead(config, len(self.book.titles))
        cache = self._cache(config)
        try:
            templating.override(Path(self.config.templates) if self.config.templates else None)
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error
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
        # By address and not by source: guide.md and guide/index.md are published as the same file.
        by_hand = {file.dest_uri: file.src_uri for file in files}
        if self.mount.foreign:
            self._refuse(by_hand.get(name) for name in map(self.mount.at, self.report.file_names))
        for page in self.report.pages:
            uri = self.mount.at(f"{page.uri}index.md")
            self._refuse([by_hand.get(File.generated(config, uri, content="").dest_uri)])
            self.pages[uri] = page
            announce(page, uri, files, config, searched=self.index is not None)
        shortened = Parts(cache / "parts" if self.publishes else None, code())
        with shortened.group("assets") as kept:
            assets.take(files, config, self.mount, kept, shortened.key)
        for uri, asset in self.report.assets:
            files.append(File.generated(config, self.mount.at(uri), content=asset))
        self.known = {one.removesuffix("index.html") for one in map(published, files)}
        self.known |= {*map(self.mount.at, self.report.file_names), "search/search_index.json"}
        return files

    def _refuse(self, sources: Iterable[str | None]) -> None:
        """Refuse files of the project that stand where the report publishes."""
        for source in sources:
            if source is not None:
                raise PluginError(
                    f"kvreport: {source} is written by hand and its address is one of the generated pages"
                    f"{f' (prefix: {self.mount.prefix})' if self.mount.foreign else ''}; remove one, or set prefix: "
                    "to a folder that the project does not have"
                )

    def _cache(self, config: MkDocsConfig) -> Path:
        """The folder that is kept between builds."""
        return Path(config.config_file_path or ".").parent / self.config.cache

    def _take_book(self, files: Files, config: MkDocsConfig) -> None:
        """Take what is written by hand, and refuse quantities that nothing computes.

        It costs little and comes first, so that a slip in a page is told before the long work.
        """
        catalog = open_catalog(Path(self.config.catalog) if self.config.catalog else None)
        try:
            self.book = open_book(
                catalog, self._cache(config) / "parts", self.records if self.publishes else None
            )
            self.book.take(files, config)
            refuse(self.book.check_prose(Path(self.config.prose)) if self.config.prose else [])
            for uri, content in self.book.pack(config):
                files.append(File.generated(config, uri, content=content))
        except InputError as error:
            raise PluginError(f"kvreport: {error}") from error

    def on_nav(self, nav: Navigation, *, config: MkDocsConfig, files: Files) -> None:
        """Remember the navigation, which every page shows."""
        self.nav = nav

    def on_env(self, env: Environment, *, config: MkDocsConfig, files: Files) -> None:
        """Date every page, and leave those that have not changed as they are kept."""
        if self.report is None:
            return
        data = Path(self.config.catalog) if self.config.catalog else resources.data_dir()
        date(files.documentation_pages(), data, self.pages if self.mount.foreign else None)
        if self.nav is None or not self.publishes or self.mount.foreign or not page_cache.usable(config):
            return
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
        self.keys, self.kept = self.page_cache.recall(
            files.documentation_pages(),
            self.pages,
            lambda ours: self._tags(ours, config),
            searched=self.index is not None,
        )

    def on_pre_page(self, page: HostPage, *, config: MkDocsConfig, files: Files) -> HostPage:
        """Wait for the chapters before the first of them is rendered."""
        if is_chapter(page.file.src_uri) and self.ahead is not None:
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
            if self.index is not None:
                self.index.take_written(page, html, self.book.names(page.file.src_uri))
            for fault in dead:
                log.warning(fault)
            refuse(faults)
            return html
        if self.index is not None and ours.moved_to is None:
            self.index.take_generated(ours, address(page.url), page.file.src_uri)
        if not isinstance(page, GeneratedPage):
            page.present_anchor_ids = anchors(ours)
        page.toc = get_toc(outline(ours))  # type: ignore[arg-type]
        return skeleton(ours)

    def _on_post_page_sections(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Put the sections in, and what a shared link shows."""
        uri = page.file.src_uri
        kept = self.kept.get(uri)
        if kept is not None:
            for fault in links.dead(address(page.url), kept.links, self.known):
                log.warning(fault)
            return kept.html
        ours = self.pages.get(uri)
        if ours is not None:
            output = filled(output, ours, self._tags(ours, config))
            if self.mount.foreign:
                output = self.mount.dressed(output, page.url, assets.STYLES, assets.SCRIPTS)
            if self.mount.foreign or (self.config.models, self.config.gpus) != ("*", "*"):
                output = self.mount.closed(output, page.url, self.known)
        elif self.mount.foreign:
            return output
        else:
            output = shared(output, self._tags(None, config))
        output = theme_patches.whole_options(theme_patches.waiting(output))
        output = theme_patches.fonts_first(output, page.url, self.known, self.mount)
        if self.report is not None:
            for fault in links.check(address(page.url), output, self.known):
                log.warning(fault)
        return output

    def _tags(self, ours: Page | None, config: MkDocsConfig) -> str:
        """Return what goes to the head of a page: a generated one, or None for one that is written by hand."""
        release = self.report.version if self.report else ""
        base = urljoin(config.site_url, self.mount.prefix) if config.site_url else ""
        if ours is None:
            return meta_tags.tools(release, config.repo_url or "") + meta_tags.picture(base, None, self.known)
        if ours.uri not in self.tags:
            self.tags[ours.uri] = meta_tags.tags(ours, base, release, config.repo_url or "", self.known)
        return self.tags[ours.uri]

    @event_priority(-100)
    def _on_post_page_policy(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Leave out of the finished page the styles that it does not use, and state what it may run."""
        uri = page.file.src_uri
        kept = self.kept.get(uri)
        if kept is not None and (self.policy is None or self.policy.allows(kept.scripts, kept.styles)):
            return output if self.policy is None else self.policy.applied(output)
        if kept is None and self.styles is not None:
            output = self.styles.applied(output)
        told = False
        for kind, text in self.policy.faults(output) if self.policy is not None else ():
            told = True
            log.warning(
                "%s: a %s in the page, which its policy refuses (%s…): put it into a file, or set policy: false",
                uri,
                kind,
                text,
            )
        if self.page_cache is not None and kept is None and uri in self.keys and not told:
            leads = tuple(links.targets(address(page.url), output))
            self.page_cache.keep(self.keys[uri], Finished(output, leads, *digests(output)))
        return output if self.policy is None else self.policy.applied(output)

    @event_priority(-200)
    def _on_post_page_rows(self, output: str, page: HostPage, config: MkDocsConfig) -> str:
        """Leave the further rows of large tables to plain pages, which are written with the site."""
        if self.mount.foreign or page.file.src_uri not in self.pages:
            return output
        here = address(page.url)
        output, plain = long_tables.apart(output, link(here, SHARED))
        for name, text in plain.items():
            self.rows[f"{here}{name}"] = text if self.policy is None else self.policy.applied(text)
        return output

    on_post_page = CombinedEvent(_on_post_page_sections, _on_post_page_policy, _on_post_page_rows)

    @event_priority(-100)
    def on_post_template(self, output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
        """Make the page for unknown addresses helpful, and take the theme's scripts from it: the theme writes it alone.

        The sitemap is loaded by every page, so it is shortened.
        """
        if template_name == "sitemap.xml" and not self.mount.foreign:
            return theme_patches.shortened(output_content)
        if template_name != "404.html" or self.mount.foreign:
            return output_content
        output = not_found_page.page(
            theme_patches.waiting(output_content), config.site_url or "/", self.known
        )
        base = urlsplit(config.site_url or "/").path or "/"
        output = theme_patches.fonts_first(output, template_name, self.known, self.mount, base)
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
            write_whole(Path(config.site_dir) / uri, text.encode())
        self.rows.clear()

    @event_priority(-50)
    def _on_post_build_search(self, config: MkDocsConfig) -> None:
        """Write the search's index after the host has written its own."""
        if self.index is not None:
            self.index.write(Path(config.site_dir))

    @event_priority(-100)
    def _on_post_build_publish(self, config: MkDocsConfig) -> None:
        """Put the site in its place, unless the host is about to refuse it for its warnings."""
        if self.notebooks is not None:
            self.notebooks.finish()
        if self.book is not None and self.book.kept is not None:
            self.book.kept.finish()
        if self.page_cache is not None:
            self.page_cache.finish()
            self.page_cache = None
        if self.staging is None:
            return
        config.site_dir = str(self.staging.place)
        if config.strict and warned():
            self.staging.discard()
        else:
            self.staging.publish()

    on_post_build = CombinedEvent(_on_post_build_write, _on_post_build_search, _on_post_build_publish)

    @event_priority(-100)
    def on_build_error(self, *, error: Exception) -> None:
        """Leave the last good site where it stands.

        Raises:
            PluginError: The system refused to write; one sentence instead of a traceback.
        """
        if self.ahead is not None:
            self.ahead.stop()
        if self.notebooks is not None:
            self.notebooks.close()
        if self.staging is not None:
            self.staging.discard()
        said = refusal(error, self.place)
        if said is not None:
            raise PluginError(f"kvreport: {said}") from error
