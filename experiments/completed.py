"""Default configs that make no model in transformers, completed by what every release of the class states."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from experiments.probing import config_class

_INDEXER: Final = {
    "indexer_n_heads": 32,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000.0, "partial_rotary_factor": 0.25},
}
_ROPE: Final = {"rope_type": "default", "rope_theta": 50_000.0}

COMPLETED: Final[dict[str, dict[str, Any]]] = {
    "aya_vision": {"vision_config.num_attention_heads": 16},
    "chameleon": {"vocabulary_map": {"<image>": 8711}},
    "cohere_compass": {"text_config.rope_parameters": {"full_attention": _ROPE}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE}},
    "dbrx": {"attn_config.rope_theta": 500_000.0},
    "deepseek_ocr2": {"text_config.mlp_layer_types": ["dense"] + ["sparse"] * 31},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2},
    "gemma4_assistant": {
        "text_config.hidden_size_per_layer_input": 0,
        "text_config.vocab_size_per_layer_input": 0,
    },
    "diffusion_gemma": {
        "text_config.num_experts": 128,
        "text_config.top_k_experts": 8,
        "text_config.moe_intermediate_size": 704,
    },
    "emu3": {
        "text_config.attention_bias": False,
        "text_config.mlp_bias": False,
        "vocabulary_map": {"<image>": 8711},
    },
    "granite4_vision": {
        "deepstack_layer_map": [[-19, 9], [-13, 6], [-7, 3], [-1, 0]],
        "downsample_rate": "4/8",
    },
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config.head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "conv", "full_attention"] * 8},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8},
    "qwen3_omni_moe": {
        "talker_config.spatial_merge_size": 2,
        "talker_config.text_config.shared_expert_intermediate_size": 768,
    },
    "qwen4_exp": {f"text_config.{name}": value for name, value in _INDEXER.items()},
    "qwen4_exp_text": _INDEXER,
}
"""Keys by dotted path, by model type."""


RUN_WITH: Final[dict[str, dict[str, Any]]] = {
    "bamba": {"attn_layer_indices": [1]},
    "blenderbot": {"max_position_embeddings": 512},
    "codegen": {"rotary_dim": 16},
    "dbrx": {"attn_config.clip_qkv": 8.0},
    "deepseek_ocr2": {"text_config.num_experts_per_tok": 2},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_group": 1, "n_group": 1},
    "dots1": {"num_experts_per_tok": 2, "topk_group": 1, "n_group": 1},
    "glm46v": {"text_config.rope_parameters.mrope_section": [16, 24, 24]},
    "glm4v": {"text_config.rope_parameters.mrope_section": [16, 24, 24]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba", "attention"]},
    "glmga": {"text_config.rope_parameters.mrope_section": [16, 24, 24]},
    "qwen2_5_omni": {"thinker_config.text_config.rope_parameters.mrope_section": [28, 42, 42]},
    "qwen2_5_omni_thinker": {"text_config.rope_parameters.mrope_section": [28, 42, 42]},
    "step3p7": {"text_config.sliding_window": 128},
    "xmod": {"default_language": "en_XX"},
}
"""What a small config is given to be run where its defaults cannot be: keys by dotted path, by model type."""


def default_config(name: str, model_type: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return a class's default config, completed where it makes no model.

    Args:
        name: The class.
        model_type: The model type under which transformers lists the class.

    Returns:
        The model type whose config class builds the class, the config, and the completed keys.
    """
    import transformers

    added = COMPLETED.get(model_type, {})
    sections: dict[str, Any] = {}
    for path, value in added.items():
        put(sections, path, value)
    listed = config_class(model_type)
    try:
        settings = listed()
        config = settings.to_dict()
    except Exception:
        if not added:
            raise
        settings = listed(**copy.deepcopy(sections))
        config = settings.to_dict()
    own = getattr(transformers, name).config_class
    try:
        text = settings.get_text_config()
    except ValueError:  # several sections may be meant (Musicgen)
        text = settings
    if own is not None and own.model_type != model_type and text is not settings and isinstance(text, own):
        # A decoder that is listed under the type of a model with images is built from the text section.
        return default_config(name, own.model_type)
    for path, value in added.items():
        put(config, path, value)
    return model_type, json.loads(json.dumps(config, default=str)), tuple(added)


def put(config: dict[str, Any], path: str, value: object) -> None:
    """Set a key of a config by its dotted path.

    Args:
        config: The config, changed in place.
        path: Names of sections and the key, with dots between.
        value: The key's value, of which a copy is set.
    """
    *sections, key = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[key] = copy.deepcopy(value)
