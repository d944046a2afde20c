"""The command line of ``llama-server`` (``common/arg.cpp``), and what starts the same under Ollama."""

from __future__ import annotations

from typing import Final

from kvreport.accounting.engines.command import Command, LocalServed, Word, named
from kvreport.accounting.engines.llama_cpp.options import (
    DEFAULT_CACHE_RAM,
    DEFAULT_CHECKPOINTS,
    LocalOptions,
)
from kvreport.accounting.text_drafts import LOCAL_TEXT_DRAFTS
from kvreport.units import MIB

_ALL_LAYERS: Final = 1 << 12
"""More layers than any model has: all experts on the CPU."""


def server_command(served: LocalServed) -> Command:
    """How llama-server is started."""
    options = served.options
    source = ["-m", served.file] if served.repository is None else ["-hf", served.repository]
    words: list[Word] = ["llama-server", *source, *flags(options)]
    if served.draft is not None:
        words += ["-md", served.draft, "--spec-draft-n-max", str(options.draft)]
    if options.ngram:
        usual, flag = LOCAL_TEXT_DRAFTS[options.ngram]
        words += ["--spec-type", options.ngram]
        words += [flag, str(options.draft)] if options.draft != usual else []
    if options.mtp:
        words += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(options.draft)]
    if served.projector is not None:
        words += ["--mmproj", served.projector]
        words += [] if served.projector_offload else ["--no-mmproj-offload"]
    words += [] if served.changes else ["--fit", "off"]
    return Command(tuple(words))


def flags(options: LocalOptions) -> list[Word]:
    """Flags of ``llama-server`` that differ from its defaults, the context always."""
    words = named(("-c", options.context), ("-np", options.parallel))
    if options.unified and options.parallel is not None:
        words.append("-kvu")
    stated = (
        ("-b", options.batch, 2048), ("-ub", options.ubatch, 512), ("-ngl", options.gpu_layers, None),
        ("-ctk", options.type_k, "f16"), ("-ctv", options.type_v, "f16"), ("-fa", options.flash, "auto"),
        ("-sm", options.split_mode, "layer"), ("-mg", options.main_gpu, 0),
    )  # fmt: skip
    for flag, value, usual in stated:
        words += [flag, str(value)] if value != usual else []
    if options.cache_ram != DEFAULT_CACHE_RAM:
        words += ["--cache-ram", str(options.cache_ram // MIB)]
    if options.checkpoints != DEFAULT_CHECKPOINTS:
        words += ["--ctx-checkpoints", str(options.checkpoints)]
    if options.cpu_moe:
        words += ["--cpu-moe"] if options.cpu_moe > _ALL_LAYERS else ["--n-cpu-moe", str(options.cpu_moe)]
    if options.tensor_split:
        words += ["-ts", ",".join(f"{share:g}" for share in options.tensor_split)]
    if options.overrides:
        words += ["-ot", ",".join(f"{pattern}={buffer}" for pattern, buffer in options.overrides)]
    switches = (
        ("--swa-full", options.swa_full), ("--no-kv-offload", not options.kv_offload),
        ("--no-op-offload", not options.op_offload),
    )  # fmt: skip
    return words + [flag for flag, on in switches if on]


def ollama_environment(options: LocalOptions) -> tuple[str, ...]:
    """The variables of ``ollama serve`` that lay a model out as asked; layers only where they were stated."""
    words = [f"OLLAMA_CONTEXT_LENGTH={options.context // options.slots}"]
    words += [f"OLLAMA_NUM_PARALLEL={options.slots}"] if options.slots > 1 else []
    words += [f"OLLAMA_KV_CACHE_TYPE={options.type_k}"] if options.type_k != "f16" else []
    words += ["OLLAMA_FLASH_ATTENTION=0"] if options.flash == "off" else []
    return tuple(words)


def modelfile(name: str, context: int, options: LocalOptions | None = None) -> str:
    """An Ollama Modelfile with the same parameters: the only place for a micro-batch and a number of layers.

    ``name``: model in Ollama's library. ``context``: tokens of one slot.
    """
    lines = [f"FROM {name}", f"PARAMETER num_ctx {context}"]
    if options is not None and options.ubatch_given:
        lines.append(f"PARAMETER num_batch {options.ubatch}")
    if options is not None and options.gpu_layers is not None:
        lines.append(f"PARAMETER num_gpu {options.gpu_layers}")
    return "\n".join(lines)
