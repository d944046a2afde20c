# %% [markdown]
# # Two directions that multiply
#
# The cache grows when requests get longer, and it grows when there are more of them. Each by itself is
# harmless. Their product is what runs a server out of memory, and it is why "how many users fit" has no answer
# without "and how long are their requests".
#
# ## The question
#
# A server holds 64 requests of 2K tokens without trouble. Marketing wants longer documents: 8K. How many
# requests does it hold then? And what if the number of users doubles as well?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>Four times the length and twice the users: how much more cache?</summary>
#
# {{ 8 times = kv_request("llama-3.1-8b", tokens=8192) * 128 / (kv_request("llama-3.1-8b", tokens=2048) * 64) }}.
# Not four plus two. A quarter of the requests if the memory stays: 16.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import bars, claim, curves, fold, formula, quantities, table

q = quantities()
MODEL, GPU = "llama-3.1-8b", "H100"
GiB, GB = 2**30, 10**9
weights, memory = q.weights(MODEL), q.memory(GPU)

claim(weights, 16_060_522_496)
claim(q.kv_per_token(MODEL), 131_072)
claim(memory, 84_943_715_697, within=0.002)
claim(q.kv_per_token("llama-3.1-70b"), 327_680)
# %% [markdown]
# ## The formula

# %% tags=["hide"]
formula("cache  =  bytes per token  ×  tokens of each request  ×  requests")

# %% [markdown]
# ## The numbers put in: more requests
#
# Llama 3.1 8B in 16 bits on one H100, {{ 79.1 GiB = memory("H100") }}, every request 2,048 tokens long.
# Nothing is taken off but weights:

# %%
rows = []
for users in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
    cache = users * q.kv_request(MODEL, tokens=2048)
    total = weights + cache
    rows.append(
        [
            users,
            cache / GB,
            total / GB,
            f"{total / memory:.1%}",
            "fits" if total <= memory else "out of memory",
        ]
    )

table(
    "Requests of 2,048 tokens, sizes in GB (10⁹ bytes)",
    ["requests", "cache, GB", "with weights, GB", "of the memory", ""],
    rows,
)

# %% tags=["hide"]
claim(128 * q.kv_request(MODEL, tokens=2048), 34_359_738_368)
assert (
    weights + 256 * q.kv_request(MODEL, tokens=2048)
    <= memory
    < weights + 257 * q.kv_request(MODEL, tokens=2048)
)

# %% [markdown]
# A published table with the same question stops at 32 and calls 64 out of memory. Its cache is
# {{ 4.47 times = 2 * layers("llama-3.1-8b") * sqrt(8.03 * 10**9 / (12 * layers("llama-3.1-8b"))) * 2 / kv_per_token("llama-3.1-8b") }}
# too large, and [the ledger shows the two mistakes that make this factor](../evidence/claims/index.md#s1-batch-64-kv).
# By the arithmetic 256 fit.
#
# ## The numbers put in: longer requests

# %%
rows = []
for tokens in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
    eight = 8 * q.kv_request(MODEL, tokens=tokens)
    alone = (memory - weights) // q.kv_request(MODEL, tokens=tokens)
    fits = "fit" if weights + eight <= memory else "out of memory"
    rows.append([f"{tokens:,}", eight / GB, f"{(weights + eight) / memory:.1%}", fits, int(alone)])

table(
    "Eight requests, longer and longer; and how many of that length would fit by themselves",
    ["tokens each", "cache of eight, GB", "of the memory, with weights", "eight of them", "at most"],
    rows,
)

# %% [markdown]
# Eight requests fit up to 64K and not at 128K. One request of 128K takes
# {{ 17.18 GB = kv_request("llama-3.1-8b", tokens=131072) }}, slightly more than the weights, and four of them
# fit. One such request is {{ 51.7 % = kv_request("llama-3.1-8b", tokens=131072) / (weights("llama-3.1-8b") + kv_request("llama-3.1-8b", tokens=131072)) }}
# of what is used then: more than half.

