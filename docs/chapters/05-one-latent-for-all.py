# %% [markdown]
# # MLA: one latent for all heads
#
# DeepSeek's models store one short list of numbers per token and layer, the **latent**. They reconstruct the key and value of every
# head from the latent. This method is called multi-head latent attention, **MLA**. MLA needs a different cache formula, and a second
# GPU helps less.
#
# ## How can more heads need less cache?
#
# DeepSeek-V3 has {{ 128 heads = heads("deepseek-v3") }} and {{ 61 layers = layers("deepseek-v3") }}, more than most models have.
# Why does one of its tokens take less cache than a token of Llama 3.1 8B?

# %% tags=["hide"]
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    bars,
    choose,
    claim,
    curves,
    drawings,
    exercise,
    fold,
    formula,
    guess,
    instrument,
    item,
    quantities,
    quiz,
    requires,
    right,
    table,
    takeaway,
    wrong,
)
from kvreport.catalog.caches import Latent

q = quantities()
MODEL = "deepseek-v3"
GiB, KiB = 2**30, 2**10
record = q.catalog.model(MODEL)
NAME, layers, heads, hidden = record.name, q.growing_layers(MODEL), q.heads(MODEL), q.hidden(MODEL)
latents = [cache for group in record.layers for cache in group.caches if isinstance(cache, Latent)]
requires(len(latents), MODEL, "latent")
latent, rotary = latents[0].latent_dim, latents[0].rope_dim
rebuilt = sum(row.shape[0] for row in record.weights if row.name.endswith(".*.self_attn.kv_b_proj.weight"))
requires(rebuilt, MODEL, "matrix that reconstructs keys and values")
one = layers * (latent + rotary) * 2  # a token's latents
claim(q.kv_per_token(MODEL), one)
claim(one, 70_272)
claim(layers, 61)
claim(heads, 128)
for ranks in (1, 2, 4, 8):
    claim(q.kv_per_token(MODEL, tp=ranks), 70_272)

# %% tags=["hide"]
drawings.sharing(32, [("GQA", 8), ("MLA", 0)])

# %% tags=["hide"]
full = (
    layers * (rebuilt + heads * rotary) * 2
)  # keys of 128 + 64 and values of 128, for each head of DeepSeek-V3
claim(full, 4_997_120)
guess(
    f"How many times as large would the cache of {NAME} be if it stored every head's key and value in full?",
    full / one,
    unit="times",
    low=1,
    high=10_000,
    digits=0,
    step="any",
    why=f"{full:,} bytes per token instead of {one:,}.",
)

# %% [markdown]
# ## The number of heads is not in the formula

# %% tags=["hide"]
formula(
    "bytes per token  =  layers × (latent + rotary part) × bytes per number",
    f"of {NAME}  =  {layers} × ({latent} + {rotary}) × 2  =  {one:,}",
)

# %% [markdown]
# Other cache formulas have a factor of 2 for a key and a value. Here, one latent replaces both, and the 2 is the bytes per number. The number of heads is not in the formula, because
# all heads use the same latent. The *rotary part* of the key encodes a token's position and is stored next to the latent. In
# `config.json`, `kv_lora_rank` is the size of the latent, and `qk_rope_head_dim` is the size of the rotary part.

# %% [markdown]
# ## Worked example: one latent versus all heads

# %%
table(
    f"One token of {NAME} in 16 bits, counted in four ways",
    ["Counted as", "Bytes per token", "Times the latent"],
    [
        ["one latent per layer (what engines store)", one, 1.0],
        ["every head's key and value in full", full, full / one],
        [
            f"{heads} KV heads of width {hidden} / {heads} = {hidden / heads:g} (some calculators)",
            2 * layers * hidden * 2,
            2 * layers * hidden * 2 / one,
        ],
        [
            "8 shared KV heads of width 128 (as in other large models)",
            2 * layers * 8 * 128 * 2,
            2 * layers * 8 * 128 * 2 / one,
        ],
    ],
)

# %% tags=["hide"]
claim(2 * layers * hidden * 2, 1_748_992)
claim(1_748_992 / one, 24.9, within=0.001)

# %% [markdown]
# Several published calculators give the result in the third row, which is wrong by a factor of 25. They use the formula for Llama
# models. A common claim is that "MLA compresses about ten times". In fact, the factor is 71 compared with all heads of the same
# model, and 3.6 compared with a model with eight KV heads (see [the ledger](../evidence/claims/index.md#s2-mla)).
#
# ## How much a second GPU helps
#
# **Tensor parallelism** divides the heads of each layer among GPUs. For a Llama model on two GPUs, each GPU holds half of the
# cache.

