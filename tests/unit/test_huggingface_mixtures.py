"""Mixtures of experts with classes of their own, and those of ERNIE, OLMo, Command, EXAONE, Hunyuan.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source.
"""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.catalog.caches import FullAttention, Shared
from kvreport.errors import InputError

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
DBRX = CONFIGS["huggingface_mixtures"]["DBRX"]
HUNYUAN_LARGE = CONFIGS["huggingface_mixtures"]["HUNYUAN_LARGE"]


def test_olmoe_parts_are_what_was_counted_by_component() -> None:
    # Counted on the meta device with transformers 5.23.0 for allenai/OLMoE-1B-7B-0125.
    assert parts(read("OlmoeForCausalLM", hidden_size=2048, intermediate_size=1024, vocab_size=50304)) == {
        "embedding": 103_022_592,
        "output_head": 103_022_592,
        "attention": 268_435_456,
        "routed_experts": 6_442_450_944,
        "router": 2_097_152,
        "norms": 133_120,
    }


def test_dbrx_reads_its_sections() -> None:
    model = read("DbrxForCausalLM", **DBRX)
    assert model.layers[0].caches == (FullAttention(kv_heads=8, key_dim=128, value_dim=128),)
    assert model.experts is not None
    assert (model.experts.routed, model.experts.per_token) == (16, 4)
    assert model.context_tokens == 32768


def test_grok_1_is_its_eight_experts_and_little_else() -> None:
    model = read("Grok1ModelForCausalLM", hidden_size=6144)
    # 64 layers x 8 experts x 3 matrices of 32,768 x 6,144.
    assert parts(model)["routed_experts"] == 64 * 8 * 3 * 32_768 * 6_144
    assert model.layers[0].caches == (FullAttention(kv_heads=8, key_dim=128, value_dim=128),)


def test_hunyuan_large_keeps_every_second_layers_keys_only() -> None:
    model = read("HunYuanForCausalLM", **HUNYUAN_LARGE)
    assert [(group.count, group.layers[:5]) for group in model.layers] == [(32, "0,2,4"), (32, "1,3,5")]
    assert model.layers[0].caches == (FullAttention(kv_heads=8, key_dim=80, value_dim=80),)
    assert model.layers[1].caches == (Shared(reads="full"),)
    # Keys and values are projected in 32 layers, queries in 64.
    rows = {row.name.split(".")[-2]: row.count for row in model.weights if "self_attn" in row.name}
    assert (rows["q_proj"], rows["k_proj"], rows["v_proj"]) == (64, 32, 32)


def test_hunyuan_large_has_the_389_billion_parameters_that_were_published() -> None:
    # 64 layers x (16 routed + 1 shared) experts x 3 x 6,400 x 18,304 are 382.4 billion of them.
    model = read("HunYuanForCausalLM", **HUNYUAN_LARGE)
    found = parts(model)
    assert found["routed_experts"] + found["shared_experts"] == 64 * 17 * 3 * 6_400 * 18_304
    assert round(total(model) / 1e9) == 389


def test_a_share_factor_without_sharing_means_nothing() -> None:
    # As the published dense Hunyuan-7B has it.
    model = read("HunYuanDenseV1ForCausalLM", **SMALL, cla_share_factor=2)
    assert kinds(model) == ["full"] * 6


def test_hunyuan_takes_numbers_per_layer() -> None:
    model = read(
        "HunYuanMoEV1ForCausalLM",
        **SMALL,
        num_experts=[4] * 6,
        moe_topk=[2] * 6,
        moe_intermediate_size=[100, 100, 100, 200, 200, 200],
        num_shared_expert=[1] * 6,
        moe_layer_num_skipped=1,
    )
    # Two mixtures of width 100 and three of width 200; the first layer is dense.
    assert parts(model)["routed_experts"] == 4 * 3 * 256 * (2 * 100 + 3 * 200)
    assert parts(model)["dense_mlp"] == 3 * 256 * 300
    assert parts(model)["shared_experts"] == 5 * 3 * 256 * 300


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("Dots1ForCausalLM", SMALL, "n_routed_experts"),
        ("DbrxForCausalLM", {**DBRX, "attn_config": {"kv_n_heads": 7}}, "num_attention_heads"),
        ("DbrxForCausalLM", {**DBRX, "ffn_config": 3}, "ffn_config"),
        ("HunYuanMoEV1ForCausalLM", {**SMALL, "num_experts": [4, 4]}, "num_experts"),
        ("OlmoeForCausalLM", {**SMALL, "num_experts_per_tok": 65}, "num_experts_per_tok"),
    ],
)
def test_a_bad_value_is_refused_by_name(architecture: str, keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)
