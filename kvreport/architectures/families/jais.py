"""Jais 2: Llama's attention with LayerNorms, biases everywhere and an MLP without a gate."""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families.apertus import ungated
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads

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
    return ungated(keys, norm_bias=True)
