# %% [markdown]
# # Beyond one GPU
#
# When a model does not fit on one GPU, or its users do not, there are several ways to use more. They differ in what they divide,
# and "eight GPUs have eight times the memory" is true of only some of it.
#
# ## The question
#
# You double the GPUs. Does the number of users double?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>Llama 3.1 70B with 8-bit weights, from two H100s to four: how many times as many requests of 8K?</summary>
#
# About {{ fits("llama-3.1-70b", "H100", tokens=8192, tp=4, weights="fp8") / fits("llama-3.1-70b", "H100", tokens=8192, tp=2, weights="fp8") as ×.1 }}
# as many. The weights had taken most of the first two; of the next two, nearly everything is left for users.
#
# </details>

# %% tags=["hide"]
from kvreport.accounting.demand import demand
from kvreport.accounting.profile import CacheProfile, Term
from kvreport.accounting.roofline import Peaks
from kvreport.accounting.tiers import LINKS, Tier, offload, prefix_reuse
from kvreport.book.chapter import claim, curves, fold, formula, quantities, table

q = quantities()
GiB, KiB, GB = 2**30, 2**10, 10**9
claim(q.kv_heads("llama-3.1-8b"), 8)
claim(q.kv_per_token("llama-3.1-8b", tp=8), 16_384)
claim(q.kv_per_token("llama-3.1-8b", tp=16), 16_384)
claim(q.kv_per_token("deepseek-v3", tp=8), 70_272)
# %% [markdown]
# ## Four ways to divide
#
# **Tensor parallel (TP).** Every layer is cut lengthwise; each GPU has its share of every weight and of the KV heads. They talk
# after every layer, so they should stand in one box. The cache per GPU shrinks until each has one KV head; beyond that,
# heads are *copied*. A [latent](05-one-latent-for-all.py) is copied from the start.
#
# **Pipeline parallel (PP).** Each GPU has some of the layers, whole. Little talk, so boxes may stand apart. Each holds the cache
# of its own layers. The one with the least room decides for all.
#
# **Data parallel (DP).** Each GPU, or group, has the whole model and its own users. Nothing is shared, everything is simple, and
# the weights are paid for every time.
#
# **Context parallel.** One request's *tokens* are spread over GPUs. It lets the copies that TP makes hold different tokens
# instead of the same ones.
#
# ## The formula

# %% tags=["hide"]
formula(
    "KV heads per GPU  =  max(1, KV heads / TP)",
    "cache per GPU     =  2 × layers/PP × KV heads per GPU × head dim × bytes",
    "latent per GPU    =  layers/PP × (latent + rotary) × bytes       (no TP in it)",
    "                     both × tokens × requests",
)

# %% [markdown]
# ## The numbers put in

# %%
sizes = [1, 2, 4, 8, 16]
table(
    "KiB per token on each GPU; in brackets on all of them together",
    ["tensor parallel", "Llama 3.1 8B (8 KV heads)", "Qwen2.5 7B (4)", "DeepSeek-V3 (latent)"],
    [
        [
            n,
            *(
                f"{q.kv_per_token(m, tp=n) / KiB:g} ({n * q.kv_per_token(m, tp=n) / KiB:g})"
                for m in ("llama-3.1-8b", "Qwen/Qwen2.5-7B", "deepseek-v3")
            ),
        ]
        for n in sizes
    ],
)

# %% [markdown]
# The sum in brackets stays as long as heads are divided and doubles from the line where they begin to be copied.
#
# ## Which division for which model

# %%
rows = []
for name, model, weights in (
    ("Llama 3.1 70B, 8-bit weights", "llama-3.1-70b", "fp8"),
    ("gpt-oss 120B, as released", "gpt-oss-120b", None),
):
    for groups in (1, 2, 4):
        tp = 8 // groups
        each = q.fits(model, "H200", tokens=32768, tp=tp, weights=weights)
        rows.append([name, groups, tp, each, groups * each])

table(
    "Eight H200s, requests of 32K: one large group or several small ones (vLLM's defaults, estimate)",
    ["model", "replicas", "GPUs each", "requests each", "requests in all"],
    rows,
)

# %% [markdown]
# For a model whose heads divide, one large group pays for the weights once and holds the most. Small groups talk less and are
# faster per user. Where weights are small beside the memory, the difference in users is small too, and the simplest answer wins.

# %% tags=["hide"]
one, two = (next(r[4] for r in rows if r[0].startswith("Llama") and r[1] == n) for n in (1, 2))
assert one > two
curves(
    "Requests of 8K on H100s: each doubling of the GPUs more than doubles the users while the weights still weigh.",
    x=[2, 4, 8],
    lines={
        "Llama 3.1 70B, 8-bit weights": [
            q.fits("llama-3.1-70b", "H100", tokens=8192, tp=n, weights="fp8") for n in (2, 4, 8)
        ],
        "as many times two": [
            q.fits("llama-3.1-70b", "H100", tokens=8192, tp=2, weights="fp8") * n // 2 for n in (2, 4, 8)
        ],
    },
    x_title="GPUs (tensor parallel)",
    y_title="requests",
    y_log=True,
    x_tokens=False,
)

