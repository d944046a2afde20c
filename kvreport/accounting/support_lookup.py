"""Whether an engine's release runs a model and its formats on a device: a pure look-up in ``support.yaml`` and ``classes.yaml``.

What no rule names is not judged: the answer is then that nothing speaks against it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvreport.accounting.alignment import cut_block
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.case import Launch
from kvreport.accounting.compute_type import CUDA, FLOAT32, PLAIN_FORMATS, WIDE, computed_in, lacks_type
from kvreport.accounting.extras import drafts_itself
from kvreport.accounting.parallel import Layout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import FullAttention, SlidingWindow
from kvreport.catalog.engine import Engine
from kvreport.catalog.engine_classes import TRANSFORMERS, EngineClasses, lists_classes, release_key
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.release import trait
from kvreport.catalog.remembered import remembered
from kvreport.catalog.server_flags import flag_names
from kvreport.catalog.support import (
    DeviceRule,
    FormatRule,
    Lacking,
    Ruling,
    Support,
    numbers,
    within,
)
from kvreport.words import format_name


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a release runs a combination."""

    # What it is refused with; None if nothing speaks against it.
    verdict: Literal["engine_does_not_run", "format_not_supported"] | None = None
    reason: str = ""  # Why, or what weight-only means here; empty if there is nothing to say.

    @property
    def code(self) -> int:
        """The verdict's code of :class:`kvreport.accounting.capacity.Verdict`; 0 for none."""
        return 0 if self.verdict is None else int(Verdict[self.verdict.upper()])


RUNS: Final = Judgement()


def _out(reason: str) -> Judgement:
    return Judgement("engine_does_not_run", reason=reason)


def _unread(reason: str) -> Judgement:
    return Judgement("format_not_supported", reason=reason)


def judge(
    launch: Launch, accelerator: Accelerator, model: Model, weight_format: WeightFormat | None = None
) -> Judgement:
    """Say whether an engine's release runs a model on a device as it is started; without rules, nothing speaks against it."""
    if launch.support is None:
        return RUNS
    ruling = launch.support.ruling(launch.engine.family, launch.engine.version)
    on_device = _on_device(ruling, launch, accelerator, model, weight_format)
    if on_device.verdict is not None:
        return on_device
    alone = _alone(ruling, launch, accelerator, model)
    if alone.verdict is not None:
        return alone
    spread = _spread(ruling, launch, model, weight_format)
    return on_device if spread.verdict is None else spread


def on_accelerator(support: Support | None, engine: Engine, accelerator: Accelerator) -> Judgement:
    """Say whether an engine's release runs on an accelerator at all, whatever the model.

    ``support``: the rules; None for a catalog without any, where nothing is refused. ``engine``: the
    engine's record; its family and release decide.
    """
    if support is None:
        return RUNS
    return _device(support.ruling(engine.family, engine.version).rules.devices, engine, accelerator)


def _on_device(
    ruling: Ruling, launch: Launch, accelerator: Accelerator, model: Model, weight_format: WeightFormat | None
) -> Judgement:
    """The part of a judgement that no layout changes."""
    engine = launch.engine
    runs = _device(ruling.rules.devices, engine, accelerator)
    if runs.verdict is not None:
        return runs
    lacking = lacks_class(ruling, engine, model)
    if lacking:
        return _out(lacking)
    form = model.weight_format if weight_format is None else weight_format.name
    refused = _type(ruling, engine, accelerator, model, form, launch.dtype) or _attention(
        ruling, engine, accelerator, model
    )
    if refused is not None:
        return refused
    cached = None if launch.kv_format is None else launch.kv_format.name
    kept = _format(ruling.rules.kv, engine, accelerator, model, cached, "a cache in ")
    stored = _format(rules_of(ruling, model), engine, accelerator, model, form)
    return stored if stored.verdict is not None or kept.verdict is None else kept


