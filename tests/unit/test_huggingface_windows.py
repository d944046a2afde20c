"""OLMo, Command and EXAONE: which layers slide, and their parameters."""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.catalog.caches import FullAttention, SlidingWindow
from kvreport.errors import InputError

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
EXAONE_4_32B = CONFIGS["huggingface_windows"]["EXAONE_4_32B"]


def test_command_r_plus_has_its_published_parameters() -> None:
    model = read(
        "CohereForCausalLM",
        hidden_size=12288,
        intermediate_size=33792,
        num_attention_heads=96,
        num_hidden_layers=64,
        num_key_value_heads=8,
        use_qk_norm=True,
    )
    assert total(model) == 103_810_674_688
    # One norm weight per query head and per key head, in every layer, on top of the usual norms.
    assert parts(model)["norms"] == 798_720 + 64 * (96 + 8) * 128


def test_exaone_3_5_has_its_published_parameters() -> None:
    model = read(
        "ExaoneForCausalLM",
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_layers=32,
        tie_word_embeddings=False,
    )
    # 2 x 102,400 x 4,096, and per layer 4,096 x (4,096 x 2 + 1,024 x 2 + 14,336 x 3) + 8,192, and the last norm.
    assert total(model) == 838_860_800 + 32 * 218_112_000 + 4096
    assert total(model) == 7_818_448_896


def test_olmo_1_has_no_norm_weights_at_all() -> None:
    assert "norms" not in parts(read("OlmoForCausalLM", hidden_size=4096))


def test_olmo_3_reads_everything_on_every_fourth_layer() -> None:
    model = read("Olmo3ForCausalLM", hidden_size=4096)
    # vLLM 0.33 plans 24 windows of 4,096 and 8 full layers, the first of them layer 3.
    assert [(g.count, g.layers) for g in model.layers][1] == (8, "3,7,11,15,19,23,27,31")
    assert model.layers[0].caches == (SlidingWindow(kv_heads=32, key_dim=128, value_dim=128, window=4096),)


def test_a_list_of_layer_types_wins_over_the_pattern() -> None:
    listed = ["full_attention", "sliding_attention"] * 3
    assert kinds(read("Olmo3ForCausalLM", **SMALL, layer_types=listed)) == ["full", "sliding"] * 3


def test_cohere_2_slides_three_layers_of_four_or_as_told() -> None:
    assert kinds(read("Cohere2ForCausalLM", **SMALL)) == ["sliding"] * 3 + ["full"] + ["sliding"] * 2
    told = read("Cohere2ForCausalLM", **SMALL, sliding_window_pattern=3)
    assert kinds(told) == ["sliding", "sliding", "full"] * 2


def test_cohere_2_mixtures_begin_their_pattern_behind_the_dense_layers() -> None:
    model = read("Cohere2MoeForCausalLM", **SMALL, first_k_dense_replace=2)
    # Two dense layers, each in full (a pattern of 1), then the pattern of 4 from its start.
    assert kinds(model) == ["full", "full", "sliding", "sliding", "sliding", "full"]


def test_exaone_4_reads_a_word_of_letters() -> None:
    model = read("Exaone4ForCausalLM", **EXAONE_4_32B)
    assert kinds(model) == (["sliding"] * 3 + ["full"]) * 16


def test_exaone_4_without_a_window_reads_everything() -> None:
    assert set(kinds(read("Exaone4ForCausalLM", **SMALL, sliding_window=None))) == {"full"}


def test_exaone_4s_windows_have_the_width_that_is_stated() -> None:
    model = read("Exaone4ForCausalLM", **{**EXAONE_4_32B, "sliding_window": 1024})
    assert model.layers[0].caches == (SlidingWindow(kv_heads=8, key_dim=128, value_dim=128, window=1024),)
    assert model.layers[1].caches == (FullAttention(kv_heads=8, key_dim=128, value_dim=128),)


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("Exaone4ForCausalLM", {**SMALL, "sliding_window_pattern": "LLX"}, "sliding_window_pattern"),
        ("Exaone4ForCausalLM", {**SMALL, "layer_types": ["full_attention"]}, "layer_types"),
        ("Olmo3ForCausalLM", {**SMALL, "layer_types": ["conv"] * 6}, "layer_types"),
        ("Cohere2ForCausalLM", {**SMALL, "sliding_window": -1}, "sliding_window"),
        ("CohereForCausalLM", {**SMALL, "use_qk_norm": 1}, "use_qk_norm"),
    ],
)
def test_a_bad_value_is_refused_by_name(architecture: str, keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)
