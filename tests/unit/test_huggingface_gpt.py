"""GPT-2's descendants, StarCoder, BLOOM, MPT and OPT."""

import pytest
from reading import kinds, read


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
