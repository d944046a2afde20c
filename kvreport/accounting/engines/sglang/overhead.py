"""What SGLang's loading adds to the tensors of a checkpoint. Bytes are per rank."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kvreport.accounting.engines.step import Loading
from kvreport.accounting.engines.vllm.reserve import device_class
from kvreport.accounting.kv_cache import SERVED_BYTES, rotary_width
from kvreport.accounting.weights import rank_elements
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.model import Model
from kvreport.catalog.release import release_of
from kvreport.catalog.remembered import remembered

_FLOAT_BYTES: Final = 4
_BLOCK_FLOAT: Final = "mxfp4"
_FP8_BITS: Final = 8


def float_position_table(model: Model) -> int:
    """SGLang's cosines and sines are 32-bit floats on NVIDIA GPUs.

    ``srt/layers/rotary_embedding/base.py``, once per width. Compressed latents rotate by complex
    numbers, 64 bits each, as many bytes again (``srt/models/deepseek_v4.py::freqs_cis``; one table for
    all layers that rotate alike).
    """
    if not model.rotary_axes:
        return 0
    caches = model.every_cache
    widths = {rotary_width(cache) for cache in caches}
    compressed = any(isinstance(cache, Latent) and cache.stride > 1 for cache in caches)
    return sum(model.context_tokens * width * _FLOAT_BYTES for width in widths) * (1 + compressed)


def layer_tables(loading: Loading) -> int:
    """On AMD GPUs every layer with compressed latents keeps cosines and sines of its own, 16 bits each.

    ``srt/models/deepseek_v4.py``, buffers ``cos_cache`` and ``sin_cache``.
    """
    model, amd = loading.model, loading.accelerator.vendor == "AMD"
    if not amd or not release_of(loading.engine).has("tables_by_layer_on_amd"):
        return 0
    size = 0
    latents = [group for group in model.layers if any(isinstance(one, Latent) for one in group.caches)]
    if not any(one.stride > 1 for group in latents for one in group.caches if isinstance(one, Latent)):
        return 0
    for group in latents:
        width = max(rotary_width(cache) for cache in group.caches)
        size += group.count * model.context_tokens * width * SERVED_BYTES
    return size


def has_host_apart(accelerator: Accelerator) -> bool:
    """True where SGLang moves tables of n-grams to the host: NVIDIA GPUs with memory of their own.

    On unified memory pinned tables come out of the same memory (0.5.20 ``models/qwen4_exp_ple_table.py``).
    """
    return accelerator.vendor.upper() == "NVIDIA" and device_class(accelerator) != "unified"


def tables_on_device(loading: Loading, tables: Collection[str]) -> int:
    """Tables that other devices keep in host memory, and this one does not.

    ``tables``: names of rows that a release keeps in host memory.
    """
    if not tables or has_host_apart(loading.accelerator):
        return 0
    return sum(loading.row_bytes(row) for row in loading.model.weights if row.name in tables)


def widened_projection(loading: Loading) -> int:
    """A grouped output projection in FP8 is widened to 16 bits where no kernel multiplies it in groups.

    DeepGEMM's runs on Blackwell data-centre GPUs, AITER's on gfx950 since 0.5.20 (``SGLANG_OPT_FP8_WO_A_GEMM``:
    ``srt/server_args.py`` in 0.5.13 to 0.5.17, ``srt/arg_groups/model_hook.py`` and ``serving_hook.py`` in 0.5.20 and 0.5.23).
    """
    if not has_groups(loading.model) or multiplies_groups(loading.engine, loading.accelerator):
        return 0
    size = 0
    for row in loading.model.weights:
        form = loading.format_of(row)
        if row.split != "groups" or form is None or form.bits != _FP8_BITS or row.component == "mtp":
            continue
        size += rank_elements(row, loading.layout.tensor) * SERVED_BYTES - loading.row_bytes(row)
    return size


@remembered
def has_groups(model: Model) -> bool:
    """True for a model with a projection that is multiplied in groups."""
    return any(row.split == "groups" for row in model.weights)


def multiplies_groups(engine: Engine, accelerator: Accelerator) -> bool:
    """True where a kernel multiplies FP8 in groups: Blackwell data-center GPUs, and gfx950 in newer releases."""
    own = accelerator.compute_capability or ""
    if accelerator.vendor == "AMD":
        return own == "gfx950" and release_of(engine).has("groups_multiplied_on_gfx950")
    return own.split(".")[0] == "10"


def device_traits(model: Model, engine: Engine, accelerator: Accelerator) -> tuple[bool, ...]:
    """What of a device decides what loading a model adds."""
    repacks = engine.loaded_scales_kept and repacks_block_floats(accelerator)
    grouped = has_groups(model) and multiplies_groups(engine, accelerator)
    return accelerator.vendor == "AMD", grouped, repacks, has_host_apart(accelerator)


def repacks_block_floats(accelerator: Accelerator) -> bool:
    """True where SGLang serves MXFP4 experts with Marlin's kernels: Hopper and consumer Blackwell."""
    return (accelerator.compute_capability or "").split(".")[0] in ("9", "12")


def loaded_scales(loading: Loading) -> int:
    """One 32-bit float per block of every MXFP4 expert, beside the 8-bit scale that the kernel reads.

    SGLang loads the scales into 32-bit floats and registers the kernel's own next to them
    (``srt/layers/quantization/fp8.py::create_fp8_moe_weight_``,
    ``marlin_utils_fp4.py::prepare_moe_mxfp4_layer_for_marlin``); since 0.5.16 the former are deleted.
    """
    size = 0
    for row in loading.model.weights:
        form = loading.format_of(row)
        if row.component != "routed_experts" or form is None or form.name != _BLOCK_FLOAT:
            continue
        _, side = form.block or (1, 1)
        size += row.parameters // side * _FLOAT_BYTES // loading.layout.tensor
    return size
