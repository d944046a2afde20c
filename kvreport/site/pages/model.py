"""A model's page: how many users fit, where, and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from kvreport import units
from kvreport.accounting import capacity
from kvreport.accounting.weights import active_parameters, parameters
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.estimation import Estimate, estimate
from kvreport.publish.downloads import FOLDER
from kvreport.publish.series import Config, Series
from kvreport.publish.site_data import SiteData, devices
from kvreport.site.kit import charts, tables
from kvreport.site.kit import diagrams as pictures
from kvreport.site.kit.contexts import Bar, Chart, Fact, Link, ModelContext, Step
from kvreport.site.kit.sources import source_lines
from kvreport.site.kit.tables import Cell, Column, Row, Table

HEADLINE_CONTEXT: Final = 8192
LINES: Final = 6


def context(site: SiteData, model: Model, best: Series | None) -> ModelContext:
    """Return a model's page.

    Args:
        site: What every page may ask.
        model: The model.
        best: The headline's series, or None where no well-known accelerator serves it.
    """
    shown = headline_index(best, model) if best else None
    answer = headline_estimate(site, model, best) if best else None
    kv_format = best.config.kv_format if best else _any_kv(site, model)
    return ModelContext(
        slug=model.slug,
        model_id=model.id,
        headline=headline(site, model, best),
        conditions=conditions(site, model, kv_format),
        facts=tuple(_facts(model, best, shown)),
        strip=pictures.strip(model),
        chart=boundary_chart(site, model, best, answer),
        grid=_grid(site, model),
        steps=_steps(answer),
        bar=memory_bar(answer, best, shown),
        weights=_weights(site, model),
        formats=_labels(site.catalogue.weight_formats, _formats_of(site, model, "weight_format")),
        kv_formats=_labels(site.catalogue.kv_formats, _formats_of(site, model, "kv_format")),
        sizes=tuple(sorted({c.tensor_parallel for c in site.released.get(model.id, {})})),
        weight_format=RELEASED,
        kv_format=kv_format,
        engine=site.engine.label,
        command=_command(site, model, best),
        estimate=_estimate_command(model, best),
        notes=model.notes,
        sources=source_lines(model.sources),
        downloads=_downloads(site, model),
        cite=f"kvreport, {model.name}: memory and capacity, data release {site.version}. Data CC BY 4.0.",
        neighbours=_neighbours(site, model),
        data_url=f"downloads/v1/models/{model.slug}.json",
    )


def best_series(site: SiteData, model: Model) -> Series | None:
    """Return the series of the headline, or None if no well-known accelerator serves the model.

    The fewest devices that hold one request of the model's full context; where none does, the
    fewest that serve. Among equals the best-known accelerator.
    """
    serving = [one for gpu in site.known_gpus for one in site.on(model, gpu) if one.serves]

    def order(one: Series) -> tuple[bool, int]:
        return (one.longest < model.context_tokens, one.config.tensor_parallel)

    return min(serving, key=order) if serving else None


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
        (_users(best.users[index]), True),
        (f" at {units.human_tokens(best.contexts[index])} on {where}", False),
    ]
    last = max(n for n in range(len(best.contexts)) if best.holds(n))
    if best.contexts[last] == model.context_tokens and last > index:
        pieces += [("; ", False), (units.count(best.users[last]), True)]
        pieces += [(f" at its full {units.human_tokens(model.context_tokens)}.", False)]
    elif best.longest < model.context_tokens:
        pieces += [("; one request may grow to ", False), (_approximate(best.longest), True)]
        pieces += [(f" of its {units.human_tokens(model.context_tokens)}.", False)]
    else:
        pieces += [(".", False)]
    return tuple(pieces)


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


def _users(number: int) -> str:
    return f"{units.count(number)} user{'s' if number != 1 else ''}"


def _approximate(tokens: int) -> str:
    """Return a token count rounded down to what is worth saying: ``83K``."""
    if tokens >= 1 << 20:
        return f"{tokens / (1 << 20):.1f}M"
    return f"{tokens >> 10}K" if tokens >= 1 << 12 else units.count(tokens)


def _facts(model: Model, best: Series | None, shown: int | None) -> Iterator[Fact]:
    total, active = parameters(model), active_parameters(model)
    yield Fact(
        "parameters",
        units.human_parameters(total),
        f"{units.human_parameters(active)} read per token" if active != total else "",
    )
    if best is not None and shown is not None:
        per_device = "" if best.config.tensor_parallel == 1 else "on each device"
        yield Fact("weights as released", f"{units.gib(best.weight_bytes)} GiB", per_device)
        at = f"at {units.human_tokens(best.contexts[shown])}"
        yield Fact(
            "cache per further token",
            units.human_bytes(best.token_bytes[shown]),
            f"{at} {per_device}".strip(),
        )
        if best.state_bytes:
            yield Fact("state per request", units.human_bytes(best.state_bytes), "whatever its length")
        yield Fact(
            "one request reserves", units.human_bytes(best.request_bytes[shown]), f"{at} {per_device}".strip()
        )
    yield Fact(
        "longest context", units.human_tokens(model.context_tokens), f"{model.context_tokens:,} tokens"
    )


def _series_name(site: SiteData, one: Series) -> str:
    name = site.gpu_name(one.config.gpu)
    return name if one.config.tensor_parallel == 1 else f"{one.config.tensor_parallel} × {name}"


def boundary_request(
    site: SiteData, model: Model, best: Series | None, answer: Estimate | None = None
) -> tuple[charts.Request, list[Series]] | None:
    """Return the boundary chart's request and its series, the headline's first; None if nothing fits.

    Args:
        site: What every page may ask.
        model: The model.
        best: The headline's series.
        answer: The headline's estimate, if it has been made already.
    """
    if best is None:
        return None
    answer = answer or headline_estimate(site, model, best)
    serving = [one for gpu in site.known_gpus if (one := site.serving(model, gpu)) is not None]
    others = [one for one in serving if one.config.gpu != best.config.gpu]
    shown = [best, *others][:LINES]
    lines = tuple(charts.Line(_series_name(site, one), _to_the_end(site, one, model)) for one in shown)
    data = charts.Boundary(
        lines=lines,
        ceiling=best.line(best.ceiling),
        low=_with_pool(best, answer, -answer.budget.uncertainty_bytes),
        high=_with_pool(best, answer, answer.budget.uncertainty_bytes),
        limit_tokens=model.context_tokens,
    )
    card = (model.name, plain(headline(site, model, best)))
    return charts.Request("boundary", data, card), shown


def _with_pool(best: Series, answer: Estimate, more_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return the headline's line with a pool that much larger."""
    pool = answer.budget.kv_pool_bytes + more_bytes
    counts: list[int] = capacity.users(pool, answer.plan, best.contexts).tolist()
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
            weights=RELEASED,
            kv=one.config.kv_format,
            engine=site.engine.name,
            catalog=site.catalogue,
        ).max_concurrent_requests
    return max(kept[one.config], 1)


