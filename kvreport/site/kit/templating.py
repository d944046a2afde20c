"""The templates' environment: escaping always on, a missing name is an error, no arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from kvreport import resources, units
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError
from kvreport.site.kit.page import link
from kvreport.site.kit.table_rows import rows
from kvreport.words import KV_NAMES

_HYPHENED: Final = re.compile(r"\S*-\S*")
_overrides: list[Path] = []


def override(folder: Path | None) -> None:
    """Let templates in ``folder`` replace the package's of the same name; None for none.

    One build at a time renders in a process, so this is set once before it begins.

    Raises:
        InputError: If a template has a name of an earlier edition (``model_serve.html`` for ``model/serve.html``).
    """
    ours = resources.templates_dir()
    for path in ours.glob("*/*.html"):
        name = path.relative_to(ours).as_posix()
        if folder is not None and (folder / (flat := name.replace("/", "_"))).is_file():
            raise InputError(f"templates: found {flat}, a name of an earlier edition; allowed: {name}")
    _overrides[:] = [] if folder is None else [folder]
    environment.cache_clear()
    _state.cache_clear()


def overridden() -> Path | None:
    """Return the folder whose templates replace the package's, or None."""
    return next(iter(_overrides), None)


def folders() -> tuple[Path, ...]:
    """Return where templates are looked for, first found first."""
    return (*_overrides, resources.templates_dir())


def source(name: str) -> str:
    """Return a template as it is written, an override's if there is one."""
    loader = environment().loader
    assert loader is not None  # noqa: S101 (the environment is made with one)
    return loader.get_source(environment(), name)[0]


def state(names: Iterable[str]) -> str:
    """Return a digest of the templates in some folders, and of those that all page types share."""
    return _state(tuple(sorted(names)), folders())


@cache
def _state(names: tuple[str, ...], within: tuple[Path, ...]) -> str:
    found = sha256()
    for folder in within:
        for path in sorted(folder.rglob("*.html")):
            name = path.relative_to(folder)
            if len(name.parts) == 1 or name.parts[0] in names:
                found.update(name.as_posix().encode() + b"\0" + sha256(path.read_bytes()).digest())
        found.update(b"\1")
    return found.hexdigest()[:20]


@cache
def environment() -> Environment:
    """Return the environment that renders every page.

    Formatters come from :mod:`kvreport.units`: pure functions of one value. ``flags`` are those of servers. Everything else that a
    template prints was made into text by Python before.
    """
    made = Environment(
        loader=FileSystemLoader(folders()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    made.globals["flags"] = {server: flag_names(server) for server in KV_NAMES}
    made.filters["count"] = units.count
    made.filters["tokens"] = units.human_tokens
    made.filters["size"] = units.human_bytes
    made.filters["gib"] = units.gib
    made.filters["as_text"] = as_text
    made.filters["rows"] = rows
    made.filters["unbroken"] = unbroken
    made.tests["program"] = is_program
    return made


def as_text(text: str) -> Markup:
    """Escape what ends text between tags, and nothing else: quotes may stand there as they are."""
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;"))  # noqa: S704 (escaped on this line)


def unbroken(text: str) -> Markup:
    """Escape a command and keep what has a hyphen together, so that its lines break at spaces alone.

    The text that a reader selects and copies is unchanged. ``unbroken`` of kv-parts.js does the same.
    """
    return Markup(_HYPHENED.sub(r'<span class="kv-word">\g<0></span>', str(escape(text))))  # noqa: S704 (escaped on this line)


def is_program(text: str) -> bool:
    """True for several lines that are read line by line; False for a command, which is broken where it is too long."""
    return "\n" in text and "\\\n" not in text


Names = dict[str, Any]
"""What a template is given, by the names that it uses; one that it lacks is an error."""


def render(template: str, uri: str, context: Mapping[str, Any]) -> Markup:
    """Render a template with a context.

    Args:
        template: Name of the template, ``model/headline.html``.
        uri: Address of the page that it stands on; ``link("gpus/")`` in a template is relative to it.
        context: What the template uses, by name.
    """
    html = environment().get_template(template).render(**context, link=partial(link, uri))
    return Markup(html.strip())  # noqa: S704 (rendered with escaping on)
