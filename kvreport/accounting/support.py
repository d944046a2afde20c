"""Whether an engine's release runs a model's formats on a device: a pure look-up in ``support.yaml``.

What no rule names is not judged: the answer is then that nothing speaks against it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kvreport.accounting.alignment import cut_block
from kvreport.accounting.capacity import Verdict
from kvreport.accounting.parallel import Layout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.support import DeviceRule, FormatRule, Lacking, Ruling, Support, numbers, within

CUDA: Final = "NVIDIA"
"""The maker whose devices formats are ruled for by capability."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a release runs a combination.

    Attributes:
        verdict: What it is refused with; None if nothing speaks against it.
        reason: Why, or what weight-only means here; empty if there is nothing to say.
        weight_only: True if the device lacks the weights' format, so that they are widened for every
            multiplication.
    """

    verdict: Literal["engine_does_not_run", "format_not_supported"] | None = None
    reason: str = ""
    weight_only: bool = False

    @property
    def code(self) -> int:
        """The verdict's code of :class:`kvreport.accounting.capacity.Verdict`; 0 for none."""
        return 0 if self.verdict is None else int(Verdict[self.verdict.upper()])


RUNS: Final = Judgement()

_SINGLE: Final = Layout()

_IN_FLOAT16: Final = ("int4", "int8", "gptq")
"""Beginnings of the names of formats whose checkpoints name float16 as their type, whatever they were made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What else a deployment asks of a release.

    Attributes:
        layout: How the model is spread over devices.
        dtype: The type to compute in; None is the checkpoint's own.
        lora_rank: Largest rank of the LoRA adapters; 0 without them.
        formats: Weight formats by name, for what released tensors carry.
    """

    layout: Layout = _SINGLE
    dtype: str | None = None
    lora_rank: int = 0
    formats: Mapping[str, WeightFormat] = field(default_factory=dict)


PLAIN: Final = Asked()


def judge(
    support: Support,
    engine: Engine,
    accelerator: Accelerator,
    model: Model,
    weight_format: WeightFormat | None = None,
    kv_format: KvFormat | None = None,
    asked: Asked = PLAIN,
) -> Judgement:
    """Say whether an engine's release runs a model on a device in these formats.

    Args:
        support: The rules.
        engine: The engine's record; its family and release decide.
        accelerator: The device.
        model: The model; its kinds of caches and the format that it was released in decide.
        weight_format: What it is converted to; None is as released.
        kv_format: How its caches are stored; None is its own 16-bit type.
        asked: Layout, type and adapters.
    """
    ruling = support.ruling(engine.family, engine.version)
    on_device = _on_device(ruling, engine, accelerator, model, weight_format, kv_format, asked.dtype)
    if on_device.verdict is not None:
        return on_device
    spread = _spread(ruling, engine, model, weight_format, asked)
    return on_device if spread.verdict is None else spread


def _on_device(
    ruling: Ruling,
    engine: Engine,
    accelerator: Accelerator,
    model: Model,
    weight_format: WeightFormat | None,
    kv_format: KvFormat | None,
    dtype: str | None,
) -> Judgement:
    """The part of a judgement that no layout changes."""
    runs = _device(ruling.devices, engine, accelerator)
    if runs.verdict is not None:
        return runs
    if model.architecture in ruling.missing and model.architecture not in ruling.ran:
        return Judgement(
            "engine_does_not_run",
            f"{engine.label} does not have the class {model.architecture}: releases "
            f"{ruling.missing[model.architecture]} do",
        )
    form = model.weight_format if weight_format is None else weight_format.name
    if accelerator.vendor == CUDA and accelerator.compute_capability is not None:
        refused = _type(ruling, engine, accelerator, dtype or _type_of(model, form)) or _attention(
            ruling, engine, accelerator, model
        )
        if refused is not None:
            return refused
    kinds = cache_kinds(model)
    cached = None if kv_format is None else kv_format.name
    kept = _format(ruling.kv, engine, accelerator, cached, kinds, "a cache in ")
    rules = ruling.weights if model.experts else tuple(rule for rule in ruling.weights if not rule.experts)
    stored = _format(rules, engine, accelerator, form, kinds)
    return stored if stored.verdict is not None or kept.verdict is None else kept


def _type_of(model: Model, form: str) -> str:
    return "float16" if form.startswith(_IN_FLOAT16) else model.dtype


def _type(ruling: Ruling, engine: Engine, accelerator: Accelerator, dtype: str) -> Judgement | None:
    own = numbers(accelerator.compute_capability or "")
    for rule in ruling.types:
        if rule.dtype == dtype and not within(rule, own) and not rule.casts:
            return Judgement(
                "engine_does_not_run",
                f"{engine.label} computes in {dtype} from compute capability {rule.minimum}; {accelerator.name} "
                f"has {accelerator.compute_capability} (--dtype float16 starts)",
            )
    return None


def _attention(ruling: Ruling, engine: Engine, accelerator: Accelerator, model: Model) -> Judgement | None:
    own, kinds = numbers(accelerator.compute_capability or ""), cache_kinds(model)
    for rule in ruling.attention:
        if kinds.issuperset(rule.caches) and own[0] not in rule.generations:
            allowed = ", ".join(f"{one}.x" for one in rule.generations)
            return Judgement(
                "engine_does_not_run",
                f"{engine.label} has kernels for sparse attention over latents only for compute "
                f"capability {allowed}; {accelerator.name} has {accelerator.compute_capability}",
            )
    return None


