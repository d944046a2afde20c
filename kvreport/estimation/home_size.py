"""Which machine at home serves a workload with llama.cpp or Ollama, with which quantization and flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.search import longest_context
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import RELEASED, Catalog, open_catalog
from kvreport.catalog.release import trait
from kvreport.errors import InputError, shorten
from kvreport.estimation.commands import shell_line
from kvreport.estimation.hardware import listed
from kvreport.estimation.home_case import LocalCase, refuse_forks
from kvreport.estimation.home_commands import command_of, made_from_file
from kvreport.estimation.home_estimate import memory_said, open_query
from kvreport.estimation.home_inverse import MIXES_BY_SIZE
from kvreport.estimation.home_names import USUAL_MIX, by_local_name
from kvreport.estimation.named import engine_named
from kvreport.query import Query, several
from kvreport.units import gib, parse_tokens
from kvreport.words import counted

USUAL_MACHINES: Final = (
    "rtx-3060-12gb", "rtx-4060ti-16gb", "rtx-4090", "rtx-5090", "ryzen-ai-max-395", "m4-pro-24", "m4-max-64",
    "m4-max-128", "m3-ultra-512",
)  # fmt: skip
"""Machines to size for where none is named: one of each common memory size."""


@dataclass(frozen=True, slots=True)
class HomeDeployment:
    """A workload on one machine."""

    model: str  # Model id, or the file.
    machine: str  # Name of the machine on the command line.
    weights: str  # Quantization mix; ``file`` for a file's own types.
    slots: int  # Requests at once (``--parallel``).
    context: int  # Tokens of each.
    options: LocalOptions  # The options of the server.
    layout: LocalLayout  # What lies where.
    longest_context: int  # The longest context of each slot with the same flags; 0 if none fits.
    command: str  # The command that serves it.
    by_engine: bool = False  # Whether the engine places layers by itself, without a flag.
    expert_layers_on_host: int = 0  # Layers on a device with experts in host memory.
    assumptions: tuple[str, ...] = ()  # What nobody stated of the machine, and how its name is made.

    def __repr__(self) -> str:
        """A line: the machine, the model in its mix, and what stays on the processor."""
        apart = f", {self.remainder}" if self.remainder else ""
        return (
            f"<HomeDeployment {self.slots} x {self.context:,} tokens on {self.machine}: {self.model} in {self.weights}, "
            f"{gib(self.used)} of {gib(self.usable)} GiB{apart}>"
        )

    @property
    def used(self) -> int:
        """Bytes on the fullest device."""
        return self.layout.fullest.total

    @property
    def usable(self) -> int:
        """Bytes that a process can use there."""
        return self.layout.fullest.usable

    @property
    def whole(self) -> bool:
        """True if every layer and expert is on the device."""
        return self.layout.layers_on_device == self.layout.layers and not self.expert_layers_on_host

    @property
    def remainder(self) -> str:
        """What stays in host memory, as a flag, or in words where the engine places it; empty if nothing does."""
        if self.by_engine:
            on, number, experts = self.layout.layers_on_device, self.layout.layers, self.expert_layers_on_host
            layers = f"{on} of {number} layers on the GPU" if on < number else ""
            apart = f"{counted(experts, 'layer|layers')} with experts in main memory" if experts else ""
            return ", ".join(filter(None, (layers, apart)))
        if self.options.cpu_moe:
            return f"--n-cpu-moe {self.options.cpu_moe}"
        return f"-ngl {self.options.gpu_layers}" if self.options.gpu_layers is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport size --engine llama-cpp --format json`` prints for each machine."""
        return {
            "model": self.model,
            "gpu": self.machine,
            "weight_format": self.weights,
            "parallel": self.slots,
            "context_tokens": self.context,
            "used_bytes": self.used,
            "usable_bytes": self.usable,
            "host_bytes": self.layout.host.total,
            "host_memory_bytes": self.layout.host.usable,
            "assumptions": list(self.assumptions),
            "n_gpu_layers": self.layout.layers_on_device,
            "layers": self.layout.layers,
            "n_cpu_moe": min(self.options.cpu_moe, self.layout.layers),
            "expert_layers_on_host": self.expert_layers_on_host,
            "longest_context_tokens": self.longest_context,
            "command": self.command,
        }