def boundary_chart(
    site: SiteData, model: Model, best: Series | None, answer: Estimate | None = None
) -> Chart | None:
    """Return the out-of-memory boundary with its data, or None if nothing fits."""
    made = boundary_request(site, model, best, answer)
    if made is None:
        return None
    request, shown = made
    legend = tuple((number, _series_name(site, one)) for number, one in enumerate(shown, start=1))
    return Chart(
        id="boundary-chart",
        title=f"{model.name}: simultaneous users by context, one line per accelerator",
        digest=request.digest,
        legend=legend,
        notes=(
            ("kv-dots", f"ceiling of {legend[0][1]}: nothing reserved, nothing rounded"),
            ("kv-band", f"the estimate's uncertainty, {legend[0][1]}"),
        ),
        caption="Below a line it fits. Both axes double with every step. The right edge is the model's own limit.",
        table=Table(
            caption="The same data: simultaneous users, by context in tokens",
            head=Column("on", numeric=False),
            columns=tables.context_columns(_contexts(site, model)),
            rows=tuple(
                Row(Cell(_series_name(site, one)), _cells(one, len(_contexts(site, model)))) for one in shown
            ),
            css="kv-grid",
            dense=True,
        ),
    )


def _contexts(site: SiteData, model: Model) -> tuple[int, ...]:
    """Return the grid's contexts up to the model's limit, and the first one if all are beyond."""
    return tuple(n for n in site.contexts if n <= model.context_tokens) or site.contexts[:1]


