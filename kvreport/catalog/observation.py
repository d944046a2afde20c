"""What somebody's engine really printed: start-up logs and measurements, each with its source.

Observations are evidence, not input: no estimate reads them. The validation page and the tests
compare estimates with them. Figures stay as printed, with the precision that they were printed in;
SGLang prints "GB" for 2^30 bytes, and is recorded under ``_gib``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import LongText, Positive, Record, Slug, Text, VersionedRecord
from kvreport.catalog.formats import FormatName
from kvreport.catalog.model import ModelId
from kvreport.catalog.shelf import read_each
from kvreport.errors import CatalogError, Fault

Size = Annotated[float, Field(ge=-1e9, le=1e9)]
Number = Annotated[int, Field(ge=0, le=1 << 40)]
Share = Annotated[float, Field(gt=0, le=1)]
Day = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}(-[0-9]{2}(-[0-9]{2})?)?$")]


class Printed(Record):
    """Figures as printed; None where the source has none. Per rank, where it says nothing else."""

    # Size of the KV cache in tokens, as the engine defines it (blocks times 16 where an old vLLM printed only
    # blocks).
    kv_tokens: Number | None = None
    max_concurrency: Size | None = None  # Requests of the longest context that the engine says fit.
    available_kv_gib: Size | None = None  # Memory left for the KV cache.
    # Weights and what lies outside the framework together (vLLM since 0.25 prints no other figure for
    # either).
    consumed_gib: Size | None = None
    model_load_gib: Size | None = None  # Memory that loading the weights took.
    total_gpu_gib: Size | None = None  # Memory of the device as the engine found it.
    free_gpu_gib: Size | None = None  # Memory that was free when it started.
    non_torch_gib: Size | None = None  # Memory outside the framework's allocator.
    peak_activation_gib: Size | None = None  # Largest transient use of a dummy step.
    cudagraph_gib: Size | None = None  # What graph capture took in the end (may be negative).
    cudagraph_est_gib: Size | None = None  # What the engine estimated for it before.
    gpu_blocks: Number | None = None  # Blocks of the pool.
    cpu_blocks: Number | None = None  # Blocks of swap space.
    block_tokens: Number | None = None  # Tokens per block after the engine adjusted it.
    mamba_pad_percent: Size | None = None  # Padding of the state page to the attention page.
    fits: bool | None = None  # False if the engine refused to start.
    longest_context: Number | None = None  # The context that the engine said would fit.
    kv_needed_gib: Size | None = None  # What it said one request needs.
    max_requests: Number | None = None  # Requests that it allows to run at once.
    k_gib: Size | None = None  # Pool of keys (SGLang).
    v_gib: Size | None = None  # Pool of values.
    kv_gib: Size | None = None  # Pool of both.
    state_gib: Size | None = None  # Pool of recurrent states (SGLang).
    free_after_load_gib: Size | None = None  # Free memory after the weights were loaded (SGLang).
    free_after_pool_gib: Size | None = None  # Free memory after the pool was taken (SGLang).
    kv_mib: Size | None = None  # Buffer of keys and values (llama.cpp and relatives).
    k_mib: Size | None = None  # Buffer of keys.
    v_mib: Size | None = None  # Buffer of values.
    state_mib: Size | None = None  # Buffer of recurrent states (llama.cpp).
    compute_buffer_mib: Size | None = None  # Largest compute buffer (llama.cpp).
    weights_mib: Size | None = None  # Buffer of the weights (llama.cpp).
    context_cells: Number | None = None  # Cells of the cache (llama.cpp).


class Origin(Record):
    """Where an observation was read."""

    kind: Text  # What sort of place.
    # Its address, if it has one that is public and known.
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=600)] | None = None
    date: Day | None = None  # When it was made or written.
    lines: tuple[Text, ...] = ()  # The lines that carry the figures.


class PredictedFigure(Record):
    """One figure as it was predicted."""

    quantity: Text  # What ``kvreport validate`` calls it.
    predicted: Size  # The prediction, in ``unit``.
    observed: Size  # The engine's figure, in ``unit``.
    unit: Text  # ``GiB``, ``tokens`` or ``requests``.


class Predicted(Record):
    """What was predicted when a log was read for the first time."""

    by: Text  # The program and the data release.
    starts: bool | None = None  # Whether a start was predicted; None if nothing could be said.
    figures: tuple[PredictedFigure, ...] = ()  # Each figure that could be compared.
    not_compared: tuple[LongText, ...] = ()  # Why others could not.


class Observation(Record):
    """One start of one engine on one machine."""

    id: Slug  # Slug, unique over all files.
    engine: Slug
    engine_version: Text | None = None  # As the source names it; None if it does not.
    model: Text  # As the source names it.
    model_id: ModelId | None = None  # The catalog's or the hub's id, where the name leaves no doubt.
    # A model of the same layers and widths, to predict with where the catalog does not have the checkpoint
    # itself (a quantised copy, a fine-tune).
    shapes_of: ModelId | None = None
    # The format to count that model's weights in; None if the checkpoint mixes formats in a way that the
    # source does not tell.
    shapes_weights: FormatName | None = None
    # True if that format was taken at first sight and the source does not tell which layers are wider: the
    # copy is then judged as the range that its name gives, as one without ``shapes_weights`` is. False where
    # its formats are not those of its name (a patched engine): it is no range.
    mix_open: bool | None = None
    quantization: Text | None = None  # As the source names it.
    # The catalog's name for it, ``released`` if the checkpoint's own; None if not known.
    weight_format: FormatName | None = None
    # The catalog's name, ``auto`` if left to the engine; None if not stated.
    kv_format: FormatName | None = None
    gpu_named: Text  # As the source names it.
    gpu: Slug | None = None  # The catalog's accelerator; None if it is not named or several are mixed.
    gpus: tuple[Slug, ...] = ()  # The catalog's accelerators rank by rank, where they differ; else empty.
    # One of several mixed devices of equal compute capability: how weights are laid out follows from it, and
    # nothing else.
    kernels_of: Slug | None = None
    # ``named``, or ``form_factor_assumed`` where the name leaves it open and the usual one was taken (its
    # memory is the same or nearly so).
    gpu_certainty: Literal["named", "form_factor_assumed"] | None = None
    devices: Positive | None = None  # How many; None if not stated.
    tensor_parallel: Positive | None = None
    pipeline_parallel: Positive | None = None
    pipeline_partition: tuple[Positive, ...] = ()  # Layers of each pipeline stage, where they were given.
    data_parallel: Positive | None = None
    context_parallel: Positive | None = None
    expert_parallel: bool | None = None
    utilization: Share | None = None  # Share of memory the engine was given (vLLM).
    # Whether that was stated or is the engine's default at the time.
    utilization_from: Literal["stated", "stated_elsewhere", "default"] | None = None
    static_share: Share | None = None  # SGLang's ``mem_fraction_static``.
    # TensorRT-LLM's ``free_gpu_memory_fraction``: of what is free beside the weights.
    free_memory_share: Share | None = None
    context_tokens: Positive | None = None
    max_batched_tokens: Positive | None = None
    max_seqs: Positive | None = None
    # True if started with vLLM's offline class, whose steps take more tokens by default.
    offline: bool | None = None
    # True if the log says that sampling fell back to PyTorch's own, which sorts all logits.
    sorts: bool | None = None
    # True if compiled graphs were found in the cache, False if it was the first start: the log says so, its
    # printed peak is that of compiling or less than that, or another start of the command tells by the
    # difference. None where nothing tells.
    compiled: bool | None = None
    # True if it ran under Windows' subsystem for Linux, where a device has all that its driver reports.
    wsl: bool | None = None
    # What serves experts, where the log tells: as of an engine's record.
    expert_kernel: Literal["marlin", "triton", "mega_moe"] | None = None
    # Which of vLLM's model runners ran, where it was told or the log's lines name its file.
    model_runner: Literal["first", "second"] | None = None
    block_tokens: Positive | None = None
    eager: bool | None = None
    speculative: Text | None = None
    lora: Text | None = None
    towers: Text | None = None  # What is said about vision or audio.
    flags: LongText | None = None  # Other flags that bear on memory.
    # What a prediction must know beyond a model on equal devices: layouts, draft models, a memory limit; the
    # source's own keywords.
    needs: tuple[Text, ...] = ()
    unusable: LongText | None = None  # Why no prediction can be compared with it; None where one can.
    printed: Printed
    # Whether the flags are all known, known in part, or assumed to be defaults.
    completeness: Literal["full", "partial", "assumed_defaults"]
    # Why a prediction misses it, where it misses and the cause is known or supposed.
    cause: LongText | None = None
    notes: LongText | None = None
    origin: Origin
    # What was predicted when the record was made (``kvreport observe``); None where that is not kept.
    predicted: Predicted | None = None

    @property
    def complete(self) -> bool:
        """Whether every flag that matters is known."""
        return self.completeness == "full"

    @property
    def devices_named(self) -> str:
        """Its devices and their number: ``8 × H200``; a device without a name in the catalog is not multiplied."""
        if (self.devices or 1) == 1:
            return self.gpu_named
        return (
            f"{self.devices} × {self.gpu_named}" if self.gpu else f"{self.gpu_named}, {self.devices} devices"
        )


class ObservationsFile(VersionedRecord):
    """The content of one file of ``data/observations/``."""

    observations: Annotated[tuple[Observation, ...], Field(min_length=1)]


def load_observations(data_dir: Path) -> tuple[Observation, ...]:
    """Read ``observations/*.yaml`` of a catalog's folder, in name order.

    Args:
        data_dir: The catalog's folder; without ``observations`` in it there are none.

    Raises:
        CatalogError: All faults of all files at once.
    """
    files, faults = read_each(ObservationsFile, data_dir / "observations")
    found: dict[str, Observation] = {}
    for where, file in files.items():
        for number, observation in enumerate(file.observations):
            if observation.id in found:
                place = f"observations.{number}.id"
                faults.append(Fault(where, place, repr(observation.id), "an id that no other has"))
            found[observation.id] = observation
    if faults:
        raise CatalogError(faults)
    return tuple(found.values())
