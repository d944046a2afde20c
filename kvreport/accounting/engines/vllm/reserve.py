"""What vLLM keeps beside weights and cache: activations, non-framework memory, graphs.

Activations are counted from what the measuring run does (:mod:`.profiling`), release by release
(:mod:`.releases`). Five constants are left that no source states, fitted on published start-up logs
(``scripts/fit_reserve.py``): what lies outside the framework on one device, what links to other ranks
add to it (up to 0.22), what a device adds that shares its memory with a CPU, and what a captured graph takes per layer, by model runner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.step import EngineStep, Reserve, constant
from kvreport.accounting.engines.vllm import releases
from kvreport.accounting.engines.vllm.expert_kernels import MEGA_MOE
from kvreport.accounting.engines.vllm.profiling import (
    INDEX_LOGITS_BYTES,
    Shape,
    compiling_bytes,
    counted_bytes,
    dense_bytes_per_token,
    drafted_bytes_per_token,
    embedded_bytes_per_token,
    encodes,
    expanded_latent_bytes,
    expert_bytes_per_token,
    expert_workspace_bytes,
    forward_bytes_per_token,
    gathered_bytes_per_token,
    graph_layers,
    index_logit_bytes,
    index_workspace_bytes,
    kept_bytes,
    loaded_bytes_per_row,
    loaded_bytes_per_token,
    logit_bytes,
    looked_up_bytes,
    multiplies_plainly,
    own_expert_bytes,
    partial_bytes_per_row,
    received_bytes_per_token,
    scored_bytes_per_row,
    shared_units,
    stream_bytes_per_token,
)
from kvreport.accounting.engines.vllm.towers import clip_tokens, encoding, listening, whole_encoding
from kvreport.accounting.extras import drafts
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.accounting.parallel import Layout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import Release, release_of, trait
from kvreport.catalog.remembered import remembered

ROCM_GRAPH_BYTES: Final = 1_390_000
"""Bytes of a captured graph per layer on AMD's devices under the second model runner, as five starts of Gemma 4 on an MI300X
print them: 1.36 to 1.42 MB (vale-005, -007 to -009). NVIDIA's take 0.19. Not fitted."""

HOPPER_GRAPH_BYTES: Final = 105_000
"""Bytes of a captured graph per layer on Hopper under the first model runner, beside partial results of attention: the median of
four starts of 0.26.0 (own-002 to own-005), which two others fit (obs-101, seen-010). No source says why samples are smaller
there than the 0.2 to 0.3 MB that other devices print. Not fitted."""

BANDS: Final = ("plain", "encoder", "experts", "drafted", "stages")
"""Kinds of starts with an error band each: text models on equal devices, those that measure an encoder of images or sound, experts
on several ranks, those with layers or a model that drafts, and pipeline stages. The browser has them in this order."""

UNQUANTIZED: Final = ("bf16", "fp16", "fp32")


class OnDevice(NamedTuple):
    """What of a device decides a reserve: equal ones have equal reserves."""

    vendor: str = "NVIDIA"  # Who makes it, in capitals.
    device_class: str = "server"  # Which of the engine's error bands applies (:func:`device_class`).
    # True if its kernels for experts bring their own buffers (:func:`own_expert_kernels`).
    own_expert_kernels: bool = False
    splits: bool = False  # True for a large workspace (:func:`large_workspace`).
    partial: bool = False  # True if its attention keeps partial results (:func:`keeps_partial_results`).
    multicast: bool = True  # False if its links have no multicast (:func:`multicasts`).

    @classmethod
    @remembered
    def of(cls, accelerator: Accelerator) -> OnDevice:
        """Read it off an accelerator."""
        return cls(
            accelerator.vendor.upper(),
            device_class(accelerator),
            own_expert_kernels(accelerator),
            large_workspace(accelerator),
            keeps_partial_results(accelerator),
            multicasts(accelerator),
        )


