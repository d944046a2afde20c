"""How to serve it: the command that starts an engine with the numbers of an answer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from kvreport.words import ONLINE_WEIGHTS, SERVE

Server = Literal["vllm", "sglang"]


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
    return " ".join(shlex.quote(word) for word in _words(server, served))


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == "released" or served.weight_format in ONLINE_WEIGHTS:
        return None
    return f"The command needs a checkpoint of {served.model} in {served.weight_format}; put its id in its place."


def _words(server: Server, served: Served) -> list[str]:
    flags = SERVE[server]
    words = [*flags.start, served.model]
    if served.tensor_parallel > 1:
        words += [flags.tensor_parallel, str(served.tensor_parallel)]
    words += [flags.context, str(served.context_tokens)]
    if served.max_seqs is not None:
        words += [flags.max_num_seqs, str(served.max_seqs)]
    if served.share is not None:
        words += [flags.share, f"{served.share:g}"]
    if served.weight_format in ONLINE_WEIGHTS:
        words += [flags.weights, served.weight_format]
    if not served.kv_is_own:
        words += [flags.kv, flags.kv_names.get(served.kv_format, served.kv_format)]
    return words
