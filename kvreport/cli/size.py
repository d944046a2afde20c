"""``kvreport size``: from a workload to ranked deployments."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport import words
from kvreport.accounting import kernel
from kvreport.catalog.server_flags import flag_names
from kvreport.cli.deploy import as_pasted, check_as, launch_of
from kvreport.cli.matrix import parse_layouts
from kvreport.cli.numbers import finite
from kvreport.cli.output import given, table, write, write_answer, write_json
from kvreport.cli.query_options import query_values, unfollowed
from kvreport.errors import InputError, shorten
from kvreport.query import SERVER_ENGINE
from kvreport.units import count, gib, human_tokens, parse_tokens
from kvreport.words import counted

if TYPE_CHECKING:
    from kvreport.accounting.offers import Solution
    from kvreport.accounting.paging import Lengths
    from kvreport.catalog.load import Catalog
    from kvreport.estimation.not_followed import NotFollowed
    from kvreport.estimation.size import Sizing


def _engine(options: argparse.Namespace, catalog: Catalog) -> tuple[str, str]:
    """The engine of a question, and why it was taken where none was stated ("" for vLLM)."""
    from kvreport.catalog.load import RELEASED
    from kvreport.estimation.home_names import engine_at_home

    if options.engine is not None:
        return options.engine, ""
    server = any(getattr(options, name) is not None for name in _OF_SERVERS)
    gpus = [] if server or any("*" in name or "?" in name for name in options.gpu) else options.gpu
    formats = [] if options.weights == RELEASED else _list("weights", options.weights)
    return engine_at_home(gpus, formats, {}, catalog) or (SERVER_ENGINE, "")


_OF_SERVERS: Final = (
    "tensor_parallel", "layouts", "utilization", "max_seqs", "max_batched_tokens", "lengths", "users", "ttft", "tpot",
    "requests_per_minute", "prompt", "output", "available",
)  # fmt: skip
"""Flags that only servers have: with one of them a machine at home is asked about with the usual engine."""


_OF_NUMBERS: Final = (
    "disaggregated", "max_batched_tokens", "requests_per_minute", "latency", "shared_prefix", "efficiency", "ttft", "tpot",
    "burst", "spares", "layouts", "host_memory",
)  # fmt: skip
"""Flags that say nothing of a recorded trace, whose lengths and times are its own."""

_NOT_AT_HOME: Final = (
    *_OF_SERVERS, "average", "latency", "shared_prefix", "efficiency", "spares", "price", "disaggregated",
)  # fmt: skip
"""Flags that a machine at home has no use for: its requests are slots of one context."""


def _refuse_given(options: argparse.Namespace, names: Sequence[str], found: str, allowed: str) -> None:
    """Refuse flags that the answer would pass over.

    Raises:
        InputError: For the first that was given.
    """
    for name in names:
        if getattr(options, name) not in (None, False, [], 1.0 if name == "burst" else None):
            raise InputError(f"{name.replace('_', '-')}: {found}; allowed: {allowed}")


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.accounting.sizing import DEFAULT_EFFICIENCY
    from kvreport.catalog.load import open_catalog
    from kvreport.estimation.home_size import is_local
    from kvreport.estimation.size import size

    named = unfollowed(options)
    check_as(options)
    if options.as_kind and (options.trace is not None or options.format != "text"):
        raise InputError("as: found together with --trace or --format; allowed: a workload in numbers")
    if options.trace is not None:
        if options.fetch or options.revision:
            raise InputError("fetch: found together with --trace; allowed: a model that is known")
        _refuse_given(options, _OF_NUMBERS, "found together with --trace", "a workload in numbers")
        return _run_trace(options, named)
    if options.wait is not None:
        raise InputError("wait: found without --trace; allowed: with a trace, or use --ttft")
    if options.rate is not None:
        raise InputError("rate: found without --trace; allowed: with a trace, or use --requests-per-minute")
    catalog = open_catalog(options.data)
    options.engine, taken = _engine(options, catalog)
    if is_local(options.engine, catalog):
        if options.as_kind:
            raise InputError(
                f"as: found {options.engine}; allowed: kvreport estimate with --as, which knows the file"
            )
        return _run_local(options, catalog, taken, named)
    if options.host_memory is not None:
        raise InputError(
            f"host-memory: found {shorten(options.host_memory)} with {options.engine}, which keeps nothing there; "
            "allowed: with llama-cpp or ollama"
        )
    lengths = _read_lengths(options.lengths) if options.lengths else None
    if options.context is None and lengths is None:
        raise InputError(
            "size: found neither --context nor --lengths; allowed: the longest request, or a file of lengths"
        )
    found = size(
        options.models,
        context=options.context if lengths is None or options.context else lengths.maximum,
        average=options.average if lengths is None or options.average else max(1, round(lengths.mean)),
        latency_s=_seconds("latency", options.latency),
        ttft_s=_seconds("ttft", options.ttft),
        tpot_s=_seconds("tpot", options.tpot),
        spare_replicas=options.spares,
        shared_prefix=0 if options.shared_prefix is None else options.shared_prefix,
        efficiency=DEFAULT_EFFICIENCY if options.efficiency is None else options.efficiency,
        layouts=parse_layouts(options.layouts),
        **given(
            options, "concurrent users requests_per_minute prompt output burst engine max_batched_tokens"
        ),
        **given(options, "disaggregated fetch revision"),
        **_choices(options),
        catalog=catalog,
    )
    found = replace(found, not_followed=(*found.not_followed, *named))
    if options.as_kind:
        return _write(found.to_dict(1)["deployments"], options, catalog)
    write_answer(
        options.format,
        lambda: found.to_dict(options.top),
        lambda: [*text(found, options.top), *(_waste(lengths) if lengths else ())],
    )
    return 0


def _write(deployments: Sequence[Mapping[str, Any]], options: argparse.Namespace, catalog: Catalog) -> int:
    """Print the first deployment as a file: its command, answered as ``kvreport estimate`` does, and its replicas."""
    from kvreport.catalog.load import RELEASED
    from kvreport.cli import parser
    from kvreport.deployments.written import as_file
    from kvreport.estimation import estimate

    if not deployments:
        raise InputError(
            "as: found nothing that serves this; allowed: other GPUs, formats or a smaller workload"
        )
    best = deployments[0]
    command = next((one for one in best.get("commands", {}).values() if one), None)
    if command is None:
        raise InputError(
            f"as: found {options.engine}; allowed: an engine with a start command, and one pool of replicas"
        )
    asked = parser().parse_args(["estimate", "--gpu", best["gpu"], *shlex.split(command)])
    # A command names no release, and no flag of it a checkpoint in another format.
    values = query_values(asked) | {"engine": options.engine}
    values |= {} if best["weight_format"] == RELEASED else {"weights": best["weight_format"]}
    result = estimate(asked.model, catalog=catalog, **values)
    launch = launch_of(result, catalog, replicas=best["replicas"]["with_spares"], disk_rate=options.disk_rate)
    print(as_file(options.as_kind, as_pasted(launch, launch.model, options.passed_on)), end="")
    return 0


def _say(named: Sequence[NotFollowed]) -> None:
    """Say beside an answer without a verdict what of a pasted command it does not follow."""
    from kvreport.estimation.not_followed import outside_band

    for line in (*named, *outside_band(named)):
        print(f"kvreport: {line}", file=sys.stderr)


def _run_local(
    options: argparse.Namespace, catalog: Catalog, taken: str, named: Sequence[NotFollowed]
) -> int:
    """Machines at home: the best quantization that fits, the layers that do not, and the command."""
    from kvreport.estimation.home_size import size_home

    if options.context is None:
        raise InputError("context: found none; allowed: the longest request in tokens, such as 32K")
    label = catalog.engine(options.engine).label
    _say(named)
    allowed = "--context, --concurrent, --weights, --kv and --host-memory; or the engine of a server, such as --engine vllm"
    _refuse_given(options, _NOT_AT_HOME, f"found with {label}, which has no use for it", allowed)
    wanted = (options.concurrent or 1) * options.burst
    found = size_home(
        options.models,
        context=parse_tokens(options.context),
        slots=max(1, -(-int(wanted * 1000) // 1000)),
        engine=options.engine,
        gpus=options.gpu,
        weights=_list("weights", options.weights),
        cache_type=options.kv,
        host_memory=options.host_memory,
        catalog=catalog,
    )[: options.top]
    if options.format == "json":
        write_json([one.to_dict() for one in found])
        return 0
    rows = [
        (
            "machine", "model", "weights", "GPU memory (GiB)", "of", "main memory (GiB)", "flags", "longest context"
        )
    ]  # fmt: skip
    rows += [
        (
            one.machine,
            one.model,
            one.weights.upper() if one.weights != "file" else "as in the file",
            gib(one.used),
            gib(one.usable),
            gib(one.layout.host.total),
            one.remainder,
            human_tokens(one.longest_context) if one.longest_context else "",
        )
        for one in found
    ]
    slots = f"{found[0].slots} requests" if found[0].slots > 1 else "1 request"
    engine = f"With {catalog.engine(options.engine).label} ({taken}): " if taken else ""
    write(
        f"{engine}{slots} of {human_tokens(found[0].context)} tokens at once, largest quantization that fits:"
    )
    write("")
    for line in table(rows, "<<<>>><>"):
        write(line)
    write("")
    for said in dict.fromkeys(
        text for one in found for text in one.assumptions if not text.startswith("one ")
    ):
        write(f"assumed: {said}")
    write(f"on {found[0].machine}: {found[0].command}")
    return 0


def _run_trace(options: argparse.Namespace, named: Sequence[NotFollowed]) -> int:
    from kvreport.catalog.load import open_catalog
    from kvreport.traffic.trace_sizing import CANDIDATES, DEFAULT_WAIT_S, size_for_trace

    for name in ("context", "lengths", "average", "concurrent", "users", "prompt", "output"):
        if getattr(options, name) is not None:
            raise InputError(f"{name}: found with --trace, which states the workload; allowed: one of them")
    _say(named)
    found = size_for_trace(
        options.models,
        options.trace,
        wait_s=DEFAULT_WAIT_S if options.wait is None else options.wait,
        candidates=min(options.top, CANDIDATES),
        rate=options.rate,
        engine=options.engine or SERVER_ENGINE,
        **_choices(options),
        catalog=open_catalog(options.data),
    )
    if options.format == "json":
        write_json([one.to_dict() for one in found])
        return 0
    for note in dict.fromkeys(note for one in found for note in one.notes):
        write(note)
    rows = [
        ("GPU", "GPUs", "copies x size", "wait p95", "first token p95", "hit rate", "preemptions", "per hour")
    ]
    rows += [
        (
            one.gpu,
            str(one.gpus),
            f"{one.replicas} x {one.layout.devices}"
            + ("" if one.layout.is_tensor_only else f" ({one.layout.label})"),
            f"{one.wait_p95_s:,.1f} s",
            f"{one.first_token_p95_s:,.1f} s",
            f"{one.hit_rate:.1%}",
            count(one.preemptions),
            "" if one.price_per_hour is None else f"{one.price_per_hour:,.2f}",
        )
        for one in found
    ]
    for line in table(rows, "<><>>>>>"):
        write(line)
    return 0


def text(found: Sizing, top: int) -> list[str]:
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


def _read_lengths(path: str) -> Lengths:
    """Read observed lengths, one whole number a line; blank lines and what follows a # are skipped."""
    from kvreport.accounting.paging import MAX_SAMPLES, Lengths

    found: list[int] = []
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            words = line.partition("#")[0].strip()
            if not words:
                continue
            if not (words.isascii() and words.isdigit() and len(words) <= 10 and int(words) >= 1):
                raise InputError(
                    f"{path}: line {number}: found {shorten(words)}; allowed: a whole number of tokens"
                )
            found.append(int(words))
            if len(found) > MAX_SAMPLES:
                raise InputError(
                    f"{path}: found more than {MAX_SAMPLES:,} lengths; allowed: up to that (take a sample)"
                )
    return Lengths.of(found)


