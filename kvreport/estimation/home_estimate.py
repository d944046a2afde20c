"""One estimate for an engine that allocates everything at start: llama.cpp, Ollama."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting.budget import Budget
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.engines.llama_cpp.cells_and_states import cache_bytes, count_cells
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.layout import DeviceBytes, LocalLayout
from kvreport.accounting.engines.llama_cpp.placement import place, weight_bytes
from kvreport.accounting.engines.llama_cpp.search import most_slots
from kvreport.accounting.plan import BlockPlan
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.weights import parameters_by_component
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import Catalog
from kvreport.catalog.local_architectures import LocalArchitectures
from kvreport.catalog.release import trait
from kvreport.estimation.answer import (
    POSSIBLE,
    AtContext,
    between_ends,
    parameter_counts,
    table_contexts,
    with_open_terms,
)
from kvreport.estimation.hardware import listed
from kvreport.estimation.home_answer import LocalEstimate
from kvreport.estimation.home_case import (
    HOST_MEMORY,
    LocalCase,
    open_case,
    refuse_forks,
    size_of,
)
from kvreport.estimation.home_commands import made_from_file
from kvreport.estimation.home_names import Named, by_local_name, is_gguf
from kvreport.estimation.named import at_release
from kvreport.estimation.request import resolve
from kvreport.query import Query
from kvreport.units import human_bytes

HOST_BANDWIDTH: Final = 89_600_000_000
"""Bytes per second of two channels of DDR5-5600 (2 x 64 bits x 5,600 MT/s), where nobody states another."""

ROWS_KEEP: Final = "rows of other contexts keep the layers on the GPU and the batch"
"""Where the engine places layers for the context that was asked."""

_OF_ROLE: Final = (
    ("token_embd", "embedding"), ("output_norm", "norms"), ("output", "output_head"), ("_exps", "routed_experts"),
    ("_shexp", "shared_experts"), ("exp_probs", "router"), ("ffn_gate_inp", "router"), ("norm", "norms"),
    ("ssm", "recurrent"), ("shortconv", "recurrent"), ("attn", "attention"), ("indexer", "attention"),
    ("ffn", "dense_mlp"),
)  # fmt: skip


def estimate_local(query: Query, catalog: Catalog) -> LocalEstimate | None:
    """Answer if the engine allocates everything at start; None for other engines.

    Raises:
        InputError: If something asked for is unknown, out of range, or refused by the engine.
    """
    refuse_forks(query.engine)
    engine = query.engine if not isinstance(query.engine, str) else catalog.engine(query.engine)
    if not trait(engine, "allocates_at_start"):
        return None
    if isinstance(query.engine, str):
        engine = at_release(engine, query.engine)
    asked, named = by_local_name(query, catalog)
    result = _laid_out(asked, named, engine, catalog)
    if named.least is None:
        return result
    # Whatever the wide end was given or chose, the narrow end answers the same question.
    narrow = replace(asked, weights=named.least, context_tokens=result.request.context_tokens)
    return between_ends(result, _laid_out(narrow, named, engine, catalog))


def _laid_out(query: Query, named: Named, engine: Engine, catalog: Catalog) -> LocalEstimate:
    """Answer a question whose model's name was read."""
    case = replace(open_query(query, engine, catalog), named=named)
    changed: tuple[str, ...] = ()
    if query.fit or case.engine_sets_context:
        choice = case.fitted()
        changed = choice.changed
        case = replace(case, options=choice.options, asked=case.options)
        if not case.engine_sets_context and query.context_tokens is None and query.ctx_size is None:
            tokens = choice.options.context // (1 if choice.options.is_unified else choice.options.slots)
            case = replace(case, request=replace(case.request, context_tokens=tokens))
    return _assemble(case, case.lay_out(), changed)


def open_query(query: Query, engine: Engine, catalog: Catalog) -> LocalCase:
    """Open a question whose engine is known.

    Raises:
        InputError: If something asked for is unknown, out of range, or refused by the engine.
    """
    file = query.model if isinstance(query.model, GgufModel) else None
    if is_gguf(query.model):
        file = read_gguf(str(query.model))
    plain = replace(
        query,
        model=query.model if file is None else file.model,
        weights=None,
        kv="auto",
        engine=engine,
        draft=None,
        num_speculative_tokens=0,
        # Layers are divided, not matrices: several devices are stages.
        pipeline_parallel=sum(number for _, number in listed(query.gpu))
        if query.tensor_parallel is None
        else query.pipeline_parallel,
    )
    return open_case(resolve(plain, catalog, query), query, file, catalog)


