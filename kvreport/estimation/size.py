"""The sizer's front door: a workload in words and numbers, answered with ranked deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import ceil, isnan
from typing import Any, Final

from kvreport.accounting import kernel
from kvreport.accounting.capacity import boundary
from kvreport.accounting.deployment import Case, plan_blocks
from kvreport.accounting.engines.registry import rules
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import Serving
from kvreport.accounting.ranking import Choices, Deployment, Offer, Ranking, rank
from kvreport.accounting.sizing import (
    DEFAULT_EFFICIENCY,
    Workload,
    fraction_interval,
    in_flight,
    mean_held,
    pool_for,
    sglang_reserve,
    utilization_for,
)
from kvreport.catalog.accelerator import current_since
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import RELEASED, Catalogue, open_catalogue
from kvreport.errors import InputError, shorten
from kvreport.estimation.alternatives import levers, what_to_relax
from kvreport.estimation.answer import layout_to_dict
from kvreport.estimation.commands import Served, Server, checkpoint_note, nodes_note, serving_command
from kvreport.estimation.disaggregated import Disaggregated, disaggregate
from kvreport.estimation.opened import said_of
from kvreport.estimation.request import AUTO, open_model, refuse_unsupported
from kvreport.units import count, gib, human_bytes, parse_tokens

TENSOR_PARALLEL: Final = (1, 2, 4, 8)
"""Sizes that are tried where none are given: up to the devices of a usual server."""

RENTED_FIRST: Final = (
    "current generations that more than one cloud rents out come first, because no accelerator was named. "
    "gpus '*' ranks every accelerator alike, by memory"
)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Ranked deployments for a workload.

    Attributes:
        workload: The workload as it was understood.
        ranking: Deployments, best first.
        levers: What changing one thing does to the best deployment: label, devices, users each.
        assumptions: What was assumed where nothing was said.
        catalogue: Where the records are from.
        engine: Name of the engine whose rules apply.
        apart: Prefill and decode in pools of their own, where that was asked for.
    """

    workload: Workload
    ranking: Ranking
    levers: tuple[tuple[str, int | None, int], ...]
    assumptions: tuple[str, ...]
    catalogue: Catalogue
    engine: str
    apart: Disaggregated | None = None

    def to_dict(self, top: int = 10) -> dict[str, Any]:
        """Return the object that ``kvreport size --format json`` prints."""
        work = self.workload
        return {
            "workload": {
                "concurrent_requests": work.concurrent,
                "peak_requests": work.peak,
                "longest_tokens": work.longest_tokens,
                "mean_tokens": work.mean_tokens,
                "prompt_tokens": work.prompt_tokens,
                "output_tokens": work.output_tokens,
                "ttft_s": work.ttft_s,
                "tpot_s": work.tpot_s,
                "burst": work.burst,
                "spare_replicas": work.spare_replicas,
                "shared_prefix_tokens": work.shared_prefix_tokens,
                "efficiency": work.efficiency,
            },
            "engine": self.engine,
            "assumptions": list(self.assumptions),
            "deployments": [self.describe(found) for found in self.ranking.best_of_each()[:top]],
            "combinations": len(self.ranking.deployments),
            "refused": self.ranking.refused,
            "levers": [
                {"change": label, "devices": devices, "users_per_replica": users}
                for label, devices, users in self.levers
            ],
            "disaggregated": None if self.apart is None else self.apart.to_dict(),
        }

    def describe(self, found: Deployment) -> dict[str, Any]:
        """Return one deployment with its inverses, flags and commands, in plain values."""
        work, per_rank = self.workload, self.rank_each(found)
        needed = pool_for(
            found.plan, per_rank, work.mean_tokens, work.longest_tokens, work.shared_prefix_tokens
        )
        share = utilization_for(needed, found.weight_bytes, found.reserve_bytes, found.total_bytes)
        longest = int(boundary(found.pool_bytes, found.plan, per_rank, found.model.context_tokens))
        served = self.served(found)
        interval = self.fractions(found, needed)
        average, peak, spared = found.replicas
        return {
            "model": found.model.id,
            "gpu": found.offer.accelerator.id,
            "tensor_parallel": found.tensor_parallel,
            "layout": layout_to_dict(found.layout),
            "weight_format": found.weight_format,
            "kv_format": found.kv_format,
            "replicas": {"baseline": average, "burst": peak, "with_spares": spared},
            "devices": found.devices,
            "memory_bytes": found.memory_bytes,
            "price_per_hour": found.price_per_hour,
            "users_per_replica": found.users_each,
            "users_held_by_memory": found.users_held,
            "headroom": round(found.headroom(work.peak), 4),
            "verdict": "fits" if found.sure else "tight",
            "binds": found.binds,
            "total_bytes": found.total_bytes,
            "weight_bytes_per_gpu": found.weight_bytes,
            "reserve_bytes_per_gpu": found.reserve_bytes,
            "kv_pool_bytes_per_gpu": found.pool_bytes,
            "kv_bytes_per_request_per_gpu": found.request_bytes,
            "shared_prefix_bytes_per_gpu": found.shared_bytes,
            "tpot_lower_bound_s": _known(found.tpot_bound_s),
            "ttft_lower_bound_s": _known(found.ttft_bound_s),
            "longest_context_tokens": longest,
            "smallest_pool_bytes": needed,
            "smallest_utilization": share,
            "mem_fraction_static": interval,
            "commands": {
                "vllm": self._command("vllm", found, served),
                "sglang": self._command(
                    "sglang", found, replace(served, share=None if interval is None else interval["highest"])
                ),
            },
            "note": " ".join(filter(None, (checkpoint_note(served), nodes_note(served)))) or None,
            "tight_devices": None if (smaller := self.tight(found)) is None else smaller.devices,
        }

    def tight(self, found: Deployment) -> Deployment | None:
        """A smaller deployment of the same kind that holds the workload within the estimate's error."""
        alike = (
            one
            for one in self.ranking.deployments
            if one.model.id == found.model.id
            and one.offer.accelerator.id == found.offer.accelerator.id
            and one.devices < found.devices
        )
        return min(alike, key=lambda one: one.devices, default=None) if found.sure else None

    def peak_each(self, found: Deployment) -> int:
        """Requests of the peak that one replica carries."""
        return ceil(self.workload.peak / found.replicas[1])

    def rank_each(self, found: Deployment) -> int:
        """Requests of the peak that one data rank of a replica carries."""
        return ceil(self.peak_each(found) / found.layout.data)

    def refusal(self, family: Server, found: Deployment) -> str | None:
        """Why an engine does not run a deployment's layout and formats, in words; None if it does."""
        engine, device = self._engine(family), found.offer.accelerator
        if engine is None:
            return None
        own = None if found.kv_format == "bf16" else self.catalogue.kv_format(found.kv_format)
        reason = rules(engine).supports(found.model, own, device, found.layout)
        if reason is not None:
            return reason
        tokens, rows = rules(engine).scheduler(device)
        case = Case(
            model=found.model,
            engine=engine,
            accelerators=(device,),
            formats=self.catalogue.weight_formats,
            kv_format=own,
            layout=found.layout,
            serving=Serving(max_batched_tokens=tokens, max_seqs=rows),
        )
        try:
            refuse_unsupported(found.model, engine)
            plan_blocks(case)
        except InputError as error:
            return str(error)
        return None

    def _command(self, family: Server, found: Deployment, served: Served) -> str | None:
        """The command, or None for what the engine refuses."""
        return None if self.refusal(family, found) is not None else serving_command(family, served)

    def served(self, found: Deployment) -> Served:
        """What the serving command of a deployment must say."""
        asked = self.catalogue.engine(self.engine)
        return Served(
            model=found.model.id,
            tensor_parallel=found.tensor_parallel,
            context_tokens=self.workload.longest_tokens,
            max_seqs=max(found.users_each // found.layout.data, 1),
            weight_format=found.weight_format,
            kv_format=found.kv_format,
            kv_is_own=found.kv_format
            == (rules(asked).default_kv_format(found.model, found.offer.accelerator) or "bf16"),
            share=None if (engine := self._engine("vllm")) is None else engine.utilization,
            pipeline_parallel=found.layout.pipeline,
            data_parallel=found.layout.data,
            expert_parallel=found.layout.expert,
            decode_context_parallel=found.layout.decode_context,
            nodes=found.layout.nodes,
        )

    def fractions(self, found: Deployment, pool_bytes: int) -> dict[str, float] | None:
        """The interval of SGLang's static memory fraction that holds this pool; None if it is empty."""
        device, engine = found.offer.accelerator, self._engine("sglang")
        if engine is None:
            return None
        default = engine.device_class(device.id, found.total_bytes)
        kept = sglang_reserve(
            found.total_bytes, default.max_batched_tokens, default.max_seqs, found.layout.devices
        )
        interval = fraction_interval(found.total_bytes, found.weight_bytes, pool_bytes, kept)
        return None if interval.empty else {"lowest": interval.lowest, "highest": interval.highest}

    def _engine(self, family: str) -> Engine | None:
        """The engine whose rules were applied if it is of this family, else the family's newest."""
        asked = self.catalogue.engine(self.engine)
        if asked.family == family:
            return asked
        return self.catalogue.engines.get(family)

    def arithmetic(self, found: Deployment) -> list[str]:
        """The arithmetic of one deployment, line by line, with its numbers put in."""
        work = self.workload
        average, peak, spared = found.replicas
        own = f" - {human_bytes(found.shared_bytes)} of shared prefix" if found.shared_bytes else ""
        lines = [
            f"requests in flight: {work.concurrent:g} x {work.burst:g} burst = {work.peak:,} at the peak",
            (
                f"pool per GPU: {gib(found.total_bytes)} GiB usable, of which the engine takes its share, less "
                f"{gib(found.weight_bytes)} weights and {gib(found.reserve_bytes)} reserve = "
                f"{gib(found.pool_bytes)} GiB"
            ),
            f"one request of {count(work.mean_tokens)} tokens holds {human_bytes(found.request_bytes)}{own} per GPU",
            (
                f"a replica of {found.layout.devices} GPU{'s' * (found.layout.devices > 1)}{_spread(found)} holds "
                f"{count(found.users_held)} of them and serves {count(found.users_each)}; {_BINDS[found.binds]}"
            ),
            (
                f"replicas: {count(work.peak)} / {count(found.users_each)} = {peak} at the peak "
                f"({average} on average), + {work.spare_replicas} spare = {spared}"
            ),
            f"GPUs: {spared} x {found.layout.devices} = {found.devices}",
        ]
        if not isnan(found.tpot_bound_s):
            lines.append(
                f"a step with {self.peak_each(found):,} requests takes at least {found.tpot_bound_s * 1e3:.1f} ms"
                f" at peak rates, about {found.tpot_bound_s / work.efficiency * 1e3:.1f} ms at "
                f"{work.efficiency:.0%} of them"
            )
        if not isnan(found.ttft_bound_s):
            lines.append(
                f"a prompt of {count(work.prompt_tokens)} tokens takes at least {found.ttft_bound_s * 1e3:.0f} ms, "
                f"about {found.ttft_bound_s / work.efficiency * 1e3:.0f} ms"
            )
        return lines


def _spread(found: Deployment) -> str:
    """A layout beyond tensor parallelism in words, with what one data rank serves."""
    layout = found.layout
    if layout.is_tensor_only:
        return ""
    each = (
        f", {layout.data} data ranks of {count(found.users_each // layout.data)} each"
        if layout.data > 1
        else ""
    )
    return f" ({layout.label}{each})"


_BINDS: Final = {
    "weights": "the weights leave no room for more",
    "cache": "the cache binds",
    "state": "the recurrent states bind",
    "max_seqs": "the engine's limit of requests at once binds",
    "time": "the time targets bind",
    "context": "one longest request binds",
}


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
    gpus: Sequence[str] = (),
    available: int | None = None,
    prices: Mapping[str, float] | None = None,
    weights: Sequence[str] = (RELEASED,),
    kv: Sequence[str] = (AUTO,),
    tensor_parallel: Sequence[int] | None = None,
    layouts: Sequence[Layout] | None = None,
    engine: str = "vllm",
    utilization: float | None = None,
    max_seqs: int | None = None,
    disaggregated: bool = False,
    fetch: bool = False,
    revision: str | None = None,
    catalog: Catalogue | None = None,
) -> Sizing:
    """Rank the deployments that serve a workload.

    Args:
        models: A model, or a shortlist of models that would all do.
        context: Longest request allowed, prompt and output together.
        average: Tokens that a request in flight holds on average; None: the prompt and half of the
            output where both are given, else ``context``.
        concurrent: Requests in flight at the same time.
        users: Instead of ``concurrent``: people, each sending ``requests_per_minute``, each request
            staying for ``latency_s`` (Little's law).
        requests_per_minute: Requests that each user sends per minute.
        latency_s: Seconds from a request's arrival to its last token.
        prompt: Prompt length; None: what ``output`` leaves of ``context``.
        output: Output length.
        ttft_s: Time to first token that must be met.
        tpot_s: Time per further token that must be met.
        burst: Peak over average.
        spare_replicas: Replicas that may fail.
        shared_prefix: Leading tokens that all requests share.
        efficiency: Share of the roofline that servers are taken to reach.
        gpus: Accelerators: slugs, aliases or shell patterns over slugs; empty for all, commonly rented ones first.
        available: Devices there are of each kind; None for as many as it takes.
        prices: Price of a device per hour, by slug or alias; only priced accelerators are tried.
        weights: Weight formats to try.
        kv: KV formats to try.
        tensor_parallel: Sizes to try; None for 1, 2, 4 and 8.
        layouts: Further layouts to try; None for those of the published grid that suit a model, or for none
            where tensor-parallel sizes are given.
        engine: Engine whose rules apply.
        utilization: Share of memory; None for the engine's default.
        max_seqs: Requests at once per data rank; None for the engine's default.
        disaggregated: True for pools of their own for prefill and decode; the ranking is then that of decode.
        fetch: True to ask the Hub for models that are not known.
        revision: Branch, tag or commit of the Hub's repositories.
        catalog: Where names are looked up; None for the public catalogue.

    Raises:
        InputError: If the workload contradicts itself or nothing offered serves it; the sentence
            says what to relax.
    """
    known = open_catalogue() if catalog is None else catalog
    policy = known.engine(engine)
    names = [models] if isinstance(models, str) else list(models)
    opened = [open_model(name, known, fetch=fetch, revision=revision) for name in names]
    records = [one.model for one in opened]
    for record in records:
        refuse_unsupported(record, policy)
    assumed = [sentence.rstrip(".") for one in opened for sentence in said_of(one)]
    requests = _requests(concurrent, users, requests_per_minute, latency_s, assumed)
    longest = _tokens("context", context)
    written = _tokens("output", output) if output is not None else kernel.default_output(longest)
    asked = _tokens("prompt", prompt) if prompt is not None else longest - written
    if output is None:
        assumed.append(f"answers of {count(written)} tokens")
    if prompt is None:
        assumed.append(f"prompts of {count(asked)} tokens, what the answer leaves of the longest request")
    if average is not None:
        mean = _tokens("average", average)
    elif prompt is not None and output is not None:
        mean = mean_held(asked, written)
        assumed.append(f"{count(mean)} tokens held on average: the prompt and half of the answer")
    else:
        mean = longest
        assumed.append("every request as long as the longest allowed")
    work = Workload(
        concurrent=requests,
        longest_tokens=longest,
        mean_tokens=mean,
        prompt_tokens=asked,
        output_tokens=written,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        burst=burst,
        spare_replicas=spare_replicas,
        shared_prefix_tokens=_tokens("shared-prefix", shared_prefix) if shared_prefix else 0,
        efficiency=efficiency,
    )
    if ttft_s is not None or tpot_s is not None:
        assumed.append(f"servers reach {efficiency:.0%} of the roofline")
    choices = Choices(
        engine=policy,
        formats=known.weight_formats,
        weight_formats=dict(_weight_format(known, name) for name in weights),
        kv_formats={name: None if name.lower() == AUTO else known.kv_format(name) for name in kv},
        all_kv_formats=known.kv_formats,
        tensor_parallel=TENSOR_PARALLEL if tensor_parallel is None else tuple(tensor_parallel),
        layouts=_layouts(known, tensor_parallel, layouts),
        utilization=utilization,
        max_seqs=max_seqs,
        current_since=None if gpus or prices else current_since(known.accelerators.values()),
        support=known.support,
    )
    if choices.current_since is not None:
        assumed.append(RENTED_FIRST)
    offers = _offers(known, gpus, available, prices)
    # Prefills elsewhere do not delay the first token here.
    here = replace(work, ttft_s=None) if disaggregated else work
    ranking = rank(records, here, offers, choices)
    if not ranking.deployments:
        raise InputError(what_to_relax(here, ranking, choices))
    return Sizing(
        workload=work,
        ranking=ranking,
        levers=levers(here, ranking.deployments[0], choices, known),
        assumptions=tuple(assumed),
        catalogue=known,
        engine=policy.name,
        apart=disaggregate(ranking.deployments[0], work, choices) if disaggregated else None,
    )


