"""What people give instead of a ``config.json``: adapters, GGUF files, Mistral's ``params.json``.

An adapter, a GGUF file or a config of the mamba_ssm package is answered with what to give in its place. ``params.json``, the format of
Mistral's own releases, states the same dimensions under other names and is translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from kvreport.errors import InputError, shorten

CONFIG_FILES: Final = ("config.json", "params.json")
"""Names that say nothing of the model; its folder's name does."""

_ADAPTER: Final = "adapter_config.json"
_PARAMS: Final = ("dim", "n_layers", "n_heads")
_NAMES: Final = {
    "dim": "hidden_size",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "max_seq_len": "max_position_embeddings",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "tied_embeddings": "tie_word_embeddings",
    "vocab_size": "vocab_size",
}
_BEYOND: Final = {
    "mamba": "Mamba layers",
    "multimodal": "a speech or image encoder",
    "use_biases": "biases",
}
"""Keys of ``params.json`` whose tensors are not translated."""
_REQUIRED: Final = ("head_dim", "hidden_dim", "n_kv_heads", "vocab_size")
_LATENT: Final = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MIXTURE: Final = {
    "expert_hidden_dim": "moe_intermediate_size",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
    "route_every_n": "moe_layer_freq",
}
"""Names of a mixture of latent attention (vLLM 0.33, ``transformers_utils/configs/mistral.py::_remap_moe_args``)."""
_NO_BYTES: Final = frozenset(
    {"expert_model_parallel", "expert_parallel", "renorm_strategy", "routed_scale", "use_load_balancing_bias"}
)
_ORIGINAL: Final = "the config.json of the model it was made from (its weights as --weights q4_k_m or q8_0)"
_SAME: Final = "the config.json of the same release"
_SMALL: Final = frozenset({"num_experts", "num_experts_per_tok"})
_MERGED: Final = (
    "hidden_size",
    "image_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "patch_size",
)
_MERGER: Final = "patch_merge"


def config_file(path: Path, where: str | None = None) -> Path:
    """Return the file to read: of a folder, its ``config.json``, else its ``params.json``.

    Raises:
        InputError: If it is an adapter's or a GGUF file, or a folder of nothing else.
    """
    where = where or str(path)
    if path.suffix == ".gguf":
        _refuse(where, "a GGUF file", _ORIGINAL)
    if not path.is_dir():
        return path
    for name in CONFIG_FILES:
        if (path / name).is_file():
            return path / name
    if (path / _ADAPTER).is_file():
        return path / _ADAPTER
    if any(path.glob("*.gguf")):
        _refuse(where, "a folder of GGUF files", _ORIGINAL)
    if any(path.glob("*.safetensors")):
        allowed = "the config.json of the model in the same folder: heads and context are in no header"
        _refuse(where, "safetensors files without a config.json", allowed)
    return path / "config.json"


def as_config(data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return what the reader can read: the object itself, or ``params.json`` in its terms.

    Raises:
        InputError: If it is an adapter's config or mamba_ssm's, or states more than the translation knows.
    """
    if "peft_type" in data:
        base = data.get("base_model_name_or_path")
        named = f", {shorten(base)}" if isinstance(base, str) and base else ""
        _refuse(
            where, f"an adapter ({shorten(data['peft_type'])})", f"the config.json of its base model{named}"
        )
    if "ssm_cfg" in data and "hidden_size" not in data:
        found = "a config in the words of the mamba_ssm package"
        _refuse(where, found, "the config.json of the same release converted for transformers", "ssm_cfg")
    if all(key in data for key in _PARAMS) and "architectures" not in data and "model_type" not in data:
        return _translated(data, where)
    return data


def _translated(params: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return Mistral's original format in the words of ``config.json``, as vLLM 0.33 reads it (``configs/mistral.py``)."""
    for key, what in _BEYOND.items():
        if params.get(key):
            _refuse(where, f"{what} ({key}) in a params.json", _SAME, key)
    latent = params.get("kv_lora_rank") is not None
    for key in (*_LATENT, *_REQUIRED[1:]) if latent else _REQUIRED:
        if params.get(key) is None:
            if latent and key in _LATENT:
                _refuse(where, f"latent attention without {key} in a params.json", _SAME, "kv_lora_rank")
            # The class that it is translated for has defaults, which are another model's.
            _refuse(where, "nothing", "a whole number (params.json)", key)
    config = {name: params[key] for key, name in _NAMES.items() if params.get(key) is not None}
    config["sliding_window"] = params.get("sliding_window")
    config.setdefault("tie_word_embeddings", False)
    moe = params.get("moe")
    if latent:
        if not isinstance(moe, Mapping) or not {*_MIXTURE} >= {*moe} - _NO_BYTES:
            _refuse(where, moe or "no mixture", f"an object of {', '.join(_MIXTURE)}", "moe")
        config |= {key: params[key] for key in _LATENT} | {
            name: moe[key] for key, name in _MIXTURE.items() if key in moe
        }
        text = {"architectures": ["MistralLarge3ForCausalLM"], "model_type": "mistral4", **config}
    elif moe is None:
        text = {"architectures": ["MistralForCausalLM"], **config}
    elif not isinstance(moe, Mapping) or set(moe) - _SMALL:
        _refuse(where, moe, "an object of num_experts and num_experts_per_tok", "moe")
    else:
        text = {
            "architectures": ["MixtralForCausalLM"],
            **config,
            "num_local_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
        }
    return _with_encoder(params, text, where) | _quantization(params.get("quantization"), where)


def _with_encoder(params: Mapping[str, Any], text: dict[str, Any], where: str) -> dict[str, Any]:
    """Put Pixtral's encoder with its merger of patches before a text model; every other encoder is refused."""
    vision = params.get("vision_encoder")
    if not vision:
        return text
    known = isinstance(vision, Mapping) and vision.get("mm_projector_id") == _MERGER
    if not known or any(vision.get(key) is None for key in _MERGED):
        allowed = f"one with {', '.join(_MERGED)} and mm_projector_id {_MERGER}, or {_SAME}"
        _refuse(where, "an image encoder (vision_encoder) in a params.json", allowed, "vision_encoder")
    return {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "text_config": {key: value for key, value in text.items() if key != "architectures"},
        "vision_config": {"model_type": "pixtral"} | {key: vision[key] for key in _MERGED},
        "spatial_merge_size": vision.get("spatial_merge_size"),
        "multimodal_projector_bias": vision.get("adapter_bias", True),
        "tie_word_embeddings": text["tie_word_embeddings"],
    }


def _quantization(stated: object, where: str) -> dict[str, Any]:
    """Return the quantization in the words of ``config.json`` (vLLM 0.33, ``_remap_mistral_quantization_args``)."""
    if not stated:
        return {}
    if isinstance(stated, Mapping) and stated.get("qformat_weight") == "fp8_e4m3":
        dynamic = stated.get("qscheme_act") == "NO_SCALES"
        how = {"quant_method": "fp8", "activation_scheme": "dynamic" if dynamic else "static"}
        return {"quantization_config": how}
    method = str(stated.get("quant_method") if isinstance(stated, Mapping) else "").lower().replace("_", "-")
    if isinstance(stated, Mapping) and method == "compressed-tensors":
        return {"quantization_config": {**stated, "quant_method": method}}
    found = "quantized weights (quantization) in a params.json"
    return _refuse(where, found, f"fp8_e4m3 or compressed-tensors, or {_SAME}", "quantization")


def _refuse(where: str, found: object, allowed: str, key: str = "") -> NoReturn:
    raise InputError.of(where, key, found if isinstance(found, str) else shorten(found), allowed)
