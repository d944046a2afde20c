"""``kvreport size``: from a workload to ranked deployments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvreport.cli.output import Add, add_data_option, add_fetch_options, table, write, write_json
from kvreport.errors import InputError, shorten
from kvreport.units import count, gib, human_tokens, parse_tokens

if TYPE_CHECKING:
    from kvreport.accounting.paging import Lengths
    from kvreport.accounting.parallel import Layout
    from kvreport.accounting.ranking import Deployment
    from kvreport.catalog.load import Catalogue
    from kvreport.estimation.commands import Server
    from kvreport.estimation.size import Sizing

_EPILOG = """\
examples:
  kvreport size meta-llama/Llama-3.1-70B-Instruct --concurrent 64 --context 6000 --weights fp8 --kv fp8
  kvreport size Qwen/Qwen2.5-7B --users 500 --requests-per-minute 0.5 --latency 20 --prompt 3000 --output 500 \\
      --context 8K --burst 2 --spares 1 --tpot 30ms --ttft 1s
  kvreport size Qwen/Qwen3-30B-A3B --engine llama-cpp --gpu rtx-4090 --gpu 'm4-*' --context 32K --concurrent 2
  kvreport size openai/gpt-oss-120b --concurrent 40 --context 32K --price H100=2.5 --price h200-sxm-141gb=3.6
