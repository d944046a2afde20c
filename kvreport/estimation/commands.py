"""How to serve it: the command that starts an engine with the numbers of an answer."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, Literal

from kvreport.words import COMMAND_NOTES, ONLINE_WEIGHTS, SERVE

Server = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp"]

_LLAMA_KV: Final = frozenset({"bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"})
_PLAIN_KV: Final = frozenset({"bf16"})


@dataclass(frozen=True, slots=True)
class Served:
    """What a serving command must say.

    Attributes:
        model: Id of the checkpoint.
        tensor_parallel: Devices of one replica.
        context_tokens: Longest request allowed.
        max_seqs: Requests at once on one data rank, or None for the engine's default.
        weight_format: Name of the weight format; ``released`` needs no flag.
        kv_format: Name of the KV format.
        kv_is_own: True if the engine takes this KV format by itself.
        share: Memory utilization (vLLM), static memory fraction (SGLang) or fraction of free memory
            (TensorRT-LLM), or None for the default.
        pipeline_parallel: Stages of one replica.
        data_parallel: Ranks of data-parallel attention in one replica.
        expert_parallel: True if experts are divided over all ranks of a stage.
        decode_context_parallel: Parts that a cache's tokens are divided into.
        nodes: Servers that one replica stands in.
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
    decode_context_parallel: int = 1
    nodes: int = 1

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage."""
        return self.tensor_parallel * self.data_parallel


def serving_command(server: Server, served: Served) -> str:
    """Return the command as one line for a shell; names are quoted."""
    words = {"tensorrt_llm": _tensorrt_llm, "llama_cpp": _llama_cpp}.get(server)
    return " ".join(shlex.quote(word) for word in (words(served) if words else _words(server, served)))


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == "released" or served.weight_format in ONLINE_WEIGHTS:
        return None
    return COMMAND_NOTES["checkpoint"].format(model=served.model, format=served.weight_format)


def nodes_note(served: Served) -> str | None:
    """Say what the command cannot where a replica stands in several servers: who is first, and which this is."""
    if served.nodes == 1:
        return None
    vllm = COMMAND_NOTES["nodes_by_data" if served.data_parallel > 1 else "nodes_by_rank"]
    return COMMAND_NOTES["nodes"].format(nodes=served.nodes, vllm=vllm)


def _words(server: Server, served: Served) -> list[str]:
    flags = SERVE[server]
    words = [*flags.start, served.model]
    ranks = served.stage_ranks if server == "sglang" else served.tensor_parallel
    if ranks > 1:
        words += [flags.tensor_parallel, str(ranks)]
    words += _layout_words(server, served)
    words += [flags.context, str(served.context_tokens)]
    if served.max_seqs is not None:
        # SGLang divides the number among its data ranks (managers/scheduler.py, 0.5.23).
        copies = served.data_parallel if server == "sglang" else 1
        words += [flags.max_num_seqs, str(served.max_seqs * copies)]
    if served.share is not None:
        words += [flags.share, f"{served.share:g}"]
    if served.weight_format in ONLINE_WEIGHTS:
        words += [flags.weights, served.weight_format]
    if not served.kv_is_own:
        words += [flags.kv, flags.kv_names.get(served.kv_format, served.kv_format)]
    return words


def _layout_words(server: Server, served: Served) -> list[str]:
    """Flags of stages, data ranks, experts and nodes: SGLang counts data ranks among its tensor ranks."""
    sglang, flags = server == "sglang", SERVE[server]
    words: list[str] = []
    if served.pipeline_parallel > 1:
        words += [flags.pipeline_parallel, str(served.pipeline_parallel)]
    if served.data_parallel > 1:
        words += [flags.data_parallel, str(served.data_parallel), *flags.data_attention]
    if served.expert_parallel:
        words += [*flags.expert_parallel, *([str(served.stage_ranks)] if sglang else [])]
    if served.decode_context_parallel > 1:
        words += [flags.decode_context_parallel, str(served.decode_context_parallel)]
    if served.nodes > 1:
        local = served.data_parallel // served.nodes
        by_data = not sglang and local > 0 and served.data_parallel > 1
        words += ["--data-parallel-size-local", str(local)] if by_data else ["--nnodes", str(served.nodes)]
    return words


def _tensorrt_llm(served: Served) -> list[str]:
    """Flags of ``trtllm-serve``; attention data parallelism and the cache's type need a file for ``--config``."""
    words = ["trtllm-serve", served.model]
    if served.stage_ranks > 1:
        words += ["--tp_size", str(served.stage_ranks)]
    if served.pipeline_parallel > 1:
        words += ["--pp_size", str(served.pipeline_parallel)]
    if served.expert_parallel:
        words += ["--ep_size", str(served.stage_ranks)]
    words += ["--max_seq_len", str(served.context_tokens)]
    if served.max_seqs is not None:
        words += ["--max_batch_size", str(served.max_seqs)]
    if served.share is not None:
        words += ["--free_gpu_memory_fraction", f"{served.share:g}"]
    if tensorrt_llm_options(served):
        words += ["--config", "options.yaml"]
    return words


def tensorrt_llm_options(served: Served) -> dict[str, object]:
    """What the file of ``trtllm-serve --config`` must say (``llmapi/llm_args.py``); empty if none is needed."""
    options: dict[str, object] = {}
    if served.data_parallel > 1:
        options["enable_attention_dp"] = True
    if not served.kv_is_own:
        options["kv_cache_config"] = {"dtype": "auto" if served.kv_format in _PLAIN_KV else served.kv_format}
    return options


def _llama_cpp(served: Served) -> list[str]:
    """Flags of ``llama-server``; its context is that of all requests together."""
    requests = served.max_seqs or 1
    words = ["llama-server", "--model", served.model, "--ctx-size", str(served.context_tokens * requests)]
    words += ["--parallel", str(requests)]
    if not served.kv_is_own and served.kv_format in _LLAMA_KV:
        words += ["--cache-type-k", served.kv_format, "--cache-type-v", served.kv_format]
    return words
