"""Models for the experiments: one config, read twice.

The same dictionary goes to ``transformers``, which builds the tensors, and to our own reader
(:func:`kvreport.architectures.read_config`), which says what they should weigh. Weights are
random; they occupy the memory that trained ones would, and nothing is downloaded.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from experiments.vision_ops import import_torchvision
from kvreport.architectures import read_config
from kvreport.catalog.model import Model
from kvreport.errors import InputError

CONFIGS: Final = Path(__file__).with_name("configs")

_TEXT: Final = "text_config"
_NOT_OURS: Final = ("quantization_config", "hf_quant_config", "auto_map", "_name_or_path")
_CAPS: Final = {
    "vocab_size": 256,
    "vocab_size_per_layer_input": 256,
    "hidden_size_per_layer_input": 16,
    "intermediate_size": 64,
    "intermediate_size_mlp": 64,
    "moe_intermediate_size": 32,
    "expert_intermediate_size": 32,
    "dense_intermediate_size": 64,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "moe_latent_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "experts_per_token": 2,
    "top_k_experts": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_expert_group": 1,
    "num_hash_layers": 0,
}
"""Sizes of what keeps no cache: vocabulary, MLPs, experts. Narrowing takes the smaller value."""

_LATENT_CAPS: Final = {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "index_n_heads": 4,
}
"""With a latent, heads keep no cache either."""

_DERIVE_HEAD_WIDTH: Final = ("stablelm",)
"""Model types for which transformers ignores a head width that the config states."""

_WINDOWS: Final = ("sliding_window", "attention_chunk_size")
_DEPTHS: Final = ("num_hidden_layers", "n_layer", "n_layers")


SMALL_WINDOW: Final = 48
SMALL_LENGTHS: Final = (40, 200)
"""Where every narrowed config is prefilled: below its window, and past it."""


@dataclass(frozen=True)
class Subject:
    """A model under experiment."""

    id: str  # ``org/name`` of the model whose config it is.
    config: dict[str, Any]  # Its config, as ``config.json`` holds it.
    record: Model  # The same config as our reader understands it.
    narrowed: str = ""  # How it differs from the published model, in words; empty if it does not.

    @property
    def text(self) -> dict[str, Any]:
        """The config's text part: the part that caches."""
        section: dict[str, Any] = self.config.get(_TEXT) or self.config
        return section


def known() -> tuple[str, ...]:
    """Return the ids of every config that lies here, sorted."""
    return tuple(sorted(path.stem.replace("--", "/", 1) for path in CONFIGS.glob("*.yaml")))


@cache
def subject(model_id: str) -> Subject:
    """Return the model of one of our configs; its config must not be changed."""
    path = CONFIGS / f"{model_id.replace('/', '--')}.yaml"
    file = yaml.safe_load(path.read_text(encoding="utf-8"))
    return of_config(file["config"], file["id"])


def of_config(config: dict[str, Any], model_id: str, narrowed: str = "") -> Subject:
    """Return the model that a config describes.

    Raises:
        InputError: If our reader does not know its class, or a key is at fault.
    """
    return Subject(
        model_id, config, read_config(config, id=model_id, where=model_id, assume_defaults=True), narrowed
    )


def narrow(full: Subject, *, window: int | None = None) -> Subject:
    """Return the same model with everything small that keeps no cache.

    Layer pattern, KV heads, head widths and latents stay as published; vocabulary, MLPs, experts
    and the residual stream shrink. Where a head's width follows from the residual stream's (GPT-2,
    Falcon), that stays, and the number of layers shrinks instead. States whose size follows from
    the residual stream's shrink with it: theory and tensor read the same config.

    Args:
        full: The model.
        window: Largest window or chunk in tokens; None leaves them.
    """
    if full.text.get("model_type") not in _DERIVE_HEAD_WIDTH:
        try:
            narrowed = _narrow(full, window, hidden=128, layers=None)
        except InputError:
            pass
        else:
            if _attention_shapes(narrowed.record) == _attention_shapes(full.record):
                return narrowed
    first = {group: index for index, group in reversed(list(enumerate(full.record.pattern)))}
    return _narrow(full, window, hidden=None, layers=max(4, max(first.values()) + 1))


