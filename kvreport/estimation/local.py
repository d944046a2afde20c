"""One estimate for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvreport.accounting.budget import Budget
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalDevice, LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.options import FlashAttention, LocalOptions
from kvreport.accounting.engines.llama_cpp.quantize import mix_name, quantized
from kvreport.accounting.engines.llama_cpp.reading import LocalModel, read_local
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.accounting.engines.llama_cpp.search import longest_context
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.weights import active_parameters, parameters, parameters_by_component
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.llama_cpp import LocalArchitecture, load_local_architectures, load_ollama_names
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.answer import AtContext, Estimate
from kvreport.estimation.request import Request, resolve
from kvreport.query import Query
from kvreport.units import gib, human_tokens, parse_bytes

CONTEXTS: Final = tuple(1 << power for power in range(11, 21))

_OF_ROLE: Final = (
    ("token_embd", "embedding"), ("output_norm", "norms"), ("output", "output_head"), ("_exps", "routed_experts"),
    ("_shexp", "shared_experts"), ("exp_probs", "router"), ("ffn_gate_inp", "router"), ("norm", "norms"),
    ("ssm", "recurrent"), ("shortconv", "recurrent"), ("attn", "attention"), ("indexer", "attention"),
    ("ffn", "dense_mlp"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LocalEstimate(Estimate):
    """An estimate with what lies on each device and on the host.

    Attributes:
        layout: Weights, caches and buffers.
        options: The options that were laid out.
        mix: The quantization mix, or the file's own types.
        flags: The question.
        assumptions: Every value that was not stated.
        slots: Slots of the context asked for that memory would hold.
    """

    layout: LocalLayout
    options: LocalOptions
    mix: str
    flags: Query
    assumptions: tuple[str, ...]
    slots: int

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``kvreport estimate --format json`` prints."""
        host, cells = self.layout.host, self.layout.cells
        answer = Estimate.to_dict(self)
        answer.update(
            weight_format=self.mix,
            kv_format=self.options.type_k,
            layout=answer["layout"]
            | {"layers_on_device": self.layout.layers_on_device, "layers": self.layout.layers},
            host_bytes={
                "weights": host.weights,
                "cache": host.kv + host.state,
                "compute": host.compute,
                "output": host.output,
            },
            kv_cache_bytes=self.layout.kv_cache_bytes,
            state_cache_bytes=host.state + sum(device.state for device in self.layout.devices),
            cells={
                "context": cells.context,
                "per_slot": cells.per_slot,
                "streams": cells.streams,
                "window": cells.window,
                "slots": self.options.slots,
            },
            assumptions=list(self.assumptions),
            not_read=[],
            extras={"offload": max((d.offload_copies for d in self.layout.devices), default=0)},
            command=command_line(self),
        )
        return answer

    def _per_rank(self) -> dict[str, Any]:
        """What each device holds; there is one data rank."""
        return {
            "data_ranks": 1,
            "max_concurrency": self.max_concurrency,
            "max_concurrent_requests": self.max_concurrent_requests,
            "max_concurrent_requests_by_memory": self.slots,
            "kv_pool_tokens": self.kv_pool_tokens,
            "gpus": [_device_dict(device) for device in self.layout.devices],
        }


def _device_dict(device: DeviceBytes) -> dict[str, int | str]:
    return {
        "device": device.name,
        "usable_bytes": device.usable,
        "weights": device.weights,
        "kv": device.kv,
        "state": device.state,
        "compute": device.compute,
        "offload_copies": device.offload_copies,
        "context": device.context,
        "total": device.total,
        "shortfall_bytes": device.shortfall,
    }


def is_gguf(model: object) -> bool:
    """True if a model's name is the path of a GGUF file."""
    return isinstance(model, str | Path) and str(model).lower().endswith(".gguf")


