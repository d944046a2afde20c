"""Further lines of vLLM: the summary of its budget, profiling results of the first engine, flags not followed."""

from __future__ import annotations

from typing import Final

from kvreport.startup_log.patterns import NUMBER, WHOLE, Pattern

_SIZE: Final = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"


def _short(name: str, letter: str, unit: str) -> Pattern:
    """A length with a letter: vLLM reads ``32K`` as 32,768 and ``32k`` as 32,000."""
    return Pattern(
        name,
        None,
        rf"--max[-_]model[-_]len(?:=| +)(?P<max_model_len__{unit}>{_SIZE}){letter}\b",
        "No request may be longer than {max_model_len} tokens, prompt and answer together.",
    )


FURTHER: Final[tuple[Pattern, ...]] = (
    Pattern(
        "vllm_desired",
        "vllm",
        rf"Desired GPU memory utilization is \((?P<utilization>[01]?\.[0-9]{{1,9}}|1(?:\.0)?), "
        rf"(?P<requested__gib>{NUMBER}) ?GiB\)",
        "It may take {utilization} of the device's memory, {requested}.",
    ),
    Pattern(
        "vllm_actual",
        "vllm",
        rf"Actual usage is (?P<weights__gib>{NUMBER}) ?GiB for weights?, (?P<activations__gib>{NUMBER}) ?GiB for "
        rf"peak activation, (?P<non_framework__gib>{NUMBER}) ?GiB for non-torch memory, and "
        rf"(?P<graphs__gib>{NUMBER}) ?GiB for CUDAGraph memory",
        "Weights {weights}, working memory {activations}, non-framework memory {non_framework}, graphs {graphs}.",
    ),
    Pattern(
        "vllm_consumed",
        "vllm",
        rf"Actual usage is (?P<consumed__gib>{NUMBER}) ?GiB for consumed memory \(weights \+ non-torch\), "
        rf"(?P<activations__gib>{NUMBER}) ?GiB for peak activation, and (?P<graphs__gib>{NUMBER}) ?GiB for "
        rf"CUDAGraph memory",
        "Weights and non-framework memory {consumed}, working memory {activations}, graphs {graphs}.",
    ),
    Pattern(
        "vllm_in_use",
        "vllm",
        rf"Current kv cache memory in use is (?P<kv_pool__gib>{NUMBER}) ?GiB",
        "The cache has {kv_pool} on this device.",
    ),
    Pattern(
        "vllm_v0_results",
        "vllm",
        rf"Memory profiling results: .{{0,200}}?total_gpu_memory=(?P<total_memory__gib>{NUMBER}) ?GiB"
        rf".{{0,300}}?non_torch_memory=(?P<non_framework__gib>{NUMBER}) ?GiB"
        rf".{{0,60}}?kv_cache_size=(?P<kv_pool__gib>{NUMBER}) ?GiB"
        rf"(?:.{{0,60}}?gpu_memory_utilization=(?P<utilization>[01]?\.[0-9]{{1,9}}))?",
        "{kv_pool} are left for the cache of the device's {total_memory}; non-framework memory takes {non_framework}.",
    ),
    Pattern(
        "vllm_chunked",
        "vllm",
        rf"Chunked prefill is enabled with max_num_batched_tokens=(?P<max_batched_tokens>{WHOLE})",
        "One step handles at most {max_batched_tokens} tokens; working memory is measured at that size.",
    ),
    Pattern(
        "vllm_block_set",
        "vllm",
        rf"Setting kv cache block size to (?P<block_tokens>{WHOLE})",
        "The cache is handed out in blocks of {block_tokens} tokens.",
    ),
    _short("max_model_len_ki", "K", "ki"),
    _short("max_model_len_k", "k", "k"),
    Pattern(
        "prefix_caching_off",
        "vllm",
        r"(?P<no_prefix_caching>--no-enable-prefix-caching|enable_prefix_caching=False|'enable_prefix_caching': False)",
        "Prefixes are not cached: a recurrent state takes one slot of a request.",
    ),
    # Flags that bear on memory and that no number here follows.
    Pattern(
        "speculative",
        None,
        r"(?P<speculative>--speculative[-_](?:config|algorithm)|'speculative_config': ?\{|"
        r"speculative_config=SpeculativeConfig|speculative_algorithm='[A-Z])",
        "Drafts are made ahead: weights and cache of the draft model are not counted here.",
    ),
    Pattern(
        "lora",
        None,
        r"(?P<lora>--enable[-_]lora\b|enable_lora=True|'enable_lora': True)",
        "LoRA adapters are served: their buffers are not counted here.",
    ),
    Pattern(
        "expert_parallel",
        None,
        r"(?P<expert_parallel>--enable[-_]expert[-_]parallel\b|enable_expert_parallel=True|'enable_expert_parallel': True)",
        "Experts are divided over all ranks.",
    ),
    Pattern(
        "data_parallel",
        None,
        rf"(?:--data[-_]parallel[-_]size(?:=| +)|data_parallel_size=|'data_parallel_size': ?|--dp(?:-size)?(?:=| +))"
        rf"(?P<data_parallel>{WHOLE})\b",
        "Attention runs on {data_parallel} ranks of its own; each has a pool.",
    ),
    Pattern(
        "offloaded",
        None,
        r"(?P<offloaded>--cpu[-_]offload[-_]gb|'cpu_offload_gb': ?[1-9]|--kv[-_]offloading[-_]size|--swap[-_]space)",
        "Part is kept in the host's memory, which is not counted here.",
    ),
)
"""Tried after :data:`kvreport.startup_log.patterns.PATTERNS`, in this order."""

NOT_FOLLOWED: Final = {
    "speculative": "speculative decoding",
    "lora": "LoRA adapters",
    "offloaded": "offloading to the host",
    "pipeline_parallel": "pipeline stages",
}
"""Facts that change memory and that no prediction here follows."""
