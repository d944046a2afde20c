# %% [markdown]
# # One decision chain: from the fewest GPUs to cost per million tokens
#
# The other chapters explain one effect each. This chapter combines them. It takes one model and one workload through ten
# decisions, each based on the one before. Every number is computed, so you can download the chapter, change the first cell
# and run the chain for your own model. The tables then show your model, but the text still describes this one.
#
# ## From one request to a price: which deployment?
#
# You will serve Llama 3.1 70B to people who work with documents. A request has a prompt of 7,000 tokens and an answer of
# 500. Ten requests arrive per second. People want the first token within two seconds and then at least twenty tokens per
# second. You use H200s. What do you deploy, and what does a million tokens cost?

# %%
from math import ceil, log2

import kvreport
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    bars,
    choose,
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
    table,
    takeaway,
    wrong,
)

MODEL, GPU = "llama-3.1-70b", "H200"
PROMPT, OUTPUT = 7000, 500  # tokens
LONGEST = 2 ** ceil(log2(PROMPT + OUTPUT))  # the maximum length that the engine is started with
ARRIVALS = 10.0  # requests per second
TTFT, TPOT = 2.0, 0.05  # seconds to the first token, seconds per output token
PRICE = 4.0  # per GPU-hour, in whatever currency you pay; an assumption, not a quote
EFFICIENCY = 0.6  # share of the lower bound's speed that a good server reaches

q = quantities()
NAME = q.catalog.model(MODEL).name
GiB = 2**30
MEAN = PROMPT + OUTPUT // 2  # what a request holds on average while it is answered
SIZES = tuple(n for n in (1, 2, 4, 8) if q.heads(MODEL) % n == 0)  # GPUs of one replica


def estimate(context: int = LONGEST, weights: str = "fp8", kv: str = "fp8", **layout: int):
    """One replica in a layout, vLLM's defaults."""
    return kvreport.estimate(MODEL, gpu=GPU, context_tokens=context, weights=weights, kv=kv, **layout)


# %% tags=["hide"]
claim(q.kv_per_token(MODEL), 327_680)
claim(q.kv_per_token(MODEL, "fp8"), 163_840)
claim(q.memory(GPU), 150_109_945_856, within=0.002)

# %% [markdown]
# ## The chain in one picture
#
# Each line uses the results of the lines above:

# %% tags=["hide"]
formula(
    "GPUs       =  fewest GPUs with memory for weights + reserve + one request of the maximum length",
    "batch      =  pool / cache of an average request",
    "step       =  max(bytes read / bandwidth, operations / rate)",
    "throughput =  batch / step",
    "in flight  =  arrivals × seconds per request",
    "replicas   =  in flight / batch",
    "cost       =  price × GPUs / throughput",
)

# %% [markdown]
# ## Worked example: ten decisions
#
# ### 1. How many GPUs does the model need?
#
# Compare one, two, four and eight GPUs with 16-bit and 8-bit weights. The model fits if the weights and the engine's reserve
# leave room for one request of the maximum length.

# %% tags=["hide"]
slices = {}
for weights in ("bf16", "fp8"):
    for ranks in SIZES:
        slices[weights, ranks] = estimate(weights=weights, kv="bf16", tensor_parallel=ranks)
fewest = {
    w: min((n for n in SIZES if slices[w, n].max_concurrent_requests_by_memory), default=SIZES[-1])
    for w in ("bf16", "fp8")
}
RANKS = min(2 * fewest["fp8"], SIZES[-1])  # twice the fewest, so that a batch fits too
guess(
    f"What is the smallest number of {GPU}s that the model needs with 16-bit weights?",
    fewest["bf16"],
    unit="GPUs",
    low=1,
    high=64,
    why=f"The weights take {q.weights(MODEL) / GiB:.0f} GiB. One {GPU} has {q.memory(GPU) / GiB:.0f} GiB, and the engine "
    f"uses 92% by default. With 8-bit weights, the smallest number is {fewest['fp8']}.",
)

# %%
table(
    f"One replica of {NAME} by weights and tensor-parallel size (16-bit cache, maximum length {LONGEST // 1024}K)",
    ["Weights", "GPUs", "Weights per GPU, GiB", "Pool per GPU, GiB", f"Requests of {LONGEST // 1024}K"],
    [
        [
            w,
            n,
            one.budget.weights / GiB,
            one.budget.kv_pool_bytes / GiB,
            one.max_concurrent_requests_by_memory,
        ]
        for (w, n), one in slices.items()
    ],
)

