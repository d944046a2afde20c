"""Checkpoints for tests: safetensors files that are a header and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

BITS = {"BF16": 16, "F16": 16, "F32": 32, "F8_E4M3": 8, "I8": 8, "U8": 8, "I32": 32, "U32": 32, "I64": 64}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def header(tensors: Tensors) -> bytes:
    """Write a header as the format says: its length in eight bytes, then JSON."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def total(tensors: Tensors) -> int:
    """Bytes of all tensors."""
    return sum(prod(shape) * BITS[dtype] // 8 for dtype, shape in tensors.values())


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors, shards: int = 1) -> Path:
    """Write a folder with a config and its tensors over so many files, with an index if several."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    if shards == 1:
        names = ["model.safetensors"]
    listed = list(tensors)
    mapping = {}
    for number, name in enumerate(names):
        inside = {key: tensors[key] for key in listed[number::shards]}
        (folder / name).write_bytes(header(inside))
        mapping |= dict.fromkeys(inside, name)
    if shards > 1:
        index = {"metadata": {"total_size": total(tensors)}, "weight_map": mapping}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def llama(
    layers: int, hidden: int, heads: int, kv_heads: int, mlp: int, vocabulary: int, *, dtype: str = "BF16"
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a Llama, named as transformers names them."""
    width = hidden // heads
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": (dtype, (vocabulary, hidden)),
        "model.norm.weight": (dtype, (hidden,)),
        "lm_head.weight": (dtype, (vocabulary, hidden)),
    }
    for index in range(layers):
        at = f"model.layers.{index}."
        for name, shape in {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv_heads * width, hidden),
            "self_attn.v_proj": (kv_heads * width, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (mlp, hidden),
            "mlp.up_proj": (mlp, hidden),
            "mlp.down_proj": (hidden, mlp),
        }.items():
            found[f"{at}{name}.weight"] = (dtype, shape)
    return found
