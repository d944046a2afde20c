"""Configs that nobody here wrote: keys changed one at a time, quantizers' methods, misspelt dimensions."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters, whole_row_bytes
from kvreport.architectures import read_config
from kvreport.architectures.reader import read_config_report
from kvreport.catalog.load import open_catalog
from kvreport.errors import InputError
from kvreport.site.pages import class_table

LLAMA: dict[str, Any] = CONFIGS["any_model"]["LLAMA"]
LINEAR = 32 * (4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
"""Elements of the linear layers."""
PLAIN = (2 * 128256 * 4096 + 65 * 4096) * 2
"""Bytes of embedding, head and norms."""


def stored(quantization: dict[str, Any], **more: Any) -> int:
    model = read_config(LLAMA | {"quantization_config": quantization} | more)
    return sum(whole_row_bytes(model, open_catalog().weight_formats))


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        # A packed weight, and a 16-bit scale per group.
        ({"quant_method": "marlin", "bits": 4, "group_size": 128}, LINEAR // 2 + LINEAR // 128 * 2),
        # Packed zero points too.
        (
            {"quant_method": "inc", "bits": 4, "group_size": 64, "sym": True},
            LINEAR // 2 + LINEAR // 64 * 2 + LINEAR // 128,
        ),
        (
            {"quant_method": "moe_wna16", "bits": 4, "group_size": 64},
            LINEAR // 2 + LINEAR // 64 * 2 + LINEAR // 128,
        ),
        # A scale of 4 bytes per output channel.
        ({"quant_method": "w8a8_fp8"}, LINEAR + 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096) * 4),
        ({"quant_method": "w8a8_int8"}, LINEAR + 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096) * 4),
        # 2:4: half of the weights, and two bits of position for each kept one.
        (
            {"quant_method": "gptq_marlin_24", "bits": 4, "group_size": 128},
            LINEAR // 4 + LINEAR // 2 // 4 + LINEAR // 128 * 2,
        ),
        # Half a byte and a scale of one byte per 16, and two scales of 4 bytes for each matrix.
        ({"quant_method": "petit_nvfp4"}, LINEAR // 2 + LINEAR // 16 + 32 * 7 * 8),
    ],
)
def test_methods_of_engines_are_layouts(quantization: dict[str, Any], weights: int) -> None:
    assert stored(quantization) == pytest.approx(PLAIN + weights, rel=1e-6)


@pytest.mark.parametrize("key", ["headdim", "head_dmi", "head_size", "d_head", "attention_head_dim"])
def test_a_misspelt_head_width_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=f"head_dim: found nothing, but {key} = 256"):
        read_config(LLAMA | {key: 256})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"architectures": ["PhiForCausalLM"], "intermediate_size": None},
            "intermediate_size = 8192: null in the config",
        ),
        (
            {"architectures": ["PhiForCausalLM"]},
            "intermediate_size = 8192: not in the config",
        ),
        (
            {"architectures": ["HunYuanMoEV1ForCausalLM"], "intermediate_size": 4096, "head_dim": 64},
            "num_experts = 1: not in the config",
        ),
    ],
)
def test_a_dimension_defined_by_others_is_named(config: dict[str, Any], sentence: str) -> None:
    sizes = {
        "hidden_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 1024,
        "max_position_embeddings": 2048,
    }
    said = " ".join(read_config_report(sizes | config, assume_defaults=True).assumptions)
    assert sentence in said


LING: dict[str, Any] = CONFIGS["any_model"]["LING"]


def test_layers_after_the_last_whole_group_of_ling_3_follow_the_class() -> None:
    """transformers' class lets every fourth layer attend; the maker's lets an incomplete group attend."""
    counts = {
        name: {
            group.caches[0].kind: group.count
            for group in read_config(LING | {"architectures": [name]}, assume_defaults=True).layers
        }
        for name in ("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM")
    }
    assert counts["BailingHybridForCausalLM"] == {"state": 4, "latent": 1}
    assert counts["BailingMoeV3ForCausalLM"] == {"state": 3, "latent": 2}


def test_ling_3_obeys_the_list_of_its_mlps() -> None:
    def total(**keys: Any) -> int:
        return parameters(
            read_config(LING | {"architectures": ["BailingHybridForCausalLM"]} | keys, assume_defaults=True)
        )

    listed = ["dense"] + ["sparse"] * 4
    assert total(mlp_layer_types=listed, first_k_dense_replace=3) == total(first_k_dense_replace=1)


def test_the_table_of_classes_names_what_is_not_exact() -> None:
    from kvreport.catalog.class_check import ClassCheck
    from kvreport.resources import data_dir

    check = ClassCheck.read(data_dir())
    assert check is not None
    summary, odd, *_ = class_table.tables(check)
    total = summary.rows[-1].cells[0].value
    assert total == len(check.classes)
    named = {row.head.text: [cell.text for cell in row.cells] for row in odd.rows}
    assert {one.name for one in check.classes if one.status != "exact" or one.cache == "differs"} <= set(
        named
    )
    # Whatever differs says why, and a refusal names the nearest class that is read.
    assert [name for name, (_, reason) in named.items() if not reason] == []


def test_no_class_differs_without_a_reason() -> None:
    from kvreport.catalog.class_check import ClassCheck
    from kvreport.resources import data_dir

    check = ClassCheck.read(data_dir())
    assert check is not None
    assert [one.name for one in check.classes if one.followed_wrongly] == []
    different = [one for one in check.classes if "differs" in (one.status, one.small, one.cache)]
    assert [one.name for one in different if not one.note] == []
    assert len(check.classes) > 300
    assert all(one.nearest for one in check.classes if one.status == "refused")


def test_lists_by_layer_may_go_on_with_prediction_layers() -> None:
    """Some quantizers write the entries of prediction layers too (``indexer_types`` of GLM's NVFP4 copies)."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 256,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "max_position_embeddings": 512,
        "num_nextn_predict_layers": 1,
    }
    glm = config | {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
        "index_head_dim": 16,
        "index_n_heads": 2,
        "index_topk": 64,
        "first_k_dense_replace": 1,
        "indexer_types": ["full", "shared", "full"],
    }
    plain = read_config(glm, assume_defaults=True)
    longer = read_config(glm | {"indexer_types": ["full", "shared", "full", "full"]}, assume_defaults=True)
    assert plain.layers == longer.layers
    with pytest.raises(InputError, match="indexer_types: found 'a list of 5'"):
        read_config(glm | {"indexer_types": ["full"] * 5}, assume_defaults=True)


