"""The whole package in another language: a copy whose templates, scripts and modules have translated words.

Whatever runs from the copy (a build, its workers, the kernels of chapters, Python in the browser) speaks that
language, and nothing is looked up at run time. Caches are keyed by the code, so each language has its own entries.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kvreport import resources
from kvreport.build_cache import digest
from kvreport.translation.messages import Messages, Translation
from kvreport.translation.modules import translate_module
from kvreport.translation.scripts import translate_script
from kvreport.translation.shared import translate_words
from kvreport.translation.templates import translate_template
from kvreport.translation.text import Say

MODULES: Final = (
    "site/**/*.py",
    "book/*.py",
    "adapters/book.py",
    "adapters/head.py",
    "adapters/lost.py",
    "adapters/mkdocs_plugin.py",
    "adapters/questions.py",
    "adapters/skeleton.py",
    "adapters/theme.py",
    "adapters/written.py",
    "evidence/*.py",
    "publish/long_tables.py",
    "publish/embeds.py",
    "publish/layout_names.py",
    "publish/attention_types.py",
    "publish/picker.py",
    "estimation/*.py",
    "startup_log/*.py",
    "accounting/support.py",
    "publish/series.py",
    "publish/site_data.py",
    "publish/changes.py",
    "publish/confirmed.py",
)
"""Modules whose words pages show."""

NOT: Final = frozenset(
    {
        "site/kit/vega.py",
        "book/expressions.py",
        "book/notebook.py",
        "book/prose.py",
        "docs/assets/kv-queries.js",
    }
)
"""Files that speak to authors of pages, or are made of queries."""

ASKED: Final = "messages.json"
"""File beside a translated copy."""

Translate = Callable[[str, Say], str]


def sources() -> Iterator[tuple[str, Path, Translate]]:
    """Yield the files that have words: name in the repository, path, and what translates them."""
    package, templates, assets = resources.package_dir(), resources.templates_dir(), resources.assets_dir()
    for path in sorted({path for pattern in MODULES for path in package.glob(pattern)}):
        name = path.relative_to(package).as_posix()
        if name not in NOT:
            yield f"kvreport/{name}", path, translate_module
    for path in package.glob("words.json"):
        yield "kvreport/words.json", path, translate_words
    for path in sorted(templates.rglob("*.html")):
        yield f"templates/{path.relative_to(templates).as_posix()}", path, translate_template
    for path in sorted(assets.glob("*.js")):
        if (name := f"docs/assets/{path.name}") not in NOT:
            yield name, path, translate_script


def collect() -> Messages:
    """Return every message of the interface."""
    found = Messages()
    for name, path, translate in sources():

        def say(message: str, line: int, name: str = name) -> None:
            found.note(name, message, line)

        translate(path.read_text(encoding="utf-8"), say)
    return found


def translated(translation: Translation, cache: Path) -> Path:
    """Return a folder that holds the package in another language, and in :data:`ASKED` the messages it has a place for.

    Args:
        translation: The language's messages.
        cache: The build's cache, which keeps the folder.
    """
    roots = (resources.package_dir(), resources.templates_dir(), resources.assets_dir())
    folder = cache / "translated" / digest(roots, (), translation.language, dict(translation.said))
    if not (folder / ASKED).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as making:
            found = _write(translation, Path(making) / "kvreport")
            (Path(making) / ASKED).write_text(json.dumps(found), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(making, folder)
    return folder


def _write(translation: Translation, target: Path) -> list[str]:
    package = resources.package_dir()
    skipped = shutil.ignore_patterns("__pycache__", "_data", "_requirements", "_templates", "_assets")
    shutil.copytree(package, target, ignore=skipped)
    shutil.copytree(resources.templates_dir(), target / "_templates")
    shutil.copytree(resources.assets_dir(), target / "_assets")
    asked: dict[str, None] = {}

    def say(message: str, line: int) -> str | None:  # noqa: ARG001 - as a walk calls it
        asked[message] = None
        return translation.said.get(message)

    for name, path, translate in sources():
        place = target / name.replace("docs/assets/", "_assets/").replace("templates/", "_templates/", 1)
        if name.startswith("kvreport/"):
            place = target / name.removeprefix("kvreport/")
        made = translate(path.read_text(encoding="utf-8"), say)
        if path.suffix == ".html":
            made = made.replace('<html lang="en"', f'<html lang="{translation.language}"')
        place.write_text(made, encoding="utf-8", newline="\n")
    origin = {"package": str(package), "language": translation.language, "messages": str(translation.path)}
    (target / resources.ORIGIN).write_text(json.dumps(origin), encoding="utf-8")
    return sorted(asked)
