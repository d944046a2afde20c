"""Nomic's encoders as their makers write them: GPT-2's names for sizes, and a mixture in every second layer of v2.

transformers 5 has the class too, for its own names of sizes (``listings/encoders.txt``).
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Blueprint, Layer
from kvreport.architectures.keys import MAX_CONTEXT, MAX_EXPERTS, MAX_LAYERS, MAX_VOCABULARY, Keys
from kvreport.architectures.listed import NOTHING_KEPT, read_listed
from kvreport.architectures.listing import listing
from kvreport.architectures.parts import part
from kvreport.architectures.registry import reads
from kvreport.architectures.tensor_builders import norm
from kvreport.architectures.variants import NOTE

_ACTIVATIONS: Final = ("swiglu", "gelu")


@reads("NomicBertModel", family="NomicBert", model_types=("nomic_bert",))
def nomic_bert(keys: Keys) -> Blueprint:
    """An encoder with rotary positions (vLLM 0.33, ``bert_with_rope.py`` and ``NomicBertModelConfig``)."""
    if not keys.has("n_embd"):
        return read_listed(listing("NomicBertModel"), keys)
    hidden, inner = keys.whole("n_embd"), keys.whole("n_inner")
    heads, layers = keys.whole("n_head", high=1 << 12), keys.whole("n_layer", high=MAX_LAYERS)
    words = keys.whole("vocab_size", high=MAX_VOCABULARY)
    types = keys.whole("type_vocab_size", low=0, high=1 << 16)
    activation = keys.text("activation_function")
    if activation not in _ACTIVATIONS:
        raise keys.fault("activation_function", activation, " or ".join(_ACTIVATIONS))
    bias = keys.flag("qkv_proj_bias")
    for name in ("mlp_fc1_bias", "mlp_fc2_bias"):
        if keys.flag(name) is not bias:
            raise keys.fault(name, not bias, f"{str(bias).lower()}, as qkv_proj_bias")
    attention = part("nomic_attention", keys, bias=bias)
    dense = part("nomic_mlp", keys, gated=activation == "swiglu", bias=bias)
    every = keys.whole("moe_every_n_layers", default=0, low=0, high=MAX_LAYERS)
    experts, mixed = None, dense
    if every:
        routed = keys.whole("num_experts", high=MAX_EXPERTS)
        experts = (routed, keys.whole("moe_top_k", high=routed))
        mixed = part("nomic_mixture", keys)
    return Blueprint(
        hidden_size=hidden,
        attention_heads=heads,
        vocabulary=words,
        context_tokens=keys.whole("n_positions", high=MAX_CONTEXT),
        layers=[
            Layer(NOTHING_KEPT, (), (*attention, *(mixed if every and index % every == 1 else dense)))
            for index in range(layers)
        ],
        outer=[
            *part("nomic_embeddings", keys, "embeddings", types=types),
            *norm("emb_ln", hidden, bias=True),
        ],
        prefix="encoder.layers",
        intermediate_size=inner,
        experts=experts,
        notes=[NOTE],
    )
