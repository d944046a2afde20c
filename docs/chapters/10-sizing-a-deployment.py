# %% [markdown]
# # Sizing a deployment: from a workload to GPUs
#
# This chapter turns a workload into a number of GPUs. One example shows which inputs change the answer.
#
# ## How many GPUs does a retrieval application need?
#
# A retrieval application (RAG) runs on Llama 3.1 70B, with weights and cache in 8 bits. A prompt has 6,000 tokens, including
# the retrieved documents and the conversation so far. At the peak, 64 requests are in flight. How many H100s or H200s does
# the application need?

# %% tags=["hide"]
from math import ceil

import kvreport
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    bars,
    choose,
    claim,
    curves,
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
MODEL = "llama-3.1-70b"
NAME = q.catalog.model(MODEL).name
room(q, MODEL, "H100", devices=2, weights="fp8")  # stops here where another model is too large
GB, GiB = 10**9, 2**30
claim(q.kv_per_token(MODEL, "fp8"), 163_840)
claim(q.weights(MODEL, "fp8") / GB, 72.7, within=0.001)
claim(q.memory("H100"), 84_943_715_697, within=0.002)
claim(q.memory("H200"), 150_109_945_856, within=0.002)

# %% tags=["hide"]
totals = {n: q.weights(MODEL, "fp8") + 64 * q.kv_request(MODEL, "fp8", tokens=n) for n in (3000, 6000, 12000)}
guess(
    "If the prompts become half as long, what percentage of the memory for weights and cache does the application still need?",
    100 * totals[3000] / totals[6000],
    unit="%",
    low=1,
    high=100,
    why=f"The cache halves, from {64 * q.kv_request(MODEL, 'fp8', tokens=6000) / GB:.1f} GB to "
    f"{64 * q.kv_request(MODEL, 'fp8', tokens=3000) / GB:.1f} GB. The weights stay at {q.weights(MODEL, 'fp8') / GB:.1f} GB.",
)

# %% [markdown]
# ## Seven inputs
#
# Seven inputs determine most of the result:
#
# 1. **The model**: its size, and its method of reducing the cache ([shared KV heads](04-sharing-heads.py),
#    [a latent](05-one-latent-for-all.py) or [sliding windows](06-forgetting-on-purpose.py)).
# 2. **The precision** of the weights and, separately, [of the cache](07-weights-are-not-the-cache.py).
# 3. **The context**: the maximum length that must work, and the expected average.
# 4. **Concurrency**: the number of requests in flight at the same time, not the number of accounts.
# 5. **Request rate**: requests per minute. The rate times the time per request is the number in flight.
# 6. **Latency**: time to the first token, time per output token.
# 7. **Burst factor**: peak divided by average.
#
# Two more choices change the final result: how many replicas may fail (N+1), and which engine you use.
#
# ## From arrivals to replicas in four lines

# %% tags=["hide"]
formula(
    "requests in flight  =  requests per second × seconds per request   (Little's law)",
    "peak                =  requests in flight × burst factor",
    "memory              =  weights + peak × tokens × bytes per token + engine's reserve",
    "replicas            =  ceil(peak / requests that one replica holds) + spares",
)

# %% tags=["hide"]
flight = 5000 * 6 / 3600 * 12
claim(flight, 100)
guess(
    "5,000 employees each send six requests an hour, and an answer takes twelve seconds. How many requests are in flight?",
    flight,
    unit="requests",
    low=0,
    high=100_000,
    why="5,000 × 6 / 3,600 = 8.3 requests a second, times 12 seconds. One request is in flight for every fifty employees.",
)

