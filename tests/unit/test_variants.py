"""Quantized copies written as what differs: against records that were read from the copies' own configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvreport.accounting.weights import released_bytes
from kvreport.catalog.base import Source
from kvreport.catalog.load import open_catalog
from kvreport.catalog.variant import Variant, expand
from kvreport.dataset.grid import axes
from kvreport.dataset.matrix import cube_of, matrix
from kvreport.errors import CatalogError

CATALOG = open_catalog()
FORMATS = CATALOG.weight_formats
SOURCE = Source(covers=("weight_format",), title="test", evidence="derived")


def copy(base: str, form: str, **more: object) -> Variant:
    fields = {"id": "a/b", "name": "b", "quantized_from": base, "weight_format": form, "sources": (SOURCE,)}
    return Variant.model_validate({**fields, **more})


@pytest.mark.parametrize(
    ("base", "own"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"),
        ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"),
        ("Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8"),
    ],
)
def test_a_derived_copy_is_what_its_own_config_makes(base: str, own: str) -> None:
    read = CATALOG.models[own]
    assert read.quantized_from is None
    made = expand(copy(base, "fp8-block"), CATALOG.models[base], FORMATS)
    assert {(row.name, row.released, row.count) for row in made.weights} == {
        (row.name, row.released, row.count) for row in read.weights
    }
    assert released_bytes(made, FORMATS) == released_bytes(read, FORMATS)


def test_a_copy_keeps_dimensions_and_licence_and_says_what_it_is_of() -> None:
    model = CATALOG.models["Qwen/Qwen3-32B-AWQ"]
    base = CATALOG.models["Qwen/Qwen3-32B"]
    assert (model.quantized_from, model.licence, model.layers) == (base.id, base.licence, base.layers)
    assert model.release_known
    # As its safetensors files hold: the sum of a published table of its tensors.
    assert released_bytes(model, FORMATS) == 19_325_298_688
    covered = {field for source in model.sources for field in source.covers}
    assert {"layers", "weights", "context_tokens", "weight_format"} <= covered


def test_components_and_modules_may_differ_from_the_rest() -> None:
    base = CATALOG.models["Qwen/Qwen3-30B-A3B"]
    made = expand(
        copy(
            base.id,
            "nvfp4",
            formats={"attention": "fp8-tensor", "routed_experts": "nvfp4"},
            keeps=("q_proj",),
        ),
        base,
        FORMATS,
    )
    forms = {
        row.name.split(".")[-2]: row.released for row in made.weights if row.name.endswith("_proj.weight")
    }
    assert (forms["k_proj"], forms["q_proj"], forms["up_proj"]) == ("fp8-tensor", None, "nvfp4")


def test_a_copy_has_rows_as_released_alone() -> None:
    one = axes(CATALOG, models="Qwen/Qwen3-32B-AWQ", gpus="h100-sxm-80gb")
    cube = cube_of(one.models[0], one)
    kept = {name for place, name in enumerate(cube.weight_formats) if cube.possible[:, :, place].any()}
    assert kept == {"released"}


def test_a_model_whose_quantizer_nobody_read_has_no_row_as_released() -> None:
    one = axes(CATALOG, models="ByteDance-Seed/Seed-OSS-36B-Instruct", gpus="h100-sxm-80gb")
    cube = cube_of(one.models[0], one)
    kept = {name for place, name in enumerate(cube.weight_formats) if cube.possible[:, :, place].any()}
    assert kept == {"bf16", "fp8", "int4"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("quantized_from: no/where\n", "the id of a model that has a file"),
        ("quantized_from: a/copy\n", "the model that was quantized"),
        ("", "quantized_from"),
    ],
)
def test_a_copy_of_nothing_is_refused(tmp_path: Path, text: str, named: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    rest = "name: b\nweight_format: int4\nsources: [{covers: [weight_format], title: t, evidence: derived}]\n"
    (folder / "a--copy.yaml").write_text(f"id: a/copy\nquantized_from: a/other\n{rest}")
    (folder / "a--b.yaml").write_text(f"id: a/b\n{text or 'quantized_from: 3'}\n{rest}")
    with pytest.raises(CatalogError, match=named):
        open_catalog(tmp_path).model("a/b")


def test_a_matrix_of_formats_that_a_model_has_no_rows_in_is_empty() -> None:
    asked = axes(CATALOG, models="Qwen/Qwen3-32B-AWQ", gpus="h100-sxm-80gb", weights=["bf16"])
    assert list(matrix(asked)) == []
