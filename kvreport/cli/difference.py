"""``kvreport diff``: what changed in capacity, and which term did it."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Container, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvreport.cli.output import REQUIREMENT_NOT_MET, figure, progress, table, write, write_json

if TYPE_CHECKING:
    from kvreport.catalog.engine import Engine
    from kvreport.catalog.load import Catalog
    from kvreport.catalog.model import Model
    from kvreport.estimation.difference import Difference, Side

MOST_ASKED: Final = 16
"""Starts that two engines are asked about: each model is built for each of them."""


def run(options: argparse.Namespace) -> int:
    """Carry out the command."""
    from kvreport.catalog.load import open_catalog
    from kvreport.catalog.model import Model
    from kvreport.cli.matrix import parse_contexts
    from kvreport.errors import InputError, shorten
    from kvreport.estimation.difference import compare_all

    catalog = open_catalog(options.data)
    if options.ask_engine:
        return _engines(options, catalog)
    snapshots = [_snapshot(name, catalog) for name in (options.old, options.new)]
    if all(path is not None for path in snapshots):
        return _releases(snapshots, options.format)
    pairs = _pairs(options, catalog)
    gpus = [name.strip() for name in options.gpu.split(",")]
    contexts = parse_contexts(options.context)
    found = compare_all(pairs, gpus, contexts, options.tensor_parallel, progress)
    progress("")
    if not found:
        raise InputError(
            f"diff: found nothing that both sides answer on {shorten(options.gpu)}; allowed: --model, --gpu, "
            "--tensor-parallel and --context of a question that fits the models"
        )
    smaller = [one for one in found if one.decreased]
    if options.format == "json":
        write_json(
            {"compared": len(found), "decreased": len(smaller), "differences": [d.to_dict() for d in found]}
        )
    else:
        for line in _unread(pairs, catalog):
            write(line)
        _print(found, smaller, options.top)
        models = [side.model for pair in pairs for side in pair if isinstance(side.model, Model)]
        for name in dict.fromkeys(model.id for model in models if model.by_name):
            write(f"{name} is counted with its widest layers: which are narrow, its name does not say.")
    return REQUIREMENT_NOT_MET if smaller and options.no_decrease else 0


def _unread(pairs: list[tuple[Side, Side]], catalog: Catalog) -> list[str]:
    """A line for each release that is later than any that was read."""
    from kvreport.catalog.engine import Engine
    from kvreport.catalog.release import unread_words
    from kvreport.estimation.named import engine_named

    names = [side.engine for pair in pairs for side in pair]
    policies = [one if isinstance(one, Engine) else engine_named(catalog, one) for one in names]
    said = [unread_words(one, catalog.release_read(one)).removesuffix(": ") for one in policies]
    return list(dict.fromkeys(filter(None, said)))


def _print(found: list[Difference], smaller: list[Difference], top: int) -> None:
    from kvreport.estimation.difference import WORDS
    from kvreport.units import count, human_tokens

    moved = [one for one in found if one.changed and not one.printed_only]
    printed = [one for one in found if one.printed_only]
    neither = [one for one in found if one.on_neither and not one.changed]
    write(
        f"{len(found):,} compared: {len(moved):,} changed, {len(smaller):,} of them hold fewer requests"
        + (f"; {len(printed):,} changed in the printed line only" if printed else "")
        + (f"; {len(neither):,} run on neither side" if neither else "")
    )
    noted = moved + printed + neither
    shown = noted[: max(top, 0)]
    rows: list[tuple[str, ...]] = [
        (
            "model",
            "gpu",
            "context (tokens)",
            "old (requests)",
            "new (requests)",
            "change",
            "printed",
            "because of",
        )
    ]
    for one in shown:
        ends = ["-" if value is None else f"{value:.2f}" for value in (one.old, one.new)]
        cause = WORDS[one.effects[0].term] if one.effects else one.note or "another limit"
        cause = "printed line only: pool and requests are the same" if one.printed_only else cause
        printed_change = (
            f"x{one.new_tokens / one.old_tokens:.2f}"
            if one.same_line and one.old_tokens and one.new_tokens
            else "-"
        )
        change = f"x{one.factor:.2f}" if one.old and one.new else f"{one.old_verdict} -> {one.new_verdict}"
        rows.append(
            (
                one.model,
                one.gpu,
                human_tokens(one.context_tokens),
                *ends,
                change,
                printed_change,
                textwrap.shorten(cause, 80, placeholder=" …"),
            )
        )
    if len(rows) > 1:
        for line in table(rows, "<<>>>>><"):
            write(line)
    if len(moved) == 1:
        for effect in moved[0].effects:
            write(f"    {effect}")
    if len(printed) == 1:
        write(
            f"    tokens in the log line: {_tokens(printed[0].old_tokens)} to {_tokens(printed[0].new_tokens)}"
        )
    if len(neither) == 1:
        write(f"    {neither[0].note}")
    if (total := len(noted)) > top:
        write(f"  and {count(total - top)} more; --top {total} prints all")


def _tokens(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _engines(options: argparse.Namespace, catalog: Catalog) -> int:
    """Compare the engines under two interpreters over the same starts."""
    from kvreport.cli.matrix import parse_contexts
    from kvreport.errors import InputError, shorten
    from kvreport.estimation import estimate
    from kvreport.witness.asking import compare_engines, files_of

    contexts, gpus = parse_contexts(options.context), [name.strip() for name in options.gpu.split(",")]
    if (starts := len(contexts) * len(gpus)) > MOST_ASKED:
        raise InputError(f"ask-engine: found {starts} starts; allowed: {MOST_ASKED} at once")
    if (files := files_of(options.model)) is None:
        raise InputError(
            f"ask-engine: found no config.json of --model {shorten(options.model)}; allowed: the path of one"
        )
    found = []
    for gpu in gpus:
        values = {"gpu": gpu, "tensor_parallel": options.tensor_parallel, "engine": options.engine}
        ours = [
            estimate(options.model, context_tokens=context, catalog=catalog, **values) for context in contexts
        ]
        for result, one in zip(ours, compare_engines((options.old, options.new), ours, files), strict=True):
            request = result.request
            found.append({"model": request.model.id, "gpu": request.accelerator.id, "tensor_parallel": request.tensor_parallel,
                          "context_tokens": request.context_tokens, **one})  # fmt: skip
    smaller = [one for one in found if _holds(one["new"]) < _holds(one["old"])]
    if options.format == "json":
        write_json({"compared": len(found), "decreased": len(smaller), "differences": [], "engines": found})
    else:
        for one in found:
            for line in _engines_say(one):
                write(line)
    return REQUIREMENT_NOT_MET if smaller and options.no_decrease else 0


def _holds(said: Mapping[str, Any]) -> float:
    return float(said.get("max_concurrency") or said.get("max_seqs") or 0) if not said.get("refusal") else 0


def _engines_say(one: Mapping[str, Any]) -> list[str]:
    from kvreport.units import gib, human_tokens

    sides = [one["old"], one["new"]]
    names = [
        f"{name} ({side['release'] or 'no release'})"
        for name, side in zip(("old", "new"), sides, strict=True)
    ]
    where = f"{one['model']} on {one['tensor_parallel']} x {one['gpu']}, {human_tokens(one['context_tokens'])} tokens"
    lines = [
        f"  {name} could not answer: {side['reason']['kind']}: {side['reason']['text']}"
        for name, side in zip(names, sides, strict=True)
        if side["reason"]
    ]
    if lines:
        return [where, *lines]
    lines = [f"{where}, a KV pool of {gib(sides[0]['kv_pool_bytes'])} GiB per GPU"]
    refused = [(name, side["refusal"]) for name, side in zip(names, sides, strict=True) if side["refusal"]]
    lines += [f"  {name} refuses to start: {text}" for name, text in refused]
    if not one["differs"]:
        return [*lines, f"  {names[0]} and {names[1]} say the same"]
    shown = [(row["quantity"], *(figure(row[end]) for end in ("old", "new"))) for row in one["differs"]]
    return [*lines, *table([("differs", *names), *shown], "<>>")]


def _pairs(options: argparse.Namespace, catalog: Catalog) -> list[tuple[Side, Side]]:
    from kvreport.catalog.load import load_catalog, named_release
    from kvreport.errors import InputError
    from kvreport.estimation.difference import Side
    from kvreport.estimation.named import engine_named, resolve_model

    old, new = options.old, options.new
    if _is_data(old) and _is_data(new):
        sides = [load_catalog(name) for name in (old, new)]
        chosen = [model.id for model in _matching(sides[1], options.model, sides[0].models)]
        return [(Side(sides[0], m, options.engine), Side(sides[1], m, options.engine)) for m in chosen]
    engines: list[Engine] = []
    for name in (old, new):
        try:
            engines.append(engine_named(catalog, name))
        except InputError:
            if "@" in name or (engines and named_release(name)):  # a release, and no model
                raise
            break
    if len(engines) == 2:
        first, second = engines
        return [
            (Side(catalog, model, first), Side(catalog, model, second))
            for model in _matching(catalog, options.model)
        ]
    return [
        (
            Side(catalog, resolve_model(old, catalog), options.engine),
            Side(catalog, resolve_model(new, catalog), options.engine),
        )
    ]


def _matching(catalog: Catalog, pattern: str, older: Container[str] | None = None) -> list[Model]:
    """Return the models that a pattern means, or the one that is called so, of those that an older catalog has, too."""
    if not any(sign in pattern for sign in "*?[,"):
        found = [catalog.model(pattern)]
        return found if older is None else [model for model in found if model.id in older]
    from kvreport.errors import InputError, shorten

    wanted = [part.strip().lower() for part in pattern.split(",")]
    found = [
        model
        for name, model in catalog.models.items()
        if any(fnmatchcase(name.lower(), part) for part in wanted) and (older is None or name in older)
    ]
    if not found:
        raise InputError(
            f"model: found none that matches {shorten(pattern)}; allowed: a pattern such as 'qwen/*'"
        )
    return found


def _is_data(name: str) -> bool:
    return "\0" not in name and Path(name, "formats.yaml").is_file()


def _snapshot(name: str, catalog: Catalog) -> Path | None:
    """Return the file of a release's figures, if that is what a name means."""
    import re

    if re.fullmatch(r"20[0-9]{2}\.[0-9]{2}\.[0-9]{2}", name, re.ASCII):
        path = catalog.folder / "releases" / f"{name}.json"
        return path if path.is_file() else None
    path = Path(name) if "\0" not in name else Path()
    if path.suffix == ".json" and path.is_file() and re.fullmatch(r"20[0-9.]{8}", path.stem, re.ASCII):
        return path
    return None


def _releases(paths: list[Path | None], form: str) -> int:
    from kvreport.publish.changes import compare, read_snapshot

    old, new = (read_snapshot(path) for path in paths if path is not None)
    lines = list(compare(old, new)) or ["No figure changed."]
    if form == "json":
        write_json({"old": old["version"], "new": new["version"], "changes": lines})
    else:
        write(f"data release {old['version']} -> {new['version']}")
        for line in lines:
            write(f"  {line}")
    return 0
