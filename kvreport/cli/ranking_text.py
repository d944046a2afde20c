"""The answer of ``kvreport size`` in words: the best deployment, the ranking, its arithmetic, what would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from kvreport import words
from kvreport.accounting import kernel
from kvreport.catalog.server_flags import flag_names
from kvreport.cli.output import table
from kvreport.units import count, gib
from kvreport.words import counted

if TYPE_CHECKING:
    from kvreport.accounting.offers import Solution
    from kvreport.estimation.size import Sizing


def ranking_text(found: Sizing, top: int) -> list[str]:
    """Lay the answer out: the best in a sentence, the ranking, its arithmetic, what would help, the commands."""
    from kvreport.catalog.release import unread_words
    from kvreport.estimation.not_followed import outside_band

    listed = found.ranking.best_of_each()[:top]
    best = listed[0]
    facts = found.describe(best)
    work = found.workload
    smaller = found.tight(best)
    unread = unread_words(found.policy, found.catalog.release_read(found.policy))
    lines = [
        f"{unread}For {counted(work.peak, 'concurrent request|concurrent requests')} of {count(work.mean_tokens)} tokens with {best.model.id}: "
        f"{_machines(best)}" + ("." if best.sure else ", but only within the error of the estimate."),
        *(f"{said[0].upper()}{said[1:]}." for said in outside_band(found.not_followed)),
        *(
            ()
            if smaller is None
            else (f"Within the error of the estimate: {_machines(smaller)} ({_each(smaller.users_each)}).",)
        ),
        *_by_name(found, best),
        "",
        *_ranking(found, listed),
        "",
        f"How it is computed for {best.offer.accelerator.name}",
    ]
    lines += [f"  {line}" for line in found.arithmetic(best)]
    lines += _same_hardware(found.same_hardware(best))
    lines += ["", "Limits", *table(_limits(found, facts), "<<")]
    if found.levers:
        rows = [
            (
                label,
                f"{counted(devices, 'GPU|GPUs')}, {_each(users)}" if devices else "nothing fits on this GPU",
            )
            for label, devices, users in found.levers
        ]
        lines += ["", "What a change gives", *table(rows, "<<")]
    if found.apart is not None:
        lines += ["", *found.apart.lines()]
    if found.assumptions:
        lines += ["", "Assumed", *(f"  {one}" for one in found.assumptions)]
    if found.not_followed:
        lines += ["", "Not followed", *(f"  {one}" for one in found.not_followed)]
    commands = [line for line in facts["commands"].values() if line]
    if commands:
        lines += ["", "Start it with", *(f"  {line}" for line in commands)]
        if facts["note"]:
            lines.append(f"  {facts['note']}")
    return lines


def _by_name(found: Sizing, best: Solution) -> list[str]:
    """What the best deployment may hold where a copy's name alone says its formats; nothing where they are known."""
    narrow = found.narrow(best)
    if narrow is None:
        return []
    fewest = found.optimistic.best_of_each()[0] if found.optimistic else narrow
    fewer = (
        f"; with every layer narrow, {_machines(fewest)} would do" if fewest.devices < best.devices else ""
    )
    sentence = (
        f"By its name, weights are {gib(narrow.weight_bytes)} to {gib(best.weight_bytes)} GiB per GPU, and one replica "
        f"serves {count(best.users_each)} to {counted(narrow.users_each, 'request|requests')}{fewer}."
    )
    return [sentence]


