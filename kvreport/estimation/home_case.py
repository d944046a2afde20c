"""A question for an engine that allocates everything at start, opened: the model with types, options, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.llama_cpp.inventory import prediction_tensors
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout, Setup, lay_out_local
from kvreport.accounting.engines.llama_cpp.local_model import Companions, LocalModel, prediction_model
from kvreport.accounting.engines.llama_cpp.network import Mixture
from kvreport.accounting.engines.llama_cpp.network_reader import DEFAULT_DRAFT_TOKENS, read_local
from kvreport.accounting.engines.llama_cpp.options import (
    DEFAULT_CACHE_RAM,
    DEFAULT_CHECKPOINTS,
    LocalOptions,
    parse_overrides,
)
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice, local_device, place
from kvreport.accounting.engines.llama_cpp.quantize import mix_name, quantized, with_mix
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp, confirmation, times_larger
from kvreport.accounting.engines.llama_cpp.search import (
    FIT_TARGET,
    Fitted,
    fit,
    in_part,
    longest_context,
    longest_of_slots,
    would_change,
)
from kvreport.accounting.support_lookup import nearest_class
from kvreport.accounting.text_drafts import LOCAL_TEXT_DRAFTS, TEXT_DRAFTS
from kvreport.architectures.gguf import GgufModel, read_gguf
from kvreport.architectures.gguf_projector import read_projector
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.local_architectures import LocalArchitecture, LocalArchitectures
from kvreport.catalog.model import Model
from kvreport.errors import InputError, shorten
from kvreport.estimation.commands import OWN_DRAFT
from kvreport.estimation.hardware import parsed
from kvreport.estimation.home_names import Named, is_gguf
from kvreport.estimation.named import resolve_model
from kvreport.estimation.request import Request
from kvreport.query import Query
from kvreport.resources import read_table
from kvreport.units import parse_bytes, parse_tokens

FOREIGN_ENGINES: Final[dict[str, str]] = read_table("foreign engines")
"""Forks whose rules differ from llama.cpp's, and how."""

HOST_MEMORY: Final = 64 << 30
"""Main memory of a computer with graphics cards, in bytes, where nobody states it: two modules of 32 GiB.

``home.HOST_BANDWIDTH`` assumes the same desktop with two channels. What stays on the CPU has to fit in it.
"""

_HALF: Final = ("auto", "fp16", "float16", "f16", "16bit", "half")
_OWN_BLOCKS: Final = "draft-mtp"


def refuse_forks(engine: object) -> None:
    """Refuse a fork of llama.cpp by name.

    Raises:
        InputError: With what differs, and the engine that is nearest.
    """
    if not isinstance(engine, str):
        return
    heard = engine.lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    for name, difference in FOREIGN_ENGINES.items():
        if heard.startswith(name):
            raise InputError(
                f"engine: found {shorten(engine)}, a fork of llama.cpp: {difference}; allowed: llama-cpp"
            )


def open_local(model: Model, weights: str | None, file: GgufModel | None) -> tuple[LocalModel, str]:
    """A model with a type for every tensor.

    Raises:
        InputError: If llama.cpp does not convert the model's class, or there is no such mix.
    """
    known = LocalArchitectures.need()
    if file is not None:
        # A file may carry an architecture that the table lacks; its tensors say enough.
        own = known.by_name.get(file.architecture)
        architecture = own or LocalArchitecture(name=file.architecture, classes=(file.architecture,))
        kept = tuple(tensor for tensor in file.tensors if tensor.layer < model.layer_count)
        read = read_local(model, architecture, kept)
        network = replace(read.network, prediction_layers=file.prediction_layers)
        return replace(read, network=network), "file"
    if model.architecture not in known.by_class:
        near = nearest_class(model.architecture, known.by_class)
        raise InputError(
            f"engine: llama.cpp {known.build} converts no {model.architecture}; "
            f"allowed: a class of its conversion scripts{f' (the nearest is {near})' if near else ''}, or a GGUF file"
        )
    local = read_local(model, known.by_class[model.architecture])
    mix = _released_mix(model) if weights is None or weights.lower() == RELEASED else mix_name(weights)
    return with_mix(local, mix), mix