def test_routers_and_streams_keep_the_width_of_their_checkpoints() -> None:
    """MiniMax M2 stores its routers in float32; DeepSeek-V4 its hyper-connections, and its hash table in int64."""
    catalog = open_catalog()
    minimax = catalog.models["MiniMaxAI/MiniMax-M2.7"]
    assert sum(whole_row_bytes(minimax, catalog.weight_formats)) == pytest.approx(230_121_630_720, rel=1e-6)
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 512}
    for name, parts in (
        ("MiniMaxM2ForCausalLM", {"block_sparse_moe.gate": "fp32", "e_score_correction_bias": "fp32"}),
        ("DeepseekV4ForCausalLM", {"hc_attn_fn": "fp32", "hc_head_fn": "fp32", "tid2eid": "int64"}),
    ):
        model = read_config(sizes | {"architectures": [name]}, assume_defaults=True)
        for part, form in parts.items():
            found = {row.released for row in model.weights if part in row.name}
            assert found == {form}, (name, part)


ZAMBA2: dict[str, Any] = CONFIGS["any_model"]["ZAMBA2"]


@pytest.mark.parametrize(("stated", "width"), [({}, 160), ({"attention_head_dim": 80}, 80)])
def test_the_shared_attention_of_zamba2_has_the_stated_head_width(stated: dict[str, int], width: int) -> None:
    # transformers 5.23 derives it from the hidden size and takes a stated one all the same.
    model = read_config(ZAMBA2 | stated)
    assert {c.key_dim for group in model.layers for c in group.caches if c.kind == "full"} == {width}
    assert {row.shape[0] for row in model.weights if row.name.endswith("self_attn.q_proj.weight")} == {
        4 * width
    }


def test_cross_attention_of_dia_has_heads_of_its_own() -> None:
    encoder = {
        "head_dim": 32,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "vocab_size": 256,
    }
    decoder = encoder | {
        "cross_head_dim": 16,
        "cross_hidden_size": 64,
        "cross_num_attention_heads": 8,
        "cross_num_key_value_heads": 8,
        "max_position_embeddings": 512,
        "num_channels": 3,
    }
    config = {
        "architectures": ["DiaForConditionalGeneration"],
        "encoder_config": encoder,
        "decoder_config": decoder,
    }
    caches = read_config(config).layers[0].caches
    heads = {cache.kind: (cache.kv_heads, cache.key_dim) for cache in caches}  # type: ignore[union-attr]
    assert heads == {"full": (2, 32), "cross": (8, 16)}
