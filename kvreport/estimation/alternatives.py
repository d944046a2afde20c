"""What else: the change that would help, and the sentence that says what to relax."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from kvreport.accounting.ranking import Choices, Deployment, Ranking, rank
from kvreport.accounting.sizing import Workload
from kvreport.catalog.load import RELEASED, Catalogue
from kvreport.units import human_tokens


def what_to_relax(work: Workload, ranking: Ranking, choices: Choices) -> str:
    """One sentence about why nothing serves the workload, and what would."""
    refused = ranking.refused
    if "available" in refused:
        return (
            f"nothing serves {work.peak:,} requests with the devices available; allow more devices, fewer "
            "requests, a shorter average context, or smaller formats (--weights fp8 --kv fp8)"
        )
    if "time" in refused:
        parts = []
        if work.tpot_s is not None and ranking.fastest_tpot_s > work.tpot_s * work.efficiency:
            parts.append(f"TPOT to {_milliseconds(ranking.fastest_tpot_s / work.efficiency)}")
        if work.ttft_s is not None and ranking.fastest_ttft_s > work.ttft_s * work.efficiency:
            parts.append(f"TTFT to {_milliseconds(ranking.fastest_ttft_s / work.efficiency)}")
        towards = " and ".join(parts) or "the time targets"
        return (
            f"nothing that holds the workload is fast enough; relax {towards}, offer more devices per replica, "
            "or faster ones"
        )
    if "context" in refused:
        return (
            f"one request of {human_tokens(work.longest_tokens)} tokens does not fit anything offered; shorten "
            "the longest request, try --kv fp8, or offer larger devices or more of them per replica"
        )
    if not refused:
        return (
            "nothing offered can be configured; allow other tensor-parallel sizes or KV formats than "
            f"{', '.join(map(str, choices.tensor_parallel))} and {', '.join(choices.kv_formats)}"
        )
    return (
        "the weights alone do not fit anything offered; allow more devices per replica, a smaller weight format "
        "(--weights fp8,int4), or larger devices"
    )


def levers(
    work: Workload, best: Deployment, choices: Choices, known: Catalogue
) -> tuple[tuple[str, int | None, int], ...]:
    """What one change does to the best deployment, on the same kind of device."""
    half = max(1, work.longest_tokens // 2)
    output = min(work.output_tokens, max(1, half // 2))
    prompt = min(work.prompt_tokens, half - output)
    mean = min(work.mean_tokens, max(1, work.mean_tokens // 2))
    shorter = replace(
        work,
        longest_tokens=max(half, output + 1),
        mean_tokens=mean,
        prompt_tokens=max(prompt, 1),
        output_tokens=output,
        shared_prefix_tokens=min(work.shared_prefix_tokens, max(prompt, 1), mean),
    )
    fixed = replace(
        choices,
        weight_formats={best.weight_format: choices.weight_formats[best.weight_format]},
        kv_formats={best.kv_format: known.kv_format(best.kv_format)},
    )
    changes = [("half the context", shorter, fixed)]
    if best.kv_format == "bf16":
        changes.append(("FP8 cache", work, replace(fixed, kv_formats={"fp8": known.kv_format("fp8")})))
    if best.weight_format in (RELEASED, "bf16") and best.model.weight_format == "bf16":
        changes.append(
            ("FP8 weights", work, replace(fixed, weight_formats={"fp8": known.weight_format("fp8")}))
        )
    found = []
    offer = replace(best.offer, available=None)
    for label, asked, allowed in changes:
        ranked = rank([best.model], asked, [offer], allowed).deployments
        found.append((label, ranked[0].devices if ranked else None, ranked[0].users_each if ranked else 0))
    return tuple(found)


def _milliseconds(seconds: float) -> str:
    """A time that is enough: rounded up to whole tenths of a millisecond."""
    return f"{ceil(seconds * 1e4) / 10:,.1f} ms"