def _released_mix(model: Model) -> str:
    """What a checkpoint is converted to without quantizing: its own 4-bit experts, else 16 bits."""
    return "mxfp4" if model.weight_format == "mxfp4" else "bf16"


def options_of(query: Query, context: int) -> LocalOptions:
    """llama.cpp's options from a question.

    Raises:
        InputError: If an option cannot be read.
    """
    named = query.kv.lower()
    usual = "f16" if named in _HALF else ("bf16" if named == "bfloat16" else named)
    ubatch = query.ubatch_size or 512
    return LocalOptions(
        context=context,
        parallel=query.parallel,
        unified=query.kv_unified,
        type_k=(query.cache_type_k or usual).lower(),
        type_v=(query.cache_type_v or usual).lower(),
        ubatch=ubatch,
        batch=query.batch_size or max(2048, ubatch),
        flash=query.flash_attn or "auto",  # type: ignore[arg-type]
        swa_full=query.swa_full,
        gpu_layers=query.n_gpu_layers,
        cpu_moe=1 << 16 if query.cpu_moe else query.n_cpu_moe or 0,
        split_mode=query.split_mode or "layer",  # type: ignore[arg-type]
        tensor_split=_shares(query.tensor_split),
        main_gpu=query.main_gpu or 0,
        kv_offload=not query.no_kv_offload,
        op_offload=not query.no_op_offload,
        overrides=parse_overrides(_texts(query.override_tensor)),
        draft=_draft_tokens(query),
        mtp=query.spec_type == _OWN_BLOCKS,
        ngram=query.spec_type if query.spec_type and query.spec_type in LOCAL_TEXT_DRAFTS else "",
        ubatch_given=query.ubatch_size is not None,
        cache_ram=DEFAULT_CACHE_RAM if query.cache_ram is None else size_of("cache-ram", query.cache_ram),
        checkpoints=DEFAULT_CHECKPOINTS if query.ctx_checkpoints is None else query.ctx_checkpoints,
    )


def _draft_tokens(query: Query) -> int:
    """Tokens drafted in a step; 0 without speculative decoding.

    Raises:
        InputError: If a number is stated, and nothing drafts or the method has a number of its own.
    """
    stated, text = query.num_speculative_tokens, LOCAL_TEXT_DRAFTS.get(query.spec_type or "")
    if text is not None:
        usual, flag = text
        if stated not in (0, usual) and not flag:
            raise InputError(
                f"num-speculative-tokens: found {stated} with {query.spec_type}; allowed: {usual}, which is fixed"
            )
        return stated or usual
    if query.draft is None and query.spec_type not in (_OWN_BLOCKS, "draft-simple"):
        if stated:
            raise InputError(
                f"num-speculative-tokens: found {stated} without a draft; allowed with --draft MODEL, or with --spec-type "
                f"{_OWN_BLOCKS} or {next(iter(LOCAL_TEXT_DRAFTS))}"
            )
        return 0
    return stated or DEFAULT_DRAFT_TOKENS


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(one) for one in value)  # type: ignore[attr-defined]


