"""Jais 2: Llama's attention with LayerNorms, biases everywhere and an MLP without a gate."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.families.apertus import ungated
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads


@reads("Jais2ForCausalLM", family="Jais 2", model_types=("jais2",))
def jais2(keys: Keys) -> Blueprint:
    """Squared ReLU instead of a gate, so the MLP has two matrices."""
    return ungated(keys, norm_bias=True)
