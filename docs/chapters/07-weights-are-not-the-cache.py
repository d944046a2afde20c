# %% [markdown]
# # Weight quantization is not KV cache quantization
#
# With 4-bit weights, a model's file shrinks to about a quarter. You might expect the KV cache to shrink too, but the cache
# does not depend on the format of the weights.
#
# ## Do 4-bit weights shrink the cache?
#
# Llama 3.1 8B with 4-bit weights runs on a GPU of {{ 24 GB = label_memory("rtx-4090") }} with room to spare. How much smaller is its cache
# than with 16-bit weights?

# %% tags=["hide"]
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    bars,
    choose,
    claim,
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

q = quantities()
MODEL = "llama-3.1-8b"
NAME = q.catalog.model(MODEL).name
GiB, KiB = 2**30, 2**10
requires(q.kv_per_token(MODEL), MODEL, "KV cache")
claim(q.weights(MODEL), 16_060_522_496)
claim(q.parameters(MODEL), 8_030_261_248)
claim(q.kv_per_token(MODEL, "fp8"), 65_536)
claim(q.kv_per_token(MODEL), 131_072)

# %% tags=["hide"]
guess(
    f"With 16-bit weights, a token of {NAME} takes {q.kv_per_token(MODEL) / KiB:g} KiB of cache. How many KiB does it take with 4-bit weights?",
    q.kv_per_token(MODEL) / KiB,
    unit="KiB",
    low=1,
    high=1000,
    why="The size is the same. Keys and values are **results**, computed while the model runs. The engine stores them in the type that "
    "`--kv-cache-dtype` sets. Without that flag, it uses 16 bits unless the checkpoint's configuration sets another format.",
)

# %% [markdown]
# ## Two costs, two formats
#
# The weights and the cache have separate formats, each with its own number of bits:

# %% tags=["hide"]
formula(
    "weights  =  parameters × bits of the weight format / 8",
    "            + scales + what stays at 16 bits",
    "cache    =  2 × layers × KV heads × head dim × bits of the KV format / 8",
    "            × tokens × requests",
)

# %% [markdown]
# ## Worked example: smaller weights
#
# A quantized format rarely covers the whole model. The table that turns tokens into numbers (the *embedding*) and the one that
# turns numbers back into tokens (the *output head*) usually stay at 16 bits. Every block of quantized numbers also has a
# *scale*, one factor that applies to the whole block.

# %% tags=["hide"]
guess(
    f"{NAME} takes {q.weights(MODEL) / GiB:.0f} GiB in 16 bits. What percentage of that do its 4-bit weights take?",
    100 * q.weights(MODEL, "int4") / q.weights(MODEL, "bf16"),
    unit="%",
    low=1,
    high=100,
    why="The share is more than a quarter, because the embedding and the output head stay at 16 bits, and the scales take memory.",
)

# %%
formats = ["bf16", "fp8", "int4", "nvfp4"]
table(
    f"Weights of {NAME}",
    ["Format", "GiB", "Share of 16 bits", "Bits per parameter, including scales"],
    [
        [
            f.upper(),
            q.weights(MODEL, f) / GiB,
            f"{q.weights(MODEL, f) / q.weights(MODEL, 'bf16'):.1%}",
            8 * q.weights(MODEL, f) / q.parameters(MODEL),
        ]
        for f in formats
    ],
)

# %% tags=["hide"]
assert q.weights(MODEL, "fp8") > q.parameters(MODEL)
assert q.weights(MODEL, "int4") > q.parameters(MODEL) / 2

# %% [markdown]
# ## Worked example: the cache stays the same

# %%
table(
    f"Cache of {NAME} by weight format and KV format",
    ["Weights", "Cache in BF16, KiB per token", "Cache in FP8, KiB per token"],
    [[f.upper(), q.kv_per_token(MODEL, "bf16") / KiB, q.kv_per_token(MODEL, "fp8") / KiB] for f in formats],
)

# %% [markdown]
# All rows are equal. Only the KV format changes the cache, and the weight format does not.
#
# ## Effect on concurrency

# %% tags=["hide"]
choose(
    f"On an H100, which change gives {NAME} more concurrent requests of 8K tokens?",
    wrong("4-bit weights", "The weights are a fifth of the memory. Shrinking them adds a few requests."),
    right(
        "An 8-bit cache",
        "An 8-bit cache halves what each request needs, and the cache takes most of the memory.",
    ),
    wrong("Both give the same", "On a small GPU, both give about the same. On a large GPU, they do not."),
)

