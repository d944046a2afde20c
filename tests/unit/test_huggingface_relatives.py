"""Classes that changed Llama's layout a little: Baichuan, InternLM, ChatGLM, MiniCPM, ERNIE and others.

Totals are counts on the meta device with transformers 5.23.0, or of vLLM 0.33 where that is said, or
the parameter totals that the makers published.
"""

from reading import read, total

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
