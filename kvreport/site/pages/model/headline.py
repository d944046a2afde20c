"""The conclusion of a model's page: the point that it speaks of, and the sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvreport import units
from kvreport.accounting import capacity
from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.accounting.weights import released_bytes
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate, estimate
from kvreport.estimation.named_copies import narrowed
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData, devices, page_format
from kvreport.site.kit import diagrams
from kvreport.site.kit.elements import Bar
from kvreport.words import SENTENCES, Pieces, counted, pieces

HEADLINE_CONTEXT: Final = 8192

MLX: Final = "mlx"
"""How the names of MLX's weight formats begin (``mlx4-g64``): see :mod:`kvreport.catalog.layouts`."""


def headline_index(best: Series, model: Model) -> int:
    """Return the index of the context that the headline speaks of: 8K, or the longest that fits."""
    fitting = [n for n in range(len(best.contexts)) if best.holds(n)]
    wanted = [n for n in fitting if best.contexts[n] <= min(HEADLINE_CONTEXT, model.context_tokens)]
    return wanted[-1] if wanted else fitting[0]


def refused(model: str, engine: str, reason: str) -> str:
    """Say that an engine does not run a model, and why, with the engine's name once."""
    told = reason.rstrip(".")
    if told.startswith(f"{engine} "):
        told = f"it {told.removeprefix(f'{engine} ')}"
    return SENTENCES["refused"].format(engine=engine, model=model, reason=told)


def headline(site: SiteData, model: Model, best: Series | None, answer: Estimate | None = None) -> Pieces:
    """Return the conclusion as (text, emphasized) pieces.

    Args:
        site: What every page may ask.
        model: The model.
        best: The headline's series, or None where nothing serves the model.
        answer: The headline's estimate, if it has been made already.
    """
    refusal = site.refusal(model)
    if refusal:
        return pieces(refused(model.name, site.engine.label, refusal))
    if best is None and model.context_tokens < min(site.contexts):
        return pieces(
            SENTENCES["below_grid"].format(
                model=model.name,
                limit=units.human_tokens(model.context_tokens),
                context=units.human_tokens(min(site.contexts)),
            )
        )
    if best is None:
        most = max(site.catalog.grid.tensor_parallel)
        told = "nowhere_mlx" if model.weight_format.startswith(MLX) else "nowhere"
        return pieces(SENTENCES[told].format(engine=site.engine.label, model=model.name, most=most))
    index = headline_index(best, model)
    answer = answer or headline_estimate(site, model, best)
    known = {
        "model": model.name,
        "devices": devices(best.config.tensor_parallel, site.gpu_name(best.config.gpu)),
        "context": units.human_tokens(best.contexts[index]),
        "requests": requests_text(answer.max_concurrent_requests),
        "error": units.gib(answer.budget.uncertainty_bytes),
        "limit": units.human_tokens(model.context_tokens),
        "seqs": units.count(answer.request.serving.max_seqs),
        "held": units.count(answer.max_concurrent_requests_by_memory),
        "longest": units.human_tokens(best.longest),
    }
    if answer.max_concurrent_requests_by_memory >= UNLIMITED_REQUESTS:
        tight = [SENTENCES["tight"]] * (answer.verdict == "tight")
        return pieces(*(sentence.format(**known) for sentence in (SENTENCES["no_cache"], *tight)))
    serves = "serves_one" if answer.max_concurrent_requests == 1 else "serves"
    said = [SENTENCES[serves], *_limits(answer)]
    last = max(n for n in range(len(best.contexts)) if best.holds(n))
    if best.longest < model.context_tokens:
        said.append(SENTENCES["longest"])
    elif best.contexts[last] == model.context_tokens and last > index:
        said.append(
            SENTENCES["at_limit"].replace("{requests}", requests_text(best.users[last])),
        )
    return pieces(*(sentence.format(**known) for sentence in said))


def _limits(answer: Estimate) -> Iterator[str]:
    """Sentences on what limits the requests, and on a tight fit."""
    if answer.verdict == "tight":
        yield SENTENCES["tight"]
    if answer.limited_by == "max_num_seqs":
        yield SENTENCES["limited_max_num_seqs"]
    elif answer.limited_by == "state_slots":
        yield SENTENCES["limited_state_slots"]


def headline_estimate(site: SiteData, model: Model, best: Series) -> Estimate:
    """Return the estimate of the headline's point."""
    shown = headline_index(best, model)
    return estimate(
        model,
        gpu=best.config.gpu,
        tensor_parallel=best.config.tensor_parallel,
        context_tokens=best.contexts[shown],
        weights=best.config.weight_format,
        kv=best.config.kv_format,
        engine=site.engine.name,
        catalog=site.catalog,
    )


