"""The section about vLLM's recipes: stated minimums below the weights, commands that do not start, the engine's own word."""

from __future__ import annotations

from collections.abc import Iterator

from kvreport.catalog.recipes_check import Claimed, EngineSays, RecipesCheck, Stopped
from kvreport.catalog.server_flags import flag_names
from kvreport.site.kit.tables import Cell, Column, Row, Table
from kvreport.units import count
from kvreport.words import NO_REQUEST


def tables(found: RecipesCheck) -> Iterator[Table]:
    """Both lists, each claim with what vLLM's own planner says."""
    source, counts = found.source, found.counts
    minimums, commands = counts.get("stated minimums", 0), counts.get("commands", 0)
    unknown = counts.get("commands of models that are not in the catalog", 0)
    checkout = f"{source.repository}/blob/{source.commit or 'main'}"
    at = f"{source.repository.removeprefix('https://github.com/')} at {(source.commit or '')[:8]}"
    yield Table(
        f"{len(found.low_minimums)} of {minimums} stated minimums of memory are less than the weights that the checkpoint loads "
        f"({at}; {found.checked_with})",
        Column("Recipe and variant", numeric=False),
        (
            Column("Stated minimum", "GB"),
            Column("Weights", "GB"),
            Column("By the recipes' own rule (weights x 1.2)", "GB"),
            Column("vLLM's planner", numeric=False),
        ),
        tuple(
            Row(
                _place(one, checkout),
                (
                    *(
                        Cell(f"{value:,.1f}", "kv-num", value)
                        for value in (one.stated_gb, one.weights_gb, one.by_the_recipes_rule_gb)
                    ),
                    Cell(said(one.engine)),
                ),
            )
            for one in found.low_minimums
        ),
        css="kv-words",
        noun="variants",
    )
    yield Table(
        f"{len(found.commands_that_do_not_start)} of {commands} commands do not start; {unknown} more have no numbers. "
        f"The length is the {flag_names('vllm')['context']} with which a command would start",
        Column("Recipe, variant and hardware", numeric=False),
        (
            Column("Command", numeric=False),
            Column("Why", numeric=False),
            Column("Short", "GiB per GPU"),
            Column("Length", "tokens"),
            Column("vLLM's planner", numeric=False),
        ),
        tuple(
            Row(
                _place(one, checkout, one.hardware),
                (Cell(one.command), *_why(one), Cell(said(one.engine))),
            )
            for one in found.commands_that_do_not_start
        ),
        css="kv-words",
        noun="commands",
    )

    if found.commands_without_numbers:
        yield Table(
            f"{unknown} of {commands} commands name a model without numbers; the list of models known only by name shows what was "
            "tried for each",
            Column("Model", numeric=False),
            (Column("Commands"), Column("Why", numeric=False)),
            tuple(
                Row(Cell(one.model), (Cell(count(one.commands), "kv-num", value=one.commands), Cell(one.why)))
                for one in found.commands_without_numbers
            ),
            css="kv-words",
            noun="models",
        )


def _why(one: Stopped) -> tuple[Cell, Cell, Cell]:
    """Why a command does not start, by how much, and the length that would: only a shorter request helps a pool."""
    word = NO_REQUEST.get(one.verdict or "", (one.reason or one.verdict or "",))[0]
    length = "-"
    if one.verdict == "cache_exceeds_pool":
        length = count(one.longest_context) if one.longest_context else "none"
    short = f"{one.short_gib_per_gpu:,.1f}" if one.short_gib_per_gpu else "-"
    return Cell(word.replace(" ", "\N{NO-BREAK SPACE}")), Cell(short, "kv-num"), Cell(length, "kv-num")


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
