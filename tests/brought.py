"""Models that a reader may bring to the page "Your model": a small config, and a GGUF file's header."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1536,
    "num_hidden_layers": 24,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": 151936,
    "max_position_embeddings": 65536,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}

F32, Q4_K, Q6_K = 0, 12, 14
GGUF_KEYS: dict[str, int | str] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 8192,
    "llama.embedding_length": 512,
    "llama.feed_forward_length": 1024,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
}
TensorRow = tuple[str, tuple[int, ...], int]


def gguf_tensors(vocabulary: int = 1024, some: int = Q4_K) -> list[TensorRow]:
    """The tensors of a Llama of two layers in Q4_K; ``some`` of them, as mixes have it, in another type."""
    rows: list[TensorRow] = [("token_embd.weight", (512, vocabulary), some)]
    for layer in range(2):
        rows += [
            (f"blk.{layer}.attn_norm.weight", (512,), F32),
            (f"blk.{layer}.ffn_norm.weight", (512,), F32),
            (f"blk.{layer}.attn_q.weight", (512, 512), Q4_K),
            (f"blk.{layer}.attn_k.weight", (512, 128), Q4_K),
            (f"blk.{layer}.attn_v.weight", (512, 128), some),
            (f"blk.{layer}.attn_output.weight", (512, 512), Q4_K),
            (f"blk.{layer}.ffn_gate.weight", (512, 1024), Q4_K),
            (f"blk.{layer}.ffn_up.weight", (512, 1024), Q4_K),
            (f"blk.{layer}.ffn_down.weight", (1024, 512), some),
        ]
    return [*rows, ("output_norm.weight", (512,), F32)]


def gguf_header(keys: dict[str, int | str], tensors: list[TensorRow]) -> bytes:
    """A GGUF header, version 3."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for key, value in keys.items():
        held = (
            struct.pack("<I", 8) + gguf_text(value)
            if isinstance(value, str)
            else struct.pack("<II", 4, value)
        )
        parts.append(gguf_text(key) + held)
    for name, shape, kind in tensors:
        sizes = b"".join(struct.pack("<Q", size) for size in shape)
        parts.append(gguf_text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, 0))
    return b"".join(parts)


def gguf_text(value: str) -> bytes:
    """A text as a GGUF file has it: its length, then its bytes."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_file() -> bytes:
    """The header of a Llama of two layers in Q4_K."""
    return gguf_header(GGUF_KEYS, gguf_tensors())


SHA = "0123456789abcdef0123456789abcdef01234567"
GGUF = gguf_file() + bytes(300_000)
"""A file with the beginning of its tensors."""


def hub(route: Any) -> None:
    """A Hub of three repositories: one open, one gated, one of GGUF files that has a config, too."""
    path = urlsplit(route.request.url).path
    headers = {"access-control-allow-origin": "*"}
    if "acme/secret" in path:
        route.fulfill(status=403, headers=headers, body="{}")
    elif path == "/api/models/acme/open/revision/main":
        names = [{"rfilename": "config.json"}, {"rfilename": "model-00001-of-00009.safetensors"}]
        route.fulfill(status=200, headers=headers, body=json.dumps({"sha": SHA, "siblings": names}))
    elif path == f"/acme/open/resolve/{SHA}/config.json":
        route.fulfill(status=200, headers=headers, body=json.dumps(CONFIG))
    elif path == "/api/models/acme/tiny-GGUF/revision/main":
        names = ["config.json", "mmproj-F16.gguf", "Q4_K_M/tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"]
        siblings = [{"rfilename": name} for name in names]
        route.fulfill(status=200, headers=headers, body=json.dumps({"sha": SHA, "siblings": siblings}))
    elif path == f"/acme/tiny-GGUF/resolve/{SHA}/Q4_K_M/tiny-Q4_K_M.gguf":
        route.fulfill(status=200, headers=headers, body=GGUF)
    else:
        route.fulfill(status=404, headers=headers, body="{}")


HUBS: dict[str, Callable[[Any], None]] = {"https://huggingface.co/**": hub}
"""What answers requests of the Hub's address."""
