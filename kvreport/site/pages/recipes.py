"""The section about vLLM's recipes: stated minimums below the weights, commands that do not start, the engine's own word."""

from __future__ import annotations

from collections.abc import Iterator

from kvreport.catalog.recipes_check import Claimed, EngineSays, RecipesCheck, Stopped
from kvreport.catalog.server_flags import flag_names
from kvreport.site.kit.tables import Cell, Table, listing, numbers, texts
from kvreport.units import count
from kvreport.words import NO_REQUEST


def tables(found: RecipesCheck) -> Iterator[Table]:
    """Both lists, each claim with what vLLM's own planner says."""
    source, counts = found.source, found.counts
    minimums, commands = counts.get("stated minimums", 0), counts.get("commands", 0)
    unknown = counts.get("commands of models that are not in the catalog", 0)
    checkout = f"{source.repository}/blob/{source.commit or 'main'}"
    at = f"{source.repository.removeprefix('https://github.com/')} at {(source.commit or '')[:8]}"
    yield listing(
        f"{len(found.low_minimums)} of {minimums} stated memory minimums are less than the weights that the engine loads "
        f"({at}; {found.checked_with})",
        found.low_minimums,
        texts("Recipe and variant", lambda one: _place(one, checkout)),
        numbers("Stated minimum", lambda one: _gigabytes(one.stated_gb), "GB"),
        numbers("Weights", lambda one: _gigabytes(one.weights_gb), "GB"),
        numbers(
            "By the recipes' own rule (weights x 1.2)",
            lambda one: _gigabytes(one.by_the_recipes_rule_gb),
            "GB",
        ),
        texts("vLLM's own code", lambda one: said(one.engine)),
        css="kv-words",
        noun="variants",
    )
    yield listing(
        f"{len(found.commands_that_do_not_start)} of {commands} commands do not start; kvreport has no estimate for {unknown} more. "
        f"The length is the {flag_names('vllm')['context']} with which a command would start",
        found.commands_that_do_not_start,
        texts("Recipe, variant and hardware", lambda one: _place(one, checkout, one.hardware)),
        texts("Command", lambda one: one.command),
        texts("Reason", _why),
        numbers(
            "Memory short",
            lambda one: f"{one.short_gib_per_gpu:,.1f}" if one.short_gib_per_gpu else "-",
            "GiB per GPU",
        ),
        numbers("Longest context that starts", _length, "tokens"),
        texts("vLLM's own code", lambda one: said(one.engine)),
        css="kv-words",
        noun="commands",
    )
    if found.commands_without_numbers:
        yield listing(
            f"{unknown} of {commands} commands name a model that kvreport cannot estimate; the list of models known only by name shows which "
            "sources were searched for each",
            found.commands_without_numbers,
            texts("Model", lambda one: one.model),
            numbers("Commands", lambda one: one.commands),
            texts("Reason", lambda one: one.why),
            css="kv-words",
            noun="models",
        )


def _gigabytes(value: float) -> Cell:
    return Cell(f"{value:,.1f}", value=value)


def _why(one: Stopped) -> str:
    word = NO_REQUEST.get(one.verdict or "", (one.reason or one.verdict or "",))[0]
    return word.replace(" ", "\N{NO-BREAK SPACE}")


def _length(one: Stopped) -> str:
    """The length with which a command would start: only a shorter request helps a pool."""
    if one.verdict != "cache_exceeds_pool":
        return "-"
    return count(one.longest_context) if one.longest_context else "none"


def said(engine: EngineSays) -> str:
    """What the engine's planner says, in words."""
    told = "not asked"
    if engine.weights_gb is not None:
        told = f"loads {engine.weights_gb:.1f} GB"
    elif engine.short_gib_per_gpu is not None:
        told = f"refuses: {engine.short_gib_per_gpu:.1f} GiB per GPU short"
    elif engine.blocks is not None and engine.max_seqs is not None:
        less = "fewer than" if engine.blocks < engine.max_seqs else "for"
        told = f"{count(engine.blocks)} blocks for states, {less} {count(engine.max_seqs)} requests"
    elif engine.could_not or engine.not_asked:
        told = (
            f"stopped before it planned: {engine.could_not}"
            if engine.could_not
            else f"not asked: {engine.not_asked}"
        )
    return f"{told} (config of {engine.config_of})" if engine.config_of else told


def _place(one: Claimed, checkout: str, *more: str) -> Cell:
    return Cell(", ".join((one.recipe, one.variant, *more)), href=f"{checkout}/models/{one.recipe}.yaml")
