"""What runs on a machine at home: a page for each Mac, card and shared-memory machine, and a part of model pages.

Every figure is the layout of one slot by llama.cpp's rules (:mod:`kvreport.estimation.at_home`); Macs also have
mlx-lm's 4-bit and 8-bit weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Final

from kvreport import units
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice, local_device
from kvreport.accounting.engines.ollama import modelfile
from kvreport.accounting.lessons import context_within
from kvreport.accounting.weights import parameters
from kvreport.build_cache import code
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.home_machines import AppleChips, HomeMachines, home_accelerators
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_architectures import OLLAMA_PREFIX, OllamaNames
from kvreport.catalog.model import Model
from kvreport.estimation import estimate
from kvreport.estimation.at_home import MIXES, AtHome, at_home
from kvreport.estimation.home_case import HOST_MEMORY
from kvreport.publish import home_layouts
from kvreport.publish.home_layouts import SPLIT_CONTEXT, Split
from kvreport.publish.site_data import SiteData
from kvreport.resources import data_dir
from kvreport.site.kit import templating
from kvreport.site.kit.page import Page, Section, link
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.site.kit.templating import Names, render
from kvreport.site.page_type import Inputs, PageType

URI: Final = "local/"
_FILTER: Final = ("contexts-table", "models", "Model", "qwen3 14b", "Part of a name")
"""How the models of a machine are found: the table, what it lists, the label of the field, an example and help."""
TEMPLATES: Final = ("local",)
"""Folder of the templates that these pages use, beside the shared ones."""

USUAL_MIX: Final = "q4_k_m"
USUAL_FIRST: Final = (USUAL_MIX, *(mix for mix in MIXES if mix != USUAL_MIX))
"""Columns of a machine's page: a phone shows two of them without scrolling."""
GOOD_MIXES: Final = MIXES[: MIXES.index(USUAL_MIX) + 1]
"""Mixes that a model is recommended in: smaller ones cost quality."""
RECENT_MONTHS: Final = 18
"""A model that was released longer before the newest one counts as old."""
LONG: Final = 131072
"""The context of long documents."""
PACE: Final = 15
"""Tokens per second below which a model is named after faster ones: three times what people read silently, 238 words a
minute (Brysbaert 2019, doi:10.1016/j.jml.2019.104047). The bound of the memory's bandwidth is compared with it."""
PICKS: Final = 4
"""Models named for each use."""
COLUMNS: Final = ("Coding", "Chat", "Image input")
"""The uses that tables of machines name a model for."""
LEAST: Final = 4096
"""The shortest context of a machine's page, for which a shortfall is stated."""
CONTEXT: Final = 32768
"""The context of the conclusions: what a coding assistant or a long chat takes."""
HEADROOM: Final = 2 << 30
"""Bytes that the example of a model's page leaves free: an image encoder, which the table does not have, and the estimate's error."""

MLX_FORMATS: Final = {"mlx4-g64": "MLX 4-bit", "mlx8-g64": "MLX 8-bit"}
SIZES_GB: Final = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
"""Memory sizes of the table on model pages, as machines are sold."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that people run at home."""

    model: Model
    at_home: AtHome
    ollama: str


def machines(catalog: Catalog) -> tuple[Accelerator, ...]:
    """Every machine with a page, by maker and name; none for a catalog without the list."""
    listed = HomeMachines.read(catalog.folder)
    if listed is None:
        return ()
    own = [catalog.accelerator(name) for name in listed.also]
    every = [*own, *home_accelerators(catalog.folder).values()]
    order = {"Apple": 0, "NVIDIA": 1, "AMD": 2, "Intel": 3}
    return tuple(
        sorted(every, key=lambda one: (order.get(one.vendor, 9), one.memory.advertised.value, one.name))
    )


