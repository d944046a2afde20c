"""What configs of some classes must hold besides their sizes: lists by layer, sections, words."""

from __future__ import annotations

from typing import Any, Final

_PLAIN: Final = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
_BAILING: Final = {**_PLAIN, "intermediate_size": 512, "num_experts": 8, "moe_intermediate_size": 64}
_SPARSE: Final = ["dense", "sparse", "sparse", "sparse"]
_MIXED: Final = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
_BLOCK: Final = {
    "attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False},
    "ffn": {"ffn_mult": 2.0, "no_op": False, "replace_with_linear": False},
}

_MIXTURE: Final = {
    **_PLAIN,
    "intermediate_size": 512,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
_STEP_3: Final = {
    **_PLAIN,
    "intermediate_size": 512,
    "num_attention_groups": 1,
    "head_dim": 64,
    "share_q_dim": 128,
    "moe_num_experts": 8,
    "moe_top_k": 2,
    "moe_intermediate_size": 64,
    "share_expert_dim": 64,
    "moe_layers_enum": "1,2,3",
    "max_position_embedding": 4096,
}
_OCR: Final = {**_MIXTURE, "num_key_value_heads": 4, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0}

STARTS: Final[dict[str, dict[str, Any]]] = {
    "AXK2ForCausalLM": {"num_hidden_layers": 4, "mlp_layer_types": _SPARSE},
    "BailingMoeForCausalLM": _BAILING,
    "BailingMoeLinearForCausalLM": {**_BAILING, "layer_group_size": 2},
    "BailingMoeLinearV2ForCausalLM": {**_BAILING, "layer_group_size": 2},
    "BailingMoeV2ForCausalLM": _BAILING,
    "BailingMoeV2_5ForCausalLM": {**_BAILING, "layer_group_size": 2},
    "BeamForCausalLM": {"num_hidden_layers": 4, "layer_types": _MIXED, "mlp_layer_types": _SPARSE},
    "CanaryForConditionalGeneration": {"decoder_config": {"architectures": None}},
    "DeciLMForCausalLM": {**_PLAIN, "num_hidden_layers": 2, "block_configs": [_BLOCK, _BLOCK]},
    "DeepseekForCausalLM": {
        **_PLAIN,
        "intermediate_size": 512,
        "n_routed_experts": 8,
        "moe_intermediate_size": 64,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "DeepseekOCR2ForCausalLM": {
        "language_config": {**_OCR, "architectures": ["DeepseekV2ForCausalLM"]},
        "projector_config": {"input_dim": 896, "n_embed": 256, "projector_type": "linear"},
        "vision_config": {"model_name": "deepencoderv2"},
    },
    "DeepseekOCRForCausalLM": {
        "language_config": {**_OCR, "architectures": ["DeepseekV2ForCausalLM"]},
        "projector_config": {"input_dim": 2048, "n_embed": 256, "projector_type": "linear"},
        "vision_config": {"model_name": "deeplip_b_l"},
    },
    "DeepseekOcr2ForConditionalGeneration": {"text_config": _MIXTURE},
    "DiaForConditionalGeneration": {"decoder_config": {"architectures": None}},
    "DFlashDraftModel": {**_PLAIN, "intermediate_size": 512},
    "DFlash2DraftModel": {
        **_PLAIN,
        "intermediate_size": 512,
        "dflash_config": {"conv_kernel_size": 4, "conv_group_size": 32, "selector_rank": 16},
    },
    "DominoDraftModel": {
        **_PLAIN,
        "intermediate_size": 512,
        "dflash_config": {"emb_dim": 32, "gru_hidden_dim": 64},
    },
    "Dots1ForCausalLM": {"n_routed_experts": 8, "n_shared_experts": 1},
    "Eagle3DeepseekV2ForCausalLM": {
        **_PLAIN,
        "num_hidden_layers": 1,
        "intermediate_size": 512,
        "kv_lora_rank": 64,
        "q_lora_rank": 64,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
    },
    "Eagle3Qwen3ForCausalLM": {**_PLAIN, "num_hidden_layers": 1, "intermediate_size": 512},
    "EagleLlamaForCausalLM": {**_PLAIN, "intermediate_size": 512},
    "FastVlmForConditionalGeneration": {
        "vision_config": {"model_args": {"inference_mode": True}},
        "text_config": {"hidden_size": 3584, "num_hidden_layers": 28},
    },
    "FlintForCausalLM": {"num_hidden_layers": 4, "layer_types": _MIXED},
    "Granite4VisionForConditionalGeneration": {
        "text_config": {"model_type": "granite"},
        "deepstack_layer_map": [[3, 0], [6, 2]],
        "downsample_rate": "1/2",
    },
    "PanguEmbeddedForCausalLM": {**_PLAIN, "intermediate_size": 512},
    "K2HorizonForCausalLM": {
        **_PLAIN,
        "intermediate_size": 512,
        "max_position_embeddings": 4096,
        "mlp_only_layers": [0],
        "moe_intermediate_size": 128,
        "mova_num_experts": 3,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 2,
    },
    "KimiK3ForConditionalGeneration": {
        "text_config": {
            "linear_attn_config": {
                "kda_layers": [1, 3],
                "full_attn_layers": [2, 4],
                "num_heads": 4,
                "head_dim": 64,
                "short_conv_kernel_size": 4,
            },
            **_PLAIN,
            "intermediate_size": 512,
            "num_experts": 8,
            "num_experts_per_token": 2,
            "moe_intermediate_size": 64,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 64,
            "q_lora_rank": 64,
            "qk_rope_head_dim": 0,
            "qk_nope_head_dim": 64,
            "v_head_dim": 64,
        }
    },
    "Kolibri1ForCausalLM": {"num_hidden_layers": 4, "layer_types": _MIXED},
    "Lfm2MoeForCausalLM": {
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    },
    "Lfm3VlForConditionalGeneration": {
        "vision_config": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
        "text_config": {"architectures": None},
    },
    "Step3TextForCausalLM": _STEP_3,
    "Step3VLForConditionalGeneration": {
        "text_config": _STEP_3,
        "vision_config": {
            "hidden_size": 64,
            "image_size": 56,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "output_hidden_size": 128,
            "patch_size": 14,
        },
    },
    "LlamaForCausalLMEagle3": {**_PLAIN, "num_hidden_layers": 1, "intermediate_size": 512},
    "MiniCPMV": {
        **_PLAIN,
        "version": 2.6,
        "intermediate_size": 512,
        "num_key_value_heads": 2,
        "query_num": 64,
        "vision_config": {
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 256,
            "image_size": 224,
            "patch_size": 14,
        },
    },
    "ModernBertDecoderForCausalLM": {"num_hidden_layers": 4, "layer_types": _MIXED},
    "MolmoForCausalLM": {**_PLAIN, "intermediate_size": 512},
    "MoonshineStreamingForConditionalGeneration": {"num_key_value_heads": 8},
    "Nemotron3_5TranscribeForConditionalGeneration": {
        "text_config": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}
    },
    "NemotronHForCausalLM": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]},
    "NemotronH_Omni_Reasoning_V3": {
        "text_config": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}
    },
    "PaliGemmaForConditionalGeneration": {"text_config": {"hidden_size": 2048}},
    "Phi3SmallForCausalLM": {**_PLAIN, "ff_intermediate_size": 512},
    "Phi3VForCausalLM": {"img_processor": {"model_name": "openai/clip-vit-large-patch14-336"}},
    "Qwen3DSparkModel": {**_PLAIN, "intermediate_size": 512, "markov_rank": 32},
    "RWKV7ForCausalLM": {"hidden_size": 256, "vocab_size": 1024, "num_hidden_layers": 4},
    "Spark2_5ForCausalLM": {
        **_PLAIN,
        "intermediate_size": 512,
        "layer_types": _MIXED,
        "num_key_value_heads": 2,
        "sliding_window": 512,
    },
    "T5Gemma2ForConditionalGeneration": {
        "decoder": {"num_hidden_layers": 4, "layer_types": _MIXED},
        "encoder": {"text_config": {"num_hidden_layers": 4, "layer_types": _MIXED}},
    },
    "T5GemmaForConditionalGeneration": {
        "decoder": {"num_hidden_layers": 4, "layer_types": _MIXED},
        "encoder": {"num_hidden_layers": 4, "layer_types": _MIXED},
    },
    "UnlimitedOcrForConditionalGeneration": {
        "text_config": {"num_hidden_layers": 4, "mlp_layer_types": _SPARSE}
    },
    "ZambaForCausalLM": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
    },
    "DiffusionGemmaForBlockDiffusion": {
        "text_config": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64}
    },
    "DoryForCausalLM": {
        "num_hidden_layers": 12,
        "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 3,
        "n_input_layers": 4,
        "n_recurrent_layers": 4,
        "n_output_layers": 4,
    },
    "DotsOCRForCausalLM": {
        **_PLAIN,
        "intermediate_size": 512,
        "num_key_value_heads": 2,
        "vision_config": {
            "embed_dim": 128,
            "hidden_size": 256,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_channels": 3,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    },
    "Gemma4AssistantForCausalLM": {"backbone_hidden_size": 512, "text_config": {}},
    "Gemma4UnifiedAssistantForCausalLM": {"backbone_hidden_size": 512, "text_config": {}},
    "IQuestLoopCoderForCausalLM": {**_PLAIN, "intermediate_size": 512, "num_key_value_heads": 2},
    "LaraMiniForCausalLM": {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"],
    },
    "NemotronH_Nano_VL_V2": {
        "vit_hidden_size": 1280,
        "projector_hidden_size": 512,
        "downsample_ratio": 0.5,
        "vision_config": {"args": {"model": "vit_huge_patch16_224"}},
        "llm_config": {
            "hidden_size": 4096,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        },
    },
    "NewModel": {**_PLAIN, "intermediate_size": 512, "type_vocab_size": 1},
    "OuroForCausalLM": {**_PLAIN, "intermediate_size": 512, "num_key_value_heads": 4},
    "Ovis2_5": {
        "hidden_size": 256,
        "visual_vocab_size": 1024,
        "llm_config": {},
        "vit_config": {
            "model_type": "siglip2_navit",
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_channels": 3,
            "patch_size": 16,
            "num_patches": 64,
        },
    },
    "TeleChat2ForCausalLM": {
        "hidden_size": 256,
        "n_head": 4,
        "n_layer": 4,
        "ffn_hidden_size": 512,
        "vocab_size": 1024,
        "seq_length": 4096,
    },
    "DeepseekV41ForCausalLM": {
        **_MIXTURE,
        "hc_mult": 2,
        "head_dim": 128,
        "qk_rope_head_dim": 16,
        "q_lora_rank": 64,
        "o_lora_rank": 64,
        "o_groups": 2,
        "index_n_heads": 4,
        "index_head_dim": 128,
        "sliding_window": 128,
        "compress_ratios": [0, 2, 2, 1],
        "kv_source_layer_ids": [1, 3],
        "index_source_layer_ids": [1, 3],
        "engram_layer_ids": [0],
        "engram_num_embeddings": [512],
        "engram_head_dim": 16,
        "engram_max_ngram_size": 3,
        "engram_n_heads": 2,
        "num_nextn_predict_layers": 1,
        "dspark_n_routed_experts": 4,
        "dspark_markov_rank": 16,
        "dspark_target_layer_ids": [2, 3],
    },
}
"""Keys to begin with, for the classes whose published defaults alone do not make a config."""