# %% tags=["hide"]
replica = kvreport.estimate(
    MODEL, gpu="H100", context_tokens=6000, tensor_parallel=2, weights="fp8", kv="fp8"
)
instrument(
    Instrument(
        f"From people to GPUs: {NAME} in FP8 on replicas of two H100s",
        (
            Slider("people", "People", (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000), 5),
            Slider("rate", "Requests per person per minute", (0.05, 0.1, 0.2, 0.5, 1, 2), 1, "requests.2"),
            Slider("seconds", "End-to-end latency (s)", (3, 6, 12, 24, 48), 2, "s"),
            Slider("tokens", "Tokens per request", (1000, 2000, 3000, 6000, 12_000, 24_000), 3),
        ),
        (
            Output("flight", "Requests in flight", "requests_in_flight", ("people", "rate", "seconds")),
            Output(
                "request",
                "Memory of one request, per GPU",
                "request_bytes",
                ("constant", "terms", "tokens"),
                "GiB.2",
            ),
            Output(
                "each", "Requests that a replica holds", "num_requests", ("pool", "block", "kept", "request")
            ),
            Output("replicas", "Replicas of two GPUs", "replicas_needed", ("flight", "each")),
            Output("gpus", "H100s", "product", ("replicas", 2)),
        ),
        {
            "constant": replica.plan.profile.flat[0],
            "terms": list(replica.plan.profile.flat[1]),
            "pool": replica.budget.kv_pool_bytes,
            "block": replica.plan.block_bytes,
            "kept": replica.plan.kept_blocks,
        },
        rows=((5, 1, 2, 3), (5, 1, 2, 2), (5, 1, 2, 4), (5, 1, 4, 3), (7, 1, 2, 3), (5, 3, 2, 3)),
    )
)

# %% [markdown]
# ## Worked example: GPUs by division

# %%
rows = []
for tokens in (3000, 6000, 12000):
    cache = 64 * q.kv_request(MODEL, "fp8", tokens=tokens)
    total = cache + q.weights(MODEL, "fp8")
    rows.append(
        [
            f"{tokens:,}",
            q.kv_request(MODEL, "fp8", tokens=tokens) / GB,
            cache / GB,
            total / GB,
            ceil(total / q.memory("H100")),
            ceil(total / q.memory("H200")),
        ]
    )

table(
    f"GPUs for 64 requests on {NAME} by simple division, without engine reserve; weights and cache in 8 bits",
    [
        "Tokens per request",
        "GB per request",
        "Cache of all requests, GB",
        "With weights, GB",
        "H100s",
        "H200s",
    ],
    rows,
    mark=1,
)

# %% tags=["hide"]
assert [row[4] for row in rows] == [2, 2, 3]
assert [row[5] for row in rows] == [1, 1, 2]
choose(
    "By division, one H200 is enough at 6,000 tokens. Will it serve the 64 requests?",
    wrong(
        "Yes: the memory is large enough",
        "The division leaves no memory for the engine itself.",
    ),
    right(
        "Not reliably",
        f"The engine's reserve reduces the number to {q.fits(MODEL, 'H200', tokens=6000, weights='fp8', kv='fp8')}, and "
        "the estimate has a margin of error.",
    ),
    wrong(
        "No: the weights do not fit",
        f"The weights take {q.weights(MODEL, 'fp8') / GiB:.1f} of {q.memory('H200') / GiB:.1f} GiB.",
    ),
)

# %% [markdown]
# This simple division ignores two facts. An engine reserves memory on every GPU, and tensor parallelism splits a model over one, two,
# four or eight GPUs, but not over three. With an engine, the following numbers of requests fit:

# %%
matrix = kvreport.matrix(
    models="meta-llama/Llama-3.1-70B-Instruct",
    gpus="h100-sxm-80gb,h200-sxm-141gb",
    tensor_parallel=[1, 2, 4],
    contexts=[3000, 6000, 12000],
    weights=["fp8"],
    kv=["fp8"],
)
matrix["replica"] = matrix["tensor_parallel"].astype(str) + " × " + matrix["gpu"].str[:4].str.upper()
held = matrix.pivot(index="replica", columns="context_tokens", values="max_concurrent_requests")
held = held.loc[["2 × H100", "4 × H100", "1 × H200", "2 × H200"]]

table(
    "Requests that fit on one replica (estimate for vLLM with its defaults)",
    ["Replica", "3,000 tokens each", "6,000", "12,000"],
    held,
)

# %% tags=["hide"]
assert held.loc["2 × H100", 12000] < 64 < held.loc["2 × H200", 12000]
assert 0 < held.loc["1 × H200", 6000] < 80
five = {
    context: kvreport.size(
        "meta-llama/Llama-3.1-70B-Instruct",
        gpus=["H100"],
        context=context,
        concurrent=5,
        weights=["fp8"],
        kv=["fp8"],
    )
    for context in (131_072, 8192)
}
assert [int(found.to_frame().iloc[0]["devices"]) for found in five.values()] == [4, 2]

