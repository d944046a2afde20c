"""What the table of readings has no words for: rows of weights, and two readings beside each other."""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.catalog.caches import FullAttention, Shared

HUNYUAN_LARGE = CONFIGS["huggingface_mixtures"]["HUNYUAN_LARGE"]


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


SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


def test_internlm3_switches_its_biases_one_by_one() -> None:
    keys = {**SMALL, "head_dim": 32}
    none = total(read("InternLM3ForCausalLM", **keys))
    # Queries 256, keys 64, values 64 in each of 6 layers.
    assert total(read("InternLM3ForCausalLM", **keys, qkv_bias=True)) - none == 6 * (256 + 64 + 64)
    # Output 256; gate 300, up 300, down 256.
    assert total(read("InternLM3ForCausalLM", **keys, bias=True)) - none == 6 * (256 + 300 + 300 + 256)


TEXT = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 160000,
}


def test_a_text_parts_tensors_have_the_paths_of_the_whole_checkpoint() -> None:
    model = read("InternVLForConditionalGeneration", text_config={**TEXT, "model_type": "qwen2"})
    names = {row.name for row in model.weights}
    assert "language_model.model.layers.*.self_attn.q_proj.weight" in names
    assert "language_model.model.embed_tokens.weight" in names


def test_a_fused_matrix_is_divided_by_the_heads_of_each_part() -> None:
    model = read("GPTBigCodeForCausalLM")
    fused = [row for row in model.weights if row.name.endswith("c_attn.weight")]
    assert [(row.shape, row.split, row.heads) for row in fused] == [
        ((768, 768), "heads", 12),
        ((128, 768), "kv_heads", 1),
    ]


@pytest.mark.parametrize(("window", "kind"), [(None, "full"), (0, "full"), (4096, "sliding")])
def test_starcoder2_slides_on_every_layer_or_on_none(window: int | None, kind: str) -> None:
    assert set(kinds(read("Starcoder2ForCausalLM", vocab_size=49152, sliding_window=window))) == {kind}


def test_opt_350m_has_an_embedding_narrower_than_its_layers() -> None:
    model = read("OPTForCausalLM", hidden_size=1024, word_embed_proj_dim=512, num_attention_heads=16)
    embedding = next(row for row in model.weights if row.component == "embedding")
    assert embedding.shape == (50272, 512)


def test_bloom_says_that_its_context_was_not_stated() -> None:
    model = read("BloomForCausalLM")
    assert model.context_tokens == 2048
    assert any("states no context limit" in note for note in model.notes)
    assert (
        not read("BloomForCausalLM", seq_length=4096)
        .notes[0]
        .startswith("The config states no context limit")
    )
