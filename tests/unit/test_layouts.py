"""Layouts against the tensors that each quantizer writes, written out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from huggingface_configs import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_3_1_8B, plain

from kvreport.accounting.weights import released_bytes, tensor_bytes, weight_bytes
from kvreport.architectures import read_config
from kvreport.architectures.reader import read_config_report
from kvreport.catalog.layouts import Layouts, layout
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from kvreport.errors import InputError

FORMATS = open_catalog().weight_formats
OUT, IN = 14336, 4096
ELEMENTS = OUT * IN


def read(config: dict[str, Any], quantization: dict[str, Any]) -> Model:
    return read_config({**config, "quantization_config": quantization}, id="a/b", assume_defaults=True)


def one(quantization: dict[str, Any], config: dict[str, Any] = LLAMA_3_1_8B) -> str:
    rows = {r.released for r in read(config, quantization).weights if r.name.endswith("up_proj.weight")}
    (form,) = rows
    assert form is not None
    return form


def in_file(form: str) -> int:
    """Bytes of one 14336 x 4096 matrix in a file."""
    found = FORMATS[form]
    return tensor_bytes((OUT, IN), found) + found.index_bytes * IN


def grouped(bits: int, group: int, zero_bits: int = 0) -> int:
    groups = IN // group if group else 1
    return ELEMENTS * bits // 8 + OUT * groups * 2 + OUT * groups * zero_bits // 8


PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


def packed(**weights: object) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"type": "int", "symmetric": True, **weights}}
    return {**PACKED, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        # qweight int32 [in, out / 8], qzeros int32 [in / group, out / 8], scales fp16 [in / group, out]
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, grouped(4, 128, 4)),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, grouped(4, 32, 4)),
        # The same, and g_idx int32 [in].
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, grouped(4, 128, 4) + 4 * IN),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, grouped(4, 32, 4) + 4 * IN),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, grouped(8, 128, 8) + 4 * IN),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, grouped(8, 32, 8) + 4 * IN),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, grouped(3, 128, 3) + 4 * IN),
        ({"quant_method": "gptq", "bits": 2, "group_size": 64}, grouped(2, 64, 2) + 4 * IN),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, grouped(4, 0, 4) + 4 * IN),
        # Marlin's own packing: no zero points, no index.
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"},
            grouped(4, 128),
        ),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, grouped(4, 128, 4)),
        # weight_packed int32, weight_scale bf16, weight_zero_point packed where it is not symmetric
        (packed(num_bits=4, group_size=128, strategy="group"), grouped(4, 128)),
        (packed(num_bits=4, group_size=32, strategy="group"), grouped(4, 32)),
        (packed(num_bits=4, group_size=32, strategy="group", symmetric=False), grouped(4, 32, 4)),
        (packed(num_bits=4, strategy="channel"), grouped(4, 0)),
        (packed(num_bits=8, group_size=128, strategy="group"), grouped(8, 128)),
        (packed(num_bits=4, group_size=16, strategy="group"), grouped(4, 16)),
        # 2:4: half of the values, and two bits of position for each of them
        (
            {**packed(num_bits=4, group_size=128, strategy="group"), "format": "marlin-24"},
            ELEMENTS // 4 + ELEMENTS // 8 + OUT * IN // 128 * 2,
        ),
        # weight e4m3, weight_scale_inv float32 [out / rows, in / columns]
        (
            {"quant_method": "fp8", "weight_block_size": [64, 64]},
            ELEMENTS + OUT // 64 * IN // 64 * 4,
        ),
        ({"quant_method": "fp8", "weight_block_size": [1, 128]}, ELEMENTS + OUT * IN // 128 * 4),
        # weight e4m3, weight_scale e8m0 [out, in / 32]
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, ELEMENTS + OUT * IN // 32),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, ELEMENTS + OUT * IN // 32),
        # trellis int16 [in / 16, out / 16, 16 bits], suh fp16 [in], svh fp16 [out]
        ({"quant_method": "exl3", "bits": 4.0, "head_bits": 6}, ELEMENTS // 2 + 2 * IN + 2 * OUT),
        ({"quant_method": "exl2", "bits": 4.25, "head_bits": 6}, ELEMENTS * 425 // 800),
        # codes int16 [out, in / 8, 1], codebooks fp16 [1, 65536, 1, 8], scales fp16 [out]
        (
            {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16},
            ELEMENTS // 8 * 2 + 65536 * 8 * 2 + OUT * 2,
        ),
        (
            {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 2, "nbits_per_codebook": 8},
            ELEMENTS // 8 * 2 + 2 * 256 * 8 * 2 + OUT * 2,
        ),
        # weight uint8 [out / 4, in], weight_scale bf16 [1]
        ({"quant_method": "bitnet", "quantization_mode": "offline"}, ELEMENTS // 4 + 2),
        ({"quant_method": "eetq", "weights": "int8"}, ELEMENTS + OUT * 2),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, ELEMENTS // 2 + OUT * IN // 32),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2, "group_size": 16}}},
            ELEMENTS // 4 + OUT * IN // 16 * 4,
        ),
    ],
)
def test_a_layout_is_the_tensors_that_its_tool_writes(quantization: dict[str, Any], expected: int) -> None:
    assert in_file(one(quantization)) == expected


def mlx(config: dict[str, Any], **quantization: object) -> Model:
    return read_config({**config, "quantization": {"group_size": 64, "bits": 4, **quantization}}, id="a/b")


def test_mlx_converts_tables_and_head_too() -> None:
    made = mlx(LLAMA_3_1_8B)
    assert made.weight_format == "mlx4-g64"
    assert {row.component: row.released for row in made.weights} == {
        "embedding": "mlx4-g64",
        "output_head": "mlx4-g64",
        "attention": "mlx4-g64",
        "dense_mlp": "mlx4-g64",
        "norms": None,
    }
    # weight uint32 [out, in / 8], scales and biases bf16 [out, in / 64]: 4.5 bits; 65 norms of 4096.
    linear = 8_030_261_248 - 65 * 4096
    assert released_bytes(made, FORMATS) == linear * 9 // 16 + 65 * 4096 * 2


def test_mlx_modes_and_exceptions() -> None:
    other = mlx(
        LLAMA_3_1_8B,
        **{
            "model.embed_tokens": False,
            "model.layers.0.mlp.up_proj": {"group_size": 32, "bits": 8},
            "model.layers.1.mlp.up_proj": {"mode": "mxfp4"},
        },
    )
    rows = {(row.name.split(".")[-2], row.released): row.count for row in other.weights}
    assert rows["embed_tokens", None] == 1
    assert rows["up_proj", "mlx8-g32"] == rows["up_proj", "mxfp4"] == 1
    assert rows["up_proj", "mlx4-g64"] == 30
    assert mlx(LLAMA_3_1_8B, mode="mxfp8", group_size=32, bits=8).weight_format == "mxfp8"
    assert tensor_bytes((64, 64), FORMATS["mlx-nvfp4"]) == 64 * 64 // 2 + 64 * 4
    with pytest.raises(InputError, match="mode"):
        mlx(LLAMA_3_1_8B, mode="ternary")


def test_mlx_leaves_encoders_alone_and_knows_its_own_names_of_modules() -> None:
    seen = mlx(GEMMA_3_27B, **{"language_model.model.layers.3.mlp.up_proj": {"group_size": 64, "bits": 8}})
    assert {row.released for row in seen.weights if row.component == "vision"} == {None}
    assert sum(row.count for row in seen.weights if row.released == "mlx8-g64") == 1


def test_encoders_stay_at_16_bits_unless_they_are_named() -> None:
    general = packed(num_bits=4, group_size=32, strategy="group")
    towers = {r.released for r in read(GEMMA_3_27B, general).weights if r.component == "vision"}
    assert towers == {None}
    named = packed(num_bits=4, group_size=32, strategy="group")
    named["config_groups"]["group_0"]["targets"] = [r"re:.*fc1$"]
    assert {r.released for r in read(GEMMA_3_27B, named).weights if r.component == "vision"} == {
        None,
        "int4-g32",
    }


def test_a_module_named_counts_before_the_kind_of_layer_that_it_is() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    fours = {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}
    quantization = {
        **PACKED,
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": fours},
            "group_1": {"targets": [r"re:.*down_proj"], "weights": weights, "format": "float-quantized"},
        },
        "ignore": ["lm_head"],
    }
    made = read(LLAMA_3_1_8B, quantization)
    forms = {r.name.split(".")[-2]: r.released for r in made.weights if r.component == "dense_mlp"}
    assert forms == {"gate_proj": "int4-g128-sym", "up_proj": "int4-g128-sym", "down_proj": "fp8-channel"}


def test_exl3_lists_what_every_module_takes() -> None:
    storage = {
        "model.layers.0.mlp.up_proj": {"quant_format": "exl3", "bits_per_weight": 5},
        "model.layers.1.mlp.up_proj": {"quant_format": "exl3", "bits_per_weight": 3.5},
        "model.layers.1.mlp.norm": {"stored_tensors": {}},
    }
    made = read(LLAMA_3_1_8B, {"quant_method": "exl3", "bits": 4.0, "tensor_storage": storage})
    forms = {row.released: row.count for row in made.weights if row.released}
    assert forms == {"exl3-5bpw": 1, "exl3-3.5bpw": 1}


def test_exl3_states_prediction_layers_and_encoder_apart() -> None:
    quantizer = {
        "quant_method": "exl3",
        "version": "1.5.0",
        "bits": 3.5,
        "head_bits": 4,
        "mtp_bits": 4,
        "vision_bits": 6,
    }
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": {"hidden_size": 5120, "mtp_num_hidden_layers": 1},
        "vision_config": {"depth": 2},
    }

    def forms(**keys: int) -> dict[str, set[str | None]]:
        made = read_config(
            {**config, "quantization_config": {**quantizer, **keys}}, id="a/b", assume_defaults=True
        )
        rows = [
            row for row in made.weights if row.name.endswith(("_proj.weight", "qkv.weight", "lm_head.weight"))
        ]
        return {
            part: {row.released for row in rows if row.component == part}
            for part in ("mtp", "vision", "dense_mlp", "output_head")
        }

    assert forms() == {
        "mtp": {"exl3-4bpw"},
        "vision": {"exl3-6bpw"},
        "dense_mlp": {"exl3-3.5bpw"},
        "output_head": {"exl3-4bpw"},
    }
    assert forms(vision_bits=16, mtp_bits=16)["vision"] == {None} == forms(mtp_bits=16)["mtp"]


BESIDE = {
    "quantize_config.json": ({"bits": 4, "group_size": 128, "desc_act": False, "sym": True}, "gptq4-g128"),
    "quant_config.json": (
        {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"},
        "int4-g64",
    ),
    "hf_quant_config.json": ({"quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
    "quantization_config.json": ({"quant_method": "exl3", "bits": 3.0}, "exl3-3bpw"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_quantizers_own_file_is_read(name: str, tmp_path: Path) -> None:
    content, form = BESIDE[name]
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    assert read_config(tmp_path, id="a/b").weight_format == form


@pytest.mark.parametrize(
    ("name", "stated", "form"),
    [
        (
            "quantize_config.json",
            {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True},
            "gptq4-g32",
        ),
        (
            "quant_config.json",
            {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
            "int4-g32-zp",
        ),
    ],
)
def test_a_config_counts_before_the_quantizers_file(
    name: str, stated: dict[str, object], form: str, tmp_path: Path
) -> None:
    """GPTQ and AWQ repositories state the quantizer in both files."""
    config = {**LLAMA_3_1_8B, "quantization_config": stated}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / name).write_text(json.dumps(BESIDE[name][0]), encoding="utf-8")
    assert read_config(tmp_path, id="a/b").weight_format == form


def test_an_ignored_name_of_compressed_tensors_is_one_module() -> None:
    """Lists of unsloth's mixed copies name a block without its linear layers, which are quantized."""
    quantizer = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": {
            "group_0": {
                "format": "float-quantized",
                "targets": [r"re:.*self_attn\.(q|k|v|o)_proj$"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            }
        },
        "ignore": ["model.layers.0.self_attn", "model.layers.0.self_attn.k_proj", "lm_head"],
    }
    made = read(LLAMA_3_1_8B, quantizer)
    layers = {"q_proj": 0, "k_proj": 0}
    for row in made.weights:
        part = row.name.split(".")[-2]
        if row.released == "fp8-channel" and part in layers:
            layers[part] += row.count
    assert layers == {"q_proj": 32, "k_proj": 31}