# %% [markdown]
# Two H100s hold {{ fits("llama-3.1-70b", "H100", tokens=6000, tp=2, weights="fp8", kv="fp8") as requests }} at 6,000 tokens and
# {{ fits("llama-3.1-70b", "H100", tokens=12000, tp=2, weights="fp8", kv="fp8") as requests }} at 12,000. Two H200s hold
# {{ fits("llama-3.1-70b", "H200", tokens=12000, tp=2, weights="fp8", kv="fp8") as requests }} of 12,000 tokens. One H200 holds
# {{ fits("llama-3.1-70b", "H200", tokens=6000, weights="fp8", kv="fp8") as requests }} at 6,000, just below 64. The size of
# the pool is uncertain by ± {{ uncertainty("llama-3.1-70b", "H200", tokens=6000, weights="fp8", kv="fp8") as GiB.1 }}, about
# {{ uncertainty("llama-3.1-70b", "H200", tokens=6000, weights="fp8", kv="fp8") / request("llama-3.1-70b", "H200", tokens=6000, weights="fp8", kv="fp8") as requests.1 }}
# more or fewer.
#
# A published plan for 12,000 tokens uses three H200s. By its own figures, two are enough, and the third is a spare
# (see [the claims ledger](../evidence/claims/index.md#s2-rag-three-h200)).

# %% tags=["hide"]
bars(
    "Memory of 64 requests of three lengths, compared with the memory of two H100s. The weights are the same in every bar.",
    {
        f"{n:,} tokens": {
            "weights": ("weights", q.weights(MODEL, "fp8")),
            "cache": ("KV cache", 64 * q.kv_request(MODEL, "fp8", tokens=n)),
        }
        for n in (3000, 6000, 12000)
    },
    limit_bytes=2 * q.memory("H100"),
    limit_name="two H100s",
    label="Length of each request",
)

# %% [markdown]
# ## Burst and N+1
#
# If 64 is only the average (twenty requests per second, each taking 3.2 seconds), the peak may be one and a half times as high.

# %%
average = 20 * 3.2
rows = []
for name, factor, spare in (
    ("average", 1.0, 0),
    ("burst of 1.5", 1.5, 0),
    ("burst of 1.5, one replica may fail", 1.5, 1),
):
    peak = ceil(average * factor)
    each = q.fits(MODEL, "H100", tokens=6000, tp=2, weights="fp8", kv="fp8")
    replicas = ceil(peak / each) + spare
    rows.append([name, peak, each, replicas, 2 * replicas])

table(
    "Replicas of two H100s each, 6,000 tokens",
    ["Load", "Requests at the peak", "Requests per replica", "Replicas", "H100s"],
    rows,
)

# %% tags=["hide"]
claim(average, 64)
assert rows[0][3] <= rows[1][3] < rows[2][3]
contexts = [1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000]
curves(
    "Number of requests that fit on a replica, by context length.",
    x=contexts,
    lines={
        "2 × H100": [q.fits(MODEL, "H100", tokens=n, tp=2, weights="fp8", kv="fp8") for n in contexts],
        "2 × H200": [q.fits(MODEL, "H200", tokens=n, tp=2, weights="fp8", kv="fp8") for n in contexts],
    },
    x_title="Context per request (tokens)",
    y_title="Concurrent requests",
    y_log=True,
    x_log=False,
    x_tokens=False,
    ruler=(64, "64 wanted"),
)

# %% [markdown]
# ## On Kubernetes
#
# On Kubernetes, observe the following rules:
#
# - One pod is one replica with all its GPUs. Request exactly as many GPUs as tensor-parallel × pipeline-parallel × data-parallel ranks
#   (`nvidia.com/gpu: 2`). GPU requests and limits must be equal, and a GPU is not shared.
# - The pod's memory request must cover model loading, the tokenizer and KV offload to host memory. GPU memory is limited by
#   `--gpu-memory-utilization`.
# - Scale on waiting requests or on KV cache usage, not on GPU utilization. GPU utilization is high at every load.
# - A new replica loads {{ weights("llama-3.1-70b", "fp8") as GB.0 }} before it answers, so until then the running replicas must
#   handle the burst.

# %% tags=["hide"]
takeaway(
    "Size with the average length, check that the longest request fits, plan for the peak, and add the spare replica at the end."
)

# %% [markdown]
# ## Limitations
#
# - If lengths differ, the *average* length determines how many requests fit, and the longest determines whether the engine starts.
# - Time can be the limit before memory. Check [the table of step times](09-prefill-and-decode.py) for your batch.
# - Try a lower limit on the context first, because it needs no hardware. At 16K instead of 128K, the largest cache of a
#   request is
#   {{ 8 times = kv_request("llama-3.1-70b", "fp8", tokens=131072) / kv_request("llama-3.1-70b", "fp8", tokens=16384) }} smaller.
#
# ## Exercises

