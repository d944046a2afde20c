# %% [markdown]
# # Reading vLLM, SGLang and llama.cpp start-up logs: KV cache size and maximum concurrency
#
# At start-up, an engine prints a few lines about memory. These lines show how many requests fit on your machine. This chapter
# takes lines from real logs and recomputes every figure in them.
#
# ## Do twelve users crash the server?
#
# A log says `GPU KV cache size: 184,832 tokens` and `Maximum concurrency for 16,000 tokens per request: 11.55x`. Twelve
# people want to use the server.

# %% tags=["hide"]
from math import ceil, floor

import kvreport
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    bars,
    choose,
    claim,
    exercise,
    fold,
    formula,
    guess,
    instrument,
    item,
    listing,
    quantities,
    quiz,
    requires,
    right,
    room,
    table,
    takeaway,
    wrong,
)

q = quantities()
GiB, KiB, MiB = 2**30, 2**10, 2**20
MODEL = "llama-3.1-8b"
NAME = q.catalog.model(MODEL).name
room(q, MODEL, "H100")  # stops here where another model is too large
requires(q.kv_per_token(MODEL), MODEL, "KV cache")
LOGGED = "Qwen/Qwen2.5-7B"  # the dimensions of a model whose log is read below
claim(q.kv_bytes(layers=40, kv_heads=8, head_dim=128), 163_840)
claim(q.kv_per_token(LOGGED, tp=2), 28_672)

# %% tags=["hide"]
choose(
    "Is “maximum concurrency” a limit, a guarantee or a measurement?",
    wrong(
        "A limit: the twelfth request is refused",
        "Shorter requests need less memory, so more than twelve may run at once.",
    ),
    wrong(
        "A measurement of the server's throughput",
        "Nothing is measured. The engine prints the line before the first request.",
    ),
    right(
        "None of the three: it is a division",
        "The line shows how many requests of the **maximum** length fill the cache. If a request finds no room, it waits, "
        "and nothing crashes.",
    ),
)

# %% [markdown]
# ## The lines of vLLM
#
# The first log comes from vLLM 0.11 with Mistral Small 3.2, a model of 24 billion parameters, on an H100. Its flags were
# also published: a memory share of 0.95 and a maximum length (`--max-model-len`) of 16,000 tokens. The log gives these sizes:
#
# | Size | GiB |
# | --- | --- |
# | memory of the GPU, usable by the process | 79.18 |
# | model weights | 44.76 |
# | peak activations | 2.12 |
# | non-torch memory (driver, communication) | 0.14 |
# | available KV cache memory | 28.20 |

# %% tags=["hide"]
bars(
    "The published start-up: parts of the memory share of 0.95.",
    {
        "H100": {
            "weights": ("weights", 44.76 * GiB),
            "reserve": ("activations, non-torch", 2.26 * GiB),
            "cache": ("KV cache", 28.20 * GiB),
            "free": ("outside the share", 0.05 * 79.18 * GiB),
        }
    },
    limit_bytes=79.18 * 0.95 * GiB,
    limit_name="0.95",
    label="GPU",
)

# %% [markdown]
# ## From memory to tokens to requests

# %% tags=["hide"]
formula(
    "available for the cache  =  memory × share  −  weights  −  activations  −  non-torch",
    "tokens                   =  available / bytes per token, in whole blocks",
    "maximum concurrency      =  tokens / maximum length",
)

# %% [markdown]
# ## Worked example: the log's figures from the formula

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
    ["Line", "The log says", "Recomputed"],
    [
        ["available for the cache, GiB", "28.20", f"{available:.2f}"],
        ["tokens × bytes per token, GiB", "28.20", f"{tokens * per_token / GiB:.2f}"],
        ["tokens, in blocks of 16", "184,832", f"{tokens // 16:,} × 16 = {tokens:,}"],
        ["maximum concurrency at 16,000 tokens", "11.55x", f"{tokens / 16_000:.2f}x"],
    ],
)


# %% tags=["hide"]
def available_at(share: float) -> float:
    """GiB for the cache at a memory share, all else as in the log."""
    return 79.18 * share - 44.76 - 2.12 - 0.14