def pages(inputs: Inputs) -> Iterator[Page]:
    """Yield the index and a page for each machine, on the site of the public catalog."""
    catalog = inputs.site.catalog
    if catalog.folder.resolve() != data_dir().resolve():
        return
    found, every = _candidates(inputs), machines(catalog)
    if not found or not every:
        return
    yield _index(every, found, inputs.site)
    parts = inputs.site.parts
    dense = [one.model for one in found if one.model.experts is None]
    splits = home_layouts.splits(inputs.site, dense, USUAL_MIX)
    listed = (part for one in found for part in (parts.of_model(one.model), one.ollama))
    shared = parts.key(code(), templating.state(TEMPLATES), *listed)
    with parts.group("local-pages") as kept:
        for machine in every:
            key = parts.key(shared, machine.id, _of_matrix(inputs, machine))
            yield kept.get(key, partial(_machine, inputs, machine, found, every, splits))


def _of_matrix(inputs: Inputs, machine: Accelerator) -> str:
    """The address of the page that the matrix has of a machine, or ""."""
    uri = f"gpus/{machine.id}/"
    return uri if uri in inputs.addresses else ""


def _candidates(inputs: Inputs) -> tuple[Candidate, ...]:
    """Models of Ollama's library that the site has, by parameters, falling."""
    names: dict[str, str] = {}
    for name, held in OllamaNames.need().names.items():
        names.setdefault(held.model, name)
    found = []
    for model in inputs.site.models:
        laid = home_layouts.every_model(inputs.site).get(model.id) if model.id in names else None
        if laid is not None:
            found.append(Candidate(model, laid, names[model.id]))
    return tuple(sorted(found, key=lambda one: -parameters(one.model)))


@cache
def _device(catalog: Catalog, machine_id: str) -> LocalDevice:
    return local_device(catalog.accelerator(machine_id), catalog.engine("llama-cpp").coefficients)


@dataclass(frozen=True, slots=True)
class Pick:
    """A model for a machine.

    Attributes:
        mix: The largest good quantization that holds the context that is wanted, at a usable pace if one has it.
        longest: The longest context with it, in tokens.
        pace: Tokens per second at most, by the memory's bandwidth; 0 where that is unknown.
    """

    candidate: Candidate
    mix: str
    longest: int
    pace: int

    @property
    def is_slow(self) -> bool:
        """True if even the bound of the bandwidth is below a usable pace."""
        return 0 < self.pace < PACE

    @property
    def label(self) -> str:
        """The quantization and the pace."""
        return self.mix.upper() + (f", at most {self.pace:,} tokens/s" if self.pace else "")


def _read_bytes(one: Candidate, mix: str) -> int:
    """Bytes of weights on the device that one token passes through: of the routed experts, its share."""
    laid, experts = one.at_home, one.model.experts
    routed = sum(laid.experts.get(mix, ()))
    if experts is None or not routed:
        return laid.weights[mix]
    return laid.weights[mix] - routed + routed * experts.per_token // experts.routed


def _pick(machine: Accelerator, one: Candidate, device: LocalDevice, context: int) -> Pick | None:
    """The quantization in which a machine runs a model; None if no good one holds the context."""
    if one.model.context_tokens < context:
        return None
    bandwidth = machine.bandwidth_bytes_per_s
    fitting = []
    for mix in GOOD_MIXES:
        longest = one.at_home.longest(mix, device)
        if longest >= context:
            pace = int(bandwidth.value / _read_bytes(one, mix)) if bandwidth else 0
            fitting.append(Pick(one, mix, longest, pace))
    return next((pick for pick in fitting if not pick.is_slow), next(iter(fitting), None))


def _uses() -> dict[str, tuple[int, Callable[[Candidate], bool]]]:
    """What a model is wanted for: the context that it takes, and which models are for it."""
    coding = OllamaNames.need().coding

    def codes(one: Candidate) -> bool:
        return one.ollama.partition(":")[0] in coding

    def sees(one: Candidate) -> bool:
        return "vision" in one.model.inputs

    return {
        "Coding": (CONTEXT, codes),
        "Chat": (CONTEXT, lambda one: not codes(one)),
        "Image input": (CONTEXT, sees),
        "Long documents": (LONG, lambda one: not codes(one)),
    }


def _month(model: Model) -> int:
    """The month of a release, counted from the year 0: January where only the year is known; an unknown one is old."""
    year, _, month = (model.release or "2000-01").partition("-")
    return 12 * int(year) + int(month or 1)


