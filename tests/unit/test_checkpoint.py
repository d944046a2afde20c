"""Files as witnesses: safetensors headers and indexes against what a config makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Tensors, header, llama, total, write
from huggingface_configs import plain

from kvreport.accounting.weights import released_bytes, whole_row_bytes
from kvreport.architectures.safetensors import read_header, read_witness
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.estimation.named import open_model
from kvreport.estimation.opening import open_folder

CATALOG = open_catalog()
FORMATS = CATALOG.weight_formats
SIZES = (4, 512, 8, 2, 1536, 4096)
CONFIG = plain(
    "LlamaForCausalLM",
    512,
    4,
    8,
    2,
    1536,
    4096,
    2048,
    tie_word_embeddings=False,
    torch_dtype="bfloat16",
    head_dim=64,
    attention_bias=False,
    mlp_bias=False,
)


def opened(folder: Path) -> Any:
    return open_folder(folder, CATALOG, id="a/b")


def weights(folder: Path) -> int:
    return sum(whole_row_bytes(opened(folder).model, FORMATS))


@pytest.mark.parametrize("shards", [1, 3])
def test_headers_that_agree_leave_everything_as_counted(tmp_path: Path, shards: int) -> None:
    tensors = llama(*SIZES)
    folder = write(tmp_path / "m", CONFIG, tensors, shards)
    witness = read_witness(folder)
    assert witness is not None
    assert witness.total == total(tensors)
    found = opened(folder)
    assert found.assumptions == ()
    assert released_bytes(found.model, FORMATS) == total(tensors)
    assert all(row.stored_bytes is None for row in found.model.weights)


def test_an_index_alone_is_a_witness_too(tmp_path: Path) -> None:
    tensors = llama(*SIZES)
    folder = write(tmp_path / "m", CONFIG, tensors, 2)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert opened(folder).assumptions == ()
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["metadata"]["total_size"] = total(tensors) * 3 // 10
    index.write_text(json.dumps(listed))
    found = opened(folder)
    assert "the weights come from the files" in found.assumptions[0]
    assert "+233.3%" in found.assumptions[0]
    assert weights(folder) == pytest.approx(total(tensors) * 3 // 10, abs=len(found.model.weights))
    # Parameters stay what they are: only their bytes are others.
    assert sum(row.parameters for row in found.model.weights) * 2 == total(tensors)


def quantised(tensors: Tensors) -> dict[str, tuple[str, tuple[int, ...]]]:
    """AWQ in groups of 128, as AutoAWQ writes it."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, (dtype, shape) in tensors.items():
        if "_proj" not in name:
            found[name] = (dtype, shape)
            continue
        module, (outs, ins) = name.removesuffix(".weight"), shape
        found[f"{module}.qweight"] = ("I32", (ins, outs // 8))
        found[f"{module}.qzeros"] = ("I32", (ins // 128, outs // 8))
        found[f"{module}.scales"] = ("F16", (ins // 128, outs))
    return found


def test_a_quantizer_that_the_config_hides_is_seen_in_the_headers(tmp_path: Path) -> None:
    stored = quantised(llama(*SIZES))
    folder = write(tmp_path / "m", CONFIG, stored)
    found = opened(folder)
    assert len(found.assumptions) == 1
    assert weights(folder) == total(stored)
    # Module by module: what was not quantized keeps its bytes, what was has those of its three tensors.
    by_name = {row.name.split(".")[-2]: row for row in found.model.weights}
    assert by_name["embed_tokens"].stored_bytes == 4096 * 512 * 2
    assert by_name["up_proj"].stored_bytes == 4 * (
        1536 * 512 // 2 + 512 // 128 * 1536 // 2 + 512 // 128 * 1536 * 2
    )
    assert by_name["up_proj"].shape == (1536, 512)


def test_a_quantizer_that_the_config_names_agrees_with_its_headers(tmp_path: Path) -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    folder = write(tmp_path / "m", config, quantised(llama(*SIZES)))
    assert opened(folder).assumptions == ()


def test_modules_that_the_class_does_not_have_become_rows(tmp_path: Path) -> None:
    extra = {
        "model.layers.4.mlp.up_proj.weight": ("BF16", (1536, 512)),
        "visual.blocks.0.attn.qkv.weight": ("BF16", (1536, 512)),
        "visual.blocks.1.attn.qkv.weight": ("BF16", (1536, 512)),
    }
    tensors = {**llama(8, *SIZES[1:]), **{k.replace("4", "8"): v for k, v in extra.items()}}
    folder = write(tmp_path / "m", {**CONFIG, "num_hidden_layers": 8}, tensors)
    found = opened(folder)
    rows = {
        row.component: row.stored_bytes for row in found.model.weights if row.component in ("mtp", "vision")
    }
    assert rows == {"mtp": 1536 * 512 * 2, "vision": 2 * 1536 * 512 * 2}
    assert weights(folder) == total(tensors)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": 8}, "8 layers by the config and 4 in the files"),
        ({"num_hidden_layers": 2}, "2 layers by the config and 4 in the files"),
        ({"num_key_value_heads": 4}, "k_proj is 256 × 512 by the config and 128 × 512 in the files"),
        ({"intermediate_size": 3072}, "mlp.gate_proj is 3,072 × 512 by the config and 1,536 × 512"),
    ],
)
def test_a_config_of_another_model_is_named_and_the_files_give_the_weights(
    tmp_path: Path, change: dict[str, int], said: str
) -> None:
    tensors = llama(*SIZES)
    folder = write(tmp_path / "m", {**CONFIG, **change}, tensors)
    found = opened(folder)
    assert weights(folder) == total(tensors)
    (sentence,) = found.assumptions
    assert said in sentence
    assert "the weights come from the files" in sentence
    assert sentence.endswith("the cache is counted from the config.")


def test_prediction_layers_are_no_contradiction(tmp_path: Path) -> None:
    """Layers that follow the others, with a module of their own, are what a config calls them or not."""
    tensors = dict(llama(*SIZES))
    for name, shape in llama(6, *SIZES[1:]).items():
        tensors.setdefault(name, shape)
    tensors |= {f"model.layers.{n}.eh_proj.weight": ("BF16", (512, 1024)) for n in (4, 5)}
    (sentence,) = opened(write(tmp_path / "m", CONFIG, tensors)).assumptions
    assert "not of one model" not in sentence


def test_float32_weights_are_served_at_16_bits(tmp_path: Path) -> None:
    tensors = llama(*SIZES, dtype="F32")
    folder = write(tmp_path / "m", {**CONFIG, "torch_dtype": "float32"}, tensors)
    assert opened(folder).assumptions == ()
    assert weights(folder) == total(tensors) // 2
    # Said to be bfloat16, stored as float32: engines make 16 bits of it.
    other = write(tmp_path / "n", CONFIG, tensors)
    assert weights(other) == total(tensors) // 2


def test_a_class_that_nobody_reads_is_read_from_its_headers(tmp_path: Path) -> None:
    config = {**CONFIG, "architectures": ["BrandNewForCausalLM"], "model_type": "brand_new"}
    tensors = llama(*SIZES)
    found = opened(write(tmp_path / "m", config, tensors))
    assert "BrandNewForCausalLM is not a class that is read" in found.assumptions[0]
    model = found.model
    assert sum(whole_row_bytes(model, FORMATS)) == total(tensors)
    assert sum(row.parameters for row in model.weights) * 2 == total(tensors)
    (group,) = model.layers
    (cache,) = group.caches
    assert (group.count, cache.kv_heads, cache.key_dim) == (4, 2, 64)  # type: ignore[union-attr]
    parts = {row.component for row in model.weights}
    assert parts == {"embedding", "output_head", "norms", "attention", "dense_mlp"}


def test_sizes_that_an_unknown_class_states_and_nobody_used_are_listed(tmp_path: Path) -> None:
    config = {**CONFIG, "architectures": ["BrandNewForCausalLM"], "sliding_window": 512, "kv_share_every": 2}
    found = opened(write(tmp_path / "m", config, llama(*SIZES)))
    assert found.not_read == ("kv_share_every", "sliding_window")
    nameless = {key: value for key, value in CONFIG.items() if key not in ("architectures", "model_type")}
    said = opened(write(tmp_path / "n", nameless, llama(*SIZES))).assumptions[0]
    assert said.startswith("The config does not name a class that is read. The weights")


@pytest.mark.parametrize("name", ["folder", "model.safetensors"])
def test_headers_without_a_config_are_told_what_is_missing(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "m", CONFIG, llama(*SIZES))
    (folder / "config.json").unlink()
    given = folder if name == "folder" else next(folder.glob("*.safetensors"))
    with pytest.raises(
        InputError, match=r"safetensors files without a config\.json; allowed: the config\.json of"
    ):
        open_model(str(given), CATALOG)


def test_a_missing_file_of_an_unknown_class_is_named(tmp_path: Path) -> None:
    config = {**CONFIG, "architectures": ["BrandNewForCausalLM"], "model_type": "brand_new"}
    folder = write(tmp_path / "m", config, llama(*SIZES), 2)
    next(folder.glob("*.safetensors")).unlink()
    with pytest.raises(InputError, match=r"BrandNewForCausalLM.*; or all of its safetensors files"):
        opened(folder)


@pytest.mark.parametrize(
    ("more", "config", "named"),
    [
        ({"model.layers.1.mamba.A_log": ("F32", (8,))}, {}, "A_log"),
        ({"model.layers.0.self_attn.kv_a_proj_with_mqa.weight": ("BF16", (8, 8))}, {}, "kv_a_proj"),
        ({}, {"num_hidden_layers": 5}, "no key projection in layer 4"),
        ({}, {"num_key_value_heads": 4}, "128 in all"),
        ({}, {"hidden_size": None}, "hidden_size"),
    ],
)
def test_a_cache_that_headers_do_not_show_is_refused(
    tmp_path: Path, more: Tensors, config: dict[str, Any], named: str
) -> None:
    changed = {**CONFIG, "architectures": ["BrandNewForCausalLM"], **config}
    with pytest.raises(InputError, match=named):
        opened(write(tmp_path / "m", changed, {**llama(*SIZES), **more}))


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"", "a header of 0 bytes"),
        (b"\xff" * 8, "a header of"),
        ((50).to_bytes(8, "little") + b"{}", "2 of the header's 50 bytes"),
        ((4).to_bytes(8, "little") + b"nope", "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "an object"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, raw: bytes, named: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=named) as caught:
        read_header(path)
    assert "model.safetensors" in str(caught.value)


def test_bytes_that_do_not_make_the_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    lying = header({"a.weight": ("BF16", (4, 4))}).replace(b"[0, 32]", b"[0, 33]")
    path.write_bytes(lying)
    with pytest.raises(InputError, match=r"33 bytes for 'BF16'"):
        read_header(path)


def test_an_index_may_not_leave_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", CONFIG, llama(*SIZES), 2)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "../../secret.safetensors"}}))
    with pytest.raises(InputError, match="names of files in the same folder"):
        opened(folder)


def test_mistrals_second_copy_is_not_counted_twice(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", CONFIG, llama(*SIZES))
    (folder / "consolidated.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert opened(folder).assumptions == ()


def test_an_index_that_names_prediction_layers_gives_the_rest_to_them(tmp_path: Path) -> None:
    tensors = llama(*SIZES)
    ahead = {"mtp.layers.0.mlp.up_proj.weight": ("BF16", (1536, 512)), "mtp.fc.weight": ("BF16", (512, 1024))}
    folder = write(tmp_path / "m", CONFIG, {**tensors, **ahead}, 2)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    found = opened(folder)
    assert "the rest is layers for multi-token prediction" in found.assumptions[0]
    rows = {row.component: row.stored_bytes for row in found.model.weights}
    assert rows["mtp"] == total(ahead)
    assert rows["attention"] is None


def test_odd_tensors_become_rows_and_no_crash(tmp_path: Path) -> None:
    odd = {"": ("BF16", (2,)), "a.qweight": ("I32", (0,)), "b.weight": ("BF16", (1, 1, 1, 1, 1, 2))}
    config = {**CONFIG, "architectures": ["BrandNewForCausalLM"]}
    found = opened(write(tmp_path / "m", config, {**llama(*SIZES), **odd}))
    assert sum(whole_row_bytes(found.model, FORMATS)) == total(llama(*SIZES)) + 8


def pointer(size: int) -> str:
    """What Git writes in place of a large file (Git LFS, docs/spec.md)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {size}\n"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_clone_without_its_large_files_has_their_sizes(tmp_path: Path, shards: int) -> None:
    tensors = llama(*SIZES)
    folder = write(tmp_path / "m", CONFIG, tensors, shards)
    for path in folder.glob("*.safetensors"):
        path.write_text(pointer(path.stat().st_size + total(tensors) // shards), encoding="utf-8")
    witness = read_witness(folder)
    assert witness is not None
    assert not witness.tensors
    assert witness.total == pytest.approx(total(tensors), rel=0.02)
    assert (witness.total == total(tensors)) is (shards > 1)  # an index states it without the headers
    assert opened(folder).model.layers == opened(write(tmp_path / "n", CONFIG, tensors)).model.layers
