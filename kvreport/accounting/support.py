"""Whether an engine's release runs a model's formats on a device: a pure look-up in ``support.yaml``.

What no rule names is not judged: the answer is then that nothing speaks against it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvreport.accounting.capacity import Verdict
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.model import Model
from kvreport.catalog.support import DeviceRule, FormatRule, Support, numbers

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


def judge(
    support: Support,
    engine: Engine,
    accelerator: Accelerator,
    model: Model,
    weight_format: WeightFormat | None = None,
    kv_format: KvFormat | None = None,
) -> Judgement:
    """Say whether an engine's release runs a model on a device in these formats.

    Args:
        support: The rules.
        engine: The engine's record; its family and release decide.
        accelerator: The device.
        model: The model; its kinds of caches and the format that it was released in decide.
        weight_format: What it is converted to; None is as released.
        kv_format: How its caches are stored; None is its own 16-bit type.
    """
    ruling = support.ruling(engine.family, engine.version)
    runs = _device(ruling.devices, engine, accelerator)
    if runs.verdict is not None or accelerator.vendor != CUDA or accelerator.compute_capability is None:
        return runs
    capability, kinds = numbers(accelerator.compute_capability), cache_kinds(model)
    for rule in ruling.attention:
        if kinds.issuperset(rule.caches) and capability[0] not in rule.generations:
            allowed = ", ".join(f"{one}.x" for one in rule.generations)
            return Judgement(
                "engine_does_not_run",
                f"{engine.label} has kernels for sparse attention over latents only for compute "
                f"capability {allowed}; {accelerator.name} has {accelerator.compute_capability}",
            )
    form = model.weight_format if weight_format is None else weight_format.name
    cached = None if kv_format is None else kv_format.name
    kept = _format(ruling.kv, engine, accelerator, cached, kinds, "a cache in ")
    stored = _format(ruling.weights, engine, accelerator, form, kinds)
    return stored if stored.verdict is not None or kept.verdict is None else kept


def codes(
    support: Support,
    engine: Engine,
    accelerators: Sequence[Accelerator],
    model: Model,
    weight_formats: Sequence[WeightFormat | None],
    kv_format: KvFormat | None,
) -> list[list[int]]:
    """The codes of :func:`judge`, a row for each device and a column for each weight format.

    Devices of one maker, capability and architecture are judged once.
    """
    known: dict[tuple[str, str | None, str], list[int]] = {}
    rows = []
    for device in accelerators:
        kind = (device.vendor, device.compute_capability, device.architecture)
        if kind not in known:
            known[kind] = [
                judge(support, engine, device, model, form, kv_format).code for form in weight_formats
            ]
        rows.append(known[kind])
    return rows


def device_signature(support: Support, engine: Engine, accelerator: Accelerator) -> tuple[bool, ...]:
    """What decides a device's refusals beside weights: devices of one signature are refused the same models.

    Whether the device itself, each rule of attention and each rule of KV formats refuses it.
    """
    ruling = support.ruling(engine.family, engine.version)
    runs = _device(ruling.devices, engine, accelerator).verdict is None
    own = accelerator.compute_capability
    if accelerator.vendor != CUDA or own is None:
        return (runs,)
    capability = numbers(own)
    return (
        runs,
        *(capability[0] in rule.generations for rule in ruling.attention),
        *(rule.minimum is None or capability >= numbers(rule.minimum) for rule in ruling.kv),
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
    if form is None or own is None:
        return RUNS
    found = RUNS
    for rule in rules:
        if not rule.names(form) or (rule.caches and not set(rule.caches).intersection(kinds)):
            continue
        if not rule.runs:
            return Judgement(
                "format_not_supported", f"{engine.label} does not run {what}{form}: {rule.reason}"
            )
        if rule.minimum is not None and numbers(own) < numbers(rule.minimum):
            return Judgement(
                "format_not_supported",
                f"{engine.label} runs {what}{form} from compute capability {rule.minimum}; {accelerator.name} "
                f"has {own}",
            )
        if rule.native is not None and numbers(own) < numbers(rule.native):
            found = Judgement(
                None,
                f"{accelerator.name} does not multiply in {form}: {engine.label} stores the weights in it "
                "and widens them to 16 bits (the same memory, the 16-bit rate)",
                weight_only=True,
            )
    return found
