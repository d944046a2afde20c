"""Which type each tensor gets in a quantization mix: the rules of llama.cpp's quantizer, and of Ollama's own.

``src/llama-quant.cpp`` (``llama_tensor_get_type_impl``, ``tensor_type_fallback``, ``tensor_allows_quantization``,
``llama_ftype_get_default_type``) of llama.cpp 0c1e57098, without an importance matrix unless one is named. What
people publish as ``UD-...`` follows tables of its own; only a file shows those.

``server/quantization.go`` (``newType``, ``getTensorNewType``, ``qwen3LinearAttnQuantType``) of Ollama at 1e95ab3, which made
the newer files of its library. It follows llama.cpp's rules with differences: a table of embeddings per layer stays in
16 bits, low-rank projections of latent attention get 8 bits, and models with linear attention have a table of their own.
Its mixes are called ``ollama-q4_k_m`` and so on here, because their bytes differ from llama.cpp's of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.types import TYPES
from kvreport.catalog.caches import FullAttention
from kvreport.catalog.local_architectures import OLLAMA_PREFIX, QAT_MIX
from kvreport.errors import InputError

MIXES: Final = {
    "f32": "f32", "f16": "f16", "bf16": "bf16", "q8_0": "q8_0", "q4_0": "q4_0", "q4_1": "q4_1", "q5_0": "q5_0",
    "q5_1": "q5_1", "q2_k": "q2_k", "q2_k_s": "q2_k", "q3_k_s": "q3_k", "q3_k_m": "q3_k", "q3_k_l": "q3_k",
    "q4_k_s": "q4_k", "q4_k_m": "q4_k", "q5_k_s": "q5_k", "q5_k_m": "q5_k", "q6_k": "q6_k", "iq1_s": "iq1_s",
    "iq1_m": "iq1_m", "iq2_xxs": "iq2_xxs", "iq2_xs": "iq2_xs", "iq2_s": "iq2_xs", "iq2_m": "iq2_s",
    "iq3_xxs": "iq3_xxs", "iq3_xs": "iq3_s", "iq3_s": "iq3_s", "iq3_m": "iq3_s", "iq4_xs": "iq4_xs",
    "iq4_nl": "iq4_nl", "tq1_0": "tq1_0", "tq2_0": "tq2_0", "q1_0": "q1_0", "q2_0": "q2_0", "mxfp4": "mxfp4",
    QAT_MIX: "q4_0",
}  # fmt: skip
"""Mixes by name, each with the type that most of its tensors have. ``mxfp4`` is ``MXFP4_MOE``."""

ALIASES: Final = {
    "q4_k": "q4_k_m", "q5_k": "q5_k_m", "q3_k": "q3_k_m", "mxfp4_moe": "mxfp4", "fp16": "f16", "fp32": "f32",
    "q4km": "q4_k_m",
}  # fmt: skip

_KEPT: Final = (
    "ffn_gate_inp", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv", "indexer.k_proj",
    "indexer.q_proj", "position_embd", "tid2eid", "time_mix_first", "time_mix_w", "time_mix_v0", "time_mix_v1",
    "time_mix_v2", "time_mix_a", "time_mix_g", "time_mix_decay_w", "time_mix_lerp_fused",
)  # fmt: skip
"""Tensors that stay as converted (``tensor_allows_quantization``)."""

_F32: Final = ("ffn_gate_inp", "position_embd", "ssm_conv1d", "shortconv.conv", "indexer.proj", "time_mix")
"""Tensors that the converter writes in 32 bits (``conversion/base.py``, ``prepare_tensors``)."""

_FALLBACK: Final = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip

OLLAMA_MIXES: Final = {
    "ollama-q4_k_m": "q4_k",
    "ollama-q4_k_s": "q4_k",
    "ollama-q8_0": "q8_0",
    "ollama-mxfp4": "bf16",
}
"""Mixes that Ollama makes, each with the type of its usual tensors. ``ollama-mxfp4`` is gpt-oss as it was released:
experts in MXFP4, everything else in 16 bits (``convert/convert_gptoss.go``)."""

_OLLAMA_KEPT: Final = (
    "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv", "time_mix_first", "time_mix_w1",
    "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2", "time_mix_lerp_fused", "attn_rel_b", "per_layer_token_embd",
)  # fmt: skip
_OLLAMA_F32: Final = tuple(part for part in _F32 if part != "indexer.proj")
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
SUPERBLOCK: Final = 256
"""Columns of a block of the K and IQ types. Experts released in MXFP4 with other widths gain nothing from another type, and the
files that are published keep them, whatever the quantization (card of bartowski/openai_gpt-oss-20b-GGUF; ``repack_mxfp4_blocks`` of
llama.cpp's ``conversion/base.py`` writes their codes unchanged)."""

_LOW: Final = ("iq2_xxs", "iq2_xs", "iq1_s", "iq2_s", "iq2_m", "iq1_m")
_VALUES: Final = ("attn_v", "attn_qkv", "attn_kv_b")
_KNOWN_AS_70B: Final = ("llama", "qwen2", "deci", "jais2", "olmo")
"""Architectures of which the quantizer knows 80 layers as 70B (``LLM_TYPE_70B`` in ``src/models``)."""


@dataclass
class _State:
    """Counters of one quantizer run (``quantize_state_impl``, ``quantizeState``), and what it knows of the model."""

    mix: str  # Name of the mix, without Ollama's prefix.
    default: str  # The type that most of its tensors have.
    layers: int  # Layers of the model.
    tied: bool  # True if the embedding is the output matrix too.
    values: int  # Value projections in all.
    architecture: str = ""  # ggml's name of the architecture.
    experts: int = 0  # Experts of a layer, 0 if none.
    gqa: int = 1  # Query heads per KV head.
    wide: bool = False  # True for the 80-layer models that the quantizer knows as 70B.
    imatrix: bool = False  # True with an importance matrix.
    released: str = ""  # The format of the released weights.
    value: int = 0  # Value projections seen.
    down: int = 0  # Down projections seen.

    @property
    def falcon(self) -> bool:
        """True for the Falcon architecture."""
        return self.architecture == "falcon"


def is_mix(name: str) -> bool:
    """True if a quantizer has a mix of this name."""
    found = name.lower()
    return found in OLLAMA_MIXES or _plain(found) in MIXES


def mix_name(name: str) -> str:
    """The quantizer's name of a mix.

    Raises:
        InputError: If there is no such mix.
    """
    if name.lower() in OLLAMA_MIXES:
        return name.lower()
    found = _plain(name.lower())
    if found not in MIXES:
        raise InputError(
            f"--weights: found {name!r}; GGUF mixes of llama.cpp and Ollama: {', '.join((*MIXES, *OLLAMA_MIXES))}. "
            "Formats of checkpoints need a server such as --engine vllm"
        )
    return found


def _plain(name: str) -> str:
    found = name.replace("-", "_").removeprefix("gguf_")
    return ALIASES.get(found, found)


def with_mix(local: LocalModel, mix: str) -> LocalModel:
    """A model with the type that a mix's quantizer would give to every tensor.

    Raises:
        InputError: If there is no such mix.
    """
    model, own = local.model, local.architecture.name
    heads = (c.kv_heads for g in model.layers for c in g.caches if isinstance(c, FullAttention))
    state = replace(
        _state(local.tensors, mix, model.layer_count),
        architecture=own,
        experts=model.experts.routed if model.experts else 0,
        gqa=max(1, model.attention_heads) // max(1, next(heads, 1)),
        wide=model.layer_count == 80 and own in _KNOWN_AS_70B,
        # Files of this mix are published with an importance matrix; without one they would be 4% larger.
        imatrix=mix.lower() == "iq3_xxs",
        released=model.weight_format,
    )
    return replace(local, tensors=_typed(local.tensors, mix, state))


def quantized(tensors: Iterable[LocalTensor], mix: str, *, layers: int) -> tuple[LocalTensor, ...]:
    """Some tensors of a model of so many layers with the types of a mix, in the order of their layers.

    Raises:
        InputError: If there is no such mix.
    """
    listed = tuple(tensors)
    return _typed(listed, mix, _state(listed, mix, layers))


def _state(tensors: Iterable[LocalTensor], mix: str, layers: int) -> _State:
    roles = [tensor.role for tensor in tensors]
    name = mix_name(mix)
    return _State(
        name.removeprefix(OLLAMA_PREFIX),
        OLLAMA_MIXES.get(name) or MIXES[name],
        layers,
        tied="output" not in roles,
        values=sum(role in _VALUES for role in roles),
    )


def _typed(tensors: Iterable[LocalTensor], mix: str, state: _State) -> tuple[LocalTensor, ...]:
    if mix_name(mix) in OLLAMA_MIXES:
        tensors = sorted(tensors, key=lambda tensor: (tensor.layer, tensor.role))
        return tuple(tensor.as_kind(TYPES[_ollama_type(state, tensor)]) for tensor in tensors)
    return tuple(tensor.as_kind(TYPES[_type(state, tensor)]) for tensor in tensors)


def _type(state: _State, tensor: LocalTensor) -> str:
    default, role = state.default, tensor.role
    if not tensor.is_matrix or _among(role, _F32):
        return "f32"
    quantized_by_default = TYPES[default].quantized
    if not quantized_by_default or _among(role, _KEPT):
        return "f16" if quantized_by_default else default
    if state.released == "mxfp4" and role.endswith("_exps") and tensor.columns % SUPERBLOCK:
        return state.released
    return _fallback(_chosen(state, tensor, default), tensor.columns)


def _ollama_type(state: _State, tensor: LocalTensor) -> str:
    role, default = tensor.role, state.default
    if not tensor.is_matrix or _among(role, _OLLAMA_F32):
        return "f32"
    if _among(role, _OLLAMA_KEPT):
        return "bf16"
    if default == "bf16":
        return "mxfp4" if tensor.stack > 1 else default
    if state.architecture in _LINEAR and default == "q4_k" and role in _OF_LINEAR:
        return _OF_LINEAR[role]
    return _fallback(_ollama_chosen(state, tensor, default), tensor.columns)


@lru_cache(maxsize=4096)
def _among(role: str, parts: tuple[str, ...]) -> bool:
    """Whether a role has one of some parts in its name: a model has few roles and thousands of tensors."""
    return any(part in role for part in parts)


def _fallback(kind: str, columns: int) -> str:
    if columns % TYPES[kind].block:
        kind = _FALLBACK.get(kind, kind)
    return "f16" if columns % TYPES[kind].block else kind


def _chosen(state: _State, tensor: LocalTensor, default: str) -> str:
    role, mix = tensor.role, state.mix
    if mix == QAT_MIX and role in ("output", "token_embd", "per_layer_token_embd"):
        return "f16"
    if role == "output" or (state.tied and role == "token_embd"):
        return _output_type(state, tensor, default)
    if mix == "mxfp4":
        return "mxfp4" if tensor.stack > 1 else "q8_0"
    if role in ("token_embd", "per_layer_token_embd"):
        return _embedding_type(mix, default)
    if mix in _LOW:
        return _low_type(state, role, default)
    if role in _VALUES:
        return _value_type(state, default)
    if role.startswith("ffn_down"):
        index, state.down = (tensor.layer if state.experts > 1 else state.down), state.down + 1
        return _down_type(state, index, default)
    if role.startswith(("ffn_gate", "ffn_up")):
        middle = state.layers // 8 <= tensor.layer < 7 * state.layers // 8
        return "iq3_xxs" if mix == "iq3_xs" and middle else default
    return _attention_type(state, role, default)


def _output_type(state: _State, tensor: LocalTensor, default: str) -> str:
    if state.mix == "mxfp4" or state.falcon or tensor.columns % TYPES[default].block:
        return "q8_0"
    if state.mix in ("iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq2_s", "iq2_m", "iq1_m"):
        return "q5_k"
    return default if default == "q8_0" else "q6_k"


def _embedding_type(mix: str, default: str) -> str:
    if mix in ("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"):
        return "q2_k"
    if mix in ("iq2_s", "iq2_m", "iq3_xxs"):
        return "iq3_s"
    return "q4_k" if mix in ("tq1_0", "tq2_0", "q2_0") else default


def _low_type(state: _State, role: str, default: str) -> str:
    small = "iq3_s" if state.mix in ("iq2_s", "iq2_m") else "q2_k"
    if role in _VALUES:
        return "q4_k" if state.gqa >= 4 or state.experts >= 4 else small
    if role == "attn_k" and state.experts == 8:
        return "q4_k"
    if role.startswith("ffn_down"):
        index, state.down = state.down, state.down + 1
        return small if index < state.layers // 8 else default
    if role == "attn_output":
        if state.experts == 8:
            return "q5_k"
        if state.mix in ("iq1_s", "iq1_m"):
            return "iq2_xxs"
        return "iq3_s" if state.mix in ("iq2_s", "iq2_m") else default
    return default


def _value_type(state: _State, default: str) -> str:
    index, state.value = state.value, state.value + 1
    kind = _value_type_of_mix(state, index, default)
    if state.wide and kind in ("q3_k", "q4_k"):
        kind = "q5_k"
    return "q8_0" if state.experts == 8 else kind


def _value_type_of_mix(state: _State, index: int, default: str) -> str:
    mix, grouped = state.mix, state.gqa >= 4
    table = {
        "q2_k": "q4_k" if grouped else "q3_k",
        "q2_k_s": "q4_k" if grouped else default,
        "iq3_xxs": "q4_k" if grouped else ("iq3_xxs" if state.imatrix else "iq3_s"),
        "iq3_xs": "q4_k" if grouped else default,
        "iq3_s": "q4_k" if grouped else default,
        "iq3_m": "q4_k",
        "q3_k_m": "q5_k" if index < 2 else "q4_k",
        "q3_k_l": "q5_k",
        "iq4_nl": "q5_k" if grouped else default,
        "iq4_xs": "q5_k" if grouped else default,
        "q4_k_m": "q6_k" if more_bits(index, state.values) else default,
        "q5_k_m": "q6_k" if more_bits(index, state.values) else default,
        "q4_k_s": "q5_k" if index < 4 else default,
    }
    return table.get(mix, default)


def _down_type(state: _State, index: int, default: str) -> str:
    layers, falcon = state.layers, state.falcon
    early, more = index < layers // 8, more_bits(index, layers)
    table = {
        "q2_k": "q3_k",
        "q2_k_s": "q4_k" if early else default,
        "iq3_xxs": default if state.imatrix else ("q4_k" if early else "q3_k"),
        "q3_k_m": "q5_k" if index < layers // 16 else ("q4_k" if not falcon or more else "q3_k"),
        "iq3_m": "q4_k" if early or (state.experts == 8 and more) else default,
        "q3_k_l": "q4_k" if falcon else "q5_k",
        "q4_k_m": ("q6_k" if more else default),
        "iq4_nl": "q5_k" if early and not state.imatrix else default,
        "iq4_xs": "q5_k" if early and not state.imatrix else default,
        "q5_k_m": "q6_k" if more else default,
        "q4_k_s": "q5_k" if early and not falcon else default,
        "q4_0": "q4_1" if early and state.imatrix else default,
        "q5_0": "q5_1" if early and state.imatrix else default,
    }
    if falcon and state.mix == "q4_k_m":
        return "q6_k" if index < layers // 16 else ("q5_k" if more else "q4_k")
    return table.get(state.mix, default)


def _attention_type(state: _State, role: str, default: str) -> str:
    mix = state.mix
    if role == "attn_k" and state.experts == 8:
        return "q8_0"
    if role in ("attn_k", "attn_q"):
        return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(mix, default)
    if role != "attn_output":
        return default
    if state.falcon:
        return "q4_k" if mix == "q3_k_l" else default
    if state.experts == 8:
        eight = (
            "q2_k",
            "iq3_xs",
            "iq3_xxs",
            "q3_k_s",
            "q3_k_m",
            "iq4_nl",
            "q4_k_s",
            "q4_k_m",
            "iq3_s",
            "iq3_m",
            "iq4_xs",
        )
        return "q5_k" if mix in eight else default
    return {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}.get(
        mix, default
    )


def _ollama_chosen(state: _State, tensor: LocalTensor, default: str) -> str:
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
