"""Every flag of vLLM 0.33.0 and SGLang 0.5.23 that changes memory: who reads it, and what it changes where nobody does.

A flag that is not followed is named, never passed over: in a log by a note, on the command line by the refusal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvreport.startup_log.patterns import Engine, Pattern


@dataclass(frozen=True, slots=True)
class MemoryFlag:
    """One flag.

    Attributes:
        server: Whose it is.
        flag: As written on the command line.
        changes: What of the memory it changes, in words.
        estimate: The flag of ``kvreport estimate`` of the same meaning; None where there is none.
        fact: The fact that the log reader takes from it; None if a log is only told that it is not followed.
        usual: A value that a server prints where nobody set the flag; ``*`` if what it prints tells nothing.
        older: How earlier releases spell it.
    """

    server: Engine
    flag: str
    changes: str
    estimate: str | None = None
    fact: str | None = None
    usual: str = ""
    older: str = ""

    @property
    def field(self) -> str:
        """Its name where a server prints its arguments."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def pattern(self) -> str:
        """The name of the kind of line that states it."""
        return f"{self.server}_not_followed_{self.field}"


def _vllm(
    flag: str, changes: str, estimate: str | None = None, fact: str | None = None, usual: str = ""
) -> MemoryFlag:
    return MemoryFlag("vllm", flag, changes, estimate, fact, usual)


def _sglang(
    flag: str,
    changes: str,
    estimate: str | None = None,
    fact: str | None = None,
    usual: str = "",
    older: str = "",
) -> MemoryFlag:
    return MemoryFlag("sglang", flag, changes, estimate, fact, usual, older)


