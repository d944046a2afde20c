"""A model's tables: users on every accelerator, weights by format."""

from __future__ import annotations

import pandas as pd

from kvreport import units
from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import RELEASED
from kvreport.catalog.model import Model
from kvreport.publish.series import Series
from kvreport.publish.site_data import SiteData
from kvreport.site.kit import tables
from kvreport.site.kit.reason_groups import Member, ReasonGroup, grouped
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.words import CAPTIONS, counted


def _maker(site: SiteData, gpu: Accelerator) -> str:
    """The maker, and the engine where it is not the site's own."""
    engine = site.local_engine(gpu)
    return gpu.vendor if engine is None else f"{gpu.vendor}, {engine.label}"


def users_table(site: SiteData, model: Model, best: Series | None) -> tuple[Table, tuple[ReasonGroup, ...]]:
    """Return the requests on the fewest GPUs of each accelerator that serve the model, and those that do not."""
    contexts = contexts_of(site, model)
    rows = []
    devices = CAPTIONS["fewest"]
    groups: dict[str, list[Member]] = {}
    for gpu in site.gpus:
        one = site.serving(model, gpu.id)
        name, anchor, href = site.gpu_name(gpu.id), f"on-{gpu.id}", f"gpus/{gpu.id}/"
        if one is None:
            why = site.outcome(model, gpu.id).why
            groups.setdefault(why.group, []).append(Member(anchor, name, href, why.note))
            continue
        head = Cell(name, href=href, hint=_maker(site, gpu))
        rows.append(Row(head, _served(one, len(contexts)), anchor=anchor))
        if best is not None and best.config.gpu == gpu.id and best.config != one.config:
            second = f"{anchor}_{best.config.tensor_parallel}"
            rows.append(Row(head, _served(best, len(contexts)), anchor=second))
            devices = CAPTIONS["fewest_and_case"]
    table = Table(
        caption=CAPTIONS["devices"].format(devices=devices),
        head=Column("GPU or accelerator", numeric=False),
        columns=(
            Column("GPUs"),
            *tables.context_columns(contexts),
            Column("Longest context", hint="The longest single request that fits (tokens)"),
        ),
        rows=tuple(rows),
        name="users-table",
        css="kv-grid",
        sortable=True,
        dense=True,
        noun="accelerators",
    )
    return table, grouped(groups, single=site.refusal(model))


def remedies(site: SiteData, model: Model) -> str:
    """Say what helps where the fewest GPUs of the best-known accelerator hold no request of a context; "" where they hold all.

    The numbers are those of the accelerator's rows.
    """
    gpu = site.known_gpus[0]
    one, series = site.serving(model, gpu), site.on_headline_gpu.get(model.id, {})
    contexts = contexts_of(site, model)
    place = next((n for n in range(len(contexts)) if one is not None and not one.users[n]), None)
    if one is None or place is None or not one.short[place]:
        return ""
    own, said = one.config, []

    def fit(**changed: object) -> int:
        found = series.get(own._replace(**changed))  # type: ignore[arg-type]
        return 0 if found is None else found.users[place]

    sizes = sorted(
        {config.tensor_parallel for config in series if config.tensor_parallel > own.tensor_parallel}
    )
    more = next(((size, users) for size in sizes if (users := fit(tensor_parallel=size))), None)
    if more is not None:
        said.append(f"{more[0]} GPUs ({counted(more[1], 'request fits|requests fit')})")
    for key, known, what in (
        ("kv_format", site.catalog.kv_formats, "a KV cache in {}"),
        ("weight_format", site.catalog.weight_formats, "weights in {}"),
    ):
        for name, label in labels(known, formats_of(site, model, key)):
            if name not in (RELEASED, getattr(own, key)) and (users := fit(**{key: name})):
                said.append(f"{what.format(label)} ({users})")
    if one.longest:
        said.append(f"a context of at most {units.count(one.longest)} tokens")
    where = (
        f"{own.tensor_parallel} × {site.gpu_name(gpu)}"
        if own.tensor_parallel > 1
        else f"one {site.gpu_name(gpu)}"
    )
    return (
        f"For a request of {units.human_tokens(contexts[place])} tokens, {where} "
        f"{'lacks' if own.tensor_parallel == 1 else 'lack'} {one.short[place] / units.GIB:.1f} GiB per GPU. "
        f"What helps: {'; '.join(said)}."
        if said
        else ""
    )


def _served(one: Series, number: int) -> tuple[Cell, ...]:
    """The number of GPUs, the requests at the first ``number`` contexts and the longest request."""
    return (
        Cell(str(one.config.tensor_parallel), value=one.config.tensor_parallel),
        *user_cells(one, number),
        Cell(units.human_tokens(one.longest), value=one.longest),
    )


def contexts_of(site: SiteData, model: Model) -> tuple[int, ...]:
    """Return the grid's contexts up to the model's limit, and the first one if all are beyond."""
    return tuple(n for n in site.contexts if n <= model.context_tokens) or site.contexts[:1]


def user_cells(one: Series, number: int) -> tuple[Cell, ...]:
    """Return the cells of a series at the first ``number`` contexts."""
    return tuple(
        Cell("no KV cache", value=one.users[n])
        if one.holds(n) and one.ceiling[n] >= UNLIMITED_REQUESTS
        else tables.users_cell(one.users[n], one.verdicts[n], one.short[n])
        for n in range(number)
    )


def weights_table(site: SiteData, model: Model) -> Table:
    """Weights per device by format and tensor-parallel size, and users at 8K on the headline's GPU."""
    series = site.on_headline_gpu.get(model.id, {})
    gpu = site.known_gpus[0]
    found = pd.DataFrame(
        [(c.weight_format, c.tensor_parallel, one.weight_bytes) for c, one in series.items()],
        columns=["format", "size", "weights"],
    )
    # KV formats share the weights.
    by_size = found.pivot_table(index="format", columns="size", values="weights", aggfunc="first")
    sizes = [int(size) for size in by_size.columns.to_numpy()]
    rows = []
    for name in formats_of(site, model, "weight_format"):
        label = labels(site.catalog.weight_formats, (name,))[0][1]
        if name == RELEASED:
            released = site.catalog.weight_formats.get(model.weight_format)
            named = "by name, at most" if model.by_name else "as released"
            label = f"{named}: {released.label if released else model.weight_format}"
        known = by_size.loc[name].dropna().to_dict()
        cells = [tables.size_cell(int(known[size]) if size in known else None) for size in sizes]
        rows.append(Row(Cell(label), tuple(cells), anchor=f"weights-{name}"))
    return (
        Table(
            caption="Stored weights per GPU (GiB), by storage format and number of GPUs",
            head=Column("Weight format", numeric=False),
            columns=tuple(Column(f"{size} GPUs" if size > 1 else "1 GPU", "GiB") for size in sizes),
            rows=tuple(rows),
            name="weights-table",
        )
        if rows
        else Table(f"No deployment on {site.gpu_name(gpu)} runs this model", Column("Weight format"), (), ())
    )


def formats_of(site: SiteData, model: Model, key: str) -> tuple[str, ...]:
    """Return the formats that the model has rows for, as released first; ``key`` is a field of Config."""
    found = dict.fromkeys(getattr(config, key) for config in site.on_headline_gpu.get(model.id, {}))
    return tuple(sorted(found, key=lambda name: name != RELEASED))


def labels(formats: object, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return (name, label) of each format."""
    found: dict[str, object] = dict(formats)  # type: ignore[call-overload]
    return tuple((name, getattr(found.get(name), "label", "as released")) for name in names)
