"""GPT-2's descendants, StarCoder, BLOOM, MPT and OPT."""

import pytest
from reading import kinds, parts, read

from kvreport.catalog.caches import FullAttention
from kvreport.errors import InputError


def test_gpt2_parts_are_what_was_counted_by_component() -> None:
    # Counted on the meta device with transformers 5.23.0 for openai-community/gpt2.
    assert parts(read("GPT2LMHeadModel")) == {
        "embedding": 38_597_376,
        "attention": 28_348_416,
        "dense_mlp": 56_669_184,
        "norms": 38_400,
        "other": 786_432,
    }


def test_starcoder_keeps_one_head_for_all_its_queries() -> None:
    model = read("GPTBigCodeForCausalLM", n_embd=6144, n_head=48, n_layer=40, n_positions=8192)
    # vLLM 0.33 gives every layer of bigcode/starcoder one KV head of 128.
    assert model.layers[0].caches == (FullAttention(kv_heads=1, key_dim=128, value_dim=128),)
    assert model.context_tokens == 8192


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
    assert any("states no limit to the context" in note for note in model.notes)
    assert not read("BloomForCausalLM", seq_length=4096).notes[0].startswith("The config states no limit")


@pytest.mark.parametrize(
    ("attention", "heads"),
    [
        ({"attn_type": "multihead_attention"}, 16),
        ({"attn_type": "multiquery_attention"}, 1),
        ({"attn_type": "grouped_query_attention", "kv_n_heads": 4}, 4),
    ],
)
def test_mpt_tells_its_kv_heads_by_the_type_of_attention(attention: dict[str, object], heads: int) -> None:
    cache = read("MptForCausalLM", attn_config=attention).layers[0].caches[0]
    assert isinstance(cache, FullAttention)
    assert cache.kv_heads == heads


@pytest.mark.parametrize(
    ("architecture", "keys", "field"),
    [
        ("MptForCausalLM", {"no_bias": False}, "no_bias"),
        ("MptForCausalLM", {"attn_config": {"alibi": False}}, "alibi"),
        ("MptForCausalLM", {"attn_config": {"attn_type": "other"}}, "attn_type"),
        ("GPT2LMHeadModel", {"add_cross_attention": True}, "add_cross_attention"),
        ("GPT2LMHeadModel", {"n_head": 7}, "n_embd"),
        ("OPTForCausalLM", {"ffn_dim": -1}, "ffn_dim"),
    ],
)
def test_what_the_class_cannot_be_is_refused_by_name(
    architecture: str, keys: dict[str, object], field: str
) -> None:
    with pytest.raises(InputError, match=field):
        read(architecture, **keys)
