"""What an estimate answers for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalLayout
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.estimation.answer import Estimate
from kvreport.units import gib, human_tokens


@dataclass(frozen=True, slots=True)
class LocalEstimate(Estimate):
    """An estimate with what lies on each device and on the host.

    Attributes:
        local: Weights, caches and buffers, device by device.
        options: The options that were laid out.
        mix: The quantization mix; ``file`` for a GGUF file's own types.
        advice: What would make it fit, where it does not; flags of the engine.
    """

    local: LocalLayout
    options: LocalOptions
    mix: str
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        cells = self.local.cells
        # A class made anew with slots has no cell for super().
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
            command=command_line(self.options),
        )
        return answer

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
        }

    def _extras(self) -> dict[str, Any]:
        copies = max((device.offload_copies for device in self.local.devices), default=0)
        return {
            "draft": None,
            "lora": None,
            "encoder": None,
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
        "used_bytes": device.total,
        "total_bytes": device.usable,
        "shortfall_bytes": device.shortfall,
    }


def command_line(options: LocalOptions) -> str:
    """The command that starts it."""
    parts = ["llama-server -m MODEL.gguf", f"-c {options.context}"]
    if options.parallel is not None:
        parts.append(f"-np {options.parallel}")
    if options.unified and options.parallel is not None:
        parts.append("-kvu")
    named = (
        ("-ub", options.ubatch, 512),
        ("-ngl", options.gpu_layers, None),
        ("--n-cpu-moe", options.cpu_moe, 0),
        ("-ctk", options.type_k, "f16"),
        ("-ctv", options.type_v, "f16"),
        ("-fa", options.flash, "auto"),
    )
    parts += [f"{flag} {value}" for flag, value, usual in named if value != usual]
    if options.swa_full:
        parts.append("--swa-full")
    return " ".join(parts)


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
    lines.append(f"longest context that fits with these flags: {human_tokens(result.max_context_tokens)}")
    lines += [f"would fit: {flags}" for flags in result.advice]
    lines.append(f"command: {command_line(options)}")
    return lines


def _device_line(device: DeviceBytes) -> str:
    copies = f" + {gib(device.offload_copies)} copies of host weights" if device.offload_copies else ""
    states = f" + {gib(device.state)} states" if device.state else ""
    return (
        f"{device.name}: {gib(device.weights)} weights + {gib(device.kv)} KV{states} + {gib(device.compute)} "
        f"compute{copies} + {gib(device.context)} context = {gib(device.total)} of {gib(device.usable)} GiB"
    )
