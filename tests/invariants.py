"""What holds for every answer, whatever the engine, class, layout, format, context and machine.

An answer is held against its own parts, against neighbors of its question, and against what it prints: a limit
or a remedy that is asked back holds, and one step less does not. The fuzz targets draw questions by the thousand;
``tests/property/test_invariants.py`` asks the same of a few, and of the inputs that once broke something.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from record_files import observed

import kvreport
from kvreport.accounting.deployment import Deployment
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.llama_cpp.layout import lay_out_local
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.placement import LocalDevice
from kvreport.accounting.kernel import INDEXED_CONTEXT
from kvreport.accounting.parallel import Layout
from kvreport.accounting.support_lookup import lacks_class
from kvreport.accounting.weights import parameters
from kvreport.catalog.caches import FullAttention, Indexer, Latent
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.local_logs import LocalLog, LocalLogs
from kvreport.catalog.model import Model
from kvreport.catalog.observation import Observation
from kvreport.catalog.release import release_of, trait
from kvreport.cli import main, parser
from kvreport.cli.query_options import query_values
from kvreport.errors import InputError
from kvreport.estimation.answer import Estimate
from kvreport.estimation.home_case import open_local
from kvreport.estimation.home_estimate import ROWS_KEEP
from kvreport.estimation.remedies import remedies
from kvreport.estimation.why_not import why_not
from kvreport.evidence.judged_local_logs import judge_log
from kvreport.evidence.validation import compare
from kvreport.query import options
from kvreport.units import MIB

Draw = random.Random
Question = dict[str, Any]
BY_MEMORY: Final = "max_concurrent_requests_by_memory"
RUNNING: Final = "max_concurrent_requests"
CEILING: Final = "max_concurrent_requests_ceiling"
RESERVED: Final = "kv_bytes_per_request_per_gpu"
SERVES: Final = ("fits", "tight")
STARTS: Final = ("fits", "tight", "may_fit")
REFUSED: Final = ("engine_does_not_run", "format_not_supported", "context_exceeds_model")
LOCAL: Final = ("llama_cpp", "ollama", "mlx")
STATES_FIRST: Final = ("tensorrt_llm", "sglang")
"""Families that set memory for states aside before tokens."""
LOCAL_SHARE: Final = 0.2
"""Of the questions drawn, those for a machine of one's own: three of the eight families of engines, at more cost."""
AT_HOME: Final = 40e9
"""Parameters of the models drawn for one: where weights do not fit, an answer searches for what would for seconds."""
RECORDED_SHARE: Final = 0.1
"""Of the answers drawn, those held against what an engine itself recorded."""
ERROR_STEP: Final = 1e-4
"""By which the error of a recorded figure may grow: it is kept with six digits, and figures are printed with four."""
FITTED: Final = ("pool", "tokens", "concurrency")
FITTED_STEP: Final = 1e-3
"""The same of what follows from device and flags alone: a constant that is fitted again moves every log by a little."""
FRACTION_STEP: Final = 0.001
"""Steps in which shares of memory are printed."""


@cache
def catalog() -> Catalog:
    """The public catalog, opened once."""
    return open_catalog()


@cache
def names() -> tuple[list[str], list[str], list[str]]:
    """Models, accelerators and engines of the catalog."""
    known = catalog()
    return sorted(known.models), sorted(known.accelerators), sorted(known.engines)


@cache
def small() -> list[str]:
    """Models that machines of one's own run: released in 16 bits, as local engines quantize them themselves."""
    known = catalog().models
    return [
        name
        for name in names()[0]
        if known[name].weight_format == "bf16" and parameters(known[name]) < AT_HOME
    ]


@cache
def machines() -> list[str]:
    """Computers and cards that people have at home, in every size that is sold."""
    return sorted(catalog().home_accelerators)


def question(draw: Draw) -> Question:
    """Draw a question about any model, machine, engine, layout, format and context."""
    models, gpus, engines = names()
    own = draw.random() < LOCAL_SHARE
    models = small() if own and draw.random() < 0.95 else models
    gpus = machines() if own and draw.random() < 0.6 else gpus
    engine = draw.choice([one for one in engines if (catalog().engines[one].family in LOCAL) == own])
    asked: Question = {
        "model": draw.choice(models),
        "gpu": draw.choice(gpus),
        "engine": engine,
        "context_tokens": int(2 ** draw.uniform(0, 20)),
    }
    if catalog().engines[engine].family in LOCAL:
        further: tuple[tuple[str, tuple[Any, ...], float], ...] = (
            ("weights", ("q4_k_m", "q8_0", "bf16", "mlx-4bit"), 0.7),
            ("parallel", (1, 2, 4), 0.3),
            ("ubatch_size", (128, 2048), 0.2),
            ("n_gpu_layers", (0, 5, 20, 99), 0.15),
            ("n_cpu_moe", (0, 5, 200), 0.1),
            ("no_kv_offload", (True,), 0.1),
            ("memory", ("4GiB", "10GiB", "30GiB", "100GiB"), 0.15),
            ("host_memory", ("4GiB", "16GiB", "200GiB"), 0.2),
        )
    else:
        asked["tensor_parallel"] = draw.choice((1, 1, 2, 4, 8))
        further = (
            ("weights", ("bf16", "fp8", "int4", "nvfp4", "mxfp4"), 0.3),
            ("kv", ("bf16", "fp8"), 0.3),
            ("utilization", (0.3, 0.5, 0.8, 0.95), 0.3),
            ("max_batched_tokens", (512, 2048, 16_384), 0.2),
            ("max_seqs", (1, 16, 256, 4096, 16_384), 0.4),
            ("eager", (True,), 0.1),
            ("data_parallel", (2, 8), 0.15),
            ("pipeline_parallel", (2, 3, 4), 0.2),
            ("expert_parallel", (True,), 0.15),
            ("decode_context_parallel", (2, 8), 0.1),
            ("block_size", (16, 64), 0.05),
            ("prefix_caching", (True, False), 0.15),
            ("num_speculative_tokens", (1, 3), 0.1),
            ("kv_pool", ("512MiB", "20GiB", "120GiB"), 0.05),
        )
    for name, values, share in further:
        if draw.random() < share:
            asked[name] = draw.choice(values)
    return asked


def ask(asked: Question) -> Estimate | None:
    """The answer; None where it is refused in a sentence."""
    try:
        return kvreport.estimate(asked["model"], **{k: v for k, v in asked.items() if k != "model"})
    except InputError:
        return None


def rows(draw: Draw, asked: Question, first: Estimate) -> int:
    """A line of the table by context is what the answer to its context says, or the answer says what it keeps."""
    if any(line.startswith(ROWS_KEEP) for line in first.request.assumptions):
        return 1
    line = draw.choice(first.by_context)
    back = ask({**asked, "context_tokens": line.context_tokens})
    assert back is not None, ("row", line.context_tokens)
    own = next(one for one in back.by_context if one.context_tokens == line.context_tokens)
    assert line == own, ("row", line, own)
    return 2


def unbounded(count: int | None) -> int:
    """A count of an answer as JSON, where None says that memory limits nothing."""
    return 1 << 60 if count is None else count


# --- an answer against itself ---------------------------------------------------------------------------


