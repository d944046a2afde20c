"""The sizer's front door: a workload in words and numbers, answered with ranked deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace
from fnmatch import fnmatchcase
from statistics import fmean
from typing import Any, Final

from kvreport.accounting import kernel
from kvreport.accounting.offers import Choices, Offer
from kvreport.accounting.parallel import Layout
from kvreport.accounting.ranking import rank
from kvreport.accounting.sizing import (
    DEFAULT_EFFICIENCY,
    Load,
    in_flight,
)
from kvreport.catalog.accelerator import Accelerator, current_since
from kvreport.catalog.load import RELEASED, Catalog, open_catalog
from kvreport.catalog.release import trait
from kvreport.errors import InputError, require_numbers, shorten
from kvreport.estimation.alternatives import levers, what_to_relax
from kvreport.estimation.disaggregated import disaggregate
from kvreport.estimation.hardware import listed, parsed
from kvreport.estimation.named import AUTO, engine_named, open_model, refuse_class, refuse_unsupported
from kvreport.estimation.named_copies import narrowed
from kvreport.estimation.not_followed import not_followed
from kvreport.estimation.opened import said_of
from kvreport.estimation.sizing_answer import Sizing
from kvreport.query import Query, several, several_of
from kvreport.units import count, parse_tokens

__all__ = ["RENTED_FIRST", "TENSOR_PARALLEL", "Sizing", "size"]

TENSOR_PARALLEL: Final = (1, 2, 4, 8)
"""Sizes that are tried where none are given: up to the devices of a usual server."""

MOST_UNEQUAL: Final = 16
"""Devices of a machine of unequal ones."""

RENTED_FIRST: Final = (
    "no accelerator was named, so current GPUs that several clouds rent out come first, then the fewest GPUs; "
    "--gpu '*' ranks all by total memory"
)


def size(
    models: str | Sequence[str],
    *,
    context: int | str,
    average: int | str | None = None,
    concurrent: float | None = None,
    users: int | None = None,
    requests_per_minute: float | None = None,
    latency_s: float | None = None,
    prompt: int | str | None = None,
    output: int | str | None = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    burst: float = 1.0,
    spare_replicas: int = 0,
    shared_prefix: int | str = 0,
    efficiency: float = DEFAULT_EFFICIENCY,
    gpus: str | Sequence[str] = (),
    available: int | None = None,
    prices: Mapping[str, float] | None = None,
    weights: str | Sequence[str] = (RELEASED,),
    kv: str | Sequence[str] = (AUTO,),
    tensor_parallel: int | Sequence[int] | None = None,
    layouts: Sequence[Layout] | None = None,
    engine: str = "vllm",
    utilization: float | None = None,
    max_seqs: int | None = None,
    max_batched_tokens: int | None = None,
    disaggregated: bool = False,
    fetch: bool = False,
    revision: str | None = None,
    catalog: Catalog | None = None,
) -> Sizing:
    """Rank the deployments that serve a workload.

    Args:
        models: A model, or a shortlist of acceptable models.
        context: Longest request allowed in tokens, prompt and output together.
        average: Average number of tokens of a request in flight. None means the prompt plus half of the output if
            both are given, and otherwise ``context``.
        concurrent: Number of requests in flight.
        users: Number of people, instead of ``concurrent``. Little's law gives the requests in flight from this
            number, ``requests_per_minute`` and ``latency_s``.
        requests_per_minute: Requests that each person sends per minute.
        latency_s: Seconds from the arrival of a request to its last token.
        prompt: Prompt length in tokens; None for ``context`` minus ``output``.
        output: Output length in tokens.
        ttft_s: Target for the time to first token, in seconds.
        tpot_s: Target for the time per output token, in seconds.
        burst: Peak number of requests divided by the average.
        spare_replicas: Number of replicas that may fail.
        shared_prefix: Number of tokens at the start that all requests share.
        efficiency: Share of the roofline that servers are assumed to reach.
        gpus: Accelerators to try: slugs, aliases, shell patterns, or machines with unequal GPUs
            (``rtx-5070ti+rtx-5090``). Empty for all accelerators, commonly rented ones first.
        available: Number of available devices of each kind; None for no limit.
        prices: Price of a device per hour, by slug or alias. Only accelerators with a price are then tried.
        weights: Weight formats to try.
        kv: KV formats to try.
        tensor_parallel: Tensor-parallel sizes to try; None for 1, 2, 4 and 8.
        layouts: Other layouts to try. None for the suitable ones in the published grid and in ``sizing_layouts``, or
            for no others if ``tensor_parallel`` is given.
        engine: Engine whose rules apply. For llama.cpp and Ollama, use :func:`kvreport.size_home`.
        utilization: Share of the memory that the engine may use; None for the engine's default.
        max_seqs: Maximum number of concurrent requests, counted as the engine's flag counts them: per data rank, or
            over all data ranks for SGLang. None for the engine's default.
        max_batched_tokens: Tokens in one step of a data rank; None for the engine's default.
        disaggregated: If True, prefill and decode have separate pools, and deployments are ranked by their decode pool.
        fetch: If True, download the configs of models that are not in the catalog from the Hugging Face Hub.
        revision: Branch, tag or commit of the repositories on the Hub.
        catalog: Catalog that resolves names; None for the public catalog.

    Returns:
        The deployments, best first (``ranking.deployments``; ``to_frame()`` gives a data frame), the workload as understood,
        and the assumptions.

    Raises:
        InputError: If the workload contradicts itself or no deployment serves it. The message says what to relax.

    >>> size("Qwen/Qwen3-32B", context="8K", concurrent=8, gpus=["h200-sxm-141gb"])
    <Sizing 8 requests of 8,192 tokens: 1 x h200-sxm-141gb with Qwen/Qwen3-32B (tp1)>
    """
    require_numbers(burst=burst, efficiency=efficiency)
    require_numbers(whole=True, spare_replicas=spare_replicas)
    require_numbers(
        none=True,
        concurrent=concurrent,
        requests_per_minute=requests_per_minute,
        latency_s=latency_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
    )
    require_numbers(none=True, whole=True, users=users, available=available)
    known = open_catalog() if catalog is None else catalog
    policy = engine_named(known, engine)
    if trait(policy, "allocates_at_start"):
        raise InputError(
            f"engine: found {policy.name}, which keeps one copy of a model on one machine; allowed: kvreport.size_home(...) for it, "
            "or the engine of a server, such as vllm"
        )
    names, weights, kv, gpus, sizes = _lists(models, weights, kv, gpus, tensor_parallel)
    asked_of_engine = Query(
        model=names[0], utilization=utilization, max_seqs=max_seqs, max_batched_tokens=max_batched_tokens
    )
    passed_over = not_followed(asked_of_engine, policy, known.support)
    flags = {one.flag for one in passed_over}
    max_seqs = None if "--max-seqs" in flags else max_seqs
    max_batched_tokens = None if "--max-batched-tokens" in flags else max_batched_tokens
    opened = [open_model(name, known, fetch=fetch, revision=revision) for name in names]
    records = [one.model for one in opened]
    for record in records:
        refuse_unsupported(record, policy, known.support)
        refuse_class(record, policy, known.support)
    assumed = [sentence.rstrip(".") for one in opened for sentence in said_of(one)]
    requests = _requests(concurrent, users, requests_per_minute, latency_s, assumed)
    longest = parsed("context", parse_tokens, context)
    written = parsed("output", parse_tokens, output) if output is not None else kernel.default_output(longest)
    asked = parsed("prompt", parse_tokens, prompt) if prompt is not None else longest - written
    if output is None:
        assumed.append(f"answers of {count(written)} tokens")
    if prompt is None:
        assumed.append(f"prompts of {count(asked)} tokens, what the answer leaves of the longest request")
    if average is not None:
        mean = parsed("average", parse_tokens, average)
    elif prompt is not None and output is not None:
        mean = kernel.mean_tokens(asked, written)
        assumed.append(f"{count(mean)} tokens held on average: the prompt and half of the answer")
    else:
        mean = longest
        assumed.append("every request of the maximum length")
    work = Load(
        concurrent=requests,
        longest_tokens=longest,
        mean_tokens=mean,
        prompt_tokens=asked,
        output_tokens=written,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        burst=burst,
        spare_replicas=spare_replicas,
        shared_prefix_tokens=parsed("shared-prefix", parse_tokens, shared_prefix)
        if shared_prefix != 0
        else 0,
        efficiency=efficiency,
        latency_s=latency_s,
    )
    if ttft_s is not None or tpot_s is not None:
        assumed.append(f"servers reach {efficiency:.0%} of the roofline")
    choices = Choices(
        engine=policy,
        formats=known.weight_formats,
        weight_formats=dict(_weight_format(known, name) for name in weights),
        kv_formats={name: None if name.lower() == AUTO else known.kv_format(name) for name in kv},
        all_kv_formats=known.kv_formats,
        tensor_parallel=TENSOR_PARALLEL if sizes is None else tuple(sizes),
        layouts=_layouts(known, sizes, layouts),
        suiting=layouts is None,
        utilization=utilization,
        max_seqs=max_seqs,
        max_batched_tokens=max_batched_tokens,
        current_since=None if gpus or prices else current_since(known.accelerators.values()),
        support=known.support,
    )
    if choices.current_since is not None:
        assumed.append(RENTED_FIRST)
    offers = _offers(known, gpus, available, prices)
    if disaggregated and any(offer.machine for offer in offers):
        raise InputError("disaggregated: found a machine of unequal GPUs; allowed: one kind of GPU")
    # Prefills elsewhere do not delay the first token here.
    here = replace(work, ttft_s=None) if disaggregated else work
    ranking = rank(records, here, offers, choices)
    if not ranking.deployments:
        raise InputError(what_to_relax(here, ranking, choices))
    return Sizing(
        workload=work,
        ranking=ranking,
        optimistic=rank([narrowed(one) for one in records], here, offers, choices)
        if any(one.by_name for one in records)
        else None,
        levers=levers(here, ranking.deployments[0], choices, known),
        assumptions=tuple(assumed),
        catalog=known,
        policy=policy,
        max_batched_tokens=max_batched_tokens,
        utilization=utilization,
        not_followed=passed_over,
        apart=disaggregate(ranking.deployments[0], work, choices) if disaggregated else None,
    )


def _lists(
    models: object, weights: object, kv: object, gpus: object, sizes: object
) -> tuple[list[str], list[str], list[str], list[str], list[int] | None]:
    """The arguments that state one or several, as lists."""
    if isinstance(models, Sized) and not models:
        raise InputError("models: found no name; allowed: one or a list of names")
    if isinstance(sizes, Sequence) and not sizes:
        raise InputError(
            "tensor-parallel: found no size; allowed: sizes to try, such as 1 and 2, or None for the usual ones"
        )
    return (
        several(models),  # type: ignore[arg-type]
        several_of("weights", weights, str),
        several_of("kv", kv, str),
        several_of("gpus", gpus, str, none=True),
        None if sizes is None else several_of("tensor-parallel", sizes, int),
    )


def _layouts(
    known: Catalog, sizes: Sequence[int] | None, layouts: Sequence[Layout] | None
) -> tuple[Layout, ...]:
    if layouts is not None:
        return tuple(several_of("layouts", layouts, Layout, none=True))
    if sizes is not None:
        return ()
    return tuple(Layout(**one.model_dump()) for one in (*known.grid.layouts, *known.grid.sizing_layouts))


def _requests(
    concurrent: float | None,
    users: int | None,
    per_minute: float | None,
    latency_s: float | None,
    assumed: list[str],
) -> float:
    rate = (users, per_minute, latency_s)
    if concurrent is not None:
        if any(value is not None for value in rate):
            raise InputError(
                "concurrent: found together with users, requests per minute or latency; allowed: either the "
                "requests in flight, or all three of the others"
            )
        return concurrent
    if users is None or per_minute is None or latency_s is None:
        named = {"users": users, "requests per minute": per_minute, "latency": latency_s}
        given = [name for name, value in named.items() if value is not None]
        missing = " and ".join(name for name, value in named.items() if value is None)
        found_words = f"{' and '.join(given)} without {missing}" if given else "no number of requests"
        raise InputError(
            f"workload: found {found_words}; allowed: concurrent (the requests in flight), or together users, requests "
            "per minute and latency"
        )
    found = in_flight(users * per_minute / 60, latency_s)
    assumed.append(
        f"Little's law: {users:,} users x {per_minute:g} per minute / 60 x {latency_s:g} s = "
        f"{found:.1f} requests in flight"
    )
    return found


def _offers(
    known: Catalog, gpus: Sequence[str], available: int | None, prices: Mapping[str, float] | None
) -> list[Offer]:
    stated: object = prices or {}
    if not isinstance(stated, Mapping) or not all(isinstance(one, int | float) for one in stated.values()):
        raise InputError(f"prices: found {shorten(prices)}; allowed: a number above 0 for each name of a GPU")
    priced = {known.accelerator(name).id: price for name, price in (prices or {}).items()}
    for name, price in priced.items():
        if not price > 0:
            raise InputError(f"price: found {price:g} for {name}; allowed: above 0")
    chosen: dict[str, int | None] = {}
    machines: list[tuple[Accelerator, ...]] = []
    for name in gpus:
        pattern = "*" in name and not name.rpartition("*")[2].strip().isdigit() and "+" not in name
        matches = [slug for slug in known.accelerators if fnmatchcase(slug, name.lower())] if pattern else []
        if matches:
            chosen |= dict.fromkeys(matches, available)
            continue
        parts = [(known.accelerator(str(one)), number) for one, number in listed(name)]
        if len(parts) > 1:
            machines.append(_machine(parts))
        else:
            [(device, number)] = parts
            chosen[device.id] = number if number > 1 and available is None else available
    slugs = list(chosen) or ([] if machines else list(priced) or list(known.accelerators))
    asked = {*slugs, *(one.id for machine in machines for one in machine)}
    if priced and not asked <= set(priced):
        missing = ", ".join(sorted(asked - set(priced)))
        raise InputError(
            f"price: none given for {shorten(missing)}; allowed: a price for every GPU, or for none"
        )
    if available is not None and available < 1:
        raise InputError(f"available: found {available}; allowed: at least 1")
    unequal = [
        Offer.unequal(machine, available, fmean(priced[one.id] for one in machine) if priced else None)
        for machine in machines
    ]
    return [
        *unequal,
        *(Offer(known.accelerator(slug), chosen.get(slug, available), priced.get(slug)) for slug in slugs),
    ]


def _machine(parts: Sequence[tuple[Accelerator, int]]) -> tuple[Accelerator, ...]:
    """The devices of a machine written as ``rtx-5090*2+rtx-3090``."""
    devices = tuple(device for device, number in parts for _ in range(number))
    if len(devices) > MOST_UNEQUAL:
        raise InputError(f"gpu: found {len(devices)} devices in one machine; allowed: at most {MOST_UNEQUAL}")
    return devices


def _weight_format(known: Catalog, name: str) -> tuple[str, Any]:
    if name.lower() == RELEASED:
        return RELEASED, None
    form = known.weight_format(name)
    return form.name, form
