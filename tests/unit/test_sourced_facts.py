"""Release date, license and context limit say where they come from, for nine models of ten."""

from __future__ import annotations

import pytest

from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.site.pages.data import sourced

FLOOR = 0.9


def is_sourced(model: Model, field: str) -> bool:
    sources = [source for source in model.sources if field in source.covers]
    return getattr(model, field) is not None and any(one.evidence != "unverified" for one in sources)


@pytest.mark.parametrize("field", ["release", "licence", "context_tokens"])
def test_nine_of_ten_models_have_the_field_with_its_source(field: str) -> None:
    models = list(open_catalog().models.values())
    unsourced = [model.id for model in models if not is_sourced(model, field)]
    assert len(unsourced) <= (1 - FLOOR) * len(models), unsourced


def test_the_data_page_states_the_shares() -> None:
    models = list(open_catalog().models.values())
    shares = []
    for field in ("release", "licence", "context_tokens"):
        found = sum(is_sourced(model, field) for model in models)
        shares.append(f"{100 * found / len(models):.0f}%")
        assert found >= FLOOR * len(models)
    release, licence, context = shares
    assert sourced(models) == (
        f"release date cited for {release}, license for {licence}, context limit for {context}"
    )
    assert sourced([]) == ""


def test_a_copy_has_the_release_and_the_license_of_its_original() -> None:
    models = {model.id: model for model in open_catalog().models.values()}
    copy = models["mlx-community/Qwen2.5-14B-Instruct-4bit"]
    original = models[copy.quantized_from or ""]
    assert copy.release == original.release
    assert copy.licence == original.licence
    assert is_sourced(copy, "release")
    titles = [source.title for source in copy.sources if "release" in source.covers]
    assert all(original.id in title for title in titles)
