# %% [markdown]
# # Prefill and decode: compute-bound and memory-bound
#
# Memory determines how many requests *fit*, and speed determines how many are *served* per second. A model works in two phases
# that stress different parts of the GPU: its compute units and its memory bandwidth.
#
# ## What limits a GPU that serves one user?
#
# An H100 can do up to {{ 989 TFLOP/s = peak("H100") }} with 16-bit numbers. For a single user, the same GPU generates only a few
# hundred tokens per second. What limits the speed?

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
NAME = q.catalog.model(MODEL).name
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
    f"{NAME} serves one user with 1,024 tokens of context. What is the maximum number of tokens per second on an {GPU}?",
    alone,
    unit="tokens/s",
    low=1,
    high=1_000_000,
    why="For each token, the GPU must read the cache and all weights except the embedding once. The bound is about "
    f"{0.75 * alone:.0f} words per second. At that speed, the GPU performs only {used:.2%} of the operations that it could.",
)

# %% [markdown]
# ## Two phases
#
# **Prefill** processes the prompt. All its tokens are known, so the model processes them together. Each weight is read from
# memory once and used for every token, which keeps the compute units busy.
#
# **Decode** generates the answer one token at a time, because each token depends on the one before. In each step, every weight is
# read for only one token of each request. The memory bandwidth is saturated, and the compute units wait.
#
# Several requests can decode together, so that one read of the weights serves all of them. The cache of each request is still
# read only for that request.

# %% tags=["hide"]
drawings.phases(
    2048, 40, 1e3 * q.prefill_time(MODEL, GPU, tokens=2048), 1e3 * q.decode_time(MODEL, GPU, tokens=2048)
)

# %% [markdown]
# ## The longer of reading and computing sets the time of a step

# %% tags=["hide"]
formula(
    "time of a step  ≥  the longer of",
    "    bytes read / bandwidth          the weights once, and every request's cache",
    "    operations / peak rate          2 per parameter and token, and attention",
)

# %% [markdown]
# This lower bound is called the *roofline*. No server is faster, and the times of good servers are within a factor of two of the
# bound.
#
# Compute is the limit if a step needs more operations per byte than the ratio of the GPU's two rates. For an H100 in 16 bits,
# this ratio is
# {{ 295 FLOP/byte = peak("H100") / bandwidth("H100") }}. A weight of {{ 2 bytes = 16 / 8 }} takes part in two operations per
# token.

# %% tags=["hide"]
guess(
    "How many tokens must share one read of the weights before compute becomes the limit?",
    q.knee(MODEL, GPU),
    unit="tokens",
    low=1,
    high=100_000,
    why="The number of tokens is about the same as the number of operations per byte. A prompt of 37 tokens is too short, "
    "and a prompt of 2,000 tokens is long enough.",
)

# %% tags=["hide"]
step = decode_step(q, MODEL, GPU)
instrument(
    Instrument(
        f"One decode step of {NAME} on an {GPU}",
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
            Output("speed", "Throughput of all requests", "average_tokens", ("batch", "time"), "tokens/s.0"),
        ),
        {"step": step},
        goals=(
            Goal("Make compute the bottleneck. (Hint: use short contexts.)", "side", 1),
            Goal("Make memory bandwidth the bottleneck again without changing the batch.", "side", 0),
        ),
        rows=((0, 2), (3, 2), (5, 2), (7, 2), (7, 4), (9, 0)),
    )
)

# %% [markdown]
# ## Worked example: a framework far above its bound
#
# A published experiment ran Qwen2.5 7B on an H100 in a framework not made for serving. The model processed a prompt of 37 tokens
# and then generated one token at a time.

