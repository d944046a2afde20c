"""An engine's block plan: what one request really takes of the pool.

The architecture's own need is :mod:`kvreport.accounting.kv_cache`; here an engine rounds it to
blocks, pads, groups and reserves. One door for all engines; the rules of each family are in
:mod:`kvreport.accounting.engines`.
"""

from __future__ import annotations

from collections.abc import Hashable

from kvreport.accounting.engines import pools, vllm, vllm_kernels
from kvreport.accounting.kv_cache import held
from kvreport.accounting.parallel import check_context_parallel, check_tensor_parallel
from kvreport.accounting.plan import BlockPlan, CacheGroup, Serving
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model

__all__ = [
    "BlockPlan",
    "CacheGroup",
    "Serving",
    "default_kv_format",
    "kernel_class",
    "plan",
    "reserves_for_steps",
    "same_on_every_device",
    "stored_format",
]


def plan(
    model: Model,
    engine: Engine,
    *,
    serving: Serving,
    kv_format: KvFormat | None = None,
    tensor_parallel: int = 1,
    accelerator: Accelerator | None = None,
) -> BlockPlan:
    """Plan an engine's blocks for one model on one device of a tensor-parallel group.

    Args:
        model: The model.
        engine: The engine, whose family's rules apply.
        serving: Flags that change the plan.
        kv_format: How growing caches are stored; None means the type that the model is served in.
        tensor_parallel: Devices that the model is split over.
        accelerator: The device; it decides kernels, and with them block sizes. None: a Hopper GPU.

    Raises:
        InputError: If the combination is impossible, saying why and what would work.
    """
    check_tensor_parallel(model, tensor_parallel)
    check_context_parallel(model, tensor_parallel, serving.context_parallel)
    if engine.family == "ceiling":
        return BlockPlan(block_bytes=1, profile=held(model, kv_format, tensor_parallel=tensor_parallel))
    if engine.family == "vllm":
        return vllm.plan(
            model,
            engine,
            serving=serving,
            kv_format=kv_format,
            tensor_parallel=tensor_parallel,
            accelerator=accelerator,
        )
    if engine.family == "sglang":
        return pools.sglang(model, stored_format(model, engine, kv_format, accelerator), tensor_parallel)
    if engine.family == "llama_cpp":
        return pools.llama_cpp(model, kv_format, serving)
    return pools.transformers(model, kv_format, tensor_parallel)


def default_kv_format(model: Model, engine: Engine, accelerator: Accelerator | None) -> str | None:
    """The KV format that an engine takes when told ``auto``, by name; None for the model's own type."""
    if engine.family == "vllm":
        return vllm_kernels.default_kv_format(model, accelerator)
    return model.kv_format


def stored_format(
    model: Model, engine: Engine, kv_format: KvFormat | None, accelerator: Accelerator | None
) -> KvFormat | None:
    """What an engine really stores when asked for a format, where a device's kernels decide the layout.

    The format keeps its name. What one token of it takes is :func:`kvreport.accounting.kv_cache.held`.
    """
    if engine.family in ("vllm", "sglang"):
        return vllm_kernels.stored_format(model, kv_format, accelerator)
    return kv_format


def same_on_every_device(model: Model, engine: Engine) -> bool:
    """True if the plan of this model does not depend on the accelerator, nor on scheduler sizes."""
    return engine.family == "ceiling" or (
        engine.family == "vllm" and vllm_kernels.same_on_every_device(model)
    )


def reserves_for_steps(model: Model, engine: Engine) -> bool:
    """True if scheduler sizes change the plan of this model."""
    return engine.family not in ("ceiling", "vllm") or (
        engine.family == "vllm" and vllm_kernels.reserves_for_steps(model)
    )


def kernel_class(engine: Engine, accelerator: Accelerator) -> Hashable:
    """What of an accelerator decides a plan: those of equal class get equal plans, all else equal.

    Scheduler sizes count too (:func:`kvreport.accounting.budget.scheduler_sizes`). A table of many
    accelerators is planned once for each class, or once (:func:`same_on_every_device`).
    """
    if engine.family == "ceiling":
        return None
    if engine.family == "vllm":
        return vllm_kernels.Device.of(accelerator)
    return accelerator.vendor, accelerator.compute_capability
