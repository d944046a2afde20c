"""The budget of one device: what an engine may take, what it keeps, and the pool it leaves.

    pool = ceil(usable memory * utilisation) - weights - activations - non-framework - graphs

``usable memory`` is what a process finds (not the label on the box). The ``ceiling`` is no
engine: it reserves nothing, and its utilisation is a share of what the weights leave.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kvreport.accounting.profile import Integers
from kvreport.accounting.reserve import (
    NOTHING,
    SGLANG_LARGE_DEVICE_BYTES,
    SGLANG_LEAST_ON_LARGE_BYTES,
    Reserve,
    constant,
    reserve,
)
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.errors import InputError


@dataclass(frozen=True, slots=True)
class Budget:
    """Where one device's memory goes, in bytes.

    Attributes:
        total_bytes: Memory that a process finds on the device.
        utilization: Share of it that the engine may take (of what weights leave, for ``ceiling``).
        weights: Weights on the device.
        activations: Activation peak.
        non_framework: Driver context, communication buffers, workspaces.
        graphs: Captured graphs.
        kv_pool_bytes: What is left for the cache; never below 0.
        uncertainty_bytes: Half width of the pool's error band.
    """

    total_bytes: int
    utilization: float
    weights: int
    activations: int
    non_framework: int
    graphs: int
    kv_pool_bytes: int
    uncertainty_bytes: int

    @property
    def requested_bytes(self) -> int:
        """What the engine asks for: weights, reserve and pool together."""
        return self.weights + self.activations + self.non_framework + self.graphs + self.kv_pool_bytes


def check_utilization(utilization: float) -> float:
    """Return ``utilization`` if it is a share above 0 and at most 1.

    Raises:
        InputError: If it is not.
    """
    if not 0 < utilization <= 1:
        raise InputError(
            f"utilization: found {utilization:g}; allowed: a share of memory above 0 and at most 1, "
            "such as 0.9"
        )
    return utilization


def memory_bytes(engine: Engine, total_bytes: int, utilization: float | None = None) -> int:
    """What weights, reserve and pool may take together, before anything is subtracted.

    For an engine whose utilisation is a share of all memory that is ``ceil(total * share)``; for
    ``ceiling`` all of it.
    """
    share = check_utilization(engine.utilization if utilization is None else utilization)
    if engine.utilization_of == "memory_less_weights":
        return total_bytes
    return math.ceil(total_bytes * share)


def pool_bytes(
    engine: Engine,
    total_bytes: npt.ArrayLike,
    weight_bytes: npt.ArrayLike,
    reserve_bytes: npt.ArrayLike = 0,
    utilization: float | None = None,
) -> Integers:
    """The cache pool for many devices or weights at once; negative where nothing is left.

    Args:
        engine: The engine's policy.
        total_bytes: Memory that a process finds.
        weight_bytes: Weights on the device.
        reserve_bytes: Activations, non-framework memory and graphs together.
        utilization: Share; None for the engine's default.
    """
    share = check_utilization(engine.utilization if utilization is None else utilization)
    total = np.asarray(total_bytes, dtype=np.int64)
    weights = np.asarray(weight_bytes, dtype=np.int64)
    if engine.utilization_of == "memory_less_weights":
        return np.asarray(np.floor((total - weights) * share), dtype=np.int64)
    requested = np.ceil(total * share).astype(np.int64)
    return np.asarray(requested - weights - np.asarray(reserve_bytes, dtype=np.int64), dtype=np.int64)


def budget(
    model: Model,
    engine: Engine,
    accelerator: Accelerator,
    *,
    weight_bytes: int,
    tensor_parallel: int = 1,
    utilization: float | None = None,
    max_batched_tokens: int | None = None,
    max_seqs: int | None = None,
    eager: bool = False,
    images: bool = True,
    sorts: bool = False,
    kv_pool_bytes: int | None = None,
) -> Budget:
    """The budget of one device of a tensor-parallel group.

    Args:
        model: The model.
        engine: The engine's policy.
        accelerator: The device.
        weight_bytes: Weights on the device, as loaded.
        tensor_parallel: Devices that the model is split over.
        utilization: Share of memory; None for the engine's default.
        max_batched_tokens: Tokens of one scheduler step; None for the default of the device class.
        max_seqs: Requests that run at once; None for the default of the device class.
        eager: True if no graphs are captured.
        images: False if the engine was told to serve text only.
        sorts: True if the engine said that sampling sorts all logits.
        kv_pool_bytes: A pool given by hand, which replaces the computation (its error band is 0).

    Raises:
        InputError: If a number is out of range or the engine's data is not whole.
    """
    share = check_utilization(engine.utilization if utilization is None else utilization)
    total = accelerator.usable_bytes
    kept = scheduled_reserve(
        model,
        engine,
        accelerator,
        tensor_parallel=tensor_parallel,
        max_batched_tokens=max_batched_tokens,
        max_seqs=max_seqs,
        eager=eager,
        images=images,
        sorts=sorts,
    )
    if engine.family == "sglang" and share < 1:
        # A share given by hand is mem_fraction_static: it replaces what SGLang would work out.
        # It is a share of what is free once the device and the ranks' links are set up.
        taken = round(share * taken_before_loading(engine, tensor_parallel))
        kept = replace(NOTHING, non_framework=taken, uncertainty=kept.uncertainty)
    pool = int(pool_bytes(engine, total, weight_bytes, kept.total, share))
    return Budget(
        total_bytes=total,
        utilization=share,
        weights=weight_bytes,
        activations=kept.activations,
        non_framework=kept.non_framework,
        graphs=kept.graphs,
        kv_pool_bytes=max(pool, 0) if kv_pool_bytes is None else kv_pool_bytes,
        uncertainty_bytes=kept.uncertainty if kv_pool_bytes is None else 0,
    )


def scheduled_reserve(
    model: Model,
    engine: Engine,
    accelerator: Accelerator,
    *,
    tensor_parallel: int = 1,
    max_batched_tokens: int | None = None,
    max_seqs: int | None = None,
    eager: bool = False,
    images: bool = True,
    sorts: bool = False,
) -> Reserve:
    """The engine's reserve with the scheduler sizes that it would choose on this device.

    Depends on the device only through :func:`reserve_class`, so one answer serves a class.
    """
    tokens, rows = scheduler_sizes(
        engine, accelerator, max_batched_tokens=max_batched_tokens, max_seqs=max_seqs
    )
    kept = reserve(
        model,
        engine,
        max_batched_tokens=tokens,
        max_seqs=rows,
        tensor_parallel=tensor_parallel,
        eager=eager,
        images=images,
        sorts=sorts,
        own_expert_kernels=own_expert_kernels(accelerator),
    )
    if engine.family != "sglang":
        return kept
    if accelerator.usable_bytes > SGLANG_LARGE_DEVICE_BYTES:
        missing = max(SGLANG_LEAST_ON_LARGE_BYTES - kept.total, 0)
        kept = replace(kept, activations=kept.activations + missing)
    share = max(1 - kept.total / accelerator.usable_bytes, 0.0)
    taken = round(share * taken_before_loading(engine, tensor_parallel))
    return replace(kept, non_framework=kept.non_framework + taken)


def reserve_class(engine: Engine, accelerator: Accelerator) -> Hashable:
    """What of an accelerator decides the reserve: those of equal class have equal reserves."""
    sizes = scheduler_sizes(engine, accelerator)
    if engine.family == "sglang":
        return (*sizes, accelerator.usable_bytes)
    return (*sizes, own_expert_kernels(accelerator))


def own_expert_kernels(accelerator: Accelerator) -> bool:
    """True for Blackwell data-centre GPUs: their kernels for experts come with buffers of their own.

    vLLM 0.33 takes FlashInfer's TensorRT-LLM kernels there (``fused_moe/oracle``); elsewhere Triton's
    and Marlin's, which compute in buffers that the engine allocates.
    """
    return (accelerator.compute_capability or "").split(".")[0] == "10"


def taken_before_loading(engine: Engine, tensor_parallel: int = 1) -> int:
    """What a process holds before weights are loaded: a context, and buffers for other ranks.

    SGLang measures its share of memory after that; vLLM's share is of all memory.
    """
    taken = constant(engine, "taken_before_bytes")
    if tensor_parallel > 1:
        taken += constant(engine, "taken_before_parallel_bytes")
    return round(taken)


def scheduler_sizes(
    engine: Engine,
    accelerator: Accelerator,
    *,
    max_batched_tokens: int | None = None,
    max_seqs: int | None = None,
    offline: bool = False,
) -> tuple[int, int]:
    """Tokens of one step and requests at once: as given, or as the engine defaults them.

    Args:
        engine: The engine's policy.
        accelerator: The device, which decides the defaults.
        max_batched_tokens: Tokens of one scheduler step, where given.
        max_seqs: Requests that run at once, where given.
        offline: True for the defaults of the engine's offline class.

    Raises:
        InputError: If a given number is below 1.
    """
    for name, given in (("max-batched-tokens", max_batched_tokens), ("max-seqs", max_seqs)):
        if given is not None and given < 1:
            raise InputError(f"{name}: found {given}; allowed: a whole number of at least 1")
    if not engine.device_classes:
        return max_batched_tokens or 1, max_seqs or 1
    default = engine.device_class(accelerator.id, accelerator.usable_bytes)
    usual = default.max_batched_tokens
    if offline:
        usual = default.offline_batched_tokens or usual
    tokens = max_batched_tokens or usual
    return tokens, min(max_seqs or default.max_seqs, tokens)
