# %% [markdown]
# # Prefill and decode: compute-bound and memory-bound
#
# Memory determines how many requests *fit*, and time determines how many are *served*. A model works in two phases that load
# different parts of the GPU. The KV cache connects them.
#
# ## What limits a GPU that serves one user?
#
# An H100 can do up to {{ 989 TFLOP/s = peak("H100") }}: multiplications and additions per second in 16 bits. For a single
# user, it produces only a few hundred tokens per second. What limits it?

# %% tags=["hide"]
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    claim,
    curves,
    decode_step,
    drawings,
    exercise,
    fold,
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
MODEL, GPU = "llama-3.1-8b", "H100"
GiB = 2**30
left = room(q, MODEL, GPU)
claim(q.bandwidth(GPU), 3_350_000_000_000)
claim(q.peak(GPU), 989_000_000_000_000)
claim(q.parameters("Qwen/Qwen2.5-7B"), 7_615_616_512)
alone = 1 / q.decode_time(MODEL, GPU, tokens=1024)
used = 2 * q.parameters(MODEL) / q.decode_time(MODEL, GPU, tokens=1024) / q.peak(GPU)
claim(used, 0.0036, within=0.02)

# %% tags=["hide"]
guess(
    "Llama 3.1 8B serves one reader, with 1,024 tokens of context. How many tokens per second can an H100 produce at most?",
    alone,
    unit="tokens/s",
    low=1,
    high=1_000_000,
    why=f"For one token, the GPU must read the cache and all weights but the embedding once. That is about {0.75 * alone:.0f} words a second, and it uses "
    f"{used:.2%} of the operations that the GPU could do.",
)

# %% [markdown]
# ## Two phases
#
# **Prefill** reads the prompt. All its tokens are known, so they go through the model together. Every weight that is read from
# memory is used for every token, which keeps the compute units busy.
#
# **Decode** writes the answer, one token at a time, because each token depends on the one before. Every weight is read for a single token of
# each request. Memory bandwidth is saturated, and the compute units wait.
#
# Several requests can decode together and share one reading of the weights. The cache of each request is still read for that
# request alone.

# %% tags=["hide"]
drawings.phases(
    2048, 40, 1e3 * q.prefill_time(MODEL, GPU, tokens=2048), 1e3 * q.decode_time(MODEL, GPU, tokens=2048)
)

# %% [markdown]
# ## A step takes the longer of reading and computing

# %% tags=["hide"]
formula(
    "time of a step  ≥  the longer of",
    "    bytes read / bandwidth          weights once, and every request's cache",
    "    operations / peak rate          2 per parameter and token, and attention",
)

# %% [markdown]
# These are lower bounds (the *roofline*): no server is faster. Good servers come within a factor of two.
#
# Compute is the limit if the GPU does more operations per byte than the ratio of its two rates. For an H100 in 16 bits the
# ratio is
# {{ 295 FLOP/byte = peak("H100") / bandwidth("H100") }}. A weight of {{ 2 bytes = 16 / 8 }} takes part in two operations per
# token.

# %% tags=["hide"]
guess(
    "How many tokens must share one reading of the weights before compute is the limit?",
    q.knee(MODEL, GPU),
    unit="tokens",
    low=1,
    high=100_000,
    why="About as many as operations per byte. A prompt of 37 tokens has too few, a prompt of 2,000 has enough.",
)

# %% tags=["hide"]
step = decode_step(q, MODEL, GPU)
instrument(
    Instrument(
        "One decode step of Llama 3.1 8B on an H100",
        (
            Slider("batch", "Requests in the batch", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), 0),
            Slider("context", "Tokens in each request", (128, 512, 2048, 8192, 32768, 131072), 2, "tokens"),
        ),
        (
            Output("read", "Bytes read", "decode_bytes", ("step", "batch", "context"), "GB.1"),
            Output(
                "memory", "Reading takes at least", "memory_seconds", ("step", "batch", "context"), "ms.2"
            ),
            Output(
                "compute",
                "Computing takes at least",
                "decode_compute_seconds",
                ("step", "batch", "context"),
                "ms.2",
            ),
            Output(
                "side", "Bottleneck", "slower_side", ("memory", "compute"), "words:memory bandwidth|compute"
            ),
            Output("time", "Time per step", "decode_seconds", ("step", "batch", "context"), "ms.2"),
            Output("speed", "Tokens per second, all requests", "average_tokens", ("batch", "time")),
        ),
        {"step": step},
        goals=(
            Goal("Make compute the bottleneck. Short contexts help.", "side", 1),
            Goal("Make memory bandwidth the bottleneck again without changing the batch.", "side", 0),
        ),
        rows=((0, 2), (3, 2), (5, 2), (7, 2), (7, 4), (9, 0)),
    )
)

