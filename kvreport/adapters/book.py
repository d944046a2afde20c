"""Chapters and hand-written pages on the MkDocs side.

mkdocs-jupyter executes the chapters and turns them into HTML. What is left to do here, the same
for its old and its new versions:

* its cache is keyed by the chapter alone, and believed; :mod:`kvreport.adapters.notebooks` keeps it;
* chapters live under ``learn/`` without their numbers (:func:`place`);
* its styles and scripts are dropped, ours are in the site's style sheet (:func:`clean`);
* links in chapters are resolved like those of Markdown pages, and a dead one is a fault
  (:func:`resolve_links`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Final, TypeVar

from mkdocs.exceptions import PluginError

from kvreport.adapters import questions
from kvreport.book import glossary, notebook, prose
from kvreport.book.quantities import Quantities
from kvreport.book.reader_case import of_front_matter
from kvreport.build_cache import code, digest
from kvreport.catalog.record_digests import MODELS, Records
from kvreport.errors import Fault
from kvreport.publish.tracked_values import Noted
from kvreport.site.kit.page import link
from kvreport.site.pages import engine_rules

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

    from kvreport.catalog.load import Catalog

T = TypeVar("T")
CHAPTERS: Final = "chapters/"
QUESTIONS: Final = "questions/"
_LISTED: Final = re.compile(r"\]\(([\w-]+)\.md\)")
_BLOCK: Final = re.compile(r"<(style|script)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_CLIPBOARD: Final = re.compile(r'<div\b[^>]*class="clipboard-copy-txt"[^>]*>.*?</div>', re.DOTALL)
_COPY_BUTTON: Final = re.compile(
    r'<div class="zeroclipboard-container">\s*<clipboard-copy.*?</clipboard-copy>\s*</div>', re.DOTALL
)
_COMMENT: Final = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_COMPUTED: Final = "How this is computed"
_CODE: Final = re.compile(r'<div class="highlight[^"]*"><pre>.*?</pre>\s*</div>', re.DOTALL)
_COLLAPSER: Final = re.compile(r'<div class="jp-Collapser[^"]*">\s*</div>')
_PROMPT: Final = re.compile(r'<div class="jp-(?:Input|Output)Prompt[^"]*">.*?</div>', re.DOTALL)
_ANCHOR: Final = re.compile(r'<a class="anchor-link" href="(#[^"]*)">¶</a>')
_CELL: Final = re.compile(r' id="cell-id=[^"]*"')  # drawn at random in every execution
_ALIGNED: Final = re.compile(r'(<t[dhr]\b[^<>]*) style="text-align: ?(left|right|center);?"')
_HREF: Final = re.compile(r'(<a\b[^>]*?\bhref=")([^"]*)(")')
_SCHEME: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//|#|$)", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
WORDS_PER_MINUTE: Final = 200


@dataclass
class Book:
    """Everything that is written by hand: chapters, and Markdown pages with computed numbers."""

    quantities: Quantities
    # Glossary entries to explain where they first stand on a page.
    terms: tuple[glossary.GlossaryTerm, ...] = ()
    files: Files | None = None  # The site's files, once MkDocs has them.
    # Title of each chapter by source address, in reading order.
    titles: dict[str, str] = field(default_factory=dict)
    # Title of each question by source address, in the order of their list.
    questions: dict[str, str] = field(default_factory=dict)
    # For each chapter, what can be downloaded: words, and the address within the site or in full.
    taken: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    kept: Noted | None = None  # Texts with their figures computed, kept between builds; None computes all.

    def take(self, files: Files, config: MkDocsConfig) -> None:
        """Place the chapters and learn their titles."""
        place(files, config)
        self.files = files
        found = sorted((f for f in files if is_chapter(f.src_uri)), key=lambda f: f.src_uri)
        self.titles = {f.src_uri: _title(Path(str(f.abs_src_path))) for f in found}
        self.questions = self._listed()

    def pack(self, config: MkDocsConfig) -> list[tuple[str, str]]:
        """Return every chapter as a notebook and as a script: (address within the site, content).

        Raises:
            InputError: If a figure in a chapter's prose does not hold.
        """
        if self.files is None:
            return []
        made: list[tuple[str, str]] = []
        for uri in self.titles:
            file = self.files.get_file_from_path(uri)
            if file is None or file.abs_src_path is None:
                continue
            source = Path(file.abs_src_path).read_text(encoding="utf-8")
            site_url = config.site_url or "/"
            parts = self._keep(
                partial(notebook.portable, source, uri, self.quantities, site_url),
                "cells",
                uri,
                site_url,
                source,
            )
            folder = glossary.chapter_address(uri)
            stem = f"{folder}{folder.rstrip('/').rpartition('/')[2]}"
            made += [(f"{stem}.ipynb", notebook.notebook(parts)), (f"{stem}.py", notebook.script(parts))]
            elsewhere = notebook.browser_link(config.repo_url or "", config.remote_branch, f"{stem}.ipynb")
            self.taken[uri] = [("as a notebook", f"{stem}.ipynb"), ("as a script", f"{stem}.py")]
            if elsewhere:
                self.taken[uri].append(("open in a browser notebook", elsewhere))
        return made

    def _keep(self, make: Callable[[], T], *what: str, keeps: Callable[[T], bool] = lambda _: True) -> T:
        """Return what an earlier build made of the same texts with the same facts and code, or make it."""
        if self.kept is None:
            return make()
        return self.kept.get(sha256("\0".join(what).encode()).hexdigest(), make, keeps)

    def check_prose(self, allow: Path) -> list[Fault]:
        """Find naked quantities in every chapter and Markdown page that lies in the docs folder."""
        if self.files is None:
            return []
        pages = [
            (file.src_uri, prose.markdown_of(Path(file.abs_src_path)))
            for file in sorted(self.files, key=lambda f: f.src_uri)
            if file.abs_src_path is not None
            and file.generated_by is None
            and (is_chapter(file.src_uri) or file.src_uri.endswith(".md"))
        ]
        return prose.naked(pages, prose.load_allowed(allow))

    def finish(self, html: str, page: Page) -> tuple[str, list[Fault], list[Fault]]:
        """Turn a hand-written page's HTML into what is published.

        Returns:
            The content, its dead links, and its figures that do not hold.
        """
        uri = page.file.src_uri
        dead: list[Fault] = []
        if is_chapter(uri) and self.files is not None:
            executed = html
            html, dead = resolve_links(
                self._keep(lambda: clean(executed), "clean", html), page.file, self.files
            )
            html = frame(
                html,
                self._way(uri, -1, page.file),
                self._way(uri, 1, page.file),
                [(words, link(page.url, there)) for words, there in self.taken.get(uri, ())],
            )
        case = of_front_matter(page.meta, self.quantities.catalog)
        about, written = self.quantities.about(case), html
        html, faults = self._keep(
            lambda: prose.resolve(written, about, uri), uri, repr(case), html, keeps=lambda made: not made[1]
        )
        if self.terms and self.files is not None:
            home = self.files.get_file_from_path(glossary.PAGE)
            if home is not None and uri != glossary.PAGE:
                there, told = home.url_relative_to(page.file), html
                html = self._keep(lambda: glossary.explain(told, self.terms, there), "explain", there, told)
        if uri in self.questions:
            if case is not None and self._has_model(case.model):
                html = questions.with_case(html, page.url, case, self.quantities.catalog)
            html += ways(self._way(uri, -1, page.file), self._way(uri, 1, page.file), "Questions")
        return engine_rules.placed(html, self.quantities.catalog, page.url), dead, faults

    def _has_model(self, model: str) -> bool:
        """Whether the site has a page for a model, and so the files that a reader's case needs."""
        slug = self.quantities.catalog.model(model).slug
        return self.files is not None and self.files.get_file_from_path(f"models/{slug}/index.md") is not None

    def names(self, uri: str) -> tuple[str, ...]:
        """Return other names under which a search finds a page: its file's, and terms that it explains."""
        told = (term for term in self.terms if term.chapter == uri)
        stem = Path(uri).stem
        own = () if is_chapter(uri) or stem == "index" else (stem,)
        return (*own, *(name for term in told for name in (term.term, *term.also)))

    def _way(self, uri: str, step: int, file: File) -> dict[str, str] | None:
        titles = self.titles if uri in self.titles else self.questions
        order = list(titles)
        number = order.index(uri) + step
        if not 0 <= number < len(order) or self.files is None:
            return None
        target = self.files.get_file_from_path(order[number])
        if target is None:
            return None
        return {"title": titles[order[number]], "url": target.url_relative_to(file)}

    def _listed(self) -> dict[str, str]:
        """Questions in the order in which their index links to them."""
        index = self.files.get_file_from_path(f"{QUESTIONS}index.md") if self.files is not None else None
        if self.files is None or index is None or index.abs_src_path is None:
            return {}
        listed = _LISTED.findall(Path(index.abs_src_path).read_text(encoding="utf-8"))
        found = [self.files.get_file_from_path(f"{QUESTIONS}{name}.md") for name in listed]
        return {
            f.src_uri: _title(Path(f.abs_src_path), "# ") for f in found if f is not None and f.abs_src_path
        }


