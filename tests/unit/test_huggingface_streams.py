"""Qwen4-Exp (Qwen3.8-Flash-Next), and Ling and Ring with linear attention.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source.
"""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.accounting.kv_cache import held
from kvreport.accounting.weights import active_parameters
from kvreport.catalog.caches import Indexer, Latent, RecurrentState
from kvreport.errors import InputError

PICKS = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
}
FLASH_NEXT = CONFIGS["huggingface_streams"]["FLASH_NEXT"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 2048, **PICKS}, 67_334_739_072),
        (
            {
                **PICKS,
                "hidden_size": 256,
                "num_hidden_layers": 8,
                "num_attention_heads": 8,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "vocab_size": 1000,
                "ple_layer_ids": [2],
                "ngram_vocab_size_base": 1000,
                "hc_lowrank": 32,
            },
            47_514_240,
        ),
    ],
)
def test_qwen4_has_the_parameters_of_its_class(config: dict[str, object], expected: int) -> None:
    assert total(read("Qwen4ExpForCausalLM", **config)) == expected


def test_qwen4_with_its_tower_and_its_table_of_n_grams() -> None:
    model = read("Qwen4ExpForConditionalGeneration", **FLASH_NEXT)
    assert total(model) == 177_392_830_576
    assert parts(model)["vision"] == 448_931_056
    # 16 hashed heads of the 16 primes from 20,000,003 on, padded to 128: 320,001,536 rows of 2,560 / 16.
    table = next(row for row in model.weights if "ngram_embedding" in row.name)
    assert table.shape == (320_001_536, 160)
    # A token looks up rows of it; the experts it meets are 10 of 512.
    assert active_parameters(model) < 177_392_830_576 - table.parameters - 110e9


def test_qwen4_has_a_prediction_layer_of_31_tensors_and_5_gb() -> None:
    """As a fork of SGLang says of the checkpoint, whose experts are fused into two tensors."""
    ahead = [
        row
        for row in read("Qwen4ExpForConditionalGeneration", **FLASH_NEXT).weights
        if row.component == "mtp"
    ]
    experts = [row for row in ahead if ".experts." in row.name]
    assert len(ahead) - len(experts) + 2 == 31
    assert sum(row.parameters for row in ahead) * 2 == 5_214_301_696
    # Its mixer reads the four streams, and its projections are shared between them.
    assert {"mtp.fc_hidden.weight", "mtp.hyper_connection_mixer.hc_norm.weight"} <= {
        row.name for row in ahead
    }
    without = FLASH_NEXT | {"text_config": FLASH_NEXT["text_config"] | {"mtp_num_hidden_layers": 0}}
    assert "mtp" not in parts(read("Qwen4ExpForConditionalGeneration", **without))


def test_qwen4_keeps_a_state_on_three_layers_and_keys_with_pooled_index_keys_on_the_fourth() -> None:
    model = read("Qwen4ExpForConditionalGeneration", **FLASH_NEXT)
    assert kinds(model)[:4] == ["state", "state+state", "state", "full+indexer"]
    assert kinds(model)[4:] == ["state", "state", "state", "full+indexer"] * 11
    # 12 layers x 2 heads x (256 + 256) x 2 B, and 128 x 2 B for every 4 tokens.
    profile = held(model)
    grown = int(profile.request_bytes(4000)) - int(profile.request_bytes(0))
    assert grown == 4000 * 12 * (2048 + 64)
    # 36 x (48 x 128 x 128 x 4 B + 10,240 x 3 x 2 B), and 9 columns of 4 x 2,560 before the n-grams' convolution.
    assert profile.constant_bytes == 36 * (3_145_728 + 61_440) + 9 * 10_240 * 2
    index = model.layers[-1].caches[1]
    assert isinstance(index, Indexer)
    assert (index.stride, index.top_k, index.scaled) == (4, 2048, False)
    assert "pooled" in " ".join(model.notes)


def test_qwen4_without_an_indexer_attends_to_everything() -> None:
    model = read("Qwen4ExpForCausalLM", hidden_size=2048)
    assert set(kinds(model)) == {"state", "full"}
    assert not model.notes or "pooled" not in " ".join(model.notes)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"ple_layer_ids": [4]}, "ple_layer_ids: found 4; allowed: layers of linear attention"),
        ({**PICKS, "indexer_kv_heads": 2}, "indexer_kv_heads: found 2"),
        ({"indexer_n_heads": 4}, "indexer_kv_heads: found nothing"),
        ({"ple_layer_ids": [1], "heads_per_ngram": 512}, "at most 512 hashed heads"),
        ({"ple_layer_ids": [1], "ple_embed_dim": 100}, "a multiple of n-gram heads (16)"),
        ({"layer_types": ["telepathy"] * 40}, "layer_types[0]: found 'telepathy'"),
    ],
)
def test_what_qwen4_cannot_be_is_named(keys: dict[str, object], named: str) -> None:
    with pytest.raises(InputError) as caught:
        read("Qwen4ExpForCausalLM", hidden_size=2048, **keys)
    assert named in str(caught.value)


