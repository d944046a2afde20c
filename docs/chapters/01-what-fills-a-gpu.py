# %% [markdown]
# # What fills a GPU
#
# A model that can talk is a large file of numbers and a small program that multiplies them. To answer
# quickly, the whole file has to lie in the memory of a graphics processor, a **GPU**. This chapter asks
# what else lies there, and why that something else, and not the file, decides how many people can use
# the model at the same time.
#
# You need no knowledge of GPUs. Every figure is computed when this page is built.
#
# ## The question
#
# You have one GPU that is sold as "{{ 80 GB = label_memory("H100") }}", an H100. You want to serve
# Llama 3.1 8B, a model with about {{ 8.03 billion = parameters("llama-3.1-8b") }} numbers in its file
# (the 8B in its name). These numbers are called its **weights** or **parameters**. A **byte** is the unit
# of memory: one letter of English text takes one. A weight takes {{ 2 bytes = 16 / 8 }}, or 16 bits, since a
# byte has eight.
#
# How many conversations can this GPU hold at once?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>Write a number down: how many conversations of 2,048 tokens? Then open this.</summary>
#
# A **token** is a piece of text, about three quarters of an English word; 2,048 tokens are three or four
# printed pages. (Token counts are usually given in K, and a K is 1,024 of them: 2K here, 128K for 131,072.) The weights take {{ 16.06 GB = weights("llama-3.1-8b") }}, a fifth of the card. With
# nothing else taken off, {{ 256 conversations = floor((memory("H100") - weights("llama-3.1-8b")) / kv_request("llama-3.1-8b", tokens=2048)) }}
# of that length fit into the rest. If each is 131,072 tokens long, a thick book,
# {{ 4 conversations = floor((memory("H100") - weights("llama-3.1-8b")) / kv_request("llama-3.1-8b", tokens=131072)) }}
# fit. Same card, same model. If your guess had one number in it, it lacked half of the question.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import bars, claim, fold, formula, quantities, table

q = quantities()
MODEL, GPU = "llama-3.1-8b", "H100"
GiB = 2**30

# The facts that the words of this chapter stand on. One of them moved means: read the chapter again.
claim(q.weights(MODEL), 16_060_522_496)
claim(q.kv_per_token(MODEL), 131_072)
claim(q.memory(GPU), 84_943_715_697, within=0.002)
claim(q.label_memory(GPU), 80_000_000_000)
# %% [markdown]
# ## Three things that need room
#
# **The weights.** They are there once, however many people are talking. Call them the rent.
#
# **The KV cache.** A model writes one token at a time, and to choose the next one it looks back at every
# token so far. It is built in storeys, called *layers*, and in each of them it keeps two lists of numbers
# for every token: a *key* by which the token is found, and a *value* that it contributes. It could compute
# them anew each time; keeping them is what makes it fast. This store is the **KV cache**, for key and
# value. Every conversation has its own, and it grows with every token. Call it the bill: it depends on how
# much you use.
#
# **The rest.** Intermediate results, the driver, buffers for communication, recorded programs. An engine
# (the serving program, such as vLLM) measures these when it starts and sets room aside.
#
# ## The formula

# %% tags=["hide"]
formula(
    "weights  +  conversations × cache of one conversation  +  the rest   ≤   memory",
    "cache of one conversation  =  bytes per token × tokens",
)

# %% [markdown]
# For Llama 3.1 8B one token costs {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }}, which is
# {{ 128 KiB = kv_per_token("llama-3.1-8b") }}. Where that figure comes from is
# [the next chapter](02-the-formula.py).
#
# **GB and GiB.** One GB is 1,000,000,000 bytes; one GiB is 1,073,741,824, seven per cent more. Labels on
# boxes and programs' messages mix them freely. A process finds
# {{ 79.1 GiB = memory("H100") }} on this card, which is {{ 84.9 GB = memory("H100") }}. We always say which
# we mean.
#
# ## The numbers put in
#
# One conversation of 2,048 tokens, with nothing but weights and cache counted:

