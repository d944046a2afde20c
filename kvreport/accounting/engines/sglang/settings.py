"""What SGLang makes of its flags on a device: chunk, captured batch, page size and share of memory.

Follows the argument resolution of SGLang 0.5.23 (``srt/arg_groups/memory_hook.py``,
``cuda_graph_hook.py``, ``overrides.py``, ``attention_hook.py`` and ``model_overrides/``). Sizes are
MiB, as the engine computes them. Which classes of models a rule is for stands in the engine's data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting.engines.sglang import shapes
from kvreport.accounting.engines.sglang.compressed import is_compressed
from kvreport.accounting.extras import draft_rows
from kvreport.accounting.parallel import Layout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import RecurrentState
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of
from kvreport.catalog.remembered import remembered
from kvreport.units import MIB

MIB_PER_PREFILL_GRAPH: Final = 8
MIB_LATENT_GRAPHS: Final = 1536
MIB_DECODE_EXCHANGE: Final = 2048
MIB_PREFILL_EXCHANGE: Final = 1024
MIB_DRAFT_HEAD: Final = 4096
MIB_DRAFT_MODEL: Final = 6144
SMALL_PREFILL: Final = 512
LLAMA_2_PREFILL: Final = 4096

VISION_SHARE: Final = 0.95
VISION_LAYERS: Final = 24
VISION_WIDTH: Final = 1024
"""The vision tower that the share is not lowered further for (ViT-L/14)."""

LONG_CONTEXT_TOKENS: Final = 8192
LONG_CONTEXT_SHARE: Final = 0.85
"""On AMD GPUs AITER's attention lowers the share for contexts above this."""

COMPRESSED_REQUESTS: Final = 256
"""``--max-running-requests`` that the engine sets for DeepSeek-V4 (``deepseek_v4_hook.py``)."""

HOPPER: Final = 9
BLACKWELL: Final = 10
CONSUMER_BLACKWELL: Final = 12
"""Major compute capabilities that kernels are chosen by."""

WIDE_PAGE_BACKENDS: Final = ("fa3", "trtllm_mha")
"""Backends whose sparse attention wants pages of 128 (``model_overrides/minimax_m3.py``)."""

PAGED_BACKENDS: Final = ("dsa", "fa4", "trtllm_mla", "cutedsl_mla", "flashmla", "trtllm_mha")
"""Backends that decide the page of every model (:func:`page_size`)."""

STATES_HELD: Final = 3
"""State slots per running request with the prefix cache, before slots for tracking."""

EMBEDDING_CACHE_MIB: Final = 100
"""Taken off the pools for image embeddings, which are allocated later (``mm_runtime_reservation_gb``)."""

FEATURES_MIB: Final = 1024
MANY_FEATURES_MIB: Final = 3072
MANY_SENDERS: Final = 400
"""Where images reach the model through memory of the device (``SGLANG_MM_FEATURE_CACHE_MB``), and from so many
requests at once on for two classes on Hopper GPUs (0.5.20 to 0.5.23 ``model_overrides/qwen3_vl.py``)."""

MOST_EXPANDED: Final = 512
"""Requests at once up to which decode graphs of those two classes are captured for all (the same)."""


@dataclass(frozen=True, slots=True)
class SglangFlags:
    """What SGLang is told of its memory, as far as it follows it; None where it works the value out."""

    tensor_parallel: int = 1  # ``--tp-size``: all ranks, those of data-parallel attention included.
    pipeline_parallel: int = 1  # ``--pp-size``.
    data_attention: int = 1  # ``--dp-size`` with ``--enable-dp-attention``; 1 without.
    # ``--dcp-size``: with it, prefill is not captured as graphs (``cuda_graph_hook.py``), as on no GPU but
    # NVIDIA's (``default_prefill_backend``).
    context_ranks: int = 1
    chunk_tokens: int | None = None  # ``--chunked-prefill-size``.
    max_requests: int | None = None  # ``--max-running-requests``.
    share: float | None = None  # ``--mem-fraction-static``.
    page_tokens: int | None = None  # ``--page-size``.
    graphs: bool = True  # False with ``--disable-cuda-graph``.
    images: bool = True  # False with ``--language-only``.
    prefix_cache: bool = True  # False with ``--disable-radix-cache``.
    overlap: bool = True  # False with ``--disable-overlap-schedule``.
    context_tokens: int | None = None  # ``--context-length``.
    deepep: bool = False  # True with ``--moe-a2a-backend deepep``.
    drafts: bool = False  # True with ``--speculative-algorithm``, but for n-grams.


