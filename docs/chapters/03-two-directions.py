# %% [markdown]
# # Context × concurrency: what fills the KV cache
#
# The KV cache grows with the length of requests and with their number. If the requests need more memory than the GPU has for the
# cache, some of them wait.
#
# ## Four times the length: how many requests still fit?
#
# A server has memory for 64 requests of 2K tokens each. If every request grows to 8K tokens, only a quarter of them fit. What
# happens if the number of users doubles as well?

# %% tags=["hide"]
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    bars,
    cache_terms,
    choose,
    claim,
    curves,
    exercise,
    fold,
    formula,
    growth_grid,
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
weights, memory, left = q.weights(MODEL), q.memory(GPU), room(q, MODEL, GPU)

claim(weights, 16_060_522_496)
claim(q.kv_per_token(MODEL), 131_072)
claim(memory, 84_943_715_697, within=0.002)
claim(q.kv_per_token("llama-3.1-70b"), 327_680)

# %% tags=["hide"]
times = q.kv_request(MODEL, tokens=8192) * 128 / (q.kv_request(MODEL, tokens=2048) * 64)
guess(
    "Requests become four times as long, and their number doubles. By what factor does the cache grow?",
    times,
    unit="times",
    low=1,
    high=100,
    why="Eight times, not six, because length and number multiply.",
)

# %% [markdown]
# ## The cache is a product of three factors

# %% tags=["hide"]
formula("cache  =  bytes per token  ×  tokens per request  ×  requests")

# %% [markdown]
# ## Worked example: length and number multiply
#
# Llama 3.1 8B in 16 bits runs on one H100. A process can use {{ 79.1 GiB = memory("H100") }}, and this example subtracts
# only the weights.

# %% tags=["hide"]
constant, terms = cache_terms(q, MODEL)
growth_grid(
    f"KV cache of {NAME} in GiB, by tokens per request (columns) and concurrent requests (rows)",
    contexts=[2048, 4096, 8192, 16384, 32768, 65536, 131072],
    requests=[1, 2, 4, 8, 16, 32, 64, 128, 256],
    constant=constant,
    terms=terms,
    room=left,
)

# %% [markdown]
# Each step to the right or down doubles the cache. The next tables show the column of 2K tokens and the
# row of eight requests.

# %%
rows = []
for users in (1, 8, 32, 64, 128, 256):
    cache = users * q.kv_request(MODEL, tokens=2048)
    total = weights + cache
    verdict = "fits" if total <= memory else "exceeds memory"
    rows.append([users, cache / GiB, f"{total / GiB:,.2f}", f"{total / memory:.1%}", verdict])

table(
    "KV cache of 1 to 256 requests of 2,048 tokens",
    ["Requests", "KV cache, GiB", "With weights, GiB", "Share of GPU memory", "Result"],
    [[row[0], f"{row[1]:.2f}", *row[2:]] for row in rows],
)

# %% tags=["hide"]
claim(128 * q.kv_request(MODEL, tokens=2048), 34_359_738_368)
assert (
    weights + 256 * q.kv_request(MODEL, tokens=2048)
    <= memory
    < weights + 257 * q.kv_request(MODEL, tokens=2048)
)

# %% [markdown]
# A published table for the same case says that a batch of 64 does not fit. Its cache sizes are
# {{ 4.47 times = 2 * layers("llama-3.1-8b") * sqrt(8.03 * 10**9 / (12 * layers("llama-3.1-8b"))) * 2 / kv_per_token("llama-3.1-8b") }}
# the correct values. [The ledger explains the two mistakes behind this factor](../evidence/claims/index.md#s1-batch-64-kv).

# %% tags=["hide"]
too_long = next((n for n in (2**k for k in range(9, 18)) if 8 * q.kv_request(MODEL, tokens=n) > left), 2**18)
guess(
    "Eight requests run at once, and their length doubles from 2,048 to 4,096 tokens, and so on. At what length do they no longer fit?",
    too_long,
    unit="tokens",
    low=1024,
    high=2**20,
    why=f"At {too_long // 1024}K tokens, only {int(left // q.kv_request(MODEL, tokens=too_long))} of the eight requests fit.",
)