def open_local(model: Model, weights: str | None, file: GgufModel | None) -> tuple[LocalModel, str]:
    """A model with a type for every tensor.

    Args:
        model: The model.
        weights: Name of a mix; None for what the checkpoint is converted to.
        file: The GGUF file it was read from, if it was.

    Raises:
        InputError: If llama.cpp does not convert the model's class, or there is no such mix.
    """
    known = load_local_architectures()
    if file is not None:
        # A file may carry an architecture that the table lacks; its tensors say enough.
        own = known.by_name.get(file.architecture)
        architecture = own or LocalArchitecture(name=file.architecture, classes=(file.architecture,))
        kept = tuple(tensor for tensor in file.tensors if tensor.layer < model.layer_count)
        return read_local(model, architecture, kept), "file"
    if model.architecture not in known.by_class:
        raise InputError(
            f"engine: llama.cpp {known.build} converts no {model.architecture}; "
            "allowed: a class of its conversion scripts, or a GGUF file"
        )
    local = read_local(model, known.by_class[model.architecture])
    mix = mix_name(weights) if weights else _released_mix(model)
    heads = max(1, model.attention_heads)
    typed = quantized(
        local.tensors,
        mix,
        layers=model.layer_count,
        experts=model.experts.routed if model.experts else 0,
        gqa=heads // _kv_heads(model),
        wide=model.layer_count == 80 and local.architecture.name in _KNOWN_AS_70B,
        falcon=local.architecture.name == "falcon",
    )
    return replace(local, tensors=typed), mix


_KNOWN_AS_70B: Final = ("llama", "qwen2", "deci", "jais2", "olmo")
"""Architectures of which the quantizer knows 80 layers as 70B (``LLM_TYPE_70B`` in ``src/models``)."""


def _kv_heads(model: Model) -> int:
    heads = (c.kv_heads for g in model.layers for c in g.caches if isinstance(c, FullAttention))
    return max(1, next(heads, 1))


def _released_mix(model: Model) -> str:
    """What a checkpoint is converted to without quantizing: its own 4-bit experts, else 16 bits."""
    return "mxfp4" if model.weight_format == "mxfp4" else "bf16"


def options_of(flags: Query, context: int, kv: str) -> LocalOptions:
    """llama.cpp's options from the question's.

    Args:
        flags: The question.
        context: Cells of all slots.
        kv: The KV format asked for; ``auto`` for 16 bits.
    """
    usual = (
        "f16"
        if kv.lower() in ("auto", "bf16", "fp16", "float16", "bfloat16", "16bit", "half")
        else kv.lower()
    )
    usual = "bf16" if kv.lower() == "bf16" else usual
    return LocalOptions(
        context=context,
        parallel=flags.parallel,
        unified=flags.kv_unified,
        type_k=flags.cache_type_k or usual,
        type_v=flags.cache_type_v or usual,
        ubatch=512 if flags.ubatch_size is None else flags.ubatch_size,
        batch=max(2048, flags.ubatch_size or 0),
        flash=_flash(flags.flash_attn),
        swa_full=flags.swa_full,
        gpu_layers=flags.n_gpu_layers,
        cpu_moe=flags.n_cpu_moe or 0,
    )


def _flash(asked: str | None) -> FlashAttention:
    return "on" if asked == "on" else "off" if asked == "off" else "auto"


def devices_of(request: Request, flags: Query) -> tuple[LocalDevice, ...]:
    """Devices as llama.cpp finds them."""
    accelerator = request.accelerator
    usable = accelerator.usable_bytes if flags.memory is None else _memory("memory", flags.memory)
    device = local_device(accelerator, usable, request.engine.coefficients)
    return tuple(
        replace(device, name=f"{accelerator.id}:{index}") for index in range(request.tensor_parallel)
    )


def local_device(accelerator: Accelerator, usable: int, coefficients: dict[str, float]) -> LocalDevice:
    """One device with what its backend does.

    Args:
        accelerator: The accelerator.
        usable: Bytes that a process finds free.
        coefficients: Constants of the engine's record.
    """
    apple = accelerator.vendor.lower() == "apple"
    nvidia = accelerator.vendor.lower() == "nvidia"
    own = coefficients.get("device_context_metal" if apple else "device_context", 0.0)
    return LocalDevice(
        name=accelerator.id,
        usable=usable,
        context=int(own),
        align=32 if apple else 128,
        offloads=not apple,
        pipelines=nvidia,
    )


