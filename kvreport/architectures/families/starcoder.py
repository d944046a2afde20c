"""StarCoder2: grouped queries, LayerNorms, biases, a window on every layer in some sizes."""

from __future__ import annotations

from kvreport.architectures.attention import Kind, window
from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import decoder, sizes
from kvreport.architectures.dense import attention_layers, block
from kvreport.architectures.keys import Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import plain_mlp


@reads("Starcoder2ForCausalLM", family="StarCoder2", model_types=("starcoder2",))
def starcoder2(keys: Keys) -> Blueprint:
    """Every layer slides if the config has a window at all."""
    its = sizes(keys)
    width = keys.whole("intermediate_size")
    bias = keys.flag("use_bias")
    mlp = plain_mlp(its.hidden, width, names=("c_fc", "c_proj"), bias=bias)
    tensors = block(its, mlp, norm_bias=True, qkv_bias=bias, output_bias=bias)
    kinds: list[Kind] = ["sliding"] * its.layers
    layers = attention_layers(its, tensors, kinds, window(keys))
    return decoder(keys, its, layers, norm_bias=True, intermediate=width)
