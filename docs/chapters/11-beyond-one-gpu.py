# %% [markdown]
# # Beyond one GPU: tensor, data, expert, pipeline and context parallelism
#
# If a model or its requests do not fit on one GPU, there are several ways to use more GPUs. These ways differ in what they divide
# and what they copy. Copies take memory on every GPU, so eight GPUs do not always have room for eight times as many requests.
#
# ## Do twice the GPUs serve twice the requests?

# %% tags=["hide"]
import kvreport
from kvreport.accounting.demand import demand
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.tiers import LINKS, Tier, offload, prefix_reuse
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    choose,
    claim,
    curves,
    drawings,
    exercise,
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
from kvreport.catalog.caches import Latent

q = quantities()
MODEL = "deepseek-v3"
GiB, KiB = 2**30, 2**10
record = q.catalog.model(MODEL)
NAME, deep = record.name, q.growing_layers(MODEL)
latents = [cache for group in record.layers for cache in group.caches if isinstance(cache, Latent)]
requires(len(latents), MODEL, "latent")
latent, rotary = latents[0].latent_dim, latents[0].rope_dim
routed = q.component(MODEL, "routed_experts")
requires(routed, MODEL, "experts")
fills = {}
for name, options in (
    ("TP8", {"tp": 8}),
    ("DP8 + EP", {"dp": 8, "ep": True, "max_batched_tokens": 2048}),
):
    total = q.memory("H200")
    held = q.budget_weights(MODEL, "H200", tokens=32768, **options)
    experts = routed / 8 * q.weights(MODEL) / q.parameters(MODEL)  # at the average bytes per parameter
    pool = q.pool(MODEL, "H200", tokens=32768, **options)
    fills[name] = ((held - experts) / total, experts / total, max(0, pool) / total)
claim(q.kv_heads("llama-3.1-8b"), 8)
claim(q.kv_per_token("llama-3.1-8b", tp=8), 16_384)
claim(q.kv_per_token("llama-3.1-8b", tp=16), 16_384)
claim(q.kv_per_token(MODEL, tp=8), 70_272)
claim(deep, 61)
two, four = (q.fits("llama-3.1-70b", "H100", tokens=8192, tp=n, weights="fp8") for n in (2, 4))

# %% tags=["hide"]
guess(
    f"With 8-bit weights and a 16-bit cache, Llama 3.1 70B serves {two} requests of 8K on two H100s. How many does it serve on four?",
    four,
    unit="requests",
    low=1,
    high=10_000,
    why=f"That is {four / two:.1f} times as many. With two GPUs, the weights take most of the memory. The memory of two more GPUs "
    "is almost entirely free for the cache.",
)

# %% [markdown]
# ## Ways to divide
#
# **Tensor parallelism (TP).** Every layer is divided. Each GPU has a part of every weight and some of the KV heads. The GPUs
# communicate after every
# layer, so they should be in one server. The cache per GPU shrinks until each GPU has one KV head. Beyond that, heads are *copied*. A
# [latent](05-one-latent-for-all.py) is copied from the start.
#
# **Pipeline parallelism (PP).** Each GPU has some of the layers. There is little communication, so the GPUs may be in
# different servers. Each GPU holds the cache of its own layers. The stage with the least free memory limits the number of requests.
#
# **Data parallelism (DP).** Each GPU, or group of GPUs, has the whole model and its own requests. Every copy of the weights
# takes memory.
#
# **Expert parallelism (EP).** The experts of a mixture-of-experts (MoE) model are divided among all GPUs. The other
# weights are either divided (TP) or copied (DP). **DP attention + EP** copies the attention weights to every GPU, so that each
# GPU serves its own requests. It divides the experts, which make up most of the weights.
#
# **Decode context parallelism (DCP).** The *tokens* of one request are divided among GPUs that would otherwise hold copies of
# its cache.

# %% tags=["hide"]
a, b, c = fills["TP8"]
drawings.gpu_layout(
    f"TP8: {NAME} on eight H200s. Every GPU stores the latents of the same requests.",
    [
        (f"GPU {n}", [("weights", "other", a), ("experts", "experts 1/8", b), ("cache", "copy", c)])
        for n in range(8)
    ],
    1,
)

