# %% [markdown]
# # One latent for all
#
# DeepSeek's models do not share keys and values. They do not keep them. They keep one short list of numbers per
# token and layer, from which every head's key and value can be made again: a **latent**. The method is called
# multi-head latent attention, **MLA**. It changes the formula, and it changes what a second GPU is worth.
#
# ## The question
#
# DeepSeek-V3 has {{ 128 heads = heads("deepseek-v3") }} and {{ 61 layers = layers("deepseek-v3") }}, more of both than
# most. How does one token of it cost less than one of Llama 3.1 8B?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>You split DeepSeek-V3 over eight GPUs. How much of the cache does each of them hold?</summary>
#
# All of it. {{ 70,272 bytes = kv_per_token("deepseek-v3", tp=8) }} per token on every one of the eight, the same as on one
# GPU: {{ 70,272 bytes = kv_per_token("deepseek-v3", tp=1) }}. Every head needs the whole latent, and the heads are what is
# split.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import bars, claim, curves, fold, formula, quantities, table

q = quantities()
V3 = "deepseek-v3"
GiB, KiB = 2**30, 2**10
claim(q.kv_per_token(V3), 70_272)
claim(q.layers(V3), 61)
claim(q.heads(V3), 128)
for ranks in (1, 2, 4, 8):
    claim(q.kv_per_token(V3, tp=ranks), 70_272)

# %% [markdown]
# ## The formula

# %% tags=["hide"]
formula(
    "bytes per token  =  layers × (latent + rotary part) × bytes per number",
    "DeepSeek-V3:        61 × (512 + 64) × 2  =  70,272",
)

# %% [markdown]
# There is no factor 2: the latent stands for keys and values at once. There is no number of heads: one latent serves
# all. The *rotary part* is the piece of the key that knows a token's position; it cannot be folded into the latent and
# lies beside it. In the configuration the two are `kv_lora_rank` and `qk_rope_head_dim`.
#
# ## The numbers put in

# %%
claim(61 * (512 + 64) * 2, q.kv_per_token(V3))

kept_in_full = 61 * 128 * ((128 + 64) + 128) * 2  # keys of 192 and values of 128, for each head
claim(kept_in_full, 4_997_120)

table(
    "One token of DeepSeek-V3 in 16 bits, counted in four ways",
    ["counted as", "bytes per token", "times the latent"],
    [
        ["one latent per layer (what engines keep)", q.kv_per_token(V3), 1.0],
        ["every head's key and value in full", kept_in_full, kept_in_full / 70272],
        [
            "128 KV heads of width 7168 / 128 = 56 (some calculators)",
            2 * 61 * 128 * 56 * 2,
            2 * 61 * 128 * 56 * 2 / 70272,
        ],
        [
            "8 shared KV heads of width 128 (as other large models)",
            2 * 61 * 8 * 128 * 2,
            2 * 61 * 8 * 128 * 2 / 70272,
        ],
    ],
)

# %% tags=["hide"]
claim(2 * 61 * 128 * 56 * 2, 1_748_992)
claim(1_748_992 / 70_272, 24.9, within=0.001)
# %% [markdown]
# The third line is what several published calculators print: they read the configuration as if it were a Llama's and
# are off by a factor of 25. "MLA compresses about ten times" is a safe thing to say only because it does not say
# compared with what: against its own heads it is seventy-one times, against a model that shares eight heads three and a
# half ([the ledger](../evidence/claims/index.md#s2-mla)).
#
# ## What a second GPU is worth
#
# With Llama, splitting the heads over two GPUs (**tensor parallelism**) halves the cache on each. A latent cannot be
# split by heads, so every GPU keeps a copy.

# %%
ranks = [1, 2, 4, 8, 16]
table(
    "Bytes per token on each GPU, and on all together, 16 bits",
    ["GPUs", "Llama 3.1 70B, each", "all", "DeepSeek-V3, each", "all"],
    [
        [
            n,
            q.kv_per_token("llama-3.1-70b", tp=n),
            n * q.kv_per_token("llama-3.1-70b", tp=n),
            q.kv_per_token(V3, tp=n),
            n * q.kv_per_token(V3, tp=n),
        ]
        for n in ranks
    ],
)