UNTOLD: Final = SglangFlags()


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What of the settings decides the memory that is kept free."""

    # ``mem_fraction_static``: weights and pools together, as a share of the memory that was free before
    # loading.
    share: float
    chunk_tokens: int  # Tokens of one prefill chunk of all data ranks.
    captured_requests: int  # Largest decode batch captured as a graph.
    attention: str  # Attention backend, by the engine's name.
    graphs_mib: float  # What of the memory kept free is for captured graphs.


@dataclass(frozen=True, slots=True)
class Settings(MemorySettings):
    """What SGLang resolved before it loads a model; ``chunk_tokens`` is of one data rank, -1 where prefill is not chunked."""

    page_tokens: int  # ``page_size``.
    states_per_request: int  # State slots that one running request may hold.
    max_requests: int | None  # ``max_running_requests`` where the engine sets it by itself or was told.


def settings(model: Model, engine: Engine, accelerator: Accelerator, flags: SglangFlags = UNTOLD) -> Settings:
    """Resolve the flags as SGLang does."""
    kept = memory(model, engine, accelerator, flags)
    told, staged = flags.max_requests, flags.pipeline_parallel > 1
    return Settings(
        share=kept.share,
        chunk_tokens=chunk_of(model, engine, kept.chunk_tokens, flags.data_attention),
        captured_requests=kept.captured_requests,
        attention=kept.attention,
        graphs_mib=kept.graphs_mib,
        page_tokens=page_size(model, engine, kept.attention, flags.page_tokens),
        states_per_request=states_per_request(
            model, engine, prefix_cache=flags.prefix_cache, overlap=flags.overlap, staged=staged
        ),
        max_requests=COMPRESSED_REQUESTS if told is None and is_compressed(model) else told,
    )


def memory(model: Model, engine: Engine, accelerator: Accelerator, flags: SglangFlags) -> MemorySettings:
    """Resolve what decides the memory that is kept free."""
    device, default_chunk, few, wide, follows, captures = captured_sizes(engine, accelerator)
    chunk = flags.chunk_tokens or default_chunk
    captured = wide if flags.tensor_parallel >= kernel.WIDE_RANKS else few
    expands = most_expanded(model, engine, accelerator)
    captured = kernel.captured_requests(captured, flags.max_requests or 0, follows, expands)
    backend = attention_backend(model, engine, accelerator, flags.prefix_cache)
    graphs = kernel.decode_graph_mib(captured, flags.data_attention) if flags.graphs else 0.0
    graphs += prefill_mib(model, engine, flags, chunk, prefill=captures and flags.context_ranks == 1)
    share = flags.share
    if share is None:
        ranks = flags.tensor_parallel * flags.pipeline_parallel
        reserved = kernel.reserved_mib(device, chunk, ranks, graphs)
        if flags.deepep and flags.graphs and exchange_kept(engine):
            reserved += MIB_DECODE_EXCHANGE
        if flags.drafts and not release_of(engine).has("weighs_drafts"):
            standing_alone = any(row.component == "embedding" for row in draft_rows(model))
            reserved += MIB_DRAFT_MODEL if standing_alone else MIB_DRAFT_HEAD
        share = kernel.static_share(device, reserved)
        if flags.images:
            share *= image_factor(model, engine)
    return MemorySettings(
        share=share * backend_share(backend, flags.context_tokens or model.context_tokens),
        chunk_tokens=chunk,
        captured_requests=captured,
        attention=backend,
        graphs_mib=graphs,
    )


def captured_sizes(engine: Engine, accelerator: Accelerator) -> tuple[float, int, int, int, bool, bool]:
    """What decides the static fraction on a device.

    MiB of the device, tokens of one prefill chunk, requests of the largest decode graph on few tensor ranks and on many,
    whether no more are captured than run, and whether prefill can be captured.
    """
    device = device_mib(accelerator)
    defaults = engine.device_class(accelerator.name, round(device * MIB))
    wide = defaults.max_seqs if defaults.max_seqs_wide is None else defaults.max_seqs_wide
    follows = release_of(engine).has("captures_what_runs")
    nvidia = accelerator.vendor.upper() == "NVIDIA"
    return device, defaults.max_batched_tokens, defaults.max_seqs, wide, follows, nvidia


def prefill_graphs(model: Model, engine: Engine, chunk_tokens: int, layout: Layout) -> float:
    """MiB that a server which is told nothing but its layout keeps for graphs of prefill, where a device captures them."""
    flags = SglangFlags(pipeline_parallel=layout.pipeline, data_attention=layout.data)
    return prefill_mib(model, engine, flags, chunk_tokens, prefill=layout.decode_context == 1)


def most_expanded(model: Model, engine: Engine, accelerator: Accelerator) -> int:
    """Requests at once up to which decode graphs are captured for all that are told; 0 for most classes."""
    return MOST_EXPANDED if sends_on_device(model, engine, accelerator) else 0


def sends_on_device(model: Model, engine: Engine, accelerator: Accelerator) -> bool:
    """True for a class that a release serves in a way of its own on large Hopper GPUs (``large_hopper_qwen3_vl_model_type``)."""
    return (
        engine.lists("hopper_vision", model.architecture)
        and capability(accelerator) == HOPPER
        and device_mib(accelerator) >= kernel.LARGE_DEVICE_MIB
        and shapes.takes_images(model, engine)
    )


def images_mib(
    model: Model,
    engine: Engine,
    accelerator: Accelerator,
    *,
    nodes: int = 1,
    max_requests: int | None = None,
    through: str = "",
) -> int:
    """MiB that images take of the device beside weights and pools; 0 for a model without.

    ``nodes``: servers of one replica: across them images are sent through the hosts. ``max_requests``:
    ``--max-running-requests``, or None. ``through``: ``--mm-feature-transport``; "" for the engine's
    choice.
    """
    if not shapes.takes_images(model, engine):
        return 0
    own = sends_on_device(model, engine, accelerator)
    everywhere = release_of(engine).has("features_on_device") and accelerator.vendor.upper() == "NVIDIA"
    on_device = through.startswith("cuda") or (not through and nodes == 1 and (own or everywhere))
    kept = 0 if own or not engine.image_cache_reserved else EMBEDDING_CACHE_MIB
    if not on_device:
        return kept
    return kept + (MANY_FEATURES_MIB if own and (max_requests or 0) >= MANY_SENDERS else FEATURES_MIB)


def backend_share(backend: str, context_tokens: int) -> float:
    """What an attention backend lowers the share by, given or not (``attention_hook.py``)."""
    return LONG_CONTEXT_SHARE if backend == "aiter" and context_tokens > LONG_CONTEXT_TOKENS else 1.0


def chunk_of(model: Model, engine: Engine, chunk_tokens: int, data_attention: int = 1) -> int:
    """``chunked_prefill_size`` of one data rank; -1 for a class whose prefill is never chunked.

    ``chunk_tokens``: tokens of one prefill chunk, where given. ``data_attention``: ranks of data-parallel
    attention.
    """
    return -1 if engine.lists("unchunked", model.architecture) else chunk_tokens // data_attention


def ranks_mib(layout: Layout) -> float:
    """MiB kept for as many ranks."""
    return layout.tensor * layout.data * layout.pipeline / 8 * 1024


def device_mib(accelerator: Accelerator) -> float:
    """Memory of the device as its driver prints it, in MiB (``nvidia-smi``'s ``memory.total``)."""
    visible = accelerator.memory.driver_visible
    return (visible.value if visible is not None else accelerator.usable_bytes) / MIB


def prefill_mib(
    model: Model, engine: Engine, flags: SglangFlags, chunk_tokens: int, *, prefill: bool
) -> float:
    """MiB kept for graphs of prefill (``reserve_for_graph_mb``).

    ``chunk_tokens``: tokens of one prefill chunk. ``prefill``: True where prefill can be captured, too.
    """
    whole = captured_whole(model, engine)
    staged = flags.pipeline_parallel > 1 and not staged_captured(model, engine)
    prefill = prefill and (whole or (flags.graphs and not staged))
    spread = flags.data_attention > 1 or flags.deepep
    if not (prefill and prefill_captured(model, engine)) or (spread and captured_alone(model, engine)):
        return 0.0
    deepep = flags.deepep and not whole
    kept = MIB_PREFILL_EXCHANGE if deepep and exchange_kept(engine) else 0
    if shapes.latent_of(model) is not None:
        return kept + MIB_LATENT_GRAPHS
    sizes = prefill_sizes(largest_prefill(model, engine, kernel.LEAST_CHUNK if deepep else chunk_tokens))
    if deepep:
        sizes = exchanged_sizes(sizes)
    return kept + len(sizes) * MIB_PER_PREFILL_GRAPH


def exchange_kept(engine: Engine) -> bool:
    """True if the release keeps memory for DeepEP's buffers."""
    return release_of(engine).has("exchange_kept")


def exchanged_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Token counts that prefill is captured at with DeepEP: by eights (``apply_deepep_adjustments``)."""
    return tuple(sorted({-(-size // 8) * 8 for size in sizes}))


def largest_prefill(model: Model, engine: Engine, chunk_tokens: int) -> int:
    """Tokens of the largest prefill that is captured: a chunk, and less for two families of models.

    Llama 2 is known by its name (``memory_hook.py``), Muse Glimmer by its class
    (``apply_muse_glimmer_prefill_cuda_graph_max_bs_default``).

    ``chunk_tokens``: tokens of one prefill chunk.
    """
    if engine.lists("small_prefill_graphs", model.architecture):
        return SMALL_PREFILL
    return min(chunk_tokens, LLAMA_2_PREFILL) if "llama-2" in model.id.lower() else chunk_tokens


@remembered
def prefill_captured(model: Model, engine: Engine) -> bool:
    """True if prefill is captured as graphs by default.

    Not up to 0.5.9, where it is a flag. Not for DeepSeek-V4's compressed caches, for Kimi Delta Attention, nor for models with images that
    are not on a list of the engine's (``disable_breakable_cudagraph_if_incompatible``).
    """
    delta = any(isinstance(cache, RecurrentState) and cache.mechanism == "kda" for cache in model.every_cache)
    if not engine.prefill_graphs_reserved or left_uncaptured(model, engine):
        return False
    if is_compressed(model) or (delta and not engine.lists("delta_prefill_graphs", model.architecture)):
        return False
    if shapes.takes_images(model, engine):
        listed = engine.lists("multimodal_prefill_graphs", model.architecture)
        return listed or captured_piecewise(model, engine)
    return True


def left_uncaptured(model: Model, engine: Engine) -> bool:
    """True if the release does not capture the prefill of such attention."""
    uncaptured = release_of(engine).word("prefill_uncaptured")
    if uncaptured == "none" or captured_piecewise(model, engine):
        return False
    sparse = uncaptured == "sparse latents"
    if shapes.latent_of(model) is not None:
        return not sparse or shapes.indexer_of(model) is None
    return sparse and engine.lists("prefill_uncaptured", model.architecture)


def staged_captured(model: Model, engine: Engine) -> bool:
    """True if prefill of pipeline stages is captured, and not piece by piece."""
    return release_of(engine).has("stages_captured") and not captured_piecewise(model, engine)


def captured_alone(model: Model, engine: Engine) -> bool:
    """True if DP attention and exchanges between expert ranks leave prefill uncaptured, in older releases or piece by piece."""
    early = not release_of(engine).has("spread_captured")
    return (early and not captured_whole(model, engine)) or captured_piecewise(model, engine)


def captured_whole(model: Model, engine: Engine) -> bool:
    """True if prefill is captured as whole graphs by default, which nothing turns off (``apply_inkling_prefill_cuda_graph_default``)."""
    return engine.lists("whole_prefill_graphs", model.architecture)


def captured_piecewise(model: Model, engine: Engine) -> bool:
    """True if prefill with images is captured piece by piece, which DP attention and DeepEP turn off."""
    return engine.lists("piecewise_prefill_graphs", model.architecture)


@lru_cache(maxsize=64)
def prefill_sizes(largest: int) -> tuple[int, ...]:
    """Token counts that prefill is captured at (``generate_prefill_cuda_graph_batch_sizes``)."""
    runs = (
        range(4, 33, 4),
        range(48, 257, 16),
        range(288, 513, 32),
        range(576, 1025, 64),
        range(1280, 4097, 256),
        range(4608, largest + 1, 512),
    )
    return tuple(size for run in runs for size in run if size <= largest)


@remembered
def image_factor(model: Model, engine: Engine) -> float:
    """What serving images lowers the share by; 1 for a model without."""
    return vision_factor(model, engine) if shapes.takes_images(model, engine) else 1.0


def vision_factor(model: Model, engine: Engine) -> float:
    """What a vision tower lowers the share by: 10% per tower of the usual size more than one.

    The engine reads the tower's layers and width under one name each. Where a model's config has others, it takes
    24 and 1,024 (``adjust_mem_fraction_for_vlm``).
    """
    rows = [row for row in model.weights if row.component == "vision"]
    if not rows:
        return 1.0
    if engine.lists("vision_unread", model.architecture):
        return VISION_SHARE
    layers = max(row.count for row in rows)
    norms = [
        row.shape[0] for row in rows if row.count == layers and len(row.shape) == 1 and "norm" in row.name
    ]
    width = max(norms, default=VISION_WIDTH)
    if engine.lists("vision_layers_unread", model.architecture) or layers == 1:
        layers = VISION_LAYERS
    size = layers * width**2 / (VISION_LAYERS * VISION_WIDTH**2)
    return VISION_SHARE * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0)))


@remembered
def attention_backend(
    model: Model,
    engine: Engine,
    accelerator: Accelerator | None,
    prefix_cache: bool = True,  # noqa: FBT001, FBT002 - remembered by position
) -> str:
    """The attention backend that is taken by default (``get_default_attn_backend`` and overrides).

    ``prefix_cache``: True if prefixes are cached.
    """
    if is_compressed(model):
        return "dsv4"
    if shapes.indexer_of(model) is not None and shapes.latent_of(model) is not None:
        return "dsa"
    major = capability(accelerator)
    amd = accelerator is not None and accelerator.vendor == "AMD"
    if shapes.latent_of(model) is not None:
        if major == HOPPER:
            return "fa3"
        if major == BLACKWELL:
            return "trtllm_mla" if engine.lists("latent_trtllm", model.architecture) else "flashinfer"
        return "aiter" if amd and model.attention_heads in (16, 128) else "triton"
    if major == BLACKWELL:
        if engine.lists("blackwell_triton", model.architecture) and prefix_cache:
            return "triton"
        if engine.lists("blackwell_flashinfer", model.architecture):
            return "flashinfer"
        unlike = shapes.unequal_heads(model) or engine.lists("blackwell_fa4", model.architecture)
        return "fa4" if unlike else "trtllm_mha"
    if engine.lists("triton_attention", model.architecture):
        return "triton"
    if major == HOPPER:
        return "fa3"
    if amd:
        return "aiter"
    return "triton" if engine.lists("sinks", model.architecture) else "flashinfer"


def page_size(model: Model, engine: Engine, backend: str, given: int | None = None) -> int:
    """Tokens of one page: as given, or as a kernel or a model needs.

    ``backend``: the attention backend. ``given``: tokens given by hand, or None.
    """
    index = shapes.indexer_of(model)
    if is_compressed(model):
        return 256
    if index is not None and index.stride > 1 and not index.scaled:
        return 64  # arg_groups/model_overrides/qwen4_exp.py, 0.5.20 to 0.5.23
    if backend == "dsa":
        return 64 * (index.stride if index else 1)
    if backend == "fa4" or (
        engine.lists("pages_of_128", model.architecture) and backend in WIDE_PAGE_BACKENDS
    ):
        return 128 if backend == "fa4" else given or 128
    if backend in ("trtllm_mla", "cutedsl_mla", "flashmla"):
        return given if given in (32, 64) else 64
    if engine.lists("blackwell_triton", model.architecture) and backend in ("triton", "trtllm_mha"):
        return (
            64 if backend == "trtllm_mha" else 1
        )  # a page that is given is overwritten (model_overrides/qwen3_5.py)
    if backend == "trtllm_mha":
        return given if given in (16, 32, 64, 128) else 64
    return given or 1


def paged_as(model: Model, engine: Engine, backend: str) -> str:
    """An attention backend, as far as :func:`page_size` asks for it; "" for those that take any page."""
    lists = ("pages_of_128", "blackwell_triton")
    asked = backend in PAGED_BACKENDS or any(engine.lists(name, model.architecture) for name in lists)
    return backend if asked else ""


def states_per_request(
    model: Model, engine: Engine, *, prefix_cache: bool, overlap: bool, staged: bool = False
) -> int:
    """State slots that one running request may hold (``_calculate_mamba_ratio``).

    Pipeline stages prepare no step ahead. That is decided after the slots for tracking are, so that one of the two
    stays (``_pipeline_parallel_overlap_disable``).

    ``prefix_cache``: True if prefixes are cached. ``overlap``: True if the scheduler prepares a step
    while the one before runs. ``staged``: True with pipeline stages.
    """
    if not prefix_cache:
        return 1
    tracked = engine.lists("state_tracking", model.architecture) and overlap
    return STATES_HELD + (2 - staged if tracked else 0)


def narrows_index(
    model: Model, engine: Engine, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> bool:
    """True if index keys without scales follow an FP8 cache on the device (``get_minimax_sparse_index_dtype``).

    Keys of pooled tokens do not (``mem_cache/qsa_kv_pool.py::resolve_qsa_indexer_dtype``, 0.5.22 and 0.5.23).
    """
    index = shapes.indexer_of(model)
    if index is None or index.scaled or index.stride > 1 or kv_format is None or kv_format.bits != 8:
        return False
    return narrow_beside_fp8(engine, accelerator)


def narrow_beside_fp8(engine: Engine, accelerator: Accelerator | None) -> bool:
    """True if the release stores index keys without scales in FP8 beside an FP8 cache on the device."""
    return str(capability(accelerator)) in release_of(engine).names("narrow_index_majors")


def capability(accelerator: Accelerator | None) -> int:
    """The major number of the compute capability; 9 (Hopper) where no device is named, 0 for other makers."""
    if accelerator is None:
        return HOPPER
    head = (accelerator.compute_capability or "").split(".")[0]
    return int(head) if head.isdigit() else 0
