"""What a serving command must say, and the command as words: what every engine's ``command`` takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvreport.accounting.engines.step import ServerSettings
from kvreport.accounting.parallel import Layout
from kvreport.accounting.plan import UNTOLD, CacheSettings
from kvreport.words import KV_NAMES, ONLINE_WEIGHTS

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.options import LocalOptions

Word = str | Mapping[str, object]
"""One argument; a mapping is an argument in JSON."""

_KV_TYPES = {"fp32": "auto"}
"""A cache in float32 follows the type that the engine computes in."""


@dataclass(frozen=True, slots=True)
class Served(ServerSettings):
    """What a serving command must say."""

    model: str  # Id of the checkpoint.
    layout: Layout  # How a replica is spread over devices.
    context_tokens: int | None  # Longest request allowed, or None for the model's own.
    max_seqs: int | None = None  # Requests at once on one data rank, or None for the engine's default.
    weight_format: str = "released"  # Name of the weight format; ``released`` needs no flag.
    kv_format: str = "bf16"  # Name of the KV format.
    kv_is_own: bool = True  # True if the engine takes this KV format by itself.
    dtype: str | None = None  # Type to compute in, or None for the checkpoint's own.
    max_batched_tokens: int | None = None  # Tokens of one step, or None for the engine's default.
    pool_tokens: int | None = None  # Tokens of a pool given by hand on one data rank, or None.
    caches: CacheSettings = UNTOLD
    # Id of a draft model; None for the checkpoint's own prediction layers and for drafts from the text.
    draft: str | None = None
    # How it drafts where it is no language model of its own: ``eagle``, ``eagle3``, ``dflash``, ``dspark``,
    # ``ngram`` or ``suffix``; None for prediction layers and language models.
    draft_method: str | None = None
    offload_bytes: int = 0  # Host memory of all ranks of one data rank for blocks that the pool gives up.
    # Inputs of a kind per prompt, where they are limited and not text alone is served.
    inputs: tuple[tuple[str, int], ...] = ()
    model_runner: str = ""  # The model runner that was asked for, ``first`` or ``second``, or empty.
    state_type: str | None = None  # Type of recurrent states that was asked for, or None.
    index_type: str | None = None  # Type of index keys that was asked for, or None.
    # Kernels of experts that were asked for, where the release has a flag for them, or None.
    expert_kernels: str | None = None
    # Keys of ``config.json`` that are stated anew.
    changed_keys: Mapping[str, object] = field(default_factory=dict)
    any_context: bool = False  # True if a context beyond the model's limit is allowed.
    local: LocalServed | None = None  # What an engine for one's own machine must say; None for servers.

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage."""
        return self.layout.tensor * self.layout.data


@dataclass(frozen=True, slots=True)
class LocalServed:
    """What the command of an engine for one's own machine must say."""

    file: str  # The GGUF file, or a name that stands for it.
    name: str  # The model's name in Ollama's library.
    options: LocalOptions  # Everything that was laid out.
    draft: str | None = None  # The draft model's file, or None.
    projector: str | None = None  # The image projector's file, or None.
    projector_offload: bool = True  # False if the projector stays on the CPU.
    # ``org/name-GGUF:MIX``, which the engine downloads itself; None for a file.
    repository: str | None = None
    changes: bool = True  # True if the engine may change what the command leaves open, until it fits.


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started."""

    words: tuple[Word, ...]  # The program and its arguments.
    # Variables set before it, as ``NAME=value``; before the server, where there is one.
    environment: tuple[str, ...] = ()
    # A program that must run in the background; empty where the command is the server.
    server: tuple[str, ...] = ()
    # What the file named by the last argument must say; empty where no file is needed.
    options: Mapping[str, object] = field(default_factory=dict)
    modelfile: str = ""  # A Modelfile that starts the same; empty for engines without one.


def named(flags: Mapping[str, str], **settings: object | None) -> list[Word]:
    """Flags with their values, of those settings that have one."""
    return [
        word for name, value in settings.items() if value is not None for word in (flags[name], str(value))
    ]


def ranks(
    flags: Mapping[str, str],
    served: Served,
    tensor_parallel: int,
    *,
    attention: tuple[Word, ...] = (),
    experts: tuple[Word, ...] = (),
) -> list[Word]:
    """Ranks of each kind, which vLLM and SGLang say in the same order.

    Args:
        flags: The server's flags, by what each sets.
        served: What must be said.
        tensor_parallel: Tensor ranks as the server counts them.
        attention: What attention by data rank asks for in addition to their number.
        experts: What the flag that divides experts takes.
    """
    numbers = (
        ("tensor_parallel", tensor_parallel, ()),
        ("pipeline_parallel", served.layout.pipeline, ()),
        ("data_parallel", served.layout.data, attention),
        ("decode_context_parallel", served.layout.decode_context, ()),
    )
    words = [
        word for name, number, more in numbers if number > 1 for word in (flags[name], str(number), *more)
    ]
    return [*words, *((flags["expert_parallel"], *experts) if served.layout.expert else ())]


def limits(server: str, flags: Mapping[str, str], served: Served, max_seqs: int | None) -> list[Word]:
    """Context, requests at once, memory share and formats, which vLLM and SGLang say in the same order.

    ``flags``: the server's flags, by what each sets. ``max_seqs``: requests at once as the server counts them.
    """
    share = None if served.utilization is None else f"{served.utilization:g}"
    online = served.weight_format if served.weight_format in ONLINE_WEIGHTS else None
    words = named(flags, context=served.context_tokens, max_seqs=max_seqs, utilization=share, weights=online)
    if not served.kv_is_own:
        own = KV_NAMES[server].get(served.kv_format, served.kv_format)
        words += [flags["kv"], _KV_TYPES.get(served.kv_format) or own]
    return words


def partition_environment(variable: str, served: Served) -> tuple[str, ...]:
    """The variable that states each pipeline stage's layers; nothing for the engine's own division."""
    return (f"{variable}={','.join(map(str, served.layout.partition))}",) if served.layout.partition else ()
