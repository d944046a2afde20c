# %% [markdown]
# # Sliding windows and hybrid models: a KV cache that forgets
#
# Not every layer has to remember every token. Some layers look back only over a window. Others keep a state of constant size.
# Models that mix such layers need far less cache for long texts. A calculator that ignores this can be wrong by a factor of
# four or more.
#
# ## Sixty-four layers or a quarter of them: who is right?
#
# Qwen3.6 27B has {{ 64 layers = layers("qwen3.6-27b") }}. An online tutorial calculates
# {{ 16 GiB = kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }} for one request of 128K tokens with an 8-bit cache. An
# engine reserves about a quarter of that.

# %% tags=["hide"]
import kvreport
from kvreport.book.chapter import (
    Instrument,
    Output,
    Slider,
    cache_terms,
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

q = quantities()
GiB, KiB, MB = 2**30, 2**10, 10**6
MODEL = "qwen3.6-27b"
NAME = q.catalog.model(MODEL).name
requires(q.state(MODEL), MODEL, "recurrent state")
claim(q.state(MODEL), 153_944_064)
claim(q.kv_per_token(MODEL), 65_536)
claim(q.kv_per_token(MODEL, "fp8"), 32_768)
claim(q.layers(MODEL), 64)
claim(q.growing_layers(MODEL), 16)
claim(q.kv_per_token("gpt-oss-120b"), 36_864)
claim(q.kv_per_token("gpt-oss-120b", at=1), 73_728)
claim(q.window("gpt-oss-120b"), 128)
claim(q.kv_per_token("gemma-3-27b"), 81_920)
claim(q.window("gemma-3-27b"), 1024)

# %% tags=["hide"]
guess(
    f"How many of the {q.layers(MODEL)} layers of {NAME} store keys and values of every token?",
    q.growing_layers(MODEL),
    unit="layers",
    low=0,
    high=q.layers(MODEL),
    why=f"The other {q.layers(MODEL) - q.growing_layers(MODEL)} layers keep a state: {q.state(MODEL) / MB:.1f} MB for the whole "
    "request, whether it is one token long or a million.",
)

# %% [markdown]
# ## Three ways to forget
#
# **A sliding window.** The layer sees only the most recent tokens. Its cache grows until the window is full and then stays the same.
# In gpt-oss-120b, half of the layers have a window of {{ 128 tokens = window("gpt-oss-120b") }}. In Gemma 3 27B, about five
# out of every six layers have a window of {{ 1,024 tokens = window("gemma-3-27b") }}.
#
# **A chunk.** The layer sees only the current chunk of the text and starts empty in the next one, as in Llama 4. For
# simplicity, we assume that the last chunk is full, as we do for a sliding window.
#
# **A state.** The layer keeps a table of fixed size and updates it with every token. Examples are Mamba, linear attention
# and Gated DeltaNet. The state takes the same memory for a greeting and for a novel.
#
# The few layers with full attention provide the long-range memory of the model. A model that mixes states with attention is a
# **hybrid**.
#
# ## Only full-attention layers need more cache for every token

# %% tags=["hide"]
formula(
    "cache of one request  =  full-attention layers × rate × tokens",
    "                      +  sliding-window layers × rate × min(tokens, window)",
    "                      +  recurrent layers × state",
)

# %% [markdown]
# **Two** numbers therefore describe such a model: the bytes that one more token adds at the current length, and the fixed bytes
# that every request takes, even a short one.

# %% tags=["hide"]
choose(
    "gpt-oss-120b has a window of 128 tokens in half of its layers. From the 129th token on, how much cache does one more token take, "
    "compared with the first tokens?",
    wrong(
        "The same",
        "The cache of only half of the layers still grows. The sliding windows are full and discard an old token for each new one.",
    ),
    right(
        "Half",
        f"{q.kv_per_token('gpt-oss-120b') / KiB:g} KiB instead of {q.kv_per_token('gpt-oss-120b', at=1) / KiB:g} KiB.",
    ),
    wrong("Nothing", "The other half of the layers still stores every token."),
)

# %% [markdown]
# ## Worked example: windows and states stop growing

# %%
models = {
    "Llama 3.1 8B": "llama-3.1-8b",
    "gpt-oss-120b": "gpt-oss-120b",
    "Gemma 3 27B": "gemma-3-27b",
    NAME: MODEL,
}
table(
    "16-bit cache of one request",
    [
        "Model",
        "Layers",
        "Layers that store every token",
        "KiB per token, first tokens",
        "KiB per token, at 128K",
        "State, MB",
        "GiB at 2K",
        "GiB at 128K",
    ],
    [
        [
            name,
            q.layers(m),
            q.growing_layers(m),
            q.kv_per_token(m, at=1) / KiB,
            q.kv_per_token(m, at=131072) / KiB,
            q.state(m) / MB,
            q.kv_request(m, tokens=2048) / GiB,
            q.kv_request(m, tokens=131072) / GiB,
        ]
        for name, m in models.items()
    ],
)

# %% tags=["hide"]
lengths = [2**k for k in range(9, 18)]
curves(
    "Cache of one request in GiB. Windows make the line flatter, and states raise its left end.",
    x=lengths,
    lines={name: [q.kv_request(m, tokens=n) / GiB for n in lengths] for name, m in models.items()},
    x_title="Context (tokens)",
    y_title="Cache of one request (GiB)",
    y_log=True,
)

# %% tags=["hide"]
given = {}
for key, model in (("llama", "llama-3.1-8b"), ("gemma", "gemma-3-27b"), ("hybrid", MODEL)):
    given[f"{key}_c"], given[f"{key}_t"] = cache_terms(q, model)
instrument(
    Instrument(
        "One request, three models, 16-bit cache",
        (Slider("tokens", "Tokens in the request", tuple(2**n for n in range(4, 19)), 4, "tokens"),),
        (
            Output(
                "llama",
                "Llama 3.1 8B (full attention)",
                "request_bytes",
                ("llama_c", "llama_t", "tokens"),
                "GiB.3",
            ),
            Output(
                "gemma", "Gemma 3 27B (windows)", "request_bytes", ("gemma_c", "gemma_t", "tokens"), "GiB.3"
            ),
            Output(
                "hybrid", f"{NAME} (hybrid)", "request_bytes", ("hybrid_c", "hybrid_t", "tokens"), "GiB.3"
            ),
            Output("against", "Hybrid as a share of Llama", "ratio", ("hybrid", "llama"), "%.0"),
        ),
        given,
        rows=((0,), (4,), (7,), (9,), (11,), (13,)),
    )
)

# %% [markdown]
# ## A real machine
#
# The tutorial runs Qwen3.6 27B on an H100 NVL, sold as {{ 94 GB = label_memory("h100-nvl-94gb") }}, with 8-bit weights, an 8-bit cache
# and three quarters of the memory for the engine. The tutorial counts all 64 layers:
# {{ 128 KiB = kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1) }} a token, and
# {{ 2.7 requests = 43 * GiB / kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }} of 128K in 43 GiB.

# %% tags=["hide"]
true = int(43 * GiB // q.kv_request(MODEL, "fp8", tokens=131072))
claim(true, 10)
guess(
    "Count only what the layers really store. How many requests of 128K fit in the same 43 GiB?",
    true,
    unit="requests",
    low=0,
    high=1000,
    why=f"A token takes {q.kv_per_token(MODEL, 'fp8') / KiB:g} KiB, and a request of 128K with its states "
    f"{q.kv_request(MODEL, 'fp8', tokens=131072) / GiB:.2f} GiB.",
)

# %%
answer = kvreport.estimate(
    MODEL, gpu="h100-nvl-94gb", weights="fp8", kv="fp8", utilization=0.75, context_tokens="128K"
)
budget = answer.budget
table(
    "The same machine as an engine sees it (vLLM, estimate)",
    ["Part", "GiB or requests"],
    [
        ["three quarters of the memory, GiB", budget.total_bytes * 0.75 / GiB],
        ["weights, with the parts that stay at 16 bits, GiB", budget.weights / GiB],
        [
            "activations, driver, CUDA graphs, GiB",
            (budget.activations + budget.non_framework + budget.graphs) / GiB,
        ],
        ["left for the cache, GiB", budget.kv_pool_bytes / GiB],
        ["one request of 128K, as reserved, GiB", answer.kv_bytes_per_request_per_gpu / GiB],
        ["requests that memory holds", answer.max_concurrent_requests_by_memory],
    ],
)

# %% tags=["hide"]
claim(answer.kv_bytes_per_token_per_gpu, 32_768)
claim(answer.state_bytes_per_request_per_gpu, 153_944_064)
assert answer.kv_bytes_per_request_per_gpu >= q.kv_request(MODEL, "fp8", tokens=131072)
assert answer.max_concurrent_requests_by_memory > 3
claim(answer.kv_bytes_per_request_per_gpu, 4 * GiB, within=0.2)

# %% [markdown]
# An engine has room for fewer requests than this count, because it reserves memory for itself and rounds up to whole blocks.
# The memory is still enough for
# {{ fits("qwen3.6-27b", "h100-nvl-94gb", tokens=131072, weights="fp8", kv="fp8", utilization=0.75) as requests }}, where the
# tutorial counts two or three. The tutorial is right that the cache is the limit and not the weights, but its number is wrong.

# %% tags=["hide"]
takeaway(
    "Find out how many layers of each kind a model has. A single number of bytes per token is correct only for full attention."
)

# %% [markdown]
# ## Limitations
#
# - While an engine reads a long prompt, a sliding-window layer stores more than its window, because one step processes
#   thousands of tokens.
# - Some engines and some flags treat all layers as full attention. The model pages show what each engine does.
# - States cannot be shared between requests with a common prefix as easily as keys and values
#   ([prefix caching](11-beyond-one-gpu.py)).
# - vLLM needs one block for the states of every sequence that it may run, and refuses to start otherwise. See
#   [max_num_seqs and state slots](../questions/state-slots.md).
#
# ## Exercises

# %% tags=["hide"]
meet = q.state(MODEL) / (q.kv_per_token("llama-3.1-8b") - q.kv_per_token(MODEL))
claim(meet, 2349)
exercise(
    f"**1.** At what length, in tokens, does the cache of {NAME} become smaller than that of Llama 3.1 8B, both in 16 bits?",
    meet,
    unit="tokens",
    solution=f"The state of {q.state(MODEL) / MB:.1f} MB divided by the "
    f"{(q.kv_per_token('llama-3.1-8b') - q.kv_per_token(MODEL)) / KiB:g} KiB that the hybrid saves with each token.",
    traps={
        q.state(MODEL)
        / q.kv_per_token(
            "llama-3.1-8b"
        ): "The tokens of the hybrid model take memory too, so divide by the difference."
    },
)

# %% tags=["hide"]
offs = [
    q.kv_per_token("gpt-oss-120b", at=1) * n / q.kv_request("gpt-oss-120b", tokens=n) for n in (1024, 131072)
]
assert 1.7 < offs[0] < 1.8
assert 1.99 < offs[1] < 2
exercise(
    "**2.** A tool calculates the cache of gpt-oss-120b as if all its layers stored everything. By what factor is its "
    "result too high at 128K tokens?",
    offs[1],
    unit="times",
    digits=2,
    solution=f"At 1K tokens, the factor is only {offs[0]:.2f}. The factor approaches two for long texts, because half of the "
    "layers forget.",
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: why can two models of the same size serve such different numbers of requests?",
    "The cache of a sliding-window layer stops growing, and the state of a recurrent layer never grows. Only the few "
    "full-attention layers need more memory for every token. A state takes memory too: every request holds one, even if it is short.",
)

# %% tags=["hide"]
quiz(
    item(
        "Which two numbers describe a hybrid model's cache?",
        right(
            "Bytes of one more token, and bytes that every request holds",
            "The bytes that every request holds matter most for short requests.",
        ),
        wrong(
            "Bytes per token and the context limit",
            "The limit determines how long a request may be, not how much memory it takes.",
        ),
        wrong(
            "Bytes per token are enough",
            "This figure leaves out the states, whose size does not depend on the tokens.",
        ),
    ),
    item(
        "What does “bytes per token” mean for a model with sliding windows?",
        wrong(
            "The average over all layers",
            "Sliding-window layers stop adding bytes when their windows are full, so an average is correct for only one length.",
        ),
        right("Nothing, unless the length is given", "The bytes per token fall when the windows are full."),
        wrong(
            "The same as for any model",
            "Only with full attention does every token take the same number of bytes.",
        ),
    ),
    item(
        "Very short requests take more memory with a hybrid model than with a plain model. Why?",
        right(
            "Each request holds all states, regardless of its length", "States are a fixed cost per request."
        ),
        wrong("Hybrids have more layers", "Some hybrids have more layers, but the states are the reason."),
        wrong("Windows are always full", "A window fills with the first tokens, as any cache does."),
    ),
)

# %% [markdown]
# ## One click: eight long requests on your GPU
#
# Qwen3.6 27B runs with FP8 weights, an FP8 cache, a memory share of 0.75 and `--max-num-seqs 8`. Do eight requests of 128K
# fit? A calculator in which all {{ 64 layers = layers("qwen3.6-27b") }} grow arrives at
# {{ 128 GiB = 8 * kv_bytes(layers=64, kv_heads=4, head_dim=256, bytes=1, tokens=131072) }}, more than the GPU has. In fact,
# only {{ 16 layers = growing_layers("qwen3.6-27b") }} grow. An H100 NVL then holds
# {{ fits("qwen3.6-27b", "h100-nvl-94gb", tokens=131072, weights="fp8", kv="fp8", utilization=0.75, max_seqs=8) as requests }},
# and an H100 SXM holds
# {{ fits("qwen3.6-27b", "H100", tokens=131072, weights="fp8", kv="fp8", utilization=0.75, max_seqs=8) as requests }}.
# Without `--max-num-seqs 8`, the NVL holds
# {{ fits("qwen3.6-27b", "h100-nvl-94gb", tokens=131072, weights="fp8", kv="fp8", utilization=0.75) as requests }}, as in the
# table above: fewer sequences need smaller buffers.
# [Open this case](../models/Qwen--Qwen3.6-27B/index.md?gpu=h100-sxm-80gb&tp=1&weights=fp8&kv=fp8&context=128K&requests=8&share=0.75&seqs=8),
# and change the GPU to yours.
#
# ## Next
#
# - [Weight quantization is not KV cache quantization](07-weights-are-not-the-cache.py)
# - Yang et al., ["Gated Delta Networks"](https://arxiv.org/abs/2412.06464), the states of Qwen3.6
# - [Windows and states, measured tensor by tensor](../evidence/measured/index.md#e1)
# - Try it:
#   [Qwen3.6 27B with eight requests of 128K](../sizer/index.md?model=Qwen--Qwen3.6-27B&gpu=h100-nvl-94gb&context=128K&prompt=127K&output=400&concurrent=8&burst=1&spares=0&weights=fp8&kv=fp8)
# - Try it:
#   [three models that forget, side by side](../compare/index.md?models=Qwen--Qwen3.6-27B&models=openai--gpt-oss-120b&models=google--gemma-3-27b-it)
# - [Qwen3.6 27B](../models/Qwen--Qwen3.6-27B/index.md), [gpt-oss-120b](../models/openai--gpt-oss-120b/index.md),
#   [Gemma 3 27B](../models/google--gemma-3-27b-it/index.md)
