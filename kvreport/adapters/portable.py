"""The third adapter: a project that another MkDocs-compatible engine builds without our plugin.

``mkdocs.yml`` and ``docs/`` with one Markdown file per page (front matter, headings that the
engine's search and contents understand, finished HTML in between), chapters executed, the assets,
and the data files. ``docs/adr/0001-site-engine.md`` says what it is for; a test builds it with
ProperDocs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final

import yaml

from kvreport import resources
from kvreport.adapters import policy
from kvreport.adapters.book import CHAPTERS
from kvreport.adapters.chapters import executed
from kvreport.adapters.export import SCRIPTS, STYLES
from kvreport.book import prose, reader
from kvreport.book.glossary import chapter_address
from kvreport.book.quantities import Quantities
from kvreport.catalog.load import open_catalog
from kvreport.dataset.files import staged
from kvreport.errors import InputError
from kvreport.site.build import Report, build
from kvreport.site.kit.page import Page

_HOOK: Final = '''

_policy: Policy | None = None
_serves = False


def on_startup(*, command: str, **_: object) -> None:
    """Learn whether pages are shown under work."""
    global _serves
    _serves = command == "serve"


def on_post_template(output: str, *, template_name: str, **_: object) -> str:
    """Take the theme's scripts and styles from the page that it writes alone."""
    global _policy
    if template_name != "404.html":
        return output
    _policy = Policy(output, preview=_serves)
    return _policy.applied(output)


def on_post_page(output: str, **_: object) -> str:
    """State what the finished page may run."""
    return output if _policy is None else _policy.applied(output)
'''
"""What makes the copy of the policy a hook of the engine."""

_TOPS: Final = ("", "models/", "gpus/", "explore/", "compare/", "sizer/", "traffic/", "log/", "data/")
_CHAPTER_LINK: Final = re.compile(
    r"\]\((?P<path>[^)\s#]*?)chapters/(?P<name>[^)\s#/]+\.py)(?P<mark>#[^)\s]*)?\)"
)


def export_project(
    out: Path,
    *,
    data: Path | None = None,
    docs: Path | None = None,
    models: str = "*",
    gpus: str = "*",
    cache: Path,
    dataset: bool = True,
    releases: Path | None = None,
    site_url: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """Write every page as Markdown, with the configuration to build it.

    Args:
        out: Folder to write; appears whole or not at all.
        data: Folder of the catalog; None for the public one.
        docs: Folder of hand-written pages and chapters to take along, their numbers computed.
        models: Pattern that a model's id must match.
        gpus: Pattern that an accelerator's id must match.
        cache: Folder that keeps drawings between runs.
        dataset: Whether to write the dataset too.
        releases: Folder of the data releases published before.
        site_url: Where the site will stand, or "".
        progress: Told how far it is.

    Returns:
        The number of pages written.

    Raises:
        InputError: The catalog, a chapter or a figure in a page is at fault.
    """
    report = build(
        data=data,
        models=models,
        gpus=gpus,
        cache=cache,
        dataset=dataset,
        releases=releases,
        site_url=site_url,
        progress=progress,
    )
    pages = {f"{page.uri}index.md": markdown(page) for page in report.pages}
    if docs is not None:
        for name, text in _hand_written(docs, Quantities(open_catalog(data))):
            pages.setdefault(name, text)
    with staged(out) as staging:
        for name, text in pages.items():
            staging.write(f"docs/{name}", text.encode())
        for address, content in report.assets:
            staging.write(f"docs/{address}", content)
        for path in sorted(resources.assets_dir().rglob("*")):
            if path.is_file():
                name = path.relative_to(resources.assets_dir()).as_posix()
                staging.write(f"docs/assets/{name}", path.read_bytes())
        settings = yaml.safe_dump(_settings(report, site_url), sort_keys=False, allow_unicode=True)
        staging.write("mkdocs.yml", settings.encode())
        staging.write("hooks/policy.py", (Path(policy.__file__).read_text(encoding="utf-8") + _HOOK).encode())
    # A page's plain twin has the address of its source here: the source is what the engine builds.
    beside = tuple((address, content) for address, content in report.files if address not in pages)
    replace(report, files=beside).write_files(out / "docs")
    return len(pages)


def markdown(page: Page) -> str:
    """Return a page as Markdown: front matter, headings, and finished HTML in between."""
    meta: dict[str, Any] = {"title": page.title, "description": page.description}
    parts = [f"# {_plain(page.heading)} {{#top}}", _block(page.lead)]
    for section in page.sections:
        if section.title:
            parts.append(f"## {_plain(section.title)} {{#{section.id}}}")
        parts.append(_block(section.html))
    front = yaml.safe_dump(meta, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _block(html: str) -> str:
    # One block from start to end, so that Markdown leaves every line of it alone.
    return f'<div class="kv-section">\n{html.strip()}\n</div>' if html.strip() else ""


def _plain(text: str) -> str:
    """Escape what Markdown would read as its own in a heading."""
    return re.sub(r"([\\`*_{}\[\]#|])", r"\\\1", escape(text, quote=False))


def _hand_written(docs: Path, quantities: Quantities) -> Iterator[tuple[str, str]]:
    """Yield Markdown pages with their numbers computed, and chapters executed.

    Raises:
        InputError: If a page's figure does not hold.
    """
    for path in sorted(docs.rglob("*.md")):
        where = path.relative_to(docs).as_posix()
        written = path.read_text(encoding="utf-8")
        about = quantities.about(reader.of_text(written, quantities.catalog))
        text, faults = prose.resolve(written, about, where)
        if faults:
            raise InputError("; ".join(str(fault) for fault in faults))
        yield where, _CHAPTER_LINK.sub(_to_chapter, text)
    for path in sorted((docs / CHAPTERS).glob("*.py")):
        address, title, body = executed(path, quantities)
        page = Page(uri=address, kind="tool", title=title, heading=title, description=title, lead=body)
        yield f"{address}index.md", markdown(page)


def _to_chapter(found: re.Match[str]) -> str:
    return f"]({found['path']}{chapter_address(CHAPTERS + found['name'])}index.md{found['mark'] or ''})"


def _settings(report: Report, site_url: str) -> dict[str, Any]:
    known = {page.uri: page for page in report.pages}
    return {
        "site_name": "kvreport",
        **({"site_url": site_url} if site_url else {}),
        "theme": {"name": "material", "font": False},
        "extra_css": [style for style in STYLES if not style.endswith("plain.css")],
        "extra_javascript": list(SCRIPTS),
        "plugins": ["search"],
        "markdown_extensions": [
            "abbr",
            "attr_list",
            "md_in_html",
            {"tables": {"use_align_attribute": True}},
            {"toc": {"permalink": True}},
        ],
        "hooks": ["hooks/policy.py"],
        "validation": {"nav": {"omitted_files": "ignore"}},
        "nav": [{known[uri].heading: f"{uri}index.md"} for uri in _TOPS if uri in known],
    }
