"""What changed with each release of an engine: a feed, and the same as JSON.

Every model is asked the same question under each release of vLLM and SGLang whose rules are in the data, and
each change is traced to the term of the budget that did it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import pandas as pd

from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import Plain, dated_releases, read_rules
from kvreport.errors import InputError
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.difference import WORDS, Terms, counted, effects
from kvreport.publish.feeds import atom
from kvreport.publish.profiles import ENGINES, FOLDER, encode
from kvreport.publish.site_data import SiteData

NAMES: Final = ("data/engine-releases.xml", "data/engine-releases.json")
RULES: Final = f"{FOLDER}/engine-rules.json"
"""Every change of a rule, by family: [first release, what the rule is about, its value from then on, its name, whether it is a
list of model classes]."""
CONTEXT: Final = 8192
"""The context that every model is asked about."""
_SHOWN: Final = 12
_NOTABLE: Final = 0.02
"""A change of less than two percent is in the JSON and not in the feed."""


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield (address, content) of the feed and of the JSON."""
    found = list(changes(site))
    yield NAMES[0], _feed(site, found).encode()
    yield (
        NAMES[1],
        encode({"schema": 1, "release": site.version, "context_tokens": CONTEXT, "changes": found}),
    )
    families = dict.fromkeys(new.family for _, new in steps(site))
    yield RULES, encode({name: rule_changes(site.catalog.folder, name) for name in families})


def rule_changes(folder: Path, family: str) -> list[tuple[str, str, str, str, int]]:
    """Return every change of a family's rules, oldest first, as the file of :data:`RULES` has it.

    Two releases give the same answers where no rule changed after the older one and up to the newer one.
    """
    rules = read_rules(folder, family)
    if rules is None:
        return []
    lists = {one.list for one in rules.lists}
    return [
        (first, what, said(value), name, int(name in lists)) for first, what, name, value in rules.changes()
    ]


_NAMED: Final = 6
"""Model classes of a list that are named; the data has all."""


def said(value: Plain) -> str:
    """Return the value of a rule in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)[:_NAMED]) + (" and others" * (len(value) > _NAMED)) or "none"
    return f"{value:,.0f}" if isinstance(value, int | float) and value >= 1024 else str(value)


def changes(site: SiteData) -> Iterator[dict[str, Any]]:
    """Yield one object for each step from a release of an engine to its next; those of the site's own engine come first."""
    gpu = site.known_gpus[0]
    every = of_models(site, site.models)
    for number, (old, new) in enumerate(steps(site)):
        yield {
            "family": new.family,
            "engine": new.label,
            "from": old.name,
            "to": new.name,
            "version": (new.versions or ("", None))[0],
            "gpu": gpu,
            "models": _ranked([one for of_model in every if (one := of_model[number]) is not None]),
        }


def _ranked(moved: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a release changed, the greatest loss first; models with equal changes in their order."""
    frame = pd.DataFrame(moved, columns=["model", "old", "new", "cause"])
    order = (frame["new"] / frame["old"]).sort_values(kind="stable").index
    return [moved[place] for place in order]


def of_models(site: SiteData, models: Sequence[Model]) -> list[list[dict[str, Any] | None]]:
    """Return what each step from a release to the next changed, for each of some models; None where nothing did."""
    gpu = site.known_gpus[0]
    make = partial(_of_model, site, steps(site), gpu)
    return [of_model for _, of_model in site.parts.each("engine-changes", models, make, gpu)]


def steps(site: SiteData) -> list[tuple[Engine, Engine]]:
    """The releases of each engine that pages can switch to, every one with the next; those of the site's own engine first."""
    engines = site.catalog.engines
    others = (engines[name].family for name in ENGINES if name in engines)
    families = dict.fromkeys((site.engine.family, *others))
    return [pair for family in families for pair in pairwise(dated_releases(engines.values(), family))]


def _of_model(
    site: SiteData, pairs: Sequence[tuple[Engine, Engine]], gpu: str, model: Model
) -> list[dict[str, Any] | None]:
    """Return what each step changed for one model; None where it changed nothing or one side has no count."""

    # Each release is answered once: it is the new side of one step and the old side of the next.
    @cache
    def answer(name: str) -> Estimate | None:
        try:
            return counted(
                estimate(
                    model,
                    gpu=site.catalog.accelerator(gpu),
                    context_tokens=CONTEXT,
                    engine=site.catalog.engine(name),
                    catalog=site.catalog,
                )
            )
        except InputError:
            return None

    return [_moved(model, answer(old.name), answer(new.name)) for old, new in pairs]


def _moved(model: Model, old: Estimate | None, new: Estimate | None) -> dict[str, Any] | None:
    if old is None or new is None or not old.max_concurrency or new.max_concurrency is None:
        return None
    if old.max_concurrency == new.max_concurrency:
        return None
    terms = effects(Terms.of(old), Terms.of(new))
    return {
        "model": model.id,
        "old": old.max_concurrency,
        "new": new.max_concurrency,
        "cause": terms[0].term if terms else None,
    }


def _feed(site: SiteData, found: list[dict[str, Any]]) -> str:
    home, own = urljoin(site.site_url, "data/"), urljoin(site.site_url, NAMES[0])
    entries = (
        (f"{one['engine']}: what changed in capacity", f"#engine-{one['to']}", home, _summary(one))
        for one in reversed(found)
    )
    return atom(site, NAMES[0], "what each engine release changed", own, entries)


def _summary(change: dict[str, Any]) -> str:
    models = pd.DataFrame(change["models"], columns=["model", "old", "new", "cause"])
    gain = models["new"] / models["old"] - 1
    fewer, more = models[gain <= -_NOTABLE], models[gain >= _NOTABLE][::-1]
    lines = [
        f"The cache on {change['gpu']} holds fewer requests of 8K for {len(fewer)} models, and more for {len(more)}."
    ]
    for one in pd.concat([fewer[: _SHOWN // 2], more[: _SHOWN // 2]]).to_dict("records"):
        cause = f" ({WORDS[str(one['cause'])]})" if one["cause"] else ""
        lines.append(f"{one['model']}: {one['old']:.2f} to {one['new']:.2f}{cause}")
    return "\n".join(lines)