class Told(NamedTuple):
    """What decides rates beside the model and the release: ranks, inputs, and what of the device changes kernels.

    ``sorts`` is True if the engine said that sampling falls back to PyTorch's own, False if FlashInfer's sampler is stated,
    None where neither is. PyTorch's own sorts all logits up to 0.16: since 0.17 a Triton kernel runs there
    (``v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p``). The second model runner measures itself without sorting
    (``v1/worker/gpu/model_runner.py::_dummy_sampler_run``). ``gathering``: data ranks whose tokens the experts of each take.
    The others are those of :class:`~kvreport.accounting.engines.step.EngineStep`, its layout and :class:`OnDevice`.
    """

    tensor_parallel: int = 1
    expert_parallel: bool = False
    images: bool = True
    videos: bool = True
    own_expert_kernels: bool = False
    sorts: bool | None = None
    vendor: str = "NVIDIA"
    receives: bool = False
    whole_encoders: bool = False
    decode_context: int = 1
    gathering: int = 1

    @classmethod
    def of(cls, engine: Engine, device: OnDevice, step: EngineStep) -> Told:
        """What a start tells."""
        layout = step.layout
        return cls(
            layout.tensor,
            layout.expert,
            step.images,
            step.videos,
            brings_buffers(engine, device),
            step.sorts,
            device.vendor,
            step.receives,
            layout.whole_encoders,
            layout.decode_context,
            gathering_ranks(layout, engine.expert_kernel),
        )


PLAIN: Final = Told()