# %% tags=["hide"]
eight = q.fits(MODEL, "H100", tokens=6000, tp=2, weights="fp8", kv="fp8")
sixteen = q.fits(MODEL, "H100", tokens=6000, tp=2, weights="fp8", kv="bf16")
claim(eight / sixteen, 2, within=0.06)
exercise(
    f"**1.** A replica of two H100s holds {eight} requests of 6,000 tokens with an 8-bit cache. The team switches the "
    "cache to 16 bits. How many "
    "replicas do 64 requests need now, without spares?",
    ceil(64 / sixteen),
    unit="replicas",
    within=0,
    solution=f"A replica then serves {sixteen} requests. The result is 64 / {sixteen}, rounded up, instead of {ceil(64 / eight)}.",
    traps={float(2 * ceil(64 / sixteen)): "This is the number of GPUs. Each replica has two GPUs."},
)

# %% tags=["hide"]
peak = ceil(2000 * 0.5 / 60 * 6 * 1.5)
exercise(
    "**2.** Each of 2,000 people sends a request every two minutes. An answer takes six seconds, and the peak is 1.5 times the "
    "average. How many requests "
    "are in flight at the peak?",
    peak,
    unit="requests",
    within=0,
    solution="2,000 × 0.5 / 60 × 6 × 1.5 = 150.",
    traps={
        100.0: "This is the average number. Multiply it by the burst factor to get the peak.",
        3000.0: "This multiplies the people by the burst factor. Use Little's law to get the requests in flight.",
    },
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: how do you get from accounts to GPUs?",
    "Requests per second times seconds per request gives the requests in flight. Multiply by the burst factor to get the "
    "peak. Divide the peak by the number of requests that fit on one replica, round up, and add a spare.",
)

# %% tags=["hide"]
quiz(
    item(
        "How do requests per second become requests in flight?",
        right(
            "Multiply by the seconds that each request takes",
            "By Little's law, the product is the average number of concurrent requests.",
        ),
        wrong("Multiply by the number of users", "The rate already includes all users."),
        wrong("Divide by the number of GPUs", "The number of GPUs is the result of sizing, not an input."),
    ),
    item(
        "Does halving the context halve the hardware?",
        wrong("Yes", "Only the cache shrinks. The weights and the reserve stay the same."),
        right(
            "Only the part for the cache",
            "The cache of each request halves, but the weights and the engine's reserve do not change.",
        ),
        wrong("The context does not matter", "The context multiplies the cache of every request."),
    ),
    item(
        "What is the cheapest way to serve more requests?",
        right(
            "Cap the context length that the application accepts",
            "A cap costs nothing, and many applications never use the model's limit.",
        ),
        wrong("Buy GPUs with more compute", "Memory, not compute, limits the number of requests."),
        wrong(
            "Quantize the weights to 2 bits",
            "Quantization costs quality and does not change the cache of a request.",
        ),
    ),
)

# %% [markdown]
# ## Next
#
# - Try it:
#   [this example in the sizer](../sizer/index.md?model=meta-llama--Llama-3.1-70B-Instruct&context=6K&prompt=5600&output=400&concurrent=64&burst=1&spares=0&weights=fp8&kv=fp8),
#   with {{ 5,800 tokens = 5600 + 400 / 2 }} per request on average, or
#   [the same with requests twice as long](../sizer/index.md?model=meta-llama--Llama-3.1-70B-Instruct&context=12K&prompt=11600&output=400&concurrent=64&burst=1&spares=0&weights=fp8&kv=fp8)
# - The context decides the hardware:
#   [five users with 128K each](../sizer/index.md?model=meta-llama--Llama-3.1-70B-Instruct&gpu=h100-sxm-80gb&context=128K&concurrent=5&weights=fp8&kv=fp8)
#   need four H100s, but
#   [five users with 8K each](../sizer/index.md?model=meta-llama--Llama-3.1-70B-Instruct&gpu=h100-sxm-80gb&context=8K&concurrent=5&weights=fp8&kv=fp8)
#   need two
# - [Beyond one GPU](11-beyond-one-gpu.py), and [the whole chain of decisions](14-one-decision-chain.py) on one model
# - [Aisle](https://github.com/mohan-sanjana/aisle), "The KV cache, the silent capacity killer" and "The seven parameters",
#   the sources of the example and of the list