# %%
cards = {"RTX 4090": "rtx-4090", "H100": "H100"}
rows = []
for name, gpu in cards.items():
    for weights in ("bf16", "int4"):
        for kv in ("bf16", "fp8"):
            room = q.memory(gpu) - q.weights(MODEL, weights)
            fit = int(max(room, 0) // q.kv_request(MODEL, kv, tokens=8192))
            rows.append([f"{name}, weights {weights.upper()}, cache {kv.upper()}", room / GiB, fit])
fits = {row[0]: row[2] for row in rows}
table(
    "Requests of 8K tokens that fit, with only the weights subtracted",
    ["Configuration", "Left, GiB", "Requests"],
    rows,
)

# %% [markdown]
# On the small GPU, either change about doubles the requests. On the large GPU, only the smaller cache does. Find out which of
# the two costs is larger before you choose what to compress.

# %% tags=["hide"]
small, large = (fits[f"{name}, weights BF16, cache BF16"] for name in cards)
assert 1.8 < fits["RTX 4090, weights INT4, cache BF16"] / small < 2.5
assert 1.8 < fits["RTX 4090, weights BF16, cache FP8"] / small < 2.5
assert fits["H100, weights INT4, cache BF16"] / large < 1.2
assert 1.9 < fits["H100, weights BF16, cache FP8"] / large < 2.1

# %% tags=["hide"]
instrument(
    Instrument(
        f"Choose both formats for {NAME} on an RTX 4090 with requests of 16K tokens",
        (
            Slider("bits", "Bits per weight", (4, 8, 16), 2),
            Slider("kv", "Bits per cached number", (4, 8, 16), 2),
            Slider("number", "Concurrent requests", (1, 2, 4, 6, 8, 12, 16, 24, 32), 2),
        ),
        (
            Output("per", "", "ratio", ("bits", 16)),
            Output("rest", "", "rest", ("full", "fixed")),
            Output("small", "", "product", ("rest", "per")),
            Output("weights", "Weights, without scales", "total", ("small", "fixed"), "GiB.1"),
            Output("part", "", "ratio", ("kv", 16)),
            Output("sixteen", "", "product", ("request", "number")),
            Output("cache", "KV cache", "product", ("sixteen", "part"), "GiB.1"),
            Output("used", "Total", "total", ("weights", "cache"), "GiB.1"),
            Output("state", "Result", "memory_state", ("used", "memory"), "words:fits|out of memory"),
        ),
        {
            "full": q.weights(MODEL),
            "fixed": 2 * (q.component(MODEL, "embedding") + q.component(MODEL, "output_head")),
            "request": q.kv_request(MODEL, tokens=16384),
            "memory": q.memory("rtx-4090"),
        },
        bar=(("weights", "weights", "weights"), ("cache", "KV cache", "cache")),
        limit="memory",
        limit_label="GPU memory",
        goals=(
            Goal("Run out of memory with 16-bit formats by adding requests.", "state", 1),
            Goal("Make the same number of requests fit by changing only one format.", "state", 0),
        ),
        rows=((2, 2, 2), (0, 2, 2), (0, 1, 2), (2, 2, 4), (2, 1, 4), (0, 2, 4)),
    )
)

# %% tags=["hide"]
bars(
    f"Memory of {NAME} on an RTX 4090 with four requests of 16K tokens, by format of the weights and of the cache. "
    "Smaller weights do not change the cache.",
    {
        "16-bit, 16-bit": {
            "weights": ("weights", q.weights(MODEL, "bf16")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, tokens=16384)),
        },
        "4-bit, 16-bit": {
            "weights": ("weights", q.weights(MODEL, "int4")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, tokens=16384)),
        },
        "4-bit, 8-bit": {
            "weights": ("weights", q.weights(MODEL, "int4")),
            "cache": ("KV cache", 4 * q.kv_request(MODEL, "fp8", tokens=16384)),
        },
    },
    limit_bytes=q.memory("rtx-4090"),
    limit_name="usable by a process",
    label="Format of weights, of cache",
)

# %% [markdown]
# ## What teams do about it
#
# A 4-bit file is only half of the solution. Teams also shrink the cache itself. They use a model with fewer KV heads
# ([GQA, MQA](04-sharing-heads.py)), [paged allocation](08-pages.py), [windows](06-forgetting-on-purpose.py),
# a quantized cache, or a limit on concurrency. The cache format is set with `--kv-cache-dtype` in vLLM and SGLang,
# `kv_cache_config` in TensorRT-LLM, and `--cache-type-k` and `--cache-type-v` in llama.cpp. Hosted services such as the Claude
# API, ChatGPT and the Mistral API face the same cost, because every active conversation needs a cache, no matter how small the
# weights are.