@cache
def oldest_recent(catalog: Catalog) -> int:
    """The month from which on a model is recent: no page depends on the day of its build, but on the newest model."""
    return max(map(_month, catalog.models.values())) - RECENT_MONTHS


def picks(
    machine: Accelerator, found: tuple[Candidate, ...], device: LocalDevice, oldest: int
) -> Iterator[tuple[str, list[Pick]]]:
    """Yield each use with the models for it: those at a usable pace first, of them the recent ones, the largest first.

    Args:
        machine: The machine.
        found: Models, by parameters, falling.
        device: The same as llama.cpp finds it.
        oldest: The month from which on a model is recent.
    """

    def rank(one: Candidate) -> tuple[bool, int, int]:
        month = _month(one.model)
        return (month < oldest, -round(parameters(one.model) / 1e9), -month)

    ranked = sorted(found, key=rank)
    for use, (context, fits) in _uses().items():
        each = (_pick(machine, one, device, context) for one in ranked if fits(one))
        yield use, sorted(filter(None, each), key=lambda pick: pick.is_slow)[:PICKS]


def _picks(machine: Accelerator, named: list[tuple[str, list[Pick]]]) -> Table:
    rows = []
    for use, models in named:
        for place, pick in enumerate(models):
            one = pick.candidate
            size = one.at_home.file_bytes(pick.mix)
            cells = (
                Cell(use),
                Cell(one.model.release or "unknown"),
                Cell(pick.mix.upper()),
                Cell(units.gib(size), "kv-num", value=size),
                Cell(units.human_tokens(pick.longest), "kv-num", value=pick.longest),
                Cell(f"{pick.pace:,}" if pick.pace else "unknown", "kv-num", value=pick.pace),
            )
            href = f"models/{one.model.slug}/"
            anchor = f"for-{use.replace(' ', '-').lower()}" if not place else ""
            rows.append(Row(Cell(one.model.name, href=href, hint=one.ollama), cells, anchor=anchor))
    return Table(
        f"Models for the {machine.name} by use, with every layer on the GPU and one request",
        Column("Model", numeric=False),
        (
            Column("For", numeric=False),
            Column("Released", numeric=False),
            Column(
                "Quantization",
                numeric=False,
                hint="The most precise format from Q8_0 to Q4_K_M that fits and, if possible, reaches the speed",
            ),
            Column("File", "GiB"),
            Column("Longest context", "tokens"),
            Column("Tokens per second", "at most"),
        ),
        tuple(rows),
    )


def _search_words(machine: Accelerator, apple: AppleChips) -> str:
    """What a reader may call a machine, in lower case: an Apple chip by the computers that it comes in."""
    memory = (machine.memory.advertised_label or "").replace(" ", "")
    names = (
        machine.name,
        machine.id,
        *machine.aliases,
        *apple.computers_of(machine),
        memory,
    )
    return " ".join(names).lower()


def _named(machine: Accelerator, found: tuple[Candidate, ...], site: SiteData) -> tuple[Cell, ...]:
    """The first model for each of the uses that a column stands for."""
    best = dict(picks(machine, found, _device(site.catalog, machine.id), oldest_recent(site.catalog)))
    first = (next(iter(best[use]), None) for use in COLUMNS)
    return tuple(
        Cell(pick.candidate.model.name, href=f"models/{pick.candidate.model.slug}/") if pick else Cell("none")
        for pick in first
    )


