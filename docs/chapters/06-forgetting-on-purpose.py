# %% [markdown]
# # Forgetting on purpose
#
# Not every layer has to remember everything. Some look back only over a window. Some keep one running summary of
# constant size. A model that mixes them can read a book at the price of a page, and a calculator that does not
# know it is wrong by four or more.
#
# ## The question
#
# Qwen3.6 27B has {{ 64 layers = layers("qwen3.6-27b") }}. Its documentation says that a request can be 128K tokens long. A
# lesson on the web counts {{ 16 GiB = kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }} for one such
# request in 8 bits. An engine reserves about a quarter of that. Who is right?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>How many of the layers keep keys and values of every token?</summary>
#
# {{ 16 layers = growing_layers("qwen3.6-27b") }}. The other {{ 48 layers = layers("qwen3.6-27b") - growing_layers("qwen3.6-27b") }}
# keep a state: {{ 153.9 MB = state("qwen3.6-27b") }} for the whole request, if it is one token long or a million.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import claim, curves, fold, formula, quantities, table

q = quantities()
GiB, KiB, MB = 2**30, 2**10, 10**6
HYBRID = "qwen3.6-27b"
claim(q.state(HYBRID), 153_944_064)
claim(q.kv_per_token(HYBRID), 65_536)
claim(q.kv_per_token(HYBRID, "fp8"), 32_768)
claim(q.layers(HYBRID), 64)
claim(q.growing_layers(HYBRID), 16)
claim(q.kv_per_token("gpt-oss-120b"), 36_864)
claim(q.kv_per_token("gpt-oss-120b", at=1), 73_728)
claim(q.window("gpt-oss-120b"), 128)
claim(q.kv_per_token("gemma-3-27b"), 81_920)
claim(q.window("gemma-3-27b"), 1024)
# %% [markdown]
# ## Three ways to forget
#
# **A sliding window.** The layer sees the last so many tokens and nothing before. Its cache grows up to the window and
# then stays. gpt-oss 120B does it in half of its layers with a window of {{ 128 tokens = window("gpt-oss-120b") }},
# Gemma 3 27B in five of six with {{ 1,024 tokens = window("gemma-3-27b") }}, Mistral 7B version 0.1 in all of them.
#
# **A chunk.** The layer sees its own chunk of the text and starts afresh in the next (Llama 4). To count memory it is a
# window that empties now and then; we count its fullest.
#
# **A state.** The layer keeps a table of fixed size and updates it with every token: Mamba, linear attention, Gated
# DeltaNet. It costs the same for a greeting and for a novel. That is little for the novel and much for the greeting.
#
# The layers that still see everything are few, and they carry the long-range memory for all.
#
# ## The formula

# %% tags=["hide"]
formula(
    "cache of one request  =  full layers    × rate × tokens",
    "                      +  window layers  × rate × min(tokens, window)",
    "                      +  state layers   × state",
)

# %% [markdown]
# So a model needs **two** numbers, never one: what a further token costs at the length you are at, and what a request
# costs however short it is.
#
# ## The numbers put in

# %%
models = {
    "Llama 3.1 8B": "llama-3.1-8b",
    "gpt-oss 120B": "gpt-oss-120b",
    "Gemma 3 27B": "gemma-3-27b",
    "Qwen3.6 27B": HYBRID,
}
table(
    "16-bit cache of one request",
    [
        "model",
        "layers",
        "that keep everything",
        "KiB, first tokens",
        "KiB, at 128K",
        "state, MB",
        "GiB at 2K",
        "GiB at 128K",
    ],
    [
        [
            name,
            q.layers(m),
            q.growing_layers(m),
            q.kv_per_token(m, at=1) / KiB,
            q.kv_per_token(m, at=131072) / KiB,
            q.state(m) / MB,
            q.kv_request(m, tokens=2048) / GiB,
            q.kv_request(m, tokens=131072) / GiB,
        ]
        for name, m in models.items()
    ],
)

# %% tags=["hide"]
lengths = [2**k for k in range(9, 18)]
curves(
    "Cache of one request in GiB. A window bends the line down, a state lifts its beginning.",
    x=lengths,
    lines={name: [q.kv_request(m, tokens=n) / GiB for n in lengths] for name, m in models.items()},
    x_title="tokens",
    y_title="GiB for one request",
    y_log=True,
)

# %% [markdown]
# ## A real machine
#
# The lesson's machine is an H100 NVL, sold as {{ 94 GB = label_memory("h100-nvl-94gb") }}, running Qwen3.6 27B with
# 8-bit weights, an 8-bit cache and three quarters of the memory for the engine. Its arithmetic: all 64 layers,
# {{ 128 KiB = kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1) }} a token,
# {{ 16 GiB = kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }} for 128K,
# {{ 2.7 requests = 43 * GiB / kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }} in 43 GiB. With the
# layers that really keep something: {{ 32 KiB = kv_per_token("qwen3.6-27b", "fp8") }} a token,
# {{ 4.14 GiB = kv_request("qwen3.6-27b", "fp8", tokens=131072) }} for 128K with the states,
# {{ 10 requests = floor(43 * GiB / kv_request("qwen3.6-27b", "fp8", tokens=131072)) }} in the same 43 GiB.

