"""What each engine's releases run on and load: devices, types, formats, attention, each with its source."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from kvreport.catalog.base import LongText, Record, Source, Text, VersionedRecord
from kvreport.catalog.engine_classes import Classes, ClassLists, EngineClasses
from kvreport.catalog.formats import FormatName

Family = Literal["vllm", "sglang", "tensorrt_llm", "transformers", "llama_cpp", "ollama", "mlx", "ceiling"]
Vendor = Literal["NVIDIA", "AMD", "Intel", "Apple", "Google", "AWS", "Huawei"]
Release = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,3}$", max_length=40)]
CudaCapability = Annotated[str, Field(pattern=r"^[1-9][0-9]?\.[0-9]$")]

_NUMBERS = re.compile(r"\d+")


class SupportRule(Record):
    """What every rule says: whose it is, of which releases, and where it was read."""

    family: Family
    # First release that it holds for, and the first that it no longer does (``None``: still).
    releases: tuple[Release, Release | None] = ("0.0", None)
    minimum: CudaCapability | None = None  # The least NVIDIA capability that runs.
    # The highest NVIDIA capability that the release has kernels for; None for all above ``minimum``.
    maximum: CudaCapability | None = None
    runs: bool = True  # False if nothing that the rule names runs.
    reason: LongText | None = None  # Why not, in words, for ``runs: false``.
    source: Text  # Which of the file's sources covers it.

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.runs == (self.reason is not None):
            raise ValueError("reason: allowed: words where runs is false, and only there")
        first, end = self.releases
        if end is not None and numbers(end) <= numbers(first):
            raise ValueError(f"releases: found {first} to {end}; allowed: an end after the first")
        return self

    def holds(self, family: str, version: str | None) -> bool:
        """Whether the rule is about this release; an engine without a version is the current one."""
        if family != self.family:
            return False
        first, end = self.releases
        if version is None:
            return end is None
        own = numbers(version)
        return numbers(first) <= own and (end is None or own < numbers(end))


@cache
def _beginnings(names: tuple[str, ...]) -> tuple[str, ...]:
    """How the names of layouts begin that stand under these, with a dash after each."""
    return tuple(f"{name}-" for name in names)


class DeviceRule(SupportRule):
    """Which devices an engine runs on; the first that names a device decides."""

    vendors: Annotated[tuple[Vendor, ...], Field(min_length=1)]
    capabilities: tuple[Text, ...] = ()  # The capabilities that run; empty for all from ``minimum``.
    not_architectures: tuple[Text, ...] = ()  # Architectures that the rule does not speak of.


class FormatRule(SupportRule):
    """Which formats an engine runs on some makers' devices; the last that names a format decides."""

    # Names, each of which stands for every layout that begins with it.
    formats: Annotated[tuple[FormatName, ...], Field(min_length=1)]
    # Names that begin like one of ``formats`` and that the rule is not about.
    excluded: tuple[FormatName, ...] = ()
    # The last part of the names that the rule is about (``2of4``); None for any.
    ending: FormatName | None = None
    # The least capability that multiplies in the format; devices below widen it first.
    native: CudaCapability | None = None
    caches: tuple[Text, ...] = ()  # Kinds of caches that a model has one of; empty for any model.
    experts: bool = False  # True if the rule is only about models with routed experts.
    dense: bool = False  # True if the rule is only about models without routed experts.
    # Classes that run in the format, as ``config.json`` names them; None for all.
    architectures: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    # Makers whose devices the rule is about.
    vendors: Annotated[tuple[Vendor, ...], Field(min_length=1)] = ("NVIDIA",)
    # The capabilities that run, by name (AMD's); empty for all from ``minimum``.
    capabilities: tuple[Text, ...] = ()
    # Whole numbers of NVIDIA's capabilities that run; empty for all from ``minimum``.
    generations: tuple[int, ...] = ()

    def names(self, form: str) -> bool:
        """Whether the rule is about a format."""
        return (
            form not in self.excluded
            and f"{form}-".startswith(_beginnings(self.formats))
            and (self.ending is None or form.endswith(f"-{self.ending}"))
        )


class AttentionRule(SupportRule):
    """Attention that has kernels only on some generations of NVIDIA's devices."""

    # Kinds of caches; the rule is about models that have all of them.
    caches: Annotated[tuple[Text, ...], Field(min_length=1)]
    # Whole numbers of the capabilities that run.
    generations: Annotated[tuple[int, ...], Field(min_length=1)]


class ContextRule(SupportRule):
    """Attention whose kernels do not give what ranks need to join their parts of a context (``decode context parallel``)."""

    vendors: Annotated[tuple[Text, ...], Field(min_length=1)]  # Makers of the devices that the rule is about.
    generations: tuple[int, ...] = ()  # Whole numbers of their capabilities; empty for all.
    # Kinds of caches; the rule is about models that have all of them.
    caches: Annotated[tuple[Text, ...], Field(min_length=1)]
    # Query heads that a kernel joins at most; None where it joins none.
    most_heads: Annotated[int, Field(ge=1)] | None = None
    own_heads: Annotated[int, Field(ge=1)] | None = None  # Query heads of one rank from which it joins none.


class TypeRule(SupportRule):
    """The type that a release computes in, on NVIDIA's devices below ``minimum``."""

    dtype: Literal["bfloat16"]  # The type that those devices lack.
    casts: bool  # True if a release told nothing takes float16 instead; False if it refuses to start.


class UnstableRule(SupportRule):
    """Model classes that a release does not compute in float16, whatever the device."""

    architectures: Annotated[tuple[Text, ...], Field(min_length=1)]  # Classes as ``config.json`` names them.


