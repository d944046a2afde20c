# %% [markdown]
# # How real traffic fills the cache
#
# "52 requests of 8K tokens" assumes that every request has one length, that none shares a prefix and that none waits. Real requests
# have long tails, repeat each other's beginnings and leave conversations idle. This chapter replays recorded requests.
#
# ## The question
#
# A chat assistant's prompts repeat: the same system prompt, the same conversation one turn later. A cache without any limit would find
# more than a third of all prompt tokens again. How much of that does one GPU find?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>The KV pool of an H100 with a 7B model holds about a million tokens. Which share of the possible hits does it reach on one hour of a chat assistant's traffic?</summary>
#
# About a quarter. A conversation's next turn comes minutes later, and by then millions of other tokens have passed through the cache.
#
# </details>

# %% tags=["hide"]
from statistics import fmean

from kvreport.book.chapter import claim, fold, formula, table
from kvreport.traffic.answers import replay
from kvreport.traffic.deployment import separate_pools
from kvreport.traffic.generate import Workload, generate
from kvreport.traffic.hits import DEFINITIONS, hit_counts
from kvreport.traffic.order import replay_in_order
from kvreport.traffic.reuse import reuse
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.trace import TracedRequest, build, with_outputs

GiB = 2**30
MODEL, GPU = "Qwen/Qwen2.5-7B-Instruct", "h100-sxm-80gb"
# %% [markdown]
# ## Lengths: the mean is no request
#
# Three published traces: a chat assistant, long documents, and sessions of a coding agent.

# %%
traces = {
    name: open_trace(name) for name in ("mooncake-conversation", "mooncake-synthetic", "claude-code-sessions")
}


def at(values, share):
    return sorted(values)[round(share * (len(values) - 1))]


table(
    "Prompt lengths of three traces, in tokens",
    ["trace", "requests", "median", "mean", "95th percentile", "longest"],
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
# A pool divided by the mean length gives a number of requests that fits only on average. When several long requests meet, blocks run
# out while answers grow, and the engine preempts the last admitted request and computes it again later ([Pages](08-pages.py)).
#
# ## Hits: which rate is meant
#
# A prompt *hits* as far as its leading blocks are still cached: the longest unbroken run from the start. One trace has many hit rates. On
# the synthetic trace, with a cache that forgets nothing:

# %%
synthetic = reuse(traces["mooncake-synthetic"])
unlimited = hit_counts(synthetic, None)
half = hit_counts(synthetic, None, warmup=0.5)
table(
    "One trace, one cache, several hit rates",
    ["definition", "all requests", "last half"],
    [[text, f"{unlimited.rate(name):.1%}", f"{half.rate(name):.1%}"] for name, text in DEFINITIONS.items()],
)

# %% tags=["hide"]
claim(unlimited.rate("full_blocks"), 0.661, within=0.002)
claim(half.rate("tokens"), 0.863, within=0.002)
# %% [markdown]
# The Mooncake paper's 66 % for this trace is the third line. A rate without its definition says little, and a rate of the last half, after
# the cache has warmed up, says something else than a rate of the whole. From here on, a hit rate is hit tokens divided by prompt tokens.
#
# ## The formula
#
# Order all cached blocks by the time of their last use, the youngest first, and within one request from its beginning to its end. A block's
# *reuse distance* is the number of blocks in front of it at the moment when it is wanted again.

# %% tags=["hide"]
formula(
    "a block hits  if  its reuse distance  <  blocks that the cache holds",
    "hit rate(size)  =  tokens of blocks with a distance below the size  /  prompt tokens",
)

# %% [markdown]
# That is the rule of LRU, which evicts what was used longest ago. Engines evict from the end of a prefix, never from its middle, and this order
# does exactly that, because a beginning is used whenever its continuation is. The distances do not depend on the size of the cache, so one
# pass over a trace gives the hit rate of every size at once.
#
# ## The numbers put in

# %%
found = replay("mooncake-conversation", MODEL, gpu=GPU, order_only=True, hit_rate=0.30)
table(
    "Hit rate by size of the KV cache, chat assistant on Qwen2.5 7B",
    ["KV cache, GiB", "LRU", "best possible"],
    [
        [f"{point.cache_bytes / GiB:,.0f}", f"{point.lru:.1%}", f"{point.best:.1%}"]
        for point in found.curve[::3]
    ],
)

# %% tags=["hide"]
pool = found.estimate.budget.kv_pool_bytes
claim(found.hit_rate, 0.09, within=0.05)
claim(found.hit_rate / found.hit_rate_unlimited, 0.235, within=0.05)
fold(
    "What one GPU reaches",
    f"Its pool of {pool / GiB:.0f} GiB finds {found.hit_rate:.1%}, of {found.hit_rate_unlimited:.1%} that could be found. "
    f"For 30 % it would take {found.cache_bytes_for_hit_rate / GiB:.0f} GiB.",
)

# %% [markdown]
# The last column is the best possible policy, which knows the future: it evicts the block that is wanted again last, and does not store what
# nobody will want (Belady's policy). Between the two columns lies what a cleverer engine could gain; between the best and the last line what
# only memory can.
#
# ## Rounds of a conversation
#
# If nothing is evicted and every turn adds as much as the one before, a turn after r others finds r of its r + 1 parts. Over a whole
# conversation of R turns that makes (R − 1) / (R + 1):

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
    "Twenty conversations that only grow, nothing evicted",
    ["turns", "replayed", "(R − 1) / (R + 1)"],
    [[turns, f"{rate:.4f}", f"{(turns - 1) / (turns + 1):.4f}"] for turns, rate in rates.items()],
)

