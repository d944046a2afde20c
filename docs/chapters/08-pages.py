# %% [markdown]
# # PagedAttention: KV cache in blocks instead of rows
#
# The formula says how much memory a request *needs*. How much it *occupies* depends on how the engine allocates memory. The first
# engines gave every request a contiguous row, as long as the maximum length. Today's engines allocate **blocks** of a few
# tokens, as an operating
# system allocates pages to programs. This chapter computes how much memory blocks save, and how much the block size matters.
#
# ## How much of the reserved memory is never used?
#
# Requests can be up to 4,096 tokens long, but most are far shorter.

# %% tags=["hide"]
from kvreport.accounting.batching import Allocator, at_best, simulate
from kvreport.accounting.demand import demand
from kvreport.accounting.paging import Lengths, last_page_waste, occupancy
from kvreport.accounting.roofline import Peaks
from kvreport.book.chapter import (
    Goal,
    Instrument,
    Output,
    Slider,
    bars,
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
    requires,
    right,
    table,
    takeaway,
    wrong,
)

q = quantities()
MODEL = "llama-3.1-8b"
NAME = q.catalog.model(MODEL).name
GiB = 2**30
token = q.kv_per_token(MODEL)
requires(token, MODEL, "KV cache")
claim(token, 131_072)
claim(float(last_page_waste(16)), 7.5)
claim(float(last_page_waste(256)), 127.5)
prompts = Lengths.spread(512, 2048).draw(2000, base=3)
answers = Lengths.spread(400, 2048).draw(2000, base=2)
rows = []
for name, kind, block in (
    ("contiguous, maximum length", "maximum", 16),
    ("contiguous, next power of two", "power_of_two", 16),
    ("contiguous, perfect foresight", "exact", 16),
    ("blocks of 16", "pages", 16),
    ("blocks of 256", "pages", 256),
):
    found = occupancy(prompts, answers, kind, maximum_tokens=4096, page_tokens=block)
    rows.append([name, f"{found.waste_share:.1%}", f"{1 / (1 - found.waste_share):.2f}×"])
waste = {row[0]: float(row[1].rstrip("%")) / 100 for row in rows}

# %% tags=["hide"]
drawings.paged_blocks([21, 9, 34], 8, 56)

# %% tags=["hide"]
guess(
    "Prompts have 512 tokens on average, and answers have 400. What percentage of the memory is empty if every request gets 4,096 tokens?",
    100 * waste["contiguous, maximum length"],
    unit="%",
    low=0,
    high=100,
    why="The figure is an average over the duration of 2,000 requests. A row is reserved from the first token on, and "
    "most requests end early.",
)

# %% [markdown]
# ## Four ways to allocate
#
# - **The maximum length.** From the start, each request has a contiguous row that is long enough for the maximum length.
# - **A power of two.** The row has room for the prompt, plus the length of the answer rounded up to a power of two.
# - **Perfect foresight.** The row has exactly the length of the prompt plus the answer. No engine knows this length in advance,
#   but the method shows how much is lost only because rows are reserved before they are filled.
# - **Blocks.** The request gets a new block when the last one is full. A *block table* records where each block is, so blocks
#   need not be adjacent. vLLM, SGLang and TensorRT-LLM use this method, **PagedAttention**. llama.cpp does not use
#   blocks: it assigns single-token cells to slots, and each slot serves one request.

# %% [markdown]
# ## Half of one block stays empty on average

# %% tags=["hide"]
formula(
    "reserved, contiguous  =  maximum length",
    "reserved, blocks      =  ceil(tokens so far / block size) × block size",
    "empty in the last block, on average  =  (block size − 1) / 2",
)

# %% tags=["hide"]
guess(
    "A block holds 16 tokens. On average, how many tokens of the last block of a request are empty?",
    float(last_page_waste(16)),
    unit="tokens",
    low=0,
    high=16,
    digits=1,
    step="any",
    why=f"On average, the last block is half empty, regardless of the length of the request. With blocks of 256 tokens, the waste is "
    f"{float(last_page_waste(256)):.1f} tokens. Waste that does not grow with the request matters only for short requests.",
)

# %% [markdown]
# ## Worked example: blocks waste the least
#
# The table compares the four methods for the same two thousand requests: many short and a few long, none above 4,096 tokens.

# %%
table(
    "Memory that is reserved but empty, averaged over the duration of the requests",
    ["Allocation", "Share of the reserved memory that is empty", "Tokens reserved per token in use"],
    rows,
)

# %% tags=["hide"]
assert 0.7 < waste["contiguous, maximum length"] < 0.85
assert 0.35 < waste["contiguous, next power of two"] < 0.5
assert waste["blocks of 16"] < 0.01
assert 0.1 < waste["blocks of 256"] < 0.15

