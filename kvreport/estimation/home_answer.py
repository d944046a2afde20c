"""What an estimate answers for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

from kvreport.accounting.engines.command import Command
from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalLayout
from kvreport.accounting.engines.llama_cpp.search import (
    longest_of_slots,
)
from kvreport.catalog.release import trait
from kvreport.catalog.server_flags import flag_names
from kvreport.estimation.answer import Estimate
from kvreport.estimation.commands import shell_line
from kvreport.estimation.home_case import LocalCase
from kvreport.estimation.home_commands import command_of
from kvreport.estimation.home_inverse import HomeAnswers, advice, home_answers
from kvreport.estimation.home_names import Named
from kvreport.units import gib, human_bytes, human_tokens


@dataclass(frozen=True)
class LocalEstimate(Estimate):
    """An estimate with what lies on each device and on the host."""

    local: LocalLayout  # Weights, caches and buffers, device by device.
    starts: bool  # True if it starts as asked at the wide end of what is not known, so that nothing has to be changed.
    case: LocalCase  # The question, opened: what inverse answers are computed from.
    engine_reason: str = field(default="", kw_only=True)  # Why the engine was taken, where nobody stated one.

    at_home: ClassVar[bool] = True

    def with_engine_taken(self, reason: str) -> LocalEstimate:
        """The same, with why its engine was taken where none was stated."""
        said = f"engine {self.request.engine.name}: {reason}; --engine names another"
        request = replace(self.request, assumptions=(said, *self.request.assumptions))
        return replace(self, request=request, engine_reason=reason)

    @property
    def engine_words(self) -> str:
        """What begins the headline where nobody stated the engine."""
        return f"With {self.request.engine.label} ({self.engine_reason}): " if self.engine_reason else ""

    @cached_property
    def advice(self) -> tuple[str, ...]:
        """What would make it fit, where it does not; flags of the engine. Looked for when asked: it takes longer than the rest."""
        return () if self.starts else advice(self.case, self.max_context_tokens)

    def inverse(self) -> HomeAnswers:
        """What fits on this machine: longest context, slots, layers, experts on the CPU, quantization, ``--fit``."""
        return home_answers(self.case)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        cells = self.local.cells
        answer = super().to_dict()
        answer.update(
            weight_format=self.case.mix,
            kv_format=self.case.options.type_k,
            cells={
                "context": cells.context,
                "per_slot": cells.per_slot,
                "streams": cells.streams,
                "window": cells.window,
                "slots": self.case.options.slots,
            },
            layers_on_device=self.local.layers_on_device,
            layers=self.local.layers,
            state_cache_bytes=self.state_cache_bytes,
            advice=list(self.advice),
            inverse=self.inverse().to_dict(),
        )
        return answer

    @property
    def caveats(self) -> tuple[str, ...]:
        """That buffers of the architecture may be larger than ours, where the check found so."""
        return (self.case.confirmation,) if self.case.compute_factor > 1 else ()

    @property
    def memory_rows(self) -> list[tuple[str, int]]:
        """Where the memory of the fullest device goes: names and bytes; rows of nothing are left out."""
        device = self.local.fullest
        parts = (
            ("  weights", device.weights),
            ("  compute buffer", device.compute),
            ("  copies of host weights", device.offload_copies),
            ("  draft and projector", device.companions),
            ("  backend", device.context),
            ("  the processor's part of this memory", device.usable - device.room),
        )
        rows = [("usable memory", device.usable), *((name, size) for name, size in parts if size)]
        return [*rows, ("  left for caches", self.budget.kv_pool_bytes)]

    @property
    def on_this_machine(self) -> list[str]:
        """What fits on this machine, a line each."""
        return _inverse_lines(self)

    @property
    def own_arithmetic(self) -> list[str]:
        """Cells, devices, host, what would fit, and the command."""
        return _arithmetic(self)

    @property
    def command(self) -> str:
        """The command of the answer, whether it fits or not."""
        return shell_line(self.served)

    @property
    def served(self) -> Command:
        """How the engine is started as it was laid out."""
        query, draft = self.case.query, self.case.query.draft
        return command_of(
            self.case,
            self.local,
            file=str(query.model) if self.case.mix == "file" else self.case.named.file or MODEL_FILE,
            draft=None if draft is None else str(draft) if str(draft).endswith(".gguf") else "DRAFT.gguf",
            projector=query.mmproj,
            projector_offload=not query.no_mmproj_offload,
        )

    def longest_of(self, counts: Iterable[int]) -> list[int]:
        """The longest context that each slot can have, for each count of them; 0 where none."""
        return [longest_of_slots(self.case, count) for count in counts]

    @property
    def too_large(self) -> str:
        """Why the weights do not fit: the computer's memory, or the GPU's; by how much, and what would help."""
        host, short = self.local.host, self.local.shortfall
        helps = f"; {self.advice[0]} makes it fit" if self.advice else ""
        if host.usable is not None and host.shortfall == short > 0:
            there = f"{gib(host.total)} GiB stay in host memory, and the computer has {self.main_memory}"
            return f"{there}: short by {gib(short)} GiB{helps}"
        device = self.local.fullest
        if device.shared is not None and device.beside and device.room < device.usable:
            both = gib(device.total + device.beside)
            there = f"GPU and processor would hold {both} of {gib(device.shared)} GiB that they share"
            return f"{there}: short by {gib(short)} GiB{helps}"
        return f"its weights alone are too large: short by {gib(short)} GiB{helps}"

    @property
    def main_memory(self) -> str:
        """The computer's memory for what stays on the CPU, and whether it is assumed; empty where it is the GPU's."""
        limit = self.case.host_memory
        if limit is None:
            return ""
        return human_bytes(limit) + (" (assumed)" if self.case.host_memory_assumed else "")

    @property
    def in_part(self) -> str:
        """What of the model is on GPUs where not all of it is, as words of the headline; empty where all is."""
        found = []
        if self.local.layers_on_device < self.local.layers:
            number = f"{self.local.layers_on_device} of {self.local.layers}"
            found.append(f"{number} layers on the GPU{'s' * (len(self.local.devices) > 1)}")
        if apart := self.case.expert_layers_on_host:
            found.append(f"the experts of {apart} layers in main memory")
        if not self.case.options.kv_offload:
            found.append("its cache in main memory")
        return " and ".join(found)

    @property
    def outgrows(self) -> str:
        """That the prompt cache or checkpoints that were asked for grow beyond the memory that is left at start."""
        outgrown = self.case.outgrown(self.local) if self.case.states_growth else None
        if outgrown is None or self.local.shortfall:
            return ""
        grown, room = outgrown
        kept = "the prompt cache (--cache-ram) and checkpoints (--ctx-checkpoints)"
        return (
            f", but only at start: {kept} may grow to {human_bytes(grown)}, and {human_bytes(room)} are left"
        )

    def runs_on(self, devices: str) -> str:
        """``fits on one RTX 4090`` only where all of it is there; else what of it is, and the main memory."""
        part = self.in_part
        if not part:
            return Estimate.runs_on(self, devices)
        verb, taken = (
            "runs" if self.max_concurrent_requests == 1 else "run",
            human_bytes(self.local.host.total),
        )
        limit, stated = self.case.host_memory, self.case.query.host_memory is not None
        own = f" and {taken} in the memory that it shares with the processor"
        if limit is not None:
            own = f" with {human_bytes(limit)} of main memory ({'' if stated else 'assumed, '}{taken} taken)"
        return f"{verb} with {part}: {devices}{own}"

    @property
    def formats(self) -> str:
        """The answer's second line: weights, cache and engine, with what nobody stated."""
        mix, said = self.case.mix, ""
        if self.case.query.weights is None and self.case.named == Named() and mix != "file":
            said = f" ({self.case.assumed_mix})"
        cache = f"{self.case.options.type_k}/{self.case.options.type_v}"
        if self.case.named.mix is not None:
            least, most = self.range_of("weight_bytes_per_gpu")
            mix, said = self.case.named.mix, f" by its name: {gib(least)} to {gib(most)} GiB per GPU"
        engine = self.request.engine
        return f"weights {mix}{said}, cache {cache}, {engine.label} {engine.version or ''}".rstrip()

    @property
    def most_requests_flag(self) -> str:
        """What limits the requests at once where memory does not, as the engine calls it."""
        if self.case.options.is_unified and self.max_concurrent_requests < self.case.options.slots:
            return f"-c {self.case.options.context}"
        return str(trait(self.request.engine, "requests_flag") or flag_names("vllm")["max_seqs"])

    @property
    def state_cache_bytes(self) -> int:
        """Recurrent states of all slots, on devices and host."""
        return self.local.host.state + sum(device.state for device in self.local.devices)

    def _per_rank(self) -> dict[str, Any]:
        return {
            "data_ranks": 1,
            "max_concurrency": self.max_concurrency,
            "max_concurrent_requests": self.max_concurrent_requests,
            "max_concurrent_requests_by_memory": self.max_concurrent_requests_by_memory,
            "kv_pool_tokens": self.kv_pool_tokens,
            "gpus": [_device(index, device) for index, device in enumerate(self.local.devices)],
        }

    def _kv_cache_bytes(self) -> int:
        return self.local.kv_cache_bytes

    def _host_bytes(self) -> dict[str, int]:
        host = self.local.host
        return {
            "weights": host.weights,
            "cache": host.kv + host.state,
            "compute": host.compute,
            "output": host.output,
            "companions": host.companions,
            "prompt_cache_max": host.prompt_cache,
            "checkpoints_max": host.checkpoints,
            "total": host.total,
            "shortfall": host.shortfall,
        } | ({} if host.usable is None else {"usable": host.usable})

    def _extras(self) -> dict[str, Any]:
        copies = max((device.offload_copies for device in self.local.devices), default=0)
        return {
            "draft": _draft(self.case),
            "lora": None,
            "encoder": _encoder(self.case),
            "offload": {"bytes": copies} if copies else None,
        }