def test_ascend_describes_every_tensor(tmp_path: Path) -> None:
    config = plain("LlamaForCausalLM", 64, 2, 4, 4, 128, 256, 128)
    description = {
        "model_quant_type": "W8A8_DYNAMIC",
        "model.embed_tokens.weight": "FLOAT",
        "model.layers.0.mlp.up_proj.weight": "W8A8_DYNAMIC",
        "model.layers.0.mlp.up_proj.weight_scale": "W8A8_DYNAMIC",
        "model.layers.1.mlp.up_proj.weight": "FLOAT",
        "model.layers.1.mlp.down_proj.weight": "W4A8_DYNAMIC",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = tmp_path / "quant_model_description.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    made = read_config(tmp_path, id="a/b")
    forms = {(row.name.split(".")[-2], row.released): row.count for row in made.weights if row.released}
    assert forms == {("up_proj", "ascend-w8a8"): 1, ("down_proj", "ascend-w4a8"): 1}
    path.write_text(json.dumps({**description, "lm_head.weight": "W2A2"}), encoding="utf-8")
    with pytest.raises(InputError, match="W2A2"):
        read_config(tmp_path, id="a/b")


_VECTORS: Final = {
    "enable_norm": True,
    "enable_perm": True,
    "group_num": 1,
    "group_size": 4096,
    "in_features": 4096,
    "indices_as_float": False,
    "is_indice_packed": True,
    "num_centroids": [-1, 65536],
    "num_res_centroids": [-1, 256],
    "outlier_size": 0,
    "vector_lens": [-1, 8],
}


def vptq(**changed: object) -> dict[str, Any]:
    return {"quant_method": "vptq", "shared_layer_config": {"up_proj": {**_VECTORS, **changed}}}


@pytest.mark.parametrize(
    ("changed", "form", "expected"),
    [
        # vptq 0.0.5, VQuantLinear(4096, 1024, dtype=bfloat16) on the meta device: its parameters added up.
        ({}, "vptq-v8-k65536-r256-n1-c6", 2_650_112),
        (
            {"num_centroids": [-1, 16384], "num_res_centroids": [-1, -1], "enable_norm": False},
            "vptq-v8-k16384-n1-c2",
            1_187_840,
        ),
        (
            {"vector_lens": [-1, 16], "num_res_centroids": [-1, 65536]},
            "vptq-v16-k65536-r65536-n1-c6",
            5_267_456,
        ),
        ({"group_num": 4, "group_size": 1024}, "vptq-v8-k65536-r256-n4-c6", 5_808_128),
    ],
)
def test_vptq_by_the_last_part_of_a_name(changed: dict[str, Any], form: str, expected: int) -> None:
    assert one(vptq(**changed)) == form
    assert tensor_bytes((1024, 4096), FORMATS[form]) == expected


def test_vectors_stated_by_the_last_part_of_a_name_leave_towers_alone() -> None:
    config = {name: value for name, value in GEMMA_3_27B.items() if name != "quantization_config"}
    rows = read(config, {"quant_method": "vptq", "shared_layer_config": {"q_proj": _VECTORS}}).weights
    formats = {row.component: row.released for row in rows if row.name.endswith("q_proj.weight")}
    assert formats == {"attention": "vptq-v8-k65536-r256-n1-c6", "vision": None}


def test_vptq_by_module() -> None:
    layers = {"model.layers.0.mlp.up_proj": _VECTORS, "model.layers.1.mlp.up_proj": _VECTORS}
    model = read(LLAMA_3_1_8B, {"quant_method": "vptq", "config_for_layers": layers})
    up = {row.released: row.count for row in model.weights if row.name.endswith("up_proj.weight")}
    assert up == {"vptq-v8-k65536-r256-n1-c6": 2, None: 30}


def test_spqr_takes_what_the_file_takes() -> None:
    """Four tensors a matrix: tiles of 16 x 16 in 64-bit numbers, row offsets, outliers, the order of inputs."""
    sides = {"gate_proj": (OUT, IN), "up_proj": (OUT, IN), "down_proj": (IN, OUT)}
    shapes, size = {}, 0
    for layer in range(32):
        for name, (rows, columns) in sides.items():
            lengths = (rows * columns // 16, rows + 1, 500_000 + 1_009 * layer, columns // 2)
            for part, length in zip(
                ("dense_weights", "row_offsets", "col_vals", "in_perm"), lengths, strict=True
            ):
                shapes[f"model.layers.{layer}.mlp.{name}.{part}.shape"] = length
            size += 8 * lengths[0] + 4 * sum(lengths[1:])
    section = {"quant_method": "spqr", "bits": 3, "beta1": 16, "beta2": 16, "shapes": shapes}
    plain_bytes = released_bytes(read_config(LLAMA_3_1_8B, id="a/b"), FORMATS)
    expected = plain_bytes - 32 * 3 * ELEMENTS * 2 + size
    assert released_bytes(read(LLAMA_3_1_8B, section), FORMATS) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("section", "form", "expected"),
    [
        # SINQ 0.2.0 on the processor, SINQLinear(512, 1024): the tensors of its state_dict added up.
        ({}, "sinq4-g64", 280_580),
        ({"tiling_mode": "2D"}, "sinq4-g64-2d", 295_940),
        ({"group_size": 128}, "sinq4-g128", 271_876),
        ({"nbits": 8}, "sinq8-g64", 542_724),
        ({"nbits": 2}, "sinq2-g64", 149_508),
    ],
)
def test_sinq(section: dict[str, Any], form: str, expected: int) -> None:
    assert one({"quant_method": "sinq", **section}) == form
    assert tensor_bytes((1024, 512), FORMATS[form]) == expected


@pytest.mark.parametrize(
    ("form", "expected"), [("sinq3-g64", 228_356), ("sinq5-g64", 368_132), ("sinq6-g64", 438_020)]
)
def test_sinq_fills_its_last_words(form: str, expected: int) -> None:
    """The rows of a matrix are padded to whole words."""
    assert 0 <= expected - tensor_bytes((1024, 512), FORMATS[form]) <= 256


def test_sinq_converts_the_head_unless_it_is_listed() -> None:
    for listed, form in (([], "sinq4-g64"), (["lm_head"], None)):
        model = read(LLAMA_3_1_8B, {"quant_method": "sinq", "modules_to_not_convert": listed})
        assert {row.released for row in model.weights if row.component == "output_head"} == {form}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        # transformers 5.23: HiggsLinear(4096, 1024, num_bits=4, group_size=256) and QuantizedLinear(num_bits=4),
        # their parameters added up on the meta device in bfloat16.
        ("higgs4-g256", 2_130_976),
        ("higgs3-g128", 1_638_672),
        ("srq4", 2_101_256),
        ("srq2", 1_052_680),
        # optimum-quanto 0.2.7: packed data, a scale and a shift per 128 inputs.
        ("int4-z16", 2_097_152 + 1024 * 32 * 4),
        ("int2-g128-z16", 1_048_576 + 1024 * 32 * 4),
        # mlx 0.32.4 on the processor: mx.quantize, its parts added up.
        ("mlx2-g32", 1_572_864),
        ("mlx3-g64", 1_835_008),
        ("mlx4-g64", 2_359_296),
        ("mlx5-g64", 2_883_584),
        ("mlx6-g128", 3_276_800),
        ("mlx8-g32", 4_718_592),
        ("mlx-nvfp4", 2_359_296),
        # torchao 0.18 on the processor: the bytes of each tensor's parts.
        ("fp8-channel", 4_198_400),
        ("int8-g64-s32z8", 4_521_984),
        ("int8-g32-zp", 4_587_520),
        ("nvfp4", 2_359_300),
        ("mxfp8", 4_325_376),
        ("mxfp4", 2_228_224),
    ],
)
def test_bytes_of_a_linear_layer_equal_the_modules_own(form: str, expected: int) -> None:
    assert tensor_bytes((1024, 4096), FORMATS[form]) == expected


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"quant_method": "quanto", "weights": "int4"}, "group_size = 128"),
        ({"quant_method": "gptq", "bits": 4}, "group_size = 128"),
        ({"quant_method": "awq", "group_size": 128}, "bits = 4"),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "group_size = 128"),
    ],
)
def test_bits_and_groups_that_no_config_states_are_said(section: dict[str, Any], said: str) -> None:
    reading = read_config_report({**LLAMA_3_1_8B, "quantization_config": section})
    assert any(said in line for line in reading.assumptions)


