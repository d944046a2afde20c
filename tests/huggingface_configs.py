"""Small configs of published models: the dimensions that decide bytes, and nothing else.

Facts from the published ``config.json`` of each model; what a class fills in by itself is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

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

_COUNTED: Any = yaml.load((Path(__file__).parent / "counted.yaml").read_bytes(), yaml.CSafeLoader)
CLASSES: list[tuple[str, Config, int]] = [(*row,) for row in _COUNTED["classes"]]
COUNTED: dict[str, tuple[Config, int]] = {name: (*row,) for name, row in _COUNTED["published"].items()}
STARTS: dict[str, Config] = yaml.load((Path(__file__).parent / "stated.yaml").read_bytes(), yaml.CSafeLoader)
"""Keys to begin with, for the classes whose published defaults alone do not make a config."""
CONFIGS: dict[str, dict[str, Config]] = yaml.load(
    (Path(__file__).parent / "configs.yaml").read_bytes(), yaml.CSafeLoader
)
"""Configs by the test that reads them."""
