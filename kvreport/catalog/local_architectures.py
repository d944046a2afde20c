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

QAT_MIX: Final = "qat_q4_0"
"""Q4_0 with tables in F16, as Google publishes checkpoints that were trained for it: 17.2 GB of Gemma 3 27B, of which
Q6_K tables leave 15.6 (model card of stduhpf/google-gemma-3-27b-it-qat-q4_0-gguf-small)."""


class ReportedCompute(Record):
    """A compute buffer of one slot that somebody published and these rules do not reach."""

    model: Text
    context_tokens: Count
    bytes: Count
    title: Text  # Where it was read, in words.
    url: Text  # Where it can be read again.


class LocalArchitecture(Record):
    """One architecture of llama.cpp."""

    name: Text  # Name in a GGUF file (``general.architecture``).
    # Classes of a ``config.json`` that are converted to it.
    classes: Annotated[tuple[Text, ...], Field(min_length=1)]
    # True if sliding windows (or chunks) get a cache of their own; False if they are kept as full attention.
    windows: bool = False
    # Where the rows to output are picked: in the last layer, after it, or after the last norm.
    rows: Literal["last_layer", "before_norm", "after_norm"] = "last_layer"
    hidden_output: bool = False  # True if the last hidden state is an output of the graph.
    rollback: bool = False  # True if recurrent states can be kept for rollback (speculative decoding).
    # Whether attention and feed-forward read the same residual, and which is added first.
    parallel: Literal["no", "feed_first", "mixer_first"] = "no"
    # Which sums name the residual first, so that they are written over it.
    residual_first: Literal["neither", "mixer", "feed", "both"] = "neither"
    layer_norm: bool = False  # True for layer norms, False for RMS norms.
    rotary: bool = True  # False if queries and keys are not rotated.
    rotary_windows_only: bool = False  # True if only window layers rotate, where a model has windows.
    weighted_inputs: bool = False  # True if experts' inputs are weighted, not their outputs.
    positions: Count = 1  # Position numbers per token.
    fused_experts: bool = False  # True if a converted file holds gate and up of all experts in one tensor.
    # True if layers without an indexer use the cells that an earlier layer picked.
    shared_picks: bool = False
    unfolded: bool = False  # True if keys and values are unfolded from a latent before they are cached.
    # Whether layers of grouped heads cache index keys, and whether that cache has values, too.
    index_keys: Literal["no", "keys", "keys_and_values"] = "no"
    # A published compute buffer that is larger than ours; None where none is known.
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
    """What a name of Ollama's library carries."""

    model: Text  # Id of the base model in the catalog.
    # Quantization mix without a suffix in the name; those of Ollama's own quantizer begin with ``ollama-``.
    format: Text = "q4_k_m"
    # Size of the download as the library lists it, GB of 10^9 bytes, rounded; None where it is not known.
    size_gb: Annotated[float, Field(gt=0, le=10_000)] | None = None


class OllamaNames(CatalogFile):
    """Names of Ollama's library."""

    FILE = "llama_cpp/ollama.yaml"
    names: dict[Text, OllamaModel]  # ``name:size`` to what it carries.
    defaults: dict[Text, Text]  # The size that a bare name means.
    # Names without a size whose models were published for writing code.
    coding: frozenset[Text] = frozenset()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    def find(self, text: str) -> OllamaModel | None:
        """The base model and the mix of a name such as ``llama3.1:8b-instruct-q8_0``, with or without a tag; None for others."""
        name, _, tag = text.lower().partition(":")
        if name not in self.defaults:
            return None
        size, _, rest = tag.partition("-")
        size = self.defaults[name] if size in ("", "latest") else size
        found = self.names.get(f"{name}:{size}")
        if found is None:
            return None
        mix = rest.rpartition("-")[2] or found.format
        mix = QAT_MIX if mix == "qat" else mix
        known = "_" in mix or mix in ("fp16", "f16", "bf16", "f32")
        own = found.format.startswith(OLLAMA_PREFIX) and mix in OLLAMA_MAKES
        return (
            found.model_copy(update={"format": f"{OLLAMA_PREFIX}{mix}" if own else mix}) if known else found
        )


class MixRange(Record):
    """Mixes of llama.cpp's quantizer between which a publisher's mix lies."""

    least: Text  # The one with fewer bytes.
    most: Text


class PublishedFile(Record):
    """The size of a file, or of all parts of one, in a publisher's mix."""

    model: Text  # Id of the model that it was made from, or of one with the same tensors.
    mix: Text  # As the repository names it.
    gb: Annotated[float, Field(gt=0)]  # Size as listed (10^9 bytes).
    url: Text | None = None  # Where it is listed.
    title: Text | None = None  # What was read, where that is no page with the size on it.


class PublishersMixes(CatalogFile):
    """The content of ``llama_cpp/publishers.yaml``."""

    FILE = "llama_cpp/publishers.yaml"
    ranges: dict[Text, MixRange]  # By how a mix's name begins, without ``UD-``.
    files: tuple[PublishedFile, ...]  # What the ranges were checked with.

    def range_of(self, mix: str) -> MixRange | None:
        """The range of a publisher's mix such as ``UD-Q4_K_XL``, in any case; None where its name does not say its bits."""
        name = mix.lower().removeprefix("ud-")
        begins = [start for start in self.ranges if name.startswith(start)]
        return self.ranges[max(begins, key=len)] if begins else None
