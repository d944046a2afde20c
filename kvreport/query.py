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
from numbers import Integral
from typing import Any, Final, Literal, TypeVar, cast

from kvreport.errors import InputError, require_numbers, shorten
from kvreport.units import parse_bytes

SERVER_ENGINE: Final = "vllm"
"""The engine of a question that names none and is not about a machine at home."""

Kind = Literal["text", "whole", "share", "tokens", "bytes", "switch", "tristate", "choice", "pairs"]
"""How a value is written: a text, a whole number, a share of 1, a token count (32K), a size (40GiB), on,
on or off, one of some words, NAME=NUMBER (repeatable)."""

_One = TypeVar("_One", bound=str | int)
_Kind = TypeVar("_Kind")

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
    """What a field of :class:`Query` is outside Python."""

    name: str  # The field, the keyword argument and the key in JSON.
    flags: tuple[str, ...]  # Flags on the command line, the first one shown.
    kind: Kind  # How its value is written.
    help: str  # What it is, with the default in brackets.
    group: Group  # Where help pages list it.
    metavar: str | None  # What stands for its value in help.
    default: Any  # What is taken where nothing is said.
    low: int  # Smallest whole number allowed.
    high: int  # Largest whole number allowed.
    choices: tuple[str, ...]  # Words allowed.
    many: bool  # True if the flag may be repeated.
    url: str  # Its key in the address of a page; "" where no page asks for it.


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
    """One question about one model on some accelerators."""

    # Catalog id, slug or alias; path of a config, a GGUF file or a folder; or a record, or a GGUF file that
    # was read.
    model: Any
    # Accelerators: a name, a record, or a sequence with one per rank; ``"8xH100"`` is eight.
    gpu: Any = _question.text(
        "--gpu",
        metavar="GPU",
        many=True,
        help="accelerator slug or alias (H100), with a count for several GPUs (8xH100); repeat the flag for unequal GPUs",
        url="gpu",
    )
    context_tokens: int | str | None = _question.tokens(
        "--context", help="tokens of every request, such as 32K (default: the model's limit)", url="context"
    )
    any_context: bool = _question.switch(
        "--any-context",
        help="allow a context beyond the model's limit, like VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 and SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    )
    hf_overrides: Any = _question.text(
        "--hf-overrides",
        metavar="KEYS",
        many=True,
        help='keys of config.json to override, as JSON such as {"max_position_embeddings": 131072}; the context limit follows the overridden length and rotary scaling',
    )
    weights: str | None = _question.text(
        "--weights", metavar="FORMAT", help="weight format (default: as released)", url="weights"
    )
    kv: str = _question.text(
        "--kv",
        metavar="FORMAT",
        default="auto",
        help="KV cache format (default auto: the format that the checkpoint declares, or else 16-bit)",
        url="kv",
    )
    dtype: str = _question.choice(
        "--dtype",
        default="auto",
        choices=("auto", "half", "float16", "bfloat16", "float32"),
        help="compute type (default auto: the checkpoint's type)",
    )
    assume_defaults: bool = _question.switch(
        "--assume-defaults",
        help="use the published defaults of the model class for dimensions that config.json does not state",
    )

    fetch: bool = _question.switch(
        "--fetch", help="download the config of a model that is not in the catalog from the Hugging Face Hub"
    )
    revision: str | None = _question.text(
        "--revision", metavar="REV", help="branch, tag or commit of the repository on the Hub (default: main)"
    )

    tensor_parallel: int | None = _layout.whole(
        "--tensor-parallel",
        "--tp",
        high=_MOST_RANKS,
        help="number of GPUs that share each layer (default: 1)",
        url="tp",
    )
    data_parallel: int = _layout.whole(
        "--data-parallel",
        "--dp",
        default=1,
        high=_MOST_RANKS,
        help="number of data-parallel ranks; each serves its own requests from its own KV pool (default: 1)",
        url="dp",
    )
    expert_parallel: bool = _layout.switch(
        "--expert-parallel",
        help="divide the routed experts among all tensor-parallel x data-parallel ranks",
        url="ep",
    )
    pipeline_parallel: int = _layout.whole(
        "--pipeline-parallel",
        "--pp",
        default=1,
        high=_MOST_RANKS,
        help="number of pipeline stages that share the layers (default: 1)",
        url="pp",
    )
    decode_context_parallel: int = _layout.whole(
        "--decode-context-parallel",
        "--dcp",
        default=1,
        high=_MOST_RANKS,
        help="number of ranks that share the tokens of a request during decoding (default: 1)",
        url="dcp",
    )
    nodes: int = _layout.whole(
        "--nodes",
        default=1,
        high=_MOST_RANKS,
        help="number of servers that contain the GPUs (default: 1)",
        url="nodes",
    )

    pipeline_partition: str | None = _layout.text(
        "--pipeline-partition",
        metavar="N,N",
        help="layers in each pipeline stage, or 'best' for the split that holds the most requests (default: the engine's split)",
    )
    num_redundant_experts: int = _layout.whole(
        "--num-redundant-experts",
        default=0,
        low=0,
        high=1 << 16,
        help="number of redundant copies of experts, divided among the expert ranks (default: 0)",
    )
    mm_encoder_tp_mode: str = _layout.choice(
        "--mm-encoder-tp-mode",
        default="weights",
        choices=("weights", "data"),
        help="what the tensor ranks divide: the weights of the encoder, or the images (data), with the whole encoder on each rank (default: weights)",
    )
    moe_dense_tp_size: int | None = _layout.whole(
        "--moe-dense-tp-size",
        low=1,
        high=1 << 16,
        help="number of ranks that divide the dense MLPs of a mixture of experts, 1 or all (SGLang; default: all)",
    )
    enable_dp_lm_head: bool = _layout.switch(
        "--enable-dp-lm-head",
        help="divide the output head among the tensor-parallel ranks within each data-parallel rank (SGLang)",
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
        help="kernels that exchange tokens between expert ranks (default: allgather_reducescatter)",
    )

    network_bandwidth: int | str | None = _layout.bytes(
        "--network-bandwidth",
        high=_MOST_DEVICE_BYTES,
        help="bandwidth of one GPU to other servers in bytes per second, such as 50GB (400 Gb/s); used for the time bounds",
    )

    engine: Any = _engine.text(
        "--engine",
        default=SERVER_ENGINE,
        help="engine whose memory rules apply, optionally with a release, such as vllm@0.25.0; ceiling reserves nothing (default: vllm, or llama-cpp for GGUF weights and home computers)",
        url="engine",
    )
    utilization: float | None = _engine.share(
        "--utilization",
        help="share of the memory that the engine may use (default: the engine's default)",
        url="share",
    )
    memory: int | str | None = _engine.bytes(
        "--memory",
        high=_MOST_DEVICE_BYTES,
        help="usable memory per device, if it is configurable (unified memory)",
    )
    held_by_others: int | str | None = _engine.bytes(
        "--held-by-others",
        high=_MOST_DEVICE_BYTES,
        help="memory per GPU that other processes occupy when the engine starts, such as 36GiB",
    )
    engines_per_gpu: int = _engine.whole(
        "--engines-per-gpu",
        default=1,
        high=MOST_ENGINES,
        help="number of identical vLLM servers on each GPU, started one after another (default: 1)",
    )
    kv_pool: int | str | None = _engine.bytes(
        "--kv-pool",
        "--kv-cache-memory-bytes",
        high=_MOST_DEVICE_BYTES,
        help="size of the KV pool per GPU, such as 40GiB; replaces the computed size",
    )
    kv_pool_blocks: int | None = _engine.whole(
        "--kv-pool-blocks",
        "--num-gpu-blocks-override",
        help="number of KV blocks per GPU (vLLM); replaces the computed number",
    )
    max_batched_tokens: int | None = _engine.whole(
        "--max-batched-tokens",
        help="maximum number of tokens in one scheduler step (default: the engine's default)",
        url="batched",
    )
    max_seqs: int | None = _engine.whole(
        "--max-seqs", help="maximum number of concurrent requests (default: the engine's default)", url="seqs"
    )
    block_size: int | None = _engine.whole(
        "--block-size", high=1 << 20, help="tokens per block (default: the engine's choice)"
    )
    eager: bool = _engine.switch("--eager", help="capture no CUDA graphs (--enforce-eager)", url="eager")
    sampler: str | None = _engine.choice(
        "--sampler",
        choices=("auto", "flashinfer", "sort"),
        help="sampler of vLLM up to 0.16; use sort if FlashInfer is not installed (default: auto)",
    )
    moe_backend: str | None = _engine.text(
        "--moe-backend",
        metavar="NAME",
        help="expert kernels of vLLM, such as marlin or triton for MXFP4 on Hopper (default auto: the kernels in the published images)",
    )
    model_runner: str | None = _engine.choice(
        "--model-runner",
        choices=("auto", "first", "second"),
        help="model runner of vLLM since 0.22, which VLLM_USE_V2_MODEL_RUNNER selects (default auto: the choice of the release)",
    )
    mamba_ssm_cache_dtype: str | None = _engine.choice(
        "--mamba-ssm-cache-dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="type of recurrent states in vLLM and SGLang (default auto: the checkpoint's type)",
    )
    indexer_kv_dtype: str | None = _engine.choice(
        "--indexer-kv-dtype",
        choices=("auto", "bf16", "fp8"),
        help="type of index keys in vLLM, for models with sparse attention (default auto: the model's default)",
    )
    prefix_caching: bool | None = _engine.tristate(
        "--prefix-caching", help="turn prefix caching on or off (default: the engine's default)"
    )

    parallel: int | None = _home.whole(
        "--parallel",
        "-np",
        high=256,
        help="number of llama.cpp slots, which is the number of concurrent requests (default: 4 that share one cache)",
    )
    ubatch_size: int | None = _home.whole(
        "--ubatch-size", "-ub", high=1 << 20, help="tokens in one physical batch (default: 512)"
    )
    ctx_size: int | str | None = _home.tokens(
        "--ctx-size",
        "-c",
        help="KV cache cells of all slots together, divided among the slots (default: the context of one request)",
    )
    n_gpu_layers: int | None = _home.whole(
        "--n-gpu-layers", "-ngl", low=0, high=1 << 16, help="number of layers on the GPU (default: all)"
    )
    n_cpu_moe: int | None = _home.whole(
        "--n-cpu-moe",
        "-ncmoe",
        low=0,
        high=1 << 16,
        help="number of layers, counted from the first, whose experts stay on the CPU (default: 0)",
    )
    cache_type_k: str | None = _home.text(
        "--cache-type-k", "-ctk", metavar="TYPE", help="ggml type of the cached keys (default: f16)"
    )
    cache_type_v: str | None = _home.text(
        "--cache-type-v", "-ctv", metavar="TYPE", help="ggml type of the cached values (default: f16)"
    )
    kv_unified: bool | None = _home.tristate(
        "--kv-unified", help="use one KV buffer for all slots (default: depends on the build)"
    )
    swa_full: bool = _home.switch("--swa-full", help="keep every token in sliding-window layers")
    flash_attn: str | None = _home.choice(
        "--flash-attn", "-fa", choices=("on", "off", "auto"), help="flash attention (default: auto)"
    )
    batch_size: int | None = _home.whole(
        "--batch-size", "-b", high=1 << 20, help="tokens in one logical batch (default: 2048)"
    )
    cpu_moe: bool = _home.switch("--cpu-moe", "-cmoe", help="keep the experts of all layers on the CPU")
    override_tensor: Any = _home.text(
        "--override-tensor",
        "-ot",
        metavar="PATTERN=BUFFER",
        many=True,
        help="buffer for the tensors whose names match a pattern, such as 'ffn_.*_exps=CPU'",
    )
    split_mode: str | None = _home.choice(
        "--split-mode",
        "-sm",
        choices=("none", "layer", "row"),
        help="how several GPUs share the model (default: layer)",
    )
    tensor_split: str | None = _home.text(
        "--tensor-split",
        "-ts",
        metavar="N,N",
        help="share of the model on each GPU (default: in proportion to free memory)",
    )
    main_gpu: int | None = _home.whole(
        "--main-gpu", "-mg", low=0, high=255, help="GPU to use with --split-mode none (default: 0)"
    )
    no_kv_offload: bool = _home.switch("--no-kv-offload", "-nkvo", help="keep the caches in host memory")
    no_op_offload: bool = _home.switch(
        "--no-op-offload", help="do not use GPUs to compute with weights that are in host memory"
    )
    fit: bool = _home.switch(
        "--fit",
        help="adjust the options that you did not set until the model fits, as llama.cpp does by default",
    )
    fit_target: int | str | None = _home.bytes(
        "--fit-target", help="memory that --fit leaves free on each GPU (default: 1GiB)"
    )
    mmproj: str | None = _home.text("--mmproj", metavar="FILE", help="GGUF file of the vision projector")
    no_mmproj_offload: bool = _home.switch(
        "--no-mmproj-offload", help="keep the vision projector in host memory"
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
        help="speculative decoding method: a draft model (draft-simple), the prediction blocks in the file (draft-mtp), or repeated text (ngram) (default: none)",
    )
    cache_ram: int | str | None = _home.text(
        "--cache-ram", metavar="SIZE", help="host memory for the prompt cache; 0 turns it off (default: 8GiB)"
    )
    ctx_checkpoints: int | None = _home.whole(
        "--ctx-checkpoints",
        low=0,
        high=1 << 16,
        help="number of checkpoints of windows and states that each slot keeps in host memory (default: 32)",
    )
    host_bandwidth: int | str | None = _home.bytes(
        "--host-bandwidth",
        high=_MOST_DEVICE_BYTES,
        help="bandwidth of the main memory in bytes per second, such as 90GB (default: 89.6GB, two channels of DDR5-5600)",
    )
    host_memory: int | str | None = _home.bytes(
        "--host-memory", help="main memory available for weights and caches that are not on the GPU"
    )

    draft: Any = _extras.text(
        "--draft",
        metavar="MODEL",
        help="draft model for speculative decoding: a catalog name, a config.json, mtp for the MTP layers in the checkpoint, or ngram or suffix for drafts from earlier text",
    )
    num_speculative_tokens: int = _extras.whole(
        "--num-speculative-tokens",
        "--speculative",
        default=0,
        low=0,
        high=1024,
        help="draft tokens per step (default: 0); without --draft, the MTP layers in the checkpoint propose them",
    )
    max_loras: int = _extras.whole(
        "--max-loras",
        default=0,
        low=0,
        high=1 << 16,
        help="maximum number of LoRA adapters on the GPU (default: 0)",
    )
    max_lora_rank: int = _extras.whole(
        "--max-lora-rank", default=16, high=4096, help="largest rank of an adapter (default: 16)"
    )
    limit_mm_per_prompt: Any = _extras.pairs(
        "--limit-mm-per-prompt",
        metavar="KIND=N",
        many=True,
        help="maximum number of inputs of each kind in one prompt, such as image=2 (default: the engine's default); image=0,video=0 means text only, like --language-model-only",
    )
    kv_offload: int | str | None = _extras.bytes(
        "--kv-offload", help="host memory for the evicted KV blocks of one data-parallel rank, such as 64GiB"
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
    of_flags = {
        flag.lstrip("-").replace("-", "_"): option.name for option in options() for flag in option.flags
    }
    for name in names:
        if name in RENAMED:
            raise InputError(f"{name}: found the name of an earlier edition; allowed: {RENAMED[name]}")
        if name not in known:
            near = (
                [of_flags[name]]
                if name in of_flags
                else get_close_matches(name, known, n=1)
                or sorted(
                    one
                    for one in known
                    if one.startswith(f"{name}_") or "".join(w[0] for w in one.split("_")) == name
                )
            )
            raise InputError(
                f"unknown option {shorten(name)}; "
                + (f"did you mean {near[0]}?" if near else "see kvreport estimate --help")
            )


def _check(option: Option, value: Any) -> None:  # noqa: ANN401 - what a caller wrote
    flag = option.flags[0].removeprefix("--")
    named = option.name == "engine" and hasattr(value, "family")
    texts = option.name == "engine" or Query.__annotations__[option.name] in ("str", "str | None")
    if (value is None and option.default is not None) or (
        value is not None and option.kind == "text" and texts and not (named or isinstance(value, str))
    ):
        allowed = "a text" if option.kind == "text" else f"a value; {option.default} if it is left out"
        raise InputError(f"{flag}: found {shorten(value)}; allowed: {allowed}")
    if value is None or option.kind in ("text", "tokens", "pairs"):
        return
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
    elif option.kind == "share":
        require_numbers(**{option.name: value})
    elif option.kind == "choice":
        if value not in option.choices:
            raise InputError(f"{flag}: found {shorten(value)}; allowed: {', '.join(option.choices)}")
    elif option.kind in ("switch", "tristate") and not isinstance(value, bool):
        raise InputError(f"{flag}: found {shorten(value)}; allowed: true or false")


def several(given: _One | Iterable[_One]) -> list[_One]:
    """One value or several, as a list; a text is one value, not its letters.

    Raises:
        InputError: If it is neither.
    """
    if isinstance(given, str | int):
        return [given]
    if not isinstance(given, Iterable):
        raise InputError(f"found {shorten(given)}; allowed: one value or a list")
    return list(given)


_KINDS: Final[dict[type, str]] = {str: "names, as texts", int: "whole numbers"}


def several_of(name: str, given: object, kind: type[_Kind], *, none: bool = False) -> list[_Kind]:
    """One value or several of one kind, as a list.

    ``none``: True if a list of nothing has a meaning, too.

    Raises:
        InputError: If it is something else, or one of several is.
    """
    sort = Integral if kind is int else kind
    one = isinstance(given, sort) and not isinstance(given, bool)
    several_given = isinstance(given, Iterable) and not isinstance(given, str)
    listed: list[object] = [given] if one or not several_given else list(cast("Iterable[object]", given))
    wrong = any(not isinstance(each, sort) or isinstance(each, bool) for each in listed)
    if wrong or not (listed or none):
        wanted = _KINDS.get(kind, f"records of kvreport.{kind.__name__}")
        raise InputError(f"{name}: found {shorten(given)}; allowed: one or a list of {wanted}")
    return cast("list[_Kind]", listed)


def of_group(group: Group) -> Iterator[Option]:
    """The options that help pages list under a heading."""
    return (option for option in options() if option.group == group)