def _index(every: tuple[Accelerator, ...], found: tuple[Candidate, ...], site: SiteData) -> Page:
    apple = HomeMachines.need(site.catalog.folder).apple
    rows = (
        Row(
            Cell(machine.name, href=f"{URI}{machine.id}/"),
            (
                Cell(machine.memory.advertised_label or "", value=machine.memory.advertised.value),
                Cell(units.gib(machine.usable_bytes), "kv-num", value=machine.usable_bytes),
                *_named(machine, found, site),
            ),
            keys=(("vendor", machine.vendor),),
            search=_search_words(machine, apple),
        )
        for machine in every
    )
    table = Table(
        f"For each use, the table names one of the {len(found)} listed models of Ollama’s library. The model fits on the GPU at "
        f"{units.human_tokens(CONTEXT)} tokens in Q4_K_M or better. Where possible, its theoretical maximum speed is at least {PACE} tokens/s. "
        f"Models of the last {RECENT_MONTHS} months are preferred, then larger models",
        Column("Machine", numeric=False),
        (
            Column("Memory"),
            Column("Usable", "GiB"),
            *(Column(use, numeric=False) for use in COLUMNS),
        ),
        tuple(rows),
        name="machines-table",
        sortable=True,
        noun="machines",
    )
    return Page(
        uri=URI,
        kind="index",
        title="Which model for my machine: Macs, graphics cards, mini PCs",
        heading="Which model for my machine?",
        description=f"Which of {len(found)} open models fit on {len(every)} Macs, graphics cards and mini PCs, "
        "by quantization and context length.",
        lead=render("local/index.html", URI, {"machines": len(every), "models": len(found)}),
        sections=(
            Section("machines", "Machines", render("local/machines.html", URI, {"table": table})),
            Section("data", "Download", render("local/data.html", URI, {"folder": URI})),
        ),
        names=(
            "local",
            "home",
            "what runs on your machine",
            "best model",
            "ollama",
            "llama.cpp",
            "gguf",
            "lm studio",
            "mlx",
            "mac",
        ),
        boost=1.5,
    )


def _machine(
    inputs: Inputs,
    machine: Accelerator,
    found: tuple[Candidate, ...],
    every: tuple[Accelerator, ...],
    splits: Mapping[str, Split],
) -> Page:
    uri, catalog = f"{URI}{machine.id}/", inputs.site.catalog
    device = _device(catalog, machine.id)
    named = [one for one in picks(machine, found, device, oldest_recent(catalog)) if one[1]]
    first = {use: models[0] for use, models in named}
    best = first["Chat"].candidate if "Chat" in first else None
    listed = f"{len(found)} models of Ollama’s library"
    shared: dict[tuple[str, str], tuple[Pick, list[str]]] = {}
    for use, pick in first.items():
        shared.setdefault((pick.candidate.model.id, pick.mix), (pick, []))[1].append(use.lower())
    runs = [
        (pick, " and ".join(filter(None, (", ".join(uses[:-1]), uses[-1])))) for pick, uses in shared.values()
    ]
    conclusion = (
        "; ".join(f"{pick.candidate.model.name} ({pick.label}) for {uses}" for pick, uses in runs)
        if first
        else f"none of {listed} fits at {units.human_tokens(CONTEXT)} tokens with Q4_K_M"
    )
    names: Names = {
        "machine": machine.name,
        "usable": units.gib(machine.usable_bytes),
        "label": machine.memory.advertised_label or units.human_bytes(machine.memory.advertised.value),
        "note": machine.memory.usable.note or "",
        "evidence": machine.memory.usable.evidence,
        "conclusion": conclusion,
        "runs": runs,
        "largest": next(filter(None, (_pick(machine, one, device, CONTEXT) for one in found)), None),
        "largest_mlx": _largest_mlx(catalog, machine, found),
        "best": best.model.name if best else "",
        "lengths": _lengths(best, device) if best else "",
        "backend": units.gib(device.context),
        "pace": PACE,
        "months": RECENT_MONTHS,
        "apple": machine.vendor == "Apple",
        "commands": _commands(machine, best, device),
        "gpu": _of_matrix(inputs, machine),
        "near": _near(machine, every),
        "index": URI,
    }
    sections = []
    if named:
        names["table"] = _picks(machine, named)
        sections.append(Section("which", "Which model to run", render("local/which.html", uri, names)))
    sections += [
        Section(
            "models",
            "Longest context by model and quantization",
            render(
                "local/contexts.html",
                uri,
                {"table": _contexts(machine, found, device), "filter": _FILTER},
            ),
        )
    ]
    larger = _in_part(machine, found, device, splits)
    if larger.rows:
        sections.append(
            Section(
                "experts",
                "Larger models partly in system memory: how many layers on the GPU",
                render("local/in_part.html", uri, {"table": larger, "gpu_id": machine.id}),
            )
        )
    if machine.vendor == "Apple":
        sections.append(Section("mlx", "Longest context with MLX", _table(uri, _mlx(inputs, machine, found))))
    sections.append(Section("commands", "Commands", render("local/commands.html", uri, names)))
    sections.append(Section("method", "How it is computed", render("local/method.html", uri, names)))
    return Page(
        uri=uri,
        kind="gpu",
        title=f"What runs on the {machine.name}",
        heading=f"What runs on the {machine.name}",
        description=f"Which model to run on the {machine.name}: {conclusion}.",
        lead=render("local/lead.html", uri, names),
        sections=tuple(sections),
        names=(machine.id, *machine.aliases, "ollama", "llama.cpp", "gguf"),
    )