def _device(index: int, device: DeviceBytes) -> dict[str, Any]:
    return {
        "ranks": [index],
        "gpu": device.name,
        "weight_bytes": device.weights,
        "kv_bytes": device.kv,
        "state_bytes": device.state,
        "compute_bytes": device.compute,
        "offload_copy_bytes": device.offload_copies,
        "context_bytes": device.context,
        "companion_bytes": device.companions,
        "used_bytes": device.total,
        "total_bytes": device.usable,
        "room_bytes": device.room,
        "shortfall_bytes": device.shortfall,
    }


def _draft(case: LocalCase) -> dict[str, Any] | None:
    """What drafts tokens, as JSON; None without."""
    companions = case.local.companions
    drafting = companions.draft or companions.prediction
    if drafting is None:
        return None
    return {
        "model": drafting.model.id,
        "tokens": case.options.draft,
        "layers": len(drafting.network.blocks),
        "shares_embedding": companions.prediction is not None,
        "weight_bytes": sum(tensor.nbytes for tensor in drafting.tensors),
    }


def _encoder(case: LocalCase) -> dict[str, Any] | None:
    """The vision projector, as JSON; None without."""
    projector = case.local.companions.projector
    if projector is None:
        return None
    return {
        "weight_bytes": projector.weights,
        "compute_bytes": projector.compute,
        "on_host": case.local.companions.projector_on_host,
    }


