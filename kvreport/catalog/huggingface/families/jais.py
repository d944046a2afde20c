"""Jais 2: Llama's attention with LayerNorms, biases everywhere and an MLP without a gate."""

from __future__ import annotations

from typing import Final

from kvreport.catalog.huggingface.blueprint import Blueprint
from kvreport.catalog.huggingface.decoder import decoder, sizes
from kvreport.catalog.huggingface.dense import attention_layers, block
from kvreport.catalog.huggingface.keys import Keys
from kvreport.catalog.huggingface.registry import reads
from kvreport.catalog.huggingface.weights import plain_mlp

JAIS2: Final = {
    "attention_bias": True,
    "hidden_size": 3328,
    "intermediate_size": 26624,
    "max_position_embeddings": 8192,
    "mlp_bias": True,
    "num_attention_heads": 26,
    "num_hidden_layers": 32,
    "tie_word_embeddings": False,
    "vocab_size": 150272,
}


@reads("Jais2ForCausalLM", family="Jais 2", model_types=("jais2",), defaults=JAIS2)
def jais2(keys: Keys) -> Blueprint:
    """Squared ReLU instead of a gate, so the MLP has two matrices."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("attention_bias")
    mlp = plain_mlp(its.hidden, width, bias=keys.flag("mlp_bias"))
    tensors = block(its, mlp, norm_bias=True, qkv_bias=bias, output_bias=bias)
    return decoder(keys, its, attention_layers(its, tensors), norm_bias=True, intermediate=width)
