"""The command that starts a local engine as an answer describes it: llama-server, Ollama, mlx_lm.server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kvreport.accounting.engines.command import LocalServed
from kvreport.catalog.llama_cpp import OLLAMA_PREFIX, OllamaNames
from kvreport.estimation.commands import shell_line
from kvreport.estimation.local_inverse import keeps_layers

if TYPE_CHECKING:
    from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
    from kvreport.estimation.local_answer import LocalEstimate
    from kvreport.estimation.local_case import LocalCase

MODEL_FILE: Final = "MODEL.gguf"
"""Stands for the file where only a catalog name is known."""


def command_line(result: LocalEstimate) -> str:
    """The command of an answer, as one line for a shell."""
    query, draft = result.case.query, result.case.query.draft
    served = LocalServed(
        file=str(query.model) if result.mix == "file" else result.case.named.file or MODEL_FILE,
        name=ollama_name(result.case.request.model.id, result.mix),
        options=result.options,
        draft=None if draft is None else str(draft) if str(draft).endswith(".gguf") else "DRAFT.gguf",
        projector=query.mmproj,
        projector_offload=not query.no_mmproj_offload,
        repository=result.case.named.repository,
        changes=keeps_layers(result.case, result.local),
    )
    return line_of(result.case, served)


def command_of_file(case: LocalCase, layout: LocalLayout) -> str:
    """The command of a machine that was sized: the file is named as its quantization usually is."""
    model = case.request.model.id
    usual = f"{model.rpartition('/')[2]}-{case.mix.upper()}.gguf"
    file = str(case.query.model) if case.mix == "file" else usual
    name = ollama_name(model, case.mix)
    repository, changes = case.named.repository, keeps_layers(case, layout)
    return line_of(case, LocalServed(file, name, case.options, repository=repository, changes=changes))


def line_of(case: LocalCase, served: LocalServed) -> str:
    """A command of the case's engine as one line for a shell; empty for an engine without one."""
    command = case.request.case.rules.local_command(served)
    return "" if command is None else shell_line(command)


def ollama_name(model: str, mix: str) -> str:
    """The name of Ollama's library that carries a model; the model's own id where there is none."""
    names = OllamaNames.need().names
    found = next((name for name, held in names.items() if held.model == model), None)
    if found is None:
        return model
    own = names[found].format.removeprefix(OLLAMA_PREFIX)
    plain = mix.removeprefix(OLLAMA_PREFIX)
    return found if own == plain else f"{found}-{plain}"


def modelfile_of(result: LocalEstimate) -> str | None:
    """The Modelfile of an answer; None for other engines than Ollama."""
    name = ollama_name(result.case.request.model.id, result.mix)
    return result.case.request.case.rules.modelfile(LocalServed(MODEL_FILE, name, result.options))
