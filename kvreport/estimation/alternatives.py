"""What else: the change that would help, and the sentence that says what to relax."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from kvreport.accounting.ranking import Choices, Deployment, Ranking, rank
from kvreport.accounting.sizing import Workload
from kvreport.catalog.load import RELEASED, Catalogue
from kvreport.words import RELAX


def what_to_relax(work: Workload, ranking: Ranking, choices: Choices) -> str:
    """One sentence about why nothing serves the workload, and what would."""
    refused = ranking.refused
    if "available" in refused:
        return RELAX["available"].format(peak=f"{work.peak:,}")
    if "time" in refused:
        bounds = (
            ("tpot", work.tpot_s, ranking.fastest_tpot_s),
            ("ttft", work.ttft_s, ranking.fastest_ttft_s),
        )
        missed = [
            RELAX[name].format(time=_milliseconds(fastest / work.efficiency))
            for name, target, fastest in bounds
            if target is not None and fastest > target * work.efficiency
        ]
        return RELAX["time"].format(targets=" and ".join(missed) or RELAX["targets"])
    if "context" in refused:
        return RELAX["context"].format(context=f"{work.longest_tokens:,}")
    if not refused:
        sizes, formats = map(str, choices.tensor_parallel), choices.kv_formats
        return RELAX["formats"].format(sizes=", ".join(sizes), formats=", ".join(formats))
    return RELAX["weights"]


def levers(
    work: Workload, best: Deployment, choices: Choices, known: Catalogue
) -> tuple[tuple[str, int | None, int], ...]:
    """What one change does to the best deployment, on the same kind of device.

    Args:
        work: The workload.
        best: The deployment that is changed.
        choices: What may be chosen.
        known: Where names are looked up.
    """
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