# %% tags=["hide"]
claim(q.kv_per_token("llama-3.1-70b", tp=8), 40_960)
claim(q.kv_per_token("llama-3.1-70b", tp=16), 40_960)
bars(
    "A hundred requests of 32K tokens on eight H200s, as each of them sees it: its share of the Llama's keys and values, and all of the latents.",
    {
        "Llama 3.1 70B": {
            "weights": ("weights, an eighth", q.weights("llama-3.1-70b", "fp8", tp=8)),
            "cache": ("100 requests of 32K", 100 * q.kv_request("llama-3.1-70b", tokens=32768, tp=8)),
        },
        "DeepSeek-V3": {
            "weights": ("weights, an eighth", q.weights(V3, tp=8)),
            "cache": ("100 requests of 32K", 100 * q.kv_request(V3, tokens=32768, tp=8)),
        },
    },
    limit_bytes=q.memory("H200"),
    limit_name="one H200",
)

# %% [markdown]
# At eight GPUs a token of the Llama costs each of them {{ 40,960 bytes = kv_per_token("llama-3.1-70b", tp=8) }}, less than
# DeepSeek's {{ 70,272 bytes = kv_per_token("deepseek-v3", tp=8) }}, though on one GPU it cost more than four times as much.
# That is why DeepSeek's models are served with the attention *not* split: each GPU takes whole requests of its own
# (**data parallelism**), so that the copies become different requests. [Beyond one GPU](11-beyond-one-gpu.py) compares
# the two.
#
# ## Eight bits
#
# The latent can be kept in FP8. A format made for it stores the compressed part in 8 bits with four scales, and the
# rotary part in 16: {{ 656 bytes = kv_per_token("deepseek-v3", "fp8_ds_mla") / layers("deepseek-v3") }} per layer instead of
# {{ 1,152 bytes = kv_per_token("deepseek-v3") / layers("deepseek-v3") }}; not half, but
# {{ 57 % = kv_per_token("deepseek-v3", "fp8_ds_mla") / kv_per_token("deepseek-v3") }}. An engine does not do this by itself:
# a checkpoint with 8-bit weights has a 16-bit cache until it or you say otherwise.

# %% tags=["hide"]
curves(
    "Tokens that 30 GiB of cache hold on each GPU, by the number of GPUs that share one model: splitting heads adds up, "
    "copying latents does not.",
    x=ranks,
    lines={
        "Llama 3.1 70B": [30 * GiB / q.kv_per_token("llama-3.1-70b", tp=n) / 1000 for n in ranks],
        "DeepSeek-V3": [30 * GiB / q.kv_per_token(V3, tp=n) / 1000 for n in ranks],
    },
    x_title="GPUs (tensor parallel)",
    y_title="thousand tokens",
    x_tokens=False,
)

# %% [markdown]
# ## Where this picture ends
#
# - An engine that has no code for MLA runs the model by making all keys and values and keeping them: the second line of
#   the first table, seventy times the memory.
# - Later models keep *index keys* beside the latent, by which they pick the tokens worth reading:
#   {{ 132 bytes = 128 + 4 }} a token and layer, in whatever format the cache is.
#
# ## Exercises
#
# **1.** Eight H200s, DeepSeek-V3 as released, all eight as one tensor-parallel group, requests of 32K tokens, 16-bit cache.
# Suppose 37 GiB are left for the cache on each. How many requests fit? And how many if somebody adds up the eight pools?

# %% tags=["hide"]
each = q.kv_request(V3, tokens=32768)
right, wrong = 37 * GiB // each, 8 * 37 * GiB // each
claim(right, 17)
fold(
    "Answer",
    f"{right:.0f}: one request takes {each / GiB:.2f} GiB on every GPU. Adding up the pools gives {wrong:.0f}, eight times too "
    "many, and a published planner did exactly that.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Why is there no factor 2 in MLA's formula?</summary>
#
# Keys and values are both made from the same latent; only that is kept.
#
# </details>
# <details class="kv-card"><summary>What does tensor parallelism do to the cache of an MLA model?</summary>
#
# Nothing. Every GPU holds all of it.
#
# </details>
#
# ## Read on
#
# - [Forgetting on purpose](06-forgetting-on-purpose.py)
# - [Latents, measured tensor by tensor](../evidence/measured/index.md#e1)
# - Try it: [DeepSeek-V3 beside Llama 3.1 70B](../compare/index.md?models=deepseek-ai--DeepSeek-V3&models=meta-llama--Llama-3.1-70B-Instruct)
# - [DeepSeek-V3](../models/deepseek-ai--DeepSeek-V3/index.md)
# - DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", section on MLA