# %% tags=["hide"]
takeaway("Weight quantization changes the fixed cost. KV cache quantization changes the cost per token.")

# %% [markdown]
# ## Limitations
#
# - Not every GPU computes in every format. A GPU without 8-bit units stores numbers in 8 bits and computes in 16.
# - Formats with a scale for every few numbers take more than their nominal bits. A 4-bit cache with one scale per 16 numbers takes
#   {{ 4.5 bits = (16 * 4 + 8) / 16 / 8 }} per number.
# - An 8-bit cache costs some quality, more on some models than on others. This site counts only bytes. Test the quality of
#   the answers yourself.
#
# ## Exercises

# %% tags=["hide"]
need = q.weights("llama-3.1-70b", "fp8")
spare = q.memory("H100") - need
exercise(
    "**1.** Llama 3.1 70B with 8-bit weights fails to start on one H100. “But 70 billion parameters at one byte are 70 GB, and the GPU "
    "has 80.” How many GiB of the usable memory do the weights leave free?",
    spare / GiB,
    unit="GiB",
    digits=1,
    solution=f"The weights take {need / GiB:.1f} of {q.memory('H100') / GiB:.1f} GiB. The engine's default share is 92%, and activations "
    "and CUDA graphs need more than the remaining memory. Even if the weights fit, the server may not start.",
    traps={
        10.0: "This result uses the advertised memory and the size in the model's name. Both are rounded."
    },
    within=0.05,
)


# %% tags=["hide"]
def users(weights: str, kv: str) -> int:
    """Whole requests of 32K tokens on two H200s, only weights subtracted."""
    left = q.memory("H200") - q.weights("llama-3.1-70b", weights, tp=2)
    return int(left // q.kv_request("llama-3.1-70b", kv, tokens=32768, tp=2))


before, weights8, cache8, both = (
    users("bf16", "bf16"),
    users("fp8", "bf16"),
    users("bf16", "fp8"),
    users("fp8", "fp8"),
)
assert before < weights8 < both
assert before < cache8 < both
exercise(
    f"**2.** Llama 3.1 70B serves {before} requests of 32K tokens on two H200s with both formats at 16 bits (only weights subtracted). "
    "How many does it serve with both at 8 bits?",
    both,
    unit="requests",
    within=0.01,
    solution=f"Smaller weights alone: {weights8}. A smaller cache alone: {cache8}. Both: {both}. A smaller cache format halves what "
    "each request needs. A smaller weight format adds to the memory that all requests share.",
    traps={
        float(weights8): "This is the result with smaller weights alone.",
        float(cache8): "This is the result with a smaller cache alone.",
    },
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
quiz(
    item(
        "Interview question: why do quantized weights not imply a quantized KV cache?",
        right(
            "Weights are quantized once. The cache is written while serving, and engines keep it in 16 bits for quality and kernel support",
            "Only a flag or the checkpoint's configuration changes it.",
        ),
        wrong(
            "They do: a 4-bit file makes everything 4-bit",
            "The file contains only weights. The cache is written while the model runs.",
        ),
        wrong("The cache cannot be quantized", "FP8, INT8, INT4 and NVFP4 caches exist."),
    ),
    item(
        "Why is lower weight precision not enough for long contexts?",
        wrong(
            "Because 4-bit weights are slower",
            "Long contexts need memory, and the speed of the weights does not change that.",
        ),
        right(
            "Because the cache still grows with length and concurrency",
            "The weights are only the fixed part of the memory.",
        ),
        wrong(
            "It is enough: once the weights fit, memory is solved",
            "The cache needs memory too, and for long contexts it can be larger than the weights.",
        ),
    ),
    item(
        "Does an FP8 checkpoint have an FP8 cache?",
        right("Only if its configuration or a flag sets this format", "Otherwise, the cache is 16-bit."),
        wrong("Yes, always", "Weights and cache are separate settings."),
        wrong("Never", "Some checkpoints declare a KV format with scales."),
    ),
)

# %% [markdown]
# ## Next
#
# - [PagedAttention: blocks instead of rows](08-pages.py)
# - [What does a quantized KV cache really buy?](../questions/quantised-cache.md)
# - [Which newer KV formats save how much?](../questions/kv-formats.md)