# %% tags=["hide"]
a, b, c = fills["DP8 + EP"]
drawings.gpu_layout(
    "DP attention + EP: attention is copied, the experts are divided, and every GPU serves different requests",
    [
        (
            f"GPU {n}",
            [("weights", "copied", a), ("experts", "experts 1/8", b), ("cache", f"batch {'ABCDEFGH'[n]}", c)],
        )
        for n in range(8)
    ],
    1,
)

# %% [markdown]
# The next three drawings show how one request of a model with a latent cache (MLA) is stored on four GPUs. Each row is a
# quarter of the layers, and each column is a quarter of the tokens.

# %% tags=["hide"]
split = {
    name: q.request(MODEL, "H200", tokens=32768, **options) / GiB
    for name, options in (("TP4", {"tp": 4}), ("PP4", {"pp": 4}), ("DCP4", {"tp": 4, "dcp": 4}))
}
assert split["TP4"] > 3.8 * split["PP4"]
assert split["TP4"] > 3.8 * split["DCP4"]
drawings.layout_cells(
    f"TP4: every GPU stores the whole latent, {split['TP4']:.2f} GiB for a request of 32K",
    "Tensor parallelism copies a latent to every GPU.",
    4,
    4,
    [["0 1 2 3"] * 4] * 4,
)

# %% tags=["hide"]
drawings.layout_cells(
    f"PP4: every GPU stores the cache of its own layers, {split['PP4']:.2f} GiB at most",
    "Pipeline parallelism divides the cache by layers. Each GPU has every token of its layers.",
    4,
    4,
    [[str(row)] * 4 for row in range(4)],
)

# %% tags=["hide"]
drawings.layout_cells(
    f"TP4 with DCP4: every GPU stores the cache of its own tokens, {split['DCP4']:.2f} GiB",
    "Decode context parallelism assigns the tokens to the GPUs in turn. Each GPU has its tokens in every layer.",
    4,
    4,
    [[str(column) for column in range(4)]] * 4,
)

# %% [markdown]
# ## Heads can be divided; a latent cannot

# %% tags=["hide"]
formula(
    "KV heads per GPU  =  max(1, KV heads / TP)",
    "cache per GPU     =  2 × layers/PP × KV heads per GPU × head dim × bytes / DCP",
    "latent per GPU    =  layers/PP × (latent + rotary) × bytes / DCP",
    "held per GPU      =  one of these × tokens × requests of the GPU's data rank",
)

# %% [markdown]
# ## Worked example: what each GPU stores for one token

# %%
sizes = [1, 2, 4, 8, 16]
table(
    "KiB per token on each GPU (in parentheses, the sum over all GPUs)",
    ["Tensor parallel", "Llama 3.1 8B (8 KV heads)", "Qwen2.5 7B (4)", f"{NAME} (latent)"],
    [
        [
            n,
            *(
                f"{q.kv_per_token(m, tp=n) / KiB:g} ({n * q.kv_per_token(m, tp=n) / KiB:g})"
                for m in ("llama-3.1-8b", "Qwen/Qwen2.5-7B", MODEL)
            ),
        ]
        for n in sizes
    ],
)

# %% [markdown]
# The sum over all GPUs stays the same while heads can be divided. Once heads are copied, the sum doubles with each step.
#
# ## Which layout for which model? Eight H200s, requests of 32K

# %% tags=["hide"]
LAYOUTS = {
    "TP8": {"tensor_parallel": 8},
    "DP attention 8 + EP": {"data_parallel": 8, "expert_parallel": True},
    "the same, steps of 2,048 tokens": {
        "data_parallel": 8,
        "expert_parallel": True,
        "max_batched_tokens": 2048,
    },
    "DP 4 × TP 2": {"data_parallel": 4, "tensor_parallel": 2},
    "PP8": {"pipeline_parallel": 8},
    "PP2 × TP4": {"pipeline_parallel": 2, "tensor_parallel": 4},
    "TP8 + DCP8": {"tensor_parallel": 8, "decode_context_parallel": 8},
}


def capacity(model: str, layout: str, weights: str | None = None) -> list[object]:
    """One row: requests of the deployment, weights and pool on each GPU, and one request."""
    try:
        found = kvreport.estimate(model, gpu="H200", context_tokens="32K", weights=weights, **LAYOUTS[layout])
    except kvreport.InputError:
        return [layout, "not possible", "—", "—", "—"]
    budget = found.budget
    held = found.max_concurrent_requests_by_memory if found.verdict in ("fits", "tight") else 0
    return [
        layout,
        f"{held:,}" if held else "weights exceed memory",
        f"{budget.weights / GiB:.1f}",
        f"{budget.kv_pool_bytes / GiB:.1f}",
        f"{found.kv_bytes_per_request_per_gpu / GiB:.2f}",
    ]


