# %% [markdown]
# # How real traffic fills the KV cache: prefix hits, idle agents, prompt caching
#
# This chapter replays recorded requests of a chat assistant on Qwen2.5 7B. The replay excludes 829 of 12,031 ({{ 6.9% =
# 829 / 12031 }}), because their prompts exceed the model's limit of 32,768 tokens. The excluded requests contain a third of all
# prompt tokens.
#
# A capacity such as "52 requests of 8K tokens" assumes that all requests have the same length, share no prefix and never pause.
# In real traffic, lengths vary widely, prompts repeat earlier prompts, and conversations pause.
#
# ## What share of the prompts does one GPU's cache supply?
#
# The prompts of a chat assistant repeat earlier prompts: the same system prompt, and the same conversation one turn later. An
# unlimited cache would supply more than a third of all prompt tokens. The cache of one GPU is too small to keep most of them
# until they are needed again.

# %% tags=["hide"]
from statistics import fmean

import kvreport
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
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
    requires,
    right,
    table,
    takeaway,
    wrong,
)
from kvreport.traffic.answers import replay
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import DEFINITIONS, hit_counts
from kvreport.traffic.order import replay_in_order
from kvreport.traffic.replay_setup import separate_pools
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.trace import TracedRequest, build, with_outputs

GiB = 2**30
MODEL, GPU = "Qwen/Qwen2.5-7B-Instruct", "H100"
NAME = quantities().catalog.model(MODEL).name
found = replay("mooncake-conversation", MODEL, gpu=GPU, order_only=True, hit_rate=0.30)
requires(found.hit_rate_best or 0, MODEL, "cache of tokens")
pool = found.estimate.budget.kv_pool_bytes
prompts = found.trace.prompt_tokens
claim(found.too_long, 829)
claim(len(prompts), 12_031)
claim(sum(tokens for tokens in prompts if tokens >= 32_768) / sum(prompts), 1 / 3, within=0.02)
claim(found.hit_rate, 0.09, within=0.05)
claim(found.hit_rate / found.hit_rate_unlimited, 0.235, within=0.05)

# %% tags=["hide"]
guess(
    f"The KV pool of an {GPU} with {NAME} holds about {round(found.estimate.kv_pool_tokens or 0, -4):,} tokens. Over one hour of a chat assistant's traffic, "
    "what percentage of the possible hits "
    "does this pool reach?",
    100 * found.hit_rate / found.hit_rate_unlimited,
    unit="%",
    low=0,
    high=100,
    why="The next turn of a conversation comes minutes later. By then, millions of other tokens have passed through the cache.",
)

# %% [markdown]
# ## Lengths vary too much for an average
#
# The table shows three published traces: a chat assistant, long documents, and sessions of a coding agent.

# %%
traces = {
    name: open_trace(name) for name in ("mooncake-conversation", "mooncake-synthetic", "claude-code-sessions")
}


def at(values, share):
    return sorted(values)[round(share * (len(values) - 1))]


table(
    "Prompt lengths of three traces, in tokens",
    ["Trace", "Requests", "Median", "Mean", "95th percentile", "Longest request"],
    [
        [
            name,
            f"{len(trace):,}",
            f"{at(trace.prompt_tokens, 0.5):,}",
            f"{fmean(trace.prompt_tokens):,.0f}",
            f"{at(trace.prompt_tokens, 0.95):,}",
            f"{max(trace.prompt_tokens):,}",
        ]
        for name, trace in traces.items()
    ],
)

# %% [markdown]
# The pool divided by the mean length is the average number of requests that fit. When several long requests run at once, the pool
# can run out of free blocks while the answers grow. The engine then preempts the request admitted last and recomputes it later
# (see [PagedAttention](08-pages.py)).
#
# ## Hit rates have several definitions
#
# The leading blocks of a prompt that are still cached are *hits*. The hit rate of a trace depends on the definition. The table
# shows the hit rate of the synthetic trace, in a cache that evicts nothing, under five definitions:

# %%
synthetic = reuse(traces["mooncake-synthetic"])
unlimited = hit_counts(synthetic, None)
half = hit_counts(synthetic, None, warmup=0.5)
table(
    "Hit rate of the synthetic trace with an unlimited cache, by definition",
    ["Definition", "All requests", "Second half of the requests"],
    [[text, f"{unlimited.rate(name):.1%}", f"{half.rate(name):.1%}"] for name, text in DEFINITIONS.items()],
)

