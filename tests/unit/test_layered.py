"""Decoders as listings of one layer: each can be read, is found by its names, and parts have conditions."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_configs import CONFIGS

from kvreport.accounting.weights import parameters
from kvreport.architectures import families, layered, listing, read_config
from kvreport.errors import InputError

SMALL: dict[str, Any] = CONFIGS["layered"]["SMALL"]
TERMS = {"if_used", "windows", "indexers", "latent", "mixtures", "nested_base", "nested_head", "outer", "predicts", "ties", "always", "base", "blocks", "context", "embed", "embedding_width", "every", "experts_if", "kind", "types", "types_in", "experts", "family", "final_norm", "head", "head_bias", "head_dim",
         "heads", "hidden", "kv", "kv_names", "layers", "listed", "norm_weight", "pattern", "per_token", "rotates", "sparse", "tie", "vocabulary",
         "width", "window"}  # fmt: skip


def test_every_listing_of_a_layer_has_words_that_are_read() -> None:
    for name in sorted(layered.index().texts):
        listed = layered.listing(name)
        assert listed.rows or listed.encoders, name
        known = TERMS | {"called_linear", "called_both", "called_conv", "called_picks"}
        assert set(listed.sizes) <= known, name
        assert all(line.kind in ("full", "indexer", "latent", "state") for line in listed.caches), name
        assert bool(listed.family) is name[0].isupper(), name


def test_what_code_builds_on_is_no_class() -> None:
    assert "gemma3" in layered.index().texts
    assert "gemma3" not in families.index().classes
    with pytest.raises(InputError, match="found 'gemma3'"):
        read_config({"architectures": ["gemma3"], **SMALL})


def test_classes_of_one_section_have_the_defaults_of_the_first() -> None:
    assert layered.index().first["SolarForCausalLM"] == "LlamaForCausalLM"
    models = [
        read_config({"architectures": [name]}, assume_defaults=True)
        for name in ("LlamaForCausalLM", "SolarForCausalLM")
    ]
    assert parameters(models[0]) == parameters(models[1])
    assert [model.architecture for model in models] == ["LlamaForCausalLM", "SolarForCausalLM"]


def test_a_part_has_a_condition_beside_those_of_its_rows() -> None:
    text = "part: attention_output *.self_attn.o_proj if sparse"
    weight, bias = listing.read_listing("Example", text).rows
    assert (weight.names, weight.condition) == (("*.self_attn.o_proj.weight",), "sparse")
    assert bias.condition == "(sparse) and (bias_out)"


def test_layers_that_the_config_lists_come_before_the_pattern_of_the_class() -> None:
    config = {**SMALL, "architectures": ["Cohere2ForCausalLM"], "sliding_window": 512}
    pattern = read_config(config)
    listed = read_config({**config, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]})
    assert [layer.name for layer in pattern.layers] == ["sliding window", "full attention"]
    assert [layer.name for layer in listed.layers] == ["full attention", "sliding window"]


def test_a_mixture_counts_what_its_layers_have() -> None:
    config = {
        **SMALL,
        "architectures": ["Qwen2MoeForCausalLM"],
        "decoder_sparse_step": 2,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 48,
    }
    model = read_config(config)
    counted = {
        component: sum(row.parameters for row in model.weights if row.component == component)
        for component in ("dense_mlp", "routed_experts", "shared_experts", "router")
    }
    assert counted == {
        "dense_mlp": 2 * 3 * 64 * 128,
        "routed_experts": 2 * 8 * 3 * 64 * 32,
        "shared_experts": 2 * (3 * 64 * 48 + 64),
        "router": 2 * 8 * 64,
    }


def test_a_class_of_text_gets_no_encoder_from_a_config_with_sections() -> None:
    flat = read_config({"architectures": ["Gemma2ForCausalLM"], **SMALL})
    nested = read_config({"architectures": ["Gemma2ForCausalLM"], "text_config": SMALL})
    assert parameters(flat) == parameters(nested)


HYBRID: dict[str, Any] = CONFIGS["layered"]["HYBRID"]


def test_layers_that_keep_a_state_have_the_caches_of_their_lines() -> None:
    model = read_config(HYBRID)
    assert [layer.name for layer in model.layers] == ["Mamba-2", "full attention"]
    (state,) = model.layers[0].caches
    conv, recurrent = state.tensors  # type: ignore[union-attr]
    assert (conv.channels, conv.columns, conv.groups, conv.channels_per_group) == (128, 3, 1, 32)
    assert (recurrent.channels, recurrent.columns) == (8, 16 * 16)


@pytest.mark.parametrize(("rank", "width"), [("auto", 4), (None, 4), (6, 6)])
def test_a_rank_that_is_not_a_number_follows_from_the_width(rank: object, width: int) -> None:
    config = {**HYBRID, "architectures": ["JambaForCausalLM"], "mamba_dt_rank": rank, "num_experts": 1}
    model = read_config(config, assume_defaults=True)
    (shape,) = (row.shape for row in model.weights if row.name.endswith("mamba.dt_layernorm.weight"))
    assert shape == (width,)


def test_a_note_is_there_where_its_condition_holds() -> None:
    config = {
        **SMALL,
        "architectures": ["MellumForCausalLM"],
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 512,
    }
    note = "Its layer for multi-token prediction is not counted."
    assert note not in read_config(config).notes
    assert note in read_config({**config, "num_mtp_layers": 1}).notes