"""


def register(add: Add) -> None:
    """Add the command."""
    command = add(
        "size", _run, "Which GPUs, how many and with which flags serve a workload, best first.", _EPILOG
    )
    command.add_argument(
        "models", nargs="+", metavar="MODEL", help="a model, or a shortlist that would all do"
    )
    load = command.add_argument_group("workload")
    load.add_argument("--context", metavar="TOKENS", help="longest request, prompt and answer")
    load.add_argument(
        "--lengths",
        metavar="FILE",
        help="observed lengths, one request a line (tokens, prompt and answer): gives longest and average",
    )
    load.add_argument(
        "--trace",
        metavar="FILE",
        help="recorded traffic, as kvreport replay reads it: copies are found by replaying it",
    )
    load.add_argument(
        "--wait", type=float, metavar="S", help="with --trace: 95th percentile of waiting for admission (5)"
    )
    load.add_argument("--average", metavar="TOKENS", help="tokens that a request holds on average")
    load.add_argument("--concurrent", type=float, metavar="N", help="requests in flight at the same time")
    load.add_argument("--users", type=int, metavar="N", help="or: people …")
    load.add_argument(
        "--requests-per-minute", type=float, metavar="R", help="… and how many each sends per minute …"
    )
    load.add_argument("--latency", metavar="TIME", help="… each taking so long (20s); Little's law")
    load.add_argument("--prompt", metavar="TOKENS", help="prompt length")
    load.add_argument("--output", metavar="TOKENS", help="answer length")
    load.add_argument("--ttft", metavar="TIME", help="time to first token to be met, such as 800ms")
    load.add_argument("--tpot", metavar="TIME", help="time per output token to be met, such as 30ms")
    load.add_argument("--burst", type=float, default=1.0, metavar="F", help="peak over average (1)")
    load.add_argument(
        "--spares", type=int, default=0, metavar="N", help="replicas that may fail; 1 is N+1 (0)"
    )
    load.add_argument("--shared-prefix", metavar="TOKENS", help="leading tokens that all requests share")
    load.add_argument("--efficiency", type=float, metavar="F", help="share of the roofline reached (0.6)")
    limits = command.add_argument_group("limits")
    limits.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="GPU",
        help="slug, alias or pattern (any, commonly rented first); repeatable",
    )
    limits.add_argument("--available", type=int, metavar="N", help="GPUs there are of each kind")
    limits.add_argument(
        "--price", action="append", default=[], metavar="GPU=PRICE", help="per hour; repeatable"
    )
    limits.add_argument(
        "--weights", default="released", metavar="FORMATS", help="to try, with commas (released)"
    )
    limits.add_argument("--kv", default="auto", metavar="FORMATS", help="to try, with commas (auto)")
    limits.add_argument(
        "--tensor-parallel",
        "--tp",
        metavar="SIZES",
        help="to try, and no other layouts (1,2,4,8 and what suits the model: DP attention with EP, DCP, PP)",
    )
    limits.add_argument(
        "--layouts",
        metavar="NAMES",
        help="further layouts to try instead, with commas, such as tp2-dp8-ep,dp32-ep,tp8-dcp8",
    )
    limits.add_argument("--engine", default="vllm", metavar="NAME", help="whose rules apply (vllm)")
    limits.add_argument("--utilization", type=float, metavar="F", help="share of memory (engine's default)")
    limits.add_argument("--max-seqs", type=int, metavar="N", help="requests at once (engine's default)")
    command.add_argument(
        "--disaggregated",
        action="store_true",
        help="prefill and decode in pools of their own, on the best GPU",
    )
    add_fetch_options(command)
    command.add_argument("--top", type=int, default=10, metavar="N", help="deployments to print (10)")
    command.add_argument("--format", choices=("text", "json"), default="text", help="what to print (text)")
    add_data_option(command)


def _run(options: argparse.Namespace) -> int:
    from kvreport.accounting.sizing import DEFAULT_EFFICIENCY
    from kvreport.catalog.load import open_catalogue
    from kvreport.estimation.local_size import is_local
    from kvreport.estimation.size import size

    if options.trace is not None:
        if options.fetch or options.revision:
            raise InputError("fetch: found together with --trace; allowed: a model that is known")
        if options.disaggregated:
            raise InputError("disaggregated: found together with --trace; allowed: a workload in numbers")
        return _run_trace(options)
    if options.wait is not None:
        raise InputError("wait: found without --trace; allowed: with a trace, or use --ttft")
    catalog = open_catalogue(options.data)
    if is_local(options.engine, catalog):
        return _run_local(options, catalog)
    lengths = _read_lengths(options.lengths) if options.lengths else None
    if options.context is None and lengths is None:
        raise InputError(
            "size: found neither --context nor --lengths; allowed: the longest request, or a file of lengths"
        )
    found = size(
        options.models,
        context=options.context if lengths is None or options.context else lengths.maximum,
        average=options.average if lengths is None or options.average else max(1, round(lengths.mean)),
        concurrent=options.concurrent,
        users=options.users,
        requests_per_minute=options.requests_per_minute,
        latency_s=_seconds("latency", options.latency),
        prompt=options.prompt,
        output=options.output,
        ttft_s=_seconds("ttft", options.ttft),
        tpot_s=_seconds("tpot", options.tpot),
        burst=options.burst,
        spare_replicas=options.spares,
        shared_prefix=options.shared_prefix or 0,
        efficiency=DEFAULT_EFFICIENCY if options.efficiency is None else options.efficiency,
        gpus=options.gpu,
        available=options.available,
        prices=dict(_price(text) for text in options.price) or None,
        weights=_list(options.weights),
        kv=_list(options.kv),
        tensor_parallel=_sizes(options.tensor_parallel),
        layouts=_layouts(options.layouts),
        engine=options.engine,
        utilization=options.utilization,
        max_seqs=options.max_seqs,
        disaggregated=options.disaggregated,
        fetch=options.fetch,
        revision=options.revision,
        catalog=catalog,
    )
    if options.format == "json":
        write_json(found.to_dict(max(options.top, 1)))
    else:
        for line in [*text(found, max(options.top, 1)), *(_waste(lengths) if lengths else ())]:
            write(line)
    return 0


def _run_local(options: argparse.Namespace, catalog: Catalogue) -> int:
    """Machines at home: the best quantization that fits, the layers that do not, and the command."""
    from kvreport.estimation.local_size import size_local

    if options.context is None:
        raise InputError("context: found none; allowed: the longest request in tokens, such as 32K")
    wanted = (options.concurrent or 1) * options.burst
    found = size_local(
        options.models,
        context=parse_tokens(options.context),
        slots=max(1, -(-int(wanted * 1000) // 1000)),
        engine=options.engine,
        gpus=options.gpu,
        weights=_list(options.weights),
        cache_type=options.kv,
        catalog=catalog,
    )[: max(options.top, 1)]
    if options.format == "json":
        write_json([one.to_dict() for one in found])
        return 0
    rows = [("machine", "model", "weights", "GPU memory (GiB)", "of", "in host memory", "longest context")]
    rows += [
        (
            one.machine,
            one.model,
            one.weights.upper() if one.weights != "file" else "as in the file",
            gib(one.used),
            gib(one.usable),
            one.remainder,
            human_tokens(one.longest_context) if one.longest_context else "",
        )
        for one in found
    ]
    slots = f"{found[0].slots} requests" if found[0].slots > 1 else "1 request"
    write(f"{slots} of {human_tokens(found[0].context)} tokens at once, largest quantization that fits:")
    write("")
    for line in table(rows, "<<<>><>"):
        write(line)
    write("")
    write(f"on {found[0].machine}: {found[0].command}")
    return 0


def _run_trace(options: argparse.Namespace) -> int:
    from kvreport.catalog.load import open_catalogue
    from kvreport.traffic.sizing import CANDIDATES, DEFAULT_WAIT_S, size_for_trace

    for name in ("context", "lengths", "average", "concurrent", "users", "prompt", "output"):
        if getattr(options, name) is not None:
            raise InputError(f"{name}: found with --trace, which states the workload; allowed: one of them")
    found = size_for_trace(
        options.models,
        options.trace,
        wait_s=DEFAULT_WAIT_S if options.wait is None else options.wait,
        candidates=min(max(options.top, 1), CANDIDATES),
        gpus=options.gpu,
        available=options.available,
        prices=dict(_price(text) for text in options.price) or None,
        weights=_list(options.weights),
        kv=_list(options.kv),
        tensor_parallel=_sizes(options.tensor_parallel),
        engine=options.engine,
        utilization=options.utilization,
        max_seqs=options.max_seqs,
        catalog=open_catalogue(options.data),
    )
    if options.format == "json":
        write_json([one.to_dict() for one in found])
        return 0
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
    listed = found.ranking.best_of_each()[:top]
    best = listed[0]
    facts = found.describe(best)
    work = found.workload
    lines = [
        f"{best.devices} x {best.offer.accelerator.name} serve {count(work.peak)} requests of "
        f"{count(work.mean_tokens)} tokens on {best.model.id}"
        + ("." if best.sure else ", but only just: within the error of the estimate."),
        "",
    ]
    rows = [
        (
            "GPU",
            "GPUs",
            "replicas x size",
            "weights",
            "cache",
            "users each",
            "headroom",
            "GiB in all",
            "per hour",
            "",
        )
    ]
    for one in listed:
        price = "" if one.price_per_hour is None else f"{one.price_per_hour:,.2f}"
        rows.append(
            (
                one.offer.accelerator.id
                + (f" ({one.model.id})" if len({d.model.id for d in listed}) > 1 else ""),
                str(one.devices),
                f"{one.replicas[-1]} x {_of(one)}",
                one.weight_format,
                one.kv_format,
                count(one.users_each),
                f"{one.headroom(work.peak):.0%}",
                gib(one.memory_bytes, 0),
                price,
                ("" if one.sure else "tight, ") + f"{one.binds} binds",
            )
        )
    lines += table(rows, "<><<<>>>><")
    smaller = found.tight(best)
    if smaller is not None:
        lines += [
            "",
            (
                f"Within the error of the estimate {smaller.devices} x {smaller.offer.accelerator.name} hold it, too: "
                f"{smaller.replicas[-1]} x {_of(smaller)}, {count(smaller.users_each)} users each."
            ),
        ]
    lines += ["", f"{best.offer.accelerator.id}:"]
    lines += [f"  {line}" for line in found.arithmetic(best)]
    lines.append(f"  smallest pool that would do: {gib(facts['smallest_pool_bytes'])} GiB per GPU")
    if facts["smallest_utilization"] is not None:
        lines.append(f"  smallest utilisation that would do (vLLM): {facts['smallest_utilization']:.3f}")
    fractions = facts["mem_fraction_static"]
    lines.append(
        "  static memory fraction (SGLang): "
        + ("none works" if fractions is None else f"{fractions['lowest']:.3f} to {fractions['highest']:.3f}")
    )
    lines.append(
        f"  longest request that all of them could have: {count(facts['longest_context_tokens'])} tokens"
    )
    for label, devices, users in found.levers:
        lines.append(
            f"  with {label}: "
            + (f"{devices} GPUs, {count(users)} users each" if devices else "nothing fits on this GPU")
        )
    if found.apart is not None:
        lines += ["", *found.apart.lines()]
    if found.assumptions:
        lines += ["", "Assumed: " + "; ".join(found.assumptions) + "."]
    lines += ["", "Serve it:", *(f"  {line}" for line in _commands(found, best, facts["commands"]))]
    if facts["note"]:
        lines.append(f"  {facts['note']}")
    return lines


def _of(found: Deployment) -> str:
    """The devices of one replica, with its layout's name where that is more than tensor parallelism."""
    layout = found.layout
    return f"{layout.devices}" if layout.is_tensor_only else f"{layout.devices} ({layout.label})"


