# %% [markdown]
# # The formula, one factor at a time
#
# The memory that a conversation takes is a product of a handful of whole numbers. All of them but one
# stand in a small public file that comes with every model. This chapter reads them, multiplies them, and
# ends with the table that people buy hardware by: how many requests fit, at which length.
#
# A **request** is one question that is being answered, with everything said before it. We use the word
# from here on instead of "conversation", because that is what engines count.
#
# ## The question
#
# Qwen2.5 7B on one H100: how many requests fit at 2K, 8K, 32K and 128K tokens each? And can you say it
# with nothing but a pencil?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>How many bytes does one more token cost: a hundred, a few thousand, or tens of thousands?</summary>
#
# {{ 57,344 bytes = kv_per_token("qwen2.5-7b") }}, some ten thousand times the letters that it stands for. You
# will have derived it by the end of the next section.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import claim, curves, fold, formula, quantities, table

q = quantities()
MODEL, GPU = "Qwen/Qwen2.5-7B", "H100"
GiB = 2**30

claim(q.layers(MODEL), 28)
claim(q.kv_heads(MODEL), 4)
claim(q.heads(MODEL), 28)
claim(q.head_dim(MODEL), 128)
claim(q.parameters(MODEL), 7_615_616_512)
claim(q.memory(GPU), 84_943_715_697, within=0.002)
# %% [markdown]
# ## The formula

# %% tags=["hide"]
formula(
    "bytes per token  =  2 × layers × KV heads × head dim × bytes per number",
    "cache            =  bytes per token × tokens × requests",
)

# %% [markdown]
# The first line belongs to the model. The second belongs to you: it is what your users do. Now each
# factor by itself.
#
# **2: a key and a value.** To find out which earlier words matter, the model compares a *query* (what the
# new token looks for) with every earlier token's *key* (what that token offers). Then it mixes the *values*
# (what those tokens contribute) of the ones that matched. Queries are used once and forgotten. Keys and
# values are needed again at every later token, so both are kept.
#
# **Layers.** A model is a stack of like-built storeys, and a token passes through all of them. Each looks
# back with its own keys and values, so each keeps its own. Qwen2.5 7B has {{ 28 layers = layers("qwen2.5-7b") }}.
#
# **KV heads.** Within a layer, several look-ups run side by side, called *heads*: one may follow who is
# speaking, another which bracket is open. Each has a query of its own, but several can share one key and
# one value. The number of *different* keys, the KV heads, is what counts: here
# {{ 4 heads = kv_heads("qwen2.5-7b") }} for {{ 28 heads = heads("qwen2.5-7b") }} that ask. More on this in
# [Sharing heads](04-sharing-heads.py).
#
# **Head dim.** Each key is a list of numbers, and each value too. Here they are
# {{ 128 numbers = head_dim("qwen2.5-7b") }} long.
#
# **Bytes per number.** Sixteen bits are {{ 2 bytes = 16 / 8 }}. Eight bits are one.
#
# **Tokens.** Everything that the request has read and written so far, the instructions at the beginning
# included.
#
# **Requests.** All that are in flight at the same moment. Each has its own cache.
#
# ## The numbers put in

# %% tags=["hide"]
formula(
    "2 × 28 layers × 4 KV heads × 128 × 2 bytes  =  57,344 bytes per token",
    "57,344 × 131,072 tokens                     =  7,516,192,768 bytes, 7 GiB for one request of 128K",
)

# %%
by_hand = 2 * 28 * 4 * 128 * 2
claim(by_hand, 57_344)
claim(q.kv_per_token(MODEL), by_hand)
claim(by_hand * 131_072, 7 * GiB)

sizes = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]
table(
    "Cache of one request of Qwen2.5 7B, 16 bits: twice the tokens, twice the bytes",
    ["tokens", "bytes", "MiB"],
    [[f"{n:,}", q.kv_request(MODEL, tokens=n), q.kv_request(MODEL, tokens=n) / 2**20] for n in sizes],
)

# %% [markdown]
# Caches that were read off a real GPU for this model agree at every length that was tried, from
# {{ 7 MiB = kv_request("qwen2.5-7b", tokens=128) }} at 128 tokens to
# {{ 896 MiB = kv_request("qwen2.5-7b", tokens=16384) }} at 16,384 (published measurements, see *Read on*).
# There is nothing to estimate here. It is a count.

# %% tags=["hide"]
MiB = 2**20
for tokens, mib in ((128, 7), (1024, 56), (4096, 224), (16384, 896)):
    claim(q.kv_request(MODEL, tokens=tokens), mib * MiB)

# %% [markdown]
# ## The capacity table
#
# What is left after the weights, divided by the cache of one request, rounded down. The weights are
# {{ 7,615,616,512 parameters = parameters("qwen2.5-7b") }} of {{ 2 bytes = 16 / 8 }},
# {{ 14.19 GiB = weights("qwen2.5-7b") }}; the H100 has {{ 79.11 GiB = memory("H100") }} for a process.
#
# "What is left" has more than one answer, and the difference is where published tables part:

# %%
contexts = [2048, 8192, 32768, 131072]
left = q.memory(GPU) - q.weights(MODEL)