# %% tags=["hide"]
for turns, rate in rates.items():
    assert abs(rate - (turns - 1) / (turns + 1)) < 1e-12
# %% [markdown]
# Long conversations approach a rate of one, which is why agents live on the cache: almost everything they send was there before.
#
# ## With time: who waits, who is preempted
#
# A replay with the engine's scheduler and a step time from the [roofline](09-prefill-and-decode.py) shows the rest. The same trace with arrivals
# twice as fast, at their own speed and slowed to a fifth:

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
    "One H100 under one hour of a chat assistant",
    [
        "arrivals, times as fast",
        "running, mean",
        "waiting, most",
        "waiting 95 %, seconds",
        "preemptions",
        "idle context stays, seconds",
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
# At twice the speed one GPU is too small: the queue grows for as long as the trace lasts. At its own speed it keeps up, but running requests hold
# nearly the whole pool, and an idle context is gone after seconds. At a fifth, idle contexts stay for minutes. That last column decides what the
# cache is worth: a conversation that pauses longer than that starts from nothing.
#
# ## Which pool binds
#
# A model with sliding windows keeps two caches. An engine with a pool for each can lose a prefix although nearly all memory is free, because
# the window's pool holds the end of few contexts:

# %%
agents = with_outputs(generate(Workload(sessions=150, turns=6, sessions_per_s=0.5, think_s=120)))
sizes = (16_000, 64_000, 256_000, 1_000_000)
windows = [
    replay_in_order(agents, separate_pools(full_tokens=4_000_000, window_tokens=size, window=1024))
    for size in sizes
]
table(
    "One pool for full attention that holds everything, and window pools of four sizes",
    ["tokens of the window pool", "hit rate"],
    [[f"{size:,}", f"{found.hit_rate:.1%}"] for size, found in zip(sizes, windows, strict=True)],
)

# %% tags=["hide"]
assert windows[0].hit_rate + 0.2 < windows[-1].hit_rate
# %% [markdown]
# ## Memory of the host
#
# Blocks can be copied to the host when a request ends. Host and device then hold nearly the same, and together they hit as the larger of the two
# would; copied only when they are evicted, they hit as both together:

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
    "256 GiB of host memory beside one H100",
    ["blocks are copied", "hit rate"],
    [
        ["never (no host memory)", f"{found.hit_rate:.1%}"],
        ["when a request ends", f"{tiers['write_through'].hit_rate_with_host:.1%}"],
        ["when they are evicted", f"{tiers['on_eviction'].hit_rate_with_host:.1%}"],
    ],
)

# %% tags=["hide"]
claim(tiers["write_through"].hit_rate_with_host, 0.284, within=0.05)
assert tiers["on_eviction"].hit_rate_with_host > tiers["write_through"].hit_rate_with_host
# %% [markdown]
# ## Where this picture ends
#
# Step times are the roofline's bound over an efficiency, not a measurement. A trace names prompts only, so what an answer adds to the cache is
# known where the next prompt of the same session repeats it, and counts as unusable elsewhere. The trace's own blocks limit how finely
# prefixes are told apart. Several replicas get whole sessions, or requests in turn; a router that looks for the longest prefix does better.
#
# ## Try it
#
# [Drop a trace of your own](../traffic/index.md), or run `kvreport replay TRACE MODEL --gpu GPU`.
#
# ## Exercises
#
# **1.** A cache holds four contexts, and eight agents take turns, one request each. What is the hit rate under LRU, and what does the best policy reach?
#
# <details class="kv-fold"><summary>Answer</summary>
#
# None under LRU: when an agent's turn comes, seven others have passed, and its context has gone. The best policy keeps four of the eight for good.
#
# </details>
#
# ## Remember
#
# <details class="kv-card"><summary>What decides whether a block hits under LRU?</summary>
#
# Its reuse distance: how many other blocks were used since. The size of the cache is compared with it, nothing else.
#
# </details>
# <details class="kv-card"><summary>A vendor reports a hit rate of 86 %. What do you ask?</summary>
#
# Of tokens or of blocks, of all requests or after a warm-up, and on which traffic.
#
# </details>
#
# ## Read on
#
# - [Pages](08-pages.py)
# - [How many idle agents stay in the cache, and for how long?](../questions/agents-and-idle-sessions.md)
# - Try it: [drop your own trace](../traffic/index.md)