def _cells(one: Series, number: int) -> tuple[Cell, ...]:
    return tuple(tables.users_cell(one.users[n], one.verdicts[n]) for n in range(number))


def _grid(site: SiteData, model: Model) -> Table:
    contexts = _contexts(site, model)
    rows = []
    for gpu in site.gpus:
        series = site.on(model, gpu.id)
        one = site.serving(model, gpu.id)
        head = Cell(site.gpu_name(gpu.id), href=f"gpus/{gpu.id}/", hint=gpu.vendor)
        anchor = f"on-{gpu.id}"
        if one is None:
            rows.append(Row(head, anchor=anchor, why=_why_not(site, model, series, gpu.id)))
            continue
        cells = (
            Cell(str(one.config.tensor_parallel), "kv-num", value=one.config.tensor_parallel),
            *_cells(one, len(contexts)),
            Cell(_approximate(one.longest), "kv-num", value=one.longest, hint=f"{one.longest:,} tokens"),
        )
        rows.append(Row(head, cells, anchor=anchor))
    return Table(
        caption=(
            "Simultaneous users on the fewest devices of each kind that serve the model, by context of each "
            "request in tokens"
        ),
        head=Column("accelerator", numeric=False),
        columns=(
            Column("devices"),
            *tables.context_columns(contexts),
            Column("longest", hint="The longest single request that fits"),
        ),
        rows=tuple(rows),
        name="users-table",
        css="kv-grid",
        dense=True,
    )


def _why_not(site: SiteData, model: Model, series: list[Series], gpu: str) -> str:
    name = site.gpu_name(gpu)
    refusal = site.refusal(model)
    if refusal:
        return f"unsupported: {refusal}"
    if not series:
        return f"not offered: {model.name} cannot be split so, or the engine does not run it on {name}"
    widest = max(series, key=lambda one: one.config.tensor_parallel)
    number = widest.config.tensor_parallel
    usable = site.catalogue.accelerators[gpu].usable_bytes
    if all(verdict == "weights_exceed_memory" for verdict in widest.verdicts):
        return (
            f"weights: {units.gib(widest.weight_bytes, 1)} GiB on each of {number}, "
            f"and one has {units.gib(usable, 1)} GiB"
        )
    return f"cache: the weights leave no room for one request on each of {number}"


def _formats_of(site: SiteData, model: Model, key: str) -> tuple[str, ...]:
    found = dict.fromkeys(getattr(config, key) for config in site.on_headline_gpu.get(model.id, {}))
    return tuple(sorted(found, key=lambda name: name != RELEASED))


def _any_kv(site: SiteData, model: Model) -> str:
    configs: list[Config] = list(site.released.get(model.id, {}))
    return configs[0].kv_format if configs else model.kv_format or model.dtype


