"""Every kind of line that is recognised: an expression, the facts it names, what it means.

Expressions are valid in Python and, named groups apart, in JavaScript: the page that reads logs in the
browser works from the same table. A line that none of these matches is not understood, never guessed.

A log may come from anybody, so every expression takes time in proportion to the line: what repeats is
bounded, and a gap ends where its own beginning stands again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Engine = Literal["vllm", "sglang", "tensorrt_llm"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line.

    Attributes:
        name: Its name in answers.
        engine: Whose line it is; None if both write it.
        expression: Regular expression, valid in Python and (named groups apart) in JavaScript.
            A group is named ``fact`` or ``fact__unit``: ``gib``/``gb`` are 2^30 bytes (SGLang
            writes GB and means GiB), ``mib`` is 2^20; without a unit the text is the value.
        says: What the line means, with ``{fact}`` where its numbers go.
        replaces: Whether a later line of this kind replaces an earlier one, whatever the facts are merged by.
    """

    name: str
    engine: Engine | None
    expression: str
    says: str
    replaces: bool = False


def _setting(name: str, fact: str, spelling: str, value: str, says: str, unit: str = "") -> Pattern:
    """A setting, as a flag, a keyword or a dictionary entry."""
    flag = spelling.replace("_", "[-_]")
    group = f"(?P<{fact}{unit}>{value})"
    return Pattern(
        name,
        None,
        rf"(?:--{flag}(?:=| +)|\b{spelling}=|'{spelling}': ?)['\"]?{group}(?![\w/]|\.\w)['\"]?",
        says,
    )


# Longer than any size that a machine has, and not as long as a line can be.
WHOLE: Final = r"[0-9](?:,?[0-9]){0,20}(?!,?[0-9])"
NUMBER: Final = r"-?[0-9](?:,?[0-9]){0,20}(?:\.[0-9]{1,20})?(?!,?[0-9])"
VERSION: Final = r"[0-9A-Za-z](?:[\w.+!-]{0,58}\w)?"
"""A release, without the quotes and escapes that a line of JSON has after it."""
_DRAFT: Final = r".{0,100}?type=\w{0,80}?(?:MTP|Draft|Eagle|EAGLE|NextN|DSpark|DFlash)"
"""A class that drafts: SGLang loads it after the model, with the same lines."""

