# %% [markdown]
# # MHA, GQA and MQA: sharing KV heads
#
# Many models have fewer KV heads than query heads, which makes the cache smaller. This chapter shows how much memory this saves
# and where to find the number of KV heads in a model's `config.json`.
#
# ## The same size, a quarter of the cache: why?
#
# Llama 2 7B and Llama 3 8B have about the same size and design, but one of them needs four times the cache of the other. Which
# line of the configuration makes the difference?

# %% tags=["hide"]
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    choose,
    claim,
    curves,
    drawings,
    exercise,
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
GiB, KiB = 2**30, 2**10
MODEL = "Qwen/Qwen2.5-7B-Instruct"
NAME = q.catalog.model(MODEL).name
q.kv_heads(MODEL)  # stops here if a model stores no keys and values per head
NAMES = {
    "Llama 2 7B": "llama-2-7b",
    "Llama 3 8B": "llama-3-8b",
    NAME: MODEL,
    "Mistral 7B v0.3": "mistral-7b-v0.3",
    "Qwen2.5 72B": "Qwen/Qwen2.5-72B",
    "Llama 3.1 70B": "llama-3.1-70b",
}
claim(q.kv_per_token("llama-2-7b"), 524_288)
claim(q.kv_per_token("llama-3-8b"), 131_072)
claim(q.kv_per_token("Qwen/Qwen2.5-72B"), 327_680)
claim(q.heads("llama-2-7b"), q.kv_heads("llama-2-7b"))

# %% tags=["hide"]
drawings.sharing(32, [("MHA", 32), ("GQA", 8), ("MQA", 1), ("MLA", 0)])