# %% tags=["hide"]
choose(
    f"You split {NAME} over eight GPUs with tensor parallelism. How much of the cache does each GPU hold?",
    wrong("An eighth", "This answer is right only for models whose KV heads can be divided."),
    wrong(
        "None: one GPU holds the cache for all",
        "Every GPU computes attention for its own heads and needs the cache to do so.",
    ),
    right(
        "All of it",
        f"{q.kv_per_token(MODEL, tp=8):,.0f} bytes per token on each of the eight. Every head needs the whole latent.",
    ),
)

# %%
ranks = [1, 2, 4, 8, 16]
table(
    "Bytes per token on each GPU, and on all together, 16 bits",
    ["GPUs", "Llama 3.1 70B, each", "All", f"{NAME}, each", "All"],
    [
        [
            n,
            q.kv_per_token("llama-3.1-70b", tp=n),
            n * q.kv_per_token("llama-3.1-70b", tp=n),
            q.kv_per_token(MODEL, tp=n),
            n * q.kv_per_token(MODEL, tp=n),
        ]
        for n in ranks
    ],
)

# %% tags=["hide"]
claim(q.kv_per_token("llama-3.1-70b", tp=8), 40_960)
claim(q.kv_per_token("llama-3.1-70b", tp=16), 40_960)
bars(
    "Memory needed on each of eight H200s for 100 requests of 32K tokens. Each GPU stores a share of Llama's keys and values, "
    f"but all latents of {NAME}.",
    {
        "Llama 3.1 70B": {
            "weights": ("FP8 weights, an eighth", q.weights("llama-3.1-70b", "fp8", tp=8)),
            "cache": ("100 requests of 32K", 100 * q.kv_request("llama-3.1-70b", tokens=32768, tp=8)),
        },
        NAME: {
            "weights": ("weights as released, an eighth", q.weights(MODEL, tp=8)),
            "cache": ("100 requests of 32K", 100 * q.kv_request(MODEL, tokens=32768, tp=8)),
        },
    },
    limit_bytes=q.memory("H200"),
    limit_name="one H200",
    label="Model",
)

# %% [markdown]
# On eight GPUs, a token of Llama 3.1 70B takes {{ 40,960 bytes = kv_per_token("llama-3.1-70b", tp=8) }} on each GPU, and a token of
# DeepSeek-V3 takes {{ 70,272 bytes = kv_per_token("deepseek-v3", tp=8) }}. To avoid copies, many servers run DeepSeek's models
# with **data-parallel attention**: each GPU serves its own requests.
# [Beyond one GPU](11-beyond-one-gpu.py) compares the layouts.

# %% tags=["hide"]
instrument(
    Instrument(
        "Split a GQA model and an MLA model over GPUs with tensor parallelism",
        (
            Slider("ranks", "GPUs (tensor parallel)", (1, 2, 4, 8, 16), 0),
            Slider("tokens", "Tokens in each request", (2048, 8192, 32768, 131072), 2, "tokens"),
        ),
        (
            Output("heads", "KV heads of Llama 3.1 70B on each GPU", "divided_heads", (8, "ranks")),
            Output("token", "", "attention_token_bytes", (80, "heads", 128, 2)),
            Output("llama", "Llama: cache of one request, per GPU", "product", ("token", "tokens"), "GiB.2"),
            Output("latent", "", "latent_token_bytes", (layers, latent, rotary, 2)),
            Output(
                "same", f"{NAME}: cache of one request, per GPU", "product", ("latent", "tokens"), "GiB.2"
            ),
            Output("copies", f"{NAME}: all copies of it", "product", ("same", "ranks"), "GiB.2"),
        ),
        {},
        rows=((0, 2), (1, 2), (2, 2), (3, 2), (4, 2)),
    )
)

# %% tags=["hide"]
curves(
    "Tokens that fit in 30 GiB of cache on each GPU, by number of GPUs that share one model. Dividing heads adds capacity, "
    "but copying latents does not.",
    x=ranks,
    lines={
        "Llama 3.1 70B": [30 * GiB / q.kv_per_token("llama-3.1-70b", tp=n) / 1000 for n in ranks],
        NAME: [30 * GiB / q.kv_per_token(MODEL, tp=n) / 1000 for n in ranks],
    },
    x_title="GPUs (tensor parallel)",
    y_title="KV pool (thousand tokens)",
    x_tokens=False,
)

# %% [markdown]
# ## Eight bits
#
# One FP8 format for latents stores the compressed part in 8 bits with four scales, and the rotary part in 16 bits. The format takes {{ 656 bytes = kv_per_token("deepseek-v3", "fp8_ds_mla") / layers("deepseek-v3") }} per token and layer instead
# of
# {{ 1,152 bytes = kv_per_token("deepseek-v3") / layers("deepseek-v3") }}.