def _table(uri: str, table: Table) -> str:
    return render("_only_table.html", uri, {"table": table})


def _contexts(machine: Accelerator, found: tuple[Candidate, ...], device: LocalDevice) -> Table:
    rows = []
    for one in found:
        cells = tuple(_cell(one.at_home, mix, device) for mix in USUAL_FIRST)
        if any(cell.value for cell in cells):
            rows.append(Row(Cell(one.model.name, href=f"models/{one.model.slug}/", hint=one.ollama), cells))
    return Table(
        f"Longest context (tokens, rounded down to a multiple of 1K) of one slot on the {machine.name} with every layer on the GPU and a "
        "16-bit cache",
        Column("Model", numeric=False),
        tuple(Column(mix.upper(), "usual" if mix == USUAL_MIX else "") for mix in USUAL_FIRST),
        tuple(rows),
        name=_FILTER[0],
        css="kv-grid",
        sortable=True,
        dense=True,
    )


def _cell(laid: AtHome, mix: str, device: LocalDevice) -> Cell:
    longest = laid.longest(mix, device)
    if longest:
        full = longest == laid.contexts[-1]
        return Cell(units.human_tokens(longest), "kv-u6" if full else "kv-u3", value=longest)
    short = laid.shortfall(mix, device)
    return Cell(_short(short), "kv-no", value=0)


def _short(missing: int) -> str:
    text = units.gib(missing)
    return "<0.01 GiB short" if float(text.replace(",", "")) == 0 else f"{text} GiB short"


def _in_part(
    machine: Accelerator, found: tuple[Candidate, ...], device: LocalDevice, splits: Mapping[str, Split]
) -> Table:
    """Models that need some experts, or else some layers, in system memory at 8K tokens, those that need the least first."""
    rows = []
    for one in found:
        if machine.is_unified:
            break
        laid = one.at_home
        experts = laid.cpu_experts(USUAL_MIX, device, SPLIT_CONTEXT)
        if experts:
            moved = sum(laid.experts[USUAL_MIX][:experts]) + laid.host[USUAL_MIX]
            flag, value = f"--n-cpu-moe {experts}", experts
        elif experts is None and one.model.id in splits:
            parts = splits[one.model.id]
            value = parts.most(device.usable - device.context)
            moved = parts.host[value - 1] if value else HOST_MEMORY + 1
            if moved > HOST_MEMORY:
                continue
            flag = f"--n-gpu-layers {value} (of {len(parts.device)})"
        else:
            continue
        cells = (Cell(flag, "kv-num", value=value), Cell(units.gib(moved), "kv-num", value=moved))
        rows.append(Row(Cell(one.model.name, href=f"models/{one.model.slug}/", hint=one.ollama), cells))
    return Table(
        f"Larger models on the {machine.name} at {units.human_tokens(SPLIT_CONTEXT)} tokens in Q4_K_M",
        Column("Model", numeric=False),
        (Column("Flag", numeric=False), Column("Main memory", "GiB")),
        tuple(sorted(rows, key=lambda row: row.cells[1].value or 0)),
        sortable=True,
    )


@cache
def _mlx_answers(catalog: Catalog, model_id: str) -> tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]:
    """Weights, chunk and request bytes at each context, for each of MLX's formats."""
    found = []
    for form in MLX_FORMATS:
        answer = estimate(model_id, gpu="m3-ultra-512", engine="mlx", weights=form, catalog=catalog)
        sizes = tuple((row.context_tokens, row.kv_bytes_per_request_per_gpu) for row in answer.by_context)
        found.append((answer.budget.weights, answer.budget.activations, sizes))
    return tuple(found)


