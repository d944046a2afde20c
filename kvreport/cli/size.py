"""``kvreport size``: from a workload to ranked deployments."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.cli.deploy import as_pasted, check_as, launch_of
from kvreport.cli.matrix import parse_layouts
from kvreport.cli.numbers import finite
from kvreport.cli.output import given, table, write, write_answer, write_json
from kvreport.cli.query_options import query_values, unfollowed
from kvreport.cli.ranking_text import ranking_text
from kvreport.errors import InputError, shorten
from kvreport.query import SERVER_ENGINE
from kvreport.units import count, gib, human_tokens, parse_tokens

if TYPE_CHECKING:
    from kvreport.accounting.paging import Lengths
    from kvreport.catalog.load import Catalog
    from kvreport.estimation.not_followed import NotFollowed


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
        lambda: [*ranking_text(found, options.top), *(_waste(lengths) if lengths else ())],
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
