"""A question with every name resolved to a record and every number checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kvreport.accounting.case import Settings, narrow_cache
from kvreport.accounting.compute_type import FLOAT32, WIDE, widens
from kvreport.accounting.deployment import Case, lay_out
from kvreport.accounting.engines.base import EngineRules
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.engines.step import DraftKind, EngineStep
from kvreport.accounting.extras import (
    Draft,
    adapted_if_named,
    is_head,
    lora_bytes,
    own_prediction_layer,
    with_draft,
)
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import SHORTEST_SERVER_TOKENS, Serving
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.shares import share_on
from kvreport.accounting.state_types import with_precisions, with_state_type
from kvreport.accounting.support import class_note, lacks_class, other_reader
from kvreport.accounting.text_drafts import TEXT_DRAFTS, drafts_from_text
from kvreport.architectures.keys import MAX_CONTEXT
from kvreport.architectures.names import repository_name
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import RELEASED, Catalog, named_release
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of, trait
from kvreport.catalog.support import Support
from kvreport.errors import InputError, ServerRefusalError, shorten
from kvreport.estimation.commands import OWN_DRAFT
from kvreport.estimation.config_overrides import overridden
from kvreport.estimation.hardware import (
    devices_of,
    in_machines,
    layout_of,
    network_rate,
    parsed,
    refuse_unlinked,
)
from kvreport.estimation.not_followed import NotFollowed, not_followed
from kvreport.estimation.opened import Opened, listed
from kvreport.estimation.sharing import with_others
from kvreport.query import Query, options
from kvreport.resources import read_table
from kvreport.units import human_bytes, parse_bytes, parse_tokens
from kvreport.words import ENGINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Settings):
    """One question, resolved.

    Attributes:
        model: The model.
        accelerators: The device, or one for each of a data rank's where they are listed.
        engine: The engine.
        ceiling: The policy that reserves nothing, for comparison.
        weight_formats: Formats by name, for what released tensors carry.
        layout: How the model is spread over devices.
        context_tokens: Tokens of each request.
        weight_format: None for the checkpoint as released.
        kv_format: How growing caches are stored.
        utilization: Share of memory.
        serving: Scheduler sizes and flags that change the block plan.
        inputs: Images, videos and audio clips per prompt, as far as they are limited.
        draft: A draft model beside it.
        text_draft: The method that drafts from text instead (:data:`kvreport.accounting.text_drafts.TEXT_DRAFTS`), or None.
        kv_offload_bytes: Host memory for evicted blocks.
        network_bytes_per_s: What a GPU passes to other servers in a second, or None if not stated.
        assumptions: Every value that was not stated.
        not_read: Keys and sections of a config that were not used.
        not_followed: Options that were given and that the answer does not depend on.
        release_read: The newest release that was read, where the engine is of a later one; else None.
        query: The question as it was asked; None where a program made the request.
        dtype: The type to compute in; None is the checkpoint's own.
        support: What engines' releases run on; None not to judge it.
    """

    model: Model
    accelerators: tuple[Accelerator, ...]
    engine: Engine
    ceiling: Engine
    weight_formats: Mapping[str, WeightFormat]
    layout: Layout
    context_tokens: int
    weight_format: WeightFormat | None
    kv_format: KvFormat
    utilization: float
    serving: Serving
    inputs: Mapping[str, int] = field(default_factory=dict)
    draft: Draft | None = None
    text_draft: str | None = None
    kv_offload_bytes: int = 0
    network_bytes_per_s: int | None = None
    assumptions: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()
    not_followed: tuple[NotFollowed, ...] = ()
    release_read: str | None = None
    query: Query | None = None
    dtype: str | None = None
    support: Support | None = None

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
    def stored_format(self) -> KvFormat | None:
        """``kv_format`` in the layout that the engine gives it on this device."""
        return self.case.stored_format

    @property
    def case(self) -> Case:
        """The same for the arithmetic."""
        per_data_rank = self.layout.tensor * self.layout.pipeline
        mixed = len({one.id for one in self.accelerators}) > 1
        return Case(
            **self.told,
            model=self.served_model,
            engine=self.engine,
            accelerators=(self.accelerator,),
            replica=self.accelerators[:per_data_rank] if mixed else (),
            weight_formats=(self.weight_format,),
            formats=self.weight_formats,
            kv_format=self.kv_format,
            layout=self.layout,
            serving=self.serving,
            context_tokens=min(self.context_tokens, self.model.context_tokens),
            dtype=self.dtype,
            support=self.support,
        )


_TYPES = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float32": FLOAT32}
"""What ``--dtype`` means; ``auto`` is the checkpoint's own."""

