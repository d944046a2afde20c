"""What changed with each release of an engine: a feed, and the same as JSON.

Every model is asked the same question under each release of the engine whose rules are in the data, and
each change is traced to the term of the budget that did it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urljoin
from xml.sax.saxutils import escape, quoteattr

from kvreport.catalog.engine import Engine, version_number
from kvreport.errors import InputError
from kvreport.estimation.difference import WORDS, Difference, Side, compare
from kvreport.publish.profiles import encode
from kvreport.publish.site_data import SiteData

NAMES: Final = ("data/engine-releases.xml", "data/engine-releases.json")
_CONTEXT: Final = 8192
_SHOWN: Final = 12
_NOTABLE: Final = 0.02
"""A change of less than two percent is in the JSON and not in the feed."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the feed and of the JSON."""
    found = list(changes(site))
    yield NAMES[0], _feed(site, found).encode()
    yield (
        NAMES[1],
        encode({"schema": 1, "release": site.version, "context_tokens": _CONTEXT, "changes": found}),
    )


def changes(site: SiteData) -> Iterator[dict[str, Any]]:
    """Yield one object for each step from a release of the site's engine to the next."""
    gpu = site.known_gpus[0]
    for old, new in pairwise(releases(site.catalogue.engines.values(), site.engine.family)):
        moved = []
        for model in site.models:
            try:
                one = compare(
                    Side(site.catalogue, model, old),
                    Side(site.catalogue, model, new),
                    gpu,
                    context_tokens=_CONTEXT,
                )
            except InputError:
                continue
            if one.old and one.new is not None and one.old != one.new:
                moved.append(one)
        moved.sort(key=lambda one: one.factor)
        yield {
            "engine": new.label,
            "from": old.name,
            "to": new.name,
            "version": (new.versions or ("", None))[0],
            "gpu": gpu,
            "models": [_moved(one) for one in moved],
        }


def releases(engines: Any, family: str) -> list[Engine]:  # noqa: ANN401 - any iterable of engines
    """Return the entries of one engine that have a range of versions, oldest first."""
    dated = [engine for engine in engines if engine.family == family and engine.versions]
    return sorted(dated, key=lambda engine: version_number(engine.versions[0]))


def _moved(one: Difference) -> dict[str, Any]:
    return {
        "model": one.model,
        "old": one.old,
        "new": one.new,
        "cause": one.effects[0].term if one.effects else None,
    }


def _feed(site: SiteData, found: list[dict[str, Any]]) -> str:
    home, own = urljoin(site.site_url, "data/"), urljoin(site.site_url, NAMES[0])
    when = f"{site.version.replace('.', '-')}T00:00:00Z"
    entries = "".join(_entry(home, when, change) for change in reversed(found))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<feed xmlns="http://www.w3.org/2005/Atom">\n'
        "  <title>kvreport: what each engine release changed</title>\n"
        f"  <id>{escape(own)}</id>\n"
        f'  <link rel="self" href={quoteattr(own)}/>\n'
        f"  <link href={quoteattr(home)}/>\n"
        f"  <updated>{when}</updated>\n"
        "  <author><name>The kvreport authors</name></author>\n"
        f"{entries}</feed>\n"
    )


def _entry(home: str, when: str, change: dict[str, Any]) -> str:
    notable = [one for one in change["models"] if abs(one["new"] / one["old"] - 1) >= _NOTABLE]
    fewer = [one for one in notable if one["new"] < one["old"]]
    more = [one for one in notable if one["new"] > one["old"]][::-1]
    lines = [f"{len(fewer)} models hold fewer requests of 8K on {change['gpu']}, {len(more)} hold more."]
    for one in [*fewer[: _SHOWN // 2], *more[: _SHOWN // 2]]:
        cause = f" ({WORDS[one['cause']]})" if one["cause"] else ""
        lines.append(f"{one['model']}: {one['old']:.2f} to {one['new']:.2f}{cause}")
    summary = escape("\n".join(lines))
    return (
        "  <entry>\n"
        f"    <title>{escape(change['engine'])}: what changed in capacity</title>\n"
        f"    <id>{escape(home)}#engine-{escape(change['to'])}</id>\n"
        f"    <link href={quoteattr(home)}/>\n"
        f"    <updated>{when}</updated>\n"
        f"    <summary>{summary}</summary>\n"
        "  </entry>\n"
    )
