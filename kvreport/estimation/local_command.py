"""The command that starts a local engine as an answer describes it: llama-server, Ollama, mlx_lm.server."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.catalog.llama_cpp import load_ollama_names

if TYPE_CHECKING:
    from kvreport.estimation.local_answer import LocalEstimate

MODEL_FILE: Final = "MODEL.gguf"
"""Stands for the file where only a catalog name is known."""


def command_line(result: LocalEstimate) -> str:
    """The command of an answer, as one line for a shell.

    Args:
        result: The answer.
    """
    case = result.case
    if case.request.engine.family == "ollama":
        return ollama_command(ollama_name(case.request.model.id, result.mix), result.options)
    file = str(case.query.model) if result.mix == "file" else MODEL_FILE
    words = ["llama-server", "-m", file, *flags(result.options)]
    if case.query.draft is not None:
        draft = str(case.query.draft)
        words += [
            "-md",
            draft if draft.endswith(".gguf") else "DRAFT.gguf",
            "--spec-draft-n-max",
            str(result.options.draft),
        ]
    if result.options.mtp:
        words += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(result.options.draft)]
    if case.query.mmproj is not None:
        words += ["--mmproj", case.query.mmproj]
        words += ["--no-mmproj-offload"] if case.query.no_mmproj_offload else []
    return shlex.join(words)


def flags(options: LocalOptions) -> list[str]:
    """Flags of ``llama-server`` that differ from its defaults, the context always."""
    words = ["-c", str(options.context)]
    if options.parallel is not None:
        words += ["-np", str(options.parallel)]
    if options.unified and options.parallel is not None:
        words.append("-kvu")
    named = (
        ("-b", options.batch, 2048), ("-ub", options.ubatch, 512), ("-ngl", options.gpu_layers, None),
        ("-ctk", options.type_k, "f16"), ("-ctv", options.type_v, "f16"), ("-fa", options.flash, "auto"),
        ("-sm", options.split_mode, "layer"), ("-mg", options.main_gpu, 0),
    )  # fmt: skip
    for flag, value, usual in named:
        words += [flag, str(value)] if value != usual else []
    if options.cpu_moe:
        words += ["--cpu-moe"] if options.cpu_moe > 1 << 12 else ["--n-cpu-moe", str(options.cpu_moe)]
    if options.tensor_split:
        words += ["-ts", ",".join(f"{share:g}" for share in options.tensor_split)]
    if options.overrides:
        words += ["-ot", ",".join(f"{pattern}={buffer}" for pattern, buffer in options.overrides)]
    switches = (
        ("--swa-full", options.swa_full), ("--no-kv-offload", not options.kv_offload),
        ("--no-op-offload", not options.op_offload), ("--no-mmap", not options.mmap),
    )  # fmt: skip
    return words + [flag for flag, on in switches if on]


def ollama_name(model: str, mix: str) -> str:
    """The name of Ollama's library that carries a model; the model's own id where there is none."""
    names = load_ollama_names().names
    found = next((name for name, held in names.items() if held.model == model), None)
    if found is None:
        return model
    return found if names[found].format == mix else f"{found}-{mix}"


def ollama_command(name: str, options: LocalOptions) -> str:
    """Environment and command that serve a model as laid out; layers only where they were stated."""
    each = options.context // options.slots
    words = [f"OLLAMA_CONTEXT_LENGTH={each}"]
    words += [f"OLLAMA_NUM_PARALLEL={options.slots}"] if options.slots > 1 else []
    words += [f"OLLAMA_KV_CACHE_TYPE={options.type_k}"] if options.type_k != "f16" else []
    words += ["OLLAMA_FLASH_ATTENTION=0"] if options.flash == "off" else []
    return f"{' '.join(words)} ollama serve & ollama run {shlex.quote(name)}"


def modelfile(name: str, context: int, options: LocalOptions | None = None) -> str:
    """An Ollama Modelfile with the same parameters: the only place for a micro-batch and a number of layers.

    Args:
        name: Model in Ollama's library.
        context: Tokens of one slot.
        options: The options whose parameters are written too.
    """
    lines = [f"FROM {name}", f"PARAMETER num_ctx {context}"]
    if options is not None and options.ubatch_given:
        lines.append(f"PARAMETER num_batch {options.ubatch}")
    if options is not None and options.gpu_layers is not None:
        lines.append(f"PARAMETER num_gpu {options.gpu_layers}")
    return "\n".join(lines)


def modelfile_of(result: LocalEstimate) -> str | None:
    """The Modelfile of an answer; None for other engines than Ollama."""
    case, options = result.case, result.options
    if case.request.engine.family != "ollama":
        return None
    return modelfile(
        ollama_name(case.request.model.id, result.mix), options.context // options.slots, options
    )