_IN_BACKEND: Final = frozenset({"full", "sliding"})
"""Kinds of caches that vLLM's and SGLang's Transformers backends keep: every layer has to attend through the attention
interface (vLLM 0.33.0 ``models/transformers/base.py::_create_attention_instances``)."""


def _in_backend(ruling: Ruling, model: Model) -> bool:
    if not cache_kinds(model) <= _IN_BACKEND:
        return False
    if ruling.family is None or not trait(ruling.family.family, "backend_has_one_shape"):
        return True
    kinds = (FullAttention, SlidingWindow)
    shapes = {
        (one.kv_heads, one.key_dim, one.value_dim) for one in model.every_cache if isinstance(one, kinds)
    }
    return len(shapes) <= 1


def _serves(ruling: Ruling, model: Model) -> Literal["own", "backend", "no", "unknown"]:
    """Whether a release has the class of a model, or runs it through its Transformers backend.

    vLLM tries the backend for what its registry does not list (``registry.py::_try_resolve_transformers``), SGLang for what
    no ``EntryClass`` names (``model_loader/utils.py::resolve_transformers_arch``).
    """
    served = ruling.served
    if served is None:
        return "unknown"
    name = model.architecture
    if served.implements(name):
        return "own"
    if name in served.backend or (_in_transformers(ruling, name) and _in_backend(ruling, model)):
        return "backend"
    return "no"


def _in_transformers(ruling: Ruling, name: str) -> bool:
    """Whether the release of transformers that an engine's release came with has a class that the backend can run."""
    backed = _backed(ruling)
    able = None if backed is None or ruling.served is None else backed.served(ruling.served.transformers)
    return able is not None and name in able.backend


def _backed(ruling: Ruling) -> EngineClasses | None:
    """The lists of transformers, where the release has a backend that runs what it does not list."""
    if ruling.lists is None or ruling.served is None or not ruling.served.transformers:
        return None
    return ruling.lists.of(TRANSFORMERS)


def _able_from(ruling: Ruling, name: str) -> str | None:
    """The first release of transformers, of those read, whose class the backend could run; None if none has it."""
    backed = _backed(ruling)
    states = () if backed is None else backed.states()
    return next((state.release for state in states if name in state.backend), None)


def lacks_class(ruling: Ruling, engine: Engine, model: Model) -> str:
    """Say that a release does not serve the class of a model, and what is nearest; empty if it does or no list says it."""
    if _serves(ruling, model) != "no" or ruling.family is None or ruling.served is None:
        return ""
    name, listed = model.architecture, ruling.family
    found = f"{engine.label} does not have the class {name}"
    spans = listed.spans(name)
    if spans:
        found += f": releases {' and '.join(_span(*span) for span in spans)} do"
    else:
        near = nearest_class(name, ruling.served.own)
        found += f"; the nearest that it has is {near}" if near else ""
    able = _able_from(ruling, name)
    if able is not None and not _in_backend(ruling, model):
        found += ". Its Transformers backend runs only models with attention in every layer"
        found += ", and with the same heads in all of them" if cache_kinds(model) <= _IN_BACKEND else ""
    elif able is not None:
        found += (
            f". Its Transformers backend may with transformers {able} or newer; kvreport does not check this"
        )
    if listed.outside is not None:
        found += f". {listed.outside}"
    if engine.version is not None and release_key(engine.version) > release_key(listed.newest):
        found += f" (the newest release that was read is {listed.newest})"
    return found


def _span(first: str, last: str | None) -> str:
    if last is None:
        return f"from {first} on"
    return first if first == last else f"from {first} to {last}"


_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+|[0-9]+")
_TASK: Final = re.compile(r"(?:For[A-Z]\w*|LMHeadModel|Model)$")
_LEAST_LETTERS: Final = 3
"""Letters of a first word that names a family: shorter ones (``GPT`` aside) are shared by chance."""