MEMORY_FLAGS: Final = (
    # vLLM 0.33.0, engine/arg_utils.py
    _vllm("--gpu-memory-utilization", "the budget", "--utilization", "utilization"),
    _vllm("--kv-cache-memory-bytes", "the pool", "--kv-cache-memory-bytes", "kv_pool"),
    _vllm("--num-gpu-blocks-override", "the pool, set in blocks"),
    _vllm("--max-model-len", "the longest request", "--context", "max_model_len"),
    _vllm("--max-num-batched-tokens", "working memory", "--max-batched-tokens", "max_batched_tokens"),
    _vllm("--max-num-seqs", "working memory and graphs", "--max-seqs", "max_seqs"),
    _vllm("--block-size", "rounding to blocks", "--block-size", "block_tokens"),
    _vllm("--kv-cache-dtype", "bytes of a cached token", "--kv", "kv_dtype"),
    _vllm("--kv-cache-dtype-skip-layers", "bytes of a cached token in some layers"),
    _vllm("--quantization", "weights", "--weights", "quantization"),
    _vllm("--enforce-eager", "graphs", "--eager", "eager"),
    # Every start prints the sizes that it came to, in its configuration; what was set stands among the arguments.
    _vllm("--cudagraph-capture-sizes", "graphs", usual="*"),
    _vllm("--max-cudagraph-capture-size", "graphs", usual="*"),
    _vllm("--enable-prefix-caching", "slots of recurrent states", "--prefix-caching", "caches_prefixes"),
    _vllm("--mamba-ssm-cache-dtype", "recurrent states", "--mamba-ssm-cache-dtype", "state_dtype"),
    _vllm("--mamba-cache-dtype", "convolution and recurrent states"),
    _vllm("--mamba-block-size", "slots of recurrent states"),
    _vllm("--mamba-cache-mode", "slots of recurrent states"),
    _vllm("--use-replayssm", "buffers of recurrent states"),
    _vllm("--disable-hybrid-kv-cache-manager", "windows held like full attention"),
    _vllm("--disable-sliding-window", "windows held like full attention"),
    _vllm("--tensor-parallel-size", "weights and cache of a device", "--tensor-parallel", "tensor_parallel"),
    _vllm("--pipeline-parallel-size", "layers of a device", "--pipeline-parallel", "pipeline_parallel"),
    _vllm("--data-parallel-size", "copies of attention", "--data-parallel", "data_parallel"),
    _vllm(
        "--decode-context-parallel-size",
        "tokens of a device",
        "--decode-context-parallel",
        "context_parallel",
    ),
    _vllm("--prefill-context-parallel-size", "working memory", None, "prefill_context"),
    _vllm("--enable-expert-parallel", "experts of a device", "--expert-parallel", "expert_parallel"),
    _vllm("--all2all-backend", "buffers between ranks", "--all2all-backend", "all_to_all"),
    _vllm("--enable-dbo", "buffers of a second half batch"),
    _vllm("--nnodes", "links between servers", "--nodes", "nodes"),
    _vllm("--limit-mm-per-prompt", "the encoder", "--limit-mm-per-prompt", "text_only"),
    _vllm("--language-model-only", "the encoder", "--language-model-only", "text_only"),
    _vllm("--mm-encoder-only", "everything but the encoder"),
    _vllm("--mm-encoder-tp-mode", "the encoder on each device", "--mm-encoder-tp-mode", "whole_encoders"),
    _vllm("--skip-mm-profiling", "working memory of the encoder", None, "no_encoding"),
    _vllm("--mm-ipc-gpu-memory-gb", "memory kept for inputs"),
    _vllm("--speculative-config", "a draft model", None, "speculative"),
    _vllm("--enable-lora", "adapters", None, "lora"),
    _vllm("--max-loras", "adapters", "--max-loras", "lora_slots"),
    _vllm("--max-lora-rank", "adapters", "--max-lora-rank", "lora_rank"),
    _vllm("--cpu-offload-gb", "weights in host memory", None, "offloaded"),
    _vllm("--offload-group-size", "weights in host memory"),
    _vllm("--kv-offloading-size", "cache in host memory", "--kv-offload", "offloaded"),
    _vllm("--kv-transfer-config", "buffers of a connector"),
    _vllm("--enable-eplb", "copies of experts"),
    _vllm("--hf-overrides", "the dimensions in the model's config"),
    # SGLang 0.5.23, srt/server_args.py
    _sglang("--mem-fraction-static", "the budget", "--utilization", "mem_fraction"),
    _sglang("--max-total-tokens", "the pool, capped in tokens"),
    _sglang("--context-length", "the longest request", "--context", "max_model_len"),
    _sglang("--max-running-requests", "windows, states and graphs", "--max-seqs", "max_seqs"),
    _sglang("--chunked-prefill-size", "working memory", "--max-batched-tokens", "chunked_prefill"),
    _sglang("--max-prefill-tokens", "working memory", usual="16384"),
    _sglang("--page-size", "rounding to pages", "--block-size", "block_tokens"),
    _sglang("--kv-cache-dtype", "bytes of a cached token", "--kv", "kv_dtype"),
    _sglang("--quantization", "weights", "--weights", "quantization"),
    _sglang("--swa-full-tokens-ratio", "the pool of windows", None, "window_share"),
    _sglang("--disable-hybrid-swa-memory", "the pool of windows"),
    _sglang("--mamba-full-memory-ratio", "the pool of recurrent states", usual="0.9"),
    _sglang("--max-mamba-cache-size", "the pool of recurrent states", None, "states_set"),
    _sglang("--mamba-ssm-dtype", "recurrent states", "--mamba-ssm-cache-dtype", "state_dtype"),
    _sglang("--mamba-radix-cache-strategy", "slots of recurrent states", usual="*"),
    _sglang("--enable-int8-mamba-checkpoint", "recurrent states"),
    _sglang("--disable-cuda-graph", "graphs", "--eager", "eager"),
    _sglang("--cuda-graph-max-bs-decode", "graphs", usual="*", older="--cuda-graph-max-bs"),
    _sglang("--cuda-graph-bs-decode", "graphs", usual="*", older="--cuda-graph-bs"),
    _sglang("--disable-radix-cache", "windows and states", "--no-prefix-caching", "no_prefix_caching"),
    _sglang("--disable-overlap-schedule", "slots of recurrent states"),
    _sglang("--tp-size", "weights and cache of a device", "--tensor-parallel", "tensor_parallel"),
    _sglang("--pp-size", "layers of a device", "--pipeline-parallel", "pipeline_parallel"),
    _sglang("--dp-size", "copies of attention", None, "data_parallel"),
    _sglang("--enable-dp-attention", "copies of attention", None, "data_attention"),
    _sglang("--dcp-size", "tokens of a device", "--decode-context-parallel", "context_parallel"),
    _sglang("--ep-size", "experts of a device", None, "expert_size"),
    _sglang("--nnodes", "links between servers", "--nodes", "nodes"),
    _sglang("--attn-cp-size", "working memory", None, "prefill_context"),
    _sglang("--moe-a2a-backend", "buffers between ranks", None, "all_to_all"),
    _sglang("--deepep-mode", "buffers between ranks", None, "deepep_mode"),
    _sglang("--moe-dense-tp-size", "dense layers of a device", "--moe-dense-tp-size", "dense_ranks"),
    _sglang("--enable-dp-lm-head", "the output head of a device", "--enable-dp-lm-head", "head_by_data_rank"),
    _sglang("--moe-dp-size", "experts of a device", usual="1"),
    _sglang("--ep-num-redundant-experts", "copies of experts", None, "redundant_experts"),
    _sglang("--speculative-algorithm", "a draft model", None, "speculative"),
    _sglang("--enable-lora", "adapters", None, "lora"),
    _sglang("--max-loras-per-batch", "adapters", usual="8"),
    _sglang("--cpu-offload-gb", "weights in host memory", None, "offloaded"),
    _sglang("--enable-hierarchical-cache", "cache in host memory"),
    _sglang("--enable-hisparse", "cache in host memory"),
    _sglang("--enable-unified-memory", "one pool for all kinds of cache"),
    _sglang("--enable-kv-cache-sharding", "the cache of a device"),
    _sglang("--enable-paged-experts", "experts in host memory"),
    _sglang("--kt-num-gpu-experts", "experts in host memory"),
    _sglang("--ple-offload-embedding", "embeddings in host memory"),
    _sglang("--language-only", "the encoder", None, "text_only"),
    _sglang("--mm-feature-transport", "a buffer for images", None, "images_through"),
    _sglang("--enable-two-batch-overlap", "buffers of a second half batch"),
    _sglang("--enable-symm-mem", "buffers between ranks"),
    _sglang("--prefill-only-disable-kv-cache", "the pool"),
    _sglang("--json-model-override-args", "the dimensions in the model's config"),
)
"""Every flag that bears on memory, by server."""

