"""A question with every name resolved to a record and every number checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvreport.accounting.allocation import reserve_on
from kvreport.accounting.case import Case, Launch, Memo
from kvreport.accounting.compute_type import FLOAT32, WIDE, widens
from kvreport.accounting.deployment import lay_out
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.protocol import EngineRules
from kvreport.accounting.engines.step import check_step
from kvreport.accounting.extras import (
    Draft,
    adapted_if_named,
    lora_bytes,
)
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import SHORTEST_SERVER_TOKENS, Serving
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.shares import share_on
from kvreport.accounting.state_types import with_state_type
from kvreport.accounting.support_lookup import class_note
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import RELEASED, Catalog, named_release
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.catalog.server_flags import flag_names
from kvreport.errors import InputError, ServerRefusalError
from kvreport.estimation.asked import (
    SORTS,
    draft_of,
    drafted_tokens,
    inputs_of,
    sampler_not_followed,
    serves_images,
    text_draft_of,
    unused,
    with_index_type,
    with_kernel,
    with_runner,
)
from kvreport.estimation.config_overrides import with_longer_context
from kvreport.estimation.hardware import (
    ONE_MACHINE,
    devices_of,
    in_machines,
    layout_of,
    network_rate,
    parsed,
    refuse_machines,
    refuse_unlinked,
)
from kvreport.estimation.named import (
    AUTO,
    as_declared,
    engine_named,
    open_model,
    refuse_unsupported,
    storable_on,
)
from kvreport.estimation.not_followed import NotFollowed
from kvreport.estimation.sharing import with_others
from kvreport.query import Query
from kvreport.units import human_bytes, parse_bytes, parse_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Launch):
    """One question, resolved."""

    model: Model
    # The device, or one for each of a data rank's where they are listed.
    accelerators: tuple[Accelerator, ...]
    ceiling: Engine  # The policy that reserves nothing, for comparison.
    context_tokens: int  # Tokens of each request.
    weight_format: WeightFormat | None  # None for the checkpoint as released.
    kv_format: KvFormat  # How growing caches are stored.
    utilization: float  # Share of memory.
    # Images, videos and audio clips per prompt, as far as they are limited.
    inputs: Mapping[str, int] = field(default_factory=dict)
    draft: Draft | None = None  # A draft model beside it.
    # The method that drafts from text instead (:data:`kvreport.accounting.text_drafts.TEXT_DRAFTS`), or None.
    text_draft: str | None = None
    kv_offload_bytes: int = 0  # Host memory for evicted blocks.
    # What a GPU passes to other servers in a second, or None if not stated.
    network_bytes_per_s: int | None = None
    assumptions: tuple[str, ...] = ()  # Every value that was not stated.
    not_read: tuple[str, ...] = ()  # Keys and sections of a config that were not used.
    # Options that were given and that the answer does not depend on.
    not_followed: tuple[NotFollowed, ...] = ()
    # The newest release that was read, where the engine is of a later one; else None.
    release_read: str | None = None
    query: Query | None = None  # The question as it was asked; None where a program made the request.

    @property
    def accelerator(self) -> Accelerator:
        """The first device."""
        return self.accelerators[0]

    @property
    def max_seqs(self) -> int:
        """Requests at once as the engine's own flag counts them: as told, or what it sets by itself."""
        return rules(self.engine).max_requests(self.serving, self.model, Layout()) or self.serving.max_seqs

    @property
    def peaks(self) -> Peaks:
        """Peak rates that a step is bounded by.

        A tensor-parallel group is as fast as its slowest device, and where it spans servers its partial results pass
        over the network. Pipeline stages on unequal devices are bounded by the fastest of them, which is weaker.
        """
        kinds = {one.id: one for one in self.accelerators}
        each = [Peaks.of(one) for one in kinds.values()]
        pick = min if self.layout.pipeline == 1 else max
        first = each[0]
        inside = [float(one.link_bytes_per_s) for one in each]
        if self.network_bytes_per_s and self.layout.tensor > self.layout.devices // self.layout.nodes:
            inside.append(float(self.network_bytes_per_s))
        known = [rate for rate in inside if not math.isnan(rate)]
        return Peaks(
            bytes_per_s=pick(float(one.bytes_per_s) for one in each),
            operations_per_s={
                name: pick(float(one.operations_per_s[name]) for one in each)
                for name in first.operations_per_s
            },
            link_bytes_per_s=min(known) if known else math.nan,
        )

    @property
    def served_model(self) -> Model:
        """What shares the pool: the model, with its draft's layers where there is one."""
        return self.model if self.draft is None else self.draft.whole

    @property
    def weight_format_name(self) -> str:
        """The name of the weight format in the dataset."""
        return RELEASED if self.weight_format is None else self.weight_format.name

    @property
    def tensor_parallel(self) -> int:
        """Devices that one copy of the model is split over."""
        return self.layout.tensor

    @property
    def case(self) -> Case:
        """The same for the arithmetic."""
        per_data_rank = self.layout.tensor * self.layout.pipeline
        mixed = len({one.id for one in self.accelerators}) > 1
        return Case(
            **self.told,
            model=self.served_model,
            accelerators=(self.accelerator,),
            replica=self.accelerators[:per_data_rank] if mixed else (),
            weight_formats=(self.weight_format,),
            context_tokens=min(self.context_tokens, self.model.context_tokens),
        )


_TYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float32": FLOAT32}
"""What ``--dtype`` means; ``auto`` is the checkpoint's own."""


def resolve(query: Query, catalog: Catalog, asked: Query | None = None) -> Request:
    """Resolve names against a catalog and check what belongs together.

    ``asked``: the question as it was asked, where ``query`` says it in other options.

    Raises:
        InputError: For the first thing that cannot be resolved.
    """
    opened = open_model(
        query.model,
        catalog,
        fetch=query.fetch,
        revision=query.revision,
        assume_defaults=query.assume_defaults,
    )
    record = with_state_type(opened.model, query.mamba_ssm_cache_dtype)
    assumed = list(opened.assumptions)
    policy = query.engine if isinstance(query.engine, Engine) else engine_named(catalog, query.engine)
    record, passed_over = with_longer_context(query, policy, record)
    text_draft = text_draft_of(query, policy)
    draft = None if text_draft else draft_of(query, record, catalog, assumed)
    policy = with_runner(query, with_kernel(query, policy, assumed), draft, text_draft, assumed)
    devices, held, query = with_others(devices_of(query, catalog), query, policy, assumed)
    layout, fallen = _laid_out(query, devices, policy, record, assumed)
    accelerator = devices[0]
    record, untyped = with_index_type(query, policy, record, accelerator)
    fallen += untyped
    refuse_unsupported(record, policy, catalog.support)
    unfollowed = (*fallen, *passed_over, *unused(asked or query, policy, catalog.support, layout.nodes))
    assumed += filter(None, [class_note(catalog.support, policy, record)])
    engine = rules(policy)
    assumed += sampler_not_followed(query, policy, accelerator)
    limits = inputs_of(query.limit_mm_per_prompt)
    cache = catalog.kv_format(
        (engine.default_kv_format(record, accelerator) or "bf16") if query.kv.lower() == AUTO else query.kv
    )
    cache = as_declared(cache, record, catalog.kv_formats)
    form = (
        None
        if query.weights is None or query.weights.lower() == RELEASED
        else catalog.weight_format(query.weights)
    )
    dtype = _TYPES.get(query.dtype)
    if catalog.support is not None and widens(
        catalog.support.ruling(policy.family, policy.version),
        accelerator,
        record,
        record.weight_format if form is None else form.name,
        dtype,
    ):
        form = catalog.weight_format(WIDE)
        cache = catalog.kv_format(WIDE) if query.kv.lower() == AUTO else cache
        assumed.append(
            f"weights {WIDE}: {policy.label} computes {record.architecture or record.id} in float32 here"
        )
    for device in dict.fromkeys(one.id for one in devices):
        _check_storable(cache, next(one for one in devices if one.id == device))
    layout.check(record)
    network = network_rate(query, devices, layout, assumed)
    context_tokens = (
        record.context_tokens
        if query.context_tokens is None
        else parsed("context", parse_tokens, query.context_tokens)
    )
    drafted = drafted_tokens(query, draft, text_draft, assumed)
    tokens, rows = _scheduled(
        query,
        engine,
        accelerator,
        record,
        max(context_tokens, SHORTEST_SERVER_TOKENS),
        drafted,
        limits,
        assumed,
    )
    fitted = any(name.startswith("uncertainty") for name in policy.coefficients)
    if (
        fitted
        and accelerator.vendor.upper() != "NVIDIA"
        and query.kv_pool is None
        and query.kv_pool_blocks is None
    ):
        assumed.append(
            f"reserve: fitted on logs of NVIDIA GPUs, and applied to {accelerator.name} with the wider band of other makers"
        )
    request = Request(
        model=record,
        accelerators=devices,
        engine=policy,
        ceiling=catalog.engine("ceiling"),
        formats=catalog.weight_formats,
        layout=layout,
        context_tokens=context_tokens,
        weight_format=form,
        kv_format=cache,
        utilization=share_on(policy, accelerator, query.utilization),
        kv_pool_bytes=None if query.kv_pool is None else parsed("kv-pool", parse_bytes, query.kv_pool),
        serving=Serving(
            max_batched_tokens=tokens,
            max_seqs=rows,
            block_tokens=query.block_size,
            prefix_caching=query.prefix_caching,
            draft_tokens=drafted,
            draft_in_model=draft is not None or text_draft is not None,
            seqs_told=query.max_seqs is not None,
        ),
        eager=query.eager,
        sorts=SORTS.get(query.sampler or ""),
        images=serves_images(limits, record, policy),
        videos=limits.get("video") != 0,
        clips=limits.get("audio") != 0,
        inputs=limits,
        draft=draft,
        text_draft=text_draft,
        lora_slots=(query.max_loras, query.max_lora_rank) if query.max_loras else (0, 0),
        kv_offload_bytes=(
            0 if query.kv_offload is None else parsed("kv-offload", parse_bytes, query.kv_offload)
        ),
        network_bytes_per_s=network,
        not_read=opened.not_read,
        not_followed=unfollowed,
        release_read=None
        if isinstance(query.engine, str) and not named_release(query.engine)
        else catalog.release_read(policy),
        query=query,
        dtype=dtype,
        support=catalog.support,
        held_bytes=held,
    )
    assumed += (
        *engine.open_choices(record, accelerator, request.case.step, catalog.weight_formats),
        *_adapters_said(query, record, layout, policy),
    )
    if query.utilization is None and policy.family != "ceiling":
        share = request.utilization
        if share == policy.utilization:
            assumed.append(f"utilization {share:g}: default of {policy.label}")
        else:
            assumed.append(
                f"utilization {share:g}: what is surely free at start on {accelerator.name}; the default of "
                f"{policy.label}, {policy.utilization:g}, is refused there ({flag_names('vllm')['utilization']} {share:g})"
            )
    if query.context_tokens is None:
        assumed.append(f"context {record.context_tokens:,} tokens: the context limit of the model")
    if query.kv.lower() == AUTO:
        assumed.append(f"KV format {cache.name}: the default of {policy.label}")
    request = _with_kept_free(replace(request, assumptions=tuple(assumed)), query.utilization)
    return request if query.kv_pool_blocks is None else _with_blocks(request, query.kv_pool_blocks)