_LACKING: Final[Mapping[Lacking, str]] = {
    "pipeline": "in pipeline stages",
    "data": "on several data ranks",
    "expert": "with experts divided over ranks",
    "decode_context": "with a cache's tokens divided over ranks",
    "lora": "with LoRA adapters",
}


def _spread(
    ruling: Ruling, engine: Engine, model: Model, weight_format: WeightFormat | None, asked: Asked
) -> Judgement:
    """The part of a judgement that no device changes: stages, adapters, blocks that ranks cut."""
    layout = asked.layout
    wanted: dict[Lacking, bool] = {
        "pipeline": layout.pipeline > 1,
        "data": layout.data > 1,
        "expert": layout.expert and bool(model.experts),
        "decode_context": layout.decode_context > 1,
        "lora": asked.lora_rank > 0,
    }
    for rule in ruling.lacks:
        if wanted[rule.lacks] and rule.names(model.architecture):
            what = "models" if rule.architectures is None else model.architecture
            return Judgement(
                "engine_does_not_run", f"{engine.label} does not run {what} {_LACKING[rule.lacks]}"
            )
    for ranks in ruling.lora_ranks:
        if asked.lora_rank and asked.lora_rank not in ranks.ranks:
            allowed = ", ".join(map(str, ranks.ranks))
            return Judgement(
                "engine_does_not_run",
                f"{engine.label} takes --max-lora-rank {allowed}; {asked.lora_rank} was asked for",
            )
    cut = cut_block(ruling.alignment, model, weight_format, asked.formats, asked.layout)
    return RUNS if cut is None else Judgement("format_not_supported", f"{engine.label}: {cut}")


def spread_codes(
    support: Support,
    engine: Engine,
    model: Model,
    weight_formats: Sequence[WeightFormat | None],
    asked: Asked,
) -> list[int]:
    """The codes of what a release refuses of a layout, one for each weight format, whatever the device."""
    ruling = support.ruling(engine.family, engine.version)
    return [_spread(ruling, engine, model, form, asked).code for form in weight_formats]


def codes(
    support: Support,
    engine: Engine,
    accelerators: Sequence[Accelerator],
    model: Model,
    weight_formats: Sequence[WeightFormat | None],
    kv_format: KvFormat | None,
    dtype: str | None = None,
) -> list[list[int]]:
    """The codes of :func:`judge` for one device each, a row for each device and a column for each weight format.

    Devices of one maker, capability and architecture are judged once. :func:`spread_codes` has what a layout adds.
    """
    ruling = support.ruling(engine.family, engine.version)
    # What a judgement asks of a model; a catalog has few different answers.
    asked = (
        engine.family,
        engine.version,
        model.architecture in ruling.missing and model.architecture not in ruling.ran,
        model.weight_format,
        model.dtype if dtype is None else dtype,
        bool(model.experts),
        cache_kinds(model),
        tuple(None if form is None else form.name for form in weight_formats),
        None if kv_format is None else kv_format.name,
    )
    known = support.judged
    rows = []
    for device in accelerators:
        kind = (asked, device.vendor, device.compute_capability, device.architecture)
        if kind not in known:
            known[kind] = [
                _on_device(ruling, engine, device, model, form, kv_format, dtype).code
                for form in weight_formats
            ]
        rows.append(known[kind])
    return rows


def device_signature(support: Support, engine: Engine, accelerator: Accelerator) -> tuple[bool, ...]:
    """What decides a device's refusals: devices of one signature are refused the same models and formats.

    Whether the device itself, and each rule of attention and of formats, lets it run.
    """
    ruling = support.ruling(engine.family, engine.version)
    runs = _device(ruling.devices, engine, accelerator).verdict is None
    own = accelerator.compute_capability
    formats = (*ruling.kv, *ruling.weights)
    if accelerator.vendor != CUDA or own is None:
        return (runs, *(_refusal(rule, accelerator) is None for rule in formats))
    capability = numbers(own)
    return (
        runs,
        *(capability[0] in rule.generations for rule in ruling.attention),
        *(within(rule, capability) for rule in ruling.types),
        *(_refusal(rule, accelerator) is None for rule in formats),
    )


def cache_kinds(model: Model) -> frozenset[str]:
    """The kinds of caches that a model has."""
    return frozenset(cache.kind for group in model.layers for cache in group.caches)


def _device(rules: Sequence[DeviceRule], engine: Engine, accelerator: Accelerator) -> Judgement:
    for rule in rules:
        if accelerator.vendor in rule.vendors and accelerator.architecture not in rule.not_architectures:
            reason = _against(rule, accelerator)
            return (
                RUNS
                if reason is None
                else Judgement(
                    "engine_does_not_run", f"{engine.label} does not run on {accelerator.name}: {reason}"
                )
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
    form: str | None,
    kinds: Collection[str],
    what: str = "",
) -> Judgement:
    own = accelerator.compute_capability
    if form is None:
        return RUNS
    found = RUNS
    for rule in rules:
        if not rule.names(form) or (rule.caches and not set(rule.caches).intersection(kinds)):
            continue
        reason = _refusal(rule, accelerator)
        if reason is not None:
            verb = "does not run" if not rule.runs else "runs"
            return Judgement("format_not_supported", f"{engine.label} {verb} {what}{form}{reason}")
        if own is not None and rule.native is not None and numbers(own) < numbers(rule.native):
            found = Judgement(
                None,
                f"{accelerator.name} does not multiply in {form}: {engine.label} stores the weights in it "
                "and widens them to 16 bits (the same memory, the 16-bit rate)",
                weight_only=True,
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