# %%
import kvreport

answer = kvreport.estimate(
    HYBRID, gpu="h100-nvl-94gb", weights="fp8", kv="fp8", utilization=0.75, context_tokens="128K"
)
table(
    "The same machine as an engine sees it (vLLM, estimate)",
    ["", "GiB"],
    [
        ["three quarters of the memory", answer.budget.total_bytes * 0.75 / GiB],
        ["weights, with the parts that stay at 16 bits", answer.budget.weights / GiB],
        [
            "intermediate results, driver, programs",
            (answer.budget.activations + answer.budget.non_framework + answer.budget.graphs) / GiB,
        ],
        ["left for the cache", answer.budget.kv_pool_bytes / GiB],
        ["one request of 128K, as reserved", answer.kv_bytes_per_request_per_gpu / GiB],
        ["requests that memory holds", answer.max_concurrent_requests_by_memory],
    ],
)

# %% tags=["hide"]
claim(answer.kv_bytes_per_token_per_gpu, 32_768)
claim(answer.state_bytes_per_request_per_gpu, 153_944_064)
assert answer.kv_bytes_per_request_per_gpu >= q.kv_request(HYBRID, "fp8", tokens=131072)
assert answer.max_concurrent_requests_by_memory > 3
claim(answer.kv_bytes_per_request_per_gpu, 4 * GiB, within=0.2)

# %% [markdown]
# Less than the pencil says, because an engine keeps memory for itself and rounds up: it gives states and keys the same
# size of block, so that one kind of memory serves both. Still
# {{ fits("qwen3.6-27b", "h100-nvl-94gb", tokens=131072, weights="fp8", kv="fp8", utilization=0.75) as requests }}, where the lesson
# counts two or three. "The cache, not
# the weights, is the limit" stays true. The number under it does not.
#
# ## Where this picture ends
#
# - While a long prompt is being read, an engine needs more than the window: it works on thousands of tokens in one step
#   and reserves for them. [What the log says](12-what-the-log-says.py) shows the line.
# - Some engines, or some of their settings, do not know a model's windows and treat all layers as full. The tables of
#   the model pages say what each does.
# - A state cannot be shared between requests that begin alike as easily as keys and values can
#   ([prefix sharing](11-beyond-one-gpu.py)).
#
# ## Exercises
#
# **1.** From which length on does Qwen3.6 27B need less cache than Llama 3.1 8B, both in 16 bits?

# %% tags=["hide"]
meet = q.state(HYBRID) / (q.kv_per_token("llama-3.1-8b") - q.kv_per_token(HYBRID))
claim(meet, 2349)
fold(
    "Answer",
    f"{meet:,.0f} tokens: the state of {q.state(HYBRID) / MB:.1f} MB divided by the "
    f"{(q.kv_per_token('llama-3.1-8b') - q.kv_per_token(HYBRID)) / KiB:g} KiB that it saves with each token.",
)

# %% [markdown]
# **2.** A tool counts gpt-oss 120B as if all its layers kept everything. How far is it off at 1K tokens, and at 128K?

# %% tags=["hide"]
offs = [
    q.kv_per_token("gpt-oss-120b", at=1) * n / q.kv_request("gpt-oss-120b", tokens=n) for n in (1024, 131072)
]
fold(
    "Answer",
    f"{offs[0]:.2f} times too much at 1K and {offs[1]:.2f} times at 128K. The longer the text, the nearer to two: half of the layers forget.",
)
assert 1.7 < offs[0] < 1.8
assert 1.99 < offs[1] < 2

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Which two numbers describe a model's cache?</summary>
#
# The bytes of one further token at this length, and the bytes that every request holds whatever its length.
#
# </details>
# <details class="kv-card"><summary>What does "bytes per token" mean for a model with windows?</summary>
#
# Nothing, until somebody says at which length.
#
# </details>
#
# ## Read on
#
# - [Weights are not the cache](07-weights-are-not-the-cache.py)
# - [Windows and states, measured tensor by tensor](../evidence/measured/index.md#e1)
# - Try it: [three models that forget, side by side](../compare/index.md?models=Qwen--Qwen3.6-27B&models=openai--gpt-oss-120b&models=google--gemma-3-27b-it)
# - [Qwen3.6 27B](../models/Qwen--Qwen3.6-27B/index.md), [gpt-oss 120B](../models/openai--gpt-oss-120b/index.md),
#   [Gemma 3 27B](../models/google--gemma-3-27b-it/index.md)