AUTO = "auto"
"""The KV format that a checkpoint declares, else the 16-bit type it is served in."""


def resolve_model(model: str | Path | Model, catalog: Catalog) -> Model:
    """Find a model by id, slug or alias, or read it from a ``config.json``.

    Raises:
        InputError: If there is no such model or file, naming near ones.
    """
    return open_model(model, catalog).model


def open_model(
    model: str | Path | Model,
    catalog: Catalog,
    *,
    fetch: bool = False,
    revision: str | None = None,
    assume_defaults: bool = False,
) -> Opened:
    """Find or read what was given as a model, with what has to be said about it.

    Args:
        model: A record; a path; or a name (:func:`kvreport.estimation.opening.open_name`).
        catalog: Where names are looked up.
        fetch: True if the Hub may be asked for what is not known.
        revision: Branch, tag or commit on the Hub.
        assume_defaults: True to take a class's published defaults for dimensions that a config leaves out.

    Raises:
        InputError: If there is no such model or file, naming near ones.
    """
    if isinstance(model, Model):
        return Opened(model)
    if isinstance(model, str):
        model = repository_name(model)
    if not isinstance(model, str | Path):
        raise InputError(
            f"model: found {shorten(model)}; allowed: a name, a config.json or a folder with one, as text or as a path"
        )
    # A reader for every family costs a tenth of a second; a catalog's model needs none.
    if str(model).lower().endswith(".gguf"):
        from kvreport.architectures.gguf import read_gguf  # noqa: PLC0415

        file = read_gguf(model).model
        return Opened(file.model_copy(update={"unsupported_by": dict.fromkeys(_NO_GGUF, _AS_FILE)}))
    if isinstance(model, Path) or is_config_path(model):
        from kvreport.architectures.names import other_spellings  # noqa: PLC0415
        from kvreport.estimation.opening import open_folder, refuse_known, spelled  # noqa: PLC0415

        # A start command names folders of its container, or of another computer.
        if isinstance(model, str) and model.startswith(("/", "~")) and not Path(model).expanduser().exists():
            meant = spelled(model, catalog)
            if meant is not None:
                return meant
            refuse_known(other_spellings(model), catalog)
        return open_folder(Path(model).expanduser(), catalog, assume_defaults=assume_defaults)
    if revision is None:
        known = catalog.known_model(model)
        if known is not None:
            return listed(known)
    from kvreport.estimation.opening import open_name  # noqa: PLC0415

    return open_name(model, catalog, fetching=fetch, revision=revision)


_NO_GGUF: Final = ("vllm", "sglang", "tensorrt_llm", "transformers", "mlx")
"""Engine families that do not compute with the tensors of a GGUF file, or only with those of some classes and releases."""

_AS_FILE: Final = (
    "the file is for llama.cpp; allowed: --engine llama-cpp, ollama or ceiling, or the config.json of the model that it"
    " was made from, with --weights q4_k_m or q8_0"
)


def at_release(engine: Engine, name: str) -> Engine:
    """The record as it is for the release that a name like ``vllm@0.27.1`` or ``vllm==0.27.1`` asks for."""
    version = "" if name.strip().lower() in (engine.name, *engine.aliases) else named_release(name)
    return rules(engine).at_release(version) if version else engine


def engine_named(catalog: Catalog, name: str) -> Engine:
    """The engine of a name, with the behavior of the release that the name asks for.

    Raises:
        InputError: If there is none, or more than one.
    """
    return at_release(catalog.engine(name), name)