everything = [left // q.kv_request(MODEL, tokens=n) for n in contexts]
share = [int(0.85 * left // q.kv_request(MODEL, tokens=n)) for n in contexts]
engine = [q.fits(MODEL, GPU, tokens=n) for n in contexts]

table(
    "Requests of Qwen2.5 7B, 16 bits, on one H100",
    ["what the cache may use", "2K", "8K", "32K", "128K"],
    [
        ["everything that the weights leave", *everything],
        ["85 % of that", *share],
        ["what vLLM would leave (our estimate)", *engine],
    ],
    mark=2,
)

# %% tags=["hide"]
assert share == [504, 126, 31, 7], share
assert everything == [593, 148, 37, 9], everything
assert all(low < high for low, high in zip(engine, everything, strict=True))

# %% [markdown]
# The middle row is a table that is passed around as measured: 504, 126, 31, 7. It is this formula with a
# factor of 0.85, and [the ledger shows it](../evidence/claims/index.md#s5-e3-2048). The factor is not
# foolish. Something does have to stay free. But an engine does not leave a share of what the weights leave; it
# measures its own needs, and the answer depends on the model, the settings and the version.
# [The last chapter](12-what-the-log-says.py) reads them off a start-up log.
#
# ## The figure

# %% tags=["hide"]
names = ["everything", "85 %", "vLLM"]
wide = [1024 * 2**k for k in range(8)]
pools = [left, 0.85 * left, q.pool(MODEL, GPU, tokens=8192)]
curves(
    "Requests that fit, by the length of each: both axes double from line to line, so a straight line down means "
    "that length and number trade one for one.",
    x=wide,
    lines={
        name: [max(int(pool // q.kv_request(MODEL, tokens=n)), 1) for n in wide]
        for name, pool in zip(names, pools, strict=True)
    },
    x_title="tokens in each request",
    y_title="requests",
    y_log=True,
)

# %% [markdown]
# ## Where this formula ends
#
# It is exact for models whose layers all attend to everything in the same way: Llama, Qwen2.5, Mistral since
# version 0.2. It is wrong, sometimes by a factor of four or of twenty-five, for models that
# [compress](05-one-latent-for-all.py) what they keep or [forget](06-forgetting-on-purpose.py) some of it.
# And it counts what a request *needs*; an engine hands memory out [in pages](08-pages.py), and rounds up.
#
# ## Exercises
#
# **1.** A model with 32 layers, 8 KV heads, head dim 128, 16 bits: how many bytes per token?

# %% tags=["hide"]
claim(q.kv_bytes(layers=32, kv_heads=8, head_dim=128), 131_072)
fold(
    "Answer",
    "2 × 32 × 8 × 128 × 2 = 131,072 bytes, which is 128 KiB (not 128 KB: that would be 128,000 bytes).",
)

# %% [markdown]
# **2.** The same model, 4,096 tokens, four requests at once: how many GiB? Then double only the number of
# requests. Which factor of the formula changed, and by how much did the memory?

# %% tags=["hide"]
four = q.kv_bytes(layers=32, kv_heads=8, head_dim=128, tokens=4096, requests=4)
eight = q.kv_bytes(layers=32, kv_heads=8, head_dim=128, tokens=4096, requests=8)
claim(four, 2_147_483_648)
claim(eight - four, four)
fold(
    "Answer",
    f"{four:,} bytes, {four / GiB:g} GiB. With eight requests {eight:,} bytes, {eight / GiB:g} GiB. Only the last factor "
    f"changed; the memory grew by {(eight - four) / GiB:g} GiB, as much as there was.",
)

# %% [markdown]
# **3.** Write the formula from memory. Box the two factors that your users decide, underline the one that the
# maker of the model could most easily have chosen smaller, and put a question mark at the one that a flag of the
# engine changes.

# %% tags=["hide"]
fold(
    "Answer",
    formula("2 × layers × [KV heads, underlined] × head dim × bytes per number (?) × [tokens] × [requests]"),
    "Tokens and requests are your users'. KV heads are the maker's cheapest choice. Bytes per number follow the "
    "engine's setting for the cache (kv-cache-dtype), whatever the weights are stored in.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Say the formula for the bytes of one token.</summary>
#
# Two, times layers, times KV heads, times head dim, times bytes per number.
#
# </details>
# <details class="kv-card"><summary>Why the two?</summary>
#
# A key, to be found by, and a value, to contribute. Queries are not kept.
#
# </details>
# <details class="kv-card"><summary>Which number do people put in by mistake, and how wrong is it then?</summary>
#
# All heads instead of KV heads. For Qwen2.5 7B that is {{ 7 times = heads("qwen2.5-7b") / kv_heads("qwen2.5-7b") }}
# too much.
#
# </details>
#
# ## Read on
#
# - [Two directions that multiply](03-two-directions.py)
# - [The formula against real tensors, to the byte](../evidence/measured/index.md#e1)
# - [Qwen2.5 7B in all its combinations](../models/Qwen--Qwen2.5-7B/index.md)
# - Jingchao Zhang, "Understanding KV Cache in LLM Inference", whose measurements of the cache and whose capacity
#   table are recomputed here.
# - kipply, "Transformer Inference Arithmetic": the same formula, derived with the operations beside the bytes.
