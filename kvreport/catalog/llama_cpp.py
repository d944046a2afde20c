"""What llama.cpp knows of each architecture, as facts that neither tensors nor shapes show."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import Field

from kvreport.catalog.base import Count, Record, Source, Text
from kvreport.catalog.shelf import CatalogFile

OLLAMA_PREFIX: Final = "ollama-"
"""What begins the names of mixes that Ollama's own quantizer makes, whose bytes differ from llama.cpp's."""
OLLAMA_MAKES: Final = ("q4_k_m", "q4_k_s", "q8_0")
"""Mixes that Ollama's quantizer makes of a model in 16 bits (``ollama create --quantize``)."""


class ReportedCompute(Record):
    """A compute buffer of one slot that somebody published and these rules do not reach.

    Attributes:
        title: Where it was read, in words.
        url: Where it can be read again.
    """

    model: Text
    context_tokens: Count
    bytes: Count
    title: Text
    url: Text


class LocalArchitecture(Record):
    """One architecture of llama.cpp.

    Attributes:
        name: Name in a GGUF file (``general.architecture``).
        classes: Classes of a ``config.json`` that are converted to it.
        windows: True if sliding windows (or chunks) get a cache of their own; False if they are kept as full
            attention.
        rows: Where the rows to output are picked: in the last layer, after it, or after the last norm.
        hidden_output: True if the last hidden state is an output of the graph.
        rollback: True if recurrent states can be kept for rollback (speculative decoding).
        parallel: Whether attention and feed-forward read the same residual, and which is added first.
        residual_first: Which sums name the residual first, so that they are written over it.
        layer_norm: True for layer norms, False for RMS norms.
        rotary: False if queries and keys are not rotated.
        rotary_windows_only: True if only window layers rotate, where a model has windows.
        weighted_inputs: True if experts' inputs are weighted, not their outputs.
        positions: Position numbers per token.
        shared_picks: True if layers without an indexer use the cells that an earlier layer picked.
        unfolded: True if keys and values are unfolded from a latent before they are cached.
        index_keys: Whether layers of grouped heads cache index keys, and whether that cache has values, too.
        fused_experts: True if a converted file holds gate and up of all experts in one tensor.
        compute_reported: A published compute buffer that is larger than ours; None where none is known.
    """

    name: Text
    classes: Annotated[tuple[Text, ...], Field(min_length=1)]
    windows: bool = False
    rows: Literal["last_layer", "before_norm", "after_norm"] = "last_layer"
    hidden_output: bool = False
    rollback: bool = False
    parallel: Literal["no", "feed_first", "mixer_first"] = "no"
    residual_first: Literal["neither", "mixer", "feed", "both"] = "neither"
    layer_norm: bool = False
    rotary: bool = True
    rotary_windows_only: bool = False
    weighted_inputs: bool = False
    positions: Count = 1
    fused_experts: bool = False
    shared_picks: bool = False
    unfolded: bool = False
    index_keys: Literal["no", "keys", "keys_and_values"] = "no"
    compute_reported: ReportedCompute | None = None


class LocalArchitectures(CatalogFile):
    """All architectures of one build of llama.cpp."""

    FILE = "llama_cpp/architectures.yaml"
    build: Text
    architectures: Annotated[tuple[LocalArchitecture, ...], Field(min_length=1)]
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @cached_property
    def by_class(self) -> dict[str, LocalArchitecture]:
        """Architectures by the classes that are converted to them."""
        return {name: item for item in self.architectures for name in item.classes}

    @cached_property
    def by_name(self) -> dict[str, LocalArchitecture]:
        """Architectures by their names in a GGUF file."""
        return {item.name: item for item in self.architectures}


class OllamaModel(Record):
    """What a name of Ollama's library carries.

    Attributes:
        model: Id of the base model in the catalog.
        format: Quantization mix without a suffix in the name; those of Ollama's own quantizer begin with ``ollama-``.
        size_gb: Size of the download as the library lists it, GB of 10^9 bytes, rounded; None where it is not known.
    """

    model: Text
    format: Text = "q4_k_m"
    size_gb: Annotated[float, Field(gt=0, le=10_000)] | None = None


class OllamaNames(CatalogFile):
    """Names of Ollama's library.

    Attributes:
        names: ``name:size`` to what it carries.
        defaults: The size that a bare name means.
        coding: Names without a size whose models were published for writing code.
    """

    FILE = "llama_cpp/ollama.yaml"
    names: dict[Text, OllamaModel]
    defaults: dict[Text, Text]
    coding: frozenset[Text] = frozenset()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    def find(self, text: str) -> OllamaModel | None:
        """The base model and the mix of a name such as ``llama3.1:8b-instruct-q8_0``; None for others.

        Args:
            text: A name, with or without a tag.
        """
        name, _, tag = text.lower().partition(":")
        if name not in self.defaults:
            return None
        size, _, rest = tag.partition("-")
        size = self.defaults[name] if size in ("", "latest") else size
        found = self.names.get(f"{name}:{size}")
        if found is None:
            return None
        mix = rest.rpartition("-")[2] or found.format
        known = "_" in mix or mix in ("fp16", "f16", "bf16", "f32")
        own = found.format.startswith(OLLAMA_PREFIX) and mix in OLLAMA_MAKES
        return (
            found.model_copy(update={"format": f"{OLLAMA_PREFIX}{mix}" if own else mix}) if known else found
        )


class MixRange(Record):
    """Mixes of llama.cpp's quantizer between which a publisher's mix lies.

    Attributes:
        least: The one with fewer bytes.
    """

    least: Text
    most: Text


class PublishedFile(Record):
    """The size of a file, or of all parts of one, in a publisher's mix.

    Attributes:
        model: Id of the model that it was made from, or of one with the same tensors.
        mix: As the repository names it.
        gb: Size as listed (10^9 bytes).
        url: Where it is listed.
        title: What was read, where that is no page with the size on it.
    """

    model: Text
    mix: Text
    gb: Annotated[float, Field(gt=0)]
    url: Text | None = None
    title: Text | None = None


class PublishersMixes(CatalogFile):
    """The content of ``llama_cpp/publishers.yaml``.

    Attributes:
        ranges: By how a mix's name begins, without ``UD-``.
        files: What the ranges were checked with.
    """

    FILE = "llama_cpp/publishers.yaml"
    ranges: dict[Text, MixRange]
    files: tuple[PublishedFile, ...]

    def range_of(self, mix: str) -> MixRange | None:
        """The range of a publisher's mix; None where its name does not say its bits.

        Args:
            mix: For instance ``UD-Q4_K_XL``, in any case.
        """
        name = mix.lower().removeprefix("ud-")
        begins = [start for start in self.ranges if name.startswith(start)]
        return self.ranges[max(begins, key=len)] if begins else None
