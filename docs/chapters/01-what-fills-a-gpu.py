# %% [markdown]
# # KV cache: what fills a GPU's memory
#
# A language model is a large file of numbers and a small program that multiplies them. To run the model, the file is loaded into the memory
# of a graphics processor, or **GPU**. This memory also holds the **KV cache**, whose size determines how many people can use
# the model at the same time. This chapter assumes no knowledge of GPUs.
#
# ## How many conversations fit on an 80 GB GPU?
#
# You have an H100, a GPU sold as "{{ 80 GB = label_memory("H100") }}". You want to serve Llama 3.1 8B, a model with
# {{ 8.03 billion = parameters("llama-3.1-8b") }} numbers in its file. These numbers are called **weights** or **parameters**.
# Each weight takes {{ 2 bytes = 16 / 8 }}. Together, the weights take {{ 16.06 GB = weights("llama-3.1-8b") }}, about a fifth of the GPU's
# memory.
#
# A **token** is a piece of text, about three quarters of an English word. A conversation of 2,048 tokens fills three or four
# printed pages. In token counts, K means 1,024: 2K is 2,048, and 128K is 131,072.

# %% tags=["hide"]
import kvreport
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    bars,
    cache_terms,
    choose,
    claim,
    exercise,
    fold,
    formula,
    guess,
    instrument,
    item,
    quantities,
    quiz,
    right,
    room,
    table,
    takeaway,
    wrong,
)

q = quantities()
MODEL, GPU = "llama-3.1-8b", "H100"
NAME = q.catalog.model(MODEL).name
GiB = 2**30
weights, memory, left = q.weights(MODEL), q.memory(GPU), room(q, MODEL, GPU)

