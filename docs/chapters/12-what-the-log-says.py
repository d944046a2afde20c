# %% [markdown]
# # What an engine's log is telling you
#
# At its start, an engine prints a few lines about memory. They answer this book's question for your machine. This chapter takes
# them from real logs and computes every figure in them.
#
# ## The question
#
# A log says `GPU KV cache size: 184,832 tokens` and `Maximum concurrency for 16,000 tokens per request: 11.55x`. Do twelve users crash
# the server?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>Is "maximum concurrency" a limit, a promise or a measurement?</summary>
#
# None of the three. It is a division: how many requests of the *longest* length would fill the cache. Shorter requests need less, so more
# of them run; longer ones are refused. The thirteenth waits in line, and nothing crashes.
#
# </details>

# %% tags=["hide"]
from math import ceil, floor

from kvreport.book.chapter import claim, fold, formula, quantities, table

q = quantities()
GiB, KiB = 2**30, 2**10
claim(q.kv_bytes(layers=40, kv_heads=8, head_dim=128), 163_840)
claim(q.kv_per_token("Qwen/Qwen2.5-7B", tp=2), 28_672)
# %% [markdown]
# ## The lines
#
# A log of vLLM 0.11 with Mistral Small 3.2, a model of 24 billion parameters, on an H100 (published with its flags; memory share 0.95, longest
# request 16,000 tokens) gives these sizes:
#
# | what | GiB |
# | --- | --- |
# | memory of the GPU, as the process finds it | 79.18 |
# | model weights | 44.76 |
# | peak of intermediate results (activations) | 2.12 |
# | outside of the framework (driver, communication) | 0.14 |
# | available for the KV cache | 28.20 |
#
# ## The formula

# %% tags=["hide"]
formula(
    "available for the cache  =  memory × share  −  weights  −  activations  −  outside",
    "tokens                   =  available / bytes per token, in whole blocks",
    "maximum concurrency      =  tokens / longest request",
)

# %% [markdown]
# ## The numbers put in

# %%
available = 79.18 * 0.95 - 44.76 - 2.12 - 0.14
claim(available, 28.20, within=0.001)

per_token = q.kv_bytes(layers=40, kv_heads=8, head_dim=128)  # this model: 40 layers, 8 KV heads of 128
tokens = 184_832
claim(tokens * per_token / GiB, 28.20, within=0.001)
claim(tokens % 16, 0)
claim(tokens / 16_000, 11.552)

table(
    "The log's figures, recomputed",
    ["line", "the log says", "recomputed"],
    [
        ["available for the cache, GiB", "28.20", f"{available:.2f}"],
        ["tokens × bytes per token, GiB", "28.20", f"{tokens * per_token / GiB:.2f}"],
        ["tokens, in blocks of 16", "184,832", f"{tokens // 16:,} × 16 = {tokens:,}"],
        ["maximum concurrency at 16,000 tokens", "11.55x", f"{tokens / 16_000:.2f}x"],
    ],
)

# %% [markdown]
# All of it follows. And something else can be read off. Whoever sets the share to 0.90 instead of 0.95 has
# {{ 4 GiB = 0.05 * 79.18 * GiB }} less, and all of it is taken from the cache:

# %%
table(
    "What the share does: it is the cache alone that pays",
    ["share of the memory", "for the cache, GiB", "tokens", "requests of 16,000"],
    [
        [
            f"{share:.2f}",
            room := 79.18 * share - 44.76 - 2.12 - 0.14,
            floor(room * GiB / per_token / 16) * 16,
            room * GiB / per_token / 16_000,
        ]
        for share in (0.80, 0.85, 0.90, 0.95)
    ],
)

# %% [markdown]
# ## Two GPUs
#
# Another log: Qwen2 7B (built like Qwen2.5 7B) over two A100s, half of the memory, longest request 16,384.
# It prints `Available KV cache memory: 31.83 GiB`, `1,192,160 tokens` and `72.76x`.
# The GiB are *per GPU*, the tokens are *in all*:

