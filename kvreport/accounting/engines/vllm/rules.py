"""vLLM behind the engine protocol; what differs between releases is in the record and the modules beside."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kvreport.accounting import kernel
from kvreport.accounting import numeric as xp
from kvreport.accounting.engines.command import Command, Served
from kvreport.accounting.engines.protocol import EngineRules, check_sizes
from kvreport.accounting.engines.step import EngineStep, Following, Loading, Reserve
from kvreport.accounting.engines.vllm import command as serve
from kvreport.accounting.engines.vllm import kernels, overhead, plan, releases, reserve
from kvreport.accounting.engines.vllm.profiling import (
    LOGIT_BYTES,
    Shape,
    loaded_bytes_per_row,
    loaded_bytes_per_token,
)
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import BlockPlan, HostMemory, Serving
from kvreport.accounting.state_types import Precisions
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.engine_records import fields_at
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Component, Model
from kvreport.catalog.release import release_number, release_of
from kvreport.catalog.server_flags import flag_names
from kvreport.units import GIB

if TYPE_CHECKING:
    from kvreport.accounting.case import Case

SHARDS_SEQUENCES: Final = frozenset(
    {
        "", "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "deepep_v2",
        "flashinfer_nvlink_one_sided", "passthrough", "mori_high_throughput", "mori_low_latency", "nixl_ep",
    }
)  # fmt: skip
"""Exchanges of tokens before which a data rank cuts its sequence in shards; the first is the default (0.33.0)."""

_SENDS: Final = "deepep_high_throughput"
"""An exchange that sends every token to its experts alone."""

_WORTH_SAYING: Final = GIB // 4
"""Bytes of a choice that are worth a sentence: less is within most bands."""


@dataclass(frozen=True, slots=True)
class Vllm(EngineRules):
    """The rules of one vLLM release."""

    needs_one_request: ClassVar[bool] = True

    def _has(self, rule: str) -> bool:
        return release_of(self.engine).has(rule)

    def device_class(self, accelerator: Accelerator) -> tuple[Hashable, Hashable]:
        """Scheduler defaults and what of the device decides a reserve; vendor and compute capability, as far as kernels ask for them."""
        kept = (*self.scheduler(accelerator), *reserve.OnDevice.of(accelerator))
        return kept, kernels.Device.of(accelerator)

    def plan_class(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None, serving: Serving
    ) -> Hashable:
        """What kernels force on the device; nothing for full attention only, in heads that every kernel takes.

        Both sizes of a step for windows and rings, which hold tokens in flight beside their own.
        """
        steps = kernels.reserves_for_steps(model)
        sizes = (serving.max_batched_tokens, serving.max_seqs) if steps else None
        return kernels.plan_class(model, self.engine, kv_format, accelerator), sizes

    def stored(
        self, model: Model, kv_format: KvFormat | None, accelerator: Accelerator | None
    ) -> tuple[KvFormat | None, Precisions]:
        """The layout that the device's kernels give a format."""
        return kernels.stored_format(model, self.engine, kv_format, accelerator), ()

    def plan(self, case: Case) -> BlockPlan:
        """KV cache groups in a shared block pool.

        A stage's layers are in the groups of the whole model; a draft's layer runs on the last stage.
        """
        if case.stage_of is None:
            return plan.plan(case.model, self.engine, case)
        whole, layers = case.stage_of
        last = layers.stop == whole.layer_count
        stage = range(layers.start, layers.stop + 1) if last else layers
        return plan.plan(whole, self.engine, case, stage=stage)

    def refuses(self, model: Model, layout: Layout, devices: Sequence[Accelerator] = ()) -> str | None:
        """Encoders that few classes have whole; the others divide weights whatever is asked (0.33 ``supports_encoder_tp_data``)."""
        if not layout.whole_encoders:
            return EngineRules.refuses(self, model, layout)
        if self.engine.lists("whole_encoders", model.architecture):
            return EngineRules.refuses(self, model, replace(layout, whole_encoders=False))
        return (
            f"mm encoder tp mode: found data for {model.architecture}, whose weights {self.engine.label} divides whatever "
            "is asked; allowed: weights"
        )

    def default_kv_format(self, model: Model, accelerator: Accelerator | None) -> str | None:
        """The KV format that vLLM takes when told ``auto``, by name; None for the model's own type.

        What the checkpoint declares, else what the device's kernels ask for: FP8 for GLM-5 on Blackwell
        data-center GPUs, and the only layout that sparse latents can have on SM12x.
        """
        device = kernels.Device.of(accelerator)
        if model.kv_format is not None or not device.nvidia:
            return model.kv_format
        if device.major == 10 and self.engine.lists("fp8_cache_on_sm100", model.architecture):
            return "fp8"
        sparse = kernels.Traits.of(model, self.engine)
        if sparse.latent is not None and sparse.indexed and not sparse.packed and device.major == 12:
            return "fp8_ds_mla"
        return None

    def host_memory(self, case: Case, plan: BlockPlan, pool_bytes: int) -> HostMemory:
        """Whole chunks, each of the blocks of all copies, rounded up (``v1/kv_offload/cpu/spec.py::CPUOffloadingSpec.__init__``).

        There is one copy for all tensor ranks of a node where all hold the same latents and map one region; else each has its own.
        """
        layout, device, release = case.layout, case.accelerator, release_of(self.engine)
        mapped = device is not None and device.vendor in release.names("offload_mapped")
        together = (
            layout.pipeline == layout.decode_context == 1 and layout.tensor <= layout.devices // layout.nodes
        )
        # Devices in one memory with their computer are computers of their own.
        together = together and not (device is not None and device.is_unified)
        copies = 1 if plan.one_copy and together and mapped else layout.tensor * layout.pipeline
        align = release.count("offload_alignment")
        chunk = -(-plan.block_bytes * copies // align) * align

        def tokens(size: int, context: int) -> int:
            return size // chunk * context // self._stored_blocks(plan, case.serving, context)

        return HostMemory(copies, tokens, mapped)

    def _stored_blocks(self, plan: BlockPlan, serving: Serving, context_tokens: int) -> int:
        """Blocks of a prompt that are stored: of windows and states all that its steps leave, or those before its end alone."""
        stored, dense = 0, self._has("checkpoints_dense")
        for group in plan.groups:
            blocks = -(-context_tokens // (group.block_tokens * plan.context_parallel))
            hit = blocks if group.hit_blocks is None else min(group.hit_blocks, blocks)
            if group.kind == "cross" and group.hit_blocks is not None:
                hit = group.hit_blocks
            elif dense and group.kind == "state":
                step = max(serving.max_batched_tokens // group.block_tokens, 1) * group.block_tokens
                hit = -(-context_tokens // step)
            elif dense:
                # A hit ends at a block of full attention; what no hit reads is not stored.
                boundaries = -(-context_tokens // plan.block_tokens)
                hit = min(hit * boundaries, blocks)
            stored += hit
        return max(stored, 1)

    def overhead_class(self, model: Model, accelerator: Accelerator) -> Hashable:
        """AMD's rows are set apart, NVIDIA's kernels for experts pad them, and Marlin's write scales out.

        What NVIDIA's allocator does not split is whole since 0.22.
        """
        device = kernels.Device.of(accelerator)
        return (
            device.amd,
            accelerator.vendor.upper() == "NVIDIA",
            device.marlin,
            device.marlin and device.floats,
            overhead.padding_kernel(model, self.engine, accelerator),
        )

    def load_overhead(self, loading: Loading) -> dict[str, int]:
        """Position tables, copies that kernels want, padding of experts."""
        return overhead.load_overhead(loading)

    def reserve(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Reserve:
        """Activations, non-framework memory and graphs, as the release's start-up measures them."""
        return reserve.reserve(model, self.engine, reserve.OnDevice.of(accelerator), step)

    def following_peak(self, model: Model, accelerator: Accelerator, step: EngineStep) -> Following | None:
        """Activations and graphs of models with an indexer, and activations of those whose longest video goes by the length."""
        sizes = Shape.of(model)
        if not (sizes.indexed or sizes.latent_heads or sizes.tower):
            return None
        device = reserve.OnDevice.of(accelerator)
        rates = self._rates(model, accelerator, step)
        if not kernel.follows_length(rates):
            return None

        def peak(tokens: Any) -> Any:  # noqa: ANN401 - a number or an array
            asked = reserve.kernel_step(device, step, tokens)
            if xp.is_plain(tokens):
                return kernel.following_bytes(rates, asked)
            bytes_of = xp.on_arrays(kernel.activation_bytes)(rates, asked)
            return bytes_of if step.eager else bytes_of + xp.on_arrays(kernel.scored_bytes)(rates, asked)

        falls_beyond = kernel.falls_beyond(rates, model.context_tokens)
        return (rates, reserve.kernel_step(device, step, None)), peak, falls_beyond

    def _rates(self, model: Model, accelerator: Accelerator, step: EngineStep) -> kernel.ReserveRates:
        """The rates of a model on a device."""
        told = reserve.Told.of(self.engine, reserve.OnDevice.of(accelerator), step)
        return reserve.rates_of(model, self.engine, *told)

    def reserve_follows_cache(self, model: Model) -> bool:
        """True for latents: on Hopper, another kernel serves those in FP8."""
        sizes = Shape.of(model)
        return sizes.latent_heads > 0 or sizes.gathers_keys

    def spared_later(self, model: Model, accelerator: Accelerator, step: EngineStep) -> int:
        """Bytes that a first start takes for compiling, and a later one with the same flags does not."""
        first: int = self.reserve(model, accelerator, step).activations
        later: int = self.reserve(model, accelerator, replace(step, compiled=True)).activations
        return first - later

    def browser_traits(self, accelerator: Accelerator) -> dict[str, Any]:
        """As :class:`.reserve.OnDevice` has them; the band of each kind of start.

        On AMD's devices the first model runner may serve the model, and graphs take more. On Intel's they are as on NVIDIA's
        where graphs are captured there.
        """
        device = reserve.OnDevice.of(accelerator)
        bands = (reserve.band(self.engine, device.device_class, kind) for kind in reserve.BANDS)
        return {
            "own": device.own_expert_kernels,
            "splits": device.splits,
            "partial": device.partial,
            "outside": list(reserve.outside_framework(self.engine, device)),
            "band": [one for band in bands for one in band],
            "runner": int(device.vendor == "AMD"),
        }

    def reserve_rates(
        self, model: Model, layout: Layout, *, amd: bool = False, receives: bool = False, images: bool = True
    ) -> tuple[float, ...] | None:
        """Bytes per token of a step, per row of logits and per graph, in the order of :class:`kvreport.accounting.kernel.ReserveRates`.

        They are those of a device whose kernels for experts compute in the engine's buffers.
        """
        told = reserve.Told(
            tensor_parallel=layout.tensor,
            expert_parallel=layout.expert,
            images=images,
            videos=images,
            vendor="AMD" if amd else "NVIDIA",
            receives=receives,
            decode_context=layout.decode_context,
            gathering=reserve.gathering_ranks(layout, self.engine.expert_kernel),
        )
        return reserve.read_rates(model, self.engine, told)

    def open_choices(
        self, model: Model, accelerator: Accelerator, step: EngineStep, formats: Mapping[str, WeightFormat]
    ) -> tuple[str, ...]:
        """What a start's first run, its sampler, its kernels for experts and the gathering of tokens open.

        Up to 0.11.0 sampling sorts without FlashInfer; up to 0.11 Hopper has two kernels for MXFP4 experts. From 0.11.1 to 0.32 a
        first start measures less memory than one that finds its compiled graphs.
        """
        release, found = release_of(self.engine), []
        measured = release.word("compiles_on_copies") != "nothing"
        spared = self.spared_later(model, accelerator, step) if measured else 0
        if spared > 0:
            found.append(
                f"a first start, whose compiling takes {spared / GIB:.1f} GiB while memory is measured: a later start "
                "that finds the compiled graphs has as much more for the cache"
            )
        if step.sorts is None and releases.sampler_is_open(release, second=False) and _is_nvidia(accelerator):
            more = step.max_seqs * model.vocabulary * (LOGIT_BYTES["sort"] - LOGIT_BYTES["probabilities"])
            found.append(
                f"sampler FlashInfer's, as in the published images: without it all logits are sorted, which takes "
                f"{more / GIB:.1f} GiB more (--sampler sort)"
                if releases.sampler(release, second=False) == "probabilities"
                else f"sampler of a plain installation, which sorts all logits: with FlashInfer, as in the published images, they take "
                f"{more / GIB:.1f} GiB less (--sampler flashinfer)"
            )
        divided = 0.0
        latent = any(isinstance(cache, Latent) for cache in model.every_cache)
        if latent and reserve.keeps_partial_results(accelerator) and not step.eager and not step.narrow_cache:
            largest = min(step.max_seqs, step.max_batched_tokens, kernel.LARGEST_CAPTURE)
            divided = self._rates(model, accelerator, step).partial_per_row * largest
        if divided > _WORTH_SAYING:
            found.append(
                f"{divided / GIB:.1f} GiB on each GPU for the partial results of attention that graphs keep with a 16-bit latent "
                f"cache on Hopper: an FP8 cache or a lower {flag_names('vllm')['max_seqs']} needs less"
            )
        foreign = 0
        if reserve.gathering_ranks(step.layout, self.engine.expert_kernel) > 1 and step.layout.expert:
            own = replace(step, layout=replace(step.layout, all_to_all=_SENDS))
            first, second = (self.reserve(model, accelerator, one).activations for one in (step, own))
            foreign = first - second
        if foreign > _WORTH_SAYING:
            found.append(
                f"{foreign / GIB:.1f} GiB on each GPU for experts that take the tokens of all data-parallel ranks: a lower "
                f"{flag_names('vllm')['max_batched_tokens']} or another --all2all-backend needs less"
            )
        hopper = _is_nvidia(accelerator) and (accelerator.compute_capability or "").startswith("9")
        if hopper and self.engine.expert_kernel is None and not release.has("vendored_triton_kernels"):
            spared = self._spared_by_triton(model, accelerator, step.layout, formats)
            if spared > 0:
                found.append(
                    f"MXFP4 experts by Marlin's kernels: with the package triton_kernels they take {spared / GIB:.1f} GiB "
                    "less on each GPU (--moe-backend triton)"
                )
        return tuple(found)

    def _spared_by_triton(
        self, model: Model, accelerator: Accelerator, layout: Layout, formats: Mapping[str, WeightFormat]
    ) -> int:
        """Bytes that Marlin's kernels take of MXFP4 experts on one GPU beyond OpenAI's."""
        each = (self.engine.model_copy(update={"expert_kernel": kernel}) for kernel in ("marlin", "triton"))
        marlin, triton = (
            sum(overhead.load_overhead(Loading(model, engine, None, formats, accelerator, layout)).values())
            for engine in each
        )
        return marlin - triton

    def at_release(self, version: str) -> Engine:
        """The record with the behavior of exactly this release of its range."""
        number = release_number("vllm", version)
        if not number:
            return self.engine
        told = {"version": version, "label": f"vLLM {version.removeprefix('v')}"}
        return self.engine.model_copy(update={**fields_at("vllm", number), **told})

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
        """Tokens of one step and requests at once: as given, or as the release defaults them."""
        check_sizes(max_batched_tokens, max_seqs)
        usual, rows = EngineRules.scheduler(self, accelerator, offline=offline, model=model)
        if context_tokens is not None and self._has("step_within_context"):
            usual = min(usual, rows * context_tokens)
        tokens = max_batched_tokens or usual
        return tokens, min(max_seqs or rows, tokens)

    def least_step(self, model: Model, *, by_default: bool = False) -> int:
        """The longest image or video of models whose images attend in both directions, which no step divides.

        As many by default, where the release raises its default to them.
        """
        if by_default and not self._has("step_holds_item"):
            return 0
        masked = kernels.masks_images(model, self.engine)
        return self.engine.item_tokens.get(model.architecture, 0) if masked else 0

    def component_ranks(self, model: Model, layout: Layout) -> Mapping[Component, int]:
        """Shared experts, and dense MLPs of some classes, are whole where tokens are shards of a sequence.

        That is tensor parallelism inside data ranks with expert parallelism, unless the exchange is one of those that
        take whole sequences (0.27.1 and 0.33.0, ``config/parallel.py::use_sequence_parallel_moe``); which classes
        pass it on to these layers is read in their modules.
        """
        encoders: dict[Component, int] = {"vision": 1, "audio": 1} if layout.whole_encoders else {}
        if (
            layout.tensor == 1
            or layout.data == 1
            or not layout.expert
            or layout.all_to_all not in SHARDS_SEQUENCES
        ):
            return encoders
        lists = self.engine.lists
        whole = dict(encoders)
        if lists("shared_experts_whole", model.architecture) or (
            layout.pipeline == 1 and lists("shared_experts_whole_in_one_stage", model.architecture)
        ):
            whole["shared_experts"] = 1
        if layout.pipeline == 1 and lists("dense_mlp_whole_in_one_stage", model.architecture):
            whole["dense_mlp"] = 1
        return whole

    def buffers_with_weights(self, model: Model, step: EngineStep) -> int:
        """What a model makes for the tokens of a step while it is loaded and for requests (:func:`loaded_bytes_per_token`)."""
        each = loaded_bytes_per_token(model, Shape.of(model), self.engine)
        return each * step.max_batched_tokens + loaded_bytes_per_row(model, self.engine) * step.max_seqs

    @staticmethod
    def command(served: Served) -> Command:
        """``vllm serve`` and its flags."""
        return serve.command(served)


def _is_nvidia(accelerator: Accelerator) -> bool:
    return accelerator.vendor.upper() == "NVIDIA"
