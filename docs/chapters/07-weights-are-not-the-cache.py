# %% [markdown]
# # Weights are not the cache
#
# A model in 4 bits is a quarter of the file. It is tempting to think that everything is a quarter now. The cache does not
# know how the weights are stored.
#
# ## The question
#
# Llama 3.1 8B with 4-bit weights runs on a card of {{ 24 GB = label_memory("rtx-4090") }} and has room to spare. How much
# smaller did its cache become?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>4-bit weights: the cache of one request is now …?</summary>
#
# What it was: {{ 131,072 bytes = kv_per_token("llama-3.1-8b") }} a token. Keys and values are *results*, made while the model
# runs. They are stored in the type that the engine is told to use, which is 16 bits unless somebody says otherwise.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import bars, claim, fold, formula, quantities, table

q = quantities()
MODEL = "llama-3.1-8b"
GiB, KiB = 2**30, 2**10
claim(q.weights(MODEL), 16_060_522_496)
claim(q.parameters(MODEL), 8_030_261_248)
claim(q.kv_per_token(MODEL, "fp8"), 65_536)
claim(q.kv_per_token(MODEL), 131_072)
# %% [markdown]
# ## The formula
#
# Two bills, two formats:

# %% tags=["hide"]
formula(
    "weights  =  parameters × bits of the weight format / 8   (+ scales, + what stays at 16 bits)",
    "cache    =  2 × layers × KV heads × head dim × bits of the KV format / 8   × tokens × requests",
)

# %% [markdown]
# ## The numbers put in: weights
#
# A format rarely covers a whole model. The table that turns words into numbers (the *embedding*) and the one that turns
# numbers back into words (the *output head*) usually stay at 16 bits, and every block of small numbers carries a *scale*
# by which they are multiplied. So half the bits are a little more than half the bytes:

# %%
formats = ["bf16", "fp8", "int4", "nvfp4"]
table(
    "Weights of Llama 3.1 8B",
    ["format", "GiB", "of 16 bits", "bits per parameter, all told"],
    [
        [
            f,
            q.weights(MODEL, f) / GiB,
            f"{q.weights(MODEL, f) / q.weights(MODEL, 'bf16'):.1%}",
            8 * q.weights(MODEL, f) / q.parameters(MODEL),
        ]
        for f in formats
    ],
)

# %% tags=["hide"]
assert q.weights(MODEL, "fp8") > q.parameters(MODEL)
assert q.weights(MODEL, "int4") > q.parameters(MODEL) / 2

# %% [markdown]
# ## The numbers put in: cache

# %%
table(
    "Cache of Llama 3.1 8B: which weight format, which KV format",
    ["weights", "cache in bf16, KiB per token", "cache in fp8, KiB per token"],
    [[f, q.kv_per_token(MODEL, "bf16") / KiB, q.kv_per_token(MODEL, "fp8") / KiB] for f in formats],
)

# %% [markdown]
# The lines are alike; that is the point of the table. Only the column changes the cache.
#
# ## What it means for users

# %%
cards = {"RTX 4090": "rtx-4090", "H100": "H100"}
rows = []
for name, gpu in cards.items():
    for weights in ("bf16", "int4"):
        for kv in ("bf16", "fp8"):
            room = q.memory(gpu) - q.weights(MODEL, weights)
            rows.append(
                [
                    f"{name}, weights {weights}, cache {kv}",
                    room / GiB,
                    int(max(room, 0) // q.kv_request(MODEL, kv, tokens=8192)),
                ]
            )
users_of = {row[0]: row[2] for row in rows}
table("Requests of 8K tokens, weights taken off and nothing else", ["", "left, GiB", "requests"], rows)

# %% [markdown]
# On the small card either change about doubles the users. On the large one only the cache's format does; the weights'
# adds a few. Ask which of the two bills is the larger before you choose what to compress.

# %% tags=["hide"]
small, large = (users_of[f"{name}, weights bf16, cache bf16"] for name in cards)
assert 1.8 < users_of["RTX 4090, weights int4, cache bf16"] / small < 2.5
assert 1.8 < users_of["RTX 4090, weights bf16, cache fp8"] / small < 2.5
assert users_of["H100, weights int4, cache bf16"] / large < 1.2
assert 1.9 < users_of["H100, weights bf16, cache fp8"] / large < 2.1

# %% tags=["hide"]
bars(
    "Llama 3.1 8B on an RTX 4090 with four requests of 16K tokens: smaller weights make room, and leave the cache as it was.",
    {
        "16-bit, 16-bit": {
            "weights": ("weights", q.weights(MODEL, "bf16")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, tokens=16384)),
        },
        "4-bit, 16-bit": {
            "weights": ("weights", q.weights(MODEL, "int4")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, tokens=16384)),
        },
        "4-bit, 8-bit": {
            "weights": ("weights", q.weights(MODEL, "int4")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, "fp8", tokens=16384)),
        },
    },
    limit_bytes=q.memory("rtx-4090"),
    limit_name="what a process finds",
)

# %% [markdown]
# ## Where this picture ends
#
# - Not every card multiplies in every format. A card without 8-bit units stores in 8 bits and computes in 16.
# - Formats with a scale for every few numbers cost more than their bits: a 4-bit cache with one scale per 16 numbers takes
#   {{ 4.5 bits = (16 * 4 + 8) / 16 / 8 }} a number.
# - An 8-bit cache costs a little quality, more on some models than on others, and some engines keep a few layers at 16 bits
#   for that reason. We count bytes; somebody has to measure the answers.
#
# ## Exercises
#
# **1.** A colleague shows a start-up that failed: Llama 3.1 70B with 8-bit weights on one H100. "But 70 billion parameters at
# one byte are 70 GB, and the card has 80." What went wrong?

# %% tags=["hide"]
need = q.weights("llama-3.1-70b", "fp8")
room = q.memory("H100") - need
fold(
    "Answer",
    f"The weights take {need / GiB:.1f} GiB, of {q.memory('H100') / GiB:.1f} GiB that a process finds. {room / GiB:.1f} GiB are "
    "left, before the engine has kept anything for itself: intermediate results and its safety margin (it takes 92 % of the "
    "memory by default) need more than that. Weights that fit are not a model that serves.",
)

# %% [markdown]
# **2.** Which change gives more users of 32K tokens to Llama 3.1 70B on two H200s: weights from 16 to 8 bits, or the cache from
# 16 to 8?


# %% tags=["hide"]
def users(weights: str, kv: str) -> int:
    """Whole requests of 32K tokens on two H200s, weights taken off and nothing else."""
    left = q.memory("H200") - q.weights("llama-3.1-70b", weights, tp=2)
    return int(left // q.kv_request("llama-3.1-70b", kv, tokens=32768, tp=2))


before, weights8, cache8, both = (
    users("bf16", "bf16"),
    users("fp8", "bf16"),
    users("bf16", "fp8"),
    users("fp8", "fp8"),
)
assert before < weights8 < both
assert before < cache8 < both
fold(
    "Answer",
    f"{before} with neither. Smaller weights: {weights8}. A smaller cache: {cache8}. Both: {both}. The second halves what each "
    "user needs, the first adds to what they share; whichever is larger to begin with wins.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Why can a quantised model run out of memory while it writes?</summary>
#
# Its cache is as large as ever, and grows with traffic.
#
# </details>
# <details class="kv-card"><summary>Does a checkpoint in FP8 have a cache in FP8?</summary>
#
# Only if its configuration says so, or you do. Otherwise 16 bits.
#
# </details>
#
# ## Read on
#
# - [Pages](08-pages.py)
# - [What does a quantised cache really buy?](../questions/quantised-cache.md)