def _with_kept_free(request: Request, share: float | None) -> Request:
    """The same with what a stated share of the memory before loading leaves for graphs and activations, where it is less than usual.

    The pools are made first (SGLang 0.5.23 ``kv_cache_configurator.py::_profile_available_bytes``), so that a server with less
    than its graphs take starts loading and runs out of memory.
    """
    policy, case = request.engine, request.case
    if share is None or request.kv_pool_bytes is not None or not trait(policy, "share_before_loading"):
        return request
    if share == 1:
        said = f"utilization 1: what {policy.label} takes without the flag"
        return replace(request, assumptions=(*request.assumptions, said))
    device = case.accelerators[0]
    own, told = (
        reserve_on(replace(case, utilization=one), device, case.serving, Memo()) for one in (1, share)
    )
    less = own.total - told.total - math.floor(device.usable_bytes * (1 - share))
    needed = own.activations + own.graphs
    if less <= 0:
        return request
    left = f"leaves {human_bytes(max(needed - less, 0))} per GPU for graphs and activations"
    if needed - less < own.graphs:
        lacks = f"{left}; graphs take about {human_bytes(own.graphs)}, and the server may run out of memory at start"
        more = NotFollowed("--utilization", f"{share:g}", "graphs and activations", lacks)
        return replace(request, not_followed=(*request.not_followed, more))
    said = f"{left}, where {policy.label} leaves {human_bytes(needed)} by default; long prompts may run out of memory"
    return replace(request, assumptions=(*request.assumptions, f"utilization {share:g}: {said}"))


def _adapters_said(query: Query, model: Model, layout: Layout, policy: Engine) -> list[str]:
    """What adapters are taken not to change, and what they would take if they did."""
    named = adapted_if_named(policy)
    if not query.max_loras or model.experts is None or not named:
        return []
    slots = (model, layout, query.max_loras, query.max_lora_rank)
    more = human_bytes(lora_bytes(*slots) - lora_bytes(*slots, named))
    return [
        f"adapters change no routed experts: those that do take {more} more per GPU, which {policy.label} sets aside only if they name them"
    ]


