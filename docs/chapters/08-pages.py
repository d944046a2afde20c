# %% [markdown]
# # Pages
#
# How much memory a request *needs* is arithmetic. How much it *occupies* depends on who hands it out. The first engines
# gave every request a stretch for the longest text allowed. Today they give pages of a few tokens, as an operating system
# does with programs. This chapter measures what that is worth, and what the page's size changes.
#
# ## The question
#
# Requests may be 4,096 tokens long; most end far earlier. How much of the memory is set aside and never used?
#
# ## Make a guess first
#
# <details class="kv-predict"><summary>A page holds 16 tokens. How much does each request waste on average? And with pages of 256?</summary>
#
# {{ 7.5 tokens = (16 - 1) / 2 }} and {{ 127.5 tokens = (256 - 1) / 2 }}: the last page is half empty, whatever the request's
# length. A waste that does not grow with the request matters only for short ones.
#
# </details>

# %% tags=["hide"]
from kvreport.accounting.batching import Allocator, simulate
from kvreport.accounting.paging import Lengths, last_page_waste, occupancy
from kvreport.book.chapter import bars, claim, curves, fold, formula, quantities, table

q = quantities()
MODEL = "llama-3.1-8b"
GiB = 2**30
claim(q.kv_per_token(MODEL), 131_072)
claim(float(last_page_waste(16)), 7.5)
claim(float(last_page_waste(256)), 127.5)
# %% [markdown]
# ## Four ways to hand out memory
#
# - **The maximum.** A stretch for the longest request allowed, from the first moment on.
# - **A guess.** The prompt plus the next power of two above what the answer turned out to need.
# - **Perfect foresight.** Exactly prompt plus answer. Nobody can do it; it shows what is lost merely because the stretch is
#   there before it is filled.
# - **Pages.** A page when the last one is full. A table remembers where each page lies, so that they need not lie side by
#   side. This is PagedAttention, and every large engine does it now.
#
# ## The formula

# %% tags=["hide"]
formula(
    "set aside, maximum  =  longest request allowed",
    "set aside, pages    =  ceil(tokens so far / page) × page",
    "empty in the last page, on average  =  (page − 1) / 2",
)

# %% [markdown]
# ## The numbers put in
#
# Two thousand requests: prompts of 512 tokens on average, answers of 400, each with many short and a few long ones, none
# above 4,096 together. No chance is involved: the lengths are spread evenly over their distribution, so the table is the
# same at every build.

# %%
prompts = Lengths.spread(512, 2048).draw(2000, base=3)
answers = Lengths.spread(400, 2048).draw(2000, base=2)

rows = []
for name, kind, page in (
    ("the maximum", "maximum", 16),
    ("a guess", "power_of_two", 16),
    ("perfect foresight", "exact", 16),
    ("pages of 16", "pages", 16),
    ("pages of 256", "pages", 256),
):
    found = occupancy(prompts, answers, kind, maximum_tokens=4096, page_tokens=page)
    rows.append([name, f"{found.waste_share:.1%}", f"{1 / (1 - found.waste_share):.2f}×"])

table(
    "Memory set aside and empty, over the whole lives of the requests",
    ["handed out as", "empty", "set aside per token in use"],
    rows,
)

# %% tags=["hide"]
waste = {row[0]: float(row[1].rstrip("%")) / 100 for row in rows}
assert 0.7 < waste["the maximum"] < 0.85
assert 0.35 < waste["a guess"] < 0.5
assert waste["pages of 16"] < 0.01
assert 0.1 < waste["pages of 256"] < 0.15

# %% [markdown]
# Three quarters empty with the maximum, less than a hundredth with pages of 16. Published figures of "about half" hold when
# lengths are spread evenly up to the maximum; here most are short, and it is worse.
#
# Empty memory is users who are turned away. A pool of 400,000 tokens, all requests waiting at the door:

# %%
rows = []
for name, allocator in (
    ("static batches", Allocator("static")),
    ("stretches, refilled one by one", Allocator("contiguous")),
    ("pages of 16", Allocator("paged", 16)),
    ("pages of 256", Allocator("paged", 256)),
):
    run = simulate(prompts, answers, allocator, pool_tokens=400_000, maximum_tokens=4096, max_seqs=1024)
    rows.append([name, run.mean_running, run.steps, f"{run.waste_share:.1%}", run.preemptions])

