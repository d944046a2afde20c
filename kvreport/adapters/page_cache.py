"""Finished pages kept between builds: one that has not changed goes through neither the theme nor our passes again.

A page stands under the digest of everything that its bytes depend on: its content, what the theme's frame shows of
the site (navigation, settings, templates), the versions of what renders it, and our own code. What the other steps of
a build ask of a page is kept with it: where its links lead, the scripts in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.build_cache import code
from kvreport.publish.kept_values import PartGroup, Parts

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure import StructureItem
    from mkdocs.structure.files import File
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page as HostPage

    from kvreport.site.kit.page import Page

TEMPLATE: Final = "kvreport-kept.html"
"""What the host renders in the place of a kept page; nobody sees it."""

_PLUGINS: Final = frozenset({"kvreport", "search", "material/search", "mkdocs-jupyter"})
"""Plugins of which it is known what a page's bytes depend on; with any other no page is kept."""

_DISTRIBUTIONS: Final = ("mkdocs", "mkdocs-material", "jinja2", "markupsafe")
_OF_THIS_BUILD: Final = frozenset(
    {"site_dir", "docs_dir", "config_file_path", "plugins", "theme", "nav", "hooks"}
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A page as it is written, but for its policy."""

    html: str
    # Addresses within the site that it links to, as written and as they stand in the site.
    links: tuple[tuple[str, str], ...]
    scripts: frozenset[str]
    styles: frozenset[str]


class PageCache:
    """The finished pages of one build, and those that it found kept."""

    def __init__(self, folder: Path, frame: bytes) -> None:
        """Look into a folder for pages in this frame (:func:`frame`)."""
        self._frame = frame
        self._open = ExitStack()
        self._pages: PartGroup = self._open.enter_context(Parts(folder).group("pages"))
        self._links: dict[tuple[str, str], tuple[str, str]] = {}

    def key(self, page: HostPage, ours: Page | None, tags: str) -> bytes:
        """Return what decides a page."""
        told = (
            page.url,
            page.file.src_uri,
            page.title,
            page.meta,
            page.update_date,
            page.canonical_url,
            page.edit_url,
            page.is_homepage,
            *((one and (one.title, one.url)) for one in (page.previous_page, page.next_page)),
            _outline(page.toc),
            tags,
        )
        digest = sha256(self._frame + json.dumps(told, default=str).encode())
        said = (page.content or "",) if ours is None else texts(ours)
        for text in said:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()

    def find(self, key: bytes) -> Finished | None:
        """Return a kept page; None if it is not kept. Where its links lead is for the caller to check again."""
        found = self._pages.find(key)
        return found if isinstance(found, Finished) else None

    def recall(
        self,
        files: Iterable[File],
        generated: Mapping[str, Page],
        tags: Callable[[Page | None], str],
        *,
        searched: bool,
    ) -> tuple[dict[str, bytes], dict[str, Finished]]:
        """Let the host render nothing for the pages that are kept.

        Args:
            files: The pages' files.
            generated: The generated pages, by source address.
            tags: Returns what goes to the head of a page: a generated one, or None for one that is written by hand.
            searched: Whether the index is ours, and has read them.

        Returns:
            What decides each page, and the pages that are kept, by source address.
        """
        keys: dict[str, bytes] = {}
        kept: dict[str, Finished] = {}
        for file in files:
            page = file.page
            if page is None:
                continue
            ours = generated.get(file.src_uri)
            keys[file.src_uri] = self.key(page, ours, tags(ours))
            if searched:
                page.meta["search"] = {"exclude": True}
            found = self.find(keys[file.src_uri])
            if found is not None:
                kept[file.src_uri] = found
                page.meta["template"] = TEMPLATE
        return keys, kept

    def keep(self, key: bytes, made: Finished) -> None:
        """Keep a page that its policy refuses nothing of."""
        # Pages are much alike: equal texts are kept once.
        links = tuple(self._links.setdefault(link, link) for link in made.links)
        self._pages.put(key, Finished(made.html, links, made.scripts, made.styles))

    def finish(self) -> None:
        """Write what this build used and made."""
        self._open.close()


def usable(config: MkDocsConfig) -> bool:
    """Whether it is known what pages depend on: no hooks, and no plugin but the known ones."""
    return not config.hooks and set(config.plugins) <= _PLUGINS


def frame(config: MkDocsConfig, nav: Navigation, *further: object) -> bytes:
    """Return the digest of what all pages share."""
    told = {
        "config": {key: said for key in config if key not in _OF_THIS_BUILD and (said := plain(config[key]))},
        "theme": {key: plain(config.theme[key]) for key in config.theme},
        "templates": _templates(config.theme.dirs),
        "plugins": list(config.plugins),
        "search": [plain(dict(config.plugins[name].config)) for name in config.plugins if "search" in name],
        "nav": [_item(item) for item in nav.items],
        "versions": [version(name) for name in _DISTRIBUTIONS],
        "code": code(),
        "further": further,
    }
    return sha256(json.dumps(told, sort_keys=True, default=str).encode()).digest()


def texts(page: Page) -> Iterator[str]:
    """Yield everything that a generated page says."""
    yield json.dumps((page.uri, page.kind, page.title, page.heading, page.description, page.lead))
    for section in page.sections:
        yield section.id
        yield section.title
        yield section.html


def _outline(toc: Iterable[Any]) -> list[Any]:
    return [(one.title, one.id, one.level, _outline(one.children)) for one in toc]


def _item(item: StructureItem) -> list[Any]:
    children = [_item(child) for child in getattr(item, "children", None) or ()]
    return [type(item).__name__, item.title, getattr(item, "url", None), children]


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a setting holds
    """Return what of a setting JSON can say; objects of plugins are left out."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    # A setting with fields of its own, such as a script of `extra_javascript`, says what it is unless it cannot.
    text = str(value)
    return type(value).__name__ if " object at 0x" in text or text.startswith("<") else text


def _templates(folders: Iterable[str]) -> list[str]:
    """Return the digest of each template of the theme; its icons come with its version."""
    return [
        f"{path.relative_to(folder).as_posix()} {sha256(path.read_bytes()).hexdigest()}"
        for folder in map(Path, folders)
        for path in sorted(folder.rglob("*.html"))
        if ".icons" not in path.parts
    ]