# %% [markdown]
# ## Sharing a beginning
#
# Requests that begin alike (the same instructions, the same document) have the same keys and values there. With pages they can
# point to the same ones: **prefix caching**. A hundred requests of 4,000 tokens, of which 3,000 are a shared beginning:

# %%
model, catalogue = q.catalogue.model("llama-3.1-8b"), q.catalogue
profile = CacheProfile.of([Term("full", 16 * 131_072, 16)])
asked = demand(model, None, catalogue.weight_formats)
h100 = Peaks.of(catalogue.accelerator("H100"))
PREFIXES = [0, 1000, 2000, 3000, 3900]
reuse = prefix_reuse(profile, asked, h100, prompt_tokens=4000, prefix_tokens=PREFIXES, requests=100)
table(
    "100 requests of 4,000 tokens to Llama 3.1 8B on an H100, in pages of 16, by what they have in common",
    ["tokens alike", "cache, GiB", "saved", "reading a prompt, ms at least"],
    [
        [f"{n:,}", held / GiB, f"{saved:.0%}", 1e3 * seconds]
        for n, held, saved, seconds in zip(
            PREFIXES, reuse.shared_bytes, reuse.saved_share, reuse.prefill_shared_s, strict=True
        )
    ],
    mark=3,
)

# %% tags=["hide"]
claim(q.kv_per_token("llama-3.1-8b"), 131_072)
claim(float(reuse.saved_share[3]), 0.99 * 2992 / 4000)
claim(float(reuse.saved_share[3]), 0.74, within=0.01)
# %% [markdown]
# It also saves the time of reading the beginning again: for 3,000 tokens on an H100 at least
# {{ 45 ms = prefill_time("llama-3.1-8b", "H100", tokens=3000) }} a request. What it does not do: raise the limit for requests that
# do *not* begin alike.
#
# ## Putting the cache somewhere else
#
# A cache that nobody reads at the moment can be moved to the computer's main memory, or to disk, and brought back. Is that faster than
# reading the text anew? For Llama 3.1 8B and 32K tokens:

# %%
CONTEXTS = [8192, 32768, 131072]
ways = {
    "main memory over PCIe 4, sixteen lanes": "PCIe 4.0 x16",
    "main memory over PCIe 5, sixteen lanes": "PCIe 5.0 x16",
    "main memory of a Grace chip": "NVLink-C2C",
    "one NVMe drive on PCIe 4": "NVMe (PCIe 4.0 x4)",
    "another machine over 400 Gb/s": "400 Gb/s network",
}
moved = {
    name: offload(Tier(name, 512 * GiB, LINKS[link]), profile, asked, h100, CONTEXTS)
    for name, link in ways.items()
}
again = next(iter(moved.values())).prefill_s
table(
    "Bringing one request of Llama 3.1 8B back to an H100, in ms at least",
    ["from", "8K", "32K", "128K", "of 32K, 512 GiB keep"],
    [
        *([name, *(1e3 * found.restore_s), f"{found.kept[1]:,}"] for name, found in moved.items()),
        ["computing it again", *(1e3 * again), ""],
    ],
)

# %% tags=["hide"]
fast, disk = moved["main memory over PCIe 5, sixteen lanes"], moved["one NVMe drive on PCIe 4"]
assert (fast.restore_s < again).all()
claim(float(fast.restore_s[1]), 0.068, within=0.01)
claim(float(disk.speedup[1]), 1.2, within=0.05)
assert disk.speedup[0] < 1 < disk.speedup[2]
# %% [markdown]
# Moving wins clearly from main memory. From a disk it loses for short texts and wins for long ones: what is moved grows with the
# length, what is computed with its square. The link at which both take equally long is an easy sum, the bytes of a request over the
# time of its prefill; anything faster pays. But what is not on the GPU is not being answered: moving makes
# room for requests that *wait*, and adds none to those that run.
#
# ## Where this picture ends
#
# - Splitting costs talk between GPUs, and some of their memory for it.
# - Not every number of GPUs works: heads have to divide. The model pages list only those that do.
#
# ## Exercises
#
# **1.** Qwen2.5 7B has {{ 4 heads = kv_heads("Qwen/Qwen2.5-7B") }} that are kept. Eight GPUs, tensor parallel: how much of the total
# cache memory holds copies?

# %% tags=["hide"]
copies = 1 - q.kv_per_token("Qwen/Qwen2.5-7B") / (8 * q.kv_per_token("Qwen/Qwen2.5-7B", tp=8))
claim(copies, 0.5)
fold(
    "Answer",
    "Half: each of the four heads lies on two GPUs. Four groups of two GPUs, or context parallel within pairs, would use all of it.",
)

# %% [markdown]
# **2.** A pipeline of two stages; the first GPU also holds the embedding and has 4 GiB less for its cache. What happens to the second's
# extra room?

# %% tags=["hide"]
fold("Answer", "It stays empty. A token needs room in every stage, so the stage with the least room decides.")

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>Until when does tensor parallelism shrink the cache per GPU?</summary>
#
# Until each GPU has one KV head. A latent never shrinks.
#
# </details>
# <details class="kv-card"><summary>What does offloading not do?</summary>
#
# Let more requests run at the same moment.
#
# </details>
#
# ## Read on
#
# - [What an engine's log is telling you](12-what-the-log-says.py)
# - [Does splitting multiply my cache?](../questions/parallel.md)
