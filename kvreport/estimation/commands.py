"""How to serve it: the command that starts an engine with the numbers of an answer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, Literal

Server = Literal["vllm", "sglang"]

_ONLINE: Final = frozenset({"fp8"})
"""Weight formats that both engines make from a 16-bit checkpoint while loading."""

_SGLANG_KV: Final = {"fp8": "fp8_e4m3"}
_PLAIN_KV: Final = frozenset({"bf16"})


@dataclass(frozen=True, slots=True)
class Served:
    """What a serving command must say.

    Attributes:
        model: Id of the checkpoint.
        tensor_parallel: Devices of one replica.
        context_tokens: Longest request allowed.
        max_seqs: Requests at once, or None for the engine's default.
        weight_format: Name of the weight format; ``released`` needs no flag.
        kv_format: Name of the KV format.
        kv_is_own: True if the engine takes this KV format by itself.
        share: Memory utilisation (vLLM) or static memory fraction (SGLang), or None for the default.
    """

    model: str
    tensor_parallel: int
    context_tokens: int
    max_seqs: int | None = None
    weight_format: str = "released"
    kv_format: str = "bf16"
    kv_is_own: bool = True
    share: float | None = None


def serving_command(server: Server, served: Served) -> str:
    """Return the command as one line for a shell; names are quoted."""
    flags = _vllm(served) if server == "vllm" else _sglang(served)
    return " ".join(shlex.quote(word) for word in flags)


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == "released" or served.weight_format in _ONLINE:
        return None
    return f"The command needs a checkpoint of {served.model} in {served.weight_format}; put its id in its place."


def _vllm(served: Served) -> list[str]:
    words = ["vllm", "serve", served.model]
    if served.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(served.tensor_parallel)]
    words += ["--max-model-len", str(served.context_tokens)]
    if served.max_seqs is not None:
        words += ["--max-num-seqs", str(served.max_seqs)]
    if served.share is not None:
        words += ["--gpu-memory-utilization", f"{served.share:g}"]
    if served.weight_format in _ONLINE:
        words += ["--quantization", served.weight_format]
    if not served.kv_is_own:
        words += ["--kv-cache-dtype", "auto" if served.kv_format in _PLAIN_KV else served.kv_format]
    return words


def _sglang(served: Served) -> list[str]:
    words = ["python", "-m", "sglang.launch_server", "--model-path", served.model]
    if served.tensor_parallel > 1:
        words += ["--tp-size", str(served.tensor_parallel)]
    words += ["--context-length", str(served.context_tokens)]
    if served.max_seqs is not None:
        words += ["--max-running-requests", str(served.max_seqs)]
    if served.share is not None:
        words += ["--mem-fraction-static", f"{served.share:g}"]
    if served.weight_format in _ONLINE:
        words += ["--quantization", served.weight_format]
    if not served.kv_is_own:
        named = (
            "auto" if served.kv_format in _PLAIN_KV else _SGLANG_KV.get(served.kv_format, served.kv_format)
        )
        words += ["--kv-cache-dtype", named]
    return words