# %% tags=["hide"]
guess(
    "In this FP8 format, the latent cache is what percentage of its 16-bit size?",
    100 * q.kv_per_token(MODEL, "fp8_ds_mla") / q.kv_per_token(MODEL),
    unit="%",
    low=1,
    high=100,
    why="More than half, because the rotary part keeps 16 bits, and the scales need space. Engines do not choose this "
    "format automatically.",
)

# %% tags=["hide"]
takeaway(
    "A latent is small, but tensor parallelism copies it to every GPU. For MLA models, count requests per data-parallel "
    "rank, and do not add up the pools of the GPUs."
)

# %% [markdown]
# ## Limitations
#
# - An engine without support for MLA stores all keys and values, which takes seventy times the memory (the second row of the
#   first table).
# - Later models with sparse attention also store *index keys*. They take {{ 132 bytes = 128 + 4 }}
#   per token and layer in every cache format.
#
# ## Exercises

# %% tags=["hide"]
each = q.kv_request(MODEL, tokens=32768)
fit, summed = int(37 * GiB // each), int(8 * 37 * GiB // each)
claim(fit, 17)
exercise(
    f"**1.** Eight H200s run {NAME} as one tensor-parallel group with a 16-bit cache and requests of 32K tokens. Each "
    "GPU has 37 GiB for "
    "the cache. How many requests fit?",
    fit,
    unit="requests",
    within=0,
    solution=f"One request takes {each / GiB:.2f} GiB on every GPU.",
    traps={
        float(
            summed
        ): "This result adds up the eight pools, as a published planner did. But the pools contain copies of the same requests."
    },
)

# %% tags=["hide"]
ratio = q.kv_per_token("llama-3.1-8b") / q.kv_per_token(MODEL)
exercise(
    f"**2.** On one GPU with a 16-bit cache, Llama 3.1 8B takes more cache per token than {NAME}. By what factor?",
    ratio,
    unit="times",
    solution=f"{q.kv_per_token('llama-3.1-8b'):,.0f} / {q.kv_per_token(MODEL):,.0f}. The smaller model takes more cache per token.",
    digits=2,
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: what does MLA store, and why does a second GPU not shrink the cache?",
    "MLA stores one latent per token and layer. All heads reconstruct their keys and values from it. Tensor parallelism "
    "divides heads. A latent has no heads, so every GPU stores all of it.",
)

# %% tags=["hide"]
quiz(
    item(
        "Why does the MLA formula have no factor of 2?",
        wrong(
            "Values are not needed", "Values are needed. They are reconstructed from the latent, as keys are."
        ),
        right(
            "Keys and values are both reconstructed from one latent",
            "Only the latent and the rotary part are stored.",
        ),
        wrong(
            "The latent is stored in 8 bits",
            "The number of bits changes the bytes per number, not this factor.",
        ),
    ),
    item(
        "What does tensor parallelism do to the cache of an MLA model?",
        wrong(
            "It divides the cache by the number of GPUs",
            "Heads can be divided among GPUs, but a latent cannot.",
        ),
        right(
            "Nothing: every GPU holds all of it",
            "Data-parallel attention and decode context parallelism avoid the copies.",
        ),
        wrong("It doubles the cache of each GPU", "The cache of each GPU stays the same."),
    ),
    item(
        "Someone says: “MLA compresses ten times.” What do you ask?",
        right(
            "Compared with what?",
            f"The factor is {full / one:.0f} compared with all heads of the same model, and "
            f"{2 * layers * 8 * 128 * 2 / one:.1f} compared with eight shared heads.",
        ),
        wrong("At which context length?", "The factor is the same at every length."),
        wrong(
            "On which GPU?",
            "A latent takes the same number of bytes on every GPU, except in formats designed for a particular kernel.",
        ),
    ),
)

# %% [markdown]
# ## Next
#
# - [Sliding windows and hybrid models](06-forgetting-on-purpose.py)
# - [TP or DP attention for an MLA model?](../questions/mla-tp-or-dp.md)
# - [Latents, measured tensor by tensor](../evidence/measured/index.md#e1)
# - Try it:
#   [DeepSeek-V3 next to Llama 3.1 70B](../compare/index.md?models=deepseek-ai--DeepSeek-V3&models=meta-llama--Llama-3.1-70B-Instruct)
# - [DeepSeek-V3](../models/deepseek-ai--DeepSeek-V3/index.md)
# - DeepSeek-AI,
#   ["DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model"](https://arxiv.org/abs/2405.04434), section on MLA