# The text depends on these facts. If one changes, the build stops and the chapter must be read again.
claim(weights, 16_060_522_496)
claim(q.kv_per_token(MODEL), 131_072)
claim(memory, 84_943_715_697, within=0.002)
claim(q.label_memory(GPU), 80_000_000_000)
short = int(left // q.kv_request(MODEL, tokens=2048))
long = int(left // q.kv_request(MODEL, tokens=131072))
claim(short, 256)
claim(long, 4)

# %% tags=["hide"]
guess(
    "How many conversations of 2K tokens fit on this GPU next to the weights?",
    short,
    unit="conversations",
    low=1,
    high=100_000,
    why=f"The weights leave {(memory - weights) / GiB:.1f} GiB (a GiB is 7% more than a GB, see below), and each "
    "conversation of 2K tokens takes "
    f"{q.kv_request(MODEL, tokens=2048) / GiB:.2f} GiB. In practice, fewer fit, because the serving program also needs memory.",
)

# %% tags=["hide"]
guess(
    "How many conversations of 128K tokens (each as long as a thick book) fit?",
    long,
    unit="conversations",
    low=0,
    high=10_000,
    why=f"Each of these conversations takes {q.kv_request(MODEL, tokens=131072) / GiB:.0f} GiB. "
    "A number of conversations therefore means nothing without their length.",
)

# %% [markdown]
# ## Three things that need memory
#
# **Weights.** The GPU stores the weights once, for any number of conversations. They are a fixed cost.
#
# **The KV cache.** A model writes one token at a time. To choose the next token, it looks back at every earlier token. The
# model is a stack of identical *layers*. For every token, each layer stores two lists of numbers, a *key* and a *value*. Later
# tokens compare themselves with the key and read the value. The stored keys and values are the **KV cache**. Every
# conversation has its own cache, which grows with every token. The total size depends on your traffic.
#
# **Everything else.** Intermediate results (activations), the driver, communication buffers and recorded
# programs (CUDA graphs) also take memory. The serving program, called the **engine**, reserves this memory at start-up. vLLM,
# SGLang, TensorRT-LLM and llama.cpp are engines.
#
# ## Weights, caches and everything else must fit

# %% tags=["hide"]
formula(
    "GPU memory  ≥  weights  +  all caches  +  everything else",
    "all caches   =  conversations × tokens × bytes per token",
)

# %% [markdown]
# One token of Llama 3.1 8B takes {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}, which is
# {{ 128 KiB = kv_per_token("llama-3.1-8b") }}. [The next chapter](02-the-formula.py) derives this figure.
#
# **GB and GiB.** One GB is 1,000,000,000 bytes. One GiB is {{ 1,073,741,824 bytes = GiB }}, seven percent more. Log lines often print GB but mean
# GiB. This GPU is sold as 80 GB, but a process can use {{ 79.1 GiB = memory("H100") }}, which is
# {{ 84.9 GB = memory("H100") }}.
#
# ## Worked example: weights and one conversation

# %%
cache = q.kv_request(MODEL, tokens=2048)
total = weights + cache

table(
    f"{NAME} on an {GPU}: 16-bit weights and cache, one conversation of 2,048 tokens",
    ["Part", "Bytes", "GB", "GiB", "Share of the GPU"],
    [
        ["weights", weights, weights / 1e9, weights / GiB, f"{weights / memory:.1%}"],
        ["KV cache", cache, cache / 1e9, cache / GiB, f"{cache / memory:.1%}"],
        ["together", total, total / 1e9, total / GiB, f"{total / memory:.1%}"],
    ],
)

# %% tags=["hide"]
claim(cache, 268_435_456)
claim(cache / total, 0.0164, within=0.005)

# %% [markdown]
# With this one conversation, the cache is
# {{ 1.6% = kv_request("llama-3.1-8b", tokens=2048) / (weights("llama-3.1-8b") + kv_request("llama-3.1-8b", tokens=2048)) }}
# of the memory in use. Many people therefore plan only for the weights. Now add conversations, or make them longer.

# %% tags=["hide"]
sizes = f"{q.kv_request(MODEL, tokens=131072) / GiB:.0f} GiB of cache, {weights / GiB:.2f} GiB of weights."
is_larger = q.kv_request(MODEL, tokens=131072) > weights
choose(
    "Which takes more memory: one conversation of 128K tokens, or the weights of the model?",
    wrong(
        "The weights, by far",
        "This is true only for short conversations. At 2K tokens, the cache is less than two percent of the total.",
    )
    if is_larger
    else right("The weights", sizes),
    right("The conversation", sizes) if is_larger else wrong("The conversation", sizes),
    wrong(
        "Neither: the cache is in system memory, outside the GPU",
        "The GPU reads the cache in every step, so the cache must be in GPU memory.",
    ),
)


# %% tags=["hide"]
def row(conversations: int, tokens: int) -> dict[str, tuple[str, float]]:
    """One bar: weights, the caches of all conversations, and what stays free."""
    held = conversations * q.kv_request(MODEL, tokens=tokens)
    return {
        "weights": ("weights", weights),
        "cache": ("KV cache", held),
        "free": ("free", max(memory - weights - held, 0)),
    }


bars(
    f"Memory of an {GPU} with 1, 64 and 128 conversations of 2K tokens, and with 1 and 4 conversations of 128K. The weights stay the same.",
    {
        "1 × 2K": row(1, 2048),
        "64 × 2K": row(64, 2048),
        "128 × 2K": row(128, 2048),
        "1 × 128K": row(1, 131072),
        "4 × 128K": row(4, 131072),
    },
    limit_bytes=memory,
    limit_name="usable by a process",
    label="Conversations × tokens",
)

# %% [markdown]
# One conversation of 128K tokens takes as much memory as
# {{ 64 conversations = kv_request("llama-3.1-8b", tokens=131072) / kv_request("llama-3.1-8b", tokens=2048) }} of 2K. Try other lengths and numbers:

# %% tags=["hide"]
constant, terms = cache_terms(q, MODEL)
instrument(
    Instrument(
        f"Fill an {GPU} with {NAME}",
        (
            Slider(
                "context", "Context per conversation (tokens)", tuple(2**n for n in range(9, 18)), 2, "tokens"
            ),
            Slider("number", "Conversations at once", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), 0),
        ),
        (
            Output(
                "cache", "KV cache", "all_requests_bytes", ("constant", "terms", "context", "number"), "GiB.2"
            ),
            Output("used", "In use", "total", ("weights", "cache"), "GiB.1"),
            Output("share", "Cache as a share of memory in use", "ratio", ("cache", "used"), "%.1"),
            Output("state", "Memory", "memory_state", ("used", "memory"), "words:fits|out of memory"),
        ),
        {"constant": constant, "terms": terms, "weights": weights, "memory": memory},
        bar=(("weights", "weights", "weights"), ("cache", "KV cache", "cache")),
        limit="memory",
        limit_label="GPU memory",
        goals=(
            Goal("Run out of memory.", "state", 1),
            Goal("Make it fit again without going back to one conversation.", "state", 0),
        ),
    )
)

# %% tags=["hide"]
claim(q.kv_request(MODEL, tokens=131072), 64 * q.kv_request(MODEL, tokens=2048))
claim(q.kv_request(MODEL, tokens=131072), 16 * GiB)
# %% [markdown]
# ## How much memory vLLM leaves for the cache
#
# The calculation above ignores “everything else”. The next table is an estimate for vLLM 0.33 that includes it.

# %% tags=["hide"]
answer = kvreport.estimate(MODEL, gpu=GPU, context_tokens="2K")
budget = answer.budget
guess(
    "How many GiB of the GPU's memory does vLLM leave for the KV cache?",
    round(budget.kv_pool_bytes / GiB, 1),
    unit="GiB",
    low=0,
    high=int(memory / GiB),
    step="any",
    digits=1,
    why=f"By default, vLLM uses {budget.utilization:.0%} of the memory (`--gpu-memory-utilization`). From this "
    "share, it subtracts the memory for the weights, activations, the driver, buffers and CUDA graphs.",
)

# %%
table(
    "Memory of the GPU with vLLM's defaults",
    ["Part", "GiB"],
    [
        ["usable by a process", budget.total_bytes / GiB],
        ["outside the engine's share", budget.total_bytes * (1 - budget.utilization) / GiB],
        ["weights as loaded", budget.weights / GiB],
        ["activations (estimate)", budget.activations / GiB],
        ["driver, buffers, CUDA graphs (estimate)", (budget.non_framework + budget.graphs) / GiB],
        ["left for the KV cache", budget.kv_pool_bytes / GiB],
    ],
)

# %% [markdown]
# The cache gets {{ pool("llama-3.1-8b", "H100", tokens=2048) as GiB.1 }}, which is enough for
# {{ fits("llama-3.1-8b", "H100", tokens=2048) as conversations }} of 2K, or
# {{ fits("llama-3.1-8b", "H100", tokens=131072) as conversations }} of 128K. The sizes of weights and cache are exact. The engine's reserve is an
# estimate. Every model page shows the error.

# %% tags=["hide"]
takeaway(
    "Weights are a fixed cost. The size of the KV cache depends on traffic: it is conversations × tokens × bytes per token. The cache, not the "
    "weights, limits how many conversations fit."
)

# %% [markdown]
# ## Limitations
#
# - The calculation assumes conversations of equal length. Real lengths differ, and
#   [PagedAttention](08-pages.py) allocates memory as conversations grow.
# - In some models, not every layer stores every token. See [sliding windows and hybrid models](06-forgetting-on-purpose.py).
# - Speed is also a limit. See [prefill and decode](09-prefill-and-decode.py).
#
# ## Exercises

# %% tags=["hide"]
big, one = q.weights("llama-3.1-70b"), q.kv_request("llama-3.1-70b", tokens=4096)
assert big > memory
exercise(
    f"**1.** Llama 3.1 70B has {q.parameters('llama-3.1-70b') / 1e9:.1f} billion parameters of two bytes each. How "
    "many conversations of 4,096 tokens fit on one H100?",
    0,
    unit="conversations",
    solution=f"The weights alone take {big / GiB:.1f} GiB, and the GPU has {q.memory('H100') / GiB:.1f} GiB. You need two GPUs, or "
    "one byte per weight.",
    traps={
        float(
            q.memory("H100") // one
        ): "This result divides the usable memory by the cache and ignores the weights.",
        float(
            q.label_memory("H100") // one
        ): f"This result divides the {q.label_memory('H100') / 1e9:.0f} GB of the label by the cache and ignores the weights.",
    },
)

# %% tags=["hide"]
room = q.memory("H200") - weights
full = int(room // q.kv_request(MODEL, tokens=131072))
half = int(room // q.kv_request(MODEL, "fp8", tokens=131072))
claim(full, 7)
claim(half, 15)
exercise(
    f"**2.** A process can use {q.memory('H200') / GiB:.1f} GiB of an H200. How many 128K-token conversations with {NAME} fit "
    "next to its weights if the cache uses 8 bits per number?",
    half,
    unit="conversations",
    within=0,
    solution=f"With 16 bits, {full} conversations fit; with 8 bits, {half} fit. The number can be one more than double, because "
    "both are rounded down.",
    traps={
        float(full): "This is the answer for a 16-bit cache.",
        float(2 * full): "Doubling the rounded number loses the remainder.",
    },
    more=[
        table(
            "H200, 131,072 tokens each, only weights subtracted",
            ["Cache", "GiB per conversation", "Conversations"],
            [
                ["16 bits", q.kv_request(MODEL, tokens=131072) / GiB, full],
                ["8 bits", q.kv_request(MODEL, "fp8", tokens=131072) / GiB, half],
            ],
        )
    ],
)

# %% tags=["hide"]
fold(
    "3. A colleague says: “Llama 3.1 8B takes 16 GB and an H100 has 80 GB, so we can run five copies.” What is missing?",
    f"The conversations. Five copies of the weights take {5 * q.weights('llama-3.1-8b') / GiB:.1f} of {q.memory('H100') / GiB:.1f} "
    f"GiB and leave almost no room for the cache. One copy with {(q.memory('H100') - q.weights('llama-3.1-8b')) / GiB:.0f} GiB of "
    "cache serves far more people than five copies with almost none.",
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
quiz(
    item(
        "Which part of the memory does not depend on the number of conversations?",
        right("The weights", "The GPU stores them once. Most of the engine's reserve is constant too."),
        wrong("The KV cache", "The cache grows with every conversation and every token."),
        wrong(
            "All of it",
            "An engine reserves the memory for the cache at start-up, but traffic determines how much of it is in use.",
        ),
    ),
    item(
        "Interview question: a quantized model loads without trouble. Can memory still limit the server?",
        wrong(
            "No: once the weights fit, memory is solved",
            "Loading shows only that the weights fit. The cache grows while the server runs.",
        ),
        right(
            "Yes: the cache grows with context and concurrency",
            "When the cache is full, further requests wait.",
        ),
        wrong("Only if the weights grow", "The weights never grow while the model is being served."),
    ),
    item(
        "Explain to a colleague: “we can only batch about N requests because …”",
        wrong(
            "… the GPU has N cores", "The number of cores limits speed, not the number of requests in memory."
        ),
        wrong("… the weights are loaded N times", "All requests share one copy of the weights."),
        right(
            "… each request needs its own cache, and the weights leave a limited amount of memory",
            "The cache grows with the context. When the caches fill the memory that the weights leave free, no more requests fit.",
        ),
    ),
)

# %% [markdown]
# When is the cache larger than the weights? For this model, the cache is larger from
# {{ 122,533 tokens = ceil(weights("llama-3.1-8b") / kv_per_token("llama-3.1-8b")) }} on, in one conversation or in many.
#
# ## Next
#
# - [The KV cache formula](02-the-formula.py), one factor at a time
# - Measured: [memory use by batch size](../evidence/measured/index.md#e2), and
#   [where memory runs out](../evidence/measured/index.md#e3)
# - [Llama 3.1 8B on every GPU, in every format and context](../models/meta-llama--Llama-3.1-8B-Instruct/index.md)
# - ["KV-Cache: The Hidden Tax"](https://github.com/harvard-edge/cs249r_book), a tutorial from mlsysim. This chapter recomputes
#   its memory breakdown. The tutorial gives a cache
#   {{ 4.47 times = 2 * layers("llama-3.1-8b") * sqrt(8.03 * 10**9 / (12 * layers("llama-3.1-8b"))) * 2 / kv_per_token("llama-3.1-8b") }}
#   as large as the one computed here. [The claims ledger explains why](../evidence/claims/index.md#s1-b-kv).