def hold(estimate: Estimate) -> dict[str, Any]:
    """Hold an answer against its own parts, and return it as JSON has it."""
    told = estimate.to_dict()
    request, budget = estimate.request, told["budget"]
    family = request.engine.family
    running, by_memory, ceiling = told[RUNNING], unbounded(told[BY_MEMORY]), unbounded(told[CEILING])
    assert running <= by_memory, (running, by_memory)
    if not _classless(estimate):
        assert by_memory <= ceiling, ("ceiling", by_memory, ceiling)
    if told["max_concurrency"] is not None:
        assert running <= told["max_concurrency"], ("concurrency", running, told["max_concurrency"])
    if told["verdict"] in SERVES:
        assert running >= 1, "serves none"
    if told["uncertainty_unknown"]:
        # What an option changes by nobody knows how much is in no band.
        met = {told["verdict"], *(one["verdict"] for one in told["by_context"])}
        assert "fits" not in met, ("fits with what is not known", told["uncertainty_unknown"])
    if told["verdict"] == "may_fit":
        # A copy by its name has the pool of its narrowest layers, too.
        pools = [one.budget.kv_pool_bytes for one in (estimate, estimate.optimistic) if one is not None]
        assert max(pools) > 0 or not told[RESERVED], "may_fit without a pool"
    # Of a copy by its name the narrowest layers may fit where the widest do not.
    least = min(one.budget.weights for one in (estimate, estimate.optimistic) if one is not None)
    if least > budget["total_bytes"] and family not in LOCAL:
        assert told["verdict"] in ("weights_exceed_memory", *REFUSED), ("weights", told["verdict"])
    _first_reason(estimate, told)
    _pools(estimate, told)
    _sums(estimate, told)
    _words(estimate, told)
    _offload(estimate)
    return told


def _first_reason(estimate: Estimate, told: dict[str, Any]) -> None:
    """Of several reasons against a start the one that no other choice of sizes removes is the verdict."""
    request = estimate.request
    if _classless(estimate):
        assert told["verdict"] == "engine_does_not_run", ("a class that is not served", told["verdict"])
    if request.context_tokens > request.model.context_tokens and estimate.verdict not in REFUSED:
        assert request.engine.family in LOCAL, ("beyond the model", request.context_tokens, told["verdict"])
    by_length = {one["context_tokens"]: one["verdict"] for one in told["by_context"]}
    for outranking in ("engine_does_not_run", "format_not_supported"):
        # Neither depends on a length: what outranks in one line does in all of them.
        if outranking in by_length.values():
            assert set(by_length.values()) == {outranking}, ("one reason for all lengths", by_length)


def _classless(estimate: Estimate) -> bool:
    """True where the release has no class for the model, and so no rule by which its layers share pools."""
    request = estimate.request
    known, engine = catalog().support, request.engine
    return known is not None and bool(
        lacks_class(known.ruling(engine.family, engine.version), engine, request.model)
    )


def _pools(estimate: Estimate, told: dict[str, Any]) -> None:
    """Requests times what one of them reserves are no more than the pool of each rank."""
    if estimate.request.engine.family in LOCAL:
        return
    rank = told["per_rank"]
    # TensorRT-LLM rounds the tokens that a pool holds up to whole blocks: the last one may be a token long.
    rounded = told["block_bytes"] if estimate.request.engine.family == "tensorrt_llm" else 0
    if estimate.request.engine.family == "sglang":
        # A token of a pool with windows takes a fraction of a byte more or less than the whole bytes of a block.
        rounded = (rank["kv_pool_tokens"] or 0) // max(told["block_tokens"] or 1, 1)
    for one in rank["gpus"]:
        reserved = rank[RUNNING] * one["kv_bytes_per_request"]
        assert reserved <= one["kv_pool_bytes"] + rounded, ("pool", reserved, one["kv_pool_bytes"])


SHARE_OF_WHAT_IS_LEFT: Final = ("tensorrt_llm", "ceiling")
"""Families whose share is of the memory that weights and work leave, not of all of it."""


def _sums(estimate: Estimate, told: dict[str, Any]) -> None:
    """Parameters, weights and the budget are the sums of their parts."""
    parts, budget = dict(told["parameters"]["by_component"]), told["budget"]
    drafts = parts.pop("mtp", 0)  # layers that draft are counted apart
    assert sum(parts.values()) == told["parameters"]["total"], ("parameters", drafts, told["parameters"])
    assert told["parameters"]["active"] <= told["parameters"]["total"], told["parameters"]
    family = estimate.request.engine.family
    if family in LOCAL:
        return
    weights = told["weight_bytes_per_gpu"]
    assert sum(told["weight_bytes_by_component"].values()) == weights, ("weights", weights)
    assert weights + sum(told["loading_bytes"].values()) == budget["weights"], ("loaded", weights, budget)
    taken = sum(budget[name] for name in ("weights", "activations", "non_framework", "graphs"))
    total, share = budget["total_bytes"], budget["utilization"]
    left = (total - taken) * share if family in SHARE_OF_WHAT_IS_LEFT else total * share - taken
    if estimate.request.kv_pool_bytes is None:
        assert abs(max(left, 0) - budget["kv_pool_bytes"]) <= 2, ("pool of its parts", left, budget)
    else:
        assert budget["kv_pool_bytes"] == estimate.request.kv_pool_bytes, ("a pool as it is given", budget)


def _offload(estimate: Estimate) -> None:
    """Requests in host memory take no more than is stated for a data rank, with the copies that its ranks keep."""
    laid, tokens = estimate.deployment, estimate.context_tokens
    if laid is None or not estimate.kv_bytes_per_token_per_gpu or _classless(estimate):
        return
    layout = estimate.request.layout
    assert laid.host_memory.copies in (1, layout.tensor * layout.pipeline), (
        "copies",
        laid.host_memory.copies,
    )
    plans = (estimate.held, *(one.plan for one in laid.ranks))
    least = min(int(one.request_bytes(tokens)) for one in plans)
    for size in (8 << 30, 512 << 30):
        requests = laid.host_tokens(size, tokens) // tokens
        kept = requests * least * laid.host_memory.copies
        assert kept <= size, ("host memory", requests, kept, size)


def _words(estimate: Estimate, told: dict[str, Any]) -> None:
    """The bytes of the table, of the explanation and of JSON are the same ones, and ranks are what they add up to."""
    rank = told["per_rank"]
    for name in (RUNNING, BY_MEMORY, "kv_pool_tokens", "max_concurrency"):
        if told[name] is not None and rank[name] is not None:
            assert math.isclose(told[name], rank[name] * rank["data_ranks"]), (
                "ranks",
                name,
                told[name],
                rank[name],
            )
    row = next(one for one in told["by_context"] if one["context_tokens"] == told["context_tokens"])
    for name in (RESERVED, RUNNING, BY_MEMORY, CEILING, "limited_by", "shortfall_bytes", "verdict"):
        assert row[name] == told[name], (name, row[name], told[name])
    if estimate.request.engine.family in LOCAL:
        return
    assert not any("\n" in line for line in told["explanation"]), told["explanation"]
    # What the explanation divides is what memory allows, or it says why not.
    counts = re.findall(
        r"(?:= ([\d.]+) requests at once|allows? ([\d,]+)(?: requests|\n))",
        "\n".join([*told["explanation"], ""]),
    )
    for dividend, divisor, quotient in re.findall(
        r"([\d,]+) / ([\d,]+) = ([\d.]+) requests at once", "\n".join(told["explanation"])
    ):
        exact = int(dividend.replace(",", "")) / int(divisor.replace(",", ""))
        assert math.isclose(math.floor(exact * 100) / 100, float(quotient)), (dividend, divisor, quotient)
    if counts and told[BY_MEMORY] is not None and told["verdict"] in SERVES:
        each = int(float("".join(counts[-1]).replace(",", ""))) * estimate.request.layout.data
        assert each == told[BY_MEMORY], ("requests of the explanation", counts, told[BY_MEMORY])
    line = next(one for one in told["explanation"] if one.startswith("one request of"))
    held = int(re.findall(r"(?:holds|takes) ([\d,]+) B", line)[0].replace(",", ""))
    said = re.findall(r"reserves ([\d,]+) B", line)
    reserved = int(said[0].replace(",", "")) if said else held
    assert reserved == told[RESERVED], ("explanation", reserved, told[RESERVED])
    counted = not any("are not counted" in one for one in told["explanation"])
    if _classless(estimate):
        return
    # SGLang cuts a stage's share of the states to whole bytes (kv_cache_configurator.py, mamba_cache_per_req x pp_layer_scale).
    asked = estimate.request
    cut = 1 if asked.engine.family == "sglang" and asked.layout.pipeline > 1 else 0
    assert reserved >= held - cut or not counted, ("reserves less than it holds", reserved, held)


