"""Combinations that SGLang refuses when it resolves its flags, before a weight is loaded (0.5.23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvreport.accounting import kernel
from kvreport.accounting.engines.sglang import compressed, settings, shapes
from kvreport.accounting.parallel import Layout
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.caches import Latent
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import KvFormat
from kvreport.catalog.model import Model
from kvreport.units import gib

SPARSE_BITS: Final = (8, 16)
"""Widths that a sparse latent or a compressed cache may be stored in."""


def unequal_refusal(devices: Sequence[Accelerator], engine: Engine, layout: Layout) -> str | None:
    """Why unequal devices are refused; None if they are not.

    Pipeline stages alone are not compared (0.5.23 ``distributed/bootstrap.py::_check_tp_memory_balance``).
    """
    sizes = [one.usable_bytes for one in devices]
    if layout.tensor * layout.data == 1 or min(sizes) >= kernel.LEAST_OF_LARGEST * max(sizes):
        return None
    return (
        f"tensor parallel: found GPUs of {gib(min(sizes))} and {gib(max(sizes))} GiB, which {engine.label} refuses as "
        f"unbalanced; allowed: --pipeline-parallel {len(devices)} alone, or equal GPUs"
    )


def refusal(
    model: Model,
    engine: Engine,
    kv_format: KvFormat | None,
    accelerator: Accelerator | None,
    layout: Layout,
) -> str | None:
    """The engine's reason in words, with what works instead; None if it starts resolving."""
    bits = 16.0 if kv_format is None else kv_format.bits
    name = "bf16" if kv_format is None else kv_format.name
    if compressed.is_compressed(model) and bits not in SPARSE_BITS:
        # overrides.py::_deepseek_v4_kv_cache_dtype
        return f"{engine.label} stores compressed latents in fp8 or bf16; found {name}"
    strides = {cache.stride for cache in model.every_cache if isinstance(cache, Latent)}
    if unknown := sorted(strides - {1, *compressed.RINGS}):
        # DeepSeek-V4.1's pools (0.5.23 deepseek_v41.py, dsv4/dsv41_sparse.py) are not computed here.
        return f"the pools of {engine.label} for latents of {unknown[0]} tokens are not computed here; allowed: vllm"
    sparse = shapes.latent_of(model) is not None and shapes.indexer_of(model) is not None
    if sparse and bits not in SPARSE_BITS:
        # overrides.py::_dsa_kv_cache_dtype_default
        return f"{engine.label} stores sparse latents in fp8 or bf16; found {name}"
    if not stores_narrow(kv_format, accelerator):
        # kv_cache_dtype.py: 4-bit storage needs the kernels of Blackwell GPUs
        return f"{engine.label} keeps a {name} cache on Blackwell GPUs only; fp8 and bf16 work here"
    if layout.decode_context > 1 and layout.tensor % layout.decode_context:
        return (
            f"decode context parallel: found {layout.decode_context} with {layout.tensor} tensor ranks; "
            "allowed: a size that divides them"
        )
    if layout.expert and model.experts is not None:
        # eplb/expert_location.py::_init_common
        ranks = layout.tensor * layout.data
        if (model.experts.routed + layout.redundant_experts) % ranks:
            more = -model.experts.routed % ranks
            return (
                f"expert parallel: found {model.experts.routed + layout.redundant_experts} experts on {ranks} ranks, "
                f"and {engine.label} gives each equally many; allowed: a number of ranks that divides {model.experts.routed}, or "
                f"--num-redundant-experts {more}"
            )
    return None


def stores_narrow(kv_format: KvFormat | None, accelerator: Accelerator | None) -> bool:
    """False for fewer than 8 bits on a device before Blackwell, whose kernels do not read them."""
    narrow = kv_format is not None and kv_format.bits < SPARSE_BITS[0]
    return not narrow or settings.capability(accelerator) >= settings.BLACKWELL
