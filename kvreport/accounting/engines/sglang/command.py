"""The command line of ``python -m sglang.launch_server`` (``srt/server_args.py``, 0.5.23)."""

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
from kvreport.accounting.parallel import Layout
from kvreport.accounting.text_drafts import TEXT_DRAFTS
from kvreport.catalog.server_flags import flag_names
from kvreport.units import GB

PARTITION: Final = "SGLANG_PP_LAYER_PARTITION"
"""Read from the environment by ``distributed/utils.py::get_pp_indices`` (0.5.23)."""


LONG: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
"""Read from the environment by ``configs/model_config.py::ModelConfig._derive_context_length`` (0.5.9 to 0.5.23)."""


def command(served: Served) -> Command:
    """How SGLang is started: data ranks count among its tensor ranks."""
    flags = flag_names("sglang")
    words: list[Word] = ["python", "-m", "sglang.launch_server", flags["model_path"], served.model]
    attention, experts = (flags["enable_dp_attention"],), (str(served.stage_ranks),)
    words += ranks(flags, served, served.stage_ranks, attention=attention, experts=experts)
    words += _layout(flags, served)
    # SGLang divides the number among its data ranks (managers/scheduler.py, 0.5.23).
    max_seqs = None if served.max_seqs is None else served.max_seqs * served.layout.data
    words += limits("sglang", flags, served, max_seqs)
    words += _further(flags, served)
    words += [flags["hf_overrides"], dict(served.changed_keys)] if served.changed_keys else []
    told = (LONG,) if served.any_context else ()
    return Command(tuple(words), (*told, *partition_environment(PARTITION, served)))


def _layout(flags: Mapping[str, str], served: Served) -> list[Word]:
    """Flags of experts and nodes."""
    words = named(flags, ep_num_redundant_experts=served.layout.redundant_experts or None)
    if served.layout.all_to_all.startswith("deepep"):
        mode = "low_latency" if served.layout.all_to_all == "deepep_low_latency" else "normal"
        words += named(flags, moe_a2a_backend="deepep", deepep_mode=mode)
    words += named(flags, moe_dense_tp_size=1) if served.layout.whole_dense else []
    words += [flags["enable_dp_lm_head"]] if served.layout.head_by_data_rank else []
    return [*words, *(named(flags, nodes=served.layout.nodes) if served.layout.nodes > 1 else [])]


def host_gigabytes(offload_bytes: int, layout: Layout) -> int:
    """Whole GB of host memory of each rank (``--hicache-size``: ``srt/arg_groups/fields/memory.py``, 0.5.23)."""
    return offload_bytes // (GB * layout.tensor * layout.pipeline)


def _further(flags: Mapping[str, str], served: Served) -> list[Word]:
    words = named(
        flags,
        dtype=served.dtype,
        max_batched_tokens=served.max_batched_tokens,
        block_size=served.caches.block_tokens,
        max_total_tokens=served.pool_tokens,
        mamba_ssm_cache_dtype=served.state_type,
    )
    words += [flags["eager"]] if served.eager else []
    if served.offload_bytes:
        each = host_gigabytes(served.offload_bytes, served.layout)
        words += [flags["enable_hierarchical_cache"], *named(flags, hicache_size=each)]
    words += [flags["no_prefix_caching"]] if served.caches.prefix_caching is False else []
    if served.lora_slots[0]:
        slots, rank = served.lora_slots
        words += [flags["enable_lora"], *named(flags, max_loras=slots, max_lora_rank=rank)]
    if served.caches.draft_tokens:
        # The algorithms of ``srt/speculative/spec_info.py``, SGLang 0.5.23; a language model beside another is STANDALONE.
        method = served.draft_method or ("standalone" if served.draft else "eagle")
        words += named(flags, speculative_algorithm=method.upper(), speculative_draft_model_path=served.draft)
        if method not in TEXT_DRAFTS:  # speculative_hook.py::_handle_ngram sets both by itself
            words += named(flags, speculative_num_steps=served.caches.draft_tokens, speculative_eagle_topk=1)
        # SGLang counts the token that is verified beside those that are drafted.
        words += named(flags, speculative_num_draft_tokens=served.caches.draft_tokens + 1)
    return words