def read_rates(model: Model, engine: Engine, told: Told = PLAIN) -> kernel.ReserveRates:
    """Read the rates off a model and an engine's release.

    Raises:
        InputError: If the engine's data lacks a coefficient.
    """
    tensor_parallel, expert_parallel, images, videos, own_expert_kernels, sorts, vendor, *_ = told
    receives, whole_encoders, decode_context = told.receives, told.whole_encoders, told.decode_context
    sizes = Shape.of(model)
    release = release_of(engine)
    second = runs_second(model, sizes, engine, vendor=vendor)
    flashinfer = False if vendor != "NVIDIA" else None if sorts is None else not sorts
    sampler = releases.sampler(release, second=second, flashinfer=flashinfer)
    is_open = sorts is None and vendor == "NVIDIA" and releases.sampler_is_open(release, second=second)
    other = releases.sampler(release, second=second, flashinfer=sampler == "sort") if is_open else sampler
    graphs = engine.graphs_reserved and (not second or release.has("second_runner_estimates_graphs"))
    graphs = graphs and (vendor != "INTEL" or release.has("captures_on_intel"))
    in_pass = (
        model.weight_format.startswith("int4") and vendor == "NVIDIA" and release.has("int4_experts_in_pass")
    )
    kept = engine.expert_workspace_kept and not in_pass
    workspace = kept and not own_expert_kernels
    streams = (
        sizes.streams * sizes.hidden * SERVED_BYTES
        if (engine.streams_buffer_kept or drafts(model)) and sizes.streams > 1
        else 0
    )
    alone = engine.lists("passed_alone", model.architecture)
    received = received_bytes_per_token(sizes, alone=alone) if receives else 0
    drafted = drafted_bytes_per_token(sizes, release, second=second) if drafts(model) else 0
    tower = sizes.tower if images and releases.encoder_profiled(release, second=second) else None
    encode = whole_encoding if whole_encoders else encoding
    floats = engine.lists("towers_rotate_floats", model.architecture)
    passed = encode(
        None if sizes.encoder_tokens else tower, sizes.hidden, release, tensor_parallel, floats=floats
    )
    if images and not sizes.encoder_tokens and releases.encoder_profiled(release, second=second):
        heard = listening(model, clip_tokens(model, engine))
        passed = heard if heard.kept else passed
    asked = images and encodes(model)
    embedded = embedded_bytes_per_token(sizes, release, second=second, images=asked)
    on_device = not engine.lists("tables_on_host", model.architecture)
    heads = engine.lists("latents_expanded", model.architecture)
    copied = compiling_bytes(model, release, tensor_parallel, images=images, hashed=on_device)
    # A copy of a table of n-grams is not the smallest block that is free, of which a workspace is cut out.
    cut = compiling_bytes(model, release, tensor_parallel, images=images)
    left = release.has("keeps_freed_copy") and vendor == "NVIDIA" and (second or not sizes.experts_per_token)
    partial, narrow = (
        partial_bytes_per_row(model, release, tensor_parallel, second=second, decode_context=decode_context)
        if graphs and not heads and not engine.lists("attends_both_ways", model.architecture)
        else (0.0, 0.0)
    )
    by_request = engine.lists("index_logits_of_requests", model.architecture)
    scored = (
        scored_bytes_per_row(model, sizes, release, second=second, listed=by_request)
        if graphs and vendor != "AMD"
        else (0.0, 0.0)
    )
    indexed, less_indexed = index_workspace_bytes(sizes, release, listed=by_request)
    split = 1 if expert_parallel else tensor_parallel
    ranks = ranks_in_band(engine, tensor_parallel, told.gathering)
    gathering = told.gathering if sizes.experts_per_token else 1
    gathered = (gathering - 1) * gathered_bytes_per_token(sizes)
    chunk = 0.0 if in_pass else own_tokens_in_chunk(release, gathering if sizes.experts_per_token else 0)
    at_once = 1 if kept else gathering
    forward = forward_bytes_per_token(
        sizes,
        tensor_parallel,
        whole_experts=expert_parallel,
        inner_kept=kept,
        at_once=at_once,
        gathered=0 if kept else gathered,
    )
    return kernel.ReserveRates(
        forward_per_token=forward,
        stream_per_token=stream_bytes_per_token(sizes),
        expanded=expanded_latent_bytes(sizes, tensor_parallel)
        if release.has("expands_latents") and not heads
        else 0,
        workspace_per_token=expert_workspace_bytes(sizes, split) * gathering + gathered if workspace else 0,
        kept_per_token=kept_bytes(sizes),
        streams_per_token=streams
        + received
        + embedded
        + drafted
        + loaded_bytes_per_token(model, sizes, engine),
        sampling_per_row=logit_bytes(sampler, tensor_parallel) * sizes.vocabulary,
        buffer_per_row=4 * sizes.vocabulary
        if sampler == "probabilities" and release.has("rows_buffered")
        else 0,
        encoding=passed.image,
        encoding_per_token=passed.per_token,
        index_per_token=indexed,
        index_less_per_token=less_indexed,
        index_logits=INDEX_LOGITS_BYTES if sizes.gathers_keys else 0,
        index_logits_per_row=index_logit_bytes(sizes, release) if by_request else 0,
        non_framework=constant(engine, "non_framework_bytes"),
        linked=constant(engine, "non_framework_rank_bytes") * (max(tensor_parallel, gathering) > 1)
        if release.has("measures_links")
        else 0.0,
        per_graph=bytes_of_graph_layer(engine, second=second, vendor=vendor) * graph_layers(sizes)
        if graphs
        else 0.0,
        images=passed.images
        if videos and not engine.lists("videos_within_a_budget", model.architecture)
        else 1,
        encoded=passed.kept,
        encoded_per_token=passed.kept_per_token,
        compiling=copied,
        left_copy=cut if left else 0,
        plain_layers=int(multiplies_plainly(model)),
        counted_per_row=counted_bytes(sizes, release, second=second) + loaded_bytes_per_row(model, engine),
        largest_capture=release.count("largest_capture_blackwell"),
        shared=shared_units(model, images=images),
        partial_per_row=partial,
        compiling_per_token=looked_up_bytes(sizes, release, tensor_parallel) if copied else 0,
        per_graph_partial=bytes_of_graph_layer(
            engine, second=second, vendor=vendor, hopper=less_on_hopper(sizes, second=second)
        )
        * graph_layers(sizes)
        if graphs
        else 0.0,
        narrow_per_row=narrow,
        scored_per_row=scored[0],
        scored_own_per_row=scored[1],
        gathered_own_per_token=gathered + (gathering - 1) * own_expert_bytes(sizes, split) if kept else 0.0,
        other_sampling_per_row=logit_bytes(other, tensor_parallel) * sizes.vocabulary,
        dense_per_token=dense_bytes_per_token(sizes, tensor_parallel) if chunk else 0.0,
        expert_chunk=chunk,
        chunked_per_token=expert_bytes_per_token(sizes, split, inner_kept=kept) * at_once
        if chunk and at_once == gathering
        else 0.0,
        chunked_workspace=expert_workspace_bytes(sizes, split) * gathering if chunk and workspace else 0.0,
        chunk_output=SERVED_BYTES * sizes.hidden * gathering if chunk and workspace else 0.0,
        kind=BANDS.index(band_kind(model, ranks=ranks, images=images)),
    )


