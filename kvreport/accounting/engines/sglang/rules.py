"""SGLang behind the engine protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.engines.projections import missing_projections
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.sglang import command as serve
from kvreport.accounting.engines.sglang import overhead, settings, shapes
from kvreport.accounting.engines.sglang.compressed import is_compressed, row_layout
from kvreport.accounting.engines.sglang.flag_combinations import unequal_refusal
from kvreport.accounting.engines.sglang.plan import (
    default_kv_format,
    device_traits,
    plan,
    scaled_latents,
    step_sizes,
)
from kvreport.accounting.engines.sglang.pools import (
    MOST_REQUESTS,
    SCALE_BYTES,
    SCALE_EVERY,
    WIDE_ROPE_BYTES,
)
from kvreport.accounting.engines.step import EngineStep, Following, Loading, Reserve, StaticMemory, constant
from kvreport.accounting.engines.vllm import kernels
from kvreport.accounting.engines.vllm.reserve import device_class, multicasts
from kvreport.accounting.extras import borrowed_copies, draft_rows, drafts
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, HostMemory, Serving
from kvreport.accounting.state_types import Precisions
from kvreport.accounting.weights import on_host
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Component, Model
from kvreport.catalog.release import plain_release, release_of
from kvreport.units import GB, GIB, MIB

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

_FOUR_BITS: Final = re.compile(r"[a-z-]*4")
"""Names of weight formats whose first number is 4, as in ``int4-g32`` and ``bnb-4bit``; a group of 64 is none."""
BANDS: Final = ("plain", "drafted_or_four_bits", "plain_ranks", "drafted_or_four_bits_ranks", "unified")
"""Kinds of starts with an error band each, on one rank and on several (:func:`band_kind`)."""

PAIR: Final = 2
"""Ranks that NCCL sets up no multicast for."""


@dataclass(frozen=True, slots=True)
class Sglang(EngineRules):
    """The rules of one SGLang release."""

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """Scheduler defaults, the device's memory, what is taken of it before loading, and its maker and kernels."""
        kernels = (accelerator.vendor, accelerator.compute_capability)
        kept = (
            *self.scheduler(accelerator),
            accelerator.usable_bytes,
            device_class(accelerator),
            multicasts(accelerator),
            settings.device_mib(accelerator),
            kernels,
        )
        return kept, kernels

    def plan_class(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None, serving: Serving
    ) -> Hashable:
        """What pools ask of the device: pages of its attention backend, scales of latents, narrow formats.

        Requests at once where they are given; tokens of a chunk where they size a pool.
        """
        return device_traits(model, self.engine, kv_format, accelerator), step_sizes(serving)

    def default_kv_format(self, model: Model, accelerator: Accelerator | None) -> str | None:
        """What the checkpoint declares; sparse latents stay at 16 bits below Blackwell."""
        return default_kv_format(model, accelerator)

    def stored(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> tuple[KvFormat | None, Precisions]:
        """The layout that the device's kernels give a format: of sparse latents, as :func:`scaled_latents` tells.

        Convolutions have 16 bits whatever the checkpoint says; index keys without scales are as the cache beside them.
        """
        narrow = settings.narrows_index(model, self.engine, kv_format, accelerator)
        index: Precisions = (("index", "float8"),) if narrow else ()
        return self._stored_format(model, kv_format, accelerator), (("conv", "bfloat16"), *index)

    def _stored_format(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> KvFormat | None:
        latent = shapes.latent_of(model)
        sparse = latent is not None and shapes.indexer_of(model) is not None
        if kv_format is not None and latent is not None and is_compressed(model):
            return kv_format.model_copy(update=row_layout(latent))
        if kv_format is None or kv_format.bits != 8 or not sparse:
            return kernels.stored_format(model, self.engine, kv_format, accelerator)
        if not scaled_latents(model, self.engine, accelerator):
            return kv_format
        layout = {"scale_bytes": SCALE_BYTES, "scale_every": SCALE_EVERY, "wide_rope_bytes": WIDE_ROPE_BYTES}
        return kv_format.model_copy(update=layout)

    def plan(self, case: Case) -> BlockPlan:
        """One cell per token; windows and states in pools of their own. A stage's are of the kinds that the whole model has."""
        if case.stage_of is None:
            return plan(case.model, self.engine, case)
        return plan(case.stage_of[0], self.engine, case, case.model)

    def host_memory(self, case: Case, plan: BlockPlan, pool_bytes: int) -> HostMemory:
        """Tokens of the pool, by its bytes: each rank divides whole GB by the sizes of its device pools (0.5.23).

        ``mem_cache/hybrid_cache/hybrid_pool_assembler.py::_split_hicache_size``, ``mem_cache/pool_host/base.py``: ranks that
        hold the same latents keep a copy each.
        """

        def tokens(size: int, context: int) -> int:
            each = serve.host_gigabytes(size, case.layout) * GB
            kept = each * context // max(int(plan.request_bytes(context)), 1)
            if plan.pool is None or plan.pool.is_division or pool_bytes <= 0:
                return kept
            there = int(plan.pool.blocks(pool_bytes)) * plan.block_tokens * plan.context_parallel
            beside = plan.pool.requests_beside(pool_bytes, context)
            there = there if beside is None else min(there, int(beside) * context)
            return min(kept, there * each // pool_bytes)

        return HostMemory(case.layout.tensor * case.layout.pipeline, tokens)

    def refuses(self, model: Model, layout: Layout, devices: Sequence[Accelerator] = ()) -> str | None:
        """Ranks that divide layers must have about equal memory; only some classes ask for two of the options.

        The others divide over all ranks whatever is asked.
        """
        if devices and (reason := unequal_refusal(devices, self.engine, layout)):
            return reason
        if layout.whole_encoders:
            return EngineRules.refuses(self, model, layout)
        asked = (
            (layout.whole_dense, "whole_dense", "moe dense tp size", "dense MLPs"),
            (layout.head_by_data_rank, "head_by_data_rank", "enable dp lm head", "output head"),
        )
        for wanted, kind, option, part in asked:
            listed = self.engine.has_list(kind)  # not by older releases
            if wanted and listed and not self.engine.lists(kind, model.architecture):
                return (
                    f"{option}: found for {model.architecture}, whose {part} {self.engine.label} divides over all ranks "
                    "whatever is asked; allowed: leave it out"
                )
        return None

    def at_release(self, version: str) -> Engine:
        """The record as of exactly this release of its range."""
        number = plain_release(version)
        return self.engine.model_copy(update={"version": number}) if number else self.engine

    def component_ranks(self, model: Model, layout: Layout) -> Mapping[Component, int]:
        """Data-parallel attention divides the rest over all ranks, not over those of one data rank.

        The output head without ``--enable-dp-lm-head``, dense MLPs, which ``--moe-dense-tp-size 1`` leaves whole, and
        shared experts, which are whole where all-to-all kernels exchange tokens (``models/deepseek_v2.py``, 0.5.13 and
        0.5.23).
        """
        dense: dict[Component, int] = {"dense_mlp": 1} if layout.whole_dense else {}
        if layout.data == 1:
            return dense
        ranks = layout.tensor * layout.data
        head: dict[Component, int] = {} if layout.head_by_data_rank else {"output_head": ranks}
        shared = 1 if layout.all_to_all else ranks
        return {"dense_mlp": ranks, "shared_experts": shared, **head, **dense}

    def overhead_class(self, model: Model, accelerator: Accelerator) -> Hashable:
        """AMD's tables, and kernels for which tensors are widened or repacked."""
        return overhead.device_traits(model, self.engine, accelerator)

    def load_overhead(self, loading: Loading) -> dict[str, int]:
        """Position tables, scales that a release keeps beside those its kernels read, and what a draft lets go of.

        A draft head is built with an embedding and an output head; they are given up for the target's only after
        the pools were sized (``speculative/eagle_worker_v2.py::alloc_memory_pool``, 0.5.23). Up to 0.5.13 drafts are loaded
        behind the pools, and take what is kept free (``scheduler.py::init_model_worker``). Layers that read another's
        cache have places for keys and values, and keys that are values, too, are loaded twice (0.5.11 to 0.5.23
        ``models/gemma4_causal.py``).
        """
        model = loading.model
        parts = {
            "position_table": overhead.float_position_table(model),
            "layer_tables": overhead.layer_tables(loading),
            "widened_projection": overhead.widened_projection(loading),
            "missing_projections": missing_projections(loading, joined=True),
            "draft_copies": borrowed_copies(model, loading.layout.tensor),
            "tables": overhead.tables_on_device(loading, on_host(self.engine, model)),
        }
        if not release_of(self.engine).has("weighs_drafts"):
            later = sum(map(loading.row_bytes, draft_rows(model)))
            parts |= {"draft_copies": 0, "loaded_behind_pools": -later}
        if self.engine.loaded_scales_kept and overhead.repacks_block_floats(loading.accelerator):
            parts["loaded_scales"] = overhead.loaded_scales(loading)
        return {name: size for name, size in parts.items() if size}

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """What is left free when ``mem_fraction_static`` is not set, and what a process held before.

        The share is of the memory that was free before loading, so that the rest of it is kept free. One given by hand (below 1)
        is ``mem_fraction_static``: it replaces what SGLang would work out. It is a share of what is free once the device and
        the ranks' links are set up; attention on AMD GPUs lowers it for long contexts, given or not.
        """
        told = step.context_tokens
        if told is not None and not xp.is_plain(told):
            return _by_length(
                told, lambda one: self.reserve(model, accelerator, replace(step, context_tokens=one))
            )
        held = self._taken_before_loading(step.layout, accelerator) + step.held_bytes
        images = self._images_kept(model, accelerator, step)
        uncertainty = self._uncertainty(model, accelerator, step.layout)
        if step.share < 1:
            used = step.share * self._share_left(model, accelerator, told)
            kept = accelerator.usable_bytes * step.share - (accelerator.usable_bytes - held) * used + images
            return Reserve(activations=0, graphs=0, non_framework=round(kept), uncertainty=uncertainty)
        found = self._memory(model, accelerator, step)
        kept = kernel.static_kept(accelerator.usable_bytes, held, found.share)
        kept = max(kept + images, 0)
        graphs = min(found.graphs_mib * MIB, kept) if not step.eager else 0
        other = min(
            held + kernel.OTHER_MIB * MIB + settings.ranks_mib(step.layout) * MIB, held + kept - graphs
        )
        return Reserve(
            activations=round(kept + held - graphs - other),
            non_framework=round(other),
            graphs=round(graphs),
            uncertainty=uncertainty,
        )

    def error_of_format(
        self, model: Model, accelerator: Accelerator, layout: Layout, weight_format: str | None
    ) -> int | None:
        """The band of the kind of start that the format makes it."""
        return self._uncertainty(model, accelerator, layout, weight_format)

    def browser_traits(self, accelerator: Accelerator) -> dict[str, Any]:
        """Widths of the error band by the format of weights, too."""
        errors = [self._width(kind, accelerator) for kind in BANDS[:4]]
        if device_class(accelerator) == "unified":
            errors = [self._width("unified", accelerator)] * 4
        return EngineRules.browser_traits(self, accelerator) | {"errors": errors}

    def following_peak(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Following | None:
        """AMD's attention kernels lower the share for contexts above 8,192 tokens (``attention_hook.py``)."""
        if self._share_left(model, accelerator) == 1:
            return None

        def kept(tokens: int) -> int:
            total: int = self.reserve(model, accelerator, replace(step, context_tokens=tokens)).total
            return total

        short, long = kept(settings.LONG_CONTEXT_TOKENS), kept(settings.LONG_CONTEXT_TOKENS + 1)

        def peak(tokens: Any) -> Any:  # noqa: ANN401 - a number or an array
            return xp.where(tokens > settings.LONG_CONTEXT_TOKENS, long, short)

        return (short, long), peak, 0

    def static_memory(self, accelerator: Accelerator, layout: Layout) -> StaticMemory:
        """What is free once the device and the ranks' links are set up, as far as the attention leaves it."""

        def left(model: Model, context_tokens: int | None) -> float:
            return self._share_left(model, accelerator, context_tokens)

        def kept(model: Model, requests: int | None) -> int:
            images = settings.images_mib(
                model, self.engine, accelerator, nodes=layout.nodes, max_requests=requests
            )
            return images * MIB

        return StaticMemory(
            accelerator.usable_bytes - self._taken_before_loading(layout, accelerator), left, kept
        )

    def _share_left(self, model: Model, accelerator: Accelerator, context_tokens: int | None = None) -> float:
        """What the attention leaves of a share, given or not."""
        backend = settings.attention_backend(model, self.engine, accelerator)
        return settings.backend_share(backend, context_tokens or model.context_tokens)

    def scheduler(
        self,
        accelerator: Accelerator | None,
        *,
        max_batched_tokens: int | None = None,
        max_seqs: int | None = None,
        offline: bool = False,
        context_tokens: int | None = None,
        model: Model | None = None,
    ) -> tuple[int, int]:
        """Tokens of one prefill chunk, and requests at once: as given, else the most that it estimates."""
        tokens, _ = EngineRules.scheduler(
            self,
            accelerator,
            max_batched_tokens=max_batched_tokens,
            max_seqs=max_seqs,
            offline=offline,
            context_tokens=context_tokens,
            model=model,
        )
        return tokens, max_seqs or MOST_REQUESTS

    def max_requests(self, serving: Serving, model: Model, layout: Layout) -> int | None:
        """What is told is of all data ranks together, and so are the 256 that the engine sets for compressed attention.

        ``max_running_requests // attn_dp_size`` (``kv_cache_configurator.py``, 0.5.9 to 0.5.23), ``deepseek_v4_hook.py``
        (0.5.13 to 0.5.23).
        """
        told, _ = step_sizes(serving)
        if told is None:
            if not is_compressed(model):
                return MOST_REQUESTS
            told = settings.COMPRESSED_REQUESTS
        return max(1, told // layout.data)

    @staticmethod
    def command(served: Served) -> Command:
        """``sglang.launch_server`` and its flags."""
        return serve.command(served)

    def _taken_before_loading(self, layout: Layout, accelerator: Accelerator) -> int:
        """What a process holds before weights are loaded: a context, and buffers for other ranks.

        The buffers are those of links between data-center GPUs. RCCL and AITER take more than NCCL, and data-parallel attention has
        more groups of ranks. Where device and host share their memory, SGLang asks the system what is available
        (``utils/common.py::get_available_gpu_memory``, ``is_integrated``), which the host's own share is not. Two ranks set up no
        NVLink SHARP (NCCL's ``transport/nvls.cc::ncclNvlsInit``).
        """
        taken = constant(self.engine, "taken_before_bytes")
        if device_class(accelerator) == "unified":
            taken = constant(self.engine, "taken_before_unified_bytes")
        if layout.devices == 1:
            return round(taken)
        if accelerator.vendor.upper() == "AMD":
            named = "taken_before_data_bytes_amd" if layout.data > 1 else "taken_before_parallel_bytes_amd"
            taken += constant(self.engine, named)
        elif multicasts(accelerator):
            pair = layout.devices == PAIR
            taken += constant(
                self.engine, "taken_before_pair_bytes" if pair else "taken_before_parallel_bytes"
            )
        return round(taken)

    def _uncertainty(
        self, model: Model, accelerator: Accelerator, layout: Layout, weight_format: str | None = None
    ) -> int:
        return self._width(band_kind(model, accelerator, layout, weight_format), accelerator)

    def _width(self, kind: str, accelerator: Accelerator) -> int:
        width = constant(self.engine, f"uncertainty_bytes_{kind}")
        return round(width * (grown(accelerator.usable_bytes) if kind.endswith("_ranks") else 1))

    def _memory(self, model: Model, accelerator: Accelerator, step: EngineStep) -> settings.MemorySettings:
        layout = step.layout
        flags = settings.SglangFlags(
            tensor_parallel=layout.tensor * layout.data,
            pipeline_parallel=layout.pipeline,
            data_attention=layout.data,
            context_ranks=layout.decode_context,
            chunk_tokens=step.max_batched_tokens,
            max_requests=_told_requests(step),
            graphs=not step.eager,
            images=step.images,
            context_tokens=step.context_tokens,
            deepep=layout.all_to_all.startswith("deepep"),
            drafts=drafts(model),
        )
        return settings.memory(model, self.engine, accelerator, flags)

    def _images_kept(self, model: Model, accelerator: Accelerator, step: EngineStep) -> int:
        told, through = _told_requests(step), step.images_through
        nodes = step.layout.nodes
        size = settings.images_mib(
            model, self.engine, accelerator, nodes=nodes, max_requests=told, through=through
        )
        return step.images * size * MIB


def _told_requests(step: EngineStep) -> int | None:
    """Requests at once that the engine was told; None for the number that stands for none."""
    return step.max_seqs if step.seqs_told or step.max_seqs != MOST_REQUESTS else None


def _by_length(tokens: Any, reserve: Callable[[int], Reserve]) -> Reserve:  # noqa: ANN401 - an array
    """The reserve at each of several lengths: what short contexts keep, and what long ones do."""
    limit = settings.LONG_CONTEXT_TOKENS
    short, long = reserve(limit), reserve(limit + 1)
    parts = ("activations", "non_framework", "graphs", "uncertainty")
    return Reserve(*(xp.where(tokens > limit, getattr(long, part), getattr(short, part)) for part in parts))


def band_kind(
    model: Model, accelerator: Accelerator, layout: Layout, weight_format: str | None = None
) -> str:
    """The kind of start whose first sights an error band rests on, of :data:`BANDS`.

    Memory shared with a CPU is one kind for any number of ranks. Models that draft, and those in four bits, were missed by more
    than others.

    ``weight_format``: what the model is converted to; None as released.
    """
    if device_class(accelerator) == "unified":
        return "unified"
    narrow = drafts(model) or _FOUR_BITS.match(weight_format or model.weight_format) is not None
    return ("drafted_or_four_bits" if narrow else "plain") + "_ranks" * (layout.devices > 1)


def grown(memory_bytes: float) -> float:
    """How far the error of several ranks grows with a device, against one of 80 GiB.

    Buffers for other ranks are larger on larger devices, and do not grow in proportion: the links' channels do.

    ``memory_bytes``: memory of the device.
    """
    return float((memory_bytes / (80 * GIB)) ** 0.5)