def _memory(field: str, text: str | int) -> int:
    try:
        return parse_bytes(text)
    except InputError as error:
        raise InputError(f"{field}: {error}") from error


def estimate_local(query: Query, catalog: Catalogue) -> LocalEstimate:
    """Answer a question about an engine that allocates everything at start.

    Args:
        query: The question; its model may be a GGUF file or an Ollama name.
        catalog: Where names are looked up.

    Raises:
        InputError: What cannot be resolved, or what the engine refuses.
    """
    file = gguf_of(query.model)
    library = load_ollama_names().find(query.model) if isinstance(query.model, str) else None
    weights = query.weights or (library.format if library is not None else None)
    model = file.model if file is not None else library.model if library is not None else query.model
    request = resolve(replace(query, model=model, weights=None, kv="auto"), catalog)
    return answer_local(
        request,
        query,
        weights=weights,
        kv=query.kv,
        file=file,
        stated_context=query.context_tokens is not None,
    )


def answer_local(
    request: Request,
    flags: Query,
    *,
    weights: str | None,
    kv: str,
    file: GgufModel | None = None,
    stated_context: bool = True,
) -> LocalEstimate:
    """Answer for an engine that allocates everything at start.

    Args:
        request: The question, resolved.
        flags: The engine's own flags.
        weights: Quantization mix.
        kv: KV format.
        file: The GGUF file, if the model is one.
        stated_context: False if nobody named a context, so that the engine's own default applies.

    Raises:
        InputError: What the engine refuses.
    """
    local, mix = open_local(request.model, weights, file)
    options = options_of(flags, request.context_tokens, kv)
    devices = devices_of(request, flags)
    engine_rules = rules(request.engine)
    assert isinstance(engine_rules, LlamaCpp)
    asked = options if stated_context else replace(options, context=0)
    options = engine_rules.local_options(asked, request.model, sum(device.usable for device in devices))
    layout = lay_out_local(local, options, devices)
    fullest = max(layout.devices, key=lambda device: device.total - device.usable)
    each = _slot_bytes(local, options, devices, layout)
    slots = _slots(fullest, each)
    uncertainty = int(fullest.context + 0.02 * fullest.compute)
    budget = _budget(fullest, uncertainty)
    model = request.model
    plan = BlockPlan(
        block_bytes=1,
        profile=CacheProfile.of([Term("full", constant_bytes=each)]),
        block_tokens=256,
        notes=("allocated at start for all slots; nothing is paged",),
    )
    rows = tuple(_at(local, options, devices, tokens) for tokens in _contexts(model, request.context_tokens))
    verdict = _verdict(request, layout, fullest, uncertainty, flags)
    starts = verdict in ("fits", "tight")
    assumptions = _assumptions(options, flags, mix, weights)
    result = LocalEstimate(
        request=replace(request, assumptions=assumptions),
        deployment=None,
        parameters={
            "total": parameters(model),
            "active": active_parameters(model),
            "by_component": {str(part): number for part, number in parameters_by_component(model).items()},
        },
        weights_by_component=by_component(local.tensors),
        weight_bytes_per_gpu=fullest.weights,
        loading_bytes={},
        kv_bytes_per_token_per_gpu=_per_token(local, options, devices),
        kv_bytes_per_token_reserved_per_gpu=_per_token(local, options, devices),
        state_bytes_per_request_per_gpu=fullest.state // options.slots,
        kv_bytes_per_request_per_gpu=each,
        budget=budget,
        plan=plan,
        held=plan.profile,
        max_concurrency=budget.kv_pool_bytes / each if each else None,
        max_concurrent_requests=min(slots, options.slots) if starts else 0,
        max_concurrent_requests_by_memory=slots,
        limited_by=_limit(verdict, slots, options.slots),
        shortfall_bytes=layout.shortfall,
        max_concurrent_requests_ceiling=max(0, (fullest.usable - fullest.weights) // each) if each else 0,
        kv_pool_tokens=layout.cells.context,
        max_context_tokens=longest_context(local, options, devices),
        verdict=verdict,
        decode_ms_lower_bound=_decode_ms(local, request.accelerator, layout),
        prefill_ms_lower_bound=None,
        by_context=rows,
        explanation=(),
        layout=layout,
        options=options,
        mix=mix,
        flags=flags,
        assumptions=assumptions,
        slots=slots,
    )
    return replace(result, explanation=tuple(_explain(result)))


def _budget(device: DeviceBytes, uncertainty: int) -> Budget:
    taken = device.weights + device.compute + device.offload_copies + device.context
    return Budget(
        total_bytes=device.usable,
        utilization=1.0,
        weights=device.weights,
        activations=device.compute,
        non_framework=device.context + device.offload_copies,
        graphs=0,
        kv_pool_bytes=max(device.usable - taken, 0),
        uncertainty_bytes=uncertainty,
    )


def _slot_bytes(
    local: LocalModel, options: LocalOptions, devices: tuple[LocalDevice, ...], layout: LocalLayout
) -> int:
    """Bytes on the fullest device of one slot that holds the whole context."""
    del layout
    single = replace(options, parallel=1, unified=None)
    laid = lay_out_local(local, single, devices)
    return max((device.kv + device.state for device in laid.devices), default=0)


def _slots(device: DeviceBytes, each: int) -> int:
    free = device.usable - device.weights - device.compute - device.offload_copies - device.context
    return max(0, min(free // each, 256)) if each else 0


def _per_token(local: LocalModel, options: LocalOptions, devices: tuple[LocalDevice, ...]) -> int:
    """Bytes of one further token, from two layouts whose windows are full."""
    single = replace(options, parallel=1, unified=None, outputs=1)
    short, long = (
        lay_out_local(local, replace(single, context=tokens), devices) for tokens in (1 << 16, 1 << 17)
    )
    return (long.kv_cache_bytes - short.kv_cache_bytes) >> 16


def _at(local: LocalModel, options: LocalOptions, devices: tuple[LocalDevice, ...], tokens: int) -> AtContext:
    layout = lay_out_local(local, replace(options, context=tokens, parallel=1, unified=None), devices)
    fullest = max(layout.devices, key=lambda device: device.total - device.usable)
    each = fullest.kv + fullest.state
    count = _slots(fullest, each)
    most = max(0, (fullest.usable - fullest.weights) // each) if each else 0
    verdict = "fits" if layout.fits else "cache_exceeds_pool"
    if fullest.weights > fullest.usable:
        verdict = "weights_exceed_memory"
    starts = layout.fits
    return AtContext(
        context_tokens=tokens,
        kv_bytes_per_request_per_gpu=each,
        max_concurrent_requests=min(count, options.slots) if starts else 0,
        max_concurrent_requests_by_memory=count,
        max_concurrent_requests_ceiling=min(most, 1 << 20),
        limited_by=_limit(verdict, count, options.slots),
        shortfall_bytes=layout.shortfall,
        verdict=verdict,
    )


def _limit(verdict: str, held: int, slots: int) -> str:
    if verdict == "context_exceeds_model":
        return "context"
    return "max_num_seqs" if verdict in ("fits", "tight") and held >= slots else "kv_pool"


def _contexts(model: Model, asked: int) -> list[int]:
    known = {tokens for tokens in CONTEXTS if tokens <= model.context_tokens}
    return sorted(known | {model.context_tokens, asked})


def _verdict(
    request: Request, layout: LocalLayout, fullest: DeviceBytes, uncertainty: int, flags: Query
) -> str:
    if request.context_tokens > request.model.context_tokens:
        return "context_exceeds_model"
    if flags.host_memory is not None and layout.host.total > _memory("host-memory", flags.host_memory):
        return "weights_exceed_memory"
    if fullest.weights + fullest.context > fullest.usable:
        return "weights_exceed_memory"
    if fullest.shortfall:
        return "may_fit" if fullest.shortfall <= uncertainty else "cache_exceeds_pool"
    return "tight" if fullest.usable - fullest.total < uncertainty else "fits"


def by_component(tensors: tuple[LocalTensor, ...]) -> dict[str, int]:
    """Bytes by what tensors are for."""
    total: dict[str, int] = {}
    for tensor in tensors:
        name = next((part for key, part in _OF_ROLE if key in tensor.role), "other")
        total[name] = total.get(name, 0) + tensor.nbytes
    return total


def _decode_ms(local: LocalModel, accelerator: Accelerator, layout: LocalLayout) -> float | None:
    """Least time of one token: what it reads of the device, at the device's bandwidth."""
    bandwidth = Peaks.of(accelerator).bytes_per_s
    if np.isnan(bandwidth) or not layout.fits:
        return None
    experts = local.model.experts
    share = experts.per_token / experts.routed if experts else 1.0
    read = sum(
        tensor.nbytes * (share if "_exps" in tensor.role else 1.0)
        for tensor in local.tensors
        if tensor.role not in ("token_embd", "per_layer_token_embd") or local.network.tied
    )
    return float(1000 * read / bandwidth)


def _assumptions(options: LocalOptions, flags: Query, mix: str, weights: str | None) -> tuple[str, ...]:
    found = []
    if flags.parallel is None:
        found.append("--parallel: 4 slots on one unified cache, llama-server's default")
    if flags.ubatch_size is None:
        found.append("--ubatch-size: 512, llama.cpp's default")
    if flags.n_gpu_layers is None:
        found.append("--n-gpu-layers: all layers on devices")
    if weights is None and mix != "file":
        found.append(f"weights: converted without quantizing ({mix})")
    found.append("logits of one token per slot, as llama-server reserves")
    return tuple(found)


def _explain(result: LocalEstimate) -> list[str]:
    layout, options = result.layout, result.options
    cells = layout.cells
    shared = "shared by" if options.is_unified else "each of"
    lines = [
        f"cells: {cells.per_slot:,} {shared} {options.slots} slots, rounded up to 256"
        + (f"; window layers {cells.window:,}" if cells.window else ""),
        f"caches and states of all slots: {gib(layout.kv_cache_bytes)} GiB, allocated at start",
    ]
    lines += [
        f"{device.name}: {gib(device.weights)} weights + {gib(device.kv)} KV + {gib(device.state)} states + "
        f"{gib(device.compute)} compute + {gib(device.offload_copies)} copies of host weights + "
        f"{gib(device.context)} context = {gib(device.total)} of {gib(device.usable)} GiB"
        for device in layout.devices
    ]
    host = layout.host
    lines.append(
        f"host: {gib(host.weights)} weights + {gib(host.kv + host.state)} caches + {gib(host.compute)} compute + "
        f"{gib(host.output)} output = {gib(host.total)} GiB"
    )
    lines.append(f"longest context that fits with these flags: {human_tokens(result.max_context_tokens)}")
    lines.append(f"run it: {command_line(result)}")
    return lines


def command_line(result: LocalEstimate) -> str:
    """The command that starts it."""
    options = result.options
    parts = ["llama-server -m MODEL.gguf", f"-c {options.context}"]
    if options.parallel is not None:
        parts.append(f"-np {options.parallel}")
    if options.unified:
        parts.append("-kvu")
    if options.ubatch != 512:
        parts.append(f"-ub {options.ubatch}")
    if options.gpu_layers is not None:
        parts.append(f"-ngl {options.gpu_layers}")
    if options.cpu_moe:
        parts.append(f"--n-cpu-moe {options.cpu_moe}")
    if options.type_k != "f16":
        parts.append(f"-ctk {options.type_k}")
    if options.type_v != "f16":
        parts.append(f"-ctv {options.type_v}")
    if options.swa_full:
        parts.append("--swa-full")
    if options.flash != "auto":
        parts.append(f"-fa {options.flash}")
    return " ".join(parts)


def gguf_of(model: object) -> GgufModel | None:
    """The GGUF file that a model's name points to, or None."""
    return read_gguf(str(model)) if is_gguf(model) else None


__all__ = ["LocalEstimate", "answer_local", "estimate_local", "gguf_of", "is_gguf", "open_local"]