# %% tags=["hide"]
claim(unlimited.rate("full_blocks"), 0.661, within=0.002)
claim(half.rate("tokens"), 0.863, within=0.002)
# %% [markdown]
# The [Mooncake paper](https://arxiv.org/abs/2407.00079) reports 66% for this trace, which agrees with the third and fourth
# definitions. From here on, the hit rate is hit tokens divided by prompt tokens.
#
# ## A block is a hit if its reuse distance fits in the cache
#
# Think of a list of all blocks, in which the most recently used block comes first. When a block is needed again, its *reuse
# distance* is the number of blocks before it in the list.

# %% tags=["hide"]
formula(
    "a block is a hit  if  its reuse distance  <  blocks that the cache holds",
    "hit rate(size)  =  tokens of blocks with a reuse distance below the size  /  prompt tokens",
)

# %% [markdown]
# This rule holds for the LRU policy, which evicts the least recently used block. Reuse distances do not depend on the size of the
# cache, so one pass over a trace gives the hit rate for every size.
#
# ## Worked example: hit rate by cache size

# %% tags=["hide"]
guess(
    "How many GiB of KV cache are needed to reach a hit rate of 30%?",
    (found.cache_bytes_for_hit_rate or found.curve[-1].cache_bytes) / GiB,
    unit="GiB",
    low=1,
    high=100_000,
    why=f"One GPU's pool of {pool / GiB:.0f} GiB reaches {found.hit_rate:.1%}, and an unlimited cache reaches "
    f"{found.hit_rate_unlimited:.1%}.",
)

# %%
table(
    f"Hit rate by size of the KV cache, for a chat assistant on {NAME}",
    ["KV cache, GiB", "Hit rate, LRU", "Hit rate, best possible policy"],
    [
        [f"{point.cache_bytes / GiB:,.0f}", f"{point.lru:.1%}", f"{point.best:.1%}"]
        for point in found.curve[::3]
    ],
)

# %% tags=["hide"]
points = [point for point in found.curve if point.cache_bytes > 0]
curves(
    "Hit rate over one hour of chat traffic, by size of the KV cache. The gap between the lines shows the possible "
    "gain from a better eviction policy.",
    x=[point.cache_bytes / GiB for point in points],
    lines={
        "LRU": [100 * point.lru for point in points],
        "best possible": [100 * point.best for point in points],
    },
    x_title="KV cache (GiB)",
    y_title="Hit rate (%)",
    x_tokens=False,
)

# %% [markdown]
# The best possible policy is *Belady's policy*. It knows the future, evicts the block whose next use is furthest away, and does
# not store blocks that are never needed again. A better policy than LRU could gain at most the difference between the columns.
# Any further gain needs more memory.
#
# ## Turns of a conversation
#
# Suppose that the cache evicts nothing and that every turn adds the same number of tokens. The prompt of turn r + 1 then consists
# of r + 1 equal parts, and r of them are cached. For a conversation of R turns, the hit rate is (R − 1) / (R + 1):

# %%
PART = 64  # blocks of 16 tokens that every turn adds


def conversation(turns, clients=20):
    requests = (
        TracedRequest(
            float(turn * clients + client),
            16 * PART * (turn + 1),
            1,
            [f"{client}.{n}" for n in range(PART * (turn + 1))],
        )
        for turn in range(turns)
        for client in range(clients)
    )
    return build(requests, name=f"{turns} turns", block_tokens=16)


rates = {turns: hit_counts(reuse(conversation(turns)), None).rate() for turns in (1, 2, 4, 8, 16)}
table(
    "Hit rate of twenty growing conversations without eviction, by number of turns",
    ["Turns", "Hit rate, replayed", "Hit rate, (R − 1) / (R + 1)"],
    [[turns, f"{rate:.4f}", f"{(turns - 1) / (turns + 1):.4f}"] for turns, rate in rates.items()],
)

# %% tags=["hide"]
for turns, rate in rates.items():
    assert abs(rate - (turns - 1) / (turns + 1)) < 1e-12
# %% [markdown]
# In long conversations, the hit rate approaches 1. Agents depend on the cache, because almost all of each prompt was already part
# of the previous one.
#
# ## Queues and preemptions
#
# For the next table, kvreport replays the chat trace with a model of vLLM's scheduler and with step times from the
# [roofline](09-prefill-and-decode.py). Requests arrive at twice the recorded rate, at the recorded rate, and at a fifth of it:

# %%
runs = {
    speed: replay("mooncake-conversation", MODEL, gpu=GPU, speed=speed, curve=False)
    for speed in (2.0, 1.0, 0.2)
}


def line(speed):
    answer = runs[speed].to_dict()["replay"]
    return [
        f"{speed:g}",
        f"{answer['mean_running']:.0f}",
        f"{answer['peak_waiting']:,}",
        f"{answer['wait_s']['p95']:,.1f}",
        f"{answer['preemptions']:,}",
        f"{answer['idle_lifetime_s']['p50']:,.0f}",
    ]