def open_book(catalog: Catalog, kept: Path, records: Records | None) -> Book:
    """Return the book of a catalog, whose texts are kept in a folder unless there is no state of the records.

    Raises:
        InputError: The glossary is at fault.
    """
    terms = catalog.folder / "glossary.yaml"
    book = Book(Quantities(catalog), glossary.load_glossary(terms) if terms.is_file() else ())
    if records is not None:
        shared = (path for path in sorted(catalog.folder.iterdir()) if path.name != MODELS)
        state = digest(shared, (), code(without=("cli", "publish", "site")))
        book.kept = Noted(kept / "book.noted", state, records)
    return book


def refuse(faults: list[Fault]) -> None:
    """Stop the build, all faults at once.

    Raises:
        PluginError: If there are any.
    """
    if faults:
        raise PluginError("kvreport:\n" + "\n".join(str(fault) for fault in faults))


def is_chapter(uri: str) -> bool:
    """Whether a source address is a chapter's."""
    return uri.startswith(CHAPTERS) and uri.endswith(".py")


def no_foreign_scripts(config: MkDocsConfig) -> None:
    """Keep mkdocs-jupyter from loading MathJax from another server.

    Since 0.27 it puts a loader on every page of the site, unless it is told to use version 2, which
    stays in the chapters, where :func:`clean` drops it. Our formulas are text and need none.
    """
    plugin = config.plugins.get("mkdocs-jupyter")
    if plugin is not None and "mathjax_version" in plugin.config:
        plugin.config["mathjax_version"] = 2
    read = plugin.config.get("include") if plugin is not None else None
    if plugin is not None and read and all(pattern.endswith((".py", ".ipynb")) for pattern in read):
        # It would read every Markdown page, several times, to find that it is no notebook.
        plugin.config["ignore"] = [*plugin.config.get("ignore", ()), "*.md"]