def is_local(engine: str, catalog: Catalog) -> bool:
    """True if an engine allocates everything at start, so that machines are sized by :func:`size_home`."""
    refuse_forks(engine)
    return bool(trait(catalog.engine(engine), "allocates_at_start"))


def size_home(
    models: str | Sequence[str],
    *,
    context: int | str,
    slots: int = 1,
    engine: str = "llama-cpp",
    gpus: str | Sequence[str] = (),
    weights: str | Sequence[str] = (RELEASED,),
    cache_type: str = "auto",
    host_memory: int | str | None = None,
    catalog: Catalog | None = None,
) -> tuple[HomeDeployment, ...]:
    """Find the largest quantization mix that fits on each machine, or the fewest layers to move to host memory.

    Args:
        models: A model, or several acceptable models: ids, GGUF files, or names in Ollama's library.
        context: Length of each request in tokens.
        slots: Number of concurrent requests.
        engine: ``llama-cpp`` or ``ollama``.
        gpus: Machines, patterns, or the cards of one machine (``rtx-5090+rtx-3090``). Empty for one machine of each
            common memory size.
        weights: Quantizations to try, best first; ``released`` tries the common ones.
        cache_type: Type of keys and values.
        host_memory: Main memory for weights and caches on the CPU; None for :data:`home_case.HOST_MEMORY`.
        catalog: Catalog that resolves names; None for the public catalog.

    Returns:
        The deployments that fit, sorted by memory, with models that fit entirely on the device first. A mixture of
        experts that fits entirely only below Q4_K_M has a second entry with Q4_K_M and some experts in host memory.

    Raises:
        InputError: If a name is unknown, the engine is a server engine, or no machine fits the model.

    >>> [best] = size_home("qwen3-8b", context="32K", gpus="rtx-3060-12gb")
    >>> best.machine, best.weights, best.slots
    ('rtx-3060-12gb', 'q6_k', 1)
    """
    known = open_catalog() if catalog is None else catalog
    if not is_local(engine, known):
        raise InputError(
            f"engine: found {shorten(engine)}; allowed: llama-cpp, ollama, or kvreport.size(...) for others"
        )
    record = engine_named(known, engine)
    longest, mixes = parse_tokens(context), several(weights)
    found: list[HomeDeployment] = []
    short: list[tuple[int, str]] = []
    for name in several(models):
        for machine in _machines(several(gpus), known):
            asked = Query(
                model=name,
                gpu=machine,
                engine=record,
                context_tokens=longest,
                parallel=slots,
                kv=cache_type,
                host_memory=host_memory,
            )
            plain, named = by_local_name(asked, known)
            case = replace(open_query(plain, record, known), named=named)
            here = _on(case, machine, mixes, longest)
            found += here
            short += [] if here else [_missing(case, machine, mixes)]
    if not found:
        missing, machine = min(short)
        apart = known.accelerator(machine).shared_bytes is None
        raise InputError(
            f"size: {shorten(', '.join(several(models)))} fits none of the machines: "
            f"the nearest is {machine}, short by {gib(missing)} GiB; allowed: a shorter --context, fewer --concurrent, "
            f"{'a larger --gpu, or more --host-memory' if apart else 'or a larger --gpu'}"
        )
    return tuple(sorted(found, key=lambda one: (not one.whole, one.usable, -one.layout.devices[0].weights)))


def _machines(patterns: Sequence[str], catalog: Catalog) -> list[str]:
    if not patterns:
        return list(USUAL_MACHINES)
    every = sorted({*catalog.accelerators, *catalog.home_accelerators})
    found: list[str] = []
    for pattern in patterns:
        matching = [name for name in every if fnmatchcase(name, pattern.lower())]
        found += matching or ["+".join(_cards(pattern, catalog))]
    return list(dict.fromkeys(found))


