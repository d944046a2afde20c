"""Start-up logs as engines wrote them, and what is put into damaged ones."""

from __future__ import annotations

from kvreport.site.pages.log_reader import EXAMPLE

# Start-up lines as published in issues and repositories of both engines, with what surrounds them.
LOGS = {
    "vllm-restarted": """\
INFO vLLM API server version 0.30.0
INFO GPU KV cache size: 29,120 tokens, Maximum concurrency for 8,192 tokens per request: 3.55x
INFO vLLM API server version 0.30.0
INFO non-default args: {'model': 'org/m', 'num_gpu_blocks_override': 99, 'mamba_ssm_cache_dtype': 'bfloat16', \
'language_model_only': True}
INFO GPU KV cache size: 58,240 tokens, Maximum concurrency for 8,192 tokens per request: 7.11x
""",
    "vllm-tokens-below-length": """\
INFO vLLM API server version 0.18.2
vllm serve org/m --max-model-len 262144 --max-num-seqs 256
INFO Available KV cache memory: 10.93 GiB
INFO GPU KV cache size: 95,472 tokens
""",
    "vllm-decimal-comma": """\
{"log": "INFO vLLM API server version 0.33.0\\n", "stream": "stderr"}
vllm serve org/m --max-model-len 8192
INFO Available KV cache memory: 54,46 GiB
INFO GPU KV cache size: 446,112 tokens
""",
    "sglang-tokens-below-length": """\
server_args=ServerArgs(model_path='org/m', tp_size=1, context_length=131072)
max_total_num_tokens=65536, chunked_prefill_size=8192, context_len=131072, available_gpu_mem=2.00 GB
""",
    "vllm-ranks": """\
(EngineCore_0 pid=1159) (RayWorkerWrapper pid=343, ip=10.42.9.224) INFO 09-10 23:48:00 [gpu_model_runner.py:2007] \
Model loading took 17.2217 GiB and 1229.597812 seconds
(EngineCore_0 pid=1159) (RayWorkerWrapper pid=344, ip=10.42.9.225) INFO Model loading took 17.3 GiB and 12 seconds
(EngineCore_0 pid=1159) INFO [gpu_worker.py:276] Available KV cache memory: 45.32 GiB [repeated 3x across cluster]
INFO Available KV cache memory: 45.30 GiB
INFO 09-10 23:48:39 [kv_cache_utils.py:1013] GPU KV cache size: 2,640,144 tokens
INFO 09-10 23:48:39 [kv_cache_utils.py:1017] Maximum concurrency for 16,384 tokens per request: 284.25x
Graph capturing finished in 101 secs, took 1.88 GiB
""",
    "vllm-config": """\
\x1b[1;36m(APIServer pid=1)\x1b[0m INFO non-default args: {'model': 'org/m', 'max_model_len': 262144, \
'enforce_eager': True, 'gpu_memory_utilization': 0.82, 'max_num_batched_tokens': 2048, 'max_num_seqs': 1}
(EngineCore pid=32) INFO [core.py:113] Initializing a V1 LLM engine (v0.22.1rc1.dev357+g74b5964f0) with config: \
model='org/m', dtype=torch.bfloat16, max_seq_len=262144, tensor_parallel_size=2, quantization=None, kv_cache_dtype=auto
Setting attention block size to 1568 tokens to ensure that attention page size is >= mamba page size.
Padding mamba page size by 0.13%
WARNING [topk_topp_sampler.py:61] FlashInfer is not available. Falling back to the PyTorch-native implementation of \
top-p & top-k sampling. For the best performance, please install FlashInfer.
Estimated CUDA graph memory: 0.78 GiB total
Graph capturing finished in 8 secs, took -0.17 GiB
At gmu 0.90: Available KV cache memory: -0.12 GiB and the engine refuses
""",
    "copied-from-a-page": """\
(EngineCore\u00a0pid=219)\u00a0INFO [kv_cache_utils.py:1316] GPU KV cache size: 441,600\u00a0tokens, Maximum\u00a0concurrency for \
32,768 tokens per request: 13.48x
non-default args: {&#39;model&#39;: &quot;org/m&quot;, &#39;pipeline_parallel_size&#39;: 1} &amp;gt; &gt;
""",
    "vllm-v0": """\
the current vLLM instance can use total_gpu_memory (47.50GiB) x gpu_memory_utilization (0.78) = 37.18GiB
model weights take 0.52GiB; non_torch_memory takes 0.08GiB; PyTorch activation peak memory takes 1.78GiB; the rest of \
the memory reserved for KV Cache is 34.81GiB.
# cuda blocks: 190100, # CPU blocks: 0
Maximum concurrency for 32768 tokens per request: 92.82x
The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (81536).
""",
    "refused": EXAMPLE,
    "issue": """\
vllm serve my/model --max-model-len 32768 --gpu-memory-utilization 0.9
Free memory on device (79.0/80.00 GiB) on startup.
Available KV cache memory: 10.00 GiB
GPU KV cache size: 21,360 tokens
Maximum concurrency for 32,768 tokens per request: 0.65x
""",
    "sglang": """\
[2026-06-07] server_args=ServerArgs(model_path='Qwen/Q', kv_cache_dtype='auto', mem_fraction_static=0.8, tp_size=2)
[2026-06-07 19:06:00] Load weight begin. avail mem=78.26 GB
[2026-06-07 19:06:22] Load weight end. elapsed=22.28 s, type=Qwen2ForCausalLM, avail mem=75.01 GB, mem usage=3.25 GB.
[2026-06-07 19:06:24] KV Cache is allocated. #tokens: 1557709, K size: 20.80 GB, V size: 20.80 GB
[2026-06-07 19:06:24] Memory pool end. avail mem=26.18 GB
[2026-06-07 19:06:37] Capture cuda graph end. Time elapsed: 12.89 s. mem usage=2.23 GB. avail mem=23.06 GB.
Mamba Cache is allocated. max_mamba_cache_size: 360, conv_state size: 0.99GB, ssm_state size: 50.77GB
max_total_num_tokens=1557709, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, \
context_len=32768, available_gpu_mem=22.15 GB
""",
    "others": "llama_kv_cache: size = 1792.00 MiB (131072 cells,  14 layers,  1/1 seqs)\nthe moon\n",
    "seqs": """\
vllm serve my/model --max-model-len 8192 --max-num-seqs 256
GPU KV cache size: 100,000 tokens
Maximum concurrency for 8,192 tokens per request: 12.20x
""",
}

