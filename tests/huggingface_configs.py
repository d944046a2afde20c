"""Small configs of published models: the dimensions that decide bytes, and nothing else.

Facts from the published ``config.json`` of each model; what a class fills in by itself is left out.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def dims(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int | None = None,
    mlp: int | None = None,
    vocabulary: int | None = None,
    context: int | None = None,
    **more: object,
) -> Config:
    """Name the common dimensions as most classes do."""
    named = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": mlp,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
    }
    return {key: value for key, value in named.items() if value is not None} | more


def plain(architecture: str, *args: int, **more: object) -> Config:
    """A config of one flat object."""
    return {"architectures": [architecture], **dims(*args, **more)}


def nested(architecture: str, text: Config, vision: Config | None = None, **outer: object) -> Config:
    """A multimodal config: the text model inside ``text_config``."""
    config: Config = {"architectures": [architecture], "text_config": text, **outer}
    return config if vision is None else {**config, "vision_config": vision}


SIGLIP_400M = dims(1152, 27, 16, mlp=4304, image_size=896, patch_size=14, vision_use_head=False)
LLAMA_3_1_8B = plain("LlamaForCausalLM", 4096, 32, 32, 8, 14336, 128256, 131072)
GPT_OSS_120B = plain("GptOssForCausalLM", 2880, 36, 64, 8, 2880, 201088, 131072, head_dim=64)
DEEPSEEK_V3 = plain("DeepseekV3ForCausalLM", 7168, 61, 128, 128, 18432, 129280, 163840)
GEMMA_3_27B = nested(
    "Gemma3ForConditionalGeneration",
    dims(5376, 62, 32, 16, 21504, head_dim=128, sliding_window=1024),
    SIGLIP_400M,
)
QWEN3_6_27B = nested(
    "Qwen3_5ForConditionalGeneration",
    dims(
        5120,
        64,
        24,
        4,
        17408,
        248320,
        262144,
        head_dim=256,
        linear_num_value_heads=48,
        mamba_ssm_dtype="float32",
        mtp_num_hidden_layers=1,
    ),
    {"out_hidden_size": 5120},
)
MINIMAX_SPARSE = [0] * 3 + [1] * 57

# id: (config, parameters counted on the meta device with transformers 5.23.0)
COUNTED: dict[str, tuple[Config, int]] = {
    "meta-llama/Llama-3.1-8B": (LLAMA_3_1_8B, 8_030_261_248),
    "meta-llama/Llama-2-7b-hf": (
        plain("LlamaForCausalLM", 4096, 32, 32, 32, 11008, 32000, 4096),
        6_738_415_616,
    ),
    "meta-llama/Llama-3.2-1B-Instruct": (
        plain(
            "LlamaForCausalLM", 2048, 16, 32, 8, 8192, 128256, 131072, head_dim=64, tie_word_embeddings=True
        ),
        1_235_814_400,
    ),
    "Qwen/Qwen2.5-7B": (
        plain("Qwen2ForCausalLM", 3584, 28, 28, 4, 18944, 152064, 131072),
        7_615_616_512,
    ),
    "Qwen/Qwen3-8B": (
        plain("Qwen3ForCausalLM", 4096, 36, 32, 8, 12288, 151936, 40960, head_dim=128),
        8_190_735_360,
    ),
    "Qwen/Qwen3-30B-A3B": (
        plain("Qwen3MoeForCausalLM", 2048, 48, 32, 4, 6144, 151936, 40960, head_dim=128),
        30_532_122_624,
    ),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (
        plain("Qwen3NextForCausalLM", 2048, 48, 16, 2, 5120, 151936, 262144, head_dim=256),
        79_674_391_296,
    ),
    "Qwen/Qwen3.6-27B": (QWEN3_6_27B, 27_356_728_560),
    "Qwen/Qwen3.5-35B-A3B": (
        nested(
            "Qwen3_5MoeForConditionalGeneration",
            dims(2048, 40, 16, 2, None, 248320, 262144, head_dim=256),
            {"out_hidden_size": 2048},
        ),
        35_107_181_936,
    ),
    "Qwen/Qwen3-VL-30B-A3B-Instruct": (
        nested(
            "Qwen3VLMoeForConditionalGeneration",
            dims(
                2048,
                48,
                32,
                4,
                6144,
                151936,
                262144,
                head_dim=128,
                moe_intermediate_size=768,
                num_experts=128,
                num_experts_per_tok=8,
            ),
            {"out_hidden_size": 2048},
            tie_word_embeddings=False,
        ),
        31_070_754_032,
    ),
    "Qwen/Qwen2.5-VL-7B-Instruct": (
        plain(
            "Qwen2_5_VLForConditionalGeneration",
            3584,
            28,
            28,
            4,
            18944,
            152064,
            128000,
            vision_config={"hidden_size": 1280, "intermediate_size": 3420},
        ),
        8_292_166_656,
    ),
    "mistralai/Mistral-7B-v0.1": (
        plain("MistralForCausalLM", 4096, 32, 32, 8, 14336, 32000, 32768, sliding_window=4096),
        7_241_732_096,
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        plain("MixtralForCausalLM", 4096, 32, 32, 8, 14336, 32000, 32768, num_local_experts=8),
        46_702_792_704,
    ),
    "mistralai/Devstral-Small-2-24B-Instruct-2512": (
        nested(
            "Mistral3ForConditionalGeneration",
            dims(5120, 40, 32, 8, 32768, 131072, 393216, head_dim=128, model_type="ministral3"),
            dims(1024, 24, 16, mlp=4096, patch_size=14),
            tie_word_embeddings=False,
        ),
        24_011_361_280,
    ),
    "deepseek-ai/DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200),
    "deepseek-ai/DeepSeek-V2-Lite": (
        plain(
            "DeepseekV2ForCausalLM",
            2048,
            27,
            16,
            16,
            10944,
            102400,
            163840,
            first_k_dense_replace=1,
            moe_intermediate_size=1408,
            num_experts_per_tok=6,
            q_lora_rank=None,
        ),
        15_706_484_224,
    ),
    "deepseek-ai/DeepSeek-V3.2": (
        plain("DeepseekV32ForCausalLM", 7168, 61, 128, 128, 18432, 129280, 163840, index_topk=2048),
        671_877_944_064,
    ),
    "deepseek-ai/DeepSeek-V4-Flash": (
        plain(
            "DeepseekV4ForCausalLM",
            4096,
            43,
            64,
            1,
            None,
            129280,
            1048576,
            head_dim=512,
            compress_ratios=[0, 0, *[4, 128] * 20, 4, 0],
        ),
        284_334_567_511,
    ),
    "zai-org/GLM-4.5": (
        plain(
            "Glm4MoeForCausalLM",
            5120,
            92,
            96,
            8,
            12288,
            151552,
            131072,
            head_dim=128,
            attention_bias=True,
            first_k_dense_replace=3,
            moe_intermediate_size=1536,
            n_routed_experts=160,
            use_qk_norm=True,
        ),
        352_797_829_024,
    ),
    "zai-org/GLM-5.2": (
        plain(
            "GlmMoeDsaForCausalLM",
            6144,
            78,
            64,
            64,
            12288,
            154880,
            1048576,
            index_topk_freq=4,
            index_skip_topk_offset=3,
        ),
        743_377_019_904,
    ),
    "nvidia/Kimi-K2.5-NVFP4": (
        nested(
            "KimiK25ForConditionalGeneration",
            dims(7168, 61, 64, 64, 18432, 163840, 262144, first_k_dense_replace=1, n_routed_experts=384),
            {},
            tie_word_embeddings=False,
        ),
        1_026_879_376_368,
    ),
    "openai/gpt-oss-120b": (GPT_OSS_120B, 116_829_156_672),
    "google/gemma-2-9b": (
        plain("Gemma2ForCausalLM", 3584, 42, 16, 8, 14336, 256000, 8192, head_dim=256),
        9_241_705_984,
    ),
    "google/gemma-3-27b-it": (GEMMA_3_27B, 27_432_406_640),
    "google/gemma-3n-E4B-it, text only": (
        {"model_type": "gemma3n_text", **dims(2048, 35, 8, 2, 16384, 262400, 32768, head_dim=256)},
        6_835_235_568,
    ),
    "google/gemma-4-26B-A4B": (
        nested(
            "Gemma4ForConditionalGeneration",
            dims(
                2816,
                30,
                16,
                8,
                2112,
                262144,
                262144,
                head_dim=256,
                attention_k_eq_v=True,
                enable_moe_block=True,
                hidden_size_per_layer_input=0,
                moe_intermediate_size=704,
                num_experts=128,
                num_global_key_value_heads=2,
                sliding_window=1024,
                top_k_experts=8,
            ),
            dims(1152, 27, 16, 16, 4304, head_dim=72),
        ),
        25_805_933_902,
    ),
    "google/gemma-4-E4B-it": (
        nested(
            "Gemma4ForConditionalGeneration",
            dims(2560, 42, 8, 2, 10240, 262144, 131072, head_dim=256, num_kv_shared_layers=18),
            {},
            audio_config=None,
        ),
        7_632_344_106,
    ),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (
        plain(
            "NemotronHForCausalLM",
            2688,
            52,
            32,
            2,
            1856,
            131072,
            262144,
            head_dim=128,
            hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            mamba_num_heads=64,
            moe_intermediate_size=1856,
            moe_shared_expert_intermediate_size=3712,
            n_routed_experts=128,
            num_experts_per_tok=6,
        ),
        31_577_940_288,
    ),
    "meta-llama/Llama-3.2-11B-Vision-Instruct": (
        nested(
            "MllamaForConditionalGeneration",
            dims(4096, 40, 32, 8, 14336, 128256, 131072),
            {"image_size": 560},
        ),
        10_670_220_835,
    ),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (
        nested(
            "Llama4ForConditionalGeneration",
            dims(5120, 48, 40, 8, 8192, 202048, 10485760, head_dim=128),
            {"hidden_size": 1408, "image_size": 336, "vision_output_dim": 4096},
        ),
        108_641_793_536,
    ),
    "MiniMaxAI/MiniMax-M2.5": (
        plain("MiniMaxM2ForCausalLM", 3072, 62, 48, 8, 1536, 200064, 196608, head_dim=128),
        228_689_764_864,
    ),
    "nvidia/MiniMax-M3-NVFP4": (
        nested(
            "MiniMaxM3SparseForConditionalGeneration",
            dims(
                6144,
                60,
                64,
                4,
                3072,
                200064,
                1048576,
                moe_layer_freq=MINIMAX_SPARSE,
                sparse_attention_config={"sparse_attention_freq": MINIMAX_SPARSE},
            ),
            {},
        ),
        427_040_140_160,
    ),
    "XiaomiMiMo/MiMo-V2-Flash": (
        plain("MiMoV2FlashForCausalLM", 4096, 48, 64, 4, 16384, 152576, 262144, head_dim=192),
        308_778_780_864,
    ),
    "poolside/Laguna-S-2.1-FP8": (
        plain(
            "LagunaForCausalLM",
            3072,
            48,
            48,
            8,
            12288,
            100352,
            262144,
            num_experts_per_tok=10,
            moe_intermediate_size=1024,
            shared_expert_intermediate_size=1024,
            layer_types=["full_attention", *["sliding_attention"] * 3] * 12,
            num_attention_heads_per_layer=[48, 72, 72, 72] * 12,
        ),
        117_561_977_600,
    ),
    "meta-models/Muse-Glimmer-30B": (
        nested("MuseGlimmerForConditionalGeneration", dims(6656, 52, 32, 2, 19968, 202048, 131072), {}),
        29_776_626_688,
    ),
    "microsoft/phi-4": (
        plain("Phi3ForCausalLM", 5120, 40, 40, 10, 17920, 100352, 16384),
        14_659_507_200,
    ),
    "microsoft/Phi-3.5-MoE-instruct": (
        plain(
            "PhiMoEForCausalLM",
            4096,
            32,
            32,
            8,
            6400,
            32064,
            131072,
            attention_bias=True,
            lm_head_bias=True,
        ),
        41_873_153_344,
    ),
    "ibm-granite/granite-3.3-8b-instruct": (
        plain("GraniteForCausalLM", 4096, 40, 32, 8, 12800, 49159, 131072, tie_word_embeddings=True),
        8_170_864_640,
    ),
}