# %%
weights = q.weights(MODEL)
cache = q.kv_request(MODEL, tokens=2048)
total = weights + cache

table(
    "Llama 3.1 8B, 16-bit weights and cache, one conversation of 2,048 tokens on an H100",
    ["part", "bytes", "GiB", "share of the card"],
    [
        ["weights", weights, weights / GiB, f"{weights / q.memory(GPU):.1%}"],
        ["KV cache", cache, cache / GiB, f"{cache / q.memory(GPU):.1%}"],
        ["together", total, total / GiB, f"{total / q.memory(GPU):.1%}"],
    ],
)

# %% tags=["hide"]
claim(cache, 268_435_456)
claim(cache / total, 0.0164, within=0.005)

# %% [markdown]
# The cache is {{ 1.6 % = kv_request("llama-3.1-8b", tokens=2048) / (weights("llama-3.1-8b") + kv_request("llama-3.1-8b", tokens=2048)) }}
# of what is used: a rounding error. That is why so many people believe that memory is about the
# weights. Now let the conversations become more, or longer.


# %% tags=["hide"]
def row(users: int, tokens: int) -> dict[str, tuple[str, float]]:
    """One bar: weights, the caches of so many conversations, and what stays free."""
    held = users * q.kv_request(MODEL, tokens=tokens)
    return {
        "weights": ("weights", weights),
        "cache": ("KV cache", held),
        "free": ("free", max(q.memory(GPU) - weights - held, 0)),
    }


bars(
    "One, 64 and 128 conversations of 2K tokens, then one and four of 128K, on an H100. The weights never change.",
    {
        "1 × 2K": row(1, 2048),
        "64 × 2K": row(64, 2048),
        "128 × 2K": row(128, 2048),
        "1 × 128K": row(1, 131072),
        "4 × 128K": row(4, 131072),
    },
    limit_bytes=q.memory(GPU),
    limit_name="what a process finds on the card",
)

# %% [markdown]
# A single conversation of 128K tokens holds {{ 16 GiB = kv_request("llama-3.1-8b", tokens=131072) }}: more
# than the weights ({{ 14.96 GiB = weights("llama-3.1-8b") }}). And it is the same amount as
# {{ 64 conversations = kv_request("llama-3.1-8b", tokens=131072) / kv_request("llama-3.1-8b", tokens=2048) }} of 2K, because what counts is the product of the two.

# %% tags=["hide"]
claim(q.kv_request(MODEL, tokens=131072), 64 * q.kv_request(MODEL, tokens=2048))
claim(q.kv_request(MODEL, tokens=131072), 16 * GiB)
# %% [markdown]
# ## What an engine really leaves
#
# The count above took nothing off for the rest. An engine does. This is what our model of vLLM 0.33
# expects on the same card:

# %%
import kvreport

answer = kvreport.estimate(MODEL, gpu=GPU, context_tokens="2K")
budget = answer.budget

table(
    "Where the card's memory goes, in GiB, vLLM's defaults",
    ["part", "GiB"],
    [
        ["what a process finds", budget.total_bytes / GiB],
        ["left alone by the engine", budget.total_bytes * (1 - budget.utilization) / GiB],
        ["weights", budget.weights / GiB],
        ["intermediate results (estimate)", budget.activations / GiB],
        ["driver, buffers, recorded programs (estimate)", (budget.non_framework + budget.graphs) / GiB],
        ["left for the KV cache", budget.kv_pool_bytes / GiB],
    ],
)