mla = {name: capacity(MODEL, name) for name in LAYOUTS}
gqa = {name: capacity("llama-3.1-70b", name, "fp8") for name in LAYOUTS}


def held(row: list[object]) -> int:
    """Requests of a row; none where weights exceed memory or the layout is not possible."""
    text = str(row[1]).replace(",", "")
    return int(text) if text.isdigit() else 0


tp8, dp8 = held(mla["TP8"]), held(mla["DP attention 8 + EP"])
small = held(mla["the same, steps of 2,048 tokens"])
guess(
    f"{NAME} serves {tp8} requests of 32K on eight H200s with TP8. How many does it serve with DP attention + EP and "
    "steps of 2,048 tokens?",
    small,
    unit="requests",
    low=0,
    high=10_000,
    why=f"Each GPU serves {small // 8} different requests, because the cache is not copied. The attention weights are "
    "copied, and CUDA graphs keep partial results for all heads, not only a GPU's share. Both reduce every pool. With "
    f"vLLM's default steps of 8,192 tokens, only {dp8} requests fit on the eight GPUs together, because their experts need larger buffers.",
)

# %%
HEAD = [
    "Layout",
    "Requests, whole deployment",
    "Weights per GPU, GiB",
    "Pool per GPU, GiB",
    "Cache of one request on each GPU, GiB",
]
table(f"An MLA model: {NAME} as released", HEAD, list(mla.values()))

# %%
table("A GQA model: Llama 3.1 70B with 8-bit weights", HEAD, list(gqa.values()))

# %% tags=["hide"]
assert held(mla["TP8 + DCP8"]) > held(mla["PP8"]) > small > 2 * tp8 > tp8 > dp8
assert gqa["DP attention 8 + EP"][1] == gqa["TP8 + DCP8"][1] == "not possible"
assert held(gqa["TP8"]) > held(gqa["DP 4 × TP 2"])

# %% [markdown]
# With PP, the last column shows the stage that limits the number of requests. The layers of DeepSeek-V3 do not divide evenly,
# so this stage has slightly more or fewer layers than the average stage.
#
# The two tables show:
#
# - **MLA.** TP copies the latent, so no more requests fit in eight pools than in one. With DP attention + EP, more than twice as many
#   fit if scheduler steps are small. By default, vLLM sends the tokens of all eight ranks to the experts on every GPU, so
#   the experts' buffers grow with the number of tokens per step. With DCP and PP, the
#   most requests fit, because each GPU stores a part of every request.
# - **GQA.** TP already divides the cache, and there is no copy for DCP to remove. EP has nothing to divide in a model without
#   experts. DP copies the weights, so fewer requests fit.
# - **Among the layouts that fit, speed decides.** PP adds latency and needs many requests in flight. DCP and TP communicate
#   in every layer. DP attention needs a balanced load, and its all-to-all exchange grows with the batch. The tables do not
#   include communication buffers beyond what the engine's logs show.

# %% tags=["hide"]
choose(
    "Llama 3.1 70B runs on eight GPUs with TP8. Would more requests fit with decode context parallelism?",
    wrong(
        "Yes, eight times",
        "This is true only if TP makes copies. Llama's 8 KV heads can be divided among 8 GPUs without copies.",
    ),
    right(
        "No: there are no copies to remove",
        "DCP is bounded by the number of copies that TP makes of each KV head.",
    ),
    wrong("Only with long contexts", "The number of copies does not depend on the context."),
)