# --- neighbors of a question -------------------------------------------------------------------------------


def more_context(draw: Draw, asked: Question, first: Estimate) -> int:
    """A longer request never serves more, but where a server that is told it keeps less: :func:`kept_less_beyond`."""
    longer = ask({**asked, "context_tokens": asked["context_tokens"] + draw.choice((1, 16, 100, 5000))})
    if longer is None:
        return 1
    less, more = first.to_dict(), hold(longer)
    for name in (RUNNING, BY_MEMORY, CEILING):
        if name == CEILING or not kept_less_beyond(first, longer):
            assert unbounded(more[name]) <= unbounded(less[name]), ("longer", name, less[name], more[name])
    return 2


def kept_less_beyond(first: Estimate, longer: Estimate) -> bool:
    """Whether a longer request is one for which the engine keeps less than for a shorter one.

    vLLM gathers keys of 40 contexts up to 262,144 tokens, and of 16 above since 0.32
    (``config/vllm.py``, ``sparse_mla_prefill_workspace_factor``).
    """
    shorter, long = first.request, longer.request
    falls = shorter.context_tokens <= INDEXED_CONTEXT < long.context_tokens
    indexed = any(isinstance(cache, Indexer) for cache in shorter.model.every_cache)
    if shorter.engine.family != "vllm" or not falls or not indexed:
        return False
    release = release_of(shorter.engine)
    fewer = release.count("index_contexts_long") < release.count("index_contexts")
    return fewer and longer.budget.kv_pool_bytes > first.budget.kv_pool_bytes


def more_memory(draw: Draw, asked: Question, first: Estimate) -> int:
    """The same device with more memory never serves fewer."""
    if first.request.engine.family in LOCAL or len(first.request.accelerators) > 1:
        return 1
    device = first.request.accelerator
    added = draw.choice((1 << 20, 1 << 28, 1 << 31, 20 << 30))
    # The same classes of defaults, so that memory is all that differs.
    known = device.model_copy(update={"usable_bytes": device.usable_bytes + added})
    same = rules(first.request.engine)
    if same.scheduler(device) != same.scheduler(known):
        return 1
    larger = ask({**asked, "gpu": known})
    if larger is None:
        return 1
    less, more = first.to_dict(), hold(larger)
    if less["verdict"] in SERVES:
        assert more[RUNNING] >= less[RUNNING], ("memory", added, less[RUNNING], more[RUNNING])
    return 2


def more_share(draw: Draw, asked: Question, first: Estimate) -> int:
    """A larger share of memory never holds fewer, where the engine starts."""
    del draw
    share = first.budget.utilization
    if first.request.engine.family in (*LOCAL, "ceiling", "transformers") or share > 0.96:
        return 1
    larger = ask({**asked, "utilization": round(share + 0.03, 4)})
    if larger is None or "utilization" not in asked:
        return 1
    less, more = first.to_dict(), hold(larger)
    if more["verdict"] in STARTS and less["verdict"] in STARTS:
        assert unbounded(more[BY_MEMORY]) >= unbounded(less[BY_MEMORY]), (
            "share",
            less[BY_MEMORY],
            more[BY_MEMORY],
        )
    return 2


def smaller_weights(draw: Draw, asked: Question, first: Estimate) -> int:
    """The same weights in fewer bits never serve fewer."""
    if first.request.engine.family in LOCAL:
        return 1
    wide, narrow = (ask({**asked, "weights": name}) for name in ("bf16", draw.choice(("fp8", "int4"))))
    if wide is None or narrow is None:
        return 2
    less, more = hold(wide), hold(narrow)
    # A format may bring a reserve of its own (a kernel's workspace); it is never more than the weights that it saves.
    if less["verdict"] in SERVES and more["verdict"] in STARTS:
        assert unbounded(more[BY_MEMORY]) >= unbounded(less[BY_MEMORY]), (
            "weights",
            less[BY_MEMORY],
            more[BY_MEMORY],
        )
    return 3


def smaller_cache(draw: Draw, asked: Question, first: Estimate) -> int:
    """A cache in fewer bits never holds fewer.

    But where its kernel reads blocks of more bytes (FP8 heads of 512 on Hopper: 64 tokens, not 16) and the request fills
    less than one of them: it takes no more blocks then, and each is larger.
    """
    del draw
    if first.request.engine.family in LOCAL:
        return 1
    wide, narrow = (ask({**asked, "kv": name}) for name in ("bf16", "fp8"))
    if wide is None or narrow is None:
        return 2
    less, more = hold(wide), hold(narrow)
    if less["verdict"] in SERVES and more["verdict"] in STARTS:
        few, many = unbounded(less[BY_MEMORY]), unbounded(more[BY_MEMORY])
        larger = more["block_bytes"] > less["block_bytes"]
        if larger and asked["context_tokens"] < more["block_tokens"]:
            blocks = [one[RESERVED] / one["block_bytes"] for one in (less, more)]
            assert blocks[1] <= blocks[0], ("blocks of a cache", blocks)
            return 3
        assert many >= few, ("cache", few, many)
    return 3


# --- what an answer prints, asked back -----------------------------------------------------------------------


def shortfall(draw: Draw, asked: Question, first: Estimate) -> int:
    """What is said to be short is: a pool with that much more holds a request, and one byte less does not.

    Of an engine that shares a pool out in whole blocks it is counted from the last whole one, and in whole bytes of a token.
    """
    del draw
    if first.request.engine.family in LOCAL or first.optimistic is not None:
        return 1
    if first.verdict != "cache_exceeds_pool":  # most requests that fit nowhere are the longest ones
        asked = {**asked, "context_tokens": first.request.model.context_tokens}
    long = ask(asked)
    if long is None or long.verdict != "cache_exceeds_pool" or len(long.to_dict()["per_rank"]["gpus"]) > 1:
        return 2
    short, pool = hold(long)["shortfall_bytes"], long.budget.kv_pool_bytes
    assert short, "nothing is short, and a request does not fit"
    step = 1
    if long.request.engine.family in STATES_FIRST:
        step = (long.to_dict()["block_bytes"] or 1) + long.request.context_tokens
    # Where weights leave less than nothing, their lack is short, too.
    for size, enough in ((pool + short, True), (pool + short - step, False)):
        there = ask({**asked, "kv_pool": size}) if pool or enough else None
        if there is not None:
            holds = there.verdict in STARTS  # with the states that its number of requests asks for
            assert holds == enough, ("shortfall", pool, short, size, holds)
    return 4


