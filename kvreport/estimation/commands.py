"""How to serve it: the command that starts an engine with the numbers of an answer."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from kvreport.accounting.support import WIDE, computed_in, stored_type
from kvreport.catalog.load import RELEASED
from kvreport.words import COMMAND_NOTES, ONLINE_WEIGHTS, SERVE

if TYPE_CHECKING:
    from kvreport.estimation.answer import Estimate
    from kvreport.estimation.request import Request

OWN_DRAFT: Final = "mtp"
"""Names a checkpoint's own prediction layer as its draft."""

Server = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp"]

_LLAMA_KV: Final = frozenset({"bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"})
_PLAIN_KV: Final = frozenset({"bf16"})
_KV_TYPES: Final = {"fp32": "auto"}
"""A cache in float32 follows the type that the engine computes in."""


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
        dtype: Type to compute in, or None for the checkpoint's own.
        max_batched_tokens: Tokens of one step, or None for the engine's default.
        eager: True if no graphs are captured.
        kv_pool_bytes: Pool of one device given by hand, or None.
        block_tokens: Tokens per block, or None for the engine's choice.
        prefix_caching: On or off, or None for the engine's default.
        images: False if only text is served.
        lora: Adapters held at once and their largest rank; zeros without them.
        draft_tokens: Tokens drafted per step; 0 without speculative decoding.
        draft: Id of a draft model; None for the checkpoint's own prediction layers.
        partition: Layers of each pipeline stage, or empty for the engine's own division.
        redundant_experts: Further copies of experts.
        all_to_all: Kernels that exchange tokens between expert ranks, or empty for the engine's default.
        inputs: Inputs of a kind per prompt, where they are limited and not text alone is served.
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
    dtype: str | None = None
    max_batched_tokens: int | None = None
    eager: bool = False
    kv_pool_bytes: int | None = None
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    images: bool = True
    lora: tuple[int, int] = (0, 0)
    draft_tokens: int = 0
    draft: str | None = None
    partition: tuple[int, ...] = ()
    redundant_experts: int = 0
    all_to_all: str = ""
    inputs: tuple[tuple[str, int], ...] = ()

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage."""
        return self.tensor_parallel * self.data_parallel


def serving_command(server: Server, served: Served) -> str:
    """Return the command as one line for a shell; names are quoted."""
    words = {"tensorrt_llm": _tensorrt_llm, "llama_cpp": _llama_cpp}.get(server)
    line = " ".join(shlex.quote(word) for word in (words(served) if words else _words(server, served)))
    if not served.partition or words is not None:
        return line
    # Both read it from the environment (vLLM 0.33, SGLang 0.5.23: ``distributed/utils.py::get_pp_indices``).
    return f"{server.upper()}_PP_LAYER_PARTITION={','.join(map(str, served.partition))} {line}"


def checkpoint_note(served: Served) -> str | None:
    """Say what the command cannot: that a checkpoint in another format must be found first."""
    if served.weight_format == RELEASED or served.weight_format in ONLINE_WEIGHTS:
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
        words += [
            flags.kv,
            _KV_TYPES.get(served.kv_format) or flags.kv_names.get(served.kv_format, served.kv_format),
        ]
    return words + (_sglang_further if server == "sglang" else _vllm_further)(served)


def _vllm_further(served: Served) -> list[str]:
    """What else ``vllm serve`` must be told (``engine/arg_utils.py``, 0.33)."""
    words = _named(
        ("--dtype", served.dtype),
        ("--max-num-batched-tokens", served.max_batched_tokens),
        ("--kv-cache-memory-bytes", served.kv_pool_bytes),
        ("--block-size", served.block_tokens),
    )
    words += ["--enforce-eager"] if served.eager else []
    if served.prefix_caching is not None:
        words.append("--enable-prefix-caching" if served.prefix_caching else "--no-enable-prefix-caching")
    if not served.images:
        words += ["--limit-mm-per-prompt", '{"image":0,"video":0}']
    elif served.inputs:
        words += ["--limit-mm-per-prompt", json.dumps(dict(served.inputs), separators=(",", ":"))]
    if served.lora[0]:
        words += ["--enable-lora", "--max-loras", str(served.lora[0]), "--max-lora-rank", str(served.lora[1])]
    if served.draft_tokens:
        drafting = {"model": served.draft} if served.draft else {"method": "mtp"}
        told = drafting | {"num_speculative_tokens": served.draft_tokens}
        words += ["--speculative-config", json.dumps(told, separators=(",", ":"))]
    return words


def _sglang_further(served: Served) -> list[str]:
    """What else ``sglang.launch_server`` must be told (``srt/server_args.py``, 0.5.23)."""
    words = _named(
        ("--dtype", served.dtype),
        ("--chunked-prefill-size", served.max_batched_tokens),
        ("--page-size", served.block_tokens),
    )
    words += ["--disable-cuda-graph"] if served.eager else []
    words += ["--disable-radix-cache"] if served.prefix_caching is False else []
    if served.lora[0]:
        words += ["--enable-lora", "--max-loras-per-batch", str(served.lora[0])]
        words += ["--max-lora-rank", str(served.lora[1])]
    if served.draft_tokens:
        words += ["--speculative-algorithm", "EAGLE"]
        words += _named(("--speculative-draft-model-path", served.draft))
        # SGLang counts the token that is verified beside those that are drafted.
        steps, tokens = str(served.draft_tokens), str(served.draft_tokens + 1)
        words += ["--speculative-num-steps", steps, "--speculative-eagle-topk", "1"]
        words += ["--speculative-num-draft-tokens", tokens]
    return words


def _named(*pairs: tuple[str, object | None]) -> list[str]:
    """Flags with their values, of those that have one."""
    return [word for flag, value in pairs if value is not None for word in (flag, str(value))]


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
    if served.redundant_experts:
        copies = str(served.redundant_experts)
        words += (
            ["--ep-num-redundant-experts", copies]
            if sglang
            else ["--enable-eplb", "--eplb-config.num_redundant_experts", copies]
        )
    if served.all_to_all.startswith("deepep") and sglang:
        mode = "low_latency" if served.all_to_all == "deepep_low_latency" else "normal"
        words += ["--moe-a2a-backend", "deepep", "--deepep-mode", mode]
    elif served.all_to_all and not sglang:
        words += ["--all2all-backend", served.all_to_all]
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
    words += _named(("--max_num_tokens", served.max_batched_tokens))
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
    if served.dtype is not None:
        options["dtype"] = served.dtype
    if served.eager:
        options["cuda_graph_config"] = None
    if served.lora[0]:
        options["lora_config"] = {"max_loras": served.lora[0], "max_lora_rank": served.lora[1]}
    if served.draft_tokens:
        own = {"decoding_type": "MTP", "num_nextn_predict_layers": served.draft_tokens}
        other = {
            "decoding_type": "Eagle",
            "max_draft_len": served.draft_tokens,
            "speculative_model_dir": served.draft,
        }
        options["speculative_config"] = other if served.draft else own
    return options


def _llama_cpp(served: Served) -> list[str]:
    """Flags of ``llama-server``; its context is that of all requests together."""
    requests = served.max_seqs or 1
    words = ["llama-server", "--model", served.model, "--ctx-size", str(served.context_tokens * requests)]
    words += ["--parallel", str(requests)]
    if not served.kv_is_own and served.kv_format in _LLAMA_KV:
        words += ["--cache-type-k", served.kv_format, "--cache-type-v", served.kv_format]
    return words


def served_by(estimate: Estimate) -> Served:
    """What the serving command of an estimate must say: what was asked for, and what the verdict rests on."""
    request, query = estimate.request, estimate.request.query
    layout, engine = request.layout, request.case.rules
    default = engine.default_kv_format(request.model, request.accelerator) or "bf16"
    usual = engine.share(None) if request.kv_pool_bytes is None else request.utilization
    return Served(
        model=request.model.id,
        tensor_parallel=layout.tensor,
        context_tokens=request.context_tokens,
        max_seqs=None if query is None else query.max_seqs,
        weight_format=RELEASED if request.weight_format_name == WIDE else request.weight_format_name,
        kv_format=request.kv_format.name,
        kv_is_own=request.kv_format.name in (default, WIDE),
        share=request.utilization if request.utilization != usual else None,
        pipeline_parallel=layout.pipeline,
        data_parallel=layout.data,
        expert_parallel=layout.expert,
        decode_context_parallel=layout.decode_context,
        nodes=layout.nodes,
        dtype=_stated_type(request),
        max_batched_tokens=None if query is None else query.max_batched_tokens,
        eager=request.eager,
        kv_pool_bytes=request.kv_pool_bytes,
        block_tokens=request.serving.block_tokens,
        prefix_caching=request.serving.prefix_caching,
        images=request.images,
        lora=request.lora_slots,
        partition=layout.partition,
        redundant_experts=layout.redundant_experts,
        all_to_all=layout.all_to_all,
        inputs=tuple(sorted(request.inputs.items())) if request.images else (),
        draft_tokens=request.serving.draft_tokens,
        draft=None
        if request.draft is None or query is None or query.draft == OWN_DRAFT
        else str(query.draft),
    )


def _stated_type(request: Request) -> str | None:
    """The type to state: the one asked for, or the one that the release falls back to on this device."""
    if request.support is None or request.dtype is not None:
        return request.dtype
    model, form = request.model, request.weight_format
    falls = computed_in(request.support, request.engine, request.accelerator, model, form)
    own = model.dtype if form is None or form.name == WIDE else stored_type(model, form.name)
    return falls if falls not in (own, model.dtype) and model.weight_format in _PLAIN_KV else None


def estimate_command(estimate: Estimate) -> str | None:
    """The command that starts the engine as an estimate describes it; None where it does not start.

    None, too, for engines without a server, and for devices that differ, which no flag tells.
    """
    request = estimate.request
    family = request.engine.family
    if family not in SERVE and family not in ("tensorrt_llm",):
        return None
    if estimate.verdict not in ("fits", "tight") or len({one.id for one in request.accelerators}) > 1:
        return None
    return serving_command(cast("Server", family), served_by(estimate))