# Qwen3-30B-A3B on llama-server with Vulkan, verbatim from a public log.
LLAMA_CPP = """\
print_info: file size   = 17.28 GiB (4.86 BPW)
load_tensors: offloaded 49/49 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   166.92 MiB
load_tensors:      Vulkan0 model buffer size = 17524.42 MiB
llama_context: n_ctx         = 8192
llama_context: n_ubatch      = 2048
llama_context: Vulkan_Host  output buffer size =     0.58 MiB
llama_kv_cache: size =  768.00 MiB (  8192 cells,  48 layers,  1/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB
sched_reserve:    Vulkan0 compute buffer size =   368.04 MiB
sched_reserve: Vulkan_Host compute buffer size =    64.05 MiB
"""

LOGS["services"] = "\n".join(
    f"chat-1  | {one}\ncode_2 | {one.replace('Qwen2.5-72B-Instruct', 'Qwen3-8B')}"
    for one in LOGS["vllm-ranks"].splitlines()
)

LINES = sorted({line for text in LOGS.values() for line in text.splitlines()})
NUMBERS = ("0", "-0", "1", "-1", "00017", ",", "1,,,", "0.0", ".5", "1e9", "inf", "nan", "9" * 18, "9" * 400)
NOISE = (
    "\x00", "\x1b[31m", "\x1b[", "\x1b]0;title\x07", "\r", "\r\n", "\t", "\ufeff", "\u2028", "\u202e", "\x85",
    "\x1c", "\ud7ff", "\ufffd", "\U0001f999", "é", "'", "(" * 50, "<script>", "{{ 1 }}", "=", "--", "  ",
)  # fmt: skip


OLLAMA_PLACED = """\
time=2026-04-09T23:30:16.030-07:00 level=DEBUG source=device.go:240 msg="model weights" device=CUDA0 size="21.4 GiB"
time=2026-04-09T23:30:16.030-07:00 level=DEBUG source=device.go:272 msg="total memory" size="51.9 GiB"
time=2026-04-09T23:30:17.230-07:00 level=INFO source=runner.go:1278 msg=load request="{Operation:commit LoraPath:[] Parallel:2 \
BatchSize:512 FlashAttention:Enabled KvSize:65536 KvCacheType: NumThreads:12 GPULayers:20[ID:GPU-5 Layers:20(28..47)]}"
time=2026-04-09T23:30:17.630-07:00 level=INFO source=ggml.go:494 msg="offloaded 20/49 layers to GPU"
time=2026-04-09T23:30:17.630-07:00 level=INFO source=device.go:240 msg="model weights" device=CUDA0 size="19.9 GiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:245 msg="model weights" device=CPU size="28.3 GiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:251 msg="kv cache" device=CUDA0 size="1.1 GiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:256 msg="kv cache" device=CPU size="1.5 GiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:262 msg="compute graph" device=CUDA0 size="884.1 MiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:267 msg="compute graph" device=CPU size="270.6 MiB"
time=2026-04-09T23:30:17.631-07:00 level=INFO source=device.go:272 msg="total memory" size="51.9 GiB"
"""
"""Lines as Ollama's own engine prints them since late 2025."""

OLLAMA_CUT = """\
load_tensors: offloaded 44/81 layers to GPU
msg=offload library=cuda layers.requested=-1 layers.model=81 layers.offload=44 layers.split="" \
memory.available="[22.9 GiB]" memory.required.full="41.3 GiB" memory.required.partial="22.5 GiB"
"""
