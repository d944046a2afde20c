# %% [markdown]
# # Sharing heads
#
# Of all the factors in the formula, the number of KV heads is the one that model makers have cut the most. This
# chapter shows by how much, what would happen without it, and how to read it in a model's configuration.
#
# ## The question
#
# Llama 2 7B and Llama 3 8B are of the same size and build. One of them needs four times the cache of the other. Which
# line in their configuration makes the difference?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>How many users with 128K tokens would fit on an H100 if Qwen2.5 7B did not share its heads?</summary>
#
# {{ 1 user = floor((memory("H100") - weights("Qwen/Qwen2.5-7B")) / kv_bytes(layers=28, kv_heads=28, head_dim=128, tokens=131072)) }},
# instead of {{ 9 users = floor((memory("H100") - weights("Qwen/Qwen2.5-7B")) / kv_request("Qwen/Qwen2.5-7B", tokens=131072)) }}.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import claim, curves, fold, formula, quantities, table

q = quantities()
GiB, KiB = 2**30, 2**10
NAMES = {
    "Llama 2 7B": "llama-2-7b",
    "Llama 3 8B": "llama-3-8b",
    "Qwen2.5 7B": "Qwen/Qwen2.5-7B",
    "Mistral 7B v0.3": "mistral-7b-v0.3",
    "Qwen2.5 72B": "Qwen/Qwen2.5-72B",
    "Llama 3.1 70B": "llama-3.1-70b",
}
claim(q.kv_per_token("llama-2-7b"), 524_288)
claim(q.kv_per_token("llama-3-8b"), 131_072)
claim(q.kv_per_token("Qwen/Qwen2.5-72B"), 327_680)
claim(q.heads("llama-2-7b"), q.kv_heads("llama-2-7b"))
# %% [markdown]
# ## Three ways to share
#
# Every layer runs several look-ups at once, the *heads*. Each asks with a query of its own. What it asks can be
# shared:
#
# - **MHA**, multi-head attention: every head has its own key and value. Llama 2 7B: {{ 32 heads = heads("llama-2-7b") }}
#   that ask, {{ 32 heads = kv_heads("llama-2-7b") }} that are kept.
# - **GQA**, grouped-query attention: groups of heads share one key and one value. Llama 3 8B:
#   {{ 32 heads = heads("llama-3-8b") }} ask, {{ 8 heads = kv_heads("llama-3-8b") }} are kept, four share each.
# - **MQA**, multi-query attention: all heads share a single one. The smallest cache, and the quality suffers most.
#
# The line in the configuration is `num_key_value_heads`. Where it is missing, it equals `num_attention_heads`.
#
# ## The formula

# %% tags=["hide"]
formula(
    "saving  =  1 − KV heads / heads",
    "Llama 3 8B:   1 − 8/32  =  75 %        Qwen2.5 7B:   1 − 4/28  =  86 %",
)

# %% [markdown]
# ## The numbers put in

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
        "model",
        "heads",
        "KV heads",
        "shared by",
        "KiB per token",
        "GiB at 128K",
        "saved",
        "GiB at 128K without sharing",
    ],
    rows,
)

# %% tags=["hide"]
claim(q.kv_request("Qwen/Qwen2.5-72B", tokens=131072), 40 * GiB)
claim(8 * q.kv_request("Qwen/Qwen2.5-72B", tokens=131072), 320 * GiB)
# %% [markdown]
# Without sharing, one request of 128K to the 72B model would hold
# {{ 320 GiB = kv_request("Qwen/Qwen2.5-72B", tokens=131072) * heads("Qwen/Qwen2.5-72B") / kv_heads("Qwen/Qwen2.5-72B") }}.
# How many H100s is that? {{ 5 GPUs = ceil(320 * GiB / memory("H100")) }}, for the cache of one user, and no weights yet.
# (Dividing 320 by 80 gives four. A card that is sold as 80 GB gives a process
# {{ 79.1 GiB = memory("H100") }}.)
#
# ## The figure