def _labels(formats: object, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found: dict[str, object] = dict(formats)  # type: ignore[call-overload]
    return tuple((name, getattr(found.get(name), "label", "as released")) for name in names)


def _weights(site: SiteData, model: Model) -> Table:
    """Weights per device by format and tensor-parallel size, and users at 8K on the headline's GPU."""
    series = site.on_headline_gpu.get(model.id, {})
    gpu = site.known_gpus[0]
    sizes = sorted({config.tensor_parallel for config in series})
    rows = []
    for name in _formats_of(site, model, "weight_format"):
        label = _labels(site.catalogue.weight_formats, (name,))[0][1]
        if name == RELEASED:
            released = site.catalogue.weight_formats.get(model.weight_format)
            label = f"as released ({released.label if released else model.weight_format})"
        by_size = {
            size: next(
                (s for c, s in series.items() if c.tensor_parallel == size and c.weight_format == name), None
            )
            for size in sizes
        }
        cells = [tables.size_cell(one.weight_bytes if one else None) for one in by_size.values()]
        rows.append(Row(Cell(label), tuple(cells), anchor=f"weights-{name}"))
    return (
        Table(
            caption="Weights on each device, by storage format and by number of devices",
            head=Column("format", numeric=False),
            columns=tuple(Column(f"on {size}" if size > 1 else "on one", "GiB") for size in sizes),
            rows=tuple(rows),
            name="weights-table",
        )
        if rows
        else Table(f"No size of {site.gpu_name(gpu)} server runs it", Column("format"), (), ())
    )


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


def _steps(answer: Estimate | None) -> tuple[Step, ...]:
    if answer is None:
        return ()
    lines = [str(line) for line in answer.to_dict()["explanation"]]
    return tuple(_step(line, last=line is lines[-1]) for line in lines)


def _step(line: str, *, last: bool) -> Step:
    words, colon, numbers = line.partition(": ")
    return Step(words if colon else "", numbers if colon else line, last)


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
        f"One device with {_users(users)} of {units.human_tokens(best.contexts[shown])} each: "
        f"{units.gib(budget['total_bytes'])} GiB usable, of which the engine takes {budget['utilization']:.0%}."
    )
    return pictures.bar("Where one device's memory goes", parts, budget["total_bytes"], words)


def _command(site: SiteData, model: Model, best: Series | None) -> str:
    if best is None or site.engine.family != "vllm":
        return ""
    parts = ["vllm", "serve", model.id]
    if best.config.tensor_parallel > 1:
        parts += ["--tensor-parallel-size", str(best.config.tensor_parallel)]
    longest = min(best.longest, model.context_tokens)
    if longest < model.context_tokens:
        parts += ["--max-model-len", str(longest)]
    return shlex.join(parts)


def _estimate_command(model: Model, best: Series | None) -> str:
    if best is None:
        return ""
    parts = ["kvreport", "estimate", model.id, "--gpu", best.config.gpu]
    if best.config.tensor_parallel > 1:
        parts += ["--tensor-parallel", str(best.config.tensor_parallel)]
    shown = headline_index(best, model)
    parts += ["--context", units.human_tokens(best.contexts[shown]).replace(",", "")]
    return shlex.join(parts)


def _downloads(site: SiteData, model: Model) -> tuple[Link, ...]:
    offered = (
        ("CSV", f"models/{model.slug}.csv.gz", "every row of this model, gzip"),
        ("Parquet", f"models/{model.slug}.parquet", "the same, typed"),
    )
    files = [
        Link(text, f"{FOLDER}/{name}", f"{note}, {units.human_bytes(size)}")
        for text, name, note in offered
        if (size := site.downloads.size(name)) is not None
    ]
    profile = Link(
        "JSON",
        f"{FOLDER}/v1/models/{model.slug}.json",
        "profiles and budgets, as the switches above read them",
    )
    return (*files, profile)


def _neighbours(site: SiteData, model: Model) -> tuple[Link, ...]:
    size = site.parameters[model.id]

    def distance(other: Model) -> tuple[bool, float]:
        ratio = site.parameters[other.id] / size
        return (other.family != model.family, max(ratio, 1 / ratio))

    others = sorted((other for other in site.models if other.id != model.id), key=distance)
    family = [m for m in others if m.family == model.family][:4]
    like = [m for m in others if m.family != model.family][: 8 - len(family)]
    return tuple(
        Link(m.name, f"models/{m.slug}/", units.human_parameters(site.parameters[m.id]))
        for m in (*family, *like)
    )