def _mlx_longest(catalog: Catalog, machine: Accelerator, one: Candidate) -> Iterator[tuple[int, int, int]]:
    """Yield for each of MLX's formats the longest context that fits, the model's limit, and what the shortest context lacks."""
    for weights, chunk, sizes in _mlx_answers(catalog, one.model.id):
        room = machine.usable_bytes - weights - chunk
        contexts, needed = zip(*sizes, strict=True)
        least = next((size for context, size in sizes if context >= LEAST), sizes[-1][1])
        yield context_within(contexts, needed, room), contexts[-1], least - room


def _largest_mlx(catalog: Catalog, machine: Accelerator, found: tuple[Candidate, ...]) -> Model | None:
    """The first model that fits at the context of the conclusions in one of MLX's formats, on a Mac."""
    if machine.vendor != "Apple":
        return None
    fits = (
        one.model
        for one in found
        if any(longest >= CONTEXT for longest, _, _ in _mlx_longest(catalog, machine, one))
    )
    return next(fits, None)


def _mlx(inputs: Inputs, machine: Accelerator, found: tuple[Candidate, ...]) -> Table:
    rows = []
    for one in found:
        cells = []
        for longest, limit, short in _mlx_longest(inputs.site.catalog, machine, one):
            text = units.human_tokens(longest) if longest else _short(short)
            look = "kv-u6" if longest == limit else "kv-u3" if longest else "kv-no"
            cells.append(Cell(text, look, value=longest))
        if any(cell.value for cell in cells):
            rows.append(Row(Cell(one.model.name, href=f"models/{one.model.slug}/"), tuple(cells)))
    return Table(
        f"Longest context (tokens, rounded down to a multiple of 1K) of one request on the {machine.name} with mlx-lm and a 16-bit cache",
        Column("Model", numeric=False),
        tuple(Column(label) for label in MLX_FORMATS.values()),
        tuple(rows),
        css="kv-grid",
        sortable=True,
        dense=True,
    )


def _commands(machine: Accelerator, best: Candidate | None, device: LocalDevice) -> list[tuple[str, str]]:
    """What to run: llama.cpp, Ollama, and mlx-lm on a Mac."""
    if best is None:
        return []
    laid = best.at_home
    context = laid.common(laid.longest(USUAL_MIX, device))
    slug = best.model.id.rpartition("/")[2]
    found = [
        ("llama.cpp", f"llama-server -m {slug}-Q4_K_M.gguf -c {context} -np 1"),
        *_ollama_commands(best, _ollama_context(best, device, context)),
        (
            "kvreport",
            f"kvreport estimate {best.model.id} --gpu {machine.id} --engine llama-cpp --weights {USUAL_MIX}",
        ),
    ]
    if machine.vendor == "Apple":
        found.insert(len(found) - 1, ("mlx-lm", f"mlx_lm.server --model mlx-community/{slug}-4bit"))
    return found


def _lengths(best: Candidate, device: LocalDevice) -> str:
    """Say what context the commands ask for, beside the longest that the table above has."""
    longest = best.at_home.longest(USUAL_MIX, device)
    asked = best.at_home.common(longest)
    ollama = _ollama_context(best, device, asked)
    other = f"; in Ollama, {units.count(ollama)} tokens fit" if ollama not in (0, asked) else ""
    if asked == longest:
        return f"{units.count(asked)} tokens, the longest context that fits{other}"
    limit = units.human_tokens(longest)
    return (
        f"{units.count(asked)} tokens, a common length below the longest context that fits ({limit}){other}"
    )


def _ollama_context(best: Candidate, device: LocalDevice, usual: int) -> int:
    """The longest context of the file that Ollama's library has, which its own quantizer may have made; 0 if none."""
    form = OllamaNames.need().names[best.ollama].format
    laid = at_home(best.model, (form,)) if form.startswith(OLLAMA_PREFIX) else None
    if laid is None:
        return usual
    return laid.common(laid.longest(form, device))


