"""``kvreport estimate``: one model on one accelerator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from kvreport.accounting.kernel import UNLIMITED_REQUESTS
from kvreport.catalog.known_names import KnownByNameError, without_cache
from kvreport.cli.deploy import as_pasted, check_as, launch_of, with_requests
from kvreport.cli.output import (
    REQUIREMENT_NOT_MET,
    figure,
    paint,
    plain,
    table,
    write,
    write_json,
)
from kvreport.cli.query_options import query_values, with_unfollowed
from kvreport.errors import InputError
from kvreport.units import count, gib, human_bytes, human_tokens
from kvreport.words import counted

if TYPE_CHECKING:
    from kvreport.catalog.load import Catalog
    from kvreport.estimation import Estimate
    from kvreport.estimation.remedies import Lever
    from kvreport.estimation.why_not import WhyNot

_ROLES = {"fits": "good", "tight": "warning", "may_fit": "warning"}


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.estimation import estimate
    from kvreport.estimation.remedies import remedies
    from kvreport.estimation.why_not import why_not

    check_as(options)
    if options.ask_engine is not None and options.as_kind:
        raise InputError("ask-engine: found together with --as; allowed: one of them")
    catalog = open_catalog(options.data)
    try:
        result = estimate(options.model, catalog=catalog, **query_values(options))
    except KnownByNameError as known:
        return _no_cache(known, options)
    result = with_unfollowed(result, options)
    if options.as_kind:
        return _write(result, options, catalog)
    why = why_not(result, catalog)
    says = {} if options.ask_engine is None else {"engine_says": _asked(result, options)}
    if options.format == "json":
        write_json(result.to_dict() | {"why_not": None if why is None else why.to_dict()} | says)
    else:
        headline, *rest = text(result, remedies(result, catalog.kv_formats), options.model, why)
        print(paint(plain(headline), _ROLES.get(result.verdict, "bad")))
        for line in (*rest, *(line for said in says.values() for line in _said_by(said, result))):
            write(line)
    return required(result.max_concurrent_requests, options.require)


def _no_cache(known: KnownByNameError, options: argparse.Namespace) -> int:
    """Answer for a model that keeps no KV cache, or runs in stages: its weights, and what is not calculated.

    Raises:
        KnownByNameError: If it is a language model of unknown dimensions.
        InputError: If requests are required, or a deployment file is asked for.
    """
    if known.model.kind == "unread":
        raise known
    staged = known.model.kind == "stages"
    for name in ("require", "as_kind", "ask_engine"):
        if getattr(options, name):
            raise InputError(
                f"{name.removesuffix('_kind').replace('_', '-')}: found for a model whose requests are not counted; allowed: none"
            )
    answer = without_cache(known)
    if options.format == "json":
        write_json(answer)
        return 0
    said = f"makes {known.model.makes} in stages, and the KV cache of the first is not calculated"
    said = said if staged else "keeps no KV cache: memory limits no number of requests"
    print(plain(f"{known.model.id} {said}"))
    if answer["weight_bytes"] is not None:
        write(
            f"  weights: {known.model.size} parameters as published, {known.model.format} = "
            f"{answer['weight_bytes']:,} B ({gib(answer['weight_bytes'])} GiB)"
        )
    if known.model.minimum_gb:
        write(f"  memory that its source asks for: {known.model.minimum_gb:g} GB")
    write(f"  not calculated: {', '.join(answer['not_calculated'])}")
    write(f"  source: {answer['source']}")
    return 0


def _asked(result: Estimate, options: argparse.Namespace) -> dict[str, Any]:
    """What the engine under ``--ask-engine`` says of the same start."""
    from kvreport.witness.asking import engine_says, files_of

    return engine_says(result, options.ask_engine, files_of(options.model))


def _said_by(said: Mapping[str, Any], result: Estimate) -> list[str]:
    """The engine's own figures in lines, with what parts from ours."""
    from kvreport.words import ENGINES

    name = f"{ENGINES[said['engine']]} {said['release'] or ''}".rstrip()
    if said["reason"]:
        return ["", f"{name} could not answer", f"  {said['reason']['kind']}: {said['reason']['text']}"]
    lines = ["", f"{name} itself says, of a KV pool of {gib(said['kv_pool_bytes'])} GiB per GPU"]
    if said["refusal"]:
        lines.append(f"  it refuses to start: {said['refusal']}")
    counts = [("KV tokens", "kv_pool_tokens"), ("blocks", "blocks"), ("most sequences", "max_seqs")]
    lines += [f"  {label}: {count(said[key])}" for label, key in counts if said[key] is not None]
    parted = [
        (one["quantity"], *(figure(one[side]) for side in ("ours", "engine"))) for one in said["differs"]
    ]
    if not parted:
        return [*lines, f"  as {result.request.engine.label} is computed here"]
    return [*lines, *table([("differs", "kvreport", name), *parted], "<>>")]


def _write(result: Estimate, options: argparse.Namespace, catalog: Catalog) -> int:
    """Print the deployment file of an answer that starts, with the number of requests that it was answered for."""
    from kvreport.deployments.written import as_file
    from kvreport.estimation import estimate

    if options.format != "text":
        raise InputError("as: found together with --format; allowed: one of them")
    values = query_values(options)
    told = with_requests(
        result, values, lambda number: estimate(options.model, catalog=catalog, **values, max_seqs=number)
    )
    if told.verdict not in ("fits", "tight"):
        for line in text(result)[:1]:
            write(line, stream=sys.stderr)
        return REQUIREMENT_NOT_MET
    launch = launch_of(told, catalog, replicas=1, disk_rate=options.disk_rate)
    print(as_file(options.as_kind, as_pasted(launch, options.model, options.passed_on)), end="")
    return required(told.max_concurrent_requests, options.require)


