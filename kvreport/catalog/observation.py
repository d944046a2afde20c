"""What somebody's engine really printed: start-up logs and measurements, each with its source.

Observations are evidence, not input: no estimate reads them. The validation page and the tests
compare estimates with them. Figures stay as printed, with the precision that they were printed in;
SGLang prints "GB" for 2^30 bytes, and is recorded under ``_gib``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from kvreport.catalog.base import SCHEMA_VERSION, LongText, Positive, Record, Slug, Text
from kvreport.catalog.formats import FormatName
from kvreport.catalog.model import ModelId
from kvreport.catalog.shelf import read_each
from kvreport.errors import CatalogError, Fault

Size = Annotated[float, Field(ge=-1e9, le=1e9)]
Number = Annotated[int, Field(ge=0, le=1 << 40)]
Share = Annotated[float, Field(gt=0, le=1)]
Day = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}(-[0-9]{2}(-[0-9]{2})?)?$")]


class Printed(Record):
    """Figures as printed; None where the source has none. Per rank, where it says nothing else.

    Attributes:
        kv_tokens: Size of the KV cache in tokens, as the engine defines it (blocks times 16 where
            an old vLLM printed only blocks).
        max_concurrency: Requests of the longest context that the engine says fit.
        available_kv_gib: Memory left for the KV cache.
        consumed_gib: Weights and what lies outside the framework together (vLLM since 0.25 prints no
            other figure for either).
        model_load_gib: Memory that loading the weights took.
        total_gpu_gib: Memory of the device as the engine found it.
        free_gpu_gib: Memory that was free when it started.
        non_torch_gib: Memory outside the framework's allocator.
        peak_activation_gib: Largest transient use of a dummy step.
        cudagraph_gib: What graph capture took in the end (may be negative).
        cudagraph_est_gib: What the engine estimated for it before.
        gpu_blocks: Blocks of the pool.
        cpu_blocks: Blocks of swap space.
        block_tokens: Tokens per block after the engine adjusted it.
        mamba_pad_percent: Padding of the state page to the attention page.
        fits: False if the engine refused to start.
        longest_context: The context that the engine said would fit.
        kv_needed_gib: What it said one request needs.
        max_requests: Requests that it allows to run at once.
        k_gib, v_gib, kv_gib: Pools of keys, values, both (SGLang).
        state_gib: Pool of recurrent states (SGLang).
        free_after_load_gib: Free memory after the weights were loaded (SGLang).
        free_after_pool_gib: Free memory after the pool was taken (SGLang).
        kv_mib, k_mib, v_mib: Buffers of both, keys, values (llama.cpp and relatives).
        state_mib: Buffer of recurrent states (llama.cpp).
        compute_buffer_mib: Largest compute buffer (llama.cpp).
        weights_mib: Buffer of the weights (llama.cpp).
        context_cells: Cells of the cache (llama.cpp).
    """

    kv_tokens: Number | None = None
    max_concurrency: Size | None = None
    available_kv_gib: Size | None = None
    consumed_gib: Size | None = None
    model_load_gib: Size | None = None
    total_gpu_gib: Size | None = None
    free_gpu_gib: Size | None = None
    non_torch_gib: Size | None = None
    peak_activation_gib: Size | None = None
    cudagraph_gib: Size | None = None
    cudagraph_est_gib: Size | None = None
    gpu_blocks: Number | None = None
    cpu_blocks: Number | None = None
    block_tokens: Number | None = None
    mamba_pad_percent: Size | None = None
    fits: bool | None = None
    longest_context: Number | None = None
    kv_needed_gib: Size | None = None
    max_requests: Number | None = None
    k_gib: Size | None = None
    v_gib: Size | None = None
    kv_gib: Size | None = None
    state_gib: Size | None = None
    free_after_load_gib: Size | None = None
    free_after_pool_gib: Size | None = None
    kv_mib: Size | None = None
    k_mib: Size | None = None
    v_mib: Size | None = None
    state_mib: Size | None = None
    compute_buffer_mib: Size | None = None
    weights_mib: Size | None = None
    context_cells: Number | None = None


class Origin(Record):
    """Where an observation was read.

    Attributes:
        kind: What sort of place.
        url: Its address, if it has one that is public and known.
        date: When it was made or written.
        lines: The lines that carry the figures.
    """

    kind: Text
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=600)] | None = None
    date: Day | None = None
    lines: tuple[Text, ...] = ()


class PredictedFigure(Record):
    """One figure as it was predicted.

    Attributes:
        quantity: What ``kvreport validate`` calls it.
        predicted: The prediction, in ``unit``.
        observed: The engine's figure, in ``unit``.
        unit: ``GiB``, ``tokens`` or ``requests``.
    """

    quantity: Text
    predicted: Size
    observed: Size
    unit: Text


class Predicted(Record):
    """What was predicted when a log was read for the first time.

    Attributes:
        by: The program and the data release.
        starts: Whether a start was predicted; None if nothing could be said.
        figures: Each figure that could be compared.
        not_compared: Why others could not.
    """

    by: Text
    starts: bool | None = None
    figures: tuple[PredictedFigure, ...] = ()
    not_compared: tuple[LongText, ...] = ()


class Observation(Record):
    """One start of one engine on one machine.

    Attributes:
        id: Slug, unique over all files.
        engine_version: As the source names it; None if it does not.
        model: As the source names it.
        model_id: The catalog's or the hub's id, where the name leaves no doubt.
        shapes_of: A model of the same layers and widths, to predict with where the catalog does not
            have the checkpoint itself (a quantised copy, a fine-tune).
        shapes_weights: The format to count that model's weights in; None if the checkpoint mixes
            formats in a way that the source does not tell.
        mix_open: True if that format was taken at first sight and the source does not tell which layers are wider: the copy
            is then judged as the range that its name gives, as one without ``shapes_weights`` is. False where its formats are
            not those of its name (a patched engine): it is no range.
        quantization: As the source names it.
        weight_format: The catalog's name for it, ``released`` if the checkpoint's own; None if
            not known.
        kv_format: The catalog's name, ``auto`` if left to the engine; None if not stated.
        gpu_named: As the source names it.
        gpu: The catalog's accelerator; None if it is not named or several are mixed.
        gpus: The catalog's accelerators rank by rank, where they differ; else empty.
        pipeline_partition: Layers of each pipeline stage, where they were given.
        kernels_of: One of several mixed devices of equal compute capability: how weights are laid out
            follows from it, and nothing else.
        gpu_certainty: ``named``, or ``form_factor_assumed`` where the name leaves it open and the
            usual one was taken (its memory is the same or nearly so).
        devices: How many; None if not stated.
        utilization: Share of memory the engine was given (vLLM).
        utilization_from: Whether that was stated or is the engine's default at the time.
        static_share: SGLang's ``mem_fraction_static``.
        free_memory_share: TensorRT-LLM's ``free_gpu_memory_fraction``: of what is free beside the weights.
        sorts: True if the log says that sampling fell back to PyTorch's own, which sorts all logits.
        compiled: True if compiled graphs were found in the cache, False if it was the first start: the log says so, its
            printed peak is that of compiling or less than that, or another start of the command tells by the difference.
            None where nothing tells.
        wsl: True if it ran under Windows' subsystem for Linux, where a device has all that its driver reports.
        expert_kernel: What serves experts, where the log tells: as of an engine's record.
        model_runner: Which of vLLM's model runners ran, where it was told or the log's lines name its file.
        offline: True if started with vLLM's offline class, whose steps take more tokens by default.
        completeness: Whether the flags are all known, known in part, or assumed to be defaults.
        flags: Other flags that bear on memory.
        towers: What is said about vision or audio.
        needs: What a prediction must know beyond a model on equal devices: layouts, draft models,
            a memory limit; the source's own keywords.
        cause: Why a prediction misses it, where it misses and the cause is known or supposed.
        unusable: Why no prediction can be compared with it; None where one can.
        predicted: What was predicted when the record was made (``kvreport observe``); None where that is not kept.
    """

    id: Slug
    engine: Slug
    engine_version: Text | None = None
    model: Text
    model_id: ModelId | None = None
    shapes_of: ModelId | None = None
    shapes_weights: FormatName | None = None
    mix_open: bool | None = None
    quantization: Text | None = None
    weight_format: FormatName | None = None
    kv_format: FormatName | None = None
    gpu_named: Text
    gpu: Slug | None = None
    gpus: tuple[Slug, ...] = ()
    kernels_of: Slug | None = None
    gpu_certainty: Literal["named", "form_factor_assumed"] | None = None
    devices: Positive | None = None
    tensor_parallel: Positive | None = None
    pipeline_parallel: Positive | None = None
    pipeline_partition: tuple[Positive, ...] = ()
    data_parallel: Positive | None = None
    context_parallel: Positive | None = None
    expert_parallel: bool | None = None
    utilization: Share | None = None
    utilization_from: Literal["stated", "stated_elsewhere", "default"] | None = None
    static_share: Share | None = None
    free_memory_share: Share | None = None
    context_tokens: Positive | None = None
    max_batched_tokens: Positive | None = None
    max_seqs: Positive | None = None
    offline: bool | None = None
    sorts: bool | None = None
    compiled: bool | None = None
    wsl: bool | None = None
    expert_kernel: Literal["marlin", "triton", "mega_moe"] | None = None
    model_runner: Literal["first", "second"] | None = None
    block_tokens: Positive | None = None
    eager: bool | None = None
    speculative: Text | None = None
    lora: Text | None = None
    towers: Text | None = None
    flags: LongText | None = None
    needs: tuple[Text, ...] = ()
    unusable: LongText | None = None
    printed: Printed
    completeness: Literal["full", "partial", "assumed_defaults"]
    cause: LongText | None = None
    notes: LongText | None = None
    origin: Origin
    predicted: Predicted | None = None

    @property
    def complete(self) -> bool:
        """Whether every flag that matters is known."""
        return self.completeness == "full"


class ObservationsFile(Record):
    """The content of one file of ``data/observations/``."""

    schema_version: Literal[1] = SCHEMA_VERSION
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