def _ranking(found: Sizing, listed: Sequence[Solution]) -> list[str]:
    """One line per deployment, best first; a column that says nothing is left out."""
    work = found.workload
    several = len({one.model.id for one in listed}) > 1
    columns: list[tuple[str, str, Callable[[Solution], str]]] = [
        ("GPU", "<", lambda one: one.offer.accelerator.id),
        ("model", "<", lambda one: one.model.id if several else ""),
        ("GPUs", ">", lambda one: count(one.devices)),
        ("replicas x GPUs", "<", lambda one: f"{one.replicas[-1]} x {_of(one)}"),
        ("weights", "<", _weights),
        ("cache", "<", lambda one: one.kv_format),
        ("requests per replica", ">", lambda one: count(one.users_each)),
        ("headroom", ">", lambda one: f"{one.headroom(work.peak):.0%}"),
        ("total memory (GiB)", ">", lambda one: gib(one.memory_bytes, 0)),
        (
            "price per hour",
            ">",
            lambda one: "" if one.price_per_hour is None else f"{one.price_per_hour:,.2f}",
        ),
        (
            "price per million output tokens",
            ">",
            lambda one: "" if (price := one.price_per_million(work)) is None else f"{price:,.2f}",
        ),
        (
            "limited by",
            "<",
            lambda one: words.LIMITS[one.binds] + (", tight" if found.verdict(one) == "tight" else ""),
        ),
    ]
    rows = [(title, side, [cell(one) for one in listed]) for title, side, cell in columns]
    shown = [(title, side, cells) for title, side, cells in rows if any(cells)]
    return table(
        [tuple(title for title, _, _ in shown), *zip(*(cells for _, _, cells in shown), strict=True)],
        "".join(side for _, side, _ in shown),
    )


def _same_hardware(found: Sequence[Solution]) -> list[str]:
    """The layouts of the same hardware, one line each, and how they are ordered; nothing where there is one."""
    if len(found) == 1:
        return []
    rows = [
        (
            one.layout.label,
            f"{one.replicas[-1]} x {one.layout.devices}",
            count(one.users_at_peak),
            gib(one.pool_bytes),
            "" if isnan(one.tpot_bound_s) else f"{one.tpot_bound_s * 1e3:.1f}",
        )
        for one in found
    ]
    heads = ("layout", "replicas x GPUs", "requests", "KV pool per GPU (GiB)", "decode step, at least (ms)")
    return [
        "",
        f"Layouts on the same {counted(found[0].devices, 'GPU|GPUs')}",
        *table([heads, *rows], "<<>>>"),
        f"  {words.LAYOUT_ORDER.format(factor=kernel.CLOSE_STEPS)}",
    ]


def _limits(found: Sizing, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the best deployment could do with at least, and at most."""
    flag = _share_flag(found)
    share, fractions = facts["smallest_utilization"], facts["mem_fraction_static"]
    rows = [("smallest KV pool per GPU", f"{gib(facts['smallest_pool_bytes'])} GiB")]
    if share is not None:
        rows.append((f"smallest {flag}", f"{share:.3f}"))
    if fractions is not None:
        lowest, highest = fractions["lowest"], fractions["highest"]
        asked = "as requested" if found.stated_share else "which is its default"
        rows.append((flag, f"{lowest:.3f} to {highest:.3f}, {asked}"))
    rows.append(
        ("longest context that all requests could have", f"{count(facts['longest_context_tokens'])} tokens")
    )
    return rows


def _share_flag(found: Sizing) -> str:
    """What the engine calls its share of the memory."""
    family = found.catalog.engine(found.engine).family
    return flag_names(family)["utilization"] if family in words.KV_NAMES else "share of the memory"


def _machines(found: Solution) -> str:
    """The GPUs of a deployment and how they are divided."""
    replicas, each = found.replicas[-1], found.layout.devices
    name = found.offer.accelerator.name
    if found.offer.machine:
        copies = found.replicas[-1]
        return (f"{copies} x ({name})" if copies > 1 else name) + f" ({found.layout.label})"
    layout = "" if found.layout.is_tensor_only else f", {found.layout.label}"
    if replicas == 1:
        return f"{found.devices} x {name}" + (f" ({found.layout.label})" if layout else "")
    return f"{found.devices} x {name} ({replicas} replicas of {counted(each, 'GPU|GPUs')}{layout})"


def _each(requests: int) -> str:
    return f"{counted(requests, 'request|requests')} per replica"


def _weights(found: Solution) -> str:
    """The weight format, by the name of what the checkpoint has where none was chosen."""
    from kvreport.catalog.load import RELEASED

    return found.model.weight_words if found.weight_format == RELEASED else found.weight_format


def _of(found: Solution) -> str:
    """The devices of one replica, with its layout's name where that is more than tensor parallelism."""
    layout = found.layout
    return f"{layout.devices}" if layout.is_tensor_only else f"{layout.devices} ({layout.label})"
