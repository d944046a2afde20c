"""One serving engine's memory policy, as data with a version.

The rules (how blocks are planned, which parts are subtracted) are code, one per ``family``; what
differs between versions and device classes is data here, with its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import Contradiction, LongText, Record, Slug, Source, Text, VersionedRecord
from kvreport.catalog.release import Release, dated_lists, release_of, value_at
from kvreport.catalog.shelf import spoken
from kvreport.errors import InputError

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
    """Scheduler defaults for devices of one size."""

    # Smallest usable memory of the class; the largest class that applies is taken.
    min_bytes: Annotated[int, Field(ge=0)]
    # Parts of a device's name, as :func:`~kvreport.catalog.shelf.spoken` hears it, that fall through to the
    # next class: engines ask the driver for the name.
    not_architectures: tuple[Text, ...] = ()
    max_batched_tokens: StepTokens  # Tokens of one scheduler step (the activation peak is measured there).
    # The same for the engine's offline class, where that takes more.
    offline_batched_tokens: StepTokens | None = None
    max_seqs: Sequences  # Requests that run at once, whatever memory says.
    max_seqs_wide: Sequences | None = None  # The same with four tensor ranks or more, where that differs.


class Engine(VersionedRecord):
    """An engine version."""

    name: Slug  # Slug, the name on the command line.
    label: Text
    # Which rules apply (``vllm``, ``sglang``, ``tensorrt_llm``, ``transformers``, ``llama_cpp``,
    # ``ceiling``).
    family: Literal["vllm", "sglang", "tensorrt_llm", "transformers", "llama_cpp", "ollama", "mlx", "ceiling"]
    version: Text | None = None  # Version whose rules these are; None for ``ceiling``.
    # First version that behaves so, and the first that no longer does (``None``: still). The first is written
    # with as many numbers as count releases: 0.33 of vLLM, 0.5.21 of SGLang.
    versions: tuple[Text, Text | None] | None = None
    aliases: tuple[Text, ...] = ()
    builds: bool = False  # True if releases are builds with a number (``llama-cpp@b9849``).
    utilization: Share  # Default share of memory that the engine takes.
    # What ``utilization`` is a share of: all memory that a process can use, or what the weights leave of it.
    utilization_of: Literal["memory", "memory_less_weights"] = "memory"
    block_tokens: Annotated[int, Field(ge=1, le=1 << 16)] = 1  # Default tokens per block.
    # Blocks that the engine keeps for itself (vLLM's null block).
    kept_blocks: Annotated[int, Field(ge=0, le=1024)] = 0
    # Scheduler steps that may hold tokens at once (2 with asynchronous scheduling); they widen every window's
    # reservation.
    steps_in_flight: Annotated[int, Field(ge=1, le=64)] = 1
    state_prefix_caching: bool = True  # True if prefix caching is on by default for models with a state.
    # What the engine's log line of cached tokens counts: ``concurrency`` times the context, or tokens of all
    # ``blocks`` over the cache groups.
    token_line: Literal["concurrency", "blocks"] = "concurrency"
    graphs_reserved: bool = True  # True if the memory of captured graphs is taken off the pool.
    # How large a block of unequal pages is: as the ``widest`` group of layers, as ``buckets`` of pages of one
    # size, as many of each as the largest group has layers of it, or as whole ``tuples`` of one page of every
    # size, as many as the largest group has layers of a size.
    packed_blocks: Literal["widest", "buckets", "tuples"] = "widest"
    # True if the buffers that experts compute in stay allocated after a forward pass, so that they come on
    # top of sampling.
    expert_workspace_kept: bool = False
    # True if models with several residual streams keep those of one step for a draft model, whether one is
    # served or not.
    streams_buffer_kept: bool = False
    # True if the 32-bit scales that MXFP4 experts were loaded with stay beside those that their kernels read.
    loaded_scales_kept: bool = False
    # What serves MXFP4 experts on Hopper, or kernels that exchange tokens by themselves (mega_moe); None for
    # how the release is installed.
    expert_kernel: Literal["marlin", "triton", "mega_moe"] | None = None
    # Which of vLLM's model runners was asked for (``VLLM_USE_V2_MODEL_RUNNER``); None for the release's
    # choice.
    model_runner: Literal["first", "second"] | None = None
    # True if layers that reuse another layer's choice of tokens keep no index keys.
    index_keys_elided: bool = True
    # True if the pools of compressed attention are sized by padded pages.
    compressed_pages_padded: bool = True
    # True if the rings of the 128:1 compressor lie beside the window's pages.
    compressed_rings_in_window: bool = False
    prefill_graphs_reserved: bool = True  # True if memory is kept for graphs of prefill.
    # True if memory is kept for the embeddings of images (``mm_runtime_reservation_gb``).
    image_cache_reserved: bool = True
    device_classes: tuple[DeviceClass, ...] = ()  # Scheduler defaults, largest devices first.
    # Lists of model classes in the engine's own source, by what it does with them, where the family's rules
    # do not have them. Where a list changed inside the range of versions, ``name@version`` is the list from
    # that version on.
    architectures: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    # Tokens of the longest audio clip that each class takes; None where only the context limits it.
    audio_tokens: dict[Text, Annotated[int, Field(ge=1, le=1 << 20)] | None] = Field(default_factory=dict)
    # Tokens of the longest image or video of each class whose images attend in both directions: one step must hold it whole.
    item_tokens: dict[Text, StepTokens] = Field(default_factory=dict)
    # Fitted constants of the reserve, in bytes or dimensionless, by name.
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

    def lists(self, kind: str, architecture: str, release: Release | None = None) -> bool:
        """True if the engine's own list of a ``kind`` names the class ``architecture``, in another release than the record's if one is given."""
        asked = release_of(self) if release is None else release
        if self.architectures:
            if kind in self.architectures:
                return architecture in self.architectures[kind]
            dated = dated_lists(self.architectures, kind)
            if len(dated) > 1:
                return architecture in value_at(dated, asked.numbers)
        return architecture in asked.lists.get(kind, ())

    def has_list(self, kind: str) -> bool:
        """True if the engine has a list of this kind: of a release that has none, nothing was read."""
        return kind in self.architectures or bool(release_of(self).lists.get(kind))

    def device_class(self, device_name: str, usable_bytes: int) -> DeviceClass:
        """Scheduler defaults for one accelerator.

        Raises:
            InputError: If the engine's data has no class that small.
        """
        heard = spoken(device_name)
        for candidate in self.device_classes:
            excluded = any(part in heard for part in candidate.not_architectures)
            if usable_bytes >= candidate.min_bytes and not excluded:
                return candidate
        raise InputError(
            f"engine {self.name!r}: device_classes: found none for {device_name} with "
            f"{usable_bytes} bytes; allowed: a last class with min_bytes 0"
        )
