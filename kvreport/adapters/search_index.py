"""The search: an index of our own and an engine of our own, behind the theme's dialog.

Material starts its search on every page: an engine and an index, together more than half of a page's first load.
Opened from local files it waits until the search is opened; :func:`install` asks for the same over HTTP, in the one
condition of the theme's script that decides it, lets the worker wait for its first message, and puts ``kv-search.js`` in
the place of the theme's worker. A theme that has changed keeps its own engine: pages are then heavier and results worse,
and a test of the first load says so.

The index holds what people look for and no more: titles, descriptions, other names, and the prose of written pages.
Code, tables, form fields and the answers of exercises stay out. Synonyms and further names are in ``search.json``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.structure.files import File

from kvreport import resources
from kvreport.adapters.page_cache import texts
from kvreport.adapters.skeleton import address
from kvreport.atomic import write_whole
from kvreport.catalog.server_flags import with_flags
from kvreport.publish.compact import compact_script
from kvreport.publish.kept_values import Parts

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page as HostPage

    from kvreport.publish.tracked_values import Noted
    from kvreport.site.kit.page import Page

log = logging.getLogger("mkdocs.plugins.kvreport")

ENGINE: Final = "kv-search.js"
INDEX: Final = "search/search_index.json"
WORDS: Final[dict[str, Any]] = json.loads(
    with_flags((resources.package_dir() / "search.json").read_text(encoding="utf-8"))
)
"""Groups of synonyms, and names of pages that their text does not have."""
_LISTED: Final = {
    name.lower(): tuple(uri for uri, names in WORDS["names"].items() if name.lower() in map(str.lower, names))
    for listed in WORDS["names"].values()
    for name in listed
}
"""The pages that the list gives a name to."""

_BUNDLE: Final = re.compile(r"assets/javascripts/bundle\.[0-9a-f]+\.min\.js")
_WORKER: Final = re.compile(r"assets/javascripts/workers/search\.[0-9a-f]+\.min\.js")
_AT_ONCE: Final = '(location.protocol!=="file:")'
_WHEN_OPENED: Final = "(!1)"
_WORKS: Final = "=new Worker(e)){"
_WORKS_WHEN_ASKED: Final = """=(() => {
  let worker, heard = []
  const begin = () => {
    worker = new Worker(e)
    for (const one of heard) worker.addEventListener(...one)
  }
  return {
    addEventListener: (...one) => heard.push(one),
    removeEventListener: () => {},
    postMessage: (said) => {
      if (!worker) begin()
      worker.postMessage(said)
    },
  }
})()){"""
"""A worker that is fetched with the first message to it. The theme listens once, before it says anything."""
_SKIPPED: Final = frozenset(
    {
        "pre",
        "math",
        "table",
        "details",
        "form",
        "svg",
        "script",
        "style",
        "template",
        "nav",
        "select",
        "button",
    }
)
_PASSED_OVER: Final = frozenset({"kv-js", "kv-kicker", "kv-take-away"})
"""Classes that are not indexed: what needs a script, and a chapter's reading time and downloads."""
_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "wbr", "col", "path", "rect"})
_FAVORED: Final = {"adr": 0.5, "questions": 1.3}
"""How much written pages of a folder are favored: one that answers a question wins over a chapter that mentions it."""
_LONGEST_TEXT: Final = 4_000
"""Characters of a section that are indexed: enough for every written section, a bound for a page gone wrong."""

_OF_A_GPU: Final = re.compile("gpus/[^/#]+/")

Doc = dict[str, Any]


class _SectionReader(HTMLParser):
    """Collects sections: (anchor, title, text); the first has no anchor."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[list[str]] = [["", "", ""]]
        self._skipped = 0
        self._heading = False
        self._mark = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        names = dict(attrs)
        if (
            self._skipped
            or tag in _SKIPPED
            or not _PASSED_OVER.isdisjoint((names.get("class") or "").split())
        ):
            self._skipped += 1
        elif tag in ("h2", "h3", "dt") and names.get("id"):
            self.sections.append([names["id"] or "", "", ""])
            self._heading = True
        elif tag == "h1":
            self._heading = True
        elif tag == "a" and "headerlink" in (names.get("class") or ""):
            self._mark = True
        elif not self._heading:
            self.sections[-1][2] += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self._skipped:
            self._skipped -= 1
        elif tag in ("h1", "h2", "h3", "dt"):
            self._heading = False
        elif tag == "a":
            self._mark = False

    def handle_data(self, data: str) -> None:
        if not self._skipped and not self._mark:
            self.sections[-1][1 if self._heading else 2] += data


def read(html: str) -> Iterator[tuple[str, str, str]]:
    """Yield (anchor, title, text) of a page's beginning, then of each of its sections."""
    reader = _SectionReader()
    reader.feed(html)
    reader.close()
    for anchor, title, text in reader.sections:
        yield anchor, " ".join(title.split()), " ".join(text.split())[:_LONGEST_TEXT]


