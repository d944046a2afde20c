"""One estimate for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvreport.accounting.budget import Budget
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.engines.llama_cpp.caches import cache_bytes, count_cells
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalDevice, LocalLayout, lay_out_local
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.quantize import mix_name, quantized
from kvreport.accounting.engines.llama_cpp.reading import LocalModel, read_local
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.accounting.engines.llama_cpp.search import (
    MOST_SLOTS,
    fewest_cpu_experts,
    longest_context,
    most_gpu_layers,
)
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.weights import active_parameters, parameters, parameters_by_component
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.llama_cpp import LocalArchitecture, load_local_architectures, load_ollama_names
from kvreport.catalog.load import RELEASED, Catalogue
from kvreport.catalog.model import Model
from kvreport.errors import InputError
from kvreport.estimation.answer import AtContext
from kvreport.estimation.local_answer import LocalEstimate, explain_local
from kvreport.estimation.request import Request, at_release, resolve
from kvreport.query import Query
from kvreport.units import parse_bytes

CONTEXTS: Final = tuple(1 << power for power in range(11, 21))

_OF_ROLE: Final = (
    ("token_embd", "embedding"), ("output_norm", "norms"), ("output", "output_head"), ("_exps", "routed_experts"),
    ("_shexp", "shared_experts"), ("exp_probs", "router"), ("ffn_gate_inp", "router"), ("norm", "norms"),
    ("ssm", "recurrent"), ("shortconv", "recurrent"), ("attn", "attention"), ("indexer", "attention"),
    ("ffn", "dense_mlp"),
)  # fmt: skip

_KNOWN_AS_70B: Final = ("llama", "qwen2", "deci", "jais2", "olmo")
"""Architectures of which the quantizer knows 80 layers as 70B (``LLM_TYPE_70B`` in ``src/models``)."""

_HALF: Final = ("auto", "fp16", "float16", "f16", "16bit", "half")
_SMALLER: Final = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "q2_k", "iq2_xs")


def is_gguf(model: object) -> bool:
    """True if a model's name is the path of a GGUF file."""
    return isinstance(model, str | Path) and str(model).lower().endswith(".gguf")


def with_base_model(query: Query) -> Query:
    """Replace a name of Ollama's library by its base model and mix; other queries stay as they are."""
    if not isinstance(query.model, str) or Path(query.model).exists():
        return query
    found = load_ollama_names().find(query.model)
    if found is None:
        return query
    return replace(query, model=found.model, weights=query.weights or found.format)


def estimate_local(query: Query, catalog: Catalogue) -> LocalEstimate | None:
    """Answer if the engine allocates everything at start; None for other engines.

    Args:
        query: The question.
        catalog: Where names are looked up.

    Raises:
        InputError: If something asked for is unknown, out of range, or refused by the engine.
    """
    engine = query.engine if not isinstance(query.engine, str) else catalog.engine(query.engine)
    if not rules(engine).allocates_at_start:
        return None
    if isinstance(query.engine, str):
        engine = at_release(engine, query.engine)
    asked = with_base_model(query)
    file = read_gguf(str(asked.model)) if is_gguf(asked.model) else None
    plain = replace(
        asked, model=asked.model if file is None else file.model, weights=None, kv="auto", engine=engine
    )
    return answer_local(resolve(plain, catalog), asked, file)


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
    mix = _released_mix(model) if weights is None or weights.lower() == RELEASED else mix_name(weights)
    typed = quantized(
        local.tensors,
        mix,
        layers=model.layer_count,
        experts=model.experts.routed if model.experts else 0,
        gqa=max(1, model.attention_heads) // _kv_heads(model),
        wide=model.layer_count == 80 and local.architecture.name in _KNOWN_AS_70B,
        falcon=local.architecture.name == "falcon",
    )
    return replace(local, tensors=typed), mix


def _kv_heads(model: Model) -> int:
    heads = (c.kv_heads for g in model.layers for c in g.caches if isinstance(c, FullAttention))
    return max(1, next(heads, 1))


