# %% [markdown]
# # Prefill and decode
#
# Memory says how many users *fit*. Time says how many are *served*. A model works in two modes that could not be less
# alike, and the cache is what connects them.
#
# ## The question
#
# A GPU that can do a thousand million million multiplications a second writes some two hundred words in that second, for one
# reader. What is it doing the rest of the time?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>While it writes for one reader: which share of its multiplications does an H100 use?</summary>
#
# Less than half of one per cent: {{ 0.36 % = 2 * parameters("llama-3.1-8b") / decode_time("llama-3.1-8b", "H100", tokens=1024) / peak("H100") }}.
# It waits for its memory: to write one token, all the weights have to be read once.
#
# </details>

# %% tags=["hide"]
from kvreport.book.chapter import claim, curves, fold, formula, quantities, table

q = quantities()
MODEL, GPU = "llama-3.1-8b", "H100"
GiB = 2**30
claim(q.bandwidth(GPU), 3_350_000_000_000)
claim(q.peak(GPU), 989_000_000_000_000)
claim(q.parameters("Qwen/Qwen2.5-7B"), 7_615_616_512)
# %% [markdown]
# ## Two modes
#
# **Prefill** reads the prompt. All its tokens are known, so they go through the model together: every weight that is read
# from memory is used for every token. The multiplying units are busy.
#
# **Decode** writes the answer, one token at a time, because each depends on the one before. Every weight is read for a single
# token of each request. The memory is busy, the multiplying units wait.
#
# Several requests can decode together: then one reading of the weights serves all of them. But each has its own cache, and
# that is read for itself alone.
#
# ## The formula

# %% tags=["hide"]
formula(
    "time of a step  ≥  the longer of",
    "    bytes read / bandwidth          weights once, and every request's cache",
    "    operations / peak rate          2 per parameter and token, and attention",
)

# %% [markdown]
# These are bounds. No server is faster; good ones come within a factor of two.
#
# How many operations must be done with each byte before computing becomes the limit? The quotient of the two rates: for an H100
# in 16 bits {{ 295 FLOP/byte = peak("H100") / bandwidth("H100") }}. A weight of {{ 2 bytes = 16 / 8 }} gives two operations per
# token, so about as many tokens have to share each reading of the weights: {{ knee("llama-3.1-8b", "H100") as tokens }} for this
# model. A prompt of 37 tokens does not; a prompt of 2,000 does.
#
# ## The numbers put in
#
# A published experiment: Qwen2.5 7B on an H100, a prompt of 37 tokens, then one token after another, in a framework that is not
# made for serving.

