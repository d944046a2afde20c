"""One estimate: from a question to its numbers, through the same arithmetic as the dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvreport.accounting.capacity import UNLIMITED_USERS, Limit, Verdict
from kvreport.accounting.case import Memo
from kvreport.accounting.demand import demand
from kvreport.accounting.deployment import Deployment, bound_of, lay_out
from kvreport.accounting.numeric import Reals
from kvreport.accounting.partition import best_partition
from kvreport.accounting.roofline import step_bounds_ms
from kvreport.accounting.support_lookup import judge
from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.load import Catalog, open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError, shorten
from kvreport.estimation.answer import (
    POSSIBLE,
    AtContext,
    Estimate,
    between_ends,
    parameter_counts,
    table_contexts,
    with_open_terms,
)
from kvreport.estimation.hardware import BEST, refuse_beyond_one_memory
from kvreport.estimation.home_estimate import estimate_local
from kvreport.estimation.home_names import engine_at_home, engine_of
from kvreport.estimation.request import Request, resolve
from kvreport.query import Query, require_known
from kvreport.units import gib, human_bytes


def estimate(
    model: str | Path | Model,
    *,
    gpu: str | Accelerator | Sequence[str | Accelerator],
    catalog: Catalog | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Query, checked there
) -> Estimate:
    """Estimate how many requests of one context length fit, and whether the engine starts.

    Args:
        model: Catalog id, slug or alias; path of a ``config.json``; or a :class:`Model`.
        gpu: Accelerator slug or alias, or a record. For unequal GPUs, a list with one entry per rank.
        catalog: Catalog that resolves names; None for the public catalog.
        **options: The options listed below, such as ``tensor_parallel``, ``context_tokens``, ``weights``, ``kv``,
            ``engine`` and ``utilization``. Each has the default of its command-line flag.

    Returns:
        The ``Estimate``, with the verdict, the number of concurrent requests, the bytes per token and request, the
        memory budget and the explanation.

    Raises:
        InputError: If a name is unknown, or a value is out of range or impossible.

    >>> estimate("Qwen/Qwen2.5-7B", gpu="h100-sxm-80gb", context_tokens=8192).kv_bytes_per_token_per_gpu
    57344
    """
    result = hypothetical(model, gpu=gpu, catalog=catalog, **options)
    pool = None if result.at_home else result.request.kv_pool_bytes
    if pool is None:
        return result
    # Of a copy by its name the narrowest layers; of unequal ranks the one with the least room.
    laid = (result.optimistic or result).deployment
    if laid is None:
        return result
    weights, total = max(
        ((int(one.resident_bytes), int(one.total_bytes)) for one in laid.ranks),
        key=lambda one: one[0] - one[1],
    )
    room = max(total - weights, 0)
    if pool > room:
        raise InputError(
            f"kv pool: found {gib(pool)} GiB per GPU; next to {gib(weights)} GiB of weights, "
            f"{result.request.accelerator.name} has room for at most {gib(room)} GiB"
        )
    return result


def hypothetical(
    model: str | Path | Model,
    *,
    gpu: str | Accelerator | Sequence[str | Accelerator],
    catalog: Catalog | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Query, checked there
) -> Estimate:
    """The same with any pool that is given, for which the device may have no room.

    Raises:
        InputError: If a name is unknown, or a value is out of range or impossible.
    """
    require_known(options)
    asked = dict(options)
    known = open_catalog() if catalog is None else catalog
    implied = None
    if "engine" not in asked and isinstance(model, str | Path):
        named = engine_of(model, known, asked.get("weights"))
        if named == {"engine": "ollama"} and ":" not in str(model):
            implied = named["engine"], f"{shorten(str(model))} is a name of its library"
        asked |= named
    if "engine" not in asked:
        implied = engine_at_home(gpu, [asked.get("weights")], asked, known)
        asked |= {} if implied is None else {"engine": implied[0]}
    query = Query(model=model, gpu=gpu, **asked)
    local = estimate_local(query, known)
    if local is not None:
        return local if implied is None else local.with_engine_taken(implied[1])
    return _as_range(answer(partitioned(resolve(query, known))))


def _as_range(result: Estimate) -> Estimate:
    """Answer a copy that is known by its name once more, with every layer narrow; others as they are.

    Where the layers that the name leaves open decide whether a request fits, the verdict is ``may_fit``.
    """
    request = result.request
    if request.weight_format is not None or not request.served_model.by_name:
        return result
    # Names of copies are read only where one was asked for.
    from kvreport.estimation.named_copies import (  # noqa: PLC0415
        groups_to_try,
        in_named_format,
        narrowed,
        per_channel,
    )

    refused, said = Verdict.FORMAT_NOT_SUPPORTED.label, list(request.assumptions)
    cut = f"cut by {request.layout.label}"
    if result.verdict == refused and (uncut := per_channel(request.model)) is not None:
        whole = answer(replace(request, model=uncut))
        if whole.verdict != refused:
            said.append(
                f"one scale per output channel, or a padded width: groups of any usual size are {cut}"
            )
            result = whole

    def with_layers_narrow(group: int | None) -> Request:
        draft = request.draft and replace(
            request.draft,
            model=narrowed(request.draft.model, group),
            whole=narrowed(request.draft.whole, group),
        )
        return replace(request, model=narrowed(request.model, group), draft=draft)

    # Which layers these devices cannot hold narrow decides no refusal: a copy may keep them wider.
    judged = request.support if result.verdict == refused else None
    found = ((group, answer(with_layers_narrow(group))) for group in groups_to_try(request.served_model))
    runs = next((pair for pair in found if pair[1].verdict != refused), None)
    group, other = runs or (None, answer(replace(with_layers_narrow(None), support=judged)))
    if group is not None:
        said.append(f"groups of {group} inputs to a scale: larger ones are {cut}")
    usual = in_named_format(request.model)
    if usual is not None and answer(replace(request, model=usual)).verdict == refused != result.verdict:
        said.append(f"a scale per output channel: {request.model.weight_format} would be {cut}")
    return between_ends(replace(result, request=replace(request, assumptions=tuple(said))), other)


def partitioned(request: Request) -> Request:
    """The question with the best pipeline partition, where that was asked for."""
    asked = request.query.pipeline_partition if request.query else None
    if asked != BEST or request.layout.pipeline == 1:
        return request
    found = best_partition(request.case, request.context_tokens)
    said = f"pipeline partition {','.join(map(str, found))}: the one that holds the most requests"
    layout = replace(request.layout, partition=found)
    return replace(request, layout=layout, assumptions=(*request.assumptions, said))


def answer(request: Request) -> Estimate:
    """Compute the estimate of a resolved question.

    Raises:
        InputError: If the combination is impossible for this model, format or engine.
    """
    model, layout, context = request.model, request.layout, request.context_tokens
    known = Memo()
    laid = lay_out(request.case, known)
    blocks, any_length = laid.plan, laid.at_any_length()

    def at_context(tokens: int) -> AtContext:
        there = any_length
        if laid.others and any_length is not laid:  # which stage is the fullest may differ between lengths
            told = replace(request.case, context_tokens=min(tokens, model.context_tokens))
            there = lay_out(told, known)
        return _at_context(request, there, tokens, known)

    at = [at_context(tokens) for tokens in (context, *table_contexts(model, context))]
    if any(row.max_concurrent_requests >= UNLIMITED_USERS for row in at):
        raise InputError(
            f"engine {request.engine.name}: found {model.id}, which keeps no cache, so nothing bounds its requests; "
            "allowed: an engine that limits them, such as vllm"
        )
    step, first = step_bounds_ms(
        demand(
            model,
            request.weight_format,
            request.formats,
            request.kv_format,
            tensor_parallel=layout.tensor,
        )
        .shared_by(layout.data)
        .interleaved(layout.decode_context),
        request.peaks,
        at[0].max_concurrent_requests // layout.data,
        context,
        layout.pipeline,
    )
    bound = bound_of(laid, request.ceiling, context, known)
    limitless = at[0].kv_bytes_per_request_per_gpu == 0
    need = bound.profile
    result = Estimate(
        request=request,
        deployment=laid,
        parameters=parameter_counts(model),
        weights_by_component={str(part): size for part, size in laid.components[0].items()},
        weight_bytes_per_gpu=int(laid.weight_bytes),
        loading_bytes=laid.overhead[0],
        kv_bytes_per_token_per_gpu=round(float(need.marginal_bytes(context))),
        kv_bytes_per_token_reserved_per_gpu=round(float(blocks.profile.marginal_bytes(context))),
        state_bytes_per_request_per_gpu=need.state_bytes,
        budget=laid.budget,
        plan=blocks,
        held=need,
        max_concurrency=None if limitless else layout.data * float(laid.concurrency(context)),
        kv_pool_tokens=None if limitless else layout.data * int(laid.printed_tokens(context)),
        max_context_tokens=int(any_length.longest_context()),
        decode_ms_lower_bound=_known(step),
        prefill_ms_lower_bound=_known(first),
        by_context=tuple(at[1:]),
        **at[0].counts,
        verdict_reason=_reason(request),
    )
    if result.verdict in POSSIBLE:
        copies = laid.host_memory.copies
        per_device = request.kv_offload_bytes // copies
        refuse_beyond_one_memory(
            "kv-offload", request.accelerators, result.budget.requested_bytes, per_device
        )
        if request.kv_offload_bytes and result.offloaded_tokens == 0:
            raise InputError(
                f"kv-offload: found {human_bytes(request.kv_offload_bytes)} for {copies} ranks, and the part "
                f"of one rank is too small for {request.engine.label}; allowed: more"
            )
    return with_open_terms(result)


def _at_context(request: Request, laid: Deployment, tokens: int, known: Memo) -> AtContext:
    """One line of the table by context."""
    data = request.layout.data
    code, held, at_start = laid.verdicts(tokens), laid.requests(tokens), laid.at_start(tokens)
    return AtContext(
        context_tokens=tokens,
        kv_bytes_per_request_per_gpu=int(laid.plan.request_bytes(tokens)),
        max_concurrent_requests=int(laid.running(held, code, at_start)) * data,
        max_concurrent_requests_by_memory=int(held) * data,
        max_concurrent_requests_ceiling=int(bound_of(laid, request.ceiling, tokens, known).requests) * data,
        limited_by=Limit(int(laid.limited_by(tokens, held, code, at_start))).label,
        shortfall_bytes=int(laid.shortfall(tokens)),
        verdict=Verdict(int(code)).label,
    )


def _reason(request: Request) -> str:
    """What a release says of the devices and formats asked for: a refusal first, else that it widens weights."""
    devices = {one.id: one for one in request.accelerators}.values()
    found = [judge(request, device, request.served_model, request.weight_format) for device in devices]
    return max(found, key=lambda one: (one.code, bool(one.reason))).reason


def _known(milliseconds: Reals) -> float | None:
    found = float(milliseconds)
    return None if math.isnan(found) else found