def _released_mix(model: Model) -> str:
    """What a checkpoint is converted to without quantizing: its own 4-bit experts, else 16 bits."""
    return "mxfp4" if model.weight_format == "mxfp4" else "bf16"


def options_of(query: Query, context: int) -> LocalOptions:
    """llama.cpp's options from a question.

    Args:
        query: The question.
        context: Cells of all slots; 0 if none was named.
    """
    named = query.kv.lower()
    usual = "f16" if named in _HALF else ("bf16" if named == "bfloat16" else named)
    return LocalOptions(
        context=context,
        parallel=query.parallel,
        unified=query.kv_unified,
        type_k=(query.cache_type_k or usual).lower(),
        type_v=(query.cache_type_v or usual).lower(),
        ubatch=query.ubatch_size or 512,
        batch=max(2048, query.ubatch_size or 0),
        flash=query.flash_attn or "auto",  # type: ignore[arg-type]
        swa_full=query.swa_full,
        gpu_layers=query.n_gpu_layers,
        cpu_moe=query.n_cpu_moe or 0,
        draft=query.num_speculative_tokens,
    )


def devices_of(request: Request) -> tuple[LocalDevice, ...]:
    """Devices as llama.cpp finds them: one for each GPU that was named."""
    wanted = max(request.layout.devices, len(request.accelerators))
    named = request.accelerators * (wanted if len(request.accelerators) == 1 else 1)
    return tuple(
        replace(local_device(one, request.engine.coefficients), name=f"{one.id}:{index}")
        for index, one in enumerate(named[:wanted])
    )


def local_device(accelerator: Accelerator, coefficients: Mapping[str, float]) -> LocalDevice:
    """One device with what its backend does.

    Args:
        accelerator: The accelerator, with its usable memory.
        coefficients: Constants of the engine's record.
    """
    apple = accelerator.vendor.lower() == "apple"
    own = coefficients.get("device_context_metal" if apple else "device_context", 0.0)
    return LocalDevice(
        name=accelerator.id,
        usable=accelerator.usable_bytes,
        context=int(own),
        align=32 if apple else 128,
        offloads=not apple,
        pipelines=accelerator.vendor.lower() == "nvidia",
    )


@dataclass(frozen=True)
class _Case:
    """A question with everything that its parts share."""

    request: Request
    query: Query
    local: LocalModel
    mix: str
    options: LocalOptions
    devices: tuple[LocalDevice, ...]

    def laid(self, context: int) -> tuple[LocalLayout, DeviceBytes]:
        """One slot of a context, and the fullest device."""
        single = replace(self.options, context=context, parallel=1, unified=None)
        layout = lay_out_local(self.local, single, self.devices)
        return layout, fullest(layout)


def fullest(layout: LocalLayout) -> DeviceBytes:
    """The device with the least room left."""
    return max(layout.devices, key=lambda device: device.total - device.usable)


def answer_local(request: Request, query: Query, file: GgufModel | None = None) -> LocalEstimate:
    """Answer for an engine that allocates everything at start.

    Args:
        request: The question, resolved.
        query: The question as it was asked.
        file: The GGUF file, if the model is one.

    Raises:
        InputError: What the engine refuses.
    """
    case = _open_case(request, query, file)
    layout = lay_out_local(case.local, case.options, case.devices)
    result = _assemble(case, layout)
    return replace(result, explanation=tuple(explain_local(result)))


