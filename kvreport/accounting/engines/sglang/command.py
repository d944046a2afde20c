"""The command line of ``python -m sglang.launch_server`` (``srt/server_args.py``, 0.5.23)."""

from __future__ import annotations

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
from kvreport.accounting.text_drafts import TEXT_DRAFTS
from kvreport.units import GB
from kvreport.words import SERVE

PARTITION: Final = "SGLANG_PP_LAYER_PARTITION"
"""Read from the environment by ``distributed/utils.py::get_pp_indices`` (0.5.23)."""


LONG: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
"""Read from the environment by ``configs/model_config.py::ModelConfig._derive_context_length`` (0.5.9 to 0.5.23)."""

POOL_CAP: Final = "--max-total-tokens"
"""The smaller of this and what memory holds is taken (``mem_cache/kv_cache_configurator.py``, 0.5.23)."""


def command(served: Served) -> Command:
    """How SGLang is started: data ranks count among its tensor ranks."""
    flags = SERVE["sglang"]
    words: list[Word] = [*flags.start, served.model]
    words += ranks(flags, served, served.stage_ranks, (*flags.expert_parallel, str(served.stage_ranks)))
    words += _layout(served)
    # SGLang divides the number among its data ranks (managers/scheduler.py, 0.5.23).
    max_seqs = None if served.max_seqs is None else served.max_seqs * served.layout.data
    words += limits(flags, served, max_seqs)
    words += _further(served)
    words += ["--json-model-override-args", dict(served.changed_keys)] if served.changed_keys else []
    told = (LONG,) if served.any_context else ()
    return Command(tuple(words), (*told, *partition_environment(PARTITION, served)))


def _layout(served: Served) -> list[Word]:
    """Flags of experts and nodes."""
    words: list[Word] = []
    if served.layout.redundant_experts:
        words += ["--ep-num-redundant-experts", str(served.layout.redundant_experts)]
    if served.layout.all_to_all.startswith("deepep"):
        mode = "low_latency" if served.layout.all_to_all == "deepep_low_latency" else "normal"
        words += ["--moe-a2a-backend", "deepep", "--deepep-mode", mode]
    words += ["--moe-dense-tp-size", "1"] if served.layout.whole_dense else []
    words += ["--enable-dp-lm-head"] if served.layout.head_by_data_rank else []
    if served.layout.nodes > 1:
        words += ["--nnodes", str(served.layout.nodes)]
    return words


def _further(served: Served) -> list[Word]:
    words = named(
        ("--dtype", served.dtype),
        ("--chunked-prefill-size", served.max_batched_tokens),
        ("--page-size", served.block_tokens),
        (POOL_CAP, served.pool_tokens),
        ("--mamba-ssm-dtype", served.state_type),
    )
    words += ["--disable-cuda-graph"] if served.eager else []
    if served.offload_bytes:  # whole GB of each rank (srt/arg_groups/fields/memory.py, 0.5.23)
        each = max(served.offload_bytes // (GB * served.layout.tensor), 1)
        words += ["--enable-hierarchical-cache", "--hicache-size", str(each)]
    words += ["--disable-radix-cache"] if served.prefix_caching is False else []
    if served.lora[0]:
        words += ["--enable-lora", "--max-loras-per-batch", str(served.lora[0])]
        words += ["--max-lora-rank", str(served.lora[1])]
    if served.draft_tokens:
        # The algorithms of ``srt/speculative/spec_info.py``, SGLang 0.5.23; a language model beside another is STANDALONE.
        method = served.draft_method or ("standalone" if served.draft else "eagle")
        words += ["--speculative-algorithm", method.upper()]
        words += named(("--speculative-draft-model-path", served.draft))
        if method not in TEXT_DRAFTS:  # speculative_hook.py::_handle_ngram sets both by itself
            words += ["--speculative-num-steps", str(served.draft_tokens), "--speculative-eagle-topk", "1"]
        # SGLang counts the token that is verified beside those that are drafted.
        words += ["--speculative-num-draft-tokens", str(served.draft_tokens + 1)]
    return words
