"""One serving engine's memory policy, as data with a version.

The rules (how blocks are planned, which parts are subtracted) are code, one per ``family``; what
differs between versions and device classes is data here, with its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import Contradiction, LongText, Record, Slug, Source, Text
from kvreport.catalog.remembered import remembered
from kvreport.errors import InputError, shorten

Share = Annotated[float, Field(gt=0, le=1)]
Coefficient = Annotated[float, Field(ge=0, le=1 << 40)]
"""A fitted constant: bytes of at most a terabyte, or a factor."""
Sequences = Annotated[int, Field(ge=1, le=1 << 16)]
StepTokens = Annotated[int, Field(ge=1, le=1 << 22)]
_LARGEST_COEFFICIENT: Final = {
    "_per_logit": 1 << 12,
    "_per_hidden": 1 << 12,
    "_per_inner": 1 << 12,
    "_share": 1 << 10,
    "_layer": 1 << 30,
    "_width": 1 << 30,
}
"""What a constant is multiplied with decides how large it may be, by the end of its name."""

_SCHEDULED: Final = frozenset({"vllm", "sglang"})
"""Families whose scheduler sizes depend on the device."""


class DeviceClass(Record):
    """Scheduler defaults for devices of one size.

    Attributes:
        min_bytes: Smallest usable memory of the class; the largest class that applies is taken.
        not_architectures: Accelerator ids or name parts that fall through to the next class.
        max_batched_tokens: Tokens of one scheduler step (the activation peak is measured there).
        offline_batched_tokens: The same for the engine's offline class, where that takes more.
        max_seqs: Requests that run at once, whatever memory says.
        max_seqs_wide: The same with four tensor ranks or more, where that differs.
    """

    min_bytes: Annotated[int, Field(ge=0)]
    not_architectures: tuple[Text, ...] = ()
    max_batched_tokens: StepTokens
    offline_batched_tokens: StepTokens | None = None
    max_seqs: Sequences
    max_seqs_wide: Sequences | None = None


class Engine(Record):
    """An engine version.

    Attributes:
        name: Slug, the name on the command line.
        label: What people call it.
        family: Which rules apply (``vllm``, ``sglang``, ``tensorrt_llm``, ``transformers``,
            ``llama_cpp``, ``ceiling``).
        version: Version whose rules these are; None for ``ceiling``.
        versions: First version that behaves so, and the first that no longer does (``None``: still). The first is
            written with as many numbers as count releases: 0.33 of vLLM, 0.5.21 of SGLang.
        builds: True if releases are builds with a number (``llama-cpp@b9849``).
        utilization: Default share of memory that the engine takes.
        utilization_of: What ``utilization`` is a share of: all memory that a process can use, or what
            the weights leave of it.
        block_tokens: Default tokens per block.
        kept_blocks: Blocks that the engine keeps for itself (vLLM's null block).
        steps_in_flight: Scheduler steps that may hold tokens at once (2 with asynchronous
            scheduling); they widen every window's reservation.
        state_prefix_caching: True if prefix caching is on by default for models with a state.
        token_line: What the engine's log line of cached tokens counts: ``concurrency`` times the
            context, or tokens of all ``blocks`` over the cache groups.
        graphs_reserved: True if the memory of captured graphs is taken off the pool.
        packed_blocks: How large a block of unequal pages is: as the ``widest`` group of layers, or as
            whole ``tuples`` of one page of every size, as many as the largest group has layers of a size.
        expert_workspace_kept: True if the buffers that experts compute in stay allocated after a forward
            pass, so that they come on top of sampling.
        audio_tokens: Tokens of the longest audio clip that each class takes; None where only the context limits it.
        streams_buffer_kept: True if models with several residual streams keep those of one step for a
            draft model, whether one is served or not.
        loaded_scales_kept: True if the 32-bit scales that MXFP4 experts were loaded with stay beside
            those that their kernels read.
        expert_kernel: What serves MXFP4 experts on Hopper, or kernels that exchange tokens by themselves (mega_moe); None for how the
            release is installed.
        model_runner: Which of vLLM's model runners was asked for (``VLLM_USE_V2_MODEL_RUNNER``); None for the release's choice.
        device_classes: Scheduler defaults, largest devices first.
        index_keys_elided: True if layers that reuse another layer's choice of tokens keep no index keys.
        compressed_pages_padded: True if the pools of compressed attention are sized by padded pages.
        compressed_rings_in_window: True if the rings of the 128:1 compressor lie beside the window's pages.
        captures_no_more_than_run: The first release that captures decode graphs for no more requests than may run,
            where one of the range does.
        prefill_graphs_reserved: True if memory is kept for graphs of prefill.
        image_cache_reserved: True if memory is kept for the embeddings of images (``mm_runtime_reservation_gb``).
        architectures: Lists of model classes in the engine's own source, by what it does with them. Where a list
            changed inside the range of versions, ``name@version`` is the list from that version on.
        coefficients: Fitted constants of the reserve, in bytes or dimensionless, by name.
    """

    schema_version: Literal[1] = 1
    name: Slug
    label: Text
    family: Literal["vllm", "sglang", "tensorrt_llm", "transformers", "llama_cpp", "ollama", "mlx", "ceiling"]
    version: Text | None = None
    versions: tuple[Text, Text | None] | None = None
    aliases: tuple[Text, ...] = ()
    builds: bool = False
    utilization: Share
    utilization_of: Literal["memory", "memory_less_weights"] = "memory"
    block_tokens: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    kept_blocks: Annotated[int, Field(ge=0, le=1024)] = 0
    steps_in_flight: Annotated[int, Field(ge=1, le=64)] = 1
    state_prefix_caching: bool = True
    token_line: Literal["concurrency", "blocks"] = "concurrency"
    graphs_reserved: bool = True
    packed_blocks: Literal["widest", "tuples"] = "widest"
    expert_workspace_kept: bool = False
    streams_buffer_kept: bool = False
    loaded_scales_kept: bool = False
    expert_kernel: Literal["marlin", "triton", "mega_moe"] | None = None
    model_runner: Literal["first", "second"] | None = None
    index_keys_elided: bool = True
    compressed_pages_padded: bool = True
    compressed_rings_in_window: bool = False
    captures_no_more_than_run: Text | None = None
    prefill_graphs_reserved: bool = True
    image_cache_reserved: bool = True
    device_classes: tuple[DeviceClass, ...] = ()
    architectures: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    audio_tokens: dict[Text, Annotated[int, Field(ge=1, le=1 << 20)] | None] = Field(default_factory=dict)
    coefficients: dict[Text, Coefficient] = Field(default_factory=dict)
    notes: tuple[LongText, ...] = ()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    def contradictions(self) -> Iterable[Contradiction]:
        """Return what the device classes say against one another: every size has a class, and one only."""
        sizes = [candidate.min_bytes for candidate in self.device_classes]
        if sizes != sorted(set(sizes), reverse=True) and not any(
            candidate.not_architectures for candidate in self.device_classes
        ):
            yield Contradiction("device_classes", f"min_bytes {sizes}", "largest devices first")
        for name, value in self.coefficients.items():
            most = next((limit for end, limit in _LARGEST_COEFFICIENT.items() if name.endswith(end)), None)
            if most is not None and value > most:
                yield Contradiction(f"coefficients.{name}", f"{value:g}", f"at most {most:,}")
        if self.family in _SCHEDULED and not sizes:
            yield Contradiction("device_classes", "none", f"at least one, for the rules of {self.family}")
        if sizes and (sizes[-1] or self.device_classes[-1].not_architectures):
            found = f"a last class from {sizes[-1]:,} bytes"
            yield Contradiction("device_classes", found, "a last class with min_bytes 0, for every device")

    def lists(self, kind: str, architecture: str, release: tuple[int, ...] = ()) -> bool:
        """True if the engine's own list of this kind names a class.

        Args:
            kind: Name of a list in ``architectures``.
            architecture: The class that the model's ``config.json`` names.
            release: The release asked for, where the list changed inside the range; empty for the newest.
        """
        if kind in self.architectures:
            return architecture in self.architectures[kind]
        dated = _dated(self.architectures, kind)
        known = [first for first in dated if not release or first <= release]
        return bool(known) and architecture in dated[max(known)]

    def caps_captured(self) -> bool:
        """True if this release captures decode graphs for no more requests than may run."""
        first = self.captures_no_more_than_run
        return first is not None and version_number(self.version or first) >= version_number(first)

    def device_class(self, accelerator_id: str, usable_bytes: int) -> DeviceClass:
        """Scheduler defaults for one accelerator.

        Args:
            accelerator_id: Its slug, held against ``not_architectures``.
            usable_bytes: Memory that a process can use on it.

        Raises:
            InputError: If the engine's data has no class that small.
        """
        for candidate in self.device_classes:
            excluded = any(part in accelerator_id for part in candidate.not_architectures)
            if usable_bytes >= candidate.min_bytes and not excluded:
                return candidate
        raise InputError(
            f"engine {self.name!r}: device_classes: found none for {accelerator_id} with "
            f"{usable_bytes} bytes; allowed: a last class with min_bytes 0"
        )


@remembered
def _dated(architectures: dict[str, tuple[str, ...]], kind: str) -> dict[tuple[int, ...], tuple[str, ...]]:
    """The lists of one kind that changed inside a range of releases, by the first release of each."""
    return {
        version_number(name.partition("@")[2]): classes
        for name, classes in architectures.items()
        if name.startswith(f"{kind}@")
    }


def engine_for_version(engines: Iterable[Engine], family: str, version: str | None) -> Engine | None:
    """The engine of a family whose range of versions holds ``version``.

    Args:
        engines: The catalog's engines.
        family: For instance ``vllm``.
        version: As an engine prints it (``0.19.2rc1.dev134+g0``); None means the current release.

    Returns:
        The engine; the one without an end where the version is unknown; None if there is none.
    """
    candidates = [engine for engine in engines if engine.family == family]
    current = next((e for e in candidates if e.versions is None or e.versions[1] is None), None)
    number = version_number(version or "")
    if not number:
        return current
    for engine in candidates:
        if engine.versions is None:
            continue
        first, end = engine.versions
        if version_number(first) <= number and (end is None or number < version_number(end)):
            return engine
    return None


def newest_read(engines: Iterable[Engine], family: str) -> str | None:
    """The newest release of a family that was read; None for a family without releases.

    A list of classes that is dated later than the record was read in a later release.
    """
    current = next((e for e in engines if e.family == family and e.versions and e.versions[1] is None), None)
    if current is None or current.version is None:
        return None
    dated = [name.partition("@")[2] for name in current.architectures if "@" in name]
    return max([current.version, *dated], key=version_number)


def unread_words(engine: Engine, newest: str | None) -> str:
    """What begins an answer by the rules of an earlier release; empty where the release was read.

    Args:
        engine: The engine, of the release that was asked for.
        newest: The newest release that was read, where that is an earlier one; else None.
    """
    return "" if newest is None else f"{engine.label} was not read, and the rules of {newest} are taken: "


def refuse_far(engines: Iterable[Engine], family: str, version: str) -> None:
    """Refuse a release further than one minor release beyond the newest that was read.

    Args:
        engines: The catalog's engines.
        family: For instance ``vllm``.
        version: As it was asked for.

    Raises:
        InputError: Naming the newest that was read.
    """
    known = list(engines)
    newest = newest_read(known, family)
    current = next((e for e in known if e.family == family and e.versions and e.versions[1] is None), None)
    if newest is None or current is None or current.versions is None:
        return
    places = len(version_number(current.versions[0]))
    *head, last = version_number(newest)[:places]
    if version_number(version)[:places] > (*head, last + 1):
        after = ".".join(str(number) for number in (*head, last + 1))
        raise InputError(
            f"engine: found {family.replace('_', '-')} {shorten(version)}; allowed: up to {newest}, the newest release "
            f"that was read, and {after}, the one after it"
        )


def at_release(engine: Engine, version: str) -> Engine:
    """The record of a range of releases, standing for one release of it: rules by release then judge that one.

    Args:
        engine: The record whose range holds the release.
        version: As an engine prints it; fewer than three numbers name no single release.
    """
    if not re.fullmatch(r"v?\d+(?:\.\d+){2,3}(?:\.post\d+)?", version, re.ASCII):
        return engine
    release = version.removeprefix("v")
    label = f"{engine.label.split()[0]} {release}"
    return (
        engine
        if release == engine.version
        else engine.model_copy(update={"version": release, "label": label})
    )


def dated_releases(engines: Iterable[Engine], family: str) -> list[Engine]:
    """The entries of one engine that have a range of versions, oldest first."""
    ranges = [(e.versions[0], e) for e in engines if e.family == family and e.versions]
    return [engine for _, engine in sorted(ranges, key=lambda pair: version_number(pair[0]))]


@lru_cache(maxsize=1024)
def version_number(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``0.19.2rc1.dev134`` is ``(0, 19, 2)``; empty if none.

    A build of a clone without tags (``0.1.dev15312+g0``, ``0.0.0.dev1+g0``) has no number that says anything.
    """
    if re.match(r"v?0\.(?:1|0\.0)\.dev\d", text, re.ASCII):
        return ()
    found = re.search(r"\d+(?:\.\d+)+", text, re.ASCII)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