# %% tags=["hide"]
curves(
    "Requests of 8K that fit on H100s. While the weights are a large part of the memory, doubling the GPUs more than doubles the requests.",
    x=[2, 4, 8],
    lines={
        "Llama 3.1 70B, 8-bit weights": [
            q.fits("llama-3.1-70b", "H100", tokens=8192, tp=n, weights="fp8") for n in (2, 4, 8)
        ],
        "twice as many with every doubling": [two * n // 2 for n in (2, 4, 8)],
    },
    x_title="GPUs (tensor parallel)",
    y_title="Concurrent requests",
    y_log=True,
    x_tokens=False,
)

# %% [markdown]
# ## Prefix caching: sharing a beginning
#
# If requests begin with the same instructions or the same document, the keys and values of that beginning are the same. In
# a cache divided into blocks, requests can share these blocks. This is **prefix caching**. In the following example, a
# hundred requests of 4,000 tokens share a beginning of 3,000 tokens.

# %% tags=["hide"]
model, catalog = q.catalog.model("llama-3.1-8b"), q.catalog
profile = CacheProfile.of([Term("full", 16 * 131_072, 16)])
asked = demand(model, None, catalog.weight_formats)
h100 = Peaks.of(catalog.accelerator("H100"))
PREFIXES = [0, 1000, 2000, 3000, 3900]
reuse = prefix_reuse(profile, asked, h100, prompt_tokens=4000, prefix_tokens=PREFIXES, requests=100)
claim(float(reuse.saved_share[3]), 0.99 * 2992 / 4000)
guess(
    "What percentage of the cache of these hundred requests does sharing save?",
    100 * float(reuse.saved_share[3]),
    unit="%",
    low=0,
    high=100,
    why="Ninety-nine of the hundred beginnings need not be stored. Only whole blocks are shared.",
)

# %%
table(
    "100 requests of 4,000 tokens to Llama 3.1 8B on an H100, in blocks of 16, by their common prefix",
    ["Tokens in common", "Cache, GiB", "Saved", "Minimum time to read a prompt, ms"],
    [
        [f"{n:,}", held / GiB, f"{saved:.0%}", 1e3 * seconds]
        for n, held, saved, seconds in zip(
            PREFIXES, reuse.shared_bytes, reuse.saved_share, reuse.prefill_shared_s, strict=True
        )
    ],
    mark=3,
)

# %% [markdown]
# Prefix caching also saves the time of reading the beginning again. For 3,000 tokens on an H100, this is at least
# {{ 45 ms = prefill_time("llama-3.1-8b", "H100", tokens=3000) }} per request. Prefix caching does not help requests that
# begin differently.
#
# ## Offloading: the cache outside the GPU
#
# If no running request needs a cache, an engine can move it to system memory or to disk, and bring it back later.
# Is this faster than computing the cache again?

# %%
CONTEXTS = [8192, 32768, 131072]
ways = {
    "system memory over PCIe 4.0 x16": "PCIe 4.0 x16",
    "system memory over PCIe 5.0 x16": "PCIe 5.0 x16",
    "system memory of a Grace chip": "NVLink-C2C",
    "one NVMe drive on PCIe 4.0 x4": "NVMe (PCIe 4.0 x4)",
    "another server over 400 Gb/s": "400 Gb/s network",
}
moved = {
    name: offload(Tier(name, 512 * GiB, LINKS[link]), profile, asked, h100, CONTEXTS)
    for name, link in ways.items()
}
again = next(iter(moved.values())).prefill_s
table(
    "Minimum time to bring the cache of one request of Llama 3.1 8B back to an H100, in ms",
    ["From", "8K", "32K", "128K", "Requests of 32K in 512 GiB"],
    [
        *([name, *(1e3 * found.restore_s), f"{found.kept[1]:,}"] for name, found in moved.items()),
        ["computing it again", *(1e3 * again), ""],
    ],
)

# %% tags=["hide"]
fast, disk = moved["system memory over PCIe 5.0 x16"], moved["one NVMe drive on PCIe 4.0 x4"]
assert (fast.restore_s < again).all()
claim(float(fast.restore_s[1]), 0.068, within=0.01)
claim(float(disk.speedup[1]), 1.2, within=0.05)
assert disk.speedup[0] < 1 < disk.speedup[2]

# %% [markdown]
# Loading from system memory is clearly faster than recomputing. A disk is slower for short texts and faster for long ones, because
# the data to move grows with the length, and the computation grows with its square. Offloading keeps the caches of requests
# that *wait*. It does not increase the number of requests that run, because their caches must be on the GPU.

# %% tags=["hide"]
instrument(
    Instrument(
        "Divide a request of a GQA model and of an MLA model",
        (
            Slider("tp", "Tensor parallel ranks", (1, 2, 4, 8, 16), 3),
            Slider("pp", "Pipeline stages", (1, 2, 4, 8), 0),
            Slider("tokens", "Tokens in each request", (2048, 8192, 32768, 131072), 2, "tokens"),
        ),
        (
            Output("heads", "KV heads per GPU (Llama 3.1 70B)", "divided_heads", (8, "tp")),
            Output("layers", "", "ratio", (80, "pp")),
            Output("gtoken", "", "attention_token_bytes", ("layers", "heads", 128, 2)),
            Output(
                "gqa", "Llama: cache of one request on each GPU", "product", ("gtoken", "tokens"), "GiB.2"
            ),
            Output("deep", "", "ratio", (deep, "pp")),
            Output("mtoken", "", "latent_token_bytes", ("deep", latent, rotary, 2)),
            Output(
                "mla", f"{NAME}: latents of one request on each GPU", "product", ("mtoken", "tokens"), "GiB.2"
            ),
            Output("gpus", "GPUs", "product", ("tp", "pp")),
        ),
        {},
        rows=((0, 0, 2), (3, 0, 2), (4, 0, 2), (0, 3, 2), (2, 1, 2), (3, 1, 2)),
    )
)

# %% tags=["hide"]
takeaway(
    "For each layout, find out what it divides and what it copies. For GQA models, try tensor parallelism first. For MLA "
    "models with experts, use DP attention "
    "+ EP, or DCP for long contexts."
)

# %% [markdown]
# ## Limitations
#
# - Splitting costs communication, and some memory for its buffers.
# - Not every number of GPUs works, because heads and experts must divide evenly. The model pages list only numbers that work.
#
# ## Exercises

# %% tags=["hide"]
copies = 1 - q.kv_per_token("Qwen/Qwen2.5-7B") / (8 * q.kv_per_token("Qwen/Qwen2.5-7B", tp=8))
claim(copies, 0.5)
exercise(
    "**1.** Qwen2.5 7B stores 4 KV heads. Eight GPUs run it with tensor parallelism. What percentage of the total cache "
    "memory is used for copies?",
    100 * copies,
    unit="%",
    solution="Each of the four heads is stored on two GPUs, so half of the memory is used for copies. Four groups of two "
    "GPUs, or context parallelism within pairs, would use all of the memory.",
    traps={
        75.0: "Each head is stored twice, not four times.",
        0.0: "Four heads cannot be divided among eight GPUs.",
    },
)

# %% tags=["hide"]
exercise(
    "**2.** A pipeline of two stages has pools of 60 and 64 GiB, because the first GPU also holds the embedding. A "
    "request takes 1 GiB in each stage. "
    "How many requests fit?",
    60,
    unit="requests",
    within=0,
    solution="Every request needs room in both stages, so the stage with less room decides. The extra room of the other stage stays empty.",
    traps={
        124.0: "You cannot add the pools, because each request needs room in both.",
        64.0: "The smaller stage decides.",
    },
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
quiz(
    item(
        "Up to what point does tensor parallelism shrink the cache per GPU?",
        right("Until each GPU has one KV head", "A latent never shrinks."),
        wrong(
            "Always: eight GPUs, an eighth each",
            "This is true only up to as many GPUs as the model has KV heads.",
        ),
        wrong("Never", "Tensor parallelism divides KV heads among the GPUs, as it does query heads."),
    ),
    item(
        "Interview question: can the same cache be fully reused across unrelated requests?",
        wrong(
            "Yes: that is what prefix caching does",
            "Prefix caching shares only a common beginning of the prompts.",
        ),
        right(
            "No: keys and values depend on everything before a token",
            "Only an identical prefix has identical keys and values.",
        ),
        wrong("Yes, after quantization", "The format does not change what the numbers depend on."),
    ),
    item(
        "What does offloading not do?",
        wrong("Keep idle conversations", "Offloading does exactly that."),
        right(
            "Let more requests run at the same moment",
            "A running request reads its cache in every step, so the cache must be on the GPU.",
        ),
        wrong("Save prefill time", "Bringing a cache back from system memory is faster than computing it."),
    ),
)

# %% [markdown]
# ## Next
#
# - [What an engine's log is telling you](12-what-the-log-says.py)
# - [TP or DP for an MLA model?](../questions/mla-tp-or-dp.md)
# - [Does TP multiply my cache?](../questions/parallel.md)
# - [Does DCP give eight times the context?](../questions/decode-context-parallel.md)
