"""What a serving command must say, and the command as words: what every engine's ``command`` takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvreport.accounting.parallel import Layout
from kvreport.words import ONLINE_WEIGHTS, ServeFlags

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.options import LocalOptions

Word = str | Mapping[str, object]
"""One argument; a mapping is an argument in JSON."""

_KV_TYPES = {"fp32": "auto"}
"""A cache in float32 follows the type that the engine computes in."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a serving command must say.

    Attributes:
        model: Id of the checkpoint.
        layout: How a replica is spread over devices.
        context_tokens: Longest request allowed, or None for the model's own.
        max_seqs: Requests at once on one data rank, or None for the engine's default.
        weight_format: Name of the weight format; ``released`` needs no flag.
        kv_format: Name of the KV format.
        kv_is_own: True if the engine takes this KV format by itself.
        share: Memory utilization (vLLM), static memory fraction (SGLang) or fraction of free memory
            (TensorRT-LLM), or None for the default.
        dtype: Type to compute in, or None for the checkpoint's own.
        max_batched_tokens: Tokens of one step, or None for the engine's default.
        eager: True if no graphs are captured.
        kv_pool_bytes: Pool of one device given by hand, or None.
        pool_tokens: Tokens of that pool on one data rank, or None.
        block_tokens: Tokens per block, or None for the engine's choice.
        prefix_caching: On or off, or None for the engine's default.
        images: False if only text is served.
        lora: Adapters held at once and their largest rank; zeros without them.
        draft_tokens: Tokens drafted per step; 0 without speculative decoding.
        draft: Id of a draft model; None for the checkpoint's own prediction layers and for drafts from the text.
        draft_method: How it drafts where it is no language model of its own: ``eagle``, ``eagle3``, ``dflash``, ``dspark``,
            ``ngram`` or ``suffix``; None for prediction layers and language models.
        offload_bytes: Host memory of all ranks of one data rank for blocks that the pool gives up.
        inputs: Inputs of a kind per prompt, where they are limited and not text alone is served.
        model_runner: The model runner that was asked for, ``first`` or ``second``, or empty.
        state_type: Type of recurrent states that was asked for, or None.
        index_type: Type of index keys that was asked for, or None.
        expert_kernels: Kernels of experts that were asked for, where the release has a flag for them, or None.
        changed_keys: Keys of ``config.json`` that are stated anew.
        any_context: True if a context beyond the model's limit is allowed.
        local: What an engine for one's own machine must say; None for servers.
    """

    model: str
    layout: Layout
    context_tokens: int | None
    max_seqs: int | None = None
    weight_format: str = "released"
    kv_format: str = "bf16"
    kv_is_own: bool = True
    share: float | None = None
    dtype: str | None = None
    max_batched_tokens: int | None = None
    eager: bool = False
    kv_pool_bytes: int | None = None
    pool_tokens: int | None = None
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    images: bool = True
    lora: tuple[int, int] = (0, 0)
    draft_tokens: int = 0
    draft: str | None = None
    draft_method: str | None = None
    offload_bytes: int = 0
    inputs: tuple[tuple[str, int], ...] = ()
    model_runner: str = ""
    state_type: str | None = None
    index_type: str | None = None
    expert_kernels: str | None = None
    changed_keys: Mapping[str, object] = field(default_factory=dict)
    any_context: bool = False
    local: LocalServed | None = None

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage."""
        return self.layout.tensor * self.layout.data


@dataclass(frozen=True, slots=True)
class LocalServed:
    """What the command of an engine for one's own machine must say.

    Attributes:
        file: The GGUF file, or a name that stands for it.
        repository: ``org/name-GGUF:MIX``, which the engine downloads itself; None for a file.
        name: The model's name in Ollama's library.
        options: Everything that was laid out.
        draft: The draft model's file, or None.
        projector: The image projector's file, or None.
        projector_offload: False if the projector stays on the CPU.
        changes: True if the engine may change what the command leaves open, until it fits.
    """

    file: str
    name: str
    options: LocalOptions
    draft: str | None = None
    projector: str | None = None
    projector_offload: bool = True
    repository: str | None = None
    changes: bool = True


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started.

    Attributes:
        words: The program and its arguments.
        environment: Variables set before it, as ``NAME=value``; before the server, where there is one.
        server: A program that must run in the background; empty where the command is the server.
        options: What the file named by the last argument must say; empty where no file is needed.
        modelfile: A Modelfile that starts the same; empty for engines without one.
    """

    words: tuple[Word, ...]
    environment: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    modelfile: str = ""


def named(*pairs: tuple[str, object | None]) -> list[Word]:
    """Flags with their values, of those that have one."""
    return [word for flag, value in pairs if value is not None for word in (flag, str(value))]


def ranks(flags: ServeFlags, served: Served, tensor_parallel: int, experts: tuple[Word, ...]) -> list[Word]:
    """Ranks of each kind, which vLLM and SGLang say in the same order.

    Args:
        flags: The server's names of them.
        served: What must be said.
        tensor_parallel: Tensor ranks as the server counts them.
        experts: What divides experts, where they are divided.
    """
    numbers = (
        (flags.tensor_parallel, tensor_parallel, ()),
        (flags.pipeline_parallel, served.layout.pipeline, ()),
        (flags.data_parallel, served.layout.data, flags.data_attention),
        (flags.decode_context_parallel, served.layout.decode_context, ()),
    )
    words = [word for flag, number, more in numbers if number > 1 for word in (flag, str(number), *more)]
    return [*words, *(experts if served.layout.expert else ())]


def limits(flags: ServeFlags, served: Served, max_seqs: int | None) -> list[Word]:
    """Context, requests at once, memory share and formats, which vLLM and SGLang say in the same order.

    ``max_seqs``: requests at once as the server counts them.
    """
    share = None if served.share is None else f"{served.share:g}"
    online = served.weight_format if served.weight_format in ONLINE_WEIGHTS else None
    words = named(
        (flags.context, served.context_tokens),
        (flags.max_num_seqs, max_seqs),
        (flags.share, share),
        (flags.weights, online),
    )
    if not served.kv_is_own:
        own = flags.kv_names.get(served.kv_format, served.kv_format)
        words += [flags.kv, _KV_TYPES.get(served.kv_format) or own]
    return words


def partition_environment(variable: str, served: Served) -> tuple[str, ...]:
    """The variable that states each pipeline stage's layers; nothing for the engine's own division."""
    return (f"{variable}={','.join(map(str, served.layout.partition))}",) if served.layout.partition else ()