def _layouts(
    known: Catalogue, sizes: Sequence[int] | None, layouts: Sequence[Layout] | None
) -> tuple[Layout, ...]:
    if layouts is not None:
        return tuple(layouts)
    return () if sizes is not None else tuple(Layout(**one.model_dump()) for one in known.grid.layouts)


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
            f"workload: found {found_words}; allowed: concurrent (the requests in flight), or users, requests "
            "per minute and latency together"
        )
    found = in_flight(users * per_minute / 60, latency_s)
    assumed.append(
        f"Little's law: {users:,} users x {per_minute:g} per minute / 60 x {latency_s:g} s = "
        f"{found:.1f} requests in flight"
    )
    return found


def _offers(
    known: Catalogue, gpus: Sequence[str], available: int | None, prices: Mapping[str, float] | None
) -> list[Offer]:
    priced = {known.accelerator(name).id: price for name, price in (prices or {}).items()}
    for name, price in priced.items():
        if not price > 0:
            raise InputError(f"price: found {price:g} for {name}; allowed: above 0")
    chosen: dict[str, None] = {}
    for name in gpus:
        matches = [slug for slug in known.accelerators if fnmatchcase(slug, name.lower())]
        for slug in matches or [known.accelerator(name).id]:
            chosen[slug] = None
    slugs = list(chosen) or list(priced) or list(known.accelerators)
    if priced and not set(slugs) <= set(priced):
        missing = ", ".join(sorted(set(slugs) - set(priced)))
        raise InputError(
            f"price: none given for {shorten(missing)}; allowed: a price for every GPU, or for none"
        )
    if available is not None and available < 1:
        raise InputError(f"available: found {available}; allowed: at least 1")
    return [Offer(known.accelerator(slug), available, priced.get(slug)) for slug in slugs]


def _weight_format(known: Catalogue, name: str) -> tuple[str, Any]:
    if name.lower() == RELEASED:
        return RELEASED, None
    form = known.weight_format(name)
    return form.name, form


def _tokens(name: str, value: int | str) -> int:
    try:
        return parse_tokens(value)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _known(value: float) -> float | None:
    return None if isnan(value) else value
