"""ChatGLM2, ChatGLM3 and GLM-4 as first published: multi-query groups, one matrix for gate and up."""

from __future__ import annotations

from kvreport.architectures.blueprint import Blueprint
from kvreport.architectures.decoder import Sizes, context, decoder, vocabulary
from kvreport.architectures.dense import attention_layers, fused_attention
from kvreport.architectures.keys import MAX_LAYERS, Keys
from kvreport.architectures.registry import reads
from kvreport.architectures.weights import linear, norms


@reads(
    "ChatGLMModel",
    "ChatGLMForConditionalGeneration",
    family="ChatGLM",
    model_types=("chatglm",),
)
def chatglm(keys: Keys) -> Blueprint:
    """Read the maker's own class; ``multi_query_group_num`` are its KV heads."""
    heads = keys.whole("num_attention_heads", high=1 << 14)
    grouped = keys.flag("multi_query_attention")
    kv_heads = keys.whole("multi_query_group_num", high=heads) if grouped else heads
    keys.divide("num_attention_heads", heads, "multi_query_group_num", kv_heads)
    its = Sizes(
        hidden=keys.whole("hidden_size"),
        layers=keys.whole("num_layers", "num_hidden_layers", high=MAX_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=keys.whole("kv_channels", high=1 << 16),
        vocabulary=vocabulary(keys, "padded_vocab_size"),
        context=context(keys),
    )
    width = keys.whole("ffn_hidden_size")
    bias = keys.flag("add_bias_linear")
    norm_bias = not keys.flag("rmsnorm")
    tensors = (
        *norms("input_layernorm", "post_attention_layernorm", width=its.hidden, bias=norm_bias),
        *fused_attention(
            its,
            "self_attention.query_key_value",
            "self_attention.dense",
            qkv_bias=bias or keys.flag("add_qkv_bias"),
            output_bias=bias,
        ),
        *linear("mlp.dense_h_to_4h", "dense_mlp", 2 * width, its.hidden, "columns", bias=bias),
        *linear("mlp.dense_4h_to_h", "dense_mlp", its.hidden, width, "rows", bias=bias),
    )
    return decoder(
        keys,
        its,
        attention_layers(its, tensors),
        base="transformer.encoder",
        embed="embedding.word_embeddings",
        final_norm="final_layernorm",
        norm_bias=norm_bias,
        norm_weight=keys.flag("post_layer_norm"),
        head="transformer.output_layer",
        head_bias=bias,
        intermediate=width,
    )