def place(files: Files, config: MkDocsConfig) -> None:
    """Move the chapters' addresses: ``chapters/02-the-formula.py`` is ``learn/the-formula/``."""
    for file in files:
        if not is_chapter(file.src_uri):
            continue
        folder = glossary.chapter_address(file.src_uri)
        file.dest_uri = f"{folder}index.html" if config.use_directory_urls else f"{folder.rstrip('/')}.html"
        file.url = folder if config.use_directory_urls else file.dest_uri
        file.abs_dest_path = str(Path(config.site_dir) / file.dest_uri)


def clean(html: str) -> str:
    """Drop what mkdocs-jupyter puts around a chapter: styles, scripts, prompts, copies of code."""
    for pattern in (_BLOCK, _COPY_BUTTON, _CLIPBOARD, _COLLAPSER, _PROMPT, _COMMENT, _CELL):
        html = pattern.sub("", html)
    html = html.replace('class="highlight-ipynb hl-python', 'class="highlight')
    html = _ALIGNED.sub(r'\1 align="\2"', html)
    folded = rf'<details class="kv-code"><summary>{_COMPUTED}</summary>\g<0></details>'
    html = _CODE.sub(folded, html)
    return _ANCHOR.sub(r'<a class="headerlink" href="\1" title="Link to this section">¶</a>', html)


def resolve_links(html: str, file: File, files: Files) -> tuple[str, list[Fault]]:
    """Turn links to source files into links to pages, as MkDocs does for Markdown.

    Returns:
        The content, and a fault for each link that leads nowhere.
    """
    faults: list[Fault] = []

    def replace(match: re.Match[str]) -> str:
        target = unescape(match[2])
        if _SCHEME.match(target):
            return match[0]
        path, mark, rest = re.match(r"([^?#]*)([?#]?)(.*)", target, re.DOTALL).groups()  # type: ignore[union-attr]
        found = files.get_file_from_path(normpath(join(dirname(file.src_uri), path)))
        if found is None:
            faults.append(Fault(file.src_uri, "link", repr(target), "a file of the site, or a full address"))
            return match[0]
        return f"{match[1]}{escape(found.url_relative_to(file), quote=True)}{mark}{escape(rest)}{match[3]}"

    return _HREF.sub(replace, html), faults


def minutes(html: str) -> int:
    """Minutes that reading a page's words takes, code and figures left out; at least one."""
    text = re.sub(r"<(pre|svg|details)\b.*?</\1\s*>", " ", html, flags=re.DOTALL)
    words = len(_WORD.findall(unescape(re.sub(r"<[^<>]*>", " ", text))))
    return max(1, round(words / WORDS_PER_MINUTE))


def frame(
    html: str,
    before: Mapping[str, str] | None,
    after: Mapping[str, str] | None,
    taken: Sequence[tuple[str, str]] = (),
) -> str:
    """Put the reading time under a chapter's title, and the ways on under its end.

    ``taken`` has words and address of each way to take the chapter along.
    """
    time = f'<p class="kv-kicker">{minutes(html)}-minute read. The code in this chapter computes every number shown.</p>'
    links = " or ".join(
        f'<a href="{escape(url, quote=True)}"{"" if "://" in url else " download"}>{escape(words)}</a>'
        for words, url in taken
    )
    if links:
        time += f'<p class="kv-take-away">Download this chapter {links}. The notebook and the script run in the virtual environment that <code>make venv</code> creates in a checkout of the repository.</p>'
    head, close, rest = html.partition("</h1>")
    return f"{head}{close}{time if close else ''}{rest}{ways(before, after, 'Chapters')}"


def ways(before: Mapping[str, str] | None, after: Mapping[str, str] | None, name: str) -> str:
    """Return the links to the page before and the page after, as a navigation called ``name``."""
    linked = "".join(
        f'<a class="kv-way kv-way--{side}" href="{escape(way["url"], quote=True)}">'
        f"<small>{word}</small>{escape(way['title'])}</a>"
        for side, word, way in (("before", "Previous", before), ("after", "Next", after))
        if way is not None
    )
    return f'<nav class="kv-ways" aria-label="{name}">{linked}</nav>'


def _title(path: Path, mark: str = "# # ") -> str:
    found = re.search(rf"^{mark}(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].strip() if found else path.stem