def _commands(found: Sizing, best: Deployment, commands: dict[str, str | None]) -> list[str]:
    """One command an engine, or why there is none."""
    families: tuple[Server, ...] = ("vllm", "sglang")
    return [commands[family] or f"{family}: none, {found.refusal(family, best)}" for family in families]


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
    """What these lengths leave empty, by how memory is handed out, when requests are complete."""
    from kvreport.accounting.paging import reserved_tokens

    held = sum(lengths.tokens)
    zeros = [0] * len(lengths.tokens)
    rows = [("handed out as", "empty")]
    rows.append(("room for the longest", f"{1 - held / (lengths.maximum * len(lengths.tokens)):.1%}"))
    for page in (16, 64, 256):
        pages = int(
            reserved_tokens(
                lengths.tokens, zeros, "pages", maximum_tokens=lengths.maximum, page_tokens=page
            ).sum()
        )
        rows.append((f"pages of {page}", f"{1 - held / pages:.1%}"))
    return [
        "",
        f"Memory for these {len(lengths.tokens):,} lengths when requests are complete:",
        *table(rows, "<>"),
    ]


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _layouts(text: str | None) -> list[Layout] | None:
    from kvreport.accounting import parallel

    return None if text is None else [parallel.Layout.named(name) for name in text.split(",")]


def _sizes(text: str | None) -> list[int] | None:
    return None if text is None else [_whole("tensor-parallel", one) for one in _list(text)]


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 1024:
        raise InputError(f"{name}: found {shorten(text)}; allowed: whole numbers from 1 to 1024, with commas")
    return int(text)


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    number, scale = (text[:-2], 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        value = float(number) * scale
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise InputError(f"{name}: found {shorten(text)}; allowed: a time above 0, such as 800ms or 2s")
    return value


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not name or not 0 < value < 1e9:
        raise InputError(f"price: found {shorten(text)}; allowed: GPU=PRICE, such as H100=2.5")
    return name, value
