"""Ranked deployments for a workload, with their inverses, flags, commands and arithmetic in plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil, isnan
from typing import Any

from kvreport import words
from kvreport.accounting import kernel
from kvreport.accounting.deployment import Deployment, longest_of
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.engines.command import Served
from kvreport.accounting.offers import Solution
from kvreport.accounting.ranking import Ranking
from kvreport.accounting.shares import share_for, share_on
from kvreport.accounting.sizing import Load, fraction_interval, holds, pool_for
from kvreport.catalog.engine import Engine
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.release import trait
from kvreport.estimation.answer import layout_to_dict
from kvreport.estimation.commands import SERVERS, Server, checkpoint_note, nodes_note, serving_command
from kvreport.estimation.disaggregated import Disaggregated
from kvreport.estimation.not_followed import NotFollowed, open_terms, within_band
from kvreport.units import count, gib, human_bytes
from kvreport.words import counted, notebook_table


@dataclass(frozen=True, slots=True, repr=False)
class Sizing:
    """Ranked deployments for a workload."""

    workload: Load  # The workload as it was understood.
    ranking: Ranking  # Deployments, best first.
    # What changing one thing does to the best deployment: label, devices, users each.
    levers: tuple[tuple[str, int | None, int], ...]
    assumptions: tuple[str, ...]  # What was assumed where nothing was said.
    catalog: Catalog  # Where the records are from.
    policy: Engine  # The engine whose rules apply, of one release.
    apart: Disaggregated | None = None  # Prefill and decode in pools of their own, where that was asked for.
    max_batched_tokens: int | None = None  # Tokens of one step, if they were stated.
    utilization: float | None = None  # Share of the memory, if it was stated.
    # The deployments with every layer in the format with the fewest bytes, where a copy is known by its name
    # alone; ``ranking`` is then of the formats with the most. Else None.
    optimistic: Ranking | None = None
    # Options that were given and that the answer does not depend on.
    not_followed: tuple[NotFollowed, ...] = ()

    def __repr__(self) -> str:
        """A line: the workload and the first of the deployments."""
        work, best = self.workload, self.ranking.deployments[0]
        return (
            f"<Sizing {work.peak:g} requests of {work.longest_tokens:,} tokens: "
            f"{best.devices} x {best.offer.accelerator.id} with {best.model.id} ({best.layout.label})>"
        )

    def to_frame(self, top: int = 10) -> Any:  # noqa: ANN401 - a pandas data frame; pandas is an extra
        """The deployments as a pandas data frame, one row each, best first. Needs ``kvreport[data]``.

        Args:
            top: Most rows.
        """
        # An extra, imported by name where it is asked for: nothing below the dataset depends on it.
        return import_module("pandas").DataFrame(
            [self.describe(found) for found in self.ranking.best_of_each()[:top]]
        )

    def _repr_html_(self) -> str:
        """A table of deployments, for notebooks."""
        head = ("devices", "gpu", "model", "layout", "weights", "cache", "requests per replica")
        rows = (
            (
                found.devices,
                found.offer.accelerator.id,
                found.model.id,
                found.layout.label,
                found.weight_format,
                found.kv_format,
                found.users_each,
            )
            for found in self.ranking.best_of_each()[:10]
        )
        return notebook_table(repr(self), head, rows)

    @property
    def engine(self) -> str:
        """Name of the engine whose rules apply."""
        return self.policy.name

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
            "uncertainty_unknown": open_terms(self.not_followed),
            "not_followed": [one.to_dict() for one in self.not_followed],
            "deployments": [self.describe(found) for found in self.ranking.best_of_each()[:top]],
            "combinations": len(self.ranking.deployments),
            "refused": self.ranking.refused,
            "levers": [
                {"change": label, "devices": devices, "users_per_replica": users}
                for label, devices, users in self.levers
            ],
            "disaggregated": None if self.apart is None else self.apart.to_dict(),
        }

    def describe(self, found: Solution) -> dict[str, Any]:
        """Return one deployment with its inverses, flags and commands, in plain values."""
        work, per_rank = self.workload, self.rank_each(found)
        smallest = self.smallest_pools(found)
        share = self.smallest_share(found, smallest)
        longest = longest_of([(rank.at_any_length(), rank.plan) for rank in self._told(found)], per_rank)
        served = self.served(found)
        interval = self.fractions(found, smallest)
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
            "price_per_million_output_tokens": found.price_per_million(work),
            "users_per_replica": found.users_each,
            "users_held_by_memory": found.users_held,
            "headroom": round(found.headroom(work.peak), 4),
            "verdict": self.verdict(found),
            "binds": found.binds,
            "total_bytes": found.total_bytes,
            "weight_bytes_per_gpu": found.weight_bytes,
            "reserve_bytes_per_gpu": found.reserve_bytes,
            "kv_pool_bytes_per_gpu": found.pool_bytes,
            "kv_bytes_per_request_per_gpu": found.request_bytes,
            "shared_prefix_bytes_per_gpu": found.shared_bytes,
            "tpot_lower_bound_s": _known(found.tpot_bound_s),
            "ttft_lower_bound_s": _known(found.ttft_bound_s),
            "longest_context_tokens": int(longest),
            "smallest_pool_bytes": smallest[0],
            "smallest_utilization": share,
            "mem_fraction_static": interval,
            "commands": {family: self._command(family, served) for family in SERVERS},
            "note": " ".join(filter(None, (checkpoint_note(served), nodes_note(served)))) or None,
            "same_hardware": [
                {
                    "layout": one.layout.label,
                    "replicas": one.replicas[-1],
                    "requests_at_peak": one.users_at_peak,
                    "kv_pool_bytes_per_gpu": one.pool_bytes,
                    "tpot_lower_bound_s": _known(one.tpot_bound_s),
                }
                for one in self.same_hardware(found)
            ],
            "tight_devices": None if (smaller := self.tight(found)) is None else smaller.devices,
            "by_name": self.narrow(found) is not None,
            "range": self._range(found),
        }

    def verdict(self, found: Solution) -> str:
        """Whether a deployment surely serves the workload: ``fits``, else ``tight``."""
        return within_band("fits" if found.sure else "tight", self.not_followed)

    def narrow(self, found: Solution) -> Solution | None:
        """The same devices and layout with every layer narrow; None where the mix of formats is known."""
        if self.optimistic is None or found.weight_format != RELEASED or not found.model.by_name:
            return None
        alike = (
            one
            for one in self.optimistic.deployments
            if (one.model.id, one.offer.accelerator.id, one.layout, one.weight_format, one.kv_format)
            == (found.model.id, found.offer.accelerator.id, found.layout, RELEASED, found.kv_format)
        )
        return next(alike, found)

    def _range(self, found: Solution) -> dict[str, Any] | None:
        """Least and most of each number that the name of a copy leaves open."""
        narrow = self.narrow(found)
        if narrow is None:
            return None
        return {
            "users_per_replica": [found.users_each, narrow.users_each],
            "users_held_by_memory": [found.users_held, narrow.users_held],
            "weight_bytes_per_gpu": [narrow.weight_bytes, found.weight_bytes],
            "kv_pool_bytes_per_gpu": [found.pool_bytes, narrow.pool_bytes],
            "devices": [narrow.devices, found.devices],
        }

    def tight(self, found: Solution) -> Solution | None:
        """A smaller deployment of the same kind that holds the workload within the estimate's error."""
        alike = (
            one
            for one in self.ranking.deployments
            if one.model.id == found.model.id
            and one.offer.accelerator.id == found.offer.accelerator.id
            and one.devices < found.devices
        )
        return min(alike, key=lambda one: one.devices, default=None) if found.sure else None

    def same_hardware(self, found: Solution) -> tuple[Solution, ...]:
        """Every layout that serves the workload with the model, formats and devices of ``found``, best first."""
        chosen: dict[str, Solution] = {}
        for one in self.ranking.deployments:
            if (
                one.model.id == found.model.id
                and one.offer.accelerator.id == found.offer.accelerator.id
                and (one.weight_format, one.kv_format) == (found.weight_format, found.kv_format)
                and (one.devices, one.sure) == (found.devices, found.sure)
            ):
                chosen.setdefault(one.layout.label, one)
        return tuple(chosen.values())

    def _divisor(self, found: Solution) -> str:
        """Requests of a replica that the replicas of the peak are counted with: those that it surely serves where that is more."""
        if kernel.replicas_for(self.workload.peak, found.users_each) == found.replicas[1]:
            return count(found.users_each)
        return f"{count(found.sure_each)} (those of a pool smaller by the error)"

    def peak_each(self, found: Solution) -> int:
        """Requests of the peak that one replica carries."""
        return ceil(self.workload.peak / found.replicas[1])

    def rank_each(self, found: Solution) -> int:
        """Requests of the peak that one data rank of a replica carries."""
        return ceil(self.peak_each(found) / found.layout.data)

    def smallest_pools(self, found: Solution) -> tuple[int, ...]:
        """The smallest pool of each rank that starts and holds its part of the peak; each the largest where ranks agree on one."""
        pools = tuple(self._smallest_pool(rank, self.rank_each(found)) for rank in self._told(found))
        return (max(pools),) * len(pools) if trait(self.policy, "ranks_agree_on_pool") else pools

    def _smallest_pool(self, rank: Deployment, requests: int) -> int:
        """The smallest pool of a rank that starts and holds so many requests of the workload, and one of the longest."""
        work = self.workload
        mean, longest = work.mean_tokens, work.longest_tokens
        return max(
            pool_for(rank.plan, requests, mean, longest, work.shared_prefix_tokens),
            0 if rank.start_plan is None else pool_for(rank.start_plan, 1, longest),
            (rank.state_slots_wanted or 0) * rank.plan.block_bytes,
        )

    def _told(self, found: Solution) -> list[Deployment]:
        """The ranks as the command of a deployment has them, which says how many requests run at once."""
        return [rank.told(max(found.users_each // found.layout.data, 1)) for rank in found.ranks]

    def smallest_share(self, found: Solution, pools: Sequence[int]) -> float | None:
        """The smallest share of memory that leaves every rank its pool; None where there is none."""
        if all(rank.plan.profile.holds_nothing for rank in found.ranks):
            return None  # the share is of memory for a cache
        shares = [
            share_for(self.policy, pool, *_taken(rank)) for pool, rank in zip(pools, found.ranks, strict=True)
        ]
        known = [share for share in shares if share is not None]
        return max(known) if len(known) == len(shares) else None

    def _command(self, family: Server, served: Served) -> str | None:
        """The command of the engine whose rules were applied; None for another, which may hold fewer requests."""
        own = self.policy.family == family
        return serving_command(family, served) if own else None

    def served(self, found: Solution) -> Served:
        """What the serving command of a deployment must say."""
        device, engine = found.offer.accelerator, rules(self.policy)
        # A server with a share of what is free before loading works it out by itself.
        static = engine.static_memory(device, found.layout)
        return Served(
            model=found.model.id,
            layout=found.layout,
            context_tokens=self.workload.longest_tokens,
            max_seqs=max(found.users_each // found.layout.data, 1),
            weight_format=found.weight_format,
            kv_format=found.kv_format,
            kv_is_own=found.kv_format == (engine.default_kv_format(found.model, device) or "bf16"),
            utilization=self.stated_share
            if static is not None
            else share_on(self.policy, device, self.utilization),
            max_batched_tokens=self.max_batched_tokens,
        )

    @property
    def stated_share(self) -> float | None:
        """The share of what is free before loading that was stated; None for what the engine takes by itself, which 1 stands for."""
        return None if self.utilization == 1 else self.utilization

    def fractions(self, found: Solution, pools: Sequence[int]) -> dict[str, float] | None:
        """The interval of SGLang's static memory fraction that holds these pools; None for others, without a cache, or if it is empty."""
        engine, ranks = rules(self.policy), self._told(found)
        static = engine.static_memory(found.offer.accelerator, found.layout)
        if static is None or all(rank.plan.profile.holds_nothing for rank in found.ranks):
            return None  # the share is of memory for a cache
        kept = static.kept_bytes(found.model, found.users_each)
        of_bytes = static.free_bytes * static.left(found.model, self.workload.longest_tokens)
        ends = [
            fraction_interval(kept, of_bytes, pool, *_taken(rank))
            for pool, rank in zip(pools, found.ranks, strict=True)
        ]
        lowest, highest = max(low for low, _ in ends), self.stated_share or min(high for _, high in ends)
        # Where more memory buys a state, it may leave too few tokens: the next fraction that holds them.
        work, each = self.workload, self.rank_each(found)
        lengths = (each, work.mean_tokens, work.longest_tokens, work.shared_prefix_tokens)
        for step in range(round(lowest * 1000), round(highest * 1000) + 1):
            pool = min(kernel.static_pool(step / 1000, _taken(rank)[0], kept, of_bytes) for rank in ranks)
            if all(holds(rank.plan, pool, *lengths) for rank in ranks):
                return {"lowest": step / 1000, "highest": highest}
        return None

    def arithmetic(self, found: Solution) -> list[str]:
        """The arithmetic of one deployment, line by line, with its numbers put in."""
        work = self.workload
        average, peak, spared = found.replicas
        own = f" - {human_bytes(found.shared_bytes)} of shared prefix" if found.shared_bytes else ""
        lines = [
            f"peak: {work.concurrent:g} concurrent requests x {work.burst:g} = {work.peak:,}",
            (
                f"KV pool per GPU: memory share of {gib(found.total_bytes)} GiB usable - {gib(found.weight_bytes)} GiB "
                f"weights - {gib(found.reserve_bytes)} GiB reserve (for at most "
                f"{count(max(found.users_each // found.layout.data, 1))} requests at once) = {gib(found.pool_bytes)} GiB"
            ),
            f"one request of {count(work.mean_tokens)} tokens: {human_bytes(found.request_bytes)}{own} per GPU",
            (
                f"one replica of {counted(found.layout.devices, 'GPU|GPUs')}{_spread(found)}: memory "
                f"holds {count(found.users_held)} requests, {count(found.users_each)} are served; limited by "
                f"{words.LIMITS[found.binds]}"
            ),
            (
                f"replicas: {count(work.peak)} / {self._divisor(found)} = {peak} at the peak "
                f"({average} on average), + {work.spare_replicas} spare = {spared}"
            ),
            f"GPUs: {spared} x {found.layout.devices} = {found.devices}",
        ]
        if not isnan(found.tpot_bound_s):
            lines.append(
                f"decode step of {self.peak_each(found):,} requests: at least {found.tpot_bound_s * 1e3:.1f} ms"
                f" at peak rates, about {found.tpot_bound_s / work.efficiency * 1e3:.1f} ms at "
                f"{work.efficiency:.0%} of them"
            )
        if not isnan(found.ttft_bound_s):
            lines.append(
                f"prefill of {count(work.prompt_tokens)} tokens: at least {found.ttft_bound_s * 1e3:.0f} ms, "
                f"about {found.ttft_bound_s / work.efficiency * 1e3:.0f} ms at {work.efficiency:.0%}"
            )
        return lines


def _taken(rank: Deployment) -> tuple[int, int, int]:
    """Weights as loaded, the reserve, and the memory of one device."""
    return rank.budget.weights, rank.reserve.total, rank.budget.total_bytes


def _spread(found: Solution) -> str:
    """A layout beyond tensor parallelism in words, with what one data rank serves."""
    layout = found.layout
    if layout.is_tensor_only:
        return ""
    each = (
        f", {layout.data} data-parallel ranks of {count(found.users_each // layout.data)} requests each"
        if layout.data > 1
        else ""
    )
    return f" ({layout.label}{each})"


def _known(value: float) -> float | None:
    return None if isnan(value) else value