def _arithmetic(result: LocalEstimate) -> list[str]:
    """The arithmetic, line by line, with the numbers put in."""
    layout, options = result.local, result.case.options
    cells = layout.cells
    shared = "shared by" if options.is_unified else "for each of"
    window = f"; sliding-window layers have {cells.window:,}" if cells.window else ""
    noun = "slot" if options.slots == 1 else "slots"
    lines = [
        f"cells: {cells.per_slot:,} {shared} {options.slots} {noun}, rounded up to 256{window}",
        f"caches and states of all slots: {gib(layout.kv_cache_bytes)} GiB, allocated at start",
    ]
    lines += [_device_line(device) for device in layout.devices]
    host = layout.host
    lines.append(
        f"host: {gib(host.weights)} weights + {gib(host.kv + host.state)} caches + {gib(host.compute)} compute + "
        f"{gib(host.output)} output = {gib(host.total)} GiB"
    )
    lines += _host_lines(result)
    projector = result.case.local.companions.projector
    if projector is not None:
        lines.append(
            f"projector: {gib(projector.weights)} weights + {gib(projector.compute)} compute GiB after loading, for an "
            f"image of {projector.side * projector.patch} pixels a side; a larger image enlarges its buffer"
        )
    lines.append(f"longest context with {_kept(result)}: {human_tokens(result.max_context_tokens)}")
    lines += [f"would fit: {flags}" for flags in result.advice]
    served = result.served
    lines.append(f"command: {shell_line(served)}")
    if served.modelfile:
        lines.append(f"or a Modelfile: {served.modelfile.replace(chr(10), ' | ')}")
    return lines