guess(
    "If you lower the share from 0.95 to 0.90, what percentage of the cache is lost?",
    100 * (1 - available_at(0.90) / available_at(0.95)),
    unit="%",
    low=0,
    high=100,
    why=f"The change removes {0.05 * 79.18:.1f} GiB, all of it from the cache. Weights and activations stay the same.",
)

# %%
table(
    "A lower memory share (--gpu-memory-utilization) shrinks only the cache. Computed from rounded GiB, so 0.95 gives one block less than the log",
    ["Share of the memory", "For the cache, GiB", "Tokens", "Requests of 16,000"],
    [
        [
            f"{share:.2f}",
            available_at(share),
            floor(available_at(share) * GiB / per_token / 16) * 16,
            available_at(share) * GiB / per_token / 16_000,
        ]
        for share in (0.80, 0.85, 0.90, 0.95)
    ],
)

# %% [markdown]
# ## The lines of vLLM 0.33, SGLang and llama.cpp
#
# The current releases of three engines print the following lines. The numbers are our predictions for Llama 3.1 8B.

# %% tags=["hide"]
vllm = kvreport.estimate(MODEL, gpu="H100", context_tokens="16K")
sglang = kvreport.estimate(MODEL, gpu="H100", engine="sglang", context_tokens="16K")
cpp = kvreport.estimate(
    MODEL, gpu="rtx-4090", engine="llama-cpp", weights="q4_k_m", context_tokens="32K", parallel=1
)
cells = cpp.to_dict()["kv_cache_bytes"] / MiB
half = sglang.kv_pool_tokens * q.kv_per_token(MODEL) / 2 / GiB
claim(cells, 4096)
listing(
    f"vLLM 0.33, {NAME}, H100, --max-model-len 16384",
    f"  Available KV cache memory: {vllm.budget.kv_pool_bytes / GiB:.2f} GiB",
    f"  GPU KV cache size: {vllm.kv_pool_tokens:,} tokens",
    f"  Maximum concurrency for 16,384 tokens per request: {vllm.max_concurrency:.2f}x",
    "",
    "SGLang 0.5.23, H100",
    f"  KV Cache is allocated. #tokens: {sglang.kv_pool_tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB",
    "",
    "llama.cpp, RTX 4090, Q4_K_M, -c 32768 -np 1",
    f"  llama_kv_cache: size = {cells:.2f} MiB ( 32768 cells,  {q.growing_layers(MODEL)} layers,  1/1 seqs),",
    f"                  K (f16): {cells / 2:.2f} MiB, V (f16): {cells / 2:.2f} MiB",
)

# %% [markdown]
# The engines count different things:
#
# - **vLLM** prints GiB per GPU, but tokens for all GPUs that share one copy of the model. Since 0.20.1, the printed tokens are
#   maximum concurrency × maximum length.
# - **SGLang** writes GB but means GiB, and prints no concurrency. `max_total_num_tokens` is the pool, and `max_running_requests` is
#   the scheduler's limit.
# - **llama.cpp** allocates cells for the context that you set (`-c`). The slots (`-np`) share these cells. The remaining memory
#   of the GPU stays free.
#
# ## Two GPUs
#
# Another log shows Qwen2 7B (with the same dimensions as Qwen2.5 7B) on two A100s, with a memory share of 0.5 and a maximum
# length of 16,384. It prints
# `Available KV cache memory: 31.83 GiB`, `1,192,160 tokens` and `72.76x`.

# %% tags=["hide"]
guess(
    "How many GiB of cache do the two GPUs have together?",
    1_192_160 * q.kv_per_token(LOGGED) / GiB,
    unit="GiB",
    low=0,
    high=1000,
    digits=1,
    step="any",
    why="The GiB figure is **per GPU**. The token count covers **both GPUs**. “Only 31.83 GiB on two GPUs” is a misreading.",
)

