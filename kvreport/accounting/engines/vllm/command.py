"""The command line of ``vllm serve`` (``engine/arg_utils.py``, 0.33)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvreport.accounting.engines.command import (
    Command,
    Served,
    Word,
    limits,
    named,
    partition_environment,
    ranks,
)
from kvreport.catalog.server_flags import flag_names
from kvreport.units import GIB

PARTITION: Final = "VLLM_PP_LAYER_PARTITION"
"""Read from the environment by ``distributed/utils.py::get_pp_indices`` (0.33)."""

RUNNER: Final = "VLLM_USE_V2_MODEL_RUNNER"
"""Read from the environment by ``config/vllm.py::use_v2_model_runner`` (0.22 to 0.33)."""

LONG: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
"""Read from the environment by ``config/model.py::_get_and_verify_max_len`` (0.11 to 0.33)."""

RUNNERS: Final = ("first", "second")
"""The model runners by the variable's value."""


def command(served: Served) -> Command:
    """How vLLM is started."""
    flags = flag_names("vllm")
    words: list[Word] = ["vllm", "serve", served.model]
    words += ranks(flags, served, served.layout.tensor)
    words += _layout(flags, served)
    words += limits("vllm", flags, served, served.max_seqs)
    words += _further(flags, served)
    told: tuple[str, ...] = (f"{RUNNER}={RUNNERS.index(served.model_runner)}",) if served.model_runner else ()
    told += (LONG,) if served.any_context else ()
    return Command(tuple(words), (*told, *partition_environment(PARTITION, served)))


def _layout(flags: Mapping[str, str], served: Served) -> list[Word]:
    """Flags of experts and nodes."""
    words: list[Word] = []
    if served.layout.redundant_experts:
        words += [
            flags["enable_eplb"],
            f"{flags['eplb_config']}.num_redundant_experts",
            str(served.layout.redundant_experts),
        ]
    if served.layout.all_to_all:
        words += [flags["all2all_backend"], served.layout.all_to_all]
    if served.layout.whole_encoders:
        words += [flags["mm_encoder_tp_mode"], "data"]
    if served.layout.nodes > 1:
        local = served.layout.data // served.layout.nodes
        by_data = local > 0 and served.layout.data > 1
        words += (
            [flags["data_parallel_size_local"], str(local)]
            if by_data
            else [flags["nodes"], str(served.layout.nodes)]
        )
    return words


def _further(flags: Mapping[str, str], served: Served) -> list[Word]:
    words = named(
        flags,
        dtype=served.dtype,
        max_batched_tokens=served.max_batched_tokens,
        kv_cache_memory_bytes=served.kv_pool_bytes,
        block_size=served.caches.block_tokens,
        mamba_ssm_cache_dtype=served.state_type,
    )
    if served.index_type is not None:
        words += [f"{flags['attention_config']}.indexer_kv_dtype", served.index_type]
    words += named(flags, moe_backend=served.expert_kernels)
    words += [flags["hf_overrides"], dict(served.changed_keys)] if served.changed_keys else []
    words += [flags["eager"]] if served.eager else []
    if served.offload_bytes:  # GiB of all tensor ranks together (config/cache.py, 0.33)
        words += [flags["kv_offload"], f"{served.offload_bytes / GIB:g}"]
    if served.caches.prefix_caching is not None:
        words.append(flags["prefix_caching" if served.caches.prefix_caching else "no_prefix_caching"])
    if not served.images:
        words += [flags["limit_mm_per_prompt"], {"image": 0, "video": 0}]
    elif served.inputs:
        words += [flags["limit_mm_per_prompt"], dict(served.inputs)]
    if served.lora_slots[0]:
        slots, rank = served.lora_slots
        words += [flags["enable_lora"], *named(flags, max_loras=slots, max_lora_rank=rank)]
    if served.caches.draft_tokens:
        # vLLM guesses the method from the model's name, and else takes the draft for a language model.
        method = served.draft_method or (None if served.draft else "mtp")
        drafting = {"method": method} if method else {}
        drafting |= {"model": served.draft} if served.draft else {}
        words += [
            flags["speculative_config"],
            {**drafting, "num_speculative_tokens": served.caches.draft_tokens},
        ]
    return words