def required(found: int, wanted: int | None) -> int:
    """Return the exit status for ``--require``: 0 if it is met or not asked for, else 3 and a sentence.

    Raises:
        InputError: If what is required is no count.
    """
    if wanted is None:
        return 0
    if wanted < 1:
        raise InputError(f"require: found {wanted}; allowed: a whole number of at least 1")
    if found >= wanted:
        return 0
    write(
        f"kvreport: requirement not met: {count(found)} of {count(wanted)} requests run at once",
        stream=sys.stderr,
    )
    return REQUIREMENT_NOT_MET


def text(
    result: Estimate, remedies: Sequence[Lever] = (), name: str = "MODEL", why: WhyNot | None = None
) -> list[str]:
    """Lay an estimate out: the conclusion, contexts, where memory goes, what would help, the arithmetic."""
    from kvreport.estimation.conclusion import headline
    from kvreport.estimation.first_sight import sentence
    from kvreport.estimation.not_followed import outside_band

    request = result.request
    lines = [
        headline(result),
        f"{request.model.id}, {result.formats}",
        *result.caveats,
        "",
    ]
    rows = [("context", "requests", "KV per request", "ceiling", "")]
    rows += [
        (
            human_tokens(row.context_tokens),
            "no KV cache"
            if row.max_concurrent_requests_by_memory >= UNLIMITED_REQUESTS and row.max_concurrent_requests
            else _least_to_most(*result.range_at(row, "max_concurrent_requests")),
            human_bytes(row.kv_bytes_per_request_per_gpu),
            "no limit"
            if row.max_concurrent_requests_ceiling >= UNLIMITED_REQUESTS
            else _least_to_most(*result.range_at(row, "max_concurrent_requests_ceiling")),
            "" if row.verdict == "fits" else row.verdict.replace("_", " "),
        )
        for row in result.by_context
    ]
    lines += [*table(rows, ">>>><"), ""]
    taken = [(name, gib(size), count(size)) for name, size in result.memory_rows]
    lines += [*table([("per GPU", "GiB", "bytes"), *taken], "<>>"), ""]
    lines += _remedy_lines(result, remedies, name)
    lines += [] if why is None else _tried_lines(why)
    if machine := result.on_this_machine:
        lines += ["On this machine", *(f"  {line}" for line in machine), ""]
    lines += _command_lines(result)
    lines += ["How it is computed", *(f"  {line}" for line in result.explanation)]
    lines += _said("Assumed", request.assumptions)
    lines += _said("Not read", request.not_read)
    passed_over = request.not_followed
    lines += _said("Not followed", [*map(str, passed_over), *outside_band(passed_over)])
    lines += _said("How far off", list(filter(None, [sentence(request.engine.family)])))
    return lines


def _least_to_most(least: int, most: int) -> str:
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def _command_lines(result: Estimate) -> list[str]:
    """The command that starts what is described, with what it cannot say; nothing where nothing starts."""
    from kvreport.estimation.commands import (
        adapters_note,
        checkpoint_note,
        nodes_note,
        options_of,
        pool_note,
        served_by,
    )

    command = None if result.at_home else result.command
    if command is None:
        return []
    served = served_by(result)
    said = (checkpoint_note(served), adapters_note(result), nodes_note(served), pool_note(result))
    notes = [note for note in said if note]
    if options := options_of(result):
        notes.append(f"options.yaml: {options}")
    return ["Start it with", f"  {command}", *(f"  {note}" for note in notes), ""]


def _said(title: str, entries: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {entry}" for entry in entries)] if entries else []


def _remedy_lines(result: Estimate, remedies: Sequence[Lever], name: str) -> list[str]:
    from kvreport.estimation.remedies import HOPELESS

    if result.verdict not in HOPELESS or result.at_home:
        return []
    if not remedies:
        asked = f"{quote(name)} --context {result.request.context_tokens} --concurrent 1"
        return [f"Nothing tried makes it fit on this device; others: kvreport size {asked}", ""]
    single = not any(" --" in remedy.flags for remedy in remedies)
    title = "Any of these makes it fit" if single else "No single change makes it fit; these two together do"
    rows = [
        (one.flags, counted(one.requests, "request|requests") + (", tight" if one.verdict == "tight" else ""))
        for one in remedies
    ]
    return [title, *table(rows, "<<"), ""]


def _tried_lines(why: WhyNot) -> list[str]:
    """What else was tried, and what others' engines printed for the same pair."""
    further = [one for one in why.levers if one.lever in ("layout", "gpu", "engine") and one.enough]
    lines = []
    if further:
        rows = [(one.flags, f"{counted(one.requests, 'request|requests')} at once") for one in further]
        lines += ["Elsewhere it fits", *table(rows, "<<"), ""]
    short = [one for one in why.levers if not one.enough]
    if short:
        rows = [
            (
                one.flags,
                one.reason
                or (f"short by {gib(one.shortfall_bytes)} GiB" if one.shortfall_bytes else str(one.verdict)),
            )
            for one in short
        ]
        lines += ["Tried, and not enough", *table(rows, "<<"), ""]
    if why.logs:
        told = [
            (
                one.model,
                f"{one.engine}, {one.devices or 1} GPU{'s' * ((one.devices or 1) > 1)}",
                {True: "started", False: "refused", None: "not said"}[one.starts],
                f"pool {one.pool_gib:g} GiB" if one.pool_gib is not None else "",
                f"{one.kv_tokens:,} KV tokens" if one.kv_tokens is not None else "",
                one.url or one.id,
            )
            for one in why.logs
        ]
        lines += [
            "Published logs on this GPU: this model, or one with the same shapes",
            *table(told, "<<<<<<"),
            "",
        ]
    return lines