def _assemble(case: LocalCase, layout: LocalLayout, changed: tuple[str, ...]) -> LocalEstimate:
    model = case.request.model
    request = replace(
        case.request, assumptions=_assumptions(case, changed), not_read=not_read_of_file(case.file)
    )
    device = layout.fullest
    _, uncertainty = _bands(case, device)
    longest = None if case.query.ctx_size is None else request.context_tokens  # a slot has no more
    by_context = [
        _at(case, tokens, layout)
        for tokens in table_contexts(model, request.context_tokens)
        if tokens <= (longest or tokens)
    ]
    own = next(one for one in by_context if one.context_tokens == request.context_tokens)
    each, per_token = own.kv_bytes_per_request_per_gpu, _per_token(case)
    plan = BlockPlan(
        block_bytes=1,
        profile=CacheProfile.of([Term("full", constant_bytes=each)]),
        block_tokens=256,
        notes=("allocated at start for all slots; nothing is paged",),
    )
    budget = _budget(device, uncertainty)
    result = LocalEstimate(
        request=request,
        deployment=None,
        parameters=parameter_counts(model),
        weights_by_component=by_component(case.local.tensors),
        weight_bytes_per_gpu=device.weights,
        loading_bytes={},
        kv_bytes_per_token_per_gpu=per_token,
        kv_bytes_per_token_reserved_per_gpu=per_token,
        state_bytes_per_request_per_gpu=device.state // case.options.slots,
        budget=budget,
        plan=plan,
        held=plan.profile,
        max_concurrency=budget.kv_pool_bytes / each if each else None,
        kv_pool_tokens=layout.cells.context,
        max_context_tokens=case.longest(),
        decode_ms_lower_bound=_decode_ms(case, layout),
        prefill_ms_lower_bound=None,
        by_context=tuple(by_context),
        **own.counts,
        local=layout,
        starts=own.verdict in _STARTS,
        case=case,
    )
    return with_open_terms(result)


def _budget(device: DeviceBytes, uncertainty: int) -> Budget:
    # What is no cache: with the host's part of a memory that both share.
    other = device.context + device.offload_copies + device.companions + device.usable - device.room
    return Budget(
        total_bytes=device.usable,
        utilization=1.0,
        weights=device.weights,
        activations=device.compute,
        non_framework=other,
        graphs=0,
        kv_pool_bytes=max(device.usable - device.weights - device.compute - other, 0),
        uncertainty_bytes=uncertainty,
    )