table(
    f"One {GPU} under one hour of chat traffic, by arrival rate",
    [
        "Arrival rate (× recorded)",
        "Running requests, mean",
        "Waiting requests, maximum",
        "Wait, 95th percentile, s",
        "Preemptions",
        "Time that an idle context stays cached, median, s",
    ],
    [line(speed) for speed in runs],
)

# %% tags=["hide"]
courses = {speed: runs[speed].to_dict()["replay"] for speed in runs}
claim(courses[0.2]["preemptions"], 0)
assert courses[2.0]["peak_waiting"] > 1000
assert courses[1.0]["idle_lifetime_s"]["p50"] < 15
assert 120 < courses[0.2]["idle_lifetime_s"]["p50"] < 240
# %% [markdown]
# At twice the recorded rate, one GPU is too small, and the queue grows until the trace ends. At the recorded rate, the GPU keeps
# up, but running requests hold nearly the whole pool, and an idle context is evicted within seconds. At a fifth of the rate, idle
# contexts stay cached for minutes. If a conversation pauses for longer, its context must be computed again.
#
# ## Prompt caching and its time to live
#
# Hosted services sell prefix caching as *prompt caching*. Cached tokens cost less until their *time to live* (TTL) ends. A coding
# session is cheap while you work but expensive to resume the next day, because the whole context is computed again.

# %% tags=["hide"]
llama = kvreport.estimate(
    "llama-3.1-70b", gpu="H200", context_tokens="128K", tensor_parallel=4, weights="fp8", kv="fp8"
)
reading = (llama.prefill_ms_lower_bound or 0) / 1e3
choose(
    "An engine evicts idle blocks after a TTL of five minutes. Does this TTL guarantee that a context stays cached for five minutes?",
    wrong(
        "Yes: that is its definition",
        "No memory is reserved for an idle context, so other requests can evict it before the TTL ends.",
    ),
    right(
        "No: it can be evicted much earlier",
        "A TTL only removes blocks that would otherwise stay in memory. Under load, blocks are evicted before the TTL ends.",
    ),
    wrong("Only with system memory", "System memory holds more blocks, but its blocks are evicted as well."),
)

# %% tags=["hide"]
fold(
    "The cost of resuming a session of 128K tokens",
    f"On four H200s, Llama 3.1 70B with weights and cache in FP8 prefills 128K tokens in at least {reading:.1f} s. During that time, no other "
    "request decodes at full speed. "
    f"Keeping the context would occupy {llama.kv_bytes_per_request_per_gpu * 4 / GiB:.1f} GiB of cache on the four GPUs "
    "together for the whole pause.",
)

# %% tags=["hide"]
instrument(
    Instrument(
        "How many idle sessions stay cached? (Llama 3.1 70B, FP8, four H200s)",
        (
            Slider("running", "Running requests", (4, 8, 16, 32, 64, 128), 3),
            Slider("each", "Tokens per running request", (2048, 8192, 16384, 32768), 1, "tokens"),
            Slider("session", "Tokens per idle session", (8192, 32768, 65536, 131072), 1, "tokens"),
        ),
        (
            Output("one", "", "product", ("token", "each")),
            Output("held", "Needed by running requests, per GPU", "product", ("one", "running"), "GiB.1"),
            Output("idle", "", "product", ("token", "session")),
            Output("stay", "Idle sessions that fit", "resident_sessions", ("pool", "held", "idle")),
            Output(
                "share", "Share of the pool left for idle sessions", "left_share", ("pool", "held"), "%.0"
            ),
        ),
        {"token": llama.kv_bytes_per_token_per_gpu, "pool": llama.budget.kv_pool_bytes},
        rows=((0, 1, 1), (3, 1, 1), (5, 1, 1), (3, 1, 3), (5, 3, 1)),
    )
)

# %% [markdown]
# ## Two pools: the smaller one can limit the hit rate
#
# A model that mixes full and sliding-window attention has two caches. If an engine has a separate pool for each cache, it can
# lose a prefix although nearly all memory is free. The window pool has room for the ends of only a few contexts:

# %%
agents = with_outputs(generate(Workload(sessions=150, turns=6, sessions_per_s=0.5, think_s=120)))
sizes = (16_000, 64_000, 256_000, 1_000_000)
windows = [
    replay_in_order(agents, separate_pools(full_tokens=4_000_000, window_tokens=size, window=1024))
    for size in sizes
]
table(
    "Hit rate by size of the window pool, next to a full-attention pool large enough for all contexts",
    ["Window pool, tokens", "Hit rate"],
    [[f"{size:,}", f"{one.hit_rate:.1%}"] for size, one in zip(sizes, windows, strict=True)],
)