# %%
rows = []
for tokens in (2048, 4096, 8192, 16384, 32768, 65536, 131072):
    eight = 8 * q.kv_request(MODEL, tokens=tokens)
    most = (memory - weights) // q.kv_request(MODEL, tokens=tokens)
    fits = "fits" if weights + eight <= memory else "exceeds memory"
    rows.append([f"{tokens:,}", f"{eight / GiB:.2f}", f"{(weights + eight) / memory:.1%}", fits, int(most)])

table(
    "KV cache of eight concurrent requests, and the maximum number of requests, by length",
    [
        "Tokens per request",
        "KV cache of eight requests, GiB",
        "Share of GPU memory, with weights",
        "Result",
        "Maximum number of requests",
    ],
    rows,
)

# %% [markdown]
# One request of 128K tokens takes {{ 16 GiB = kv_request("llama-3.1-8b", tokens=131072) }}, slightly more than the weights. With
# only this request, the cache is {{ 51.7% = kv_request("llama-3.1-8b", tokens=131072) / (weights("llama-3.1-8b") +
# kv_request("llama-3.1-8b", tokens=131072)) }} of the memory in use.

# %% tags=["hide"]
assert weights + 8 * q.kv_request(MODEL, tokens=131072) > memory
claim((memory - weights) // q.kv_request(MODEL, tokens=131072), 4)

# %% tags=["hide"]
instrument(
    Instrument(
        f"Exceed the memory of an {GPU} that runs {NAME}, then make everything fit again",
        (
            Slider("context", "Context per request (tokens)", tuple(2**n for n in range(9, 18)), 2, "tokens"),
            Slider("number", "Concurrent requests", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), 6),
            Slider("format", "Cache precision", (8, 16), 1, "bits"),
        ),
        (
            Output("scale", "", "ratio", ("format", 16)),
            Output("plain", "", "all_requests_bytes", ("constant", "terms", "context", "number")),
            Output("cache", "KV cache", "product", ("plain", "scale"), "GiB.1"),
            Output("used", "With weights", "total", ("weights", "cache"), "GiB.1"),
            Output("share", "Share of GPU memory", "ratio", ("used", "memory"), "%.0"),
            Output("state", "Result", "memory_state", ("used", "memory"), "words:fits|exceeds memory"),
        ),
        {"constant": constant, "terms": terms, "weights": weights, "memory": memory},
        bar=(("weights", "weights", "weights"), ("cache", "KV cache", "cache")),
        limit="memory",
        limit_label="GPU memory",
        goals=(
            Goal("Exceed the memory with 64 requests by making them longer.", "state", 1),
            Goal("Move a single slider so that the cache fits again. Any of the three works.", "state", 0),
        ),
        rows=((2, 6, 1), (5, 6, 1), (5, 6, 0), (5, 5, 1), (8, 2, 1)),
    )
)

# %% [markdown]
# ## The memory limit as a line
#
# On logarithmic axes, the points at which memory is exactly full form a straight line.