def _at(case: LocalCase, tokens: int, asked: LocalLayout) -> AtContext:
    """A start for requests of a context, with all its slots, and how many slots of them memory would hold."""
    options, usual = case.options, case.request.context_tokens
    one = case.lay_out(context=tokens, parallel=1, unified=None)
    device = one.fullest
    each = device.kv + device.state
    on_host = one.host.kv + one.host.state
    # The host's part of the cache is in the way only where both share one memory.
    guess = (device.free + each) // (each + (on_host if device.beside else 0) or 1)
    count = most_slots(case, tokens, guess) if one.fits else 0
    most = max(count, (device.usable - device.weights) // each if each else 0)
    layout, cells, stated = asked, options.context, case.query.ctx_size is not None
    # Where the cells are stated, shorter requests are of the same start.
    if tokens != usual and not stated:
        cells = tokens * max(options.context // usual, 1)
        layout = case.lay_out(context=cells)
    # Slots that share the cells of -c run as many requests of this length as find room in them.
    at_once = min(options.slots, cells // tokens) if options.is_unified else options.slots
    verdict = _verdict(case, layout, tokens)
    running = min(count, at_once) if verdict in _STARTS else 0
    return AtContext(
        context_tokens=tokens,
        kv_bytes_per_request_per_gpu=each,
        max_concurrent_requests=running,
        max_concurrent_requests_by_memory=count,
        max_concurrent_requests_ceiling=min(most, 1 << 20),
        limited_by="max_num_seqs" if running == options.slots or running < count else "kv_pool",
        shortfall_bytes=layout.shortfall,
        verdict=verdict,
    )


def _per_token(case: LocalCase) -> int:
    """Bytes of one further token, from two layouts whose windows are full."""
    network, single = case.local.network, replace(case.options, parallel=1, unified=None)

    def total(tokens: int) -> int:
        asked = replace(single, context=tokens)
        return sum(cache_bytes(network, asked, count_cells(network, asked, tokens)))

    return (total(1 << 17) - total(1 << 16)) >> 16


_STARTS: Final = (*POSSIBLE, Verdict.CONTEXT_EXCEEDS_MODEL.label)


def _bands(case: LocalCase, device: DeviceBytes) -> tuple[int, int]:
    """The error of a device's bytes where buffers are confirmed, and with what they may be beyond that."""
    confirmed = int(device.context + 0.02 * device.compute)
    return confirmed, confirmed + int((case.compute_factor - 1) * device.compute)


def _verdict(case: LocalCase, layout: LocalLayout, tokens: int) -> str:
    """The verdict of a layout; what its buffers may be beyond the band of others makes it tight, never a start."""
    device = layout.fullest
    confirmed, uncertainty = _bands(case, device)
    caches, short = device.kv + device.state, layout.shortfall
    if not short and case.states_growth and case.outgrown(layout):
        # It starts, and what was asked for does not fit later.
        uncertainty = max(uncertainty, device.free + 1)
    return Verdict(
        kernel.verdict(
            kernel.Plan(block=1, kept=0, constant=caches, terms=(), rules=()),
            usable=0,
            weights=int(_weights_exceed(layout)),
            pool=caches - short if short else caches + device.free,
            error=confirmed if short else uncertainty,
            wanted=0,
            context=tokens,
            limit=case.request.model.context_tokens,
        )
    ).label


def _weights_exceed(layout: LocalLayout) -> bool:
    """True if weights alone are more than a device, the host or the memory that both share can hold."""
    host = layout.host
    if host.usable is not None and host.weights > host.usable:
        return True
    return any(
        device.weights + device.context > device.usable
        or (
            device.shared is not None
            and device.weights + device.context + (host.weights - host.repeated if device.beside else 0)
            > device.shared
        )
        for device in layout.devices
    )


def by_component(tensors: tuple[LocalTensor, ...]) -> dict[str, int]:
    """Bytes by what tensors are for."""
    total: dict[str, int] = {}
    for tensor in tensors:
        name = next((part for key, part in _OF_ROLE if key in tensor.role), "other")
        total[name] = total.get(name, 0) + tensor.nbytes
    return total


def _assumptions(case: LocalCase, changed: tuple[str, ...]) -> tuple[str, ...]:
    query, options, label = case.query, case.options, case.request.engine.label
    ours = ("utilization", "KV format", "max_", "tensor parallel")
    found = [text for text in case.request.assumptions if not text.startswith(ours)]
    if query.context_tokens is None and query.ctx_size is not None:
        found = [text for text in found if not text.startswith("context ")]
        found.append(
            f"context {case.request.context_tokens:,} tokens: "
            + (
                "what one slot has"
                if options.slots == 1 or options.is_unified
                else f"what each of {options.slots} slots has"
            )
            + f" of the {options.context:,} cells of -c, no more than the model supports"
        )
    elif query.context_tokens is None and case.request.context_tokens != case.request.model.context_tokens:
        found = [text for text in found if not text.startswith("context ")]
        found.append(f"context {case.request.context_tokens:,} tokens: {label}'s own for this memory")
    if query.parallel is None:
        found.append(f"parallel {options.slots}: default of {label}")
    elif options.slots != query.parallel:
        found.append(f"parallel {options.slots}: {label} runs {case.local.architecture.name} with one slot")
    if query.ubatch_size is None:
        found.append(f"ubatch size {options.ubatch}: default of {label}")
    if changed:
        found.append(f"changed by --fit: {' '.join(changed)}")
    if case.asked is not None:
        tokens = f"{case.request.context_tokens:,} tokens"
        found.append(f"{ROWS_KEEP} that {label} takes for {tokens}; another context may have others")
    found += _layers_said(case)
    if query.weights is None and case.mix != "file":
        found.append(f"weights {case.mix}: {case.assumed_mix}")
    if options.draft and query.num_speculative_tokens == 0:
        found.append(f"draft tokens {options.draft}: default of llama.cpp")
    if case.file is not None and case.file.missing_bytes:
        found.append(
            f"the file ends {human_bytes(case.file.missing_bytes)} before its tensors do: read as a header only"
        )
    found += [*case.named.said, *_encoders_said(case), *said_of_file(case.file)]
    found += [*memory_said(case), *made_from_file(case)]
    found.append(_build_said(case.request.engine))
    found += [case.confirmation] if case.confirmation else []
    found.append(f"host memory is read at {_host_bandwidth(case) / 1e9:g} GB/s")
    found.append("logits of one token per slot, as llama-server reserves")
    return tuple(found)


def memory_said(case: LocalCase) -> list[str]:
    """The main memory that nobody stated, or what GPU and processor share, which no statement makes larger."""
    if not case.is_unified:
        if case.query.host_memory is not None:
            return []
        size = human_bytes(HOST_MEMORY)
        return [
            f"{size} of main memory for what stays on the CPU: a usual desktop; --host-memory states another"
        ]
    device = next(one for one in case.devices if one.shared is not None)
    shared = human_bytes(device.shared or 0)
    if device.has_all:
        return [f"one memory: what GPU and processor hold together fits in {shared}"]
    own = f"the GPU's part of the memory is {human_bytes(device.usable)}"
    return [f"{own} (--memory states another split); both parts together fit in {shared}"]


def _build_said(engine: Engine) -> str:
    """The one build that the rules read."""
    return f"{engine.label} {engine.version}: the build that buffers are computed for; others may differ"


def _encoders_said(case: LocalCase) -> list[str]:
    """What a server that finds its model by name loads beside it, and what is not counted."""
    found = parameters_by_component(case.request.model)
    towers = sum(int(number) for part, number in found.items() if part in ("vision", "audio"))
    by_name = case.named.repository is not None or case.engine_sets_context
    if not towers or not by_name or case.query.mmproj is not None or case.file is not None:
        return []
    also = f"encoders of images or audio, {human_bytes(2 * towers)} in 16 bits, are loaded too"
    return [f"text only: {also} and not counted; --mmproj FILE counts them"]


def said_of_file(file: GgufModel | None) -> list[str]:
    """What has to be said of a GGUF file whatever is asked: that the build known here refuses its architecture."""
    if file is None or file.architecture in LocalArchitectures.need().by_name:
        return []
    unknown = f"architecture {file.architecture} is unknown to the build that the rules read"
    return [f"{unknown}: it refuses the file; computed from the tensors for a newer one"]


def not_read_of_file(file: GgufModel | None) -> tuple[str, ...]:
    """Keys that nobody used of a file whose architecture the known build does not have: that build reads all of its own."""
    if file is None or file.architecture in LocalArchitectures.need().by_name:
        return ()
    return file.not_read


def _layers_said(case: LocalCase) -> list[str]:
    """How many layers are on the GPU, where nobody said or where more were asked for than there are."""
    asked = case.query.n_gpu_layers
    every = len(case.local.network.blocks) + case.local.network.prediction_layers + 1
    if asked is None:
        whole = case.options.gpu_layers is None and not case.expert_layers_on_host
        return ["all layers on the GPU"] if whole else []
    if asked > every:
        return [
            f"n-gpu-layers {asked}: the model has {every} with its output layer; all {every} are on the GPU"
        ]
    return []


def _host_bandwidth(case: LocalCase) -> int:
    """Bytes per second at which the processor reads its memory: as stated, or that of a usual desktop.

    A device that shares its memory with the processor has one bandwidth for both.
    """
    if case.query.host_bandwidth is not None:
        return size_of("host-bandwidth", case.query.host_bandwidth)
    if case.request.accelerator.is_unified:
        found = Peaks.of(case.request.accelerator).bytes_per_s
        return HOST_BANDWIDTH if math.isnan(found) else int(found)
    return HOST_BANDWIDTH


def _read_bytes(case: LocalCase, layout: LocalLayout) -> list[int]:
    """What one token of one full slot reads on each device, the host last: active weights, cache, state."""
    network, experts = case.local.network, case.local.model.experts
    placement = place(network, case.options, case.devices)
    share = experts.per_token / experts.routed if experts else 1.0
    tables = ("token_embd", "per_layer_token_embd", "position_embd")
    # One row of an embedding is read, but a tied one is the output matrix, too.
    read = [t for t in case.local.tensors if t.role not in tables]
    read += [replace(t, role="output") for t in case.local.tensors if t.role == "token_embd" and network.tied]
    routed = weight_bytes([t for t in read if "_exps" in t.role], placement, case.options, tied=False)
    plain = weight_bytes([t for t in read if "_exps" not in t.role], placement, case.options, tied=False)
    slots = case.options.slots if not case.options.is_unified else 1
    caches = [(device.kv + device.state) // slots for device in layout.devices]
    caches.append((layout.host.kv + layout.host.state) // slots)
    return [
        int(always + share * some) + cache for always, some, cache in zip(plain, routed, caches, strict=True)
    ]


def _decode_ms(case: LocalCase, layout: LocalLayout) -> float | None:
    """Least milliseconds of one token: each part read at the bandwidth of the memory that holds it.

    Layers run one after the other, so the times of devices add up. None where a device's rate is unknown or
    where the layout does not fit.
    """
    if not layout.fits:
        return None
    *on_devices, on_host = _read_bytes(case, layout)
    accelerators = case.request.accelerators
    total = on_host / _host_bandwidth(case)
    for index, size in enumerate(on_devices):
        rate = float(Peaks.of(accelerators[index if len(accelerators) > 1 else 0]).bytes_per_s)
        if math.isnan(rate):
            return None
        total += size / rate
    return 1000 * total
