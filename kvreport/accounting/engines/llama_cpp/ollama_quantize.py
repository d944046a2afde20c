"""Which type each tensor gets from Ollama's own quantizer, which made the newer files of its library.

``server/quantization.go`` (``newType``, ``getTensorNewType``, ``qwen3LinearAttnQuantType``) of Ollama at 1e95ab3. It follows
llama.cpp's rules with differences: a table of embeddings per layer stays in 16 bits, low-rank projections of latent
attention get 8 bits, and models with linear attention have a table of their own. Its mixes are called
``ollama-q4_k_m`` and so on here, because their bytes differ from llama.cpp's of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.types import TYPES
from kvreport.catalog.llama_cpp import OLLAMA_PREFIX

MIXES: Final = {
    "ollama-q4_k_m": "q4_k",
    "ollama-q4_k_s": "q4_k",
    "ollama-q8_0": "q8_0",
    "ollama-mxfp4": "bf16",
}
"""Mixes that Ollama makes, each with the type of its usual tensors. ``ollama-mxfp4`` is gpt-oss as it was released:
experts in MXFP4, everything else in 16 bits (``convert/convert_gptoss.go``)."""

_KEPT: Final = (
    "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv", "time_mix_first", "time_mix_w1",
    "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_lerp_fused", "attn_rel_b", "per_layer_token_embd",
)  # fmt: skip
_F32: Final = ("ffn_gate_inp", "position_embd", "ssm_conv1d", "shortconv.conv", "time_mix")
_LATENT: Final = ("attn_k_b", "attn_v_b", "attn_kv_a_mqa", "attn_q_a", "attn_q_b")
_OF_LINEAR: Final = {
    "attn_v": "q6_k", "ffn_down_exps": "q6_k", "ffn_down_shexp": "q6_k",
    **dict.fromkeys(
        (
            "attn_q", "attn_k", "attn_output", "attn_qkv", "attn_gate", "ssm_ba", "ssm_beta", "ssm_alpha", "ssm_out",
            "ffn_gate_exps", "ffn_gate_shexp", "ffn_up_exps", "ffn_up_shexp",
        ),
        "q4_k",
    ),
}  # fmt: skip
_LINEAR: Final = ("qwen3next", "qwen35", "qwen35moe")
_FALLBACK: Final = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_VALUES: Final = ("attn_v", "attn_qkv", "attn_kv_b")


@dataclass
class _OllamaState:
    """Counters of one run (``quantizeState``).

    Attributes:
        mix: The mix's name without Ollama's prefix.
        architecture: ggml's name of the architecture.
        layers: Layers of the model.
        experts: Experts of a layer, at least 1.
        tied: True if the embedding is the output matrix too.
        values: Value projections in all.
        value: Value projections seen.
        down: Down projections seen, each of a layer counted for itself.
    """

    mix: str
    architecture: str
    layers: int
    experts: int
    tied: bool
    values: int
    value: int = 0
    down: int = 0


def ollama_quantized(
    tensors: Iterable[LocalTensor], mix: str, *, architecture: str, layers: int, experts: int = 0
) -> tuple[LocalTensor, ...]:
    """Give every tensor the type that Ollama's quantizer would.

    Args:
        tensors: The model's tensors.
        mix: One of :data:`MIXES`.
        architecture: ggml's name of the architecture.
        layers: Layers of the model.
        experts: Experts of a layer, 0 if none.
    """
    ordered = sorted(tensors, key=lambda tensor: (tensor.layer, tensor.role))
    roles = {tensor.role for tensor in ordered}
    state = _OllamaState(
        mix.removeprefix(OLLAMA_PREFIX),
        architecture,
        layers,
        max(1, experts),
        "output" not in roles,
        values=sum(tensor.role in _VALUES for tensor in ordered),
    )
    return tuple(tensor.as_kind(TYPES[_type(state, tensor)]) for tensor in ordered)


def _type(state: _OllamaState, tensor: LocalTensor) -> str:
    role, default = tensor.role, MIXES[OLLAMA_PREFIX + state.mix]
    if not tensor.is_matrix or any(part in role for part in _F32):
        return "f32"
    if any(part in role for part in _KEPT):
        return "bf16"
    if default == "bf16":
        return "mxfp4" if tensor.stack > 1 else default
    if state.architecture in _LINEAR and default == "q4_k" and role in _OF_LINEAR:
        return _OF_LINEAR[role]
    kind = _chosen(state, tensor, default)
    if tensor.columns % TYPES[kind].block:
        kind = _FALLBACK.get(kind, kind)
    return "f16" if tensor.columns % TYPES[kind].block else kind


def _chosen(state: _OllamaState, tensor: LocalTensor, default: str) -> str:
    role, mix, eight = tensor.role, state.mix, state.experts == 8
    if role == "output" or (state.tied and role == "token_embd"):
        return "q8_0" if default == "q8_0" or tensor.columns % TYPES[default].block else "q6_k"
    if role == "attn_v":
        index, state.value = state.value, state.value + 1
        if mix == "q4_k_m" and more_bits(index, state.values):
            default = "q6_k"
        elif mix == "q4_k_s" and index < 4:
            default = "q5_k"
    elif role.startswith("ffn_down"):
        index, state.down = state.down, state.down + 1
        if mix == "q4_k_m" and more_bits(index, state.layers):
            return "q6_k"
        return "q5_k" if mix == "q4_k_s" and index < state.layers // 8 else default
    if role in _LATENT or (eight and role in ("attn_v", "attn_k")):
        return "q8_0"
    if (eight and role == "attn_output" and default == "q4_k") or (role == "attn_qkv" and mix == "q4_k_m"):
        return "q5_k"
    return default


def more_bits(index: int, count: int) -> bool:
    """Whether a layer is one of those that the mixes called medium give more bits (``use_more_bits``)."""
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2