# %%
claim(1_192_160 * q.kv_per_token("Qwen/Qwen2.5-7B", tp=2) / GiB, 31.83, within=0.001)
claim(1_192_160 / 16_384, 72.76, within=0.0001)
table(
    "Where two GPUs confuse",
    ["", "bytes per token", "for 1,192,160 tokens, GiB"],
    [
        [
            "on each of the two",
            q.kv_per_token("Qwen/Qwen2.5-7B", tp=2),
            1_192_160 * q.kv_per_token("Qwen/Qwen2.5-7B", tp=2) / GiB,
        ],
        ["together", q.kv_per_token("Qwen/Qwen2.5-7B"), 1_192_160 * q.kv_per_token("Qwen/Qwen2.5-7B") / GiB],
    ],
)

# %% [markdown]
# So "only" that much on two cards is a misreading: it is that much on each.
#
# ## A hybrid
#
# Now a log that looks broken. Qwen3.5 9B on an L40S, longest request 262,144: `165,792 tokens`, `2.52x`. But 165,792 / 262,144 is 0.63, not
# 2.52. Four times off, and both figures are right. The model has a [state](06-forgetting-on-purpose.py) in three of four layers; the engine
# sorts its layers into four groups of one size and gives every group blocks from one store. In that version it printed the tokens as if
# every block belonged to all four groups:

# %%
claim(165_792 / 262_144 * 4, 2.52, within=0.005)
claim(165_792 % 528, 0)
table(
    "Reading a hybrid's log (vLLM 0.19)",
    ["", ""],
    [
        ["tokens per block, chosen so that a state fits into a block", 528],
        ["blocks, counted per group", 165_792 // 528],
        ["blocks in all, four groups", 4 * 165_792 // 528],
        ["one request of 262,144 tokens: blocks of the full-attention group", ceil(262_144 / 528)],
        ["and, of each of three state groups, a few", "1 to 3"],
        ["requests", f"{4 * 165_792 // 528 / (ceil(262_144 / 528) + 3):.2f}"],
    ],
)

# %% tags=["hide"]
claim(4 * 165_792 // 528 / (ceil(262_144 / 528) + 3), 2.52, within=0.004)
# %% [markdown]
# Newer versions print concurrency × longest request instead, which is consistent and still no rate: change the longest request and the
# "size in tokens" changes with it. For such models, ask for requests at *your* lengths. [Every model page](../models/index.md) has them.
#
# ## What else the lines mean
#
# - **"To serve at least one request with the model's max seq len … KV cache is needed, which is larger than the available"**: one request
#   of the longest length does not fit. Lower the longest length (`--max-model-len`), raise the share, or use a smaller cache type. The
#   model pages give the longest length that fits.
# - **Preemption** warnings: pages ran out while requests grew ([Pages](08-pages.py)).
# - **Nearly all memory in use on an idle server**: reserved, not needed. An engine takes its share at the start and manages it by itself.
#
# ## Where this picture ends
#
# Activations depend on how many tokens the engine handles in a step and on its version; CUDA graphs are taken off the cache since vLLM 0.21
# and were not before. Our estimates carry an error for these terms, [and say how large it is](../about/method.md).
#
# ## Exercises
#
# **1.** A log: 61.2 GiB available, Llama 3.1 8B on one GPU, longest request 131,072. Which two figures does it print?

# %% tags=["hide"]
room = 61.2 * GiB
blocks = floor(room / (16 * q.kv_per_token("llama-3.1-8b")))
claim(blocks * 16, 501_344)
fold(
    "Answer",
    f"{blocks * 16:,} tokens and {blocks * 16 / 131_072:.2f}x: 61.2 GiB / 128 KiB, down to whole blocks of 16.",
)

# %% [markdown]
# **2.** The same server will get requests of 5,000 tokens. How many run at once?

# %% tags=["hide"]
each = ceil(5000 / 16)
claim(blocks // each, 100)
fold(
    "Answer",
    f"{blocks // each}: each takes {each} blocks of {blocks:,}. Far more than the printed 3.83, which is for the longest.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>"Available KV cache memory": per GPU or in all?</summary>
#
# Per GPU. The tokens beneath it are in all.
#
# </details>
# <details class="kv-card"><summary>What is divided by what in "maximum concurrency"?</summary>
#
# The tokens that the cache holds, by the longest request allowed.
#
# </details>
#
# ## Read on
#
# - [Paste a log of your own](../log/index.md), and see each figure recomputed
# - [Questions](../questions/index.md), most of them about such lines
# - Start-up logs that our estimates are held against: [evidence](../evidence/claims/index.md)
