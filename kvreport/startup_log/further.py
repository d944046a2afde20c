"""Further lines of vLLM: the summary of its budget, profiling results of the first engine, flags not followed."""

from __future__ import annotations

from typing import Final

from kvreport.accounting.engines.vllm.expert_kernels import MEGA_MOE_BACKENDS
from kvreport.startup_log.patterns import NUMBER, VERSION, WHOLE, Pattern

_SIZE: Final = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"


def _short(name: str, letter: str, unit: str) -> Pattern:
    """A length with a letter: vLLM reads ``32K`` as 32,768 and ``32k`` as 32,000."""
    return Pattern(
        name,
        None,
        rf"--max[-_]model[-_]len(?:=| +)(?P<max_model_len__{unit}>{_SIZE}){letter}\b",
        "The longest request is {max_model_len} tokens, prompt and answer together.",
    )


def _short_flag(name: str, flag: str, fact: str, text: str) -> Pattern:
    """A flag of one letter group, in a command only."""
    return Pattern(name, "vllm", rf"vllm serve\b.{{0,900}}? -{flag}(?: +|=)(?P<{fact}>{WHOLE})\b", text)


FURTHER: Final[tuple[Pattern, ...]] = (
    Pattern(
        "capability",
        None,
        r"\bhas (?:a )?compute capability:? (?P<capability>[0-9]{1,2}\.[0-9])\b|"
        r"\b[Cc]ompute capability(?: is)?[:=] ?\(?(?P<capability_>[0-9]{1,2}\.[0-9])\b",
        "The device has compute capability {capability}.",
    ),
    Pattern(
        "vllm_desired",
        "vllm",
        rf"Desired GPU memory utilization is \((?P<utilization>[01]?\.[0-9]{{1,9}}|1(?:\.0)?), "
        rf"(?P<requested__gib>{NUMBER}) ?GiB\)",
        "The engine may take {utilization} of the device's memory, {requested}.",
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
        "The KV pool is {kv_pool} on this device.",
    ),
    Pattern(
        "vllm_in_use_bytes",
        "vllm",  # v1/worker/gpu_worker.py, 0.10.2
        rf"Current kv cache memory in use is (?P<kv_pool>{WHOLE}) bytes",
        "The KV pool is {kv_pool} on this device.",
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
        "The cache is allocated in blocks of {block_tokens} tokens.",
    ),
    _short("max_model_len_ki", "K", "ki"),
    _short("max_model_len_k", "k", "k"),
    Pattern(
        "prefix_caching_off",
        "vllm",
        r"(?P<no_prefix_caching>--no-enable-prefix-caching|enable_prefix_caching=False|'enable_prefix_caching': False)",
        "Prefix caching is off: a request takes one slot for its recurrent state.",
    ),
    Pattern(
        "radix_cache_off",
        "sglang",
        r"(?P<no_prefix_caching>--disable-radix-cache\b|disable_radix_cache'?(?:=|: )True)",
        "Prefix caching is off.",
    ),
    Pattern(
        "prefix_caching_on",
        "vllm",
        r"(?P<caches_prefixes>--enable-prefix-caching\b|enable_prefix_caching=True|'enable_prefix_caching': True)",
        "Prefix caching is on. A model with recurrent states then keeps two or more states per request.",
    ),
    Pattern(
        "vllm_image",
        "vllm",
        r"vllm/vllm-openai(?:-rocm)?:\S{1,60} +(?:--model(?:=| +))?(?!-)(?P<model>[A-Za-z0-9_./~-]{1,300})",
        "The container image serves {model}.",
    ),
    Pattern(
        "vllm_image_version",
        "vllm",
        r"vllm/vllm-openai(?:-rocm)?:v(?P<engine_version>[0-9]+(?:\.[0-9]+){1,3}(?:\.post[0-9]+)?)",
        "The container image has vLLM {engine_version}.",
    ),
    Pattern(
        "vllm_logo_version",
        "vllm",
        rf"█\s{{1,8}}version (?P<engine_version>{VERSION})",
        "vLLM {engine_version} starts.",
    ),
    Pattern(
        "vllm_logo_model",
        "vllm",
        r"█\s{1,8}model\s{1,8}(?P<model>[A-Za-z0-9_./~-]{1,300})",
        "The server loads {model}.",
    ),
    # SGLang's further pools.
    Pattern(
        "sglang_window_pool",
        "sglang",
        rf"SWAKVPool mem usage: {NUMBER} GB, swa size: (?P<window_tokens>{WHOLE}), full size: (?P<kv_tokens>{WHOLE})",
        "The pool holds {kv_tokens} tokens, and that of the windows {window_tokens}.",
    ),
    Pattern(
        "sglang_states",
        "sglang",
        rf"Mamba Cache is allocated\. max_mamba_cache_size: (?P<state_slots>{WHOLE})",
        "The pool holds {state_slots} recurrent states.",
    ),
    Pattern(
        "sglang_compressed_pools",
        "sglang",
        rf"DSV4 pool sizes: full=(?P<kv_tokens>{WHOLE}), swa=(?P<window_tokens>{WHOLE})",
        "The pool holds {kv_tokens} tokens, and that of the windows {window_tokens}.",
    ),
    Pattern(
        "sglang_most_tokens",
        "sglang",
        rf"(?:--max-total-tokens(?:=| +)|\bmax_total_tokens'?(?:=|: ))(?P<most_tokens>{WHOLE})\b",
        "The pool is capped at {most_tokens} tokens.",
    ),
    Pattern(
        "sglang_states_set",
        "sglang",
        rf"(?:--max-mamba-cache-size(?:=| +)|'max_mamba_cache_size': )(?P<states_set>{WHOLE})\b|"
        rf"\bmax_mamba_cache_size=(?P<states_set_>{WHOLE}), mamba_ssm_dtype=",
        "{states_set} recurrent states are requested.",
    ),
    Pattern(
        "sglang_image",
        "sglang",
        r"lmsysorg/sglang(?:-rocm)?:v(?P<engine_version>[0-9]+(?:\.[0-9]+){1,3}(?:\.post[0-9]+)?)|"
        r"\bsglang(?:==| v| version )(?P<engine_version_>[0-9]+(?:\.[0-9]+){1,3}(?:\.post[0-9]+)?)",
        "SGLang {engine_version}.",
    ),
    # Refusals, and the halves of one that a terminal has wrapped.
    Pattern(
        "vllm_refused_length",
        "vllm",
        rf"serve at least one request with the models?'?s? max seq len \((?P<max_model_len>{WHOLE})\),?\s{{0,8}}$",
        "The engine refuses to start: it allows requests of {max_model_len} tokens.",
    ),
    Pattern(
        "vllm_refused_need",
        "vllm",
        rf"^\W{{0,12}}(?P<needed__gib>{NUMBER}) ?GiB KV cache is needed, "
        rf"which is larger than the available KV cache memory \((?P<kv_pool__gib>{NUMBER}) ?GiB\)",
        "One request needs {needed}, and the pool is {kv_pool}.",
    ),
    Pattern(
        "vllm_states_refused",
        "vllm",
        rf"max_num_seqs \((?P<max_seqs>{WHOLE})\) exceeds available Mamba cache blocks \((?P<state_blocks>{WHOLE})\)",
        "The engine refuses to start: each of {max_seqs} requests needs a block for its state, and there are "
        "{state_blocks}.",
    ),
    Pattern(
        "vllm_free_refused",
        "vllm",
        rf"is less than desired GPU memory utilization \((?P<utilization>[01]?\.[0-9]+), "
        rf"(?P<requested__gib>{NUMBER}) ?GiB\)",
        "The engine refuses to start: {requested} of memory are requested, and less is free.",
    ),
    Pattern(
        "vllm_experts_triton",
        "vllm",
        r"(?:mxfp4\.py:[0-9]{1,5}\] Using Triton backend(?: for mxfp4 lora)?\s{0,8}$|Using 'TRITON(?:_UNFUSED)?' Mxfp4 MoE backend)",
        "OpenAI's Triton kernels compute the experts.",
    ),
    Pattern(
        "vllm_experts_marlin",
        "vllm",
        r"(?:mxfp4\.py:[0-9]{1,5}\] Using Marlin backend(?: for mxfp4 lora)?\s{0,8}$|Using '(?:BATCHED_)?MARLIN' Mxfp4 MoE backend)",
        "Marlin's kernels compute the experts.",
    ),
    Pattern(
        "vllm_experts_mega",
        "vllm",
        rf"moe[-_]backend'?(?:=|: ?| +)'?(?:{'|'.join(MEGA_MOE_BACKENDS)})\b",
        "Kernels that exchange tokens by themselves compute the experts.",
    ),
    Pattern(
        "vllm_no_room",
        "vllm",
        r"No available memory for the cache blocks",
        "The engine refuses to start: nothing is left for the cache.",
    ),
    Pattern(
        "sglang_states_refused",
        "sglang",
        rf"max_mamba_cache_size=(?P<state_blocks>{WHOLE})\b.{{0,80}}?resulting max_num_reqs=0",
        "The engine refuses to start: {state_blocks} recurrent states are fewer than one request holds.",
    ),
    Pattern(
        "sglang_draft_method",
        "sglang",
        r"(?:--speculative[-_]algo(?:rithm)?(?:=| +)|speculative_algorithm'?(?:=|: )')(?P<draft_method>[A-Za-z0-9_]{3,20})",
        "Drafts come from {draft_method}.",
    ),
    Pattern(
        "sglang_draft_steps",
        "sglang",
        rf"(?:--speculative[-_]num[-_]steps(?:=| +)|speculative_num_steps'?(?:=|: ))(?P<draft_steps>{WHOLE})\b",
        "{draft_steps} steps are drafted.",
    ),
    Pattern(
        "sglang_draft_branches",
        "sglang",
        rf"(?:--speculative[-_]eagle[-_]topk(?:=| +)|speculative_eagle_topk'?(?:=|: ))(?P<draft_branches>{WHOLE})\b",
        "Branches of a draft: {draft_branches}.",
    ),
    Pattern(
        "sglang_draft_from",
        "sglang",
        r"(?:--speculative[-_]draft[-_]model(?:[-_]path)?(?:=| +)|speculative_draft_model_path'?(?:=|: )')"
        r"(?P<draft_from>[^\s',]{1,300})",
        "The draft model is {draft_from}.",
    ),
    Pattern(
        "sglang_draft_tokens",
        "sglang",
        rf"(?:--speculative[-_]num[-_]draft[-_]tokens(?:=| +)|speculative_num_draft_tokens'?(?:=|: ))"
        rf"(?P<draft_verified>{WHOLE})\b",
        "{draft_verified} tokens are verified at once.",
    ),
    Pattern(
        "sglang_draft_block",
        "sglang",
        rf"(?:--speculative[-_](?:dflash|dspark)[-_]block[-_]size(?:=| +)|speculative_(?:dflash|dspark)_block_size'?(?:=|: ))"
        rf"(?P<draft_block>{WHOLE})\b",
        "Blocks of {draft_block} tokens are drafted.",
    ),
    Pattern(
        "sglang_images_through",
        "sglang",
        r"(?:--mm[-_]feature[-_]transport(?:=| +)|mm_feature_transport'?(?:=|: )')(?P<images_through>cpu|cuda_ipc|cuda_vmm)",
        "Images reach the model through {images_through}.",
    ),
    # Flags that bear on memory and that no number here follows.
    Pattern(
        "speculative",
        None,
        r"(?P<speculative>--speculative[-_](?:config|algo(?:rithm)?)\b|'speculative_config': ?\{|"
        r"speculative_config=SpeculativeConfig|speculative_algorithm'?(?:=|: )'[A-Z])",
        "Speculative decoding is on.",
    ),
    Pattern(
        "lora",
        None,
        r"(?P<lora>--enable[-_]lora\b|enable_lora=True|'enable_lora': True|--max[-_]lora(?:s|[-_]rank)\b)",
        "LoRA adapters are served.",
    ),
    Pattern(
        "lora_slots",
        "vllm",
        r"(?:--max[-_]loras[= ]|\bmax_loras=|'max_loras': )(?P<lora_slots>[0-9]+)",
        "vLLM keeps the buffers of {lora_slots} adapters.",
    ),
    Pattern(
        "lora_rank",
        "vllm",
        r"(?:--max[-_]lora[-_]rank[= ]|\bmax_lora_rank=|'max_lora_rank': )(?P<lora_rank>[0-9]+)",
        "An adapter has a rank of up to {lora_rank}.",
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
        rf"(?:--data[-_]parallel[-_]size(?:=| +)|data_parallel_size=|'data_parallel_size': ?|\bdp_size'?(?:=|: )|--dp(?:-size)?(?:=| +))"
        rf"(?P<data_parallel>{WHOLE})\b",
        "Attention runs on {data_parallel} data-parallel ranks, each with its own pool.",
    ),
    Pattern(
        "sglang_data_attention",
        "sglang",
        r"(?P<data_attention>--enable[-_]dp[-_]attention\b|enable_dp_attention'?(?:=|: )True)",
        "The data ranks share the devices of the tensor-parallel group.",
    ),
    _short_flag(
        "vllm_pp", "pp", "pipeline_parallel", "The layers are split over {pipeline_parallel} stages."
    ),
    _short_flag(
        "vllm_dp",
        "dp",
        "data_parallel",
        "Attention runs on {data_parallel} data-parallel ranks, each with its own pool.",
    ),
    _short_flag(
        "vllm_dcp",
        "dcp",
        "context_parallel",
        "The tokens of a request are spread over {context_parallel} devices while decoding.",
    ),
    Pattern(
        "sglang_no_pool",
        "sglang",
        r"Not enough memory[.;,] Please try to increase --mem-fraction-static",
        "The engine refuses to start: this share leaves nothing for the cache once the weights are loaded. Raise "
        "mem-fraction-static, or divide the weights over more devices.",
    ),
    Pattern(
        "device_full",
        None,
        r"(?:CUDA|HIP) out of memory\. Tried to allocate [0-9.]{1,12} [KMG]iB",
        "The device's memory ran out. Before the line of the pool, the weights or the measuring run do not fit. After "
        "it, graphs or a large step took more than was kept free.",
    ),
    Pattern(
        "sglang_links",
        "sglang",
        r"Init torch distributed (?:begin|ends)\b",
        "The device and its links to other ranks are set up.",
    ),
    Pattern(
        "sglang_capture",
        "sglang",
        r"Capture (?:target |draft )?(?:decode |prefill |verify )?(?:cuda|CUDA) ?graph begin",
        "CUDA graphs are captured.",
    ),
    Pattern(
        "sglang_stages",
        "sglang",
        rf"(?:--pp-size(?:=| +)|\bpp_size'?(?:=|: ))(?P<pipeline_parallel>{WHOLE})\b",
        "The layers are split over {pipeline_parallel} stages.",
    ),
    Pattern(
        "sglang_contexts",
        "sglang",
        rf"(?:--dcp-size(?:=| +)|\bdcp_size'?(?:=|: ))(?P<context_parallel>{WHOLE})\b",
        "The tokens of a request are spread over {context_parallel} devices while decoding.",
    ),
    Pattern(
        "sglang_experts",
        "sglang",
        rf"(?:--ep-size(?:=| +)|--expert-parallel-size(?:=| +)|\bep_size'?(?:=|: ))(?P<expert_size>{WHOLE})\b",
        "Experts are divided over {expert_size} ranks.",
    ),
    Pattern(
        "redundant_experts",
        None,
        r"num[-_]redundant[-_]experts[\"']?(?:=|: ?| +)(?P<redundant_experts>[1-9][0-9]{0,3})\b",
        "{redundant_experts} redundant experts are divided over the ranks with the others.",
    ),
    Pattern(
        "all_to_all",
        None,
        r"(?:--all2all[-_]backend(?:=| +)|all2all_backend'?(?:=|: ?)|--moe[-_]a2a[-_]backend(?:=| +)|moe_a2a_backend'?(?:=|: ))"
        r"[\"']?(?P<all_to_all>[a-z][a-z0-9_]{1,40})",
        "Ranks exchange tokens through {all_to_all}.",
    ),
    Pattern(
        "deepep_mode",
        "sglang",
        r"(?:--deepep-mode(?:=| +)|deepep_mode'?(?:=|: ))[\"']?(?P<deepep_mode>[a-z_]{2,20})",
        "DeepEP runs in the mode {deepep_mode}.",
    ),
    Pattern(
        "pipeline_partition",
        None,
        r"_PP_LAYER_PARTITION[=:] ?[\"']?(?P<pipeline_partition>[0-9]{1,3}(?:,[0-9]{1,3}){1,63})",
        "The stages have {pipeline_partition} layers.",
    ),
    Pattern(
        "nodes",
        None,
        rf"(?:--nnodes(?:=| +)|\bnnodes'?(?:=|: ))(?P<nodes>{WHOLE})\b",
        "One replica spans {nodes} servers.",
    ),
    Pattern(
        "prefill_context",
        None,
        r"(?:--prefill[-_]context[-_]parallel[-_]size(?:=| +)|prefill_context_parallel_size'?(?:=|: ?)|"
        r"--attn-cp-size(?:=| +)|\battn_cp_size'?(?:=|: ))(?P<prefill_context>[2-9]|[1-9][0-9]{1,3})\b",
        "Prompts are divided over {prefill_context} ranks.",
    ),
    Pattern(
        "dense_ranks",
        "sglang",
        rf"(?:--moe-dense-tp-size(?:=| +)|\bmoe_dense_tp_size'?(?:=|: ))(?P<dense_ranks>{WHOLE})\b",
        "Dense layers are divided over {dense_ranks} ranks.",
    ),
    Pattern(
        "head_by_data_rank",
        "sglang",
        r"(?P<head_by_data_rank>--enable-dp-lm-head\b|\benable_dp_lm_head'?(?:=|: )True)",
        "Each data rank has an output head of its own.",
    ),
    Pattern(
        "text_only",
        None,
        r"(?P<text_only>--language-(?:model-)?only\b|'language_model_only': True|\blanguage_(?:model_)?only=True|"
        r"limit[-_]mm[-_]per[-_]prompt\W{1,8}(?=[^}]{0,80}image\W{1,4}0\b)(?=[^}]{0,80}video\W{1,4}0\b))",
        "The server runs text only: the image encoder is neither loaded nor measured.",
    ),
    Pattern(
        "no_audio",
        "vllm",
        r"(?P<no_audio>limit[-_]mm[-_]per[-_]prompt\W{1,8}(?=[^}]{0,80}audio\W{1,4}0\b))",
        "The server takes no audio: an audio encoder is not loaded.",
    ),
    Pattern(
        "no_videos",
        "vllm",
        r"(?P<no_videos>limit[-_]mm[-_]per[-_]prompt\W{1,8}(?=[^}]{0,80}video\W{1,4}0\b))",
        "The server takes no videos: it measures itself with images.",
    ),
    Pattern(
        "no_encoding",
        "vllm",
        r"(?P<no_encoding>--skip[-_]mm[-_]profiling\b|'skip_mm_profiling': True)",
        "No image is encoded while memory is measured.",
    ),
    Pattern(
        "whole_encoders",
        "vllm",
        r"(?P<whole_encoders>--mm[-_]encoder[-_]tp[-_]mode(?:=| +)[\"']?data\b|'mm_encoder_tp_mode': 'data')",
        "Each tensor-parallel rank holds whole encoders.",
    ),
    Pattern(
        "state_dtype",
        None,
        r"(?:--mamba[-_]ssm[-_](?:cache[-_])?dtype(?:=| +)|'mamba_ssm_cache_dtype': ?|\bmamba_ssm_dtype'?(?:=|: ))"
        r"[\"']?(?P<state_dtype>float32|bfloat16|float16)\b",
        "Recurrent states are stored as {state_dtype}.",
    ),
    Pattern(
        "sglang_no_graphs",
        "sglang",
        r"(?P<eager>--disable-cuda-graph(?![\w-])|\bdisable_cuda_graph'?(?:=|: )True)",
        "CUDA graphs are off: they take no memory, and decoding is slower.",
    ),
    Pattern(
        "offloaded",
        None,
        r"(?P<offloaded>--cpu[-_]offload[-_]gb|'cpu_offload_gb': ?[1-9]|--kv[-_]offloading[-_]size|--swap[-_]space(?![= ]+0\b(?!\.)))",
        "Part of the cache or weights is in host memory, which is not counted here.",
    ),
)
"""Tried after :data:`kvreport.startup_log.patterns.PATTERNS`, in this order."""

NOT_FOLLOWED: Final = {
    "speculative": "speculative decoding",
    "lora": "LoRA adapters",
    "offloaded": "offloading to the host",
    "prefill_context": "prompts that are divided over ranks",
}
"""Facts that change memory and that no prediction here follows."""