PATTERNS: Final[tuple[Pattern, ...]] = (
    # Which engine, which model.
    Pattern(
        "vllm_engine",
        "vllm",
        rf"Initializing an? (?:V\d )?LLM engine \(v?(?P<engine_version>{VERSION})\)",
        "vLLM {engine_version} starts.",
    ),
    Pattern(
        "vllm_server",
        "vllm",
        rf"vLLM API server version (?P<engine_version>{VERSION})",
        "vLLM {engine_version} starts.",
    ),
    Pattern(
        "vllm_model",
        "vllm",
        r"with config: (?:(?!with config: ).)*?\bmodel='(?P<model>[^']{1,300})'",
        "The server loads {model}.",
    ),
    Pattern(
        "vllm_args_model",
        "vllm",
        r"non-default args: (?:(?!non-default args: ).)*?'model(?:_tag)?': '(?P<model>[^']{1,300})'",
        "The server loads {model}.",
    ),
    Pattern(
        "vllm_serve",
        "vllm",
        r"\bvllm serve (?!-)(?P<model>[A-Za-z0-9_./~-]{1,300})",
        "The command that serves {model}.",
    ),
    Pattern(
        "sglang_args",
        "sglang",
        r"ServerArgs\(model_path='(?P<model>[^']{1,300})'|"
        r"server_args=\{(?:(?!server_args=).)*?'model_path': '(?P<model_>[^']{1,300})'",
        "SGLang loads {model}.",
    ),
    Pattern(
        "sglang_serve",
        "sglang",
        r"\bsglang serve\b(?:(?!\bsglang serve\b).)*?--model(?:-path)?(?:=| +)(?P<model>[A-Za-z0-9_./~-]{1,300})",
        "The command that serves {model}.",
    ),
    Pattern(
        "sglang_launch",
        "sglang",
        r"sglang\.launch_server\b(?:(?!sglang\.launch_server).)*?--model(?:-path)?(?:=| +)(?P<model>[A-Za-z0-9_./~-]{1,300})",
        "The command that serves {model}.",
    ),
    # What it was told.
    _setting(
        "utilization",
        "utilization",
        "gpu_memory_utilization",
        r"[01]?\.[0-9]+|1",
        "The engine may take {utilization} of the device's memory for weights, working memory and cache together.",
    ),
    _setting(
        "mem_fraction",
        "mem_fraction",
        "mem_fraction_static",
        r"[01]?\.[0-9]+|1",
        "Weights and cache together may take {mem_fraction} of the memory that was free at the start.",
    ),
    _setting(
        "window_share",
        "window_share",
        "swa_full_tokens_ratio",
        r"0?\.[0-9]+|1(?:\.0)?",
        "For each token of full attention, the pool of sliding windows holds {window_share}.",
    ),
    _setting(
        "max_model_len",
        "max_model_len",
        "max_model_len",
        WHOLE,
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    ),
    _setting(
        "max_seq_len",
        "max_model_len",
        "max_seq_len",
        WHOLE,
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    ),
    Pattern(
        "using_max_model_len",
        "vllm",
        rf"Using max model len (?P<max_model_len>{WHOLE})",
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    ),
    _setting(
        "context_length",
        "max_model_len",
        "context_length",
        WHOLE,
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    ),
    _setting(
        "tensor_parallel",
        "tensor_parallel",
        "tensor_parallel_size",
        WHOLE,
        "Each layer is split over {tensor_parallel} devices; sizes below are for one of them.",
    ),
    _setting(
        "tp_size",
        "tensor_parallel",
        "tp_size",
        WHOLE,
        "Each layer is split over {tensor_parallel} devices; sizes below are for one of them.",
    ),
    Pattern(
        "tp_flag",
        None,
        rf"--tp(?:-size)?(?:=| +)(?P<tensor_parallel>{WHOLE})\b|\s-tp +(?P<tensor_parallel_>{WHOLE})\b",
        "Each layer is split over {tensor_parallel} devices; sizes below are for one of them.",
    ),
    _setting(
        "pipeline_parallel",
        "pipeline_parallel",
        "pipeline_parallel_size",
        WHOLE,
        "The layers are split over {pipeline_parallel} stages.",
    ),
    _setting(
        "context_parallel",
        "context_parallel",
        "decode_context_parallel_size",
        WHOLE,
        "The tokens of a request are spread over {context_parallel} devices while decoding.",
    ),
    _setting(
        "max_batched_tokens",
        "max_batched_tokens",
        "max_num_batched_tokens",
        WHOLE,
        "One step handles at most {max_batched_tokens} tokens; working memory is measured at that size.",
    ),
    _setting(
        "max_seqs",
        "max_seqs",
        "max_num_seqs",
        WHOLE,
        "At most {max_seqs} requests run at once, even if memory holds more.",
    ),
    _setting(
        "max_running_setting",
        "max_seqs",
        "max_running_requests",
        WHOLE,
        "At most {max_seqs} requests run at once, even if memory holds more.",
    ),
    _setting(
        "kv_dtype",
        "kv_dtype",
        "kv_cache_dtype",
        r"(?!None\b)[a-z0-9_]+",
        "The cache is stored as {kv_dtype}.",
    ),
    Pattern(
        "sglang_kv_dtype",
        "sglang",
        r"Using KV cache dtype: (?:torch\.)?(?P<kv_dtype>[a-z0-9_]{1,40})",
        "The cache is stored as {kv_dtype}.",
    ),
    _setting(
        "quantization",
        "quantization",
        "quantization",
        r"(?!None\b)[A-Za-z0-9_-]+",
        "The weights are quantized: {quantization}.",
    ),
    _setting(
        "block_size",
        "block_tokens",
        "block_size",
        WHOLE,
        "The cache is allocated in blocks of {block_tokens} tokens.",
    ),
    _setting(
        "page_size",
        "block_tokens",
        "page_size",
        WHOLE,
        "The cache is allocated in pages of {block_tokens} tokens.",
    ),
    Pattern(
        "eager",
        "vllm",
        r"--enforce-eager\b|enforce_eager=(?P<eager>True)|'enforce_eager': (?P<eager_>True)",
        "CUDA graphs are off: they take no memory, and decoding is slower.",
    ),
    Pattern(
        "sorts",
        "vllm",
        r"(?P<sorts>Falling back) to (?:the )?PyTorch-native implementation of top-p",
        "FlashInfer is missing, so sampling sorts all logits. The engine reserves several times the memory for that.",
    ),
    Pattern(
        "vllm_model_runner",
        "vllm",
        r"VLLM_USE_V2_MODEL_RUNNER['\"]?(?:=| ?: ?)['\"]?(?P<model_runner>[01])\b",
        "The command chooses the model runner.",
    ),
    Pattern(
        "vllm_wsl",
        "vllm",
        r"(?P<wsl>WSL) is detected",
        "The server runs under WSL, where a process can use all the memory that the driver reports.",
    ),
    Pattern(
        "vllm_compiled",
        "vllm",
        r"(?P<compiled>Directly load) (?:AOT compilation|the compiled graph)",
        "Compiled graphs came from the cache: compiling takes no memory from the pool at this start.",
    ),
    # vLLM: where memory goes.
    Pattern(
        "vllm_free",
        "vllm",
        rf"Free memory on device \S{{0,60}}? ?\(?(?P<free_memory__gib>{NUMBER})/(?P<total_memory__gib>{NUMBER}) ?GiB\)",
        "{free_memory} of the device's {total_memory} were free when the engine started.",
    ),
    Pattern(
        "vllm_v0_total",
        "vllm",
        rf"total_gpu_memory \((?P<total_memory__gib>{NUMBER}) ?GiB\) x gpu_memory_utilization "
        rf"\((?P<utilization>[01]?\.[0-9]+)\)",
        "The engine may take {utilization} of the device's {total_memory}.",
    ),
    Pattern(
        "vllm_v0_profile",
        "vllm",
        rf"model weights take (?P<weights__gib>{NUMBER}) ?GiB",
        "The weights take {weights} on this device.",
    ),
    Pattern(
        "vllm_v0_non_torch",
        "vllm",
        rf"non_torch_memory takes (?P<non_framework__gib>{NUMBER}) ?GiB",
        "Driver context and communication buffers take {non_framework}.",
    ),
    Pattern(
        "vllm_v0_peak",
        "vllm",
        rf"PyTorch activation peak memory takes (?P<activations__gib>{NUMBER}) ?GiB",
        "A step at full size needs {activations} of working memory.",
    ),
    Pattern(
        "vllm_v0_pool",
        "vllm",
        rf"memory reserved for KV Cache is (?:only )?(?P<kv_pool__gib>{NUMBER}) ?GiB",
        "{kv_pool} are left for the cache.",
    ),
    Pattern(
        "vllm_non_kv",
        "vllm",
        rf"Total non KV cache memory: (?P<non_cache__gib>{NUMBER}) ?GiB; torch peak memory increase: "
        rf"(?P<activations__gib>{NUMBER}) ?GiB; non-torch forward increase memory: "
        rf"(?P<non_framework__gib>{NUMBER}) ?GiB; weights memory: (?P<weights__gib>{NUMBER}) ?GiB",
        "Weights {weights}, working memory {activations} and non-framework memory {non_framework}: "
        "{non_cache} that the cache cannot use.",
    ),
    Pattern(
        "vllm_load",
        "vllm",
        r"(?:\[(?:v1/worker/(?:gpu/)?)?(?P<model_runner>(?:gpu_)?model_runner)\.py:\d{1,6}\] )?"
        rf"(?:Model loading took|Loading model weights took|[Mm]odel load:) (?P<weights__gib>{NUMBER})(?: ?Gi?B\b|$)",
        "The weights take {weights} on each device. They stay there under any traffic.",
    ),
    Pattern(
        "vllm_graph_estimate",
        "vllm",
        rf"Estimated CUDA graph memory: (?P<graphs_estimate__gib>{NUMBER}) ?GiB",
        "CUDA graphs are expected to take {graphs_estimate}. The engine subtracts that before it sizes the pool.",
    ),
    Pattern(
        "vllm_graphs",
        "vllm",
        rf"Graph capturing finished in .{{0,80}}?took (?P<graphs__gib>{NUMBER}) ?GiB",
        "CUDA graphs took {graphs} when they were captured.",
    ),
    Pattern(
        "vllm_pool",
        "vllm",
        rf"[Aa]vailable KV cache(?: memory)?:? (?P<kv_pool__gib>{NUMBER}) ?GiB",
        "{kv_pool} are left for the cache on each device: the share that the engine may take, less "
        "weights, working memory and graphs. The smallest rank decides.",
    ),
    Pattern(
        "vllm_reserved",
        "vllm",
        rf"reserved (?P<kv_pool__gib>{NUMBER}) ?GiB memory for KV Cache",
        "The KV cache size was set to {kv_pool}. The memory share has no effect.",
    ),
    Pattern(
        "vllm_blocks",
        "vllm",
        rf"# (?:GPU|CUDA|cuda) blocks: (?P<gpu_blocks>{WHOLE})",
        "The pool is {gpu_blocks} blocks.",
    ),
    Pattern(
        "vllm_tokens",
        "vllm",
        rf"GPU KV cache size: (?P<kv_tokens>{WHOLE}) tokens",
        "The engine counts {kv_tokens} tokens in its cache. Since 0.20.1 they are the longest requests that fit, times "
        "their length. Before, they are blocks times block size; windows and states need fewer blocks.",
    ),
    Pattern(
        "vllm_concurrency",
        "vllm",
        rf"Maximum concurrency for (?P<concurrency_len>{WHOLE}) tokens per request: ~?(?P<concurrency>{NUMBER})x",
        "{concurrency} requests fit if every one is {concurrency_len} tokens long. It is the worst "
        "case, not a limit: shorter requests take fewer blocks, so more of them run.",
    ),
    Pattern(
        "vllm_hybrid_block",
        "vllm",
        rf"Setting attention block size to (?P<hybrid_block>{WHOLE}) tokens",
        "Blocks are enlarged to {hybrid_block} tokens, so that one holds a whole recurrent state.",
    ),
    Pattern(
        "vllm_padding",
        "vllm",
        rf"Padding mamba page size by (?P<padding>{NUMBER}) ?%",
        "Recurrent states are padded by {padding} to fill a block.",
    ),
    Pattern(
        "vllm_layers_padding",
        "vllm",
        rf"Add \d+ padding layers, may waste at most (?P<padding>{NUMBER}) ?% KV cache memory",
        "Layers do not divide evenly into groups; at most {padding} of the pool is lost to padding.",
    ),
    Pattern(
        "vllm_dcp",
        "vllm",
        rf"Multiplying the GPU KV cache size by the (?:dcp|cp)_world_size (?P<context_parallel>{WHOLE})",
        "The token figure counts all {context_parallel} devices that share a request's tokens.",
    ),
    Pattern(
        "vllm_refused",
        "vllm",
        rf"max seq len \((?P<max_model_len>{WHOLE})\), \(?(?P<needed__gib>{NUMBER}) ?GiB KV cache is needed, "
        rf"which is larger than the available KV cache memory \((?P<kv_pool__gib>{NUMBER}) ?GiB\)",
        "The engine refuses to start: one request of {max_model_len} tokens needs {needed}, and the pool is {kv_pool}.",
    ),
    Pattern(
        "vllm_estimated_len",
        "vllm",
        rf"[Ee]stimated maximum model length is (?P<estimated_len>{WHOLE})",
        "The engine estimates that {estimated_len} tokens would fit.",
    ),
    Pattern(
        "vllm_v0_refused",
        "vllm",
        rf"max seq len \((?P<max_model_len>{WHOLE})\) is larger than the maximum number of tokens that can be "
        rf"stored in KV cache \((?P<storable>{WHOLE})\)",
        "The engine refuses to start: {max_model_len} tokens are allowed per request, and the pool stores {storable}.",
    ),
    # SGLang: where memory goes. It writes GB and counts GiB.
    Pattern(
        "sglang_begin",
        "sglang",
        rf"Load weight begin\. avail mem=(?P<before_load__gb>{NUMBER}) GB",
        "{before_load} were free before loading.",
    ),
    Pattern(
        "sglang_loaded",
        "sglang",
        rf"Load weight end\.(?!{_DRAFT}).{{0,400}}?avail mem=(?P<after_load__gb>{NUMBER}) GB, mem usage=(?P<weights__gb>{NUMBER}) GB",
        "The weights took {weights} on each device; {after_load} are free.",
    ),
    Pattern(
        "sglang_loaded_on",
        "sglang",
        rf"^\W{{0,12}}avail mem=(?P<after_load__gb>{NUMBER}) GB, mem usage=(?P<weights__gb>{NUMBER}) GB",
        "The weights took {weights} on each device; {after_load} are free.",
    ),
    Pattern(
        "sglang_loaded_half",
        "sglang",
        r"Load weight end\..{0,200},$",
        "The weights are loaded.",
    ),
    Pattern(
        "sglang_addresses",
        "sglang",
        r"KV Cache VA upper bound\.",
        "Addresses are set apart; the pool is sized after graphs are captured.",
    ),
    Pattern(
        "sglang_draft_loaded",
        "sglang",
        rf"Load weight end\.(?={_DRAFT}).{{0,400}}?mem usage=(?P<draft_weights__gb>{NUMBER}) GB",
        "The draft model took {draft_weights} on each device.",
    ),
    Pattern(
        "sglang_kv",
        "sglang",
        rf"(?:^|[^A] )KV Cache is allocated\..{{0,200}}?#tokens: (?P<kv_tokens>{WHOLE})",
        "The pool holds {kv_tokens} tokens.",
    ),
    Pattern(
        "sglang_window_kv",
        "sglang",
        rf"SWA KV Cache is allocated\..{{0,200}}?#tokens: (?P<window_tokens>{WHOLE})",
        "The pool of the windows holds {window_tokens} tokens.",
    ),
    Pattern(
        "sglang_kv_resized",
        "sglang",
        rf"Post-capture KV sizing: KV cache allocated\..{{0,200}}?#tokens: (?P<kv_tokens>{WHOLE})",
        "The pool is sized after graphs were captured, and holds {kv_tokens} tokens.",
    ),
    Pattern(
        "sglang_kv_halves",
        "sglang",
        rf"^(?!.{{0,200}}(?:VA upper bound|SWA KV Cache)).{{0,400}}?K size: (?P<key_bytes__gb>{NUMBER}) GB, "
        rf"V size: (?P<value_bytes__gb>{NUMBER}) GB",
        "Keys take {key_bytes} and values {value_bytes} on each device.",
    ),
    Pattern(
        "sglang_kv_whole",
        "sglang",
        rf"^(?!.{{0,200}}VA upper bound).{{0,400}}?#tokens: {WHOLE}, KV size: (?P<kv_pool__gb>{NUMBER}) GB",
        "Keys and values take {kv_pool} on each device.",
    ),
    Pattern(
        "sglang_windows",
        "sglang",
        rf"full_layer_tokens=(?P<full_tokens>{WHOLE}), swa_layer_tokens=(?P<window_tokens>{WHOLE})",
        "Two pools: {full_tokens} tokens for full attention, {window_tokens} for sliding windows.",
    ),
    Pattern(
        "sglang_states",
        "sglang",
        rf"Mamba Cache is allocated\. max_mamba_cache_size: (?P<state_slots>{WHOLE}), conv_state size: "
        rf"(?P<conv_bytes__gb>{NUMBER}) ?GB, ssm_state size: (?P<ssm_bytes__gb>{NUMBER}) ?GB",
        "{state_slots} slots for recurrent states take {conv_bytes} and {ssm_bytes}.",
    ),
    Pattern(
        "sglang_pool_end",
        "sglang",
        rf"Memory pool end\. avail mem=(?P<after_pool__gb>{NUMBER}) GB",
        "{after_pool} are free after the pool, for working memory and graphs.",
    ),
    Pattern(
        "sglang_graphs",
        "sglang",
        rf"Capture (?:target |draft )?(?:decode |verify |extend )?(?:cuda|CUDA) graph end\..{{0,200}}?mem usage="
        rf"(?P<graphs__gb>{NUMBER}) GB",
        "CUDA graphs took {graphs}.",
    ),
    Pattern(
        "sglang_prefill_graphs",
        "sglang",
        rf"Capture (?:(?:target |draft )?prefill|piecewise) (?:cuda|CUDA) graph end\..{{0,200}}?mem usage="
        rf"(?P<prefill_graphs__gb>{NUMBER}) GB",
        "CUDA graphs of prefill took {prefill_graphs}.",
    ),
    Pattern(
        "sglang_capped",
        "sglang",
        rf"max_running_requests is capped to (?P<max_running>{WHOLE}) by the mamba state",
        "At most {max_running} requests run at once, which have room for their recurrent states.",
    ),
    Pattern(
        "sglang_ready",
        "sglang",
        r"The server is fired up and ready to roll",
        "The server is ready.",
    ),
    Pattern(
        "sglang_took",
        "sglang",
        r"Engine startup timings \(s\): load_weight=",
        "What the parts of the start took, in seconds.",
    ),
    Pattern(
        "sglang_detected",
        "sglang",
        r"Detected (?P<quantization>fp8|nvfp4|mxfp4) checkpoint\b",
        "The weights are quantized: {quantization}.",
    ),
    Pattern(
        "device_name",
        None,
        r"device_name=(?P<device_name>[A-Za-z][A-Za-z0-9_-]{1,60})",
        "The kernels are those of {device_name}.",
    ),
    Pattern(
        "sglang_totals",
        "sglang",
        rf"max_total_num_tokens=(?P<kv_tokens>{WHOLE})",
        "The pool holds {kv_tokens} tokens.",
    ),
    Pattern(
        "sglang_context_len",
        "sglang",
        rf"\bcontext_len=(?P<max_model_len>{WHOLE})",
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    ),
    Pattern(
        "sglang_chunk",
        "sglang",
        rf"(?:--chunked-prefill-size(?:=| +)|chunked_prefill_size=)(?P<chunked_prefill>{WHOLE})",
        "Prompts are prefilled in chunks of {chunked_prefill} tokens.",
    ),
    Pattern(
        "sglang_spare",
        "sglang",
        rf"available_gpu_mem=(?P<spare_memory__gb>{NUMBER}) GB",
        "{spare_memory} are still free when the server is ready.",
    ),
    Pattern(
        "sglang_no_room",
        "sglang",
        r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=(?P<mem_fraction>[01]?\.[0-9]+)",
        "The engine refuses to start: at {mem_fraction} the weights leave nothing for the cache.",
    ),
    Pattern(
        "sglang_minimum",
        "sglang",
        r"minimum[- ]viable (?:mem[-_ ])?fraction(?:[-_ ]static)?:? (?P<minimum_fraction>[01]?\.[0-9]+)|"
        r"Raise --mem-fraction-static above (?P<minimum_fraction_>[01]?\.[0-9]+)",
        "The engine itself says that more than {minimum_fraction} is needed.",
    ),
)
"""Every kind of line, in the order in which they are tried; several may match one line."""
