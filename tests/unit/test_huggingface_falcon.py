"""Falcon 1 and 2: how many KV heads its many spellings mean."""

import pytest
from reading import parts, read

from kvreport.catalog.caches import FullAttention
from kvreport.errors import InputError

FALCON_7B = {"hidden_size": 4544, "num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True}
FALCON_40B = {
    "hidden_size": 8192,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "num_hidden_layers": 60,
    "new_decoder_architecture": True,
    "multi_query": True,
}


def test_falcon_7b_parts_are_what_was_counted_by_component() -> None:
    assert parts(read("FalconForCausalLM", **FALCON_7B)) == {
        "embedding": 295_469_056,
        "attention": 1_340_080_128,
        "dense_mlp": 5_285_871_616,
        "norms": 299_904,
    }


def test_falcon_7b_states_71_kv_heads_and_has_one() -> None:
    # vLLM 0.33 and transformers 5.23 both keep one head of 64 in each of its 32 layers.
    model = read("FalconForCausalLM", **FALCON_7B)
    assert model.layers[0].caches == (FullAttention(kv_heads=1, key_dim=64, value_dim=64),)


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        (FALCON_40B, 8),
        ({"n_embed": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60}, 8),
        ({"hidden_size": 2048, "num_attention_heads": 32, "multi_query": False}, 32),
        ({"hidden_size": 8192, "num_attention_heads": 128, "new_decoder_architecture": True}, 128),
    ],
)
def test_each_spelling_means_its_own_number_of_kv_heads(keys: dict[str, object], heads: int) -> None:
    cache = read("FalconForCausalLM", **keys).layers[0].caches[0]
    assert isinstance(cache, FullAttention)
    assert cache.kv_heads == heads


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({**FALCON_40B, "num_kv_heads": 7}, "num_attention_heads"),
        ({**FALCON_40B, "num_kv_heads": 129}, "num_kv_heads"),
        ({**FALCON_7B, "hidden_size": 4545}, "hidden_size"),
        ({**FALCON_40B, "num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn"),
    ],
)
def test_a_bad_value_is_refused_by_name(keys: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read("FalconForCausalLM", **keys)