# %% tags=["hide"]
left = room(q, MODEL, "H100")
times = q.heads(MODEL) / q.kv_heads(MODEL)
state = q.state(MODEL)
shared = int(left // q.kv_request(MODEL, tokens=131072))
alone = int(left // (times * (q.kv_request(MODEL, tokens=131072) - state) + state))
claim(shared, 9)
claim(alone, 1)
guess(
    f"The query heads of {NAME} share KV heads. {shared} requests would fit on an H100 next to the weights if each had 128K tokens. How many would fit without "
    "sharing?",
    alone,
    unit="requests",
    low=0,
    high=100,
    why=f"{q.heads(MODEL)} query heads share {q.kv_heads(MODEL)} KV heads. Without sharing, keys and values are {times:g} times as "
    "large.",
)

# %% [markdown]
# ## How heads share keys and values
#
# Each head of a layer has its own query. Several heads can share one key and one value:
#
# - **MHA** (multi-head attention): every head has its own key and value. Llama 2 7B has
#   {{ 32 = heads("llama-2-7b") }} query heads and
#   {{ 32 = kv_heads("llama-2-7b") }} KV heads.
# - **GQA** (grouped-query attention): groups of heads share one key and one value. Llama 3 8B has
#   {{ 32 = heads("llama-3-8b") }} query heads and
#   {{ 8 = kv_heads("llama-3-8b") }} KV heads.
# - **MQA** (multi-query attention): all heads share one key and one value. The cache is the smallest, but the loss of quality is the
#   largest.
# - **MLA** (multi-head latent attention) stores one compressed vector, the latent, instead. See [the next chapter](05-one-latent-for-all.py).
#
# The number of KV heads is `num_key_value_heads` in the configuration. If it is missing, it equals `num_attention_heads`.

# %% [markdown]
# ## The saving depends on KV heads divided by heads

# %% tags=["hide"]
formula(
    "saving  =  1 − KV heads / heads",
    "of Llama 3 8B  =  1 − 8/32  =  75%",
    f"of {NAME}  =  1 − {q.kv_heads(MODEL)}/{q.heads(MODEL)}  =  {1 - 1 / times:.0%}",
)

# %% [markdown]
# ## Worked example: fewer KV heads, fewer bytes

# %%
rows = []
for name, model in NAMES.items():
    heads, kept, each = q.heads(model), q.kv_heads(model), q.kv_per_token(model)
    rows.append(
        [
            name,
            heads,
            kept,
            f"{heads / kept:g}×",
            each / KiB,
            each * 131072 / GiB,
            f"{1 - kept / heads:.0%}",
            each * heads / kept * 131072 / GiB,
        ]
    )

table(
    "What sharing saves, 16-bit cache",
    [
        "Model",
        "Heads",
        "KV heads",
        "Query heads per KV head",
        "KiB per token",
        "GiB at 128K",
        "Saved",
        "GiB at 128K without sharing",
    ],
    rows,
)

# %% tags=["hide"]
claim(q.kv_request("Qwen/Qwen2.5-72B", tokens=131072), 40 * GiB)
claim(8 * q.kv_request("Qwen/Qwen2.5-72B", tokens=131072), 320 * GiB)
guess(
    "Without sharing, how many H100s would the cache of one request of 128K to Qwen2.5 72B need?",
    -(-320 * GiB // q.memory("H100")),
    unit="GPUs",
    low=1,
    high=64,
    why=f"320 GiB divided by {q.memory('H100') / GiB:.1f} GiB, rounded up. Dividing 320 by 80 gives four, but a process cannot use all of the "
    "advertised memory.",
)

# %% tags=["hide"]
kept = [1, 2, 4, 8, 16, 32]
curves(
    "Number of requests of 8K tokens that fit in 60 GiB, for a model with 32 layers, 32 query heads of width 128, and 1 to 32 KV heads.",
    x=kept,
    lines={
        "requests": [
            int(60 * GiB // q.kv_bytes(layers=32, kv_heads=n, head_dim=128, tokens=8192)) for n in kept
        ]
    },
    x_title="KV heads (32: MHA; 8: Llama 3; 1: MQA)",
    y_title="Concurrent requests of 8K tokens",
    y_log=True,
    x_tokens=False,
)

# %% tags=["hide"]
instrument(
    Instrument(
        "Share the heads of a model with 32 layers, 32 query heads and head dim 128",
        (
            Slider("heads", "KV heads", (1, 2, 4, 8, 16, 32), 5),
            Slider("tokens", "Tokens in each request", tuple(2**n for n in range(11, 18)), 2, "tokens"),
            Slider("bytes", "Bytes per cached number", (1, 2), 1),
        ),
        (
            Output("group", "Query heads per KV head", "ratio", (32, "heads")),
            Output("token", "One token", "attention_token_bytes", (32, "heads", 128, "bytes"), "KiB.0"),
            Output("request", "One request", "product", ("token", "tokens"), "GiB.2"),
            Output("fit", "Requests in 60 GiB", "whole_number", ("room", "request")),
            Output("eight", "", "product", ("request", 16)),
            Output(
                "state",
                "Sixteen of them in 60 GiB",
                "memory_state",
                ("eight", "room"),
                "words:fit|out of memory",
            ),
        ),
        {"room": 60 * GiB},
        goals=(
            Goal("With 32 KV heads, make requests so long that sixteen do not fit.", "state", 1),
            Goal("Make the sixteen requests fit by changing only the KV heads.", "state", 0),
        ),
        rows=((5, 2, 1), (3, 2, 1), (3, 2, 0), (0, 2, 1), (5, 6, 1), (3, 6, 1)),
    )
)

# %% [markdown]
# ## A worked example without sharing
#
# A published lesson runs Llama 2 7B on an 80 GB GPU. A token takes {{ 524,288 bytes = kv_per_token("llama-2-7b") }}, half a MiB. A
# request of
# 4,096 tokens takes {{ 2 GiB = kv_request("llama-2-7b", tokens=4096) }}, and eight take
# {{ 16 GiB = 8 * kv_request("llama-2-7b", tokens=4096) }}. The lesson reserves 14 GiB for the weights. That
# leaves {{ 66 GiB = (80 - 14) * GiB }} of the memory, enough for
# {{ 33 requests = floor((80 - 14) * GiB / kv_request("llama-2-7b", tokens=4096)) }}. With the real
# size of the weights, {{ 12.55 GiB = weights("llama-2-7b") }}, the answer is also 33.

# %% tags=["hide"]
claim((80 - 14) * GiB // q.kv_request("llama-2-7b", tokens=4096), 33)
claim((80 * GiB - q.weights("llama-2-7b")) // q.kv_request("llama-2-7b", tokens=4096), 33)
choose(
    "Two methods reduce the cache per token: GQA and an FP8 cache. Llama 3 8B uses both, and Llama 2 7B uses neither. By what factor is the "
    "cache per token of Llama 3 8B smaller?",
    wrong("4 times", "This is GQA alone."),
    wrong("6 times", "The two factors multiply."),
    right(
        "8 times",
        f"{q.kv_per_token('llama-2-7b') / q.kv_per_token('llama-3-8b', 'fp8'):g} = 4 (heads) × 2 (bytes per number).",
    ),
)

# %% tags=["hide"]
takeaway(
    "Look for `num_key_value_heads`. Without this line, a model stores every head, and its cache is several times as large."
)

# %% [markdown]
# ## Limitations
#
# - The number of KV heads is part of the model. You cannot change it.
# - Sharing reduces the quality of the answers slightly.
# - Tensor parallelism divides KV heads among GPUs. If there are more GPUs than KV heads, heads are copied: see
#   [Beyond one GPU](11-beyond-one-gpu.py).
#
# ## Exercises

# %% tags=["hide"]
wide = q.kv_bytes(layers=28, kv_heads=16, head_dim=128)
true = q.kv_bytes(layers=28, kv_heads=4, head_dim=128)
claim(wide, 224 * KiB)
claim(true, 56 * KiB)
exercise(
    "**1.** A model has 28 layers, 16 heads, 4 KV heads, a head dim of 128 and a 16-bit cache. How many KiB does a token take?",
    true / KiB,
    unit="KiB",
    within=0,
    solution="2 × 28 × 4 × 128 × 2 bytes. A calculator that prints 224 KiB used all 16 heads. Its result is too high by a factor "
    f"of {wide / true:g}.",
    traps={
        224.0: "You used all 16 heads. Only the 4 KV heads are stored.",
        28.0: "One factor of 2 is missing.",
    },
)

# %% tags=["hide"]
small = int((q.memory("H200") - q.weights("llama-2-7b")) // q.kv_request("llama-2-7b", tokens=32768))
large = int(
    (q.memory("H200") - q.weights("llama-3.1-70b", "fp8")) // q.kv_request("llama-3.1-70b", tokens=32768)
)
claim(small, 7)
claim(large, 7)
exercise(
    f"**2.** On an H200, Llama 2 7B would have room for {small} requests of 32K tokens if its context were that long. How "
    "many fit for Llama "
    "3.1 70B with 8-bit weights and a 16-bit cache? Subtract only the weights.",
    large,
    unit="requests",
    within=0,
    solution=f"The same number fits, although the model is ten times as large. A token of the small model takes "
    f"{q.kv_per_token('llama-2-7b') / KiB:g} KiB, a token of the large one {q.kv_per_token('llama-3.1-70b') / KiB:g} KiB.",
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
quiz(
    item(
        "Which line of the configuration determines the size of the cache?",
        wrong("`num_attention_heads`", "Many calculators make this mistake. Query heads are not stored."),
        right("`num_key_value_heads`", "If it is missing, all attention heads are stored."),
        wrong(
            "`hidden_size`",
            "Some models set `head_dim` separately, so hidden size divided by heads can be wrong.",
        ),
    ),
    item(
        "Interview question: why choose GQA instead of always running smaller batches?",
        right(
            "It makes every token cheaper and keeps throughput",
            "With a smaller batch, the GPU reads the weights for fewer tokens.",
        ),
        wrong(
            "It makes the weights smaller, and that is its purpose",
            "The weights shrink a little, but the purpose is a smaller cache.",
        ),
        wrong(
            "Serving should process one request at a time",
            "One request uses only a fraction of the GPU. Sharing heads lets more requests run at once.",
        ),
    ),
    item(
        "A model has 64 heads and 8 KV heads. By what factor does GQA shrink its cache?",
        wrong("2", "A factor of 2 would need 32 KV heads."),
        right("8", "64 / 8: eight query heads share one key and value."),
        wrong("56", "The factor is the quotient of the two numbers, not their difference."),
    ),
)

# %% [markdown]
# ## Next
#
# - [MLA: one latent for all heads](05-one-latent-for-all.py)
# - Ainslie et al., ["GQA: Training Generalized Multi-Query Transformer Models"](https://arxiv.org/abs/2305.13245)
# - [Measured: the same model with 32 KV heads, and with fewer](../evidence/measured/index.md#e4)
# - Try it:
#   [Llama 2 7B next to Llama 3 8B](../compare/index.md?models=meta-llama--Llama-2-7b-hf&models=meta-llama--Meta-Llama-3-8B-Instruct)
