"""Size a deployment for a trace: candidates from the sizer, replicas from replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from kvreport.accounting.offers import Solution
from kvreport.accounting.parallel import Layout
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError
from kvreport.estimation.answer import layout_to_dict
from kvreport.estimation.size import size
from kvreport.traffic.answers import refuse_another, replay
from kvreport.traffic.shipped import open_trace
from kvreport.traffic.trace import Trace

DEFAULT_WAIT_S: Final = 5.0
"""The wanted 95th percentile of waiting, where none is stated."""

CANDIDATES: Final = 3


@dataclass(frozen=True, slots=True)
class TracedDeployment:
    """One way to serve a trace."""

    model: str  # The id.
    gpu: str  # The accelerator.
    gpus: int  # Devices in all.
    replicas: int  # Copies that keep the waiting time.
    layout: Layout  # How one copy is spread over devices.
    tensor_parallel: int  # Devices that share each layer.
    weight_format: str  # How weights are stored.
    kv_format: str  # How caches are stored.
    wait_p95_s: float  # 95th percentile of waiting with so many copies.
    first_token_p95_s: float  # 95th percentile of the time to first token.
    hit_rate: float  # Hit rate over all copies.
    preemptions: int  # Preemptions over all copies.
    refused: int  # Requests that no pool could hold.
    price_per_hour: float | None  # Price of all devices, or None.
    # What the answer must say first: times that are not recorded, requests that are left out.
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self) | {"layout": layout_to_dict(self.layout)}


def size_for_trace(
    models: str | Sequence[str],
    trace: str | Path | Trace,
    *,
    wait_s: float = DEFAULT_WAIT_S,
    candidates: int = CANDIDATES,
    rate: float | None = None,
    utilization: float | None = None,
    max_seqs: int | None = None,
    engine: str = "vllm",
    catalog: Catalog,
    **limits: Any,  # noqa: ANN401 - passed on as they are
) -> list[TracedDeployment]:
    """Find how many copies of the likeliest deployments keep a trace's waiting time.

    The sizer ranks what holds one request of mean length and the longest; each of the best is replayed with more
    and more copies until the 95th percentile of waiting is reached.

    Args:
        models: A model, or a shortlist.
        trace: A trace, its file, or the name of a shipped one.
        wait_s: Wanted 95th percentile of waiting for admission, in seconds.
        candidates: How many kinds of deployment are replayed.
        rate: Requests per second, for traces without times; None: all at once.
        utilization: Share of memory.
        max_seqs: Requests at once per copy.
        engine: Engine.
        catalog: Where names are looked up.
        limits: Further arguments of :func:`kvreport.estimation.size.size` (accelerators, formats, prices).

    Raises:
        InputError: If nothing holds the longest request, or no number of copies is enough.
    """
    given = trace if isinstance(trace, Trace) else open_trace(trace, rate=rate)
    names = [models] if isinstance(models, str) else list(models)
    widest = max((catalog.model(name) for name in names), key=lambda model: model.context_tokens)
    most = widest.context_tokens
    refuse_another(given, widest, most, catalog)
    totals = (
        prompt + output for prompt, output in zip(given.prompt_tokens, given.output_tokens, strict=True)
    )
    server: dict[str, Any] = {
        "engine": engine,
        "utilization": utilization,
        "max_seqs": max_seqs,
        "catalog": catalog,
    }
    ranking = size(
        names,
        context=min(max(totals), most),
        prompt=max(round(fmean(given.prompt_tokens)), 1),
        output=max(round(fmean(given.output_tokens)), 1),
        concurrent=1,
        **server,
        **limits,
    ).ranking
    found = [
        one
        for deployment in _different(ranking.deployments, candidates)
        if (one := _replayed(deployment, given, wait_s, server)) is not None
    ]
    if not found:
        raise InputError(
            f"wait: no number of copies tried keeps the 95th percentile of waiting within {wait_s:g} s; "
            "allow a longer wait or other accelerators"
        )
    priced = all(one.price_per_hour is not None for one in found)
    return sorted(found, key=lambda one: (one.price_per_hour or 0.0) if priced else one.gpus)


def _different(deployments: Sequence[Solution], most: int) -> list[Solution]:
    """The best deployments that differ in model, accelerator or layout, up to so many."""
    seen: dict[tuple[str, str, Layout], Solution] = {}
    for one in deployments:
        seen.setdefault((one.model.id, one.offer.accelerator.id, one.layout), one)
        if len(seen) == most:
            break
    return list(seen.values())


def _replayed(
    deployment: Solution, trace: Trace, wait_s: float, server: Mapping[str, Any]
) -> TracedDeployment | None:
    def answer(replicas: int, wanted: float | None) -> Any:  # noqa: ANN401 - the record of replay
        return replay(
            trace,
            deployment.model,
            gpu=deployment.offer.accelerator,
            tensor_parallel=deployment.layout.tensor,
            pipeline_parallel=deployment.layout.pipeline,
            data_parallel=deployment.layout.data,
            expert_parallel=deployment.layout.expert,
            decode_context_parallel=deployment.layout.decode_context,
            nodes=deployment.layout.nodes,
            replicas=replicas,
            weights=None if deployment.weight_format == "released" else deployment.weight_format,
            kv=deployment.kv_format,
            wait_s=wanted,
            curve=False,
            **server,
        )

    replicas = answer(1, wait_s).replicas_for_wait
    if replicas is None:
        return None
    run = answer(replicas, None)
    course = run.to_dict()["replay"]
    price = deployment.offer.price_per_hour
    gpus = replicas * deployment.layout.devices
    return TracedDeployment(
        model=deployment.model.id,
        gpu=deployment.offer.accelerator.id,
        gpus=gpus,
        replicas=replicas,
        layout=deployment.layout,
        tensor_parallel=deployment.layout.tensor,
        weight_format=deployment.weight_format,
        kv_format=deployment.kv_format,
        wait_p95_s=course["wait_s"]["p95"],
        first_token_p95_s=course["first_token_s"]["p95"],
        hit_rate=course["hit_rate"],
        preemptions=course["preemptions"],
        refused=course["refused"],
        price_per_hour=None if price is None else price * gpus,
        notes=run.notes,
    )