# %% [markdown]
# With rows of the maximum length, three quarters of the memory is empty. With blocks of 16, less than one percent
# is empty. Published figures of "about half" are correct if lengths are spread evenly up to the maximum. Here, most requests
# are short, so the waste is larger.
#
# While memory is reserved and empty, other requests wait. In the next table, all requests arrive at once and share a pool of
# 400,000 tokens. Speeds are upper bounds for Llama 3.1 8B on an H100.

# %%
model = q.catalog.model(MODEL)
asked = demand(model, None, q.catalog.weight_formats)
decode, prefill = at_best(asked, Peaks.of(q.catalog.accelerator("H100")))
rows = []
for name, allocator in (
    ("static batches", Allocator("static")),
    ("rows, each refilled when free", Allocator("contiguous")),
    ("blocks of 16", Allocator("paged", 16)),
    ("blocks of 64", Allocator("paged", 64)),
    ("blocks of 256", Allocator("paged", 256)),
):
    run = simulate(
        prompts,
        answers,
        allocator,
        pool_tokens=400_000,
        maximum_tokens=4096,
        max_seqs=1024,
        decode_seconds=decode,
        prefill_seconds=prefill,
    )
    speed = run.output_tokens / run.seconds
    rows.append([name, run.mean_running, f"{speed:,.0f}", f"{run.waste_share:.1%}", run.preemptions])

table(
    "A server with room for 400,000 tokens processes 2,000 requests",
    ["Allocation", "Running, mean", "Tokens per second, at most", "Empty", "Preemptions"],
    rows,
)

# %% tags=["hide"]
running = {row[0]: row[1] for row in rows}
speeds = {row[0]: float(row[2].replace(",", "")) for row in rows}
assert running["blocks of 16"] > 10 * running["static batches"]
assert running["blocks of 16"] > 2.5 * running["rows, each refilled when free"]
assert running["blocks of 256"] < running["blocks of 16"]
assert speeds["blocks of 16"] > speeds["rows, each refilled when free"] > speeds["static batches"]

bars(
    f"Memory of 64 requests of 700 tokens each to {NAME}, if a request may have up to 4,096 tokens.",
    {
        name: {
            "cache": ("in use", 64 * 700 * token),
            "free": ("reserved, empty", 64 * (reserved - 700) * token),
        }
        for name, reserved in (("maximum length", 4096), ("blocks of 256", 768), ("blocks of 16", 704))
    },
    label="Reservation",
)

# %% [markdown]
# More requests in the batch mean more tokens per second, because the weights are read once for all requests. Blocks
# have a price, which the Preemptions column shows. The engine admits a request when its prompt fits. If
# all requests grow and the blocks run out, the engine preempts the request admitted last and recomputes it later. A log full of
# **preemption** warnings means that too many requests run at once.
#
# ## The block size

# %% tags=["hide"]
instrument(
    Instrument(
        "Memory that a request wastes, by block size",
        (
            Slider("block", "Block size (tokens)", (1, 8, 16, 32, 64, 128, 256, 512), 2),
            Slider("tokens", "Tokens in the request", (20, 100, 300, 700, 1000, 3000, 10_000, 32_700), 3),
        ),
        (
            Output("reserved", "Reserved (tokens)", "reserved_tokens", ("tokens", "block")),
            Output("empty", "Empty (tokens)", "rest", ("reserved", "tokens")),
            Output("share", "Empty share", "ratio", ("empty", "reserved"), "%.1"),
            Output("blocks", "Blocks in its table", "ratio", ("reserved", "block")),
            Output("much", "", "memory_state", ("share", 0.2)),
        ),
        {},
        goals=(
            Goal("Find settings that leave more than a fifth of the reserved memory empty.", "much", 1),
            Goal("Bring the waste below a fifth without changing the block size.", "much", 0),
        ),
        rows=((2, 1), (2, 3), (2, 7), (6, 1), (6, 3), (6, 7)),
    )
)

# %% tags=["hide"]
curves(
    "Empty share of a request by its length, for three block sizes. Small blocks waste almost no memory, but large blocks "
    "waste much of a short request.",
    x=[2**k for k in range(7, 16)],
    lines={
        f"block of {block}": [
            100 * float(last_page_waste(block)) / (n + float(last_page_waste(block)))
            for n in (2**k for k in range(7, 16))
        ]
        for block in (16, 64, 256)
    },
    x_title="Context of the request (tokens)",
    y_title="Empty memory (%)",
)

# %% tags=["hide"]
choose(
    "Does a large block size waste a larger share of long requests than of short ones?",
    wrong(
        "Yes: long requests have more blocks",
        "Only the last block can be partly empty, no matter how many blocks there are.",
    ),
    right(
        "No: the waste is half a block per request",
        "Half a block is a small share of a long request and a large share of a short one.",
    ),
    wrong(
        "The block size never matters",
        "At 512 tokens, half a block of 256 is a fifth of the memory that the request reserves.",
    ),
)