def nearest_class(name: str, classes: Collection[str]) -> str | None:
    """The class of the same family that has most words of a name in common, in order; None if none is of its family."""

    def words(text: str) -> list[str]:
        return _WORDS.findall(_TASK.sub("", text))

    own = words(name)
    if not own or len(own[0]) < _LEAST_LETTERS:
        return None
    task = _TASK.search(name)
    alike: list[tuple[int, bool, int, str]] = []
    for other in classes:
        theirs = words(other)
        common = next(
            (n for n, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]),
            min(len(own), len(theirs)),
        )
        if common:
            same = task is not None and other.endswith(task[0])
            alike.append((common, same, -len(theirs), other))
    return max(alike)[-1] if alike else None


def class_note(support: Support | None, engine: Engine, model: Model) -> str:
    """What an answer has to say of a model's class: that it was not checked, or that a backend runs it; empty otherwise.

    ``support``: the rules; None for a catalog without any.
    """
    if not lists_classes(engine):
        return ""
    ruling = None if support is None else support.ruling(engine.family, engine.version)
    serves = "unknown" if ruling is None else _serves(ruling, model)
    if ruling is None or serves == "unknown":
        return f"class {model.architecture}: not checked, no list says which classes {engine.label} serves"
    if serves == "backend" and ruling.served is not None:
        by = f" (transformers {ruling.served.transformers})" if ruling.served.transformers else ""
        return (
            f"class {model.architecture}: {engine.label} runs it through its Transformers backend{by}; memory is computed as "
            "for a native implementation, which is not checked"
        )
    return ""


def _type(
    ruling: Ruling, engine: Engine, accelerator: Accelerator, model: Model, form: str, dtype: str | None
) -> Judgement | None:
    computed = computed_in(ruling, accelerator, model, form, dtype)
    for rule in ruling.rules.types:
        if rule.dtype == computed and lacks_type(rule, accelerator):
            starts = FLOAT32 if model.architecture in ruling.unstable else "float16"
            return _out(
                f"{engine.label} computes in {computed} from compute capability {rule.minimum}; {accelerator.name} "
                f"has {accelerator.compute_capability} (--dtype {starts} starts)"
            )
    if computed == "float16" and model.architecture in ruling.unstable:
        return _out(
            f"{engine.label} does not compute {model.architecture} in float16, for its numerical instability "
            "(--dtype bfloat16 starts, or float32 where the device lacks it)"
        )
    if computed == FLOAT32 and ruling.rules.types and form not in (WIDE, *PLAIN_FORMATS):
        return _unread(
            f"{engine.label} would compute {model.architecture or model.id} in float32 on {accelerator.name}, and "
            f"{format_name(form)} weights need a 16-bit type"
        )
    if computed == FLOAT32 and form in PLAIN_FORMATS:
        return _unread(
            f"{engine.label} computes {model.architecture} in float32 on {accelerator.name}: its weights and its "
            f"cache take twice the 16-bit size (--weights {WIDE} --kv {WIDE})"
        )
    return None


def _attention(ruling: Ruling, engine: Engine, accelerator: Accelerator, model: Model) -> Judgement | None:
    if accelerator.vendor != CUDA or accelerator.compute_capability is None:
        return None
    own, kinds = numbers(accelerator.compute_capability), cache_kinds(model)
    for rule in ruling.rules.attention:
        if kinds.issuperset(rule.caches) and own[0] not in rule.generations:
            allowed = ", ".join(f"{one}.x" for one in rule.generations)
            return _out(
                f"{engine.label} has kernels for sparse attention over latents only for compute "
                f"capability {allowed}; {accelerator.name} has {accelerator.compute_capability}"
            )
    return None


_LACKING: Final[Mapping[Lacking, str]] = {
    "pipeline": "in pipeline stages",
    "data": "on several data-parallel ranks",
    "expert": "with experts divided over ranks",
    "decode_context": "with a cache's tokens divided over ranks",
    "lora": "with LoRA adapters",
    "speculative_pipeline": "in pipeline stages with speculative decoding",
}


