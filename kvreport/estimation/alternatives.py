"""What else: the change that would help, and the sentence that says what to relax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Final

from kvreport import words
from kvreport.accounting.engines.by_family import rules
from kvreport.accounting.offers import Choices, Solution
from kvreport.accounting.ranking import Ranking, rank
from kvreport.accounting.sizing import Load
from kvreport.catalog.load import RELEASED, Catalog
from kvreport.catalog.server_flags import flag_names
from kvreport.units import count
from kvreport.words import RELAX

SMALL_STEP: Final = 2048
"""Tokens of a step to try instead: vLLM's default on smaller devices (0.33, ``engine/arg_utils.py``)."""

FEWER_SEQUENCES: Final = 256
"""Requests at once to try instead: the same."""

WORTH_SAYING: Final = 1.1
"""Requests of a replica over those without the change, from which it is said."""


def what_to_relax(work: Load, ranking: Ranking, choices: Choices) -> str:
    """One sentence about why nothing serves the workload, and what would."""
    refused = ranking.refused
    if "available" in refused:
        said = RELAX["available"].format(peak=f"{work.peak:,}")
        more = RELAX["more_at_once"].format(number=choices.max_seqs)
        return (
            said
            if choices.max_seqs is None
            else said.replace("allow more devices", f"allow more devices, {more}")
        )
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
    # Of what is refused for several reasons, the one that is nearest to a start.
    reason = next(name for name in ("share", "weights", "support") if name in refused)
    return RELAX[reason].format(engine=choices.engine.label)


def levers(
    work: Load, best: Solution, choices: Choices, known: Catalog
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
    return (*found, *_smaller_sizes(work, best, fixed))


def _smaller_sizes(work: Load, best: Solution, choices: Choices) -> Iterator[tuple[str, int | None, int]]:
    """Smaller scheduler sizes, where they let a replica hold more.

    Windows keep the tokens in flight for every request. Graphs on Hopper keep results of attention for every request at once.
    """
    family = choices.engine.family
    if family not in words.KV_NAMES:
        return
    flags = flag_names(family)
    engine = rules(choices.engine)
    tokens, seqs = engine.scheduler(best.offer.accelerator, model=best.model)
    least = max(SMALL_STEP, engine.least_step(best.model))
    step, few = count(least), count(FEWER_SEQUENCES)
    sizes = (
        (
            f"steps of {step} tokens",
            "max_batched_tokens",
            tokens > least,
            replace(choices, max_batched_tokens=least),
        ),
        (
            f"at most {few} requests at once",
            "max_seqs",
            choices.max_seqs is None and seqs > FEWER_SEQUENCES,
            replace(choices, max_seqs=FEWER_SEQUENCES),
        ),
    )
    for label, name, smaller, small in sizes:
        if not smaller:
            continue
        ranked = rank([best.model], work, [replace(best.offer, available=None)], small).deployments
        each = next((one.users_each for one in ranked if one.layout == best.layout), 0)
        if ranked and (each >= best.users_each * WORTH_SAYING or ranked[0].devices < best.devices):
            yield f"{label} ({flags[name]})", ranked[0].devices, ranked[0].users_each


def _milliseconds(seconds: float) -> str:
    """A time that is enough: rounded up to whole tenths of a millisecond."""
    return f"{ceil(seconds * 1e4) / 10:,.1f} ms"