def longest_context(draw: Draw, asked: Question, first: Estimate) -> int:
    """The longest context that is said to fit does, and one token more does not."""
    del draw
    longest = first.max_context_tokens
    if first.verdict in REFUSED or not longest or first.request.engine.family in LOCAL:
        return 1
    there = ask({**asked, "context_tokens": longest})
    assert there is not None, longest
    told = hold(there)
    assert unbounded(told[BY_MEMORY]) >= 1, ("longest context", longest, told["verdict"])
    if longest < first.request.model.context_tokens:
        known = there.budget.uncertainty_bytes == 0
        beyond = ask({**asked, "context_tokens": longest + 1})
        assert beyond is not None, longest
        # Above a length an engine may take more: SGLang's AITER attention lowers the share above 8,192 tokens.
        stepped = there.budget.kv_pool_bytes - beyond.budget.kv_pool_bytes > there.budget.uncertainty_bytes
        assert known or stepped or told["verdict"] != "fits", (
            "the last token that fits is within the error",
            longest,
        )
        assert not unbounded(hold(beyond)[BY_MEMORY]), ("beyond the longest context", longest)
        return 3
    return 2


def band(draw: Draw, asked: Question, first: Estimate) -> int:
    """What fits does so with the least pool of the band; what is tight does not, and would with its own."""
    del draw
    told = first.to_dict()
    pool, error = told["budget"]["kv_pool_bytes"], told["budget"]["uncertainty_bytes"]
    plain = first.request.engine.family not in LOCAL and first.optimistic is None
    if not plain or not error or not told[RESERVED] or told["verdict"] not in ("fits", "tight", "may_fit"):
        return 1
    if pool <= error:
        assert told["verdict"] != "fits", ("fits with nothing surely left", pool, error)
        return 1
    if first.request.kv_pool_bytes is not None:
        return 1
    least = ask({**asked, "kv_pool": pool - error})
    if least is None:
        return 1
    holds = unbounded(least.to_dict()[BY_MEMORY]) >= first.request.layout.data
    assert holds or told["verdict"] != "fits", ("fits, but not with the least pool of its band", pool, error)
    return 2


def layouts(draw: Draw, asked: Question, first: Estimate) -> int:
    """More devices hold no more of the weights and of a request each, and together no less than one of them held alone."""
    layout, request = first.request.layout, first.request
    if request.engine.family in LOCAL or layout.devices > layout.tensor or len(request.accelerators) > 1:
        return 1
    if first.by_name:  # which groups a copy may have depends on how they are cut
        return 1
    ranks = draw.choice((2, 4, 8))
    wide = ask({**asked, "tensor_parallel": layout.tensor * ranks})
    if wide is None or wide.request.kv_format.name != request.kv_format.name:
        return 1
    less, more = hold(wide), first.to_dict()
    for name in ("weight_bytes_per_gpu", "kv_bytes_per_token_per_gpu", "state_bytes_per_request_per_gpu"):
        assert less[name] <= more[name], ("more ranks", name, more[name], less[name])
        assert less[name] * ranks >= more[name], ("all ranks", name, more[name], less[name] * ranks)
    return 2


def copies(draw: Draw, asked: Question, first: Estimate) -> int:
    """A copy of a dense model on devices of its own runs what one alone runs."""
    layout, model = first.request.layout, first.request.model
    if first.request.engine.family not in ("vllm", "transformers") or layout.data > 1:
        return 1
    if layout.expert or "routed_experts" in first.parameters["by_component"]:
        return 1
    number = draw.choice((2, 3, 5))
    many = ask({**asked, "data_parallel": number})
    if many is None or many.verdict in REFUSED:
        return 1
    alone, together = first.to_dict(), hold(many)
    assert together["verdict"] == alone["verdict"], (
        "copies",
        model.id,
        alone["verdict"],
        together["verdict"],
    )
    for name in (RUNNING, BY_MEMORY, "kv_pool_tokens"):
        if alone[name] is not None:
            assert together[name] == number * alone[name], ("copies", name, alone[name], together[name])
    return 2


def ceilings(draw: Draw, asked: Question, first: Estimate) -> int:
    """What nothing reserved and nothing rounded would hold is the same under every engine with the same share and cache."""
    del draw
    request, told = first.request, first.to_dict()
    if request.engine.family in LOCAL or request.kv_pool_bytes is not None or not told[CEILING]:
        return 1
    if trait(request.engine, "window_without_asking_token"):
        return 1  # its windows hold a token less than those of any other
    given = {
        name: asked[name] for name in ("model", "gpu", "context_tokens", "tensor_parallel") if name in asked
    }
    found = ask(given | {"engine": "ceiling", "weights": "bf16", "kv": "bf16"})
    other = ask({**given, "engine": asked["engine"], "weights": "bf16", "kv": "bf16"})
    if found is None or other is None or other.verdict in REFUSED or found.verdict in REFUSED:
        return 2
    least, most = unbounded(other.to_dict()[BY_MEMORY]), unbounded(hold(found)[CEILING])
    assert least <= most, ("ceiling of the engine that reserves nothing", least, most)
    return 3


def times(draw: Draw, asked: Question, first: Estimate) -> int:
    """Bounds of a step and of a prompt: the bytes, operations and links of the answer at rates one of which is slow.

    With the two others a million times as fast each bound is one quotient, of what the answer itself says is read, of two
    operations a parameter, or of what a ring passes on; twice the rate is half the time.
    """
    request, device = first.request, first.request.accelerator
    rates, ranks = device.rates, request.layout.tensor
    known = (device.bandwidth_bytes_per_s, rates.bf16, *[device.interconnect_bytes_per_s] * (ranks > 1))
    plain = request.engine.family not in LOCAL and len(request.accelerators) == 1
    if (
        not plain
        or None in known
        or not asked.get("context_tokens")
        or first.decode_ms_lower_bound is None
        or request.layout.devices != ranks
    ):
        return 1

    def at(memory: float, compute: float, link: float) -> Estimate | None:
        figures = {
            name: getattr(rates, name).model_copy(update={"value": int(getattr(rates, name).value * compute)})
            for name in type(rates).model_fields
            if getattr(rates, name) is not None
        }
        changed = {"rates": rates.model_copy(update=figures)}
        for name, factor in (("bandwidth_bytes_per_s", memory), ("interconnect_bytes_per_s", link)):
            figure = getattr(device, name)
            changed[name] = figure and figure.model_copy(update={"value": int(figure.value * factor)})
        return ask({**asked, "gpu": device.model_copy(update=changed)})

    fast, factor = 1e6, draw.choice((2, 4))
    for place in range(3 if ranks > 1 else 2):
        slow = [fast, fast, fast]
        slow[place] = 1.0
        base = at(*slow)
        slow[place] = float(factor)
        twice = at(*slow)
        if base is None or twice is None:
            return 1
        for name in ("decode_ms_lower_bound", "prefill_ms_lower_bound"):
            before, after = getattr(base, name), getattr(twice, name)
            if before and after and before > 1e-3:
                assert math.isclose(before, factor * after, rel_tol=0.02), (name, place, before, after)
        _quotients(place, base, ranks, device)
    return 7