def _ollama_commands(best: Candidate, context: int) -> list[tuple[str, str]]:
    if not context:
        return []
    return [
        ("Ollama", f"OLLAMA_CONTEXT_LENGTH={context} ollama serve & ollama run {best.ollama}"),
        ("Ollama Modelfile", modelfile(best.ollama, context)),
    ]


def _near(machine: Accelerator, every: tuple[Accelerator, ...]) -> list[tuple[str, str]]:
    """The machines next to this one in memory, of the same maker."""
    same = [one for one in every if one.vendor == machine.vendor]
    found = []
    for before, after in pairwise(same):
        if after.id == machine.id:
            found.append(before)
        if before.id == machine.id:
            found.append(after)
    return [(one.name, f"{URI}{one.id}/") for one in found]


def at_home_section(inputs: Inputs, model: Model) -> Section | None:
    """The part of a model's page about machines at home; None where llama.cpp does not convert the model."""
    laid = home_layouts.every_model(inputs.site).get(model.id)
    if laid is None:
        return None
    uri = f"models/{model.slug}/"
    coefficients = inputs.site.catalog.engine("llama-cpp").coefficients
    rows = []
    for name, one in _smallest(inputs.site):
        cells = tuple(_cell(laid, mix, local_device(one, coefficients)) for mix in MIXES)
        if any(cell.value for cell in cells):
            usable = Cell(units.gib(one.usable_bytes), "kv-num", value=one.usable_bytes)
            rows.append(Row(Cell(name, hint=one.name), (usable, *cells)))
    table = Table(
        f"Longest context (tokens, rounded down to a multiple of 1K) of {model.name} with every layer on the GPU, by machine and "
        "quantization",
        Column("Machine", numeric=False),
        (Column("Usable memory", "GiB"), *(Column(mix.upper()) for mix in MIXES)),
        tuple(rows),
        css="kv-grid",
        dense=True,
    )
    machine, mix, context = _example(inputs.site, laid, coefficients)
    slug = model.id.rpartition("/")[2]
    names = {
        "table": table,
        "rows": rows,
        "local": URI if URI in inputs.addresses or has_pages(inputs) else "",
        "files": [(mix.upper(), units.gib(laid.file_bytes(mix))) for mix in MIXES],
        "tied": any(laid.repeated.values()),
        "command": f"llama-server -m {slug}-{mix.upper()}.gguf -c {context} -np 1" if context else "",
        "sizer": link(uri, f"sizer/?models={model.slug}"),
        "estimate": f"kvreport estimate {model.id} --gpu {machine} --engine llama-cpp "
        f"--weights {mix} --context {units.human_tokens(context or LEAST)}",
        "keeps": any(laid.experts[MIXES[0]]) and len(set(laid.experts.values())) == 1,
        "text_only": model.inputs != ("text",),
    }
    return Section("home", "Run it at home", render("local/at_home.html", uri, names))


def _smallest(site: SiteData) -> list[tuple[str, Accelerator]]:
    """A card and a Mac of each memory size that is sold, by usable memory: of each, the one with the least, NVIDIA's first."""
    found: dict[str, Accelerator] = {}

    def rank(one: Accelerator) -> tuple[bool, int, str]:
        return (one.vendor != "NVIDIA", one.usable_bytes, one.id)

    for one in sorted(machines(site.catalog) or site.accelerators, key=rank):
        size = one.memory.advertised.value >> 30
        if size in SIZES_GB and _is_listed(one):
            found.setdefault(f"{size} GB {'Mac' if one.vendor == 'Apple' else 'card'}", one)
    return sorted(found.items(), key=lambda item: (item[1].usable_bytes, item[1].id))


def _is_listed(one: Accelerator) -> bool:
    """Whether a model's page lists machines of this kind: cards and Macs."""
    return one.vendor == "Apple" or not one.is_unified


