"""Bytes that quantizers themselves wrote for two tiny models, against ours.

Each total was measured on a processor: the model was converted by the tool's own code, and the bytes of its tensors (or of
the file that it exported) were added up. transformers 5.24.0 with torchao 0.18.0 and optimum-quanto 0.2.7;
compressed-tensors 0.20.0; nvidia-modelopt 0.47.0; mlx 0.32.4 with mlx-lm 0.32.2; hqq 0.2.8.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import released_bytes
from kvreport.architectures.reader import ConfigReading, read_config_report
from kvreport.catalog.layouts import layout
from kvreport.catalog.load import open_catalog

DENSE: dict[str, Any] = CONFIGS["quantizers_own_bytes"]["DENSE"]
MIXTURE: dict[str, Any] = CONFIGS["quantizers_own_bytes"]["MIXTURE"]


def scheme(name: str, **data: object) -> dict[str, Any]:
    return {"_type": name, "_version": 2, "_data": data}


def torchao(chosen: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"quant_method": "torchao", "quant_type": {"default": chosen}, **more}


def groups(**weights: object) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def modelopt(algorithm: str, **more: object) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **more}


BY_ROW = scheme("PerAxis", axis=0)
BY_32 = scheme("PerGroup", group_size=32)
BYTES = scheme(
    "IntxWeightOnlyConfig", weight_dtype={"_type": "torch.dtype", "_data": "int8"}, granularity=BY_ROW
)
NIBBLES = scheme("Int8DynamicActivationIntxWeightConfig", weight_granularity=BY_32)
ENDS = {"include_input_output_embeddings": True}


def read(config: dict[str, Any], quantization: dict[str, Any]) -> ConfigReading:
    return read_config_report({**config, "quantization_config": quantization}, id="local/x")


def ours(config: dict[str, Any], quantization: dict[str, Any]) -> int:
    return released_bytes(read(config, quantization).model, open_catalog().weight_formats)


@pytest.mark.parametrize(
    ("quantization", "theirs"),
    [
        (torchao(BYTES, **ENDS), 10_474_240),
        (torchao(scheme("IntxWeightOnlyConfig", granularity=BY_32)), 11_781_120),
        (torchao(NIBBLES), 11_781_120),
        (torchao(scheme("Float8WeightOnlyConfig")), 11_010_048),
        (torchao(scheme("Float8WeightOnlyConfig"), **ENDS), 10_489_856),
        (torchao(scheme("NVFP4WeightOnlyConfig")), 7_081_044),
        (torchao(scheme("MXDynamicActivationMXWeightConfig")), 11_228_160),
        # The embedding is converted where it is named, the head by default.
        (
            torchao(
                scheme("FqnToConfig", fqn_to_config={"_default": NIBBLES, "model.embed_tokens": BYTES}),
                **ENDS,
            ),
            10_784_768,
        ),
        (
            torchao(
                scheme(
                    "FqnToConfig",
                    fqn_to_config={r"re:.*self_attn\..*": BYTES, r"re:.*mlp\..*": NIBBLES, "lm_head": BYTES},
                ),
                **ENDS,
            ),
            11_052_544,
        ),
        ({"quant_method": "quanto", "weights": "int8"}, 10_981_032),
        ({"quant_method": "quanto", "weights": "int4"}, 6_804_648),
        ({"quant_method": "quanto", "weights": "int2"}, 4_592_808),
        (groups(num_bits=6, type="float", strategy="group", group_size=32), 9_016_320),
        (groups(num_bits=4, type="float", strategy="group", group_size=32), 6_804_480),
        (groups(num_bits=8, type="float", strategy="group", group_size=32), 11_228_160),
        (
            {**groups(num_bits=3, strategy="group", group_size=128), "format": "pack-quantized"},
            5_560_656,
        ),
        (modelopt("FP8"), 10_951_848),
        (modelopt("W4A16_AWQ"), 6_816_000),
        (modelopt("W4A8_AWQ"), 6_816_168),
        (modelopt("W4A8_NVFP4_FP8"), 6_804_648),
        (modelopt("NVFP4"), 7_081_128),
        (modelopt("MXFP8"), 11_228_160),
    ],
)
def test_a_dense_model_has_the_bytes_that_its_quantizer_wrote(
    quantization: dict[str, Any], theirs: int
) -> None:
    # Scales of activations, shapes and equalizing factors (ModelOpt's AWQ) are not counted.
    assert ours(DENSE, quantization) == pytest.approx(theirs, rel=0.002)


@pytest.mark.parametrize(
    ("quantization", "theirs"),
    [
        (torchao(scheme("Int8WeightOnlyConfig")), 23_386_368),
        (torchao(scheme("Float8WeightOnlyConfig")), 23_381_760),
        ({"quant_method": "quanto", "weights": "int4"}, 22_257_504),
        ({"quant_method": "quanto", "weights": "int2"}, 21_667_680),
        (modelopt("FP8", ignore=["lm_head", "model.layers.*.mlp.gate"]), 13_926_816),
        (modelopt("NVFP4", ignore=["lm_head", "model.layers.*.mlp.gate"]), 8_765_856),
    ],
)
def test_stacked_experts_of_transformers_5_are_no_linear_layers(
    quantization: dict[str, Any], theirs: int
) -> None:
    assert ours(MIXTURE, quantization) == pytest.approx(theirs, rel=0.002)


def test_experts_that_transformers_4_wrote_were_linear_layers() -> None:
    chosen = torchao(scheme("Int8WeightOnlyConfig"))
    older = ours({**MIXTURE, "transformers_version": "4.57.1"}, chosen)
    matrices, scales = 3 * 8 * 3 * 256 * 512, 3 * 8 * (2 * 256 + 512)
    assert ours(MIXTURE, chosen) - older == matrices - 4 * scales


def test_experts_under_bitsandbytes_are_said_to_be_assumed() -> None:
    chosen = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    assert any("Unsloth" in line for line in read(MIXTURE, chosen).assumptions)
    assert not any("Unsloth" in line for line in read(DENSE, chosen).assumptions)
    older = {**MIXTURE, "transformers_version": "4.57.1"}
    assert not any("Unsloth" in line for line in read(older, chosen).assumptions)


@pytest.mark.parametrize(
    ("name", "theirs"),
    # Matrices of 1408 x 512, 512 x 1408 and 512 x 512 by HQQLinear, its settings (about 200 bytes each) included.
    [
        ("hqq8-g64", 1_810_639),
        ("hqq4-g64", 958_671),
        ("hqq4-g128", 905_423),
        ("hqq3-g64", 788_687),
        ("hqq2-g64", 532_687),
        ("hqq1-g64", 319_695),
    ],
)
def test_hqq_packs_ten_integers_of_three_bits_to_a_word(name: str, theirs: int) -> None:
    its = layout(name)
    assert its is not None
    assert its.block is not None
    elements = 2 * 1408 * 512 + 512 * 512
    assert elements * (its.bits / 8 + its.scale_bytes / its.block[1]) == pytest.approx(theirs, rel=0.001)


@pytest.mark.parametrize(
    ("quantization", "theirs"),
    [
        ({"group_size": 64, "bits": 4}, 7_246_336),
        ({"group_size": 32, "bits": 8}, 14_471_680),
        ({"group_size": 128, "bits": 5}, 8_450_560),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, 6_844_928),
        ({"group_size": 16, "bits": 4, "mode": "nvfp4"}, 7_246_336),
    ],
)
def test_a_mixture_has_the_bytes_that_mlx_wrote(quantization: dict[str, Any], theirs: int) -> None:
    config = {**MIXTURE, "rope_theta": 10000.0, "transformers_version": "4.57.0"}
    routers = {f"model.layers.{layer}.mlp.gate": {"group_size": 64, "bits": 8} for layer in range(3)}
    stated = {**config, "quantization": {**quantization, **routers}}
    reading = read_config_report(stated, id="local/x")
    assert released_bytes(reading.model, open_catalog().weight_formats) == theirs


QUANTO: dict[str, Any] = {"quant_method": "quanto", "weights": "int8"}


@pytest.mark.parametrize(
    ("names", "by_weight", "by_module"),
    [
        # Elements that transformers 5.24.0 converts of this model: its own lists, run over its modules on the meta device.
        (None, 8_847_360, 8_847_360),
        (["lm_head"], 8_847_360, 8_847_360),
        (["self_attn"], 9_371_648, 9_371_648),
        (["q_proj"], 9_371_648, 8_585_216),
        (["q_proj.weight"], 8_585_216, 9_371_648),
        (["model.layers.1"], 6_422_528, 6_422_528),
        (["model.layers.1", "lm_head"], 5_898_240, 5_898_240),
        (["model.layers.*.mlp"], 2_883_584, 2_883_584),
        (["layers.1.mlp"], 9_371_648, 9_371_648),
        (["mlp.down_proj", "lm_head"], 8_847_360, 6_684_672),
        ([], 9_371_648, 9_371_648),
    ],
)
def test_names_left_alone_are_matched_as_transformers_5_does(
    names: list[str] | None, by_weight: int, by_module: int
) -> None:
    left = {"modules_to_not_convert": names}
    assert converted(DENSE, torchao(scheme("Float8WeightOnlyConfig"), **left)) == by_weight
    assert converted(DENSE, {**QUANTO, **left}) == by_module
    assert converted(DENSE, {"quant_method": "eetq", **left}) == by_module


def test_transformers_4_looked_for_a_name_anywhere_in_a_path() -> None:
    older = {**DENSE, "transformers_version": "4.57.1"}
    assert converted(older, {**QUANTO, "modules_to_not_convert": ["self_attn"]}) == 3 * 3 * 512 * 1408


def converted(config: dict[str, Any], quantization: dict[str, Any]) -> int:
    return sum(
        prod(row.shape) * row.count for row in read(config, quantization).model.weights if row.released
    )
