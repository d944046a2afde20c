"""The command that starts a model at home, and the names of its file."""

from __future__ import annotations

from typing import Any

from kvreport.accounting.engines.command import Command, LocalServed, Served
from kvreport.accounting.engines.llama_cpp.layout import LocalLayout
from kvreport.accounting.parallel import Layout
from kvreport.catalog.local_architectures import OLLAMA_PREFIX, QAT_MIX, OllamaNames
from kvreport.estimation.home_case import LocalCase


def command_of(case: LocalCase, layout: LocalLayout, file: str = "", **more: Any) -> Command:  # noqa: ANN401
    """The command that starts the engine as a case was laid out.

    ``file``: the file to name; empty names it as its quantization usually is. ``more``: further fields of ``LocalServed``.
    """
    model = case.request.model.id
    told = LocalServed(
        file or _file_name(case),
        _ollama_name(model, case.mix),
        case.options,
        repository=case.named.repository,
        changes=case.keeps_layers(layout),
        **more,
    )
    command = case.request.case.rules.command(Served(model, Layout(), None, local=told))
    assert command is not None  # noqa: S101 - every engine that allocates at start has one
    return command


def made_from_file(case: LocalCase) -> list[str]:
    """How Ollama gets a model under the name that the command runs, where its library is not known to have one of that name."""
    model, stated = case.request.model.id, bool(case.named.said) and case.query.weights is not None
    name = _ollama_name(model, case.mix)
    if not case.engine_sets_context or stated or case.mix == QAT_MIX or name in OllamaNames.need().names:
        return []
    said = f"{name} is made from a file, because Ollama's library is not known to have it: ollama create {name} -f Modelfile"
    return [f"{said}, with FROM ./{_file_name(case)} in the Modelfile"]


def _file_name(case: LocalCase) -> str:
    """The GGUF file that was given, else as a quantization of the model is usually named."""
    usual = f"{case.request.model.id.rpartition('/')[2]}-{case.mix.upper()}.gguf"
    return str(case.query.model) if case.mix == "file" else usual


def _ollama_name(model: str, mix: str) -> str:
    """The name of Ollama's library that carries a model; the model's own id where there is none."""
    names = OllamaNames.need().names
    found = next((name for name, held in names.items() if held.model == model), None)
    if found is None:
        return model
    if mix == QAT_MIX:
        return f"{found}-it-qat"
    own = names[found].format.removeprefix(OLLAMA_PREFIX)
    plain = mix.removeprefix(OLLAMA_PREFIX)
    return found if own == plain else f"{found}-{plain}"
