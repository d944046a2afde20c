"""The conclusion of a model's page: the point that it speaks of, and the sentence."""

from __future__ import annotations

from typing import Final

from kvreport import units
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate, estimate
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData, devices
from kvreport.site.kit import diagrams
from kvreport.site.kit.elements import Bar

HEADLINE_CONTEXT: Final = 8192


def headline_index(best: Series, model: Model) -> int:
    """Return the index of the context that the headline speaks of: 8K, or the longest that fits."""
    fitting = [n for n in range(len(best.contexts)) if best.holds(n)]
    wanted = [n for n in fitting if best.contexts[n] <= min(HEADLINE_CONTEXT, model.context_tokens)]
    return wanted[-1] if wanted else fitting[0]


def headline(site: SiteData, model: Model, best: Series | None) -> tuple[tuple[str, bool], ...]:
    """Return the conclusion in one sentence, as (text, emphasised) pieces."""
    refusal = site.refusal(model)
    if refusal:
        return ((f"{site.engine.label} does not run {model.name}: {refusal}", False),)
    if best is None:
        return ((f"No usual server of the catalogue holds {model.name} as released.", False),)
    index = headline_index(best, model)
    where = devices(best.config.tensor_parallel, site.gpu_name(best.config.gpu))
    pieces = [
        (users_text(best.users[index]), True),
        (f" at {units.human_tokens(best.contexts[index])} on {where}", False),
    ]
    last = max(n for n in range(len(best.contexts)) if best.holds(n))
    if best.contexts[last] == model.context_tokens and last > index:
        pieces += [("; ", False), (units.count(best.users[last]), True)]
        pieces += [(f" at its full {units.human_tokens(model.context_tokens)}.", False)]
    elif best.longest < model.context_tokens:
        pieces += [("; one request may grow to ", False), (approximate(best.longest), True)]
        pieces += [(f" of its {units.human_tokens(model.context_tokens)}.", False)]
    else:
        pieces += [(".", False)]
    return tuple(pieces)


def headline_estimate(site: SiteData, model: Model, best: Series) -> Estimate:
    """Return the estimate of the headline's point."""
    shown = headline_index(best, model)
    return estimate(
        model,
        gpu=best.config.gpu,
        tensor_parallel=best.config.tensor_parallel,
        context_tokens=best.contexts[shown],
        weights=RELEASED,
        kv=best.config.kv_format,
        engine=site.engine.name,
        catalog=site.catalogue,
    )


def plain(pieces: tuple[tuple[str, bool], ...]) -> str:
    """Return a headline's pieces as one plain sentence."""
    return "".join(text for text, _ in pieces)


def conditions(site: SiteData, model: Model, kv_format: str) -> str:
    """Say under which engine and formats a number holds."""
    weights = site.catalogue.weight_formats.get(model.weight_format)
    cache = site.catalogue.kv_formats.get(kv_format)
    return (
        f"{site.engine.label} with its defaults, {weights.label if weights else model.weight_format} weights "
        f"as released, {cache.label if cache else kv_format} cache. From formulas, not measured."
    )


def users_text(number: int) -> str:
    """Return ``1 user`` or ``12 users``."""
    return f"{units.count(number)} user{'s' if number != 1 else ''}"


def approximate(tokens: int) -> str:
    """Return a token count rounded down to what is worth saying: ``83K``."""
    if tokens >= 1 << 20:
        return f"{tokens / (1 << 20):.1f}M"
    return f"{tokens >> 10}K" if tokens >= 1 << 12 else units.count(tokens)


def memory_bar(answer: Estimate | None, best: Series | None, shown: int | None) -> Bar | None:
    """Return where one device's memory goes at the headline's point, or None without a headline."""
    if answer is None or best is None or shown is None:
        return None
    facts = answer.to_dict()
    budget = facts["budget"]
    users = min(best.users[shown], facts["max_concurrent_requests"])
    state = users * facts["state_bytes_per_request_per_gpu"]
    held = users * facts["kv_bytes_per_request_per_gpu"]
    reserve = budget["activations"] + budget["non_framework"] + budget["graphs"]
    used = budget["weights"] + reserve + held
    parts = (
        ("weights", "weights", budget["weights"]),
        ("cache", "KV cache in use", held - min(state, held)),
        ("state", "recurrent state", min(state, held)),
        ("reserve", "activations and reserve", reserve),
        ("free", "left over", budget["total_bytes"] - used),
    )
    words = (
        f"One device with {users_text(users)} of {units.human_tokens(best.contexts[shown])} each: "
        f"{units.gib(budget['total_bytes'])} GiB usable, of which the engine takes {budget['utilization']:.0%}."
    )
    return diagrams.bar("Where one device's memory goes", parts, budget["total_bytes"], words)