def _waste(lengths: Lengths) -> list[str]:
    """The share of memory that these lengths leave unused when requests are complete, by how it is allocated."""
    from kvreport.accounting.paging import reserved_tokens

    held = sum(lengths.tokens)
    zeros = [0] * len(lengths.tokens)
    rows = [("allocation", "unused")]
    rows.append(("reserved for the longest", f"{1 - held / (lengths.maximum * len(lengths.tokens)):.1%}"))
    for block in (16, 64, 256):
        blocks = int(
            reserved_tokens(
                lengths.tokens, zeros, "pages", maximum_tokens=lengths.maximum, page_tokens=block
            ).sum()
        )
        rows.append((f"blocks of {block} tokens", f"{1 - held / blocks:.1%}"))
    return [
        "",
        f"Memory of these {len(lengths.tokens):,} requests when they are complete:",
        *table(rows, "<>"),
    ]


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    """What may be combined, whatever states the workload."""
    return {
        "gpus": options.gpu,
        "prices": dict(_price(text) for text in options.price) or None,
        "weights": _list("weights", options.weights),
        "kv": _list("kv", options.kv),
        "tensor_parallel": _sizes(options.tensor_parallel),
        **given(options, "available utilization max_seqs"),
    }


def _list(name: str, text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise InputError(f"{name}: found {shorten(text)}; allowed: one or several, with commas between")
    return found


def _sizes(text: str | None) -> list[int] | None:
    return (
        None if text is None else [_whole("tensor-parallel", one) for one in _list("tensor-parallel", text)]
    )


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 1024:
        raise InputError(f"{name}: found {shorten(text)}; allowed: whole numbers from 1 to 1024, with commas")
    return int(text)


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    number, scale = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    value = finite(number) * scale
    if not 0 < value < 1e6:
        raise InputError(f"{name}: found {shorten(text)}; allowed: a time above 0, such as 800ms or 2s")
    return value


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    value = finite(number)
    if not name or not 0 < value < 1e9:
        raise InputError(f"price: found {shorten(text)}; allowed: GPU=PRICE, such as H100=2.5")
    return name, value
