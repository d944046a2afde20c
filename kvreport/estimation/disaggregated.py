"""Prefill and decode apart: two layouts, what passes between them, and how many devices of each.

A request is prefilled on one pool of devices; its cache then moves to another, which writes the answer. The
roofline bounds both sides. Where servers reach the same share of it, the share cancels out of the ratio of
devices; where it is only known to lie between ``efficiency`` and 1 on either side, the ratio lies between
``ratio x efficiency`` and ``ratio / efficiency``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, isnan
from typing import Any, Final

from kvreport.accounting.kv_cache import held
from kvreport.accounting.offers import Choices, Offer, Solution
from kvreport.accounting.ranking import rank
from kvreport.accounting.sizing import Load, pool_for, shared_bytes
from kvreport.errors import InputError
from kvreport.estimation.answer import layout_to_dict
from kvreport.units import count, gib, human_bytes

PROMPTS_HELD: Final = 2
"""Caches of prompts that a data rank of the prefill pool holds: one being computed, one on its way out."""


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Two pools for one workload. A time that is not known is NaN; what follows from it is then None."""

    workload: Load
    prefill: Solution  # Layout of one prefill replica, with the prompts that it holds.
    decode: Solution  # The decode pool, for the requests in flight.
    # What a request's cache takes after its prompt, stored once and without the prefix that all share: what
    # must pass at least.
    transfer_bytes: int
    # The smallest pool per device of the prefill layout that holds two prompts a data rank.
    prefill_pool_bytes: int
    decode_pool_bytes: int  # The smallest pool per device of the decode layout for its share of the peak.

    @property
    def prefill_gpu_seconds(self) -> float:
        """Device-seconds of one prompt at peak rates: a lower bound. Data ranks work on different prompts."""
        layout = self.prefill.layout
        return self.prefill.ttft_bound_s * layout.devices / layout.data

    @property
    def decode_gpu_seconds(self) -> float:
        """Device-seconds of one answer at peak rates: a lower bound, its step shared with the whole batch."""
        devices = self.decode.layout.devices * self.decode.replicas[1]
        return self.workload.output_tokens * self.decode.tpot_bound_s * devices / self.workload.peak

    @property
    def ratio(self) -> float | None:
        """Prefill devices to one decode device where both reach the same share of the roofline."""
        found = self.prefill_gpu_seconds / self.decode_gpu_seconds
        return None if isnan(found) else found

    @property
    def ratio_bounds(self) -> tuple[float, float] | None:
        """The same where each side reaches a share between the workload's efficiency and 1."""
        share = self.workload.efficiency
        return None if self.ratio is None else (self.ratio * share, self.ratio / share)

    @property
    def most_arrivals_per_s(self) -> float | None:
        """Requests per second that the decode pool finishes at peak rates: an upper bound."""
        step = self.decode.tpot_bound_s
        return None if isnan(step) else self.workload.peak / (self.workload.output_tokens * step)

    @property
    def prefill_replicas(self) -> int | None:
        """Prefill replicas that keep up with the decode pool where both reach the same share of the roofline."""
        if self.ratio is None:
            return None
        devices = self.decode.layout.devices * self.decode.replicas[1]
        return max(1, ceil(self.ratio * devices / self.prefill.layout.devices - 1e-9))

    def to_dict(self) -> dict[str, Any]:
        """Return the object under ``disaggregated`` in the JSON answer."""
        bounds, replicas, arrivals = self.ratio_bounds, self.prefill_replicas, self.most_arrivals_per_s
        return {
            "model": self.decode.model.id,
            "gpu": self.decode.offer.accelerator.id,
            "weight_format": self.decode.weight_format,
            "kv_format": self.decode.kv_format,
            "prefill": {
                "layout": layout_to_dict(self.prefill.layout),
                "replicas": replicas,
                "devices": None if replicas is None else replicas * self.prefill.layout.devices,
                "kv_pool_bytes_per_gpu": self.prefill.pool_bytes,
                "smallest_pool_bytes": self.prefill_pool_bytes,
                "ttft_lower_bound_s": _known(self.prefill.ttft_bound_s),
                "gpu_seconds_per_request_lower_bound": _known(self.prefill_gpu_seconds),
            },
            "decode": {
                "layout": layout_to_dict(self.decode.layout),
                "replicas": self.decode.replicas[1],
                "devices": self.decode.replicas[1] * self.decode.layout.devices,
                "kv_pool_bytes_per_gpu": self.decode.pool_bytes,
                "smallest_pool_bytes": self.decode_pool_bytes,
                "users_per_replica": self.decode.users_each,
                "tpot_lower_bound_s": _known(self.decode.tpot_bound_s),
                "gpu_seconds_per_request_lower_bound": _known(self.decode_gpu_seconds),
            },
            "transfer_bytes_per_request": self.transfer_bytes,
            "transfer_bytes_per_s_upper_bound": None if arrivals is None else arrivals * self.transfer_bytes,
            "requests_per_s_upper_bound": arrivals,
            "prefill_gpus_per_decode_gpu": {
                "same_share_of_roofline": self.ratio,
                "lowest": None if bounds is None else bounds[0],
                "highest": None if bounds is None else bounds[1],
                "is_bound": True,
            },
        }

    def lines(self) -> list[str]:
        """The same in words."""
        work, prefill, decode = self.workload, self.prefill, self.decode
        gpu = decode.offer.accelerator.id
        lines = [
            f"Prefill and decode apart, on {gpu}:",
            (
                f"  prefill: {prefill.layout.label}, {prefill.layout.devices} GPUs a replica; needs a pool of "
                f"{gib(self.prefill_pool_bytes)} GiB per GPU for {PROMPTS_HELD} prompts of "
                f"{count(work.prompt_tokens)} tokens per data-parallel rank, has {gib(prefill.pool_bytes)}"
            ),
            (
                f"  decode: {decode.replicas[1]} x {decode.layout.devices} GPUs ({decode.layout.label}); needs a pool "
                f"of {gib(self.decode_pool_bytes)} GiB per GPU for {count(work.peak)} requests, has "
                f"{gib(decode.pool_bytes)}"
            ),
            f"  transfer: at least {human_bytes(self.transfer_bytes)} per request, the cache of its prompt",
        ]
        bounds, arrivals = self.ratio_bounds, self.most_arrivals_per_s
        if bounds is None or arrivals is None:
            lines.append("  ratio of GPUs: not known, because a peak rate of this GPU is not published")
            return lines
        decoding = decode.replicas[1] * decode.layout.devices
        missing = (self.prefill_replicas or 0) * prefill.layout.devices + decoding
        missing -= missing if decode.offer.available is None else decode.offer.available
        lines += [
            (
                f"  at most {arrivals:,.2f} requests per second, which pass {human_bytes(round(arrivals * self.transfer_bytes))} "
                "per second: a bound from the roofline"
            ),
            (
                f"  prefill GPUs to one decode GPU: {self.ratio:.2f} where both reach the same share of the roofline. "
                f"It is {bounds[0]:.2f} to {bounds[1]:.2f} where each reaches {work.efficiency:.0%} to 100%: a bound, "
                "not a measurement."
            ),
            (
                f"  so {self.prefill_replicas} x {prefill.layout.devices} prefill GPUs and "
                f"{decoding} decode GPUs" + (f", {missing} more than are available" if missing > 0 else "")
            ),
        ]
        return lines


