"""What people give instead of a ``config.json``: adapters, GGUF files, Mistral's ``params.json``.

An adapter, a GGUF file or a config of the mamba_ssm package is answered with what to give in its place. ``params.json``, the format of
Mistral's own releases, states the same dimensions under other names and is translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from kvreport.errors import Fault, InputError, shorten

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
    "kv_lora_rank": "latent attention",
    "mamba": "Mamba layers",
    "multimodal": "a speech or image encoder",
    "quantization": "quantized weights",
    "use_biases": "biases",
    "vision_encoder": "an image encoder",
}
"""Keys of ``params.json`` whose tensors are not translated."""
_REQUIRED: Final = ("head_dim", "hidden_dim", "n_kv_heads", "vocab_size")


def config_file(path: Path, where: str | None = None) -> Path:
    """Return the file to read: of a folder, its ``config.json``, else its ``params.json``.

    Raises:
        InputError: If it is an adapter's or a GGUF file, or a folder of nothing else.
    """
    if path.suffix == ".gguf":
        _refuse(where or str(path), "a GGUF file", _of_original("its weights as --weights q4_k_m or q8_0"))
    if not path.is_dir():
        return path
    for name in CONFIG_FILES:
        if (path / name).is_file():
            return path / name
    if (path / _ADAPTER).is_file():
        return path / _ADAPTER
    if any(path.glob("*.gguf")):
        _refuse(
            where or str(path),
            "a folder of GGUF files",
            _of_original("its weights as --weights q4_k_m or q8_0"),
        )
    if any(path.glob("*.safetensors")):
        _refuse(
            where or str(path),
            "safetensors files without a config.json",
            "the config.json of the model in the same folder: heads and context are in no header",
        )
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
    for key, what in _BEYOND.items():
        if params.get(key):
            _refuse(where, f"{what} ({key}) in a params.json", "the config.json of the same release", key)
    for key in _REQUIRED:
        if params.get(key) is None:
            # The class that it is translated for has defaults, which are another model's.
            _refuse(where, "nothing", "a whole number (params.json)", key)
    config = {name: params[key] for key, name in _NAMES.items() if params.get(key) is not None}
    config["sliding_window"] = params.get("sliding_window")
    config.setdefault("tie_word_embeddings", False)
    moe = params.get("moe")
    if moe is None:
        return {"architectures": ["MistralForCausalLM"], **config}
    if not isinstance(moe, Mapping) or set(moe) - {"num_experts", "num_experts_per_tok"}:
        _refuse(where, moe, "an object of num_experts and num_experts_per_tok", "moe")
    return {
        "architectures": ["MixtralForCausalLM"],
        **config,
        "num_local_experts": moe.get("num_experts"),
        "num_experts_per_tok": moe.get("num_experts_per_tok"),
    }


def _of_original(more: str) -> str:
    return f"the config.json of the model it was made from ({more})"


def _refuse(where: str, found: object, allowed: str, key: str = "") -> NoReturn:
    raise InputError(str(Fault(where, key, found if isinstance(found, str) else shorten(found), allowed)))