def _spread(ruling: Ruling, launch: Launch, model: Model, weight_format: WeightFormat | None) -> Judgement:
    """The part of a judgement that no device changes: stages, adapters, blocks that ranks cut."""
    engine, layout, lora_rank = launch.engine, launch.layout, launch.lora_rank
    drafts = launch.serving.draft_tokens > 0
    wanted: dict[Lacking, bool] = {
        "pipeline": layout.pipeline > 1,
        "data": layout.data > 1,
        "expert": layout.expert and bool(model.experts),
        "decode_context": layout.decode_context > 1,
        "lora": lora_rank > 0,
        "speculative_pipeline": layout.pipeline > 1 and drafts,
    }
    for rule in ruling.rules.lacks:
        if wanted[rule.lacks] and rule.names(model.architecture):
            what = "models" if rule.architectures is None else model.architecture
            return _out(f"{engine.label} does not run {what} {_LACKING[rule.lacks]}")
    # Neither engine gives such a class a draft class (vLLM 0.33.0 ``config/speculative.py::hf_config_override``, SGLang 0.5.23
    # ``configs/model_config.py::_config_draft_model``), and those of transformers do not load prediction layers.
    if drafts and drafts_itself(model) and _serves(ruling, model) == "backend":
        return _out(
            f"{engine.label} runs {model.architecture} through its Transformers backend, which has no MTP layers"
        )
    for ranks in ruling.rules.lora_ranks:
        if lora_rank and lora_rank not in ranks.ranks:
            allowed = ", ".join(map(str, ranks.ranks))
            return _out(f"{engine.label} takes --max-lora-rank {allowed}; found {lora_rank}")
    cut = cut_block(ruling.rules.alignment, model, weight_format, launch.formats, layout)
    return RUNS if cut is None else _unread(f"{engine.label}: {cut}")


def _machine(accelerator: Accelerator, layout: Layout) -> Judgement:
    """Whether so many devices stand in so many machines, where a device is a computer's own chip."""
    held = accelerator.most_per_machine * layout.nodes
    if not accelerator.is_computer or layout.devices <= held:
        return RUNS
    return _out(
        f"{layout.devices} x {accelerator.name} are {layout.devices // accelerator.most_per_machine} machines "
        f"(--nodes {layout.devices // accelerator.most_per_machine}), not {layout.nodes}"
    )


def _alone(ruling: Ruling, launch: Launch, accelerator: Accelerator, model: Model) -> Judgement:
    """What a layout asks of a device, whatever the formats: to stand in so many machines, and to join contexts."""
    machine = _machine(accelerator, launch.layout)
    return machine if machine.verdict is not None else _joined(ruling, launch, accelerator, model)