def test_gemmas_own_quantizer_gives_bits_by_module_and_embeddings_on_request() -> None:
    section = {
        "quant_method": "gemma",
        "num_bits": 4,
        "quantize_embeddings": True,
        "module_quant_configs": {r"mlp\.": {"num_bits": 2}, "embed_tokens": {"num_bits": 8}},
    }
    model = read(LLAMA_3_1_8B, section)
    by_name = {group.name.split(".")[-2]: group.released for group in model.weights}
    assert by_name["q_proj"] == "srq4"
    assert by_name["up_proj"] == "srq2"
    assert by_name["embed_tokens"] == "srq8-table"
    assert by_name["lm_head"] is None
    assert by_name["input_layernorm"] is None
    plain = read(LLAMA_3_1_8B, {"quant_method": "gemma"})
    assert {group.released for group in plain.weights if group.component == "embedding"} == {None}


def test_look_up_knows_layouts_that_nobody_listed() -> None:
    assert isinstance(FORMATS, Layouts)
    assert "int4-g48-zp" in FORMATS
    assert "int4-g48-zp" not in list(FORMATS)
    assert FORMATS["fp8-block-128x128".replace("-128x128", "")].block == (128, 128)
    for wrong in ("int9-g32-sym", "int4-g0-sym", "mlx7-g64", "exl3-40bpw", "aqlm-0x8-g8", "int4-g32-", ""):
        assert wrong not in FORMATS
        assert layout(wrong) is None