def _quotients(place: int, slow: Estimate, ranks: int, device: Any) -> None:
    """The bound of memory, operations or links alone, between what the answer says at least and at most passes there."""
    model, parts = slow.request.model, slow.parameters["by_component"]
    step, prompt = (1e-3 * (one or 0.0) for one in (slow.decode_ms_lower_bound, slow.prefill_ms_lower_bound))
    tokens = slow.request.context_tokens
    if place == 0:
        sizes, requests = slow.weights_by_component, slow.max_concurrent_requests
        least = sum(sizes.get(name, 0) for name in ("attention", "dense_mlp", "shared_experts"))
        each = slow.kv_bytes_per_request_per_gpu + slow.held.request_bytes(tokens)
        most = slow.weight_bytes_per_gpu + requests * (each + 2 * slow.state_bytes_per_request_per_gpu)
        read = step * device.bandwidth_bytes_per_s.value
        assert 0.98 * least <= read <= 1.01 * most, ("reads", least, read, most)
    elif place == 1:
        rates = [
            one.value
            for one in (getattr(device.rates, name) for name in type(device.rates).model_fields)
            if one
        ]
        aside = ("embedding", "output_head", "vision", "audio")
        looked_up = sum(parts.get(name, 0) for name in aside) + sum(
            row.count * math.prod(row.shape)
            for row in model.weights
            if row.looked_up and row.component not in aside
        )
        least = 2 * max(slow.parameters["active"] - looked_up, 0) * tokens / ranks
        assert 0.98 * least <= prompt * max(rates), ("multiplies", least, prompt * max(rates))
        each = least / tokens + _meets(model, tokens) / ranks
        least = each * slow.max_concurrent_requests / slow.request.layout.data
        assert 0.98 * least <= step * max(rates), ("multiplies in a step", least, step * max(rates))
    elif ranks > 1:
        passed = prompt * device.interconnect_bytes_per_s.value / 2
        once = 2 * (ranks - 1) / ranks * tokens * model.hidden_size * 2 * model.layer_count
        assert 0.98 * once <= passed <= 2.6 * once, ("passes on", once, passed)


def _meets(model: Model, tokens: int) -> float:
    """Least operations by which one decoded token of all heads meets what is stored of each token before it.

    Two for every stored element of a layer and head that reads it; layers that look at some tokens alone are left out.
    """
    found = 0.0
    if any(isinstance(cache, Indexer) for cache in model.every_cache):
        return found
    for group in model.layers:
        for stored in group.caches:
            if isinstance(stored, FullAttention):
                found += 2 * group.count * model.attention_heads * (stored.key_dim + stored.value_dim)
            elif isinstance(stored, Latent) and stored.window is None and stored.stride == 1:
                found += 2 * group.count * model.attention_heads * (2 * stored.latent_dim + stored.rope_dim)
    return found * tokens


def at_home(draw: Draw, asked: Question, first: Estimate) -> int:
    """On a machine of one's own: a device's bytes are their sum, and more slots, cells or wider types take no less of it."""
    if first.request.engine.family not in ("llama_cpp", "ollama"):
        return 1
    more: Question = draw.choice(
        (
            {"parallel": 2 * asked.get("parallel", 1)},
            {"context_tokens": 2 * asked["context_tokens"]},
            {"cache_type_k": "f32", "cache_type_v": "f32"},
            {"ubatch_size": 2 * asked.get("ubatch_size", 512)},
        )
    )
    whole = {"n_gpu_layers": 999} if asked["engine"] == "llama-cpp" else {}
    pair = [ask({"parallel": 1} | asked | whole | one) for one in ({}, more)]
    if None in pair:
        return 1
    parts = (
        "weight_bytes",
        "kv_bytes",
        "state_bytes",
        "compute_bytes",
        "offload_copy_bytes",
        "context_bytes",
    )
    told = [found.to_dict() for found in pair if found is not None]
    least, most = (list(one["per_rank"]["gpus"]) for one in told)
    for answer, devices_told in zip(told, (least, most), strict=True):
        held = answer["host_bytes"]["total"]
        for one in devices_told:
            total = sum(one[name] for name in parts) + one["companion_bytes"]
            assert total == one["used_bytes"], ("used", total, one)
            # Where the host's memory is the device's, its part is not there for the device.
            assert one["total_bytes"] - held <= one["room_bytes"] <= one["total_bytes"], ("room", held, one)
            assert max(one["used_bytes"] - one["room_bytes"], 0) == one["shortfall_bytes"], one
    if asked["engine"] == "llama-cpp" and len(least) == len(most) == 1:
        # Another type may have no kernel of flash attention, whose buffers are not those of the other path.
        buffers = () if "cache_type_k" in more else ("compute_bytes",)
        for name in ("weight_bytes", "kv_bytes", "state_bytes", *buffers):
            assert most[0][name] >= least[0][name], (more, name, least[0][name], most[0][name])
    return 3


def offers_at_home(draw: Draw, asked: Question, first: Estimate) -> int:
    """What an answer says would fit on a machine fits when it is asked, and what it calls the edge is one."""
    told = first.to_dict()
    if first.request.engine.name != "llama-cpp" or not told.get("inverse"):
        return 1
    found, flags = told["inverse"], {one.flags[0]: one.name for one in options()}
    offers: list[Question] = []
    for line in told["advice"]:
        words = line.split()
        offers.append(
            {
                flags[flag]: int(value) if value.isdigit() else value
                for flag, value in zip(words[::2], words[1::2], strict=True)
            }
        )
    longest, layers, experts = (
        found[name] for name in ("longest_context_tokens", "max_n_gpu_layers", "min_n_cpu_moe")
    )
    beyond: list[Question] = []
    if longest:
        offers.append({"context_tokens": longest})
        beyond += [{"context_tokens": longest + 256}] * (longest % 256 == 0)
    if "n_gpu_layers" not in asked and layers < found["layers"]:
        offers += [{"n_gpu_layers": layers}] * (layers > 0)
        beyond.append({"n_gpu_layers": layers + 1})
    if experts:
        offers.append({"n_cpu_moe": experts})
        beyond.append({"n_cpu_moe": experts - 1})
    offers += [{"weights": found["best_weights"]}] * bool(found["best_weights"])
    one, fits = draw.choice([*((one, True) for one in offers), *((one, False) for one in beyond), ({}, True)])
    again = ask({**asked, **one}) if one else None
    if again is not None and again.verdict != "context_exceeds_model":
        runs = again.max_concurrent_requests > 0 if fits else again.verdict in SERVES
        assert runs == fits, ("at home", one, fits, again.verdict, told["verdict"])
    return 2


def boundary(draw: Draw, asked: Question, first: Estimate) -> int:
    """The longest context of so many requests holds them when asked back, and one token more does not."""
    if first.request.engine.family in LOCAL:
        return 1
    laid = first.deployment.at_any_length()
    each = draw.choice((1, 2, 3, 7, 16))
    for rank in laid.ranks:
        edge_of(replace(rank, others=()), each)
    if first.verdict in REFUSED or first.request.kv_pool_bytes is not None:
        return 1
    wanted = each * first.request.layout.data
    given = {name: value for name, value in asked.items() if name not in ("model", "context_tokens")}
    frame = kvreport.boundary(asked["model"], requests=[wanted], **given)
    longest = int(frame["max_context_tokens"][0])
    if not longest:
        return 1
    there = ask({**asked, "context_tokens": longest})
    assert there is not None, longest
    assert unbounded(there.to_dict()[BY_MEMORY]) >= wanted, ("boundary", wanted, longest)
    if longest == first.request.model.context_tokens:
        return 2
    beyond = ask({**asked, "context_tokens": longest + 1})
    assert beyond is not None, longest
    assert unbounded(hold(beyond)[BY_MEMORY]) < wanted, ("beyond the boundary", wanted, longest)
    return 3


