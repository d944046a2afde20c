"""Every record against what its repository weighs, where somebody listed that."""

from __future__ import annotations

import pytest

from kvreport.accounting.weights import released_bytes
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model

CATALOG = open_catalog()
LISTED = [model for model in CATALOG.models.values() if model.published_total is not None]
TOLERANCE = 0.0015
"""A listed total has two decimals of a GiB; what a checkpoint keeps in float32 is within this too."""


def test_enough_totals_are_known_for_the_check_to_mean_something() -> None:
    assert len(LISTED) >= 35
    formats = {model.weight_format for model in LISTED}
    assert {"bf16", "fp8-block", "fp8-tensor", "mxfp4", "int4-g32", "nvfp4"} <= formats


@pytest.mark.parametrize("model", LISTED, ids=lambda model: model.id)
def test_tensors_make_the_repositorys_total(model: Model) -> None:
    total = model.published_total
    assert total is not None
    counted = released_bytes(model, CATALOG.weight_formats) / 2**30
    expected = (total.gib - total.unused_gib) / total.copies
    # The total itself is rounded to a hundredth.
    assert counted == pytest.approx(expected, rel=TOLERANCE, abs=0.006)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        # KAITO's catalog at 056b8280b1a8 lists these repositories; their records go by another release's id.
        ("deepseek-ai/DeepSeek-R1-0528", 641.3),
        ("deepseek-ai/DeepSeek-V3-0324", 641.3),
        ("google/gemma-4-26B-A4B-it", 48.07),
        ("mistralai/Mistral-7B-v0.3", 13.5),
    ],
)
def test_a_release_of_the_same_shape_has_the_records_total(name: str, gib: float) -> None:
    model = CATALOG.model(name)
    assert model.id != name
    assert model.published_total is not None
    assert model.published_total.gib == gib


def test_a_total_is_sourced_and_what_lies_beside_the_weights_is_explained() -> None:
    for model in LISTED:
        assert any("published_total" in source.covers for source in model.sources), model.id
        total = model.published_total
        assert total is not None
        assert total.note or (total.copies == 1 and not total.unused_gib), model.id


def test_a_quantizer_that_nobody_read_is_not_claimed() -> None:
    unknown = {model.id for model in CATALOG.models.values() if not model.release_known}
    assert "ByteDance-Seed/Seed-OSS-36B-Instruct" in unknown
    assert not {model.id for model in LISTED} & unknown
    # A derived format other than 16 bits would be a guess at somebody's quantizer.
    by_id = CATALOG.models
    guessed = {name for name in unknown if by_id[name].weight_format != "bf16"}
    assert guessed <= {
        "deepseek-ai/DeepSeek-V3.1",
        "moonshotai/Kimi-K2-Thinking",
        "stepfun-ai/Step-3.7-Flash-FP8",
        "thinkingmachines/Inkling-2-Small-MXFP8",
    }