# %% [markdown]
# That leaves {{ pool("llama-3.1-8b", "H100", tokens=2048) as GiB.1 }} for the cache, and
# {{ fits("llama-3.1-8b", "H100", tokens=2048) as conversations }} of 2K, or
# {{ fits("llama-3.1-8b", "H100", tokens=131072) as conversations }} of 128K. The weights and the cache are
# exact arithmetic; the reserve is an estimate with an error, and the model pages show the error too.
#
# ## Where this picture ends
#
# - It supposes that every conversation has the same length. Real ones differ, which helps:
#   [pages](08-pages.py) hand memory out as it is needed.
# - Not every model pays for every token. [Some forget on purpose](06-forgetting-on-purpose.py).
# - Memory is one limit. The other is time: [more users, slower tokens](09-prefill-and-decode.py).
#
# ## Exercises
#
# **1.** The 70B sister of this model has {{ 70.6 billion = parameters("llama-3.1-70b") }} parameters. At two
# bytes each, how many conversations of 4,096 tokens fit on one H100?

# %% tags=["hide"]
big = q.weights("llama-3.1-70b")
claim(big > q.memory(GPU), True)  # noqa: FBT003
fold(
    "Answer",
    f"None. The weights alone take {big / GiB:.1f} GiB, and the card has {q.memory(GPU) / GiB:.1f} GiB. There is no room "
    "for even one conversation. Two cards, or weights of one byte, are where the question begins.",
)

# %% [markdown]
# **2.** On an H200, sold as {{ 141 GB = label_memory("H200") }}, how many users of the 8B model can hold 128K
# tokens each, with the cache in 16 bits? And with a cache of 8 bits per number? Take off nothing but the weights.

# %% tags=["hide"]
room = q.memory("H200") - weights
full = room // q.kv_request(MODEL, tokens=131072)
half = room // q.kv_request(MODEL, "fp8", tokens=131072)
claim(full, 7)
claim(half, 15)
fold(
    "Answer",
    f"{full:.0f} with 16 bits and {half:.0f} with 8: halving the cache buys {half - full:.0f} more users. It more than doubles "
    "here only because the half conversation that was left over becomes a whole one.",
    table(
        "H200, 131,072 tokens each, weights taken off and nothing else",
        ["cache", "GiB per user", "users"],
        [
            ["16 bits", q.kv_request(MODEL, tokens=131072) / GiB, int(full)],
            ["8 bits", q.kv_request(MODEL, "fp8", tokens=131072) / GiB, int(half)],
        ],
    ),
)

# %% [markdown]
# **3.** A colleague says: "The model is 16 GB, the card is 80 GB, so we can run five of them." What is
# missing?

# %% tags=["hide"]
fold(
    "Answer",
    "The conversations. Five copies of the weights fill the card and leave nothing to talk with. One copy "
    f"and {(q.memory(GPU) - weights) / GiB:.0f} GiB of cache serve far more people than five copies and none.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Which part of the memory does not depend on how many people talk?</summary>
#
# The weights, and most of the rest. Only the cache grows with use.
#
# </details>
# <details class="kv-card"><summary>Which two things multiply in the cache?</summary>
#
# How many conversations, and how long each is.
#
# </details>
# <details class="kv-card"><summary>When is the cache larger than the weights?</summary>
#
# Sooner than one thinks. For this model: from {{ 122,533 tokens = ceil(weights("llama-3.1-8b") / kv_per_token("llama-3.1-8b")) }}, in one long
# conversation or spread over many short ones.
#
# </details>
#
# ## Read on
#
# - [The formula, one factor at a time](02-the-formula.py)
# - [Memory against batch, measured](../evidence/measured/index.md#e2), and
#   [where it really ends](../evidence/measured/index.md#e3)
# - [Llama 3.1 8B in all its combinations](../models/meta-llama--Llama-3.1-8B-Instruct/index.md)
# - "KV-Cache: The Hidden Tax", tutorial of mlsysim, from which the breakdown and the sweep of this chapter
#   are recomputed. It printed a cache {{ 4.47 × = 2 * layers("llama-3.1-8b") * sqrt(8.03 * 10**9 / (12 * layers("llama-3.1-8b"))) * 2 / kv_per_token("llama-3.1-8b") }}
#   as large: [the ledger says why](../evidence/claims/index.md#s1-b-kv).
