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
from functools import cache, partialmethod
from typing import Any, Final, Literal, TypeVar

from kvreport.errors import InputError, shorten
from kvreport.units import parse_bytes

SERVER_ENGINE: Final = "vllm"
"""The engine of a question that names none and is not about a machine at home."""

Kind = Literal["text", "whole", "share", "tokens", "bytes", "switch", "tristate", "choice", "pairs"]
"""How a value is written: a text, a whole number, a share of 1, a token count (32K), a size (40GiB), on,
on or off, one of some words, NAME=NUMBER (repeatable)."""

_One = TypeVar("_One", bound=str | int)

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


class _Options:
    """Makes the options of one group of help, each by its kind; the arguments are fields of :class:`Option`."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def _option(
        self,
        kind: Kind,
        *flags: str,
        help: str,  # noqa: A002 - argparse's own word
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
            "group": self._group,
            "metavar": metavar or _METAVARS.get(kind),
            "low": low,
            "high": (MOST_BYTES if kind == "bytes" else MOST_COUNT) if high is None else high,
            "choices": choices,
            "many": many,
            "url": url,
        }
        return field(default=default, metadata=meta)

    text = partialmethod(_option, "text")
    whole = partialmethod(_option, "whole")
    share = partialmethod(_option, "share")
    tokens = partialmethod(_option, "tokens")
    bytes = partialmethod(_option, "bytes")
    choice = partialmethod(_option, "choice")
    pairs = partialmethod(_option, "pairs")
    switch = partialmethod(_option, "switch", default=False)
    tristate = partialmethod(_option, "tristate")


_question, _layout, _engine, _home, _extras = (_Options(group) for group in GROUPS)
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
    gpu: Any = _question.text(
        "--gpu",
        metavar="GPU",
        many=True,
        help="accelerator slug or alias (H100), with their number where they are several (8xH100); repeat it for unequal GPUs",
        url="gpu",
    )
    context_tokens: int | str | None = _question.tokens(
        "--context", help="tokens of every request, such as 32K (the limit of the model)", url="context"
    )
    any_context: bool = _question.switch(
        "--any-context",
        help="allow a context beyond the model's limit, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 and SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 do",
    )
    hf_overrides: Any = _question.text(
        "--hf-overrides",
        metavar="KEYS",
        many=True,
        help='keys of config.json that the server\'s command changes, as JSON such as {"max_position_embeddings": 131072}; the context follows lengths and rotary scaling',
    )
    weights: str | None = _question.text(
        "--weights", metavar="FORMAT", help="weight format (as released)", url="weights"
    )
    kv: str = _question.text(
        "--kv",
        metavar="FORMAT",
        default="auto",
        help="KV format (auto: the checkpoint's own, else 16-bit)",
        url="kv",
    )
    dtype: str = _question.choice(
        "--dtype",
        default="auto",
        choices=("auto", "half", "float16", "bfloat16", "float32"),
        help="type to compute in (auto: the checkpoint's own)",
    )
    assume_defaults: bool = _question.switch(
        "--assume-defaults",
        help="take the class's published defaults for dimensions that a config.json does not state",
    )

    fetch: bool = _question.switch("--fetch", help="ask the Hub for a model that the catalog does not have")
    revision: str | None = _question.text(
        "--revision", metavar="REV", help="branch, tag or commit of the Hub's repository (main)"
    )

    tensor_parallel: int | None = _layout.whole(
        "--tensor-parallel", "--tp", high=_MOST_RANKS, help="GPUs that share each layer (1)", url="tp"
    )
    data_parallel: int = _layout.whole(
        "--data-parallel",
        "--dp",
        default=1,
        high=_MOST_RANKS,
        help="ranks of data parallelism, each with requests and a KV pool of its own (1)",
        url="dp",
    )
    expert_parallel: bool = _layout.switch(
        "--expert-parallel", help="divide routed experts over all tensor x data ranks", url="ep"
    )
    pipeline_parallel: int = _layout.whole(
        "--pipeline-parallel",
        "--pp",
        default=1,
        high=_MOST_RANKS,
        help="stages that share the layers (1)",
        url="pp",
    )
    decode_context_parallel: int = _layout.whole(
        "--decode-context-parallel",
        "--dcp",
        default=1,
        high=_MOST_RANKS,
        help="ranks that share a request's tokens while decoding (1)",
        url="dcp",
    )
    nodes: int = _layout.whole(
        "--nodes", default=1, high=_MOST_RANKS, help="servers that the GPUs stand in (1)", url="nodes"
    )

    pipeline_partition: str | None = _layout.text(
        "--pipeline-partition",
        metavar="N,N",
        help="layers of each pipeline stage, or 'best' for those that hold the most requests (the engine's)",
    )
    num_redundant_experts: int = _layout.whole(
        "--num-redundant-experts",
        default=0,
        low=0,
        high=1 << 16,
        help="further copies of experts, divided over the expert ranks (0)",
    )
    mm_encoder_tp_mode: str = _layout.choice(
        "--mm-encoder-tp-mode",
        default="weights",
        choices=("weights", "data"),
        help="what tensor ranks divide of an encoder: its weights, or the images, with the encoder whole on each (weights)",
    )
    moe_dense_tp_size: int | None = _layout.whole(
        "--moe-dense-tp-size",
        low=1,
        high=1 << 16,
        help="ranks that divide dense MLPs of a mixture: 1, or all (all; SGLang)",
    )
    enable_dp_lm_head: bool = _layout.switch(
        "--enable-dp-lm-head", help="the output head is divided over the ranks of one data rank (SGLang)"
    )
    all2all_backend: str | None = _layout.choice(
        "--all2all-backend",
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

    network_bandwidth: int | str | None = _layout.bytes(
        "--network-bandwidth",
        high=_MOST_DEVICE_BYTES,
        help="bytes per second that a GPU passes to other servers, such as 50GB (400 Gb/s), for the lower bounds",
    )

    engine: Any = _engine.text(
        "--engine",
        default=SERVER_ENGINE,
        help="whose rules apply (vllm; llama-cpp for a GGUF mix or a machine at home), or vllm@0.25.0; ceiling reserves nothing",
        url="engine",
    )
    utilization: float | None = _engine.share(
        "--utilization", help="memory share that the engine takes (its default)", url="share"
    )
    memory: int | str | None = _engine.bytes(
        "--memory",
        high=_MOST_DEVICE_BYTES,
        help="usable memory per device, where it can be set (unified memory)",
    )
    held_by_others: int | str | None = _engine.bytes(
        "--held-by-others",
        high=_MOST_DEVICE_BYTES,
        help="memory of each GPU that other processes hold when the engine starts, such as 36GiB",
    )
    engines_per_gpu: int = _engine.whole(
        "--engines-per-gpu",
        default=1,
        high=MOST_ENGINES,
        help="engines of this kind on each GPU, started one after the other (1; vLLM)",
    )
    kv_pool: int | str | None = _engine.bytes(
        "--kv-pool",
        "--kv-cache-memory-bytes",
        high=_MOST_DEVICE_BYTES,
        help="KV pool per GPU, such as 40GiB, instead of a budget",
    )
    kv_pool_blocks: int | None = _engine.whole(
        "--kv-pool-blocks",
        "--num-gpu-blocks-override",
        help="KV pool per GPU in blocks, instead of a budget (vLLM)",
    )
    max_batched_tokens: int | None = _engine.whole(
        "--max-batched-tokens", help="tokens of one scheduler step (engine's default)", url="batched"
    )
    max_seqs: int | None = _engine.whole("--max-seqs", help="requests at once (engine's default)", url="seqs")
    block_size: int | None = _engine.whole(
        "--block-size", high=1 << 20, help="tokens per block (engine's choice)"
    )
    eager: bool = _engine.switch("--eager", help="no graphs are captured (--enforce-eager)", url="eager")
    sampler: str | None = _engine.choice(
        "--sampler",
        choices=("auto", "flashinfer", "sort"),
        help="sampler of vLLM up to 0.16: sort where FlashInfer is not installed (auto)",
    )
    moe_backend: str | None = _engine.text(
        "--moe-backend",
        metavar="NAME",
        help="kernels of experts in vLLM: marlin or triton for MXFP4 on Hopper (auto: those of the published images)",
    )
    model_runner: str | None = _engine.choice(
        "--model-runner",
        choices=("auto", "first", "second"),
        help="model runner of vLLM since 0.22, as VLLM_USE_V2_MODEL_RUNNER tells it (auto: the release's choice)",
    )
    mamba_ssm_cache_dtype: str | None = _engine.choice(
        "--mamba-ssm-cache-dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="type of recurrent states in vLLM and SGLang (auto: the checkpoint's own)",
    )
    indexer_kv_dtype: str | None = _engine.choice(
        "--indexer-kv-dtype",
        choices=("auto", "bf16", "fp8"),
        help="type of the index keys of sparse models in vLLM (auto: the model's default)",
    )
    prefix_caching: bool | None = _engine.tristate(
        "--prefix-caching", help="prefix caching on or off (engine's default)"
    )

    parallel: int | None = _home.whole(
        "--parallel", "-np", high=256, help="slots of llama.cpp: requests at once (4 on one cache)"
    )
    ubatch_size: int | None = _home.whole(
        "--ubatch-size", "-ub", high=1 << 20, help="tokens of one physical batch (512)"
    )
    ctx_size: int | str | None = _home.tokens(
        "--ctx-size",
        "-c",
        help="cells of all slots together; each request then has its slot's share (the context of one request)",
    )
    n_gpu_layers: int | None = _home.whole(
        "--n-gpu-layers", "-ngl", low=0, high=1 << 16, help="layers on the GPU (all)"
    )
    n_cpu_moe: int | None = _home.whole(
        "--n-cpu-moe", "-ncmoe", low=0, high=1 << 16, help="leading layers whose experts stay on the CPU (0)"
    )
    cache_type_k: str | None = _home.text(
        "--cache-type-k", "-ctk", metavar="TYPE", help="ggml type of keys (f16)"
    )
    cache_type_v: str | None = _home.text(
        "--cache-type-v", "-ctv", metavar="TYPE", help="ggml type of values (f16)"
    )
    kv_unified: bool | None = _home.tristate(
        "--kv-unified", help="one buffer of cells for all slots (by build)"
    )
    swa_full: bool = _home.switch("--swa-full", help="sliding-window layers keep every cell")
    flash_attn: str | None = _home.choice(
        "--flash-attn", "-fa", choices=("on", "off", "auto"), help="flash attention (auto)"
    )
    batch_size: int | None = _home.whole(
        "--batch-size", "-b", high=1 << 20, help="tokens of one logical batch (2048)"
    )
    cpu_moe: bool = _home.switch("--cpu-moe", "-cmoe", help="experts of all layers stay on the CPU")
    override_tensor: Any = _home.text(
        "--override-tensor",
        "-ot",
        metavar="PATTERN=BUFFER",
        many=True,
        help="buffer of tensors whose name matches, such as 'ffn_.*_exps=CPU'",
    )
    split_mode: str | None = _home.choice(
        "--split-mode",
        "-sm",
        choices=("none", "layer", "row"),
        help="how several GPUs share the model (layer)",
    )
    tensor_split: str | None = _home.text(
        "--tensor-split", "-ts", metavar="N,N", help="share of the model on each GPU (by free memory)"
    )
    main_gpu: int | None = _home.whole(
        "--main-gpu", "-mg", low=0, high=255, help="GPU of --split-mode none (0)"
    )
    no_kv_offload: bool = _home.switch("--no-kv-offload", "-nkvo", help="caches stay in host memory")
    no_op_offload: bool = _home.switch(
        "--no-op-offload", help="GPUs do not compute on weights in host memory"
    )
    fit: bool = _home.switch(
        "--fit", help="change what was not stated until it fits, as llama.cpp does by itself"
    )
    fit_target: int | str | None = _home.bytes(
        "--fit-target", help="memory that --fit leaves free on each GPU (1GiB)"
    )
    mmproj: str | None = _home.text("--mmproj", metavar="FILE", help="GGUF file of the vision projector")
    no_mmproj_offload: bool = _home.switch(
        "--no-mmproj-offload", help="the vision projector stays in host memory"
    )
    spec_type: str | None = _home.choice(
        "--spec-type",
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
    cache_ram: int | str | None = _home.text(
        "--cache-ram", metavar="SIZE", help="host memory of the prompt cache (8GiB); 0: none"
    )
    ctx_checkpoints: int | None = _home.whole(
        "--ctx-checkpoints",
        low=0,
        high=1 << 16,
        help="checkpoints of windows and states that a slot keeps in host memory (32)",
    )
    host_bandwidth: int | str | None = _home.bytes(
        "--host-bandwidth",
        high=_MOST_DEVICE_BYTES,
        help="bytes per second that the processor reads, such as 90GB (89.6GB: two channels of DDR5-5600)",
    )
    host_memory: int | str | None = _home.bytes(
        "--host-memory", help="memory of the computer for what stays on the CPU"
    )

    draft: Any = _extras.text(
        "--draft",
        metavar="MODEL",
        help="what drafts for speculative decoding: a catalog name, a config.json, ngram or suffix for text that was seen, or mtp for the prediction layers of the checkpoint",
    )
    num_speculative_tokens: int = _extras.whole(
        "--num-speculative-tokens",
        "--speculative",
        default=0,
        low=0,
        high=1024,
        help="draft tokens per step (0); without --draft those of the checkpoint's own prediction layers",
    )
    max_loras: int = _extras.whole(
        "--max-loras", default=0, low=0, high=1 << 16, help="LoRA adapters held on the GPU at once (0)"
    )
    max_lora_rank: int = _extras.whole(
        "--max-lora-rank", default=16, high=4096, help="largest rank of an adapter (16)"
    )
    limit_mm_per_prompt: Any = _extras.pairs(
        "--limit-mm-per-prompt",
        metavar="KIND=N",
        many=True,
        help="inputs of a kind per prompt, such as image=2 (engine's default); --language-model-only is image=0,video=0, for text alone",
    )
    kv_offload: int | str | None = _extras.bytes(
        "--kv-offload", help="host memory for evicted KV blocks, such as 64GiB"
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


def several(given: _One | Iterable[_One]) -> list[_One]:
    """One value or several, as a list; a text is one value, not its letters."""
    return [given] if isinstance(given, str | int) else list(given)


def of_group(group: Group) -> Iterator[Option]:
    """The options that help pages list under a heading."""
    return (option for option in options() if option.group == group)
