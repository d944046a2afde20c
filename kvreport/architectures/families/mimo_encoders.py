"""MiMo-V2.5's encoders: a vision tower with grouped queries, and a small transformer over audio codes.

Shapes: vLLM, ``model_executor/models/mimo_v2_omni.py`` and ``mimo_audio.py``. The tokenizer that turns
sound into codes is a folder of its own (``audio_tokenizer/``) with its own config, and is not counted.
"""

from __future__ import annotations

from typing import Final

from kvreport.architectures.blueprint import Tensor
from kvreport.architectures.keys import MAX_VOCABULARY, Keys
from kvreport.architectures.vision import MAX_DEPTH, times
from kvreport.architectures.weights import Tensors, gated_mlp, linear, norm

TOKENIZER_NOTE: Final = (
    "The audio tokenizer is a checkpoint of its own (audio_tokenizer/) and is not counted; the config does"
    " not size it."
)


def vision_tower(vision: Keys, prefix: str = "visual") -> Tensors:
    """Return the vision tower: windows with a sink per head, and a merger of 2x2 patches."""
    hidden, depth = vision.whole("hidden_size"), vision.whole("depth", high=MAX_DEPTH)
    heads, kv_heads = (vision.whole(name, high=1 << 10) for name in ("num_heads", "num_key_value_heads"))
    key_dim, value_dim = (vision.whole(name, high=1 << 12) for name in ("qk_channels", "kv_channels"))
    patch, frames = vision.whole("patch_size", high=1 << 12), vision.whole("temporal_patch_size", high=64)
    channels = vision.whole("in_channels", "in_chans", high=64, default=3)
    merged = hidden * vision.whole("spatial_merge_size", high=64) ** 2
    full = vision.wholes("fullatt_block_indexes", high=MAX_DEPTH) or []
    path = f"{prefix}.blocks.*"
    fused = heads * key_dim + kv_heads * (key_dim + value_dim)
    block = (
        *norm(f"{path}.norm1", hidden, component="vision"),
        *norm(f"{path}.norm2", hidden, component="vision"),
        *linear(f"{path}.attn.qkv", "vision", fused, hidden, "columns", bias=True),
        *linear(f"{path}.attn.proj", "vision", hidden, heads * value_dim, "rows", bias=True),
        *gated_mlp(hidden, vision.whole("intermediate_size"), f"{path}.mlp", "vision", bias=True),
    )
    windowed = depth - len(set(full)) if vision.flag("use_sink") else 0
    return (
        Tensor(f"{prefix}.patch_embed.proj.weight", "vision", (hidden, channels * frames, patch, patch)),
        *times(depth, block),
        *((Tensor(f"{path}.attn.sinks", "vision", (heads,), count=windowed),) if windowed > 0 else ()),
        *norm(f"{prefix}.merger.ln_q", hidden, component="vision"),
        *linear(f"{prefix}.merger.mlp.0", "vision", merged, merged, "columns"),
        *linear(f"{prefix}.merger.mlp.2", "vision", vision.whole("out_hidden_size"), merged, "rows"),
    )


def audio_encoder(audio: Keys, prefix: str = "audio_encoder") -> Tensors:
    """Return the audio encoder: a table of codes per channel, a local transformer, a projection."""
    width = audio.whole("input_local_dim")
    path = f"{prefix}.input_local_transformer"
    layer: Tensors = ()
    for name in ("input_layernorm", "post_attention_layernorm"):
        layer += norm(f"{path}.layers.*.{name}", width, component="audio")
    for name in ("q_proj", "k_proj", "v_proj"):
        layer += linear(f"{path}.layers.*.self_attn.{name}", "audio", width, width, bias=True)
    layer += linear(f"{path}.layers.*.self_attn.o_proj", "audio", width, width)
    layer += gated_mlp(
        width, audio.whole("input_local_intermediate_size"), f"{path}.layers.*.mlp", "audio", split=False
    )
    grouped = width * audio.whole("group_size", high=1 << 10)
    out = audio.whole("out_hidden_size")
    if audio.whole("projection_layers", high=2) == 1:
        projection = linear(f"{prefix}.projection", "audio", out, grouped)
    else:
        projection = (
            *linear(f"{prefix}.projection.mlp.0", "audio", 4 * grouped, grouped),
            *linear(f"{prefix}.projection.mlp.2", "audio", out, 4 * grouped),
        )
    tables = tuple(
        Tensor(f"{prefix}.speech_embeddings.{channel}.weight", "audio", (rows, width), looked_up=True)
        for channel, rows in enumerate(_code_counts(audio))
    )
    return (
        *tables,
        *times(audio.whole("input_local_layers", high=MAX_DEPTH), layer),
        *(norm(f"{path}.norm", width, component="audio") if audio.flag("add_post_norm") else ()),
        *projection,
    )


def _code_counts(audio: Keys) -> list[int]:
    """Return the codes of each channel: one number for all, or one for each, joined by dashes."""
    channels = audio.whole("audio_channels", high=1 << 8)
    stated = audio.raw("speech_vocab_size")
    counts = str(1280 if stated is None else stated).split("-")
    if not all(text.isdecimal() and 0 < int(text[:9]) < MAX_VOCABULARY for text in counts):
        raise audio.fault("speech_vocab_size", stated, "a number of codes, or one for each channel")
    sizes = [int(text) for text in counts]
    if len(sizes) not in (1, channels):
        raise audio.fault("speech_vocab_size", stated, f"1 or {channels} numbers")
    return sizes * channels if len(sizes) == 1 else sizes