def is_config_path(text: str) -> bool:
    """True if a model's name on the command line is the path of a config rather than an id."""
    if text.endswith((".json", ".safetensors")) or text.startswith((".", "/", "~")):
        return True
    if "\0" in text:
        return False
    if Path(text, "config.json").is_file():
        return True
    return Path(text).is_dir() and any(Path(text).glob("*.safetensors"))


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` if it is a whole number in range.

    Args:
        name: What it is, for the message.
        value: The number.
        low: The smallest allowed.
        high: The largest allowed.

    Raises:
        InputError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name}: found {shorten(value)}; allowed: a whole number from {low:,} to {high:,}")
    return value


def resolve(query: Query, catalog: Catalog, asked: Query | None = None) -> Request:
    """Resolve names against a catalog and check what belongs together.

    Args:
        query: The question.
        catalog: Where names are looked up.
        asked: The question as it was asked, where ``query`` says it in other options.

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
    record, passed_over = _longer(query, policy, record)
    text_draft = _text_draft(query, policy)
    draft = None if text_draft else _draft(query, record, catalog, assumed)
    policy = _with_runner(query, _with_kernel(query, policy, assumed), draft, text_draft, assumed)
    devices, held = with_others(devices_of(query, catalog), query, policy, assumed)
    layout, fallen = _laid_out(query, devices, policy, record, assumed)
    accelerator = devices[0]
    record, untyped = _with_index_type(query, policy, record, accelerator)
    fallen += untyped
    refuse_unsupported(record, policy, catalog.support)
    unfollowed = (*fallen, *passed_over, *_unused(asked or query, policy, catalog.support, layout.nodes))
    assumed += filter(None, [class_note(catalog.support, policy, record)])
    engine = rules(policy)
    assumed += _sampler_not_followed(query, policy, accelerator)
    limits = _inputs(query.limit_mm_per_prompt)
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
    if catalog.support is not None and widens(catalog.support, policy, accelerator, record, form, dtype):
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
    drafted = _drafted(query, draft, text_draft, assumed)
    tokens, rows = _scheduled(
        query, engine, accelerator, record, max(context_tokens, SHORTEST_SERVER_TOKENS), drafted, assumed
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
    step = EngineStep(
        max_batched_tokens=tokens,
        max_seqs=rows,
        layout=layout,
        eager=query.eager,
        images=_served(limits, record, policy),
        sorts=_SORTS.get(query.sampler or ""),
        context_tokens=min(context_tokens, record.context_tokens),
        narrow_cache=narrow_cache(record, cache, engine),
    )
    assumed += (
        *engine.open_choices(record, accelerator, step, catalog.weight_formats),
        *_adapters_said(query, record, layout, policy),
    )
    if query.utilization is None and policy.family != "ceiling":
        share = share_on(policy, accelerator, None)
        if share == policy.utilization:
            assumed.append(f"utilization {share:g}: default of {policy.label}")
        else:
            assumed.append(
                f"utilization {share:g}: what is surely free at start on {accelerator.name}; the default of "
                f"{policy.label}, {policy.utilization:g}, is refused there (--gpu-memory-utilization {share:g})"
            )
    if query.context_tokens is None:
        assumed.append(f"context {record.context_tokens:,} tokens: the context limit of the model")
    if query.kv.lower() == AUTO:
        assumed.append(f"KV format {cache.name}: what {policy.label} takes when told nothing")
    request = Request(
        model=record,
        accelerators=devices,
        engine=policy,
        ceiling=catalog.engine("ceiling"),
        weight_formats=catalog.weight_formats,
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
        sorts=_SORTS.get(query.sampler or ""),
        images=_served(limits, record, policy),
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
        assumptions=tuple(assumed),
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
    return request if query.kv_pool_blocks is None else _with_blocks(request, query.kv_pool_blocks)


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
    said = (
        f"KV pool: {blocks:,} blocks of {each:,} B per GPU, as given; whether memory has them is not checked"
    )
    return replace(request, kv_pool_bytes=blocks * each, assumptions=(*request.assumptions, said))


def _laid_out(
    query: Query, devices: Sequence[Accelerator], policy: Engine, record: Model, assumed: list[str]
) -> tuple[Layout, tuple[NotFollowed, ...]]:
    """The layout, and what of it has no effect: vLLM divides encoders of a class without the choice (0.33 ``ModelConfig``)."""
    layout = layout_of(query, len(devices), assumed)
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
    return in_machines(layout, devices[0], assumed), fallen


def _longer(query: Query, policy: Engine, record: Model) -> tuple[Model, tuple[NotFollowed, ...]]:
    """The model with the longest context that the server is told to allow, and changes of its config that are not followed.

    Raises:
        InputError: If the engine's server has no flag for it.
    """
    if not (query.hf_overrides or query.any_context):
        return record, ()
    if policy.family not in ("vllm", "sglang"):
        named = "hf-overrides" if query.hf_overrides else "any-context"
        raise InputError(f"{named}: found for {policy.label}; allowed: with --engine vllm or sglang")
    passed_over: tuple[NotFollowed, ...] = ()
    if query.hf_overrides:
        record, passed_over = overridden(query.hf_overrides, policy, record)
    if query.any_context:
        told = 0 if query.context_tokens is None else parsed("context", parse_tokens, query.context_tokens)
        if told <= record.context_tokens:
            said = "no effect with a context that the model supports"
            return record, (*passed_over, NotFollowed("--any-context", "", None, said))
        record = record.model_copy(update={"context_tokens": min(told, MAX_CONTEXT)})
    return record, passed_over


def _with_index_type(
    query: Query, engine: Engine, model: Model, device: Accelerator
) -> tuple[Model, tuple[NotFollowed, ...]]:
    """A model with the type of index keys that was asked for, where its class in vLLM takes one."""
    asked = query.indexer_kv_dtype
    if asked in (None, "auto"):
        return model, ()
    name = "index_keys_typed_on_amd" if device.vendor.upper() == "AMD" else "index_keys_typed"
    if not engine.lists(name, model.architecture):
        said = f"no effect: {engine.label} stores index keys of {model.architecture or model.id} in one type here"
        return model, (NotFollowed("--indexer-kv-dtype", asked, None, said),)
    return (with_precisions(model, (("index", "float8"),)) if asked == "fp8" else model), ()


def _sampler_not_followed(query: Query, engine: Engine, accelerator: Accelerator) -> list[str]:
    """That a sampler was asked for where the release, or the device, has one alone."""
    asked = query.sampler
    if asked in (None, "auto"):
        return []
    on_device = asked == "sort" or accelerator.vendor.upper() == "NVIDIA"
    if release_of(engine).has("sampler_by_installation") and on_device:
        return []
    return [f"sampler {asked}: not followed; {engine.label} has one sampler on {accelerator.name}"]


_SORTS: Final = {"sort": True, "flashinfer": False}
"""What ``--sampler`` says of sorting; nothing with ``auto``."""


def _unused(query: Query, engine: Engine, support: Support | None, nodes: int) -> tuple[NotFollowed, ...]:
    """What is given and not followed; options that the engine does not have are refused.

    Raises:
        InputError: If the engine has no such option, or a rank is given without adapters.
    """
    found = not_followed(query, engine, support, nodes=nodes)
    if query.mamba_ssm_cache_dtype not in (None, "auto") and not engine.device_classes:
        raise InputError(
            f"mamba-ssm-cache-dtype: found {query.mamba_ssm_cache_dtype} for {engine.label}; allowed with vLLM and "
            "SGLang, which have such a flag"
        )
    if query.sampler not in (None, "auto") and "sampler_by_installation" not in release_of(engine).values:
        raise InputError(
            f"sampler: found {query.sampler} for {engine.label}; allowed with vLLM, whose releases up to 0.16 have such a choice"
        )
    default = next(option.default for option in options() if option.name == "max_lora_rank")
    if query.max_lora_rank != default and not query.max_loras:
        raise InputError(
            f"max-lora-rank: found {query.max_lora_rank} without adapters; allowed with --max-loras of at least 1"
        )
    return found


_EXPERT_KERNELS: Final[dict[str, Any]] = read_table("kernels of experts")
"""What serves 4-bit experts by ``--moe-backend`` where they are padded in their own way or exchange tokens by themselves (0.33.0
``config/kernel.py``, ``MEGA_MOE_BACKENDS``; the last on AMD's devices). Others are not followed."""


def _with_kernel(query: Query, engine: Engine, assumed: list[str]) -> Engine:
    """The record with the kernels of MXFP4 experts that are asked for.

    Raises:
        InputError: If the engine has no such choice.
    """
    named = query.moe_backend
    if named in (None, "auto"):
        return engine
    if "moe_backend_flag" not in release_of(engine).values:
        raise InputError(
            f"moe-backend: found {shorten(named)} for {engine.label}; allowed with vLLM, which has such a choice"
        )
    kernel = _EXPERT_KERNELS.get(named)
    if kernel != named:
        followed = "not followed" if kernel is None else "experts take the tokens of their own rank alone"
        assumed.append(
            f"moe-backend {shorten(named)}: {followed}; experts are padded as by the release's own choice"
        )
    return engine.model_copy(update={"expert_kernel": kernel})


def _with_runner(
    query: Query, engine: Engine, draft: Draft | None, text_draft: str | None, assumed: list[str]
) -> Engine:
    """The record with the model runner that is asked for, or that a draft model is left to.

    Raises:
        InputError: If the engine has no such choice, or its release none yet.
    """
    release = release_of(engine)
    two = release.values.get("second_runner", "none") != "none"
    if query.model_runner in (None, "auto"):
        if draft is None and text_draft is None:
            return engine
        kind: DraftKind = "head" if draft is not None and is_head(draft) else "model"
        if text_draft is not None:
            kind = "suffix" if text_draft == "suffix" else "ngram"
        if not two or kind in release.names("second_runner_drafts"):
            return engine
        named = {"ngram": "n-grams", "suffix": "suffix decoding"}.get(kind, "draft models")
        assumed.append(f"first model runner: the second one has no {named} in this release")
        # The first runner takes no second step in flight beside drafts from the text (0.26.0 to 0.33.0 config/vllm.py).
        steps = {} if text_draft is None else {"steps_in_flight": 1}
        return engine.model_copy(update={"model_runner": "first", **steps})
    if not two:
        raise InputError(
            f"model-runner: found {query.model_runner} for {engine.label}; allowed with vLLM since 0.22, which has such a choice"
        )
    return engine.model_copy(update={"model_runner": query.model_runner})


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
    assumed: list[str],
) -> tuple[int, int]:
    """Tokens of a step and requests at once: as stated, or what the engine takes by itself, which is said."""
    tokens, rows = engine.scheduler(
        accelerator,
        max_batched_tokens=query.max_batched_tokens,
        max_seqs=query.max_seqs,
        context_tokens=context_tokens,
    )
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


def _text_draft(query: Query, engine: Engine) -> str | None:
    """The method that drafts from text where one is asked for; None otherwise.

    Raises:
        InputError: If the engine does not have it, or the number of tokens is not stated.
    """
    named = query.draft.lower() if isinstance(query.draft, str) else ""
    if named not in TEXT_DRAFTS:
        return None
    if not drafts_from_text(engine.family, named):
        having = " or ".join(ENGINES[family.replace("_", "-")] for family in TEXT_DRAFTS[named])
        raise InputError(
            f"draft: found {named} for {engine.label}; allowed with {having}, which have it, or a draft model"
        )
    if not query.num_speculative_tokens:
        raise InputError(
            f"draft: found {named} without a number of tokens; allowed: --num-speculative-tokens N"
        )
    return named


def _drafted(query: Query, draft: Draft | None, text_draft: str | None, assumed: list[str]) -> int:
    """Tokens drafted in a step; 0 without speculative decoding."""
    if draft is not None and not query.num_speculative_tokens:
        assumed.append("num-speculative-tokens 1: not stated")
        return 1
    return query.num_speculative_tokens if draft is not None or text_draft is not None else 0


def _draft(query: Query, target: Model, catalog: Catalog, assumed: list[str]) -> Draft | None:
    if query.draft is None and not query.num_speculative_tokens:
        return None
    if query.draft is None:
        if not any(row.component == "mtp" for row in target.weights):
            raise InputError(
                f"num-speculative-tokens: found {query.num_speculative_tokens} without a draft, and {target.id} has no "
                "prediction layers of its own; allowed: --draft MODEL, or --draft ngram for drafts from the text"
            )
        assumed.append(
            f"draft {OWN_DRAFT}: the checkpoint's own prediction layers, because no draft was named"
        )
        return with_draft(target, own_prediction_layer(target))
    if isinstance(query.draft, str) and query.draft.lower() == OWN_DRAFT:
        return with_draft(target, own_prediction_layer(target))
    try:
        draft = resolve_model(query.draft, catalog)
    except InputError as error:
        raise InputError(f"draft: {error}") from error
    return with_draft(target, draft)


ENCODES_VIDEOS: Final = "one_encoder_of_images_and_videos"
"""The engine's list of classes whose encoder of images reads videos, too."""


def _served(limits: Mapping[str, int], model: Model, engine: Engine) -> bool:
    """False where images are limited to none and nothing else is asked for: text only.

    Where one encoder reads images and videos, videos must be limited to none, too: it is left out only if it serves
    nothing (vLLM 0.15.1 to 0.33.0, ``models/interfaces.py``, ``_mark_tower_model``).
    """
    if limits.get("image") != 0 or any(limits.values()):
        return True
    return "video" not in limits and engine.lists(ENCODES_VIDEOS, model.architecture)


def _inputs(limits: Mapping[str, int] | Sequence[str] | str | None) -> dict[str, int]:
    """Inputs of a kind per prompt, as far as they are limited."""
    if limits is None:
        return {}
    if isinstance(limits, Mapping):
        pairs = {str(name): number for name, number in limits.items()}
    else:
        pairs = {}
        for text in [limits] if isinstance(limits, str) else limits:
            if text.lstrip().startswith("{"):
                pairs |= _inputs_in_json(text)
                continue
            for pair in text.split(","):
                name, mark, number = pair.partition("=")
                if not mark or not (number.isascii() and number.strip().isdigit() and len(number) < 10):
                    raise InputError(
                        f"limit-mm-per-prompt: found {shorten(text)}; allowed: KIND=N, such as image=2 or image=0,video=0"
                    )
                pairs[name.strip().lower()] = int(number)
    for name, value in pairs.items():
        if name not in ("image", "video", "audio"):
            raise InputError(f"limit-mm-per-prompt: found {shorten(name)}; allowed: image, video, audio")
        whole_number(f"limit-mm-per-prompt {name}", value, 0, 1 << 16)
    return pairs


def _inputs_in_json(text: str) -> dict[str, int]:
    """Limits as vLLM's own flag takes them: numbers by kind, or objects with a ``count``."""
    try:
        found = json.loads(text)
        stated = {name: each["count"] if isinstance(each, dict) else each for name, each in found.items()}
    except (ValueError, KeyError, AttributeError, RecursionError):
        stated = None
    if stated is None or not all(type(each) is int for each in stated.values()):
        raise InputError(
            f'limit-mm-per-prompt: found {shorten(text)}; allowed: KIND=N, such as image=2, or {{"image": 2}}'
        )
    return {name.lower(): each for name, each in stated.items()}


def refuse_unsupported(model: Model, engine: Engine, support: Support | None = None) -> None:
    """Refuse a model that the engine does not run.

    Args:
        model: The model.
        engine: The engine, whose release decides where ``support`` knows the class by releases.
        support: What engines' releases run on; None to take the model's record at its word.

    Raises:
        InputError: If the model's record says so, with its reason, or its weights are in another engine's format.
    """
    served = None if support is None else support.ruling(engine.family, engine.version).served
    for name in (
        () if served is not None and served.implements(model.architecture) else (engine.name, engine.family)
    ):
        if name in model.unsupported_by:
            raise InputError(f"engine: {engine.label} does not run {model.id}: {model.unsupported_by[name]}")
    reader = other_reader(engine, model.weight_format)
    if reader is not None:
        raise InputError(
            f"engine: {engine.label} does not run {model.id}: its weights are in {model.weight_format}, which "
            f"{reader} reads; allowed: {reader}, or the model it was made from"
        )


def refuse_class(model: Model, engine: Engine, support: Support | None) -> None:
    """Refuse a model whose class the engine's release does not serve, where no single deployment is asked for.

    Raises:
        InputError: With the release that has the class, or the nearest class that the release has.
    """
    lacking = (
        "" if support is None else lacks_class(support.ruling(engine.family, engine.version), engine, model)
    )
    if lacking:
        raise InputError(f"engine: {lacking}; allowed: an engine or a release that has it")


def storable_on(kv_format: KvFormat, accelerator: Accelerator) -> bool:
    """True if the accelerator can keep a cache in this format."""
    return kv_format.stored_by(accelerator.compute_capability, accelerator.vendor)


def as_declared(asked: KvFormat, model: Model, formats: Mapping[str, KvFormat]) -> KvFormat:
    """What a format means for a model that declares a packed layout of the same width: that layout.

    DeepSeek-V4 asked for FP8 keeps its own 584-byte states; there is no other FP8 cache of it.
    """
    own = formats.get(model.kv_format) if model.kv_format else None
    packed = own is not None and own.wide_rope_bytes > 0 and own.bits == asked.bits
    return own if own is not None and packed and not asked.wide_rope_bytes else asked


def automatic_kv_format(model: Model) -> str:
    """What ``auto`` means: the KV format that the checkpoint declares, else the served type."""
    if model.kv_format is not None:
        return model.kv_format
    return "bf16"