# %% tags=["hide"]
takeaway(
    f"Decision 1: 8-bit weights. The smallest number of GPUs is then {fewest['fp8']} instead of {fewest['bf16']}. Test "
    "the quality on your own texts. "
    f"Plan for twice that number, {RANKS} GPUs, so that a larger batch fits alongside the weights."
)

# %% [markdown]
# ### 2. Which cache format?
#
# The cache format determines how many requests fit in one batch and share each read of the weights.

# %% tags=["hide"]
base = {kv: estimate(kv=kv, tensor_parallel=RANKS) for kv in ("bf16", "fp8")}
batch_of = {
    kv: int(one.budget.kv_pool_bytes // one.plan.profile.request_bytes(MEAN)) for kv, one in base.items()
}
guess(
    f"On {RANKS} × {GPU} with a 16-bit cache, {batch_of['bf16']} average requests fit. How many fit with an FP8 cache?",
    batch_of["fp8"],
    unit="requests",
    low=1,
    high=10_000,
    why="A token takes half the bytes, and the pool stays the same. The result can be one more than double, because both "
    "numbers are rounded down.",
)

# %%
table(
    f"Requests of {MEAN:,} tokens on {RANKS} × {GPU} with 8-bit weights",
    ["Cache", "Bytes per token and GPU", "Requests of average length in the pool"],
    [[kv, base[kv].kv_bytes_per_token_per_gpu, batch_of[kv]] for kv in base],
)

# %% tags=["hide"]
takeaway(
    "Decision 2: use an FP8 cache. This format doubles the batch and halves the bytes that each step reads per request."
)

# %% [markdown]
# ### 3. What limits the batch: memory or compute?
#
# Decode is memory-bound until enough requests share the weights.

# %% tags=["hide"]
knee = q.knee(MODEL, GPU, tp=RANKS, weights="fp8")
guess(
    f"Ignoring the caches, at what batch size would compute limit a decode step on {RANKS} × {GPU} with 8-bit weights?",
    knee,
    unit="requests",
    low=1,
    high=100_000,
    why=f"Only {batch_of['fp8']} average requests fit, so memory limits the batch before compute does. Reading the "
    "caches moves the limit to even larger batches.",
)

# %%
rows = []
for n in (1, batch_of["fp8"], knee):
    reading = q.decode_time(MODEL, GPU, tokens=0, tp=RANKS, weights="fp8")  # all weights but the embedding
    caches = n * q.kv_request(MODEL, "fp8", tokens=MEAN, tp=RANKS) / q.bandwidth(GPU)
    multiplying = 2 * n * q.active_parameters(MODEL) / RANKS / q.peak(GPU, "fp8")
    rows.append([n, 1e3 * reading, 1e3 * caches, 1e3 * multiplying])
table(
    f"Minimum time of a decode step on {RANKS} × {GPU}, in ms; the last batch exceeds memory",
    ["Requests", "Reading weights", "Reading caches", "Multiplying by the weights"],
    rows,
)

# %% tags=["hide"]
assert rows[1][1] + rows[1][2] > rows[1][3]
claim(
    rows[1][1] + rows[1][2],
    1e3 * q.decode_time(MODEL, GPU, batch=batch_of["fp8"], tokens=MEAN, tp=RANKS, weights="fp8", kv="fp8"),
    within=0.001,
)
takeaway(
    f"Decision 3: fill the memory. The batch of {batch_of['fp8']} stays below {knee}, so each added request makes tokens cheaper."
)

# %% [markdown]
# ### 4. Is it fast enough?
#
# The table shows each step's lower bound, and the bound divided by an assumed efficiency of 0.6. In
# [our measurements on an H100](../evidence/measured/index.md#e5), with plain PyTorch code instead of an engine, prefill reached 0.47 to 0.69 of the
# bound's speed, and decode with a small batch 0.48.


# %%
def seconds(ranks: int, batch: int) -> float:
    """Least time of one decode step of a replica."""
    return q.decode_time(MODEL, GPU, batch=batch, tokens=MEAN, tp=ranks, weights="fp8", kv="fp8")


def first_token(ranks: int, tokens: int = PROMPT) -> float:
    """Least time to read a prompt."""
    return q.prefill_time(MODEL, GPU, tokens=tokens, tp=ranks, weights="fp8", kv="fp8")


replicas = {n: estimate(tensor_parallel=n) for n in SIZES}
batches = {
    n: max(int(one.budget.kv_pool_bytes // one.plan.profile.request_bytes(MEAN)), 0)
    for n, one in replicas.items()
}
table(
    "Latency of a replica whose memory is full",
    [
        "GPUs",
        "Batch",
        "Minimum step, ms",
        "Step at 0.6, ms",
        "Minimum time to first token, s",
        "First token at 0.6, s",
    ],
    [
        [
            n,
            batches[n],
            1e3 * seconds(n, max(batches[n], 1)),
            1e3 * seconds(n, max(batches[n], 1)) / EFFICIENCY,
            first_token(n),
            first_token(n) / EFFICIENCY,
        ]
        for n in batches
    ],
)

# %% tags=["hide"]
meets = [
    n
    for n in SIZES
    if batches[n] and seconds(n, batches[n]) / EFFICIENCY <= TPOT and first_token(n) / EFFICIENCY <= TTFT
]
assert meets == [1, 2, 4, 8]
verdict = f"{RANKS} GPUs meet both targets with a full batch"
if RANKS not in meets:
    verdict = f"{RANKS} GPUs miss a target with a full batch"
    verdict += f", and {min(meets)} GPUs meet both" if meets else ", and so does every other number here"
takeaway(
    f"Decision 4: {verdict}."
    + (f" One GPU with a batch of {batches[1]} would also meet them." if RANKS > 1 and 1 in meets else "")
)

# %% [markdown]
# ### 5. How much throughput for how much latency?
#
# There is a trade-off between throughput and latency. Each point is the largest batch that fits in memory and meets the step
# time.

# %% tags=["hide"]
steps = [4, 5, 6, 8, 10, 15, 20, 30, 50]


def frontier(ranks: int, context: int) -> list[float | None]:
    """Tokens per second and GPU at the largest batch that memory holds and that meets each step time."""
    one = estimate(context=max(context, 1024), tensor_parallel=ranks)
    held = int(one.budget.kv_pool_bytes // one.plan.profile.request_bytes(context))
    times = [
        q.decode_time(MODEL, GPU, batch=n, tokens=context, tp=ranks, weights="fp8", kv="fp8")
        for n in range(1, held + 1)
    ]
    made: list[float | None] = []
    for target in steps:
        batch = sum(time <= target / 1e3 for time in times)
        made.append(batch / times[batch - 1] / ranks if batch else None)
    return made


curves(
    f"Throughput per GPU by step time on replicas of {RANKS} × {GPU}, for three lengths. Once memory is full, "
    "more time gains nothing.",
    x=steps,
    lines={f"{n // 1000 or 1}K tokens each": frontier(RANKS, n) for n in (2000, MEAN, 16_000)},
    x_title="Allowed time per output token (ms)",
    y_title="Tokens per second and GPU, at most",
    x_log=False,
    x_tokens=False,
)

# %% tags=["hide"]
takeaway(
    "Decision 5: use the largest batch that fits in memory. Throughput peaks there, and the step still meets your target."
)

# %% [markdown]
# ### 6. How many requests are in flight?
#
# By Little's law, the number is the arrival rate times the seconds per request. Batch and efficiency come from decision
# 4.

# %%
batch, step = batches[RANKS], seconds(RANKS, max(batches[RANKS], 1)) / EFFICIENCY
stay = first_token(RANKS) / EFFICIENCY + OUTPUT * step
in_flight = ARRIVALS * stay
decode_load = ARRIVALS * OUTPUT * step / max(batch, 1)  # replicas that decode alone keeps busy
prefill_load = ARRIVALS * first_token(RANKS) / EFFICIENCY  # replicas that prefill alone keeps busy
table(
    f"Requests in flight at {ARRIVALS:g} arrivals per second",
    ["Quantity", "Value"],
    [
        ["seconds per request", stay],
        ["requests in flight", in_flight],
        ["replicas kept busy by decode", decode_load],
        ["replicas kept busy by prefill", prefill_load],
    ],
)

# %% tags=["hide"]
choose(
    "Which of the last two rows determines the number of replicas?",
    wrong(
        "Decode: it takes most of a request's time",
        "Many requests share each decode step. A prompt does not share its computation.",
    ),
    right(
        "Their sum: prefill and decode use the same GPUs",
        "While a replica reads a prompt, its running requests wait.",
    ),
    wrong(
        "Neither: ten requests per second is not much",
        f"A prompt of {PROMPT:,} tokens is a lot of work.",
    ),
)

# %% tags=["hide"]
needed = ceil(decode_load + prefill_load)
claim(decode_load + prefill_load, 5.71, within=0.01)
takeaway(
    f"Decision 6: plan {needed} replicas of {RANKS} GPUs, plus spares. Prefill limits workloads with long prompts and short answers."
)

# %% [markdown]
# ### 7. Larger replicas, or more replicas?
#
# Eight GPUs can hold eight replicas of one GPU, four of two, two of four, or one of eight.

# %%
rows = []
for n in SIZES:
    count = 8 // n
    batch = batches[n]
    rate = count * batch / seconds(n, batch) if batch else 0.0
    rows.append(
        [
            f"{count} × TP{n}",
            count * batch,
            f"{1e3 * seconds(n, max(batch, 1)):.1f}",
            f"{rate:,.0f}",
            f"{first_token(n):.2f}",
        ]
    )
table(
    f"Best case for eight {GPU}s with full memory, without communication",
    ["Layout", "Requests", "Step, ms", "Decode tokens per second, at most", "First token, s"],
    rows,
)

# %% tags=["hide"]
assert rows[0][1] < rows[1][1] < rows[2][1] < rows[3][1]
assert first_token(1) > first_token(2) > first_token(4) > first_token(8)
takeaway(
    "Decision 7: larger groups serve more requests and start answers sooner, because eight GPUs store fewer copies "
    "of the weights, and more GPUs share a prompt. Communication, "
    "which these bounds ignore, reduces "
    f"this gain. Two or four GPUs per replica is the usual compromise. We stay with {RANKS}."
)

# %% [markdown]
# ### 8. Which layout?
#
# The table adds pipeline parallelism. All requests have the maximum length.

# %%
options = {
    "TP8": {"tensor_parallel": 8},
    "TP4, two replicas (DP2)": {"tensor_parallel": 4, "data_parallel": 2},
    "TP2, four replicas (DP4)": {"tensor_parallel": 2, "data_parallel": 4},
    "PP2 × TP4": {"pipeline_parallel": 2, "tensor_parallel": 4},
    "PP8": {"pipeline_parallel": 8},
}
laid = {
    name: estimate(**layout) for name, layout in options.items() if layout.get("tensor_parallel", 1) in SIZES
}
table(
    f"Eight {GPU}s by layout, requests of the maximum length",
    ["Layout", "Weights per GPU, GiB", "Pool per GPU, GiB", "Requests, whole deployment"],
    [
        [
            name,
            one.budget.weights / GiB,
            one.budget.kv_pool_bytes / GiB,
            one.max_concurrent_requests_by_memory,
        ]
        for name, one in laid.items()
    ],
)

# %% tags=["hide"]
share = replicas[RANKS].budget
drawings.gpu_layout(
    f"Decision 8: replicas of {RANKS} GPUs, as in decision 7, and {8 // RANKS} of them in each server of eight GPUs. A failure then stops one replica, and "
    "communication stays within each replica. TP8 serves more requests.",
    [
        (
            f"GPU {n}",
            [
                ("weights", f"weights 1/{RANKS}", share.weights / share.total_bytes),
                ("reserve", "", (share.activations + share.non_framework + share.graphs) / share.total_bytes),
                ("cache", f"batch {'ABCDEFGH'[n // RANKS]}", share.kv_pool_bytes / share.total_bytes),
            ],
        )
        for n in range(8)
    ],
    1,
)

# %% [markdown]
# For an MLA model, this table looks different ([chapter 11](11-beyond-one-gpu.py)).
#
# ### 9. One pool, or separate pools for prefill and decode?
#
# With separate pools, long prompts do not delay running answers. The ratio of prefill to decode GPUs assumes
# that both pools reach the same share of the roofline.

# %%
ratio = prefill_load / max(decode_load, 1e-9)  # of decision 6; the efficiency cancels
moved = q.kv_request(MODEL, "fp8", tokens=PROMPT)

# %% tags=["hide"]
guess(
    f"How many prefill GPUs does one decode GPU need for prompts of {PROMPT:,} tokens and answers of {OUTPUT:,}?",
    round(ratio, 1),
    unit="GPUs",
    low=0,
    high=100,
    digits=1,
    step="any",
    why="It is the ratio of the two loads in decision 6. If the pools reach different shares, the ratio is between "
    f"{ratio * EFFICIENCY:.1f} and {ratio / EFFICIENCY:.1f}. "
    f"Each request moves {moved / 1e9:.2f} GB of cache from one pool to the other.",
)

# %% tags=["hide"]
takeaway(
    "Decision 9: one pool. Prompts are fourteen times as long as answers and take most GPU time. Separate "
    "pools pay off if latency targets are strict."
)

# %% [markdown]
# ### 10. What does it cost?
#
# Cost per token is price per GPU-hour divided by tokens per GPU-hour. The price is an input, so enter your own.

# %%
gpu_seconds_decode = RANKS * decode_load / ARRIVALS / OUTPUT  # per output token
gpu_seconds_prefill = RANKS * prefill_load / ARRIVALS / PROMPT  # per prompt token
table(
    f"Cost on {RANKS} × {GPU} with full batches, at a price of {PRICE:g} per GPU-hour and an efficiency of {EFFICIENCY:g}",
    ["Tokens", "GPU-seconds per million", "Price per million"],
    [
        ["prompt", 1e6 * gpu_seconds_prefill, 1e6 * gpu_seconds_prefill / 3600 * PRICE],
        ["output", 1e6 * gpu_seconds_decode, 1e6 * gpu_seconds_decode / 3600 * PRICE],
    ],
)

# %% tags=["hide"]
step = decode_step(q, MODEL, GPU, weights="fp8", kv="fp8")
instrument(
    Instrument(
        f"Price of a million output tokens (decode only, one {GPU}, step time = lower bound ÷ {EFFICIENCY:g})",
        (
            Slider("batch", "Requests in the batch", (1, 2, 4, 8, 16, 32, 64), 4),
            Slider("context", "Tokens in each request", (1024, 2048, 4096, 8192, 16384, 32768), 3, "tokens"),
            Slider("price", "Price per GPU-hour", (1, 2, 3, 4, 5, 6, 8, 10), 3, "per hour.2"),
        ),
        (
            Output("time", "", "decode_seconds", ("step", "batch", "context")),
            Output("real", "Step", "ratio", ("time", EFFICIENCY), "ms.1"),
            Output("speed", "Throughput", "average_tokens", ("batch", "real"), "tokens/s.0"),
            Output("million", "", "ratio", (1e6, "speed")),
            Output("hours", "GPU-hours per million tokens", "ratio", ("million", 3600), "h.2"),
            Output(
                "cost", "Price per million tokens", "price_per_million", ("price", "speed"), "per million.2"
            ),
        ),
        {"step": step},
        rows=((0, 3, 3), (2, 3, 3), (4, 3, 3), (5, 3, 3), (4, 5, 3), (4, 0, 3)),
    )
)

# %% tags=["hide"]
bars(
    "Memory of one GPU of the chosen replica.",
    {
        f"TP{RANKS}, FP8": {
            "weights": ("weights", share.weights),
            "reserve": (
                "activations, libraries, graphs",
                share.activations + share.non_framework + share.graphs,
            ),
            "cache": ("KV cache", share.kv_pool_bytes),
        }
    },
    limit_bytes=share.total_bytes,
    limit_name=f"one {GPU}",
    label="Configuration",
)

# %% tags=["hide"]
takeaway(
    "Decision 10: an output token costs several times as much as a prompt token, because thousands of prompt tokens share each "
    "read of the weights."
)

# %% [markdown]
# ## Limitations
#
# - Bounds are not measurements. Run the chosen configuration, and compare [its log](12-what-the-log-says.py) and its
#   throughput with these numbers.
# - Lengths are distributions. [Replay your own traffic](13-how-real-traffic-fills-the-cache.py) to see how long the queue gets.
# - Shared prefixes make prompts cheaper. At a hit rate of one half, decision 6 changes first.
#
# ## Exercises
#
# To check the last exercise, change the first cell of the downloaded notebook.

# %% tags=["hide"]
short_prompt = q.prefill_time(
    MODEL, GPU, tokens=PROMPT, tp=RANKS, weights="fp8", kv="fp8", cached=PROMPT // 2
) / first_token(RANKS)
exercise(
    f"**1. (easy)** {RANKS} × {GPU} hold {batches[RANKS]} average requests with a pool of "
    f"{replicas[RANKS].budget.kv_pool_bytes / GiB:.1f} GiB per GPU. How many would fit in two "
    "pools of 50 GiB?",
    int(50 * GiB // replicas[RANKS].plan.profile.request_bytes(MEAN)),
    unit="requests",
    within=0.01,
    solution=f"One average request takes {int(replicas[RANKS].plan.profile.request_bytes(MEAN)) / GiB:.2f} GiB on each "
    "GPU. Divide and round down.",
    traps={
        float(
            2 * int(50 * GiB // replicas[RANKS].plan.profile.request_bytes(MEAN))
        ): "Every request is on both GPUs, so you cannot add the pools."
    },
)

# %% tags=["hide"]
exercise(
    "**2. (medium)** Half of every prompt is in the prefix cache. What percentage of the prefill bound remains?",
    100 * short_prompt,
    unit="%",
    within=0.02,
    solution="Slightly more than half, because the new tokens still attend to the cached ones.",
    traps={50.0: "The new tokens still attend to the cached half."},
)

# %% tags=["hide"]
alone = 1 / seconds(RANKS, 1)
exercise(
    f"**3. (medium)** By the bound, how many tokens per second does a single request get on {RANKS} × {GPU}?",
    alone,
    unit="tokens/s",
    within=0.05,
    solution=f"One step takes {1e3 * seconds(RANKS, 1):.1f} ms, nearly all for reading the weights. The batch of {batches[RANKS]} gets "
    f"{batches[RANKS] / seconds(RANKS, batches[RANKS]):,.0f} tokens per second in all.",
)

# %% tags=["hide"]
big = estimate(kv="bf16", tensor_parallel=4)
fp8_token = (
    "the same as"
    if big.kv_bytes_per_token_per_gpu == replicas[RANKS].kv_bytes_per_token_per_gpu
    else f"compared with {replicas[RANKS].kv_bytes_per_token_per_gpu:,}"
)
big_batch = int(big.budget.kv_pool_bytes // big.plan.profile.request_bytes(MEAN))
exercise(
    "**4. (hard)** Answers got worse with the FP8 cache, so you return to 16 bits and use four GPUs per replica. How "
    "many average requests fit?",
    big_batch,
    unit="requests",
    within=0.02,
    solution=f"A token takes {big.kv_bytes_per_token_per_gpu:,} bytes on each GPU, {fp8_token} in FP8 on {RANKS} GPUs. "
    f"The pool is larger, because each GPU holds a quarter of "
    "the weights.",
    traps={float(batches[4]): "This is the FP8 cache on four GPUs."},
)

# %% tags=["hide"]
longer = (
    f"Reading such a prompt takes at least {first_token(RANKS, 30_000):.1f} s on {RANKS} GPUs, and "
    f"{first_token(RANKS, 30_000) / EFFICIENCY:.1f} s at the assumed efficiency."
)
fold(
    "5. (open) If only the prompts grow, to 30,000 tokens, which decision changes first?",
    f"Decision 4. {longer} The target of two seconds needs more GPUs "
    "per replica, at least for prefill, or a prefix cache with a high hit rate."
    if first_token(RANKS, 30_000) / EFFICIENCY > TTFT
    else f"Decision 6. {longer} This still meets the target, but prefill needs more replicas.",
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: in what order do you decide?",
    "The order is number of GPUs, formats, batch, latency, requests in flight, layout, cost. Each decision uses the one before. "
    "Memory comes first, because batch and price follow from it.",
)

# %% tags=["hide"]
quiz(
    item(
        "Which decision comes first, and why?",
        right("The smallest number of GPUs", "All later decisions depend on the remaining memory."),
        wrong("The price", "The price multiplies the final result."),
        wrong("The number of replicas", "This number follows from the batch of one replica."),
    ),
    item(
        "The batch that fits in memory is far below the compute limit. What makes tokens cheaper?",
        wrong(
            "GPUs with more compute",
            "Bandwidth is the limit, and compute is idle.",
        ),
        right(
            "Fewer bytes per token, or more memory and bandwidth", "Both raise the batch or shorten the step."
        ),
        wrong("A smaller batch", "Fewer requests would share each read of the weights."),
    ),
    item(
        "Prompts are long and answers short. Where do the GPU-hours go?",
        wrong("To decode, as always", "This is true for chat with long answers."),
        right(
            "To prefill",
            f"Every prompt token is computed, and there are {PROMPT / OUTPUT:g} times as many prompt tokens as output tokens.",
        ),
        wrong("Half and half", "The ratio depends on the lengths, and here it is far from half."),
    ),
)

# %% [markdown]
# ## Next
#
# - Try it:
#   [this workload in the sizer](../sizer/index.md?model=meta-llama--Llama-3.1-70B-Instruct&context=8K&prompt=7000&output=500&concurrent=234&burst=1&spares=0&weights=fp8&kv=fp8)
# - [How many prefill GPUs per decode GPU?](../questions/prefill-decode-ratio.md)
# - Google DeepMind, ["How to Scale Your Model"](https://jax-ml.github.io/scaling-book/applied-inference/): the same chain on
#   TPUs, with exercises