def reserve(model: Model, engine: Engine, device: OnDevice, step: EngineStep) -> Reserve:
    """Estimate an engine's reserve for one model on one device; arrays where the longest request is one.

    Raises:
        InputError: If the engine's data lacks a coefficient.
    """
    rates = rates_of(model, engine, *Told.of(engine, device, step))
    asked: Any = model.context_tokens if step.context_tokens is None else step.context_tokens
    measured = kernel_step(device, step, asked)._replace(own_kernels=brings_buffers(engine, device))
    captured = measured._replace(own_kernels=device.own_expert_kernels)
    activations = _of_lengths(kernel.activation_bytes, asked)(rates, measured)
    outside = kernel.outside_bytes(rates, *outside_framework(engine, device))
    graphs: Any = 0
    if not step.eager:
        graphs = kernel.graph_bytes(rates, captured._replace(context=0))
        graphs = graphs + _of_lengths(kernel.scored_bytes, asked)(rates, captured)
    if step.narrow_cache:
        graphs -= kernel.narrow_cache_bytes(rates, captured)
    total = activations + outside + graphs
    half = kernel.error_band(
        *band(engine, device.device_class, "stages" if step.layout.pipeline > 1 else BANDS[rates.kind]), total
    )
    return Reserve(
        activations=activations,
        non_framework=outside,
        graphs=graphs,
        # No flag tells whether a start compiles, nor which sampler is installed: the band spans both.
        uncertainty=xp.integers(xp.rint(half)) + _of_lengths(kernel.open_bytes, asked)(rates, measured),
    )


def kernel_step(device: OnDevice, step: EngineStep, context_tokens: Any) -> kernel.ReserveStep:  # noqa: ANN401
    """A step as the formulas take it; ``context_tokens``: the longest request, or an array of them."""
    return kernel.ReserveStep(
        tokens=step.max_batched_tokens,
        max_num_seqs=step.max_seqs,
        context=context_tokens,
        own_kernels=device.own_expert_kernels,
        splits=device.splits,
        partial=device.partial,
        eager=step.eager,
        compiled=step.eager or step.compiled,
        adapted=bool(step.adapted and trait("vllm", "adapted_graphs_apart")),
    )


def _of_lengths(formula: Callable[..., int], context_tokens: Any) -> Callable[..., Any]:  # noqa: ANN401
    """A formula of a step, for one longest request or an array of them."""
    return formula if xp.is_plain(context_tokens) else xp.on_arrays(formula)


@remembered
def rates_of(model: Model, engine: Engine, *told: Any) -> kernel.ReserveRates:  # noqa: ANN401 - the fields of Told
    """The rates of a model, which devices of many classes share."""
    return read_rates(model, engine, Told(*told))


def outside_framework(engine: Engine, device: OnDevice) -> tuple[bool, int, bool]:
    """What of a device changes memory outside the framework.

    Whether its links multicast: NVLink with multicast keeps buffers. Bytes that it adds on memory shared with a CPU, where the
    process's own share counts, too. Whether handles of linear algebra are taken off (:func:`charges_handles`).
    """
    taken = round(constant(engine, "unified_bytes")) if device.device_class == "unified" else 0
    return device.multicast, taken, charges_handles(engine, device.vendor)