def _with_blocks(request: Request, blocks: int) -> Request:
    """The pool of a server that is told its blocks: so many times the bytes of one, whatever memory is left.

    vLLM 0.33.0 ``v1/core/kv_cache_planning.py::get_kv_cache_configs``. Of pipeline stages, whose requests take as many
    blocks of each, the stage with the largest ones is told.

    Raises:
        InputError: If the pool is stated in bytes, too.
    """
    if request.kv_pool_bytes is not None:
        raise InputError(
            "kv-pool-blocks: found with --kv-pool; allowed: one of them, for vLLM takes the blocks"
        )
    each = max(rank.plan.block_bytes for rank in lay_out(request.case).ranks)
    said = f"KV pool: {blocks:,} blocks of {each:,} B per GPU, as given"
    return replace(request, kv_pool_bytes=blocks * each, assumptions=(*request.assumptions, said))


def _laid_out(
    query: Query, devices: Sequence[Accelerator], policy: Engine, record: Model, assumed: list[str]
) -> tuple[Layout, tuple[NotFollowed, ...]]:
    """The layout, and what of it has no effect: vLLM divides encoders of a class without the choice (0.33 ``ModelConfig``)."""
    layout = layout_of(query, len(devices), assumed)
    if policy.family in ONE_MACHINE:
        refuse_machines(devices, layout, policy)
    refuse_unlinked(layout, devices, query.network_bandwidth)
    fallen: tuple[NotFollowed, ...] = ()
    if (
        layout.whole_encoders
        and policy.family == "vllm"
        and rules(policy).refuses(record, Layout(whole_encoders=True))
    ):
        said = f"no effect: {policy.label} falls back to weights for {record.architecture or record.id}"
        layout, fallen = (
            replace(layout, whole_encoders=False),
            (NotFollowed("--mm-encoder-tp-mode", "data", None, said),),
        )
    elif layout.whole_encoders:
        assumed.append(
            "encoders whole on each rank: by the engine's code, and no log of a start confirms their pass"
        )
    if layout.expert and record.experts is None and policy.family == "vllm":
        raise ServerRefusalError(  # config/model.py::ModelConfig._verify_with_expert_parallelism
            f"{record.id}: expert parallel: found a model without routed experts, with which {policy.label} does not "
            "start; allowed: leave it out"
        )
    if layout.expert and record.experts is None:  # sizes of the layers of experts alone, in other servers
        layout = replace(layout, expert=False)
        fallen += (NotFollowed("--expert-parallel", "", None, "no effect: a model without routed experts"),)
    if policy.family not in ONE_MACHINE:
        layout = in_machines(layout, devices[0], assumed)
    return layout, fallen


def _check_storable(cache: KvFormat, accelerator: Accelerator) -> None:
    if not storable_on(cache, accelerator):
        raise InputError(
            f"kv: {accelerator.name} cannot store a cache in {cache.name}; allowed: an accelerator with "
            f"{' or '.join(cache.native)}, or another format"
        )


def _scheduled(
    query: Query,
    engine: EngineRules,
    accelerator: Accelerator,
    model: Model,
    context_tokens: int,
    drafted: int,
    limits: Mapping[str, int],
    assumed: list[str],
) -> tuple[int, int]:
    """Tokens of a step and requests at once: as stated, or what the engine takes by itself, which is said.

    Raises:
        InputError: If no step of so many tokens holds what the model cannot divide.
    """
    tokens, rows = engine.scheduler(
        accelerator,
        max_batched_tokens=query.max_batched_tokens,
        max_seqs=query.max_seqs,
        context_tokens=context_tokens,
        model=model if serves_images(limits, model, engine.engine) else None,
    )
    if limits.get("video") != 0:
        check_step(engine.engine, model, tokens, engine.least_step(model))
    label, because = engine.engine.label, "default of {} on this device"
    sets = trait(engine.engine, "drafting_requests")
    if drafted and query.max_seqs is None and sets is not None:
        rows, because = sets, "what {} sets where it drafts"
    if query.max_batched_tokens is None and engine.engine.device_classes:
        assumed.append(f"max_batched_tokens {tokens:,}: default of {label} on this device")
    if query.max_seqs is None and engine.engine.device_classes:
        runs = engine.max_requests(Serving(max_batched_tokens=tokens, max_seqs=rows), model, Layout())
        if runs != rows:
            because = f"what {{}} sets for {model.architecture}"
        assumed.append(f"max_seqs {runs:,}: {because.format(label)}")
    return tokens, rows
