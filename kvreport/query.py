"""What is asked: one frozen record, each field once.

A field carries its flag, unit, range and help. The command line, keyword arguments, the JSON Schema and the
reference page are generated from :func:`options`; nothing else lists the fields again. A query holds what a
caller wrote — names, numbers, sizes as text. Records replace the names in
:func:`kvreport.estimation.request.resolve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, Literal

from kvreport.errors import InputError, shorten
from kvreport.units import parse_bytes

SERVER_ENGINE: Final = "vllm"
"""The engine of a question that names none and is not about a machine at home."""

Kind = Literal["text", "whole", "share", "tokens", "bytes", "switch", "tristate", "choice", "pairs"]
"""How a value is written: a text, a whole number, a share of 1, a token count (32K), a size (40GiB), on,
on or off, one of some words, NAME=NUMBER (repeatable)."""

Group = Literal["question", "layout", "engine", "home", "extras"]

GROUPS: Final[dict[Group, str]] = {
    "question": "question",
    "layout": "layout over GPUs",
    "engine": "engine",
    "home": "local engines (llama.cpp's own names)",
    "extras": "what else lives in the memory",
}


@dataclass(frozen=True, slots=True)
class Option:
    """What a field of :class:`Query` is outside Python.

    Attributes:
        name: The field, the keyword argument and the key in JSON.
        flags: Flags on the command line, the first one shown.
        kind: How its value is written.
        help: What it is, with the default in brackets.
        group: Where help pages list it.
        metavar: What stands for its value in help.
        default: What is taken where nothing is said.
        low: Smallest whole number allowed.
        high: Largest whole number allowed.
        choices: Words allowed.
        many: True if the flag may be repeated.
        url: Its key in the address of a page; "" where no page asks for it.
    """

    name: str
    flags: tuple[str, ...]
    kind: Kind
    help: str
    group: Group
    metavar: str | None
    default: Any
    low: int
    high: int
    choices: tuple[str, ...]
    many: bool
    url: str


MOST_COUNT: Final = 1 << 30
"""Largest whole number of an option without a limit of its own."""
MOST_BYTES: Final = 128 << 40
"""Largest size of an option without a limit of its own: 128 TiB of host memory."""


def _option(
    *flags: str,
    kind: Kind,
    help: str,  # noqa: A002 - argparse's own word
    group: Group = "question",
    default: Any = None,  # noqa: ANN401 - whatever the field holds
    metavar: str | None = None,
    low: int = 1,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    many: bool = False,
    url: str = "",
) -> Any:  # noqa: ANN401 - a dataclass field
    meta = {
        "flags": flags,
        "kind": kind,
        "help": help,
        "group": group,
        "metavar": metavar or _METAVARS.get(kind),
        "low": low,
        "high": (MOST_BYTES if kind == "bytes" else MOST_COUNT) if high is None else high,
        "choices": choices,
        "many": many,
        "url": url,
    }
    return field(default=default, metadata=meta)


_METAVARS: Final = {
    "text": "NAME",
    "whole": "N",
    "share": "F",
    "tokens": "TOKENS",
    "bytes": "SIZE",
    "pairs": "NAME=N",
}
_MOST_RANKS: Final = 1024
MOST_ENGINES: Final = 64
"""Engines that may share a GPU: a context of 0.53 GiB for each of more leaves no card anything to serve with."""
_MOST_DEVICE_BYTES: Final = 16 << 40
"""Memory of one device, in bytes: 16 TiB, ten times the largest of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question about one model on some accelerators.

    Attributes:
        model: Catalog id, slug or alias; path of a config, a GGUF file or a folder; or a record,
            or a GGUF file that was read.
        gpu: Accelerators: a name, a record, or a sequence with one per rank; ``"8xH100"`` is eight.
    """

    model: Any
    gpu: Any = _option(
        "--gpu",
        kind="text",
        metavar="GPU",
        many=True,
        help="accelerator slug or alias (H100), with their number where they are several (8xH100); repeat it for unequal GPUs",
        url="gpu",
    )
    context_tokens: int | str | None = _option(
        "--context",
        kind="tokens",
        help="tokens of every request, such as 32K (the limit of the model)",
        url="context",
    )
    any_context: bool = _option(
        "--any-context",
        kind="switch",
        default=False,
        help="allow a context beyond the model's limit, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 and SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 do",
    )
    hf_overrides: Any = _option(
        "--hf-overrides",
        kind="text",
        metavar="KEYS",
        many=True,
        help='keys of config.json that the server\'s command changes, as JSON such as {"max_position_embeddings": 131072}; the context follows lengths and rotary scaling',
    )
    weights: str | None = _option(
        "--weights",
        kind="text",
        metavar="FORMAT",
        help="weight format (as released)",
        url="weights",
    )
    kv: str = _option(
        "--kv",
        kind="text",
        metavar="FORMAT",
        default="auto",
        help="KV format (auto: the checkpoint's own, else 16-bit)",
        url="kv",
    )
    dtype: str = _option(
        "--dtype",
        kind="choice",
        default="auto",
        choices=("auto", "half", "float16", "bfloat16", "float32"),
        help="type to compute in (auto: the checkpoint's own)",
    )
    assume_defaults: bool = _option(
        "--assume-defaults",
        kind="switch",
        default=False,
        help="take the class's published defaults for dimensions that a config.json does not state",
    )

    fetch: bool = _option(
        "--fetch", kind="switch", default=False, help="ask the Hub for a model that the catalog does not have"
    )
    revision: str | None = _option(
        "--revision", kind="text", metavar="REV", help="branch, tag or commit of the Hub's repository (main)"
    )

    tensor_parallel: int | None = _option(
        "--tensor-parallel",
        "--tp",
        kind="whole",
        group="layout",
        high=_MOST_RANKS,
        help="GPUs that share each layer (1)",
        url="tp",
    )
    data_parallel: int = _option(
        "--data-parallel",
        "--dp",
        kind="whole",
        group="layout",
        default=1,
        high=_MOST_RANKS,
        help="ranks of data parallelism, each with requests and a KV pool of its own (1)",
        url="dp",
    )
    expert_parallel: bool = _option(
        "--expert-parallel",
        kind="switch",
        group="layout",
        default=False,
        help="divide routed experts over all tensor x data ranks",
        url="ep",
    )
    pipeline_parallel: int = _option(
        "--pipeline-parallel",
        "--pp",
        kind="whole",
        group="layout",
        default=1,
        high=_MOST_RANKS,
        help="stages that share the layers (1)",
        url="pp",
    )
    decode_context_parallel: int = _option(
        "--decode-context-parallel",
        "--dcp",
        kind="whole",
        group="layout",
        default=1,
        high=_MOST_RANKS,
        help="ranks that share a request's tokens while decoding (1)",
        url="dcp",
    )
    nodes: int = _option(
        "--nodes",
        kind="whole",
        group="layout",
        default=1,
        high=_MOST_RANKS,
        help="servers that the GPUs stand in (1)",
        url="nodes",
    )

    pipeline_partition: str | None = _option(
        "--pipeline-partition",
        kind="text",
        group="layout",
        metavar="N,N",
        help="layers of each pipeline stage, or 'best' for those that hold the most requests (the engine's)",
    )
    num_redundant_experts: int = _option(
        "--num-redundant-experts",
        kind="whole",
        group="layout",
        default=0,
        low=0,
        high=1 << 16,
        help="further copies of experts, divided over the expert ranks (0)",
    )
    mm_encoder_tp_mode: str = _option(
        "--mm-encoder-tp-mode",
        kind="choice",
        group="layout",
        default="weights",
        choices=("weights", "data"),
        help="what tensor ranks divide of an encoder: its weights, or the images, with the encoder whole on each (weights)",
    )
    moe_dense_tp_size: int | None = _option(
        "--moe-dense-tp-size",
        kind="whole",
        group="layout",
        low=1,
        high=1 << 16,
        help="ranks that divide dense MLPs of a mixture: 1, or all (all; SGLang)",
    )
    enable_dp_lm_head: bool = _option(
        "--enable-dp-lm-head",
        kind="switch",
        group="layout",
        default=False,
        help="the output head is divided over the ranks of one data rank (SGLang)",
    )
    all2all_backend: str | None = _option(
        "--all2all-backend",
        kind="choice",
        group="layout",
        choices=(
            "allgather_reducescatter",
            "deepep_high_throughput",
            "deepep_low_latency",
            "deepep_v2",
            "flashinfer_nvlink_one_sided",
            "flashinfer_nvlink_two_sided",
            "mori_high_throughput",
            "mori_low_latency",
            "nixl_ep",
        ),
        help="kernels that exchange tokens between expert ranks (allgather_reducescatter)",
    )

    network_bandwidth: int | str | None = _option(
        "--network-bandwidth",
        kind="bytes",
        high=_MOST_DEVICE_BYTES,
        group="layout",
        help="bytes per second that a GPU passes to other servers, such as 50GB (400 Gb/s), for the lower bounds",
    )

    engine: Any = _option(
        "--engine",
        kind="text",
        group="engine",
        default=SERVER_ENGINE,
        help="whose rules apply (vllm; llama-cpp for a GGUF mix or a machine at home), or vllm@0.25.0; ceiling reserves nothing",
        url="engine",
    )
    utilization: float | None = _option(
        "--utilization",
        kind="share",
        group="engine",
        help="memory share that the engine takes (its default)",
        url="share",
    )
    memory: int | str | None = _option(
        "--memory",
        kind="bytes",
        high=_MOST_DEVICE_BYTES,
        group="engine",
        help="usable memory per device, where it can be set (unified memory)",
    )
    held_by_others: int | str | None = _option(
        "--held-by-others",
        kind="bytes",
        high=_MOST_DEVICE_BYTES,
        group="engine",
        help="memory of each GPU that other processes hold when the engine starts, such as 36GiB",
    )
    engines_per_gpu: int = _option(
        "--engines-per-gpu",
        kind="whole",
        group="engine",
        default=1,
        high=MOST_ENGINES,
        help="engines of this kind on each GPU, started one after the other (1; vLLM)",
    )
    kv_pool: int | str | None = _option(
        "--kv-pool",
        "--kv-cache-memory-bytes",
        kind="bytes",
        high=_MOST_DEVICE_BYTES,
        group="engine",
        help="KV pool per GPU, such as 40GiB, instead of a budget",
    )
    kv_pool_blocks: int | None = _option(
        "--kv-pool-blocks",
        "--num-gpu-blocks-override",
        kind="whole",
        group="engine",
        help="KV pool per GPU in blocks, instead of a budget (vLLM)",
    )
    max_batched_tokens: int | None = _option(
        "--max-batched-tokens",
        kind="whole",
        group="engine",
        help="tokens of one scheduler step (engine's default)",
        url="batched",
    )
    max_seqs: int | None = _option(
        "--max-seqs",
        kind="whole",
        group="engine",
        help="requests at once (engine's default)",
        url="seqs",
    )
    block_size: int | None = _option(
        "--block-size", kind="whole", group="engine", high=1 << 20, help="tokens per block (engine's choice)"
    )
    eager: bool = _option(
        "--eager",
        kind="switch",
        group="engine",
        default=False,
        help="no graphs are captured (--enforce-eager)",
        url="eager",
    )
    sampler: str | None = _option(
        "--sampler",
        kind="choice",
        group="engine",
        choices=("auto", "flashinfer", "sort"),
        help="sampler of vLLM up to 0.16: sort where FlashInfer is not installed (auto)",
    )
    moe_backend: str | None = _option(
        "--moe-backend",
        kind="text",
        group="engine",
        metavar="NAME",
        help="kernels of experts in vLLM: marlin or triton for MXFP4 on Hopper (auto: those of the published images)",
    )
    model_runner: str | None = _option(
        "--model-runner",
        kind="choice",
        group="engine",
        choices=("auto", "first", "second"),
        help="model runner of vLLM since 0.22, as VLLM_USE_V2_MODEL_RUNNER tells it (auto: the release's choice)",
    )
    mamba_ssm_cache_dtype: str | None = _option(
        "--mamba-ssm-cache-dtype",
        kind="choice",
        group="engine",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="type of recurrent states in vLLM and SGLang (auto: the checkpoint's own)",
    )
    indexer_kv_dtype: str | None = _option(
        "--indexer-kv-dtype",
        kind="choice",
        group="engine",
        choices=("auto", "bf16", "fp8"),
        help="type of the index keys of sparse models in vLLM (auto: the model's default)",
    )
    prefix_caching: bool | None = _option(
        "--prefix-caching",
        kind="tristate",
        group="engine",
        help="prefix caching on or off (engine's default)",
    )

    parallel: int | None = _option(
        "--parallel",
        "-np",
        kind="whole",
        group="home",
        high=256,
        help="slots of llama.cpp: requests at once (4 on one cache)",
    )
    ubatch_size: int | None = _option(
        "--ubatch-size",
        "-ub",
        kind="whole",
        group="home",
        high=1 << 20,
        help="tokens of one physical batch (512)",
    )
    ctx_size: int | str | None = _option(
        "--ctx-size",
        "-c",
        kind="tokens",
        group="home",
        help="cells of all slots together; each request then has its slot's share (the context of one request)",
    )
    n_gpu_layers: int | None = _option(
        "--n-gpu-layers",
        "-ngl",
        kind="whole",
        group="home",
        low=0,
        high=1 << 16,
        help="layers on the GPU (all)",
    )
    n_cpu_moe: int | None = _option(
        "--n-cpu-moe",
        "-ncmoe",
        kind="whole",
        group="home",
        low=0,
        high=1 << 16,
        help="leading layers whose experts stay on the CPU (0)",
    )
    cache_type_k: str | None = _option(
        "--cache-type-k", "-ctk", kind="text", group="home", metavar="TYPE", help="ggml type of keys (f16)"
    )
    cache_type_v: str | None = _option(
        "--cache-type-v", "-ctv", kind="text", group="home", metavar="TYPE", help="ggml type of values (f16)"
    )
    kv_unified: bool | None = _option(
        "--kv-unified", kind="tristate", group="home", help="one buffer of cells for all slots (by build)"
    )
    swa_full: bool = _option(
        "--swa-full", kind="switch", group="home", default=False, help="sliding-window layers keep every cell"
    )
    flash_attn: str | None = _option(
        "--flash-attn",
        "-fa",
        kind="choice",
        group="home",
        choices=("on", "off", "auto"),
        help="flash attention (auto)",
    )
    batch_size: int | None = _option(
        "--batch-size",
        "-b",
        kind="whole",
        group="home",
        high=1 << 20,
        help="tokens of one logical batch (2048)",
    )
    cpu_moe: bool = _option(
        "--cpu-moe",
        "-cmoe",
        kind="switch",
        group="home",
        default=False,
        help="experts of all layers stay on the CPU",
    )
    override_tensor: Any = _option(
        "--override-tensor",
        "-ot",
        kind="text",
        group="home",
        metavar="PATTERN=BUFFER",
        many=True,
        help="buffer of tensors whose name matches, such as 'ffn_.*_exps=CPU'",
    )
    split_mode: str | None = _option(
        "--split-mode",
        "-sm",
        kind="choice",
        group="home",
        choices=("none", "layer", "row"),
        help="how several GPUs share the model (layer)",
    )
    tensor_split: str | None = _option(
        "--tensor-split",
        "-ts",
        kind="text",
        group="home",
        metavar="N,N",
        help="share of the model on each GPU (by free memory)",
    )
    main_gpu: int | None = _option(
        "--main-gpu", "-mg", kind="whole", group="home", low=0, high=255, help="GPU of --split-mode none (0)"
    )
    no_kv_offload: bool = _option(
        "--no-kv-offload",
        "-nkvo",
        kind="switch",
        group="home",
        default=False,
        help="caches stay in host memory",
    )
    no_op_offload: bool = _option(
        "--no-op-offload",
        kind="switch",
        group="home",
        default=False,
        help="GPUs do not compute on weights in host memory",
    )
    fit: bool = _option(
        "--fit",
        kind="switch",
        group="home",
        default=False,
        help="change what was not stated until it fits, as llama.cpp does by itself",
    )
    fit_target: int | str | None = _option(
        "--fit-target", kind="bytes", group="home", help="memory that --fit leaves free on each GPU (1GiB)"
    )
    mmproj: str | None = _option(
        "--mmproj", kind="text", group="home", metavar="FILE", help="GGUF file of the vision projector"
    )
    no_mmproj_offload: bool = _option(
        "--no-mmproj-offload",
        kind="switch",
        group="home",
        default=False,
        help="the vision projector stays in host memory",
    )
    spec_type: str | None = _option(
        "--spec-type",
        kind="choice",
        group="home",
        choices=(
            "none",
            "draft-simple",
            "draft-mtp",
            "ngram-simple",
            "ngram-map-k",
            "ngram-map-k4v",
            "ngram-mod",
            "ngram-cache",
        ),
        help="what drafts tokens: a draft model, the prediction blocks of the file, or text that was seen (none)",
    )
    cache_ram: int | str | None = _option(
        "--cache-ram",
        kind="text",
        group="home",
        metavar="SIZE",
        help="host memory of the prompt cache (8GiB); 0: none",
    )
    ctx_checkpoints: int | None = _option(
        "--ctx-checkpoints",
        kind="whole",
        group="home",
        low=0,
        high=1 << 16,
        help="checkpoints of windows and states that a slot keeps in host memory (32)",
    )
    host_bandwidth: int | str | None = _option(
        "--host-bandwidth",
        kind="bytes",
        high=_MOST_DEVICE_BYTES,
        group="home",
        help="bytes per second that the processor reads, such as 90GB (89.6GB: two channels of DDR5-5600)",
    )
    host_memory: int | str | None = _option(
        "--host-memory", kind="bytes", group="home", help="memory of the computer for what stays on the CPU"
    )

    draft: Any = _option(
        "--draft",
        kind="text",
        group="extras",
        metavar="MODEL",
        help="what drafts for speculative decoding: a catalog name, a config.json, ngram or suffix for text that was seen, or mtp for the prediction layers of the checkpoint",
    )
    num_speculative_tokens: int = _option(
        "--num-speculative-tokens",
        "--speculative",
        kind="whole",
        group="extras",
        default=0,
        low=0,
        high=1024,
        help="draft tokens per step (0); without --draft those of the checkpoint's own prediction layers",
    )
    max_loras: int = _option(
        "--max-loras",
        kind="whole",
        group="extras",
        default=0,
        low=0,
        high=1 << 16,
        help="LoRA adapters held on the GPU at once (0)",
    )
    max_lora_rank: int = _option(
        "--max-lora-rank",
        kind="whole",
        group="extras",
        default=16,
        high=4096,
        help="largest rank of an adapter (16)",
    )
    limit_mm_per_prompt: Any = _option(
        "--limit-mm-per-prompt",
        kind="pairs",
        group="extras",
        metavar="KIND=N",
        many=True,
        help="inputs of a kind per prompt, such as image=2 (engine's default); --language-model-only is image=0,video=0, for text alone",
    )
    kv_offload: int | str | None = _option(
        "--kv-offload", kind="bytes", group="extras", help="host memory for evicted KV blocks, such as 64GiB"
    )

    def __post_init__(self) -> None:
        """Refuse numbers out of range and words that are no choice.

        Raises:
            InputError: Naming the flag, what was found and what is allowed.
        """
        for option in options():
            _check(option, getattr(self, option.name))


@cache
def options() -> tuple[Option, ...]:
    """Every field of a query beside the model, in the order of help pages."""
    return tuple(
        Option(name=one.name, default=None if one.default is MISSING else one.default, **one.metadata)
        for one in fields(Query)
        if one.metadata
    )


PAGE_KEYS: Final[dict[str, str]] = {
    "model": "model",
    "models": "models",
    "gpus": "gpus",
    "requests": "requests",
}
"""Keys of an address that are no option: the model, what a comparison lists, and requests wanted at once
(``--require``)."""


def url_keys() -> dict[str, str]:
    """The key that each field has in the address of a page; every page that asks for it uses the same."""
    return PAGE_KEYS | {option.name: option.url for option in options() if option.url}


RENAMED: Final[dict[str, str]] = {
    "speculative": "num_speculative_tokens",
    "dcp": "decode_context_parallel",
    "sorts": 'sampler="sort"',
}
"""Keyword arguments that are gone, and what to write; release 0.3 no longer knows them."""


def require_known(names: Iterable[str]) -> None:
    """Refuse a keyword argument that is no option.

    Raises:
        InputError: If a name is unknown, with the nearest one.
    """
    known = {option.name for option in options()}
    for name in names:
        if name in RENAMED:
            raise InputError(f"{name}: found the name of an earlier edition; allowed: {RENAMED[name]}")
        if name not in known:
            near = get_close_matches(name, known, n=1) or sorted(
                one
                for one in known
                if one.startswith(f"{name}_") or "".join(w[0] for w in one.split("_")) == name
            )
            raise InputError(
                f"unknown option {shorten(name)}; "
                + (f"did you mean {near[0]}?" if near else "see kvreport estimate --help")
            )


def _check(option: Option, value: Any) -> None:  # noqa: ANN401 - what a caller wrote
    if value is None or option.kind in ("text", "tokens", "pairs"):
        return
    flag = option.flags[0].removeprefix("--")
    if option.kind == "bytes":
        try:
            size = parse_bytes(value)
        except InputError as error:
            raise InputError(f"{flag}: {error}") from error
        if size > option.high:
            raise InputError(f"{flag}: found {shorten(value)}; allowed: at most {option.high >> 40:,} TiB")
        return
    if option.kind == "whole":
        if isinstance(value, bool) or not isinstance(value, int) or not option.low <= value <= option.high:
            allowed = f"a whole number from {option.low:,} to {option.high:,}"
            raise InputError(f"{flag}: found {shorten(value)}; allowed: {allowed}")
    elif option.kind == "choice":
        if value not in option.choices:
            raise InputError(f"{flag}: found {shorten(value)}; allowed: {', '.join(option.choices)}")
    elif option.kind in ("switch", "tristate") and not isinstance(value, bool):
        raise InputError(f"{flag}: found {shorten(value)}; allowed: true or false")


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a query."""
    types: dict[Kind, Any] = {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "tokens": {"type": ["integer", "string"]},
        "bytes": {"type": ["integer", "string"]},
        "switch": {"type": "boolean"},
        "tristate": {"type": "boolean"},
        "choice": {"type": "string"},
        "pairs": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    made: dict[str, Any] = {"model": {"type": "string", "description": "catalog name or path"}}
    for option in options():
        one = dict(types[option.kind])
        if option.kind == "whole":
            one |= {"minimum": option.low, "maximum": option.high}
        if option.choices:
            one["enum"] = list(option.choices)
        if option.many and option.kind == "text":
            one = {"anyOf": [one, {"type": "array", "items": one}]}
        made[option.name] = one | {"description": option.help}
        if option.default is not None:
            made[option.name]["default"] = option.default
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvreport query",
        "type": "object",
        "properties": made,
        "required": ["model", "gpu"],
        "additionalProperties": False,
    }


def of_group(group: Group) -> Iterator[Option]:
    """The options that help pages list under a heading."""
    return (option for option in options() if option.group == group)