def graph_constant(*, second: bool) -> str:
    """The name of the constant of a captured graph, by model runner.

    Each takes the largest graphs for a sample and works out the others from it, in its own way (0.19.1 to 0.28.0
    ``v1/worker/gpu_model_runner.py::profile_cudagraph_memory``, 0.29.0 ``v1/worker/gpu/cudagraph_utils.py``, where pieces are
    measured as a whole).
    """
    return "graph_bytes_per_layer_second" if second else "graph_bytes_per_layer"


def bytes_of_graph_layer(
    engine: Engine, *, second: bool, vendor: str = "NVIDIA", hopper: bool = False
) -> float:
    """Bytes of a captured graph per layer: as fitted, or as logs of AMD's devices and of Hopper print them.

    No log shows those of Intel's.

    Args:
        engine: The engine's record, of one release.
        second: True for the second model runner.
        vendor: Who makes the devices, in capitals.
        hopper: True on Hopper, for a model whose graphs take less there (:func:`less_on_hopper`).
    """
    if second and vendor == "AMD":
        return float(ROCM_GRAPH_BYTES)
    if hopper:
        return float(HOPPER_GRAPH_BYTES)
    return constant(engine, graph_constant(second=second))


def less_on_hopper(sizes: Shape, *, second: bool) -> bool:
    """Whether graphs of a model take less on Hopper than elsewhere: by the first runner's estimate, with one residual stream.

    No log on Hopper prints an estimate for a model with several; the one known pool takes what others do (obs-105).
    """
    return not second and sizes.streams == 1


def runs_second(model: Model, sizes: Shape, engine: Engine, *, vendor: str = "NVIDIA") -> bool:
    """Whether the second model runner serves a model by default.

    Args:
        model: The model.
        sizes: The model's widths.
        engine: The engine's record, of one release.
        vendor: Who makes the devices, in capitals.
    """
    return releases.second_runner(
        engine,
        model.architecture,
        experts=bool(sizes.experts_per_token),
        states=sizes.states,
        attention=sizes.attention,
        quantized=model.weight_format not in UNQUANTIZED,
        vendor=vendor,
    )


def band_kind(model: Model, *, ranks: int, images: bool) -> str:
    """The kind of start whose logs an error band rests on; pipeline stages have their own.

    ``ranks``: those that share experts (:func:`ranks_in_band`).
    ``images``: False if the engine was told to serve text only.
    """
    if drafts(model):
        return "drafted"
    if images and encodes(model):
        return "encoder"
    if ranks > 1 and Shape.of(model).experts_per_token:
        return "experts"
    return "plain"


def ranks_in_band(engine: Engine, tensor_parallel: int, data_parallel: int) -> int:
    """Ranks that share experts, as :func:`band_kind` takes them: those that split layers, and up to 0.17 data ranks, too."""
    return (
        tensor_parallel if release_of(engine).has("gathers_tokens") else max(tensor_parallel, data_parallel)
    )


def band(engine: Engine, device_class: str, kind: str) -> tuple[float, float]:
    """The band's share of the reserve and the bytes beside it, that four in five logs at first sight lie in.

    A class of devices with a band of its own has it for every kind: it is calibrated on starts of all kinds there. Classes and kinds
    of fewer than ten sources have one wider than the others (``scripts/fit_reserve.py``). Pipeline stages are one kind: the last
    one alone samples, which is the peak of most models.
    ``kind``: of :data:`BANDS`.

    Raises:
        InputError: If the engine's data lacks a coefficient.
    """
    name = device_class if f"uncertainty_share_{device_class}" in engine.coefficients else kind
    return constant(engine, f"uncertainty_share_{name}"), constant(engine, f"uncertainty_bytes_{name}")


def device_class(accelerator: Accelerator) -> str:
    """The class of devices whose logs an error band rests on."""
    if accelerator.vendor.upper() != "NVIDIA":
        return "other"
    return "unified" if accelerator.is_unified else accelerator.error_band or "server"


def multicasts(accelerator: Accelerator) -> bool:
    """True for devices whose links multicast: NCCL keeps buffers for NVLink SHARP there, for every rank.

    Hopper and Blackwell data-centre GPUs (NCCL user guide, ``NCCL_NVLS_ENABLE``).
    """
    return (accelerator.compute_capability or "").split(".")[0] in ("9", "10")


