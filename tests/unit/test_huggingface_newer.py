"""Apertus, Arcee, Nemotron-4, Helium, Trinity, Solar Open, Hunyuan 3, LongCat-Flash, OLMo Hybrid.

Totals are counts on the meta device with transformers 5.23.0 from the same configs, unless a comment
names another source.
"""

import pytest
from huggingface_configs import CONFIGS
from reading import kinds, parts, read, total

from kvreport.catalog.caches import Latent
from kvreport.errors import InputError

SMALL = {
    "hidden_size": 256,
    "intermediate_size": 300,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


def test_longcat_flash_has_its_published_parameters_without_the_experts_that_do_nothing() -> None:
    model = read("LongcatFlashForCausalLM", hidden_size=6144)
    # Published as 560 billion. transformers 5.23.0 builds 741,053,606,912, because it also allots gate and
    # up matrices to the 256 zero experts of each of the 28 layers; no checkpoint has those.
    assert total(model) == 741_053_606_912 - 28 * 256 * 2 * 2048 * 6144
    assert round(total(model) / 1e9) == 561
    # The router scores them all the same.
    assert parts(model)["router"] == 28 * (768 * 6144 + 768)


def test_longcat_flash_keeps_two_latents_in_each_of_28_layers() -> None:
    model = read("LongcatFlashForCausalLM", hidden_size=6144)
    assert model.layer_count == 28
    assert model.layers[0].caches == (Latent(latent_dim=512, rope_dim=64),) * 2
    assert read("LongcatFlashForCausalLM", num_hidden_layers=56).layer_count == 28


LING_MINI = CONFIGS["huggingface_newer"]["LING_MINI"]


@pytest.mark.parametrize(
    ("changes", "billions"),
    [
        # The maker's own names for the sizes: Ling-mini-2.0 (16B), Ling-flash-2.0 (103B), Ling-1T.
        ({}, 16.26),
        (
            {
                "hidden_size": 4096,
                "intermediate_size": 9216,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "moe_intermediate_size": 1024,
                "moe_shared_expert_intermediate_size": 1024,
            },
            102.89,
        ),
        (
            {
                "hidden_size": 8192,
                "intermediate_size": 18432,
                "num_attention_heads": 64,
                "num_hidden_layers": 80,
                "num_key_value_heads": 8,
                "moe_intermediate_size": 2048,
                "moe_shared_expert_intermediate_size": 2048,
                "first_k_dense_replace": 4,
            },
            999.71,
        ),
    ],
)
def test_ling_2_has_the_sizes_that_its_names_say(changes: dict[str, object], billions: float) -> None:
    assert round(total(read("BailingMoeV2ForCausalLM", **{**LING_MINI, **changes})) / 1e9, 2) == billions


def test_ling_says_which_of_its_layers_it_does_not_count() -> None:
    model = read("BailingMoeV2ForCausalLM", **LING_MINI, num_nextn_predict_layers=1)
    assert any("multi-token prediction" in note for note in model.notes)


def test_ling_without_a_dimension_is_refused() -> None:
    with pytest.raises(InputError, match="hidden_size"):
        read("BailingMoeForCausalLM", **{**LING_MINI, "hidden_size": None})


def test_trinity_reads_everything_on_every_fourth_layer() -> None:
    assert kinds(read("AfmoeForCausalLM", hidden_size=2048))[:8] == (["sliding"] * 3 + ["full"]) * 2


def test_olmo_hybrid_attends_on_every_fourth_layer() -> None:
    assert kinds(read("OlmoHybridForCausalLM", hidden_size=3840))[:8] == (["state"] * 3 + ["full"]) * 2
    assert kinds(read("OlmoHybridForCausalLM", num_hidden_layers=2)) == ["state", "full"]


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("LongcatFlashForCausalLM", {"num_hidden_layers": 55}, "num_hidden_layers"),
        (
            "AfmoeForCausalLM",
            {"hidden_size": 2048, "global_attn_every_n_layers": 0},
            "global_attn_every_n_layers",
        ),
        ("HYV3ForCausalLM", {"hidden_size": 4096, "mlp_layer_types": ["dense"]}, "mlp_layer_types"),
        ("OlmoHybridForCausalLM", {**SMALL, "linear_num_value_heads": 12}, "linear_num_value_heads"),
    ],
)
def test_a_bad_value_is_refused_by_name(architecture: str, keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)