# %%
MEASURED = {
    "reading 37 tokens": (719.0, q.prefill_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
    "writing one token": (476.0, q.decode_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
}

table(
    "Measured there, and the least it can take",
    ["", "measured, ms", "bound, ms", "times the bound"],
    [[name, measured, 1e3 * bound, measured / 1e3 / bound] for name, (measured, bound) in MEASURED.items()],
)

# %% tags=["hide"]
assert all(measured / 1e3 / bound > 100 for measured, bound in MEASURED.values())
claim(
    q.prefill_time("Qwen/Qwen2.5-7B", GPU, tokens=37),
    q.decode_time("Qwen/Qwen2.5-7B", GPU, tokens=37),
    within=0.01,
)
# %% [markdown]
# Two things stand out. Reading 37 tokens and writing one have the *same* bound: both read the weights once, and 37 tokens are
# too few to make multiplying the limit. And both took more than a hundred times as long. What limited that run was neither
# computing nor bandwidth; it was the framework between the steps. The lesson that its author draws, prefill for computing and
# decode for bandwidth, is right for longer prompts and tuned engines ([the ledger](../evidence/claims/index.md#s5-e5-compute)).
#
# ## Users cost time as well

# %%
batches = [1, 8, 32, 64, 128, 256]
table(
    "Llama 3.1 8B on an H100: the least time between two tokens of a reply, in ms, by requests in the batch",
    ["requests", "2K each", "8K each", "32K each", "tokens per second, all at 2K"],
    [
        [
            b,
            *(1e3 * q.decode_time(MODEL, GPU, batch=b, tokens=n) for n in (2048, 8192, 32768)),
            b / q.decode_time(MODEL, GPU, batch=b, tokens=2048),
        ]
        for b in batches
    ],
)

# %% tags=["hide"]
assert q.decode_time(MODEL, GPU, batch=8, tokens=2048) < 1.2 * q.decode_time(MODEL, GPU, batch=1, tokens=2048)
curves(
    "The first users are nearly free: they share the reading of the weights. The later ones pay for their own cache.",
    x=[1, 2, 4, 8, 16, 32, 64, 128, 256],
    lines={
        f"{n // 1024}K each": [
            1e3 * q.decode_time(MODEL, GPU, batch=b, tokens=n) for b in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        ]
        for n in (2048, 8192, 32768)
    },
    x_title="requests in the batch",
    y_title="ms between tokens, at least",
    y_log=True,
    x_tokens=False,
)

# %% [markdown]
# Eight users of 2K wait hardly longer than one. A hundred and twenty-eight wait three times as long, and get forty times as
# much done. At 32K each, the cache of a few requests is soon larger than the weights, and reading it takes as long: then every
# user slows every other. So the cache counts twice. It decides who fits, and it decides how fast.

# %% tags=["hide"]
slower = q.decode_time(MODEL, GPU, batch=128, tokens=2048) / q.decode_time(MODEL, GPU, batch=1, tokens=2048)
claim(slower, 3.2, within=0.03)
claim(128 / slower, 40, within=0.03)
# %% [markdown]
# ## What the cache saves
#
# Without it, every token would mean reading the whole text again. Writing 500 tokens after a prompt of 2,000 would be 500
# prefills:

# %%
with_cache = q.prefill_time(MODEL, GPU, tokens=2000) + sum(
    q.decode_time(MODEL, GPU, tokens=2000 + n) for n in range(500)
)
without = sum(q.prefill_time(MODEL, GPU, tokens=2000 + n) for n in range(500))
table(
    "Bounds for a prompt of 2,000 tokens and an answer of 500",
    ["", "seconds"],
    [["with the cache", with_cache], ["without it", without], ["times as long", without / with_cache]],
)

# %% [markdown]
# ## Where this picture ends
#
# - Bounds leave out what happens between steps. Engines record programs (*CUDA graphs*) to shorten it.
# - A prefill in the middle makes everybody else wait. Engines cut long prompts into chunks and mix them with decode; some use
#   different machines for the two.
#
# ## Exercises
#
# **1.** A reader is content with 20 tokens a second. How many requests of 8K can one H100 decode together, by the bound, and how
# many fit?

# %% tags=["hide"]
batch = max(b for b in range(1, 400) if q.decode_time(MODEL, GPU, batch=b, tokens=8192) <= 0.05)
fit = int((q.memory(GPU) - q.weights(MODEL)) // q.kv_request(MODEL, tokens=8192))
assert batch > fit
fold(
    "Answer",
    f"{batch} by time, {fit} by memory (weights taken off and nothing else). Memory binds here. With a quarter of the bytes per "
    "token it would be the other way round.",
)

# %% [markdown]
# **2.** How long does reading a prompt of 128K take at least, and how does it compare with a prompt of 8K?

# %% tags=["hide"]
long, short = q.prefill_time(MODEL, GPU, tokens=131072), q.prefill_time(MODEL, GPU, tokens=8192)
assert long / short > 20
fold(
    "Answer",
    f"{long:.1f} s against {short:.2f} s: {long / short:.0f} times as long for sixteen times the tokens. Every token looks back at "
    "all before it, so that part of the work grows with the square.",
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>What limits prefill, what limits decode?</summary>
#
# A long prompt: the rate of multiplying. Writing: the bandwidth of the memory.
#
# </details>
# <details class="kv-card"><summary>Why do the first users cost nearly nothing?</summary>
#
# The weights are read once for all of them.
#
# </details>
# <details class="kv-card"><summary>TTFT and TPOT?</summary>
#
# Time to first token (how long the prefill takes, with waiting); time per output token (one decode step).
#
# </details>
#
# ## Read on
#
# - [Sizing a deployment](10-sizing-a-deployment.py)
# - [What a GPU really takes against these bounds](../evidence/measured/index.md#e5)
# - Jingchao Zhang, "Understanding KV Cache in LLM Inference", experiment 5
# - Google DeepMind, "How to Scale Your Model", chapter on inference
