"""What a start-up log can state: names, units, and which of several statements counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["bytes", "tokens", "number", "ratio", "percent", "text", "flag"]
Merge = Literal["least", "most", "last"]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something a log can state.

    Attributes:
        label: What a reader calls it.
        unit: What its value is.
        merge: Which of several statements counts: ranks report one each, and the smallest pool
            binds, while the largest weights do.
    """

    label: str
    unit: Unit
    merge: Merge = "last"


FACTS: Final[dict[str, Fact]] = {
    "engine_version": Fact("engine version", "text"),
    "model": Fact("model", "text"),
    "tensor_parallel": Fact("tensor parallel", "number"),
    "pipeline_parallel": Fact("pipeline parallel", "number"),
    "context_parallel": Fact("decode context parallel", "number"),
    "utilization": Fact("memory share (gpu_memory_utilization)", "ratio"),
    "mem_fraction": Fact("static memory fraction", "ratio"),
    "window_share": Fact("window pool per token of the full one", "ratio"),
    "max_model_len": Fact("longest request allowed", "tokens"),
    "max_batched_tokens": Fact("tokens of one step", "tokens"),
    "max_seqs": Fact("requests at once", "number"),
    "kv_dtype": Fact("cache type", "text"),
    "quantization": Fact("weight quantization", "text"),
    "block_tokens": Fact("block size", "tokens"),
    "eager": Fact("graphs off", "flag"),
    "sorts": Fact("sampling sorts", "flag"),
    "model_runner": Fact("model runner", "text"),
    "wsl": Fact("under WSL", "flag"),
    "compiled": Fact("compiled graphs found in the cache", "flag"),
    "no_prefix_caching": Fact("prefixes not cached", "flag"),
    "caches_prefixes": Fact("prefixes cached", "flag"),
    "text_only": Fact("text only", "flag"),
    "no_audio": Fact("no audio", "flag"),
    "no_videos": Fact("no videos", "flag"),
    "whole_encoders": Fact("encoders whole on each rank", "flag"),
    "images_through": Fact("what images are sent through", "text"),
    "no_encoding": Fact("no image encoded at the start", "flag"),
    "state_dtype": Fact("type of recurrent states", "text"),
    "state_blocks": Fact("blocks for recurrent states", "number", "least"),
    "speculative": Fact("speculative decoding", "flag"),
    "draft_method": Fact("what drafts", "text"),
    "draft_steps": Fact("steps that are drafted", "number"),
    "draft_branches": Fact("branches of a drafted tree", "number"),
    "draft_verified": Fact("tokens verified at once", "number"),
    "draft_block": Fact("tokens of a drafted block", "number"),
    "draft_from": Fact("draft model", "text"),
    "lora": Fact("LoRA adapters", "flag"),
    "lora_slots": Fact("adapters at once", "number"),
    "lora_rank": Fact("largest rank of an adapter", "number"),
    "expert_parallel": Fact("experts over all ranks", "flag"),
    "data_parallel": Fact("data parallel", "number"),
    "data_attention": Fact("data-parallel attention", "flag"),
    "expert_size": Fact("ranks that experts are divided over", "number"),
    "redundant_experts": Fact("further copies of experts", "number"),
    "all_to_all": Fact("kernels that exchange tokens", "text"),
    "deepep_mode": Fact("mode of DeepEP", "text"),
    "pipeline_partition": Fact("layers of each pipeline stage", "text"),
    "nodes": Fact("servers of one copy", "number"),
    "prefill_context": Fact("prefill context parallel", "number"),
    "dense_ranks": Fact("ranks that dense layers are divided over", "number"),
    "head_by_data_rank": Fact("an output head for each data rank", "flag"),
    "offloaded": Fact("kept in the host's memory", "flag"),
    "total_memory": Fact("memory of the device", "bytes", "least"),
    "capability": Fact("compute capability", "text"),
    "free_memory": Fact("free memory at the start", "bytes", "least"),
    "requested": Fact("memory that it may take", "bytes", "least"),
    "consumed": Fact("weights and non-framework memory", "bytes", "most"),
    "weights": Fact("weights on a device", "bytes", "most"),
    "activations": Fact("activation peak", "bytes", "most"),
    "non_framework": Fact("non-framework memory", "bytes", "most"),
    "non_cache": Fact("everything but the cache", "bytes", "most"),
    "graphs_estimate": Fact("graphs, estimated before capture", "bytes", "most"),
    "graphs": Fact("graphs, as captured", "bytes", "most"),
    "prefill_graphs": Fact("graphs of prefill, as captured", "bytes", "most"),
    "draft_weights": Fact("weights of the draft model on a device", "bytes", "most"),
    "device_name": Fact("device", "text"),
    "most_tokens": Fact("tokens that the pool is capped at", "tokens", "least"),
    "states_set": Fact("recurrent states requested", "number", "least"),
    "kv_pool": Fact("cache pool on a device", "bytes", "least"),
    "kv_tokens": Fact("cache size", "tokens", "least"),
    "concurrency": Fact("maximum concurrency", "ratio", "least"),
    "concurrency_len": Fact("length that the concurrency is for", "tokens"),
    "gpu_blocks": Fact("cache blocks", "number", "least"),
    "hybrid_block": Fact("block size chosen for the recurrent state", "tokens"),
    "padding": Fact("padding", "percent", "most"),
    "needed": Fact("cache that one longest request needs", "bytes", "most"),
    "estimated_len": Fact("longest request that would fit", "tokens", "least"),
    "storable": Fact("tokens that the cache can store", "tokens", "least"),
    "before_load": Fact("free memory before loading", "bytes", "least"),
    "after_load": Fact("free memory after loading", "bytes", "least"),
    "after_pool": Fact("free memory after the pool", "bytes", "least"),
    "key_bytes": Fact("keys", "bytes", "least"),
    "value_bytes": Fact("values", "bytes", "least"),
    "full_tokens": Fact("tokens of the full-attention pool", "tokens", "least"),
    "window_tokens": Fact("tokens of the sliding-window pool", "tokens", "least"),
    "state_slots": Fact("recurrent-state slots", "number", "least"),
    "conv_bytes": Fact("convolution states", "bytes", "least"),
    "ssm_bytes": Fact("recurrent states", "bytes", "least"),
    "max_running": Fact("requests at once, as the engine capped them", "number", "least"),
    "chunked_prefill": Fact("tokens of one prefill chunk", "tokens"),
    "spare_memory": Fact("memory left over", "bytes", "least"),
    "minimum_fraction": Fact("smallest static memory fraction that would do", "ratio", "most"),
}
"""Every fact by name."""