def _inverse_lines(result: LocalEstimate) -> list[str]:
    """What fits on this machine, a line each."""
    found, tokens = result.inverse(), human_tokens(result.request.context_tokens)
    slots = "1 slot" if found.slots == 1 else f"{found.slots} slots"
    longest = human_tokens(found.longest_context) if found.longest_context else "none fits"
    lines = [
        f"longest context with {_kept(result)}: {longest}",
        f"slots of {tokens} each (--parallel): {slots if found.slots else 'none fits'}",
    ]
    lines += _shared_context(result)
    lines += _growth_lines(result)
    if found.n_cpu_moe:
        lines.append(f"fewest layers with experts on the CPU: --n-cpu-moe {found.n_cpu_moe}")
    if 0 < found.n_gpu_layers < found.layers:
        lines.append(
            f"most layers on the GPU, to its last byte: --n-gpu-layers {found.n_gpu_layers} of {found.layers}"
        )
    if result.case.mix != "file":
        best = found.best_weights or "none of the usual"
        lines.append(f"largest quantization that fits at {tokens} with these layers on the GPU: {best}")
    return [*lines, _fit_line(result, found)]


def _kept(result: LocalEstimate) -> str:
    """What the longest context was searched with: an engine that places layers itself would place them anew for it."""
    return "these flags" if result.case.asked is None else "these layers on the GPU"


def _fit_line(result: LocalEstimate, found: HomeAnswers) -> str:
    """What ``--fit`` did, or would do."""
    ran, spare = result.case.asked is not None, f"{human_bytes(result.case.fit_target)} free on every GPU"
    if found.fit.changed:
        return (
            f"--fit {'chose' if ran else 'would choose'}: {' '.join(found.fit.changed)}, which leaves {spare}"
        )
    if found.fit.refused:
        return f"--fit {'changed' if ran else 'would change'} nothing: {found.fit.refused}"
    return f"--fit {'changed' if ran else 'would change'} nothing: there is {spare}"


def _growth_lines(result: LocalEstimate) -> list[str]:
    """How much of what a running server may still take has room, where not all of it does."""
    outgrown = result.case.outgrown(result.local)
    if outgrown is None or result.local.shortfall:
        return []
    grown, room = outgrown
    kept = "the prompt cache (--cache-ram) and checkpoints (--ctx-checkpoints)"
    return [
        f"main memory left while the server runs: {human_bytes(room)}; {kept} may grow to {human_bytes(grown)}"
    ]


def _shared_context(result: LocalEstimate) -> list[str]:
    """What one slot has of the context, where a request of the whole of it fits into no slot, or only into one."""
    options, tokens = result.case.options, result.request.context_tokens
    wanted = options.slots * tokens
    if options.slots == 1 or wanted <= options.context:
        return []
    have = (
        f"one slot may take all of the context of {human_tokens(options.context)}, which {options.slots} slots share"
        if options.is_unified
        else f"each of {options.slots} slots has {options.context // options.slots:,} tokens of the context of "
        f"{human_tokens(options.context)}"
    )
    fits = result.max_concurrent_requests_by_memory >= options.slots
    also = "fits" if fits else "does not fit"
    return [f"{have}; {options.slots} requests of {tokens:,} at once need -c {wanted}, which {also}"]


def _host_lines(result: LocalEstimate) -> list[str]:
    """What host memory may grow to, and whether the computer has as much."""
    host, limit = result.local.host, result.case.host_memory
    grown = host.prompt_cache + host.checkpoints
    lines = []
    if grown:
        lines.append(
            f"host, once the server has run: up to {gib(host.prompt_cache)} prompt cache (--cache-ram) + "
            f"{gib(host.checkpoints)} checkpoints (--ctx-checkpoints) = {gib(host.most)} GiB in all"
        )
    if limit is not None and host.total > limit:
        lines.append(
            f"host memory: {gib(host.total)} GiB needed, {gib(limit)} GiB there: short by "
            f"{gib(host.total - limit)} GiB; keep more layers on the GPU or take a smaller quantization"
        )
    return lines


def _device_line(device: DeviceBytes) -> str:
    copies = f" + {gib(device.offload_copies)} copies of host weights" if device.offload_copies else ""
    beside = f" + {gib(device.companions)} draft and projector" if device.companions else ""
    states = f" + {gib(device.state)} states" if device.state else ""
    return (
        f"{device.name}: {gib(device.weights)} weights + {gib(device.kv)} KV{states} + {gib(device.compute)} "
        f"compute{copies}{beside} + {gib(device.context)} context = {gib(device.total)} of {gib(device.usable)} GiB"
    )


MODEL_FILE: Final = "MODEL.gguf"
"""Stands for the file where only a catalog name is known."""