# %%
MEASURED = {
    "prefill of 37 tokens": (719.0, q.prefill_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
    "decode of one token": (476.0, q.decode_time("Qwen/Qwen2.5-7B", GPU, tokens=37)),
}

table(
    "Measured times and lower bounds",
    ["Step", "Measured, ms", "Bound, ms", "Measured ÷ bound"],
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
# Both steps have the *same* bound, because both read the weights once, and 37 tokens are too few to make compute the limit. In
# the experiment, both took more than a hundred times as long as the bound. That run was limited not by the GPU but by the
# framework's work between the steps. The author's conclusion, that compute limits prefill and bandwidth limits decode, is right
# for longer prompts and optimized engines (see [the review of this claim](../evidence/claims/index.md#s5-e5-compute)).
#
# ## More requests make each step slower

# %% tags=["hide"]
one, many = (q.decode_time(MODEL, GPU, batch=b, tokens=2048) for b in (1, 128))
claim(many / one, 3.2, within=0.03)
guess(
    "128 requests of 2K tokens decode together instead of one. By what factor does a step become slower?",
    many / one,
    unit="times",
    low=1,
    high=1000,
    digits=1,
    step="any",
    why="The requests share one read of the weights, and each adds a read of its own cache. The total throughput "
    f"is {128 * one / many:.0f} times as high.",
)

# %%
batches = [1, 8, 32, 64, 128, 256]
table(
    f"Minimum time between two tokens of an answer, in ms: {NAME} on an {GPU}",
    [
        "Requests",
        "2K tokens each",
        "8K tokens each",
        "32K tokens each",
        "Tokens per second of all requests, at 2K tokens each",
    ],
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
    "Time per output token by batch size. The first requests add almost no time, because all requests share one read of "
    "the weights. With more requests, reading the caches takes longer than reading the weights.",
    x=[1, 2, 4, 8, 16, 32, 64, 128, 256],
    lines={
        f"{n // 1024}K tokens each": [
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
# At 32K tokens, the caches of only a few requests are larger than the weights and take longer to read. The cache therefore
# determines both how many requests fit and how fast they run.
#
# ## Where to invest: memory or bandwidth?
#
# The table shows the gain from ten percent more memory, from ten percent more bandwidth, and from an FP8 cache. An FP8 cache needs
# no new hardware but costs some quality.

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
    ["no change", base_fit, rate(base_fit)],
    ["10% more memory", more_fit, rate(more_fit)],
    ["10% more bandwidth", base_fit, rate(base_fit, faster=1.1)],
    ["FP8 cache", fp8_fit, rate(fp8_fit, "fp8")],
]
table(
    f"Sensitivity: {NAME} on an {GPU} with as many requests of 8K tokens as fit in memory",
    ["Change", "Requests", "Maximum tokens per second", "Gain in throughput"],
    [[name, fit, speed, f"{speed / invest[0][2] - 1:+.0%}"] for name, fit, speed in invest],
)

# %% tags=["hide"]
assert invest[1][1] > base_fit
assert invest[3][2] > invest[2][2] > invest[1][2]

# %% [markdown]
# More memory admits more requests, but each step then reads more cache, so throughput hardly increases. More bandwidth speeds up
# every step but admits no more requests. An FP8 cache does both, because it halves the cache bytes that are stored and read.
#
# ## What the cache saves

# %%
with_cache = q.prefill_time(MODEL, GPU, tokens=2000) + sum(
    q.decode_time(MODEL, GPU, tokens=2000 + n) for n in range(500)
)
without = sum(q.prefill_time(MODEL, GPU, tokens=2000 + n) for n in range(500))
table(
    "Lower bounds for a prompt of 2,000 tokens and an answer of 500 tokens",
    ["Method", "Time, s", "Relative time"],
    [["with the KV cache", with_cache, "1.00"], ["without a KV cache", without, without / with_cache]],
)

# %% [markdown]
# Without the cache, the model would process the whole text again for every token.

# %% tags=["hide"]
takeaway(
    "Prefill of long prompts is compute-bound, and decode is memory-bound. In a batch, requests share the reads of the weights, but not of the caches. "
    "The two phases stress different resources, so large services often run prefill and decode on separate groups of GPUs."
)

# %% [markdown]
# ## Limitations
#
# - The bounds ignore the work between steps, which engines shorten with CUDA graphs.
# - While the model processes a prompt, other requests wait. Engines therefore divide long prompts into chunks and mix them with
#   decode steps. Others run each phase on separate GPUs (see [“How many prefill GPUs per decode
#   GPU?”](../questions/prefill-decode-ratio.md)).
#
# ## Exercises

# %% tags=["hide"]
batch = max(b for b in range(1, 400) if q.decode_time(MODEL, GPU, batch=b, tokens=8192) <= 0.05)
fit = int(left // q.kv_request(MODEL, tokens=8192))
assert batch > fit
exercise(
    f"**1.** A user needs 20 tokens per second. According to the bound, how many requests of 8K tokens can one {GPU} decode together?",
    batch,
    unit="requests",
    within=0.05,
    solution=f"Each step may take at most 50 ms. With only the weights subtracted, {fit} requests fit in memory, so the limit here is {'memory, not time' if fit < batch else 'time, not memory'}.",
    traps={float(fit): "This is the number that fits in memory. The question is about time."},
)

# %% tags=["hide"]
long, short = q.prefill_time(MODEL, GPU, tokens=131072), q.prefill_time(MODEL, GPU, tokens=8192)
assert long / short > 20
exercise(
    "**2.** According to the bound, by what factor does prefill take longer for a prompt of 128K tokens than for one of 8K?",
    long / short,
    unit="times",
    within=0.1,
    solution=f"The bounds are {long:.2f} s and {short:.4f} s, for sixteen times the tokens. Every token attends to all "
    "tokens before it, so the attention part of the work grows with the square of the length.",
    traps={16.0: "This factor ignores the attention part, which grows with the square of the length."},
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: why is serving a single user inefficient and expensive?",
    "Each step reads all weights, whether for one request or for a hundred. A single user needs only a small part of the GPU's compute. In a batch, many requests share the cost of reading the weights. The batch can grow until the caches fill the memory.",
)

# %% tags=["hide"]
quiz(
    item(
        "What limits prefill, and what limits decode?",
        right(
            "Compute for long prompts, memory bandwidth for decode",
            "Prefill uses every weight for many tokens, and decode uses it for few.",
        ),
        wrong(
            "Memory bandwidth for both",
            "In a long prompt, thousands of tokens share each read of the weights, so compute limits prefill.",
        ),
        wrong(
            "Compute for both",
            "In decode, one user needs less than one percent of the GPU's compute.",
        ),
    ),
    item(
        "Why do the first few requests in a batch cost almost nothing?",
        wrong("Their caches are shared", "Each request has its own cache. Only the weights are shared."),
        right("The weights are read once for all of them", "Each request adds only a read of its own cache."),
        wrong(
            "The engine runs them one after another", "All requests of a batch are computed in the same step."
        ),
    ),
    item(
        "What are TTFT and TPOT?",
        right(
            "Time to first token (mostly prefill) and time per output token (one decode step)",
            "Time in the queue is part of the time to first token.",
        ),
        wrong(
            "Two names for the same latency", "The two times have different causes and different remedies."
        ),
        wrong("Measures of throughput", "Throughput is the number of tokens per second of all requests."),
    ),
)

# %% [markdown]
# ## Next
#
# - [Sizing a deployment](10-sizing-a-deployment.py)
# - [Times measured on a GPU, compared with these bounds](../evidence/measured/index.md#e5)
# - Jingchao Zhang, ["Understanding KV Cache in LLM Inference"](https://github.com/JingchaoZhang/JingchaoZhang.github.io), experiment 5
# - Google DeepMind, ["How to Scale Your Model"](https://jax-ml.github.io/scaling-book/inference/), chapter on inference