# %%
claim(1_192_160 * q.kv_per_token(LOGGED, tp=2) / GiB, 31.83, within=0.001)
claim(1_192_160 / 16_384, 72.76, within=0.0001)
table(
    "Per GPU or in total?",
    ["Where", "Bytes per token", "For 1,192,160 tokens, GiB"],
    [
        ["on each of the two", q.kv_per_token(LOGGED, tp=2), 1_192_160 * q.kv_per_token(LOGGED, tp=2) / GiB],
        ["together", q.kv_per_token(LOGGED), 1_192_160 * q.kv_per_token(LOGGED) / GiB],
    ],
)

# %% [markdown]
# ## A hybrid model
#
# The log of a hybrid model can look wrong. For Qwen3.5 9B on an L40S with a maximum length of 262,144, it prints
# `165,792 tokens` and `2.52x`. But 165,792 / 262,144 is 0.63, not 2.52. The two numbers differ by a factor of four, but both
# are correct. In this model, three of every four layers keep a [state](06-forgetting-on-purpose.py) of constant size instead of keys
# and values. The engine sorts the layers into four groups of the same size, and every group takes blocks from one pool. vLLM
# 0.19 printed the tokens of one group only, a quarter of the blocks:

# %%
claim(165_792 / 262_144 * 4, 2.52, within=0.005)
claim(165_792 % 528, 0)
table(
    "Reading a hybrid's log (vLLM 0.19)",
    ["Step", "Value"],
    [
        ["tokens per block, chosen so that a state fits into a block", 528],
        ["blocks, counted per group", 165_792 // 528],
        ["blocks in all, four groups", 4 * 165_792 // 528],
        ["one request of 262,144 tokens: blocks of the full-attention group", ceil(262_144 / 528)],
        ["one request: blocks of the three state groups together", "1 to 3"],
        ["requests", f"{4 * 165_792 // 528 / (ceil(262_144 / 528) + 3):.2f}"],
    ],
)

# %% tags=["hide"]
claim(4 * 165_792 // 528 / (ceil(262_144 / 528) + 3), 2.52, within=0.004)
instrument(
    Instrument(
        f"From a log's lines to your own lengths ({NAME}, blocks of 16)",
        (
            Slider(
                "gib", "Available KV cache memory (GiB)", (5, 10, 20, 30, 40, 54, 61, 80, 120), 5, "count"
            ),
            Slider(
                "longest", "Maximum length (tokens)", (4096, 8192, 16384, 32768, 65536, 131072), 5, "tokens"
            ),
            Slider("tokens", "Your requests (tokens)", (500, 1000, 2000, 5000, 10_000, 30_000), 3),
        ),
        (
            Output("pool", "", "product", ("gib", GiB)),
            Output("blocks", "Blocks", "whole_number", ("pool", 16 * q.kv_per_token(MODEL))),
            Output("size", "GPU KV cache size (tokens)", "product", ("blocks", 16)),
            Output("printed", "Maximum concurrency, as printed", "ratio", ("size", "longest"), "×.2"),
            Output("held", "", "reserved_tokens", ("tokens", 16)),
            Output("own", "Requests of your length", "whole_number", ("size", "held")),
        ),
        {},
        rows=((5, 5, 3), (5, 2, 3), (5, 5, 1), (2, 5, 3), (7, 5, 3)),
    )
)

# %% [markdown]
# Newer releases print concurrency × maximum length instead. This number agrees with the printed concurrency, but it changes if
# you change the maximum length. For hybrid models, look at the number of requests of *your* length instead.
# [Every model page](../models/index.md) shows it.
#
# ## Messages and what they mean
#
# - **"… KV cache is needed, which is larger than the available KV cache memory"**: one request of the maximum length does not fit.
#   Lower `--max-model-len`, raise the share, or use a smaller KV format.
# - **"max_num_seqs (1024) exceeds available Mamba cache blocks"**: a hybrid needs one block for the states of every sequence. Lower
#   `--max-num-seqs` (see [max_num_seqs and state slots](../questions/state-slots.md)).
# - **Preemption** warnings: the pool ran out of blocks while requests grew ([PagedAttention](08-pages.py)).
# - **Nearly all memory in use on an idle server**: the memory is reserved but not in use. An engine takes its share at start-up.
# - **A low "GPU KV cache usage"** under load: your requests are far shorter than the maximum length.

# %% tags=["hide"]
takeaway(
    "The log gives GiB per GPU, tokens for all GPUs, and concurrency for requests of the maximum length. Divide the tokens by the length of "
    "your requests to get the number that fits."
)

# %% [markdown]
# ## Limitations
#
# Activations depend on the tokens of a step and on the release. Since vLLM 0.20, CUDA graphs are subtracted from the cache.
# Our estimates of these terms [state their error](../about/method.md).
#
# ## Exercises

# %% tags=["hide"]
blocks = floor(61.2 * GiB / (16 * q.kv_per_token(MODEL)))
claim(blocks * 16, 501_344)
exercise(
    f"**1.** A log shows 61.2 GiB available for {NAME} on one GPU with a maximum length of 131,072 tokens. What maximum "
    "concurrency does it print?",
    blocks * 16 / 131_072,
    unit="×",
    digits=2,
    within=0.01,
    solution=f"61.2 GiB / {q.kv_per_token(MODEL) / KiB:g} KiB, rounded down to whole blocks of 16, gives {blocks * 16:,} tokens. Divide this number by 131,072.",
    traps={float(blocks * 16): "This is the number of tokens. Divide it by the maximum length."},
)

# %% tags=["hide"]
each = ceil(5000 / 16)
claim(blocks // each, 100)
exercise(
    "**2.** The same server gets requests of 5,000 tokens. How many run at once?",
    blocks // each,
    unit="requests",
    within=0,
    solution=f"Each request takes {each} of {blocks:,} blocks. The result is far more than the printed {blocks * 16 / 131_072:.2f}, "
    "which is for requests of the maximum length.",
    traps={float(blocks * 16 // 131_072): "This is the number of requests of 131,072 tokens."},
)

# %% tags=["hide"]
fold(
    "3. The log shows a cache usage of 0.2 to 0.5%. Is the server too large?",
    "Not for that reason alone. With a pool of "
    f"{43 * GiB / q.kv_per_token('qwen3.6-27b', 'fp8') / 1e6:.1f} million tokens (43 GiB, Qwen3.6 27B, FP8), 0.5% is "
    f"{0.005 * 43 * GiB / q.kv_per_token('qwen3.6-27b', 'fp8'):,.0f} tokens, one or two short requests in flight. Check "
    "the usage at the peak.",
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: what do you check first in a start-up log?",
    "Divide the available cache memory by the tokens that the engine prints. For a model with full attention, the quotient is the "
    "number of bytes per token. If it differs from the result of the formula, a format or a layout is not what you expect.",
)

# %% tags=["hide"]
quiz(
    item(
        "“Available KV cache memory”: per GPU or in total?",
        right(
            "Per GPU",
            "The line prints the memory of one GPU. The number of tokens in the next line holds for all GPUs together.",
        ),
        wrong("In total", "This reading is the origin of complaints such as “only 31 GiB on two GPUs”."),
        wrong("Per request", "The figure is the whole pool of one GPU."),
    ),
    item(
        "How is “maximum concurrency” computed?",
        wrong(
            "Memory divided by weights", "The weights are already subtracted from the memory for the cache."
        ),
        right(
            "Tokens in the cache divided by the maximum length",
            "The maximum length is the worst case. Most requests are shorter, so more of them fit.",
        ),
        wrong(
            "Requests per second times latency",
            "The engine computes the figure at start-up and measures nothing.",
        ),
    ),
    item(
        "nvidia-smi shows 72 of 80 GB in use by an idle server. Why?",
        wrong(
            "A memory leak", "The memory in use is constant: the engine reserved it before the first request."
        ),
        right(
            "The engine reserved its share at start-up", "Reserved memory is not the same as memory in use."
        ),
        wrong(
            "The model is that large",
            "The weights are only a part of this memory. The remainder is the empty pool.",
        ),
    ),
)

# %% [markdown]
# ## Next
#
# - [Paste your own log](../log/index.md) to see each figure recomputed
# - [Questions](../questions/index.md), including many about log lines
# - [Start-up logs compared with our estimates](../evidence/index.md)