# %% tags=["hide"]
contexts = [2**k for k in range(9, 18)]
ideal = [int((memory - weights) // q.kv_request(MODEL, tokens=n)) for n in contexts]
engine = [q.fits(MODEL, GPU, tokens=n) for n in contexts]
assert all(low <= high for low, high in zip(engine, ideal, strict=True))
curves(
    f"The memory limit of {NAME} on one {GPU}: with only the weights subtracted, and with vLLM's defaults.",
    x=contexts,
    lines={"only the weights subtracted": ideal, "vLLM's defaults (estimate)": engine},
    x_title="Context per request (tokens)",
    y_title="Concurrent requests",
    y_log=True,
)

# %% [markdown]
# ## A larger model
#
# With a 16-bit cache, a token of Llama 3.1 70B takes {{ 327,680 bytes = kv_per_token("llama-3.1-70b") }}. A request of 8,192
# tokens takes {{ 2.5 GiB = kv_request("llama-3.1-70b", tokens=8192) }}, eight take {{ 20 GiB = 8 * kv_request("llama-3.1-70b",
# tokens=8192) }}, and sixteen take {{ 40 GiB = 16 * kv_request("llama-3.1-70b", tokens=8192) }}.
#
# ## What happens when the cache is full: requests wait
#
# At start-up, an engine reserves memory for the cache (the *KV pool*) and divides it into *blocks* of tokens. If too few blocks
# are free, new requests wait in a queue. If running requests need more blocks than the pool has, the engine *preempts* one of
# them: it frees the blocks of this request and recomputes them later (see [PagedAttention](08-pages.py)). Users notice higher
# latency, not an error. The chart shows a simulated hour with a twenty-minute peak:

# %%
HELD = q.fits(MODEL, GPU, tokens=8192)  # requests of 8K that run at once
STAY = 10  # seconds that a running request takes
minutes, running, waiting, queue = list(range(61)), [], [], 0.0
for minute in minutes:
    arriving = (
        (1.3 if 20 <= minute < 40 else 0.7) * HELD / STAY * 60
    )  # per minute: 30% more than the pool serves, or less
    served = min(queue + arriving, HELD / STAY * 60)
    queue = round(queue + arriving - served, 6)  # without the rounding errors of the sums
    running.append(served * STAY / 60)
    waiting.append(queue)
curves(
    f"The pool has room for {HELD} requests of 8K tokens and is full from minute 20. The queue does not empty until long after the peak.",
    x=minutes,
    lines={"running": running, "waiting": waiting},
    x_title="Minute",
    y_title="Requests",
    x_log=False,
    x_tokens=False,
)

# %% tags=["hide"]
assert max(running) <= HELD
assert waiting[19] == 0 < waiting[40]
claim(max(waiting), 20 * 0.3 * HELD / STAY * 60)

# %% [markdown]
# In the next simulation, the pool is small, and each running request needs one more block per second. The engine preempts the
# newest request first.

# %%
POOL, PROMPT, ANSWER, SECONDS = 96, 8, 16, 90  # blocks, blocks, seconds of one block each, seconds


def minute_and_a_half(every):
    """Blocks held, requests running and waiting, and preemptions so far, second by second; arrivals stop after a minute."""
    running, waiting, preempted, frames = [], [], 0, []
    for second in range(SECONDS + 1):
        running = [
            held + 1 for held in running if held < PROMPT + ANSWER
        ]  # a finished request frees its blocks
        if second < 60 and second % every == 0:
            waiting.append(PROMPT)
        while sum(running) > POOL:  # a block is needed and none is free
            waiting.insert(0, running.pop())
            preempted += 1
        while waiting and sum(running) + waiting[0] <= POOL:
            running.append(waiting.pop(0))
        frames.append((sum(running), len(running), len(waiting), preempted))
    return frames


frames = [frame for every in (4, 3, 2) for frame in minute_and_a_half(every)]
held, running_now, queued, preempted = (list(column) for column in zip(*frames, strict=True))
instrument(
    Instrument(
        "Fill a pool, and watch requests wait and be preempted",
        (
            Slider("second", "Second", tuple(range(SECONDS + 1)), 0),
            Slider("traffic", "Time between arrivals", (0, 1, 2), 1, "words:4 s|3 s|2 s"),
        ),
        (
            Output("before", "", "product", ("traffic", SECONDS + 1)),
            Output("place", "", "total", ("before", "second")),
            Output("blocks", "Blocks in use", "entry", ("held", "place")),
            Output("run", "Running", "entry", ("running", "place")),
            Output("wait", "Waiting", "entry", ("queued", "place")),
            Output("gone", "Preempted so far", "entry", ("preempted", "place")),
        ),
        {"held": held, "running": running_now, "queued": queued, "preempted": preempted, "pool": POOL},
        bar=(("cache", "blocks in use", "blocks"),),
        limit="pool",
        limit_label="pool",
        bar_form="count",
        time="second",
        goals=(
            Goal(
                "Choose a time between arrivals that causes preemption, and find the second in which the first preemption occurs.",
                "gone",
                1,
            ),
        ),
        rows=((59, 0), (59, 1), (40, 2), (90, 2)),
    )
)

# %% tags=["hide"]
assert max(held) <= POOL
assert frames[SECONDS][2:] == (0, 0)  # one every four seconds: nobody waits
assert frames[-1][3] > 0  # one every two seconds: preemptions

# %% [markdown]
# ## A cache in 8 bits
#
# With an FP8 cache, a token of Llama 3.1 70B takes {{ 163,840 bytes = kv_per_token("llama-3.1-70b", "fp8") }}. A request of 1,000
# tokens takes {{ 0.16 GB = kv_request("llama-3.1-70b", "fp8", tokens=1000) }}. A request of {{ 10,000 tokens = 10000 }} takes {{
# 1.6 GB = kv_request("llama-3.1-70b", "fp8", tokens=10000) }}, and a request of {{ 128,000 tokens = 128000 }} takes {{ 20.97 GB =
# kv_request("llama-3.1-70b", "fp8", tokens=128000) }}. Five users with 128,000 tokens each take {{ 104.9 GB = 5 *
# kv_request("llama-3.1-70b", "fp8", tokens=128000) }}. A published example gives 40 GB and 200 GB for the last two cases, which
# are roughly [the values for 16 bits](../evidence/claims/index.md#s2-128000).
#
# With 8-bit weights and a 16-bit cache, the model fits on one H200, and the cache fills the remaining memory:

# %% tags=["hide"]
claim(8192 * 80 * 8 * 128 * 2 * 2, q.kv_request("llama-3.1-70b", tokens=8192))
bars(
    "Llama 3.1 70B with 8-bit weights, a 16-bit cache and requests of 8K tokens, compared with the memory of one H200.",
    {
        f"{n} request{'s' if n > 1 else ''}": {
            "weights": ("weights", q.weights("llama-3.1-70b", "fp8")),
            "cache": ("KV cache", n * q.kv_request("llama-3.1-70b", tokens=8192)),
        }
        for n in (1, 8, 16, 32)
    },
    limit_bytes=q.memory("H200"),
    limit_name="one H200",
    label="Concurrent requests",
)

# %% [markdown]
# ## A published experiment, recomputed
#
# A published experiment ran Qwen2.5 7B on an H100, without a serving engine, for 1, 8, 32 and 64 users with 2,048 tokens each.
# The next table compares the measured memory with the computed weights and cache.

# %% tags=["hide"]
QWEN = "Qwen/Qwen2.5-7B"
choose(
    "What took the most memory in this experiment with 64 users?",
    wrong("The weights", f"The weights take {q.weights(QWEN) / GiB:.1f} GiB for any number of users."),
    wrong(
        "The KV cache",
        f"The cache takes {64 * q.kv_request(QWEN, tokens=2048) / GiB:.0f} GiB, half as much as the weights.",
    ),
    right("Attention scores", "The framework stored an attention score for every pair of tokens."),
)

# %%
MEASURED_GIB = {1: 14.95, 8: 19.77, 32: 36.32, 64: 58.38}  # as published, by number of users
rows = []
for users, total in MEASURED_GIB.items():
    held = users * q.kv_request(QWEN, tokens=2048) / GiB
    scores = users * q.heads(QWEN) * 2048 * 2048 * 2 / GiB
    rest = total - q.weights(QWEN) / GiB - held
    rows.append([users, q.weights(QWEN) / GiB, held, total, rest, scores])

table(
    "Measured memory, compared with the computed weights and cache, in GiB",
    [
        "Users",
        "Weights, computed",
        "KV cache, computed",
        "Total, measured",
        "Not explained by weights and cache",
        "Attention scores of one layer, computed",
    ],
    rows,
)

# %% tags=["hide"]
claim(64 * 28 * 2048 * 2048 * 2, 15_032_385_536)
assert all(row[4] > row[5] for row in rows)
assert all(row[4] > row[2] for row in rows)

# %% tags=["hide"]
bars(
    "Computed memory for 1 and 64 users with 2K tokens each, as in the experiment, and for 7 users with 128K tokens each. The attention scores are those of one layer.",
    {
        "1 × 2K": {
            "weights": ("weights", q.weights(QWEN)),
            "cache": ("KV cache", q.kv_request(QWEN, tokens=2048)),
        },
        "64 × 2K": {
            "weights": ("weights", q.weights(QWEN)),
            "cache": ("KV cache", 64 * q.kv_request(QWEN, tokens=2048)),
            "reserve": ("attention scores", 64 * 28 * 2048 * 2048 * 2),
        },
        "7 × 128K": {
            "weights": ("weights", q.weights(QWEN)),
            "cache": ("KV cache", 7 * q.kv_request(QWEN, tokens=131072)),
        },
    },
    limit_bytes=memory,
    limit_name=f"one {GPU}",
    label="Users × tokens",
)

# %% [markdown]
# In each layer, the framework stored a 2,048 by 2,048 matrix of attention scores for each head and user. For 64 users, the
# matrices of one layer take {{ 15.03 GB = 64 * 28 * 2048 * 2048 * 2 }}. The publication gives 29 GB, [nearly twice as
# much](../evidence/claims/index.md#s5-scores). Engines compute the scores in small pieces
# ([FlashAttention](https://arxiv.org/abs/2205.14135)) and never store these matrices.

# %% tags=["hide"]
takeaway(
    "Before you size a deployment, ask three questions: how long can a request be, how many requests run at the peak, and how many bits does the cache use? Add the weights to get the minimum memory."
)

# %% [markdown]
# ## Limitations
#
# - Few requests reach the maximum length, so more requests fit than calculated here (see [PagedAttention](08-pages.py)).
# - Latency also limits the number of requests (see [prefill and decode](09-prefill-and-decode.py)).
#
# ## Exercises

# %% tags=["hide"]
held = 64 * q.kv_request(QWEN, tokens=2048)
claim(held, 7 * GiB)
exercise(
    "**1.** Qwen2.5 7B serves 64 users with 2K tokens each. How many GiB does the cache take?",
    held / GiB,
    unit="GiB",
    solution=f"Each user's cache takes {held / 64 / 2**20:g} MiB. The 64 caches take half as much memory as the "
    f"weights ({q.weights(QWEN) / GiB:.1f} GiB).",
    traps={49.0: "This is the result for all 28 query heads. Only the 4 KV heads are stored."},
)

# %% tags=["hide"]
points = [int(60 * GiB // q.kv_request(MODEL, tokens=n)) for n in (8192, 32768, 131072)]
exact = 60 * GiB / q.kv_request(MODEL, tokens=131072)
assert points == [60, 15, 3]
exercise(
    f"**2.** A pool of 60 GiB serves {NAME}. How many requests of 128K fit? (Work out 8K first, then 32K.)",
    points[2],
    unit="requests",
    within=0,
    solution=f"A request of 8K takes {q.kv_request(MODEL, tokens=8192) / GiB:.3g} GiB, so {points[0]} fit. At 32K, {points[1]} fit. At "
    f"128K, {exact:.2f} would fit, rounded down to {points[2]}.",
    traps={points[2] + 1.0: f"Round {exact:.2f} down, because one more request does not fit."},
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: why does a server that answered instantly all morning keep people waiting at noon?",
    "The cache is bytes per token × tokens × requests. At noon, requests are longer, and more of them arrive. The two "
    "factors multiply. When the pool is full, requests wait or are preempted. The server does not crash.",
)

# %% tags=["hide"]
quiz(
    item(
        "What does “weights are a fixed cost, the KV cache is shaped by traffic” mean?",
        right(
            "Weights do not change with load, but the cache grows with tokens and requests",
            "The server loads the weights once.",
        ),
        wrong("Both grow while the server runs", "The weights keep their size. Only the cache grows."),
        wrong(
            "The cache is fixed because the engine reserves it",
            "The pool is fixed, but the part that traffic uses is not.",
        ),
    ),
    item(
        "Interview question: why plan for concurrency and not only for context length?",
        wrong(
            "Requests share one cache, so only the longest request matters",
            "Requests share the memory, but each one stores its own keys and values.",
        ),
        right("Every active request has its own keys and values", "Concurrency multiplies the cache."),
        wrong(
            "Concurrency changes the bytes per token",
            "The model and the cache's format fix the bytes per token.",
        ),
    ),
    item(
        "On logarithmic axes, what does the memory limit look like?",
        right("A straight line downwards", "On this line, the product of length and number is constant."),
        wrong("A horizontal line", "A horizontal line would mean that the length does not matter."),
        wrong(
            "A curve that flattens out",
            "The limit is a curve on linear axes, but a straight line on logarithmic axes.",
        ),
    ),
)

# %% [markdown]
# ## Next
#
# - Try it:
#   [four users of 128K in the sizer](../sizer/index.md?model=meta-llama--Llama-3.1-8B-Instruct&context=128K&prompt=127K&output=400&concurrent=4&burst=1&spares=0),
#   then make the requests shorter
# - [MHA, GQA, MQA](04-sharing-heads.py): less cache per token
# - [Llama 3.1 8B on other GPUs](../models/meta-llama--Llama-3.1-8B-Instruct/index.md) and [other models on an
#   H100](../gpus/h100-sxm-80gb/index.md)