def written(
    url: str, title: str, description: str, names: Iterable[str], html: str, boost: float = 1.0
) -> list[Doc]:
    """Return the entries of a page written by hand.

    The description is the teaser; without one the first lines are. A name that the list gives to other pages alone is left to
    these. ``boost`` says how much the page is favored among equals.
    """
    (_, _, first), *sections = read(html)
    told = f"{description}." if description[-1:].isalnum() else description
    if not first.startswith(description.rstrip(".")):
        for sentence in re.split(r"(?<=[.?!]) ", told):  # an excerpt says none of them twice
            first = first.removeprefix(sentence).lstrip()
        first = f"{told} {first}".strip()
    own = [name for name in names if url in _LISTED.get(name.lower(), (url,))]
    return [
        _page(url, title, first, own, boost),
        *(
            {"location": f"{url}#{anchor}", "title": name, "text": text}
            for anchor, name, text in sections
            if name
        ),
    ]


def generated(page: Page, url: str) -> list[Doc]:
    """Return the entries of a generated page: of a model or an accelerator one, of others their sections too."""
    entry = _page(url, page.heading, page.description, page.names, page.boost)
    if page.kind in ("model", "gpu"):
        return [entry]
    inside = [
        (anchor, name, text)
        for section in page.sections
        for anchor, name, text in read(f'<h2 id="{section.id}">{section.title}</h2>{section.html}')
        if anchor and name
    ]
    leading = [found for found in read(page.lead) if found[0] and found[1]]
    quoted = [(one.id, one.title, one.html) for one in page.quoted]
    return [
        entry,
        *(
            {"location": f"{url}#{a}", "title": name, "text": text}
            for a, name, text in (*leading, *inside, *quoted)
        ),
    ]


def _page(url: str, title: str, text: str, names: Iterable[str], boost: float) -> Doc:
    tags = list(dict.fromkeys([*names, *WORDS["names"].get(url, ())]))
    entry: Doc = {"location": url, "title": title, "text": text}
    if tags:
        entry["tags"] = tags
    if boost != 1:
        entry["boost"] = round(boost, 3)
    return entry


def kinds_of(docs: Iterable[Doc]) -> dict[str, list[str]]:
    """Return the names of each kind of thing that a question may name, as the engine's ``config.kinds``."""
    gpus = (doc["tags"] for doc in docs if _OF_A_GPU.fullmatch(doc["location"]) and "tags" in doc)
    return {**WORDS["kinds"], "gpu": sorted({name for names in gpus for name in names})}


class SearchIndex:
    """The index of one build: the entries of each page, by its source address."""

    def __init__(self) -> None:
        """Begin without pages."""
        self.kept: Noted | None = None  # Keeps entries between builds; None reads all.
        self._docs: dict[str, list[Doc]] = {}

    def take_generated(self, page: Page, url: str, uri: str) -> None:
        """Take a generated page, by its address in the site and its source's."""
        quoted = (text for one in page.quoted for text in (one.id, one.title, one.html))
        decided = ("generated", url, *texts(page), *page.names, *quoted, str(page.boost))
        self._docs[uri] = self._of(decided, lambda: generated(page, url))

    def take_written(self, page: HostPage, html: str, names: tuple[str, ...]) -> None:
        """Take what a page written by hand says, unless it asks not to be found."""
        told = page.meta.get("search") or {}
        if told.get("exclude"):
            return
        text = str(page.meta.get("description") or "")
        boost = float(told.get("boost", _FAVORED.get(page.file.src_uri.split("/")[0], 1)))
        url, title = address(page.url), str(page.title or page.file.name)
        decided = ("written", url, title, text, html, str(boost), *names)
        self._docs[page.file.src_uri] = self._of(
            decided, lambda: written(url, title, text, names, html, boost)
        )

    def write(self, site: Path) -> None:
        """Write the index over the theme's, into the folder of the site."""
        config = {"lang": ["en"], "separator": r"[\s\-]+", "pipeline": [], "synonyms": WORDS["synonyms"]}
        docs = [doc for docs in self._docs.values() for doc in docs]
        told = {"config": config | {"kinds": kinds_of(docs)}, "docs": docs}
        content = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        write_whole(site / INDEX, content.encode())

    def _of(self, decided: tuple[str, ...], make: Callable[[], list[Doc]]) -> list[Doc]:
        if self.kept is None:
            return make()
        return self.kept.get(f"index {Parts(None).key(*decided).hex()}", make)


def install(files: Files, config: MkDocsConfig) -> bool:
    """Put our engine behind the theme's dialog and make it wait until the dialog is opened.

    Returns:
        Whether the theme is one that we know; otherwise nothing has changed.
    """
    found = {file.src_uri: file for file in files}
    bundle = next((file for uri, file in found.items() if _BUNDLE.fullmatch(uri)), None)
    worker = next((file for uri, file in found.items() if _WORKER.fullmatch(uri)), None)
    if bundle is None or worker is None or bundle.abs_src_path is None:
        return False
    script = Path(bundle.abs_src_path).read_text(encoding="utf-8")
    if script.count(_AT_ONCE) != 1 or script.count(_WORKS) != 1:
        log.info("the theme's search is not the one that is known: its engine and its index stay")
        return False
    engine = compact_script((resources.assets_dir() / ENGINE).read_text(encoding="utf-8"))
    lazy = script.replace(_AT_ONCE, _WHEN_OPENED).replace(_WORKS, _WORKS_WHEN_ASKED)
    for old, content in ((bundle, lazy), (worker, engine)):
        files.remove(old)
        files.append(File.generated(config, old.src_uri, content=content))
    return True