# %% tags=["hide"]
assert weights + 8 * q.kv_request(MODEL, tokens=131072) > memory
claim((memory - weights) // q.kv_request(MODEL, tokens=131072), 4)
# %% [markdown]
# ## The figure: the boundary
#
# Put length across and number up, and the places where memory just suffices form a line. Below it everything
# fits; above it nothing does. With both axes in powers of two it is straight, because twice the length costs half
# the requests.

# %% tags=["hide"]
contexts = [2**k for k in range(9, 18)]
ideal = [int((memory - weights) // q.kv_request(MODEL, tokens=n)) for n in contexts]
engine = [q.fits(MODEL, GPU, tokens=n) for n in contexts]
assert all(low <= high for low, high in zip(engine, ideal, strict=True))
curves(
    "The out-of-memory boundary of Llama 3.1 8B on one H100: with nothing but the weights taken off, and with what vLLM "
    "keeps for itself.",
    x=contexts,
    lines={"weights taken off, nothing else": ideal, "vLLM's defaults (estimate)": engine},
    x_title="tokens in each request",
    y_title="requests that fit",
    y_log=True,
)

# %% [markdown]
# ## A larger model: only the traffic changed
#
# Llama 3.1 70B costs {{ 327,680 bytes = kv_per_token("llama-3.1-70b") }} a token in 16 bits. A request of 8,192
# tokens is {{ 2,684,354,560 bytes = kv_request("llama-3.1-70b", tokens=8192) }}, which is
# {{ 2.5 GiB = kv_request("llama-3.1-70b", tokens=8192) }}; eight of them are
# {{ 20 GiB = 8 * kv_request("llama-3.1-70b", tokens=8192) }} and sixteen
# {{ 40 GiB = 16 * kv_request("llama-3.1-70b", tokens=8192) }}. The weights did not move. This is how a server that
# started well in the morning runs out of memory at noon.
#
# With the cache in 8 bits (FP8) a token costs {{ 163,840 bytes = kv_per_token("llama-3.1-70b", "fp8") }}. One
# user with 128,000 tokens then holds {{ 20.97 GB = kv_request("llama-3.1-70b", "fp8", tokens=128000) }}, five
# hold {{ 104.9 GB = 5 * kv_request("llama-3.1-70b", "fp8", tokens=128000) }}. (You may have read 40 and 200. Those
# are the 16-bit figures, [in an 8-bit example](../evidence/claims/index.md#s2-128000).)

# %% tags=["hide"]
claim(8192 * 80 * 8 * 128 * 2 * 2, q.kv_request("llama-3.1-70b", tokens=8192))
bars(
    "Llama 3.1 70B, 8-bit weights, 16-bit cache, requests of 8K tokens. Sixteen of them pass the memory of one H200 "
    "only if weights and cache share it with nothing else.",
    {
        f"{n} at once": {
            "weights": ("weights", q.weights("llama-3.1-70b", "fp8")),
            "cache": ("KV cache", n * q.kv_request("llama-3.1-70b", tokens=8192)),
        }
        for n in (1, 8, 16, 32)
    },
    limit_bytes=q.memory("H200"),
    limit_name="one H200",
)

# %% [markdown]
# ## A published experiment, and its computed twin
#
# Somebody served 1, 8, 32 and 64 users of 2,048 tokens with Qwen2.5 7B on an H100, in a framework that is not made for serving, and read
# off the memory in use. What of it does the formula explain?

# %%
MEASURED_GIB = {1: 14.95, 8: 19.77, 32: 36.32, 64: 58.38}  # as published, by number of users
rows = []
for users, total in MEASURED_GIB.items():
    kept = users * q.kv_request("Qwen/Qwen2.5-7B", tokens=2048) / GiB
    scores = users * q.heads("Qwen/Qwen2.5-7B") * 2048 * 2048 * 2 / GiB
    rows.append(
        [
            users,
            q.weights("Qwen/Qwen2.5-7B") / GiB,
            kept,
            total,
            total - q.weights("Qwen/Qwen2.5-7B") / GiB - kept,
            scores,
        ]
    )

table(
    "Computed and measured, GiB",
    ["users", "weights", "cache", "measured in all", "measured, not explained", "attention scores, computed"],
    rows,
)

# %% tags=["hide"]
claim(64 * 28 * 2048 * 2048 * 2, 15_032_385_536)
assert all(row[4] > row[5] for row in rows)
assert all(row[4] > row[2] for row in rows)

# %% [markdown]
# The largest part is neither weights nor cache. It is what that framework writes down while it compares every token with every other: a
# table of 2,048 by 2,048 scores for each head and user, {{ 15.03 GB = 64 * 28 * 2048 * 2048 * 2 }} for 64 users, and more than one such
# table at a time. It is gone after the step. Engines compare piece by piece and never write the table down, which is why their cache is the
# largest thing that grows. (Published beside the measurement: 29 GB, [nearly twice the product of its own factors](../evidence/claims/index.md#s5-scores).)

# %% [markdown]
# ## Where this picture ends
#
# - Few requests use their whole allowance. What matters for memory in use is the *average* length; what matters for
#   a promise is the longest. [Pages](08-pages.py) make the difference usable.
# - The number of requests has a second limit, time: [prefill and decode](09-prefill-and-decode.py).
#
# ## Exercises
#
# **1.** Qwen2.5 7B on one H100: 64 users with 2K tokens each. How large is the cache, and how large is it beside the
# weights?

# %% tags=["hide"]
held = 64 * q.kv_request("qwen2.5-7b", tokens=2048)
claim(held, 7 * GiB)
fold(
    "Answer",
    f"{held / GiB:g} GiB, half of the weights' {q.weights('qwen2.5-7b') / GiB:.1f} GiB. One user's share of it is "
    f"{held / 64 / GiB:.2f} GiB, and as little as {held / 64 / memory:.2%} of the card: nobody notices the first one.",
)

# %% [markdown]
# **2.** A budget of 60 GiB for the cache of Llama 3.1 8B. Draw, on paper, the boundary through 8K, 32K and 128K.

# %% tags=["hide"]
points = {n: 60 * GiB // q.kv_request(MODEL, tokens=n) for n in (8192, 32768, 131072)}
fold(
    "Answer",
    ", ".join(f"{int(users)} requests at {tokens // 1024}K" for tokens, users in points.items())
    + ". A request of 8K is exactly 1 GiB for this model, so the rest follows by dividing by four twice; the last "
    "is 3.75, and requests come in whole numbers.",
)
assert list(points.values()) == [60, 15, 3]

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>What does the boundary look like on paper with powers of two on both axes?</summary>
#
# A straight line downwards. Along it, length times number stays the same.
#
# </details>
# <details class="kv-card"><summary>Why can a model that started well run out of memory later?</summary>
#
# Starting tests the weights. Traffic fills the cache.
#
# </details>
# <details class="kv-card"><summary>Which three questions settle the cache's size before anybody buys anything?</summary>
#
# How long can a request be, how many are in flight at the peak, and how many bits does the cache use?
#
# </details>
#
# ## Read on
#
# - Try it: [four users of 128K in the sizer](../sizer/index.md?model=meta-llama--Llama-3.1-8B-Instruct&context=128K&prompt=127K&output=400&concurrent=4&burst=1&spares=0), then make the
#   requests shorter
# - [Sharing heads](04-sharing-heads.py): making a token cheaper
# - [Llama 3.1 8B](../models/meta-llama--Llama-3.1-8B-Instruct/index.md) and
#   [H100](../gpus/h100-sxm-80gb/index.md), with all combinations