# %% tags=["hide"]
assert windows[0].hit_rate + 0.2 < windows[-1].hit_rate
# %% [markdown]
# ## System memory as a second tier
#
# An engine can copy blocks to system memory when a request ends. System memory and GPU then store nearly the same blocks, and
# together they reach the hit rate of the larger cache. If the engine copies only evicted blocks, the two together reach the hit
# rate of one cache as large as both:

# %%
tiers = {
    policy: replay(
        "mooncake-conversation",
        MODEL,
        gpu=GPU,
        order_only=True,
        curve=False,
        host_memory="256GiB",
        host_policy=policy,
    )
    for policy in ("write_through", "on_eviction")
}
table(
    f"Hit rate of one {GPU} with 256 GiB of system memory for blocks",
    ["When blocks are copied", "Hit rate"],
    [
        ["never (no system memory)", f"{found.hit_rate:.1%}"],
        ["when a request ends", f"{tiers['write_through'].hit_rate_with_host:.1%}"],
        ["when they are evicted", f"{tiers['on_eviction'].hit_rate_with_host:.1%}"],
    ],
)

# %% tags=["hide"]
claim(tiers["write_through"].hit_rate_with_host, 0.284, within=0.05)
assert tiers["on_eviction"].hit_rate_with_host > tiers["write_through"].hit_rate_with_host
takeaway(
    "A prefix cache helps only if a context is needed again before it is evicted. Compare the pauses in your traffic with "
    "the time that idle contexts stay cached."
)
# %% [markdown]
# ## Limitations
#
# Step times are roofline bounds divided by an efficiency factor; they are not measured. A trace lists only the blocks of prompts.
# The tokens that an answer adds to the cache are known only if the next prompt of the session repeats them. All other answer
# tokens are counted as not reusable. The block size of the trace limits how finely prefixes can be distinguished. With several
# replicas, requests are routed either by session or round-robin. A router that looks for the longest cached prefix would reach a
# higher hit rate.
#
# ## Exercises

# %% tags=["hide"]
exercise(
    "**1.** A cache has room for four contexts. Eight agents send requests in a fixed order, again and again. What is the hit rate under LRU, in percent?",
    0,
    unit="%",
    solution="Before each agent's next turn, seven other agents send requests, so its context is evicted. The best policy "
    "would keep four of the eight contexts permanently.",
    traps={
        50.0: "This is the hit rate of the best policy. LRU always evicts the context that is needed soonest."
    },
)

# %% tags=["hide"]
exercise(
    "**2.** A conversation has 9 turns of equal size and nothing is evicted. What is its hit rate, in percent?",
    100 * 8 / 10,
    unit="%",
    solution="For R = 9 turns, the hit rate is (R − 1) / (R + 1) = 8 / 10.",
    traps={100 * 8 / 9: "This is the hit rate of the last turn. The hit rates of earlier turns are lower."},
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: why is a session cheap to continue and costly to resume?",
    "While you work, the session's blocks are in the prefix cache, and the GPU computes only the new tokens. After a long pause, other traffic has taken the blocks, and the GPU must compute the whole context again.",
)

# %% tags=["hide"]
quiz(
    item(
        "What determines whether a block is a hit under LRU?",
        right(
            "Its reuse distance compared with the size of the cache",
            "The reuse distance is the number of different blocks used since the block's last use.",
        ),
        wrong(
            "The seconds since its last use",
            "Time matters only through the traffic that arrives in the meantime.",
        ),
        wrong(
            "Whether its session is still open",
            "An engine manages blocks and does not know which session they belong to.",
        ),
    ),
    item(
        "A vendor reports a hit rate of 86%. What should you ask?",
        wrong("On which GPU?", "The GPU matters less than the definition."),
        right(
            "Is it a rate of tokens or blocks, of all requests or after a warm-up, and on which traffic?",
            "The hit rate of one trace depends on its definition.",
        ),
        wrong(
            "Nothing: a hit rate is a hit rate",
            "Without the definition and the traffic, hit rates cannot be compared.",
        ),
    ),
    item(
        "How much reserved memory does an idle agent hold?",
        wrong(
            "Its whole context",
            "Its blocks are cached but not reserved, so they can be evicted at any time.",
        ),
        right(
            "No memory",
            "When a request ends, its blocks stay in memory only until other requests need the space.",
        ),
        wrong("One block", "No block is reserved for an idle agent."),
    ),
)

# %% [markdown]
# ## Next
#
# - [PagedAttention](08-pages.py)
# - [How many idle agents stay in the cache, and for how long?](../questions/agents-and-idle-sessions.md)
# - Try it: [replay your own trace](../traffic/index.md), or run `kvreport replay TRACE MODEL --gpu GPU`
