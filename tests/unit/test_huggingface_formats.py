"""In which format each tensor was published, read from what the checkpoint says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_configs import COUNTED, DEEPSEEK_V3, GEMMA_3_27B, GPT_OSS_120B, LLAMA_3_1_8B
from reading import read_trimmed as read_config

from kvreport.accounting.weights import released_bytes
from kvreport.catalog.load import open_catalog
from kvreport.catalog.model import Model
from tests.trunk import load_overhead

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def model(config: dict[str, Any], **quantization: Any) -> Model:
    return read_config({**config, **quantization}, id="a/b")


def released(of: Model) -> dict[str, set[str | None]]:
    """Formats met, by the last two parts of the module."""
    found: dict[str, set[str | None]] = {}
    for row in of.weights:
        if row.component != "mtp":
            name = ".".join(row.name.removesuffix(".weight").split(".")[-2:])
            found.setdefault(name, set()).add(row.released)
    return found


def billions(of: Model, form: str | None) -> float:
    return sum(row.parameters for row in of.weights if row.released == form) / 1e9


def test_a_plain_checkpoint_is_16_bit_throughout() -> None:
    read = model(LLAMA_3_1_8B)
    assert read.weight_format == "bf16"
    assert {row.released for row in read.weights} == {None}
    assert read.kv_format is None


def test_deepseek_publishes_its_layers_in_fp8_blocks_and_its_ends_in_16_bit() -> None:
    read = model(DEEPSEEK_V3, quantization_config=FP8)
    forms = released(read)
    assert read.weight_format == "fp8-block"
    assert forms["*.gate_proj"] == {"fp8-block"}
    assert forms["self_attn.kv_b_proj"] == {"fp8-block"}
    for kept in ("model.embed_tokens", "lm_head", "mlp.gate", "*.input_layernorm"):
        assert forms[kept] == {None}, kept


def test_gpt_oss_publishes_only_its_experts_in_mxfp4() -> None:
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": skipped}
    read = model(GPT_OSS_120B, quantization_config=quantization)
    assert read.weight_format == "mxfp4"
    # 36 layers x 128 experts x 3 x 2,880 x 2,880; the experts' biases stay 16-bit.
    assert billions(read, "mxfp4") == pytest.approx(36 * 128 * 3 * 2880 * 2880 / 1e9)
    assert {row.component for row in read.weights if row.released == "mxfp4"} == {"routed_experts"}


def test_layers_left_alone_become_rows_of_their_own() -> None:
    quantization = {
        "quant_method": "fbgemm_fp8",
        "modules_to_not_convert": ["model.layers.0.mlp.down_proj", "model.layers.31.mlp.down_proj"],
    }
    read = model(LLAMA_3_1_8B, quantization_config=quantization)
    rows = {row.released: row.count for row in read.weights if row.name.endswith("mlp.down_proj.weight")}
    assert rows == {"fp8-channel": 30, None: 2}


def test_modelopt_names_a_format_for_all_and_exceptions_with_wildcards() -> None:
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head", "model.layers.0*", "model.layers.1.*", "model.layers.*.self_attn*"],
    }
    read = model(LLAMA_3_1_8B, hf_quant_config={"quantization": quantization})
    assert (read.weight_format, read.kv_format) == ("nvfp4", "fp8")
    rows = {row.released: row.count for row in read.weights if row.name.endswith("mlp.up_proj.weight")}
    # "model.layers.0*" is layer 0 alone, and "model.layers.1.*" is not layers 10 to 19.
    assert rows == {"nvfp4": 30, None: 2}
    assert released(read)["self_attn.q_proj"] == {None}


def test_mixed_precision_is_read_module_by_module() -> None:
    layers = {}
    for index in range(32):
        layers[f"model.layers.{index}.mlp.up_proj"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        layers[f"model.layers.{index}.self_attn.o_proj"] = {"quant_algo": "FP8"}
    quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    read = model(LLAMA_3_1_8B, hf_quant_config={"quantization": quantization})
    forms = released(read)
    assert read.weight_format == "nvfp4"
    assert forms["mlp.up_proj"] == {"nvfp4"}
    assert forms["self_attn.o_proj"] == {"fp8-tensor"}
    assert forms["mlp.down_proj"] == {None}


def test_a_layer_of_experts_may_be_listed_once_or_expert_by_expert() -> None:
    moe = COUNTED["Qwen/Qwen3-30B-A3B"][0]
    once = {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(48)}
    each = {
        f"model.layers.{i}.mlp.experts.{e}.{name}": {"quant_algo": "NVFP4"}
        for i in range(48)
        for e in range(3)
        for name in ("gate_proj", "up_proj", "down_proj")
    }
    for layers in (once, each):
        quantization = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
        read = model(moe, hf_quant_config={"quantization": quantization})
        # 48 layers x 128 experts x 3 x 2,048 x 768.
        assert billions(read, "nvfp4") == pytest.approx(48 * 128 * 3 * 2048 * 768 / 1e9)


def test_compressed_tensors_follow_targets_and_exceptions() -> None:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", r"re:.*self_attn.*", r"re:.*mlp\.shared_experts.*"],
    }
    read = model(DEEPSEEK_V3, quantization_config=quantization)
    forms = released(read)
    assert read.weight_format == "int4-g32"
    assert forms["self_attn.q_b_proj"] == {None}
    assert forms["shared_experts.up_proj"] == {None}
    assert forms["*.up_proj"] == {"int4-g32"}


def test_deepseek_v4_publishes_its_experts_narrower_than_the_rest() -> None:
    v4 = COUNTED["deepseek-ai/DeepSeek-V4-Flash"][0]
    read = model(v4, quantization_config=FP8, expert_dtype="fp4")
    assert read.weight_format == "mxfp4"
    assert {row.released for row in read.weights if row.component == "routed_experts"} == {"mxfp4"}
    assert {row.released for row in read.weights if row.component == "shared_experts"} == {"fp8-block"}


def test_a_file_beside_the_config_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    beside = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    read = read_config(tmp_path, id="a/b")
    assert (read.weight_format, read.kv_format) == ("fp8-tensor", "fp8")


@pytest.mark.parametrize(
    ("stated", "kv_format"),
    [
        ({}, None),
        ({"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
    ],
)
def test_a_section_of_the_config_decides_the_cache_format_alone(
    tmp_path: Path, stated: dict[str, Any], kv_format: str | None
) -> None:
    """vLLM reads the quantizer's own file where the config has no section only.

    As nvidia/Qwen3.6-35B-A3B-NVFP4 was released: a log of vLLM 0.29.0 (first-022) shows a cache of 16 bits.
    """
    own = {"quant_method": "modelopt", "quant_algo": "FP8", **stated}
    config = LLAMA_3_1_8B | {"quantization_config": own}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
    assert read_config(tmp_path, id="a/b").kv_format == kv_format


QUARK_FP8 = {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, "output_tensors": None}


def test_quark_says_what_it_left_alone_and_what_goes_into_the_cache() -> None:
    out = {**QUARK_FP8, "output_tensors": {"dtype": "fp8_e4m3"}}
    read = read_config(
        {
            **LLAMA_3_1_8B,
            "quantization_config": {
                "quant_method": "quark",
                "exclude": ["lm_head"],
                "global_quant_config": QUARK_FP8,
                "layer_quant_config": {"*k_proj": out, "*v_proj": out},
            },
        },
        id="a/b",
    )
    assert (read.weight_format, read.kv_format) == ("fp8-tensor", "fp8")
    assert {row.released for row in read.weights if "_proj" in row.name} == {"fp8-tensor"}
    assert all(row.released is None for row in read.weights if "_proj" not in row.name)


@pytest.mark.parametrize(
    ("weight", "form"),
    [
        ({"dtype": "fp8_e4m3", "qscheme": "per_channel"}, "fp8-channel"),
        ({"dtype": "fp4", "qscheme": "per_group", "group_size": 32}, "mxfp4"),
        ({"dtype": "int8", "qscheme": "per_channel"}, "int8"),
        ({"dtype": "uint4", "qscheme": "per_group", "group_size": 128}, "int4"),
    ],
)
def test_quark_names_a_type_and_a_scheme(weight: dict[str, object], form: str) -> None:
    quark = {"quant_method": "quark", "global_quant_config": {"weight": weight}, "exclude": ["*self_attn*"]}
    read = read_config({**LLAMA_3_1_8B, "quantization_config": quark}, id="a/b")
    assert read.weight_format == form
    assert {row.name.split(".")[-2] for row in read.weights if row.released} == {
        "gate_proj",
        "up_proj",
        "down_proj",
    }


def forms_by_component(config: dict[str, Any], quantization: dict[str, Any]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for row in model(config, quantization_config=quantization).weights:
        if len(row.shape) >= 2:
            found.setdefault(row.component, set()).add(row.released)
    return found


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def test_four_bits_of_bitsandbytes_cover_every_linear_layer_but_the_head() -> None:
    expected = {
        "embedding": {None},
        "output_head": {None},
        "attention": {"bnb-4bit"},
        "dense_mlp": {"bnb-4bit"},
    }
    assert forms_by_component(LLAMA_3_1_8B, BNB) == expected
    # Towers too: of SigLIP everything but its convolution and its positions.
    kept = {
        row.name
        for row in model(GEMMA_3_27B, quantization_config=BNB).weights
        if row.component == "vision" and len(row.shape) >= 2 and row.released is None
    }
    assert not [name for name in kept if "_proj.weight" in name]


def test_four_bits_of_bitsandbytes_take_what_its_blocks_take() -> None:
    formats = open_catalog().weight_formats
    plain = model(LLAMA_3_1_8B, quantization_config=BNB)
    doubly = model(LLAMA_3_1_8B, quantization_config={**BNB, "bnb_4bit_use_double_quant": True})
    assert (plain.weight_format, doubly.weight_format) == ("bnb-4bit", "bnb-4bit-dq")
    # Llama 3.1 8B: 6,979,321,856 weights in 224 matrices; the rest, 1,050,939,392, at 16 bits.
    matrices, rest = 6_979_321_856, 2 * 1_050_939_392
    blocks = matrices // 64
    assert released_bytes(plain, formats) == matrices // 2 + 4 * blocks + 224 * 64 + rest
    assert released_bytes(doubly, formats) == matrices // 2 + blocks + 4 * blocks // 256 + 224 * 1088 + rest


def test_vllm_widens_doubly_quantised_scales_while_loading() -> None:
    catalog = open_catalog()
    doubly = model(LLAMA_3_1_8B, quantization_config={**BNB, "bnb_4bit_use_double_quant": True})
    gpu = catalog.accelerator("h100-sxm-80gb")
    for ranks in (1, 4):
        added = load_overhead(
            doubly, catalog.engine("vllm"), None, catalog.weight_formats, gpu, tensor_parallel=ranks
        )
        # Of every 64 weights a byte and a 256th of a float32 become a float32.
        assert added["widened_scales"] == 6_979_321_856 // ranks // 64 * (4 - 1 - 4 / 256)


def test_what_bitsandbytes_was_told_to_skip_stays() -> None:
    skipped = {**BNB, "llm_int8_skip_modules": ["lm_head", "model.layers.1.mlp", "self_attn.o_proj"]}
    read = model(LLAMA_3_1_8B, quantization_config=skipped)
    rows = {(row.name.split(".")[-2], row.released): row.count for row in read.weights}
    assert rows["o_proj", None] == 32
    assert rows["up_proj", None] == 1
    assert rows["up_proj", "bnb-4bit"] == 31


def test_gptq_may_leave_modules_out_or_give_them_bits_of_their_own() -> None:
    gptq = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {
            r"-:model\.layers\.0\..*": {},
            r"+:.*down_proj": {"bits": 8},
            r".*gate_proj": {"group_size": 64},
        },
    }
    read = model(LLAMA_3_1_8B, quantization_config=gptq)
    rows = {(row.name.split(".")[-2], row.released): row.count for row in read.weights}
    assert rows["up_proj", None] == 1
    assert rows["up_proj", "gptq4-g128"] == 31
    assert rows["down_proj", "gptq8-g128"] == 31
    assert rows["gate_proj", "gptq4-g64"] == 31


def test_gptq_may_quantise_listed_modules_alone_and_the_head() -> None:
    listed = [["self_attn.q_proj", "self_attn.k_proj"], ["mlp.up_proj"]]
    gptq = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "modules_in_block_to_quantize": listed,
        "lm_head": False,
    }
    forms = released(model(LLAMA_3_1_8B, quantization_config=gptq))
    assert forms["self_attn.q_proj"] == forms["self_attn.k_proj"] == forms["mlp.up_proj"] == {"gptq4-g128"}
    assert forms["self_attn.v_proj"] == forms["mlp.down_proj"] == forms["lm_head"] == {None}
    del gptq["modules_in_block_to_quantize"]
    assert released(model(LLAMA_3_1_8B, quantization_config={**gptq, "lm_head": True}))["lm_head"] == {
        "gptq4-g128"
    }


def test_auto_round_names_its_exceptions() -> None:
    rounded = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "extra_config": {
            "model.layers.0.mlp.up_proj": {"bits": 16},
            "model.layers.1.mlp.up_proj": {"bits": 8},
        },
    }
    read = model(LLAMA_3_1_8B, quantization_config=rounded)
    rows = {row.released: row.count for row in read.weights if row.name.endswith("up_proj.weight")}
    assert rows == {None: 1, "int8-g128-zp": 1, "int4": 30}


@pytest.mark.parametrize(
    ("quantization", "form", "bits"),
    [
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            "hqq4-g64",
            4.5,
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "int4-z16", 4.25),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}},
            },
            "int4-z16-g32",
            5,
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "int8", None),
        (
            {
                "quant_method": "torchao",
                "quant_type": {
                    "default": {
                        "_type": "Float8DynamicActivationFloat8WeightConfig",
                        "_data": {"granularity": [{"_type": "PerRow"}]},
                    }
                },
            },
            "fp8-channel",
            None,
        ),
    ],
)
def test_hqq_and_torchao_name_one_scheme_for_all_linear_layers(
    quantization: dict[str, Any], form: str, bits: float | None
) -> None:
    read = model(LLAMA_3_1_8B, quantization_config=quantization)
    assert read.weight_format == form
    assert {row.released for row in read.weights if row.component in ("attention", "dense_mlp")} == {form}
    assert {row.released for row in read.weights if row.component == "output_head"} == {None}
    if bits is not None:
        its = open_catalog().weight_formats[form]
        assert its.block is not None
        assert its.bits + 8 * its.scale_bytes / its.block[1] == bits
