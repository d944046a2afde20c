"""The command line of ``vllm serve`` (``engine/arg_utils.py``, 0.33)."""

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
from kvreport.units import GIB
from kvreport.words import SERVE

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
    flags = SERVE["vllm"]
    words: list[Word] = [*flags.start, served.model]
    words += ranks(flags, served, served.layout.tensor, flags.expert_parallel)
    words += _layout(served)
    words += limits(flags, served, served.max_seqs)
    words += _further(served)
    told: tuple[str, ...] = (f"{RUNNER}={RUNNERS.index(served.model_runner)}",) if served.model_runner else ()
    told += (LONG,) if served.any_context else ()
    return Command(tuple(words), (*told, *partition_environment(PARTITION, served)))


def _layout(served: Served) -> list[Word]:
    """Flags of experts and nodes."""
    words: list[Word] = []
    if served.layout.redundant_experts:
        words += [
            "--enable-eplb",
            "--eplb-config.num_redundant_experts",
            str(served.layout.redundant_experts),
        ]
    if served.layout.all_to_all:
        words += ["--all2all-backend", served.layout.all_to_all]
    if served.layout.whole_encoders:
        words += ["--mm-encoder-tp-mode", "data"]
    if served.layout.nodes > 1:
        local = served.layout.data // served.layout.nodes
        by_data = local > 0 and served.layout.data > 1
        words += (
            ["--data-parallel-size-local", str(local)] if by_data else ["--nnodes", str(served.layout.nodes)]
        )
    return words


def _further(served: Served) -> list[Word]:
    words = named(
        ("--dtype", served.dtype),
        ("--max-num-batched-tokens", served.max_batched_tokens),
        ("--kv-cache-memory-bytes", served.kv_pool_bytes),
        ("--block-size", served.block_tokens),
        ("--mamba-ssm-cache-dtype", served.state_type),
        ("--attention-config.indexer_kv_dtype", served.index_type),
        ("--moe-backend", served.expert_kernels),
    )
    words += ["--hf-overrides", dict(served.changed_keys)] if served.changed_keys else []
    words += ["--enforce-eager"] if served.eager else []
    if served.offload_bytes:  # GiB of all tensor ranks together (config/cache.py, 0.33)
        words += ["--kv-offloading-size", f"{served.offload_bytes / GIB:g}"]
    if served.prefix_caching is not None:
        words.append("--enable-prefix-caching" if served.prefix_caching else "--no-enable-prefix-caching")
    if not served.images:
        words += ["--limit-mm-per-prompt", {"image": 0, "video": 0}]
    elif served.inputs:
        words += ["--limit-mm-per-prompt", dict(served.inputs)]
    if served.lora[0]:
        words += ["--enable-lora", "--max-loras", str(served.lora[0]), "--max-lora-rank", str(served.lora[1])]
    if served.draft_tokens:
        # vLLM guesses the method from the model's name, and else takes the draft for a language model.
        method = served.draft_method or (None if served.draft else "mtp")
        drafting = {"method": method} if method else {}
        drafting |= {"model": served.draft} if served.draft else {}
        words += ["--speculative-config", {**drafting, "num_speculative_tokens": served.draft_tokens}]
    return words
