"""Classes that changed Llama's layout a little: Baichuan, InternLM, ChatGLM, MiniCPM, ERNIE and others.

Totals are counts on the meta device with transformers 5.23.0, or of vLLM 0.33 where that is said, or
the parameter totals that the makers published.
"""

import pytest
from reading import kinds, parts, read, total

from kvreport.catalog.caches import FullAttention, Latent
from kvreport.errors import InputError

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


def test_jais2_parts_are_what_was_counted_by_component() -> None:
    assert parts(read("Jais2ForCausalLM", vocab_size=150272)) == {
        "embedding": 500_105_216,
        "output_head": 500_105_216,
        "attention": 1_418_100_736,
        "dense_mlp": 5_671_657_472,
        "norms": 432_640,
    }


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        # The parameter totals that the checkpoints' pages give.
        ("BaichuanForCausalLM", {"vocab_size": 125696}, 7_505_973_248),
        ("InternLMForCausalLM", {"vocab_size": 103168}, 7_321_948_160),
        ("QWenLMHeadModel", {"vocab_size": 151936}, 7_721_324_544),
        # vLLM 0.33's own count of the text model.
        ("OrionForCausalLM", {"vocab_size": 84608}, 14_498_703_360),
        (
            "InternLM2ForCausalLM",
            {"vocab_size": 92544, "intermediate_size": 14336, "num_key_value_heads": 8, "bias": False},
            7_737_708_544,
        ),
        (
            "ChatGLMModel",
            {
                "hidden_size": 4096,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
                "add_qkv_bias": True,
            },
            6_243_584_000,
        ),
    ],
)
def test_parameters_equal_the_published_totals(
    architecture: str, keys: dict[str, object], expected: int
) -> None:
    assert total(read(architecture, **keys)) == expected


def test_minicpm_2b_equals_vllms_count_before_its_padding() -> None:
    model = read(
        "MiniCPMForCausalLM",
        hidden_size=2304,
        intermediate_size=5760,
        num_attention_heads=36,
        num_hidden_layers=40,
        num_key_value_heads=36,
        vocab_size=122760,
        tie_word_embeddings=False,
    )
    # vLLM 0.33 counts 3,007,994,112 with both vocabulary matrices padded from 122,760 to 122,816 rows.
    assert total(model) == 3_007_994_112 - 2 * (122_816 - 122_760) * 2304


def test_minicpm_with_experts_is_a_mixture() -> None:
    model = read("MiniCPMForCausalLM", **SMALL, num_experts=4, num_experts_per_tok=2)
    assert model.experts is not None
    assert model.experts.routed == 4
    # 6 layers x 4 experts x 3 matrices of 300 x 256.
    assert parts(model)["routed_experts"] == 6 * 4 * 3 * 300 * 256


def test_chatglm_counts_its_kv_heads_by_groups_only_if_it_groups() -> None:
    grouped = read("ChatGLMModel", hidden_size=4096, multi_query_attention=True, multi_query_group_num=2)
    plain = read("ChatGLMModel", hidden_size=4096, multi_query_group_num=2)
    assert grouped.layers[0].caches == (FullAttention(kv_heads=2, key_dim=128, value_dim=128),)
    assert plain.layers[0].caches == (FullAttention(kv_heads=32, key_dim=128, value_dim=128),)


def test_qwen_1_halves_the_width_that_it_states() -> None:
    model = read(
        "QWenLMHeadModel",
        vocab_size=151936,
        intermediate_size=22016,
        seq_length=8192,
        max_position_embeddings=32768,
    )
    assert model.intermediate_size == 11008
    assert model.context_tokens == 8192


def test_minicpm3_keeps_one_latent_of_288_elements() -> None:
    model = read("MiniCPM3ForCausalLM", vocab_size=73448)
    assert model.layers[0].caches == (Latent(latent_dim=256, rope_dim=32),)
    assert model.layer_count == 62


def test_internlm3_switches_its_biases_one_by_one() -> None:
    keys = {**SMALL, "head_dim": 32}
    none = total(read("InternLM3ForCausalLM", **keys))
    # Queries 256, keys 64, values 64 in each of 6 layers.
    assert total(read("InternLM3ForCausalLM", **keys, qkv_bias=True)) - none == 6 * (256 + 64 + 64)
    # Output 256; gate 300, up 300, down 256.
    assert total(read("InternLM3ForCausalLM", **keys, bias=True)) - none == 6 * (256 + 300 + 300 + 256)


def test_smollm3_slides_only_where_it_has_no_positions_and_only_if_told() -> None:
    assert set(kinds(read("SmolLM3ForCausalLM", vocab_size=128256, sliding_window=512))) == {"full"}
    sliding = kinds(
        read("SmolLM3ForCausalLM", vocab_size=128256, sliding_window=512, use_sliding_window=True)
    )
    assert [index for index, kind in enumerate(sliding) if kind == "sliding"] == list(range(3, 36, 4))


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("QWenLMHeadModel", {"intermediate_size": 22017}, "intermediate_size"),
        ("ChatGLMModel", {"multi_query_attention": True, "multi_query_group_num": 5}, "num_attention_heads"),
        ("InternLM2ForCausalLM", {"bias": "yes"}, "bias"),
        ("XverseForCausalLM", {"hidden_size": None, "num_attention_heads": 0}, "num_attention_heads"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ],
)
def test_a_bad_value_is_refused_by_name(architecture: str, keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)