def _shares(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        found = tuple(float(part) for part in text.replace("/", ",").split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0 or sum(found) <= 0 or max(found) > 1e12:
        raise InputError(f"tensor-split: found {shorten(text)}; allowed: one number per GPU, such as 3,1")
    return found


def size_of(field: str, text: str | int) -> int:
    """Bytes of an option; 0 is allowed.

    Raises:
        InputError: If the text is no size.
    """
    return 0 if str(text).strip() == "0" else parsed(field, parse_bytes, text)


def devices_of(request: Request) -> tuple[LocalDevice, ...]:
    """Devices as llama.cpp finds them: one for each GPU that was named."""
    wanted = max(request.layout.devices, len(request.accelerators))
    named = request.accelerators * (wanted if len(request.accelerators) == 1 else 1)
    return tuple(
        replace(
            local_device(one, request.engine.coefficients),
            name=f"{one.id}:{index}",
            usable=one.usable_bytes - request.held_bytes,
            shared=None if one.shared_bytes is None else one.shared_bytes - request.held_bytes,
        )
        for index, one in enumerate(named[:wanted])
    )


@dataclass(frozen=True, kw_only=True)
class LocalCase(Setup):
    """A question with everything that its parts share."""

    request: Request  # The question, resolved.
    query: Query  # The question as it was asked.
    mix: str  # The quantization mix; ``file`` for a GGUF file's own types.
    file: GgufModel | None = None  # The GGUF file, if the model is one.
    named: Named = field(default_factory=Named)  # What the model's name was taken to say.
    asked: LocalOptions | None = None  # The options as asked, where ``--fit`` changed them; None otherwise.

    @property
    def is_unified(self) -> bool:
        """True if a device computes in the computer's own memory."""
        return any(device.shared is not None for device in self.devices)

    @property
    def host_memory_assumed(self) -> bool:
        """True if nobody stated the main memory of a computer with cards of their own."""
        return self.query.host_memory is None and not self.is_unified

    @property
    def expert_layers_on_host(self) -> int:
        """Layers on a device whose routed experts, or some of them, are on the host."""
        where = place(self.local.network, self.options, self.devices)
        return sum(
            isinstance(block.feed, Mixture)
            and home != where.cpu
            and where.cpu in (feed.up, feed.gate, feed.down)
            for block, home, feed in zip(self.local.network.blocks, where.layers, where.experts, strict=True)
        )

    def host_room(self, layout: LocalLayout) -> int | None:
        """Bytes of main memory that are left at start; None where nobody knows how many there are."""
        if self.is_unified:
            return max(0, *(one.shared - one.beside - one.total for one in layout.devices if one.shared))
        return None if layout.host.usable is None else max(0, layout.host.usable - layout.host.total)

    def outgrown(self, layout: LocalLayout) -> tuple[int, int] | None:
        """What prompt cache and checkpoints may take as the server runs, and the main memory left for them, where it is less."""
        room, most = self.host_room(layout), layout.host.prompt_cache + layout.host.checkpoints
        return None if room is None or most <= room else (most, room)

    @property
    def states_growth(self) -> bool:
        """True if the question says how much the prompt cache or checkpoints may take."""
        return self.query.cache_ram is not None or self.query.ctx_checkpoints is not None

    @cached_property
    def compute_factor(self) -> float:
        """How many times ours the compute buffers may be, by the check and by what was reported."""
        times, reported = times_larger(self.local.architecture), self.local.architecture.compute_reported
        if reported is None or reported.model != self.local.model.id:
            return times
        options = LocalOptions(context=reported.context_tokens, parallel=1)
        device = LocalDevice("device", 1 << 60, offloads=False)
        ours = lay_out_local(self.local, options, (device,)).devices[0].compute
        return max(times, reported.bytes / max(ours, 1))

    @property
    def confirmation(self) -> str:
        """What has to be said of the compute buffers; empty where the check agrees."""
        return confirmation(self.local.architecture, self.compute_factor)

    @property
    def assumed_mix(self) -> str:
        """Why the weights have the types they have where nobody named a mix."""
        engine = rules(self.request.engine)
        return engine.reason_of_mix(self.request.model) if isinstance(engine, LlamaCpp) else ""

    @property
    def engine_sets_context(self) -> bool:
        """True if the engine names a context by itself (Ollama), so that ``--fit`` leaves it."""
        engine = rules(self.request.engine)
        return isinstance(engine, LlamaCpp) and engine.fits_by_itself

    def longest(self) -> int:
        """The longest context of a request that fits with these flags, in every slot that has cells of its own."""
        if self.options.is_unified or self.options.slots == 1:
            return longest_context(self)
        return longest_of_slots(self, self.options.slots)

    @property
    def fit_target(self) -> int:
        """Bytes that ``--fit`` leaves free on each device."""
        return FIT_TARGET if self.query.fit_target is None else size_of("fit-target", self.query.fit_target)

    def fitted(self) -> Fitted:
        """What ``--fit`` would choose."""
        stated = self.query.context_tokens is not None or self.query.ctx_size is not None
        return fit(self, target=self.fit_target, context_given=stated or self.engine_sets_context)

    def as_started(self) -> LocalCase:
        """The same as the engine lays it out by itself: Ollama leaves all placing to ``--fit``."""
        return (
            replace(self, options=self.fitted().options, asked=self.options)
            if self.engine_sets_context
            else self
        )

    def keeps_layers(self, layout: LocalLayout) -> bool:
        """True if llama.cpp starts as it was laid out, though ``--fit`` changes what was not stated."""
        ran = self.asked is not None or self.engine_sets_context
        return ran or not would_change(self, layout, self.fit_target)

    def as_mix(self, mix: str) -> LocalCase:
        """The same with another quantization mix; a file keeps its own types."""
        return self if self.mix == "file" else replace(self, local=with_mix(self.local, mix), mix=mix)

    def in_part(self) -> LocalCase | None:
        """The same with the fewest experts, or else layers, in host memory; None where neither helps."""
        changed = in_part(self)
        return replace(self, options=replace(self.options, **changed)) if changed else None  # type: ignore[arg-type]


def open_case(request: Request, query: Query, file: GgufModel | None, catalog: Catalog) -> LocalCase:
    """Open a question.

    Raises:
        InputError: What the engine refuses.
    """
    engine = rules(request.engine)
    usual = engine.usual_mix(request.model) if isinstance(engine, LlamaCpp) and file is None else None
    local, mix = open_local(request.model, query.weights or usual, file)
    devices = devices_of(request)
    asked = 0 if query.context_tokens is None else request.context_tokens
    options = options_of(query, asked if query.ctx_size is None else parse_tokens(query.ctx_size))
    if query.ctx_size is None and not options.is_unified:
        options = replace(options, context=asked * options.slots)  # -c is divided among slots of their own
    local = replace(local, companions=_companions(query, local, mix, file, catalog, request.engine.label))
    if local.companions.prediction is not None and file is None:
        count = len(local.companions.prediction.network.blocks)
        local = replace(local, network=replace(local.network, prediction_layers=count))
    if isinstance(engine, LlamaCpp):
        memory = sum(device.usable for device in devices)
        options = engine.local_options(options, request.model, memory, local.tensors, local.architecture.name)
    if query.context_tokens is None and options.context:
        share = options.context // (1 if options.is_unified else options.slots)
        # llama-server: no slot is longer than the model was trained for (tools/server/server-context.cpp).
        request = replace(request, context_tokens=max(1, min(share, request.model.context_tokens)))
    options = replace(options, context=options.context or request.context_tokens)
    return LocalCase(
        local,
        options,
        devices,
        _host_memory(query, devices),
        request=request,
        query=query,
        mix=mix,
        file=file,
    )


def _host_memory(query: Query, devices: Sequence[LocalDevice]) -> int | None:
    """Main memory for what stays on the CPU, in bytes: as stated, else a usual size.

    None where a device computes in that memory and nobody stated more: what both hold is bounded there.
    """
    if query.host_memory is not None:
        return size_of("host-memory", query.host_memory)
    return None if any(device.shared is not None for device in devices) else HOST_MEMORY


def _companions(
    query: Query, local: LocalModel, mix: str, file: GgufModel | None, catalog: Catalog, engine: str
) -> Companions:
    projector = None if query.mmproj is None else read_projector(query.mmproj)
    if query.spec_type == "draft-simple" and query.draft is None:
        raise InputError("spec-type: found draft-simple without a draft model; allowed: --draft MODEL")
    draft = None
    if isinstance(query.draft, str) and query.draft.lower() in (*TEXT_DRAFTS, OWN_DRAFT):
        raise InputError(
            f"draft: found {query.draft} for {engine}; allowed: a model, or --spec-type "
            f"{next(iter(LOCAL_TEXT_DRAFTS))} or {_OWN_BLOCKS}"
        )
    if query.draft is not None:
        own = read_gguf(str(query.draft)) if is_gguf(query.draft) else None
        model = own.model if own is not None else resolve_model(query.draft, catalog)
        draft, _ = open_local(model, None if mix == "file" else mix, own)
    prediction = None
    if query.spec_type == _OWN_BLOCKS:
        prediction = _prediction(local, mix, file)
    return Companions(draft, prediction, projector, query.no_mmproj_offload)


def _prediction(local: LocalModel, mix: str, file: GgufModel | None) -> LocalModel:
    if file is not None:
        tensors = tuple(tensor for tensor in file.tensors if tensor.layer >= local.model.layer_count)
    else:
        tensors = quantized(prediction_tensors(local.model), mix, layers=local.model.layer_count)
    found = prediction_model(local, tensors)
    if found is None:
        raise InputError(
            f"spec-type: {local.model.id} has no prediction blocks; allowed: none, or --draft with another model"
        )
    return found
