"""What SGLang's loading adds to the tensors of a checkpoint. Bytes are per rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvreport.accounting.kv_cache import rotary_width
from kvreport.accounting.weights import format_of
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.formats import WeightFormat
from kvreport.catalog.model import Model

_FLOAT_BYTES: Final = 4
_BLOCK_FLOAT: Final = "mxfp4"


def float_position_table(model: Model) -> int:
    """SGLang's cosines and sines are 32-bit floats on NVIDIA GPUs.

    ``srt/layers/rotary_embedding/base.py``, once per width. Compressed latents rotate by complex
    numbers, 64 bits each, as many bytes again (``srt/models/deepseek_v4.py::freqs_cis``; one table for
    all layers that rotate alike).
    """
    caches = [cache for group in model.layers for cache in group.caches]
    widths = {rotary_width(cache) for cache in caches}
    compressed = any(isinstance(cache, Latent) and cache.stride > 1 for cache in caches)
    return sum(model.context_tokens * width * _FLOAT_BYTES for width in widths) * (1 + compressed)


def repacks_block_floats(accelerator: Accelerator) -> bool:
    """True where SGLang serves MXFP4 experts with Marlin's kernels: Hopper and consumer Blackwell."""
    return (accelerator.compute_capability or "").split(".")[0] in ("9", "12")


def loaded_scales(
    model: Model,
    weight_format: WeightFormat | None,
    formats: Mapping[str, WeightFormat],
    tensor_parallel: int,
) -> int:
    """One 32-bit float per block of every MXFP4 expert, beside the 8-bit scale that the kernel reads.

    SGLang loads the scales into 32-bit floats and registers the kernel's own next to them
    (``srt/layers/quantization/fp8.py::create_fp8_moe_weight_``,
    ``marlin_utils_fp4.py::prepare_moe_mxfp4_layer_for_marlin``); since 0.5.16 the former are deleted.
    """
    size = 0
    for row in model.weights:
        form = format_of(model, row, weight_format, formats)
        if row.component != "routed_experts" or form is None or form.name != _BLOCK_FLOAT:
            continue
        _, side = form.block or (1, 1)
        size += row.parameters // side * _FLOAT_BYTES // tensor_parallel
    return size