# %% tags=["hide"]
kept = [1, 2, 4, 8, 16, 32]
curves(
    "A model with 32 layers and 32 heads of width 128, as if it were built with every number of KV heads: users of 8K "
    "tokens in 60 GiB of cache.",
    x=kept,
    lines={
        "users": [int(60 * GiB // q.kv_bytes(layers=32, kv_heads=n, head_dim=128, tokens=8192)) for n in kept]
    },
    x_title="KV heads (32: nobody shares; 8: Llama 3; 1: all share)",
    y_title="users of 8K tokens",
    y_log=True,
    x_tokens=False,
)

# %% [markdown]
# ## A worked example without sharing
#
# Llama 2 7B on an 80 GB card. A token costs {{ 524,288 bytes = kv_per_token("llama-2-7b") }}, half a MiB; a request of
# 4,096 tokens {{ 2 GiB = kv_request("llama-2-7b", tokens=4096) }}; eight of them
# {{ 16 GiB = 8 * kv_request("llama-2-7b", tokens=4096) }}. Set 14 GiB aside for the weights, as the lesson does from
# which this example comes: {{ 66 GiB = (80 - 14) * GiB }} of eighty are left and hold
# {{ 33 requests = floor((80 - 14) * GiB / kv_request("llama-2-7b", tokens=4096)) }}. The weights are really
# {{ 12.55 GiB = weights("llama-2-7b") }}; it is still 33.

# %% tags=["hide"]
claim((80 - 14) * GiB // q.kv_request("llama-2-7b", tokens=4096), 33)
claim((80 * GiB - q.weights("llama-2-7b")) // q.kv_request("llama-2-7b", tokens=4096), 33)
# %% [markdown]
# ## Where this picture ends
#
# - Sharing changes the model: it is decided before training. As a user you choose it by choosing the model.
# - "It does not affect quality" is too strong. Makers accept a small loss, because the memory buys more than it costs.
# - Splitting a model over several GPUs divides KV heads among them, until each has one. Beyond that they are copied:
#   [Beyond one GPU](11-beyond-one-gpu.py).
# - One kind of model does not fit into this table at all: [one latent for all](05-one-latent-for-all.py).
#
# ## Exercises
#
# **1.** A calculator gives 224 KiB per token for a model with 28 layers, 16 heads, 4 KV heads, head dim 128, 16 bits.
# What did it do?

# %% tags=["hide"]
wrong = q.kv_bytes(layers=28, kv_heads=16, head_dim=128)
right = q.kv_bytes(layers=28, kv_heads=4, head_dim=128)
claim(wrong, 224 * KiB)
claim(right, 56 * KiB)
fold(
    "Answer",
    f"It used all 16 heads. With the 4 KV heads it is {right / KiB:g} KiB: a factor of {wrong / right:g}, which is how many heads share one.",
)

# %% [markdown]
# **2.** Which serves more users of 32K tokens on an H200: Llama 2 7B, if it could read that far, or Llama 3.1 70B with
# weights of 8 bits? Take off the weights and nothing else.

# %% tags=["hide"]
small = (q.memory("H200") - q.weights("llama-2-7b")) // q.kv_request("llama-2-7b", tokens=32768)
large = (q.memory("H200") - q.weights("llama-3.1-70b", "fp8")) // q.kv_request("llama-3.1-70b", tokens=32768)
claim(small, 7)
claim(large, 7)
fold(
    "Answer",
    f"{small:.0f} and {large:.0f}: the same, though one model is ten times the other. A token of the small one "
    f"costs {q.kv_per_token('llama-2-7b') / KiB:g} KiB, a token of the large one {q.kv_per_token('llama-3.1-70b') / KiB:g}.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Which line of the configuration counts for the cache, and what if it is missing?</summary>
#
# `num_key_value_heads`; without it, as many as `num_attention_heads`.
#
# </details>
# <details class="kv-card"><summary>MHA, GQA, MQA: what is shared in each?</summary>
#
# Nothing; a key and value per group; one for all.
#
# </details>
#
# ## Read on
#
# - [One latent for all](05-one-latent-for-all.py)
# - [The same model with 32 KV heads down to one, measured](../evidence/measured/index.md#e4)
# - Try it: [Llama 2 7B beside Llama 3 8B](../compare/index.md?models=meta-llama--Llama-2-7b-hf&models=meta-llama--Meta-Llama-3-8B-Instruct)