table(
    "A server with room for 400,000 tokens works off 2,000 requests",
    ["handed out as", "running on average", "steps until all are done", "empty", "thrown out and redone"],
    rows,
)

# %% tags=["hide"]
running = {row[0]: row[1] for row in rows}
assert running["pages of 16"] > 10 * running["static batches"]
assert running["pages of 16"] > 2.5 * running["stretches, refilled one by one"]
assert running["pages of 256"] < running["pages of 16"]

bars(
    "What 64 requests of Llama 3.1 8B with 700 tokens each occupy, if up to 4,096 are allowed.",
    {
        "the maximum": {
            "cache": ("in use", 64 * 700 * 131072),
            "free": ("set aside, empty", 64 * (4096 - 700) * 131072),
        },
        "pages of 256": {
            "cache": ("in use", 64 * 700 * 131072),
            "free": ("set aside, empty", 64 * (768 - 700) * 131072),
        },
        "pages of 16": {
            "cache": ("in use", 64 * 700 * 131072),
            "free": ("set aside, empty", 64 * (704 - 700) * 131072),
        },
    },
)

# %% [markdown]
# The last column of the table is the price of pages. A request is let in when its prompt fits; if all grow and the pages run
# out, somebody is thrown out and computed again. Engines call it *preemption*, and a log full of it means too many
# requests at once.
#
# ## The page's size

# %% tags=["hide"]
sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
curves(
    "Empty share of the memory of a request that has this many tokens, by page size. Small pages never hurt memory; large ones "
    "hurt short requests.",
    x=[2**k for k in range(7, 16)],
    lines={
        f"page of {page}": [
            100 * float(last_page_waste(page)) / (n + float(last_page_waste(page)))
            for n in (2**k for k in range(7, 16))
        ]
        for page in (16, 64, 256)
    },
    x_title="tokens of the request",
    y_title="empty, %",
)

# %% [markdown]
# Why not pages of one token, then? Because each page is a look-up, for the engine's tables and for the code that reads the
# cache. Sixteen is small enough to waste nothing and large enough to read in one go; some kernels want 32, 64 or 128.
#
# ## Where this picture ends
#
# - Models with several kinds of cache get blocks of several sizes, made equal by padding. Then a "block of 16 tokens" can
#   become one of hundreds: [what the log says](12-what-the-log-says.py).
# - Pages also let requests *share* a beginning: [prefix sharing](11-beyond-one-gpu.py).
#
# ## Exercises
#
# **1.** Llama 3.1 8B, sixteen requests of 32,768 tokens at most. Compare pages of 16 and of 256. Which occupies less, by how
# much, and why does the page's size matter *less* the longer the requests are?

# %% tags=["hide"]
rows = []
for page in (16, 256):
    empty = float(last_page_waste(page))
    rows.append(
        [
            page,
            empty,
            16 * empty * 131072 / 2**20,
            f"{empty / (32768 + empty):.3%}",
            f"{empty / (512 + empty):.1%}",
        ]
    )
claim(16 * 7.5 * 131072 / 2**20, 15)
claim(16 * 127.5 * 131072 / 2**20, 255)
fold(
    "Answer",
    "Pages of 16, by 240 MiB of some 64 GiB: less than half a per cent. The waste is half a page per request, however long the "
    "request is; at 512 tokens the same half page is a fifth. (The exercise as published asks why page size matters more at "
    "long context. It matters less, for memory; what grows with length is the table of pages, which large pages keep short.)",
    table(
        "Sixteen requests of 32,768 tokens",
        ["page", "empty per request, tokens", "empty, MiB", "share", "share at 512 tokens"],
        rows,
    ),
)

# %% [markdown]
# ## Remember
#
# <details class="kv-card"><summary>What did engines reserve before pages?</summary>
#
# The longest request allowed, for each.
#
# </details>
# <details class="kv-card"><summary>What does a request waste with pages?</summary>
#
# Half a page on average.
#
# </details>
# <details class="kv-card"><summary>What is preemption?</summary>
#
# A running request is thrown out because pages ran out, and computed again later.
#
# </details>
#
# ## Read on
#
# - [Prefill and decode](09-prefill-and-decode.py)
# - [Pages against rows, measured](../evidence/measured/index.md#e6)
# - Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention"
