"""What an engine keeps beside weights and cache: activations, non-framework memory, graphs.

The terms follow what vLLM really allocates while it measures itself:

* a forward pass of ``max_batched_tokens`` tokens: per token some copies of the residual stream,
  of the MLP's inner side, and with experts of each chosen expert's inner side and output;
* a sampling step of ``max_seqs`` rows of logits, a fixed number of bytes per logit (an engine that
  sorts them, as late-2025 releases did, takes two to four times as many; others do where FlashInfer is
  not installed, and say so in their log);
* for models with a vision tower, an encoder pass over images of the largest size.

The largest of these is the activation peak. Releases since 0.16 keep the buffers that experts compute
in, so that a sampling step comes on top of them; not on Blackwell data-centre GPUs, whose kernels for
experts bring their own. What lies outside the framework is a context per device and buffers for
talking to others. A graph keeps every kernel launch of every layer, once per captured batch size:
experts launch more, indexers too, and layers split over devices talk. The counts of bytes are fitted
on published start-up logs (``scripts/fit_reserve.py``) and stand in the engine's data as
``coefficients``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from kvreport.accounting.engines.base import Reserve, constant
from kvreport.accounting.kv_cache import SERVED_BYTES
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Indexer
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model

LARGEST_CAPTURE: Final = 512
"""Tokens of the largest graph that vLLM captures by default."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that activations depend on.

    Attributes:
        hidden: Width of the residual stream.
        inner: Width of a dense MLP's inner side (0 without dense MLPs).
        expert_inner: Width of one expert's inner side (0 without experts).
        experts_per_token: Experts that one token passes through.
        vocabulary: Rows of the output head.
        layers: Layers.
        vision: Width of the vision tower (0 without one).
        indexed: True if layers choose the tokens they attend to through an indexer.
        streams: Residual streams side by side (hyper-connections); 1 in most models.
    """

    hidden: int
    inner: int
    expert_inner: int
    experts_per_token: int
    vocabulary: int
    layers: int
    vision: int
    indexed: bool = False
    streams: int = 1

    @classmethod
    def of(cls, model: Model) -> Shape:
        """Read the sizes off a model's weights."""
        dense = [row.shape for row in model.weights if row.component == "dense_mlp" and len(row.shape) > 1]
        routed = [
            prod(row.shape[-2:]) // model.hidden_size
            for row in model.weights
            if row.component == "routed_experts" and len(row.shape) > 1
        ]
        vision = [row for row in model.weights if row.component == "vision" and len(row.shape) == 2]
        repeated = max(vision, key=lambda row: row.count, default=None)
        joined = [row.shape[-1] for row in model.weights if row.name.endswith("hc_head_fn")]
        return cls(
            hidden=model.hidden_size,
            inner=max((prod(shape[-2:]) // model.hidden_size for shape in dense), default=0),
            expert_inner=min(routed, default=0),
            experts_per_token=model.experts.per_token if model.experts and routed else 0,
            vocabulary=model.vocabulary,
            layers=model.layer_count,
            vision=min(repeated.shape) if repeated else 0,
            indexed=any(isinstance(cache, Indexer) for group in model.layers for cache in group.caches),
            streams=max(joined, default=model.hidden_size) // model.hidden_size,
        )


@dataclass(frozen=True, slots=True)
class ReserveRates:
    """vLLM's reserve before the scheduler's sizes are known: bytes per token of a step, row and graph.

    Attributes:
        forward_per_token: Of a forward pass.
        workspace_per_token: Of the buffers that experts compute in, where they stay during sampling.
        streams_per_token: Of residual streams kept for a draft model.
        sampling_per_row: Of one row of logits while it is sampled from.
        encoding: Of an encoder pass over images.
        non_framework: Outside the framework.
        graphs_per_size: Of the graphs of one captured batch size (0 where they are not reserved for).
    """

    forward_per_token: float
    workspace_per_token: float
    streams_per_token: float
    sampling_per_row: float
    encoding: float
    non_framework: float
    graphs_per_size: float

    @classmethod
    def of(
        cls,
        model: Model,
        engine: Engine,
        *,
        tensor_parallel: int = 1,
        images: bool = True,
        own_expert_kernels: bool = False,
        sorts: bool = False,
    ) -> ReserveRates:
        """Read the rates off a model and an engine's constants; arguments as for :func:`reserve`.

        Raises:
            InputError: If the engine's data lacks a coefficient.
        """
        sizes = Shape.of(model)
        split = tensor_parallel > 1
        per_logit = constant(engine, "sorting_bytes_per_logit" if sorts else "sampling_bytes_per_logit")
        workspace = engine.expert_workspace_kept and not own_expert_kernels
        streams = engine.streams_buffer_kept and sizes.streams > 1
        per_layer = constant(engine, "graph_bytes_per_layer")
        per_layer += constant(engine, "graph_bytes_per_indexed_layer") * sizes.indexed
        per_layer += constant(engine, "graph_bytes_per_expert_layer") * bool(sizes.experts_per_token)
        per_layer += constant(engine, "graph_bytes_per_split_layer") * split
        return cls(
            forward_per_token=forward_bytes_per_token(sizes, engine, tensor_parallel),
            workspace_per_token=(
                expert_workspace_bytes_per_token(sizes, tensor_parallel) if workspace else 0.0
            ),
            streams_per_token=sizes.streams * sizes.hidden * SERVED_BYTES if streams else 0,
            sampling_per_row=per_logit * sizes.vocabulary,
            encoding=constant(engine, "vision_bytes_per_width") * sizes.vision * images,
            non_framework=constant(engine, "non_framework_bytes")
            + constant(engine, "non_framework_parallel_bytes") * split,
            graphs_per_size=per_layer * sizes.layers if engine.graphs_reserved else 0.0,
        )


def captured_sizes(max_seqs: int) -> int:
    """Batch sizes that vLLM captures by default: 1, 2, 4, then by 8 to 256, then by 16."""
    largest = min(2 * max_seqs, LARGEST_CAPTURE)
    fine = min(largest, 256) // 8
    coarse = max(largest - 256, 0) // 16
    return sum(size <= largest for size in (1, 2, 4)) + fine + coarse


def reserve(
    model: Model,
    engine: Engine,
    *,
    max_batched_tokens: int,
    max_seqs: int,
    tensor_parallel: int = 1,
    eager: bool = False,
    images: bool = True,
    own_expert_kernels: bool = False,
    sorts: bool = False,
) -> Reserve:
    """Estimate an engine's reserve for one model on one device.

    Args:
        model: The model.
        engine: The engine; its ``coefficients`` hold the fitted constants.
        max_batched_tokens: Tokens of one scheduler step.
        max_seqs: Requests that run at once.
        tensor_parallel: Ranks that the model is split over.
        eager: True if no graphs are captured.
        images: False if the engine was told to serve text only.
        own_expert_kernels: True if the device's kernels for experts bring their own buffers.
        sorts: True if the engine said that sampling sorts all logits, whatever its release does otherwise.

    Raises:
        InputError: If the engine's data lacks a coefficient.
    """
    rates = ReserveRates.of(
        model,
        engine,
        tensor_parallel=tensor_parallel,
        images=images,
        own_expert_kernels=own_expert_kernels,
        sorts=sorts,
    )
    rows = min(max_seqs, max_batched_tokens)
    forward = rates.forward_per_token * max_batched_tokens
    sampling = rates.workspace_per_token * max_batched_tokens + rates.sampling_per_row * rows
    activations = max(forward, sampling, rates.encoding) + rates.streams_per_token * max_batched_tokens
    non_framework = rates.non_framework
    graphs = 0.0 if eager else rates.graphs_per_size * captured_sizes(max_seqs)
    total = activations + non_framework + graphs
    uncertainty = constant(engine, "uncertainty_bytes") + constant(engine, "uncertainty_share") * total
    return Reserve(
        activations=round(activations),
        non_framework=round(non_framework),
        graphs=round(graphs),
        uncertainty=round(uncertainty),
    )


def forward_bytes_per_token(sizes: Shape, engine: Engine, tensor_parallel: int = 1) -> float:
    """Bytes that one token takes at the peak of a forward pass."""
    dense = constant(engine, "forward_bytes_per_hidden") * sizes.hidden * sizes.streams
    dense += constant(engine, "forward_bytes_per_inner") * sizes.inner / tensor_parallel
    expert = constant(engine, "forward_bytes_per_inner") * sizes.expert_inner / tensor_parallel
    expert += constant(engine, "expert_bytes_per_hidden") * sizes.hidden
    return dense + sizes.experts_per_token * expert


def expert_workspace_bytes_per_token(sizes: Shape, tensor_parallel: int = 1) -> float:
    """Bytes per token of the two buffers that Triton's and Marlin's experts compute in, 16 bits each.

    Per chosen expert one buffer holds the inner side or the output, the other both halves of the inner
    side or the output (vLLM 0.22.0, ``fused_moe/experts/marlin_moe.py::workspace_shapes``,
    ``fused_moe/modular_kernel.py::_allocate_buffers``, ``v1/worker/workspace.py``).
    """
    inner = sizes.expert_inner / tensor_parallel
    widths = max(inner, sizes.hidden) + max(2 * inner, sizes.hidden)
    return sizes.experts_per_token * widths * SERVED_BYTES


def own_expert_kernels(accelerator: Accelerator) -> bool:
    """True for Blackwell data-centre GPUs: their kernels for experts come with buffers of their own.

    vLLM 0.33 takes FlashInfer's TensorRT-LLM kernels there (``fused_moe/oracle``); elsewhere Triton's
    and Marlin's, which compute in buffers that the engine allocates.
    """
    return (accelerator.compute_capability or "").split(".")[0] == "10"
