"""``kvreport replay``: a model on an accelerator under a recorded traffic."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvreport.cli.output import given, table, write_answer
from kvreport.cli.query_options import query_values, with_unfollowed
from kvreport.units import count, gib

if TYPE_CHECKING:
    from kvreport.traffic.answers import TrafficAnswer
    from kvreport.traffic.curves import CurvePoint
    from kvreport.traffic.results import Sample

_BARS = " ▁▂▃▄▅▆▇█"


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from dataclasses import replace

    from kvreport.accounting.sizing import DEFAULT_EFFICIENCY
    from kvreport.catalog.load import open_catalog
    from kvreport.traffic.answers import replay

    answer = replay(
        options.trace,
        options.model,
        host_memory=options.host_tier,
        time_to_live_s=options.ttl,
        efficiency=DEFAULT_EFFICIENCY if options.efficiency is None else options.efficiency,
        wait_s=options.wait,
        **given(
            options, "replicas host_policy speed closed_loop order_only hit_rate block_tokens rate limit"
        ),
        catalog=open_catalog(options.data),
        **query_values(options),
    )
    answer = replace(answer, estimate=with_unfollowed(answer.estimate, options))
    write_answer(options.format, answer.to_dict, lambda: text(answer))
    return 0


def text(answer: TrafficAnswer) -> list[str]:
    """Lay an answer out: the trace, the course over time, hit rates by size."""
    found = answer.to_dict()
    lines = [*_headline(answer), ""]
    if answer.runs:
        lines += [*_course(found["replay"], len(answer.runs)), ""]
        lines += [*_chart(answer.runs[0].samples), ""]
    lines += _hits(answer)
    return lines


def _headline(answer: TrafficAnswer) -> list[str]:
    from kvreport.catalog.release import unread_words

    request, trace = answer.estimate.request, answer.trace
    layout = request.layout
    names = " + ".join(dict.fromkeys(one.name for one in request.accelerators))
    device = f"{answer.replicas * layout.devices} × {names}"
    if not layout.is_tensor_only:
        device += f" ({layout.label})"
    minutes = trace.duration_s / 60
    requests = f"{count(len(trace))} request{'' if len(trace) == 1 else 's'}"
    unread = unread_words(request.engine, request.release_read).removesuffix(": ")
    lines = [
        *([unread] if unread else []),
        *answer.notes,
        f"{requests} over {minutes:,.0f} min of {trace.name}, on {device}",
        f"{request.model.id}, {request.engine.label}, KV pool {gib(answer.estimate.budget.kv_pool_bytes)} GiB per GPU",
    ]
    if trace.reordered:
        lines.append(f"{count(trace.reordered)} requests were not in order of time and have been sorted")
    return lines


def _course(found: dict[str, object], parts: int) -> list[str]:
    def number(name: str) -> int:
        value = found[name]
        assert isinstance(value, int)  # noqa: S101 - the record's own type
        return value

    rows = [
        ("requests served", count(number("requests"))),
        ("refused (larger than the pool)", count(number("refused"))),
        ("running at once, mean and peak", f"{found['mean_running']:.1f}, {found['peak_running']}"),
        ("most ran at", f"{found['peak_running_s']:,.1f} s"),
        ("waiting at once, peak", count(number("peak_waiting"))),
        ("most waited at", f"{found['peak_waiting_s']:,.1f} s"),
        ("preemptions", count(number("preemptions"))),
        ("tokens prefilled again", count(number("recomputed_tokens"))),
        ("hit rate", f"{found['hit_rate']:.1%}"),
    ]
    for name, label in (
        ("wait_s", "waiting, p50 and p95"),
        ("first_token_s", "time to first token, p50 and p95"),
        ("end_to_end_s", "end-to-end latency, p50 and p95"),
        ("idle_lifetime_s", "idle context stays, p50 and p95"),
    ):
        times = found[name]
        if isinstance(times, dict):
            rows.append((label, f"{times['p50']:,.1f} s, {times['p95']:,.1f} s"))
    rows.append(("idle contexts resident, peak", count(number("peak_idle_contexts"))))
    rows.append(("requests waited for", str(found["binding_pool"] or "nothing")))
    copies = "" if parts == 1 else f", {parts} copies together; at once: the busiest of them"
    return [
        f"Over time (steps at {found['efficiency']:.0%} of the roofline{copies})",
        *table(rows, "<>"),
    ]


def _chart(samples: Sequence[Sample]) -> list[str]:
    """Running and waiting requests over time, as bars of characters."""
    if not samples:
        return []
    end = samples[-1].time_s or 1.0
    slots = 60
    running, waiting = [0] * slots, [0] * slots
    for sample in samples:
        slot = min(int(sample.time_s / end * slots), slots - 1)
        running[slot] = max(running[slot], sample.running)
        waiting[slot] = max(waiting[slot], sample.waiting)
    rows = [
        ("running", _bars(running), count(max(running))),
        ("waiting", _bars(waiting), count(max(waiting))),
    ]
    return [*table(rows, "<<>"), f"  from 0 to {end:,.0f} s; the number is the peak"]


def _bars(values: Sequence[int]) -> str:
    most = max(values) or 1
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // most)] for value in values)


def _hits(answer: TrafficAnswer) -> list[str]:
    if answer.hit_rate is None:
        said = "The trace does not state which prompts begin with the same text (as hash_ids do in Mooncake's format)"
        return [f"{said}, so prefix cache hits are not counted."]
    parts = answer.replicas * answer.estimate.request.layout.data
    best = "no policy exceeds" if answer.best_is_bound else "best possible"
    lines = [
        "Prefix cache (hit tokens ÷ prompt tokens, requests in order of arrival"
        + ("" if parts == 1 else f", one of {parts} copies")
        + ")"
    ]
    rows = [("this KV pool", _percent(answer.hit_rate), _percent(answer.hit_rate_best))]
    if answer.hit_rate_with_host is not None:
        rows.append(
            (f"with {gib(answer.host_bytes)} GiB of host memory", _percent(answer.hit_rate_with_host), "")
        )
    rows.append(("unlimited", _percent(answer.hit_rate_unlimited), _percent(answer.hit_rate_unlimited)))
    lines += [*table([("", "hit rate", best), *rows], "<>>"), ""]
    lines += _curve(answer.curve, best)
    if answer.wanted_hit_rate is not None:
        size = answer.cache_bytes_for_hit_rate
        reached = "no size of cache reaches it" if size is None else f"{gib(size)} GiB per GPU"
        lines.append(f"For a hit rate of {answer.wanted_hit_rate:.1%}: {reached}")
    if answer.wanted_wait_s is not None and answer.runs:
        copies = answer.replicas_for_wait
        need = (
            "no number tried is enough"
            if copies is None
            else f"{copies} {'copy' if copies == 1 else 'copies'}"
        )
        lines.append(f"For waits of at most {answer.wanted_wait_s:g} s (95th percentile): {need}")
    return lines


def _curve(curve: Sequence[CurvePoint], best: str) -> list[str]:
    rows = [("cache per GPU, GiB", "hit rate", best, "")]
    rows += [
        (gib(point.cache_bytes), _percent(point.lru), _percent(point.best), "█" * round(point.lru * 40))
        for point in curve
    ]
    return [*table(rows, ">>><"), ""]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
