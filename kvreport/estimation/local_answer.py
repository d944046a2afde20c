"""What an estimate answers for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalLayout
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.estimation.answer import Estimate
from kvreport.estimation.local_case import LocalCase
from kvreport.estimation.local_command import command_line, modelfile_of
from kvreport.estimation.local_inverse import HomeAnswers, home_answers
from kvreport.units import gib, human_tokens


@dataclass(frozen=True, slots=True)
class LocalEstimate(Estimate):
    """An estimate with what lies on each device and on the host.

    Attributes:
        local: Weights, caches and buffers, device by device.
        options: The options that were laid out.
        mix: The quantization mix; ``file`` for a GGUF file's own types.
        advice: What would make it fit, where it does not; flags of the engine.
        case: The question, opened: what inverse answers are computed from.
    """

    local: LocalLayout
    options: LocalOptions
    mix: str
    advice: tuple[str, ...]
    case: LocalCase

    def inverse(self) -> HomeAnswers:
        """What fits on this machine: longest context, slots, layers, experts on the CPU, quantization, ``--fit``."""
        return home_answers(self.case)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        cells = self.local.cells
        # A class made again with slots has no cell for super().
        answer = Estimate.to_dict(self)
        answer.update(
            weight_format=self.mix,
            kv_format=self.options.type_k,
            cells={
                "context": cells.context,
                "per_slot": cells.per_slot,
                "streams": cells.streams,
                "window": cells.window,
                "slots": self.options.slots,
            },
            layers_on_device=self.local.layers_on_device,
            layers=self.local.layers,
            state_cache_bytes=self.state_cache_bytes,
            advice=list(self.advice),
            command=command_line(self),
            inverse=self.inverse().to_dict(),
        )
        return answer

    @property
    def too_large(self) -> str:
        """Why the weights do not fit: the computer's memory, or the GPU's."""
        host, limit = self.local.host.total, self.case.host_memory
        if limit is not None and host > limit:
            return f"{gib(host)} GiB stay in host memory, and there are {gib(limit)}"
        rest = f"; {self.advice[0]} makes it fit" if self.advice else ""
        return f"its weights alone are too large{rest}"

    @property
    def most_requests_flag(self) -> str:
        """What limits the requests at once where memory does not, as the engine calls it."""
        return self.request.case.rules.requests_flag

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
        }

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


def explain_local(result: LocalEstimate) -> list[str]:
    """The arithmetic, line by line, with the numbers put in."""
    layout, options = result.local, result.options
    cells = layout.cells
    shared = "shared by" if options.is_unified else "for each of"
    window = f"; window layers have {cells.window:,}" if cells.window else ""
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
    lines.append(f"longest context that fits with these flags: {human_tokens(result.max_context_tokens)}")
    lines += [f"would fit: {flags}" for flags in result.advice]
    lines.append(f"command: {command_line(result)}")
    written = modelfile_of(result)
    if written is not None:
        lines.append(f"or a Modelfile: {written.replace(chr(10), ' | ')}")
    return lines


def inverse_lines(result: LocalEstimate) -> list[str]:
    """What fits on this machine, a line each.

    Args:
        result: The answer.
    """
    found, tokens = result.inverse(), human_tokens(result.request.context_tokens)
    slots = "1 slot" if found.slots == 1 else f"{found.slots} slots"
    longest = human_tokens(found.longest_context) if found.longest_context else "none fits"
    lines = [
        f"longest context with these flags: {longest}",
        f"slots of {tokens} each (--parallel): {slots if found.slots else 'none fits'}",
    ]
    lines += _shared_context(result)
    if found.n_cpu_moe:
        lines.append(f"fewest layers with experts on the CPU: --n-cpu-moe {found.n_cpu_moe}")
    if found.n_gpu_layers < found.layers:
        lines.append(f"most layers on the GPU: --n-gpu-layers {found.n_gpu_layers} of {found.layers}")
    if result.mix != "file":
        lines.append(
            f"largest quantization that fits at {tokens}: {found.best_weights or 'none of the usual'}"
        )
    if found.fit.changed:
        lines.append(f"--fit would choose: {' '.join(found.fit.changed)}")
    elif found.fit.refused:
        lines.append(f"--fit would change nothing: {found.fit.refused}")
    else:
        lines.append("--fit would change nothing: the model fits with 1 GiB to spare")
    return lines


def _shared_context(result: LocalEstimate) -> list[str]:
    """What one slot has of the context, where a request of the whole of it fits into no slot, or only into one."""
    options, tokens = result.options, result.request.context_tokens
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