def plain(told: Pieces) -> str:
    """Return a headline's pieces as plain text."""
    return "".join(text for text, _ in told)


def first_sentence(told: Pieces) -> str:
    """Return the first sentence of a headline, without its full stop."""
    return plain(told).split(". ")[0].rstrip(".")


def conditions(site: SiteData, model: Model, kv_format: str, answer: Estimate | None = None) -> str:
    """Say what the pool of an answer holds, and under which engine and formats its number holds."""
    form = page_format(model)
    weights = site.catalog.weight_formats.get(model.weight_format if form == RELEASED else form)
    cache = site.catalog.kv_formats.get(kv_format)
    told = (
        "conditions_unread" if form != RELEASED else "conditions_by_name" if model.by_name else "conditions"
    )
    formats = SENTENCES[told].format(
        engine=site.engine.label,
        weights=weights.label if weights else model.weight_format,
        kv=cache.label if cache else kv_format,
    )
    return f"{_pool_tokens(answer)}{formats}"


def _pool_tokens(answer: Estimate | None) -> str:
    """Bytes and tokens of an answer's pool with a space behind; "" where nothing limits them."""
    if answer is None or not answer.kv_pool_tokens or not answer.max_concurrent_requests:
        return ""
    told = SENTENCES["pool_tokens"].format(
        pool=units.gib(answer.budget.kv_pool_bytes),
        number=units.count(answer.kv_pool_tokens),
        context=units.human_tokens(answer.request.context_tokens),
    )
    return f"{told} {_range(answer)}"


def _range(answer: Estimate) -> str:
    """The requests at both ends of the pool's error band, with a space behind; "" where they are as many."""
    pool, error = answer.budget.kv_pool_bytes, answer.budget.uncertainty_bytes
    most = answer.request.serving.max_seqs
    low, high = (
        min(int(capacity.users(end, answer.plan, answer.context_tokens)), most)
        for end in (max(pool - error, 0), pool + error)
    )
    if low == high:
        return ""
    told = SENTENCES["requests_range"].format(
        error=units.gib(error), low=units.count(low), high=units.count(high)
    )
    return f"{told} "


def open_mix(site: SiteData, model: Model) -> str:
    """Say how much the weights of a copy may have that is known by its name alone; "" where its mix is known."""
    if not model.by_name:
        return ""
    formats = site.catalog.weight_formats
    least, most = (units.gib(released_bytes(end, formats)) for end in (narrowed(model), model))
    return SENTENCES["by_name"].format(least=least, most=most)


def requests_text(number: int) -> str:
    """Return ``1 concurrent request`` or ``12 concurrent requests``."""
    return counted(number, "concurrent request|concurrent requests", units.count(number))


def memory_bar(answer: Estimate | None, best: Series | None, shown: int | None) -> Bar | None:
    """Return where one device's memory goes at the headline's point, or None without a headline."""
    if answer is None or best is None or shown is None:
        return None
    facts = answer.to_dict()
    budget = facts["budget"]
    users = facts["max_concurrent_requests"] // answer.request.layout.data
    state = users * facts["state_bytes_per_request_per_gpu"]
    held = users * facts["kv_bytes_per_request_per_gpu"]
    reserve = budget["activations"] + budget["non_framework"] + budget["graphs"]
    used = budget["weights"] + reserve + held
    parts = (
        ("weights", "loaded weights", budget["weights"]),
        ("cache", "KV cache", held - min(state, held)),
        ("state", "recurrent states", min(state, held)),
        ("reserve", "activations, libraries, graphs", reserve),
        ("free", "unused", budget["total_bytes"] - used),
    )
    told = f"{requests_text(users)} of {units.human_tokens(best.contexts[shown])} tokens"
    told = "no KV cache" if facts["max_concurrent_requests_by_memory"] is None else told
    share = budget["utilization"]
    memory = SENTENCES["process_memory"].format(
        usable=units.gib(budget["total_bytes"]), share=f"{100 * share:g}%" if share < 1 else "all"
    )
    words = (
        f"Memory of one GPU with {told}. {memory} "
        f"The 80% error band of the KV pool is ±{units.gib(budget['uncertainty_bytes'])} GiB. "
        + SENTENCES["band_of_kind"]
    )
    return diagrams.bar("Memory of one GPU", parts, budget["total_bytes"], words)
