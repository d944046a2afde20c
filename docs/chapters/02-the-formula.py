# %% [markdown]
# # The KV cache formula: bytes per token, one factor at a time
#
# The size of a request's KV cache is the product of a few numbers. Some of them are in the model's `config.json`, a small public
# file. You choose the cache format, and traffic determines the rest. This chapter multiplies the numbers and computes how many requests of each length fit.
#
# A **request** is one question to the model, together with the conversation before it. Engines count requests, not
# conversations.
#
# ## How many requests, and how long?
#
# Qwen2.5 7B runs on one H100. How many requests of 2K, 8K, 32K or 128K tokens fit? This chapter shows how to compute the answer
# by hand.

# %% tags=["hide"]
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    choose,
    claim,
    curves,
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
MODEL, GPU = "Qwen/Qwen2.5-7B-Instruct", "H100"
NAME = q.catalog.model(MODEL).name
q.kv_heads(MODEL)  # stops here if a model stores no keys and values per head
GiB, MiB = 2**30, 2**20

claim(q.layers(MODEL), 28)
claim(q.kv_heads(MODEL), 4)
claim(q.heads(MODEL), 28)
claim(q.head_dim(MODEL), 128)
claim(q.parameters(MODEL), 7_615_616_512)
claim(q.memory(GPU), 84_943_715_697, within=0.002)

# %% tags=["hide"]
drawings.growing_row(["The", "cat", "sat", "down"])

# %% tags=["hide"]
guess(
    f"A token is about four characters of English text. How many bytes does a token take in the KV cache of {NAME}?",
    q.kv_per_token(MODEL),
    unit="bytes",
    low=1,
    high=10_000_000,
    why="This is more than ten thousand times the size of four characters. The next section explains why.",
)

# %% [markdown]
# ## Five factors determine the bytes per token

# %% tags=["hide"]
formula(
    "bytes per token  =  2 × layers × KV heads × head dim × bytes per number",
    "cache            =  bytes per token × tokens × requests",
)

# %% [markdown]
# The first line multiplies five factors, and the second multiplies the result by tokens and requests:
#
# **2: a key and a value.** For each new token, the model computes a *query* and compares it with the *key* of every earlier
# token. Then it adds up the *values*, weighted by how well the keys match. A query is used only once. Keys and values are
# needed again for every later token, so both are stored.

# %% [markdown]
# **Layers.** A token passes through all layers of the model. Each layer stores its own keys
# and values. Qwen2.5 7B has {{ 28 layers = layers("qwen2.5-7b") }}.
#
# **KV heads.** A layer has several *heads*, which work in parallel. Each head has its own query, but several heads can share one
# key and one value. The formula counts these stored *KV heads*. Qwen2.5 7B has {{ 4 = kv_heads("qwen2.5-7b") }} KV heads for
# {{ 28 = heads("qwen2.5-7b") }} query heads. See [GQA and MQA](04-sharing-heads.py).
#
# **Head dim.** Each key and each value is a list of numbers. In Qwen2.5 7B, a list has
# {{ 128 numbers = head_dim("qwen2.5-7b") }}.

# %% tags=["hide"]
drawings.heads_by_layers(q.layers(MODEL), q.kv_heads(MODEL), q.head_dim(MODEL))

# %% [markdown]
# **Bytes per number.** A 16-bit number (BF16 or FP16) takes {{ 2 bytes = 16 / 8 }}. An 8-bit number (FP8) takes one.
#
# **Tokens.** Count all tokens of a request: those of the prompt (including the system prompt) and those of the answer so far.
#
# **Requests.** Each request in flight has its own cache.

# %% tags=["hide"]
choose(
    "Which of these factors can you change without choosing another model?",
    wrong("Layers and head dim", "Layers and head dim are fixed by the model."),
    wrong("KV heads", "The number of KV heads is fixed before training."),
    right(
        "Bytes per number, tokens and requests",
        "Engine flags set the cache format and the maximum length. Traffic determines the number of requests.",
    ),
    wrong(
        "The 2",
        "Keys and values are both needed. MLA replaces them with one compressed vector, but that is a different model.",
    ),
)