def test_a_whole_model_can_be_asked_for_in_a_stated_layout() -> None:
    catalog = open_catalog()
    assert catalog.weight_format("INT4_G32_SYM").name == "int4-g32"
    assert catalog.weight_format("gptq4-g128").bits == 4
    with pytest.raises(InputError, match="weight format"):
        catalog.weight_format("int64")
    mla = catalog.models["deepseek-ai/DeepSeek-V3"]
    narrow = weight_bytes(mla, catalog.weight_format("int4-g64-sym"), FORMATS)
    wide = weight_bytes(mla, catalog.weight_format("int4-g32-zp"), FORMATS)
    assert narrow < wide < weight_bytes(mla, catalog.weight_format("int8"), FORMATS)


def test_what_gptq_drops_while_loading_is_in_the_file_alone() -> None:
    made = read(DEEPSEEK_V3, {"quant_method": "gptq", "bits": 4, "group_size": 128})
    plain_int4 = made.model_copy(
        update={
            "weights": tuple(
                row.model_copy(update={"released": "int4"}) if row.released == "gptq4-g128" else row
                for row in made.weights
            )
        }
    )
    assert weight_bytes(made, None, FORMATS) == weight_bytes(plain_int4, None, FORMATS)
    assert released_bytes(made, FORMATS) > released_bytes(plain_int4, FORMATS)