def disaggregate(decode: Solution, work: Load, choices: Choices) -> Disaggregated:
    """Find the prefill layout for a decode pool: the fewest device-seconds per prompt on the same device.

    ``decode``: the decode pool, ranked without a target for the first token. ``choices``: what may be
    combined; formats are those of the decode pool.

    Raises:
        InputError: If no layout holds a prompt, or none meets the time to the first token.
    """
    kv = choices.all_kv_formats[decode.kv_format]
    prompts = Load(
        concurrent=1,
        longest_tokens=work.prompt_tokens + 1,
        mean_tokens=work.prompt_tokens,
        prompt_tokens=work.prompt_tokens,
        output_tokens=1,
        ttft_s=work.ttft_s,
        shared_prefix_tokens=work.shared_prefix_tokens,
        efficiency=work.efficiency,
    )
    fixed = replace(
        choices,
        weight_formats={decode.weight_format: choices.weight_formats[decode.weight_format]},
        kv_formats={decode.kv_format: kv},
    )
    offer: Offer = replace(decode.offer, available=None)
    holding = [
        one
        for one in rank([decode.model], prompts, [offer], fixed).deployments
        if one.users_held >= PROMPTS_HELD * one.layout.data and one.layout.decode_context == 1
    ]
    if not holding:
        raise InputError(
            f"disaggregated: found no layout of {offer.accelerator.id} that holds {PROMPTS_HELD} prompts of "
            f"{work.prompt_tokens:,} tokens in time; allowed: shorter prompts, a later first token or larger GPUs"
        )
    available, taken = decode.offer.available, decode.replicas[1] * decode.layout.devices
    if available is not None:
        least = min(one.layout.devices for one in holding)
        if taken + least > available:
            raise InputError(
                f"disaggregated: found {available} GPUs; decode takes {taken} and prefill at least {least}; "
                f"allowed: {taken + least} or more, or one pool for both"
            )
        holding = [one for one in holding if taken + one.layout.devices <= available]
    prefill = min(holding, key=_prefill_cost)
    stored = held(decode.model, kv)
    per_rank = ceil(ceil(work.peak / decode.replicas[1]) / decode.layout.data)
    return Disaggregated(
        workload=work,
        prefill=prefill,
        decode=decode,
        transfer_bytes=int(stored.request_bytes(work.prompt_tokens))
        - shared_bytes(stored, work.shared_prefix_tokens),
        prefill_pool_bytes=pool_for(
            prefill.plan, PROMPTS_HELD, work.prompt_tokens, work.prompt_tokens + 1, work.shared_prefix_tokens
        ),
        decode_pool_bytes=pool_for(
            decode.plan, per_rank, work.mean_tokens, work.longest_tokens, work.shared_prefix_tokens
        ),
    )


def _prefill_cost(one: Solution) -> tuple[bool, float, int, str]:
    """What surely fits first, then by device-seconds per prompt, then by devices."""
    seconds = one.ttft_bound_s * one.layout.devices / one.layout.data
    return (not one.sure, 0.0 if isnan(seconds) else seconds, one.layout.devices, one.layout.label)


def _known(value: float) -> float | None:
    return None if isnan(value) else value