# %% [markdown]
# ## Worked example: bytes of one token and of one request

# %% tags=["hide"]
layers, heads, width = q.growing_layers(MODEL), q.kv_heads(MODEL), q.head_dim(MODEL)
by_hand = 2 * layers * heads * width * 2
formula(
    f"2 × {layers} layers × {heads} KV heads × {width} × 2 bytes  =  {by_hand:,} bytes per token",
    f"{by_hand:,} × 131,072 tokens  =  {by_hand * 131_072:,} bytes",
    f"                         =  {by_hand * 131_072 / GiB:g} GiB for one request of 128K",
)

# %%
claim(by_hand, 57_344)
claim(q.kv_per_token(MODEL), by_hand)
claim(by_hand * 131_072, 7 * GiB)

sizes = [128, 512, 1000, 1024, 2048, 4096, 8192, 10_000, 16384, 32768, 65536, 131072]
table(
    f"16-bit cache of one request of {NAME}, by number of tokens",
    ["Tokens", "Bytes", "MiB"],
    [[f"{n:,}", q.kv_request(MODEL, tokens=n), q.kv_request(MODEL, tokens=n) / MiB] for n in sizes],
)

# %% [markdown]
# Cache sizes measured on an H100 for this model agree with the formula at every tested length, from
# {{ 7 MiB = kv_request("qwen2.5-7b", tokens=128) }} at 128 tokens to
# {{ 896 MiB = kv_request("qwen2.5-7b", tokens=16384) }} at 16,384.

# %% tags=["hide"]
for tokens, mib in ((128, 7), (1024, 56), (4096, 224), (16384, 896)):
    claim(q.kv_request(MODEL, tokens=tokens), mib * MiB)

# Positions of the sliders: layers, KV heads, head dim, bytes per number, tokens, requests.
PRESETS = (
    ("Qwen2.5 7B", (2, 2, 2, 2, 6, 0)),
    ("Llama 2 7B, batch 4", (3, 5, 2, 2, 6, 2)),
    ("Llama 2 7B, batch 8", (3, 5, 2, 2, 6, 3)),
    ("Llama 3.1 8B", (3, 3, 2, 2, 6, 3)),
    ("Llama 3.1 70B", (7, 3, 2, 2, 6, 2)),
    ("Llama 3.1 70B, FP8 cache", (7, 3, 2, 1, 6, 2)),
)
for name, model in (
    (NAME, MODEL),
    ("Llama 2 7B, batch 4", "llama-2-7b"),
    ("Llama 3.1 70B", "llama-3.1-70b"),
):
    n, heads, width, size, *_ = dict(PRESETS)[name]
    claim(
        2
        * (16, 24, 28, 32, 36, 48, 64, 80, 96)[n]
        * 2**heads
        * (64, 96, 128, 192, 256)[width]
        * (0.5, 1, 2, 4)[size],
        q.kv_per_token(model),
    )
instrument(
    Instrument(
        "Build a model or choose a preset, and see when its requests no longer fit",
        (
            Slider("layers", "Layers", (16, 24, 28, 32, 36, 48, 64, 80, 96), 2),
            Slider("heads", "KV heads", (1, 2, 4, 8, 16, 32), 2),
            Slider("width", "Head dim (numbers)", (64, 96, 128, 192, 256), 2),
            Slider("bytes", "Bytes per number", (0.5, 1, 2, 4), 2, "bytes.1"),
            Slider("tokens", "Tokens in each request", tuple(2**n for n in range(9, 18)), 6, "tokens"),
            Slider("batch", "Concurrent requests", (1, 2, 4, 8, 16, 32, 64, 128), 0),
        ),
        (
            Output(
                "token", "One token", "attention_token_bytes", ("layers", "heads", "width", "bytes"), "KiB.1"
            ),
            Output("request", "One request", "product", ("token", "tokens"), "GiB.2"),
            Output("all", "All requests", "product", ("request", "batch"), "GiB.1"),
            Output("fit", "Requests in 60 GiB", "whole_number", ("room", "request")),
            Output("state", "Result", "memory_state", ("all", "room"), "words:fits|exceeds 60 GiB"),
        ),
        {"room": 60 * GiB},
        bar=(("cache", "KV cache", "all"),),
        limit="room",
        limit_label="room for the cache",
        goals=(
            Goal("Take Llama 2 7B and find the smallest number of requests that no longer fits.", "state", 1),
        ),
        presets=PRESETS,
        rows=tuple(places for _, places in PRESETS),
    )
)