UNSET: Final = r"None|False|0|-1|1\.0|'auto'|auto|\[\]|\{\}|''"
"""Values by which a server says that a flag was not set."""


def _pattern(one: MemoryFlag) -> Pattern:
    """The line that states a flag which nothing here follows; it states no fact.

    vLLM prints the flags that were set as a dictionary, SGLang all of them as arguments of a call.
    """
    spellings = "|".join(name for name in (one.flag, one.older) if name)
    written = rf"(?<![\w`-])(?:{spellings})(?![\w-])"
    unset = f"{UNSET}|{re.escape(one.usual)}" if one.usual else UNSET
    value = rf"(?!(?:{unset})(?![\w.]))"
    printed = rf"'{one.field}': {value}" if one.server == "vllm" else rf"\b{one.field}={value}"
    if one.usual == "*":
        arguments = rf"|non-default args: .*'{one.field}': " if one.server == "vllm" else ""
        expression = f"(?:{written}{arguments})"
    else:
        expression = f"(?:{written}|{printed})"
    return Pattern(one.pattern, one.server, expression, f"{one.flag} is set: it changes {one.changes}.")


NOT_FOLLOWED_LINES: Final = tuple(_pattern(one) for one in MEMORY_FLAGS if one.fact is None)
"""Kinds of lines that state a flag which nothing here follows."""

NOT_FOLLOWED: Final = {one.pattern: f"{one.flag} ({one.changes})" for one in MEMORY_FLAGS if one.fact is None}
"""Kinds of lines that state a flag which is not followed, and its name."""


def named(server: Engine, flag: str) -> MemoryFlag | None:
    """The flag of a server that changes memory, by its spelling; None for any other."""
    return next((one for one in MEMORY_FLAGS if one.server == server and one.flag == flag), None)
