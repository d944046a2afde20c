"""ggml's names for tensors: what a checkpoint's module path becomes in a GGUF file.

After ``gguf-py/gguf/tensor_mapping.py`` and ``conversion/*.py`` of llama.cpp 0c1e57098. The roles decide the
type in a quantization mix and the device; a path that no rule knows keeps its last part as its role.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kvreport.catalog.model import Component

_RULES: Final[tuple[tuple[Component | None, str, str], ...]] = (
    ("embedding", r".", "token_embd"),
    ("output_head", r".", "output"),
    (None, r"embed_tokens_per_layer$", "per_layer_token_embd"),
    (None, r"per_layer_model_projection$", "per_layer_model_proj"),
    (None, r"per_layer_projection_norm$", "per_layer_proj_norm"),
    (None, r"per_layer_input_gate$", "inp_gate"),
    (None, r"per_layer_projection$", "proj"),
    (None, r"post_per_layer_input_norm$", "post_norm"),
    (None, r"ngram_embedding$", "per_layer_token_embd"),
    (None, r"wpe$", "position_embd"),
    ("routed_experts", r"(gate_up_proj|input_linear)$", "ffn_gate_up_exps"),
    ("routed_experts", r"(gate_proj|w1|linear)$", "ffn_gate_exps"),
    ("routed_experts", r"(up_proj|w3|v1|linear_v)$", "ffn_up_exps"),
    ("routed_experts", r"(down_proj|w2|linear_1|output_linear)$", "ffn_down_exps"),
    ("shared_experts", r"shared_expert_gate$", "ffn_gate_inp_shexp"),
    ("shared_experts", r"input_linear$", "ffn_gate_up_shexp"),
    ("shared_experts", r"(gate_proj|w1)$", "ffn_gate_shexp"),
    ("shared_experts", r"(up_proj|w3)$", "ffn_up_shexp"),
    ("shared_experts", r"(down_proj|w2|output_linear)$", "ffn_down_shexp"),
    ("router", r"(bias|statics)", "exp_probs_b"),
    ("router", r".", "ffn_gate_inp"),
    ("dense_mlp", r"(gate_up_proj|dense_h_to_4h|(^|\.)h\.\*\.mlp\.w1)$", "ffn_up"),
    ("dense_mlp", r"(^|\.)h\.\*\.mlp\.w2$", "ffn_gate"),
    ("dense_mlp", r"(gate_proj|w1|c_fc_0)$", "ffn_gate"),
    ("dense_mlp", r"(up_proj|w3|c_fc|c_fc_1|fc1|fc_in|key)$", "ffn_up"),
    ("dense_mlp", r"(down_proj|c_proj|dense_4h_to_h|fc2|fc_out|w2|value)$", "ffn_down"),
    ("attention", r"indexer\.wq_b$", "indexer.attn_q_b"),
    ("attention", r"indexer\.wk$", "indexer.attn_k"),
    ("attention", r"indexer\.weights_proj$", "indexer.proj"),
    ("attention", r"index_q_proj$", "indexer.q_proj"),
    ("attention", r"index_k_proj$", "indexer.k_proj"),
    ("attention", r"(qkv_proj|query_key_value|Wqkv|wqkv|c_attn|W_pack)$", "attn_qkv"),
    ("attention", r"(q_a_proj|wq_a)$", "attn_q_a"),
    ("attention", r"(q_b_proj|wq_b)$", "attn_q_b"),
    ("attention", r"kv_a_proj_with_mqa$", "attn_kv_a_mqa"),
    ("attention", r"kv_b_proj$", "attn_kv_b"),
    ("attention", r"(q_proj|wq)$", "attn_q"),
    ("attention", r"(k_proj|wk)$", "attn_k"),
    ("attention", r"(v_proj|wv)$", "attn_v"),
    ("attention", r"(o_proj|out_proj|dense|wo|c_proj)$", "attn_output"),
    ("attention", r"(g_proj|gate_proj|output_gate)$", "attn_gate"),
    ("attention", r"sink", "attn_sinks"),
    ("norms", r"indexer\.k_norm$", "indexer.k_norm"),
    ("norms", r"(attn|attention)\.(q_norm|q_layernorm|query_layernorm)$", "attn_q_norm"),
    ("norms", r"(attn|attention)\.(k_norm|k_layernorm|key_layernorm)$", "attn_k_norm"),
    ("norms", r"q_a_layernorm$", "attn_q_a_norm"),
    ("norms", r"kv_a_layernorm$", "attn_kv_a_norm"),
    ("norms", r"(post_self_attn_layernorm|post_attn_norm)$", "post_attention_norm"),
    ("norms", r"(post_feedforward_layernorm|post_mlp_layernorm|post_moe_norm)$", "post_ffw_norm"),
    ("norms", r"post_feedforward_layernorm_\d$", "post_ffw_norm_x"),
    ("norms", r"(pre_feedforward_layernorm|pre_ff_layernorm|ffn_norm|ln_2|norm_2|ln_mlp|pre_moe_norm)$", "ffn_norm"),
    ("norms", r"pre_feedforward_layernorm_2$", "pre_ffw_norm_2"),
    ("norms", r"post_attention_layernorm$", "second_norm"),
    ("norms", r"(^|\.)(final_layernorm|norm|norm_f|ln_f|final_norm|embedding_norm|final_layer_norm|ln_out)$", "attn_norm"),
    ("norms", r"(input_layernorm|attention_norm|ln_1|norm_1|ln_attn|operator_norm|pre_attn_norm|attn_norm)$", "attn_norm"),
    ("recurrent", r"conv1d|conv\.conv|conv_1d", "ssm_conv1d"),
    ("recurrent", r"conv\.in_proj$", "shortconv.in_proj"),
    ("recurrent", r"conv\.out_proj$", "shortconv.out_proj"),
    ("recurrent", r"in_proj_qkvz$", "ssm_qkvz"),
    ("recurrent", r"in_proj_ba$", "ssm_ba"),
    ("recurrent", r"(in_proj_qkv|qkv_proj|query_key_value)$", "attn_qkv"),
    ("recurrent", r"(in_proj_z|output_gate)$", "attn_gate"),
    ("recurrent", r"in_proj_a$", "ssm_alpha"),
    ("recurrent", r"(in_proj_b|(^|\.)b_proj)$", "ssm_beta"),
    ("recurrent", r"in_proj", "ssm_in"),
    ("recurrent", r"x_proj$", "ssm_x"),
    ("recurrent", r"dt_proj$", "ssm_dt"),
    ("recurrent", r"(linear_attn|mamba|mixer)\.out_proj$", "ssm_out"),
    ("recurrent", r"(q_proj)$", "attn_q"),
    ("recurrent", r"(k_proj)$", "attn_k"),
    ("recurrent", r"(v_proj)$", "attn_v"),
    ("recurrent", r"(o_proj|out_proj|dense)$", "attn_output"),
    ("recurrent", r"f_a_proj$", "ssm_f_a"),
    ("recurrent", r"f_b_proj$", "ssm_f_b"),
    ("recurrent", r"g_a_proj$", "ssm_g_a"),
    ("recurrent", r"g_b_proj$", "ssm_g_b"),
    ("recurrent", r"norm$", "ssm_norm"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def role_of(path: str, component: Component) -> str:
    """Name a tensor as ggml does, without layer number and without ``.weight``.

    ``path``: module path of a weight group, ``*`` for numbers; or a name of a GGUF file. ``component``:
    what the weight is for.
    """
    if path.startswith("blk.*."):
        return path.removeprefix("blk.*.").removesuffix(".weight")
    if path in ("token_embd.weight", "output.weight", "output_norm.weight", "per_layer_token_embd.weight"):
        return path.removesuffix(".weight")
    stem = path.removesuffix(".weight").removesuffix(".bias")
    for wanted, pattern, role in _RULES:
        if wanted in (None, component) and re.search(pattern, stem):
            return f"{role}.bias" if path.endswith(".bias") else role
    return stem.rpartition(".")[2]
