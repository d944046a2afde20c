"""Ollama behind the engine protocol: it starts llama-server with defaults of its own.

``llm/llama_server.go`` (``startLlamaServer``) and ``server/routes.go`` of Ollama fb30760 (2026-08-21), which runs
llama-server b10488: ``-c num_ctx*parallel -np parallel`` always explicit, so slots never share a row of cells;
``num_ctx`` from the memory of all devices where nobody states it; ``--fit`` decides what stays on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvreport.accounting.engines.llama_cpp.options import LocalOptions
from kvreport.accounting.engines.llama_cpp.rules import LlamaCpp
from kvreport.catalog.model import Model

CONTEXT_TIERS: Final = ((47 << 30, 262144), (23 << 30, 32768), (0, 4096))
"""Least memory of all devices, and the context that Ollama then takes by itself (``server/routes.go``)."""


def default_context(total_bytes: int, model: Model) -> int:
    """``num_ctx`` where nobody states it.

    Args:
        total_bytes: Memory of all devices together.
        model: The model, whose own context caps it.
    """
    usual = next(context for least, context in CONTEXT_TIERS if total_bytes >= least)
    return min(usual, model.context_tokens)


@dataclass(frozen=True, slots=True)
class Ollama(LlamaCpp):
    """The rules of one Ollama release."""

    def local_options(self, options: LocalOptions, model: Model, total_bytes: int) -> LocalOptions:
        """One slot unless asked for more, every slot with the whole ``num_ctx``, never unified."""
        slots = options.parallel or 1
        each = options.context or default_context(total_bytes, model)
        return replace(options, parallel=slots, unified=False, context=each * slots)
