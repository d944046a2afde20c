"""Comparisons without start-up logs: transformers' tensors, local engines' own code, traffic results, recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from kvreport.catalog.class_check import ClassCheck
from kvreport.catalog.recipes_check import RecipesCheck
from kvreport.resources import data_dir
from kvreport.site.kit.page import Page, Section
from kvreport.site.kit.templating import render
from kvreport.site.pages import class_table, local_evidence, recipes, traffic_checks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvreport.catalog.load import Catalog
    from kvreport.site.kit.tables import Table

URI: Final = "evidence/comparisons/"
PARENT: Final = "evidence/"
TITLE: Final = "Comparisons with other code and published results"


def page(catalog: Catalog) -> Page | None:
    """Return the page, or None if the catalog has nothing to compare."""
    sections = []
    classes = ClassCheck.read(catalog.folder)
    if classes is not None:
        sections.append(
            _section("classes", "Architectures compared with transformers", class_table.tables(classes))
        )
    if catalog.folder.resolve() == data_dir().resolve():
        sections += [
            _section("local", "Local engines: llama.cpp and mlx-lm", local_evidence.tables(catalog)),
            _section("traffic", "Comparison with published traffic results", traffic_checks.tables()),
        ]
    recipes_check = RecipesCheck.read(catalog.folder)
    if recipes_check is not None:
        sections.append(
            _section("recipes", "vLLM's recipes: minimums and commands", recipes.tables(recipes_check))
        )
    if not sections:
        return None
    return Page(
        uri=URI,
        kind="tool",
        title=TITLE,
        heading=TITLE,
        description="Parameters, caches and buffers compared with the code of transformers, llama.cpp and mlx-lm; vLLM's recipes checked.",
        lead=render("validation/comparisons_lead.html", URI, {"summary": PARENT}),
        sections=tuple(sections),
        names=("comparisons", "torch check", "llama.cpp check", "mlx check", "vLLM recipes"),
    )


def _section(anchor: str, title: str, tables: Iterable[Table]) -> Section:
    shown = Markup("\n").join(render("_table.html", URI, {"table": table, "late": True}) for table in tables)
    return Section(anchor, title, shown)


def pointers(made: Page) -> list[tuple[str, str, Markup]]:
    """Return what the evidence page keeps of these sections: their anchors, and where they are now."""
    names = [(one.id, one.title) for one in made.sections]
    return [
        (
            anchor,
            title,
            render("validation/elsewhere.html", PARENT, {"uri": URI, "anchor": anchor, "title": TITLE}),
        )
        for anchor, title in names
    ]
