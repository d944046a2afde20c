"""Lines that TensorRT-LLM's PyTorch backend prints at its start (``_torch/pyexecutor/_util.py``, ``kvCacheManager.cpp``)."""

from __future__ import annotations

from typing import Final

from kvreport.startup_log.patterns import NUMBER, VERSION, WHOLE, Pattern

TENSORRT_LLM: Final[tuple[Pattern, ...]] = (
    Pattern(
        "trtllm_version",
        "tensorrt_llm",
        rf"TensorRT[- ]LLM version: v?(?P<engine_version>{VERSION})",
        "TensorRT-LLM {engine_version} starts.",
    ),
    Pattern(
        "trtllm_weights",
        "tensorrt_llm",
        rf"Memory used after loading (?:model )?weights \(inside torch\) in memory usage profiling: (?P<weights__gib>{NUMBER}) GiB",
        "The weights took {weights} on each device.",
    ),
    Pattern(
        "trtllm_activations",
        "tensorrt_llm",
        rf"Memory dynamically allocated during inference \(inside torch\) in memory usage profiling: (?P<activations__gib>{NUMBER}) GiB",
        "The profiled step took {activations} in addition to the weights.",
    ),
    Pattern(
        "trtllm_outside",
        "tensorrt_llm",
        rf"Memory used outside torch(?: \([^)]{{0,60}}\))? in memory usage profiling: (?P<non_framework__gib>{NUMBER}) GiB",
        "Memory outside the framework takes {non_framework}.",
    ),
    Pattern(
        "trtllm_profiled",
        "tensorrt_llm",
        rf"available KV cache memory when calculating max tokens: {NUMBER} GiB, fraction is set (?P<utilization>[01]?\.[0-9]+|1\.0)",
        "The cache may take {utilization} of what a profiled step leaves free.",
    ),
    Pattern(
        "trtllm_total",
        "tensorrt_llm",
        rf"device total memory (?P<total_memory__gib>{NUMBER}) GiB",
        "The device has {total_memory}.",
    ),
    Pattern(
        "trtllm_free",
        "tensorrt_llm",
        rf"Memory usage when calculating max tokens in paged kv cache: total: (?P<total_memory__gib>{NUMBER}) GiB, available: (?P<after_load__gib>{NUMBER}) GiB",
        "{after_load} of the device's {total_memory} are free after the engine was loaded. The cache takes a share of that.",
    ),
    Pattern(
        "trtllm_blocks",
        "tensorrt_llm",
        rf"Number of blocks in KV cache primary pool: (?P<gpu_blocks>{WHOLE})",
        "The cache has {gpu_blocks} blocks.",
    ),
    Pattern(
        "trtllm_pool",
        "tensorrt_llm",
        rf"\[MemUsageChange\] Allocated (?P<kv_pool__gib>{NUMBER}) GiB for max tokens(?: in paged KV cache)? \((?P<kv_tokens>{WHOLE})\)",
        "The cache takes {kv_pool} on each device and holds {kv_tokens} tokens.",
        replaces=True,  # a small cache for the profiled step is allocated first and let go of
    ),
    Pattern(
        "trtllm_windows",
        "tensorrt_llm",
        rf"Max KV cache blocks per sequence: {WHOLE} \[window size=[0-9, ]{{1,200}}\], tokens per block={WHOLE}, "
        rf"primary blocks=(?P<gpu_blocks>{WHOLE}), secondary blocks={WHOLE}, max sequence length=(?P<max_model_len>{WHOLE})",
        "The cache has {gpu_blocks} blocks, and requests may have {max_model_len} tokens.",
        replaces=True,
    ),
    Pattern(
        "trtllm_stored_weights",
        "tensorrt_llm",
        rf"\[TRT-LLM\] \[I\] Use (?P<weights__gb>{NUMBER}) GB for model weights\.",
        "The weights take {weights} on each device.",
    ),
    Pattern(
        "trtllm_block",
        "tensorrt_llm",
        rf"Number of tokens per block: (?P<block_tokens>{WHOLE})\.?",
        "A block holds {block_tokens} tokens.",
    ),
    Pattern(
        "trtllm_limits",
        "tensorrt_llm",
        rf"max_seq_len=(?P<max_model_len>{WHOLE}), max_num_requests=(?P<max_seqs>{WHOLE}), max_num_tokens=(?P<max_batched_tokens>{WHOLE})",
        "Requests may have {max_model_len} tokens, {max_seqs} run at once, and a step takes {max_batched_tokens} tokens.",
    ),
)