def test_ling_3_has_the_parameters_of_its_class_and_the_routers_offsets() -> None:
    model = read("BailingHybridForCausalLM", hidden_size=2560)
    # The class holds the offsets of its 40 routers of 512 as buffers; the checkpoint stores them.
    assert total(model) == 124_414_191_072 + 40 * 512


def test_ling_3_is_delta_attention_with_a_latent_at_the_end_of_each_group() -> None:
    model = read("BailingMoeV3ForCausalLM", hidden_size=2560)
    assert kinds(model) == (["state"] * 5 + ["latent"]) * 7
    assert model.layers[1].caches == (Latent(latent_dim=512, rope_dim=64),)
    # 32 heads x 128 x 128 x 4 B, and 3 columns of 3 x 4,096 x 2 B.
    assert held(model).constant_bytes == 35 * (2_097_152 + 73_728)


def test_layers_after_the_last_whole_group_of_ling_3_attend() -> None:
    model = read("BailingMoeV3ForCausalLM", hidden_size=2560, num_hidden_layers=8, layer_group_size=3)
    assert kinds(model) == ["state", "state", "latent"] * 2 + ["latent", "latent"]


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        # Queries through a waist of 256 instead of a matrix of 6,144 x 2,560, on 7 layers.
        ({"q_lora_rank": 256}, 7 * (256 * 2560 + 256 + 6144 * 256 - 6144 * 2560)),
        # A gate for every element of every head instead of one for every head.
        ({"gated_attention_proj_granularity_type": "element_wise"}, 7 * (4096 - 32) * 2560),
        ({"gated_attention_proj_granularity_type": None}, -7 * 32 * 2560),
        # Decay and gate through a waist of a head's width, on 35 layers.
        ({"no_kda_lora": False}, 35 * 2 * (128 * 2560 + 4096 * 128 - 4096 * 2560)),
    ],
)
def test_what_a_config_of_ling_3_may_say_otherwise(keys: dict[str, object], more: int) -> None:
    plain = total(read("BailingMoeV3ForCausalLM", hidden_size=2560))
    assert total(read("BailingMoeV3ForCausalLM", hidden_size=2560, **keys)) == plain + more


def test_a_gate_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="gated_attention_proj_granularity_type: found 'row_wise'"):
        read("BailingMoeV3ForCausalLM", hidden_size=2560, gated_attention_proj_granularity_type="row_wise")


# What the published config.json of Ring-mini-linear-2.0 states of its shape.
RING_MINI_LINEAR = CONFIGS["huggingface_streams"]["RING_MINI_LINEAR"]


def test_ring_linear_is_lightning_attention_with_grouped_queries_on_every_fifth_layer() -> None:
    model = read("BailingMoeLinearV2ForCausalLM", **RING_MINI_LINEAR)
    assert kinds(model) == (["state"] * 4 + ["full"]) * 4
    # Published as 16.4 billion with 1.6 billion active.
    assert round(total(model) / 1e9, 1) == 16.4
    # One matrix of 16 x 128 x 128 in the model's type on 16 layers; 4 heads x (128 + 128) x 2 B on 4.
    profile = held(model)
    assert profile.constant_bytes == 16 * 16 * 128 * 128 * 2
    assert int(profile.request_bytes(1)) - profile.constant_bytes == 4 * 2048
    # Queries, keys and values of all heads (6,144), the gate, the way out, the norms.
    state = sum(row.parameters for row in model.weights if row.component == "recurrent")
    assert state == 16 * (6144 * 2048 + 2 * 2048 * 2048 + 2048)


def test_ling_2_5_puts_a_latent_where_ring_linear_has_grouped_queries() -> None:
    keys = {**RING_MINI_LINEAR, "q_lora_rank": 512, "kv_lora_rank": 256}
    del keys["num_key_value_heads"]
    model = read("BailingMoeV2_5ForCausalLM", **keys)
    assert kinds(model) == (["state"] * 4 + ["latent"]) * 4
    assert model.layers[1].caches == (Latent(latent_dim=256, rope_dim=64),)
    lightning = model.layers[0].caches[0]
    assert isinstance(lightning, RecurrentState)
    assert lightning.mechanism == "lightning"


def test_an_incomplete_group_of_lightning_attention_is_refused() -> None:
    # The maker's class lets the layers left over attend, vLLM's does not: no one answer is right.
    with pytest.raises(
        InputError, match="num_hidden_layers: found 22; allowed: a multiple of layer_group_size"
    ):
        read("BailingMoeLinearV2ForCausalLM", **{**RING_MINI_LINEAR, "num_hidden_layers": 22})
