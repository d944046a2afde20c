"""One published start of an engine, predicted from what its source says.

:class:`Start` turns an observation's model, device and flags into a case for the trunk and yields each
printed figure with its prediction. The evidence page does so for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.deployment import Allocation, Case, Deployment, allocate, lay_out
from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.extras import own_prediction_layer, with_draft
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.load import Catalogue
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation
from kvreport.startup_log.local import buffers
from kvreport.units import GIB, MIB

STATED_WITHIN: Final = 0.005
"""A stated utilization is doubted where the printed parts differ from it by more."""

SAME_DEVICE_WITHIN: Final = 0.005
"""A device whose memory differs by more than this from the catalogue's is not that device as it is."""

LEAST_FREE: Final = 0.95
"""Below this share of a device, what was free before loading was decided by other processes (SGLang)."""

LAST_DIGIT: Final = 0.006
"""Half of the last digit of a printed concurrency, and a little."""

SAME_RANK_WITHIN: Final = 0.05
"""A pool and a token line further apart than this are not of one rank."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One printed figure and its prediction.

    Attributes:
        quantity: What is compared.
        predicted: Prediction, in ``unit``.
        observed: As printed.
        unit: ``GiB``, ``MiB``, ``tokens`` or ``requests``.
    """

    quantity: str
    predicted: float
    observed: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error, signed: positive where the prediction is too high."""
        return self.predicted / self.observed - 1 if self.observed else float("inf")


class Start:
    """One start of an engine, predicted."""

    def __init__(
        self, catalogue: Catalogue, observation: Observation, engine: Engine, model: Model, *, own: bool
    ) -> None:
        """Take an observation with the rules and the model to predict it with."""
        self.catalogue = catalogue
        self.observation = observation
        self.engine = rules(engine).at_release(observation.engine_version or "")
        told = {"expert_kernel": observation.expert_kernel} if observation.expert_kernel else {}
        self.engine = self.engine.model_copy(update=line_printed(observation) | told)
        self.target = model
        self.own_draft = drafts_itself(observation, model)
        self.model = with_draft(model, own_prediction_layer(model)).whole if self.own_draft else model
        self.weight_format = observation.weight_format if own else observation.shapes_weights
        self.ranks = observation.tensor_parallel or 1
        self.own = own
        self.excluded: list[str] = []
        self.starts: bool | None = None
        self.allocation: Allocation | None = None
        self.accelerator = device_of(catalogue, observation)

    @property
    def rules(self) -> EngineRules:
        """What the engine does with memory."""
        return rules(self.engine)

    def comparisons(self) -> Iterator[Comparison]:
        """Everything that the source says enough for."""
        if not self.engine.device_classes:
            yield from self._buffers()
            return
        weights = self._weights()
        printed = self.observation.printed
        if weights is not None and printed.model_load_gib is not None:
            yield Comparison(
                self.rules.load_line, int(weights.resident_bytes) / GIB, printed.model_load_gib, "GiB"
            )
        laid = self.laid_out()
        if laid is None:
            return
        if self.accelerator is None and self.ranks > 1:
            self.excluded.append("tokens: devices differ or are not named, and the smallest rank decides")
            return
        if printed.available_kv_gib is not None and printed.fits is not False:
            yield from self._lines(laid, int(printed.available_kv_gib * GIB), " given pool")
        yield from self._end_to_end(laid, known=weights is not None)

    def _weights(self) -> Allocation | None:
        """The weights of one rank as loaded; None where the source says too little."""
        observation = self.observation
        if self.weight_format is None:
            self.excluded.append("weights: how the checkpoint is stored is not known well enough")
            return None
        if observation.speculative and not self.own_draft and observation.printed.model_load_gib is not None:
            self.excluded.append("weights: a draft model is loaded too")
            return None
        case = self.case()
        if case.layout.pipeline > 1:
            return lay_out(case)
        if self.accelerator is None and observation.kernels_of is not None:
            case = replace(case, accelerators=(self.catalogue.accelerator(observation.kernels_of),))
        return allocate(case)

    def laid_out(self) -> Deployment | None:
        """The deployment under the flags of the source; None where it says too little."""
        observation = self.observation
        if observation.context_tokens is None and not self.rules.tokens_are_cells:
            self.excluded.append("tokens: the context is not stated")
            return None
        if observation.kv_format is None and not observation.complete:
            self.excluded.append("tokens: the KV format is not stated")
            return None
        if observation.speculative and self._draft_tokens() == 0:
            self.excluded.append("tokens: the draft model is not described")
            return None
        return lay_out(self.case())

    def case(self) -> Case:
        """What the trunk is asked: the observation's model, device and flags."""
        observation = self.observation
        tokens, rows = self._scheduler()
        named = self.weight_format
        form = None if named in (None, "released") else self.catalogue.weight_format(named)
        return Case(
            model=self.model,
            engine=self.engine,
            accelerators=() if self.accelerator is None else (self.accelerator,),
            weight_formats=(form,),
            formats=self.catalogue.weight_formats,
            kv_format=self._kv_format(),
            layout=self._layout(),
            serving=Serving(
                max_batched_tokens=tokens,
                max_seqs=rows,
                block_tokens=observation.block_tokens,
                prefix_caching=_prefix_caching(observation),
                draft_tokens=self._draft_tokens(),
                draft_in_model=self.own_draft,
                window_share=window_share(observation),
            ),
            utilization=share_taken(observation),
            eager=bool(observation.eager),
            images=serves_images(observation),
            sorts=bool(observation.sorts),
            kv_pool_bytes=pool_given(observation),
            context_tokens=observation.context_tokens,
            lora_slots=adapter_slots(observation),
        )

    def _layout(self) -> Layout:
        observation = self.observation
        data = observation.data_parallel or 1
        # SGLang's data-parallel attention divides the tensor-parallel devices among the data ranks.
        shared = data > 1 and observation.devices == self.ranks
        return Layout(
            tensor=max(self.ranks // data, 1) if shared else self.ranks,
            pipeline=observation.pipeline_parallel or 1,
            data=data,
            expert=bool(observation.expert_parallel),
            decode_context=observation.context_parallel or 1,
        )

    def _scheduler(self) -> tuple[int, int]:
        observation = self.observation
        return self.rules.scheduler(
            self.accelerator,
            max_batched_tokens=observation.max_batched_tokens,
            max_seqs=observation.max_seqs,
            offline=bool(observation.offline),
            context_tokens=observation.context_tokens,
            images=any(row.component == "vision" for row in self.model.weights),
        )

    def _kv_format(self) -> KvFormat | None:
        named = self.observation.kv_format
        if named in (None, "auto"):
            named = self.rules.default_kv_format(self.model, self.accelerator)
        return None if named is None else self.catalogue.kv_format(named)

    def _draft_tokens(self) -> int:
        found = re.search(r"num_speculative_tokens\D+(\d+)", self.observation.speculative or "")
        return int(found[1]) if found else 0

    def same_rank(self, laid: Deployment) -> bool:
        """False if the printed pool and tokens cannot belong together: each rank prints its own pool.

        The smallest rank decides the tokens; a source may quote the pool of another.
        """
        printed, context = self.observation.printed, self.observation.context_tokens
        if self.ranks == 1 or printed.available_kv_gib is None or not printed.kv_tokens or context is None:
            return True
        pool = int(printed.available_kv_gib * GIB)
        tokens = int(with_pool(laid, pool).printed_tokens(context))
        together = abs(tokens / printed.kv_tokens - 1) <= SAME_RANK_WITHIN
        if not together:
            self.excluded.append("pool: the quoted pool and tokens are of different ranks")
        return together

    def _lines(self, laid: Deployment, pool: int, suffix: str) -> Iterator[Comparison]:
        printed, context = self.observation.printed, self.observation.context_tokens
        if context is None and self.rules.tokens_are_cells:
            context = self.model.context_tokens  # its line of tokens does not depend on it
        if context is None:
            return
        if printed.kv_tokens:
            tokens = with_pool(laid, pool).printed_tokens(context)
            yield Comparison(f"tokens{suffix}", float(tokens), float(printed.kv_tokens), "tokens")
        if printed.max_concurrency:
            held = with_pool(laid, pool)
            fitting = float(held.concurrency(context))
            if self.rules.concurrency_is_tokens:
                fitting = float(held.printed_tokens(context)) / context
            yield Comparison(f"concurrency{suffix}", fitting, printed.max_concurrency, "requests")

    def _end_to_end(self, laid: Deployment, *, known: bool) -> Iterator[Comparison]:
        observation = self.observation
        if not known or self.accelerator is None:
            self.excluded.append("end to end: model format or device is not stated")
            return
        free = observation.printed.free_gpu_gib
        if observation.static_share and free and free * GIB < LEAST_FREE * self.accelerator.usable_bytes:
            self.excluded.append(f"end to end: other processes held memory, {free:g} GiB was free")
            return
        stated, taken = observation.utilization, share_taken(observation)
        if stated is not None and taken is not None and abs(stated - taken) > STATED_WITHIN:
            self.excluded.append(
                f"utilization: stated {stated:g}, but the printed parts add up to {taken:g}, which is used"
            )
        self.allocation = laid
        pool = max(int(laid.pool_bytes), 0)
        context = observation.context_tokens
        if context is not None:
            self.starts = int(laid.requests(context)) >= 1
        printed = observation.printed
        available = printed.available_kv_gib if self.same_rank(laid) else None
        if available is None and printed.k_gib is not None and printed.v_gib is not None:
            available = printed.k_gib + printed.v_gib
        if available is not None and available > 0:
            yield Comparison("pool", pool / GIB, available, "GiB")
        if observation.printed.fits is not False:
            yield from self._lines(laid, pool, "")

    def within_band(self, comparisons: tuple[Comparison, ...]) -> bool | None:
        """Whether the observed pool lies in the error band of the predicted one; None if it was not predicted.

        A log that prints no pool tells it by its tokens or its concurrency, which grow with it.
        """
        found = {one.quantity: one for one in comparisons}
        one = next((found[name] for name in ("pool", "tokens", "concurrency") if name in found), None)
        if one is None or self.allocation is None or one.predicted <= 0:
            return None
        pool = float(self.allocation.pool_bytes)
        missing = pool * abs(1 - one.observed / one.predicted)
        return missing <= float(self.allocation.uncertainty_bytes)

    def _buffers(self) -> Iterator[Comparison]:
        """llama.cpp prints the buffers of keys, values and states."""
        observation, printed = self.observation, self.observation.printed
        cells = printed.context_cells or observation.context_tokens
        if cells is None:
            self.excluded.append("buffers: the context is not stated")
            return
        if printed.kv_mib is not None:
            latent = any(isinstance(c, Latent) for group in self.model.layers for c in group.caches)
            if latent and printed.v_mib:
                self.excluded.append("buffers: run without MLA, with keys and values of every head")
            elif observation.kv_format is None:
                self.excluded.append("buffers: keys and values have different types")
            else:
                form = None if observation.kv_format in ("auto", "bf16") else self._kv_format()
                size = buffers(
                    self.model, self.engine, self.catalogue, form, cells, observation.max_seqs or 1
                ).cache
                yield Comparison("buffers", size / MIB, printed.kv_mib, "MiB")
        if printed.state_mib is not None:
            size = buffers(self.model, self.engine, self.catalogue, None, cells).states
            yield Comparison("states", size / MIB, printed.state_mib, "MiB")


def with_pool(laid: Deployment, pool_bytes: int) -> Deployment:
    """The same with this pool on every device."""
    others = tuple(replace(one, pool_bytes=pool_bytes) for one in laid.others)
    return replace(laid, pool_bytes=pool_bytes, others=others)


def serves_images(observation: Observation) -> bool:
    """False if the engine was told to serve text only."""
    said = f"{observation.towers or ''} {observation.flags or ''}".lower()
    return not re.search(r"language[_ -]model[_ -]only|'image': 0|text only", said)


def window_share(observation: Observation) -> float | None:
    """SGLang's ``--swa-full-tokens-ratio``, as the flags say; None for the default."""
    found = re.search(r"swa[-_]full[-_]tokens[-_]ratio[=: ]+(0?\.\d+|1(?:\.0)?)", observation.flags or "")
    return float(found[1]) if found else None


def drafts_itself(observation: Observation, model: Model) -> bool:
    """True if drafts come from the model's own prediction layers (``mtp``), which are loaded then."""
    said = re.search(r"\bmtp\b", observation.speculative or "", re.IGNORECASE)
    if not said or "assistant" in (observation.speculative or ""):
        return False
    return any(row.component == "mtp" for row in model.weights)


def adapter_slots(observation: Observation) -> tuple[int, int]:
    """LoRA adapters held at once and their largest rank; vLLM's defaults are one of rank 16."""
    said = observation.lora or ""
    if not re.search(r"lora", said, re.IGNORECASE):
        return 0, 0
    held = re.search(r"max_loras\W+(\d+)", said)
    rank = re.search(r"max_lora_rank\W+(\d+)", said)
    return int(held[1]) if held else 1, int(rank[1]) if rank else 16


def pool_given(observation: Observation) -> int | None:
    """The pool of one device that the flags ask for, which replaces the budget; None without one."""
    found = re.search(r"kv[-_]cache[-_]memory(?:[-_]bytes)?\W{1,4}(\d{6,})\b", observation.flags or "")
    return int(found[1]) if found else None


def device_of(catalogue: Catalogue, observation: Observation) -> Accelerator | None:
    """The device of an observation: as named, else one of the same kernels with the memory that was found."""
    named = observation.gpu
    if named is None and observation.printed.total_gpu_gib is not None and observation.tensor_parallel == 1:
        named = observation.kernels_of
    return device_found(catalogue.accelerator(named), observation) if named else None


def device_found(accelerator: Accelerator, observation: Observation) -> Accelerator:
    """The device with the memory that the engine found, where that is not the catalogue's device as it is.

    Slices of a device, and devices of a virtual machine, go by the name of the whole.
    """
    found = observation.printed.total_gpu_gib
    if found is None or abs(found * GIB / accelerator.usable_bytes - 1) <= SAME_DEVICE_WITHIN:
        return accelerator
    usable = accelerator.memory.usable.model_copy(update={"value": round(found * GIB)})
    memory = accelerator.memory.model_copy(update={"usable": usable, "driver_visible": None})
    return accelerator.model_copy(update={"memory": memory})


def line_printed(observation: Observation) -> dict[str, str]:
    """Which figure the line of tokens is, where a build between releases prints it and tells by itself.

    Tokens of whole requests agree with the concurrency; tokens of blocks do not where layers differ.
    """
    printed, context = observation.printed, observation.context_tokens
    if not re.search(r"dev|rc", observation.engine_version or "") or not context:
        return {}
    if not printed.kv_tokens or not printed.max_concurrency:
        return {}
    same = abs(printed.kv_tokens / context - printed.max_concurrency) <= LAST_DIGIT
    return {"token_line": "concurrency" if same else "blocks"}


def find_model(catalogue: Catalogue, observation: Observation) -> tuple[Model | None, bool]:
    """The model to predict with, and whether it is the checkpoint itself rather than one shaped like it."""
    for name, own in ((observation.model_id, True), (observation.shapes_of, False)):
        if name is None:
            continue
        if name in catalogue.models:
            return catalogue.models[name], own
        for model in catalogue.models.values():
            if name in model.aliases or name in model.predecessor_ids:
                return model, own
    return None, False


def share_taken(observation: Observation) -> float | None:
    """The utilization that an engine ran with.

    Where it printed all parts of its budget, their sum over its memory; a published table may
    state another by mistake. Some releases keep the estimate of their graphs out of the parts
    that they print: where the sum with it is what the source states, that is the share.
    Elsewhere what the source states.
    """
    printed = observation.printed
    parts = (
        printed.model_load_gib,
        printed.available_kv_gib,
        printed.peak_activation_gib,
        printed.non_torch_gib,
    )
    known = [part for part in parts if part is not None]
    if printed.total_gpu_gib is None or len(known) < len(parts):
        return observation.utilization or observation.static_share
    share = round(sum(known) / printed.total_gpu_gib, 3)
    stated = observation.utilization
    if stated is not None and printed.cudagraph_est_gib is not None:
        with_graphs = (sum(known) + printed.cudagraph_est_gib) / printed.total_gpu_gib
        if abs(with_graphs - stated) <= STATED_WITHIN:
            return stated
    return share


def _prefix_caching(observation: Observation) -> bool | None:
    said = (observation.flags or "").lower()
    if re.search(r"prefix.caching'?:? (off|false)|no.enable.prefix", said):
        return False
    return True if re.search(r"enable.prefix.caching'?:? true|--enable-prefix-caching", said) else None