Lacking = Literal["pipeline", "data", "expert", "decode_context", "lora", "speculative_pipeline"]
"""What a release may lack for a class: ways to spread a model, adapters, drafting in stages."""


class LackRule(SupportRule):
    """Model classes that a release runs without one of its ways to spread a model, or without LoRA adapters."""

    lacks: Lacking  # What the classes do not have.
    # Classes as ``config.json`` names them; None for every class, where the release has no such flag.
    architectures: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None

    def names(self, architecture: str | None) -> bool:
        """Whether the rule is about a class."""
        return self.architectures is None or architecture in self.architectures


class AlignmentRule(SupportRule):
    """Blocks of weights that share a scale, which tensor parallelism must not cut."""

    # Names, each of which stands for every layout that begins with it.
    formats: Annotated[tuple[FormatName, ...], Field(min_length=1)]
    sides: Literal["both", "input"]  # ``both`` sides of a block, or ``input`` alone.
    experts: bool  # True for the matrices of routed experts, False for all others.
    # The least side that a release may divide the blocks of experts into, so that they can be cut; None where
    # it does not.
    refined: Annotated[int, Field(ge=1, le=1 << 12)] | None = None

    def names(self, form: str) -> bool:
        """Whether the rule is about a format."""
        return f"{form}-".startswith(_beginnings(self.formats))


class RankRule(SupportRule):
    """Largest ranks of LoRA adapters that a release can be told."""

    ranks: Annotated[tuple[int, ...], Field(min_length=1)]


class OptionRule(SupportRule):
    """Options of a question that an engine does not have (``runs: false``), or that change none of its answers."""

    options: Annotated[tuple[Text, ...], Field(min_length=1)]  # Fields of :class:`kvreport.query.Query`.
    changes: Text | None = None  # What of the memory they change in the server; None where they change none.
    effect: LongText | None = None  # What is said where one is given and accepted, in words.

    @model_validator(mode="after")
    def _said(self) -> Self:
        if self.runs == (self.effect is None):
            raise ValueError("effect: allowed: words where runs is true, and only there")
        return self


class RulesRecord(VersionedRecord):
    """Rules about what runs; a file has all of them, a release those that are about it."""

    devices: tuple[DeviceRule, ...] = ()
    weights: tuple[FormatRule, ...] = ()
    kv: tuple[FormatRule, ...] = ()
    attention: tuple[AttentionRule, ...] = ()
    contexts: tuple[ContextRule, ...] = ()
    types: tuple[TypeRule, ...] = ()
    lacks: tuple[LackRule, ...] = ()
    alignment: tuple[AlignmentRule, ...] = ()
    lora_ranks: tuple[RankRule, ...] = ()
    options: tuple[OptionRule, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """The rules that are about one release, and what its package serves."""

    rules: RulesRecord
    unstable: frozenset[str]  # Model classes that it does not compute in float16.
    lists: ClassLists | None  # The lists of all engines; None for a catalog without any.
    family: EngineClasses | None  # The lists of the engine's releases; None where the catalog has none.
    served: Classes | None  # What the release serves; None where no list says it.


class Support(RulesRecord):
    """The content of ``support.yaml``."""

    devices: Annotated[tuple[DeviceRule, ...], Field(min_length=1)]
    unstable: tuple[UnstableRule, ...] = ()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    _lists: ClassLists | None = PrivateAttr(default=None)
    _known: dict[tuple[str, str | None], Ruling] = PrivateAttr(default_factory=dict)
    _judged: dict[Hashable, dict[Hashable, list[int]]] = PrivateAttr(default_factory=dict)

    @property
    def judged(self) -> dict[Hashable, dict[Hashable, list[int]]]:
        """Codes worked out before, by what is asked and then by kind of device; many models share few of them."""
        return self._judged

    @property
    def state(self) -> str:
        """The rules, and a digest of the lists of classes: all that a judgement depends on."""
        return self.model_dump_json() + ("" if self._lists is None else self._lists.state)

    def ruling(self, family: str, version: str | None) -> Ruling:
        """The rules that are about a release; found once for each."""
        key = (family, version)
        if key not in self._known:
            listed = None if self._lists is None else self._lists.of(family)
            holding: dict[str, Any] = {
                name: tuple(rule for rule in getattr(self, name) if rule.holds(*key)) for name in _RULES
            }
            unstable = frozenset(name for rule in holding.pop("unstable") for name in rule.architectures)
            self._known[key] = Ruling(
                RulesRecord.model_construct(**holding),
                unstable=unstable,
                lists=self._lists,
                family=listed,
                served=None if listed is None else listed.served(version),
            )
        return self._known[key]

    def with_lists(self, lists: ClassLists) -> Self:
        """Judge model classes by these lists, each read when a release of its engine is asked for."""
        self._lists = lists
        self._known.clear()
        self._judged.clear()
        return self

    @model_validator(mode="after")
    def _sourced(self) -> Self:
        covered = {name for source in self.sources for name in source.covers}
        missing = sorted({rule.source for name in _RULES for rule in getattr(self, name)} - covered)
        if missing:
            raise ValueError(f"source: found {', '.join(missing)}; allowed: a name that 'sources' covers")
        return self


_RULES: Final = tuple(name for name in Support.model_fields if name not in ("schema_version", "sources"))
"""The fields of a file that are lists of rules."""


def within(rule: SupportRule, capability: tuple[int, ...]) -> bool:
    """Whether a capability lies between the rule's least and highest."""
    return (rule.minimum is None or capability >= numbers(rule.minimum)) and (
        rule.maximum is None or capability <= numbers(rule.maximum)
    )


@lru_cache(maxsize=1024)
def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version or a capability, to be compared: ``0.5.15.post1`` is ``(0, 5, 15, 1)``."""
    return tuple(int(part) for part in _NUMBERS.findall(text))