# %% [markdown]
# ## Worked example: a framework far above its bound
#
# A published experiment ran Qwen2.5 7B on an H100 in a framework that is not made for serving. The experiment read a prompt of
# 37 tokens and then wrote one token at a time.

# %%
MEASURED = {
    "reading 37 tokens": (719.0, q.prefill_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
    "writing one token": (476.0, q.decode_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
}

table(
    "Measured there, and the lower bound",
    ["Step", "Measured, ms", "Bound, ms", "Times the bound"],
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
# Reading 37 tokens and writing one have the *same* bound, because both read the weights once, and 37 tokens are too few to make compute the limit.
# Both took more than a hundred times as long as the bound. The framework's work between the steps limited that run, not the
# GPU. The author's conclusion, that compute limits prefill and bandwidth limits decode, is right for longer prompts and
# optimized engines ([the ledger](../evidence/claims/index.md#s5-e5-compute)).
#
# ## More requests make each step slower

# %% tags=["hide"]
one, many = (q.decode_time(MODEL, GPU, batch=b, tokens=2048) for b in (1, 128))
claim(many / one, 3.2, within=0.03)
guess(
    "128 requests of 2K decode together instead of one. How many times as long is a step?",
    many / one,
    unit="times",
    low=1,
    high=1000,
    digits=1,
    step="any",
    why=f"They share the reading of the weights, and each adds its own cache. All together have {128 * one / many:.0f} times the total throughput.",
)

# %%
batches = [1, 8, 32, 64, 128, 256]
table(
    "Llama 3.1 8B on an H100: least time between two tokens of a reply, in ms",
    ["Requests", "2K each", "8K each", "32K each", "Tokens per second, all at 2K"],
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
    "The first requests are nearly free, because they share the reading of the weights. Later ones pay for their own cache.",
    x=[1, 2, 4, 8, 16, 32, 64, 128, 256],
    lines={
        f"{n // 1024}K each": [
            1e3 * q.decode_time(MODEL, GPU, batch=b, tokens=n) for b in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        ]
        for n in (2048, 8192, 32768)
    },
    x_title="Requests in the batch",
    y_title="Time per output token, at least (ms)",
    y_log=True,
    x_tokens=False,
)

# %% [markdown]
# At 32K tokens, the caches of a few requests are larger than the weights and take longer to read. The cache therefore decides
# both how many requests fit and how fast they run.
#
# ## Where to invest: memory or bandwidth?
#
# The table shows what ten percent more memory or bandwidth brings. It also shows an FP8 cache, which needs no new hardware but
# costs some quality.

# %%
TOKENS = 8192
base_fit = q.fits(MODEL, GPU, tokens=TOKENS)
pool, each = q.pool(MODEL, GPU, tokens=TOKENS), q.request(MODEL, GPU, tokens=TOKENS)


def rate(requests: int, kv: str | None = None, faster: float = 1.0) -> float:
    """Tokens per second of all requests, at most."""
    return requests / q.decode_time(MODEL, GPU, batch=requests, tokens=TOKENS, kv=kv) * faster


more_fit = int((pool + 0.1 * q.memory(GPU) * q.share(MODEL, GPU)) // each)
fp8_fit = q.fits(MODEL, GPU, tokens=TOKENS, kv="fp8")
invest = [
    ["as it is", base_fit, rate(base_fit)],
    ["10% more memory", more_fit, rate(more_fit)],
    ["10% more bandwidth", base_fit, rate(base_fit, faster=1.1)],
    ["an FP8 cache", fp8_fit, rate(fp8_fit, "fp8")],
]
table(
    "Sensitivity: Llama 3.1 8B on an H100, requests of 8K, as many as memory holds",
    ["Change", "Requests", "Tokens per second, at most", "Throughput gained"],
    [[name, fit, speed, f"{speed / invest[0][2] - 1:+.0%}"] for name, fit, speed in invest],
)

# %% tags=["hide"]
assert invest[1][1] > base_fit
assert invest[3][2] > invest[2][2] > invest[1][2]

# %% [markdown]
# More memory admits more requests, but each step then reads more cache, so throughput hardly moves. More bandwidth speeds up every step and
# admits no more requests. An FP8 cache does both, because it halves what is stored and what is read.
#
# ## What the cache saves

# %%
with_cache = q.prefill_time(MODEL, GPU, tokens=2000) + sum(
    q.decode_time(MODEL, GPU, tokens=2000 + n) for n in range(500)
)
without = sum(q.prefill_time(MODEL, GPU, tokens=2000 + n) for n in range(500))
table(
    "Bounds for a prompt of 2,000 tokens and an answer of 500",
    ["Method", "Seconds"],
    [["with the cache", with_cache], ["without it", without], ["times as long", without / with_cache]],
)

# %% [markdown]
# Without the cache, the model would read the whole text again for every token.

# %% tags=["hide"]
takeaway(
    "Long prompts are compute-bound. Writing is memory-bound. Batching shares the weights, not the caches. The two phases want different machines, "
    "which is why large services run prefill and decode on separate GPU pools."
)

# %% [markdown]
# ## Limitations
#
# - The bounds leave out the work between steps. Engines record CUDA graphs to shorten it.
# - While a prompt is read, other requests wait. Engines cut long prompts into chunks and mix them with decode steps. Some use
#   separate GPUs for each phase:
#   [how many prefill and decode GPUs?](../questions/prefill-decode-ratio.md)
#
# ## Exercises

# %% tags=["hide"]
batch = max(b for b in range(1, 400) if q.decode_time(MODEL, GPU, batch=b, tokens=8192) <= 0.05)
fit = int(left // q.kv_request(MODEL, tokens=8192))
assert batch > fit
exercise(
    "**1.** A reader is content with 20 tokens a second. By the bound, how many requests of 8K can one H100 decode together?",
    batch,
    unit="requests",
    within=0.05,
    solution=f"A step may take 50 ms. Memory holds {fit} (only weights subtracted), so memory is the limit here and not time.",
    traps={float(fit): "This is what memory holds. The question asks about time."},
)

# %% tags=["hide"]
long, short = q.prefill_time(MODEL, GPU, tokens=131072), q.prefill_time(MODEL, GPU, tokens=8192)
assert long / short > 20
exercise(
    "**2.** By the bound, how many times as long does a prompt of 128K take as a prompt of 8K?",
    long / short,
    unit="times",
    within=0.1,
    solution=f"{long:.1f} s against {short:.2f} s, for sixteen times the tokens. Every token attends to all tokens before it, so that part of the work "
    "grows with the square.",
    traps={16.0: "The attention part grows with the square of the length."},
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Teach it back to a colleague: why is a single reader slow and expensive?",
    "Each step reads all weights, for one request or for a hundred. A single reader uses a small part of the compute. A batch shares the reading until its caches fill the memory.",
)

# %% tags=["hide"]
quiz(
    item(
        "What limits prefill, and what limits decode?",
        right(
            "Compute for long prompts, memory bandwidth for decode",
            "Prefill uses every weight for many tokens, decode for few.",
        ),
        wrong("Memory bandwidth for both", "A long prompt shares each reading over thousands of tokens."),
        wrong(
            "Compute for both", "The common wrong answer. One reader uses under one percent of the compute."
        ),
    ),
    item(
        "Why do the first few requests in a batch cost almost nothing?",
        wrong("Their caches are shared", "Unrelated requests share nothing."),
        right("The weights are read once for all of them", "Only their own caches are added."),
        wrong("The engine runs them one after another", "They are computed in the same step."),
    ),
    item(
        "TTFT and TPOT are …",
        right(
            "time to first token (mostly prefill) and time per output token (one decode step)",
            "Queueing adds to the first.",
        ),
        wrong("two names for latency", "They have different causes and different remedies."),
        wrong("throughput figures", "Throughput is tokens per second over all requests."),
    ),
)

# %% [markdown]
# ## Next
#
# - [Sizing a deployment](10-sizing-a-deployment.py)
# - [What a GPU really takes against these bounds](../evidence/measured/index.md#e5)
# - Jingchao Zhang, ["Understanding KV Cache in LLM Inference"](https://github.com/JingchaoZhang/JingchaoZhang.github.io), experiment 5
# - Google DeepMind, ["How to Scale Your Model"](https://jax-ml.github.io/scaling-book/inference/), chapter on inference