def _example(site: SiteData, laid: AtHome, coefficients: Mapping[str, float]) -> tuple[str, str, int]:
    """A machine, mix and context that fit: the RTX 4090, else the smallest computer that the table lists with the usual mix, or any.

    The context is 0 where no machine of the site holds the model; the machine is the largest then.
    """
    card = [one for one in site.accelerators if one.id == "rtx-4090"]
    computers = sorted(
        (one for one in site.accelerators if one.is_computer and _is_listed(one)),
        key=lambda one: (one.usable_bytes, one.id),
    )
    for one, mix in [(one, mix) for one in card for mix in USUAL_FIRST] + [
        (one, mix) for mix in USUAL_FIRST for one in computers
    ]:
        device = local_device(one, coefficients)
        shared = None if device.shared is None else device.shared - HEADROOM
        less = replace(device, usable=device.usable - HEADROOM, shared=shared)
        if context := laid.common(laid.longest(mix, less)):
            return one.id, mix, min(context, CONTEXT)
    return (computers or card or site.accelerators)[-1].id, USUAL_MIX, 0


def gpu_section(inputs: Inputs, gpu: Accelerator) -> Section | None:
    """The part of an accelerator's page about local engines; None for one that nobody has at home."""
    if not has_pages(inputs):
        return None
    found = _candidates(inputs)
    kin = [one for one in machines(inputs.site.catalog) if chip(one) == chip(gpu)]
    if not found or not any(one.id == gpu.id for one in kin):
        return None
    rows = []
    for one in kin:
        usable = Cell(units.gib(one.usable_bytes), "kv-num", value=one.usable_bytes)
        cells = (usable, *_named(one, found, inputs.site))
        rows.append(Row(Cell(one.name, href=f"{URI}{one.id}/"), cells))
    table = Table(
        f"For each use, the table names one of the {len(found)} listed models of Ollama’s library. The model fits at {units.human_tokens(CONTEXT)} tokens in "
        f"Q4_K_M or better. Where possible, its theoretical maximum speed is at least {PACE} tokens/s. Models of the last "
        f"{RECENT_MONTHS} months are preferred, then larger models. The engine serves one request at a time",
        Column("Machine", numeric=False),
        (Column("Usable memory", "GiB"), *(Column(use, numeric=False) for use in COLUMNS)),
        tuple(rows),
    )
    return Section("local", "With llama.cpp and Ollama", _table(f"gpus/{gpu.id}/", table))


def chip(machine: Accelerator) -> str:
    """A machine's name without its memory size and core count: what machines of several sizes share."""
    words = machine.name.split(" (")[0].split()
    return " ".join(
        word for word in words if not word.removesuffix("GB").isdigit() or not word.endswith("GB")
    )


def has_pages(inputs: Inputs) -> bool:
    """True if the site has pages of machines at home: they are of the public catalog."""
    return inputs.site.catalog.folder.resolve() == data_dir().resolve()


def files(site: SiteData) -> Iterator[tuple[str, bytes]]:
    """Yield the tables behind the pages: what each model needs, and what each machine has."""
    if site.catalog.folder.resolve() != data_dir().resolve():
        return
    lines = ["model,weights,context_tokens,device_bytes,host_bytes,metal_bytes"]
    names = {held.model for held in OllamaNames.need().names.values()}
    for name, laid in sorted(home_layouts.every_model(site).items()):
        if name not in names:
            continue
        for mix in MIXES:
            by_context = zip(laid.contexts, laid.beside_weights, laid.host_beside, laid.metal, strict=True)
            for context, beside, host, metal in by_context:
                device = laid.weights[mix] + beside
                lines.append(f"{name},{mix},{context},{device},{laid.host[mix] + host},{metal}")
    yield f"{URI}needs.csv", ("\n".join(lines) + "\n").encode()
    rows = ["machine,name,vendor,installed_bytes,usable_bytes,backend_bytes,evidence"]
    for one in machines(site.catalog):
        figure, backend = one.memory, _device(site.catalog, one.id).context
        rows.append(
            f"{one.id},{one.name},{one.vendor},{figure.advertised.value},{one.usable_bytes},{backend},{figure.usable.evidence}"
        )
    yield f"{URI}machines.csv", ("\n".join(rows) + "\n").encode()


TYPE: Final = PageType("local", pages, files=files)