# %% [markdown]
# Why not blocks of one token? Each block needs a look-up in the engine's tables and in the kernel that reads the cache.
# Blocks of 16 tokens are small enough to waste almost nothing and large enough to read at once. Some kernels require
# a block size of 32, 64 or 128.

# %% tags=["hide"]
takeaway(
    "Blocks of 16 tokens reduce the reserved but empty memory from most of the pool to less than one percent. The block size matters "
    "only for short requests."
)

# %% [markdown]
# ## Limitations
#
# - Models with several kinds of cache get blocks of several sizes, padded to one size. A "block of 16 tokens" can then hold
#   hundreds of tokens. See [reading start-up logs](12-what-the-log-says.py).
# - This chapter does not cover sharing: requests with a common prefix can *share* its blocks. See [prefix caching](11-beyond-one-gpu.py).
#
# ## Exercises

# %% tags=["hide"]
small, large = 16 * 7.5 * token / 2**20, 16 * 127.5 * token / 2**20
saved = large - small
claim(small, 15)
claim(large, 255)
long_requests = []
for block in (16, 256):
    run = simulate(
        [32_000] * 64,
        [700] * 64,
        Allocator("paged", block),
        pool_tokens=16 * 32_768,
        maximum_tokens=32_768,
        max_seqs=16,
        decode_seconds=decode,
        prefill_seconds=prefill,
    )
    empty = float(last_page_waste(block))
    speed = run.output_tokens / run.seconds
    long_requests.append(
        [block, empty, 16 * empty * token / 2**20, f"{empty / (32768 + empty):.3%}", f"{speed:,.0f}"]
    )
exercise(
    f"**1.** {NAME} serves sixteen requests of up to 32,768 tokens. How many MiB do blocks of 16 save on average, "
    "compared with blocks of 256?",
    saved,
    unit="MiB",
    solution=f"Of about {16 * 32768 * token / GiB:.0f} GiB, {small:g} MiB are empty with blocks of 16, and {large:g} MiB are empty with "
    "blocks of 256. Throughput is the same, because the batch is the same. A published exercise asks why the block size matters more at long context. For memory, the block size matters less.",
    traps={saved / 16: "This is the saving for one request, but there are sixteen."},
    more=[
        table(
            "Sixteen requests at once, 32,768 tokens each",
            ["Block size", "Empty per request, tokens", "Empty, MiB", "Share", "Tokens per second, at most"],
            long_requests,
        )
    ],
)

# %% tags=["hide"]
taken = -(-700 // 256) * 256
exercise(
    "**2.** A request has 700 tokens. How many tokens do its blocks of 256 occupy?",
    taken,
    unit="tokens",
    within=0,
    solution="Two blocks hold 512 tokens, so three are needed: 768 tokens, 68 of them empty.",
    traps={
        700.0: "Requests occupy whole blocks, and the last one is partly empty.",
        512.0: "Two blocks hold only 512 tokens.",
    },
)

# %% [markdown]
# ## Check yourself

# %% tags=["hide"]
fold(
    "Explain to a colleague: what did PagedAttention change?",
    "Before PagedAttention, each request reserved a row for the maximum length. With PagedAttention, a request "
    "takes a new block when its last one is full. At most one block per request is partly empty, so many more requests can run.",
)

# %% tags=["hide"]
quiz(
    item(
        "What did engines reserve before PagedAttention?",
        wrong("Space for the prompt", "The answer must fit too, and its length is unknown in advance."),
        right("The maximum length, for each request", "A contiguous row cannot grow later."),
        wrong(
            "Nothing: memory was allocated for each token",
            "Engines stored each request in one contiguous row and had no table to find scattered tokens.",
        ),
    ),
    item(
        "How much memory does a request waste with blocks?",
        right("Half a block on average", "Only its last block is partly empty."),
        wrong("Half of its memory", "Contiguous allocation can waste this much or more."),
        wrong("Nothing", "The last block of a request is rarely exactly full."),
    ),
    item(
        "What happens when a request is preempted?",
        wrong(
            "The server crashes with an out-of-memory error",
            "The engine allocates the pool at start-up and handles a lack of free blocks without an error.",
        ),
        right(
            "A running request is removed and recomputed later",
            "Recomputing costs time, but no answer is lost.",
        ),
        wrong("The GPU borrows memory from the host", "Only engines with offloading configured do this."),
    ),
)

# %% [markdown]
# ## Next
#
# - [Prefill and decode](09-prefill-and-decode.py)
# - [Blocks versus rows, measured](../evidence/measured/index.md#e6)
# - Kwon et al., ["Efficient Memory Management for Large Language Model Serving with PagedAttention"](https://arxiv.org/abs/2309.06180)