def charges_handles(engine: Engine, vendor: str) -> bool:
    """True where the handles of linear algebra, all that the constant stands for, are made after the first look at memory."""
    return vendor == "INTEL" or not release_of(engine).has("makes_handles_first")


def large_workspace(accelerator: Accelerator) -> bool:
    """True for Hopper and Blackwell GPUs, whose workspace for products of matrices is a large one (:func:`kernel.leaves_copy`)."""
    nvidia = accelerator.vendor.upper() == "NVIDIA"
    return nvidia and (accelerator.compute_capability or "").split(".")[0] in ("9", "10", "11", "12")


def keeps_partial_results(accelerator: Accelerator) -> bool:
    """True for Hopper GPUs, whose attention is FlashAttention 3 (0.29.0 ``v1/attention/backends/fa_utils.py``).

    A graph must do for every length, so that keys are divided into as many parts as there may be
    (0.20.0 to 0.33.0 ``v1/attention/backends/flash_attn.py``, ``max_num_splits``).
    """
    nvidia = accelerator.vendor.upper() == "NVIDIA"
    return nvidia and (accelerator.compute_capability or "").split(".")[0] == "9"


def own_expert_kernels(accelerator: Accelerator) -> bool:
    """True for Blackwell data-centre GPUs: their kernels for experts come with buffers of their own.

    vLLM 0.33 takes FlashInfer's TensorRT-LLM kernels there (``fused_moe/oracle``); elsewhere Triton's
    and Marlin's, which compute in buffers that the engine allocates.
    """
    return (accelerator.compute_capability or "").split(".")[0] == "10"


def brings_buffers(engine: Engine, device: OnDevice) -> bool:
    """True where experts compute in buffers of their kernels' own: on data-center Blackwell GPUs, unless a kernel is named that does not.

    Triton's and Marlin's compute in the engine's buffers on every device (``fused_moe/modular_kernel.py::_allocate_buffers``, read in
    0.15.1 and 0.19.0). One B300 with Triton's kernels under 0.19.0 kept 3.3 GiB more than FlashInfer's would (heron-008).
    """
    return device.own_expert_kernels and engine.expert_kernel not in ("triton", "marlin")


def gathering_ranks(layout: Layout, expert_kernel: str | None = None) -> int:
    """Data ranks whose tokens each rank's experts take: all of them, unless kernels send every token to its experts alone.

    ``distributed/device_communicators/all2all.py::AgRsAll2AllManager`` gathers them, which is the default (0.19.1 to 0.33.0
    ``config/parallel.py``, ``all2all_backend``), and whatever the backend without expert parallelism
    (``fused_moe/all2all_utils.py::maybe_make_prepare_finalize``). All ranks measure themselves at once, each with a whole step
    (``v1/worker/gpu_model_runner.py::_dummy_run``). Mega-MoE kernels exchange tokens by themselves (obs-171).
    """
    sends = layout.expert and layout.all_to_all not in ("", "allgather_reducescatter")
    sends = sends or expert_kernel == MEGA_MOE
    return 1 if sends else layout.data


def own_tokens_in_chunk(release: Release, gathering: int) -> float:
    """Tokens of a rank's own from which its experts compute in chunks; 0 where they compute all tokens at once.

    Up to 0.17 (``fused_moe/modular_kernel.py::_chunk_info``, before 0.13 ``fused_moe/fused_moe.py::fused_experts_impl``), whatever the
    kernel, but for those of INT4 experts. A chunk is of the tokens of all ranks that are gathered: the measuring run of 0.10.1
    multicasts them, too (``distributed/device_communicators/all2all.py::NaiveAll2AllManager``, from 0.8.5 on). Where a step has
    several chunks, the output of all of them lies beside the buffers of one (``_allocate_buffers``).

    Args:
        release: The vLLM release.
        gathering: Data ranks whose tokens each rank's experts take; 0 without experts.
    """
    if not gathering or release.has("gathers_tokens"):
        return 0.0
    return release.count("expert_chunk") / gathering
