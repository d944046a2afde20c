"""How to serve it: the command that starts an engine with the numbers of an answer."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Server = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp"]

_ONLINE: Final = frozenset({"fp8"})
"""Weight formats that both engines make from a 16-bit checkpoint while loading."""

_SGLANG_KV: Final = {"fp8": "fp8_e4m3"}
_LLAMA_KV: Final = {"bf16": "bf16", "q8_0": "q8_0", "q4_0": "q4_0", "f16": "f16"}
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
        share: Memory utilisation (vLLM), static memory fraction (SGLang) or fraction of free memory
            (TensorRT-LLM), or None for the default.
        pipeline_parallel: Stages of one replica.
        data_parallel: Ranks of data-parallel attention in one replica.
        expert_parallel: True if experts are divided over all ranks of a stage.
    """

    model: str
    tensor_parallel: int
    context_tokens: int
    max_seqs: int | None = None
    weight_format: str = "released"
    kv_format: str = "bf16"
    kv_is_own: bool = True
    share: float | None = None
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False

    @property
    def attention_and_data(self) -> int:
        """Ranks of one stage."""
        return self.tensor_parallel * self.data_parallel


def serving_command(server: Server, served: Served) -> str:
    """Return the command as one line for a shell; names are quoted."""
    return " ".join(shlex.quote(word) for word in _WORDS[server](served))


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == "released" or served.weight_format in _ONLINE:
        return None
    return f"The command needs a checkpoint of {served.model} in {served.weight_format}; put its id in its place."


def _vllm(served: Served) -> list[str]:
    words = ["vllm", "serve", served.model]
    if served.tensor_parallel > 1:
        words += ["--tensor-parallel-size", str(served.tensor_parallel)]
    if served.pipeline_parallel > 1:
        words += ["--pipeline-parallel-size", str(served.pipeline_parallel)]
    if served.data_parallel > 1:
        words += ["--data-parallel-size", str(served.data_parallel)]
    if served.expert_parallel:
        words += ["--enable-expert-parallel"]
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
    if served.attention_and_data > 1:
        words += ["--tp-size", str(served.attention_and_data)]
    if served.pipeline_parallel > 1:
        words += ["--pp-size", str(served.pipeline_parallel)]
    if served.data_parallel > 1:
        words += ["--dp-size", str(served.data_parallel), "--enable-dp-attention"]
    if served.expert_parallel:
        words += ["--ep-size", str(served.attention_and_data)]
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


def _tensorrt_llm(served: Served) -> list[str]:
    """Flags of ``trtllm-serve``; attention data parallelism and the cache's type need a file for ``--config``."""
    words = ["trtllm-serve", served.model]
    if served.attention_and_data > 1:
        words += ["--tp_size", str(served.attention_and_data)]
    if served.pipeline_parallel > 1:
        words += ["--pp_size", str(served.pipeline_parallel)]
    if served.expert_parallel:
        words += ["--ep_size", str(served.attention_and_data)]
    words += ["--max_seq_len", str(served.context_tokens)]
    if served.max_seqs is not None:
        words += ["--max_batch_size", str(served.max_seqs)]
    if served.share is not None:
        words += ["--free_gpu_memory_fraction", f"{served.share:g}"]
    if served.data_parallel > 1 or not served.kv_is_own:
        words += ["--config", "options.yaml"]
    return words


def _llama_cpp(served: Served) -> list[str]:
    """Flags of ``llama-server``; its context is that of all requests together."""
    requests = served.max_seqs or 1
    words = ["llama-server", "--model", served.model, "--ctx-size", str(served.context_tokens * requests)]
    words += ["--parallel", str(requests)]
    if not served.kv_is_own and served.kv_format in _LLAMA_KV:
        stored = _LLAMA_KV[served.kv_format]
        words += ["--cache-type-k", stored, "--cache-type-v", stored]
    return words


def tensorrt_llm_options(served: Served) -> dict[str, object]:
    """What the file of ``trtllm-serve --config`` must say (``llmapi/llm_args.py``); empty if none is needed."""
    options: dict[str, object] = {}
    if served.data_parallel > 1:
        options["enable_attention_dp"] = True
    if not served.kv_is_own:
        options["kv_cache_config"] = {"dtype": "auto" if served.kv_format in _PLAIN_KV else served.kv_format}
    return options


_WORDS: Final[dict[str, Callable[[Served], list[str]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt_llm": _tensorrt_llm,
    "llama_cpp": _llama_cpp,
}