# %% [markdown]
# ## Worked example: the capacity table
#
# Capacity is the memory that the weights leave free, divided by the cache of one request and rounded down. Qwen2.5 7B has
# {{ 7,615,616,512 parameters = parameters("qwen2.5-7b") }} of {{ 2 bytes = 16 / 8 }} each,
# which take {{ 14.19 GiB = weights("qwen2.5-7b") }}. A process can use {{ 79.11 GiB = memory("H100") }} of the H100.

# %% tags=["hide"]
left = room(q, MODEL, GPU)
guess(
    "How many requests of 128K tokens fit if the cache may use all the memory that the weights leave free?",
    left // q.kv_request(MODEL, tokens=131072),
    unit="requests",
    low=0,
    high=1000,
    why=f"{left / GiB:.1f} GiB divided by {q.kv_request(MODEL, tokens=131072) / GiB:.3g} GiB, rounded down. An engine reserves some "
    "of this memory, so fewer requests may fit.",
)

# %% [markdown]
# Published tables assume different amounts of memory for the cache:

# %%
contexts = [2048, 8192, 32768, 131072]
everything = [left // q.kv_request(MODEL, tokens=n) for n in contexts]
share = [int(0.85 * left // q.kv_request(MODEL, tokens=n)) for n in contexts]
engine = [q.fits(MODEL, GPU, tokens=n) for n in contexts]

table(
    f"Requests of {NAME} that fit on one {GPU}, 16 bits, by memory available to the cache",
    ["What the cache may use", "2K", "8K", "32K", "128K"],
    [
        ["everything the weights leave", *everything],
        ["85% of that", *share],
        ["what vLLM leaves (our estimate)", *engine],
    ],
    mark=2,
)

# %% tags=["hide"]
assert share == [504, 126, 31, 7], share
assert everything == [593, 148, 37, 9], everything
assert all(low < high for low, high in zip(engine, everything, strict=True))

# %% [markdown]
# The middle row (504, 126, 31, 7) is widely quoted as a measurement. This formula gives the same numbers with
# a factor of 0.85 on the memory that the weights leave ([list of checked claims](../evidence/claims/index.md#s5-e3-2048)). The reserve of an engine is not a fixed share: it
# depends on the model, the flags and the release. [Chapter 12](12-what-the-log-says.py) reads the reserve from a
# start-up log.

# %% tags=["hide"]
wide = [1024 * 2**k for k in range(8)]
pools = [left, 0.85 * left, q.pool(MODEL, GPU, tokens=8192)]
curves(
    "Number of requests that fit, by tokens per request. Doubling the length halves the number.",
    x=wide,
    lines={
        name: [max(int(pool // q.kv_request(MODEL, tokens=n)), 1) for n in wide]
        for name, pool in zip(["everything", "85%", "vLLM"], pools, strict=True)
    },
    x_title="Context per request (tokens)",
    y_title="Concurrent requests",
    y_log=True,
)

# %% tags=["hide"]
takeaway(
    "The model and the cache format determine the bytes per token. Traffic multiplies this figure by the number of tokens and the number of requests."
)

# %% [markdown]
# ## Limitations
#
# The formula is exact for models in which every layer has full attention, such as Llama and Qwen2.5. For models
# that store a [latent (MLA)](05-one-latent-for-all.py) or [drop or summarize old tokens](06-forgetting-on-purpose.py), it can be wrong by a factor
# of 4 or even 25. Engines allocate slightly more than the formula gives, because they allocate whole
# [blocks](08-pages.py).
#
# ## Exercises

# %% tags=["hide"]
claim(q.kv_bytes(layers=32, kv_heads=8, head_dim=128), 131_072)
exercise(
    "**1.** A model has 32 layers, 8 KV heads, a head dim of 128 and a 16-bit cache. How many bytes does a token take?",
    131_072,
    unit="bytes",
    within=0,
    solution="2 × 32 × 8 × 128 × 2 = 131,072 bytes, which is 128 KiB. 128 KB would be 128,000 bytes.",
    traps={
        65_536: "The factor of 2 for key and value is missing.",
        128_000: "This is 128 KB. The cache takes 128 KiB.",
    },
)

# %% tags=["hide"]
four = q.kv_bytes(layers=32, kv_heads=8, head_dim=128, tokens=4096, requests=4)
eight = q.kv_bytes(layers=32, kv_heads=8, head_dim=128, tokens=4096, requests=8)
claim(four, 2_147_483_648)
claim(eight - four, four)
exercise(
    "**2.** The same model serves 4 requests of 4,096 tokens, and the number of requests doubles. How many GiB does the cache take then?",
    eight / GiB,
    unit="GiB",
    solution=f"{four:,} bytes ({four / GiB:g} GiB) before, {eight / GiB:g} GiB after. Only the last factor changed, and the cache "
    "doubled.",
    traps={2.0: "This is the cache of four requests."},
)

# %% tags=["hide"]
doubled = q.kv_request("llama-3.1-70b", tokens=8192)
exercise(
    "**3.** A 70B model has 80 layers, 8 KV heads and a head dim of 128. How many bytes does one request of 8,192 tokens take in "
    "16 bits?",
    doubled,
    unit="bytes",
    within=0.001,
    solution=f"8,192 × 80 × 8 × 128 × 2 × 2 = {doubled:,} bytes, {doubled / GiB:g} GiB.",
    traps={doubled / 2: "One factor of 2 is missing: keys and values, or bytes per number."},
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Write the formula from memory. Mark the terms that traffic changes, and underline those that the model fixes.",
    formula("cache  =  2 × layers × KV heads × head dim × bytes per number × tokens × requests"),
    "Traffic changes the last two, tokens and requests. The model fixes layers, KV heads and head dim. You choose the "
    "bytes per number when the server starts.",
)

# %% tags=["hide"]
quiz(
    item(
        "Why is there a factor of 2 in the formula?",
        right("Every token has a key and a value", "Both are stored, in every layer and every KV head."),
        wrong(
            "A number has two bytes",
            "The bytes per number are a different factor. With FP8, that factor is 1, but the 2 for key and value remains.",
        ),
        wrong(
            "Prompt and answer are stored separately",
            "The tokens of the prompt and of the answer are in the same cache.",
        ),
    ),
    item(
        "A calculator multiplies by the number of attention heads. For a model with 32 heads and 8 KV heads, its result is …",
        wrong("correct", "Query heads are not stored. Only the 8 KV heads are."),
        right("4 times too large", "Only the 8 KV heads are stored: four query heads share each of them."),
        wrong(
            "4 times too small",
            "The calculator counts more heads than the cache stores, so its result is too large.",
        ),
    ),
    item(
        "The context doubles and the number of requests doubles. How much does the cache grow?",
        wrong("By a factor of 2", "Each change alone doubles the cache."),
        right("By a factor of 4", "The two factors multiply."),
        wrong(
            "Not at all: the pool is fixed",
            "The pool is fixed, but each request needs more of it, so fewer requests fit.",
        ),
    ),
)

# %% [markdown]
# ## Next
#
# - [Context and concurrency multiply](03-two-directions.py)
# - Measured: [cache against length, tensor by tensor](../evidence/measured/index.md#e1)
# - Try it: [Qwen2.5 7B on every GPU](../models/Qwen--Qwen2.5-7B/index.md)
# - Jingchao Zhang, ["Understanding KV Cache in LLM Inference"](https://github.com/JingchaoZhang/JingchaoZhang.github.io),
#   experiments 1 and 3
# - kipply, ["Transformer Inference Arithmetic"](https://kipp.ly/transformer-inference-arithmetic/), section "kv cache"
