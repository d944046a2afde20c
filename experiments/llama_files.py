"""Sparse GGUF files of real shapes: a header as llama.cpp's converter would write it, and no weights.

llama.cpp checks that a file is as long as its tensor table says and plans its buffers from the header alone, so a
sparse file of a 70B model takes a few kilobytes of disk. The keys are those that ``src/llama-model.cpp`` and
``src/models/*.cpp`` of llama.cpp 0c1e57098 read.
"""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Final

from experiments.llama_special import Entry, Long, Value, special, special_keys
from kvreport.accounting.engines.llama_cpp.inventory import LocalTensor
from kvreport.accounting.engines.llama_cpp.local_model import LocalModel
from kvreport.accounting.engines.llama_cpp.network import Attention, LatentAttention, Mixture, Recurrence
from kvreport.accounting.engines.llama_cpp.types import BY_NUMBER, TYPES

ALIGNMENT: Final = 32
NUMBERS: Final = {kind.name: number for number, kind in BY_NUMBER.items()}


def write_sparse(local: LocalModel, path: Path) -> None:
    """Write a model's header, and make the file as long as its tensors.

    Args:
        local: The model with a type for every tensor.
        path: Where to write.
    """
    rows = tensor_table(local)
    keys = metadata(local)
    head = [b"GGUF", struct.pack("<IQQ", 3, len(rows), len(keys))]
    head += [_text(key) + _value(value) for key, value in keys.items()]
    offset = 0
    for row in rows:
        sizes = b"".join(struct.pack("<Q", size) for size in row.shape)
        head.append(_text(row.name) + struct.pack("<I", len(row.shape)) + sizes)
        head.append(struct.pack("<IQ", NUMBERS[row.kind.name], offset))
        offset += -(-row.kind.nbytes(row.shape[0], prod(row.shape[1:])) // ALIGNMENT) * ALIGNMENT
    raw = b"".join(head)
    raw += bytes(-len(raw) % ALIGNMENT)
    with path.open("wb") as stream:
        stream.write(raw)
        stream.truncate(len(raw) + offset)


def tensor_table(local: LocalModel) -> list[Entry]:
    """Every tensor of a file as the architecture's converter names it.

    Args:
        local: The model with a type for every tensor.
    """
    rows = [
        Entry(name, shape, tensor.kind or TYPES["f32"])
        for tensor in local.tensors
        for name, shape in _named(local, tensor)
    ]
    if local.architecture.name == "gemma4":
        width = next(
            m.key_dim for b in local.network.blocks if isinstance(m := b.mixer, Attention) and not m.window
        )
        rows.append(Entry("rope_freqs.weight", (width // 2,), TYPES["f32"]))
    return special(local, rows)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, Long):
        return struct.pack("<IIQ", 9, 10, len(value)) + b"".join(struct.pack("<Q", item) for item in value)
    kind, form = (
        (7, "?") if isinstance(value[0], bool) else ((6, "f") if isinstance(value[0], float) else (4, "I"))
    )
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(
        struct.pack(f"<{form}", item) for item in value
    )


_POST_ATTENTION: Final = frozenset({"gpt-oss", "glm4moe", "qwen35", "qwen35moe", "qwen3next", "seed_oss"})
"""Architectures that name the norm before the feed-forward network ``post_attention_norm``."""

_EMBEDDING_NORM: Final = frozenset({"lfm2", "lfm2moe"})
_PLAIN: Final = ("ssm_a", "ssm_d")
_STATES: Final = {"dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "second_norm.bias": "ffn_norm.bias",
                  "layer_scalar": "layer_output_scale"}  # fmt: skip
_RENAMED: Final = {("hy_v3", "exp_probs_b"): "exp_probs_b", ("dbrx", "ffn_norm"): "attn_output_norm.weight"}
"""Names that only one architecture uses."""

_GROUPED: Final = ("mamba2", "kda")
"""Mechanisms whose heads and groups are a dimension of their own (``ssm_a``, ``ssm_d``, ``ssm_norm``)."""


def _named(local: LocalModel, tensor: LocalTensor) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of a tensor in a file."""
    name, role = local.architecture.name, _STATES.get(tensor.role, tensor.role)
    mixer = _recurrence(local, tensor.layer)
    if (name, role) in _RENAMED:
        return [(f"blk.{tensor.layer}.{_RENAMED[name, role]}", _shape(local, tensor))]
    if role == "ssm_conv1d" and mixer is not None and mixer.mechanism == "kda":
        width = tensor.columns * tensor.rows // (3 * (mixer.conv + 1))
        shape = (mixer.conv + 1, 1, width)
        return [(f"blk.{tensor.layer}.ssm_conv1d_{part}.weight", shape) for part in "qkv"]
    if role == "ssm_conv1d" and mixer is not None and mixer.mechanism == "short_conv":
        role = "shortconv.conv"
    if role == "ssm_norm" and mixer is not None and mixer.mechanism == "mamba1":
        widths = {"ssm_dt_norm": mixer.rank, "ssm_b_norm": mixer.state, "ssm_c_norm": mixer.state}
        return [(f"blk.{tensor.layer}.{part}.weight", (width,)) for part, width in widths.items()]
    if role == "second_norm":
        named = _has(local, tensor.layer, "post_attention_norm")
        late = name in _POST_ATTENTION or (
            not named and _has(local, tensor.layer, "pre_ffw_norm", "ffn_norm", "post_ffw_norm")
        )
        role = "post_attention_norm" if late else "ffn_norm"
    if role == "output_norm" and name in _EMBEDDING_NORM:
        role = "token_embd_norm"
    if role == "exp_probs_b":
        role = "exp_probs_b.bias"
    stem = f"blk.{tensor.layer}.{role}" if tensor.layer >= 0 else role
    full = stem if role.endswith(".bias") or role in _PLAIN else f"{stem}.weight"
    return [(full, _shape(local, tensor))]


def _shape(local: LocalModel, tensor: LocalTensor) -> tuple[int, ...]:
    if tensor.role.startswith(("ssm_conv1d", "shortconv.conv")) and not tensor.role.endswith(".bias"):
        mixer = _recurrence(local, tensor.layer)
        kernel = 1 + (mixer.conv if mixer is not None else 3)
        return (kernel, tensor.columns * tensor.rows // kernel)
    mixer = _recurrence(local, tensor.layer)
    if mixer is not None and mixer.mechanism in _GROUPED and tensor.rows == 1:
        if tensor.role in ("A_log", "D"):
            return (1, tensor.columns)
        if tensor.role == "ssm_norm" and mixer.mechanism == "mamba2":
            return (tensor.columns // mixer.groups, mixer.groups)
    if tensor.stack > 1 and tensor.role.endswith(".bias"):
        return (tensor.columns * tensor.rows // tensor.stack, tensor.stack)
    if tensor.stack > 1:
        return (tensor.columns, tensor.rows // tensor.stack, tensor.stack)
    return (tensor.columns, tensor.rows) if tensor.rows > 1 else (tensor.columns,)


def _recurrence(local: LocalModel, layer: int) -> Recurrence | None:
    if layer < 0:
        return None
    block = local.network.blocks[layer]
    return block.mixer if isinstance(block.mixer, Recurrence) else block.second


def _has(local: LocalModel, layer: int, *roles: str) -> bool:
    return any(tensor.layer == layer and tensor.role in roles for tensor in local.tensors)


def metadata(local: LocalModel) -> dict[str, Value]:
    """The keys of a file's header."""
    name, model, network = local.architecture.name, local.model, local.network
    mixers = [block.mixer for block in network.blocks]
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    latent = next((mixer for mixer in mixers if isinstance(mixer, LatentAttention)), None)
    mixture = next((block.feed for block in network.blocks if isinstance(block.feed, Mixture)), None)
    keys: dict[str, Value] = {
        "general.architecture": name,
        "general.alignment": ALIGNMENT,
        "tokenizer.ggml.model": "no_vocab",
    }
    own: dict[str, Value] = {
        "vocab_size": network.vocabulary,
        "block_count": len(network.blocks),
        "context_length": model.context_tokens,
        "embedding_length": network.hidden,
        "feed_forward_length": _feeds(local),
        "attention.head_count": _per_layer(name, [_heads(mixer, model.attention_heads) for mixer in mixers]),
        "attention.head_count_kv": _per_layer(name, [_kv_heads(mixer) for mixer in mixers]),
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        # Factors that some architectures cannot do without; none changes a buffer.
        "logit_scale": 1.0,
        "residual_scale": 1.0,
        "embedding_scale": 1.0,
        "attention.scale": 1.0,
        "attention.clamp_kqv": 8.0,
        "use_parallel_residual": name != "gptneox" or local.architecture.parallel != "no",
        "kda.gate_lower_bound": -5.0,
        "rope.dimension_sections": [16, 24, 24, 0],
    }
    if network.per_layer:
        own["embedding_length_per_layer_input"] = network.per_layer
    if attention:
        own |= _attention_keys(attention)
    if latent is not None:
        own |= _latent_keys(latent)
    if mixture is not None:
        own |= _mixture_keys(local, mixture)
    own |= _recurrent_keys(local) | special_keys(local)
    return keys | {f"{name}.{key}": value for key, value in own.items()}


_BY_LAYER: Final = frozenset(
    {
        "nemotron_h",
        "nemotron_h_moe",
        "lfm2",
        "lfm2moe",
        "jamba",
        "granitehybrid",
        "kimi-linear",
        "bailingmoe3",
        "deci",
    }
)
"""Architectures whose files state heads per layer, 0 where a layer has no attention."""


def _per_layer(name: str, numbers: list[int]) -> Value:
    kinds = set(numbers) - {0}
    return numbers if name in _BY_LAYER or len(kinds) > 1 else max(kinds, default=0)


def _feeds(local: LocalModel) -> Value:
    widths = {
        tensor.layer: tensor.columns
        for tensor in local.tensors
        if tensor.role == "ffn_down" and tensor.layer >= 0
    }
    found = [widths.get(layer, 0) for layer in range(len(local.network.blocks))]
    if local.architecture.name.startswith("nemotron_h"):
        # A layer without attention and without a feed-forward network is the recurrent one.
        dense = local.model.intermediate_size or 1
        return [
            0 if block.feed is None else width or dense
            for block, width in zip(local.network.blocks, found, strict=True)
        ]
    usual = max(found, default=0) or local.model.intermediate_size or 1
    return [width or 0 for width in found] if len(set(found)) > 1 and 0 not in found else usual


def _heads(mixer: object, usual: int) -> int:
    if isinstance(mixer, Attention):
        return mixer.heads
    return usual


def _kv_heads(mixer: object) -> int:
    if isinstance(mixer, Attention):
        return mixer.kv_heads
    return 1 if isinstance(mixer, LatentAttention) else 0


def _attention_keys(attention: list[Attention]) -> dict[str, Value]:
    full = [mixer for mixer in attention if mixer.window is None]
    window = [mixer for mixer in attention if mixer.window is not None]
    usual = (full or attention)[0]
    keys: dict[str, Value] = {
        "attention.key_length": usual.key_dim,
        "attention.value_length": usual.value_dim,
        "rope.dimension_count": usual.key_dim,
    }
    if window:
        keys |= {
            "attention.sliding_window": window[0].window or 0,
            "attention.sliding_window_pattern": [mixer.window is not None for mixer in attention],
            "attention.key_length_swa": window[0].key_dim,
            "attention.value_length_swa": window[0].value_dim,
            "rope.dimension_count_swa": window[0].key_dim,
        }
    shared = sum(not mixer.owns_cache for mixer in attention)
    return keys | ({"attention.shared_kv_layers": shared} if shared else {})


def _latent_keys(latent: LatentAttention) -> dict[str, Value]:
    keys: dict[str, Value] = {
        "attention.kv_lora_rank": latent.latent,
        "attention.key_length": latent.latent + latent.rotary,
        "attention.value_length": latent.latent,
        "attention.key_length_mla": latent.nope + latent.rotary,
        "attention.value_length_mla": latent.value_dim,
        "rope.dimension_count": latent.rotary,
    }
    if latent.query_rank:
        keys["attention.q_lora_rank"] = latent.query_rank
    if latent.indexer is not None:
        keys |= {
            "attention.indexer.head_count": latent.indexer.heads,
            "attention.indexer.key_length": latent.indexer.dim,
            "attention.indexer.top_k": latent.indexer.top_k,
        }
    return keys


def _mixture_keys(local: LocalModel, mixture: Mixture) -> dict[str, Value]:
    blocks = local.network.blocks
    dense = next((n for n, block in enumerate(blocks) if isinstance(block.feed, Mixture)), 0)
    keys: dict[str, Value] = {
        "expert_count": mixture.experts,
        "expert_used_count": mixture.used,
        "expert_feed_forward_length": mixture.width,
        "leading_dense_block_count": dense,
        "expert_weights_scale": 1.0,
        "expert_gating_func": 2 if mixture.probs_bias else 1,
        "moe_every_n_layers": 1,
        "interleave_moe_layer_step": 1,
    }
    if mixture.shared is not None:
        # Shared experts are one network as wide as all of them.
        keys |= {
            "expert_shared_count": max(1, mixture.shared.width // mixture.width),
            "expert_shared_feed_forward_length": mixture.shared.width,
        }
    return keys


def _recurrent_keys(local: LocalModel) -> dict[str, Value]:
    found = [block.mixer for block in local.network.blocks if isinstance(block.mixer, Recurrence)]
    found += [block.second for block in local.network.blocks if block.second is not None]
    if not found:
        return {}
    one = found[0]
    flags = [isinstance(block.mixer, Recurrence) for block in local.network.blocks]
    period = next((n + 1 for n, flag in enumerate(flags) if not flag), 0)
    keys: dict[str, Value] = {
        "ssm.conv_kernel": one.conv + 1,
        "ssm.state_size": one.state,
        "ssm.inner_size": one.inner,
        "ssm.group_count": one.groups,
        "ssm.time_step_rank": one.rank or one.heads,
        "shortconv.l_cache": one.conv + 1,
        "full_attention_interval": period,
    }
    if one.mechanism == "kda":
        keys["kda.head_dim"] = one.state
    return keys
