"""A model record states its layers twice, as caches and as tensors: what disagrees is refused."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kvreport.catalog.accelerator import Accelerator
from kvreport.catalog.base import Record
from kvreport.catalog.consistency import contradictions
from kvreport.catalog.engine import Engine
from kvreport.catalog.formats import Formats, Grid
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.catalog.shelf import validate
from kvreport.catalog.strict_files import read_yaml
from kvreport.errors import CatalogError
from kvreport.resources import data_dir
from tests.record_files import stated_record

DATA: Final = data_dir()
LLAMA: Final = DATA / "models/meta-llama--Llama-3.1-8B-Instruct.yaml"
FULL: Final = "kind: full, kv_heads: 8, key_dim: 128, value_dim: 128"


def faults(path: Path, text: str, folder: Path, record: type[Record] = Model) -> str:
    """Return what is said of an edited file; an empty text if it is accepted."""
    place = folder / path.name
    place.write_text(text, encoding="utf-8")
    try:
        validate(record, read_yaml(place, place.name), place.name)
    except CatalogError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"0-31"', '"31-0"', "runs must ascend"),
        ('"0-31"', '"2024-04"', "runs must ascend"),
        ('"0-31"', '"0-15,31-16"', "runs must ascend"),
        ('"0-31"', '"0-15,8-31"', "runs must ascend"),
        ('"0-31"', '"0-15"', "layers: found 16 layers, but 32 x"),
        ('"0-31"', '"0-63"', "layers: found 64 layers"),
        ('"0-31"', '"1-32"', "must cover 0 to the last layer"),
        (FULL, FULL.replace("8", "1", 1), "kv_heads"),
        (FULL, FULL.replace("key_dim: 128", "key_dim: 64"), "the rows of their key"),
        (
            FULL,
            "kind: full, kv_heads: 1073741824, key_dim: 65536, value_dim: 65536",
            "cached elements per token",
        ),
        (
            FULL,
            "kind: full, kv_heads: 2097152, key_dim: 1048576, value_dim: 1048576",
            "cached elements per token",
        ),
        (FULL, FULL.replace("kv_heads: 8", "kv_heads: 010"), "the number '010', which YAML versions read"),
        (FULL, FULL.replace("key_dim: 128", "key_dim: 0200"), "the number '0200', which YAML versions read"),
        (FULL, FULL.replace("key_dim: 128", "key_dim: 0x80"), "the number '0x80', which YAML versions read"),
        (FULL, FULL.replace("key_dim: 128", "key_dim: 1_28"), "the number '1_28', which YAML versions read"),
        (FULL, FULL.replace("key_dim: 128", "key_dim: 2:08"), "the number '2:08', which YAML versions read"),
        ("attention_heads: 32", "attention_heads: 0", "attention_heads: found 0"),
        ("attention_heads: 32", "attention_heads: 16", "attention_heads: found 16"),
        ("hidden_size: 4096", "hidden_size: 2048", "hidden_size"),
        ("vocabulary: 128256", "vocabulary: 256256", "vocabulary"),
        (
            "k_proj.weight, component: attention, shape: [1024, 4096], count: 32",
            "k_proj.weight, component: attention, shape: [1024, 4096], count: 1",
            "the rows of their key and value projections",
        ),
        (
            "caches:\n      - {kind: full, kv_heads: 8, key_dim: 128, value_dim: 128}",
            "caches: []",
            "caches anything",
        ),
        (FULL, "kind: shared, reads: full", "caches anything"),
    ],
)
def test_an_edit_that_contradicts_the_rest_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = LLAMA.read_text(encoding="utf-8")
    assert old in text
    assert faults(LLAMA, text, tmp_path) == ""
    found = faults(LLAMA, text.replace(old, new), tmp_path)
    assert said in found
    assert all(line.startswith(LLAMA.name) and "; allowed: " in line for line in found.splitlines())


@pytest.mark.parametrize(
    ("model", "old", "new", "said"),
    [
        ("deepseek-ai--DeepSeek-V3.2", 'layers: "0-60"', 'layers: "0-30"', "layers: found 31 layers, but"),
        ("deepseek-ai--DeepSeek-V3.2", "latent_dim: 512", "latent_dim: 256", "latents of 320 elements"),
        ("tiiuae--falcon-mamba-7b", "columns: 3", "columns: 7", "convolution channels"),
        ("deepseek-ai--DeepSeek-V3.2", "per_token: 8", "per_token: 800", "experts.per_token"),
        ("google--gemma-3n-E4B-it", "reads: full", "reads: chunked", "layers.caches.reads"),
    ],
)
def test_other_caches_are_held_against_their_tensors(
    tmp_path: Path, model: str, old: str, new: str, said: str
) -> None:
    path = DATA / f"models/{model}.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    assert said in faults(path, text.replace(old, new), tmp_path)


def test_every_public_model_agrees_with_itself() -> None:
    for model in open_catalog().models.values():
        assert not list(contradictions(model)), model.id


def test_indices_are_bounded_before_they_are_listed(tmp_path: Path) -> None:
    text = LLAMA.read_text(encoding="utf-8")
    for runs in ("0-99999," * 500 + "0-99999", "0-99999", "5000", ",".join(map(str, range(5000)))):
        start = time.process_time()
        assert "layers" in faults(LLAMA, text.replace('"0-31"', f'"{runs}"'), tmp_path)
        assert time.process_time() - start < 1


def stated(name: str) -> Any:
    return stated_record(name)


@pytest.mark.parametrize(
    ("record", "name", "place", "value", "said"),
    [
        (Accelerator, "accelerators/h100-sxm-80gb.yaml", ("compute_capability",), "L40", "a CUDA capability"),
        (Accelerator, "accelerators/h100-sxm-80gb.yaml", ("memory", "usable", "value"), 10**30, "1000000"),
        (
            Accelerator,
            "accelerators/h100-sxm-80gb.yaml",
            ("memory", "advertised", "value"),
            1 << 51,
            "memory",
        ),
        (
            Engine,
            "engines/vllm.yaml",
            ("coefficients", "non_framework_bytes"),
            float(1 << 62),
            "coefficients",
        ),
        (Engine, "engines/vllm.yaml", ("coefficients", "non_framework_bytes"), -1.0, "coefficients"),
        (Engine, "engines/vllm.yaml", ("device_classes", 0, "max_seqs"), 1 << 40, "max_seqs"),
        (Engine, "engines/vllm.yaml", ("block_tokens",), 1 << 40, "block_tokens"),
        (Formats, "formats.yaml", ("weights", 1, "block"), [-1, 0], "block"),
        (Grid, "grid.yaml", ("contexts",), [1 << 40], "contexts"),
        (Model, "models/deepseek-ai--DeepSeek-V4-Pro.yaml", ("context_tokens",), 1 << 31, "context_tokens"),
    ],
)
def test_a_number_that_no_machine_has_is_refused(
    record: type[Record], name: str, place: tuple[Any, ...], value: object, said: str
) -> None:
    data = copy.deepcopy(stated(name))
    validate(record, data, name)
    *steps, last = place
    parent = data
    for step in steps:
        parent = parent[step]
    parent[last] = value
    with pytest.raises(CatalogError) as caught:
        validate(record, data, name)
    assert said in str(caught.value)


def test_a_latent_is_stored_at_most_once_per_page() -> None:
    name = "models/deepseek-ai--DeepSeek-V4-Pro.yaml"
    data = copy.deepcopy(stated(name))
    for group in data["layers"]:
        for cache in group["caches"]:
            if cache.get("stride", 1) > 1:
                cache["stride"] = 28672
    with pytest.raises(CatalogError, match="stride"):
        validate(Model, data, name)


def test_a_fraction_has_one_reading(tmp_path: Path) -> None:
    path = DATA / "engines/vllm.yaml"
    text = yaml.safe_dump(stated("engines/vllm.yaml"))
    assert "utilization: 0.92" in text
    for word in ("1:30.5", "0_0.9"):
        changed = "\n".join(
            f"utilization: {word}" if line.startswith("utilization:") else line for line in text.splitlines()
        )
        assert "which YAML versions read differently" in faults(path, changed, tmp_path, Engine)


def test_a_pooling_model_keeps_nothing_and_says_so() -> None:
    models = open_catalog().models
    assert {group.name for group in models["BAAI/bge-large-en"].layers} == {"no cache"}
    # Its tokens see those after them (`is_causal`); one made of a decoder keeps what its decoder keeps.
    assert {group.name for group in models["Alibaba-NLP/gte-Qwen2-7B-instruct"].layers} == {"no cache"}
    assert {group.name for group in models["intfloat/e5-mistral-7b-instruct"].layers} == {"sliding window"}


def test_a_value_that_experts_make_is_counted_once_and_whole() -> None:
    record = open_catalog(data_dir()).models["IFM/K2-Horizon-MoVA-36B-A4B"]
    assert not list(contradictions(record))
    weights = [
        one.model_copy(update={"count": one.count - 1}) if ".v_experts." in one.name else one
        for one in record.weights
    ]
    (found,) = contradictions(record.model_copy(update={"weights": weights}))
    assert "the rows of their key and value projections" in found.allowed


def test_layers_that_run_several_times_have_the_projections_of_one_pass() -> None:
    # Inkling 2 Mini visits 24 layers 48 times. What makes a convolution's kernel has the keys' heads, not their width.
    record = open_catalog(data_dir()).models["thinkingmachines/Inkling-2-Mini"]
    assert record.layer_count == 48
    kernels = [one for one in record.weights if one.name.endswith("k_sconv.weight_proj.weight")]
    assert [one.shape[0] for one in kernels] == [8 * 4]
    assert not list(contradictions(record))
    weights = [
        one.model_copy(update={"shape": (512, 2304)}) if one.name.endswith(".k_proj.weight") else one
        for one in record.weights
    ]
    wrong = list(contradictions(record.model_copy(update={"weights": weights})))
    assert any("KV heads x width of the caches" in found.allowed for found in wrong)
