"""A model's boundary: the longest context by users, one line per accelerator."""

from __future__ import annotations

from typing import Final

from kvreport.accounting import capacity
from kvreport.accounting import numeric as xp
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate, estimate
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.site.kit import tables
from kvreport.site.kit.boundary_plot import Plot, PlotData, PlotLine
from kvreport.site.kit.social_cards import SocialCard
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.pages.model.grids import contexts_of, user_cells
from kvreport.site.pages.model.headline import (
    first_sentence,
    headline,
    headline_estimate,
    headline_index,
)

LINES: Final = 6


def boundary_data(
    site: SiteData, model: Model, best: Series, answer: Estimate
) -> tuple[PlotData, list[Series]]:
    """Return what the boundary chart shows, and its series, the headline's first."""
    serving = [one for gpu in site.known_gpus if (one := site.serving(model, gpu)) is not None]
    others = [one for one in serving if one.config.gpu != best.config.gpu]
    shown = [best, *others][:LINES]
    index = headline_index(best, model)
    data = PlotData(
        lines=tuple(PlotLine(_series_name(site, one), _to_the_end(site, one, model)) for one in shown),
        ceiling=best.line(best.ceiling),
        low=_with_pool(best, answer, -answer.budget.uncertainty_bytes),
        high=_with_pool(best, answer, answer.budget.uncertainty_bytes),
        limit=model.context_tokens,
        chosen=(best.contexts[index], best.users[index]),
    )
    return data, shown


def card(site: SiteData, model: Model, best: Series | None) -> SocialCard | None:
    """Return the picture of a shared link: the page's headline over its boundary chart; None if nothing fits."""
    if best is None:
        return None
    answer = headline_estimate(site, model, best)
    data, _ = boundary_data(site, model, best, answer)
    return SocialCard(model.name, first_sentence(headline(site, model, best, answer)), data)


def boundary_plot(
    site: SiteData, model: Model, best: Series | None, answer: Estimate | None = None
) -> Plot | None:
    """Return the boundary chart with its data, or None if nothing fits."""
    if best is None:
        return None
    data, shown = boundary_data(site, model, best, answer or headline_estimate(site, model, best))
    return Plot(
        id="boundary-chart",
        title=f"{model.name}: concurrent requests by context, one line per accelerator",
        data=data,
        table=Table(
            caption="The same data: concurrent requests by context per request (tokens)",
            head=Column("GPU or accelerator", numeric=False),
            columns=tables.context_columns(contexts_of(site, model)),
            rows=tuple(
                Row(Cell(_series_name(site, one)), user_cells(one, len(contexts_of(site, model))))
                for one in shown
            ),
            css="kv-grid",
            dense=True,
        ),
    )


def _series_name(site: SiteData, one: Series) -> str:
    name = site.gpu_name(one.config.gpu)
    return name if one.config.tensor_parallel == 1 else f"{one.config.tensor_parallel} × {name}"


def _with_pool(best: Series, answer: Estimate, more_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return the headline's line with a pool that much larger."""
    laid = answer.deployment
    own = answer.budget.kv_pool_bytes
    pool = own if laid is None else xp.maximum(laid.at_any_length().pools_for(best.contexts), 0)
    counts: list[int] = capacity.users(pool + more_bytes, answer.plan, best.contexts).tolist()
    return best.line(counts)


def _to_the_end(site: SiteData, one: Series, model: Model) -> tuple[tuple[int, int], ...]:
    """Return a series' line, drawn on to the longest context that one request can have.

    Where memory ends it, one request is left there; where the model's own limit does, as many as fit.
    """
    points = [point for point in one.line() if point[0] <= model.context_tokens]
    if one.longest and (not points or points[-1][0] < one.longest <= model.context_tokens):
        points.append(
            (one.longest, 1 if one.longest < model.context_tokens else _users_at_limit(site, one, model))
        )
    return tuple(points)


def _users_at_limit(site: SiteData, one: Series, model: Model) -> int:
    """Users at the model's own limit, where that is no context of the grid."""
    kept = site.users_at_limit
    if one.config not in kept:
        kept[one.config] = estimate(
            model,
            gpu=one.config.gpu,
            tensor_parallel=one.config.tensor_parallel,
            context_tokens=model.context_tokens,
            weights=one.config.weight_format,
            kv=one.config.kv_format,
            engine=site.engine.name,
            catalog=site.catalog,
        ).max_concurrent_requests
    return max(kept[one.config], 1)