def _joined(ruling: Ruling, launch: Launch, accelerator: Accelerator, model: Model) -> Judgement:
    """Whether a device's kernels join the parts that ranks hold of a context."""
    engine, layout = launch.engine, launch.layout
    parts = layout.decode_context
    if parts == 1:
        return RUNS
    own, kinds = accelerator.compute_capability, cache_kinds(model)
    heads = -(-model.attention_heads // layout.tensor)
    for rule in ruling.rules.contexts:
        if accelerator.vendor not in rule.vendors or not kinds.issuperset(rule.caches):
            continue
        if rule.generations and (own is None or numbers(own)[0] not in rule.generations):
            continue
        if rule.most_heads is None or heads >= (rule.own_heads or heads + 1):
            return _out(
                f"{engine.label} divides no contexts of {model.id} on {accelerator.name}: its attention kernels there do "
                f"not return what ranks need to join their parts ({flag_names('vllm')['data_parallel']} stores a context once, too)"
            )
        if heads * parts > rule.most_heads:
            most = rule.most_heads // heads
            return _out(
                f"{engine.label} joins at most {rule.most_heads} query heads on {accelerator.name}; {parts} ranks have "
                f"{heads} each ({flag_names('vllm')['decode_context_parallel']} {most} starts)"
            )
    return RUNS


def alone_codes(
    launch: Launch, support: Support, accelerators: Sequence[Accelerator], model: Model
) -> list[int]:
    """The codes of what a layout asks of a device, whatever the formats, one for each device."""
    layout = launch.layout
    if layout.decode_context > 1:
        ruling = support.ruling(launch.engine.family, launch.engine.version)
        return [_alone(ruling, launch, device, model).code for device in accelerators]
    known = support.judged.setdefault(("machines", layout.devices, layout.nodes), {})
    rows = []
    for device in accelerators:
        kind = (device.form_factor, device.devices_per_node)
        if kind not in known:
            known[kind] = [_machine(device, layout).code]
        rows += known[kind]
    return rows


def spread_codes(
    launch: Launch, support: Support, model: Model, weight_formats: Sequence[WeightFormat | None]
) -> list[int]:
    """The codes of what a release refuses of a layout, one for each weight format, whatever the device."""
    ruling = support.ruling(launch.engine.family, launch.engine.version)
    return [_spread(ruling, launch, model, form).code for form in weight_formats]


def codes(
    launch: Launch,
    support: Support,
    accelerators: Sequence[Accelerator],
    model: Model,
    weight_formats: Sequence[WeightFormat | None],
) -> list[list[int]]:
    """The codes of :func:`judge` for one device each, a row for each device and a column for each weight format.

    Devices of one maker, capability and architecture are judged once. :func:`spread_codes` has what a layout adds.
    """
    engine = launch.engine
    ruling = support.ruling(engine.family, engine.version)
    # What a judgement asks of a model; a catalog has few different answers.
    listed = {name for rule in ruling.rules.weights for name in rule.architectures or ()}
    asked = (
        engine.family,
        engine.version,
        _serves(ruling, model),
        model.architecture if model.architecture in listed else None,
        model.architecture in ruling.unstable,
        model.weight_format,
        # Both: a type that is asked for is refused where the checkpoint's own would fall back to another.
        model.dtype,
        launch.dtype,
        bool(model.experts),
        cache_kinds(model),
        tuple(None if form is None else form.name for form in weight_formats),
        None if launch.kv_format is None else launch.kv_format.name,
    )
    known = support.judged.setdefault(asked, {})
    rows = []
    for device in accelerators:
        kind = (device.vendor, device.compute_capability, device.architecture)
        if kind not in known:
            known[kind] = [_on_device(ruling, launch, device, model, form).code for form in weight_formats]
        rows.append(known[kind])
    return rows


def device_signature(support: Support, engine: Engine, accelerator: Accelerator) -> tuple[bool, ...]:
    """What decides a device's refusals: devices of one signature are refused the same models and formats.

    Whether the device itself, and each rule of attention and of formats, lets it run.
    """
    ruling = support.ruling(engine.family, engine.version)
    runs = _device(ruling.rules.devices, engine, accelerator).verdict is None
    own = accelerator.compute_capability
    formats = (*ruling.rules.kv, *ruling.rules.weights)
    if accelerator.vendor != CUDA or own is None:
        return (runs, *(_refusal(rule, accelerator) is None for rule in formats))
    capability = numbers(own)
    return (
        runs,
        *(capability[0] in rule.generations for rule in ruling.rules.attention),
        *(within(rule, capability) for rule in ruling.rules.types),
        *(_refusal(rule, accelerator) is None for rule in formats),
    )


def rules_of(ruling: Ruling, model: Model) -> tuple[FormatRule, ...]:
    """The rules of weight formats that are about a model, by whether it has routed experts."""
    return tuple(
        rule
        for rule in ruling.rules.weights
        if not (rule.dense if model.experts is not None else rule.experts)
    )


@remembered
def cache_kinds(model: Model) -> frozenset[str]:
    """The kinds of caches that a model has."""
    return frozenset(cache.kind for cache in model.every_cache)


def _device(rules: Sequence[DeviceRule], engine: Engine, accelerator: Accelerator) -> Judgement:
    for rule in rules:
        if accelerator.vendor in rule.vendors and accelerator.architecture not in rule.not_architectures:
            reason = _against(rule, accelerator)
            return (
                RUNS
                if reason is None
                else _out(f"{engine.label} does not run on {accelerator.name}: {reason}")
            )
    return RUNS


def _against(rule: DeviceRule, accelerator: Accelerator) -> str | None:
    """Why a rule refuses a device of its makers; None if it does not, or if the capability is not known."""
    if not rule.runs:
        return rule.reason
    own = accelerator.compute_capability
    if own is None:
        return None
    if rule.capabilities and own not in rule.capabilities:
        return f"it is {own}, and the release is built for {', '.join(rule.capabilities)}"
    if rule.minimum is not None and numbers(own) < numbers(rule.minimum):
        return f"its compute capability is {own}, and the release needs {rule.minimum}"
    if rule.maximum is not None and numbers(own) > numbers(rule.maximum):
        return f"its compute capability is {own}, and the release has kernels up to {rule.maximum}"
    return None


def _format(
    rules: Sequence[FormatRule],
    engine: Engine,
    accelerator: Accelerator,
    model: Model,
    form: str | None,
    what: str = "",
) -> Judgement:
    own = accelerator.compute_capability
    if form is None:
        return RUNS
    found, kinds = RUNS, cache_kinds(model)
    for rule in rules:
        if not rule.names(form) or (rule.caches and kinds.isdisjoint(rule.caches)):
            continue
        if rule.architectures is not None:
            if accelerator.vendor in rule.vendors and model.architecture not in rule.architectures:
                return _unread(
                    f"{engine.label} does not read {format_name(form)} weights of the class {model.architecture}"
                )
            continue
        reason = _refusal(rule, accelerator)
        if reason is not None:
            verb = "does not run" if not rule.runs else "runs"
            return _unread(f"{engine.label} {verb} {what}{form}{reason}")
        if own is not None and rule.native is not None and numbers(own) < numbers(rule.native):
            found = Judgement(
                None,
                f"{accelerator.name} has no {format_name(form)} arithmetic: {engine.label} keeps the weights in {format_name(form)} and "
                "dequantizes them to 16 bits (same memory, 16-bit compute rate)",
            )
    return found


def _refusal(rule: FormatRule, accelerator: Accelerator) -> str | None:
    """How a sentence about a refused format ends; None if the rule lets the device run it or is not about it."""
    own = accelerator.compute_capability
    if accelerator.vendor not in rule.vendors:
        return None
    if not rule.runs:
        return f": {rule.reason}"
    if own is None:
        return None
    has = (
        f"; {accelerator.name} has {own}" if accelerator.vendor == CUDA else f"; {accelerator.name} is {own}"
    )
    if rule.capabilities and own not in rule.capabilities:
        return f" on {', '.join(rule.capabilities)} only{has}"
    if accelerator.vendor != CUDA:
        return None
    if rule.generations and numbers(own)[0] not in rule.generations:
        return f" for compute capability {', '.join(f'{one}.x' for one in rule.generations)} only{has}"
    if rule.minimum is not None and numbers(own) < numbers(rule.minimum):
        return f" from compute capability {rule.minimum}{has}"
    if rule.maximum is not None and numbers(own) > numbers(rule.maximum):
        return f" up to compute capability {rule.maximum}{has}"
    return None


def other_reader(engine: Engine, weight_format: str) -> str | None:
    """The engine that alone reads a checkpoint in this format, by its own name; None if a server has a loader for it."""
    if not trait(engine, "serves_only"):
        return None
    return next((who for start, who in _OF_LOCAL_ENGINES.items() if weight_format.startswith(start)), None)


_OF_LOCAL_ENGINES: Final = {"mlx": "MLX", "gguf": "llama.cpp", "exl2": "ExLlamaV2", "exl3": "ExLlamaV3"}
"""Beginnings of the names of formats that servers have no loader for, and what reads them."""
