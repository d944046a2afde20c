"""Qwen4-Exp (Qwen3.8-Flash-Next), and Ling and Ring with linear attention.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source.
"""

from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.accounting.kv_cache import held
from kvreport.accounting.weights import active_parameters
from kvreport.catalog.caches import Indexer, Latent, RecurrentState

FLASH_NEXT = CONFIGS["huggingface_streams"]["FLASH_NEXT"]


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


def test_ling_3_is_delta_attention_with_a_latent_at_the_end_of_each_group() -> None:
    model = read("BailingMoeV3ForCausalLM", hidden_size=2560)
    assert kinds(model) == (["state"] * 5 + ["latent"]) * 7
    assert model.layers[1].caches == (Latent(latent_dim=512, rope_dim=64),)
    # 32 heads x 128 x 128 x 4 B, and 3 columns of 3 x 4,096 x 2 B.
    assert held(model).constant_bytes == 35 * (2_097_152 + 73_728)


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