def _narrow(full: Subject, window: int | None, hidden: int | None, layers: int | None) -> Subject:
    config = {key: copy.deepcopy(value) for key, value in full.config.items() if key not in _NOT_OURS}
    text = config.get(_TEXT) or config
    for key, cap in (_CAPS | (_LATENT_CAPS if text.get("kv_lora_rank") else {})).items():
        found = text.get(key)
        if isinstance(found, int) and not isinstance(found, bool):
            text[key] = min(found, cap)
        elif isinstance(found, list):
            text[key] = [min(value, cap) for value in found]
    said = ["vocabulary, MLPs and experts narrowed"]
    if hidden is not None and "hidden_size" in text:
        if text.get("head_dim") is None and not text.get("kv_lora_rank"):
            text["head_dim"] = text["hidden_size"] // text["num_attention_heads"]
        if isinstance(text.get("num_key_value_heads"), int) and not text.get("num_attention_heads_per_layer"):
            text["num_attention_heads"] = max(
                text["num_key_value_heads"], text.get("num_global_key_value_heads") or 0
            )
        # Some classes want a multiple of the heads even where the head's width is given.
        heads = text["num_attention_heads"] if isinstance(text.get("num_attention_heads"), int) else 1
        text["hidden_size"] = min(heads * -(-hidden // heads), text["hidden_size"])
        said.append(f"residual stream {text['hidden_size']} wide")
    if window is not None:
        for key in _WINDOWS:
            if text.get(key):
                text[key] = min(text[key], window)
                said.append(f"window {text[key]}")
    depth = next((key for key in _DEPTHS if isinstance(text.get(key), int)), None)
    if layers is not None and depth and layers < text[depth]:
        for key, value in text.items():
            if isinstance(value, list) and text[depth] <= len(value) <= text[depth] + 1:
                text[key] = value[:layers]
        text[depth] = layers
        said.append(f"first {layers} layers")
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        text[key] = 0
    return of_config(config, full.id, ", ".join(said))


def _attention_shapes(model: Model) -> list[object]:
    """What narrowing must not change: each layer's heads, widths and latents."""
    kept = ("kind", "kv_heads", "key_dim", "value_dim", "latent_dim", "rope_dim", "stride", "index_dim")
    return [
        [
            {key: value for key, value in cache.model_dump().items() if key in kept}
            for cache in model.layers[group].caches
        ]
        for group in model.pattern
    ]


def with_heads(full: Subject, kv_heads: int) -> Subject:
    """Return the same model with another number of KV heads."""
    config = copy.deepcopy(full.config)
    config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = kv_heads
    return of_config(config, full.id)


def hf_config(config: dict[str, Any]) -> Any:  # noqa: ANN401 (a class of transformers)
    """Return transformers' own config object for a config.

    Raises:
        KeyError: If the installed transformers does not know the model type.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    clean = {key: value for key, value in config.items() if key not in _NOT_OURS}
    return CONFIG_MAPPING[clean["model_type"]].from_dict(clean)


def build(
    model: Subject, *, device: str, attention: str = "sdpa", text_only: bool = True, dtype: str = "bfloat16"
) -> Any:  # noqa: ANN401
    """Build a model with random weights.

    Args:
        model: What to build.
        device: Where its weights lie; ``meta`` makes shapes only.
        attention: ``sdpa`` or ``eager``.
        text_only: Leave vision and audio towers out, which cache nothing.
        dtype: Element type of the weights, and of what it caches.
    """
    import torch

    import_torchvision()
    import transformers
    from transformers import AutoModel, AutoModelForCausalLM

    config = hf_config(model.config)
    if text_only and hasattr(config, "get_text_config"):
        config = config.get_text_config(decoder=True)
    own = None
    if not text_only:
        own = getattr(
            transformers, (model.config.get("architectures") or [model.record.architecture])[0], None
        )
    options = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    with torch.device(device):
        if own is not None:
            made = own._from_config(config, **options)
        elif type(config) in AutoModelForCausalLM._model_mapping:
            made = AutoModelForCausalLM.from_config(config, **options)
        else:
            made = AutoModel.from_config(config, **options)
    return made.eval()
