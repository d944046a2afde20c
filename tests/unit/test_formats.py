"""The formats of the catalog: real bits with scales, unambiguous names, a grid that exists."""

import pytest

from kvreport.accounting.kv_cache import latent_bytes, vector_bytes
from kvreport.accounting.weights import weight_bytes
from kvreport.catalog.caches import Latent
from kvreport.catalog.formats import KvFormat, WeightFormat
from kvreport.catalog.load import Catalog
from kvreport.errors import InputError


@pytest.mark.parametrize(
    ("name", "both"),
    [
        # Key and value of one head of 128, as vLLM 0.33 (config/cache.py) and ggml-common.h have it.
        ("bf16", 4 * 128),
        ("fp8", 2 * 128),
        ("fp8_per_token_head", 2 * 128 + 8),
        ("int8_per_token_head", 2 * 128 + 8),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
        ("q8_0", 2 * 4 * 34),
        ("q4_0", 2 * 4 * 18),
    ],
)
def test_kv_formats_cost_their_bits_and_their_scales(catalog: Catalog, name: str, both: int) -> None:
    assert 2 * vector_bytes(128, catalog.kv_format(name)) == both


@pytest.mark.parametrize(
    ("name", "latent", "expected"),
    [
        ("bf16", 512, 1152),
        ("fp8", 512, 576),
        ("fp8_ds_mla", 512, 656),
        ("nvfp4_ds_mla", 512, 352),
        ("fp8_ds_mla_v4", 448, 584),
    ],
)
def test_latent_formats_cost_what_vllm_reserves(
    catalog: Catalog, name: str, latent: int, expected: int
) -> None:
    form = catalog.kv_format(name)
    assert "latent" in form.stores
    assert latent_bytes(Latent(latent_dim=latent, rope_dim=64), form) == expected


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("fp16", "bf16"),
        ("float16", "bf16"),
        ("FP8_E4M3", "fp8"),
        ("fp8_e5m2", "fp8"),
        ("fp8-ds-mla", "fp8_ds_mla"),
    ],
)
def test_kv_aliases_mean_one_format(catalog: Catalog, alias: str, name: str) -> None:
    assert catalog.kv_format(alias).name == name


@pytest.mark.parametrize(
    ("alias", "name"), [("AWQ", "int4"), ("gptq", "int4"), ("float16", "bf16"), ("Q4_K_M", "q4_k_m")]
)
def test_weight_aliases_mean_one_format(catalog: Catalog, alias: str, name: str) -> None:
    assert catalog.weight_format(alias).name == name


@pytest.mark.parametrize("ambiguous", ["8bit", "kv8"])
def test_a_name_that_could_mean_two_things_is_refused(catalog: Catalog, ambiguous: str) -> None:
    with pytest.raises(InputError, match=ambiguous):
        catalog.weight_format(ambiguous)


@pytest.mark.parametrize("kind", ["weights", "kv"])
def test_no_two_formats_share_a_name(catalog: Catalog, kind: str) -> None:
    forms: tuple[WeightFormat | KvFormat, ...] = getattr(catalog.formats, kind)
    names = [name.lower() for form in forms for name in (form.name, *form.aliases)]
    assert len(names) == len(set(names))
    assert "released" not in names
    assert "auto" not in names


def test_the_grid_names_formats_that_exist(catalog: Catalog) -> None:
    grid = catalog.grid
    assert set(grid.weight_formats) <= set(catalog.weight_formats)
    # "auto" means what the engine does with the checkpoint.
    assert set(grid.kv_formats) <= {"auto", *catalog.kv_formats}
    assert list(grid.contexts) == sorted(set(grid.contexts))
    assert grid.contexts[-1] == 1 << 20


def test_every_format_that_a_model_was_released_in_is_defined(catalog: Catalog) -> None:
    for model in catalog.models.values():
        used = {row.released for row in model.weights if row.released} | {model.weight_format}
        assert all(name in catalog.weight_formats for name in used), model.id
        assert model.kv_format is None or model.kv_format in catalog.kv_formats, model.id


def test_only_formats_for_other_engines_quantise_the_embedding(catalog: Catalog) -> None:
    whole = {form.name for form in catalog.formats.weights if "embedding" in form.quantises}
    assert {"q8_0", "q4_k_m"} <= whole
    assert not [name for name in whole if name.startswith(("bf16", "bnb", "fp8", "int", "mxfp", "nvfp"))]
    assert all("norms" not in form.quantises for form in catalog.formats.weights)
    # MLX converts every linear layer, the router too; float32 widens every matrix.
    served = [form for form in catalog.formats.weights if not form.name.startswith(("mlx", "fp32"))]
    assert all("router" not in form.quantises for form in served)


@pytest.mark.parametrize(
    ("model", "file"),
    [
        # LFM2.5-8B-A1B-Q4_K_M.gguf, 5,155,564,768 bytes with a tokenizer of 8 MB: its down projections are called w2.
        ("LiquidAI/LFM2.5-8B-A1B", 5_155_564_768),
    ],
)
def test_a_mix_widens_down_projections_by_whatever_name(catalog: Catalog, model: str, file: int) -> None:
    counted = weight_bytes(catalog.model(model), catalog.weight_format("q4_k_m"), catalog.weight_formats)
    assert counted == pytest.approx(file, rel=0.01)