def _open_case(request: Request, query: Query, file: GgufModel | None) -> _Case:
    local, mix = open_local(request.model, query.weights, file)
    devices = devices_of(request)
    options = options_of(query, 0 if query.context_tokens is None else request.context_tokens)
    engine = rules(request.engine)
    if isinstance(engine, LlamaCpp):
        options = engine.local_options(options, request.model, sum(device.usable for device in devices))
    if query.context_tokens is None and options.context:
        request = replace(request, context_tokens=options.context // options.slots)
    return _Case(
        request,
        query,
        local,
        mix,
        replace(options, context=options.context or request.context_tokens),
        devices,
    )


def _assemble(case: _Case, layout: LocalLayout) -> LocalEstimate:
    model = case.request.model
    request = replace(case.request, assumptions=_assumptions(case))
    device = fullest(layout)
    uncertainty = int(device.context + 0.02 * device.compute)
    rows = tuple(_at(case, tokens) for tokens in _contexts(model, request.context_tokens))
    own = next(row for row in rows if row.context_tokens == request.context_tokens)
    verdict = _verdict(case, layout, device, uncertainty)
    each, per_token = own.kv_bytes_per_request_per_gpu, _per_token(case)
    plan = BlockPlan(
        block_bytes=1,
        profile=CacheProfile.of([Term("full", constant_bytes=each)]),
        block_tokens=256,
        notes=("allocated at start for all slots; nothing is paged",),
    )
    budget = _budget(device, uncertainty)
    starts = verdict in ("fits", "tight", "may_fit", "context_exceeds_model")
    running = min(own.max_concurrent_requests_by_memory, case.options.slots) if starts else 0
    return LocalEstimate(
        request=request,
        deployment=lay_out(request.case),
        parameters={
            "total": parameters(model),
            "active": active_parameters(model),
            "by_component": {str(part): number for part, number in parameters_by_component(model).items()},
        },
        weights_by_component=by_component(case.local.tensors),
        weight_bytes_per_gpu=device.weights,
        loading_bytes={},
        kv_bytes_per_token_per_gpu=per_token,
        kv_bytes_per_token_reserved_per_gpu=per_token,
        state_bytes_per_request_per_gpu=device.state // case.options.slots,
        kv_bytes_per_request_per_gpu=each,
        budget=budget,
        plan=plan,
        held=plan.profile,
        max_concurrency=budget.kv_pool_bytes / each if each else None,
        max_concurrent_requests=running,
        max_concurrent_requests_by_memory=own.max_concurrent_requests_by_memory,
        max_concurrent_requests_ceiling=own.max_concurrent_requests_ceiling,
        limited_by="max_num_seqs" if running == case.options.slots else "kv_pool",
        shortfall_bytes=layout.shortfall,
        kv_pool_tokens=layout.cells.context,
        max_context_tokens=longest_context(case.local, case.options, case.devices),
        verdict=verdict,
        decode_ms_lower_bound=_decode_ms(case, layout),
        prefill_ms_lower_bound=None,
        by_context=tuple(row for row in rows),
        explanation=(),
        local=layout,
        options=case.options,
        mix=case.mix,
        advice=() if starts else _advice(case),
    )


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


def _at(case: _Case, tokens: int) -> AtContext:
    """One slot that holds a whole context, and how many such slots memory would hold."""
    layout, device = case.laid(tokens)
    each = device.kv + device.state
    free = device.usable - device.weights - device.compute - device.offload_copies - device.context
    count = max(0, min(free // each, MOST_SLOTS)) if each else 0
    most = max(0, (device.usable - device.weights) // each) if each else 0
    verdict = "fits" if layout.fits else "cache_exceeds_pool"
    if device.weights + device.context > device.usable:
        verdict = "weights_exceed_memory"
    return AtContext(
        context_tokens=tokens,
        kv_bytes_per_request_per_gpu=each,
        max_concurrent_requests=min(count, case.options.slots),
        max_concurrent_requests_by_memory=count,
        max_concurrent_requests_ceiling=min(most, 1 << 20),
        limited_by="max_num_seqs" if count >= case.options.slots else "kv_pool",
        shortfall_bytes=layout.shortfall,
        verdict=verdict,
    )


def _per_token(case: _Case) -> int:
    """Bytes of one further token, from two layouts whose windows are full."""
    network, single = case.local.network, replace(case.options, parallel=1, unified=None)

    def total(tokens: int) -> int:
        asked = replace(single, context=tokens)
        return sum(cache_bytes(network, asked, count_cells(network, asked, tokens)))

    return (total(1 << 17) - total(1 << 16)) >> 16


def _contexts(model: Model, asked: int) -> list[int]:
    known = {tokens for tokens in CONTEXTS if tokens <= model.context_tokens}
    return sorted(known | {model.context_tokens, asked})


def _verdict(case: _Case, layout: LocalLayout, device: DeviceBytes, uncertainty: int) -> str:
    request, host = case.request, case.query.host_memory
    if request.context_tokens > request.model.context_tokens:
        return "context_exceeds_model"
    if host is not None and layout.host.total > _size("host-memory", host):
        return "weights_exceed_memory"
    if device.weights + device.context > device.usable:
        return "weights_exceed_memory"
    if device.shortfall:
        return "may_fit" if device.shortfall <= uncertainty else "cache_exceeds_pool"
    return "tight" if device.usable - device.total < uncertainty else "fits"


def _size(field: str, text: str | int) -> int:
    try:
        return parse_bytes(text)
    except InputError as error:
        raise InputError(f"{field}: {error}") from error


def by_component(tensors: tuple[LocalTensor, ...]) -> dict[str, int]:
    """Bytes by what tensors are for."""
    total: dict[str, int] = {}
    for tensor in tensors:
        name = next((part for key, part in _OF_ROLE if key in tensor.role), "other")
        total[name] = total.get(name, 0) + tensor.nbytes
    return total


def _decode_ms(case: _Case, layout: LocalLayout) -> float | None:
    """Least time of one token: what it reads of the device, at the device's bandwidth."""
    bandwidth = Peaks.of(case.request.accelerator).bytes_per_s
    if math.isnan(bandwidth) or not layout.fits:
        return None
    experts = case.local.model.experts
    share = experts.per_token / experts.routed if experts else 1.0
    read = sum(
        tensor.nbytes * (share if "_exps" in tensor.role else 1.0)
        for tensor in case.local.tensors
        if tensor.role not in ("token_embd", "per_layer_token_embd") or case.local.network.tied
    )
    return float(1000 * read / bandwidth / len(case.devices))


def _assumptions(case: _Case) -> tuple[str, ...]:
    query = case.query
    ours = ("utilization", "KV format", "max_")
    found = [text for text in case.request.assumptions if not text.startswith(ours)]
    if query.context_tokens is None and case.request.context_tokens != case.request.model.context_tokens:
        found = [text for text in found if not text.startswith("context ")]
        found.append(
            f"context {case.request.context_tokens:,} tokens: {case.request.engine.label}'s own for this memory"
        )
    if query.parallel is None:
        slots = case.options.slots
        found.append(f"parallel {slots}: default of {case.request.engine.label}")
    if query.ubatch_size is None:
        found.append("ubatch size 512: llama.cpp's default")
    if query.n_gpu_layers is None:
        found.append("all layers on the GPU")
    if query.weights is None and case.mix != "file":
        found.append(f"weights {case.mix}: converted without quantizing")
    found.append("logits of one token per slot, as llama-server reserves")
    return tuple(found)


def _advice(case: _Case) -> tuple[str, ...]:
    """Changes that make it fit, each alone, by the engine's own flags; the nearest of each."""
    found = []
    context = longest_context(case.local, case.options, case.devices)
    if context >= 4 * 256:
        found.append(f"--context {context}")
    experts = fewest_cpu_experts(case.local, case.options, case.devices)
    if experts:
        found.append(f"--n-cpu-moe {experts}")
    elif layers := most_gpu_layers(case.local, case.options, case.devices):
        found.append(f"--n-gpu-layers {layers}")
    if case.mix != "file":
        found += [f"--weights {mix}" for mix in _SMALLER if _fits_as(case, mix)][:1]
    return tuple(found)


def _fits_as(case: _Case, mix: str) -> bool:
    local, _ = open_local(case.request.model, mix, None)
    return lay_out_local(local, case.options, case.devices).fits