def edge_of(rank: Deployment, wanted: int) -> None:
    """Of one stage or device: the boundary is the longest context of which it holds so many requests."""
    longest, limit = rank.boundary(wanted), rank.case.model.context_tokens
    assert 0 <= longest <= limit, (longest, limit)
    if longest:
        held = int(rank.own_requests(longest))
        assert held >= wanted, ("boundary of a rank", rank.places, wanted, longest, held)
    if longest < limit:
        held = int(rank.own_requests(longest + 1))
        assert held < wanted, ("beyond the boundary of a rank", rank.places, wanted, longest, held)


def memory_alone(draw: Draw, asked: Question, first: Estimate) -> int:
    """Engines that reserve states first: memory allows what runs if ``max_num_seqs`` is that number, and no more."""
    del draw
    told, family = first.to_dict(), first.request.engine.family
    ranks = first.request.layout.data
    by_memory = told[BY_MEMORY]
    if (
        family not in STATES_FIRST
        or told["verdict"] not in SERVES
        or not by_memory
        or by_memory // ranks > 1 << 20
    ):
        return 1
    tokens = first.request.serving.max_batched_tokens
    if by_memory == told[RUNNING]:
        return 1  # what runs without being told so; a number that is told may be laid out otherwise
    if told["limited_by"] != "max_num_seqs" or (family == "tensorrt_llm" and by_memory // ranks > tokens):
        return 1  # no more requests run than a step has tokens
    flag = by_memory // ranks * (1 if family == "tensorrt_llm" else ranks)
    again = ask({**asked, "max_seqs": flag, "max_batched_tokens": first.request.serving.max_batched_tokens})
    if again is None or again.budget.kv_pool_bytes < first.budget.kv_pool_bytes:
        return 1  # batches are captured up to the number that is told, so that another keeps more for them
    assert again.max_concurrent_requests >= by_memory, ("by memory", by_memory, again.max_concurrent_requests)
    return 2


def _flag(name: str) -> str:
    return next((one.flags[0] for one in options() if one.name == name), "")


def words_of(asked: Question) -> list[str]:
    """A question as the words of a command line."""
    known = {one.name: one for one in options()}
    words = ["estimate", asked["model"]]
    for name, value in asked.items():
        if name == "model":
            continue
        flag = known[name].flags[0]
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return words


def run(words: list[str]) -> dict[str, Any]:
    """What a command line prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main([*words, "--format", "json"])
    assert status == 0, (status, words)
    return json.loads(out.getvalue())


def remedy(draw: Draw, asked: Question, first: Estimate) -> int:
    """A remedy that is printed, or a change that was tried beside it, gives what it says."""
    if first.verdict in SERVES or first.request.engine.family in LOCAL:
        return 1
    refused = why_not(first, catalog())
    found = (*remedies(first, catalog().kv_formats), *(refused.levers if refused else ()))
    if not found:
        return 1
    one = draw.choice(found)
    flags = one.flags.split()
    laid = (
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "expert_parallel",
        "decode_context_parallel",
    )
    other = laid if getattr(one, "lever", "") == "layout" else ()
    kept = {name: value for name, value in asked.items() if _flag(name) not in flags and name not in other}
    words = [*words_of(kept), *flags]
    if one.verdict is None:
        with contextlib.redirect_stderr(io.StringIO()):
            assert main(words) == 2, ("remedy that is refused", one)
        return 2
    again = run(words)
    assert (again[RUNNING], again["verdict"]) == (one.requests, one.verdict), ("remedy", one, again[RUNNING])
    return 2


NEIGHBORS: Final = (
    rows,
    more_context,
    more_memory,
    more_share,
    smaller_weights,
    smaller_cache,
    shortfall,
    longest_context,
    memory_alone,
    remedy,
    band,
    boundary,
    layouts,
    copies,
    ceilings,
    times,
    at_home,
    offers_at_home,
)


# --- what engines recorded ---------------------------------------------------------------------------------------


RECORDED: Final = Path(__file__).with_name("recorded.json")
"""What each published start is missed by, by figure: ``python tests/invariants.py`` writes it as it is today."""


@cache
def held() -> dict[str, dict[str, float]]:
    """The errors on record; of what is not named there, none."""
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


@cache
def sources() -> dict[str, Callable[[], dict[str, float]]]:
    """By name what an engine recorded: each judges one start and returns the relative errors of its figures."""
    folder = catalog().folder
    found: dict[str, Callable[[], dict[str, float]]] = {}
    found |= {f"start {one.id}": partial(_of_start, one) for one in observed()}
    found |= {f"home {one.id}": partial(_of_log, one) for one in LocalLogs.need().logs}
    runs = json.loads((folder / "llama_cpp" / "runs.json").read_text(encoding="utf-8"))["rows"]
    return found | {f"run {number}": partial(_of_run, *row) for number, row in enumerate(runs)}


def _of_start(observation: Observation) -> dict[str, float]:
    """A start-up log: weights, pool, tokens and concurrency, of its own pool and end to end."""
    found = compare(catalog(), observation)
    errors = {one.quantity: one.error for one in found.comparisons if math.isfinite(one.error)}
    starts = None not in (found.starts_predicted, found.starts_observed)
    return errors | ({"starts": float(found.starts_predicted != found.starts_observed)} if starts else {})


def _of_log(log: LocalLog) -> dict[str, float]:
    """A log of a machine of one's own: each buffer that it prints."""
    ours = judge_log(log, catalog()).ours
    return {part: _beyond(ours[part], size) for part, size in log.printed.items() if part in ours}


def _beyond(ours: float, printed: float) -> float:
    """The relative error of a size that is printed in hundredths of a MiB; both in MiB."""
    missing = max(0.0, abs(ours - printed) - 0.006)
    return math.copysign(missing, ours - printed) / max(printed, 1.0)


def _of_run(name: str, count: int, asked: Mapping[str, Any], *printed: Any) -> dict[str, float]:
    """A dry run of llama.cpp's build: caches with states, results, and the buffers of host and devices."""
    try:
        layout = lay_out_local(_quantized(name), options_of(asked), devices(count))
    except InputError:
        return {"starts": float(printed[0] is not None)}
    kv, state, output, host, compute = printed
    if kv is None:
        return {"starts": 1.0}
    found = {"caches": _beyond(layout.kv_cache_bytes / MIB, kv + state)}
    found |= {
        "output": _beyond(layout.host.output / MIB, output),
        "host": _beyond(layout.host.compute / MIB, host),
    }
    laid = zip(layout.devices, compute, strict=False)
    return found | {one.name: _beyond(one.compute / MIB, size) for one, size in laid}


@cache
def _quantized(name: str) -> LocalModel:
    return open_local(catalog().model(name), "q4_k_m", None)[0]


def options_of(row: Mapping[str, Any]) -> LocalOptions:
    """The options of a dry run."""
    return LocalOptions(
        context=row["ctx"],
        parallel=row["np"],
        unified=row.get("unified", False),
        type_k=row.get("k", "f16"),
        type_v=row.get("v", "f16"),
        batch=row.get("b", 2048),
        ubatch=row.get("ub", 512),
        flash=row.get("fa", "auto"),
        swa_full=row.get("swa", False),
        gpu_layers=row.get("ngl"),
        cpu_moe=row.get("cpu_moe", 0),
        tensor_split=tuple(row.get("split", ())),
        kv_offload=row.get("kv_offload", True),
        # The devices of these runs leave operations on host weights to the host.
        op_offload=False,
        outputs=row.get("out", 0),
        draft=row.get("draft", 0),
        embeddings=row.get("embd", False),
    )


def devices(count: int, usable: int = 1 << 40) -> list[LocalDevice]:
    """The devices of a dry run."""
    return [LocalDevice(f"device{n}", usable, align=32, pipelines=True) for n in range(count)]


def recorded(name: str) -> int:
    """No figure that an engine recorded is missed by more than the record says; one that it does not name, by nothing.

    A log that came after the record was written is held against nothing until it is on record, too.
    """
    now, known = sources()[name](), held().get(name)
    if known is None and not name.startswith("run "):
        return 1
    known = known or {}
    for figure, error in now.items():
        most = abs(known.get(figure, 0.0)) + (FITTED_STEP if figure in FITTED else ERROR_STEP)
        assert abs(error) <= most, (f"recorded {name}: {figure}", known.get(figure), error)
    assert now.keys() >= known.keys(), (f"recorded {name}: no longer compared", known.keys() - now.keys())
    return 1


def record() -> str:
    """The record as it is now: a line for each log, and for a dry run that is missed."""
    lines = []
    for name, errors in sources().items():
        found = {part: round(error, 6) for part, error in errors().items() if abs(error) > ERROR_STEP}
        if found or not name.startswith("run "):
            lines.append(f"{json.dumps(name)}: {json.dumps(found)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def answers(draw: Draw) -> tuple[str, int]:
    """An answer of any engine, held against itself and one neighbor, or against what an engine recorded."""
    if draw.random() < RECORDED_SHARE:
        return "recorded", recorded(draw.choice(list(sources())))
    asked = question(draw)
    first = ask(asked)
    if first is None:
        return "refused", 1
    hold(first)
    return "answered", draw.choice(NEIGHBORS)(draw, asked, first)


# --- offers of a search ----------------------------------------------------------------------------------------


LAYOUTS: Final = (
    "tp1",
    "tp2",
    "tp4",
    "tp8",
    "pp2",
    "pp3",
    "pp2-tp2",
    "pp2-tp4",
    "pp2-tp8",
    "dp8-ep",
    "tp8-dcp8",
)


def search(draw: Draw) -> tuple[str, Question]:
    """Draw a model, and what a search for its deployments is asked."""
    models, gpus, engines = names()
    servers = [
        name for name in engines if catalog().engines[name].family in ("vllm", "sglang", "tensorrt_llm")
    ]
    context, concurrent = int(2 ** draw.uniform(7, 17)), int(2 ** draw.uniform(0, 10))
    asked = {
        "gpus": [draw.choice(gpus)],
        "context": context,
        "concurrent": concurrent,
        "engine": draw.choice(servers),
        "layouts": [Layout.named(draw.choice(LAYOUTS))],
        "tensor_parallel": (1,),
    }
    if draw.random() < 0.25:
        asked["utilization"] = round(draw.uniform(0.5, 0.97), 2)
    if draw.random() < 0.15:
        asked["max_batched_tokens"] = draw.choice((2048, 8192, 16_384))
    return draw.choice(models), asked


def offers(draw: Draw) -> tuple[str, int]:
    """What a search offers, asked back."""
    model, asked = search(draw)
    return draw.choice((offered, offered, lever, apart))(draw, model, asked)


def sized(model: str, asked: Question) -> Any:
    """What a search finds; None where it is refused in a sentence."""
    try:
        return kvreport.size(model, **asked)
    except InputError:
        return None


def lever(draw: Draw, model: str, asked: Question) -> tuple[str, int]:
    """One change that a search names, asked back: as many devices, and as many requests."""
    found = sized(model, asked)
    if found is None:
        return "refused", 1
    best = found.ranking.deployments[0]
    label, devices, requests = draw.choice(found.levers)
    told = {**asked, "weights": [best.weight_format], "kv": [best.kv_format]}
    changes: tuple[tuple[str, Question], ...] = (
        ("half the context", {"context": max(1, asked["context"] // 2)}),
        ("FP8 cache", {"kv": ["fp8"]}),
        ("FP8 weights", {"weights": ["fp8"]}),
        ("steps of 2,048 tokens", {"max_batched_tokens": 2048}),
        ("steps of 2K tokens", {"max_batched_tokens": 2048}),
        ("at most 256 requests", {"max_seqs": 256}),
    )
    change = next(change for name, change in changes if label.startswith(name))
    again = sized(model, {**told, **change})
    if again is None:
        assert devices is None, ("lever", label, devices)
        return "answered", 2
    first = again.ranking.deployments[0]
    assert (devices, requests) == (first.devices, first.users_each), ("lever", label, devices, first.devices)
    return "answered", 2


def apart(draw: Draw, model: str, asked: Question) -> tuple[str, int]:
    """Pools of their own for prefill and decode, asked back: each smallest pool is the smallest, prefill the cheapest."""
    prompt = max(1, asked["context"] * draw.choice((1, 5, 9)) // 10)
    split = {**asked, "prompt": prompt, "output": asked["context"] - prompt or 1, "disaggregated": True}
    split |= {"average": asked["context"], "tensor_parallel": (1, 2, 4)}
    found = sized(model, split)
    if found is None:
        return "refused", 1
    facts = found.apart.to_dict()
    prefill, decode = facts["prefill"], facts["decode"]
    formats = {"weights": facts["weight_format"], "kv": facts["kv_format"]}
    each = -(-found.workload.peak // decode["replicas"])
    for side, context, wanted in (
        (prefill, prompt, 2),
        (decode, asked["context"], -(-each // decode["layout"]["data_parallel"])),
    ):
        layout = side["layout"]
        assert side["devices"] is None or side["devices"] == side["replicas"] * layout["gpus"], side
        if not asked["engine"].startswith("vllm") or layout["pipeline_parallel"] > 1:
            continue  # others lay pools out for the number that is told; of stages it is the pool of the fullest
        server = {
            "model": model,
            "gpu": asked["gpus"][0],
            "engine": asked["engine"],
            "context_tokens": context,
            "tensor_parallel": layout["tensor_parallel"],
            "data_parallel": layout["data_parallel"],
            "pipeline_parallel": layout["pipeline_parallel"],
            "expert_parallel": layout["expert_parallel"],
            "decode_context_parallel": layout["decode_context_parallel"],
            "nodes": layout["nodes"],
            **formats,
        }
        ranks, pool = layout["data_parallel"], side["smallest_pool_bytes"]
        for size, enough in ((pool, True), (pool - 1, False)):
            there = ask({**server, "kv_pool": size}) if size > 0 else None
            if there is not None and there.kv_bytes_per_request_per_gpu:
                held = unbounded(there.to_dict()[BY_MEMORY]) // ranks
                # The longest request must fit, too: the prompt and the token that it begins its answer with.
                longest = ask({**server, "context_tokens": context + (side is prefill), "kv_pool": size})
                if longest is None or not unbounded(longest.to_dict()[BY_MEMORY]):
                    held = 0
                assert (held >= wanted) == enough, ("smallest pool apart", size, held, wanted)
    if facts["requests_per_s_upper_bound"] is not None:
        through = facts["requests_per_s_upper_bound"] * facts["transfer_bytes_per_request"]
        assert abs(facts["transfer_bytes_per_s_upper_bound"] - through) <= 1e-6 * through, "transfer"
    prompts = {**split, "concurrent": 1, "context": prompt + 1, "output": 1, "average": prompt}
    prompts |= {"disaggregated": False, "weights": [formats["weights"]], "kv": [formats["kv"]]}
    others = sized(model, prompts)
    cost = prefill["gpu_seconds_per_request_lower_bound"]
    if others is not None and cost is not None:
        for one in others.ranking.deployments:
            if one.sure and one.users_held >= 2 * one.layout.data and one.layout.decode_context == 1:
                seconds = one.ttft_bound_s * one.layout.devices / one.layout.data
                assert cost <= seconds * (1 + 1e-9), ("a cheaper prefill", one.layout.label, seconds, cost)
    return "answered", 5


def offered(draw: Draw, model: str, asked: Question) -> tuple[str, int]:
    """One offer, asked back: the command holds the workload, and so does the smallest share of memory."""
    try:
        found = kvreport.size(model, **asked)
    except InputError:
        return "refused", 1
    one = draw.choice(found.ranking.deployments)
    context = asked["context"]
    facts = found.describe(one)
    ranks, layout = one.layout.data, one.layout
    flag = one.users_each // ranks * (ranks if asked["engine"].startswith("sglang") else 1)
    back: Question = {
        "model": model,
        "gpu": one.offer.accelerator.id,
        "engine": asked["engine"],
        "context_tokens": context,
        "weights": one.weight_format,
        "kv": one.kv_format,
        "tensor_parallel": layout.tensor,
        "pipeline_parallel": layout.pipeline,
        "data_parallel": layout.data,
        "expert_parallel": layout.expert,
        "decode_context_parallel": layout.decode_context,
        "nodes": layout.nodes,
        "max_seqs": flag,
        **{name: asked[name] for name in ("utilization", "max_batched_tokens") if name in asked},
    }
    estimate = ask(back)
    assert estimate is not None, "an offer that is refused"
    hold(estimate)
    _pasted(facts["commands"], back, estimate)
    held = one.replicas[1] * estimate.max_concurrent_requests
    assert estimate.verdict in STARTS, ("offer", estimate.verdict)
    if one.sure:
        assert held >= found.workload.peak, ("offer", held, found.workload.peak)
    needed = found.rank_each(one) * ranks
    _facts_of(facts, back, estimate, needed)
    shares = facts["mem_fraction_static"]
    share = facts["smallest_utilization"] if shares is None else shares["lowest"]
    if share is None or ("utilization" in asked and share > asked["utilization"]):
        return "answered", 2
    least = ask({**back, "utilization": share})
    assert least is not None, share
    held = least.max_concurrent_requests
    assert held >= needed, ("smallest share", share, held, needed)
    below = (
        ask({**back, "utilization": round(share - 2 * FRACTION_STEP, 4)})
        if share > 3 * FRACTION_STEP
        else None
    )
    if below is not None:
        held = below.max_concurrent_requests
        assert held < needed or below.verdict not in STARTS, ("share below", share, held, needed)
    return "answered", 4


def _pasted(commands: Mapping[str, str | None], back: Question, estimate: Estimate) -> None:
    """The command of an offer, pasted, is answered as the offer is; formats and releases have no flag in it."""
    family = catalog().engine(back["engine"]).family
    command = commands.get(family)
    if command is None or family == "tensorrt_llm" or back["nodes"] > 1:
        return
    options = parser().parse_args(["estimate", "--gpu", back["gpu"], *shlex.split(command)])
    values = query_values(options) | {
        "engine": back["engine"],
        "weights": back["weights"],
        "model": back["model"],
    }
    told = ask(values)
    assert told is not None, ("a pasted command that is refused", command)
    pools = [one.budget.kv_pool_bytes for one in (told, estimate)]
    assert pools[0] == pools[1], ("pool of a pasted command", command, pools)
    held = [one.max_concurrent_requests for one in (told, estimate)]
    assert held[0] == held[1], ("requests of a pasted command", command, held)


def _facts_of(facts: dict[str, Any], back: Question, estimate: Estimate, wanted: int) -> None:
    """The bytes of an offer are the answer's to its command; its longest context is the longest of so many requests."""
    told, limit = estimate.to_dict(), estimate.request.model.context_tokens
    names = {"weight_bytes_per_gpu": "resident_bytes", "kv_bytes_per_request_per_gpu": "kv_bytes_per_request"}
    # SGLang captures no larger batches than are told, so that the command may have more than is offered. Of classes whose
    # images pass through the GPU it captures up to 512 that are told, at most 1 GiB, which offers do not follow.
    anew = back["engine"].startswith("sglang")
    names |= {} if anew else {"kv_pool_bytes_per_gpu": "kv_pool_bytes"}
    for name, own in names.items():
        assert facts[name] in {one[own] for one in told["per_rank"]["gpus"]}, (name, facts[name])
    _times_of(facts, back, wanted)
    offered, there = facts["kv_pool_bytes_per_gpu"], estimate.budget.kv_pool_bytes
    assert not anew or offered <= there + (1 << 30), ("pool of an offer", offered, there)
    if offered != there:
        return
    longest = facts["longest_context_tokens"]
    for context, enough in ((longest, True), (longest + 1, False)):
        there = ask({**back, "context_tokens": context}) if 0 < context <= limit else None
        if there is not None:
            held = unbounded(there.to_dict()[BY_MEMORY])
            holds = held >= wanted and there.verdict in STARTS
            assert holds == enough, (
                "longest context of an offer",
                context,
                held,
                wanted,
            )


def _times_of(facts: dict[str, Any], back: Question, wanted: int) -> None:
    """The bound of a step is that of an answer with as many requests as the peak has on one replica."""
    if back["pipeline_parallel"] > 1 or facts["tpot_lower_bound_s"] is None:
        return  # stages work on several micro-batches at once
    flag = wanted // back["data_parallel"] * (back["data_parallel"] if "sglang" in back["engine"] else 1)
    there = ask({**back, "max_seqs": flag})
    if there is not None and there.max_concurrent_requests == wanted and there.decode_ms_lower_bound:
        own = 1000 * facts["tpot_lower_bound_s"]
        assert math.isclose(own, there.decode_ms_lower_bound, rel_tol=0.01), (
            "bound of a step",
            own,
            there.decode_ms_lower_bound,
        )


def _drawn(seed: int) -> tuple[Draw, str, Question]:
    """One question, or one search in eight with its model."""
    draw = random.Random(f"whole {seed}")  # noqa: S311 - examples, no secrets
    if seed % 8 != 7:
        return draw, "", question(draw)
    model, asked = search(draw)
    prompt = asked["context"] - 1 or 1
    return (
        draw,
        model,
        asked | draw.choice(({}, {"prompt": prompt, "output": 1, "disaggregated": True})),
    )


def whole(seed: int) -> str:
    """All that one question or search is answered: the same text as long as no figure of it changes."""
    _, model, asked = _drawn(seed)
    found: Any = sized(model, asked) if model else ask(asked)
    return "refused" if found is None else json.dumps(found.to_dict())


def whole_held(seed: int) -> None:
    """Hold the same answer against itself and every neighbor, or each way in which a search is asked back."""
    draw, model, asked = _drawn(seed)
    if model:
        plain = {
            name: value for name, value in asked.items() if name not in ("prompt", "output", "disaggregated")
        }
        for back in (offered, offered, lever, apart):
            back(draw, model, plain)
        return
    first = ask(asked)
    if first is not None:
        hold(first)
        for neighbor in NEIGHBORS:
            neighbor(draw, asked, first)


if __name__ == "__main__":
    RECORDED.write_text(record(), encoding="utf-8")