def _cards(machine: str, catalog: Catalog) -> Iterator[str]:
    """The cards of one machine as the command line names them, several of a kind with their number."""
    for name, number in listed(machine):
        device = name if isinstance(name, Accelerator) else catalog.accelerator(name)
        yield device.id if number == 1 else f"{device.id}*{number}"


def _tried(case: LocalCase, weights: Sequence[str]) -> tuple[str, ...]:
    """The mixes to try, from the best."""
    if case.mix == "file":
        return ("file",)
    if list(weights) == [RELEASED]:
        return MIXES_BY_SIZE if case.query.weights is None else (case.mix,)
    return tuple(weights)


def _on(case: LocalCase, machine: str, weights: Sequence[str], context: int) -> list[HomeDeployment]:
    tried = _tried(case, weights)
    found = []
    usual = USUAL_MIX if USUAL_MIX in tried else tried[-1]
    for mix in tried:
        typed = case.as_mix(mix)
        started = typed.as_started()
        layout = started.lay_out()
        if layout.fits and started.options == typed.options:
            found.append(_deployed(typed, machine, layout, context))
            break
    small = bool(found) and tried.index(found[0].weights) > tried.index(usual)
    if not found or (small and case.local.has_experts):
        # Where even the usual mix has no room beside main memory, a smaller one may.
        smaller = (usual,) if found else tried[tried.index(usual) :]
        part = next(
            (
                one
                for mix in smaller
                if not _lacking(typed := case.as_mix(mix)) and (one := _in_part(typed)) is not None
            ),
            None,
        )
        found += [] if part is None else [_deployed(part, machine, part.lay_out(), context)]
    return found


def _in_part(case: LocalCase) -> LocalCase | None:
    """The same with what the device has no room for in host memory; None where that does not make it fit."""
    if not case.engine_sets_context:
        return case.in_part()
    started = case.as_started()
    return started if started.lay_out().fits else None


def _missing(case: LocalCase, machine: str, weights: Sequence[str]) -> tuple[int, str]:
    """Bytes that the machine lacks in all for the smallest mix that was tried, and its name."""
    smallest = case.as_mix(_tried(case, weights)[-1])
    layout, lacking = smallest.lay_out(), _lacking(smallest)
    if any(device.shared is not None for device in layout.devices):
        return max(lacking, layout.shortfall), machine
    # Together they may hold it, and yet what cannot be divided (a cache, a buffer) is too large for the one that it is on.
    moved = replace(smallest, options=replace(smallest.options, gpu_layers=0)).lay_out()
    return max(lacking, min(layout.shortfall, moved.shortfall)), machine


def _lacking(case: LocalCase) -> int:
    """Bytes of a start beyond what the devices and the host have together."""
    layout = case.lay_out()
    needed = layout.host.total + sum(device.total for device in layout.devices)
    shared = next((device.shared for device in layout.devices if device.shared is not None), None)
    if shared is None and layout.host.usable is None:
        return 0
    there = (layout.host.usable or 0) + sum(device.usable for device in layout.devices)
    return max(needed - (there if shared is None else shared), 0)


def _named(case: LocalCase) -> str:
    """The model as a reader finds it: the file that was given, else the record's own id."""
    given = case.query.model
    return str(given) if case.mix == "file" and isinstance(given, str) else case.request.model.id


def _deployed(case: LocalCase, machine: str, layout: LocalLayout, context: int) -> HomeDeployment:
    slots = case.options.slots
    # The model's own context is that of one slot.
    model = case.local.model
    many = model.model_copy(update={"context_tokens": model.context_tokens * slots})
    longest = longest_context(replace(case, local=replace(case.local, model=many)))
    return HomeDeployment(
        model=_named(case),
        machine=machine,
        weights=case.mix,
        slots=slots,
        context=context,
        options=case.options,
        layout=layout,
        longest_context=min(longest // slots, model.context_tokens),
        command=shell_line(command_of(replace(case, options=case.asked or case.options), layout)),
        by_engine=case.engine_sets_context,
        expert_layers_on_host=case.expert_layers_on_host,
        assumptions=(*memory_said(case), *made_from_file(case)),
    )
