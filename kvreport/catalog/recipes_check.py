"""What a check of vLLM's recipes found: the content of ``recipes_check.yaml``, which ``scripts/check_recipes.py`` writes."""

from __future__ import annotations

from kvreport.catalog.base import Count, LongText, Positive, Record, Text
from kvreport.catalog.shelf import CatalogFile


class EngineSays(Record):
    """What the engine's own planner says of a claim; without figures, why there are none."""

    weights_gb: float | None = None  # Weights that its layers load, in GB.
    # What one request of the longest length lacks on one GPU, in GiB: it refuses to start.
    short_gib_per_gpu: float | None = None
    blocks: Count | None = None  # Blocks of the pool, each of which can hold the state of one request.
    max_seqs: Positive | None = None  # Requests that it allows at once.
    could_not: Text | None = None
    not_asked: Text | None = None  # Why it was not asked.
    config_of: Text | None = None  # The model whose config stood in.


class Claimed(Record):
    """Where a claim is in the recipes, and what the engine says of it."""

    recipe: Text
    variant: Text
    engine: EngineSays = EngineSays()


class LowMinimum(Claimed):
    """A stated minimum of memory that is less than the loaded weights, in GB."""

    model: Text
    stated_gb: float
    weights_gb: float
    short_gb: float
    by_the_recipes_rule_gb: float


class Stopped(Claimed):
    """A command that does not start: ``verdict`` by memory, or ``reason`` where it is refused."""

    hardware: Text
    command: LongText
    reason: LongText | None = None
    verdict: Text | None = None
    gpus: Positive = 1
    weights_gib_per_gpu: float | None = None
    short_gib_per_gpu: float | None = None
    longest_context: Count | None = None


class WithoutNumbers(Record):
    """A model whose commands have no answer: why, and how many of the recipes' commands name it."""

    model: Text
    why: Text
    commands: Positive


class CheckedCheckout(Record):
    """The checkout that was checked."""

    repository: Text
    commit: Text | None


class RecipesCheck(CatalogFile):
    """The report."""

    FILE = "recipes_check.yaml"
    source: CheckedCheckout
    checked_with: Text
    counts: dict[Text, Count]
    low_minimums: tuple[LowMinimum, ...]
    commands_that_do_not_start: tuple[Stopped, ...]
    commands_without_numbers: tuple[WithoutNumbers, ...] = ()
